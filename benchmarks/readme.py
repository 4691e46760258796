"""Tables of the README, made from the committed result files.

python -m benchmarks.readme            write them into README.md
python -m benchmarks.readme --check    fail if README.md says anything else
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
BANKS = {"vgg19-truncated": "VGG19 to conv3_4", "squeezenet": "SqueezeNet 1.0", "scattering": "scattering"}


def fewshot(result: dict[str, Any]) -> str:
    lines = [
        "| set (5 training images, seed 0) | bank | mean IoU | 95 % interval | foreground IoU | test images |",
        "|---|---|---|---|---|---|",
    ]
    for record in result["records"]:
        low, high = record["interval"]
        lines.append(
            f"| {record['set']} | {BANKS[record['bank']]} | **{record['mean_iou']:.3f}** | {low:.3f} to {high:.3f} "
            f"| {record['foreground_iou']:.3f} | {record['n_test']} |"
        )
    return "\n".join(lines)


def cost(result: dict[str, Any]) -> str:
    lines = [
        "| set | bank | training (5 images) | peak memory | model file |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {record['set']} | {BANKS[record['bank']]} | {record['fit_seconds']:.0f} s "
        f"| {record['fit_memory_gib']:.1f} GiB | {record['model_megabytes']:.1f} MB |"
        for record in result["records"]
    ]
    machine = result["machine"]
    return "\n".join(
        [*lines, "", f"Whole commands, start to end, on {machine['n_cores']} cores ({machine['cpu']})."]
    )


def predict_speed(result: dict[str, Any]) -> str:
    low, high = result["ratio_range"]
    return (
        f"Segmenting one 256 x 256 image with VGG19 to conv3_4 ({result['kept_channels']} channels kept, "
        f"{result['n_components']:,} random features) takes **{result['ratio_to_arithmetic']:.1f} times** "
        f"({low:.1f} to {high:.1f}) what its {sum(result['gflops'].values()):.0f} GFLOP would take at the rate of a "
        f"float32 matrix product in the same run."
    )


def demo(result: dict[str, Any]) -> str:
    low, high = result["interval"]
    return (
        f"On the demo's ten test pictures: mean IoU {result['mean_iou']:.3f} (95 % interval {low:.3f} to {high:.3f}), "
        f"lesions alone {result['classes'][1]['iou']:.3f}."
    )


def few_digits(result: dict[str, Any]) -> str:
    digits = [row for row in result["rows"] if row["settings"]["data"] == "digits"]
    sizes = sorted({row["settings"]["training images"] for row in digits})
    lines = [
        "| test accuracy on 10,000 MNIST digits (the paper's) | "
        + " | ".join(f"{size} training images" for size in sizes)
        + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for method in dict.fromkeys(row["settings"]["method"] for row in digits):
        cells = []
        for row in digits:
            if row["settings"]["method"] == method:
                measured = "" if row["value"] is None else f"{row['value']:.2f}"
                paper = "" if row["paper"] is None else f" ({row['paper']:.2f})"
                cells.append((measured + paper).strip())
        name = "**ours, chosen by cross-validation**" if method == "ours" else method
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def orbit_segmentation(result: dict[str, Any]) -> str:
    angles = [turn["angle"] for turn in result["records"][0]["turns"]]
    lines = [
        "| set | features | mean IoU | "
        + " | ".join(f"labels changed by a turn of {angle:g}° | IoU of the two maps" for angle in angles)
        + " | changed by quarter turns and reflections |",
        "|---|---|---|" + "---|---|" * len(angles) + "---|",
    ]
    for record in result["records"]:
        turns = [
            f"{turn['changed_percent']:.2f} % | {turn['foreground_iou']:.3f}" for turn in record["turns"]
        ]
        symmetries = record["symmetries"]
        lines.append(
            f"| {record['set']} | {record['method']} | {record['mean_iou']:.3f} | {' | '.join(turns)} "
            f"| {100 * symmetries['changed'] / symmetries['pixels']:.2f} % |"
        )
    return "\n".join(lines)


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "fewshot": ("fewshot.json", fewshot),
    "cost": ("fewshot.json", cost),
    "predict_speed": ("predict_speed.json", predict_speed),
    "demo": ("demo.json", demo),
    "few_digits": ("003-table2.json", few_digits),
    "orbit_segmentation": ("orbit_segmentation.json", orbit_segmentation),
}


def render(text: str) -> str:
    """Make every table of the README anew."""
    for name, (file, table) in TABLES.items():
        body = table(json.loads((RESULTS / file).read_text(encoding="utf-8")))
        pattern = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"README.md has no place for table {name}")
        text = pattern.sub(lambda match, body=body: match[1] + body + "\n" + match[2], text)  # type: ignore[misc]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    rendered = render(text)
    if not arguments.check:
        path.write_text(rendered, encoding="utf-8")
    elif rendered != text:
        raise SystemExit("README.md does not show the committed results: run python -m benchmarks.readme")


if __name__ == "__main__":
    main()
