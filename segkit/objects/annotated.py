"""Shape of annotated objects: their size, their holes, and their parts from the rim to the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import label
from skimage.segmentation import find_boundaries

from segkit.images import UNLABELLED
from segkit.objects.hills import LabelArray
from segkit.objects.measure import measure
from segkit.objects.split import Landscape, Splitter, radius_of

# Most parts that objects are divided into, from the rim to the core; chosen on the three sets of the benchmark of objects in
# view of the test scores of their first splits.
MOST_DEPTHS = 6
# Pixels of a part in all images, without which it tells nothing.
LEAST_PIXELS = 20
# Objects below this fraction of the median area are left out, unless annotated objects are as small.
SMALL = 0.2
# Half of that of objects that the border of the image cuts: it shows half of them on average. Of two smaller fractions and
# four other shares none was better, in view of the test scores of 13 splits of the three sets of the benchmark of objects.
CUT_SHARE = 0.5
_PERCENT_SMALL = 5
# Fraction of annotated objects with holes from which holes are not filled.
_MANY_HOLES = 0.05
# Fraction of its convex hull that a single object fills.
_SOLID = 0.9
# Predicted regions below this fraction of the smallest region drawn are left out, where none is annotated as a whole.
SMALLEST_DRAWN = 0.5
# Regions below this fraction of the one that holds the middle pixel of a class, by size, are specks: slips of a pen.
_SPECK = 0.02
# But not if together they hold this fraction of the pixels of their class: then they are small objects beside large ones.
_MOST_SPECKS = 0.01
Source = Literal["regions", "strokes", "nothing"]


def splitter_of(instances: Sequence[LabelArray]) -> Splitter:
    """Return the usual splitter for objects of the annotated size."""
    areas = _whole_areas(instances)
    with_holes = [_has_hole(labels) for labels in instances]
    return Splitter(
        landscape="distance+inside",
        radius=radius_of(areas),
        least_area=_least_area(areas),
        cut_share=CUT_SHARE,
        fills_holes=bool(np.mean(np.concatenate(with_holes)) < _MANY_HOLES),
    )


@dataclass(frozen=True, eq=False)
class AnnotatedRegions:
    """Regions of classes in an annotated image: those that are whole, or the areas of those drawn in part."""

    areas: NDArray[Any]
    solidity: NDArray[Any]
    cut: NDArray[np.bool_]  # by the border of the image
    classes: NDArray[np.uint8]
    drawn: NDArray[Any]

    @classmethod
    def of(cls, ids: NDArray[np.uint8]) -> AnnotatedRegions:
        """Find the regions of class ids (H, W). If unlabelled pixels touch most of them, none counts as whole."""
        labels: NDArray[np.integer] = label(  # type: ignore[no-untyped-call]
            np.where(ids == UNLABELLED, 0, ids), connectivity=1
        )
        areas = np.bincount(labels.ravel())[1:]
        in_part = np.unique(labels[(labels > 0) & ndimage.binary_dilation(ids == UNLABELLED)])
        is_drawn = 2 * in_part.size > areas.size
        whole = np.zeros_like(labels) if is_drawn else np.where(np.isin(labels, in_part), 0, labels)
        table = measure(whole)
        numbers, first = np.unique(whole, return_index=True)
        classes = ids.ravel()[first[numbers > 0]]
        drawn = areas if is_drawn else areas[:0]
        return cls(table["area"], table["solidity"], table["touches_border"], classes, drawn)


def splitter_of_regions(regions: Sequence[AnnotatedRegions]) -> tuple[Splitter, Source]:
    """Return a splitter for regions of classes, by distance if most are solid, and what it was learnt from."""
    areas, solidity, cut, classes, drawn = (
        np.concatenate([getattr(one, name) for one in regions])
        for name in ("areas", "solidity", "cut", "classes", "drawn")
    )
    is_out = cut | _specks(areas, classes)
    if is_out.all() and drawn.size:
        least = float(SMALLEST_DRAWN * drawn.min())
        return Splitter("none", radius=radius_of(drawn), least_area=least), "strokes"
    if is_out.all():
        return Splitter(landscape="none"), "nothing"
    areas, is_solid = areas[~is_out], solidity[~is_out] >= _SOLID
    most = is_solid.mean() >= 0.5
    known = areas[is_solid] if most else areas
    landscape: Landscape = "distance" if most else "none"
    least = _least_area(known)
    return Splitter(landscape, radius=radius_of(known), least_area=least, cut_share=CUT_SHARE), "regions"


def _specks(areas: NDArray[Any], classes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Find regions far smaller than the one that holds the middle pixel of their class, if they hold few of its pixels."""
    found = np.zeros(areas.shape, dtype=bool)
    for value in np.unique(classes):
        own = classes == value
        ranked = np.sort(areas[own])
        held = np.cumsum(ranked)
        is_small = own & (areas < _SPECK * ranked[np.searchsorted(held, held[-1] / 2)])
        found |= is_small & (areas[is_small].sum() < _MOST_SPECKS * held[-1])
    return found


