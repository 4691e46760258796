"""Images and masks at the scales of networks, and which scales are of use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import block_reduce

from segkit._common import FloatArray
from segkit.images.labels import UNLABELLED
from segkit.images.sampling import sparse_images

IdArray = NDArray[np.uint8]
# Coarse scales are left out at which an image would have a shorter side of fewer pixels (the least crop), or the annotated
# regions of every class would be narrower: what is small gains from steps at full scale, not from another scale.
LEAST_SIDE, LEAST_WIDTH = 64, 16


def useful_scales(scales: list[Fraction], ids: Sequence[IdArray], n_classes: int) -> list[Fraction]:
    """Keep the first scale, and those at which images and annotated regions are large enough."""
    shortest = min(side for mask in ids for side in mask.shape)
    # strokes tell nothing of the width of what they lie in
    widths = [
        math.inf if sparse_images(ids) else _typical_width([mask == label for mask in ids])
        for label in range(1, n_classes)
    ]
    large = [
        scale for scale in scales[1:] if scale * shortest >= LEAST_SIDE and scale * max(widths) >= LEAST_WIDTH
    ]
    return scales[:1] + large


def _typical_width(masks: Sequence[NDArray[np.bool_]]) -> float:
    """Width in pixels, at its widest place, of the region that the median pixel of the masks lies in."""
    widths: list[float] = []
    areas: list[int] = []
    for mask in masks:
        regions, n_regions = ndimage.label(mask, structure=np.ones((3, 3)))
        depths = ndimage.distance_transform_edt(mask)
        widths += (2 * ndimage.maximum(depths, regions, range(1, n_regions + 1))).tolist()
        areas += np.bincount(regions.ravel(), minlength=1)[1:].tolist()
    order = np.argsort(widths)
    covered = np.cumsum(np.array(areas)[order])
    return widths[order[np.searchsorted(covered, covered[-1] / 2)]] if widths else 0.0


def shrink(image: FloatArray, factor: int) -> FloatArray:
    """Take means of blocks of pixels; the far edges are mirrored to whole blocks."""
    if factor == 1:
        return image
    padding = [(0, -side % factor) for side in image.shape[:2]]
    padded = np.pad(image, (*padding, (0, 0)), mode="symmetric")
    means = block_reduce(padded, (factor, factor, 1), np.mean)  # type: ignore[no-untyped-call]
    return np.asarray(means, dtype=np.float32)


def shrink_ids(ids: IdArray, factor: int) -> IdArray:
    """Take the class id in the middle of each block of pixels, or another one where it is unlabelled: strokes are thin."""
    padded = np.pad(ids, [(0, -side % factor) for side in ids.shape], mode="symmetric")
    middle = padded[factor // 2 :: factor, factor // 2 :: factor]
    lowest = block_reduce(padded, (factor, factor), np.min)  # type: ignore[no-untyped-call]
    return np.where(middle == UNLABELLED, lowest, middle)
