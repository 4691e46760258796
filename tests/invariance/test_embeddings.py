from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.errors import ConfigError
from segkit.invariance.embeddings import FourierEmbedding, NystroemEmbedding, StepEmbedding
from segkit.kernels import Gaussian, Laplacian

EMBEDDINGS = [
    FourierEmbedding(Gaussian(0.5)),
    StepEmbedding((-1.0, -0.2, 0.3, 2.0)),
    NystroemEmbedding(Gaussian(0.5)),
]


@dataclass
class Given:
    """Pairs whose products are given; (n, m) or (n, m, n_transforms)."""

    values: torch.Tensor

    def products(self):
        return self.values.clone()

    def kernel_values(self, kernel):
        return torch.from_numpy(kernel.of_squared_distances(2 - 2 * self.values.numpy()))


def expected(embedding, products):
    """Means over the last axis; (n, m, n_features)."""
    if isinstance(embedding, FourierEmbedding):
        return np.stack([np.cos(products), np.sin(products)], axis=-1).mean(axis=2)
    if isinstance(embedding, StepEmbedding):
        return np.less_equal.outer(products, embedding.thresholds).mean(axis=2)
    return np.exp(-0.5 * (2 - 2 * products))[..., None].mean(axis=2)


@settings(max_examples=20)
@given(seed=st.integers(0, 999), n_transforms=st.integers(1, 7))
@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=repr)
def test_all_transformations_at_once_and_one_by_one_give_the_mean(embedding, seed, n_transforms):
    products = np.random.default_rng(seed).standard_normal((4, 3, n_transforms))
    np.testing.assert_allclose(
        embedding.average(Given(torch.from_numpy(products))), expected(embedding, products), atol=1e-6
    )
    sums = torch.zeros((embedding.n_sums, 4, 3), dtype=torch.float64)
    for index in range(n_transforms):
        embedding.add(Given(torch.from_numpy(products[:, :, index])), sums)
    features = embedding.finish(sums / n_transforms).permute(1, 2, 0)
    np.testing.assert_allclose(features, expected(embedding, products), atol=1e-12)
    assert features.shape[2] == len(embedding.names(0))


def test_a_projection_on_a_threshold_counts():
    steps = StepEmbedding((0.0, 1.0))
    on = Given(torch.tensor([[[0.0]], [[1.0]], [[1.5]]]))
    np.testing.assert_array_equal(steps.average(on)[:, 0], [[1, 1], [0, 1], [0, 0]])
    sums = torch.zeros((3, 3, 1), dtype=torch.float64)
    steps.add(Given(on.values[:, :, 0]), sums)
    np.testing.assert_array_equal(steps.finish(sums)[:, :, 0].T, [[1, 1], [0, 1], [0, 0]])


def test_standard_normal_templates_become_frequencies_of_the_gaussian():
    templates = np.random.default_rng(0).standard_normal((20_000, 3))
    frequencies = FourierEmbedding(Gaussian(0.7)).factor * templates
    x = np.array([0.3, -0.4, 0.8])
    assert np.cos(frequencies @ x).mean() == pytest.approx(np.exp(-0.7 * x @ x), abs=0.02)
    assert StepEmbedding().factor == NystroemEmbedding(Gaussian(1.0)).factor == 1
    with pytest.raises(
        ConfigError, match="standard normal templates are frequencies of a Gaussian kernel only"
    ):
        _ = FourierEmbedding(Laplacian(1.0)).factor


@pytest.mark.parametrize("thresholds", [(), (0.0, float("nan")), (1.0, 1.0)])
def test_bad_thresholds(thresholds):
    with pytest.raises(ConfigError) as caught:
        StepEmbedding(thresholds)
    assert str(caught.value) == (
        f"thresholds {list(thresholds)}: give at least one, finite and different, such as [-1, 0, 1]"
    )
