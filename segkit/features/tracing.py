"""Networks of torchvision as graphs: their layers, the position of the cells of each on the pixel grid, their weights.

A network is traced once, on tensors without data. Strides and offsets follow from kernels, strides and paddings, so any
network of convolutions, poolings, sums and concatenations can be used.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from segkit.errors import ConfigError
from segkit.features.networks import Layer, State, fit_weights
from segkit.features.weights import check_network

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

# Operations on each cell by itself, as they are called in a graph.
_CELLWISE = {"add", "sub", "mul", "cat"} | {
    "dropout",
    "batch_norm",
    "layer_norm",
    "stochastic_depth",
    "contiguous",
}
_CELLWISE |= {
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "silu",
    "gelu",
    "sigmoid",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
}
_TO_CHANNELS_LAST = (0, 2, 3, 1)


@dataclass(frozen=True)
class Output(Layer):
    """Output of a node of a graph.

    One without cells has one value for each channel: a weight, or a mean over the whole image.
    """

    node: str = ""
    has_cells: bool = True
    channels_last: bool = False
    is_activation: bool = False
    is_default: bool = True


class Window(NamedTuple):
    """Kernel, stride, padding and dilation of a convolution or a pooling, in cells of its input."""

    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def reach(self) -> float:
        """Cells from the centre of the window to its ends."""
        return self.dilation * (self.kernel - 1) / 2


class Trace:
    """The graph and the weights of a torchvision network, with the layers that have all their weights.

    The weights `state`, of all layers or of the first ones, go by torchvision's names; None draws random ones. `missing`
    holds the other layers, each with the names of the weights that are absent.
    """

    def __init__(
        self, network: str, state: State | None, *, random_state: int = 0, output_stride: int | None = None
    ) -> None:
        import torch

        self._graph_module = _trace_network(network)
        if output_stride is not None:
            dilate(self._graph_module, network, output_stride)
        layers = find_layers(self._graph_module)
        if not layers:
            raise ConfigError(
                f"{network} has no convolutional layers to take filters from: choose vgg16, resnet18, ..."
            )
        known = self._graph_module.state_dict()
        expected = {key: known[key] for layer in layers for key in layer.parameters}
        given = _draw_weights(expected, random_state) if state is None else state
        fitted = fit_weights(network, "torchvision", layers, expected, given)
        self.layers, self.missing, self.state = fitted
        _cut_behind(self._graph_module, {layer.node for layer in self.layers})
        self._graph_module.load_state_dict(self.state, strict=False, assign=True)
        # With channels last, CPUs convolve fastest, and the channels of a pixel are read together.
        for name, parameter in self._graph_module.named_parameters():
            if name in self.state and parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def outputs(self, batch: torch.Tensor, nodes: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Run the network no deeper than needed, and yield the outputs of some nodes as soon as they are computed."""
        import torch
        from torch.fx import Interpreter

        runner = Interpreter(self._graph_module.to(batch.device))
        runner.args_iter = iter([batch])
        left = set(nodes)
        for node in self._graph_module.graph.nodes:
            if not left:
                return
            with torch.inference_mode():
                runner.env[node] = runner.run_node(node)
            if node.name in left:
                left.remove(node.name)
                yield node.name, runner.env[node]
            for spent in runner.user_to_last_uses.get(node, []):
                del runner.env[spent]


def _trace_network(network: str) -> GraphModule:
    import torch
    from torch.fx import symbolic_trace
    from torchvision.models import get_model

    check_network(network)
    try:
        # Tensors on "meta" hold no data: a VGG would otherwise draw 138 million random weights.
        with torch.device("meta"), warnings.catch_warnings():
            # torchvision warns of how Inception and GoogLeNet draw them
            warnings.filterwarnings("ignore", "The default weight initialization", FutureWarning)
            module = symbolic_trace(get_model(network, weights=None).eval())
    except (torch.fx.proxy.TraceError, TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"network {network!r} cannot be traced: choose vgg16, vgg19, squeezenet1_0, resnet18, ..."
        ) from error
    # A map that is yielded must not change when the network goes on.
    for submodule in module.modules():
        if getattr(submodule, "inplace", False):
            submodule.inplace = False  # type: ignore[assignment]
    for node in module.graph.nodes:
        if node.target is operator.iadd:
            node.target = operator.add
    return module


def _cut_behind(module: GraphModule, last: set[str]) -> None:
    """Cut a network behind some nodes: layers without data could not be moved to another device."""
    graph = module.graph
    output = next(node for node in graph.nodes if node.op == "output")
    output.args = (tuple(node for node in graph.nodes if node.name in last),)
    graph.eliminate_dead_code()
    output.args = ((),)  # maps are given back after their last use
    module.delete_all_unused_submodules()
    module.recompile()


