"""Support vector machines in the primal: exact Newton steps, features made block by block.

Both losses are piecewise quadratic in the margin, so between two kinks Newton's method is exact and a
handful of steps suffices. A step is cheap:

* the Hessian is a sum over the rows inside the quadratic piece of the loss (the active rows); from one
  step to the next it changes only by the rows that entered or left;
* the first steps run on a random subsample, then on four times as many rows, and so on, so that few rows
  enter or leave once all rows are in;
* each row keeps its decision, so a step needs the features once for the change of the decisions and once
  more for the rows that entered or left, and nothing of size (n_samples, n_features) is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr
from sklearn.utils import check_array

from segkit.errors import InputError

Floats = NDArray[np.float64]
FLOAT_TYPES = [np.float64, np.float32]
FeatureMap = Callable[[NDArray[Any]], NDArray[Any]]

# Longer blocks are no faster, and a float32 product over more rows is less exact.
LONGEST_BLOCK = 8192
# Features of a block, the copy of its active rows, and the feature map's temporary arrays.
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


class Blocks:
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
        """Compute decisions (n_positions, K) of K planes, given as the columns (beta, b) of `theta`."""
        out = np.empty((positions.size, theta.shape[1]))
        beta = theta[:-1].astype(self.dtype)
        with np.errstate(invalid="ignore", over="ignore"):  # the check below says it in words
            for part, features in self(positions):
                out[part] = features @ beta
        out += theta[-1]
        self.check_finite(out)
        return out

    def check_finite(self, made: NDArray[Any]) -> None:
        """Check numbers computed from features; X itself is finite."""
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


def in_span_of_rows(blocks: Blocks) -> tuple[Blocks, NDArray[Any]]:
    """Compute the coordinates of fewer rows than features in an orthonormal basis of their span, and the basis."""
    # The optimal beta lies in that span and the rotation keeps all norms, so it is the same problem.
    features = np.empty((blocks.n_rows, blocks.n_features), dtype=blocks.dtype)
    for part, block in blocks(np.arange(blocks.n_rows)):
        features[part] = block
    blocks.check_finite(features)
    basis, coordinates = qr(features.T, mode="economic", overwrite_a=True)
    rotated = np.ascontiguousarray(coordinates.T)
    return Blocks(rotated, np.arange(blocks.n_rows), None, blocks.memory_limit), basis


class Loss(NamedTuple):
    """Loss of the slack ``r = 1 - margin``: zero, a parabola over ``0 < r < width``, a line of slope 1.

    An infinite width is the squared hinge ``r**2``, a finite one the hinge smoothed over that width.
    """

    width: float

    @property
    def curvature(self) -> float:
        """Second derivative of the parabola."""
        return 1 / self.width if np.isfinite(self.width) else 2.0

    def zone(self, slack: Floats) -> NDArray[np.int8]:
        """Return which piece each slack is on: OUTSIDE, QUADRATIC or LINEAR."""
        return (slack > 0).astype(np.int8) + (slack >= self.width)

    def slope(self, slack: Floats) -> Floats:
        """Compute the first derivative."""
        return self.curvature * np.clip(slack, 0, self.width)

    def exact(self, slack: Floats) -> Floats:
        """Evaluate the loss without smoothing."""
        return np.maximum(slack, 0) ** (1 if np.isfinite(self.width) else 2)

    def smoothing_gap(self, slack: Floats) -> Floats:
        """Compute the gap of the Fenchel-Young inequality between the exact loss and the dual point ``slope``."""
        if not np.isfinite(self.width):
            return np.zeros_like(slack)
        return self.exact(slack) - self.slope(slack) * slack


LOSSES = {"squared_hinge": Loss(np.inf), "hinge": Loss(WIDEST)}


class Sample(NamedTuple):
    """The rows solved for at the moment, and the factor that makes their losses stand for all."""

    rows: NDArray[np.intp]
    scale: float


class Problem:
    """One two-class problem: the current plane, and the sums that Newton's method needs there.

    The plane is ``theta = (beta, b)`` on features with a 1 appended. `hessian` sums ``cost * phi phi^T`` over the
    rows in the quadratic zone, the two columns of `pull` sum ``cost * y * phi`` over the quadratic and the linear zone.
    """

    def __init__(
        self,
        sign: Floats,
        cost: Floats,
        n_features: int,
        *,
        loss: Loss,
        free_intercept: bool,
    ) -> None:
        self.sign, self.cost, self.loss = sign, cost, loss
        self.first_loss = loss
        self.free_intercept = free_intercept
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
        """Take in rows with their decisions; the lower bound without them no longer holds."""
        self.slack[rows] = 1 - self.sign[rows] * decisions
        self.lower_bound = -np.inf

    def reweigh(self, factor: float) -> None:
        """Multiply all costs by a factor, smooth as at first, and begin the sums anew, free of rounding."""
        self.cost = factor * self.cost
        self.loss, self.lower_bound = self.first_loss, -np.inf
        self.zone[:], self.hessian[:], self.pull[:] = OUTSIDE, 0, 0

    def target_zone(self, sample: Sample) -> NDArray[np.int8]:
        """Find the zones that the slacks ask for; forget the Hessian where building it anew is cheaper."""
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
            self.pull[-1, column] += moved.sum()
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
        weighted[:, -1] = 1
        weighted *= root[:, None].astype(features.dtype)
        with np.errstate(over="ignore"):  # the check below says it in words
            gram = weighted.T @ weighted
        if not np.isfinite(gram).all():
            raise _out_of_range(gram)
        return gram

    def gradient(self, sample: Sample) -> Floats:
        """Compute the gradient of the smoothed objective."""
        parabola = self.hessian @ self.theta - self.pull[:, 0]
        return self.ridge * self.theta + sample.scale * (self.loss.curvature * parabola - self.pull[:, 1])

    def assess(self, sample: Sample) -> None:
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
        """Bound on how far the objective is above its minimum: the duality gap."""
        return self.objective - self.lower_bound

    def narrow(self) -> None:
        """Smooth less once the smoothing dominates the gap."""
        # At the optimum the slacks inside the parabola are proportional to its width, so the rows there will stay: the
        # next step is taken before any changes zone.
        if self.narrowing_due:
            self.loss = Loss(NARROWING * self.loss.width)

    def direction(self, sample: Sample) -> Floats:
        """Compute Newton's direction."""
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

    def move(self, sample: Sample, direction: Floats, decisions: Floats) -> None:
        """Go along `direction`, which changes the decisions by `decisions`, to the lowest point."""
        towards = self.sign[sample.rows] * decisions
        linear = float(self.ridge * self.theta @ direction)
        step = self._line_minimum(sample, towards, linear, float(self.ridge @ direction**2))
        self.theta += step * direction
        self.slack[sample.rows] -= step * towards

    def centre(self, sample: Sample) -> None:
        """Minimise over a free intercept alone; the dual point then satisfies its constraint."""
        if self.free_intercept:
            sign, cost = self.sign[sample.rows], self.cost[sample.rows]
            up = np.sign((cost * sign) @ self.loss.slope(self.slack[sample.rows]))
            step = up * self._line_minimum(sample, up * sign, 0.0, 0.0)
            self.theta[-1] += step
            self.slack[sample.rows] -= step * sign

    def _line_minimum(self, sample: Sample, towards: Floats, linear: float, quadratic: float) -> float:
        """Find the t >= 0 that minimises ``linear t + quadratic t^2 / 2 + sum cost loss(slack - t towards)``."""
        # The derivative is piecewise linear and increasing: Newton's method finds its zero in a few evaluations,
        # bisection keeps it from cycling.
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


