"""Objects of a mask on disk, told apart block by block as if it were in memory.

A connected region is split once, in a window that holds all of it and all that its landscape depends on. A window grows
until it does. So an object that the edge of a block cuts is whole, and none is found twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from skimage.measure import label

from segkit._common import FloatArray
from segkit._common.memory import bytes_left
from segkit.errors import InputError
from segkit.images.labels import UNLABELLED
from segkit.images.pyramids import OnDisk
from segkit.objects.hills import find_hills
from segkit.objects.split import Splitter

Region = tuple[slice, slice]
IntArray = NDArray[np.int64]
# Bytes for each pixel of a window while its regions are split: landscape, distances, basins, the queue of the watershed.
BYTES_OF_SPLITTING = 120
_LONGEST_SIDE = 2048
_SHORTEST_SIDE = 64
# Pixels that a window grows by at first; then twice as many each time.
_LEAST_GROWTH = 32


Make = Callable[[str, Any], OnDisk]


@dataclass(frozen=True)
class Window:
    """A part of an image; it is cut at a side that is not the image's own."""

    rows: slice
    cols: slice
    shape: tuple[int, ...]

    @property
    def region(self) -> Region:
        """Rows and columns."""
        return self.rows, self.cols

    @property
    def cut(self) -> tuple[bool, bool, bool, bool]:
        """Whether it is cut above, below, left and right."""
        (height, width), rows, cols = self.shape, self.rows, self.cols
        return rows.start > 0, rows.stop < height, cols.start > 0, cols.stop < width

    def inside(self, region: Region) -> Region:
        """Count rows and columns of a region of the image from those of the window."""
        rows, cols = (
            slice(side.start - own.start, side.stop - own.start)
            for side, own in zip(region, self.region, strict=True)
        )
        return rows, cols

    def grown(self, above: int, below: int, left: int, right: int) -> Window:
        """Grow by so many pixels on each side, as far as the image goes."""
        rows = slice(max(0, self.rows.start - above), min(self.shape[0], self.rows.stop + below))
        cols = slice(max(0, self.cols.start - left), min(self.shape[1], self.cols.stop + right))
        return Window(rows, cols, self.shape)

    def edges(self, width: int) -> list[tuple[bool, Region]]:
        """List the strips along its four sides, and whether it is cut there."""
        height, length = self.rows.stop - self.rows.start, self.cols.stop - self.cols.start
        everything = slice(None)
        strips = (
            (slice(0, width), everything),
            (slice(max(0, height - width), height), everything),
            (everything, slice(0, width)),
            (everything, slice(max(0, length - width), length)),
        )
        return list(zip(self.cut, strips, strict=True))

    def depth(self) -> FloatArray:
        """Compute the distance of each pixel to the nearest one that a cut leaves out; infinite without a cut."""
        height, width = (side.stop - side.start for side in self.region)
        above, below, left, right = self.cut
        down, across = np.arange(1, height + 1.0), np.arange(1, width + 1.0)
        rows = np.minimum(down if above else np.inf, down[::-1] if below else np.inf)
        cols = np.minimum(across if left else np.inf, across[::-1] if right else np.inf)
        rows, cols = np.broadcast_to(rows, height), np.broadcast_to(cols, width)
        return np.asarray(np.minimum.outer(rows, cols), dtype=np.float32)


def split_by_block(
    splitter: Splitter,
    ids: OnDisk,
    make: Make,
    learnt: OnDisk | None = None,
    probability: OnDisk | None = None,
    *,
    side: int | None = None,
) -> tuple[OnDisk, int]:
    """Split a mask on disk into objects, as `Splitter.split` does one in memory.

    Parameters
    ----------
    splitter : Splitter
        Settings.
    ids : array on disk, (H, W), uint8
        Class ids, 0 for the background, 255 for pixels without a class.
    make : callable
        ``make(name, dtype)`` makes another array of zeros of that size on disk.
    learnt : array on disk, (H, W), float32, optional
        The landscape that is learnt, where the splitter needs one.
    probability : array on disk, (H, W), float32, optional
        Probability of the foreground, where doubtful objects are left out.
    side : int, optional
        Side of a block in pixels, in place of what memory allows.

    Returns
    -------
    (array on disk, int)
        Objects from 1 in reading order, of 16 bits, or of 32 beyond 65,535, and their number.

    Raises
    ------
    InputError
        If a connected region does not fit into memory, or a probability is missing.
    """
    if splitter.least_probability and probability is None:
        raise InputError(f"least_probability={splitter.least_probability:g}: give probability=, (H, W)")
    side = side or side_of_blocks(BYTES_OF_SPLITTING)
    filled = make("filled", np.uint8)
    for block in blocks_of(ids.shape, side):
        filled[block.region] = _filled(splitter, ids, block)
    found = make("objects", np.int32)
    if splitter.landscape == "none":
        same = _connect(filled, found, side)
    else:
        n_found = 0
        for block in blocks_of(ids.shape, side):
            n_found = _split_in(splitter, filled, learnt, found, block, n_found)
        same = np.arange(n_found + 1)
    return _number(splitter, found, same, make, side, probability)


