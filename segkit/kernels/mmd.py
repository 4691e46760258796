"""How far apart a kernel holds the classes: MMD estimates, alignment, test power, mixture weights.

Every MMD estimate depends on the kernel only through its sums over pairs of classes. `_PairSums`
holds them and knows the estimators; a Gram matrix gives the sums in O(n^2), explicit features in
O(n D), and those of blocks of rows add up (`FeatureSums`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from segkit.errors import ConfigError, InputError
from segkit.kernels.base import FloatArray

Statistic = Literal["unbiased", "biased", "scaled_biased"]
Float64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# Keeps the test-power ratio finite where the kernel tells nothing apart (Liu et al. 2020 use the same).
_VARIANCE_FLOOR = 1e-8


def mmd_squared(K: ArrayLike, y: ArrayLike, *, statistic: Statistic = "unbiased") -> float:
    """Estimate the squared maximum mean discrepancy (MMD) of two classes.

    Parameters
    ----------
    K : array-like of shape (n_samples, n_samples)
        Gram matrix.
    y : array-like of shape (n_samples,)
        Labels, of two classes.
    statistic : {"unbiased", "biased", "scaled_biased"}, default="unbiased"
        The estimator, see Notes.

    Returns
    -------
    float
        The estimate. The unbiased one may be negative.

    Raises
    ------
    InputError
        If shapes do not fit, there are not two classes, or the unbiased estimator meets a class
        of one sample.
    ConfigError
        If there is no such statistic.

    Notes
    -----
    With n+ and n- samples, and S the sum of kernel values over pairs:

    - unbiased: ``S++(i != j) / n+(n+ - 1) + S--(i != j) / n-(n- - 1) - 2 S+- / n+n-``
    - biased: ``S++ / n+^2 + S-- / n-^2 - 2 S+- / n+n-``
    - scaled_biased: ``n+n- / (n+ + n-)`` times the biased one; what the paper's Table 2 reports

    The paper prints the unbiased estimator (4.5) under a root and calls it biased, and calls the
    biased one (4.2) unbiased.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 4.2 and 4.5.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import mmd_squared
    >>> mmd_squared(np.eye(4), [0, 0, 1, 1], statistic="scaled_biased")
    1.0
    """
    return _PairSums.of_gram(*_checked(K, y)).mmd_squared(statistic)


def mmd(K: ArrayLike, y: ArrayLike, *, statistic: Statistic = "unbiased") -> float:
    """Estimate the maximum mean discrepancy (MMD) of two or more classes.

    Parameters
    ----------
    K : array-like of shape (n_samples, n_samples)
        Gram matrix.
    y : array-like of shape (n_samples,)
        Labels, of two or more classes.
    statistic : {"unbiased", "biased", "scaled_biased"}, default="unbiased"
        The estimator of each squared discrepancy, see `mmd_squared`.

    Returns
    -------
    float
        The root of the squared estimate, clipped at 0; for more than two classes the average of
        the roots, each class against the rest.

    Raises
    ------
    InputError
        If shapes do not fit, there is one class only, or the unbiased estimator meets a class of
        one sample.
    ConfigError
        If there is no such statistic.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 4.5.

    Examples
    --------
    >>> from segkit.kernels import Gaussian, mmd
    >>> round(mmd(Gaussian(100.0)([[0.0], [0.0], [1.0], [1.0]]), ["a", "a", "b", "b"]), 4)
    1.4142
    """
    return _PairSums.of_gram(*_checked(K, y)).mmd(statistic)


def paired_mmd_squared(
    K: ArrayLike, y: ArrayLike, *, random_state: int | np.random.RandomState | None = None
) -> float:
    """Estimate the squared MMD of two classes of equal size by a one-sample U-statistic.

    Parameters
    ----------
    K : array-like of shape (n_samples, n_samples)
        Gram matrix.
    y : array-like of shape (n_samples,)
        Labels, of two classes with n0 >= 2 samples each.
    random_state : int, RandomState instance or None, default=None
        Seed of the pairing.

    Returns
    -------
    float
        The unbiased estimate; it may be negative.

    Raises
    ------
    InputError
        If shapes do not fit, or the classes are not two of equal size, at least 2.

    Notes
    -----
    Pairs z_i = (x_i, y_i) are drawn across the classes; the estimate is the mean over i != j of
    ``k(x_i, x_j) + k(y_i, y_j) - k(x_i, y_j) - k(x_j, y_i)``. It differs from `mmd_squared` only
    by leaving out the values within pairs.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 4.6.
    """
    K, members = _checked(K, y)
    counts = members.sum(axis=0)
    if len(counts) != 2 or counts[0] != counts[1] or counts[0] < 2:
        raise InputError(
            f"classes of {', '.join(map(str, counts))} samples: the paired statistic needs two classes of "
            f"equal size, at least 2; balance them or use mmd_squared"
        )
    first, second = (np.flatnonzero(column) for column in members.T)
    second = check_random_state(random_state).permutation(second)
    cross = K[np.ix_(first, second)]
    values = K[np.ix_(first, first)] + K[np.ix_(second, second)] - cross - cross.T
    return float(_mean_off_diagonal(values.sum(), np.trace(values), len(first)))


def power_criterion(K: ArrayLike, y: ArrayLike) -> float:
    """Score a kernel by the power of the two-sample test it gives.

    Parameters
    ----------
    K : array-like of shape (n_samples, n_samples)
        Gram matrix.
    y : array-like of shape (n_samples,)
        Labels, of two or more classes with at least 2 samples each.

    Returns
    -------
    float
        Unbiased squared MMD over its standard deviation, clipped at 0; for more than two classes
        the average over classes, each against the rest.

    Raises
    ------
    InputError
        If shapes do not fit, there is one class only, or a class has one sample.

    Notes
    -----
    With the witness ``h(x) = mean k(x, own class) - mean k(x, other class)``, x itself left out,
    the squared MMD is ``mean_+ h + mean_- h`` and its variance, to leading order,
    ``4 (var_+ h / n+ + var_- h / n-)``; this allows classes of different size. 1e-8 is added
    to the variance.

    References
    ----------
    D. Sutherland et al., Generative models and model criticism via optimized maximum mean
    discrepancy, 2017, eq. 3-5. A. Gretton et al., Optimal kernel choice for large-scale
    two-sample tests, 2012.

    Examples
    --------
    >>> from segkit.kernels import Gaussian, power_criterion
    >>> K = Gaussian(1.0)([[0.0], [0.3], [2.0], [2.2]])
    >>> power_criterion(K, [0, 0, 1, 1]) > power_criterion(K, [0, 1, 0, 1])
    True
    """
    K, members = _checked(K, y)
    _require_samples(members.sum(axis=0), 2)
    return float(np.mean([max(_power_ratio(K, positive), 0.0) for positive in _one_vs_rest(members)]))


def _power_ratio(K: Float64Array, positive: BoolArray) -> float:
    squared, variance = 0.0, _VARIANCE_FLOOR
    for side in (positive, ~positive):
        within = K[np.ix_(side, side)]
        own = (within.sum(axis=1) - np.diag(within)) / (len(within) - 1)
        witness = own - K[np.ix_(side, ~side)].mean(axis=1)
        squared += witness.mean()
        variance += 4 * witness.var() / len(within)
    return squared / math.sqrt(variance)


def alignment(K: ArrayLike, y: ArrayLike, *, centered: bool = False) -> float:
    """Align a kernel with the labels.

    Parameters
    ----------
    K : array-like of shape (n_samples, n_samples)
        Gram matrix.
    y : array-like of shape (n_samples,)
        Labels, of two or more classes.
    centered : bool, default=False
        Centre both kernels in feature space first; then unbalanced classes do not reward a
        constant kernel.

    Returns
    -------
    float
        Cosine between K and ``t t'``, t = +-1, in [0, 1] for a positive semi-definite K; 0 if K
        (centred) is 0. For more than two classes the average over classes, each against the rest.

    Raises
    ------
    InputError
        If shapes do not fit, or there is one class only.

    Notes
    -----
    ``t' K t / (||K||_F t't)``, with K and t centred if asked.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 3.7-3.8. C. Cortes, M. Mohri and A. Rostamizadeh, Algorithms for
    learning kernels based on centered alignment, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import alignment
    >>> alignment(np.outer([1, 1, -1], [1, 1, -1]), [5, 5, 8])
    1.0
    """
    K, members = _checked(K, y)
    targets = np.column_stack([np.where(positive, 1.0, -1.0) for positive in _one_vs_rest(members)])
    if centered:
        K = K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()
        targets -= targets.mean(axis=0)
    norm = np.linalg.norm(K)
    if norm == 0:
        return 0.0
    inner = np.einsum("ic,ic->c", targets, K @ targets)
    return float(np.mean(inner / (norm * np.square(targets).sum(axis=0))))


def mixture_weights(scores: ArrayLike) -> Float64Array:
    """Weigh base kernels in proportion to their scores.

    Parameters
    ----------
    scores : array-like of shape (n_kernels,)
        MMD, alignment or power of each kernel; below 0 counts as 0.

    Returns
    -------
    ndarray of shape (n_kernels,), float64
        ``scores / sum(scores)``; uniform, with a warning, if no score is positive.

    Raises
    ------
    InputError
        If there is no score, or one is NaN or infinite.

    Warns
    -----
    UserWarning
        If no score is positive.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 4.8.

    Examples
    --------
    >>> from segkit.kernels import mixture_weights
    >>> mixture_weights([3.0, 1.0])
    array([0.75, 0.25])
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise InputError(
            f"scores {values.tolist()}: weights need at least one score, all finite; "
            f"leave out kernels that overflow, or standardise the features"
        )
    values = np.maximum(values, 0)
    if not values.any():
        warnings.warn(
            f"none of the {values.size} kernels tells the classes apart (all scores are 0): uniform weights; "
            f"more samples or other gammas may help",
            stacklevel=2,
        )
        values = np.ones_like(values)
    weights: Float64Array = values / values.sum()
    return weights


