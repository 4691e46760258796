"""Kernels made invariant by the best, or the average, fit over a group of transformations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh
from scipy.linalg.lapack import dpotrf
from sklearn.utils import gen_batches

from segkit._threads import count_threads, in_threads, single_threaded_blas
from segkit.errors import ConfigError, InputError
from segkit.invariance.correlation import (
    CircularCorrelation,
    ImageMaps,
    MapKernel,
    map_form,
)
from segkit.invariance.groups import Composition, Group, Identity
from segkit.invariance.permutations import MatrixPermutation, Permutation
from segkit.invariance.samples import as_samples, check_values
from segkit.invariance.spatial import Dihedral, PolarRotation, Translation
from segkit.kernels.base import FloatArray, Gaussian, Kernel, Laplacian, Normalized, Polynomial

Block = tuple[slice, slice, FloatArray]

# Rows of a block of transformed samples, and side of a square block of correlations. A square of one map
# stays in the cache; products over many maps are faster in larger squares.
BLOCK_OF_ROWS = 256
BLOCK_OF_ONE_MAP, BLOCK_OF_MAPS = 16, 32

# Groups that hold the inverse of each element, unlike windows of groups.
WHOLE_GROUPS = (Identity, Dihedral, PolarRotation, Permutation, MatrixPermutation)


@dataclass(frozen=True)
class _FitKernel(ABC):
    """Base of best and average fit: sweep ``base(x, T y)`` over the group, in blocks."""

    base: Kernel | None = None
    group: Group = field(default_factory=Identity)
    symmetric: bool = True
    memory_limit: int = 2**30

    def __post_init__(self) -> None:
        if not isinstance(self.base, Kernel | None):
            raise ConfigError(f"base={self.base!r}: a kernel is needed, or None for the paper's polynomial")
        if not isinstance(self.group, Group):
            raise ConfigError(f"group={self.group!r}: a Group is needed, such as Identity() or Dihedral()")
        if self.memory_limit < 1:
            raise ConfigError(f"memory_limit={self.memory_limit}: at least 1 byte is needed")

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
        """Kernel values between samples; (n, *shape), (m, *shape) -> (n, m)."""
        X, other = _as_samples(X, Y)
        self.group.check(X.shape[1:])
        if self._order_is_irrelevant(X.shape[1:]):
            return self._sweep(X, other, halved=Y is None)
        values = self._sweep(X, other)
        if self.symmetric:
            values = self._of_both_orders(values, (values if Y is None else self._sweep(other, X)).T)
        return values

    def diagonal(self, X: ArrayLike) -> FloatArray:
        """Kernel value of each sample with itself; (n, *shape) -> (n,)."""
        X, _ = _as_samples(X, None)
        return np.array([self(X[i : i + 1])[0, 0] for i in range(len(X))], dtype=X.dtype)

    @abstractmethod
    def _of_shifts(self, maps: ImageMaps, products: FloatArray) -> FloatArray:
        """Reduce kernel values over shifts; products (n_shifts, n, m) -> (n, m)."""

    @abstractmethod
    def _of_blocks(self, shape: tuple[int, int], n_transforms: int, blocks: Iterator[Block]) -> FloatArray:
        """Reduce blocks of values, each pair of samples met `n_transforms` times, to (n, m)."""

    @abstractmethod
    def _of_both_orders(self, values: FloatArray, swapped: FloatArray) -> FloatArray:
        """Combine K(x, T y) and K(y, T x) into a symmetric kernel."""

    def _sweep(self, X: FloatArray, Y: FloatArray, *, halved: bool = False) -> FloatArray:
        """Reduce ``base(x, T y)`` over T; halved, the lower triangle mirrors the upper."""
        first, shifts = _split_shifts(self.group)
        base = self._base_for(X)
        maps = None if shifts is None else map_form(base)
        if shifts is None or maps is None:
            n_transforms = len(self.group.elements(X.shape[1:]))
            blocks = self._transformed_blocks(base, X, Y, halved=halved)
        else:
            n_transforms = len(first.elements(X.shape[1:]))
            blocks = self._correlated_blocks(maps, first, shifts, X, Y, halved=halved)
        # check_values refuses overflow below.
        with np.errstate(over="ignore", invalid="ignore"):
            values = self._of_blocks((len(X), len(Y)), n_transforms, blocks).astype(X.dtype, copy=False)
        if halved:
            values = np.triu(values) + np.triu(values, 1).T
        check_values(values)
        return values

    def _transformed_blocks(
        self, base: Kernel, X: FloatArray, Y: FloatArray, *, halved: bool
    ) -> Iterator[Block]:
        """Evaluate the base once per transformation; transform each sample once."""
        n_rows = max(1, min(BLOCK_OF_ROWS, self.memory_limit // (4 * len(Y) * Y.itemsize)))
        samples = as_arguments(base, X)
        for element in self.group.elements(X.shape[1:]):
            transformed = as_arguments(base, self.group.act(element, Y))
            for rows in gen_batches(len(X), n_rows):
                cols = slice(rows.start if halved else 0, len(Y))
                yield rows, cols, base(samples[rows], transformed[cols])

    def _correlated_blocks(
        self,
        maps: ImageMaps,
        first: Group,
        shifts: Translation,
        X: FloatArray,
        Y: FloatArray,
        *,
        halved: bool,
    ) -> Iterator[Block]:
        """Evaluate all shifts at once, for each transformation applied before them."""
        shape = X.shape[1:]
        example = maps.left_maps(X[:1])
        correlation = CircularCorrelation(shape[:2], *shifts.shifts(shape), example.dtype)
        n_samples, n_square = self._block_sizes(example, len(shifts.elements(shape)), count_threads())
        with single_threaded_blas():
            for rows in gen_batches(len(X), n_samples):
                left = correlation.left_spectra(maps.left_maps(X[rows]))
                for element in first.elements(shape):
                    # One square at a time: products with columns of a wider array are twice as slow.
                    for cols in gen_batches(len(Y), n_square):
                        transformed = first.act(element, Y[cols])
                        right = correlation.right_spectra(maps.right_maps(transformed))

                        spectra = (
                            (i, j, left[:, _within(i, rows)], right)
                            for i, j in _squares(rows, cols, n_square, halved=halved)
                        )
                        yield from in_threads(partial(self._correlate, correlation, maps), spectra)

    def _correlate(
        self, correlation: CircularCorrelation, maps: ImageMaps, square: tuple[slice, slice, Any, Any]
    ) -> Block:
        """Reduce one square of pairs of samples over all shifts."""
        rows, cols, left, right = square
        # A thread does not inherit the error state of the one that started it.
        with np.errstate(over="ignore", invalid="ignore"):
            return rows, cols, self._of_shifts(maps, correlation.products(left, right))

    def _block_sizes(self, example: FloatArray, n_shifts: int, n_threads: int) -> tuple[int, int]:
        """How many samples' spectra, and how large a square of their products, fit the memory."""
        # Eight copies: real and imaginary parts of left and (twice) right spectra, and temporary arrays.
        n_samples = self.memory_limit // (8 * example.nbytes)
        per_pair = (4 * example[0, 0].size + n_shifts) * example.itemsize
        n_pairs = self.memory_limit // (4 * per_pair * n_threads)
        n_square = BLOCK_OF_ONE_MAP if example.shape[1] == 1 else BLOCK_OF_MAPS
        return max(1, n_samples), max(1, min(n_square, math.isqrt(n_pairs)))

    def _base_for(self, X: FloatArray) -> Kernel:
        return Polynomial(degree=8, gamma=1 / math.prod(X.shape[1:])) if self.base is None else self.base

    def _order_is_irrelevant(self, shape: tuple[int, ...]) -> bool:
        """Whether base(x, T y) = base(T^-1 x, y), with T^-1 in the group too, for sure."""
        of_products_and_norms = self.base is None or isinstance(self.base, Polynomial | Gaussian | Laplacian)
        return of_products_and_norms and _is_whole_group(self.group, shape)


