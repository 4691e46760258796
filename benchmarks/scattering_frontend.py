"""Which of kymatio's front ends is faster on a scattering bank's tiles.

python -m benchmarks.scattering_frontend
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.common import result_path, write_result
from segkit import ScatteringBank
from segkit.benchmark.machine import machine

FRONTENDS = ("numpy", "torch")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one small scale: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    options = {"J": 1, "L": 2, "tile": 32} if arguments.quick else {}
    banks = {name: ScatteringBank(frontend=name, **options) for name in FRONTENDS}
    image = np.random.default_rng(0).random(
        (64, 64, 3) if arguments.quick else (256, 256, 3), dtype=np.float32
    )
    for bank in banks.values():
        bank.maps(image)  # builds the filters
    seconds: dict[str, list[float]] = {name: [] for name in FRONTENDS}
    for _ in range(1 if arguments.quick else arguments.repeats):
        for name, bank in banks.items():
            start = time.perf_counter()
            bank.maps(image)
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = medians["torch"] / medians["numpy"]
    write_result(
        result_path(arguments, "scattering_frontend.json"),
        {"seconds": medians, "torch_to_numpy": ratio, "machine": machine()},
    )
    print(f"torch takes {ratio:.2f} times as long as numpy")


if __name__ == "__main__":
    main()
