import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.errors import ConfigError, InputError
from segkit.invariance import LocalPolynomialKernel
from segkit.kernels import Kernel


def loop(x, y, kernel):
    """One value by a loop over windows; x and y (*shape)."""
    centred = kernel.normalization == "reference"
    values = x * y
    for window, degree in zip(kernel.windows, kernel.degrees, strict=False):
        values = np.pad(values, window // 2) if centred else values
        sums = np.empty([size - window + 1 for size in values.shape])
        for corner in np.ndindex(*sums.shape):
            block = values[tuple(slice(start, start + window) for start in corner)]
            sums[corner] = ((block.mean() if centred else block.sum()) + 1) ** degree
        values = sums
    total = values.sum() / np.sqrt(x.size) if centred else values.sum()
    return (total + 1) ** kernel.degrees[-1]


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((12,), LocalPolynomialKernel(5, normalization="reference")),
        ((12,), LocalPolynomialKernel((3, 4), (3, 2, 1))),
        ((7, 9), LocalPolynomialKernel((2, 3), (2, 2, 3))),
        ((7, 9), LocalPolynomialKernel((3, 7), (2, 3, 2), "reference")),
        ((17, 18), LocalPolynomialKernel(17, (2, 2), "reference")),  # too many maps to be used
    ],
    ids=repr,
)
def test_equals_a_loop_over_windows(shape, kernel, rng):
    X, Y = rng.normal(size=(3, *shape)), rng.normal(size=(2, *shape))
    expected = [[loop(x, y, kernel) for y in Y] for x in X]
    np.testing.assert_allclose(kernel(X, Y), expected, rtol=1e-9)
    np.testing.assert_allclose(kernel(X), [[loop(x, y, kernel) for y in X] for x in X], rtol=1e-9)
    np.testing.assert_allclose(kernel.diagonal(X), [loop(x, x, kernel) for x in X], rtol=1e-9)


@settings(max_examples=25)
@given(
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    window=st.integers(1, 6),
    degree=st.integers(1, 3),
    normalization=st.sampled_from(["paper", "reference"]),
    seed=st.integers(0, 99),
)
def test_windows_of_any_size_that_fits(height, width, window, degree, normalization, seed):
    window = min(window, height, width)
    window -= normalization == "reference" and window % 2 == 0
    kernel = LocalPolynomialKernel(window, (degree, 3), normalization)
    x, y = np.random.default_rng(seed).normal(size=(2, 1, height, width))
    np.testing.assert_allclose(kernel(x, y), [[loop(x[0], y[0], kernel)]], rtol=1e-8, atol=1e-8)


def inner_products(left, right):
    return left.reshape(len(left), -1) @ right.reshape(len(right), -1).T


@pytest.fixture(scope="session")
def oracle(shared):
    """The reference's numbers: images A (6) and B (7) as float32 in [0, 1], and kernel matrices."""
    with np.load(shared / "oracle" / "tisvm_kernels.npz") as file:
        numbers = dict(file)
    images = {name: numbers.pop(name).astype(np.float32).reshape(-1, 28, 28) / 255 for name in "AB"}
    return numbers | images


