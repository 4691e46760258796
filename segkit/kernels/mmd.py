"""Scores of a kernel's separation of the classes: MMD, alignment, test power; and the weights of a mixture.

All MMD estimates are functions of the sums of kernel values over pairs of classes, less those of some pairs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from segkit.errors import ConfigError, InputError

_Statistic = Literal["unbiased", "u_statistic", "biased", "scaled_biased"]
_Seed = int | np.random.RandomState | None
_Float64Array = NDArray[np.float64]
_BoolArray = NDArray[np.bool_]

# Keeps the test-power ratio finite if the kernel separates nothing (the same value as in Liu et al. 2020).
_VARIANCE_FLOOR = 1e-8


def mmd_squared(
    K: ArrayLike, y: ArrayLike, *, statistic: _Statistic = "unbiased", random_state: _Seed = None
) -> float:
    """Estimate the squared maximum mean discrepancy (MMD) of two classes.

    Parameters
    ----------
    K : array-like of shape (n_samples, n_samples)
        Gram matrix.
    y : array-like of shape (n_samples,)
        Labels, of two classes.
    statistic : {"unbiased", "u_statistic", "biased", "scaled_biased"}, default="unbiased"
        The estimator, see Notes.
    random_state : int, RandomState instance or None, default=None
        Seed of the pairs of "u_statistic".

    Returns
    -------
    float
        The estimate. The two unbiased ones may be negative.

    Raises
    ------
    InputError
        If shapes do not fit, there are not two classes, or a class has one sample and the estimator is an
        unbiased one.
    ConfigError
        If the statistic does not exist.

    Notes
    -----
    With n+ and n- samples, and S the sum of kernel values over pairs:

    - unbiased: ``S++(i != j) / n+(n+ - 1) + S--(i != j) / n-(n- - 1) - 2 S+- / n+n-``
    - u_statistic: samples of both classes are paired at random, without replacement; n0 pairs, as many as the smaller
      class has samples. ``(S++(i != j) + S--(i != j) - 2 S+-(i != j)) / n0(n0 - 1)``, where sample i of either class
      is that of pair i. It is unbiased, too. Of the larger class, it leaves samples out.
    - biased: ``S++ / n+^2 + S-- / n-^2 - 2 S+- / n+n-``
    - scaled_biased: ``n+n- / (n+ + n-)`` times the biased one, as in the paper's Table 2

    The paper swaps two names: it calls the root of the unbiased estimator (4.5) biased, and the
    biased one (4.2) unbiased. Its (4.6) is "u_statistic".

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 4.2, 4.5 and 4.6.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import mmd_squared
    >>> mmd_squared(np.eye(4), [0, 0, 1, 1], statistic="scaled_biased")
    1.0
    """
    K, members = _checked(K, y)
    if members.shape[1] != 2:
        raise InputError(f"{members.shape[1]} classes: mmd_squared compares two; use mmd")
    return _of_split(K, members[:, 0], statistic, random_state)


def mmd(
    K: ArrayLike, y: ArrayLike, *, statistic: _Statistic = "unbiased", random_state: _Seed = None
) -> float:
    """Estimate the maximum mean discrepancy (MMD) of two or more classes (paper, eq. 4.5 and 4.6).

    It is the root of `mmd_squared`, clipped at 0. With more than two classes it is the mean of the roots, each class
    against the rest. Arguments and errors are those of `mmd_squared`.

    Examples
    --------
    >>> from segkit.kernels import Gaussian, mmd
    >>> round(mmd(Gaussian(100.0)([[0.0], [0.0], [1.0], [1.0]]), ["a", "a", "b", "b"]), 4)
    1.4142
    """
    K, members = _checked(K, y)
    squares = [_of_split(K, positive, statistic, random_state) for positive in _one_vs_rest(members)]
    # Unbiased estimates may be negative; clip them before the root.
    return float(np.mean(np.sqrt(np.maximum(squares, 0))))


def _of_split(
    K: _Float64Array, positive: _BoolArray, statistic: _Statistic, random_state: _Seed = None
) -> float:
    """Estimate the squared MMD between the samples of a class and all others."""
    if statistic == "u_statistic":
        return _of_pairs(K, positive, check_random_state(random_state))
    # Products with one-hot columns sum K over all pairs of sides at once.
    sides = np.column_stack([positive, ~positive]).astype(np.float64)
    counts, totals = sides.sum(axis=0), sides.T @ K @ sides
    match statistic:
        case "unbiased":
            _require_two_of_each(counts)
            # the pairs of a sample with itself are left out
            within = (totals.diagonal() - np.diag(K) @ sides) / (counts * (counts - 1))
        case "biased" | "scaled_biased":
            within = totals.diagonal() / counts**2
        case _:
            raise ConfigError(
                f"statistic={statistic!r}: choose 'unbiased', 'u_statistic', 'biased' or 'scaled_biased'"
            )
    value = within.sum() - 2 * totals[0, 1] / counts.prod()
    scale = counts.prod() / counts.sum() if statistic == "scaled_biased" else 1.0
    return float(scale * value)


def _of_pairs(K: _Float64Array, positive: _BoolArray, rng: np.random.RandomState) -> float:
    """Estimate it by the U-statistic of random pairs of a sample of a class and one of the others (paper, eq. 4.6)."""
    first, second = (rng.permutation(np.flatnonzero(side)) for side in (positive, ~positive))
    n_pairs = min(len(first), len(second))
    _require_two_of_each(np.array([len(first), len(second)]))
    first, second = first[:n_pairs], second[:n_pairs]
    # the kernel of two pairs: like samples with like ones, less unlike ones
    total = K[np.ix_(first, first)] + K[np.ix_(second, second)]
    total -= K[np.ix_(first, second)] + K[np.ix_(second, first)]
    return float((total.sum() - np.trace(total)) / (n_pairs * (n_pairs - 1)))


def power_criterion(K: ArrayLike, y: ArrayLike) -> float:
    """Score a kernel by the power of its two-sample test: unbiased squared MMD over its standard deviation, clipped at 0.

    With more than two classes it is the mean over classes, each against the rest. Arguments and errors are those of
    `mmd_squared`; each class needs two samples.

    Notes
    -----
    Let ``h(x) = mean k(x, own class) - mean k(x, other class)`` be the witness function, without the pair of x
    and itself. The squared MMD is ``mean_+ h + mean_- h``. Its variance is, to leading order,
    ``4 (var_+ h / n+ + var_- h / n-)``, also for classes of different sizes. 1e-8 is added to the variance.

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
    _require_two_of_each(members.sum(axis=0))
    return float(np.mean([max(_power_ratio(K, positive), 0.0) for positive in _one_vs_rest(members)]))


