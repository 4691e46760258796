"""The command ``segkit evaluate``: predicted masks scored against true ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segkit._common.files import write_table, write_text
from segkit.cli.options import OF_MASKS, ImagesOption, OverwriteOption, data_option, read_data
from segkit.cli.terminal import say, score, warn
from segkit.errors import count, first_few

if TYPE_CHECKING:
    from segkit.evaluation.read_masks import ReadMasks

_FILES = ("index.html", "scores.csv", "summary.csv", "scores.json")


def evaluate(
    predictions: Annotated[Path, typer.Argument(help="Folder of predicted masks.")],
    masks: Annotated[Path, typer.Argument(help="Folder of true masks with the same names.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"Folder for a report: {', '.join(_FILES)}.")
    ] = None,
    images: ImagesOption = None,
    set_: Annotated[list[str] | None, data_option(*OF_MASKS)] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Score nothing if a mask is missing, damaged or of another size."),
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Score predicted masks: IoU, Dice, and objects if they are numbered. Exit status 1 if a mask could not be scored."""
    from segkit.evaluation.folders import score_found
    from segkit.evaluation.read_masks import read_folders
    from segkit.images.outputs import refuse_existing, refuse_nesting, refuse_unwritable
    from segkit.images.record import made_aside
    from segkit.report.page import folder_title
    from segkit.segmentation.outcome import KINDS

    files = [] if output is None else [output / name for name in _FILES]
    for folder in filter(None, (predictions, masks, images)):
        if output is not None:
            refuse_nesting(folder, output)
    refuse_existing(files, overwrite=overwrite)
    for path in files:
        refuse_unwritable(path)
    data = read_data(set_, *OF_MASKS)
    with (
        nullcontext()
        if output is None
        else made_aside(output, "evaluation", list(map(Path, _FILES))) as aside
    ):
        found = read_folders(
            predictions,
            masks,
            images=images,
            axes=data.axes,
            **data.meanings,
            skip=KINDS,
            strict=strict,
        )
        result = score_found(found)
        if output is not None and aside is not None:
            title = folder_title(output)
            _write_report(
                found, result, [aside / name for name in _FILES], (predictions, masks, images), title
            )
    say(*describe_scores(result).splitlines())
    if output is not None:
        say(f"Report: {files[0]}; tables: {', '.join(map(str, files[1:]))}")
    if found.failed:
        faults = [f"{stem} ({reason})" for stem, reason in found.failed.items()]
        warn(
            f"segkit: {count(len(faults), 'true mask')} not scored: {first_few(faults, most=3, separator='; ')}"
        )
        raise typer.Exit(1)


def _write_report(
    found: ReadMasks,
    result: dict[str, Any],
    files: Sequence[Path],
    folders: tuple[Path, Path, Path | None],
    title: str,
) -> None:
    """Write the report, its tables, and the scores that are printed."""
    from segkit.benchmark.results import write_scores
    from segkit.report import write_report
    from segkit.report.sources import result_of_folders

    page, scores, summary, json_file = files
    reported, pictures = result_of_folders(found, *folders)
    write_report(reported, page, pictures, title=title, scores_file=scores.name)
    objects: Any = reported.get("objects", {}).get("images")
    write_scores(scores, reported["records"], found.label_map, objects)
    write_table(
        summary,
        ("image", "status", "reason"),
        sorted(
            [(stem, "written", None) for stem in set(found.files)]
            + [(stem, "skipped", "no true mask") for stem in found.skipped]
            + [(stem, "failed", reason) for stem, reason in found.failed.items()]
        ),
    )
    write_text(json_file, json.dumps(result, indent=2, allow_nan=False) + "\n")


def describe_scores(result: dict[str, Any]) -> str:
    """Describe the scores that `segkit.evaluation.compare_folders` gave."""
    lines = _lines_of_objects(result["objects"]) if "objects" in result else []
    lines += [
        f"Object IoU {score(result['object_iou'], result['object_iou_interval'])}",
        f"Object Dice {score(result['object_dice'], result['object_dice_interval'])}",
        f"Mean IoU over classes {score(result['mean_iou'], result['interval'])}",
    ]
    for entry in result["classes"]:
        undefined = (
            f", in neither mask of {count(entry['n_undefined'], 'image')}" if entry["n_undefined"] else ""
        )
        lines.append(f"  {entry['name']}: IoU {score(entry['iou'])}, Dice {score(entry['dice'])}{undefined}")
    lines += [f"Scored on {count(result['n_images'], 'image')}.", *result["notes"]]
    return "\n".join(lines)


def _lines_of_objects(objects: dict[str, Any]) -> list[str]:
    """Describe the scores of objects, and that those below them are of pixels."""
    names = {
        "ap_50": "AP at IoU 0.5",
        "mean_ap": f"Mean AP at IoU {objects['thresholds'][0]:g} to {objects['thresholds'][-1]:g}",
        "panoptic_quality": "Panoptic quality",
        "aggregated_jaccard": "Aggregated Jaccard index",
        "count_error": "Predicted minus true, mean of images",
        "absolute_count_error": "Absolute difference, mean of images",
    }
    lines = [f"Objects: {objects['n_true']} true, {objects['n_predicted']} predicted"]
    for name, text in names.items():
        form = {"count_error": "+.1f", "absolute_count_error": ".1f"}.get(name, ".3f")
        found = objects["scores"][name]
        lines.append(f"  {text}: {score(found['value'], found['interval'], form)}")
    if objects["n_undefined"]:
        lines.append(f"  {count(objects['n_undefined'], 'image')} without objects, true or predicted")
    return [*lines, "Pixels, all objects as foreground:"]
