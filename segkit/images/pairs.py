"""Folders of images beside folders of masks: who belongs to whom, and what is wrong with any of them.

The whole folder is looked through before anything is refused, so that one message tells every fault.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import count
from segkit.errors import InputError
from segkit.images.labels import LabelMap
from segkit.images.read import (
    IMAGE_EXTENSIONS,
    check_image,
    image_from_page,
    read_mask_with_notes,
    read_pages,
)

_N_SPELLED_OUT = 10
_N_ODD_NAMED = 3


class Pair(NamedTuple):
    """An image file and the mask file of the same stem (its path in the folder, without extension)."""

    stem: str
    image: Path
    mask: Path


@dataclass(frozen=True, eq=False)
class Dataset:
    """Annotated images.

    Parameters
    ----------
    stems : list of str
        The name of each item; pages of a multi-page file are "stem#1", "stem#2", ...
    files : list of str
        The stem of the file that each item is of; pages of one file share it.
    images : list of ndarray of shape (H, W, C), float32
        Images in [0, 1].
    masks : list of ndarray of shape (H, W), int
        The files' own values; `label_map` turns them into class ids.
    label_map : LabelMap
        The classes and their values in the mask files.
    messages : list of str
        What a user ought to be told about how the files were read.
    """

    stems: list[str]
    files: list[str]
    images: list[NDArray[np.float32]]
    masks: list[NDArray[Any]]
    label_map: LabelMap
    messages: list[str]


@dataclass(frozen=True)
class Inspection:
    """What a folder of images and a folder of masks hold.

    Parameters
    ----------
    stems : list of str
        The name of each annotated image, as in `Dataset`.
    shapes : dict of tuple to int
        How many images have each shape (H, W, C).
    dtypes : dict of str to int
        How many images have each dtype in their files.
    value_counts : dict of int to int
        How many pixels of all masks hold each value.
    label_map : LabelMap or None
        The classes, if they can be told.
    messages : list of str
        How the files are read.
    faults : list of str
        What must be mended before training.
    """

    stems: list[str]
    shapes: dict[tuple[int, ...], int]
    dtypes: dict[str, int]
    value_counts: dict[int, int]
    label_map: LabelMap | None
    messages: list[str]
    faults: list[str]

    @property
    def class_counts(self) -> dict[str, int]:
        """How many pixels of all masks belong to each class; empty if the classes cannot be told."""
        if self.label_map is None:
            return {}
        named = zip(self.label_map.names, self.label_map.values, strict=True)
        return {name: self.value_counts.get(value, 0) for name, value in named}

    def describe(self) -> str:
        """Tell all of it in a few lines: counts, shapes, mask values, how they are read, faults."""
        lines = [count(len(self.stems), "annotated image")]
        if self.stems:
            n_pixels = sum(self.value_counts.values())
            shapes = [f"{' x '.join(map(str, shape))} ({number})" for shape, number in self.shapes.items()]
            dtypes = [f"{dtype} ({number})" for dtype, number in self.dtypes.items()]
            values = [f"{value} ({number / n_pixels:.2%})" for value, number in self.value_counts.items()]
            lines += [
                f"shapes: {_first(shapes)}",
                f"dtypes: {_first(dtypes)}",
                f"mask values: {_first(values)}",
            ]
        return "\n".join([*lines, *self.messages, *(f"fault: {fault}" for fault in self.faults)])


class _Item(NamedTuple):
    """One page of a pair, the mask in the file's own values."""

    stem: str
    file: str
    image: NDArray[np.float32]
    mask: NDArray[Any]
    dtype: str


def list_images(folder: str | Path, extensions: Sequence[str] = IMAGE_EXTENSIONS) -> list[Path]:
    """List the image files of a folder and its sub-folders.

    Parameters
    ----------
    folder : str or Path
        A folder, or one image file.
    extensions : sequence of str
        Extensions of image files, in lower case; other files are skipped, and so is all that is hidden.

    Returns
    -------
    list of Path
        Paths relative to `folder` (to its parent if it is a file), sorted.

    Raises
    ------
    InputError
        If there is no such folder, or no image in it.
    """
    folder = Path(folder)
    if not folder.exists():
        raise InputError(f"{folder}: no such file or folder: check its name")
    root = _root(folder)
    candidates = [folder] if folder.is_file() else list(folder.rglob("*"))
    relative = [
        path.relative_to(root) for path in candidates if path.suffix.lower() in extensions and path.is_file()
    ]
    found = sorted(path for path in relative if not any(part.startswith(".") for part in path.parts))
    if not found:
        others = Counter(path.suffix.lower() or "no extension" for path in candidates if path.is_file())
        there = ", ".join(f"{number} of {suffix}" for suffix, number in others.most_common(3))
        raise InputError(
            f"{folder}: no images, expected files that end in {', '.join(extensions)}"
            + (f", found {there}: save them in one of these formats" if there else ": check the folder")
        )
    return found


