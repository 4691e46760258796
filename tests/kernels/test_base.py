import json
import math

import numpy as np
import pytest

from segkit.errors import ConfigError, InputError, ModelFileError
from segkit.kernels import (
    Anova,
    Gaussian,
    Kernel,
    L1Laplacian,
    Laplacian,
    Normalized,
    Polynomial,
    ShiftInvariantKernel,
    median_gamma,
)
from segkit.kernels.base import gram_matrices, kernel_from_dict, kernel_to_dict

FORMULAS = {
    Gaussian(0.3): lambda x, y: math.exp(-0.3 * sum((x - y) ** 2)),
    Laplacian(0.7): lambda x, y: math.exp(-0.7 * math.sqrt(sum((x - y) ** 2))),
    L1Laplacian(0.7): lambda x, y: math.exp(-0.7 * sum(abs(x - y))),
    Anova(0.4, degree=3): lambda x, y: sum(math.exp(-0.4 * d * d) for d in x - y) ** 3,
    Polynomial(degree=2, gamma=0.5, coef0=2.0): lambda x, y: (0.5 * sum(x * y) + 2.0) ** 2,
    Normalized(Polynomial(degree=2)): lambda x, y: (
        (sum(x * y) + 1) ** 2 / ((sum(x * x) + 1) * (sum(y * y) + 1))
    ),
}
KERNELS = list(FORMULAS)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_values_equal_the_formula(kernel, rng):
    X, Y = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    expected = [[FORMULAS[kernel](x, y) for y in Y] for x in X]
    np.testing.assert_allclose(kernel(X, Y), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_gram_matrix_is_symmetric_and_positive_semi_definite(kernel, rng):
    X = rng.normal(size=(20, 3))
    K = kernel(X)
    np.testing.assert_allclose(K, K.T, rtol=1e-14)
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.trace(K)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(K), rtol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_dtype_is_that_of_the_rows(kernel, rng):
    X = rng.normal(size=(6, 3)).astype(np.float32)
    assert kernel(X).dtype == kernel(X, X.astype(np.float64)).dtype == kernel.diagonal(X).dtype == np.float32
    assert kernel(X.tolist()).dtype == np.float64
    np.testing.assert_allclose(kernel(X), kernel(X.astype(np.float64)), rtol=2e-5)


def test_numpy_gamma_does_not_widen_float32(rng):
    assert Gaussian(np.float64(0.5))(rng.normal(size=(2, 2)).astype(np.float32)).dtype == np.float32


def test_normalized_is_zero_where_the_kernel_is():
    kernel = Normalized(Polynomial(degree=1, coef0=0.0))
    X = np.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_array_equal(kernel(X), [[0, 0], [0, 1]])
    np.testing.assert_array_equal(kernel.diagonal(X), [0, 1])


@pytest.mark.parametrize("kernel", [Gaussian(0.8), Laplacian(0.5), L1Laplacian(0.5)], ids=repr)
def test_frequencies_follow_the_spectral_law(kernel, rng):
    """By Bochner, k(x - y) = E cos<w, x - y>; the mean of 200,000 cosines has s.e. < 0.0023."""
    frequencies = kernel.frequencies(3, 200_000, rng)
    assert frequencies.shape == (3, 200_000)
    for shift in rng.normal(size=(5, 3)):
        estimate = np.cos(shift @ frequencies).mean()
        assert estimate == pytest.approx(kernel([shift], np.zeros((1, 3)))[0, 0], abs=4 * 0.0023)


def test_protocols():
    assert all(isinstance(kernel, Kernel) for kernel in KERNELS)
    shift_invariant = [type(kernel) for kernel in KERNELS if isinstance(kernel, ShiftInvariantKernel)]
    assert shift_invariant == [Gaussian, Laplacian, L1Laplacian]


def test_gram_matrices_equal_each_kernel_by_itself(rng):
    X = rng.normal(size=(8, 3))
    for kernel, K in zip(KERNELS, gram_matrices(KERNELS, X), strict=True):
        np.testing.assert_array_equal(K, kernel(X))


def test_gram_matrices_compute_distances_once(rng, monkeypatch):
    from segkit.kernels import base

    calls = []
    original = base.euclidean_distances
    monkeypatch.setattr(base, "euclidean_distances", lambda *a, **k: calls.append(1) or original(*a, **k))
    list(gram_matrices([Gaussian(1.0), Laplacian(1.0), Gaussian(2.0)], rng.normal(size=(5, 2))))
    assert len(calls) == 1


def test_descriptions_go_through_json():
    for kernel in KERNELS:
        assert kernel_from_dict(json.loads(json.dumps(kernel_to_dict(kernel)))) == kernel


def test_foreign_kernel_cannot_be_described():
    """Not even one of a name that segkit has."""
    Impostor = type("Gaussian", (), {"__repr__": lambda self: "Gaussian()"})
    with pytest.raises(ConfigError) as caught:
        kernel_to_dict(Impostor())
    assert str(caught.value) == (
        "kernel Gaussian() cannot be stored: only Gaussian, Laplacian, L1Laplacian, Anova, Polynomial, Normalized can"
    )


@pytest.mark.parametrize("description", [{"name": "Sigmoid"}, {"name": "Gaussian", "scale": 1.0}, {}])
def test_unknown_description(description):
    with pytest.raises(ModelFileError) as caught:
        kernel_from_dict(description)
    assert str(caught.value) == (
        f"kernel {description!r} is unknown to this version of segkit, "
        f"which has Gaussian, Laplacian, L1Laplacian, Anova, Polynomial, Normalized: "
        f"update segkit, or copy the file again"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(0.0), "Gaussian(gamma=0.0): gamma must be positive and finite"),
        (lambda: Laplacian(math.inf), "Laplacian(gamma=inf): gamma must be positive and finite"),
        (lambda: L1Laplacian(0), "L1Laplacian(gamma=0): gamma must be positive and finite"),
        (lambda: Anova(math.nan), "Anova(gamma=nan): gamma must be positive and finite"),
        (lambda: Anova(1.0, degree=0), "Anova(degree=0): degree must be an integer >= 1"),
        (lambda: Polynomial(degree=2.5), "Polynomial(degree=2.5): degree must be an integer >= 1"),
        (lambda: Polynomial(coef0=-1), "Polynomial(coef0=-1): coef0 must be finite and >= 0"),
    ],
)
def test_parameter_out_of_range(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


def test_rows_that_do_not_fit():
    for kernel in KERNELS:
        with pytest.raises(InputError) as caught:
            kernel(np.ones((2, 3)), np.ones((4, 5)))
        assert str(caught.value) == (
            "arrays of shapes (2, 3) and (4, 5): a kernel compares rows with the same features; "
            "pass (n, n_features) and (m, n_features)"
        )


def test_median_gamma_is_the_inverse_median_squared_distance(rng):
    X = 30 * rng.normal(size=(15, 4))
    squared = [np.sum((X[i] - X[j]) ** 2) for i in range(15) for j in range(i)]
    assert median_gamma(X) == pytest.approx(1 / np.median(squared), rel=1e-12)


def test_median_gamma_of_a_subsample_is_seeded(rng):
    X = rng.normal(size=(300, 2))
    first = median_gamma(X, max_samples=50, random_state=3)
    assert first == median_gamma(X, max_samples=50, random_state=3)
    assert first != median_gamma(X, max_samples=50, random_state=4)
    assert first == pytest.approx(median_gamma(X), rel=0.5)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((1, 2)), "1 sample: the median distance needs at least 2; give gamma as a number"),
        (
            np.zeros((3, 2)),
            "the median distance between 3 samples is 0, for at least half of the pairs are equal: "
            "drop duplicate rows or give gamma as a number",
        ),
    ],
)
def test_median_gamma_undefined(X, message):
    with pytest.raises(InputError) as caught:
        median_gamma(X)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_no_numbers_are_refused(value):
    for kernel in KERNELS:
        with pytest.raises(InputError, match="NaN or infinite values"):
            kernel([[1.0, value]])
        with pytest.raises(InputError, match="NaN or infinite values"):
            kernel([[1.0, 2.0]], [[value, 0.0]])


def test_rows_of_the_median_are_drawn_once_each():
    """All distances are equal; three rows drawn with replacement would at times be one."""
    X = np.eye(12)
    assert all(median_gamma(X, max_samples=3, random_state=seed) == 0.5 for seed in range(30))


def test_a_degree_that_is_not_given_is_that_of_the_docstring():
    """Two features that agree, one pair that does not: n ** degree at most."""
    assert Anova(1.0)([[0.0, 0.0]], [[0.0, 99.0]]) == 1
    assert Anova(1.0)([[0.0, 0.0]]) == 4
