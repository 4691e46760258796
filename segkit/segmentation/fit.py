"""The training of a segmenter: `train` goes through it step by step.

Equations are those of M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
feature space.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from segkit._common import FloatArray, IntArray, LocalProgress, Progress, Workers, one_by_one
from segkit._common.arrays import digest_arrays
from segkit._common.files import file_of_part
from segkit._common.threads import threaded
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.svm import LinearSVM
from segkit.evaluation.metrics import confusion, iou_of
from segkit.features import FilterBank
from segkit.features.normalised import NormalisedBank, even_grid
from segkit.images import UNLABELLED, LabelMap
from segkit.images.sampling import (
    PixelSample,
    assign_folds,
    draw_pixels,
    number_groups,
    numbers_of,
    pixel_groups,
    sparse_images,
    spread_pixels,
)
from segkit.kernels import KernelMixture, LinearGaussianMixture
from segkit.objects.annotated import mark_parts
from segkit.objects.hills import LabelArray
from segkit.segmentation.alarms import Alarms
from segkit.segmentation.held_out import N_FOLDS, Choice, Spread, hold_out, usual_penalty
from segkit.segmentation.memory import require_memory
from segkit.segmentation.object_model import ObjectModel, ObjectTraining, ids_of_objects, learn_from_regions
from segkit.segmentation.regions import least_areas
from segkit.segmentation.summary import TrainingSummary
from segkit.segmentation.tensor_file import Arrays
from segkit.segmentation.threshold import DecisionRule, label_pixels
from segkit.selection import MMDSelector

IdArray = NDArray[np.uint8]

# Bytes that all channels of all pixels may take.
MEMORY_LIMIT = 2**28
# Pixels of a regular grid that an image's expected IoU is compared with the true one on; with fewer it is not.
MOST_SPREAD, FEWEST_SPREAD = 10_000, 400


@dataclass(frozen=True, eq=False)
class Recipe:
    """Options of a training, as `segkit.Segmenter` has them, and the classifier, which is not fitted."""

    classifier: PixelClassifier
    penalties: Sequence[float] | None  # falling; None keeps the C of the classifier
    selection_pixels: int
    training_pixels: int
    threshold: str
    smallest_region: float
    probability: str
    random_state: int

    @property
    def calibrates(self) -> bool:
        """Whether anything is learnt from held-out images."""
        return self.penalties is not None or self.probability != "raw" or self.threshold != "zero"


# Options that a recipe takes over from the segmenter as they are.
RECIPE_OPTIONS = [field.name for field in fields(Recipe)[2:]]


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training learns."""

    bank: FilterBank
    best_index: int  # place of the bank among those given
    classifier: PixelClassifier
    rule: DecisionRule
    objects: ObjectModel
    alarms: Alarms
    summary: TrainingSummary


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Annotated images: images (H, W, C), their class ids (H, W), and the pixels drawn of them."""

    images: Sequence[FloatArray]
    ids: Sequence[IdArray]
    drawn: PixelSample  # few, to select channels and to hold out
    training: PixelSample  # more, to train on
    least_areas: NDArray[np.float64]  # of a region of each class, see `regions.least_areas`
    parts: Sequence[IdArray] | None = None  # parts of annotated objects, see `mark_parts`
    groups: NDArray[np.intp] | None = None  # of each image: those of one are held out together
    checkpoint: Path | None = None  # where a bank that takes its time to learn keeps its state

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Heights and widths of the images."""
        return [image.shape[:2] for image in self.images]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A fitted bank, the classifier for its channels, and the settings chosen for both."""

    bank: FilterBank
    classifier: PixelClassifier
    choice: Choice | None
    seconds: dict[str, float]
    # kept channels of the training pixels and of the coarse grids, if memory allowed to read them at once
    read: Sequence[FloatArray] = ()
    index: int = 0  # of the bank, or of the one that it is a part of, among those given


def train(
    recipe: Recipe,
    banks: Sequence[FilterBank],
    images: Sequence[FloatArray],
    ids: Sequence[IdArray],
    label_map: LabelMap,
    instances: Sequence[LabelArray] | None,
    groups: Iterable[Hashable] | None,
    progress: Progress,
    workers: Workers | None,
    checkpoint: Path | None = None,
) -> Trained:
    """Train on images (H, W, C), class ids (H, W), and objects if any are given; see sections 4 and 7."""
    # Draw pixels, balanced over classes as far as available.
    rng = np.random.default_rng(recipe.random_state)
    drawn, training = (
        draw_pixels(ids, label_map.n_classes, n_pixels, rng)
        for n_pixels in (recipe.selection_pixels, recipe.training_pixels)
    )
    least = least_areas(ids, label_map.n_classes, recipe.smallest_region)
    parts = None if instances is None else mark_parts(instances, ids_of_objects(ids, instances))
    given = None if groups is None else numbers_of(groups, len(images))
    image_groups = number_groups(
        [_label_counts(classes=mask, parts=own) for mask, own in zip(ids, parts or ids, strict=True)], given
    )
    data = TrainingSet(images, ids, drawn, training, least, parts, image_groups, checkpoint)

    # Select channels of each bank (section 4). Hold images out to choose penalty, threshold, probabilities and bank.
    candidates = evaluate_banks(recipe, data, banks, progress, workers)
    place, by_bank = compare_banks(candidates)
    best = candidates[place]
    seconds = {
        stage: sum(candidate.seconds[stage] for candidate in candidates) for stage in ("select", "calibrate")
    }
    penalty, rule = settings_of(recipe, data, best.choice)

    # Weigh the kernels (eq. 4.7 to 4.10) and solve for the separating planes (eq. 7.17), on all training pixels.
    start = time.perf_counter()
    bank, classifier = NormalisedBank(best.bank), best.classifier
    X, at_grid = best.read or bank.sample_draws(
        images, [training, grid_of(images)], classifier.channels_, progress, "Kept channels"
    )
    classifier.fit(X, training.label, training.weight, pixel_groups(training, data.shapes), penalty=penalty)
    counts = count_guesses(classifier.decision_function(X), training, rule)
    warn_of_one_class(counts, label_map.names)
    seconds["train"] = time.perf_counter() - start

    # Learn how objects are told apart, and what predictions are checked by.
    start = time.perf_counter()
    n_pixels = recipe.selection_pixels, recipe.training_pixels
    objects = (
        learn_from_regions(ids)
        if instances is None or parts is None
        else ObjectTraining(
            images,
            ids,
            instances,
            parts,
            bank,
            classifier,
            penalty,
            rule,
            n_pixels,
            recipe.random_state,
            data.groups,
        ).learn(progress)
    )
    seconds["objects"] = time.perf_counter() - start
    compared = () if best.choice is None else best.choice.images
    features = np.split(classifier.standardise(at_grid), len(images))
    alarms = Alarms.learn(images, ids, label_map.names, compared, features, recipe.random_state, data.groups)

    summary = summarise(
        data,
        best,
        counts,
        n_banks=max(len(banks), len(candidates)),
        penalty=penalty,
        threshold=rule.threshold,
        threshold_rule=recipe.threshold,
        otsu_weight=rule.otsu_weight,
        held_out=None if best.choice is None else replace(best.choice.scores, by_bank=by_bank),
        seconds={stage: round(value, 2) for stage, value in seconds.items()},
        training_set_sha256=digest_training_set(images, ids, instances, given),
    )
    best.bank.forget()
    return Trained(best.bank, best.index, classifier, rule, objects, alarms, summary)


def _label_counts(**masks: IdArray) -> dict[tuple[str, int], int]:
    """Count the pixels of each label of an image."""
    return {
        (name, label): int(number)
        for name, mask in masks.items()
        for label, number in enumerate(np.bincount(mask.ravel())[:UNLABELLED])
    }


def make_classifier(
    selector: Any,
    kernels: KernelMixture | None,
    svm: LinearSVM | None,
    random_state: int,
    *,
    standardise: bool,
) -> PixelClassifier:
    """Make an unfitted classifier of copies of its parts, or of the usual ones, seeded unless they bring a seed."""
    given = ((selector, MMDSelector), (kernels, LinearGaussianMixture), (svm, LinearSVM))
    parts: list[Any] = [usual() if part is None else clone(part) for part, usual in given]
    for part in parts:
        if getattr(part, "random_state", 0) is None:
            part.set_params(random_state=random_state)
    return PixelClassifier(*parts, scaled=standardise)


def evaluate_banks(
    recipe: Recipe,
    data: TrainingSet,
    banks: Sequence[FilterBank],
    progress: Progress,
    workers: Workers | None,
) -> list[Candidate]:
    """Evaluate each bank on held-out images: workers take the banks, or the folds of a single one."""
    if len(data.images) == 1:
        banks = banks[:1]  # blocks of a single image do not tell banks apart
    for bank in banks:
        bank.check_training(data.images)
        require_memory(
            bank, max((image.shape for image in data.images), key=math.prod), len(data.least_areas)
        )
    penalties: Sequence[float] = ()
    if len(banks) > 1 or recipe.calibrates:
        own = 1 / (data.training.label.size * recipe.classifier.svm.C)
        penalties = [own] if recipe.penalties is None else recipe.penalties
    if len(banks) == 1:
        return [evaluate_bank(recipe, data, penalties, banks[0], progress, workers or threaded)]
    evaluate = partial(_evaluate_numbered, recipe, data, penalties, len(banks), LocalProgress(progress))
    with closing((workers or one_by_one)(evaluate, enumerate(banks))) as evaluated:
        found = {index: candidates() for (index, _), candidates in evaluated}
    return [candidate for index in sorted(found) for candidate in found[index]]


def _evaluate_numbered(
    recipe: Recipe,
    data: TrainingSet,
    penalties: Sequence[float],
    n_banks: int,
    progress: LocalProgress,
    numbered: tuple[int, FilterBank],
) -> list[Candidate]:
    """Evaluate a bank, here or in another process, under descriptions that number it.

    Where fixed filters stand beside networks that learnt from the images, the networks are evaluated alone, too: on a few
    images the filters may mislead.
    """
    index, bank = numbered
    follow = replace(progress, prefix=f"Bank {index + 1} of {n_banks}: ")
    data = replace(data, checkpoint=file_of_part(data.checkpoint, index))
    candidates = [evaluate_bank(recipe, data, penalties, bank, follow)]
    if (part := candidates[0].bank.cross_fitted_part) is not None:
        candidates.append(evaluate_bank(recipe, data, penalties, part, follow, is_fitted=True))
    return [replace(candidate, index=index) for candidate in candidates]


def evaluate_bank(
    recipe: Recipe,
    data: TrainingSet,
    penalties: Sequence[float],
    bank: FilterBank,
    progress: Progress,
    workers: Workers = threaded,
    *,
    is_fitted: bool = False,
) -> Candidate:
    """Fit a bank, select its channels, and choose one of the penalties, and the rest, on held-out images."""
    start = time.perf_counter()
    images, drawn, n_image_channels = data.images, data.drawn, data.images[0].shape[2]
    if not is_fitted:
        bank = bank.fit(
            images,
            data.ids,
            parts=data.parts,
            groups=data.groups,
            progress=progress,
            checkpoint=data.checkpoint,
        )
    normalised = NormalisedBank(bank)
    n_channels = bank.n_channels(n_image_channels)
    # one pass over the images instead of two, if all channels of all pixels fit
    draws = [drawn, data.training, grid_of(images)]
    at_once = 4 * n_channels * sum(draw.label.size for draw in draws) <= MEMORY_LIMIT
    draws = draws if at_once else [drawn]
    spread = _spread(data, n_channels, sum(draw.label.size for draw in draws)) if penalties else None
    X, *later = normalised.sample_draws(
        images, draws if spread is None else [*draws, spread], None, progress, "Filter bank"
    )
    groups = pixel_groups(drawn, data.shapes)
    classifier = copy(recipe.classifier).select(X, drawn.label, groups)
    classifier.allow_gaussians(bank.strides(n_image_channels) == 1)
    selected = time.perf_counter()
    choice = None
    if penalties:
        held_out = hold_out(
            X,
            drawn,
            groups,
            assign_folds(drawn, data.shapes, N_FOLDS, data.groups),
            classifier,
            penalties,
            progress,
            image_groups=data.groups,
            sparse=sparse_images(data.ids),
            spread=None if spread is None else Spread(spread, later[-1], data.least_areas),
            workers=workers,
        )
        choice = held_out.choose(recipe.threshold)
    seconds = {"select": selected - start, "calibrate": time.perf_counter() - selected}
    read = [found.take(classifier.channels_, axis=1) for found in later[:2]] if at_once else ()
    return Candidate(bank, classifier, choice, seconds, read)


def _spread(data: TrainingSet, n_channels: int, n_drawn: int) -> PixelSample | None:
    """Spread pixels over the images, as many as memory is left for; none where no true IoU is known of them."""
    if len(data.images) < 2 or sparse_images(data.ids):
        return None
    n_left = (MEMORY_LIMIT // (4 * n_channels) - n_drawn) // len(data.images)
    return spread_pixels(data.ids, min(n_left, MOST_SPREAD)) if n_left >= FEWEST_SPREAD else None


def grid_of(images: Sequence[FloatArray]) -> PixelSample:
    """Take the coarse grid of each image, which dense prediction reads too; labels are not looked at."""
    grids = [even_grid(image.shape) for image in images]
    row, col = (np.concatenate(at) for at in zip(*grids, strict=True))
    image = np.repeat(np.arange(len(images)), [grid[0].size for grid in grids])
    return PixelSample(image, row, col, np.zeros_like(image), np.ones(image.size))


def compare_banks(candidates: Sequence[Candidate]) -> tuple[int, list[dict[str, Any]] | None]:
    """Return the place of the highest mean IoU on held-out images, the first of equals, and the scores of all.

    Where fewer than two images were held out, it is the first, and there are no scores to compare.
    """
    scores = [one.choice.scores for one in candidates if one.choice is not None]
    if len(scores) < 2 or scores[0].n_regions < 2:
        return 0, None
    # no significance test, unlike penalties: no bank is preferred a priori
    best = int(np.argmax([score.mean_iou for score in scores]))
    return best, [
        {"bank": one.bank.label, "mean_iou": score.mean_iou, "chosen": place == best}
        for place, (one, score) in enumerate(zip(candidates, scores, strict=True))
    ]


def settings_of(
    recipe: Recipe, data: TrainingSet, choice: Choice | None
) -> tuple[float | None, DecisionRule]:
    """Return the penalty, None to keep that of the classifier, and the rule: those chosen, or the usual ones."""
    by_sign = DecisionRule.by_sign(len(data.least_areas))
    rule = by_sign if choice is None else choice.rule
    temperature = by_sign.temperature if recipe.probability == "raw" else rule.temperature
    if choice is None and recipe.calibrates:
        warnings.warn(
            "too few annotated regions to hold any out: probabilities are those of the decision itself "
            "(probability='raw'); annotate one more image for calibrated ones",
            UserWarning,
            stacklevel=5,
        )
    penalty = None
    if recipe.penalties is not None:
        n_images = np.unique(data.drawn.image).size
        penalty = usual_penalty(recipe.penalties, n_images) if choice is None else choice.penalty
    return penalty, replace(rule, temperature=temperature, least_areas=data.least_areas)


def count_guesses(decisions: FloatArray, sample: PixelSample, rule: DecisionRule) -> NDArray[np.float64]:
    """Weight of the pixels of each image by class and guess, (n_images, n_classes, n_classes)."""
    counts = []
    for image in np.unique(sample.image):
        part = sample.of_image(image)
        guess = label_pixels(decisions[part], rule.threshold, rule.otsu_weight, sample.weight[part])
        counts.append(
            confusion(sample.label[part], guess, len(rule.least_areas), sample_weight=sample.weight[part])
        )
    return np.array(counts)


def warn_of_one_class(counts: NDArray[np.float64], names: Sequence[str]) -> None:
    """Warn of a model that says the same class of all training pixels."""
    said = np.flatnonzero(counts.sum(axis=(0, 1)))
    if len(said) == 1:
        warnings.warn(
            f"the model gives {names[said[0]]} everywhere, on the training images too: it tells "
            "nothing apart; check that the masks belong to the images, and annotate more",
            UserWarning,
            stacklevel=5,
        )


def summarise(
    data: TrainingSet, best: Candidate, counts: NDArray[np.float64], **known: Any
) -> TrainingSummary:
    """Summarise the training; the rest of the fields are known."""
    n_image_channels, iou = data.images[0].shape[2], iou_of(counts)
    channels, classifier = best.bank.channels(n_image_channels), best.classifier
    groups = [channels[index].group for index in classifier.channels_]
    return TrainingSummary(
        n_images=len(data.images),
        n_training_pixels=data.training.label.size,
        peaks=[float(pick(image.max() for image in data.images)) for pick in (min, max)],
        annotated=float(np.mean(np.concatenate([mask.ravel() for mask in data.ids]) != UNLABELLED)),
        n_channels=best.bank.n_channels(n_image_channels),
        selector=type(classifier.selector_).__name__,
        kept_channels=dict(Counter(groups)),
        criterion=classifier.kernels_.criterion,
        kernels=classifier.kernels_.describe(groups),
        least_areas=data.least_areas.tolist(),
        training_iou=np.nanmean(iou, axis=0).tolist(),
        training_mean_iou=float(np.nanmean(iou, axis=1).mean()),
        **known,
    )


def digest_training_set(
    images: Sequence[FloatArray],
    ids: Sequence[IdArray],
    instances: Sequence[LabelArray] | None,
    groups: IntArray | None,
) -> str:
    """Hexadecimal sha256 of images, class ids and objects, and of the numbers of groups if images share one."""
    arrays: Arrays = {f"image{n}": image for n, image in enumerate(images)}
    arrays |= {f"mask{n}": mask for n, mask in enumerate(ids)}
    arrays |= {f"objects{n}": labels for n, labels in enumerate(instances or ())}
    if groups is not None and np.unique(groups).size < groups.size:
        arrays["groups"] = groups
    return digest_arrays(arrays)
