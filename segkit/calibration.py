"""From decisions to probabilities, by Platt's sigmoid of each class, and to labels, by a threshold."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, softmax
from skimage.filters import threshold_otsu
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from segkit.errors import InputError

Floats = NDArray[np.float64]

# So many training images know as much of an image's threshold as its own decisions do.
IMAGES_TO_EQUAL_OTSU = 2
# Decisions that differ by less, in units of the margin, are one.
SAME = 1e-4
# Newton stops once the mean log-loss is this close to its minimum, by its own quadratic model.
ENOUGH = 1e-14


class PlattScaling(BaseEstimator):
    r"""Platt's scaling: the probability of a class is a sigmoid of its decision.

    Fit it on decisions of rows that the classifier was not trained on, else it is overconfident.

    Attributes
    ----------
    slope_ : ndarray of shape (1,) or (n_classes,), float64
        Factor on the decision; one sigmoid serves two classes.
    intercept_ : ndarray of shape (1,) or (n_classes,), float64
        What is added to it.

    Notes
    -----
    With :math:`p_i = 1 / (1 + \exp(-(a f_i + b)))` the weighted log-loss
    :math:`-\sum_i w_i (t_i \log p_i + (1 - t_i) \log(1 - p_i))` is minimised over a and b. The targets are
    :math:`t = (n_+ + 1) / (n_+ + 2)` for the class and :math:`1 / (n_- + 2)` for the others, where
    :math:`n_\pm` sum the weights: they keep the slope finite where the decisions separate the classes.
    Of three or more classes, each has its own sigmoid against the rest; their values are divided by the sum.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
    feature space, eq. 8.2 (the sigmoid of the decision itself: `PlattScaling.identity`).

    J. Platt, Probabilistic outputs for support vector machines, Advances in Large Margin Classifiers, 1999.

    H.-T. Lin, C.-J. Lin, R. C. Weng, A note on Platt's probabilistic outputs for support vector machines,
    Machine Learning 68, 2007.

    Examples
    --------
    >>> from segkit.calibration import PlattScaling
    >>> platt = PlattScaling().fit([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1])
    >>> platt.predict_proba([-2.0, 0.0, 2.0]).round(2)
    array([[0.79, 0.21],
           [0.5 , 0.5 ],
           [0.21, 0.79]])
    """

    @classmethod
    def identity(cls, n_classes: int) -> Self:
        """Scaling that leaves decisions as they are: the paper's heat map, eq. 8.2.

        Parameters
        ----------
        n_classes : int
            Number of classes, at least 2.

        Returns
        -------
        PlattScaling
            Slopes 1, intercepts 0.
        """
        n_sigmoids = 1 if n_classes == 2 else n_classes
        return cls.from_arrays(np.ones(n_sigmoids), np.zeros(n_sigmoids))

    @classmethod
    def from_arrays(cls, slope: ArrayLike, intercept: ArrayLike) -> Self:
        """Restore a fitted scaling.

        Parameters
        ----------
        slope, intercept : array-like of shape (1,) or (n_classes,)
            The fitted attributes.

        Returns
        -------
        PlattScaling
            Fitted.
        """
        scaling = cls()
        scaling.slope_ = np.asarray(slope, dtype=np.float64)
        scaling.intercept_ = np.asarray(intercept, dtype=np.float64)
        return scaling

    def fit(self, decisions: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit one sigmoid to each column of decisions.

        Parameters
        ----------
        decisions : array-like of shape (n,), (n, 1) or (n, n_classes)
            Decisions for class 1 of two, or for each of more classes.
        y : array-like of shape (n,), bool or int
            Class index of each row: 0 or 1, or 0 to ``n_classes - 1``.
        sample_weight : array-like of shape (n,), default=None
            Non-negative weight of each row.

        Returns
        -------
        PlattScaling
            Itself.

        Raises
        ------
        InputError
            If decisions are not finite, lengths differ, weights are negative or all zero, or a class
            index does not fit the columns.
        """
        columns = _as_columns(decisions)
        label = np.asarray(y)
        weight = (
            np.ones(len(columns)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        )
        _check_rows(columns, label, weight)
        positive = range(1, 2) if columns.shape[1] == 1 else range(columns.shape[1])
        sigmoids = [
            _fit_sigmoid(column, label == k, weight) for column, k in zip(columns.T, positive, strict=True)
        ]
        self.slope_, self.intercept_ = np.array(sigmoids).T
        return self

    def predict_proba(self, decisions: ArrayLike) -> Floats:
        """Probabilities of the classes.

        Parameters
        ----------
        decisions : array-like of shape (n,), (n, 1) or (n, n_classes)
            Decisions, as in `fit`.

        Returns
        -------
        ndarray of shape (n, 2) or (n, n_classes), float64
            Rows sum to one.

        Raises
        ------
        InputError
            If decisions are not finite or have another number of columns than those of `fit`.
        """
        check_is_fitted(self, "slope_")
        columns = _as_columns(decisions)
        if columns.shape[1] != self.slope_.size:
            raise InputError(
                f"decisions have {columns.shape[1]} columns: the scaling was fitted on {self.slope_.size}, "
                "give decisions of the same classifier"
            )
        logits = columns * self.slope_ + self.intercept_
        if self.slope_.size == 1:
            return np.hstack([expit(-logits), expit(logits)])
        return np.asarray(softmax(log_expit(logits), axis=1))


def _as_columns(decisions: ArrayLike) -> Floats:
    columns = np.asarray(decisions, dtype=np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or columns.shape[1] in (0, 2):
        raise InputError(
            f"decisions of shape {columns.shape}: give (n,) or (n, 1) for two classes, else (n, n_classes)"
        )
    if not np.isfinite(columns).all():
        raise InputError(f"decisions of shape {columns.shape} hold NaN or infinity: leave those rows out")
    return columns


def _check_rows(columns: Floats, label: NDArray[np.generic], weight: Floats) -> None:
    n_classes = max(2, columns.shape[1])
    if label.shape != (len(columns),) or weight.shape != label.shape:
        raise InputError(
            f"{len(columns)} decisions, labels of shape {label.shape}, weights of shape {weight.shape}: "
            "give one label and one weight for each decision"
        )
    if not np.isin(label, np.arange(n_classes)).all():
        raise InputError(
            f"labels {np.unique(label)}: expected class indices 0 to {n_classes - 1}, number them so"
        )
    if not (weight >= 0).all() or not 0 < weight.sum() < np.inf:
        raise InputError("weights must be non-negative, finite and not all zero: leave out rows instead")


def _fit_sigmoid(decision: Floats, positive: NDArray[np.bool_], weight: Floats) -> tuple[float, float]:
    """Slope and intercept of least log-loss, by Newton's method with backtracking."""
    n_positive, n_negative = weight[positive].sum(), weight[~positive].sum()
    target = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    design = np.column_stack([decision, np.ones_like(decision)])

    def log_loss(theta: Floats) -> float:
        logit = design @ theta  # log(1 + e^z) - t z neither overflows nor cancels
        return float(weight @ (np.logaddexp(0, logit) - target * logit))

    theta = np.array([0.0, np.log((n_positive + 1) / (n_negative + 1))])
    loss = log_loss(theta)
    while True:
        probability = expit(design @ theta)
        gradient = design.T @ (weight * (probability - target))
        hessian = (design.T * (weight * probability * (1 - probability))) @ design
        # least squares: the Hessian is singular where all decisions are equal
        step = -np.linalg.lstsq(hessian, gradient)[0]
        slope = float(gradient @ step)
        if -slope <= ENOUGH * weight.sum():
            return float(theta[0]), float(theta[1])
        size = 1.0
        while (lower := log_loss(theta + size * step)) > loss + 1e-4 * size * slope:
            size /= 2
            if size < 1e-10:  # rounding hides any further descent
                return float(theta[0]), float(theta[1])
        theta, loss = theta + size * step, lower


def best_threshold(
    decision: NDArray[Any], label: NDArray[Any], weight: NDArray[Any], image: NDArray[Any]
) -> float:
    """Decision threshold with the highest mean IoU over classes and images (eq. 8.1).

    Parameters
    ----------
    decision : ndarray of shape (n,), float
        Decisions of pixels that the classifier was not trained on.
    label : ndarray of shape (n,), int
        1 where the pixel is of the second class.
    weight : ndarray of shape (n,), float
        Pixels that each one stands for.
    image : ndarray of shape (n,), int
        Image of each pixel; every image counts alike.

    Returns
    -------
    float
        The middle of the thresholds about the best whose mean IoU is within 1e-3 of it: the maximum
        is flat, and a threshold at its edge would be luck.
    """
    candidates = np.unique(np.quantile(decision, np.linspace(0.001, 0.999, 500)))
    scores = np.zeros(candidates.size)
    images = np.unique(image)
    for index in images:
        mine = image == index
        scores += _mean_iou_above(candidates, decision[mine], label[mine] == 1, weight[mine]) / images.size
    first = last = int(scores.argmax())
    good = scores >= scores[first] - 1e-3
    while first > 0 and good[first - 1]:
        first -= 1
    while last + 1 < good.size and good[last + 1]:
        last += 1
    return float((candidates[first] + candidates[last]) / 2)


def share_threshold(
    decision: NDArray[Any], label: NDArray[Any], weight: NDArray[Any], image: NDArray[Any]
) -> float:
    """Mean over images of the decision above which as many pixels lie as are of the second class.

    Parameters
    ----------
    decision : ndarray of shape (n,), float
        Decisions of pixels that the classifier was not trained on.
    label : ndarray of shape (n,), int
        1 where the pixel is of the second class; both classes occur.
    weight : ndarray of shape (n,), float
        Pixels that each one stands for.
    image : ndarray of shape (n,), int
        Image of each pixel. Images that lack a class have no threshold; if all do, they are taken as one.

    Returns
    -------
    float
        The mean over images of the quantile of the decisions at the share of the first class; the share is then
        met image by image, not by all pixels together. A quantile beyond the margins counts as -1 or 1: there
        the classifier missed the image altogether. Unlike the threshold of the highest IoU it does not look at
        single mistakes, so a handful of images is enough to know it.
    """
    thresholds = [
        _share_quantile(decision[mine], label[mine], weight[mine])
        for mine in (image == index for index in np.unique(image))
        if np.unique(label[mine]).size == 2
    ]
    return float(np.mean(thresholds)) if thresholds else _share_quantile(decision, label, weight)


def share_of_otsu(n_images: int) -> float:
    """Share that Otsu's threshold has in that of an image, after so many training images."""
    return IMAGES_TO_EQUAL_OTSU / (n_images + IMAGES_TO_EQUAL_OTSU)


def image_threshold(
    decision: NDArray[Any], threshold: float, otsu_weight: float, weight: NDArray[Any] | None = None
) -> float:
    """Move the threshold of all images towards that which parts the decisions of one.

    Parameters
    ----------
    decision : ndarray, float
        Decisions of an image.
    threshold : float
        What training images, held out in turn, speak for.
    otsu_weight : float
        Share in [0, 1] that Otsu's threshold has.
    weight : ndarray of the same shape, optional
        Pixels that each decision stands for; one by default.

    Returns
    -------
    float
        The weighted mean of `threshold` and of the threshold of greatest variance between the decisions
        above and below it. Beyond the margins, below -1 or above 1, decisions count as -1 and 1: how sure
        the classifier is there says nothing of where the classes part.

    References
    ----------
    N. Otsu, A threshold selection method from gray-level histograms, IEEE Trans. Systems, Man, and
    Cybernetics 9, 1979.
    """
    if not otsu_weight:
        return threshold
    within = np.clip(np.asarray(decision, dtype=np.float64), -1, 1)
    low, high = float(within.min()), float(within.max())
    own = (low + high) / 2
    if high - low > SAME:
        counts, edges = np.histogram(within, bins=256, range=(low, high), weights=weight)
        centres = (edges[:-1] + edges[1:]) / 2
        # the first and the last of equally good thresholds: between two separate heaps any is
        first = threshold_otsu(hist=(counts, centres))  # type: ignore[no-untyped-call]
        last = -threshold_otsu(hist=(counts[::-1], -centres[::-1]))  # type: ignore[no-untyped-call]
        own = float(first + last) / 2
    return (1 - otsu_weight) * threshold + otsu_weight * own


def _share_quantile(decision: NDArray[Any], label: NDArray[Any], weight: NDArray[Any]) -> float:
    order = np.argsort(decision)
    below = np.cumsum(weight[order]) - weight[order] / 2
    return float(np.clip(np.interp(weight @ (label != 1), below, decision[order]), -1, 1))


def _mean_iou_above(
    thresholds: Floats, decision: NDArray[Any], positive: NDArray[np.bool_], weight: NDArray[Any]
) -> Floats:
    """Mean IoU of one image at each threshold; a class that is not there and not predicted is left out."""
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
