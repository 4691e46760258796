import json
import sys

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawings import draw_spread, embedding, faults, maps, spread_of
from benchmarks.figures import Models, accuracy, main
from segkit.report.pictures import ERROR_COLOURS, Picture

LARGEST = 150_000


@pytest.fixture
def quick(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["figures", "--quick", "--out", str(tmp_path)])
    main()
    return tmp_path


def test_the_quick_form_writes_every_figure_small_and_a_row_for_each_training(quick):
    pictures = sorted(path.name for path in quick.glob("*.png"))
    assert pictures == ["embedding.png", "maps-nuclei.png", "maps-sets.png", "spread.png"]
    for name in pictures:
        assert (quick / name).stat().st_size < LARGEST
        with Image.open(quick / name) as picture:
            assert min(picture.size) > 100
    rows = json.loads((quick / "figures.json").read_text())["rows"]
    assert [(row["figure"], row["method"]) for row in rows] == [
        ("embedding", "segkit-no-networks"),
        *[(figure, method) for figure in ("nuclei", "sets") for method in ("segkit-no-networks", "forest")],
    ]
    [embedded, *_] = rows
    for panel in embedded["panels"]:
        assert len(panel["xy"]) == len(embedded["label"]) == 40
        assert 0 <= panel["accuracy"] <= 1
    assert sum(embedded["label"]) == 20  # balanced
    result = {"rows": rows}
    assert embedding(result).count("%") == len(embedded["panels"])
    assert f"{rows[1]['mean_iou']:.3f}" in maps(result)


def test_a_method_is_trained_once(monkeypatch):
    trained = []
    monkeypatch.setattr(
        Models, "_train", lambda _, name, method: trained.append((name, method)) or len(trained)
    )
    models = Models(None)
    assert [models("a", "x"), models("a", "x"), models("a", "y"), models("b", "x")] == [1, 1, 2, 3]


@pytest.mark.parametrize("factor", [1, 1000])
def test_accuracy_is_that_of_features_at_any_scale(factor):
    """One class lies to the left, one to the right; one of four pixels is on the wrong side."""
    X = factor * np.array([[-1.0, 0.2], [-1.2, 0.1], [1.0, -0.2], [1.1, 0.3]] * 50)
    y = np.array([0, 0, 1, 1] * 50)
    Z = factor * np.array([[-1.0, 0], [1.0, 0], [1.0, 0], [1.0, 0]])
    assert accuracy(X, Z, y, np.array([0, 0, 1, 1])) == pytest.approx(0.75)


def test_faults_have_a_colour_for_each_kind():
    truth, found = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 0, 1]])
    [background, false, missed, right] = faults(Picture(np.zeros((1, 4, 3), np.float32), truth, found, None))[
        0
    ].tolist()
    assert tuple(false) == ERROR_COLOURS["false"]
    assert tuple(missed) == ERROR_COLOURS["missed"]
    assert min(right) > 200 > 100 > max(background)


def test_a_panel_shows_the_splits_that_all_its_methods_ran():
    scores = {
        ("segkit-no-networks", 1): {(0, "a"): 0.5, (1, "a"): 0.6, (1, "b"): 0.7},
        ("forest", 1): {(1, "a"): 0.4, (1, "b"): 0.3, (2, "a"): 0.1},
        ("forest", 5): {(0, "a"): 0.9},
        ("unet", 1): {(7, "z"): 0.9},  # not drawn
    }
    assert spread_of(scores, 1) == ({"segkit-no-networks": [0.6, 0.7], "forest": [0.4, 0.3]}, 1)
    assert spread_of(scores, 5) == ({"forest": [0.9]}, 1)
    assert spread_of(scores, 15) == ({}, 0)


def test_a_set_without_runs_of_a_size_is_drawn_all_the_same(tmp_path):
    images = {"x": [5, 1, 1, 5, 0.0, 0.0, 0.0], "y": [4, 2, 2, 4, 0.0, 0.0, 0.0]}
    run = {"method": "forest", "n_train": 1, "seed": 0, "images": images}
    draw_spread([{"name": "segmentation-a", "runs": [run]}], tmp_path / "spread.png")
    assert (tmp_path / "spread.png").stat().st_size < LARGEST
