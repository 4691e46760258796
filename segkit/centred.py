"""Features of a filter bank about their mean over each image, so that staining and lighting matter less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.base import FloatArray, Progress
from segkit.features import FeatureMaps, FilterBank
from segkit.sampling import PixelSample

# The mean of a channel over an image is taken over a grid of so many rows and columns.
GRID = 32


@dataclass(frozen=True, eq=False)
class CentredBank:
    """A fitted bank whose channels are centred.

    Parameters
    ----------
    bank : FilterBank
        Fitted.
    normalization : {"image", "set"}
        "image" takes the mean of each channel over an image off; "set" leaves the channels as they are.
    """

    bank: FilterBank
    normalization: str

    def sample(
        self, image: FloatArray, rows: NDArray[Any], cols: NDArray[Any], channels: NDArray[np.intp] | None
    ) -> FloatArray:
        """Features of some pixels of an image, (n, n_channels)."""
        if self.normalization == "set":
            return self.bank.sample(image, rows, cols, channels)
        grid = even_grid(image.shape[:2])
        X = self.bank.sample(
            image, np.concatenate([rows, grid[0]]), np.concatenate([cols, grid[1]]), channels
        )
        return np.asarray(X[: len(rows)] - X[len(rows) :].mean(axis=0))

    def sample_draws(
        self,
        images: Sequence[FloatArray],
        draws: Sequence[PixelSample],
        channels: NDArray[np.intp] | None,
        progress: Progress,
        description: str,
    ) -> list[FloatArray]:
        """Features of the pixels of each draw, (n, n_channels), in one pass over the images."""
        features: list[list[FloatArray]] = [[] for _ in draws]
        for index, image in enumerate(progress(images, description)):
            parts = [drawn.subset(drawn.of_image(index)) for drawn in draws]
            rows, cols = (np.concatenate([getattr(part, axis) for part in parts]) for axis in ("row", "col"))
            X = self.sample(image, rows, cols, channels)
            ends = np.cumsum([part.label.size for part in parts])
            for found, own in zip(features, np.split(X, ends[:-1]), strict=True):
                found.append(own)
        return [np.concatenate(found) for found in features]

    def standardised_maps(
        self, image: FloatArray, channels: NDArray[np.intp], mean: FloatArray, scale: FloatArray
    ) -> list[FeatureMaps]:
        """Compute maps of some channels, centred and standardised on their own grids: interpolation commutes with it.

        Parameters
        ----------
        image : ndarray of shape (H, W, C)
            The image.
        channels : ndarray of shape (n,), int
            The channels, rising.
        mean, scale : ndarray of shape (n,), float32
            What is taken off each, after its mean over the image, and what it is divided by.

        Returns
        -------
        list of FeatureMaps
            A stack for each grid.
        """
        grid = even_grid(image.shape[:2])
        return [
            self._standardised(stack, grid, mean[column], scale[column])
            for stack in self.bank.maps(image, channels)
            for column in [np.searchsorted(channels, stack.indices)]
        ]

    def _standardised(
        self,
        stack: FeatureMaps,
        grid: tuple[NDArray[np.float64], NDArray[np.float64]],
        centre: FloatArray,
        scale: FloatArray,
    ) -> FeatureMaps:
        if self.normalization == "image":
            centre = centre + stack.sample(*grid).mean(axis=0)
        values = stack.values - centre[:, None, None]
        values /= scale[:, None, None]
        return FeatureMaps(values, stack.indices, stack.stride, stack.offset)


def even_grid(shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows and columns of pixels spread evenly over an image; turning the image turns the grid."""
    rows, cols = np.meshgrid(*(np.linspace(0, size - 1, GRID) for size in shape[:2]), indexing="ij")
    return rows.ravel(), cols.ravel()