def _draw_weights(expected: State, random_state: int) -> State:
    """Draw convolutions by He's initialisation; normalisation and the scales of residual branches change nothing."""
    import torch

    # A separate generator leaves torch's global random state unchanged.
    generator = torch.Generator().manual_seed(random_state)
    state: State = {}
    for key, tensor in expected.items():
        if tensor.ndim in (2, 4):
            fan_in = math.prod(tensor.shape[1:])
            state[key] = torch.randn(tensor.shape, generator=generator) * math.sqrt(2 / fan_in)
        else:
            fill = 1.0 if key.endswith(("weight", "running_var", "layer_scale")) else 0.0
            state[key] = torch.full(tensor.shape, fill, dtype=tensor.dtype)
    return state


# --- Layers and their grids ---------------------------------------------------------------------


def find_layers(module: GraphModule) -> list[Output]:
    """List the outputs of non-linearities, of residual blocks, and of the last convolution before their sum."""
    from torchvision.ops.misc import Conv2dNormActivation

    outputs = _find_outputs(module)
    sums = [node for node in outputs if operation(node) == "add" and _stack(node)]
    # Blocks are the modules of those classes that have sums, also those modules that have none.
    classes = {_stack(node)[-1][1] for node in sums}
    block_of = {node: next((path for path, cls in _stack(node) if cls in classes), None) for node in outputs}
    ends = _swapped({path: node for node, path in block_of.items() if path})
    units = {
        path: node
        for node, block in block_of.items()
        for path, cls in _stack(node)
        if not block and issubclass(cls, Conv2dNormActivation)
    }
    names = {node: str(node.name).removeprefix("features_") for node in outputs}
    names |= _names_of_papers(module) | _swapped(units) | ends
    projections = _find_projections(sums, block_of, outputs)
    layers = []
    for node, output in outputs.items():
        if output is None or not output.has_cells:
            continue
        is_activation = bool(output.parameters) and _is_activation(node, submodule_of(module, node))
        if is_activation or node in ends or node in projections:
            is_default = node in ends or (is_activation and not block_of[node])
            name = names[node] if is_activation or node in ends else projections[node]
            layer = replace(output, name=name, node=node.name)
            layers.append(replace(layer, is_activation=is_activation, is_default=is_default))
    return layers


def _swapped(nodes: dict[str, Node]) -> dict[Node, str]:
    return {node: path for path, node in nodes.items()}


def _find_projections(
    sums: list[Node], block_of: dict[Node, str | None], outputs: dict[Node, Output | None]
) -> dict[Node, str]:
    """Find the last node before the sum of each block that has one: its widest branch."""
    found: dict[Node, str] = {}
    for node in sums:
        branches = [parent for parent in node.all_input_nodes if block_of[parent] == block_of[node]]
        radii = {parent: output.radius for parent in branches if (output := outputs[parent])}
        if block_of[node] and radii:
            found[max(radii, key=lambda parent: radii[parent])] = f"{block_of[node]}.projection"
    return found


def _names_of_papers(module: GraphModule) -> dict[Node, str]:
    """Name layers as the papers of VGG (conv3_2) and SqueezeNet (fire2_squeeze) do; other networks have no such names."""
    from torch import nn

    plain = (nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.BatchNorm2d)
    children = list(getattr(module, "features", nn.Module()).children())
    is_vgg = bool(children) and all(
        isinstance(child, plain) and not list(child.children()) for child in children
    )
    if not is_vgg and not any(name.endswith("expand3x3") for name, _ in module.named_modules()):
        return {}
    names: dict[Node, str] = {}
    block, number, part = 1, 0, ""
    modules: list[str] = []  # features.3.squeeze is part of a fire module; features.0 is a single convolution
    for node in module.graph.nodes:
        submodule = submodule_of(module, node)
        if isinstance(submodule, nn.Conv2d):
            number += 1
            name, part = ".".join(node.target.split(".")[:2]), "_".join(node.target.split(".")[2:])
            modules += [name] * (name not in modules)
        elif isinstance(submodule, nn.MaxPool2d):
            block, number = block + 1, 0
        if is_vgg:
            names[node] = f"conv{block}_{number}"
        else:
            names[node] = f"fire{len(modules)}_{part}" if part else f"conv{len(modules)}"
    return names


def submodule_of(module: GraphModule, node: Node) -> Any:
    """Find the module that a node calls; None if it calls none."""
    return module.get_submodule(str(node.target)) if node.op == "call_module" else None


def _stack(node: Node) -> list[tuple[str, type]]:
    """List path and class of the modules that a node lies in, from the outermost on."""
    return list(node.meta.get("nn_module_stack", {}).values())


def operation(node: Node) -> str:
    """Name the function or method that a node calls; empty if it calls none."""
    is_call = node.op in ("call_function", "call_method")
    return str(getattr(node.target, "__name__", node.target)) if is_call else ""


