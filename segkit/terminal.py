"""What the command line says, and how it shows that it is busy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from segkit.images import LabelMap

Item = TypeVar("Item")


class progress_bars:  # noqa: N801
    """Progress bars on standard error, for as long as the block lasts."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __enter__(self) -> Callable[[Iterable[Item], str], Iterator[Item]]:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._bars = Progress(console=console, transient=True, disable=self._quiet or not console.is_terminal)
        self._bars.start()
        return self._follow

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _follow(self, items: Iterable[Item], description: str) -> Iterator[Item]:
        items = list(items)
        task = self._bars.add_task(description, total=len(items))
        for item in items:
            yield item
            self._bars.advance(task)


# Kernels named at most where there may be dozens.
MOST_KERNELS = 6
# An expected score from fewer images than this is called unreliable.
FEW_TRAINING_IMAGES = 5


def teller(*, quiet: bool) -> Callable[[str], None]:
    """Give what says a line, or says nothing."""
    return (lambda _: None) if quiet else typer.echo


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Show our own warnings in one line, and leave out those of libraries about themselves."""
    if issubclass(category, UserWarning):
        typer.echo(f"note: {' '.join(str(message).split())}", err=True)


def describe_training(summary: dict[str, Any], label_map: LabelMap) -> str:
    """Say what training chose; `summary` is `Segmenter.summary_`."""
    kept = summary["kept_channels"]
    kernels = sorted(summary["kernels"], key=lambda kernel: -kernel["weight"])
    shown = [f"{kernel['name']} {kernel['weight']:.3f}" for kernel in kernels[:MOST_KERNELS]]
    more = [f"and {len(kernels) - MOST_KERNELS} more"] if len(kernels) > MOST_KERNELS else []
    lines = [
        f"Trained on {count(summary['n_images'], 'image')} in {sum(summary['seconds'].values()):.1f} s",
        f"Kept {sum(kept.values())} of {summary['n_channels']} channels: "
        + ", ".join(f"{group} {number}" for group, number in kept.items()),
        "Kernel weights: " + ", ".join([*shown, *more]),
        f"Training IoU: {summary['training_mean_iou']:.3f} ("
        + ", ".join(
            f"{name} {iou:.3f}" for name, iou in zip(label_map.names, summary["training_iou"], strict=True)
        )
        + "); it flatters, only other images tell",
    ]
    if held_out := summary.get("held_out"):
        lines.append(f"Mean IoU to expect: {_expected(held_out)}")
    return "\n".join(lines)


def explain_training(summary: dict[str, Any], label_map: LabelMap) -> str:
    """Say in words what training chose and why; `summary` is `Segmenter.summary_`."""
    from segkit.heldout import NO_WORSE

    kept, kernels = summary["kept_channels"], summary["kernels"]
    most = sorted(kept.items(), key=lambda item: -item[1])[:MOST_KERNELS]
    heaviest = sorted(kernels, key=lambda kernel: -kernel["weight"])[:MOST_KERNELS]
    why = (
        "those that together predict the class best"
        if summary.get("selector") == "ConditionalCovarianceSelector"
        else "those that tell the classes apart from image to image"
    )
    places = "layers or scales" if kernels[0]["gamma"] is None else "bandwidths"
    lines = [
        f"Channels: {sum(kept.values())} of {summary['n_channels']} were kept, {why}. "
        f"Most come from {', '.join(f'{group} ({number})' for group, number in most)}.",
        f"Kernels: the {places} with the most weight are "
        + ", ".join(f"{kernel['name']} ({100 * kernel['weight']:.0f} %)" for kernel in heaviest)
        + "; weights follow the discrepancy (MMD) between the classes.",
    ]
    held_out = summary.get("held_out")
    if held_out is None:
        lines.append(
            "Nothing could be held out: penalty, threshold and probabilities are not adapted to the images, and "
            "how well the model does elsewhere is unknown. Annotate one more image."
        )
        return "\n".join(lines)
    what = "image" if held_out["regions"] == "images" else "block of the image"
    if summary["lambda"] is not None:
        tried = ", ".join(f"{value}: {iou:.3f}" for value, iou in held_out["by_lambda"].items())
        lines.append(
            f"Penalty: lambda = {summary['lambda']:g}, the largest whose mean IoU on each {what}, held out in turn, is "
            f"within {NO_WORSE:g} of the best ({tried})."
        )
    if label_map.n_classes == 2 and summary["threshold"]:
        side = "more" if summary["threshold"] < 0 else "less"
        reason = (
            "held-out IoU is higher there"
            if summary.get("threshold_rule") == "iou"
            else f"on held-out pixels as many are then called {label_map.names[1]} as are annotated so"
        )
        lines.append(
            f"Threshold: {summary['threshold']:+.2f} in units of the margin, so {side} is called "
            f"{label_map.names[1]} than by the sign of the decision: {reason}."
        )
    lines.append(f"Mean IoU to expect on other images: {_expected(held_out)}.")
    return "\n".join(lines)


def _expected(held_out: dict[str, Any]) -> str:
    """Mean IoU of held-out images or blocks, with its interval."""
    n, where = held_out["n_regions"], held_out["regions"]
    text = f"{held_out['mean_iou']:.3f}"
    if held_out["interval"] is not None and where == "images":
        text += f" (95 % interval {held_out['interval'][0]:.3f} to {held_out['interval'][1]:.3f})"
    if where == "blocks":
        return f"{text}, from blocks of the one image held out in turn; other images may differ more"
    return f"{text}, from {count(n, 'training image')} held out in turn" + (
        "; too few to rely on" if n < FEW_TRAINING_IMAGES else ""
    )


def describe_scores(result: dict[str, Any]) -> str:
    """Say the scores that `segkit.evaluate.compare_folders` gave."""
    low, high = result["interval"]
    lines = [
        f"Mean IoU {result['mean_iou']:.3f} (95 % interval {low:.3f} to {high:.3f}, {count(result['n_images'], 'image')})"
    ]
    for entry in result["classes"]:
        undefined = (
            f", in neither mask of {count(entry['n_undefined'], 'image')}" if entry["n_undefined"] else ""
        )
        lines.append(
            f"  {entry['name']}: IoU {_score(entry['iou'])}, Dice {_score(entry['dice'])}{undefined}"
        )
    lines += result["notes"]
    return "\n".join(lines)


def describe_benchmark(result: dict[str, Any]) -> str:
    """Say the mean IoU of each method at each number of training images; `result` is results.json."""
    from segkit.report.summary import summarise

    lines = []
    for row in summarise(result["records"]):
        low, high = row.interval
        lines.append(
            f"{row.method}, {count(row.n_train or 0, 'training image')}: mean IoU {row.mean_iou:.3f} "
            f"({low:.3f} to {high:.3f}, {count(row.n_images, 'image')}, {count(row.n_seeds, 'seed')})"
        )
    lines += [
        f"failed: {fault['method']}, n={fault['n_train']}, seed {fault['seed']}: {fault['error']}"
        for fault in result["failures"]
    ]
    return "\n".join(lines)


def describe_model(header: dict[str, Any]) -> str:
    """Say what the header of a model file holds."""
    from segkit.images import LabelMap

    label_map = LabelMap.from_dict(header["label_map"])
    bank = ", ".join(f"{key}={value}" for key, value in header["bank"].items())
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    return "\n".join(
        [
            f"Format version {header['format_version']}, written with {versions}",
            f"Bank: {bank}",
            f"Images: {count(header['n_image_channels'], 'channel')}; {label_map.describe()}",
            describe_training(header["summary"], label_map),
            f"Training set: sha256 {header['summary']['training_set_sha256']}",
        ]
    )


def count(number: int, noun: str) -> str:
    """Say how many there are."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _score(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
