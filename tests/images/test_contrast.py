"""Contrast of pictures: of what file whatever, something can be seen."""

import numpy as np
import pytest
from PIL import Image

from segkit.annotate.pictures import build_pyramid, render_tile
from segkit.images import overlay, write_overlay
from segkit.images.contrast import contrast_of, depth_of
from segkit.objects.pictures import object_overlay

FLAT = np.zeros((40, 50), dtype=int)


@pytest.mark.parametrize("n_channels", [1, 2, 3, 4])
@pytest.mark.parametrize("largest", [4095, 1023, 255])
def test_a_few_bits_of_16_are_not_black(rng, n_channels, largest):
    stored = rng.integers(0, largest + 1, (40, 50, n_channels))
    image = (stored / 65535).astype(np.float32)
    for picture in (overlay(image, FLAT), object_overlay(image, FLAT)):
        assert picture.min() == 0
        assert picture.max() > 240
        assert 90 < picture.mean() < 165
    if n_channels in (1, 3):
        live = render_tile(build_pyramid(image), 0, 0, 0).reshape(40, 50, -1)
        assert np.abs(live - overlay(image, FLAT).astype(float)).max() <= 1


def test_colours_of_8_bits_stay(rng):
    stored = rng.integers(40, 90, (40, 50, 3)).astype(np.uint8)
    np.testing.assert_array_equal(overlay((stored / 255).astype(np.float32), FLAT), stored)
    assert depth_of(stored / np.float32(255)) == "8"


def test_few_spots_and_flat_channels_are_shown():
    image = np.zeros((100, 100, 3), dtype=np.float32)
    image[3, 4, 0], image[5, 5, 0], image[:, :, 2] = 0.01, 0.004, 0.3001
    low, high = contrast_of(image)
    np.testing.assert_allclose((low, high), ([0, 0, 0], [0.01, 1, 1]))
    assert overlay(image, np.zeros((100, 100), dtype=int))[3:6, 4:6, 0].tolist() == [
        [255, 0],
        [0, 0],
        [0, 102],
    ]


def test_an_overlay_of_12_bits_can_be_seen(tmp_path, rng):
    write_overlay(tmp_path / "a.png", rng.integers(0, 4096, (40, 50, 3)) / 65535, FLAT)
    assert np.asarray(Image.open(tmp_path / "a.png")).mean() > 90
