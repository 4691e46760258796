import numpy as np
import pytest

from benchmarks.rows import read
from benchmarks.tuned import (
    SETS,
    TABLES,
    WAYS,
    at_once,
    scores_by_set,
    tuned,
    tuned_coverage,
    tuned_seconds,
    tuned_ways,
)
from segkit.cli.train import GAIN_OF_NETWORKS
from segkit.features import TunedBank

# Pixels by truth and prediction: object IoU 0.5 and 0.8.
HALF, MORE = [10, 2, 2, 4], [10, 1, 1, 8]


def row(name, seed, counts, expected=(0.6, 0.4, 0.7), n_train=5, **figures):
    images = {way: {"x": HALF if way == "filters" else counts} for way in WAYS}
    figures = {
        "chosen": "learnt",
        "scales": [1.0],
        "expected": {"x": list(expected)},
        "images": images,
    } | figures
    return {"what": "tuned", "where": {"set": name, "n_train": n_train, "seed": seed}, "figures": figures}


def test_networks_are_trained_once_and_their_maps_computed_once(rng, monkeypatch):
    image = rng.random((40, 44, 3), dtype=np.float32)
    mask = np.zeros((40, 44), dtype=np.uint8)
    mask[:, 20:] = 1
    options = {"weights": "random", "pyramid": (1.0,), "n_steps": 1, "symmetries": False}
    passes, forward = [], TunedBank._forward
    monkeypatch.setattr(TunedBank, "_forward", lambda *given: passes.append(1) or forward(*given))
    with at_once(None) as trained:
        first, second = (TunedBank(**options).fit([image] * 2, [mask] * 2) for _ in range(2))
        n_passes = len(passes)
        maps = [bank.dense(image) for bank in (first, second, trained[0])]
        first.forget()
        second.cross_fitted(0)
    assert len(trained) == 1
    assert len(passes) == n_passes + 3  # of all networks
    np.testing.assert_array_equal(maps[0], maps[1])
    np.testing.assert_array_equal(maps[0], maps[2])
    bare = TunedBank(**options).fit([image] * 2, [mask] * 2)
    np.testing.assert_array_equal(bare.dense(image), maps[0])


def test_tables_compare_means_of_the_splits_of_all():
    rows = [
        row("drive", 0, MORE),
        row(
            "kvasir_seg_256",
            0,
            HALF,
            seconds=dict(zip(("forest", "learnt", "quick", "filters"), (4.0, 6.0, 1.0, 2.0), strict=True)),
        ),
    ]
    assert scores_by_set(rows)["drive"]["recipe", 5][0, "x"] == pytest.approx((10 / 12 + 8 / 10) / 2)
    lines = tuned_ways(rows).splitlines()
    assert "With 1 training image" not in tuned_ways(rows)
    [filters] = [line for line in lines if line.startswith("| the default, without networks")]
    half, more = (10 / 14 + 4 / 8) / 2, (10 / 12 + 8 / 10) / 2
    assert f"| {half:.3f} | {(half - more) / 2:+.3f}" in filters
    assert "| kvasir_seg_256 | 1 | 1.50 | 0.25 | 0.50 |" in tuned_seconds(rows)
    later = dict(zip(("forest", "learnt", "quick", "filters"), (4.0, 4.0, 1.0, 2.0), strict=True))
    lines_of_seconds = tuned_seconds([*rows, row("kvasir_seg_256", 2, HALF, seconds=later)]).splitlines()
    assert lines_of_seconds[2:] == ["| kvasir_seg_256 | 1 | 1.00 | 0.25 | 0.50 |"]
    coverage = tuned_coverage(rows).splitlines()
    assert coverage[2] == "| drive | 1 | 0.600 | 0.800 | 0 % |"
    assert coverage[3] == "| kvasir_seg_256 | 1 | 0.600 | 0.500 | 100 % |"
    assert coverage[4].endswith("| 50 % |")
    longer = row("drive", 0, HALF)  # of other networks: it stands apart
    longer["where"]["config"] = "tuned-long"
    assert tuned_ways([*rows, longer]) == tuned_ways(rows)
    assert tuned_coverage([*rows, longer]) == tuned_coverage(rows)
    of_drive = scores_by_set([*rows, longer])["drive"]
    assert (of_drive["tuned-long", 5], of_drive["recipe", 5]) == ({(0, "x"): half}, {(0, "x"): more})
    assert tuned([row("drive", 0, MORE)]) == ""  # two networks have no run of an image x


def test_with_two_images_or_more_the_recipe_keeps_to_the_default_where_networks_fail():
    """On no set is it more than 0.005 below the default, for held-out images choose between both."""
    by_set = scores_by_set(read("tuned"))
    assert set(by_set) == set(SETS)
    for name, scores in by_set.items():
        assert ("recipe", 5) in scores
        for (way, n_train), found in scores.items():
            if way == "recipe" and n_train > 1:
                recipe, default = (np.mean(list(of.values())) for of in (found, scores["filters", n_train]))
                assert recipe > default - 0.005, name


def test_the_gain_that_training_tells_is_that_of_the_table():
    [_, of_five] = [line for line in tuned(read("tuned")).splitlines() if "mean of 10 sets" in line]
    trained, _, default = map(float, of_five.split(" | ")[1:4])
    assert f"from {default:.2f} to {trained:.2f}" == GAIN_OF_NETWORKS


def test_every_table_has_rows():
    rows = read("tuned")
    assert all(table(rows) for table in TABLES.values())
