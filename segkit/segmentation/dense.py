"""Decisions at all pixels of an image, from maps that keep their own grids.

The first pass over the image sums the linear part of the decisions on the grid of each map, and reads all channels on a
coarse grid, which gives their image means. The second pass interpolates the nonlinear channels at each pixel and adds the
nonlinear part. A small image is one tile, and its maps serve both passes. A large one is computed tile by tile, and its
nonlinear channels a second time: their maps would take more memory than all else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, IntArray, Progress, pass_on
from segkit._common.threads import in_threads
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.features import FeatureMaps, FilterBank
from segkit.features.base import as_slice, sample_maps
from segkit.features.normalised import even_grid, image_means
from segkit.features.tiles import is_small, whole
from segkit.features.views import Tiling, View, concatenate

# Maps of so many cells stay in the processor's cache.
CELLS_AT_ONCE = 4096
# Cells of a map that its typical value is read from.
CELLS_FOR_LEVEL = 64
# Pixels whose interpolated channels a thread holds at a time.
PIXELS_PER_BLOCK = 8192


def decide_and_read(
    image: FloatArray,
    bank: FilterBank,
    classifiers: Sequence[PixelClassifier],
    progress: Progress = pass_on,
) -> tuple[list[FloatArray], FloatArray]:
    """Decide at every pixel by one classifier or several, and read kept channels on a coarse grid, in the same pass."""
    centred = bank.centred(image.shape[2])
    maps = [_DecisionMap(image.shape, classifier, centred) for classifier in classifiers]
    channels = np.unique(concatenate([decision_map.channels for decision_map in maps]))
    nonlinear = np.unique(concatenate([decision_map.nonlinear for decision_map in maps]))
    if is_small(image.shape, bank.bytes_per_pixel(image.shape[2])):
        views: Iterable[View] = [View(whole(image.shape), bank.maps(image, channels))]
        second = views
    else:
        # each bank by itself has the largest tiles that it can have
        parts = bank.split_by_bank(channels, image.shape[2])
        views = _follow([Tiling(image, bank, [part]) for part in parts], progress, "Tiles")
        parts = bank.split_by_bank(nonlinear, image.shape[2])
        second = _follow([Tiling(image, bank, parts)], progress, "Tiles, second pass")
    for view in views:
        for decision_map in maps:
            decision_map.add_linear(view)
    for decision_map in maps:
        decision_map.end_linear()
    for view in second if nonlinear.size else ():
        for decision_map in maps:
            decision_map.add_nonlinear(view)
    return [decision_map.decisions for decision_map in maps], maps[0].at_grid - maps[0].means


def decide_in(view: View, classifier: PixelClassifier, means: FloatArray) -> FloatArray:
    """Decide at the pixels of a view's core, with known image means."""
    view = view.subset(classifier.channels_)
    shape = tuple(core.stop - core.start for core in view.tile.core)
    decisions = np.zeros((*shape, len(classifier.svm_.coef_)), dtype=np.float32)
    decisions += classifier.svm_.intercept_
    slopes, nonlinear = classifier.linear_coef, classifier.nonlinear_channels
    if slopes is not None:
        for summed in _sums(view.stacks, classifier.channels_, slopes, means.copy()):
            decisions += view.upsample(summed).transpose(1, 2, 0)
        decisions -= (slopes @ classifier.mean_).astype(np.float32)
    if nonlinear.size:
        columns = np.searchsorted(classifier.channels_, nonlinear)
        decisions += _nonlinear_part(view.subset(nonlinear), classifier, means[columns])
    return decisions


def _follow(tilings: Sequence[Tiling], progress: Progress, description: str) -> Iterator[View]:
    """Return the maps of each tile in turn, followed by the progress."""
    n_tiles = sum(len(tiling.tiles) for tiling in tilings)
    views = chain.from_iterable(tiling.views() for tiling in tilings)
    for _, view in zip(progress(range(n_tiles), description), views, strict=True):
        yield view


