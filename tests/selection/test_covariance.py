import json

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import InputError
from segkit.kernels.covariance import ExactObjective
from segkit.selection import ConditionalCovarianceSelector
from tests.selection import synthetic


@parametrize_with_checks([ConditionalCovarianceSelector(3)])
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("task", synthetic.TASKS)
def test_informative_features_of_each_task_are_selected(task):
    n = 400 if task == "regression" else 100
    X, y, informative = synthetic.shuffled_draw(task, n, seed=3)
    for objective in ("exact", "random_features"):
        selector = ConditionalCovarianceSelector(informative.sum(), objective=objective, random_state=0)
        np.testing.assert_array_equal(selector.fit(X, y).get_support(), informative)
        np.testing.assert_array_equal(selector.transform(X), X[:, informative])


@pytest.mark.parametrize(
    ("task", "n"),
    [
        ("XOR", 40),
        pytest.param("orange_skin", 20, marks=pytest.mark.slow),
        pytest.param("regression", 60, marks=pytest.mark.slow),
    ],
)
def test_recovery_is_no_lower_than_recorded(shared, task, n):
    recorded = json.loads((shared / "oracle" / "ccm_synthetic_medrank.json").read_text())
    (cell,) = [cell for cell in recorded if (cell["task"], cell["n"]) == (task, n)]
    selector = ConditionalCovarianceSelector(n_features_to_select=synthetic.TASKS[task][1])
    ours = synthetic.recovery(lambda X, y: selector.fit(X, y).get_support(), task, n, seeds=100)
    below = synthetic.standard_errors_below(ours, cell["exact_recovery"], 100, cell["seeds"])
    assert below <= 2


@pytest.mark.parametrize("task", synthetic.TASKS)
def test_draws_are_those_the_statistics_were_recorded_on(shared, task):
    fixture = np.load(shared / "oracle" / "ccm_fixture.npz")
    X, y = synthetic.TASKS[task][0](60, np.random.RandomState(7))
    # logarithms and sines may differ in their last digit from one processor to another
    np.testing.assert_allclose(X, fixture[f"{task}_X"], rtol=1e-12)
    np.testing.assert_allclose(y, fixture[f"{task}_Y"], rtol=1e-12)


def test_bandwidth_and_objective_are_those_of_the_authors_code(shared):
    fixture = np.load(shared / "oracle" / "ccm_fixture.npz")
    X, y = fixture["regression_X"], fixture["regression_Y"]
    selector = ConditionalCovarianceSelector(4).fit(X, y)
    np.testing.assert_allclose(selector.sigma_, fixture["regression_sigma"], rtol=1e-12)
    objective = ExactObjective((X - X.mean(axis=0)) / X.std(axis=0), y[:, None], selector.sigma_, 0.1)
    assert selector.loss_ == pytest.approx(objective.value_and_gradient(selector.weights_)[0], rel=1e-9)
    assert selector.loss_ < fixture["regression_loss50"]


@pytest.mark.parametrize("task", ["XOR", "regression"])
def test_permuted_columns_permute_the_weights(task, rng):
    X, y, _ = synthetic.shuffled_draw(task, 60, seed=2)
    order = rng.permutation(10)
    selector = ConditionalCovarianceSelector(4)
    weights = selector.fit(X, y).weights_
    np.testing.assert_allclose(selector.fit(X[:, order], y).weights_, weights[order], atol=1e-6)


def test_units_of_the_features_and_names_of_the_classes_do_not_matter(rng):
    X, y, _ = synthetic.shuffled_draw("XOR", 60, seed=2)
    selector = ConditionalCovarianceSelector(4)
    weights = selector.fit(X, y).weights_
    rescaled = 5 + X * rng.uniform(0.1, 10, 10)
    np.testing.assert_allclose(selector.fit(rescaled, y).weights_, weights, atol=1e-6)
    np.testing.assert_allclose(selector.fit(X, np.array(list("dbca"))[y]).weights_, weights, atol=1e-6)


def test_constant_features_come_last():
    X, y, informative = synthetic.shuffled_draw("XOR", 100, seed=3)
    X[:, ~informative] = 0.1
    selector = ConditionalCovarianceSelector(8).fit(X, y)
    np.testing.assert_array_equal(selector.get_support(), informative)
    assert not selector.weights_[~informative].any()
    np.testing.assert_array_equal(selector.ranking_[~informative], np.arange(4, 11))


def test_constant_features_come_after_those_without_weight():
    X, y, informative = synthetic.shuffled_draw("XOR", 100, seed=3)
    constant = np.flatnonzero(~informative)[0]
    X[:, constant] = 0.1
    assert ConditionalCovarianceSelector(3).fit(X, y).ranking_[constant] == X.shape[1]


