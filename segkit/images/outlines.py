"""Objects as outlines, as ImageJ, QuPath and COCO files hold them, and the label image that they make."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit._common.arrays import as_array
from segkit._common.memory import require_bytes
from segkit.errors import InputError, count, first_few
from segkit.images.headers import HARMLESS_BYTES
from segkit.images.polygons import Filled, Polygon, fill, work_of

OUTLINE_EXTENSIONS = (".geojson", ".json", ".roi", ".zip")

LARGEST_ID = int(np.iinfo(np.int32).max)
# In the label image of outlines, where nobody has looked for objects.
NOT_ANNOTATED = -1
# Classes of QuPath for outlines that are no objects.
REGION, IGNORED = "Region*", "Ignore*"
# An outline that holds more others may be a region that they were drawn in.
_MOST_HELD = 2
# Digits of ids, after zeros; Python refuses to read thousands.
_NUMBER = re.compile(r"[0-9]{1,20}")
# Of labels, and of the pixels inside an outline as large as the image.
_BYTES_OF_PIXEL = 16
# Pixels in the boxes of all outlines: as many as take seconds, or as often as the image has pixels.
_HARMLESS_WORK, _MOST_LAYERS = 2**27, 100
ALL_OBJECTS = "--set data.masks=instances"


Result = TypeVar("Result")


class Outline(NamedTuple):
    """Rings of points (x, y) of each polygon of an object, or what makes its mask, its name, class, and plane in a stack."""

    polygons: list[Polygon]
    name: str = ""
    class_name: str = ""
    plane: str = ""
    mask: Callable[[], NDArray[np.uint8]] | None = None

    def work(self, shape: tuple[int, int]) -> float:
        """Count the pixels that are looked at to paint it."""
        return float(math.prod(shape)) if self.mask is not None else work_of(self.polygons, shape)

    def fill(self, shape: tuple[int, int]) -> Filled:
        """Find the pixels inside."""
        return fill(self.polygons, shape) if self.mask is None else Filled(0, 0, self.mask() > 0)


class Outlines(NamedTuple):
    """Objects of one image in the order of the file, the number of entries without area of each kind, and its size.

    Objects were looked for in `regions` only, if there are any, and not where the image is `ignored`.
    """

    objects: list[Outline]
    left_out: Counter[str]
    shape: tuple[int, int] | None = None
    regions: Sequence[Outline] = ()
    ignored: Sequence[Outline] = ()
    kind: str = ""  # what QuPath calls the objects: detections or annotations


def check_label_image(labels: ArrayLike, *, name: str = "label image") -> NDArray[np.int32]:
    """Refuse an array that is no label image."""
    labels = as_array(labels, name=name)
    if not (np.issubdtype(labels.dtype, np.integer) or labels.dtype == np.bool_) or labels.ndim != 2:
        raise InputError(
            f"label image of dtype {labels.dtype} and shape {labels.shape}, expected whole numbers of shape "
            f"(H, W): give 0 for background and a number for each object",
            source=name,
        )
    check_ids(labels, name=name)
    return labels.astype(np.int32)


def check_ids(ids: NDArray[Any], *, name: str) -> None:
    """Refuse ids of objects below 0 or beyond int32."""
    low, high = (int(ids.min()), int(ids.max())) if ids.size else (0, 0)
    if low < 0 or high > LARGEST_ID:
        raise InputError(
            f"ids of objects from {low} to {high}, expected 0 for background and ids from 1 to {LARGEST_ID}: "
            f"number the objects anew",
            source=name,
        )


class Oddities(NamedTuple):
    """Outlines, or parts of them, that are not in the label image as they were drawn."""

    left_out: Counter[str]
    n_empty: int  # outside the image, or without the centre of a pixel
    n_over: int  # drawn over earlier ones
    n_pixels: int  # of theirs that were of an earlier one
    n_covered: int
    classes: Counter[str]
    n_regions: int
    n_ignored: int
    is_blank: bool  # without any object


def paint(
    outlines: Outlines, shape: tuple[int, int], *, name: str = "outlines", all_objects: bool = False
) -> tuple[NDArray[np.int32], Oddities]:
    """Make the label image of outlines; ids are their names if those are numbers, and the later object lies on top.

    An outline that holds several others is refused, unless the user says that `all_objects` are.
    """
    check_shape(outlines.shape, shape, name=name)
    if len(planes := sorted({outline.plane for outline in outlines.objects} - {""}, key=_by_numbers)) > 1:
        raise InputError(
            f"outlines of {len(planes)} slices ({first_few(planes)}) for an image of one plane, expected those of one: save "
            "them by slice, or, if all belong to this plane, remove their positions (ImageJ: ROI Manager, More, Remove "
            "Positions)",
            source=name,
        )
    _check_work(outlines, shape, name)
    labels = np.zeros(shape, dtype=np.int32)
    n_empty = n_over = n_pixels = 0
    areas, n_held, rectangles = dict[int, int](), Counter[int](), set[int]()
    for object_id, outline in zip(_ids(outlines.objects), outlines.objects, strict=True):
        box, inside = _inside(outline, labels, name)
        areas[object_id] = area = int(np.count_nonzero(inside))
        rectangles |= {object_id} if inside.all() else set()
        if n_shared := int(np.count_nonzero(box[inside])):
            others, numbers = np.unique(box[inside & (box > 0)], return_counts=True)
            whole = np.array([areas[other] for other in others.tolist()])
            n_held[object_id] += int(np.count_nonzero((numbers == whole) & (whole < area)))
            n_held.update(others[(numbers == area) & (whole > area)].tolist())
        n_empty += not inside.any()
        n_over += n_shared > 0
        n_pixels += n_shared
        box[inside] = object_id
    n_drawn = len(np.setdiff1d(labels, (0,)))
    n_covered = len(outlines.objects) - n_empty - n_drawn
    classes = Counter(outline.class_name for outline in outlines.objects)
    if not all_objects:
        _refuse_holder({one: number for one, number in n_held.items() if number}, areas, rectangles, name)
    _mark(outlines, labels, name)
    numbers_of = len(outlines.regions), len(outlines.ignored)
    blank = not (n_drawn or outlines.regions or all_objects)
    return labels, Oddities(
        outlines.left_out, n_empty, n_over, n_pixels, n_covered, classes, *numbers_of, is_blank=blank
    )


def check_shape(told: tuple[int, int] | None, shape: tuple[int, int], *, name: str) -> None:
    """Refuse outlines for an image of another size, or of one that memory does not hold."""
    if told is not None and told != shape:
        raise InputError(
            f"outlines for an image of {_size(told)} pixels, image of {_size(shape)}, "
            f"expected one size: export them for this image",
            source=name,
        )
    if (needed := math.prod(shape) * _BYTES_OF_PIXEL) > HARMLESS_BYTES:
        require_bytes(needed, what=f"outlines for an image of {_size(shape)} pixels", source=name)


def _check_work(outlines: Outlines, shape: tuple[int, int], name: str) -> None:
    """Refuse outlines that lie over each other so often that painting them would not end."""
    every = [*outlines.objects, *outlines.regions, *outlines.ignored]
    work, size = sum(_named(partial(one.work, shape), name) for one in every), math.prod(shape)
    if work > max(_HARMLESS_WORK, _MOST_LAYERS * size):
        raise InputError(
            f"{count(len(every), 'outline')} whose boxes cover the image {work / size:,.0f} times, expected up to "
            f"{_MOST_LAYERS}: export each object once, with its own outline",
            source=name,
        )


def _inside(
    outline: Outline, labels: NDArray[np.int32], name: str
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the part of a label image around an outline, and the pixels inside."""
    top, left, inside = _named(partial(outline.fill, labels.shape), name)
    return labels[top : top + inside.shape[0], left : left + inside.shape[1]], inside


