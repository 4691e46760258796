"""Files of results: results.json, and tables for spreadsheets with one row for each prediction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from segkit._common.files import write_table, write_text
from segkit.benchmark.object_splitting import SPLITTINGS, image_ap
from segkit.errors import InputError
from segkit.evaluation.metrics import CLASS_SCORES, object_mean
from segkit.images import LabelMap

# Increase it when the meaning of an entry changes: older files are then refused, never misread.
FORMAT_VERSION = 1
# Columns of a table of scores for masks that number objects.
_OBJECT_SCORES = ("n_true", "n_predicted", "ap_50", "panoptic_quality", "aggregated_jaccard")


def read_results(path: str | Path) -> dict[str, Any]:
    """Read a results file.

    Parameters
    ----------
    path : str or Path
        ``results.json``, or its folder.

    Returns
    -------
    dict
        The content of the file.

    Raises
    ------
    InputError
        If the file does not exist, is damaged, or has another format version.
    """
    path = Path(path)
    path = path / "results.json" if path.is_dir() else path
    result = read_json(path)
    if not isinstance(result.get("records"), list):
        raise InputError(f"{path} holds no records: give a results.json that segkit benchmark wrote")
    return result


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a benchmark; another format version is refused."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}): give a file that segkit benchmark wrote"
        ) from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {version}, this segkit reads version {FORMAT_VERSION}: "
            f"run the benchmark again, into another folder"
        )
    return dict(content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file, completely or not at all."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_csv(path: Path, records: Sequence[dict[str, Any]], label_map: LabelMap) -> None:
    """Write all values of the records of a benchmark as a table; undefined scores are empty cells."""
    own = ("method", "n_train", "seed", "image", "group", "mean_iou")
    per_class = (*CLASS_SCORES, "boundary_f")
    objects = [_object_cells(record["objects"]) if "objects" in record else {} for record in records]
    last = ("brier", "expected_object_iou", "fit_seconds", "predict_seconds", "peak_memory_mib")
    rows = [record | cells for record, cells in zip(records, objects, strict=True)]
    _write_table(path, rows, label_map, own, per_class, (*last, *(objects[0] if objects else ())))


def _object_cells(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the objects of a record, the same for all methods."""
    cells: dict[str, Any] = {"n_true": next(iter(objects.values()))["n_true"]}
    for splitting in SPLITTINGS:
        counts = objects.get(splitting)
        ap = None if counts is None else image_ap(counts)
        cells[f"n_predicted {splitting}"] = None if counts is None else counts["n_predicted"]
        cells[f"ap_50 {splitting}"] = None if ap is None else ap[0]
        cells[f"mean_ap {splitting}"] = None if ap is None else float(np.mean(ap))
    return cells


def write_scores(
    path: Path,
    records: Sequence[dict[str, Any]],
    label_map: LabelMap,
    objects: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Write the scores of each image and method as a table, with the counts and scores of its objects if there are any."""
    rows = (
        records
        if objects is None
        else [{**entry, **own} for entry, own in zip(objects, records, strict=True)]
    )
    last = () if objects is None else _OBJECT_SCORES
    _write_table(path, rows, label_map, ("image", "method", "mean_iou"), tuple(CLASS_SCORES), last)


def _write_table(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    label_map: LabelMap,
    own: Sequence[str],
    per_class: Sequence[str],
    last: Sequence[str],
) -> None:
    """Write values of each row: of its own, object scores, scores of each class, and those that come last."""
    columns = [f"{score} {name}" for score in per_class for name in label_map.names]
    cells = []
    for row in rows:
        objects = [float(object_mean(row[score])) for score in ("iou", "dice")]
        of_classes = [value for score in per_class for value in row[score]]
        known = [None if np.isnan(score) else score for score in objects]
        cells.append([*(row[name] for name in own), *known, *of_classes, *(row[name] for name in last)])
    write_table(path, [*own, "object_iou", "object_dice", *columns, *last], cells)
