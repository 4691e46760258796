"""What the tables of the papers share: arrays, means with their intervals, and numbers beside the papers'."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.markdown import markdown_table, wilson_interval
from benchmarks.rows import Row, Study
from segkit.evaluation.statistics import student_interval

# The paper's number for the values of some settings.
Papers = Mapping[tuple[Any, ...], float]


def arrays(study: Study, path: str) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file below the data folder."""
    with np.load(study.folder(path)) as found:
        return dict(found)


def accuracy(predicted: ArrayLike, truth: ArrayLike) -> dict[str, Any]:
    """Percentage of right predictions, with its 95 % interval."""
    right = np.asarray(predicted) == np.asarray(truth)
    interval = [100 * end for end in wilson_interval(int(right.sum()), right.size)]
    return {"value": 100 * float(right.mean()), "interval": interval}


def mean_of_runs(values: Iterable[float]) -> dict[str, Any]:
    """Mean of repetitions, with the 95 % interval of Student's t where there are two or more."""
    runs = [float(value) for value in values]
    interval = list(student_interval(runs)) if len(runs) > 1 else None
    return {"value": float(np.mean(runs)), "interval": interval, "runs": runs}


def to_hundredths(figures: Mapping[str, Any]) -> str:
    """Write a value with half its interval, if it has one; the longer half, where they differ."""
    value, interval = figures["value"], figures["interval"]
    told = format(value, "+.2f" if figures.get("is_difference") else ".2f")
    return told if interval is None else f"{told} (±{max(value - interval[0], interval[1] - value):.2f})"


def to_tenths(figures: Mapping[str, Any]) -> str:
    """Write a value without its interval."""
    return f"{figures['value']:.1f}"


def pivot(
    rows: Iterable[Row],
    columns: str,
    papers: Papers | None = None,
    cell: Callable[[Mapping[str, Any]], str] = to_hundredths,
    title: str = "{}",
) -> str:
    """Make a table with a column for each value of one setting, the paper's numbers beside the measured ones.

    The other settings name the lines. Numbers of the paper that are not measured get lines of their own.
    """
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row["where"]))
    found = {tuple(row["where"].get(name, "") for name in names): cell(row["figures"]) for row in rows}
    for key, number in (papers or {}).items():
        paper = f"paper {number:,}" if isinstance(number, int) else f"paper {number:.2f}"
        found[key] = f"{found[key]}, {paper}" if key in found else paper
    place = names.index(columns)
    values = list(dict.fromkeys(key[place] for key in found))
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for key, text in found.items():
        lines.setdefault(key[:place] + key[place + 1 :], {})[key[place]] = text
    header = [*(name for name in names if name != columns), *map(title.format, values)]
    return markdown_table(
        header, ([*key, *(cells.get(value, "") for value in values)] for key, cells in lines.items())
    )


def select(rows: Iterable[Row], what: str, **where: Any) -> list[Row]:
    """Rows of one kind with some settings, which are left out of them."""
    found = []
    for row in rows:
        if row["what"] == what and all(row["where"].get(name) == value for name, value in where.items()):
            rest = {name: value for name, value in row["where"].items() if name not in where}
            found.append({**row, "where": rest})
    return found
