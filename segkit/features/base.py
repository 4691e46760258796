"""What a filter bank is: named channels, maps at their native resolution, a halo.

A bank never upsamples a channel nobody asked for. Training reads a map at scattered pixel
positions (`FilterBank.sample`); prediction upsamples the few channels that feature selection kept
(`FilterBank.dense`). Both interpolate bilinearly, so a pixel has the same features either way.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone

from segkit._common import FloatArray, Progress, pass_on
from segkit._common.arrays import as_array
from segkit._common.files import file_of_part
from segkit._common.threads import in_threads
from segkit.errors import InputError
from segkit.features.options import check_options
from segkit.features.tiles import Tile, cut, whole
from segkit.images.read import to_float

# More are a mistake: a VGG-16 has 4,224, and each takes a map of the image.
MOST_CHANNELS = 200_000


class Channel(NamedTuple):
    """The name of one feature channel and the group (layer, scale or order) it belongs to."""

    name: str
    group: str


@dataclass(frozen=True, eq=False)
class FeatureMaps:
    """Channels of one bank that share a grid.

    Parameters
    ----------
    values : ndarray of shape (n_channels, h, w), float32
        The maps at their native resolution.
    indices : ndarray of shape (n_channels,), int
        Position of each map among the channels of its bank.
    stride : float
        Pixels between neighbouring cells.
    offset : float or (float, float)
        Row and column, one number if they are the same, of the pixel that the centre of cell (0, 0) is at; cell
        ``(i, j)`` is ``stride * (i, j)`` pixels from there.
    """

    values: FloatArray
    indices: NDArray[np.intp]
    stride: float = 1.0
    offset: float | tuple[float, float] = 0.0

    def subset(self, indices: NDArray[np.intp]) -> FeatureMaps:
        """Leave the maps of other channels out."""
        mine = np.isin(self.indices, indices)
        return (
            self
            if mine.all()
            else FeatureMaps(self.values[mine], self.indices[mine], self.stride, self.offset)
        )

    def sample(self, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Interpolate bilinearly at n pixel positions; returns (n, n_channels)."""
        height, width = self.values.shape[1:]
        first_row, first_col = np.broadcast_to(self.offset, 2)
        top, bottom, v = _neighbours(rows, height, self.stride, first_row)
        left, right, u = _neighbours(cols, width, self.stride, first_col)
        planes = self.values.reshape(len(self.values), height * width)
        by_map = planes.flags.c_contiguous

        def read(row: NDArray[np.intp], col: NDArray[np.intp]) -> FloatArray:
            """Read cells, (n, n_channels), which lie in memory as the maps do: map by map or pixel by pixel."""
            at = row * width + col
            cells: FloatArray = planes.take(at, axis=1).T if by_map else planes.T[at]
            return cells

        values = read(top, left)
        if v.any() or u.any():
            on_left = _lerp(values, read(bottom, left), v[:, None])
            on_right = _lerp(read(top, right), read(bottom, right), v[:, None])
            values = _lerp(on_left, on_right, u[:, None])
        return np.ascontiguousarray(values)

    def upsample(self, shape: tuple[int, int], rows: NDArray[Any] | None = None) -> FloatArray:
        """Interpolate bilinearly at every pixel of an image (H, W), or of some rows; (n_channels, n_rows, W)."""
        rows = np.arange(shape[0]) if rows is None else rows
        if self.stride == 1 and not np.any(self.offset) and self.values.shape[1:] == shape:
            return self.values[:, as_slice(rows)]
        return self.interpolate(rows, np.arange(shape[1]))

    def interpolate(self, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Interpolate bilinearly where rows cross columns, in pixels; returns (n_channels, n_rows, n_cols)."""
        height, width = self.values.shape[1:]
        first_row, first_col = np.broadcast_to(self.offset, 2)
        top, bottom, v = _neighbours(rows, height, self.stride, first_row)
        left, right, u = _neighbours(cols, width, self.stride, first_col)
        between = self.values[:, top]
        if v.any():
            between = _lerp(between, self.values[:, bottom], v[:, None])
        return _lerp(between[:, :, left], between[:, :, right], u) if u.any() else between[:, :, left]


def _neighbours(
    positions: NDArray[Any], size: int, stride: float, offset: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """Find the cells on either side of each pixel position, and the weight of the second; edges repeat."""
    cells = np.clip((np.asarray(positions, dtype=np.float64) - offset) / stride, 0, size - 1)
    first = np.floor(cells).astype(np.intp)
    return first, np.minimum(first + 1, size - 1), (cells - first).astype(np.float32)


def _lerp(start: FloatArray, end: FloatArray, weight: FloatArray) -> FloatArray:
    """Interpolate linearly, ``start + weight * (end - start)``, in float32."""
    step = end - start
    step *= weight
    step += start
    return step


# Parts of objects that tell more than classes do: background, rim and core.
LEAST_PARTS = 3


class FilterBank(BaseEstimator, ABC):
    """A fixed bank of filters that turns an image into feature maps.

    Subclasses implement `channels`, `halo` and `maps`. Constructor arguments are stored as given
    (the scikit-learn convention), so `get_params` is the bank's whole configuration. A bank whose
    filters are weights rather than formulas also overrides `weights_used` and `use_weights`; one that
    learns them from the training images overrides `fit` and `learns_weights`. Large images are looked at tile by
    tile: a bank whose features depend on more than what lies within `halo` overrides `is_local`, and one whose maps
    of a tile are not those of its pixels alone is a `TiledBank`.
    """

    @abstractmethod
    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels computed from an image of `n_image_channels`, in order."""

    def n_channels(self, n_image_channels: int = 3) -> int:
        """Count the channels; a bank that can do so without naming them overrides this."""
        return len(self.channels(n_image_channels))

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Return the stride in pixels of each channel's map, in channel order; 1 unless a bank overrides it."""
        return np.ones(self.n_channels(n_image_channels))

    def centred(self, n_image_channels: int = 3) -> NDArray[np.bool_]:
        """Return which channels are less their mean over the image, so that staining and lighting matter less.

        All are, unless a bank overrides it: one whose values mean something by themselves.
        """
        return np.ones(self.n_channels(n_image_channels), dtype=bool)

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Estimate the bytes that `maps` takes for each pixel, at most; measured by ``benchmarks/large.py``.

        They are twice the maps, and room for the filters' own work, unless a bank knows better.
        """
        return 2 * self.bytes_of_maps(n_image_channels) + 150

    def bytes_of_maps(self, n_image_channels: int = 3) -> float:
        """Count the bytes of all maps for each pixel of an image."""
        return float(4 * (1 / self.strides(n_image_channels) ** 2).sum())

    @property
    def label(self) -> str:
        """What the bank is called where one is told from another; not all of its options."""
        return type(self).__name__.removesuffix("Bank").lower()

    @property
    @abstractmethod
    def halo(self) -> int:
        """Pixels around a pixel that its features may depend on."""

    @property
    def alignment(self) -> int:
        """Tiles must start at multiples of this many pixels to see the same grid as the image."""
        return 1

    @property
    def is_local(self) -> bool:
        """Whether features depend on no more than what lies within `halo`, so that tiles are enough."""
        return True

    def tiles(self, shape: tuple[int, ...]) -> list[Tile]:
        """Cut an image (H, W, ...) into tiles whose maps are, in their cores, those of the image.

        It is one tile, the whole image, if it is small or the features depend on all of it.
        """
        if not self.is_local:
            return [whole(shape)]
        n_image_channels = shape[2] if len(shape) > 2 else 1
        return cut(shape, self.halo, self.alignment, self.bytes_per_pixel(n_image_channels))

    def split_by_bank(
        self,
        channels: NDArray[np.intp],
        n_image_channels: int = 3,  # noqa: ARG002
    ) -> list[tuple[FilterBank, NDArray[np.intp]]]:
        """List the banks that channels come from, each with its own channels; each may be cut into tiles of its own."""
        return [(self, channels)]

    @abstractmethod
    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute feature maps at their native resolution.

        Parameters
        ----------
        image : array-like of shape (H, W) or (H, W, C), float in [0, 1]
            The image.
        channels : ndarray of int, optional
            Which channels are wanted (all by default); nothing else is computed if it can be helped.

        Returns
        -------
        list of FeatureMaps
            One entry for each grid; together they hold each wanted channel once.

        Raises
        ------
        InputError
            If the image does not fit, or the bank lacks a wanted channel or is asked for one twice.
        """

    def tile_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> list[FeatureMaps]:
        """Compute the maps of one of the `tiles` of an image, exact in its core, as `maps` does for an image.

        Maps are counted from the first row and column that the tile sees. The image (H, W, C), float32, may be an object
        that reads the slices it is asked for.
        """
        return list(self.iter_maps(image, tile, channels))

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the maps of a tile grid by grid, so that not all of them need be held at once; see `tile_maps`."""
        yield from self.maps(image[tile.seen], channels)

    def sample(
        self,
        image: ArrayLike,
        rows: NDArray[Any],
        cols: NDArray[Any],
        channels: NDArray[np.intp] | None = None,
        *,
        progress: Progress = pass_on,
    ) -> FloatArray:
        """Read features at n pixel positions, bilinearly between map cells.

        Parameters
        ----------
        image : array-like of shape (H, W) or (H, W, C), float in [0, 1]
            The image.
        rows, cols : ndarray of shape (n,)
            Positions in pixels; fractions are allowed.
        channels : ndarray of int, optional
            Wanted channels; all by default.
        progress : callable, optional
            Follows the tiles of a large image.

        Returns
        -------
        ndarray of shape (n, n_channels), float32
            Features.
        """
        image, rows, cols = as_image(image), np.asarray(rows), np.asarray(cols)
        channels = self._wanted(channels, image.shape[2])
        tiles = self.tiles(image.shape)
        if len(tiles) == 1:
            return sample_maps(self.iter_maps(image, tiles[0], channels), rows, cols, channels)
        out = np.empty((rows.size, channels.size), dtype=np.float32)
        inside = [
            np.clip(at, 0, length - 1) for at, length in zip((rows, cols), image.shape[:2], strict=True)
        ]
        for tile in progress(tiles, "Tiles"):
            mine = tile.holds(*inside)
            if mine.any():
                top, left = (seen.start for seen in tile.seen)
                stacks = self.iter_maps(image, tile, channels)
                out[mine] = sample_maps(stacks, rows[mine] - top, cols[mine] - left, channels)
        return out

    def dense(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> FloatArray:
        """Compute features at every pixel; returns (n_channels, H, W)."""
        image = as_image(image)
        column = _columns(self._wanted(channels, image.shape[2]))
        out = np.empty((len(column), *image.shape[:2]), dtype=np.float32)
        for stack in self.iter_maps(image, whole(image.shape), channels):
            out[[column[index] for index in stack.indices]] = stack.upsample(image.shape[:2])
        return out

    def check_training(self, images: Sequence[FloatArray]) -> None:
        """Refuse what `fit` would fail on, such as a lack of weights, before any time is spent."""

    def fit(
        self,
        images: Sequence[ArrayLike],  # noqa: ARG002
        ids: Sequence[NDArray[np.uint8]] | None = None,  # noqa: ARG002
        *,
        parts: Sequence[NDArray[np.uint8]] | None = None,  # noqa: ARG002
        groups: NDArray[np.intp] | None = None,  # noqa: ARG002
        progress: Progress = pass_on,  # noqa: ARG002
        checkpoint: Path | None = None,  # noqa: ARG002
    ) -> Self:
        """Learn the filters from the training images and their class ids (H, W); most banks have nothing to learn.

        Where objects are annotated one by one, their parts (H, W) are given too: the background is 0, the rim
        1, the core has the last number, and pixels that are unlabelled in `ids` are so here.

        Images of one number in `groups` (n_images,) are alike, such as planes of a stack: maps of an image come from filters
        that did not learn from any of its group.

        A bank that takes its time writes its state to a checkpoint, and goes on from it. The file is left.
        """
        return self

    @property
    def is_cross_fitted(self) -> bool:
        """Whether `cross_fitted` returns other banks than this one."""
        return False

    @property
    def cross_fitted_part(self) -> FilterBank | None:
        """What is cross-fitted of a bank that has other parts, too; None of any other bank."""
        return None

    def cross_fitted(self, index: int) -> FilterBank:  # noqa: ARG002
        """Return a bank whose maps of a training image, by its place, come from filters that did not learn from its mask."""
        return self

    def forget(self) -> None:
        """Drop what only training needs, such as maps of the training images."""
        return

    def quick(self) -> FilterBank:
        """Return a bank that takes less time and is less exact, itself if there is none."""
        return self

    @property
    def learns_weights(self) -> bool:
        """Whether the weights come from `fit`, so that a model file must hold them."""
        return False

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:  # noqa: ARG002
        """Collect the weights that these channels need, by name; empty for a bank that is all formula."""
        return {}

    def describe_training(self) -> list[str]:
        """Describe what was trained besides the classifier, in sentences; most banks train nothing."""
        return []

    def weights_origin(self) -> list[dict[str, str | None]]:
        """List ``model``, ``source`` and ``licence`` of weights that others trained; empty where nothing is known."""
        return []

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Take these weights instead of loading them from where the configuration says."""
        if weights:
            raise InputError(f"{type(self).__name__} has no weights, {len(weights)} arrays were given")

    def _check(self) -> None:
        """Refuse options that do not fit."""
        check_options(type(self), vars(self))

    def _wanted(self, channels: ArrayLike | None, n_image_channels: int) -> NDArray[np.intp]:
        """Check which channels are wanted; all by default."""
        known = np.arange(self.n_channels(n_image_channels))
        if channels is None:
            return known
        wanted = np.asarray(channels)
        if wanted.ndim != 1 or wanted.dtype == bool or np.intersect1d(wanted, known).size < wanted.size:
            raise InputError(
                f"channels {reprlib.repr(wanted.tolist())}: give indices from 0 to {known[-1]}, each once"
            )
        return wanted.astype(np.intp)


class TiledBank(FilterBank):
    """A bank that computes the maps of tiles, which may depend on a tile's place in its image; the image is one tile."""

    @abstractmethod
    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the maps of a tile grid by grid; see `FilterBank.tile_maps`."""

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        return self.tile_maps(image, whole(image.shape), channels)


class CompositeBank(TiledBank):
    """A bank made of others.

    The banks are left alone: `fit` and `use_weights` keep copies of them, `banks_`, whose weights go by their place.
    """

    @abstractmethod
    def _given(self) -> Sequence[FilterBank]:
        """Check the options, and return the banks."""

    @property
    def _used(self) -> Sequence[FilterBank]:
        """Copies of the banks, or the banks themselves before a fit."""
        given = self._given()
        return getattr(self, "banks_", given)

    def n_channels(self, n_image_channels: int = 3) -> int:
        """Count the channels."""
        return sum(bank.n_channels(n_image_channels) for bank in self._used)

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Return the stride in pixels of each channel's map."""
        return np.concatenate([bank.strides(n_image_channels) for bank in self._used])

    def centred(self, n_image_channels: int = 3) -> NDArray[np.bool_]:
        """Return which channels are less their mean over the image, as the banks say."""
        return np.concatenate([bank.centred(n_image_channels) for bank in self._used])

    @property
    def alignment(self) -> int:
        """Least common multiple of the banks' alignments."""
        return math.lcm(*(bank.alignment for bank in self._used))

    @property
    def is_local(self) -> bool:
        """Whether tiles are enough for all banks."""
        return all(bank.is_local for bank in self._used)

    def check_training(self, images: Sequence[FloatArray]) -> None:
        """Let each bank check the images; see `FilterBank.check_training`."""
        for bank in self._given():
            bank.check_training(images)

    def fit(
        self,
        images: Sequence[ArrayLike],
        ids: Sequence[NDArray[np.uint8]] | None = None,
        *,
        parts: Sequence[NDArray[np.uint8]] | None = None,
        groups: NDArray[np.intp] | None = None,
        progress: Progress = pass_on,
        checkpoint: Path | None = None,
    ) -> Self:
        """Let a copy of each bank learn from the images; see `FilterBank.fit`."""
        self.banks_ = [
            clone(bank).fit(
                images,
                ids,
                parts=parts,
                groups=groups,
                progress=progress,
                checkpoint=file_of_part(checkpoint, place),
            )
            for place, bank in enumerate(self._given())
        ]
        return self

    @property
    def is_cross_fitted(self) -> bool:
        """Whether any of the banks is."""
        return any(bank.is_cross_fitted for bank in self._used)

    def cross_fitted(self, index: int) -> FilterBank:
        """Return the bank of what the banks return; see `FilterBank.cross_fitted`."""
        return self._of(bank.cross_fitted(index) for bank in self._used)

    def forget(self) -> None:
        """Let the banks drop what only training needs."""
        for bank in self._used:
            bank.forget()

    def quick(self) -> FilterBank:
        """Return the bank of what the banks return, itself if none is quicker; see `FilterBank.quick`."""
        banks = [bank.quick() for bank in self._used]
        is_same = all(quick is bank for quick, bank in zip(banks, self._used, strict=True))
        return self if is_same else self._of(banks)

    def _of(self, banks: Iterable[FilterBank]) -> FilterBank:
        """Make a copy that uses other fitted banks."""
        other = copy(self)
        other.banks_ = list(banks)
        return other

    @property
    def learns_weights(self) -> bool:
        """Whether any of the banks learns from images."""
        return any(bank.learns_weights for bank in self._used)

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:
        """Collect the weights that the banks need for these channels, named after their bank's place."""
        wanted = self._wanted(channels, n_image_channels)
        return {
            f"{place}/{name}": weight
            for place, bank, _, own in self._split(wanted, n_image_channels)
            for name, weight in bank.weights_used(own, n_image_channels).items()
        }

    def describe_training(self) -> list[str]:
        """Describe what the banks trained."""
        return [line for bank in self._used for line in bank.describe_training()]

    def weights_origin(self) -> list[dict[str, str | None]]:
        """List the origins of the weights of the banks."""
        return [origin for bank in self._used for origin in bank.weights_origin()]

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Let copies of the banks use their weights."""
        banks = [clone(bank) for bank in self._given()]
        for place, bank in enumerate(banks):
            named = {name.partition("/")[::2]: weight for name, weight in weights.items()}
            mine = {name: weight for (part, name), weight in named.items() if part == str(place)}
            if mine:
                bank.use_weights(mine)
        self.banks_ = banks

    def _split(
        self, wanted: NDArray[np.intp], n_image_channels: int
    ) -> list[tuple[int, FilterBank, NDArray[np.intp], NDArray[np.intp]]]:
        """List the banks that are needed: place, bank, which of the wanted are its own, and their numbers in it."""
        sizes = [bank.n_channels(n_image_channels) for bank in self._used]
        return [(place, self._used[place], mine, own) for place, mine, own in share_out(wanted, sizes)]


def sample_maps(
    stacks: Iterable[FeatureMaps],
    rows: NDArray[Any],
    cols: NDArray[Any],
    channels: NDArray[np.intp] | None = None,
) -> FloatArray:
    """Read maps at n pixel positions, one stack after the other; returns (n, n_channels)."""
    if channels is None:
        stacks = list(stacks)
        channels = np.arange(sum(stack.indices.size for stack in stacks))
    column = _columns(channels)
    out = np.empty((rows.size, len(column)), dtype=np.float32)
    for stack in stacks:
        columns = np.array([column[index] for index in stack.indices], dtype=np.intp)
        out[:, as_slice(columns)] = stack.sample(rows, cols)
    return out


def measures_of(
    wanted: NDArray[np.intp],
    n_measures: int,
    compute: Callable[[int, NDArray[np.intp]], FloatArray],
) -> list[FeatureMaps]:
    """Compute wanted channels, side by side, where each filtered plane has so many: ``compute(plane, measures)``."""

    def measure(plane: int) -> FeatureMaps:
        kept = wanted[wanted // n_measures == plane]
        return FeatureMaps(compute(plane, kept % n_measures), kept)

    return list(in_threads(measure, np.unique(wanted // n_measures)))


class Share(NamedTuple):
    """Wanted channels of one part of a bank: where they are wanted, and their numbers within the part."""

    part: int
    wanted: NDArray[np.intp]
    own: NDArray[np.intp]


def share_out(wanted: NDArray[np.intp], sizes: Sequence[int]) -> Iterator[Share]:
    """Share wanted channels out to parts of so many channels each, first to last; parts without any are left out."""
    ends = np.cumsum(sizes)
    part_of = np.searchsorted(ends, wanted, side="right")
    for part in np.unique(part_of).tolist():
        mine = np.flatnonzero(part_of == part)
        yield Share(part, mine, wanted[mine] - (ends[part] - sizes[part]))


def as_slice(places: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Adjacent rising places as a slice, which copies faster; others as they are."""
    adjacent = places.size > 0 and (np.diff(places) == 1).all()
    return slice(places[0], places[-1] + 1) if adjacent else places


def _columns(channels: NDArray[np.intp]) -> dict[int, int]:
    """Output column of each channel."""
    return {int(channel): column for column, channel in enumerate(channels)}


def as_image(image: ArrayLike) -> FloatArray:
    """Check an image and return it as (H, W, C) float32; integers of 8 and 16 bits are scaled to [0, 1]."""
    array = as_array(image, name="image")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or 0 in array.shape:
        raise InputError(f"image of shape {array.shape}: expected (H, W) or (H, W, C) with no empty axis")
    if array.dtype in (np.bool_, np.uint8, np.uint16):
        return to_float(array)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(
            f"image of dtype {array.dtype}: expected floats in [0, 1], uint8 or uint16: divide it by the largest value it "
            f"can have, or convert it"
        )
    array = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(array).all():
        raise InputError(f"image of shape {array.shape} holds NaN or infinity: mend or leave out that image")
    return array
