"""Features of one image for live work: of every pixel, tile by tile, and of a coarse grid of pixels at once."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, IntArray
from segkit._common.memory import bytes_left
from segkit.features import FeatureMaps, FilterBank
from segkit.features.base import as_slice, sample_maps
from segkit.features.normalised import even_grid, image_means
from segkit.features.tiles import whole
from segkit.features.views import Tiling, View, moved_to
from segkit.live.cache import FeatureCache, are_whole, content_key

Box = tuple[int, int, int, int]

# Cells of the coarse grid, at most.
COARSE_CELLS = 2**15
# Bytes of maps of one image that may stay in memory where the cache on disk could not take them.
MEMORY_LIMIT = 2**30


class ImageFeatures:
    """Features of one image, computed once and kept in a cache on disk."""

    def __init__(self, image: FloatArray, bank: FilterBank, cache: FeatureCache) -> None:
        self._image, self._bank, self._cache = image, bank, cache
        self.shape: tuple[int, int] = image.shape[:2]
        self.n_channels = bank.n_channels(image.shape[2])
        parts = bank.split_by_bank(np.arange(self.n_channels), image.shape[2])
        self._tiling = Tiling(image, bank, parts)
        self._key = content_key(image, bank, "live")
        self._kept: OrderedDict[str, list[FeatureMaps]] = OrderedDict()
        self._steps: Iterator[float] | None = None
        self.stride = 1  # between cells of the coarse grid
        while math.prod(-(-side // self.stride) for side in self.shape) > COARSE_CELLS:
            self.stride *= 2
        self.means: FloatArray | None = None  # (n_channels,); 0 for channels that are not centred
        self.coarse: FloatArray | None = (
            None  # (n_channels, h, w), less the means, at the middle of each cell
        )

    @property
    def is_ready(self) -> bool:
        """Whether `prepare` has come to its end."""
        return self.coarse is not None

    def is_of(self, image: FloatArray) -> bool:
        """Return whether they are the features of these pixels, (H, W, C)."""
        return np.array_equal(self._image, image)

    def advance(self) -> float:
        """Do the next step of `prepare`, and return the share done; after an error it begins anew."""
        self._steps = self._steps or self.prepare()
        try:
            return next(self._steps, 1.0)
        except BaseException:
            self._steps = None
            raise

    def prepare(self) -> Iterator[float]:
        """Compute means and coarse grid in steps of a fraction of a second; yields the share done."""
        if self.is_ready:
            return
        key = f"{self._key}-coarse"
        stored = self._cache.get(key)
        if stored is not None and len(stored) == 2:
            self.means, self.coarse = np.array(stored[0].values[:, 0, 0]), np.array(stored[1].values)
            yield 1.0
            return
        grid = even_grid(self.shape)
        cells = self.cells()
        at_grid = np.empty((grid[0].size, self.n_channels), dtype=np.float32)
        at_cells = np.empty((cells[0].size, self.n_channels), dtype=np.float32)
        positions = cells[0].ravel(), cells[1].ravel()
        tiles = self._tiling.tiles
        for place in range(len(tiles)):
            for done in self._compute(place):
                yield 0.95 * (place + done) / len(tiles)
            view = self._view(place)
            _sample_into(at_grid, view, grid)
            _sample_into(at_cells, view, positions)
        means = image_means(at_grid, self._bank.centred(self._image.shape[2]))
        at_cells -= means
        coarse = np.ascontiguousarray(at_cells.T.reshape(self.n_channels, *cells.shape[1:]))
        every = np.arange(self.n_channels)
        self._cache.put(
            key,
            [
                FeatureMaps(means[:, None, None], every, 1.0, 0.0),
                FeatureMaps(coarse, every, float(self.stride), self.stride // 2),
            ],
        )
        self.means, self.coarse = means, coarse
        yield 1.0

    def sample(self, rows: IntArray, cols: IntArray) -> FloatArray:
        """Read all channels at some pixels, less their image means; (n, n_channels)."""
        assert self.means is not None
        X = np.empty((rows.size, self.n_channels), dtype=np.float32)
        for place, tile in enumerate(self._tiling.tiles):
            if tile.holds(rows, cols).any():
                _sample_into(X, self._view(place), (rows, cols))
        X -= self.means
        return X

    def views(self, box: Box) -> Iterator[View]:
        """Return views that together show a box of the image."""
        top, left, bottom, right = box
        for place, tile in enumerate(self._tiling.tiles):
            rows, cols = tile.core
            core = (
                slice(max(top, rows.start), min(bottom, rows.stop)),
                slice(max(left, cols.start), min(right, cols.stop)),
            )
            if all(side.start < side.stop for side in core):
                yield self._view(place).within(core)

    def store(self) -> None:
        """Put maps that are in memory only into the cache."""
        for key, maps in list(self._kept.items()):
            if _bytes_in_memory(maps):
                self._kept[key] = self._cache.put(key, maps)

    def cells(self, step: int = 1) -> IntArray:
        """Return rows and columns of the middles of every step-th cell of the coarse grid, (2, h, w)."""
        every = np.indices([-(-side // self.stride) for side in self.shape])[:, ::step, ::step]
        middles = every * self.stride + self.stride // 2
        last = np.reshape(self.shape, (2, 1, 1)) - 1  # a cell may lie beyond the last pixel
        return np.asarray(np.minimum(middles, last))

    def _view(self, place: int) -> View:
        """Return the maps of a tile: from memory, from the cache, or computed anew."""
        for _ in self._compute(place):
            pass
        tile = self._tiling.tiles[place]
        return View(tile, [*self._maps(f"tile{place}"), *moved_to(tile, self._maps("whole"))])

    def _compute(self, place: int) -> Iterator[float]:
        """Compute maps that are neither in memory nor in the cache; yields how much is done."""
        tiling, bank = self._tiling, self._bank
        every = whole(self._image.shape)
        jobs = [
            ("whole", every, tiling.whole_parts),
            (f"tile{place}", tiling.tiles[place], tiling.local_parts),
        ]
        jobs = [job for job in jobs if self._find(job[0]) is None]
        n_parts = sum(len(parts) for *_, parts in jobs)
        n_done = 0
        for name, tile, parts in jobs:
            maps: list[FeatureMaps] = []
            for channels in parts:
                maps += bank.tile_maps(self._image, tile, channels)
                n_done += 1
                yield n_done / n_parts
            self._keep(f"{self._key}-{name}", maps)

    def _find(self, name: str) -> list[FeatureMaps] | None:
        key = f"{self._key}-{name}"
        if key not in self._kept or not are_whole(self._kept[key]):
            self._kept.pop(key, None)
            stored = self._cache.get(key)
            if stored is None:
                return None
            self._kept[key] = stored
        self._kept.move_to_end(key)
        return self._kept[key]

    def _maps(self, name: str) -> list[FeatureMaps]:
        maps = self._find(name)
        assert maps is not None
        return maps

    @property
    def _kept_bytes(self) -> int:
        return sum(map(_bytes_in_memory, self._kept.values()))

    def _keep(self, key: str, maps: list[FeatureMaps]) -> None:
        """Keep new maps. Those of the first tile stay in memory at first, so that painting need not wait for the disk."""
        is_only = len(self._tiling.tiles) == 1
        self._kept[key] = maps if is_only else self._cache.put(key, maps)
        while len(self._kept) > 2 and self._kept_bytes > min(MEMORY_LIMIT, self._kept_bytes + bytes_left()):
            oldest = next(other for other in self._kept if other != key and not other.endswith("-whole"))
            del self._kept[oldest]


def _sample_into(out: FloatArray, view: View, positions: tuple[NDArray[Any], NDArray[Any]]) -> None:
    """Read all channels at the positions in the core of a tile into their rows."""
    mine, at = view.positions(positions)
    if mine.any():
        out[as_slice(np.flatnonzero(mine))] = sample_maps(view.stacks, *at)


def _bytes_in_memory(maps: list[FeatureMaps]) -> int:
    return sum(0 if isinstance(stack.values, np.memmap) else stack.values.nbytes for stack in maps)
