"""002 Figure 1 and Theorem 3.1: how orbit embeddings approach the averaged kernel, and which part of the error is whose.

An embedding of s frequencies and r drawn transformations errs twice: in the frequencies, beside the kernel averaged over
the same r transformations, and in the transformations, beside the average over all of them. Errors are of Gram matrices,
relative to the norm of the true one, roots of mean squares over seeds.

Figure 1 is of Coulomb matrices (QM7) in random orders. Their law cannot be summed over, so the truth is the mean over the
pairs of other, many more orders, drawn twice: the product of the differences from both halves has the squared error as its
expectation, whatever the halves err. The paper's "true kernel" is drawn too, of 70 orders. The bandwidth, which the paper
does not tell, is the median distance of the sorted matrices.

Theorem 3.1 has two terms in r. Pairs of a transformation with itself raise the expectation by (D - K) / r, with K the
true kernel and D(x, z) = E k(g x, g z): that is its 1 / r. The other pairs are a U-statistic, whose error the theorem
bounds by the order of r^-1/2. MNIST digits under circular shifts have both in closed form, by the law of the difference of
two shifts: over all shifts, a whole group with its uniform law, the mean over one of the two transformations is the true
kernel already, so the U-statistic is degenerate and the error is of the order 1 / r. A window of shifts is no group: there
it is r^-1/2.

The appendix says that a change of one transformation moves the U-statistic by at most 1 / r. It is in 2 (r - 1) of its
r (r - 1) pairs: 2 / r, and the exponent of eq. 11 is - r eps^2 / 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.markdown import markdown_table
from benchmarks.rows import Row, Study, flat
from benchmarks.tables.orbit_features import coulomb_matrices, gaussian, median_distance
from benchmarks.tables.rates import slope, slope_interval, squared_distances_of_shifts
from segkit.invariance import NormSortedPermutation, OrbitFourier, Translation
from segkit.kernels import Gaussian

Floats = NDArray[np.float64]

N_TRANSFORMS = (20, 40, 70)
N_FREQUENCIES = (50, 100, 200, 500, 1000, 2000, 5000)
NORMS: dict[str, Any] = {"spectral": 2, "frobenius": "fro"}
# Numbers of drawn transformations, for the rate, and of those that the truth is taken from, in each half.
N_DRAWN = (5, 10, 20, 40, 80, 160)
N_REFERENCE = 500
MAX_SHIFT = 5


def run(study: Study) -> None:
    n, n_images, n_reference = (12, 5, 20) if study.quick else (100, 40, N_REFERENCE)
    n_seeds, n_draws, sizes, drawn = (
        (2, 2, N_FREQUENCIES[:3], N_DRAWN[:3]) if study.quick else (5, 20, N_FREQUENCIES, N_DRAWN)
    )
    upper = study.arrays("kernel-data/qm7/qm7_coulomb_triu.npz")["X_triu"]
    matrices = coulomb_matrices(upper[np.random.default_rng(0).permutation(len(upper))[:n]])
    digits = study.arrays("kernel-data/mnist/mnist.npz")["X_train"][:n_images] / 255
    ordered = NormSortedPermutation(noise=0.0)
    [order] = ordered.elements(matrices.shape[1:])
    kernel = gaussian(median_distance(ordered.act(order, matrices)))
    molecules = cache(partial(Matrices, kernel, matrices, n_reference))
    of_digits = partial(ShiftedImages, gaussian(median_distance(digits)), digits)
    objects: dict[str, tuple[Callable[[], Averages], int]] = {
        "all circular shifts, digits": (partial(of_digits, None), 10 * n_draws),
        f"shifts of up to {MAX_SHIFT}, digits": (partial(of_digits, MAX_SHIFT), 10 * n_draws),
        "random orders, molecules": (molecules, n_draws),
    }
    for title, (averages, n_repeats) in objects.items():
        study.row(
            {"transformations": title},
            lambda averages=averages, n=n_repeats: of_transformations(averages(), drawn, n),
            what="transformations",
        )
    for orders, frequencies in product(N_TRANSFORMS, ("random", "orthogonal")):
        study.row(
            {"orders": orders, "frequencies": frequencies},
            lambda orders=orders, kind=frequencies: of_frequencies(molecules(), orders, kind, sizes, n_seeds),
            what="frequencies",
        )


class Averages(Protocol):
    """Kernel averages of one data set under one law of transformations."""

    # Two unbiased and independent estimates of the true Gram matrix, or twice itself; the same of E k(g x, g z).
    truth: tuple[Floats, Floats]
    with_itself: tuple[Floats, Floats]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Average over all pairs of n drawn transformations, and over those of one with itself."""


