import copy
import hashlib
import json
import pickle
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.base import clone
from torch import nn

from segkit.errors import ConfigError, InputError, WeightsError
from segkit.features import ConvNetBank, bank_from_dict, bank_to_dict
from segkit.features import weights as weights_module

PAGE = Path(__file__).parents[2] / "docs" / "banks.md"


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).random((48, 64, 3), dtype=np.float32)


@pytest.fixture(scope="module")
def vgg16():
    return ConvNetBank("vgg16", weights="random")


def first_layer(**options):
    return ConvNetBank("vgg16", weights="random", layers=["conv1_1"], **options)


def test_vgg_channels_are_named_by_layer_and_number():
    sizes = zip([2, 2, 4, 4, 4], [64, 128, 256, 512, 512], strict=True)
    expected = [
        f"conv{block}_{number}/{index:03d}"
        for block, (n_layers, width) in enumerate(sizes, start=1)
        for number in range(1, n_layers + 1)
        for index in range(width)
    ]
    assert [channel.name for channel in ConvNetBank("vgg19", weights="random").channels()] == expected


def test_maps_equal_the_network_run_layer_by_layer(vgg16, image):
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    signal = ((torch.from_numpy(image) - mean) / std).permute(2, 0, 1)[None]
    state = vgg16.weights_used(np.array([0, 64, 128, 256]), 3)
    layers = []
    for index in (0, 2, 5, 7):
        if index == 5:
            signal = nn.functional.max_pool2d(signal, 2)
        weight, bias = (torch.from_numpy(state[f"features.{index}.{name}"]) for name in ("weight", "bias"))
        signal = torch.relu(nn.functional.conv2d(signal, weight, bias, padding=1))
        layers.append(signal[0].numpy())
    maps = vgg16.maps(image, np.arange(384))
    assert [stack.stride for stack in maps] == [1, 1, 2, 2]
    assert [stack.offset for stack in maps] == [0, 0, 0.5, 0.5]
    for stack, layer in zip(maps, layers, strict=True):
        np.testing.assert_allclose(stack.values, layer, atol=1e-4)


