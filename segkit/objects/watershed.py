"""Fixed ways of telling objects apart, with nothing to tune: to compare learnt ones with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from skimage.feature import peak_local_max
from skimage.segmentation import watershed

from segkit.errors import InputError
from segkit.objects.hills import LabelArray


def connected_components(mask: ArrayLike) -> LabelArray:
    """Label the connected regions of a mask; pixels hang together by their sides."""
    return np.asarray(ndimage.label(_checked(mask), output=np.int32)[0])


def fixed_watershed(mask: ArrayLike, apart: float) -> LabelArray:
    """Split a mask by watershed on the distance from the background; seeds are maxima at least `apart` pixels apart."""
    inside = _checked(mask)
    if not 0 <= apart < np.inf:
        raise InputError(f"seeds {apart} pixels apart: give a number from 0")
    distance = ndimage.distance_transform_edt(inside)
    peaks = peak_local_max(  # type: ignore[no-untyped-call]
        distance, min_distance=max(1, round(apart)), labels=inside.astype(np.intp), exclude_border=False
    )
    seeds = np.zeros(inside.shape, dtype=np.int32)
    seeds[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
    labels = watershed(-distance, seeds, mask=inside)  # type: ignore[no-untyped-call]
    return np.asarray(labels, dtype=np.int32)


def _checked(mask: ArrayLike) -> NDArray[Any]:
    inside = np.asarray(mask) > 0
    if inside.ndim != 2:
        raise InputError(f"mask of shape {inside.shape}: give (H, W)")
    return inside
