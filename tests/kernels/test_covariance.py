import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import check_grad

from segkit.kernels.covariance import (
    ExactObjective,
    Minimum,
    RandomFeatureObjective,
    minimise,
    minimise_downwards,
    project,
)

N_INFORMATIVE = {"orange_skin": 4, "XOR": 3, "regression": 4}
points = arrays(np.float64, st.integers(1, 12), elements=st.floats(-3, 3))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 5))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Y = np.column_stack([X[:, 0] * X[:, 1], np.sin(X[:, 2])]) + 0.1 * rng.standard_normal((40, 2))
    return {"X": X, "Y": Y, "sigma": 3.0, "epsilon": 0.01}


@pytest.fixture(scope="module")
def fixture(shared):
    return np.load(shared / "oracle" / "ccm_fixture.npz")


def recorded_objective(fixture, task):
    X, y = fixture[f"{task}_X"], fixture[f"{task}_Y"]
    Y = (y[:, None] == np.unique(y)).astype(float) if task == "XOR" else y[:, None]
    standardised = (X - X.mean(axis=0)) / X.std(axis=0)
    return ExactObjective(standardised, Y, float(fixture[f"{task}_sigma"]), float(fixture[f"{task}_eps"]))


@pytest.mark.parametrize("task", N_INFORMATIVE)
def test_exact_objective_is_that_of_the_authors_code(fixture, task):
    value, gradient = recorded_objective(fixture, task).value_and_gradient(fixture[f"{task}_w"])
    np.testing.assert_allclose(value, fixture[f"{task}_loss"], rtol=1e-9)
    np.testing.assert_allclose(gradient, fixture[f"{task}_grad"], rtol=1e-9)


def fifty_steps(fixture, task):
    """Steps of projected gradient with a fixed length, as in the authors' code."""
    objective, m = recorded_objective(fixture, task), N_INFORMATIVE[task]
    w, history = np.full(10, m / 10), []
    for _ in range(50):
        value, gradient = objective.value_and_gradient(w)
        history.append(value)
        w = project(w - 1e-3 * gradient, m)
    return w, [*history, objective.value_and_gradient(w)[0]]


