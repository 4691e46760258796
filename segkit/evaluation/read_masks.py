"""Read folders of predicted and true masks: match their files, and find the meaning of their values."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import count, first_few, safe_cell
from segkit._files import lock
from segkit.errors import InputError
from segkit.evaluation.statistics import FEW_IMAGES
from segkit.images import UNLABELLED, LabelMap
from segkit.images.coco import Coco
from segkit.images.masks import Drawn, MaskReader, find_masks, open_objects
from segkit.images.numbering import (
    MaskOptions,
    MasksAre,
    Numbers,
    describe_broken,
    look_like_instances,
    number_objects,
    refuse_options,
    without,
)
from segkit.images.outlines import check_ids
from segkit.images.read import read_planes
from segkit.images.stems import files_by_stem, image_name, match_stems, page_names, stem_of

# Of so many true masks, a value that one of them holds may be a slip.
_FEWEST_FOR_RARE = 4
# The table of segkit predict, and what it says of an image whose mask, if there is one, is of an earlier run.
_SUMMARY, _FAILED = "summary.csv", "failed"
Masks = Sequence[NDArray[Any]]


@dataclass(frozen=True, eq=False)
class ReadMasks:
    """Predicted masks beside true ones, page by page: class ids, and label images where both sides number objects."""

    stems: list[str]
    files: list[str]
    pages: list[int]
    truths: list[NDArray[np.uint8]]
    predictions: list[NDArray[np.uint8]]
    label_map: LabelMap
    notes: list[str]
    true_objects: list[NDArray[Any]] | None = None
    predicted_objects: list[NDArray[Any]] | None = None
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    n_pages: dict[str, int] = field(default_factory=dict)
    axes: str | None = None


def read_folders(
    predictions: str | Path,
    masks: str | Path,
    *,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
    masks_are: MasksAre | None = None,
    axes: str | None = None,
    images: str | Path | None = None,
    skip: Collection[str] = (),
    strict: bool = True,
) -> ReadMasks:
    """Read a folder of predicted masks and a folder of true ones."""
    image_of = _images_of(Path(masks), images)
    matched = _match_predictions(Path(predictions), Path(masks), skip, image_of)
    notes = matched.notes
    if strict and matched.missing:
        raise InputError(
            f"{len(matched.missing)} of {len(matched.files) + len(matched.missing)} true masks have no prediction "
            f"({first_few(matched.missing)}): predict those images too, or leave their masks out"
        )
    notes += _note_on_earlier(Path(predictions), [guess for _, _, guess in matched.files])
    items, failed, n_pages = _read_both(matched.files, image_of, unlabelled, notes, axes, strict=strict)
    failed |= dict.fromkeys(matched.missing, "no prediction")
    if not items:
        raise InputError(
            f"none of {count(len(failed), 'true mask')} can be scored "
            f"({first_few([f'{stem}: {reason}' for stem, reason in failed.items()], most=3, separator='; ')}): "
            "give the predictions of these images"
        )
    if failed:
        of_all = count(len(failed) + len({item.file for item in items}), "true mask")
        notes.insert(
            0,
            f"{len(failed)} of {of_all} missing from these scores ({first_few(sorted(failed), most=3)})",
        )
    truths, guesses = [item.truth for item in items], [item.guess for item in items]
    true, predicted = ([item.stem for item in items if item.is_outlined[side]] for side in (0, 1))
    options = MaskOptions(labels, unlabelled, masks_are)
    numbered = which_number_objects(truths, guesses, options, outlined=(true, predicted))
    odd = [item.stem for item in items if unlabelled is not None and (item.guess == unlabelled).any()]
    if odd and not numbered[1]:
        raise InputError(
            f"{odd[0]}: prediction holds {unlabelled}, the value of unlabelled pixels: "
            f"every pixel needs a class; give the predictions, not the annotations"
        )
    if unlabelled is not None and not any((truth == unlabelled).any() for truth in truths):
        notes.append(
            f"no true mask holds {unlabelled}, the value of unlabelled pixels: every pixel is scored"
        )
    if any(numbered):
        label_map = LabelMap((0, 1 if unlabelled != 1 else 2), ("background", "foreground"), unlabelled)
        notes.append(_note_on_objects(truths, guesses, numbered, masks_are))
        if all(numbered):
            notes += _notes_on_pieces(items, unlabelled)
        ids = [np.where(truth == unlabelled, UNLABELLED, truth > 0).astype(np.uint8) for truth in truths]
        guessed_ids = [(guess > 0).astype(np.uint8) for guess in guesses]
    else:
        label_map, told = _classes_of(truths, guesses, labels, unlabelled)
        notes += told
        ids, guessed_ids = ([label_map.encode(mask) for mask in masks] for masks in (truths, guesses))
    noun, n_files = "image", len({item.file for item in items})
    if n_files < len(items):
        noun = "file"
        notes.append(f"{len(items)} pages of {count(n_files, 'file')}: intervals resample files, not pages")
    if n_files < FEW_IMAGES:
        notes.append(f"no firm estimate from {count(n_files, noun)}: score {FEW_IMAGES} or more")
    return ReadMasks(
        stems=[item.stem for item in items],
        files=[item.file for item in items],
        pages=[item.page for item in items],
        truths=ids,
        predictions=guessed_ids,
        label_map=label_map,
        notes=notes,
        true_objects=[np.where(truth == unlabelled, 0, truth) for truth in truths] if all(numbered) else None,
        predicted_objects=guesses if all(numbered) else None,
        failed=failed,
        skipped=matched.skipped,
        n_pages=n_pages,
        axes=axes,
    )


def is_instance_masks(masks: Masks, *, unlabelled: int | None = None) -> bool:
    """Return whether masks number objects, as training tells it: see `segkit.images.numbering.look_like_instances`."""
    return look_like_instances(_numbers_of(masks, unlabelled))


def which_number_objects(
    truths: Masks,
    guesses: Masks,
    options: MaskOptions,
    *,
    outlined: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> tuple[bool, bool]:
    """Return whether true masks, and predicted ones, number objects; beside such masks, a few objects are enough."""
    labels, unlabelled, masks_are = options
    if refusal := refuse_options([*outlined[0], *outlined[1]], options):
        raise InputError(refusal)
    if masks_are == "instances":
        for side, masks in (("true masks", truths), ("predictions", guesses)):
            check_ids(np.array([(mask.min(), mask.max()) for mask in masks]), name=side)
        return True, True
    if masks_are == "classes" or labels is not None or unlabelled == 0:
        return False, False
    true = bool(outlined[0]) or is_instance_masks(truths, unlabelled=unlabelled)
    predicted = bool(outlined[1]) or is_instance_masks(guesses)
    return (
        true or (predicted and _may_number(truths, unlabelled)),
        predicted or (true and _may_number(guesses, None)),
    )


def _may_number(masks: Masks, unlabelled: int | None) -> bool:
    """Return whether masks may hold a few objects, tiny ones, or none; 0 and one other value are rather classes."""
    numbers = _numbers_of(masks, unlabelled)
    empty = all(not len(one.ids) for one in numbers)
    return empty or look_like_instances(numbers, most_classes=2, least_area=1)


def _numbers_of(masks: Masks, unlabelled: int | None) -> list[Numbers]:
    return [number_objects(without(mask, unlabelled)) for mask in masks]


def _classes_of(
    truths: Sequence[NDArray[Any]],
    guesses: Sequence[NDArray[Any]],
    labels: Mapping[int, str] | None,
    unlabelled: int | None,
) -> tuple[LabelMap, list[str]]:
    """Make the label map of both sides, and note values that no true mask holds."""
    true_values, guessed_values = _values(truths), _values(guesses)
    strange, unseen = guessed_values - true_values, true_values - guessed_values - {unlabelled}
    values = sorted(true_values | guessed_values)
    if labels is None:
        if strange and unseen and len(true_values & guessed_values) < 2:
            raise InputError(
                f"predictions hold {_listed(guessed_values)}, true masks {_listed(true_values)}: save both with the same "
                "value for each class"
            )
        classes = [value for value in values if value != unlabelled]
        labels = {value: str(value) for value in classes} if len(classes) > 2 else None
    label_map = LabelMap.infer(values, labels=labels, unlabelled=unlabelled)
    id_of = label_map.id_of_value
    true_ids = {id_of.get(value) for value in true_values}
    strange = {value for value in strange if id_of[value] not in true_ids}
    notes = [f"predictions hold {_listed(strange)}, no true mask does"] if strange else []
    return label_map, notes + _note_on_rare(truths, label_map, unlabelled)


def _note_on_rare(truths: Sequence[NDArray[Any]], label_map: LabelMap, unlabelled: int | None) -> list[str]:
    """Describe which values are in one true mask only and count as a class: they may be a slip."""
    if len(truths) < _FEWEST_FOR_RARE or label_map.n_classes < 3:
        return []
    counts = Counter(int(value) for truth in truths for value in np.unique(truth) if value != unlabelled)
    rare = {value for value, number in counts.items() if number == 1}
    if not rare:
        return []
    return [
        f"in one of {len(truths)} true masks only, and scored as a class: {_listed(rare)}; mend the mask if it is none"
    ]


def _notes_on_pieces(items: Sequence[_Item], unlabelled: int | None) -> list[str]:
    """Describe which true objects, and which predicted ones, are in several pieces: values that may be classes."""
    truths = {item.stem: number_objects(without(item.truth, unlabelled)) for item in items}
    guesses = {item.stem: number_objects(item.guess) for item in items}
    return [
        f"{side}: {note}"
        for side, numbers in (("true masks", truths), ("predictions", guesses))
        for note in describe_broken(numbers)
    ]


def _note_on_objects(
    truths: Sequence[NDArray[Any]],
    guesses: Sequence[NDArray[Any]],
    numbered: tuple[bool, bool],
    masks_are: MasksAre | None,
) -> str:
    """State that masks are read as objects, or as classes because only one side numbers objects."""
    if all(numbered):
        doubt = "" if masks_are else "; if each value is a class: --set data.masks=classes"
        return f"masks number objects: scored as objects, and by pixels as foreground{doubt}"
    objects, others = ("true masks", "predictions") if numbered[0] else ("predictions", "true masks")
    values = _values(guesses if numbered[0] else truths)
    if 0 not in values and len(values) > 1:
        raise InputError(
            f"{objects} number objects, {others} hold {first_few([str(value) for value in sorted(values)])} and no 0: "
            f"save both with 0 as background"
        )
    return (
        f"{objects} number objects, {others} hold classes: scored as classes, every value above 0 as foreground; "
        f"for scores of objects number them in both (or --set data.masks=instances if they are)"
    )


def _values(masks: Sequence[NDArray[Any]]) -> set[int]:
    return {int(value) for mask in masks for value in np.unique(mask)}


def _images_of(masks: Path, images: str | Path | None) -> dict[str, Path]:
    """Return the image files by stem; one image file by the name of its mask file."""
    if images is None:
        return {}
    images = Path(images)
    return (
        {stem_of(Path(masks.name)): images} if images.is_file() and masks.is_file() else files_by_stem(images)
    )


class _Matched(NamedTuple):
    """Stem, true file and predicted file of each pair; true masks and predictions without partner; notes."""

    files: list[tuple[str, Path, Path]]
    missing: list[str]
    skipped: list[str]
    notes: list[str]


def _match_predictions(
    predictions: Path, masks: Path, skip: Collection[str], images: Collection[str]
) -> _Matched:
    """Match every true mask with its prediction."""
    if predictions.is_file() and masks.is_file() and not (_is_set(predictions) or _is_set(masks)):
        return _Matched([(stem_of(Path(masks.name)), masks, predictions)], [], [], [])
    if predictions.exists() and masks.exists() and predictions.samefile(masks):
        raise InputError(
            f"{predictions} is given for predictions and true masks, so every score would be 1: give two folders"
        )
    notes: list[str] = []
    faults: list[str] = []
    found = find_masks(predictions, _names(images) or _names(find_masks(masks, (), [], [])), faults, notes)
    truth_of = find_masks(masks, _names(images) or _names(found), faults, notes)
    if faults:
        raise InputError(first_few(faults, separator="; "))
    others = tuple(f"{name}/" for name in skip)
    guess_of = {stem: path for stem, path in found.items() if not stem.startswith(others)}
    matches = match_stems(guess_of.keys(), truth_of.keys())
    truths = truth_of.keys() - set(matches.images_among_masks)
    files = {truth: (guess, truth_of[truth], guess_of[guess]) for guess, truth in matches.mask_of.items()}
    # predictions may have the suffix instead: NAME_mask predicted, NAME true
    unused = guess_of.keys() - matches.mask_of.keys()
    more = match_stems(truths - files.keys(), unused)
    files |= {truth: (truth, truth_of[truth], guess_of[guess]) for truth, guess in more.mask_of.items()}
    if faults := [*matches.faults, *more.faults]:
        raise InputError(first_few(faults, separator="; "))
    used = {path for _, _, path in files.values()}
    skipped = sorted(stem for stem, path in guess_of.items() if path not in used)
    notes += [f"{count(len(skipped), 'prediction')} without a true mask left out"] if skipped else []
    return _Matched(sorted(files.values()), sorted(truths - files.keys()), skipped, notes)


def _note_on_earlier(folder: Path, predictions: Sequence[Path]) -> list[str]:
    """Describe which masks in an output folder of segkit are not of its last run, which failed on their images."""
    summary = folder / _SUMMARY
    if not (folder / lock.HIDDEN / "record").is_dir():
        return []
    try:
        with summary.open(newline="", encoding="utf-8") as file:
            rows = [(row["image"], row["status"]) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, csv.Error):  # gone or damaged: it tells nothing
        return []
    status_of = {str(Path(image).with_suffix("")): status for image, status in rows if Path(image).name}
    stems = [str(path.relative_to(folder).with_suffix("")) for path in predictions]
    earlier = [stem for stem in stems if status_of.get(safe_cell(stem), _FAILED) == _FAILED]
    if not earlier or not status_of:
        return []
    noun = "prediction is" if len(earlier) == 1 else "predictions are"
    return [
        f"{len(earlier)} {noun} not of the last run of segkit predict ({first_few(sorted(earlier), most=3)}): see {summary}"
    ]


def _is_set(path: Path) -> bool:
    """Return whether a file is a COCO file of several images."""
    source = open_objects(path)
    return isinstance(source, Coco) and len(source.stems) > 1


def _names(stems: Collection[str]) -> set[str]:
    """Return what images may be called: the stems, and NAME of NAME_mask."""
    return {*stems, *filter(None, map(image_name, stems))}


class _Item(NamedTuple):
    """One page of a true and a predicted mask, in the files' own values, and which of the two were outlines."""

    stem: str
    file: str
    page: int
    truth: NDArray[Any]
    guess: NDArray[Any]
    is_outlined: tuple[bool, bool]


