"""Images larger than memory: read by region, decided tile by tile, and labels written block by block.

The first pass reads features on the coarse grid, for the image means. The second decides each tile, and keeps its decisions
on disk until all are there: the threshold depends on all of them. What is done is found again by a run that resumes.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tifffile
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress, Workers, one_by_one, pass_on
from segkit._files import alone_in
from segkit._files.write import saving, write_text
from segkit._memory import bytes_left
from segkit._threads import single_threaded_blas
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.errors import ClusterError, InputError, OutputError
from segkit.features import FeatureMaps
from segkit.features.base import sample_maps
from segkit.features.normalised import even_grid
from segkit.features.stacked import StackedBank
from segkit.features.tiles import Tile
from segkit.features.views import View
from segkit.images import UNLABELLED
from segkit.images.regions import LargeImage, open_large
from segkit.segmentation.dense import decide_in
from segkit.segmentation.model_file import describe, digest_arrays
from segkit.segmentation.record import HIDDEN, digest_values, key_of
from segkit.segmentation.regions import merge_small_regions_by_strips
from segkit.segmentation.threshold import threshold_of_parts

if TYPE_CHECKING:
    from segkit.segmentation.segmenter import Segmenter

# Side of the blocks that labels are written in, and of the smallest level of a pyramid.
_BLOCK = 512
# Bytes for each pixel of a strip while small regions are merged: pieces, distances, classes.
_BYTES_OF_MERGING = 80
_MOST_ROWS = 2048
NAME = "segkit"
# What an earlier run leaves beside its tiles; labels without it are those of somebody else.
PLAN = "plan.json"


@dataclass(frozen=True)
class LargeOutcome:
    """Labels of a large image.

    Parameters
    ----------
    labels : Path
        The file, or the folder of an OME-Zarr.
    n_tiles : int
        Tiles of the image.
    n_kept : int
        Tiles that an earlier run had decided.
    faults : list of str
        Why tiles failed, a line each; their pixels are unlabelled.
    """

    labels: Path
    n_tiles: int
    n_kept: int
    faults: list[str]


def labels_place(image: Path, output: Path) -> Path:
    """Give the place of the labels of an image: an OME-Zarr of one, a TIFF file of any other."""
    return output / (f"{image.stem}.zarr" if image.suffix.lower() == ".zarr" else f"{image.stem}.tif")


def segment_large(
    segmenter: Segmenter,
    path: str | Path,
    output: str | Path,
    *,
    level: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    overwrite_foreign: bool = False,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> LargeOutcome:
    """Segment an image that is read by region.

    Parameters
    ----------
    segmenter : Segmenter
        Fitted.
    path : str or Path
        An OME-Zarr, a TIFF file or a slide; see `segkit.images.regions.open_large`.
    output : str or Path
        Folder for the labels: an OME-Zarr with ``labels/segkit`` for an OME-Zarr, else a tiled TIFF with a pyramid. Values
        are those of the training masks, and 255 where a tile failed.
    level : int, default=0
        Level of the pyramid to segment.
    resume : bool, default=False
        Whether tiles that an earlier run decided are kept.
    overwrite : bool, default=False
        Whether labels of an earlier run are replaced.
    overwrite_foreign : bool, default=False
        Whether a file or folder at the place of the labels that no earlier run wrote is replaced too.
    workers : callable, optional
        What spreads the tiles over processes and machines, such as `segkit.scale.Cluster.spread`; by default they are
        decided here, one after the other. Workers see image and output folder under the same paths.
    progress : callable, optional
        As for `Segmenter.fit`.

    Returns
    -------
    LargeOutcome
        Labels and faults.

    Raises
    ------
    InputError
        If the image cannot be opened, does not fit the model, or no tile could be decided.
    OutputError
        If something is there already that may not be replaced, or labels cannot be written.
    """
    path, output = Path(path), Path(output)
    with open_large(path, level) as image:
        return _segment(
            segmenter,
            image,
            level,
            output,
            workers or one_by_one,
            progress or pass_on,
            resume=resume,
            overwrite=overwrite,
            overwrite_foreign=overwrite_foreign,
        )


def _segment(
    segmenter: Segmenter,
    image: LargeImage,
    level: int,
    output: Path,
    workers: Workers,
    progress: Progress,
    *,
    resume: bool,
    overwrite: bool,
    overwrite_foreign: bool,
) -> LargeOutcome:
    path = image.path
    if image.shape[2] != segmenter.n_image_channels_:
        raise InputError(
            f"{path} has {image.shape[2]} channels, the model was trained on {segmenter.n_image_channels_}: give an image "
            "like the training images"
        )
    if not segmenter.bank_.is_local:
        raise InputError(
            f"{path}: bank {segmenter.bank_.label} needs the whole image at once: train without its fine filters"
        )
    place = labels_place(path, output)
    if path.resolve() in (place.resolve(), *place.resolve().parents):
        raise OutputError(f"{output}: labels in {place} would damage the image: choose another folder for -o")
    folder = output / HIDDEN / "large" / key_of(path.name)
    if place.exists() and not overwrite_foreign:
        plan = _read_plan(folder / PLAN)
        if plan is not None and plan["image"] != str(path.resolve()) and not overwrite:
            raise OutputError(
                f"{place} is of another image, {plan['image']}: choose another folder, or replace it (--overwrite)"
            )
        if not (folder / PLAN).exists():
            raise OutputError(
                f"{place} is not of an earlier run here: choose another folder, or ask to replace it "
                "(--overwrite-foreign, in Python overwrite_foreign=True)"
            )
        if not (resume or overwrite):
            raise OutputError(f"{place} exists: --resume goes on, --overwrite replaces it")
    with alone_in(output), single_threaded_blas():
        run = _Run(segmenter, image, level, folder, progress)
        run.prepare(keep=resume)
        run.decide(workers)
        run.write(place)
        return LargeOutcome(place, len(run.tiles), run.n_kept, run.faults)


class _Run:
    """A run over the tiles of an image, with a folder for what is done."""

    def __init__(
        self, segmenter: Segmenter, image: LargeImage, level: int, folder: Path, progress: Progress
    ) -> None:
        self.segmenter, self.image, self.folder, self.progress = segmenter, image, folder, progress
        self.classifier = segmenter.classifier_
        self.maps = _TileMaps(segmenter, image, level)
        made_of = {
            "image": [str(image.path.resolve()), level, list(image.shape)],
            "model": digest_arrays(describe(segmenter, embed_weights=True)[1]),
        }
        self.made_of = digest_values(made_of)
        self.tiles: list[Tile] = []
        self.faults: list[str] = []
        self.n_kept = 0
        self.means = np.zeros(self.classifier.channels_.size, dtype=np.float32)

    def prepare(self, *, keep: bool) -> None:
        """Take over tiles and image means of an earlier run, or make them."""
        plan = self.folder / PLAN
        known = _read_plan(plan) if keep else None
        files = _list_files(self.image.path)
        # what was added, such as a chunk that was missing, is of tiles that failed
        if known is None or known["made_of"] != self.made_of or not known["files"].items() <= files.items():
            shutil.rmtree(self.folder, ignore_errors=True)
            known = {
                "made_of": self.made_of,
                "image": str(self.image.path.resolve()),
                "tiles": [_to_list(tile) for tile in self._cut()],
                "means": None,
            }
        self.tiles = [_to_tile(numbers) for numbers in known["tiles"]]
        known["files"] = files
        if known["means"] is None:
            shutil.rmtree(self.folder / "tiles", ignore_errors=True)  # decided by means of fewer points
            known["means"] = self._image_means()
        # if points are missing, the next run reads them anew, and decides all tiles by those
        write_text(plan, json.dumps({**known, "means": None} if self.faults else known))
        self.means = np.array(known["means"], dtype=np.float32)

    def decide(self, workers: Workers) -> None:
        """Decide all tiles that are not decided yet."""
        left = [(number, tile) for number, tile in enumerate(self.tiles) if not self._place(number).exists()]
        self.n_kept = len(self.tiles) - len(left)
        decider = _Decider(self.maps, self.classifier, self.means, self.folder)
        with closing(workers(decider, left)) as decided:
            for _ in self.progress(left, "Tiles"):
                (_, tile), fault = next(decided)
                try:
                    text = fault()
                except ClusterError as error:  # no worker outlives this tile
                    text = str(error)
                if text is not None:
                    rows, cols = tile.core
                    told = text if text.startswith(str(self.image.path)) else f"{self.image.path}: {text}"
                    self.faults.append(f"tile at row {rows.start}, column {cols.start}: {told}")
        self.faults = list(dict.fromkeys(self.faults))
        if not any(self._place(number).exists() for number in range(len(self.tiles))):
            raise InputError(self.faults[0])

    def write(self, place: Path) -> None:
        """Write the labels of all tiles."""
        shape = self.image.shape[:2]
        threshold = None
        if self.segmenter.classes_.size == 2:
            threshold = threshold_of_parts(
                lambda: (decisions[:, :, 0] for _, decisions in self._decided()),
                self.segmenter.threshold_,
                self.segmenter.otsu_weight_,
            )
        raw, merged = self.folder / "ids.npy", self.folder / "merged.npy"
        _new_array(raw, shape)[:] = UNLABELLED
        for tile, decisions in self._decided():
            ids = decisions.argmax(axis=2) if threshold is None else decisions[:, :, 0] > threshold
            # opened anew for each tile: pages of a file that is mapped count as memory
            np.load(raw, mmap_mode="r+")[tile.core] = ids
        least = self.segmenter.least_areas_
        if least.any():
            _new_array(merged, shape)
            merge_small_regions_by_strips(
                cast(Any, _OnDisk(raw)), cast(Any, _OnDisk(merged)), least, self._rows_of_strip()
            )
        ids_place = merged if least.any() else raw
        values = np.append(self.segmenter.classes_, UNLABELLED).astype(
            np.result_type(self.segmenter.classes_.dtype, np.uint8)
        )
        lookup = np.full(256, values[-1], dtype=values.dtype)
        lookup[: values.size - 1] = values[:-1]
        levels = _Levels(_OnDisk(ids_place), lookup)
        (_write_zarr if place.suffix == ".zarr" else _write_tiff)(place, levels)
        for left in (raw, merged):
            left.unlink(missing_ok=True)

    def _cut(self) -> list[Tile]:
        return self.maps.stack.tiles(self.image.shape)

    def _image_means(self) -> list[float]:
        """Read the kept channels on the coarse grid; points that cannot be read are left out, and told."""
        if self.segmenter.normalization_ != "image":
            return [0.0] * self.means.size
        grid = even_grid(self.image.shape)
        found = [np.empty((0, self.means.size), dtype=np.float32)]
        for tile in self.progress(self._grid_tiles(grid), "Image means"):
            mine = tile.holds(*grid)
            rows, cols = (at[mine] - seen.start for at, seen in zip(grid, tile.seen, strict=True))
            try:
                found.append(sample_maps(self.maps(tile), rows, cols, self.classifier.channels_))
            except InputError as error:
                self.faults.append(str(error))
        values = np.concatenate(found)
        if not len(values):
            raise InputError(self.faults[0])
        means: list[float] = values.mean(axis=0).astype(float).tolist()
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

    def _decided(self) -> Iterator[tuple[Tile, FloatArray]]:
        for number, tile in enumerate(self.tiles):
            if self._place(number).exists():
                yield tile, np.load(self._place(number))

    def _place(self, number: int) -> Path:
        return _place_of(self.folder, number)

    def _rows_of_strip(self) -> int:
        """Rows of a strip of which three fit into half of the memory that is left."""
        affordable = bytes_left() // (6 * _BYTES_OF_MERGING * self.image.shape[1])
        return int(np.clip(affordable, 64, _MOST_ROWS))


class _TileMaps:
    """Maps of the kept channels for tiles of an image, here or in another process, which opens the image itself."""

    def __init__(self, segmenter: Segmenter, image: LargeImage, level: int) -> None:
        self.bank, self.channels = segmenter.bank_, segmenter.classifier_.channels_
        self.stack = StackedBank([part for part, _ in self.bank.split_by_bank(self.channels, image.shape[2])])
        self._image: LargeImage | None = image
        self._path, self._level = image.path, level

    def __call__(self, tile: Tile) -> list[FeatureMaps]:
        if self._image is None:  # open for as long as the process lives
            self._image = ExitStack().enter_context(open_large(self._path, self._level))
        # the region is read once for all banks
        top, left = tile.seen[0].start, tile.seen[1].start
        seen = _Held(self._image.shape, self._image[tile.seen], (top, left))
        return self.bank.tile_maps(cast(Any, seen), tile, self.channels)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_image": None, "_path": self._path.resolve()}


@dataclass(frozen=True, eq=False)
class _Decider:
    """Decides tiles and writes their decisions, here or in another process."""

    maps: _TileMaps
    classifier: PixelClassifier
    means: FloatArray
    folder: Path

    def __call__(self, numbered: tuple[int, Tile]) -> str | None:
        """Decide a tile; say why it cannot be decided."""
        number, tile = numbered
        try:
            decisions = decide_in(View(tile, self.maps(tile)), self.classifier, self.means)
        except (InputError, MemoryError) as error:
            return str(error) or "out of memory"
        with saving(_place_of(self.folder, number)) as temporary, temporary.open("wb") as file:
            np.save(file, decisions)
        return None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"folder": self.folder.resolve()}


def _place_of(folder: Path, number: int) -> Path:
    return folder / "tiles" / f"{number:06d}.npy"


class _Held:
    """An image of which one region is in memory."""

    def __init__(self, shape: tuple[int, ...], values: FloatArray, corner: tuple[int, int]) -> None:
        self.shape, self._values, self._corner = shape, values, corner

    def __getitem__(self, region: tuple[slice, slice]) -> FloatArray:
        rows, cols = (
            slice(side.start - first, side.stop - first)
            for side, first in zip(region, self._corner, strict=True)
        )
        return self._values[rows, cols]


class _OnDisk:
    """An array in a file, which is opened for each access, for pages that are mapped count as memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.shape: tuple[int, int] = np.load(path, mmap_mode="r").shape
        self.size = math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NDArray[np.uint8]:
        return np.array(np.load(self._path, mmap_mode="r")[index])

    def __setitem__(self, index: Any, values: NDArray[np.uint8]) -> None:
        np.load(self._path, mmap_mode="r+")[index] = values


