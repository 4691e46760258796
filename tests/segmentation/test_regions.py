import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from segkit.images import UNLABELLED
from segkit.segmentation.regions import least_areas, merge_small_regions, merge_small_regions_by_strips


def mask(*squares, size=60):
    """Class 1 squares (top, left, side) on class 0."""
    ids = np.zeros((size, size), dtype=np.uint8)
    for top, left, side in squares:
        ids[top : top + side, left : left + side] = 1
    return ids


def test_half_of_the_smallest_object_shrunk_by_the_number_of_images():
    masks = [mask((10, 10, 5), (30, 30, 4)), mask((20, 20, 6))]
    assert least_areas(masks, 2, 0.5)[1, 0] == pytest.approx(0.5 * (1 - 1 / 2) * 16)
    assert least_areas(masks + 2 * [mask((20, 20, 8))], 2, 1.0)[1, 0] == pytest.approx((1 - 1 / 4) * 16)


def test_only_images_that_hold_the_class_count():
    masks = [mask((10, 10, 4)), mask((20, 20, 5)), mask(), mask()]
    assert least_areas(masks, 2, 1.0)[1, 0] == 8
    assert least_areas([mask((10, 10, 4)), mask()], 2, 1.0)[1].tolist() == [0, 0]


def test_holes_are_background_that_no_border_cuts():
    ring = mask((10, 10, 20))
    ring[15:18, 15:18] = 0
    assert least_areas([ring, ring], 2, 1.0)[0, 0] == pytest.approx(9 / 2)


def test_regions_at_the_border_have_a_size_of_their_own():
    masks = [mask((0, 0, 2), (20, 20, 5))] * 2
    assert least_areas(masks, 2, 1.0)[1].tolist() == [12.5, 2]


@pytest.mark.parametrize(("row", "col"), [(9, 10), (12, 10), (10, 9), (10, 12)])
def test_regions_beside_unlabelled_pixels_do_not_count(row, col):
    ids = mask((10, 10, 2), (30, 30, 5))
    ids[row, col] = 255
    assert least_areas([ids, ids], 2, 1.0)[1, 0] == 12.5


def test_scribbles_tell_nothing():
    ids = np.full((50, 50), 255, dtype=np.uint8)
    ids[10, 5:45] = 0
    ids[30, 5:45] = 1
    assert not least_areas([ids, ids], 2, 1.0).any()


def test_scribbled_images_make_the_smallest_region_no_surer():
    ids = np.full((60, 60), 255, dtype=np.uint8)
    ids[10, 5:45] = 0
    ids[30, 5:45] = 1
    whole = mask((10, 10, 4))
    assert not least_areas([whole, *[ids] * 9], 2, 1.0).any()
    np.testing.assert_array_equal(least_areas([whole] * 2 + [ids], 2, 1.0), least_areas([whole] * 2, 2, 1.0))


def test_the_other_kind_stands_in():
    assert least_areas([mask((0, 0, 4))] * 2, 2, 1.0)[1].tolist() == [8, 8]
    assert least_areas([mask((10, 10, 4))] * 2, 2, 1.0)[1].tolist() == [8, 8]
    # objects without holes: small holes are none
    assert least_areas([mask((10, 10, 4))] * 2, 2, 1.0)[0].tolist() == [36, 36]


def test_one_image_tells_nothing_and_a_class_without_regions_neither():
    assert not least_areas([mask((10, 10, 4))], 2, 1.0).any()
    assert not least_areas([mask((10, 10, 4))] * 2, 3, 1.0)[2].any()


def test_at_most_a_hundredth_of_the_smallest_image():
    masks = [mask((10, 10, 40)), mask((30, 30, 60), size=100)]
    np.testing.assert_array_equal(least_areas(masks, 2, 1.0), np.full((2, 2), 36))


def merged(ids, *least):
    return merge_small_regions(np.asarray(ids, dtype=int), np.array(least, dtype=float))


def test_small_objects_are_dropped_and_small_holes_filled():
    ids = mask((5, 5, 2), (10, 10, 3), (20, 20, 10))
    ids[24, 24:27] = 0
    expected = mask((10, 10, 3), (20, 20, 10))
    np.testing.assert_array_equal(merged(ids, [4, 4], [9, 9]), expected)


def test_a_small_object_goes_with_its_hole():
    ids = mask((20, 20, 5))
    ids[22, 22] = 0
    assert not merged(ids, [30, 30], [30, 30]).any()


def test_each_kind_has_its_limit():
    ids = mask((0, 0, 3), (30, 30, 3))
    np.testing.assert_array_equal(merged(ids, [0, 0], [10, 0]), mask((0, 0, 3)))
    np.testing.assert_array_equal(merged(ids, [0, 0], [0, 10]), mask((30, 30, 3)))


def test_pixels_that_touch_by_a_corner_are_two_regions():
    ids = np.zeros((40, 40), dtype=int)
    ids[3, 3] = ids[4, 4] = 1
    assert not merged(ids, [0, 0], [2, 2]).any()


def test_an_island_has_the_class_around_it():
    ids = np.zeros((60, 60), dtype=int)
    ids[:, 30:] = 2
    ids[20:23, 10:13] = 1
    expected = np.where(ids == 1, 0, ids)
    np.testing.assert_array_equal(merged(ids, [0, 0], [20, 20], [0, 0]), expected)


