from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.models import get_model

from segkit import OrbitBank, ScatteringBank
from segkit.features import (
    ConvNetBank,
    ElongatedBank,
    Module,
    ModuleBank,
    MultiscaleBank,
    OrbitAveraged,
    PositionBank,
    StackedBank,
)
from segkit.features import tiles as tiles_module
from segkit.features.tiles import cut, whole
from segkit.invariance import Composition, Rotation, Scaling

CONVNET = ConvNetBank("squeezenet1_0", weights="random", layers=["conv1", "fire2_expand3x3", "fire4_squeeze"])
PYRAMID = ConvNetBank(
    "vgg11", weights="random", layers=["conv1_1", "conv2_1"], pyramid=[1, 0.5, 0.3333333333]
)
VGG = ConvNetBank("vgg11", weights="random", layers=["conv1_1", "conv2_1"])
MULTISCALE = MultiscaleBank(sigma_max=2)
BANKS = [
    CONVNET,
    PYRAMID,
    ElongatedBank(sigmas=[1, 2]),
    ModuleBank((Module("gabor", n_scales=2, n_angles=4, pooling="average", factor=2, output="lowpass"),) * 2),
    OrbitBank((5,), n_templates=2, group=Composition((Rotation(4), Scaling((1.0, 1.3)))), stride=3),
    ScatteringBank(J=2, L=2),
    StackedBank([VGG, MULTISCALE]),
    StackedBank([MULTISCALE, PositionBank(), OrbitAveraged(VGG)]),
    OrbitAveraged(CONVNET),
    OrbitAveraged(VGG, group=Rotation(3)),
    OrbitAveraged(PositionBank()),
]


@settings(max_examples=60)
@given(
    shape=st.tuples(st.integers(1, 400), st.integers(1, 400)),
    halo=st.integers(0, 60),
    alignment=st.sampled_from([1, 2, 6, 16]),
    limit=st.integers(30**2, 150**2),
)
def test_cores_share_out_the_image_and_see_what_they_depend_on(shape, halo, alignment, limit):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles_module, "PIXELS_AT_ONCE", limit)
        tiles = cut(shape, halo, alignment)
    count = np.zeros(shape, dtype=int)
    for tile in tiles:
        count[tile.core] += 1
        for core, seen, inner, length in zip(tile.core, tile.seen, tile.inner, shape, strict=True):
            assert 0 <= seen.start <= core.start < core.stop <= seen.stop <= length
            assert seen.start == 0 or core.start - seen.start >= halo + alignment
            assert seen.stop == length or seen.stop - core.stop >= halo + alignment
            assert seen.start % alignment == 0
            assert range(length)[seen][inner] == range(length)[core]
        assert tile.shape == np.zeros(shape)[tile.seen].shape
    assert (count == 1).all()
    if shape[0] * shape[1] <= limit:
        assert tiles == [whole(shape)]
    elif 6 * (halo + 2 * alignment) < limit**0.5:
        assert max(np.prod(tile.shape) for tile in tiles) <= (limit**0.5 + alignment) ** 2


