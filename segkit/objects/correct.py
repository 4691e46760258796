"""Objects corrected by hand: what was checked wins over what was found, and an object is cut along a line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.draw import line as draw_line
from skimage.measure import label
from skimage.segmentation import watershed

from segkit.objects.hills import LabelArray, give_numbers

# Share of an object that checked ones must cover to take its place as a whole.
_COVERED = 0.5


def with_checked(
    found: LabelArray,
    checked: LabelArray,
    is_background: NDArray[np.bool_],
    *,
    is_foreground: NDArray[np.bool_] | None = None,
    least_area: float = 0,
) -> tuple[LabelArray, tuple[int, ...]]:
    """Put checked objects in the place of those that were found there, take background out, and add foreground.

    Of an object that is checked in part, the rest stays if it is the larger part. Where an object lies in pieces, each is an
    object; what is left of one that was found may be too small for it. Foreground without an object belongs to the object
    that it touches, if that is not checked, else it is one of its own if it is large enough.

    Parameters
    ----------
    found, checked : ndarray of shape (H, W), int
        Numbers of objects, 0 elsewhere.
    is_background : ndarray of shape (H, W), bool
        Pixels that are known to be of no object.
    is_foreground : ndarray of shape (H, W), bool, optional
        Pixels that are known to be of an object.
    least_area : float, default=0
        Smaller pieces are left out, in pixels.

    Returns
    -------
    (ndarray of shape (H, W), int32, tuple of int)
        Objects, numbered in reading order, and the numbers of those that were checked.
    """
    lost = (found > 0) & ((checked > 0) | is_background)
    areas = np.bincount(found.ravel())
    n_checked = np.bincount(found[checked > 0], minlength=areas.size)
    is_gone = n_checked >= _COVERED * areas
    is_gone[0] = False
    is_cut = np.zeros(areas.size, dtype=bool)
    is_cut[found[lost]] = True
    kept = np.where(lost | is_gone[found], 0, found)
    pieces = np.asarray(label(np.where(is_cut[kept], kept, 0), connectivity=1))  # type: ignore[no-untyped-call]
    large = np.bincount(pieces.ravel()) >= max(least_area, 1)
    pieces = np.where(large[pieces], pieces, 0)
    whole = np.where(is_cut[kept], 0, kept)
    own = np.asarray(label(checked, connectivity=1))  # type: ignore[no-untyped-call]
    n_whole, n_pieces = int(whole.max(initial=0)), int(pieces.max(initial=0))
    joined = np.where(pieces > 0, pieces + n_whole, whole)
    joined = np.where(own > 0, own + n_whole + n_pieces, joined)
    if is_foreground is not None:
        joined = _with_foreground(joined, is_foreground & (own == 0), own > 0, least_area)
    numbers = give_numbers(joined)
    return numbers, tuple(np.unique(numbers[checked > 0]).tolist())


def _with_foreground(
    objects: LabelArray, is_foreground: NDArray[np.bool_], is_checked: NDArray[np.bool_], least_area: float
) -> LabelArray:
    """Give foreground that is of no object to the unchecked one that it touches, or make it one if it is large."""
    lacking = is_foreground & (objects == 0)
    if not lacking.any():
        return objects
    grown = np.where(is_checked, 0, objects)
    pieces, n_pieces = ndimage.label(lacking, structure=np.ones((3, 3)))
    touches = np.zeros(n_pieces + 1, dtype=bool)
    touches[np.unique(pieces[ndimage.binary_dilation(grown > 0)])] = True
    is_new = ~touches & (np.bincount(pieces.ravel()) >= max(least_area, 1))
    is_new[0] = False
    markers = np.where(is_new[pieces], pieces + int(objects.max(initial=0)), grown)
    mask = (markers > 0) | (lacking & touches[pieces])
    filled = watershed(np.zeros(objects.shape), markers, mask=mask)  # type: ignore[no-untyped-call]
    return np.asarray(np.where(is_checked, objects, filled), dtype=np.int32)


def pixels_of_line(line: Sequence[tuple[float, float]], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Mark the pixels of an image (H, W) on a line of points (row, column), so that those beside it touch by no side."""
    on_line = np.zeros(shape, dtype=bool)
    for one, other in pairwise(line):
        rows, cols = draw_line(*(round(at) for at in (*one, *other)))  # type: ignore[no-untyped-call]
        inside = (rows >= 0) & (rows < shape[0]) & (cols >= 0) & (cols < shape[1])
        on_line[rows[inside], cols[inside]] = True
    return on_line


def cut(mask: NDArray[np.bool_], on_line: NDArray[np.bool_]) -> LabelArray:
    """Cut an object (H, W) in one piece along the pixels of a line; the parts from 1, or only 1 if the line parts nothing.

    The pixels of the line belong to the part that is nearest inside the object.
    """
    parts, n_parts = ndimage.label(mask & ~on_line)
    if n_parts < 2:
        return mask.astype(np.int32)
    return give_numbers(watershed(np.zeros(mask.shape), parts, mask=mask))  # type: ignore[no-untyped-call]
