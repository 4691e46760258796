"""Kernels made invariant by the best, or the average, fit over a group of transformations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft
from scipy.linalg import eigvalsh
from scipy.linalg.lapack import dpotrf
from sklearn.utils import gen_batches

from segkit._common.threads import count_threads, in_threads, single_threaded_blas
from segkit.errors import ConfigError, InputError
from segkit.invariance.groups import Composition, Group, Identity
from segkit.invariance.local import LocalPolynomialKernel
from segkit.invariance.permutations import Permutation
from segkit.invariance.spatial import Dihedral, Translation
from segkit.kernels.base import (
    FloatArray,
    Gaussian,
    Kernel,
    Laplacian,
    Normalized,
    Polynomial,
    as_pair,
    check_values,
)

Block = tuple[slice, slice, FloatArray]

# Rows of a block of transformed samples, and side of a square block of correlations. A square of one map
# stays in the cache; products over many maps are faster in larger squares.
BLOCK_OF_ROWS = 256
BLOCK_OF_ONE_MAP, BLOCK_OF_MAPS = 16, 32

# Groups that hold the inverse of each element, unlike windows of groups.
WHOLE_GROUPS = (Identity, Dihedral, Permutation)


def best_fit(
    X: ArrayLike,
    Y: ArrayLike | None = None,
    *,
    base: Kernel | None = None,
    group: Group | None = None,
    symmetric: bool = True,
    memory_limit: int = 2**30,
) -> FloatArray:
    """Compute the largest value of a kernel over transformations of its second argument.

    Parameters
    ----------
    X : array-like of shape (n, *shape)
        Samples: images, signals or rows.
    Y : array-like of shape (m, *shape) or None, default=None
        Other samples; None is `X`.
    base : Kernel or None, default=None
        Kernel of rows of values, or a `LocalPolynomialKernel`. None is the paper's
        ``Polynomial(degree=8, gamma=1 / m)`` with m values per sample.
    group : Group or None, default=None
        The transformations, finitely many; None is `Identity`.
    symmetric : bool, default=True
        Whether to take the larger of K(x, y) and K(y, x) where they could differ, because the inverse of a
        transformation is not one of them or interpolates anew. Without it the second argument alone, in a classifier
        the training sample, is transformed.
    memory_limit : int, default=2**30
        Bytes of temporary arrays. The transformed samples and the kernel values are extra.

    Returns
    -------
    ndarray of shape (n, m)
        Kernel values; float32 if `X` is.

    Raises
    ------
    ConfigError
        If `base` is no kernel, `group` no group or has no list of elements, or `memory_limit` is not positive.
    InputError
        If samples differ in shape, hold no value or one that is not real or not finite, the group cannot act on them,
        or kernel values exceed the largest number of their dtype.

    Notes
    -----
    ``K(x, y) = max_T base(x, T y)``. It is invariant, K(S x, y) = K(x, y), to the transformations of a group, not of a
    window of one. It need not be positive definite: see `largest_pd_n`.

    Circular translations, alone or last of a composition, of a base that is a function of inner products or distances
    of images, are one correlation for all shifts; any other group takes one evaluation of the base per transformation.

    References
    ----------
    T. Liu et al. 2022, eq. 1 to 3.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Translation, best_fit
    >>> from segkit.kernels import Polynomial
    >>> images = np.array([[[1.0, 2.0]], [[5.0, 2.0]]])
    >>> best_fit(images, base=Polynomial(degree=1, coef0=0.0), group=Translation()).round(6)
    array([[ 5., 12.],
           [12., 29.]])
    """
    return _fit(_BEST, X, Y, base, group, symmetric=symmetric, memory_limit=memory_limit)


def average_fit(
    X: ArrayLike,
    Y: ArrayLike | None = None,
    *,
    base: Kernel | None = None,
    group: Group | None = None,
    symmetric: bool = True,
    memory_limit: int = 2**30,
) -> FloatArray:
    """Compute the mean value of a kernel over transformations of its second argument (Haar integration).

    Options, result and errors are those of `best_fit`; with `symmetric` it is the mean of K(x, y) and K(y, x) where they
    could differ.

    Notes
    -----
    ``K(x, y) = mean_T base(x, T y)``. Over a whole group that preserves inner products, and with a base that depends on
    those alone, it is positive definite; training with it is training on all transformed copies of the samples. It
    blurs: with a linear base and all translations only the mean brightness of an image is left.

    References
    ----------
    T. Liu et al. 2022, eq. 4.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Translation, average_fit
    >>> from segkit.kernels import Polynomial
    >>> images = np.array([[[1.0, 2.0]], [[5.0, 2.0]]])
    >>> average_fit(images, base=Polynomial(degree=1, coef0=0.0), group=Translation()).round(6)
    array([[ 4.5, 10.5],
           [10.5, 24.5]])
    """
    return _fit(_MEAN, X, Y, base, group, symmetric=symmetric, memory_limit=memory_limit)


def smallest_eigenvalue(gram: ArrayLike) -> float:
    """Find the smallest eigenvalue of a Gram matrix (n_samples, n_samples), which must be symmetric and finite.

    It is negative if the kernel is not positive definite. Rounding leaves it uncertain by about the precision of `gram`
    times its largest eigenvalue.

    Examples
    --------
    >>> from segkit.invariance import smallest_eigenvalue
    >>> round(smallest_eigenvalue([[1.0, 2.0], [2.0, 1.0]]), 6)
    -1.0
    """
    return float(eigvalsh(_as_gram(gram), subset_by_index=[0, 0])[0])


def largest_pd_n(gram: ArrayLike, *, tol: float = 1e-10) -> int:
    """Count the first samples on which a kernel is positive definite.

    Parameters
    ----------
    gram : array-like of shape (n_samples, n_samples)
        Symmetric matrix of kernel values.
    tol : float, default=1e-10
        Lower bound of the smallest eigenvalue, >= 0, as a fraction of the mean of the diagonal.

    Returns
    -------
    int
        The largest n whose matrix of the first n samples is positive definite, 0 to n_samples. It
        depends on the order of the samples: average over some.

    Notes
    -----
    The smallest eigenvalue falls as samples are added (interlacing), and ``gram - t I`` has a
    Cholesky factor up to the order at which it no longer exceeds t: one factorisation suffices.

    References
    ----------
    T. Liu et al. 2022, table 1.

    Examples
    --------
    >>> from segkit.invariance import largest_pd_n
    >>> largest_pd_n([[1.0, 0.5, 0.0], [0.5, 1.0, 2.0], [0.0, 2.0, 1.0]])
    2
    """
    if not 0 <= tol < math.inf:
        raise ConfigError(f"tol={tol}: a finite fraction >= 0 is needed")
    gram = _as_gram(gram)
    shift = tol * np.trace(gram) / len(gram)
    _, order_that_fails = dpotrf(gram - shift * np.eye(len(gram)))
    return int(order_that_fails) - 1 if order_that_fails else len(gram)


def as_arguments(kernel: Callable[..., FloatArray], X: FloatArray) -> FloatArray:
    """Return samples in the form that a kernel takes: in rows, or as they are for local kernels and functions."""
    inner = kernel.kernel if isinstance(kernel, Normalized) else kernel
    takes_rows = isinstance(inner, Kernel) and not isinstance(inner, LocalPolynomialKernel)
    return X.reshape(len(X), -1) if takes_rows else X


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


@dataclass(frozen=True)
class _Reduction:
    """How the values of one pair of samples, one for each transformation, become one."""

    start: float
    merge: np.ufunc
    finish: Callable[[FloatArray, int], FloatArray]  # merged values, and how many of each pair
    over_shifts: Callable[[MapForm, FloatArray], FloatArray]  # products (n_shifts, n, m) -> (n, m)


def _largest_of_shifts(maps: MapForm, products: FloatArray) -> FloatArray:
    # An even power may be largest at the most negative product.
    return np.maximum(maps.of_products(products.max(axis=0)), maps.of_products(products.min(axis=0)))


def _mean_of_shifts(maps: MapForm, products: FloatArray) -> FloatArray:
    mean: FloatArray = maps.of_products(products).mean(axis=0, dtype=np.float64)
    return mean


_BEST = _Reduction(-np.inf, np.maximum, lambda values, _: values, _largest_of_shifts)
_MEAN = _Reduction(0.0, np.add, lambda values, n: values / n, _mean_of_shifts)


def _fit(
    reduction: _Reduction,
    X: ArrayLike,
    Y: ArrayLike | None,
    base: Kernel | None,
    group: Group | None,
    *,
    symmetric: bool,
    memory_limit: int,
) -> FloatArray:
    if not isinstance(base, Kernel | None):
        raise ConfigError(f"base={base!r}: a kernel is needed, or None for the paper's polynomial")
    if not isinstance(group, Group | None):
        raise ConfigError(f"group={group!r}: a Group is needed, such as Identity() or Dihedral()")
    if memory_limit < 1:
        raise ConfigError(f"memory_limit={memory_limit}: at least 1 byte is needed")
    left, right = as_pair(X, Y)
    shape = left.shape[1:]
    group = Identity() if group is None else group
    group.check(shape)
    base = Polynomial(degree=8, gamma=1 / math.prod(shape)) if base is None else base
    sweep = _Sweep(reduction, base, group, memory_limit)
    # base(x, T y) = base(T^-1 x, y), with T^-1 in the group too: the order of the arguments is irrelevant
    if isinstance(base, Polynomial | Gaussian | Laplacian) and _is_whole_group(group, shape):
        return sweep(left, right, halved=Y is None)
    values = sweep(left, right)
    if symmetric:
        swapped = values if Y is None else sweep(right, left)
        values = reduction.finish(reduction.merge(values, swapped.T), 2)
    return values


@dataclass(frozen=True)
class _Sweep:
    """Reduction of ``base(x, T y)`` over T, in blocks."""

    reduction: _Reduction
    base: Kernel
    group: Group
    memory_limit: int

    def __call__(self, X: FloatArray, Y: FloatArray, *, halved: bool = False) -> FloatArray:
        """Reduce the values of all pairs; halved, the lower triangle mirrors the upper."""
        first, shifts = _split_shifts(self.group)
        maps = None if shifts is None else map_form(self.base)
        if shifts is None or maps is None:
            n_merged = len(self.group.elements(X.shape[1:]))
            blocks = self._transformed_blocks(X, Y, halved=halved)
        else:
            n_merged = len(first.elements(X.shape[1:]))
            blocks = self._correlated_blocks(maps, first, shifts, X, Y, halved=halved)
        merge = self.reduction.merge
        values = np.full((len(X), len(Y)), self.reduction.start)
        # check_values refuses overflow below.
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, cols, block in blocks:
                merge(values[rows, cols], block, out=values[rows, cols])
            values = self.reduction.finish(values, n_merged).astype(X.dtype, copy=False)
        if halved:
            values = np.triu(values) + np.triu(values, 1).T
        check_values(values)
        return values

    def _transformed_blocks(self, X: FloatArray, Y: FloatArray, *, halved: bool) -> Iterator[Block]:
        """Evaluate the base once per transformation; transform each sample once."""
        n_rows = max(1, min(BLOCK_OF_ROWS, self.memory_limit // (4 * len(Y) * Y.itemsize)))
        samples = as_arguments(self.base, X)
        for element in self.group.elements(X.shape[1:]):
            transformed = as_arguments(self.base, self.group.act(element, Y))
            for rows in gen_batches(len(X), n_rows):
                cols = slice(rows.start if halved else 0, len(Y))
                yield rows, cols, self.base(samples[rows], transformed[cols])

    def _correlated_blocks(
        self, maps: MapForm, first: Group, shifts: Translation, X: FloatArray, Y: FloatArray, *, halved: bool
    ) -> Iterator[Block]:
        """Evaluate all shifts at once, for each transformation applied before them."""
        shape = X.shape[1:]
        example = maps.left(X[:1])
        correlation = CircularCorrelation(shape[:2], *shifts.shifts(shape), example.dtype)
        n_samples, n_square = self._block_sizes(example, len(shifts.elements(shape)), count_threads())
        with single_threaded_blas():
            for rows in gen_batches(len(X), n_samples):
                left = correlation.left_spectra(maps.left(X[rows]))
                for element in first.elements(shape):
                    # One square at a time: products with columns of a wider array are twice as slow.
                    for cols in gen_batches(len(Y), n_square):
                        right = correlation.right_spectra(maps.right(first.act(element, Y[cols])))
                        squares = (
                            (_shifted(part, rows.start), cols, left[:, part], right)
                            for part in gen_batches(rows.stop - rows.start, n_square)
                            # halved, squares below the diagonal are left out
                            if not halved or cols.stop > rows.start + part.start
                        )
                        yield from in_threads(partial(self._correlate, correlation, maps), squares)

    def _correlate(
        self, correlation: CircularCorrelation, maps: MapForm, square: tuple[slice, slice, Any, Any]
    ) -> Block:
        """Reduce one square of pairs of samples over all shifts."""
        rows, cols, left, right = square
        # A thread does not inherit the error state of the one that started it.
        with np.errstate(over="ignore", invalid="ignore"):
            return rows, cols, self.reduction.over_shifts(maps, correlation.products(left, right))

    def _block_sizes(self, example: FloatArray, n_shifts: int, n_threads: int) -> tuple[int, int]:
        """How many samples' spectra, and how large a square of their products, fit the memory."""
        # Eight copies: real and imaginary parts of left and (twice) right spectra, and temporary arrays.
        n_samples = self.memory_limit // (8 * example.nbytes)
        per_pair = (4 * example[0, 0].size + n_shifts) * example.itemsize
        n_pairs = self.memory_limit // (4 * per_pair * n_threads)
        n_square = BLOCK_OF_ONE_MAP if example.shape[1] == 1 else BLOCK_OF_MAPS
        return max(1, n_samples), max(1, min(n_square, math.isqrt(n_pairs)))


