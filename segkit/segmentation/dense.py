"""Decisions at all pixels of an image, from maps that keep their own grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit._threads import in_threads
from segkit.classifier.svm import LinearSVM
from segkit.features import FeatureMaps, FilterBank, StackedBank
from segkit.features.base import as_slice, sample_maps
from segkit.features.normalised import CentredBank
from segkit.features.tiles import Tile, is_small, whole
from segkit.kernels import KernelMixture

IntArray = NDArray[np.intp]
# Maps of so many cells stay in the processor's cache.
CELLS_AT_ONCE = 4096
# So many cells tell about what a channel is.
CELLS_FOR_LEVEL = 64
# A thread holds the upsampled channels of so many pixels at a time.
PIXELS_PER_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Columns:
    """Kept channels as the kernels see them: centred, less `mean`, divided by `scale`.

    Parameters
    ----------
    channels : ndarray of shape (n_channels,), int
        Their positions in the bank, rising.
    mean, scale : ndarray of shape (n_channels,), float32
        Those of the centred channels over the training pixels.
    """

    channels: IntArray
    mean: FloatArray
    scale: FloatArray

    def take(self, places: IntArray) -> Columns:
        """Leave the other columns out."""
        return Columns(self.channels[places], self.mean[places], self.scale[places])


@dataclass(frozen=True, eq=False)
class _View:
    """What a bank sees of an image in a tile."""

    tile: Tile
    stacks: Sequence[FeatureMaps]

    def subset(self, channels: IntArray) -> _View:
        """Leave the maps of other channels out."""
        stacks = [stack for stack in self.stacks if np.isin(stack.indices, channels).any()]
        return _View(self.tile, [stack.subset(channels) for stack in stacks])

    def upsample(self, stack: FeatureMaps, rows: IntArray | None = None) -> FloatArray:
        """Values at the pixels of the core, or of some of its rows; (n_channels, n_rows, n_cols)."""
        own_rows, own_cols = self.tile.inner
        if rows is None:
            rows = np.arange(own_rows.start, own_rows.stop)
        return stack.upsample(self.tile.shape, rows)[:, :, own_cols]


def decision_maps(
    image: FloatArray, bank: CentredBank, columns: Columns, kernels: KernelMixture, svm: LinearSVM
) -> FloatArray:
    """Decide at every pixel.

    Parameters
    ----------
    image : ndarray of shape (H, W, C), float32 in [0, 1]
        The image; a large one is looked at tile by tile.
    bank : CentredBank
        Fitted.
    columns : Columns
        What the kernels see of its channels.
    kernels : KernelMixture
        Fitted.
    svm : LinearSVM
        Fitted on the features of `kernels`.

    Returns
    -------
    ndarray of shape (H, W, n_planes), float32
        What is linear in the channels is summed on each grid, then centred and interpolated; the
        channels that the nonlinear part sees are standardised and interpolated first.
    """
    nonlinear = columns.take(kernels.nonlinear_columns)
    grid = bank.grid(image.shape)
    views, nonlinear_views, mean = _look(image, bank.bank, columns.channels, nonlinear.channels, grid)
    decisions = np.zeros((*image.shape[:2], len(svm.coef_)), dtype=np.float32) + svm.intercept_
    planes = kernels.linear_coef(svm.coef_)
    if planes is not None:
        _add_linear(decisions, views, columns, planes, grid)
    if nonlinear.channels.size:
        centred = Columns(nonlinear.channels, nonlinear.mean + mean, nonlinear.scale)
        for view in nonlinear_views:
            _add_nonlinear(decisions, view, centred, kernels.nonlinear_dot, svm.coef_)
    return np.asarray(decisions)


def _look(
    image: FloatArray,
    bank: FilterBank,
    channels: IntArray,
    nonlinear: IntArray,
    grid: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> tuple[Iterable[_View], Iterable[_View], FloatArray]:
    """Look at all channels, at those that are not only summed, and at the means of the latter over a grid of pixels.

    What is seen of a small image serves for all three. Of a large one each bank has tiles of its own, and no map is
    kept; what a pixel needs at once is seen once more for the means, and once more for itself.
    """
    if is_small(image.shape):
        view = _View(whole(image.shape), bank.maps(image, channels))
        nonlinear_view = view.subset(nonlinear)
        return (
            [view],
            [nonlinear_view],
            _mean_over(sample_maps(list(nonlinear_view.stacks), *grid, nonlinear)),
        )
    parts = bank.split_by_bank(channels, image.shape[2])
    views = (
        _View(tile, bank.maps(image[tile.seen], own))
        for part, own in parts
        for tile in part.tiles(image.shape)
    )
    is_needed = nonlinear.size > 0 and grid[0].size > 0
    at_grid = (
        bank.sample(image, *grid, nonlinear) if is_needed else np.empty((0, nonlinear.size), dtype=np.float32)
    )
    return views, _look_together(image, bank, nonlinear), _mean_over(at_grid)


def _mean_over(X: FloatArray) -> FloatArray:
    """Average rows; zeros, if there are none."""
    return np.asarray(X.mean(axis=0) if len(X) else np.zeros(X.shape[1], dtype=X.dtype))


def _look_together(image: FloatArray, bank: FilterBank, channels: IntArray) -> Iterator[_View]:
    """Look at tiles of which each shows all channels; what stays whole is looked at once, for all of them."""
    parts = [
        (part, own, part.tiles(image.shape)) for part, own in bank.split_by_bank(channels, image.shape[2])
    ]
    kept = [stack for _, own, tiles in parts if len(tiles) == 1 for stack in bank.maps(image, own)]
    cut = [(part, own) for part, own, tiles in parts if len(tiles) > 1]
    if not cut:
        yield _View(whole(image.shape), kept)
        return
    own = np.concatenate([own for _, own in cut])
    for tile in StackedBank([part for part, _ in cut]).tiles(image.shape):
        corner = np.array([seen.start for seen in tile.seen])
        moved = [
            FeatureMaps(stack.values, stack.indices, stack.stride, tuple(stack.offset - corner))
            for stack in kept
        ]
        yield _View(tile, [*bank.maps(image[tile.seen], own), *moved])


def _add_linear(
    decisions: FloatArray,
    views: Iterable[_View],
    columns: Columns,
    planes: FloatArray,
    grid: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    """Add what is linear in the columns, ``planes`` (n_planes, n_channels) times them."""
    slopes = planes / columns.scale
    # about what a channel is anyway: numbers much larger than what they differ by would be summed inexactly
    level = np.full(columns.channels.size, np.nan, dtype=np.float32)
    total = np.zeros(len(slopes))
    for view in views:
        mine = view.tile.holds(*grid)
        rows, cols = (at[mine] - seen.start for at, seen in zip(grid, view.tile.seen, strict=True))
        for summed in _sums(view.stacks, columns.channels, slopes, level):
            decisions[view.tile.core] += view.upsample(summed).transpose(1, 2, 0)
            total += summed.sample(rows, cols).sum(axis=0)
    # the mean of sums is the sum of means, so that no channel is centred by itself
    mean = total / grid[0].size if grid[0].size else -slopes @ level.astype(np.float64)
    decisions -= (slopes @ columns.mean + mean).astype(np.float32)


def _sums(
    stacks: Sequence[FeatureMaps], channels: IntArray, slopes: FloatArray, level: FloatArray
) -> Iterable[FeatureMaps]:
    """Sum the channels less their levels with their slopes, (n_planes, n_channels), over the maps of each grid.

    A level that is not known yet is read from a few cells, and kept for the tiles that follow.
    """
    sums: dict[tuple[float, ...], FeatureMaps] = {}
    for stack in stacks:
        column = np.searchsorted(channels, stack.indices)
        cells = stack.values.reshape(len(stack.values), -1)
        if np.isnan(level[column]).any():
            level[column] = cells[:, :: max(1, cells.shape[1] // CELLS_FOR_LEVEL)].mean(axis=1)
        values = np.empty((len(slopes), cells.shape[1]), dtype=np.float32)
        for start in range(0, cells.shape[1], CELLS_AT_ONCE):
            block = slice(start, start + CELLS_AT_ONCE)
            np.matmul(slopes[:, column], cells[:, block] - level[column, None], out=values[:, block])
        values = values.reshape(len(slopes), *stack.values.shape[1:])
        grid = (stack.stride, *np.broadcast_to(stack.offset, 2).tolist(), *stack.values.shape[1:])
        if grid in sums:
            values += sums[grid].values
        sums[grid] = FeatureMaps(values, np.arange(len(slopes)), stack.stride, stack.offset)
    return sums.values()


def _add_nonlinear(
    decisions: FloatArray,
    view: _View,
    columns: Columns,
    dot: Callable[[FloatArray, FloatArray], FloatArray],
    coef: FloatArray,
) -> None:
    """Add ``dot(X, coef)`` in the core of a tile, X the columns at each pixel."""
    core = decisions[view.tile.core]
    height, width = core.shape[:2]
    order = as_slice(np.concatenate([stack.indices for stack in view.stacks]).argsort())
    mean, scale = columns.mean[:, None, None], columns.scale[:, None, None]

    def decide(rows: IntArray) -> FloatArray:
        X = np.concatenate([view.upsample(stack, rows) for stack in view.stacks])[order]
        X -= mean
        X /= scale
        return dot(X.reshape(len(X), -1).T, coef).reshape(rows.size, width, -1)

    own_rows = np.arange(height) + view.tile.inner[0].start
    blocks = np.array_split(own_rows, min(height, math.ceil(height * width / PIXELS_PER_BLOCK)))
    done = np.concatenate(list(in_threads(decide, blocks)))
    core += done
