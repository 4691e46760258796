"""Scores of predicted masks: counts first, then every score from the counts.

A class that is in neither truth nor prediction has no score (NaN) and is left out of an image's
mean; a class in one of them only scores 0. Unlabelled pixels count nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.errors import InputError
from segkit.images import LabelMap, list_images, read_mask

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
        raise InputError(
            f"{len(truths)} true masks and {len(predictions)} predictions: give as many of each, at least one"
        )
    counts = np.array(
        [
            confusion(truth, guess, n_classes, unlabelled)
            for truth, guess in zip(truths, predictions, strict=True)
        ]
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


def confusion(
    truth: ArrayLike, prediction: ArrayLike, n_classes: int, unlabelled: int = 255
) -> NDArray[np.intp]:
    """Pixels of each true class (rows) given each predicted class (columns).

    Raises
    ------
    InputError
        If the shapes differ or a value is not a class id.
    """
    truth, prediction = np.asarray(truth), np.asarray(prediction)
    if truth.shape != prediction.shape:
        raise InputError(
            f"true mask of shape {truth.shape}, prediction of shape {prediction.shape}: give equal shapes"
        )
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


def compare_folders(
    predictions: str | Path,
    masks: str | Path,
    *,
    unlabelled: int | None = None,
    label_map: LabelMap | None = None,
    skip: Collection[str] = (),
) -> dict[str, Any]:
    """Score a folder of predicted masks against a folder of true ones.

    Parameters
    ----------
    predictions, masks : str or Path
        Folders whose masks have equal stems. Every true mask needs a prediction; predictions
        without a true mask are counted and left out.
    unlabelled : int, optional
        Value of unlabelled pixels in the true masks.
    label_map : LabelMap, optional
        Values and names of the classes; by default every value that occurs is a class.
    skip : collection of str
        Sub-folders of `predictions` that hold other things than masks.

    Returns
    -------
    dict
        JSON-able: ``mean_iou``, its ``interval``, ``classes`` (``iou``, ``dice``, ``n_undefined``; None where
        undefined), ``images`` (the same for each), and ``notes`` in words.

    Raises
    ------
    InputError
        If a true mask has no prediction, sizes differ, or a file cannot be read.
    """
    files, n_unused = _match_predictions(Path(predictions), Path(masks), skip)
    stems, truths, guesses = _read_both(files)
    for stem, guess in zip(stems, guesses, strict=True):
        if unlabelled is not None and (guess == unlabelled).any():
            raise InputError(
                f"{stem}: prediction holds {unlabelled}, the value of unlabelled pixels: "
                f"every pixel needs a class; give the predictions, not the annotations"
            )
    if label_map is None:
        values = sorted({int(value) for mask in truths + guesses for value in np.unique(mask)})
        classes = [value for value in values if value != unlabelled]
        names = {value: str(value) for value in classes} if len(classes) > 2 else None
        label_map = LabelMap.infer(values, labels=names, unlabelled=unlabelled)
    scores = score_masks(
        [label_map.encode(mask) for mask in truths],
        [label_map.encode(mask) for mask in guesses],
        label_map.n_classes,
    )
    strange = {int(value) for mask in guesses for value in np.unique(mask)} - {
        int(value) for mask in truths for value in np.unique(mask)
    }
    notes = [f"predictions hold {', '.join(map(str, sorted(strange)))}, no true mask does"] if strange else []
    notes += [f"{n_unused} predictions have no true mask and were left out"] if n_unused else []
    if len(stems) < FEW_IMAGES:
        notes.append(f"{len(stems)} images are too few to rank methods by: give {FEW_IMAGES} or more")
    return scores_to_dict(scores, stems, label_map) | {"notes": notes}


def scores_to_dict(scores: Scores, stems: Sequence[str], label_map: LabelMap) -> dict[str, Any]:
    """Scores as JSON-able numbers; None where a class is in neither truth nor prediction."""
    return {
        "n_images": len(stems),
        "mean_iou": scores.mean,
        "interval": list(scores.interval),
        "classes": [
            {
                "value": value,
                "name": name,
                "iou": _or_none(iou),
                "dice": _or_none(dice),
                "n_undefined": int(undefined),
            }
            for value, name, iou, dice, undefined in zip(
                label_map.values,
                label_map.names,
                scores.class_iou,
                scores.class_dice,
                scores.n_undefined,
                strict=True,
            )
        ],
        "images": [
            {
                "stem": stem,
                "mean_iou": float(scores.mean_iou[index]),
                "iou": [_or_none(value) for value in scores.iou[index]],
                "dice": [_or_none(value) for value in scores.dice[index]],
            }
            for index, stem in enumerate(stems)
        ],
    }


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _match_predictions(
    predictions: Path, masks: Path, skip: Collection[str]
) -> tuple[list[tuple[str, Path, Path]], int]:
    """Stem, true file and predicted file of each true mask, and how many predictions are left over."""
    if predictions.is_file() and masks.is_file():
        return [(masks.stem, masks, predictions)], 0
    guess_of = {
        path.with_suffix("").as_posix(): predictions / path
        for path in list_images(predictions)
        if path.parts[0] not in skip
    }
    truth_of = {path.with_suffix("").as_posix(): masks / path for path in list_images(masks)}
    missing = sorted(truth_of.keys() - guess_of.keys())
    if missing:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        raise InputError(
            f"{len(missing)} of {len(truth_of)} true masks have no prediction ({', '.join(missing[:10])}{more}): "
            f"predict those images too, or leave their masks out"
        )
    files = [(stem, truth_of[stem], guess_of[stem]) for stem in sorted(truth_of)]
    return files, len(guess_of) - len(files)


def _read_both(
    files: Sequence[tuple[str, Path, Path]],
) -> tuple[list[str], list[NDArray[Any]], list[NDArray[Any]]]:
    """Every page of true and predicted masks; all that do not fit are named at once."""
    stems: list[str] = []
    truths: list[NDArray[Any]] = []
    guesses: list[NDArray[Any]] = []
    faults: list[str] = []
    for stem, truth_file, guess_file in files:
        truth, guess = read_mask(truth_file), read_mask(guess_file)
        if [page.shape for page in truth] != [page.shape for page in guess]:
            faults.append(f"{stem}: true mask {_sizes(truth)}, prediction {_sizes(guess)}")
        stems += [stem] if len(truth) == 1 else [f"{stem}#{page + 1}" for page in range(len(truth))]
        truths += truth
        guesses += guess
    if faults:
        raise InputError(
            f"sizes differ: {'; '.join(faults[:10])}; predict the images that the masks belong to"
        )
    return stems, truths, guesses


def _sizes(pages: Sequence[NDArray[Any]]) -> str:
    height, width = pages[0].shape
    return f"{height} x {width}" + (f" ({len(pages)} pages)" if len(pages) > 1 else "")