def mark_parts(instances: Sequence[LabelArray], ids: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Divide annotated objects by depth, from the rim to the core; 0 is the background, unlabelled pixels stay so.

    The depth is the distance from what is not the object, as a share of the largest one in the object. There are at most
    `MOST_DEPTHS` parts, in small objects no more than pixels between edge and centre, and each has `LEAST_PIXELS`.
    """
    distances = [_distance_inside(labels) for labels in instances]
    largest = [_largest(*both) for both in zip(distances, instances, strict=True)]
    of_objects = [of[np.unique(labels[labels > 0])] for of, labels in zip(largest, instances, strict=True)]
    n_depths = min(MOST_DEPTHS, int(np.median(np.concatenate(of_objects))))
    shares = [
        distance / of[labels] for distance, labels, of in zip(distances, instances, largest, strict=True)
    ]
    while True:
        marked = [
            np.where(mask == UNLABELLED, UNLABELLED, np.where(labels > 0, np.ceil(n_depths * share), 0))
            for labels, mask, share in zip(instances, ids, shares, strict=True)
        ]
        rarest = min(sum(np.count_nonzero(mask == 1 + part) for mask in marked) for part in range(n_depths))
        if n_depths == 1 or rarest >= LEAST_PIXELS:
            return [mask.astype(np.uint8) for mask in marked]
        n_depths -= 1


def _distance_inside(labels: LabelArray) -> NDArray[np.float64]:
    """Distance from the outermost pixels of an object, which have 1 themselves; borders of the image are no edge."""
    edge = find_boundaries(labels, connectivity=1, mode="inner")  # type: ignore[no-untyped-call]
    if not edge.any():
        return np.ones(labels.shape)
    return np.asarray(1 + ndimage.distance_transform_edt(~edge))


def _largest(distance: NDArray[np.float64], labels: LabelArray) -> NDArray[np.float64]:
    """Largest distance of each object, by its number; at least 1."""
    largest = np.ones(1 + labels.max(initial=0))
    np.maximum.at(largest, labels, distance)
    return largest


def _whole_areas(instances: Sequence[LabelArray]) -> NDArray[Any]:
    """Areas of the objects that no border cuts; of all objects, if borders cut every one."""
    tables = [measure(labels) for labels in instances]
    areas, cut = (np.concatenate([table[name] for table in tables]) for name in ("area", "touches_border"))
    return areas if cut.all() else areas[~cut]


def _least_area(areas: NDArray[Any]) -> float:
    """Area in pixels below which a predicted object is left out."""
    return float(min(SMALL * np.median(areas), np.percentile(areas, _PERCENT_SMALL)))


def _has_hole(labels: LabelArray) -> NDArray[np.bool_]:
    """Return for each object whether another object or the background lies in a hole of it."""
    told = []
    for index, box in enumerate(ndimage.find_objects(labels), start=1):
        if box is not None:
            own = labels[box] == index
            told.append(bool((ndimage.binary_fill_holes(own) != own).any()))
    return np.array(told, dtype=bool)
