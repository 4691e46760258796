"""Measure how orbit embeddings approach the averaged kernel: A. Raj et al. 2017, Figure 1.

The error is that of the Gram matrix of Coulomb matrices (QM7; random symmetric matrices where the data set
is absent), against the Gaussian kernel averaged exactly over the same drawn permutations, relative to the
norm of the latter; the mean over seeds of permutations and frequencies. The bandwidth, which the paper does
not tell, is the median distance of the sorted matrices.

    python -m benchmarks.orbit_error [--quick] [--data FOLDER] [--out FILE] [--plot FILE]
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.spatial.distance import pdist

from benchmarks.common import RESULTS, result_path, write_result
from segkit.benchmark.machine import machine
from segkit.invariance import NormSortedPermutation
from segkit.invariance.orbit import OrbitFourier
from segkit.kernels import Gaussian

N_TRANSFORMS = (20, 40, 70)
N_FREQUENCIES = (50, 100, 200, 500, 1000, 2000, 5000)
NORMS = {"spectral": 2, "frobenius": "fro"}
ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared"
PLOT = ROOT / "docs" / "orbit_error.png"


def load_matrices(folder, n):
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


def median_distance(matrices):
    exact_order = NormSortedPermutation(noise=0.0)
    return float(np.median(pdist(exact_order.act(np.zeros(23), matrices).reshape(len(matrices), -1))))


def averaged_gram(kernel, group, matrices, elements):
    """Average the kernel over all pairs of transformations, in float64."""
    orbits = np.concatenate([group.act(element, matrices).reshape(len(matrices), -1) for element in elements])
    orbits = orbits.astype(np.float64)
    total = np.zeros((len(matrices), len(matrices)))
    for element in range(len(elements)):
        left = orbits[element * len(matrices) : (element + 1) * len(matrices)]
        total += kernel(left, orbits).reshape(len(left), len(elements), -1).mean(axis=1)
    return total / len(elements)


def errors(kernel, matrices, n_transforms, frequencies, sizes, seeds):
    """Relative errors by number of frequencies, one row for each seed, in each norm."""
    group = NormSortedPermutation(noise=1.0)
    rows = {norm: [] for norm in NORMS}
    for seed in seeds:
        embeddings = [
            OrbitFourier(
                kernel,
                group,
                n_components=2 * n_draws,
                n_transforms=n_transforms,
                frequencies=frequencies,
                random_state=seed,
            ).fit(matrices)
            for n_draws in sizes
        ]
        # Transformations are drawn first, so one seed draws the same for any number of frequencies.
        exact = averaged_gram(kernel, group, matrices, embeddings[0].elements_)
        differences = [
            features @ features.T - exact for features in (e.transform(matrices) for e in embeddings)
        ]
        for norm, order in NORMS.items():
            scale = np.linalg.norm(exact, order)
            rows[norm].append([float(np.linalg.norm(d, order) / scale) for d in differences])
    return rows


def plot(result, path):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(N_TRANSFORMS), figsize=(10, 3.4), sharey=True, layout="constrained")
    for ax, n_transforms in zip(axes, N_TRANSFORMS, strict=True):
        for row in result["errors"]:
            if row["n_transforms"] != n_transforms:
                continue
            style = "-" if row["frequencies"] == "random" else "--"
            for norm, colour in zip(NORMS, ("C0", "C1"), strict=True):
                label = f"{norm.capitalize()}, {row['frequencies']}"
                ax.loglog(result["n_frequencies"], row[norm], style, color=colour, marker=".", label=label)
        ax.set(title=f"{n_transforms} permutations", xlabel="number of frequencies")
    axes[0].set_ylabel("relative error of the Gram matrix")
    axes[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 matrices, 1 seed, few frequencies")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with kernel-data/qm7")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--plot", type=Path, help="PNG file to write; by default next to --out, or in docs")
    options = parser.parse_args()
    n, n_seeds, sizes = (20, 1, N_FREQUENCIES[:4]) if options.quick else (200, 5, N_FREQUENCIES)
    matrices, name = load_matrices(options.data, n)
    kernel = Gaussian(1 / (2 * median_distance(matrices) ** 2))
    result = machine() | {"data": name, "n_matrices": n, "n_seeds": n_seeds, "gamma": kernel.gamma}
    result |= {"n_frequencies": sizes, "errors": []}
    for n_transforms in N_TRANSFORMS:
        for frequencies in ("random", "orthogonal"):
            found = errors(kernel, matrices, n_transforms, frequencies, sizes, range(n_seeds))
            means = {norm: np.mean(rows, axis=0).tolist() for norm, rows in found.items()}
            slopes = {
                norm: float(np.polyfit(np.log(sizes), np.log(mean), 1)[0]) for norm, mean in means.items()
            }
            row = {"n_transforms": n_transforms, "frequencies": frequencies} | means | {"slopes": slopes}
            result["errors"].append(row)
            print(
                f"{n_transforms} permutations, {frequencies}: Frobenius error {means['frobenius'][0]:.3f} to "
                f"{means['frobenius'][-1]:.4f}, slope {slopes['frobenius']:.2f}",
                flush=True,
            )
    out = result_path(options, "orbit_error.json")
    write_result(out, result)
    plot(result, options.plot or (PLOT if out.parent == RESULTS else out.with_suffix(".png")))


if __name__ == "__main__":
    main()
