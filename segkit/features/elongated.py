"""Lines and edges of any direction: the strongest responses of elongated filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy import fft

from segkit._common import FloatArray
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image, measures_of

_MEASURES = ("bright line", "dark line", "edge", "line spread")
# Ratio of length to width of the filters, and their directions over half a turn: an even number, so that the maps turn with
# the image under quarter turns and reflections.
ELONGATION = 3.0
N_ANGLES = 8
# Standard deviations beyond which a Gaussian is negligible, in space, and to single precision in the Fourier domain.
_REACH = 4
_PASSED = 6.5


class ElongatedBank(FilterBank):
    r"""Strongest responses over directions of elongated line and edge filters (maximum response filters).

    Parameters
    ----------
    sigmas : sequence of float, default=(1.0, 2.0, 4.0)
        Standard deviations across the filters, in pixels, > 0.
    channel_mode : {"mean", "each"}, default="mean"
        Filter the mean of the image channels, or each channel separately.

    Notes
    -----
    Let :math:`G_\theta` be the Gaussian with standard deviation :math:`3 \sigma` along the direction :math:`\theta`, one of
    eight over half a turn, and :math:`\sigma` across it, and v the coordinate across. The responses of image I are
    :math:`L_\theta = \sigma^2 \partial_v^2 G_\theta \star I` and
    :math:`E_\theta = \sigma \partial_v G_\theta \star I`. Each :math:`\sigma` gives four channels:

    - bright line, :math:`\max_\theta -L_\theta`,
    - dark line, :math:`\max_\theta L_\theta`,
    - edge, :math:`\max_\theta |E_\theta|`,
    - line spread, the standard deviation of :math:`L_\theta` over directions, small where the image has no direction.

    Along a vessel, a membrane or the outline of a cell, such a filter averages noise over its length; the round
    filters of `MultiscaleBank` do not. The image is mirrored at its edges. The filters are built in the Fourier
    domain. They decay but never end: `halo` leaves out everything beyond four standard deviations. A feature
    of a tile may therefore differ from that of the whole image by some hundredths of its standard deviation. With
    standard deviations below 1 pixel the filters ring, and images are not cut into tiles.

    References
    ----------
    M. Varma, A. Zisserman, A statistical approach to texture classification from single images, International Journal
    of Computer Vision 62, 2005, section 2 (the MR8 filter bank: one polarity of lines, six directions, and two more
    filters, which are round).

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.features import ElongatedBank
    >>> image = np.zeros((64, 64))
    >>> image[:, 32] = 1
    >>> bank = ElongatedBank(sigmas=[1])
    >>> [channel.name for channel in bank.channels(1)]
    ['sigma=1 bright line', 'sigma=1 dark line', 'sigma=1 edge', 'sigma=1 line spread']
    >>> abs(bank.dense(image)[:2, 32, 32]).round(2)
    array([0.39, 0.  ], dtype=float32)
    """

    def __init__(
        self,
        *,
        sigmas: Annotated[
            Sequence[Annotated[float, Field(gt=0, le=256)]], Field(min_length=1, max_length=20)
        ] = (
            1.0,
            2.0,
            4.0,
        ),
        channel_mode: Literal["mean", "each"] = "mean",
    ) -> None:
        self.sigmas = sigmas
        self.channel_mode = channel_mode

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels by image channel, standard deviation and measure, in that order."""
        self._check()
        several = self.channel_mode == "each" and n_image_channels > 1
        prefixes = [f"c{index} " for index in range(n_image_channels)] if several else [""]
        return tuple(
            Channel(f"{prefix}sigma={sigma:g} {measure}", f"lines sigma={sigma:g}")
            for prefix in prefixes
            for sigma in self.sigmas
            for measure in _MEASURES
        )

    @property
    def halo(self) -> int:
        """Four standard deviations along the longest filter."""
        self._check()
        return math.ceil(_REACH * ELONGATION * max(self.sigmas))

    @property
    def is_local(self) -> bool:
        """Whether no filter is so fine that it rings far beyond the halo."""
        self._check()
        return min(self.sigmas) >= 1

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        wanted = self._wanted(channels, image.shape[2])
        planes = image if self.channel_mode == "each" else image.mean(axis=2, keepdims=True)
        filtered = np.unique(wanted // len(_MEASURES) // len(self.sigmas))
        spectra = {plane: _Spectrum(planes[:, :, plane], self.halo) for plane in filtered}

        def measure(number: int, measures: NDArray[np.intp]) -> FloatArray:
            plane, scale = divmod(number, len(self.sigmas))
            names = [_MEASURES[index] for index in measures]
            found = self._measure(spectra[plane], self.sigmas[scale], names)
            return np.stack([found[name] for name in names])

        return measures_of(wanted, len(_MEASURES), measure)

    def _measure(self, spectrum: _Spectrum, sigma: float, measures: Sequence[str]) -> dict[str, FloatArray]:
        """Compute at least the wanted measures of one image channel at one standard deviation, each (H, W)."""
        lines = any(name != "edge" for name in measures)
        # Running extremes and sums over directions: the maps of all directions would need too much memory.
        edge, total, squares = np.zeros((3, *spectrum.shape), dtype=np.float32)
        lowest, highest = np.full((2, *spectrum.shape), [[[np.inf]], [[-np.inf]]], dtype=np.float32)
        for angle in np.pi * np.arange(N_ANGLES) / N_ANGLES:
            band = _Band(spectrum, angle, sigma)
            along = np.float32(ELONGATION) * band.along
            along *= along
            along += np.square(band.across)
            along *= np.float32(-0.5 * sigma**2)
            gaussian = np.exp(along, out=along)
            gaussian *= np.float32(sigma) * band.across
            if "edge" in measures:
                response = band.respond(gaussian, turned=True)
                np.maximum(edge, np.abs(response, out=response), out=edge)
            if lines:
                gaussian *= np.float32(-sigma) * band.across
                line = band.respond(gaussian)
                np.minimum(lowest, line, out=lowest)
                np.maximum(highest, line, out=highest)
                total += line
                line *= line
                squares += line
        total /= N_ANGLES
        total *= total
        squares /= N_ANGLES
        squares -= total
        spread = np.sqrt(np.maximum(squares, 0, out=squares), out=squares)
        found = {"bright line": np.negative(lowest, out=lowest), "dark line": highest, "edge": edge}
        return found | {"line spread": spread}


class _Spectrum:
    """Fourier transform of an image channel, mirrored at its edges as far as the filters reach."""

    def __init__(self, plane: FloatArray, margin: int) -> None:
        self.shape = plane.shape
        self.size = tuple(_fast_length(length, margin) for length in plane.shape)
        beyond = [(size - length) // 2 for size, length in zip(self.size, plane.shape, strict=True)]
        self.inside = tuple(
            slice(width, width + length) for width, length in zip(beyond, plane.shape, strict=True)
        )
        self.values = fft.rfft2(np.pad(plane, [(width, width) for width in beyond], mode="symmetric"))
        # For even lengths the highest frequency has no sign, so its part of a derivative would not turn with
        # the image: leave it out.
        for axis, length in enumerate(self.size):
            if length % 2 == 0:
                np.moveaxis(self.values, axis, 0)[length // 2] = 0
        self.turned = np.complex64(1j) * self.values


class _Band:
    """The frequencies that a filter of some direction passes."""

    def __init__(self, spectrum: _Spectrum, angle: float, sigma: float) -> None:
        self._spectrum = spectrum
        cosine, sine = math.cos(angle), math.sin(angle)
        # the box around the ellipse beyond which the filter passes next to nothing
        reach = [
            _PASSED / sigma * math.hypot(across, along / ELONGATION)
            for across, along in ((sine, cosine), (cosine, sine))
        ]
        n_rows, n_cols = (
            min(length // 2, math.ceil(width * length / (2 * np.pi))) + 1
            for width, length in zip(reach, spectrum.size, strict=True)
        )
        self._cols = slice(n_cols)
        # rows of positive frequencies come first, those of negative ones last
        self._rows = [slice(n_rows), slice(max(n_rows, spectrum.size[0] - n_rows + 1), spectrum.size[0])]
        rows, cols = (
            2 * np.pi * frequencies.astype(np.float32)
            for frequencies in (fft.fftfreq(spectrum.size[0]), fft.rfftfreq(spectrum.size[1]))
        )
        rows, cols = np.concatenate([rows[own] for own in self._rows])[:, None], cols[self._cols]
        self.across = np.float32(cosine) * cols - np.float32(sine) * rows
        self.along = np.float32(sine) * cols + np.float32(cosine) * rows

    def respond(self, transfer: FloatArray, *, turned: bool = False) -> FloatArray:
        """Filter the image channel by a real transfer function, or by one that is turned by the factor i; returns (H, W)."""
        values = self._spectrum.turned if turned else self._spectrum.values
        n_positive = self._rows[0].stop
        passed = np.zeros((len(values), transfer.shape[1]), dtype=np.complex64)
        for rows, part in zip(self._rows, (transfer[:n_positive], transfer[n_positive:]), strict=True):
            np.multiply(values[rows, self._cols], part, out=passed[rows])
        rows, cols = self._spectrum.inside
        columns = fft.ifft(passed, axis=0, overwrite_x=True)[rows]
        response: FloatArray = fft.irfft(columns, self._spectrum.size[1], axis=1)[:, cols]
        return response


def _fast_length(length: int, margin: int) -> int:
    """Find a length that transforms fast, with equal margins of at least `margin` around `length`."""
    size = int(fft.next_fast_len(length + 2 * margin, real=True))
    while (size - length) % 2:
        size = int(fft.next_fast_len(size + 1, real=True))
    return size