def _read_both(
    files: Sequence[tuple[str, Path, Path]],
    image_of: Mapping[str, Path],
    unlabelled: int | None,
    notes: list[str],
    axes: str | None,
    *,
    strict: bool,
) -> tuple[list[_Item], dict[str, str], dict[str, int]]:
    """Read every page of true and predicted masks, name the faults of files that cannot be scored, and count pages."""
    items: list[_Item] = []
    failed: dict[str, str] = {}
    misshapen: list[str] = []
    blank: list[str] = []
    n_pages: dict[str, int] = {}
    readers = MaskReader(notes, axes=axes), MaskReader(notes, axes=axes)
    for file, *paths in files:
        try:
            (truths, guesses), is_outlined = _open_both(readers, paths, file, image_of.get(file))
        except InputError as error:
            if strict:
                raise
            failed[file] = str(error)
            continue
        if [page.shape for page in truths] != [page.shape for page in guesses]:
            sizes = f"true mask {_sizes(truths)}, prediction {_sizes(guesses)}"
            failed[file] = f"sizes differ: {sizes}"
            misshapen.append(f"{file}: {sizes}")
            continue
        n_pages[file] = len(truths)
        names = page_names(file, len(truths))
        for page, (stem, truth, guess) in enumerate(zip(names, truths, guesses, strict=True)):
            if len(truths) > 1 and unlabelled is not None and (truth == unlabelled).all():
                blank.append(stem)
                continue
            if is_outlined[0] and unlabelled:  # the number of an outline may be that value by chance
                truth = np.where(truth == unlabelled, truth.max() + 1, truth)
            items.append(_Item(stem, file, page, truth, guess, is_outlined))
    if misshapen and strict:
        raise InputError(
            f"sizes differ: {'; '.join(misshapen[:10])}; predict the images that the masks belong to"
        )
    for reader in readers:
        notes += reader.notes()
    if blank:
        notes.append(
            f"{count(len(blank), 'plane')} of true masks without a labelled pixel not scored ({first_few(blank)})"
        )
    return items, failed, n_pages


