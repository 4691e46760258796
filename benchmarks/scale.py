"""Work spread over workers of Dask: speed of two against one, a killed worker, and what a scheduler bears.

    python -m benchmarks.scale [--parts speed killed tile scheduler]

Each worker has one thread. Wall times of a folder are taken in turn, one worker, two, one, two ..., so that other programs
of the machine disturb both alike; the first image that each worker gets, which imports libraries there, is not counted.
A scheduler of many tiny tasks (100,000 unless --tasks says otherwise) stands for that of a slide of as many tiles.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from benchmarks.common import digest_sources, result_path, write_result
from segkit import Segmenter
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.images import write_image
from segkit.scale import Cluster
from segkit.segmentation.folders import segment_folder
from segkit.segmentation.record import Record

MIB = 2**20
PARTS = ("speed", "killed", "tile", "scheduler")


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


def warm(cluster: Cluster, segmenter: Segmenter, image: np.ndarray, n_workers: int) -> None:
    """Let each worker import its libraries and build its filters."""
    for _, result in cluster.spread(_Predict(segmenter), [image] * (4 * n_workers)):
        result()


class _Predict:
    def __init__(self, segmenter: Segmenter) -> None:
        self.segmenter = segmenter

    def __call__(self, image: np.ndarray) -> int:
        return int(self.segmenter.predict(image).size)


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
            warm(cluster, segmenter, example, n_workers)
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


def load_scheduler(n_tasks: int, n_workers: int) -> dict[str, Any]:
    """Give a scheduler tiny tasks all at once, and a tenth as many as `Cluster.spread` does, a few at a time."""
    records = {}
    for name in ("at_once", "spread"):
        # a scheduler of its own process, whose memory is its own
        with (
            tempfile.TemporaryDirectory() as folder,
            _scheduler(Path(folder), n_workers) as (address, process),
        ):
            with Cluster(address, n_workers=n_workers) as cluster:
                before = process.memory_info().rss
                peak = _Peak(process)
                start = time.perf_counter()
                done = _at_once(cluster, n_tasks) if name == "at_once" else _spread(cluster, n_tasks // 10)
                seconds = time.perf_counter() - start
                most = peak.stop()
            records[name] = {
                "tasks": done,
                "seconds": seconds,
                "tasks_per_second": done / seconds,
                "memory_mib_before": before / MIB,
                "memory_mib_most": most / MIB,
                "bytes_per_task": (most - before) / done,
            }
    return {"workers": n_workers, **records}


def _at_once(cluster: Cluster, n_tasks: int) -> int:
    client = cluster._client
    futures = client.map(_tiny, range(n_tasks), pure=False)
    return len(client.gather(futures))


def _spread(cluster: Cluster, n_tasks: int) -> int:
    return sum(result() == item for item, result in cluster.spread(_tiny, range(n_tasks)))


def _tiny(number: int) -> int:
    return number


class _Peak:
    """The most memory that a process holds, looked at ten times a second."""

    def __init__(self, process: psutil.Process) -> None:
        self.process, self.most, self.done = process, 0, threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self) -> None:
        while not self.done.wait(0.1):
            self.most = max(self.most, self.process.memory_info().rss)

    def stop(self) -> int:
        self.done.set()
        self.thread.join()
        return max(self.most, self.process.memory_info().rss)


class _scheduler:  # noqa: N801
    """A scheduler and workers, each a process started as a user would."""

    def __init__(self, folder: Path, n_workers: int) -> None:
        self.file, self.n_workers = folder / "scheduler.json", n_workers

    def __enter__(self) -> tuple[str, psutil.Process]:

        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        dask = [sys.executable, "-m", "dask"]
        file = ["--scheduler-file", str(self.file)]
        address = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self.processes = [subprocess.Popen([*dask, "scheduler", *file, *address], **quiet)]
        while not self.file.exists():
            time.sleep(0.1)
        worker = [*dask, "worker", *file, "--nthreads", "1", "--no-dashboard"]
        self.processes += [subprocess.Popen(worker, **quiet) for _ in range(self.n_workers)]
        return json.loads(self.file.read_text())["address"], psutil.Process(self.processes[0].pid)

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=12, help="number of images of a folder")
    parser.add_argument("--side", type=int, default=512, help="of an image, in pixels")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--quick", action="store_true", help="few and small: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.images, arguments.side, arguments.repeats, arguments.kills, arguments.tasks = (
            4,
            96,
            1,
            1,
            500,
        )

    path = result_path(arguments, "scale.json")
    train, masks = make_demo_set(3, shape=(min(arguments.side, 256),) * 2)
    pictures, _ = make_demo_set(arguments.images, shape=(arguments.side, arguments.side))
    segmenter = Segmenter(random_state=0)
    if arguments.quick:
        segmenter.set_params(selection_pixels=400, training_pixels=500)
    segmenter.fit(train, masks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, picture in enumerate(pictures):
            write_image(folder / "images" / f"{number}.png", picture)
        parts: dict[str, Callable[[], Any]] = {
            "speed": lambda: measure_speed(
                segmenter, folder / "images", pictures[0], arguments.repeats, folder
            ),
            "killed": lambda: kill_workers(segmenter, folder / "images", arguments.kills, folder),
            "tile": lambda: measure_tile(segmenter, 128 if arguments.quick else 1024),
            "scheduler": lambda: load_scheduler(arguments.tasks, 2),
        }
        result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        result |= {"recipe": "default", "images": arguments.images, "side": arguments.side}
        result["machine"] = machine()
        for part in arguments.parts:
            result[part] = parts[part]() | {"sources": digest_sources()}
            write_result(path, result)
    print(json.dumps({part: result[part] for part in arguments.parts}))


if __name__ == "__main__":
    main()
