"""Shape of annotated objects: their size, their holes, and the rim between inside and outside."""

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

# Classes of the pixels of annotated objects.
BACKGROUND, INSIDE, RIM = 0, 1, 2
# Width of the rim in radii, and its least width in pixels.
RIM_WIDTH, LEAST_RIM = 0.3, 1.01
# Objects below this fraction of the median area are left out, unless annotated objects are as small.
SMALL = 0.2
_PERCENT_SMALL = 5
# Fraction of annotated objects with holes from which holes are not filled.
_MANY_HOLES = 0.05
# Fraction of its convex hull that a single object fills.
_SOLID = 0.9
# Predicted regions below this fraction of the smallest region drawn are left out, where none is annotated as a whole.
SMALLEST_DRAWN = 0.5
Source = Literal["regions", "strokes", "nothing"]


def splitter_of(instances: Sequence[LabelArray]) -> Splitter:
    """Return the usual splitter for objects of the annotated size."""
    areas = _whole_areas(instances)
    with_holes = [_has_hole(labels) for labels in instances]
    return Splitter(
        landscape="distance+inside",
        radius=radius_of(areas),
        least_area=_least_area(areas),
        fills_holes=bool(np.mean(np.concatenate(with_holes)) < _MANY_HOLES),
    )


@dataclass(frozen=True, eq=False)
class AnnotatedRegions:
    """Regions of classes in an annotated image: those that are whole, or the areas of those drawn in part."""

    areas: NDArray[Any]
    solidity: NDArray[Any]
    cut: NDArray[np.bool_]  # by the border of the image
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
        return cls(
            table["area"], table["solidity"], table["touches_border"], areas if is_drawn else areas[:0]
        )


def splitter_of_regions(regions: Sequence[AnnotatedRegions]) -> tuple[Splitter, Source]:
    """Return a splitter for regions of classes, by distance if most are solid, and what it was learnt from."""
    areas, solidity, cut, drawn = (
        np.concatenate([getattr(one, name) for one in regions])
        for name in ("areas", "solidity", "cut", "drawn")
    )
    if cut.all() and drawn.size:
        least = float(SMALLEST_DRAWN * drawn.min())
        return Splitter("none", radius=radius_of(drawn), least_area=least), "strokes"
    if cut.all():
        return Splitter(landscape="none"), "nothing"
    areas, is_solid = areas[~cut], solidity[~cut] >= _SOLID
    most = is_solid.mean() >= 0.5
    known = areas[is_solid] if most else areas
    landscape: Landscape = "distance" if most else "none"
    return Splitter(landscape, radius=radius_of(known), least_area=_least_area(known)), "regions"


def rim_ids(instances: LabelArray, ids: NDArray[np.uint8], radius: float) -> NDArray[np.uint8]:
    """Mark inside, rim and background of objects; the rim is near pixels of which a side faces something else."""
    edge = find_boundaries(instances, connectivity=1, mode="inner")  # type: ignore[no-untyped-call]
    marked = (instances > 0).astype(np.uint8)
    if edge.any():
        width = max(LEAST_RIM, RIM_WIDTH * radius)
        marked[(instances > 0) & (ndimage.distance_transform_edt(~edge) < width)] = RIM
    marked[ids == UNLABELLED] = UNLABELLED
    return marked


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