@dataclass(frozen=True, eq=False)
class FeatureSums:
    """Sums of explicit features by class: all that MMD needs, and they add up over blocks of rows.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        The labels.
    counts : ndarray of shape (n_classes,), float64
        Rows of each class.
    sums : ndarray of shape (n_classes, n_components), float64
        Sum of the features of each class.
    squared_norms : ndarray of shape (n_classes,), float64
        Sum of the squared norms of the features of each class.

    Notes
    -----
    For K = ZZ' and S_c the sum of the features of class c, the sum of K over pairs from classes
    a and b is <S_a, S_b>, and its diagonal within a class is the sum of squared norms. Estimates
    cost O(n D), not O(n^2), and equal those on ZZ' up to rounding.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 4.11.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import FeatureSums, mmd_squared
    >>> Z, y = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [3.0, 1.0]]), np.array([0, 0, 1, 1])
    >>> sums = FeatureSums.of(Z[:3], y[:3], classes=[0, 1]) + FeatureSums.of(Z[3:], y[3:], classes=[0, 1])
    >>> sums.mmd_squared() == mmd_squared(Z @ Z.T, y)
    True
    """

    classes: NDArray[Any]
    counts: Float64Array
    sums: Float64Array
    squared_norms: Float64Array

    @classmethod
    def of(cls, Z: FloatArray, y: ArrayLike, classes: ArrayLike) -> Self:
        """Sum up one block of rows.

        Parameters
        ----------
        Z : ndarray of shape (n_samples, n_components)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,)
            All labels there are; a block need not hold each.

        Returns
        -------
        FeatureSums
            Sums of this block.

        Raises
        ------
        InputError
            If `Z` and `y` differ in length, or a label is not among `classes`.
        """
        labels, classes = np.asarray(y), np.asarray(classes)
        if len(Z) != len(labels):
            raise InputError(f"{len(Z)} rows and {len(labels)} labels: one label for each row is needed")
        if unknown := sorted(set(labels.tolist()) - set(classes.tolist())):
            raise InputError(f"labels {unknown} are not among classes {classes.tolist()}: add or drop them")
        blocks = [Z[labels == label] for label in classes]
        return cls(
            classes,
            np.array([len(block) for block in blocks], dtype=np.float64),
            np.array([block.sum(axis=0, dtype=np.float64) for block in blocks]),
            np.array([np.einsum("ij,ij->", block, block, dtype=np.float64) for block in blocks]),
        )

    def __add__(self, other: FeatureSums) -> FeatureSums:
        if not np.array_equal(self.classes, other.classes):
            raise InputError(
                f"sums over classes {self.classes.tolist()} and {other.classes.tolist()} cannot be added: "
                f"give every block the same classes"
            )
        return FeatureSums(
            self.classes,
            self.counts + other.counts,
            self.sums + other.sums,
            self.squared_norms + other.squared_norms,
        )

    def mmd_squared(self, statistic: Statistic = "unbiased") -> float:
        """Estimate the squared MMD of two classes, as the function `mmd_squared` does."""
        return self._pair_sums().mmd_squared(statistic)

    def mmd(self, statistic: Statistic = "unbiased") -> float:
        """Estimate the MMD of two or more classes, as the function `mmd` does."""
        return self._pair_sums().mmd(statistic)

    def _pair_sums(self) -> _PairSums:
        return _PairSums(self.counts, self.sums @ self.sums.T, self.squared_norms)


