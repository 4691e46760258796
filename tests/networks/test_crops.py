import sys

import numpy as np
import pytest

from segkit.errors import ConfigError
from segkit.images import UNLABELLED
from segkit.networks.crops import _MARGIN, CropSampler, augmenter


def numbered(shape):
    """An image whose every pixel is another one, and unlabelled ids."""
    image = np.arange(np.prod(shape), dtype=np.float32).reshape(*shape, 1)
    return image, np.full(shape, UNLABELLED, dtype=np.uint8)


def test_crops_are_windows_that_hold_a_labelled_pixel(rng):
    image, ids = numbered((40, 50))
    ids[3, 47] = 1
    sampler = CropSampler([image], [ids], crop=16, augment=False)
    crops, crop_ids = sampler.draw(30, rng)
    starts = set()
    for crop, mask in zip(crops, crop_ids, strict=True):
        row, col = np.argwhere(image[:, :, 0] == crop[0, 0, 0])[0]
        np.testing.assert_array_equal(crop, image[row : row + 16, col : col + 16])
        np.testing.assert_array_equal(mask, ids[row : row + 16, col : col + 16])
        assert np.count_nonzero(mask == 1) == 1
        starts.add((int(row), int(col)))
    assert {row for row, _ in starts} == {0, 1, 2, 3}
    assert {col for _, col in starts} <= set(range(32, 35))


def test_every_crop_of_a_dense_image_can_be_drawn(rng):
    image, ids = numbered((9, 10))
    ids[:] = 0
    crops, _ = CropSampler([image], [ids], crop=8, augment=False).draw(200, rng)
    assert set(crops[:, 0, 0, 0]) == {0, 1, 2, 10, 11, 12}


def test_small_images_and_their_labels_are_mirrored(rng):
    image, ids = numbered((5, 6))
    ids[:] = np.arange(30).reshape(5, 6)
    crops, crop_ids = CropSampler([image], [ids], crop=8, augment=False).draw(1, rng)
    np.testing.assert_array_equal(crops[0, :5, :6], image)
    np.testing.assert_array_equal(crops[0, 5:, :6, 0], image[[3, 2, 1], :, 0])
    np.testing.assert_array_equal(crop_ids[0], np.pad(ids, ((0, 3), (0, 2)), mode="reflect"))


@pytest.mark.parametrize("n_channels", [1, 3])
def test_augmented_crops_repeat_with_their_seed_and_leave_images_alone(n_channels, rng):
    image = rng.random((40, 40, n_channels), dtype=np.float32)
    ids = rng.integers(0, 3, (40, 40)).astype(np.uint8)
    before = image.copy(), ids.copy()
    sampler = CropSampler([image], [ids], crop=32, augment=True)
    first, again, other = (sampler.draw(4, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first[0].shape == (4, 32, 32, n_channels)
    assert (first[0].dtype, first[1].dtype) == (np.float32, np.uint8)
    assert set(np.unique(first[1])) <= {0, 1, 2, UNLABELLED}
    for ours, theirs in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(first[0], other[0])
    np.testing.assert_array_equal(image, before[0])
    np.testing.assert_array_equal(ids, before[1])


def test_labels_move_with_the_image(rng):
    side = 64 + 2 * _MARGIN
    mask = np.zeros((side, side), dtype=np.uint8)
    mask[20:50, 30:80] = 1
    image = 0.3 + 0.4 * mask[:, :, None].astype(np.float32)
    augment = augmenter(64, 1)
    for _ in range(20):
        varied, ids = augment(image, mask, rng)
        bright = varied[:, :, 0] > (varied.min() + varied.max()) / 2
        # interpolated edges may fall on either side
        assert np.mean(bright == (ids == 1)) > 0.97
        assert set(np.unique(ids)) == {0, 1}


def test_missing_albumentations_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "albumentations", None)
    with pytest.raises(ConfigError, match=r"pip install segkit-bio\[tuned\]"):
        augmenter(64, 3)
