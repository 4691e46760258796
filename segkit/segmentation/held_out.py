"""What training images tell about other images: each is held out in turn, several at once where there are many.

Pixels of one image are alike, so a penalty or a threshold is judged on images (or, of a single image, blocks)
of which nothing was seen by the classifier, nor by the scales, channels and kernels learnt before it. Two things are not
apart: a class weighs as much as it has pixels in all images, and the threshold of an image comes from decisions on the
others, some by classifiers that learnt from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from math import log10, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from segkit._common import FloatArray, Progress
from segkit._threads import in_threads
from segkit.classifier.svm import LinearSVM
from segkit.evaluation.metrics import confusion, iou_of
from segkit.images.sampling import PixelSample
from segkit.kernels import KernelMixture
from segkit.segmentation.threshold import best_threshold, image_threshold, quantile_threshold, weight_of_otsu

IntArray = NDArray[np.intp]
# The penalty of one image; that of n is smaller by sqrt(n). Images, not their pixels, are independent draws, and of n of
# these a penalty of order 1 / sqrt(n) learns at the optimal rate where nothing is known of the target but that its
# norm is finite (A. Caponnetto, E. De Vito, Found. Comput. Math. 7, 2007, theorem 1 with b = c = 1).
PENALTY_OF_ONE_IMAGE = 1e-3
# How sure it must be that another penalty does better.
CONFIDENCE = 0.95
# Relative duality gap of the classifiers that judge.
TOL = 1e-3
# Fewer values have no interval: Student's t of two says nothing.
FEWEST_FOR_INTERVAL = 3


@dataclass(frozen=True, eq=False)
class Recipe:
    """Everything that is learnt from labels, to be learnt anew where an image is held out.

    Parameters
    ----------
    selector : estimator
        Which channels to keep, with ``get_support``.
    kernels : KernelMixture
        Kernels of the standardised channels.
    svm : LinearSVM
        Its options; ``C`` is set by the penalties.
    gaussian : ndarray of shape (n_channels,), bool, or None
        Of all channels those that Gaussians may see, for kernels that ask for ``gaussian_columns``.
    """

    selector: Any
    kernels: KernelMixture
    svm: LinearSVM
    gaussian: NDArray[np.bool_] | None = None

    def decide(
        self,
        X: FloatArray,
        drawn: PixelSample,
        groups: IntArray,
        penalties: Sequence[float],
        unseen: FloatArray,
    ) -> FloatArray:
        """Decide on unseen pixels by classifiers of the drawn ones.

        Parameters
        ----------
        X : ndarray of shape (n, n_channels), float32
            All channels of the drawn pixels, as the bank gives them.
        drawn : PixelSample
            The pixels.
        groups : ndarray of shape (n,), int
            Image or block of each.
        penalties : sequence of float
            Values of lambda (eq. 7.17).
        unseen : ndarray of shape (m, n_channels), float32
            Channels of the others.

        Returns
        -------
        ndarray of shape (n_penalties, m, n_planes), float32
            Decisions at each penalty.
        """
        kept = fit_grouped(clone(self.selector), X, drawn.label, groups).get_support(indices=True)
        rows, others = X.take(kept, axis=1), unseen.take(kept, axis=1)
        scaler = StandardScaler().fit(rows, sample_weight=drawn.weight)
        rows, others = scaler.transform(rows), scaler.transform(others)
        kernels = clone(self.kernels)
        if self.gaussian is not None:
            kernels.set_params(gaussian_columns=self.gaussian[kept])
        fit_grouped(kernels, rows, drawn.label, groups)
        judges = (
            clone(self.svm)
            .set_params(tol=TOL)
            .path(
                kernels.transform(rows),
                drawn.label,
                [1 / (len(rows) * penalty) for penalty in penalties],
                drawn.weight,
            )
        )
        return np.stack([kernels.dot(others, judge.coef_) + judge.intercept_ for judge in judges])


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
    n_images : int
        Number of training images, whether they could be judged or not.
    """

    penalties: Sequence[float]
    decisions: FloatArray
    drawn: PixelSample
    fold: IntArray
    n_classes: int
    n_images: int

    @property
    def has_all_classes(self) -> bool:
        """Whether each class has pixels that were held out."""
        return np.unique(self.drawn.label).size == self.n_classes

    def choose(self, rule: str) -> Choice:
        """Choose penalty and threshold.

        Parameters
        ----------
        rule : {"quantile+otsu", "quantile", "iou", "zero"}
            How a threshold is found, see `segkit.Segmenter`.

        Returns
        -------
        Choice
            The penalty and what goes with it. A few images say little about penalties, and the best of several is
            often so by luck: of those that are not worse than the best beyond chance (by a one-sided paired t-test
            over images or blocks) the one nearest to the usual one, by their ratio, is taken.
        """
        by_block = self.n_images == 1
        region = np.unique(self.fold if by_block else self.drawn.image, return_inverse=True)[1]
        scores = np.array([self._scores(plane, region, rule) for plane in self.decisions])
        means = scores.mean(axis=1)
        good = [
            penalty for penalty, is_good in zip(self.penalties, _not_worse(scores), strict=True) if is_good
        ]
        chosen = self.penalties.index(usual_penalty(good, self.n_images))
        summary = {
            "regions": "blocks" if by_block else "images",
            "n_regions": scores.shape[1],
            "mean_iou": float(means[chosen]),
            "interval": _interval(scores[chosen]),
            "usual": float(usual_penalty(self.penalties, self.n_images)),
            "by_lambda": {
                f"{value:g}": float(mean) for value, mean in zip(self.penalties, means, strict=True)
            },
        }
        threshold = self._threshold(self.decisions[chosen], region, rule)
        own = weight_of_otsu(self.n_images) if self._takes_otsu(rule) else 0.0
        return Choice(
            float(self.penalties[chosen]), threshold, own, self.decisions[chosen], self.drawn, summary
        )

    def _scores(self, decisions: FloatArray, region: IntArray, rule: str) -> NDArray[np.float64]:
        """Mean IoU of each region, at the threshold that the others speak for."""
        n_regions = region.max() + 1
        own = weight_of_otsu(max(1, self.n_images - 1)) if self._takes_otsu(rule) else 0.0
        scores = np.empty(n_regions)
        for index in range(n_regions):
            mine = region == index
            others = ~mine if n_regions > 1 else mine
            threshold = self._threshold(decisions, region, rule, others)
            threshold = image_threshold(decisions[mine, 0], threshold, own, self.drawn.weight[mine])
            scores[index] = self._iou(decisions, threshold, mine)
        return scores

    def _takes_otsu(self, rule: str) -> bool:
        return self.n_classes == 2 and rule == "quantile+otsu"

    def _threshold(
        self,
        decisions: FloatArray,
        region: IntArray,
        rule: str,
        rows: NDArray[np.bool_] | slice = slice(None),
    ) -> float:
        if self.n_classes > 2 or rule == "zero":
            return 0.0
        rule_of = best_threshold if rule == "iou" else quantile_threshold
        return rule_of(decisions[rows, 0], self.drawn.label[rows], self.drawn.weight[rows], region[rows])

    def _iou(self, decisions: FloatArray, threshold: float, rows: NDArray[np.bool_]) -> float:
        """Mean IoU of some pixels, weighted to what they stand for."""
        planes = decisions[rows]
        guess = planes.argmax(axis=1) if self.n_classes > 2 else planes[:, 0] > threshold
        counts = confusion(
            self.drawn.label[rows], guess, self.n_classes, sample_weight=self.drawn.weight[rows]
        )
        return float(np.nanmean(iou_of(counts)))


