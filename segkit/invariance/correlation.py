"""Inner products of images with circular shifts of other images, for many shifts at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from segkit.kernels.base import FloatArray, Gaussian, Kernel, Laplacian, Polynomial


class ImageMaps(Protocol):
    """A function of two images through inner products of their maps."""

    def left_maps(self, X: ArrayLike, /) -> FloatArray:
        """Map the first argument; (n, H, W) or (n, H, W, C) -> (n, n_maps, H, W)."""
        ...

    def right_maps(self, Y: ArrayLike, /) -> FloatArray:
        """Map the second argument; (m, H, W) or (m, H, W, C) -> (m, n_maps, H, W)."""
        ...

    def of_products(self, products: FloatArray, /) -> FloatArray:
        """Kernel values at inner products of maps, same shape and dtype."""
        ...


@runtime_checkable
class MapKernel(Kernel, ImageMaps, Protocol):
    """A kernel of images, not of rows, that may be a function of inner products of maps."""

    @property
    def has_maps(self) -> bool:
        """Whether, with its parameters, it is one."""
        ...


def map_form(kernel: Kernel) -> ImageMaps | None:
    """Write a kernel as a function of inner products of maps of images."""
    if isinstance(kernel, MapKernel):
        return kernel if kernel.has_maps else None
    if isinstance(kernel, Polynomial):
        return _PolynomialMaps(kernel)
    if isinstance(kernel, Gaussian | Laplacian):
        return _RadialMaps(kernel)
    return None


class CircularCorrelation:
    """Inner products of images with circular shifts of other images."""

    def __init__(
        self, shape: tuple[int, int], rows: NDArray[np.intp], cols: NDArray[np.intp], dtype: Any
    ) -> None:
        height, width = shape
        half = width // 2 + 1
        # Column frequencies v and -v give conjugate terms: twice the real part, but for v = 0 and width / 2.
        weights = np.where((2 * np.arange(half)) % width == 0, 1, 2) / (height * width)
        over_rows = np.exp(2j * np.pi * np.outer(rows, np.arange(height)) / height)
        over_cols = np.exp(2j * np.pi * np.outer(cols, np.arange(half)) / width) * weights
        real_and_imaginary = np.stack(
            [np.hstack([over_rows.real, -over_rows.imag]), np.hstack([over_rows.imag, over_rows.real])],
            axis=1,
        )
        self._over_rows = real_and_imaginary.reshape(2 * len(rows), 2 * height).astype(dtype)
        self._over_cols = np.hstack([over_cols.real, -over_cols.imag]).astype(dtype)

    def left_spectra(self, maps: FloatArray) -> FloatArray:
        """Spectra of first arguments; (n, n_maps, H, W) -> (n_frequencies, n, 2 n_maps)."""
        spectra = self._spectra(maps)
        return np.concatenate([spectra.real, spectra.imag], axis=2)

    def right_spectra(self, maps: FloatArray) -> FloatArray:
        """Spectra of second arguments; (m, n_maps, H, W) -> (2, n_frequencies, 2 n_maps, m)."""
        spectra = np.ascontiguousarray(self._spectra(maps).transpose(0, 2, 1))
        for_real = np.concatenate([spectra.real, spectra.imag], axis=1)
        for_imaginary = np.concatenate([-spectra.imag, spectra.real], axis=1)
        return np.stack([for_real, for_imaginary])

    def products(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Inner products, summed over maps."""
        n, m = left.shape[1], right.shape[3]
        spectra = np.matmul(left, right).reshape(self._over_rows.shape[1], -1)
        over_rows = (self._over_rows @ spectra).reshape(-1, self._over_cols.shape[1], n * m)
        products: FloatArray = np.matmul(self._over_cols, over_rows).reshape(-1, n, m)
        return products

    def _spectra(self, maps: FloatArray) -> NDArray[np.complexfloating[Any, Any]]:
        """Half spectra; (n, n_maps, H, W) -> (n_frequencies, n, n_maps)."""
        spectra = fft.rfft2(maps.astype(self._over_rows.dtype, copy=False))
        # Matrix products of arrays in another order of memory are ten times slower.
        return np.ascontiguousarray(np.moveaxis(spectra.reshape(*maps.shape[:2], -1), 2, 0))


@dataclass(frozen=True)
class _PolynomialMaps:
    """A polynomial kernel of images: the maps are the colours."""

    kernel: Polynomial

    def left_maps(self, X: ArrayLike) -> FloatArray:
        return _colours_first(X)

    right_maps = left_maps

    def of_products(self, products: FloatArray) -> FloatArray:
        return self.kernel.of_products(products)


@dataclass(frozen=True)
class _RadialMaps:
    """A kernel of the distance of images: two constant maps take half the squared norms off <x, y>."""

    kernel: Gaussian | Laplacian

    def left_maps(self, X: ArrayLike) -> FloatArray:
        images, norms, ones = self._with_constants(X)
        return np.concatenate([images, norms, ones], axis=1)

    def right_maps(self, Y: ArrayLike) -> FloatArray:
        images, norms, ones = self._with_constants(Y)
        return np.concatenate([images, ones, norms], axis=1)

    def of_products(self, products: FloatArray) -> FloatArray:
        return self.kernel.of_squared_distances(np.maximum(-2 * products, 0))

    @staticmethod
    def _with_constants(X: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        images = _colours_first(X).astype(np.float64)
        ones = np.ones_like(images[:, :1])
        mean_squares = np.square(images).mean(axis=(2, 3), keepdims=True).sum(axis=1, keepdims=True)
        return images, -mean_squares / 2 * ones, ones


def _colours_first(X: ArrayLike) -> FloatArray:
    """Images as maps; (n, H, W) or (n, H, W, C) -> (n, C, H, W)."""
    images = np.asarray(X)
    return np.moveaxis(images.reshape(*images.shape[:3], -1), -1, 1)
