"""000, Figure 2: MNIST with CDF features over small shifts and turns of noise templates.

The paper names CDF(50, 500) and 1,000 images of each class for its one number. It states neither the steps of shifts
and turns, nor the interpolation, nor the part of MNIST tested on. Its own thresholds, s k / 50 with s = 1.1, lie 0.6
standard deviations of a projection apart: of 101 only those between the extreme projections tell images apart. The
others are columns of zeros, or of one constant, and are replaced by a single column of the same inner products.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import markdown_table
from benchmarks.tables.common import (
    DualLeastSquares,
    RegularizedLeastSquares,
    Table,
    accuracy,
    mean_of_runs,
    to_hundredths,
)
from segkit.invariance import Composition, Rotation, Translation
from segkit.invariance.cdf import GroupCDF

GROUP = Composition((Rotation((-20, -10, 0, 10, 20)), Translation(3, mode="zero")))
N_ELEMENTS = 5 * 49
# Thresholds reach this many standard deviations of the projection of a unit vector on a noise template.
REACH = 3.0
# No projection of a sample on a template is as many of them; checked.
LARGEST = 7.5
# Columns of features multiplied at once.
BLOCK = 5000


class Sizes(NamedTuple):
    """How much of everything."""

    bins: tuple[int, ...]
    templates: tuple[int, ...]
    most_templates: int
    per_class: tuple[int, ...]
    elements: tuple[int, ...]
    n_test: int
    n_repeats: int
    paper: tuple[int, int]
    n_draws: int


FULL = Sizes(
    (1, 5, 12),
    (10, 30, 100),
    200,
    (10, 30, 100, 300, 1000),
    (1, 10, 50, N_ELEMENTS),
    10_000,
    3,
    (50, 500),
    10,
)
QUICK = Sizes((1, 5), (5, 20), 20, (10, 30), (1, N_ELEMENTS), 500, 1, (50, 20), 2)

Set = tuple[NDArray[np.float32], NDArray[Any]]


def run(name: str, *, quick: bool, out: Path, data: Path) -> None:
    sizes = QUICK if quick else FULL
    table = Table(
        name,
        "Y. Mroueh et al. 2015, Figure 2",
        "test accuracy in percent of regularised least squares, mean over repeats",
        quick,
        out,
        data,
        notes=[
            f"Left panel: {sizes.n_repeats} draws of templates where the paper has 30, and fewer training images: its panel "
            f"has 1,000 of each class. Right panel: {sizes.n_draws} training sets where it has 100. It prints "
            "one number only, of CDF(50, 500).",
            f"Noise templates, {N_ELEMENTS} transforms of each: shifts up to 3 pixels, turns by 0, 10 and 20 degrees "
            f"either way. n gives 2n + 1 thresholds.",
            "A unit image projects on a template with standard deviation 1/28, so the paper's thresholds, equally "
            f"spaced on [-s, s], nearly all miss the data: thresholds lie within {REACH:g} standard deviations unless "
            "the range is [-s, s].",
            f"Of CDF{sizes.paper} the penalty is chosen by leave-one-out too, over 1,000 of the training images; at the "
            "largest size on the first training set, for all of them.",
        ],
    )
    # Twice the largest training set, so that repeats differ in it.
    train, test = read(table, 2 * sizes.per_class[-1], sizes.n_test)
    left_panel(table, sizes, train, test)
    right_panel(table, sizes, train, test)
    setting_of_paper(table, sizes, train, test)
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
            for seed in range(sizes.n_draws):
                chosen = draw(train[1], size, seed)
                learnt = RegularizedLeastSquares().fit(known[chosen], train[1][chosen])
                accuracies.append(accuracy(learnt.predict(unknown), test[1])["value"])
            return mean_of_runs(accuracies)

        table.measure({"features": method, **settings, "per class": size}, measure)


def setting_of_paper(table: Table, sizes: Sizes, train: Set, test: Set) -> None:
    """Accuracy by size of the training set, with the bins and templates of the paper."""
    n, m = sizes.paper

    @functools.cache
    def features() -> tuple[NDArray[Any], NDArray[Any]]:
        return features_of_paper(n, m, train[0], test[0])

    for size in sizes.per_class:

        def measure(size: int = size) -> dict[str, Any]:
            known, unknown = features()
            accuracies, penalties = [], []
            kept = None
            for seed in range(sizes.n_draws):
                chosen = draw(train[1], size, seed)
                learnt = DualLeastSquares().fit(gram_of(known, chosen), train[1][chosen], kept)
                scores = scores_of(learnt.dual_coef_, known, chosen, unknown)
                accuracies.append(accuracy(learnt.predict(scores), test[1])["value"])
                penalties.append(learnt.relative_penalty_)
                kept = learnt.penalty_ if size == sizes.per_class[-1] else None
            return mean_of_runs(accuracies) | {"penalties": penalties}

        settings = {"features": "CDF, one draw of templates", "n": n, "m": m, "elements": N_ELEMENTS}
        table.measure(
            {**settings, "range": "[-s, s]", "per class": size},
            measure,
            paper=98.97 if size == 1000 else None,
        )


def features_of_paper(
    n: int, m: int, train: NDArray[np.float32], test: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """CDF features on [-s, s], whose constant columns are summed up in the last one."""
    transformer = cdf(n, m, N_ELEMENTS, "[-s, s]", seed=0).fit(train)
    gap = float(transformer.thresholds_[1] - transformer.thresholds_[0])
    inside = np.abs(transformer.thresholds_) * 28 <= LARGEST
    transformer.set_params(thresholds=transformer.thresholds_[inside]).fit(train)
    constant = np.sqrt(gap * (~inside).sum() / 2)
    found = []
    for images in (train, test):
        features = transformer.transform(images)
        if features[:, :m].any() or (features[:, -m:] < np.sqrt(gap / m) * (1 - 1e-5)).any():
            raise ValueError(f"projections beyond {LARGEST} standard deviations: raise LARGEST")
        found.append(np.hstack([features, np.full((len(features), 1), constant, dtype=features.dtype)]))
    return found[0], found[1]


def column_blocks(n_columns: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, n_columns, BLOCK))


def gram_of(features: NDArray[np.float32], rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Inner products of some rows.

    Rows are much alike, and what they differ by would be lost in products of single precision: these are of
    the rows less their mean only.
    """
    gram = np.zeros((len(rows), len(rows)))
    for columns in column_blocks(features.shape[1]):
        block = features[rows, columns]
        mean = block.mean(axis=0)
        block -= mean
        along = block @ mean.astype(np.float64)
        gram += block @ block.T
        gram += along[:, None] + along + np.square(mean, dtype=np.float64).sum()
    return gram


