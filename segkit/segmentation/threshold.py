"""From decisions to labels and probabilities, by the threshold above which a pixel is of the second of two classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from skimage.filters import threshold_otsu

from segkit._common import FloatArray
from segkit.segmentation.regions import merge_small_regions

Floats = NDArray[np.float64]

# Rules for the decision above which a pixel is of the second class, see `segkit.Segmenter`.
THRESHOLDS = ("quantile+otsu", "quantile", "iou", "zero")
# Number of training images at which the trained and Otsu's threshold weigh equally.
IMAGES_TO_EQUAL_OTSU = 2
# Decisions that differ by less, in units of the margin, count as equal.
SAME = 1e-4


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """How the decisions of a classifier become class ids and probabilities.

    Decisions are (..., n_outputs), with a single output for two classes. Before small regions are merged, the class of a
    pixel is that of its largest probability.

    Parameters
    ----------
    threshold : float
        Decision above which a pixel is of the second of two classes, before an image moves it.
    otsu_weight : float
        Weight of Otsu's threshold of the image's own decisions, 0 to 1.
    temperature : float
        The probabilities are softmax(scores / temperature), see `fit_temperature`.
    least_areas : ndarray of shape (n_classes, 2), float64
        Area in pixels below which a region of each class is too small, whole and cut by the border of an image.
    """

    threshold: float
    otsu_weight: float
    temperature: float
    least_areas: NDArray[np.float64]

    @classmethod
    def by_sign(cls, n_classes: int) -> Self:
        """Make the rule that nothing is learnt for: the sign of the decision, or the largest (eqs. 7.18 and 8.2)."""
        return cls(0.0, 0.0, 1.0, np.zeros((n_classes, 2)))

    def adapted_to(self, decisions: FloatArray, weight: NDArray[Any] | None = None) -> Self:
        """Return the rule with the threshold of the image of these decisions; see `image_threshold`."""
        return self.adapted_to_parts(lambda: [decisions], None if weight is None else [weight])

    def adapted_to_parts(
        self, parts: Callable[[], Iterable[FloatArray]], weights: Sequence[NDArray[Any]] | None = None
    ) -> Self:
        """Return the rule with the threshold of one image, whose decisions come in parts."""
        own = image_threshold(parts, self.threshold, self.otsu_weight, weights)
        return replace(self, threshold=own, otsu_weight=0.0)

    def segment(self, decisions: FloatArray) -> NDArray[np.intp]:
        """Class ids of a whole image (h, w), too small regions merged into the classes around them."""
        ids = label_pixels(decisions, self.threshold, self.otsu_weight)
        return merge_small_regions(ids, self.least_areas) if self.least_areas.any() else ids

    def scores(self, decisions: FloatArray) -> FloatArray:
        """Scores of the classes in a whole image, (..., n_classes): of two, 0 and how far the threshold is exceeded."""
        if decisions.shape[-1] > 1:
            return decisions.astype(np.float32)
        above = decisions - np.float32(self.adapted_to(decisions).threshold)
        return np.concatenate([np.zeros_like(above), above], axis=-1)

    def probabilities(self, decisions: FloatArray) -> FloatArray:
        """Probabilities of the classes in a whole image, (..., n_classes), float32."""
        scores = self.scores(decisions)
        scores /= np.float32(self.temperature)
        if scores.shape[-1] > 2:
            return np.asarray(softmax(scores, axis=-1), dtype=np.float32)
        scores[..., 0] = -scores[..., 1]
        return np.asarray(expit(scores, out=scores))


def best_threshold(
    decision: NDArray[Any], label: NDArray[Any], weight: NDArray[Any], image: NDArray[Any]
) -> float:
    """Find the threshold with the highest mean IoU over classes and images (eq. 8.1)."""
    candidates = np.unique(np.quantile(decision, np.linspace(0.001, 0.999, 500)))
    scores = np.zeros(candidates.size)
    images = np.unique(image)
    for index in images:
        mine = image == index
        scores += _mean_iou_above(candidates, decision[mine], label[mine] == 1, weight[mine]) / images.size
    # the maximum is flat, and its edge would be chosen by chance: take the middle
    first = last = int(scores.argmax())
    good = scores >= scores[first] - 1e-3
    while first > 0 and good[first - 1]:
        first -= 1
    while last + 1 < good.size and good[last + 1]:
        last += 1
    return float((candidates[first] + candidates[last]) / 2)


def quantile_threshold(
    decision: NDArray[Any], label: NDArray[Any], weight: NDArray[Any], image: NDArray[Any]
) -> float:
    """Match quantiles: at the threshold as many pixels are called the second class as are annotated so.

    Mean over images that have both classes; if none has, they count as one image. Unlike the threshold of the highest IoU it
    does not depend on single mistakes, so a few images are enough.
    """
    thresholds = [
        _quantile(decision[mine], label[mine], weight[mine])
        for mine in (image == index for index in np.unique(image))
        if np.unique(label[mine]).size == 2
    ]
    return float(np.mean(thresholds)) if thresholds else _quantile(decision, label, weight)


def weight_of_otsu(n_images: int) -> float:
    """Weight of Otsu's threshold in the threshold of an image, for a number of training images."""
    return IMAGES_TO_EQUAL_OTSU / (n_images + IMAGES_TO_EQUAL_OTSU)


