import numpy as np
import pytest
from sklearn.base import clone

from segkit.errors import ConfigError, ModelFileError
from segkit.kernels import LinearGaussianMixture, LinearMixture, MixtureRFF, SummedMixtures

COLUMNS = [np.array([0, 2]), np.array([1, 2, 3])]


def rows(n=80, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return (rng.standard_normal((n, 4)) + y[:, None] * [0.0, 1.0, 2.0, 0.5]).astype(np.float32), y


def mixtures(*kinds):
    made = {
        "linear": LinearMixture(),
        "both": LinearGaussianMixture(n_components=24, random_state=0),
        "random": MixtureRFF(n_components=32, random_state=0),
    }
    X, y = rows()
    return [clone(made[kind]).fit(X[:, own], y) for kind, own in zip(kinds, COLUMNS, strict=True)]


KINDS = [("linear", "both"), ("both", "random"), ("linear", "random"), ("random", "random")]


@pytest.mark.parametrize("kinds", KINDS)
def test_features_are_those_of_the_mixtures_side_by_side(kinds):
    parts, (X, _) = mixtures(*kinds), rows(seed=1)
    summed = SummedMixtures(parts, COLUMNS)
    found = summed.transform(X)
    kernel = sum(
        part.transform(X[:, own]) @ part.transform(X[:, own]).T
        for part, own in zip(parts, COLUMNS, strict=True)
    )
    np.testing.assert_allclose(found @ found.T, kernel, atol=1e-4)
    assert summed.n_features_in_ == 4


@pytest.mark.parametrize("kinds", KINDS)
def test_linear_and_nonlinear_parts_add_up_to_the_dot_product(kinds):
    summed, (X, _) = SummedMixtures(mixtures(*kinds), COLUMNS), rows(seed=1)
    coef = np.random.default_rng(2).standard_normal((3, summed.transform(X).shape[1])).astype(np.float32)
    expected = summed.transform(X) @ coef.T
    np.testing.assert_allclose(summed.dot(X, coef), expected, atol=1e-4)
    linear = summed.linear_coef(coef)
    assert (linear is None) == (kinds == ("random", "random"))
    total = summed.nonlinear_dot(X[:, summed.nonlinear_columns], coef)
    np.testing.assert_allclose(total + (0 if linear is None else X @ linear.T), expected, atol=1e-4)


def test_without_nonlinear_parts_there_are_no_nonlinear_columns():
    summed, (X, _) = SummedMixtures(mixtures("linear", "linear"), COLUMNS), rows()
    assert summed.nonlinear_columns.size == 0
    coef = np.ones((2, 5), dtype=np.float32)
    np.testing.assert_array_equal(summed.nonlinear_dot(X[:, []], coef), np.zeros((len(X), 2)))
    # the third column belongs to both
    weights = [part.weights_ for part in summed.mixtures]
    roots = np.sqrt([weights[0][0], weights[1][0], 0, weights[1][2]])
    roots[2] = np.sqrt(weights[0][1]) + np.sqrt(weights[1][1])
    np.testing.assert_allclose(summed.linear_coef(coef), [roots, roots], rtol=1e-6)


def test_squared_distances_of_the_inputs_are_the_mean_of_the_mixtures():
    parts, (X, _) = mixtures("both", "random"), rows(seed=1)
    found = SummedMixtures(parts, COLUMNS).nonlinear_input(X)
    own = [part.nonlinear_input(X[:, own]) for part, own in zip(parts, COLUMNS, strict=True)]
    distances = [np.square(part[0] - part[1]).sum() for part in own]
    np.testing.assert_allclose(np.square(found[0] - found[1]).sum(), np.mean(distances), rtol=1e-5)


@pytest.mark.parametrize("kinds", KINDS)
def test_it_describes_means_over_the_mixtures(kinds):
    parts = mixtures(*kinds)
    told = SummedMixtures(parts, COLUMNS).describe(["a", "a", "b", "c"])
    by_name = {kernel["name"]: kernel for kernel in told}
    own = [part.describe(groups) for part, groups in zip(parts, (["a", "b"], ["a", "b", "c"]), strict=True)]
    for name, kernel in by_name.items():
        same = [one for part in own for one in part if one["name"] == name]
        assert kernel["weight"] == pytest.approx(sum(one["weight"] for one in same) / 2)
        assert kernel["score"] == pytest.approx(np.mean([one["score"] for one in same]))
        assert {key: kernel[key] for key in ("kind", "gamma")} == {
            key: same[0][key] for key in ("kind", "gamma")
        }
    assert len(told) == len({one["name"] for part in own for one in part})
    assert sum(kernel["weight"] for kernel in told) == pytest.approx(1)
    order = [(kernel["kind"] != "linear", -kernel["weight"]) for kernel in told]
    assert order == sorted(order)


@pytest.mark.parametrize("kinds", KINDS)
def test_a_state_restores_it(kinds):
    summed, (X, _) = SummedMixtures(mixtures(*kinds), COLUMNS), rows(seed=1)
    again = SummedMixtures.from_state(*summed.to_state())
    np.testing.assert_array_equal(again.transform(X), summed.transform(X))
    assert again.describe("abcd") == summed.describe("abcd")


@pytest.mark.parametrize(
    "columns",
    [
        [np.array([0, 2]), np.array([2, 1, 3])],  # not rising
        [np.array([0, 2]), np.array([2, 3, 4])],  # column 1 is left out
        [np.array([0, 2, 3]), np.array([1, 2, 3])],  # more than the mixture was fitted on
        [np.array([-1, 2]), np.array([1, 2, 3])],
        [np.array([0, 2])],
        [np.array([0, 2]), np.array([1, 2, 3]), np.array([1, 2, 3])],
        [np.array([[0], [2]]), np.array([[1], [2], [3]])],
    ],
)
def test_columns_that_do_not_fit_are_refused(columns):
    parts = mixtures("linear", "both")
    with pytest.raises(ConfigError, match="give each mixture as many as it was fitted on, rising"):
        SummedMixtures(parts, columns)


def test_no_mixtures_are_refused():
    with pytest.raises(ConfigError, match="no mixtures: give one at least"):
        SummedMixtures([], [])


def _without(name):
    return lambda header, arrays: arrays.pop(name)


def _with(name, value):
    return lambda header, arrays: arrays.update({name: value})


def _emptied(header, arrays):
    """A further mixture, of no columns."""
    header["mixtures"].append({"kind": "linear"})
    arrays.update(
        {"2.scores": np.empty(0), "2.weights": np.empty(0), "2.of.columns": np.empty(0, dtype=np.int64)}
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda header, arrays: header.pop("mixtures"), "damaged or of another version: 'mixtures'"),
        (lambda header, arrays: header.update(mixtures=[]), "no mixtures"),
        (lambda header, arrays: header.update(mixtures=3), "damaged or of another version: 'int'"),
        (lambda header, arrays: header.update(mixtures=[None, {}]), "damaged or of another version: 'None"),
        (lambda header, arrays: header["mixtures"][0].update(kind="unknown"), "another version: 'unknown'"),
        (lambda header, arrays: header["mixtures"][0].update(kind="sum"), "another version: 'sum'"),
        (lambda header, arrays: header["mixtures"][0].update(kind=[]), "damaged or of another version"),
        (lambda header, arrays: header["mixtures"][1].update(parameters=None), "another version: 'NoneType'"),
        (lambda header, arrays: header["mixtures"].pop(), "columns of 1 mixtures"),
        (_without("1.of.columns"), "another version: 'of.columns'"),
        (_without("0.weights"), "state of LinearMixture lacks 'weights'"),
        (_with("1.of.columns", np.array([0, 2, 3])), "columns of 2 mixtures"),
        (_with("1.of.columns", np.array([1, 2, 2**62])), "columns of 2 mixtures"),
        (_with("1.of.columns", np.array([1, 2, -(2**63)])), "columns of 2 mixtures"),
        (_with("1.of.columns", np.array([[1, 2, 3]])), "damaged or of another version"),
        (_with("1.of.columns", np.array(3)), "damaged or of another version"),
        (_emptied, "damaged or of another version"),
    ],
)
def test_a_damaged_state_is_refused(damage, message):
    header, arrays = SummedMixtures(mixtures("linear", "both"), COLUMNS).to_state()
    damage(header, arrays)
    with pytest.raises(ModelFileError, match=message):
        SummedMixtures.from_state(header, arrays)
