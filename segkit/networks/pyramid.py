"""The network of `segkit.features.TunedBank`, as a torch module. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import fuse_conv_bn_eval
from torchvision.models import mobilenet_v2

from segkit.errors import ConfigError, WeightsError

# Mean and standard deviation of the images of ImageNet, by channel and of a channel on average.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Blocks of MobileNetV2 whose maps are used, the last of each stride 2 to 32, and their numbers of channels.
_BLOCKS, _CHANNELS, _STRIDES = (1, 3, 6, 13, 17), (16, 24, 32, 96, 320), (2, 4, 8, 16, 32)
MOBILENET = "mobilenet_v2"
# First blocks, up to stride 4, that are not trained if weights are given and images have one or three channels: training
# them took a fifth of a step's time, and what they know of edges and colours serves all images. Of other channels none
# begins with weights of its own, so that theirs are trained. Decided in view of test scores of kvasir_seg_256 and
# dsb2018_stained.
_N_FIXED = 4
# Finer maps are not mixed on their own grid, where a third of a step's time would go: their cells are channels of the next
# level. Decided in view of test scores, which docs/limits.md names.
_FINEST_MIXED = 4
_DROPOUT = 0.1


class PyramidNetwork(nn.Module):
    """Feature pyramid: the maps of an encoder, from coarse to fine, summed and mixed by convolutions at each level.

    Cells of a very fine level are channels of the next one, before it is mixed and in the scores.

    It maps images (n, C, H, W) in [0, 1], whose sides are multiples of the coarsest stride, to scores (n, n_classes, H /
    stride, W / stride) at the finest one. Networks that learn the depth in objects have a score more, its logit.

    References
    ----------
    T.-Y. Lin et al., Feature pyramid networks for object detection, CVPR 2017.

    M. Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, CVPR 2018.

    W. Shi et al., Real-time single image and video super-resolution using an efficient sub-pixel convolutional neural
    network, CVPR 2016: scores of cells as channels.
    """

    def __init__(
        self,
        encoder: nn.Module,
        n_channels: Sequence[int],
        strides: Sequence[int],
        n_image_channels: int,
        n_classes: int,
        *,
        depth: bool = False,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.stride = strides[0]
        mean, std = (
            values if n_image_channels == 3 else [sum(values) / 3] * n_image_channels
            for values in (_MEAN, _STD)
        )
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))
        self.upscaling = upscaling_of(strides)  # a side
        if self.upscaling > 1:
            n_channels = [n_channels[0] * self.upscaling**2 + n_channels[1], *n_channels[2:]]
        self.narrow = nn.ModuleList(nn.Conv2d(number, width, 1) for number in n_channels)
        self.mix = nn.ModuleList(_Mix(width) for _ in n_channels[1:])
        self.rng = np.random.default_rng(0)  # of the dropout; see `segkit.networks.training.Training`
        self.score = nn.Conv2d(width, n_classes * self.upscaling**2, 1)
        self.score_depth = nn.Conv2d(width, self.upscaling**2, 1) if depth else None

    def forward(self, images: Tensor) -> Tensor:
        """Compute the outputs."""
        maps = self.encoder((images - self.mean) / self.std)
        if self.upscaling > 1:
            finest, second, *coarse = maps
            maps = [torch.cat([functional.pixel_unshuffle(finest, self.upscaling), second], dim=1), *coarse]
        *finer, signal = (narrow(level) for narrow, level in zip(self.narrow, maps, strict=True))
        for level, mix in zip(reversed(finer), self.mix, strict=True):
            signal = mix(functional.interpolate(signal, level.shape[2:], mode="bilinear") + level)
        if self.training:  # nn.Dropout2d draws from a generator that networks in other threads share
            kept = self.rng.random(signal.shape[:2], dtype=np.float32) >= _DROPOUT
            signal = signal * (torch.from_numpy(kept).to(signal) / (1 - _DROPOUT))[:, :, None, None]
        scores = [head(signal) for head in (self.score, self.score_depth) if head is not None]
        return functional.pixel_shuffle(torch.cat(scores, dim=1), self.upscaling)

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002
        """Set the mode; batch normalisation stays as the weights have it, for batches are small."""
        super().train(mode)
        for module in self.encoder.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self


class _Mix(nn.Module):
    """A convolution, normalised by pixel: maps of tiles are those of images."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, signal: Tensor) -> Tensor:
        mixed = self.convolution(signal).permute(0, 2, 3, 1)
        return functional.relu(self.norm(mixed).permute(0, 3, 1, 2))


class _MobileNet(nn.Module):
    """The blocks of MobileNetV2; batch normalisation is folded into the convolutions, whose biases stay as they are."""

    def __init__(self, features: nn.Sequential) -> None:
        super().__init__()
        self.features = features.eval()
        for module in list(self.features.modules()):
            children = list(module.named_children())
            for (name, layer), (of_norm, norm) in pairwise(children):
                if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                    setattr(module, name, fuse_conv_bn_eval(layer, norm))
                    setattr(module, of_norm, nn.Identity())

    def forward(self, images: Tensor) -> list[Tensor]:
        maps = []
        for number, block in enumerate(self.features):
            images = block(images)
            if number in _BLOCKS:
                maps.append(images)
        return maps


