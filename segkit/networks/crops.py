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
        self._images, self._ids = images, ids
        self._crop = crop
        self._margin = math.ceil((_WINDOW - 1) / 2 * crop) if augment else 0
        self._augmentation = augmenter(crop, images[0].shape[2]) if augment else None
        # labelled pixels up to the end of each row
        self._labelled = [np.count_nonzero(mask != UNLABELLED, axis=1).cumsum() for mask in ids]

    def draw(self, n_crops: int, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
        """Draw crops, each from a random image: images have equal chances, whatever their size."""
        images, ids = zip(*(self._draw_one(rng) for _ in range(n_crops)), strict=True)
        return np.stack(images), np.stack(ids)

    def _draw_one(self, rng: np.random.Generator) -> tuple[FloatArray, IdArray]:
        index = int(rng.integers(len(self._images)))
        image, ids = self._images[index], self._ids[index]
        row, col = self._draw_pixel(index, rng)
        rows = self._places_around(row, ids.shape[0], rng)
        cols = self._places_around(col, ids.shape[1], rng)
        # twice as fast as np.ix_
        image = image.take(rows, axis=0).take(cols, axis=1)
        ids = ids.take(rows, axis=0).take(cols, axis=1)
        if self._augmentation is None:
            return image, ids
        return self._augmentation(image, ids, rng)

    def _draw_pixel(self, index: int, rng: np.random.Generator) -> tuple[int, int]:
        """Draw the row and the column of a labelled pixel."""
        up_to = self._labelled[index]
        number = int(rng.integers(up_to[-1]))
        row = int(np.searchsorted(up_to, number, side="right"))
        before = up_to[row - 1] if row else 0
        return row, int(np.flatnonzero(self._ids[index][row] != UNLABELLED)[number - before])

    def _places_around(self, position: int, side: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw the rows or columns of a window, among all whose crop (without margins) contains a position."""
        last = max(0, side - self._crop)
        start = int(rng.integers(max(0, position - self._crop + 1), min(position, last) + 1))
        places = np.arange(start - self._margin, start + self._crop + self._margin)
        return _mirror(places, side)


def _mirror(places: NDArray[np.intp], side: int) -> NDArray[np.intp]:
    """Mirror places outside of 0 to side - 1 at the first and the last."""
    period = max(1, 2 * (side - 1))
    places = places % period
    return np.minimum(places, period - places)


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
