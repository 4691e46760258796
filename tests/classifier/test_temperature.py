"""The temperature of probabilities, by closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, logit

from segkit.classifier.temperature import fit_temperature


def scores_of(decision):
    """Scores of two classes."""
    return np.stack([np.zeros_like(decision), decision], axis=1)


def noisy(n, seed, slope=1.5):
    rng = np.random.default_rng(seed)
    decision = rng.normal(size=n)
    return scores_of(decision), (rng.random(n) < expit(slope * decision)).astype(int), np.ones(n)


def test_one_decision_value_meets_its_mean_target():
    """Three of four rows at +2 are of the second class, and one of four at -2: the sigmoid passes through both."""
    label = np.array([1, 1, 1, 0, 0, 0, 0, 1])
    temperature = fit_temperature(scores_of(np.repeat([2.0, -2.0], 4).astype(np.float32)), label, np.ones(8))
    target = 3 / 4 * 5 / 6 + 1 / 4 * 1 / 6  # of four rows each
    assert expit(2 / temperature) == pytest.approx(target, rel=1e-6)


def test_three_classes_as_a_search_finds_it(rng):
    scores, label, weight = rng.normal(size=(60, 3)), rng.integers(0, 3, 60), rng.random(60)
    scores[np.arange(60), label] += 1
    of_class = np.bincount(label, weight)
    target = np.array([[1 / (of_class[k] + 2) / 2] * 3 for k in label])
    target[np.arange(60), label] = (of_class[label] + 1) / (of_class[label] + 2)
    candidates = np.linspace(0.3, 3, 2701)
    losses = [-np.sum(weight[:, None] * target * log_softmax(scores / T, axis=1)) for T in candidates]
    found = fit_temperature(scores.astype(np.float32), label, weight)
    assert found == pytest.approx(candidates[np.argmin(losses)], abs=1e-3)


def test_many_rows_tell_the_slope_they_were_drawn_with():
    assert 1 / fit_temperature(*noisy(100_000, 0)) == pytest.approx(1.5, rel=0.03)


@settings(max_examples=12)
@given(seed=st.integers(0, 100), scale=st.floats(0.01, 100))
def test_scaled_scores_have_a_scaled_temperature(seed, scale):
    scores, label, weight = noisy(200, seed)
    plain = fit_temperature(scores, label, weight)
    assert fit_temperature(scale * scores, label, weight) == pytest.approx(scale * plain, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_separated_scores_keep_a_temperature_above_zero(scale):
    decision = scale * np.r_[np.linspace(-2, -1, 20), np.linspace(1, 2, 20)]
    temperature = fit_temperature(scores_of(decision), (decision > 0).astype(int), np.ones(40))
    assert 0 < expit(decision / temperature).min() < 0.1 < 0.9 < expit(decision / temperature).max() < 1


@pytest.mark.parametrize("decision", [np.zeros(6), np.array([3.0, 2, 1, -1, -2, -3])])
def test_scores_that_say_nothing_or_the_opposite_give_nearly_equal_probabilities(decision):
    """The larger score stays the more probable class even so."""
    temperature = fit_temperature(scores_of(decision), np.array([0, 0, 0, 1, 1, 1]), np.ones(6))
    assert temperature == pytest.approx(1000)


def test_weights_count_rows():
    scores, label, _ = noisy(80, 5)
    count = np.random.default_rng(6).integers(0, 4, size=80)
    repeated = fit_temperature(
        np.repeat(scores, count, axis=0), np.repeat(label, count), np.ones(count.sum())
    )
    assert fit_temperature(scores, label, count.astype(float)) == pytest.approx(repeated, rel=1e-6)


def test_tiny_and_huge_scores_are_bounded():
    label = np.array([0, 1])
    assert fit_temperature(scores_of(np.array([-1e-9, 1e-9])), label, np.ones(2)) == pytest.approx(1e-6)
    assert np.isfinite(
        logit(expit(1.0 / fit_temperature(scores_of(np.array([-1e9, 1e9])), label, np.ones(2))))
    )
