"""How fast estimated discrepancies, and the weights of kernels that follow from them, reach their true values.

    python -m benchmarks.rates [--repeats N] [--quick] [--out FILE]

Theorem 5.1 and corollary 5.1.1 of *Multiple kernel learning from U-statistics of empirical measures in the feature space*.
The classes are normal laws whose means differ, so the discrepancy (MMD) under a Gaussian kernel has a closed form. Samples
of n points a class are drawn many times. The table has the error of the biased estimate of the theorem and of the unbiased
one, that of the weights (eq. 4.8), the bounds (5.1) and (5.3), and the slope of the logarithm of the error against that of
n. Errors are the largest over the kernels. Eq. 5.4 is not measured as printed: it lacks the true value, and it is the
difference from it that is normal in the limit, where the classes differ.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.common import markdown_table, result_path, write_result
from segkit.kernels import Gaussian, mixture_weights, mmd_squared

Floats = NDArray[np.float64]

DIMENSION, SHIFT = 3, 1.0
GAMMAS = (1.6, 0.8, 0.4, 0.2, 0.1, 0.05)
SIZES = (25, 50, 100, 200, 400, 800, 1600)
CONFIDENCE = 0.95


def true_mmd_squared(gamma: float, dimension: int, shift: float) -> float:
    """Squared MMD of N(0, I) and N(m, I) with a mean m of this length, under exp(-gamma |x - y|^2).

    The difference of two independent points is N(0, 2 I) in a class and N(m, 2 I) between both. The expectation of the
    kernel of N(m, 2 I) is (1 + 4 gamma)^(-d/2) exp(-gamma |m|^2 / (1 + 4 gamma)).
    """
    spread = 1 + 4 * gamma
    return float(2 * spread ** (-dimension / 2) * -math.expm1(-gamma * shift**2 / spread))


def upper_bound(n: int, largest: float = 1.0, rho: float = 1 - CONFIDENCE) -> float:
    """Give the right side of eq. 5.1: the error is below it with probability 1 - rho."""
    return math.sqrt(6 * largest * math.log(math.e * n / 3) / n) + 2 * math.sqrt(
        largest / (2 * n) * math.log(2 / rho)
    )


def lower_bound(n: int, dimension: int, largest: float = 1.0) -> float:
    """Give the right side of eq. 5.3: for some pair of laws the error is above it with probability 1/5."""
    return 1 / (8 * math.sqrt(3 * (dimension + 1) * largest * n))


def slope(sizes: Sequence[int], errors: Sequence[float]) -> float:
    """Slope of the line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def slope_interval(
    sizes: Sequence[int], squared_errors: ArrayLike, n_resamples: int = 2000
) -> tuple[float, float]:
    """95 % bootstrap interval of the slope of the root of the mean square, over draws (n_draws, n_sizes)."""
    squared = np.asarray(squared_errors, dtype=np.float64)
    rows = np.random.default_rng(0).integers(len(squared), size=(n_resamples, len(squared)))
    means = squared[rows].mean(axis=1)
    means = means[(means > 0).all(axis=1)]
    slopes = np.polyfit(np.log(sizes), np.log(means).T / 2, 1)[0]
    low, high = np.quantile(slopes, [0.025, 0.975])
    return float(low), float(high)


def estimate(n: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Draw n points a class, and estimate the squared MMD under each kernel."""
    X = rng.standard_normal((2 * n, DIMENSION))
    X[n:, 0] += SHIFT
    y = np.repeat([0, 1], n)
    grams = [Gaussian(gamma)(X) for gamma in GAMMAS]
    return {
        statistic: np.array([mmd_squared(gram, y, statistic=statistic) for gram in grams])
        for statistic in ("biased", "unbiased")
    }


def measure(n: int, n_repeats: int, seed: int) -> dict[str, Any]:
    """Give errors of n points a class: the largest over the kernels, then mean and quantile over draws."""
    rng = np.random.default_rng([seed, n])
    truth = np.sqrt([true_mmd_squared(gamma, DIMENSION, SHIFT) for gamma in GAMMAS])
    weights = mixture_weights(truth)
    row: dict[str, Any] = {"n": n, "repeats": n_repeats}
    drawn = [estimate(n, rng) for _ in range(n_repeats)]
    for statistic in ("biased", "unbiased"):
        found = np.sqrt(np.maximum([one[statistic] for one in drawn], 0))
        errors = np.abs(found - truth).max(axis=1)
        of_weights = [np.abs(mixture_weights(one) - weights).max() for one in found if one.any()]
        row[statistic] = {
            "error": float(errors.mean()),
            "quantile": float(np.quantile(errors, CONFIDENCE)),
            "weights": float(np.mean(of_weights)),
            "bias": float((found - truth).mean()),
        }
    return row | {"upper_bound": upper_bound(n), "lower_bound": lower_bound(n, DIMENSION)}


def rates(result: dict[str, Any]) -> str:
    """Make the table."""
    rows = result["rows"]
    sizes = [row["n"] for row in rows]
    columns = [
        (statistic, name) for statistic in ("biased", "unbiased") for name in ("error", "quantile", "weights")
    ]
    lines = [
        (
            row["n"],
            *(f"{row[statistic][name]:.4f}" for statistic, name in columns),
            f"{row['upper_bound']:.3f}",
            f"{row['lower_bound']:.4f}",
        )
        for row in rows
    ]
    slopes = [f"{slope(sizes, [row[statistic][name] for row in rows]):.2f}" for statistic, name in columns]
    names = {"error": "mean error", "quantile": "error in 95 % of draws", "weights": "error of the weights"}
    header = ["points a class", *(f"{statistic}: {names[name]}" for statistic, name in columns)]
    return markdown_table(
        [*header, "bound (5.1)", "bound (5.3)"],
        [*lines, ("slope", *slopes, f"{slope(sizes, [row['upper_bound'] for row in rows]):.2f}", "-0.50")],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=100, help="draws of each size")
    parser.add_argument("--quick", action="store_true", help="few small draws: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    sizes, n_repeats = (SIZES[:3], 3) if arguments.quick else (SIZES, arguments.repeats)
    result: dict[str, Any] = {"dimension": DIMENSION, "shift": SHIFT, "gammas": list(GAMMAS), "rows": []}
    for n in sizes:
        result["rows"].append(measure(n, n_repeats, seed=0))
        write_result(result_path(arguments, "rates.json"), result)
    print(rates(result))


if __name__ == "__main__":
    main()
