import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import InputError
from segkit.kernels import Gaussian, Laplacian, Normalized, NystroemFeatures, Polynomial
from segkit.kernels.nystrom import NystroemMap

KERNELS = [Laplacian(0.5), Polynomial(), Normalized(Polynomial(degree=2))]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_exact_when_all_rows_are_landmarks(kernel, rng):
    X = rng.normal(size=(25, 3))
    features = NystroemFeatures(kernel, n_components=25, random_state=0)
    Z, K = features.fit_transform(X), kernel(X)
    np.testing.assert_allclose(Z @ Z.T, K, rtol=1e-6, atol=1e-7)
    single = features.fit_transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.astype(np.float64) @ single.T, K, atol=1e-3 * np.abs(K).max())


def test_exact_with_fewer_landmarks_than_rows_when_the_rank_is_low(rng):
    """A linear kernel of 3 features has rank 3: any 5 rows in general position hold all of it."""
    X = rng.normal(size=(40, 3))
    kernel = Polynomial(degree=1, coef0=0.0)
    Z = NystroemFeatures(kernel, n_components=5, random_state=0).fit_transform(X)
    assert Z.shape == (40, 3)
    np.testing.assert_allclose(Z @ Z.T, X @ X.T, atol=1e-10)


def test_equals_the_projection_on_the_landmarks(rng):
    X = rng.normal(size=(30, 3))
    features = NystroemFeatures(Laplacian(0.3), n_components=8, random_state=0).fit(X)
    M = features.map_.landmarks
    expected = Laplacian(0.3)(X, M) @ np.linalg.inv(Laplacian(0.3)(M)) @ Laplacian(0.3)(M, X)
    Z = features.transform(X)
    np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-10)
    residual = np.linalg.eigvalsh(Laplacian(0.3)(X) - Z @ Z.T)
    assert residual.min() > -1e-10


def test_landmarks_are_distinct_seeded_rows(rng):
    X = rng.normal(size=(30, 3))
    landmarks = [NystroemFeatures(None, 10, seed).fit(X).map_.landmarks for seed in (0, 0, 1)]
    np.testing.assert_array_equal(landmarks[0], landmarks[1])
    assert not np.array_equal(landmarks[0], landmarks[2])
    assert len({tuple(row) for row in landmarks[0]} & {tuple(row) for row in X}) == 10


def test_duplicate_rows_are_cut(rng):
    X = np.repeat(rng.normal(size=(4, 2)), 5, axis=0)
    features = NystroemFeatures(Gaussian(1.0), n_components=20, random_state=0).fit(X)
    Z = features.transform(X)
    assert Z.shape == (20, 4)
    np.testing.assert_allclose(Z @ Z.T, Gaussian(1.0)(X), atol=1e-12)
    assert len(features.get_feature_names_out()) == 4


def test_vanishing_kernel():
    with pytest.raises(InputError) as caught:
        NystroemMap.from_landmarks(Polynomial(degree=1, coef0=0.0), np.zeros((3, 2)))
    assert str(caught.value) == (
        "kernel Polynomial(degree=1, gamma=1.0, coef0=0.0) is 0 on all 3 landmarks: "
        "check for all-zero features or take another kernel"
    )


@parametrize_with_checks([NystroemFeatures(random_state=0)])
def test_estimator_checks(estimator, check):
    check(estimator)


def test_a_hundred_landmarks_if_none_are_asked_for(rng):
    features = NystroemFeatures(Gaussian(5.0), random_state=0).fit(rng.normal(size=(150, 3)))
    assert features.map_.landmarks.shape == (100, 3)
