"""Differences of an image from the training images: brightness and contrast, size, and texture.

Texture is described by the kept channels at the pixels of a coarse grid. The distance of two textures has two parts: between
the mean embeddings of these pixels under a Gaussian kernel, and between the logarithms of the channels' standard deviations.
The second part is needed because the kernel sees all channels together: it hardly notices that a blurred image has lost the
few channels of fine detail. Usual distances are learnt from the training images, each compared with the others. Copies of an
image count once: the distance between them says nothing of other images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import exp, log, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import cdist, pdist

from segkit._common import FloatArray

Arrays = dict[str, NDArray[Any]]
# With fewer training images, the usual differences between images are unknown.
FEWEST_IMAGES = 3
# Probability of a false alarm by texture, and by brightness or contrast, if logarithms are normal. It is higher for texture,
# which finds more of the unlike images.
ALARM_OF_TEXTURE, ALARM_OF_LIGHT = 0.025, 0.01
N_FREQUENCIES = 256
# Number of pixels from which the bandwidth is computed.
PIXELS_FOR_BANDWIDTH = 1000
# Brightness and contrast are compared by their logarithms; lower values are raised to this one.
DARKEST = 1e-4
# Added to the standard deviations of channels, so that their logarithms are bounded.
LEAST_SPREAD = 1e-2
# Smaller relative differences of brightness, contrast and distance are never told of: eyes hardly see them, and rounding to
# 8 bits moves a value of 0.02 by as much.
LEAST_CHANGE = 0.1
# Textures cannot differ by less than this share of the sampling noise. A regular grid has less noise than the independent
# pixels for which it is computed, hence not all of it.
SHARE_OF_NOISE = 0.25
# An image of half the height and width may have pixels twice as large.
SMALL = 0.5
_CHANNELS = {1: ("",), 3: (" in red", " in green", " in blue")}


@dataclass(frozen=True, eq=False)
class KnownImages:
    """Brightness, contrast, size and texture of the different training images, to compare others with."""

    # mean and standard deviation of each channel, (n_images, n_image_channels); height and width
    levels: NDArray[np.float64]
    spreads: NDArray[np.float64]
    shapes: NDArray[np.float64]
    # of a Gaussian kernel with the median distance as bandwidth (Rahimi & Recht 2007; Gretton et al. 2012), (n_kept, n)
    frequencies: FloatArray
    # means of the random features over pixels, and logarithms of the channels' deviations, (n_images, 2 n + n_kept)
    textures: FloatArray
    # geometric mean of the distance to the nearest other training image, of both parts of the textures
    scales: NDArray[np.float64]

    @classmethod
    def learn(
        cls, images: Sequence[FloatArray], features: Sequence[FloatArray], random_state: int
    ) -> Self | None:
        """Learn from images (H, W, C) and their standardised features (n_grid, n_kept); None if too few are different."""
        if len(images) < FEWEST_IMAGES:
            return None
        rng = np.random.default_rng(random_state)
        pixels = np.concatenate(features)
        drawn = pixels[rng.choice(len(pixels), min(PIXELS_FOR_BANDWIDTH, len(pixels)), replace=False)]
        # equal pixels have the median distance 0
        bandwidth = float(np.median(pdist(drawn))) or 1.0
        frequencies = (rng.standard_normal((pixels.shape[1], N_FREQUENCIES)) / bandwidth).astype(np.float32)
        textures = np.array([_texture(own, frequencies) for own in features])
        least = _least_distances(textures, len(features[0]))
        distinct = _distinct(_scaled(textures, least, 2 * N_FREQUENCIES))
        if len(distinct) < FEWEST_IMAGES:
            return None
        images, textures = [images[index] for index in distinct], textures[distinct]
        levels, spreads = (np.array(values) for values in zip(*map(_level_and_spread, images), strict=True))
        shapes = np.array([image.shape[:2] for image in images], dtype=np.float64)
        parts = np.split(textures, [2 * N_FREQUENCIES], axis=1)
        scales = np.array(
            [
                np.exp(np.log(np.maximum(_apart(part), noise)).mean())
                for part, noise in zip(parts, least, strict=True)
            ]
        )
        return cls(levels, spreads, shapes, frequencies, textures, scales)

    @property
    def distances(self) -> NDArray[np.float64]:
        """Distance of each training image to the nearest of the others, (n_images,)."""
        return _apart(self._scaled(self.textures))

    @property
    def farthest(self) -> float:
        """Limit of the distance: few images of the same kind are farther away."""
        distances = np.log(self.distances)
        return exp(distances.mean() + float(_width(distances, ALARM_OF_TEXTURE)))

    def distance(self, features: FloatArray) -> float:
        """Compute the distance of an image to the nearest training image: about 1 between images of one kind."""
        own = self._scaled(_texture(features, self.frequencies)[None])
        return float(cdist(own, self._scaled(self.textures)).min())

    def _scaled(self, textures: FloatArray) -> FloatArray:
        return _scaled(textures, self.scales, 2 * self.frequencies.shape[1])

    def compare(self, image: FloatArray, distance: float) -> tuple[str, ...]:
        """List in plain words how an image (H, W, C) of this distance differs from the training images."""
        level, spread = _level_and_spread(image)
        notes = [
            _outside(level, self.levels, ("darker", "brighter"), "mean"),
            _outside(spread, self.spreads, ("lower in contrast", "higher in contrast"), "standard deviation"),
        ]
        smallest = self.shapes.min(axis=0)
        if (np.array(image.shape[:2]) <= SMALL * smallest).all():
            notes.append(
                f"smaller than the training images ({image.shape[0]} x {image.shape[1]} pixels, training from "
                f"{smallest[0]:.0f} x {smallest[1]:.0f}): its pixels may be larger"
            )
        if distance > self.farthest:
            own, known = _told_apart(distance, self.distances.max())
            notes.append(
                f"texture unlike the training images (distance {own}, held-out training images up to {known})"
            )
        return tuple(note for note in notes if note)

    def explain(self) -> str:
        """Explain when an image counts as unlike the training images."""
        return (
            f"Unlike images: the texture of a training image is up to {self.distances.max():.2g} from the nearest of the "
            f"others. A new image beyond {self.farthest:.2g} gets a warning, and so do brightness, contrast and size that "
            f"are far from those of the {len(self.levels)} different training images."
        )

    def to_arrays(self) -> Arrays:
        """Return the arrays by name, for a model file."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Restore what `to_arrays` gave."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})

    def state_shapes(self, n_kept: int, n_image_channels: int) -> dict[str, tuple[int, ...]]:
        """Shapes that the arrays must have, by name."""
        n_images, n_frequencies = len(self.levels), self.frequencies.shape[1]
        return {
            "levels": (n_images, n_image_channels),
            "spreads": (n_images, n_image_channels),
            "shapes": (n_images, 2),
            "frequencies": (n_kept, n_frequencies),
            "textures": (n_images, 2 * n_frequencies + n_kept),
            "scales": (2,),
        }


