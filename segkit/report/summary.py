"""The numbers behind the report: scores of each method, comparisons of methods, sentences to quote.

A record holds the scores of one method on one test image of one random split. An interval resamples images (or
groups of images) and keeps all records of an image together. Where there are several random splits, it resamples them
too: it is about another draw of training images and other test images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from segkit._common import count
from segkit.benchmark.object_splitting import LEARNT, SPLITTINGS, image_ap
from segkit.evaluation.metrics import iou_of, object_mean
from segkit.evaluation.statistics import FEW_IMAGES, Comparison, bootstrap_interval, compare

Record = Mapping[str, Any]
Entry = TypeVar("Entry")
PerClass = tuple[float | None, ...]
Interval = tuple[float, float]


@dataclass(frozen=True)
class MethodScores:
    """Scores of one method trained on one number of annotated images: means over records, by class over those defined."""

    method: str
    n_train: int | None
    n_images: int
    n_seeds: int
    n_records: int
    mean_iou: float
    interval: Interval
    object_iou: float | None
    object_dice: float | None
    object_iou_interval: Interval | None
    object_dice_interval: Interval | None
    iou: PerClass
    dice: PerClass
    precision: PerClass
    recall: PerClass
    boundary_f: PerClass
    present_iou: PerClass  # over records whose truth has the class
    micro_iou: PerClass  # of the pixels of all records together
    brier: float | None
    calibration_error: float | None
    # records with the class in neither truth nor prediction, in the prediction only, in the truth only
    n_undefined: tuple[int, ...]
    n_false: tuple[int, ...]
    n_missed: tuple[int, ...]


@dataclass(frozen=True)
class ObjectRow:
    """Scores of the objects of one method, told apart in one way, at one number of annotated images: means of records."""

    method: str
    splitting: str
    n_train: int | None
    n_true: int
    n_predicted: int
    ap_50: float | None
    mean_ap: float | None
    ap_50_interval: Interval | None
    mean_ap_interval: Interval | None
    count_error: float
    count_error_interval: Interval
    absolute_count_error: float

    def name(self, method: str) -> str:
        """Name the row: the method, and the splitting unless the method has learnt it."""
        return method if self.splitting == LEARNT else f"{method} + {self.splitting}"


@dataclass(frozen=True)
class ImageScores:
    """Scores of one method on one test image, averaged over the random splits that tested on it."""

    method: str
    n_train: int | None
    image: str
    n_seeds: int
    mean_iou: float
    object_iou: float | None
    object_dice: float | None
    iou: PerClass
    boundary_f: PerClass


@dataclass(frozen=True)
class MethodComparison:
    """Two methods on their common test images and splits."""

    first: str
    second: str
    n_images: int
    comparison: Comparison
    p_adjusted: float


def summarise(records: Sequence[Record]) -> list[MethodScores]:
    """Score each method at each number of annotated images."""
    return [_score(method, n_train, run) for (method, n_train), run in runs_of(records).items()]


def summarise_objects(records: Sequence[Record]) -> list[ObjectRow]:
    """Score the objects of each method at each number of annotated images."""
    counted = [record for record in records if "objects" in record]
    return [
        _object_row(method, n_train, splitting, run)
        for (method, n_train), run in runs_of(counted).items()
        for splitting in SPLITTINGS
        if splitting in run[0]["objects"]
    ]


def average_seeds(records: Sequence[Record]) -> list[ImageScores]:
    """Average the scores of each method and image over the random splits."""
    runs = gather(records, lambda record: (record["method"], record["n_train"], record["image"]))
    return [
        ImageScores(
            method,
            n_train,
            image,
            len(run),
            float(np.mean(_column(run, "mean_iou"))),
            _mean(object_scores(run, "iou")),
            _mean(object_scores(run, "dice")),
            _class_means(run, "iou"),
            _class_means(run, "boundary_f"),
        )
        for (method, n_train, image), run in runs.items()
    ]


def compare_methods(records: Sequence[Record], n_train: int | None) -> list[MethodComparison]:
    """Compare each pair of methods on their common images and splits."""
    runs = gather(
        [record for record in records if record["n_train"] == n_train], lambda record: record["method"]
    )
    pairs: list[tuple[str, str, int, Comparison]] = []
    for first, second in combinations(runs, 2):
        other = {(record["seed"], record["image"]): record for record in runs[second]}
        shared = [record for record in runs[first] if (record["seed"], record["image"]) in other]
        if shared:
            comparison = compare(
                _column(shared, "mean_iou"),
                [other[record["seed"], record["image"]]["mean_iou"] for record in shared],
                clusters_of(shared),
                seeds_of(shared),
            )
            pairs.append((first, second, len({record["image"] for record in shared}), comparison))
    adjusted = _holm([comparison.p_value for *_, comparison in pairs])
    return [MethodComparison(*pair, p_adjusted=p) for pair, p in zip(pairs, adjusted, strict=True)]


def object_scores(records: Iterable[Record], score: str) -> list[float | None]:
    """Return the mean of each record over the classes other than the background."""
    means = (float(object_mean(record[score])) for record in records)
    return [None if np.isnan(mean) else mean for mean in means]


def add_reliability(records: Iterable[Record]) -> dict[str, list[float]] | None:
    """Add up the reliability counts of records; None where no record has them."""
    known = [record["reliability"] for record in records if record["reliability"] is not None]
    if not known:
        return None
    return {name: np.sum([entry[name] for entry in known], axis=0).tolist() for name in known[0]}


def best_single_class(records: Iterable[Record]) -> tuple[int, float]:
    """Score a map that gives every pixel the same class, as a floor for any method."""
    truths = {(record["seed"], record["image"]): np.sum(record["confusion"], axis=1) for record in records}
    pixels = np.array(list(truths.values()))
    scores = []
    for index in range(pixels.shape[1]):
        n_defined = 1 + (np.delete(pixels, index, axis=1) > 0).sum(axis=1)
        scores.append(float(np.mean(pixels[:, index] / pixels.sum(axis=1) / n_defined)))
    best = int(np.argmax(scores))
    return best, scores[best]


def headline_size(result: Mapping[str, Any]) -> int | None:
    """Choose the number of annotated images that stands first: that of the pictures, else the largest of most methods."""
    methods: dict[int | None, set[str]] = {}
    for record in result["records"]:
        methods.setdefault(record["n_train"], set()).add(record["method"])
    of_pictures: int | None = (result["pictures"] or {}).get("n_train")
    if of_pictures in methods:
        return of_pictures
    return max(methods, key=lambda size: (len(methods[size]), size or 0))


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
    elif (n_clusters := len(set(clusters_of(records)))) < FEW_IMAGES:
        noun = "image" if n_clusters == rows[0].n_images else "group"
        findings.append(f"The estimate is not firm: {count(n_clusters, noun)}, fewer than {FEW_IMAGES}.")
    findings.append(_about_single_class(records, result))
    caveats = []
    if n_train is not None and rows[0].n_seeds == 1:
        caveats.append("1 split: intervals are over test images only, for this draw of annotated images.")
    caveats += _about_budget(ahead, n_train, result)
    if failed := sum(failure["n_train"] == n_train for failure in result["failures"]):
        caveats.append(f"{count(failed, 'run')} failed and {'is' if failed == 1 else 'are'} missing here.")
    return findings, caveats + _about_empty_classes(rows[0], result)


def _praise(row: MethodScores, result: Mapping[str, Any]) -> str:
    title = _title(row.method, result)
    tested = f"on {count(row.n_images, 'test image')} of {result['name']}"
    scores = {
        "mean IoU": (row.mean_iou, row.interval),
        "object IoU": (row.object_iou, row.object_iou_interval),
        "object Dice": (row.object_dice, row.object_dice_interval),
    }
    texts = {
        name: f"{score:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"
        for name, (score, interval) in scores.items()
        if score is not None and interval is not None
    }
    scored = _enumerated([f"{name} {text}" for name, text in texts.items()])
    scored = scored.replace("(", "(95 % interval ", 1)
    if row.n_train is None:
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


def _about_single_class(records: Iterable[Record], result: Mapping[str, Any]) -> str:
    index, score = best_single_class(records)
    return f"Calling every pixel {result['label_map']['names'][index]} would give a mean IoU of {score:.3f}."


def _about_budget(methods: Sequence[str], n_train: int | None, result: Mapping[str, Any]) -> list[str]:
    limited = {
        unit["method"] for unit in result["units"] if unit["n_train"] == n_train and unit["budget_limited"]
    }
    titles = [_title(method, result) for method in methods if method in limited]
    told = (
        f"Training of {' and '.join(titles)} was cut short by its budget: more steps may change this result."
    )
    return [told] if titles else []


def _about_empty_classes(row: MethodScores, result: Mapping[str, Any]) -> list[str]:
    names = result["label_map"]["names"]
    empty = [f"{name} in {number}" for name, number in zip(names, row.n_undefined, strict=True) if number]
    told = (
        f"A class has no score in an image where neither truth nor prediction shows it "
        f"({', '.join(empty)} of {count(row.n_records, 'prediction')})."
    )
    return [told] if empty else []


def signed(value: float) -> str:
    """Write a difference with its sign, +0.020 or −0.020."""
    text = f"{value:+.3f}"
    return "0.000" if text[1:] == "0.000" else text.replace("-", "\N{MINUS SIGN}")


def _title(method: str, result: Mapping[str, Any]) -> str:
    return str(result["methods"][method]["title"])


def gather(records: Iterable[Entry], key: Callable[[Entry], Any]) -> dict[Any, list[Entry]]:
    """Group records by a key, in the order of the records."""
    groups: dict[Any, list[Entry]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def runs_of(records: Iterable[Record]) -> dict[tuple[str, int | None], list[Record]]:
    """Group records by method and number of annotated images: methods in the order of the records, then by number."""
    runs = gather(records, lambda record: (record["method"], record["n_train"]))
    position = {method: index for index, method in enumerate(dict.fromkeys(method for method, _ in runs))}
    return dict(sorted(runs.items(), key=lambda run: (position[run[0][0]], run[0][1] or 0)))


def _score(method: str, n_train: int | None, run: Sequence[Record]) -> MethodScores:
    mean_iou = _column(run, "mean_iou")
    object_iou, object_dice = object_scores(run, "iou"), object_scores(run, "dice")
    counts = np.array(_column(run, "confusion"))
    in_truth, in_prediction = counts.sum(axis=2) > 0, counts.sum(axis=1) > 0
    return MethodScores(
        method=method,
        n_train=n_train,
        n_images=len({record["image"] for record in run}),
        n_seeds=len({record["seed"] for record in run}),
        n_records=len(run),
        mean_iou=float(np.mean(mean_iou)),
        interval=bootstrap_interval(mean_iou, clusters_of(run), seeds_of(run)),
        object_iou=_mean(object_iou),
        object_iou_interval=_interval(object_iou, run),
        object_dice=_mean(object_dice),
        object_dice_interval=_interval(object_dice, run),
        iou=_class_means(run, "iou"),
        present_iou=_present_iou(run, in_truth),
        micro_iou=tuple(None if np.isnan(iou) else float(iou) for iou in iou_of(counts.sum(axis=0))),
        dice=_class_means(run, "dice"),
        precision=_class_means(run, "precision"),
        recall=_class_means(run, "recall"),
        boundary_f=_class_means(run, "boundary_f"),
        brier=_mean(_column(run, "brier")),
        calibration_error=_calibration_error(run),
        n_undefined=_counts(~in_truth & ~in_prediction),
        n_false=_counts(~in_truth & in_prediction),
        n_missed=_counts(in_truth & ~in_prediction),
    )


def _column(run: Sequence[Record], name: str) -> list[Any]:
    return [record[name] for record in run]


def _interval(scores: Sequence[float | None], run: Sequence[Record]) -> Interval | None:
    known = [
        entry for entry in zip(scores, clusters_of(run), seeds_of(run), strict=True) if entry[0] is not None
    ]
    return bootstrap_interval(*zip(*known, strict=True)) if known else None


def clusters_of(run: Sequence[Record]) -> list[int]:
    """Assign a number to the group, or else the image, of each record."""
    return _numbered(
        [
            ("image", record["image"]) if record["group"] is None else ("group", record["group"])
            for record in run
        ]
    )


def seeds_of(run: Sequence[Record]) -> list[int]:
    """Assign a number to the random split of each record; masks that no benchmark made are of one."""
    return _numbered(_column(run, "seed"))


def _numbered(names: Sequence[Any]) -> list[int]:
    number = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return [number[name] for name in names]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _class_means(run: Sequence[Record], name: str) -> PerClass:
    return tuple(_mean(values) for values in zip(*_column(run, name), strict=True))


def _present_iou(run: Sequence[Record], in_truth: NDArray[np.bool_]) -> PerClass:
    return tuple(
        _mean(iou for iou, here in zip(values, present, strict=True) if here)
        for values, present in zip(zip(*_column(run, "iou"), strict=True), in_truth.T, strict=True)
    )


def _calibration_error(run: Sequence[Record]) -> float | None:
    """Mean over pixels of |probability - frequency| of their bin (the expected calibration error)."""
    sums = add_reliability(run)
    if sums is None:
        return None
    apart = np.abs(np.subtract(sums["probability"], sums["hits"]))
    return float(apart.sum() / np.sum(sums["count"]))


def _counts(flags: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(number) for number in flags.sum(axis=0))


def _holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the i-th smallest of m times m - i, made monotone."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    stepped = np.minimum(1, np.maximum.accumulate(np.asarray(p_values)[order] * factors))
    adjusted = np.empty(len(p_values))
    adjusted[order] = stepped
    return [float(p) for p in adjusted]


def _object_row(method: str, n_train: int | None, splitting: str, run: Sequence[Record]) -> ObjectRow:
    counts: list[Mapping[str, Any]] = [record["objects"][splitting] for record in run]
    ap = [image_ap(one) for one in counts]
    ap_50 = [None if one is None else one[0] for one in ap]
    mean_ap = [None if one is None else float(np.mean(one)) for one in ap]
    more = [one["n_predicted"] - one["n_true"] for one in counts]
    return ObjectRow(
        method,
        splitting,
        n_train,
        n_true=sum(one["n_true"] for one in counts),
        n_predicted=sum(one["n_predicted"] for one in counts),
        ap_50=_mean(ap_50),
        ap_50_interval=_interval(ap_50, run),
        mean_ap=_mean(mean_ap),
        mean_ap_interval=_interval(mean_ap, run),
        count_error=float(np.mean(more)),
        count_error_interval=bootstrap_interval(more, clusters_of(run), seeds_of(run)),
        absolute_count_error=float(np.mean(np.abs(more))),
    )