class Matrices:
    """Coulomb matrices in random orders, near that of their row norms."""

    group = NormSortedPermutation(noise=1.0)

    def __init__(self, kernel: Gaussian, matrices: NDArray[Any], n_reference: int, seed: int = 1000) -> None:
        self.kernel, self.matrices = kernel, matrices
        halves = [self.draw(n_reference, np.random.default_rng([seed, half])) for half in (0, 1)]
        first, second = ((unbiased(*half, n_reference), half[1]) for half in halves)
        self.truth, self.with_itself = (first[0], second[0]), (first[1], second[1])

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Average over all pairs of n drawn orders, and over those of one with itself."""
        elements = self.group.sample(n, self.matrices.shape[1:], rng)
        return pair_means(self.kernel, self.group, self.matrices, elements)


class ShiftedImages:
    """Images under circular shifts: the kernel of a pair depends on the difference of its two shifts only."""

    def __init__(self, kernel: Gaussian, images: Floats, max_shift: int | None) -> None:
        self.group, self.shape = Translation(max_shift), images.shape[1:]
        self.table = kernel.of_squared_distances(squared_distances_of_shifts(images))
        truth = self.table @ self._of_differences(self.group.elements(self.shape))
        self.truth, self.with_itself = (truth, truth), (self.table[..., 0], self.table[..., 0])

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Average over all pairs of n drawn shifts, and over those of one with itself."""
        drawn = self.group.sample(n, self.shape, rng)
        return self.table @ self._of_differences(drawn), self.table[..., 0]

    def variance(self, n: int) -> Floats:
        """Variance of the average over all pairs of n drawn shifts: Hoeffding's, of a U-statistic."""
        shifts = self.group.elements(self.shape)
        rows, cols = (-np.arange(size) % size for size in self.shape)
        turned = self.table.reshape(*self.table.shape[:2], *self.shape)[..., rows[:, None], cols]
        table = (self.table + turned.reshape(self.table.shape)) / 2
        law = self._law(shifts)
        given_one = [table @ np.roll(law, (-row, -col), axis=(0, 1)).ravel() for row, col in shifts]
        of_one = np.square(given_one).mean(axis=0) - self.truth[0] ** 2
        of_two = table**2 @ self._of_differences(shifts) - self.truth[0] ** 2
        variance: Floats = (4 * (n - 1) * (n - 2) * of_one + 2 * (n - 1) * of_two) / n**3
        return variance

    def _law(self, shifts: Iterable[Any]) -> Floats:
        """Share of each shift among these, on the grid of pixels."""
        counts = np.zeros(self.shape)
        np.add.at(counts, tuple(np.transpose(list(shifts)) % np.array(self.shape)[:, None]), 1.0)
        return counts / counts.sum()

    def _of_differences(self, shifts: Iterable[Any]) -> Floats:
        """Law of the difference of two of these shifts, both drawn independently."""
        spectrum = np.abs(np.fft.rfft2(self._law(shifts))) ** 2
        return np.fft.irfft2(spectrum, self.shape).ravel()


def pair_means(
    kernel: Gaussian, group: NormSortedPermutation, X: NDArray[Any], elements: Sequence[Any]
) -> tuple[Floats, Floats]:
    """Average the kernel over all pairs of transformations, and over the pairs of one with itself, in float64."""
    n, r = len(X), len(elements)
    orbits = np.concatenate([group.act(element, X).reshape(n, -1) for element in elements]).astype(np.float64)
    pairs, itself = np.zeros((n, n)), np.zeros((n, n))
    for k in range(r):
        # the first block is of a transformation with itself; the others stand for two orders of a pair
        blocks = kernel(orbits[k * n : (k + 1) * n], orbits[k * n :]).reshape(n, r - k, n)
        itself += blocks[:, 0]
        pairs += blocks[:, 1:].sum(axis=1)
    return (itself + pairs + pairs.T) / r**2, itself / r


def unbiased(mean: Floats, with_itself: Floats, n: int) -> Floats:
    """Leave the pairs of a transformation with itself out of an average over all pairs of n."""
    return (n * mean - with_itself) / (n - 1)


def inner(first: Floats, second: Floats) -> float:
    return float(np.vdot(first, second))


def squared_errors(averages: Averages, n: int, rng: np.random.Generator) -> dict[str, float]:
    """Draw n transformations; squared relative errors of all, of the bias, of the rest and of the U-statistic."""
    mean, itself = averages.draw(n, rng)
    scale = inner(*averages.truth)
    shift = [(own - true) / n for own, true in zip(averages.with_itself, averages.truth, strict=True)]
    total = [mean - true for true in averages.truth]
    rest = [error - bias for error, bias in zip(total, shift, strict=True)]
    without = [unbiased(mean, itself, n) - true for true in averages.truth]
    parts = {"total": total, "bias": shift, "deviation": rest, "unbiased": without}
    return {name: inner(*part) / scale for name, part in parts.items()}