def window_of(node: Node, submodule: Any) -> Window | None:
    """Read the window of a convolution or pooling; None for other nodes."""
    from torch import nn

    if isinstance(submodule, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
        names = ("kernel_size", "stride", "padding", "dilation")
        return Window(*(_first(getattr(submodule, name, 1)) for name in names))
    if operation(node) in ("max_pool2d", "avg_pool2d"):
        given = dict(zip(("input", "kernel_size", "stride", "padding"), node.args, strict=False))
        given |= node.kwargs
        kernel = _first(given["kernel_size"])
        return Window(kernel, _first(given.get("stride") or kernel), _first(given.get("padding", 0)), 1)
    return None


def _is_activation(node: Node, submodule: Any) -> bool:
    from torch import nn

    activations = (nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU, nn.Hardswish, nn.LeakyReLU, nn.ELU)
    return isinstance(submodule, activations) or operation(node) == "relu"


def _find_outputs(module: GraphModule) -> dict[Node, Output | None]:
    """Find the grid of each node's output; None where there is none, as behind flattening."""
    outputs: dict[Node, Output | None] = {}
    for node in module.graph.nodes:
        inputs = [outputs[parent] for parent in node.all_input_nodes]
        known = [output for output in inputs if output is not None]
        if node.op == "placeholder":
            outputs[node] = Output()
        elif node.op == "get_attr":
            outputs[node] = Output(parameters=(str(node.target),), has_cells=False)
        else:
            complete = bool(known) and len(known) == len(inputs)
            outputs[node] = _next_output(node, submodule_of(module, node), known) if complete else None
    return outputs


def _next_output(node: Node, submodule: Any, inputs: list[Output]) -> Output | None:
    """Find the grid of a node's output; None if the operation keeps no grid, or is not known."""
    from torch import nn

    # Branches that join have one stride and offset; a cell sees as far as the widest of them.
    widest = max(inputs, key=lambda output: (output.has_cells, output.radius))
    own = [f"{node.target}.{key}" for key in submodule.state_dict()] if submodule is not None else []
    parameters = dict.fromkeys([*(key for output in inputs for key in output.parameters), *own])
    merged = replace(
        widest, parameters=tuple(parameters), is_global=any(output.is_global for output in inputs)
    )
    called = operation(node)
    if isinstance(submodule, nn.AdaptiveAvgPool2d) or called == "adaptive_avg_pool2d":
        return replace(merged, has_cells=False, is_global=True)
    if (window := window_of(node, submodule)) is not None:
        # With padding = reach, cell 0 is centred on the input's cell 0; less padding moves it inwards.
        return replace(
            merged,
            stride=merged.stride * window.stride,
            offset=merged.offset + (window.reach - window.padding) * merged.stride,
            radius=merged.radius + window.reach * merged.stride,
            n_channels=getattr(submodule, "out_channels", merged.n_channels),
        )
    if called == "permute":
        order = node.args[1] if isinstance(node.args[1], list | tuple) else node.args[1:]
        return replace(merged, channels_last=tuple(order) == _TO_CHANNELS_LAST)
    if isinstance(submodule, nn.Linear):
        return replace(merged, n_channels=submodule.out_features) if merged.channels_last else None
    if called == "cat":
        return replace(merged, n_channels=sum(output.n_channels for output in inputs))
    # modules of torch that are left work on each cell by themselves, but for flattening
    cellwise = not isinstance(submodule, nn.Flatten) if submodule is not None else called in _CELLWISE
    return merged if cellwise else None


def _first(value: Any) -> int:
    return int(value if isinstance(value, int) else value[0])


# --- Dilation -----------------------------------------------------------------------------------


def dilate(module: GraphModule, network: str, output_stride: int) -> None:
    """Replace the strides of a network beyond one stride by dilation, in place; the weights stay.

    It lets deep layers see detail (Chen et al., Rethinking atrous convolution for semantic image segmentation,
    arXiv:1706.05587, section 3.1). Every d-th cell of a dilated map is a cell of the former map, if d is the stride that was
    removed. Layers that depend on means over the image are no exception, but the means are over more cells.
    """
    # stride in pixels of each node's output, and cells between those that belong together
    reached: dict[Node, tuple[int, int]] = {}
    for node in module.graph.nodes:
        stride, dilation = max((reached[parent] for parent in node.all_input_nodes), default=(1, 1))
        submodule = submodule_of(module, node)
        window = window_of(node, submodule)
        if window is not None:
            removed = window.stride if stride * window.stride > output_stride else 1
            if (dilation > 1 and window.kernel > 1) or removed > 1:
                _widen(submodule, dilation, network)
                if removed > 1:
                    submodule.stride = (1, 1)
            stride, dilation = stride * window.stride // removed, dilation * removed
        reached[node] = stride, dilation


def _widen(submodule: Any, dilation: int, network: str) -> None:
    """Dilate a convolution or a pooling."""
    from torch import nn

    if not isinstance(submodule, nn.Conv2d | nn.MaxPool2d) and (dilation > 1 or submodule is None):
        raise ConfigError(
            f"network {network}: its poolings cannot be dilated, leave output_stride out, or choose resnet50, "
            f"mobilenet_v2, ..."
        )
    for name in {"padding", "dilation"} & vars(submodule).keys():
        value = getattr(submodule, name)
        many = value if isinstance(value, tuple) else (value, value)
        setattr(submodule, name, tuple(part * dilation for part in many))
