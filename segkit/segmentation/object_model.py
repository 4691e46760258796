"""Objects learnt by a segmenter: how those that touch are told apart, and the classifier of their parts.

Parts, from the rim to the core, are learnt like the classes, by a `PixelClassifier` on the same bank. The splitting is
chosen on training images whose classes and parts come from classifiers that did not see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import ceil, floor, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, IntArray, Progress, entries_under
from segkit._common.arrays import as_array
from segkit._common.threads import single_threaded_blas
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.errors import InputError, count
from segkit.features.base import LEAST_PARTS
from segkit.features.normalised import NormalisedBank
from segkit.images import UNLABELLED
from segkit.images.sampling import PixelSample, assign_folds, block_folds, draw_pixels, pixel_groups
from segkit.objects.annotated import AnnotatedRegions, splitter_of, splitter_of_regions
from segkit.objects.choose import Example, SplitScores, choose
from segkit.objects.hills import LabelArray, give_numbers
from segkit.objects.split import Splitter, expected_depth
from segkit.segmentation.base import as_list, is_stack_of_masks
from segkit.segmentation.dense import decide_and_read
from segkit.segmentation.held_out import N_FOLDS, PENALTY_OF_ONE_IMAGE, TOL
from segkit.segmentation.threshold import DecisionRule

# Errors of floating point in a count.
_ROUNDING = 1e-6
# Pixels of a class or part that kernels are chosen by.
LEAST_SAMPLES = 2
# Decisions on classes and on parts of objects, (H, W, n_outputs) each.
_Maps = list[FloatArray]


@dataclass(frozen=True, eq=False)
class ObjectModel:
    """How a segmenter tells objects apart."""

    splitter: Splitter
    source: str
    parts: PixelClassifier | None = None
    scores: SplitScores | None = None
    is_by_hand: bool = False

    @property
    def n_parts(self) -> int:
        """Number of parts that are told apart, the background among them; 0 if none are."""
        return 0 if self.parts is None else self.parts.svm_.intercept_.size

    def by_hand(self, splitter: Splitter) -> ObjectModel:
        """Take other settings, of which no held-out image tells anything; itself if they are the same."""
        if splitter == self.splitter:
            return self
        return replace(self, splitter=splitter, scores=None, is_by_hand=True)

    def summarise(self) -> str:
        """Summarise what is known of objects, how well they are told apart, and how far their count is off."""
        return f"Objects: {self.rule} {self._count_error}"

    @property
    def _count_error(self) -> str:
        """Error of the count on held-out images, in a sentence."""
        if self.is_by_hand:
            return "These settings were changed by hand: how far the count is off is not known."
        if self.scores is None or not self.scores.n_true:
            return (
                "How far the count is off is not known: number the objects of three images or more to learn it. If each "
                "image holds a single object, train with --set data.masks=instances."
            )
        n_true, n_found, n_counted = self.scores.n_true, self.scores.n_found, self.scores.n_predicted
        error = (n_counted - n_true) / n_true
        much = f"{abs(error):.0%} too {'many' if error > 0 else 'few'}" if error else "as many as there are"
        told = f"There it found {n_found} of {count(n_true, 'object')}, and counted {n_counted}: {much}."
        factor = self.scores.count_factor
        if factor is None:
            return told
        within = (
            f"about {1 / factor:.2g} to {factor:.2g} times what is counted"
            if factor > 1.005
            else "what is counted"
        )
        return f"{told} In four of five new images that are like those annotated, expect {within}."

    def count_interval(self, n_objects: int) -> tuple[int, int] | None:
        """Interval that holds the true count of 80 % of new images like those annotated, given what is counted there.

        None if it is not known, as with fewer than four annotated images, or groups of them, with objects, or settings
        changed by hand.
        """
        factor = None if self.scores is None else self.scores.count_factor
        if factor is None:
            return None
        low, high = ((n_objects + 1) * by - 1 for by in (1 / factor, factor))
        # rounding may not cut off the count itself
        return max(0, ceil(low - _ROUNDING)), floor(high + _ROUNDING)

    @property
    def rule(self) -> str:
        """How objects are told apart, and how well, in a sentence or two that begin small."""
        size = f"typical diameter {2 * self.splitter.radius:.3g} pixels"
        if self.is_by_hand:
            return f"{self._by_hand}."
        if self.source == "nothing":
            return "no region is annotated as a whole, so each connected region counts as one object."
        if self.source == "strokes":
            return (
                f"no region is annotated as a whole. Each connected region of at least {self._least_area} counts as one "
                "object, also where several touch."
            )
        if self.source == "regions":
            if self.splitter.landscape == "none":
                return f"none are annotated one by one. Touching objects are counted as one ({size})."
            return (
                f"none are annotated one by one, so those that touch are told apart by their shape ({size})."
            )
        if self.scores is None:
            return f"learnt from annotated ones ({size}); how well is unknown."
        scores = self.scores
        where = "images" if scores.regions == "images" else "parts of the image"
        least = self.splitter.least_probability
        left_out = f" Those less than {least:.0%} probable are left out." if least else ""
        return (
            f"learnt from {count(scores.n_objects, 'annotated object')} ({size}).{left_out} On held-out {where} the "
            f"AP at IoU 0.5 was {scores.ap_50:.2f} (AP: matched / (matched + missed + false))."
        )

    def describe(self) -> str:
        """Explain in one sentence how objects are told apart, and from what that was learnt."""
        told = self.splitter.describe()
        if self.is_by_hand:
            return f"Objects: {self._by_hand}; changed by hand."
        if self.scores is None:
            learnt = {
                "instances": "of the annotated size; nothing could be held out to choose better settings",
                "strokes": f"regions below {self._least_area} are left out, for no region is annotated as a whole",
                "regions": "from the sizes and shapes of the annotated regions, for no objects are annotated",
                "nothing": "no region is annotated as a whole, so that nothing is known of objects",
            }
            return f"Objects: {told}; {learnt[self.source]}."
        scores = self.scores
        where = "held-out images" if scores.regions == "images" else "held-out blocks of the image"
        return (
            f"Objects: {count(scores.n_objects, 'annotated object')}; {told}. On {where}: "
            f"AP at IoU 0.5 {scores.ap_50:.2f}, mean AP {scores.mean_ap:.2f}."
        )

    @classmethod
    def of_regions(cls, regions: Sequence[AnnotatedRegions]) -> ObjectModel:
        """Learn from the annotated regions of each image."""
        return cls(*splitter_of_regions(regions))

    @property
    def _by_hand(self) -> str:
        """Settings that were changed by hand."""
        splitter = self.splitter
        told = [splitter.describe()]
        if splitter.least_area:
            least, at_border = (ceil(share * splitter.least_area) for share in (1, splitter.cut_share))
            cut = f" ({at_border} at the border)" if at_border < least else ""
            told.append(f"objects below {least} pixels{cut} are left out")
        if not splitter.fills_holes:
            told.append("holes are kept")
        return ", ".join(told)

    @property
    def _least_area(self) -> str:
        return f"{ceil(self.splitter.least_area)} pixels (half the smallest one drawn)"

    def to_state(self, channels: Sequence[Any]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return header and arrays for a model file; `channels` are those of the bank."""
        header: dict[str, Any] = {
            "splitter": self.splitter.to_dict(),
            "source": self.source,
            "scores": None if self.scores is None else self.scores.to_dict(),
            "parts": None,
        }
        if self.is_by_hand:
            header["is_by_hand"] = True
        if self.parts is None:
            return header, {}
        kernels, arrays = self.parts.to_state()
        header["parts"] = {
            "kernels": kernels,
            "channels": [channels[index].name for index in self.parts.channels_],
        }
        return header, {f"parts.{name}": array for name, array in arrays.items()}

    @classmethod
    def from_state(
        cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]], channels: Sequence[Any]
    ) -> ObjectModel:
        """Restore what `to_state` described."""
        parts = None
        if header["parts"] is not None:
            position = {channel.name: index for index, channel in enumerate(channels)}
            kept = np.array([position[name] for name in header["parts"]["channels"]], dtype=np.intp)
            parts = PixelClassifier.from_state(
                kept, header["parts"]["kernels"], entries_under(arrays, "parts.")
            )
        scores = None if header["scores"] is None else SplitScores(**header["scores"])
        by_hand = header.get("is_by_hand", False)
        return cls(Splitter.from_dict(header["splitter"]), header["source"], parts, scores, by_hand)


