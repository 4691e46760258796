"""The model of a live session: refitted after each stroke, from where it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, IntArray, pass_on
from segkit._common.arrays import digest_arrays
from segkit._common.threads import single_threaded_blas
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.errors import InputError
from segkit.features import FeatureMaps
from segkit.features.tiles import whole
from segkit.features.views import View
from segkit.images import UNLABELLED
from segkit.images.sampling import HALF, PixelSample, assign_folds, fair_shares, number_groups, pixel_groups
from segkit.kernels import LinearGaussianMixture
from segkit.live.doubts import Doubt, cut_into_pieces, rank_doubts
from segkit.segmentation.dense import decide_in
from segkit.segmentation.fit import make_classifier
from segkit.segmentation.held_out import N_FOLDS, Spread, decide_fold, hold_out, usual_penalty
from segkit.segmentation.segmenter import ALPHAS, Segmenter
from segkit.segmentation.summary import HeldOutScores
from segkit.segmentation.threshold import DecisionRule

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
        """Decide at cells of a coarse grid, of channels less their image means; (n_channels, h, w) -> (h, w, n_outputs)."""
        view = View(whole(coarse.shape[1:]), [FeatureMaps(coarse, np.arange(len(coarse)))])
        with single_threaded_blas():
            return decide_in(view, self.classifier, np.zeros(self.classifier.channels_.size, np.float32))


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled pixels of an image in an order that does not depend on what else is labelled."""

    shape: tuple[int, int]
    digest: str
    counts: dict[int, int]  # by mask value
    first: dict[int, IntArray]  # flat indices of the pixels that are drawn first, by mask value
    has_objects: bool = False  # that somebody has checked

    @property
    def is_sparse(self) -> bool:
        """Whether less than half of the image is labelled."""
        return sum(self.counts.values()) < HALF * self.shape[0] * self.shape[1]

    @classmethod
    def of(cls, labels: NDArray[np.uint8], numbers: NDArray[np.int32] | None = None) -> Labelled:
        """Find the labelled pixels of a label image (H, W), of which some may belong to checked objects."""
        flat = labels.ravel()
        at = np.flatnonzero(flat != UNLABELLED)
        values = flat[at]
        counts = {
            int(value): int(number)
            for value, number in zip(*np.unique(values, return_counts=True), strict=True)
        }
        first = {value: _first(at[values == value]) for value in counts}
        has_objects = numbers is not None and bool(numbers.any())
        return cls(labels.shape, digest_labels(labels, numbers), counts, first, has_objects)


