"""The command ``segkit``: train, predict, annotate, measure, evaluate, benchmark, inspect, demo.

Commands only read arguments, call the library and tell what came of it. What takes time to import
is imported inside them, so that ``segkit --help`` answers at once.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from segkit import __version__
from segkit._common import count
from segkit._files import locked_folder
from segkit.cli.annotate import annotate
from segkit.cli.evaluate import evaluate
from segkit.cli.interrupt import INTERRUPTED, Stopped, terminated_as_by_ctrl_c
from segkit.cli.options import (
    LabelsOption,
    MemoryLimitOption,
    OnlyAnnotatedOption,
    OverwriteOption,
    PixelSizeOption,
    QuietOption,
    SchedulerOption,
    TitleOption,
    WorkersOption,
    read_data,
    read_meanings,
    read_pixel_size,
    spread_over,
)
from segkit.cli.predict import predict
from segkit.cli.terminal import (
    describe_alarms,
    describe_benchmark,
    describe_model,
    describe_objects,
    describe_scores,
    describe_training,
    echo,
    notifier,
    progress_bars,
    show_warning,
)
from segkit.cli.train import train
from segkit.errors import ConfigError, InputError, ModelFileError, SegkitError

app = typer.Typer(
    help="Segment biomedical images from a few annotated ones.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# Methods of a benchmark, without and with --objects.
_METHODS = "segkit-vgg,segkit-no-networks,fcn,unet,forest"
_OBJECT_METHODS = "segkit-no-networks,forest"


def main() -> None:
    """Run the command line: status 2 and one line for every error that segkit raises, 130 after Ctrl-C."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    warnings.showwarning = show_warning
    try:
        with terminated_as_by_ctrl_c():
            app(arguments)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            echo("segkit: interrupted", err=True)
        raise
    except Stopped as stop:
        echo(f"segkit: interrupted: {stop}", err=True)
        sys.exit(INTERRUPTED)
    except SegkitError as error:
        if debug:
            raise
        _fail(" ".join(str(error).split()))
    except OSError as error:
        if debug:
            raise
        _fail(
            f"{error.filename or 'file'}: {error.strerror or error}; check the path, its permissions and free space"
        )
    except (ValueError, TypeError) as error:  # what a library refuses, for example an option out of its range
        if debug:
            raise
        _fail(f"{' '.join(str(error).split())} (--debug shows where this came from)")
    except MemoryError:
        _fail(
            "out of memory: use smaller images, fewer training.pixels or kernel.n_components, or a smaller bank"
        )


def _fail(message: str) -> None:
    echo(f"segkit: {message}", err=True)
    sys.exit(2)


