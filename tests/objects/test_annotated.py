"""What is read off annotated objects, against loops and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from segkit.images import UNLABELLED
from segkit.objects.annotated import (
    LEAST_PIXELS,
    MOST_DEPTHS,
    SMALLEST_DRAWN,
    AnnotatedRegions,
    mark_parts,
    splitter_of,
    splitter_of_regions,
)
from segkit.objects.split import Splitter


def disc(shape, row, col, radius):
    rows, cols = np.indices(shape)
    return np.hypot(rows - row, cols - col) <= radius


def picture(*circles, shape=(60, 80)):
    labels = np.zeros(shape, dtype=np.int32)
    for index, circle in enumerate(circles, start=1):
        labels[disc(shape, *circle)] = index
    return labels


def parts_by_hand(labels, ids, n_depths):
    """Depths of pixels of objects by a loop over their outermost pixels, which face something else."""
    n_rows, n_cols = labels.shape
    edge = []
    for row, col in np.argwhere(labels > 0):
        for r, c in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
            if 0 <= r < n_rows and 0 <= c < n_cols and labels[r, c] != labels[row, col]:
                edge.append((row, col))
    distance = np.zeros(labels.shape)
    for row, col in np.argwhere(labels > 0):
        distance[row, col] = 1 + min((np.hypot(row - r, col - c) for r, c in edge), default=0)
    marked = np.zeros(labels.shape, dtype=np.uint8)
    for row, col in np.argwhere(labels > 0):
        largest = max(distance[labels == labels[row, col]])
        marked[row, col] = np.ceil(n_depths * (distance[row, col] / largest))
    marked[ids == UNLABELLED] = UNLABELLED
    return marked, distance


@given(
    arrays(
        np.int32, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.sampled_from([0, 0, 3, 70_000])
    ).filter(np.any),
    st.integers(0, 4),
    st.randoms(),
)
def test_parts_are_those_of_a_loop(labels, least, random):
    ids = np.array([random.choice([0, 1, UNLABELLED]) for _ in range(labels.size)], dtype=np.uint8)
    ids = ids.reshape(labels.shape)
    distance = parts_by_hand(labels, ids, 1)[1]
    largest = [distance[labels == number].max() for number in np.unique(labels[labels > 0])]
    n_depths = min(MOST_DEPTHS, int(np.median(largest)))
    expected = parts_by_hand(labels, ids, n_depths)[0]
    while n_depths > 1 and min(np.count_nonzero(expected == 1 + part) for part in range(n_depths)) < least:
        n_depths -= 1
        expected = parts_by_hand(labels, ids, n_depths)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("segkit.objects.annotated.LEAST_PIXELS", least)
        [found] = mark_parts([labels], [ids])
    np.testing.assert_array_equal(found, expected, strict=True)


def test_the_core_is_the_last_part_whatever_the_rounding():
    """For d = 1 + sqrt(7), 6 d / d is above 6 in floating point."""
    shape = (90, 90)
    for radius in np.arange(6, 40, 0.25):
        labels = disc(shape, 45, 45, radius).astype(np.int32)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("segkit.objects.annotated.LEAST_PIXELS", 0)
            assert mark_parts([labels], [np.zeros(shape, np.uint8)])[0].max() == MOST_DEPTHS


def test_each_object_has_all_parts_whatever_its_size():
    """Also where it touches another one; small objects have fewer."""
    labels = picture((20, 20, 12), (20, 50, 17))
    labels[:, 32:34] = 0
    labels[20, 32] = 1
    labels[20, 33] = 2
    [found] = mark_parts([labels], [np.uint8(labels > 0)])
    for number in (1, 2):
        assert np.unique(found[labels == number]).tolist() == list(range(1, MOST_DEPTHS + 1))
    assert found[20, 20] == found[20, 50] == MOST_DEPTHS
    assert found[20, 32] == found[20, 33] == 1
    # in all images together each part has twenty pixels
    [disc_alone] = mark_parts([picture((20, 20, 6))], [np.zeros((60, 80), np.uint8)])
    assert np.bincount(disc_alone.ravel())[1:].min() >= LEAST_PIXELS
    [small] = mark_parts(
        [
            picture(
                *[(row, 20, 1.5) for row in range(5, 56, 2 * 5)], *[(row, 40, 1.5) for row in range(3, 57, 4)]
            )
        ],
        [np.zeros((60, 80), np.uint8)],
    )
    assert np.unique(small).tolist() == [0, 1, 2]


def test_radius_and_least_area_of_discs():
    instances = [picture((15, 15, 6), (40, 20, 8), (30, 60, 10)), picture((20, 20, 8), (40, 60, 8))]
    splitter = splitter_of(instances)
    areas = np.concatenate([np.bincount(labels.ravel())[1:] for labels in instances])
    assert splitter.radius == pytest.approx(np.sqrt(np.median(areas) / np.pi))
    assert abs(splitter.radius - 8) < 0.2
    assert splitter.least_area == pytest.approx(0.2 * np.median(areas))
    assert (splitter.landscape, splitter.fills_holes) == ("distance+inside", True)
    usual = Splitter("distance+inside", cut_share=0.5)
    assert usual == replace(splitter, radius=10, least_area=0)


def test_the_least_area_follows_small_objects():
    labels = picture(*((5, 4 + 6 * index, 1) for index in range(10)), (40, 20, 12), (40, 60, 12))
    assert splitter_of([labels]).least_area == pytest.approx(1)
    labels = picture(*((6 + 10 * row, 6 + 10 * col, 4) for row in range(5) for col in range(7)), (55, 70, 1))
    assert splitter_of([labels]).least_area == pytest.approx(0.2 * disc((20, 20), 10, 10, 4).sum())


def test_objects_cut_by_the_border_count_only_without_others():
    cut = picture((0, 20, 9), (59, 60, 9))
    assert splitter_of([cut]).radius == pytest.approx(
        np.sqrt(np.median(np.bincount(cut.ravel())[1:]) / np.pi)
    )
    whole = picture((30, 30, 5))
    assert splitter_of([cut, whole, np.zeros((4, 4), np.int32)]) == splitter_of([whole])


def test_an_object_in_several_pieces_is_one():
    labels = picture((15, 15, 6))
    labels[disc(labels.shape, 40, 50, 6)] = 1
    assert splitter_of([labels]).radius == pytest.approx(np.sqrt((labels == 1).sum() / np.pi))


def test_holes_are_kept_if_objects_have_some():
    solid = picture((15, 15, 8), (40, 20, 8), (30, 60, 10))
    ringed = solid.copy()
    ringed[disc(solid.shape, 15, 15, 3)] = 0
    other = solid.copy()
    other[disc(solid.shape, 15, 15, 3)] = 9
    assert splitter_of([solid]).fills_holes
    assert not splitter_of([ringed]).fills_holes
    assert not splitter_of([other]).fills_holes
    assert splitter_of([ringed, *[solid] * 9]).fills_holes


def learn(masks):
    return splitter_of_regions([AnnotatedRegions.of(mask) for mask in masks])


def test_solid_regions_are_split_by_distance():
    ids = (picture((15, 15, 8), (40, 20, 8), (30, 55, 8), (30, 67, 8)) > 0).astype(np.uint8)
    splitter, source = learn([ids, np.zeros_like(ids)])
    assert source == "regions"
    assert splitter.landscape == "distance"
    # the pair that touches is not solid, and its size does not count
    assert splitter.radius == pytest.approx(np.sqrt(disc((60, 80), 15, 15, 8).sum() / np.pi))
    assert splitter.split(ids).max() == 4


def test_vessels_are_not_split():
    rows, cols = np.indices((80, 100))
    ids = (np.abs(rows - 25 - 12 * np.sin(cols / 8)) < 2) | (np.abs(rows - 60 - 10 * np.cos(cols / 9)) < 2)
    ids[:, :3] = ids[:, -3:] = False
    splitter, source = learn([ids.astype(np.uint8)])
    assert (splitter.landscape, source) == ("none", "regions")
    assert splitter.split(ids).max() == 2


@pytest.mark.parametrize(("notch", "landscape"), [(4, "distance"), (8, "none")])
def test_a_solid_region_fills_nine_tenths_of_its_hull(notch, landscape):
    """Squares that fill 0.92 and 0.84 of their hull, by a notch in one side."""
    ids = np.zeros((30, 30), dtype=np.uint8)
    ids[5:25, 5:25] = 1
    ids[5 : 5 + notch, 11:19] = 0
    splitter, source = learn([ids])
    assert (splitter.landscape, source) == (landscape, "regions")


def test_nothing_is_known_without_whole_regions():
    for value in (0, 1, UNLABELLED):
        assert learn([np.full((9, 9), value, np.uint8)]) == (Splitter("none"), "nothing")


def test_regions_beside_unlabelled_pixels_do_not_count():
    ids = (picture((15, 15, 8), (40, 40, 12)) > 0).astype(np.uint8)
    ids[disc(ids.shape, 40, 52, 2)] = UNLABELLED
    splitter, source = learn([ids])
    assert source == "regions"
    assert splitter.radius == pytest.approx(np.sqrt(disc((60, 80), 15, 15, 8).sum() / np.pi))
    ids[15, 23:25] = UNLABELLED
    assert learn([ids])[1] == "strokes"


def test_regions_of_two_classes_that_touch_are_two():
    ids = np.zeros((30, 60), dtype=np.uint8)
    ids[5:25, 5:25], ids[5:25, 25:45] = 1, 2
    splitter, _ = learn([ids])
    assert splitter.radius == pytest.approx(np.sqrt(400 / np.pi))


def test_specks_are_no_typical_objects():
    """Of each class: small objects of another class are none, nor are many small ones beside a large one."""
    ids = (picture((15, 15, 8), (40, 40, 12)) > 0).astype(np.uint8)
    for column in (60, 64, 68):
        ids[2:4, column : column + 2] = 2
    without = learn([ids])
    assert without[0].radius == pytest.approx(np.sqrt(4 / np.pi))  # the median of five
    ids[50, 5] = ids[52, 5] = 1
    assert learn([ids]) == without
    ids[50:58:2, 5:78:2] = 1
    assert learn([ids])[0].radius == pytest.approx(np.sqrt(1 / np.pi))
    large = np.zeros((60, 80), dtype=np.uint8)
    large[:40], large[50, 50] = 1, 1  # the border cuts the only object
    assert learn([large])[1] == "nothing"


def stroke_image(*sizes):
    """A label image with a stroke of the background and one of each size (height, width) of the foreground."""
    ids = np.full((60, 80), UNLABELLED, dtype=np.uint8)
    ids[2:5, 2:70] = 0
    for place, (height, width) in enumerate(sizes):
        top, left = 10 + 12 * (place // 3), 4 + 24 * (place % 3)
        ids[top : top + height, left : left + width] = 1
    return ids


def test_strokes_teach_the_least_area_and_no_size():
    """Touching discs are one region, specks are left out."""
    splitter, source = learn([stroke_image((3, 12), (4, 10)), stroke_image((3, 8), (5, 9))])
    assert (source, splitter.landscape) == ("strokes", "none")
    assert splitter.least_area == SMALLEST_DRAWN * 24
    predicted = (picture((15, 15, 8), (40, 20, 8), (30, 55, 8), (30, 67, 8)) > 0).astype(np.uint8)
    predicted[2:4, 70:75] = predicted[50:53, 70:73] = 1  # 10 and 9 pixels
    assert splitter.split(predicted).max() == 3


def test_a_dab_on_labelled_background_is_no_typical_object():
    ids = stroke_image((3, 12), (4, 10), (4, 12))
    ids[40:50, 10:20], ids[44:46, 14:16] = 0, 1
    assert learn([ids])[1] == "strokes"


def test_whole_images_teach_sizes_beside_strokes():
    whole = (picture((15, 15, 8), (40, 40, 8)) > 0).astype(np.uint8)
    splitter, source = learn([whole, stroke_image((3, 12), (4, 10), (4, 12))])
    assert source == "regions"
    assert splitter == learn([whole])[0]
