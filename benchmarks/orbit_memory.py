"""Time OrbitFourier of many images and templates, and measure its memory.

The seconds are compared with those that the matrix products alone, of all images with all turned templates,
take at the machine's measured rate. The peak is of the whole process: Python, torch, images and features
included.

    python -m benchmarks.orbit_memory [--quick] [--out FILE]
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.common import result_path, sgemm_rate, write_result
from segkit.benchmark.machine import machine, peak_memory_mib
from segkit.invariance import Rotation
from segkit.invariance.orbit import OrbitFourier
from segkit.kernels import Gaussian

SIDE = 28


def measure(n_images, n_templates, n_turns):
    images = np.random.default_rng(0).random((n_images, SIDE, SIDE), dtype=np.float32)
    embedding = OrbitFourier(
        Gaussian(0.01), Rotation(n_turns), n_components=2 * n_templates, random_state=0
    ).fit(images)
    rate = sgemm_rate()
    start = time.perf_counter()
    features = embedding.transform(images)
    seconds = time.perf_counter() - start
    products = 2 * n_images * n_templates * n_turns * SIDE**2 / rate
    return {
        "seconds": seconds,
        "seconds_of_products": products,
        "ratio": seconds / products,
        "peak_bytes": int(2**20 * peak_memory_mib()),
        "features_bytes": features.nbytes,
        "memory_limit": embedding.memory_limit,
        "sgemm_flops": rate,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="600 images, 500 templates and 10 turns")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    n_images, n_templates, n_turns = (600, 500, 10) if options.quick else (12_000, 10_000, 100)
    threads = os.environ.get("OMP_NUM_THREADS", "default")
    result = machine() | {
        "threads": threads,
        "n_images": n_images,
        "n_templates": n_templates,
        "n_turns": n_turns,
    }
    result |= measure(n_images, n_templates, n_turns)
    print(
        f"{result['seconds']:.1f} s, {result['ratio']:.2f} times the matrix products; "
        f"at most {result['peak_bytes'] / 2**30:.2f} GiB"
    )
    write_result(result_path(options, "orbit_memory.json"), result)


if __name__ == "__main__":
    main()
