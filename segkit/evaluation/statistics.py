"""Intervals and comparisons that resample images and draws of training images, never pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.stats import sem, wilcoxon
from scipy.stats import t as student

from segkit._common import IntArray
from segkit.errors import InputError

FloatArray = NDArray[np.float64]
# Fewer images than this say little about which method is better.
FEW_IMAGES = 10
# Resamples of an interval.
N_RESAMPLES = 20_000
_DRAWN_AT_ONCE = 2**20
# (n + 1) * level is rounded to so many digits, so that 10 * 0.9 is 9.
_DIGITS = 9


@dataclass(frozen=True)
class Comparison:
    """How much higher one method scores than another on the same images, with a 95 % interval.

    The p-value is Wilcoxon's over images (or groups). With several seeds it is at least twice the share of resamples on
    the other side of 0, so that it holds for other seeds too.
    """

    difference: float
    interval: tuple[float, float]
    p_value: float
    n_images: int
    n_seeds: tuple[int, ...]  # of each data set

    @property
    def too_few(self) -> bool:
        """Whether the images are too few to rank methods by."""
        return self.n_images < FEW_IMAGES


def bootstrap_means(
    values: ArrayLike,
    clusters: ArrayLike | None = None,
    seeds: ArrayLike | None = None,
    *,
    random_state: int = 0,
) -> FloatArray:
    """Return the mean score of each resample: of images or groups (clusters), and of seeds where there are several.

    With several seeds this is the pigeonhole bootstrap (Owen, 2007, doi:10.1214/07-AOAS122): seeds and clusters are drawn
    independently, and a record weighs the product of the times they were drawn. It is conservative. Let scores be
    ``mu + a_seed + b_image + e``, of n records, r_s of seed s and c_i of image i. Their mean has the variance
    ``(u var(a) + v var(b) + var(e)) / n`` with ``u = sum r_s^2 / n`` and ``v = sum c_i^2 / n``, and resampled means about
    ``((u + 2) var(a) + (v + 2) var(b) + 3 var(e)) / n``. No bootstrap has the variance itself (McCullagh, 2000).
    """
    values = _as_scores(values)
    cluster, seed = _numbered(clusters, values.size, "cluster"), _numbered(seeds, values.size, "seed")
    if seed is not None and seed.any():
        return _two_way_means(values, cluster, seed, random_state)
    sums, counts = _cluster_sums(values, cluster)
    drawn = _draw(sums.size, random_state)
    return np.concatenate([sums[part].sum(axis=1) / counts[part].sum(axis=1) for part in drawn])


def bootstrap_interval(
    values: ArrayLike, clusters: ArrayLike | None = None, seeds: ArrayLike | None = None
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean; see `bootstrap_means`.

    Few records make it too narrow: at 95 %, ten clusters cover some 90, five some 85. Where seeds differ as much as
    images, two seeds cover some 80, five some 90. Where they hardly differ, more than 95 are covered.
    """
    return _percentiles(bootstrap_means(values, clusters, seeds))


def student_interval(values: ArrayLike, *, test_to_train: float = 0.0) -> tuple[float, float]:
    """Return the 95 % interval of a mean by Student's t, as for the scores of folds or of random splits of one set.

    `test_to_train`, test over training samples, widens it for what random splits share (Nadeau and Bengio, 2003). Folds
    share training data too, so that by default their interval covers less than 95 %.
    """
    scores = _as_scores(values)
    if scores.size < 2:
        raise InputError("1 value: give two or more, for one says nothing of how they vary")
    error = sem(scores) * np.sqrt(1 + scores.size * test_to_train)
    low, high = scores.mean() + error * student.ppf([0.025, 0.975], scores.size - 1)
    return float(low), float(high)


def ratio_interval(
    parts: ArrayLike, wholes: ArrayLike, clusters: ArrayLike | None = None
) -> tuple[float, float] | None:
    """Return the percentile bootstrap interval of a ratio of sums, or of the mean of several (n, n_ratios).

    Records that add nothing to either sum are not drawn, nor do resamples count whose denominator is 0.
    """
    part, whole = (_as_columns(sums) for sums in (parts, wholes))
    if part.shape != whole.shape:
        raise InputError(
            f"numerators of shape {part.shape}, denominators of {whole.shape}: give equal shapes"
        )
    number = _numbered(clusters, len(part), "cluster")
    if number is None:
        number = np.arange(len(part))
    counts = (part != 0).any(axis=1) | (whole != 0).any(axis=1)
    if not whole.any(axis=0).all():
        return None
    columns = np.hstack([part, whole])[counts]
    _, cluster = np.unique(number[counts], return_inverse=True)
    sums = np.stack([np.bincount(cluster, column) for column in columns.T], axis=1)
    drawn = [sums[rows].sum(axis=1) for rows in _draw(len(sums), 0, width=sums.shape[1])]
    above, below = np.split(np.concatenate(drawn), 2, axis=1)
    known = (below > 0).all(axis=1)
    return _percentiles((above[known] / below[known]).mean(axis=1))


def compare(
    first: ArrayLike,
    second: ArrayLike,
    clusters: ArrayLike | None = None,
    seeds: ArrayLike | None = None,
) -> Comparison:
    """Compare the scores of two methods on the same records."""
    return compare_pooled([(first, second, clusters, seeds)])


