"""The output of the command line: progress, results and models in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from segkit._common import count, one_line, printable

if TYPE_CHECKING:
    from segkit.images import LabelMap
    from segkit.objects.tables import ImageSummary
    from segkit.segmentation.alarms import Alarms
    from segkit.segmentation.object_model import ObjectModel
    from segkit.segmentation.summary import TrainingSummary

Item = TypeVar("Item")
# In a log, where bars cannot be drawn.
SECONDS_BETWEEN_LINES = 30
# Packages that warn of files without their names; segkit tells of these files itself.
_READERS = ("PIL", "tifffile")


class progress_bars:  # noqa: N801
    """Progress bars on standard error, for as long as the block lasts; in a log a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __enter__(self) -> Callable[[Iterable[Item], str], Iterator[Item]]:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._logs = not self._quiet and not console.is_terminal
        self._told, self._depth = time.monotonic(), 0
        self._bars = Progress(console=console, transient=True, disable=self._quiet or self._logs)
        self._bars.start()
        return self._follow

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _follow(self, items: Iterable[Item], description: str) -> Iterator[Item]:
        items = list(items)
        task = self._bars.add_task(description, total=len(items))
        self._depth += 1
        began = False
        try:
            for done, item in enumerate(items, start=1):
                yield item
                self._bars.advance(task)
                due = time.monotonic() - self._told > SECONDS_BETWEEN_LINES
                # a loop that began in the log ends there
                if self._logs and (due or (began and done == len(items))):
                    echo(f"{description}: {done} of {len(items)}", err=True)
                    self._told, began = time.monotonic(), True
        finally:
            self._depth -= 1
            # the bar of a loop inside another one, such as the tiles of an image, makes room for the next
            if self._depth:
                self._bars.remove_task(task)


def echo(text: str, *, err: bool = False) -> None:
    """Write lines on standard output or error. Control characters of names are escaped: a terminal would obey them."""
    typer.echo(printable(text), err=err)


def notifier(*, quiet: bool) -> Callable[[str], None]:
    """Return what writes a line, or nothing if `quiet`."""
    return (lambda _: None) if quiet else echo


def show_warning(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
    """Show our own warnings in one line, and leave out those of libraries about themselves."""
    is_of_reader = Path(filename).parent.name in _READERS
    if issubclass(category, UserWarning) and not is_of_reader:
        echo(f"note: {' '.join(str(message).split())}", err=True)


def describe_training(
    summary: TrainingSummary,
    label_map: LabelMap,
    names: Sequence[str] | None = None,
    *,
    explain: bool = False,
) -> str:
    """Describe the training in three lines: what was learnt from, scores to expect, what to annotate next."""
    from segkit.segmentation.summary import explain_training, summarise_training

    choices = explain_training(summary, label_map) if explain else []
    return "\n".join([*summarise_training(summary, label_map, names), *choices])


def describe_object_model(objects: ObjectModel, *, explain: bool = False) -> str:
    """Describe what a model knows of objects, and explain how they are told apart."""
    return "\n".join([objects.summarise(), *([objects.describe()] if explain else [])])


def describe_alarms(alarms: Alarms, *, explain: bool = False) -> str:
    """Describe how far the expected IoU of an image may be off, and when images are unlike."""
    return "\n".join([*alarms.summarise(), *(alarms.explain() if explain else [])])


def describe_scores(result: dict[str, Any]) -> str:
    """Describe the scores that `segkit.evaluation.compare_folders` gave."""
    lines = _lines_of_objects(result["objects"]) if "objects" in result else []
    lines += [
        f"Object IoU {_score(result['object_iou'], result['object_iou_interval'])}",
        f"Object Dice {_score(result['object_dice'], result['object_dice_interval'])}",
        f"Mean IoU over classes {_score(result['mean_iou'], result['interval'])}",
    ]
    for entry in result["classes"]:
        undefined = (
            f", in neither mask of {count(entry['n_undefined'], 'image')}" if entry["n_undefined"] else ""
        )
        lines.append(
            f"  {entry['name']}: IoU {_score(entry['iou'])}, Dice {_score(entry['dice'])}{undefined}"
        )
    lines += [f"Scored on {count(result['n_images'], 'image')}.", *result["notes"]]
    return "\n".join(lines)


def describe_objects(images: Sequence[ImageSummary]) -> list[str]:
    """Describe how many objects there are, in how many images, how large, and of which classes."""
    import numpy as np

    areas = np.concatenate([image.areas for image in images])
    line = f"{_many(areas.size, 'object')} in {_many(len(images), 'image')}"
    if areas.size:
        each = f", {areas.size / len(images):,.1f} an image" if len(images) > 1 else ""
        line += f"{each} (median area {_areas(images)})"
    counts: dict[str, int] = {}
    for image in images:
        for name, number in image.counts.items():
            counts[name] = counts.get(name, 0) + number
    shares = ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items()))
    return [line, *([f"By class: {shares}"] if len(counts) > 1 else [])]


