"""Selection of features by the discrepancy of the classes, over pairs of samples from different images."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.feature_selection import SelectorMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from segkit.errors import InputError
from segkit.kernels.linear import columnwise_mmd_squared

# Differences from the mean that are held at a time, 32 MB: those of all features would take twice the memory of X.
_BLOCK_SIZE = 2**22


class MMDSelector(SelectorMixin, BaseEstimator):
    """Select the features in which the classes differ most, in the same direction in all groups.

    Parameters
    ----------
    n_features_to_select : int, default=1024
        Largest number of features to keep. Features with a discrepancy of 0 or less are dropped, except the best one.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features_in_,), float64
        Squared MMD of the classes under the linear kernel of each standardised feature; 0 for constant features.
    n_features_in_ : int
        Number of features.

    Raises
    ------
    InputError
        If all features are constant, or there are too few classes or samples of a class.

    Notes
    -----
    The score is `segkit.kernels.linear.columnwise_mmd_squared`, a U-statistic over pairs of samples from different
    groups, computed in one pass over the data. Each feature is scored separately, unlike in conditional
    covariance minimisation: redundant features are kept, and features that are only useful together are missed.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.selection import MMDSelector
    >>> rng = np.random.default_rng(0)
    >>> y, image = np.tile([0, 1], 60), np.repeat([0, 1, 2], 40)
    >>> X = rng.standard_normal((120, 3))
    >>> X[:, 1] += 2 * y                                # rises everywhere
    >>> X[:, 2] += 2 * y * np.where(image == 1, -2, 1)  # falls in one image
    >>> MMDSelector(n_features_to_select=1).fit(X, y, groups=image).get_support(indices=True)
    array([1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_features_to_select": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, n_features_to_select: int = 1024) -> None:
        self.n_features_to_select = n_features_to_select

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Score features (n_samples, n_features), in any units, by labels and, if given, groups such as images."""
        rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_classification_targets(labels)
        # Compare the extremes: with rounding, the standard deviation of a constant column may exceed 0.
        varying = rows.min(axis=0) < rows.max(axis=0)
        if not varying.any():
            raise InputError(
                f"X of shape {rows.shape}: every feature is constant; give samples that differ in some feature"
            )
        # Dividing the score by the variance equals scoring the standardised feature, without a copy of X.
        variance = np.where(varying, _variances(rows), 1)
        scores = columnwise_mmd_squared(rows, labels, groups) / variance
        self.scores_ = np.where(varying, scores, 0)
        return self

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        best = np.argsort(-self.scores_, kind="stable")[: self.n_features_to_select]
        mask = np.zeros(self.scores_.size, dtype=bool)
        mask[best] = self.scores_[best] > 0
        # Keep at least one feature: a classifier needs one.
        mask[best[0]] = True
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _variances(X: NDArray[Any]) -> NDArray[np.float64]:
    """Compute the variance of each column in double precision, some columns at a time."""
    n_columns = max(1, _BLOCK_SIZE // len(X))
    blocks = [X[:, start : start + n_columns] for start in range(0, X.shape[1], n_columns)]
    return np.concatenate([np.var(block, axis=0, dtype=np.float64) for block in blocks])
