"""Training crops of a network, and their augmentation.

Only this module imports albumentations.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence

import numpy as np

from segkit._common import FloatArray
from segkit.errors import ConfigError
from segkit.images import UNLABELLED
from segkit.segmentation.base import IdArray

_Augmentation = Callable[[FloatArray, IdArray, np.random.Generator], tuple[FloatArray, IdArray]]
# Root mean square and smoothness (standard deviation) of elastic displacements, in pixels.
_DISPLACEMENT, _SMOOTHNESS = 3, 12
# Near the border of a crop the blurred noise is too large, since the blur repeats the last pixel: crops are cut
# larger by this margin, and cropped after the deformation.
_MARGIN = 2 * _SMOOTHNESS


class CropSampler:
    """Square crops around random labelled pixels."""

    def __init__(
        self, images: Sequence[FloatArray], ids: Sequence[IdArray], *, crop: int, augment: bool
    ) -> None:
        self._crop = crop
        self._margin = _MARGIN if augment else 0
        self._augmentation = augmenter(crop, images[0].shape[2]) if augment else None
        self._padded = [self._pad(image, mask) for image, mask in zip(images, ids, strict=True)]
        self._labelled = [np.flatnonzero(mask != UNLABELLED) for _, mask in self._padded]

    def draw(self, n_crops: int, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
        """Draw crops, each from a random image."""
        images, ids = zip(*(self._draw_one(rng) for _ in range(n_crops)), strict=True)
        return np.stack(images), np.stack(ids)

    def _pad(self, image: FloatArray, ids: IdArray) -> tuple[FloatArray, IdArray]:
        """Mirror an image by the margin at all edges, and at the far edges until a crop fits."""
        widths = [(self._margin, self._margin + max(0, self._crop - size)) for size in ids.shape]
        return (
            np.pad(image, (*widths, (0, 0)), mode="reflect"),
            np.pad(ids, widths, constant_values=UNLABELLED),
        )

    def _draw_one(self, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
        # Images have equal chances, whatever their size; the crop is around a labelled pixel, so that scribbles train.
        index = rng.integers(len(self._padded))
        image, ids = self._padded[index]
        pixel = np.unravel_index(rng.choice(self._labelled[index]), ids.shape)
        side = self._crop + 2 * self._margin
        window = tuple(
            self._slice_around(int(position) - self._margin, size - side, side, rng)
            for position, size in zip(pixel, ids.shape, strict=True)
        )
        if self._augmentation is None:
            return image[window], ids[window]
        return self._augmentation(image[window], ids[window], rng)

    def _slice_around(self, position: int, last: int, side: int, rng: np.random.Generator) -> slice:
        """Draw a slice, among all whose crop (without margins) contains a position."""
        start = int(rng.integers(max(0, position - self._crop + 1), min(position, last) + 1))
        return slice(start, start + side)


def augmenter(crop: int, n_image_channels: int) -> _Augmentation:
    """Make a function that varies crops by flips, quarter turns, elastic deformation, brightness, contrast, colour."""
    # Without this, albumentations asks a server for newer versions when it is imported.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    try:
        import albumentations
    except ImportError as error:
        raise ConfigError(
            "augmentation needs albumentations, which is not installed: "
            "pip install segkit-bio[baselines], or train with augment=False"
        ) from error
    colour = [albumentations.ColorJitter(brightness=0, contrast=0, saturation=0.2, hue=0.05)]
    pipeline = albumentations.Compose(
        [
            albumentations.ElasticTransform(
                # noise in [-1, 1] has variance 1/3, and 1 / (3 * 4 * pi * sigma**2) after the blur
                alpha=_DISPLACEMENT * 2 * _SMOOTHNESS * math.sqrt(3 * math.pi),
                sigma=_SMOOTHNESS,
                noise_distribution="uniform",
            ),
            albumentations.CenterCrop(crop, crop),
            albumentations.D4(),
            albumentations.RandomBrightnessContrast(),
            *(colour if n_image_channels == 3 else []),
        ]
    )

    def augment(image: FloatArray, ids: IdArray, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
        # Compose(seed=) would give all transforms the same seed: either all of them would act, or none.
        pipeline.set_random_state(rng, random.Random(int(rng.integers(2**32))))
        varied = pipeline(image=image, mask=ids)
        return varied["image"], varied["mask"]

    return augment
