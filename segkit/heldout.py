"""What training images tell about other images: each is held out in turn.

Pixels of one image are alike, so a penalty or a threshold is judged on images (or, of a single image, blocks)
that the classifier did not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from segkit.base import FloatArray, Progress
from segkit.calibration import best_threshold, share_threshold
from segkit.kernels import KernelMixture
from segkit.linear import LinearSVM
from segkit.metrics import iou_of
from segkit.sampling import PixelSample
from segkit.statistics import bootstrap_interval

IntArray = NDArray[np.intp]
# Of penalties whose held-out mean IoU is this close to the best, the largest is taken.
NO_WORSE = 5e-4
# Relative duality gap of the classifiers that judge.
TOL = 1e-3


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Decisions of pixels by classifiers that saw nothing of their image or block.

    Parameters
    ----------
    penalties : sequence of float
        Values of lambda (eq. 7.17), falling.
    decisions : ndarray of shape (n_penalties, n, n_planes), float32
        Decisions at each penalty.
    drawn : PixelSample
        The pixels.
    fold : ndarray of shape (n,), int
        Fold in which each was held out.
    n_classes : int
        Number of classes.
    """

    penalties: Sequence[float]
    decisions: FloatArray
    drawn: PixelSample
    fold: IntArray
    n_classes: int

    @property
    def has_all_classes(self) -> bool:
        """Whether each class has pixels that were held out."""
        return np.unique(self.drawn.label).size == self.n_classes

    def choose(self, rule: str) -> Choice:
        """Choose penalty and threshold.

        Parameters
        ----------
        rule : {"share", "iou", "zero"}
            How a threshold is found, see `segkit.Segmenter`.

        Returns
        -------
        Choice
            The largest penalty whose mean IoU is within `NO_WORSE` of the best, and what goes with it.
        """
        by_block = np.unique(self.drawn.image).size == 1
        region = np.unique(self.fold if by_block else self.drawn.image, return_inverse=True)[1]
        thresholds = [self._threshold(plane, region, rule) for plane in self.decisions]
        scores = np.array(
            [
                self._iou(plane, threshold, region)
                for plane, threshold in zip(self.decisions, thresholds, strict=True)
            ]
        )
        means = np.nanmean(scores, axis=1)
        best = int(np.argmax(means >= means.max() - NO_WORSE))
        interval = bootstrap_interval(scores[best]) if scores.shape[1] > 1 else None
        summary = {
            "regions": "blocks" if by_block else "images",
            "n_regions": scores.shape[1],
            "mean_iou": float(means[best]),
            "interval": None if interval is None else [float(end) for end in interval],
            "by_lambda": {
                f"{value:g}": float(mean) for value, mean in zip(self.penalties, means, strict=True)
            },
        }
        return Choice(float(self.penalties[best]), thresholds[best], self.decisions[best], summary)

    def _threshold(self, decisions: FloatArray, region: IntArray, rule: str) -> float:
        if self.n_classes > 2 or rule == "zero":
            return 0.0
        label, weight = self.drawn.label, self.drawn.weight
        if rule == "iou":
            return best_threshold(decisions[:, 0], label, weight, region)
        return share_threshold(decisions[:, 0], label, weight, region)

    def _iou(self, decisions: FloatArray, threshold: float, region: IntArray) -> NDArray[np.float64]:
        """Mean IoU of the pixels of each region, weighted to what they stand for."""
        n = self.n_classes
        guess = decisions.argmax(axis=1) if n > 2 else (decisions[:, 0] > threshold).astype(np.intp)
        cells = (region * n + self.drawn.label) * n + guess
        counts = np.bincount(cells, weights=self.drawn.weight, minlength=(region.max() + 1) * n**2)
        return np.asarray(np.nanmean(iou_of(counts.reshape(-1, n, n)), axis=1))


@dataclass(frozen=True, eq=False)
class Choice:
    """What held-out pixels speak for.

    Parameters
    ----------
    penalty : float
        Lambda of eq. 7.17.
    threshold : float
        Decision above which a pixel is of the second of two classes.
    decisions : ndarray of shape (n, n_planes), float32
        Held-out decisions at that penalty.
    summary : dict
        JSON-able: mean IoU over held-out images or blocks, its bootstrap interval, the mean at each penalty.
    """

    penalty: float
    threshold: float
    decisions: FloatArray
    summary: dict[str, Any]


def hold_out(
    X: FloatArray,
    drawn: PixelSample,
    groups: IntArray,
    fold: IntArray,
    kernels: KernelMixture,
    svm: LinearSVM,
    penalties: Sequence[float],
    n_classes: int,
    progress: Progress,
) -> HeldOut:
    """Decide on the pixels of each fold by classifiers of the others.

    Parameters
    ----------
    X : ndarray of shape (n, n_channels), float32
        Standardised channels.
    drawn : PixelSample
        The pixels.
    groups, fold : ndarray of shape (n,), int
        Image or block of each pixel, and the fold in which it is held out.
    kernels : KernelMixture
        Fitted on all pixels. Weights of channels are learnt anew in each fold; those of the handful of
        bandwidths of `MixtureRFF` tell nothing of a held-out label.
    svm : LinearSVM
        Its options; ``C`` is set by the penalties.
    penalties : sequence of float
        Values of lambda (eq. 7.17).
    n_classes : int
        Number of classes.
    progress : callable
        Wraps the folds.

    Returns
    -------
    HeldOut
        Without the pixels of folds whose others lack a class.
    """
    n_planes = 1 if n_classes == 2 else n_classes
    decisions = np.full((len(penalties), len(X), n_planes), np.nan, dtype=np.float32)
    for index in progress(range(fold.max() + 1), "Held-out images"):
        others, held_out = fold != index, fold == index
        if np.bincount(drawn.label[others], minlength=n_classes).min() < 2:
            continue
        if kernels.weighs_columns:
            kernels = fit_grouped(clone(kernels), X[others], drawn.label[others], groups[others])
        judges = (
            clone(svm)
            .set_params(tol=TOL)
            .path(
                kernels.transform(X[others]),
                drawn.label[others],
                [1 / (np.count_nonzero(others) * penalty) for penalty in penalties],
                drawn.weight[others],
            )
        )
        for row, judge in zip(decisions, judges, strict=True):
            row[held_out] = kernels.dot(X[held_out], judge.coef_) + judge.intercept_
    judged = ~np.isnan(decisions[0, :, 0])
    return HeldOut(penalties, decisions[:, judged], drawn.subset(judged), fold[judged], n_classes)


def fit_grouped(estimator: Any, X: FloatArray, y: NDArray[Any], groups: IntArray) -> Any:
    """Fit an estimator, with groups if it takes them."""
    return estimator.fit(X, y, groups) if has_fit_parameter(estimator, "groups") else estimator.fit(X, y)
