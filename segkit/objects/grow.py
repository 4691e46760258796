"""An object grown from a point inside it, on the image and on what is predicted."""

from __future__ import annotations

import warnings
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.segmentation import random_walker

from segkit._common import FloatArray

# The window reaches so many times as far as the object, so that some background lies around it.
_ROOM = 1.3
# Share of the window's radius that is surely of the object.
_SEED = 0.08
# What the prediction counts beside the image, whose channels have deviation 1. Chosen on 192 objects of stained nuclei,
# MoNuSeg and phase contrast.
_WEIGHT = 10.0
# Larger windows are read in coarser steps: the longer the walk, the more of it leaks through an edge.
_LONGEST = 64
_SMOOTHING = 1.0
_EDGES = 130  # how much a step over an edge costs, `beta` of scikit-image


def grow(
    image: FloatArray, foreground: FloatArray | None, at: tuple[int, int], reach: float
) -> tuple[tuple[int, int], NDArray[np.bool_]]:
    """Find the object around a pixel by a random walk: pixels from which one reaches that pixel before the rim of a circle.

    The walk avoids edges of the image and of the prediction (L. Grady, Random walks for image segmentation, 2006).

    Parameters
    ----------
    image : ndarray of shape (H, W, C)
        The image.
    foreground : ndarray of shape (H, W), or None
        Probability that a pixel is of an object, 0 to 1, if something is predicted.
    at : tuple of int
        Row and column of a pixel near the middle of the object.
    reach : float
        Distance from there to the farthest pixel of the object, in pixels.

    Returns
    -------
    ((int, int), ndarray of bool)
        First row and column of a window, and the mask of the object in it: one piece without holes that holds the pixel.
    """
    radius = ceil(_ROOM * min(max(reach, 2.0), np.hypot(*image.shape[:2]))) + 2
    first = [max(0, side - radius) for side in at]
    window = tuple(slice(low, side + radius + 1) for low, side in zip(first, at, strict=True))
    step = ceil((2 * radius + 1) / _LONGEST)
    data = _data(image[window], None if foreground is None else foreground[window], step)
    shape = image[window].shape[:2]
    far = np.hypot(*(np.indices(shape) - np.reshape(np.subtract(at, first), (2, 1, 1))))[::step, ::step]
    seeds = np.zeros(far.shape, dtype=np.intp)
    seeds[far >= radius - max(1, step)] = 2
    is_inside = far <= max(1.5 * step, _SEED * min(radius, max(shape) / 2))
    seeds[is_inside] = 1
    if not (seeds == 2).any():  # the whole image lies in the circle: its border is the rim
        seeds[[0, -1], :] = seeds[:, [0, -1]] = 2
        seeds[is_inside] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of solvers that are not installed
        walk = random_walker(data, seeds, beta=_EDGES, mode="cg_j", channel_axis=2, return_full_prob=True)
    inside = _resized(walk[0], step, shape) > 0.5
    own = tuple(np.subtract(at, first))
    inside[own] = True
    pieces, _ = ndimage.label(inside)
    return (first[0], first[1]), ndimage.binary_fill_holes(pieces == pieces[own])


def _resized(coarse: FloatArray, step: int, shape: tuple[int, ...]) -> FloatArray:
    """Interpolate what was read at every step-th pixel."""
    if step == 1:
        return coarse
    places = np.meshgrid(*(np.arange(side) / step for side in shape), indexing="ij")
    return np.asarray(ndimage.map_coordinates(coarse, places, order=1, mode="nearest"))


def _data(image: FloatArray, foreground: FloatArray | None, step: int) -> FloatArray:
    """Return the channels of the walk, (h, w, C): the image with mean deviation 1, and the prediction."""
    smooth = ndimage.gaussian_filter(image, (_SMOOTHING * step, _SMOOTHING * step, 0))[::step, ::step]
    deviation = float(smooth.std(axis=(0, 1)).mean())
    channels = [smooth / (deviation or 1.0)]
    if foreground is not None:
        channels.append(_WEIGHT * ndimage.gaussian_filter(foreground, 0.7 * step)[::step, ::step, None])
    return np.concatenate(channels, axis=2)
