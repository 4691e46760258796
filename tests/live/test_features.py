import os

import numpy as np
import pytest

import segkit.live.features
from segkit.features import MultiscaleBank, PositionBank, ScatteringBank, StackedBank
from segkit.features.normalised import NormalisedBank
from segkit.live import FeatureCache
from segkit.live.canvas import Canvas
from segkit.live.features import ImageFeatures
from segkit.live.learner import Labelled, Learner
from segkit.segmentation.segmenter import Segmenter

SHAPE = (45, 70)


@pytest.fixture
def image(rng):
    return rng.random((*SHAPE, 3)).astype(np.float32)


def bank(normalization="image"):
    banks = [ScatteringBank(J=2, L=2), MultiscaleBank(sigma_max=2), PositionBank()]
    if normalization == "mixed":
        banks[0] = StackedBank(banks[:1], normalization="set")
        normalization = "image"
    return StackedBank(banks, normalization=normalization)


def prepared(image, cache, normalization="image"):
    features = ImageFeatures(image, bank(normalization), cache)
    assert not features.is_ready
    done = list(features.prepare())
    assert done[-1] == 1
    assert done == sorted(done)
    assert features.is_ready
    return features


@pytest.mark.parametrize(
    ("normalization", "pixels_at_once"), [("image", 1000), ("set", 2**20), ("mixed", 1000)]
)
def test_samples_are_those_of_the_bank(image, cache, rng, monkeypatch, normalization, pixels_at_once):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", pixels_at_once)
    features = prepared(image, cache, normalization)
    rows, cols = rng.integers(0, SHAPE[0], 50), rng.integers(0, SHAPE[1], 50)
    expected = NormalisedBank(bank(normalization)).sample(image, rows, cols, None)
    np.testing.assert_allclose(features.sample(rows, cols), expected, atol=2e-4)


def test_maps_whose_file_was_cut_are_computed_anew(image, cache, rng, monkeypatch):
    """A file that is mapped and becomes shorter would kill the program."""
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 1000)
    features = prepared(image, cache)
    rows, cols = rng.integers(0, SHAPE[0], 50), rng.integers(0, SHAPE[1], 50)
    expected = features.sample(rows, cols)
    for entry in cache.folder.glob("*.npy"):
        os.truncate(entry, 100)
    np.testing.assert_array_equal(features.sample(rows, cols), expected)
    assert np.isfinite(features.coarse).all()


def test_coarse_cells_are_read_at_their_middle(image, cache, monkeypatch):
    monkeypatch.setattr(segkit.live.features, "COARSE_CELLS", 216)
    features = prepared(image, cache)
    assert features.stride == 4
    assert features.coarse.shape == (features.n_channels, 12, 18)
    rows, cols = np.minimum(np.arange(12) * 4 + 2, 44), np.minimum(np.arange(18) * 4 + 2, 69)
    at = [axis.ravel() for axis in np.meshgrid(rows, cols, indexing="ij")]
    np.testing.assert_allclose(
        features.coarse.reshape(features.n_channels, -1).T, features.sample(*at), atol=1e-5
    )


def test_one_more_cell_than_allowed_doubles_the_stride(image, cache, monkeypatch):
    monkeypatch.setattr(segkit.live.features, "COARSE_CELLS", 215)
    assert ImageFeatures(image, bank(), cache).stride == 8


def test_views_show_each_pixel_of_a_box_once(image, cache, monkeypatch):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 1000)
    features = prepared(image, cache)
    seen = np.zeros(SHAPE, dtype=int)
    for view in features.views((10, 5, 41, 70)):
        seen[view.tile.core] += 1
        for stack in view.stacks:
            rows, cols = (side.start for side in view.tile.core)
            first = view.upsample(stack)[:, 0, 0] - features.means[stack.indices]
            np.testing.assert_allclose(
                first, features.sample(np.array([rows]), np.array([cols]))[0, stack.indices], atol=1e-4
            )
    assert (seen[10:41, 5:] == 1).all()
    assert seen.sum() == 31 * 65


