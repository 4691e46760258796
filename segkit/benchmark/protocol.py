"""The few-shot protocol: training and test images, the same for every method."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segkit.errors import InputError, count


@dataclass(frozen=True)
class Split:
    """Names of the training images and of the test images."""

    train: tuple[str, ...]
    test: tuple[str, ...]


def few_shot_split(
    stems: Sequence[str],
    n_train: int,
    seed: int,
    *,
    groups: Mapping[str, str] | None = None,
    test: Sequence[str] | None = None,
) -> Split:
    """Draw training and test images; the test images do not depend on the number of training images.

    Parameters
    ----------
    stems : sequence of str
        Names of all annotated images.
    n_train : int
        Number of training images, >= 1.
    seed : int
        Seed of the permutation.
    groups : mapping of str to str, optional
        The group (patient, video) of each image; a group is never split between training and test.
    test : sequence of str, optional
        Names of the test images, in place of a random third.

    Returns
    -------
    Split
        The sorted names (of groups, if given) are permuted by ``numpy.random.default_rng(seed)``. The last
        third, rounded up, are the test images; the first `n_train` of the others are the training images.

    Raises
    ------
    InputError
        If `n_train` is below 1, too few images are left for training, an image has no group, or a test image is not
        annotated.

    Examples
    --------
    >>> from segkit.benchmark import few_shot_split
    >>> few_shot_split(["a", "b", "c", "d"], 2, seed=0)
    Split(train=('c', 'a'), test=('b', 'd'))
    """
    if n_train < 1:
        raise InputError(f"{count(n_train, 'training image')} asked for: give 1 or more")
    unknown = sorted(set(test or ()) - set(stems)) + sorted(
        set(stems) - set(stems if groups is None else groups)
    )
    if unknown:
        raise InputError(
            f"image {unknown[0]} is a test image without annotation, or has no group: name it, or leave it out"
        )
    group_of = {stem: stem if groups is None else groups[stem] for stem in stems}
    members: dict[str, list[str]] = {}
    for stem in sorted(stems):
        members.setdefault(group_of[stem], []).append(stem)
    held_out = {group_of[stem] for stem in test or ()}
    names = sorted(members.keys() - held_out)
    names = [names[index] for index in np.random.default_rng(seed).permutation(len(names))]
    # The test images come last in the permutation, the training images first: more training images leave the
    # test images as they are.
    n_test = 0 if test is not None else math.ceil(len(names) / 3)
    train_names, test_names = names[: len(names) - n_test], names[len(names) - n_test :]
    candidates = [stem for name in train_names for stem in members[name]]
    if len(candidates) < n_train:
        raise InputError(
            f"{count(n_train, 'training image')} asked for, but of {len(stems)} only {len(candidates)} are left beside the "
            f"test images: annotate more, or leave that size out"
        )
    tested = test if test is not None else [stem for name in test_names for stem in members[name]]
    return Split(tuple(candidates[:n_train]), tuple(tested))


def read_groups(path: Path, stems: Sequence[str], *, files: Sequence[str] | None = None) -> dict[str, str]:
    """Read the group (patient, video) of each image."""
    try:
        # utf-8-sig: spreadsheets write a byte order mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"groups {path}: no such file: check its name") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"groups {path} cannot be read ({error}): give a CSV file of stem,group") from error
    listed: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            raise InputError(
                f"groups {path}, line {number} has {count(len(row), 'column')}: give two, stem,group"
            )
        stem, group = (cell.strip() for cell in row)
        if not group:
            raise InputError(f"groups {path}, line {number} gives {stem} no group: give it one")
        if listed.setdefault(stem, group) != group:
            raise InputError(
                f"groups {path}, line {number} puts {stem} into {group}, an earlier one into {listed[stem]}: keep one"
            )
    # A header needs no special case: its "stem" is the name of no image.
    file_of = dict(zip(stems, stems if files is None else files, strict=True))
    group_of = {stem: listed.get(stem, listed.get(file_of[stem], "")) for stem in stems}
    missing = [stem for stem, group in group_of.items() if not group]
    if missing:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        raise InputError(
            f"groups {path} lacks {', '.join(missing[:10])}{more}: give a line stem,group for every image"
        )
    return group_of


def read_stem_list(path: Path, stems: Sequence[str]) -> list[str]:
    """Read the names of the images to test on."""
    try:
        lines = {line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()} - {""}
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"list {path}: no such file: check its name") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"list {path} cannot be read ({error}): give a text file of one stem a line"
        ) from error
    unknown = sorted(lines - set(stems))
    if unknown or not lines:
        told = f"names {', '.join(unknown[:10])}, which no image has" if unknown else "is empty"
        raise InputError(f"list {path} {told}: give one stem a line, a file's name without its extension")
    return sorted(lines)
