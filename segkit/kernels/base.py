"""Kernels on rows of features: values, diagonals, and the spectral laws of shift-invariant kernels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import euclidean_distances, laplacian_kernel
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from segkit.errors import ConfigError, InputError, ModelFileError

FloatArray = NDArray[np.floating[Any]]
RandomGenerator = np.random.Generator | np.random.RandomState


@runtime_checkable
class Kernel(Protocol):
    """A positive definite function of two rows of features."""

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
        """Compute kernel values between rows; (n, n_features), (m, n_features) -> (n, m)."""

    def diagonal(self, X: ArrayLike) -> FloatArray:
        """Compute the kernel value of each row with itself; (n, n_features) -> (n,)."""


@runtime_checkable
class ShiftInvariantKernel(Kernel, Protocol):
    """A kernel of ``x - y`` with unit diagonal: the Fourier transform of a probability law, the spectral law."""

    def frequencies(self, n_features: int, n_draws: int, rng: RandomGenerator) -> FloatArray:
        """Draw frequencies from the spectral law, independently; (n_features, n_draws), float64."""


class KernelMixture(Protocol):
    """Weighted kernels with explicit features: a part that is linear in the columns, and a nonlinear part.

    The linear part may be summed on coarse grids and interpolated afterwards. The nonlinear part may not.
    """

    criterion: Any
    n_features_in_: int

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows to features; (n_samples, n_features) -> (n_samples, n_features_out)."""

    def dot(self, X: ArrayLike, coef: NDArray[Any]) -> FloatArray:
        """Compute ``transform(X) @ coef.T``."""

    def linear_coef(self, coef: NDArray[Any]) -> NDArray[np.float32] | None:
        """Express the linear part of functions of the features by the columns; None if there is no linear part.

        (n_functions, n_features_out) -> (n_functions, n_features).
        """

    @property
    def nonlinear_columns(self) -> NDArray[np.intp]:
        """Columns of the nonlinear part, in increasing order."""

    def nonlinear_dot(self, X: FloatArray, coef: NDArray[Any]) -> FloatArray:
        """Compute the nonlinear part; (n_samples, n_nonlinear_columns) -> (n_samples, n_functions)."""

    def nonlinear_input(self, X: FloatArray) -> FloatArray:
        """Select the columns of the radial kernels, and scale them as inside the kernels' distances."""

    def describe(self, groups: Sequence[str]) -> list[dict[str, Any]]:
        """List kind, name, gamma, weight and score of each kernel."""

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Split the fitted transformer into a JSON-able header and arrays, for files without pickle."""

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted transformer from the result of `to_state`."""


@dataclass(frozen=True)
class _OfDifferences:
    """A function of x - y with one positive parameter and unit diagonal."""

    gamma: float

    def __post_init__(self) -> None:
        _set_positive(self, "gamma")

    def diagonal(self, X: ArrayLike) -> FloatArray:
        """Compute the kernel value of each row with itself: n ones."""
        X, _ = _as_rows(X)
        return np.ones(len(X), dtype=X.dtype)


class _Radial(_OfDifferences, ABC):
    """A function of the squared Euclidean distance with unit diagonal."""

    @abstractmethod
    def of_squared_distances(self, squared: FloatArray) -> FloatArray:
        """Compute kernel values at squared Euclidean distances, same shape and dtype."""

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
        """Compute kernel values between rows; (n, n_features), (m, n_features) -> (n, m)."""
        return self.of_squared_distances(_squared_distances(X, Y))


@dataclass(frozen=True)
class Gaussian(_Radial):
    """Gaussian kernel ``exp(-gamma ||x - y||^2)``.

    Parameters
    ----------
    gamma : float
        Inverse squared bandwidth, > 0, in units of 1 / squared feature.

    Raises
    ------
    ConfigError
        If `gamma` is not positive and finite.

    Notes
    -----
    The spectral law is N(0, 2 gamma I):
    ``exp(-gamma ||x - y||^2) = E cos(<omega, x - y>)``.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 2.15 and 7.16 (printed with gamma where sqrt(2 gamma) is meant).

    Examples
    --------
    >>> from segkit.kernels import Gaussian
    >>> Gaussian(gamma=0.5)([[0.0], [2.0]]).round(3)
    array([[1.   , 0.135],
           [0.135, 1.   ]])
    """

    def of_squared_distances(self, squared: FloatArray) -> FloatArray:
        """Compute kernel values at squared Euclidean distances, same shape and dtype."""
        # In place: a Gram matrix may be the largest array in memory.
        values: FloatArray = squared * -self.gamma
        return np.exp(values, out=values)

    def frequencies(self, n_features: int, n_draws: int, rng: RandomGenerator) -> FloatArray:
        """Draw frequencies from the spectral law, independently; (n_features, n_draws), float64."""
        return math.sqrt(2 * self.gamma) * rng.standard_normal((n_features, n_draws))


