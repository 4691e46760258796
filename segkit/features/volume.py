"""Filters of a volume, at one of its planes: intensity, edges, blobs and curvature in three dimensions."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy import ndimage

from segkit._common import FloatArray
from segkit.errors import InputError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image, measures_of
from segkit.features.multiscale import channels_of, doublings, two_pixels_wide
from segkit.features.options import ODD

_MEASURES = ("intensity", "edges", "blobs", "curvature 1", "curvature 2", "curvature 3")


class VolumeBank(FilterBank):
    """Intensity, gradient, Laplacian and Hessian eigenvalues at several blurs, all of them in three dimensions.

    An image holds the channels of a plane and of those around it, as `segkit.images.Reading` with context gives them. Each
    channel of the volume is filtered separately. The blurs are ``sigma_min`` and its doublings up to ``sigma_max``.

    Parameters
    ----------
    n_planes : int, default=1
        Number of planes whose channels an image holds, odd: those below, the plane itself, those above.
    z_spacing : float, default=1.0
        Distance between planes in units of the width of a pixel, > 0.
    sigma_min : float, default=1.0
        Standard deviation of the smallest blur in pixels, the same in all three directions, > 0.
    sigma_max : float, default=8.0
        Upper bound of the largest blur, in pixels.

    Notes
    -----
    The Gaussian and its derivatives are products over directions. So the planes are summed with the weights of depth, and
    the sum is filtered within the plane. Weights of depth are those of the Gaussian at the planes that are there, scaled so
    that constant, linear and quadratic courses have their true derivatives. With ``3 sigma_max / z_spacing`` planes or
    more on either side they are those of the whole Gaussian; with fewer, large blurs see less depth.

    Examples
    --------
    >>> from segkit.features import VolumeBank
    >>> bank = VolumeBank(n_planes=5, sigma_max=2)
    >>> [channel.name for channel in bank.channels(5)][:3]
    ['sigma=1 3-D intensity', 'sigma=1 3-D edges', 'sigma=1 3-D blobs']
    """

    def __init__(
        self,
        *,
        n_planes: Annotated[int, Field(gt=0), ODD] = 1,
        z_spacing: Annotated[float, Field(gt=0)] = 1.0,
        sigma_min: Annotated[float, Field(ge=0.1, le=256)] = 1.0,
        sigma_max: Annotated[float, Field(gt=0, le=256)] = 8.0,
    ) -> None:
        self.n_planes = n_planes
        self.z_spacing = z_spacing
        self.sigma_min = sigma_min
        self.sigma_max = sigma_max

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels by channel of the volume, blur and measure, in that order."""
        self._check()
        n_channels, rest = divmod(n_image_channels, self.n_planes)
        if rest:
            raise InputError(
                f"images of {n_image_channels} channels, expected those of {self.n_planes} planes: read stacks with "
                f"data.context={self.n_planes // 2}"
            )
        return channels_of(n_channels, self._sigmas(), _MEASURES, " 3-D")

    def n_channels(self, n_image_channels: int = 3) -> int:
        """Count the channels, without naming them."""
        self._check()
        n_channels = math.ceil(n_image_channels / self.n_planes)
        return n_channels * len(self._sigmas()) * len(_MEASURES)

    @property
    def halo(self) -> int:
        """Radius of the largest blur within the plane, and two pixels for the differences."""
        return math.ceil(4 * self._sigmas()[-1] + 0.5) + 2

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        self.channels(image.shape[2])  # for its check of the planes
        wanted = self._wanted(channels, image.shape[2])
        sigmas = self._sigmas()
        height, width = image.shape[:2]
        padded = two_pixels_wide(image)
        volume = padded.reshape(*padded.shape[:2], self.n_planes, -1)

        def measure(blurred: int, measures: NDArray[np.intp]) -> FloatArray:
            view, scale = divmod(blurred, len(sigmas))
            found = self._measure(volume[:, :, :, view], sigmas[scale], measures.tolist())
            return np.ascontiguousarray(found[:, :height, :width])

        return measures_of(wanted, len(_MEASURES), measure)

    def _measure(self, volume: FloatArray, sigma: float, measures: list[int]) -> FloatArray:
        """Compute measures of a volume (H, W, n_planes) at its middle plane; (n_measures, H, W)."""
        smoothed, first, second = (
            ndimage.gaussian_filter(volume @ weights, sigma, mode="nearest")
            for weights in depth_weights(self.n_planes, self.z_spacing, sigma)
        )
        found: dict[int, FloatArray] = {0: smoothed}
        if any(measures):
            along_y, along_x = np.gradient(smoothed)
            found[1] = np.sqrt(along_y**2 + along_x**2 + first**2)
            (yy, yx), (_, xx) = np.gradient(along_y), np.gradient(along_x)
            found[2] = yy + xx + second
        if any(measure > 2 for measure in measures):
            zy, zx = np.gradient(first)
            hessian = np.stack([[yy, yx, zy], [yx, xx, zx], [zy, zx, second]])
            rising = np.linalg.eigvalsh(np.moveaxis(hessian, (0, 1), (-2, -1)))
            found |= {3 + order: rising[:, :, 2 - order] for order in range(3)}
        return np.stack([found[measure] for measure in measures]).astype(np.float32, copy=False)

    def _sigmas(self) -> tuple[float, ...]:
        self._check()
        return doublings(self.sigma_min, self.sigma_max)


def depth_weights(n_planes: int, spacing: float, sigma: float) -> list[FloatArray]:
    """Compute the weights (n_planes,) that smooth planes over depth, and those of the first and second derivative.

    A derivative that the planes do not show is 0.
    """
    depth = spacing * (np.arange(n_planes) - n_planes // 2)
    smooth = np.exp(-0.5 * (depth / sigma) ** 2)
    smooth /= smooth.sum()
    variance = (smooth * depth**2).sum()
    slope, curve = smooth * depth, smooth * (depth**2 - variance)
    scales = (slope * depth).sum(), (curve * depth**2).sum() / 2
    first, second = (
        part / scale if scale > np.finfo(np.float64).tiny else np.zeros(n_planes)
        for part, scale in zip((slope, curve), scales, strict=True)
    )
    return [weights.astype(np.float32) for weights in (smooth, first, second)]
