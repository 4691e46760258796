"""Masks that number objects: told from masks of classes, and checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage import measure

from segkit.errors import InputError, count, first_few
from segkit.images.labels import MOST_CLASSES, UNLABELLED
from segkit.images.outlines import check_ids

MasksAre = Literal["instances", "classes"]

# Values of the class masks made of objects.
BACKGROUND, OBJECT, UNLABELLED_OBJECT = 0, 255, 128
CLASS_NAMES = {BACKGROUND: "background", OBJECT: "object"}
_SHARE_IN_ONE_PIECE = 0.9
# Blurred edges hold many values of few pixels each.
LEAST_AREA = 4
_MOST_PIECES = 2
# Greatest number that 8 bits hold; masks that hold so many numbers up to it may have lost higher ones.
_MOST_OF_BYTE, _FULL_BYTE = 255, 250
SAY_WHICH = "say which, --set data.masks=instances or --set data.masks=classes"
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
    """Number of objects of many images, median of their areas in pixels, and number of those at the border."""

    n_objects: int
    median_area: float
    n_at_border: int

    def describe(self) -> str:
        """Describe all three in one line."""
        if not self.n_objects:
            return "none"
        return f"{self.n_objects:,}, median area {self.median_area:,g} pixels, {self.n_at_border:,} at the border"


@dataclass(eq=False)
class Mask:
    """A page of a mask file, and what it holds.

    Parameters
    ----------
    values : ndarray of shape (H, W), int
        Values of the file, or the numbers of its outlines.
    unlabelled : int, optional
        The value of pixels nobody annotated.
    is_outlined : bool, default=False
        Whether the file holds outlines, or is a folder of objects: both number objects.
    names : mapping of int to str, optional
        Classes of the values, by the legend of a mask whose colours stand for classes.
    """

    values: NDArray[Any]
    unlabelled: int | None = None
    is_outlined: bool = False
    names: Mapping[int, str] | None = None

    @cached_property
    def held(self) -> dict[int, int]:
        """Number of pixels of each value, in ascending order."""
        values, counts = np.unique(self.values, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    @cached_property
    def numbers(self) -> Numbers:
        """Objects, if values number them."""
        return number_objects(self.labels)

    def drop_values(self) -> None:
        """Keep what is known of the page, and free its pixels."""
        self.held, self.numbers  # noqa: B018
        self.values = self.values[:0, :0].copy()

    @property
    def labels(self) -> NDArray[Any]:
        """Values, 0 where nobody annotated."""
        return self.values if self.unlabelled is None else np.where(self.is_unlabelled, 0, self.values)

    @property
    def is_unlabelled(self) -> NDArray[np.bool_]:
        """Whether nobody annotated a pixel."""
        return np.asarray(self.values == self.unlabelled)

    @property
    def classes(self) -> NDArray[np.uint8]:
        """Mask of 0 and 255 of numbered objects, 128 where nobody annotated; (H, W)."""
        classes = np.where(self.labels > 0, OBJECT, BACKGROUND).astype(np.uint8)
        classes[self.is_unlabelled] = UNLABELLED_OBJECT
        return classes


def with_legend(options: MaskOptions, masks: Iterable[Mask]) -> MaskOptions:
    """Name the values of masks as their legend does, unless the user names them or says that they number objects."""
    masks = list(masks)
    names = {value: name for mask in masks for value, name in (mask.names or {}).items()}
    held = {value for mask in masks for value in mask.held}
    if not names or options.labels is not None or options.masks_are == "instances":
        return options
    return options._replace(labels={value: names[value] for value in sorted(names) if value in held})


def describe_numbers(masks: Mapping[str, Mask], options: MaskOptions) -> list[str] | None:
    """Describe how masks number objects; None if they hold classes. Masks that do it badly are refused."""
    outlined = [stem for stem, mask in masks.items() if mask.is_outlined]
    check_options(options, outlined)
    asked = options.masks_are == "instances" or bool(outlined)
    unasked = options.labels is not None or options.unlabelled == 0
    if not masks or options.masks_are == "classes" or (unasked and not asked):
        return None
    if not asked and not look_like_instances([mask.numbers for mask in masks.values()]):
        return None
    key, cure = "data.masks=instances", "--set data.masks=classes"
    if options.masks_are is None and outlined:
        key, cure = "masks beside outlines have to number objects", "give outlines for these images too"
    check_numbers(masks, key=key, cure=cure)
    n_objects = sum(len(mask.numbers.ids) for mask in masks.values())
    told = f"{n_objects:,} {'object' if n_objects == 1 else 'objects'} in {count(len(masks), 'mask')}"
    return [f"masks number objects: {told}", *describe_broken(masks)]


def check_options(options: MaskOptions, outlined: Collection[str] = ()) -> None:
    """Refuse options that contradict each other, or masks of outlines."""
    labels, unlabelled, masks_are = options
    if outlined and (labels is not None or masks_are == "classes"):
        cure = "leave data.labels out" if masks_are is None else "save each class as a value of an image"
        raise InputError(
            f"{count(len(outlined), 'mask')} of outlines ({first_few(sorted(outlined))}), which number objects, "
            f"expected masks of classes: {cure}"
        )
    if labels is not None and masks_are == "instances":
        raise InputError(
            "data.labels names classes, but data.masks=instances numbers objects: leave one of the two out"
        )
    if unlabelled == 0 and (outlined or masks_are == "instances"):
        raise InputError(
            "0 marks unlabelled pixels, but is the background of masks that number objects: mark them by another value"
        )


def check_numbers(masks: Mapping[str, Mask], *, key: str, cure: str) -> None:
    """Refuse numbers of objects that are out of range, and values that are classes, as most of them are in pieces."""
    for stem, mask in masks.items():
        check_ids(mask.numbers.ids, name=stem)
    numbers = [mask.numbers for mask in masks.values() if not mask.is_outlined]
    ids, n_pieces = _ids_and_pieces(numbers)
    if hold_one_value(numbers):
        raise InputError(
            f"{key}, but value {ids[0]} is in {n_pieces.sum()} pieces: one value for all objects, expected one for each: "
            f"number the objects, or {cure}"
        )
    if are_in_pieces(numbers):
        raise InputError(
            f"{key}, but {np.sum(n_pieces > 1)} of {len(ids)} values of the masks are in several pieces, expected each "
            f"object in one: if values are classes, {cure}{_cut_to_bytes(numbers)}"
        )


def hold_one_value(numbers: Sequence[Numbers]) -> bool:
    """Return whether one value stands for all objects: it is in several pieces, where two may be one that was cut."""
    ids, n_pieces = _ids_and_pieces(numbers)
    return len(set(ids.tolist())) == 1 and (bool(n_pieces.max() > _MOST_PIECES) or are_in_pieces(numbers))


def are_in_pieces(numbers: Sequence[Numbers]) -> bool:
    """Return whether most values are in several pieces, as those of classes."""
    n_pieces = _ids_and_pieces(numbers)[1]
    return bool(2 * np.sum(n_pieces > 1) > len(n_pieces))


def _ids_and_pieces(numbers: Sequence[Numbers]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids of all masks, and the number of pieces of each."""
    none = np.zeros(0, dtype=np.int64)
    ids, n_pieces = zip((none, none), *((one.ids, one.n_pieces) for one in numbers), strict=True)
    return np.concatenate(ids), np.concatenate(n_pieces)