@dataclass(frozen=True)
class Laplacian(_Radial):
    """Laplacian kernel ``exp(-gamma ||x - y||)`` of the Euclidean norm.

    Parameters
    ----------
    gamma : float
        Inverse bandwidth, > 0, in units of 1 / feature.

    Raises
    ------
    ConfigError
        If `gamma` is not positive and finite.

    Notes
    -----
    The spectral law is the multivariate Cauchy law of scale gamma, drawn as gamma g / |u| with
    g ~ N(0, I) and u ~ N(0, 1). For the L1 norm, as in scikit-learn, take `L1Laplacian`.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, section 2.1 and eq. 2.15.

    Examples
    --------
    >>> from segkit.kernels import Laplacian
    >>> Laplacian(gamma=1.0)([[0.0, 0.0], [3.0, 4.0]]).round(4)
    array([[1.    , 0.0067],
           [0.0067, 1.    ]])
    """

    def of_squared_distances(self, squared: FloatArray) -> FloatArray:
        """Compute kernel values at squared Euclidean distances, same shape and dtype."""
        values = np.sqrt(squared)
        values *= -self.gamma
        return np.exp(values, out=values)

    def frequencies(self, n_features: int, n_draws: int, rng: RandomGenerator) -> FloatArray:
        """Draw frequencies from the spectral law, independently; (n_features, n_draws), float64."""
        # A normal vector divided by one independent |u| is a multivariate Cauchy vector.
        directions = rng.standard_normal((n_features, n_draws))
        return self.gamma * directions / np.abs(rng.standard_normal(n_draws))


@dataclass(frozen=True)
class L1Laplacian(_OfDifferences):
    """Laplacian kernel ``exp(-gamma sum_k |x_k - y_k|)`` of the L1 norm, as in scikit-learn.

    Parameters
    ----------
    gamma : float
        Inverse bandwidth, > 0, in units of 1 / feature.

    Raises
    ------
    ConfigError
        If `gamma` is not positive and finite.

    Notes
    -----
    The coordinates of a frequency are independent Cauchy variables of scale gamma.

    References
    ----------
    A. Rahimi and B. Recht, Random features for large-scale kernel machines, 2007, figure 1.

    Examples
    --------
    >>> from segkit.kernels import L1Laplacian
    >>> L1Laplacian(gamma=1.0)([[0.0, 0.0], [3.0, 4.0]]).round(4)
    array([[1.e+00, 9.e-04],
           [9.e-04, 1.e+00]])
    """

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
        """Compute kernel values between rows; (n, n_features), (m, n_features) -> (n, m)."""
        X, Y = _as_rows(X, Y)
        return np.asarray(laplacian_kernel(X, Y, gamma=self.gamma), dtype=X.dtype)

    def frequencies(self, n_features: int, n_draws: int, rng: RandomGenerator) -> FloatArray:
        """Draw frequencies from the spectral law, independently; (n_features, n_draws), float64."""
        return self.gamma * rng.standard_cauchy((n_features, n_draws))


@dataclass(frozen=True)
class Anova:
    """ANOVA kernel ``(sum_k exp(-gamma (x_k - y_k)^2))^degree``.

    Parameters
    ----------
    gamma : float
        Inverse squared bandwidth, > 0, in units of 1 / squared feature.
    degree : int, default=2
        Number of features that interact, >= 1.

    Raises
    ------
    ConfigError
        If `gamma` is not positive and finite, or `degree` is not a positive integer.

    Notes
    -----
    The paper prints a product over features, which equals the Gaussian kernel. This is the usual sum.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, section 2.1.

    Examples
    --------
    >>> from segkit.kernels import Anova
    >>> Anova(gamma=1.0, degree=2)([[0.0, 0.0]], [[0.0, 9.0]])
    array([[1.]])
    """

    gamma: float
    degree: int = 2

    def __post_init__(self) -> None:
        _set_positive(self, "gamma")
        _check_degree(self, self.degree)

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
        """Compute kernel values between rows; (n, n_features), (m, n_features) -> (n, m)."""
        X, Y = _as_rows(X, Y)
        # One feature at a time: the differences of all features would need n_features times the memory.
        total = np.zeros((len(X), len(Y)))
        for x, y in zip(X.T, Y.T, strict=True):
            total += np.exp(-self.gamma * np.subtract.outer(x, y) ** 2)
        return (total**self.degree).astype(X.dtype)

    def diagonal(self, X: ArrayLike) -> FloatArray:
        """Compute the kernel value of each row with itself: n times ``n_features ** degree``."""
        X, _ = _as_rows(X)
        return np.full(len(X), float(X.shape[1]) ** self.degree, dtype=X.dtype)


