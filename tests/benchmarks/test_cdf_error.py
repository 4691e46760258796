import numpy as np
import pytest

from benchmarks.cdf_error import (
    bounds,
    integrals,
    mean_coordinate,
    mean_distances,
    mean_norm,
    parts_of_error,
    projections,
    true_kernel,
)
from segkit.invariance import Translation


@pytest.fixture
def images():
    images = np.random.default_rng(0).uniform(size=(3, 3, 4))
    return images / np.linalg.norm(images, axis=(1, 2), keepdims=True)


def orbits(images):
    group = Translation()
    return [group.act(element, images) for element in group.elements(images.shape[1:])]


def test_mean_distances_are_those_of_the_orbits(images):
    expected = np.mean(
        [
            np.linalg.norm(left[:, None] - right[None], axis=(2, 3))
            for left in orbits(images)
            for right in orbits(images)
        ],
        axis=0,
    )
    np.testing.assert_allclose(mean_distances(images), expected, atol=1e-7)


def test_projections_are_on_shifted_templates(images):
    templates = np.random.default_rng(1).normal(size=(2, 3, 4))
    found = projections(images, templates)
    for shift in Translation().elements((3, 4)):
        expected = np.einsum("nhw,mhw->nm", images, Translation().act(shift, templates))
        np.testing.assert_allclose(found[:, :, shift[0], shift[1]], expected, atol=1e-12)


def test_integrals_are_those_of_distribution_functions():
    values = np.random.default_rng(0).uniform(-1, 1, size=(2, 3, 5))
    values[1, 0, 0] = values[0, 0, 0]  # a tie
    grid = np.linspace(-1.1, 1.1, 20_001)
    below = (values[..., None] <= grid).mean(axis=2)
    expected = np.trapezoid(np.einsum("imk,jmk->ijk", below, below) / 3, grid, axis=-1)
    np.testing.assert_allclose(integrals(values), expected, atol=1e-3)


def test_means_of_templates_are_those_of_draws():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((200_000, 5)) / np.sqrt(5)
    norms = np.linalg.norm(draws, axis=1)
    inside = norms**2 < 1.3
    assert mean_norm(5, 0.3) == pytest.approx(norms[inside].mean(), abs=3e-3)
    assert mean_coordinate(5) == pytest.approx(np.abs(draws[:, 0] / norms).mean(), abs=3e-3)


def test_features_have_the_true_kernel_on_average(images):
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((40_000, 3, 4)) / np.sqrt(12)
    templates = draws[np.square(draws).sum(axis=(1, 2)) < 1.1][:4000]
    batches = [integrals(projections(images, part).reshape(3, -1, 12)) for part in np.split(templates, 20)]
    spread = np.std(batches, axis=0) / np.sqrt(len(batches))
    assert (np.abs(np.mean(batches, axis=0) - true_kernel(images, 0.1)) < 4.5 * spread).all()


def test_parts_are_within_their_bounds_and_fall(images):
    few, many = (parts_of_error(images, m, r, n, seed=0) for m, r, n in ((10, 5, 5), (800, 400, 200)))
    for name, bound in bounds(10, 5, 5, len(images)).items():
        assert many[name] < few[name] < bound
    assert few["bins"] == pytest.approx(1.1 / 10, rel=0.4)  # s / (2 n)
