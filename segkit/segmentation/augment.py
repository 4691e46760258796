"""Augmented copies of a single training image: turned, scaled, shifted, mirrored, and in other light."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.transform import AffineTransform, warp

from segkit._common import FloatArray
from segkit.images import UNLABELLED

# Natural logarithm of the largest scale, and largest shift as a fraction of the sides.
_LOG_SCALE, _SHIFT = 0.5, 0.15
# Standard deviations of the logarithms: of the exponent of all values, of their gain, of the gain of each channel.
_GAMMA, _GAIN, _CHANNEL_GAIN = 0.2, 0.12, 0.06
# A copy keeps this share of each class of the image; after some draws it is taken as it is.
_LEAST_SHARE, _MOST_DRAWS = 0.2, 10

IdArray = NDArray[np.uint8]


def augment(
    image: FloatArray, ids: IdArray, n_copies: int, rng: np.random.Generator
) -> tuple[list[FloatArray], list[IdArray]]:
    """Make augmented copies of an image and its class ids."""
    copies = [_copy(image, ids, rng) for _ in range(n_copies)]
    return [copy for copy, _ in copies], [own for _, own in copies]


def _copy(image: FloatArray, ids: IdArray, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
    for _ in range(_MOST_DRAWS):
        motion = _similarity(ids.shape, rng)
        moved = _warp(ids, motion, order=0, preserve_range=True).astype(np.uint8)
        if _keeps_classes(ids, moved):
            break
    return _relight(_warp(image, motion, order=1), rng), moved


def _warp(values: NDArray[Any], motion: Any, **options: Any) -> NDArray[Any]:
    return np.asarray(warp(values, motion, mode="reflect", **options))  # type: ignore[no-untyped-call]


def _similarity(shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Draw where each pixel of a copy comes from, in x and y."""
    size = np.array(shape[::-1], dtype=np.float64)
    scale = math.exp(rng.uniform(-_LOG_SCALE, _LOG_SCALE))
    mirror = rng.choice([-1, 1])
    move: Any = AffineTransform
    turned = move(scale=(scale, scale * mirror), rotation=rng.uniform(-math.pi, math.pi))
    to_centre = move(translation=-(size - 1) / 2)
    from_centre = move(translation=(size - 1) / 2 + size * rng.uniform(-_SHIFT, _SHIFT, 2))
    return to_centre + turned + from_centre


def _keeps_classes(ids: IdArray, moved: IdArray) -> bool:
    return all(
        np.mean(moved == label) >= _LEAST_SHARE * np.mean(ids == label)
        for label in np.unique(ids)
        if label != UNLABELLED
    )


def _relight(image: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw another gamma and other gains."""
    gamma, gain = np.exp(rng.normal(0, (_GAMMA, _GAIN)))
    gains = gain * np.exp(rng.normal(0, _CHANNEL_GAIN, image.shape[2]))
    return np.asarray(np.clip(gains * np.clip(image, 0, 1) ** gamma, 0, 1), dtype=np.float32)
