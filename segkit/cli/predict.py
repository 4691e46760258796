"""The command ``segkit predict``: segment a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segkit._common import count
from segkit.cli.interrupt import Stopped
from segkit.cli.options import (
    DeviceOption,
    ImagesArgument,
    LevelOption,
    MemoryLimitOption,
    PixelSizeOption,
    QuietOption,
    SchedulerOption,
    WorkersOption,
    read_data,
    read_pixel_size,
    spread_over,
)
from segkit.cli.terminal import describe_object_model, echo, notifier, progress_bars
from segkit.errors import ConfigError

if TYPE_CHECKING:
    from segkit.segmentation.outcome import ImageRow
    from segkit.segmentation.segmenter import Segmenter

# Number of failed or skipped images named on the terminal. The summary has all.
_N_NAMED = 5


def _folder(path: str) -> Path:
    """Read the path of a folder. An empty one is refused before `Path` takes it for the current folder."""
    from segkit.images.outputs import refuse_empty

    refuse_empty(path)
    return Path(path)


def predict(
    model: Annotated[Path, typer.Argument(help="Model file written by segkit train.")],
    images: ImagesArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for masks and summary.csv (expected IoU, warnings).",
            parser=_folder,
            metavar="PATH",
        ),
    ],
    probability: Annotated[
        bool, typer.Option("--probability", help="Also write probability maps (TIFF).")
    ] = False,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Also write images with the contours drawn in.")
    ] = False,
    objects: Annotated[
        bool,
        typer.Option(
            "--objects",
            help="Also tell touching objects apart, number and measure them: objects.csv, images.csv.",
        ),
    ] = False,
    pixel_size: PixelSizeOption = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="data.axes=AXES", help="Axes of stacks, such as ZYX, in place of the model's."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on after a stop, or with new images: make only what is missing or outdated."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Tell tiles, memory and minutes that it would take, and write nothing."
        ),
    ] = False,
    level: LevelOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first image that fails.")] = False,
    memory_limit: MemoryLimitOption = None,  # noqa: ARG001
    device: DeviceOption = "cpu",  # noqa: ARG001
    quiet: QuietOption = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace results of an earlier run.")
    ] = False,
    overwrite_foreign: Annotated[
        bool,
        typer.Option(
            "--overwrite-foreign", help="Replace other files too, such as masks drawn or corrected by hand."
        ),
    ] = False,
    scheduler: SchedulerOption = None,
    n_workers: WorkersOption = None,
) -> None:
    """Segment every image of a folder. Masks have the values of the training masks. Exit status 1 if an image failed."""
    from segkit.segmentation.folders import segment_folder
    from segkit.segmentation.memory import is_large
    from segkit.segmentation.outcome import Interrupted
    from segkit.segmentation.segmenter import load

    segmenter, axes = load(model), _read_axes(set_)
    by_region = level is not None or is_large(images, segmenter.bank_, segmenter.classes_.size)
    if dry_run and by_region:
        raise ConfigError(
            f"--dry-run: {images} is read by region, tile by tile under --memory-limit, and is not estimated: leave it out"
        )
    options: dict[str, Any] = {
        "probability": probability,
        "pixel_size": None if pixel_size is None else read_pixel_size(pixel_size),
        "resume": resume,
        "overwrite": overwrite,
        "overwrite_foreign": overwrite_foreign,
    }
    if dry_run:
        from segkit.segmentation.estimate import estimate_folder

        with progress_bars(quiet=quiet) as follow:
            kinds = ["probability"] * probability + ["overlay"] * overlay
            estimate = estimate_folder(segmenter, images, output, kinds, follow, axes)
        for fault in estimate.faults:
            _warn(f"would fail: {fault}")
        echo(estimate.summarise())
        return
    if by_region:
        refused = {
            "--overlay": overlay,
            "--objects": objects,
            "--strict": strict,
            "--set": axes is not None,
        }
        if given := [option for option, is_given in refused.items() if is_given]:
            raise ConfigError(
                f"{', '.join(given)}: {images} is read by region, which gives labels and probabilities: leave it out"
            )
        with spread_over(scheduler, n_workers) as workers, progress_bars(quiet=quiet) as follow:
            options |= {"level": level or 0, "workers": workers, "progress": follow}
            _predict_large(segmenter, images, output, notifier(quiet=quiet), options)
        return
    start = time.perf_counter()
    try:
        with spread_over(scheduler, n_workers) as workers, progress_bars(quiet=quiet) as follow:
            outcome = segment_folder(
                segmenter,
                images,
                output,
                **options,
                overlay=overlay,
                objects=objects,
                axes=axes,
                strict=strict,
                workers=workers,
                progress=follow,
            )
    except Interrupted as stop:
        done = f"{stop.n_written} of {count(stop.n_images, 'image')} written"
        raise Stopped(f"{done}; the same command with --resume goes on") from stop
    notify = notifier(quiet=quiet)
    made = len(outcome.masks) - outcome.n_kept
    pace = f" ({(time.perf_counter() - start) / made:.2f} s a file)" if made else ""
    notify(f"{count(len(outcome.masks), 'mask file')} in {output}{pace}")
    for name, wanted in (("probability", probability), ("overlay", overlay), ("objects", objects)):
        if wanted:
            notify(f"{name} in {output / name}")
    if objects:
        notify(describe_object_model(segmenter.objects_))
        notify(f"Tables: {output / 'objects.csv'}, {output / 'images.csv'}")
    if expected := outcome.summarise_expected():
        notify(expected)
    for doubt in outcome.summarise_warnings():
        _warn(f"note: {doubt}")
    _name_some(outcome.skipped, notify)
    if outcome.failed:
        _name_some(outcome.failed, _warn)
        _warn(outcome.summarise())
        raise typer.Exit(1)
    notify(outcome.summarise())


def _read_axes(overrides: list[str] | None) -> str | None:
    """Read the axes; how else images are read is known from the model."""
    data = read_data(overrides, known=["axes"])
    if others := sorted(data.model_fields_set - {"axes"}):
        raise ConfigError(
            f"--set data.{others[0]}: only data.axes is known here, the model has the others: leave it out"
        )
    return data.axes


def _predict_large(
    segmenter: Segmenter, image: Path, output: Path, notify: Callable[[str], None], options: dict[str, Any]
) -> None:
    """Segment one image by region."""
    from segkit.segmentation.large import segment_large
    from segkit.segmentation.outcome import SUMMARY

    try:
        outcome = segment_large(segmenter, image, output, **options)
    except KeyboardInterrupt as stop:
        raise Stopped("the same command with --resume goes on") from stop
    notify(f"{count(outcome.n_tiles, 'tile')}, labels in {outcome.labels}")
    if outcome.probability is not None:
        notify(f"probability in {outcome.probability}")
    notify(f"shares: {outcome.row.shares}; see {output / SUMMARY}")
    for fault in outcome.faults[:_N_NAMED]:
        _warn(fault)
    if outcome.faults:
        _warn(
            f"{count(len(outcome.faults), 'fault')}: the same command with --resume does the failed part again"
        )
        raise typer.Exit(1)


def _warn(line: str) -> None:
    """Write a line on standard error, even with --quiet."""
    echo(line, err=True)


def _name_some(rows: Sequence[ImageRow], notify: Callable[[str], None]) -> None:
    """Write why the first images were not written, a line each; two whose results clash have one line."""
    lines = list(dict.fromkeys(f"{row.status}: {row.reason}" for row in rows))
    for line in lines[:_N_NAMED]:
        notify(line)
    if len(lines) > _N_NAMED:
        notify(f"{rows[0].status}: {len(lines) - _N_NAMED} more")
