"""000, supplement, Figure 4: the sequences of Figure 1 by numbers of bins, templates and sampled permutations.

The supplement trains on 2,000 sequences of each class and tests on all others. It prints curves, and neither the
numbers of bins, templates and permutations nor the number of repeats. Its sentence that "all classification results"
are from 4,000 training points can hold for Figure 4 only: Figures 1 and 5 vary the training set. Its templates are
standard normal, those of section 3 have variance 1 / d; with thresholds in the unit of the projections it is the same.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import markdown_table
from benchmarks.tables.common import RegularizedLeastSquares, Table, to_hundredths
from benchmarks.tables.xperm import (
    LENGTH,
    N_CHARACTERS,
    Representation,
    multisets,
    one_hot,
    repeat,
    representations,
    sequences,
)
from segkit.invariance import Permutation
from segkit.invariance.cdf import GroupCDF

N_PERMUTATIONS = 120
# Thresholds of the range "data" reach this many standard deviations of the projection of a sequence.
REACH = 3.0


class Sizes(NamedTuple):
    """How much of everything."""

    per_class: int
    bins: tuple[int, ...]
    templates: tuple[int, ...]
    elements: tuple[int, ...]
    templates_of_elements: tuple[int, ...]
    n_repeats: int


FULL = Sizes(2000, (1, 2, 5, 10, 25), (1, 5, 10, 25, 50, 100), (1, 2, 5, 10, 30, 60), (1, 10, 25), 10)
QUICK = Sizes(200, (1, 5), (1, 5), (2,), (1, 5), 2)


def run(name: str, *, quick: bool, out: Path, data: Path) -> None:
    sizes = QUICK if quick else FULL
    table = Table(
        name,
        "Y. Mroueh et al. 2015, supplement, Figure 4",
        f"accuracy in percent of regularised least squares on all other sequences, mean over {sizes.n_repeats} repeats",
        quick,
        out,
        data,
        notes=[
            f"{sizes.per_class:,} training sequences of each class. Each repeat draws training set, templates and "
            "permutations anew. The paper shows curves without numbers, and does not state the sizes.",
            f"Permutations are drawn independently, as in Theorem 3, so that one may occur twice; {N_PERMUTATIONS} are all "
            "of them, once each. n gives 2n + 1 thresholds.",
            "On [-s, s], the range of eq. 3, n = 1 and 2 leave hardly any threshold but 0 among the projections. "
            f'"data" is {REACH:g} standard deviations of a projection either way.',
        ],
    )
    for method in ("raw", "bag of words", "Haar kernel"):
        measure = functools.partial(
            repeat, representations()[method], RegularizedLeastSquares, sizes.per_class, sizes.n_repeats
        )
        table.measure({"features": method}, measure)
    for n, m, n_elements, reach in grid(sizes):
        represent = functools.partial(cdf, n, m, n_elements, reach)
        measure = functools.partial(
            repeat, represent, RegularizedLeastSquares, sizes.per_class, sizes.n_repeats
        )
        settings = {"features": "CDF", "n": n, "m": m, "permutations": n_elements, "range": reach}
        table.measure(settings, measure)
    table.write()


def grid(sizes: Sizes) -> list[tuple[int, int, int, str]]:
    """List bins, templates, permutations and range: right panel, with another range, and left panel."""
    most, middle = sizes.templates_of_elements[-1], (25 if 25 in sizes.bins else sizes.bins[-1])
    right = [(n, m, N_PERMUTATIONS, "[-s, s]") for n, m in itertools.product(sizes.bins, sizes.templates)]
    other_range = [(n, most, N_PERMUTATIONS, "data") for n in sizes.bins]
    left = [
        (middle, m, n_elements, "[-s, s]")
        for m, n_elements in itertools.product(sizes.templates_of_elements, sizes.elements)
    ]
    return right + other_range + left


def cdf(n_bins: int, n_templates: int, n_elements: int, reach: str, seed: int) -> Representation:
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
    representatives, rows = multisets()
    if not of_all:
        representatives, rows = sequences(), np.arange(len(sequences()))
    samples = (one_hot(representatives) / np.sqrt(LENGTH)).astype(np.float64 if of_all else np.float32)
    return Representation(fewest_columns(features.fit_transform(samples)), rows)


def fewest_columns(features: NDArray[np.floating]) -> NDArray[np.floating]:
    """Turn features into no more columns than rows, of the same inner products."""
    if features.shape[1] <= len(features):
        return features
    return np.linalg.qr(features.T, mode="r").T


def permutation_task(result: dict[str, Any]) -> str:
    """Make the tables of both panels, and a line of the representations without templates."""
    rows = {tuple(row["settings"].values()): row for row in result["rows"]}
    keys = [key for key in rows if len(key) > 1]
    found = []
    for title, axis, of_panel in (
        ("bins n", 1, lambda key: key[3:] == (N_PERMUTATIONS, "[-s, s]")),
        ("permutations", 3, lambda key: key[1] == 25 and key[4] == "[-s, s]"),
    ):
        panel = [key for key in keys if of_panel(key)]
        values, templates = (sorted({key[place] for key in panel}) for place in (axis, 2))
        if axis == 3:  # of the numbers of templates that were run with few permutations
            templates = [m for m in templates if sum(key[2] == m for key in panel) > 1]
        lines = []
        for value in values:
            cells = {key[2]: to_hundredths(rows[key]) for key in panel if key[axis] == value}
            lines.append([value, *(cells.get(m, "") for m in templates)])
        found.append(markdown_table([title, *(f"{m} template{'s' * (m > 1)}" for m in templates)], lines))
    others = "; ".join(f"{key[0]} {to_hundredths(row)}" for key, row in rows.items() if len(key) == 1)
    return "\n".join([*found, f"Without templates: {others}."])
