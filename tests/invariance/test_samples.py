import numpy as np
import pytest

from segkit.errors import InputError
from segkit.invariance import LocalPolynomialKernel, best_fit
from segkit.kernels.base import as_samples, check_values


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_and_values_that_pass_are_not_copied(dtype, rng):
    X = rng.random((2, 3)).astype(dtype)
    assert as_samples(X) is X
    check_values(X)


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_samples_of_small_numbers_become_float32(dtype):
    samples = as_samples(np.eye(2, dtype=dtype))
    assert samples.dtype == np.float32
    np.testing.assert_array_equal(samples, np.eye(2))


def test_samples_that_kernels_cannot_compare():
    for X, message in [
        (
            np.ones((0, 5, 5)),
            r"array of shape \(0, 5, 5\): a kernel compares samples of at least one value; give one or more",
        ),
        ([["a", "b"]], "samples of dtype <U1: a kernel compares real numbers; convert them to float"),
        ([[1j]], "samples of dtype complex128: a kernel compares real numbers; convert them to float"),
        (
            [[np.inf, 1.0], [np.nan, 2.0]],
            "2 of 4 values are NaN or infinite: replace them or leave out their samples",
        ),
    ]:
        for use in (as_samples, best_fit, LocalPolynomialKernel(windows=1)):
            with pytest.raises(InputError, match=f"^{message}$"):
                use(X)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_values_beyond_their_dtype(value):
    with pytest.raises(
        InputError, match=r"^kernel values exceed the largest float64 number: scale the samples"
    ):
        check_values(np.array([1.0, value]))
