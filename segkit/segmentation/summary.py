"""The summary of a training: what was chosen and measured, stored as JSON, and told in sentences.

There are three lines for everybody, and the choices with their reasons on request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import ceil
from typing import Any, Self

from segkit.errors import count
from segkit.images import LabelMap

# Groups of channels or kernels that are named where there may be dozens.
_MOST_NAMES = 6
# A score from fewer images than this is called unreliable.
_FEW_IMAGES = 5
# With a smaller annotated fraction the pixels without annotation are likely to be harder.
_WHOLE = 0.9
# With a smaller annotated fraction the annotation is strokes, on pixels that were chosen because they are clear.
_STROKES = 0.5
# One of what was held out.
_ONE = {"images": "image", "blocks": "block"}
_CRITERIA = {
    "mmd": "the discrepancy (MMD) between the classes",
    "u_statistic": "the discrepancy (MMD) between the classes, by the U-statistic of random pairs of pixels",
    "mmd_squared": "the squared discrepancy (MMD) between the classes, over pairs of pixels of different {regions}",
    "alignment": "the alignment with the labels",
    "centered_alignment": "the centred alignment with the labels",
    "power": "the power of a test that the classes differ",
}


@dataclass(frozen=True)
class HeldOutScores:
    """Scores on training images (or blocks of a single one), each held out of all that is learnt."""

    regions: str
    n_regions: int
    mean_iou: float
    n_groups: int | None = None
    interval: list[float] | None = None
    by_alpha: dict[str, float] = field(default_factory=dict)
    usual: float | None = None
    scores: list[dict[str, Any]] = field(default_factory=list)
    object_iou: float | None = None
    object_dice: float | None = None
    object_iou_interval: list[float] | None = None
    object_dice_interval: list[float] | None = None
    by_bank: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class TrainingSummary:
    """Choices and measurements of a training."""

    n_images: int
    n_channels: int
    kept_channels: dict[str, int]
    kernels: list[dict[str, Any]]
    training_iou: list[float]
    training_mean_iou: float
    training_set_sha256: str
    n_training_pixels: int
    criterion: str
    selector: str
    penalty: float | None
    threshold: float
    threshold_rule: str
    otsu_weight: float
    least_areas: list[list[float]]
    held_out: HeldOutScores | None
    peaks: Sequence[float]
    annotated: float
    n_banks: int
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore the summary that `dataclasses.asdict` gave."""
        known = _known(cls, stored)
        if known["held_out"] is not None:
            known["held_out"] = HeldOutScores(**_known(HeldOutScores, known["held_out"]))
        return cls(**known)


