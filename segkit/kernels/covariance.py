"""Conditional covariance minimisation: weights of features for the best prediction of a target.

There are two forms of the `Objective`: exact with the n x n Gram matrix, and with random Fourier features for many
rows. Two solvers minimise it under the constraints of the problem, with the exact projection `project`.
`minimise_downwards` starts the better solver so that it avoids poor local minima.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from segkit.errors import ConfigError
from segkit.kernels.base import FloatArray, Gaussian, RandomGenerator
from segkit.kernels.fourier import fourier_map

Floats = NDArray[np.float64]

# Armijo's constant.
_SUFFICIENT_DECREASE = 1e-4
# Change of the weight with the largest derivative in a first step. It is small beside the range of weights, 0 to 1.
_FIRST_MOVE = 0.1
# Growth of the step length where the curvature is negative.
_BOLDER = 10.0
# Smallest fraction of a step to try: below it, rounding hides any decrease.
_SHORTEST = 2.0**-30
# Ratio of a bound on the sum of the weights to the bound before it, from all features down to m.
_TIGHTENING = 0.7


class Objective(Protocol):
    """A function of the feature weights, with its gradient."""

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Compute value and gradient at the weights `w`, of shape (n_features,), >= 0."""
        ...


class ExactObjective:
    r"""The conditional covariance objective, with the n x n Gram matrix of the Gaussian kernel."""

    def __init__(self, X: FloatArray, Y: FloatArray, sigma: float, epsilon: float) -> None:
        self._X = np.asarray(X, dtype=np.float64)
        self._Y = _centred(np.asarray(Y, dtype=np.float64))
        self._sigma = sigma
        self._ridge = len(X) * epsilon

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Compute value and gradient at the weights `w`, of shape (n_features,), >= 0."""
        active = np.flatnonzero(w)
        X = self._X[:, active]
        K = self._gram(X * w[active])
        # Centring the columns twice, with a transposition between, gives H K H.
        G = _centred(_centred(K).T)
        G.flat[:: len(G) + 1] += self._ridge
        M = cho_solve(cho_factor(G, overwrite_a=True), self._Y)
        P = K * (M @ M.T)
        # The sum over pairs of P_ab (x_a - x_b)^2, multiplied out: no array of all pairs and features is needed.
        spread = P.sum(axis=0) @ X**2 - np.einsum("aj,aj->j", X, P @ X)
        gradient = np.zeros(len(w))
        gradient[active] = 2 * w[active] / self._sigma**2 * spread
        return float(np.vdot(self._Y, M)), gradient

    def _gram(self, scaled: Floats) -> Floats:
        products = scaled @ scaled.T
        norms = products.diagonal()
        # Rounding may give negative squared distances.
        squared: Floats = np.maximum(norms[:, None] + norms - 2 * products, 0)
        return np.exp(squared / (-2 * self._sigma**2))


class RandomFeatureObjective:
    r"""The conditional covariance objective with random Fourier features of the Gaussian kernel."""

    def __init__(
        self,
        X: FloatArray,
        Y: FloatArray,
        sigma: float,
        epsilon: float,
        n_components: int,
        rng: RandomGenerator,
    ) -> None:
        if n_components < 2 or n_components % 2:
            raise ConfigError(
                f"n_components={n_components}: cosines and sines come in pairs; give an even number from 2 up"
            )
        # One row per feature: leaving features out then copies whole rows, which is fast.
        self._features = np.ascontiguousarray(X.T)
        self._Y = _centred(np.asarray(Y, dtype=np.float64))
        self._ridge = len(X) * epsilon
        kernel = Gaussian(1 / (2 * sigma**2))
        self._frequencies = kernel.frequencies(X.shape[1], n_components // 2, rng).astype(X.dtype)

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Compute value and gradient at the weights `w`, of shape (n_features,), >= 0."""
        active = np.flatnonzero(w)
        features, frequencies = self._features[active], self._frequencies[active]
        # Weight the frequencies in place of the rows: <w * x, omega> = <x, w * omega>, and there are fewer of them.
        Phi = fourier_map(features.T, w[active, None].astype(features.dtype) * frequencies)
        value, M, B = self._solve(Phi)
        gradient = np.zeros(len(w))
        gradient[active] = np.einsum(
            "jk,jk->j", frequencies, features @ _by_angle(Phi, M, B), dtype=np.float64
        )
        return value, gradient

    def _solve(self, Phi: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Compute the value, M and B of the class's notes, M and B in the precision of the features."""
        V = _centred(Phi)
        VtY = (V.T @ self._Y.astype(V.dtype)).astype(np.float64)
        A = (V.T @ V).astype(np.float64)
        A.flat[:: len(A) + 1] += self._ridge
        B = cho_solve(cho_factor(A, overwrite_a=True), VtY)
        value = (np.vdot(self._Y, self._Y) - np.vdot(VtY, B)) / self._ridge
        M = (self._Y - V @ B.astype(V.dtype)) / self._ridge
        return float(value), M.astype(V.dtype), B.astype(V.dtype)


def _by_angle(Phi: FloatArray, M: FloatArray, B: FloatArray) -> FloatArray:
    """Compute the derivative of the value by the angles; `Phi` holds their cosines and sines."""
    n_draws = Phi.shape[1] // 2
    cosines, sines = Phi[:, :n_draws], Phi[:, n_draws:]
    derivative: FloatArray = 2 * (sines * (M @ B[:n_draws].T) - cosines * (M @ B[n_draws:].T))
    return derivative


def _centred(columns: FloatArray) -> FloatArray:
    """Subtract the mean of each column; means are computed in float64."""
    centred: FloatArray = columns - columns.mean(axis=0, dtype=np.float64).astype(columns.dtype)
    return centred


def project(w: Floats, m: float) -> Floats:
    """Project onto the weights between 0 and 1 with sum at most m."""
    nearest: Floats = np.clip(w, 0, 1)
    if nearest.sum() <= m:
        return nearest
    low, high = 0.0, float(w.max())
    while low < (shift := (low + high) / 2) < high:
        if np.clip(w - shift, 0, 1).sum() > m:
            low = shift
        else:
            high = shift
    return np.clip(w - high, 0, 1)


class Minimum(NamedTuple):
    """Result of a solver."""

    weights: Floats
    history: list[float]
    n_iter: int
    converged: bool


def minimise(
    objective: Objective, start: Floats, m: float, *, max_iter: int = 100, tol: float = 1e-4
) -> Minimum:
    """Minimise over 0 <= w <= 1, sum w <= m by spectral projected gradient."""
    w = project(start, m)
    value, gradient = objective.value_and_gradient(w)
    history = [value]
    length = _FIRST_MOVE / (float(np.abs(gradient).max()) or 1.0)
    # The objective is positive, so a tolerance relative to its value makes sense.
    while True:
        direction = project(w - length * gradient, m) - w
        if -(gradient @ direction) <= tol * value:
            return Minimum(w, history, len(history), converged=True)
        if len(history) > max_iter:
            return Minimum(w, history, max_iter, converged=False)
        lower = _search(objective, w, value, direction, float(gradient @ direction))
        if lower is None:
            # No step lowers the objective by more than rounding: a minimum.
            return Minimum(w, history, len(history), converged=True)
        w_new, value, gradient_new = lower
        change = w_new - w
        curvature = change @ (gradient_new - gradient)
        length = float(change @ change / curvature) if curvature > 0 else _BOLDER * length
        w, gradient = w_new, gradient_new
        history.append(value)


def _search(
    objective: Objective, w: Floats, value: float, direction: Floats, slope: float
) -> tuple[Floats, float, Floats] | None:
    """Halve the step from w until the decrease suffices; returns point, value and gradient, or None."""
    share = 1.0
    while share > _SHORTEST:
        # Rounding may make a weight slightly negative.
        point = np.maximum(w + share * direction, 0)
        lower, gradient = objective.value_and_gradient(point)
        if lower <= value + _SUFFICIENT_DECREASE * share * slope:
            return point, lower, gradient
        share /= 2
    return None


def minimise_downwards(
    objective: Objective, n_features: int, bounds: Sequence[float], *, max_iter: int = 100, tol: float = 1e-4
) -> Iterator[Minimum]:
    """Minimise over 0 <= w <= 1, sum w <= m for decreasing m, each from the minimum before."""
    # Divided once, so that the first bound is all features.
    w, bound = np.ones(n_features), n_features / _TIGHTENING
    for m in bounds:
        history: list[float] = []
        n_iter = 0
        while True:
            bound = max(m, _TIGHTENING * bound)
            w, losses, steps, converged = minimise(objective, w, bound, max_iter=max_iter, tol=tol)
            history += losses
            n_iter += steps
            if bound == m:
                break
        yield Minimum(w, history, n_iter, converged)


def minimise_fixed_step(
    objective: Objective, start: Floats, m: float, *, max_iter: int = 100, learning_rate: float = 1e-3
) -> Minimum:
    """Take steps of projected gradient with a fixed length, as in the authors' code."""
    w = start
    value, gradient = objective.value_and_gradient(w)
    history = [value]
    for _ in range(max_iter):
        w = project(w - learning_rate * gradient, m)
        value, gradient = objective.value_and_gradient(w)
        history.append(value)
    return Minimum(w, history, max_iter, converged=True)