class _Levels:
    """Levels of a pyramid of mask values: each shows every second pixel of the one before."""

    def __init__(self, ids: _OnDisk, lookup: NDArray[Any]) -> None:
        self._ids, self._lookup, self.dtype = ids, lookup, lookup.dtype
        self.shapes = [ids.shape]
        while max(self.shapes[-1]) > _BLOCK:
            height, width = self.shapes[-1]
            self.shapes.append((-(-height // 2), -(-width // 2)))

    def blocks(self, level: int) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Give the blocks of a level, row by row, each with its first row and column; the last ones are smaller."""
        step = 2**level
        height, width = self.shapes[level]
        for row in range(0, height, _BLOCK):
            for col in range(0, width, _BLOCK):
                region = (
                    slice(row * step, (row + _BLOCK) * step, step),
                    slice(col * step, (col + _BLOCK) * step, step),
                )
                yield row, col, self._lookup[self._ids[region]]


def _write_tiff(place: Path, levels: _Levels) -> None:
    """Write a tiled TIFF file with a pyramid."""

    def tiles(level: int) -> Iterator[NDArray[Any]]:
        for _, _, block in levels.blocks(level):
            yield np.pad(block, [(0, _BLOCK - length) for length in block.shape])

    options: dict[str, Any] = {"tile": (_BLOCK, _BLOCK), "compression": "zlib", "dtype": levels.dtype}
    with saving(place) as temporary, tifffile.TiffWriter(temporary, bigtiff=True) as writer:
        for level, shape in enumerate(levels.shapes):
            own: dict[str, Any] = {"subifds": len(levels.shapes) - 1} if level == 0 else {"subfiletype": 1}
            writer.write(tiles(level), shape=shape, photometric="minisblack", metadata=None, **options, **own)


def _write_zarr(place: Path, levels: _Levels) -> None:
    """Write an OME-Zarr 0.5 with the labels under ``labels/segkit``, whole or not at all."""
    import zarr

    unfinished = place.with_name(f".{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        root = zarr.open_group(str(unfinished), mode="w", zarr_format=3)
        labels = root.create_group("labels")
        labels.attrs["ome"] = {"version": "0.5", "labels": [NAME]}
        group = labels.create_group(NAME)
        for level, shape in enumerate(levels.shapes):
            array = group.create_array(
                str(level),
                shape=shape,
                chunks=(_BLOCK, _BLOCK),
                dtype=levels.dtype,
                config={"write_empty_chunks": True},
            )
            for row, col, block in levels.blocks(level):
                array[row : row + block.shape[0], col : col + block.shape[1]] = block
        axes = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
        datasets = [
            {"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": [2.0**level] * 2}]}
            for level in range(len(levels.shapes))
        ]
        multiscales: Any = [{"name": NAME, "axes": axes, "datasets": datasets}]
        group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales, "image-label": {}}
        shutil.rmtree(place, ignore_errors=True)
        unfinished.replace(place)
    except OSError as error:
        raise OutputError(f"{place}: {error.strerror or error}: check the folder and free space") from error


def _new_array(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    path.parent.mkdir(parents=True, exist_ok=True)
    made: NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    return made


def _around_point(at: float, length: int, margin: int, alignment: int) -> tuple[slice, slice]:
    """Give core and seen pixels of one side for a point."""
    first = math.floor(at)
    core = slice(first, min(first + 2, length) if first < length - 1 else length)
    start = max(0, alignment * ((first - margin) // alignment))
    return core, slice(start, min(length, core.stop + margin))


def _to_list(tile: Tile) -> list[int]:
    return [end for side in (*tile.core, *tile.seen) for end in (side.start, side.stop)]


def _to_tile(numbers: list[int]) -> Tile:
    a, b, c, d = (slice(first, last) for first, last in zip(numbers[::2], numbers[1::2], strict=True))
    return Tile((a, b), (c, d))


def _list_files(image: Path) -> dict[str, list[int]]:
    """Give size and time of change of the file, or of all files of an OME-Zarr, by their paths."""
    paths = sorted(image.rglob("*")) if image.is_dir() else [image]
    stats = ((path, path.stat()) for path in paths if path.is_file())
    return {
        path.relative_to(image.parent).as_posix(): [stat.st_size, stat.st_mtime_ns] for path, stat in stats
    }


def _read_plan(path: Path) -> dict[str, Any] | None:
    """Read the plan of an earlier run; None if there is none, or it is damaged."""
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return plan if {"made_of", "image", "files", "tiles", "means"} <= plan.keys() else None
    except (OSError, ValueError, AttributeError):
        return None
