import numpy as np
import pytest
from scipy import special

from segkit.errors import ConfigError
from segkit.invariance import Law, LogNormal, Normal, Uniform, VonMises

N = 100_000
GENERATORS = [np.random.default_rng, np.random.RandomState]


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize(
    ("law", "statistic", "expected", "deviation"),
    [
        (Uniform(-20, 40), lambda x: x.mean(), 10.0, 60 / np.sqrt(12)),
        (Uniform(-20, 40), lambda x: ((x - 10) ** 2).mean(), 300.0, 270.0),
        (Normal(3.0), lambda x: x.mean(), 0.0, 3.0),
        (Normal(3.0), lambda x: (x**2).mean(), 9.0, 9 * np.sqrt(2)),
        (LogNormal(0.2), lambda x: np.log(x).mean(), 0.0, 0.2),
        (LogNormal(0.2), lambda x: (np.log(x) ** 2).mean(), 0.04, 0.04 * np.sqrt(2)),
        (LogNormal(0.2), lambda x: x.mean(), np.exp(0.02), 0.21),
        (VonMises(0.2), lambda x: np.cos(np.radians(x)).mean(), special.i1(0.2) / special.i0(0.2), 1.0),
        (VonMises(4.0), lambda x: np.cos(np.radians(x)).mean(), special.i1(4) / special.i0(4), 1.0),
        (VonMises(0.0), lambda x: np.cos(np.radians(x)).mean(), 0.0, 1.0),
    ],
)
def test_moments(law, statistic, expected, deviation, generator):
    draws = law.sample(N, generator(0))
    assert draws.shape == (N,)
    assert draws.dtype == np.float64
    assert abs(statistic(draws) - expected) < 4 * deviation / np.sqrt(N)


def test_law_is_a_protocol_that_users_can_fill():
    assert isinstance(VonMises(1.0), Law)
    assert not isinstance(np.zeros(3), Law)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(1, 1), r"Uniform\(low=1, high=1\): low must be below high"),
        (lambda: Uniform(0, np.inf), "must be a finite number"),
        (lambda: VonMises(-1), r"VonMises\(kappa=-1\): kappa must be >= 0"),
        (lambda: Normal(0), "sigma must be positive"),
        (lambda: Normal("a"), "must be a finite number"),
        (lambda: LogNormal(-1), "sigma must be positive"),
        (lambda: LogNormal(np.nan), "must be a finite number"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
