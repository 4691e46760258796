"""Hills of a landscape over the foreground, and the passes between them.

A landscape is high in the middle of objects and low where they touch. Watershed gives each hill a basin. A hill that rises
less than a depth above the pass to a higher one is no object of its own: this is the merging of h-maxima by their dynamics
(M. Grimaud, 1992), read off a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from skimage.morphology import local_maxima
from skimage.segmentation import watershed

from segkit._common import IntArray
from segkit.images.numbering import by_first_pixel

LabelArray = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Hills:
    """Hills of a landscape, and how far each rises above the pass to a higher one."""

    basins: LabelArray
    depths: NDArray[np.float64]  # infinite for the highest hill of a connected part
    parents: IntArray  # the hill behind that pass, or the hill itself

    def merge(self, depth: float) -> LabelArray:
        """Merge hills that rise less than a depth into their neighbours; (H, W) int32, numbered in reading order."""
        roots = np.where(self.depths < depth, self.parents, np.arange(self.parents.size))
        # each step crosses a pass to hills that are joined already, so that it ends
        while (roots != roots[roots]).any():
            roots = roots[roots]
        return give_numbers(np.append(0, roots + 1)[self.basins])


def find_hills(landscape: ArrayLike, mask: ArrayLike) -> Hills:
    """Find the hills of a landscape and the passes between them."""
    # the rest lies below everything, the frame too, so that each part of the foreground has a maximum of its own
    mask = np.pad(np.asarray(mask, dtype=bool), 1)
    land = np.pad(np.asarray(landscape, dtype=np.float32), 1)
    land = np.where(mask, land, land.min() - 1)
    basins = _flood(land, mask)
    tops = np.full(basins.max(initial=0), -np.inf)
    np.maximum.at(tops, basins[mask] - 1, land[mask])
    depths, parents = _climb(tops, *_passes(basins, land))
    return Hills(basins[1:-1, 1:-1], depths, parents)


def _flood(land: NDArray[np.float32], mask: NDArray[np.bool_]) -> LabelArray:
    """Return the basins of all maxima, numbered in reading order; those of a connected part depend on that part alone.

    Of maxima of one height, which the watershed takes in an order of its own, the first in reading order goes first.
    """
    tops = local_maxima(land, connectivity=1) & mask  # type: ignore[no-untyped-call]
    n_tops = np.count_nonzero(tops)
    order = np.zeros(land.shape)
    # depths below the highest pixel, so far apart that all pixels of maxima fit in between
    order[mask] = np.unique(-land[mask], return_inverse=True)[1] * float(n_tops + 1)
    order[tops] += np.arange(n_tops) - n_tops
    markers = ndimage.label(tops)[0]
    return np.asarray(watershed(order, markers, mask=mask, connectivity=1), dtype=np.int32)  # type: ignore[no-untyped-call]


def join_hills(parts: Sequence[Hills], shape: tuple[int, ...]) -> Hills:
    """Put hills of masks that share no pixel side by side; there may be none."""
    basins, starts = np.zeros(shape, dtype=np.int32), np.cumsum([0, *(hills.depths.size for hills in parts)])
    for hills, start in zip(parts, starts, strict=False):
        np.add(hills.basins, start, out=basins, where=hills.basins > 0, casting="same_kind")
    depths = np.concatenate([np.empty(0), *(hills.depths for hills in parts)])
    parents = [hills.parents + start for hills, start in zip(parts, starts, strict=False)]
    return Hills(basins, depths, np.concatenate([np.empty(0, dtype=np.intp), *parents]))


def give_numbers(labels: NDArray[np.integer]) -> LabelArray:
    """Assign the numbers 1 to n to objects by their first pixel in reading order; 0 stays 0."""
    return np.asarray(by_first_pixel(labels)[1] + 1, dtype=np.int32).reshape(labels.shape)


def _passes(basins: LabelArray, land: NDArray[np.float32]) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
    """Return each pair of touching basins (indices) and the height of its highest pass, the highest first."""
    ends, heights = [], []
    for one, other in (((slice(1, None),), (slice(-1),)), ((..., slice(1, None)), (..., slice(-1)))):
        near, far = basins[one], basins[other]
        apart = (near != far) & (near > 0) & (far > 0)
        ends.append(np.stack([near[apart], far[apart]], axis=1) - 1)
        heights.append(np.minimum(land[one], land[other])[apart])
    pairs, height = np.sort(np.concatenate(ends), axis=1), np.concatenate(heights).astype(np.float64)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -height))
    first, second = pairs[order].T.astype(np.intp)
    # of several passes between two basins only the first joins anything
    kept = np.sort(np.unique(first * basins.size + second, return_index=True)[1])
    return first[kept], second[kept], height[order][kept]


def _climb(
    tops: NDArray[np.float64],
    first: IntArray,
    second: IntArray,
    height: NDArray[np.float64],
) -> tuple[NDArray[np.float64], IntArray]:
    """Return the depth and the parent of each hill, joining hills from the highest pass down."""
    depths, parents = np.full(tops.size, np.inf), np.arange(tops.size)
    highest = list(range(tops.size))

    def highest_of(hill: int) -> int:
        while highest[hill] != hill:
            highest[hill] = highest[highest[hill]]
            hill = highest[hill]
        return hill

    for one, other, at in zip(first.tolist(), second.tolist(), height.tolist(), strict=True):
        high, low, behind = highest_of(one), highest_of(other), one
        if high == low:
            continue
        if tops[low] > tops[high]:
            high, low, behind = low, high, other
        # not the highest hill itself: at some depths it is another object than the hill behind the pass
        depths[low], parents[low], highest[low] = tops[low] - at, behind, high
    return depths, parents
