"""A linear support vector machine for many pixels, whose features are made block by block."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_X_y
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from segkit.classifier.newton import (
    FLOAT_TYPES,
    LOSSES,
    Blocks,
    FeatureMap,
    Problem,
    in_span_of_rows,
    solve,
    solve_again,
)
from segkit.errors import InputError, count


class LinearSVM(ClassifierMixin, BaseEstimator):
    r"""Linear support vector machine, solved in the primal by Newton's method over blocks of features.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses against the norm, ``C = 1 / (n lambda)`` in the paper's notation; positive.
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        Loss of a margin ``m``: ``max(0, 1 - m)**2`` or ``max(0, 1 - m)``.
    class_weight : dict, "balanced" or None, default=None
        Factor on the loss of the rows of each class; "balanced" is ``n / (n_classes * count)``.
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
    warm_start : bool, default=False
        Whether `fit` starts from the planes of the fit before, if classes and number of features are the same. The
        minimum is the same, up to `tol`; it takes fewer steps when few rows have changed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the rows of non-zero weight, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Normal of the separating plane, one row for two classes, else one against the rest for each.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    objective_ : ndarray of shape (1,) or (n_classes,), float64
        Value reached of the objective below.
    dual_gap_ : ndarray of shape (1,) or (n_classes,), float64
        Bound on the distance of the objective to its minimum.
    n_iter_ : int
        Newton steps on all rows.
    n_features_in_ : int
        Number of features, after ``feature_map`` if one was given.

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

    Probabilities: ``sklearn.calibration.CalibratedClassifierCV(LinearSVM())``.

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
    >>> from segkit.classifier.svm import LinearSVM
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
        "penalize_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "memory_limit": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        *,
        C: float = 1.0,
        loss: str = "squared_hinge",
        class_weight: dict[Any, float] | str | None = None,
        penalize_intercept: bool = False,
        tol: float = 1e-4,
        max_iter: int = 100,
        memory_limit: int = 2**30,
        warm_start: bool = False,
    ) -> None:
        self.C = C
        self.loss = loss
        self.class_weight = class_weight
        self.penalize_intercept = penalize_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.warm_start = warm_start

    @_fit_context(prefer_skip_nested_validation=True)
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
            Features, or inputs of ``feature_map``, float32 or float64.
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
            If fewer than two classes have rows of non-zero weight, one row of features exceeds ``memory_limit``, or
            ``feature_map`` returns anything but finite floats (b, n_features).
        """
        before = (self.classes_, self.coef_, self.intercept_) if hasattr(self, "coef_") else None
        blocks, basis, problems = self._pose(X, y, sample_weight, feature_map)
        is_warm = self.warm_start and before is not None and self._start_from(*before, problems, basis)
        self.n_iter_ = solve(blocks, problems, self.tol, self.max_iter, is_warm=is_warm)
        self._keep(problems, basis, blocks.dtype)
        return self

    def path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        Cs: Sequence[float],
        sample_weight: ArrayLike | None = None,
        *,
        feature_map: FeatureMap | None = None,
    ) -> list[Self]:
        """Fit at several values of ``C``, best rising, each from where the one before ended.

        Few rows cross the margin when ``C`` changes by a factor of three: one or two steps are then enough. Other arguments
        and errors are those of `fit`. Returns a copy of this estimator for each value, fitted to the same `tol` as by `fit`.

        Examples
        --------
        >>> from segkit.classifier.svm import LinearSVM
        >>> narrow, wide = LinearSVM().path([[-1.0], [1.0]], [0, 1], [1e-2, 100.0])
        >>> narrow.coef_.round(2), wide.coef_.round(2)
        (array([[0.04]]), array([[1.]]))
        """
        if not len(Cs):
            raise InputError("no value of C is given: give one or more")
        copies = [clone(self).set_params(C=C) for C in Cs]
        for copy in copies:
            copy._validate_params()
        blocks, basis, problems = copies[0]._pose(X, y, sample_weight, feature_map)
        for place, copy in enumerate(copies):
            if place == 0:
                copy.n_iter_ = solve(blocks, problems, self.tol, self.max_iter)
            else:
                factor = copy.C / copies[place - 1].C
                copy.n_iter_ = solve_again(blocks, problems, factor, self.tol, self.max_iter)
            for name in ("classes_", "n_features_in_", "feature_names_in_"):
                if hasattr(copies[0], name):
                    setattr(copy, name, getattr(copies[0], name))
            copy._keep(problems, basis, blocks.dtype)
        return copies

    def _pose(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        feature_map: FeatureMap | None,
    ) -> tuple[Blocks, NDArray[Any] | None, list[Problem]]:
        """Make blocks of features, the basis they are in (None: their own), and a problem for each plane."""
        # inputs of a feature map do not tell the number of features
        check = partial(validate_data, self) if feature_map is None else check_X_y
        rows, labels = check(X, y, dtype=FLOAT_TYPES)
        check_classification_targets(labels)
        weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        blocks = Blocks(rows, np.flatnonzero(weight), feature_map, self.memory_limit)
        self.n_features_in_ = blocks.n_features
        self.classes_, label = np.unique(labels[blocks.rows], return_inverse=True)
        if self.classes_.size < 2:
            raise InputError(
                f"rows of non-zero weight hold {count(self.classes_.size, 'class', 'classes')}: "
                "a classifier needs at least 2, annotate some of another class"
            )
        of_class = compute_sample_weight(self.class_weight, labels[blocks.rows])
        if not (of_class >= 0).all():
            raise InputError(f"class_weight={self.class_weight}: give no weight below 0")
        cost = self.C * weight[blocks.rows] * of_class

        basis = None
        if blocks.n_rows < blocks.n_features:
            blocks, basis = in_span_of_rows(blocks)
        positive = range(1, 2) if self.classes_.size == 2 else range(self.classes_.size)
        problems = [
            Problem(
                np.where(label == k, 1.0, -1.0),
                cost,
                blocks.n_features,
                loss=LOSSES[self.loss],
                free_intercept=not self.penalize_intercept,
            )
            for k in positive
        ]
        return blocks, basis, problems

    def _start_from(
        self,
        classes: NDArray[Any],
        coef: NDArray[Any],
        intercept: NDArray[Any],
        problems: list[Problem],
        basis: NDArray[Any] | None,
    ) -> bool:
        """Start the problems from earlier planes; returns whether these are of the same classes and features."""
        n_features = problems[0].theta.size - 1 if basis is None else len(basis)
        if not np.array_equal(classes, self.classes_) or coef.shape[1] != n_features:
            return False
        start = coef if basis is None else coef @ basis
        for problem, beta, b in zip(problems, start, intercept, strict=True):
            problem.theta[:-1], problem.theta[-1] = beta, b
        return True

    def _keep(self, problems: list[Problem], basis: NDArray[Any] | None, dtype: np.dtype[Any]) -> None:
        """Store the solutions as fitted attributes; warn of solutions that are not certified."""
        theta = np.array([problem.theta for problem in problems])
        coef = theta[:, :-1] if basis is None else theta[:, :-1] @ basis.T
        self.coef_ = coef.astype(dtype)
        self.intercept_ = theta[:, -1].astype(dtype)
        self.objective_ = np.array([problem.objective for problem in problems])
        self.dual_gap_ = np.array([problem.gap for problem in problems])
        worst = float(np.max(self.dual_gap_ / np.maximum(self.objective_, np.finfo(np.float64).tiny)))
        if worst > self.tol:
            warnings.warn(
                f"{self.n_iter_} Newton steps left a relative duality gap of {worst:.1e}, above "
                f"tol={self.tol:g}: raise max_iter or tol, or give float64 features",
                ConvergenceWarning,
                stacklevel=3,
            )

    @classmethod
    def from_arrays(cls, coef: ArrayLike, intercept: ArrayLike) -> Self:
        """Restore a classifier of classes 0, 1, ... from its planes; other fitted attributes are absent."""
        svm = cls()
        svm.coef_, svm.intercept_ = np.asarray(coef), np.asarray(intercept)
        if svm.coef_.ndim != 2 or svm.intercept_.shape != svm.coef_.shape[:1]:
            raise InputError(
                f"planes of shape {svm.coef_.shape}, offsets of shape {svm.intercept_.shape}: give (n_planes, n_features) "
                f"and (n_planes,)"
            )
        svm.classes_ = np.arange(max(2, len(svm.coef_)))
        svm.n_features_in_ = svm.coef_.shape[1]
        return svm

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Compute signed distances to the planes, in units of the margin; float32 for float32 features.

        They are (n_samples,), positive for ``classes_[1]``, or (n_samples, n_classes).
        """
        check_is_fitted(self)
        features = validate_data(self, X, dtype=FLOAT_TYPES, reset=False)
        dtype = features.dtype
        decisions = features @ self.coef_.T.astype(dtype) + self.intercept_.astype(dtype)
        return cast(NDArray[Any], decisions[:, 0] if len(self.coef_) == 1 else decisions)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classify samples by the sign of the decision, or by the largest of several."""
        decisions = self.decision_function(X)
        label = (decisions > 0).astype(np.intp) if decisions.ndim == 1 else decisions.argmax(axis=1)
        return cast(NDArray[Any], self.classes_[label])
