import re

import numpy as np
import pytest
from kymatio import Scattering2D
from scipy import ndimage

from segkit.errors import ConfigError, InputError
from segkit.features import ScatteringBank
from segkit.features.scattering import _least_tile, _margin


@pytest.fixture(scope="module")
def image():
    noise = np.random.default_rng(0).random((70, 90, 3))
    return ndimage.gaussian_filter(noise, (2, 2, 0)).astype(np.float32)


@pytest.fixture(scope="module")
def small():
    """Few angles: kymatio's filters take long to build."""
    return ScatteringBank(J=(1, 2), L=3)


def test_channels_are_named_in_kymatios_order():
    paths = Scattering2D(J=2, shape=(16, 16), L=3, frontend="numpy", out_type="list")(
        np.zeros((16, 16), np.float32)
    )
    names = [channel.name for channel in ScatteringBank(J=2, L=3, pixels=False).channels(1)]
    assert len(names) == len(paths)
    for name, path in zip(names, paths, strict=True):
        wavelets = [f"j={j} angle={60 * theta:g}" for j, theta in zip(path["j"], path["theta"], strict=True)]
        assert name == f"J2 order {len(path['j'])}" + (": " + " > ".join(wavelets) if wavelets else "")


@pytest.mark.parametrize(("J", "n_channels"), [(1, 1 + 8), (3, 1 + 24 + 192)])
def test_number_of_paths(J, n_channels):
    assert len(ScatteringBank(J=J, pixels=False).channels(1)) == n_channels
    assert len(ScatteringBank(J=J).channels(5)) == 5 * (n_channels + 1)


@pytest.mark.parametrize("longest", [56, 400])
def test_tiles_agree_with_the_whole_image(image, longest, monkeypatch):
    """In 3 x 3 tiles, and in one. Kymatio on the whole image mirrors its edges in its own way, so borders are left out."""
    whole = Scattering2D(J=2, shape=(72, 92), L=3, frontend="numpy")(
        np.ascontiguousarray(np.pad(image, ((0, 2), (0, 2), (0, 0)), mode="symmetric").transpose(2, 0, 1))
    )
    monkeypatch.setattr("segkit.features.scattering._LONGEST", longest)
    stack = ScatteringBank(J=2, L=3, pixels=False).maps(image)[0]
    assert (stack.stride, stack.offset) == (4, 0)
    ours = stack.values.reshape(whole.shape[0], whole.shape[1], 18, 23)
    inner = (slice(None), slice(None), slice(3, -3), slice(3, -3))
    error = np.abs(ours - whole)[inner].max(axis=(2, 3))
    assert (error < 0.05 * whole[inner].std(axis=(2, 3))).all()


@pytest.mark.parametrize(
    ("shape", "J", "sides"),
    [
        ((60, 80), 3, (112, 128)),  # one tile, as large as the image and its margins
        ((256, 256), 3, (320, 320)),
        ((512, 512), 3, (320, 320)),  # 2 x 2
        ((512, 100), 3, (320, 160)),
        ((10, 10), 5, (224, 224)),
    ],
)
def test_tiles_are_those_that_transform_the_fewest_pixels(monkeypatch, shape, J, sides):
    used = []

    def transform(scale, shape, *options):
        used.append(shape)
        cells = [(side >> scale) - 6 for side in shape]
        return lambda plane, wanted: np.zeros((wanted.size, *cells), dtype=np.float32)

    monkeypatch.setattr("segkit.features.scattering._scattering", transform)
    maps = ScatteringBank(J=J, pixels=False).maps(np.zeros(shape), np.array([0]))[0]
    assert used == [sides]
    assert maps.values.shape == (1, -(-shape[0] >> J), -(-shape[1] >> J))


def test_the_image_itself_is_among_the_channels(small, image):
    np.testing.assert_array_equal(small.dense(image, np.arange(3)), image.transpose(2, 0, 1))


def test_front_ends_agree(small, image):
    kymatio = ScatteringBank(J=(1, 2), L=3, frontend="torch")
    np.testing.assert_allclose(kymatio.dense(image), small.dense(image), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "n"), [({"J": 3}, 1 + 3 + 3 * 5), ({"J": 2, "L": 3}, 1 + 2 + 2), ({"J": 1}, 2)]
)
def test_averages_have_a_channel_for_each_angle_between_wavelets(options, n):
    channels = ScatteringBank(**options, angles="averaged", pixels=False).channels(1)
    assert len({channel.name for channel in channels}) == n


