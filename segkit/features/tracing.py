"""Layers of a torchvision network, and the position of their cells on the pixel grid.

A network is traced once, on tensors without data. Strides and offsets follow from kernels, strides and paddings,
so any network of convolutions and poolings can be used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from segkit.errors import ConfigError, WeightsError
from segkit.features.weights import check_network

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

# Last part of the name of a batch normalisation's counter.
_COUNTER = "num_batches_tracked"


@dataclass(frozen=True)
class Layer:
    """One activation of a network, with the position of its cells on the pixel grid.

    Parameters
    ----------
    name : str
        Name in channel names and model files: "conv3_2" in VGG networks, the module's path in others.
    label : str
        Name in the network's paper, such as "fire4_expand1x1" in SqueezeNet; `name` if the paper gives none.
    node : str
        Node of the traced graph.
    n_channels : int
        Filters of the layer.
    stride, offset : float
        Cell i is centred on pixel ``offset + stride * i``.
    radius : float
        Radius of the receptive field in pixels.
    parameters : tuple of str
        Names of the weights of this layer and of all layers below.
    """

    name: str
    label: str
    node: str
    n_channels: int
    stride: float
    offset: float
    radius: float
    parameters: tuple[str, ...]


class Trace:
    """The graph and the weights of a network, with the layers that have all their weights.

    Parameters
    ----------
    network : str
        A torchvision network.
    state : dict of str to Tensor, or None
        Weights by torchvision's names, of all layers or of the first ones; None draws random weights. Counters of
        batches (``num_batches_tracked``) may be missing: inference does not use them.
    random_state : int, default=0
        Seed of random weights.

    Attributes
    ----------
    layers : list of Layer
        The layers that have all their weights.
    names : list of (str, str)
        Name and label of each layer of the whole network.
    state : dict of str to Tensor
        The weights of `layers`.

    Raises
    ------
    ConfigError
        If the network does not exist, cannot be traced, or has no convolutions.
    WeightsError
        If the weights belong to another network, or the first layer lacks some.
    """

    def __init__(self, network: str, state: dict[str, torch.Tensor] | None, *, random_state: int = 0) -> None:
        import torch

        self._graph_module = _trace_network(network)
        self.layers = _find_layers(self._graph_module)
        if not self.layers:
            raise ConfigError(
                f"{network} has no convolutional layers to take filters from: choose vgg16, resnet18, ..."
            )
        self.names = [(layer.name, layer.label) for layer in self.layers]
        expected = {
            key: self._graph_module.state_dict()[key] for layer in self.layers for key in layer.parameters
        }
        state = (
            _random_state_dict(expected, random_state) if state is None else _with_counters(expected, state)
        )
        _check_shapes(network, expected, state)
        first = self.layers[0]
        self.layers = [layer for layer in self.layers if all(key in state for key in layer.parameters)]
        if not self.layers:
            missing = [key for key in first.parameters if key not in state and not key.endswith(_COUNTER)]
            raise WeightsError(
                f"weights lack {', '.join(missing)}, which the first layer of {network} needs; they hold "
                f"{', '.join([*list(state)[:3], '...']) if state else 'nothing'}: give the weights of {network}, "
                f"by torchvision's names"
            )
        needed = {key for layer in self.layers for key in layer.parameters}
        self.state = {
            key: state[key].float() if state[key].is_floating_point() else state[key] for key in needed
        }
        self._graph_module.load_state_dict(self.state, strict=False, assign=True)
        # With channels last, CPUs convolve fastest, and the channels of a pixel are read together.
        for name, parameter in self._graph_module.named_parameters():
            if name in self.state and parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        self._pruned: dict[tuple[str, ...], GraphModule] = {}

    def up_to(self, nodes: tuple[str, ...]) -> GraphModule:
        """Cut the network after these nodes; the result returns their outputs in order."""
        if nodes not in self._pruned:
            from torch.fx import Graph, GraphModule

            graph = Graph()
            copies: dict[Node, Node] = {}
            graph.graph_copy(self._graph_module.graph, copies)
            by_name = {original.name: copy for original, copy in copies.items()}
            graph.output(tuple(by_name[name] for name in nodes))
            pruned = GraphModule(self._graph_module, graph)
            pruned.graph.eliminate_dead_code()
            pruned.recompile()
            # Layers behind the last node have no data, and could not be moved to another device.
            pruned.delete_all_unused_submodules()
            self._pruned[nodes] = pruned.eval()
        return self._pruned[nodes]


def _trace_network(network: str) -> GraphModule:
    import torch
    from torch.fx import symbolic_trace
    from torchvision.models import get_model

    check_network(network)
    try:
        # Tensors on "meta" hold no data: a VGG would otherwise draw 138 million random weights.
        with torch.device("meta"):
            module = symbolic_trace(get_model(network, weights=None).eval())
    except (torch.fx.proxy.TraceError, TypeError, ValueError) as error:
        raise ConfigError(
            f"network {network!r} cannot be traced: choose vgg16, vgg19, squeezenet1_0, resnet18, ..."
        ) from error
    return module


@dataclass(frozen=True)
class _Grid:
    """Position of a tensor's cells on the pixel grid, and the weights that it is computed with."""

    stride: float = 1.0
    offset: float = 0.0
    radius: float = 0.0
    n_channels: int = 3
    parameters: tuple[str, ...] = ()


