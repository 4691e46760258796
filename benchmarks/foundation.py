"""Time and peak memory of a bank of DINOv2-S beside the two networks, with random weights.

    python -m benchmarks.foundation [--side 256] [--quick] [--out FILE]

Training on five made-up images, and segmenting another one. Weights are random, since neither time nor memory depends on
them. `segkit benchmark --methods segkit-dinov2` measures the accuracy of trained weights. Each recipe has a process of its
own, whose peak is that of Python, libraries, images and weights. Written to foundation.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.common import result_path, write_result
from segkit.benchmark import load_methods
from segkit.benchmark.machine import machine, peak_memory_mib
from segkit.cli.phantom import make_demo_set

METHODS = ("segkit-dinov2", "segkit-networks", "segkit-no-networks")
N_TRAIN = 5


def with_random_weights(options: Any) -> Any:
    """Replace the weights that banks of networks name, at any depth of their options."""
    if isinstance(options, list | tuple):
        return [with_random_weights(option) for option in options]
    if isinstance(options, dict):
        drawn = {name: with_random_weights(option) for name, option in options.items()}
        return drawn | ({"weights": "random"} if "weights" in options else {})
    return options


def clocks() -> dict[str, float]:
    """Seconds by the clock, and of the processor, which other programs on the machine do not lengthen."""
    return {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}


def measure(name: str, side: int) -> dict[str, Any]:
    """Train, and segment another image, in this process."""
    [method] = load_methods([name])
    described = method.to_dict()
    described["config"] = with_random_weights(described["config"])
    segmenter = type(method).from_dict(name, described).build(0)
    images, masks = make_demo_set(N_TRAIN + 1, shape=(side, side))
    start = clocks()
    segmenter.fit(images[:N_TRAIN], masks[:N_TRAIN])
    trained = clocks()
    segmenter.predict(images[N_TRAIN])
    ended = clocks()
    return {
        "method": name,
        "side": side,
        "n_train": N_TRAIN,
        "training": {name: trained[name] - start[name] for name in start},
        "segmenting": {name: ended[name] - trained[name] for name in start},
        "peak_mib": peak_memory_mib(),
        "n_channels": segmenter.summary_.n_channels,
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--quick", action="store_true", help="small images: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--method", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    side = 96 if arguments.quick else arguments.side
    if arguments.method:
        print(json.dumps(measure(arguments.method, side)))
        return
    records = []
    for name in METHODS:
        line = [sys.executable, "-m", "benchmarks.foundation", "--side", str(side), "--method", name]
        output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
        records.append(json.loads(output.splitlines()[-1]))
        write_result(result_path(arguments, "foundation.json"), {"weights": "random", "records": records})
        found = records[-1]
        print(
            f"{name}: training {found['training']['cpu_seconds']:.1f} s of the processor, one image "
            f"{found['segmenting']['cpu_seconds']:.1f} s, "
            f"{found['peak_mib']:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