def test_averages_are_means_over_the_paths_that_turns_take_to_one_another(small, image):
    averaged = ScatteringBank(J=(1, 2), L=3, angles="averaged")
    everything, maps = small.dense(image), averaged.dense(image)
    classes = {}
    for name, values in zip([channel.name for channel in small.channels(3)], everything, strict=True):
        kind, *angles = re.split(r" angle=(\d+)", name)
        turn = abs(int(angles[0]) - int(angles[2])) if len(angles) > 2 else None  # 60 and 120 are one angle
        classes.setdefault((kind, *angles[1::2], None if turn is None else min(turn, 180 - turn)), []).append(
            values
        )
    assert len(maps) == len(classes) == averaged.n_channels(3)
    for mine, members in zip(maps, classes.values(), strict=True):
        np.testing.assert_allclose(mine, np.mean(members, axis=0), atol=1e-6)


def test_scales_may_be_of_numpys_types(image):
    found = ScatteringBank(J=np.array([1, 2]), L=np.int64(2)).dense(image)
    np.testing.assert_array_equal(found, ScatteringBank(J=(1, 2), L=2).dense(image))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"J": 0}, "J=0: input should be greater than 0"),
        ({"J": ()}, "J=(): value should have at least 1 item"),
        ({"J": (2, 7)}, "J=(2, 7): input should be less than or equal to 6"),
        ({"J": 2.5}, "J=2.5: input should be a valid integer"),
        ({"J": True}, "J=True: input should be a valid integer"),
        ({"J": (2, 1, 2)}, "J=(2, 1, 2): each value should be given once"),
        ({"L": 0}, "L=0: input should be greater than 0"),
        ({"L": 2.5}, "L=2.5: input should be a valid integer"),
        ({"max_order": 3}, "max_order=3: input should be 1 or 2"),
        ({"angles": "none"}, "angles='none': input should be 'each' or 'averaged'"),
        ({"frontend": "jax"}, "frontend='jax': input should be 'numpy' or 'torch'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError) as caught:
        ScatteringBank(**options).channels(1)
    assert message in str(caught.value)


def test_more_paths_than_can_be_computed_are_refused():
    """At once: a list of these would be longer than memory."""
    for options in ({"J": 6, "L": 64}, {"J": (5, 6), "L": 64}):
        with pytest.raises(ConfigError, match="paths, at most 20,000 can be computed; give fewer angles"):
            ScatteringBank(**options).n_channels(1)
    assert ScatteringBank(J=3, L=64, max_order=1).n_channels(1) == 194


def test_filters_that_time_or_memory_do_not_allow_are_refused(rng, monkeypatch):
    """Before a single one is made, of a model file too."""
    with pytest.raises(
        ConfigError, match="wavelets of 3,279 pixels, at most 2,048 can be computed; give fewer angles"
    ):
        ScatteringBank(J=6, L=32, max_order=1).n_channels(1)
    image = rng.random((1500, 1500, 1), dtype=np.float32)
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: 2**26)
    with pytest.raises(InputError, match=r"scattering with J=5, L=8 of \d+ x \d+ pixels at a time: needs "):
        ScatteringBank(J=5, L=8).maps(image)


@pytest.mark.parametrize("shape", [(20, 20_000), (1, 20_000), (100, 7735), (7735, 5)])
def test_thin_images_are_those_of_their_parts(rng, shape):
    """No number of tiles was tried that is short enough."""
    bank = ScatteringBank(J=3, L=4, angles="averaged")
    image = rng.random(shape, dtype=np.float32)
    some = np.array([0, 1, 13])
    maps = bank.dense(image, some)
    assert maps.shape == (3, *shape)
    part = tuple(slice(0, min(size, 300)) for size in shape)
    inner = tuple(slice(0, min(size, 200)) for size in shape)
    expected = bank.dense(image[part], some)
    np.testing.assert_allclose(maps[:, *inner], expected[:, *inner], atol=2e-3)


def test_tiles_of_any_length_fit():
    for scale in range(1, 7):
        for length in (1, 300, 7735, 20_000, 10**6):
            assert 0 < _least_tile(length, scale) + 2 * _margin(scale) <= 400 << max(0, scale - 4)