def side_of_blocks(bytes_of_pixel: int) -> int:
    """Choose the side of blocks of which four fit into the memory that is left."""
    affordable = math.isqrt(max(1, bytes_left() // (4 * bytes_of_pixel)))
    return int(np.clip(affordable, _SHORTEST_SIDE, _LONGEST_SIDE))


def blocks_of(shape: tuple[int, ...], side: int) -> Iterator[Window]:
    """Cut an image into blocks, row by row."""
    starts = (range(0, length, side) for length in shape)
    for row, col in product(*starts):
        yield Window(slice(row, min(row + side, shape[0])), slice(col, min(col + side, shape[1])), shape)


def _filled(splitter: Splitter, ids: OnDisk, block: Window) -> NDArray[Any]:
    """Fill the holes in a block, in a window that holds those that may be small enough."""
    largest = splitter.largest_hole
    by, window = math.isqrt(int(largest)) + 1, block
    while True:
        window = _grown(window, (True,) * 4, by)
        part = ids[window.region]
        inner = window.inside(block.region)
        if not largest or not any(
            _reaches_out(part != class_id, largest, window, inner) for class_id in _classes(part)
        ):
            return splitter.fill(part)[inner]
        by *= 2


def _reaches_out(ground: NDArray[np.bool_], largest: float, window: Window, inner: Region) -> bool:
    """Return whether a piece of the ground of a block goes on beyond its window, and may yet be a small hole."""
    pieces = ndimage.label(ground)[0]
    small = np.bincount(pieces.ravel()) <= largest
    small[0] = False
    at_edge = np.zeros_like(small)
    for is_cut, strip in window.edges(1):
        if is_cut:
            at_edge[pieces[strip]] = True
    return bool((small & at_edge)[pieces[inner]].any())


def _split_in(
    splitter: Splitter, filled: OnDisk, learnt: OnDisk | None, found: OnDisk, block: Window, n_found: int
) -> int:
    """Split all regions that reach into a block, and are not split yet; return the number of objects so far."""
    margin = splitter.reach + 1
    by, window = max(margin, _LEAST_GROWTH), block.grown(*[margin] * 4)
    while True:
        part, taken = filled[window.region], found[window.region] > 0
        inner = window.inside(block.region)
        own = {class_id: _connected_to(part == class_id, ~taken, inner) for class_id in _classes(part[inner])}
        own = {class_id: region for class_id, region in own.items() if region.any()}
        if not own:
            return n_found
        whole = np.logical_or.reduce(list(own.values()))
        if any(over := tuple(is_cut and bool(whole[strip].any()) for is_cut, strip in window.edges(margin))):
            window, by = _grown(window, over, by), 2 * by
            continue
        given = np.zeros(part.shape, dtype=np.float32) if learnt is None else learnt[window.region]
        if splitter.needs_distance and not all(
            _has_distance(part == class_id, region, splitter.reach, window)
            for class_id, region in own.items()
        ):
            window, by = _grown(window, window.cut, by), 2 * by
            continue
        labels = found[window.region]
        for class_id, region in own.items():
            land = splitter.landscape_over(part == class_id, given)
            numbers = find_hills(land, region).merge(splitter.depth)
            labels[region] = numbers[region] + n_found
            n_found += int(numbers.max())
        found[window.region] = labels
        return n_found


def _connected_to(mask: NDArray[np.bool_], is_free: NDArray[np.bool_], inner: Region) -> NDArray[np.bool_]:
    """Mark the pieces of a mask that have a free pixel in the inner part."""
    pieces = ndimage.label(mask)[0]
    wanted = np.zeros(pieces.max() + 1, dtype=bool)
    wanted[pieces[inner][is_free[inner]]] = True
    wanted[0] = False
    return np.asarray(wanted[pieces])


def _has_distance(mask: NDArray[np.bool_], region: NDArray[np.bool_], reach: int, window: Window) -> bool:
    """Return whether the distances from the edge that the landscape of a region depends on are known in its window."""
    if mask.all():
        return not any(window.cut)
    unknown = ndimage.distance_transform_edt(mask) > window.depth()
    if reach and unknown.any():
        unknown = ndimage.maximum_filter(unknown, 2 * reach + 1)
    return not (unknown & region).any()


def _grown(window: Window, sides: tuple[bool, ...], by: int) -> Window:
    """Grow a window by so many pixels on some sides, if memory allows."""
    larger = window.grown(*(by if is_wanted else 0 for is_wanted in sides))
    height, width = (side.stop - side.start for side in larger.region)
    if height * width * BYTES_OF_SPLITTING > bytes_left():
        raise InputError(
            f"a group of objects that touch is larger than {height} x {width} pixels, and does not fit into memory: raise "
            "--memory-limit (Python: segkit.memory_limit), or take a coarser level (data.level)"
        )
    return larger


def _classes(ids: NDArray[Any]) -> list[int]:
    """List the classes of objects in a part of a mask."""
    return [int(one) for one in np.unique(ids) if one not in (0, UNLABELLED)]


def _connect(ids: OnDisk, found: OnDisk, side: int) -> IntArray:
    """Label the connected pieces of each block, and return the object that each belongs to."""
    n_found, pairs = 0, [np.zeros((2, 0), dtype=np.int64)]
    for block in blocks_of(ids.shape, side):
        # with the last row above and the last column to the left
        window = block.grown(1, 0, 1, 0)
        part, labels = ids[window.region], found[window.region]
        part[part == UNLABELLED] = 0
        inner = window.inside(block.region)
        pieces = label(part[inner], background=0, connectivity=1)  # type: ignore[no-untyped-call]
        labels[inner] = np.where(pieces > 0, pieces + n_found, 0)
        n_found += int(pieces.max(initial=0))
        found[block.region] = labels[inner]
        for one, other in (((slice(1, None),), (slice(-1),)), ((..., slice(1, None)), (..., slice(-1)))):
            touch = (part[one] == part[other]) & (labels[one] > 0) & (labels[one] != labels[other])
            touch &= labels[other] > 0
            pairs.append(np.stack([labels[one][touch], labels[other][touch]]).astype(np.int64))
    one, other = np.unique(np.concatenate(pairs, axis=1), axis=1)
    graph = coo_matrix((np.ones(one.size, dtype=bool), (one, other)), shape=(n_found + 1,) * 2)
    # pixel value 0 stays a component of its own
    same: IntArray = connected_components(graph, directed=False)[1].astype(np.int64)
    return same


def _number(
    splitter: Splitter,
    found: OnDisk,
    same: IntArray,
    make: Make,
    side: int,
    probability: OnDisk | None,
) -> tuple[OnDisk, int]:
    """Join what is the same, leave out small or doubtful objects, and number the others in reading order."""
    areas, first = np.zeros(same.size, dtype=np.int64), np.full(same.size, np.iinfo(np.int64).max)
    is_cut = np.zeros(same.size, dtype=bool)
    totals = np.zeros(same.size) if splitter.least_probability else None
    for block in blocks_of(found.shape, side):
        part = found[block.region]
        pieces, at, inverse, counts = np.unique(
            part, return_index=True, return_inverse=True, return_counts=True
        )
        if totals is not None and probability is not None:
            np.add.at(totals, same[pieces], np.bincount(inverse.ravel(), probability[block.region].ravel()))
        rows, cols = np.divmod(at, part.shape[1])
        place = (rows + block.rows.start) * found.shape[1] + cols + block.cols.start
        np.minimum.at(first, same[pieces], place)
        np.add.at(areas, same[pieces], counts)
        for goes_on, strip in block.edges(1):
            if not goes_on:
                is_cut[same[part[strip]]] = True
    kept = splitter.keeps(areas, is_cut, totals) & (areas > 0)
    kept[same[0]] = False
    order = np.flatnonzero(kept)[np.argsort(first[kept])]
    numbers = np.zeros(same.size, dtype=np.int32)
    numbers[order] = np.arange(1, order.size + 1)
    labels = make("labels", np.uint16 if order.size <= np.iinfo(np.uint16).max else np.uint32)
    for block in blocks_of(found.shape, side):
        labels[block.region] = numbers[same[found[block.region]]]
    return labels, order.size
