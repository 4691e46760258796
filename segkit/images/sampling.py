"""Which labelled pixels a model learns from, and how they are split into folds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from math import ceil, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import IntArray
from segkit.errors import InputError, count
from segkit.images.labels import UNLABELLED

BLOCKS = 4
# Labelled fraction of an image from which on its labels are taken to show how much of it each class covers.
HALF = 0.5
# Fraction of the pixels of each label that must lie outside of a group for it to be held out.
_LEAST_OUTSIDE = 0.05


@dataclass(frozen=True, eq=False)
class PixelSample:
    """Pixels drawn from a set of images, in order of image; a weight is the number of labelled pixels it stands for."""

    image: IntArray
    row: IntArray
    col: IntArray
    label: IntArray
    weight: NDArray[np.float64]

    def of_image(self, index: int) -> slice:
        """Rows of the sample that lie in one image."""
        return slice(*np.searchsorted(self.image, [index, index + 1]))

    def subset(self, rows: NDArray[Any] | slice) -> PixelSample:
        """Take some of the pixels, by index, by a slice or by a boolean mask."""
        return PixelSample(*(getattr(self, field.name)[rows] for field in fields(self)))


def draw_pixels(
    ids: Sequence[NDArray[Any]], n_classes: int, n_pixels: int, rng: np.random.Generator
) -> PixelSample:
    """Draw pixels, balanced over classes as far as available; weights restore the share of each class."""
    flat = np.concatenate([mask.ravel() for mask in ids])
    starts = np.cumsum([0, *(mask.size for mask in ids)])
    members = [np.flatnonzero(flat == label) for label in range(n_classes)]
    shares = fair_shares([member.size for member in members], n_pixels)
    drawn = [rng.choice(member, share, replace=False) for member, share in zip(members, shares, strict=True)]
    weight = [
        np.full(share, member.size / max(share, 1)) for member, share in zip(members, shares, strict=True)
    ]
    position = np.concatenate(drawn)
    order = np.argsort(position)
    position, weights = position[order], np.concatenate(weight)[order]
    image = np.searchsorted(starts, position, side="right") - 1
    widths = np.array([mask.shape[1] for mask in ids])
    row, col = np.divmod(position - starts[image], widths[image])
    return PixelSample(image, row, col, flat[position].astype(np.intp), weights / weights.mean())


def spread_pixels(ids: Sequence[NDArray[Any]], most: int) -> PixelSample:
    """Take pixels on a regular grid of each image."""
    parts = []
    for index, mask in enumerate(ids):
        step = max(1, ceil(sqrt(mask.size / most)))
        # an image thinner than a step has one row or column, however long it is
        while prod(ceil(length / step) for length in mask.shape) > most:
            step += 1
        at = [np.arange(min(step, length) // 2, length, step) for length in mask.shape]
        row, col = (axis.ravel() for axis in np.meshgrid(*at, indexing="ij"))
        parts.append((np.full(row.size, index), row, col, mask[row, col].astype(np.intp)))
    image, row, col, label = (np.concatenate(values) for values in zip(*parts, strict=True))
    return PixelSample(image, row, col, label, np.ones(label.size))


def sparse_images(ids: Sequence[NDArray[Any]]) -> list[int]:
    """Find the images of which less than half is labelled, by their places."""
    return [place for place, mask in enumerate(ids) if np.mean(mask != UNLABELLED) < HALF]


def fair_shares(available: Sequence[int], total: int) -> list[int]:
    """Equal shares of `total`, none above what is available; what small classes leave is passed on."""
    shares = [0] * len(available)
    left = min(total, sum(available))
    order = sorted(range(len(available)), key=lambda label: available[label])
    for rank, label in enumerate(order):
        shares[label] = min(available[label], left // (len(order) - rank))
        left -= shares[label]
    return shares


def assign_folds(
    sample: PixelSample, shapes: Sequence[tuple[int, int]], n_folds: int, groups: IntArray | None = None
) -> IntArray:
    """Fold of each pixel: whole groups of images, or, of a single image, whole blocks of a 4 x 4 grid."""
    # neighbouring pixels are too alike to be held out one by one
    if len(shapes) == 1:
        return pixel_groups(sample, shapes)
    holds = np.zeros((len(shapes), sample.label.max() + 1), dtype=bool)
    holds[sample.image, sample.label] = True
    return np.asarray(deal_images(holds, n_folds, groups)[sample.image])


def pixel_groups(sample: PixelSample, shapes: Sequence[tuple[int, int]]) -> IntArray:
    """Image of each pixel, or, of a single image, the fold of its block: pixels that are alike."""
    return sample.image if len(shapes) > 1 else block_folds(sample.row, sample.col, shapes[0])


def number_groups(counts: Sequence[Mapping[Any, int]], groups: Iterable[Hashable] | None) -> IntArray:
    """Give each image the number of its group, or one of its own if none are given; `counts` are its pixels of each label.

    Each has one of its own, too, if a group holds nearly all pixels of a label: a model without it would not know the label.
    """
    alone = np.arange(len(counts))
    if groups is None:
        return alone
    numbers = numbers_of(groups, len(counts))
    for label in {label for held in counts for label in held}:
        of_groups = np.bincount(numbers, [held.get(label, 0) for held in counts])
        if of_groups.sum() - of_groups.max() < _LEAST_OUTSIDE * of_groups.sum():
            return alone
    return numbers


def numbers_of(groups: Iterable[Hashable], n_images: int) -> IntArray:
    """Return numbers of groups in the order of their coming; refuse what does not name one for each image."""
    cure = "give a name or a number for each image, such as its patient"
    if isinstance(groups, (str, bytes, Set, Mapping)) or not isinstance(groups, Iterable):
        raise InputError(f"groups of type {type(groups).__name__}, expected a list: {cure}")
    listed = list(groups)
    if len(listed) != n_images:
        raise InputError(f"{count(len(listed), 'group')} for {count(n_images, 'image')}: {cure}")
    for place, group in enumerate(listed):
        if not isinstance(group, Hashable) or group is None or group != group:
            raise InputError(f"group {group!r} of image {place}: {cure}")
    number = {group: place for place, group in enumerate(dict.fromkeys(listed))}
    return np.array([number[group] for group in listed], dtype=np.intp)


def deal_images(holds: NDArray[np.bool_], n_folds: int, groups: IntArray | None = None) -> IntArray:
    """Fold of each image, of which `holds` (n_images, n_classes) tells the classes in it; -1 for images without any.

    Class by class, the rarest first, the fold that has fewest images of it, then fewest at all. Images of a group are
    dealt as one.
    """
    if groups is not None:
        of_groups = np.zeros((groups.max() + 1, holds.shape[1]), dtype=bool)
        np.logical_or.at(of_groups, groups, holds)
        return deal_images(of_groups, n_folds)[groups]
    dealt = np.zeros((n_folds, holds.shape[1]), dtype=np.intp)
    fold = np.full(len(holds), -1)
    for label in np.argsort(holds.sum(axis=0), kind="stable"):
        for image in np.flatnonzero(holds[:, label] & (fold < 0)):
            sizes = np.bincount(fold[fold >= 0], minlength=n_folds)
            fold[image] = np.lexsort((sizes, dealt[:, label]))[0]
            dealt[fold[image]] += holds[image]
    return fold


def block_folds(row: IntArray, col: IntArray, shape: tuple[int, ...]) -> IntArray:
    """Fold 0..BLOCKS - 1 of pixels of an image, by whole blocks of a 4 x 4 grid."""
    block_row, block_col = row * BLOCKS // shape[0], col * BLOCKS // shape[1]
    # a shift by two in each row spreads the blocks of a fold over the image
    return np.asarray((block_col + 2 * block_row) % BLOCKS)
