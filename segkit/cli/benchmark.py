"""The command ``segkit benchmark``: methods compared on few-shot splits of a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from segkit.cli import Stopped
from segkit.cli.options import OverwriteOption, ResumeOption, workers
from segkit.cli.terminal import progress_bars, say, score, warn
from segkit.errors import ConfigError, count

# Methods by default, for masks of classes and for masks that number objects.
_METHODS = "segkit-vgg,segkit-no-networks,fcn,unet,forest"
_OBJECT_METHODS = "segkit-no-networks,forest"


def benchmark(
    images: Annotated[Path, typer.Argument(help="Folder of annotated images.")],
    masks: Annotated[Path, typer.Argument(help="Folder of masks with the images' names.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results and report.")],
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Methods to compare, separated by commas. [default: {_METHODS}; for objects {_OBJECT_METHODS}]"
        ),
    ] = None,
    train_sizes: Annotated[
        str, typer.Option(help="Numbers of training images, separated by commas.")
    ] = "1,2,3,5,15",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many splits of each size.")] = 5,
    config: Annotated[
        Path | None, typer.Option("--config", help="YAML file of methods; see configs/benchmark.yaml.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="METHOD.KEY=VALUE",
            help="One option of a method, or of data: labels, unlabelled, masks (instances: objects are scored too), "
            "axes, range, context. May be repeated.",
        ),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option(
            help="CSV file with a line for each image: its name without the ending, a comma, its group. Groups (patients, "
            "videos, pages of a file) are never split."
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Text file of the images to test on, one stem a line.")
    ] = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Compare methods on few-shot splits of a folder, and write a report. Exit status 1 if any run failed."""
    from segkit.benchmark import Benchmark, load_data, load_methods
    from segkit.images.outputs import refuse_nesting, refuse_unwritable
    from segkit.images.record import record_of
    from segkit.report import write_report
    from segkit.report.page import folder_title
    from segkit.report.sources import pictures_of_benchmark

    for folder in (images, masks):
        refuse_nesting(folder, output)
    data = load_data(config, set_ or [])
    objects = data.masks == "instances"
    names = methods or (_OBJECT_METHODS if objects else _METHODS)
    run = Benchmark(
        images,
        masks,
        output,
        methods=load_methods(filter(None, re.split(r"[,\s]+", names)), config, set_ or []),
        train_sizes=_read_sizes(train_sizes),
        seeds=range(seeds),
        groups=groups,
        test=test,
        labels=data.labels,
        unlabelled=data.unlabelled,
        masks_are=data.masks or "classes",
        reading=data.reading,
    )
    refuse_unwritable(output / "results.json")
    page = Path("index.html")
    with record_of(output) as record:
        run.check_output(resume=resume, overwrite=overwrite)
        say(*([] if objects else [run.label_map.describe()]), *run.messages)
        say(*(f"left out: {entry['reason']}" for entry in run.left_out))
        try:
            with workers() as spread, progress_bars() as follow:
                result = run.run(progress=follow, notify=warn, n_jobs=spread)
        except KeyboardInterrupt as stop:
            raise Stopped(
                f"{run.n_done} of {count(len(run.units), 'run')} kept; the same command with --resume goes on"
            ) from stop
        pictures, title = pictures_of_benchmark(run), folder_title(output)
        write_report(result, record.staging / page, pictures, title=title, scores_file="results.csv")
        record.put("report", [page])
    say(*describe_benchmark(result).splitlines(), f"Report: {output / page}")
    if result["failures"]:
        raise typer.Exit(1)


def _read_sizes(text: str) -> list[int]:
    words = [word for word in re.split(r"[,\s]+", text) if word]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise ConfigError(f"--train-sizes {text}: give numbers of images, 1 or more, such as 1,2,3,5,15")
    return [int(word) for word in words]


def describe_benchmark(result: dict[str, Any]) -> str:
    """Describe the scores of each method at each number of training images; `result` is results.json."""
    from segkit.report.summary import summarise

    lines = [
        (
            f"{row.method}, {count(row.n_train, 'training image')}: "
            f"object IoU {score(row.object_iou, row.object_iou_interval)}, "
            f"Dice {score(row.object_dice, row.object_dice_interval)}, "
            f"mean IoU over classes {score(row.mean_iou, row.mean_iou_interval)}; "
            f"{count(row.n_images, 'image')}, {count(row.n_seeds, 'split')}{': images only' if row.n_seeds == 1 else ''}"
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

    runs: dict[tuple[str, int], list[str]] = {}
    for row in summarise_objects(records):
        told = f"{row.splitting} {score(row.ap_50, row.ap_50_interval)}"
        runs.setdefault((row.method, row.n_train), []).append(told)
    return [
        f"{method}, {count(n_train, 'training image')}: AP of objects at IoU 0.5: {', '.join(told)}"
        for (method, n_train), told in runs.items()
    ]
