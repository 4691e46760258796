"""Decisions at all pixels of an image, from maps that keep their own grids.

The first pass over the image sums the linear part of the decisions on the grid of each map, and reads the image means of
the nonlinear channels. The second pass interpolates the nonlinear channels at each pixel and adds the nonlinear part. A
small image is one tile, and its maps serve both passes. A large one is computed tile by tile, and no map is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress, pass_on
from segkit._threads import in_threads
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.features import FeatureMaps, FilterBank, StackedBank
from segkit.features.base import as_slice, sample_maps
from segkit.features.normalised import NormalisedBank
from segkit.features.tiles import Tile, is_small, whole

IntArray = NDArray[np.intp]
Grid = tuple[NDArray[np.float64], NDArray[np.float64]]
# Maps of so many cells stay in the processor's cache.
CELLS_AT_ONCE = 4096
# Cells of a map that its typical value is read from.
CELLS_FOR_LEVEL = 64
# Pixels whose interpolated channels a thread holds at a time.
PIXELS_PER_BLOCK = 8192


def decision_maps(
    image: FloatArray, bank: NormalisedBank, classifier: PixelClassifier, progress: Progress = pass_on
) -> FloatArray:
    """Decide at every pixel.

    Parameters
    ----------
    image : ndarray of shape (H, W, C), float32 in [0, 1]
        The image.
    bank : NormalisedBank
        Fitted.
    classifier : PixelClassifier
        Fitted on channels of the bank.
    progress : callable, optional
        Follows the tiles of a large image.

    Returns
    -------
    ndarray of shape (H, W, n_outputs), float32
        Decisions in units of the margin.
    """
    grid = bank.grid(image.shape)
    decisions = np.zeros((*image.shape[:2], len(classifier.svm_.coef_)), dtype=np.float32)
    decisions += classifier.svm_.intercept_
    nonlinear = classifier.nonlinear_channels
    if is_small(image.shape):
        views = [_View(whole(image.shape), bank.bank.maps(image, classifier.channels_))]
        means = _add_linear(decisions, views, classifier, grid)
        if nonlinear.size:
            _add_nonlinear(decisions, [view.subset(nonlinear) for view in views], classifier, means)
        return decisions
    parts = bank.bank.split_by_bank(classifier.channels_, image.shape[2])
    # each bank by itself has the largest tiles that it can have
    first = [_Tiling(image, bank.bank, [part]) for part in parts]
    means = _add_linear(decisions, _follow(first, progress, "Tiles"), classifier, grid)
    if nonlinear.size:
        together = _Tiling(image, bank.bank, bank.bank.split_by_bank(nonlinear, image.shape[2]))
        _add_nonlinear(decisions, _follow([together], progress, "Tiles, second pass"), classifier, means)
    return decisions


@dataclass(frozen=True, eq=False)
class _View:
    """Maps of a tile."""

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

    def positions(self, grid: Grid) -> tuple[NDArray[np.bool_], Grid]:
        """Tell which positions of a grid lie in the core, and count those from the first row and column seen."""
        mine = self.tile.holds(*grid)
        rows, cols = (at[mine] - seen.start for at, seen in zip(grid, self.tile.seen, strict=True))
        return mine, (rows, cols)


class _Tiling:
    """A large image as seen by some of the banks of a stack, tile by tile.

    Parameters
    ----------
    image : ndarray of shape (H, W, C), float32
        The image.
    bank : FilterBank
        The stack.
    parts : list of (FilterBank, ndarray of int)
        Banks of the stack, each with its wanted channels, numbered as in the stack. Every tile shows all of them.
    """

    def __init__(
        self, image: FloatArray, bank: FilterBank, parts: Sequence[tuple[FilterBank, IntArray]]
    ) -> None:
        self._image, self._bank = image, bank
        cut = [len(part.tiles(image.shape)) > 1 for part, _ in parts]
        self._whole = _concatenate([own for (_, own), is_cut in zip(parts, cut, strict=True) if not is_cut])
        self._cut = _concatenate([own for (_, own), is_cut in zip(parts, cut, strict=True) if is_cut])
        local = [part for (part, _), is_cut in zip(parts, cut, strict=True) if is_cut]
        self.tiles = StackedBank(local).tiles(image.shape) if local else [whole(image.shape)]

    def views(self) -> Iterator[_View]:
        """Compute the maps of each tile in turn; maps that need the whole image are computed once."""
        kept = self._bank.maps(self._image, self._whole) if self._whole.size else []
        for tile in self.tiles:
            corner = np.array([seen.start for seen in tile.seen])
            moved = [
                FeatureMaps(stack.values, stack.indices, stack.stride, tuple(stack.offset - corner))
                for stack in kept
            ]
            local = self._bank.maps(self._image[tile.seen], self._cut) if self._cut.size else []
            yield _View(tile, [*local, *moved])


def _follow(tilings: Sequence[_Tiling], progress: Progress, description: str) -> Iterator[_View]:
    """Compute the maps of each tile in turn, followed by the progress."""
    n_tiles = sum(len(tiling.tiles) for tiling in tilings)
    views = chain.from_iterable(tiling.views() for tiling in tilings)
    for _, view in zip(progress(range(n_tiles), description), views, strict=True):
        yield view


def _add_linear(
    decisions: FloatArray, views: Iterable[_View], classifier: PixelClassifier, grid: Grid
) -> FloatArray:
    """Add the linear part of the decisions; return the image means of the nonlinear channels."""
    channels, nonlinear, slopes = (
        classifier.channels_,
        classifier.nonlinear_channels,
        classifier.linear_coef,
    )
    level = np.full(channels.size, np.nan, dtype=np.float32)
    total = np.zeros(len(classifier.svm_.coef_))
    at_grid = np.empty((grid[0].size, nonlinear.size), dtype=np.float32)
    for view in views:
        if slopes is not None:
            _, at = view.positions(grid)
            for summed in _sums(view.stacks, channels, slopes, level):
                decisions[view.tile.core] += view.upsample(summed).transpose(1, 2, 0)
                total += summed.sample(*at).sum(axis=0)
        if at_grid.size:
            _read_at_grid(at_grid, view, nonlinear, grid)
    if slopes is not None:
        # the mean of sums is the sum of means, so that no channel is centred by itself
        mean = total / grid[0].size if grid[0].size else -slopes @ level.astype(np.float64)
        decisions -= (slopes @ classifier.mean_ + mean).astype(np.float32)
    if not len(at_grid):
        return np.zeros(nonlinear.size, dtype=np.float32)
    return np.asarray(at_grid.mean(axis=0))


def _read_at_grid(at_grid: FloatArray, view: _View, channels: IntArray, grid: Grid) -> None:
    """Read the channels that a view shows at the positions of the grid in its core."""
    shown = view.subset(channels)
    own = np.sort(_concatenate([stack.indices for stack in shown.stacks]))
    if own.size:
        mine, at = view.positions(grid)
        at_grid[np.ix_(mine, np.searchsorted(channels, own))] = sample_maps(list(shown.stacks), *at, own)


def _sums(
    stacks: Sequence[FeatureMaps], channels: IntArray, slopes: FloatArray, level: FloatArray
) -> Iterable[FeatureMaps]:
    """Sum the channels, less their levels, with their slopes (n_outputs, n_channels), over the maps of each grid.

    The level is a typical value of a channel, subtracted first to avoid cancellation in float32. It is read from a few cells
    of the first tile and kept for the others.
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
    decisions: FloatArray, views: Iterable[_View], classifier: PixelClassifier, means: FloatArray
) -> None:
    """Add the nonlinear part of the decisions, of channels less their image means."""
    columns = classifier.kernels_.nonlinear_columns
    mean = (classifier.mean_[columns] + means)[:, None, None]
    scale = classifier.scale_[columns][:, None, None]
    dot, coef = classifier.kernels_.nonlinear_dot, classifier.svm_.coef_
    for view in views:
        core = decisions[view.tile.core]
        height, width = core.shape[:2]
        order = as_slice(_concatenate([stack.indices for stack in view.stacks]).argsort())

        def decide(
            rows: IntArray,
            view: _View = view,
            order: slice | IntArray = order,
            width: int = width,
        ) -> FloatArray:
            X = np.concatenate([view.upsample(stack, rows) for stack in view.stacks])[order]
            X -= mean
            X /= scale
            return np.asarray(dot(X.reshape(len(X), -1).T, coef).reshape(rows.size, width, -1))

        own_rows = np.arange(height) + view.tile.inner[0].start
        blocks = np.array_split(own_rows, min(height, math.ceil(height * width / PIXELS_PER_BLOCK)))
        core += np.concatenate(list(in_threads(decide, blocks)))


def _concatenate(indices: Sequence[IntArray]) -> IntArray:
    """Concatenate arrays of indices; there may be none."""
    return np.concatenate([np.empty(0, dtype=np.intp), *indices])
