"""Time the Gram matrix of a local polynomial kernel against sliding windows over products of pixels.

Sliding windows are what the paper's experiments ran: for each pair of images the products of pixels, their
means over windows as a box filter (PyTorch's average pooling and convolution, of which the faster counts),
squares, sum and power, in blocks of pairs. They are timed on a corner of the matrix and scaled by the number
of pairs. All take turns, and the shortest time of each counts, that with the least other load. The ratio is
for the matrix between two sets of images; the Gram matrix of one set, also timed, needs half of the pairs.

    python -m benchmarks.local_kernel [--quick] [--data FOLDER] [--out FILE]
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from benchmarks.common import result_path, write_result
from segkit.benchmark.machine import machine
from segkit.invariance.local import LocalPolynomialKernel

WINDOW = 7
N_ROUNDS = 7
BLOCK = 2**19  # products of pixels held at once: in cache, which halves the time of the convolution
DATA = Path(__file__).parents[2] / "shared"


def load_images(folder, n):
    """Images (n, 28, 28) in [0, 1] and their name: MNIST, or random blobs where it is absent."""
    path = folder / "kernel-data" / "mnist" / "mnist.npz"
    if path.is_file():
        with np.load(path) as file:
            return (file["X_train"][:n] / 255).astype(np.float32), "MNIST"
    noise = np.random.default_rng(0).normal(size=(n, 28, 28)).astype(np.float32)
    return np.clip(gaussian_filter(noise, (0, 2, 2)) * 8, 0, 1), "random blobs"


def pool(products):
    return torch.nn.functional.avg_pool2d(products, WINDOW, stride=1, padding=WINDOW // 2)


def convolve(products):
    box = torch.full((1, 1, WINDOW, WINDOW), WINDOW**-2)
    return torch.nn.functional.conv2d(products, box, padding=WINDOW // 2)


def sliding_windows(X, Y, box_filter):
    """Kernel values pair by pair; (n, H, W), (m, H, W) -> (n, m)."""
    side = X.shape[1]
    rows = max(1, BLOCK // Y[:, 0].size // side)
    right = torch.from_numpy(Y)
    blocks = []
    for start in range(0, len(X), rows):
        left = torch.from_numpy(X[start : start + rows])
        products = (left[:, None] * right).reshape(-1, 1, side, side)
        sums = (1 + box_filter(products)).square().sum(dim=(1, 2, 3)) / side
        blocks.append(((1 + sums) ** 4).reshape(len(left), len(right)))
    return torch.cat(blocks).numpy()


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(images, corner):
    kernel = LocalPolynomialKernel(WINDOW, normalization="reference")
    X, Y = np.split(images, 2)
    left, right = X[:corner], Y[:corner]
    runs = {
        "local_polynomial_kernel": lambda: kernel(X, Y),
        "local_polynomial_kernel_of_one_set": lambda: kernel(X),
        "sliding_windows_pool": lambda: sliding_windows(left, right, pool),
        "sliding_windows_convolve": lambda: sliding_windows(left, right, convolve),
    }
    rounds = [{name: timed(run) for name, run in runs.items()} for _ in range(N_ROUNDS)]
    seconds = {name: min(times[name] for times in rounds) for name in runs}
    for name in ("sliding_windows_pool", "sliding_windows_convolve"):
        seconds[name] *= len(X) * len(Y) / corner**2
    rival = min(seconds["sliding_windows_pool"], seconds["sliding_windows_convolve"])
    difference = kernel(left, right) / sliding_windows(left, right, pool) - 1
    return {
        "seconds": seconds,
        "ratio": rival / seconds["local_polynomial_kernel"],
        "largest_relative_difference": float(np.abs(difference).max()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="40 x 40 instead of 500 x 500 images")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with kernel-data/mnist/mnist.npz")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    n, corner = (40, 20) if options.quick else (500, 100)
    images, name = load_images(options.data, 2 * n)
    threads = os.environ.get("OMP_NUM_THREADS", "default")
    result = machine() | {"threads": threads, "data": name, "n_images": n, "corner": corner, "window": WINDOW}
    result |= compare(images, corner)
    print(f"{result['ratio']:.1f} times faster than sliding windows")
    write_result(result_path(options, "local_kernel.json"), result)


if __name__ == "__main__":
    main()
