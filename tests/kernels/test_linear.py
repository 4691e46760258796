import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import InputError, ModelFileError
from segkit.kernels import LinearMixture, mmd_squared
from segkit.kernels.linear import columnwise_mmd_squared


def sample(n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 4))
    y = rng.integers(0, n_classes, 60)
    groups = rng.integers(0, 3, 60)
    X[:, 0] += y
    return X, y, groups


@parametrize_with_checks([LinearMixture()])
def test_is_an_estimator(estimator, check):
    check(estimator)


def test_without_groups_it_is_the_u_statistic_of_each_column():
    X, y, _ = sample()
    expected = [mmd_squared(column[:, None] * column, y) for column in X.T]
    np.testing.assert_allclose(columnwise_mmd_squared(X, y), expected, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_groups_are_compared_with_others_only(n_classes):
    X, y, groups = sample(n_classes)
    splits = [y == 1] if n_classes == 2 else [y == k for k in range(3)]
    expected = np.zeros(4)
    for inside in splits:
        delta = [
            X[(groups == g) & inside].mean(axis=0) - X[(groups == g) & ~inside].mean(axis=0) for g in range(3)
        ]
        pairs = [delta[g] * delta[h] for g in range(3) for h in range(3) if g != h]
        expected += np.mean(pairs, axis=0) / len(splits)
    np.testing.assert_allclose(columnwise_mmd_squared(X, y, groups), expected, atol=1e-12)


def test_groups_without_both_classes_do_not_count():
    X, y, groups = sample()
    alone = np.r_[groups, [7, 7]]
    more = np.r_[X, np.full((2, 4), 100.0)]
    np.testing.assert_allclose(
        columnwise_mmd_squared(more, np.r_[y, 1, 1], alone), columnwise_mmd_squared(X, y, groups), atol=1e-12
    )


def test_one_group_is_judged_by_its_samples():
    X, y, _ = sample()
    np.testing.assert_array_equal(columnwise_mmd_squared(X, y, np.zeros(60)), columnwise_mmd_squared(X, y))


def test_it_is_unbiased_over_groups():
    """Offsets of groups, and directions that differ between them, do not add to the estimate."""
    rng = np.random.default_rng(0)
    y, groups = np.tile([0, 1], 40), np.repeat(np.arange(4), 20)
    estimates = []
    for _ in range(200):
        directions = rng.standard_normal(4)
        X = (3 * rng.standard_normal(4)[groups] + directions[groups] * y + rng.standard_normal(80))[:, None]
        estimates.append(columnwise_mmd_squared(X, y, groups)[0])
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates)) < 4 * error


def test_features_are_those_of_the_mixture():
    X, y, groups = sample()
    mixture = LinearMixture().fit(X, y, groups)
    assert mixture.weights_.sum() == pytest.approx(1)
    np.testing.assert_allclose(mixture.weights_, mixture.scores_ / mixture.scores_.sum())
    Z = mixture.transform(X)
    np.testing.assert_allclose(Z @ Z.T, (X * mixture.weights_) @ X.T, atol=1e-12)


def test_state_gives_the_same_features():
    X, y, groups = sample()
    mixture = LinearMixture().fit(X, y, groups)
    again = LinearMixture.from_state(*mixture.to_state())
    np.testing.assert_array_equal(again.transform(X), mixture.transform(X))
    with pytest.raises(ModelFileError, match="weights"):
        LinearMixture.from_state({}, {"scores": mixture.scores_})


def test_weights_are_summed_by_name():
    X, y, groups = sample()
    mixture = LinearMixture().fit(X, y, groups)
    kernels = mixture.describe(["b", "a", "b", "a"])
    [of_b] = [kernel for kernel in kernels if kernel["name"] == "linear b"]
    assert of_b["weight"] == pytest.approx(mixture.weights_[[0, 2]].sum())
    assert of_b["score"] == pytest.approx(mixture.scores_[[0, 2]].sum())
    assert kernels[0]["weight"] >= kernels[1]["weight"]


@pytest.mark.parametrize("y", [[0, 0, 0], [0, 0, 1]])
def test_too_small_classes_are_refused(y):
    with pytest.raises(InputError, match="at least 2 samples each"):
        columnwise_mmd_squared(np.eye(3), y)
