"""Regions too small to be objects or holes, judged by the smallest annotated ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from skimage.measure import label

from segkit.images import UNLABELLED

# Regions that cover more than this fraction of an image are never too small.
MOST_OF_IMAGE = 0.01


def least_areas(ids: Sequence[NDArray[np.uint8]], n_classes: int, share: float) -> NDArray[np.float64]:
    """Compute the least area of a region of each class.

    Parameters
    ----------
    ids : sequence of ndarray of shape (H, W), uint8
        Class ids of annotated images.
    n_classes : int
        Number of classes.
    share : float
        Fraction in [0, 1] of the area of the smallest annotated region.

    Returns
    -------
    ndarray of shape (n_classes, 2), float64
        Areas in pixels, for whole regions and for regions cut by the border of an image. Each is
        ``share (1 - 1 / n)`` of the smallest one, over the n images with a region of known size of the class, and at most
        a hundredth of an image. The smallest region of a few images is not the smallest there is, so a single image
        gives 0. A class with only whole, or only cut, regions has the same least area for the other kind: if no object
        has a hole, small holes are none. Regions beside unlabelled pixels have an unknown size; a class without others
        is given 0.
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
    """Give regions that are too small to the classes around them.

    Parameters
    ----------
    ids : ndarray of shape (H, W), int
        Class ids.
    least : ndarray of shape (n_classes, 2), float64
        Least area in pixels of a whole region of each class, and of one cut by the border; at most a hundredth of this
        image counts.

    Returns
    -------
    ndarray of shape (H, W), int
        Pixels of small regions get the class of the nearest pixel of a large region, the lower class of two as near.
        Pixels of a region are connected by their sides.
    """
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


def _smallest_areas(ids: NDArray[np.uint8], n_classes: int) -> NDArray[np.float64]:
    """Find the least known area of whole and of cut regions of each class; infinite without any."""
    regions = _Regions(ids)
    known = (regions.classes < n_classes) & ~regions.goes_on_unseen
    smallest = np.full((n_classes, 2), np.inf)
    kinds = regions.classes[known], regions.at_border[known].astype(np.intp)
    np.minimum.at(smallest, kinds, regions.areas[known])
    return smallest


class _Regions:
    """Regions of pixels of one class, connected by their sides.

    Attributes
    ----------
    of_pixel : ndarray of shape (H, W), int
        Region of each pixel.
    areas, classes : ndarray of shape (n_regions,), int
        Number of pixels, and class id.
    at_border, goes_on_unseen : ndarray of shape (n_regions,), bool
        Whether the border of the image cuts the region, and whether it touches unlabelled pixels.
    """

    def __init__(self, ids: NDArray[np.integer]) -> None:
        self.of_pixel = label(ids, background=-1, connectivity=1) - 1  # type: ignore[no-untyped-call]
        self.areas = np.bincount(self.of_pixel.ravel())
        self.classes = np.empty(self.areas.size, dtype=np.intp)
        self.classes[self.of_pixel] = ids
        unseen = np.pad(ids == UNLABELLED, 1)
        self.goes_on_unseen = self._touched(
            unseen[:-2, 1:-1] | unseen[2:, 1:-1] | unseen[1:-1, :-2] | unseen[1:-1, 2:]
        )
        border = np.ones(ids.shape, dtype=bool)
        border[1:-1, 1:-1] = False
        self.at_border = self._touched(border)

    def _touched(self, pixels: NDArray[np.bool_]) -> NDArray[np.bool_]:
        touched = np.zeros(self.areas.size, dtype=bool)
        touched[self.of_pixel[pixels]] = True
        return touched
