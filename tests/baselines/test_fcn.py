import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torchvision.models.segmentation import fcn_resnet50

from segkit.baselines import FCN
from segkit.baselines.networks import ResNetFCN, SkipFCN, build_skip_fcn
from segkit.errors import ConfigError, InputError, WeightsError


def picture(seed=0, n_channels=3, shape=(52, 60)):
    rng = np.random.default_rng(seed)
    mask = np.zeros(shape, dtype=np.uint8)
    mask[10:30, 12:44] = 1
    image = 0.35 + 0.3 * mask[:, :, None] + 0.05 * rng.standard_normal((*shape, n_channels))
    return image.astype(np.float32), mask


def tiny(backbone="squeezenet1_0", **options):
    defaults = {"crop": 64, "max_steps": 1, "batch_size": 1, "augment": False, "device": "cpu"}
    narrow = {} if backbone == "resnet50" else {"n_hidden": 8}
    return FCN(backbone, **defaults | narrow | options)


def halving(n_poolings):
    """An encoder that averages nothing: it takes the largest of each 2 x 2."""
    layers = [nn.Conv2d(1, 2, 1)]
    for _ in range(n_poolings):
        layers += [nn.MaxPool2d(2), nn.Conv2d(2, 2, 1)]
    return nn.Sequential(*layers)


def test_scores_are_the_sum_of_enlarged_maps():
    """FCN-8s of an encoder with strides 2 to 16, written out."""
    generator = torch.Generator().manual_seed(0)
    network = SkipFCN(halving(4), 1, 3, n_hidden=4, output_stride=8).eval()
    for parameter in network.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    images = torch.rand(2, 1, 33, 50, generator=generator)
    maps = {1: network.features[0](images)}
    for level in range(4):
        pooled = functional.max_pool2d(maps[2**level], 2)
        maps[2 ** (level + 1), "pool"] = pooled
        maps[2 ** (level + 1)] = network.features[2 * level + 2](pooled)
    hidden = functional.relu(network.fc6(maps[16]))
    hidden = functional.relu(network.fc7(hidden))

    def enlarge(scores, size):
        return functional.interpolate(scores, size=size, mode="bilinear", align_corners=False)

    assert list(network.skips) == ["5"]
    fine = network.skips["5"](maps[8, "pool"])
    expected = enlarge(enlarge(network.score(hidden), fine.shape[2:]) + fine, (33, 50))
    torch.testing.assert_close(network(images), expected)


def test_skips_are_the_poolings_between_output_stride_and_the_deepest():
    for backbone, output_stride, skips in [
        ("vgg16", 8, ["16", "23"]),
        ("vgg16", 16, ["23"]),
        ("vgg16", 32, []),
        ("vgg19", 8, ["18", "27"]),
        ("squeezenet1_0", 8, ["6"]),
        ("squeezenet1_0", 16, []),
    ]:
        network = build_skip_fcn(backbone, 3, 2, n_hidden=2, output_stride=output_stride)
        assert list(network.skips) == skips
        for layer in (network.score, *network.skips.values()):
            assert not layer.weight.any()
        first = network.features[0].weight
        assert first.std().item() == pytest.approx(np.sqrt(2 / first[0].numel()), rel=0.1)


def test_dropout_acts_in_training_only():
    network = SkipFCN(halving(2), 1, 2, n_hidden=16, output_stride=8)
    nn.init.normal_(network.score.weight)
    images = torch.rand(1, 1, 16, 16)
    assert not torch.equal(network.train()(images), network(images))
    assert torch.equal(network.eval()(images), network(images))


@pytest.mark.parametrize("n_channels", [1, 4])
def test_from_scratch_any_number_of_channels_will_do(n_channels):
    image, mask = picture(n_channels=n_channels)
    net = tiny().fit(image, mask)
    assert net.network_.features[0].in_channels == n_channels
    probabilities = net.predict_proba(image)
    assert probabilities.shape == (52, 60, 2)
    np.testing.assert_allclose(probabilities.sum(axis=2), 1, rtol=1e-5)


def test_fits_repeat_dropout_included():
    image, mask = picture()
    first, again = (tiny(max_steps=3, learning_rate=1e-3).fit(image, mask) for _ in range(2))
    for name, value in first.network_.state_dict().items():
        assert torch.equal(value, again.network_.state_dict()[name]), name
    assert first.history_ == again.history_


def test_resnet_is_torchvisions():
    ours, theirs = (
        ResNetFCN(3, 2).eval(),
        fcn_resnet50(weights=None, weights_backbone=None, num_classes=2).eval(),
    )
    theirs.load_state_dict(ours.fcn.state_dict())
    images = torch.rand(1, 3, 40, 48, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(images), theirs(images)["out"])


def test_resnet_takes_any_number_of_image_channels():
    network = tiny("resnet50")._build_network(2, 3).eval()
    assert isinstance(network, ResNetFCN)
    assert network(torch.rand(1, 2, 40, 48)).shape == (1, 3, 40, 48)


