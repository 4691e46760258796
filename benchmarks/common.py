"""What benchmarks share: splits, the recipe of the paper, speed of the machine, and how results and tables are written."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

import segkit
from segkit._files import atomic
from segkit.benchmark import few_shot_split
from segkit.benchmark.methods import DEFAULT_METHODS
from segkit.evaluation.statistics import Comparison, bootstrap_interval

RESULTS = Path(__file__).parent / "results"
CONFIGS = Path(__file__).parents[1] / "configs"
# Lists of rows in result files, and the keys of the digest of the code that made them.
_LISTS = ("runs", "splits", "draws", "checks", "records", "rows", "cells", "banks")
_DIGESTS = ("sources", "code")
# The recipe of the paper, for any bank.
PAPER_RECIPE = tuple(
    f"{section}={json.dumps(options)}"
    for section, options in DEFAULT_METHODS["segkit-paper"].items()
    if section not in ("kind", "title", "bank")
)


def split(folder: Path, seed: int, n_train: int) -> tuple[list[str], list[str]]:
    """Stems to train on and stems to test on, as `segkit benchmark` draws them."""
    found = few_shot_split([path.stem for path in (folder / "images").iterdir()], n_train, seed)
    return list(found.train), list(found.test)


def sgemm_rate(n: int = 2048, n_repeats: int = 5) -> float:
    """Best measured rate of a float32 matrix product, in floating-point operations per second."""
    a = np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
    best = min(_seconds(lambda: a @ a) for _ in range(n_repeats))
    return 2 * n**3 / best


@cache
def digest_sources() -> str:
    """Digest of segkit's own code and configurations: two runs with the same one are of the same version."""
    folder = Path(segkit.__file__).parent
    digest = hashlib.sha256()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    files |= {f"configs/{path.name}": path for path in CONFIGS.glob("*.yaml")}
    for name, path in sorted(files.items()):
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def result_path(arguments: argparse.Namespace, name: str = "") -> Path:
    """File, or folder, asked for with --out, or the benchmark's own; a quick run never takes that of a real one."""
    folder = RESULTS / "quick" if arguments.quick else RESULTS
    return Path(arguments.out or folder / name)


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result file, indented so that changes show, with the digest of the code if no row carries one."""
    if not any(digest_of(row) for row in rows_of(result)):
        result = {**result, "sources": digest_sources()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def write_rows(path: Path, header: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a result file, a line for each row; the former file stays until this one is whole."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    start = "".join(f"{json.dumps(key)}: {json.dumps(value)}, " for key, value in header.items())
    with atomic(path) as temporary:
        temporary.write_text(f'{{{start}"rows": [\n{lines}\n]}}\n', encoding="utf-8")


def rows_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the measured rows of a result, each with its own digest or that of the file.

    Parts that carry a digest are rows too. Without any, the result is one row.
    """
    of_file = {key: result[key] for key in _DIGESTS if key in result}
    lists = [result[name] for name in _LISTS if isinstance(result.get(name), list)]
    rows = [row for found in lists for row in found if isinstance(row, dict)]
    parts = [part for part in result.values() if isinstance(part, dict) and digest_of(part)]
    return [of_file | row for row in rows + parts or [dict(result)] if not row.get("quoted")]


def git(root: Path, *arguments: str) -> str:
    """Ask git about the history of the repository in a folder."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"{root}: git {' '.join(arguments[:2])}: no history of a git repository to read, clone it whole"
        ) from error


def digest_of(row: Mapping[str, Any]) -> str | None:
    """Give the digest of the code that made a row, None if it carries none."""
    return next((row[key] for key in _DIGESTS if isinstance(row.get(key), str)), None)


def wilson_interval(n_hits: float, n: float) -> tuple[float, float]:
    """95 % interval of a share of n trials (E. B. Wilson, Journal of the American Statistical Association 22, 1927).

    Neither has to be whole: a weighted sample has an effective size.
    """
    z, share = float(ndtri(0.975)), n_hits / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def with_interval(value: float, interval: Sequence[float] | None) -> str:
    """Write a value with its interval, if it has one."""
    return f"{value:.3f}" + ("" if interval is None else f" ({interval[0]:.3f} to {interval[1]:.3f})")


def signed(difference: float, interval: Sequence[float]) -> str:
    """Write a difference with its interval."""
    return f"{difference:+.3f} ({interval[0]:+.3f} to {interval[1]:+.3f})"


def interval_of(scores: Mapping[tuple[int, str], float]) -> tuple[float, float]:
    """Give the 95 % interval of the mean of scores by seed and image."""
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


def difference_of(found: Comparison) -> str:
    """Write a difference with its interval, and on how many sets one split alone was run."""
    n_alone, n_sets = found.n_seeds.count(1), len(found.n_seeds)
    of_sets = f" on {n_alone} of {n_sets} sets" if n_alone < n_sets else ""
    return signed(found.difference, found.interval) + (f", images only{of_sets}" if n_alone else "")


def _seconds(function: Any) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
