"""Scores of predicted masks against true ones: counts first, and most scores from the counts.

A class in neither truth nor prediction has no score (NaN) and is left out of the image's mean. A class in
one of them only scores 0. Unlabelled pixels count nowhere. Object scores leave out class 0, the background.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import binary_erosion, distance_transform_edt

from segkit._common.arrays import as_array
from segkit.errors import InputError, count
from segkit.evaluation.statistics import bootstrap_interval
from segkit.images.labels import UNLABELLED

FloatArray = NDArray[np.float64]
# Bins of probability.
N_BINS = 10


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a set of images.

    Parameters
    ----------
    counts : ndarray of shape (n_images, n_classes, n_classes), int
        Pixels of each true class (rows) given each predicted class (columns).
    mean_iou : ndarray of shape (n_images,)
        Mean over the classes of each image (eq. 8.1).
    interval : tuple of float
        95 % bootstrap interval of `mean`, over images or clusters of images.
    object_iou_interval, object_dice_interval : tuple of float or None
        The same of `object_iou` and `object_dice`; None where these are undefined.

    Notes
    -----
    The object IoU of an image is the mean over the classes other than class 0, the background, that are in truth or
    prediction; with two classes, the IoU of the second. `object_iou` is the mean over the images that have one, and
    `object_dice` likewise. Mean IoU counts the background as a class, and is higher wherever background is easy.
    """

    counts: NDArray[np.intp]
    mean_iou: FloatArray
    interval: tuple[float, float]
    object_iou_interval: tuple[float, float] | None = None
    object_dice_interval: tuple[float, float] | None = None

    @property
    def iou(self) -> FloatArray:
        """IoU per image and class, (n_images, n_classes); NaN where the class is in neither truth nor prediction."""
        return iou_of(self.counts)

    @property
    def dice(self) -> FloatArray:
        """Dice per image and class, likewise."""
        return dice_of(self.counts)

    @property
    def mean(self) -> float:
        """Mean over images of their mean IoU."""
        return float(self.mean_iou.mean())

    @property
    def object_iou(self) -> float:
        """Mean over images of their object IoU; NaN if no image has an object, in truth or prediction."""
        return float(_nanmean(object_mean(self.iou)))

    @property
    def object_dice(self) -> float:
        """Mean over images of their object Dice; NaN if no image has an object, in truth or prediction."""
        return float(_nanmean(object_mean(self.dice)))

    @property
    def n_undefined(self) -> NDArray[np.intp]:
        """Images in which each class is in neither truth nor prediction, (n_classes,)."""
        return np.asarray(np.isnan(self.iou).sum(axis=0))

    @property
    def by_class(self) -> dict[str, FloatArray]:
        """Mean of each of `CLASS_SCORES` over the images that contain a class or predict it, (n_classes,)."""
        return {name: _nanmean(score(self.counts)) for name, score in CLASS_SCORES.items()}


def score_masks(
    truths: Sequence[ArrayLike],
    predictions: Sequence[ArrayLike],
    n_classes: int,
    *,
    clusters: ArrayLike | None = None,
) -> Scores:
    """Score predicted masks against true ones.

    Parameters
    ----------
    truths, predictions : sequence of array-like of shape (H, W), int
        Class ids 0..n_classes - 1; 255 in a truth marks unlabelled pixels, which count nowhere.
    n_classes : int
        Number of classes.
    clusters : array-like of shape (n_images,), optional
        What each image belongs to, such as a stack: its images are resampled together.

    Returns
    -------
    Scores
        IoU and Dice per image and class, mean IoU per image, intervals over images.

    Raises
    ------
    InputError
        If numbers or shapes differ, or a truth has no labelled pixel.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 8.1.

    Examples
    --------
    >>> from segkit.evaluation.metrics import score_masks
    >>> score_masks([[[0, 0, 1, 1]]], [[[0, 1, 1, 1]]], 2).iou.round(2).tolist()
    [[0.5, 0.67]]
    """
    if len(truths) != len(predictions) or not len(truths):
        raise InputError(
            f"{count(len(truths), 'true mask')} and {count(len(predictions), 'prediction')}: "
            f"give as many of each, at least one"
        )
    counts = np.array(
        [confusion(truth, guess, n_classes) for truth, guess in zip(truths, predictions, strict=True)]
    )
    empty = np.flatnonzero(counts.sum(axis=(1, 2)) == 0)
    if empty.size:
        raise InputError(f"true mask {empty[0]} has no labelled pixel: leave it out")
    iou, dice = iou_of(counts), dice_of(counts)
    mean_iou = np.nanmean(iou, axis=1)
    interval = bootstrap_interval(mean_iou, clusters)
    object_intervals = [_interval_where_defined(object_mean(scores), clusters) for scores in (iou, dice)]
    return Scores(counts, mean_iou, interval, *object_intervals)


