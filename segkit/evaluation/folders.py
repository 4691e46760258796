"""Predicted masks scored against true ones: one image by every score, folders by IoU, Dice and their objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.errors import InputError
from segkit.evaluation.metrics import (
    CLASS_SCORES,
    Scores,
    boundary_f,
    brier_score,
    confusion,
    iou_of,
    object_mean,
    reliability,
    score_masks,
)
from segkit.evaluation.object_scores import ObjectScores, score_objects
from segkit.evaluation.read_masks import ReadMasks, read_folders
from segkit.images import UNLABELLED, LabelMap
from segkit.images.numbering import MasksAre

TOLERANCE = 2.0
# Two classes that differ at a larger share of the pixels have probably changed places.
_OPPOSITE = 0.9


def score_image(
    truth: ArrayLike,
    prediction: ArrayLike,
    probability: ArrayLike | None,
    n_classes: int,
    *,
    tolerance: float = TOLERANCE,
) -> dict[str, Any]:
    """Score one predicted mask by every score of a report."""
    counts = confusion(truth, prediction, n_classes)
    if not counts.any():
        raise InputError("true mask has no labelled pixel: leave that image out")
    if probability is not None and np.shape(probability)[2:] != (n_classes,):
        raise InputError(
            f"probabilities of shape {np.shape(probability)} for {n_classes} classes: give (H, W, {n_classes})"
        )
    return {
        "confusion": counts.tolist(),
        "mean_iou": float(np.nanmean(iou_of(counts))),
        **{name: _plain(score(counts)) for name, score in CLASS_SCORES.items()},
        "boundary_f": _plain(boundary_f(truth, prediction, n_classes, tolerance=tolerance)),
        "brier": None if probability is None else brier_score(truth, probability),
        "reliability": None if probability is None else reliability(truth, probability),
    }


def compare_folders(
    predictions: str | Path,
    masks: str | Path,
    *,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
    masks_are: MasksAre | None = None,
    axes: str | None = None,
    images: str | Path | None = None,
    skip: Collection[str] = (),
    strict: bool = True,
) -> dict[str, Any]:
    """Score a folder of predicted masks against a folder of true ones.

    Parameters
    ----------
    predictions, masks : str or Path
        Folders of masks of the same names; either side may have a suffix such as ``_mask``, as for `segkit.images.pair`.
        Either may be outlines, ``NAME.geojson`` or ``NAME_RoiSet.zip``, or one COCO file. Predictions without a true mask
        are counted and left out.
    labels : mapping of int to str, optional
        Names of the mask values; values of one name are one class. By default those of the model that made
        the predictions, else every value is a class.
    unlabelled : int, optional
        Value of unlabelled pixels in the true masks.
    masks_are : {"instances", "classes"}, optional
        Whether mask values number objects; by default recognised, where a few values may not be either. If one side only
        does, both are read as classes, every value above 0 as foreground.
    axes : str, optional
        Names of the axes of the images: masks that name none have them without channels.
    images : str or Path, optional
        Folder of the images, for the sizes of outlines where both sides are outlines.
    skip : collection of str
        Sub-folders of `predictions` that hold no masks.
    strict : bool, default=True
        Whether a missing, damaged or misshapen mask is an error. Otherwise the others are scored, and ``failed`` says
        which are not and why.

    Returns
    -------
    dict
        JSON-able, None where a score is undefined: ``mean_iou`` and its ``interval`` over files; ``object_iou`` and
        ``object_dice``, see `segkit.evaluation.Scores`, with ``object_iou_interval`` and ``object_dice_interval``;
        ``classes`` and ``images``, the same for each; ``notes`` in words; ``failed``, why a file is not scored, by stem.
        Of masks that number objects also ``objects``: counts, and a ``value`` and ``interval`` of each of
        `segkit.evaluation.ObjectScores.values`.

    Raises
    ------
    InputError
        If both are one folder, a true mask has no prediction or several, sizes differ, a file cannot be read, or options
        contradict each other or the masks.
    """
    found = read_folders(
        predictions,
        masks,
        labels=labels,
        unlabelled=unlabelled,
        masks_are=masks_are,
        axes=axes,
        images=images,
        skip=skip,
        strict=strict,
    )
    return score_found(found)


def score_found(found: ReadMasks) -> dict[str, Any]:
    """Score masks that `read_folders` read, as `compare_folders` does."""
    scores = score_masks(found.truths, found.predictions, found.label_map.n_classes, clusters=found.files)
    objects = score_read_objects(found)
    return (
        scores_to_dict(scores, found.stems, found.label_map)
        | ({} if objects is None else {"objects": objects_to_dict(objects, found.stems)})
        | {"notes": [*found.notes, *_note_on_inversion(scores)], "failed": found.failed}
    )


def _note_on_inversion(scores: Scores) -> list[str]:
    """Note masks of two classes that are nearly the opposite of the true ones."""
    counts = scores.counts.sum(axis=0)
    differing = 1 - np.trace(counts) / max(1, counts.sum())
    if len(counts) != 2 or differing <= _OPPOSITE:
        return []
    return [f"{100 * differing:.0f} % of the pixels differ: the classes of one side are probably inverted"]


def score_read_objects(found: ReadMasks) -> ObjectScores | None:
    """Score the objects that `read_folders` found, the files as clusters; None if masks number none."""
    if found.true_objects is None or found.predicted_objects is None:
        return None
    labelled = [truth != UNLABELLED for truth in found.truths]
    return score_objects(found.true_objects, found.predicted_objects, labelled=labelled, clusters=found.files)


def objects_to_dict(scores: ObjectScores, stems: Sequence[str]) -> dict[str, Any]:
    """Return scores of objects as JSON-able numbers."""
    values, intervals = scores.values, scores.intervals
    return {
        "n_true": int(scores.n_true.sum()),
        "n_predicted": int(scores.n_predicted.sum()),
        "n_undefined": scores.n_undefined,
        "thresholds": list(scores.thresholds),
        "mean_matched_iou": _or_none(scores.mean_matched_iou),
        "scores": {
            name: {"value": _or_none(value), "interval": _listed_or_none(intervals[name])}
            for name, value in values.items()
        },
        "images": [
            {
                "stem": stem,
                "n_true": int(scores.n_true[index]),
                "n_predicted": int(scores.n_predicted[index]),
                "tp": scores.tp[index].tolist(),
                "ap_50": _or_none(scores.image_ap[index, scores.thresholds.index(0.5)]),
                "panoptic_quality": _or_none(scores.image_panoptic_quality[index]),
                "aggregated_jaccard": _or_none(scores.image_aggregated_jaccard[index]),
            }
            for index, stem in enumerate(stems)
        ],
    }


def scores_to_dict(scores: Scores, stems: Sequence[str], label_map: LabelMap) -> dict[str, Any]:
    """Return scores as JSON-able numbers; None where a class is in neither truth nor prediction."""
    return {
        "n_images": len(stems),
        "mean_iou": scores.mean,
        "interval": list(scores.interval),
        "object_iou": _or_none(scores.object_iou),
        "object_iou_interval": _listed_or_none(scores.object_iou_interval),
        "object_dice": _or_none(scores.object_dice),
        "object_dice_interval": _listed_or_none(scores.object_dice_interval),
        "classes": [
            {
                "value": value,
                "name": name,
                **{score: _or_none(values[place]) for score, values in scores.by_class.items()},
                "n_undefined": int(scores.n_undefined[place]),
            }
            for place, (value, name) in enumerate(zip(label_map.values, label_map.names, strict=True))
        ],
        "images": [
            {
                "stem": stem,
                "mean_iou": float(scores.mean_iou[index]),
                "object_iou": _or_none(float(object_mean(scores.iou[index]))),
                "object_dice": _or_none(float(object_mean(scores.dice[index]))),
                **{name: _plain(score(scores.counts[index])) for name, score in CLASS_SCORES.items()},
            }
            for index, stem in enumerate(stems)
        ],
    }


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _listed_or_none(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    return [_or_none(value) for value in values]
