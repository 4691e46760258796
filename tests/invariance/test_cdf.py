import math

import numpy as np
import pytest
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import ConfigError, InputError
from segkit.invariance import Dihedral, NormSortedPermutation, Permutation, Rotation, Translation
from segkit.invariance.cdf import GroupCDF, _gaussian_templates, _quadrature_weights


@parametrize_with_checks([GroupCDF(n_templates=10, n_bins=3)])
def test_estimator_checks(estimator, check):
    check(estimator)


def on_sphere(X):
    return X / np.linalg.norm(X.reshape(len(X), -1), axis=1).reshape(-1, *[1] * (X.ndim - 1))


def loop(cdf, X, group):
    """The printed definition, feature by feature."""
    n_templates = len(cdf.templates_)
    s, n = cdf.thresholds_[-1], len(cdf.thresholds_) // 2
    orbits = [group.act(element, cdf.templates_) for element in cdf.elements_]
    values = np.empty((len(X), len(cdf.thresholds_), n_templates))
    for i, k, j in np.ndindex(*values.shape):
        below = sum(np.vdot(templates[j], X[i]) <= cdf.thresholds_[k] for templates in orbits)
        values[i, k, j] = math.sqrt(s / (n * n_templates)) * below / len(orbits)
    return values.reshape(len(X), -1)


@pytest.mark.parametrize(
    ("shape", "group", "n_transforms"),
    [
        ((4,), Permutation(), None),
        ((4, 3), Permutation(), 5),
        ((3, 3), Dihedral(), None),
        ((3, 3, 2), Dihedral(), None),
        ((5, 5), Rotation(5), None),
    ],
)
def test_equals_the_printed_definition(shape, group, n_transforms, rng):
    X = on_sphere(rng.normal(size=(6, *shape)))
    cdf = GroupCDF(4, 3, group=group, n_transforms=n_transforms, epsilon=0.5, random_state=0)
    features = cdf.fit_transform(X)
    np.testing.assert_allclose(cdf.thresholds_, 1.5 * np.arange(-3, 4) / 3)
    np.testing.assert_allclose(features, loop(cdf, X, group), atol=1e-12)


def test_ties_count_as_below():
    cdf = GroupCDF(templates=[[1.0, 0.0]], thresholds=[0.0, 0.5, 1.0]).fit([[1.0, 0.0]])
    features = cdf.transform([[0.5, 9.0], [np.nextafter(0.5, 1), 9.0], [0.0, 0.0], [-1.0, 0.0], [1.5, 0.0]])
    expected = math.sqrt(0.5) * np.array([[0, 1, 1], [0, 0, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0]])
    np.testing.assert_allclose(features, expected)


@pytest.mark.parametrize(
    ("shape", "group"), [((4,), Permutation()), ((5, 5), Dihedral()), ((4, 5, 2), Translation())], ids=repr
)
def test_features_are_invariant_to_a_group_listed_completely(shape, group, rng):
    X = on_sphere(rng.normal(size=(3, *shape)))
    cdf = GroupCDF(20, 10, group=group, random_state=0)
    features = cdf.fit_transform(X)
    assert np.abs(features[0] - features[1]).max() > 0.01
    for element in group.elements(shape):
        np.testing.assert_allclose(cdf.transform(group.act(element, X)), features, atol=1e-12)


def orbit_distance(x, z, group):
    """The distance d_G of the theorem."""
    moved = np.concatenate([group.act(element, x[None]) for element in group.elements(x.shape)])
    return np.linalg.norm((moved - z).reshape(len(moved), -1), axis=1).mean() / math.sqrt(
        2 * math.pi * x.size
    )


@pytest.mark.parametrize(("quadrature", "bias"), [("sum", 1), ("trapezoid", 0)])
def test_inner_products_are_orbit_distances_within_the_bounds_of_theorem_1(quadrature, bias, rng):
    group, epsilon, n_bins, n_templates = Translation((0, 4)), 0.9, 40, 20_000
    X = on_sphere(rng.normal(size=(4, 8, 8)))
    X[1] = np.roll(X[0], 3, axis=1)
    d, s = 64, 1 + epsilon
    cdf = GroupCDF(
        n_templates, n_bins, group=group, epsilon=epsilon, quadrature=quadrature, random_state=0
    ).fit(X)
    features = cdf.transform(X).reshape(4, -1, n_templates)
    tail, ball = math.exp(-d * epsilon**2 / 16), math.exp(-d * epsilon**2 / 8)
    delta_1 = (tail - 0.5 * math.exp(-epsilon * d / 2) * (1 + epsilon) ** (d / 2)) / math.sqrt(d)
    delta_2 = tail / math.sqrt(d) + s * ball
    for i, j in [(0, 0), (0, 1), (0, 2), (2, 3)]:
        of_templates = n_templates * (features[i] * features[j]).sum(axis=0)
        error = 4 * of_templates.std() / math.sqrt(n_templates)
        excess = of_templates.mean() - bias * s / (2 * n_bins) - (s - orbit_distance(X[i], X[j], group))
        assert error < 0.004
        assert -delta_2 - error <= excess <= delta_1 + error


