"""The filters of ilastik and similar tools as a bank: intensity, edges and texture at several blurs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from segkit._common import FloatArray
from segkit.errors import ConfigError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image, measures_of

_MEASURES = ("intensity", "edges", "texture 1", "texture 2")
# Rows whose derivatives stay in the processor's cache.
_ROWS_AT_ONCE = 128
# Rows that a narrow filter computes in one product.
_LEAST_BLOCK = 32


class MultiscaleBank(FilterBank):
    """Intensity, gradient and Hessian eigenvalues at several blurs (scikit-image's basic features, to rounding).

    Each image channel is filtered separately. The blurs are ``sigma_min`` and its doublings up to ``sigma_max``.

    Parameters
    ----------
    sigma_min : float, default=1.0
        Standard deviation of the smallest blur, in pixels, > 0.
    sigma_max : float, default=16.0
        Upper bound of the largest blur, in pixels.

    References
    ----------
    S. Berg et al., ilastik: interactive machine learning for (bio)image analysis, Nature Methods 16, 2019.

    Examples
    --------
    >>> from segkit.features import MultiscaleBank
    >>> bank = MultiscaleBank(sigma_max=2)
    >>> [channel.name for channel in bank.channels(1)][:3]
    ['sigma=1 intensity', 'sigma=1 edges', 'sigma=1 texture 1']
    """

    def __init__(
        self,
        *,
        sigma_min: Annotated[float, Field(ge=0.1, le=256)] = 1.0,
        sigma_max: Annotated[float, Field(gt=0, le=256)] = 16.0,
    ) -> None:
        self.sigma_min = sigma_min
        self.sigma_max = sigma_max

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels by image channel, blur and measure, in that order."""
        return channels_of(n_image_channels, self._sigmas(), _MEASURES, "")

    @property
    def halo(self) -> int:
        """Radius of the largest blur, and two pixels for the differences of the blurred image."""
        return math.ceil(4 * self._sigmas()[-1] + 0.5) + 2

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        wanted = self._wanted(channels, image.shape[2])
        sigmas = self._sigmas()
        height, width = image.shape[:2]
        padded = two_pixels_wide(image)
        # Less a typical value: the second derivatives of wide blurs are tiny beside what is left out here.
        levels = padded.mean(axis=(0, 1))

        def measure(blurred: int, measures: NDArray[np.intp]) -> FloatArray:
            view, scale = divmod(blurred, len(sigmas))
            plane = _blur(padded[:, :, view] - levels[view], sigmas[scale])
            values = np.empty((measures.size, height, width), dtype=np.float32)
            for start in range(0, height, _ROWS_AT_ONCE):
                rows = slice(start, min(start + _ROWS_AT_ONCE, height))
                _measure(plane, rows, levels[view], measures, values[:, rows])
            return values

        return measures_of(wanted, len(_MEASURES), measure)

    def _sigmas(self) -> tuple[float, ...]:
        self._check()
        return doublings(self.sigma_min, self.sigma_max)


def doublings(sigma_min: float, sigma_max: float) -> tuple[float, ...]:
    """List a standard deviation and its doublings up to a bound."""
    if not 0 < sigma_min <= sigma_max < math.inf:
        raise ConfigError(f"sigma_min={sigma_min}, sigma_max={sigma_max}: give 0 < sigma_min <= sigma_max")
    n = int(math.log2(sigma_max / sigma_min) + 1e-9)
    return tuple(sigma_min * 2.0**k for k in range(n + 1))


def channels_of(
    n_planes: int, sigmas: Sequence[float], measures: Sequence[str], suffix: str
) -> tuple[Channel, ...]:
    """Name the channels of blurred planes by plane, blur and measure, in that order."""
    return tuple(
        Channel(f"{prefix}sigma={sigma:g}{suffix} {measure}", f"sigma={sigma:g}{suffix}")
        for prefix in (f"c{index} " if n_planes > 1 else "" for index in range(n_planes))
        for sigma in sigmas
        for measure in measures
    )


def two_pixels_wide(image: FloatArray) -> FloatArray:
    """Repeat the only row or column of a line image: differences need two pixels."""
    height, width = image.shape[:2]
    return np.pad(image, ((0, max(0, 2 - height)), (0, max(0, 2 - width)), (0, 0)), mode="edge")


def _blur(plane: FloatArray, sigma: float) -> FloatArray:
    """Filter a plane by a Gaussian, cut at four standard deviations; the outermost pixels go on beyond the edges."""
    radius = int(4 * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    # Products with a band matrix, block by block: this is several times faster than a convolution.
    length = max(_LEAST_BLOCK, 2 * radius)
    band = np.zeros((length, length + 2 * radius), dtype=np.float32)
    for offset, weight in enumerate(weights / weights.sum()):
        np.fill_diagonal(band[:, offset:], weight)
    for _ in range(2):
        # Filters the columns and turns the plane, twice.
        padded = np.pad(plane, ((radius, radius), (0, 0)), mode="edge")
        filtered = np.empty_like(plane)
        for start in range(0, len(plane), length):
            own = band[: len(plane) - start]
            own = own[:, : len(own) + 2 * radius]
            np.matmul(own, padded[start : start + own.shape[1]], out=filtered[start : start + length])
        plane = np.ascontiguousarray(filtered.T)
    return plane


def _measure(
    plane: FloatArray, rows: slice, level: float, measures: NDArray[np.intp], out: FloatArray
) -> None:
    """Compute measures of some rows of a blurred plane, less its level, as scikit-image does."""
    # Second differences reach two rows further.
    first = max(0, rows.start - 2)
    near = plane[first : rows.stop + 2]
    inner = (slice(rows.start - first, rows.stop - first), slice(out.shape[2]))
    half, found = np.float32(0.5), {}
    if 0 in measures:
        found[0] = near + level
    if measures.max() > 0:
        down, across = (_difference(near, axis) for axis in (0, 1))
    if 1 in measures:
        # numpy.hypot is ten times slower, and there is nothing to overflow.
        found[1] = np.sqrt((np.square(_sobel(down, 0)) + np.square(_sobel(across, 1))) * half)
    if measures.max() > 1:
        twice_down, twice_across = _difference(down, 0), _difference(across, 1)
        mean, spread = (twice_down + twice_across) * half, (twice_down - twice_across) * half
        root = np.sqrt(np.square(_difference(down, 1)) + np.square(spread))
        found[2], found[3] = mean + root, mean - root
    for values, measure in zip(out, measures, strict=True):
        values[:] = found[measure][inner]


def _difference(values: FloatArray, axis: int) -> FloatArray:
    """Halve the differences of the neighbours along an axis, one-sided at the edges, as `numpy.gradient`."""
    result = np.empty_like(values)
    source, target = np.moveaxis(values, axis, 0), np.moveaxis(result, axis, 0)
    np.subtract(source[2:], source[:-2], out=target[1:-1])
    target[1:-1] *= np.float32(0.5)
    target[0], target[-1] = source[1] - source[0], source[-1] - source[-2]
    return result


def _sobel(difference: FloatArray, axis: int) -> FloatArray:
    """Compute the Sobel filter of an image, mirrored at its edges, from its halved differences along an axis."""
    result = np.empty_like(difference)
    along, source = np.moveaxis(result, 1 - axis, 0), np.moveaxis(difference, 1 - axis, 0)
    np.add(source[2:], source[:-2], out=along[1:-1])
    along[0], along[-1] = source[0] + source[1], source[-1] + source[-2]
    result *= np.float32(0.5)
    result += difference
    ends = np.moveaxis(result, axis, 0)
    # There the one-sided difference counts twice.
    ends[0] *= np.float32(0.5)
    ends[-1] *= np.float32(0.5)
    return result
