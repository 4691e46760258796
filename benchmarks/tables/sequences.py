"""000 Figure 1, and Figure 4 of its supplement: sequences of 5 characters out of 8, positive if they hold two given ones.

Both print curves without numbers. Figure 4 states neither its numbers of bins, templates and permutations nor that of
repeats. Its sentence that "all classification results" are from 4,000 training points can hold for Figure 4 only: Figures 1
and 5 vary the training set. Training samples are balanced, the test set, all other sequences, is not: 21 % are positive.
n bins are 2n + 1 thresholds. On [-s, s], the range of eq. 3, n = 1 and 2 leave hardly any threshold but 0 among the
projections; the range "data" is three standard deviations of a projection either way. Permutations are drawn independently,
as in Theorem 3, so that one may occur twice; 120 are all of them, once each.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.rows import Row, Study
from benchmarks.tables.common import mean_of_runs, pivot, select, to_tenths
from benchmarks.tables.ridge import least_squares
from segkit.invariance import GroupCDF, Permutation, average_fit
from segkit.kernels import Gaussian, median_gamma

N_CHARACTERS, LENGTH = 8, 5
TARGETS = (0, 1)
N_PERMUTATIONS = 120
REACH = 3.0
SIZES = (10, 25, 50, 100, 250, 500, 1000)
CLASSIFIERS: dict[str, Callable[[Any, Any], Any]] = {
    "RLS": least_squares,
    "1-NN": lambda X, y: KNeighborsClassifier(1, algorithm="brute").fit(X, y),
}


class Representation(NamedTuple):
    """Features, and which row of them each sequence has: what is invariant is computed once a multiset, of 792."""

    features: NDArray[Any]
    rows: NDArray[np.intp]


def run(study: Study) -> None:
    sizes, n_repeats = ((10, 100), 3) if study.quick else (SIZES, 100)
    methods: dict[str, Callable[[int], Representation]] = {
        "raw": lambda _: Representation(one_hot(sequences()).reshape(-1, LENGTH * N_CHARACTERS), everyone()),
        "bag of words": lambda _: Representation(one_hot(multisets()[0]).sum(axis=1), multisets()[1]),
        "Haar kernel": lambda _: Representation(haar_features(), multisets()[1]),
    }
    of_cdf = {f"CDF(25, {m})": functools.partial(cdf, 25, m) for m in (1, 10, 25)}
    for classifier, (method, represent), size in itertools.product(
        CLASSIFIERS, (methods | of_cdf).items(), sizes
    ):
        study.row(
            {"classifier": classifier, "features": method, "per class": size},
            functools.partial(repeat, represent, CLASSIFIERS[classifier], size, n_repeats),
            what="000 figure 1",
        )
    size, n_repeats = (200, 2) if study.quick else (2000, 10)
    for method, represent in methods.items():
        study.row(
            {"features": method},
            functools.partial(repeat, represent, least_squares, size, n_repeats),
            what="000 figure 4",
        )
    for n, m, n_elements, reach in grid(quick=study.quick):
        represent = functools.partial(cdf, n, m, n_elements=n_elements, reach=reach)
        study.row(
            {"features": "CDF", "n": n, "m": m, "permutations": n_elements, "range": reach},
            functools.partial(repeat, represent, least_squares, size, n_repeats),
            what="000 figure 4",
        )


def grid(*, quick: bool) -> list[tuple[int, int, int, str]]:
    """List bins, templates, permutations and range: right panel, with another range, and left panel."""
    bins, templates = ((1, 5), (1, 5)) if quick else ((1, 2, 5, 10, 25), (1, 5, 10, 25, 50, 100))
    few, elements = ((1, 5), (2,)) if quick else ((1, 10, 25), (1, 2, 5, 10, 30, 60))
    right = [(n, m, N_PERMUTATIONS, "[-s, s]") for n, m in itertools.product(bins, templates)]
    other_range = [(n, few[-1], N_PERMUTATIONS, "data") for n in bins]
    left = [(bins[-1], m, n_elements, "[-s, s]") for m, n_elements in itertools.product(few, elements)]
    return right + other_range + left


def repeat(
    represent: Callable[[int], Representation],
    classifier: Callable[[Any, Any], Any],
    size: int,
    n_repeats: int,
) -> dict[str, Any]:
    """Train on `size` sequences of each class and test on all others, time and again, with other templates."""
    is_positive = np.all([(sequences() == target).any(axis=1) for target in TARGETS], axis=0)
    accuracies = []
    for seed in range(n_repeats):
        features, rows = represent(seed)
        rng = np.random.default_rng(seed)
        train = np.concatenate(
            [rng.permutation(np.flatnonzero(is_positive == label))[:size] for label in (False, True)]
        )
        test = np.delete(np.arange(len(rows)), train)
        predicted = classifier(features[rows[train]], is_positive[train]).predict(features)
        accuracies.append(100 * float(np.mean(predicted[rows[test]] == is_positive[test])))
    return mean_of_runs(accuracies)


def cdf(
    n_bins: int, n_templates: int, seed: int, *, n_elements: int = N_PERMUTATIONS, reach: str = "[-s, s]"
) -> Representation:
    """CDF features; of all permutations they are the same for all sequences of one multiset."""
    of_all = n_elements == N_PERMUTATIONS
    deviation = 1 / np.sqrt(LENGTH * N_CHARACTERS)
    features = GroupCDF(
        n_templates,
        n_bins=n_bins,
        group=Permutation(),
        n_transforms=None if of_all else n_elements,
        thresholds=np.linspace(-REACH, REACH, 2 * n_bins + 1) * deviation if reach == "data" else None,
        random_state=seed,
    )
    representatives, rows = multisets() if of_all else (sequences(), everyone())
    samples = (one_hot(representatives) / np.sqrt(LENGTH)).astype(np.float64 if of_all else np.float32)
    return Representation(fewest_columns(features.fit_transform(samples)), rows)


def fewest_columns(features: NDArray[np.floating]) -> NDArray[np.floating]:
    """Turn features into no more columns than rows, of the same inner products."""
    return np.linalg.qr(features.T, mode="r").T if features.shape[1] > len(features) else features


@functools.cache
def haar_features() -> NDArray[np.float64]:
    """Features whose inner products are the Gaussian kernel averaged over permutations."""
    samples = one_hot(multisets()[0])
    gamma = median_gamma(samples.reshape(len(samples), -1), random_state=0)
    eigenvalues, vectors = np.linalg.eigh(average_fit(samples, base=Gaussian(gamma), group=Permutation()))
    return vectors * np.sqrt(np.maximum(eigenvalues, 0))


@functools.cache
def sequences() -> NDArray[np.intp]:
    """All sequences; (8^5, 5)."""
    return np.indices((N_CHARACTERS,) * LENGTH).reshape(LENGTH, -1).T


def everyone() -> NDArray[np.intp]:
    return np.arange(N_CHARACTERS**LENGTH)


@functools.cache
def multisets() -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One sequence of each orbit, and the orbit of each sequence."""
    return np.unique(np.sort(sequences(), axis=1), axis=0, return_inverse=True)


