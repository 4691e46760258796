import weakref

import pytest
import torch
from torch import nn
from torch.nn import Conv2d
from torch.nn.functional import conv2d
from torchvision.models import get_model

from segkit.errors import ConfigError, WeightsError
from segkit.features import ConvNetBank
from segkit.features.tracing import Trace

# Blocks as convolutional networks with residual sums have them: their number, with the stem and the last convolution.
RESIDUAL = {"resnet18": 9, "mobilenet_v2": 19, "efficientnet_b0": 18, "convnext_tiny": 18}
PROJECTIONS = {
    "resnet18": {"layer1.0.projection": "layer1.0.bn2", "layer2.0.projection": "layer2.0.bn2"},
    "mobilenet_v2": {"features.3.projection": "features.3.conv.3"},
    "efficientnet_b0": {"features.2.1.projection": "features.2.1.block.3"},
}


def assert_near(found, expected, tolerance=1e-4):
    """Compare maps to what rounding in single precision adds up to over some fifty layers."""
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


def picture(side=64):
    return torch.rand((1, 3, side, side), generator=torch.Generator().manual_seed(0))


def torchvision_model(network, state, **options):
    """Torchvision's own network, with given weights and without its head."""
    with torch.device("meta"):
        model = get_model(network, weights=None, **options).eval()
    model.load_state_dict(state, strict=False, assign=True)
    if hasattr(model, "fc"):
        model.fc = nn.Identity()
        return model
    return model.features


def hooked(model, modules, batch):
    """Outputs of modules during a forward pass, by path."""
    found = {}

    def keep(path):
        # a copy: torchvision's networks change maps in place
        return lambda module, inputs, output: found.update({path: output.clone()})

    inside = "features." if not isinstance(getattr(model, "fc", None), nn.Identity) else ""
    for path in modules:
        model.get_submodule(path.removeprefix(inside)).register_forward_hook(keep(path))
    with torch.inference_mode():
        model(batch)
    return found


@pytest.mark.parametrize("network", RESIDUAL)
def test_blocks_equal_torchvisions_forward_hooks(network):
    trace = Trace(network, None)
    paths = {layer.name: layer.name for layer in trace.layers if layer.is_default}
    assert len(paths) == RESIDUAL[network]
    if network == "mobilenet_v2":  # no sum: the block itself ends in its projection
        assert "features.2.projection" not in {layer.name for layer in trace.layers}
    paths |= PROJECTIONS.get(network, {})
    if network.startswith("resnet"):
        assert paths.pop("relu") == "relu"  # one module for all of torchvision's calls
    nodes = {layer.node: layer for layer in trace.layers if layer.name in paths}
    found = {nodes[node].name: output for node, output in trace.outputs(picture(), nodes)}
    expected = hooked(torchvision_model(network, trace.state), paths.values(), picture())
    assert found.keys() == paths.keys()
    for label, path in paths.items():
        assert_near(found[label], expected[path])


def test_non_linearities_of_channels_last_are_layers_too():
    layers = {layer.name: layer for layer in Trace("convnext_tiny", None).layers}
    assert layers["1_0_block_4"].channels_last
    assert layers["1_0_block_4"].n_channels == 384
    assert not layers["features.1.0"].channels_last
    # a kernel of 4 with stride 4 is centred between pixels 1 and 2
    assert (layers["features.1.0"].stride, layers["features.1.0"].offset) == (4, 1.5)


@pytest.mark.parametrize(
    ("network", "first_global"), [("efficientnet_b0", "features.1.0"), ("mobilenet_v2", None)]
)
def test_layers_behind_means_over_the_image_are_global(network, first_global):
    layers = Trace(network, None).layers
    marked = [layer.name for layer in layers if layer.is_global]
    assert marked[:1] == ([] if first_global is None else [first_global])
    if marked:
        assert all(layer.is_global for layer in layers[[layer.name for layer in layers].index(marked[0]) :])


def test_strides_of_pooling_functions_count():
    """Inception calls poolings as functions; its grids then follow from the sizes of its maps."""
    layers = {layer.node: layer for layer in Trace("inception_v3", None).layers}
    assert {layer.stride for layer in layers.values()} == {2, 4, 8, 16, 32}


def test_networks_that_cannot_be_traced_are_refused():
    with pytest.raises(ConfigError, match="network 'regnet_y_400mf' cannot be traced: choose vgg16"):
        Trace("regnet_y_400mf", None)


