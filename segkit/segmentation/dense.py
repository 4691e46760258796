"""Decisions at all pixels of an image, from maps that keep their own grids.

The first pass over the image sums the linear part of the decisions on the grid of each map, and reads all channels on a
coarse grid, which gives their image means. The second pass interpolates the nonlinear channels at each pixel and adds the
nonlinear part. A small image is one tile, and its maps serve both passes. A large one is computed tile by tile, and no map
is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress, pass_on
from segkit._threads import in_threads
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.features import FeatureMaps
from segkit.features.base import as_slice, sample_maps
from segkit.features.normalised import NormalisedBank, even_grid
from segkit.features.tiles import is_small, whole
from segkit.features.views import Grid, Tiling, View, concatenate

IntArray = NDArray[np.intp]
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
    return decide_and_read(image, bank, classifier, progress)[0]


def decide_and_read(
    image: FloatArray, bank: NormalisedBank, classifier: PixelClassifier, progress: Progress = pass_on
) -> tuple[FloatArray, FloatArray]:
    """Decide at every pixel, and read the kept channels on a coarse grid in the same pass.

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
    decisions : ndarray of shape (H, W, n_outputs), float32
        Decisions in units of the margin.
    features : ndarray of shape (n_grid, n_kept), float32
        Normalised features at the pixels of `segkit.features.normalised.even_grid`.
    """
    grid = even_grid(image.shape)
    at_grid = np.empty((grid[0].size, classifier.channels_.size), dtype=np.float32)
    is_centred = bank.normalization == "image"
    decisions = np.zeros((*image.shape[:2], len(classifier.svm_.coef_)), dtype=np.float32)
    decisions += classifier.svm_.intercept_
    nonlinear = classifier.nonlinear_channels
    columns = np.searchsorted(classifier.channels_, nonlinear)
    if is_small(image.shape):
        view = View(whole(image.shape), bank.bank.maps(image, classifier.channels_))
        means = _add_linear(decisions, [view], classifier, grid, at_grid, is_centred=is_centred)
        if nonlinear.size:
            decisions += _nonlinear_part(view.subset(nonlinear), classifier, means[columns])
        return decisions, at_grid - means
    parts = bank.bank.split_by_bank(classifier.channels_, image.shape[2])
    # each bank by itself has the largest tiles that it can have
    first = [Tiling(image, bank.bank, [part]) for part in parts]
    views = _follow(first, progress, "Tiles")
    means = _add_linear(decisions, views, classifier, grid, at_grid, is_centred=is_centred)
    if nonlinear.size:
        together = Tiling(image, bank.bank, bank.bank.split_by_bank(nonlinear, image.shape[2]))
        for view in _follow([together], progress, "Tiles, second pass"):
            decisions[view.tile.core] += _nonlinear_part(view, classifier, means[columns])
    return decisions, at_grid - means


def decide_in(view: View, classifier: PixelClassifier, means: FloatArray) -> FloatArray:
    """Decide at the pixels of a view's core, with known image means.

    Parameters
    ----------
    view : View
        Maps of the kept channels; others are left out.
    classifier : PixelClassifier
        Fitted.
    means : ndarray of shape (n_kept,), float32
        Mean of each kept channel over the image; zeros without normalisation by image.

    Returns
    -------
    ndarray of shape (h, w, n_outputs), float32
        As `decision_maps` gives, up to rounding.
    """
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
    """Compute the maps of each tile in turn, followed by the progress."""
    n_tiles = sum(len(tiling.tiles) for tiling in tilings)
    views = chain.from_iterable(tiling.views() for tiling in tilings)
    for _, view in zip(progress(range(n_tiles), description), views, strict=True):
        yield view


def _add_linear(
    decisions: FloatArray,
    views: Iterable[View],
    classifier: PixelClassifier,
    grid: Grid,
    at_grid: FloatArray,
    *,
    is_centred: bool,
) -> FloatArray:
    """Add the linear part of the decisions; read the channels on the grid, and return their image means, or zeros."""
    channels, slopes = classifier.channels_, classifier.linear_coef
    level = np.full(channels.size, np.nan, dtype=np.float32)
    total = np.zeros(len(classifier.svm_.coef_))
    for view in views:
        if slopes is not None:
            _, at = view.positions(grid)
            for summed in _sums(view.stacks, channels, slopes, level):
                decisions[view.tile.core] += view.upsample(summed).transpose(1, 2, 0)
                total += summed.sample(*at).sum(axis=0)
        _read_at_grid(at_grid, view, channels, grid)
    if slopes is not None:
        # the mean of sums is the sum of means, so that no channel is centred by itself
        mean = total / grid[0].size if is_centred else -slopes @ level.astype(np.float64)
        decisions -= (slopes @ classifier.mean_ + mean).astype(np.float32)
    return np.asarray(at_grid.mean(axis=0)) if is_centred else np.zeros(channels.size, dtype=np.float32)


def _read_at_grid(at_grid: FloatArray, view: View, channels: IntArray, grid: Grid) -> None:
    """Read the channels that a view shows at the positions of the grid in its core."""
    shown = view.subset(channels)
    own = np.sort(concatenate([stack.indices for stack in shown.stacks]))
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
