"""Networks of timm as filter banks: transformers such as DINOv2, and convolutional networks.

A network sees windows of one size, laid over the whole image with an overlap. Their maps are blended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from segkit._common import FloatArray, is_whole
from segkit._device import card_has_room, torch_device
from segkit.errors import ConfigError, InputError
from segkit.features.backbone import (
    Backbone,
    Block,
    State,
    blocks_of,
    coarsest_stride,
    configuration,
    parameters_of,
    usual_window,
)
from segkit.features.base import Channel, FeatureMaps, TiledBank
from segkit.features.colours import (
    ChannelMode,
    Pyramid,
    check_channels,
    check_mode,
    count_views,
    three_channels,
)
from segkit.features.tiles import Tile
from segkit.features.weights import load_pretrained, origin_of, read_weights
from segkit.features.windows import Blend, Cells, Side, read_window

IntArray = NDArray[np.intp]
# Larger windows are a mistake: the network would see more pixels than any was trained on.
MOST_WINDOW = 2048
# Bytes for each pixel of an image while a network runs on a window.
_BYTES_ON_THE_WAY = 640
# Threads that average over a group share one network.
_MAKING = Lock()
# Model, window, weights and seed of random weights: the parameters that determine the weights.
_Source = tuple[str, int, str, int | None]


class _Task(NamedTuple):
    """Wanted channels of one block, in one view of the image at one scale."""

    view: int
    scale: Fraction
    place: int
    block: Block
    first: int
    kept: IntArray


class TimmBank(TiledBank):
    """Filters of a network of timm, such as DINOv2.

    Parameters
    ----------
    model : str, default="vit_small_patch14_dinov2"
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
    The maps are those of timm's ``forward_intermediates``, or of ``features_only`` where a network lacks it. Blocks of a
    plain transformer pass through its last normalisation first, as DINOv2 is evaluated. A cell lies at the centre of its
    patch. Windows lie at the same places whichever part of an image is asked for; a map is the mean over the windows
    that hold a cell, weighted by a Hann window. An image smaller than a window is mirrored at its edges.

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
        model: Annotated[str, Field(min_length=1, max_length=200)] = "vit_small_patch14_dinov2",
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
        self.model = model
        self.weights = weights
        self.window = window
        self.overlap = overlap
        self.layers = layers
        self.pyramid = pyramid
        self.channel_mode = channel_mode
        self.random_state = random_state

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels by view, scale and block, in that order."""
        return tuple(
            Channel(f"{block.name}/{index:03d}{suffix}", block.name + suffix)
            for view, scale, _, block in self._parts(n_image_channels)
            for suffix in [self._suffix(view, scale, n_image_channels)]
            for index in range(block.n_channels)
        )

    def n_channels(self, n_image_channels: int = 3) -> int:
        """Count the channels."""
        return sum(block.n_channels for _, _, _, block in self._parts(n_image_channels))

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Return the stride in pixels of each channel's map, in channel order."""
        parts = [(scale, block) for _, scale, _, block in self._parts(n_image_channels)]
        strides = [float(block.stride / scale) for scale, block in parts]
        return np.repeat(strides, [block.n_channels for _, block in parts])

    @property
    def label(self) -> str:
        """Name of the model, and the scales of the pyramid."""
        sizes = (
            "" if tuple(self.pyramid) == (1,) else f" at {', '.join(f'{size:g}' for size in self.pyramid)}"
        )
        return f"{self.model}{sizes}"

    @property
    def halo(self) -> int:
        """Side of the largest window in pixels of the image, since a transformer sees all of it, and a cell."""
        return max(math.ceil((self._window + self._stride) / scale) for scale in self._scales())

    @property
    def alignment(self) -> int:
        """Least common multiple of the strides of the blocks at each scale, in pixels of the image."""
        return math.lcm(*(math.ceil(block.stride / scale) for _, scale, _, block in self._parts(1)))

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Count the maps, the weighted sums and a window of them, and the work of a network on a window."""
        return 3 * self.bytes_of_maps(n_image_channels) + _BYTES_ON_THE_WAY

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the maps of a tile from all windows that its core touches; see `FilterBank.tile_maps`."""
        check_channels(self.channel_mode, image.shape[2])
        wanted = np.sort(self._wanted(channels, image.shape[2]))
        tasks = self._tasks(wanted, image.shape[2])
        together: dict[tuple[int, Fraction], list[_Task]] = {}
        for task in tasks:
            together.setdefault((task.view, task.scale), []).append(task)
        for own in together.values():
            yield from self._blended(image, tile, own)

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:
        """Collect the weights that these channels need, by timm's names; positional embeddings are those of the window."""
        deepest = max(task.place for task in self._tasks(np.sort(channels), n_image_channels))
        names = parameters_of(self.model, self._window, self._indices[: deepest + 1])
        state = self._backbone().state
        return {name: state[name].numpy() for name in names}

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Use these weights, by timm's names, of all chosen blocks or the first ones, in place of the named ones.

        They are used as long as `model`, `window`, `weights` and the seed of random weights have their present values.
        Copies and pickles keep them; `sklearn.base.clone` drops them, like all fitted state.
        """
        import torch

        given = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
        Backbone(self.model, self._window, self._indices[:1], given)
        self._given_state = self._source(), given
        self.__dict__.pop("_made", None)

    def weights_origin(self) -> list[dict[str, str | None]]:
        """List the model, the source and the licence of the weights; a file's licence is not known."""
        if str(self.weights) == "random":
            return []
        if str(self.weights) == "pretrained":
            return [origin_of(self.model)]
        return [{"model": self.model, "source": str(self.weights), "licence": None}]

    def __getstate__(self) -> dict[str, Any]:
        # Networks are large and made again from the weights.
        return {key: value for key, value in super().__getstate__().items() if key != "_made"}

    def _blended(self, image: FloatArray, tile: Tile, tasks: Sequence[_Task]) -> Iterator[FeatureMaps]:
        """Run the network on the windows of one view at one scale, and blend the maps of each block."""
        view, scale, *_ = tasks[0]
        sides = [self._side(length, scale) for length in image.shape[:2]]
        self._check_size(image.shape, sides, scale)
        cells = [
            [
                Cells(side, self._window // task.block.stride, _place(task.block, scale), core)
                for side, core in zip(sides, tile.core, strict=True)
            ]
            for task in tasks
        ]
        blends = [Blend(own[0], own[1], task.kept.size) for own, task in zip(cells, tasks, strict=True)]
        depth = max(task.place for task in tasks) + 1
        for place in np.ndindex(*(side.n_windows for side in sides)):
            if not any(blend.needs(place) for blend in blends):
                continue
            rows, cols = (side.pixels(number) for side, number in zip(sides, place, strict=True))
            window = three_channels(read_window(image, rows, cols), self.channel_mode)[view]
            outputs = self._run(window, depth)
            for blend, task in zip(blends, tasks, strict=True):
                blend.add(place, outputs[task.place][task.kept - task.first])
        for blend, own, task in zip(blends, cells, tasks, strict=True):
            offset = [side.position - seen.start for side, seen in zip(own, tile.seen, strict=True)]
            yield FeatureMaps(blend.values(), task.kept, own[0].stride, (offset[0], offset[1]))

    def _run(self, view: FloatArray, depth: int) -> list[FloatArray]:
        """Compute the maps (n_channels, h, w) of a window (H, W, 3) of the image, brought to the network's size."""
        import torch
        from torch.nn import functional

        found = configuration(self.model)
        mean, std = (np.array(values, dtype=np.float32) for values in (found.mean, found.std))
        batch = torch.from_numpy(np.ascontiguousarray(((view - mean) / std).transpose(2, 0, 1)))[None]
        with torch.inference_mode(), card_has_room():
            batch = batch.to(torch_device())
            if batch.shape[-1] != self._window:
                size = (self._window, self._window)
                batch = functional.interpolate(
                    batch, size=size, mode="bilinear", antialias=True, align_corners=False
                )
            return [output[0].float().cpu().numpy() for output in self._backbone()(batch, depth)]

    def _tasks(self, wanted: IntArray, n_image_channels: int) -> list[_Task]:
        """Share wanted channels, rising, out to the blocks that they come from."""
        tasks, start = [], 0
        for view, scale, place, block in self._parts(n_image_channels):
            stop = start + block.n_channels
            kept = wanted[slice(*np.searchsorted(wanted, [start, stop]))]
            if kept.size:
                tasks.append(_Task(view, scale, place, block, start, kept))
            start = stop
        return tasks

    def _parts(self, n_image_channels: int) -> list[tuple[int, Fraction, int, Block]]:
        """List (view, scale, place among the chosen blocks, block), in channel order."""
        chosen = self._blocks
        return [
            (view, scale, place, block)
            for view in range(count_views(self.channel_mode, n_image_channels))
            for scale in self._scales()
            for place, block in enumerate(chosen)
        ]

    def _suffix(self, view: int, scale: Fraction, n_image_channels: int) -> str:
        views = count_views(self.channel_mode, n_image_channels)
        return (f"#{view}" if views > 1 else "") + (f"@{float(scale):g}" if scale != 1 else "")

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
        return usual_window(self.model) if self.window is None else self.window

    @property
    def _stride(self) -> int:
        """Coarsest stride of the network, of which windows and the ways between them are multiples."""
        return coarsest_stride(self.model)

    @property
    def _indices(self) -> tuple[int, ...]:
        """Chosen blocks, rising."""
        n_blocks = len(blocks_of(self.model, self._window))
        if self.layers is None:
            return tuple(sorted({(n_blocks - 1) // 2, n_blocks - 1}))
        chosen = [index + n_blocks if index < 0 else index for index in self.layers]
        if not chosen or not all(0 <= index < n_blocks for index in chosen) or len(set(chosen)) < len(chosen):
            raise ConfigError(
                f"layers {list(self.layers)}: {self.model} has blocks 0 to {n_blocks - 1} (or -{n_blocks} to -1): give "
                "one or more, each once"
            )
        return tuple(sorted(chosen))

    @property
    def _blocks(self) -> list[Block]:
        every = blocks_of(self.model, self._window)
        return [every[index] for index in self._indices]

    def _scales(self) -> list[Fraction]:
        return [Fraction(scale).limit_denominator(64) for scale in self.pyramid]

    def _source(self) -> _Source:
        """Return the parameters that determine the weights."""
        weights = str(self.weights)
        return self.model, self._window, weights, self.random_state if weights == "random" else None

    def _backbone(self) -> Backbone:
        """Make the network as far as the chosen blocks that have weights, again whenever its parameters change."""
        source = self._source()
        with _MAKING:
            cached = getattr(self, "_made", None)
            if cached is None or cached[0] != (source, self._indices):
                state = self._load(source)
                made = Backbone(
                    self.model, self._window, self._present(state), state, random_state=self.random_state
                )
                cached = self._made = (source, self._indices), made
        return cached[1]

    def _present(self, state: State | None) -> tuple[int, ...]:
        """Find the chosen blocks that given weights are enough for; a model file holds those of the kept channels only."""
        given = hasattr(self, "_given_state") and state is self._given_state[1]
        depths = (
            [
                depth
                for depth in range(1, len(self._indices) + 1)
                if state is not None
                and state.keys() >= set(parameters_of(self.model, self._window, self._indices[:depth]))
            ]
            if given
            else []
        )
        return self._indices[: max(depths)] if depths else self._indices

    def _load(self, source: _Source) -> State | None:
        """Load the weights that were given, or those that the parameters name; None draws random ones."""
        given: tuple[_Source, State] | None = getattr(self, "_given_state", None)
        if given is not None and given[0] == source:
            return given[1]
        match str(self.weights):
            case "random":
                return None
            case "pretrained":
                return load_pretrained(self.model)
            case path:
                return read_weights(Path(path))

    def _check(self) -> None:
        """Refuse options that do not fit."""
        configuration(self.model)
        stride = coarsest_stride(self.model)
        check_mode(self.channel_mode)
        if self.window is not None and (
            not is_whole(self.window) or self.window % stride or not stride <= self.window <= MOST_WINDOW
        ):
            raise ConfigError(
                f"window {self.window}: {self.model} needs a multiple of {stride}, at most {MOST_WINDOW}, such as "
                f"{usual_window(self.model)}"
            )
        if not 0 <= self.overlap < 1:
            raise ConfigError(f"overlap {self.overlap}: give a share of a window, 0 or more and below 1")
        self._check_pyramid(stride)

    def _check_pyramid(self, stride: int) -> None:
        scales = self._scales()
        if not scales or any(scale <= 0 or 1 not in scale.as_integer_ratio() for scale in scales):
            raise ConfigError(
                f"pyramid {list(self.pyramid)}: give one or more of 1, 1/2, 1/3 and so on, or 2, 3 and so on"
            )
        if len(set(scales)) < len(scales):
            raise ConfigError(f"pyramid {list(self.pyramid)}: give each scale once")
        for scale in scales:
            if (stride / scale).denominator > 1:
                raise ConfigError(
                    f"pyramid {list(self.pyramid)}: cells of {stride} pixels of {self.model} are no whole pixels of the "
                    f"image at scale {float(scale):g}: give scales above 1 that divide {stride}"
                )


def _place(block: Block, scale: Fraction) -> float:
    """Find the pixel of a window of the image that the first cell is at."""
    # Pixel q at a scale is centred on (q + 1/2) / scale - 1/2.
    return (block.offset + 0.5) / float(scale) - 0.5
