"""000, Figure 1: sequences of 5 characters out of 8, positive if they contain two given ones in any order.

Whatever is invariant to permutations is computed once for each of the 792 multisets of characters.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.tables.common import RegularizedLeastSquares, Table, mean_of_runs
from segkit.invariance import GroupCDF, Permutation, average_fit
from segkit.kernels import Gaussian, median_gamma

N_CHARACTERS, LENGTH = 8, 5
TARGETS = (0, 1)
SIZES = (10, 25, 50, 100, 250, 500, 1000)
N_BINS, N_TEMPLATES = 25, (1, 10, 25)
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "RLS": RegularizedLeastSquares,
    "1-NN": lambda: KNeighborsClassifier(1, algorithm="brute"),
}


class Representation(NamedTuple):
    """Features, and which row of them each sequence has."""

    features: NDArray[Any]
    rows: NDArray[np.intp]


def run(name: str, *, quick: bool, out: Path, data: Path) -> None:
    sizes, n_repeats = ((10, 100), 3) if quick else (SIZES, 100)
    table = Table(
        name,
        "Y. Mroueh et al. 2015, Figure 1",
        f"accuracy in percent on all other sequences, mean over {n_repeats} random training samples",
        quick,
        out,
        data,
        notes=[
            "The paper shows curves without numbers. Training samples are balanced, the test set is not: 21 % of all "
            "sequences are positive. CDF(n, m) draws its m templates anew for each training sample.",
        ],
    )
    for classifier, (method, represent) in itertools.product(CLASSIFIERS, representations().items()):
        for size in sizes:
            table.measure(
                {"classifier": classifier, "features": method, "per class": size},
                functools.partial(repeat, represent, CLASSIFIERS[classifier], size, n_repeats),
            )
    table.write()


def representations() -> dict[str, Callable[[int], Representation]]:
    """Ways to represent all sequences, each a function of the seed."""
    methods: dict[str, Callable[[int], Representation]] = {
        "raw": lambda _: Representation(
            one_hot(sequences()).reshape(-1, LENGTH * N_CHARACTERS), np.arange(N_CHARACTERS**LENGTH)
        ),
        "bag of words": lambda _: Representation(one_hot(multisets()[0]).sum(axis=1), multisets()[1]),
        "Haar kernel": lambda _: Representation(haar_features(), multisets()[1]),
    }
    for m in N_TEMPLATES:
        methods[f"CDF({N_BINS}, {m})"] = functools.partial(cdf, m)
    return methods


def repeat(
    represent: Callable[[int], Representation], classifier: Callable[[], Any], size: int, n_repeats: int
) -> dict[str, Any]:
    """Train on `size` sequences of each class and test on all others, time and again."""
    is_positive = np.all([(sequences() == target).any(axis=1) for target in TARGETS], axis=0)
    accuracies = []
    for seed in range(n_repeats):
        features, rows = represent(seed)
        rng = np.random.default_rng(seed)
        train = np.concatenate(
            [rng.permutation(np.flatnonzero(is_positive == label))[:size] for label in (False, True)]
        )
        test = np.delete(np.arange(len(rows)), train)
        predicted = classifier().fit(features[rows[train]], is_positive[train]).predict(features)
        accuracies.append(100 * float(np.mean(predicted[rows[test]] == is_positive[test])))
    return mean_of_runs(accuracies)


def cdf(n_templates: int, seed: int) -> Representation:
    features = GroupCDF(n_templates, n_bins=N_BINS, group=Permutation(), random_state=seed)
    representatives, rows = multisets()
    return Representation(features.fit_transform(one_hot(representatives) / np.sqrt(LENGTH)), rows)


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


@functools.cache
def multisets() -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One sequence of each orbit, and the orbit of each sequence."""
    return np.unique(np.sort(sequences(), axis=1), axis=0, return_inverse=True)


def one_hot(characters: NDArray[np.intp]) -> NDArray[np.float64]:
    """(n, 5) -> (n, 5, 8)."""
    return np.eye(N_CHARACTERS)[characters]