def _lines_of_objects(objects: dict[str, Any]) -> list[str]:
    """Describe the scores of objects, and that those below them are of pixels."""
    names = {
        "ap_50": "AP at IoU 0.5",
        "mean_ap": f"Mean AP at IoU {objects['thresholds'][0]:g} to {objects['thresholds'][-1]:g}",
        "panoptic_quality": "Panoptic quality",
        "aggregated_jaccard": "Aggregated Jaccard index",
    }
    scores = objects["scores"]
    lines = [f"Objects: {objects['n_true']} true, {objects['n_predicted']} predicted"]
    lines += [
        f"  {text}: {_score(scores[name]['value'], scores[name]['interval'])}" for name, text in names.items()
    ]
    error = scores["count_error"]
    lines.append(
        f"  Predicted minus true, mean of images: {_score(error['value'], error['interval'], '+.1f')}"
    )
    if objects["n_undefined"]:
        lines.append(f"  {count(objects['n_undefined'], 'image')} without objects, true or predicted")
    return [*lines, "Pixels, all objects as foreground:"]


def describe_benchmark(result: dict[str, Any]) -> str:
    """Describe the scores of each method at each number of training images; `result` is results.json."""
    from segkit.report.summary import summarise

    lines = [
        (
            f"{row.method}, {count(row.n_train or 0, 'training image')}: "
            f"object IoU {_score(row.object_iou, row.object_iou_interval)}, "
            f"Dice {_score(row.object_dice, row.object_dice_interval)}, "
            f"mean IoU over classes {_score(row.mean_iou, row.interval)}; "
            f"{count(row.n_images, 'image')}, {count(row.n_seeds, 'seed')}{': images only' if row.n_seeds == 1 else ''}"
        )
        for row in summarise(result["records"])
    ]
    lines += _lines_of_splittings(result["records"])
    failed: dict[str, list[str]] = {}
    for fault in result["failures"]:
        run = f"{fault['method']}, n={fault['n_train']}, seed {fault['seed']}"
        failed.setdefault(fault["error"], []).append(run)
    for error, (first, *others) in failed.items():
        more = f" and {count(len(others), 'more run')}" if others else ""
        lines.append(f"failed: {first}{more}: {error}")
    return "\n".join(lines)


def _lines_of_splittings(records: Sequence[dict[str, Any]]) -> list[str]:
    """Describe the AP of the objects of each method at each number of training images, told apart in each way."""
    from segkit.report.summary import summarise_objects

    runs: dict[tuple[str, int | None], list[str]] = {}
    for row in summarise_objects(records):
        told = f"{row.splitting} {_score(row.ap_50, row.ap_50_interval)}"
        runs.setdefault((row.method, row.n_train), []).append(told)
    return [
        f"{method}, {count(n_train or 0, 'training image')}: AP of objects at IoU 0.5: {', '.join(told)}"
        for (method, n_train), told in runs.items()
    ]


