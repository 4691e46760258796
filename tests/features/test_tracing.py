import weakref

import pytest
import torch

from segkit.errors import ConfigError, WeightsError
from segkit.features.tracing import Trace


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
    assert [layer.label for layer in Trace("squeezenet1_0", None).layers] == ["conv1", *fires, "conv10"]


def test_layers_of_joined_branches_need_the_weights_of_both():
    by_label = {layer.label: layer for layer in Trace("squeezenet1_0", None).layers}
    for part in ("expand1x1", "expand3x3"):
        assert f"features.3.{part}.weight" in by_label["fire3_squeeze"].parameters
    assert "features.3.expand3x3.weight" not in by_label["fire2_expand1x1"].parameters


def test_network_stops_where_nothing_more_is_needed():
    trace = Trace("vgg16", None)
    nodes = [layer.node for layer in trace.layers[:2]]
    assert [node.name for node, _ in trace._plan(frozenset(nodes))][-1] == nodes[1]
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


@pytest.mark.parametrize(
    "network",
    ["vgg16_bn", "squeezenet1_0", "resnet18", "efficientnet_b0", "convnext_tiny"],
)
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
