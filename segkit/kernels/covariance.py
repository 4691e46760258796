"""Conditional covariance minimisation: how well features, each with a weight, predict a target.

Two objectives with one face, `Objective`: exact, on the n x n Gram matrix, and with random Fourier
features, for many rows. Two solvers of the problem under its constraints, both on the exact `project`.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from segkit.errors import ConfigError
from segkit.kernels.base import FloatArray, Gaussian, RandomGenerator
from segkit.kernels.fourier import fourier_map

Floats = NDArray[np.float64]

# Armijo's constant, and the number of losses the next one is compared with (Birgin et al.).
SUFFICIENT_DECREASE = 1e-4
MEMORY = 10
# No step moves more than this share of the total weight: a weight that reaches 0 stays there, so a bold
# first step would decide by the gradient at the start alone.
BOLDEST = 0.1
SHORTEST = 2.0**-40


class Objective(Protocol):
    """A function of the feature weights, with its gradient."""

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Value and gradient at the weights `w`, of shape (n_features,), >= 0."""
        ...


class ExactObjective:
    r"""The conditional covariance objective, with the n x n Gram matrix of the Gaussian kernel.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Standardised rows.
    Y : ndarray of shape (n_samples, n_targets)
        Targets: one-hot columns, or one column of numbers; centred here.
    sigma : float
        Bandwidth of the kernel, > 0, in units of `X`.
    epsilon : float
        Ridge, > 0, for each sample.

    Notes
    -----
    With :math:`H = I - 11^T/n` and :math:`k(x, z) = \exp(-\|w \odot x - w \odot z\|^2 / 2\sigma^2)`,

    .. math:: f(w) = \mathrm{Tr}\,[Y^T (H K_w H + n \epsilon I)^{-1} Y].

    (The paper prints :math:`d\epsilon`.) With :math:`M = (H K_w H + n \epsilon I)^{-1} Y`, which is
    centred as `Y` is, and :math:`P = K_w \odot M M^T`,

    .. math:: \partial f / \partial w_j = \frac{w_j}{\sigma^2} \sum_{ab} P_{ab} (x_{aj} - x_{bj})^2.

    So the derivative is 0 where the weight is 0, and such features are left out of every product.
    All is float64.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
    feature space, eq. 7.14-7.15.

    J. Chen, M. Stern, M. J. Wainwright, M. I. Jordan, Kernel feature selection via conditional
    covariance minimization, NeurIPS 2017, arXiv:1707.01164.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels.covariance import ExactObjective
    >>> X = np.array([[-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [1.0, 1.0]])
    >>> objective = ExactObjective(X, X[:, :1], sigma=2.0, epsilon=0.1)
    >>> objective.value_and_gradient(np.array([1.0, 0.0]))[0] < objective.value_and_gradient(np.ones(2))[0]
    True
    """

    def __init__(self, X: FloatArray, Y: FloatArray, sigma: float, epsilon: float) -> None:
        self._X = np.asarray(X, dtype=np.float64)
        self._Y = _centred(np.asarray(Y, dtype=np.float64))
        self._sigma = sigma
        self._ridge = len(X) * epsilon

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Value and gradient at the weights `w`, of shape (n_features,), >= 0."""
        active = np.flatnonzero(w)
        X = self._X[:, active]
        K = self._gram(X * w[active])
        G = _centred(_centred(K).T)
        G.flat[:: len(G) + 1] += self._ridge
        M = cho_solve(cho_factor(G, overwrite_a=True), self._Y)
        P = K * (M @ M.T)
        spread = P.sum(axis=0) @ X**2 - np.einsum("aj,aj->j", X, P @ X)
        gradient = np.zeros(len(w))
        gradient[active] = 2 * w[active] / self._sigma**2 * spread
        return float(np.vdot(self._Y, M)), gradient

    def _gram(self, scaled: Floats) -> Floats:
        products = scaled @ scaled.T
        norms = products.diagonal()
        squared: Floats = np.maximum(norms[:, None] + norms - 2 * products, 0)
        return np.exp(squared / (-2 * self._sigma**2))


class RandomFeatureObjective:
    r"""The conditional covariance objective with random Fourier features of the Gaussian kernel.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), float32 or float64
        Standardised rows. The large products run in their precision, the solve in float64.
    Y : ndarray of shape (n_samples, n_targets)
        Targets: one-hot columns, or one column of numbers; centred here.
    sigma : float
        Bandwidth of the kernel, > 0, in units of `X`.
    epsilon : float
        Ridge, > 0, for each sample.
    n_components : int
        Number D of random features, even: a cosine and a sine of each frequency.
    rng : numpy.random.Generator or numpy.random.RandomState
        Source of the frequencies, drawn once.

    Raises
    ------
    ConfigError
        If `n_components` is odd or less than 2.

    Notes
    -----
    With features :math:`\Phi` of the rows :math:`w \odot x` and :math:`V = H\Phi`,

    .. math:: (V V^T + n \epsilon I)^{-1}
              = \frac{1}{n \epsilon}\,[I - V (V^T V + n \epsilon I)^{-1} V^T],

    so nothing of size n x n is made. With :math:`B = (V^T V + n \epsilon I)^{-1} V^T Y` and
    :math:`M = (Y - V B) / (n \epsilon)` the derivative of the value by :math:`\Phi` is
    :math:`-2 M B^T`.

    For the kernel itself the derivative at a weight of 0 is 0, because the kernel is even in each weight.
    For frozen frequencies it is not: it is the noise of the draw, of mean 0. The gradient says 0 there,
    as the exact one does. That is the better estimate, and it lets every product leave out the features
    whose weight is 0, soon most of them.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
    feature space, eq. 7.14-7.15 and the approximation that follows them.

    J. Chen, M. Stern, M. J. Wainwright, M. I. Jordan, Kernel feature selection via conditional
    covariance minimization, NeurIPS 2017, arXiv:1707.01164.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels.covariance import ExactObjective, RandomFeatureObjective
    >>> X = np.array([[-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [1.0, 1.0]])
    >>> problem = dict(X=X, Y=X[:, :1], sigma=2.0, epsilon=0.1)
    >>> exact, _ = ExactObjective(**problem).value_and_gradient(np.ones(2))
    >>> features = RandomFeatureObjective(**problem, n_components=20_000, rng=np.random.default_rng(0))
    >>> bool(abs(features.value_and_gradient(np.ones(2))[0] / exact - 1) < 0.02)
    True
    """

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
                f"n_components={n_components}: cosines and sines come in pairs; give an even number, at least 2"
            )
        # A row for each feature makes leaving features out a copy of whole rows.
        self._features = np.ascontiguousarray(X.T)
        self._Y = _centred(np.asarray(Y, dtype=np.float64))
        self._ridge = len(X) * epsilon
        kernel = Gaussian(1 / (2 * sigma**2))
        self._frequencies = kernel.frequencies(X.shape[1], n_components // 2, rng).astype(X.dtype)

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Value and gradient at the weights `w`, of shape (n_features,), >= 0."""
        active = np.flatnonzero(w)
        features, frequencies = self._features[active], self._frequencies[active]
        Phi = fourier_map(features.T, w[active, None].astype(features.dtype) * frequencies)
        value, M, B = self._solve(Phi)
        gradient = np.zeros(len(w))
        gradient[active] = np.einsum("jk,jk->j", frequencies, features @ _by_angle(Phi, M, B), dtype=np.float64)
        return value, gradient

    def _solve(self, Phi: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, M and B of the notes, the latter two in the precision of the features."""
        V = _centred(Phi)
        VtY = (V.T @ self._Y.astype(V.dtype)).astype(np.float64)
        A = (V.T @ V).astype(np.float64)
        A.flat[:: len(A) + 1] += self._ridge
        B = cho_solve(cho_factor(A, overwrite_a=True), VtY)
        value = (np.vdot(self._Y, self._Y) - np.vdot(VtY, B)) / self._ridge
        M = (self._Y - V @ B.astype(V.dtype)) / self._ridge
        return float(value), M.astype(V.dtype), B.astype(V.dtype)


def _by_angle(Phi: FloatArray, M: FloatArray, B: FloatArray) -> FloatArray:
    """Derivative of the value by the angles whose cosines and sines are the two halves of `Phi`."""
    n_draws = Phi.shape[1] // 2
    cosines, sines = Phi[:, :n_draws], Phi[:, n_draws:]
    return 2 * (sines * (M @ B[:n_draws].T) - cosines * (M @ B[n_draws:].T))


def _centred(columns: FloatArray) -> FloatArray:
    """Columns less their means, which are taken in float64."""
    return columns - columns.mean(axis=0, dtype=np.float64).astype(columns.dtype)


def project(w: Floats, m: float) -> Floats:
    """Project onto the weights between 0 and 1 whose sum is at most m.

    Parameters
    ----------
    w : ndarray of shape (n_features,), float64
        Any point.
    m : float
        Bound on the sum, >= 0.

    Returns
    -------
    ndarray of shape (n_features,), float64
        The nearest such weights in Euclidean distance.

    Notes
    -----
    The projection is ``clip(w - t, 0, 1)``, with t = 0 if that is feasible and else the t > 0 at which
    the sum is m, found by bisection down to neighbouring floats.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
    feature space, eq. 7.15b-c.
    """
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
    """Where a solver stopped.

    Parameters
    ----------
    weights : ndarray of shape (n_features,)
        The weights.
    loss : float
        The objective there.
    history : list of float
        The objective at the start and after each step.
    """

    weights: Floats
    loss: float
    history: list[float]