def test_grids_of_vgg_follow_from_its_kernels_and_strides():
    """Convolutions of 3 see one cell farther, a pooling of 2 half a cell, and doubles the stride."""
    layers = {layer.name: layer for layer in Trace("vgg16", None).layers}
    stride, offset, radius = 1.0, 0.0, 0.0
    for block, n_layers in enumerate((2, 2, 3, 3, 3), 1):
        for number in range(1, n_layers + 1):
            radius += stride
            layer = layers.pop(f"conv{block}_{number}")
            assert (layer.stride, layer.offset, layer.radius) == (stride, offset, radius)
        radius, offset, stride = radius + stride / 2, offset + stride / 2, 2 * stride
    assert not layers


def test_squeezenet_layers_have_the_names_of_their_paper():
    fires = [f"fire{n}_{part}" for n in range(2, 10) for part in ("squeeze", "expand1x1", "expand3x3")]
    assert [layer.name for layer in Trace("squeezenet1_0", None).layers] == ["conv1", *fires, "conv10"]


def test_layers_of_joined_branches_need_the_weights_of_both():
    by_label = {layer.name: layer for layer in Trace("squeezenet1_0", None).layers}
    for part in ("expand1x1", "expand3x3"):
        assert f"features.3.{part}.weight" in by_label["fire3_squeeze"].parameters
    assert "features.3.expand3x3.weight" not in by_label["fire2_expand1x1"].parameters


def test_network_stops_where_nothing_more_is_needed():
    trace = Trace("vgg16", None)
    nodes = [layer.node for layer in trace.layers[:2]]
    deeper = trace._graph_module.get_submodule("features.5")
    deeper.register_forward_hook(lambda *_: pytest.fail("the network ran on"))
    found = list(trace.outputs(torch.zeros(1, 3, 8, 8), nodes))
    assert [(node, output.shape[1]) for node, output in found] == [(node, 64) for node in nodes]


def test_maps_are_forgotten_after_their_last_use():
    trace = Trace("vgg16", None)
    nodes = [layer.node for layer in trace.layers[:4]]
    alive = []
    for _, output in trace.outputs(torch.zeros(1, 3, 16, 16), nodes):
        alive = [map_ for map_ in alive if map_() is not None]
        alive.append(weakref.ref(output))
        # besides this one, the one before: the loop holds it until this one is computed
        assert len(alive) <= 2


def test_weights_end_the_network_where_they_end():
    full = Trace("vgg16", None)
    first = {key: full.state[key] for key in full.layers[1].parameters}
    assert [layer.name for layer in Trace("vgg16", first).layers] == ["conv1_1", "conv1_2"]


@pytest.mark.parametrize("network", ["resnet18", "convnext_tiny"])
def test_what_has_no_weights_is_cut_off(network):
    """The rest has data, and can be moved to another device; also where a file ends early."""
    full = Trace(network, None)
    first = {key: full.state[key] for key in full.layers[2].parameters}
    for trace in (full, Trace(network, first)):
        assert trace.layers
        tensors = trace._graph_module.state_dict()
        assert tensors.keys() == trace.state.keys()
        assert not any(tensor.is_meta for tensor in tensors.values())


def test_weights_of_another_network_are_refused():
    with pytest.raises(
        WeightsError, match=r"features.0.weight have shape \(3, 3, 3, 3\), vgg16 needs \(64, 3, 3, 3\)"
    ):
        Trace("vgg16", {"features.0.weight": torch.zeros(3, 3, 3, 3)})
    with pytest.raises(
        WeightsError,
        match=r"weights lack features.0.weight, features.0.bias, which the first layer of vgg16 needs; "
        r"they hold unrelated, \.\.\.: give the weights of vgg16",
    ):
        Trace("vgg16", {"unrelated": torch.zeros(3)})
    with pytest.raises(WeightsError, match=r"they hold nothing: give the weights of vgg16"):
        Trace("vgg16", {})


def test_missing_names_are_listed_not_those_that_are_there():
    state = Trace("resnet18", None).state
    lacking = {key: value for key, value in state.items() if key not in ("bn1.running_mean", "bn1.bias")}
    with pytest.raises(WeightsError, match=r"weights lack bn1.bias, bn1.running_mean, which the first layer"):
        Trace("resnet18", lacking)


def test_batch_counters_may_be_missing():
    """Files of other tools hold no `num_batches_tracked`; inference does not use it."""
    full = Trace("resnet18", None)
    assert any(key.endswith("num_batches_tracked") for key in full.state)
    lacking = {key: value for key, value in full.state.items() if not key.endswith("num_batches_tracked")}
    trace = Trace("resnet18", lacking)
    assert [layer.name for layer in trace.layers] == [layer.name for layer in full.layers]
    images = torch.rand((1, 3, 64, 64), generator=torch.Generator().manual_seed(0))
    nodes = (full.layers[0].node, full.layers[-1].node)
    with torch.inference_mode():
        pairs = zip(full.outputs(images, nodes), trace.outputs(images, nodes), strict=True)
        for (_, with_counters), (_, without) in pairs:
            assert torch.equal(with_counters, without)


