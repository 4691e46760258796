"""Lines and edges of any direction: the strongest responses of elongated filters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from segkit._common import FloatArray, is_whole
from segkit._threads import in_threads
from segkit.errors import ConfigError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image
from segkit.features.tiles import Tile, whole

_MEASURES = ("bright line", "dark line", "edge", "line spread")
# Standard deviations after which a Gaussian has ended.
_REACH = 4


class ElongatedBank(FilterBank):
    r"""Strongest responses, over directions, of line and edge filters longer than wide (maximum response filters).

    Parameters
    ----------
    sigmas : sequence of float, default=(1.0, 2.0, 4.0)
        Standard deviations across the filters, in pixels, > 0.
    elongation : float, default=3.0
        How many times longer the filters are than wide, 1 or more.
    n_angles : int, default=8
        Number of directions, equispaced over half a turn, 2 or more. An even number makes the maps turn with
        the image under quarter turns and reflections.
    channel_mode : {"mean", "each"}, default="mean"
        Filter the mean of the image channels, or each channel by itself.

    Notes
    -----
    With the Gaussian G of the standard deviations :math:`\sigma` across and ``elongation`` times as much along the
    direction :math:`\theta`, and v the coordinate across, the responses of image I are
    :math:`L_\theta = \sigma^2 \partial_v^2 G_\theta \star I` and
    :math:`E_\theta = \sigma \partial_v G_\theta \star I`. The channels are, of each :math:`\sigma`,

    - bright line, :math:`\max_\theta -L_\theta`,
    - dark line, :math:`\max_\theta L_\theta`,
    - edge, :math:`\max_\theta |E_\theta|`,
    - line spread, the standard deviation of :math:`L_\theta` over directions: little where nothing has one.

    Along a vessel, a membrane or the outline of a cell such a filter averages the noise that round filters, as
    those of `MultiscaleBank`, see in full. The image goes on beyond its edges as in a mirror. The filters are built
    in the Fourier domain and have no sharp end: `halo` leaves out what lies beyond four standard deviations, so (of
    standard deviations of 1 and more; finer ones ring) a feature of a tile may differ by some hundredths of its
    standard deviation from that of the whole image.

    References
    ----------
    M. Varma, A. Zisserman, A statistical approach to texture classification from single images, International Journal
    of Computer Vision 62, 2005, section 2 (the MR8 filter bank; it takes one polarity of lines, six directions, and two
    round filters besides).

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
        sigmas: Sequence[float] = (1.0, 2.0, 4.0),
        elongation: float = 3.0,
        n_angles: int = 8,
        channel_mode: Literal["mean", "each"] = "mean",
    ) -> None:
        self.sigmas = sigmas
        self.elongation = elongation
        self.n_angles = n_angles
        self.channel_mode = channel_mode

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """Channels by image channel, standard deviation and measure, in that order."""
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
        """Reach of the longest filter."""
        self._check()
        return math.ceil(_REACH * self.elongation * max(self.sigmas))

    def tiles(self, shape: tuple[int, ...]) -> list[Tile]:
        """Cut an image into tiles, unless a filter is so fine that it rings far; see `FilterBank.tiles`."""
        self._check()
        return [whole(shape)] if min(self.sigmas) < 1 else super().tiles(shape)

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        wanted = self._wanted(channels, image.shape[2])
        planes = image if self.channel_mode == "each" else image.mean(axis=2, keepdims=True)
        filtered = wanted // len(_MEASURES)
        spectra = {
            plane: _Spectrum(planes[:, :, plane], self.halo)
            for plane in np.unique(filtered // len(self.sigmas))
        }

        def measure(number: int) -> FeatureMaps:
            """Compute what is wanted of one image channel at one standard deviation."""
            plane, scale = divmod(number, len(self.sigmas))
            kept = wanted[filtered == number]
            measures = [_MEASURES[index] for index in kept % len(_MEASURES)]
            found = self._measure(spectra[plane], self.sigmas[scale], measures)
            return FeatureMaps(np.stack([found[name] for name in measures]), kept)

        return list(in_threads(measure, np.unique(filtered)))

    def _measure(self, spectrum: _Spectrum, sigma: float, measures: Sequence[str]) -> dict[str, FloatArray]:
        """Measure one image channel at one standard deviation: at least what is wanted, each (H, W)."""
        found: dict[str, FloatArray] = {}

        def keep_largest(name: str, response: FloatArray) -> None:
            found[name] = np.maximum(found[name], response) if name in found else response

        lines = any(name != "edge" for name in measures)
        total, squares = np.zeros((2, *spectrum.shape), dtype=np.float32)
        for across, along in spectrum.frequencies(self.n_angles):
            gaussian = np.exp(-0.5 * sigma**2 * (across**2 + (self.elongation * along) ** 2))
            if "edge" in measures:
                keep_largest("edge", np.abs(spectrum.respond(1j * sigma * across * gaussian)))
            if lines:
                line = spectrum.respond(-((sigma * across) ** 2) * gaussian)
                keep_largest("bright line", -line)
                keep_largest("dark line", line)
                total += line
                squares += line**2
        variance = squares / self.n_angles - (total / self.n_angles) ** 2
        found["line spread"] = np.sqrt(np.maximum(variance, 0))
        return found

    def _check(self) -> None:
        if (
            not np.ndim(self.sigmas) == 1
            or not len(self.sigmas)
            or not all(0 < sigma < math.inf for sigma in self.sigmas)
        ):
            raise ConfigError(f"sigmas={self.sigmas!r}: give standard deviations above 0, in pixels")
        if not 1 <= self.elongation < math.inf:
            raise ConfigError(f"elongation={self.elongation!r}: give a number of 1 or more")
        if not is_whole(self.n_angles, least=2):
            raise ConfigError(f"n_angles={self.n_angles!r}: give a number of directions, 2 or more")
        if self.channel_mode not in ("mean", "each"):
            raise ConfigError(f"channel_mode={self.channel_mode!r}: choose mean or each")


class _Spectrum:
    """Fourier transform of a plane, mirrored so far beyond its edges that what is filtered with it sees no end."""

    def __init__(self, plane: FloatArray, margin: int) -> None:
        self.shape = plane.shape
        self.size = tuple(_fast_length(length, margin) for length in plane.shape)
        beyond = [(size - length) // 2 for size, length in zip(self.size, plane.shape, strict=True)]
        self.inside = tuple(
            slice(width, width + length) for width, length in zip(beyond, plane.shape, strict=True)
        )
        self.values = fft.rfft2(np.pad(plane, [(width, width) for width in beyond], mode="symmetric"))
        # The sign of the highest frequency of an even length is open: it would not turn with the image.
        for axis, length in enumerate(self.size):
            if length % 2 == 0:
                np.moveaxis(self.values, axis, 0)[length // 2] = 0

    def frequencies(self, n_angles: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Frequencies across and along each of the directions, in radians per pixel."""
        rows = 2 * np.pi * fft.fftfreq(self.size[0]).astype(np.float32)[:, None]
        cols = 2 * np.pi * fft.rfftfreq(self.size[1]).astype(np.float32)
        for angle in np.pi * np.arange(n_angles) / n_angles:
            cosine, sine = np.float32(math.cos(angle)), np.float32(math.sin(angle))
            yield cosine * cols - sine * rows, sine * cols + cosine * rows

    def respond(self, transfer: NDArray[Any]) -> FloatArray:
        """Filter the plane by a transfer function; (H, W)."""
        response: FloatArray = fft.irfft2(
            self.values * transfer.astype(np.result_type(transfer, np.float32)), self.size
        )[self.inside]
        return response


def _fast_length(length: int, margin: int) -> int:
    """Length that is fast to transform, with as much on either side of `length` as `margin` or more."""
    size = int(fft.next_fast_len(length + 2 * margin, real=True))
    while (size - length) % 2:
        size = int(fft.next_fast_len(size + 1, real=True))
    return size
