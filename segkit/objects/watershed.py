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
    """Label the connected regions of a mask; pixels hang together by their sides.

    Parameters
    ----------
    mask : array-like of shape (H, W), bool or int
        Foreground: all that is not 0.

    Returns
    -------
    ndarray of shape (H, W), int32
        0 for the background, regions 1 to n.

    Raises
    ------
    InputError
        If the mask is not (H, W).

    Examples
    --------
    >>> from segkit.objects.watershed import connected_components
    >>> connected_components([[1, 0, 1]]).tolist()
    [[1, 0, 2]]
    """
    return np.asarray(ndimage.label(_checked(mask), output=np.int32)[0])


def fixed_watershed(mask: ArrayLike, apart: float) -> LabelArray:
    """Split a mask by watershed on the distance from the background, as the documentation of scikit-image does.

    Parameters
    ----------
    mask : array-like of shape (H, W), bool or int
        Foreground: all that is not 0.
    apart : float
        Least distance of two seeds in pixels; below 1 it is 1. The radius of a typical object suits most.

    Returns
    -------
    ndarray of shape (H, W), int32
        0 for the background, objects 1 to n. Each local maximum of the distance is a seed; of maxima closer together the
        highest is. A region that is left without a seed is no object.

    Raises
    ------
    InputError
        If the mask is not (H, W), or the distance is negative or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.objects.watershed import fixed_watershed
    >>> rows, cols = np.indices((20, 34))
    >>> mask = (np.hypot(rows - 10, cols - 10) < 8) | (np.hypot(rows - 10, cols - 23) < 8)
    >>> int(fixed_watershed(mask, 4).max())
    2
    """
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
