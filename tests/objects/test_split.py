"""Touching discs come apart, whichever way they lie; what does not fit is told in one line."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from segkit.errors import ConfigError, InputError
from segkit.evaluation.object_scores import match
from segkit.objects import Splitter, split
from segkit.objects.hills import give_numbers
from segkit.objects.split import LANDSCAPES, expected_depth, fill_holes, radius_of

PLAIN = Splitter(smoothing=0, depth=0.1, radius=10)
ONES = np.ones((3, 4), int)


def discs(shape, *circles):
    """Each disc in the number of its circle (row, column, radius); the first one wins."""
    rows, cols = np.indices(shape)
    labels = np.zeros(shape, dtype=np.int32)
    for index, (row, col, radius) in reversed(list(enumerate(circles, start=1))):
        labels[np.hypot(rows - row, cols - col) <= radius] = index
    return labels


def cells(rng, shape=(120, 140), n=40):
    """Discs that overlap by a little."""
    circles = []
    while len(circles) < n:
        row, col = rng.uniform(0, shape)
        if all(np.hypot(row - r, col - c) > 13 for r, c, _ in circles):
            circles.append((row, col, rng.uniform(6.5, 8)))
    return discs(shape, *circles)


def test_two_discs_come_apart_at_the_neck():
    """The pass between them is half the common chord high, in radii sqrt(1 - 0.75^2)."""
    mask = discs((101, 161), (50, 50, 40), (50, 110, 40)) > 0
    depth = 1 - np.sqrt(1 - 0.75**2)
    labels = Splitter(smoothing=0, radius=40, depth=depth - 0.03).split(mask)
    assert labels.max() == 2
    left, right = labels[:, :80], labels[:, 81:]
    np.testing.assert_array_equal(left[mask[:, :80]], 1)
    np.testing.assert_array_equal(right[mask[:, 81:]], 2)
    assert Splitter(smoothing=0, radius=40, depth=depth + 0.03).split(mask).max() == 1


def test_objects_are_those_that_were_drawn(rng):
    truth = cells(rng)
    labels = split(truth > 0, Splitter(radius=7, fills_holes=False))
    assert match(truth, labels).matched(0.5).size > 0.9 * np.unique(truth[truth > 0]).size
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels > 0, truth > 0)


def test_default_radius_is_that_of_the_median_region():
    mask = discs((40, 120), (20, 20, 9), (20, 60, 9), (20, 75, 9), (20, 105, 9)) > 0
    radius = radius_of([discs((40, 40), (20, 20, 9)).sum()] * 2)
    np.testing.assert_array_equal(split(mask), Splitter(radius=radius).split(mask))
    assert split(mask).max() == 4
    assert not split(np.zeros((4, 5), dtype=bool)).any()


@pytest.mark.parametrize("landscape", ["none", "distance"])
def test_classes_are_never_joined(landscape):
    ids = np.zeros((12, 30), dtype=np.uint8)
    ids[2:10, 2:15], ids[2:10, 15:28] = 1, 2
    labels = Splitter(landscape, radius=6, depth=100).split(ids)
    assert labels.max() == 2
    np.testing.assert_array_equal(labels, ids)
    np.testing.assert_array_equal(Splitter("none").split(ids > 0), ids > 0)
    # numbers follow the reading order, not the classes
    np.testing.assert_array_equal(Splitter("none").split(np.where(ids, 3 - ids, 0)), ids)


def test_holes_are_filled_unless_they_are_large_or_taken():
    mask = discs((40, 40), (20, 20, 15)) > 0
    hole = discs((40, 40), (20, 20, 4)) > 0
    ring = mask & ~hole
    blocked = np.zeros_like(mask)
    np.testing.assert_array_equal(fill_holes(ring, hole.sum(), blocked), mask)
    np.testing.assert_array_equal(fill_holes(ring, hole.sum() - 1, blocked), ring)
    blocked[20, 20] = True
    np.testing.assert_array_equal(fill_holes(ring, np.inf, blocked), ring)
    at_border = ring[20:]
    np.testing.assert_array_equal(fill_holes(at_border, np.inf, np.zeros_like(at_border)), at_border)


def test_a_hole_is_filled_blocked_or_kept():
    ids = np.where(discs((40, 40), (20, 20, 15)) > 0, 1, 0)
    inner = discs((40, 40), (20, 20, 4)) > 0
    plain = Splitter("none", radius=15)
    np.testing.assert_array_equal(plain.split(np.where(inner, 0, ids)), ids)
    assert not replace(plain, fills_holes=False).split(np.where(inner, 0, ids))[inner].any()
    labels = plain.split(np.where(inner, 2, ids))
    assert (labels[inner] == 2).all()
    assert labels.max() == 2
    np.testing.assert_array_equal(plain.split(np.where(inner, 1, 2 * ids)), labels)


@pytest.mark.parametrize(("radius", "is_filled"), [(6.3, True), (7.8, False)])
def test_a_hole_of_up_to_half_a_typical_object_is_filled(radius, is_filled):
    """Two fifths of a disc of radius 10 are filled, three fifths are not."""
    hole = discs((50, 50), (25, 25, radius)) > 0
    assert abs(hole.sum() / (np.pi * 10**2) - (0.4 if is_filled else 0.6)) < 0.02
    ring = (discs((50, 50), (25, 25, 20)) > 0) & ~hole
    assert (Splitter("none", radius=10).split(ring)[hole] == is_filled).all()


def test_small_objects_are_left_out():
    mask = discs((20, 60), (10, 8, 2), (10, 25, 6), (10, 45, 4))
    areas = np.bincount(mask.ravel())[1:]
    for least, n in ((0, 3), (areas[0], 3), (areas[0] + 1, 2), (areas[2] + 1, 1), (areas[1] + 1, 0)):
        labels = Splitter("none", least_area=least).split(mask > 0)
        assert np.unique(labels).tolist() == list(range(n + 1))
    labels = Splitter("none", least_area=areas[0] + 0.5).split(mask > 0)
    np.testing.assert_array_equal(labels, np.maximum(mask - 1, 0))


def test_objects_that_the_border_cuts_may_be_smaller():
    mask = discs((20, 60), (0, 8, 4), (10, 25, 4), (10, 45, 6))
    half, whole = (mask == 1).sum(), (mask == 2).sum()
    assert half < whole
    for least, share, n in ((whole, 0.5, 3), (whole, 1.0, 2), (whole + 1, 0.5, 2), (2.1 * half, 0.5, 1)):
        splitter = Splitter("none", least_area=least, cut_share=share)
        assert splitter.split(mask > 0).max() == n
    assert splitter.changed(smallest=half + 1).split(mask > 0).max() == 2


def test_doubtful_objects_are_left_out():
    mask = discs((20, 60), (10, 8, 5), (10, 25, 6), (10, 45, 4))
    rng = np.random.default_rng(0)
    probability = rng.random(mask.shape)
    means = [probability[mask == number].mean() for number in (1, 2, 3)]
    for least in (0, *np.subtract(means, 1e-9), *np.add(means, 1e-9)):
        splitter = Splitter("none", least_probability=least)
        labels = splitter.split(mask > 0, probability=probability)
        kept = [number for number, mean in enumerate(means, 1) if mean >= least]
        np.testing.assert_array_equal(labels, give_numbers(np.where(np.isin(mask, kept), mask, 0)))
    with pytest.raises(InputError, match=r"least_probability=0.5: give probability=, \(H, W\)"):
        Splitter("none", least_probability=0.5).split(mask > 0)


@pytest.mark.parametrize("name", ["probability", "inside"])
def test_a_learnt_landscape_tells_where_to_cut(name):
    mask = np.zeros((14, 40), dtype=bool)
    mask[2:12, 2:38] = True
    land = np.tile(1 - 0.8 * np.exp(-((np.arange(40) - 13.0) ** 2) / 4), (14, 1))
    labels = Splitter(name, smoothing=0.1, depth=0.3).split(mask, **{name: land})
    assert labels.max() == 2
    assert (labels[2:12, 2:12] == 1).all()
    assert (labels[2:12, 15:38] == 2).all()
    assert Splitter(name, smoothing=0.1, depth=0.9).split(mask, **{name: land}).max() == 1


def test_distance_and_inside_are_summed():
    mask = discs((31, 46), (15, 15, 10), (15, 30, 10)) > 0
    inside = np.zeros(mask.shape)
    both = replace(PLAIN, landscape="distance+inside")
    np.testing.assert_array_equal(both.split(mask, inside=inside), PLAIN.split(mask))
    inside = 1 - ndimage.distance_transform_edt(mask) / 10
    assert both.split(mask, inside=inside).max() == 1


def test_a_foreground_without_an_edge_has_no_distance():
    """Else it were measured from a corner, against what was learnt."""
    inside = np.tile(np.abs(np.arange(41) - 20) / 20.0, (9, 1))
    full = np.ones(inside.shape, dtype=bool)
    labels = Splitter("distance+inside", radius=5).split(full, inside=inside)
    np.testing.assert_array_equal(labels, Splitter("inside", radius=5).split(full, inside=inside))
    assert labels.max() == 2
    assert Splitter().split(full).max() == 1


@pytest.mark.parametrize("landscape", LANDSCAPES)
def test_turned_images_give_turned_objects(rng, landscape):
    truth = cells(rng, (80, 100), 20)
    noise = [ndimage.gaussian_filter(rng.random(truth.shape), 1).astype(np.float32) for _ in range(2)]
    maps = dict(zip(("probability", "inside"), noise, strict=True))
    splitter = Splitter(landscape, radius=7)
    labels = splitter.split(truth > 0, **maps)
    for turn in (np.rot90, np.flipud, np.transpose):
        turned = splitter.split(turn(truth > 0), **{name: turn(land) for name, land in maps.items()})
        assert match(turn(labels), turned).matched(0.9).size == labels.max() == turned.max()


def test_many_objects_of_one_pixel():
    mask = np.zeros((530, 530), dtype=bool)
    mask[::2, ::2] = True
    labels = Splitter("distance", radius=1, smoothing=0).split(mask)
    assert labels.max() == mask.sum() == 265**2 > 70_000
    np.testing.assert_array_equal(labels[mask], np.arange(1, mask.sum() + 1))


def test_masks_of_all_whole_numbers():
    mask = discs((31, 46), (15, 15, 10), (15, 30, 10)) > 0
    for dtype in (np.uint8, np.uint64, np.int64):
        np.testing.assert_array_equal(PLAIN.split(mask.astype(dtype)), PLAIN.split(mask))


def test_nothing_has_no_objects():
    for shape in ((0, 0), (0, 5), (1, 1), (6, 7)):
        labels = Splitter().split(np.zeros(shape, dtype=bool))
        np.testing.assert_array_equal(labels, np.zeros(shape, dtype=np.int32), strict=True)


@pytest.mark.parametrize(
    ("mask", "maps", "message"),
    [
        (np.zeros((3, 4)), {}, "mask of shape (3, 4) and dtype float64: give (H, W) of bool or int"),
        (np.zeros((2, 3, 4), int), {}, "mask of shape (2, 3, 4) and dtype int64: give (H, W) of bool or int"),
        (np.full((3, 4), -2), {}, "mask with negative values, down to -2: give class ids from 0"),
        (
            ONES,
            {"inside": np.ones((4, 3))},
            "inside of shape (4, 3) for a mask of (3, 4): give the same size",
        ),
        (
            ONES,
            {"probability": np.ones((3, 4, 1)), "inside": np.ones((3, 4))},
            "probability of shape (3, 4, 1) for a mask of (3, 4): give the same size",
        ),
        (ONES, {"inside": np.full((3, 4), np.nan)}, "inside with NaN or infinite values: give finite ones"),
        (ONES, {}, "landscape 'distance+inside' without inside: give inside=, (H, W)"),
    ],
)
def test_what_does_not_fit_is_told(mask, maps, message):
    with pytest.raises(InputError) as caught:
        Splitter("distance+inside").split(mask, **maps)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"landscape": "height"},
            "landscape='height': choose one of none, distance, probability, inside, distance+inside",
        ),
        ({"smoothing": -0.1}, "smoothing=-0.1: give a number from 0"),
        ({"depth": float("nan")}, "depth=nan: give a number from 0"),
        ({"radius": 0}, "radius=0: give a number above 0"),
        ({"radius": float("inf")}, "radius=inf: give a number above 0"),
        ({"least_area": -1}, "least_area=-1: give a number from 0"),
        ({"least_probability": 1.5}, "least_probability=1.5: give a number from 0 to 1"),
        ({"least_probability": float("nan")}, "least_probability=nan: give a number from 0 to 1"),
        (
            {"smoothing": 100, "radius": 1e5},
            "smoothing=100 of radius=100000: a Gaussian of 10,000,000 pixels, at most 1,024 make sense",
        ),
    ],
)
def test_options_out_of_range_are_told(options, message):
    with pytest.raises(ConfigError) as caught:
        Splitter(**options)
    assert str(caught.value) == message


def test_smoothing_reaches_no_farther_than_the_image():
    region = np.random.default_rng(0).random((20, 30)) < 0.5
    splitter = Splitter(smoothing=1, radius=1000)
    expected = ndimage.gaussian_filter(ndimage.distance_transform_edt(region) / 1000, 1000, radius=30)
    found = splitter.landscape_over(region, np.zeros(region.shape, dtype=np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_settings_are_stored_and_described():
    splitter = Splitter(
        "distance+inside", smoothing=0.3, depth=0.05, radius=4.5, least_area=7, fills_holes=False
    )
    assert Splitter.from_dict(splitter.to_dict()) == splitter
    assert splitter.describe() == (
        "watershed on distance from the edge and learnt inside of objects, smoothed by 0.3 radii, at least 0.05 deep "
        "(typical radius 4.5 pixels)"
    )
    assert Splitter("none").describe() == "each connected region is one object (typical radius 10 pixels)"
    assert Splitter("none", least_probability=0.7).describe() == (
        "each connected region is one object (typical radius 10 pixels; objects of a mean probability below 0.7 are left "
        "out)"
    )


def test_the_depth_inside_objects_is_a_mean_over_parts(rng):
    decisions = rng.standard_normal((3, 4, 5)).astype(np.float32)
    expected = np.zeros((3, 4))
    for place in np.ndindex(3, 4):
        share = np.exp(2 * decisions[place].astype(float))
        expected[place] = sum(part / 4 * value for part, value in enumerate(share)) / share.sum()
    np.testing.assert_allclose(expected_depth(decisions), expected, rtol=1e-5)
    sure = 50 * np.eye(5, dtype=np.float32)[[[0, 1, 4]]]
    np.testing.assert_allclose(expected_depth(sure), [[0, 0.25, 1]], atol=1e-6)


def test_settings_changed_by_hand():
    learnt = Splitter("distance+inside", depth=0.2, radius=7.0, least_area=30)
    assert learnt.changed("MORE") == replace(learnt, depth=0.1)
    assert learnt.changed("less", smallest=4, fill_holes=False) == replace(
        learnt, depth=0.4, least_area=4, fills_holes=False
    )
    assert learnt.changed(least_probability=0.6) == replace(learnt, least_probability=0.6)
    assert learnt.changed(0.3) == learnt.changed("0.3") == replace(learnt, depth=0.3)
    assert learnt.changed() == learnt
    regions = Splitter("none", depth=0.0, radius=7.0)
    assert regions.changed("less") == regions
    assert regions.changed("more") == replace(regions, landscape="distance", depth=Splitter.depth / 2)
    assert regions.changed(0.3) == replace(regions, landscape="distance", depth=0.3)
    for given in ("some", -1, "nan", "inf"):
        with pytest.raises(ConfigError, match=f"split {given!r}: give more, less, or the depth"):
            learnt.changed(given)


def test_a_smaller_depth_never_gives_fewer_objects(rng):
    mask = ndimage.gaussian_filter(rng.standard_normal((80, 90)), 2) > 0
    splitter = Splitter(radius=4.0)
    counts = [changed.split(mask).max() for changed in map(splitter.changed, ("less", None, "more"))]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
