"""Probability laws of the parameter of a transformation: an angle, a shift, a factor."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from segkit.errors import ConfigError

RandomGenerator = np.random.Generator | np.random.RandomState


@runtime_checkable
class Law(Protocol):
    """A probability law on the real line."""

    def sample(self, n: int, rng: RandomGenerator) -> NDArray[np.float64]:
        """Draw n numbers independently; (n,), float64."""


@dataclass(frozen=True)
class Uniform:
    """Uniform law on a window: over a whole turn it is the Haar law of rotations.

    Parameters
    ----------
    low, high : float
        Ends of the window, finite, in the unit of the parameter (degrees, pixels).
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check(self, "low must be below high", lambda: self.low < self.high)

    def sample(self, n: int, rng: RandomGenerator) -> NDArray[np.float64]:
        """Draw n numbers independently; (n,), float64."""
        return np.asarray(rng.uniform(self.low, self.high, n))


@dataclass(frozen=True)
class VonMises:
    """Von Mises law of an angle in degrees, density proportional to ``exp(kappa cos angle)``.

    Parameters
    ----------
    kappa : float
        Concentration about 0, >= 0; 0 is the Haar law.

    Notes
    -----
    The paper prints the opposite sign of the exponent, which would make half turns the most likely.

    References
    ----------
    A. Raj et al. 2017, section 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import VonMises
    >>> angles = VonMises(4.0).sample(10_000, np.random.default_rng(0))
    >>> bool(np.cos(np.radians(angles)).mean() > 0.8)
    True
    """

    kappa: float

    def __post_init__(self) -> None:
        _check(self, "kappa must be >= 0", lambda: self.kappa >= 0)

    def sample(self, n: int, rng: RandomGenerator) -> NDArray[np.float64]:
        """Draw n angles of -180 to 180 degrees independently; (n,), float64."""
        return np.degrees(rng.vonmises(0.0, self.kappa, n))


@dataclass(frozen=True)
class Normal:
    """Gaussian law about 0.

    Parameters
    ----------
    sigma : float
        Standard deviation, > 0, in the unit of the parameter.
    """

    sigma: float

    def __post_init__(self) -> None:
        _check(self, "sigma must be positive", lambda: self.sigma > 0)

    def sample(self, n: int, rng: RandomGenerator) -> NDArray[np.float64]:
        """Draw n numbers independently; (n,), float64."""
        return np.asarray(rng.normal(0.0, self.sigma, n))


@dataclass(frozen=True)
class LogNormal:
    """Law of a factor whose logarithm is Gaussian about 0, so that a and 1/a are equally likely.

    Parameters
    ----------
    sigma : float
        Standard deviation of the natural logarithm of the factor, > 0.

    Notes
    -----
    The density is Gaussian in log a against da / a, the Haar measure of scalings.
    """

    sigma: float

    def __post_init__(self) -> None:
        _check(self, "sigma must be positive", lambda: self.sigma > 0)

    def sample(self, n: int, rng: RandomGenerator) -> NDArray[np.float64]:
        """Draw n positive factors independently; (n,), float64."""
        return np.exp(rng.normal(0.0, self.sigma, n))


def _check(law: Any, needed: str, holds: Any) -> None:
    """Check that all parameters are finite numbers, then what else is needed of them."""
    values = [getattr(law, field.name) for field in fields(law)]
    if not all(isinstance(value, Real) and math.isfinite(value) for value in values):
        raise ConfigError(f"{law}: every parameter must be a finite number")
    if not holds():
        raise ConfigError(f"{law}: {needed}")
