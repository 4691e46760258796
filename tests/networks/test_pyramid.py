from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models import mobilenet_v2

from segkit.errors import ConfigError
from segkit.networks.pyramid import MOBILENET, PyramidNetwork, build, levels_of

TAPS = (1, 3, 6, 13, 17)


@pytest.fixture(scope="module")
def state():
    """Random weights of MobileNetV2, with random statistics and slopes of its batch normalisation."""
    generator = torch.Generator().manual_seed(0)
    found = mobilenet_v2(weights=None).state_dict()
    for name, values in found.items():
        if name.endswith("running_var") or (name.endswith("weight") and values.ndim == 1):
            found[name] = 0.5 + torch.rand(values.shape, generator=generator)
        elif name.endswith(("running_mean", "bias")):
            found[name] = torch.randn(values.shape, generator=generator) / 4
        elif values.ndim == 4:
            fan_in = np.prod(values.shape[1:])
            found[name] = torch.randn(values.shape, generator=generator) / fan_in**0.5
    return found


@pytest.fixture(scope="module")
def network(state):
    torch.manual_seed(0)
    return build(MOBILENET, state, 3, 2).eval()


def outputs(network, images):
    with torch.inference_mode():
        return network(torch.from_numpy(np.ascontiguousarray(images)))


def test_folded_batch_normalisation_gives_the_maps_of_torchvision(state, network, rng):
    whole = mobilenet_v2(weights=None)
    whole.load_state_dict(state)
    signal = images = torch.from_numpy(rng.standard_normal((2, 3, 64, 96), dtype=np.float32))
    expected = []
    with torch.inference_mode():
        for number, block in enumerate(whole.eval().features):
            signal = block(signal)
            if number in TAPS:
                expected.append(signal)
        found = network.encoder(images)
    assert len(found) == 5
    channels, strides = levels_of(MOBILENET)
    for level, other, n_channels, stride in zip(found, expected, channels, strides, strict=True):
        assert level.shape == (2, n_channels, 64 // stride, 96 // stride)
        np.testing.assert_allclose(level, other, rtol=1e-3, atol=1e-4 * other.std())
        assert other.std() > 1e-3
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in network.modules())


def test_the_folded_encoder_stays_the_same_function_in_training(network, rng):
    images = torch.from_numpy(rng.random((2, 3, 32, 32), dtype=np.float32))
    with torch.no_grad():
        expected = network.encoder(images)
        found = network.train().encoder(images)
    network.eval()
    for level, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(level, other)


@pytest.mark.parametrize("n_image_channels", [1, 2, 3, 5])
def test_weights_of_three_channels_serve_any_number(n_image_channels, state, rng):
    """One channel has the sum of the weights, more have them in turn, scaled so that sums stay as large."""
    torch.manual_seed(0)
    first = next(
        layer
        for layer in build(MOBILENET, state, n_image_channels, 2).encoder.modules()
        if isinstance(layer, nn.Conv2d)
    )
    torch.manual_seed(0)
    usual = next(
        layer for layer in build(MOBILENET, state, 3, 2).encoder.modules() if isinstance(layer, nn.Conv2d)
    ).weight
    assert first.weight.shape == (32, n_image_channels, 3, 3)
    for channel in range(n_image_channels):
        expected = usual.sum(1) if n_image_channels == 1 else usual[:, channel % 3] * 3 / n_image_channels
        torch.testing.assert_close(first.weight[:, channel], expected)


@pytest.mark.parametrize(
    ("given", "n_image_channels", "n_fixed"), [(True, 3, 4), (True, 1, 4), (True, 2, 0), (False, 3, 0)]
)
def test_the_first_blocks_of_given_weights_stay_as_they_are(given, n_image_channels, n_fixed, state, rng):
    """Random ones have all to learn, and channels that are neither grey nor RGB have weights of other channels."""
    network = build(MOBILENET, state if given else None, n_image_channels, 2).train()
    before = [
        [weight.detach().clone() for weight in block.parameters()] for block in network.encoder.features
    ]
    network(
        torch.from_numpy(rng.random((2, n_image_channels, 64, 64), dtype=np.float32))
    ).square().mean().backward()
    torch.optim.SGD(network.parameters(), lr=10).step()
    moved = [
        any(not torch.equal(weight, old) for weight, old in zip(block.parameters(), olds, strict=True))
        for block, olds in zip(network.encoder.features, before, strict=True)
    ]
    assert moved == [False] * n_fixed + [True] * (18 - n_fixed)