def _named(act: Callable[[], Result], name: str) -> Result:
    """Name the file in the fault of an outline."""
    try:
        return act()
    except InputError as fault:
        if fault.source is not None:
            raise
        raise InputError(f"{fault}", source=name) from fault


def _refuse_holder(
    n_held: Mapping[int, int], areas: Mapping[int, int], rectangles: set[int], name: str
) -> None:
    """Ask about an outline that holds several others; nobody draws an object as a rectangle around another one."""
    for holder, number in n_held.items():
        if holder in rectangles or number > _MOST_HELD:
            raise InputError(
                f"an outline of {areas[holder]:,} pixels holds {count(number, 'other')}: a region with objects in it, or an "
                f"object? Remove the region, or give it the class {REGION} in QuPath; if it is an object, {ALL_OBJECTS}",
                source=name,
            )


def _mark(outlines: Outlines, labels: NDArray[np.int32], name: str) -> None:
    """Mark the pixels at which nobody has looked for objects: outside of all regions, and where they are ignored."""
    annotated, n_doubtful = np.zeros_like(labels), 0
    areas = _count_values(labels) if outlines.regions else {}
    for region in outlines.regions:
        part, inside = _inside(region, annotated, name)
        part[inside] = 1
        part, inside = _inside(region, labels, name)
        found = _count_values(part[inside])
        n_held = sum(number == areas[one] for one, number in found.items() if one)
        n_doubtful += region.class_name != REGION and n_held < _MOST_HELD
    if n_doubtful:
        raise InputError(
            f"{count(n_doubtful, 'annotation')} beside detections with none or one of them inside: objects, or regions? "
            f"Make objects detections in QuPath, or give regions the class {REGION}",
            source=name,
        )
    if outlines.regions:
        labels[(annotated == 0) & (labels == 0)] = NOT_ANNOTATED
    for region in outlines.ignored:
        part, inside = _inside(region, labels, name)
        part[inside] = NOT_ANNOTATED


