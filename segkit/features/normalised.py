"""Normalisation by image: each channel less its mean over the image, if its bank says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress, pass_on
from segkit.features import FilterBank
from segkit.images.sampling import PixelSample

# Rows and columns of the grid of pixels that the mean of a channel over an image is taken from.
GRID = 32


@dataclass(frozen=True, eq=False)
class NormalisedBank:
    """A fitted bank, whose centred channels are less their mean over the image."""

    bank: FilterBank

    def sample(
        self,
        image: FloatArray,
        rows: NDArray[Any],
        cols: NDArray[Any],
        channels: NDArray[np.intp] | None,
        progress: Progress = pass_on,
    ) -> FloatArray:
        """Read normalised features at some pixels of an image; (n, n_channels)."""
        centred = self.bank.centred(image.shape[2])
        centred = centred if channels is None else centred[channels]
        if not centred.any():
            return self.bank.sample(image, rows, cols, channels, progress=progress)
        grid = even_grid(image.shape)
        all_rows, all_cols = np.concatenate([rows, grid[0]]), np.concatenate([cols, grid[1]])
        X = self.bank.sample(image, all_rows, all_cols, channels, progress=progress)
        found, at_grid = X[: len(rows)], X[len(rows) :]
        found -= image_means(at_grid, centred)
        return np.asarray(found)

    def sample_draws(
        self,
        images: Sequence[FloatArray],
        draws: Sequence[PixelSample],
        channels: NDArray[np.intp] | None,
        progress: Progress,
        description: str,
    ) -> list[FloatArray]:
        """Read features of training images at the pixels of each draw, (n, n_channels), in one pass over the images."""
        n_channels = self.bank.n_channels(images[0].shape[2]) if channels is None else channels.size
        # filled image by image: parts that are joined at the end would take the memory twice
        features = [np.empty((drawn.label.size, n_channels), dtype=np.float32) for drawn in draws]
        filled = np.zeros(len(draws), dtype=np.intp)
        for index, image in enumerate(progress(images, description)):
            parts = [drawn.subset(drawn.of_image(index)) for drawn in draws]
            rows, cols = (np.concatenate([getattr(part, axis) for part in parts]) for axis in ("row", "col"))
            seen = NormalisedBank(self.bank.cross_fitted(index))
            X = seen.sample(image, rows, cols, channels, progress)
            sizes = np.array([part.label.size for part in parts])
            for found, start, own in zip(features, filled, np.split(X, np.cumsum(sizes)[:-1]), strict=True):
                found[start : start + len(own)] = own
            filled += sizes
        return features


def image_means(at_grid: FloatArray, centred: NDArray[np.bool_]) -> FloatArray:
    """Compute the mean of each channel over the even grid of an image; 0 for channels that are not centred."""
    return np.where(centred, at_grid.mean(axis=0), np.float32(0))


def even_grid(shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows and columns of pixels spread evenly over an image; turning the image turns the grid."""
    rows, cols = np.meshgrid(*(np.linspace(0, size - 1, GRID) for size in shape[:2]), indexing="ij")
    return rows.ravel(), cols.ravel()
