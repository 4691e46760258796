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
# Fraction of the pixels of a class in an image from which a half of it shows the class.
_LEAST_SHARE = 0.05


def held_out_pixels(
    ids: Sequence[IdArray], n_folds: int, groups: NDArray[np.intp] | None = None
) -> list[list[NDArray[np.bool_]]]:
    """Tell, for each network and image, which pixels are held out: whole groups of images, or halves of a single holder.

    An image that alone holds a class is halved. Networks that see one half only are few, and know little: a third one sees
    all.
    """
    holds = np.array([np.isin(np.arange(count_classes(ids)), mask) for mask in ids])
    dealt = deal_images(holds, max(2, min(n_folds, len(ids))), groups)
    n_folds = max(2, int(dealt.max()) + 1)
    folds: list[list[NDArray[np.bool_]]] = [
        [np.zeros(mask.shape, dtype=bool) for mask in ids] for _ in range(n_folds)
    ]
    for index, (mask, fold) in enumerate(zip(ids, dealt, strict=True)):
        alone = np.flatnonzero(holds[index] & (holds.sum(axis=0) == 1))
        half = _halve(mask, alone)
        folds[fold][index] = half
        folds[(fold + 1) % n_folds][index] = ~half
    if min(len(_learnt(ids, held_out)) for held_out in folds) < _FEWEST:
        raise InputError(
            "networks are trained on parts of the annotated images, and the labels of a class lie in one part only: label "
            "each class in two images or more, or far apart in an image, or leave the tuned bank out"
        )
    return folds if len(folds) > 2 else [*folds, [np.zeros(mask.shape, dtype=bool) for mask in ids]]


def _halve(mask: IdArray, classes: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Halve an image so that both halves show these classes: by blocks, or through the rarest one; all of it if none do."""
    whole = np.ones(mask.shape, dtype=bool)
    if not classes.size:
        return whole
    row, col = (np.asarray(place) for place in np.indices(mask.shape))
    block = block_folds(row, col, mask.shape)
    halves = [np.isin(block, (0, other)) for other in (1, 2, 3)]
    rarest = mask == min(classes, key=lambda label: np.count_nonzero(mask == label))
    around, near = whole.copy(), 2 * _width(mask.shape)
    for place in (row, col):
        around &= (place >= place[rarest].min() - near) & (place <= place[rarest].max() + near)
    halves += [np.where(around, place > np.median(place[rarest]), halves[0]) for place in (row, col)]

    def n_learnt(half: NDArray[np.bool_]) -> int:
        seen = [
            [np.count_nonzero(~guarded(out) & (mask == label)) for label in classes] for out in (half, ~half)
        ]
        needed = [_LEAST_SHARE * np.count_nonzero(mask == label) for label in classes]
        return int(np.sum(np.min(seen, axis=0) >= needed))

    best = max(halves, key=n_learnt)
    return best if n_learnt(best) else whole


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
    return np.asarray(ndimage.maximum_filter(held_out, 2 * _width(held_out.shape) + 1))


def _width(shape: tuple[int, ...]) -> int:
    """Pixels around a held-out block that are not trained on."""
    return max(1, round(GUARD * min(shape)))


def _learnt(ids: Sequence[IdArray], held_out: Sequence[NDArray[np.bool_]]) -> set[int]:
    """Name the classes that a network sees."""
    seen = [np.unique(mask[~guarded(out)]) for mask, out in zip(ids, held_out, strict=True)]
    return {*np.concatenate(seen).tolist()} - {UNLABELLED}


def cells_of(mask: NDArray[np.bool_], shape: tuple[int, ...], stride: float) -> NDArray[np.bool_]:
    """Read a mask of pixels at the centres of cells."""
    rows, cols = (
        np.minimum((np.arange(n) * stride + stride / 2).astype(np.intp), side - 1)
        for n, side in zip(shape, mask.shape, strict=True)
    )
    return mask[np.ix_(rows, cols)]
