"""Scores of predicted masks: counts first, then every score from the counts.

A class that is in neither truth nor prediction has no score (NaN) and is left out of an image's
mean; a class in one of them only scores 0. Unlabelled pixels count nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.errors import InputError

FloatArray = NDArray[np.float64]
FEW_IMAGES = 10


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a set of images.

    Parameters
    ----------
    iou, dice : ndarray of shape (n_images, n_classes)
        Per image and class; NaN where the class is in neither truth nor prediction.
    mean_iou : ndarray of shape (n_images,)
        Mean over the classes of each image (eq. 8.1).
    interval : tuple of float
        95 % bootstrap interval, over images, of the mean of `mean_iou`.
    """

    iou: FloatArray
    dice: FloatArray
    mean_iou: FloatArray
    interval: tuple[float, float]

    @property
    def mean(self) -> float:
        """Mean over images of their mean IoU."""
        return float(self.mean_iou.mean())

    @property
    def n_undefined(self) -> NDArray[np.intp]:
        """Images in which each class is in neither truth nor prediction, (n_classes,)."""
        return np.asarray(np.isnan(self.iou).sum(axis=0))

    @property
    def class_iou(self) -> FloatArray:
        """Mean IoU of each class over the images that contain it or predict it, (n_classes,)."""
        return _nanmean(self.iou)

    @property
    def class_dice(self) -> FloatArray:
        """Mean Dice of each class over the images that contain it or predict it, (n_classes,)."""
        return _nanmean(self.dice)


def score_masks(
    truths: Sequence[ArrayLike],
    predictions: Sequence[ArrayLike],
    n_classes: int,
    *,
    unlabelled: int = 255,
    random_state: int = 0,
) -> Scores:
    """Score predicted masks against true ones.

    Parameters
    ----------
    truths, predictions : sequence of array-like of shape (H, W), int
        Class ids 0..n_classes - 1; `unlabelled` in a truth marks pixels that count nowhere.
    n_classes : int
        Number of classes.
    unlabelled : int, default=255
        Value of unlabelled pixels.
    random_state : int, default=0
        Seed of the bootstrap.

    Returns
    -------
    Scores
        IoU and Dice per image and class, mean IoU per image, its interval over images.

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
    >>> from segkit.evaluate import score_masks
    >>> score_masks([[[0, 0, 1, 1]]], [[[0, 1, 1, 1]]], 2).iou.round(2).tolist()
    [[0.5, 0.67]]
    """
    if len(truths) != len(predictions) or not len(truths):
        raise InputError(f"{len(truths)} true masks and {len(predictions)} predictions: give as many of each, at least one")
    counts = np.array(
        [confusion(truth, guess, n_classes, unlabelled) for truth, guess in zip(truths, predictions, strict=True)]
    )
    if not counts.sum(axis=(1, 2)).all():
        empty = int(np.flatnonzero(counts.sum(axis=(1, 2)) == 0)[0])
        raise InputError(f"true mask {empty} has no labelled pixel: leave it out")
    hits = np.diagonal(counts, axis1=1, axis2=2).astype(float)
    in_truth, in_prediction = counts.sum(axis=2), counts.sum(axis=1)
    with np.errstate(invalid="ignore"):
        iou = hits / (in_truth + in_prediction - hits)
        dice = 2 * hits / (in_truth + in_prediction)
    mean_iou = np.nanmean(iou, axis=1)
    return Scores(iou, dice, mean_iou, bootstrap_interval(mean_iou, random_state=random_state))


def confusion(truth: ArrayLike, prediction: ArrayLike, n_classes: int, unlabelled: int = 255) -> NDArray[np.intp]:
    """Pixels of each true class (rows) given each predicted class (columns).

    Raises
    ------
    InputError
        If the shapes differ or a value is not a class id.
    """
    truth, prediction = np.asarray(truth), np.asarray(prediction)
    if truth.shape != prediction.shape:
        raise InputError(f"true mask of shape {truth.shape}, prediction of shape {prediction.shape}: give equal shapes")
    labelled = truth != unlabelled
    pairs = truth[labelled].astype(np.intp) * n_classes + prediction[labelled].astype(np.intp)
    for name, values in (("true", truth[labelled]), ("predicted", prediction[labelled])):
        if values.size and not 0 <= values.min() <= values.max() < n_classes:
            raise InputError(
                f"{name} mask holds values {values.min()} to {values.max()}: class ids must lie in 0..{n_classes - 1}"
            )
    return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)


def bootstrap_interval(
    values: FloatArray, *, level: float = 0.95, n_resamples: int = 10_000, random_state: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean; images, never pixels, are resampled."""
    rng = np.random.default_rng(random_state)
    means = values[rng.integers(values.size, size=(n_resamples, values.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _nanmean(values: FloatArray) -> FloatArray:
    """Mean over images; NaN for a class that no image has."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(defined, values, 0).sum(axis=0) / defined.sum(axis=0))
