import json
from itertools import combinations

import numpy as np
import pytest

from benchmarks.rows import read
from benchmarks.tables.ridge import (
    Axis,
    Folds,
    Grams,
    Search,
    approached,
    gram,
    layer,
    least_squares,
    nested,
    predictions,
    second_gamma,
    second_gram,
    squared,
    wrong,
)
from segkit.invariance import OrbitFourier, Permutation
from segkit.kernels import Gaussian, NystroemFeatures, RandomFourierFeatures

AXES = {"width": Axis(10.0, 2.0), "penalty": Axis(1e-6, 10.0)}
TWO_LAYERS = {"second_width": Axis(4.0, 2.0), "penalty": Axis(1e-3, 10.0)}


def test_the_penalty_is_that_of_the_least_leave_one_out_error(rng):
    y = rng.integers(3, size=30)
    X = rng.standard_normal((30, 40)) + 0.5 * np.eye(3, 40)[y]
    targets = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    penalties = np.linalg.eigvalsh(X @ X.T)[-1] * np.logspace(-9, 0, 19)

    def dual(rows, penalty):
        return np.linalg.solve(X[rows] @ X[rows].T + penalty * np.eye(len(rows)), targets[rows])

    def error(penalty):
        others = [np.delete(np.arange(30), i) for i in range(30)]
        return np.mean(
            [(X[i] @ X[rest].T @ dual(rest, penalty) - targets[i]) ** 2 for i, rest in enumerate(others)]
        )

    best = min(penalties, key=error)
    found = least_squares(X, y)
    assert found.alpha_ == pytest.approx(best)
    np.testing.assert_allclose(found.coef_.T, X.T @ dual(np.arange(30), best), atol=1e-9)


def bowl(width, penalty):
    """Errors whose least value moves with the width, as that of a penalty does."""
    return lambda settings, values: {
        (fold, value): 1
        + (np.log2(settings["width"] / width) - fold) ** 2
        + (np.log10(value / penalty) + np.log2(settings["width"] / width)) ** 2
        for fold in (0, 1)
        for value in values
    }


def test_grids_grow_until_the_least_error_lies_inside():
    search = Search(AXES, bowl(width=80.0, penalty=1e-9))
    first, second = search.choose(0), search.choose(1)
    assert (first["width"], first["penalty"], first["edges"]) == (80.0, 1e-9, [])
    assert (second["width"], second["penalty"], second["edges"]) == (160.0, 1e-10, [])
    for found in (first, second):
        assert all(found["tried"][name][0] < found[name] < found["tried"][name][1] for name in AXES)


def test_an_end_of_the_grid_and_a_failure_are_edges():
    search = Search(AXES, lambda settings, values: {(0, value): 1 / settings["width"] for value in values})
    found = search.choose(0)
    assert found["width"] == 10.0 * 2**6
    assert found["edges"] == ["width"]  # penalties all do as well: the first one stays
    assert found["penalty"] == 1e-6

    def failing(_, values):
        return {(0, value): value for value in values if value >= 1e-8}

    found = Search({"penalty": AXES["penalty"]}, failing).choose(0)
    assert (found["penalty"], found["edges"]) == (1e-8, ["penalty"])


def test_a_neighbour_that_is_hardly_better_is_not_taken():
    def flat(_, values):
        return {(0, value): 1 + 1e-4 * np.log10(value) for value in values}

    axes = {"penalty": Axis(1.0, 10.0)}
    assert Search(axes, flat, tolerance=1e-3).choose(0)["penalty"] == 1.0
    assert Search(axes, flat, tolerance=0.0).choose(0)["penalty"] == 1e-6


def test_inner_products_are_summed_in_float64(rng):
    features, others = (rng.normal(size=(n, 1500)).astype(np.float32) for n in (5, 3))
    exact = features.astype(np.float64)
    np.testing.assert_allclose(gram(features), exact @ exact.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        gram(features, others), exact @ others.astype(np.float64).T, rtol=1e-12, atol=1e-12
    )


@pytest.fixture(scope="module")
def samples():
    """Vectors whose class is that of their largest entry, in any order of the entries."""
    X = np.random.default_rng(0).normal(size=(120, 4))
    y = (X.max(axis=1) > np.median(X.max(axis=1))).astype(int)
    return X, np.where(y[:, None] == np.arange(2), 1.0, -1.0), np.arange(120) % 5


@pytest.fixture(scope="module")
def data(samples):
    return Folds.drawn(samples[1], samples[2], wrong)


