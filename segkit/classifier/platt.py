"""From decisions to probabilities, by Platt's sigmoid of each class."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from segkit.errors import InputError

Floats = NDArray[np.float64]

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
        Offset, added to the decision times the slope.

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
    >>> from segkit.classifier.platt import PlattScaling
    >>> platt = PlattScaling().fit([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1])
    >>> platt.predict_proba([-2.0, 0.0, 2.0]).round(2)
    array([[0.79, 0.21],
           [0.5 , 0.5 ],
           [0.21, 0.79]])
    """

    @classmethod
    def identity(cls, n_classes: int) -> Self:
        """Make the scaling of slope 1 and intercept 0, for 2 or more classes: the paper's heat map, eq. 8.2."""
        n_sigmoids = 1 if n_classes == 2 else n_classes
        return cls.from_arrays(np.ones(n_sigmoids), np.zeros(n_sigmoids))

    @classmethod
    def from_arrays(cls, slope: ArrayLike, intercept: ArrayLike) -> Self:
        """Restore a fitted scaling from ``slope_`` and ``intercept_``."""
        scaling = cls()
        scaling.slope_ = np.asarray(slope, dtype=np.float64)
        scaling.intercept_ = np.asarray(intercept, dtype=np.float64)
        return scaling

    def fit(self, decisions: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit one sigmoid to each column of decisions: (n,) or (n, 1) for class 1 of two, or (n, n_classes).

        `y` are class indices, 0 or 1, or 0 to ``n_classes - 1``; weights of rows are not negative. An InputError says
        what does not fit.
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
        """Compute the probabilities of the classes from finite decisions as in `fit`; (n, n_classes), float64."""
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
    """Find slope and intercept of least log-loss, by Newton's method with backtracking."""
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
