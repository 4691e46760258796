"""Any filter bank, averaged over a group of turns of the image, so that its maps turn with the image."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segkit._common import FloatArray
from segkit._common.threads import count_threads, in_threads
from segkit.errors import ConfigError
from segkit.features.base import Channel, CompositeBank, FeatureMaps, FilterBank
from segkit.features.tiles import Tile
from segkit.invariance.groups import Group, Matrix, Similarity, similarities
from segkit.invariance.spatial import Dihedral

Sides = tuple[slice, slice]
# Turned copies of images of up to this many pixels are computed in parallel, if there is more than one thread. One copy of
# a larger image fills the cores, and several would fill the memory.
PIXELS_SIDE_BY_SIDE = 2**20
# Features read at a time, 32 MB.
BLOCK_SIZE = 2**23


class OrbitAveraged(CompositeBank):
    """A bank's features, averaged over the turned images.

    Parameters
    ----------
    bank : FilterBank
        The bank, not averaged already.
    group : Group, default=None
        Turns and reflections of the image, listed. None is `Dihedral()`, the eight symmetries of the square. Quarter
        turns and reflections move pixels onto pixels and are exact. By any other angle, as of ``Rotation(16)``,
        the image is turned by bilinear interpolation, mirrored at its edges.

    Attributes
    ----------
    banks_ : list of FilterBank
        A copy of the bank after `fit`, or with the weights that `use_weights` took. Without either, `bank` itself is used.

    Notes
    -----
    With the features ``F`` of the bank, the feature of image I at position p is the mean over the group of
    ``F(g I)(g p)``. The feature of h I at h p is the same for each h of the group. Positions
    are the cells of grids as coarse as the bank's own and centred on the image. Quarter turns and reflections
    therefore move cells onto cells, and the interpolated features between them, to rounding. Computing the maps
    takes as long as the bank's times the number of elements.

    References
    ----------
    A. Raj et al., Local group invariant representations via orbit embeddings, 2017, eq. 2.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit import ScatteringBank
    >>> from segkit.features import OrbitAveraged
    >>> bank = OrbitAveraged(ScatteringBank(J=1, L=2))
    >>> image = np.random.default_rng(0).random((12, 15))
    >>> np.allclose(bank.dense(np.rot90(image)), np.rot90(bank.dense(image), axes=(1, 2)))
    True
    """

    def __init__(self, bank: FilterBank, *, group: Group | None = None) -> None:
        self.bank = bank
        self.group = group

    def check_training(self, images: Sequence[FloatArray]) -> None:
        """Refuse networks that are trained on the images; see `FilterBank.check_training`."""
        if self.is_cross_fitted:
            raise ConfigError(
                "TunedBank averages over the symmetries of the square itself: leave OrbitAveraged out"
            )
        super().check_training(images)

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels of the bank, in groups called averaged."""
        channels = self._bank.channels(n_image_channels)
        return tuple(Channel(name, f"{group} averaged") for name, group in channels)

    @property
    def label(self) -> str:
        """Label of the bank, and the group."""
        inner = f"({self._bank.label})" if " + " in self._bank.label else self._bank.label
        moves = self._moves()
        reflects = any(np.linalg.det(move.turn) < 0 for move in moves)
        return f"{inner} averaged over {'turns and reflections' if reflects else f'{len(moves)} turns'}"

    @property
    def halo(self) -> int:
        """Halo of the bank, as far as the corners of its square reach when they are turned, and a cell between grids."""
        halo = self._bank.halo if self._is_exact else math.ceil(math.sqrt(2) * (self._bank.halo + 1))
        return halo + (self.alignment if self.alignment > 1 else 0)

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Estimate the need of the bank for a turned tile with its margin, and sums over the group in double precision."""
        turned = 1 if self._is_exact else 2  # a square that is turned fits into one of twice the area
        side_by_side = min(count_threads(), len(self._moves()))
        sums = 4 * self._bank.bytes_of_maps(n_image_channels)
        return side_by_side * turned * self._bank.bytes_per_pixel(n_image_channels) + 2 * sums

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the maps of a tile, and give back the sums of those that were yielded; see `FilterBank.iter_maps`."""
        wanted = np.unique(self._wanted(channels, image.shape[2]))
        margin = self.alignment * (math.ceil(self._bank.halo / self.alignment) + 1)
        reach = math.ceil(max(self._bank.strides(image.shape[2])[wanted], default=1))

        def look(turn: Matrix) -> Iterator[FeatureMaps]:
            """Compute maps of the turned image one after the other, read at cells centred on the image."""
            frame = _Symmetry(image, turn) if self._is_exact else _Turned(image, turn)
            seen = _seen(frame, tile.core, reach, margin, self.alignment)
            corner = np.array([side.start for side in seen])
            for stack in self._bank.iter_maps(cast(FloatArray, frame), Tile(seen, seen), wanted):
                yield _resample(frame, replace(stack, offset=tuple(stack.offset + corner)), image.shape, tile)

        turns = [move.turn for move in self._moves()]
        side_by_side = tile.shape[0] * tile.shape[1] <= PIXELS_SIDE_BY_SIDE and count_threads() > 1
        looked: Iterable[Iterable[FeatureMaps]] = (
            in_threads(lambda turn: list(look(turn)), turns) if side_by_side else map(look, turns)
        )
        sums: list[_Sum] = []
        for stacks in looked:
            for place, stack in enumerate(stacks):
                if place == len(sums):
                    sums.append(_Sum(stack))
                sums[place].add(stack.values)
        sums.reverse()
        # each sum is given back when its means are taken
        while sums:
            yield sums.pop().mean(len(turns))

    def _given(self) -> Sequence[FilterBank]:
        if not isinstance(self.bank, FilterBank) or isinstance(self.bank, OrbitAveraged):
            raise ConfigError(
                f"bank {type(self.bank).__name__}: give a filter bank, not averaged already, such as ScatteringBank()"
            )
        if not isinstance(self._group, Group):
            raise ConfigError(
                f"group {self.group!r}: give turns and reflections of segkit.invariance, such as Dihedral() or Rotation(16)"
            )
        if any(move.scale != 1 or move.amplitude != 1 for move in self._moves()):
            raise ConfigError(
                f"group {self.group}: images are averaged over turns and reflections, leave Scaling out"
            )
        return [self.bank]

    @property
    def _bank(self) -> FilterBank:
        return self._used[0]

    @property
    def _group(self) -> Group:
        return Dihedral() if self.group is None else self.group

    @property
    def _is_exact(self) -> bool:
        """Whether every element moves pixels onto pixels."""
        return all(np.isin(move.turn, (-1, 0, 1)).all() for move in self._moves())

    def _moves(self) -> list[Similarity]:
        return similarities(self._group, (2, 2))


