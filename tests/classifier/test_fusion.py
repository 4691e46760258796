import numpy as np
import pytest

from segkit.classifier.fusion import FusedClassifier
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.svm import LinearSVM
from segkit.errors import ConfigError
from segkit.kernels import LinearGaussianMixture, LinearMixture, MixtureRFF
from segkit.selection import MMDSelector

MIXTURES = [
    LinearMixture(),
    LinearGaussianMixture(n_components=40, random_state=0),
    MixtureRFF(n_components=64, random_state=0),
]
# the last two channels belong to both
PARTS = np.array([[1, 1, 1, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1, 1]], dtype=bool)


def pixels(n=240, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = (5 + 3 * rng.standard_normal((n, 7))).astype(np.float32)
    X[:, 1] += 6 * y
    X[:, 3] -= 4 * (y == 1)
    X[:, 5] += 3 * y
    return X, y, rng.uniform(0.5, 2, n), np.arange(n) % 3


def single(kernels):
    return PixelClassifier(MMDSelector(3), kernels, LinearSVM(tol=1e-8))


def fused(kernels, n_classes=2, penalty=1e-2):
    X, y, weight, groups = pixels(n_classes=n_classes)
    classifier = FusedClassifier(single(kernels), PARTS).select(X, y, groups)
    return classifier.fit(X[:, classifier.channels_], y, weight, groups, penalty=penalty)


def halved(kernels):
    """Two parts share the random features."""
    options = kernels.get_params()
    return type(kernels)(
        **options | ({"n_components": options["n_components"] // 2} if "n_components" in options else {})
    )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernels", MIXTURES, ids=lambda kernels: type(kernels).__name__)
def test_decisions_are_the_mean_of_classifiers_of_the_parts(kernels, n_classes):
    X, y, weight, groups = pixels(n_classes=n_classes)
    unseen = pixels(n_classes=n_classes, seed=1)[0]
    decisions, kept = [], set()
    for part in PARTS:
        member = single(halved(kernels)).select(X[:, part], y, groups)
        member.fit(X[:, part][:, member.channels_], y, weight, groups, penalty=1e-2)
        decisions.append(member.decision_function(unseen[:, part][:, member.channels_]))
        kept |= set(np.flatnonzero(part)[member.channels_])
    classifier = fused(kernels, n_classes)
    assert classifier.channels_.tolist() == sorted(kept)
    found = classifier.decision_function(unseen[:, classifier.channels_])
    np.testing.assert_allclose(found, np.mean(decisions, axis=0), atol=1e-4)
    assert np.abs(decisions[0] - decisions[1]).max() > 0.1


@pytest.mark.parametrize("kernels", MIXTURES, ids=lambda kernels: type(kernels).__name__)
def test_linear_and_nonlinear_parts_add_up(kernels):
    X, *_ = pixels(seed=1)
    classifier = fused(kernels)
    kept = X[:, classifier.channels_]
    total = np.tile(classifier.svm_.intercept_, (len(X), 1))
    if classifier.linear_coef is not None:
        total = total + (kept - classifier.mean_) @ classifier.linear_coef.T
    if classifier.nonlinear_channels.size:
        columns = np.searchsorted(classifier.channels_, classifier.nonlinear_channels)
        Z = classifier.standardise(kept)[:, columns]
        total = total + classifier.kernels_.nonlinear_dot(Z, classifier.svm_.coef_)
    np.testing.assert_allclose(classifier.decision_function(kept), total, atol=2e-3)


@pytest.mark.parametrize("kernels", MIXTURES, ids=lambda kernels: type(kernels).__name__)
def test_a_path_is_the_fits_at_its_penalties_and_shares_the_kernels(kernels):
    X, y, weight, groups = pixels()
    classifier = FusedClassifier(single(kernels), PARTS).select(X, y, groups)
    kept = X[:, classifier.channels_]
    path = classifier.path(kept, y, weight, groups, penalties=[1e-1, 1e-3], tol=1e-8)
    for penalty, one in zip([1e-1, 1e-3], path, strict=True):
        expected = fused(kernels, penalty=penalty).decision_function(kept)
        np.testing.assert_allclose(one.decision_function(kept), expected, atol=2e-3)
    assert path[0].kernels_ is path[1].kernels_
    assert np.abs(path[0].decision_function(kept) - path[1].decision_function(kept)).max() > 0.05


@pytest.mark.parametrize("kernels", MIXTURES, ids=lambda kernels: type(kernels).__name__)
def test_each_part_is_refitted_by_itself(kernels):
    X, y, weight, _ = pixels()
    classifier = fused(kernels, penalty=1e-1)
    kept = X[:, classifier.channels_]
    before = classifier.decision_function(kept)
    found = classifier.refit(kept, y, weight, penalty=1e-3, tol=1e-8).decision_function(kept)
    np.testing.assert_allclose(found, fused(kernels, penalty=1e-3).decision_function(kept), atol=2e-3)
    np.testing.assert_array_equal(classifier.decision_function(kept), before)
    assert np.abs(found - before).max() > 0.05


def test_named_columns_of_gaussians_are_refused():
    kernels = LinearGaussianMixture(gaussian_columns=[True, False, True])
    with pytest.raises(ConfigError, match="gaussian_columns with fusion='late': columns differ"):
        FusedClassifier(single(kernels), PARTS)


def test_gaussians_see_the_channels_that_they_may():
    X, y, weight, groups = pixels()
    per_pixel = np.array([0, 1, 0, 0, 0, 1, 1], dtype=bool)
    classifier = FusedClassifier(single(LinearGaussianMixture(random_state=0)), PARTS)
    classifier.select(X, y, groups).allow_gaussians(per_pixel)
    classifier.fit(X[:, classifier.channels_], y, weight, groups, penalty=1e-2)
    assert set(classifier.nonlinear_channels) <= set(np.flatnonzero(per_pixel))
    assert {1, 5} <= set(classifier.nonlinear_channels)
    # selected anew, as for a fold, it keeps to them
    again = classifier.select(X[:200], y[:200], groups[:200])
    again.fit(X[:, again.channels_], y, weight, groups, penalty=1e-2)
    assert set(again.nonlinear_channels) <= set(np.flatnonzero(per_pixel))


@pytest.mark.parametrize("kernels", MIXTURES, ids=lambda kernels: type(kernels).__name__)
def test_a_state_restores_its_decisions(kernels):
    X, *_ = pixels(seed=1)
    classifier = fused(kernels)
    header, arrays = classifier.to_state()
    again = PixelClassifier.from_state(classifier.channels_, header, arrays)
    kept = X[:, classifier.channels_]
    np.testing.assert_array_equal(again.decision_function(kept), classifier.decision_function(kept))
    shapes = again.state_shapes(2)
    assert all(arrays[name].shape == shape for name, shape in shapes.items())


@pytest.mark.parametrize(("n_components", "own"), [(1, 1), (40, 20), (41, 20)])
def test_random_features_are_shared_out_and_each_part_has_some(n_components, own):
    kernels = LinearGaussianMixture(n_components=n_components)
    assert FusedClassifier(single(kernels), PARTS).kernels.n_components == own
    assert kernels.n_components == n_components
