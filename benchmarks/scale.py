"""Work spread over workers of Dask: speed of two against one, a killed worker, and what a scheduler bears.

    python -m benchmarks scale

Each worker has one thread. Wall times of a folder are taken in turn, one worker, two, one, two ..., so that other programs
of the machine disturb both alike; the first image that each worker gets, which imports libraries there, is not counted.
A scheduler of many tiny tasks stands for that of a slide of as many tiles.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.rows import Row, Study, flat
from benchmarks.soak import memory_mib
from segkit import Segmenter
from segkit.cli.phantom import make_demo_set
from segkit.images import write_image
from segkit.images.record import Record
from segkit.scale import Cluster
from segkit.segmentation.folders import segment_folder


class Deadly:
    """Makes results of images, but kills the worker of the first image that it is asked for."""

    def __init__(self, make: Callable[[Any], Any], mark: Path) -> None:
        self.make, self.mark = make, mark

    def __call__(self, job: Any) -> Any:  # noqa: D102
        if not self.mark.exists():
            self.mark.touch()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
            time.sleep(60)
        return self.make(job)


def predict_size(segmenter: Segmenter, image: np.ndarray) -> int:
    """Segment an image, for a result that is small to send."""
    return int(segmenter.predict(image).size)


def _timed(method: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Note how long each call of a method takes."""

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = method(*arguments, **options)
        seconds.append(time.perf_counter() - start)
        return result

    return timed


