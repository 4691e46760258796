"""The filters of ilastik and similar tools as a bank: intensity, edges and texture at several blurs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.feature import multiscale_basic_features

from segkit._threads import in_threads
from segkit.errors import ConfigError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image

_MEASURES = ("intensity", "edges", "texture 1", "texture 2")


class MultiscaleBank(FilterBank):
    """Intensity, gradient and Hessian eigenvalues at several blurs (scikit-image's basic features).

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

    def __init__(self, *, sigma_min: float = 1.0, sigma_max: float = 16.0) -> None:
        self.sigma_min = sigma_min
        self.sigma_max = sigma_max

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels by image channel, blur and measure, in that order."""
        prefixes = [f"c{index} " if n_image_channels > 1 else "" for index in range(n_image_channels)]
        return tuple(
            Channel(f"{prefix}sigma={sigma:g} {measure}", f"sigma={sigma:g}")
            for prefix in prefixes
            for sigma in self._sigmas()
            for measure in _MEASURES
        )

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
        # Differences need two pixels: repeat the only row or column of a line image.
        padded = np.pad(image, ((0, max(0, 2 - height)), (0, max(0, 2 - width)), (0, 0)), mode="edge")

        def measure(blurred: int) -> FeatureMaps:
            """Compute the wanted measures of one image channel at one blur."""
            view, scale = divmod(blurred, len(sigmas))
            kept = wanted[wanted // len(_MEASURES) == blurred]
            measures = kept % len(_MEASURES)
            computed = {"intensity": 0 in measures, "edges": 1 in measures, "texture": measures.max() >= 2}
            maps = multiscale_basic_features(  # type: ignore[no-untyped-call]
                padded[:, :, view],
                **computed,
                sigma_min=sigmas[scale],
                sigma_max=sigmas[scale],
                num_sigma=1,
                workers=1,
            )
            # scikit-image leaves no gap for measures that were not computed: count the computed ones before each.
            places = np.cumsum([0, computed["intensity"], computed["edges"], 1])[measures]
            inside = maps[:height, :width, places]
            values = np.ascontiguousarray(inside.transpose(2, 0, 1), dtype=np.float32)
            return FeatureMaps(values, kept)

        return list(in_threads(measure, np.unique(wanted // len(_MEASURES))))

    def _sigmas(self) -> tuple[float, ...]:
        if not 0 < self.sigma_min <= self.sigma_max < math.inf:
            raise ConfigError(
                f"sigma_min={self.sigma_min}, sigma_max={self.sigma_max}: give 0 < sigma_min <= sigma_max"
            )
        doublings = int(math.log2(self.sigma_max / self.sigma_min) + 1e-9)
        return tuple(self.sigma_min * 2.0**k for k in range(doublings + 1))
