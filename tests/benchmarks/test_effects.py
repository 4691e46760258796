import itertools

import pytest

from benchmarks.attribution import EFFECTS, FACTORS, FINE, attribution, effect_of, scores_of, whole_seeds

# What each level adds to the mean IoU, thresholds with five training images half as much.
WORTH = {
    "features": dict(zip(FACTORS["features"], (0.0, -0.01, 0.02, 0.03, 0.04, 0.06), strict=True)),
    "classifier": {"forest": 0.0, "linear": 0.05, "mixture": 0.07},
    "centred": {False: 0.0, True: 0.03},
    "threshold": {"zero": 0.0, "adaptive": 0.02},
}
IMAGES = {"a": {"x": 0.3, "y": 0.5}, "b": {"x": 0.4, "y": 0.2, "z": 0.6}}


def worth(levels, n_train=1):
    """Return a sum of what the levels add, where the mixture equals the linear SVM on coarse features."""
    parts = {factor: WORTH[factor][levels[factor]] for factor in FACTORS}
    if levels["classifier"] == "mixture" and levels["features"] not in FINE:
        parts["classifier"] = WORTH["classifier"]["linear"]
    if n_train == 5:
        parts["threshold"] /= 2
    return sum(parts.values())


def rows_of(seeds=(0, 1), sizes=(1, 5)):
    rows = []
    for seed, name, n_train, *levels in itertools.product(seeds, IMAGES, sizes, *FACTORS.values()):
        factors = dict(zip(FACTORS, levels, strict=True))
        images = {image: base + worth(factors, n_train) for image, base in IMAGES[name].items()}
        rows.append({"seed": seed, "set": name, "n_train": n_train, **factors, "images": images})
    return rows


def table_of(rows):
    return attribution([{"what": "attribution", "where": {}, "figures": row} for row in rows])


def effect_titled(title):
    [effect] = (effect for effect in EFFECTS if effect.title == title)
    return effect


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("centring of each image, less none", 0.03),
        ("adaptive threshold, less zero", 0.02),
        ("linear SVM, less the forest", 0.05),
        ("mixture, less the linear SVM", 0.02),
        # on coarse features the mixture lacks a third of its 0.02 over the three classifiers
        ("SqueezeNet, less the forest's filters", 0.03 - 0.02 / 3),
        ("scattering, less the forest's filters", -0.01),
    ],
)
def test_effects_of_sums_are_their_terms(title, expected):
    found = effect_of(scores_of(rows_of(), 1), effect_titled(title))
    assert found.difference == pytest.approx(expected)
    assert found.interval == pytest.approx((expected, expected))
    assert found.n_images == 5


def test_sets_count_alike_whatever_their_numbers_of_images():
    rows = rows_of(seeds=[0])
    for row in rows:
        if row["set"] == "b" and row["centred"]:
            row["images"] = {image: score + 0.1 for image, score in row["images"].items()}
    found = effect_of(scores_of(rows, 1), effect_titled("centring of each image, less none"))
    assert found.difference == pytest.approx(0.03 + 0.1 / 2)


def test_an_interval_is_over_images():
    rows = rows_of(seeds=[0])
    for row in rows:
        if row["set"] == "a" and row["centred"]:
            row["images"]["x"] += 0.1
    low, high = effect_of(scores_of(rows, 1), effect_titled("centring of each image, less none")).interval
    assert low == pytest.approx(0.03)
    # a quarter of the resamples of set a, one of two, is x twice
    assert high == pytest.approx(0.03 + 0.1 / 2)


def test_a_cut_seed_of_a_set_is_left_out():
    rows = rows_of()
    cut = [row for row in rows if (row["seed"], row["set"], row["features"]) != (1, "b", "all")]
    assert whole_seeds(rows) == {"a": [0, 1], "b": [0, 1]}
    assert whole_seeds(cut) == {"a": [0, 1], "b": [0]}
    whole = [row for row in rows if (row["seed"], row["set"]) != (1, "b")]
    assert table_of(cut) == table_of(whole)


def test_the_table_has_every_effect():
    lines = table_of(rows_of()).splitlines()
    assert lines[0] == "| main effect on mean IoU | 1 training image | 5 training images |"
    assert (
        "| adaptive threshold, less zero | +0.020 (+0.020 to +0.020) | +0.010 (+0.010 to +0.010) |" in lines
    )
    assert sum(line.startswith("| ") for line in lines) == 2 + len(EFFECTS)
    assert lines[-1] == "Sets have equal weight. Splits: a 2, b 2."
