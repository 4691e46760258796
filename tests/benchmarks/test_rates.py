import numpy as np
import pytest

from benchmarks.tables.orbit_error import Matrices, ShiftedImages, pair_means, squared_errors, unbiased
from benchmarks.tables.rates import (
    DIMENSION,
    GAMMAS,
    SHIFT,
    errors_of_mmd,
    estimate,
    integrals,
    mean_coordinate,
    mean_distances,
    mean_norm,
    parts_of_error,
    projections,
    proof_bounds,
    true_kernel,
    true_mmd_squared,
    upper_bound,
)
from segkit.invariance import NormSortedPermutation, Translation
from segkit.kernels import Gaussian


def test_the_true_discrepancy_is_that_of_many_points(rng):
    first, second, third, fourth = rng.standard_normal((4, 400_000, 2))
    shifted, others = (points + np.array([0.7, 0.0]) for points in (second, fourth))

    def expected(x, y):
        return np.exp(-0.4 * np.square(x - y).sum(axis=1)).mean()

    found = expected(first, third) + expected(shifted, others) - 2 * expected(first, shifted)
    assert true_mmd_squared(0.4, 2, 0.7) == pytest.approx(found, abs=3e-3)
    assert true_mmd_squared(0.4, 2, 0.0) == 0


def test_the_unbiased_estimate_has_the_true_mean(rng):
    drawn = np.array([estimate(40, rng)["unbiased"] for _ in range(300)])
    truth = [true_mmd_squared(gamma, DIMENSION, SHIFT) for gamma in GAMMAS]
    errors = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - truth) < 4 * errors).all()


def test_more_points_err_less_and_within_the_bound():
    few, many = (errors_of_mmd(n, 20, seed=0) for n in (25, 200))
    for row, n in ((few, 25), (many, 200)):
        assert row["biased"]["quantile"] < upper_bound(n)
    for name in ("error", "weights"):
        assert many["biased"][name] < few["biased"][name]
    # the biased estimate of a discrepancy is too high
    assert few["biased"]["bias"] > 0.05


@pytest.fixture
def images():
    images = np.random.default_rng(0).uniform(size=(3, 3, 4))
    return images / np.linalg.norm(images, axis=(1, 2), keepdims=True)


def test_mean_distances_are_those_of_the_orbits(images):
    group = Translation()
    orbits = [group.act(element, images) for element in group.elements((3, 4))]
    distances = [
        np.linalg.norm(left[:, None] - right[None], axis=(2, 3)) for left in orbits for right in orbits
    ]
    np.testing.assert_allclose(mean_distances(images), np.mean(distances, axis=0), atol=1e-7)


def test_integrals_are_those_of_distribution_functions():
    values = np.random.default_rng(0).uniform(-1, 1, size=(2, 3, 5))
    values[1, 0, 0] = values[0, 0, 0]  # a tie
    grid = np.linspace(-1.1, 1.1, 20_001)
    below = (values[..., None] <= grid).mean(axis=2)
    expected = np.trapezoid(np.einsum("imk,jmk->ijk", below, below) / 3, grid, axis=-1)
    np.testing.assert_allclose(integrals(values), expected, atol=1e-3)


def test_means_of_templates_are_those_of_draws(rng):
    draws = rng.standard_normal((200_000, 5)) / np.sqrt(5)
    norms = np.linalg.norm(draws, axis=1)
    inside = norms**2 < 1.3
    assert mean_norm(5, 0.3) == pytest.approx(norms[inside].mean(), abs=3e-3)
    assert mean_coordinate(5) == pytest.approx(np.abs(draws[:, 0] / norms).mean(), abs=3e-3)


def test_features_have_the_true_kernel_on_average(images, rng):
    draws = rng.standard_normal((40_000, 3, 4)) / np.sqrt(12)
    templates = draws[np.square(draws).sum(axis=(1, 2)) < 1.1][:4000]
    batches = [integrals(projections(images, part).reshape(3, -1, 12)) for part in np.split(templates, 20)]
    spread = np.std(batches, axis=0) / np.sqrt(len(batches))
    assert (np.abs(np.mean(batches, axis=0) - true_kernel(images, 0.1)) < 4.5 * spread).all()


def test_parts_are_within_their_bounds_and_fall(images):
    few, many = (parts_of_error(images, m, r, n, seed=0) for m, r, n in ((10, 5, 5), (200, 100, 50)))
    for name, bound in proof_bounds(10, 5, 5, len(images)).items():
        assert many[name] < few[name] < bound
    assert few["bins"] == pytest.approx(1.1 / 10, rel=0.4)  # s / (2 n)


def naive_means(kernel, group, X, elements):
    orbits = [group.act(element, X).reshape(len(X), -1) for element in elements]
    grams = np.array([[kernel(left, right) for right in orbits] for left in orbits])
    return grams.mean(axis=(0, 1)), np.mean([grams[k, k] for k in range(len(elements))], axis=0)


def test_means_are_those_of_all_pairs(images, rng):
    matrices, group = rng.normal(size=(4, 3, 3)), NormSortedPermutation(noise=2.0)
    elements = group.sample(5, (3, 3), rng)
    found = pair_means(Gaussian(0.1), group, matrices, elements)
    np.testing.assert_allclose(found, naive_means(Gaussian(0.1), group, matrices, elements), atol=1e-12)

    averages, shifts = ShiftedImages(Gaussian(0.3), images, 1), Translation(1)
    drawn = shifts.sample(6, (3, 4), np.random.default_rng(2))
    for found, elements in (
        (averages.draw(6, np.random.default_rng(2)), drawn),
        ((averages.truth[0], averages.with_itself[0]), shifts.elements((3, 4))),
    ):
        np.testing.assert_allclose(found, naive_means(Gaussian(0.3), shifts, images, elements), atol=1e-12)


@pytest.mark.parametrize("max_shift", [None, 1])
def test_drawn_averages_have_the_expected_mean_and_variance(images, max_shift, rng):
    averages, n, n_draws = ShiftedImages(Gaussian(0.3), images, max_shift), 6, 2000
    drawn = np.array([averages.draw(n, rng)[0] for _ in range(n_draws)])
    truth, with_itself = averages.truth[0], averages.with_itself[0]
    expected = (1 - 1 / n) * truth + with_itself / n
    assert (np.abs(drawn.mean(axis=0) - expected) < 5 * drawn.std(axis=0) / np.sqrt(n_draws) + 1e-12).all()
    np.testing.assert_allclose(drawn.var(axis=0), averages.variance(n), rtol=0.2)
    np.testing.assert_allclose(unbiased(expected, with_itself, n), truth, atol=1e-12)


def test_products_with_two_halves_leave_the_error_of_the_reference_out():
    matrices = np.random.default_rng(0).normal(size=(4, 3, 3))
    kernel, seeds = Gaussian(0.1), range(120)

    def errors(averages):
        return [squared_errors(averages(seed), 10, np.random.default_rng(seed))["unbiased"] for seed in seeds]

    exact = Matrices(kernel, matrices, 120)
    of_many = errors(lambda _: exact)
    of_few = errors(lambda seed: Matrices(kernel, matrices, 12, seed=1000 + seed))
    spread = np.hypot(np.std(of_many), np.std(of_few)) / np.sqrt(len(seeds))
    assert abs(np.mean(of_many) - np.mean(of_few)) < 4 * spread
    assert np.mean(of_many) > 4 * spread  # else the comparison says nothing