@pytest.mark.parametrize("pixels_at_once", [2**20, 1000])
def test_a_second_look_computes_nothing(image, cache, monkeypatch, pixels_at_once):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", pixels_at_once)
    first = prepared(image, cache)
    first.store()
    monkeypatch.setattr(StackedBank, "tile_maps", lambda *_, **__: pytest.fail("maps were computed again"))
    second = prepared(image, cache)
    rows, cols = np.indices(SHAPE).reshape(2, -1)
    np.testing.assert_array_equal(second.sample(rows, cols), first.sample(rows, cols))
    np.testing.assert_array_equal(second.coarse, first.coarse)


def test_maps_that_left_the_cache_are_computed_again(image, cache, monkeypatch):
    features = prepared(image, cache)
    features.store()
    again = prepared(image, cache)  # knows the coarse grid, no maps yet
    for entry in cache.folder.iterdir():
        if not entry.stem.endswith("-coarse"):
            entry.unlink()
    rows, cols = np.array([3]), np.array([4])
    np.testing.assert_allclose(again.sample(rows, cols), features.sample(rows, cols), atol=1e-6)


def test_without_room_on_disk_memory_is_bounded(image, folder, rng, monkeypatch):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 1000)
    monkeypatch.setattr(segkit.live.features, "MEMORY_LIMIT", 400_000)
    features = prepared(image, FeatureCache(folder / "tiny", limit=1000))
    kept = sum(stack.values.nbytes for maps in features._kept.values() for stack in maps)
    assert 0 < kept <= 800_000
    rows, cols = rng.integers(0, SHAPE[0], 50), rng.integers(0, SHAPE[1], 50)
    expected = NormalisedBank(bank()).sample(image, rows, cols, None)
    np.testing.assert_allclose(features.sample(rows, cols), expected, atol=2e-4)


def test_memory_holds_maps_up_to_its_limit_and_no_more(image, folder, monkeypatch):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 1000)
    tiny = FeatureCache(folder / "tiny", limit=1000)
    total = prepared(image, tiny)._kept_bytes
    for limit, is_enough in ((total, True), (total - 1, False)):
        monkeypatch.setattr(segkit.live.features, "MEMORY_LIMIT", limit)
        assert (prepared(image, tiny)._kept_bytes == total) == is_enough


@pytest.mark.parametrize(("pixels_at_once", "on_disk"), [(2**20, False), (1000, True)])
def test_only_maps_of_a_single_tile_wait_in_memory(image, cache, monkeypatch, pixels_at_once, on_disk):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", pixels_at_once)
    prepared(image, cache)
    assert any("-tile" in entry.name for entry in cache.folder.iterdir()) == on_disk


@pytest.fixture
def painted(image, cache, monkeypatch):
    """A model, the features of an image, and the canvas of blocks of 16 x 16 pixels that it paints."""
    monkeypatch.setattr(segkit.live.features, "COARSE_CELLS", 216)
    monkeypatch.setattr("segkit.live.canvas.BLOCK", 16)
    features = prepared(image, cache)
    learner = Learner(
        Segmenter(), bank().strides(3), lambda _, rows, cols: features.sample(rows, cols), lambda key: key
    )
    model = learner.fit({"a": Labelled.of((image[:, :, 0] > 0.5).astype(np.uint8))})
    return model, features, Canvas(model, model.decide_coarse(features.coarse), 1, key="a", features=features)


def test_a_prediction_by_blocks_is_that_of_all_pixels_at_once(painted):
    model, features, canvas = painted
    every = features.sample(*np.indices(SHAPE).reshape(2, -1)).T.reshape(-1, *SHAPE)
    expected = model.rule.probabilities(model.decide_coarse(every))
    np.testing.assert_allclose(canvas.whole()[1], expected, atol=1e-3)


def test_the_block_nearest_to_the_middle_of_a_box_comes_first(painted):
    *_, canvas = painted
    blocks = iter(lambda: canvas.next_block((16, 16, 45, 64)), None)
    nearest_first = [(16, 32), (32, 32), (16, 16), (16, 48), (32, 16), (32, 48)]
    first, *others = blocks
    assert (first.corner, first.stride, first.values.shape) == ((0, 0), 4, (12, 18))
    assert [block.corner for block in others] == nearest_first