def _find_layers(module: GraphModule) -> list[Layer]:
    """Walk the graph and list the outputs of its non-linearities, with their grids."""
    from torch import nn

    activations = (nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU, nn.Hardswish, nn.LeakyReLU, nn.ELU)
    grids: dict[Node, _Grid | None] = {}
    layers: list[Layer] = []
    vgg_name = _VGGNames() if _is_plain(module) else None
    fire_label = _FireLabels() if _has_fire(module) else None
    for node in module.graph.nodes:
        inputs = [grids[parent] for parent in node.all_input_nodes]
        if node.op == "placeholder":
            grids[node] = _Grid()
            continue
        # Behind a layer without a grid, such as global pooling, there is no grid either.
        if not inputs or any(grid is None for grid in inputs):
            grids[node] = None
            continue
        known = [grid for grid in inputs if grid is not None]
        submodule = module.get_submodule(str(node.target)) if node.op == "call_module" else None
        grids[node] = _next_grid(node, submodule, known)
        grid = grids[node]
        if vgg_name is not None:
            vgg_name.pass_by(submodule)
        if fire_label is not None:
            fire_label.pass_by(str(node.target), submodule)
        is_activation = isinstance(submodule, activations) or getattr(node.target, "__name__", "") == "relu"
        if grid is not None and is_activation and grid.parameters:
            name = str(vgg_name) if vgg_name is not None else str(node.name).removeprefix("features_")
            layers.append(
                Layer(
                    name,
                    name if fire_label is None else str(fire_label),
                    node.name,
                    grid.n_channels,
                    grid.stride,
                    grid.offset,
                    grid.radius,
                    grid.parameters,
                )
            )
    return layers