class _Sum:
    """Sum of some channels over the group, in double precision."""

    def __init__(self, first: FeatureMaps) -> None:
        self.indices, self.grid = first.indices, (first.stride, first.offset)
        self.values = np.zeros(first.values.shape)

    def add(self, features: FloatArray) -> None:
        """Add the channels of a turned image, (n_channels, n_rows, n_cols)."""
        self.values += features

    def mean(self, n_turns: int) -> FeatureMaps:
        """Divide the sum, in place, by the number of turns."""
        self.values /= n_turns
        return FeatureMaps(self.values.astype(np.float32), self.indices, *self.grid)


def _seen(frame: _Symmetry | _Turned, core: Sides, reach: int, margin: int, alignment: int) -> Sides:
    """Find the rows and columns of a turned image that the bank must see for the cells around a core."""
    # They start where cells of the whole turned image do, and reach as far as the bank and a cell between two grids.
    corners = [(side.start - reach, side.stop + reach) for side in core]
    rows, cols = frame.place(
        np.array([(row, col) for row in corners[0] for col in corners[1]], dtype=np.float64)
    )
    sides = []
    for at, length in zip((rows, cols), frame.shape[:2], strict=True):
        first, last = math.floor(at.min()) - margin, math.ceil(at.max()) + margin
        sides.append(slice(max(0, alignment * (first // alignment)), min(length, last + 1)))
    return sides[0], sides[1]


def _resample(
    frame: _Symmetry | _Turned, stack: FeatureMaps, shape: tuple[int, ...], tile: Tile
) -> FeatureMaps:
    """Read maps of a turned image at cells of the same stride, centred on the image, as far as a tile's core needs them."""
    rows, cols = (
        _cells(length, stack.stride, core) for length, core in zip(shape[:2], tile.core, strict=True)
    )
    offset = float(rows[0]) - tile.seen[0].start, float(cols[0]) - tile.seen[1].start
    return FeatureMaps(frame.read(stack, rows, cols), stack.indices, stack.stride, offset)


def _cells(length: int, stride: float, core: slice) -> NDArray[np.float64]:
    """List the positions of one stride, centred on a row of so many pixels: those that positions in a core lie between."""
    n = int((length - 1) / stride) + 1
    first = (length - 1 - stride * (n - 1)) / 2
    ends = (np.array([core.start, core.stop]) - first) / stride
    low, high = np.clip([math.floor(ends[0]), math.ceil(ends[1])], 0, n - 1).tolist()
    return np.asarray(first + stride * np.arange(low, high + 1), dtype=np.float64)


class _Symmetry:
    """An image moved by a symmetry of the square, pixel onto pixel; parts of it are moved when they are read."""

    def __init__(self, image: FloatArray, turn: Matrix) -> None:
        self.image = image
        self.swaps = turn[0, 0] == 0
        # steps of -1 reverse the rows or columns of the moved image
        self.steps = [int(np.sign(sums)) for sums in turn.sum(axis=1)]
        height, width, n_channels = image.shape
        self.shape = (width, height, n_channels) if self.swaps else (height, width, n_channels)

    def place(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Move positions of the image (n, 2) into the frame; (2, n)."""
        moved = positions[:, ::-1] if self.swaps else positions
        return np.stack(
            [
                at if step > 0 else length - 1 - at
                for at, step, length in zip(moved.T, self.steps, self.shape, strict=False)
            ]
        )

    def __getitem__(self, seen: Sides) -> FloatArray:
        """Read a part of the moved image."""
        sources = [
            side if step > 0 else slice(length - side.stop, length - side.start)
            for side, step, length in zip(seen, self.steps, self.shape, strict=False)
        ]
        rows, cols = sources[::-1] if self.swaps else sources
        part = self.image[rows, cols]
        swapped = part.transpose(1, 0, 2) if self.swaps else part
        return np.ascontiguousarray(swapped[:: self.steps[0], :: self.steps[1]])

    def read(self, stack: FeatureMaps, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Read maps of the moved image where rows cross columns of the image; (n_channels, n_rows, n_cols)."""
        values = stack.values[:, :: self.steps[0], :: self.steps[1]]
        offsets = [
            offset if step > 0 else length - 1 - offset - stack.stride * (n - 1)
            for offset, step, length, n in zip(
                np.broadcast_to(stack.offset, 2),
                self.steps,
                self.shape[:2],
                stack.values.shape[1:],
                strict=True,
            )
        ]
        if self.swaps:
            values, offsets = values.transpose(0, 2, 1), offsets[::-1]
        maps = FeatureMaps(values, stack.indices, stack.stride, (offsets[0], offsets[1]))
        return maps.interpolate(rows, cols)


class _Turned:
    """An image turned about its centre by bilinear interpolation, mirrored at its edges, in a frame that holds it."""

    def __init__(self, image: FloatArray, turn: Matrix) -> None:
        self.image, self.matrix = image, turn
        self.centre = (np.array(image.shape[:2]) - 1) / 2
        height, width = np.ceil((2 * np.abs(turn) @ self.centre).round(9)).astype(int).tolist()
        self.shape = (height + 1, width + 1, image.shape[2])
        self.turned_centre = np.array([height, width]) / 2

    def place(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Move positions of the image (n, 2) into the frame; (2, n)."""
        return _move(positions, self.matrix, self.centre, self.turned_centre)

    def __getitem__(self, seen: Sides) -> FloatArray:
        """Read a part of the turned image."""
        rows, cols = (np.arange(side.start, side.stop) for side in seen)
        grid = np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1).reshape(-1, 2)
        sources = _move(grid, self.matrix.T, self.turned_centre, self.centre)
        read, first = [], []
        for at, length in zip(sources, self.image.shape[:2], strict=True):
            _mirror(at, length)
            start = math.floor(at.min())
            read.append(slice(start, min(length, math.floor(at.max()) + 2)))
            first.append(start)
        sources -= np.array(first)[:, None]
        part = self.image[read[0], read[1]]
        planes = [
            ndimage.map_coordinates(plane, sources, order=1, mode="mirror").reshape(rows.size, cols.size)
            for plane in part.transpose(2, 0, 1)
        ]
        return np.stack(planes, axis=2)

    def read(self, stack: FeatureMaps, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Read maps of the turned image where rows cross columns of the image; (n_channels, n_rows, n_cols)."""
        positions = np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1).reshape(-1, 2)
        at = self.place(positions)
        out = np.empty((len(stack.values), rows.size, cols.size), dtype=np.float32)
        n_block = max(1, BLOCK_SIZE // len(positions))
        for start in range(0, len(out), n_block):
            block = slice(start, start + n_block)
            maps = FeatureMaps(stack.values[block], stack.indices[block], stack.stride, stack.offset)
            out[block] = maps.sample(*at).T.reshape(-1, rows.size, cols.size)
        return out


def _mirror(positions: NDArray[np.float64], length: int) -> None:
    """Mirror positions beyond the first and last of so many pixels, in place."""
    period = max(2 * (length - 1), 1)
    np.mod(positions, period, out=positions)
    np.minimum(positions, period - positions, out=positions)
    np.clip(positions, 0, length - 1, out=positions)


def _move(
    positions: NDArray[Any], turn: Matrix, centre: NDArray[Any], new_centre: NDArray[Any]
) -> NDArray[np.float64]:
    """Turn positions (n, 2) about one centre, which moves to another; (2, n)."""
    # Rounding keeps positions on a pixel exact.
    moved: NDArray[np.float64] = ((positions - centre) @ turn.T + new_centre).round(9)
    return moved.T
