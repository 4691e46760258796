"""The numbers behind the report: scores of each method, comparisons of methods, sentences to quote.

A record holds the scores of one method on one test image of one random split. An interval resamples images (or
groups of images) and keeps all records of an image together. Where there are several random splits, it resamples them
too: it is about another draw of training images and other test images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from segkit.benchmark.object_splitting import LEARNT, SPLITTINGS, image_ap
from segkit.errors import count
from segkit.evaluation.metrics import iou_of, object_mean
from segkit.evaluation.statistics import FEW_IMAGES, Comparison, bootstrap_interval, compare

Record = Mapping[str, Any]
# Scores of one method, trained on one number of annotated images; undefined scores are NaN.
Row = SimpleNamespace
_CLASS_SCORES = ("iou", "dice", "precision", "recall", "boundary_f")
_SCORES = ["mean_iou", "object_iou", "object_dice"]


@dataclass(frozen=True)
class MethodComparison:
    """Two methods on their common test images and splits."""

    first: str
    second: str
    n_images: int
    comparison: Comparison
    p_adjusted: float


def as_table(records: Sequence[Record]) -> pd.DataFrame:
    """Make a table of records, with their object scores, and the name of what intervals resample: group, or else image."""
    table = pd.DataFrame(list(records), dtype=object)  # names of files may hold what other types do not take
    groups = zip(table["group"], table["image"], strict=True)
    table["cluster"] = [f"image {image}" if group is None else f"group {group}" for group, image in groups]
    for score in {"iou", "dice"}.intersection(table):
        table[f"object_{score}"] = object_mean(_by_class(table, score))
    numbers = [name for name in ("mean_iou", "brier") if name in table]
    return table.astype(dict.fromkeys(numbers, float) | {"n_train": int})


def runs_of(records: Sequence[Record]) -> list[pd.DataFrame]:
    """Part records by method, in their order, and number of annotated images."""
    if not records:
        return []
    table = as_table(records)
    runs = table.groupby([pd.factorize(table["method"])[0], "n_train"])
    return [run.assign(cluster=_numbered(run["cluster"]), split=_numbered(run["seed"])) for _, run in runs]


def summarise(records: Sequence[Record]) -> list[Row]:
    """Score each method at each number of annotated images: means over records, by class over those defined.

    ``present_iou`` is over records whose truth has the class, ``micro_iou`` of the pixels of all records together.
    ``n_undefined``, ``n_false`` and ``n_missed`` count records with the class in neither truth nor prediction, in the
    prediction only, in the truth only. ``reliability`` adds up the counts of all records that have them.
    """
    return [_score(run) for run in runs_of(records)]


def summarise_objects(records: Sequence[Record]) -> list[Row]:
    """Score the objects of each method, told apart in each way, at each number of annotated images: means of records."""
    return [
        _score_objects(run, splitting)
        for run in runs_of([record for record in records if "objects" in record])
        for splitting in SPLITTINGS
        if splitting in run["objects"].iloc[0]
    ]


def average_seeds(records: Sequence[Record]) -> pd.DataFrame:
    """Average the scores of each method and image over the random splits that tested on it."""
    table = as_table(records)
    keys = [table[name] for name in ("method", "n_train", "image")]
    groups = table.groupby(keys, sort=False)
    averaged = groups[_SCORES].mean().assign(n_seeds=groups.size())
    for score in ("iou", "boundary_f"):
        of_classes = pd.DataFrame(_by_class(table, score)).groupby(keys, sort=False).mean()
        averaged[score] = of_classes.to_numpy().tolist()
    return averaged.reset_index()


def compare_methods(records: Sequence[Record], n_train: int) -> list[MethodComparison]:
    """Compare each pair of methods on their common images and splits."""
    table = as_table([record for record in records if record["n_train"] == n_train])
    table = table[["method", "seed", "image", "cluster", "mean_iou"]]
    pairs: list[tuple[str, str, int, Comparison]] = []
    for (first, own), (second, other) in combinations(table.groupby("method", sort=False), 2):
        shared = own.merge(other, on=["seed", "image"], suffixes=("", "_of_other"))
        if len(shared):
            clusters, splits = _numbered(shared["cluster"]), _numbered(shared["seed"])
            comparison = compare(shared["mean_iou"], shared["mean_iou_of_other"], clusters, splits)
            pairs.append((first, second, shared["image"].nunique(), comparison))
    adjusted = _holm([comparison.p_value for *_, comparison in pairs])
    return [MethodComparison(*pair, p_adjusted=p) for pair, p in zip(pairs, adjusted, strict=True)]


def best_single_class(records: Sequence[Record]) -> tuple[int, float]:
    """Score a map that gives every pixel the same class, as a floor for any method."""
    truths = as_table(records).drop_duplicates(["seed", "image"])
    pixels = np.array(truths["confusion"].tolist()).sum(axis=2)
    # each class that an image has besides is scored 0
    n_defined = (pixels > 0).sum(axis=1)[:, None] + (pixels == 0)
    scores = (pixels / pixels.sum(axis=1, keepdims=True) / n_defined).mean(axis=0)
    return int(scores.argmax()), float(scores.max())


def headline_size(result: Mapping[str, Any]) -> int:
    """Choose the number of annotated images that stands first: that of the pictures, else the largest of most methods."""
    n_methods = as_table(result["records"]).groupby("n_train")["method"].nunique()
    of_pictures: Any = (result["pictures"] or {}).get("n_train")
    return int(of_pictures if of_pictures in n_methods else n_methods[::-1].idxmax())


def statements(result: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Describe what was found, and what limits it, in sentences that may be quoted."""
    if not result["records"]:
        failed = count(len(result["failures"]), "run")
        return [f"No run finished, so there is nothing to report ({failed} failed)."], []
    n_train = headline_size(result)
    records = [record for record in result["records"] if record["n_train"] == n_train]
    rows = sorted(summarise(records), key=lambda row: -row.mean_iou)
    findings = [*_about_objects(result), _praise(rows[0], result)]
    ahead = [row.method for row in rows[:2]]
    if len(ahead) > 1:
        pair = [record for record in records if record["method"] in ahead]
        pair.sort(key=lambda record: record["method"] != ahead[0])
        findings += [_lead(found, result) for found in compare_methods(pair, n_train)]
    elif (n_clusters := as_table(records)["cluster"].nunique()) < FEW_IMAGES:
        noun = "image" if n_clusters == rows[0].n_images else "group"
        findings.append(f"The estimate is not firm: {count(n_clusters, noun)}, fewer than {FEW_IMAGES}.")
    findings.append(_about_single_class(records, result))
    caveats = []
    if n_train and rows[0].n_seeds == 1:
        caveats.append("1 split: intervals are over test images only, for this draw of annotated images.")
    caveats += _about_budget(ahead, n_train, result)
    if failed := sum(failure["n_train"] == n_train for failure in result["failures"]):
        caveats.append(f"{count(failed, 'run')} failed and {'is' if failed == 1 else 'are'} missing here.")
    return findings, caveats + _about_empty_classes(rows[0], result)