@pytest.mark.parametrize("n_image_channels", [1, 6])
def test_grey_images_give_the_outputs_of_three_equal_channels(n_image_channels, state, rng):
    """RGB has means of its own for each channel, which are made equal here."""
    torch.manual_seed(0)
    usual = build(MOBILENET, state, 3, 2).eval()
    torch.manual_seed(0)
    grey = build(MOBILENET, state, n_image_channels, 2).eval()
    usual.mean[:], usual.std[:] = usual.mean.mean(), usual.std.mean()
    assert grey.mean.shape == (n_image_channels, 1, 1)
    image = rng.random((1, 1, 32, 64), dtype=np.float32)
    expected = outputs(usual, image.repeat(3, axis=1))
    found = outputs(grey, image.repeat(n_image_channels, axis=1))
    np.testing.assert_allclose(found, expected, atol=1e-4 * expected.std())


def test_rgb_is_normalised_as_imagenet(network):
    assert network.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert network.std.flatten().tolist() == pytest.approx([0.229, 0.224, 0.225])


def test_outputs_are_those_of_a_batch_and_depend_on_their_own_image(network, rng):
    images = rng.random((3, 3, 64, 32), dtype=np.float32)
    together = outputs(network, images)
    assert together.shape == (3, 2, 64 // network.stride, 32 // network.stride)
    for index, image in enumerate(images):
        np.testing.assert_allclose(outputs(network, image[None])[0], together[index], atol=1e-5)
    assert abs(together[0] - together[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("strides", "n_inputs"), [((1, 2), 2 * 4 + 3), ((2, 4), 2 * 4 + 3), ((2, 8), 2 * 16 + 3)]
)
def test_cells_of_very_fine_maps_are_channels_that_come_back_in_their_places(strides, n_inputs, rng):
    """With weights that pass them on, the scores are the finest maps; the depth, here the first one, follows."""
    ratio = strides[1] // strides[0]
    fine, coarse = (
        torch.from_numpy(rng.random((1, n_channels, 8 * size, 16 * size), dtype=np.float32))
        for n_channels, size in ((2, ratio), (3, 1))
    )

    class Encoder(nn.Module):
        def forward(self, images):
            return [fine, coarse]

    network = PyramidNetwork(Encoder(), (2, 3), strides, 3, 2, depth=True, width=n_inputs).eval()
    with torch.no_grad():
        for layer in (network.narrow[0], network.score, network.score_depth):
            layer.weight[:] = torch.eye(*layer.weight.shape[:2])[:, :, None, None]
            layer.bias.zero_()
    found = outputs(network, np.zeros((1, 3, 8, 8), dtype=np.float32))
    assert len(network.mix) == 0
    torch.testing.assert_close(found, torch.cat([fine, fine[:, :1]], dim=1))
    with torch.no_grad():  # the first of the coarser maps in all cells
        network.score.weight.zero_()[:, 2 * ratio**2] = 1
    repeated = coarse[:, :1].repeat_interleave(ratio, 2).repeat_interleave(ratio, 3)
    torch.testing.assert_close(outputs(network, np.zeros((1, 3, 8, 8), dtype=np.float32))[:, 1:2], repeated)


def test_maps_at_stride_4_are_mixed_as_they_are(rng):
    fine, coarse = (torch.from_numpy(rng.random((1, 2, side, side), dtype=np.float32)) for side in (8, 4))

    class Encoder(nn.Module):
        def forward(self, images):
            return [fine, coarse]

    network = PyramidNetwork(Encoder(), (2, 2), (4, 8), 3, 3)
    assert len(network.mix) == 1
    assert outputs(network, np.zeros((1, 3, 32, 32), dtype=np.float32)).shape == (1, 3, 8, 8)


def test_all_later_convolutions_are_learnt(network, rng):
    images = torch.from_numpy(rng.random((2, 3, 64, 64), dtype=np.float32))
    network.train()
    network(images).square().sum().backward()
    network.eval()
    fixed = set(network.encoder.features[:4].modules())
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d) and layer not in fixed]
    weights = [layer.weight for layer in layers]
    assert len(weights) > 40
    assert all(weight.grad is not None and weight.grad.any() for weight in weights)
    network.zero_grad()


