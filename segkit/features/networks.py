"""What banks of pre-trained networks share: layers at several scales of the image, and weights."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from segkit._common import FloatArray
from segkit.errors import ConfigError, InputError, WeightsError
from segkit.features.base import Channel, FeatureMaps, TiledBank, share_out
from segkit.features.options import once
from segkit.features.tiles import Tile

if TYPE_CHECKING:
    import torch

State = dict[str, "torch.Tensor"]
ChannelMode = Literal["rgb", "each", "mean"]
# Bytes for each pixel of an image while a network runs: two maps of 64 channels, and the image in its own order.
_BYTES_ON_THE_WAY = 640
# Last part of the name of a batch normalisation's counter.
_COUNTER = "num_batches_tracked"
# Threads that average over a group share one network.
_MAKING = Lock()


def scales_of(pyramid: Sequence[float]) -> list[Fraction]:
    """Return the scales of a pyramid as exact fractions."""
    return [Fraction(scale).limit_denominator(1000) for scale in pyramid]


def _fractions(pyramid: Sequence[float]) -> Sequence[float]:
    if any(1 not in scale.as_integer_ratio() for scale in once(scales_of(pyramid))):
        raise ConfigError("scales should be 1, 1/2, 1/3 and so on, or 2, 3 and so on")
    return pyramid


# Scales of the image that a network sees.
_Scale = Annotated[float, Field(gt=0, le=8)]
Pyramid = Annotated[Sequence[_Scale], Field(min_length=1, max_length=20), AfterValidator(_fractions)]


@dataclass(frozen=True)
class Layer:
    """One output of a network: cell i is centred on pixel ``offset + stride * i``, and sees `radius` pixels."""

    name: str = ""
    n_channels: int = 3
    stride: float = 1.0
    offset: float = 0.0
    radius: float = 0.0
    # Names of the weights of this layer and of all layers below.
    parameters: tuple[str, ...] = ()
    # Whether it depends on means over the whole image.
    is_global: bool = False


AnyLayer = TypeVar("AnyLayer", bound=Layer)


class Task(NamedTuple):
    """Wanted channels of a layer: their indices in the bank, and their places in the layer."""

    layer: Any  # a Layer, or what its library adds to it
    channels: NDArray[np.intp]
    own: NDArray[np.intp]


class NetworkBank(TiledBank):
    """Filters of a pre-trained network; a subclass knows the networks of one library.

    The network runs on each view of the image's channels (`channel_mode`) at each scale (`pyramid`).
    """

    network: str
    weights: str | Path
    channel_mode: ChannelMode
    pyramid: Sequence[float]
    random_state: int
    # Parameters that determine the weights, besides `weights` and the seed.
    _network_parameters: ClassVar[tuple[str, ...]]
    # Maps, and sums of them, that are held at a time.
    _n_copies: ClassVar[int] = 1

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels by view, scale and layer, in that order."""
        several = self._n_views(n_image_channels) > 1
        channels: list[Channel] = []
        for view, scale, layer in self._parts(n_image_channels):
            suffix = f"#{view}" * several + f"@{float(scale):g}" * (scale != 1)
            names = (f"{layer.name}/{index:03d}{suffix}" for index in range(layer.n_channels))
            channels += [Channel(name, layer.name + suffix) for name in names]
        return tuple(channels)

    def n_channels(self, n_image_channels: int = 3) -> int:
        """Count the channels."""
        return sum(layer.n_channels for *_, layer in self._parts(n_image_channels))

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Return the stride in pixels of each channel's map, in channel order."""
        parts = self._parts(n_image_channels)
        strides = [layer.stride / float(scale) for _, scale, layer in parts]
        return np.repeat(strides, [layer.n_channels for *_, layer in parts])

    @property
    def label(self) -> str:
        """Name of the network, and the scales of the pyramid."""
        sizes = ", ".join(f"{size:g}" for size in self.pyramid)
        return self.network if sizes == "1" else f"{self.network} at {sizes}"

    @property
    def halo(self) -> int:
        """Largest radius of a receptive field over layers and scales, and a cell for interpolation."""
        reach = (Fraction(layer.radius + 1 + layer.stride) / scale for _, scale, layer in self._parts(1))
        return max(map(math.ceil, reach))

    @property
    def alignment(self) -> int:
        """Least common multiple of the strides of the layers at each scale, in pixels of the image."""
        return math.lcm(*(math.ceil(Fraction(layer.stride) / scale) for _, scale, layer in self._parts(1)))

    @property
    def is_local(self) -> bool:
        """Whether no layer depends on means over the whole image."""
        return not any(layer.is_global for layer in self._layers())

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Count the maps of the layers, and those of the widest layers at full resolution on the way to them."""
        return self._n_copies * self.bytes_of_maps(n_image_channels) + _BYTES_ON_THE_WAY

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the maps of a tile layer by layer; see `FilterBank.iter_maps`."""
        if self.channel_mode == "rgb" and image.shape[2] not in (1, 3):
            raise InputError(
                f"image with {image.shape[2]} channels for a three-channel network: choose how they map, "
                f"bank.channel_mode=each (run it on every channel) or mean"
            )
        tasks = self._tasks(np.sort(self._wanted(channels, image.shape[2])), image.shape[2])
        self._check_weights(task.layer for own in tasks.values() for task in own)
        yield from self._run_tasks(image, tile, tasks)

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:
        """Collect the weights that these channels need, by their names in the library."""
        tasks = self._tasks(np.sort(channels), n_image_channels).values()
        needed = {name for own in tasks for task in own for name in task.layer.parameters}
        state = self._loaded().state
        return {name: state[name].numpy() for name in sorted(needed)}

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Use these weights, of all layers or the first ones, in place of the named ones.

        They are used as long as the parameters that name the network and its weights have their present values. Copies
        and pickles keep them; `sklearn.base.clone` drops them, like all fitted state.
        """
        import torch

        given = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
        source = self._source()
        self._cached = source, self._make(given)
        self._given = source, given

    def __getstate__(self) -> dict[str, Any]:
        # Networks are large, traced ones cannot be pickled, and both are made again from the weights.
        return {key: value for key, value in super().__getstate__().items() if key != "_cached"}

    @abstractmethod
    def _layers(self) -> Sequence[Layer]:
        """List the chosen layers, after a check of the options."""

    @abstractmethod
    def _make(self, state: State | None) -> Any:
        """Make the network with given weights, or else with those that the parameters name.

        It has `layers` with all their weights, which are its `state`, and those that are `missing` some, with their names.
        """

    @abstractmethod
    def _run_tasks(
        self, image: FloatArray, tile: Tile, tasks: Mapping[tuple[int, Fraction], list[Task]]
    ) -> Iterator[FeatureMaps]:
        """Compute wanted channels, by view and scale."""

    def _n_views(self, n_image_channels: int) -> int:
        """Count the images that the network runs on."""
        return n_image_channels if self.channel_mode == "each" else 1

    def _parts(self, n_image_channels: int) -> list[tuple[int, Fraction, Layer]]:
        """List (view, scale, layer), in channel order."""
        layers = self._layers()
        return [
            (view, scale, layer)
            for view in range(self._n_views(n_image_channels))
            for scale in scales_of(self.pyramid)
            for layer in layers
        ]

    def _tasks(
        self, wanted: NDArray[np.intp], n_image_channels: int
    ) -> dict[tuple[int, Fraction], list[Task]]:
        """Share wanted channels out to the layers that they come from, by view and scale."""
        tasks: dict[tuple[int, Fraction], list[Task]] = {}
        parts = self._parts(n_image_channels)
        for place, mine, own in share_out(wanted, [layer.n_channels for *_, layer in parts]):
            view, scale, layer = parts[place]
            tasks.setdefault((view, scale), []).append(Task(layer, wanted[mine], own))
        return tasks

    def _source(self) -> tuple[Any, ...]:
        """Return the values of the parameters that determine the weights."""
        weights = str(self.weights)
        seed = self.random_state if weights == "random" else None
        return (weights, seed, *(getattr(self, name) for name in self._network_parameters))

    def _loaded(self) -> Any:
        """Return the network with its weights, made again whenever its parameters change."""
        source = self._source()
        with _MAKING:
            if getattr(self, "_cached", (None,))[0] != source:
                self._cached = source, self._make(self._given_state())
            return self._cached[1]

    def _given_state(self) -> State | None:
        """Return the weights that `use_weights` took, if the parameters are still those of then."""
        source, state = getattr(self, "_given", (None, None))
        return state if source == self._source() else None

    def _check_weights(self, layers: Iterable[Layer]) -> None:
        """Refuse layers without weights."""
        missing = self._loaded().missing
        for layer in layers:
            if layer in missing:
                raise WeightsError(
                    f"weights {self.weights} lack {missing[layer][0]}, which layer {layer.name} of {self.network} needs: "
                    f"leave that layer out (bank.layers), or give weights that hold it"
                )


def three_channels(image: FloatArray, mode: ChannelMode) -> list[FloatArray]:
    """Make the images (H, W, 3) that a network runs on, from an image (H, W, C)."""
    if mode == "each":
        return [np.repeat(image[:, :, [index]], 3, axis=2) for index in range(image.shape[2])]
    if mode == "mean":
        return [np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2)]
    return [np.broadcast_to(image, (*image.shape[:2], 3))]


def at_scale(position: float, scale: Fraction) -> float:
    """Find the pixel of an image that a pixel of its scaled copy is centred on."""
    return (position + 0.5) / float(scale) - 0.5


def as_batch(view: FloatArray, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Normalise an image (H, W, 3) as a network was trained; returns (1, 3, H, W)."""
    import torch

    normalised = (view - np.array(mean, dtype=np.float32)) / np.array(std, dtype=np.float32)
    return torch.from_numpy(np.ascontiguousarray(normalised.transpose(2, 0, 1)))[None]


