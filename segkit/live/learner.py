"""The model of a live session: refitted after each stroke, from where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, pass_on
from segkit._threads import single_threaded_blas
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.images import UNLABELLED
from segkit.images.sampling import HALF, PixelSample, assign_folds, fair_shares, pixel_groups
from segkit.kernels import LinearGaussianMixture
from segkit.segmentation.fit import make_classifier
from segkit.segmentation.held_out import N_FOLDS, hold_out, usual_penalty
from segkit.segmentation.segmenter import ALPHAS, Segmenter
from segkit.segmentation.summary import HeldOutScores
from segkit.segmentation.threshold import DecisionRule, label_pixels

IntArray = NDArray[np.intp]

# Labelled pixels that a live model learns from: a fit on them takes about a tenth of a second.
PIXELS = 3000
# Of these, those that unlabelled pixels are compared with.
PIXELS_TO_COMPARE = 2000
# Channels are chosen anew when the number of labelled pixels has changed by this factor.
GROWTH = 1.5
# Random features of the Gaussians of a live model, at most: painting takes half as long as with the usual 600.
COMPONENTS = 300
# Relative duality gap of live fits.
TOL = 1e-3
# Multipliers of the integer hash lowbias32 (C. Wellons, 2018).
_MIX = 0x7FEB352D, 0x846CA68B


@dataclass(frozen=True, eq=False)
class LiveModel:
    """A fitted model and how it is read; it is never changed, only replaced."""

    values: NDArray[np.uint8]  # (n_classes,), rising
    classifier: PixelClassifier
    rule: DecisionRule

    def decide_coarse(self, coarse: FloatArray) -> FloatArray:
        """Decide at cells of a coarse grid; (n_channels, h, w) -> (h, w, n_outputs)."""
        kept = coarse[self.classifier.channels_]
        X = np.ascontiguousarray(kept.reshape(len(kept), -1).T)
        with single_threaded_blas():
            decisions = self.classifier.decision_function(X)
        return decisions.reshape(*coarse.shape[1:], -1)

    def label(self, decisions: FloatArray, threshold: float) -> NDArray[np.uint8]:
        """Return the mask values of decisions (h, w, n_outputs), (h, w)."""
        return self.values[label_pixels(decisions, threshold)]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled pixels of an image in an order that does not depend on what else is labelled."""

    shape: tuple[int, int]
    counts: dict[int, int]  # by mask value
    first: dict[int, IntArray]  # flat indices of the pixels that are drawn first, by mask value

    @property
    def is_sparse(self) -> bool:
        """Whether less than half of the image is labelled."""
        return sum(self.counts.values()) < HALF * self.shape[0] * self.shape[1]

    @classmethod
    def of(cls, labels: NDArray[np.uint8]) -> Labelled:
        """Find the labelled pixels of a label image (H, W)."""
        flat = labels.ravel()
        at = np.flatnonzero(flat != UNLABELLED)
        values = flat[at]
        counts = {
            int(value): int(number)
            for value, number in zip(*np.unique(values, return_counts=True), strict=True)
        }
        return cls(labels.shape, counts, {value: _first(at[values == value]) for value in counts})


def _first(pixels: IntArray) -> IntArray:
    """Take the pixels of the lowest rank, by rank. The rank of a pixel is fixed, so that few change with a stroke."""
    rank = _rank(pixels)
    if pixels.size > PIXELS:
        chosen = np.argpartition(rank, PIXELS)[:PIXELS]
        pixels, rank = pixels[chosen], rank[chosen]
    return pixels[np.argsort(rank, kind="stable")]


def _rank(pixels: IntArray) -> IntArray:
    """Rank flat indices, each from 0 to 2**32 and none twice."""
    # By a mere multiplication ranks follow each other: in images of some widths pixels were drawn in vertical runs.
    bits = pixels.astype(np.uint32)
    for shift, factor in zip((16, 15), _MIX, strict=True):
        bits ^= bits >> np.uint32(shift)
        bits *= np.uint32(factor)
    bits ^= bits >> np.uint32(16)
    return bits.astype(np.intp)


