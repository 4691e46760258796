"""Where a pixel lies in its picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image
from segkit.features.tiles import Tile, whole


class PositionBank(FilterBank):
    """How far a pixel is from the centre of its picture, in half sides.

    One channel, ``hypot((2 r + 1) / H - 1, (2 c + 1) / W - 1)`` for the pixel of row r and column c of an image of
    H x W pixels: 0 at the centre, 1 in the middle of a side, the square root of 2 in a corner.

    Notes
    -----
    Who takes a picture of a polyp, a mole or an organ points the camera at it, and what surrounds it ends at a frame
    or fades towards it. Networks learn as much from the zeros around their convolutions. Where fields of view are chosen
    blindly, as in most of microscopy, the channel tells no class apart. It misleads where
    the training images are crops about the objects and others are not: leave it out then. Symmetries of the square
    leave it as it is.

    References
    ----------
    M. A. Islam, S. Jia, N. D. B. Bruce, How much position information do convolutional neural networks encode?, ICLR
    2020, arXiv:2001.08248.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.features import PositionBank
    >>> PositionBank().dense(np.zeros((1, 5)))[0].round(1)
    array([[0.8, 0.4, 0. , 0.4, 0.8]], dtype=float32)
    """

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:  # noqa: ARG002
        """Give the one channel there is."""
        return (Channel("distance from the centre", "position"),)

    @property
    def halo(self) -> int:
        """None: what the pixels hold does not matter. A tile's own frame is not that of the image, though."""
        return 0

    def tiles(self, shape: tuple[int, ...]) -> list[Tile]:
        """Leave the image whole, for its frame is what the channel tells of."""
        return [whole(shape)]

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the map, if it is wanted; see `FilterBank.maps`."""
        image = as_image(image)
        wanted = self._wanted(channels, image.shape[2])
        if not wanted.size:
            return []
        rows, cols = ((2 * np.arange(length) + 1) / length - 1 for length in image.shape[:2])
        distance = np.hypot(rows[:, None], cols)
        return [FeatureMaps(distance[None].astype(np.float32), wanted)]