def image_threshold(
    parts: Callable[[], Iterable[NDArray[Any]]],
    threshold: float,
    otsu_weight: float,
    weights: Sequence[NDArray[Any]] | None = None,
) -> float:
    """Move the threshold towards Otsu's threshold of the decisions of one image (IEEE Trans. SMC 9, 1979).

    The decisions of two classes come in parts of any shape, and are read twice. Of more classes there is no threshold.
    """
    if not otsu_weight:
        return threshold
    ends = [(float(part.min()), float(part.max())) for part in parts()]
    # how sure the classifier is beyond the margins says nothing about the border between the classes
    low, high = np.clip([min(first for first, _ in ends), max(last for _, last in ends)], -1, 1).tolist()
    own = (low + high) / 2
    if high - low > SAME:
        counts: NDArray[Any] = np.zeros(256)
        for index, part in enumerate(parts()):
            within = np.clip(np.asarray(part, dtype=np.float64), -1, 1)
            weight = None if weights is None else weights[index]
            found, edges = np.histogram(within, bins=256, range=(low, high), weights=weight)
            counts += found
        centres = (edges[:-1] + edges[1:]) / 2
        # between two separate heaps every threshold is as good: take the middle of the first and the last
        first = threshold_otsu(hist=(counts, centres))  # type: ignore[no-untyped-call]
        last = -threshold_otsu(hist=(counts[::-1], -centres[::-1]))  # type: ignore[no-untyped-call]
        own = float(first + last) / 2
    return float((1 - otsu_weight) * threshold + otsu_weight * own)


def label_pixels(
    decisions: NDArray[Any], threshold: float, otsu_weight: float = 0.0, weight: NDArray[Any] | None = None
) -> NDArray[np.intp]:
    """Class ids of pixels of one image: by the threshold, which the image moves, or the largest of several decisions."""
    if decisions.shape[-1] > 1:
        return np.asarray(decisions.argmax(axis=-1))
    decision = decisions[..., 0]
    weights = None if weight is None else [weight]
    own = image_threshold(lambda: [decision], threshold, otsu_weight, weights)
    return np.asarray(decision > own, dtype=np.intp)


def _quantile(decision: NDArray[Any], label: NDArray[Any], weight: NDArray[Any]) -> float:
    order = np.argsort(decision)
    # beyond the margins, -1 and 1, the classifier missed the image altogether
    below = np.cumsum(weight[order]) - weight[order] / 2
    return float(np.clip(np.interp(weight @ (label != 1), below, decision[order]), -1, 1))


def _mean_iou_above(
    thresholds: Floats, decision: NDArray[Any], positive: NDArray[np.bool_], weight: NDArray[Any]
) -> Floats:
    """Compute the mean IoU of one image at each threshold; a class neither present nor predicted is left out."""
    order = np.argsort(decision)
    below = np.searchsorted(decision[order], thresholds, side="right")
    missed = np.concatenate([[0], np.cumsum((weight * positive)[order])])[below]
    right_below = np.concatenate([[0], np.cumsum((weight * ~positive)[order])])[below]
    n_positive, n_negative = weight @ positive, weight @ ~positive
    hits, false_alarms = n_positive - missed, n_negative - right_below
    with np.errstate(invalid="ignore", divide="ignore"):
        iou = np.stack([hits / (n_positive + false_alarms), right_below / (n_negative + missed)])
    defined = ~np.isnan(iou)
    return np.asarray(np.where(defined, iou, 0).sum(axis=0) / defined.sum(axis=0))
