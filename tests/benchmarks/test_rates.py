import numpy as np
import pytest

from benchmarks.rates import DIMENSION, GAMMAS, SHIFT, estimate, measure, slope, true_mmd_squared, upper_bound


@pytest.mark.parametrize("gamma", [1.6, 0.1])
def test_the_true_discrepancy_is_that_of_many_points(gamma):
    rng = np.random.default_rng(0)
    first, second, third, fourth = rng.standard_normal((4, 400_000, 2))
    shifted, others = (points + np.array([0.7, 0.0]) for points in (second, fourth))

    def expected(x, y):
        return np.exp(-gamma * np.square(x - y).sum(axis=1)).mean()

    found = expected(first, third) + expected(shifted, others) - 2 * expected(first, shifted)
    assert true_mmd_squared(gamma, 2, 0.7) == pytest.approx(found, abs=3e-3)
    assert true_mmd_squared(gamma, 2, 0.0) == 0


def test_the_unbiased_estimate_has_the_true_mean():
    rng = np.random.default_rng(0)
    drawn = np.array([estimate(40, rng)["unbiased"] for _ in range(300)])
    truth = [true_mmd_squared(gamma, DIMENSION, SHIFT) for gamma in GAMMAS]
    errors = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - truth) < 4 * errors).all()


def test_a_power_law_has_its_slope():
    sizes = [10, 100, 1000]
    assert slope(sizes, [2 * n**-0.5 for n in sizes]) == pytest.approx(-0.5)


def test_more_points_err_less_and_within_the_bound():
    few, many = (measure(n, 20, seed=0) for n in (25, 200))
    for row in (few, many):
        assert row["biased"]["quantile"] < row["upper_bound"] == upper_bound(row["n"])
    for name in ("error", "weights"):
        assert many["biased"][name] < few["biased"][name]
    # the biased estimate of a discrepancy is too high
    assert few["biased"]["bias"] > 0.05
