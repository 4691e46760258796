"""Advice: posterior variances by kernel algebra, rankings, regions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.kernels import LinearGaussianMixture
from segkit.live.advice import RHO, LabelledPixels, mark_regions, rank_typical, uncertainty


@pytest.fixture
def kernels(rng):
    X = rng.normal(size=(300, 4))
    return LinearGaussianMixture(n_components=60, random_state=0).fit(X, X[:, 0] > 0)


def gram(kernels, X, Y):
    return kernels.transform(X) @ kernels.transform(Y).T


def posterior(kernels, X, Y, seen, noise):
    """Posterior covariance of a Gaussian process, by Gram matrices."""
    K = gram(kernels, seen, seen) + np.diag(noise)
    return gram(kernels, X, Y) - gram(kernels, X, seen) @ np.linalg.solve(K, gram(kernels, seen, Y))


def test_distance_is_the_posterior_variance(kernels, rng):
    Z, X = rng.normal(size=(50, 4)), rng.normal(size=(20, 4))
    for n_images in (1, 3):
        expected = np.diag(posterior(kernels, X, X, Z, np.full(50, 50 / n_images * RHO)))
        found = LabelledPixels(kernels, Z, n_images=n_images).distance(X)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_uncertainty_is_the_entropy():
    found = uncertainty(np.array([[0.5, 0.5], [1, 0], [0.25, 0.75]]))
    entropy = -(0.25 * np.log2(0.25) + 0.75 * np.log2(0.75))
    np.testing.assert_allclose(found, [1, 0, entropy])
    assert uncertainty(np.full((2, 2, 3), 1 / 3)) == pytest.approx(1)


def test_regions_are_the_best_squares():
    scores = np.zeros((12, 18))
    scores[1:3, 2:4], scores[8:10, 15:17] = 1, 2
    assert mark_regions(scores, 4, (48, 72)) == [(32, 60, 40, 68), (4, 8, 12, 16)]


@settings(max_examples=60)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_regions_lie_inside_and_do_not_overlap(height, width, stride, seed):
    rng = np.random.default_rng(seed)
    scores = rng.random((height, width)) ** 4 * (rng.random((height, width)) > 0.5)
    shape = height * stride - rng.integers(stride), width * stride - rng.integers(stride)
    boxes = mark_regions(scores, stride, shape)
    covered = np.zeros(shape, dtype=int)
    for top, left, bottom, right in boxes:
        assert 0 <= top < bottom <= shape[0]
        assert 0 <= left < right <= shape[1]
        covered[top:bottom, left:right] += 1
    assert covered.max(initial=0) <= 1
    assert len(boxes) <= 3
    assert bool(boxes) == bool(scores.any())
    means = [
        scores[top // stride : -(-bottom // stride), left // stride : -(-right // stride)].mean()
        for top, left, bottom, right in boxes
    ]
    assert means == pytest.approx(sorted(means, reverse=True))


def test_the_image_nearest_to_the_mean_of_all_is_the_most_typical(rng):
    images = [rng.standard_normal((30, 3)) + shift for shift in (0, 4, 1, -2)]
    kernels = LinearGaussianMixture(random_state=0).fit(np.concatenate(images), np.repeat([0, 1, 0, 1], 30))
    candidates, annotated = images[:3], images[3:]
    K = [[np.mean(kernels.transform(one) @ kernels.transform(other).T) for other in images] for one in images]
    K = np.array(K)
    # the squared MMD of an image and all, from kernel means
    squared = np.diag(K) - 2 * K.mean(axis=1) + K.mean()
    assert rank_typical(kernels, candidates, annotated).tolist() == np.argsort(squared[:3]).tolist()
