"""Pictures of an image for the browser: a thumbnail, and 512-pixel tiles of a pyramid.

Browsers show 8 bits. Images of other depths are stretched between two percentiles of each channel, or between two values
that the user chose.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segkit.errors import InputError
from segkit.images.contrast import Depth, contrast_of, depth_of

TILE = 512
THUMBNAIL = 192
_MOST_THUMBNAILS = 2000
# Pyramids kept in memory: the image in work is always kept.
_MEMORY = 2**29
# Colours of the channels of an image that has neither 1 nor 3: magenta, green, yellow, blue, orange, grey.
_TINTS = np.array(
    [(1, 0, 1), (0, 1, 0), (1, 1, 0), (0.2, 0.4, 1), (1, 0.5, 0), (0.6, 0.6, 0.6)], dtype=np.float32
)


@dataclass(frozen=True, eq=False)
class Pyramid:
    """An image and its halves, quarters, ..., as integers."""

    levels: list[NDArray[Any]]  # the image first; each pixel is the mean of 2 x 2 of the level before
    depth: Depth  # of the file, as its values tell
    offset: float
    step: float  # the image in [0, 1] is offset + step * levels[0]
    low: NDArray[np.float64]
    high: NDArray[np.float64]  # values in [0, 1] that are shown black and white by default, by channel

    @property
    def n_bytes(self) -> int:
        """Memory that all levels take."""
        return sum(level.nbytes for level in self.levels)


def build_pyramid(image: NDArray[np.float32]) -> Pyramid:
    """Halve an image until it fits a tile."""
    depth = depth_of(image)
    offset, span = 0.0, 1.0
    if depth == "float":  # a narrow range would lose its steps
        offset = float(image.min())
        span = float(image.max()) - offset or 1.0
    dtype = np.dtype(np.uint8 if depth == "8" else np.uint16)
    largest = 255 if depth == "8" else 65535
    levels = [np.rint((image - np.float32(offset)) * np.float32(largest / span)).astype(dtype)]
    while max(levels[-1].shape[:2]) > TILE:
        levels.append(halve(levels[-1]))
    n_channels = image.shape[2]
    if depth == "8":
        low, high = np.zeros(n_channels), np.ones(n_channels)
    else:
        low, high = contrast_of(image)
    return Pyramid(levels, depth, offset, span / largest, low, high)


def halve(image: NDArray[Any]) -> NDArray[Any]:
    """Average 2 x 2 pixels; an odd last row or column is averaged with itself."""
    height, width = image.shape[:2]
    if height % 2 or width % 2:
        image = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    total = image[::2, ::2].astype(np.uint32)
    for rows, columns in ((0, 1), (1, 0), (1, 1)):
        total += image[rows::2, columns::2]
    total += 2
    return (total >> 2).astype(image.dtype)


def render_tile(
    pyramid: Pyramid,
    level: int,
    row: int,
    column: int,
    *,
    channel: int | None = None,
    low: float | None = None,
    high: float | None = None,
) -> NDArray[np.uint8]:
    """Draw one tile with 8 bits."""
    if not 0 <= level < len(pyramid.levels):
        raise InputError(f"level {level} of an image with levels 0 to {len(pyramid.levels) - 1}")
    whole = pyramid.levels[level]
    tile = whole[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
    if row < 0 or column < 0 or not tile.size:
        raise InputError(
            f"tile {row}, {column} of level {level}, which is {whole.shape[0]} x {whole.shape[1]} pixels"
        )
    n_channels = whole.shape[2]
    if channel is not None and not 0 <= channel < n_channels:
        raise InputError(f"channel {channel} of an image with channels 0 to {n_channels - 1}")
    if low is not None and high is not None and not low < high:
        raise InputError(f"contrast from {low:g} to {high:g}: the first must be below the second")
    shown = slice(None) if channel is None else slice(channel, channel + 1)
    black, white = (
        ((own if given is None else given) - pyramid.offset) / pyramid.step
        for own, given in ((pyramid.low[shown], low), (pyramid.high[shown], high))
    )
    span = np.maximum(white - black, 1e-9)
    share = ((tile[:, :, shown] - black) / span).clip(0, 1).astype(np.float32)
    if share.shape[2] == 1:
        share = share[:, :, 0]
    elif n_channels != 3:
        # Each channel takes away some of the dark, so that many channels saturate late.
        dark: NDArray[np.float32] = np.ones((*tile.shape[:2], 3), dtype=np.float32)
        for index in range(n_channels):
            dark *= 1 - share[:, :, index, None] * _TINTS[index % len(_TINTS)]
        share = 1 - dark
    return np.asarray(np.rint(255 * share), dtype=np.uint8)


def encode(picture: NDArray[np.uint8], *, compression: int = 0) -> bytes:
    """Write a PNG; by default without compression, which costs more than sending within one machine."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", compress_level=compression)
    return file.getvalue()


class Pictures:
    """Pyramids and thumbnails of the images of a project; a few of them stay in memory."""

    def __init__(self, read: Callable[[str], NDArray[np.float32]]) -> None:
        self._read = read
        self._pyramids: OrderedDict[str, Pyramid] = OrderedDict()
        self._known_thumbnail = lru_cache(_MOST_THUMBNAILS)(self._draw_thumbnail)
        # One image at a time is read for each purpose: a folder of thumbnails must not hold up the tiles.
        self._pyramid_lock, self._thumbnail_lock = threading.Lock(), threading.Lock()

    def pyramid(self, key: str) -> Pyramid:
        """Return the pyramid of an image; raises what reading it raises."""
        with self._pyramid_lock:
            if key not in self._pyramids:
                self._pyramids[key] = build_pyramid(self._read(key))
            self._pyramids.move_to_end(key)
            while (
                len(self._pyramids) > 1
                and sum(pyramid.n_bytes for pyramid in self._pyramids.values()) > _MEMORY
            ):
                self._pyramids.popitem(last=False)
            return self._pyramids[key]

    def forget(self, key: str) -> None:
        """Read an image anew when it is asked for next."""
        with self._pyramid_lock:
            self._pyramids.pop(key, None)
        self._known_thumbnail.cache_clear()

    def thumbnail(self, key: str) -> bytes:
        """Return the PNG of a small picture of an image; raises what reading it raises."""
        with self._thumbnail_lock:
            return self._known_thumbnail(key)

    def _draw_thumbnail(self, key: str) -> bytes:
        pyramid = self._pyramids.get(key) or build_pyramid(self._read(key))
        small = Image.fromarray(render_tile(pyramid, len(pyramid.levels) - 1, 0, 0))
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        return encode(np.asarray(small), compression=6)