def pair(images: str | Path, masks: str | Path) -> list[Pair]:
    """Match the images of one folder with the masks of another by their stems.

    Parameters
    ----------
    images, masks : str or Path
        Two folders, two files, or one image file and a folder. Sub-folders must match too: ``images/a/1.png``
        belongs to ``masks/a/1.tif``. The mask of one image file lies at the top of the folder, or in one place below.

    Returns
    -------
    list of Pair
        Stem, image path and mask path, sorted by stem.

    Raises
    ------
    InputError
        If a folder holds no images, an image lacks its mask or a mask its image, or two files of one
        folder share a stem; every such stem is in the message. If one mask file is given for a folder of images.
    """
    pairs, faults = _match(images, masks)
    _raise(faults)
    return pairs


def page_names(entry: Pair, n_pages: int) -> list[str]:
    """Name the pages of an image file: "stem#1", "stem#2", ..., or "stem" if there is one only."""
    stem = entry.stem or entry.image.stem
    return [stem] if n_pages == 1 else [f"{stem}#{page + 1}" for page in range(n_pages)]


def load_pairs(
    images: str | Path,
    masks: str | Path,
    *,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
) -> Dataset:
    """Read every image with its mask, ready for training.

    Parameters
    ----------
    images, masks : str or Path
        Folders or files, as `pair` matches them.
    labels : mapping of int to str, optional
        The class name of each mask value, as in `LabelMap.infer`.
    unlabelled : int, optional
        The mask value of pixels nobody annotated.

    Returns
    -------
    Dataset
        Images, masks in the files' own values, and the label map.

    Raises
    ------
    InputError
        If anything is wrong with any file. Every fault is counted, ten files are named for each.
    """
    pairs, faults = _match(images, masks)
    messages: list[str] = []
    items = list(_read(pairs, faults, messages))
    faults += _same_names([item.stem for item in items])
    faults += _uneven_channels([item.image.shape for item in items])
    faults += _unannotated(items, unlabelled)
    values_of = {item.stem: np.unique(item.mask).tolist() for item in items}
    label_map = _infer(values_of, labels, unlabelled, faults)
    _raise(faults)
    assert label_map is not None  # or there was a fault to raise
    messages += _of_one_class(values_of, label_map)
    return Dataset(
        stems=[item.stem for item in items],
        files=[item.file for item in items],
        images=[item.image for item in items],
        masks=[item.mask for item in items],
        label_map=label_map,
        messages=[label_map.describe(), *messages],
    )


def inspect_pairs(
    images: str | Path,
    masks: str | Path,
    *,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
) -> Inspection:
    """Look through images and masks one by one and tell what they hold; faults are listed, not raised.

    Parameters
    ----------
    images, masks : str or Path
        Folders or files, as `pair` matches them.
    labels : mapping of int to str, optional
        The class name of each mask value, as in `LabelMap.infer`.
    unlabelled : int, optional
        The mask value of pixels nobody annotated.

    Returns
    -------
    Inspection
        Shapes, dtypes, mask values, classes and faults.
    """
    pairs, faults = _match(images, masks)
    messages: list[str] = []
    stems: list[str] = []
    values_of: dict[str, list[int]] = {}
    shapes: Counter[tuple[int, ...]] = Counter()
    dtypes: Counter[str] = Counter()
    value_counts: Counter[int] = Counter()
    for item in _read(pairs, faults, messages):
        stems.append(item.stem)
        faults += _unannotated([item], unlabelled)
        shapes[item.image.shape] += 1
        dtypes[item.dtype] += 1
        values, counts = np.unique(item.mask, return_counts=True)
        values_of[item.stem] = values.tolist()
        value_counts.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    faults += _same_names(stems)
    faults += _uneven_channels(list(shapes.elements()))
    label_map = _infer(values_of, labels, unlabelled, faults)
    if label_map is not None:
        messages = [label_map.describe(), *messages, *_of_one_class(values_of, label_map)]
    counted = dict(sorted(value_counts.items()))
    return Inspection(stems, dict(shapes), dict(dtypes), counted, label_map, messages, faults)


