"""Frequencies of random Fourier features: independent draws, or more even covers of the spectral law."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from segkit.errors import ConfigError
from segkit.kernels.base import FloatArray, Gaussian, Laplacian, ShiftInvariantKernel


def _independent_frequencies(
    kernel: ShiftInvariantKernel, n_features: int, n_draws: int, rng: np.random.RandomState
) -> FloatArray:
    """Draw frequencies from the spectral law, independently; shape (n_features, n_draws)."""
    return kernel.frequencies(n_features, n_draws, rng)


def _orthogonal_frequencies(
    kernel: ShiftInvariantKernel, n_features: int, n_draws: int, rng: np.random.RandomState
) -> NDArray[np.float64]:
    """Draw frequencies that are orthogonal in blocks of n_features, with the norms of independent ones (Yu et al. 2016)."""
    norms = np.linalg.norm(_radial(kernel, "orthogonal").frequencies(n_features, n_draws, rng), axis=0)
    directions = np.empty((n_features, n_draws))
    for start in range(0, n_draws, n_features):
        block = directions[:, start : start + n_features]
        factor, triangle = np.linalg.qr(rng.standard_normal(block.shape))
        # Q has the Haar law only if the diagonal of R is positive.
        block[:] = factor * np.sign(np.diag(triangle))
    directions *= norms
    return directions


def _halton_frequencies(
    kernel: ShiftInvariantKernel, n_features: int, n_draws: int, rng: np.random.RandomState
) -> NDArray[np.float64]:
    """Draw frequencies that cover the spectral law evenly (quasi-Monte Carlo; Yang et al. 2014, section 3)."""
    radial = _radial(kernel, "qmc")
    is_laplacian = isinstance(radial, Laplacian)
    sequence = qmc.Halton(n_features + is_laplacian, seed=rng).random(n_draws).T
    # The inverse distribution function is infinite at 0 and 1.
    eps = np.finfo(np.float64).eps
    uniform: NDArray[np.float64] = np.clip(sequence, eps, 1 - eps)
    # All coordinates are divided by |u|, so it gets the first coordinate of the sequence, the most even one.
    scale = radial.gamma / ndtri((1 + uniform[0]) / 2) if is_laplacian else math.sqrt(2 * radial.gamma)
    frequencies: NDArray[np.float64] = scale * ndtri(uniform[-n_features:])
    return frequencies


def _radial(kernel: ShiftInvariantKernel, frequencies: str) -> Gaussian | Laplacian:
    if isinstance(kernel, Gaussian | Laplacian):
        return kernel
    raise ConfigError(
        f"frequencies={frequencies!r} are made for Gaussian and Laplacian kernels, not {kernel!r}: "
        f"take frequencies='random'"
    )


FREQUENCIES = {
    "random": _independent_frequencies,
    "orthogonal": _orthogonal_frequencies,
    "qmc": _halton_frequencies,
}
