"""Objects as outlines, as ImageJ, QuPath and COCO files hold them, and the label image that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.errors import InputError, count, first_few
from segkit.images.polygons import Polygon, fill

OUTLINE_EXTENSIONS = (".geojson", ".json", ".roi", ".zip")

LARGEST_ID = int(np.iinfo(np.int32).max)


class Outline(NamedTuple):
    """Rings of points (x, y) of each polygon of an object, its name and its class."""

    polygons: list[Polygon]
    name: str = ""
    class_name: str = ""


class Outlines(NamedTuple):
    """Objects of one image in the order of the file, and the number of entries without area of each kind."""

    objects: list[Outline]
    left_out: Counter[str]
    shape: tuple[int, int] | None = None


def check_label_image(labels: ArrayLike, *, name: str = "label image") -> NDArray[np.int32]:
    """Refuse an array that is no label image."""
    labels = np.asarray(labels)
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


def paint(
    outlines: Outlines, shape: tuple[int, int], *, name: str = "outlines"
) -> tuple[NDArray[np.int32], Oddities]:
    """Make the label image of outlines; ids are their names if those are numbers, and the later object lies on top."""
    if outlines.shape is not None and outlines.shape != shape:
        raise InputError(
            f"outlines for an image of {_size(outlines.shape)} pixels, image of {_size(shape)}, "
            f"expected one size: export them for this image",
            source=name,
        )
    labels = np.zeros(shape, dtype=np.int32)
    n_empty = n_over = n_pixels = 0
    for object_id, outline in zip(_ids(outlines.objects), outlines.objects, strict=True):
        try:
            top, left, inside = fill(outline.polygons, shape)
        except InputError as fault:
            raise InputError(f"{fault}", source=name) from fault
        box = labels[top : top + inside.shape[0], left : left + inside.shape[1]]
        n_shared = int(np.count_nonzero(box[inside]))
        n_empty += not inside.any()
        n_over += n_shared > 0
        n_pixels += n_shared
        box[inside] = object_id
    n_drawn = len(np.setdiff1d(labels, (0,)))
    n_covered = len(outlines.objects) - n_empty - n_drawn
    classes = Counter(outline.class_name for outline in outlines.objects)
    return labels, Oddities(outlines.left_out, n_empty, n_over, n_pixels, n_covered, classes)


def describe_oddities(found: Mapping[str, Oddities]) -> list[str]:
    """Describe what of the outlines of files, by their names, is not in the label images as it was drawn."""
    left_out = sum((one.left_out for one in found.values()), Counter[str]())
    classes = sum((one.classes for one in found.values()), Counter[str]())

    def objects(field: str) -> str:
        numbers = {name: getattr(one, field) for name, one in found.items()}
        return f"{count(sum(numbers.values()), 'object')} ({first_few([n for n, number in numbers.items() if number])})"

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
    if len(classes) > 1:
        told = ", ".join(f"{number} {kind or 'without class'}" for kind, number in classes.most_common())
        notes.append(f"objects of several classes ({told}): all are read as object")
    return notes


def _ids(objects: Sequence[Outline]) -> list[int]:
    names = [outline.name for outline in objects]
    if len(set(names)) == len(names) and all(name.isascii() and name.isdecimal() for name in names):
        ids = [int(name) for name in names]
        if len(set(ids)) == len(ids) and all(0 < object_id <= LARGEST_ID for object_id in ids):
            return ids
    return list(range(1, len(objects) + 1))


def _size(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"