@pytest.mark.parametrize("network", ["squeezenet1_0", "resnet18", "convnext_tiny"])
def test_an_edge_is_seen_where_it_is(network):
    """A step moved by one stride moves each map by one cell; the grid's offset says where it is."""
    bank = ConvNetBank(network, weights="random")
    layers = [layer for layer in bank._loaded().layers if layer.stride <= 8]
    for layer in layers[:: max(1, len(layers) // 4)]:
        bank = ConvNetBank(network, weights="random", layers=[layer.name])
        impulse = np.full((128, 128, 3), 0.5, dtype=np.float32)
        blank = bank.maps(impulse)[0]
        impulse[64, 64] = 1.0
        stack = bank.maps(impulse)[0]
        change = np.abs(stack.values - blank.values).max(axis=0) > 1e-6
        rows, cols = (stack.offset + stack.stride * np.flatnonzero(change.any(axis=axis)) for axis in (1, 0))
        for positions in (rows, cols):
            assert positions.size
            assert np.abs(positions - 64).max() <= layer.radius
            # pooling keeps only part of what it sees, so the seen region may be a cell short on a side
            assert abs(positions.mean() - 64) <= stack.stride


def test_layers_are_chosen_by_name():
    bank = ConvNetBank("squeezenet1_0", weights="random", layers=["fire2_squeeze"])
    assert bank.channels()[0] == ("fire2_squeeze/000", "fire2_squeeze")
    assert set(bank.weights_used(np.array([0]), 3)) == {
        "features.0.weight", "features.0.bias", "features.3.squeeze.weight", "features.3.squeeze.bias",
    }  # fmt: skip


def test_residual_networks_take_their_blocks_by_default():
    bank = ConvNetBank("mobilenet_v2", weights="random")
    assert bank.n_channels() == 2816
    groups = list(dict.fromkeys(channel.group for channel in bank.channels()))
    assert groups == [f"features.{number}" for number in range(19)]
    assert bank.channels()[32] == ("features.1/000", "features.1")
    assert ConvNetBank("resnet18", weights="random").channels()[64] == ("layer1.0/000", "layer1.0")
    every = ConvNetBank("mobilenet_v2", weights="random", layers=["activations"])
    assert every.n_channels() == 15_552
    assert every.label == bank.label == "mobilenet_v2"


def test_the_page_of_banks_lists_layers_strides_and_channels():
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*`.*`.*) \| (\d+ to \d+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert rows
    for network, layers, strides, n_channels in rows:
        bank = ConvNetBank(network, weights="random")
        groups = list(dict.fromkeys(channel.group for channel in bank.channels()))
        named = re.findall(r"`(.*?)`", layers)
        assert (named[0], named[-1]) == (groups[0], groups[-1])
        assert set(named) <= set(groups)
        assert strides == f"{bank.strides().min():g} to {bank.strides().max():g}"
        assert n_channels == f"{bank.n_channels():,}"


def test_plain_networks_take_all_non_linearities_by_default(vgg16):
    assert vgg16.channels() == ConvNetBank("vgg16", weights="random", layers=["activations"]).channels()


def test_channels_last_activations_are_given_channels_first(image):
    bank = ConvNetBank("convnext_tiny", weights="random", layers=["1_0_block_4"])
    [stack] = bank.maps(image)
    assert stack.values.shape == (384, 12, 16)
    np.testing.assert_array_equal(bank.maps(image, np.array([7]))[0].values, stack.values[7:8])


def test_layers_whose_weights_a_file_lacks_are_refused(shared, image):
    """The DeepLab file ends before the last convolution."""
    path = shared / "weights" / "mobilenet_v2_deeplab_voc_rgb_f32.npz"
    bank = ConvNetBank("mobilenet_v2", weights=path, output_stride=16)
    assert {channel.group for channel in bank.channels()} == {f"features.{number}" for number in range(18)}
    assert np.isfinite(bank.dense(image, np.array([0, 1000]))).all()
    with pytest.raises(
        WeightsError,
        match=r"^weights .*deeplab_voc_rgb_f32.npz lack features.18.0.weight, which layer features.18 of mobilenet_v2 "
        r"needs: leave that layer out \(bank.layers\), or give weights that hold it$",
    ):
        ConvNetBank("mobilenet_v2", weights=path, layers=["features.17", "features.18"]).channels()
    with pytest.raises(WeightsError, match=r"weights lack conv1.weight.* give the weights of resnet18"):
        ConvNetBank("resnet18", weights=path).channels()


def test_only_the_weights_of_wanted_channels_are_used(vgg16):
    assert set(vgg16.weights_used(np.array([70]), 3)) == {
        "features.0.weight", "features.0.bias", "features.2.weight", "features.2.bias",
    }  # fmt: skip


def test_pyramid_adds_scales_of_the_same_filters(image):
    bank = first_layer(pyramid=(1, 0.5, 0.25))
    assert len(bank.channels()) == 192
    assert {channel.group for channel in bank.channels()} == {"conv1_1", "conv1_1@0.5", "conv1_1@0.25"}
    maps = bank.maps(image)
    assert [(stack.stride, stack.offset) for stack in maps] == [(1, 0), (2, 0.5), (4, 1.5)]
    # a smooth image has nearly the same features at half its size
    ramp = np.broadcast_to(np.linspace(0, 1, 64, dtype=np.float32)[:, None, None], (64, 64, 3))
    full, half = bank.maps(ramp)[:2]
    flat = bank.maps(np.full((9, 9, 3), 0.5, np.float32))[0]
    difference = np.abs(half.upsample((64, 64)) - full.values)[:, 30:34, 30:34].max()
    assert difference < 0.2 * np.abs(flat.values).max()


def test_pyramid_mirrors_the_far_edges_to_a_whole_multiple():
    image = np.random.default_rng(0).random((33, 47, 3), dtype=np.float32)
    both, full, quarter = (
        ConvNetBank("vgg16", weights="random", layers=["conv1_2"], pyramid=pyramid)
        for pyramid in ((1, 0.25), (1,), (0.25,))
    )
    expected = np.concatenate([full.dense(image), quarter.dense(image)])
    np.testing.assert_array_equal(both.dense(image), expected)
    whole = np.pad(image, ((0, 3), (0, 1), (0, 0)), mode="reflect")
    np.testing.assert_array_equal(quarter.maps(image)[0].values, quarter.maps(whole)[0].values)


def test_pyramid_averages_what_it_leaves_out():
    """Stripes one pixel wide are grey at half the size, whichever columns they are in."""
    bank = first_layer(pyramid=(1 / 3,))
    stripes = np.zeros((60, 60, 3), dtype=np.float32)
    stripes[:, ::3] = 1
    shifted = [bank.maps(np.roll(stripes, shift, axis=1))[0].values[:, 5:-5, 5:-5] for shift in range(3)]
    spread = np.ptp(shifted, axis=0).max()
    grey = np.abs(bank.maps(np.full_like(stripes, 1 / 3))[0].values[:, 5:-5, 5:-5] - shifted[0]).max()
    assert max(spread, grey) < 0.35 * np.ptp(shifted[0])


def test_channel_modes():
    rng = np.random.default_rng(0)
    two = rng.random((16, 16, 2), dtype=np.float32)
    with pytest.raises(InputError, match=r"image with 2 channels .* bank.channel_mode=each"):
        ConvNetBank("vgg16", weights="random").maps(two)
    each, grey, mean = first_layer(channel_mode="each"), first_layer(), first_layer(channel_mode="mean")
    assert len(each.channels(2)) == 128
    np.testing.assert_allclose(each.dense(two)[64:], grey.dense(two[:, :, 1]), atol=1e-6)
    np.testing.assert_allclose(mean.dense(two), grey.dense(two.mean(axis=2)), atol=1e-6)
    assert "features.0.weight" in each.weights_used(np.array([100]), 2)


def test_preprocessing_belongs_to_the_weights(image):
    caffe = first_layer(preprocessing="caffe").maps(image)[0].values
    state = first_layer().weights_used(np.array([0]), 3)
    weight, bias = (torch.from_numpy(state[f"features.0.{name}"]) for name in ("weight", "bias"))
    signal = torch.from_numpy(image * 255 - np.array([123.68, 116.779, 103.939], dtype=np.float32)).permute(
        2, 0, 1
    )
    expected = torch.relu(nn.functional.conv2d(signal[None], weight, bias, padding=1))[0].numpy()
    np.testing.assert_allclose(caffe, expected, rtol=1e-4, atol=1e-2)


def test_parameters_set_after_use_are_used(tmp_path, image):
    """A bank that has run once, and is given other parameters, equals a bank made with these parameters."""
    options = {"network": "squeezenet1_0", "weights": "random", "layers": ["fire2_squeeze"]}
    state = ConvNetBank(**options, random_state=2).weights_used(np.array([0]), 3)
    np.savez(tmp_path / "weights.npz", **state)
    for later in ({"network": "squeezenet1_1"}, {"weights": tmp_path / "weights.npz"}):
        bank = ConvNetBank(**options)
        before = bank.dense(image)
        after = bank.set_params(**later).dense(image)
        np.testing.assert_array_equal(after, ConvNetBank(**options | later).dense(image))
        assert np.abs(after - before).max() > 0


def test_weights_given_count_as_long_as_the_parameters_behind_them_stay(image):
    options = {"network": "squeezenet1_0", "weights": "random", "layers": ["fire2_squeeze"]}
    other = ConvNetBank(**options, random_state=5)
    bank = ConvNetBank(**options)
    bank.use_weights(other.weights_used(np.array([0]), 3))
    np.testing.assert_array_equal(bank.dense(image), other.dense(image))
    bank.set_params(layers=["conv1"])
    np.testing.assert_array_equal(bank.dense(image), other.set_params(layers=["conv1"]).dense(image))
    for copied in (copy.deepcopy(bank), pickle.loads(pickle.dumps(bank))):
        np.testing.assert_array_equal(copied.dense(image), bank.dense(image))
    drawn = ConvNetBank(**options | {"layers": ["conv1"]})
    np.testing.assert_array_equal(clone(bank).dense(image), drawn.dense(image))
    bank.set_params(random_state=1)
    np.testing.assert_array_equal(bank.dense(image), drawn.set_params(random_state=1).dense(image))


def test_weights_that_do_not_fit_change_nothing(image):
    bank = ConvNetBank("squeezenet1_0", weights="random", layers=["conv1"])
    before = bank.dense(image)
    with pytest.raises(WeightsError, match=r"weights lack features.0.weight"):
        bank.use_weights({"unrelated": np.zeros(3, dtype=np.float32)})
    np.testing.assert_array_equal(bank.dense(image), before)


def test_truncated_weight_files_end_the_network(tmp_path, vgg16, image):
    state = vgg16.weights_used(np.array([255]), 3)
    tensors = {key: torch.from_numpy(value) for key, value in state.items()}
    np.savez(tmp_path / "weights.npz", **state)
    save_file(tensors, tmp_path / "weights.safetensors")
    torch.save(tensors, tmp_path / "weights.pth")
    expected = vgg16.dense(image, np.array([200]))
    for suffix in ("npz", "safetensors", "pth"):
        bank = ConvNetBank("vgg16", weights=tmp_path / f"weights.{suffix}")
        assert len(bank.channels()) == 256
        np.testing.assert_array_equal(bank.dense(image, np.array([200])), expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"preprocessing": "keras"},
            ConfigError,
            "preprocessing='keras': input should be 'torchvision' or 'caffe'",
        ),
        ({"channel_mode": "hsv"}, ConfigError, "channel_mode='hsv': input should be 'rgb', 'each' or 'mean'"),
        ({"pyramid": (2,)}, ConfigError, "pyramid=(2,): scales should be 1 or less"),
        ({"pyramid": (1, 0.5, 1)}, ConfigError, "pyramid=(1, 0.5, 1): each value should be given once"),
        ({"pyramid": (1, 0.6)}, ConfigError, "pyramid=(1, 0.6): scales should be 1, 1/2, 1/3 and so on"),
        (
            {"network": "vg16", "weights": "imagenet"},
            ConfigError,
            "network 'vg16' is not one of torchvision's: the nearest is vgg16",
        ),
        ({"layers": ["conv9_9"]}, ConfigError, "layers conv9_9 are not in vgg16: it has conv1_1"),
        (
            {"output_stride": 4},
            ConfigError,
            "output_stride=4: input should be 8, 16 or 32",
        ),
        ({"weights": "nowhere.npz"}, WeightsError, "weights nowhere.npz: no such file"),
    ],
)
def test_bad_options_are_one_line_with_a_cure(options, error, message):
    with pytest.raises(error) as caught:
        ConvNetBank(**{"network": "vgg16", "weights": "random"} | options).channels()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_options_survive_a_model_header():
    bank = ConvNetBank(
        "mobilenet_v2", weights="random", layers=["features.3"], output_stride=8, pyramid=(0.5,)
    )
    described = json.loads(json.dumps(bank_to_dict(bank)))
    assert described["output_stride"] == 8
    again = bank_from_dict(described)
    assert (again.channels(), again.output_stride, again.label) == (bank.channels(), 8, bank.label)
    assert bank.label == "mobilenet_v2 to features.3 at 0.5 with stride 8"


