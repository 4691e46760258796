import numpy as np
import pytest

from segkit.features import (
    ElongatedBank,
    FeatureMaps,
    MultiscaleBank,
    PositionBank,
    ScatteringBank,
    StackedBank,
)
from segkit.features.tiles import whole
from segkit.features.views import Tiling, View, moved_to

SHAPE = (40, 52)


@pytest.fixture
def bank():
    return StackedBank([ScatteringBank(J=2, L=2), MultiscaleBank(sigma_max=2), PositionBank()])


def everything(bank, image):
    return View(whole(image.shape), bank.maps(image))


@pytest.mark.parametrize(
    "core", [(slice(0, 40), slice(0, 52)), (slice(7, 9), slice(30, 52)), (slice(39, 40), slice(0, 1))]
)
def test_a_part_of_a_view_has_its_values(bank, rng, core):
    view = everything(bank, rng.random((*SHAPE, 1)).astype(np.float32))
    part = view.within(core)
    for given, kept in zip(view.stacks, part.stacks, strict=True):
        expected = given.upsample(SHAPE)[:, core[0], core[1]]
        np.testing.assert_allclose(part.upsample(kept), expected, atol=1e-6)


def test_a_part_keeps_the_cells_it_needs_and_no_others(rng):
    maps = FeatureMaps(rng.random((2, 10, 10)).astype(np.float32), np.arange(2), 4.0, 1.5)
    [kept] = View(whole(SHAPE), [maps]).within((slice(8, 16), slice(20, 21))).stacks
    # rows 8 to 15 lie between the cells at 5.5 and 17.5, column 20 between those at 17.5 and 21.5
    assert kept.values.shape == (2, 4, 2)
    np.testing.assert_array_equal(kept.values, maps.values[:, 1:5, 4:6])
    assert kept.offset == (-2.5, -2.5)


def test_tiles_show_the_maps_of_the_image(bank, rng, monkeypatch):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 1000)
    image = rng.random((90, 120, 1)).astype(np.float32)
    tiling = Tiling(image, bank, bank.split_by_bank(np.arange(bank.n_channels(1)), 1))
    assert len(tiling.tiles) > 1
    expected = everything(bank, image)
    dense = {
        index: values
        for stack in expected.stacks
        for index, values in zip(stack.indices, stack.upsample(image.shape[:2]), strict=True)
    }
    seen = np.zeros(image.shape[:2], dtype=int)
    for view in tiling.views():
        core = view.tile.core
        seen[core] += 1
        assert sorted(index for stack in view.stacks for index in stack.indices) == sorted(dense)
        for stack in view.stacks:
            for index, values in zip(stack.indices, view.upsample(stack), strict=True):
                np.testing.assert_allclose(
                    values, dense[index][core], atol=2e-4
                )  # filters are cut off at the halo
    assert (seen == 1).all()


def test_maps_of_the_whole_image_are_counted_from_the_tile(rng, monkeypatch):
    bank = StackedBank([MultiscaleBank(sigma_max=2), ElongatedBank(sigmas=[0.5])])
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 1000)
    image = rng.random((90, 120, 1)).astype(np.float32)
    tiling = Tiling(image, bank, bank.split_by_bank(np.arange(bank.n_channels(1)), 1))
    [lines] = tiling.whole_maps()  # fine filters ring, the other bank is cut
    tile = tiling.tiles[-1]
    [moved] = moved_to(tile, [lines])
    rows, cols = np.array([3, 5]), np.array([2, 9])
    corner = [seen.start for seen in tile.seen]
    np.testing.assert_array_equal(moved.sample(rows, cols), lines.sample(rows + corner[0], cols + corner[1]))
