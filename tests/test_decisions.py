from functools import partial

import numpy as np
import pytest

from segkit.centred import CentredBank, even_grid
from segkit.decisions import Columns, decision_maps
from segkit.features import FeatureMaps
from segkit.kernels import LinearGaussianMixture, LinearMixture
from segkit.linear import LinearSVM

SHAPE = (21, 30)
KEPT = np.array([2, 3, 5, 8, 13, 21, 34, 55])


@pytest.fixture
def stacks(rng):
    def maps(indices, shape, stride=1.0, offset=0.0):
        values = rng.standard_normal((len(indices), *shape)).astype(np.float32)
        return FeatureMaps(values, np.array(indices), stride, offset)

    return [
        maps([5, 8], SHAPE),
        maps([2, 13], (6, 8), 4.0, 1.5),
        maps([34], (6, 8), 4.0, (1.5, 1.5)),  # the same grid
        maps([21], (6, 8), 4.0, (1.5, 0.5)),  # and one beside it
        maps([3, 55], (3, 4), 8.0, 3.5),
    ]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "kernels",
    [LinearMixture(), LinearGaussianMixture(n_components=60, random_state=0)],
    ids=lambda k: type(k).__name__,
)
@pytest.mark.parametrize("normalization", ["image", "set"])
def test_maps_decide_as_the_features_of_each_pixel(rng, stacks, kernels, n_classes, normalization):
    rows, cols = (positions.ravel() for positions in np.indices(SHAPE))
    X = np.hstack([stack.sample(rows, cols) for stack in stacks])
    if normalization == "image":
        X -= np.hstack([stack.sample(*even_grid(SHAPE)) for stack in stacks]).mean(axis=0)
    X = X[:, np.concatenate([stack.indices for stack in stacks]).argsort()]
    mean, scale = rng.uniform(0.5, 2, (2, KEPT.size)).astype(np.float32)
    X = (X - mean) / scale
    order = X[:, 0] + X[:, 2]
    labels = np.digitize(order, np.quantile(order, np.arange(1, n_classes) / n_classes))
    if isinstance(kernels, LinearGaussianMixture):
        kernels.set_params(gaussian_columns=np.isin(KEPT, [5, 8, 34]))
    features = kernels.fit(X, labels).transform(X)
    svm = LinearSVM(C=0.01).fit(features, labels)
    expected = features @ svm.coef_.T + svm.intercept_
    centre = partial(CentredBank(None, normalization).centre, shape=SHAPE)
    found = decision_maps(stacks, Columns(KEPT, centre, mean, scale), kernels, svm, SHAPE)
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(found, expected.reshape(*SHAPE, -1), atol=1e-5)