def test_gaussian_templates_stay_in_the_ball_and_have_the_variance_of_their_law():
    templates = _gaussian_templates(4000, 50, epsilon=0.9, rng=np.random.RandomState(0))
    norms = (templates**2).sum(axis=1)
    assert templates.shape == (4000, 50)
    assert norms.max() < 1.9
    assert norms.mean() == pytest.approx(1, abs=0.02)
    assert np.cov(templates.T) == pytest.approx(np.eye(50) / 50, abs=0.004)


def test_templates_on_the_sphere():
    templates = GroupCDF(100, templates="sphere", random_state=0).fit(np.ones((2, 3, 4))).templates_
    assert templates.shape == (100, 3, 4)
    np.testing.assert_allclose(np.linalg.norm(templates.reshape(100, -1), axis=1), 1)


def test_thresholds_reach_as_far_as_samples_and_given_templates_can():
    X = np.array([[3.0, 4.0], [0.0, 1.0]])
    assert GroupCDF(epsilon=0.2).fit(X).thresholds_[-1] == pytest.approx(6)
    cdf = GroupCDF(epsilon=0.2, templates=[[0.0, 2.0]]).fit(X)
    assert cdf.thresholds_[-1] == pytest.approx(12)
    assert cdf.transform(X).shape == (2, 51) == (2, len(cdf.get_feature_names_out()))


def test_quadrature_weights():
    thresholds = np.array([0.0, 1.0, 4.0])
    np.testing.assert_allclose(_quadrature_weights(thresholds, rule="sum"), [2, 2, 2])
    np.testing.assert_allclose(_quadrature_weights(thresholds, rule="trapezoid"), [0.5, 2, 1.5])
    np.testing.assert_allclose(_quadrature_weights(thresholds[:1], rule="trapezoid"), [1])


def test_groups_without_adjoint_transform_the_data(rng):
    X = rng.normal(size=(3, 4, 4))
    X += X.transpose(0, 2, 1)
    group = NormSortedPermutation(noise=0.0)
    cdf = GroupCDF(5, 3, group=group, random_state=0)
    features = cdf.fit_transform(X)
    order = np.array([2, 0, 3, 1])
    np.testing.assert_allclose(cdf.transform(X[:, order][:, :, order]), features)
    plain = GroupCDF(5, 3, random_state=0).fit(X)
    np.testing.assert_allclose(plain.transform(group.act(np.zeros(4), X)), features)


def test_single_precision_stays(rng):
    X = on_sphere(rng.normal(size=(5, 3, 3)))
    cdf = GroupCDF(50, 5, group=Dihedral(), random_state=0).fit(X.astype(np.float32))
    single = cdf.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    # One projection that rounds to the other side of a threshold is 1 / 8 of a distribution.
    different = ~np.isclose(single, cdf.transform(X), atol=1e-6)
    assert different.mean() < 0.001


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"thresholds": [1.0, 1.0]},
            ConfigError,
            r"^thresholds=\[1.0, 1.0\]: give at least one, finite and inc",
        ),
        ({"thresholds": []}, ConfigError, r"^thresholds=\[\]: give at least one"),
        (
            {"templates": np.ones((2, 3))},
            InputError,
            r"^templates of shape \(2, 3\): samples have the shape \(4, 4\); give \(m, 4, 4\)$",
        ),
        (
            {"templates": np.full((1, 4, 4), np.nan)},
            InputError,
            "^the templates hold NaN or infinite values: give finite ones$",
        ),
        ({"group": Rotation()}, ConfigError, "has infinitely many elements: list some of them"),
        (
            {"group": Rotation(), "n_transforms": 0},
            InvalidParameterError,
            r"'n_transforms'.*range \[1, inf\)",
        ),
        ({"epsilon": 1.0}, InvalidParameterError, "'epsilon'"),
        ({"templates": "cauchy"}, InvalidParameterError, "'templates'"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        GroupCDF(**options).fit(np.ones((3, 4, 4)))


def test_bad_samples():
    with pytest.raises(InputError, match=r"^all samples are 0: thresholds need a scale"):
        GroupCDF().fit(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        GroupCDF().fit(np.full((3, 4), np.nan))
    cdf = GroupCDF().fit(np.ones((3, 4, 4)))
    with pytest.raises(
        InputError, match=r"^samples of shape \(4, 5\): GroupCDF was fitted on \(4, 4\); resize"
    ):
        cdf.transform(np.ones((3, 4, 5)))
