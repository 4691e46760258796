"""Advice: posterior variances by kernel algebra, rankings, regions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.errors import InputError
from segkit.kernels import LinearGaussianMixture
from segkit.live.advice import (
    RHO,
    Candidate,
    LabelledPixels,
    mark_regions,
    rank_images,
    rank_typical,
    score_pixels,
    uncertainty,
)


@pytest.fixture
def kernels(rng):
    X = rng.normal(size=(300, 4))
    return LinearGaussianMixture(n_components=60, random_state=0).fit(X, X[:, 0] > 0)


def draw(rng, centre=0.0, n=30):
    p = rng.uniform(0.05, 0.95, n)
    return Candidate(centre + rng.normal(size=(n, 4)), np.stack([1 - p, p], axis=1))


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


def test_distance_lies_between_zero_and_the_kernel_and_falls_with_images(kernels, rng):
    Z, X = rng.normal(size=(50, 4)), rng.normal(size=(20, 4))
    one, two = (LabelledPixels(kernels, Z, n_images=n).distance(X) for n in (1, 2))
    assert (two >= 0).all()
    assert (two < one).all()
    assert (one <= np.diag(gram(kernels, X, X))).all()


def test_uncertainty_is_the_entropy():
    found = uncertainty(np.array([[0.5, 0.5], [1, 0], [0.25, 0.75]]))
    entropy = -(0.25 * np.log2(0.25) + 0.75 * np.log2(0.75))
    np.testing.assert_allclose(found, [1, 0, entropy])
    assert uncertainty(np.full((2, 2, 3), 1 / 3)) == pytest.approx(1)


def test_scores_of_pixels_are_products(kernels, rng):
    labelled, image = LabelledPixels(kernels, rng.normal(size=(50, 4))), draw(rng)
    expected = uncertainty(image.probabilities) * labelled.distance(image.X)
    np.testing.assert_allclose(score_pixels(image.X, image.probabilities, labelled), expected)


def test_scores_of_images_are_the_uncertain_variance_that_they_take(kernels, rng):
    Z = rng.normal(size=(50, 4))
    candidates = [draw(rng, centre, n) for centre, n in ((0, 10), (1, 20), (3, 15))]
    order, scores = rank_images(candidates, LabelledPixels(kernels, Z, n_images=2))
    before = np.full(50, 25 * RHO)
    for image, score in zip(candidates, scores, strict=True):
        seen = np.concatenate([Z, image.X])
        after = np.concatenate([before, np.full(len(image.X), len(image.X) * RHO)])
        taken = []
        for other in candidates:
            left = posterior(kernels, other.X, other.X, seen, after)
            had = posterior(kernels, other.X, other.X, Z, before)
            taken.append(np.mean(uncertainty(other.probabilities) * np.diag(had - left)))
        assert score == pytest.approx(np.mean(taken), rel=1e-5)
    assert order.tolist() == np.argsort(-scores).tolist()


def test_an_image_equal_to_a_labelled_one_ranks_last(kernels, rng):
    old, *new = (draw(rng, centre) for centre in (0, 2, 3, 4))
    order, scores = rank_images([*new, old], LabelledPixels(kernels, old.X))
    assert order[-1] == 3
    assert (scores >= 0).all()


def test_nothing_is_gained_where_all_is_certain(kernels, rng):
    sure = Candidate(rng.normal(size=(9, 4)), np.tile([0.0, 1.0], (9, 1)))
    assert rank_images([sure], LabelledPixels(kernels, rng.normal(size=(50, 4)))).scores == [0]


def test_an_image_like_no_other_does_not_win_by_that(kernels, rng):
    """The product alone would put it first."""
    alike, outlier = [draw(rng, 1.5) for _ in range(12)], draw(rng, -8, 30)
    labelled = LabelledPixels(kernels, rng.normal(size=(50, 4)) - 1)
    means = [score_pixels(image.X, image.probabilities, labelled).mean() for image in [*alike, outlier]]
    assert np.argmax(means) == 12
    assert rank_images([*alike, outlier], labelled).order[0] != 12


def test_permuted_candidates_permute_the_ranking(kernels, rng):
    candidates = [draw(rng, centre) for centre in (0, 1, 2, 4)]
    labelled = LabelledPixels(kernels, rng.normal(size=(50, 4)))
    found, turned = (rank_images(images, labelled) for images in (candidates, candidates[::-1]))
    np.testing.assert_allclose(found.scores, turned.scores[::-1], rtol=1e-9)
    assert found.order.tolist() == (3 - turned.order).tolist()


def test_single_precision_is_enough(kernels, rng):
    Z, candidates = rng.normal(size=(50, 4)), [draw(rng, centre) for centre in (0, 1, 3)]
    single = [Candidate(image.X.astype(np.float32), image.probabilities) for image in candidates]
    exact = rank_images(candidates, LabelledPixels(kernels, Z)).scores
    found = rank_images(single, LabelledPixels(kernels, Z.astype(np.float32))).scores
    np.testing.assert_allclose(found, exact, rtol=1e-3)


def test_regions_are_the_best_squares():
    scores = np.zeros((12, 18))
    scores[1:3, 2:4], scores[8:10, 15:17] = 1, 2
    assert mark_regions(scores, 4, side=8) == [(32, 60, 40, 68), (4, 8, 12, 16)]


def test_no_region_where_nothing_is_to_be_learnt():
    assert mark_regions(np.zeros((5, 7)), 8) == []


def test_the_last_region_is_cut_by_the_border():
    scores = np.zeros((5, 5))
    scores[4, 4] = 1
    assert mark_regions(scores, 4, side=4, shape=(18, 17)) == [(16, 16, 18, 17)]


@settings(max_examples=60)
@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(1, 5),
    st.none() | st.integers(1, 90),
    st.integers(0, 2**32 - 1),
)
def test_regions_lie_inside_and_do_not_overlap(height, width, stride, n_regions, side, seed):
    rng = np.random.default_rng(seed)
    scores = rng.random((height, width)) ** 4 * (rng.random((height, width)) > 0.5)
    shape = height * stride - rng.integers(stride), width * stride - rng.integers(stride)
    boxes = mark_regions(scores, stride, n_regions, side=side, shape=shape)
    covered = np.zeros(shape, dtype=int)
    for top, left, bottom, right in boxes:
        assert 0 <= top < bottom <= shape[0]
        assert 0 <= left < right <= shape[1]
        covered[top:bottom, left:right] += 1
    assert covered.max(initial=0) <= 1
    assert len(boxes) <= n_regions
    assert bool(boxes) == bool(scores.any())
    means = [
        scores[top // stride : -(-bottom // stride), left // stride : -(-right // stride)].mean()
        for top, left, bottom, right in boxes
    ]
    assert means == pytest.approx(sorted(means, reverse=True))


def test_bad_input_is_refused(kernels, rng):
    image, Z = draw(rng), rng.normal(size=(50, 4))
    labelled = LabelledPixels(kernels, Z)
    with pytest.raises(
        InputError, match=r"^0 images to rank: give at least one, each with some of its pixels$"
    ):
        rank_images([], labelled)
    with pytest.raises(InputError, match=r"^1 image to rank"):
        rank_images([Candidate(image.X[:0], image.probabilities[:0])], labelled)
    with pytest.raises(InputError, match=r"hold NaN or infinity: leave that image out$"):
        rank_images([Candidate(image.X * np.nan, image.probabilities)], labelled)
    with pytest.raises(InputError, match=r"^probabilities of shape"):
        rank_images([Candidate(image.X, image.probabilities * np.nan)], labelled)
    with pytest.raises(InputError, match=r"^0 labelled pixels of 1 image: label some pixels first$"):
        LabelledPixels(kernels, Z[:0])
    with pytest.raises(InputError, match=r"hold NaN or infinity"):
        LabelledPixels(kernels, Z * np.inf)
    for scores in (np.full((3, 3), np.nan), np.full((3, 3), -1.0), np.ones(3)):
        with pytest.raises(InputError, match=r"^scores of shape"):
            mark_regions(scores, 4)


def test_the_image_nearest_to_the_mean_of_all_is_the_most_typical(rng):
    images = [rng.standard_normal((30, 3)) + shift for shift in (0, 4, 1, -2)]
    kernels = LinearGaussianMixture(random_state=0).fit(np.concatenate(images), np.repeat([0, 1, 0, 1], 30))
    candidates, annotated = images[:3], images[3:]
    order, scores = rank_typical(kernels, candidates, annotated)
    K = [[np.mean(kernels.transform(one) @ kernels.transform(other).T) for other in images] for one in images]
    K = np.array(K)
    for place, score in enumerate(scores):  # the squared MMD of an image and all, from kernel means
        squared = K[place, place] - 2 * K[place].mean() + K.mean()
        np.testing.assert_allclose(score**2, squared, rtol=1e-6, atol=1e-9)
    assert order.tolist() == np.argsort(-scores).tolist()
    swapped = rank_typical(kernels, candidates[::-1], annotated)
    np.testing.assert_allclose(swapped.scores[::-1], scores)


def test_typical_needs_images_with_finite_pixels(rng):
    X = rng.standard_normal((10, 2))
    kernels = LinearGaussianMixture(random_state=0).fit(X, X[:, 0] > 0)
    with pytest.raises(InputError, match="0 images to rank: give at least one"):
        rank_typical(kernels, [], [X])
    with pytest.raises(InputError, match="1 image to rank: give at least one, each with some of its pixels"):
        rank_typical(kernels, [X[:0]], [X])
    with pytest.raises(InputError, match="hold NaN or infinity: leave that image out"):
        rank_typical(kernels, [X * np.nan], [X])
