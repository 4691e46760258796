"""Rows of the few-shot tables that were measured anew, beside what they were before.

    python -m benchmarks.again COMMIT [--out FILE]

Committed rows are of the code that made them (`benchmarks.stale`). This tells whether their numbers changed with it. It
measures nothing: it reads the result files of COMMIT from the history of the repository, and compares each row with the
row here of the same set, method, number of training images and seed, where another version of the code made it.

Written to again.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import RESULTS, digest_of, git, markdown_table, write_rows
from benchmarks.scores import TITLES
from benchmarks.segmentation import SETS, records_of

ROOT = Path(__file__).parents[1]
KEY = ("method", "n_train", "seed")
N_COUNTS = 4  # pixels by truth and prediction, of two classes

Run = Mapping[str, Any]


def scores_by_image(run: Run) -> dict[str, float]:
    """Give the mean IoU of each test image of a run."""
    return {record["image"]: record["mean_iou"] for record in records_of({"runs": [run]})}


def compare_runs(before: Run, now: Run) -> dict[str, Any]:
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


def measured_anew(before: Iterable[Run], now: Iterable[Run]) -> Iterator[tuple[Run, Run]]:
    """Pair the runs of the same method and split that different versions of the code made."""
    known = {tuple(run[name] for name in KEY): run for run in before}
    for run in now:
        old = known.get(tuple(run[name] for name in KEY))
        if old is not None and digest_of(old) != digest_of(run):
            yield old, run


def again(result: Mapping[str, Any]) -> str:
    """Make the table: rows of each method that were measured anew, and how far they moved."""
    lines = []
    for method, title in TITLES.items():
        rows = [row for row in result["rows"] if row["method"] == method]
        if not rows:
            continue
        moved = [row["mean_iou"] - row["mean_iou_before"] for row in rows]
        lines.append(
            (
                title,
                len(rows),
                f"{sum(row['n_equal'] for row in rows)} of {sum(row['n_images'] for row in rows)}",
                f"{_rounded(np.mean(moved)):+.4f}",
                f"{_rounded(max(moved, key=abs)):+.4f}",
            )
        )
    return markdown_table(
        ["method", "rows", "images with the same counts", "mean change", "largest change of a row"], lines
    )


def _rounded(change: float) -> float:
    return round(float(change), 4) + 0.0  # no -0.0


def _committed(commit: str, name: str) -> list[Run]:
    """Read the runs of a set from the history."""
    shown = git(ROOT, "show", f"{commit}:benchmarks/results/{name}")
    runs: list[Run] = json.loads(shown)["runs"]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", metavar="COMMIT", help="what came before, as git names it")
    parser.add_argument("--out", type=Path, default=RESULTS / "again.json")
    arguments = parser.parse_args()
    rows = []
    for name in SETS:
        file = f"segmentation-{name}.json"
        runs = json.loads((RESULTS / file).read_text())["runs"]
        for old, new in measured_anew(_committed(arguments.commit, file), runs):
            codes = {"sources_before": digest_of(old), "sources": digest_of(new)}
            own = {key: new[key] for key in KEY}
            rows.append({"set": name, **own, **codes, **compare_runs(old, new)})
    if not rows:
        raise SystemExit(f"{arguments.commit}: no row was measured anew since then, give an earlier commit")
    write_rows(arguments.out, {"before": arguments.commit}, rows)


if __name__ == "__main__":
    main()
