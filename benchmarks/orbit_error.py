"""Measure how orbit embeddings approach the averaged kernel, and which part of the error is whose.

    python -m benchmarks.orbit_error [--quick] [--data FOLDER] [--out FILE] [--plot FILE]

A. Raj et al. 2017, Figure 1 and Theorem 3.1. An embedding of s frequencies and r drawn transformations errs twice: in the
frequencies, beside the kernel averaged over the same r transformations, and in the transformations, beside the average
over all of them. Errors are of Gram matrices, relative to the norm of the true one, roots of mean squares over seeds.

Figure 1 is of Coulomb matrices (QM7; random symmetric matrices where the data set is absent) in random orders. Their law
cannot be summed over, so the truth is the mean over the pairs of other, many more orders, drawn twice: the product of the
differences from both halves has the squared error as its expectation, whatever the halves err. The paper's "true kernel" is
drawn too, of 70 orders. The bandwidth, which the paper does not tell, is the median distance of the sorted matrices.

Theorem 3.1 has two terms in r. Pairs of a transformation with itself raise the expectation by (D - K) / r, with K the
true kernel and D(x, z) = E k(g x, g z): that is its 1 / r. The other pairs are a U-statistic, whose error the theorem
bounds by the order of r^-1/2. Digits under circular shifts (MNIST; noise where it is absent) have both in closed
form, by the law of the difference of two shifts: over all shifts, a whole group with its uniform law, the mean over one of
the two transformations is the true kernel already, so the U-statistic is degenerate and the error is of the order 1 / r. A
window of shifts is no group: there it is r^-1/2.

The appendix says that a change of one transformation moves the U-statistic by at most 1 / r. It is in 2 (r - 1) of its
r (r - 1) pairs: 2 / r, and the exponent of eq. 11 is - r eps^2 / 8.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from benchmarks.common import RESULTS, markdown_table, result_path, write_result
from benchmarks.rates import slope, slope_interval
from segkit.benchmark.machine import machine
from segkit.invariance import NormSortedPermutation, Translation
from segkit.invariance.orbit import OrbitFourier
from segkit.kernels import Gaussian

Floats = NDArray[np.float64]

N_TRANSFORMS = (20, 40, 70)
N_FREQUENCIES = (50, 100, 200, 500, 1000, 2000, 5000)
NORMS: dict[str, Any] = {"spectral": 2, "frobenius": "fro"}
# Numbers of drawn transformations, for the rate, and of those that the truth is taken from, in each half.
N_DRAWN = (5, 10, 20, 40, 80, 160)
N_REFERENCE = 500
MAX_SHIFT = 5
ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared"
PLOT = ROOT / "docs" / "orbit_error.png"


class Averages(Protocol):
    """Kernel averages of one data set under one law of transformations."""

    truth: tuple[
        Floats, Floats
    ]  # two unbiased and independent estimates of the true Gram matrix, or twice itself
    with_itself: tuple[Floats, Floats]  # the same of E k(g x, g z)

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
        return pair_means(
            self.kernel, self.group, self.matrices, self.group.sample(n, self.matrices.shape[1:], rng)
        )


class ShiftedImages:
    """Images under circular shifts: the kernel of a pair depends on the difference of its two shifts only."""

    def __init__(self, kernel: Gaussian, images: Floats, max_shift: int | None) -> None:
        self.group, self.shape = Translation(max_shift), images.shape[1:]
        self.table = kernel_of_shifts(kernel, images)
        truth = self.table @ self._of_differences(self.group.elements(self.shape))
        self.truth, self.with_itself = (truth, truth), (self.table[..., 0], self.table[..., 0])

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Average over all pairs of n drawn shifts, and over those of one with itself."""
        drawn = self.group.sample(n, self.shape, rng)
        return self.table @ self._of_differences(drawn), self.table[..., 0]

    def variance(self, n: int) -> Floats:
        """Give the variance of the average over all pairs of n drawn shifts: Hoeffding's, of a U-statistic."""
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
        """Give the share of each shift among these, on the grid of pixels."""
        counts = np.zeros(self.shape)
        np.add.at(counts, tuple(np.transpose(list(shifts)) % np.array(self.shape)[:, None]), 1.0)
        return counts / counts.sum()

    def _of_differences(self, shifts: Iterable[Any]) -> Floats:
        """Give the law of the difference of two of these shifts, both drawn independently."""
        spectrum = np.abs(np.fft.rfft2(self._law(shifts))) ** 2
        return np.fft.irfft2(spectrum, self.shape).ravel()


