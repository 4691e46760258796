import numpy as np
import pytest
from scipy import ndimage

from segkit.errors import ConfigError
from segkit.features import ElongatedBank


@pytest.fixture
def image(rng):
    return ndimage.gaussian_filter(rng.random((40, 50, 3)), (1, 1, 0)).astype(np.float32)


def naive(image, sigma, elongation, angle):
    """Line and edge responses to kernels sampled in space; `angle` turns rows towards columns."""
    reach = int(4 * sigma * elongation)
    rows, cols = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    across = np.cos(angle) * cols - np.sin(angle) * rows
    along = np.sin(angle) * cols + np.cos(angle) * rows
    gaussian = np.exp(-0.5 * (across**2 + (along / elongation) ** 2) / sigma**2)
    gaussian /= 2 * np.pi * sigma**2 * elongation
    kernels = (across**2 / sigma**2 - 1) * gaussian, -across / sigma * gaussian
    return [ndimage.convolve(image.astype(float), kernel, mode="reflect") for kernel in kernels]


@pytest.mark.parametrize("channel_mode", ["mean", "each"])
def test_measures_are_those_of_kernels_in_space(image, channel_mode):
    bank = ElongatedBank(sigmas=[1.5, 2], channel_mode=channel_mode)
    image = image[:26, :30, :2]
    planes = image.transpose(2, 0, 1) if channel_mode == "each" else [image.mean(axis=2)]
    expected = []
    for plane in planes:
        for sigma in (1.5, 2):
            lines, edges = zip(*(naive(plane, sigma, 3, np.pi * k / 8) for k in range(8)), strict=True)
            expected += [
                np.max(np.negative(lines), axis=0),
                np.max(lines, axis=0),
                np.max(np.abs(edges), axis=0),
                np.std(lines, axis=0),
            ]
    np.testing.assert_allclose(bank.dense(image), expected, atol=1e-4)
    assert np.ptp(expected, axis=(1, 2)).min() > 0.005


def test_names_and_groups():
    bank = ElongatedBank(sigmas=[1, 2])
    assert [channel.name for channel in bank.channels(3)][4:6] == ["sigma=2 bright line", "sigma=2 dark line"]
    assert {channel.group for channel in bank.channels()} == {"lines sigma=1", "lines sigma=2"}
    names = [channel.name for channel in ElongatedBank(channel_mode="each").channels(3)]
    assert len(set(names)) == len(names) == 3 * 3 * 4
    assert names[12] == "c1 sigma=1 bright line"


@pytest.mark.parametrize("angle", [0, 67])
def test_a_line_of_any_direction_answers_at_its_width(angle, monkeypatch):
    """A Gaussian ridge of standard deviation s, of an endless line: sigma^2 s / (sigma^2 + s^2)^(3/2)."""
    rows, cols = np.indices((81, 81)) - 40
    across = np.cos(np.deg2rad(angle)) * cols - np.sin(np.deg2rad(angle)) * rows
    image = np.exp(-0.5 * (across / 2) ** 2)
    monkeypatch.setattr("segkit.features.elongated.ELONGATION", 2)
    monkeypatch.setattr("segkit.features.elongated.N_ANGLES", 180)
    bank = ElongatedBank(sigmas=[2])
    bright, dark, edge, _ = bank.dense(image)[:, 40, 40]
    assert bright == pytest.approx(4 * 2 / 8**1.5, rel=1e-3)
    assert abs(dark) < 1e-3
    assert edge < 1e-3
    np.testing.assert_allclose(bank.dense(1 - image)[[1, 0, 2, 3]], bank.dense(image), atol=1e-5)


def test_maps_turn_with_the_image(rng):
    image, bank = rng.random((33, 40, 3), dtype=np.float32), ElongatedBank()
    maps = bank.dense(image)
    np.testing.assert_allclose(bank.dense(np.rot90(image)), np.rot90(maps, axes=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(bank.dense(image[::-1]), maps[:, ::-1], atol=1e-6)


def test_nothing_is_seen_in_a_constant_image():
    """Not its frame either."""
    maps = ElongatedBank(sigmas=[0.7, 1, 3]).dense(np.full((41, 50), 0.8))
    np.testing.assert_allclose(maps, 0, atol=1e-6)


def test_sigmas_may_come_in_any_order(image):
    names = [channel.name for channel in ElongatedBank(sigmas=[4, 1]).channels(3)]
    assert ElongatedBank(sigmas=[4, 1]).halo == ElongatedBank(sigmas=[1, 4]).halo == 48
    wanted = np.array([names.index(channel.name) for channel in ElongatedBank(sigmas=[1, 4]).channels(3)])
    found = ElongatedBank(sigmas=[4, 1]).dense(image)[wanted]
    np.testing.assert_array_equal(found, ElongatedBank(sigmas=[1, 4]).dense(image))


def test_next_to_nothing_beyond_the_halo_matters(rng):
    bank = ElongatedBank(sigmas=[1])
    image = ndimage.gaussian_filter(rng.random((41, 41)), 1)
    changed = image.copy()
    far = np.maximum(*np.abs(np.indices(image.shape) - 20)) > bank.halo
    changed[far] = 0
    maps = bank.dense(image)
    difference = np.abs(bank.dense(changed) - maps)[:, 20, 20]
    assert (difference < 0.03 * maps.std(axis=(1, 2))).all()
    near = image.copy()
    near[20, 20 + 5] += 1
    assert not np.allclose(bank.dense(near)[:, 20, 20], maps[:, 20, 20], atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 30), (1, 1)])
def test_one_pixel_wide_is_as_if_it_went_on(rng, shape):
    image = ndimage.gaussian_filter(rng.random((*shape, 2)), (1, 1, 0))
    wide = np.tile(image, [9 if side == 1 else 1 for side in shape] + [1])
    middle = tuple(slice(4, 5) if side == 1 else slice(None) for side in shape)
    found = ElongatedBank().dense(image)
    assert found.shape == (12, *shape)
    np.testing.assert_allclose(found, ElongatedBank().dense(wide)[:, *middle], atol=5e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigmas": []}, r"sigmas=\[\]: value should have at least 1 item"),
        ({"sigmas": [1, 0]}, r"sigmas=\[1, 0\]: input should be greater than 0"),
        ({"sigmas": [np.inf]}, r"sigmas=\[inf\]: input should be a finite number"),
        ({"sigmas": 2}, "sigmas=2: input should be an instance of Sequence"),
        ({"channel_mode": "rgb"}, "channel_mode='rgb': input should be 'mean' or 'each'"),
    ],
)
def test_options_must_make_sense(image, options, message):
    with pytest.raises(ConfigError, match=message):
        ElongatedBank(**options).maps(image)
