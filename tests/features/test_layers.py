import pytest
import torch
from torch import nn
from torchvision.models import get_model

from segkit.errors import ConfigError
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
    paths = {layer.label: layer.label for layer in trace.layers if layer.is_default}
    assert len(paths) == RESIDUAL[network]
    if network == "mobilenet_v2":  # no sum: the block itself ends in its projection
        assert "features.2.projection" not in {layer.label for layer in trace.layers}
    paths |= PROJECTIONS.get(network, {})
    if network.startswith("resnet"):
        assert paths.pop("relu") == "relu"  # one module for all of torchvision's calls
    nodes = {layer.node: layer for layer in trace.layers if layer.label in paths}
    found = {nodes[node].label: output for node, output in trace.outputs(picture(), nodes)}
    expected = hooked(torchvision_model(network, trace.state), paths.values(), picture())
    assert found.keys() == paths.keys()
    for label, path in paths.items():
        assert_near(found[label], expected[path])


def test_non_linearities_of_channels_last_are_layers_too():
    layers = {layer.label: layer for layer in Trace("convnext_tiny", None).layers}
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
    marked = [layer.label for layer in layers if layer.is_global]
    assert marked[:1] == ([] if first_global is None else [first_global])
    if marked:
        assert all(layer.is_global for layer in layers[[layer.label for layer in layers].index(marked[0]) :])


def test_strides_of_pooling_functions_count():
    """Inception calls poolings as functions; its grids then follow from the sizes of its maps."""
    layers = {layer.node: layer for layer in Trace("inception_v3", None).layers}
    assert {layer.stride for layer in layers.values()} == {2, 4, 8, 16, 32}


def test_networks_that_cannot_be_traced_are_refused():
    with pytest.raises(ConfigError, match="network 'regnet_y_400mf' cannot be traced: choose vgg16"):
        Trace("regnet_y_400mf", None)
