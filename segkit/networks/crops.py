"""Training crops of a network, and their augmentation.

Only this module imports albumentations.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit.errors import ConfigError
from segkit.images import UNLABELLED

IdArray = NDArray[np.uint8]
_Augmentation = Callable[[FloatArray, IdArray, np.random.Generator], tuple[FloatArray, IdArray]]
# Root mean square and smoothness (standard deviation) of elastic displacements, in pixels.
_DISPLACEMENT, _SMOOTHNESS = 3, 12
# Near the border of a crop the blurred noise is too large, since the blur repeats the last pixel: crops are deformed with
# this margin, and cut afterwards.
_MARGIN = 2 * _SMOOTHNESS
# Sides of what is turned and scaled, in crops: what a turned crop shows lies within it, but for the corners of the smallest
# scales, which are mirrored.
_WINDOW = 1.5


class CropSampler:
    """Square crops around random labelled pixels; images are mirrored at their edges, and so are their labels."""

    def __init__(
        self, images: Sequence[FloatArray], ids: Sequence[IdArray], *, crop: int, augment: bool
    ) -> None:
        self._crop = crop
        self._margin = math.ceil((_WINDOW - 1) / 2 * crop) if augment else 0
        self._augmentation = augmenter(crop, images[0].shape[2]) if augment else None
        self._padded = [self._pad(image, mask) for image, mask in zip(images, ids, strict=True)]
        self._labelled = [np.argwhere(mask != UNLABELLED) for mask in ids]

    def draw(self, n_crops: int, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
        """Draw crops, each from a random image: images have equal chances, whatever their size."""
        images, ids = zip(*(self._draw_one(rng) for _ in range(n_crops)), strict=True)
        return np.stack(images), np.stack(ids)

    def _pad(self, image: FloatArray, ids: IdArray) -> tuple[FloatArray, IdArray]:
        """Mirror an image and its labels by the margin at all edges, and at the far edges until a crop fits."""
        widths = [(self._margin, self._margin + max(0, self._crop - size)) for size in ids.shape]
        return np.pad(image, (*widths, (0, 0)), mode="reflect"), np.pad(ids, widths, mode="reflect")

    def _draw_one(self, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
        index = rng.integers(len(self._padded))
        image, ids = self._padded[index]
        pixel = rng.choice(self._labelled[index])
        side = self._crop + 2 * self._margin
        window = tuple(
            self._slice_around(int(position), size - side, side, rng)
            for position, size in zip(pixel, ids.shape, strict=True)
        )
        if self._augmentation is None:
            return image[window], ids[window]
        return self._augmentation(image[window], ids[window], rng)

    def _slice_around(self, position: int, last: int, side: int, rng: np.random.Generator) -> slice:
        """Draw a slice, among all whose crop (without margins) contains a position."""
        start = int(rng.integers(max(0, position - self._crop + 1), min(position, last) + 1))
        return slice(start, start + side)


def import_albumentations() -> Any:
    """Import albumentations, or tell how to install it."""
    # Without this, it asks a server for newer versions when it is imported.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    try:
        import albumentations
    except ImportError as error:
        raise ConfigError(
            "training a network needs albumentations, which is not installed: pip install segkit-bio[tuned], or take the "
            "default bank"
        ) from error
    return albumentations


def augmenter(crop: int, n_image_channels: int) -> _Augmentation:
    """Make a function that varies windows of an image, and cuts crops from them.

    Shape: scales, turns, shears, the symmetries of the square, elastic deformation. Colour and light: brightness, contrast,
    gamma, a tint of each channel, saturation and hue of RGB, blur and noise.
    """
    alb = import_albumentations()
    import cv2  # which it brings

    mirror = {"border_mode": cv2.BORDER_REFLECT_101}
    elastic = alb.ElasticTransform(
        # noise in [-1, 1] has variance 1/3, and 1 / (3 * 4 * pi * sigma**2) after the blur
        alpha=_DISPLACEMENT * 2 * _SMOOTHNESS * math.sqrt(3 * math.pi),
        sigma=_SMOOTHNESS,
        noise_distribution="uniform",
        **mirror,
    )
    colour: list[Any] = [alb.ColorJitter(brightness=0, contrast=0, saturation=0.3, hue=0.03)]
    pipeline = alb.Compose(
        [
            alb.Affine(scale=(0.65, 1.4), rotate=(-45, 45), shear=(-8, 8), keep_ratio=True, **mirror, p=1),
            alb.CenterCrop(crop + 2 * _MARGIN, crop + 2 * _MARGIN, pad_if_needed=True, **mirror),
            elastic,
            alb.CenterCrop(crop, crop),
            alb.D4(p=1),
            alb.RandomBrightnessContrast(0.25, 0.25, p=1),
            alb.RandomGamma((70, 140), p=0.7),
            *(colour if n_image_channels == 3 else []),
            alb.MultiplicativeNoise((0.9, 1.1), per_channel=True, p=0.7),
            alb.GaussianBlur((3, 5), p=0.2),
            alb.GaussNoise((0.0, 0.03), p=0.3),
        ]
    )

    def augment(image: FloatArray, ids: IdArray, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
        # Compose(seed=) would give all transforms the same seed: either all of them would act, or none.
        pipeline.set_random_state(rng, random.Random(int(rng.integers(2**32))))
        varied = pipeline(image=image, mask=ids)
        return varied["image"], varied["mask"]

    return augment
