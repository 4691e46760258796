"""Outlines of objects to pixels and back, without loss.

Pixel (r, c) covers [c, c + 1] x [r, r + 1], and a point is (x, y) = (column, row), as in ImageJ and QuPath. A pixel is
inside an outline if its centre is, by the even-odd rule; a centre on an edge belongs to one side of it. Traced outlines
follow the edges of pixels, so that filling them gives the pixels they were traced from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage import measure

from segkit.errors import InputError

Ring = NDArray[Any]
Polygon = list[Ring]

# Farther from any image a coordinate is no place.
_FARTHEST = 1e12
# Crossings of rows and edges that are computed at a time.
_CROSSINGS_AT_ONCE = 2**21
# Pixels that are filled in the time of a crossing.
_PIXELS_PER_CROSSING = 4
# Directions along the edges of pixels, clockwise on the screen, as steps of row and column.
_STEPS = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
# From the start of an edge to the pixel on its right.
_RIGHT = np.array([(0, 0), (0, -1), (-1, -1), (-1, 0)])
# From the end of an edge to the pixel ahead on its right, and ahead on its left.
_AHEAD_RIGHT = np.array([(0, 0), (0, -1), (-1, -1), (-1, 0)])
_AHEAD_LEFT = np.array([(-1, 0), (0, 0), (0, -1), (-1, -1)])


class Filled(NamedTuple):
    """Pixels of an outline, in a box that starts at row `top` and column `left`."""

    top: int
    left: int
    inside: NDArray[np.bool_]


def fill(polygons: Iterable[Polygon], shape: tuple[int, int]) -> Filled:
    """Find the pixels inside any polygon; rings are closed or not, and a ring within a ring is a hole."""
    pieces = [(rings, _box(rings, shape)) for rings in map(points_of, polygons) if rings]
    if not pieces:
        return Filled(0, 0, np.zeros((0, 0), dtype=np.bool_))
    boxes = np.array([box for _, box in pieces])
    (top, left), (bottom, right) = boxes[:, :2].min(axis=0).tolist(), boxes[:, 2:].max(axis=0).tolist()
    inside = np.zeros((max(bottom - top, 0), max(right - left, 0)), dtype=np.bool_)
    for rings, (first_row, first_column, end_row, end_column) in pieces:
        if end_row > first_row and end_column > first_column:
            size = (end_row - first_row, end_column - first_column)
            part = inside[first_row - top : end_row - top, first_column - left : end_column - left]
            part |= _parity(rings, first_row, first_column, size)
    return Filled(top, left, inside)


def work_of(polygons: Iterable[Polygon], shape: tuple[int, int]) -> float:
    """Count the pixels of the boxes of polygons, and the crossings of their edges and rows: `fill` takes as long."""
    work = 0.0
    for rings in map(points_of, polygons):
        if rings:
            top, left, bottom, right = _box(rings, shape)
            work += max(bottom - top, 0) * max(right - left, 0)
            heights = (ring[:, 1].clip(top, bottom) for ring in rings)
            work += _PIXELS_PER_CROSSING * sum(float(np.abs(y - np.roll(y, 1)).sum()) for y in heights)
    return work


def points_of(rings: Polygon) -> Polygon:
    """Return the rings of a polygon that hold points, each (n, 2)."""
    try:
        points = [np.asarray(ring, dtype=np.float64) for ring in rings if len(ring)]
    except (TypeError, ValueError, OverflowError):
        points = [np.empty(0)]
    if not all(ring.ndim == 2 and ring.shape[1] >= 2 and (np.abs(ring) < _FARTHEST).all() for ring in points):
        raise InputError(
            "outline with coordinates that are no pairs of finite numbers, expected [[x, y], ...]: export it again"
        )
    return [ring[:, :2] for ring in points]


def _box(rings: Polygon, shape: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return first row and column of the pixels that rings may hold, and the ends of both."""
    every, limits = np.concatenate(rings), np.array(shape[::-1])
    left, top = np.floor(every.min(axis=0)).clip(0, limits).astype(int).tolist()
    right, bottom = np.ceil(every.max(axis=0)).clip(0, limits).astype(int).tolist()
    return top, left, bottom, right