def learn_from_regions(ids: Sequence[NDArray[np.uint8]]) -> ObjectModel:
    """Learn how to tell objects apart from the sizes and shapes of annotated regions; class ids (H, W), uint8."""
    return ObjectModel.of_regions([AnnotatedRegions.of(mask) for mask in ids])


def check_instances(instances: Any, ids: Sequence[NDArray[np.uint8]]) -> list[LabelArray]:
    """Check that there is a label image (H, W) for each mask, and an object in one of them."""
    listed = as_list(instances, what="instances", is_stack=is_stack_of_masks)
    arrays = [as_array(one, name=f"label image {index}") for index, one in enumerate(listed)]
    if len(arrays) != len(ids):
        raise InputError(
            f"{count(len(arrays), 'label image')} of objects for {count(len(ids), 'mask')}: give one for each"
        )
    for index, (array, mask) in enumerate(zip(arrays, ids, strict=True)):
        if array.shape != mask.shape or not np.issubdtype(array.dtype, np.integer) or array.min() < 0:
            raise InputError(
                f"label image {index} of shape {array.shape} and dtype {array.dtype} for a mask of {mask.shape}: give "
                f"integers of the same size, 0 for the background"
            )
    if not any(array.any() for array in arrays):
        raise InputError("no label image holds an object: number some, or leave instances out")
    return [give_numbers(array) for array in arrays]


