"""How an image is shown with 8 bits: between two values of each channel."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_PERCENTILES = (0.35, 99.65)  # as ImageJ's automatic contrast
_SAMPLE = 2**20  # pixels from which depth and percentiles are taken

Depth = Literal["8", "16", "float"]


def depth_of(image: NDArray[Any]) -> Depth:
    """Infer the depth of the file of an image (H, W, C) in [0, 1]: values of 8 bits are multiples of 1/255."""
    sample = _sample(image)
    for depth, largest, tolerance in (("8", 255, 1e-4), ("16", 65535, 2e-2)):
        steps = sample * np.float32(largest)
        if np.abs(steps - np.rint(steps)).max(initial=0) < tolerance:
            return depth  # type: ignore[return-value]
    return "float"


def contrast_of(image: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values that are shown black and white, for each channel of an image (H, W, C): percentiles.

    A channel of few pixels that differ, such as spots, is shown from its lowest to its highest value, and one of a single
    value as it is.
    """
    sample = _sample(image).reshape(-1, image.shape[2])
    low, high = np.percentile(sample, _PERCENTILES, axis=0).astype(np.float64)
    is_flat = low == high
    pixels = image.reshape(-1, image.shape[2])[:, is_flat]
    low[is_flat], high[is_flat] = pixels.min(axis=0), pixels.max(axis=0)
    return np.where(low < high, low, 0.0), np.where(low < high, high, 1.0)


def _sample(image: NDArray[Any]) -> NDArray[Any]:
    stride = max(1, int(np.sqrt(image.shape[0] * image.shape[1] / _SAMPLE)))
    return image[::stride, ::stride]
