"""Masks that number objects: told from masks of classes, and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage import measure

from segkit._common import count, first_few
from segkit.errors import InputError
from segkit.images.labels import UNLABELLED
from segkit.images.outlines import check_ids

MasksAre = Literal["instances", "classes"]

# Values of the class masks made of objects.
BACKGROUND, OBJECT, UNLABELLED_OBJECT = 0, 255, 128
# How the line starts that says so.
CLASS_NAMES = {BACKGROUND: "background", OBJECT: "object"}
# Masks of fewer values may hold a class for each.
MOST_CLASSES = 10
_SHARE_IN_ONE_PIECE = 0.9
# Blurred edges hold many values of few pixels each.
LEAST_AREA = 4
_MOST_PIECES = 2
# Greatest number that 8 bits hold; masks that hold so many numbers up to it may have lost higher ones.
_MOST_OF_BYTE, _FULL_BYTE = 255, 250
# Entries of a look-up table that is no burden.
_SMALL_TABLE = 2**20


class MaskOptions(NamedTuple):
    """Options of the user about masks: names of values, the value nobody annotated, and whether values number objects."""

    labels: Mapping[int, str] | None = None
    unlabelled: int | None = None
    masks_are: MasksAre | None = None


class Numbers(NamedTuple):
    """Objects of a label image, by ascending id; pieces hang together by sides or corners of pixels."""

    ids: NDArray[np.int64]
    n_pieces: NDArray[np.int64]
    areas: NDArray[np.int64]
    n_at_border: int
    has_background: bool


class Objects(NamedTuple):
    """Objects of many images in numbers.

    Parameters
    ----------
    n_objects : int
        Number of objects.
    median_area : float
        Median of their areas in pixels; NaN without objects.
    n_at_border : int
        Number of objects that touch the border of their image.
    """

    n_objects: int
    median_area: float
    n_at_border: int

    def describe(self) -> str:
        """Describe all three in one line."""
        if not self.n_objects:
            return "none"
        return f"{self.n_objects:,}, median area {self.median_area:,g} pixels, {self.n_at_border:,} at the border"


def find_instances(
    masks: Mapping[str, NDArray[Any]],
    outlined: Collection[str],
    faults: list[str],
    messages: list[str],
    options: MaskOptions,
) -> dict[str, NDArray[np.int32]] | None:
    """Find the objects that masks number, if they do."""
    numbered = {
        stem: mask if stem in outlined else without(mask, options.unlabelled) for stem, mask in masks.items()
    }
    numbers = {stem: number_objects(mask) for stem, mask in numbered.items()}
    is_numbered = number_masks(numbers, outlined, faults, messages, options)
    return {stem: mask.astype(np.int32) for stem, mask in numbered.items()} if is_numbered else None


def number_masks(
    numbers: Mapping[str, Numbers],
    outlined: Collection[str],
    faults: list[str],
    messages: list[str],
    options: MaskOptions,
) -> bool:
    """Return whether masks number objects, and check that they do it well."""
    refusal = refuse_options(outlined, options)
    if refusal is not None and numbers:
        faults.append(refusal)
    if refusal is not None or options.masks_are == "classes" or not numbers:
        return False
    asked = options.masks_are == "instances" or bool(outlined)
    unasked = options.labels is not None or options.unlabelled == 0
    if not asked and (unasked or not look_like_instances(list(numbers.values()))):
        return False
    key, cure = "data.masks=instances", "--set data.masks=classes"
    if options.masks_are is None and outlined:
        key, cure = "masks beside outlines have to number objects", "give outlines for these images too"
    if wrong := _faults_of(numbers, outlined, key=key, cure=cure):
        faults += wrong
        return False
    n_objects = sum(len(one.ids) for one in numbers.values())
    noun = "object" if n_objects == 1 else "objects"
    messages.insert(0, f"masks number objects: {n_objects:,} {noun} in {count(len(numbers), 'mask')}")
    messages += describe_broken(numbers)
    return True


def refuse_options(outlined: Collection[str], options: MaskOptions) -> str | None:
    """Explain why options contradict each other, or masks of outlines; None if they do not."""
    labels, unlabelled, masks_are = options
    if outlined and (labels is not None or masks_are == "classes"):
        cure = "leave data.labels out" if masks_are is None else "save each class as a value of an image"
        return (
            f"{count(len(outlined), 'mask')} of outlines ({first_few(sorted(outlined))}), which number objects, "
            f"expected masks of classes: {cure}"
        )
    if labels is not None and masks_are == "instances":
        return "data.labels names classes, but data.masks=instances numbers objects: leave one of the two out"
    if unlabelled == 0 and (outlined or masks_are == "instances"):
        return "0 marks unlabelled pixels, but is the background of masks that number objects: mark them by another value"
    return None


def without(mask: NDArray[Any], unlabelled: int | None) -> NDArray[Any]:
    """Set pixels without annotation to 0."""
    return mask if unlabelled is None else np.where(mask == unlabelled, 0, mask)


def check_numbers(
    masks: Mapping[str, NDArray[Any]], faults: list[str], messages: list[str]
) -> dict[str, NDArray[np.int32]] | None:
    """Check objects given beside masks of classes; (H, W) int32 by name, or None if there is a fault."""
    numbers = {stem: number_objects(mask) for stem, mask in masks.items()}
    if wrong := _faults_of(numbers, (), key="data.instances", cure="give them as masks"):
        faults += wrong
        return None
    messages += describe_broken(numbers)
    return {stem: mask.astype(np.int32) for stem, mask in masks.items()}


def _faults_of(
    numbers: Mapping[str, Numbers], outlined: Collection[str], *, key: str, cure: str
) -> list[str]:
    """Find ids that are out of range, and values that are classes."""
    wrong: list[str] = []
    for stem, one in numbers.items():
        try:
            check_ids(one.ids, name=stem)
        except InputError as fault:
            wrong.append(str(fault))
    drawn = [one for stem, one in numbers.items() if stem not in outlined]
    return wrong + check_pieces(drawn, key=key, cure=cure)


def summarise_objects(labels: Sequence[NDArray[np.int32]]) -> Objects:
    """Count objects and measure their areas, over many label images (H, W)."""
    numbers = [number_objects(one) for one in labels]
    areas = np.concatenate([np.zeros(0, dtype=np.int64), *(one.areas for one in numbers)])
    median = float(np.median(areas)) if len(areas) else float("nan")
    return Objects(len(areas), median, sum(one.n_at_border for one in numbers))


def by_first_pixel(ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the ids above 0 by their first pixel, and each pixel's position among them, -1 of 0; raveled."""
    values, of_pixel = None, ids.ravel()
    if of_pixel.max(initial=0) > max(of_pixel.size, _SMALL_TABLE):  # numbers far apart
        values, of_pixel = np.unique(np.append(of_pixel, 0), return_inverse=True)
        of_pixel = of_pixel[:-1]
    first = np.full(int(of_pixel.max(initial=0)) + 1, -1, dtype=np.intp)
    first[of_pixel[::-1]] = np.arange(of_pixel.size)[::-1]  # of equal ids the last assignment stays
    first[0] = -1
    found = np.flatnonzero(first >= 0)
    found = found[np.argsort(first[found])]
    position = np.full(first.size, -1, dtype=np.intp)
    position[found] = np.arange(found.size)
    return found if values is None else values[found], position[of_pixel]