@dataclass(frozen=True)
class BestFitKernel(_FitKernel):
    """Largest value of a kernel over transformations of its second argument.

    Parameters
    ----------
    base : Kernel or None, default=None
        Kernel of rows of values; or of samples with their shape: a `MapKernel`, a best or average
        fit, or either one `Normalized`. None is the paper's
        ``Polynomial(degree=8, gamma=1 / m)`` with m values per sample.
    group : Group, default=Identity()
        The transformations, finitely many.
    symmetric : bool, default=True
        Whether to take the larger of K(x, y) and K(y, x) where they could differ, because the
        inverse of a transformation is not one of them or interpolates anew. Without it the second
        argument alone, in a classifier the training sample, is transformed.
    memory_limit : int, default=2**30
        Bytes of temporary arrays. The transformed samples and the kernel values are extra.

    Raises
    ------
    ConfigError
        If `base` is no kernel, `group` no group or `memory_limit` not positive; on use, if the group
        has no list of elements.
    InputError
        On use, if samples differ in shape, hold no value or one that is not real or not finite, the
        group cannot act on them, or kernel values exceed the largest number of their dtype.

    Notes
    -----
    ``K(x, y) = max_T base(x, T y)``. It is invariant, K(S x, y) = K(x, y), to the transformations of
    a group, not of a window of one. It need not be positive definite: see `largest_pd_n`.

    Circular translations, alone or last of a composition, of a base that is a function of inner
    products or distances of images, are one correlation for all shifts; any other group takes one
    evaluation of the base per transformation.

    References
    ----------
    T. Liu et al., Learning from few samples: transformation-invariant SVMs with composition and
    locality at multiple scales, 2022, eq. 1 to 3.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Translation
    >>> from segkit.invariance.bestfit import BestFitKernel
    >>> from segkit.kernels import Polynomial
    >>> images = np.array([[[1.0, 2.0]], [[5.0, 2.0]]])
    >>> BestFitKernel(Polynomial(degree=1, coef0=0.0), Translation())(images).round(6)
    array([[ 5., 12.],
           [12., 29.]])
    """

    def _of_shifts(self, maps: ImageMaps, products: FloatArray) -> FloatArray:
        # An even power may be largest at the most negative product.
        return np.maximum(maps.of_products(products.max(axis=0)), maps.of_products(products.min(axis=0)))

    def _of_blocks(
        self,
        shape: tuple[int, int],
        n_transforms: int,  # noqa: ARG002
        blocks: Iterator[Block],
    ) -> FloatArray:
        best = np.full(shape, -np.inf)
        for rows, cols, values in blocks:
            np.maximum(best[rows, cols], values, out=best[rows, cols])
        return best

    def _of_both_orders(self, values: FloatArray, swapped: FloatArray) -> FloatArray:
        return np.maximum(values, swapped)


