"""Feature maps of a large image, one tile at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, IntArray
from segkit.features.base import FeatureMaps, FilterBank
from segkit.features.stacked import StackedBank
from segkit.features.tiles import Tile, whole

Grid = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class View:
    """Feature maps of a tile."""

    tile: Tile
    stacks: Sequence[FeatureMaps]

    def subset(self, channels: IntArray) -> View:
        """Leave the maps of other channels out."""
        stacks = [stack for stack in self.stacks if np.isin(stack.indices, channels).any()]
        return replace(self, stacks=[stack.subset(channels) for stack in stacks])

    def within(self, core: tuple[slice, slice]) -> View:
        """Narrow the view to a part of its core, (rows, columns) of the image."""
        sides = [
            (inner.start - seen.start, inner.stop - seen.start)
            for inner, seen in zip(core, self.tile.seen, strict=True)
        ]
        return View(Tile(core, core), [_cropped(stack, sides) for stack in self.stacks])

    def upsample(self, stack: FeatureMaps, rows: IntArray | None = None) -> FloatArray:
        """Values at the pixels of the core, or of some of its rows; (n_channels, n_rows, n_cols)."""
        own_rows, own_cols = self.tile.inner
        if rows is None:
            rows = np.arange(own_rows.start, own_rows.stop)
        return stack.upsample(self.tile.shape, rows)[:, :, own_cols]

    def positions(self, grid: Grid) -> tuple[NDArray[np.bool_], Grid]:
        """Return which positions of a grid lie in the core, and count those from the first row and column seen."""
        mine = self.tile.holds(*grid)
        rows, cols = (at[mine] - seen.start for at, seen in zip(grid, self.tile.seen, strict=True))
        return mine, (rows, cols)


class Tiling:
    """An image as some of the banks of a stack see it, tile by tile.

    `parts` are these banks, each with its wanted channels, numbered as in the stack. Every tile shows all of them.
    """

    def __init__(
        self, image: FloatArray, bank: FilterBank, parts: Sequence[tuple[FilterBank, IntArray]]
    ) -> None:
        self._image, self._bank = image, bank
        self.whole_parts = [own for part, own in parts if not part.is_local]
        self.local_parts = [own for part, own in parts if part.is_local]
        local = [part for part, _ in parts if part.is_local]
        self.tiles = StackedBank(local).tiles(image.shape) if local else [whole(image.shape)]

    def views(self) -> Iterator[View]:
        """Compute the maps of each tile in turn; maps that need the whole image are computed once."""
        kept = self.whole_maps()
        for tile in self.tiles:
            yield View(tile, [*self.local_maps(tile), *moved_to(tile, kept)])

    def whole_maps(self) -> list[FeatureMaps]:
        """Compute the maps of banks that need the whole image."""
        return self._maps(whole(self._image.shape), self.whole_parts)

    def local_maps(self, tile: Tile) -> list[FeatureMaps]:
        """Compute the maps of the other banks for a tile."""
        return self._maps(tile, self.local_parts)

    def _maps(self, tile: Tile, parts: Sequence[IntArray]) -> list[FeatureMaps]:
        return self._bank.tile_maps(self._image, tile, concatenate(parts)) if parts else []


def _cropped(stack: FeatureMaps, sides: Sequence[tuple[int, int]]) -> FeatureMaps:
    """Keep the cells that pixels from start to stop are interpolated from, and count pixels from start."""
    kept, offsets = [], []
    offset_of = np.broadcast_to(stack.offset, 2)
    for (start, stop), offset, n_cells in zip(sides, offset_of, stack.values.shape[1:], strict=True):
        ends = (np.array([start, stop - 1]) - offset) / stack.stride
        first, last = np.clip([math.floor(ends[0]), math.ceil(ends[1])], 0, n_cells - 1).tolist()
        kept.append(slice(first, last + 1))
        offsets.append(float(offset + first * stack.stride - start))
    return FeatureMaps(
        stack.values[:, kept[0], kept[1]], stack.indices, stack.stride, (offsets[0], offsets[1])
    )


def moved_to(tile: Tile, maps: Sequence[FeatureMaps]) -> list[FeatureMaps]:
    """Count maps of the whole image from the first row and column that a tile sees."""
    corner = np.array([seen.start for seen in tile.seen])
    return [
        FeatureMaps(stack.values, stack.indices, stack.stride, tuple(stack.offset - corner)) for stack in maps
    ]


def concatenate(indices: Sequence[IntArray]) -> IntArray:
    """Concatenate arrays of indices; there may be none."""
    return np.concatenate([np.empty(0, dtype=np.intp), *indices])
