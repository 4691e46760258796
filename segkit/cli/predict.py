"""The command ``segkit predict``: segment a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segkit.cli import Stopped
from segkit.cli.options import (
    ImagesArgument,
    OverlayOption,
    OverwriteOption,
    ResumeOption,
    folder_of_results,
    read_data,
    workers,
)
from segkit.cli.terminal import echo, progress_bars, say, warn
from segkit.errors import ConfigError, count, first_few

if TYPE_CHECKING:
    from segkit.live.corrections import Corrections
    from segkit.segmentation.outcome import ImageRow
    from segkit.segmentation.segmenter import Segmenter

_KNOWN = ("axes", "pixel_size", "level")
# Number of failed or skipped images named on the terminal. The summary has all.
_N_NAMED = 5
# Grey levels below it look black.
_DARK = 32


def predict(
    model: Annotated[Path, typer.Argument(help="Model file written by segkit train.")],
    images: ImagesArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for masks and summary.csv (expected IoU, warnings).",
            parser=folder_of_results,
            metavar="PATH",
        ),
    ],
    probability: Annotated[
        bool, typer.Option("--probability", help="Also write probability maps (TIFF).")
    ] = False,
    overlay: OverlayOption = False,
    objects: Annotated[
        bool,
        typer.Option(
            "--objects",
            help="Also tell touching objects apart, number and measure them: objects.csv, images.csv.",
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Less time, less exact: of networks that were trained, one at each scale and no symmetries.",
        ),
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="MORE|LESS|DEPTH",
            help="With --objects: tell more or fewer touching objects apart, or those of a depth in radii (such as 0.1).",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help=f"How images are read: data.{', data.'.join(_KNOWN)}. With --objects also objects.depth, "
            "objects.smallest (area in pixels), objects.fill_holes (true or false), objects.least_probability (0 keeps "
            "doubtful ones). May be repeated.",
        ),
    ] = None,
    corrections: Annotated[
        Path | None,
        typer.Option(
            "--corrections",
            help="Folder of segkit annotate: what was labelled and checked there takes the place of what is predicted.",
        ),
    ] = None,
    resume: ResumeOption = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Tell tiles, memory and minutes that it would take, and write nothing."
        ),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first image that fails.")] = False,
    overwrite: OverwriteOption = False,
    overwrite_foreign: Annotated[
        bool,
        typer.Option(
            "--overwrite-foreign", help="Replace other files too, such as masks drawn or corrected by hand."
        ),
    ] = False,
) -> None:
    """Segment every image of a folder. Masks have the values of the training masks. Exit status 1 if an image failed."""
    from segkit.segmentation.segmenter import load

    of_objects = [given for given in set_ or [] if given.strip().startswith("objects.")]
    data = read_data([given for given in set_ or [] if given not in of_objects], *_KNOWN)
    segmenter = _with_objects(load(model), split, of_objects, objects=objects)
    if quick:
        whole, segmenter = segmenter, segmenter.quick()
        if segmenter is whole:
            say("--quick changes nothing: no networks were trained for this model")
    if dry_run:
        _estimate(segmenter, images, data.axes, data.level)
        return
    options = {"probability": probability, "overlay": overlay, "objects": objects}
    replaced = {"resume": resume, "overwrite": overwrite, "overwrite_foreign": overwrite_foreign}
    given = {name: getattr(data, name) for name in _KNOWN}
    corrected = {"corrections": None if corrections is None else _corrections(corrections, segmenter)}
    _predict_folder(segmenter, images, output, options | replaced | given | corrected | {"strict": strict})


def _corrections(folder: Path, segmenter: Segmenter) -> Corrections:
    from segkit.live.corrections import Corrections

    return Corrections(folder, segmenter)


def _with_objects(segmenter: Segmenter, split: str | None, given: list[str], *, objects: bool) -> Segmenter:
    """Change how objects are told apart."""
    from segkit.config.schema import ObjectsConfig

    if (split or given) and not objects:
        raise ConfigError(f"{'--split' if split else given[0]} is about objects: give --objects too")
    settings = ObjectsConfig.load(given)
    if split is not None and settings.depth is not None:
        raise ConfigError("--split and objects.depth are two depths: leave one out")
    by_word = {} if split is None else {"split": split}
    changed = segmenter.with_objects(**settings.changes | by_word)
    if changed is segmenter and (split or given):
        say("the settings of objects are those of the model already: nothing changes")
    return changed


def _estimate(segmenter: Segmenter, images: Path, axes: str | None, level: int | None) -> None:
    """Tell what it would take."""
    from segkit.segmentation.estimate import estimate_folder

    with progress_bars() as follow:
        estimate = estimate_folder(segmenter, images, follow, axes, level)
    for fault in estimate.faults:
        warn(f"would fail: {fault}")
    echo(estimate.summarise())


def _predict_folder(segmenter: Segmenter, images: Path, output: Path, options: dict[str, Any]) -> None:
    """Segment the images."""
    from segkit.images.pixel_size import describe_sizes
    from segkit.objects.tables import describe_counts, read_sizes
    from segkit.segmentation.folders import segment_folder
    from segkit.segmentation.outcome import Interrupted

    start = time.perf_counter()
    try:
        with workers() as spread, progress_bars() as follow:
            outcome = segment_folder(segmenter, images, output, **options, workers=spread, progress=follow)
    except Interrupted as stop:
        done = f"{stop.n_written} of {count(stop.n_images, 'image')} written"
        raise Stopped(f"{done}; the same command with --resume goes on") from stop
    made = len(outcome.masks) - outcome.n_kept
    pace = f" ({(time.perf_counter() - start) / made:.2f} s a file)" if made else ""
    say(f"{count(len(outcome.masks), 'mask file')} in {output}{pace}")
    if segmenter.classes_.max() < _DARK:
        told = first_few([str(value) for value in segmenter.classes_.tolist()])
        say(
            f"Masks hold {told}: viewers show them black; stretch the contrast there, or look at overlays (--overlay)"
        )
    say(*(f"{kind} in {output / kind}" for kind in ("probability", "overlay", "objects") if options[kind]))
    if options["objects"]:
        say(*describe_counts(output / "images.csv"))
        say(segmenter.objects_.summarise(), f"Tables: {output / 'objects.csv'}, {output / 'images.csv'}")
        say(*describe_sizes(read_sizes(output / "images.csv")))
    for row in [row for row in outcome.rows if row.shares][:_N_NAMED]:
        say(f"{row.image}: {row.shares}")
    if expected := outcome.summarise_expected():
        say(expected)
    for doubt in outcome.summarise_warnings():
        warn(f"note: {doubt}")
    _name_some(outcome.skipped, say)
    if outcome.failed:
        _name_some(outcome.failed, warn)
        warn(outcome.summarise())
        raise typer.Exit(1)
    say(outcome.summarise())


def _name_some(rows: Sequence[ImageRow], write: Callable[[str], None]) -> None:
    """Write why the first images were not written, a line each; two whose results clash have one line."""
    lines = list(dict.fromkeys(f"{row.status}: {row.reason}" for row in rows))
    for line in lines[:_N_NAMED]:
        write(line)
    if len(lines) > _N_NAMED:
        write(f"{rows[0].status}: {len(lines) - _N_NAMED} more")
