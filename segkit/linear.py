"""A linear support vector machine for many pixels: exact Newton steps, features made block by block.

Both losses are piecewise quadratic in the margin, so between two kinks Newton's method is exact and a
handful of steps ends it. What makes a step cheap:

* the Hessian is a sum over the rows inside the quadratic piece of the loss (the active rows); from one
  step to the next it changes only by the rows that entered or left;
* the first steps run on a random subsample, then on four times as many rows, and so on, so that few rows
  enter or leave once all rows are in;
* each row keeps its decision, so a step needs the features once for the change of the decisions and once
  more for the rows that entered or left, and nothing of size (n_samples, n_features) is ever stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_X_y
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from segkit.errors import InputError

Floats = NDArray[np.float64]
FeatureMap = Callable[[NDArray[Any]], NDArray[Any]]

# Longer blocks are no faster, and a float32 product over more rows is less exact.
LONGEST_BLOCK = 8192
# Features of a block, the copy of its active rows, and what the feature map itself needs meanwhile.
ARRAYS_PER_BLOCK = 3
# The first subsample holds this many rows for each feature, each further one GROWTH times as many.
FIRST_ROWS_PER_FEATURE = 4
GROWTH = 4
# A subsample is solved no better than this relative duality gap: its optimum is only near the true one.
SUBSAMPLE_TOL = 1e-2
# Hinge loss: width at which all rows start in the quadratic piece, and the factor that narrows it.
WIDEST = 2.0
NARROWING = 0.25

OUTSIDE, QUADRATIC, LINEAR = 0, 1, 2


class LinearSVM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Linear support vector machine, solved in the primal by Newton's method over blocks of features.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses against the norm, ``C = 1 / (n lambda)`` in the paper's notation; positive.
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        Loss of a margin ``m``: ``max(0, 1 - m)**2`` or ``max(0, 1 - m)``.
    class_weight : dict, "balanced" or None, default=None
        Factor on the loss of the rows of each class; "balanced" is ``n / (n_classes * count)``.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    penalize_intercept : bool, default=False
        Whether the intercept counts in the norm, as in `sklearn.svm.LinearSVC` with
        ``intercept_scaling=1``. The paper leaves it free.
    tol : float, default=1e-4
        Stop when the duality gap is at most ``tol`` times the objective; the true minimum is then
        certainly no further below the objective than that.
    max_iter : int, default=100
        Newton steps at most on each subsample and on all rows.
    memory_limit : int, default=2**30
        Bytes that blocks of features may take.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the rows of non-zero weight, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Normal of the separating plane, one row for two classes, else one against the rest for each.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts, zero without ``fit_intercept``.
    objective_ : ndarray of shape (1,) or (n_classes,), float64
        Value reached of the objective below.
    dual_gap_ : ndarray of shape (1,) or (n_classes,), float64
        Bound on the distance of the objective to its minimum.
    n_iter_ : int
        Newton steps on all rows.
    n_features_in_ : int
        Number of features, those of ``feature_map`` if one was given.

    Notes
    -----
    For each class, with :math:`y_i = \pm 1` and :math:`c_i` the product of sample and class weight,

    .. math:: \min_{\beta, b}\; \tfrac12 \|\beta\|^2 + C \sum_i c_i\, \ell\big(y_i (\beta^T\phi_i + b)\big).

    The hinge is smoothed over a width that shrinks until the gap of the unsmoothed problem closes. A dual
    point comes for free: :math:`\alpha_i = C c_i |\ell'_i|` satisfies :math:`\sum_i \alpha_i y_i = 0` because
    the intercept is minimised exactly after each step, and the gap of the smoothed problem is then
    :math:`\tfrac12 \|\nabla\|^2`.

    Besides the blocks, memory holds ``X``, a few floats for each row and class, and for each class a matrix
    of float64 of side ``min(n_samples, n_features)``. Products of blocks run in the precision of the
    features, sums over blocks in float64.

    Class weights multiply the loss of every row of that class in each of the one-against-rest problems.
    (`LinearSVC` weighs the rest by one.)

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
    feature space, eq. 7.17.

    S. S. Keerthi, D. DeCoste, A modified finite Newton method for fast solution of large scale linear SVMs,
    JMLR 6, 2005.

    O. Chapelle, Training a support vector machine in the primal, Neural Computation 19(5), 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.linear import LinearSVM
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> svm = LinearSVM(C=100.0).fit(X, [0, 0, 1, 1])
    >>> svm.coef_.round(2), svm.predict([[-0.5], [0.5]])
    (array([[1.]]), array([0, 1]))

    Features computed block by block from inputs that are smaller:

    >>> def squares(rows):
    ...     return np.hstack([rows, rows**2])
    >>> svm = LinearSVM(C=100.0).fit(X, [1, 0, 0, 1], feature_map=squares)
    >>> svm.predict(squares(X))
    array([1, 0, 0, 1])
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "C": [Interval(Real, 0, None, closed="neither")],
        "loss": [StrOptions({"squared_hinge", "hinge"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "fit_intercept": ["boolean"],
        "penalize_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "memory_limit": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        C: float = 1.0,
        loss: str = "squared_hinge",
        class_weight: dict[Any, float] | str | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        tol: float = 1e-4,
        max_iter: int = 100,
        memory_limit: int = 2**30,
    ) -> None:
        self.C = C
        self.loss = loss
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.penalize_intercept = penalize_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        feature_map: FeatureMap | None = None,
    ) -> Self:
        """Fit one plane for two classes, else one for each class against the rest.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_samples, p) with ``feature_map``
            Features, float32 or float64, or what they are made from.
        y : array-like of shape (n_samples,)
            Class of each row.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative factor on the loss of each row; a row of weight zero is left out.
        feature_map : callable, default=None
            Turns rows of ``X``, shape (b, p), into features of shape (b, n_features). It is called on
            blocks, several times on each row, so it must be a fixed function.

        Returns
        -------
        LinearSVM
            Itself.

        Raises
        ------
        InputError
            If fewer than two classes have rows of non-zero weight, one row of features exceeds
            ``memory_limit``, or ``feature_map`` returns anything but finite floats of shape (b, n_features).
        """
        dtypes = [np.float64, np.float32]
        if feature_map is None:
            X, y = validate_data(self, X, y, dtype=dtypes)
        else:
            X, y = check_X_y(X, y, dtype=dtypes)
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        rows = np.flatnonzero(weight)
        self.classes_, label = _two_or_more_classes(y[rows])
        weight[rows] *= compute_sample_weight(self.class_weight, y[rows])

        blocks = _Blocks(X, feature_map, self.memory_limit)
        self.n_features_in_ = blocks.n_features
        basis = None
        if rows.size < blocks.n_features:
            blocks, basis = _in_span_of_rows(blocks, rows)
            weight, rows = weight[rows], np.arange(rows.size)
            
        return self
