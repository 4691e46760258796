"""Fixed ways of telling objects apart."""

import numpy as np
import pytest

from segkit.errors import InputError
from segkit.objects.watershed import connected_components, fixed_watershed


def touching_discs(distance):
    """Two discs of radius 8, their centres some pixels apart."""
    rows, cols = np.indices((24, 48))
    return (np.hypot(rows - 12, cols - 12) < 8) | (np.hypot(rows - 12, cols - 12 - distance) < 8)


def test_components_hang_together_by_sides():
    labels = connected_components([[1, 1, 0], [0, 0, 1], [0, 0, 2]])
    assert labels.dtype == np.int32
    assert labels.tolist() == [[1, 1, 0], [0, 0, 2], [0, 0, 2]]


def test_the_watershed_tells_touching_discs_apart():
    mask = touching_discs(13)
    assert connected_components(mask).max() == 1
    labels = fixed_watershed(mask, 4)
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels > 0, mask)
    areas = np.bincount(labels.ravel())[1:]
    assert areas.size == 2
    assert abs(areas[0] - areas[1]) < 20


def test_seeds_further_apart_are_fewer():
    assert fixed_watershed(touching_discs(13), 20).max() == 1
    assert fixed_watershed(touching_discs(13), 0).max() >= 2
    assert fixed_watershed(np.zeros((5, 6), dtype=bool), 3).max() == 0


def test_bad_input_is_refused():
    with pytest.raises(InputError, match=r"mask of shape \(3,\): give \(H, W\)"):
        connected_components([1, 0, 1])
    with pytest.raises(InputError, match="seeds -1 pixels apart: give a number from 0"):
        fixed_watershed(np.ones((3, 3)), -1)
