"""Features of a filter bank about their mean over each image, so that staining and lighting matter less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress
from segkit.features import FilterBank
from segkit.images.sampling import PixelSample

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
        grid = self.grid(image.shape)
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

    def grid(self, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rows and columns of the pixels over which channels of an image are averaged; none if they stay as they are."""
        rows, cols = even_grid(shape)
        return (rows, cols) if self.normalization == "image" else (rows[:0], cols[:0])


def even_grid(shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows and columns of pixels spread evenly over an image; turning the image turns the grid."""
    rows, cols = np.meshgrid(*(np.linspace(0, size - 1, GRID) for size in shape[:2]), indexing="ij")
    return rows.ravel(), cols.ravel()