def _open_both(
    readers: tuple[MaskReader, MaskReader], paths: Sequence[Path], file: str, image: Path | None
) -> tuple[list[list[NDArray[Any]]], tuple[bool, bool]]:
    """Read the pages of a true mask and of its prediction, and tell which of the two are outlines."""
    drawn = [reader.open(path) for reader, path in zip(readers, paths, strict=True)]
    sizes = _sizes_of(drawn, image, readers[0].axes)
    pages = [
        reader.pages(one, path, file, None if isinstance(one, list) else sizes)
        for reader, one, path in zip(readers, drawn, paths, strict=True)
    ]
    return pages, (not isinstance(drawn[0], list), not isinstance(drawn[1], list))


def _sizes_of(drawn: Sequence[Drawn], image: Path | None, axes: str | None) -> list[tuple[int, ...]] | None:
    """Return the size of each page, from the mask that is an image, else from the image; None if neither is there."""
    for one in drawn:
        if isinstance(one, list):
            return [page.shape for page in one]
    if image is None:
        return None
    return [page.shape[:2] for page in read_planes(image, axes=axes)]


def _listed(values: Collection[int]) -> str:
    return first_few([str(value) for value in sorted(values)])


def _sizes(pages: Sequence[NDArray[Any]]) -> str:
    height, width = pages[0].shape
    return f"{height} x {width}" + (f" ({len(pages)} pages)" if len(pages) > 1 else "")