def _match(images: str | Path, masks: str | Path) -> tuple[list[Pair], list[str]]:
    images, masks = Path(images), Path(masks)
    if images.is_dir() and masks.is_file():
        return [], [
            f"{masks}: one mask for the folder {images}, expected a folder of masks: give that folder, or one image"
        ]
    faults: list[str] = []
    image_of = by_stem(images, faults)
    if images.is_file() and masks.exists():
        return [entry for image in image_of.values() for entry in _pair_file(image, masks, faults)], faults
    mask_of = by_stem(masks, faults)
    if image_of and mask_of:
        faults += _unpaired(image_of, mask_of)
    both = sorted(image_of.keys() & mask_of.keys())
    return [Pair(stem, image_of[stem], mask_of[stem]) for stem in both], faults


def _pair_file(image: Path, masks: Path, faults: list[str]) -> list[Pair]:
    """Match one image with a mask file, or with that of its stem in a folder: at its top, or in one place below."""
    paths = _paths_by_stem(masks, faults)
    if masks.is_file():
        return [Pair("", image, path) for [path] in paths.values()]
    if not paths:
        return []
    stem = unicodedata.normalize("NFC", image.stem)
    own = [
        (name, path)
        for name, same in paths.items()
        for path in same
        if name.rpartition("/")[2] == stem and not path.samefile(image)
    ]
    found = [path for name, path in own if name == stem] or [path for _, path in own]
    if len(found) == 1:
        return [Pair(stem, image, found[0])]
    if found:
        told = _first([str(path) for path in found])
        faults.append(
            f"{image}: {len(found)} masks of the stem {stem} ({told}), expected one: give that file"
        )
    else:
        faults.append(
            f"{image}: no mask of the stem {stem} in {masks}: add or rename it, or give the mask file"
        )
    return []


def by_stem(folder: str | Path, faults: list[str]) -> dict[str, Path]:
    """Give the image file of each stem of a folder; a stem of several files is added to the faults."""
    paths = _paths_by_stem(folder, faults)
    faults += [
        f"{same[0]}: same stem as {same[1].name}, expected one file: remove one"
        for same in paths.values()
        if len(same) > 1
    ]
    return {stem: same[0] for stem, same in paths.items()}


def _paths_by_stem(folder: str | Path, faults: list[str]) -> dict[str, list[Path]]:
    root = _root(Path(folder))
    paths: defaultdict[str, list[Path]] = defaultdict(list)
    try:
        listed = list_images(folder)
    except InputError as fault:
        faults.append(str(fault))
        return {}
    for path in listed:
        # one name may be spelled in two ways: macOS splits accents from letters, other systems do not
        paths[unicodedata.normalize("NFC", path.with_suffix("").as_posix())].append(root / path)
    return paths


def _root(folder: Path) -> Path:
    return folder.parent if folder.is_file() else folder


def _unpaired(image_of: Mapping[str, Path], mask_of: Mapping[str, Path]) -> list[str]:
    sides = [
        (sorted(image_of.keys() - mask_of.keys()), "image", "mask"),
        (sorted(mask_of.keys() - image_of.keys()), "mask", "image"),
    ]
    faults = [
        f"{count(len(stems), have)} without {lack} of the same stem ({_first(stems)}): add or rename the {lack}"
        for stems, have, lack in sides
        if stems
    ]
    (images, *_), (masks, *_) = sides
    added = {mask.removeprefix(image) for image, mask in zip(images, masks, strict=False)}
    if len(images) == len(masks) and len(added) == 1 and not set(masks) & added:
        faults.append(f"every mask's name ends in {added.pop()!r}: take that off")
    return faults


def _read(pairs: Sequence[Pair], faults: list[str], messages: list[str]) -> Iterator[_Item]:
    """Read pair after pair; what is wrong with one goes to `faults` and the next is read."""
    for entry in pairs:
        try:
            masks, notes = read_mask_with_notes(entry.mask)
        except InputError as fault:
            faults.append(str(fault))
            masks, notes = [], []
        messages += notes
        try:
            pages = read_pages(entry.image)
        except InputError as fault:
            faults.append(str(fault))
            continue
        yield from _items(entry, pages, masks, faults)


def _items(
    entry: Pair, pages: Sequence[NDArray[Any]], masks: Sequence[NDArray[Any]], faults: list[str]
) -> Iterator[_Item]:
    if masks and len(masks) != len(pages):
        faults.append(
            f"{entry.mask}: {count(len(masks), 'page')} for {count(len(pages), 'page')} of {entry.image}, "
            f"expected a mask for each: annotate or remove pages"
        )
        return
    [file] = page_names(entry, 1)
    for index, (stem, page) in enumerate(zip(page_names(entry, len(pages)), pages, strict=True)):
        name = f"{entry.image}{stem.removeprefix(file)}"
        try:
            image = image_from_page(page, name=name)
            check_image(image, name=name)
        except InputError as fault:
            faults.append(str(fault))
            continue
        if not masks:
            continue
        if image.shape[:2] != masks[index].shape:
            faults.append(
                f"{name}: image of {_size(image)} pixels, mask of {_size(masks[index])}, "
                f"expected one size: export the mask at the size of the image"
            )
            continue
        yield _Item(stem, file, image, masks[index], str(page.dtype))


