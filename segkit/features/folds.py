"""Parts of the annotated images that networks are trained without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segkit.errors import InputError
from segkit.images.labels import UNLABELLED
from segkit.images.sampling import block_folds, deal_images

IdArray = NDArray[np.uint8]
# Pixels around a held-out block that are not trained on, as a share of the shorter side of its image.
GUARD = 1 / 32
# Classes without which nothing can be told apart.
_FEWEST = 2


def held_out_pixels(ids: Sequence[IdArray], n_folds: int) -> list[list[NDArray[np.bool_]]]:
    """Tell, for each network and image, which pixels are held out: images, or parts of each.

    Parts of a single image are held out, and of several where a network would lack a class without an image. Networks that
    see one half only are few, and know little: a third one sees all.
    """
    n_classes = count_classes(ids)
    folds = _whole_images(ids, n_classes, n_folds) if len(ids) > 1 else []
    n_learnt = _n_learnt(ids, folds)
    if n_learnt < n_classes:
        halves = list(zip(*map(_halve, ids), strict=True))
        if (n_by_halves := _n_learnt(ids, halves)) > n_learnt:
            folds, n_learnt = [*map(list, halves)], n_by_halves
    if n_learnt < _FEWEST:
        raise InputError(
            "networks are trained on parts of the annotated images, and the labels of a class lie in one part only: label "
            "each class in two images or more, or in two places of an image, or leave the tuned bank out"
        )
    return folds if len(folds) > 2 else [*folds, [np.zeros(mask.shape, dtype=bool) for mask in ids]]


def _whole_images(ids: Sequence[IdArray], n_classes: int, n_folds: int) -> list[list[NDArray[np.bool_]]]:
    """Hold whole images out, so that each class is in as many folds as can be."""
    holds = np.array([np.isin(np.arange(n_classes), mask) for mask in ids])
    fold = deal_images(holds, min(n_folds, len(ids)))
    return [
        [np.full(mask.shape, own == k) for mask, own in zip(ids, fold, strict=True)] for k in np.unique(fold)
    ]


def _halve(mask: IdArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Halve an image so that all classes are learnt without either half if they can be: by blocks, or through a class."""
    row, col = (np.asarray(place) for place in np.indices(mask.shape))
    block = block_folds(row, col, mask.shape)
    halves = [np.isin(block, (0, other)) for other in (1, 2, 3)]
    held, counts = np.unique(mask[mask != UNLABELLED], return_counts=True)
    rarest = held[np.argsort(counts)][:1]
    halves += [place > np.median(place[np.isin(mask, rarest)]) for place in (row, col) if held.size]
    best = max(halves, key=lambda half: _n_learnt([mask], [[half], [~half]]))
    return best, ~best


def _n_learnt(ids: Sequence[IdArray], folds: Sequence[Sequence[NDArray[np.bool_]]]) -> int:
    """Count the classes that each network learns at least; 0 without a network."""
    learnt = (
        {
            value
            for mask, out in zip(ids, masks, strict=True)
            for value in np.unique(mask[~guarded(out) & (mask != UNLABELLED)]).tolist()
        }
        for masks in folds
    )
    return min(map(len, learnt), default=0)


def count_classes(ids: Sequence[IdArray]) -> int:
    """Count the classes, two or more, whose ids go from 0."""
    for index, mask in enumerate(ids):
        if (mask == UNLABELLED).all():
            raise InputError(f"mask {index} has no labelled pixel: annotate some, or leave that image out")
    n_classes = 1 + max(int(mask[mask != UNLABELLED].max()) for mask in ids)
    if n_classes < 2:
        raise InputError("the masks hold one class only: annotate a second one, such as the background")
    return n_classes


def guarded(held_out: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Widen held-out blocks, whose neighbours are too alike to be trained on."""
    if held_out.all() or not held_out.any():
        return held_out
    width = max(1, round(GUARD * min(held_out.shape)))
    return np.asarray(ndimage.maximum_filter(held_out, 2 * width + 1))


def cells_of(mask: NDArray[np.bool_], shape: tuple[int, ...], stride: float) -> NDArray[np.bool_]:
    """Read a mask of pixels at the centres of cells."""
    rows, cols = (
        np.minimum((np.arange(n) * stride + stride / 2).astype(np.intp), side - 1)
        for n, side in zip(shape, mask.shape, strict=True)
    )
    return mask[np.ix_(rows, cols)]
