"""Windows of one size, laid over a whole image, whose maps are blended into one map of the image.

A network with attention sees all of its window. Its maps are those of the image only if the windows lie at the same
places whichever part of the image is asked for. They are laid out for the whole image, side by side with an overlap, and
mirror it beyond its edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray


@dataclass(frozen=True)
class Side:
    """Windows along one side of an image: pixels of the image, of a window, and between neighbouring windows."""

    length: int
    window: int
    hop: int

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return 1 + math.ceil(max(0, self.length - self.window) / self.hop)

    @property
    def first(self) -> int:
        """First pixel of the first window; it lies before the image, or at its edge."""
        return -((self._covered - self.length) // 2)

    @property
    def _covered(self) -> int:
        return (self.n_windows - 1) * self.hop + self.window

    @property
    def is_covered(self) -> bool:
        """Whether the image, mirrored once at either edge, fills its windows."""
        before = -self.first
        after = self.first + self._covered - self.length
        return max(before, after) < self.length

    def pixels(self, number: int) -> NDArray[np.intp]:
        """List the pixels of the image that a window holds, mirrored at the edges."""
        start = self.first + number * self.hop
        pixels = np.abs(np.arange(start, start + self.window))
        mirrored: NDArray[np.intp] = np.minimum(pixels, 2 * (self.length - 1) - pixels)
        return mirrored


@dataclass(frozen=True)
class Cells:
    """Cells of a map along one side of an image, as far as a part of the image is interpolated from them."""

    side: Side
    n_cells: int
    offset: float
    part: slice

    @property
    def stride(self) -> float:
        """Pixels between neighbouring cells."""
        return self.side.window / self.n_cells

    @property
    def ends(self) -> tuple[int, int]:
        """First cell, and the one behind the last."""
        n = (self.side.n_windows - 1) * self._per_hop + self.n_cells
        # Rounding keeps positions on the centre of a cell exact.
        first, last = (
            round((at - self._origin) / self.stride, 9) for at in (self.part.start, self.part.stop - 1)
        )
        return min(max(math.floor(first), 0), n - 1), min(max(math.ceil(last), 0), n - 1) + 1

    @property
    def position(self) -> float:
        """Pixel of the image that the centre of the first cell is at."""
        return self._origin + self.ends[0] * self.stride

    @property
    def _origin(self) -> float:
        return self.side.first + self.offset

    @property
    def _per_hop(self) -> int:
        return round(self.side.hop * self.n_cells / self.side.window)

    def places(self, number: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return which cells of a window are wanted, and their places among the wanted ones."""
        first, stop = self.ends
        places = number * self._per_hop + np.arange(self.n_cells) - first
        mine = np.flatnonzero((places >= 0) & (places < stop - first))
        return mine, places[mine]


class Blend:
    """A map of an image, as the mean of the maps of its windows, weighted by a smooth function of the place in a window."""

    def __init__(self, rows: Cells, cols: Cells, n_channels: int) -> None:
        self.sides = rows, cols
        shape = [cells.ends[1] - cells.ends[0] for cells in self.sides]
        self._sums = np.zeros((n_channels, *shape), dtype=np.float32)
        self._weights = np.zeros(shape, dtype=np.float32)

    def needs(self, place: tuple[int, int]) -> bool:
        """Return whether a window holds wanted cells."""
        return all(cells.places(number)[0].size for cells, number in zip(self.sides, place, strict=True))

    def add(self, place: tuple[int, int], values: FloatArray) -> None:
        """Add the maps (n_channels, h, w) of a window."""
        (own_rows, rows), (own_cols, cols) = (
            cells.places(number) for cells, number in zip(self.sides, place, strict=True)
        )
        weights = np.outer(_hann(values.shape[1])[own_rows], _hann(values.shape[2])[own_cols])
        at = np.ix_(rows, cols)
        self._weights[at] += weights
        self._sums[:, at[0], at[1]] += weights * values[:, own_rows[:, None], own_cols]

    def values(self) -> FloatArray:
        """Return the means (n_channels, h, w), after the last window."""
        self._sums /= self._weights
        return self._sums


def read_window(image: Any, rows: NDArray[np.intp], cols: NDArray[np.intp]) -> FloatArray:
    """Read some pixels of an image that reads the slices it is asked for; returns (n_rows, n_cols, C)."""
    part: FloatArray = image[rows.min() : rows.max() + 1, cols.min() : cols.max() + 1]
    pixels: FloatArray = part[rows[:, None] - rows.min(), cols - cols.min()]
    return pixels


def _hann(n_cells: int) -> FloatArray:
    """Weigh the cells of a window: most in its middle, less towards its edges, never zero."""
    return (np.sin(np.pi * (np.arange(n_cells) + 0.5) / n_cells) ** 2).astype(np.float32)
