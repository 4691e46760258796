import json

import numpy as np
import pytest
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import ConfigError, ModelFileError, SegkitError
from segkit.kernels import (
    Anova,
    Gaussian,
    Laplacian,
    MixtureRFF,
    Normalized,
    Polynomial,
    alignment,
    median_gamma,
    mmd,
    power_criterion,
)

MIXED = [Gaussian(0.5), Polynomial(degree=2), Laplacian(0.3), Anova(0.2)]


@pytest.fixture
def data(rng):
    """A disc inside a ring: no kernel is useless and none perfect."""
    X = rng.normal(size=(80, 3))
    return X, (np.linalg.norm(X, axis=1) > 1.5).astype(int)


def mixture_gram(mixture, X):
    return sum(w * kernel(X) for w, kernel in zip(mixture.weights_, mixture.kernels_, strict=True))


@pytest.mark.parametrize("features", ["pair", "phase"])
@pytest.mark.parametrize("form", ["concatenate", "sample"])
def test_features_estimate_the_mixture(data, form, features):
    X, y = data
    mixture = MixtureRFF(MIXED, n_components=40_000, form=form, features=features, random_state=0)
    Z = mixture.fit(X, y).transform(X)
    np.testing.assert_allclose(Z @ Z.T, mixture_gram(mixture, X), atol=0.05)
    assert np.sqrt(np.mean((Z @ Z.T - mixture_gram(mixture, X)) ** 2)) < 0.01


def test_concatenated_features_are_those_of_each_kernel(data):
    """Equation 4.10: one matrix product gives sqrt(w_l) times the features of each kernel."""
    X, y = data
    mixture = MixtureRFF(gammas=[0.1, 1.0], n_components=8, random_state=0).fit(X, y)
    Z = mixture.transform(X)
    for kernel, weight in enumerate(mixture.weights_):
        angles = X @ mixture.frequencies_[:, 2 * kernel : 2 * kernel + 2]
        np.testing.assert_allclose(Z[:, 2 * kernel : 2 * kernel + 2], np.sqrt(weight / 2) * np.cos(angles))
        sines = Z[:, 4 + 2 * kernel : 6 + 2 * kernel]
        np.testing.assert_allclose(sines, np.sqrt(weight / 2) * np.sin(angles))


def test_sampled_features_have_equal_scale_and_follow_the_weights(data):
    """Equation 4.12: a gamma of 1e-8 gives frequencies near 0, so the draws can be told apart."""
    mixture = MixtureRFF(
        [Gaussian(1e-8), Gaussian(1.0)],
        n_components=20_000,
        form="sample",
        criterion="alignment",
        random_state=0,
    ).fit(*data)
    np.testing.assert_allclose(mixture.amplitudes_, np.sqrt(1 / 10_000), rtol=1e-12)
    share = np.mean(np.linalg.norm(mixture.frequencies_, axis=0) < 1e-2)
    assert share == pytest.approx(mixture.weights_[0], abs=0.02)


@pytest.mark.parametrize(
    ("criterion", "score"),
    [
        ("mmd", mmd),
        ("alignment", alignment),
        ("centered_alignment", lambda K, y: alignment(K, y, centered=True)),
        ("power", power_criterion),
    ],
)
def test_scores_and_weights(data, criterion, score):
    X, y = data
    mixture = MixtureRFF(MIXED, n_components=40, criterion=criterion, random_state=0).fit(X, y)
    scores = [score(kernel(X), y) for kernel in mixture.kernels_]
    np.testing.assert_allclose(mixture.scores_, scores, rtol=1e-9)
    np.testing.assert_allclose(mixture.weights_, np.divide(scores, np.sum(scores)), rtol=1e-9)


def test_kernels_are_scored_by_the_u_statistic_of_the_same_pairs(data):
    X, y = data
    twice = [Gaussian(0.3), Gaussian(0.3), Gaussian(3.0)]
    options = {"n_components": 40, "criterion": "u_statistic"}
    even = np.sort(np.concatenate([np.flatnonzero(y == label)[:20] for label in np.unique(y)]))
    first = MixtureRFF(twice, **options, random_state=0).fit(X[even], y[even])
    assert first.scores_[0] == first.scores_[1] != first.scores_[2]
    again, other = (MixtureRFF(twice, **options, random_state=seed).fit(X[even], y[even]) for seed in (0, 1))
    np.testing.assert_array_equal(first.scores_, again.scores_)
    assert (first.scores_ != other.scores_).all()
    np.testing.assert_allclose(first.scores_, [mmd(kernel(X[even]), y[even]) for kernel in twice], rtol=0.2)


