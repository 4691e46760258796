"""Scores of objects: label images, in which 0 is background and every other number is one object.

Two objects match at a threshold t if their IoU is t or more, and each object matches one other at most. TP, FP and FN
count matched pairs, predicted objects without a match, and true objects without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from segkit._common import IntArray
from segkit._common.arrays import as_array
from segkit.errors import InputError, count
from segkit.evaluation.metrics import ratio
from segkit.evaluation.statistics import ratio_interval
from segkit.images.numbering import by_first_pixel

FloatArray = NDArray[np.float64]

# IoU from which two objects match, as StarDist reports it.
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
# Above it every object has one partner at most; panoptic quality counts these pairs.
_UNIQUE = 0.5


@dataclass(frozen=True, eq=False)
class Overlaps:
    """All pairs of a true and a predicted object that share a pixel."""

    # of each pair: positions in `true_ids` and `predicted_ids`, and pixels in both
    true: IntArray
    predicted: IntArray
    shared: IntArray
    # in the order of first pixels, so that scores do not depend on the numbers
    true_ids: NDArray[Any]
    predicted_ids: NDArray[Any]
    true_areas: IntArray
    predicted_areas: IntArray

    @property
    def unions(self) -> IntArray:
        """Number of pixels in either object of each pair."""
        return self.true_areas[self.true] + self.predicted_areas[self.predicted] - self.shared

    @property
    def iou(self) -> FloatArray:
        """IoU of each pair."""
        return np.asarray(self.shared / self.unions)

    def matched(self, threshold: float) -> IntArray:
        """Choose as many pairs as possible, no object twice; of equally many those with the larger sum of IoU."""
        if not 0 < threshold <= 1:
            raise InputError(f"threshold {threshold:g}: give an IoU above 0 and at most 1")
        able = np.flatnonzero(self.iou >= threshold)
        true, predicted = self.true[able], self.predicted[able]
        alone = (np.bincount(true)[true] == 1) & (np.bincount(predicted)[predicted] == 1)
        rivals = able[~alone]
        # all costs together are below that of an object without a partner
        cost = (1 - self.iou[rivals]) / max(2 * rivals.size, 1)
        best = best_pairs(self.true[rivals], self.predicted[rivals], cost)
        return np.concatenate([able[alone], rivals[best]])

    def aggregated_jaccard(self) -> tuple[int, int]:
        """Return intersection and union of the aggregated Jaccard index (Kumar et al., 2017).

        Each true object takes the predicted one of largest IoU. As in the original, several may take the same one.
        """
        order = np.lexsort((self.predicted, -self.shared, -self.iou, self.true))
        _, first = np.unique(self.true[order], return_index=True)
        best = order[first]
        lonely = np.delete(self.true_areas, self.true[best])
        unused = np.delete(self.predicted_areas, self.predicted[best])
        return int(self.shared[best].sum()), int(self.unions[best].sum() + lonely.sum() + unused.sum())


def best_pairs(one: IntArray, other: IntArray, cost: FloatArray) -> IntArray:
    """Choose the pairs of least cost, so that no two share an end. A cost is in [0, 1]; what stays without partner costs 1.

    Returns the indices of the pairs, rising.
    """
    if not cost.size:
        return np.zeros(0, dtype=np.intp)
    rows, row = np.unique(one, return_inverse=True)
    columns, column = np.unique(other, return_inverse=True)
    # a further column for each row means "no partner"; SciPy takes no costs of 0
    costs = np.concatenate([1 + cost, np.full(rows.size, 2.0)])
    own = np.arange(rows.size)
    at = np.concatenate([row, own]), np.concatenate([column, columns.size + own])
    table = coo_array((costs, at), shape=(rows.size, columns.size + rows.size)).tocsr()
    # SciPy 1.13 solves tables of 32-bit indices only
    table.indices, table.indptr = table.indices.astype(np.int32), table.indptr.astype(np.int32)
    _, chosen = min_weight_full_bipartite_matching(table)
    return np.flatnonzero(chosen[row] == column)


@dataclass(frozen=True, eq=False)
class ObjectScores:
    """Scores of the objects of a set of images.

    Parameters
    ----------
    thresholds : tuple of float
        Least IoU of a match.
    n_true, n_predicted : ndarray of shape (n_images,), int
        Number of objects.
    tp : ndarray of shape (n_images, n_thresholds), int
        Number of matches at each threshold.
    n_matched : ndarray of shape (n_images,), int
        Number of pairs with an IoU above 0.5.
    matched_iou : ndarray of shape (n_images,), float64
        Sum of their IoU.
    shared, union : ndarray of shape (n_images,), int
        Pixels of the aggregated Jaccard index, see `Overlaps.aggregated_jaccard`.
    intervals : mapping of str to tuple of float or None
        95 % bootstrap interval of each of `values`, over images or clusters of images; None where it is undefined.

    Notes
    -----
    AP, panoptic quality and the relative count error are ratios of sums over all images. The aggregated Jaccard index
    and the count error are means over images. Images without any object, true or predicted, have no score (NaN) and
    change none but the count errors. With objects on one side only AP, panoptic quality and the index are 0.

    References
    ----------
    - AP: M. Weigert et al., Star-convex polyhedra for 3D object detection and segmentation in microscopy, 2020;
      the Data Science Bowl 2018 scored by it.
    - Panoptic quality: A. Kirillov et al., Panoptic segmentation, 2019, eq. 1.
    - Aggregated Jaccard index: N. Kumar et al., A dataset and a technique for generalized nuclear segmentation for
      computational pathology, 2017, algorithm 1.
    """

    thresholds: tuple[float, ...]
    n_true: IntArray
    n_predicted: IntArray
    tp: IntArray
    n_matched: IntArray
    matched_iou: FloatArray
    shared: IntArray
    union: IntArray
    intervals: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)

    @property
    def fp(self) -> IntArray:
        """Predicted objects without a match, (n_images, n_thresholds)."""
        return self.n_predicted[:, None] - self.tp

    @property
    def fn(self) -> IntArray:
        """True objects without a match, (n_images, n_thresholds)."""
        return self.n_true[:, None] - self.tp

    @property
    def ap(self) -> FloatArray:
        """Average precision TP / (TP + FP + FN) at each threshold, counts of all images together, (n_thresholds,)."""
        return ratio(self.tp.sum(axis=0), (self.tp + self.fp + self.fn).sum(axis=0))

    @property
    def image_ap(self) -> FloatArray:
        """Average precision of each image, (n_images, n_thresholds); NaN without objects."""
        return ratio(self.tp, self.tp + self.fp + self.fn)

    @property
    def image_panoptic_quality(self) -> FloatArray:
        """Panoptic quality of each image, (n_images,); NaN without objects."""
        return ratio(self.matched_iou, (self.n_true + self.n_predicted) / 2)

    @property
    def image_aggregated_jaccard(self) -> FloatArray:
        """Aggregated Jaccard index of each image, (n_images,); NaN without objects."""
        return ratio(self.shared, self.union)

    @property
    def mean_matched_iou(self) -> float:
        """Mean IoU of the pairs with an IoU above 0.5; NaN without any."""
        return float(ratio(self.matched_iou.sum(), self.n_matched.sum()))

    @property
    def n_undefined(self) -> int:
        """Number of images without any object, true or predicted."""
        return int((self.n_true + self.n_predicted == 0).sum())

    @property
    def values(self) -> dict[str, float]:
        """All scores by name; NaN where one is undefined.

        ``ap_50`` and so on for each threshold, ``mean_ap`` over the thresholds, ``panoptic_quality``,
        ``aggregated_jaccard``, ``count_error`` (predicted - true, mean over images), ``absolute_count_error``, and
        ``relative_count_error`` (absolute differences of all images over the number of true objects).
        """
        return {
            name: float(ratio(part.sum(axis=0), whole.sum(axis=0)).mean())
            for name, (part, whole) in self._ratios().items()
        }

    def _ratios(self) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """Return each score as sums over images; `mean_ap` is the mean of several ratios."""
        either = self.tp + self.fp + self.fn
        known = self.union > 0
        more = self.n_predicted - self.n_true
        each = np.ones(more.size)
        ap = {
            f"ap_{100 * threshold:g}": (self.tp[:, index], either[:, index])
            for index, threshold in enumerate(self.thresholds)
        }
        return ap | {
            "mean_ap": (self.tp, either),
            "panoptic_quality": (self.matched_iou, (self.n_true + self.n_predicted) / 2),
            "aggregated_jaccard": (np.where(known, self.image_aggregated_jaccard, 0), known),
            "count_error": (more, each),
            "absolute_count_error": (np.abs(more), each),
            "relative_count_error": (np.abs(more), self.n_true),
        }


def match(truth: ArrayLike, predicted: ArrayLike, *, labelled: ArrayLike | None = None) -> Overlaps:
    """Find the pairs of a true and a predicted object that share a pixel, in time linear in pixels.

    A predicted object with more than half of its pixels outside `labelled` is left out: nobody can say whether it is right.

    >>> found = match([[1, 1, 0, 7]], [[0, 3, 3, 4]])
    >>> found.iou.round(2).tolist(), found.matched(0.5).size
    ([0.33, 1.0], 1)
    """
    truth, predicted = _label_image(truth, "true"), _label_image(predicted, "predicted")
    if truth.shape != predicted.shape:
        raise InputError(
            f"true objects of shape {truth.shape}, predicted ones of shape {predicted.shape}: give equal shapes"
        )
    if labelled is not None:
        truth, predicted = _only_labelled(truth, predicted, np.asarray(labelled))
    true_ids, of_true = by_first_pixel(truth)
    predicted_ids, of_predicted = by_first_pixel(predicted)
    both = (of_true >= 0) & (of_predicted >= 0)
    at = of_true[both], of_predicted[both]
    ones = np.ones(at[0].size, dtype=np.intp)
    table = coo_array((ones, at), shape=(true_ids.size, predicted_ids.size)).tocsr()  # adds up equal pairs
    table.sort_indices()
    table = table.tocoo()
    return Overlaps(
        true=table.row.astype(np.intp),
        predicted=table.col.astype(np.intp),
        shared=table.data,
        true_ids=true_ids,
        predicted_ids=predicted_ids,
        true_areas=np.bincount(of_true[of_true >= 0], minlength=true_ids.size),
        predicted_areas=np.bincount(of_predicted[of_predicted >= 0], minlength=predicted_ids.size),
    )


def score_objects(
    truths: Sequence[ArrayLike],
    predictions: Sequence[ArrayLike],
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    labelled: Sequence[ArrayLike] | None = None,
    clusters: ArrayLike | None = None,
) -> ObjectScores:
    """Score predicted objects against true ones.

    Parameters
    ----------
    truths, predictions : sequence of array-like of shape (H, W), int
        Label images: 0 is background, every other number one object.
    thresholds : sequence of float, default=(0.5, 0.6, 0.7, 0.8, 0.9)
        Least IoU of a match, each above 0 and at most 1.
    labelled : sequence of array-like of shape (H, W), bool, optional
        Pixels of each image that count, as for `match`; by default all.
    clusters : array-like of shape (n_images,), optional
        What each image belongs to, such as a stack: its images are resampled together.

    Returns
    -------
    ObjectScores
        Counts of each image, scores of all, intervals over images.

    Raises
    ------
    InputError
        If the numbers of images differ, there is none, a threshold is no IoU, or an image is as `match` refuses it.

    Examples
    --------
    >>> from segkit.evaluation import score_objects
    >>> scores = score_objects([[[1, 1, 0, 2]]], [[[5, 5, 0, 0]]])
    >>> scores.values["ap_50"], scores.n_true.tolist(), scores.n_predicted.tolist()
    (0.5, [2], [1])
    """
    numbers = {len(truths), len(predictions)} | ({len(labelled)} if labelled is not None else set())
    if len(numbers) > 1 or not len(truths):
        raise InputError(
            f"{count(len(truths), 'image')} of true objects and {len(predictions)} of predicted ones: "
            f"give as many of each (and of labelled pixels), at least one"
        )
    if not len(thresholds):
        raise InputError("no threshold: give at least one IoU above 0 and at most 1")
    counting = [None] * len(truths) if labelled is None else labelled
    images = [
        match(truth, guess, labelled=pixels)
        for truth, guess, pixels in zip(truths, predictions, counting, strict=True)
    ]
    clear = [image.iou[image.iou > _UNIQUE] for image in images]
    shared, union = np.array([image.aggregated_jaccard() for image in images]).T
    counted = ObjectScores(
        thresholds=tuple(float(threshold) for threshold in thresholds),
        n_true=np.array([image.true_ids.size for image in images]),
        n_predicted=np.array([image.predicted_ids.size for image in images]),
        tp=np.array([[image.matched(threshold).size for threshold in thresholds] for image in images]),
        n_matched=np.array([iou.size for iou in clear]),
        matched_iou=np.array([iou.sum() for iou in clear]),
        shared=shared,
        union=union,
    )
    intervals = {
        name: ratio_interval(part, whole, clusters) for name, (part, whole) in counted._ratios().items()
    }
    return ObjectScores(**{**vars(counted), "intervals": intervals})


def _label_image(ids: ArrayLike, name: str) -> NDArray[Any]:
    """Check ids; floats of whole numbers are ids too."""
    given = as_array(ids, name=f"{name} objects")
    whole = np.issubdtype(given.dtype, np.integer)
    if given.dtype == np.bool_ or (
        np.issubdtype(given.dtype, np.floating) and (given == np.rint(given)).all()
    ):
        given, whole = given.astype(np.int64), True
    if given.ndim != 2 or not whole or (given.size and given.min() < 0):
        raise InputError(
            f"{name} objects as {given.dtype} of shape {given.shape}: give whole numbers of shape (H, W), "
            f"0 for background and another one above it for each object"
        )
    return given


def _only_labelled(
    truth: NDArray[Any], predicted: NDArray[Any], labelled: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Make unlabelled pixels background, and predicted objects that lie mostly there."""
    if labelled.shape != truth.shape or labelled.dtype != np.bool_:
        raise InputError(
            f"labelled pixels as {labelled.dtype} of shape {labelled.shape}: give bool of shape {truth.shape}"
        )
    _, of_pixel = np.unique(predicted, return_inverse=True)
    of_pixel = of_pixel.reshape(predicted.shape)
    share = np.bincount(of_pixel.ravel(), labelled.ravel()) / np.bincount(of_pixel.ravel())
    return np.where(labelled, truth, 0), np.where(labelled & (share >= 0.5)[of_pixel], predicted, 0)
