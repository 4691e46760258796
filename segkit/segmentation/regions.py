"""Regions too small to be objects or holes, compared with the smallest annotated ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from skimage.measure import label

from segkit.images import UNLABELLED

# Regions that cover more than this fraction of an image are never too small.
MOST_OF_IMAGE = 0.01


def least_areas(ids: Sequence[NDArray[np.uint8]], n_classes: int, share: float) -> NDArray[np.float64]:
    """Compute the least area of a region of each class, whole and cut by the border of an image; (n_classes, 2).

    It is ``share (1 - 1 / n)`` of the smallest annotated one, over the n images with a region of known size: the smallest of
    a few images is not the smallest there is, and a single image gives 0. Regions beside unlabelled pixels have an unknown
    size. A class with only whole, or only cut, regions has the same least area for the other kind.
    """
    of_images = np.array([_smallest_areas(mask, n_classes) for mask in ids])
    smallest = of_images.min(axis=0)
    smallest = np.where(np.isinf(smallest), smallest[:, ::-1], smallest)
    n_known = np.isfinite(of_images).any(axis=2).sum(axis=0)
    least = (
        share * (1 - 1 / np.maximum(n_known, 1))[:, np.newaxis] * np.where(np.isinf(smallest), 0, smallest)
    )
    return np.asarray(np.minimum(least, MOST_OF_IMAGE * min(mask.size for mask in ids)))


def merge_small_regions(ids: NDArray[np.intp], least: NDArray[np.float64]) -> NDArray[np.intp]:
    """Merge regions (connected by sides) that are too small into the nearest class, the lower of two as near."""
    regions = _Regions(ids)
    limit = np.minimum(least, MOST_OF_IMAGE * ids.size)[regions.classes, regions.at_border.astype(np.intp)]
    small = (regions.areas < limit)[regions.of_pixel]
    if not small.any() or small.all():
        return ids
    large = np.unique(ids[~small])
    # one distance for each class: the nearest pixel of several would depend on the orientation of the image
    distances = [distance_transform_edt(small | (ids != k))[small] for k in large]
    merged = ids.copy()
    merged[small] = large[np.argmin(distances, axis=0)]
    return merged


def merge_small_regions_by_strips(
    ids: NDArray[np.uint8], out: NDArray[np.uint8], least: NDArray[np.float64], n_rows: int
) -> None:
    """Do what `merge_small_regions` does, holding a few strips of an array on disk at a time; unlabelled pixels stay."""
    strips = [slice(start, min(start + n_rows, len(ids))) for start in range(0, len(ids), n_rows)]
    small_regions = _small_regions(ids, strips, least)
    # where every region is small, all stay
    keeps_all = all(small.all() for small in small_regions)
    for number, strip in enumerate(strips):
        part = np.array(ids[strip])
        small = small_regions[number][_labelled(part)]
        if small.any() and not keeps_all:
            part[small] = _around(ids, strips, small_regions, number)[small]
        out[strip] = part


def _labelled(part: NDArray[np.integer]) -> NDArray[np.integer]:
    return np.asarray(label(part, background=-1, connectivity=1) - 1)  # type: ignore[no-untyped-call]


def _small_regions(
    ids: NDArray[np.uint8], strips: Sequence[slice], least: NDArray[np.float64]
) -> list[NDArray[np.bool_]]:
    """Mark the pieces of regions in each strip whose whole region is too small."""
    areas, classes, at_border, starts, joints = [], [], [], [0], []
    above: NDArray[np.integer] | None = None
    for strip in strips:
        part = np.array(ids[strip])
        pieces = _Regions(part, is_first=strip.start == 0, is_last=strip.stop == len(ids))
        areas.append(pieces.areas)
        classes.append(pieces.classes)
        at_border.append(pieces.at_border)
        labelled = pieces.of_pixel + starts[-1]
        if above is not None:
            same = np.array(ids[strip.start - 1]) == part[0]
            joints.append(np.stack([above[same], labelled[0][same]]))
        above = labelled[-1]
        starts.append(starts[-1] + pieces.areas.size)
    pairs = np.concatenate(joints, axis=1) if joints else np.empty((2, 0), dtype=np.intp)
    graph = coo_matrix((np.ones(pairs.shape[1], dtype=bool), (pairs[0], pairs[1])), shape=(starts[-1],) * 2)
    n_regions, region = connected_components(graph, directed=False)
    area = np.bincount(region, weights=np.concatenate(areas), minlength=n_regions)[region]
    border = np.bincount(region, weights=np.concatenate(at_border), minlength=n_regions)[region] > 0
    kind = np.concatenate(classes)
    known = kind < len(least)
    limit = np.minimum(least, MOST_OF_IMAGE * ids.size)[np.where(known, kind, 0), border.astype(np.intp)]
    return np.split(known & (area < limit), starts[1:-1])


def _around(
    ids: NDArray[np.uint8],
    strips: Sequence[slice],
    small_regions: Sequence[NDArray[np.bool_]],
    number: int,
) -> NDArray[np.uint8]:
    """Find the class of the nearest pixel of a large region for each pixel of a strip, reading strips beside it."""
    for reach in range(1, len(strips) + 1):
        near = range(max(0, number - reach), min(len(strips), number + reach + 1))
        parts = [np.array(ids[strips[at]]) for at in near]
        small = np.concatenate(
            [small_regions[at][_labelled(part)] for at, part in zip(near, parts, strict=True)]
        )
        window = np.concatenate(parts)
        own = slice(strips[number].start - strips[near[0]].start, strips[number].stop - strips[near[0]].start)
        large = np.unique(window[~small])
        large = large[large != UNLABELLED]
        if not large.size:
            continue
        nearest = np.full(window[own].shape, np.inf)
        found = np.zeros(window[own].shape, dtype=np.uint8)
        for k in large:
            distance = distance_transform_edt(small | (window != k))[own]
            closer = distance < nearest
            nearest[closer], found[closer] = distance[closer], k
        beyond = min(
            own.start if near[0] else len(ids),
            len(window) - own.stop if near[-1] + 1 < len(strips) else len(ids),
        )
        if nearest[small[own]].max() <= beyond:
            break
    return found


def _smallest_areas(ids: NDArray[np.uint8], n_classes: int) -> NDArray[np.float64]:
    """Find the least known area of whole and of cut regions of each class; infinite without any."""
    regions = _Regions(ids)
    unseen = np.pad(ids == UNLABELLED, 1)
    beside = unseen[:-2, 1:-1] | unseen[2:, 1:-1] | unseen[1:-1, :-2] | unseen[1:-1, 2:]
    known = (regions.classes < n_classes) & ~regions.touch(beside)
    smallest = np.full((n_classes, 2), np.inf)
    kinds = regions.classes[known], regions.at_border[known].astype(np.intp)
    np.minimum.at(smallest, kinds, regions.areas[known])
    return smallest


class _Regions:
    """Regions of pixels of one class, connected by their sides, in an image or in a strip of it."""

    def __init__(self, ids: NDArray[np.integer], *, is_first: bool = True, is_last: bool = True) -> None:
        self.of_pixel = _labelled(ids)
        self.areas = np.bincount(self.of_pixel.ravel())
        self.classes = np.empty(self.areas.size, dtype=np.intp)
        self.classes[self.of_pixel] = ids
        border = np.zeros(ids.shape, dtype=bool)
        border[:, [0, -1]] = True
        border[0] |= is_first
        border[-1] |= is_last
        self.at_border = self.touch(border)

    def touch(self, pixels: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mark the regions that hold any of the pixels."""
        touched = np.zeros(self.areas.size, dtype=bool)
        touched[self.of_pixel[pixels]] = True
        return touched
