import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from segkit.annotate.pictures import THUMBNAIL, TILE, Pictures, build_pyramid, halve, render_tile
from segkit.errors import InputError


def image_of(depth, shape, rng):
    values = rng.random(shape)
    if depth == "float":
        return (0.4 + 0.001 * values).astype(np.float32)
    largest = {"8": 255, "16": 65535}[depth]
    return (np.rint(largest * values * (1 if depth == "8" else 0.05)) / largest).astype(np.float32)


def naive_halves(image):
    height, width, n_channels = image.shape
    small = np.empty((-(-height // 2), -(-width // 2), n_channels), dtype=image.dtype)
    for row, column, channel in np.ndindex(small.shape):
        rows = [2 * row, min(2 * row + 1, height - 1)]
        columns = [2 * column, min(2 * column + 1, width - 1)]
        total = sum(int(image[r, c, channel]) for r in rows for c in columns)
        small[row, column, channel] = (total + 2) // 4
    return small


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3), st.sampled_from([np.uint8, np.uint16]))
def test_halves_are_means(height, width, n_channels, dtype):
    rng = np.random.default_rng(height + 10 * width)
    image = rng.integers(0, np.iinfo(dtype).max + 1, (height, width, n_channels)).astype(dtype)
    np.testing.assert_array_equal(halve(image), naive_halves(image))


@pytest.mark.parametrize("depth", ["8", "16", "float"])
@pytest.mark.parametrize("n_channels", [1, 5])
def test_depth_is_told_from_values(depth, n_channels, rng):
    image = image_of(depth, (40, 50, n_channels), rng)
    pyramid = build_pyramid(image)
    assert pyramid.depth == depth
    restored = pyramid.offset + pyramid.step * pyramid.levels[0]
    np.testing.assert_allclose(restored, image, atol=1e-7 if depth == "float" else 1e-6)


def test_tiles_of_eight_bits_are_the_file_itself(rng):
    values = rng.integers(0, 256, (TILE + 70, 2 * TILE + 5, 3)).astype(np.uint8)
    pyramid = build_pyramid((values / np.float32(255)).astype(np.float32))
    assert [level.shape[:2] for level in pyramid.levels] == [(582, 1029), (291, 515), (146, 258)]
    for row, column in np.ndindex(2, 3):
        expected = values[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
        np.testing.assert_array_equal(render_tile(pyramid, 0, row, column), expected)
    np.testing.assert_array_equal(render_tile(pyramid, 1, 0, 1), halve(values)[:, TILE:])


def test_other_depths_are_stretched_between_percentiles(rng):
    image = image_of("16", (100, 120, 1), rng)
    pyramid = build_pyramid(image)
    low, high = np.percentile(image, (0.35, 99.65))
    expected = np.rint(255 * np.clip((image[:, :, 0] - low) / (high - low), 0, 1))
    tile = render_tile(pyramid, 0, 0, 0)
    assert np.abs(tile - expected).max() <= 1
    assert (tile.min(), tile.max()) == (0, 255)


def test_chosen_contrast_and_channel(rng):
    image = image_of("8", (30, 40, 3), rng)
    tile = render_tile(build_pyramid(image), 0, 0, 0, channel=1, low=0.25, high=0.75)
    expected = np.rint(255 * np.clip((image[:, :, 1] - 0.25) / 0.5, 0, 1))
    assert np.abs(tile - expected).max() <= 1


def test_channels_have_colours_of_their_own():
    image = np.zeros((4, 8, 2), dtype=np.float32)
    image[:, :4, 0] = image[:, 4:, 1] = 1
    tile = render_tile(build_pyramid(image), 0, 0, 0)
    np.testing.assert_array_equal(tile[0, 0], (255, 0, 255))
    np.testing.assert_array_equal(tile[0, 7], (0, 255, 0))


def test_constant_images_are_drawn():
    for value in [0, 1, 0.123]:
        tile = render_tile(build_pyramid(np.full((5, 6, 1), value, dtype=np.float32)), 0, 0, 0)
        assert tile.shape == (5, 6)


def test_what_is_not_there(rng):
    for asked, message in [
        ({"level": 1}, "level 1 of an image with levels 0 to 0"),
        ({"row": 1}, "tile 1, 0 of level 0"),
        ({"column": -1}, "tile 0, -1 of level 0"),
        ({"channel": 3}, "channel 3 of an image with channels 0 to 2"),
        ({"low": 0.5, "high": 0.5}, "contrast from 0.5 to 0.5"),
    ]:
        place = {"level": 0, "row": 0, "column": 0, **asked}
        with pytest.raises(InputError, match=message):
            render_tile(build_pyramid(image_of("8", (20, 30, 3), rng)), **place)


def test_thumbnails_are_small_and_keep_their_shape(rng):
    pictures = Pictures(lambda _: image_of("16", (1200, 600, 1), rng))
    with Image.open(io.BytesIO(pictures.thumbnail("a"))) as small:
        assert small.size == (THUMBNAIL // 2, THUMBNAIL)


def test_few_images_stay_in_memory(rng, monkeypatch):
    monkeypatch.setattr("segkit.annotate.pictures._MEMORY", 2 * 64 * 64 * 3)
    reads = []

    def read(key):
        reads.append(key)
        return image_of("8", (64, 64, 3), rng)

    pictures = Pictures(read)
    for key in "abacba":
        pictures.pyramid(key)
    assert "".join(reads) == "abcba"