def of_transformations(averages: Averages, sizes: Sequence[int], n_seeds: int) -> dict[str, Any]:
    """Errors of drawn transformations, roots of mean squares over seeds, and their slopes."""
    drawn = [
        [squared_errors(averages, n, np.random.default_rng([seed, n])) for n in sizes]
        for seed in range(n_seeds)
    ]
    found: dict[str, Any] = {"n_drawn": list(sizes), "n_seeds": n_seeds}
    for name in drawn[0][0]:
        squared = np.array([[row[name] for row in rows] for rows in drawn])
        found[name] = np.sqrt(np.maximum(squared.mean(axis=0), 0)).tolist()
        if name != "bias":
            found[f"{name}_slope"] = [slope(sizes, found[name]), *slope_interval(sizes, squared)]
    if isinstance(averages, ShiftedImages):
        scale = inner(*averages.truth)
        found["deviation_expected"] = [float(np.sqrt(averages.variance(n).sum() / scale)) for n in sizes]
    return found


def of_frequencies(
    averages: Matrices, n_transforms: int, frequencies: str, sizes: Sequence[int], n_seeds: int
) -> dict[str, Any]:
    """Errors of embeddings, beside the average over their own transformations and beside the truth."""
    truth = np.mean(averages.truth, axis=0)
    drawn: dict[str, list[list[float]]] = {}
    for seed in range(n_seeds):
        embeddings = [
            OrbitFourier(
                averages.kernel,
                averages.group,
                n_components=2 * n,
                n_transforms=n_transforms,
                frequencies=frequencies,  # type: ignore[arg-type]
                random_state=seed,
            ).fit(averages.matrices)
            for n in sizes
        ]
        # Transformations are drawn first, so one seed draws the same for any number of frequencies.
        own, _ = pair_means(averages.kernel, averages.group, averages.matrices, embeddings[0].elements_)
        features = [one.transform(averages.matrices) for one in embeddings]
        grams = [own_features @ own_features.T for own_features in features]
        for norm, order in NORMS.items():
            scale = np.linalg.norm(truth, order)
            for name, errors in (
                ("frequencies", [gram - own for gram in grams]),
                ("total", [gram - truth for gram in grams]),
                ("transformations", [own - truth]),
            ):
                row = [float(np.linalg.norm(error, order) / scale) for error in errors]
                drawn.setdefault(f"{norm}_{name}", []).append(row)
    found: dict[str, Any] = {"n_frequencies": list(sizes)}
    for key, rows in drawn.items():
        squared = np.square(rows)
        found[key] = np.sqrt(squared.mean(axis=0)).tolist()
        if "transformations" not in key:
            found[f"{key}_slope"] = [slope(sizes, found[key]), *slope_interval(sizes, squared)]
    return found


def orbit_error(rows: list[Row]) -> str:
    """Make the table of Figure 1, in both norms."""
    lines = []
    for row in flat(rows, "frequencies"):
        for norm in NORMS:
            own, both = row[f"{norm}_frequencies"], row[f"{norm}_total"]
            fitted = "{:.2f} ({:.2f} to {:.2f})".format(*row[f"{norm}_frequencies_slope"])
            errors = f"{own[0]:.4f} to {own[-1]:.4f}", fitted, f"{row[f'{norm}_transformations'][0]:.4f}"
            lines.append(
                [norm.title(), row["orders"], row["frequencies"], *errors, f"{both[0]:.4f} to {both[-1]:.4f}"]
            )
    ends = f"{N_FREQUENCIES[0]} to {N_FREQUENCIES[-1]:,}"
    header = [
        "norm",
        "orders",
        "frequencies",
        f"error of frequencies, {ends}",
        "slope",
        "of orders",
        f"both, {ends}",
    ]
    return markdown_table(header, sorted(lines, key=lambda line: line[0]))


def orbit_transforms(rows: list[Row]) -> str:
    """Make the table of rates in the number of transformations."""
    titles = {"total": "all", "bias": "bias", "unbiased": "U-statistic"}
    lines = []
    for row in flat(rows, "transformations"):
        places = [row["n_drawn"].index(n) for n in (5, 20, 160)]
        for name, title in titles.items():
            # the bias is of the order 1 / r by definition
            fitted = row.get(f"{name}_slope")
            slope_told = "-1" if fitted is None else "{:.2f} ({:.2f} to {:.2f})".format(*fitted)
            lines.append(
                [row["transformations"], title, *(f"{row[name][k]:.4f}" for k in places), slope_told]
            )
    return markdown_table(["transformations", "part", "5 drawn", "20 drawn", "160 drawn", "slope"], lines)


TABLES = {"orbit_error": orbit_error, "orbit_transforms": orbit_transforms}
