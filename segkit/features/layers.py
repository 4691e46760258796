"""Layers of a traced network, and the position of their cells on the pixel grid.

Strides and offsets follow from kernels, strides and paddings, so any network of convolutions, poolings, sums and
concatenations can be used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

# Operations on each cell by itself, as they are called in a graph; the first four may join branches.
_CELLWISE = frozenset(
    {
        "add",
        "sub",
        "mul",
        "cat",
        "relu",
        "relu6",
        "silu",
        "gelu",
        "sigmoid",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
    }
    | {"leaky_relu", "elu", "dropout", "batch_norm", "layer_norm", "stochastic_depth", "contiguous"}
)
_TO_CHANNELS_LAST = (0, 2, 3, 1)


@dataclass(frozen=True)
class Layer:
    """One output of a network: cell i is centred on pixel ``offset + stride * i``, and sees `radius` pixels."""

    # In channel names and model files: "conv3_2" in VGG networks, the module's path in others.
    name: str
    # In the network's paper, "fire4_expand1x1", or the path of the block that ends here, "layer2.0"; else the name.
    label: str
    node: str
    n_channels: int
    stride: float
    offset: float
    radius: float
    # Names of the weights of this layer and of all layers below.
    parameters: tuple[str, ...]
    is_activation: bool = True
    is_default: bool = True
    is_global: bool = False
    channels_last: bool = False


@dataclass(frozen=True)
class Window:
    """Kernel, stride, padding and dilation of a convolution or a pooling, in cells of its input."""

    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def reach(self) -> float:
        """Cells from the centre of the window to its ends."""
        return self.dilation * (self.kernel - 1) / 2


@dataclass(frozen=True)
class _Grid:
    """Position of a tensor's cells on the pixel grid, and the weights that it is computed with.

    A tensor without cells has one value for each channel: a weight, or a mean over the whole image (`is_global`).
    """

    stride: float = 1.0
    offset: float = 0.0
    radius: float = 0.0
    n_channels: int = 3
    parameters: tuple[str, ...] = ()
    has_cells: bool = True
    is_global: bool = False
    channels_last: bool = False


def find_layers(module: GraphModule) -> list[Layer]:
    """Walk the graph and list the outputs of non-linearities, residual blocks and their projections."""
    grids = _find_grids(module)
    blocks = _ResidualBlocks(module.graph)
    projections = blocks.find_projections(grids)
    names = _names_of(module)
    layers: list[Layer] = []
    for node in module.graph.nodes:
        grid, submodule = grids[node], submodule_of(module, node)
        if grid is None or not grid.has_cells:
            continue
        names.pass_by(str(node.target), submodule)
        block = blocks.ends.get(node)
        is_activation = _is_activation(node, submodule) and bool(grid.parameters)
        if is_activation:
            name, label = names.give(node)
            label = block or blocks.units.get(node, label)
        elif node in blocks.ends:
            name = label = blocks.ends[node]
        elif node in projections:
            name = label = f"{projections[node]}.projection"
        else:
            continue
        layers.append(
            Layer(
                name,
                label,
                node.name,
                grid.n_channels,
                grid.stride,
                grid.offset,
                grid.radius,
                grid.parameters,
                is_activation=is_activation,
                is_default=block is not None or (is_activation and not blocks.holds(node)),
                is_global=grid.is_global,
                channels_last=grid.channels_last,
            )
        )
    return layers


def submodule_of(module: GraphModule, node: Node) -> Any:
    """Find the module that a node calls; None if it calls none."""
    return module.get_submodule(str(node.target)) if node.op == "call_module" else None


def window_of(node: Node, submodule: Any) -> Window | None:
    """Read the window of a convolution or pooling; None for other nodes."""
    from torch import nn

    if isinstance(submodule, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
        names = ("kernel_size", "stride", "padding", "dilation")
        return Window(*(_first(getattr(submodule, name, 1)) for name in names))
    if operation(node) in ("max_pool2d", "avg_pool2d"):
        given = (
            dict(zip(("input", "kernel_size", "stride", "padding"), node.args, strict=False)) | node.kwargs
        )
        kernel = _first(given["kernel_size"])
        return Window(kernel, _first(given.get("stride") or kernel), _first(given.get("padding", 0)), 1)
    return None


def operation(node: Node) -> str:
    """Name the function or method that a node calls; empty if it calls none."""
    is_call = node.op in ("call_function", "call_method")
    return str(getattr(node.target, "__name__", node.target)) if is_call else ""


def _is_activation(node: Node, submodule: Any) -> bool:
    from torch import nn

    activations = (nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU, nn.Hardswish, nn.LeakyReLU, nn.ELU)
    return isinstance(submodule, activations) or operation(node) == "relu"


def _find_grids(module: GraphModule) -> dict[Node, _Grid | None]:
    """Find the grid of each node's output; None where there is none, as behind flattening."""
    grids: dict[Node, _Grid | None] = {}
    for node in module.graph.nodes:
        inputs = [grids[parent] for parent in node.all_input_nodes]
        known = [grid for grid in inputs if grid is not None]
        if node.op == "placeholder":
            grids[node] = _Grid()
        elif node.op == "get_attr":
            grids[node] = _Grid(parameters=(str(node.target),), has_cells=False)
        elif known and len(known) == len(inputs):
            grids[node] = _next_grid(node, submodule_of(module, node), known)
        else:
            grids[node] = None
    return grids


