import numpy as np
import pytest

from segkit.centred import GRID, CentredBank, even_grid
from segkit.features import FeatureMaps, MultiscaleBank, ScatteringBank, StackedBank
from segkit.sampling import draw_pixels

BANK = StackedBank([ScatteringBank(J=2, L=2, angles="averaged"), MultiscaleBank(sigma_max=2)])


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).random((44, 60, 1)).astype(np.float32)


def test_pixels_spread_evenly_from_corner_to_corner():
    rows, cols = even_grid((31, 44))
    assert rows.size == cols.size == GRID**2
    assert (rows.min(), rows.max(), cols.min(), cols.max()) == (0, 30, 0, 43)
    np.testing.assert_allclose(np.diff(np.unique(rows)), 30 / (GRID - 1))


def test_turned_images_have_the_same_mean():
    image = np.random.default_rng(0).random((31, 44)).astype(np.float32)
    bank = MultiscaleBank(sigma_max=2)
    means = [
        bank.sample(picture, *even_grid(picture.shape)).mean(axis=0)
        for picture in (image, np.rot90(image).copy())
    ]
    np.testing.assert_allclose(means[0], means[1], atol=1e-5)


def test_features_are_about_their_mean_over_the_image(image):
    rows, cols = np.array([3, 20, 43]), np.array([0, 31, 59])
    X = BANK.sample(image, rows, cols)
    np.testing.assert_array_equal(CentredBank(BANK, "set").sample(image, rows, cols, None), X)
    mean = BANK.sample(image, *even_grid((44, 60))).mean(axis=0)
    np.testing.assert_allclose(
        CentredBank(BANK, "image").sample(image, rows, cols, None), X - mean, atol=1e-5
    )


def test_draws_are_read_in_one_pass(image):
    images = [image, image[::-1] + 1]
    ids = [np.random.default_rng(1).integers(0, 2, (44, 60)) for _ in images]
    rng = np.random.default_rng(2)
    draws = [draw_pixels(ids, 2, n_pixels, rng) for n_pixels in (10, 30)]
    bank, channels, passes = CentredBank(BANK, "image"), np.array([1, 4, 9]), []

    def follow(items, description):
        passes.append(description)
        return items

    found = bank.sample_draws(images, draws, channels, follow, "reading")
    assert passes == ["reading"]
    for X, drawn in zip(found, draws, strict=True):
        assert X.shape == (drawn.label.size, 3)
        for index, one in enumerate(images):
            mine = drawn.image == index
            expected = bank.sample(one, drawn.row[mine], drawn.col[mine], channels)
            np.testing.assert_allclose(X[mine], expected, atol=1e-5)


@pytest.mark.parametrize("normalization", ["image", "set"])
def test_centred_maps_hold_the_centred_features_of_pixels(image, normalization):
    bank, channels = CentredBank(BANK, normalization), np.array([0, 2, 5, 9, 12])
    rows, cols = np.indices((44, 60)).reshape(2, -1)
    expected = bank.sample(image, rows, cols, channels)
    found = 0
    for stack in BANK.maps(image, channels):
        columns = np.searchsorted(channels, stack.indices)
        centred = bank.centre(stack, (44, 60))
        assert centred.indices is stack.indices
        np.testing.assert_allclose(centred.sample(rows, cols), expected[:, columns], atol=1e-5)
        found += columns.size
    assert found == channels.size


def test_the_sum_of_centred_maps_is_the_centred_sum(image):
    bank = CentredBank(BANK, "image")
    stack = max(BANK.maps(image), key=lambda stack: len(stack.values))
    weights = np.random.default_rng(3).standard_normal((2, len(stack.values))).astype(np.float32)
    expected = np.tensordot(weights, bank.centre(stack, (44, 60)).values, axes=1)
    summed = np.tensordot(weights, stack.values, axes=1)
    found = bank.centre(FeatureMaps(summed, np.arange(2), stack.stride, stack.offset), (44, 60))
    np.testing.assert_allclose(found.values, expected, atol=1e-4)
