"""Tables of Markdown, and their common cells: scores with intervals, differences, numbers beside a paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.rows import Row
from segkit.evaluation.statistics import N_RESAMPLES, Comparison, bootstrap_interval

# A paper's number for the values of some settings.
Papers = Mapping[tuple[Any, ...], float]
# Of an interval's width: two standard errors of its ends. With n resamples the 2.5 % quantile of a normal law has the error
# sqrt(0.025 * 0.975 / n) / 0.0584 standard deviations, of which the interval is 3.92 wide.
_EDGE = 2 * math.sqrt(0.025 * 0.975 / N_RESAMPLES) / 0.0584 / 3.92


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a table; floats have three significant digits."""
    lines = [header, ["---"] * len(header), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def broken(cell: str) -> str:
    """Break a cell into lines before its interval and its remarks, to make its column narrow; an interval stays whole."""
    return cell.replace(" (", "<br>(").replace(" to ", "\u00a0to\u00a0").replace(", ", "<br>")


def with_interval(value: float, interval: Sequence[float] | None) -> str:
    """Write a value with its interval, if it has one."""
    return f"{value:.3f}" + ("" if interval is None else f" ({interval[0]:.3f} to {interval[1]:.3f})")


def signed(difference: float, interval: Sequence[float]) -> str:
    """Write a difference with its interval."""
    return f"{difference:+.3f} ({interval[0]:+.3f} to {interval[1]:+.3f})"


def interval_of(scores: Mapping[tuple[int, str], float]) -> tuple[float, float]:
    """Compute the 95 % interval of the mean of scores by seed and image."""
    seeds, images = zip(*scores, strict=True)
    return bootstrap_interval(list(scores.values()), images, seeds)


def mean_of(scores: Mapping[tuple[int, str], float]) -> str:
    """Write the mean of scores by seed and image, with its interval."""
    alone = ", images only" if len({seed for seed, _ in scores}) == 1 else ""
    return with_interval(float(np.mean(list(scores.values()))), interval_of(scores)) + alone


def paired(
    first: Mapping[tuple[int, str], float], second: Mapping[tuple[int, str], float]
) -> tuple[list[float], list[float], list[str], list[int]] | None:
    """Pair scores by seed and image of two methods, as `compare` takes them; None if no run is of both."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    seeds, images = zip(*shared, strict=True)
    return [first[key] for key in shared], [second[key] for key in shared], list(images), list(seeds)


def difference_of(found: Comparison, *, doubt: bool = False, splits: bool = True) -> str:
    """Write a difference with its interval, on how many sets one split alone was run, and whether it may be chance.

    It is on the edge of chance if the interval's end nearer 0 lies within its own error: other resamples may have it on the
    other side.
    """
    n_alone, n_sets = found.n_seeds.count(1), len(found.n_seeds)
    of_sets = f" on {n_alone} of {n_sets} sets" if n_alone < n_sets else ""
    low, high = found.interval
    notes = f", images only{of_sets}" * bool(n_alone and splits)
    if doubt and 0 < min(abs(low), abs(high)) < _EDGE * (high - low):
        notes += ", on the edge of chance"
    elif doubt and low <= 0 <= high:
        notes += ", may be chance"
    return signed(found.difference, found.interval) + notes


def to_hundredths(figures: Mapping[str, Any]) -> str:
    """Write a value with half its interval, if it has one; the longer half, where they differ."""
    value, interval = figures["value"], figures["interval"]
    told = format(value, "+.2f" if figures.get("is_difference") else ".2f")
    return (
        told
        if interval is None
        else f"{told}\u00a0±\u00a0{max(value - interval[0], interval[1] - value):.2f}"
    )


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
