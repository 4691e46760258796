"""Memory of long runs: 2,000 small images segmented in one process, and 2,000 strokes drawn in one session.

    python -m benchmarks soak

Resident memory is read after each image and each stroke. `growth` is the median of the last hundred readings, divided by
that of the hundred after the first hundred, less 1. Each run is a process of its own. Needs the /proc of Linux.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import markdown_table
from benchmarks.rows import Row, Study, flat
from segkit import Segmenter
from segkit.cli.phantom import make_demo_set
from segkit.images import write_image
from segkit.live import FeatureCache, LiveSession, Project
from segkit.segmentation.folders import predict_folder

N_WARM = 100
_SHAPE = (96, 96)
_N_MADE = 20
_N_BETWEEN_PAUSES = 10


def memory_mib(pid: int | str = "self", name: str = "VmRSS") -> float:
    """Read the memory of a process that is in RAM; "VmHWM" is the most that it was."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith(f"{name}:"))


def soak_predict(n: int) -> list[float]:
    """Segment small images with all results, and read the memory after each."""
    images, masks = make_demo_set(_N_MADE, shape=_SHAPE)
    segmenter = Segmenter().fit(images[:4], masks[:4])
    readings: list[float] = []

    def follow(items: Iterable[Any], description: str) -> Iterator[Any]:
        for item in items:
            yield item
            if description == "Segmenting":
                readings.append(memory_mib())

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
                readings.append(memory_mib())
    return readings


RUNS = {"predict": soak_predict, "annotate": soak_annotate}


def growth(readings: list[float]) -> float:
    """Compare the last hundred readings with the hundred after the first."""
    n = min(N_WARM, len(readings) // 3)
    return float(np.median(readings[-n:]) / np.median(readings[n : 2 * n]) - 1)


def measure(name: str, n: int) -> dict[str, Any]:
    """Read the memory along a run, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        readings = pool.apply(RUNS[name], (n,))
    return {
        "n": len(readings),
        "growth": growth(readings),
        "mib": [round(value, 1) for value in readings[:: max(1, n // 100)]],
        "peak_mib": max(readings),
    }


def run(study: Study) -> None:
    for name in RUNS:
        study.row({"run": name}, partial(measure, name, 12 if study.quick else 2000))


def soak(rows: list[Row]) -> str:
    """Tabulate the growth of memory."""
    what = {"predict": "images segmented, with all results", "annotate": "strokes drawn"}
    table = [
        (
            f"{row['n']:,} {what[row['run']]}",
            f"{row['mib'][10]:.0f} MiB",
            f"{row['peak_mib']:.0f} MiB",
            f"{100 * row['growth']:+.1f} %",
        )
        for row in flat(rows)
    ]
    return markdown_table(("run", "memory at its tenth", "most", "growth"), table)


TABLES = {"soak": soak}
