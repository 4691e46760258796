import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.evaluation.conformal import conformal_margin


def naive(errors, level):
    """Walk along the steps of the promise k / (n + 1), a straight line between them."""
    ordered, n = sorted(errors), len(errors)
    for k in range(1, n + 1):
        promise, error = k / (n + 1), ordered[k - 1]
        if abs(promise - level) < 1e-12:
            return error
        if promise > level:
            before = (k - 1) / (n + 1)
            share = (level - before) / (promise - before)
            return ordered[k - 2] + share * (error - ordered[k - 2])
    return None


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=4, max_size=40), st.sampled_from([0.5, 0.8, 0.85, 0.9, 0.95]))
def test_the_margin_is_that_of_a_naive_loop(errors, level):
    found, expected = conformal_margin(errors, level), naive(errors, level)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


@pytest.mark.parametrize(("level", "fewest"), [(0.8, 4), (0.9, 9)])
def test_too_few_errors_have_no_margin(level, fewest):
    errors = np.arange(1.0, fewest + 1)
    assert conformal_margin(errors, level) == fewest
    assert conformal_margin(errors[1:], level) is None
    assert conformal_margin([], level) is None


@pytest.mark.parametrize(("n", "level"), [(12, 0.8), (15, 0.9)])
def test_as_many_exchangeable_errors_are_within_as_promised(n, level):
    """Neither under the promise nor far over it; the ceiling of (n + 1) level would give 93.75 % at 15 of 90 %."""
    rng = np.random.default_rng(n)
    for draw in (rng.uniform, rng.exponential):
        margins = [conformal_margin(errors, level) for errors in draw(size=(10_000, n))]
        assert np.mean(draw(size=10_000) <= margins) == pytest.approx(level, abs=0.02)