@dataclass(frozen=True)
class AverageFitKernel(_FitKernel):
    """Mean value of a kernel over transformations of its second argument (Haar integration).

    Parameters
    ----------
    base : Kernel or None, default=None
        Kernel of rows of values; or of samples with their shape: a `MapKernel`, a best or average
        fit, or either one `Normalized`. None is the paper's
        ``Polynomial(degree=8, gamma=1 / m)`` with m values per sample.
    group : Group, default=Identity()
        The transformations, finitely many.
    symmetric : bool, default=True
        Whether to take the mean of K(x, y) and K(y, x) where they could differ.
    memory_limit : int, default=2**30
        Bytes of temporary arrays. The transformed samples and the kernel values are extra.

    Raises
    ------
    ConfigError
        If `base` is no kernel, `group` no group or `memory_limit` not positive; on use, if the group
        has no list of elements.
    InputError
        On use, if samples differ in shape, hold no value or one that is not real or not finite, the
        group cannot act on them, or kernel values exceed the largest number of their dtype.

    Notes
    -----
    ``K(x, y) = mean_T base(x, T y)``. Over a whole group that preserves inner products, and with a
    base that depends on those alone, it is positive definite; training with it is training on all
    transformed copies of the samples. It blurs: with a linear base and all translations only the
    mean brightness of an image is left.

    References
    ----------
    T. Liu et al., Learning from few samples: transformation-invariant SVMs with composition and
    locality at multiple scales, 2022, eq. 4.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Translation
    >>> from segkit.invariance.bestfit import AverageFitKernel
    >>> from segkit.kernels import Polynomial
    >>> images = np.array([[[1.0, 2.0]], [[5.0, 2.0]]])
    >>> AverageFitKernel(Polynomial(degree=1, coef0=0.0), Translation())(images).round(6)
    array([[ 4.5, 10.5],
           [10.5, 24.5]])
    """

    def _of_shifts(self, maps: ImageMaps, products: FloatArray) -> FloatArray:
        mean: FloatArray = maps.of_products(products).mean(axis=0, dtype=np.float64)
        return mean

    def _of_blocks(self, shape: tuple[int, int], n_transforms: int, blocks: Iterator[Block]) -> FloatArray:
        total = np.zeros(shape)
        for rows, cols, values in blocks:
            total[rows, cols] += values
        return total / n_transforms

    def _of_both_orders(self, values: FloatArray, swapped: FloatArray) -> FloatArray:
        return (values + swapped) / 2


