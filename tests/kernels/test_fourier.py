import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import InputError
from segkit.kernels import Gaussian, L1Laplacian, Laplacian, RandomFourierFeatures
from segkit.kernels.fourier import FREQUENCIES, fourier_dot, fourier_map


@pytest.fixture
def data(rng):
    return rng.normal(size=(12, 3)), rng.normal(size=(3, 7)), rng.uniform(0, 2 * np.pi, 7)


def test_closed_forms(data, rng):
    X, frequencies, phases = data
    pairs = np.hstack([np.cos(X @ frequencies), np.sin(X @ frequencies)])
    cosines = np.cos(X @ frequencies + phases)
    np.testing.assert_allclose(fourier_map(X, frequencies), pairs / np.sqrt(7), atol=1e-14)
    np.testing.assert_allclose(fourier_map(X, frequencies, phases), np.sqrt(2 / 7) * cosines, atol=1e-14)
    # amplitudes scale each draw
    factor = rng.uniform(size=7)
    found = fourier_map(X, frequencies, amplitudes=factor)
    np.testing.assert_allclose(found, pairs * np.tile(factor, 2), atol=1e-14)
    found = fourier_map(X, frequencies, phases, amplitudes=factor)
    np.testing.assert_allclose(found, cosines * factor, atol=1e-14)


@pytest.mark.parametrize("with_phases", [False, True])
def test_out_may_be_part_of_a_wider_array(data, with_phases):
    X, frequencies, phases = data
    phases = phases if with_phases else None
    expected = fourier_map(X, frequencies, phases)
    wide = np.full((12, expected.shape[1] + 3), 9.0)
    returned = fourier_map(X, frequencies, phases, out=wide[:, :-3])
    np.testing.assert_array_equal(wide[:, :-3], expected)
    np.testing.assert_array_equal(wide[:, -3:], 9.0)
    assert np.shares_memory(returned, wide)


def test_inputs_are_neither_changed_nor_need_be_writeable(data):
    copies = [array.copy() for array in data]
    for array in data:
        array.setflags(write=False)
    fourier_map(*data)
    for array, copy in zip(data, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_rows_may_lie_in_memory_in_any_way(data):
    X, frequencies, phases = data
    expected = fourier_map(X, frequencies, phases)
    packed = np.zeros(X.shape, dtype=[("flag", "i1"), ("value", "f8")])
    packed["value"] = X
    backwards = np.ascontiguousarray(X[::-1])[::-1]
    for rows in (packed["value"], backwards, np.asfortranarray(X)):
        np.testing.assert_allclose(fourier_map(rows, frequencies, phases), expected, atol=1e-14)


def test_no_draws_give_no_columns(data):
    assert fourier_map(data[0], np.empty((3, 0)), amplitudes=np.empty(0)).shape == (12, 0)


@pytest.mark.parametrize("with_phases", [False, True])
@pytest.mark.parametrize("n_functions", [1, 3])
def test_dot_is_the_product(data, rng, with_phases, n_functions, monkeypatch):
    monkeypatch.setattr("segkit.kernels.fourier._ROWS_AT_ONCE", 5)
    X, frequencies, phases = data
    phases, amplitudes = phases if with_phases else None, rng.uniform(size=7)
    features = fourier_map(X, frequencies, phases, amplitudes=amplitudes)
    coef = rng.normal(size=(n_functions, features.shape[1]))
    found = fourier_dot(X, frequencies, coef, phases, amplitudes=amplitudes)
    np.testing.assert_allclose(found, features @ coef.T, atol=1e-13)


@pytest.mark.parametrize("width", [2, 4])
def test_wrong_number_of_features(data, width):
    with pytest.raises(InputError) as caught:
        fourier_map(np.ones((4, width)), data[1])
    assert str(caught.value) == (
        f"X of shape (4, {width}): the frequencies need (n_samples, 3); pass rows with 3 features"
    )


@pytest.mark.parametrize(("kernel", "form"), [(Gaussian(0.3), "phase"), (L1Laplacian(0.3), "pair")], ids=repr)
def test_error_falls_as_one_over_root_d(kernel, form, rng):
    X = rng.normal(size=(30, 3))
    K = kernel(X)

    def error(n_components):
        maps = (
            RandomFourierFeatures(kernel, n_components, form, seed).fit_transform(X) for seed in range(10)
        )
        return np.sqrt(np.mean([(Z @ Z.T - K) ** 2 for Z in maps]))

    coarse, fine = error(200), error(200 * 16)
    assert fine < 0.04
    assert coarse / fine == pytest.approx(4, rel=0.35)


def test_odd_number_of_pair_features_is_rounded_up(rng):
    X = rng.normal(size=(5, 2))
    features = RandomFourierFeatures(n_components=7, random_state=0).fit(X)
    Z = features.transform(X)
    assert Z.shape == (5, 8)
    np.testing.assert_allclose(np.sum(Z**2, axis=1), 1)  # cos^2 + sin^2 of each of the 4 pairs
    assert len(features.get_feature_names_out()) == 8


@pytest.mark.parametrize("form", ["pair", "phase"])
def test_float32_agrees_with_float64(form, rng):
    X = rng.normal(size=(40, 5))
    features = RandomFourierFeatures(Gaussian(0.2), 64, form, random_state=0).fit(X)
    Z = features.transform(X.astype(np.float32))
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, features.transform(X), atol=1e-6)


