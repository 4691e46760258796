"""The page of the report: all sections in one HTML file, without network."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from segkit import __version__
from segkit._common.files import write_text
from segkit.benchmark.choices import CRITERIA
from segkit.benchmark.object_splitting import image_ap
from segkit.errors import count
from segkit.evaluation.metrics import object_mean
from segkit.evaluation.statistics import FEW_IMAGES
from segkit.images.write import CLASS_COLOURS
from segkit.report import figures
from segkit.report.pictures import (
    ERROR_COLOURS,
    Picture,
    Pictures,
    choose_images,
    draw_errors,
    draw_heat_map,
    draw_image,
    draw_objects,
    draw_overlay,
    draw_residual,
    draw_truth,
    heat_colours,
)
from segkit.report.summary import (
    Record,
    Row,
    average_seeds,
    best_single_class,
    compare_methods,
    headline_size,
    signed,
    statements,
    summarise,
    summarise_objects,
)

_FOLDER = Path(__file__).parent
# Rows of the table of images: a longer table is slow to sort and takes many megabytes.
_MOST_ROWS = 8000
_SECTIONS = {
    "curve": "Scores by number of annotated images",
    "gaps": "What is missing",
    "objects": "Objects",
    "examples": "Best, median and worst image",
    "scores": "Scores",
    "spread": "Spread over the test images",
    "comparisons": "Which differences are real",
    "confusions": "Which class is taken for which",
    "images": "Every test image",
    "costs": "Time and memory",
    "definitions": "How the scores are defined",
    "methods": "For methods people",
    "manifest": "Versions and settings",
}
# Pictures side by side: more are too small to read.
_MOST_IN_A_ROW = 4


def write_report(
    result: Mapping[str, Any],
    path: Path,
    pictures: Pictures | None = None,
    *,
    title: str | None = None,
    scores_file: str | None = None,
) -> None:
    """Write the report of a benchmark or an evaluation as one HTML file.

    Parameters
    ----------
    result : dict
        Content of results.json.
    path : Path
        The file. An existing one is replaced when the new one is complete.
    pictures : callable, optional
        ``pictures(method, n_train, seed, image)`` gives the `Picture` of a prediction, or None where
        none was kept. Without it the page shows no pictures.
    title : str, optional
        Title of the page; by default the name of its folder after that of the folder around it, such as
        "study/report".
    scores_file : str, optional
        Name of the table of all scores beside the page; the page links to it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from segkit.report import write_report
    >>> result = {
    ...     "name": "empty", "label_map": {"values": [0, 255], "names": ["background", "cell"], "unlabelled": None},
    ...     "methods": {"forest": {"title": "Pixel forest"}}, "train_sizes": [5], "tolerance": 2.0, "left_out": [],
    ...     "failures": [{"method": "forest", "n_train": 5, "seed": 0, "error": "out of memory"}],
    ...     "units": [], "records": [], "pictures": None, "manifest": {},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(result, Path(folder) / "index.html")
    ...     print("No run finished" in (Path(folder) / "index.html").read_text(encoding="utf-8"))
    True
    """
    write_text(path, _render(result, pictures, title or folder_title(path.parent), scores_file))


def folder_title(folder: Path) -> str:
    """Return the name of a folder after that of the folder around it, such as "study/report"."""
    folder = folder.resolve()
    return "/".join(name for name in (folder.parent.name, folder.name) if name) or "report"


def _render(result: Mapping[str, Any], pictures: Pictures | None, title: str, scores_file: str | None) -> str:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _NUMBERS
    script, style = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("report.js", "report.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    context = _contents(result, pictures)
    return environment.get_template("report.html.j2").render(
        **context,
        title=title,
        scores_file=scores_file,
        sections={name: heading for name, heading in _SECTIONS.items() if context[name]},
        script=Markup(script),  # files of this package, safe without escaping
        script_digest=digest,
        style=Markup(style),
        version=__version__,
    )


def _contents(result: Mapping[str, Any], pictures: Pictures | None) -> dict[str, Any]:
    """Gather the values of the template; an empty section is left out of the page."""
    looks = figures.looks({method: str(entry["title"]) for method, entry in result["methods"].items()})
    names = [str(name) for name in result["label_map"]["names"]]
    findings, caveats = statements(result)
    gaps = {"left_out": result["left_out"], "failures": result["failures"]}
    general = {
        "findings": findings,
        "caveats": caveats,
        "class_names": names,
        "class_colours": _class_colours(names),
        "looks": looks,
        "keys": {method: figures.draw_key(look) for method, look in looks.items() if len(looks) > 1},
        "several": len(looks) > 1,
        "several_splits": len({record["seed"] for record in result["records"]}) > 1,
        "tolerance": result["tolerance"],
        "few_images": FEW_IMAGES,
        "foreground": names[1] if len(names) == 2 else f"any class but {names[0]}",
        "has_unlabelled": result["label_map"]["unlabelled"] is not None,
        "gaps": gaps if any(gaps.values()) else None,
        "manifest": result["manifest"]
        and json.dumps(result["manifest"], indent=2, ensure_ascii=False, default=str),
    }
    if not result["records"]:
        return dict.fromkeys(_SECTIONS, None) | {"facts": {}, "headline": None} | general
    headline = headline_size(result)
    rows = summarise(result["records"])
    averaged = average_seeds(result["records"])
    constant, trivial = best_single_class(result["records"])
    costs = _costs(result["units"], list(looks))
    return general | {
        "facts": _facts(result, names),
        "headline": headline,
        "curve": _curves(rows, looks, (names[constant], trivial)),
        "single_class": (names[constant], trivial),
        "limited": _limited(costs, looks),
        "spread": _spread(averaged, looks),
        "comparisons": {
            size: pairs
            for size in _by_size(rows, headline)
            if (pairs := compare_methods(result["records"], size))
        },
        "scores": _by_size(rows, headline),
        "score_grid": {(row.method, row.n_train): row for row in rows},
        "objects": _objects(result, pictures) if "objects" in result else _object_methods(result),
        "examples": _examples(result, pictures) if pictures else None,
        "error_colours": _error_colours(result),
        "heat_colours": heat_colours(),
        "confusions": _confusions(result["records"], headline, names),
        "methods": {
            "calibration": _calibration([row for row in rows if row.n_train == headline], looks),
            "learnt": _learnt(result, names),
        },
        "costs": costs,
        "notes": _notes(result["units"]),
        "images": _images(averaged, headline, list(looks)),
        "n_image_rows": len(averaged),
        "definitions": True,
    }


def _class_colours(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of the outlines of each class, if there are several."""
    colours = dict(zip(names[1:], itertools.cycle(CLASS_COLOURS.tolist()), strict=False))
    return {name: f"rgb{tuple(colour)}" for name, colour in colours.items()} if len(colours) > 1 else {}


def _error_colours(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the colour of each kind of error that this result can have."""
    several = len(result["label_map"]["names"]) > 2
    colours = {kind: colour for kind, colour in ERROR_COLOURS.items() if kind != "confused" or several}
    return {kind: f"rgb{colour}" for kind, colour in colours.items()}


def _facts(result: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Sum up the extent of the comparison."""
    records = result["records"]
    of = {
        name: {record[name] for record in records} - {None} for name in ("method", "image", "group", "seed")
    }
    sizes = sorted({record["n_train"] for record in records} - {0})
    facts = {
        "Methods": str(len(of["method"])) if len(of["method"]) > 1 else "",
        "Annotated images": ", ".join(map(str, sizes)),
        "Test images": str(len(of["image"])),
        "Groups of images": str(len(of["group"])) if of["group"] else "",
        "Random splits": str(len(of["seed"])) if sizes else "",
        "Classes": ", ".join(names),
    }
    if "objects" in result:
        counts = result["objects"]
        facts["Objects"] = f"{counts['n_true']:,} true, {counts['n_predicted']:,} predicted"
    return {term: value for term, value in facts.items() if value}


def _curves(
    rows: Sequence[Row], looks: Mapping[str, figures.Look], single_class: tuple[str, float]
) -> list[str]:
    """Draw learning curves of object IoU and mean IoU; a single number of annotated images has none."""
    if len({row.n_train for row in rows}) < 2:
        return []
    mean = figures.draw_learning_curve(rows, looks, single_class=single_class)
    if not any(row.object_iou_interval for row in rows):
        return [mean]
    return [figures.draw_learning_curve(rows, looks, of_objects=True), mean]


def _limited(costs: Mapping[str, Sequence[Any]], looks: Mapping[str, figures.Look]) -> list[str]:
    """Name the methods with trainings cut short by their budget, and the number of these runs."""
    return [
        f"{looks[method].title} ({n_limited} of {count(sum(row.n_runs for row in rows), 'run')})"
        for method, rows in costs.items()
        if (n_limited := sum(row.n_limited for row in rows))
    ]


def _spread(averaged: pd.DataFrame, looks: Mapping[str, figures.Look]) -> list[dict[str, Any]]:
    """Draw one figure for each number of annotated images, all with the same axis."""
    low = float(np.floor(10 * averaged["mean_iou"].min()) / 10)
    panels = []
    for size, scores in averaged.groupby("n_train"):
        values = {method: own.tolist() for method, own in scores.groupby("method", sort=False)["mean_iou"]}
        panels.append({"n_train": size, "svg": figures.draw_spread(values, looks, low=low)})
    return panels


def _by_size(rows: Sequence[Row], headline: int) -> dict[int, list[Row]]:
    """Group the rows by number of annotated images, the headline's first."""
    sizes = sorted({row.n_train for row in rows}, key=lambda size: (size != headline, size))
    return {size: [row for row in rows if row.n_train == size] for size in sizes}


def _examples(result: Mapping[str, Any], pictures: Pictures) -> list[dict[str, Any]]:
    """Show the best, median and worst image of the first method with pictures, as segmented by each method."""
    kept = result["pictures"]
    run = [record for record in result["records"] if kept == {name: record[name] for name in kept or ()}]
    if not run:
        return []
    scored = {(record["method"], record["image"]): record for record in run}
    methods = [method for method in result["methods"] if any(method == other for other, _ in scored)]
    examples = []
    for rank, record in choose_images([record for record in run if record["method"] == methods[0]]).items():
        found = {
            method: pictures(method, record["n_train"], record["seed"], record["image"]) for method in methods
        }
        shown = {method: picture for method, picture in found.items() if picture is not None}
        own = {method: scored.get((method, record["image"])) for method in shown}
        scores = {
            method: {"mean_iou": entry["mean_iou"], "object_iou": float(object_mean(entry["iou"]))}
            for method, entry in own.items()
            if entry is not None
        }
        if shown:
            of_image = {"rank": rank, "image": record["image"], "by": methods[0], "seed": record["seed"]}
            examples.append(of_image | {"scores": scores} | _panels(shown))
    return examples


def _objects(result: Mapping[str, Any], pictures: Pictures | None) -> dict[str, Any]:
    """Gather scores of objects as rows of a table, the images, and pictures of the best and the worst."""
    objects: dict[str, Any] = result["objects"]
    names = {f"ap_{100 * threshold:g}": f"AP at IoU {threshold:g}" for threshold in objects["thresholds"]}
    span = f"{objects['thresholds'][0]:g} to {objects['thresholds'][-1]:g}"
    names |= {
        "mean_ap": f"Mean AP, IoU {span}",
        "panoptic_quality": "Panoptic quality",
        "aggregated_jaccard": "Aggregated Jaccard index",
    }
    counts = {
        "count_error": ("Predicted minus true, mean of images", "signed_count"),
        "absolute_count_error": ("Absolute difference, mean of images", "plain_count"),
        "relative_count_error": ("Absolute differences, share of true objects", "percentage"),
    }
    scores = objects["scores"]
    return objects | {
        "by_size": None,
        "rows": [_object_row(text, scores[name], "score") for name, text in names.items()],
        "count_rows": [_object_row(text, scores[name], write) for name, (text, write) in counts.items()],
        "span": span,
        "examples": _object_examples(result, pictures) if pictures else [],
    }


def _object_methods(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Gather the scores of the objects of each method in a benchmark, by number of annotated images."""
    rows = summarise_objects(result["records"])
    if not rows:
        return None
    headline, thresholds = headline_size(result), result["object_thresholds"]
    return {
        "by_size": _by_size(rows, headline),
        "span": f"{thresholds[0]:g} to {thresholds[-1]:g}",
        "n_undefined": sum(
            all(image_ap(counts) is None for counts in record["objects"].values())
            for record in result["records"]
        ),
    }


def _object_row(text: str, score: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Write a score and its interval."""
    write, interval = _NUMBERS[kind], score["interval"]
    apart = interval is not None and interval[0] != interval[1]
    return {
        "name": text,
        "value": write(score["value"]),
        "interval": f"{write(interval[0])} to {write(interval[1])}" if apart else "–",
    }


def _object_examples(result: Mapping[str, Any], pictures: Pictures) -> list[dict[str, Any]]:
    """Show the images with the worst and the best AP, of equal ones the one with most objects."""
    known = [entry for entry in result["objects"]["images"] if entry["ap_50"] is not None]
    if not known:
        return []
    best = max(known, key=lambda entry: (entry["ap_50"], entry["n_true"]))
    others = [entry for entry in known if entry is not best]
    worst = min(others, key=lambda entry: (entry["ap_50"], -entry["n_true"]), default=None)
    ranks = {"Only": best} if worst is None else {"Worst": worst, "Best": best}
    [method] = result["methods"]
    shown = []
    for rank, entry in ranks.items():
        picture = pictures(method, 0, 0, entry["stem"])
        if picture is not None and (drawn := draw_objects(picture)) is not None:
            shown.append({"rank": rank, "image": entry, "uris": drawn})
    return shown


class _Drawing(NamedTuple):
    """A picture on the page: its kind, its method (None for all methods), and its data URI."""

    kind: str
    method: str | None
    uri: str


def _panels(shown: Mapping[str, Picture]) -> dict[str, Any]:
    """Arrange the pictures of one image: ``panels`` are shown, ``maps`` of probability are folded."""
    first = next(iter(shown.values()))
    image = [_Drawing("image", None, draw_image(first))]
    outlines = [_Drawing("truth", None, draw_truth(first)), *_drawn("outlines", draw_overlay, shown)]
    errors = _drawn("errors", draw_errors, shown)
    maps, residuals = _drawn("probability", draw_heat_map, shown), _drawn("residual", draw_residual, shown)
    if len(shown) == 1:
        return {
            "panels": [_panel(outlines + errors)],
            "maps": [_panel(image + maps + residuals)] if maps else [],
        }
    return {
        "panels": [_panel(outlines), _panel(image + errors)],
        "maps": [_panel(maps), _panel(residuals)] if maps else [],
    }


def _drawn(kind: str, draw: Callable[[Picture], str | None], shown: Mapping[str, Picture]) -> list[_Drawing]:
    """Draw one kind of picture for each method that has it."""
    drawn = [(method, draw(picture)) for method, picture in shown.items()]
    return [_Drawing(kind, method, uri) for method, uri in drawn if uri is not None]


def _panel(drawings: Sequence[_Drawing]) -> dict[str, Any]:
    """Arrange pictures in few rows of about the same length."""
    n_rows = ceil(len(drawings) / _MOST_IN_A_ROW)
    kinds = {drawing.kind for drawing in drawings if drawing.method is not None}
    return {
        "pictures": drawings,
        "n_columns": ceil(len(drawings) / n_rows),
        "is_of_one_method": len(kinds) > 1,
    }


def _confusions(
    records: Sequence[Record], headline: int, names: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the confusion matrix of each method, as counts and as shares of each true class."""
    counts: dict[str, Any] = {}
    for record in records:
        if record["n_train"] == headline:
            counts[record["method"]] = counts.get(record["method"], 0) + np.array(record["confusion"])
    return {
        method: [
            {
                "name": name,
                "cells": [{"count": n, "share": n / sum(row) if sum(row) else None} for n in row],
            }
            for name, row in zip(names, matrix.tolist(), strict=True)
        ]
        for method, matrix in counts.items()
    }


def _calibration(rows: Sequence[Row], looks: Mapping[str, figures.Look]) -> dict[str, Any] | None:
    rows = [row for row in rows if not np.isnan(row.brier)]
    sums = {row.method: row.reliability for row in rows if row.reliability}
    svg = figures.draw_reliability(sums, looks) if sums else None
    return {"rows": rows, "svg": svg} if rows else None


def _learnt(result: Mapping[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Show kernels, channels and embedding of one run of each method that has them."""
    kept = result["pictures"] or {}
    preferred = (kept.get("n_train"), kept.get("seed"))
    units: dict[str, Mapping[str, Any]] = {}
    for unit in sorted(result["units"], key=lambda unit: (unit["n_train"], unit["seed"]) != preferred):
        if unit["explain"] is not None:
            units.setdefault(unit["method"], unit)
    return [
        _explanation(units[method], str(entry["title"]), names)
        for method, entry in result["methods"].items()
        if method in units
    ]


def _explanation(unit: Mapping[str, Any], title: str, names: Sequence[str]) -> dict[str, Any]:
    explain = unit["explain"]
    scaled = [kernel for kernel in explain["kernels"] if kernel["gamma"] is not None]
    weights = {kernel["name"]: kernel["weight"] for kernel in explain["kernels"]}
    criterion, kept = CRITERIA.get(explain["criterion"], explain["criterion"]), explain["kept_channels"]
    of_gamma = f"{criterion} of the kernels of {title} against gamma"
    of_channels = f"Channels that {title} kept, by layer or scale"
    return {
        "unit": unit,
        "criterion": criterion,
        "curve": figures.draw_bandwidth_curve(scaled, criterion, of_gamma) if len(scaled) > 1 else None,
        "weights": figures.draw_bars(weights, "weight in the mixture", f"Weights of the kernels of {title}"),
        "channels": figures.draw_bars(kept, "channels kept", of_channels) if kept else None,
        "words": explain.get("words", []),
        "n_kept": sum(kept.values()),
        "embedding": [
            {
                "title": panel["title"],
                "svg": figures.draw_embedding(panel, names, f"t-SNE of {title}: {panel['title']}"),
            }
            for panel in explain["embedding"] or []
        ],
    }


def _costs(units: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> dict[str, list[Any]]:
    """Sum up time and memory of each method, by number of annotated images."""
    if not units:
        return {}
    numbers = ("fit_seconds", "predict_seconds", "peak_memory_mib", "budget_limited")
    table = pd.DataFrame(list(units)).astype(dict.fromkeys(numbers, float))
    costs = table.groupby(["method", "n_train"], as_index=False).agg(
        n_runs=("seed", "size"),
        fit_seconds=("fit_seconds", "median"),
        predict_seconds=("predict_seconds", "median"),
        peak_memory_mib=("peak_memory_mib", "max"),
        devices=("device", lambda devices: ", ".join(sorted(set(devices)))),
        n_budgets=("budget_limited", "count"),
        n_limited=("budget_limited", lambda limited: int(limited.sum())),
    )
    rows = {method: list(costs[costs["method"] == method].itertuples()) for method in methods}
    return {method: own for method, own in rows.items() if own}


def _notes(units: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Gather the notes of the runs of each method, without repeats."""
    notes: dict[str, dict[str, None]] = {}
    for unit in units:
        for note in unit["notes"]:
            notes.setdefault(unit["method"], {})[note] = None
    return {method: list(told) for method, told in notes.items()}


def _images(averaged: pd.DataFrame, headline: int, methods: Sequence[str]) -> list[Any]:
    """Sort the rows of the table of images by name; too many rows are cut down to the headline's size."""
    shown = averaged if len(averaged) <= _MOST_ROWS else averaged[averaged["n_train"] == headline]
    order = shown["method"].map(methods.index)
    return list(shown.assign(order=order).sort_values(["image", "order", "n_train"]).itertuples(index=False))


def _writer(form: str) -> Callable[[float | None], str]:
    """Write numbers in one form, with a dash in place of undefined ones."""
    return lambda value: "–" if pd.isna(value) else format(value, form).replace("%", " %")


def _p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _quantity(value: float | None) -> str:
    """Write a time or a size with two to three significant digits."""
    return _writer(",.0f" if value is not None and value >= 100 else ".3g")(value)


_NUMBERS: dict[str, Callable[..., str]] = {
    "score": _writer(".3f"),
    "plain_count": _writer(".1f"),
    "percentage": _writer(".1%"),
    "signed": signed,
    "signed_count": partial(signed, digits=1),
    "p_value": _p_value,
    "quantity": _quantity,
}
