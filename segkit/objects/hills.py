"""Hills of a landscape over the foreground, and the passes between them.

A landscape is high in the middle of objects and low where they touch. Watershed gives each hill a basin. A hill that rises
less than a depth above the pass to a higher one is no object of its own. One watershed serves every depth: this is
the merging of h-maxima by their dynamics (M. Grimaud, 1992), read off a tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.segmentation import watershed

LabelArray = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Hills:
    """Hills of a landscape, and how far each rises above the pass to a higher one.

    Parameters
    ----------
    basins : ndarray of shape (H, W), int32
        Basin of each pixel, 1 to n; 0 outside the foreground.
    depths : ndarray of shape (n,), float64
        Rise of each hill above the pass to a higher one; infinite for the highest of a connected part.
    parents : ndarray of shape (n,), int
        Index of a higher hill behind that pass; its own index for the highest.
    """

    basins: LabelArray
    depths: NDArray[np.float64]
    parents: NDArray[np.intp]

    def merge(self, depth: float) -> LabelArray:
        """Merge each hill that rises less than a depth with a higher one; (H, W) int32, numbered in reading order."""
        roots = np.where(self.depths < depth, self.parents, np.arange(self.parents.size))
        # each step leads higher, so that it ends
        while (roots != roots[roots]).any():
            roots = roots[roots]
        return give_numbers(np.append(0, roots + 1)[self.basins])


def find_hills(landscape: ArrayLike, mask: ArrayLike) -> Hills:
    """Find the hills of a landscape and the passes between them.

    Parameters
    ----------
    landscape : array-like of shape (H, W), float
        High in the middle of objects.
    mask : array-like of shape (H, W), bool
        Foreground.

    Returns
    -------
    Hills
        One for each local maximum. Pixels are connected by their sides.
    """
    mask = np.asarray(mask, dtype=bool)
    land = np.asarray(landscape, dtype=np.float32)
    # the rest lies below everything, so that each part of the foreground has a maximum of its own
    land = np.where(mask, land, land.min(initial=0) - 1)
    basins = watershed(-land, mask=mask, connectivity=1).astype(np.int32)  # type: ignore[no-untyped-call]
    tops = np.full(basins.max(initial=0), -np.inf)
    np.maximum.at(tops, basins[mask] - 1, land[mask])
    return Hills(basins, *_climb(tops, *_passes(basins, land)))


def give_numbers(labels: NDArray[np.integer]) -> LabelArray:
    """Give objects the numbers 1 to n by their first pixel in reading order; 0 stays 0."""
    found, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(np.where(found == 0, -1, first))
    places = np.empty(found.size, dtype=np.int32)
    places[order] = np.arange(found.size) + (0 if (found == 0).any() else 1)
    return places[inverse].reshape(labels.shape)


def _passes(
    basins: LabelArray, land: NDArray[np.float32]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Give pairs of touching basins (indices) and the height of the pass between them, the highest pass first."""
    ends, heights = [], []
    for one, other in (((slice(1, None),), (slice(-1),)), ((..., slice(1, None)), (..., slice(-1)))):
        near, far = basins[one], basins[other]
        apart = (near != far) & (near > 0) & (far > 0)
        ends.append(np.stack([near[apart], far[apart]], axis=1) - 1)
        heights.append(np.minimum(land[one], land[other])[apart])
    pairs, height = np.sort(np.concatenate(ends), axis=1), np.concatenate(heights).astype(np.float64)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -height))
    first, second = pairs[order].T.astype(np.intp)
    return first, second, height[order]


def _climb(
    tops: NDArray[np.float64],
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    height: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Give the depth and the parent of each hill, joining hills from the highest pass down."""
    depths, parents = np.full(tops.size, np.inf), np.arange(tops.size)
    highest = list(range(tops.size))

    def highest_of(hill: int) -> int:
        while highest[hill] != hill:
            highest[hill] = highest[highest[hill]]
            hill = highest[hill]
        return hill

    for one, other, at in zip(first.tolist(), second.tolist(), height.tolist(), strict=True):
        high, low = highest_of(one), highest_of(other)
        if high == low:
            continue
        if tops[low] > tops[high]:
            high, low = low, high
        depths[low], parents[low], highest[low] = tops[low] - at, high, high
    return depths, parents