@pytest.mark.parametrize("window", [5, 7, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reference_values(window, dtype, oracle):
    kernel = LocalPolynomialKernel(window, normalization="reference")
    values = kernel(oracle["A"].astype(dtype), oracle["B"])
    assert values.dtype == dtype
    np.testing.assert_allclose(values, oracle[f"loc{window}"], rtol=1e-6)


@pytest.mark.parametrize("shape", [(8,), (5, 6)])
@pytest.mark.parametrize("normalization", ["paper", "reference"])
def test_shifted_right_maps_are_those_of_shifted_samples(shape, normalization, rng):
    kernel = LocalPolynomialKernel(3, normalization=normalization)
    X, Y = rng.normal(size=(2, *shape)), rng.normal(size=(3, *shape))
    left, right = kernel.left_maps(X), kernel.right_maps(Y)
    assert (
        kernel.left_maps(X.astype(np.float32)).dtype
        == kernel.right_maps(Y.astype(np.float32)).dtype
        == np.float32
    )
    axes = tuple(range(1, 1 + len(shape[:2])))
    for shift in np.ndindex(*shape[:2]):
        moved = np.roll(right, shift, axis=[axis + 1 for axis in axes])
        values = kernel.of_products(inner_products(left, moved))
        np.testing.assert_allclose(values, kernel(X, np.roll(Y, shift, axes)))


def test_number_of_maps(rng):
    """1, the pixels, and 85 products of pixels at most 6 apart along each axis."""
    kernel = LocalPolynomialKernel(7)
    assert kernel.left_maps(rng.normal(size=(2, 8, 9))).shape == (2, 87, 8, 9)
    assert kernel.right_maps(rng.normal(size=(2, 8, 9))).shape == (2, 87, 8, 9)
    assert isinstance(kernel, Kernel)


@pytest.mark.parametrize("degrees", [(2, 4), (3, 2)], ids=["maps", "window sums"])
@pytest.mark.parametrize("normalization", ["paper", "reference"])
def test_gram_matrix_is_symmetric_and_positive(degrees, normalization, rng):
    X = rng.normal(size=(12, 6, 6))
    K = LocalPolynomialKernel(3, degrees, normalization)(X)
    np.testing.assert_array_equal(K, K.T)
    eigenvalues = np.linalg.eigvalsh(K)
    assert eigenvalues.min() > -1e-12 * eigenvalues.max()


@pytest.mark.parametrize("degrees", [(2, 4), (3, 2)], ids=["maps", "window sums"])
def test_float32_stays_float32(degrees, rng):
    X = rng.random((4, 20, 20))
    kernel = LocalPolynomialKernel(5, degrees, "reference")
    for values in (kernel(X.astype(np.float32)), kernel(X.astype(np.float32), X)):
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, kernel(X), rtol=2e-6)
    assert kernel.diagonal(X.astype(np.float32)).dtype == np.float32
    assert kernel((X < 0.5).astype(np.uint8)).dtype == np.float32


def test_windows_and_degrees_may_be_lists():
    assert LocalPolynomialKernel([7], [2, 4]) == LocalPolynomialKernel(7, (2, 4))
    assert len({LocalPolynomialKernel([7], [2, 4]), LocalPolynomialKernel(7, (2, 4))}) == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"windows": 0}, r"windows=\(0,\): one or more integers >= 1 are needed"),
        ({"windows": ()}, r"windows=\(\): one or more integers >= 1 are needed"),
        ({"degrees": (2, 1.5)}, r"degrees=\(2.0, 1.5\): one or more integers >= 1 are needed"),
        (
            {"windows": (7, 5)},
            r"windows=\(7, 5\) and degrees=\(2, 4\): give one degree for each window and one for the sum over "
            r"the image, such as degrees=\(2, 2, 4\)",
        ),
        ({"normalization": "mean"}, "normalization='mean': choose paper or reference"),
        (
            {"windows": 4, "normalization": "reference"},
            r"windows=\(4,\) with normalization='reference': a window centred on a pixel has an odd side; take "
            r"odd windows or normalization='paper'",
        ),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        LocalPolynomialKernel(**parameters)


@pytest.mark.parametrize(
    ("kernel", "needed"),
    [
        (LocalPolynomialKernel(7), 7),
        (LocalPolynomialKernel(7, normalization="reference"), 7),
        (LocalPolynomialKernel((4, 5), (1, 1, 1)), 8),
        (LocalPolynomialKernel((5, 7), (1, 1, 1), "reference"), 7),
    ],
    ids=repr,
)
def test_samples_must_hold_the_windows(kernel, needed):
    assert kernel(np.zeros((1, needed, needed + 1))).shape == (1, 1)
    message = (
        rf"samples of {needed - 1} pixels a side: windows=\(.*\) need at least {needed}; take smaller windows"
    )
    with pytest.raises(InputError, match=f"^{message}$"):
        kernel(np.zeros((1, needed, needed - 1)))


def test_shapes_must_agree():
    kernel = LocalPolynomialKernel(3)
    message = r"arrays of shapes \(1, 5, 5\) and \(2, 5, 6\): a kernel compares samples of one shape; pass"
    with pytest.raises(InputError, match=f"^{message}"):
        kernel(np.zeros((1, 5, 5)), np.zeros((2, 5, 6)))
    with pytest.raises(InputError, match=r"shapes \(1, 5, 5, 3\) and \(2, 5, 5\)"):
        kernel(np.zeros((1, 5, 5, 3)), np.zeros((2, 5, 5)))
    message = r"samples of shape \(5, 5, 5, 2\): give signals \(n, t\) or grey images \(n, H, W\)$"
    with pytest.raises(InputError, match=f"^{message}"):
        kernel(np.zeros((1, 5, 5, 5, 2)))


def test_too_large_values_name_the_cure():
    X = np.full((1, 28, 28), 255, dtype=np.uint8)
    message = r"kernel values exceed the largest float32 number: scale the samples to \[0, 1\] or give them in float64"
    with pytest.raises(InputError, match=f"^{message}$"):
        LocalPolynomialKernel(7)(X)


@pytest.mark.parametrize(
    "kernel", [LocalPolynomialKernel(3, (3, 4)), LocalPolynomialKernel((3, 3), (2, 2, 4))], ids=repr
)
def test_a_kernel_without_maps_says_so(kernel):
    assert not kernel.has_maps
    message = "only a kernel of one window and first degree 2 has maps; evaluate the kernel itself"
    with pytest.raises(ConfigError, match=rf"^windows=\(3.*\), degrees=\(.*4\): {message}$"):
        kernel.left_maps(np.zeros((1, 5, 5)))
