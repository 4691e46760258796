"""Scattering networks as filter banks (paper, section 7.2.2).

Filters are built for one shape of plane. Images are therefore cut into equal overlapping tiles. Tiles of one shape share
their filters, images may have any size, and memory is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.fft import next_fast_len

from segkit._common import FloatArray
from segkit._common.device import told_if_full, torch_device
from segkit._common.memory import require_bytes
from segkit._common.threads import in_threads
from segkit.errors import ConfigError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image, share_out
from segkit.features.morlet import Scattering, paths_of, side_of_wavelet
from segkit.features.options import ONCE
from segkit.images.headers import HARMLESS_BYTES

_TILES_AT_ONCE = 16
# Overlap of tiles in cells of 2**J pixels. The averaging window has a standard deviation of 0.8 cells, and
# the wavelets reach about as far. With 2 cells, single values were wrong by half a standard deviation.
_CELLS = 3
# Longest side of tiles in pixels, with overlap. Spectra of larger tiles do not fit in the processor's cache.
_LONGEST = 400
# The largest J for tiles of this side; with each larger J the side doubles, or overlap would fill the tiles.
_WIDEST = 4
# The largest J: filters of the next one would take minutes and gigabytes.
_LARGEST = 6
Scale = Annotated[int, Field(gt=0, le=_LARGEST)]
_MOST_PATHS = 20_000
# Side in pixels of the square that a wavelet is sampled in.
_LONGEST_WAVELET = 2048
# Bytes of a filter for each pixel of a tile: in double precision while filters are made, and its parts in single precision.
_BYTES_OF_FILTER = 16


class ScatteringBank(FilterBank):
    """Scattering coefficients: moduli of wavelet responses, averaged over windows of 2**J pixels.

    Each image channel is transformed separately, so images may have any number of channels.

    Parameters
    ----------
    J : int or sequence of int, default=(1, 2, 3)
        Averaging scale, from 1 to 6. Maps are averaged over about 2**J pixels and have a stride of 2**J pixels.
        Several scales give the maps of all: small scales place borders, large scales distinguish textures.
    L : int, default=8
        Number of wavelet angles over half a turn.
    max_order : {1, 2}, default=2
        Number of wavelet-modulus layers.
    angles : {"each", "averaged"}, default="each"
        "each": a channel for each path. "averaged": a channel for each orbit of paths under reflections and
        turns of the image by multiples of 180 / L degrees, the mean of the orbit. The angle between the two wavelets
        of the second order is kept. For J = 3 and L = 4 these are 13 channels instead of 61.
        Cells are at multiples of 2**J pixels from the first row and column of the image, turned or not. Maps
        therefore turn exactly with images whose sides are one more than such a multiple. For other sides the
        error is that of interpolation between cells.
    pixels : bool, default=True
        Whether the pixel values themselves (the empty path without averaging) are channels too.
    frontend : {"numpy", "torch"}, default="numpy"
        "numpy": segkit's own transform. "torch": kymatio's. Both give the same maps, to rounding; kymatio takes several
        times as long, and seconds to build its filters.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 7.9-7.13.

    J. Bruna, S. Mallat, Invariant scattering convolution networks, IEEE TPAMI 35(8), 2013,
    arXiv:1203.1513.

    L. Sifre, S. Mallat, Rotation, scaling and deformation invariant scattering for texture discrimination, CVPR 2013
    (averages over rotations, here of scattering coefficients).

    M. Andreux et al., Kymatio: scattering transforms in Python, JMLR 21(60), 2020.

    Examples
    --------
    >>> from segkit import ScatteringBank
    >>> bank = ScatteringBank(J=2, L=4)
    >>> len(bank.channels(1))
    26
    >>> bank.channels(1)[-1].name
    'J2 order 2: j=0 angle=135 > j=1 angle=135'
    """

    def __init__(
        self,
        J: Scale | Annotated[Sequence[Scale], Field(min_length=1), ONCE] = (1, 2, 3),
        *,
        L: Annotated[int, Field(gt=0, le=64)] = 8,
        max_order: Literal[1, 2] = 2,
        angles: Literal["each", "averaged"] = "each",
        pixels: bool = True,
        frontend: Literal["numpy", "torch"] = "numpy",
    ) -> None:
        self.J = J
        self.L = L
        self.max_order = max_order
        self.angles = angles
        self.pixels = pixels
        self.frontend = frontend

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the pixel channels, then the paths by averaging scale, image channel and path."""
        prefixes = [f"c{index} " if n_image_channels > 1 else "" for index in range(n_image_channels)]
        pixels = [Channel(f"{prefix}pixel", "pixels") for prefix in prefixes if self.pixels]
        return tuple(pixels) + tuple(
            Channel(f"{prefix}J{scale} {name}", f"J{scale} order {order}")
            for scale in self._scales()
            for prefix in prefixes
            for order, name in self._names(scale)
        )

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Return the stride in pixels of each channel's map, in channel order."""
        scales = self._scales()
        strides = [1.0] * self.pixels + [2.0**scale for scale in scales]
        paths = [1] * self.pixels + [len(self._names(scale)) for scale in scales]
        return np.repeat(strides, np.multiply(paths, n_image_channels))

    @property
    def halo(self) -> int:
        """Overlap of the tiles at the largest scale."""
        return _margin(max(self._scales()))

    @property
    def alignment(self) -> int:
        """Size of a cell at the largest scale."""
        return int(2 ** max(self._scales()))

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        n_image_channels = image.shape[2]
        channels = self._wanted(channels, n_image_channels)
        scales = self._scales()
        n_paths = [len(self._names(scale)) for scale in scales]
        stacks: list[FeatureMaps] = []
        sizes = n_image_channels * np.array([int(self.pixels), *n_paths])
        for part, mine, own in share_out(channels, sizes.tolist()):
            if part == 0:
                values = np.ascontiguousarray(image.transpose(2, 0, 1)[own])
                stacks.append(FeatureMaps(values, channels[mine]))
            else:
                scale = scales[part - 1]
                values = self._scatter(image, scale, *np.divmod(own, n_paths[part - 1]))
                stacks.append(FeatureMaps(values, channels[mine], stride=2.0**scale))
        return stacks

    def _scales(self) -> tuple[int, ...]:
        self._check()
        scales: tuple[Any, ...] = tuple(self.J) if np.ndim(self.J) else (self.J,)  # type: ignore[arg-type]
        # Counted, not listed: a list of them all may be longer than memory.
        n_paths = sum(
            1 + scale * self.L + (self.max_order == 2) * self.L**2 * scale * (scale - 1) // 2
            for scale in scales
        )
        if n_paths > _MOST_PATHS:
            raise ConfigError(
                f"J={self.J} with L={self.L}: {n_paths:,} paths, at most {_MOST_PATHS:,} can be computed; give fewer angles"
            )
        if (side := side_of_wavelet(max(scales) - 1, self.L)) > _LONGEST_WAVELET:
            raise ConfigError(
                f"J={self.J} with L={self.L}: wavelets of {side:,} pixels, at most {_LONGEST_WAVELET:,} can be computed; "
                "give fewer angles or a smaller J"
            )
        return scales

    def _names(self, scale: int) -> tuple[tuple[int, str], ...]:
        """List order and name of the channels of a scale, for one image channel."""
        if self.angles == "averaged":
            return _averages(scale, self.L, self.max_order)[0]
        return tuple((order, name) for order, name, _ in _paths(scale, self.L, self.max_order))

    def _scatter(
        self, image: FloatArray, scale: int, view: NDArray[np.intp], path: NDArray[np.intp]
    ) -> FloatArray:
        """Compute coefficients `path[i]` of image channel `view[i]`; returns (n, ceil(H/2^J), ceil(W/2^J))."""
        height, width = image.shape[:2]
        used, which = np.unique(view, return_inverse=True)
        cores = [_least_tile(length, scale) for length in (height, width)]
        tiles = _cut(image[:, :, used], cores, _margin(scale))
        transform = _scattering(scale, tiles.shape[-2:], self.L, self.max_order, self.angles, self.frontend)
        rows, cols = tiles.shape[:2]
        cells = [core >> scale for core in cores]
        out = np.empty((view.size, rows, cells[0], cols, cells[1]), dtype=np.float32)
        places = list(np.ndindex(tiles.shape[:3]))

        def scatter(place: tuple[int, ...]) -> FloatArray:
            return transform(tiles[place].copy(), path[which == place[2]])

        for start in range(0, len(places), _TILES_AT_ONCE):
            batch = places[start : start + _TILES_AT_ONCE]
            for (row, col, channel), found in zip(batch, in_threads(scatter, batch), strict=True):
                out[which == channel, row, :, col] = found
        whole = out.reshape(view.size, rows * cells[0], cols * cells[1])
        return np.ascontiguousarray(whole[:, : -(-height >> scale), : -(-width >> scale)])