@pytest.mark.parametrize(
    ("backbone", "name", "n_fitting"),
    [("squeezenet1_0", "squeezenet1_0_rgb_f32", 50), ("vgg19", "vgg19_conv1_1-conv3_4_rgb_f32", 16)],
)
def test_pretrained_layers_are_loaded_and_the_rest_starts_from_scratch(shared, backbone, name, n_fitting):
    path = shared / "weights" / f"{name}.npz"
    image, mask = picture(n_channels=1)
    net = tiny(backbone, weights=path, preprocessing="caffe", learning_rate=1e-30).fit(image, mask)
    state = net.network_.state_dict()
    with np.load(path) as arrays:
        fitting = [key for key in arrays.files if key in state]
        for key in fitting:
            np.testing.assert_array_equal(state[key].numpy(), arrays[key])
    assert len(fitting) == n_fitting
    scratch = [key for key in state if key.startswith("features") and key not in fitting]
    assert all(state[key].std() > 0 for key in scratch if key.endswith("weight"))
    assert net.predict(image).shape == mask.shape


def save_weights(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_fully_connected_layers_become_convolutions(tmp_path, rng):
    fc6 = rng.standard_normal((8, 512 * 7 * 7), dtype=np.float32)
    fc7 = rng.standard_normal((5, 5), dtype=np.float32)
    arrays = {
        "features.0.weight": rng.standard_normal((64, 3, 3, 3), dtype=np.float32),
        "classifier.0.weight": fc6,
        "classifier.0.bias": np.arange(8, dtype=np.float32),
        "classifier.3.weight": fc7,  # of another width, and so left out
        "classifier.3.bias": np.arange(5, dtype=np.float32),
    }
    network = tiny("vgg16", weights=save_weights(tmp_path / "vgg.npz", **arrays))._build_network(3, 2)
    torch.testing.assert_close(network.fc6.weight.detach().reshape(8, -1), torch.from_numpy(fc6))
    assert network.fc6.bias.tolist() == list(range(8))
    assert network.fc7.weight.shape == (8, 8, 1, 1)
    signal = torch.rand(1, 512, 7, 7, generator=torch.Generator().manual_seed(0))
    connected = functional.linear(signal.flatten(1), torch.from_numpy(fc6), network.fc6.bias)
    torch.testing.assert_close(network.fc6(signal)[:, :, 3, 3], connected, rtol=1e-4, atol=1e-3)


def test_resnet_weights_have_torchvisions_names(tmp_path, rng):
    first = rng.standard_normal((64, 3, 7, 7), dtype=np.float32)
    path = save_weights(tmp_path / "resnet.npz", **{"conv1.weight": first})
    network = tiny("resnet50", weights=path)._build_network(1, 2)
    assert torch.equal(network.fcn.backbone.conv1.weight, torch.from_numpy(first))


def test_preprocessing_belongs_to_the_weights():
    for preprocessing, expected in [
        ("caffe", [-123.68, -116.779, -103.939]),
        ("torchvision", [-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]),
    ]:
        black = np.zeros((1, 2, 2, 1), dtype=np.float32)
        net = tiny(weights="imagenet", preprocessing=preprocessing)
        np.testing.assert_allclose(net._normalise(black)[0, 0, 0], expected, rtol=1e-5)
        np.testing.assert_array_equal(tiny()._normalise(black), black - 0.5)


def test_options_that_do_not_fit_are_named():
    for options, message in [
        (
            {"backbone": "alexnet"},
            "backbone='alexnet': input should be 'vgg16', 'vgg19', 'squeezenet1_0' or 'resnet50'",
        ),
        ({"output_stride": 4}, "output_stride=4: input should be 8, 16 or 32"),
        ({"preprocessing": "none"}, "preprocessing='none': input should be 'torchvision' or 'caffe'"),
        ({"n_hidden": 0}, "n_hidden=0: input should be greater than 0"),
        (
            {"backbone": "resnet50", "n_hidden": 8},
            "n_hidden=8 does nothing under backbone='resnet50': leave it out, or change backbone",
        ),
        (
            {"backbone": "resnet50", "output_stride": 16},
            "output_stride=16 does nothing under backbone='resnet50': leave it out, or change backbone",
        ),
        (
            {"preprocessing": "caffe"},
            "preprocessing='caffe' does nothing under weights=None: leave it out, or change weights",
        ),
        ({"crop": 72}, "crop=72: give a multiple of 32 of at least 64 pixels"),
    ]:
        with pytest.raises(ConfigError) as raised:
            tiny(**options).fit(*picture())
        assert str(raised.value) == message


def test_pretrained_networks_refuse_other_images(tmp_path):
    with pytest.raises(InputError) as raised:
        tiny(weights=tmp_path / "any.npz").fit(*picture(n_channels=4))
    assert str(raised.value) == (
        "images with 4 channels for pre-trained weights of three: "
        "give RGB or grey images, or train from scratch (weights=None)"
    )


def test_weights_that_do_not_fit_are_refused(tmp_path):
    strange = save_weights(tmp_path / "strange.npz", conv=np.zeros(3, dtype=np.float32))
    with pytest.raises(WeightsError) as raised:
        tiny(weights=strange).fit(*picture())
    assert str(raised.value) == (
        "weights hold conv, ...: none fits squeezenet1_0, which has features.0.weight, ...; "
        "give that network's weights, by torchvision's names"
    )
    wrong = save_weights(
        tmp_path / "wrong.npz", **{"features.0.weight": np.zeros((1, 3, 7, 7), dtype=np.float32)}
    )
    with pytest.raises(WeightsError) as raised:
        tiny(weights=wrong).fit(*picture())
    assert str(raised.value) == (
        "weights of features.0.weight have shape (1, 3, 7, 7), squeezenet1_0 needs (96, 3, 7, 7): "
        "give that network's weights"
    )
