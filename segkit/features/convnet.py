"""Pre-trained convolutional networks as filter banks (paper, section 7.2.1).

Feature maps are the outputs of the non-linearities, and of residual blocks, at their native resolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from segkit._common import FloatArray
from segkit._common.device import told_if_full, torch_device
from segkit.errors import ConfigError, InputError
from segkit.features.base import FeatureMaps, as_image
from segkit.features.networks import (
    ChannelMode,
    NetworkBank,
    Pyramid,
    State,
    Task,
    as_batch,
    at_scale,
    three_channels,
)
from segkit.features.tiles import Tile
from segkit.features.tracing import Output, Trace
from segkit.features.weights import load_weights

if TYPE_CHECKING:
    import torch

PREPROCESSING = {
    "torchvision": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "caffe": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255)),
}
# Name for the outputs of all non-linearities.
ACTIVATIONS = "activations"


def _shrinks(pyramid: Sequence[float]) -> Sequence[float]:
    if max(pyramid) > 1:
        raise ConfigError("scales should be 1 or less")
    return pyramid


class ConvNetBank(NetworkBank):
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
    >>> from segkit.features import ConvNetBank
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
        pyramid: Annotated[Pyramid, AfterValidator(_shrinks)] = (1.0,),
        output_stride: Literal[8, 16, 32] | None = None,
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

    _network_parameters = ("network", "output_stride")

    @property
    def label(self) -> str:
        """Name of the network, the deepest of the chosen layers, the scales of the pyramid, and the output stride."""
        depth = "" if self.layers is None or self.layers[-1] == ACTIVATIONS else f" to {self.layers[-1]}"
        dilated = "" if self.output_stride is None else f" with stride {self.output_stride}"
        return f"{self.network}{depth}{super().label.removeprefix(self.network)}{dilated}"

    def _layers(self) -> list[Output]:
        self._check()
        trace = self._loaded()
        if self.layers is None:
            return [layer for layer in trace.layers if layer.is_default]
        every, named = (*trace.layers, *trace.missing), set(self.layers)
        if unknown := [
            name for name in self.layers if name not in {layer.name for layer in every} | {ACTIVATIONS}
        ]:
            labels = ", ".join(layer.name for layer in every)
            raise ConfigError(f"layers {', '.join(unknown)} are not in {self.network}: it has {labels}")
        # a model file holds the weights of kept channels only
        if self._given_state() is None:
            self._check_weights(layer for layer in trace.missing if layer.name in named)
        return [
            layer
            for layer in trace.layers
            if layer.name in named or (layer.is_activation and ACTIVATIONS in named)
        ]

    def _make(self, state: State | None) -> Trace:
        if state is None and self.weights != "random":
            state = load_weights(self.network, self.weights)
        return Trace(self.network, state, random_state=self.random_state, output_stride=self.output_stride)

    def _run_tasks(
        self, image: FloatArray, tile: Tile, tasks: Mapping[tuple[int, Fraction], list[Task]]
    ) -> Iterator[FeatureMaps]:
        views = three_channels(as_image(image[tile.seen]), self.channel_mode)
        for (view, scale), own in tasks.items():
            of_node = {task.layer.node: task for task in own}
            with told_if_full():
                batch = as_batch(views[view], *PREPROCESSING[self.preprocessing]).to(torch_device())
                for node, output in self._outputs(batch, scale, list(of_node)):
                    task, values = of_node[node], output[0].cpu().numpy()
                    layer = task.layer
                    maps = values.transpose(2, 0, 1) if layer.channels_last else values
                    if task.own.size < layer.n_channels:
                        maps = _take(maps, task.own)
                    stride, offset = layer.stride / float(scale), at_scale(layer.offset, scale)
                    yield FeatureMaps(maps, task.channels, stride, offset)

    def _outputs(
        self, batch: torch.Tensor, scale: Fraction, nodes: list[str]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        import torch

        try:
            with told_if_full():
                if scale != 1:
                    batch = _shrink(batch, scale)
                batch = batch.contiguous(memory_format=torch.channels_last)
                yield from self._loaded().outputs(batch, nodes)
        # torch refuses maps of no pixels, and mirroring more pixels than there are, with this error.
        except RuntimeError as error:
            height, width = batch.shape[2:]
            raise InputError(
                f"image of {height} x {width} pixels (scale {float(scale):g}) is too small for {self.network}: "
                f"choose shallower layers (bank.layers), fewer scales (bank.pyramid), or larger images"
            ) from error


def _take(maps: FloatArray, channels: NDArray[np.intp]) -> FloatArray:
    """Take some channels of maps (C, H, W); the channels of a pixel stay side by side in memory."""
    return maps.transpose(1, 2, 0).take(channels, axis=2).transpose(2, 0, 1)


def _shrink(batch: torch.Tensor, scale: Fraction) -> torch.Tensor:
    """Shrink an image (1, C, H, W) by exactly `scale`, after mirroring its far edges to a multiple of 1 / scale."""
    from torch.nn import functional

    step = scale.denominator
    padding = [-batch.shape[axis] % step for axis in (3, 2)]
    batch = functional.pad(batch, (0, padding[0], 0, padding[1]), mode="reflect")
    size = [batch.shape[axis] // step for axis in (2, 3)]
    return functional.interpolate(batch, size=size, mode="bilinear", antialias=True, align_corners=False)