def describe_model(header: dict[str, Any], *, explain: bool = False) -> str:
    """Show the header of a model file as a table, and explain the choices of its training."""
    from segkit.images import LabelMap
    from segkit.segmentation.summary import TrainingSummary, expected_scores, explain_training

    label_map, versions = LabelMap.from_dict(header["label_map"]), header["versions"]
    summary = TrainingSummary.from_dict(header["summary"])
    n_channels = header["n_image_channels"]
    kind = {1: "grey (1 channel)", 3: "3 channels, as RGB"}.get(n_channels, count(n_channels, "channel"))
    rows = [
        ("Classes", label_map.describe()),
        ("Images", kind),
        *_reading_rows(header.get("reading")),
        ("Learnt from", count(summary.n_images, "image")),
        ("Scores", expected_scores(summary)),
        ("Features", _name_bank(header["bank"])),
        ("Written by", f"segkit {versions['segkit']}, model format {header['format_version']}"),
    ]
    if explain:
        others = (f"{name} {version}" for name, version in versions.items() if name != "segkit")
        rows += [("With", ", ".join(others)), ("Training set", f"sha256 {summary.training_set_sha256}")]
        rows += [("Bank", option) for option in _bank_options(header["bank"])]
        rows += [("", line) for line in explain_training(summary, label_map)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {one_line(text)}" for name, text in rows)


def _reading_rows(reading: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Describe how a model reads images, as far as it does not leave that to their files."""
    known = reading or {}
    told = {
        "Axes": known.get("axes") or known.get("unnamed"),
        "Values": known.get("range"),
        "Context": known.get("context") and f"{count(known['context'], 'plane')} on either side",
        "Channels": ", ".join(known.get("channels", ())),
    }
    return [(name, str(text)) for name, text in told.items() if text]


def _many(number: int, noun: str) -> str:
    """Describe how many there are, with commas: "1,234 objects"."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def _areas(images: Sequence[ImageSummary]) -> str:
    """Write the median area of objects in pixels, and in square micrometres if all pixel sizes are known."""
    import numpy as np

    told = f"{np.median(np.concatenate([image.areas for image in images])):,g} px"
    physical = [
        image.areas * (image.pixel_size[0] * image.pixel_size[1])
        for image in images
        if image.pixel_size is not None
    ]
    return told if len(physical) < len(images) else f"{told}, {np.median(np.concatenate(physical)):.4g} µm²"


def _name_bank(bank: dict[str, Any]) -> str:
    """Name a stored bank: its kind or network, and the group it is averaged over."""
    if bank["kind"] == "stacked":
        name = ", ".join(_name_bank(part) for part in bank["banks"])
    else:
        name = bank.get("network", bank["kind"])
    if "orbit" not in bank:
        return name
    turns = "turns and reflections" if bank["orbit"] == "d4" else f"{bank['orbit']} turns"
    return f"{name}, averaged over {turns}"


def _bank_options(bank: dict[str, Any]) -> list[str]:
    """List the options of a stored bank, or of each bank of a stack, in a line."""
    if bank["kind"] == "stacked":
        return [line for part in bank["banks"] for line in _bank_options(part)]
    return [f"{bank['kind']}: {_listed({name: value for name, value in bank.items() if name != 'kind'})}"]


def _listed(value: Any) -> str:
    """Write the options of a bank without the brackets and quotes of Python."""
    if isinstance(value, dict):
        options = [f"{name} {_listed(entry)}" for name, entry in value.items() if entry is not None]
        return ", ".join(options) or "no options"
    if isinstance(value, list):
        return " and ".join(map(_listed, value))
    return str(value)


def _score(value: float | None, interval: Sequence[float] | None = None, form: str = ".3f") -> str:
    """Write a score and its 95 % interval; a single image has none."""
    if value is None:
        return "undefined"
    if interval is None or interval[0] == interval[1]:
        return f"{value:{form}}"
    return f"{value:{form}} (95 % interval {interval[0]:{form}} to {interval[1]:{form}})"