def _power_ratio(K: _Float64Array, positive: _BoolArray) -> float:
    squared, variance = 0.0, _VARIANCE_FLOOR
    for side in (positive, ~positive):
        within = K[np.ix_(side, side)]
        # Leave out the pair of a sample and itself, as in the unbiased MMD.
        own = (within.sum(axis=1) - np.diag(within)) / (len(within) - 1)
        witness = own - K[np.ix_(side, ~side)].mean(axis=1)
        squared += witness.mean()
        variance += 4 * witness.var() / len(within)
    return squared / math.sqrt(variance)


def alignment(K: ArrayLike, y: ArrayLike, *, centered: bool = False) -> float:
    """Measure the alignment of a kernel with the labels, in [0, 1] for a positive semi-definite kernel.

    With t = +-1 for the two classes it is ``t' K t / (||K||_F t't)``, and 0 if K is 0. `centered` centres both kernels in
    feature space first: without, a constant kernel scores high if classes are unbalanced. With more than two classes it
    is the mean over classes, each against the rest. Arguments and errors are those of `mmd_squared`.

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


def mixture_weights(scores: ArrayLike) -> _Float64Array:
    """Compute the weights of base kernels, ``scores / sum(scores)`` (paper, eq. 4.8).

    Parameters
    ----------
    scores : array-like of shape (n_kernels,)
        MMD, alignment or test power of each kernel; negative scores count as 0.

    Returns
    -------
    ndarray of shape (n_kernels,), float64
        The weights; uniform, with a UserWarning, if no score is positive.

    Raises
    ------
    InputError
        If there is no score, or a score is NaN or infinite.

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
            f"none of the {values.size} kernels separates the classes (all scores are 0): weights are uniform; "
            f"more samples or other gammas may help",
            stacklevel=2,
        )
        values = np.ones_like(values)
    weights: _Float64Array = values / values.sum()
    return weights


def _checked(K: ArrayLike, y: ArrayLike) -> tuple[_Float64Array, _BoolArray]:
    """Check a Gram matrix and labels; returns K in float64 and class membership, (n_samples, n_classes)."""
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


def _one_vs_rest(members: _BoolArray) -> Iterator[_BoolArray]:
    """Yield columns of class membership; only the first of two classes, for the second is its complement."""
    yield from members.T[: 1 if members.shape[1] == 2 else None]


def _require_two_of_each(counts: NDArray[Any]) -> None:
    if counts.min() < 2:
        raise InputError(
            f"a class has {int(counts.min())} of {int(counts.sum())} samples: this estimate needs at least "
            f"2 in each class; annotate more of that class"
        )