def _next_grid(node: Node, submodule: Any, inputs: list[_Grid]) -> _Grid | None:
    """Compute the grid of a node's output; None if the operation keeps no grid, or is not known."""
    from torch import nn

    merged = _merge(inputs)
    if submodule is not None:
        own = tuple(f"{node.target}.{key}" for key in submodule.state_dict())
        merged = replace(merged, parameters=tuple(dict.fromkeys(merged.parameters + own)))
    called = operation(node)
    if isinstance(submodule, nn.AdaptiveAvgPool2d) or called == "adaptive_avg_pool2d":
        return replace(merged, has_cells=False, is_global=True)
    if (window := window_of(node, submodule)) is not None:
        return _through_window(merged, window, getattr(submodule, "out_channels", merged.n_channels))
    if called == "permute":
        order = node.args[1] if isinstance(node.args[1], list | tuple) else node.args[1:]
        return replace(merged, channels_last=tuple(order) == _TO_CHANNELS_LAST)
    if isinstance(submodule, nn.Linear):
        return replace(merged, n_channels=submodule.out_features) if merged.channels_last else None
    if called == "cat":
        return replace(merged, n_channels=sum(grid.n_channels for grid in inputs))
    # modules of torch that are left work on each cell by themselves, but for flattening
    cellwise = not isinstance(submodule, nn.Flatten) if submodule is not None else called in _CELLWISE
    return merged if cellwise else None


def _merge(inputs: list[_Grid]) -> _Grid:
    """Join branches. Their strides and offsets are the same; a cell sees as far as the widest of them."""
    widest = max(inputs, key=lambda grid: (grid.has_cells, grid.radius))
    parameters = tuple(dict.fromkeys(key for grid in inputs for key in grid.parameters))
    return replace(widest, parameters=parameters, is_global=any(grid.is_global for grid in inputs))


def _through_window(grid: _Grid, window: Window, n_channels: int) -> _Grid:
    # With padding = reach, cell 0 is centred on the input's cell 0; less padding moves it inwards.
    return replace(
        grid,
        stride=grid.stride * window.stride,
        offset=grid.offset + (window.reach - window.padding) * grid.stride,
        radius=grid.radius + window.reach * grid.stride,
        n_channels=n_channels,
    )


def _first(value: Any) -> int:
    return int(value if isinstance(value, int) else value[0])


class _ResidualBlocks:
    """Blocks of a network whose classes have residual sums, also those blocks that have none."""

    def __init__(self, graph: Graph) -> None:
        from torchvision.ops.misc import Conv2dNormActivation

        self._sums = [node for node in graph.nodes if operation(node) == "add" and _stack(node)]
        self._classes = {_stack(node)[-1][1] for node in self._sums}
        ends: dict[str, Node] = {}
        units: dict[str, Node] = {}
        for node in graph.nodes:
            if block := self._block_of(node):
                ends[block] = node
            else:
                units |= {path: node for path, cls in _stack(node) if issubclass(cls, Conv2dNormActivation)}
        self.ends = {node: path for path, node in ends.items()}
        self.units = {node: path for path, node in units.items()}

    def holds(self, node: Node) -> bool:
        """Return whether a node lies in a block."""
        return self._block_of(node) is not None

    def find_projections(self, grids: dict[Node, _Grid | None]) -> dict[Node, str]:
        """Find the last node before the sum of each block that has one: its widest branch."""
        found: dict[Node, str] = {}
        for node in self._sums:
            block = self._block_of(node)
            branches = [parent for parent in node.all_input_nodes if self._block_of(parent) == block]
            radii = {parent: grid.radius for parent in branches if (grid := grids[parent]) is not None}
            if block is not None and radii:
                found[max(radii, key=lambda parent: radii[parent])] = block
        return found

    def _block_of(self, node: Node) -> str | None:
        """Find the path of the block that a node lies in."""
        return next((path for path, cls in _stack(node) if cls in self._classes), None)


def _stack(node: Node) -> list[tuple[str, type]]:
    """List path and class of the modules that a node lies in, from the outermost on."""
    return list(node.meta.get("nn_module_stack", {}).values())


class _PathNames:
    """Names of layers by the path of their module."""

    def pass_by(self, target: str, submodule: Any) -> None:
        """Count a node."""

    def give(self, node: Node) -> tuple[str, str]:
        """Return name and label of a layer that ends at a node."""
        name = str(node.name).removeprefix("features_")
        return name, name


class _VGGNames(_PathNames):
    """Count convolutions and poolings, for the layer names of the VGG paper: conv<block>_<number>."""

    def __init__(self) -> None:
        self._block, self._number = 1, 0

    def pass_by(self, target: str, submodule: Any) -> None:  # noqa: ARG002
        from torch import nn

        if isinstance(submodule, nn.Conv2d):
            self._number += 1
        elif isinstance(submodule, nn.MaxPool2d):
            self._block, self._number = self._block + 1, 0

    def give(self, node: Node) -> tuple[str, str]:  # noqa: ARG002
        name = f"conv{self._block}_{self._number}"
        return name, name


class _FireNames(_PathNames):
    """Count blocks of convolutions, for the labels of the SqueezeNet paper: conv1, fire2_squeeze, ..., conv10."""

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

    def give(self, node: Node) -> tuple[str, str]:
        number = len(self._blocks)
        label = f"fire{number}_{self._part}" if self._part else f"conv{number}"
        return super().give(node)[0], label


def _names_of(module: GraphModule) -> _PathNames:
    """Choose how the layers of a network are named."""
    from torch import nn

    features = getattr(module, "features", None)
    plain = (nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.BatchNorm2d)
    if isinstance(features, nn.Module) and all(
        isinstance(child, plain) and not list(child.children()) for child in features.children()
    ):
        return _VGGNames()
    if any(name.endswith("expand3x3") for name, _ in module.named_modules()):
        return _FireNames()
    return _PathNames()
