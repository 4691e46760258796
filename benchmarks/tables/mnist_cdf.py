"""000, Figure 2: MNIST with CDF features over small shifts and turns of noise templates."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables.common import RegularizedLeastSquares, Table, accuracy, mean_of_runs
from segkit.invariance import Composition, Rotation, Translation
from segkit.invariance.cdf import GroupCDF

GROUP = Composition((Rotation((-20, -10, 0, 10, 20)), Translation(3, mode="zero")))
N_ELEMENTS = 5 * 49
# Thresholds reach this many standard deviations of the projection of a unit vector on a noise template.
REACH = 3.0


class Sizes(NamedTuple):
    """How much of everything."""

    bins: tuple[int, ...]
    templates: tuple[int, ...]
    most_templates: int
    per_class: tuple[int, ...]
    elements: tuple[int, ...]
    n_test: int
    n_repeats: int


FULL = Sizes((1, 5, 12), (10, 30, 100), 200, (10, 30, 100, 300, 1000), (1, 10, 50, N_ELEMENTS), 10_000, 3)
QUICK = Sizes((1, 5), (5, 20), 20, (10, 30), (1, N_ELEMENTS), 500, 1)

Set = tuple[NDArray[np.float32], NDArray[Any]]


def run(name: str, *, quick: bool, out: Path, data: Path) -> None:
    sizes = QUICK if quick else FULL
    table = Table(
        name,
        "Y. Mroueh et al. 2015, Figure 2",
        f"test accuracy in percent of regularised least squares, mean over {sizes.n_repeats} repeats",
        quick,
        out,
        data,
        notes=[
            f"{sizes.n_repeats} repeats where the paper has 30 (templates) or 100 (training sets): one takes minutes. "
            f"It prints one number only.",
            f"Noise templates, {N_ELEMENTS} transforms of each: shifts up to 3 pixels, turns by 0, 10 and 20 degrees "
            f"either way. n gives 2n + 1 thresholds.",
            "A unit image projects on a template with standard deviation 1/28, so the paper's thresholds, equally "
            f"spaced on [-s, s], nearly all miss the data: thresholds lie within {REACH:g} standard deviations unless "
            "the range is [-s, s].",
        ],
    )
    # Twice the largest training set, so that repeats differ in it.
    train, test = read(table, 2 * sizes.per_class[-1], sizes.n_test)
    left_panel(table, sizes, train, test)
    right_panel(table, sizes, train, test)
    table.write()


def left_panel(table: Table, sizes: Sizes, train: Set, test: Set) -> None:
    """Accuracy by numbers of bins, templates and transforms, at one size of the training set."""
    size = sizes.per_class[len(sizes.per_class) // 2]
    grid = [(n, m, N_ELEMENTS, "data") for n, m in itertools.product(sizes.bins, sizes.templates)]
    grid += [(sizes.bins[-1], sizes.templates[-2], n_elements, "data") for n_elements in sizes.elements[:-1]]
    grid += [(25, sizes.templates[-2], N_ELEMENTS, "[-s, s]")]
    for n, m, n_elements, reach in grid:

        def measure(
            n: int = n, m: int = m, n_elements: int = n_elements, reach: str = reach
        ) -> dict[str, Any]:
            accuracies = []
            for seed in range(sizes.n_repeats):
                chosen = draw(train[1], size, seed)
                features = cdf(n, m, n_elements, reach, seed)
                learnt = RegularizedLeastSquares().fit(
                    features.fit_transform(train[0][chosen]), train[1][chosen]
                )
                accuracies.append(accuracy(learnt.predict(features.transform(test[0])), test[1])["value"])
            return mean_of_runs(accuracies)

        settings = {"features": "CDF", "n": n, "m": m, "elements": n_elements, "range": reach}
        table.measure({**settings, "per class": size}, measure)


def right_panel(table: Table, sizes: Sizes, train: Set, test: Set) -> None:
    """Accuracy by size of the training set, with raw pixels and with the most templates."""
    n, m = sizes.bins[len(sizes.bins) // 2], sizes.most_templates

    @functools.cache
    def features() -> tuple[NDArray[Any], NDArray[Any]]:
        transformer = cdf(n, m, N_ELEMENTS, "data", seed=0).fit(train[0])
        return transformer.transform(train[0]), transformer.transform(test[0])

    def pixels() -> tuple[NDArray[Any], NDArray[Any]]:
        return train[0].reshape(len(train[0]), -1), test[0].reshape(len(test[0]), -1)

    methods: dict[str, tuple[Callable[[], tuple[NDArray[Any], NDArray[Any]]], dict[str, Any]]] = {
        "raw pixels": (pixels, {}),
        "CDF, one draw of templates": (features, {"n": n, "m": m, "elements": N_ELEMENTS, "range": "data"}),
    }
    for (method, (represent, settings)), size in itertools.product(methods.items(), sizes.per_class):

        def measure(
            represent: Callable[[], tuple[NDArray[Any], NDArray[Any]]] = represent, size: int = size
        ) -> dict[str, Any]:
            known, unknown = represent()
            accuracies = []
            for seed in range(sizes.n_repeats):
                chosen = draw(train[1], size, seed)
                learnt = RegularizedLeastSquares().fit(known[chosen], train[1][chosen])
                accuracies.append(accuracy(learnt.predict(unknown), test[1])["value"])
            return mean_of_runs(accuracies)

        paper = 98.97 if method != "raw pixels" and size == 1000 else None
        table.measure({"features": method, **settings, "per class": size}, measure, paper=paper)


def cdf(n_bins: int, n_templates: int, n_elements: int, reach: str, seed: int) -> GroupCDF:
    return GroupCDF(
        n_templates,
        n_bins=n_bins,
        group=GROUP,
        n_transforms=None if n_elements == N_ELEMENTS else n_elements,
        thresholds=np.linspace(-REACH, REACH, 2 * n_bins + 1) / 28 if reach == "data" else None,
        random_state=seed,
    )


def read(table: Table, per_class: int, n_test: int) -> tuple[Set, Set]:
    """Read unit images: a balanced part of the training set, and the first of the test set."""
    mnist = table.read("kernel-data/mnist/mnist.npz")
    chosen = draw(mnist["y_train"], per_class, seed=0)
    train = unit(mnist["X_train"][chosen]), mnist["y_train"][chosen]
    return train, (unit(mnist["X_test"][:n_test]), mnist["y_test"][:n_test])


def unit(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    floating = images.astype(np.float32)
    return floating / np.linalg.norm(floating, axis=(1, 2), keepdims=True)


def draw(labels: NDArray[Any], per_class: int, seed: int) -> NDArray[np.intp]:
    """Positions of as many samples of each class."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.permutation(np.flatnonzero(labels == label))[:per_class] for label in np.unique(labels)]
    )