def fit_weights(
    network: str, library: str, layers: Sequence[AnyLayer], expected: State, state: State
) -> tuple[list[AnyLayer], dict[AnyLayer, list[str]], State]:
    """Return the layers that have all their weights, the others with the names of absent ones, and the weights in use."""
    import torch

    for name, tensor in expected.items():
        if name in state and state[name].shape != tensor.shape:
            raise WeightsError(
                f"weights of {name} have shape {tuple(state[name].shape)}, {network} needs {tuple(tensor.shape)}: "
                f"give the weights of {network}, by {library}'s names"
            )
    # Files of other tools lack the counters of batches, which inference ignores.
    counters = {
        name: torch.zeros(tensor.shape, dtype=tensor.dtype)
        for name, tensor in expected.items()
        if name.endswith(_COUNTER) and name.removesuffix(_COUNTER) + "running_mean" in state
    }
    state = counters | state
    absent = {layer: [name for name in layer.parameters if name not in state] for layer in layers}
    if lacking := [name for name in absent[layers[0]] if not name.endswith(_COUNTER)]:
        held = ", ".join([*list(state)[:3], "..."]) if state else "nothing"
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise WeightsError(
            f"weights lack {', '.join(lacking[:3])}{more}, which the first layer of {network} needs; they hold {held}: "
            f"give the weights of {network}, by {library}'s names"
        )
    kept = [layer for layer in layers if not absent[layer]]
    used = {name: state[name] for layer in kept for name in layer.parameters}
    used = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in used.items()}
    return kept, {layer: names for layer, names in absent.items() if names}, used
