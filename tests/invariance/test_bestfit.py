from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from segkit.errors import ConfigError, InputError
from segkit.invariance import (
    Composition,
    Dihedral,
    Identity,
    LocalPolynomialKernel,
    Permutation,
    Rotation,
    Translation,
    average_fit,
    best_fit,
    bestfit,
    largest_pd_n,
    smallest_eigenvalue,
)
from segkit.invariance.bestfit import CircularCorrelation, map_form
from segkit.kernels import Anova, Gaussian, Laplacian, Normalized, Polynomial

LOCAL = LocalPolynomialKernel(windows=3, degrees=(2, 2), normalization="reference")
SQUARE = Polynomial(degree=2, coef0=0.0)
BASES = [
    None,
    Polynomial(degree=3, gamma=0.1),
    Gaussian(0.1),
    Laplacian(0.1),
    Anova(0.1),
    Normalized(LOCAL),
    LocalPolynomialKernel(windows=3, degrees=(3, 1)),
]
WHOLE_GROUPS = [Identity(), Dihedral(), Translation(), Composition((Dihedral(), Translation()))]
WINDOWS = [
    Translation((1, 2)),
    Translation(1, mode="zero"),
    Rotation((-10, 0, 20), order=3),
    Composition((Rotation((-10, 0, 20)), Translation(1))),
    Composition((Translation(1), Rotation((-10, 0, 20)))),
    Composition((Dihedral(), Rotation((0, 5)), Translation((0, 2)))),
]
CASES = [(SQUARE, group) for group in WHOLE_GROUPS + WINDOWS]
CASES += [
    (LOCAL, group) for group in (Translation(1), Dihedral(), Composition((Rotation((5, 90)), Translation(1))))
]
KINDS = pytest.mark.parametrize(
    ("fit", "reduce"), [(best_fit, np.max), (average_fit, np.mean)], ids=["best", "average"]
)


def naive(reduce, base, group, X, Y):
    """Reduce base(x, T y) over T, one transformation after the other."""
    base = Polynomial(degree=8, gamma=1 / X[0].size) if base is None else base
    on_rows = "LocalPolynomialKernel" not in repr(base)
    values = []
    for element in group.elements(X.shape[1:]):
        moved = group.act(element, Y)
        values.append(base(X.reshape(len(X), -1), moved.reshape(len(Y), -1)) if on_rows else base(X, moved))
    return reduce(values, axis=0)


@KINDS
@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("group", [Translation((1, 2)), Rotation((-10, 20))], ids=repr)
def test_each_base_equals_a_naive_loop(fit, reduce, base, group, rng):
    X, Y = rng.normal(size=(3, 5, 5)), rng.normal(size=(4, 5, 5))
    values = fit(X, Y, base=base, group=group, symmetric=False)
    np.testing.assert_allclose(values, naive(reduce, base, group, X, Y), rtol=1e-9)


@KINDS
@pytest.mark.parametrize(("base", "group"), CASES, ids=repr)
def test_each_group_equals_a_naive_loop_in_both_orders(fit, reduce, base, group, rng):
    X, Y = rng.normal(size=(35, 5, 5)), rng.normal(size=(4, 5, 5))
    kernel = partial(fit, base=base, group=group)
    one_way = naive(reduce, base, group, X, Y)
    both = reduce([one_way, naive(reduce, base, group, Y, X).T], axis=0)
    np.testing.assert_allclose(kernel(X, Y), both, rtol=1e-9)
    np.testing.assert_allclose(kernel(X, Y, symmetric=False), one_way, rtol=1e-9)
    gram = kernel(X)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(gram, kernel(X, X.copy()), rtol=1e-9)


@KINDS
def test_gram_matrix_of_more_samples_than_a_block_of_rows(fit, reduce, rng):
    X = rng.normal(size=(300, 4))
    gram = fit(X, base=Polynomial(degree=2), group=Permutation())
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(gram, naive(reduce, Polynomial(degree=2), Permutation(), X, X), rtol=1e-9)


