"""Gabor, Morlet and shearlet atoms, sampled in the Fourier domain.

A filter is stored as its Fourier transform, a real array on the grid of `numpy.fft.fft2`. Coordinate ``x`` runs
along a row and ``y`` down a column, frequencies are in cycles per pixel, and scale ``j`` is ``2**j`` times coarser
than scale 0. A family of atoms is one array of shape (n_scales, n_angles, H, W). `FAMILIES` lists the families by
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from segkit._common import FloatArray

_Float64Array = NDArray[np.float64]

# Standard deviation (pixels) and frequency (cycles per pixel) of the mother atom, kymatio's: its dyadic scales
# cover the frequency plane octave by octave.
_SIGMA = 0.8
_FREQUENCY = 0.375


def _frequencies(shape: tuple[int, int]) -> tuple[_Float64Array, _Float64Array]:
    """Compute the frequencies of the grid along x and along y, in cycles per pixel."""
    x, y = np.fft.fftfreq(shape[1]), np.fft.fftfreq(shape[0])
    return x[None, :].astype(np.float64), y[:, None].astype(np.float64)


# --- Gabor and Morlet ---------------------------------------------------------------------------


def _gabor_angles(n_angles: int) -> _Float64Array:
    """Compute the directions of Gabor atoms, ``180 k / n_angles`` degrees from the x axis towards the y axis."""
    return 180.0 * np.arange(n_angles) / n_angles


def _gabor_atoms(
    shape: tuple[int, int],
    n_scales: int,
    n_angles: int,
    *,
    zero_mean: bool = True,
) -> FloatArray:
    r"""Sample Gabor atoms, or Morlet atoms (of mean zero), at dyadic scales and equispaced angles.

    The mother atom and its Fourier transform are

    .. math::
        \psi(x, y) = \frac{1}{2 \pi \sigma_x \sigma_y}
            \exp\Bigl(-\frac{x^2}{2 \sigma_x^2} - \frac{y^2}{2 \sigma_y^2} + 2 \pi i W x\Bigr),
        \qquad \hat\psi(u, v) = \exp\bigl(-2 \pi^2 [\sigma_x^2 (u - W)^2 + \sigma_y^2 v^2]\bigr),

    with :math:`\sigma_x = 0.8` pixels, :math:`W = 0.375` and :math:`\sigma_x / \sigma_y = 4 / n_{angles}`, at most 1.
    An atom is :math:`4^{-j} \psi(\tilde x, \tilde y)` with
    :math:`\tilde x = 2^{-j} (x \cos\theta + y \sin\theta)`, :math:`\tilde y = 2^{-j} (-x \sin\theta + y \cos\theta)`
    (paper, eq. 7.1-7.4; eq. 7.2 prints :math:`\cos\theta` twice). The factor :math:`4^{-j}` keeps the peak of
    :math:`\hat\psi` at 1; with the paper's :math:`2^{-j}` the Bessel bound would grow with the scale.
    """
    slant = _slant(n_angles)
    atoms = np.empty((n_scales, n_angles, *shape), dtype=np.float32)
    for j in range(n_scales):
        for k, theta in enumerate(np.deg2rad(_gabor_angles(n_angles))):
            envelope = partial(_folded_gaussian, shape, sigma=_SIGMA * 2**j, slant=slant, theta=theta)
            atom = envelope(centre=_FREQUENCY / 2**j)
            if zero_mean:
                # The value at frequency 0 is the mean.
                lowpass = envelope(centre=0.0)
                atom -= atom[0, 0] / lowpass[0, 0] * lowpass
            atoms[j, k] = atom
    return atoms


def _gabor_lowpass(shape: tuple[int, int], scale: float) -> FloatArray:
    """Sample the Gaussian below the coarsest of `scale` Gabor scales: standard deviation ``0.4 * 2**scale`` pixels."""
    gaussian = _folded_gaussian(shape, sigma=_SIGMA * 2.0 ** (scale - 1), slant=1, theta=0, centre=0)
    gaussian /= gaussian[0, 0]
    return gaussian.astype(np.float32)


def _slant(n_angles: int) -> float:
    """Compute the ratio of the widths of the envelope along and across the wave: more directions, narrower angles."""
    return min(1.0, 4.0 / n_angles)


def _folded_gaussian(
    shape: tuple[int, int], *, sigma: float, slant: float, theta: float, centre: float
) -> _Float64Array:
    """Sample a Gaussian at frequency `centre` along `theta`; sampling in space adds its shifted copies."""
    x, y = _frequencies(shape)
    total = np.zeros(shape)
    cos, sin = np.cos(theta), np.sin(theta)
    # Nine standard deviations away, 1e-17 of the peak is left.
    reach = 9 / (2 * np.pi * sigma)
    reach_x, reach_y = reach * np.hypot(cos, slant * sin), reach * np.hypot(sin, slant * cos)
    factor = -2 * (np.pi * sigma) ** 2
    # Copies two periods away are left out: for 0.8 pixels and more they are below 1e-6.
    for fold_x, fold_y in product((-1, 0, 1), repeat=2):
        u, v = x + fold_x, y + fold_y
        rows = np.flatnonzero(np.abs(v - centre * sin) <= reach_y)
        cols = np.flatnonzero(np.abs(u - centre * cos) <= reach_x)
        u, v = u[:, cols], v[rows]
        # factor * ((u cos + v sin - centre)^2 + (v cos - u sin)^2 / slant^2), in parts that hold one coordinate, and both
        exponent = factor * 2 * cos * sin * (1 - slant**-2) * u * v
        exponent += factor * ((u * cos - centre) ** 2 + (u * sin / slant) ** 2)
        exponent += factor * ((v * sin - 2 * centre) * v * sin + (v * cos / slant) ** 2)
        total[np.ix_(rows, cols)] += np.exp(exponent, out=exponent)
    return total


# --- Shearlets ----------------------------------------------------------------------------------


def _bump(y: ArrayLike) -> _Float64Array:
    """Evaluate a smooth bump on [-1, 1] whose squared integer translates sum to 1 (paper, eq. 7.7).

    It is ``cos(pi/2 v(|y|))`` with the smooth step ``v(t) = e^(-1/t) / (e^(-1/t) + e^(-1/(1-t)))``: v(t) + v(1 - t) = 1.
    """
    # Within 1e-3 of either end v is 0 or 1 to the last bit, and 1/t would overflow.
    t = np.clip(np.abs(np.asarray(y, dtype=np.float64)), 1e-3, 1 - 1e-3)
    step = expit(1 / (1 - t) - 1 / t)
    return np.where(step == 1, 0.0, np.cos(0.5 * np.pi * step))


def _shearlet_angles(n_angles: int) -> _Float64Array:
    """Compute the directions of shearlets: within a cone their slopes are equispaced, their angles are not."""
    position = 4.0 * np.arange(n_angles) / n_angles
    slope = np.where(position <= 1, position, np.where(position < 3, 2 - position, position - 4))
    vertical = (position > 1) & (position < 3)
    return np.where(vertical, 90 - np.rad2deg(np.arctan(slope)), np.rad2deg(np.arctan(slope)) % 180)


def _shearlet_atoms(shape: tuple[int, int], n_scales: int, n_angles: int) -> FloatArray:
    r"""Sample cone-adapted shearlets, real in space; with `_shearlet_lowpass` they are a tight frame.

    In the horizontal cone of the frequency plane, :math:`|\xi_2| \le |\xi_1|`,

    .. math:: \hat\psi_{j,k}(\xi) = \psi_1(2^{j-1} \xi_1)\, \psi_2(K \xi_2 / (4 \xi_1) - k),

    where :math:`\psi_2` is the bump of eq. 7.7 and :math:`\psi_1(x) = \psi_2(\log_2 |4 x|)` is a Meyer-type wavelet
    (eq. 7.6) with support :math:`1/8 \le |x| \le 1/2`: it meets the Calderón condition
    :math:`\sum_{j \in Z} |\psi_1(2^{-j} x)|^2 = 1` within the support that the paper allows (and misprints). In the
    vertical cone :math:`\xi_1` and :math:`\xi_2` change roles; atoms across the diagonal have a part in each cone.
    Eq. 7.5 writes the product in ``x, y``; the construction that 7.6 and 7.7 make a frame is in the Fourier domain.

    Scale 0 also takes all higher frequencies. At Nyquist, opposite edges of the grid are the same frequency, so
    direction has no meaning there: between 3/8 and 1/2 cycles per pixel each atom blends smoothly with its mirror image.
    That keeps it short in space, and the squares of the atoms and of the low-pass sum to 1 on the whole grid.
    """
    direction = 4.0 * np.arange(n_angles)[:, None, None] / n_angles
    energy = np.zeros((n_scales, n_angles, *shape))
    # Energies add up over the copies, since windows and bumps are squared partitions of unity.
    for radius, position, window in _copies(shape):
        angular = window * _bump(n_angles / 4 * ((position - direction + 2) % 4 - 2))
        for j in range(n_scales):
            octave = _log2(2.0 ** (j + 1) * radius)
            energy[j] += (_bump(octave if j else np.minimum(octave, 0)) * angular) ** 2
    return np.sqrt(energy).astype(np.float32)


def _shearlet_lowpass(shape: tuple[int, int], scale: float) -> FloatArray:
    """Sample the low-pass that completes `scale` shearlet scales to a tight frame."""
    energy = np.zeros(shape)
    for radius, _, window in _copies(shape):
        energy += (window * _bump(np.maximum(_log2(2.0 ** (scale + 1) * radius), 0))) ** 2
    return np.sqrt(energy).astype(np.float32)


def _cone_coordinates(x: _Float64Array, y: _Float64Array) -> tuple[_Float64Array, _Float64Array]:
    """Compute the radius max(|x|, |y|) and the direction modulo 4: y/x, or 2 - x/y in the vertical cone."""
    x, y = np.broadcast_arrays(x, y)
    horizontal = np.abs(y) <= np.abs(x)
    major, minor = np.where(horizontal, x, y), np.where(horizontal, y, x)
    slope = minor / np.where(major == 0, 1, major)
    return np.abs(major), np.where(horizontal, slope, 2 - slope)


def _copies(shape: tuple[int, int]) -> Iterator[tuple[_Float64Array, _Float64Array, _Float64Array]]:
    """Yield radius, direction and window on the grid, and on its nearest periodic copies along x, y and both."""
    x, y = _frequencies(shape)
    for copy_y in (y, np.where(y < 0, y + 1, y - 1)):
        for copy_x in (x, np.where(x < 0, x + 1, x - 1)):
            yield *_cone_coordinates(copy_x, copy_y), _nyquist(copy_x) * _nyquist(copy_y)


def _nyquist(frequency: _Float64Array) -> _Float64Array:
    """Evaluate a window: 1 up to 3/8, 0 from 5/8 on; the squares of its periodic copies sum to 1."""
    return _bump(np.clip(4 * np.abs(frequency) - 1.5, 0, 1))


def _log2(x: _Float64Array) -> _Float64Array:
    """Compute the logarithm to base 2, minus infinity at 0 without a warning."""
    return np.log2(x, where=x > 0, out=np.full_like(x, -np.inf))


# --- Both ---------------------------------------------------------------------------------------


def bessel_bound(filters: NDArray[Any]) -> float:
    """Compute the Bessel bound of filters (..., H, W), their largest gain of energy: ``max_w sum_k |g_k(w)|^2`` (eq. 7.8).

    >>> round(bessel_bound(FAMILIES["shearlet"].atoms((64, 64), 3, 8)), 3)
    1.0
    """
    energy = np.square(np.abs(filters), dtype=np.float64)
    return float(energy.sum(axis=tuple(range(filters.ndim - 2))).max())


class _Family(NamedTuple):
    """A family of atoms with its low-pass, and the radius in pixels of each at scale 0; it doubles with the scale."""

    atoms: Callable[[tuple[int, int], int, int], FloatArray]
    lowpass: Callable[[tuple[int, int], float], FloatArray]
    angles: Callable[[int], _Float64Array]
    radius: Callable[[int], float]
    lowpass_radius: float
    is_real: bool


def _gabor_radius(n_angles: int) -> float:
    """Compute four standard deviations across the wave: 1e-4 of the atom's absolute sum lies beyond."""
    return 4 * _SIGMA / _slant(n_angles)


def _shearlet_radius(n_angles: int) -> float:
    """Approximate the radius beyond which 1e-4 of the atom's energy lies, a line fitted to measured radii."""
    return 8 + n_angles


FAMILIES = {
    "gabor": _Family(
        partial(_gabor_atoms, zero_mean=False),
        _gabor_lowpass,
        _gabor_angles,
        _gabor_radius,
        2 * _SIGMA,
        is_real=False,
    ),
    "morlet": _Family(_gabor_atoms, _gabor_lowpass, _gabor_angles, _gabor_radius, 2 * _SIGMA, is_real=False),
    "shearlet": _Family(
        _shearlet_atoms, _shearlet_lowpass, _shearlet_angles, _shearlet_radius, 4.5, is_real=True
    ),
}
