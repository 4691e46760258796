"""Shapes of all objects of a label image at once, by scikit-image's definitions but without a loop over objects.

Objects are kept as horizontal runs of pixels. Sums over pixels are then sums over runs, in closed form, and whole
numbers until the last step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Lengths of the contour that a pixel stands for, by its neighbours on the contour: 2 for each beside it, 10 for each at
# a corner, 1 for itself (Benkrid and Crookes, "Design and FPGA implementation of a perimeter estimator").
_LENGTHS = np.zeros(50)
_LENGTHS[[5, 7, 15, 17, 25, 27]] = 1
_LENGTHS[[21, 33]] = np.sqrt(2)
_LENGTHS[[13, 23]] = (1 + np.sqrt(2)) / 2
_SIDE, _CORNER = 2, 10


@dataclass(frozen=True, eq=False)
class Runs:
    """Horizontal runs of pixels of one object each, sorted by object, row and column."""

    ids: Integers
    owner: Integers
    row: Integers
    start: Integers
    stop: Integers

    @classmethod
    def of(cls, labels: NDArray[np.integer]) -> Runs:
        """Find the runs of a label image (H, W); 0 is background."""
        height, width = labels.shape
        # a column of background behind the last one ends every run
        flat = np.zeros((height, width + 1), dtype=labels.dtype)
        flat[:, :width] = labels
        flat = flat.ravel()
        change = np.flatnonzero(flat[1:] != flat[:-1]) + 1
        if flat.size and flat[0]:
            change = np.concatenate(([0], change))
        start, stop, values = change, np.append(change[1:], flat.size), flat[change]
        start, stop, values = (part[values > 0] for part in (start, stop, values))
        ids, owner = np.unique(values, return_inverse=True)
        order = np.argsort(owner, kind="stable")
        row, column = np.divmod(start[order], width + 1)
        return cls(ids.astype(np.int64), owner[order], row, column, column + (stop - start)[order])

    @property
    def n_objects(self) -> int:
        """Number of objects."""
        return self.ids.size

    @cached_property
    def areas(self) -> Integers:
        """Number of pixels of each object."""
        return self.sums(self.stop - self.start).astype(np.int64)

    @cached_property
    def boxes(self) -> Integers:
        """First row and column of each object, and the row and column after the last; (n_objects, 4)."""
        if not self.n_objects:
            return np.zeros((0, 4), dtype=np.int64)
        first = np.searchsorted(self.owner, np.arange(self.n_objects))
        sides = (
            self.row[first],
            np.minimum.reduceat(self.start, first),
            np.maximum.reduceat(self.row, first) + 1,
            np.maximum.reduceat(self.stop, first),
        )
        return np.stack(sides, axis=1)

    def of_pixels(self) -> Integers:
        """Position in `ids` of the object of each pixel that has one, row by row."""
        order = np.lexsort((self.start, self.row))
        return np.repeat(self.owner[order], (self.stop - self.start)[order])

    def sums(self, values: NDArray[Any]) -> Floats:
        """Add up a value of each run over the runs of each object."""
        return add_up(values, self.owner, self.n_objects)


def add_up(values: NDArray[Any], owner: NDArray[np.integer], n_objects: int) -> Floats:
    """Add up values of each object; floats even without any."""
    return np.bincount(owner, values, n_objects).astype(np.float64, copy=False)


def moments(runs: Runs) -> tuple[Floats, Floats]:
    """Compute centroids (n, 2) and, of rows, columns and both, the covariances (n, 3) of the pixels of each object."""
    corner = runs.boxes[:, :2]
    # within the box of the object, so that whole numbers stay small enough to be exact
    row = runs.row - corner[runs.owner, 0]
    start, stop = runs.start - corner[runs.owner, 1], runs.stop - corner[runs.owner, 1]
    length, columns = stop - start, _sum_below(stop) - _sum_below(start)
    n = runs.areas.astype(np.float64)
    of_rows, of_columns = runs.sums(row * length), runs.sums(columns)
    covariances = (
        n * runs.sums(row * row * length) - of_rows**2,
        n * runs.sums(_sum_of_squares_below(stop) - _sum_of_squares_below(start)) - of_columns**2,
        n * runs.sums(row * columns) - of_rows * of_columns,
    )
    centroids = corner + np.stack((of_rows, of_columns), axis=1) / n[:, np.newaxis]
    return centroids, np.stack(covariances, axis=1) / (n**2)[:, np.newaxis]


def axes(covariances: Floats) -> tuple[Floats, Floats, Floats]:
    """Compute the whole axes, four standard deviations, and the eccentricity of ellipses; of a single pixel it is 0."""
    rows, columns, mixed = covariances.T
    spread = np.hypot((rows - columns) / 2, mixed)
    large = (rows + columns) / 2 + spread
    small = np.clip((rows + columns) / 2 - spread, 0, None)
    ratio = np.divide(small, large, out=np.ones_like(large), where=large > 0)
    return 4 * np.sqrt(large), 4 * np.sqrt(small), np.sqrt(1 - ratio)


def perimeters(labels: NDArray[np.integer], ids: Integers, core: tuple[slice, slice] | None = None) -> Floats:
    """Compute the length of the contour of each object, holes included; in a core two pixels inside, if it is given."""
    padded = np.pad(labels, 1)
    inner = padded[1:-1, 1:-1]
    beside = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    on_contour = np.zeros(padded.shape, dtype=bool)
    for other in beside:
        on_contour[1:-1, 1:-1] |= inner != other
    on_contour &= padded != 0
    flat, on_contour, width = padded.ravel(), on_contour.ravel(), padded.shape[1]
    counted = on_contour
    if core is not None:
        inside = np.zeros_like(padded, dtype=bool)
        inside[1:-1, 1:-1][core] = True
        counted = on_contour & inside.ravel()
    where = np.flatnonzero(counted)
    own = flat[where]
    code = np.ones(where.size, dtype=np.intp)
    for weight, steps in (
        (_SIDE, (-width, -1, 1, width)),
        (_CORNER, (-width - 1, -width + 1, width - 1, width + 1)),
    ):
        for step in steps:
            code += weight * (on_contour[where + step] & (flat[where + step] == own))
    return add_up(_LENGTHS[code], np.searchsorted(ids, own), ids.size)


def hull_areas(runs: Runs) -> Integers:
    """Count the pixels whose centre is in the convex hull of each object, or on its edge.

    The hull is that of the middles of all pixel sides, as in `skimage.morphology.convex_hull_image`. In whole numbers a
    centre on an edge is always on it; in floating point, as there, nearly always.
    """
    left = _hull(*_outermost(runs, runs.start))
    # the right side is the left side in a mirror
    right = _hull(*_outermost(runs, 1 - runs.stop))
    heights = runs.boxes[:, 2] - runs.boxes[:, 0]
    owner = np.repeat(np.arange(runs.n_objects), heights)
    row = np.arange(owner.size) - np.repeat(np.cumsum(heights) - heights - runs.boxes[:, 0], heights)
    widths = 1 - _first_column(left, owner, row) - _first_column(right, owner, row)
    return add_up(np.clip(widths, 0, None), owner, runs.n_objects).astype(np.int64)


_Points = tuple[Integers, Integers, Integers]


def _outermost(runs: Runs, column: Integers) -> _Points:
    """Find the leftmost middles of pixel sides, a point for each half row: owner, twice its row, twice its column."""
    # the leftmost pixel of each row first, then that of the two rows at each half row
    owner, row, column = _least(runs.owner, runs.row, column)
    y = np.concatenate([2 * row + half for half in (-1, 0, 1)])
    x = np.concatenate([2 * column + extent for extent in (0, -1, 0)])
    owner = np.tile(owner, 3)
    order = np.lexsort((y, owner))
    return _least(owner[order], y[order], x[order])


def _least(owner: Integers, y: Integers, x: Integers) -> _Points:
    """Keep the least x of each y of each object, of points sorted by object and y."""
    if not owner.size:
        return owner, y, x
    first = np.flatnonzero((np.diff(owner, prepend=-1) != 0) | (np.diff(y, prepend=y[0]) != 0))
    return owner[first], y[first], np.minimum.reduceat(x, first)


def _hull(owner: Integers, y: Integers, x: Integers) -> _Points:
    """Keep the corners of the left side of each hull.

    A point on or to the right of the line between its neighbours is no corner. All such points of all objects go at once,
    until none is left.
    """
    done: list[_Points] = []
    while owner.size:
        is_corner = np.ones(owner.size, dtype=bool)
        before, at, after = slice(None, -2), slice(1, -1), slice(2, None)
        turn = (x[at] - x[before]) * (y[after] - y[before]) - (x[after] - x[before]) * (y[at] - y[before])
        is_corner[at] = (turn < 0) | (owner[at] != owner[before]) | (owner[at] != owner[after])
        has_lost = np.zeros(int(owner[-1]) + 1, dtype=bool)
        has_lost[owner[~is_corner]] = True
        goes_on = has_lost[owner]
        done.append((owner[~goes_on], y[~goes_on], x[~goes_on]))
        owner, y, x = (part[is_corner & goes_on] for part in (owner, y, x))
    owner, y, x = (np.concatenate(parts) for parts in zip(*done, strict=True)) if done else (owner, y, x)
    order = np.lexsort((y, owner))
    return owner[order], y[order], x[order]


def _first_column(corners: _Points, owner: Integers, row: Integers) -> Integers:
    """Find the first column whose pixel centres are in the hull, for rows of objects."""
    of_corner, y, x = corners
    if not owner.size:
        return np.zeros(0, dtype=np.int64)
    # corners and rows on one scale: objects one behind the other
    scale = int(y.max()) + 2
    above = np.searchsorted(of_corner * scale + y, owner * scale + 2 * row) - 1
    run, rise = y[above + 1] - y[above], x[above + 1] - x[above]
    # least c with 2 c >= x + rise (2 row - y) / run, rounded up in whole numbers
    columns: Integers = -((-(x[above] * run + rise * (2 * row - y[above]))) // (2 * run))
    return columns


def _sum_below(m: Integers) -> Integers:
    """Return 0 + 1 + ... + (m - 1)."""
    return m * (m - 1) // 2


def _sum_of_squares_below(m: Integers) -> Integers:
    """Return 0² + 1² + ... + (m - 1)²."""
    return m * (m - 1) * (2 * m - 1) // 6
