"""Tables of Markdown, and the cells that they have in common: scores with intervals, differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from segkit.evaluation.statistics import Comparison, bootstrap_interval


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


def difference_of(found: Comparison, *, doubt: bool = False) -> str:
    """Write a difference with its interval, on how many sets one split alone was run, and whether it may be chance."""
    n_alone, n_sets = found.n_seeds.count(1), len(found.n_seeds)
    of_sets = f" on {n_alone} of {n_sets} sets" if n_alone < n_sets else ""
    low, high = found.interval
    notes = f", images only{of_sets}" * bool(n_alone) + ", may be chance" * (doubt and low <= 0 <= high)
    return signed(found.difference, found.interval) + notes


def wilson_interval(n_hits: float, n: float) -> tuple[float, float]:
    """95 % interval of a share of n trials (E. B. Wilson, Journal of the American Statistical Association 22, 1927).

    Neither has to be whole: a weighted sample has an effective size.
    """
    z, share = float(ndtri(0.975)), n_hits / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)