@dataclass(frozen=True)
class Polynomial:
    """Polynomial kernel ``(gamma <x, y> + coef0)^degree``.

    Parameters
    ----------
    degree : int, default=3
        Exponent, >= 1.
    gamma : float, default=1.0
        Factor of the inner product, > 0.
    coef0 : float, default=1.0
        Constant added to the inner product, >= 0. A negative one makes the kernel indefinite.

    Raises
    ------
    ConfigError
        If a parameter is out of its range.

    Examples
    --------
    >>> from segkit.kernels import Polynomial
    >>> Polynomial(degree=2)([[1.0, 2.0]], [[3.0, 4.0]])
    array([[144.]])
    """

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 1.0

    def __post_init__(self) -> None:
        _set_positive(self, "gamma")
        _check_degree(self, self.degree)
        if not 0 <= self.coef0 < math.inf:
            raise ConfigError(f"Polynomial(coef0={self.coef0}): coef0 must be finite and >= 0")
        object.__setattr__(self, "coef0", float(self.coef0))

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
        """Compute kernel values between rows; (n, n_features), (m, n_features) -> (n, m)."""
        X, Y = _as_rows(X, Y)
        return self.of_products(X @ Y.T)

    def diagonal(self, X: ArrayLike) -> FloatArray:
        """Compute the kernel value of each row with itself; (n, n_features) -> (n,)."""
        X, _ = _as_rows(X)
        return self.of_products(np.einsum("ij,ij->i", X, X))

    def of_products(self, products: FloatArray) -> FloatArray:
        """Compute kernel values at inner products, same shape and dtype."""
        values: FloatArray = (self.gamma * products + self.coef0) ** self.degree
        return values


@dataclass(frozen=True)
class Normalized:
    """Scale a kernel to unit diagonal: ``k(x, y) / sqrt(k(x, x) k(y, y))``.

    A row x with k(x, x) = 0 has kernel 0 with every row, itself included.

    Parameters
    ----------
    kernel : Kernel
        The kernel to scale.

    Examples
    --------
    >>> from segkit.kernels import Normalized, Polynomial
    >>> Normalized(Polynomial(degree=1, coef0=0.0))([[1.0, 0.0]], [[5.0, 5.0]]).round(4)
    array([[0.7071]])
    """

    kernel: Kernel

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
        """Compute kernel values between rows; (n, n_features), (m, n_features) -> (n, m)."""
        left = self._inverse_norms(X)
        right = left if Y is None else self._inverse_norms(Y)
        # Scale by inverse norms: rows with k(x, x) = 0 have inverse norm 0, so their kernel values are 0.
        values = self.kernel(X, Y) * left[:, None]
        values *= right
        return values

    def diagonal(self, X: ArrayLike) -> FloatArray:
        """Compute the kernel value of each row with itself: 1, or 0 where the given kernel is 0."""
        norms = self.kernel.diagonal(X)
        return (norms > 0).astype(norms.dtype)

    def _inverse_norms(self, X: ArrayLike) -> FloatArray:
        norms = np.sqrt(self.kernel.diagonal(X))
        return np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)


_KERNELS = {
    kernel.__name__: kernel for kernel in (Gaussian, Laplacian, L1Laplacian, Anova, Polynomial, Normalized)
}


def kernel_to_dict(kernel: Kernel) -> dict[str, Any]:
    """Describe one of segkit's kernels in values that JSON can hold."""
    name = type(kernel).__name__
    # Compare the class, not only its name: another class with this name would be rebuilt wrongly.
    if _KERNELS.get(name) is not type(kernel):
        raise ConfigError(f"kernel {kernel!r} cannot be stored: only {', '.join(_KERNELS)} can")
    description: dict[str, Any] = {"name": name}
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        description[field.name] = kernel_to_dict(value) if isinstance(value, Kernel) else value
    return description


def kernel_from_dict(description: dict[str, Any]) -> Kernel:
    """Rebuild a kernel from its description by `kernel_to_dict`."""
    parameters: dict[str, Any] = {
        key: kernel_from_dict(value) if isinstance(value, dict) else value
        for key, value in description.items()
        if key != "name"
    }
    try:
        kernel: Kernel = _KERNELS[description["name"]](**parameters)
    except (KeyError, TypeError) as error:
        raise ModelFileError(
            f"kernel {description!r} is unknown to this version of segkit, which has {', '.join(_KERNELS)}: "
            f"update segkit, or copy the file again"
        ) from error
    return kernel


def gram_matrices(kernels: Iterable[Kernel], X: ArrayLike) -> Iterator[FloatArray]:
    """Yield the Gram matrix of each kernel; distances are computed once for all Gaussian and Laplacian kernels."""
    squared = None
    for kernel in kernels:
        if isinstance(kernel, _Radial):
            squared = _squared_distances(X) if squared is None else squared
            yield kernel.of_squared_distances(squared)
        else:
            yield kernel(X)