def solve(
    blocks: Blocks, problems: list[Problem], tol: float, max_iter: int, *, is_warm: bool = False
) -> int:
    """Solve on growing random subsamples (from a warm start on all rows at once); returns the steps on all rows."""
    order = np.random.default_rng(0).permutation(blocks.n_rows)
    size, steps = 0, 0
    for larger in [blocks.n_rows] if is_warm else _sample_sizes(blocks.n_rows, blocks.n_features):
        added = np.sort(order[size:larger])
        decisions = blocks.decisions(added, np.column_stack([problem.theta for problem in problems]))
        for problem, column in zip(problems, decisions.T, strict=True):
            problem.add_rows(added, column)
        size = larger
        sample = Sample(np.sort(order[:size]), blocks.n_rows / size)
        steps = _newton(
            blocks, problems, sample, tol if size == blocks.n_rows else max(tol, SUBSAMPLE_TOL), max_iter
        )
    return steps


def solve_again(blocks: Blocks, problems: list[Problem], factor: float, tol: float, max_iter: int) -> int:
    """Multiply all losses of solved problems by a factor and solve them from where they are."""
    for problem in problems:
        problem.reweigh(factor)
    return _newton(blocks, problems, Sample(np.arange(blocks.n_rows), 1.0), tol, max_iter)


def _sample_sizes(n_rows: int, n_features: int) -> list[int]:
    sizes = [n_rows]
    while sizes[-1] > GROWTH * FIRST_ROWS_PER_FEATURE * n_features:
        sizes.append(sizes[-1] // GROWTH)
    return sizes[::-1]


def _newton(blocks: Blocks, problems: list[Problem], sample: Sample, tol: float, max_iter: int) -> int:
    """Take Newton steps on all problems at once until their relative gaps are below `tol`."""
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


def _take_step(blocks: Blocks, problems: list[Problem], sample: Sample) -> None:
    for problem in problems:
        problem.narrow()
    directions = np.column_stack([problem.direction(sample) for problem in problems])
    decisions = blocks.decisions(sample.rows, directions)
    for problem, direction, change in zip(problems, directions.T, decisions.T, strict=True):
        problem.move(sample, direction, change)
        problem.centre(sample)


def _update_sums(blocks: Blocks, problems: list[Problem], sample: Sample) -> None:
    """Bring Hessians and gradients up to date; only rows that changed zone are looked at."""
    targets = [problem.target_zone(sample) for problem in problems]
    changed = [
        np.flatnonzero(target != problem.zone) for problem, target in zip(problems, targets, strict=True)
    ]
    rows = np.unique(np.concatenate(changed))
    for part, features in blocks(rows):
        for problem, target in zip(problems, targets, strict=True):
            problem.absorb(features, rows[part], target)
