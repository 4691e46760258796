import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import ConfigError, ModelFileError
from segkit.kernels import LinearGaussianMixture, LinearMixture
from segkit.kernels.linear import columnwise_mmd_squared

GAMMAS = (1.0, 0.1)


def sample(seed=0):
    """Standardised columns; the first tells the classes apart in every group."""
    rng = np.random.default_rng(seed)
    X, y, groups = rng.standard_normal((90, 4)), rng.integers(0, 2, 90), rng.integers(0, 3, 90)
    X[:, 0] += y
    X[:, 1] += 0.5 * y
    return (X - X.mean(axis=0)) / X.std(axis=0), y, groups


def fitted(n_components=40_000, **options):
    X, y, groups = sample()
    return LinearGaussianMixture(GAMMAS, n_components=n_components, random_state=0, **options).fit(
        X, y, groups
    )


@parametrize_with_checks([LinearGaussianMixture(n_components=20)])
def test_is_an_estimator(estimator, check):
    check(estimator)


# Without column 0, the best one, the weights of the others sum to far less than 1: the kernels scale them to sum 1.
@pytest.mark.parametrize("seen", [None, [False, True, True, True]])
def test_features_estimate_the_weighted_sum_of_the_kernels(seen):
    X, y, groups = sample()
    mixture = fitted(gaussian_columns=seen)
    column_weights = LinearMixture().fit(X, y, groups).weights_
    mask = np.ones(4, dtype=bool) if seen is None else np.array(seen)
    u = np.where(mask, column_weights, 0)
    u /= u.sum()
    distances = cdist(X * np.sqrt(u), X * np.sqrt(u), "sqeuclidean")
    w = mixture.weights_
    expected = w[0] * (X * column_weights) @ X.T + sum(
        weight * np.exp(-gamma * distances) for weight, gamma in zip(w[1:], GAMMAS, strict=True)
    )
    Z = mixture.transform(X)
    np.testing.assert_allclose(Z @ Z.T, expected, atol=0.03)
    assert w.sum() == pytest.approx(1)
    assert np.mean(np.sum(Z**2, axis=1)) == pytest.approx(1, abs=0.02)


def test_kernels_are_weighted_by_their_squared_mmd_between_groups():
    X, y, groups = sample()
    mixture = fitted()
    linear = LinearMixture().fit(X, y, groups).transform(X)
    assert mixture.scores_[0] == pytest.approx(columnwise_mmd_squared(linear, y, groups).sum())
    u = mixture.linear_.weights_
    for score, gamma in zip(mixture.scores_[1:], GAMMAS, strict=True):
        kernel = np.exp(-gamma * cdist(X * np.sqrt(u), X * np.sqrt(u), "sqeuclidean"))
        pairs = []
        for g in range(3):
            for h in {0, 1, 2} - {g}:
                means = [
                    [
                        kernel[np.ix_((groups == g) & (y == a), (groups == h) & (y == b))].mean()
                        for b in (0, 1)
                    ]
                    for a in (0, 1)
                ]
                pairs.append(means[0][0] + means[1][1] - means[0][1] - means[1][0])
        assert score == pytest.approx(np.mean(pairs), abs=0.01)
    np.testing.assert_allclose(mixture.weights_, mixture.scores_ / mixture.scores_.sum())


def test_without_gaussian_columns_it_is_linear():
    X, y, groups = sample()
    mixture = fitted(20, gaussian_columns=np.zeros(4, dtype=bool))
    assert mixture.weights_.tolist() == [1, 0, 0]
    np.testing.assert_allclose(mixture.transform(X), LinearMixture().fit(X, y, groups).transform(X))
    coef = np.ones((1, 4))
    np.testing.assert_allclose(mixture.dot(X, coef), mixture.transform(X) @ coef.T, atol=1e-5)


def test_gaussians_carry_their_own_weights():
    X, y, groups = sample()
    mixture = LinearGaussianMixture((8.0, 0.3, 0.05), n_components=61, random_state=0).fit(X, y, groups)
    assert mixture.amplitudes_.size == 3 * 10
    by_gamma = np.square(mixture.amplitudes_).reshape(3, 10).sum(axis=1)
    np.testing.assert_allclose(by_gamma, mixture.weights_[1:], rtol=1e-5)
    assert np.ptp(mixture.weights_[1:]) > 0.05
    u = mixture.linear_.weights_[mixture.columns_]
    spread = (
        np.square(mixture.frequencies_ / np.sqrt(u / u.sum())[:, None]).reshape(-1, 3, 10).mean(axis=(0, 2))
    )
    np.testing.assert_allclose(spread, 2 * np.array([8.0, 0.3, 0.05]), rtol=0.6)