def test_images_too_small_for_the_network_are_refused():
    with pytest.raises(InputError, match=r"image of 8 x 8 pixels .* too small for vgg16"):
        ConvNetBank("vgg16", weights="random", layers=["conv5_1"]).maps(np.zeros((8, 8, 3), dtype=np.float32))
    with pytest.raises(InputError, match=r"image of 1 x 40 pixels \(scale 0.5\) is too small for vgg16"):
        first_layer(pyramid=[0.5]).maps(np.zeros((1, 40, 3), dtype=np.float32))


def test_files_that_would_execute_code_are_not_opened(tmp_path):
    class Attack:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "attacked",))

    torch.save({"features.0.weight": Attack()}, tmp_path / "attack.pth")
    with pytest.raises(WeightsError, match="hold more than arrays and were not opened"):
        ConvNetBank("vgg16", weights=tmp_path / "attack.pth").channels()
    assert not (tmp_path / "attacked").exists()
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(WeightsError, match="cannot be read"):
        ConvNetBank("vgg16", weights=tmp_path / "cut.npz").channels()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A file server on loopback, and an empty torch cache."""
    (tmp_path / "served").mkdir()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(tmp_path / "served")))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield tmp_path / "served", f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()


@pytest.fixture
def served_weights(server, vgg16):
    """A truncated VGG16 under a name that carries its hash."""
    folder, address = server
    state = {key: torch.from_numpy(value) for key, value in vgg16.weights_used(np.array([100]), 3).items()}
    torch.save(state, folder / "plain.pth")
    digest = hashlib.sha256((folder / "plain.pth").read_bytes()).hexdigest()[:8]
    path = (folder / "plain.pth").rename(folder / f"vgg16-{digest}.pth")
    return path, f"{address}/{path.name}"


def test_imagenet_weights_are_downloaded_once_and_checked(served_weights, monkeypatch, vgg16, image):
    path, address = served_weights
    monkeypatch.setattr(weights_module, "imagenet_address", lambda network: address)
    bank = ConvNetBank("vgg16")
    np.testing.assert_array_equal(bank.dense(image, np.array([100])), vgg16.dense(image, np.array([100])))
    path.unlink()
    assert len(ConvNetBank("vgg16").channels()) == 128
    assert len(ConvNetBank("vgg16", weights=address).channels()) == 128


def test_damaged_downloads_are_refused(served_weights):
    path, address = served_weights
    path.write_bytes(path.read_bytes()[:-7] + b"damaged")
    with pytest.raises(WeightsError, match=r"are damaged .*invalid hash"):
        ConvNetBank("vgg16", weights=address).channels()


def test_weights_that_were_replaced_in_the_cache_are_refused(served_weights, tmp_path):
    """The hash was compared when they were downloaded, and never again."""
    _, address = served_weights
    ConvNetBank("vgg16", weights=address).channels()
    [cached] = (tmp_path / "cache").rglob("*.pth")
    state = torch.load(cached, weights_only=True)
    torch.save({name: 2 * values for name, values in state.items()}, cached)
    told = rf"weights {cached} are damaged or were replaced \(sha256 .*, expected .*\): delete that file and try again"
    with pytest.raises(WeightsError, match=told):
        ConvNetBank("vgg16", weights=address).channels()
    cached.unlink()
    assert len(ConvNetBank("vgg16", weights=address).channels()) == 128


def test_absent_network_says_how_to_get_weights(server):
    _, address = server
    with pytest.raises(WeightsError, match=r"cannot be downloaded .*weights=FILE.*take the default bank"):
        ConvNetBank("vgg16", weights=f"{address}/vgg16-00000000.pth").channels()
    with pytest.raises(WeightsError, match="carries no sha256"):
        ConvNetBank("vgg16", weights=f"{address}/vgg16.pth").channels()


def test_torchvision_names_an_address_with_a_hash():
    assert weights_module.imagenet_address("vgg16").endswith("vgg16-397923af.pth")
