"""Score and picture of ``segkit demo`` for the README: ``python -m benchmarks demo``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.rows import ROOT, Row, Study, flat
from segkit.cli.demo import run_demo

PICTURE = ROOT / "docs" / "demo.jpg"


def run(study: Study) -> None:
    study.row({}, lambda: measure(None if study.quick else PICTURE))


def measure(picture: Path | None) -> dict[str, Any]:
    """Train on the demo's drawings, and keep its picture."""
    with tempfile.TemporaryDirectory() as temporary:
        result = run_demo(Path(temporary) / "demo")
        if picture:
            with Image.open(result.picture) as found:
                found.convert("RGB").save(picture, quality=88)
    scores = result.scores
    lesion = scores["classes"][1]
    return {
        "n_images": scores["n_images"],
        "lesion_iou": lesion["iou"],
        "lesion_dice": lesion["dice"],
        "mean_iou": scores["mean_iou"],
        "interval": scores["interval"],
    }


def demo(rows: list[Row]) -> str:
    [found] = flat(rows)
    low, high = found["interval"]
    return (
        f"Demo, {found['n_images']} test pictures: lesion IoU {found['lesion_iou']:.3f}, lesion Dice "
        f"{found['lesion_dice']:.3f}, mean IoU {found['mean_iou']:.3f} (95 % interval {low:.3f} to {high:.3f})."
    )


TABLES = {"demo": demo}
