import numpy as np
import pytest

from benchmarks.orbit_error import (
    Matrices,
    ShiftedImages,
    of_transformations,
    pair_means,
    squared_errors,
    unbiased,
)
from segkit.invariance import NormSortedPermutation, Translation
from segkit.kernels import Gaussian


@pytest.fixture
def images():
    return np.random.default_rng(0).uniform(size=(3, 4, 5))


def naive_means(kernel, group, X, elements):
    orbits = [group.act(element, X).reshape(len(X), -1) for element in elements]
    grams = np.array([[kernel(left, right) for right in orbits] for left in orbits])
    return grams.mean(axis=(0, 1)), np.mean([grams[k, k] for k in range(len(elements))], axis=0)


def test_means_are_those_of_all_pairs():
    matrices = np.random.default_rng(0).normal(size=(4, 3, 3))
    group = NormSortedPermutation(noise=2.0)
    elements = group.sample(5, (3, 3), np.random.default_rng(1))
    found = pair_means(Gaussian(0.1), group, matrices, elements)
    np.testing.assert_allclose(found, naive_means(Gaussian(0.1), group, matrices, elements), atol=1e-12)


@pytest.mark.parametrize("max_shift", [None, 1])
def test_shifted_images_have_the_means_of_all_pairs(images, max_shift):
    kernel, group = Gaussian(0.3), Translation(max_shift)
    averages = ShiftedImages(kernel, images, max_shift)
    drawn = group.sample(6, (4, 5), np.random.default_rng(2))
    for found, elements in (
        (averages.draw(6, np.random.default_rng(2)), drawn),
        ((averages.truth[0], averages.with_itself[0]), group.elements((4, 5))),
    ):
        np.testing.assert_allclose(found, naive_means(kernel, group, images, elements), atol=1e-12)


@pytest.mark.parametrize("max_shift", [None, 1])
def test_drawn_averages_have_the_expected_mean_and_variance(images, max_shift):
    averages, n, n_draws = ShiftedImages(Gaussian(0.3), images, max_shift), 6, 4000
    rng = np.random.default_rng(0)
    drawn = np.array([averages.draw(n, rng)[0] for _ in range(n_draws)])
    truth, with_itself = averages.truth[0], averages.with_itself[0]
    expected = (1 - 1 / n) * truth + with_itself / n
    assert (np.abs(drawn.mean(axis=0) - expected) < 5 * drawn.std(axis=0) / np.sqrt(n_draws) + 1e-12).all()
    np.testing.assert_allclose(drawn.var(axis=0), averages.variance(n), rtol=0.15)
    np.testing.assert_allclose(
        unbiased(expected, with_itself, n), truth, atol=1e-12, err_msg="pairs with itself are the bias"
    )


def test_over_a_whole_group_the_error_falls_as_one_over_the_number_drawn(images):
    whole, window = (ShiftedImages(Gaussian(0.3), images, max_shift) for max_shift in (None, 1))
    many = (1000, 4000)
    falls = [np.sqrt(one.variance(many[0]).sum() / one.variance(many[1]).sum()) for one in (whole, window)]
    assert falls == pytest.approx([4, 2], rel=0.05)


def test_products_with_two_halves_leave_the_error_of_the_reference_out():
    matrices = np.random.default_rng(0).normal(size=(4, 3, 3))
    kernel, n = Gaussian(0.1), 10
    exact = Matrices(kernel, matrices, 300)
    of_many = [squared_errors(exact, n, np.random.default_rng(seed))["unbiased"] for seed in range(120)]
    of_few = [
        squared_errors(Matrices(kernel, matrices, 12, seed=1000 + seed), n, np.random.default_rng(seed))[
            "unbiased"
        ]
        for seed in range(120)
    ]
    spread = np.hypot(np.std(of_many), np.std(of_few)) / np.sqrt(120)
    assert abs(np.mean(of_many) - np.mean(of_few)) < 4 * spread
    assert np.mean(of_many) > 4 * spread  # else the comparison says nothing


def test_parts_add_up(images):
    found = of_transformations(ShiftedImages(Gaussian(0.3), images, None), (5, 20), 400)
    for total, bias, deviation in zip(found["total"], found["bias"], found["deviation"], strict=True):
        assert total**2 == pytest.approx(bias**2 + deviation**2, rel=0.1)