def test_classes_of_other_sizes_are_told_where_pairs_are_compared(rng):
    y = np.arange(20) < 5
    X = rng.normal(size=(20, 2)) + 3 * y[:, None]
    three = np.repeat([0, 1, 2], [8, 7, 5])
    for labels, told in (
        (y + 0, r"^classes of 15, 5 samples: the U-statistic takes 5 of each; criterion 'mmd' takes all$"),
        (three, r"^classes of 8, 7, 5 samples: the U-statistic takes as many of the others as a class has"),
    ):
        with pytest.warns(UserWarning, match=told):
            MixtureRFF([Gaussian(1.0)], n_components=10, criterion="u_statistic", random_state=0).fit(
                X, labels
            )


@pytest.mark.parametrize(
    ("kernels", "fitting"), [("gaussian", 4e-8), ("laplacian", 2e-4), ("anova", 1.25e-7)]
)
def test_kernels_that_are_zero_everywhere_are_refused(data, kernels, fitting):
    """Such as those of maps that are not standardised."""
    X, y = data
    with pytest.raises(ConfigError) as caught:
        MixtureRFF(kernels, gammas=[1.0, 100.0], n_components=10, random_state=0).fit(2000 * X, y)
    told, _, gamma = str(caught.value).rpartition(" ")
    assert told == "gammas [1.0, 100.0]: all kernels are nearly zero between these samples; give gammas about"
    assert float(gamma) == pytest.approx(fitting, rel=0.5)
    MixtureRFF(kernels, gammas=[1.0, float(gamma)], n_components=10, random_state=0).fit(2000 * X, y)


def test_default_grid(data):
    X, y = data
    base = median_gamma(X)
    multiples = [2.0**power for power in range(-6, 7)]
    gaussians = MixtureRFF(n_components=100, random_state=0).fit(X, y).kernels_
    assert gaussians == [Gaussian(multiple * base) for multiple in multiples]
    laplacians = MixtureRFF("laplacian", n_components=100, random_state=0).fit(X, y).kernels_
    assert laplacians == [Laplacian(multiple * base**0.5) for multiple in multiples]


def test_grids_of_the_other_named_kernels(data):
    X, y = data
    X = 3 * X + 7
    variance = X.var(axis=0)
    polynomials = MixtureRFF("polynomial", n_components=100, random_state=0).fit(X, y).kernels_
    assert [one.kernel.degree for one in polynomials] == [1, 2, 3, 4, 5]
    np.testing.assert_allclose([one.kernel.gamma for one in polynomials], 1 / variance.sum())
    anovas = MixtureRFF("anova", n_components=100, random_state=0).fit(X, y).kernels_
    multiples = [4.0**power for power in range(-3, 4)]
    np.testing.assert_allclose([one.kernel.gamma for one in anovas], multiples / (2 * variance.mean()))
    given = MixtureRFF("anova", gammas=[0.2], n_components=80, random_state=0).fit(X, y)
    assert given.kernels_ == [Normalized(Anova(0.2))]
    np.testing.assert_allclose(given.transform(X) @ given.transform(X).T, given.kernels_[0](X), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        (
            {"kernels": "polynomial", "gammas": [1.0]},
            None,
            "gammas with kernels='polynomial': its kernels differ in degree; leave gammas out",
        ),
        (
            {"kernels": "anova"},
            np.ones((6, 2)),
            "all samples are alike, so that no kernel fits them: give samples that differ",
        ),
    ],
)
def test_named_kernels_that_cannot_be_made(data, options, X, message):
    X, y = data if X is None else (X, np.arange(6) % 2)
    with pytest.raises(SegkitError) as caught:
        MixtureRFF(n_components=100, random_state=0, **options).fit(X, y)
    assert str(caught.value) == message


def test_a_polynomial_swamps_a_gaussian_unless_normalised(rng):
    X = 10 * rng.normal(size=(100, 3))
    y = X[:, 0] > 0
    kernels = [Gaussian(0.01), Polynomial(degree=3)]
    raw = MixtureRFF(kernels, n_components=50, normalize=False, random_state=0).fit(X, y)
    assert raw.weights_[0] < 0.01
    normalised = MixtureRFF(kernels, n_components=50, random_state=0).fit(X, y)
    assert normalised.kernels_ == [Gaussian(0.01), Normalized(Polynomial(degree=3))]
    assert normalised.weights_[0] > 0.3