def _known(cls: Any, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out entries that are no field of a dataclass."""
    return {one.name: stored[one.name] for one in fields(cls) if one.name in stored}


def summarise_training(
    summary: TrainingSummary, label_map: LabelMap, names: Sequence[str] | None = None
) -> list[str]:
    """Summarise a training in three lines: what was learnt from, the scores to expect, and what to do next."""
    return [_learnt_from(summary, label_map), expected_scores(summary), _next_step(summary, names)]


def explain_training(summary: TrainingSummary, label_map: LabelMap) -> list[str]:
    """Explain the choices of a training, with their reasons."""
    lines = [*_chosen_bank(summary), _channels(summary), _kernels(summary)]
    if summary.held_out is None:
        lines.append(
            "Nothing could be held out, so penalty, threshold and probabilities are not adapted to the images."
        )
    else:
        if summary.penalty is not None:
            lines.append(_penalty(summary, summary.held_out))
        if label_map.n_classes == 2 and (summary.threshold or summary.otsu_weight):
            lines.append(_threshold(summary, label_map.names[1], summary.held_out.regions))
    of_classes = ", ".join(
        f"{name} {iou:.3f}" for name, iou in zip(label_map.names, summary.training_iou, strict=True)
    )
    return [
        *lines,
        *_small_regions(summary.least_areas, label_map.names),
        f"On the training pixels: mean IoU {summary.training_mean_iou:.3f} ({of_classes}). "
        "Training pixels flatter; only held-out images tell.",
    ]


def expected_scores(summary: TrainingSummary) -> str:
    """Name the scores to expect on other images, and how sure they are."""
    held_out = summary.held_out
    if held_out is None:
        return "How well it will do on other images is unknown: nothing could be held out to test it."
    part = f"{max(100 * summary.annotated, 0.1):.2g} %"
    if summary.annotated < _STROKES:
        return (
            f"How well it will do on other images is unknown: strokes on {part} of the pixels do not tell, for they leave "
            f"out what is hard. To know, annotate every pixel of a few further images, and compare by segkit evaluate."
        )
    notes = []
    if summary.annotated < _WHOLE:
        notes.append(f"only annotated pixels count, {part} of all; the others are probably harder")
    if held_out.regions != "images":
        notes.append("other images will probably do worse")
        return (
            "How well it will do on other images is unknown: with one image, only parts of it could be held out. "
            f"They reached {_scores(held_out)} ({'; '.join(notes)})."
        )
    n, n_groups = held_out.n_regions, held_out.n_groups
    if (n_groups or n) < _FEW_IMAGES:
        few = count(n, "image") if n_groups is None else f"{count(n_groups, 'group')} of images"
        notes.append(f"measured on {few} only, too few to rely on")
    else:
        held = "each" if n_groups is None else f"one of {n_groups} groups"
        notes.append(f"measured on the {n} training images, {held} held out in turn")
    if held_out.by_bank:
        notes.append(f"the best of {len(held_out.by_bank)} banks, so a little too high")
    return f"On other images expect {_scores(held_out)} ({'; '.join(notes)})."


def _learnt_from(summary: TrainingSummary, label_map: LabelMap) -> str:
    part = (
        "every pixel annotated"
        if summary.annotated >= 1
        else f"{max(100 * summary.annotated, 0.1):.2g} % of the pixels annotated"
    )
    took = f", in {sum(summary.seconds.values()):.0f} s" if summary.seconds else ""
    return f"Learnt {_listed(label_map.names)} from {count(summary.n_images, 'image')}, {part}{took}."


def _scores(held_out: HeldOutScores) -> str:
    """Name the scores, objects first, if an object was held out."""
    mean = f"mean IoU over classes {_with_interval(held_out.mean_iou, held_out.interval)}"
    if held_out.object_iou is None or held_out.object_dice is None:
        return mean
    iou = _with_interval(held_out.object_iou, held_out.object_iou_interval)
    dice = _with_interval(held_out.object_dice, held_out.object_dice_interval)
    return f"object IoU {iou}, Dice {dice}, {mean}"


def _with_interval(value: float, interval: Sequence[float] | None) -> str:
    return f"{value:.2f}" + (
        "" if interval is None else f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})"
    )


def _next_step(summary: TrainingSummary, names: Sequence[str] | None) -> str:
    """Name the image to annotate more of, by the held-out scores of the training images."""
    held_out = summary.held_out
    scored = [] if held_out is None else [entry for entry in held_out.scores if entry["image"] is not None]
    if summary.n_images == 1:
        return (
            "Next: annotate a second image, as unlike this one as your images are; "
            "then segkit can tell how well other images will do."
        )
    if len(scored) < 2:
        return "Next: annotate one more image that shows every class, so that each can be held out in turn."
    worst = min(scored, key=lambda entry: entry["mean_iou"])
    name = f"training image {worst['image'] + 1}" if names is None else names[worst["image"]]
    return f"Next: annotate another image like {name}: held out, it did worst, with a mean IoU of {worst['mean_iou']:.2f}."


def _chosen_bank(summary: TrainingSummary) -> list[str]:
    """Name the bank that was chosen among several, and why; none for a single one."""
    if summary.n_banks == 1:
        return []
    if summary.held_out is None or not (banks := summary.held_out.by_bank):
        return [f"Bank: the first of {summary.n_banks}. It takes two held-out images to compare them."]
    others = [
        f"{bank['mean_iou']:.3f} for bank {place}, {bank['bank']}"
        for place, bank in enumerate(banks, start=1)
        if not bank["chosen"]
    ]
    [(place, best)] = [(place, bank) for place, bank in enumerate(banks, start=1) if bank["chosen"]]
    return [
        f"Bank: {best['bank']} (bank {place} of {summary.n_banks}). Its mean IoU over held-out images is the highest: "
        f"{best['mean_iou']:.3f}, against {' and '.join(others)}."
    ]


def _channels(summary: TrainingSummary) -> str:
    kept = summary.kept_channels
    most = sorted(kept.items(), key=lambda item: -item[1])[:_MOST_NAMES]
    regions = _regions(summary)
    why = {
        "ConditionalCovarianceSelector": " They predict the class best together.",
        "MMDSelector": f" They differ most between the classes, consistently from {_ONE[regions]} to {_ONE[regions]}.",
    }.get(summary.selector, "")
    if sum(kept.values()) == summary.n_channels:
        why = " Selection left none out."
    return (
        f"Channels: {sum(kept.values())} of {summary.n_channels} kept.{why} "
        f"Most are from {', '.join(f'{group} ({number})' for group, number in most)}."
    )


def _kernels(summary: TrainingSummary) -> str:
    linear = [kernel for kernel in summary.kernels if kernel["kind"] == "linear"]
    others = [kernel for kernel in summary.kernels if kernel["kind"] != "linear"]
    parts = []
    if linear:
        parts.append(f"{_percent(linear)} of the weight on linear kernels, most on {_heaviest(linear)}")
    if others:
        start = "the rest on Gaussian kernels" if linear else "the weight on kernels of all channels"
        parts.append(f"{start}, most on {_heaviest(others)}")
    why = _CRITERIA[summary.criterion].format(regions=_regions(summary))
    return f"Kernels: {'; '.join(parts)}. The weights follow {why}."


def _regions(summary: TrainingSummary) -> str:
    if summary.held_out is not None:
        return summary.held_out.regions
    return "images" if summary.n_images > 1 else "blocks"


def _heaviest(kernels: list[dict[str, Any]]) -> str:
    heaviest = sorted(kernels, key=lambda kernel: -kernel["weight"])[:_MOST_NAMES]
    return ", ".join(
        f"{kernel['name'].removeprefix('linear ')} ({_percent([kernel])})" for kernel in heaviest
    )


def _percent(kernels: list[dict[str, Any]]) -> str:
    fraction = sum(kernel["weight"] for kernel in kernels)
    return f"{100 * fraction:.0f} %" if fraction >= 0.005 else "less than 1 %"


def _small_regions(least: Sequence[Sequence[float]], names: tuple[str, ...]) -> list[str]:
    whole = {name: limit for name, (limit, _) in zip(names, least, strict=False)}
    # a region of one pixel is not below a limit of 1
    removed = [f"{ceil(limit)} pixels of {name}" for name, limit in whole.items() if limit > 1]
    kept = [name for name, limit in whole.items() if 0 < limit <= 1]
    lines = []
    if removed:
        lines.append(
            f"Small regions: fewer than {', '.join(removed)} are given to the class around them. The masks show none "
            "so small."
        )
    if kept:
        lines.append(
            f"Small regions of {', '.join(kept)} stay, for the masks show some of a pixel or two. If those are stray "
            "pixels, erase them and train again."
        )
    return lines


def _penalty(summary: TrainingSummary, held_out: HeldOutScores) -> str:
    start = f"Penalty: lambda = {summary.penalty:g}"
    if len(held_out.by_alpha) == 1:
        return f"{start}, as given."
    what = _ONE[held_out.regions] + ("" if held_out.regions == "images" else " of the image")
    what = what if held_out.n_groups is None else "group of images"
    images = count(summary.n_images, "image")
    tried = ", ".join(f"{value}: {iou:.3f}" for value, iou in held_out.by_alpha.items())
    scores = f"Mean IoU by penalty, each {what} held out in turn: {tried}."
    if held_out.n_regions == 1:
        return f"{start}, the usual one for {images}. A single held-out {what} says too little to change it. {scores}"
    if summary.penalty == held_out.usual:
        return f"{start}, the usual one for {images}. No other is significantly better. {scores}"
    return (
        f"{start}. The usual penalty for {images}, {held_out.usual:g}, is significantly worse than the best; this is the "
        f"closest one that is not. {scores}"
    )


def _threshold(summary: TrainingSummary, name: str, regions: str) -> str:
    threshold = summary.threshold
    side = "as much" if threshold == 0 else "more" if threshold < 0 else "less"
    if summary.threshold_rule == "iou":
        reason = "The IoU of held-out pixels is highest there."
    elif threshold == 0:
        reason = f"Less than half of each image is labelled: strokes do not tell how much of it is {name}."
    else:
        reason = f"There, on average over held-out {regions}, as many pixels are called {name} as are annotated so."
    text = (
        f"Threshold: {threshold:+.2f} in units of the margin, so {side} is called {name} "
        f"{'as' if threshold == 0 else 'than'} by the sign of the decision. {reason}"
    )
    if not summary.otsu_weight:
        return text
    moved = f"{100 * summary.otsu_weight:.0f} %"
    return f"{text} Each image moves it {moved} of the way to Otsu's threshold of its own decisions."


def _listed(names: Sequence[str]) -> str:
    """Join names with commas and a last "and"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