def _level_and_spread(image: FloatArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of each channel."""
    return image.mean(axis=(0, 1), dtype=np.float64), image.std(axis=(0, 1), dtype=np.float64)


def _texture(features: FloatArray, frequencies: FloatArray) -> FloatArray:
    """Return the mean cosines and sines over pixels, and the logarithms of the channels' standard deviations.

    Squared distances of the means approximate those of the kernel's mean embeddings.
    """
    phases = features @ frequencies
    mean = np.concatenate([np.cos(phases).mean(axis=0), np.sin(phases).mean(axis=0)])
    spread = np.log(features.std(axis=0, dtype=np.float64) + LEAST_SPREAD)
    parts = mean / sqrt(frequencies.shape[1]), spread / sqrt(features.shape[1])
    return np.concatenate(parts).astype(np.float32)


def _scaled(textures: FloatArray, scales: NDArray[np.float64], n_mean: int) -> FloatArray:
    """Divide both parts of textures, the first of `n_mean` columns, by their scales, so that they count alike."""
    return np.asarray(textures / np.repeat(scales * sqrt(2), [n_mean, textures.shape[1] - n_mean]))


def _least_distances(textures: FloatArray, n_pixels: int) -> NDArray[np.float64]:
    r"""Compute the least distance of both parts that could be more than sampling noise.

    Two means of n independent pixels of one image differ by :math:`\sqrt{2 (1 - |m|^2) / n}`, as the random features of a
    pixel have length 1. Two logarithms of standard deviations of n normal values differ by :math:`\sqrt{1 / n}`.
    """
    length = np.square(textures[:, : 2 * N_FREQUENCIES], dtype=np.float64).sum(axis=1).mean()
    # equal pixels have no noise, but rounding errors
    variances = np.array([max(2 * (1 - length), np.finfo(np.float32).eps), 1.0])
    return SHARE_OF_NOISE * np.sqrt(variances / n_pixels)


def _distinct(textures: FloatArray) -> list[int]:
    """Choose images that are farther apart than 1, the first of several copies."""
    near = cdist(textures, textures) <= 1
    chosen: list[int] = []
    for index, copies in enumerate(near):
        if not copies[chosen].any():
            chosen.append(index)
    return chosen


def _apart(textures: FloatArray) -> NDArray[np.float64]:
    """Distance of each row to the nearest other row, above 0."""
    distances = cdist(textures, textures)
    np.fill_diagonal(distances, np.inf)
    return np.asarray(np.maximum(distances.min(axis=1), np.finfo(np.float32).eps))


def _width(values: NDArray[np.float64], alarm: float) -> NDArray[np.float64]:
    """Distance from the mean that one more normal logarithm exceeds, on one side, with the given probability."""
    n = len(values)
    width = stats.t.ppf(1 - alarm, n - 1) * values.std(axis=0, ddof=1) * sqrt(1 + 1 / n)
    return np.asarray(np.maximum(width, log(1 + LEAST_CHANGE)))


def _told_apart(own: float, *known: float) -> list[str]:
    """Write numbers with two digits, or with as many as the first needs to differ from the others."""
    for digits in range(2, 17):
        told = [f"{value:.{digits}g}" for value in (own, *known)]
        if told[0] not in told[1:]:
            break
    return told


def _outside(
    value: NDArray[np.float64], known: NDArray[np.float64], words: tuple[str, str], what: str
) -> str | None:
    """Name the channel of an image that is farthest outside the limits; None if none is outside."""
    own, others = (np.log(np.maximum(values, DARKEST)) for values in (value, known))
    # mean and standard deviation, each on two sides, of each channel share the probability of a false alarm
    width = _width(others, ALARM_OF_LIGHT / (4 * value.size))
    offset = own - others.mean(axis=0)
    beyond = np.abs(offset) - width
    if not (beyond > 0).any():
        return None
    worst = int(np.argmax(beyond))
    names = _CHANNELS.get(value.size, tuple(f" in channel {k + 1}" for k in range(value.size)))
    own_told, low, high = _told_apart(value[worst], known[:, worst].min(), known[:, worst].max())
    return (
        f"{words[int(offset[worst] > 0)]}{names[worst]} than the training images ({what} {own_told}, "
        f"training {low} to {high})"
    )
