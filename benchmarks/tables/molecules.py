"""002 Table 1: atomisation energies of molecules (QM7) from their Coulomb matrices.

The official folds cannot be had: the five used here are stratified ones made anew. Bandwidth,
penalty and the bandwidth of the second layer are chosen for each fold by cross-validation over the
other four. The second layer is the Gaussian kernel itself, which the paper's random features approach.
Beside the paper's rows stand those of the Laplacian kernel of the L1 norm, with fewer orders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from benchmarks.tables.common import Table
from benchmarks.tables.ridge import cdf_thresholds, gaussian_of, gram, inner_errors, predictions
from segkit.evaluation.statistics import student_interval
from segkit.invariance import GroupCDF, Identity, NormSortedPermutation, OrbitFourier, OrbitNystroem
from segkit.kernels import Gaussian, L1Laplacian

PENALTIES = tuple(10.0**k for k in range(-8, -2))
# Bandwidths as multiples of the median distance.
WIDTHS = (5.0, 10.0, 20.0)
# Of the second layer: its penalties, bandwidths of the first layer below it, and its own squared bandwidths as
# multiples of the median squared distance of the features.
SECOND_PENALTIES = PENALTIES[2:5]
FIRST_WIDTHS = WIDTHS[:2]
SECOND_WIDTHS = (3.0, 10.0)
MOST_LANDMARKS = 4000
# Of the L1 Laplacian: bandwidths as multiples of the median L1 distance, penalties, and orders of the atoms.
L1_WIDTHS = (5.0, 20.0)
L1_PENALTIES = tuple(10.0**k for k in range(-9, -2))
L1_ORDERS = 8
PAPER = {
    ("original", "Fourier"): (14.01, 13.78),
    ("original", "Nystroem"): (13.97, 13.81),
    ("original", "exact kernel"): (13.48, None),
    ("sorted", "Fourier"): (12.89, 12.49),
    ("sorted", "Nystroem"): (12.83, 12.51),
    ("sorted", "exact kernel"): (12.59, None),
    ("orbit", "Fourier"): (10.82, 10.05),
    ("orbit", "Nystroem"): (10.87, 10.45),
}


def run(name: str, *, quick: bool, out: Path, data: Path) -> None:
    n_templates, n_orders = (50, 3) if quick else (10_000, 70)
    table = Table(
        name,
        "A. Raj et al. 2017, Table 1",
        "root mean squared error in kcal/mol over five folds",
        quick,
        out,
        data,
        notes=[
            f"{n_templates:,} templates; orbits of {n_orders} orders of the atoms, rows sorted by norm plus noise of "
            f"standard deviation 1. Folds are not the official ones.",
            f"Nystroem: {MOST_LANDMARKS:,} landmarks; CDF: 250 templates with 25 thresholds each.",
            "Second layer: the Gaussian kernel of the features, which the paper's random features approach.",
            "Intervals: Student's t over the five folds. Folds share training data, so that they vary together: the "
            "intervals are too narrow rather than too wide.",
        ],
    )
    matrices, energies, folds = molecules(table)
    if quick:
        matrices, energies, folds = matrices[:150], energies[:150], folds[:150]
    [order] = NormSortedPermutation(noise=0.0).elements(matrices.shape[1:])
    ordered = NormSortedPermutation(noise=0.0).act(order, matrices)
    rows = np.random.default_rng(0).permutation(len(matrices))[:1000]
    median = float(np.median(pdist(ordered[rows].reshape(len(rows), -1))))
    gaussians = {width: Gaussian(1 / (2 * (width * median) ** 2)) for width in WIDTHS}
    orbit = {"group": NormSortedPermutation(noise=1.0), "n_transforms": n_orders}
    for kind, X, options in (
        ("orbit", matrices, orbit),
        ("sorted", ordered, {"group": Identity()}),
        ("original", matrices, {"group": Identity()}),
    ):
        for form, make in (("Fourier", fourier), ("Nystroem", nystroem), ("exact kernel", None)):
            if (kind, form) not in PAPER:
                continue
            grams = Grams(X, gaussians, make, n_templates, options)
            for layers, paper in zip((1, 2), PAPER[kind, form], strict=True):
                if paper is not None:
                    table.measure(
                        {"matrices": kind, "features": form, "layers": layers},
                        lambda grams=grams, layers=layers: nested(grams, energies, folds, layers),  # type: ignore[misc]
                        paper=paper,
                        note="atoms in the order of the file" if kind == "original" else "",
                    )
    median = float(np.median(pdist(ordered[rows].reshape(len(rows), -1), "cityblock")))
    laplacians = {width: L1Laplacian(1 / (width * median)) for width in L1_WIDTHS}
    few = orbit | {"n_transforms": min(L1_ORDERS, n_orders)}
    for kind, form, grams in (
        # in float64, which the smallest penalties need
        ("sorted", "exact kernel", Grams(ordered, laplacians, None, n_templates, {})),
        ("orbit", "Nystroem", Grams(matrices.astype(np.float64), laplacians, nystroem, n_templates, few)),
    ):
        table.measure(
            {"matrices": kind, "features": f"{form}, L1 Laplacian", "layers": 1},
            lambda grams=grams: nested(grams, energies, folds, 1, L1_PENALTIES),  # type: ignore[misc]
            note="kernel not in the paper" + (f"; {few['n_transforms']} orders" if kind == "orbit" else ""),
        )
    bins = orbit | {"thresholds": cdf_thresholds(matrices)}
    table.measure(
        {"matrices": "orbit", "features": "CDF", "layers": 1},
        lambda: nested(Grams(matrices, {1.0: None}, cdf, min(250, n_templates), bins), energies, folds, 1),
        paper=12.25,
        note="linear in the features; how the paper set up this comparison is not said",
    )
    table.quote({"matrices": "random", "features": "exact kernel", "layers": 1}, 11.40)
    table.write()


class Grams:
    """Gram matrices of one kind of features, at each bandwidth, made when asked for."""

    def __init__(
        self, X: Any, kernels: dict[float, Any], make: Any, n_templates: int, options: dict[str, Any]
    ) -> None:
        self.X, self.kernels, self.make = X, kernels, make
        self.n_templates, self.options = n_templates, options
        self.made: dict[float, Any] = {}

    def __getitem__(self, width: float) -> Any:
        if width not in self.made:
            if self.make is None:
                rows = self.X.reshape(len(self.X), -1)
                self.made[width] = self.kernels[width](rows.astype(np.float64))
            else:
                features = self.make(self.kernels[width], self.n_templates, self.options)
                self.made[width] = gram(features.fit_transform(self.X))
            print(f"  Gram matrix at bandwidth {width:g} x median", flush=True)
        return self.made[width]


def fourier(kernel: Any, n_templates: int, options: dict[str, Any]) -> Any:
    return OrbitFourier(kernel, n_components=2 * n_templates, random_state=0, **options)


def nystroem(kernel: Any, n_templates: int, options: dict[str, Any]) -> Any:
    return OrbitNystroem(kernel, n_components=min(n_templates, MOST_LANDMARKS), random_state=0, **options)


def cdf(kernel: Any, n_templates: int, options: dict[str, Any]) -> Any:  # noqa: ARG001
    return GroupCDF(n_templates=n_templates, random_state=0, **options)


def nested(
    grams: Grams, energies: Any, folds: Any, layers: int, penalties: tuple[float, ...] = PENALTIES
) -> dict[str, Any]:
    """Error on each fold with the settings that the other four chose."""
    candidates: dict[Any, Any] = {}
    widths, seconds = (tuple(grams.kernels), (None,)) if layers == 1 else (FIRST_WIDTHS, SECOND_WIDTHS)
    if layers == 2:
        penalties = SECOND_PENALTIES
    for width in widths:
        for second in seconds:
            found = inner_errors(layer(grams[width], second), energies, folds, penalties)
            for (fold, penalty), error in found.items():
                candidates.setdefault(fold, {})[width, second, penalty] = error
    squared, chosen = np.zeros(len(energies)), {}
    for fold, errors in candidates.items():
        width, second, penalty = min(errors, key=errors.__getitem__)
        chosen[fold] = {"width": width, "second_width": second, "penalty": penalty}
        products = layer(grams[width], second)
        held = folds == fold
        [(_, predicted)] = predictions(
            products[np.ix_(~held, ~held)], products[np.ix_(held, ~held)], energies[~held], [penalty]
        )
        squared[held] = (predicted - energies[held]) ** 2
    by_fold = [float(np.sqrt(squared[folds == fold].mean())) for fold in sorted(candidates)]
    return {
        "value": float(np.mean(by_fold)),
        "interval": list(student_interval(by_fold)),
        "by_fold": by_fold,
        "pooled": float(np.sqrt(squared.mean())),
        "chosen": chosen,
    }


def layer(products: Any, second: float | None) -> Any:
    """Give the Gram matrix itself, or that of the Gaussian kernel on top."""
    if second is None:
        return products
    norms = np.diag(products)
    median = np.median(norms[:1000, None] + norms[:1000] - 2 * products[:1000, :1000])
    return gaussian_of(products, norms, norms, 1 / (second * median))


def molecules(table: Table) -> tuple[Any, Any, Any]:
    """Coulomb matrices (n, 23, 23), energies and folds."""
    stored = table.read("kernel-data/qm7/qm7.npz")
    upper = table.read("kernel-data/qm7/qm7_coulomb_triu.npz")["X_triu"]
    rows, cols = np.triu_indices(23)
    matrices = np.zeros((len(upper), 23, 23), dtype=np.float32)
    matrices[:, rows, cols] = matrices[:, cols, rows] = upper
    return matrices, stored["T"].astype(np.float64), stored["fold_regen"]
