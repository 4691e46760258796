"""Inner products of images with circular shifts of other images, for many shifts at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from segkit.invariance.local import LocalPolynomialKernel
from segkit.kernels.base import FloatArray, Gaussian, Kernel, Laplacian, Polynomial


class MapForm(NamedTuple):
    """A kernel of images as ``k(x, y) = of_products(sum_c <left_c(x), right_c(y)>)``.

    The right maps of a circularly shifted image are the shifted right maps. `of_products` increases, or first
    decreases and then increases, so that the largest of many values is that of an extreme product.
    """

    left: Callable[[FloatArray], FloatArray]  # (n, H, W) or (n, H, W, C) -> (n, n_maps, H, W)
    right: Callable[[FloatArray], FloatArray]
    of_products: Callable[[FloatArray], FloatArray]


def map_form(kernel: Kernel) -> MapForm | None:
    """Write a kernel as a function of inner products of maps of images; None where it has no such form."""
    if isinstance(kernel, LocalPolynomialKernel):
        return MapForm(kernel.left_maps, kernel.right_maps, kernel.of_products) if kernel.has_maps else None
    if isinstance(kernel, Polynomial):
        return MapForm(_colours_first, _colours_first, kernel.of_products)
    if isinstance(kernel, Gaussian | Laplacian):
        return MapForm(
            partial(_with_norms, order=1),
            partial(_with_norms, order=-1),
            lambda products: kernel.of_squared_distances(np.maximum(-2 * products, 0)),
        )
    return None


class CircularCorrelation:
    """Inner products of images (H, W) with other images shifted by all pairs of `rows` and `cols`.

    With F the discrete Fourier transform and W its pixels' number,

        sum_p x[p] y[p - s] = 1/W sum_w F(x)[w] conj(F(y)[w]) exp(2 pi i <w, s>).

    The inverse transform is two real matrix products, along rows and along columns, for the wanted shifts only; the
    half spectrum of a real image suffices. On windows of shifts, and on all shifts of images of up to some 40 pixels a
    side, this is faster than an inverse FFT; on all shifts of larger images it is slower, threefold at 128 pixels.
    """

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
        """Inner products summed over maps, (n_shifts, n, m); the shift along columns changes fastest."""
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


def _colours_first(images: FloatArray) -> FloatArray:
    """Images as maps; (n, H, W) or (n, H, W, C) -> (n, C, H, W)."""
    return np.moveaxis(images.reshape(*images.shape[:3], -1), -1, 1)


def _with_norms(X: FloatArray, *, order: int) -> FloatArray:
    """Images with two constant maps, which take half the squared norms off <x, y>, in one order or the other."""
    # float64, since a small distance is the difference of large products
    images = _colours_first(X).astype(np.float64)
    ones = np.ones_like(images[:, :1])
    mean_squares = np.square(images).mean(axis=(2, 3), keepdims=True).sum(axis=1, keepdims=True)
    constants = [-mean_squares / 2 * ones, ones][::order]
    return np.concatenate([images, *constants], axis=1)