@settings(max_examples=8)
@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 200_000), st.integers(0, 99))
def test_memory_limit_changes_no_value(n, m, memory_limit, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, 3, 4)), rng.normal(size=(m, 3, 4))
    for group in (Translation(), Translation(1, mode="zero")):
        kernel = partial(best_fit, base=Polynomial(), group=group)
        np.testing.assert_allclose(
            kernel(X, Y, memory_limit=memory_limit), kernel(X, Y), rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(kernel(X, memory_limit=memory_limit), kernel(X), rtol=1e-9, atol=1e-9)


@pytest.fixture
def correlated(monkeypatch):
    """Samples of each block of left maps, and pairs of each square of correlations."""
    n_left, n_pairs = [], []

    class Spy(CircularCorrelation):
        def left_spectra(self, maps):
            n_left.append(len(maps))
            return super().left_spectra(maps)

        def products(self, left, right):
            n_pairs.append(left.shape[1] * right.shape[3])
            return super().products(left, right)

    monkeypatch.setattr(bestfit, "CircularCorrelation", Spy)
    return n_left, n_pairs


@pytest.mark.parametrize("n_threads", [1, 4])
def test_blocks_of_correlations_fit_the_memory_that_threads_share(n_threads, correlated, rng, monkeypatch):
    monkeypatch.setattr(bestfit, "count_threads", lambda: n_threads)
    limit, X = 200_000, rng.normal(size=(60, 8, 8))
    best_fit(X, base=SQUARE, group=Translation(), memory_limit=limit)
    n_left, n_pairs = correlated
    assert sum(n_left) == 60
    # Real and imaginary parts of half spectra, twice and four times; products of 64 shifts.
    assert 1 < max(n_left) < 60
    assert max(n_left) * (2 + 4) * 2 * 40 * 8 <= limit
    assert n_threads * max(n_pairs) * (2 * 2 * 40 + 64) * 8 <= limit / 2


def test_blocks_of_transformed_samples_fit_the_memory(rng):
    pairs = []

    class Spy(Anova):
        def __call__(self, X, Y=None):
            pairs.append(len(X) * len(Y))
            return super().__call__(X, Y)

    average_fit(rng.normal(size=(70, 2, 2)), base=Spy(0.1), group=Dihedral(), memory_limit=20_000)
    assert 70 < max(pairs) * 8 <= 20_000 / 4


@KINDS
@pytest.mark.parametrize("group", [Translation(1), Rotation((-10, 20))], ids=repr)
def test_colours_move_together(fit, reduce, group, rng):
    X, Y = rng.random(size=(3, 5, 5, 2)), rng.random(size=(4, 5, 5, 2))
    values = fit(X, Y, group=group, symmetric=False)
    np.testing.assert_allclose(values, naive(reduce, None, group, X, Y), rtol=1e-9)


@pytest.mark.parametrize("fit", [best_fit, average_fit])
@pytest.mark.parametrize("group", [Translation(), Translation(1, mode="zero")], ids=repr)
@pytest.mark.parametrize("base", [Laplacian(0.1), LOCAL], ids=repr)
def test_float32_in_float32_out(fit, group, base, rng):
    X = rng.random(size=(20, 6, 6), dtype=np.float32)
    gram = fit(X, base=base, group=group)
    assert gram.dtype == np.float32
    np.testing.assert_allclose(gram, fit(X.astype(np.float64), base=base, group=group), rtol=1e-5)


def test_inputs_are_not_changed(rng):
    X, Y = rng.normal(size=(2, 20, 5, 5))
    before = X.copy(), Y.copy()
    for group in (Translation(), Rotation((0, 90, 20))):
        best_fit(X, Y, group=group)
    np.testing.assert_array_equal((X, Y), before)


@pytest.fixture
def oracle(shared):
    return np.load(shared / "oracle" / "tisvm_kernels.npz")


@pytest.mark.parametrize(
    ("name", "fit", "group"),
    [
        ("ti", best_fit, Translation(5)),
        ("ri_bf", best_fit, Rotation(range(-10, 10), order=3)),
        ("ri_avg", average_fit, Rotation(range(-10, 10), order=3)),
    ],
)
def test_authors_values_on_a_polynomial_base(oracle, name, fit, group):
    A, B = (oracle[key].reshape(-1, 28, 28).astype(np.float32) / 255 for key in "AB")
    np.testing.assert_allclose(fit(A, B, group=group, symmetric=False), oracle[name], rtol=2e-6)


@pytest.mark.parametrize(
    ("name", "window", "group"), [("l_ri3", 3, Rotation(range(-5, 6), order=3)), ("l_ti7", 7, Translation(7))]
)
def test_authors_values_on_a_local_base(oracle, name, window, group):
    # In float32 the fourth power of long sums leaves errors as large as the tolerance.
    A, B = (oracle[key].reshape(-1, 28, 28) / 255 for key in "AB")
    base = LocalPolynomialKernel(windows=window, normalization="reference")
    values = best_fit(A, B, base=base, group=group, symmetric=False)
    np.testing.assert_allclose(values, oracle[name], rtol=2e-6)


@pytest.mark.parametrize("group", [Identity(), Translation(1), Rotation((-10, 20))], ids=repr)
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("fit", [best_fit, average_fit])
def test_values_that_overflow(group, n_threads, fit, rng, monkeypatch):
    monkeypatch.setattr("segkit._common.threads.count_threads", lambda: n_threads)
    X = (1000 * rng.normal(size=(4, 6, 6))).astype(np.float32)
    message = r"^kernel values exceed the largest float32 number: scale the samples to \[0, 1\] or give them in float64$"
    with pytest.raises(InputError, match=message):
        fit(X, group=group)
    assert np.isfinite(fit(X.astype(np.float64), group=group)).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"group": "d4"}, r"group='d4': a Group is needed, such as Identity\(\) or Dihedral\(\)"),
        ({"base": "poly"}, r"base='poly': a kernel is needed, or None for the paper's polynomial"),
        ({"memory_limit": 0}, "memory_limit=0: at least 1 byte is needed"),
        ({"group": Rotation()}, ".* has infinitely many elements.*"),
    ],
)
def test_options_that_do_not_fit(parameters, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        best_fit(np.ones((2, 3, 3)), **parameters)


def test_group_of_images_on_rows():
    message = r"^samples of shape \(3,\): Translation acts on 2 axes; give an array \(n_samples, H, W\)$"
    with pytest.raises(InputError, match=message):
        best_fit(np.ones((2, 3)), group=Translation())


@pytest.mark.parametrize("function", [smallest_eigenvalue, largest_pd_n])
@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (
            np.ones((2, 3)),
            r"^array of shape \(2, 3\): a Gram matrix is square and not empty; pass kernel\(X\)$",
        ),
        (np.ones((0, 0)), r"^array of shape \(0, 0\): a Gram matrix is square and not empty"),
        (
            [[1.0, 0.001], [0.0, 1.0]],
            r"^the Gram matrix and its transpose differ by up to 0.001: eigenvalues are of symmetric ones; "
            r"make the kernel with symmetric=True$",
        ),
        (
            [[np.inf]],
            r"^the Gram matrix holds NaN or infinite values: lower the degree or scale the samples$",
        ),
    ],
)
def test_what_is_no_gram_matrix(function, gram, message):
    with pytest.raises(InputError, match=message):
        function(gram)


