"""Rows of measurements: how a study makes them, and how tables read them."""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from segkit._common.device import device_name
from segkit._common.files import atomic
from segkit.benchmark.machine import machine
from segkit.evaluation.statistics import student_interval

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"

Row = dict[str, Any]


class MissingDataError(Exception):
    """Data that are not where they are looked for; a quick run is skipped."""


@dataclass(eq=False)
class Study:
    """A study as it is run.

    Parameters
    ----------
    name : str
        Name of the study, of its file and, unless said otherwise, of the kind of its rows.
    out : Path
        Folder of the rows.
    data, weights : Path or None
        Folders that were given.
    sets : list of str or None
        Folders of the data, in place of the study's own.
    seeds : int or None
        Number of splits or draws, in place of the study's own.
    quick : bool
        Whether a small form is wanted.
    options : argparse.Namespace
        All options of the command line.
    """

    name: str
    out: Path
    data: Path | None = None
    weights: Path | None = None
    sets: list[str] | None = None
    seeds: int | None = None
    quick: bool = False
    options: argparse.Namespace = field(default_factory=argparse.Namespace)

    def row(
        self,
        where: Mapping[str, Any],
        measure: Callable[[], Mapping[str, Any]],
        *,
        what: str | None = None,
        part: str | None = None,
    ) -> Row:
        """Return the row of some settings; it is measured and written unless the file has it.

        Parameters
        ----------
        where : dict
            The settings.
        measure : callable
            Measures the figures, as values of JSON.
        what : str, optional
            Kind of the row, the name of the study by default.
        part : str, optional
            The row stands in STUDY-PART.jsonl instead of STUDY.jsonl.
        """
        path = self.out / f"{self.name}{f'-{part}' if part else ''}.jsonl"
        start = {"what": what or self.name, "where": json.loads(json.dumps(where))}
        rows = read_file(path)
        if (known := next((row for row in rows if start.items() <= row.items()), None)) is not None:
            return known
        began = time.perf_counter()
        figures = json.loads(json.dumps(measure()))
        seconds = round(time.perf_counter() - began, 2)
        row = {**start, "figures": figures, **_noted(), "seconds": seconds, "machine": machine_name()}
        write_file(path, [*rows, row])
        told = ", ".join(f"{key} {value}" for key, value in figures.items() if isinstance(value, int | float))
        print(*where.values(), f"{told[:120]} ({seconds:.1f} s)", flush=True)
        return row

    def folder(self, *names: str) -> Path:
        """Return a folder or file below the folder of the data, which must exist."""
        if self.data is None:
            raise MissingDataError("give the folder of the data with --data")
        path = self.data.joinpath(*names)
        if not path.exists():
            raise MissingDataError(f"no {path}: give the folder that holds {Path(*names)} with --data")
        return path

    def arrays(self, path: str) -> dict[str, NDArray[Any]]:
        """Read the arrays of an npz file below the folder of the data."""
        with np.load(self.folder(path)) as found:
            return dict(found)

    def weight(self, name: str) -> str:
        """Return the file of a network's weights: the one in the folder of weights that begins with its name."""
        found = (
            sorted(self.weights.glob(f"{name}*.npz"), key=lambda path: len(path.name)) if self.weights else []
        )
        if not found:
            raise MissingDataError(f"give the folder of {name}*.npz with --weights")
        return str(found[0])


def _noted() -> dict[str, str]:
    return {"commit": commit(), "date": datetime.now(UTC).date().isoformat()}


@cache
def commit() -> str:
    """Return the commit of the code, with a "+" if files were changed since; "unknown" without git."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=7", "--dirty=+"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine_name() -> str:
    """Return the processor, how many cores of it, and the graphics card that `segkit.device` has set."""
    known = machine(device_name())
    card = f" and {known['gpu']}" if "gpu" in known else ""
    return f"{known['n_cores']} cores of {known['cpu']}{card}"


def read_file(path: Path) -> list[Row]:
    """Read the rows of a file; none if it does not exist."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    )


def write_file(path: Path, rows: Iterable[Row]) -> None:
    """Write rows, a line each; the former file stays until this one is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as temporary:
        temporary.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def read(name: str) -> list[Row]:
    """Read the committed rows of a study, of all its files."""
    return [
        row
        for path in (RESULTS / f"{name}.jsonl", *sorted(RESULTS.glob(f"{name}-*.jsonl")))
        for row in read_file(path)
    ]


def flat(rows: Iterable[Row], what: str | None = None) -> list[dict[str, Any]]:
    """Return settings and figures of rows, of one kind if it is given, as one dict each."""
    return [row["where"] | row["figures"] for row in rows if what in (None, row["what"])]


def select(rows: Iterable[Row], what: str, **where: Any) -> list[Row]:
    """Rows of one kind with some settings, which are left out of them."""
    found = []
    for row in rows:
        if row["what"] == what and all(row["where"].get(name) == value for name, value in where.items()):
            rest = {name: value for name, value in row["where"].items() if name not in where}
            found.append({**row, "where": rest})
    return found


def accuracy(predicted: ArrayLike, truth: ArrayLike) -> dict[str, Any]:
    """Percentage of right predictions, with its 95 % interval."""
    right = np.asarray(predicted) == np.asarray(truth)
    interval = [100 * end for end in binomtest(int(right.sum()), right.size).proportion_ci(method="wilson")]
    return {"value": 100 * float(right.mean()), "interval": interval}


def mean_of_runs(values: Iterable[float]) -> dict[str, Any]:
    """Mean of repetitions, with the 95 % interval of Student's t where there are two or more."""
    runs = [float(value) for value in values]
    interval = list(student_interval(runs)) if len(runs) > 1 else None
    return {"value": float(np.mean(runs)), "interval": interval, "runs": runs}