def test_kernels_of_weight_zero_get_no_features(data):
    """At gamma = 1e8 the Gram matrix is the identity, of unbiased MMD 0."""
    X, y = data
    mixture = MixtureRFF(gammas=[1e8, 1.0], n_components=10, random_state=0).fit(X, y)
    np.testing.assert_array_equal(mixture.weights_, [0, 1])
    assert mixture.frequencies_.shape == (3, 5)
    assert (mixture.amplitudes_ > 0).all()


@pytest.mark.parametrize(
    ("kernels", "features", "n_components", "expected"),
    [
        ("gaussian", "pair", 2048, 2048),
        ("gaussian", "pair", 101, 100),
        ("gaussian", "phase", 101, 101),
        ([Anova(1.0), Gaussian(1.0), Laplacian(1.0)], "pair", 31, 31),
        ([Polynomial(degree=1)], "pair", 31, 4),
    ],
)
def test_number_of_features(data, kernels, features, n_components, expected):
    """All that were asked for, but for an odd one among pairs and a kernel of low rank."""
    X, y = data
    mixture = MixtureRFF(kernels, n_components=n_components, features=features, criterion="alignment")
    assert mixture.fit(X, y).transform(X).shape == (80, expected)
    assert len(mixture.get_feature_names_out()) == expected


def test_number_of_sampled_features_misses_one_at_most(data):
    mixture = MixtureRFF(MIXED, n_components=31, form="sample", random_state=0).fit(*data)
    assert 30 <= mixture.transform(data[0]).shape[1] <= 31


def test_equal_numbers_of_draws_for_each_kernel(data):
    """1,024 pairs for 13 kernels: amplitudes tell the kernels apart, each has 78 or 79 draws."""
    mixture = MixtureRFF(criterion="alignment", random_state=0).fit(*data)
    _, counts = np.unique(mixture.amplitudes_, return_counts=True)
    assert counts.sum() == 1024
    assert set(counts) == {78, 79}


class Recorder:
    """A polynomial kernel that keeps the rows it is evaluated on."""

    def __init__(self):
        self.seen = []

    def __call__(self, X, Y=None):
        self.seen.append(X)
        return Polynomial()(X, Y)

    def diagonal(self, X):
        return Polynomial().diagonal(X)


def scored_rows(X, y, **options):
    recorder = Recorder()
    MixtureRFF([Normalized(recorder)], n_components=5, criterion="alignment", **options).fit(X, y)
    return recorder.seen[0]


def test_max_samples_scores_as_many_of_each_class(rng):
    """30 of the rare class are all kept, the other 70 rows go to the frequent one."""
    X = rng.normal(size=(1030, 2))
    y = np.repeat([0, 1], [1000, 30])
    rare = {tuple(row) for row in X[1000:]}
    scored = {tuple(row) for row in scored_rows(X, y, max_samples=100, random_state=0)}
    assert len(scored) == 100
    assert scored >= rare
    scored = {tuple(row) for row in scored_rows(X, y, max_samples=40, random_state=0)}
    assert len(scored & rare) == 20


