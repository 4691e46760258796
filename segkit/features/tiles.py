"""Tiles of a large image: the pixels that a filter bank reads, and the core where its features are exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common.memory import bytes_left

# Larger images are processed tile by tile, however much memory there is: results do not depend on the machine then.
PIXELS_AT_ONCE = 2**20
# Images of so few pixels stay whole, and cores have at least this side: smaller ones save no memory worth the time.
_PIXELS_ANYHOW = 2**14
_LEAST_CORE = 2**6


@dataclass(frozen=True)
class Tile:
    """A part of an image."""

    core: tuple[slice, slice]
    seen: tuple[slice, slice]

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of `seen`."""
        height, width = (seen.stop - seen.start for seen in self.seen)
        return height, width

    @property
    def inner(self) -> tuple[slice, slice]:
        """The core, counted from the first row and column of `seen`."""
        rows, cols = (
            slice(core.start - seen.start, core.stop - seen.start)
            for core, seen in zip(self.core, self.seen, strict=True)
        )
        return rows, cols

    def holds(self, rows: NDArray[Any], cols: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which pixel positions of the image lie in the core."""
        inside = [
            (core.start <= positions) & (positions < core.stop)
            for core, positions in zip(self.core, (rows, cols), strict=True)
        ]
        return np.asarray(inside[0] & inside[1])


def cut(shape: tuple[int, ...], halo: int, alignment: int, bytes_per_pixel: float = 0.0) -> list[Tile]:
    """Cut an image into tiles; an image of at most `PIXELS_AT_ONCE` pixels stays whole, if memory allows."""
    if is_small(shape, bytes_per_pixel):
        return [whole(shape)]
    # One cell more than the halo: features are interpolated between the centres of neighbouring cells.
    margin = alignment * (math.ceil(halo / alignment) + 1)
    longest = max(math.isqrt(PIXELS_AT_ONCE) - 2 * margin, 4 * margin)
    if bytes_per_pixel:
        affordable = math.isqrt(max(0, int(bytes_left() / bytes_per_pixel))) - 2 * margin
        longest = min(longest, max(affordable, _least_core(margin)))
    sides = [_stretches(length, longest, margin, alignment) for length in shape[:2]]
    return [
        Tile((row_core, col_core), (row_seen, col_seen))
        for (row_core, row_seen), (col_core, col_seen) in product(*sides)
    ]


def least_tile(shape: tuple[int, ...], halo: int, alignment: int) -> int:
    """Count the pixels of the smallest tile that `cut` makes of an image."""
    margin = alignment * (math.ceil(halo / alignment) + 1)
    height, width = (min(length, _least_core(margin) + 2 * margin) for length in shape[:2])
    return height * width


def is_small(shape: tuple[int, ...], bytes_per_pixel: float = 0.0) -> bool:
    """Return whether an image is processed as a whole, with so much memory for each pixel."""
    n_pixels = shape[0] * shape[1]
    # the memory left is asked for only where it matters: the answer takes a while
    return n_pixels <= PIXELS_AT_ONCE and (
        n_pixels <= _PIXELS_ANYHOW or n_pixels * bytes_per_pixel <= bytes_left()
    )


def whole(shape: tuple[int, ...]) -> Tile:
    """Take the whole image as one tile."""
    rows, cols = (slice(0, length) for length in shape[:2])
    return Tile((rows, cols), (rows, cols))


def _least_core(margin: int) -> int:
    """Return the side of the smallest core: of a smaller one's tile most would be margin."""
    return max(margin, _LEAST_CORE)


def _stretches(length: int, longest: int, margin: int, alignment: int) -> list[tuple[slice, slice]]:
    """Cut one side of the image into equal parts, the last one shorter; returns (core, seen) of each."""
    step = alignment * math.ceil(length / math.ceil(length / longest) / alignment)
    ends = [*range(0, length, step), length]
    return [
        (slice(start, stop), slice(max(0, start - margin), min(length, stop + margin)))
        for start, stop in pairwise(ends)
    ]