def _praise(row: Row, result: Mapping[str, Any]) -> str:
    title = _title(row.method, result)
    tested = f"on {count(row.n_images, 'test image')} of {result['name']}"
    names = {"object_iou": "object IoU", "object_dice": "object Dice", "mean_iou": "mean IoU"}
    texts = [
        f"{told} {getattr(row, name):.3f} ({interval[0]:.3f} to {interval[1]:.3f})"
        for name, told in names.items()
        if (interval := getattr(row, f"{name}_interval")) is not None
    ]
    scored = _enumerated(texts)
    scored = scored.replace("(", "(95 % interval ", 1)
    if not row.n_train:
        by = "by pixels " if "objects" in result else ""
        return f"Scores of {title} {by}{tested}: {scored}."
    splits = f", averaged over {row.n_seeds} random splits" if row.n_seeds > 1 else ""
    return f"Trained on {count(row.n_train, 'annotated image')}, {title} reaches {scored} {tested}{splits}."


def _about_objects(result: Mapping[str, Any]) -> list[str]:
    """Describe how many objects were found, if the masks number objects and hold any."""
    objects = result.get("objects")
    if objects is None or objects["scores"]["ap_50"]["value"] is None:
        return []
    score = objects["scores"]["ap_50"]
    low, high = score["interval"]
    return [
        f"The predictions hold {objects['n_predicted']:,} objects, the truth {objects['n_true']:,}: "
        f"their AP at IoU 0.5 is {score['value']:.3f} (95 % interval {low:.3f} to {high:.3f})."
    ]