def test_rows_that_score_kernels_are_drawn_at_random():
    """Rows come image by image: the first ones would be those of one image."""
    X, y = np.arange(1000.0)[:, None], np.tile([0, 1], 500)
    drawn = [{int(row) for [row] in scored_rows(X, y, max_samples=100, random_state=seed)} for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    for rows in drawn:
        assert len(rows) == 100
        # hypergeometric: 50 with a standard deviation of 4.7
        assert 25 < sum(row < 500 for row in rows) < 75


@pytest.mark.parametrize(
    ("kernels", "features", "dtype"),
    [("laplacian", "pair", np.float32), (MIXED, "phase", np.float64), ([Polynomial()], "pair", np.float64)],
)
def test_state_round_trip_gives_the_same_bits(data, kernels, features, dtype):
    X, y = data[0].astype(dtype), data[1]
    mixture = MixtureRFF(kernels, n_components=np.int64(64), features=features, random_state=7).fit(X, y)
    header, arrays = mixture.to_state()
    rebuilt = MixtureRFF.from_state(json.loads(json.dumps(header)), arrays)
    Z = mixture.transform(X)
    assert Z.dtype == dtype
    np.testing.assert_array_equal(rebuilt.transform(X), Z)
    assert rebuilt.get_params() == mixture.get_params()
    assert rebuilt.kernels_ == mixture.kernels_
    np.testing.assert_array_equal(rebuilt.weights_, mixture.weights_)
    assert list(rebuilt.get_feature_names_out()) == list(mixture.get_feature_names_out())


def test_state_keeps_gammas_and_drops_a_generator(data):
    mixture = MixtureRFF(
        gammas=np.array([0.1, 0.7]), n_components=8, random_state=np.random.RandomState(0)
    ).fit(*data)
    header, arrays = mixture.to_state()
    assert header["parameters"]["gammas"] == [0.1, 0.7]
    assert header["parameters"]["random_state"] is None
    assert MixtureRFF.from_state(header, arrays).kernels_ == [Gaussian(0.1), Gaussian(0.7)]


def test_damaged_state(data):
    header, arrays = MixtureRFF(gammas=[1.0], n_components=8).fit(*data).to_state()
    del arrays["amplitudes"]
    with pytest.raises(ModelFileError) as caught:
        MixtureRFF.from_state(header, arrays)
    assert str(caught.value) == "state of MixtureRFF is damaged or of another version: 'amplitudes'"


def test_arrays_that_do_not_fit_are_refused(data):
    kernels = [Gaussian(1.0), Polynomial()]
    header, arrays = MixtureRFF(kernels, n_components=16, random_state=0).fit(*data).to_state()
    for damage in (
        {"frequencies": arrays["frequencies"][0]},
        {"amplitudes": arrays["amplitudes"][1:]},
        {"scores": arrays["scores"][1:]},
        {"weights": arrays["weights"][:, None]},
        {"scores": arrays["scores"][1:], "weights": arrays["weights"][1:]},
        {"landmarks_0": arrays["landmarks_0"][1:]},
        {"landmarks_0": arrays["landmarks_0"][:, 1:]},
        {"projection_0": arrays["projection_0"][:, 0]},
        {"landmarks_0": arrays["landmarks_0"][:0], "projection_0": arrays["projection_0"][:0]},
    ):
        with pytest.raises(ModelFileError, match="do not fit each other"):
            MixtureRFF.from_state(header, arrays | damage)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"kernels": [Gaussian(1.0)], "gammas": [1.0]},
            "gammas with kernel objects: gammas apply to 'gaussian', 'laplacian' and 'anova'; "
            "set the gamma of each kernel object instead",
        ),
        (
            {"kernels": []},
            "kernels=[]: a name or at least one kernel object is needed, such as Gaussian(0.5)",
        ),
        (
            {"kernels": ["gaussian"]},
            "kernels=['gaussian']: a name or at least one kernel object is needed, such as Gaussian(0.5)",
        ),
        ({"gammas": []}, "gammas=[]: at least one is needed; leave gammas out for the default grid"),
        ({"gammas": [1.0, -1.0]}, "Gaussian(gamma=-1.0): gamma must be positive and finite"),
        (
            {"criterion": "alignment", "n_components": 25},
            "n_components=25: the kernels with positive weight need at least 26 features; "
            "raise n_components or give fewer kernels",
        ),
        (
            {"kernels": [Gaussian(1.0), Polynomial()], "form": "sample", "n_components": 2},
            "n_components=2: the kernels with positive weight need at least 3 features; "
            "raise n_components or give fewer kernels",
        ),
    ],
)
def test_parameters_that_do_not_fit(data, parameters, message):
    with pytest.raises(ConfigError) as caught:
        MixtureRFF(**parameters).fit(*data)
    assert str(caught.value) == message


def test_at_least_one_random_feature_is_needed(data):
    with pytest.raises(InvalidParameterError, match=r"n_components.*\[1, inf\)"):
        MixtureRFF(n_components=0).fit(*data)


@parametrize_with_checks(
    [
        # The checks set n_components=1, which the default's 13 pairs do not fit in.
        MixtureRFF(form="sample", features="phase", random_state=0),
    ]
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"features": "phase", "form": "sample"},
        {"kernels": [Gaussian(0.1), Polynomial(2)]},
        {"kernels": [Polynomial(2)]},
    ],
)
@pytest.mark.parametrize(("dtype", "n_functions"), [(np.float32, 1), (np.float64, 2)])
def test_dot_is_the_product_with_the_features(options, dtype, n_functions, rng, monkeypatch):
    X = rng.normal(size=(70, 3)).astype(dtype)
    mixture = MixtureRFF(n_components=60, random_state=0, **options).fit(X, X[:, 0] > 0)
    Z = mixture.transform(X)
    coef = rng.normal(size=(n_functions, Z.shape[1])).astype(dtype)
    monkeypatch.setattr("segkit.kernels.fourier._ROWS_AT_ONCE", 32)
    values = mixture.dot(X, coef)
    assert values.dtype == dtype
    np.testing.assert_allclose(values, Z @ coef.T, atol=1e-4 if dtype == np.float32 else 1e-10)
