"""The networks of the baselines, as torch modules. Importing this module imports torch."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import get_model
from torchvision.models.segmentation import fcn_resnet50


class SkipFCN(nn.Module):
    """Fully convolutional network with skips from the poolings of its encoder."""

    def __init__(
        self,
        features: nn.Sequential,
        n_image_channels: int,
        n_classes: int,
        *,
        n_hidden: int,
        output_stride: int,
    ) -> None:
        super().__init__()
        grids = _map_grids(features, n_image_channels)
        deepest, n_channels = grids[-1]
        self.features = features
        self.fc6 = nn.Conv2d(n_channels, n_hidden, 7, padding=3)
        self.fc7 = nn.Conv2d(n_hidden, n_hidden, 1)
        self.score = nn.Conv2d(n_hidden, n_classes, 1)
        self.skips = nn.ModuleDict(
            {
                name: nn.Conv2d(width, n_classes, 1)
                for (name, layer), (stride, width) in zip(features.named_children(), grids, strict=True)
                if isinstance(layer, nn.MaxPool2d) and output_stride <= stride < deepest
            }
        )

    def forward(self, images: Tensor) -> Tensor:
        """Compute scores (n, n_classes, H, W) of images (n, C, H, W)."""
        signal, skips = images, []
        for name, layer in self.features.named_children():
            signal = layer(signal)
            if name in self.skips:
                skips.append(self.skips[name](signal))
        for convolution in (self.fc6, self.fc7):
            signal = functional.dropout(functional.relu(convolution(signal)), training=self.training)
        scores = self.score(signal)
        for skip in reversed(skips):
            scores = _enlarge(scores, skip.shape[2:]) + skip
        return _enlarge(scores, images.shape[2:])


class ResNetFCN(nn.Module):
    """torchvision's `fcn_resnet50`, for any number of image channels."""

    def __init__(self, n_image_channels: int, n_classes: int) -> None:
        super().__init__()
        self.fcn = fcn_resnet50(weights=None, weights_backbone=None, num_classes=n_classes)
        backbone = self.fcn.backbone
        backbone.conv1 = _for_channels(backbone.conv1, n_image_channels)
        _initialise(backbone.conv1)

    def forward(self, images: Tensor) -> Tensor:
        """Compute scores (n, n_classes, H, W) of images (n, C, H, W)."""
        return cast("Tensor", self.fcn(images)["out"])


class UNetwork(nn.Module):
    """U-Net with padded convolutions and batch normalisation."""

    def __init__(self, n_image_channels: int, n_classes: int, *, n_filters: int, depth: int) -> None:
        super().__init__()
        widths = [n_filters * 2**level for level in range(depth + 1)]
        pairs = list(pairwise(widths))
        self.first = _double_convolution(n_image_channels, n_filters)
        self.down = nn.ModuleList(_double_convolution(fine, coarse) for fine, coarse in pairs)
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(coarse, fine, 2, stride=2) for fine, coarse in pairs)
        self.up = nn.ModuleList(_double_convolution(2 * fine, fine) for fine in widths[:-1])
        self.score = nn.Conv2d(n_filters, n_classes, 1)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Compute scores (n, n_classes, H, W) of images (n, C, H, W)."""
        levels = [self.first(images)]
        for layer in self.down:
            levels.append(layer(functional.max_pool2d(levels[-1], 2)))
        signal = levels.pop()
        for skip, enlarge, layer in reversed(list(zip(levels, self.enlarge, self.up, strict=True))):
            signal = layer(torch.cat([skip, enlarge(signal)], dim=1))
        return cast("Tensor", self.score(signal))


class EncoderUNet(nn.Module):
    """U-Net of segmentation_models_pytorch."""

    def __init__(self, unet: nn.Module, *, keep_statistics: bool = False) -> None:
        super().__init__()
        self.unet = unet
        # a batch of few crops would replace the mean and variance of trained weights by poor ones
        self._keep_statistics = keep_statistics

    def train(self, mode: bool = True) -> EncoderUNet:  # noqa: FBT001, FBT002
        """Switch to training or to prediction."""
        super().train(mode)
        if self._keep_statistics:
            for layer in cast("nn.Module", self.unet.encoder).modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Compute scores (n, n_classes, H, W) of images (n, C, H, W)."""
        return cast("Tensor", self.unet(images))


def build_skip_fcn(
    backbone: str, n_image_channels: int, n_classes: int, *, n_hidden: int, output_stride: int
) -> SkipFCN:
    """Build an FCN on a torchvision network, with He's initialisation and score layers of zeros."""
    # Tensors on "meta" hold no data: torchvision would otherwise draw the weights of an unused classifier.
    with torch.device("meta"):
        features = get_model(backbone).features
        features[0] = _for_channels(features[0], n_image_channels)
        network = SkipFCN(
            features, n_image_channels, n_classes, n_hidden=n_hidden, output_stride=output_stride
        )
    network.to_empty(device="cpu")
    _initialise(network)
    # Zero scores: all classes are equally likely at first, and the skips do not disturb the coarse scores.
    for layer in (network.score, *network.skips.values()):
        nn.init.zeros_(cast("nn.Conv2d", layer).weight)
    return network


def _map_grids(features: nn.Sequential, n_image_channels: int) -> list[tuple[int, int]]:
    """Compute stride and number of channels of the map after each layer of a sequence."""
    grids, stride = [], 1
    # Run on a small empty image (on "meta", so nothing is computed) to learn the channels of each layer.
    signal = torch.empty(1, n_image_channels, 64, 64)
    for layer in features:
        signal = layer(signal)
        step = getattr(layer, "stride", 1)
        stride *= step[0] if isinstance(step, tuple) else step
        grids.append((stride, signal.shape[1]))
    return grids


def _for_channels(convolution: nn.Conv2d, n_image_channels: int) -> nn.Conv2d:
    """Make the same convolution for another number of input channels."""
    return nn.Conv2d(
        n_image_channels,
        convolution.out_channels,
        cast("tuple[int, int]", convolution.kernel_size),
        stride=cast("tuple[int, int]", convolution.stride),
        padding=cast("tuple[int, int]", convolution.padding),
        bias=convolution.bias is not None,
    )


def _initialise(network: nn.Module) -> None:
    """Draw all convolutions by He's initialisation."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def _double_convolution(n_in: int, n_out: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_channels in (n_in, n_out):
        layers += [
            # No bias: batch normalisation would subtract it.
            nn.Conv2d(n_channels, n_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)


def _enlarge(scores: Tensor, size: torch.Size) -> Tensor:
    return functional.interpolate(scores, size=size, mode="bilinear", align_corners=False)
