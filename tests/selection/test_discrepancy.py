import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import InputError
from segkit.selection import MMDSelector


@parametrize_with_checks([MMDSelector()])
def test_is_an_estimator(estimator, check):
    check(estimator)


def sample():
    rng = np.random.default_rng(0)
    y, groups = np.tile([0, 1], 150), np.repeat(np.arange(5), 60)
    X = rng.standard_normal((300, 6))
    X[:, 2] += 3 * y
    X[:, 4] += y
    X[:, 5] += 4 * y * np.where(groups % 2, -1, 1)
    return X, y, groups


def test_keeps_what_differs_in_the_same_direction_everywhere():
    X, y, groups = sample()
    assert MMDSelector(2).fit(X, y, groups).get_support(indices=True).tolist() == [2, 4]
    # without groups the feature whose direction changes between images looks no better or worse by it
    assert MMDSelector(6).fit(X, y, groups).scores_[5] < 0


def test_units_do_not_matter():
    X, y, groups = sample()
    scaled = X * [1, 1e4, 1e-3, 10, 1e3, 1] + 5
    np.testing.assert_allclose(
        MMDSelector().fit(scaled, y, groups).scores_, MMDSelector().fit(X, y, groups).scores_, rtol=1e-6
    )


def test_features_that_do_not_help_are_dropped_but_one():
    X, y, groups = sample()
    selector = MMDSelector().fit(X, y, groups)
    assert (selector.scores_[selector.get_support()] > 0).all()
    constant = np.column_stack([np.full(300, 0.1), X[:, 5]])
    assert MMDSelector().fit(constant, y, groups).get_support().sum() == 1


def test_constant_features_are_refused():
    with pytest.raises(InputError, match="every feature is constant"):
        MMDSelector().fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])