def digest_labels(labels: NDArray[np.uint8], numbers: NDArray[np.int32] | None = None) -> str:
    """Hash a label image (H, W), and the numbers of checked objects, if there are any."""
    arrays: dict[str, NDArray[Any]] = {"labels": labels}
    if numbers is not None and numbers.any():
        arrays["objects"] = numbers
    return digest_arrays(arrays)


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


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Drawn pixels of all images: their features (n, n_channels), and the mask values that their labels stand for."""

    keys: list[str]
    sample: PixelSample
    X: FloatArray
    values: NDArray[np.uint8]
    shapes: list[tuple[int, int]]
    sparse: list[int]  # places of images of which less than half is labelled
    image_groups: IntArray  # group of each image: those of one are held out together

    @property
    def fold(self) -> IntArray:
        """Fold of each pixel."""
        return assign_folds(self.sample, self.shapes, N_FOLDS, self.image_groups)

    @property
    def groups(self) -> IntArray:
        """Image of each pixel, or its block in a single one."""
        return pixel_groups(self.sample, self.shapes)


@dataclass(eq=False)
class Learner:
    """Learn from the labelled pixels of all images, again and again."""

    segmenter: Segmenter
    strides: NDArray[np.float64]
    read: Callable[[str, IntArray, IntArray], FloatArray]
    file_of: Callable[[str], str]
    # of each image, rising flat indices of the pixels drawn last, and their features
    _known: dict[str, tuple[IntArray, FloatArray]] = field(default_factory=dict, init=False)
    _classifier: PixelClassifier | None = field(default=None, init=False)
    _selected_for: tuple[bytes, int, int] = field(default=(b"", 0, 0), init=False)
    _evaluated: tuple[bytes, DecisionRule] | None = field(default=None, init=False)
    _drawn: _Drawn | None = field(default=None, init=False)

    def fit(self, labelled: Mapping[str, Labelled]) -> LiveModel | None:
        """Refit, from where the last fit ended; return None while fewer than two classes have labels."""
        images = {key: one for key, one in labelled.items() if one.counts}
        # an image may be another one by the time that it has labels again
        self._known = {key: known for key, known in self._known.items() if key in images}
        counts = sum((Counter(one.counts) for one in images.values()), Counter[int]())
        totals = {value: number for value, number in sorted(counts.items()) if number >= 2}
        if len(totals) < 2:
            return None
        self._drawn = drawn = self._draw(images, totals)
        with single_threaded_blas():
            self._classifier = self._refitted(drawn, sum(totals.values()))
        rule = DecisionRule.by_sign(drawn.values.size)
        if self._evaluated is not None and self._evaluated[0] == drawn.values.tobytes():
            rule = self._evaluated[1]
        return LiveModel(drawn.values, self._classifier, rule)

    def evaluate(self, model: LiveModel) -> tuple[LiveModel, HeldOutScores] | None:
        """Hold out images (blocks, of a single one) in turn, for threshold, probabilities and expected IoU."""
        drawn = self._drawn
        if drawn is None or drawn.values.tobytes() != model.values.tobytes():
            return None
        with single_threaded_blas():
            held_out = hold_out(
                drawn.X,
                drawn.sample,
                drawn.groups,
                drawn.fold,
                copy(model.classifier),
                [self._penalty(len(drawn.shapes))],
                pass_on,
                image_groups=drawn.image_groups,
                sparse=drawn.sparse,
            )
        choice = held_out.choose(self.segmenter.threshold)
        if choice is None:
            return None
        self._evaluated = model.values.tobytes(), choice.rule
        return replace(model, rule=choice.rule), choice.scores

    def find_doubts(self, model: LiveModel, labels: Mapping[str, NDArray[np.uint8]]) -> tuple[Doubt, ...]:
        """Find labels that models contradict which have not seen them; `labels` are those of the last fit, by image."""
        drawn = self._drawn
        if drawn is None or drawn.values.tobytes() != model.values.tobytes():
            raise InputError("nothing is learnt yet: draw strokes of two classes or more")
        pieces = {key: cut_into_pieces(labels[key]) for key in drawn.keys if key in labels}
        image = np.concatenate([np.full(own.rows.size, drawn.keys.index(key)) for key, own in pieces.items()])
        rows, cols = (np.concatenate([own[axis] for own in pieces.values()]) for axis in (0, 1))
        X = np.concatenate([self.read(key, own.rows, own.cols) for key, own in pieces.items()])
        sample = PixelSample(image, rows, cols, np.zeros_like(image), np.ones(image.size))
        fold = drawn.fold
        if len(drawn.shapes) == 1:
            fold_of = pixel_groups(sample, drawn.shapes)
        else:
            of_images = np.full(len(drawn.shapes), -1)
            of_images[drawn.sample.image] = fold
            fold_of = of_images[image]
        probabilities = np.full((image.size, model.values.size), np.nan)
        penalties, classifier = [self._penalty(len(drawn.shapes))], copy(model.classifier)
        for index in np.unique(fold):
            mine = fold_of == index
            asked = Spread(sample.subset(mine), X[mine], np.zeros(0))
            with single_threaded_blas():
                decided = decide_fold(
                    drawn.X, drawn.sample, drawn.groups, fold, classifier, penalties, asked, index
                )
            if decided is not None and decided[1] is not None:
                probabilities[mine] = model.rule.probabilities(decided[1][0])
        if np.isnan(probabilities).all():
            raise InputError(
                "no label can be checked yet: draw strokes of each class in two images or more, or all over a single one"
            )
        ends = np.cumsum([own.rows.size for own in pieces.values()])[:-1]
        return rank_doubts(pieces, np.split(probabilities, ends), model.values)

    def standardised_sample(self, model: LiveModel) -> tuple[FloatArray, int]:
        """Return the standardised channels of labelled pixels of the last fit, and the number of their images."""
        assert self._drawn is not None
        X = self._drawn.X
        every = slice(None, None, -(-len(X) // PIXELS_TO_COMPARE))
        Z = model.classifier.standardise(X[every].take(model.classifier.channels_, axis=1))
        return Z, int(np.unique(self._drawn.sample.image).size)

    def _refitted(self, drawn: _Drawn, n_labelled: int) -> PixelClassifier:
        """Fit anew from the last planes, or choose channels, scales and kernels anew."""
        X, sample, n_images = drawn.X, drawn.sample, len(drawn.shapes)
        penalty, former = self._penalty(n_images), self._classifier
        values, was_labelled, was_images = self._selected_for
        is_as_before = (values, was_images) == (drawn.values.tobytes(), n_images)
        if former is not None and is_as_before and was_labelled / GROWTH < n_labelled < was_labelled * GROWTH:
            kept = X.take(former.channels_, axis=1)
            return former.refit(kept, sample.label, sample.weight, penalty=penalty, tol=TOL)
        self._selected_for = drawn.values.tobytes(), n_labelled, n_images
        own = self.segmenter
        classifier = make_classifier(
            own.selector, own.kernels, own.svm, own.random_state, standardise=own.standardise
        )
        if isinstance(classifier.kernels, LinearGaussianMixture):
            classifier.kernels.set_params(n_components=min(COMPONENTS, classifier.kernels.n_components))
        classifier.select(X, sample.label, drawn.groups).allow_gaussians(self.strides == 1)
        kept = X.take(classifier.channels_, axis=1)
        [fitted] = classifier.path(
            kept, sample.label, sample.weight, drawn.groups, penalties=[penalty], tol=TOL
        )
        return fitted

    def _penalty(self, n_images: int) -> float:
        return usual_penalty(sorted(self.segmenter.alphas or ALPHAS, reverse=True), n_images)

    def _draw(self, images: Mapping[str, Labelled], totals: Mapping[int, int]) -> _Drawn:
        """Draw pixels as `segkit.images.sampling.draw_pixels` does, but the same ones again as far as they are labelled."""
        parts = []
        shares = fair_shares(list(totals.values()), PIXELS)
        for label, (value, share) in enumerate(zip(totals, shares, strict=True)):
            own = [one.first.get(value, np.empty(0, dtype=np.intp)) for one in images.values()]
            pixels, image = np.concatenate(own), np.repeat(np.arange(len(own)), list(map(len, own)))
            ranks = _rank(pixels)
            # the same place of several images has the same rank, so there may be more than the share
            mine = ranks <= (np.sort(ranks)[share - 1] if share else -1)
            n_drawn = int(mine.sum())
            weight = np.full(n_drawn, totals[value] / max(n_drawn, 1))
            parts.append((image[mine], pixels[mine], np.full(n_drawn, label), weight))
        image, pixels, label_of, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(image, kind="stable")
        image, pixels, weight = image[order], pixels[order], weight[order]
        shapes = [one.shape for one in images.values()]
        row, col = np.divmod(pixels, np.array(shapes)[image, 1])
        sample = PixelSample(image, row, col, label_of[order], weight / weight.mean())
        features = [
            self._features(key, pixels[sample.of_image(place)], one.shape[1])
            for place, (key, one) in enumerate(images.items())
        ]
        sparse = [place for place, one in enumerate(images.values()) if one.is_sparse]
        return _Drawn(
            list(images),
            sample,
            np.concatenate(features),
            np.array(list(totals), np.uint8),
            shapes,
            sparse,
            number_groups(
                [{value: one.counts.get(value, 0) for value in totals} for one in images.values()],
                map(self.file_of, images),
            ),
        )

    def _features(self, key: str, pixels: IntArray, width: int) -> FloatArray:
        """Features of pixels of an image; only those that were not drawn before are read."""
        order = np.argsort(pixels)
        wanted, X = pixels[order], np.empty((pixels.size, self.strides.size), dtype=np.float32)
        known, known_X = self._known.get(key, (wanted[:0], X[:0]))
        is_known = np.isin(wanted, known)
        X[is_known] = known_X[np.searchsorted(known, wanted[is_known])]
        if not is_known.all():
            X[~is_known] = self.read(key, *np.divmod(wanted[~is_known], width))
        self._known[key] = wanted, X
        result = np.empty_like(X)
        result[order] = X
        return result

    def forget(self, key: str) -> None:
        """Drop features of an image, whose pixels have changed."""
        self._known.pop(key, None)
