"""Frequencies of random Fourier features: independent draws, or sets that cover the spectral law more evenly."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from segkit.errors import ConfigError
from segkit.kernels.base import FloatArray, Gaussian, Laplacian, ShiftInvariantKernel


def independent_frequencies(
    kernel: ShiftInvariantKernel, n_features: int, n_draws: int, rng: np.random.RandomState
) -> FloatArray:
    """Draw frequencies from the spectral law, each by itself; shape (n_features, n_draws)."""
    return kernel.frequencies(n_features, n_draws, rng)


def orthogonal_frequencies(
    kernel: ShiftInvariantKernel, n_features: int, n_draws: int, rng: np.random.RandomState
) -> NDArray[np.float64]:
    """Draw frequencies that are orthogonal in blocks and each follow the spectral law.

    Parameters
    ----------
    kernel : Gaussian or Laplacian
        A kernel whose spectral law is invariant to rotations.
    n_features, n_draws : int
        Number of values of a frequency, and how many to draw.
    rng : RandomState
        Where the draws come from.

    Returns
    -------
    ndarray of shape (n_features, n_draws), float64
        Blocks of n_features columns: Haar orthogonal directions, with the norms of independent
        draws.

    Raises
    ------
    ConfigError
        If the kernel is of another class.

    References
    ----------
    F. X. Yu et al., Orthogonal random features, 2016.
    """
    norms = np.linalg.norm(_radial(kernel, "orthogonal").frequencies(n_features, n_draws, rng), axis=0)
    directions = np.empty((n_features, n_draws))
    for start in range(0, n_draws, n_features):
        block = directions[:, start : start + n_features]
        factor, triangle = np.linalg.qr(rng.standard_normal(block.shape))
        # The law of Q is Haar only with a positive diagonal of R.
        block[:] = factor * np.sign(np.diag(triangle))
    directions *= norms
    return directions


def halton_frequencies(
    kernel: ShiftInvariantKernel, n_features: int, n_draws: int, rng: np.random.RandomState
) -> NDArray[np.float64]:
    """Make frequencies that fill the spectral law evenly.

    Parameters
    ----------
    kernel : Gaussian or Laplacian
        A kernel whose spectral law is that of a function of independent normal variables.
    n_features, n_draws : int
        Number of values of a frequency, and how many to make.
    rng : RandomState
        Where the scrambling comes from.

    Returns
    -------
    ndarray of shape (n_features, n_draws), float64
        A scrambled Halton sequence through the inverse normal distribution function; for the
        Laplacian, whose law is gamma g / |u|, a further coordinate makes |u|.

    Raises
    ------
    ConfigError
        If the kernel is of another class.

    References
    ----------
    J. Yang et al., Quasi-Monte Carlo feature maps for shift-invariant kernels, 2014, section 3.
    """
    radial = _radial(kernel, "qmc")
    is_laplacian = isinstance(radial, Laplacian)
    sequence = qmc.Halton(n_features + is_laplacian, seed=rng).random(n_draws).T
    # 0 and 1 would become infinite.
    eps = np.finfo(np.float64).eps
    uniform: NDArray[np.float64] = np.clip(sequence, eps, 1 - eps)
    # The first coordinate, the most even, is that which all others are divided by.
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
    "random": independent_frequencies,
    "orthogonal": orthogonal_frequencies,
    "qmc": halton_frequencies,
}