def _margin(scale: int) -> int:
    """Compute the overlap of tiles in pixels."""
    return int(_CELLS * 2**scale)


def _least_tile(length: int, scale: int) -> int:
    """Choose the length of tiles, without overlap, for the fewest transformed pixels along a side of the image."""
    overlap = 2 * _margin(scale)
    longest = _LONGEST << max(0, scale - _WIDEST)

    def side(n_tiles: int) -> int:
        return _fast_side(-(-length // n_tiles) + overlap, scale)

    # sides are rounded up, so that the longest that fits may be shorter than `longest`
    fewest = next(n for n in count(max(1, length // longest)) if side(n) <= longest)
    counts = range(fewest, max(fewest, 1 + -(-length // (longest - overlap))) + 1)
    return side(min(counts, key=lambda n: n * side(n))) - overlap


def _fast_side(length: int, scale: int) -> int:
    """Find a multiple of the cell, and of an eighth of the next power of two, that transforms fast at each level."""
    step = max(1 << scale, 1 << max(0, length.bit_length() - 4))
    return step * int(next_fast_len(-(-length // step), real=False))


def _cut(image: FloatArray, cores: Sequence[int], margin: int) -> FloatArray:
    """Cut an image, mirrored at its edges, into overlapping tiles (rows, cols, C, height, width)."""
    pads = [(margin, margin + -size % core) for size, core in zip(image.shape[:2], cores, strict=True)]
    padded = np.pad(image, (*pads, (0, 0)), mode="symmetric")
    window = (cores[0] + 2 * margin, cores[1] + 2 * margin)
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=(0, 1))
    return windows[:: cores[0], :: cores[1]]


@lru_cache(maxsize=8)
def _scattering(
    scale: int,
    shape: tuple[int, int],
    L: int,
    max_order: int,
    angles: str,
    frontend: str,
) -> Callable[[FloatArray, NDArray[np.intp]], FloatArray]:
    """Build the transform of a tile, for some of its paths or orbits: (height, width) -> (n, cells, cells)."""
    needed = _BYTES_OF_FILTER * scale * L * shape[0] * shape[1]
    if needed > HARMLESS_BYTES:
        require_bytes(
            needed, what=f"scattering with J={scale}, L={L} of {shape[0]} x {shape[1]} pixels at a time"
        )
    weights = _averages(scale, L, max_order)[1]
    n_paths = weights.shape[1]
    outputs = weights.argmax(axis=0) if angles == "averaged" else np.arange(n_paths)
    if frontend == "numpy":
        return Scattering(scale, shape, L, max_order, outputs, _CELLS)
    return _of_kymatio(
        scale, shape, L, max_order, weights if angles == "averaged" else np.eye(n_paths, dtype=np.float32)
    )


def _of_kymatio(
    scale: int, shape: tuple[int, int], L: int, max_order: int, weights: FloatArray
) -> Callable[[FloatArray, NDArray[np.intp]], FloatArray]:
    import torch
    from kymatio import Scattering2D

    # The tiles overlap already. With pre_pad, kymatio adds no margin and drops one cell at each edge.
    unpadded = (shape[0] - 2 * 2**scale, shape[1] - 2 * 2**scale)
    scattering = Scattering2D(
        J=scale, shape=unpadded, L=L, max_order=max_order, frontend="torch", pre_pad=True
    )

    def transform(plane: FloatArray, wanted: NDArray[np.intp]) -> FloatArray:
        with torch.inference_mode(), told_if_full():
            signal = torch.from_numpy(plane).to(torch_device())
            coefficients = scattering.to(signal.device)(signal).cpu().numpy()
        inner = slice(_CELLS - 1, 1 - _CELLS)
        return np.tensordot(weights[wanted], coefficients[:, inner, inner], axes=1)

    return transform


@lru_cache(maxsize=32)
def _paths(scale: int, L: int, max_order: int) -> tuple[tuple[int, str, str], ...]:
    """List order and name of each scattering path, in kymatio's order, and the name of its orbit under turns."""
    listed = []
    for path in paths_of(scale, L, max_order):
        wavelets = " > ".join(f"j={j} angle={180 * angle / L:g}" for j, angle in path)
        orbit = " > ".join(f"j={j}" for j, _ in path)
        if len(path) == 2:
            turn = (path[0][1] - path[1][1]) % L
            orbit += f", {180 * min(turn, L - turn) / L:g} degrees apart"
        order, colon = f"order {len(path)}", ": " * bool(path)
        listed.append((len(path), f"{order}{colon}{wavelets}", f"{order}{colon}{orbit}"))
    return tuple(listed)


@lru_cache(maxsize=32)
def _averages(scale: int, L: int, max_order: int) -> tuple[tuple[tuple[int, str], ...], FloatArray]:
    """List order and name of each orbit of paths, with the weights (n_orbits, n_paths) of their means."""
    classes = [(order, name) for order, _, name in _paths(scale, L, max_order)]
    names = tuple(dict.fromkeys(classes))
    members = np.array([[name == of_path for of_path in classes] for name in names], dtype=np.float32)
    return names, members / members.sum(axis=1, keepdims=True)