def _unannotated(items: Sequence[_Item], unlabelled: int | None) -> list[str]:
    return [
        f"{item.stem}: mask has no labelled pixel: annotate some, or leave that image out"
        for item in items
        if unlabelled is not None and (item.mask == unlabelled).all()
    ]


def _of_one_class(values_of: Mapping[str, Sequence[int]], label_map: LabelMap) -> list[str]:
    """Tell which masks hold one class only: at times there is nothing to see, at times somebody forgot."""
    stems: defaultdict[int, list[str]] = defaultdict(list)
    for stem, values in values_of.items():
        labelled = [value for value in values if value != label_map.unlabelled]
        if len(labelled) == 1:
            stems[labelled[0]].append(stem)
    names = dict(zip(label_map.values, label_map.names, strict=True))
    return [
        f"{count(len(found), 'mask')} of {names[value]} only ({_first(found)}): right if there is nothing else to see, "
        f"else annotate the rest"
        for value, found in stems.items()
        if value in names
    ]


def _infer(
    values_of: Mapping[str, Sequence[int]],
    labels: Mapping[int, str] | None,
    unlabelled: int | None,
    faults: list[str],
) -> LabelMap | None:
    if not values_of and faults:  # no mask could be read, which is a fault told already
        return None
    try:
        return LabelMap.infer(set().union(*values_of.values()), labels=labels, unlabelled=unlabelled)
    except InputError as fault:
        odd = _of_other_values(values_of, unlabelled) if labels is None else None
        faults.append(odd or str(fault))
        return None


def _of_other_values(values_of: Mapping[str, Sequence[int]], unlabelled: int | None) -> str | None:
    """Tell which masks hold other values than the same two that most hold, if there are such."""
    sets = {stem: frozenset(values) - {unlabelled} for stem, values in values_of.items()}
    twos = Counter(found for found in sets.values() if len(found) == 2)
    if not twos:
        return None
    [(usual, _)] = twos.most_common(1)
    odd = [stem for stem, found in sets.items() if not found <= usual]
    # a mask of these two and others speaks for classes that are rare
    if not 0 < len(odd) <= len(sets) / 2 or any(usual < found for found in sets.values()):
        return None
    values = [str(value) for value in sorted(set().union(*sets.values()))]
    more = f" and {len(odd) - _N_ODD_NAMED} more" if len(odd) > _N_ODD_NAMED else ""
    one = len(odd) == 1
    return (
        f"masks hold {len(values)} values ({_first(values)}), without the {'mask' if one else 'masks'} of "
        f"{', '.join(odd[:_N_ODD_NAMED])}{more} only {' and '.join(map(str, sorted(usual)))}: save "
        f"{'it' if one else 'them'} with these two, or name every value, for example "
        f"--set data.labels='{{0: background, 1: cell, 2: border}}', or "
        f"--set data.unlabelled=VALUE if one of them marks unlabelled pixels"
    )


def _same_names(stems: Sequence[str]) -> list[str]:
    return [
        f"{stem}: the name of {n_images} images, a page of a file among them: rename a file"
        for stem, n_images in Counter(stems).items()
        if n_images > 1
    ]


def _uneven_channels(shapes: Sequence[tuple[int, ...]]) -> list[str]:
    counts = Counter(shape[2] for shape in shapes)
    if len(counts) < 2:
        return []
    told = ", ".join(f"{n_images} with {n_channels}" for n_channels, n_images in sorted(counts.items()))
    return [
        f"images differ in their number of channels ({told}), expected one: convert all to grey or all to RGB"
    ]


def _raise(faults: Sequence[str]) -> None:
    if len(faults) == 1:
        raise InputError(faults[0])
    if faults:
        raise InputError(f"{len(faults)} faults: {_first(_folded(faults), separator='; ')}")


def _folded(faults: Sequence[str]) -> list[str]:
    """Tell files of which the same is wrong in one go."""
    files_of: defaultdict[str, list[str]] = defaultdict(list)
    for fault in faults:
        file, _, reason = fault.partition(": ")
        files_of[reason].append(file)
    return [f"{_first(files)}: {reason}" for reason, files in files_of.items()]


def _first(items: Sequence[str], *, separator: str = ", ") -> str:
    told = list(items[:_N_SPELLED_OUT])
    if len(items) > len(told):
        told.append(f"and {len(items) - len(told)} more")
    return separator.join(told)


def _size(array: NDArray[Any]) -> str:
    return f"{array.shape[0]} x {array.shape[1]}"
