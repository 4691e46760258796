"""Networks of timm as filter banks: transformers such as DINOv2, and convolutional networks.

A network sees windows of one size, laid over the whole image with an overlap. Their maps are blended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from segkit._common import FloatArray
from segkit._common.device import told_if_full, torch_device
from segkit.errors import ConfigError, InputError
from segkit.features.backbone import Backbone, blocks_of, coarsest_stride, configuration, usual_window
from segkit.features.base import FeatureMaps
from segkit.features.networks import (
    ChannelMode,
    Layer,
    NetworkBank,
    Pyramid,
    State,
    Task,
    as_batch,
    at_scale,
    scales_of,
    three_channels,
)
from segkit.features.tiles import Tile
from segkit.features.weights import load_pretrained, origin_of, read_weights
from segkit.features.windows import Blend, Cells, Side, read_window

# Larger windows are a mistake: the network would see more pixels than any was trained on.
MOST_WINDOW = 2048


class TimmBank(NetworkBank):
    """Filters of a network of timm, such as DINOv2.

    Parameters
    ----------
    network : str, default="vit_small_patch14_dinov2"
        Any model of timm with maps, with or without the tag of its weights: "vit_small_patch14_reg4_dinov2",
        "vit_small_patch16_dinov3", "vit_base_patch16_siglip_512.v2_webli", "samvit_base_patch16", "sam2_hiera_tiny",
        "convnext_tiny", "resnet18", ...
    weights : str or Path, default="pretrained"
        "pretrained" (timm's, downloaded once and checked), "random" (seeded, for tests and comparisons), or the path of a
        ``.safetensors``, ``.pth``, ``.pt``, ``.bin`` or ``.npz`` file with timm's names.
    window : int, optional
        Side in pixels of the windows that the network sees, a multiple of its coarsest stride. By default the least
        multiple from 256 on. Positional embeddings are resized to it.
    overlap : float, default=0.5
        Share of a window that its neighbour sees too, below 1; rounded to whole cells.
    layers : sequence of int, optional
        Blocks to use, from 0 on; negative numbers count from the last. By default one in the middle and the last.
    pyramid : sequence of float, default=(1.0,)
        Scales of the image that the network sees: 1/2, 1/3, ... add context, 2, 3, ... add detail. Windows have the same
        number of pixels at every scale, so they cover twice as much of the image at 1/2.
    channel_mode : {"rgb", "each", "mean"}, default="rgb"
        Mapping of image channels to the network's three, as in `ConvNetBank`.
    random_state : int, default=0
        Seed of random weights.

    Notes
    -----
    The maps are those of timm's ``forward_intermediates``. Blocks of a plain transformer pass through its last
    normalisation first, as DINOv2 is evaluated. A cell lies at the centre of its patch. Windows lie at the same places
    whichever part of an image is asked for; a map is the mean over the windows that hold a cell, weighted by a Hann
    window. An image smaller than a window is mirrored at its edges.

    References
    ----------
    M. Oquab et al., DINOv2: learning robust visual features without supervision, arXiv:2304.07193.

    R. Wightman, PyTorch image models, https://github.com/huggingface/pytorch-image-models.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.features import TimmBank
    >>> bank = TimmBank("vit_tiny_patch16_224", weights="random", window=64)  # doctest: +SKIP
    >>> bank.channels()[0]  # doctest: +SKIP
    Channel(name='blocks.5/000', group='blocks.5')
    """

    def __init__(
        self,
        network: Annotated[str, Field(min_length=1, max_length=200)] = "vit_small_patch14_dinov2",
        *,
        weights: str | Path = "pretrained",
        window: Annotated[int, Field(gt=0, le=MOST_WINDOW)] | None = None,
        overlap: Annotated[float, Field(ge=0, lt=1)] = 0.5,
        layers: Annotated[Sequence[Annotated[int, Field(ge=-1000, lt=1000)]], Field(min_length=1)]
        | None = None,
        pyramid: Pyramid = (1.0,),
        channel_mode: ChannelMode = "rgb",
        random_state: int = 0,
    ) -> None:
        self.network = network
        self.weights = weights
        self.window = window
        self.overlap = overlap
        self.layers = layers
        self.pyramid = pyramid
        self.channel_mode = channel_mode
        self.random_state = random_state

    _network_parameters = ("network", "_window")
    # Sums over windows, and the maps of a window.
    _n_copies = 3

    def weights_origin(self) -> list[dict[str, str | None]]:
        """List the model, the source and the licence of the weights; a file's licence is not known."""
        if str(self.weights) == "random":
            return []
        if str(self.weights) == "pretrained":
            return [origin_of(self.network)]
        return [{"model": self.network, "source": str(self.weights), "licence": None}]

    def _layers(self) -> list[Layer]:
        blocks = blocks_of(self.network, self._window)
        last = len(blocks) - 1
        layers = {last // 2, last} if self.layers is None else self.layers
        chosen = {index + len(blocks) if index < 0 else index for index in layers}
        if not chosen or not chosen <= set(range(len(blocks))) or len(chosen) < len(layers):
            raise ConfigError(
                f"layers {list(layers)}: {self.network} has blocks 0 to {last} (or -{last + 1} to -1): give one or more, "
                "each once"
            )
        return [blocks[index] for index in sorted(chosen)]

    def _make(self, state: State | None) -> Backbone:
        weights = str(self.weights)
        if state is None and weights != "random":
            pretrained = weights == "pretrained"
            state = load_pretrained(self.network) if pretrained else read_weights(Path(weights))
        return Backbone(self.network, self._window, state, random_state=self.random_state)

    def _run_tasks(
        self, image: FloatArray, tile: Tile, tasks: Mapping[tuple[int, Fraction], list[Task]]
    ) -> Iterator[FeatureMaps]:
        """Blend the maps of all windows that the tile's core touches."""
        for (view, scale), own in tasks.items():
            sides = [self._side(length, scale) for length in image.shape[:2]]
            self._check_size(image.shape, sides, scale)
            blends = [self._blend(task, scale, sides, tile) for task in own]
            for place in np.ndindex(*(side.n_windows for side in sides)):
                if any(blend.needs(place) for blend in blends):
                    rows, cols = (side.pixels(number) for side, number in zip(sides, place, strict=True))
                    window = three_channels(read_window(image, rows, cols), self.channel_mode)[view]
                    outputs = self._run(window, [task.layer for task in own])
                    for blend, task, output in zip(blends, own, outputs, strict=True):
                        blend.add(place, output[task.own])
            for blend, task in zip(blends, own, strict=True):
                corner = [seen.start for seen in tile.seen]
                offset = tuple(side.position - start for side, start in zip(blend.sides, corner, strict=True))
                yield FeatureMaps(blend.values(), task.channels, blend.sides[0].stride, offset)

    def _blend(self, task: Task, scale: Fraction, sides: Sequence[Side], tile: Tile) -> Blend:
        """Lay out the map of a layer on the cells that a tile's core needs."""
        n_cells, offset = round(self._window / task.layer.stride), at_scale(task.layer.offset, scale)
        rows, cols = (Cells(side, n_cells, offset, core) for side, core in zip(sides, tile.core, strict=True))
        return Blend(rows, cols, task.own.size)

    def _run(self, view: FloatArray, layers: Sequence[Layer]) -> list[FloatArray]:
        """Compute the maps (n_channels, h, w) of a window (H, W, 3) of the image, brought to the network's size."""
        import torch
        from torch.nn import functional

        found, window = configuration(self.network), self._window
        blocks = blocks_of(self.network, window)
        with torch.inference_mode(), told_if_full():
            batch = as_batch(view, found.mean, found.std).to(torch_device())
            if batch.shape[-1] != window:
                batch = functional.interpolate(
                    batch, size=(window, window), mode="bilinear", antialias=True, align_corners=False
                )
            outputs = self._loaded()(batch, [blocks.index(layer) for layer in layers])
            return [output[0].float().cpu().numpy() for output in outputs]

    def _side(self, length: int, scale: Fraction) -> Side:
        """Lay the windows along a side of the image, in its pixels."""
        n_cells = self._window // self._stride
        hop = max(1, min(n_cells, round((1 - self.overlap) * n_cells))) * self._stride
        return Side(length, int(self._window / scale), int(hop / scale))

    def _check_size(self, shape: tuple[int, ...], sides: Sequence[Side], scale: Fraction) -> None:
        """Refuse an image that would have to be mirrored more than once."""
        if all(side.is_covered for side in sides):
            return
        size = sides[0].window
        raise InputError(
            f"image of {shape[0]} x {shape[1]} pixels is too small for windows of {size} at scale {float(scale):g}: its "
            f"sides need more than a third of them; give a smaller bank.window, or larger images"
        )

    @property
    def _window(self) -> int:
        self._check()
        return usual_window(self.network) if self.window is None else self.window

    @property
    def _stride(self) -> int:
        """Coarsest stride of the network, of which windows and the ways between them are multiples."""
        return coarsest_stride(self.network)

    def _check(self) -> None:
        super()._check()
        configuration(self.network)
        stride = coarsest_stride(self.network)
        if self.window is not None and self.window % stride:
            raise ConfigError(
                f"window {self.window}: {self.network} needs a multiple of {stride}, at most {MOST_WINDOW}, such as "
                f"{usual_window(self.network)}"
            )
        for scale in scales_of(self.pyramid):
            if (stride / scale).denominator > 1:
                raise ConfigError(
                    f"pyramid {list(self.pyramid)}: cells of {stride} pixels of {self.network} are no whole pixels of the "
                    f"image at scale {float(scale):g}: give scales above 1 that divide {stride}"
                )
