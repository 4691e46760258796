"""Decisions at all pixels of an image, from maps that keep their own grids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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


def decision_maps(
    stacks: Sequence[FeatureMaps],
    kept: IntArray,
    kernels: KernelMixture,
    svm: LinearSVM,
    shape: tuple[int, int],
) -> FloatArray:
    """Decide at every pixel.

    Parameters
    ----------
    stacks : sequence of FeatureMaps
        Maps of the kept channels, standardised.
    kept : ndarray of shape (n_channels,), int
        Positions of the kept channels in their bank, rising: the columns of the kernels.
    kernels : KernelMixture
        Fitted.
    svm : LinearSVM
        Fitted on the features of `kernels`.
    shape : tuple of int
        Height and width of the image.

    Returns
    -------
    ndarray of shape (H, W, n_planes), float32
        What is linear in the channels is summed on each grid and then interpolated; the channels
        that the rest sees are interpolated first.
    """
    n_planes = len(svm.coef_)
    decisions = np.zeros((*shape, n_planes), dtype=np.float32) + svm.intercept_
    planes = kernels.planes(svm.coef_)
    if planes is not None:
        for summed in _sums(stacks, kept, planes):
            decisions += summed.upsample(shape).transpose(1, 2, 0)
    columns = kernels.nonlinear_columns
    if columns.size:
        _add_nonlinear(decisions, stacks, kept[columns], kernels.nonlinear_dot, svm.coef_)
    return np.asarray(decisions)


def _sums(stacks: Sequence[FeatureMaps], kept: IntArray, planes: FloatArray) -> Iterable[FeatureMaps]:
    """Sum what is linear in the channels, (n_planes, n_channels), over the maps of each grid."""
    sums: dict[tuple[float, ...], FeatureMaps] = {}
    for stack in stacks:
        values = np.tensordot(planes[:, np.searchsorted(kept, stack.indices)], stack.values, axes=1)
        grid = (stack.stride, *np.broadcast_to(stack.offset, 2).tolist(), *stack.values.shape[1:])
        if grid in sums:
            values += sums[grid].values
        sums[grid] = FeatureMaps(values, np.arange(len(planes)), stack.stride, stack.offset)
    return sums.values()


def _add_nonlinear(
    decisions: FloatArray,
    stacks: Sequence[FeatureMaps],
    channels: IntArray,
    dot: Callable[[FloatArray, FloatArray], FloatArray],
    coef: FloatArray,
) -> None:
    """Add ``dot(X, coef)`` in blocks of rows, X the values of some channels at each pixel."""
    height, width = decisions.shape[:2]
    stacks = [stack.only(channels) for stack in stacks if np.isin(stack.indices, channels).any()]
    column = as_slice(np.concatenate([stack.indices for stack in stacks]).argsort())
    n_rows = max(1, PIXELS_AT_ONCE // width)
    for top in range(0, height, n_rows):
        rows = np.arange(top, min(top + n_rows, height))
        features = np.concatenate([stack.upsample((height, width), rows) for stack in stacks])[column]
        values = dot(features.reshape(len(features), -1).T, coef)
        decisions[rows] += values.reshape(rows.size, width, -1)
