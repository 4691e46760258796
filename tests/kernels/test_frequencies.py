import numpy as np
import pytest
from scipy.stats import kstest

from segkit.kernels import Gaussian, Laplacian
from segkit.kernels.frequencies import FREQUENCIES


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

    monkeypatch.setattr("segkit.kernels.frequencies.qmc.Halton", Halton)
    drawn = FREQUENCIES["qmc"](kernel, 3, 4, np.random.RandomState(0))
    assert drawn.shape == (3, 4)
    assert np.isfinite(drawn).all()
