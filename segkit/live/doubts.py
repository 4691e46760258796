"""Labels that a model contradicts which has not seen them: slips of the pen, or where the classes are hard to tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage.measure import label

from segkit._common import IntArray
from segkit.images import UNLABELLED
from segkit.live.features import Box

# Labels that touch are checked in pieces of squares of this share of the shorter side of an image.
_SIDE = 1 / 6
# Smaller pieces are not checked; of larger ones so many pixels, evenly.
_LEAST, _MOST = 8, 64
# Doubts that are told.
MOST_DOUBTS = 30


class Doubt(NamedTuple):
    """A piece of labels that the other images (blocks, of a single one) contradict.

    Parameters
    ----------
    key : str
        The image.
    box : tuple of int
        First row, first column, last row, last column, the last ones out.
    value : int
        Mask value of the labels.
    predicted : int
        Mask value that a model gives them which has not seen them.
    share : float
        Mean probability that the label is wrong, by that model; above 0.5.
    """

    key: str
    box: Box
    value: int
    predicted: int
    share: float


class Pieces(NamedTuple):
    """Pieces of the labels of an image, and the pixels that they are checked by.

    `piece` is the place of each pixel's piece in `boxes`, `values` and `areas`.
    """

    rows: IntArray
    cols: IntArray
    piece: IntArray
    boxes: list[Box]
    values: NDArray[np.uint8]
    areas: IntArray


def cut_into_pieces(labels: NDArray[np.uint8]) -> Pieces:
    """Cut a label image (H, W) into connected pieces of one class in a square."""
    side = max(_LEAST, int(min(labels.shape) * _SIDE))
    rows, cols = np.indices(labels.shape)
    square = rows // side * (labels.shape[1] // side + 1) + cols // side
    regions = np.where(labels == UNLABELLED, 0, square * (UNLABELLED + 1) + labels + 1)
    numbers = np.asarray(label(regions, connectivity=2))  # type: ignore[no-untyped-call]
    flat = numbers.ravel()
    order = np.argsort(flat, kind="stable")
    ends = np.cumsum(np.bincount(flat))
    pixels = [order[start:end] for start, end in pairwise(ends)]
    pixels = [own for own in pixels if own.size >= _LEAST]
    boxes, chosen = [], []
    for own in pixels:
        at = np.divmod(own, labels.shape[1])
        (top, left), (bottom, right) = (int(side.min()) for side in at), (int(side.max()) + 1 for side in at)
        boxes.append((top, left, bottom, right))
        chosen.append(own[np.linspace(0, own.size - 1, min(_MOST, own.size)).astype(np.intp)])
    at = np.divmod(np.concatenate([*chosen, np.empty(0, dtype=np.intp)]), labels.shape[1])
    return Pieces(
        *at,
        np.repeat(np.arange(len(chosen)), [own.size for own in chosen]),
        boxes,
        labels.ravel()[[own[0] for own in pixels]].astype(np.uint8),
        np.array([own.size for own in pixels], dtype=np.intp),
    )


def rank_doubts(
    pieces: dict[str, Pieces], probabilities: Sequence[NDArray[np.floating[Any]]], values: NDArray[np.uint8]
) -> tuple[Doubt, ...]:
    """Rank pieces by how surely they are wrong, and by the logarithm of their area.

    Among labels of stained nuclei, MoNuSeg and membranes of which some were made wrong, this found most of these first; the
    area itself, its root, and no area were tried too.

    Of each image, `probabilities` (n, n_classes) are those of the classes with these mask values at the pixels of its
    pieces, by models that have not seen them; NaN where there is no such model.
    """
    found = []
    for (key, own), of_image in zip(pieces.items(), probabilities, strict=True):
        sums = np.zeros((len(own.boxes), values.size))
        np.add.at(sums, own.piece, of_image)
        means = sums / np.bincount(own.piece, minlength=len(own.boxes))[:, None]
        for place, mean in enumerate(means):
            is_own = values == own.values[place]
            wrong = float(1 - mean[is_own].sum())
            if wrong > 0.5:  # not where it is NaN
                predicted = int(values[np.where(is_own, -1, mean).argmax()])
                doubt = Doubt(key, own.boxes[place], int(own.values[place]), predicted, wrong)
                found.append((np.log(own.areas[place]) * (wrong - 0.5), doubt))
    return tuple(doubt for _, doubt in sorted(found, key=lambda one: -one[0])[:MOST_DOUBTS])