def _parity(rings: Polygon, top: int, left: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Find the pixels of a box whose line from the centre to the left crosses an odd number of edges."""
    height, width = shape
    starts = np.concatenate(rings)
    ends = np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])
    # Upwards and downwards alike, so that outlines on both sides of an edge cross it at the same number.
    upwards = (starts[:, 1] > ends[:, 1])[:, None]
    (x0, y0), (x1, y1) = np.where(upwards, ends, starts).T, np.where(upwards, starts, ends).T
    # The centres of rows first..last - 1 lie at y0 <= y < y1.
    first = np.clip(np.ceil(y0 - 0.5), top, top + height).astype(int)
    last = np.clip(np.ceil(y1 - 0.5), top, top + height).astype(int)
    toggles = np.zeros(height * (width + 1), dtype=np.uint8)  # of which the lowest bit counts
    numbers = last - first
    n_crossings = np.cumsum(numbers)
    for block in np.split(
        np.arange(len(numbers)),
        np.searchsorted(n_crossings, np.arange(_CROSSINGS_AT_ONCE, n_crossings[-1], _CROSSINGS_AT_ONCE)),
    ):
        n_rows = numbers[block]
        edges = np.repeat(block, n_rows)
        rows = np.arange(len(edges)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows) + first[edges]
        slopes = (x1 - x0)[edges] / (y1 - y0)[edges]
        crossings = x0[edges] + (rows + 0.5 - y0[edges]) * slopes
        columns = np.clip(np.ceil(crossings - 0.5), left, left + width).astype(int)
        np.add.at(toggles, (rows - top) * (width + 1) + columns - left, np.uint8(1))
    toggled = (toggles & 1).reshape(height, width + 1)[:, :width]
    inside: NDArray[np.bool_] = np.bitwise_xor.accumulate(toggled, axis=1).view(np.bool_)
    return inside


def trace(labels: NDArray[Any]) -> dict[int, list[Polygon]]:
    """Trace the outline of every object along the edges of its pixels: by id, a polygon for each piece.

    A polygon is an outer ring, clockwise on the screen, then its holes, the other way. Rings hold corners only, the first
    not again at the end, and do not touch themselves. Pixels of a piece touch by their sides.
    """
    pieces = measure.label(labels, background=0, connectivity=1)  # type: ignore[no-untyped-call]
    polygons: dict[int, tuple[int, Polygon]] = {}
    for ring, (row, column) in _rings(labels):
        piece = int(pieces[row, column])
        owner, rings = polygons.setdefault(piece, (int(labels[row, column]), []))
        rings.insert(0 if _is_outer(ring) else len(rings), ring)
    outlines: dict[int, list[Polygon]] = {
        object_id: [] for object_id in sorted({o for o, _ in polygons.values()})
    }
    for _, (owner, rings) in sorted(polygons.items()):
        outlines[owner].append(rings)
    return outlines


def _rings(labels: NDArray[Any]) -> Iterator[tuple[Ring, tuple[int, int]]]:
    """Return every ring, with the row and column of a pixel of its object beside it."""
    padded = np.pad(labels, 1)
    rows, columns, directions = _edges(padded)
    following = _following(padded, rows, columns, directions)
    width = padded.shape[1] + 1
    nodes = (rows * width + columns).tolist()
    links = following.tolist()
    beside = (np.stack([rows, columns], axis=1) + _RIGHT[directions] - 1).tolist()
    passed = bytearray(len(links))
    for start in range(len(links)):
        path, edge = [], start
        while not passed[edge]:
            passed[edge] = 1
            path.append(edge)
            edge = links[edge]
        for loop in _without_touching(path, nodes) if path else ():
            y, x = np.divmod(np.array([nodes[edge] for edge in loop]), width)
            yield _corners(np.stack([x, y], axis=1) - 1), tuple(beside[loop[0]])


def _edges(padded: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """List the edges around all objects: row and column of the start, and the direction; the object is on the right."""
    found = []
    # The side of a pixel an edge lies on: above it, right of it, below it, left of it.
    for direction, (step, start) in enumerate(zip(((-1, 0), (0, 1), (1, 0), (0, -1)), -_RIGHT, strict=True)):
        neighbours = np.roll(padded, (-step[0], -step[1]), axis=(0, 1))
        rows, columns = np.nonzero((padded != 0) & (padded != neighbours))
        found.append((rows + start[0], columns + start[1], np.full(len(rows), direction)))
    rows, columns, directions = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return rows, columns, directions


def _following(
    padded: NDArray[Any], rows: NDArray[np.intp], columns: NDArray[np.intp], directions: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Find the edge that follows each edge: to the right where possible, as pixels that touch by corners are apart."""

    def pixels(offsets: NDArray[np.int64], at: NDArray[np.intp]) -> NDArray[Any]:
        values: NDArray[Any] = padded[at[:, 0] + offsets[directions, 0], at[:, 1] + offsets[directions, 1]]
        return values

    starts = np.stack([rows, columns], axis=1)
    ends = starts + _STEPS[directions]
    own = pixels(_RIGHT, starts)
    turns = np.where(pixels(_AHEAD_RIGHT, ends) != own, 1, np.where(pixels(_AHEAD_LEFT, ends) != own, 0, -1))
    width = padded.shape[1] + 1
    keys = (rows * width + columns) * 4 + directions
    order = np.argsort(keys)
    wanted = (ends[:, 0] * width + ends[:, 1]) * 4 + (directions + turns) % 4
    following: NDArray[np.intp] = order[np.searchsorted(keys, wanted, sorter=order)]
    return following


def _without_touching(path: list[int], nodes: Sequence[int]) -> list[list[int]]:
    """Part a closed path of edges where it comes to a point again."""
    if len({nodes[edge] for edge in path}) == len(path):
        return [path]
    loops, way, place = [], list[int](), dict[int, int]()
    for edge in path:
        node = nodes[edge]
        if node in place:
            loops.append(way[place[node] :])
            for left in loops[-1]:
                del place[nodes[left]]
            del way[len(way) - len(loops[-1]) :]
        place[node] = len(way)
        way.append(edge)
    return [*loops, way]


def _corners(points: NDArray[np.intp]) -> Ring:
    """Leave out points on straight lines."""
    steps = points - np.roll(points, 1, axis=0)
    corners: Ring = points[(steps != np.roll(steps, -1, axis=0)).any(axis=1)]
    return corners


def _is_outer(ring: Ring) -> bool:
    x, y = ring.T
    return bool(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) > 0)
