"""Objects of a mask on disk are those of the mask in memory, wherever blocks cut it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from segkit import memory_limit
from segkit.errors import InputError
from segkit.images import UNLABELLED
from segkit.objects import Splitter
from segkit.objects.by_block import Window, _has_distance, blocks_of, split_by_block
from segkit.objects.split import LANDSCAPES

SHAPE = (150, 190)


def scene(rng, *, n_classes=3, coarse=3.0):
    """Blobs of any shape and size, of several classes, some with holes; and a smooth landscape."""
    ids = np.zeros(SHAPE, dtype=np.uint8)
    for class_id in range(1, n_classes):
        ids[ndimage.gaussian_filter(rng.standard_normal(SHAPE), coarse) > 0.06] = class_id
    ids[rng.random(SHAPE) < 0.01] = 0
    learnt = ndimage.gaussian_filter(rng.random(SHAPE), 2).astype(np.float32)
    return ids, learnt


def by_block(splitter, ids, learnt=None, side=32, probability=None):
    found, n_objects = split_by_block(
        splitter, ids, lambda name, dtype: np.zeros(ids.shape, dtype), learnt, probability, side=side
    )
    assert n_objects == found.max(initial=0)
    return found


def learnt_of(splitter, learnt):
    return {name: learnt for name in ("probability", "inside") if name in splitter.landscape}


@pytest.mark.parametrize("landscape", LANDSCAPES)
@pytest.mark.parametrize("side", [17, 64])
def test_objects_are_those_of_the_whole(rng, landscape, side):
    for coarse in (1.5, 3.0, 6.0):
        ids, learnt = scene(rng, coarse=coarse)
        splitter = Splitter(landscape, smoothing=0.2, depth=0.02, radius=5, least_area=20, cut_share=0.3)
        given = learnt_of(splitter, learnt)
        expected = splitter.split(ids, **given)
        assert expected.max() > 20
        np.testing.assert_array_equal(by_block(splitter, ids, learnt if given else None, side), expected)


@pytest.mark.parametrize("options", [{"smoothing": 0}, {"fills_holes": False}, {"radius": 40}, {"depth": 1}])
def test_settings(rng, options):
    ids, _ = scene(rng)
    splitter = Splitter(**{"radius": 5, "depth": 0.02, **options})
    np.testing.assert_array_equal(by_block(splitter, ids, side=20), splitter.split(ids))


@pytest.mark.parametrize("landscape", ["none", "distance", "probability"])
def test_doubtful_objects_are_those_of_the_whole(rng, landscape):
    ids, _ = scene(rng)
    probability = ndimage.gaussian_filter(rng.random(SHAPE), 4).astype(np.float32)
    splitter = Splitter(landscape, radius=5, depth=0.001, least_probability=0.5)
    expected = splitter.split(ids, probability=probability)
    assert (
        10 < expected.max() < replace(splitter, least_probability=0).split(ids, probability=probability).max()
    )
    learnt = probability if landscape == "probability" else None
    np.testing.assert_array_equal(by_block(splitter, ids, learnt, 20, probability), expected)
    with pytest.raises(InputError, match=r"least_probability=0.5: give probability=, \(H, W\)"):
        by_block(splitter, ids, learnt)


def test_the_distances_of_a_neighbour_count_as_far_as_smoothing_reaches():
    """A large region one pixel beside a small one: the window that holds the small one cuts it."""
    ids = np.zeros(SHAPE, dtype=np.uint8)
    ids[40:120, 60:150], ids[60:70, 48:59] = 1, 1
    splitter = Splitter("distance", smoothing=0.5, depth=0.01, radius=6)
    np.testing.assert_array_equal(by_block(splitter, ids, side=12), splitter.split(ids))
    window = Window(slice(50, 80), slice(40, 70), SHAPE)
    mask = ids[window.region] == 1
    small = mask & (np.arange(30) < 19)
    assert _has_distance(mask, small, 0, window)
    assert not _has_distance(mask, small, 12, window)


def test_holes_that_blocks_cut(rng):
    """A ring whose hole spans four blocks, one with a hole that is too large, and one around another class."""
    rows, cols = np.indices(SHAPE)
    from_middle = [np.hypot(rows - row, cols - col) for row, col in ((40, 40), (100, 60), (60, 120))]
    ids = np.zeros(SHAPE, dtype=np.uint8)
    for distance, hole in zip(from_middle, (6, 14, 6), strict=True):
        ids[(distance > hole) & (distance < 18)] = 1
    ids[from_middle[2] < 2] = 2
    splitter = Splitter("none", radius=15)
    expected = splitter.split(ids)
    assert [bool(expected[at]) for at in ((40, 40), (100, 60), (60, 124))] == [True, False, False]
    np.testing.assert_array_equal(by_block(splitter, ids, side=20), expected)


@pytest.mark.parametrize("landscape", ["none", "distance"])
def test_one_region_over_all_blocks(landscape):
    """A spiral, and a mask without any edge."""
    rows, cols = np.indices(SHAPE)
    turn = np.hypot(rows - 75, cols - 95) + 4 * np.arctan2(rows - 75, cols - 95)
    for mask in ((turn % (8 * np.pi) < 12).astype(np.uint8), np.ones(SHAPE, dtype=np.uint8)):
        splitter = Splitter(landscape, radius=6, depth=0.05)
        np.testing.assert_array_equal(by_block(splitter, mask, side=16), splitter.split(mask))


def test_nothing_at_all():
    ids = np.zeros(SHAPE, dtype=np.uint8)
    for landscape in ("none", "distance"):
        assert not by_block(Splitter(landscape), ids).any()


@pytest.mark.parametrize("landscape", ["none", "distance"])
def test_pixels_without_a_class_are_no_objects(rng, landscape):
    ids, _ = scene(rng, n_classes=2)
    ids[40:80, 60:100] = UNLABELLED
    found = by_block(Splitter(landscape, radius=5, fills_holes=False), ids)
    np.testing.assert_array_equal(found > 0, ids == 1)


def test_a_region_beyond_memory_is_told(monkeypatch):
    ids = np.ones(SHAPE, dtype=np.uint8)
    monkeypatch.setattr("segkit.objects.by_block.bytes_left", lambda: 120 * 100 * 100)
    with pytest.raises(InputError, match="a group of objects that touch is larger than 115 x 115 pixels"):
        by_block(Splitter(radius=5), ids, side=16)
    with memory_limit("64GiB"):
        assert by_block(Splitter("none"), ids, side=16).all()


def test_blocks_cover_each_pixel_once():
    seen = np.zeros(SHAPE, dtype=int)
    for block in blocks_of(SHAPE, 64):
        seen[block.region] += 1
    assert (seen == 1).all()
