import numpy as np
import pytest

from segkit.kernels import LinearGaussianMixture, LinearMixture, MixtureRFF

MIXTURES = [
    LinearMixture(),
    LinearGaussianMixture(n_components=24, gaussian_columns=[True, False, True, True], random_state=0),
    MixtureRFF(gammas=[0.5, 0.1], n_components=24, random_state=0),
]


@pytest.mark.parametrize("mixture", MIXTURES, ids=lambda mixture: type(mixture).__name__)
def test_linear_part_and_the_rest_make_up_the_product(mixture, rng):
    X = rng.normal(size=(200, 4)).astype(np.float32)
    mixture.fit(X, X[:, 0] + X[:, 2] > 0)
    features = mixture.transform(X)
    assert features.dtype == np.float32
    coef = rng.normal(size=(3, features.shape[1]))
    planes, columns = mixture.linear_coef(coef), mixture.nonlinear_columns
    total = mixture.nonlinear_dot(X[:, columns], coef) + (0 if planes is None else X @ planes.T)
    np.testing.assert_allclose(total, features @ coef.T, atol=1e-4)
    np.testing.assert_allclose(mixture.dot(X, coef), features @ coef.T, atol=1e-4)
    assert mixture.nonlinear_input(X).shape == (200, columns.size)
    assert (np.diff(columns) > 0).all()
