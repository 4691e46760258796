"""Tables of what `benchmarks.coverage` measured: promises of the margins, and alarms of unlike images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.common import with_interval
from segkit.evaluation.statistics import bootstrap_interval

Line = dict[str, Any]
LEVELS = (80, 90)


def coverage(result: Line) -> str:
    """Tabulate the coverage of the margins, by set and number of training images."""
    lines = [
        "| training images | set | splits | within the 80 % margin | its mean | within the 90 % margin | its mean | "
        "Spearman's correlation |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for n_train in sorted({split["n_train"] for split in result["splits"]}, reverse=True):
        mine = [split for split in result["splits"] if split["n_train"] == n_train]
        names = sorted({split["set"] for split in mine})
        for name in (*names, None):
            chosen = [split for split in mine if name in (split["set"], None)]
            lines.append(_coverage_line(n_train, name or "all", chosen))
    n_images = sum(len(split["images"]) for split in result["splits"])
    return "\n".join(
        [
            *lines,
            "",
            f"Shares of {n_images:,} predictions, with 95 % bootstrap intervals over splits and test images. Correlation of "
            "expected with true mean IoU over the test images of a split, mean over splits.",
        ]
    )


def alarms(result: Line) -> str:
    """Tabulate how often images are called unlike the training images, and what it costs to be so."""
    numbers = sorted({split["n_train"] for split in result["splits"]}, reverse=True)
    lines = [
        "| image | "
        + " | ".join(f"alarms, {n} training images" for n in numbers)
        + " | most by | mean IoU |",
        "|---|" + "---|" * (len(numbers) + 2),
    ]
    of_number = [[split for split in result["splits"] if split["n_train"] == n] for n in numbers]
    names = sorted({split["set"] for split in result["splits"]})
    own = [
        [
            [image[4] for split in splits if split["set"] in chosen for image in split["images"]]
            for splits in of_number
        ]
        for chosen in (*([name] for name in names), names)
    ]
    for name, told in zip((*names, "all sets"), own, strict=True):
        lines.append(f"| unseen, of the same set: {name} | {_rates(told)} | {_most(told)} | |")
    others = [
        [
            told
            for split in splits
            if "others" in split
            for found in split["others"].values()
            for told in found
        ]
        for splits in of_number
    ]
    lines.append(f"| of another set | {_rates(others)} | {_most(others)} | |")
    faults = list(dict.fromkeys(fault for split in result["splits"] for fault in split.get("spoilt", ())))
    for fault in faults:
        spoilt = [
            [one for split in splits for one in split.get("spoilt", {}).get(fault, ())]
            for splits in of_number
        ]
        told = [[one[2] for one in found] for found in spoilt]
        before, after = np.mean([one[:2] for found in spoilt for one in found], axis=0)
        if "size" in _most(told):  # which tells nothing where images are cut from larger ones
            rest = [[[kind for kind in kinds if kind != "size"] for kinds in found] for found in told]
            lines.append(
                f"| {fault}, size not looked at | {_rates(rest)} | {_most(rest)} | {before:.2f} to {after:.2f} |"
            )
        lines.append(f"| {fault} | {_rates(told)} | {_most(told)} | {before:.2f} to {after:.2f} |")
    counts = [len(told) for told in others]
    n_spoilt = sum(len(split["spoilt"].get(faults[0], ())) for split in result["splits"] if "spoilt" in split)
    return "\n".join(
        [
            *lines,
            "",
            f"Shares of images called unlike the training images. {' and '.join(map(str, counts))} images are of other "
            f"sets, {n_spoilt} are spoilt in each way. Mean IoU before and after.",
        ]
    )


def _coverage_line(n_train: int, name: str, splits: Sequence[Line]) -> str:
    splits_of = np.repeat(np.arange(len(splits)), [len(split["images"]) for split in splits])
    images_of = [f"{split['set']}/{image[0]}" for split in splits for image in split["images"]]
    cells = []
    for place, _ in enumerate(LEVELS):
        margins = [split["margins"][place] for split in splits]
        if None in margins:
            cells += ["refused", ""]
            continue
        inside = np.array(
            [
                abs(image[1] - image[2]) <= split["margins"][place]
                for split in splits
                for image in split["images"]
            ],
            dtype=float,
        )
        cells += [
            with_interval(inside.mean(), bootstrap_interval(inside, images_of, splits_of)),
            f"{np.mean(margins):.3f}",
        ]
    correlations = [spearmanr(*np.array([image[1:3] for image in split["images"]]).T)[0] for split in splits]
    return f"| {n_train} | {name} | {len(splits)} | {' | '.join(cells)} | {np.nanmean(correlations):.2f} |"


def _unlike(kinds: Sequence[str]) -> list[str]:
    """Leave out what says nothing of the image itself."""
    return [kind for kind in kinds if kind != "one class"]


def _rates(told: Sequence[Sequence[Sequence[str]]]) -> str:
    """Write the share of images with an alarm, for each number of training images."""
    return " | ".join(
        f"{np.mean([bool(_unlike(kinds)) for kinds in found]):.0%}".replace("%", " %") if found else ""
        for found in told
    )


def _most(told: Sequence[Sequence[Sequence[str]]]) -> str:
    """Name the kinds of alarms of half of the alarmed images or more."""
    alarmed = [kinds for found in told for kinds in map(_unlike, found) if kinds]
    kinds = sorted({kind for kinds in alarmed for kind in kinds})
    return ", ".join(kind for kind in kinds if 2 * sum(kind in kinds for kinds in alarmed) >= len(alarmed))