def _print_version(value: bool) -> None:
    if value:
        echo(f"segkit {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Segment biomedical images from a few annotated ones."""


app.command()(train)
app.command()(predict)
app.command()(annotate)


@app.command()
def measure(
    masks: Annotated[
        Path,
        typer.Argument(
            help="Folder of label images, masks of classes or outlines (sub-folders too), or one file."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for objects.csv and images.csv.")],
    images: Annotated[
        Path | None,
        typer.Option(
            "--images", help="Folder of the images: intensities are measured; they give outlines their size."
        ),
    ] = None,
    pixel_size: PixelSizeOption = None,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Also write images with the objects' outlines drawn in.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="data.masks=instances or classes; data.axes, data.labels or data.unlabelled, as for training.",
        ),
    ] = None,
    quiet: QuietOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Measure every object of masks: tables of objects and of images, for a spreadsheet."""
    from segkit.objects.folders import measure_folder
    from segkit.segmentation.plan import EXTRAS

    with progress_bars(quiet=quiet) as follow:
        result = measure_folder(
            masks,
            output,
            images=images,
            **read_meanings(set_),
            pixel_size=None if pixel_size is None else read_pixel_size(pixel_size),
            overlay=overlay,
            overwrite=overwrite,
            skip=EXTRAS,
            progress=follow,
        )
    notify = notifier(quiet=quiet)
    for message in [*result.messages, *describe_objects(result.images)]:
        notify(message)
    notify(f"Tables: {result.files[0]}, {result.files[1]}")
    if overlay:
        notify(f"overlay in {output / 'overlay'}")


app.command()(evaluate)


@app.command()
def benchmark(
    images: Annotated[Path, typer.Argument(help="Folder of annotated images.")],
    masks: Annotated[Path, typer.Argument(help="Folder of masks with the images' names.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results and report.")],
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Methods to compare, separated by commas. [default: {_METHODS}; with --objects {_OBJECT_METHODS}]"
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
            help="One option of a method, or of data: labels, unlabelled, masks, axes, range, context. May be repeated.",
        ),
    ] = None,
    objects: Annotated[
        bool,
        typer.Option(
            "--objects", help="Masks number objects: score objects too, told apart in several ways."
        ),
    ] = False,
    groups: Annotated[
        Path | None,
        typer.Option(
            help="CSV file of stem,group: groups (patients, videos, pages of a file) are never split."
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Text file of the images to test on, one stem a line.")
    ] = None,
    title: TitleOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what the folder holds, or add to it.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Remove the results of the folder.")] = False,
    memory_limit: MemoryLimitOption = None,  # noqa: ARG001
    scheduler: SchedulerOption = None,
    n_workers: WorkersOption = None,
    quiet: QuietOption = False,
) -> None:
    """Compare methods on few-shot splits of a folder, and write a report. Exit status 1 if any run failed."""
    from segkit.benchmark import Benchmark, load_data, load_methods
    from segkit.images.outputs import refuse_nesting, refuse_unwritable
    from segkit.report import write_report
    from segkit.report.sources import pictures_of_benchmark

    for folder in (images, masks):
        refuse_nesting(folder, output)
    if methods is None:
        methods = _OBJECT_METHODS if objects else _METHODS
    chosen = load_methods(filter(None, re.split(r"[,\s]+", methods)), config, set_ or [])
    data = load_data(config, set_ or [], objects=objects)
    run = Benchmark(
        images,
        masks,
        output,
        methods=chosen,
        train_sizes=_read_sizes(train_sizes),
        seeds=range(seeds),
        groups=groups,
        test=test,
        labels=data.labels,
        unlabelled=data.unlabelled,
        masks_are=data.masks,
        objects=objects,
        reading=data.reading,
    )
    refuse_unwritable(output / "results.json")
    notify = notifier(quiet=quiet)
    with locked_folder(output):
        run.check_output(resume=resume, overwrite=overwrite)
        for message in [
            *([] if objects else [run.label_map.describe()]),
            *run.messages,
            *(f"left out: {entry['reason']}" for entry in run.left_out),
        ]:
            notify(message)
        try:
            with spread_over(scheduler, n_workers) as workers, progress_bars(quiet=quiet) as follow:
                result = run.run(progress=follow, notify=lambda line: echo(line, err=True), workers=workers)
        except KeyboardInterrupt:
            echo(
                f"{run.n_done} of {count(len(run.units), 'run')} kept: the same command with --resume goes on",
                err=True,
            )
            raise
        pictures = pictures_of_benchmark(run)
        write_report(result, output / "index.html", pictures, title=title, scores_file="results.csv")
    notify(describe_benchmark(result))
    notify(f"Report: {output / 'index.html'}")
    if result["failures"]:
        raise typer.Exit(1)


@app.command()
def inspect(
    path: Annotated[
        Path, typer.Argument(metavar="MODEL | IMAGES", help="A model file, a folder of images, or one image.")
    ],
    masks: Annotated[Path | None, typer.Argument(help="Masks of the images.")] = None,
    set_: LabelsOption = None,
    only_annotated: OnlyAnnotatedOption = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Also show the options of a model, and explain the choices of its training."
        ),
    ] = False,
) -> None:
    """Show what a model is, or what is right and wrong with images, alone or with their masks."""
    from segkit.images import IMAGE_EXTENSIONS, inspect_images, inspect_pairs

    if not path.exists():
        raise InputError(f"{path}: no such file or folder: give a model file, or a folder of images")
    if masks is not None or path.is_dir() or path.suffix.lower() in IMAGE_EXTENSIONS:
        data = read_data(set_)
        report = (
            inspect_images(path, reading=data.reading)
            if masks is None
            else inspect_pairs(
                path,
                masks,
                labels=data.labels,
                unlabelled=data.unlabelled,
                masks_are=data.masks,
                instances=data.instances,
                only_annotated=only_annotated,
                reading=data.reading,
            )
        )
        echo(report.describe())
        if report.faults:
            raise InputError(f"{count(len(report.faults), 'fault')} above: to be mended before training")
        return
    from segkit.segmentation.model_file import find_faults, read_model
    from segkit.segmentation.segmenter import segmenter_of

    header, arrays = read_model(path)
    segmenter = segmenter_of(header, arrays, str(path))
    echo(describe_model(header, explain=explain))
    if explain:
        echo(describe_alarms(segmenter.alarms_, explain=True))
    if faults := find_faults(segmenter):
        raise ModelFileError(f"{path}: {' '.join(faults)}")


@app.command()
def demo(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for images, model and pictures; by default segkit-demo, or segkit-demo-objects.",
        ),
    ] = None,
    objects: Annotated[
        bool, typer.Option("--objects", help="Count and measure made-up nuclei, and no lesions.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of the made-up images and of training.")
    ] = 0,
    quiet: QuietOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Make a small set of lifelike images, train on a few, segment and score the others. No download."""
    from segkit.images.outputs import refuse_existing, refuse_unwritable

    output = output or Path("segkit-demo-objects" if objects else "segkit-demo")
    refuse_existing([output], overwrite=overwrite)
    refuse_unwritable(output / "images" / "1.png", within=output)
    notify = notifier(quiet=quiet)
    if objects:
        from segkit.cli.demo import run_object_demo

        with progress_bars(quiet=quiet) as follow:
            counted = run_object_demo(output, seed=seed, progress=follow)
        notify(counted.describe())
        return
    from segkit.cli.demo import run_demo

    with progress_bars(quiet=quiet) as follow:
        result = run_demo(output, seed=seed, progress=follow)
    notify(describe_training(result.summary, result.label_map, result.stems))
    notify(describe_scores(result.scores))
    notify(f"Pictures: {result.picture}")


def _read_sizes(text: str) -> list[int]:
    words = [word for word in re.split(r"[,\s]+", text) if word]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise ConfigError(f"--train-sizes {text}: give numbers of images, 1 or more, such as 1,2,3,5,15")
    return [int(word) for word in words]
