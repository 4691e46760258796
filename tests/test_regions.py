import numpy as np
import pytest

from segkit.regions import least_areas, small_regions


def mask(*squares, size=60):
    """Class 1 squares (top, left, side) on class 0."""
    ids = np.zeros((size, size), dtype=np.uint8)
    for top, left, side in squares:
        ids[top : top + side, left : left + side] = 1
    return ids


def test_half_of_the_smallest_object_shrunk_by_the_number_of_images():
    masks = [mask((10, 10, 5), (30, 30, 4)), mask((20, 20, 6))]
    assert least_areas(masks, 2, 0.5)[1] == pytest.approx(0.5 * (1 - 1 / 2) * 16)
    assert least_areas(masks + 2 * [mask((20, 20, 8))], 2, 1.0)[1] == pytest.approx((1 - 1 / 4) * 16)


def test_holes_are_background_that_no_border_cuts():
    ring = mask((10, 10, 20))
    ring[15:18, 15:18] = 0
    assert least_areas([ring, ring], 2, 1.0)[0] == pytest.approx(9 / 2)


def test_regions_cut_by_border_or_unlabelled_pixels_do_not_count_beside_whole_ones():
    cut = mask((0, 0, 2), (20, 20, 6))
    assert least_areas([cut, cut], 2, 1.0)[1] == 18
    cut = mask((10, 10, 2), (30, 30, 6))
    cut[12, 10] = 255
    assert least_areas([cut, cut], 2, 1.0)[1] == 18


def test_regions_that_are_all_cut_count():
    assert least_areas([mask((0, 0, 4))] * 2, 2, 1.0)[1] == 8


def test_one_image_tells_nothing_and_a_class_without_regions_neither():
    assert not least_areas([mask((10, 10, 4))], 2, 1.0).any()
    assert least_areas([mask((10, 10, 4))] * 2, 3, 1.0)[2] == 0


def test_at_most_a_hundredth_of_the_smallest_image():
    masks = [mask((10, 10, 40)), mask((30, 30, 60), size=100)]
    np.testing.assert_array_equal(least_areas(masks, 2, 1.0), [36, 36])


def test_small_regions_are_those_of_fewer_pixels():
    ids = mask((5, 5, 2), (10, 10, 3), (20, 20, 10)).astype(int)
    ids[24, 24:27] = 0
    small = small_regions(ids, np.array([4.0, 9.0]))
    expected = np.zeros_like(small)
    expected[5:7, 5:7] = True
    expected[24, 24:27] = True
    np.testing.assert_array_equal(small, expected)


def test_pixels_that_touch_by_a_corner_are_two_regions():
    ids = np.zeros((8, 8), dtype=int)
    ids[3, 3] = ids[4, 4] = 1
    assert small_regions(ids, np.array([0.0, 2.0])).sum() == 2


def test_turned_regions_are_small_where_they_were():
    ids = (np.random.default_rng(0).random((40, 50)) < 0.4).astype(int)
    least = np.array([3.0, 4.0])
    np.testing.assert_array_equal(small_regions(np.rot90(ids), least), np.rot90(small_regions(ids, least)))