@dataclass(frozen=True, eq=False)
class _PairSums:
    """Sums of kernel values over pairs of classes.

    `counts` (n_classes,), `totals` (n_classes, n_classes) over all pairs of samples, and `traces`
    (n_classes,) over the pairs of a sample with itself.
    """

    counts: Float64Array
    totals: Float64Array
    traces: Float64Array

    @classmethod
    def of_gram(cls, K: Float64Array, members: BoolArray) -> Self:
        one_hot = members.astype(np.float64)
        return cls(one_hot.sum(axis=0), one_hot.T @ K @ one_hot, np.diag(K) @ one_hot)

    def mmd_squared(self, statistic: Statistic) -> float:
        if len(self.counts) != 2:
            raise InputError(f"{len(self.counts)} classes: mmd_squared compares two; use mmd")
        _require_samples(self.counts, 2 if statistic == "unbiased" else 1)
        match statistic:
            case "unbiased":
                within = _mean_off_diagonal(self.totals.diagonal(), self.traces, self.counts)
            case "biased" | "scaled_biased":
                within = self.totals.diagonal() / self.counts**2
            case _:
                raise ConfigError(f"statistic={statistic!r}: choose 'unbiased', 'biased' or 'scaled_biased'")
        value = within.sum() - 2 * self.totals[0, 1] / self.counts.prod()
        scale = self.counts.prod() / self.counts.sum() if statistic == "scaled_biased" else 1.0
        return float(scale * value)

    def mmd(self, statistic: Statistic) -> float:
        squares = [split.mmd_squared(statistic) for split in self._splits()]
        return float(np.mean(np.sqrt(np.maximum(squares, 0))))

    def _splits(self) -> Iterator[_PairSums]:
        """Each class against the rest."""
        for positive in _one_vs_rest(np.eye(len(self.counts), dtype=bool)):
            merge = np.stack([positive, ~positive]).astype(np.float64)
            yield _PairSums(merge @ self.counts, merge @ self.totals @ merge.T, merge @ self.traces)


