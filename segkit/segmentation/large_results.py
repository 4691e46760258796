"""Results of an image that is read by region, made of the decisions on its tiles, which lie on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit._common.files import saving
from segkit._common.memory import bytes_left
from segkit.errors import InputError, count
from segkit.features.tiles import Tile
from segkit.images import UNLABELLED, PixelSize, write_overlay
from segkit.images.geojson import write_features
from segkit.images.large_image import Grid, LargeImage
from segkit.images.pixel_size import GIVEN
from segkit.images.polygons import Polygon
from segkit.images.pyramids import OnDisk, Pyramid, write_pyramid
from segkit.objects.by_block import Make, Region, split_by_block
from segkit.objects.measure import Table
from segkit.objects.measure_by_block import Pixels, measure_by_block, trace_by_block
from segkit.objects.pictures import write_object_overlay
from segkit.segmentation.regions import merge_small_regions_by_strips
from segkit.segmentation.results import Job, Made, measured_place
from segkit.segmentation.segmenter import Segmenter
from segkit.segmentation.threshold import label_pixels

# Bytes for each pixel of a strip while small regions are merged: pieces, distances, classes.
_BYTES_OF_MERGING = 80
_MOST_ROWS = 2048
_NAME = "segkit"
# Rows of decisions that are made probabilities at once, and of a strip of which pixels are counted.
_ROWS_AT_ONCE = 256
_DIGITS = 4
# The longer side of an overlay is at most so many pixels.
LONGEST_OVERLAY = 2048


def place_of(folder: Path, number: int, kind: str = "") -> Path:
    """Return the file of the decisions on classes, or of another kind, of a tile."""
    return folder / "tiles" / f"{number:06d}{kind and f'.{kind}'}.npy"


class RegionResults:
    """Writes results of an image whose tiles are decided, a few of them in memory at a time."""

    def __init__(
        self,
        segmenter: Segmenter,
        image: LargeImage,
        job: Job,
        folder: Path,
        tiles: Sequence[Tile],
        staging: Path,
        pixel_size: PixelSize | None,
    ) -> None:
        self.segmenter, self.image, self.job = segmenter, image, job
        self.folder, self.tiles, self.staging = folder, tiles, staging
        self.grid = image.grid if pixel_size is None else Grid.of(pixel_size)
        size = self.grid.pixel_size
        source = GIVEN if pixel_size is not None else "metadata of the image" if size else ""
        self.pixel_size, self.size_source = size, source
        self.rule = segmenter.rule_.adapted_to_parts(lambda: (decisions for _, decisions in self._decided()))

    def write(self, kinds: Sequence[str]) -> Made:
        """Write the labels and other kinds of results aside."""
        height, width = self._shape
        columns: dict[str, Any] = {"height": height, "width": width, "pages": 1}
        ids, numbers, fault = self._label(), None, ""
        extras = {kind: self.job.places(kind) for kind in kinds}
        hidden: list[Path] = []
        if "probability" in extras:
            self._write_probability(self.staging / extras["probability"][0])
        if "objects" in extras:
            try:
                numbers, fault = self._write_objects(extras, ids)
            except (InputError, MemoryError) as error:
                told = "out of memory: raise --memory-limit, or take a coarser level (data.level)"
                fault = str(error) if isinstance(error, InputError) else told
                extras = {
                    kind: places for kind, places in extras.items() if kind in ("probability", "overlay")
                }
            else:
                hidden = [measured_place(self.job.name)]
        if "overlay" in extras:
            self._write_overlay(self.staging / extras["overlay"][0], ids, numbers)
        classes = self.segmenter.classes_
        lookup = np.full(256, UNLABELLED, dtype=np.result_type(classes.dtype, np.uint8))
        lookup[: classes.size] = classes
        write_pyramid(self.staging / self.job.mask, Pyramid(ids, self.grid, lookup), label_name=_NAME)
        columns["shares"] = self._shares(ids)
        for left in (ids, *([] if numbers is None else [numbers])):
            left.remove()
        places = [*hidden, *(place for places in extras.values() for place in places), self.job.mask]
        return Made(places, columns, fault=fault)

    def _label(self) -> OnDisk:
        """Label all pixels by class ids, 255 where a tile could not be decided."""
        raw = self._make("ids", np.uint8, UNLABELLED)
        for tile, decisions in self._decided():
            raw[tile.core] = label_pixels(decisions, self.rule.threshold)
        least = self.rule.least_areas
        if not least.any():
            return raw
        merged = self._make("merged", np.uint8)
        merge_small_regions_by_strips(cast(Any, raw), cast(Any, merged), least, self._rows_of_strip())
        raw.remove()
        return merged

    def _shares(self, ids: OnDisk) -> str:
        """List the share of each class in the pixels, and that of those without one."""
        counts = np.zeros(256, dtype=np.int64)
        for row in range(0, len(ids), _ROWS_AT_ONCE):
            counts += np.bincount(ids[row : row + _ROWS_AT_ONCE].ravel(), minlength=256)
        names = [*enumerate(self.segmenter.label_map_.names)]
        names += [(UNLABELLED, "unlabelled")] if counts[UNLABELLED] else []
        return "; ".join(f"{name} {round(counts[value] / ids.size, _DIGITS):g}" for value, name in names)

    def _write_probability(self, place: Path) -> None:
        """Write the probability map of all tiles, of the second of two classes, or of each class."""
        n_classes = self.segmenter.classes_.size
        shape = self._shape if n_classes == 2 else (n_classes, *self._shape)
        maps = OnDisk.make(self.folder / "maps.npy", shape, np.nan, np.float32)
        for at, found in self._probabilities():
            maps[(..., *at)] = found[:, :, 1] if n_classes == 2 else found.transpose(2, 0, 1)
        write_pyramid(place, Pyramid(maps, self.grid))
        maps.remove()

    def _write_objects(self, extras: dict[str, list[Path]], ids: OnDisk) -> tuple[OnDisk, str]:
        """Write the objects and their measurements; return them, and what of them is missing."""
        splitter, scratch = self.segmenter.objects_.splitter, dict[str, OnDisk]()

        def make(name: str, dtype: Any) -> OnDisk:
            scratch[name] = self._make(name, dtype)
            return scratch[name]

        try:
            foreground = self._foreground(make) if splitter.needs_probability else None
            learnt = self._depth(make) if splitter.needs_inside else foreground
            labels, n_objects = split_by_block(
                splitter, ids, make, learnt if splitter.is_learnt else None, foreground
            )
            return labels, self._measure_objects(extras, labels, n_objects, scratch["filled"])
        except (InputError, MemoryError):
            if "labels" in scratch:
                scratch["labels"].remove()
            raise
        finally:
            for name in scratch.keys() - {"labels"}:
                scratch[name].remove()

    def _measure_objects(
        self, extras: dict[str, list[Path]], labels: OnDisk, n_objects: int, classes: OnDisk
    ) -> str:
        """Write label image, measurements and outlines of objects; tell what is missing of them."""
        write_pyramid(self.staging / extras["objects"][0], Pyramid(labels, self.grid), label_name=_NAME)
        regions = [tile.core for tile in self.tiles]

        def look(number: int, around: Region) -> Pixels:
            picture = self.image.as_stored(around)
            decisions = np.load(place_of(self.folder, number))
            of_parts = [part for _, part in self._in_parts(decisions)]
            return Pixels(
                picture[:, :, 0] if picture.shape[2] == 1 else picture,
                1 - np.concatenate(of_parts)[:, :, 0],
                classes[regions[number]],
            )

        table = measure_by_block(
            labels,
            n_objects,
            regions,
            look,
            n_classes=self.segmenter.classes_.size,
            pixel_size=self.pixel_size,
            channels=self.image.channels,
        )
        table["class"] = np.array(self.segmenter.label_map_.names)[table["class"]]
        with saving(self.staging / measured_place(self.job.name)) as temporary:
            size = np.array(json.dumps([self.pixel_size, self.size_source]))
            columns: Any = {f"0/{name}": values for name, values in table.items()}
            np.savez_compressed(temporary, pixel_size=size, **columns)
        return self._write_outlines(self.staging / extras["geojson"][0], labels, table)

    def _depth(self, make: Make) -> OnDisk:
        """Put the learnt depth in objects together from all tiles."""
        depth = make("depth", np.float32)
        for number, tile in enumerate(self.tiles):
            if (place := place_of(self.folder, number, "depth")).exists():
                depth[tile.core] = np.load(place)
        return depth

    def _foreground(self, make: Make) -> OnDisk:
        """Put the probability of the foreground together from all tiles."""
        foreground = make("foreground", np.float32)
        for at, found in self._probabilities():
            foreground[at] = 1 - found[:, :, 0]
        return foreground

    def _write_outlines(self, place: Path, labels: OnDisk, table: Table) -> str:
        """Write the outlines of all objects; tell those that memory does not hold."""
        left_out: list[int] = []

        def outlines() -> Iterator[tuple[int, list[Polygon], str | None]]:
            for number, polygons in trace_by_block(labels, table):
                if polygons is None:
                    left_out.append(number)
                else:
                    yield number, polygons, str(table["class"][number - 1])

        write_features(place, outlines())
        if not left_out:
            return ""
        name = self.job.places("geojson")[0]
        return (
            f"{count(len(left_out), 'object')} (number {left_out[0]}) larger than memory holds: not in {name}; raise "
            "--memory-limit (Python: segkit.memory_limit)"
        )

    def _write_overlay(self, place: Path, ids: OnDisk, numbers: OnDisk | None) -> None:
        """Draw outlines over the image, made smaller where it has more pixels than an overlay."""
        step = ceil(max(self._shape) / LONGEST_OVERLAY)
        height, width = (ceil(length / step) for length in self._shape)
        picture = np.zeros((height, width, self.image.shape[2]), dtype=np.float32)
        own = (numbers or ids)[::step, ::step]
        side = max(1, LONGEST_OVERLAY // (2 * step))  # of a part of the picture
        for row, col in product(range(0, height, side), range(0, width, side)):
            at = slice(row, row + side), slice(col, col + side)
            try:
                part = self.image[
                    slice(row * step, (row + side) * step), slice(col * step, (col + side) * step)
                ]
            except InputError:  # told already, by the tile that could not be decided
                continue
            picture[at] = _smaller(part, step)
        if numbers is None:
            write_overlay(place, picture, own)
        else:
            write_object_overlay(place, picture, own)

    def _decided(self) -> Iterator[tuple[Tile, FloatArray]]:
        for number, tile in enumerate(self.tiles):
            if (place := place_of(self.folder, number)).exists():
                yield tile, np.load(place)

    def _probabilities(self) -> Iterator[tuple[tuple[slice, slice], FloatArray]]:
        """Return probabilities (h, w, n_classes) of all pixels, a few rows of a tile at a time, with their place."""
        for tile, decisions in self._decided():
            rows, cols = tile.core
            for first, part in self._in_parts(decisions):
                at = rows.start + first
                yield (slice(at, at + len(part)), cols), part

    def _in_parts(self, decisions: FloatArray) -> Iterator[tuple[int, FloatArray]]:
        for first in range(0, len(decisions), _ROWS_AT_ONCE):
            yield first, self.rule.probabilities(decisions[first : first + _ROWS_AT_ONCE])

    @property
    def _shape(self) -> tuple[int, int]:
        return self.image.shape[:2]

    def _make(self, name: str, dtype: Any, fill: float = 0) -> OnDisk:
        return OnDisk.make(self.folder / f"{name}.npy", self._shape, fill, dtype)

    def _rows_of_strip(self) -> int:
        """Rows of a strip of which three fit into half of the memory that is left."""
        affordable = bytes_left() // (6 * _BYTES_OF_MERGING * self.image.shape[1])
        return int(np.clip(affordable, 64, _MOST_ROWS))


def _smaller(part: FloatArray, step: int) -> NDArray[np.float32]:
    """Average squares of pixels; those at the end may be cut."""
    height, width = part.shape[:2]
    ends = [np.arange(0, length, step) for length in (height, width)]
    sums = np.add.reduceat(np.add.reduceat(part.astype(np.float64), ends[0], axis=0), ends[1], axis=1)
    counts = [np.diff(end, append=length) for end, length in zip(ends, (height, width), strict=True)]
    return np.asarray(sums / np.multiply.outer(*counts)[:, :, np.newaxis], dtype=np.float32)
