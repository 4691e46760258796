import numpy as np
import pytest

from benchmarks.comparisons import spread_of
from benchmarks.figures import accuracy, faults
from segkit.report.pictures import ERROR_COLOURS, Picture


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