def test_at_least_one_feature_is_selected():
    with pytest.raises(InvalidParameterError, match=r"n_features_to_select.*\[1, inf\)"):
        ConditionalCovarianceSelector(0).fit(ROWS, [0, 1] * 4)


def test_a_target_is_needed():
    with pytest.raises(ValueError, match="requires y to be passed"):
        ConditionalCovarianceSelector().fit(ROWS, None)


def test_ranking_orders_weights_then_columns():
    X, y, _ = synthetic.shuffled_draw("orange_skin", 100, seed=3)
    selector = ConditionalCovarianceSelector(4).fit(X, y)
    order = np.argsort(selector.ranking_)
    assert (np.diff(selector.weights_[order]) <= 0).all()
    unused = np.flatnonzero(selector.weights_ == 0)
    assert unused.size > 1
    assert (np.diff(selector.ranking_[unused]) > 0).all()


def test_same_seed_same_weights():
    X, y, _ = synthetic.shuffled_draw("XOR", 60, seed=3)
    first, second, third = (
        ConditionalCovarianceSelector(3, objective="random_features", random_state=seed).fit(X, y).weights_
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != third).any()


def test_many_samples_go_to_random_features_and_take_the_median_over_some(rng):
    X = rng.standard_normal((2100, 3))
    y = X[:, 1] > 0
    selector = ConditionalCovarianceSelector(1, random_state=0).fit(X, y)
    assert selector.get_support(indices=True) == [1]
    squared = ((X / X.std(axis=0))[:, None] - X / X.std(axis=0)) ** 2
    np.testing.assert_allclose(selector.sigma_, np.median(np.sqrt(squared.sum(axis=2))), rtol=0.01)


def test_bandwidth_when_most_rows_coincide():
    X = np.array([[0.0, 0.0]] * 9 + [[1.0, 2.0]])
    selector = ConditionalCovarianceSelector(1).fit(X, [0] * 9 + [1])
    assert selector.sigma_ == 2.0


def test_whole_numbers_can_be_a_regression_target(rng):
    X = rng.standard_normal((50, 4))
    y = np.round(3 * X[:, 2])
    as_numbers = ConditionalCovarianceSelector(1, target="regression").fit(X, y)
    as_floats = ConditionalCovarianceSelector(1).fit(X, y + 0.5)
    np.testing.assert_allclose(as_numbers.weights_, as_floats.weights_, atol=1e-9)


def test_path_goes_down_and_leaves_the_selector_alone():
    X, y, informative = synthetic.shuffled_draw("orange_skin", 100, seed=3)
    selector = ConditionalCovarianceSelector(4)
    weights = selector.path(X, y, [8, 4])
    assert weights.shape == (2, 10)
    assert (weights.sum(axis=1) <= np.array([8, 4]) + 1e-12).all()
    assert set(np.argsort(-weights[1])[:4]) == set(np.flatnonzero(informative))
    assert not hasattr(selector, "n_features_in_")


@pytest.mark.parametrize("n_features", [[], [2, 4], [3, 0]])
def test_path_that_does_not_go_down_is_refused(n_features, rng):
    with pytest.raises(InputError, match="a path decreases; give numbers of 1 or more, the largest first"):
        ConditionalCovarianceSelector().path(rng.standard_normal((8, 3)), [0, 1] * 4, n_features)


ROWS = np.random.default_rng(0).standard_normal((8, 2))


@pytest.mark.parametrize(
    ("options", "y", "error", "message"),
    [
        ({}, [1] * 8, InputError, r"y holds one value, .*1.*, 8 times: .* two classes or values"),
        ({"target": "regression"}, [1] * 8, InputError, "y holds one value"),
        ({"target": "classification"}, ROWS[:, 0], ValueError, "Unknown label type: continuous"),
    ],
)
def test_what_cannot_be_selected_from_is_refused(options, y, error, message):
    with pytest.raises(error, match=message):
        ConditionalCovarianceSelector(**options).fit(ROWS, y)


def test_constant_features_alone_are_refused():
    with pytest.raises(InputError, match=r"X of shape \(4, 2\): every feature is constant"):
        ConditionalCovarianceSelector().fit(np.full((4, 2), 0.1), [0, 1, 0, 1])


def test_steps_that_ran_out_warn():
    X, y, _ = synthetic.shuffled_draw("XOR", 40, seed=0)
    with pytest.warns(
        ConvergenceWarning, match="did not converge to tol=1e-09 in max_iter=1 steps; raise one of them"
    ):
        ConditionalCovarianceSelector(3, max_iter=1, tol=1e-9).fit(X, y)
