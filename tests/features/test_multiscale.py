import numpy as np
import pytest
from scipy import ndimage
from skimage.feature import multiscale_basic_features

from segkit.errors import ConfigError
from segkit.features import MultiscaleBank


@pytest.fixture
def image(rng):
    return ndimage.gaussian_filter(rng.random((40, 50, 3)), (2, 2, 0)).astype(np.float32)


@pytest.mark.parametrize("shape", [(40, 50), (2, 130), (130, 2), (3, 3)])
def test_maps_are_scikit_images_in_its_order(rng, shape):
    """Blocks and strips of the product and the derivatives end before and at the edges of these shapes."""
    image = ndimage.gaussian_filter(rng.random((*shape, 3)), (1, 1, 0)).astype(np.float32)
    expected = multiscale_basic_features(image, sigma_min=1, sigma_max=8, channel_axis=-1)
    found = MultiscaleBank(sigma_max=8).dense(image)
    np.testing.assert_allclose(found, expected.transpose(2, 0, 1), atol=3e-7)


def test_names_say_what_a_channel_measures(image):
    bank = MultiscaleBank(sigma_max=4)
    names = [channel.name for channel in bank.channels(3)]
    blurred = ndimage.gaussian_filter(image[:, :, 1], 2, mode="nearest")
    found = bank.dense(image, np.array([names.index("c1 sigma=2 intensity")]))[0]
    np.testing.assert_allclose(found, blurred, atol=1e-6)
    assert len(names) == len(set(names)) == 3 * 3 * 4
    assert bank.channels(1)[4].group == "sigma=2"


def test_measures_left_out_leave_the_others_as_they_are(image):
    bank = MultiscaleBank(sigma_max=2)
    whole = bank.dense(image)
    for measures in ([0], [1], [2], [3], [0, 3], [1, 2], [0, 1], [2, 0, 1]):
        wanted = np.array([12 + measure for measure in measures] + [20])
        np.testing.assert_array_equal(bank.dense(image, wanted), whole[wanted])


def test_nothing_beyond_the_halo_matters(rng):
    bank = MultiscaleBank(sigma_max=2)
    image = rng.random((41, 41)).astype(np.float32)
    changed = image.copy()
    far = np.maximum(*np.abs(np.indices(image.shape) - 20)) > bank.halo
    changed[far] = 0
    np.testing.assert_allclose(bank.dense(changed)[:, 20, 20], bank.dense(image)[:, 20, 20], atol=1e-6)
    near = image.copy()
    near[20, 20 + 8] += 1
    assert not np.allclose(bank.dense(near)[:, 20, 20], bank.dense(image)[:, 20, 20], atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 30), (30, 1)])
def test_one_pixel_wide_is_as_if_it_went_on(rng, shape):
    image = rng.random((*shape, 2)).astype(np.float32)
    bank = MultiscaleBank(sigma_max=2)
    wide = np.pad(image, [(0, 5 * (side == 1)) for side in shape] + [(0, 0)], mode="edge")
    expected = bank.dense(wide)[:, : shape[0], : shape[1]]
    assert bank.dense(image).shape == (16, *shape)
    np.testing.assert_allclose(bank.dense(image), expected, atol=1e-6)


@pytest.mark.parametrize("sigmas", [(0, 1), (4, 2), (1, float("inf"))])
def test_blurs_must_make_sense(image, sigmas):
    with pytest.raises(
        ConfigError, match=r"^sigma_m(in|ax)=.*(give 0 < sigma_min <= sigma_max|input should be)"
    ):
        MultiscaleBank(sigma_min=sigmas[0], sigma_max=sigmas[1]).maps(image)
