import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from segkit.classifier.platt import PlattScaling
from segkit.errors import InputError


def noisy(n, seed, slope=1.5, intercept=-0.5):
    rng = np.random.default_rng(seed)
    decision = rng.normal(size=n)
    return decision, (rng.random(n) < expit(slope * decision + intercept)).astype(int)


def test_two_decision_values_meet_their_mean_targets():
    # one sigmoid passes through both points: at each it equals the mean smoothed target there
    decision = np.repeat([-1.0, 3.0], 10)
    y = np.r_[[1] * 2, [0] * 8, [1] * 7, [0] * 3]
    n_high, n_low = y.sum(), (1 - y).sum()
    high, low = (n_high + 1) / (n_high + 2), 1 / (n_low + 2)
    expected = [0.2 * high + 0.8 * low, 0.7 * high + 0.3 * low]
    platt = PlattScaling().fit(decision, y)
    np.testing.assert_allclose(platt.predict_proba([-1.0, 3.0])[:, 1], expected, rtol=1e-6)


def test_equal_decisions_give_the_mean_target():
    platt = PlattScaling().fit(np.full(6, 2.0), [1, 1, 0, 0, 0, 0])
    assert platt.predict_proba([2.0])[0, 1] == pytest.approx((2 * 3 / 4 + 4 / 6) / 6)


@settings(max_examples=12)
@given(seed=st.integers(0, 100), scale=st.floats(1e-4, 1e4), shift=st.floats(-5, 5))
def test_affine_decisions_give_the_same_probabilities(seed, scale, shift):
    decision, y = noisy(60, seed)
    plain = PlattScaling().fit(decision, y).predict_proba(decision)
    moved = scale * (decision + shift)
    np.testing.assert_allclose(PlattScaling().fit(moved, y).predict_proba(moved), plain, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_separated_decisions_keep_a_finite_slope(scale):
    decision = scale * np.r_[np.linspace(-2, -1, 20), np.linspace(1, 2, 20)]
    platt = PlattScaling().fit(decision, decision > 0)
    assert np.isfinite(platt.slope_).all()
    p = platt.predict_proba(decision)[:, 1]
    assert 0 < p.min() < 0.1 < 0.9 < p.max() < 1


def test_weights_count_rows():
    decision, y = noisy(80, 5)
    count = np.random.default_rng(6).integers(0, 4, size=80)
    weighted = PlattScaling().fit(decision, y, count)
    repeated = PlattScaling().fit(np.repeat(decision, count), np.repeat(y, count))
    np.testing.assert_allclose(weighted.slope_, repeated.slope_, rtol=1e-6)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-6)


def test_each_class_has_its_own_sigmoid(rng):
    decisions, y = rng.normal(size=(300, 3)), rng.integers(0, 3, size=300)
    decisions[np.arange(300), y] += 1
    platt = PlattScaling().fit(decisions, y)
    for k in range(3):
        binary = PlattScaling().fit(decisions[:, k], y == k)
        assert (platt.slope_[k], platt.intercept_[k]) == (binary.slope_[0], binary.intercept_[0])
    sigmoids = expit(decisions * platt.slope_ + platt.intercept_)
    expected = sigmoids / sigmoids.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(platt.predict_proba(decisions), expected, rtol=1e-12)


def test_far_decisions_of_many_classes_still_sum_to_one():
    probability = PlattScaling.identity(3).predict_proba([[-2000.0, -2001.0, -3000.0]])
    np.testing.assert_allclose(probability, [[expit(1), expit(-1), 0]], atol=1e-12)


def test_identity_is_the_logistic_function():
    np.testing.assert_allclose(logit(PlattScaling.identity(2).predict_proba([-2.0, 0.5])[:, 1]), [-2.0, 0.5])


def test_one_column_is_two_classes(rng):
    decision, y = noisy(50, 7)
    flat, column = PlattScaling().fit(decision, y), PlattScaling().fit(decision[:, None], y)
    np.testing.assert_array_equal(flat.predict_proba(decision), column.predict_proba(decision[:, None]))


def test_restored_from_arrays():
    decision, y = noisy(50, 8)
    platt = PlattScaling().fit(decision, y)
    restored = PlattScaling.from_arrays(platt.slope_, platt.intercept_)
    np.testing.assert_array_equal(platt.predict_proba(decision), restored.predict_proba(decision))


EACH_ROW = "give one label and one weight for each decision"
WEIGHTS = "weights must be non-negative, finite and not all zero: leave out rows instead"
SHAPES = "give (n,) or (n, 1) for two classes, else (n, n_classes)"


@pytest.mark.parametrize(
    ("decisions", "y", "weight", "message"),
    [
        ([[1.0, 2.0]], [0], None, f"decisions of shape (1, 2): {SHAPES}"),
        ([1.0, np.nan], [0, 1], None, "decisions of shape (2, 1) hold NaN or infinity: leave those rows out"),
        ([1.0, 2.0], [0], None, f"2 decisions, labels of shape (1,), weights of shape (2,): {EACH_ROW}"),
        ([1.0, 2.0], [1, 2], None, "labels [1 2]: expected class indices 0 to 1, number them so"),
        ([1.0, 2.0, 3.0], [0, 1, 2], None, "labels [0 1 2]: expected class indices 0 to 1, number them so"),
        ([1.0, 2.0], [0, 1], [1, -1], WEIGHTS),
        ([1.0, 2.0], [0, 1], [0, 0], WEIGHTS),
    ],
)
def test_bad_input(decisions, y, weight, message):
    with pytest.raises(InputError) as error:
        PlattScaling().fit(decisions, y, weight)
    assert str(error.value) == message


def test_other_number_of_columns():
    with pytest.raises(InputError) as error:
        PlattScaling.identity(3).predict_proba([1.0])
    assert str(error.value) == (
        "decisions have 1 columns: the scaling was fitted on 3, give decisions of the same classifier"
    )


@pytest.mark.parametrize(("label", "expected"), [(0, 1 / 7), (1, 6 / 7)])
def test_rows_of_one_class_give_the_smoothed_share(label, expected):
    platt = PlattScaling().fit(np.full(5, 2.0), np.full(5, label))
    assert platt.predict_proba([2.0])[0, 1] == pytest.approx(expected)


@pytest.mark.parametrize("weight", [0.01, 100.0])
def test_newton_takes_few_steps_whatever_the_weights(weight, monkeypatch):
    decision, y = noisy(500, 4)
    steps = []
    solve = np.linalg.lstsq
    monkeypatch.setattr("numpy.linalg.lstsq", lambda *args: steps.append(args) or solve(*args))
    PlattScaling().fit(decision, y, np.full(500, weight))
    assert 2 <= len(steps) <= 8