def _next_grid(node: Node, submodule: Any, inputs: list[_Grid]) -> _Grid | None:
    """Compute the grid of a node's output; None after global pooling or flattening, which have no grid."""
    from torch import nn

    # Branches that join have the same stride and offset; the cell sees as far as the widest of them.
    widest = max(inputs, key=lambda grid: grid.radius)
    parameters = tuple(dict.fromkeys(key for grid in inputs for key in grid.parameters))
    if submodule is not None:
        own = tuple(f"{node.target}.{key}" for key in submodule.state_dict())
        parameters = tuple(dict.fromkeys(parameters + own))
    if isinstance(submodule, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
        kernel, stride, padding, dilation = (
            _first(getattr(submodule, name, 1)) for name in ("kernel_size", "stride", "padding", "dilation")
        )
        reach = dilation * (kernel - 1) / 2
        n_channels = submodule.out_channels if isinstance(submodule, nn.Conv2d) else widest.n_channels
        # With padding = reach, cell 0 is centred on the input's cell 0; less padding moves it inwards.
        return _Grid(
            stride=widest.stride * stride,
            offset=widest.offset + (reach - padding) * widest.stride,
            radius=widest.radius + reach * widest.stride,
            n_channels=n_channels,
            parameters=parameters,
        )
    if isinstance(submodule, nn.AdaptiveAvgPool2d | nn.Linear | nn.Flatten):
        return None
    if getattr(node.target, "__name__", str(node.target)) in (
        "flatten",
        "adaptive_avg_pool2d",
        "mean",
        "view",
        "reshape",
    ):
        return None
    # Concatenation adds the channels of its inputs; sums and normalisations keep their number.
    concatenated = getattr(node.target, "__name__", "") == "cat"
    n_channels = sum(grid.n_channels for grid in inputs) if concatenated else widest.n_channels
    return _Grid(widest.stride, widest.offset, widest.radius, n_channels, parameters)


def _first(value: int | tuple[int, ...]) -> int:
    return value if isinstance(value, int) else value[0]


def _is_plain(module: GraphModule) -> bool:
    """Tell whether a network is a plain stack of convolutions and poolings, like VGG."""
    from torch import nn

    features = getattr(module, "features", None)
    return isinstance(features, nn.Module) and all(
        isinstance(child, nn.Conv2d | nn.ReLU | nn.MaxPool2d | nn.BatchNorm2d) and not list(child.children())
        for child in features.children()
    )


class _VGGNames:
    """Count convolutions and poolings, for the layer names of the VGG paper: conv<block>_<number>."""

    def __init__(self) -> None:
        self._block, self._number = 1, 0

    def pass_by(self, submodule: Any) -> None:
        from torch import nn

        if isinstance(submodule, nn.Conv2d):
            self._number += 1
        elif isinstance(submodule, nn.MaxPool2d):
            self._block, self._number = self._block + 1, 0

    def __str__(self) -> str:
        return f"conv{self._block}_{self._number}"


def _has_fire(module: GraphModule) -> bool:
    """Tell whether a network is a SqueezeNet."""
    return any(name.endswith("expand3x3") for name, _ in module.named_modules())


class _FireLabels:
    """Count blocks of convolutions, for the names of the SqueezeNet paper: conv1, fire2_squeeze, ..., conv10."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._part = ""

    def pass_by(self, target: str, submodule: Any) -> None:
        from torch import nn

        if isinstance(submodule, nn.Conv2d):
            # features.3.squeeze is part of a fire module; features.0 is a single convolution
            block, self._part = ".".join(target.split(".")[:2]), "_".join(target.split(".")[2:])
            if block not in self._blocks:
                self._blocks.append(block)

    def __str__(self) -> str:
        number = len(self._blocks)
        return f"fire{number}_{self._part}" if self._part else f"conv{number}"


def _random_state_dict(expected: dict[str, torch.Tensor], random_state: int) -> dict[str, torch.Tensor]:
    """Draw convolutions by He's initialisation; batch normalisation changes nothing."""
    import torch

    # A separate generator leaves torch's global random state unchanged.
    generator = torch.Generator().manual_seed(random_state)
    state: dict[str, torch.Tensor] = {}
    for key, tensor in expected.items():
        if tensor.ndim == 4:
            fan_in = math.prod(tensor.shape[1:])
            state[key] = torch.randn(tensor.shape, generator=generator) * math.sqrt(2 / fan_in)
        else:
            fill = 1.0 if key.endswith(("weight", "running_var")) else 0.0
            state[key] = torch.full(tensor.shape, fill, dtype=tensor.dtype)
    return state


def _with_counters(
    expected: dict[str, torch.Tensor], state: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Add the batch counters that a file without them lacks: PyTorch lists them, inference ignores them."""
    import torch

    counters = {
        key: torch.zeros(tensor.shape, dtype=tensor.dtype)
        for key, tensor in expected.items()
        if key.endswith(_COUNTER) and key.removesuffix(_COUNTER) + "running_mean" in state
    }
    return counters | state


def _check_shapes(network: str, expected: dict[str, torch.Tensor], state: dict[str, torch.Tensor]) -> None:
    for key, tensor in expected.items():
        if key in state and state[key].shape != tensor.shape:
            raise WeightsError(
                f"weights of {key} have shape {tuple(state[key].shape)}, {network} needs {tuple(tensor.shape)}: "
                f"give that network's weights"
            )