def test_between_two_classes_as_near_it_goes_to_the_lower():
    ids = np.zeros((60, 61), dtype=int)
    ids[:, 31:] = 2
    ids[10:13, 30] = 1
    ids[10:13, 31] = 1
    result = merged(ids, [0, 0], [20, 20], [0, 0])
    assert (result[10:13, 30] == 0).all()
    assert (result[10:13, 31] == 2).all()
    ids[10:13, 29:32] = 1
    assert (merged(ids, [0, 0], [20, 20], [0, 0])[10:13, 30] == 0).all()


def test_no_region_of_more_than_a_hundredth_of_the_image_goes():
    ids = np.zeros((40, 40), dtype=int)
    ids[10:14, 10:14] = 1
    np.testing.assert_array_equal(merged(ids, [0, 0], [500, 500]), ids)
    ids[13, 13] = 0
    assert not merged(ids, [0, 0], [500, 500]).any()


@pytest.mark.parametrize("size", [1, 40])
def test_small_pictures_keep_their_class(size):
    ids = np.ones((size, size), dtype=int)
    np.testing.assert_array_equal(merged(ids, [2621, 2621], [2621, 2621]), ids)


masks_of_two = arrays(np.uint8, (2, 20, 30), elements=st.integers(0, 2))


@given(masks_of_two)
def test_annotated_regions_are_never_too_small(masks):
    least = least_areas(list(masks), 3, 1.0)
    for ids in masks:
        np.testing.assert_array_equal(merge_small_regions(ids, least), ids)


@given(masks_of_two, st.integers(0, 3))
def test_turned_label_maps_give_the_turned_result(masks, turns):
    least = np.array([[3.0, 2.0], [4.0, 4.0], [1.5, 5.0]])
    result = merge_small_regions(masks[0], least)
    np.testing.assert_array_equal(
        merge_small_regions(np.rot90(masks[0], turns).T, least), np.rot90(result, turns).T
    )


@given(masks_of_two)
def test_a_second_pass_finds_nothing(masks):
    least = np.full((3, 2), 4.0)
    result = merge_small_regions(masks[0], least)
    np.testing.assert_array_equal(merge_small_regions(result, least), result)


@pytest.mark.parametrize(("n_rows", "n_classes"), [(1, 4), (7, 2), (23, 4), (100, 2)])
def test_by_strips_the_result_is_the_same(n_rows, n_classes):
    rng = np.random.default_rng(n_rows)
    for grain in (1, 2, 4):
        noise = ndimage.gaussian_filter(rng.standard_normal((n_classes, 61, 53)), (0, grain, grain))
        ids = noise.argmax(axis=0).astype(np.uint8)
        least = rng.uniform(2, 30, (n_classes, 2))
        out = np.empty_like(ids)
        merge_small_regions_by_strips(ids, out, least, n_rows)
        np.testing.assert_array_equal(out, merge_small_regions(ids.astype(np.intp), least))


def test_regions_that_are_all_small_stay_in_strips():
    ids = (np.indices((40, 40)).sum(axis=0) % 2).astype(np.uint8)
    out = np.empty_like(ids)
    merge_small_regions_by_strips(ids, out, np.full((2, 2), 5.0), 9)
    np.testing.assert_array_equal(out, ids)


def test_parts_that_failed_are_no_class_and_stay():
    ids = np.zeros((60, 40), dtype=np.uint8)
    ids[10:12, 10:12] = 1
    ids[20:22, 20:22] = UNLABELLED
    out = np.empty_like(ids)
    merge_small_regions_by_strips(ids, out, np.full((2, 2), 10.0), 8)
    assert (out[10:12, 10:12] == 0).all()
    assert (out[20:22, 20:22] == UNLABELLED).all()


@pytest.mark.parametrize("n_rows", [1, 5, 60])
def test_a_region_amid_parts_that_failed_goes_to_the_nearest_class_beyond_them(n_rows):
    """Strips beside it hold no class: farther ones are read."""
    ids = np.zeros((60, 40), dtype=np.uint8)
    ids[40:] = 2
    ids[15:40] = UNLABELLED
    ids[34:36, 20:22] = 1
    out = np.empty_like(ids)
    merge_small_regions_by_strips(ids, out, np.array([[0.0, 0], [10, 10], [0, 0]]), n_rows)
    np.testing.assert_array_equal(out, np.where(ids == 1, 2, ids))


@pytest.mark.parametrize("n_rows", [3, 60])
def test_limits_by_strips_are_those_of_whole_and_of_cut_regions(n_rows):
    """A region just as large as its limit stays; the border of a strip is none of the image."""
    ids = mask((10, 10, 3), (20, 20, 4), (0, 30, 3), (40, 0, 4), (57, 40, 3), (30, 57, 3))
    for least, gone in (((9, 9), 0), ((10, 0), 9), ((0, 10), 27), ((10, 10), 36), ((17, 17), 68)):
        out = np.empty_like(ids)
        merge_small_regions_by_strips(ids, out, np.array([[0.0, 0.0], least]), n_rows)
        assert ids.sum() - out.sum() == gone
        np.testing.assert_array_equal(
            out, merge_small_regions(ids.astype(int), np.array([[0.0, 0.0], least]))
        )
