"""Gabor, Morlet and shearlet atoms, sampled in the Fourier domain.

A filter is stored as its Fourier transform, a real array on the grid of `numpy.fft.fft2`. Coordinate ``x`` runs
along a row and ``y`` down a column, frequencies are in cycles per pixel, and scale ``j`` is ``2**j`` times coarser
than scale 0. A family of atoms is one array of shape (n_scales, n_angles, H, W). `FAMILIES` lists the families by
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from segkit._common import FloatArray
from segkit.errors import ConfigError

_Float64Array = NDArray[np.float64]

# Standard deviation (pixels) and frequency (cycles per pixel) of the mother atom, kymatio's: its dyadic scales
# cover the frequency plane octave by octave.
_SIGMA = 0.8
_FREQUENCY = 0.375


def check_family_size(n_scales: int, n_angles: int) -> None:
    """Check the size of a family of atoms."""
    for name, given, least, most in (("n_scales", n_scales, 1, 10), ("n_angles", n_angles, 2, 64)):
        if given < least:
            raise ConfigError(f"{name}={given}: expected {least} or more; try n_scales=3, n_angles=8")
        if given > most:  # a run would not end
            raise ConfigError(f"{name}={given}: expected {most} or fewer; try n_scales=3, n_angles=8")


def _frequencies(shape: tuple[int, int]) -> tuple[_Float64Array, _Float64Array]:
    """Compute the frequencies of the grid along x and along y, in cycles per pixel."""
    x, y = np.fft.fftfreq(shape[1]), np.fft.fftfreq(shape[0])
    return x[None, :].astype(np.float64), y[:, None].astype(np.float64)


# --- Gabor and Morlet ---------------------------------------------------------------------------


def _gabor_angles(n_angles: int) -> _Float64Array:
    """Compute the directions of Gabor atoms, ``180 k / n_angles`` degrees."""
    return 180.0 * np.arange(n_angles) / n_angles


def _gabor_atoms(
    shape: tuple[int, int],
    n_scales: int,
    n_angles: int,
    *,
    zero_mean: bool = True,
) -> FloatArray:
    r"""Sample Gabor atoms, or Morlet atoms, at dyadic scales and equispaced angles."""
    check_family_size(n_scales, n_angles)
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
    r"""Sample the Gaussian low-pass below the coarsest of `scale` Gabor scales."""
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
    # Copies two periods away are left out: for 0.8 pixels and more they are below 1e-6.
    for fold_x in (-1, 0, 1):
        for fold_y in (-1, 0, 1):
            along = (x + fold_x) * np.cos(theta) + (y + fold_y) * np.sin(theta) - centre
            across = -(x + fold_x) * np.sin(theta) + (y + fold_y) * np.cos(theta)
            total += np.exp(-2 * (np.pi * sigma) ** 2 * (along**2 + (across / slant) ** 2))
    return total


# --- Shearlets ----------------------------------------------------------------------------------


def _bump(y: ArrayLike) -> _Float64Array:
    r"""Evaluate a smooth bump on [-1, 1] whose squared integer translates sum to 1."""
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
    r"""Sample cone-adapted shearlets; with `_shearlet_lowpass` they are a tight frame."""
    check_family_size(n_scales, n_angles)
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
    r"""Sample the low-pass that completes `scale` shearlet scales to a tight frame."""
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
    r"""Compute the Bessel bound of a set of filters: their largest gain of energy."""
    energy = np.square(np.abs(filters), dtype=np.float64)
    return float(energy.sum(axis=tuple(range(filters.ndim - 2))).max())


class _Family(NamedTuple):
    """A family of atoms with its low-pass, and the radius of each."""

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
