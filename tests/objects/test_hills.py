"""Merging by depth against morphological reconstruction and flooding by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage
from skimage.morphology import local_maxima, reconstruction

from segkit.objects.hills import find_hills, give_numbers, join_hills

SIDES = ndimage.generate_binary_structure(2, 1)
small_shapes = st.tuples(st.integers(1, 6), st.integers(1, 6))
# few levels, so that heights tie and plateaus occur
small_land = small_shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=st.integers(0, 6)))
masked_land = small_land.flatmap(lambda land: st.tuples(st.just(land), arrays(np.bool_, land.shape)))

few = settings(max_examples=40)


def landscape(rng, shape=(60, 70), smooth=2.5):
    land = ndimage.gaussian_filter(rng.standard_normal(shape), smooth).astype(np.float32)
    return land / land.std()


def n_h_maxima(land, mask, depth):
    """Local maxima that are left when all hills lose a depth and are flooded again."""
    land = np.pad(
        np.where(mask, land, land.min() - 10).astype(np.float64), 1, constant_values=land.min() - 10
    )
    left = reconstruction(land - depth, land, method="dilation", footprint=SIDES)
    tops = ndimage.label(local_maxima(left, connectivity=1) & np.pad(mask, 1), SIDES)[0]
    return tops.max()


def bottlenecks(land, mask, source):
    """Height of the lowest pixel on the best path from each pixel to a source, by relaxation."""
    best = np.where(source, np.where(mask, land, -np.inf), -np.inf)
    for _ in range(land.size):
        around = np.pad(best, 1, constant_values=-np.inf)
        beside = np.max([around[:-2, 1:-1], around[2:, 1:-1], around[1:-1, :-2], around[1:-1, 2:]], axis=0)
        best = np.maximum(best, np.where(mask, np.minimum(beside, land), -np.inf))
    return best


@pytest.mark.parametrize("depth", [0.01, 0.3, 2.5])
@pytest.mark.parametrize("share", [0, 0.4])
def test_objects_are_the_h_maxima(rng, depth, share):
    for _ in range(3):
        land = landscape(rng)
        mask = land > np.quantile(land, share) if share else np.ones(land.shape, dtype=bool)
        assert find_hills(land, mask).merge(depth).max() == n_h_maxima(land, mask, depth)


@few
@given(masked_land)
def test_infinite_depth_gives_the_connected_parts(given_land):
    land, mask = given_land
    expected = ndimage.label(mask, SIDES)[0]
    np.testing.assert_array_equal(find_hills(land, mask).merge(np.inf), give_numbers(expected))


@few
@given(masked_land, st.sampled_from([0, 0.5, 1, 1.5, 2, 3.5]))
def test_each_pixel_is_of_a_hill_that_the_highest_path_leads_to(given_land, depth):
    land, mask = given_land
    hills = find_hills(land, mask)
    labels = hills.merge(depth)
    assert ((labels > 0) == mask).all()
    kept = [index + 1 for index in np.flatnonzero(hills.depths >= depth)]
    assert labels.max() == len(kept)
    tops = []
    for hill in kept:
        own = hills.basins == hill
        tops.append(own & (land == land[own].max()))
    paths = np.array([bottlenecks(land, mask, top) for top in tops])
    for top, path in zip(tops, paths, strict=True):
        [label] = np.unique(labels[top])
        own = labels == label
        assert (path[own] == paths.max(axis=0)[own]).all()
        assert ndimage.label(own, SIDES)[1] == 1


@few
@given(masked_land, st.floats(0, 4), st.floats(0, 4))
def test_merging_only_joins(given_land, one, other):
    hills = find_hills(*given_land)
    fine, coarse = hills.merge(min(one, other)), hills.merge(max(one, other))
    pairs = np.unique(np.stack([fine.ravel(), coarse.ravel()]), axis=1)
    assert np.unique(pairs[0]).size == pairs.shape[1]


def test_a_hill_joins_its_neighbour_and_not_the_highest_behind_that():
    land = np.array([[10, 2, 9, 1.9, 2.5]])
    hills = find_hills(land, np.ones(land.shape))
    labels = hills.merge(1)
    assert labels[0, 4] == labels[0, 2] != labels[0, 0]


def test_a_level_foreground_that_fills_the_image_is_one_object():
    for shape in ((1, 1), (1, 7), (5, 6)):
        for level in (-3.0, 0.0, 3.0):
            hills = find_hills(np.full(shape, level), np.ones(shape))
            assert (hills.merge(0) == 1).all()
            assert hills.depths.tolist() == [np.inf]


def test_no_foreground_has_no_hills():
    for shape in ((0, 0), (0, 4), (1, 1), (5, 6)):
        hills = find_hills(np.ones(shape), np.zeros(shape))
        assert hills.depths.size == hills.parents.size == 0
        np.testing.assert_array_equal(hills.merge(0.1), np.zeros(shape), strict=False)


def test_joined_hills_are_those_of_each_mask(rng):
    land = landscape(rng, (30, 40))
    masks = [land > 0.8, land < -0.8, np.zeros(land.shape, dtype=bool)]
    parts = [find_hills(height, mask) for height, mask in zip([land, -land, land], masks, strict=True)]
    labels = join_hills(parts, land.shape).merge(0.5)
    for hills, mask in zip(parts, masks, strict=True):
        np.testing.assert_array_equal(give_numbers(np.where(mask, labels, 0)), hills.merge(0.5))
    assert labels.max() == sum(hills.merge(0.5).max() for hills in parts)
    assert not join_hills([], (3, 4)).merge(1).any()


@given(arrays(np.int64, small_shapes, elements=st.sampled_from([0, 1, 2, 3, 9, 70_000, 2**40])))
def test_numbers_are_given_by_first_pixel(labels):
    expected, known = np.zeros(labels.shape, dtype=np.int32), {0: 0}
    for at, label in np.ndenumerate(labels):
        expected[at] = known.setdefault(int(label), len(known))
    np.testing.assert_array_equal(give_numbers(labels), expected, strict=True)