def _split_shifts(group: Group) -> tuple[Group, Translation | None]:
    """Split off a circular translation that is applied last, if there is one."""
    groups = group.groups if isinstance(group, Composition) else (group,)
    last = groups[-1]
    if not (isinstance(last, Translation) and last.mode == "circular"):
        return group, None
    return (Composition(groups[:-1]) if len(groups) > 1 else Identity()), last


def _is_whole_group(group: Group, shape: tuple[int, ...]) -> bool:
    """Whether inner products are preserved, and the inverse of each element is an element too."""
    if isinstance(group, Translation):
        return group.is_unitary and all(
            set(shifts % size) == set(-shifts % size)
            for shifts, size in zip(group.shifts(shape), shape[:2], strict=True)
        )
    return isinstance(group, WHOLE_GROUPS)


def _shifted(part: slice, start: int) -> slice:
    return slice(part.start + start, part.stop + start)


def _as_gram(gram: ArrayLike) -> FloatArray:
    gram = np.asarray(gram, dtype=np.float64)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not gram.size:
        raise InputError(
            f"array of shape {gram.shape}: a Gram matrix is square and not empty; pass kernel(X)"
        )
    if not np.isfinite(gram).all():
        raise InputError(
            "the Gram matrix holds NaN or infinite values: lower the degree or scale the samples"
        )
    asymmetry = np.abs(gram - gram.T).max()
    if asymmetry > 1e-5 * np.abs(gram).max():
        raise InputError(
            f"the Gram matrix and its transpose differ by up to {asymmetry:.3g}: eigenvalues are of symmetric "
            f"ones; make the kernel with symmetric=True"
        )
    return gram