@pytest.fixture(scope="module")
def features():
    return OrbitFourier(Gaussian(0.3), Permutation(), n_components=60, random_state=0)


@pytest.fixture(scope="module")
def grams(samples, features):
    return Grams(samples[0], lambda _: None, lambda _: features)


def test_inner_errors_are_those_of_models_of_some_rows(samples):
    X, targets, folds = samples
    learning = np.random.default_rng(1).uniform(size=len(X)) < 0.5
    products = Gaussian(0.3)(X)
    found = Folds(targets[:, 0], folds, learning).inner(products, [1e-2])
    expected = {fold: [] for fold in range(5)}
    for pair in combinations(range(5), 2):
        known = learning & ~np.isin(folds, pair)
        for outer, inner in (pair, pair[::-1]):
            held = folds == inner
            [(_, predicted)] = predictions(
                products[np.ix_(known, known)], products[np.ix_(held, known)], targets[known, 0], [1e-2]
            )
            expected[outer].append(squared(predicted, targets[held, 0]).mean())
    assert found == {(fold, 1e-2): pytest.approx(np.mean(values)) for fold, values in expected.items()}


def test_predictions_have_a_free_intercept(rng):
    X, others, y = rng.normal(size=(20, 3)), rng.normal(size=(4, 3)), rng.normal(size=20) + 5
    [(_, found)] = predictions(X @ X.T, others @ X.T, y, [0.7])
    centred = X - X.mean(axis=0)
    coef = np.linalg.solve(centred.T @ centred + 0.7 * np.eye(3), centred.T @ (y - y.mean()))
    np.testing.assert_allclose(found, (others - X.mean(axis=0)) @ coef + y.mean())


def test_a_fold_is_judged_by_a_model_of_the_others_with_their_settings(grams, data):
    chosen, losses = nested(grams, data, TWO_LAYERS)
    assert sorted(chosen) == list(range(5))
    for fold, settings in chosen.items():
        products = layer(grams[1.0], settings["second_width"])
        held, known = data.folds == fold, data.folds != fold
        [(_, predicted)] = predictions(
            products[np.ix_(known, known)],
            products[np.ix_(held, known)],
            data.targets[known],
            [settings["penalty"]],
        )
        np.testing.assert_array_equal(losses[held], wrong(predicted, data.targets[held]))


def test_the_choice_for_a_fold_does_not_look_at_it(grams, data):
    changed = data.targets.copy()
    changed[data.folds == 2] *= -1
    first, _ = nested(grams, data, TWO_LAYERS)
    second, _ = nested(grams, Folds(changed, data.folds, data.learning, wrong), TWO_LAYERS)
    assert {name: first[2][name] for name in TWO_LAYERS} == {name: second[2][name] for name in TWO_LAYERS}


@pytest.mark.parametrize(
    ("second", "tolerance"),
    [
        (RandomFourierFeatures(n_components=20_000, random_state=0), 0.03),
        (NystroemFeatures(n_components=120, random_state=0), 1e-3),
    ],
)
def test_features_of_the_second_layer_approach_its_kernel(grams, data, features, second, tolerance):
    kernel = Gaussian(second_gamma(grams[1.0], 4.0))
    made = second_gram(second, kernel, features.fit_transform(grams.X))
    np.testing.assert_allclose(made, layer(grams[1.0], 4.0), atol=tolerance)
    chosen, losses = nested(grams, data, TWO_LAYERS)
    found, others = approached(grams, data, json.loads(json.dumps(chosen)), second, TWO_LAYERS["penalty"])
    assert all(one["second_width"] == chosen[fold]["second_width"] for fold, one in found.items())
    assert abs(losses.mean() - others.mean()) < 0.05


def test_landmarks_of_a_second_layer_are_not_lost_to_single_precision(samples, features):
    """A wide kernel, whose rank in float32 is small."""
    rows = features.fit_transform(samples[0]).astype(np.float32)
    kernel = Gaussian(second_gamma(gram(rows), 100.0))
    second = NystroemFeatures(n_components=120, random_state=0)
    np.testing.assert_allclose(second_gram(second, kernel, rows), kernel(rows.astype(np.float64)), atol=1e-9)


def test_no_committed_choice_lies_on_an_edge():
    folds = [fold for row in read("orbit_features") for fold in row["figures"].get("chosen", {}).values()]
    assert folds
    for fold in folds:
        assert fold["edges"] == []
        assert all(low < fold[name] < high for name, (low, high) in fold["tried"].items())