class _DecisionMap:
    """The decisions of a classifier on an image, which grow view by view."""

    def __init__(
        self, shape: tuple[int, ...], classifier: PixelClassifier, centred: NDArray[np.bool_]
    ) -> None:
        self.classifier, self.channels = classifier, classifier.channels_
        self.centred = centred[self.channels]
        self.nonlinear = classifier.nonlinear_channels
        self.grid = even_grid(shape)
        self.at_grid = np.empty((self.grid[0].size, self.channels.size), dtype=np.float32)
        self.decisions = np.zeros((*shape[:2], len(classifier.svm_.coef_)), dtype=np.float32)
        self.decisions += classifier.svm_.intercept_
        self._level = np.full(self.channels.size, np.nan, dtype=np.float32)
        self._total = np.zeros(len(classifier.svm_.coef_))

    def add_linear(self, view: View) -> None:
        """Add the linear part in a view's core, and read the channels on the grid there."""
        slopes = self.classifier.linear_coef
        shown, (mine, at) = view.subset(self.channels), view.positions(self.grid)
        if slopes is not None:
            for is_centred in (True, False):
                stacks = shown.subset(self.channels[self.centred == is_centred]).stacks
                for summed in _sums(stacks, self.channels, slopes, self._level):
                    self.decisions[view.tile.core] += view.upsample(summed).transpose(1, 2, 0)
                    if is_centred:
                        self._total += summed.sample(*at).sum(axis=0)
        own = np.sort(concatenate([stack.indices for stack in shown.stacks]))
        if own.size:
            read = sample_maps(list(shown.stacks), *at, own)
            self.at_grid[np.ix_(mine, np.searchsorted(self.channels, own))] = read

    def end_linear(self) -> None:
        """Subtract the means of all views: those of the image of centred channels, and those of the training."""
        slopes = self.classifier.linear_coef
        if slopes is not None:
            # the mean of sums is the sum of means, so that no channel is centred by itself
            level = np.where(self.centred, 0, self._level.astype(np.float64))
            mean = self._total / self.grid[0].size - slopes @ level
            self.decisions -= (slopes @ self.classifier.mean_ + mean).astype(np.float32)
        self.means = image_means(self.at_grid, self.centred)

    def add_nonlinear(self, view: View) -> None:
        """Add the nonlinear part in a view's core."""
        if self.nonlinear.size:
            means = self.means[np.searchsorted(self.channels, self.nonlinear)]
            own = view.subset(self.nonlinear)
            self.decisions[view.tile.core] += _nonlinear_part(own, self.classifier, means)


def _sums(
    stacks: Sequence[FeatureMaps], channels: IntArray, slopes: FloatArray, level: FloatArray
) -> Iterable[FeatureMaps]:
    """Sum the channels, less their levels, with their slopes (n_outputs, n_channels), over the maps of each grid."""
    sums: dict[tuple[float, ...], FeatureMaps] = {}
    for stack in stacks:
        column = np.searchsorted(channels, stack.indices)
        cells = stack.values.reshape(len(stack.values), -1)
        if np.isnan(level[column]).any():
            # a typical value of each channel, subtracted to avoid cancellation in float32; the first tile's, for all tiles
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


def _nonlinear_part(view: View, classifier: PixelClassifier, means: FloatArray) -> FloatArray:
    """Compute the nonlinear part of the decisions in a view's core, of channels less their image means."""
    columns = classifier.kernels_.nonlinear_columns
    mean = (classifier.mean_[columns] + means)[:, None, None]
    scale = classifier.scale_[columns][:, None, None]
    dot, coef = classifier.kernels_.nonlinear_dot, classifier.svm_.coef_
    own_rows, own_cols = view.tile.inner
    height, width = own_rows.stop - own_rows.start, own_cols.stop - own_cols.start
    order = as_slice(concatenate([stack.indices for stack in view.stacks]).argsort())

    def decide(rows: IntArray) -> FloatArray:
        X = np.concatenate([view.upsample(stack, rows) for stack in view.stacks])[order]
        X -= mean
        X /= scale
        return np.asarray(dot(X.reshape(len(X), -1).T, coef).reshape(rows.size, width, -1))

    rows = np.arange(height) + own_rows.start
    blocks = np.array_split(rows, min(height, math.ceil(height * width / PIXELS_PER_BLOCK)))
    return np.concatenate(list(in_threads(decide, blocks)))
