"""Position of a pixel in its image."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit.features.base import Channel, FeatureMaps, TiledBank
from segkit.features.tiles import Tile


class PositionBank(TiledBank):
    """Distance of a pixel from the centre of its image, in half sides.

    The only channel is ``hypot((2 r + 1) / H - 1, (2 c + 1) / W - 1)`` for row r and column c of an image of
    H x W pixels: 0 at the centre, 1 in the middle of a side, the square root of 2 in a corner.

    Notes
    -----
    A camera is usually pointed at the polyp, mole or organ of interest, and the surroundings end at a frame or
    fade towards it. Networks learn the same from the zeros around their convolutions. In most of microscopy fields
    of view are arbitrary, and the channel does not distinguish classes. Leave it out if the training images are
    crops around the objects and other images are not: it would mislead. Reflections and quarter turns do not
    change it.

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
        """List the only channel."""
        return (Channel("distance from the centre", "position"),)

    @property
    def halo(self) -> int:
        """Zero: pixel values do not matter. Yet `maps` of a part are not those of the image, whose size matters."""
        return 0

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the map of a tile, whose place in the image is all that it depends on; see `FilterBank.tile_maps`."""
        wanted = self._wanted(channels, image.shape[2])
        if not wanted.size:
            return
        # The centres of pixels, from -1 to 1 across the image; the outermost are half a pixel inside.
        rows, cols = (
            (2 * np.arange(seen.start, seen.stop) + 1) / length - 1
            for seen, length in zip(tile.seen, image.shape[:2], strict=True)
        )
        distance = np.hypot(rows[:, None], cols)
        yield FeatureMaps(distance[None].astype(np.float32), wanted)