def contents(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {str(place): path.read_bytes() for place, path in files.items() if not str(place).startswith(".")}


def measure_speed(
    segmenter: Segmenter, images: Path, example: np.ndarray, n_repeats: int, folder: Path
) -> dict[str, Any]:
    """Wall times of a folder with one worker and with two, in turn."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    loads = []
    with Cluster(n_workers=1) as one, Cluster(n_workers=2) as two:
        for n_workers, cluster in ((1, one), (2, two)):
            # each worker imports its libraries and builds its filters
            for _, result in cluster.spread(partial(predict_size, segmenter), [example] * (4 * n_workers)):
                result()
        for repeat in range(n_repeats):
            loads.append(os.getloadavg()[0])
            for n_workers, cluster in ((1, one), (2, two)):
                start = time.perf_counter()
                segment_folder(segmenter, images, folder / f"{n_workers}-{repeat}", workers=cluster.spread)
                seconds[n_workers].append(time.perf_counter() - start)
    puts: list[float] = []
    with threadpool_limits(1), patch.object(Record, "put", _timed(Record.put, puts)):
        segment_folder(segmenter, images, folder / "plain")
    expected = contents(folder / "plain")
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    return {
        "seconds": {str(n_workers): values for n_workers, values in seconds.items()},
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "load_before": loads,
        "put_seconds": statistics.median(puts),
        "files": len(expected),
        "equal": all(
            contents(folder / f"{n_workers}-{repeat}") == expected
            for n_workers in seconds
            for repeat in range(n_repeats)
        ),
    }


def measure_tile(segmenter: Segmenter, side: int) -> dict[str, Any]:
    """Processor time of a tile on one thread, which other programs of the machine disturb less than wall time."""
    [tile], _ = make_demo_set(1, shape=(side, side))
    seconds = []
    with threadpool_limits(1):
        segmenter.predict(tile[:256, :256])
        for _ in range(2):
            start = time.process_time()
            segmenter.predict(tile)
            seconds.append(time.process_time() - start)
    return {"side": side, "processor_seconds": min(seconds)}


def kill_workers(segmenter: Segmenter, images: Path, n_kills: int, folder: Path) -> dict[str, Any]:
    """Kill a worker in the middle of its first image, again and again; compare the results with those of `plain`."""
    if not (folder / "plain").exists():  # speed was measured in a run that was cut
        segment_folder(segmenter, images, folder / "plain")
    expected = contents(folder / "plain")
    equal = 0
    for number in range(n_kills):
        mark, output = folder / f"mark-{number}", folder / f"killed-{number}"
        with Cluster(n_workers=2) as cluster:

            def spread(make: Any, jobs: Iterable[Any], cluster: Cluster = cluster, mark: Path = mark) -> Any:
                return cluster.spread(Deadly(make, mark), jobs)

            segment_folder(segmenter, images, output, workers=spread)
        equal += contents(output) == expected
    return {"kills": n_kills, "equal": equal}


def load_scheduler(given: str, n_tasks: int, n_workers: int) -> dict[str, Any]:
    """Load a scheduler with tiny tasks, "at_once", or a tenth as many as `Cluster.spread` does, a few at a time."""
    # a scheduler of its own process, whose memory is its own
    with (
        tempfile.TemporaryDirectory() as folder,
        scheduler(Path(folder), n_workers) as (address, pid),
        Cluster(address, n_workers=n_workers) as cluster,
    ):
        before = memory_mib(pid)
        start = time.perf_counter()
        if given == "at_once":
            client = cluster._client
            done = len(client.gather(client.map(_tiny, range(n_tasks), pure=False)))
        else:
            done = sum(result() == item for item, result in cluster.spread(_tiny, range(n_tasks // 10)))
        seconds = time.perf_counter() - start
        most = memory_mib(pid, "VmHWM")
    return {
        "tasks": done,
        "seconds": seconds,
        "tasks_per_second": done / seconds,
        "memory_mib_before": before,
        "memory_mib_most": most,
        "bytes_per_task": (most - before) * 2**20 / done,
    }


def _tiny(number: int) -> int:
    return number


@contextmanager
def scheduler(folder: Path, n_workers: int) -> Iterator[tuple[str, int]]:
    """Start a scheduler and workers, each a process as a user would; yields the scheduler's address and process id."""
    file = folder / "scheduler.json"
    start = partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    dask = [sys.executable, "-m", "dask"]
    shared = ["--scheduler-file", str(file), "--no-dashboard"]
    processes = [start([*dask, "scheduler", *shared, "--host", "127.0.0.1", "--port", "0"])]
    try:
        while not file.exists():
            time.sleep(0.1)
        processes += [start([*dask, "worker", *shared, "--nthreads", "1"]) for _ in range(n_workers)]
        yield json.loads(file.read_text())["address"], processes[0].pid
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def run(study: Study) -> None:
    n_images, side, n_repeats, n_kills, n_tasks = (
        (4, 96, 1, 1, 500) if study.quick else (12, 512, 5, 3, 100_000)
    )
    train, masks = make_demo_set(3, shape=(min(side, 256),) * 2)
    pictures, _ = make_demo_set(n_images, shape=(side, side))
    segmenter = Segmenter(random_state=0)
    if study.quick:
        segmenter.set_params(selection_pixels=400, training_pixels=500)
    segmenter.fit(train, masks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = folder / "images"
        for number, picture in enumerate(pictures):
            write_image(images / f"{number}.png", picture)
        where = {"images": n_images, "side": side}
        study.row(
            where, lambda: measure_speed(segmenter, images, pictures[0], n_repeats, folder), what="speed"
        )
        study.row(where, lambda: kill_workers(segmenter, images, n_kills, folder), what="killed")
    tile = 128 if study.quick else 1024
    study.row({"side": tile}, lambda: measure_tile(segmenter, tile), what="tile")
    for given in ("at_once", "spread"):
        where = {"given": given, "workers": 2}
        study.row(where, lambda given=given: load_scheduler(given, n_tasks, 2), what="scheduler")


GIGAPIXELS, N_SLIDES = 10, 10_000


def _by_part(rows: list[Row]) -> tuple[Any, ...]:
    """Return figures and settings of speed, kills and tile, and of a scheduler given all tasks at once, or a few."""
    [speed], [killed], [tile] = (flat(rows, what) for what in ("speed", "killed", "tile"))
    by_way = {row["given"]: row for row in flat(rows, "scheduler")}
    return speed, killed, tile, by_way["at_once"], by_way["spread"]


def scale(rows: list[Row]) -> str:
    """Tabulate what was measured of workers and of a scheduler."""
    speed, killed, tile, at_once, spread = _by_part(rows)
    loads = speed["load_before"]
    equal = "equal, byte for byte" if speed["equal"] else "NOT equal"
    return "\n".join(
        [
            "| measured | value |",
            "|---|---|",
            f"| two workers of one thread against one, {speed['images']} images of {speed['side']} x {speed['side']} "
            f"| {speed['ratio']:.2f} times as fast ({min(speed['ratios']):.2f} to {max(speed['ratios']):.2f}) |",
            f"| {speed['files']} files of workers, and those of one process | {equal} |",
            f"| a worker killed in the middle of an image | {killed['equal']} of {killed['kills']} folders equal |",
            f"| one thread, on {tile['side']:,} x {tile['side']:,} pixels "
            f"| {_rate(tile) / 1e6:.2f} million pixels a second of processor time |",
            f"| the record of an image, by the program that you started | {1000 * speed['put_seconds']:.0f} ms |",
            f"| {at_once['tasks']:,} tiny tasks given at once | {at_once['tasks_per_second']:,.0f} a second, "
            f"{at_once['bytes_per_task'] / 1000:.1f} kB each in the scheduler |",
            f"| {spread['tasks']:,} tiny tasks given as segkit does, a few at a time "
            f"| {spread['tasks_per_second']:,.0f} a second, {spread['memory_mib_most'] - spread['memory_mib_before']:.0f} "
            "MiB more in the scheduler |",
            "",
            f"Default recipe. {len(speed['ratios'])} pairs of runs in turn; the machine of 2 cores had other work (load "
            f"{min(loads):.1f} to {max(loads):.1f} before each pair).",
        ]
    )


def scale_plan(rows: list[Row]) -> str:
    """Tabulate what follows for slides."""
    speed, _, tile, _, spread = _by_part(rows)
    hours = 1e9 / _rate(tile) / 3600
    tile_seconds = tile["processor_seconds"]
    per_second, puts = spread["tasks_per_second"], 1 / speed["put_seconds"]
    of_slide, of_all = GIGAPIXELS * hours, GIGAPIXELS * hours * N_SLIDES
    return "\n".join(
        [
            f"| | a slide of {GIGAPIXELS} gigapixels | {N_SLIDES:,} such slides |",
            "|---|---|---|",
            f"| core hours ({hours:.1f} for a gigapixel) | {of_slide:,.0f} | {of_all:,.0f} |",
            *(
                f"| on {n:,} workers | {60 * of_slide / n:,.0f} minutes | {of_all / n / 24:,.0f} days |"
                for n in (16, 128, 1024)
            ),
            "",
            f"A tile of {tile['side']:,} x {tile['side']:,} takes a worker {tile_seconds:.1f} s. One "
            f"program gives out and takes back at most {per_second:,.0f} tasks a second, enough for "
            f"{per_second * tile_seconds:,.0f} workers. It records {puts:,.0f} images a second, enough for "
            f"{puts * tile_seconds:,.0f} workers if an image is as large as a tile.",
        ]
    )


def _rate(tile: dict[str, Any]) -> float:
    """Pixels of a tile a second of processor time, on one thread."""
    return float(tile["side"] ** 2 / tile["processor_seconds"])


TABLES = {"scale": scale, "scale_plan": scale_plan}
