"""Tables of docs/trust.md: kills, fuzzing, long runs, other machines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

_FUZZED = {"model_file": "model files", "config": "configurations", "labels": "meanings of mask values"}


def kills(result: dict[str, Any]) -> str:
    lines = ["| command | kills | runs until the end | torn, lost or different files |", "|---|---|---|---|"]
    lines += [
        f"| `segkit {name}` | {entry['kills']:,} | {entry['episodes']:,} | {len(entry['faults'])} |"
        for name, entry in result["commands"].items()
    ]
    steps = sum((Counter(entry["by_step"]) for entry in result["commands"].values()), Counter())
    return "\n".join(
        [
            *lines,
            "",
            f"{steps['time']:,} of the kills came after a random time. The others came at a random step of writing: before "
            f"the folder is made ({steps['folder']:,}), half way through the content ({steps['half']:,}), before it is on "
            f"the disk ({steps['sync']:,}), before the file gets its name ({steps['rename']:,}) and after "
            f"({steps['renamed']:,}).",
        ]
    )


def fuzz(results: list[dict[str, Any]]) -> str:
    lines = ["| input | tried | faults | slowest | memory, at most |", "|---|---|---|---|---|"]
    lines += [
        f"| {_FUZZED[result['target']]} | {result['inputs']:,} | {len(result['faults'])} | "
        f"{result['slowest_seconds']:.2f} s | {result['peak_megabytes']:.0f} MB |"
        for result in results
    ]
    return "\n".join(lines)


def fuzz_images(result: dict[str, Any]) -> str:
    return (
        f"{result['n_inputs']:,} files from {result['n_seeds']} sound ones: {result['n_read']:,} read, "
        f"{result['n_refused']:,} refused by name, {len(result['faults'])} faults; at most "
        f"{result['slowest_seconds']:.2f} s and "
        f"{result['peak_megabytes']:.0f} MB for one."
    )


def soak(result: dict[str, Any]) -> str:
    what = {"predict": "images segmented, with all results", "annotate": "strokes drawn"}
    lines = ["| run | memory at its tenth | most | growth |", "|---|---|---|---|"]
    lines += [
        f"| {result[name]['n']:,} {text} | {result[name]['mib'][10]:.0f} MiB | {result[name]['peak_mib']:.0f} MiB | "
        f"{100 * result[name]['growth']:+.1f} % |"
        for name, text in what.items()
        if name in result
    ]
    return "\n".join(lines)


def reproducibility(result: dict[str, Any]) -> str:
    lines = [
        "| setting, beside 1 thread | same bytes of the model | numbers of it differ by | pixels of another class | most |",
        "|---|---|---|---|---|",
    ]
    for setting in dict.fromkeys(row["setting"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["setting"] == setting]
        same = sum(row["same_bytes"] for row in rows)
        differences = [row["largest_difference"] for row in rows]
        told = "other channels" if None in differences else f"{max(differences):.1e}"
        lines.append(
            f"| {setting} | {same} of {len(rows)} | {told} | "
            f"{100 * np.mean([row['pixels_changed_mean'] for row in rows]):.4f} % | "
            f"{100 * max(row['pixels_changed_most'] for row in rows):.4f} % |"
        )
    sets = ", ".join(dict.fromkeys(row["set"] for row in result["rows"]))
    return "\n".join(
        [
            *lines,
            "",
            f"Default recipe, five training images and ten test images of each of {sets}. Differences of numbers, the "
            "largest, are relative to the largest of their array. Pixels: mean of the images, and the image with most.",
        ]
    )
