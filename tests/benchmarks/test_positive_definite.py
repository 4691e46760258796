import numpy as np
import pytest

from benchmarks.tables.positive_definite import (
    BASES,
    largest,
    largest_dominant_n,
    largest_in_single_precision,
    of_products,
    theorem,
    without_copies,
)
from segkit.invariance import Translation, best_fit
from segkit.kernels import Polynomial


@pytest.fixture
def images():
    images = np.random.default_rng(0).uniform(size=(8, 4, 5))
    images[5] = np.roll(images[2], (1, 2), axis=(0, 1))
    return images


@pytest.fixture
def products(images):
    return best_fit(images, base=Polynomial(degree=1, gamma=1 / 20, coef0=0.0), group=Translation())


@pytest.mark.parametrize("base", BASES)
def test_values_of_products_are_those_of_the_kernel(images, products, base):
    degree, slope, constant = BASES[base]
    kernel = Polynomial(degree=degree, gamma=slope / 20, coef0=constant)
    expected = best_fit(images, base=kernel, group=Translation())
    np.testing.assert_allclose(of_products(products, base), expected, rtol=1e-10)


def test_products_below_the_turning_point_are_refused():
    with pytest.raises(ValueError, match="least product"):
        of_products(np.array([[-0.2]]), "polynomial, slope 8 / m")


def test_dominance_is_that_of_every_row():
    gram = np.array(
        [[1.0, -0.4, 0.5, 0.0], [-0.4, 1.0, 0.7, 0.0], [0.5, 0.7, 9.0, 0.0], [0.0, 0.0, 0.0, 0.1]]
    )
    assert largest_dominant_n(gram) == 2
    assert largest_dominant_n(gram[:2, :2]) == 2
    for n in range(1, 5):
        part = gram[:n, :n]
        sums = np.abs(part).sum(axis=1) - np.diag(part)
        assert (largest_dominant_n(gram) >= n) == bool((np.diag(part) > sums).all())


def test_shifted_copies_are_left_out(images, products):
    kept, rows = without_copies(products, images)
    np.testing.assert_array_equal(rows, np.delete(images, 5, axis=0))
    np.testing.assert_array_equal(kept, np.delete(np.delete(products, 5, axis=0), 5, axis=1))


def test_theorem_of_independent_pixels():
    images = np.sqrt(12) * np.eye(12).reshape(12, 3, 4)  # second moments are the identity
    found = theorem(images)
    assert found["theorem"] == pytest.approx(np.sqrt(12) / (2 * np.sqrt(np.log(12))))
    assert found["spread"] == pytest.approx(np.sqrt(12))
    assert found["least_spread"] == pytest.approx(np.sqrt(np.log(12)) / 2)


def test_a_tolerance_admits_more_than_the_strict_condition():
    gram = np.eye(6)
    gram[3, 4] = gram[4, 3] = 1 + 1e-4  # an eigenvalue a little below 0
    found = largest(gram, np.random.default_rng(0).normal(size=(6, 2, 2)), 20)
    assert found["least"] < found["most"] < 6
    assert found["tolerant"] == 6
    assert found["gershgorin"] == found["value"]  # both fail as the second of the two is met
    assert found["single"] == found["value"]
    assert largest_in_single_precision(np.eye(4)) == 4