def kernel_of_shifts(kernel: Gaussian, images: Floats) -> Floats:
    """Give k(x, shifted z) of all images and circular shifts; (n, n, number of pixels)."""
    n, *shape = images.shape
    spectra = np.fft.rfft2(images)
    products = np.fft.irfft2(spectra[:, None] * spectra[None].conj(), shape).reshape(n, n, -1)
    norms = np.square(images).sum(axis=(1, 2))
    return kernel.of_squared_distances(
        np.maximum(norms[:, None, None] + norms[None, :, None] - 2 * products, 0)
    )


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


def product(first: Floats, second: Floats) -> float:
    return float(np.vdot(first, second))


def squared_errors(averages: Averages, n: int, rng: np.random.Generator) -> dict[str, float]:
    """Draw n transformations, and give squared relative errors: of all, of the bias, of the rest and of the U-statistic."""
    mean, itself = averages.draw(n, rng)
    scale = product(*averages.truth)
    shift = [(own - true) / n for own, true in zip(averages.with_itself, averages.truth, strict=True)]
    total = [mean - true for true in averages.truth]
    rest = [error - bias for error, bias in zip(total, shift, strict=True)]
    without = [unbiased(mean, itself, n) - true for true in averages.truth]
    parts = {"total": total, "bias": shift, "deviation": rest, "unbiased": without}
    return {name: product(*part) / scale for name, part in parts.items()}


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
        scale = product(*averages.truth)
        found["deviation_expected"] = [float(np.sqrt(averages.variance(n).sum() / scale)) for n in sizes]
    return found


def load_matrices(folder: Path, n: int) -> tuple[NDArray[np.float32], str]:
    """Matrices (n, 23, 23) and their name."""
    path = folder / "kernel-data" / "qm7" / "qm7_coulomb_triu.npz"
    rng = np.random.default_rng(0)
    rows, cols = np.triu_indices(23)
    if path.is_file():
        with np.load(path) as file:
            upper, name = file["X_triu"], "QM7 Coulomb matrices"
        upper = upper[rng.permutation(len(upper))[:n]]
    else:
        upper, name = rng.normal(size=(n, len(rows))), "random symmetric matrices"
    matrices = np.zeros((n, 23, 23), dtype=np.float32)
    matrices[:, rows, cols] = matrices[:, cols, rows] = upper
    return matrices, name


def load_digits(folder: Path, n: int) -> tuple[Floats, str]:
    """Images (n, 28, 28) in [0, 1] and their name."""
    path = folder / "kernel-data" / "mnist" / "mnist.npz"
    if path.is_file():
        with np.load(path) as file:
            return file["X_train"][:n] / 255, "MNIST digits"
    return np.random.default_rng(0).uniform(size=(n, 28, 28)), "images of noise"


def median_gaussian(rows: NDArray[Any]) -> Gaussian:
    """Give the Gaussian kernel whose bandwidth is the median distance."""
    return Gaussian(float(1 / (2 * np.median(pdist(rows.reshape(len(rows), -1))) ** 2)))


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
        grams = [
            features @ features.T for features in (one.transform(averages.matrices) for one in embeddings)
        ]
        for norm, order in NORMS.items():
            scale = np.linalg.norm(truth, order)
            for name, errors in (
                ("frequencies", [gram - own for gram in grams]),
                ("total", [gram - truth for gram in grams]),
                ("transformations", [own - truth]),
            ):
                row = [float(np.linalg.norm(error, order) / scale) for error in errors]
                drawn.setdefault(f"{norm}_{name}", []).append(row)
    found: dict[str, Any] = {"n_transforms": n_transforms, "frequencies": frequencies}
    for key, rows in drawn.items():
        squared = np.square(rows)
        found[key] = np.sqrt(squared.mean(axis=0)).tolist()
        if "transformations" not in key:
            found[f"{key}_slope"] = [slope(sizes, found[key]), *slope_interval(sizes, squared)]
    return found


def orbit_error(result: dict[str, Any]) -> str:
    """Make the table of figure 1."""
    sizes = result["n_frequencies"]
    header = [
        "orders",
        "frequencies",
        "norm",
        f"of frequencies, {sizes[0]} to {sizes[-1]:,}",
        "slope (95 % interval)",
        "of transformations",
        f"both, {sizes[0]} to {sizes[-1]:,}",
    ]
    lines = []
    for row in result["figure"]:
        for norm in NORMS:
            own, both = row[f"{norm}_frequencies"], row[f"{norm}_total"]
            lines.append(
                (
                    row["n_transforms"],
                    row["frequencies"],
                    norm.capitalize(),
                    f"{own[0]:.4f} to {own[-1]:.4f}",
                    with_range(row[f"{norm}_frequencies_slope"]),
                    f"{row[f'{norm}_transformations'][0]:.4f}",
                    f"{both[0]:.4f} to {both[-1]:.4f}",
                )
            )
    return markdown_table(header, lines)


