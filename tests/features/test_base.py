import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit import ConvNetBank, ModuleBank, OrbitBank, ScatteringBank
from segkit.errors import InputError
from segkit.features import Module, OrbitAveraged, PositionBank
from segkit.features.base import FeatureMaps, as_image

BANKS = [
    ConvNetBank("squeezenet1_0", weights="random", layers=["1"]),
    ModuleBank((Module(n_scales=2, n_angles=3),)),
    OrbitAveraged(ScatteringBank(J=1, L=2)),
    OrbitBank((5,), n_templates=2),
    OrbitBank((5,), n_templates=2, stride=2),
    PositionBank(),
    ScatteringBank(J=1, L=2),
]


def bilinear(values, row, col, stride, offset):
    """One pixel of one map, written out."""
    height, width = values.shape
    v = min(max((row - offset) / stride, 0), height - 1)
    u = min(max((col - offset) / stride, 0), width - 1)
    top, left = int(v), int(u)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = v - top, u - left
    upper = values[top, left] * (1 - u) + values[top, right] * u
    lower = values[bottom, left] * (1 - u) + values[bottom, right] * u
    return upper * (1 - v) + lower * v


@settings(max_examples=20)
@given(
    stride=st.sampled_from([1.0, 2.0, 4.0, 3.0]),
    offset=st.sampled_from([0.0, 0.5, 1.5, -1.0, 3.0]),
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_upsampled_pixels_are_bilinear_and_equal_sampled_ones(stride, offset, height, width, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((3, height, width)).astype(np.float32)
    maps = FeatureMaps(values, np.arange(3), stride, offset)
    shape = (int(height * stride) + 1, int(width * stride) + 2)
    dense = maps.upsample(shape)
    rows, cols = rng.integers(shape[0], size=9), rng.integers(shape[1], size=9)
    naive = [
        [bilinear(channel, r, c, stride, offset) for channel in values]
        for r, c in zip(rows, cols, strict=True)
    ]
    np.testing.assert_allclose(dense[:, rows, cols].T, naive, atol=1e-5)
    np.testing.assert_array_equal(maps.sample(rows, cols), dense[:, rows, cols].T)


def test_upsampling_some_rows_gives_those_rows(rng):
    maps = FeatureMaps(rng.standard_normal((2, 5, 4)).astype(np.float32), np.arange(2), 4.0, 1.5)
    np.testing.assert_array_equal(maps.upsample((20, 16), np.arange(6, 11)), maps.upsample((20, 16))[:, 6:11])


def test_maps_as_large_as_the_image_are_its_pixels_only_without_an_offset(rng):
    values = rng.standard_normal((2, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(FeatureMaps(values, np.arange(2)).upsample((5, 4)), values)
    moved = FeatureMaps(values, np.arange(2), 1.0, (1.0, 0.0)).upsample((5, 4))
    np.testing.assert_array_equal(moved, values[:, [0, 0, 1, 2, 3]])


def test_linear_ramp_is_reproduced_between_cell_centres():
    centres = 1.5 + 4 * np.arange(6, dtype=np.float32)
    maps = FeatureMaps(np.tile(centres, (6, 1))[None], np.array([0]), 4.0, 1.5)
    np.testing.assert_allclose(maps.upsample((24, 24))[0, 10, 2:22], np.arange(2, 22), rtol=1e-6)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((2, 2, 2, 2)), "expected (H, W) or (H, W, C)"),
        (np.zeros((0, 4)), "no empty axis"),
        (np.zeros((4, 4), dtype=np.uint8), "expected floats in [0, 1]"),
        (np.full((4, 4), np.nan), "holds NaN or infinity"),
    ],
)
def test_bad_images_are_refused_in_one_line(image, message):
    with pytest.raises(InputError) as caught:
        as_image(image)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_grey_images_gain_a_channel_axis():
    assert as_image(np.zeros((3, 5))).shape == (3, 5, 1)
    assert as_image(np.zeros((3, 5))).dtype == np.float32


@pytest.mark.parametrize("bank", BANKS, ids=lambda bank: type(bank).__name__)
def test_channels_that_a_bank_does_not_have_are_refused(bank, rng):
    image = rng.random((12, 14))
    n_channels = len(bank.channels(1))
    rows = np.array([0, 3])
    assert bank.dense(image, []).shape == (0, 12, 14)
    assert bank.sample(image, rows, rows, []).shape == (2, 0)
    assert bank.n_channels(3) == len(bank.channels(3))
    for channels in ([n_channels], [0, -1], [1, 1], [0.5], [True, False]):
        for use in (bank.maps, bank.dense, lambda image, wanted: bank.sample(image, rows, rows, wanted)):
            with pytest.raises(InputError) as caught:
                use(image, np.array(channels))
            assert str(caught.value) == (
                f"channels {channels}: give indices from 0 to {n_channels - 1}, each once"
            )