def object_mean(scores: ArrayLike) -> FloatArray:
    """Average scores (..., n_classes) over the classes other than class 0, the background; NaN where none has one."""
    return _nanmean(np.moveaxis(np.asarray(scores, dtype=np.float64)[..., 1:], -1, 0))


def _interval_where_defined(scores: FloatArray, clusters: ArrayLike | None) -> tuple[float, float] | None:
    """Return the bootstrap interval of the mean over the images that have a score."""
    defined = ~np.isnan(scores)
    if not defined.any():
        return None
    kept = None if clusters is None else np.asarray(clusters)[defined]
    return bootstrap_interval(scores[defined], kept)


def confusion(
    truth: ArrayLike,
    prediction: ArrayLike,
    n_classes: int,
    sample_weight: ArrayLike | None = None,
) -> NDArray[Any]:
    """Count the pixels of each true class (rows) given each predicted class (columns)."""
    truth, prediction = _of_equal_shape(truth, prediction)
    labelled = truth != UNLABELLED
    pairs = truth[labelled].astype(np.intp) * n_classes + prediction[labelled].astype(np.intp)
    for name, values in (("true", truth[labelled]), ("predicted", prediction[labelled])):
        if values.size and not 0 <= values.min() <= values.max() < n_classes:
            raise InputError(
                f"{name} mask holds values {values.min()} to {values.max()}: class ids must lie in 0..{n_classes - 1}"
            )
    if sample_weight is None:
        return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)
    weight = np.asarray(sample_weight)
    if weight.shape != truth.shape:
        raise InputError(
            f"sample_weight of shape {weight.shape}: give one weight to each of {truth.shape} pixels"
        )
    return np.bincount(pairs, weight[labelled], minlength=n_classes**2).reshape(n_classes, n_classes)