def one_hot(characters: NDArray[np.intp]) -> NDArray[np.float64]:
    """(n, 5) -> (n, 5, 8)."""
    return np.eye(N_CHARACTERS)[characters]


def sequences_by_size(rows: list[Row]) -> str:
    """Make the table of Figure 1."""
    shown = [row for row in select(rows, "000 figure 1") if row["where"]["per class"] in (10, 100, 1000)]
    return pivot(shown, "per class", cell=to_tenths, title="{:,} of each class")


def permutation_task(rows: list[Row]) -> str:
    """Make the tables of both panels of Figure 4, and a line of the representations without templates."""
    right = select(rows, "000 figure 4", features="CDF", permutations=N_PERMUTATIONS, range="[-s, s]")
    left = select(rows, "000 figure 4", features="CDF", n=25, range="[-s, s]")
    few = {row["where"]["m"] for row in left if row["where"]["permutations"] != N_PERMUTATIONS}
    left = [row for row in left if row["where"]["m"] in few]
    left.sort(key=lambda row: row["where"]["permutations"])
    others = [row for row in select(rows, "000 figure 4") if row["where"]["features"] != "CDF"]
    told = "; ".join(f"{row['where']['features']} {to_tenths(row['figures'])}" for row in others)
    panels = (pivot(panel, "m", cell=to_tenths, title="m = {}") for panel in (right, left))
    return "\n".join([*panels, f"Without templates: {told}."])


TABLES = {"sequences_by_size": sequences_by_size, "permutation_task": permutation_task}