def test_scores_are_not_negative():
    """Classes that differ one way in a group and the other way in the next."""
    X, y, groups = sample()
    X[:, :] = np.where(groups == 0, 1, -1)[:, None] * (2 * y - 1)[:, None] + 0.01 * X
    X, y, groups = X[groups < 2], y[groups < 2], groups[groups < 2]
    with pytest.warns(UserWarning, match="uniform"):
        mixture = LinearGaussianMixture(GAMMAS, n_components=20, random_state=0).fit(X, y, groups)
    assert (mixture.scores_ >= 0).all()


def test_nonlinear_input_has_the_distances_of_the_kernels():
    X = sample()[0]
    mixture = fitted(20, gaussian_columns=[False, True, True, True])
    u = mixture.linear_.weights_[mixture.columns_]
    assert u.sum() < 0.5
    scaled = mixture.nonlinear_input(X)
    np.testing.assert_allclose(scaled, X[:, mixture.columns_] * np.sqrt(u / u.sum()), rtol=1e-6)
    # Columns of variance 1, with weights of sum 1.
    assert np.mean(cdist(scaled, scaled, "sqeuclidean")) == pytest.approx(2)


def test_fits_on_other_rows_share_their_draws():
    X, y, groups = sample()
    X[:, 1] = np.array([9, -1, 2])[groups] * y + 0.01 * X[:, 1]
    X[:, 2:] += y[:, None]
    mixtures = [
        LinearGaussianMixture(GAMMAS, n_components=20, random_state=0).fit(X[rows], y[rows], groups[rows])
        for rows in (slice(None), groups != 0)
    ]
    draws = [m.frequencies_ / np.sqrt(m.linear_.weights_[m.columns_, None]) for m in mixtures]
    both = np.intersect1d(*(m.columns_ for m in mixtures))
    assert [m.columns_.tolist() for m in mixtures] == [[0, 1, 2, 3], [0, 2, 3]]
    rows = [draw[np.isin(m.columns_, both)] for draw, m in zip(draws, mixtures, strict=True)]
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-5)


def test_state_gives_the_same_features():
    X, _, _ = sample()
    for seen in (None, [True, False, True, True]):
        mixture = fitted(30, gaussian_columns=seen)
        header, arrays = mixture.to_state()
        again = LinearGaussianMixture.from_state(header, arrays)
        np.testing.assert_array_equal(again.transform(X), mixture.transform(X))
        assert again.get_params() == mixture.get_params()
        assert header["parameters"]["gaussian_columns"] == seen
    del arrays["frequencies"]
    with pytest.raises(ModelFileError, match="frequencies"):
        LinearGaussianMixture.from_state(header, arrays)


def test_damaged_states_are_refused():
    header, arrays = fitted(30).to_state()
    for damage in (
        {"amplitudes": arrays["amplitudes"][:3]},
        {"columns": np.zeros_like(arrays["columns"])},
        {"columns": arrays["columns"][::-1]},
        {"columns": arrays["columns"] + 9},
        {"columns": arrays["columns"][0]},
        {"columns": arrays["columns"][:, None]},
        {"weights": arrays["weights"][:2]},
        {"weights": -arrays["weights"]},
        {"scores": arrays["scores"][:1]},
        {"frequencies": arrays["frequencies"][1:]},
        {"frequencies": arrays["frequencies"][0]},
    ):
        with pytest.raises(ModelFileError, match="do not fit each other"):
            LinearGaussianMixture.from_state(header, arrays | damage)


def test_description_names_groups_and_gammas():
    kernels = fitted(30).describe(["b", "a", "b", "a"])
    assert [kernel["name"] for kernel in kernels[2:]] == ["gaussian gamma=1", "gaussian gamma=0.1"]
    assert {kernel["name"] for kernel in kernels[:2]} == {"linear a", "linear b"}
    assert [kernel["kind"] for kernel in kernels] == ["linear"] * 2 + ["gaussian"] * 2
    assert sum(kernel["weight"] for kernel in kernels) == pytest.approx(1)
    alone = fitted(30, gaussian_columns=np.zeros(4, dtype=bool)).describe(["b", "a", "b", "a"])
    assert [kernel["kind"] for kernel in alone] == ["linear"] * 2
    assert sum(kernel["weight"] for kernel in alone) == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gammas": ()}, "gammas=.*one or more finite numbers above 0"),
        ({"gammas": (1.0, 0.0)}, "gammas=.*above 0"),
        ({"gammas": (1.0, np.inf)}, "gammas=.*above 0"),
        ({"gammas": ("a",)}, "gammas=.*above 0"),
        ({"gaussian_columns": [True, False]}, r"gaussian_columns of shape \(2,\).*each of the 4 columns"),
        ({"gaussian_columns": [0, 1, 2, 3]}, "gaussian_columns of shape .* True or False"),
    ],
)
def test_bad_options(options, message):
    X, y, _ = sample()
    with pytest.raises(ConfigError, match=message):
        LinearGaussianMixture(**options).fit(X, y)
