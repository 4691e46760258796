"""Images larger than memory: read by region, and decided tile by tile.

The first pass reads features on the coarse grid, for the image means. The second decides each tile, and keeps its decisions
on disk until all are there: the threshold depends on all of them. What is done is found again by a run that resumes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress, Workers
from segkit._common.code import code_version
from segkit._common.files import describe_os_error, remove, saving, without_sync, write_text
from segkit._common.threads import single_threaded_blas
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.errors import ClusterError, InputError, OutputError, SegkitError, count, first_few
from segkit.features import FeatureMaps
from segkit.features.base import sample_maps
from segkit.features.normalised import even_grid, image_means
from segkit.features.stacked import StackedBank
from segkit.features.tiles import Tile
from segkit.features.views import View
from segkit.images import PixelSize
from segkit.images.large_image import LargeImage, open_large
from segkit.images.record import HIDDEN, Record, digest_values, key_of, stats_of
from segkit.objects.split import expected_depth
from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.dense import decide_in
from segkit.segmentation.large_results import RegionResults, place_of
from segkit.segmentation.model_file import digest_model
from segkit.segmentation.results import Job, Made
from segkit.segmentation.segmenter import Segmenter

# What a run leaves beside its tiles.
PLAN = "plan.json"


@single_threaded_blas()
def make_by_region(
    segmenter: BaseSegmenter,
    job: Job,
    record: Record,
    *,
    kinds: Sequence[str],
    pixel_size: PixelSize | None,
    axes: str | None,
    resume: bool,
    workers: Workers,
    follow: Progress,
) -> Made:
    """Segment an image region by region, and write its labels, and its probabilities, aside."""
    start = time.perf_counter()
    if not isinstance(segmenter, Segmenter):
        raise InputError(f"{job.source} is read by region, which only a Segmenter does: leave it out")
    if axes is not None:
        raise InputError(f"{job.source} is read by region, as one plane: leave out axes")
    parts = segmenter.objects_.parts if "objects" in kinds else None
    with open_large(job.source, job.level or 0) as image:
        _check_fit(segmenter, image)
        run = _TileRun(segmenter, image, job, record.output, follow, parts)
        run.prepare(keep=resume)
        run.decide(workers)
        with without_sync():
            results = RegionResults(segmenter, image, job, run.folder, run.tiles, record.staging, pixel_size)
            made = results.write(kinds)
    columns = made.columns | {"tiles": len(run.tiles), "seconds": round(time.perf_counter() - start, 2)}
    return made._replace(columns=columns, fault="; ".join(filter(None, (_describe(run.faults), made.fault))))


def _check_fit(segmenter: Segmenter, image: LargeImage) -> None:
    """Refuse an image that does not fit the model."""
    if segmenter.reading_.selected:
        told = ", ".join(segmenter.reading_.selected)
        raise InputError(
            f"{image.path} is read by region with all its channels, the model selects {told} of them: save these as an "
            "image, and train on such"
        )
    if image.shape[2] != segmenter.n_image_channels_:
        raise InputError(
            f"{image.path} has {image.shape[2]} channels, the model was trained on {segmenter.n_image_channels_}: give an "
            "image like the training images"
        )
    if not segmenter.bank_.is_local:
        raise InputError(
            f"{image.path}: bank {segmenter.bank_.label} needs the whole image at once: train without its fine filters"
        )


def _describe(faults: Sequence[str]) -> str:
    """Tell in one line what failed; nothing if nothing did."""
    if not faults:
        return ""
    told = first_few(faults, most=3, separator="; ")
    return f"{count(len(faults), 'fault')}: {told}; mend the file, and --resume (resume=True) does those parts again"


class _TileRun:
    """A run over the tiles of an image, with a folder for what is done."""

    def __init__(
        self,
        segmenter: Segmenter,
        image: LargeImage,
        job: Job,
        output: Path,
        progress: Progress,
        parts: PixelClassifier | None = None,
    ) -> None:
        self.image, self.progress = image, progress
        self.folder = output / HIDDEN / "large" / key_of(job.name)
        self.classifiers = [segmenter.classifier_, *([] if parts is None else [parts])]
        self.maps = _TileMaps(segmenter, image, job.level or 0, self.classifiers)
        made_of = {
            "segkit": code_version(),
            "image": [str(image.path.resolve()), job.level, list(image.shape)],
            "model": digest_model(segmenter),
            "decisions": len(self.classifiers),
        }
        self.made_of = digest_values(made_of)
        self.tiles: list[Tile] = []
        self.faults: list[str] = []
        self.means = np.zeros(self.maps.channels.size, dtype=np.float32)

    def prepare(self, *, keep: bool) -> None:
        """Take over tiles and image means of an earlier run, or make them."""
        plan = self.folder / PLAN
        known = _read_plan(plan) if keep else None
        files = stats_of(self.image.path)
        # what was added, such as a chunk that was missing, is of tiles that failed
        if known is None or known["made_of"] != self.made_of or not known["files"].items() <= files.items():
            _remove(self.folder)
            known = {
                "made_of": self.made_of,
                "tiles": [
                    [(side.start, side.stop) for side in (*tile.core, *tile.seen)]
                    for tile in self.maps.stack.tiles(self.image.shape)
                ],
                "means": None,
            }
        for ends in known["tiles"]:
            rows, cols, *seen = (slice(*side) for side in ends)
            self.tiles.append(Tile((rows, cols), (seen[0], seen[1])))
        known["files"] = files
        if known["means"] is None:
            _remove(self.folder / "tiles")  # decided by means of fewer points
            known["means"] = self._image_means()
        # if points are missing, the next run reads them anew, and decides all tiles by those
        write_text(plan, json.dumps({**known, "means": None} if self.faults else known))
        self.means = np.array(known["means"], dtype=np.float32)

    def decide(self, workers: Workers) -> None:
        """Decide all tiles that are not decided yet."""
        left = [
            (number, tile)
            for number, tile in enumerate(self.tiles)
            if not place_of(self.folder, number).exists()
        ]
        decider = _Decider(self.maps, self.classifiers, self.means, self.folder)
        with closing(workers(decider, left)) as decided:
            for _ in self.progress(left, "Tiles"):
                (_, tile), fault = next(decided)
                try:
                    error = fault()
                except ClusterError as lost:  # no worker outlives this tile
                    error = lost
                if error is not None:
                    rows, cols = tile.core
                    told = f"{self.image.path}: {error}" if error.source is None else str(error)
                    self.faults.append(f"tile at row {rows.start}, column {cols.start}: {told}")
        self.faults = list(dict.fromkeys(self.faults))
        if not any(place_of(self.folder, number).exists() for number in range(len(self.tiles))):
            raise InputError(self.faults[0])

    def _image_means(self) -> list[float]:
        """Read the kept channels on the coarse grid; points that cannot be read are left out, and told."""
        channels = self.maps.channels
        centred = self.maps.bank.centred(self.image.shape[2])[channels]
        if not centred.any():
            return [0.0] * self.means.size
        grid = even_grid(self.image.shape)
        found = [np.empty((0, self.means.size), dtype=np.float32)]
        for tile in self.progress(self._grid_tiles(grid), "Image means"):
            mine = tile.holds(*grid)
            rows, cols = (at[mine] - seen.start for at, seen in zip(grid, tile.seen, strict=True))
            try:
                found.append(sample_maps(self.maps(tile), rows, cols, channels))
            except InputError as error:
                self.faults.append(str(error))
        values = np.concatenate(found)
        if not len(values):
            raise InputError(self.faults[0])
        means: list[float] = image_means(values, centred).astype(float).tolist()
        return means

    def _grid_tiles(self, grid: tuple[NDArray[np.float64], NDArray[np.float64]]) -> list[Tile]:
        """Tiles just large enough for the points of the grid, or those of the image if these are fewer pixels."""
        stack = self.maps.stack
        margin = stack.alignment * (math.ceil(stack.halo / stack.alignment) + 1)
        rows, cols = (
            [_around_point(at, length, margin, stack.alignment) for at in np.unique(axis)]
            for axis, length in zip(grid, self.image.shape[:2], strict=True)
        )
        points = [Tile((r[0], c[0]), (r[1], c[1])) for r in rows for c in cols]
        n_points, n_tiles = (sum(math.prod(tile.shape) for tile in tiles) for tiles in (points, self.tiles))
        return points if n_points < n_tiles else self.tiles


class _TileMaps:
    """Maps of the kept channels for tiles of an image, here or in another process, which opens the image itself."""

    def __init__(
        self, segmenter: Segmenter, image: LargeImage, level: int, classifiers: Sequence[PixelClassifier]
    ) -> None:
        self.bank = segmenter.bank_
        self.channels = np.unique(np.concatenate([classifier.channels_ for classifier in classifiers]))
        self.stack = StackedBank([part for part, _ in self.bank.split_by_bank(self.channels, image.shape[2])])
        self._image: LargeImage | None = image
        self._path, self._level = image.path, level

    def __call__(self, tile: Tile) -> list[FeatureMaps]:
        if self._image is None:  # open for as long as the process lives
            self._image = ExitStack().enter_context(open_large(self._path, self._level))
        # the region is read once for all banks
        top, left = tile.seen[0].start, tile.seen[1].start
        seen = _LoadedRegion(self._image.shape, self._image[tile.seen], (top, left))
        return self.bank.tile_maps(cast(Any, seen), tile, self.channels)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_image": None, "_path": self._path.resolve()}


@dataclass(frozen=True, eq=False)
class _Decider:
    """Decides tiles and writes their decisions, here or in another process."""

    maps: _TileMaps
    classifiers: Sequence[PixelClassifier]
    means: FloatArray
    folder: Path

    def __call__(self, numbered: tuple[int, Tile]) -> SegkitError | None:
        """Decide a tile; return the error if it cannot be decided."""
        number, tile = numbered
        try:
            view = View(tile, self.maps(tile))
            decisions, *of_parts = (
                decide_in(view, one, self.means[np.searchsorted(self.maps.channels, one.channels_)])
                for one in self.classifiers
            )
        except InputError as error:
            return error
        except MemoryError as error:
            return InputError(str(error) or "out of memory")
        # a tile is decided once it has decisions on classes: these come last
        for parts in of_parts:
            _save(place_of(self.folder, number, "depth"), expected_depth(parts))
        _save(place_of(self.folder, number), decisions)
        return None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"folder": self.folder.resolve()}


def _remove(folder: Path) -> None:
    """Remove decisions of an earlier run: one that stayed would be taken for one of this run."""
    try:
        remove(folder)
    except OSError as error:
        raise OutputError(f"{folder}: {describe_os_error(error)}") from error


def _save(path: Path, values: FloatArray) -> None:
    with saving(path) as temporary, temporary.open("wb") as file:
        np.save(file, values)


class _LoadedRegion:
    """An image of which one region is in memory."""

    def __init__(self, shape: tuple[int, ...], values: FloatArray, corner: tuple[int, int]) -> None:
        self.shape, self._values, self._corner = shape, values, corner

    def __getitem__(self, region: tuple[slice, slice]) -> FloatArray:
        rows, cols = (
            slice(side.start - first, side.stop - first)
            for side, first in zip(region, self._corner, strict=True)
        )
        return self._values[rows, cols]


def _around_point(at: float, length: int, margin: int, alignment: int) -> tuple[slice, slice]:
    """Return core and seen pixels of one side for a point."""
    first = math.floor(at)
    core = slice(first, min(first + 2, length) if first < length - 1 else length)
    start = max(0, alignment * ((first - margin) // alignment))
    return core, slice(start, min(length, core.stop + margin))


def _read_plan(path: Path) -> dict[str, Any] | None:
    """Read the plan of an earlier run; None if there is none, or it is damaged."""
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return plan if {"made_of", "files", "tiles", "means"} <= plan.keys() else None
    except (OSError, ValueError, AttributeError):
        return None