def as_arguments(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Return samples the form that a kernel takes."""
    return X if _compares_samples(kernel) else X.reshape(len(X), -1)


def smallest_eigenvalue(gram: ArrayLike) -> float:
    """Find the smallest eigenvalue of a Gram matrix.

    Parameters
    ----------
    gram : array-like of shape (n_samples, n_samples)
        Symmetric matrix of kernel values.

    Returns
    -------
    float
        Negative if the kernel is not positive definite; rounding leaves it uncertain by about
        the precision of `gram` times its largest eigenvalue.

    Raises
    ------
    InputError
        If `gram` is not square, symmetric and finite, or is empty.

    Examples
    --------
    >>> from segkit.invariance.bestfit import smallest_eigenvalue
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

    Raises
    ------
    ConfigError
        If `tol` is negative or not finite.
    InputError
        If `gram` is not square, symmetric and finite, or is empty.

    Notes
    -----
    The smallest eigenvalue falls as samples are added (interlacing), and ``gram - t I`` has a
    Cholesky factor up to the order at which it no longer exceeds t: one factorisation suffices.

    References
    ----------
    T. Liu et al., Learning from few samples: transformation-invariant SVMs with composition and
    locality at multiple scales, 2022, table 1.

    Examples
    --------
    >>> from segkit.invariance.bestfit import largest_pd_n
    >>> largest_pd_n([[1.0, 0.5, 0.0], [0.5, 1.0, 2.0], [0.0, 2.0, 1.0]])
    2
    """
    if not 0 <= tol < math.inf:
        raise ConfigError(f"tol={tol}: a finite fraction >= 0 is needed")
    gram = _as_gram(gram)
    shift = tol * np.trace(gram) / len(gram)
    _, order_that_fails = dpotrf(gram - shift * np.eye(len(gram)))
    return int(order_that_fails) - 1 if order_that_fails else len(gram)


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


def _as_samples(X: ArrayLike, Y: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    """Two arrays of samples of one shape, both in the floating dtype of the first."""
    X = as_samples(X)
    Y = X if Y is None else as_samples(Y).astype(X.dtype, copy=False)
    if X.ndim < 2 or X.shape[1:] != Y.shape[1:]:
        raise InputError(
            f"arrays of shapes {X.shape} and {Y.shape}: a kernel compares samples of one shape; "
            f"pass (n, *shape) and (m, *shape)"
        )
    return X, Y


def _compares_samples(kernel: Kernel) -> bool:
    """Whether a kernel compares samples with their shape, not rows of values."""
    if isinstance(kernel, Normalized):
        return _compares_samples(kernel.kernel)
    return isinstance(kernel, MapKernel | _FitKernel)


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


def _squares(rows: slice, cols: slice, size: int, *, halved: bool) -> Iterator[tuple[slice, slice]]:
    """Cut a block into squares; halved, leave out those below the diagonal."""
    for i in gen_batches(rows.stop - rows.start, size):
        for j in gen_batches(cols.stop - cols.start, size):
            square = _shifted(i, rows.start), _shifted(j, cols.start)
            if not halved or square[1].stop > square[0].start:
                yield square


def _shifted(part: slice, start: int) -> slice:
    return slice(part.start + start, part.stop + start)


def _within(part: slice, whole: slice) -> slice:
    """Where a part of all samples lies in a slice of them."""
    return _shifted(part, -whole.start)