def median_gamma(
    X: ArrayLike,
    *,
    max_samples: int = 1000,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Choose the gamma of a Gaussian by the median heuristic: 1 / median squared distance of two rows.

    Of more than `max_samples` rows (n_samples, n_features) so many are drawn at random. An InputError says that there is one
    row, or that at least half of the pairs are duplicates.

    Examples
    --------
    >>> from segkit.kernels import median_gamma
    >>> median_gamma([[0.0], [1.0], [2.0]])
    1.0
    """
    rows, _ = _as_rows(X)
    if len(rows) > max_samples:
        rng = check_random_state(random_state)
        rows = rows[rng.choice(len(rows), max_samples, replace=False)]
    if len(rows) < 2:
        raise InputError(f"{len(rows)} sample: the median distance needs at least 2; give gamma as a number")
    # Each pair of different rows once: zeros of the diagonal would lower the median.
    median = float(np.median(pdist(rows, "sqeuclidean")))
    if median == 0:
        raise InputError(
            f"the median distance between {len(rows)} samples is 0, for at least half of the pairs are equal: "
            f"drop duplicate rows or give gamma as a number"
        )
    return 1 / median


def validate_rows(estimator: BaseEstimator, X: ArrayLike, *, reset: bool) -> FloatArray:
    """Check the rows given to an estimator as ``X``; float32 and float64 stay as they are."""
    rows: FloatArray = validate_data(estimator, X, dtype=[np.float64, np.float32], reset=reset)
    return rows


def as_samples(X: ArrayLike) -> FloatArray:
    """Check the samples that a kernel compares; float32 stays, integers become it or float64."""
    samples = np.asarray(X)
    if samples.dtype.kind not in "buif":
        raise InputError(
            f"samples of dtype {samples.dtype}: a kernel compares real numbers; convert them to float"
        )
    if not samples.size:
        raise InputError(
            f"array of shape {samples.shape}: a kernel compares samples of at least one value; give one or more"
        )
    if not np.isfinite(samples).all():
        raise InputError(
            f"{np.count_nonzero(~np.isfinite(samples))} of {samples.size} values are NaN or infinite: replace "
            f"them or leave out their samples"
        )
    return samples.astype(np.result_type(samples, np.float32), copy=False)


def as_pair(X: ArrayLike, Y: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    """Check two arrays of samples of one shape; both get the dtype of the first, and None is the first."""
    left = as_samples(X)
    right = left if Y is None else as_samples(Y).astype(left.dtype, copy=False)
    if left.ndim < 2 or left.shape[1:] != right.shape[1:]:
        raise InputError(
            f"arrays of shapes {left.shape} and {right.shape}: a kernel compares samples of one shape; "
            f"pass (n, *shape) and (m, *shape)"
        )
    return left, right


def check_values(values: FloatArray) -> None:
    """Check kernel values of finite samples."""
    if not np.isfinite(values).all():
        raise InputError(
            f"kernel values exceed the largest {values.dtype} number: scale the samples to [0, 1] or "
            f"give them in float64"
        )


def _squared_distances(X: ArrayLike, Y: ArrayLike | None = None) -> FloatArray:
    X, other = _as_rows(X, Y)
    # With None in place of X, scikit-learn sets the diagonal to exact zeros.
    squared: FloatArray = euclidean_distances(X, None if Y is None else other, squared=True)
    return squared


def _as_rows(X: ArrayLike, Y: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
    """Check two tables of rows with the same columns; both get the floating dtype of the first."""
    X = np.asarray(X)
    # Integers become floats; float32 stays float32, for speed.
    X = X.astype(np.result_type(X, np.float32), copy=False)
    Y = X if Y is None else np.asarray(Y).astype(X.dtype, copy=False)
    if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1]:
        raise InputError(
            f"arrays of shapes {X.shape} and {Y.shape}: a kernel compares rows with the same features; "
            f"pass (n, n_features) and (m, n_features)"
        )
    if not (np.isfinite(X).all() and np.isfinite(Y).all()):
        raise InputError("the rows hold NaN or infinite values: replace them, or leave their rows out")
    return X, Y


def _set_positive(kernel: Any, name: str) -> None:
    """Check that a parameter is positive, and store it as a Python float."""
    value = getattr(kernel, name)
    if not 0 < value < math.inf:
        raise ConfigError(f"{type(kernel).__name__}({name}={value}): {name} must be positive and finite")
    # NumPy's float64 would turn float32 arrays into float64, and JSON does not take NumPy's numbers.
    object.__setattr__(kernel, name, float(value))


def _check_degree(kernel: object, degree: object) -> None:
    if not isinstance(degree, int) or degree < 1:
        raise ConfigError(f"{type(kernel).__name__}(degree={degree}): degree must be an integer >= 1")
