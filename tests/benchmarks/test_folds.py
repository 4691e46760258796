import json
from itertools import combinations

import numpy as np
import pytest

from benchmarks.common import RESULTS
from benchmarks.tables.common import beside_paper, chosen_of
from benchmarks.tables.folds import (
    Folds,
    Grams,
    accuracy_by_fold,
    approached,
    layer,
    nested,
    second_gamma,
    second_gram,
    wrong,
)
from benchmarks.tables.ridge import Axis, Search, gram, inner_errors, predictions, squared
from segkit.invariance import OrbitFourier, Permutation
from segkit.kernels import Gaussian, NystroemFeatures, RandomFourierFeatures

AXES = {"width": Axis(10.0, 2.0), "penalty": Axis(1e-6, 10.0)}
TWO_LAYERS = {"second_width": Axis(4.0, 2.0), "penalty": Axis(1e-3, 10.0)}


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


@pytest.mark.parametrize("n", [5, 40])
def test_symmetric_gram(n):
    features = np.random.default_rng(0).normal(size=(n, 30)).astype(np.float32)
    expected = features.astype(np.float64) @ features.T.astype(np.float64)
    np.testing.assert_allclose(gram(features, block=4), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gram(features, features, block=4), expected, rtol=1e-12, atol=1e-12)


@pytest.fixture
def samples():
    """Vectors whose class is that of their largest entry, in any order of the entries."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = (X.max(axis=1) > np.median(X.max(axis=1))).astype(int)
    return X, np.where(y[:, None] == np.arange(2), 1.0, -1.0), np.arange(120) % 5


@pytest.fixture
def data(samples):
    return Folds.drawn(samples[1], samples[2], wrong)


@pytest.fixture
def features():
    return OrbitFourier(Gaussian(0.3), Permutation(), n_components=60, random_state=0)


@pytest.fixture
def grams(samples, features):
    return Grams(samples[0], lambda _: None, lambda _: features)


def test_inner_errors_are_those_of_models_of_some_rows(samples):
    X, targets, folds = samples
    learning = np.random.default_rng(1).uniform(size=len(X)) < 0.5
    products = Gaussian(0.3)(X)
    found = inner_errors(products, targets[:, 0], folds, [1e-2], learning=learning)
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


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_fold_is_judged_by_a_model_of_the_others_with_their_settings(grams, data, n_layers):
    axes = {"penalty": TWO_LAYERS["penalty"]} if n_layers == 1 else TWO_LAYERS
    chosen, losses = nested(grams, data, axes)
    assert sorted(chosen) == list(range(5))
    for fold, settings in chosen.items():
        products = layer(grams[1.0], settings.get("second_width"))
        errors = data.inner(products, [settings["penalty"]])
        held, known = data.folds == fold, data.folds != fold
        [(_, predicted)] = predictions(
            products[np.ix_(known, known)],
            products[np.ix_(held, known)],
            data.targets[known],
            [settings["penalty"]],
        )
        np.testing.assert_array_equal(losses[held], wrong(predicted, data.targets[held]))
        for factor in (0.1, 10.0):  # within the tolerance no neighbour does better
            beside = data.inner(products, [settings["penalty"] * factor])
            for key, error in beside.items():
                if key[0] == fold:
                    assert error >= 0.99 * errors[fold, settings["penalty"]]
    row = accuracy_by_fold(chosen, losses, data)
    assert row["value"] == pytest.approx(100 * (1 - losses.mean()))
    assert row["interval"][0] < row["value"] < row["interval"][1]


def test_the_choice_for_a_fold_does_not_look_at_it(grams, data):
    changed = data.targets.copy()
    changed[data.folds == 2] *= -1
    first, _ = nested(grams, data, TWO_LAYERS)
    second, _ = nested(grams, Folds(changed, data.folds, data.learning, wrong), TWO_LAYERS)
    assert {name: first[2][name] for name in TWO_LAYERS} == {name: second[2][name] for name in TWO_LAYERS}


@pytest.mark.parametrize(
    ("second", "tolerance"),
    [
        (RandomFourierFeatures(n_components=40_000, random_state=0), 0.02),
        (NystroemFeatures(n_components=120, random_state=0), 1e-3),
    ],
)
def test_features_of_the_second_layer_approach_its_kernel(grams, data, features, second, tolerance):
    expected = layer(grams[1.0], 4.0)
    kernel = Gaussian(second_gamma(grams[1.0], 4.0))
    made = second_gram(second, kernel, features.fit_transform(grams.X))
    np.testing.assert_allclose(made, expected, atol=tolerance)
    chosen, losses = nested(grams, data, TWO_LAYERS)
    as_text = json.loads(json.dumps(chosen))
    found, others = approached(grams, data, as_text, second, TWO_LAYERS["penalty"])
    assert {fold: one["second_width"] for fold, one in found.items()} == {
        fold: one["second_width"] for fold, one in chosen.items()
    }
    assert abs(losses.mean() - others.mean()) < 0.05


def test_a_row_says_what_its_folds_chose():
    fold = {"penalty": 1e-3, "tried": {"penalty": [1e-4, 1e-2]}, "edges": []}
    other = {"penalty": 1e-2, "tried": {"penalty": [1e-4, 1e-1]}, "edges": []}
    assert chosen_of({"chosen": {"0": fold, "1": other}}) == "penalty 0.001 to 0.01 (of 0.0001 to 0.1)"
    on_edge = {**fold, "edges": ["penalty"]}
    assert chosen_of({"chosen": {0: on_edge}}) == "penalty 0.001 (of 0.0001 to 0.01, on an edge in 1 folds)"
    assert chosen_of({}) == ""
    row = {
        "settings": {"layers": 1},
        "value": 2.0,
        "interval": [1.0, 3.0],
        "paper": 2.5,
        "chosen": {"0": fold},
    }
    quoted = {"settings": {"method": "other"}, "value": None, "interval": None, "paper": 4.0}
    lines = beside_paper({"rows": [row, quoted]}).splitlines()
    assert lines[0] == "| layers | method | measured (95 % interval) | paper | chosen |"
    assert lines[2] == "| 1 |  | 2.00 (1.00 to 3.00) | 2.50 | penalty 0.001 (of 0.0001 to 0.01) |"
    assert lines[3] == "|  | other |  | 4.00 |  |"


@pytest.mark.parametrize("name", ["002-table1", "002-table2", "002-table3"])
def test_no_committed_choice_lies_on_an_edge(name):
    rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    folds = [fold for row in rows for fold in row.get("chosen", {}).values()]
    assert folds
    for fold in folds:
        assert fold["edges"] == []
        assert all(low < fold[name] < high for name, (low, high) in fold["tried"].items())


def test_landmarks_of_a_second_layer_are_not_lost_to_single_precision(samples, features):
    """A wide kernel, whose rank in float32 is small."""
    rows = features.fit_transform(samples[0]).astype(np.float32)
    kernel = Gaussian(second_gamma(gram(rows), 100.0))
    expected = kernel(rows.astype(np.float64))
    second = NystroemFeatures(n_components=120, random_state=0)
    np.testing.assert_allclose(second_gram(second, kernel, rows), expected, atol=1e-9)
    in_float32 = gram(second.set_params(kernel=kernel).fit_transform(rows))
    assert np.abs(in_float32 - expected).max() > 1e-6
