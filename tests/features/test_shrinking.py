from fractions import Fraction

import numpy as np
import pytest

from segkit.features.shrinking import shrink, shrink_ids, useful_scales
from segkit.images.labels import UNLABELLED

SCALES = [Fraction(1), Fraction(1, 2), Fraction(1, 4)]


def square(width, side=256):
    mask = np.zeros((side, side), dtype=np.uint8)
    mask[20 : 20 + width, 20 : 20 + width] = 1
    return mask


@pytest.mark.parametrize(("height", "width", "factor"), [(8, 12, 4), (9, 13, 4), (5, 7, 3)])
def test_blocks_are_means_of_the_mirrored_image(rng, height, width, factor):
    image = rng.random((height, width, 2), dtype=np.float32)
    padded = np.pad(image, [(0, -height % factor), (0, -width % factor), (0, 0)], mode="symmetric")
    found = shrink(image, factor)
    for row, col in np.ndindex(found.shape[:2]):
        block = padded[row * factor : (row + 1) * factor, col * factor : (col + 1) * factor]
        np.testing.assert_allclose(found[row, col], block.mean(axis=(0, 1)), rtol=1e-5)


def test_full_scale_is_the_image_itself(rng):
    image = rng.random((4, 4, 1), dtype=np.float32)
    assert shrink(image, 1) is image


def test_a_block_has_the_class_in_its_middle_and_thin_strokes_survive():
    ids = np.full((4, 8), UNLABELLED, dtype=np.uint8)
    ids[2, 2], ids[0, 0] = 1, 3  # the middle of the first block wins
    ids[3, 7] = 2  # in a corner of the second one
    np.testing.assert_array_equal(shrink_ids(ids, 4), [[1, 2]])


@pytest.mark.parametrize(("width", "n_scales"), [(15, 1), (34, 2), (66, 3)])
def test_coarse_scales_are_for_wide_regions(width, n_scales):
    # the widest place of a square is its middle, to a pixel
    assert useful_scales(SCALES, [square(width)], 2) == SCALES[:n_scales]


def test_coarse_scales_are_for_large_images():
    assert useful_scales(SCALES, [square(100), square(100, side=128)], 2) == SCALES[:2]


def test_the_region_of_the_median_pixel_counts():
    mask = square(66)
    mask[::8, 200:] = 1  # many thin regions of fewer pixels in all
    assert useful_scales(SCALES, [mask], 2) == SCALES


def test_strokes_tell_no_width():
    strokes = np.full((256, 256), UNLABELLED, dtype=np.uint8)
    strokes[10, 10:200], strokes[100, 10:200] = 0, 1
    assert useful_scales(SCALES, [strokes], 2) == SCALES
