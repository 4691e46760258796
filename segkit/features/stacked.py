"""Several filter banks as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit._common import FloatArray, Progress, pass_on
from segkit.errors import ConfigError
from segkit.features.base import Channel, CompositeBank, FeatureMaps, FilterBank, as_image, as_slice
from segkit.features.options import check_options
from segkit.features.tiles import Tile


class StackedBank(CompositeBank):
    """The channels of several banks, one bank after the other.

    Parameters
    ----------
    banks : sequence of FilterBank
        The banks, at least one. Channels are named after their bank's place where names would repeat.
    normalization : {"image", "set"}, default="image"
        Zero of each channel. "image": its mean over each image, so that staining and lighting matter less, unless its bank
        leaves it as it is. "set": its mean over all training pixels. The scale is always that of the training pixels.

    Attributes
    ----------
    banks_ : list of FilterBank
        Copies of the banks, fitted or with given weights. The banks themselves are left alone.

    Examples
    --------
    >>> from segkit import ScatteringBank
    >>> from segkit.features import MultiscaleBank, StackedBank
    >>> bank = StackedBank([ScatteringBank(J=1, L=2), MultiscaleBank(sigma_max=2)])
    >>> len(bank.channels(1)) == len(bank.banks[0].channels(1)) + len(bank.banks[1].channels(1))
    True
    """

    def __init__(
        self, banks: Sequence[FilterBank], *, normalization: Literal["image", "set"] = "image"
    ) -> None:
        self.banks = banks
        self.normalization = normalization

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels of all banks, in their order."""
        channels = [bank.channels(n_image_channels) for bank in self._used]
        names = [channel.name for part in channels for channel in part]
        if len(set(names)) == len(names):
            return tuple(channel for part in channels for channel in part)
        return tuple(
            Channel(f"{place}:{name}", f"{place}:{group}")
            for place, part in enumerate(channels, start=1)
            for name, group in part
        )

    def centred(self, n_image_channels: int = 3) -> NDArray[np.bool_]:
        """Return which channels are less their mean over the image: none, or those that the banks say."""
        return super().centred(n_image_channels) & (self.normalization == "image")

    @property
    def cross_fitted_part(self) -> FilterBank | None:
        """The banks that are cross-fitted, as they were fitted; None if all or none are."""
        part = [bank for bank in self._used if bank.is_cross_fitted]
        if len(part) in (0, len(self._used)):
            return None
        return part[0] if len(part) == 1 else self._of(part)

    @property
    def label(self) -> str:
        """Titles of the banks."""
        return " + ".join(bank.label for bank in self._used)

    @property
    def halo(self) -> int:
        """Largest halo of the banks."""
        return max(bank.halo for bank in self._used)

    def split_by_bank(
        self, channels: NDArray[np.intp], n_image_channels: int = 3
    ) -> list[tuple[FilterBank, NDArray[np.intp]]]:
        """List the banks that channels come from, each with those that are its own, numbered as here."""
        return [
            (part, numbers + channels[mine[0]] - own[0])
            for _, bank, mine, own in self._split(channels, n_image_channels)
            for part, numbers in bank.split_by_bank(own, n_image_channels)
        ]

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the maps of a tile bank by bank; see `FilterBank.iter_maps`."""
        wanted = self._wanted(channels, image.shape[2])
        for _, bank, mine, own in self._split(wanted, image.shape[2]):
            start = wanted[mine[0]] - own[0]
            for stack in bank.iter_maps(image, tile, own):
                yield replace(stack, indices=stack.indices + start)

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Count the maps of all banks, and the largest need of one of them while it works."""
        banks = self._used
        work = [
            bank.bytes_per_pixel(n_image_channels) - bank.bytes_of_maps(n_image_channels) for bank in banks
        ]
        return self.bytes_of_maps(n_image_channels) + max(work)

    def sample(
        self,
        image: ArrayLike,
        rows: NDArray[Any],
        cols: NDArray[Any],
        channels: NDArray[np.intp] | None = None,
        *,
        progress: Progress = pass_on,
    ) -> FloatArray:
        """Read features at n pixel positions; see `FilterBank.sample`."""
        image = as_image(image)
        wanted = self._wanted(channels, image.shape[2])
        out = np.empty((np.size(rows), wanted.size), dtype=np.float32)
        for _, bank, mine, own in self._split(wanted, image.shape[2]):
            out[:, as_slice(mine)] = bank.sample(image, rows, cols, own, progress=progress)
        return out

    def _given(self) -> Sequence[FilterBank]:
        banks = self.banks if isinstance(self.banks, Sequence) else ()
        if not banks or not all(isinstance(bank, FilterBank) for bank in banks):
            raise ConfigError(
                f"banks={self.banks!r}: give a list of filter banks, such as [ScatteringBank(), MultiscaleBank()]"
            )
        check_options(StackedBank, {"normalization": self.normalization})
        return banks
