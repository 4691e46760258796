"""The command ``segkit evaluate``: predicted masks scored against true ones."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segkit._common import count, first_few
from segkit._files import locked_folder, write_table, write_text
from segkit.cli.options import (
    LabelsOption,
    OverwriteOption,
    QuietOption,
    TitleOption,
    read_meanings,
)
from segkit.cli.terminal import describe_scores, echo, notifier

if TYPE_CHECKING:
    from segkit.evaluation.read_masks import ReadMasks

_FILES = ("index.html", "scores.csv", "summary.csv")


def evaluate(
    predictions: Annotated[Path, typer.Argument(help="Folder of predicted masks.")],
    masks: Annotated[Path, typer.Argument(help="Folder of true masks with the same names.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the scores to this file.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for a report: index.html, scores.csv, summary.csv.",
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images", help="Folder of the images: shown in the report; they give outlines their size."
        ),
    ] = None,
    title: TitleOption = None,
    set_: LabelsOption = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Score nothing if a mask is missing, damaged or of another size."),
    ] = False,
    quiet: QuietOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Score predicted masks: IoU, Dice, and objects if they are numbered. Exit status 1 if a mask could not be scored."""
    from segkit.evaluation.folders import score_found
    from segkit.evaluation.read_masks import read_folders
    from segkit.images.outputs import refuse_existing, refuse_extension, refuse_nesting, refuse_unwritable
    from segkit.segmentation.plan import EXTRAS

    files = [] if output is None else [output / name for name in _FILES]
    for folder in (predictions, masks, images):
        if output is not None and folder is not None:
            refuse_nesting(folder, output)
        if json_file is not None and folder is not None and folder.is_dir():
            refuse_nesting(folder, json_file)
    if json_file is not None:
        refuse_extension(json_file, ".json")
    written = files if json_file is None else [json_file, *files]
    refuse_existing(written, overwrite=overwrite)
    for path in written:
        refuse_unwritable(path)
    with nullcontext() if output is None else locked_folder(output):
        meanings = read_meanings(set_)
        found = read_folders(predictions, masks, images=images, **meanings, skip=EXTRAS, strict=strict)
        result = score_found(found)
        if output is not None:
            _write_report(found, output, (predictions, masks, images), title)
        if json_file is not None:
            write_text(json_file, json.dumps(result, indent=2, allow_nan=False) + "\n")
    notify = notifier(quiet=quiet)
    notify(describe_scores(result))
    if output is not None:
        notify(f"Report: {files[0]}; tables: {', '.join(map(str, files[1:]))}")
    if found.failed:
        faults = [f"{stem} ({reason})" for stem, reason in found.failed.items()]
        echo(
            f"segkit: {count(len(faults), 'true mask')} not scored: {first_few(faults, most=3, separator='; ')}",
            err=True,
        )
        raise typer.Exit(1)


def _write_report(
    found: ReadMasks,
    output: Path,
    folders: tuple[Path, Path, Path | None],
    title: str | None,
) -> None:
    """Write the report and its tables."""
    from segkit.benchmark.results import write_scores
    from segkit.report import write_report
    from segkit.report.sources import result_of_folders

    page, scores, summary = (output / name for name in _FILES)
    result, pictures = result_of_folders(found, *folders)
    write_report(result, page, pictures, title=title, scores_file=scores.name)
    objects: Any = result.get("objects", {}).get("images")
    write_scores(scores, result["records"], found.label_map, objects)
    write_table(
        summary,
        ("image", "status", "reason"),
        sorted(
            [(stem, "written", None) for stem in set(found.files)]
            + [(stem, "skipped", "no true mask") for stem in found.skipped]
            + [(stem, "failed", reason) for stem, reason in found.failed.items()]
        ),
    )