def _checked(K: ArrayLike, y: ArrayLike) -> tuple[Float64Array, BoolArray]:
    """Return the Gram matrix in float64 and who belongs to which class, (n_samples, n_classes)."""
    K, labels = np.asarray(K, dtype=np.float64), np.asarray(y)
    if K.ndim != 2 or labels.shape != K.shape[:1] or K.shape[0] != K.shape[1]:
        raise InputError(
            f"Gram matrix of shape {K.shape} and labels of shape {labels.shape}: "
            f"(n, n) and (n,) are needed; compute the Gram matrix as kernel(X)"
        )
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(f"labels of {len(classes)} class: at least 2 are needed; annotate another class")
    return K, labels[:, None] == classes


def _one_vs_rest(members: BoolArray) -> Iterator[BoolArray]:
    """Columns of class membership; of two classes the first, for the second says the same."""
    yield from members.T[: 1 if members.shape[1] == 2 else None]


def _mean_off_diagonal(total: Any, trace: Any, n: Any) -> Any:
    """Mean of the n (n - 1) values off the diagonal of an n x n matrix."""
    return (total - trace) / (n * (n - 1))


def _require_samples(counts: NDArray[Any], needed: int) -> None:
    if counts.min() < needed:
        raise InputError(
            f"a class has {int(counts.min())} of {int(counts.sum())} samples: this estimate needs at least "
            f"{needed} in each class; annotate more of it"
        )
