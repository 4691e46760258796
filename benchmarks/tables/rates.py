"""004 Theorem 5.1 and 000 Theorem 2: how fast estimates reach their true values, beside the bounds.

004: estimated discrepancies (MMD), and the weights of kernels that follow from them. The classes are normal laws whose
means differ, so the discrepancy under a Gaussian kernel has a closed form. Samples of n points a class are drawn 40 times.
Rows have the error of the biased estimate of the theorem and of the unbiased one, and that of the weights (eq. 4.8), the
largest over the kernels; the bounds (5.1) and (5.3) are computed. Eq. 5.4 is not measured as printed: it lacks the true
value, and it is the difference from it that is normal in the limit, where the classes differ.

000: features of distribution functions come near their kernel K_s, which has a closed form for MNIST digits of unit norm
under all circular shifts, a unitary group. The integral of the product of two distribution functions over [-s, s] is s less
the mean of the larger of both projections, max(a, b) = (a + b + |a - b|) / 2, and the law of templates is the same in all
directions. So

    K_s(x, z) = s - E|t| E|u_1| / 2 * mean over g and g' of |g x - g' z|

with u uniform on the sphere and |t| the norm of a template of the law N(0, I / d), |t|^2 < 1 + eps. Errors are split as in
the proof: of the bins beside the integral over the drawn templates and elements, of the elements beside the whole group, and
of the templates beside K_s. Rows have the largest over all pairs of points, and the proof's bound with its constants,

    s / n + 6 s sqrt(log(4 m N^2 / delta) / (2 |G|)) + 2 s sqrt(log(2 N^2 / delta) / (2 m)),

which holds for all three at once with probability 1 - 2 delta. An error that all pairs share changes no differences between
orbits: the error less its mean stands there too.

The theorem asks for n >= 1 / eps_0 bins, but the proof's bound is s / n with s > 1: s / eps_0 are needed. The proof writes
the sum over the bins with the factor 2 s / n; the features have s / n, the step of the integral. The sum counts both ends:
the error of the bins is s / (2 n) on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaln

from benchmarks.markdown import markdown_table
from benchmarks.rows import Row, Study, flat
from segkit.invariance import GroupCDF, Translation
from segkit.kernels import Gaussian, mixture_weights, mmd_squared

Floats = NDArray[np.float64]

DIMENSION, SHIFT = 3, 1.0
GAMMAS = (1.6, 0.8, 0.4, 0.2, 0.1, 0.05)
SIZES = (25, 50, 100, 200, 400, 800, 1600)
CONFIDENCE = 0.95

EPSILON = 0.1
SCALE = 1 + EPSILON
DELTA = 0.025
# Templates, elements and bins: each is varied with the others as in the first; elements also with few templates.
USUAL = (300, 100, 50)
TEMPLATES = (10, 30, 100, 300, 1000)
ELEMENTS = BINS = (5, 10, 20, 50, 100, 200)
FEW = 10
PARTS = ("templates", "elements", "bins")


def run(study: Study) -> None:
    sizes, n_repeats = (SIZES[:3], 3) if study.quick else (SIZES, 40)
    for n in sizes:
        study.row({"n": n}, partial(errors_of_mmd, n, n_repeats, seed=0), what="004 theorem 5.1")
    n_points, n_draws = (4, 3) if study.quick else (10, 10)
    images = study.arrays("kernel-data/mnist/mnist.npz")["X_train"][:n_points] / 255
    images = images / np.linalg.norm(images, axis=(1, 2), keepdims=True)
    study.row({}, partial(kernel, images), what="000 theorem 1")
    for sweep, settings in sweeps(quick=study.quick).items():
        for m, r, n in settings:
            where = {"varied": sweep, "templates": m, "elements": r, "bins": n}
            study.row(where, partial(errors_of_features, images, m, r, n, n_draws), what="000 theorem 2")


def true_mmd_squared(gamma: float, dimension: int, shift: float) -> float:
    """Squared MMD of N(0, I) and N(m, I) with a mean m of this length, under exp(-gamma |x - y|^2).

    The difference of two independent points is N(0, 2 I) in a class and N(m, 2 I) between both. The expectation of the
    kernel of N(m, 2 I) is (1 + 4 gamma)^(-d/2) exp(-gamma |m|^2 / (1 + 4 gamma)).
    """
    spread = 1 + 4 * gamma
    return float(2 * spread ** (-dimension / 2) * -math.expm1(-gamma * shift**2 / spread))


def upper_bound(n: int, largest: float = 1.0, rho: float = 1 - CONFIDENCE) -> float:
    """Right side of eq. 5.1: the error is below it with probability 1 - rho."""
    return math.sqrt(6 * largest * math.log(math.e * n / 3) / n) + 2 * math.sqrt(
        largest / (2 * n) * math.log(2 / rho)
    )


def lower_bound(n: int, dimension: int, largest: float = 1.0) -> float:
    """Right side of eq. 5.3: for some pair of laws the error is above it with probability 1/5."""
    return 1 / (8 * math.sqrt(3 * (dimension + 1) * largest * n))


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


def errors_of_mmd(n: int, n_repeats: int, seed: int) -> dict[str, Any]:
    """Errors of n points a class: the largest over the kernels, then mean and quantile over draws."""
    rng = np.random.default_rng([seed, n])
    truth = np.sqrt([true_mmd_squared(gamma, DIMENSION, SHIFT) for gamma in GAMMAS])
    weights = mixture_weights(truth)
    row: dict[str, Any] = {"repeats": n_repeats}
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
    return row


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


def rates(rows: list[Row]) -> str:
    """Make the table: least and most points, and the slopes over all."""
    found = flat(rows, "004 theorem 5.1")
    sizes = [row["n"] for row in found]
    errors = {
        f"{statistic}: {title}": [row[statistic][name] for row in found]
        for statistic in ("biased", "unbiased")
        for name, title in (
            ("error", "mean error"),
            ("quantile", "error in 95 % of draws"),
            ("weights", "error of the weights"),
        )
    }
    errors["bound (5.1)"] = [upper_bound(n) for n in sizes]
    errors["bound (5.3)"] = [lower_bound(n, DIMENSION) for n in sizes]
    shown = [sizes.index(n) for n in (25, 200, 1600)]
    return markdown_table(
        ["", *(f"{sizes[k]:,} points a class" for k in shown), "slope"],
        (
            [name, *(f"{own[k]:.4f}" for k in shown), f"{slope(sizes, own):.2f}"]
            for name, own in errors.items()
        ),
    )


def kernel(images: Floats) -> dict[str, Any]:
    """Least and largest K_s, and how far K_s is from s - d_G with the larger bound of Theorem 1, delta_2."""
    truth, d = true_kernel(images, EPSILON), images[0].size
    off = truth - (SCALE - mean_distances(images) / math.sqrt(2 * math.pi * d))
    bound = math.exp(-d * EPSILON**2 / 16) / math.sqrt(d) + SCALE * math.exp(-d * EPSILON**2 / 8)
    return {
        "kernel": [float(truth.min()), float(truth.max())],
        "theorem_1": [float(np.abs(off).max()), bound],
    }


def sweeps(*, quick: bool) -> dict[str, list[tuple[int, int, int]]]:
    """List the templates, elements and bins of each sweep, by the number that varies."""
    m, r, n = (30, 20, 10) if quick else USUAL
    templates, elements, bins = ((sizes[:3] if quick else sizes) for sizes in (TEMPLATES, ELEMENTS, BINS))
    return {
        "templates": [(size, r, n) for size in templates],
        "elements": [(m, size, n) for size in elements],
        f"elements, {FEW} templates": [(FEW, size, n) for size in elements],
        "bins": [(m, r, size) for size in bins],
    }


def errors_of_features(images: Floats, m: int, r: int, n: int, n_draws: int) -> dict[str, Any]:
    """Errors of each draw, beside the bounds."""
    drawn = [parts_of_error(images, m, r, n, seed) for seed in range(n_draws)]
    errors = {name: [one[name] for one in drawn] for name in drawn[0]}
    return {"bounds": proof_bounds(m, r, n, len(images)), "errors": errors}


def parts_of_error(images: Floats, m: int, r: int, n: int, seed: int) -> dict[str, float]:
    """Draw m templates and r elements, and find the largest errors over pairs of images."""
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


def proof_bounds(m: int, r: int, n: int, n_points: int) -> dict[str, float]:
    found = {
        "templates": 2 * SCALE * math.sqrt(math.log(2 * n_points**2 / DELTA) / (2 * m)),
        "elements": 6 * SCALE * math.sqrt(math.log(4 * m * n_points**2 / DELTA) / (2 * r)),
        "bins": SCALE / n,
    }
    return found | {"total": sum(found.values())}


def true_kernel(images: Floats, epsilon: float) -> Floats:
    """K_s of images under all circular shifts, for Gaussian templates within a ball."""
    d = images[0].size
    return 1 + epsilon - mean_norm(d, epsilon) * mean_coordinate(d) / 2 * mean_distances(images)


def mean_distances(images: Floats) -> Floats:
    """Mean Euclidean distance over all circular shifts of both images; (n, n)."""
    distances: Floats = np.sqrt(squared_distances_of_shifts(images))
    return distances.mean(axis=-1)


def squared_distances_of_shifts(images: Floats) -> Floats:
    """Squared Euclidean distances of all images from all circular shifts of all; (n, n, number of pixels)."""
    n, *shape = images.shape
    spectra = np.fft.rfft2(images)
    products = np.fft.irfft2(spectra[:, None] * spectra[None].conj(), shape).reshape(n, n, -1)
    norms = np.square(images).sum(axis=(1, 2))
    return np.maximum(norms[:, None, None] + norms[None, :, None] - 2 * products, 0)


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


def cdf_error(rows: list[Row]) -> str:
    """Make the table: the error of what is varied at the ends of each sweep, its slope, and how far the bound is above."""
    found = flat(rows, "000 theorem 2")
    lines = []
    for sweep in dict.fromkeys(row["varied"] for row in found):
        own = [row for row in found if row["varied"] == sweep]
        part = sweep.split(",")[0]
        sizes = [row[part] for row in own]
        squared = np.square([row["errors"][part] for row in own]).T
        low, high = slope_interval(sizes, squared)
        fitted = slope(sizes, np.sqrt(squared.mean(axis=0)).tolist())
        ratios = [row["bounds"][part] / max(row["errors"][part]) for row in own]
        ends = [f"{np.mean(row['errors'][part]):.4f}" for row in (own[0], own[-1])]
        centred = [f"{np.mean(row['errors']['centred']):.5f}" for row in (own[0], own[-1])]
        lines.append(
            [
                f"{sweep}, {sizes[0]} to {sizes[-1]:,}",
                " to ".join(ends),
                f"{fitted:.2f} ({low:.2f} to {high:.2f})",
                f"{min(ratios):,.0f} to {max(ratios):,.0f}",
                " to ".join(centred),
            ]
        )
    header = [
        "varied",
        "its error",
        "slope (95 % interval)",
        "bound, times the largest error",
        "whole error, less its mean",
    ]
    return markdown_table(header, lines)


TABLES = {"rates": rates, "cdf_error": cdf_error}