def _count_values(labels: NDArray[np.int32]) -> dict[int, int]:
    values, numbers = np.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), numbers.tolist(), strict=True))


def describe_oddities(found: Mapping[str, Oddities]) -> list[str]:
    """Describe what of the outlines of files, by their names, is not in the label images as it was drawn."""
    left_out = sum((one.left_out for one in found.values()), Counter[str]())
    classes = sum((one.classes for one in found.values()), Counter[str]())

    def objects(field: str, noun: str = "object") -> str:
        numbers = {name: getattr(one, field) for name, one in found.items()}
        return f"{count(sum(numbers.values()), noun)} ({first_few([n for n, number in numbers.items() if number])})"

    notes = []
    if left_out:
        told = ", ".join(f"{number} {kind}" for kind, number in sorted(left_out.items()))
        files = first_few([name for name, one in found.items() if one.left_out])
        notes.append(f"{count(left_out.total(), 'outline')} without area left out ({told}; {files})")
    if any(one.n_empty for one in found.values()):
        notes.append(
            f"{objects('n_empty')} outside the image, or too small to hold the centre of a pixel: left out"
        )
    if n_pixels := sum(one.n_pixels for one in found.values()):
        notes.append(
            f"{objects('n_over')} drawn over earlier ones, {count(n_pixels, 'pixel')}: the later one counts there"
        )
    if any(one.n_covered for one in found.values()):
        notes.append(f"{objects('n_covered')} covered by later ones as a whole: left out")
    if any(one.n_regions for one in found.values()):
        notes.append(
            f"{objects('n_regions', 'region')} around objects: no objects themselves, and pixels outside count as not "
            "annotated"
        )
    if any(one.n_ignored for one in found.values()):
        notes.append(
            f"{objects('n_ignored', 'outline')} of class {IGNORED}: pixels inside count as not annotated"
        )
    if blank := [name for name, one in found.items() if one.is_blank]:
        notes.append(f"{count(len(blank), 'image')} without any outline of an object ({first_few(blank)})")
    if len(classes) > 1:
        told = ", ".join(f"{number} {kind or 'without class'}" for kind, number in classes.most_common())
        notes.append(f"objects of several classes ({told}): all are read as object")
    return notes


def _ids(objects: Sequence[Outline]) -> list[int]:
    names = [outline.name for outline in objects]
    if len(set(names)) == len(names) and all(_NUMBER.fullmatch(name) for name in names):
        ids = [int(name) for name in names]
        if len(set(ids)) == len(ids) and all(0 < object_id <= LARGEST_ID for object_id in ids):
            return ids
    return list(range(1, len(objects) + 1))


def _by_numbers(plane: str) -> list[int]:
    """Sort planes by the numbers in their names."""
    return [int(number) for number in re.findall(r"-?[0-9]{1,9}", plane)]


def _size(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"
