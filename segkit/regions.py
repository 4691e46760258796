"""Regions too small to be objects or holes: how small is read off the masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
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
    ndarray of shape (n_classes,), float64
        Areas in pixels: ``share (1 - 1 / n)`` of the smallest annotated region among n images, for what is
        smallest in a few images is not the smallest there is (so one image tells nothing), and
        at most a hundredth of an image. Regions cut by the border or by unlabelled pixels count
        only where a class has no others. 0 for a class without regions.
    """
    most = MOST_OF_IMAGE * min(mask.size for mask in ids)
    smallest = np.zeros(n_classes)
    found = [_regions(mask) for mask in ids]
    for k in range(n_classes):
        whole = np.concatenate([areas[(classes == k) & ~cut] for _, areas, classes, cut in found])
        areas = (
            whole if whole.size else np.concatenate([areas[classes == k] for _, areas, classes, _ in found])
        )
        smallest[k] = areas.min() if areas.size else 0
    return np.minimum(share * (1 - 1 / len(ids)) * smallest, most)


def small_regions(ids: NDArray[np.intp], least: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell the pixels of regions that are too small.

    Parameters
    ----------
    ids : ndarray of shape (H, W), int
        Class ids.
    least : ndarray of shape (n_classes,), float64
        Least area of a region of each class, in pixels.

    Returns
    -------
    ndarray of shape (H, W), bool
        True where the pixels of one class that hang together by their sides are fewer.
    """
    region, areas, classes, _ = _regions(ids)
    return np.asarray((areas < least[classes])[region])


def _regions(
    ids: NDArray[np.integer],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
    """Region of each pixel; area and class of each region, and whether it may go on unseen."""
    region = label(ids, background=-1, connectivity=1) - 1  # type: ignore[no-untyped-call]
    areas = np.bincount(region.ravel())
    classes = np.empty(areas.size, dtype=np.intp)
    classes[region] = ids
    unseen = np.pad(ids == UNLABELLED, 1, constant_values=True)
    beside = unseen[:-2, 1:-1] | unseen[2:, 1:-1] | unseen[1:-1, :-2] | unseen[1:-1, 2:]
    cut = np.zeros(areas.size, dtype=bool)
    cut[region[beside]] = True
    return region, areas, classes, cut