def _of_equal_shape(truth: ArrayLike, prediction: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    truth, prediction = as_array(truth, name="true mask"), as_array(prediction, name="prediction")
    if truth.shape != prediction.shape:
        raise InputError(
            f"true mask of shape {truth.shape}, prediction of shape {prediction.shape}: give equal shapes"
        )
    return truth, prediction


def _nanmean(values: FloatArray) -> FloatArray:
    """Mean along the first axis of the values that are defined; NaN where none is."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(defined, values, 0).sum(axis=0) / defined.sum(axis=0))


def iou_of(counts: NDArray[Any]) -> FloatArray:
    """IoU of each class, TP / (TP + FP + FN), from `confusion` counts (..., n_classes, n_classes)."""
    hits, in_truth, in_prediction = _marginals(counts)
    return ratio(hits, in_truth + in_prediction - hits)


def dice_of(counts: NDArray[np.intp]) -> FloatArray:
    """Dice of each class, 2 TP / (2 TP + FP + FN), from `confusion` counts (..., n_classes, n_classes)."""
    hits, in_truth, in_prediction = _marginals(counts)
    return ratio(2 * hits, in_truth + in_prediction)


def precision_of(counts: NDArray[np.intp]) -> FloatArray:
    """Share of the pixels predicted as each class that are of that class; NaN where none is predicted."""
    hits, _, in_prediction = _marginals(counts)
    return ratio(hits, in_prediction)


def recall_of(counts: NDArray[np.intp]) -> FloatArray:
    """Share of the true pixels of each class that are predicted as that class; NaN where there is none."""
    hits, in_truth, _ = _marginals(counts)
    return ratio(hits, in_truth)


# Scores of each class from `confusion` counts (..., n_classes, n_classes). Each is a column of all tables of scores.
CLASS_SCORES = {"iou": iou_of, "dice": dice_of, "precision": precision_of, "recall": recall_of}


def boundary_f(
    truth: ArrayLike, prediction: ArrayLike, n_classes: int, *, tolerance: float = 2.0
) -> FloatArray:
    """Harmonic mean of the shares of either outline within `tolerance` pixels of the other (Csurka et al., 2013)."""
    truth, prediction = _of_equal_shape(truth, prediction)
    labelled = truth != UNLABELLED
    scores = np.full(n_classes, np.nan)
    for label in range(n_classes):
        true_edge = _outline((truth == label) | ~labelled) & labelled
        found_edge = _outline((prediction == label) | ~labelled) & labelled
        if true_edge.any() and found_edge.any():
            precision = np.mean(distance_transform_edt(~true_edge)[found_edge] <= tolerance)
            recall = np.mean(distance_transform_edt(~found_edge)[true_edge] <= tolerance)
            scores[label] = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        elif true_edge.any() or found_edge.any():
            scores[label] = 0.0
    return scores


def brier_score(truth: ArrayLike, probability: ArrayLike) -> float:
    """Mean squared difference of probability and outcome, over labelled pixels and classes."""
    outcome, given = _outcomes(truth, probability)
    if not given.size:
        raise InputError("true mask has no labelled pixel: leave that image out")
    return float(np.mean((given - outcome) ** 2))


def reliability(truth: ArrayLike, probability: ArrayLike) -> dict[str, list[float]]:
    """Count predictions and hits in equal bins of probability, over the classes but class 0; sums of images add up."""
    outcome, given = (values[:, 1:].ravel() for values in _outcomes(truth, probability))
    inside = np.minimum((given * N_BINS).astype(np.intp), N_BINS - 1)
    return {
        "count": np.bincount(inside, minlength=N_BINS).astype(float).tolist(),
        "probability": np.bincount(inside, given, minlength=N_BINS).tolist(),
        "hits": np.bincount(inside, outcome, minlength=N_BINS).tolist(),
    }


def _marginals(counts: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
    counts = np.asarray(counts, dtype=np.float64)
    return np.diagonal(counts, axis1=-2, axis2=-1), counts.sum(axis=-1), counts.sum(axis=-2)


def ratio(part: ArrayLike, whole: ArrayLike) -> FloatArray:
    """Quotient, NaN where anything is divided by nothing."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.asarray(np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0))


def _outline(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels of a region that touch its outside; the border of the image is no outline."""
    return np.asarray(inside & ~binary_erosion(inside, border_value=1))


def _outcomes(truth: ArrayLike, probability: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return true class (0 or 1) and predicted probability of labelled pixels, both (n, n_classes)."""
    truth, given = np.asarray(truth), np.asarray(probability, dtype=np.float64)
    if given.ndim != 3 or given.shape[:2] != truth.shape:
        raise InputError(
            f"true mask of shape {truth.shape}, probabilities of shape {given.shape}: "
            f"give one probability for each pixel and class, (H, W, n_classes)"
        )
    labelled = truth != UNLABELLED
    if labelled.any() and truth[labelled].max() >= given.shape[2]:
        raise InputError(
            f"true mask holds class {truth[labelled].max()}, probabilities are of {given.shape[2]} classes: "
            f"give those of every class"
        )
    outcome = truth[labelled][:, None] == np.arange(given.shape[2])
    return outcome.astype(np.float64), given[labelled]