def scores_of(
    dual: NDArray[np.float64],
    features: NDArray[np.float32],
    rows: NDArray[np.intp],
    others: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Inner products of others with some rows, times the coefficients of these."""
    scores = np.zeros((len(others), dual.shape[1]))
    for columns in column_blocks(features.shape[1]):
        scores += others[:, columns] @ (features[rows, columns].T @ dual)
    return scores


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


def digits_by_size(result: dict[str, Any]) -> str:
    """Make the table of the right panel."""
    rows = [row for row in result["rows"] if row["settings"]["features"] != "CDF"]
    sizes = sorted({row["settings"]["per class"] for row in rows})
    lines: dict[tuple[str, str, str], dict[int, str]] = {}
    for row in rows:
        settings = row["settings"]
        is_cdf = "n" in settings
        key = (
            f"CDF({settings['n']}, {settings['m']})" if is_cdf else settings["features"],
            settings.get("range", ""),
            str(len(row["runs"])),
        )
        paper = "" if row["paper"] is None else f", paper {row['paper']:.2f}"
        lines.setdefault(key, {})[settings["per class"]] = to_hundredths(row) + paper
    header = ["features", "thresholds", "training sets", *(f"{size:,} of each class" for size in sizes)]
    return markdown_table(
        header, [[*key, *(cells.get(size, "") for size in sizes)] for key, cells in lines.items()]
    )
