"""Pre-trained convolutional networks as filter banks (paper section 7.2.1).

The maps are the outputs of each non-linearity, at their native resolution. A network is traced once
on weightless tensors; where each layer sits on the pixel grid follows from its kernels, strides
and paddings, so any torchvision network built of convolutions and poolings will do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.errors import ConfigError, InputError, WeightsError
from segkit.features.base import Channel, FeatureMaps, FilterBank, FloatArray, as_image
from segkit.features.weights import check_network, load_weights

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

PREPROCESSING = {
    "torchvision": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "caffe": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255)),
}
CHANNEL_MODES = ("rgb", "each", "mean")


@dataclass(frozen=True)
class Layer:
    """One activation of a network and where its cells sit on the pixel grid.

    Parameters
    ----------
    name : str
        "conv3_2" in VGG networks, the module's path elsewhere: what channels are stored under.
    title : str
        The name in the network's paper, such as "fire4_expand1x1" in SqueezeNet; `name` where there is none.
    node : str
        Its node in the traced graph.
    n_channels : int
        Filters of the layer.
    stride, offset : float
        Cell i is centred on pixel ``offset + stride * i``.
    radius : float
        Pixels on either side of that centre which the cell sees.
    parameters : tuple of str
        Weights it needs, its own and those of all layers below.
    """

    name: str
    title: str
    node: str
    n_channels: int
    stride: float
    offset: float
    radius: float
    parameters: tuple[str, ...]


class ConvNetBank(FilterBank):
    """Filters of a pre-trained convolutional network.

    Parameters
    ----------
    network : str, default="vgg16"
        Any torchvision classification network built of convolutions and poolings: "vgg16" (13
        layers, 4,224 filters, the paper's), "vgg19", "squeezenet1_0", "resnet18", ...
    weights : str or Path, default="imagenet"
        "imagenet" (torchvision's, downloaded once and checked), "random" (seeded, for tests and
        comparisons), the path of a file, or an address (see `segkit.features.weights`). A
        file may hold a truncated network: layers it does not reach are left out.
    preprocessing : {"torchvision", "caffe"}, default="torchvision"
        What the weights were trained with: (RGB - mean) / std on [0, 1], or RGB * 255 - mean.
    channel_mode : {"rgb", "each", "mean"}, default="rgb"
        How an image meets a three-channel network. "rgb": three channels as they are, one channel
        copied to three, any other number is an error. "each": each channel by itself, copied to
        three, and the maps of all put together. "mean": their mean, copied to three.
    layers : sequence of str, optional
        Only these layers; all by default.
    pyramid : sequence of float, default=(1.0,)
        The same filters on the image at these scales, of 1, 1/2, 1/3 and so on, to see more context.
    random_state : int, default=0
        Seed of random weights.

    Notes
    -----
    The network runs no deeper than the deepest channel asked for.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, section 7.2.1.

    K. Simonyan, A. Zisserman, Very deep convolutional networks for large-scale image recognition,
    arXiv:1409.1556.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit import ConvNetBank
    >>> bank = ConvNetBank("vgg16", weights="random")
    >>> len(bank.channels())
    4224
    >>> bank.channels()[64]
    Channel(name='conv1_2/000', group='conv1_2')
    >>> bank.dense(np.zeros((32, 48, 3), dtype="float32"), np.array([0, 200])).shape
    (2, 32, 48)
    """

    def __init__(
        self,
        network: str = "vgg16",
        *,
        weights: str | Path = "imagenet",
        preprocessing: str = "torchvision",
        channel_mode: str = "rgb",
        layers: Sequence[str] | None = None,
        pyramid: Sequence[float] = (1.0,),
        random_state: int = 0,
    ) -> None:
        self.network = network
        self.weights = weights
        self.preprocessing = preprocessing
        self.channel_mode = channel_mode
        self.layers = layers
        self.pyramid = pyramid
        self.random_state = random_state

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """Channels of an image with `n_image_channels`, by view, scale and layer, in that order."""
        return tuple(
            Channel(f"{layer.name}/{index:03d}{suffix}", layer.title + suffix)
            for _, _, layer, suffix in self._blocks(n_image_channels)
            for index in range(layer.n_channels)
        )

    @property
    def halo(self) -> int:
        """Largest receptive-field radius over layers and scales."""
        return max(
            math.ceil((layer.radius + 1) / scale + layer.stride / scale)
            for layer in self._trace.layers
            for scale in self.pyramid
        )

    @property
    def alignment(self) -> int:
        """Stride of the deepest layer at the smallest scale."""
        return math.ceil(max(layer.stride for layer in self._trace.layers) / min(self.pyramid))

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        views = self._views(image)
        wanted = self._wanted(channels, image.shape[2])
        start = 0
        stacks: list[FeatureMaps] = []
        tasks: dict[tuple[int, float], list[tuple[Layer, NDArray[np.intp], int]]] = {}
        for view, scale, layer, _ in self._blocks(image.shape[2]):
            block = np.arange(start, start + layer.n_channels)
            start += layer.n_channels
            kept = np.intersect1d(block, wanted, assume_unique=True)
            if kept.size:
                tasks.setdefault((view, scale), []).append((layer, kept, int(block[0])))
        for (view, scale), layers in tasks.items():
            outputs = self._run(views[view], scale, tuple(layer.node for layer, _, _ in layers))
            for (layer, kept, first), output in zip(layers, outputs, strict=True):
                values = output if kept.size == layer.n_channels else _take(output, kept - first)
                # a scaled image's pixel q covers the original's (q + 1/2) / scale - 1/2
                offset = (layer.offset + 0.5) / scale - 0.5
                stacks.append(FeatureMaps(values, kept, layer.stride / scale, offset))
        return stacks

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:
        """Weights of the layers that these channels need, by torchvision's names."""
        known = self.channels(n_image_channels)
        titles = {known[index].group.split("@")[0].split("#")[0] for index in channels}
        needed = {key for layer in self._trace.layers if layer.title in titles for key in layer.parameters}
        return {key: self._trace.state[key].numpy() for key in sorted(needed)}

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Take these weights (torchvision's names) instead of loading `self.weights`."""
        import torch

        self._trace_cache = _Trace(
            self.network, {key: torch.from_numpy(value) for key, value in weights.items()}
        )

    @property
    def _trace(self) -> _Trace:
        """The traced network with its weights, made on first use."""
        if self.preprocessing not in PREPROCESSING:
            raise ConfigError(
                f"preprocessing {self.preprocessing!r}: choose one of {', '.join(PREPROCESSING)}"
            )
        if self.channel_mode not in CHANNEL_MODES:
            raise ConfigError(f"channel_mode {self.channel_mode!r}: choose one of {', '.join(CHANNEL_MODES)}")
        if not self.pyramid or not all(map(_is_unit_fraction, self.pyramid)):
            raise ConfigError(
                f"pyramid {list(self.pyramid)}: give one or more of 1, 1/2, 1/3 and so on, such as [1, 0.5]"
            )
        cached: _Trace | None = getattr(self, "_trace_cache", None)
        if cached is None:
            state = None if self.weights == "random" else load_weights(self.network, self.weights)
            cached = _Trace(self.network, state, random_state=self.random_state)
            self._trace_cache = cached
        return cached

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_trace_cache"}

    def _blocks(self, n_image_channels: int) -> list[tuple[int, float, Layer, str]]:
        """Every (view, scale, layer, name suffix), in channel order."""
        layers = self._selected_layers()
        views = n_image_channels if self.channel_mode == "each" else 1
        return [
            (view, scale, layer, (f"#{view}" if views > 1 else "") + (f"@{scale:g}" if scale != 1 else ""))
            for view in range(views)
            for scale in self.pyramid
            for layer in layers
        ]

    def _selected_layers(self) -> list[Layer]:
        if self.layers is None:
            return self._trace.layers
        known = {name for names in self._trace.names for name in names}
        missing = [name for name in self.layers if name not in known]
        if missing:
            titles = ", ".join(title for _, title in self._trace.names)
            raise ConfigError(f"layers {', '.join(missing)} are not in {self.network}: it has {titles}")
        return [layer for layer in self._trace.layers if {layer.name, layer.title} & set(self.layers)]

    def _views(self, image: FloatArray) -> list[FloatArray]:
        """Three-channel images, (3, H, W) and normalised, that the network runs on."""
        n_channels = image.shape[2]
        if self.channel_mode == "each":
            views = [np.repeat(image[:, :, [index]], 3, axis=2) for index in range(n_channels)]
        elif self.channel_mode == "mean":
            views = [np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2)]
        elif n_channels in (1, 3):
            views = [np.broadcast_to(image, (*image.shape[:2], 3))]
        else:
            raise InputError(
                f"image with {n_channels} channels for a three-channel network: choose how they map, "
                f"bank.channel_mode=each (every channel by itself) or mean"
            )
        mean, std = (np.array(values, dtype=np.float32) for values in PREPROCESSING[self.preprocessing])
        return [np.ascontiguousarray(((view - mean) / std).transpose(2, 0, 1)) for view in views]

    def _run(self, view: FloatArray, scale: float, nodes: tuple[str, ...]) -> list[FloatArray]:
        import torch

        batch = torch.from_numpy(view)[None]
        with torch.inference_mode():
            try:
                if scale != 1:
                    batch = _shrink(batch, scale)
                batch = batch.contiguous(memory_format=torch.channels_last)
                outputs = self._trace.up_to(nodes)(batch)
            except RuntimeError as error:
                height, width = batch.shape[2:]
                raise InputError(
                    f"image of {height} x {width} pixels (scale {scale:g}) is too small for {self.network}: "
                    f"choose shallower layers (bank.layers), fewer scales (bank.pyramid), or larger images"
                ) from error
        return [output[0].numpy() for output in outputs]


def _take(maps: FloatArray, channels: NDArray[np.intp]) -> FloatArray:
    """Take channels of maps (C, H, W) that lie in memory pixel by pixel, as the result does."""
    return maps.transpose(1, 2, 0).take(channels, axis=2).transpose(2, 0, 1)


def _is_unit_fraction(scale: float) -> bool:
    return 0 < scale <= 1 and math.isclose(1 / scale, round(1 / scale))


def _shrink(batch: torch.Tensor, scale: float) -> torch.Tensor:
    """Shrink a (1, C, H, W) image by exactly `scale`, mirrored at the far edges to a whole multiple."""
    from torch.nn import functional

    step = round(1 / scale)
    padding = [-batch.shape[axis] % step for axis in (3, 2)]
    batch = functional.pad(batch, (0, padding[0], 0, padding[1]), mode="reflect")
    size = [round(batch.shape[axis] * scale) for axis in (2, 3)]
    return functional.interpolate(batch, size=size, mode="bilinear", antialias=True, align_corners=False)


class _Trace:
    """A network's graph, its weights, and the activations that the weights reach."""

    def __init__(self, network: str, state: dict[str, torch.Tensor] | None, *, random_state: int = 0) -> None:
        import torch

        self._graph_module = _trace_network(network)
        self.layers = _find_layers(self._graph_module)
        if not self.layers:
            raise ConfigError(
                f"{network} has no convolutional layers to take filters from: choose vgg16, resnet18, ..."
            )
        self.names = [(layer.name, layer.title) for layer in self.layers]
        expected = {
            key: self._graph_module.state_dict()[key] for layer in self.layers for key in layer.parameters
        }
        if state is None:
            state = _random_state_dict(expected, random_state)
        _check_shapes(network, expected, state)
        self.layers = [layer for layer in self.layers if all(key in state for key in layer.parameters)]
        if not self.layers:
            raise WeightsError(
                f"weights hold {', '.join(list(state)[:3]) or 'nothing'}, ...: none fits the first layer of {network}, "
                f"which needs {', '.join(list(expected)[:2])}; give that network's weights, by torchvision's names"
            )
        needed = {key for layer in self.layers for key in layer.parameters}
        self.state = {
            key: state[key].float() if state[key].is_floating_point() else state[key] for key in needed
        }
        self._graph_module.load_state_dict(self.state, strict=False, assign=True)
        # Pixel by pixel is how processors convolve fastest, and how features are read.
        for name, parameter in self._graph_module.named_parameters():
            if name in self.state and parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        self._pruned: dict[tuple[str, ...], GraphModule] = {}

    def up_to(self, nodes: tuple[str, ...]) -> GraphModule:
        """Cut the network to what these nodes need; the result returns their outputs in order."""
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
            self._pruned[nodes] = pruned.eval()
        return self._pruned[nodes]


def _trace_network(network: str) -> GraphModule:
    import torch
    from torch.fx import symbolic_trace
    from torchvision.models import get_model

    check_network(network)
    try:
        with torch.device("meta"):
            module = symbolic_trace(get_model(network, weights=None).eval())
    except (torch.fx.proxy.TraceError, TypeError, ValueError) as error:
        raise ConfigError(
            f"network {network!r} cannot be traced: choose vgg16, vgg19, squeezenet1_0, resnet18, ..."
        ) from error
    return module


@dataclass(frozen=True)
class _Grid:
    """Where a tensor's cells sit on the pixel grid, and the weights behind it."""

    stride: float = 1.0
    offset: float = 0.0
    radius: float = 0.0
    n_channels: int = 3
    parameters: tuple[str, ...] = ()


def _find_layers(module: GraphModule) -> list[Layer]:
    """Walk the graph and list its spatial activations with their grids."""
    from torch import nn

    activations = (nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU, nn.Hardswish, nn.LeakyReLU, nn.ELU)
    grids: dict[Node, _Grid | None] = {}
    layers: list[Layer] = []
    vgg_name = _VGGNames() if _is_plain(module) else None
    fire_title = _FireTitles() if _has_fire(module) else None
    for node in module.graph.nodes:
        inputs = [grids[parent] for parent in node.all_input_nodes]
        if node.op == "placeholder":
            grids[node] = _Grid()
            continue
        if not inputs or any(grid is None for grid in inputs):
            grids[node] = None
            continue
        known = [grid for grid in inputs if grid is not None]
        submodule = module.get_submodule(str(node.target)) if node.op == "call_module" else None
        grids[node] = _next_grid(node, submodule, known)
        grid = grids[node]
        if vgg_name is not None:
            vgg_name.pass_by(submodule)
        if fire_title is not None:
            fire_title.pass_by(str(node.target), submodule)
        is_activation = isinstance(submodule, activations) or getattr(node.target, "__name__", "") == "relu"
        if grid is not None and is_activation and grid.parameters:
            name = str(vgg_name) if vgg_name is not None else str(node.name).removeprefix("features_")
            layers.append(
                Layer(
                    name,
                    name if fire_title is None else str(fire_title),
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
    """Grid of a node's output; None once the image plane is gone (global pooling, flattening)."""
    from torch import nn

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
    concatenated = getattr(node.target, "__name__", "") == "cat"
    n_channels = sum(grid.n_channels for grid in inputs) if concatenated else widest.n_channels
    return _Grid(widest.stride, widest.offset, widest.radius, n_channels, parameters)


def _first(value: int | tuple[int, ...]) -> int:
    return value if isinstance(value, int) else value[0]


def _is_plain(module: GraphModule) -> bool:
    """Whether a network is a plain stack of convolutions and poolings, as VGG is."""
    from torch import nn

    features = getattr(module, "features", None)
    return isinstance(features, nn.Module) and all(
        isinstance(child, nn.Conv2d | nn.ReLU | nn.MaxPool2d | nn.BatchNorm2d) and not list(child.children())
        for child in features.children()
    )


class _VGGNames:
    """Counts convolutions and poolings to give VGG's own layer names, conv<block>_<number>."""

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
    """Whether a network is a SqueezeNet."""
    return any(name.endswith("expand3x3") for name, _ in module.named_modules())


class _FireTitles:
    """Counts blocks of convolutions to give SqueezeNet's own names: conv1, fire2_squeeze, ..., conv10."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._part = ""

    def pass_by(self, target: str, submodule: Any) -> None:
        from torch import nn

        if isinstance(submodule, nn.Conv2d):
            # features.3.squeeze is in a fire module, features.0 by itself
            block, self._part = ".".join(target.split(".")[:2]), "_".join(target.split(".")[2:])
            if block not in self._blocks:
                self._blocks.append(block)

    def __str__(self) -> str:
        number = len(self._blocks)
        return f"fire{number}_{self._part}" if self._part else f"conv{number}"


def _random_state_dict(expected: dict[str, torch.Tensor], random_state: int) -> dict[str, torch.Tensor]:
    """Kaiming-normal convolutions and neutral normalisations, seeded."""
    import torch

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


def _check_shapes(network: str, expected: dict[str, torch.Tensor], state: dict[str, torch.Tensor]) -> None:
    for key, tensor in expected.items():
        if key in state and state[key].shape != tensor.shape:
            raise WeightsError(
                f"weights of {key} have shape {tuple(state[key].shape)}, {network} needs {tuple(tensor.shape)}: "
                f"give that network's weights"
            )