def test_fixed_steps_follow_the_authors_code(fixture):
    weights, history = fifty_steps(fixture, "regression")
    np.testing.assert_allclose(weights, fixture["regression_w50"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(history[:50], fixture["regression_losshist50"], rtol=1e-9)
    np.testing.assert_allclose(history[50], fixture["regression_loss50"], rtol=1e-9)


@pytest.mark.parametrize("task", ["orange_skin", "XOR"])
def test_exact_projection_ends_no_higher_than_the_authors(fixture, task):
    assert fifty_steps(fixture, task)[1][-1] <= fixture[f"{task}_loss50"]


def objectives(problem):
    return [
        ExactObjective(**problem),
        RandomFeatureObjective(**problem, n_components=60, rng=np.random.default_rng(1)),
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_the_objective_equals_the_printed_formula(problem, which):
    w = np.array([0.9, 0.0, 0.4, 1.0, 0.2])
    n = len(problem["X"])
    scaled = problem["X"] * w
    angles = scaled @ np.random.default_rng(1).standard_normal((5, 30)) / problem["sigma"]
    exact = np.exp(-((scaled[:, None] - scaled) ** 2).sum(axis=2) / (2 * problem["sigma"] ** 2))
    K = [exact, np.cos(angles[:, None] - angles).mean(axis=2)][which]
    H = np.eye(n) - 1 / n
    Y = H @ problem["Y"]
    naive = np.trace(Y.T @ np.linalg.inv(H @ K @ H + n * problem["epsilon"] * np.eye(n)) @ Y)
    np.testing.assert_allclose(objectives(problem)[which].value_and_gradient(w)[0], naive, rtol=1e-10)


@pytest.mark.parametrize("which", [0, 1])
def test_gradient_agrees_with_finite_differences(problem, which):
    objective = objectives(problem)[which]
    w = np.array([0.9, 0.1, 0.4, 1.0, 0.2])
    error = check_grad(
        lambda w: objective.value_and_gradient(w)[0],
        lambda w: objective.value_and_gradient(w)[1],
        w,
        epsilon=1e-6,
    )
    assert error < 1e-5 * np.linalg.norm(objective.value_and_gradient(w)[1])


@pytest.mark.parametrize("which", [0, 1])
def test_a_weight_of_zero_equals_a_missing_feature(problem, which):
    w = np.array([0.9, 0.0, 0.4, 0.0, 0.2])
    objective = objectives(problem)[which]
    value, gradient = objective.value_and_gradient(w)
    assert (gradient[w == 0] == 0).all()
    changed = problem | {"X": np.where(w == 0, 7.0, problem["X"])}
    same_value, same_gradient = objectives(changed)[which].value_and_gradient(w)
    assert value == same_value
    np.testing.assert_array_equal(gradient, same_gradient)


@pytest.mark.parametrize("which", [0, 1])
def test_no_weight_at_all_leaves_the_variance_of_the_target(problem, which):
    value, gradient = objectives(problem)[which].value_and_gradient(np.zeros(5))
    variance = ((problem["Y"] - problem["Y"].mean(axis=0)) ** 2).sum()
    np.testing.assert_allclose(value, variance / (40 * problem["epsilon"]), rtol=1e-10)
    assert not gradient.any()


def test_float32_products_cost_no_accuracy_that_matters(problem):
    w = np.full(5, 0.6)
    single = problem | {"X": problem["X"].astype(np.float32)}
    value, gradient = objectives(problem)[1].value_and_gradient(w)
    value32, gradient32 = objectives(single)[1].value_and_gradient(w)
    np.testing.assert_allclose(value32, value, rtol=1e-5)
    assert np.linalg.norm(gradient32 - gradient) < 1e-4 * np.linalg.norm(gradient)


@given(points, st.floats(0, 6))
@settings(max_examples=40)
def test_projection_is_feasible_idempotent_and_nearest(v, m):
    w = project(v, m)
    assert ((w >= 0) & (w <= 1)).all()
    assert w.sum() <= m + 1e-12
    np.testing.assert_array_equal(project(w, m + 1e-12), w)
    # The nearest point of a convex set: every feasible point lies on the far side of the tangent plane.
    others = np.random.default_rng(0).random((50, len(v)))
    others *= np.minimum(1, m / others.sum(axis=1, keepdims=True))
    assert ((others - w) @ (v - w) <= 1e-9).all()


class Quadratic:
    """Half the squared distance to a point, times a scale."""

    def __init__(self, target, scale=1.0):
        self.target, self.scale = target, scale

    def value_and_gradient(self, w):
        difference = w - self.target
        return self.scale * (1 + difference @ difference / 2), self.scale * difference


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_minimise_finds_the_projection_whatever_the_scale(scale):
    target = np.array([2.0, 0.5, -1.0, 0.3])
    minimum = minimise(Quadratic(target, scale), np.full(4, 0.1), 1.2, tol=1e-12)
    assert minimum.converged
    np.testing.assert_allclose(minimum.weights, project(target, 1.2), atol=1e-5)


def test_minimise_falls_at_every_step_to_a_stationary_point(problem):
    objective = ExactObjective(**problem)
    minimum = minimise(objective, np.full(5, 0.4), 2, tol=1e-10, max_iter=300)
    assert minimum.converged
    assert len(minimum.history) > 3
    assert (np.diff(minimum.history) < 0).all()
    value, gradient = objective.value_and_gradient(minimum.weights)
    assert value == minimum.history[-1]
    step = 1e-2 / np.abs(gradient).max()
    np.testing.assert_allclose(project(minimum.weights - step * gradient, 2), minimum.weights, atol=1e-3)


def test_minimise_says_when_steps_ran_out(problem):
    minimum = minimise(ExactObjective(**problem), np.full(5, 0.4), 2, max_iter=1, tol=1e-10)
    assert not minimum.converged
    assert len(minimum.history) == 2


def test_minimise_stops_where_nothing_falls():
    minimum = minimise(Quadratic(np.full(3, 0.5)), np.full(3, 0.5), 3)
    assert minimum.converged
    assert minimum.history == [1.0]


def test_the_way_down_meets_each_bound(problem):
    bounds = [5, 3, 3, 1]
    minima = list(minimise_downwards(ExactObjective(**problem), 5, bounds))
    for m, minimum in zip(bounds, minima, strict=True):
        assert minimum.weights.sum() <= m + 1e-12
    losses = [minimum.history[-1] for minimum in minima]
    assert losses == sorted(losses)
    assert losses[0] < losses[-1]


def test_the_way_down_begins_with_all_features(monkeypatch):
    bounds = []

    def note(objective, w, m, **options):
        bounds.append(m)
        return Minimum(w, [0.0], 1, converged=True)

    monkeypatch.setattr("segkit.kernels.covariance.minimise", note)
    list(minimise_downwards(None, 10, [3]))
    np.testing.assert_allclose(bounds, [10, 7, 4.9, 3.43, 3])


def test_no_kernel_value_exceeds_one_far_from_the_origin(rng):
    """Products of far rows cancel: rounding makes squared distances of near rows negative."""
    X = 1e6 + 1e-4 * rng.standard_normal((40, 3))
    products = X @ X.T
    squared = products.diagonal()[:, None] + products.diagonal() - 2 * products
    assert squared.min() < -1e-5
    K = ExactObjective(X, rng.standard_normal((40, 1)), sigma=1.0, epsilon=0.01)._gram(X)
    assert K.max() == 1