def test_counters_of_a_file_are_kept():
    full = Trace("resnet18", None)
    counted = {
        key: torch.tensor(7) if key.endswith("num_batches_tracked") else value
        for key, value in full.state.items()
    }
    assert Trace("resnet18", counted).state["bn1.num_batches_tracked"] == 7


def test_networks_without_convolutions_are_refused():
    with pytest.raises(ConfigError, match="vit_b_16"):
        Trace("vit_b_16", None)


@pytest.mark.parametrize(
    ("network", "output_stride"), [("resnet18", 8), ("convnext_tiny", 16), ("mobilenet_v2", 16), ("vgg16", 8)]
)
def test_cells_of_the_former_maps_are_among_those_of_dilated_ones(network, output_stride):
    plain, dilated = Trace(network, None), Trace(network, None, output_stride=output_stride)
    former = {layer.node: layer for layer in plain.layers if layer.is_default}
    finer = {layer.node: layer for layer in dilated.layers if layer.is_default}
    assert former.keys() == finer.keys()
    maps = dict(dilated.outputs(picture(), finer))
    steps = set()
    for node, expected in plain.outputs(picture(), former):
        layer = finer[node]
        assert layer.stride == min(former[node].stride, output_stride)
        assert (layer.offset, layer.radius) == (former[node].offset, former[node].radius)
        step = int(former[node].stride / layer.stride)
        steps.add(step)
        found = maps[node][:, :, ::step, ::step]
        rows, cols = (min(found.shape[axis], expected.shape[axis]) for axis in (2, 3))
        assert rows * cols
        assert_near(found[:, :, :rows, :cols], expected[:, :, :rows, :cols])
    assert max(steps) == 32 / output_stride if network != "vgg16" else max(steps) == 16 / output_stride


def test_resnet_equals_torchvisions_own_dilation():
    trace = Trace("resnet50", None, output_stride=8)
    by_label = {layer.name: layer for layer in trace.layers}
    labels = ["layer2.3", "layer3.0", "layer3.5", "layer4.0", "layer4.2"]
    model = torchvision_model("resnet50", trace.state, replace_stride_with_dilation=[False, True, True])
    expected = hooked(model, labels, picture())
    found = trace.outputs(picture(), [by_label[label].node for label in labels])
    for label, (_, output) in zip(labels, found, strict=True):
        assert output.shape[2:] == (8, 8)
        assert_near(output, expected[label])


def naive(features, x, output_stride):
    """MobileNetV2 block by block, with convolutions that skip cells in place of strides; outputs of the blocks."""
    stride, rate, outputs = 1, 1, []
    for block in features:
        y = x
        convolutions = [module for module in block.modules() if isinstance(module, Conv2d)]
        is_strided = any(convolution.stride[0] > 1 for convolution in convolutions)
        is_removed = is_strided and 2 * stride > output_stride
        for module in block.modules():
            if isinstance(module, Conv2d):
                step = 1 if is_removed else module.stride[0]
                padding = rate * module.padding[0]
                y = conv2d(y, module.weight, None, step, padding, rate, module.groups)
            elif not list(module.children()):
                y = module(y)
        x = x + y if getattr(block, "use_res_connect", False) else y
        if is_strided:
            stride, rate = (stride, 2 * rate) if is_removed else (2 * stride, rate)
        outputs.append(x)
    return outputs


def test_mobilenet_equals_a_naive_dilated_pass():
    """In double precision: other orders of summation add up over 52 convolutions."""
    trace = Trace("mobilenet_v2", None, output_stride=8)
    nodes = [layer.node for layer in trace.layers if layer.is_default]
    image = picture().double()
    with torch.inference_mode():
        expected = naive(torchvision_model("mobilenet_v2", trace.state).double(), image, 8)
    trace._graph_module.double()
    found = [output for _, output in trace.outputs(image, nodes)]
    assert len(found) == len(expected) == 19
    for output, naive_output in zip(found, expected, strict=True):
        assert_near(output, naive_output, tolerance=1e-12)


def test_poolings_that_cannot_be_dilated_are_refused():
    with pytest.raises(
        ConfigError, match="network densenet121: its poolings cannot be dilated, leave output_stride out"
    ):
        ConvNetBank("densenet121", weights="random", output_stride=8).channels()
