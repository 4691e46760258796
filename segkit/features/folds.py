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


def held_out_pixels(ids: Sequence[IdArray], n_folds: int) -> list[list[NDArray[np.bool_]]]:
    """Tell, for each network and image, which pixels are held out: images, or blocks of a single one.

    Networks that see one half only are few, and know little: a third one sees all.
    """
    nothing = [np.zeros(mask.shape, dtype=bool) for mask in ids]
    if len(ids) == 1:
        return [*([half] for half in _halve(ids[0])), nothing]
    holds = np.array([np.isin(np.arange(count_classes(ids)), mask) for mask in ids])
    fold = deal_images(holds, min(n_folds, len(ids)))
    folds = [
        [np.full(mask.shape, own == k) for mask, own in zip(ids, fold, strict=True)] for k in np.unique(fold)
    ]
    return folds if len(folds) > 2 else [*folds, nothing]


def _halve(mask: IdArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Halve an image by blocks, so that all classes are learnt without either half if they can be."""
    row, col = np.indices(mask.shape)
    block = block_folds(np.asarray(row), np.asarray(col), mask.shape)
    halves = [np.isin(block, (0, other)) for other in (1, 2, 3)]

    def n_learnt(half: NDArray[np.bool_]) -> int:
        learnt = [np.unique(mask[~guarded(out) & (mask != UNLABELLED)]) for out in (half, ~half)]
        return min(map(len, learnt))

    best = max(halves, key=n_learnt)
    if n_learnt(best) == 0:
        raise InputError(
            "the labels of the only image lie too close together for networks that are trained on parts of it: annotate "
            "more of it, or leave the tuned bank out"
        )
    return best, ~best


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
