"""Memory of long runs: 2,000 small images segmented in one process, and 2,000 strokes drawn in one session.

    python -m benchmarks.soak [--quick] [--out FILE]

Resident memory is read after each image and each stroke. `growth` is the median of the last hundred readings, divided by
that of the hundred after the first hundred, less 1. Each run is a process of its own. Needs the /proc of Linux.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import digest_sources, result_path, write_result
from segkit import Segmenter
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.images import write_image
from segkit.live import FeatureCache, LiveSession, Project
from segkit.segmentation.folders import predict_folder

N_WARM = 100
_SHAPE = (96, 96)
_N_MADE = 20
_N_BETWEEN_PAUSES = 10


def resident_mib() -> float:
    """Give the memory of this process that is in RAM."""
    [line] = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")
    ]
    return int(line.split()[1]) / 2**10


def soak_predict(n: int) -> list[float]:
    """Segment small images with all results, and read the memory after each."""
    images, masks = make_demo_set(_N_MADE, shape=_SHAPE)
    segmenter = Segmenter().fit(images[:4], masks[:4])
    readings: list[float] = []

    def follow(items: Iterable[Any], description: str) -> Iterator[Any]:
        for item in items:
            yield item
            if description == "Segmenting":
                readings.append(resident_mib())

    with tempfile.TemporaryDirectory() as folder:
        for index in range(n):
            # a byte differs, so that no two files are the same
            image = images[index % _N_MADE].copy()
            image.flat[index // _N_MADE] = 0.5
            write_image(Path(folder) / "images" / f"{index:04d}.png", image)
        predict_folder(
            segmenter,
            Path(folder) / "images",
            Path(folder) / "out",
            probability=True,
            overlay=True,
            objects=True,
            progress=follow,
        )
    return readings


def soak_annotate(n: int) -> list[float]:
    """Draw dabs along random lines, on four images in turn, undo some, and read the memory after each."""
    images, masks = make_demo_set(4, shape=(256, 256))
    rng = np.random.default_rng(0)
    readings = []
    with tempfile.TemporaryDirectory() as folder:
        for index, image in enumerate(images):
            write_image(Path(folder) / "images" / f"{index}.png", image)
        with (
            Project(Path(folder) / "images", Path(folder) / "out") as project,
            LiveSession(project, cache=FeatureCache(Path(folder) / "cache")) as session,
        ):
            for stroke in range(n):
                key = str(stroke // 25 % len(images))
                if stroke % 25 == 0:
                    session.open(key)
                row, col = rng.integers(4, 236, 2)
                value = int(masks[int(key)][row, col])
                for step in range(4):
                    session.paint(
                        key, (row, col + 4 * step), np.ones((3, 5), dtype=bool), value, stroke=stroke
                    )
                if stroke % 7 == 6:
                    session.undo(key)
                if stroke % _N_BETWEEN_PAUSES == 0:
                    session.wait(60)
                readings.append(resident_mib())
    return readings


RUNS = {"predict": soak_predict, "annotate": soak_annotate}


def growth(readings: list[float]) -> float:
    """Compare the last hundred readings with the hundred after the first."""
    n = min(N_WARM, len(readings) // 3)
    return float(np.median(readings[-n:]) / np.median(readings[n : 2 * n]) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="60 images and strokes")
    parser.add_argument("--only", choices=sorted(RUNS), help="one of the two")
    parser.add_argument("--out", help="result file")
    parser.add_argument("--one", choices=sorted(RUNS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    n = 60 if arguments.quick else 2000
    if arguments.one:
        print(json.dumps(RUNS[arguments.one](n)))
        return
    path = result_path(arguments, "soak.json")
    result: dict[str, Any] = {
        "command": "python -m benchmarks.soak",
        "code": digest_sources(),
        "machine": machine(),
    }
    for name in RUNS if arguments.only is None else [arguments.only]:
        command = [
            sys.executable,
            "-m",
            "benchmarks.soak",
            "--one",
            name,
            *(["--quick"] if arguments.quick else []),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        readings = json.loads(done.stdout.splitlines()[-1])
        result[name] = {
            "n": len(readings),
            "growth": growth(readings),
            "mib": [round(value, 1) for value in readings[:: max(1, n // 100)]],
            "peak_mib": max(readings),
        }
        print(
            f"{name}: {len(readings)}, from {readings[len(readings) // 10]:.0f} MiB, growth {growth(readings):+.1%}"
        )
        write_result(path, result)


if __name__ == "__main__":
    main()
