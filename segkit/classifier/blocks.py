"""A linear support vector machine of rows that are never in one place: Newton's method on sums over blocks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from sklearn.exceptions import ConvergenceWarning

from segkit._common import Workers, add_up, one_by_one
from segkit.classifier.svm import LinearSVM
from segkit.errors import InputError

Floats = NDArray[np.float64]
# Features, (n, n_features), labels of +-1 and costs, (n,).
Rows = tuple[NDArray[Any], Floats, Floats]
_SHORTEST_STEP = 2.0**-20


@dataclass(frozen=True, eq=False)
class NewtonSums:
    """Loss, its gradient and its Hessian at a plane, summed over rows; sums of blocks are added by ``+``."""

    n_rows: int
    loss: float
    gradient: Floats
    hessian: Floats

    def __add__(self, other: NewtonSums) -> NewtonSums:
        return NewtonSums(
            self.n_rows + other.n_rows,
            self.loss + other.loss,
            self.gradient + other.gradient,
            self.hessian + other.hessian,
        )


class SumsAt:
    """Computes the sums of a block at a plane, where its rows are."""

    def __init__(self, load: Callable[[Any], Rows], theta: Floats) -> None:
        self.load, self.theta = load, theta

    def __call__(self, block: Any) -> NewtonSums:
        """Return the sums of a block."""
        X, sign, cost = self.load(block)
        slack = 1 - sign * (X @ self.theta[:-1] + self.theta[-1])
        active = slack > 0
        rows = np.column_stack([X[active], np.ones(active.sum())]).astype(np.float64)
        slack, sign, weight = slack[active], sign[active], cost[active]
        return NewtonSums(
            len(X),
            float(weight @ slack**2),
            -2 * (weight * sign * slack) @ rows,
            2 * (rows * weight[:, None]).T @ rows,
        )


def fit_blocks(
    load: Callable[[Any], Rows],
    blocks: Iterable[Any],
    n_features: int,
    *,
    C: float = 1.0,
    tol: float = 1e-8,
    max_iter: int = 100,
    workers: Workers = one_by_one,
) -> LinearSVM:
    """Fit the plane of two classes that `LinearSVM` of squared hinge fits to the rows of all blocks together."""
    listed: Sequence[Any] = list(blocks)
    if not listed:
        raise InputError("no block of rows is given: give one or more")
    theta = np.zeros(n_features + 1)
    ridge = np.append(np.ones(n_features), 0.0)

    def assess(plane: Floats) -> tuple[float, Floats, Floats]:
        sums = add_up(SumsAt(load, plane), listed, workers)
        objective = 0.5 * ridge @ plane**2 + C * sums.loss
        return float(objective), ridge * plane + C * sums.gradient, np.diag(ridge) + C * sums.hessian

    objective, gradient, hessian = assess(theta)
    for _ in range(max_iter):
        if 0.5 * gradient @ gradient <= tol * objective:
            break
        hessian[-1, -1] = max(hessian[-1, -1], np.finfo(np.float64).tiny ** 0.5)
        direction = -solve(hessian, gradient, assume_a="pos")
        step = 1.0
        while step > _SHORTEST_STEP:
            found = assess(theta + step * direction)
            if found[0] <= objective + 1e-4 * step * gradient @ direction:
                break
            step /= 2
        else:  # rounding hides any descent: this is the minimum
            break
        theta, (objective, gradient, hessian) = theta + step * direction, found
    else:
        warnings.warn(
            f"{max_iter} Newton steps were not enough: raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=2,
        )
    return LinearSVM.from_arrays(theta[None, :-1], theta[-1:])
