"""Rows of the few-shot tables, drawn at random and measured again by the present code.

    python -m benchmarks.again --data DATA --vgg19 VGG19.npz --squeezenet SQUEEZENET.npz
        [--sets ...] [--methods ...] [--rows N] [--quick] [--out FILE]

Committed rows are of the code that made them, and most of that code has changed since (`benchmarks.stale`). This tells
whether the numbers have. Of each method N rows are drawn with a fixed seed among all its committed rows with 1 to 5 training
images, as equal a number from each set as can be. Each is measured again on its split, and compared image by image.

Written to again.json, row by row; rows that the file holds for the present code are kept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import RESULTS, digest_of, digest_sources, markdown_table, write_rows
from benchmarks.scores import TITLES
from benchmarks.segmentation import (
    METHODS,
    QUICK,
    Results,
    overrides_of,
    parse,
    parser_of,
    records_of,
    write_made_up,
)
from benchmarks.segmentation import measure as measure_set
from segkit.benchmark import Benchmark, load_methods

MOST_TRAINING_IMAGES = 5
SMALL = [option for option in QUICK if option.startswith("segkit-no-networks.")]
KEY = ("set", "method", "n_train", "seed")
N_COUNTS = 4  # pixels by truth and prediction, of two classes


def draw(runs: Iterable[Mapping[str, Any]], n_rows: int, seed: int = 0) -> list[dict[str, Any]]:
    """Draw rows of one method, the sets in turn.

    Parameters
    ----------
    runs : iterable of mapping
        Rows with "set", "n_train" and "seed".
    n_rows : int
        Number of rows, at most all.
    seed : int, default=0
        Seed of the draw.

    Returns
    -------
    list of dict
        The rows that were drawn.
    """
    rng = np.random.default_rng(seed)
    by_set: dict[str, list[dict[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: (run["set"], run["n_train"], run["seed"])):
        if run["n_train"] <= MOST_TRAINING_IMAGES:
            by_set.setdefault(run["set"], []).append(dict(run))
    shuffled = [[rows[place] for place in rng.permutation(len(rows))] for rows in by_set.values()]
    in_turn = chain.from_iterable(zip_longest(*shuffled))
    return [row for row in in_turn if row is not None][:n_rows]


def scores_by_image(run: Mapping[str, Any]) -> dict[str, float]:
    """Give the mean IoU of each test image of a run."""
    return {record["image"]: record["mean_iou"] for record in records_of({"runs": [run]})}


def compare_runs(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two runs of the same split: means of mean IoU, images that agree to the pixel, largest difference of an image.

    Counts of pixels by truth and prediction are compared, so that an image agrees where all of them are the same.
    """
    equal = [
        before["images"][image][:N_COUNTS] == now["images"][image][:N_COUNTS] for image in before["images"]
    ]
    old, new = scores_by_image(before), scores_by_image(now)
    return {
        "n_images": len(old),
        "n_equal": sum(equal),
        "mean_iou_before": round(float(np.nanmean(list(old.values()))), 6),
        "mean_iou": round(float(np.nanmean(list(new.values()))), 6),
        "largest": round(max(abs(new[image] - old[image]) for image in old), 6),
    }


def again(result: Mapping[str, Any]) -> str:
    """Make the table: rows of each method that were measured again, and how far they moved."""
    lines = []
    for method in dict.fromkeys(row["method"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["method"] == method]
        moved = [row["mean_iou"] - row["mean_iou_before"] for row in rows]
        lines.append(
            (
                TITLES[method],
                len(rows),
                f"{sum(row['n_equal'] for row in rows)} of {sum(row['n_images'] for row in rows)}",
                f"{_rounded(np.mean(moved)):+.4f}",
                f"{_rounded(max(moved, key=abs)):+.4f}",
            )
        )
    return markdown_table(
        [
            "method",
            "rows measured again",
            "images with the same counts",
            "mean change",
            "largest change of a row",
        ],
        lines,
    )


def _rounded(change: float) -> float:
    return round(float(change), 4) + 0.0  # no -0.0


def measure(folder: Path, row: Mapping[str, Any], overrides: list[str], work: Path) -> dict[str, Any]:
    """Measure a row again, and compare it with what it was."""
    [method] = load_methods(
        [row["method"]], None, [one for one in overrides if one.startswith(f"{row['method']}.")]
    )
    with tempfile.TemporaryDirectory(dir=work) as temporary:
        out = Path(temporary)
        benchmark = Benchmark(
            folder / "images", folder / "masks", out / "work", [method], [row["n_train"]], [row["seed"]]
        )
        [unit] = benchmark.units
        outcome = benchmark.outcome(unit)
        if "error" in outcome:
            raise SystemExit(f"{row['set']} {unit.name} failed: {outcome['error']}")
        results = Results(out / "again.json", row["set"])
        results.add(outcome, {})
    own = {name: row[name] for name in KEY} | {"sources": digest_sources(), "sources_before": digest_of(row)}
    return own | compare_runs(row, results.runs[0])


def committed(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the sets that are asked for."""
    return [
        run | {"set": name}
        for name in arguments.sets
        for run in json.loads((RESULTS / f"segmentation-{name}.json").read_text())["runs"]
    ]


def made_up(arguments: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Rows of made-up images, measured just now."""
    arguments.data, arguments.sets, arguments.methods = work, ["made-up"], ["segkit-no-networks"]
    arguments.train_sizes, arguments.seeds = [2], 1
    write_made_up(work / "made-up")
    first = Results(work / "first.json", "made-up")
    measure_set(work / "made-up", first, work / "first", arguments, SMALL)
    return [run | {"set": "made-up"} for run in first.runs]


def main() -> None:
    parser = parser_of(__doc__, methods=METHODS, train_sizes=[])
    parser.add_argument("--rows", type=int, default=4, metavar="N", help="rows of each method")
    arguments = parse(parser, "again.json")
    arguments.max_steps, arguments.device = 400, "auto"  # of networks that are trained, as in `segmentation`
    kept = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
    rows = [row for row in kept if row["sources"] == digest_sources()]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        known = made_up(arguments, work) if arguments.quick else committed(arguments)
        overrides = SMALL if arguments.quick else overrides_of(arguments)
        for method in arguments.methods:
            for row in draw([run for run in known if run["method"] == method], arguments.rows):
                key = {name: row[name] for name in KEY}
                if any(key.items() <= done.items() for done in rows):
                    continue
                now = measure(arguments.data / row["set"], row, overrides, work)
                rows.append(now)
                write_rows(arguments.out, {}, rows)
                print(
                    f"{' '.join(map(str, key.values()))}: {now['mean_iou_before']:.4f} {now['mean_iou']:.4f}, "
                    f"{now['n_equal']} of {now['n_images']} images the same",
                    flush=True,
                )


if __name__ == "__main__":
    main()