@pytest.mark.parametrize("bank", BANKS, ids=lambda bank: bank.label)
def test_features_by_tiles_are_those_of_the_image(bank, rng, monkeypatch):
    image = rng.random((150, 221, 3), dtype=np.float32)
    rows, cols = rng.uniform(-3, 152, 500), rng.uniform(-3, 223, 500)
    channels = np.sort(rng.permutation(bank.n_channels(3))[:40])
    expected = bank.sample(image, rows, cols, channels)
    monkeypatch.setattr(tiles_module, "PIXELS_AT_ONCE", 60**2)
    assert all(len(part.tiles(image.shape)) > 1 for part, _ in bank.split_by_bank(channels) if is_local(part))
    with record_shapes(bank) as shapes:
        found = bank.sample(image, rows, cols, channels)
    assert all(np.prod(shape[:2]) < 150 * 221 for part, shape in shapes if is_local(part))
    # filters of Fourier's domain have no sharp end
    share = {ElongatedBank: 0.05, ScatteringBank: 0.05, ModuleBank: 1e-3}.get(type(bank), 1e-4)
    assert (abs(found - expected).max(axis=0) <= share * expected.std(axis=0) + 1e-6).all()


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A file of random weights, with random normalisation, by which margins of zeros differ from what is there."""
    generator = torch.Generator().manual_seed(0)
    state = get_model("resnet18", weights=None).state_dict()
    for key, values in state.items():
        fan_in = np.prod(values.shape[1:]) if values.ndim == 4 else 1
        if values.is_floating_point():
            state[key] = torch.rand(values.shape, generator=generator).sub(0.3).mul(2 / fan_in**0.5)
        if key.endswith("running_var"):
            state[key] = state[key].abs() + 1
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(state, path)
    return path


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("vgg16", {}),
        ("mobilenet_v2", {"output_stride": 8}),
        ("resnet18", {}),
        ("convnext_tiny", {"layers": ["features.1.0", "features.3.2"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "".join(value),
)
def test_tiles_of_networks_equal_the_whole(network, options, resnet, rng, monkeypatch):
    bank = ConvNetBank(network, weights=resnet if network == "resnet18" else "random", **options)
    margin = bank.alignment * (bank.halo // bank.alignment + 2)
    image = rng.random((3 * margin, 40, 3), dtype=np.float32)
    rows, cols = rng.uniform(-1, 3 * margin, 400), rng.uniform(-1, 41, 400)
    expected = bank.sample(image, rows, cols)
    monkeypatch.setattr(tiles_module, "_PIXELS_ANYHOW", 0)
    monkeypatch.setattr(tiles_module, "bytes_left", lambda: 0)
    assert [tile.seen[0].indices(3 * margin)[:2] for tile in bank.tiles(image.shape)] == [
        (0, 2 * margin),
        (0, 3 * margin),
        (margin, 3 * margin),
    ]
    found = bank.sample(image, rows, cols)
    # some channels are zero at nearly all pixels
    bound = 1e-4 * abs(expected).max(axis=0) + 1e-6 * abs(expected).max()
    assert (abs(found - expected).max(axis=0) <= bound).all()


def test_networks_with_means_over_the_image_are_not_cut(monkeypatch):
    monkeypatch.setattr(tiles_module, "PIXELS_AT_ONCE", 60**2)
    shape = (2000, 1000, 3)
    bank = ConvNetBank("efficientnet_b0", weights="random", layers=["features.1.0"])
    assert not bank.is_local
    assert bank.tiles(shape) == [whole(shape)]
    stem = ConvNetBank("efficientnet_b0", weights="random", layers=["features.0"])
    assert stem.is_local
    assert len(stem.tiles(shape)) > 1


def is_local(bank):
    return not isinstance(bank, StackedBank)


@contextmanager
def record_shapes(bank):
    """Shapes of the images that a bank, or the banks it is made of, see."""
    shapes = []
    with pytest.MonkeyPatch.context() as patch:
        for part in getattr(bank, "banks", [bank]):

            def iter_maps(image, tile, channels=None, part=part, original=part.iter_maps):
                shapes.append((part, tile.shape))
                return original(image, tile, channels)

            patch.setattr(part, "iter_maps", iter_maps)
        yield shapes
    assert shapes


def test_what_rings_stays_whole():
    shape = (5000, 4000, 3)
    rings = ElongatedBank(sigmas=[0.5, 1])
    for bank in (rings, OrbitAveraged(rings), StackedBank([MULTISCALE, rings])):
        assert bank.tiles(shape) == [whole(shape)]
    for bank in (StackedBank([MULTISCALE, CONVNET]), PositionBank(), OrbitAveraged(CONVNET)):
        assert len(bank.tiles(shape)) >= 20


def test_tiles_suit_every_layer_at_every_scale():
    assert PYRAMID.alignment == 12  # strides 1 and 2 at sizes 1, 1/2 and 1/3
    assert VGG.alignment == 2


def test_channels_come_from_their_parts():
    bank = StackedBank([MULTISCALE, PositionBank(), CONVNET])
    n_first = MULTISCALE.n_channels(3)
    parts = bank.split_by_bank(np.array([1, 4, n_first + 1, n_first + 3]))
    assert [part for part, _ in parts] == [MULTISCALE, CONVNET]
    assert [own.tolist() for _, own in parts] == [[1, 4], [n_first + 1, n_first + 3]]
    [(part, own)] = MULTISCALE.split_by_bank(np.array([3]))
    assert part is MULTISCALE
    assert own.tolist() == [3]