def compare_pooled(
    sets: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike | None, ArrayLike | None]],
) -> Comparison:
    """Compare two methods over data sets of equal weight, resampled each by itself: the interval holds for these sets."""
    if not sets:
        raise InputError("no data set to compare on: give at least one")
    means, resampled, per_cluster, n_seeds = [], [], [], []
    for number, (first, second, clusters, seeds) in enumerate(sets):
        values, others = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
        if values.shape != others.shape or values.ndim != 1 or not values.size:
            raise InputError(
                f"{values.size} scores of one method and {others.size} of the other: give the scores of both "
                f"on the same images, at least one"
            )
        differences = _as_scores(values - others)
        resampled.append(bootstrap_means(differences, clusters, seeds, random_state=number))
        sums, counts = _cluster_sums(differences, _numbered(clusters, differences.size, "cluster"))
        means.append(float(differences.mean()))
        per_cluster.append(sums / counts)
        n_seeds.append(1 if seeds is None else np.unique(np.asarray(seeds)).size)
    pooled = np.concatenate(per_cluster)
    p_value = float(wilcoxon(pooled).pvalue) if np.any(pooled) else 1.0
    of_resamples = np.mean(resampled, axis=0)
    if max(n_seeds) > 1:
        p_value = max(p_value, _two_sided(of_resamples))
    interval = _percentiles(of_resamples)
    return Comparison(float(np.mean(means)), interval, p_value, pooled.size, tuple(n_seeds))


def conformal_margin(errors: ArrayLike, level: float, groups: ArrayLike | None = None) -> float | None:
    """Return the margin that holds the error of one more estimate with probability `level`; None if errors are too few.

    It is the k-th smallest of n absolute errors, k = (n + 1) level: if they and the next are exchangeable, the next is at
    most that with probability k / (n + 1) or more, whatever their distribution (Vovk et al., 2005). Between two k it is
    interpolated, which errs by an order of 1 / n^2 for a smooth distribution (Beran and Hall, 1993).

    With groups the next estimate is of another group. There are n groups, and each error counts 1 / the size of its own
    (hierarchical conformal prediction: Lee, Barber and Willett, arXiv 2306.06342, 2023).

    >>> conformal_margin([0.3, 0.1, 0.2, 0.4], 0.8)
    0.4
    >>> conformal_margin([0.3, 0.1, 0.2, 0.4], 0.8, groups=["a", "a", "b", "c"]) is None
    True
    """
    values = np.asarray(errors, dtype=np.float64)
    _, group, sizes = np.unique(
        np.arange(values.size) if groups is None else groups, return_inverse=True, return_counts=True
    )
    order = np.argsort(values, kind="stable")
    places = np.cumsum(1 / sizes[group[order]])
    place = round((sizes.size + 1) * level, _DIGITS)
    if not sizes.size or not places[0] <= place <= sizes.size:
        return None
    return float(np.interp(place, places, values[order]))


def _two_way_means(
    values: FloatArray, clusters: IntArray | None, seeds: IntArray, random_state: int
) -> FloatArray:
    """Means of resamples of both seeds and clusters, a limited number at once."""
    place = seeds, np.arange(values.size) if clusters is None else clusters
    sums, counts = (
        coo_array((own, place)).tocsr() for own in (values, np.ones(values.size))
    )  # adds up records
    generators = np.random.default_rng(random_state).spawn(2)
    at_once = max(1, _DRAWN_AT_ONCE // sum(sums.shape))
    found: list[FloatArray] = []
    missing = N_RESAMPLES
    while missing:
        drawn = min(at_once, missing)
        of_seed, of_cluster = (
            _times_drawn(n, drawn, rng) for n, rng in zip(sums.shape, generators, strict=True)
        )
        above, below = (np.einsum("rc,rc->r", of_seed @ table, of_cluster) for table in (sums, counts))
        known = below > 0
        found.append(above[known] / below[known])
        missing -= int(known.sum())
    return np.concatenate(found)


def _times_drawn(n: int, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """Draw n of n positions for each resample, and count how often each was drawn, (n_resamples, n)."""
    own = rng.integers(n, size=(n_resamples, n)) + n * np.arange(n_resamples)[:, None]
    return np.bincount(own.ravel(), minlength=n * n_resamples).reshape(n_resamples, n).astype(np.float64)


def _draw(n: int, random_state: int, *, width: int = 1) -> Iterator[NDArray[np.int64]]:
    """Draw n of n positions for each resample, a limited number of resamples at once, each position `width` wide."""
    rng = np.random.default_rng(random_state)
    at_once = max(1, _DRAWN_AT_ONCE // (n * width))
    for start in range(0, N_RESAMPLES, at_once):
        yield rng.integers(n, size=(min(at_once, N_RESAMPLES - start), n))


def _as_columns(sums: ArrayLike) -> FloatArray:
    """Return numbers as (n, n_ratios); refuse none, and NaN."""
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


def _numbered(names: ArrayLike | None, n: int, kind: str) -> IntArray | None:
    """Return the number of the cluster or seed of each record, from 0."""
    if names is None:
        return None
    _, number = np.unique(np.asarray(names), return_inverse=True)
    if number.shape != (n,):
        raise InputError(f"{n} scores in {number.size} {kind}s: give the {kind} of each score")
    return number


def _cluster_sums(values: FloatArray, clusters: IntArray | None) -> tuple[FloatArray, FloatArray]:
    """Sum of the values of each cluster, and how many they are."""
    if clusters is None:
        return values, np.ones(values.size)
    return np.bincount(clusters, values).astype(np.float64), np.bincount(clusters).astype(np.float64)


def _two_sided(means: FloatArray) -> float:
    """Twice the share of the resamples on the rarer side of 0; the sample itself counts as one of them."""
    rarer = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    return min(1.0, 2 * (1 + rarer) / (1 + means.size))


def _percentiles(means: FloatArray) -> tuple[float, float]:
    """Return the ends of a 95 % interval."""
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
