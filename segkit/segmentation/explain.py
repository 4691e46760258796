"""What training chose and why, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from segkit._common import count
from segkit.images import LabelMap

# Groups of channels or kernels named at most where there may be dozens.
MOST_NAMES = 6
# An expected score from fewer images than this is called unreliable.
FEW_TRAINING_IMAGES = 5
# Where less of the images is annotated, the rest is likely to be harder.
WHOLE = 0.9
WHY_WEIGHTED = {
    "mmd": "the discrepancy (MMD) between the classes",
    "mmd_squared": "the squared discrepancy (MMD) between the classes, over pairs of pixels of different {regions}",
    "alignment": "the alignment with the labels",
    "centered_alignment": "the centred alignment with the labels",
    "power": "the power of a test that the classes differ",
}


def explain_training(summary: dict[str, Any], label_map: LabelMap) -> list[str]:
    """Say in words what training chose and why.

    Parameters
    ----------
    summary : dict
        `Segmenter.summary_`.
    label_map : LabelMap
        Names of the classes.

    Returns
    -------
    list of str
        Sentences on the bank (of several), channels, kernels, penalty, threshold and the mean IoU to expect.
    """
    held_out = summary.get("held_out")
    lines = [*chosen_bank(summary), _channels(summary), _kernels(summary)]
    small = _small_regions(summary.get("least_areas", ()), label_map.names)
    if held_out is None:
        lines.append(
            "Nothing could be held out: penalty, threshold and probabilities are not adapted to the images, and "
            "how well the model does elsewhere is unknown. Annotate one more image."
        )
        return lines + small
    if summary["lambda"] is not None:
        lines.append(_penalty(summary))
    if label_map.n_classes == 2 and (summary["threshold"] or summary.get("otsu_weight")):
        lines.append(_threshold(summary, label_map.names[1], held_out["regions"]))
    lines += small
    lines.append(f"Mean IoU to expect on other images: {expected_iou(summary)}.")
    return lines


def expected_iou(summary: dict[str, Any]) -> str:
    """Say the mean IoU of held-out images or blocks, with its interval."""
    held_out, annotated = summary["held_out"], summary.get("annotated", 1)
    n, value, interval = held_out["n_regions"], f"{held_out['mean_iou']:.3f}", held_out["interval"]
    pixels, bound = "", ""
    if annotated < WHOLE:
        pixels = f" (only annotated pixels count, {max(100 * annotated, 0.1):.2g} % of all)"
        bound = "less than "
    if held_out["regions"] == "blocks":
        return (
            f"less than {value}, which is what blocks of the one image reached, each held out in turn{pixels}"
        )
    span = "" if interval is None else f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})"
    images = "1 training image" if n == 1 else f"{n} training images, each"
    few = "; too few to rely on" if n < FEW_TRAINING_IMAGES else ""
    best = (
        f"; the best of {len(banks)} banks, so a little too high"
        if (banks := held_out.get("by_bank"))
        else ""
    )
    return (
        f"{bound}{value}{span}, from {images} judged by classifiers that had not seen it{pixels}{few}{best}"
    )


def chosen_bank(summary: dict[str, Any]) -> list[str]:
    """Say in a sentence which of several banks was chosen; nothing of a single one."""
    if (n_banks := summary.get("n_banks", 1)) == 1:
        return []
    held_out = summary["held_out"] or {}
    if not (banks := held_out.get("by_bank")):
        return [
            f"Bank: the first of {n_banks}: there are no two images to hold out that would tell which is better."
        ]
    others = [
        f"{bank['mean_iou']:.3f} of bank {place}, {bank['bank']}"
        for place, bank in enumerate(banks, start=1)
        if not bank["chosen"]
    ]
    [(place, best)] = [(place, bank) for place, bank in enumerate(banks, start=1) if bank["chosen"]]
    return [
        f"Bank: {best['bank']} (bank {place} of {n_banks}), for its mean IoU over held-out images is the highest: "
        f"{best['mean_iou']:.3f}, against {' and '.join(others)}."
    ]


def _channels(summary: dict[str, Any]) -> str:
    kept = summary["kept_channels"]
    most = sorted(kept.items(), key=lambda item: -item[1])[:MOST_NAMES]
    why = {
        "ConditionalCovarianceSelector": ", those that together predict the class best",
        "MMDSelector": f", those that tell the classes apart from {_regions(summary)[:-1]} to {_regions(summary)[:-1]}",
    }.get(summary["selector"], "")
    return (
        f"Channels: {sum(kept.values())} of {summary['n_channels']} were kept{why}. "
        f"Most come from {', '.join(f'{group} ({number})' for group, number in most)}."
    )


def _kernels(summary: dict[str, Any]) -> str:
    linear = [kernel for kernel in summary["kernels"] if kernel["kind"] == "linear"]
    others = [kernel for kernel in summary["kernels"] if kernel["kind"] != "linear"]
    parts = []
    if linear:
        parts.append(
            f"{_percent(linear)} of the weight is on kernels that are linear in the channels, most of it on "
            f"{_heaviest(linear)}"
        )
    if others:
        start = (
            "the rest is on Gaussians of some of them"
            if linear
            else "the weight is on kernels of all channels"
        )
        parts.append(f"{start}, most of it on {_heaviest(others)}")
    why = WHY_WEIGHTED[summary["criterion"]].format(regions=_regions(summary))
    return f"Kernels: {'; '.join(parts)}. Weights follow {why}."


def _regions(summary: dict[str, Any]) -> str:
    return "images" if summary["n_images"] > 1 else "blocks"


def _heaviest(kernels: list[dict[str, Any]]) -> str:
    heaviest = sorted(kernels, key=lambda kernel: -kernel["weight"])[:MOST_NAMES]
    return ", ".join(
        f"{kernel['name'].removeprefix('linear ')} ({_percent([kernel])})" for kernel in heaviest
    )


def _percent(kernels: list[dict[str, Any]]) -> str:
    share = sum(kernel["weight"] for kernel in kernels)
    return f"{100 * share:.0f} %" if share >= 0.005 else "less than 1 %"


def _small_regions(least: Sequence[Sequence[float]], names: tuple[str, ...]) -> list[str]:
    # a region of one pixel is not below a limit of 1
    limits = {name: ceil(whole) for name, (whole, _) in zip(names, least, strict=False) if whole > 1}
    if not limits:
        return []
    told = ", ".join(f"{limit} px of {name}" for name, limit in limits.items())
    return [
        f"Small regions: those of less than {told} are given to the class around them; the masks show none so small."
    ]


def _penalty(summary: dict[str, Any]) -> str:
    held_out, chosen = summary["held_out"], summary["lambda"]
    what = "image" if held_out["regions"] == "images" else "block of the image"
    start = f"Penalty: lambda = {chosen:g}"
    if len(held_out["by_lambda"]) == 1:
        return f"{start}, as given."
    n_images, usual = count(summary["n_images"], "image"), held_out["usual"]
    rank = f"of those tried the nearest to what is usual for {n_images}"
    tried = ", ".join(f"{value}: {iou:.3f}" for value, iou in held_out["by_lambda"].items())
    scores = f"mean IoU on each {what}, held out in turn: {tried}"
    if held_out["n_regions"] == 1:
        return f"{start}, {rank}: what a single held-out {what} says may be chance ({scores})."
    if chosen == usual:
        return f"{start}, {rank}: none does better beyond chance ({scores})."
    return (
        f"{start}, because {usual:g}, {rank}, does worse than the best beyond chance; of those that do not, it is the "
        f"nearest to that ({scores})."
    )


def _threshold(summary: dict[str, Any], name: str, regions: str) -> str:
    threshold, own = summary["threshold"], summary.get("otsu_weight", 0)
    side = "as much" if threshold == 0 else "more" if threshold < 0 else "less"
    reason = (
        "held-out IoU is higher there"
        if summary.get("threshold_rule") == "iou"
        else f"it is the mean of the thresholds at which, of each of the held-out {regions}, as much is called {name} "
        "as is annotated so"
    )
    text = (
        f"Threshold: {threshold:+.2f} in units of the margin, so {side} is called {name} "
        f"{'as' if threshold == 0 else 'than'} by the sign of the decision: {reason}."
    )
    if not own:
        return text
    return (
        f"{text} Each image moves it {100 * own:.0f} % of the way to the value that parts its own decisions best (Otsu's), "
        f"less the more training images there are."
    )
