"""Selection of features by conditional covariance minimisation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.metrics import euclidean_distances
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from segkit.errors import InputError
from segkit.kernels.base import FloatArray
from segkit.kernels.covariance import (
    ExactObjective,
    Floats,
    Minimum,
    Objective,
    RandomFeatureObjective,
    minimise_downwards,
)

# Largest number of samples for the exact n x n Gram matrix: fast up to here, and without the noise of random features.
EXACT_UP_TO = 500
# Number of random features.
N_COMPONENTS = 512
# Number of rows for the median distance.
_MEDIAN_ROWS = 2000


class _Problem(NamedTuple):
    """The objective over the columns that vary, the mask of these columns, and the bandwidth."""

    objective: Objective
    varying: NDArray[np.bool_]
    sigma: float


class ConditionalCovarianceSelector(SelectorMixin, BaseEstimator):
    r"""Select the features that jointly predict the target best, by a Gaussian kernel.

    Parameters
    ----------
    n_features_to_select : int, default=128
        Number m of features to keep. If fewer features vary, all of these are kept.
    objective : {"auto", "exact", "random_features"}, default="auto"
        "exact": the kernel itself; time and memory grow at least as n_samples squared. "random_features": 512
        random Fourier features, in float32. "auto": exact up to 500 samples.
    target : {"auto", "classification", "regression"}, default="auto"
        Kind of `y`. "auto" uses `sklearn.utils.multiclass.type_of_target`, which regards whole numbers
        as classes.
    max_iter : int, default=100
        Largest number of steps at each bound on the sum of the weights; bounds decrease from all features to m.
    tol : float, default=1e-4
        Relative tolerance. Stop when the decrease of the objective that a step promises is at most this
        fraction of the objective. With thousands of features 1e-3 was nearly as good and took 0.6 of the time.
    random_state : int, RandomState instance or None, default=None
        Seed of the random features, and of the rows for the median distance.

    Attributes
    ----------
    weights_ : ndarray of shape (n_features_in_,), float64
        Weight of each feature, from 0 to 1; 0 for constant features.
    ranking_ : ndarray of shape (n_features_in_,), int
        Rank of each feature; 1 is the best. Features are ordered by weight; at equal weights, constant ones come last,
        then the column number decides.
    sigma_ : float
        Bandwidth of the kernel, in units of the standardised features.
    loss_ : float
        The objective at `weights_`.
    loss_history_ : ndarray of shape (n_evaluated,), float64
        The objective after each step. It may increase when the bound decreases.
    n_iter_ : int
        Number of iterations, over all bounds.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if `X` had them.

    Raises
    ------
    InputError
        If all features are constant or all targets are equal.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` steps did not meet `tol` at the last bound.

    Notes
    -----
    Features are standardised (divisor n). Let :math:`G_w` be the centred Gram matrix of the Gaussian kernel of the
    weighted features. The weights minimise

    .. math:: \mathrm{Tr}\,[Y^T (G_w + n \epsilon I)^{-1} Y]
              \quad\text{s.t.}\quad 0 \le w \le 1,\; \sum_j w_j \le m,

    where `Y` is centred, :math:`\pm 1` for two classes and one-hot for more, and :math:`\epsilon` is 1e-3, or 0.1 for
    regression. (The paper prints :math:`d\epsilon`.) The bandwidth is the median of all n^2 distances between standardised
    rows, with the n zeros of the diagonal, over at most 2,000 random rows. If the median is 0, the bandwidth is
    ``sqrt(2 d)``, the root mean square distance of d standardised features.
    The features with the m largest weights are kept.

    The problem is not convex. A lower objective recovered more of the informative features, but local
    minima near the usual start, equal weights m / d, are poor; see
    `segkit.kernels.covariance.minimise_downwards`.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
    feature space, eq. 7.14-7.15.

    J. Chen, M. Stern, M. J. Wainwright, M. I. Jordan, Kernel feature selection via conditional
    covariance minimization, NeurIPS 2017, arXiv:1707.01164.

    Examples
    --------
    The label is the sign of a product, so neither of the two features is informative alone:

    >>> import numpy as np
    >>> from segkit.selection import ConditionalCovarianceSelector
    >>> X = np.random.default_rng(0).standard_normal((200, 6))
    >>> y = X[:, 1] * X[:, 4] > 0
    >>> selector = ConditionalCovarianceSelector(n_features_to_select=2).fit(X, y)
    >>> selector.get_support(indices=True)
    array([1, 4])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_features_to_select": [Interval(Integral, 1, None, closed="left")],
        "objective": [StrOptions({"auto", "exact", "random_features"})],
        "target": [StrOptions({"auto", "classification", "regression"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_features_to_select: int = 128,
        *,
        objective: Literal["auto", "exact", "random_features"] = "auto",
        target: Literal["auto", "classification", "regression"] = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.objective = objective
        self.target = target
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Compute weights and ranks of features (n_samples, n_features), in any units, for classes or numbers."""
        problem = self._problem(X, y)
        (minimum,) = self._minima(problem, [self.n_features_to_select])
        self.weights_ = _in_all_columns(minimum.weights, problem.varying)
        # The last key of lexsort comes first, and the sort is stable: by weight, constant features last, by column.
        order = np.lexsort((~problem.varying, -self.weights_))
        self.ranking_ = np.empty(len(order), dtype=np.intp)
        self.ranking_[order] = np.arange(1, len(order) + 1)
        self._n_selected = min(self.n_features_to_select, int(problem.varying.sum()))
        self.sigma_ = problem.sigma
        self.loss_history_ = np.array(minimum.history)
        self.loss_ = minimum.history[-1]
        self.n_iter_ = minimum.n_iter
        return self

    def path(self, X: ArrayLike, y: ArrayLike, n_features: Sequence[int]) -> Floats:
        """Compute weights for several numbers of features to select, in decreasing order, each from the minimum before.

        Returns the weights of all features for each number, float64; the selector itself does not change.
        """
        counts = list(n_features)
        if not counts or min(counts) < 1 or counts != sorted(counts, reverse=True):
            raise InputError(
                f"n_features={counts}: a path decreases; give numbers of 1 or more, the largest first"
            )
        # A clone, since the checks of X and y set attributes such as n_features_in_.
        problem = clone(self)._problem(X, y)
        minima = self._minima(problem, counts)
        return np.array([_in_all_columns(minimum.weights, problem.varying) for minimum in minima])

    def _problem(self, X: Any, y: Any) -> _Problem:
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        rng = check_random_state(self.random_state)
        Y, epsilon = self._targets(y)
        standardised, varying = _standardise(X)
        sigma = _median_distance(standardised, rng)
        if self.objective == "exact" or (self.objective == "auto" and len(X) <= EXACT_UP_TO):
            return _Problem(ExactObjective(standardised, Y, sigma, epsilon), varying, sigma)
        # The noise of random features is far above the rounding of float32, and float32 is faster.
        standardised = standardised.astype(np.float32, copy=False)
        approximate = RandomFeatureObjective(standardised, Y, sigma, epsilon, N_COMPONENTS, rng)
        return _Problem(approximate, varying, sigma)

    def _targets(self, y: NDArray[Any]) -> tuple[Floats, float]:
        """Make the columns to predict, and choose the ridge per sample."""
        target = self.target
        if target == "auto":
            target = "regression" if type_of_target(y, input_name="y") == "continuous" else "classification"
        if len(np.unique(y)) < 2:
            raise InputError(
                f"y holds one value, {y[0]!r}, {len(y)} times: features are selected to predict y; "
                f"give samples of at least two classes or values"
            )
        if target == "regression":
            return y.astype(np.float64)[:, None], 0.1
        check_classification_targets(y)
        # Two classes need one column; the values +-1 double its scale, as in the paper.
        one_hot = (y[:, None] == np.unique(y)).astype(np.float64)
        return (2 * one_hot[:, 1:] - 1 if one_hot.shape[1] == 2 else one_hot), 1e-3

    def _minima(self, problem: _Problem, n_features: Sequence[int]) -> list[Minimum]:
        n_varying = int(problem.varying.sum())
        bounds = [min(m, n_varying) for m in n_features]
        minima = list(
            minimise_downwards(problem.objective, n_varying, bounds, max_iter=self.max_iter, tol=self.tol)
        )
        if not all(minimum.converged for minimum in minima):
            warnings.warn(
                f"the weights did not converge to tol={self.tol} in max_iter={self.max_iter} steps; "
                f"raise one of them",
                ConvergenceWarning,
                stacklevel=3,
            )
        return minima

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        mask: NDArray[np.bool_] = self.ranking_ <= self._n_selected
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _standardise(X: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Standardise the columns that vary, in the dtype of `X`; returns them and their mask."""
    # Compare the extremes: with rounding, the standard deviation of a constant column may exceed 0.
    varying = X.min(axis=0) < X.max(axis=0)
    if not varying.any():
        raise InputError(
            f"X of shape {X.shape}: every feature is constant; give samples that differ in some feature"
        )
    columns = X[:, varying]
    columns = columns - columns.mean(axis=0, dtype=np.float64).astype(X.dtype)
    columns /= np.sqrt(np.mean(columns**2, axis=0, dtype=np.float64)).astype(X.dtype)
    return columns, varying


def _median_distance(X: FloatArray, rng: np.random.RandomState) -> float:
    """Compute the median of all n^2 distances between at most 2,000 standardised rows, with the zeros."""
    if len(X) > _MEDIAN_ROWS:
        X = X[rng.choice(len(X), _MEDIAN_ROWS, replace=False)]
    return float(np.median(euclidean_distances(X))) or float(np.sqrt(2 * X.shape[1]))


def _in_all_columns(weights: Floats, varying: NDArray[np.bool_]) -> Floats:
    """Set the weights of constant columns to 0; returns the weights of all columns."""
    full = np.zeros(len(varying))
    full[varying] = weights
    return full
