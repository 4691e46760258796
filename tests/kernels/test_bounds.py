"""Bounds that the source papers print, as docs/source-papers.md judges them: computed on small cases."""

from itertools import product
from math import gamma

import numpy as np
import pytest
from scipy.special import erfc

from segkit.invariance import Translation, best_fit, largest_pd_n
from segkit.kernels import Gaussian, Polynomial, RandomFourierFeatures


@pytest.fixture
def features(rng):
    """Random features (10, 8) of ten samples."""
    return RandomFourierFeatures(Gaussian(0.3), 8, random_state=0).fit_transform(rng.normal(size=(10, 3)))


def complexity(Z):
    """Mean norm of the sum of the rows of Z under random signs: the Rademacher complexity is R / (n D root m) times it."""
    signs = np.array(list(product((-1.0, 1.0), repeat=len(Z))))
    return np.linalg.norm(signs @ Z, axis=1).mean()


def test_proposition_5_1_of_004_does_not_hold_as_printed(features):
    """Eq. 5.8 bounds the complexity by next to nothing; by Khinchin and Kahane it is at least 0.707 Frobenius norms."""
    Z = features * np.sqrt(8)  # not divided by the root of their number
    frobenius, spectral = np.linalg.norm(Z), np.linalg.norm(Z, 2)
    true = complexity(Z)
    assert frobenius / np.sqrt(2) <= true <= frobenius
    assert erfc(np.sqrt(192)) == pytest.approx(1.67537e-85, rel=1e-5)
    printed = np.sqrt(np.pi / 192) * erfc(np.sqrt(192)) * spectral
    assert printed < 1e-80 < true


def test_eq_5_10_of_004_is_too_small_for_one_sample():
    Z = np.array([[1.0, 2.0, 2.0]])
    assert complexity(Z) == 3 > np.sqrt(23 / 44) * np.linalg.norm(Z)


def test_eq_5_9_of_004_fails_for_equal_singular_values():
    """The mean norm of normal vectors of 100 values, in closed form, beside the bound for a unit matrix."""
    true = np.sqrt(2) * gamma(101 / 2) / gamma(100 / 2)
    frobenius, trace_of_square = 10.0, 100.0  # of the unit matrix of 100 rows
    printed = 2 * np.sqrt(np.pi * trace_of_square) / frobenius + frobenius / 2 * np.exp(
        -(frobenius**4) / (4 * trace_of_square)
    )
    assert true == pytest.approx(9.975, abs=1e-3)
    assert printed == pytest.approx(3.545, abs=1e-3)


def test_lemma_5_3_of_004_is_an_equality_for_pairs(features):
    """Eq. 5.11: the squared Frobenius norm of the features beside the trace of the kernel, which is 1 a sample."""
    assert np.linalg.norm(features) ** 2 == pytest.approx(10, rel=1e-12)


@pytest.mark.parametrize("n_angles", [8, 16])
def test_lemma_2_of_003_best_fits_over_turns_are_definite_for_polar_images(rng, n_angles):
    """Images resampled at angles and radii: a turn is a circular shift of the angles."""
    images = rng.normal(size=(30, n_angles, n_angles))
    turns = Translation((n_angles // 2, 0))
    kernel = best_fit(images, base=Polynomial(degree=8, gamma=1 / n_angles**2), group=turns)
    assert largest_pd_n(kernel) == 30
    turned = np.roll(images, 3, axis=1)
    np.testing.assert_allclose(
        best_fit(turned, base=Polynomial(degree=8, gamma=1 / n_angles**2), group=turns), kernel, rtol=1e-9
    )


def test_theorem_3_2_of_002_says_little_at_the_sizes_of_table_2():
    """The proof's constants, with L = C = V(0) = 1 and a probability of 0.95, for N = 12,000, s = 7,000, r = 100."""
    n, s, r, delta = 12_000, 7_000, 100, 0.05
    estimation = 2 * (4 / n**0.5 + 2 / n**0.5 + np.sqrt(np.log(1 / delta) / (2 * n)))
    approximation = (1 + np.sqrt(2 * np.log(1 / delta))) * (1 / s**0.5 + 1 / r**0.5)
    assert estimation + approximation == pytest.approx(0.518, abs=1e-3)