def number_objects(labels: NDArray[Any]) -> Numbers:
    """Count the objects of a label image, their pixels and pieces."""
    pieces, n_pieces = label_pieces(labels)
    owners = np.zeros(n_pieces + 1, dtype=np.int64)
    owners[pieces.ravel()] = labels.ravel()
    ids, counts = np.unique(owners[1:], return_counts=True)
    places = np.searchsorted(ids, owners)
    sizes = np.bincount(pieces.ravel(), minlength=n_pieces + 1)
    areas = np.bincount(places[1:], weights=sizes[1:], minlength=len(ids)).astype(np.int64)
    border = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    n_at_border = len(np.setdiff1d(border, (0,)))
    return Numbers(ids, counts, areas, n_at_border, bool(sizes[0]))


def label_pieces(labels: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Label the connected regions of equal values other than 0, and count them; pixels touch by sides or corners."""
    pieces, n_pieces = measure.label(labels, background=0, connectivity=2, return_num=True)  # type: ignore[no-untyped-call]
    return pieces, int(n_pieces)


def look_like_instances(
    numbers: Sequence[Numbers], *, most_classes: int = MOST_CLASSES, least_area: float = LEAST_AREA
) -> bool:
    """Return whether masks number objects: many values, 0 among them, nearly all in one piece and half of some size."""
    values = {int(value) for one in numbers for value in one.ids}
    has_background = any(one.has_background for one in numbers)
    if not has_background or len(values) + 1 <= most_classes or min(values, default=0) < 0:
        return False
    n_pieces = np.concatenate([one.n_pieces for one in numbers])
    areas = np.concatenate([one.areas for one in numbers])
    return bool(np.mean(n_pieces == 1) >= _SHARE_IN_ONE_PIECE and np.median(areas) >= least_area)


def check_pieces(numbers: Sequence[Numbers], *, key: str, cure: str) -> list[str]:
    """Find label images whose values are classes, as most of them are in several pieces."""
    numbers = [one for one in numbers if len(one.ids)]
    n_broken = sum(int(np.sum(one.n_pieces > 1)) for one in numbers)
    n_objects = sum(len(one.ids) for one in numbers)
    values = {object_id for one in numbers for object_id in one.ids.tolist()}
    most = max((int(one.n_pieces.max()) for one in numbers), default=0)
    if len(values) == 1 and (most > _MOST_PIECES or 2 * n_broken > n_objects):
        n_pieces = sum(int(one.n_pieces.sum()) for one in numbers)
        return [
            f"{key}, but value {values.pop()} is in {n_pieces} pieces: one value for all objects, expected one for each: "
            f"number the objects, or {cure}"
        ]
    if 2 * n_broken > n_objects:
        return [
            f"{key}, but {n_broken} of {n_objects} values of the masks are in several pieces, expected each object in one: "
            f"if values are classes, {cure}{_cut_to_bytes(numbers)}"
        ]
    return []


def _cut_to_bytes(numbers: Sequence[Numbers]) -> str:
    """Describe what to do if files of 8 bits may have cut the numbers of more than 255 objects; "" if they have not."""
    full = any(len(one.ids) >= _FULL_BYTE and one.ids[-1] == _MOST_OF_BYTE for one in numbers)
    return "; if 8 bits were too few for more than 255 objects, save them anew with 16 bits" if full else ""


def describe_broken(numbers: Mapping[str, Numbers]) -> list[str]:
    """Describe which objects are in several pieces; a line, or none."""
    broken = {stem: int(np.sum(one.n_pieces > 1)) for stem, one in numbers.items()}
    if not any(broken.values()):
        return []
    where = first_few([stem for stem, number in broken.items() if number])
    return [
        f"{count(sum(broken.values()), 'object')} in several pieces ({where}): each is kept as one object"
        f"{_cut_to_bytes([numbers[stem] for stem, number in broken.items() if number])}"
    ]


def compare_with_classes(
    labels_of: Mapping[str, NDArray[np.int32]], ids_of: Mapping[str, NDArray[np.uint8]], background: str
) -> list[str]:
    """Describe where objects and masks of classes differ."""
    n_outside = n_without_id = n_mixed = 0
    for stem, labels in labels_of.items():
        ids = ids_of[stem]
        is_foreground = (ids > 0) & (ids != UNLABELLED)
        n_outside += int(np.count_nonzero((labels > 0) & (ids == 0)))
        n_without_id += int(np.count_nonzero((labels == 0) & is_foreground))
        inside = (labels > 0) & is_foreground
        owners = np.unique(labels[inside].astype(np.int64) * 256 + ids[inside]) // 256
        n_mixed += int(np.count_nonzero(np.unique(owners, return_counts=True)[1] > 1))
    told = [
        (n_outside, f"{count(n_outside, 'pixel')} of objects are {background} in the masks"),
        (
            n_without_id,
            f"{count(n_without_id, 'pixel')} of other classes than {background} belong to no object",
        ),
        (n_mixed, f"{count(n_mixed, 'object')} of several classes: the class of most pixels counts"),
    ]
    return [line for number, line in told if number]


def classes_of(labels: NDArray[np.int32], mask: NDArray[Any], unlabelled: int | None) -> NDArray[np.uint8]:
    """Make a mask of 0 and 255 of a label image, 128 where nobody annotated the mask it is from; (H, W) uint8."""
    classes = np.where(labels > 0, OBJECT, BACKGROUND).astype(np.uint8)
    if unlabelled is not None:
        classes[(mask == unlabelled) & (labels == 0)] = UNLABELLED_OBJECT
    return classes
