"""Intervals and comparisons that resample images, never pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import wilcoxon

from segkit.errors import InputError

FloatArray = NDArray[np.float64]
# Fewer images than this say little about which method is better.
FEW_IMAGES = 10
_DRAWN_AT_ONCE = 2**20


@dataclass(frozen=True)
class Comparison:
    """How much higher one method scores than another on the same images.

    Parameters
    ----------
    difference : float
        Mean difference of the scores.
    interval : tuple of float
        Its 95 % bootstrap interval over images (or groups of images).
    p_value : float
        Of Wilcoxon's signed-rank test on the differences of the images (or groups), two-sided.
    n_images : int
        Images (or groups) that were resampled.
    """

    difference: float
    interval: tuple[float, float]
    p_value: float
    n_images: int

    @property
    def too_few(self) -> bool:
        """Whether the images are too few to rank methods by."""
        return self.n_images < FEW_IMAGES


def bootstrap_means(
    values: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    n_resamples: int = 10_000,
    random_state: int = 0,
) -> FloatArray:
    """Resample scores and take the mean of each resample.

    Parameters
    ----------
    values : array-like of shape (n,)
        One score for each record.
    clusters : array-like of shape (n,), optional
        What each record belongs to: the records of an image (of several seeds), or of a group of images,
        are drawn together. By default each is its own.
    n_resamples : int, default=10_000
        Number of resamples.
    random_state : int, default=0
        Seed.

    Returns
    -------
    ndarray of shape (n_resamples,)
        Mean over the records of each resample of the clusters.

    Raises
    ------
    InputError
        If there is no score, one is not finite, or the clusters are of another number of records.
    """
    values = _as_scores(values)
    sums, counts = _cluster_sums(values, clusters)
    drawn = _draw(sums.size, n_resamples, random_state)
    return np.concatenate([sums[part].sum(axis=1) / counts[part].sum(axis=1) for part in drawn])


def bootstrap_interval(
    values: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    n_resamples: int = 10_000,
    random_state: int = 0,
) -> tuple[float, float]:
    """Give the percentile bootstrap interval of a mean.

    Parameters
    ----------
    values : array-like of shape (n,)
        One score for each record.
    clusters : array-like of shape (n,), optional
        As for `bootstrap_means`.
    level : float, default=0.95
        Coverage asked for; of 95 %, ten clusters cover some 90, five some 85.
    n_resamples : int, default=10_000
        Number of resamples.
    random_state : int, default=0
        Seed.

    Returns
    -------
    tuple of float
        Lower and upper end.

    Raises
    ------
    InputError
        As `bootstrap_means`.

    Examples
    --------
    >>> from segkit.evaluation.statistics import bootstrap_interval
    >>> low, high = bootstrap_interval([0.6, 0.7, 0.8, 0.9])
    >>> 0.6 <= low < 0.75 < high <= 0.9
    True
    """
    means = bootstrap_means(values, clusters, n_resamples=n_resamples, random_state=random_state)
    return _percentiles(means, level)


def ratio_interval(
    parts: ArrayLike,
    wholes: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    n_resamples: int = 10_000,
    random_state: int = 0,
) -> tuple[float, float] | None:
    """Give the percentile bootstrap interval of a ratio of sums, such as the hits of all images over their objects.

    Parameters
    ----------
    parts, wholes : array-like of shape (n,) or (n, n_ratios)
        What each record adds to numerator and denominator. Of several ratios, the interval is that of their mean.
    clusters : array-like of shape (n,), optional
        As for `bootstrap_means`.
    level : float, default=0.95
        Coverage asked for.
    n_resamples : int, default=10_000
        Number of resamples.
    random_state : int, default=0
        Seed.

    Returns
    -------
    tuple of float, or None
        Lower and upper end. Records that add nothing to either sum are not drawn, nor do resamples count whose
        denominator is 0; None if there is nothing else.

    Raises
    ------
    InputError
        If there is no record, a number is not finite, or shapes or clusters are of another number of records.

    Examples
    --------
    >>> from segkit.evaluation.statistics import ratio_interval
    >>> low, high = ratio_interval([6, 7, 8, 9], [10, 10, 10, 10])
    >>> 0.6 <= low < 0.75 < high <= 0.9
    True
    """
    part, whole = (_as_columns(sums) for sums in (parts, wholes))
    if part.shape != whole.shape:
        raise InputError(
            f"numerators of shape {part.shape}, denominators of {whole.shape}: give equal shapes"
        )
    number = np.arange(len(part)) if clusters is None else np.asarray(clusters)
    if number.shape != (len(part),):
        raise InputError(f"{len(part)} scores in {number.size} clusters: give the cluster of each score")
    counts = (part != 0).any(axis=1) | (whole != 0).any(axis=1)
    if not whole.any(axis=0).all():
        return None
    columns = np.hstack([part, whole])[counts]
    _, cluster = np.unique(number[counts], return_inverse=True)
    sums = np.stack([np.bincount(cluster, column) for column in columns.T], axis=1)
    drawn = (
        sums[rows].sum(axis=1) for rows in _draw(len(sums), n_resamples, random_state, width=sums.shape[1])
    )
    above, below = np.split(np.concatenate(list(drawn)), 2, axis=1)
    known = (below > 0).all(axis=1)
    return _percentiles((above[known] / below[known]).mean(axis=1), level)


def compare(
    first: ArrayLike, second: ArrayLike, clusters: ArrayLike | None = None, *, random_state: int = 0
) -> Comparison:
    """Compare the scores of two methods on the same records.

    Parameters
    ----------
    first, second : array-like of shape (n,)
        Scores of the two methods; entry i of both is of the same image, split and seed.
    clusters : array-like of shape (n,), optional
        As for `bootstrap_means`.
    random_state : int, default=0
        Seed.

    Returns
    -------
    Comparison
        Of first minus second.

    Raises
    ------
    InputError
        If the numbers of scores differ, there is none, or one is not finite, or the clusters are of another number.
    """
    return compare_pooled([(first, second, clusters)], random_state=random_state)


def compare_pooled(
    sets: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike | None]], *, random_state: int = 0
) -> Comparison:
    """Compare two methods over several data sets, each of which has the same weight.

    Parameters
    ----------
    sets : sequence of tuple
        ``(first, second, clusters)`` of each data set, as for `compare`.
    random_state : int, default=0
        Seed.

    Returns
    -------
    Comparison
        Of first minus second; images are resampled within their own set.

    Raises
    ------
    InputError
        If there is no set, or one is as `compare` cannot take it.
    """
    if not sets:
        raise InputError("no data set to compare on: give at least one")
    means, resampled, per_cluster = [], [], []
    for number, (first, second, clusters) in enumerate(sets):
        values, others = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
        if values.shape != others.shape or values.ndim != 1 or not values.size:
            raise InputError(
                f"{values.size} scores of one method and {others.size} of the other: give the scores of both "
                f"on the same images, at least one"
            )
        differences = _as_scores(values - others)
        sums, counts = _cluster_sums(differences, clusters)
        means.append(float(differences.mean()))
        per_cluster.append(sums / counts)
        resampled.append(bootstrap_means(differences, clusters, random_state=random_state + number))
    pooled = np.concatenate(per_cluster)
    p_value = float(wilcoxon(pooled).pvalue) if np.any(pooled) else 1.0
    interval = _percentiles(np.mean(resampled, axis=0), 0.95)
    return Comparison(float(np.mean(means)), interval, p_value, pooled.size)


def _draw(n: int, n_resamples: int, random_state: int, *, width: int = 1) -> Iterator[NDArray[np.int64]]:
    """Draw n of n positions for each resample, a limited number of resamples at once, each position `width` wide."""
    rng = np.random.default_rng(random_state)
    at_once = max(1, _DRAWN_AT_ONCE // (n * width))
    for start in range(0, n_resamples, at_once):
        yield rng.integers(n, size=(min(at_once, n_resamples - start), n))


def _as_columns(sums: ArrayLike) -> FloatArray:
    """Check that there are numbers, and give them as (n, n_ratios)."""
    numbers = np.asarray(sums, dtype=np.float64)
    if numbers.ndim not in (1, 2) or not numbers.size or not np.isfinite(numbers).all():
        raise InputError(
            f"sums of shape {numbers.shape}: give one number (or row) for each record, at least one, none of them NaN"
        )
    return numbers.reshape(len(numbers), -1)


def _as_scores(values: ArrayLike) -> FloatArray:
    """Check that there are scores, all of them numbers."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise InputError(
            f"scores of shape {scores.shape}: give one number for each record, at least one, none of them NaN"
        )
    return scores


def _cluster_sums(values: FloatArray, clusters: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    """Sum of the values of each cluster, and how many they are."""
    if clusters is None:
        return values, np.ones(values.size)
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    if cluster.shape != values.shape:
        raise InputError(f"{values.size} scores in {cluster.size} clusters: give the cluster of each score")
    return np.bincount(cluster, values).astype(np.float64), np.bincount(cluster).astype(np.float64)


def _percentiles(means: FloatArray, level: float) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
