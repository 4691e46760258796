"""Networks of torchvision as graphs, with their weights.

A network is traced once, on tensors without data.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from segkit.errors import ConfigError, WeightsError
from segkit.features.layers import find_layers, submodule_of, window_of
from segkit.features.weights import check_network

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

# Last part of the name of a batch normalisation's counter.
_COUNTER = "num_batches_tracked"


class Trace:
    """The graph and the weights of a torchvision network, with the layers that have all their weights.

    The weights `state`, of all layers or of the first ones, go by torchvision's names; None draws random ones. `missing`
    holds the other layers, each with the names of the weights that are absent.
    """

    def __init__(
        self,
        network: str,
        state: dict[str, torch.Tensor] | None,
        *,
        random_state: int = 0,
        output_stride: int | None = None,
    ) -> None:
        import torch

        self._graph_module = _trace_network(network)
        if output_stride is not None:
            dilate(self._graph_module, network, output_stride)
        self.layers = find_layers(self._graph_module)
        if not self.layers:
            raise ConfigError(
                f"{network} has no convolutional layers to take filters from: choose vgg16, resnet18, ..."
            )
        known = self._graph_module.state_dict()
        expected = {key: known[key] for layer in self.layers for key in layer.parameters}
        state = (
            _random_state_dict(expected, random_state) if state is None else _with_counters(expected, state)
        )
        _check_shapes(network, expected, state)
        absent = {
            layer: [key for key in layer.parameters if key not in state and not key.endswith(_COUNTER)]
            for layer in self.layers
        }
        self.missing = {layer: keys for layer, keys in absent.items() if keys}
        first = self.layers[0]
        if first in self.missing:
            raise WeightsError(
                f"weights lack {', '.join(self.missing[first])}, which the first layer of {network} needs; they hold "
                f"{', '.join([*list(state)[:3], '...']) if state else 'nothing'}: give the weights of {network}, "
                f"by torchvision's names"
            )
        self.layers = [layer for layer in self.layers if layer not in self.missing]
        needed = {key for layer in self.layers for key in layer.parameters}
        self.state = {
            key: state[key].float() if state[key].is_floating_point() else state[key] for key in needed
        }
        _cut_behind(self._graph_module, {layer.node for layer in self.layers})
        self._graph_module.load_state_dict(self.state, strict=False, assign=True)
        # With channels last, CPUs convolve fastest, and the channels of a pixel are read together.
        for name, parameter in self._graph_module.named_parameters():
            if name in self.state and parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        self._plans: dict[frozenset[str], list[tuple[Node, list[Node]]]] = {}

    def outputs(self, batch: torch.Tensor, nodes: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Run the network no deeper than needed, and yield the outputs of some nodes as soon as they are computed."""
        import torch
        from torch.fx import Interpreter

        runner = Interpreter(self._graph_module.to(batch.device))
        runner.args_iter = iter([batch])
        for node, spent in self._plan(frozenset(nodes)):
            with torch.inference_mode():
                runner.env[node] = runner.run_node(node)
            if node.name in nodes:
                yield node.name, runner.env[node]
            for other in spent:
                del runner.env[other]

    def _plan(self, nodes: frozenset[str]) -> list[tuple[Node, list[Node]]]:
        """List the nodes that others need, each with the nodes that were used for the last time."""
        if nodes not in self._plans:
            order = list(self._graph_module.graph.nodes)
            needed: set[Node] = set()
            last_use: dict[Node, Node] = {}
            for node in reversed(order):
                if node.name in nodes or node in last_use:
                    needed.add(node)
                    last_use.setdefault(node, node)
                    for parent in node.all_input_nodes:
                        last_use.setdefault(parent, node)
            self._plans[nodes] = [
                (node, [other for other, last in last_use.items() if last is node])
                for node in order
                if node in needed
            ]
        return self._plans[nodes]


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
    module.delete_all_unused_submodules()
    module.recompile()


def _random_state_dict(expected: dict[str, torch.Tensor], random_state: int) -> dict[str, torch.Tensor]:
    """Draw convolutions by He's initialisation; normalisation and the scales of residual branches change nothing."""
    import torch

    # A separate generator leaves torch's global random state unchanged.
    generator = torch.Generator().manual_seed(random_state)
    state: dict[str, torch.Tensor] = {}
    for key, tensor in expected.items():
        if tensor.ndim in (2, 4):
            fan_in = math.prod(tensor.shape[1:])
            state[key] = torch.randn(tensor.shape, generator=generator) * math.sqrt(2 / fan_in)
        else:
            fill = 1.0 if key.endswith(("weight", "running_var", "layer_scale")) else 0.0
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


def dilate(module: GraphModule, network: str, output_stride: int) -> None:
    """Replace the strides of a network beyond one stride by dilation, in place; the weights stay.

    It lets deep layers see detail (Chen et al., Rethinking atrous convolution for semantic image segmentation,
    arXiv:1706.05587, section 3.1). Every d-th cell of a dilated map is a cell of the former map, if d is the stride that was
    removed. Layers that depend on means over the image are no exception, but the means are over more cells.
    """
    # stride in pixels of each node's output, and cells between those that belong together
    reached: dict[Node, tuple[int, int]] = {}
    for node in module.graph.nodes:
        states = [reached[parent] for parent in node.all_input_nodes]
        stride, dilation = max(states, default=(1, 1))
        submodule = submodule_of(module, node)
        window = window_of(node, submodule)
        if window is not None:
            removed = window.stride if stride * window.stride > output_stride else 1
            if (dilation > 1 and window.kernel > 1) or removed > 1:
                _widen(submodule, dilation, removed, network)
            stride, dilation = stride * window.stride // removed, dilation * removed
        reached[node] = stride, dilation


def _widen(submodule: Any, dilation: int, removed: int, network: str) -> None:
    """Dilate a convolution or a pooling, and remove its stride."""
    from torch import nn

    if not isinstance(submodule, nn.Conv2d | nn.MaxPool2d) and (dilation > 1 or submodule is None):
        raise ConfigError(
            f"network {network}: its poolings cannot be dilated, leave output_stride out, or choose resnet50, "
            f"mobilenet_v2, ..."
        )
    for name in ("padding", "dilation"):
        if hasattr(submodule, name):
            setattr(submodule, name, _times(getattr(submodule, name), dilation))
    if removed > 1:
        submodule.stride = (1, 1)


def _times(value: int | tuple[int, ...], factor: int) -> int | tuple[int, ...]:
    return value * factor if isinstance(value, int) else tuple(part * factor for part in value)
