"""Objects linked over planes and time: by hand, by a naive search, and by bodies whose volume is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from segkit.errors import ConfigError, InputError
from segkit.evaluation.object_scores import best_pairs
from segkit.images.axes import Layout
from segkit.objects.link import LEAST_IOU, link, link_stack, measure_tracks, measure_volumes

SHAPE = (40, 60)


def discs(*circles, shape=SHAPE):
    """Discs (row, column, radius) by their numbers."""
    rows, cols = np.indices(shape)
    labels = np.zeros(shape, dtype=np.int32)
    for number, (row, col, radius) in enumerate(circles, start=1):
        labels[np.hypot(rows - row, cols - col) <= radius] = number
    return labels


def number_at(page, row, col):
    return int(page[row, col])


def random_labels(seed, shape=(12, 14)):
    rng = np.random.default_rng(seed)
    return np.kron(rng.integers(0, 5, (4, 7)), np.ones((3, 2), dtype=int)).astype(np.int32)[
        : shape[0], : shape[1]
    ]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(["planes", "time"]))
def test_pages_stay_the_same_but_for_the_numbers(seed, by):
    pages = [random_labels(seed + place) for place in range(3)]
    linked = link(pages, by)
    for page, new in zip(pages, linked, strict=True):
        pairs = np.unique(np.stack([page.ravel(), new.ravel()]), axis=1)
        assert pairs.shape[1] == np.unique(page).size == np.unique(new).size
        np.testing.assert_array_equal(page == 0, new == 0)
    numbers = np.unique(np.concatenate([new.ravel() for new in linked]))
    np.testing.assert_array_equal(numbers[numbers > 0], np.arange(1, 1 + np.count_nonzero(numbers)))


def best_sum(able, cost):
    """Least sum of costs, 1 for each row without a partner, by a dense assignment."""
    size = len(cost)
    padded = np.hstack([np.where(able, cost, 10), np.ones((size, size))])
    return padded[linear_sum_assignment(padded)].sum()


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_linked_planes_overlap_and_no_better_links_exist(seed):
    before, now = random_labels(seed), random_labels(seed + 1)
    iou = np.array(
        [
            [
                np.sum((before == a) & (now == b)) / np.sum((before == a) | (now == b))
                for b in np.unique(now[now > 0])
            ]
            for a in np.unique(before[before > 0])
        ]
    ).reshape(np.unique(before[before > 0]).size, -1)
    first, second = link([before, now], "planes")
    common = np.intersect1d(first[first > 0], second[second > 0])
    found = [np.sum((first == k) & (second == k)) / np.sum((first == k) | (second == k)) for k in common]
    assert all(value >= LEAST_IOU for value in found)
    assert len(iou) - sum(found) == pytest.approx(best_sum(iou >= LEAST_IOU, 1 - iou))


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6))
def test_best_pairs_are_those_of_a_dense_assignment(seed, n_rows, n_columns):
    rng = np.random.default_rng(seed)
    able, cost = rng.random((n_rows, n_columns)) < 0.5, rng.random((n_rows, n_columns))
    one, other = np.nonzero(able)
    chosen = best_pairs(one, other, cost[able])
    assert np.unique(one[chosen]).size == np.unique(other[chosen]).size == chosen.size
    alone = n_rows - chosen.size
    assert cost[able][chosen].sum() + alone == pytest.approx(best_sum(able, cost))


def test_a_body_that_shrinks_is_one_and_the_next_one_is_new():
    pages = [discs((20, 15, r)) for r in (4, 6, 8, 6, 4)] + [np.zeros(SHAPE, int), discs((20, 15, 4))]
    numbers = [np.unique(page).tolist() for page in link(pages, "planes")]
    assert numbers == [[0, 1]] * 5 + [[0], [0, 2]]


def test_planes_that_hardly_overlap_are_two_bodies():
    """Time is more patient: the object has moved."""
    pages = [discs((20, 15, 6)), discs((20, 23, 6))]
    assert [page.max() for page in link(pages, "planes")] == [1, 2]
    assert [page.max() for page in link(pages, "time")] == [1, 1]


def test_objects_that_move_keep_their_numbers():
    pages = [discs((8, 8 + 9 * t, 5), (30, 50 - 9 * t, 5)) for t in range(5)]
    for time, page in enumerate(link(pages, "time")):
        assert number_at(page, 8, 8 + 9 * time) == 1
        assert number_at(page, 30, 50 - 9 * time) == 2


def bars(*columns, length=30):
    """Bars of 2 x length pixels, side by side."""
    labels = np.zeros(SHAPE, dtype=np.int32)
    for number, column in enumerate(columns, start=1):
        labels[5 : 5 + length, column : column + 2] = number
    return labels


def test_objects_move_by_less_than_the_diameter_of_a_disc_of_their_area():
    """Bars of 60 pixels, a disc of which has a diameter of 8.7, that do not overlap."""
    for step, number in ((8, 1), (9, 2)):
        assert link([bars(10), bars(10 + step)], "time")[1].max() == number


def test_the_diameter_is_that_of_the_mean_area():
    """14 and 30 rows of 2 pixels: 44 on average, whose disc has a diameter of 7.5; each way round."""
    short = np.roll(bars(20, length=14), 8, axis=0)
    for step, number in ((7, 1), (8, 2)):
        pages = [short, bars(20 + step)]
        assert link(pages, "time")[1].max() == number
        assert link(pages[::-1], "time")[1].max() == number


def test_objects_that_overlap_are_one_however_far_their_centres_are():
    first, second = np.zeros(SHAPE, int), np.zeros(SHAPE, int)
    first[10, :31], second[10, 30:] = 1, 1
    assert link([first, second], "time")[1].max() == 1


def test_overlap_decides_against_a_nearer_centre():
    """The object moves to the right by 2; two pieces around it, which are one object, have their centre nearer by."""
    first, second = np.zeros(SHAPE, dtype=int), np.zeros(SHAPE, dtype=int)
    first[15:26, 20:31] = 1
    second[15:26, 22:33] = 7
    second[15:26, 14:19] = second[15:26, 33:38] = 3
    now = link([first, second], "time")[1]
    assert (number_at(now, 20, 27), number_at(now, 20, 35)) == (1, 2)


def test_a_cell_that_stays_keeps_its_number_beside_one_that_goes_and_one_that_comes():
    """Two links over a neighbour each are no better than one in place."""
    for by in ("time", "planes"):
        pages = [discs((20, 10, 5), (20, 19, 5)), discs((20, 19, 5), (20, 28, 5))]
        now = link(pages, by)[1]
        assert (number_at(now, 20, 19), number_at(now, 20, 28)) == (2, 3)


def test_one_large_object_does_not_slow_down_many_small_ones():
    labels = np.arange(1, 2501).reshape(50, 50).repeat(6, 0).repeat(6, 1)
    labels[::6] = labels[:, ::6] = 0
    labels[:100, :290] = 9999
    page = link([labels, np.roll(labels, 1, axis=0)], "time")[1]
    assert page.max() == np.unique(labels[labels > 0]).size


def test_objects_of_different_classes_are_not_linked():
    disc = discs((20, 15, 6))
    linked = link([disc, disc, disc], "planes", classes=[disc, 2 * disc, 2 * disc])
    assert [page.max() for page in linked] == [1, 2, 2]


def test_numbers_may_be_any():
    pages = [discs((20, 15, 6)) * 70000, discs((20, 15, 6)) * 3]
    assert [np.unique(page).tolist() for page in link(pages, "planes")] == [[0, 1], [0, 1]]


def test_pages_without_objects():
    nothing = np.zeros(SHAPE, dtype=int)
    for by in ("planes", "time"):
        assert [page.max() for page in link([nothing, discs((20, 15, 6)), nothing], by)] == [0, 1, 0]
        assert link([], by) == []


def test_axes_beside_that_of_the_links_are_kept_apart():
    """Two times of two planes, in the order of the file; the other axis gives other links."""
    here, there = discs((20, 15, 6)), discs((20, 45, 6))
    pages = [here, here, there, there]

    def rows_of(layout, by):
        return [
            (row.pages.tolist(), [int(page.max()) for page in row.labels], row.place)
            for row in link_stack(pages, layout, by, name="a.tif")
        ]

    assert rows_of(Layout("TZ", (2, 2)), "planes") == [
        ([0, 1], [1, 1], {"time": 1}),
        ([2, 3], [2, 2], {"time": 2}),
    ]
    assert rows_of(Layout("TZ", (2, 2)), "time") == [
        ([0, 2], [1, 2], {"plane": 1}),
        ([1, 3], [3, 4], {"plane": 2}),
    ]
    # lengths of 1 are no axes
    assert rows_of(Layout("TZ", (1, 4)), "time") == [([0, 1, 2, 3], [1, 1, 2, 2], {})]


@pytest.mark.parametrize(
    ("layout", "by", "told"),
    [
        (Layout("T", (2,)), "planes", "a.tif holds time points, expected planes (Z) to link: name its axes"),
        (Layout("PT", (1, 2)), "planes", "or link time"),
        (Layout("PZ", (2, 2)), "time", "a.tif holds pages along P and Z, expected time (T) to link"),
    ],
)
def test_files_with_other_axes_are_refused(layout, by, told):
    pages = [np.zeros((4, 4), int)] * layout.n_pages
    with pytest.raises(InputError) as error:
        link_stack(pages, layout, by, name="a.tif")
    assert told in str(error.value)


def test_bad_input_is_refused():
    with pytest.raises(ConfigError, match="link space: give planes or time"):
        link([], "space")
    with pytest.raises(InputError, match=r"pages of \(4, 4\) and \(4, 5\): give pages of one size"):
        link([np.zeros((4, 4), int), np.zeros((4, 5), int)], "planes")
    with pytest.raises(InputError, match=r"label image holds 0\.5"):
        link([np.full((4, 4), 0.5)], "time")


def test_a_box_has_the_volume_and_place_of_a_box():
    pages = np.zeros((6, 20, 30), dtype=np.int32)
    pages[1:4, 5:11, 7:15] = 9
    pages[4:, 18:, 28:] = 12
    pages[:2, :2, :2] = 15
    found = measure_volumes(pages, pixel_size=(0.5, 0.25), z_step=2.0)
    assert found["object_3d"].tolist() == [9, 12, 15]
    assert (found["volume"].tolist(), found["n_planes"].tolist()) == ([144, 8, 8], [3, 2, 2])
    assert [found[f"centroid-{axis}"][0] for axis in range(3)] == [2, 7.5, 10.5]
    assert found["touches_border"].tolist() == [False, True, True]
    assert found["volume_um3"].tolist() == [36, 2, 2]
    # the edges are rounded
    box = 2 * (6 * 3 + 6 * 2 + 3 * 2)
    assert 0.75 * box < found["surface_um2"][0] < box


def test_a_ball_has_the_surface_of_a_ball():
    """In planes twice as far apart as pixels."""
    z, y, x = np.indices((25, 50, 50))
    ball = (np.sqrt((2 * (z - 12)) ** 2 + (y - 25) ** 2 + (x - 25) ** 2) <= 20).astype(np.int32)
    found = measure_volumes(ball, pixel_size=(1.0, 1.0), z_step=2.0)
    assert found["volume_um3"][0] == pytest.approx(4 / 3 * np.pi * 20**3, rel=0.03)
    assert found["surface_um2"][0] == pytest.approx(4 * np.pi * 20**2, rel=0.07)


def test_the_surface_is_that_of_the_spacing():
    """A body in planes twice as far apart is nearly that with each plane twice."""
    ball = (np.linalg.norm(np.indices((21, 21, 21)) - 10, axis=0) <= 8).astype(np.int32)
    found = [
        measure_volumes(pages, pixel_size=(1.0, 1.0), z_step=step)["surface_um2"][0]
        for pages, step in ((ball, 2.0), (np.repeat(ball, 2, axis=0), 1.0))
    ]
    assert found[0] == pytest.approx(found[1], rel=0.03)


def test_a_single_voxel_has_a_surface():
    found = measure_volumes(np.ones((1, 1, 1), dtype=np.int32), pixel_size=(1.0, 1.0), z_step=1.0)
    assert 1 < found["surface_um2"][0] < 6


def test_without_distances_nothing_is_in_micrometres():
    ball = np.ones((2, 3, 3), dtype=np.int32)
    assert not any(name.endswith(("um2", "um3")) for name in measure_volumes(ball, pixel_size=(1.0, 1.0)))
    assert not any(name.endswith("_um") for name in measure_tracks(ball))
    assert all(len(column) == 0 for column in measure_volumes(0 * ball, pixel_size=(1, 1), z_step=1).values())
    assert all(len(column) == 0 for column in measure_tracks(0 * ball, pixel_size=(1, 1)).values())


def test_the_path_of_a_track():
    pages = [discs((20, 10, 4)), discs((20, 14, 4)), discs((23, 14, 4), (5, 50, 3)), discs((5, 50, 3))]
    found = measure_tracks(link(pages, "time"), pixel_size=(1.0, 0.5))
    assert found["track_id"].tolist() == [1, 2]
    assert (found["first"].tolist(), found["last"].tolist()) == ([1, 3], [3, 4])
    np.testing.assert_allclose(found["path_length"], [7, 0])
    np.testing.assert_allclose(found["distance"], [5, 0])
    np.testing.assert_allclose(found["path_length_um"], [5, 0])
    np.testing.assert_allclose(found["distance_um"], [np.hypot(3, 2), 0])
