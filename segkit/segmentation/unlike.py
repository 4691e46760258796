"""Differences of an image from the training images: light, of the whole and of its halves, size, and texture.

Light is told by mean and standard deviation of each channel. An image of which a part is inverted has usual ones, so each
half is looked at too: upper and lower, left and right. The skewness of its values changes sign where dark and bright change
places, and the means of two halves differ.

Texture is described by the kept channels at the pixels of a coarse grid. The distance of two textures has two parts: between
the mean embeddings of these pixels under a Gaussian kernel, and between the logarithms of the channels' standard deviations.
The second part is needed because the kernel sees all channels together: it hardly notices that a blurred image has lost the
few channels of fine detail. Usual distances are learnt from the training images, each compared with the others. Copies of an
image count once: the distance between them says nothing of other images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import exp, log, sqrt
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import cdist, pdist

from segkit._common import FloatArray

Arrays = dict[str, NDArray[Any]]
# With fewer training images, the usual differences between images are unknown.
FEWEST_IMAGES = 3
# Probability of a false alarm by texture, and by light, if the values are normal. It is higher for texture, which finds more
# of the unlike images. Both were chosen on splits 100 to 102 of the four development sets.
ALARM_OF_TEXTURE, ALARM_OF_LIGHT = 0.01, 0.005
N_FREQUENCIES = 256
# Number of pixels from which the bandwidth is computed.
PIXELS_FOR_BANDWIDTH = 1000
# Brightness and contrast are compared by their logarithms; lower values are raised to this one.
DARKEST = 1e-4
# Pixels of a half that its skewness is computed from, about.
PIXELS_OF_HALF = 2**18
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


def _logarithm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(np.maximum(values, DARKEST)))


class _Measure(NamedTuple):
    """What is compared of the light of an image: its name, and the words for values below and above those known."""

    name: str
    low: str
    high: str
    least_change: float
    transform: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.asarray


_MEASURES = (
    _Measure("mean", "darker", "brighter", log(1 + LEAST_CHANGE), _logarithm),
    _Measure(
        "standard deviation", "lower in contrast", "higher in contrast", log(1 + LEAST_CHANGE), _logarithm
    ),
    _Measure("lowest skewness", "one half with more dark parts", "", LEAST_CHANGE),
    _Measure("highest skewness", "", "one half with more bright parts", LEAST_CHANGE),
    _Measure("difference", "", "halves more different in brightness", LEAST_CHANGE / 5),
)
_N_SIDES = sum(bool(words) for measure in _MEASURES for words in (measure.low, measure.high))


@dataclass(frozen=True, eq=False)
class KnownImages:
    """Light, size and texture of the different training images, to compare others with."""

    # what `_MEASURES` names of each channel, (n_images, n_measures, n_image_channels); height and width
    light: NDArray[np.float64]
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
        light = np.array([_light(image) for image in images])
        shapes = np.array([image.shape[:2] for image in images], dtype=np.float64)
        parts = np.split(textures, [2 * N_FREQUENCIES], axis=1)
        scales = np.array(
            [
                np.exp(np.log(np.maximum(_apart(part), noise)).mean())
                for part, noise in zip(parts, least, strict=True)
            ]
        )
        return cls(light, shapes, frequencies, textures, scales)

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
        notes = [
            _outside(own, self.light[:, place], measure)
            for place, (own, measure) in enumerate(zip(_light(image), _MEASURES, strict=True))
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
            f"others. A new image beyond {self.farthest:.2g} gets a warning, and so do brightness, contrast, halves and "
            f"size that are far from those of the {len(self.light)} different training images."
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
        n_images, n_frequencies = len(self.light), self.frequencies.shape[1]
        return {
            "light": (n_images, len(_MEASURES), n_image_channels),
            "shapes": (n_images, 2),
            "frequencies": (n_kept, n_frequencies),
            "textures": (n_images, 2 * n_frequencies + n_kept),
            "scales": (2,),
        }


def _light(image: FloatArray) -> NDArray[np.float64]:
    """Return what `_MEASURES` names of each channel, (n_measures, n_image_channels)."""
    # sums over short rows of channels would take far longer
    channels = np.ascontiguousarray(image.transpose(2, 0, 1))
    halves = [half for axis in (1, 2) for half in np.array_split(channels, 2, axis=axis) if half.size]
    means = np.array([half.mean(axis=(1, 2), dtype=np.float64) for half in halves])
    skewness = np.array([_skewness(half) for half in halves])
    level, spread = channels.mean(axis=(1, 2), dtype=np.float64), channels.std(axis=(1, 2), dtype=np.float64)
    return np.array([level, spread, skewness.min(axis=0), skewness.max(axis=0), np.ptp(means, axis=0)])


def _skewness(channels: FloatArray) -> NDArray[np.float64]:
    """Return the skewness of each channel (C, H, W), at every k-th pixel of a large image; 0 of equal values."""
    step = max(1, round(sqrt(channels[0].size / PIXELS_OF_HALF)))
    values = channels[:, ::step, ::step].reshape(len(channels), -1).astype(np.float64)
    values -= values.mean(axis=1, keepdims=True)
    squares = np.square(values)
    deviation = np.sqrt(squares.mean(axis=1))
    cubes = (squares * values).mean(axis=1)  # a power of 3 takes far longer
    return np.asarray(np.divide(cubes, deviation**3, out=np.zeros_like(cubes), where=deviation > DARKEST))


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


def _width(
    values: NDArray[np.float64], alarm: float, least: float = log(1 + LEAST_CHANGE)
) -> NDArray[np.float64]:
    """Distance from the mean that one more normal value exceeds, on one side, with the given probability."""
    n = len(values)
    width = stats.t.ppf(1 - alarm, n - 1) * values.std(axis=0, ddof=1) * sqrt(1 + 1 / n)
    return np.asarray(np.maximum(width, least))


def _told_apart(own: float, *known: float) -> list[str]:
    """Write numbers with two digits, or with as many as the first needs to differ from the others."""
    for digits in range(2, 17):
        told = [f"{value:.{digits}g}" for value in (own, *known)]
        if told[0] not in told[1:]:
            break
    return told


def _outside(value: NDArray[np.float64], known: NDArray[np.float64], measure: _Measure) -> str | None:
    """Name the channel of an image that is farthest outside the limits; None if none is outside."""
    others = measure.transform(known)
    # the measures, each on its sides, of each channel share the probability of a false alarm
    width = _width(others, ALARM_OF_LIGHT / (_N_SIDES * value.size), measure.least_change)
    offset = measure.transform(value) - others.mean(axis=0)
    words = [measure.high if above else measure.low for above in offset > 0]
    beyond = np.where([bool(word) for word in words], np.abs(offset) - width, -1)
    if not (beyond > 0).any():
        return None
    worst = int(np.argmax(beyond))
    names = _CHANNELS.get(value.size, tuple(f" in channel {k + 1}" for k in range(value.size)))
    own_told, low, high = _told_apart(value[worst], known[:, worst].min(), known[:, worst].max())
    return f"{words[worst]}{names[worst]} than the training images ({measure.name} {own_told}, training {low} to {high})"
