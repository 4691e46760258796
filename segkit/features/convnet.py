"""Pre-trained convolutional networks as filter banks (paper, section 7.2.1).

Feature maps are the outputs of the non-linearities, and of residual blocks, at their native resolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from segkit._common import FloatArray
from segkit._device import card_has_room, torch_device
from segkit.errors import ConfigError, InputError, WeightsError
from segkit.features.base import Channel, FeatureMaps, TiledBank, as_image
from segkit.features.colours import ChannelMode, Pyramid, check_mode, count_views, three_channels
from segkit.features.layers import Layer
from segkit.features.tiles import Tile
from segkit.features.tracing import Trace
from segkit.features.weights import load_weights

if TYPE_CHECKING:
    import torch

PREPROCESSING = {
    "torchvision": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "caffe": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255)),
}
# Bytes for each pixel of an image while the first layers work: two maps of 64 channels, and the image in its own order.
_BYTES_ON_THE_WAY = 640
# Name for the outputs of all non-linearities.
ACTIVATIONS = "activations"
OutputStride = Literal[8, 16, 32]
# Network, weights, seed of random weights and output stride: the parameters that determine the traced network.
_Source = tuple[str, str, int | None, int | None]


class ConvNetBank(TiledBank):
    """Filters of a pre-trained convolutional network.

    Parameters
    ----------
    network : str, default="vgg16"
        Any torchvision classification network of convolutions and poolings: "vgg16" (13
        layers, 4,224 filters, as in the paper), "vgg19", "squeezenet1_0", "resnet18", "mobilenet_v2",
        "efficientnet_b0", "convnext_tiny", ...
    weights : str or Path, default="imagenet"
        "imagenet" (torchvision's, downloaded once and checked), "random" (seeded, for tests and
        comparisons), the path of a file, or an address (see `segkit.features.weights`). A
        file may hold only the first layers of a network; the bank then ends there.
    preprocessing : {"torchvision", "caffe"}, default="torchvision"
        Preprocessing of the weights' training: (RGB - mean) / std on [0, 1], or RGB * 255 - mean.
    channel_mode : {"rgb", "each", "mean"}, default="rgb"
        Mapping of image channels to the network's three. "rgb": three channels stay, one channel is
        copied to three, other numbers are an error. "each": run the network on each channel, copied to
        three, and use the maps of all. "mean": copy the mean of the channels to three.
    layers : sequence of str, optional
        Names of the layers to use. By default the outputs of all non-linearities; in networks of residual blocks the
        outputs of these blocks, after the sum, and of the non-linearities outside of them. A block has the name of its
        torchvision module, such as "layer2.0" in ResNet and "features.3" in MobileNetV2, and "features.3.projection" is
        its last convolution before the sum. "activations" stands for the outputs of all non-linearities.
    pyramid : sequence of float, default=(1.0,)
        Scales of the image that the network sees, each 1, 1/2, 1/3 and so on. Small scales add context.
    output_stride : {8, 16, 32}, optional
        Largest stride of the maps. Strides beyond it become dilation, with the same weights (Chen et al., section 3.1), so
        that deep layers see detail. By default the network's own, mostly 32.
    random_state : int, default=0
        Seed of random weights.

    Notes
    -----
    The network runs no deeper than the deepest wanted channel. Layers behind squeeze-and-excitation, as in EfficientNet,
    depend on the whole image: images are not cut into tiles for them.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, section 7.2.1.

    K. Simonyan, A. Zisserman, Very deep convolutional networks for large-scale image recognition,
    arXiv:1409.1556.

    L.-C. Chen et al., Rethinking atrous convolution for semantic image segmentation, arXiv:1706.05587.

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
        preprocessing: Literal["torchvision", "caffe"] = "torchvision",
        channel_mode: ChannelMode = "rgb",
        layers: Annotated[Sequence[str], Field(min_length=1, max_length=100)] | None = None,
        pyramid: Pyramid = (1.0,),
        output_stride: OutputStride | None = None,
        random_state: int = 0,
    ) -> None:
        self.network = network
        self.weights = weights
        self.preprocessing = preprocessing
        self.channel_mode = channel_mode
        self.layers = layers
        self.pyramid = pyramid
        self.output_stride = output_stride
        self.random_state = random_state

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels by view, scale and layer, in that order."""
        return tuple(
            Channel(f"{layer.name}/{index:03d}{suffix}", layer.label + suffix)
            for _, _, layer, suffix in self._blocks(n_image_channels)
            for index in range(layer.n_channels)
        )

    def n_channels(self, n_image_channels: int = 3) -> int:
        """Count the channels."""
        return sum(layer.n_channels for _, _, layer, _ in self._blocks(n_image_channels))

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Return the stride in pixels of each channel's map, in channel order."""
        blocks = [(layer, scale) for _, scale, layer, _ in self._blocks(n_image_channels)]
        strides = [layer.stride / scale for layer, scale in blocks]
        return np.repeat(strides, [layer.n_channels for layer, _ in blocks])

    @property
    def label(self) -> str:
        """Name of the network, the deepest of the chosen layers, the scales of the pyramid, and the output stride."""
        depth = "" if self.layers is None or self.layers[-1] == ACTIVATIONS else f" to {self.layers[-1]}"
        dilated = "" if self.output_stride is None else f" with stride {self.output_stride}"
        sizes = (
            "" if tuple(self.pyramid) == (1,) else f" at {', '.join(f'{size:g}' for size in self.pyramid)}"
        )
        return f"{self.network}{depth}{sizes}{dilated}"

    @property
    def halo(self) -> int:
        """Largest radius of a receptive field over layers and scales, and a cell for interpolation."""
        return max(
            math.ceil((layer.radius + 1) / scale + layer.stride / scale)
            for layer in self._selected_layers()
            for scale in self.pyramid
        )

    @property
    def alignment(self) -> int:
        """Least common multiple of the strides of the layers at each scale, in pixels of the image."""
        return math.lcm(
            *(
                round(layer.stride * round(1 / scale))
                for layer in self._selected_layers()
                for scale in self.pyramid
            )
        )

    @property
    def is_local(self) -> bool:
        """Whether no layer depends on means over the whole image."""
        return not any(layer.is_global for layer in self._selected_layers())

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Count the maps of the layers, and those of the widest layers at full resolution on the way to them."""
        return self.bytes_of_maps(n_image_channels) + _BYTES_ON_THE_WAY

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the maps of a tile layer by layer; see `FilterBank.iter_maps`."""
        image = as_image(image[tile.seen])
        views = self._views(image)
        wanted = np.sort(self._wanted(channels, image.shape[2]))
        start = 0
        tasks: dict[tuple[int, float], dict[str, tuple[Layer, NDArray[np.intp], int]]] = {}
        for view, scale, layer, _ in self._blocks(image.shape[2]):
            end = start + layer.n_channels
            # Collect the layers of each view and scale, so that the network runs once on it.
            kept = wanted[slice(*np.searchsorted(wanted, [start, end]))]
            if kept.size:
                tasks.setdefault((view, scale), {})[layer.node] = layer, kept, start
            start = end
        for (view, scale), layers in tasks.items():
            for node, output in self._run(views[view], scale, list(layers)):
                layer, kept, first = layers[node]
                maps = output.transpose(2, 0, 1) if layer.channels_last else output
                values = maps if kept.size == layer.n_channels else _take(maps, kept - first)
                # Pixel q of the scaled image is centred on pixel (q + 1/2) / scale - 1/2 of the original.
                offset = (layer.offset + 0.5) / scale - 0.5
                yield FeatureMaps(values, kept, layer.stride / scale, offset)

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:
        """Collect the weights that these channels need, by torchvision's names."""
        known = self.channels(n_image_channels)
        # The group of a channel is the label of its layer, then #view and @scale.
        labels = {known[index].group.split("@")[0].split("#")[0] for index in channels}
        needed = {key for layer in self._trace.layers if layer.label in labels for key in layer.parameters}
        return {key: self._trace.state[key].numpy() for key in sorted(needed)}

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Use these weights, by torchvision's names, of all layers or the first ones, in place of the named ones.

        They are used as long as `network`, `weights`, `output_stride` and the seed of random weights have their present
        values. Copies and pickles keep them; `sklearn.base.clone` drops them, like all fitted state.
        """
        source = self._source()
        self._cached_trace = source, self._make_trace(source, weights)
        self._given_weights = source, dict(weights)

    def _source(self) -> _Source:
        """Return the parameters that determine the weights."""
        weights = str(self.weights)
        return self.network, weights, self.random_state if weights == "random" else None, self.output_stride

    @property
    def _trace(self) -> Trace:
        """The traced network with its weights, made again whenever its parameters change."""
        self._check()
        source = self._source()
        cached: tuple[_Source, Trace] | None = getattr(self, "_cached_trace", None)
        if cached is None or cached[0] != source:
            cached = source, self._make_trace(source, self._given())
            self._cached_trace = cached
        return cached[1]

    def _given(self) -> dict[str, NDArray[Any]] | None:
        """Return the weights that `use_weights` took, if the parameters are still those of then."""
        source, weights = getattr(self, "_given_weights", (None, None))
        return weights if source == self._source() else None

    def _make_trace(self, source: _Source, given: dict[str, NDArray[Any]] | None) -> Trace:
        """Trace the network, with the given weights, or with the weights named by the parameters."""
        import torch

        network, weights, _, output_stride = source
        state: dict[str, torch.Tensor] | None
        if given is not None:
            state = {key: torch.from_numpy(value) for key, value in given.items()}
        else:
            state = None if weights == "random" else load_weights(network, weights)
        return Trace(network, state, random_state=self.random_state, output_stride=output_stride)

    def _check(self) -> None:
        if self.preprocessing not in PREPROCESSING:
            raise ConfigError(
                f"preprocessing {self.preprocessing!r}: choose one of {', '.join(PREPROCESSING)}"
            )
        check_mode(self.channel_mode)
        if self.output_stride not in (None, *get_args(OutputStride)):
            raise ConfigError(
                f"output_stride {self.output_stride!r}: choose one of {', '.join(map(str, get_args(OutputStride)))}, or None"
            )
        if not self.pyramid or not all(map(_is_unit_fraction, self.pyramid)):
            raise ConfigError(
                f"pyramid {list(self.pyramid)}: give one or more of 1, 1/2, 1/3 and so on, such as [1, 0.5]"
            )
        if len(set(self.pyramid)) < len(self.pyramid):
            raise ConfigError(f"pyramid {list(self.pyramid)}: give each scale once")

    def __getstate__(self) -> dict[str, Any]:
        # A traced network cannot be pickled: its code is made when it is traced.
        return {key: value for key, value in super().__getstate__().items() if key != "_cached_trace"}

    def _blocks(self, n_image_channels: int) -> list[tuple[int, float, Layer, str]]:
        """List (view, scale, layer, suffix of channel names), in channel order."""
        layers = self._selected_layers()
        views = count_views(self.channel_mode, n_image_channels)
        return [
            (view, scale, layer, (f"#{view}" if views > 1 else "") + (f"@{scale:g}" if scale != 1 else ""))
            for view in range(views)
            for scale in self.pyramid
            for layer in layers
        ]

    def _selected_layers(self) -> list[Layer]:
        trace = self._trace
        if self.layers is None:
            return [layer for layer in trace.layers if layer.is_default]
        known = {name for layer in (*trace.layers, *trace.missing) for name in (layer.name, layer.label)}
        if missing := [name for name in self.layers if name not in known | {ACTIVATIONS}]:
            labels = ", ".join(layer.label for layer in (*trace.layers, *trace.missing))
            raise ConfigError(f"layers {', '.join(missing)} are not in {self.network}: it has {labels}")
        # a model file holds the weights of kept channels only
        if self._given() is None:
            self._refuse_layers_without_weights(trace.missing)
        return [layer for layer in trace.layers if self._names(layer)]

    def _names(self, layer: Layer) -> bool:
        """Return whether the option `layers` names a layer."""
        named = set(self.layers or ())
        return bool({layer.name, layer.label} & named) or (layer.is_activation and ACTIVATIONS in named)

    def _refuse_layers_without_weights(self, missing: dict[Layer, list[str]]) -> None:
        for layer, keys in missing.items():
            if {layer.name, layer.label} & set(self.layers or ()):
                raise WeightsError(
                    f"weights {self.weights} lack {keys[0]}, which layer {layer.label} of {self.network} needs: "
                    f"leave that layer out (bank.layers), or give weights that hold it"
                )

    def _views(self, image: FloatArray) -> list[FloatArray]:
        """Make the normalised three-channel images, (3, H, W), that the network runs on."""
        mean, std = (np.array(values, dtype=np.float32) for values in PREPROCESSING[self.preprocessing])
        return [
            np.ascontiguousarray(((view - mean) / std).transpose(2, 0, 1))
            for view in three_channels(image, self.channel_mode)
        ]

    def _run(self, view: FloatArray, scale: float, nodes: list[str]) -> Iterator[tuple[str, FloatArray]]:
        import torch

        with card_has_room():
            batch = torch.from_numpy(view)[None].to(torch_device())
            for node, output in self._outputs(batch, scale, nodes):
                yield node, output[0].cpu().numpy()

    def _outputs(
        self, batch: torch.Tensor, scale: float, nodes: list[str]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        import torch

        try:
            if scale != 1:
                batch = _shrink(batch, scale)
            batch = batch.contiguous(memory_format=torch.channels_last)
            yield from self._trace.outputs(batch, nodes)
        except torch.cuda.OutOfMemoryError:
            raise
        # torch refuses maps of no pixels, and mirroring more pixels than there are, with this error.
        except RuntimeError as error:
            height, width = batch.shape[2:]
            raise InputError(
                f"image of {height} x {width} pixels (scale {scale:g}) is too small for {self.network}: "
                f"choose shallower layers (bank.layers), fewer scales (bank.pyramid), or larger images"
            ) from error


def _take(maps: FloatArray, channels: NDArray[np.intp]) -> FloatArray:
    """Take some channels of maps (C, H, W); the channels of a pixel stay side by side in memory."""
    return maps.transpose(1, 2, 0).take(channels, axis=2).transpose(2, 0, 1)


def _is_unit_fraction(scale: float) -> bool:
    return 0 < scale <= 1 and math.isclose(1 / scale, round(1 / scale))


def _shrink(batch: torch.Tensor, scale: float) -> torch.Tensor:
    """Shrink an image (1, C, H, W) by exactly `scale`, after mirroring its far edges to a multiple of 1 / scale."""
    from torch.nn import functional

    step = round(1 / scale)
    padding = [-batch.shape[axis] % step for axis in (3, 2)]
    batch = functional.pad(batch, (0, padding[0], 0, padding[1]), mode="reflect")
    size = [round(batch.shape[axis] * scale) for axis in (2, 3)]
    return functional.interpolate(batch, size=size, mode="bilinear", antialias=True, align_corners=False)
