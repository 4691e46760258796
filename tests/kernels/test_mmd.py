import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.errors import ConfigError, InputError
from segkit.kernels import Gaussian, Laplacian, alignment, mixture_weights, mmd, mmd_squared, power_criterion

STATISTICS = ["unbiased", "biased", "scaled_biased"]


@pytest.fixture
def two_classes(rng):
    """A Gram matrix of 7 and 5 samples in shuffled order, and labels."""
    y = rng.permutation(np.repeat(["a", "b"], [7, 5]))
    X = rng.normal(size=(12, 3)) + (y == "a")[:, None]
    return Laplacian(0.5)(X), y


def naive_mmd_squared(K, y, statistic):
    """Equations 4.5 and 4.2 as double loops."""
    plus, minus = (np.flatnonzero(y == label) for label in np.unique(y))
    n, m = len(plus), len(minus)
    cross = sum(K[i, j] for i in plus for j in minus) / (n * m)
    if statistic == "unbiased":
        first = sum(K[i, j] for i in plus for j in plus if i != j) / (n * (n - 1))
        second = sum(K[i, j] for i in minus for j in minus if i != j) / (m * (m - 1))
    else:
        first = sum(K[i, j] for i in plus for j in plus) / n**2
        second = sum(K[i, j] for i in minus for j in minus) / m**2
    scale = n * m / (n + m) if statistic == "scaled_biased" else 1
    return scale * (first + second - 2 * cross)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_mmd_squared_equals_double_loops(two_classes, statistic):
    K, y = two_classes
    expected = naive_mmd_squared(K, y, statistic)
    assert mmd_squared(K, y, statistic=statistic) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sizes", [(6, 6), (7, 4)])
def test_u_statistic_equals_a_double_loop_over_pairs(rng, sizes):
    """Equation 4.6, and what is done where classes differ in size: samples of the larger one are left out."""
    y = rng.permutation(np.repeat([False, True], sizes))
    K = Gaussian(0.5)(rng.normal(size=(len(y), 3)) + y[:, None])
    draws = np.random.RandomState(5)
    pairs = list(
        zip(*(draws.permutation(np.flatnonzero(y == label)) for label in np.unique(y)), strict=False)
    )
    n_pairs = min(sizes)
    assert len(pairs) == n_pairs
    total = sum(
        K[a, c] + K[b, d] - K[a, d] - K[c, b]
        for i, (a, b) in enumerate(pairs)
        for j, (c, d) in enumerate(pairs)
        if i != j
    )
    found = mmd_squared(K, y, statistic="u_statistic", random_state=5)
    assert found == pytest.approx(total / (n_pairs * (n_pairs - 1)), rel=1e-12)
    assert found != mmd_squared(K, y, statistic="u_statistic", random_state=6)


def test_mean_of_the_u_statistic_over_pairings_is_the_estimate_of_all_pairs(rng):
    y = np.repeat([0, 1], [3, 5])
    K = Gaussian(0.5)(rng.normal(size=(8, 2)) + y[:, None])
    draws = np.random.RandomState(0)
    found = [mmd_squared(K, y, statistic="u_statistic", random_state=draws) for _ in range(4000)]
    error = np.std(found) / np.sqrt(len(found))
    assert error > 0
    assert np.mean(found) == pytest.approx(mmd_squared(K, y), abs=4 * error)


def test_scaled_biased_tends_to_one_for_distinct_samples(rng):
    """Table 2: as gamma grows K tends to the identity and the statistic to 1.000."""
    K = Gaussian(1e8)(rng.normal(size=(50, 4)))
    assert mmd_squared(K, np.arange(50) < 13, statistic="scaled_biased") == pytest.approx(1, abs=1e-12)


def test_mmd_of_two_classes_is_the_clipped_root(two_classes):
    K, y = two_classes
    assert mmd(K, y) == pytest.approx(np.sqrt(mmd_squared(K, y)), rel=1e-14)
    assert mmd(np.eye(4), [0, 0, 1, 1]) == 0
    assert mmd(np.array([[1, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 1]]), [0, 0, 1, 1]) == 0


@pytest.mark.parametrize("statistic", STATISTICS)
def test_mmd_of_more_classes_is_the_average_of_one_vs_rest_roots(rng, statistic):
    y = np.repeat([0, 1, 2], [6, 7, 8])
    K = Gaussian(0.3)(rng.normal(size=(21, 3)) + y[:, None])
    squares = [mmd_squared(K, y == label, statistic=statistic) for label in range(3)]
    expected = np.mean(np.sqrt(np.maximum(squares, 0)))
    assert mmd(K, y, statistic=statistic) == pytest.approx(expected, rel=1e-12)


def naive_power(K, positive):
    """Witness of each sample, itself left out, by loops."""
    n = len(K)
    witness = np.array(
        [
            np.mean([K[i, j] for j in range(n) if j != i and positive[j] == positive[i]])
            - np.mean([K[i, j] for j in range(n) if positive[j] != positive[i]])
            for i in range(n)
        ]
    )
    sides = witness[positive], witness[~positive]
    variance = sum(4 * side.var() / len(side) for side in sides)
    return sum(side.mean() for side in sides) / np.sqrt(variance + 1e-8)


def test_power_equals_loops(two_classes):
    K, y = two_classes
    assert power_criterion(K, y) == pytest.approx(naive_power(K, y == "a"), rel=1e-10)


