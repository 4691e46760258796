import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit import OrbitBank, ScatteringBank
from segkit.errors import InputError
from segkit.features import (
    ConvNetBank,
    ElongatedBank,
    Module,
    ModuleBank,
    MultiscaleBank,
    OrbitAveraged,
    PositionBank,
    StackedBank,
    VolumeBank,
    bank_from_dict,
    bank_to_dict,
)
from segkit.features.base import FeatureMaps, as_image
from segkit.invariance import Rotation

SQUEEZENET = {"network": "squeezenet1_0", "weights": "random"}
SMALL = Module(n_scales=2, n_angles=2)
STRIDED = OrbitBank((5,), n_templates=2, stride=2)
# Banks, and how many channels their images have.
BANKS = [
    (ConvNetBank(**SQUEEZENET, layers=["conv1", "fire3_squeeze"], pyramid=(1, 0.5, 1 / 3)), 3),
    (ConvNetBank(**SQUEEZENET, layers=["conv1", "fire4_squeeze"], pyramid=(0.5,), channel_mode="each"), 2),
    (ModuleBank((replace(SMALL, factor=2), replace(SMALL, factor=3, pooling="average"))), 2),
    (ModuleBank((replace(SMALL, pooling="max", output="none"), SMALL), frequency_decreasing=False), 3),
    (ModuleBank((replace(SMALL, factor=2, pooling="max", output="lowpass"),) * 2), 2),
    (OrbitAveraged(ScatteringBank(J=(1, 2), L=2)), 3),
    (OrbitAveraged(ScatteringBank(J=(1, 2), L=2), group=Rotation(3)), 3),
    (OrbitAveraged(STRIDED), 3),
    (OrbitBank((5,), n_templates=2), 1),
    (STRIDED, 1),
    (PositionBank(), 1),
    (ScatteringBank(L=2), 1),
    (ScatteringBank(J=2, L=2, angles="averaged"), 2),
    (ScatteringBank(J=[3, 1], L=2, pixels=False, max_order=1), 3),
    (StackedBank([ScatteringBank(J=2, L=2), MultiscaleBank(sigma_max=2)]), 1),
    (VolumeBank(n_planes=3, sigma_max=2), 6),
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


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((2, 2, 2, 2)), "expected (H, W) or (H, W, C)"),
        (np.zeros((0, 4)), "no empty axis"),
        (np.zeros((4, 4), dtype=np.int64), "expected floats in [0, 1], uint8 or uint16"),
        (np.ma.masked_equal(np.eye(4), 0), "masked array that hides 12 of 16 values: fill them first"),
        (np.full((4, 4), np.nan), "holds NaN or infinity"),
    ],
)
def test_bad_images_are_refused_in_one_line(image, message):
    with pytest.raises(InputError) as caught:
        as_image(image)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.uint16])
def test_the_type_tells_the_range(dtype):
    most = True if dtype == np.bool_ else np.iinfo(dtype).max
    image = np.array([[0, most]], dtype=dtype)
    assert as_image(image).tolist() == [[[0.0], [1.0]]]
    assert as_image(np.ma.masked_array(image)).dtype == np.float32


def test_grey_images_gain_a_channel_axis():
    assert as_image(np.zeros((3, 5))).shape == (3, 5, 1)
    assert as_image(np.zeros((3, 5))).dtype == np.float32


@pytest.mark.parametrize(("bank", "n_image_channels"), BANKS, ids=lambda value: getattr(value, "label", None))
def test_strides_wanted_channels_and_sampled_pixels_are_those_of_all_maps(
    bank, n_image_channels, rng, monkeypatch
):
    image = rng.random((64, 72, n_image_channels), dtype=np.float32)
    before = image.copy()
    n_channels = bank.n_channels(n_image_channels)
    found = np.empty(n_channels)
    for stack in bank.maps(image):
        found[stack.indices] = stack.stride
    strides = bank.strides(n_image_channels)
    assert strides.dtype == np.float64
    np.testing.assert_array_equal(strides, found)
    everything = bank.dense(image)
    assert everything.dtype == np.float32
    assert len(everything) == len(bank.channels(n_image_channels)) == n_channels
    monkeypatch.setattr("segkit.features.averaged.BLOCK_SIZE", 100)
    wanted = np.unique([n_channels - 1, n_channels // 2, n_channels // 3, 0])[::-1]
    tolerance = 2e-5 * max(1, abs(everything).max())
    np.testing.assert_allclose(bank.dense(image, wanted), everything[wanted], atol=tolerance)
    rows, cols = np.array([0, 20, 63]), np.array([71, 11, 0])
    sampled = bank.sample(image, rows, cols, wanted)
    np.testing.assert_allclose(sampled, everything[wanted][:, rows, cols].T, atol=tolerance)
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize(
    ("kind", "bank"),
    [
        (
            "elongated",
            ElongatedBank(sigmas=[0.5, 3], channel_mode="each"),
        ),
        ("multiscale", MultiscaleBank(sigma_min=0.5, sigma_max=8)),
        ("position", PositionBank()),
        ("volume", VolumeBank(n_planes=5, z_spacing=6.25)),
    ],
)
def test_banks_are_stored_by_name_and_options(kind, bank):
    description = bank_to_dict(bank)
    assert description["kind"] == kind
    again = bank_from_dict(json.loads(json.dumps(description)))
    assert type(again) is type(bank)
    assert again.get_params() == bank.get_params()


@pytest.mark.parametrize(
    "bank",
    [
        ConvNetBank(**SQUEEZENET, layers=["conv1"]),
        ModuleBank((SMALL,)),
        OrbitAveraged(ScatteringBank(J=1, L=2)),
        OrbitBank((5,), n_templates=2),
        STRIDED,
        PositionBank(),
        ScatteringBank(J=1, L=2),
    ],
    ids=lambda bank: bank.label,
)
def test_channels_that_a_bank_does_not_have_are_refused(bank, rng):
    image = rng.random((12, 14))
    n_channels = len(bank.channels(1))
    rows = np.array([0, 3])
    assert bank.dense(image, []).shape == (0, 12, 14)
    assert bank.sample(image, rows, rows, []).shape == (2, 0)
    for channels in ([n_channels], [0, -1], [1, 1], [0.5], [True, False]):
        for use in (bank.maps, bank.dense, lambda image, wanted: bank.sample(image, rows, rows, wanted)):
            with pytest.raises(InputError) as caught:
                use(image, np.array(channels))
            assert str(caught.value) == (
                f"channels {channels}: give indices from 0 to {n_channels - 1}, each once"
            )
