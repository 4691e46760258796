"""What the command line says, and how it shows that it is busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from segkit._common import count

if TYPE_CHECKING:
    from segkit.images import LabelMap

Item = TypeVar("Item")
# In a log, where bars cannot be drawn.
SECONDS_BETWEEN_LINES = 30


class progress_bars:  # noqa: N801
    """Progress bars on standard error, for as long as the block lasts; in a log a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __enter__(self) -> Callable[[Iterable[Item], str], Iterator[Item]]:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._logs = not self._quiet and not console.is_terminal
        self._told = time.monotonic()
        self._bars = Progress(console=console, transient=True, disable=self._quiet or self._logs)
        self._bars.start()
        return self._follow

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _follow(self, items: Iterable[Item], description: str) -> Iterator[Item]:
        items = list(items)
        task = self._bars.add_task(description, total=len(items))
        began = False
        for done, item in enumerate(items, start=1):
            yield item
            self._bars.advance(task)
            due = time.monotonic() - self._told > SECONDS_BETWEEN_LINES
            # what began in the log ends there
            if self._logs and (due or (began and done == len(items))):
                typer.echo(f"{description}: {done} of {len(items)}", err=True)
                self._told, began = time.monotonic(), True


def teller(*, quiet: bool) -> Callable[[str], None]:
    """Give what says a line, or says nothing."""
    return (lambda _: None) if quiet else typer.echo


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Show our own warnings in one line, and leave out those of libraries about themselves."""
    if issubclass(category, UserWarning):
        typer.echo(f"note: {' '.join(str(message).split())}", err=True)


def describe_training(summary: dict[str, Any], label_map: LabelMap, *, choices: bool = True) -> str:
    """Say how training went, and what it chose unless that is said elsewhere; `summary` is `Segmenter.summary_`."""
    from segkit.segmentation.explain import MOST_NAMES, chosen_bank, expected_iou

    kept = summary["kept_channels"]
    kernels = sorted(summary["kernels"], key=lambda kernel: -kernel["weight"])
    shown = [f"{kernel['name']} {kernel['weight']:.3f}" for kernel in kernels[:MOST_NAMES]]
    more = [f"and {len(kernels) - MOST_NAMES} more"] if len(kernels) > MOST_NAMES else []
    chosen = [
        *chosen_bank(summary),
        f"Kept {sum(kept.values())} of {count(summary['n_channels'], 'channel')}: "
        + ", ".join(f"{group} {number}" for group, number in kept.items()),
        "Kernel weights: " + ", ".join([*shown, *more]),
    ]
    lines = [
        f"Trained on {count(summary['n_images'], 'image')} in {sum(summary['seconds'].values()):.1f} s",
        *(chosen if choices else []),
        f"Training IoU: {summary['training_mean_iou']:.3f} ("
        + ", ".join(
            f"{name} {iou:.3f}" for name, iou in zip(label_map.names, summary["training_iou"], strict=True)
        )
        + ") on the pixels learnt from; it flatters, only other images tell",
    ]
    if choices and summary.get("held_out"):
        lines.append(f"Mean IoU to expect: {expected_iou(summary)}")
    return "\n".join(lines)


def describe_scores(result: dict[str, Any]) -> str:
    """Say the scores that `segkit.evaluation.folders.compare_folders` gave."""
    low, high = result["interval"]
    # of one file there is none
    interval = f"95 % interval {low:.3f} to {high:.3f}, " if low < high else ""
    lines = [f"Mean IoU {result['mean_iou']:.3f} ({interval}{count(result['n_images'], 'image')})"]
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
    failed: dict[str, list[str]] = {}
    for fault in result["failures"]:
        run = f"{fault['method']}, n={fault['n_train']}, seed {fault['seed']}"
        failed.setdefault(fault["error"], []).append(run)
    for error, (first, *others) in failed.items():
        more = f" and {count(len(others), 'more run')}" if others else ""
        lines.append(f"failed: {first}{more}: {error}")
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


def _score(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
