"""How often conditional covariance minimisation finds the informative features of synthetic data.

Ten features, of which three or four matter; the selector knows how many. Compared are the default
`ConditionalCovarianceSelector`, the scheme of the method's authors (fixed steps from equal weights, their
projection) on the very same draws, and recorded statistics of the authors' code, on these draws too:

    python -m benchmarks.ccm_recovery --reference ccm_synthetic_medrank.json
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import result_path, write_result
from segkit.benchmark.machine import machine
from segkit.kernels.covariance import ExactObjective
from segkit.selection import ConditionalCovarianceSelector

Draw = tuple[NDArray[np.float64], NDArray[Any]]
N_FEATURES = 10


def orange_skin(n: int, rng: np.random.RandomState) -> Draw:
    """Half N(0, I) given 9 < sum of the first four squares < 16, half N(0, I), in random order."""
    shell: list[NDArray[np.float64]] = []
    while len(shell) < n // 2:
        x = rng.standard_normal(N_FEATURES)
        if 9 < (x[:4] ** 2).sum() < 16:
            shell.append(x)
    X = np.concatenate([shell, rng.standard_normal((n // 2, N_FEATURES))])
    order = rng.permutation(n)
    return X[order], np.repeat([-1, 1], n // 2)[order]


def xor(n: int, rng: np.random.RandomState) -> Draw:
    """Put the first three features about a corner of {-1, 1}^3; opposite corners share one of 4 classes."""
    halves = np.array([[1, 1, 1], [1, 1, -1], [1, -1, -1], [-1, 1, -1]])
    corners = np.stack([halves, -halves], axis=1).reshape(8, 3)
    corner = np.repeat(np.arange(8), np.diff(np.linspace(0, n, 9, dtype=int)))
    X = rng.standard_normal((n, N_FEATURES))
    X[:, :3] += corners[corner]
    order = rng.permutation(n)
    return X[order], (corner // 2)[order]


def regression(n: int, rng: np.random.RandomState) -> Draw:
    """Draw a target of four features: -2 sin(2 x1) + max(x2, 0) + x3 + exp(-x4) + noise."""
    X = rng.standard_normal((n, N_FEATURES))
    signal = -2 * np.sin(2 * X[:, 0]) + np.maximum(X[:, 1], 0) + X[:, 2] + np.exp(-X[:, 3])
    return X, signal + rng.standard_normal(n)


class Task(NamedTuple):
    """A generator, the number of features that matter (the first ones), and the authors' settings."""

    draw: Callable[[int, np.random.RandomState], Draw]
    n_informative: int
    epsilon: float
    steps: int


TASKS = {
    "orange_skin": Task(orange_skin, 4, 1e-3, 100),
    "XOR": Task(xor, 3, 1e-3, 100),
    "regression": Task(regression, 4, 0.1, 1000),
}
SIZES = (10, 20, 40, 60, 80, 100)


def shuffled_draw(
    task: str, n: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[np.bool_]]:
    """Draw X, y and which columns matter.

    The legacy generator repeats the draws that the authors' statistics were recorded on. The columns
    are shuffled: a solver that never leaves equal weights would else "find" the first ones.
    """
    X, y = TASKS[task].draw(n, np.random.RandomState(seed))
    order = np.random.default_rng(seed).permutation(N_FEATURES)
    return X[:, order], y, order < TASKS[task].n_informative


def default_selection(X: NDArray[np.float64], y: NDArray[Any], task: str) -> NDArray[np.bool_]:
    """Features that the default selector keeps."""
    selector = ConditionalCovarianceSelector(n_features_to_select=TASKS[task].n_informative)
    return selector.fit(X, y).get_support()


def authors_selection(X: NDArray[np.float64], y: NDArray[Any], task: str) -> NDArray[np.bool_]:
    """Features with the largest weights after the authors' number of fixed steps."""
    _, m, epsilon, steps = TASKS[task]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Y = (y[:, None] == np.unique(y)).astype(float) if task == "XOR" else y[:, None]
    sigma = float(np.median(np.linalg.norm(X[:, None] - X, axis=2)))
    objective = ExactObjective(X, Y, sigma, epsilon)
    w = np.full(N_FEATURES, m / N_FEATURES)
    for _ in range(steps):
        _, gradient = objective.value_and_gradient(w)
        w = _authors_projection(w - 1e-3 * gradient, m)
    return np.argsort(np.argsort(-w, kind="stable")) < m


def _authors_projection(w: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    """Clip to [0, 1], then project onto the simplex of sum m; this is not the nearest feasible point."""
    w = np.clip(w, 0, 1)
    if w.sum() <= m:
        return w
    falling = np.sort(w)[::-1]
    shifts = (np.cumsum(falling) - m) / np.arange(1, len(w) + 1)
    return np.maximum(w - shifts[np.flatnonzero(falling > shifts)[-1]], 0)


def recovery(select: Callable[..., NDArray[np.bool_]], task: str, n: int, seeds: int) -> dict[str, float]:
    """Share of draws whose informative features are all found, and mean share of them found."""
    recalls = []
    for seed in range(seeds):
        X, y, informative = shuffled_draw(task, n, seed)
        recalls.append(select(X, y, task)[informative].mean())
    return {"exact_recovery": float(np.mean(np.equal(recalls, 1))), "mean_recall": float(np.mean(recalls))}


def standard_errors_below(ours: float, theirs: float, n_ours: int, n_theirs: int) -> float:
    """Return by how many standard errors our rate is lower, a hit and a miss added to each."""
    p = (ours * n_ours + 1) / (n_ours + 2)
    q = (theirs * n_theirs + 1) / (n_theirs + 2)
    return (q - p) / math.sqrt(p * (1 - p) / (n_ours + 2) + q * (1 - q) / (n_theirs + 2))


def run(
    seeds: int, sizes: tuple[int, ...], recorded: dict[tuple[str, int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row of numbers for each task and number of samples, printed as they come."""
    rows = []
    print(f"{'task':12} {'n':>4}   default        authors' scheme  authors' recorded  SE below recorded")
    for task in TASKS:
        for n in sizes:
            row: dict[str, Any] = {"task": task, "n": n, "seeds": seeds}
            row["default"] = recovery(default_selection, task, n, seeds)
            row["authors_scheme"] = recovery(authors_selection, task, n, seeds)
            cells = [row["default"], row["authors_scheme"]]
            if reference := recorded.get((task, n)):
                row["authors_recorded"] = {
                    k: reference[k] for k in ("seeds", "exact_recovery", "mean_recall")
                }
                row["standard_errors_below_recorded"] = standard_errors_below(
                    row["default"]["exact_recovery"], reference["exact_recovery"], seeds, reference["seeds"]
                )
                cells.append(reference)
            text = "   ".join(f"{cell['exact_recovery']:.2f} ({cell['mean_recall']:.3f})" for cell in cells)
            print(
                f"{task:12} {n:4}   {text}   {row.get('standard_errors_below_recorded', math.nan):6.2f}",
                flush=True,
            )
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="20 seeds, two numbers of samples")
    parser.add_argument("--reference", type=Path, help="JSON of recorded statistics to compare with")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    recorded = json.loads(options.reference.read_text()) if options.reference else []
    seeds, sizes = (20, (20, 60)) if options.quick else (100, SIZES)
    rows = run(seeds, sizes, {(row["task"], row["n"]): row for row in recorded})
    write_result(result_path(options, "ccm_recovery.json"), {"cells": rows, "machine": machine()})


if __name__ == "__main__":
    main()
