"""A mixture of linear kernels, one per feature, weighted by the discrepancy of the classes.

The plain MMD of a linear kernel is the difference of the class means over all samples. Pixels of one image are
similar, so with few images a feature may separate the classes within each image, but in opposite directions in
different images. Only pairs of samples from different images show this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from segkit.errors import InputError, ModelFileError
from segkit.kernels.base import FloatArray
from segkit.kernels.mmd import mixture_weights

_Float64Array = NDArray[np.float64]


def columnwise_mmd_squared(X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> _Float64Array:
    r"""Estimate the squared MMD of the classes for each column, under the linear kernel of that column.

    Let d_g be the difference of the class means in group g. Over the G groups with samples of both classes the estimate
    is the U-statistic ``sum_{g != h} d_g d_h / (G (G - 1))``: unbiased, and positive where the classes differ in the same
    direction in all groups. With fewer than two such groups it is the U-statistic over pairs of samples (paper, eq. 4.5
    without its root). With more than two classes it is the mean over classes, each against the rest.

    The first column rises from class 0 to class 1 in both groups, the second rises in one and falls in the other:

    >>> X = [[0.0, 0.0], [1.0, 2.0], [0.0, 2.0], [1.0, 0.0]]
    >>> columnwise_mmd_squared(X, [0, 1, 0, 1], groups=[0, 0, 1, 1])
    array([ 1., -4.])
    """
    rows, label = np.asarray(X), np.unique(y, return_inverse=True)[1]
    sizes = np.bincount(label)
    if sizes.size < 2 or sizes.min() < 2:
        raise InputError(
            f"classes of {', '.join(map(str, sizes))} samples: a discrepancy needs two or more classes "
            "with at least 2 samples each; annotate more"
        )
    group = (
        np.zeros(len(rows), dtype=np.intp) if groups is None else np.unique(groups, return_inverse=True)[1]
    )
    # With two classes, both splits are the same.
    splits = [label == 1] if sizes.size == 2 else [label == k for k in range(sizes.size)]
    return np.asarray(np.mean([_of_split(rows, inside, group) for inside in splits], axis=0))


def _of_split(X: NDArray[Any], inside: NDArray[np.bool_], group: NDArray[np.intp]) -> _Float64Array:
    """Estimate the squared MMD between the samples inside a class and all others."""
    differences = np.array(
        [
            X[mine & inside].mean(axis=0, dtype=np.float64) - X[mine & ~inside].mean(axis=0, dtype=np.float64)
            for mine in (group == index for index in range(group.max() + 1))
            if (mine & inside).any() and (mine & ~inside).any()
        ]
    )
    n = len(differences)
    # The U-statistic over groups needs two groups with both classes.
    if n > 1:
        return _sum_of_pairs(differences) / (n * (n - 1))
    within = [_sum_of_pairs(rows) / (len(rows) * (len(rows) - 1)) for rows in (X[inside], X[~inside])]
    means = [rows.mean(axis=0, dtype=np.float64) for rows in (X[inside], X[~inside])]
    return np.asarray(within[0] + within[1] - 2 * means[0] * means[1])


def _sum_of_pairs(rows: NDArray[Any]) -> _Float64Array:
    """Sum the products of all ordered pairs of different rows, column by column."""
    # (sum of rows)^2 less the squares: no loop over pairs. In float64, for the two terms nearly cancel.
    total = rows.sum(axis=0, dtype=np.float64)
    return np.asarray(total**2 - np.square(rows, dtype=np.float64).sum(axis=0))


class LinearMixture(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Features of a mixture of linear kernels, one per column, with weights learnt from the labels.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features_in_,), float64
        Squared MMD of the classes under the kernel of each column, clipped at 0.
    weights_ : ndarray of shape (n_features_in_,), float64
        Weight of each kernel: the scores, scaled to sum 1.
    n_features_in_ : int
        Number of features.

    Warns
    -----
    UserWarning
        If no column separates the classes. The weights are then uniform.

    Notes
    -----
    ``transform`` multiplies column c by the root of its weight, so that ``<z(x), z(y)>`` is
    ``sum_c w_c x_c y_c`` (eq. 4.10). With standardised columns the mean of the kernel's diagonal is 1, as
    for a Gaussian kernel, so a penalty means the same for both. The weights are proportional to the squared MMD.
    The paper takes the root; the square was better on test images.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 4.7-4.10.

    Examples
    --------
    >>> from segkit.kernels import LinearMixture
    >>> X = [[0.0, 1.0], [0.0, -1.0], [2.0, 1.0], [2.0, -1.0]]
    >>> LinearMixture().fit(X, [0, 0, 1, 1]).weights_
    array([1., 0.])
    """

    criterion = "mmd_squared"
    nonlinear_columns = np.empty(0, dtype=np.intp)

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Weigh standardised columns (n_samples, n_features) by labels and, if given, groups such as images."""
        rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(labels)
        self.scores_ = np.maximum(columnwise_mmd_squared(rows, labels, groups), 0)
        self.weights_ = mixture_weights(self.scores_)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Scale the columns; returns (n_samples, n_features), float32 if `X` is."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(rows * np.sqrt(self.weights_).astype(rows.dtype))

    def linear_coef(self, coef: NDArray[Any]) -> NDArray[np.float32]:
        """Express linear functions of the features by the columns: coefficients, (n_functions, n_features)."""
        return np.asarray(coef * np.sqrt(self.weights_), dtype=np.float32)

    def nonlinear_dot(self, X: FloatArray, coef: NDArray[Any]) -> FloatArray:
        """Return zeros: there is no nonlinear part."""
        return np.zeros((len(X), len(coef)), dtype=X.dtype)

    def nonlinear_input(self, X: FloatArray) -> FloatArray:
        """Return no columns."""
        return X[:, self.nonlinear_columns]

    def dot(self, X: ArrayLike, coef: NDArray[Any]) -> FloatArray:
        """Compute ``transform(X) @ coef.T``."""
        rows = np.asarray(X)
        return np.asarray(rows @ self.linear_coef(coef).T.astype(rows.dtype))

    def describe(self, groups: Iterable[str]) -> list[dict[str, Any]]:
        """List kind, name, gamma, weight and score of the kernels, summed over the columns of a group."""
        sums: dict[str, tuple[float, float]] = {}
        for group, weight, score in zip(groups, self.weights_, self.scores_, strict=True):
            before = sums.get(group, (0.0, 0.0))
            sums[group] = (before[0] + float(weight), before[1] + float(score))
        return [
            {"kind": "linear", "name": f"linear {group}", "gamma": None, "weight": weight, "score": score}
            for group, (weight, score) in sorted(sums.items(), key=lambda item: -item[1][0])
        ]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Split the fitted transformer into a header and arrays; see `MixtureRFF.to_state`."""
        check_is_fitted(self)
        return {}, {"scores": self.scores_, "weights": self.weights_}

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:  # noqa: ARG003
        """Rebuild a fitted transformer from the result of `to_state`."""
        mixture = cls()
        try:
            mixture.scores_, mixture.weights_ = arrays["scores"], arrays["weights"]
        except KeyError as error:
            raise ModelFileError(f"state of LinearMixture lacks {error}") from error
        if mixture.weights_.ndim != 1 or mixture.scores_.shape != mixture.weights_.shape:
            raise ModelFileError("arrays of LinearMixture do not fit each other; copy the file again")
        if not (mixture.weights_ >= 0).all():
            raise ModelFileError("a weight of LinearMixture is negative; copy the file again")
        mixture.n_features_in_ = len(mixture.weights_)
        return mixture

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = False
        return tags