@parametrize_with_checks([RandomFourierFeatures(random_state=0)])
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("n_functions", "width"), [(1, 7), (2, 14)])
def test_one_function_takes_one_cosine_a_draw(data, rng, monkeypatch, n_functions, width):
    X, frequencies, _ = data
    widths = []

    def noted(rows, *args, out, **options):
        widths.append(out.shape[1])
        return fourier_map(rows, *args, out=out, **options)

    monkeypatch.setattr("segkit.kernels.fourier.fourier_map", noted)
    coef, amplitudes = rng.normal(size=(n_functions, 14)), rng.uniform(size=7)
    found = fourier_dot(X, frequencies, coef, amplitudes=amplitudes)
    assert widths == [width]
    pairs = np.hstack([np.cos(X @ frequencies), np.sin(X @ frequencies)]) * np.tile(amplitudes, 2)
    np.testing.assert_allclose(found, pairs @ coef.T, atol=1e-12)


def test_functions_of_no_coefficients_are_none(data):
    assert fourier_dot(*data[:2], np.empty((0, 14)), amplitudes=np.ones(7)).shape == (12, 0)


@pytest.mark.parametrize("draw", [FREQUENCIES["orthogonal"], FREQUENCIES["qmc"]], ids=["orthogonal", "qmc"])
@pytest.mark.parametrize("kernel", [Gaussian(0.7), Laplacian(0.7)], ids=repr)
def test_each_frequency_follows_the_spectral_law(draw, kernel):
    rng = np.random.RandomState(0)
    columns = np.hstack([draw(kernel, 4, 6, rng) for _ in range(300)])
    independent = kernel.frequencies(4, 20_000, np.random.default_rng(1))
    for drawn, law in [
        (columns[0], independent[0]),
        (np.linalg.norm(columns, axis=0), np.linalg.norm(independent, axis=0)),
    ]:
        assert kstest(drawn, law).pvalue > 1e-3


def test_orthogonal_frequencies_are_orthogonal_in_blocks():
    drawn = FREQUENCIES["orthogonal"](Gaussian(1.0), 5, 12, np.random.RandomState(0))
    for block in (drawn[:, :5], drawn[:, 5:10], drawn[:, 10:]):
        gram = block.T @ block
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12)


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Laplacian(0.7)], ids=repr)
def test_frequencies_are_finite_where_the_sequence_touches_its_ends(kernel, monkeypatch):
    ends = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.5, 1.0, 0.0], [1.0, 0.5, 0.0]])

    class Halton:
        def __init__(self, n_dimensions, seed):
            self.n_dimensions = n_dimensions

        def random(self, n):
            return np.tile(ends, (1, 2))[:n, : self.n_dimensions]

    monkeypatch.setattr("segkit.kernels.fourier.qmc.Halton", Halton)
    drawn = FREQUENCIES["qmc"](kernel, 3, 4, np.random.RandomState(0))
    assert drawn.shape == (3, 4)
    assert np.isfinite(drawn).all()
