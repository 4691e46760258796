"""What was checked by hand wins over what was found, and lines cut objects."""

import numpy as np
import pytest
from scipy import ndimage

from segkit.objects.correct import cut, pixels_of_line, with_checked

NONE9 = np.zeros((9, 12), dtype=np.int32)

NONE = np.zeros((20, 30), dtype=np.int32)


def boxes(*corners):
    """Number boxes by (top, left, bottom, right)."""
    labels = NONE.copy()
    for number, (top, left, bottom, right) in enumerate(corners, start=1):
        labels[top:bottom, left:right] = number
    return labels


def cut_along(mask, line):
    return cut(mask, pixels_of_line(line, mask.shape))


def test_what_nobody_touched_stays():
    found = boxes((2, 2, 8, 8), (2, 8, 8, 14))
    labels, checked = with_checked(found, NONE, NONE > 0)
    np.testing.assert_array_equal(labels, found)
    assert checked == ()


def test_a_checked_object_takes_the_place_of_what_it_covers():
    """The rim that sticks out of a checked object is no object; the larger rest of another one is."""
    found, checked = boxes((2, 2, 9, 9), (2, 12, 9, 26)), boxes((3, 3, 8, 8), (3, 12, 8, 17))
    labels, numbers = with_checked(found, checked, NONE > 0)
    expected = boxes((2, 17, 9, 26), (3, 3, 8, 8), (3, 12, 8, 17))
    expected[found == 2] = np.where(checked[found == 2] > 0, 3, 1)
    np.testing.assert_array_equal(labels > 0, expected > 0)
    assert labels[5, 5] in numbers
    assert labels[5, 14] in numbers
    assert labels[5, 20] not in numbers
    assert labels.max() == 3
    assert labels[2, 2] == 0


def test_two_checked_objects_that_touch_stay_two():
    found, checked = boxes((2, 2, 9, 16)), boxes((2, 2, 9, 9), (2, 9, 9, 16))
    labels, numbers = with_checked(found, checked * 7, NONE > 0)
    np.testing.assert_array_equal(labels, checked)
    assert numbers == (1, 2)


@pytest.mark.parametrize(("least_area", "n_left"), [(0, 2), (20, 1)])
def test_background_takes_objects_apart(least_area, n_left):
    found, line = boxes((2, 2, 9, 16)), NONE > 0
    line[:, 4] = True
    labels, numbers = with_checked(found, NONE, line, least_area=least_area)
    assert labels.max() == n_left
    assert not labels[line].any()
    assert numbers == ()


def test_a_line_cuts_an_object_in_two():
    mask = boxes((2, 2, 9, 16)) > 0
    parts = cut_along(mask, [(0, 8), (12, 8)])
    assert parts.max() == 2
    np.testing.assert_array_equal(parts > 0, mask)
    assert (parts[4, 3], parts[4, 14]) == (1, 2)


@pytest.mark.parametrize("line", [[(0, 2), (18, 20)], [(18, 2), (0, 20)], [(0, 2), (6, 9), (12, 20)]])
def test_a_slanted_line_cuts(line):
    mask = boxes((0, 0, 20, 30)) > 0
    line = (
        [(-5, line[0][1] - 5), *line, (25, line[-1][1] + 5)]
        if line[0][0] < 9
        else [(25, line[0][1] - 7), *line, (-5, line[-1][1] + 5)]
    )
    assert cut_along(mask, line).max() == 2


def test_an_object_of_which_half_is_checked_makes_room():
    found, half = boxes((2, 2, 8, 8)), boxes((2, 2, 8, 5))
    labels, _ = with_checked(found, half, NONE > 0)
    np.testing.assert_array_equal(labels, half)
    less = half.copy()
    less[2, 2] = 0
    assert with_checked(found, less, NONE > 0, least_area=2)[0].max() == 2


def test_parts_hang_together(rng):
    """Also where the line runs along a part for a while."""
    for _ in range(200):
        mask = ndimage.gaussian_filter(rng.standard_normal((20, 30)), 2) > 0
        line = rng.uniform(-3, 33, (4, 2)).tolist()
        pieces = ndimage.label(mask)[0]
        mask = pieces == 1
        parts = cut_along(mask, line)
        np.testing.assert_array_equal(parts > 0, mask)
        assert all(ndimage.label(parts == number)[1] == 1 for number in range(1, parts.max() + 1))


def test_each_piece_of_a_checked_object_is_one():
    """As when a stroke of the background went through it."""
    pieces = boxes((2, 2, 9, 6), (2, 8, 9, 16))
    labels, numbers = with_checked(NONE, (pieces > 0).astype(np.int32), NONE > 0)
    np.testing.assert_array_equal(labels, pieces)
    assert numbers == (1, 2)


def test_a_line_that_ends_inside_cuts_nothing():
    mask = boxes((2, 2, 9, 16)) > 0
    np.testing.assert_array_equal(cut_along(mask, [(0, 8), (6, 8)]), mask.astype(int))
    np.testing.assert_array_equal(cut_along(mask, [(0, 25), (12, 25)]), mask.astype(int))


def test_labelled_foreground_joins_what_it_touches_or_is_an_object():
    found = np.zeros((9, 12), dtype=np.int32)
    found[1:4, 1:4] = 1
    found[6:8, 6:8] = 2
    foreground = np.zeros(found.shape, dtype=bool)
    foreground[2, 3:6] = True  # from the first object to the right
    foreground[1:4, 9:11] = True  # far from all
    foreground[8, 0] = True  # too small for one
    labels, numbers = with_checked(found, NONE9, NONE9 > 0, is_foreground=foreground, least_area=3)
    assert numbers == ()
    assert len(np.unique(labels)) == 4
    np.testing.assert_array_equal(
        labels == labels[1, 1],
        (found == 1) | (foreground & (np.arange(12) < 6) & (np.arange(9) == 2)[:, None]),
    )
    np.testing.assert_array_equal(labels == labels[2, 9], foreground & (np.arange(12) > 8))
    np.testing.assert_array_equal(labels == labels[6, 6], found == 2)
    assert labels[8, 0] == 0


def test_a_checked_object_does_not_grow_by_foreground_beside_it():
    checked = np.zeros((9, 12), dtype=np.int32)
    checked[2:6, 2:6] = 4
    foreground = np.zeros(checked.shape, dtype=bool)
    foreground[2:6, 2:9] = True
    labels, numbers = with_checked(NONE9, checked, NONE9 > 0, is_foreground=foreground)
    np.testing.assert_array_equal(np.isin(labels, numbers), checked > 0)
    np.testing.assert_array_equal(labels > 0, foreground)
    assert len(np.unique(labels)) == 3