def orbit_transforms(result: dict[str, Any]) -> str:
    """Make the table of rates in the number of transformations."""
    first = next(iter(result["transformations"].values()))
    places = [first["n_drawn"].index(n) for n in (5, 20, 80, 160) if n in first["n_drawn"]]
    header = [
        "transformations",
        "part",
        *(f"{first['n_drawn'][k]} drawn" for k in places),
        "slope (95 % interval)",
    ]
    names = {
        "total": "all",
        "bias": "bias",
        "deviation": "deviation from the mean",
        "deviation_expected": "deviation, closed form",
        "unbiased": "U-statistic",
    }
    lines = []
    for title, row in result["transformations"].items():
        for name, part in names.items():
            if name in row:
                errors = [f"{row[name][k]:.5f}" for k in places]
                found = (
                    with_range(row[f"{name}_slope"])
                    if f"{name}_slope" in row
                    else f"{slope(row['n_drawn'], row[name]):.2f}"
                )
                lines.append((title, part, *errors, found))
    return markdown_table(header, lines)


def with_range(found: Sequence[float]) -> str:
    value, low, high = found
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def plot(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(N_TRANSFORMS), figsize=(10, 4), sharey=True, layout="constrained")
    for ax, n_transforms in zip(axes, N_TRANSFORMS, strict=True):
        rows = [
            row
            for row in result["figure"]
            if (row["n_transforms"], row["frequencies"]) == (n_transforms, "random")
        ]
        for row in rows:
            for norm, colour in zip(NORMS, ("C0", "C1"), strict=True):
                for name, style in (("total", "-"), ("frequencies", "--")):
                    label = f"{norm.capitalize()}, {'all' if name == 'total' else 'of frequencies'}"
                    ax.loglog(
                        result["n_frequencies"],
                        row[f"{norm}_{name}"],
                        style,
                        color=colour,
                        marker=".",
                        label=label,
                    )
                ax.axhline(
                    row[f"{norm}_transformations"][0],
                    color=colour,
                    linestyle=":",
                    label=f"{norm.capitalize()}, of transformations",
                )
        ax.set(title=f"{n_transforms} orders of the atoms", xlabel="number of frequencies")
    axes[0].set_ylabel("relative error of the Gram matrix")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        handlelength=4,
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few matrices, seeds and frequencies: does it run?"
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder with kernel-data/qm7 and kernel-data/mnist"
    )
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--plot", type=Path, help="PNG file to write; by default next to --out, or in docs")
    options = parser.parse_args()
    quick = options.quick
    n, n_images, n_reference = (12, 5, 20) if quick else (100, 40, N_REFERENCE)
    n_seeds, n_draws, sizes, drawn = (
        (2, 2, N_FREQUENCIES[:3], N_DRAWN[:3]) if quick else (5, 20, N_FREQUENCIES, N_DRAWN)
    )
    matrices, of_matrices = load_matrices(options.data, n)
    digits, of_digits = load_digits(options.data, n_images)
    ordered = NormSortedPermutation(noise=0.0)
    [order] = ordered.elements(matrices.shape[1:])
    molecules = Matrices(median_gaussian(ordered.act(order, matrices)), matrices, n_reference)
    digits_kernel = median_gaussian(digits)
    result: dict[str, Any] = machine() | {
        "data": [of_matrices, of_digits],
        "n_matrices": n,
        "n_images": n_images,
        "n_reference": 2 * n_reference,
        "reference_error": float(
            np.linalg.norm(np.subtract(*molecules.truth)) / 2 / np.sqrt(product(*molecules.truth))
        ),
        "gammas": [molecules.kernel.gamma, digits_kernel.gamma],
        "n_seeds": n_seeds,
        "n_frequencies": list(sizes),
        "figure": [],
        "transformations": {},
    }
    out = result_path(options, "orbit_error.json")
    objects: dict[str, tuple[Averages, int]] = {
        f"all circular shifts, {of_digits}": (ShiftedImages(digits_kernel, digits, None), 10 * n_draws),
        f"shifts of up to {MAX_SHIFT}, {of_digits}": (
            ShiftedImages(digits_kernel, digits, MAX_SHIFT),
            10 * n_draws,
        ),
        f"random orders, {of_matrices}": (molecules, n_draws),
    }
    for title, (averages, n_repeats) in objects.items():
        result["transformations"][title] = of_transformations(averages, drawn, n_repeats)
    for n_transforms in N_TRANSFORMS:
        for frequencies in ("random", "orthogonal"):
            result["figure"].append(of_frequencies(molecules, n_transforms, frequencies, sizes, n_seeds))
            write_result(out, result)
    print(orbit_transforms(result), orbit_error(result), sep="\n")
    plot(result, options.plot or (PLOT if out.parent == RESULTS else out.with_suffix(".png")))


if __name__ == "__main__":
    main()