def check_meaning(masks: Collection[Mask], *, name: str = "masks", cure: str = SAY_WHICH) -> None:
    """Refuse masks of a few values that may number objects or be classes: most of them are in one piece."""
    values = sorted({value for mask in masks for value in mask.held if value != mask.unlabelled})
    # 255 is a grey level, or marks pixels nobody annotated
    is_few = 2 < len(values) <= MOST_CLASSES and 0 <= values[0] < values[-1] != UNLABELLED
    if is_few and not are_in_pieces([mask.numbers for mask in masks]):
        told = first_few([str(value) for value in values])
        raise InputError(
            f"{name} hold {len(values)} values ({told}), most in one piece, so they may number objects or be classes: {cure}"
        )


def summarise_objects(numbers: Sequence[Numbers]) -> Objects:
    """Count objects and measure their areas, over many label images."""
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
    ids, n_pieces = _ids_and_pieces(numbers)
    has_background = any(one.has_background for one in numbers)
    if not has_background or len(set(ids.tolist())) + 1 <= most_classes or ids.min(initial=0) < 0:
        return False
    areas = np.concatenate([one.areas for one in numbers])
    return bool(np.mean(n_pieces == 1) >= _SHARE_IN_ONE_PIECE and np.median(areas) >= least_area)


def _cut_to_bytes(numbers: Sequence[Numbers]) -> str:
    """Describe what to do if files of 8 bits may have cut the numbers of more than 255 objects; "" if they have not."""
    full = any(len(one.ids) >= _FULL_BYTE and one.ids[-1] == _MOST_OF_BYTE for one in numbers)
    return "; if 8 bits were too few for more than 255 objects, save them anew with 16 bits" if full else ""


def describe_broken(masks: Mapping[str, Mask]) -> list[str]:
    """Describe which objects are in several pieces; a line, or none."""
    broken = {stem: mask.numbers for stem, mask in masks.items() if (mask.numbers.n_pieces > 1).any()}
    n_broken = sum(int(np.sum(one.n_pieces > 1)) for one in broken.values())
    told = f"{count(n_broken, 'object')} in several pieces ({first_few(list(broken))}): each is kept as one object"
    return [f"{told}{_cut_to_bytes(list(broken.values()))}"] if broken else []


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