@dataclass(frozen=True, eq=False)
class Choice:
    """What held-out pixels speak for.

    Parameters
    ----------
    penalty : float
        Lambda of eq. 7.17.
    threshold : float
        Decision above which a pixel is of the second of two classes.
    otsu_weight : float
        Share that Otsu's threshold of an image has in that of the image, see `image_threshold`.
    decisions : ndarray of shape (n, n_planes), float32
        Held-out decisions at that penalty.
    drawn : PixelSample
        Their pixels.
    summary : dict
        JSON-able: mean IoU over held-out images or blocks, its 95 % interval of Student's t (None of fewer than
        three), the mean at each penalty, and which of them is nearest to the usual one.
    """

    penalty: float
    threshold: float
    otsu_weight: float
    decisions: FloatArray
    drawn: PixelSample
    summary: dict[str, Any]


def hold_out(
    X: FloatArray,
    drawn: PixelSample,
    groups: IntArray,
    fold: IntArray,
    recipe: Recipe,
    penalties: Sequence[float],
    n_classes: int,
    progress: Progress,
) -> HeldOut:
    """Decide on the pixels of each fold by classifiers of the others.

    Parameters
    ----------
    X : ndarray of shape (n, n_channels), float32
        All channels, as the bank gives them.
    drawn : PixelSample
        The pixels.
    groups, fold : ndarray of shape (n,), int
        Image or block of each pixel, and the fold in which it is held out.
    recipe : Recipe
        What is learnt from the others.
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
    import torch  # noqa: F401 -- the kernels will; loaded before the threads, it is kept to one core in each

    n_planes = 1 if n_classes == 2 else n_classes
    decisions = np.full((len(penalties), len(X), n_planes), np.nan, dtype=np.float32)

    def decide(index: int) -> None:
        others, held_out = fold != index, fold == index
        if np.bincount(drawn.label[others], minlength=n_classes).min() >= 2:
            decisions[:, held_out] = recipe.decide(
                X[others], drawn.subset(others), groups[others], penalties, X[held_out]
            )

    folds = np.unique(fold)
    with closing(in_threads(decide, folds)) as done:
        for _ in progress(folds, "Held-out images"):
            next(done)
    judged = ~np.isnan(decisions[0, :, 0])
    n_images = np.unique(drawn.image).size
    return HeldOut(penalties, decisions[:, judged], drawn.subset(judged), fold[judged], n_classes, n_images)


def usual_penalty(penalties: Sequence[float], n_images: int) -> float:
    """Give the penalty whose ratio to what is usual for so many images is nearest to 1, the larger of two."""
    usual = PENALTY_OF_ONE_IMAGE / sqrt(n_images)
    return min(penalties, key=lambda value: (round(abs(log10(value / usual)), 9), -value))


def fit_grouped(estimator: Any, X: FloatArray, y: NDArray[Any], groups: IntArray) -> Any:
    """Fit an estimator, with groups if it takes them."""
    return estimator.fit(X, y, groups) if has_fit_parameter(estimator, "groups") else estimator.fit(X, y)


def _not_worse(scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell for each row of paired scores whether it is not worse than the best beyond chance."""
    n = scores.shape[1]
    if n < 2:
        return np.ones(len(scores), dtype=bool)
    deficits = scores[np.argmax(scores.mean(axis=1))] - scores
    errors = stats.sem(deficits, axis=1)
    return np.asarray(deficits.mean(axis=1) <= errors * stats.t.ppf(CONFIDENCE, n - 1))


def _interval(scores: NDArray[np.float64]) -> list[float] | None:
    """95 % interval of the mean, by Student's t, within 0 and 1."""
    if scores.size < FEWEST_FOR_INTERVAL:
        return None
    ends = np.mean(scores) + stats.sem(scores) * stats.t.ppf([0.025, 0.975], scores.size - 1)
    return [float(end) for end in np.clip(ends, 0, 1)]