@pytest.mark.parametrize("tol", [-5, np.nan, np.inf])
def test_a_tolerance_that_is_none(tol):
    with pytest.raises(ConfigError, match=rf"^tol={tol}: a finite fraction >= 0 is needed$"):
        largest_pd_n(np.eye(2), tol=tol)


def test_smallest_eigenvalue_of_a_known_spectrum(rng):
    Q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    assert smallest_eigenvalue(Q @ np.diag([3, -0.5, 1, 0, 2]) @ Q.T) == pytest.approx(-0.5)


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(0, 99), st.sampled_from([0.0, 0.1, 0.5]))
def test_largest_pd_n_equals_trying_every_n(n, seed, tol):
    noise = np.random.default_rng(seed).normal(size=(n, n))
    gram = np.eye(n) * 3 + (noise + noise.T) / 2
    least = tol * np.trace(gram) / n
    positive = [k for k in range(1, n + 1) if smallest_eigenvalue(gram[:k, :k]) > least]
    assert largest_pd_n(gram, tol=tol) == max(positive, default=0)


def test_largest_pd_n_stops_at_a_duplicate(rng):
    X = rng.normal(size=(10, 3))
    X[6] = X[2]
    assert largest_pd_n(Gaussian(1.0)(X)) == 6


@pytest.mark.parametrize(("fit", "margin"), [(best_fit, np.sqrt(10) / 2), (average_fit, np.sqrt(2))])
def test_the_best_fit_has_the_larger_margin_of_the_papers_figure(fit, margin):
    # T. Liu et al. 2022, example 2 and figure 1a: two samples of two pixels, and the shift that swaps them
    samples = np.array([[[1.0], [2.0]], [[5.0], [2.0]]])
    gram = fit(samples, base=Polynomial(degree=1, gamma=1.0, coef0=0.0), group=Translation())
    machine = SVC(kernel="precomputed", C=1e6, tol=1e-8).fit(gram, [0, 1])
    coefficients = machine.dual_coef_[0]
    assert 1 / np.sqrt(coefficients @ gram @ coefficients) == pytest.approx(margin)


@pytest.mark.parametrize(
    ("group", "accuracy"),
    [(Identity(), 0.6816), pytest.param(Rotation(range(-10, 10), order=3), 0.7382, marks=pytest.mark.slow)],
    ids=["polynomial", "rotations"],
)
def test_accuracy_of_the_authors_code_on_mnist(group, accuracy, shared):
    """Trained on 100 digits and tested on 10,000, as their code was, to the last digit."""
    mnist = np.load(shared / "kernel-data" / "mnist" / "mnist.npz")
    split = np.load(shared / "oracle" / "tisvm_mnist_split.npz")
    images = np.concatenate([mnist["X_train"], mnist["X_test"]]).astype(np.float32)
    y = np.concatenate([mnist["y_train"], mnist["y_test"]])
    train, test = split["train_idx"][:100], split["test_idx"]
    kernel = partial(best_fit, group=group, symmetric=False)
    machine = SVC(kernel="precomputed").fit(kernel(images[train] / 255), y[train])
    gram = kernel(images[test] / 255, images[train] / 255)
    assert machine.score(gram, y[test]) == pytest.approx(accuracy)


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
