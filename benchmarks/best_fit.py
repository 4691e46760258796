"""Time the Gram matrix of the translation-invariant best-fit kernel against plain ways to compute it.

All circular shifts of 28 x 28 images, the paper's base kernel, float32. The rivals are one roll of all images
and one BLAS product per shift, and a loop over pairs that rolls and multiplies, timed on the first pairs and
scaled to all of them (half of them, since the matrix is symmetric). The kernel and its first rival take turns,
and the best of three runs of each counts, so that other load on the machine weighs on neither.

    OMP_NUM_THREADS=1 python -m benchmarks.best_fit [--quick] [--data FOLDER] [--out FILE]
"""

import argparse
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter

from benchmarks.common import result_path, write_result
from segkit.benchmark.machine import machine
from segkit.invariance import Translation, best_fit

DATA = Path(__file__).parents[2] / "shared"
N_RUNS = 3
CORNER = 20  # images whose pairs are timed one by one


def images(folder, n):
    """MNIST digits, or smooth strokes where they are not at hand; float32 in [0, 1]."""
    mnist = folder / "kernel-data" / "mnist" / "mnist.npz"
    if mnist.is_file():
        return "mnist", np.load(mnist)["X_train"][:n].astype(np.float32) / 255
    steps = np.random.default_rng(0).normal(size=(n, 60, 2))
    rows, cols = np.moveaxis(14 + np.cumsum(steps, axis=1), 2, 0).round().astype(int).clip(4, 23)
    strokes = np.zeros((n, 28, 28), dtype=np.float32)
    strokes[np.arange(n)[:, None], rows, cols] = 1
    strokes = gaussian_filter(strokes, (0, 1, 1))
    return "strokes", strokes / strokes.max(axis=(1, 2), keepdims=True)


def base_kernel(products, n_pixels):
    return (1 + products / n_pixels) ** 8


def by_shift(X):
    """One roll and one BLAS product per shift; the power is monotone here and follows the maximum."""
    rows = X.reshape(len(X), -1)
    best = np.full((len(X), len(X)), -np.inf, dtype=X.dtype)
    for shift in np.ndindex(X.shape[1:]):
        np.maximum(best, rows @ np.roll(X, shift, axis=(1, 2)).reshape(len(X), -1).T, out=best)
    return base_kernel(best, rows.shape[1])


def by_pair(X):
    """Each pair by itself, on and above the diagonal."""
    gram = np.zeros((len(X), len(X)), dtype=X.dtype)
    for i, x in enumerate(X):
        for j in range(i, len(X)):
            products = (np.vdot(x, np.roll(X[j], shift, axis=(0, 1))) for shift in np.ndindex(x.shape))
            gram[i, j] = gram[j, i] = base_kernel(max(products), x.size)
    return gram


def timed(function, X):
    start = time.perf_counter()
    gram = function(X)
    return gram, time.perf_counter() - start


def largest_difference(gram, reference):
    return float(np.max(np.abs(gram / reference - 1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60 images instead of 500")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with kernel-data/mnist/mnist.npz")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    n = 60 if options.quick else 500
    name, X = images(options.data, n)
    kernel = partial(best_fit, group=Translation())
    kernel(X[:CORNER])  # the first call loads libraries
    runs = [(timed(kernel, X), timed(by_shift, X)) for _ in range(N_RUNS)]
    (ours, _), (shifts, _) = runs[0]
    seconds, shift_seconds = ([run[which][1] for run in runs] for which in (0, 1))
    pairs, pair_seconds = timed(by_pair, X[:CORNER])
    pair_seconds *= n * (n + 1) / (CORNER * (CORNER + 1))
    result = machine() | {
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "images": name,
        "n_images": n,
        "best_fit_kernel": {"seconds": seconds},
        "roll_and_blas_per_shift": {
            "seconds": shift_seconds,
            "ratio": min(shift_seconds) / min(seconds),
            "largest_relative_difference": largest_difference(ours, shifts),
        },
        "loop_over_pairs": {
            "seconds_scaled": pair_seconds,
            "ratio": pair_seconds / min(seconds),
            "largest_relative_difference": largest_difference(ours[:CORNER, :CORNER], pairs),
        },
    }
    for rival in ("roll_and_blas_per_shift", "loop_over_pairs"):
        print(f"{rival}: {result[rival]['ratio']:.1f} times slower")
    write_result(result_path(options, "best_fit.json"), result)


if __name__ == "__main__":
    main()