def _enumerated(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _lead(pair: MethodComparison, result: Mapping[str, Any]) -> str:
    rival, comparison = _title(pair.second, result), pair.comparison
    low, high = comparison.interval
    span = f"(95 % interval of the difference {signed(low)} to {signed(high)})"
    if comparison.too_few:
        noun = "test image" if comparison.n_images == pair.n_images else "group"
        reason = f"{count(comparison.n_images, noun)} are too few to rank methods"
    elif low <= 0 <= high:
        splits = "" if comparison.n_seeds == (1,) else " and splits"
        reason = f"the interval includes zero, so the two cannot be told apart on these images{splits}"
    else:
        side = "above" if low > 0 else "below"
        return f"Its mean IoU is {abs(comparison.difference):.3f} {side} the runner-up's, {rival} {span}."
    return f"Its mean IoU differs by {signed(comparison.difference)} from the runner-up's, {rival} {span}; {reason}."


def _about_single_class(records: Sequence[Record], result: Mapping[str, Any]) -> str:
    index, score = best_single_class(records)
    return f"Calling every pixel {result['label_map']['names'][index]} would give a mean IoU of {score:.3f}."


def _about_budget(methods: Sequence[str], n_train: int, result: Mapping[str, Any]) -> list[str]:
    limited = {
        unit["method"] for unit in result["units"] if unit["n_train"] == n_train and unit["budget_limited"]
    }
    titles = [_title(method, result) for method in methods if method in limited]
    told = (
        f"Training of {' and '.join(titles)} was cut short by its budget: more steps may change this result."
    )
    return [told] if titles else []


def _about_empty_classes(row: Row, result: Mapping[str, Any]) -> list[str]:
    names = result["label_map"]["names"]
    empty = [f"{name} in {number}" for name, number in zip(names, row.n_undefined, strict=True) if number]
    told = (
        f"A class has no score in an image where neither truth nor prediction shows it "
        f"({', '.join(empty)} of {count(row.n_records, 'prediction')})."
    )
    return [told] if empty else []


def signed(value: float | None, digits: int = 3) -> str:
    """Write a difference with its sign, +0.020 or −0.020."""
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}") if float(text) else text[1:]


def _title(method: str, result: Mapping[str, Any]) -> str:
    return str(result["methods"][method]["title"])


def _score(run: pd.DataFrame) -> Row:
    counts = np.array(run["confusion"].tolist())
    in_truth, in_prediction = counts.sum(axis=2) > 0, counts.sum(axis=1) > 0
    by_class = {score: pd.DataFrame(_by_class(run, score)) for score in _CLASS_SCORES}
    known = run["reliability"].dropna()
    sums = {name: np.sum(known.str[name].tolist(), axis=0) for name in next(iter(known), ())}
    apart = np.abs(sums["probability"] - sums["hits"]).sum() / sums["count"].sum() if sums else np.nan
    return Row(
        n_images=run["image"].nunique(),
        n_seeds=run["seed"].nunique(),
        n_records=len(run),
        **_means(run, _SCORES),
        **{score: values.mean().tolist() for score, values in by_class.items()},
        present_iou=by_class["iou"].where(in_truth).mean().tolist(),
        micro_iou=iou_of(counts.sum(axis=0)).tolist(),
        brier=run["brier"].mean(),
        reliability=sums,
        calibration_error=apart,  # the expected calibration error: over pixels, of their bins
        n_undefined=(~in_truth & ~in_prediction).sum(axis=0).tolist(),
        n_false=(~in_truth & in_prediction).sum(axis=0).tolist(),
        n_missed=(in_truth & ~in_prediction).sum(axis=0).tolist(),
    )


def _score_objects(run: pd.DataFrame, splitting: str) -> Row:
    counts = pd.DataFrame([objects[splitting] for objects in run["objects"]], index=run.index)
    ap = [image_ap(objects[splitting]) for objects in run["objects"]]
    run = run.assign(
        ap_50=[np.nan if one is None else one[0] for one in ap],
        mean_ap=[np.nan if one is None else np.mean(one) for one in ap],
        count_error=counts["n_predicted"] - counts["n_true"],
    )
    return Row(
        splitting=splitting,
        suffix="" if splitting == LEARNT else f" + {splitting}",
        **counts[["n_true", "n_predicted"]].sum().to_dict(),
        **_means(run, ["ap_50", "mean_ap", "count_error"]),
        absolute_count_error=run["count_error"].abs().mean(),
    )


def _means(run: pd.DataFrame, scores: Sequence[str]) -> dict[str, Any]:
    """Name method and number of annotated images, and average scores where defined; intervals are None where none is."""
    found: dict[str, Any] = {"method": run["method"].iloc[0], "n_train": int(run["n_train"].iloc[0])}
    for score in scores:
        known = run.dropna(subset=[score])
        resampled = (known[score], known["cluster"], known["split"])
        found |= {score: known[score].mean()}
        found |= {f"{score}_interval": bootstrap_interval(*resampled) if len(known) else None}
    return found


def _by_class(table: pd.DataFrame, score: str) -> Any:
    """Read scores of classes (n_records, n_classes)."""
    return np.array(table[score].tolist(), dtype=np.float64)


def _numbered(names: pd.Series) -> Any:
    """Return the number of each name, in the order in which they first occur."""
    return pd.factorize(names)[0]


def _holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the i-th smallest of m times m - i, made monotone."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    stepped = np.minimum(1, np.maximum.accumulate(np.asarray(p_values)[order] * factors))
    adjusted = np.empty(len(p_values))
    adjusted[order] = stepped
    return [float(p) for p in adjusted]
