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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_X_y
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from segkit.errors import InputError

Floats = NDArray[np.float64]
FLOAT_TYPES = [np.float64, np.float32]
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
NARROWING = 0.4

OUTSIDE, QUADRATIC, LINEAR = 0, 1, 2


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
        blocks, basis, problems = self._pose(X, y, sample_weight, feature_map)
        self.n_iter_ = _solve(blocks, problems, self.tol, self.max_iter)
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
        """Fit at several values of ``C``, each from where the one before ended.

        Few rows cross the margin when ``C`` changes by a factor of three: one or two steps are enough then, and
        only the rows inside the margin are looked at.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_samples, p) with ``feature_map``
            As in `fit`.
        y : array-like of shape (n_samples,)
            Class of each row.
        Cs : sequence of float
            Values of ``C``, positive; best rising.
        sample_weight : array-like of shape (n_samples,), default=None
            As in `fit`.
        feature_map : callable, default=None
            As in `fit`.

        Returns
        -------
        list of LinearSVM
            A copy of this estimator for each value, fitted to the same `tol` as `fit` would.

        Raises
        ------
        InputError
            As `fit`, and if no value is given.

        Examples
        --------
        >>> from segkit.linear import LinearSVM
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
        all_rows = _Sample(np.arange(blocks.n_rows), 1.0)
        for place, copy in enumerate(copies):
            if place == 0:
                copy.n_iter_ = _solve(blocks, problems, self.tol, self.max_iter)
            else:
                for problem in problems:
                    problem.reweigh(copy.C / copies[place - 1].C)
                copy.n_iter_ = _newton(blocks, problems, all_rows, self.tol, self.max_iter)
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
    ) -> tuple[_Blocks, NDArray[Any] | None, list[_Problem]]:
        """Blocks of features, the basis they are in (None: their own), and a problem for each plane."""
        X, y = self._validate(X, y, is_input=feature_map is not None)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        blocks = _Blocks(X, np.flatnonzero(weight), feature_map, self.memory_limit)
        self.n_features_in_ = blocks.n_features
        self.classes_, label = _two_or_more_classes(y[blocks.rows])
        of_class = compute_sample_weight(self.class_weight, y[blocks.rows])
        if not (of_class >= 0).all():
            raise InputError(f"class_weight={self.class_weight}: give no weight below 0")
        cost = self.C * weight[blocks.rows] * of_class

        basis = None
        if blocks.n_rows < blocks.n_features:
            blocks, basis = _in_span_of_rows(blocks)
        positive = range(1, 2) if self.classes_.size == 2 else range(self.classes_.size)
        problems = [
            _Problem(
                np.where(label == k, 1.0, -1.0),
                cost,
                blocks.n_features,
                loss=_Loss(np.inf if self.loss == "squared_hinge" else WIDEST),
                constant=float(self.fit_intercept),
                free_intercept=self.fit_intercept and not self.penalize_intercept,
            )
            for k in positive
        ]
        return blocks, basis, problems

    def _validate(self, X: ArrayLike, y: ArrayLike, *, is_input: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """Check rows and labels; what a feature map takes in says nothing of the number of features."""
        check = check_X_y if is_input else partial(validate_data, self)
        X_checked, y_checked = check(X, y, dtype=FLOAT_TYPES)
        check_classification_targets(y_checked)
        return X_checked, y_checked

    def _keep(self, problems: list[_Problem], basis: NDArray[Any] | None, dtype: np.dtype[Any]) -> None:
        """Store the solutions as fitted attributes and warn of those that are not certified."""
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
        """Restore a classifier of classes 0, 1, ... from its planes.

        Parameters
        ----------
        coef : array-like of shape (1, n_features) or (n_classes, n_features)
            ``coef_`` of the fitted one.
        intercept : array-like of shape (1,) or (n_classes,)
            ``intercept_`` of the fitted one.

        Returns
        -------
        LinearSVM
            Ready to predict; what else `fit` leaves behind is not there.
        """
        svm = cls()
        svm.coef_, svm.intercept_ = np.asarray(coef), np.asarray(intercept)
        svm.classes_ = np.arange(max(2, len(svm.coef_)))
        svm.n_features_in_ = svm.coef_.shape[1]
        return svm

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Signed distances to the plane, in units of the margin.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Decisions; for two classes positive means ``classes_[1]``. float32 for float32 features.
        """
        check_is_fitted(self)
        features = validate_data(self, X, dtype=FLOAT_TYPES, reset=False)
        dtype = features.dtype
        decisions = features @ self.coef_.T.astype(dtype) + self.intercept_.astype(dtype)
        return cast(NDArray[Any], decisions[:, 0] if len(self.coef_) == 1 else decisions)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of the sign of the decision, or of the largest decision.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        decisions = self.decision_function(X)
        label = (decisions > 0).astype(np.intp) if decisions.ndim == 1 else decisions.argmax(axis=1)
        return cast(NDArray[Any], self.classes_[label])