@pytest.fixture(scope="module")
def resnet():
    pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    torch.manual_seed(0)
    return build("test_resnet", None, 2, 3)


def test_statistics_of_encoders_of_timm_are_frozen(resnet, rng):
    images = torch.from_numpy(rng.random((2, 2, 32, 64), dtype=np.float32))
    before = {name: value.clone() for name, value in resnet.state_dict().items()}
    norms = [layer for layer in resnet.encoder.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert norms
    resnet.train()
    assert resnet.training
    assert not any(norm.training for norm in norms)
    resnet(images)
    for name, value in resnet.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_encoders_of_timm_have_maps_of_their_strides(resnet, rng):
    channels, strides = levels_of("test_resnet")
    images = torch.from_numpy(rng.random((1, 2, 32, 64), dtype=np.float32))
    with torch.inference_mode():
        levels = resnet.eval().encoder(images)
        found = resnet(images)
    assert [tuple(level.shape[1:]) for level in levels] == [
        (number, 32 // stride, 64 // stride) for number, stride in zip(channels, strides, strict=True)
    ]
    assert found.shape == (1, 3, 32 // strides[0], 64 // strides[0])


def test_weights_of_timm_go_by_the_names_of_the_whole_network(rng):
    """The names of its layers differ where only maps are asked for."""
    timm = pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    torch.manual_seed(0)
    whole = timm.create_model("convnext_atto").eval()
    with torch.no_grad():
        for weight in whole.parameters():
            weight.add_(torch.randn(weight.shape) / 100)
    network = build("convnext_atto", whole.state_dict(), 3, 2).eval()
    images = torch.from_numpy(rng.random((1, 3, 32, 64), dtype=np.float32))
    with torch.inference_mode():
        expected = whole.forward_intermediates(images, intermediates_only=True)
        found = network.encoder(images)
    for level, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(level, other, rtol=1e-4, atol=1e-5)


def test_networks_for_images_of_one_size_are_refused():
    pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    for network in ("vit_tiny_patch16_224", "efficientformer_l1"):
        with pytest.raises(
            ConfigError, match=f"{network} gives no maps of an image of .* give mobilenet_v2, or"
        ):
            levels_of(network)


def test_networks_that_normalise_small_maps_are_taken():
    """In training they refuse maps of a single cell."""
    pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    assert levels_of("skresnet18") == ((64, 64, 128, 256, 512), (2, 4, 8, 16, 32))


def test_networks_whose_maps_lie_on_no_grid_are_refused():
    """Convolutions without padding lose a border at each level."""
    pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    found = r"at stride 2 of an image of 32 x 64 has the shape \(64, 13, 29\), not \(64, 16, 32\): give mobilenet_v2"
    with pytest.raises(ConfigError, match=found):
        levels_of("legacy_xception")


@pytest.mark.parametrize("shape", [(64, 1, 3), (64, 3, 4), (4, 64, 1)])
def test_each_side_and_the_channels_of_all_maps_are_checked(shape, monkeypatch):
    class Encoder(nn.Module):
        feature_info = SimpleNamespace(reduction=lambda: [1, 2], channels=lambda: [8, 64])

        def forward(self, images):
            return [torch.empty(1, 8, *images.shape[2:]), torch.empty(1, *shape)]

    monkeypatch.setattr("segkit.networks.pyramid._of_timm", lambda _: Encoder())
    found = ", ".join(map(str, shape))
    with pytest.raises(
        ConfigError, match=rf"its map at stride 2 .* has the shape \({found}\), not \(64, 1, 2\)"
    ):
        levels_of(f"a network of {shape}")