Read = Callable[[str, IntArray, IntArray], FloatArray]


@dataclass(eq=False)
class _Features:
    """Features of drawn pixels of an image, by flat index."""

    pixels: IntArray
    X: FloatArray


@dataclass(eq=False)
class Learner:
    """Learn from the labelled pixels of all images, again and again."""

    segmenter: Segmenter
    strides: NDArray[np.float64]
    read: Read
    _known: dict[str, _Features] = field(default_factory=dict, init=False)
    _classifier: PixelClassifier | None = field(default=None, init=False)
    _selected_for: tuple[bytes, int, int] = field(default=(b"", 0, 0), init=False)
    _evaluated: tuple[bytes, DecisionRule] | None = field(default=None, init=False)
    _drawn: tuple[PixelSample, FloatArray, list[tuple[int, int]], NDArray[np.uint8], list[int]] | None = (
        field(default=None, init=False)
    )

    def fit(self, labelled: Mapping[str, Labelled]) -> LiveModel | None:
        """Refit, from where the last fit ended; return None while fewer than two classes have labels."""
        images = {key: one for key, one in labelled.items() if one.counts}
        # an image may be another one by the time that it has labels again
        self._known = {key: known for key, known in self._known.items() if key in images}
        totals: dict[int, int] = {}
        for one in images.values():
            for value, number in one.counts.items():
                totals[value] = totals.get(value, 0) + number
        totals = {value: number for value, number in sorted(totals.items()) if number >= 2}
        if len(totals) < 2:
            return None
        sample, X = self._draw(images, totals)
        shapes = [one.shape for one in images.values()]
        values = np.array(list(totals), dtype=np.uint8)
        sparse = [place for place, one in enumerate(images.values()) if one.is_sparse]
        self._drawn = sample, X, shapes, values, sparse
        groups = pixel_groups(sample, shapes)
        with single_threaded_blas():
            classifier = self._refitted(
                X, sample, groups, values.tobytes(), sum(totals.values()), len(images)
            )
        rule = DecisionRule.by_sign(values.size)
        if self._evaluated is not None and self._evaluated[0] == values.tobytes():
            rule = self._evaluated[1]
        return LiveModel(values, classifier, rule)

    def evaluate(self, model: LiveModel) -> tuple[LiveModel, HeldOutScores] | None:
        """Hold out images (blocks, of a single one) in turn, for threshold, probabilities and expected IoU."""
        if self._drawn is None:
            return None
        sample, X, shapes, values, sparse = self._drawn
        if values.tobytes() != model.values.tobytes():
            return None
        classifier = copy(model.classifier)
        fold = assign_folds(sample, shapes, N_FOLDS)
        with single_threaded_blas():
            held_out = hold_out(
                X,
                sample,
                pixel_groups(sample, shapes),
                fold,
                classifier,
                [self._penalty(len(shapes))],
                pass_on,
                sparse=sparse,
            )
        choice = held_out.choose(self.segmenter.threshold)
        if choice is None:
            return None
        self._evaluated = values.tobytes(), choice.rule
        return replace(model, rule=choice.rule), choice.scores

    def standardised_sample(self, model: LiveModel) -> tuple[FloatArray, int]:
        """Return the standardised channels of labelled pixels of the last fit, and the number of their images."""
        assert self._drawn is not None
        sample, X, *_ = self._drawn
        every = slice(None, None, -(-len(X) // PIXELS_TO_COMPARE))
        Z = model.classifier.standardise(X[every].take(model.classifier.channels_, axis=1))
        return Z, int(np.unique(sample.image).size)

    def _refitted(
        self,
        X: FloatArray,
        sample: PixelSample,
        groups: IntArray,
        values: bytes,
        n_labelled: int,
        n_images: int,
    ) -> PixelClassifier:
        was_values, was_labelled, was_images = self._selected_for
        is_new = (values, n_images) != (
            was_values,
            was_images,
        ) or not was_labelled / GROWTH < n_labelled < was_labelled * GROWTH
        options = {"penalty": self._penalty(n_images), "tol": TOL}
        if self._classifier is None or is_new:
            classifier = self._unfitted()
            classifier.select(X, sample.label, groups).allow_gaussians(self.strides == 1)
            kept = X.take(classifier.channels_, axis=1)
            [self._classifier] = classifier.path(
                kept, sample.label, sample.weight, groups, penalties=[options["penalty"]], tol=TOL
            )
            self._selected_for = values, n_labelled, n_images
        else:
            kept = X.take(self._classifier.channels_, axis=1)
            self._classifier = self._classifier.refit(kept, sample.label, sample.weight, **options)
        return self._classifier

    def _unfitted(self) -> PixelClassifier:
        """Make the classifier of the segmenter, with fewer random features."""
        own = self.segmenter
        classifier = make_classifier(own.selector, own.kernels, own.svm, own.random_state)
        if isinstance(classifier.kernels, LinearGaussianMixture):
            classifier.kernels.set_params(n_components=min(COMPONENTS, classifier.kernels.n_components))
        return classifier

    def _penalty(self, n_images: int) -> float:
        return usual_penalty(sorted(self.segmenter.alphas or ALPHAS, reverse=True), n_images)

    def _draw(
        self, images: Mapping[str, Labelled], totals: Mapping[int, int]
    ) -> tuple[PixelSample, FloatArray]:
        """Draw pixels as `segkit.images.sampling.draw_pixels` does, but the same ones again as far as they are labelled."""
        shares = fair_shares(list(totals.values()), PIXELS)
        parts: list[tuple[int, IntArray, int, float]] = []
        for label, (value, share) in enumerate(zip(totals, shares, strict=True)):
            own = [one.first.get(value, np.empty(0, dtype=np.intp)) for one in images.values()]
            ranks = _rank(np.concatenate(own))
            limit = np.sort(ranks, kind="stable")[share - 1] if share else -1
            drawn = [pixels[_rank(pixels) <= limit] for pixels in own]
            # the same place of several images has the same rank, so there may be more than the share
            each = totals[value] / max(sum(pixels.size for pixels in drawn), 1)
            parts += [(image, pixels, label, each) for image, pixels in enumerate(drawn)]
        rows, cols, labels, weights, numbers, features = [], [], [], [], [], []
        for image, (key, one) in enumerate(images.items()):
            mine = [part for part in parts if part[0] == image]
            pixels = np.concatenate([part[1] for part in mine])
            labels.append(np.concatenate([np.full(part[1].size, part[2]) for part in mine]))
            weights.append(np.concatenate([np.full(part[1].size, part[3]) for part in mine]))
            at = np.divmod(pixels, one.shape[1])
            rows.append(at[0])
            cols.append(at[1])
            numbers.append(np.full(pixels.size, image))
            features.append(self._features(key, pixels, one.shape))
        weight = np.concatenate(weights)
        number, row, col, label_of = (
            np.concatenate(part).astype(np.intp) for part in (numbers, rows, cols, labels)
        )
        sample = PixelSample(number, row, col, label_of, weight / weight.mean())
        return sample, np.concatenate(features)

    def _features(self, key: str, pixels: IntArray, shape: tuple[int, int]) -> FloatArray:
        """Features of pixels of an image; only those that were not drawn before are read."""
        order = np.argsort(pixels)
        wanted = pixels[order]
        known = self._known.get(key)
        X = np.empty((pixels.size, self.strides.size), dtype=np.float32)
        is_known = np.zeros(pixels.size, dtype=bool)
        if known is not None and known.pixels.size:
            at = np.searchsorted(known.pixels, wanted).clip(0, known.pixels.size - 1)
            is_known = known.pixels[at] == wanted
            X[is_known] = known.X[at[is_known]]
        if not is_known.all():
            X[~is_known] = self.read(key, *np.divmod(wanted[~is_known], shape[1]))
        self._known[key] = _Features(wanted, X)
        result = np.empty_like(X)
        result[order] = X
        return result

    def forget(self, key: str) -> None:
        """Drop features of an image, whose pixels have changed."""
        self._known.pop(key, None)
