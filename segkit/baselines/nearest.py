"""A filter bank whose maps are read without interpolation: each pixel takes the nearest cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit._common import FloatArray
from segkit.features import FilterBank
from segkit.features.base import Channel, FeatureMaps


class NearestBank(FilterBank):
    """Another bank's maps, read at the nearest cell."""

    def __init__(self, bank: FilterBank) -> None:
        self.bank = bank

    def fit(self, images: Sequence[ArrayLike]) -> Self:
        """Fit the bank."""
        self.bank.fit(images)
        return self

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels of the bank."""
        return self.bank.channels(n_image_channels)

    @property
    def halo(self) -> int:
        """Halo of the bank."""
        return self.bank.halo

    @property
    def alignment(self) -> int:
        """Alignment of the bank."""
        return self.bank.alignment

    @property
    def is_local(self) -> bool:
        """Whether the bank is local."""
        return self.bank.is_local

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Memory of the bank."""
        return self.bank.bytes_per_pixel(n_image_channels)

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the bank's maps."""
        return [
            _NearestMaps(stack.values, stack.indices, stack.stride, stack.offset)
            for stack in self.bank.maps(image, channels)
        ]


@dataclass(frozen=True, eq=False)
class _NearestMaps(FeatureMaps):
    """Maps read at the nearest cell."""

    def sample(self, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Read the nearest cell of n pixel positions; returns (n, n_channels)."""
        return super().sample(*self._centres(rows, cols))

    def interpolate(self, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Read the nearest cells where rows cross columns; returns (n_channels, n_rows, n_cols)."""
        return super().interpolate(*self._centres(rows, cols))

    def _centres(self, *positions: NDArray[Any]) -> list[NDArray[np.float64]]:
        """Move rows and columns to the centres of the nearest cells."""
        offsets = np.broadcast_to(self.offset, 2)
        return [
            first + self.stride * np.rint((np.asarray(at, dtype=np.float64) - first) / self.stride)
            for at, first in zip(positions, offsets, strict=True)
        ]
