"""Decisions at all pixels of an image, from maps that keep their own grids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segkit.base import FloatArray
from segkit.features import FeatureMaps
from segkit.features.base import as_slice
from segkit.kernels import KernelMixture
from segkit.linear import LinearSVM

IntArray = NDArray[np.intp]
# Upsampled channels of so many pixels are held at a time.
PIXELS_AT_ONCE = 32_768


@dataclass(frozen=True, eq=False)
class Columns:
    """Kept channels as the kernels see them: centred, less `mean`, divided by `scale`.

    Parameters
    ----------
    channels : ndarray of shape (n_channels,), int
        Their positions in the bank, rising.
    centre : callable
        Centres maps of channels, or of weighted sums of them, on an image.
    mean, scale : ndarray of shape (n_channels,), float32
        Those of the centred channels over the training pixels.
    """

    channels: IntArray
    centre: Callable[[FeatureMaps], FeatureMaps]
    mean: FloatArray
    scale: FloatArray

    def standardise(self, stack: FeatureMaps) -> FeatureMaps:
        """Centre and standardise maps of channels."""
        column = np.searchsorted(self.channels, stack.indices)
        stack = self.centre(stack)
        values = stack.values - self.mean[column, None, None]
        values /= self.scale[column, None, None]
        return FeatureMaps(values, stack.indices, stack.stride, stack.offset)


def decision_maps(
    stacks: Sequence[FeatureMaps],
    columns: Columns,
    kernels: KernelMixture,
    svm: LinearSVM,
    shape: tuple[int, int],
) -> FloatArray:
    """Decide at every pixel.

    Parameters
    ----------
    stacks : sequence of FeatureMaps
        Maps of the kept channels.
    columns : Columns
        What becomes of them.
    kernels : KernelMixture
        Fitted.
    svm : LinearSVM
        Fitted on the features of `kernels`.
    shape : tuple of int
        Height and width of the image.

    Returns
    -------
    ndarray of shape (H, W, n_planes), float32
        What is linear in the channels is summed on each grid, then centred and interpolated; the
        channels that the rest sees are standardised and interpolated first.
    """
    decisions = np.zeros((*shape, len(svm.coef_)), dtype=np.float32) + svm.intercept_
    planes = kernels.planes(svm.coef_)
    if planes is not None:
        slopes = planes / columns.scale
        decisions -= slopes @ columns.mean
        for summed in _sums(stacks, columns.channels, slopes):
            decisions += columns.centre(summed).upsample(shape).transpose(1, 2, 0)
    seen = columns.channels[kernels.nonlinear_columns]
    if seen.size:
        of_rest = [
            columns.standardise(stack.only(seen)) for stack in stacks if np.isin(stack.indices, seen).any()
        ]
        _add_nonlinear(decisions, of_rest, kernels.nonlinear_dot, svm.coef_)
    return np.asarray(decisions)


def _sums(stacks: Sequence[FeatureMaps], channels: IntArray, slopes: FloatArray) -> Iterable[FeatureMaps]:
    """Sum the channels with their slopes, (n_planes, n_channels), over the maps of each grid."""
    sums: dict[tuple[float, ...], FeatureMaps] = {}
    for stack in stacks:
        values = np.tensordot(slopes[:, np.searchsorted(channels, stack.indices)], stack.values, axes=1)
        grid = (stack.stride, *np.broadcast_to(stack.offset, 2).tolist(), *stack.values.shape[1:])
        if grid in sums:
            values += sums[grid].values
        sums[grid] = FeatureMaps(values, np.arange(len(slopes)), stack.stride, stack.offset)
    return sums.values()


def _add_nonlinear(
    decisions: FloatArray,
    stacks: Sequence[FeatureMaps],
    dot: Callable[[FloatArray, FloatArray], FloatArray],
    coef: FloatArray,
) -> None:
    """Add ``dot(X, coef)`` in blocks of rows, X the values of the channels at each pixel."""
    height, width = decisions.shape[:2]
    column = as_slice(np.concatenate([stack.indices for stack in stacks]).argsort())
    n_rows = max(1, PIXELS_AT_ONCE // width)
    for top in range(0, height, n_rows):
        rows = np.arange(top, min(top + n_rows, height))
        features = np.concatenate([stack.upsample((height, width), rows) for stack in stacks])[column]
        values = dot(features.reshape(len(features), -1).T, coef)
        decisions[rows] += values.reshape(rows.size, width, -1)
