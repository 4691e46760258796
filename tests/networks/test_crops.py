import sys

import numpy as np
import pytest

from segkit.errors import ConfigError
from segkit.images import UNLABELLED
from segkit.networks.crops import _DISPLACEMENT, CropSampler, augmenter


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


@pytest.mark.parametrize("n_channels", [1, 3, 5])
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


@pytest.mark.parametrize("n_channels", [1, 3, 5])
@pytest.mark.parametrize("shape", [(112, 112), (96, 150)])
def test_labels_move_with_the_image(shape, n_channels, rng):
    mask = np.zeros(shape, dtype=np.uint8)
    mask[20:50, 30:80] = 1
    image = np.repeat(0.3 + 0.4 * mask[:, :, None].astype(np.float32), n_channels, axis=2)
    augment = augmenter(64, n_channels)
    for _ in range(10):
        varied, ids = augment(image, mask, rng)
        assert (varied.shape, ids.shape) == ((64, 64, n_channels), (64, 64))
        bright = varied[:, :, 0] > (varied.min() + varied.max()) / 2
        # interpolated edges may fall on either side
        assert np.mean(bright == (ids == 1)) > 0.97
        assert set(np.unique(ids)) == {0, 1}


@pytest.mark.parametrize("shape", [(1, 1), (5, 70), (40, 9)])
@pytest.mark.parametrize("n_channels", [1, 3, 5])
def test_images_smaller_than_a_crop_are_varied_too(shape, n_channels, rng):
    image = np.full((*shape, n_channels), 0.5, dtype=np.float32)
    ids = np.full(shape, 3, dtype=np.uint8)
    crops, crop_ids = CropSampler([image], [ids], crop=32, augment=True).draw(3, rng)
    assert crops.shape == (3, 32, 32, n_channels)
    assert (crop_ids == 3).all()
    assert 0.1 < crops.min() <= crops.max() <= 1


def test_transforms_are_drawn_independently(rng):
    """A flat image tells of noise and tints, and the order of sectors around the middle of a mirrored one."""
    rows, cols = np.indices((100, 100)) - 49.5
    sectors = (np.arctan2(rows, cols) // (np.pi / 4) % 8).astype(np.uint8)
    angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    around = tuple(np.round(31.5 + 24 * f(angles)).astype(int) for f in (np.sin, np.cos))
    augment = augmenter(64, 2)
    seen = []
    for _ in range(200):
        varied, ids = augment(np.full((100, 100, 2), 0.5, dtype=np.float32), sectors, rng)
        order = np.diff(ids[around].astype(int), append=int(ids[around][0]))
        is_mirrored = np.count_nonzero(order % 8 == 7) > np.count_nonzero(order % 8 == 1)
        is_tinted = abs(np.subtract(*varied.mean(axis=(0, 1)))) > 2e-3
        is_noisy = varied[:, :, 0].std() > 1e-4
        seen.append((is_mirrored, is_tinted, is_noisy))
    assert len(set(seen)) == 8
    assert np.mean(seen, axis=0) == pytest.approx([0.5, 0.7, 0.3], abs=0.1)
    assert abs(np.corrcoef(np.transpose(seen)) - np.eye(3)).max() < 0.2


def test_displacements_have_the_stated_size(rng):
    """Scales, turns and shears leave ramps straight: the rest is the displacement, in pixels by their slope."""
    crop, side = 192, 560
    rows, cols = np.indices((side, side), dtype=np.float32) / side
    ramps = 0.48 + 0.04 * np.stack([rows, cols], axis=2)
    plane = np.column_stack([np.ones(crop**2), *np.indices((crop, crop)).reshape(2, -1)])
    augment = augmenter(crop, 2)
    moves = []
    for _ in range(30):
        varied, _ = augment(ramps, np.zeros((side, side), dtype=np.uint8), rng)
        if abs(np.diff(varied, n=2, axis=0)).max() > 1e-3:
            continue  # noise
        values = varied.reshape(-1, 2)
        fit = np.linalg.lstsq(plane, values, rcond=None)[0]
        rest = np.sqrt(np.mean((values - plane @ fit) ** 2, axis=0)) / np.linalg.norm(fit[1:], axis=0)
        moves.append(rest)
    size = np.sqrt(np.mean(np.square(moves), axis=1))
    deformed = size[size > 0.5]
    assert 0.2 < len(deformed) / len(moves) < 0.8
    assert np.sqrt(np.mean(deformed**2)) == pytest.approx(_DISPLACEMENT, rel=0.15)
    assert size[size <= 0.5].max() < 0.2


def test_missing_albumentations_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "albumentations", None)
    with pytest.raises(ConfigError, match=r"pip install segkit-bio\[tuned\]"):
        augmenter(64, 3)
