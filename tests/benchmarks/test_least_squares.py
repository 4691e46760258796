import numpy as np
import pytest

from benchmarks.tables.common import DualLeastSquares, RegularizedLeastSquares, _downhill


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=60)
    return rng.standard_normal((60, 80)) + 0.5 * np.eye(3, 80)[y], y


def test_the_leave_one_out_error_is_that_of_fits_without_each_sample(samples):
    X, y = samples
    learnt = DualLeastSquares().fit(X @ X.T, y, penalty=7.0)
    targets = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    errors = []
    for i in range(len(X)):
        rest = np.delete(np.arange(len(X)), i)
        dual = np.linalg.solve(X[rest] @ X[rest].T + 7 * np.eye(len(rest)), targets[rest])
        errors.append((X[i] @ X[rest].T @ dual - targets[i]) ** 2)
    assert learnt.leave_one_out_ == pytest.approx(np.mean(errors))
    assert learnt.penalty_ == 7.0
    assert learnt.relative_penalty_ == pytest.approx(7 / np.linalg.eigvalsh(X @ X.T)[-1])


def test_penalty_and_predictions_are_those_of_the_eigenvectors(samples):
    X, y = samples
    others = np.random.default_rng(1).standard_normal((50, 80))
    dual, primal = DualLeastSquares().fit(X @ X.T, y), RegularizedLeastSquares().fit(X, y)
    np.testing.assert_allclose(X.T @ dual.dual_coef_, primal.coef_, atol=1e-6)
    np.testing.assert_array_equal(dual.predict(others @ X.T @ dual.dual_coef_), primal.predict(others))


@pytest.mark.parametrize(("start", "lowest"), [(0, 4), (4, 4), (6, 4)])
def test_downhill_ends_where_both_neighbours_are_higher(start, lowest):
    values = [9, 7, 5, 3, 1, 2, 4]
    assert _downhill(values.__getitem__, start, len(values)) == lowest
    assert _downhill([3, 2, 1].__getitem__, 1, 3) == 2
