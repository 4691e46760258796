"""How near features of distribution functions come to their kernel, beside the bound: Y. Mroueh et al. 2015, Theorem 2.

    python -m benchmarks.cdf_error [--draws N] [--quick] [--data FOLDER] [--out FILE]

MNIST digits of unit norm (noise where they are absent) under all circular shifts, a unitary group. The kernel K_s has a
closed form. The integral of the product of two distribution functions over [-s, s] is s less the mean of the larger of both
projections, max(a, b) = (a + b + |a - b|) / 2, and the law of templates is the same in all directions. So

    K_s(x, z) = s - E|t| E|u_1| / 2 * mean over g and g' of |g x - g' z|

with u uniform on the sphere and |t| the norm of a template of the law N(0, I / d), |t|^2 < 1 + eps. Errors are split as in
the proof: of the bins beside the integral over the drawn templates and elements, of the elements beside the whole group, and
of the templates beside K_s. The table has the largest over all pairs of points, and the proof's bound with its constants,

    s / n + 6 s sqrt(log(4 m N^2 / delta) / (2 |G|)) + 2 s sqrt(log(2 N^2 / delta) / (2 m)),

which holds for all three at once with probability 1 - 2 delta. An error that all pairs share changes no differences between
orbits: the error less its mean stands there too.

The theorem asks for n >= 1 / eps_0 bins, but the proof's bound is s / n with s > 1: s / eps_0 are needed. The proof writes
the sum over the bins with the factor 2 s / n; the features have s / n, the step of the integral. The sum counts both ends:
the error of the bins is s / (2 n) on average.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln

from benchmarks.common import markdown_table, result_path, write_result
from benchmarks.orbit_error import load_digits
from benchmarks.rates import slope, slope_interval
from segkit.invariance import GroupCDF, Translation

Floats = NDArray[np.float64]

DATA = Path(__file__).parents[2] / "shared"
EPSILON = 0.1
SCALE = 1 + EPSILON
DELTA = 0.025
# Templates, elements and bins: each is varied with the others as in the first; elements also with few templates.
USUAL = (300, 100, 50)
TEMPLATES = (10, 30, 100, 300, 1000)
ELEMENTS = (5, 10, 20, 50, 100, 200)
BINS = (5, 10, 20, 50, 100, 200)
FEW = 10
PARTS = ("templates", "elements", "bins")


def true_kernel(images: Floats, epsilon: float) -> Floats:
    """K_s of images under all circular shifts, for Gaussian templates within a ball."""
    distances = mean_distances(images)
    d = images[0].size
    return 1 + epsilon - mean_norm(d, epsilon) * mean_coordinate(d) / 2 * distances


def mean_distances(images: Floats) -> Floats:
    """Mean Euclidean distance over all circular shifts of both images; (n, n)."""
    n, *shape = images.shape
    spectra = np.fft.rfft2(images)
    products = np.fft.irfft2(spectra[:, None] * spectra[None].conj(), shape).reshape(n, n, -1)
    norms = np.square(images).sum(axis=(1, 2))
    distances: Floats = np.sqrt(np.maximum(norms[:, None, None] + norms[None, :, None] - 2 * products, 0))
    return distances.mean(axis=-1)


def mean_norm(d: int, epsilon: float) -> float:
    """Mean norm of a draw from N(0, I / d) whose squared norm is below 1 + epsilon."""
    limit = d * (1 + epsilon) / 2
    whole = math.sqrt(2 / d) * math.exp(gammaln((d + 1) / 2) - gammaln(d / 2))
    return float(whole * gammainc((d + 1) / 2, limit) / gammainc(d / 2, limit))


def mean_coordinate(d: int) -> float:
    """Mean absolute value of a coordinate of a point that is uniform on the unit sphere."""
    return math.exp(gammaln(d / 2) - gammaln((d + 1) / 2)) / math.sqrt(math.pi)


def projections(images: Floats, templates: Floats) -> Floats:
    """Inner products of images with all circular shifts of templates; (n, m, H, W)."""
    spectra = np.fft.rfft2(images)[:, None] * np.fft.rfft2(templates)[None].conj()
    return np.fft.irfft2(spectra, images.shape[1:])


def integrals(values: Floats) -> Floats:
    """Integrate products of distribution functions of projections (n, m, r) over [-s, s], mean over templates; (n, n)."""
    n, m, r = values.shape
    ordered = np.sort(values, axis=-1)
    gram = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for left, right in zip(ordered[i], ordered[j], strict=True):
                # the larger of two is left as often as right lies at or below it
                total += left @ np.searchsorted(right, left, side="right")
                total += right @ np.searchsorted(left, right, side="left")
            gram[i, j] = gram[j, i] = SCALE - total / (m * r**2)
    return gram


def parts_of_error(images: Floats, m: int, r: int, n: int, seed: int) -> dict[str, float]:
    """Draw m templates and r elements, and give the largest errors over pairs of images."""
    cdf = GroupCDF(m, n_bins=n, group=Translation(), n_transforms=r, epsilon=EPSILON, random_state=seed).fit(
        images
    )
    features = cdf.transform(images)
    values = projections(images, cdf.templates_)
    rows, cols = np.transpose(list(cdf.elements_))
    drawn = integrals(values[..., rows, cols])
    whole = integrals(values.reshape(len(images), m, -1))
    estimate, truth = features @ features.T, true_kernel(images, EPSILON)
    errors = {
        "templates": whole - truth,
        "elements": drawn - whole,
        "bins": estimate - drawn,
        "total": estimate - truth,
    }
    errors["centred"] = errors["total"] - errors["total"].mean()
    return {name: float(np.abs(error).max()) for name, error in errors.items()}


def bounds(m: int, r: int, n: int, n_points: int) -> dict[str, float]:
    """Give the bound of each part, all of which hold with probability 1 - 2 delta, and their sum."""
    found = {
        "templates": 2 * SCALE * math.sqrt(math.log(2 * n_points**2 / DELTA) / (2 * m)),
        "elements": 6 * SCALE * math.sqrt(math.log(4 * m * n_points**2 / DELTA) / (2 * r)),
        "bins": SCALE / n,
    }
    return found | {"total": sum(found.values())}


def measure(images: Floats, m: int, r: int, n: int, n_draws: int) -> dict[str, Any]:
    """Errors of one setting: mean, 95 % quantile, and those of each draw, beside the bounds."""
    drawn = [parts_of_error(images, m, r, n, seed) for seed in range(n_draws)]
    row: dict[str, Any] = {"templates": m, "elements": r, "bins": n, "bounds": bounds(m, r, n, len(images))}
    row["errors"] = {name: [one[name] for one in drawn] for name in drawn[0]}
    return row


def sweeps(*, quick: bool) -> dict[str, list[tuple[int, int, int]]]:
    """Give the settings of each sweep, templates, elements and bins, by the number that varies."""
    m, r, n = (30, 20, 10) if quick else USUAL
    templates, elements, bins = ((sizes[:3] if quick else sizes) for sizes in (TEMPLATES, ELEMENTS, BINS))
    return {
        "templates": [(size, r, n) for size in templates],
        "elements": [(m, size, n) for size in elements],
        f"elements, {FEW} templates": [(FEW, size, n) for size in elements],
        "bins": [(m, r, size) for size in bins],
    }


def cdf_error(result: dict[str, Any]) -> str:
    """Make the table."""
    lines = []
    for sweep, rows in result["sweeps"].items():
        part = sweep.split(",")[0]
        lines.extend(
            (
                sweep,
                *(row[name] for name in PARTS),
                *(cells(row, name) for name in (*PARTS, "total")),
                rest(row),
            )
            for row in rows
        )
        sizes = [row[part] for row in rows]
        squared = np.square([row["errors"][part] for row in rows]).T
        fitted = slope(sizes, np.sqrt(squared.mean(axis=0)).tolist())
        low, high = slope_interval(sizes, squared)
        of_part = [f"{fitted:.2f} ({low:.2f} to {high:.2f})" if name == part else "" for name in PARTS]
        lines.append((f"slope, {sweep}", "", "", "", *of_part, "", ""))
    header = [
        "varied",
        "templates",
        "elements",
        "bins",
        *(f"error of {name}" for name in PARTS),
        "whole error",
        "less its mean",
    ]
    return markdown_table(header, lines)


def cells(row: dict[str, Any], name: str) -> str:
    """Write the mean error, and the bound."""
    return f"{np.mean(row['errors'][name]):.4f} ({row['bounds'][name]:.2f})"


def rest(row: dict[str, Any]) -> str:
    return f"{np.mean(row['errors']['centred']):.5f}"


def looseness(result: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Give the least and the most that a bound is above the largest error of any draw, as a ratio."""
    rows = [row for sweep in result["sweeps"].values() for row in sweep]
    found = {}
    for name in (*PARTS, "total"):
        ratios = [row["bounds"][name] / max(row["errors"][name]) for row in rows]
        found[name] = (min(ratios), max(ratios))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=20, help="draws of each setting")
    parser.add_argument("--quick", action="store_true", help="few small draws: does it run?")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with kernel-data/mnist")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    n_points, n_draws = (4, 3) if arguments.quick else (10, arguments.draws)
    images, data = load_digits(arguments.data, n_points)
    images = images / np.linalg.norm(images, axis=(1, 2), keepdims=True)
    truth, d = true_kernel(images, EPSILON), images[0].size
    of_theorem = SCALE - mean_distances(images) / math.sqrt(2 * math.pi * d)
    result: dict[str, Any] = {
        "data": data,
        "n_points": n_points,
        "epsilon": EPSILON,
        "delta": DELTA,
        "n_draws": n_draws,
        "kernel": [float(truth.min()), float(truth.max())],
        # Theorem 1: K_s beside s - d_G, and the larger of its bounds
        "theorem_1": [float(np.abs(truth - of_theorem).max()), theorem_1(d, EPSILON)],
        "sweeps": {},
    }
    out = result_path(arguments, "cdf_error.json")
    for sweep, settings in sweeps(quick=arguments.quick).items():
        result["sweeps"][sweep] = [measure(images, m, r, n, n_draws) for m, r, n in settings]
        write_result(out, result)
    print(cdf_error(result), looseness(result), result["kernel"], result["theorem_1"], sep="\n")


def theorem_1(d: int, epsilon: float) -> float:
    """Give delta_2 of Theorem 1, its bound on how far K_s lies below s - d_G."""
    return math.exp(-d * epsilon**2 / 16) / math.sqrt(d) + (1 + epsilon) * math.exp(-d * epsilon**2 / 8)


if __name__ == "__main__":
    main()
