"""Inner products of images with circular shifts of other images, for many shifts at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from segkit.kernels.base import FloatArray, Gaussian, Kernel, Laplacian, Polynomial


class ImageMaps(Protocol):
    """A function of two images through inner products of their maps.

    ``k(x, y) = of_products(sum_c <left_c(x), right_c(y)>)``, where the right maps of a circularly
    shifted image are the shifted right maps, and `of_products` increases, or first decreases and
    then increases, so that the largest of many values is that of an extreme product.
    """

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
    """Write a kernel as a function of inner products of maps of images.

    Parameters
    ----------
    kernel : Kernel
        `Polynomial`, `Gaussian`, `Laplacian`, whose maps are the colours, or a `MapKernel`.

    Returns
    -------
    ImageMaps or None
        The same function of images, or None if it has no such form.
    """
    if isinstance(kernel, MapKernel):
        return kernel if kernel.has_maps else None
    if isinstance(kernel, Polynomial):
        return _PolynomialMaps(kernel)
    if isinstance(kernel, Gaussian | Laplacian):
        return _RadialMaps(kernel)
    return None


class CircularCorrelation:
    """Inner products of images with circular shifts of other images.

    Parameters
    ----------
    shape : (int, int)
        Height and width of the images, in pixels.
    rows, cols : ndarray of int
        Shifts of the second image, downwards and to the right; all pairs of them are taken.
    dtype : dtype
        float32 or float64, in which everything is computed.

    Notes
    -----
    With F the discrete Fourier transform and W its pixels' number,

        sum_p x[p] y[p - s] = 1/W sum_w F(x)[w] conj(F(y)[w]) exp(2 pi i <w, s>).

    The inverse transform is two real matrix products, along rows and along columns, for the wanted
    shifts only; the half spectrum of a real image suffices. On windows of shifts, and on all shifts
    of images of up to some 40 pixels a side, this is faster than an inverse FFT; on all shifts of
    larger images it is slower, threefold at 128 pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance.correlation import CircularCorrelation
    >>> x, y = np.array([[[[1.0, 2.0, 3.0]]]]), np.array([[[[0.0, 0.0, 1.0]]]])
    >>> correlation = CircularCorrelation((1, 3), np.arange(1), np.arange(3), x.dtype)
    >>> correlation.products(correlation.left_spectra(x), correlation.right_spectra(y)).round(6).ravel()
    array([3., 1., 2.])
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
        """Inner products, summed over maps.

        Parameters
        ----------
        left : ndarray of shape (n_frequencies, n, 2 n_maps)
            Result of `left_spectra`, or some of its samples.
        right : ndarray of shape (2, n_frequencies, 2 n_maps, m)
            Result of `right_spectra`, or some of its samples.

        Returns
        -------
        ndarray of shape (n_shifts, n, m)
            The shift along columns changes fastest.
        """
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
    """A kernel of the distance of images: two constant maps take half the squared norms off <x, y>.

    Maps are float64, since a small distance is the difference of large products.
    """

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