def test_power_of_more_classes_is_the_average(rng):
    y = np.repeat([0, 1, 2], 8)
    K = Gaussian(0.3)(rng.normal(size=(24, 2)) + 3 * y[:, None])
    expected = np.mean([max(naive_power(K, y == label), 0) for label in range(3)])
    assert power_criterion(K, y) == pytest.approx(expected, rel=1e-10)


def test_power_denominator_is_the_spread_of_the_statistic(rng):
    """Its square is the variance of the unbiased estimate over fresh samples, classes unequal."""
    y = np.repeat([0, 1], [150, 60])
    squares, ratios = [], []
    for _ in range(200):
        K = Gaussian(0.3)(rng.normal(size=(210, 1)) + 1.5 * y[:, None])
        squares.append(mmd_squared(K, y))
        ratios.append(power_criterion(K, y))
    deviations = np.array(squares) / ratios
    assert np.mean(deviations) == pytest.approx(np.std(squares), rel=0.2)


def test_power_of_an_uninformative_kernel_is_zero():
    assert power_criterion(np.eye(6), [0, 0, 0, 1, 1, 1]) == 0


def test_alignment_equals_its_definition(two_classes):
    K, y = two_classes
    signs = np.where(y == "a", 1.0, -1.0)
    target = np.outer(signs, signs)
    plain = np.sum(K * target) / np.sqrt(np.sum(K * K) * np.sum(target * target))
    assert alignment(K, y) == pytest.approx(plain, rel=1e-12)
    H = np.eye(12) - 1 / 12
    K, target = H @ K @ H, H @ target @ H
    centred = np.sum(K * target) / np.sqrt(np.sum(K * K) * np.sum(target * target))
    assert alignment(*two_classes, centered=True) == pytest.approx(centred, rel=1e-12)


def test_alignment_of_the_target_is_one_and_of_a_constant_is_zero_when_centred():
    y = np.array([0, 0, 0, 0, 1])
    target = np.where(y[:, None] == y, 1.0, -1.0)
    assert alignment(target, y) == pytest.approx(1, rel=1e-14)
    assert alignment(target, y, centered=True) == pytest.approx(1, rel=1e-14)
    assert alignment(np.ones((5, 5)), y) == pytest.approx(0.36, rel=1e-14)
    assert alignment(np.ones((5, 5)), y, centered=True) == 0


def test_alignment_of_more_classes_is_the_average(rng):
    y = np.repeat([0, 1, 2], 5)
    K = Gaussian(0.3)(rng.normal(size=(15, 2)) + y[:, None])
    for centered in (False, True):
        expected = np.mean([alignment(K, y == label, centered=centered) for label in range(3)])
        assert alignment(K, y, centered=centered) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=50)
@given(st.lists(st.floats(-1, 1e6, allow_subnormal=False), min_size=1, max_size=20))
def test_weights_are_proportional_and_sum_to_one(scores):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        weights = mixture_weights(scores)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert (weights >= 0).all()
    if max(scores) > 1e-6:
        np.testing.assert_allclose(weights * np.sum(np.maximum(scores, 0)), np.maximum(scores, 0), rtol=1e-9)


def test_no_positive_score_gives_uniform_weights_and_a_warning():
    message = (
        r"^none of the 4 kernels separates the classes \(all scores are 0\): weights are uniform; "
        r"more samples or other gammas may help$"
    )
    with pytest.warns(UserWarning, match=message):
        np.testing.assert_array_equal(mixture_weights([0, 0, -1, 0]), np.full(4, 0.25))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mmd(np.ones((3, 2)), [0, 1, 1]),
            "Gram matrix of shape (3, 2) and labels of shape (3,): (n, n) and (n,) are needed; "
            "compute the Gram matrix as kernel(X)",
        ),
        (
            lambda: alignment(np.eye(3), [0, 1]),
            "Gram matrix of shape (3, 3) and labels of shape (2,): (n, n) and (n,) are needed; "
            "compute the Gram matrix as kernel(X)",
        ),
        (
            lambda: mmd(np.eye(3), [1, 1, 1]),
            "labels of 1 class: at least 2 are needed; annotate another class",
        ),
        (lambda: mmd_squared(np.eye(3), [0, 1, 2]), "3 classes: mmd_squared compares two; use mmd"),
        (
            lambda: mmd(np.eye(3), [0, 1, 1]),
            "a class has 1 of 3 samples: this estimate needs at least 2 in each class; annotate more of that class",
        ),
        (
            lambda: mmd(np.eye(3), [0, 1, 1], statistic="u_statistic"),
            "a class has 1 of 3 samples: this estimate needs at least 2 in each class; annotate more of that class",
        ),
        (
            lambda: power_criterion(np.eye(3), [0, 1, 1]),
            "a class has 1 of 3 samples: this estimate needs at least 2 in each class; annotate more of that class",
        ),
        *(
            (
                lambda scores=scores: mixture_weights(scores),
                f"scores {scores}: weights need at least one score, all finite; "
                "leave out kernels that overflow, or standardise the features",
            )
            for scores in (3.0, [], [[1.0, 2.0]], [np.inf, 1.0], [1.0, np.nan])
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


def test_unknown_statistic():
    """Named first, also where classes are too small."""
    with pytest.raises(ConfigError) as caught:
        mmd(np.eye(2), [0, 1], statistic="linear")
    assert (
        str(caught.value)
        == "statistic='linear': choose 'unbiased', 'u_statistic', 'biased' or 'scaled_biased'"
    )