def ids_of_objects(
    ids: Sequence[NDArray[np.uint8]], instances: Sequence[LabelArray]
) -> list[NDArray[np.uint8]]:
    """Leave pixels of a class but of no object unlabelled: to what object they belong is not known."""
    return [
        np.where((mask > 0) & (labels == 0), np.uint8(UNLABELLED), mask)
        for mask, labels in zip(ids, instances, strict=True)
    ]


def _fewest(labels: IntArray, n_labels: int) -> int:
    """Count the rarest label."""
    return int(np.bincount(labels, minlength=n_labels).min())


@dataclass(frozen=True, eq=False)
class ObjectTraining:
    """Annotated objects, and how the segmenter that they belong to sees and classifies pixels."""

    images: Sequence[FloatArray]
    ids: Sequence[NDArray[np.uint8]]
    instances: Sequence[LabelArray]
    parts: Sequence[NDArray[np.uint8]]
    bank: NormalisedBank
    classifier: PixelClassifier
    penalty: float | None
    rule: DecisionRule
    n_pixels: tuple[int, int]
    random_state: int
    groups: IntArray | None = None  # of each image: those of one are held out together

    def learn(self, progress: Progress) -> ObjectModel:
        """Choose the splitting on held-out images, and train the classifier of parts on all."""
        usual = splitter_of(self.instances)
        rng = np.random.default_rng(self.random_state)
        drawn, training = (
            draw_pixels(self.parts, self._n_parts, n_pixels, rng) for n_pixels in self.n_pixels
        )
        if self._n_parts < LEAST_PARTS or any(
            _fewest(sample.label, self._n_parts) < LEAST_SAMPLES for sample in (drawn, training)
        ):
            # such as objects so small that they are all rim
            return ObjectModel(replace(usual, landscape="distance"), "instances")
        [X] = self.bank.sample_draws(self.images, [drawn], None, progress, "Objects")
        groups = pixel_groups(drawn, self._shapes)
        splitter, scores = usual, None
        held_out = dict(self._examples(X, drawn, groups, progress))
        examples = list(held_out.values())
        # objects of a single image among several cannot be held out: the others hold none
        if any(example.truth.any() for example in examples):
            regions = "images" if len(self.images) > 1 else "blocks"
            is_smooth = self.bank.bank.is_cross_fitted  # as maps of networks are
            splitter, scores = choose(
                examples,
                usual,
                regions=regions,
                n_images=len(self.images),
                groups=None if self.groups is None else self.groups[list(held_out)],
                is_smooth=is_smooth,
            )
        if not splitter.needs_inside:
            return ObjectModel(splitter, "instances", None, scores)
        parts = copy(self.classifier).select(X, drawn.label, groups)
        [X] = self.bank.sample_draws(self.images, [training], parts.channels_, progress, "Parts of objects")
        groups = pixel_groups(training, self._shapes)
        parts.fit(X, training.label, training.weight, groups, penalty=self._usual_penalty)
        return ObjectModel(splitter, "instances", parts, scores)

    def _examples(
        self, X: FloatArray, drawn: PixelSample, groups: IntArray, progress: Progress
    ) -> Iterator[tuple[int, Example]]:
        """Segment each image, by its number, or each block of a single one, by classifiers that did not see it."""
        fold = assign_folds(drawn, self._shapes, N_FOLDS, self.groups)
        found: dict[int, _Maps] = {}
        for index in progress(np.unique(fold), "Held-out objects"):
            classifiers = self._held_out_classifiers(X, drawn, groups, fold != index)
            if not classifiers and len(self.images) == 1:  # its block has no classifiers but some that saw it
                return
            for image in np.unique(drawn.image[fold == index]) if classifiers else ():
                with single_threaded_blas():
                    bank = self.bank.bank.cross_fitted(image)
                    maps = decide_and_read(self.images[image], bank, classifiers)[0]
                found[image] = self._join(found.get(image), maps, index)
        for image, (decisions, parts) in sorted(found.items()):
            rule = self.rule.adapted_to(decisions)
            ids, probability = rule.segment(decisions), 1 - rule.probabilities(decisions)[:, :, 0]
            [known] = ids_of_objects([self.ids[image]], [self.instances[image]])
            inside, labelled = expected_depth(parts), known != UNLABELLED
            yield image, Example(self.instances[image], ids, probability, inside, labelled)

    def _held_out_classifiers(
        self, X: FloatArray, drawn: PixelSample, groups: IntArray, others: NDArray[np.bool_]
    ) -> list[PixelClassifier]:
        """Train the classifiers of classes and of the parts of objects; none, if a class or part is missing."""
        n_classes = 1 + max(int(mask[mask != UNLABELLED].max()) for mask in self.ids)
        targets = [
            (self._classes_of(drawn), n_classes, self.penalty or self._usual_penalty),
            (drawn.label, self._n_parts, self._usual_penalty),
        ]
        if any(_fewest(labels[others], n_labels) < LEAST_SAMPLES for labels, n_labels, _ in targets):
            return []
        classifiers = []
        for labels, _, penalty in targets:
            own = X[others], labels[others], groups[others]
            classifier = copy(self.classifier).select(*own)
            kept = own[0].take(classifier.channels_, axis=1)
            classifiers += classifier.path(
                kept, own[1], drawn.weight[others], own[2], penalties=[penalty], tol=TOL
            )
        return classifiers

    def _classes_of(self, drawn: PixelSample) -> IntArray:
        """Class ids of the pixels of a sample."""
        parts = [(mask, drawn.of_image(index)) for index, mask in enumerate(self.ids)]
        return np.concatenate([mask[drawn.row[part], drawn.col[part]] for mask, part in parts]).astype(
            np.intp
        )

    def _join(self, before: _Maps | None, maps: _Maps, index: int) -> _Maps:
        """Take the maps of a held-out image, or those of a held-out block of a single image."""
        if len(self.images) > 1 or before is None:
            return maps
        rows, cols = np.indices(self._shapes[0])
        own = block_folds(rows, cols, self._shapes[0])[:, :, None] == index
        return [np.where(own, new, old) for new, old in zip(maps, before, strict=True)]

    @property
    def _n_parts(self) -> int:
        """Number of parts of objects, the background among them."""
        return 1 + max(int(mask[mask != UNLABELLED].max(initial=0)) for mask in self.parts)

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        return [image.shape[:2] for image in self.images]

    @property
    def _usual_penalty(self) -> float:
        return PENALTY_OF_ONE_IMAGE / sqrt(len(self.images))
