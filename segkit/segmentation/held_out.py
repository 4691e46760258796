"""Calibration: penalty, threshold and probabilities are chosen on training images that the classifier has not seen.

Pixels of one image are alike. So images (blocks, of a single image) are held out in turn of all that is learnt from labels:
channels, scales, kernels and classifier. Two quantities still use held-out images: class weights, and the threshold of an
image, which comes from held-out decisions on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import log10, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from segkit._common import FloatArray, IntArray, Progress, Workers
from segkit._common.threads import threaded
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.temperature import fit_temperature
from segkit.evaluation.metrics import confusion, dice_of, iou_of, object_mean
from segkit.evaluation.statistics import student_interval
from segkit.images.sampling import PixelSample
from segkit.segmentation.alarms import HeldOutImage, compare, presence_of
from segkit.segmentation.regions import merge_small_regions
from segkit.segmentation.summary import HeldOutScores
from segkit.segmentation.threshold import (
    DecisionRule,
    best_threshold,
    label_pixels,
    quantile_threshold,
    weight_of_otsu,
)

N_FOLDS = 5
# Penalty for one image; that for n images is smaller by sqrt(n). Images, not their pixels, are independent draws, and a
# penalty of order 1 / sqrt(n) learns from n of them at the optimal rate where nothing is known of the target but that its
# norm is finite (A. Caponnetto, E. De Vito, Found. Comput. Math. 7, 2007, theorem 1 with b = c = 1).
PENALTY_OF_ONE_IMAGE = 1e-3
# Confidence of the test that another penalty is better.
CONFIDENCE = 0.95
# Relative duality gap of the classifiers that are held out; they are compared, not kept.
TOL = 1e-3
# Fewer values have no interval: Student's t of two says nothing.
FEWEST_FOR_INTERVAL = 3


@dataclass(frozen=True, eq=False)
class Spread:
    """Pixels of a regular grid of each image, few enough to hold all their channels."""

    sample: PixelSample
    # channels (n_spread, n_channels), or decisions (n_penalties, n_spread, n_outputs)
    values: FloatArray
    least: NDArray[np.float64]  # areas in pixels of the image, see `merge_small_regions`

    def merge(self, ids: IntArray, image: slice) -> IntArray:
        """Merge regions of an image that are too small into the classes around them, as far as the grid shows them."""
        rows, cols = (np.unique(getattr(self.sample, axis)[image]) for axis in ("row", "col"))
        step = max(np.diff(at).max(initial=1) for at in (rows, cols))
        return merge_small_regions(ids.reshape(rows.size, cols.size), self.least / step**2).ravel()


def hold_out(
    X: FloatArray,
    sample: PixelSample,
    groups: IntArray,
    fold: IntArray,
    classifier: PixelClassifier,
    penalties: Sequence[float],
    progress: Progress,
    *,
    image_groups: IntArray | None = None,
    sparse: Sequence[int] = (),
    spread: Spread | None = None,
    workers: Workers = threaded,
) -> HeldOut:
    """Decide on the pixels of each fold by classifiers trained on the other folds; none where they lack a class.

    `image_groups` numbers the group of each image; each is one of its own without it.
    """
    import torch  # noqa: F401 -- the kernels need it; loaded before the threads, it keeps to one core in each

    n_classes = sample.label.max() + 1
    n_outputs = 1 if n_classes == 2 else n_classes
    decisions, on_spread = (
        np.full((len(penalties), n_rows, n_outputs), np.nan, dtype=np.float32)
        for n_rows in (len(X), 0 if spread is None else len(spread.values))
    )
    folds = np.unique(fold)
    decide = partial(decide_fold, X, sample, groups, fold, classifier, penalties, spread)
    with closing(workers(decide, folds)) as decided_folds:
        for _ in progress(folds, "Held-out images"):
            index, found = next(decided_folds)
            if (decided := found()) is not None:
                held_out = fold == index
                decisions[:, held_out] = decided[0]
                if spread is not None:
                    on_spread[:, np.isin(spread.sample.image, sample.image[held_out])] = decided[1]
    is_decided = ~np.isnan(decisions[0, :, 0])
    if spread is not None:
        known = ~np.isnan(on_spread[0, :, 0])
        spread = Spread(spread.sample.subset(known), on_spread[:, known], spread.least)
    return HeldOut(
        penalties,
        decisions[:, is_decided],
        sample.subset(is_decided),
        fold[is_decided],
        np.unique(sample.image).size,
        sparse,
        spread,
        image_groups,
    )


def decide_fold(
    X: FloatArray,
    sample: PixelSample,
    groups: IntArray,
    fold: IntArray,
    classifier: PixelClassifier,
    penalties: Sequence[float],
    spread: Spread | None,
    index: int,
) -> tuple[FloatArray, FloatArray | None] | None:
    """Decide on a fold by classifiers trained on the others, for each penalty; None if these lack a class.

    Decisions (n_penalties, n, n_outputs) are on the pixels drawn, and on those that are spread evenly.
    """
    others, held_out = fold != index, fold == index
    if np.bincount(sample.label[others], minlength=sample.label.max() + 1).min() < 2:
        return None
    learnt = X[others], sample.label[others], groups[others]
    classifier = copy(classifier).select(*learnt)
    kept = learnt[0].take(classifier.channels_, axis=1)
    # a classifier for each penalty; they share channels, scales and kernels
    fitted = classifier.path(kept, learnt[1], sample.weight[others], learnt[2], penalties=penalties, tol=TOL)
    unseen = X[held_out].take(classifier.channels_, axis=1)
    decisions = np.stack([one.decision_function(unseen) for one in fitted])
    if spread is None:
        return decisions, None
    return decisions, _decide_together(
        fitted, spread.values[np.isin(spread.sample.image, sample.image[held_out])]
    )


def _decide_together(classifiers: Sequence[PixelClassifier], X: FloatArray) -> FloatArray:
    """Decide on many pixels by classifiers that share their kernels, whose features are computed once."""
    first = classifiers[0]
    Z = first.standardise(X.take(first.channels_, axis=1))
    coef = np.concatenate([classifier.svm_.coef_ for classifier in classifiers])
    found = first.kernels_.dot(Z, coef).reshape(len(Z), len(classifiers), -1).transpose(1, 0, 2)
    return np.asarray(found + np.stack([classifier.svm_.intercept_ for classifier in classifiers])[:, None])


@dataclass(frozen=True, eq=False)
class Choice:
    """Settings chosen on held-out pixels."""

    penalty: float  # lambda of eq. 7.17
    rule: DecisionRule
    scores: HeldOutScores
    images: Sequence[HeldOutImage] = ()


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Decisions on pixels by classifiers that saw nothing of their image or block."""

    penalties: Sequence[float]
    decisions: FloatArray  # (n_penalties, n_pixels, n_outputs)
    sample: PixelSample
    fold: IntArray
    n_images: int  # those that could not be decided included
    # images with few labels: the fraction of their labelled pixels that is foreground says nothing of the image
    sparse: Sequence[int] = ()
    spread: Spread | None = None
    groups: IntArray | None = None  # of each image

    def choose(self, rule: str) -> Choice | None:
        """Choose penalty, threshold and probabilities; None if a class has no held-out pixels.

        A few images say little about penalties, and the best of several is often so by luck. So the penalty is the one
        nearest to the usual one among those that are not significantly worse than the best.
        """
        if np.unique(self.sample.label).size < self.n_classes:
            return None
        scored = [self._score(decisions, rule) for decisions in self.decisions]
        scores = np.array([[entry["mean_iou"] for entry in entries] for entries in scored])
        good = [
            penalty
            for penalty, is_good in zip(self.penalties, _not_worse(self._by_group(scores)), strict=True)
            if is_good
        ]
        chosen = self.penalties.index(usual_penalty(good, self.n_images))
        return Choice(
            penalty=float(self.penalties[chosen]),
            rule=self._learn_rule(chosen, rule, slice(None), self.n_images),
            scores=self._summarise(scores, chosen, scored[chosen]),
            images=self._compare_images(chosen, rule),
        )

    @property
    def n_classes(self) -> int:
        """Number of classes; two share one output."""
        return max(2, int(self.decisions.shape[2]))

    @property
    def _by_block(self) -> bool:
        return self.n_images == 1

    @cached_property
    def _region(self) -> IntArray:
        """Number of the image, or of the block, of each pixel."""
        return np.unique(self.fold if self._by_block else self.sample.image, return_inverse=True)[1]

    @cached_property
    def _group(self) -> IntArray:
        """Number of the group of each region."""
        if self.groups is None or self._by_block:
            return np.arange(self._region.max() + 1)
        return self.groups[np.unique(self.sample.image)]

    def _by_group(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Average scores (..., n_regions) over each group, whose images are too alike to count one by one."""
        is_in = (self._group[:, np.newaxis] == np.unique(self._group)).astype(np.float64)
        known = ~np.isnan(scores)
        with np.errstate(invalid="ignore"):  # groups without a score have none
            return np.asarray(np.where(known, scores, 0) @ is_in / (known @ is_in))

    def _score(self, decisions: FloatArray, rule: str) -> list[dict[str, Any]]:
        """Scores of each region, at the threshold of those of other groups."""
        scored = []
        for index, group in enumerate(self._group):
            mine, others = self._region == index, self._group[self._region] != group
            threshold = self._threshold(decisions, rule, others if others.any() else mine)
            otsu_weight = self._otsu_weight(rule, self.n_images - int((self._group == group).sum()))
            label, weight = self.sample.label[mine], self.sample.weight[mine]
            guess = label_pixels(decisions[mine], threshold, otsu_weight, weight)
            counts = confusion(label, guess, self.n_classes, sample_weight=weight)
            iou = iou_of(counts)
            scored.append(
                {
                    "image": None if self._by_block else int(self.sample.image[mine][0]),
                    "mean_iou": float(np.nanmean(iou)),
                    "iou": _or_none(iou),
                    "dice": _or_none(dice_of(counts)),
                }
            )
        return scored

    def _compare_images(self, chosen: int, rule: str) -> Sequence[HeldOutImage]:
        """Compare expected and true IoU of each image, by threshold and probabilities of images of other groups."""
        # with few labels the true IoU is unknown
        if self.spread is None or self._by_block or self.sparse:
            return ()
        spread, drawn, decisions = self.spread.sample, self.sample, self.spread.values[chosen]
        images = np.unique(spread.image)
        holds = np.array([np.isin(np.arange(self.n_classes), drawn.label[drawn.of_image(k)]) for k in images])
        group = np.arange(drawn.image.max() + 1) if self.groups is None else self.groups
        found = []
        for image in images:
            others, mine = group[drawn.image] != group[image], spread.of_image(image)
            if np.unique(drawn.label[others]).size < self.n_classes:
                continue
            learnt = self._learn_rule(chosen, rule, others, self.n_images - (group == group[image]).sum())
            ids = self.spread.merge(learnt.segment(decisions[mine]), mine)
            presence = presence_of(holds[group[images] != group[image]])
            probabilities = learnt.probabilities(decisions[mine])
            found.append(compare(ids, probabilities, presence, spread.label[mine], int(image)))
        return found

    def _learn_rule(
        self, chosen: int, rule: str, rows: NDArray[np.bool_] | slice, n_images: int
    ) -> DecisionRule:
        """Learn threshold and probabilities from some pixels, which are of so many images."""
        decisions, weight = self.decisions[chosen], self.sample.weight
        learnt = replace(
            DecisionRule.by_sign(self.n_classes),
            threshold=self._threshold(decisions, rule, rows),
            otsu_weight=self._otsu_weight(rule, n_images),
        )
        scores = np.zeros((len(decisions), self.n_classes), dtype=np.float32)
        for mine in (self._region == index for index in np.unique(self._region[rows])):
            scores[mine] = learnt.adapted_to(decisions[mine], weight[mine, None]).scores(decisions[mine])
        return replace(
            learnt, temperature=fit_temperature(scores[rows], self.sample.label[rows], weight[rows])
        )

    def _otsu_weight(self, rule: str, n_images: int) -> float:
        is_used = self.n_classes == 2 and rule == "quantile+otsu"
        return weight_of_otsu(max(1, n_images)) if is_used else 0.0

    def _threshold(self, decisions: FloatArray, rule: str, rows: NDArray[np.bool_] | slice) -> float:
        """Find the threshold of some pixels by the rule."""
        if self.n_classes > 2 or rule == "zero":
            return 0.0
        pixels, sample = np.arange(len(decisions))[rows], self.sample
        find = best_threshold
        if rule != "iou":
            find, pixels = quantile_threshold, pixels[~np.isin(sample.image[pixels], self.sparse)]
        if not pixels.size:
            return 0.0
        return find(decisions[pixels, 0], sample.label[pixels], sample.weight[pixels], self._region[pixels])

    def _summarise(
        self, scores: NDArray[np.float64], chosen: int, scored: list[dict[str, Any]]
    ) -> HeldOutScores:
        n_images, scores = scores.shape[1], self._by_group(scores)
        means = scores.mean(axis=1)
        # None, an undefined score, becomes NaN
        iou, dice = (
            self._by_group(object_mean(np.array([entry[name] for entry in scored], dtype=np.float64)))
            for name in ("iou", "dice")
        )
        iou, dice = iou[~np.isnan(iou)], dice[~np.isnan(dice)]
        return HeldOutScores(
            regions="blocks" if self._by_block else "images",
            n_regions=n_images,
            n_groups=scores.shape[1] if scores.shape[1] < n_images else None,
            mean_iou=float(means[chosen]),
            interval=_interval(scores[chosen]),
            by_alpha={f"{value:g}": float(mean) for value, mean in zip(self.penalties, means, strict=True)},
            usual=float(usual_penalty(self.penalties, self.n_images)),
            scores=scored,
            object_iou=float(iou.mean()) if iou.size else None,
            object_dice=float(dice.mean()) if dice.size else None,
            object_iou_interval=_interval(iou),
            object_dice_interval=_interval(dice),
        )


def usual_penalty(penalties: Sequence[float], n_images: int) -> float:
    """Return the penalty nearest, by ratio, to the usual one for so many images; the larger of two as near."""
    usual = PENALTY_OF_ONE_IMAGE / sqrt(n_images)
    return min(penalties, key=lambda value: (round(abs(log10(value / usual)), 9), -value))


def _not_worse(scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Test which rows of paired scores are not significantly worse than the best."""
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
    return [float(end) for end in np.clip(student_interval(scores), 0, 1)]


def _or_none(values: NDArray[np.float64]) -> list[float | None]:
    """Return numbers that JSON can hold; undefined ones are None."""
    return [None if np.isnan(value) else float(value) for value in values]
