"""How the channels of an image become the three that a network of colour images sees."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from segkit._common import FloatArray
from segkit.errors import ConfigError, InputError
from segkit.features.options import once

ChannelMode = Literal["rgb", "each", "mean"]


def scales_of(pyramid: Sequence[float]) -> list[Fraction]:
    """Return the scales of a pyramid as exact fractions."""
    return [Fraction(scale).limit_denominator(1000) for scale in pyramid]


def _fractions(pyramid: Sequence[float]) -> Sequence[float]:
    scales = scales_of(pyramid)
    if any(1 not in scale.as_integer_ratio() for scale in scales):
        raise ConfigError("scales should be 1, 1/2, 1/3 and so on, or 2, 3 and so on")
    once(scales)
    return pyramid


# Scales of the image that a network sees.
_Scale = Annotated[float, Field(gt=0, le=8)]
Pyramid = Annotated[Sequence[_Scale], Field(min_length=1, max_length=20), AfterValidator(_fractions)]


def count_views(mode: str, n_image_channels: int) -> int:
    """Count the images that a network runs on."""
    return n_image_channels if mode == "each" else 1


def check_channels(mode: str, n_image_channels: int) -> None:
    """Refuse channels that a mode does not map to three."""
    if mode == "rgb" and n_image_channels not in (1, 3):
        raise InputError(
            f"image with {n_image_channels} channels for a three-channel network: choose how they map, "
            f"bank.channel_mode=each (run it on every channel) or mean"
        )


def three_channels(image: FloatArray, mode: str) -> list[FloatArray]:
    """Make the images (H, W, 3) that a network runs on, from an image (H, W, C)."""
    check_channels(mode, image.shape[2])
    if mode == "each":
        return [np.repeat(image[:, :, [index]], 3, axis=2) for index in range(image.shape[2])]
    if mode == "mean":
        return [np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2)]
    return [np.broadcast_to(image, (*image.shape[:2], 3))]