def _two_or_more_classes(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Distinct labels, and the number of each row's label."""
    classes, label = np.unique(y, return_inverse=True)
    if classes.size < 2:
        raise InputError(
            f"rows of non-zero weight hold {classes.size} class{'' if classes.size == 1 else 'es'}: "
            "a classifier needs at least 2, annotate some of another class"
        )
    return classes, label


class _Blocks:
    """Features of the rows in use, made a block at a time."""

    def __init__(
        self,
        X: NDArray[Any],
        rows: NDArray[np.intp],
        feature_map: FeatureMap | None,
        memory_limit: int,
    ) -> None:
        self.X, self.rows, self.feature_map = X, rows, feature_map
        example = check_array(self._features(X[:1]), dtype=FLOAT_TYPES)
        self.n_rows, self.n_features, self.dtype = rows.size, example.shape[1], example.dtype
        self.memory_limit = memory_limit
        self.length = min(LONGEST_BLOCK, memory_limit // (ARRAYS_PER_BLOCK * example.nbytes))
        if not self.length:
            raise InputError(
                f"memory_limit={memory_limit} bytes: one row of {self.n_features} features takes "
                f"{ARRAYS_PER_BLOCK * example.nbytes}, give room for 1,000 or more"
            )

    def _features(self, X: NDArray[Any]) -> NDArray[Any]:
        if self.feature_map is None:
            return X
        features = np.asarray(self.feature_map(X))
        if features.ndim != 2 or len(features) != len(X):
            raise InputError(
                f"feature_map turned rows of shape {X.shape} into {features.shape}: "
                f"it must return ({len(X)}, n_features)"
            )
        return features

    def __call__(self, positions: NDArray[np.intp]) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield slices of the ascending `positions` among the rows in use, each with its features."""
        for start in range(0, positions.size, self.length):
            part = slice(start, start + self.length)
            rows = self.rows[positions[part]]
            adjacent = rows[-1] - rows[0] == rows.size - 1
            yield part, self._features(self.X[rows[0] : rows[-1] + 1] if adjacent else self.X[rows])

    def decisions(self, positions: NDArray[np.intp], theta: Floats) -> Floats:
        """Decisions (n_positions, K) of K planes, given as the columns (beta, b) of `theta`."""
        out = np.empty((positions.size, theta.shape[1]))
        beta = theta[:-1].astype(self.dtype)
        with np.errstate(invalid="ignore", over="ignore"):  # the check below says it in words
            for part, features in self(positions):
                out[part] = features @ beta
        out += theta[-1]
        self.check_finite(out)
        return out

    def check_finite(self, made: NDArray[Any]) -> None:
        """Check what was made of features, X itself being finite."""
        if np.isfinite(made).all():
            return
        if self.feature_map is not None:
            raise InputError("feature_map returned NaN or infinity: it must return finite floats")
        raise _out_of_range(made)


def _out_of_range(made: NDArray[Any]) -> InputError:
    return InputError(
        f"numbers grew beyond the range of {made.dtype}: scale the features, for example with StandardScaler, "
        f"or choose a smaller C"
    )


def _in_span_of_rows(blocks: _Blocks) -> tuple[_Blocks, NDArray[Any]]:
    """Coordinates of fewer rows than features in an orthonormal basis of their span, and the basis.

    The optimal beta lies in that span and the rotation keeps all norms, so it is the same problem.
    """
    features = np.empty((blocks.n_rows, blocks.n_features), dtype=blocks.dtype)
    for part, block in blocks(np.arange(blocks.n_rows)):
        features[part] = block
    blocks.check_finite(features)
    basis, coordinates = qr(features.T, mode="economic", overwrite_a=True)
    rotated = np.ascontiguousarray(coordinates.T)
    return _Blocks(rotated, np.arange(blocks.n_rows), None, blocks.memory_limit), basis


class _Loss(NamedTuple):
    """Loss of the slack ``r = 1 - margin``: zero, a parabola over ``0 < r < width``, a line of slope 1.

    An infinite width is the squared hinge ``r**2``, a finite one the hinge smoothed over that width.
    """

    width: float

    @property
    def curvature(self) -> float:
        return 1 / self.width if np.isfinite(self.width) else 2.0

    def zone(self, slack: Floats) -> NDArray[np.int8]:
        return (slack > 0).astype(np.int8) + (slack >= self.width)

    def slope(self, slack: Floats) -> Floats:
        return self.curvature * np.clip(slack, 0, self.width)

    def exact(self, slack: Floats) -> Floats:
        """Evaluate the loss without smoothing."""
        return np.maximum(slack, 0) ** (1 if np.isfinite(self.width) else 2)

    def smoothing_gap(self, slack: Floats) -> Floats:
        """Gap of the Fenchel-Young inequality between the exact loss and the dual point ``slope``."""
        if not np.isfinite(self.width):
            return np.zeros_like(slack)
        return self.exact(slack) - self.slope(slack) * slack


class _Sample(NamedTuple):
    """The rows solved for at the moment, and the factor that makes their losses stand for all."""

    rows: NDArray[np.intp]
    scale: float


class _Problem:
    """One two-class problem: the plane so far and what Newton's method knows around it.

    The plane is ``theta = (beta, b)`` on features with a `constant` appended. `hessian` sums
    ``cost * phi phi^T`` over the rows in the quadratic zone, the two columns of `pull` sum
    ``cost * y * phi`` over the quadratic and over the linear zone.
    """

    def __init__(
        self,
        sign: Floats,
        cost: Floats,
        n_features: int,
        *,
        loss: _Loss,
        constant: float,
        free_intercept: bool,
    ) -> None:
        self.sign, self.cost, self.loss = sign, cost, loss
        self.first_loss = loss
        self.constant, self.free_intercept = constant, free_intercept
        self.theta = np.zeros(n_features + 1)
        self.ridge = np.ones(n_features + 1)
        self.ridge[-1] = not free_intercept
        self.slack = np.ones(sign.size)
        self.zone = np.zeros(sign.size, dtype=np.int8)
        self.hessian = np.zeros((n_features + 1, n_features + 1))
        self.pull = np.zeros((n_features + 1, 2))
        self.objective, self.lower_bound = np.inf, -np.inf
        self.narrowing_due = False

    def add_rows(self, rows: NDArray[np.intp], decisions: Floats) -> None:
        """Take in rows with their decisions; what was certified without them no longer holds."""
        self.slack[rows] = 1 - self.sign[rows] * decisions
        self.lower_bound = -np.inf

    def reweigh(self, factor: float) -> None:
        """Multiply all costs by a factor, smooth as at first, and begin the sums anew, free of rounding."""
        self.cost = factor * self.cost
        self.loss, self.lower_bound = self.first_loss, -np.inf
        self.zone[:], self.hessian[:], self.pull[:] = OUTSIDE, 0, 0

    def target_zone(self, sample: _Sample) -> NDArray[np.int8]:
        """Zones that the slacks ask for; forgets the Hessian where building it anew is cheaper."""
        target = np.zeros_like(self.zone)
        target[sample.rows] = self.loss.zone(self.slack[sample.rows])
        was, will = self.zone == QUADRATIC, target == QUADRATIC
        if np.count_nonzero(was != will) > np.count_nonzero(will):
            self.zone[was], self.hessian[:], self.pull[:, 0] = OUTSIDE, 0, 0
        return target

    def absorb(self, features: NDArray[Any], rows: NDArray[np.intp], target: NDArray[np.int8]) -> None:
        """Move `rows`, whose features are given, to their `target` zones."""
        cost, old, new = self.cost[rows], self.zone[rows], target[rows]
        for zone, column in ((QUADRATIC, 0), (LINEAR, 1)):
            moved = cost * self.sign[rows] * ((new == zone).astype(np.float64) - (old == zone))
            self.pull[:-1, column] += moved.astype(features.dtype) @ features
            self.pull[-1, column] += self.constant * moved.sum()
        self.hessian += self._gram(features, cost, (new == QUADRATIC) & (old != QUADRATIC))
        self.hessian -= self._gram(features, cost, (new != QUADRATIC) & (old == QUADRATIC))
        self.zone[rows] = new

    def _gram(self, features: NDArray[Any], cost: Floats, chosen: NDArray[np.bool_]) -> NDArray[Any] | float:
        """Sum of ``cost * phi phi^T`` over the chosen rows."""
        index = np.flatnonzero(chosen)
        if not index.size:
            return 0.0
        root = np.sqrt(cost[index])
        weighted = np.empty((index.size, features.shape[1] + 1), dtype=features.dtype)
        weighted[:, :-1] = features[index]
        weighted[:, -1] = self.constant
        weighted *= root[:, None].astype(features.dtype)
        with np.errstate(over="ignore"):  # the check below says it in words
            gram = weighted.T @ weighted
        if not np.isfinite(gram).all():
            raise _out_of_range(gram)
        return gram

    def gradient(self, sample: _Sample) -> Floats:
        """Gradient of the smoothed objective."""
        parabola = self.hessian @ self.theta - self.pull[:, 0]
        return self.ridge * self.theta + sample.scale * (self.loss.curvature * parabola - self.pull[:, 1])

    def assess(self, sample: _Sample) -> None:
        """Compute the objective and how far it may be above its minimum."""
        gradient = self.gradient(sample)
        slack, cost = self.slack[sample.rows], sample.scale * self.cost[sample.rows]
        self.objective = float(0.5 * self.ridge @ self.theta**2 + cost @ self.loss.exact(slack))
        newton_gap = float(0.5 * gradient @ gradient)
        smoothing_gap = float(cost @ self.loss.smoothing_gap(slack))
        self.narrowing_due = newton_gap < smoothing_gap
        self.lower_bound = max(self.lower_bound, self.objective - newton_gap - smoothing_gap)

    @property
    def gap(self) -> float:
        return self.objective - self.lower_bound

    def narrow(self) -> None:
        """Smooth less once smoothing is what keeps the gap open.

        At the optimum the slacks inside the parabola are proportional to its width, so the rows there
        will stay: the next step is taken before any changes zone.
        """
        if self.narrowing_due:
            self.loss = _Loss(NARROWING * self.loss.width)

    def direction(self, sample: _Sample) -> Floats:
        """Newton's direction."""
        matrix = sample.scale * self.loss.curvature * self.hessian
        diagonal = np.einsum("ii->i", matrix)
        rounding = np.finfo(np.float32).eps * diagonal.max()
        diagonal += self.ridge
        if not diagonal[-1]:  # a free intercept that no row bends is at its minimum already
            diagonal[-1] = 1
        extra = np.sqrt(diagonal.size) * max(rounding, np.finfo(np.float32).tiny)
        while True:
            try:
                factor = cho_factor(matrix, lower=True, check_finite=False)
                break
            except LinAlgError:  # float32 products are positive definite only up to rounding
                diagonal += extra
                extra *= 10
        return -cast(Floats, cho_solve(factor, self.gradient(sample), check_finite=False))

    def move(self, sample: _Sample, direction: Floats, decisions: Floats) -> None:
        """Go along `direction`, which changes the decisions by `decisions`, to the lowest point."""
        towards = self.sign[sample.rows] * decisions
        linear = float(self.ridge * self.theta @ direction)
        step = self._line_minimum(sample, towards, linear, float(self.ridge @ direction**2))
        self.theta += step * direction
        self.slack[sample.rows] -= step * towards

    def centre(self, sample: _Sample) -> None:
        """Minimise over a free intercept alone; the dual point then satisfies its constraint."""
        if self.free_intercept:
            sign, cost = self.sign[sample.rows], self.cost[sample.rows]
            up = np.sign((cost * sign) @ self.loss.slope(self.slack[sample.rows]))
            step = up * self._line_minimum(sample, up * sign, 0.0, 0.0)
            self.theta[-1] += step
            self.slack[sample.rows] -= step * sign

    def _line_minimum(self, sample: _Sample, towards: Floats, linear: float, quadratic: float) -> float:
        """Step t >= 0 that minimises ``linear t + quadratic t^2 / 2 + sum cost loss(slack - t towards)``.

        The derivative is piecewise linear and increasing: Newton's method finds its zero in a few
        evaluations, bisection keeps it from cycling.
        """
        slack, cost = self.slack[sample.rows], sample.scale * self.cost[sample.rows] * towards
        low, high, step, first = 0.0, np.inf, 0.0, 0.0
        for _ in range(100):
            rest = slack - step * towards
            derivative = linear + quadratic * step - float(cost @ self.loss.slope(rest))
            first = first or abs(derivative)
            if abs(derivative) <= 1e-10 * first or (derivative > 0 and step == 0):
                break
            low, high = (step, high) if derivative < 0 else (low, step)
            bent = self.loss.zone(rest) == QUADRATIC
            bend = quadratic + self.loss.curvature * float(cost[bent] @ towards[bent])
            step = step - derivative / bend if bend > 0 else np.inf
            if not low < step < high:
                step = (low + high) / 2 if np.isfinite(high) else 2 * low + 1
        return step


def _solve(blocks: _Blocks, problems: list[_Problem], tol: float, max_iter: int) -> int:
    """Solve on growing random subsamples, then on all rows; return the steps taken there."""
    order = np.random.default_rng(0).permutation(blocks.n_rows)
    size, steps = 0, 0
    for larger in _sample_sizes(blocks.n_rows, blocks.n_features):
        added = np.sort(order[size:larger])
        decisions = blocks.decisions(added, np.column_stack([problem.theta for problem in problems]))
        for problem, column in zip(problems, decisions.T, strict=True):
            problem.add_rows(added, column)
        size = larger
        sample = _Sample(np.sort(order[:size]), blocks.n_rows / size)
        steps = _newton(
            blocks, problems, sample, tol if size == blocks.n_rows else max(tol, SUBSAMPLE_TOL), max_iter
        )
    return steps


def _sample_sizes(n_rows: int, n_features: int) -> list[int]:
    sizes = [n_rows]
    while sizes[-1] > GROWTH * FIRST_ROWS_PER_FEATURE * n_features:
        sizes.append(sizes[-1] // GROWTH)
    return sizes[::-1]


def _newton(blocks: _Blocks, problems: list[_Problem], sample: _Sample, tol: float, max_iter: int) -> int:
    """Newton's method on all problems at once until their relative gaps are below `tol`."""
    for problem in problems:
        problem.centre(sample)
    for step in range(max_iter + 1):
        _update_sums(blocks, problems, sample)
        for problem in problems:
            problem.assess(sample)
        problems = [problem for problem in problems if problem.gap > tol * problem.objective]
        if not problems:
            return step
        if step < max_iter:
            _take_step(blocks, problems, sample)
    return max_iter


def _take_step(blocks: _Blocks, problems: list[_Problem], sample: _Sample) -> None:
    for problem in problems:
        problem.narrow()
    directions = np.column_stack([problem.direction(sample) for problem in problems])
    decisions = blocks.decisions(sample.rows, directions)
    for problem, direction, change in zip(problems, directions.T, decisions.T, strict=True):
        problem.move(sample, direction, change)
        problem.centre(sample)


def _update_sums(blocks: _Blocks, problems: list[_Problem], sample: _Sample) -> None:
    """Bring Hessians and gradients up to date; only rows that changed zone are looked at."""
    targets = [problem.target_zone(sample) for problem in problems]
    changed = [
        np.flatnonzero(target != problem.zone) for problem, target in zip(problems, targets, strict=True)
    ]
    rows = np.unique(np.concatenate(changed))
    for part, features in blocks(rows):
        for problem, target in zip(problems, targets, strict=True):
            problem.absorb(features, rows[part], target)
