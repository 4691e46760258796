import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.invariance import LocalPolynomialKernel
from segkit.invariance.bestfit import CircularCorrelation, map_form
from segkit.kernels import Anova, Gaussian, Laplacian, Polynomial

FORMS = [
    Polynomial(degree=3, gamma=0.2),
    Gaussian(0.3),
    Laplacian(0.3),
    LocalPolynomialKernel(windows=3, degrees=(2, 2), normalization="reference"),
]


def products(left, right, rows, cols):
    correlation = CircularCorrelation(left.shape[2:], np.array(rows), np.array(cols), left.dtype)
    return correlation.products(correlation.left_spectra(left), correlation.right_spectra(right))


def rolled_products(left, right, rows, cols):
    rolled = [np.roll(right, (row, col), axis=(2, 3)) for row in rows for col in cols]
    return np.array([np.einsum("nchw,mchw->nm", left, y) for y in rolled])


@settings(max_examples=20)
@given(
    st.integers(1, 6),
    st.integers(1, 7),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 9),
    st.integers(0, 99),
)
def test_equals_rolling_and_multiplying(height, width, n_maps, n, window, seed):
    """Odd and even sides, and shifts of more than the image."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(n, n_maps, height, width)), rng.normal(size=(3, n_maps, height, width))
    rows, cols = range(-window, window + 1), range(-1, window + 1, 2)
    expected = rolled_products(left, right, rows, cols)
    np.testing.assert_allclose(products(left, right, rows, cols), expected, rtol=1e-10, atol=1e-10)


def test_float32_stays_float32(rng):
    left, right = rng.random(size=(2, 3, 4, 28, 28), dtype=np.float32)
    result = products(left, right, range(28), range(28))
    assert result.dtype == np.float32
    expected = rolled_products(left.astype(np.float64), right.astype(np.float64), range(28), range(28))
    np.testing.assert_allclose(result, expected, rtol=2e-6)


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
def test_map_forms_are_the_kernels_of_shifted_images(kernel, rng):
    X, Y = rng.normal(size=(3, 5, 6)), rng.normal(size=(4, 5, 6))
    maps = map_form(kernel)
    values = maps.of_products(products(maps.left(X), maps.right(Y), range(5), range(6)))
    on_rows = not isinstance(kernel, LocalPolynomialKernel)
    for value, (row, col) in zip(values, np.ndindex(5, 6), strict=True):
        shifted = np.roll(Y, (row, col), axis=(1, 2))
        expected = kernel(X.reshape(3, -1), shifted.reshape(4, -1)) if on_rows else kernel(X, shifted)
        np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_small_distances_of_float32_images_are_kept(rng):
    """In float32 the difference of the products, about 300, would be off by 1e-4."""
    X = rng.random(size=(1, 28, 28), dtype=np.float32)
    Y = X + np.float32(1e-4)
    maps = map_form(Gaussian(1.0))
    value = maps.of_products(products(maps.left(X), maps.right(Y), [0], [0]))
    exact = np.exp(-np.sum((X.astype(np.float64) - Y) ** 2))
    np.testing.assert_allclose(value, exact, rtol=1e-9)


@pytest.mark.parametrize("kernel", [Anova(0.5), LocalPolynomialKernel(windows=3, degrees=(3, 2))], ids=repr)
def test_other_kernels_have_no_map_form(kernel):
    assert map_form(kernel) is None