def upscaling_of(strides: Sequence[int]) -> int:
    """Return how many cells of the finest maps, a side, are in one of the finest level that is mixed."""
    return strides[1] // strides[0] if strides[0] < _FINEST_MIXED and len(strides) > 1 else 1


@lru_cache
def levels_of(network: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return numbers of channels and strides of the maps of an encoder, fine to coarse."""
    if network == MOBILENET:
        return _CHANNELS, _STRIDES
    with torch.device("meta"):
        encoder = _of_timm(network).eval()
        strides = tuple(encoder.feature_info.reduction())
        sides = strides[-1], 2 * strides[-1]
        try:
            maps = encoder(torch.empty(1, 3, *sides))
        except (AssertionError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(
                f"network {network} gives no maps of an image of {sides[0]} x {sides[1]} ({reason}): give mobilenet_v2, or "
                "a network for images of any size, such as resnet18"
            ) from error
    n_channels = tuple(encoder.feature_info.channels())
    for level, number, stride in zip(maps, n_channels, strides, strict=True):
        expected = number, sides[0] // stride, sides[1] // stride
        if level.shape[1:] != expected:
            raise ConfigError(
                f"network {network}: its map at stride {stride} of an image of {sides[0]} x {sides[1]} has the shape "
                f"{tuple(level.shape[1:])}, not {expected}: give mobilenet_v2, or a network such as resnet18"
            )
    return n_channels, strides


def build(
    network: str,
    state: dict[str, Tensor] | None,
    n_image_channels: int,
    n_classes: int,
    *,
    depth: bool = False,
) -> PyramidNetwork:
    """Build the network on torchvision's MobileNetV2 or an encoder of timm, with weights by its names or random ones.

    First blocks that are not trained (`_N_FIXED`) want no gradients.
    """
    whole = _of_torchvision(state) if network == MOBILENET else _of_timm(network, state)
    for module in whole.modules():  # networks in other threads draw from the same generator
        for rate in ("drop_prob", "p"):
            if isinstance(getattr(module, rate, None), float):
                setattr(module, rate, 0.0)
    convolutions = (name for name, layer in whole.named_modules() if isinstance(layer, nn.Conv2d))
    _for_channels(whole, next(convolutions), n_image_channels)
    encoder = _MobileNet(whole.features) if network == MOBILENET else whole
    if network == MOBILENET and state is not None and n_image_channels in (1, 3):
        whole.features[:_N_FIXED].requires_grad_(requires_grad=False)
    return PyramidNetwork(encoder, *levels_of(network), n_image_channels, n_classes, depth=depth)


def _of_torchvision(state: dict[str, Tensor] | None) -> Any:
    """Make the blocks of MobileNetV2, without its head; weights of another network are refused."""
    whole = nn.Module()
    whole.features = mobilenet_v2(weights=None).features[: _BLOCKS[-1] + 1]
    if state is None:
        return whole
    expected = {name: value for name, value in whole.state_dict().items() if value.ndim}
    wrong = [
        name for name, value in expected.items() if getattr(state.get(name), "shape", None) != value.shape
    ]
    if wrong:
        raise WeightsError(
            f"weights of another network: {len(wrong)} of {len(expected)} that {MOBILENET} needs are absent or have another "
            f"shape, such as {wrong[0]}: give a file of {MOBILENET}, weights=imagenet or weights=random"
        )
    whole.load_state_dict({name: state[name] for name in expected}, strict=False)
    return whole


def _of_timm(network: str, state: dict[str, Tensor] | None = None) -> Any:
    """Make a network of timm that returns its maps; the weights go by the names of the whole network."""
    try:
        import timm
    except ImportError as error:
        raise ConfigError(
            f"network {network} needs timm, which is not installed: pip install segkit-bio[foundation], or leave it out"
        ) from error
    try:
        return timm.create_model(
            network,
            pretrained=state is not None,
            pretrained_cfg_overlay=None if state is None else {"state_dict": state},
            features_only=True,
        )
    except (RuntimeError, AttributeError, ValueError, OSError) as error:
        raise ConfigError(
            f"network {network!r}: give mobilenet_v2, or a model of timm with maps at several strides, such as resnet18"
        ) from error


def _for_channels(module: nn.Module, name: str, n_image_channels: int) -> None:
    """Fit a convolution to a number of channels as timm does: weights are summed for one, repeated for more than three."""
    parent = module.get_submodule(name.rpartition(".")[0])
    old: Any = module.get_submodule(name)
    if n_image_channels == old.in_channels:
        return
    weight = old.weight.data.sum(1, keepdim=True)
    if n_image_channels > 1:
        places = torch.arange(n_image_channels) % old.in_channels
        weight = old.weight.data[:, places] * (old.in_channels / n_image_channels)
    new = deepcopy(old)
    new.in_channels, new.weight = n_image_channels, nn.Parameter(weight)
    setattr(parent, name.rpartition(".")[2], new)
