"""Held-out judging: penalty, threshold and bank are chosen on training images that the classifier has not seen.

Pixels of one image are alike. So images (blocks, of a single image) are held out in turn of all that is learnt from labels:
channels, scales, kernels and classifier. Two quantities still use held-out images: class weights, and the threshold of an
image, which comes from held-out decisions on the others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from math import log10, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from segkit._common import FloatArray, Progress, Workers
from segkit._threads import threaded
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.platt import PlattScaling
from segkit.evaluation.metrics import confusion, dice_of, iou_of, object_mean
from segkit.evaluation.statistics import student_interval
from segkit.features import FilterBank
from segkit.features.normalised import NormalisedBank, even_grid
from segkit.images.sampling import PixelSample, assign_folds, pixel_groups, spread_pixels
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

IntArray = NDArray[np.intp]

N_FOLDS = 5
# Bytes that all channels of all pixels may take.
MEMORY_LIMIT = 2**28
# Pixels of a regular grid that an image's expected IoU is compared with the true one on; with fewer it is not.
MOST_SPREAD, FEWEST_SPREAD = 10_000, 400
# Penalty for one image; that for n images is smaller by sqrt(n). Images, not their pixels, are independent draws, and a
# penalty of order 1 / sqrt(n) learns from n of them at the optimal rate where nothing is known of the target but that its
# norm is finite (A. Caponnetto, E. De Vito, Found. Comput. Math. 7, 2007, theorem 1 with b = c = 1).
PENALTY_OF_ONE_IMAGE = 1e-3
# Confidence of the test that another penalty is better.
CONFIDENCE = 0.95
# Relative duality gap of the judging classifiers; they are compared, not kept.
TOL = 1e-3
# Fewer values have no interval: Student's t of two says nothing.
FEWEST_FOR_INTERVAL = 3


@dataclass(frozen=True, eq=False)
class Choice:
    """Settings chosen on held-out pixels."""

    penalty: float  # lambda of eq. 7.17
    rule: DecisionRule
    scores: HeldOutScores
    images: Sequence[HeldOutImage] = ()


@dataclass(frozen=True, eq=False)
class Spread:
    """Pixels of a regular grid of each image, few enough to hold all their channels."""

    sample: PixelSample
    values: (
        FloatArray  # their channels (n_spread, n_channels), or decisions (n_penalties, n_spread, n_outputs)
    )
    least: NDArray[np.float64]  # areas in pixels of the image, see `merge_small_regions`

    def merge(self, ids: IntArray, image: slice) -> IntArray:
        """Merge regions of an image that are too small into the classes around them, as far as the grid shows them."""
        rows, cols = (np.unique(getattr(self.sample, axis)[image]) for axis in ("row", "col"))
        step = max(np.diff(at).max(initial=1) for at in (rows, cols))
        return merge_small_regions(ids.reshape(rows.size, cols.size), self.least / step**2).ravel()


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

    @property
    def n_classes(self) -> int:
        """Number of classes; two share one output."""
        return max(2, int(self.decisions.shape[2]))

    @property
    def has_all_classes(self) -> bool:
        """Whether each class has held-out pixels."""
        return np.unique(self.sample.label).size == self.n_classes

    def choose(self, rule: str) -> Choice:
        """Choose penalty and threshold.

        A few images say little about penalties, and the best of several is often so by luck. So the penalty is the one
        nearest to the usual one among those that are not significantly worse than the best.
        """
        region = self._regions()
        scored = [self._score(outputs, region, rule) for outputs in self.decisions]
        scores = np.array([[entry["mean_iou"] for entry in entries] for entries in scored])
        good = [
            penalty for penalty, is_good in zip(self.penalties, _not_worse(scores), strict=True) if is_good
        ]
        chosen = self.penalties.index(usual_penalty(good, self.n_images))
        decisions, sample = self.decisions[chosen], self.sample
        learnt = replace(
            DecisionRule.by_sign(self.n_classes),
            threshold=self._threshold(decisions, region, rule),
            otsu_weight=weight_of_otsu(self.n_images) if self._uses_otsu(rule) else 0.0,
            platt=PlattScaling().fit(decisions, sample.label, sample.weight),
        )
        return Choice(
            penalty=float(self.penalties[chosen]),
            rule=learnt,
            scores=self._summarise(scores, chosen, scored[chosen]),
            images=self._compare_images(chosen, rule),
        )

    @property
    def _by_block(self) -> bool:
        return self.n_images == 1

    def _regions(self) -> IntArray:
        """Return the number of the image, or of the block, of each pixel."""
        return np.unique(self.fold if self._by_block else self.sample.image, return_inverse=True)[1]

    def _score(self, decisions: FloatArray, region: IntArray, rule: str) -> list[dict[str, Any]]:
        """Scores of each region, at the threshold of the other regions."""
        n_regions = region.max() + 1
        otsu_weight = weight_of_otsu(max(1, self.n_images - 1)) if self._uses_otsu(rule) else 0.0
        scored = []
        for index in range(n_regions):
            mine = region == index
            others = ~mine if n_regions > 1 else mine
            threshold = self._threshold(decisions, region, rule, others)
            guess = label_pixels(decisions[mine], threshold, otsu_weight, self.sample.weight[mine])
            counts = count_pixels(self.sample.subset(mine), guess, self.n_classes)
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
        """Compare expected and true IoU of each image, by threshold and probabilities of the other images."""
        # with few labels the true IoU is unknown
        if self.spread is None or self._by_block or self.sparse:
            return ()
        spread, decisions = self.spread.sample, self.spread.values[chosen]
        drawn, of_drawn = self.sample, self.decisions[chosen]
        otsu_weight = weight_of_otsu(max(1, self.n_images - 1)) if self._uses_otsu(rule) else 0.0
        images = np.unique(spread.image)
        holds = np.array([np.isin(np.arange(self.n_classes), drawn.label[drawn.of_image(k)]) for k in images])
        found = []
        for place, image in enumerate(images):
            others, mine = drawn.image != image, spread.of_image(image)
            if np.unique(drawn.label[others]).size < self.n_classes:
                continue
            threshold = self._threshold(of_drawn, drawn.image, rule, others)
            platt = PlattScaling().fit(of_drawn[others], drawn.label[others], drawn.weight[others])
            ids = self.spread.merge(label_pixels(decisions[mine], threshold, otsu_weight), mine)
            probabilities = platt.predict_proba(decisions[mine])
            presence = presence_of(np.delete(holds, place, axis=0))
            found.append(replace(compare(ids, probabilities, presence, spread.label[mine]), image=int(image)))
        return found

    def _uses_otsu(self, rule: str) -> bool:
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
        sample = self.sample
        if rule == "iou":
            return best_threshold(decisions[rows, 0], sample.label[rows], sample.weight[rows], region[rows])
        chosen = np.flatnonzero(~np.isin(sample.image, self.sparse))
        chosen = np.intersect1d(chosen, np.arange(len(region))[rows])
        if not chosen.size:
            return 0.0
        return quantile_threshold(
            decisions[chosen, 0], sample.label[chosen], sample.weight[chosen], region[chosen]
        )

    def _summarise(
        self, scores: NDArray[np.float64], chosen: int, scored: list[dict[str, Any]]
    ) -> HeldOutScores:
        means = scores.mean(axis=1)
        # None, an undefined score, becomes NaN
        iou, dice = (
            object_mean(np.array([entry[name] for entry in scored], dtype=np.float64))
            for name in ("iou", "dice")
        )
        iou, dice = iou[~np.isnan(iou)], dice[~np.isnan(dice)]
        return HeldOutScores(
            regions="blocks" if self._by_block else "images",
            n_regions=scores.shape[1],
            mean_iou=float(means[chosen]),
            interval=_interval(scores[chosen]),
            by_lambda={f"{value:g}": float(mean) for value, mean in zip(self.penalties, means, strict=True)},
            usual=float(usual_penalty(self.penalties, self.n_images)),
            scores=scored,
            object_iou=float(iou.mean()) if iou.size else None,
            object_dice=float(dice.mean()) if dice.size else None,
            object_iou_interval=_interval(iou),
            object_dice_interval=_interval(dice),
        )


@dataclass(frozen=True, eq=False)
class Candidate:
    """A fitted bank, the classifier for its channels, and the settings chosen for both."""

    bank: FilterBank
    classifier: PixelClassifier
    choice: Choice | None
    X: FloatArray | None
    seconds: dict[str, float]
    at_grid: FloatArray | None = None

    @property
    def mean_iou(self) -> float:
        """Mean IoU of held-out images or blocks; NaN without any."""
        return float("nan") if self.choice is None else self.choice.scores.mean_iou


@dataclass(frozen=True, eq=False)
class BankEvaluator:
    """Pixels and settings that are the same for every bank."""

    images: Sequence[FloatArray]
    drawn: PixelSample
    training: PixelSample
    classifier: PixelClassifier
    normalization: str
    penalties: Sequence[float]
    rule: str
    sparse: Sequence[int] = ()
    ids: Sequence[NDArray[np.uint8]] = ()
    least: NDArray[np.float64] | None = None

    def evaluate(self, bank: FilterBank, progress: Progress, workers: Workers = threaded) -> Candidate:
        """Fit a bank, select its channels, and evaluate them; workers take the folds."""
        start = time.perf_counter()
        drawn, training = self.drawn, [self.training, grid_of(self.images)]
        n_image_channels = self.images[0].shape[2]
        normalised = NormalisedBank(bank.fit(self.images), self.normalization)
        n_channels = bank.n_channels(n_image_channels)
        # one pass over the images instead of two, where all channels of all pixels fit
        at_once = 4 * n_channels * sum(draw.label.size for draw in (drawn, *training)) <= MEMORY_LIMIT
        draws = [drawn, *training] if at_once else [drawn]
        spread = self._spread(n_channels, sum(draw.label.size for draw in draws))
        X, *later = normalised.sample_draws(
            self.images, draws if spread is None else [*draws, spread], None, progress, "Filter bank"
        )
        groups = pixel_groups(drawn, self._shapes)
        classifier = copy(self.classifier).select(X, drawn.label, groups)
        classifier.allow_gaussians(bank.strides(n_image_channels) == 1)
        selected = time.perf_counter()
        choice = None
        if self.penalties:
            whole = None if spread is None or self.least is None else Spread(spread, later[-1], self.least)
            held_out = hold_out(
                X,
                drawn,
                groups,
                assign_folds(drawn, self._shapes, N_FOLDS),
                classifier,
                self.penalties,
                progress,
                sparse=self.sparse,
                spread=whole,
                workers=workers,
            )
            choice = held_out.choose(self.rule) if held_out.has_all_classes else None
        seconds = {"select": selected - start, "calibrate": time.perf_counter() - selected}
        kept = [found.take(classifier.channels_, axis=1) for found in later[:2]] if at_once else [None, None]
        return Candidate(bank, classifier, choice, kept[0], seconds, kept[1])

    def _spread(self, n_channels: int, n_drawn: int) -> PixelSample | None:
        """Spread pixels over the images, as many as memory is left for; none where no true IoU is known of them."""
        if len(self.ids) < 2 or self.sparse or not self.penalties:
            return None
        n_left = (MEMORY_LIMIT // (4 * n_channels) - n_drawn) // len(self.ids)
        return spread_pixels(self.ids, min(n_left, MOST_SPREAD)) if n_left >= FEWEST_SPREAD else None

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        return [image.shape[:2] for image in self.images]


def grid_of(images: Sequence[FloatArray]) -> PixelSample:
    """Take the coarse grid of each image, which dense prediction reads too; labels are not looked at."""
    grids = [even_grid(image.shape) for image in images]
    row, col = (np.concatenate(at) for at in zip(*grids, strict=True))
    image = np.repeat(np.arange(len(images)), [grid[0].size for grid in grids])
    return PixelSample(image, row, col, np.zeros_like(image), np.ones(image.size))


def hold_out(
    X: FloatArray,
    sample: PixelSample,
    groups: IntArray,
    fold: IntArray,
    classifier: PixelClassifier,
    penalties: Sequence[float],
    progress: Progress,
    *,
    sparse: Sequence[int] = (),
    spread: Spread | None = None,
    workers: Workers = threaded,
) -> HeldOut:
    """Decide on the pixels of each fold by classifiers trained on the other folds; none where they lack a class."""
    import torch  # noqa: F401 -- the kernels need it; loaded before the threads, it keeps to one core in each

    n_classes = sample.label.max() + 1
    n_outputs = 1 if n_classes == 2 else n_classes
    decisions, on_spread = (
        np.full((len(penalties), n_rows, n_outputs), np.nan, dtype=np.float32)
        for n_rows in (len(X), 0 if spread is None else len(spread.values))
    )
    folds = np.unique(fold)
    decide = _FoldClassifier(X, sample, groups, fold, classifier, penalties, spread)
    with closing(workers(decide, folds)) as decided_folds:
        for _ in progress(folds, "Held-out images"):
            index, found = next(decided_folds)
            if (decided := found()) is not None:
                decisions[:, fold == index] = decided.drawn
                on_spread[:, decide.spread_over(index)] = decided.on_spread
    is_decided = ~np.isnan(decisions[0, :, 0])
    n_images = np.unique(sample.image).size
    whole = None
    if spread is not None:
        known = ~np.isnan(on_spread[0, :, 0])
        whole = Spread(spread.sample.subset(known), on_spread[:, known], spread.least)
    return HeldOut(
        penalties,
        decisions[:, is_decided],
        sample.subset(is_decided),
        fold[is_decided],
        n_images,
        sparse,
        whole,
    )


class _FoldDecisions(NamedTuple):
    """Decisions on the pixels of a fold, (n_penalties, n, n_outputs): on those drawn, and on those spread evenly."""

    drawn: FloatArray
    on_spread: FloatArray


@dataclass(frozen=True, eq=False)
class _FoldClassifier:
    """Decides on a fold by classifiers trained on the others, here or in another process."""

    X: FloatArray
    sample: PixelSample
    groups: IntArray
    fold: IntArray
    classifier: PixelClassifier
    penalties: Sequence[float]
    spread: Spread | None

    def __call__(self, index: int) -> _FoldDecisions | None:
        """Decide; None if the other folds lack a class."""
        others, held_out = self.fold != index, self.fold == index
        n_classes = self.sample.label.max() + 1
        if np.bincount(self.sample.label[others], minlength=n_classes).min() < 2:
            return None
        X, sample, groups = self.X[others], self.sample.subset(others), self.groups[others]
        classifier = copy(self.classifier).select(X, sample.label, groups)
        X = X.take(classifier.channels_, axis=1)
        # a classifier for each penalty; they share channels, scales and kernels
        classifiers = classifier.path(
            X, sample.label, sample.weight, groups, penalties=self.penalties, tol=TOL
        )
        unseen = self.X[held_out].take(classifier.channels_, axis=1)
        drawn = np.stack([classifier.decision_function(unseen) for classifier in classifiers])
        if self.spread is None:
            return _FoldDecisions(drawn, np.empty((*drawn.shape[:1], 0, *drawn.shape[2:]), dtype=np.float32))
        return _FoldDecisions(
            drawn, _decide_together(classifiers, self.spread.values[self.spread_over(index)])
        )

    def spread_over(self, index: int) -> NDArray[np.bool_]:
        """Mark the evenly spread pixels that lie in the images of a fold."""
        if self.spread is None:
            return np.zeros(0, dtype=bool)
        return np.isin(self.spread.sample.image, self.sample.image[self.fold == index])


def count_pixels(sample: PixelSample, guess: IntArray, n_classes: int) -> NDArray[Any]:
    """Count pixels by class and guess, each by its weight; (n_classes, n_classes)."""
    return confusion(sample.label, guess, n_classes, sample_weight=sample.weight)


def usual_penalty(penalties: Sequence[float], n_images: int) -> float:
    """Return the penalty nearest, by ratio, to the usual one for so many images; the larger of two as near."""
    usual = PENALTY_OF_ONE_IMAGE / sqrt(n_images)
    return min(penalties, key=lambda value: (round(abs(log10(value / usual)), 9), -value))


def can_be_compared(candidates: Sequence[Candidate]) -> bool:
    """Return whether there are several candidates, and two images or more were held out."""
    choice = candidates[0].choice
    return len(candidates) > 1 and choice is not None and choice.scores.n_regions > 1


def best_index(candidates: Sequence[Candidate]) -> int:
    """Return the place of the highest mean IoU on held-out images; the first of equals, and where none can be compared."""
    if not can_be_compared(candidates):
        return 0
    # no significance test, unlike penalties: no bank is preferred a priori
    return int(np.argmax([candidate.mean_iou for candidate in candidates]))


def _decide_together(classifiers: Sequence[PixelClassifier], X: FloatArray) -> FloatArray:
    """Decide on many pixels by classifiers that share their kernels, whose features are computed once."""
    first = classifiers[0]
    Z = first.standardise(X.take(first.channels_, axis=1))
    coef = np.concatenate([classifier.svm_.coef_ for classifier in classifiers])
    found = first.kernels_.dot(Z, coef).reshape(len(Z), len(classifiers), -1).transpose(1, 0, 2)
    return np.asarray(found + np.stack([classifier.svm_.intercept_ for classifier in classifiers])[:, None])


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
