import numpy as np
import pytest
from sklearn.base import clone

from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.svm import LinearSVM
from segkit.errors import ConfigError
from segkit.kernels import LinearGaussianMixture, LinearMixture, MixtureRFF
from segkit.selection import ConditionalCovarianceSelector, MMDSelector

MIXTURES = [
    LinearMixture(),
    LinearGaussianMixture(n_components=40, random_state=0),
    MixtureRFF(n_components=64, random_state=0),
]


def pixels(n=240, n_classes=2, seed=0):
    """Channels of which two tell the classes apart, three are noise; weights, and the image of each pixel."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = (5 + 3 * rng.standard_normal((n, 5))).astype(np.float32)
    X[:, 1] += 6 * y
    X[:, 3] -= 4 * (y == 1)
    return X, y, rng.uniform(0.5, 2, n), np.arange(n) % 3


def fitted(kernels, n_classes=2, penalty=1e-2):
    X, y, weight, groups = pixels(n_classes=n_classes)
    classifier = PixelClassifier(MMDSelector(3), kernels, LinearSVM(tol=1e-8)).select(X, y, groups)
    return classifier.fit(X[:, classifier.channels_], y, weight, groups, penalty=penalty)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernels", MIXTURES, ids=lambda kernels: type(kernels).__name__)
def test_it_is_its_parts_one_after_the_other(kernels, n_classes):
    X, y, weight, groups = pixels(n_classes=n_classes)
    classifier = fitted(kernels, n_classes)
    kept = MMDSelector(3).fit(X, y, groups).get_support(indices=True)
    np.testing.assert_array_equal(classifier.channels_, kept)
    mean = np.average(X[:, kept], axis=0, weights=weight)
    scale = np.sqrt(np.average((X[:, kept] - mean) ** 2, axis=0, weights=weight))
    Z = ((X[:, kept] - mean) / scale).astype(np.float32)
    features = classifier.kernels_.transform(Z)
    svm = LinearSVM(C=1 / (len(X) * 1e-2), tol=1e-8).fit(features, y, weight)
    expected = svm.decision_function(features).reshape(len(X), -1)
    np.testing.assert_allclose(classifier.decision_function(X[:, kept]), expected, atol=2e-3)
    assert np.ptp(expected) > 1


@pytest.mark.parametrize("kernels", MIXTURES, ids=lambda kernels: type(kernels).__name__)
def test_linear_and_nonlinear_parts_add_up(kernels):
    X, *_ = pixels(seed=1)
    classifier = fitted(kernels)
    kept = X[:, classifier.channels_]
    total = np.tile(classifier.svm_.intercept_, (len(X), 1))
    if classifier.linear_coef is not None:
        total = total + (kept - classifier.mean_) @ classifier.linear_coef.T
    if classifier.nonlinear_channels.size:
        columns = np.searchsorted(classifier.channels_, classifier.nonlinear_channels)
        Z = classifier.standardise(kept)[:, columns]
        total = total + classifier.kernels_.nonlinear_dot(Z, classifier.svm_.coef_)
    np.testing.assert_allclose(classifier.decision_function(kept), total, atol=1e-4)


def test_a_path_is_a_fit_at_each_penalty():
    X, y, weight, groups = pixels()
    unfitted = PixelClassifier(MMDSelector(3), LinearMixture(), LinearSVM(tol=1e-8)).select(X, y, groups)
    kept = X[:, unfitted.channels_]
    path = unfitted.path(kept, y, weight, groups, penalties=[1e-1, 1e-3], tol=1e-8)
    for classifier, penalty in zip(path, [1e-1, 1e-3], strict=True):
        expected = fitted(LinearMixture(), penalty=penalty).decision_function(kept)
        np.testing.assert_allclose(classifier.decision_function(kept), expected, atol=1e-3)
    assert not np.allclose(path[0].svm_.coef_, path[1].svm_.coef_)


def test_without_a_penalty_the_svm_has_its_own_cost():
    X, y, weight, groups = pixels()
    classifier = PixelClassifier(MMDSelector(3), LinearMixture(), LinearSVM(C=0.5)).select(X, y, groups)
    classifier.fit(X[:, classifier.channels_], y, weight, groups)
    assert classifier.svm_.C == 0.5


def test_channels_that_are_not_scaled_stay_as_they_are():
    X, y, weight, groups = pixels()
    kernels = MixtureRFF(gammas=[0.002], n_components=20, random_state=0)
    classifier = PixelClassifier(MMDSelector(3), kernels, LinearSVM(), scaled=False).select(X, y, groups)
    kept = 5 + 3 * X[:, classifier.channels_].astype(np.float32)
    classifier.fit(kept, y, weight, groups, penalty=1e-2)
    np.testing.assert_array_equal(classifier.standardise(kept), kept)
    expected = (
        clone(kernels).fit(kept, y).transform(kept) @ classifier.svm_.coef_.T + classifier.svm_.intercept_
    )
    np.testing.assert_allclose(classifier.decision_function(kept), expected, atol=1e-4)


def test_parts_are_cloned():
    selector, kernels, svm = MMDSelector(3), LinearMixture(), LinearSVM()
    X, y, weight, groups = pixels()
    classifier = PixelClassifier(selector, kernels, svm).select(X, y, groups)
    classifier.fit(X[:, classifier.channels_], y, weight, groups, penalty=1e-2)
    assert not hasattr(selector, "scores_")
    assert not hasattr(kernels, "weights_")
    assert (hasattr(svm, "coef_"), svm.C) == (False, 1.0)


def test_a_selector_without_groups_is_not_given_any():
    X, y, _, groups = pixels()
    selector = ConditionalCovarianceSelector(n_features_to_select=2, random_state=0)
    found = PixelClassifier(selector, LinearMixture(), LinearSVM()).select(X, y, groups)
    assert found.channels_.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("named", "expected"),
    [(None, [False, False, True, True, True]), ([False, True, False], [False, True, False, False, False])],
)
def test_gaussians_see_channels_of_each_pixel_unless_columns_are_named(named, expected):
    X, y, weight, groups = pixels()
    kernels = LinearGaussianMixture(n_components=40, gaussian_columns=named, random_state=0)
    classifier = PixelClassifier(MMDSelector(3), kernels, LinearSVM()).select(X, y, groups)
    classifier.channels_ = np.array([0, 1, 3])
    classifier.allow_gaussians(np.array([False, False, True, True, True]))
    assert classifier.gaussian_channels.tolist() == expected
    classifier.fit(X[:, classifier.channels_], y, weight, groups, penalty=1e-2)
    assert classifier.nonlinear_channels.tolist() == ([3] if named is None else [1])


def test_named_columns_of_another_number_are_refused():
    X, y, weight, groups = pixels()
    kernels = LinearGaussianMixture(n_components=40, gaussian_columns=[True, False], random_state=0)
    classifier = PixelClassifier(MMDSelector(3), kernels, LinearSVM()).select(X, y, groups)
    classifier.allow_gaussians(np.ones(5, dtype=bool))
    with pytest.raises(ConfigError, match="gaussian_columns"):
        classifier.fit(X[:, classifier.channels_], y, weight, groups, penalty=1e-2)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernels", MIXTURES, ids=lambda kernels: type(kernels).__name__)
def test_it_comes_back_from_its_state(kernels, n_classes):
    X, *_ = pixels(n_classes=n_classes)
    classifier = fitted(kernels, n_classes)
    header, arrays = classifier.to_state()
    again = PixelClassifier.from_state(classifier.channels_, header, arrays)
    kept = X[:, classifier.channels_]
    np.testing.assert_array_equal(again.decision_function(kept), classifier.decision_function(kept))
    assert again.selector_ is None
    shapes = {name: arrays[name].shape for name in classifier.state_shapes(n_classes)}
    assert classifier.state_shapes(n_classes) == shapes
