"""Read folders of predicted and true masks: match their files, and find the meaning of their values."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import lock
from segkit._common.files import safe_cell
from segkit.errors import InputError, count, first_few
from segkit.evaluation.statistics import FEW_IMAGES
from segkit.images import UNLABELLED, LabelMap
from segkit.images.findings import Findings
from segkit.images.labels import MOST_CLASSES
from segkit.images.masks import MaskReader
from segkit.images.matching import MaskFiles, Matches, Pair, find_masks, is_outlined, match_masks
from segkit.images.numbering import (
    Mask,
    MaskOptions,
    MasksAre,
    are_in_pieces,
    check_meaning,
    check_options,
    describe_broken,
    hold_one_value,
    look_like_instances,
    with_legend,
)
from segkit.images.outlines import check_ids
from segkit.images.read import read_planes
from segkit.images.stems import Files, files_by_stem, names_of, page_names, stem_of

# Of so many true masks, a value that one of them holds may be a slip.
_FEWEST_FOR_RARE = 4
# Values that a message spells out as an option.
_MOST_NAMED = 8
# The table of segkit predict, and what it says of an image whose mask, if there is one, is of an earlier run.
_SUMMARY, _FAILED = "summary.csv", "failed"
# Its classes, in its hidden folder.
CLASSES = "classes.json"


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
    predictions, masks = Path(predictions), Path(masks)
    options = MaskOptions(labels, unlabelled, masks_are)
    listed = _images_of(masks, images)
    image_of = listed.path_of
    matched, skipped = _match_predictions(predictions, masks, skip, image_of)
    matched.notes += listed.notes
    missing = matched.masks
    if strict and missing:
        raise InputError(
            f"{len(missing)} of {len(matched.pairs) + len(missing)} true masks have no prediction "
            f"({first_few(missing)}): predict those images too, or leave their masks out"
        )
    matched.notes += _note_on_earlier(predictions, [pair.image for pair in matched.pairs])
    read = _read_both(matched.pairs, image_of, options, axes)
    if strict:
        read.refuse()
    items, failed = read.items, read.failed | dict.fromkeys(missing, "no prediction")
    notes = [*matched.notes, *read.notes]
    if not items:
        raise InputError(
            f"none of {count(len(failed), 'true mask')} can be scored "
            f"({first_few([f'{stem}: {reason}' for stem, reason in failed.items()], most=1, separator='; ')}): "
            "give the predictions of these images"
        )
    n_files = len({item.file for item in items})
    if failed:
        told = f"missing from these scores ({first_few(sorted(failed), most=3)})"
        notes.insert(0, f"{len(failed)} of {count(len(failed) + n_files, 'true mask')} {told}")
    truths, guesses = {item.stem: item.truth for item in items}, {item.stem: item.guess for item in items}
    options = with_legend(options, [*truths.values(), *guesses.values()])
    options = options._replace(
        labels=options.labels or _recorded_names(predictions, truths, guesses, options)
    )
    numbered = which_number_objects(truths, guesses, options)
    odd = [stem for stem, guess in guesses.items() if unlabelled in guess.held]
    if odd and not numbered[1]:
        raise InputError(
            f"prediction holds {unlabelled}, the value of unlabelled pixels: "
            f"every pixel needs a class; give the predictions, not the annotations",
            source=odd[0],
        )
    if unlabelled is not None and not any(truth.unlabelled in truth.held for truth in truths.values()):
        notes.append(
            f"no true mask holds {unlabelled}, the value of unlabelled pixels: every pixel is scored"
        )
    if any(numbered):
        label_map = LabelMap({0: "background", 1 if unlabelled != 1 else 2: "foreground"}, unlabelled)
        notes.append(_note_on_objects(truths.values(), guesses.values(), numbered, masks_are))
        for side, own in (("true masks", truths), ("predictions", guesses)) if all(numbered) else ():
            notes += [f"{side}: {note}" for note in describe_broken(own)]
    else:
        label_map, more = _classes_of(list(truths.values()), guesses.values(), options)
        notes += more

    def encode(mask: Mask) -> NDArray[np.uint8]:
        if any(numbered):
            return np.where(mask.is_unlabelled, UNLABELLED, mask.values > 0).astype(np.uint8)
        return label_map.encode(mask.values)

    if n_files < len(items):
        notes.append(f"{len(items)} pages of {count(n_files, 'file')}: intervals resample files, not pages")
    if n_files < FEW_IMAGES:
        noun = "file" if n_files < len(items) else "image"
        notes.append(f"no firm estimate from {count(n_files, noun)}: score {FEW_IMAGES} or more")
    return ReadMasks(
        stems=[item.stem for item in items],
        files=[item.file for item in items],
        pages=[item.page for item in items],
        truths=[encode(item.truth) for item in items],
        predictions=[encode(item.guess) for item in items],
        label_map=label_map,
        notes=notes,
        true_objects=[item.truth.labels for item in items] if all(numbered) else None,
        predicted_objects=[item.guess.labels for item in items] if all(numbered) else None,
        failed=failed,
        skipped=skipped,
        n_pages=read.n_pages,
        axes=axes,
    )


def _recorded_names(
    folder: Path, truths: Mapping[str, Mask], guesses: Mapping[str, Mask], options: MaskOptions
) -> Mapping[int, str] | None:
    """Return the classes of the model that made the predictions, if it is known and they are all that masks hold."""
    try:
        labels = LabelMap.from_dict(json.loads((folder / lock.HIDDEN / CLASSES).read_text("utf-8"))).labels
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # made otherwise
        return None
    masks = [*truths.values(), *guesses.values()]
    is_known = _values(masks) - {options.unlabelled} <= labels.keys() - {options.unlabelled}
    is_free = options.masks_are is None and not any(mask.is_outlined for mask in masks)
    return labels if is_known and is_free else None


def which_number_objects(
    truths: Mapping[str, Mask], guesses: Mapping[str, Mask], options: MaskOptions
) -> tuple[bool, bool]:
    """Return whether true masks, and predicted ones, number objects; beside such masks, a few objects are enough."""
    sides = list(truths.values()), list(guesses.values())
    outlined = [stem for side in (truths, guesses) for stem, mask in side.items() if mask.is_outlined]
    check_options(options, outlined)
    if options.masks_are == "instances":
        for side, masks in zip(("true masks", "predictions"), sides, strict=True):
            check_ids(np.array([value for mask in masks for value in mask.held]), name=side)
        return not _is_foreground(*sides), not _is_foreground(*sides[::-1])
    if options.masks_are == "classes" or options.labels is not None or options.unlabelled == 0:
        return False, False
    true, predicted = (
        any(mask.is_outlined for mask in side) or look_like_instances([mask.numbers for mask in side])
        for side in sides
    )
    if not (true or predicted):
        _check_meaning(*sides)
    return true or (predicted and _may_number(sides[0])), predicted or (true and _may_number(sides[1]))


def _check_meaning(truths: Sequence[Mask], guesses: Sequence[Mask]) -> None:
    """Refuse masks that may number objects, unless the other side holds several values in several pieces: classes."""
    for name, masks, others in (("true masks", truths, guesses), ("predictions", guesses, truths)):
        if len(_values(others) - {0}) < 2 or not are_in_pieces([mask.numbers for mask in others]):
            check_meaning(masks, name=name)


def _is_foreground(masks: Sequence[Mask], others: Sequence[Mask]) -> bool:
    """Return whether masks hold one value for all objects, and the others do not."""
    return len(_values(others) - {0}) > 1 and hold_one_value([mask.numbers for mask in masks])


def _may_number(masks: Sequence[Mask]) -> bool:
    """Return whether masks may hold a few objects, tiny ones, or none; 0 and one other value are rather classes."""
    numbers = [mask.numbers for mask in masks]
    empty = all(not len(one.ids) for one in numbers)
    return empty or look_like_instances(numbers, most_classes=2, least_area=1)


def _classes_of(
    truths: Sequence[Mask], guesses: Iterable[Mask], options: MaskOptions
) -> tuple[LabelMap, list[str]]:
    """Make the label map of both sides; note values that no true mask holds, or one only, which may be a slip."""
    labels, unlabelled, _ = options
    n_masks = Counter(value for truth in truths for value in truth.held)
    true_values, guessed_values = set(n_masks), _values(guesses)
    strange = guessed_values - true_values
    values, notes = sorted(true_values | guessed_values), list[str]()
    if labels is None:
        classes = [value for value in values if value != unlabelled]
        if pair := _two_conventions(true_values - {unlabelled}, guessed_values):
            labels = pair
            notes.append(
                f"predictions hold {_listed(guessed_values)}, true masks {_listed(true_values)}: the larger value is the "
                "foreground of each"
            )
        else:
            _refuse_other_conventions(true_values - {unlabelled}, guessed_values, classes)
            is_known = len(classes) <= MOST_CLASSES or options.masks_are == "classes" or unlabelled == 0
            labels = {value: str(value) for value in classes} if is_known and len(classes) > 2 else None
    label_map = LabelMap.infer(values, labels=labels, unlabelled=unlabelled)
    id_of = label_map.id_of_value
    true_ids = {id_of.get(value) for value in true_values}
    if strange := {value for value in strange if id_of[value] not in true_ids}:
        notes.append(f"predictions hold {_listed(strange)}, no true mask does")
    rare = {value for value, number in n_masks.items() if number == 1 and value != unlabelled}
    if rare and len(truths) >= _FEWEST_FOR_RARE and label_map.n_classes > 2:
        notes.append(
            f"in one of {len(truths)} true masks only, and scored as a class: {_listed(rare)}; mend the mask if it is none"
        )
    return label_map, notes


def _two_conventions(true: Collection[int], guessed: Collection[int]) -> dict[int, str] | None:
    """Name the values of masks of two classes, such as 0 and 1 beside 0 and 255; None of others, and of the same values."""
    if set(true) == set(guessed) or not len(true) == len(guessed) == 2:
        return None
    low, high = {min(true), min(guessed)}, {max(true), max(guessed)}
    return None if low & high else dict.fromkeys(low, "background") | dict.fromkeys(high, "foreground")


def _refuse_other_conventions(true: set[int], guessed: set[int], classes: Sequence[int]) -> None:
    """Ask about values that may be other names of the same classes; one of 0, 1, 2, ... may be rare, and in one only."""
    told = f"predictions hold {_listed(guessed)}, true masks {_listed(true)}"
    names = ", ".join(f"{value}: NAME" for value in classes[:_MOST_NAMED])
    more = ", ..." if len(classes) > _MOST_NAMED else ""
    cure = f"name the class of each value, --set data.labels='{{{names}{more}}}'"
    are_greys = len(true) == len(guessed) and classes[-1] >= 2 * len(classes)
    if (guessed - true and true - guessed) and (
        len(true & guessed) < 2 or min(true) != min(guessed) or are_greys
    ):
        raise InputError(f"{told}: save both with the same value for each class, or {cure}")
    if len(classes) > 2 and classes[-1] == UNLABELLED and classes[-2] < len(classes):
        raise InputError(
            f"{told}: if {UNLABELLED} marks pixels nobody annotated, --set data.unlabelled={UNLABELLED}; if it is a class, "
            f"or another name of one, {cure}"
        )


def _note_on_objects(
    truths: Iterable[Mask], guesses: Iterable[Mask], numbered: tuple[bool, bool], masks_are: MasksAre | None
) -> str:
    """State that masks are read as objects, or as classes because only one side numbers objects."""
    if all(numbered):
        doubt = "" if masks_are else "; if each value is a class: --set data.masks=classes"
        return f"masks number objects: scored as objects, and by pixels as foreground{doubt}"
    objects, others = ("true masks", "predictions") if numbered[0] else ("predictions", "true masks")
    values = _values(guesses if numbered[0] else truths)
    if 0 not in values and len(values) > 1:
        raise InputError(
            f"{objects} number objects, {others} hold {_listed(values)} and no 0: save both with 0 as background"
        )
    doubt = "" if masks_are else " (or --set data.masks=instances if they are)"
    return (
        f"{objects} number objects, {others} hold classes: scored as classes, every value above 0 as foreground; "
        f"for scores of objects number them in both{doubt}"
    )


def _values(masks: Iterable[Mask]) -> set[int]:
    return {value for mask in masks for value in mask.held}


def _listed(values: Collection[int]) -> str:
    return first_few([str(value) for value in sorted(values)])


def _images_of(masks: Path, images: str | Path | None) -> Files:
    """Find the image files by stem; one image file by the name of its mask file."""
    if images is None:
        return Files()
    is_one = Path(images).is_file() and masks.is_file()
    return Files(path_of={stem_of(Path(masks.name)): Path(images)}) if is_one else files_by_stem(Path(images))


def _match_predictions(
    predictions: Path, masks: Path, skip: Collection[str], images: Collection[str]
) -> tuple[Matches, list[str]]:
    """Match every prediction with its true mask; return the predictions without one apart."""
    if all(path.is_file() and len(find_masks(path).path_of) == 1 for path in (predictions, masks)):
        return Matches(pairs=[Pair(stem_of(Path(masks.name)), predictions, masks)]), []
    if predictions.exists() and masks.exists() and predictions.samefile(masks):
        raise InputError(
            f"{predictions} is given for predictions and true masks, so every score would be 1: give two folders"
        )
    guesses = find_masks(predictions, images or _names(find_masks(masks)))
    others = tuple(f"{name}/" for name in skip)
    guesses.path_of = {key: path for key, path in guesses.path_of.items() if not key.startswith(others)}
    truths = find_masks(masks, images or _names(guesses))
    found = match_masks(guesses.path_of, truths, _names(guesses))
    for one in (guesses, truths):
        found.add(one)
    found.refuse()
    for place, pair in enumerate(found.pairs):
        if images and is_outlined(pair.mask):  # outlines of both sides may have a suffix
            names = names_of(PurePath(pair.stem + pair.mask.suffix))
            found.pairs[place] = pair._replace(
                stem=next((name for name in names if name in images), pair.stem)
            )
    found.masks = sorted(truths.names(key)[0] for key in found.masks)
    used = {pair.image for pair in found.pairs}
    skipped = [guesses.names(key)[0] for key in found.images if guesses.path_of[key] not in used]
    if skipped:
        found.notes.append(f"{count(len(skipped), 'prediction')} without a true mask left out")
    return found, skipped


def _names(files: MaskFiles) -> dict[str, str]:
    """Return the mask of each name that its image may have; the own stems come first."""
    names = {name: key for key in files.path_of for name in files.names(key)}
    return names | {files.names(key)[0]: key for key in files.path_of}


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


class _Item(NamedTuple):
    """One page of a true and a predicted mask."""

    stem: str
    file: str
    page: int
    truth: Mask
    guess: Mask


@dataclass
class _Read(Findings):
    """Pages of both masks, why files cannot be scored, and the number of pages of the others."""

    items: list[_Item] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    n_pages: dict[str, int] = field(default_factory=dict)


def _read_both(
    pairs: Sequence[Pair], image_of: Mapping[str, Path], options: MaskOptions, axes: str | None
) -> _Read:
    """Read every page of true and predicted masks."""
    found, blank = _Read(), list[str]()
    readers = (
        MaskReader(axes=axes, unlabelled=options.unlabelled, masks_are=options.masks_are),
        MaskReader(axes=axes, masks_are=options.masks_are),
    )
    for file, guess, truth in sorted(pairs):
        both = found.attempt(_open_both, readers, (truth, guess), file, image_of.get(file))
        if both is None:
            fault = found.faults[-1]
            found.failed[file] = fault.reason if fault.source == file else str(fault)
            continue
        found.n_pages[file] = n_pages = len(both[0])
        for page, (stem, *masks) in enumerate(zip(page_names(file, n_pages), *both, strict=True)):
            if n_pages > 1 and list(masks[0].held) == [masks[0].unlabelled]:
                blank.append(stem)
            else:
                found.items.append(_Item(stem, file, page, *masks))
    found.notes += dict.fromkeys([*readers[0].notes, *readers[1].notes])
    if blank:
        found.notes.append(
            f"{count(len(blank), 'plane')} of true masks without a labelled pixel not scored ({first_few(blank)})"
        )
    return found


def _open_both(
    readers: Sequence[MaskReader], paths: Sequence[Path], file: str, image: Path | None
) -> list[list[Mask]]:
    """Read the pages of a true mask and of its prediction; outlines have the sizes of the other, or of the image."""
    opened = [reader.open(path) for reader, path in zip(readers, paths, strict=True)]
    arrays = next((one.arrays for one in opened if one.arrays), None)
    if arrays is None and image is not None:
        arrays = read_planes(image, axes=readers[0].axes)
    sizes = None if arrays is None else [page.shape[:2] for page in arrays]
    truths, guesses = (
        reader.pages(one, file, None if one.arrays else sizes)
        for reader, one in zip(readers, opened, strict=True)
    )
    if [page.values.shape for page in truths] != [page.values.shape for page in guesses]:
        told = f"sizes differ: true mask {_sizes(truths)}, prediction {_sizes(guesses)}"
        raise InputError(f"{told}: predict the image that the mask belongs to", source=file)
    return [truths, guesses]


def _sizes(pages: Sequence[Mask]) -> str:
    height, width = pages[0].values.shape
    return f"{height} x {width}" + (f" ({len(pages)} pages)" if len(pages) > 1 else "")
