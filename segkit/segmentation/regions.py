"""Regions too small to be objects or holes: how small is read off the masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from skimage.measure import label

from segkit.images import UNLABELLED

# No region is called too small that covers more than this share of an image.
MOST_OF_IMAGE = 0.01


def least_areas(ids: Sequence[NDArray[np.uint8]], n_classes: int, share: float) -> NDArray[np.float64]:
    """Tell how large a region of each class is at least.

    Parameters
    ----------
    ids : sequence of ndarray of shape (H, W), uint8
        Class ids of annotated images.
    n_classes : int
        Number of classes.
    share : float
        Share in [0, 1] of the area of the smallest annotated region.

    Returns
    -------
    ndarray of shape (n_classes, 2), float64
        Areas in pixels, of regions that are whole and of those that the border of an image cuts:
        ``share (1 - 1 / n)`` of the smallest one in the n images with a region of known size of the class, for what
        is smallest in a few images is not the smallest there is (so one image tells nothing), and at most a
        hundredth of an image. Where all regions of a class are whole, or all are cut, the others are
        taken to be no smaller: if no object has a hole, small holes are none. Regions beside unlabelled
        pixels have an unknown size; a class that has no others is given 0.
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
    """Give regions that are too small to those around them.

    Parameters
    ----------
    ids : ndarray of shape (H, W), int
        Class ids.
    least : ndarray of shape (n_classes, 2), float64
        Least area in pixels of a region of each class, whole and cut by the border; a hundredth of this
        image, if that is less.

    Returns
    -------
    ndarray of shape (H, W), int
        Pixels of small regions have the class of the nearest pixel of a region that is large enough (of
        two as near, the lower class). Pixels of one class hang together by their sides.
    """
    regions = _Regions(ids)
    limit = np.minimum(least, MOST_OF_IMAGE * ids.size)[regions.classes, regions.at_border.astype(np.intp)]
    small = (regions.areas < limit)[regions.of_pixel]
    if not small.any() or small.all():
        return ids
    large = np.unique(ids[~small])
    # a distance for each class: a nearest pixel, where several are as near, would depend on how the image lies
    distances = [distance_transform_edt(small | (ids != k))[small] for k in large]
    merged = ids.copy()
    merged[small] = large[np.argmin(distances, axis=0)]
    return merged


def _smallest_areas(ids: NDArray[np.uint8], n_classes: int) -> NDArray[np.float64]:
    """Area of the smallest region of each class, whole and cut by the border, whose size is known; else infinite."""
    regions = _Regions(ids)
    known = (regions.classes < n_classes) & ~regions.goes_on_unseen
    smallest = np.full((n_classes, 2), np.inf)
    kinds = regions.classes[known], regions.at_border[known].astype(np.intp)
    np.minimum.at(smallest, kinds, regions.areas[known])
    return smallest


class _Regions:
    """Pixels of one class that hang together by their sides.

    Attributes
    ----------
    of_pixel : ndarray of shape (H, W), int
        Region of each pixel.
    areas, classes : ndarray of shape (n_regions,), int
        Number of pixels, and class id.
    at_border, goes_on_unseen : ndarray of shape (n_regions,), bool
        Whether the border of the image cuts it, and whether it lies beside unlabelled pixels.
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
