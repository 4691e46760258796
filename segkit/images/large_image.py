"""Large images read region by region: OME-Zarr, tiled and pyramidal TIFF, SVS and NDPI."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit._common.memory import require_bytes
from segkit.errors import ConfigError, InputError, count
from segkit.images.headers import HARMLESS_BYTES
from segkit.images.pixel_size import PixelSize, checked_size, micrometres, read_number, size_in_tiff
from segkit.images.read import TIFF_EXTENSIONS, channel_names, to_float
from segkit.images.shown import as_shown, offset_in
from segkit.images.tiff import open_tiff

SLIDE_EXTENSIONS = (".svs", ".ndpi", ".scn", ".mrxs", ".bif")
ZARR_EXTENSIONS = (".zarr",)
REGION_EXTENSIONS = (*SLIDE_EXTENSIONS, *ZARR_EXTENSIONS)
Region = tuple[slice, slice]


class Grid(NamedTuple):
    """Where the pixels of an image lie."""

    step: tuple[float, float] = (1.0, 1.0)
    unit: str | None = None
    origin: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, size: PixelSize | None, factors: tuple[float, float] = (1.0, 1.0)) -> Grid:
        """Return the grid of pixels so many times as large as those of a size in micrometres, if it is known."""
        if size is None:
            return cls(factors)
        return cls((size.y * factors[0], size.x * factors[1]), "micrometer")

    @property
    def pixel_size(self) -> PixelSize | None:
        """Micrometres per pixel; None if they are not known."""
        factor = None if self.unit is None else micrometres(self.unit)
        return None if factor is None else checked_size(self.step[0] * factor, self.step[1] * factor)


@dataclass(frozen=True, eq=False)
class LargeImage:
    """An image of which ``image[rows, columns]`` reads a region, (h, w, C) float32 in [0, 1]."""

    path: Path
    shape: tuple[int, int, int]
    stored: np.dtype[Any]
    downsample: float
    read: Callable[[Region], NDArray[Any]] = field(repr=False)
    closing: ExitStack = field(repr=False)
    grid: Grid
    channels: tuple[str, ...] = ()

    dtype = np.dtype(np.float32)
    ndim = 3

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.close()

    def __getitem__(self, region: Region) -> FloatArray:
        """Read a region."""
        return to_float(self.as_stored(region), name=self._place(*region))

    def as_stored(self, region: Region) -> NDArray[Any]:
        """Read a region with the values of the file."""
        rows, cols = (
            slice(*side.indices(length)[:2]) for side, length in zip(region, self.shape, strict=False)
        )
        try:
            return np.ascontiguousarray(self.read((rows, cols)))
        except InputError:
            raise
        except Exception as error:  # damage makes a decoder raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"cannot be read ({reason}): copy the file anew, then --resume",
                source=self._place(rows, cols),
            ) from error

    def _place(self, rows: slice, cols: slice) -> str:
        return f"{self.path} at row {rows.start or 0}, column {cols.start or 0}"


def is_by_region(path: Path) -> bool:
    """Return whether an image is of a kind that is always read by region, by its name."""
    return path.suffix.lower() in REGION_EXTENSIONS


def shape_of_tiled(path: Path) -> tuple[int, int, int] | None:
    """Read height, width and channels from the header of a TIFF file of one plane that can be read by region; else None."""
    try:
        with open_tiff(path) as file:
            series = file.series[0]
            sides = dict(zip(series.axes.lower().replace("s", "c"), series.shape, strict=True))
            if not file.pages.first.is_tiled or not {"y", "x"} <= sides.keys() <= set("yxc"):
                return None
            return sides["y"], sides["x"], sides.get("c", 1)
    except Exception:  # the reader of whole images says what is wrong with it
        return None


def open_large(path: str | Path, level: int = 0) -> LargeImage:
    """Open an image to read regions of it."""
    path = Path(path)
    if not path.exists():
        raise InputError("no such file or folder: give an OME-Zarr, a TIFF file or a slide", source=path)
    suffix = path.suffix.lower()
    opened = (
        _open_zarr if suffix in ZARR_EXTENSIONS else _open_slide if suffix in SLIDE_EXTENSIONS else _open_tiff
    )
    try:
        return opened(path, level)
    except (InputError, ConfigError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot be opened ({reason}): copy or export it again", source=path) from error


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(
            f'large images need {name}, not installed here: pip install "segkit-bio[large]"'
        ) from None


def _check_level(path: Path, level: int, n_levels: int) -> None:
    if not 0 <= level < n_levels:
        raise ConfigError(
            f"level {level}: it has {count(n_levels, 'level')}, give 0 to {n_levels - 1}", source=path
        )


def _open_zarr(path: Path, level: int) -> LargeImage:
    """Open the first multiscale image of an OME-Zarr."""
    zarr = _module("zarr")
    group = zarr.open(_own_files(path), mode="r")
    if isinstance(group, zarr.Array):
        sizes = " x ".join(map(str, group.shape))
        raise InputError(
            f"a plain zarr array ({sizes}), expected OME-Zarr 0.4 or 0.5, whose metadata name its axes: export it "
            "as that",
            source=path,
        )
    attributes = group.attrs.asdict()
    multiscales = attributes.get("ome", attributes).get("multiscales")
    if not multiscales:
        raise InputError(
            "a zarr without multiscales, expected OME-Zarr 0.4 or 0.5: export it as that", source=path
        )
    described = multiscales[0]
    if lacking := [key for key in ("axes", "datasets") if not described.get(key)]:
        raise InputError(
            f"its multiscales lack {' and '.join(lacking)}, expected OME-Zarr 0.4 or 0.5: export it as that",
            source=path,
        )
    axes = [str(axis["name"] if isinstance(axis, dict) else axis).lower() for axis in described["axes"]]
    datasets = described["datasets"]
    _check_level(path, level, len(datasets))
    array, full = (_level_of(path, group, datasets[index]["path"], index) for index in (level, 0))
    _check_plane(path, axes, array.shape)
    full_height = full.shape[axes.index("y")]
    grid = _grid_of(described, level) or Grid((full_height / array.shape[axes.index("y")],) * 2)
    named = attributes.get("ome", attributes).get("omero", {}).get("channels") or ()
    channels = tuple(str(channel.get("label") or "") for channel in named)
    missing = _missing_chunk(path, array)
    return _of_array(path, array, axes, full_height, grid=grid, missing=missing, channels=channels)


def _own_files(path: Path) -> Any:
    """Return the store of a folder without what links in it lead to, which may be any file, and pipes, which have no end."""
    root = path.resolve()

    class OwnFiles(_module("zarr").storage.LocalStore):  # type: ignore[misc]
        async def get(self, key: str, *args: Any, **options: Any) -> Any:
            file = root / key
            if file.exists() and not (
                file.is_dir() or (file.is_file() and file.resolve().is_relative_to(root))
            ):
                raise InputError(f"{key} is a link out of it or no file: copy the image anew", source=path)
            return await super().get(key, *args, **options)

    return OwnFiles(root, read_only=True)


def _level_of(path: Path, group: Any, name: str, level: int) -> Any:
    """Return the array of a level, which a copy that was cut short may lack."""
    try:
        return group[name]
    except KeyError:
        raise InputError(
            f"level {level} of its pyramid, {path / name}, is missing: copy the image anew, or give another data.level",
            source=path,
        ) from None


def _grid_of(described: Mapping[str, Any], level: int) -> Grid | None:
    """Read where the pixels of a level lie; None if the metadata do not tell."""
    names = [axis.get("name") if isinstance(axis, dict) else axis for axis in described["axes"]]
    units = [axis.get("unit") if isinstance(axis, dict) else None for axis in described["axes"]]
    places = [names.index(name) for name in "yx" if name in names]
    step, origin = np.ones(len(names)), np.zeros(len(names))
    is_told = False
    for part in (described["datasets"][level], described):  # those of the level count first
        for move in part.get("coordinateTransformations") or ():
            try:
                values = np.asarray(move.get(move["type"]), dtype=np.float64)
            except (KeyError, TypeError, ValueError):
                return None
            if move["type"] not in ("scale", "translation") or values.shape != step.shape:
                continue
            if move["type"] == "scale":
                step, origin, is_told = step * values, origin * values, True
            else:
                origin = origin + values
    if not is_told or len(places) < 2 or not (np.isfinite(step).all() and (step[places] > 0).all()):
        return None
    (y, x), (top, left) = step[places].tolist(), origin[places].tolist()
    of_y, of_x = (units[place] for place in places)
    return Grid((y, x), of_y if isinstance(of_y, str) and of_y == of_x else None, (top, left))


def _open_tiff(path: Path, level: int) -> LargeImage:
    """Open the first series of a TIFF file."""
    zarr = _module("zarr")
    if path.suffix.lower() not in TIFF_EXTENSIONS:
        raise InputError("cannot be read by region: save it as OME-Zarr or tiled TIFF", source=path)
    with ExitStack() as closing:
        file = closing.enter_context(open_tiff(path))
        series = file.series[0]
        _check_level(path, level, len(series.levels))
        axes = list(series.axes.lower().replace("s", "c"))
        _check_plane(path, axes, series.shape)
        page = series.levels[level].keyframe
        ends = [place + n for place, n in zip(page.dataoffsets, page.databytecounts, strict=False)]
        if ends and max(ends) > path.stat().st_size:
            raise InputError("the file ends before its pixels do: copy or export it again", source=path)
        array = zarr.open_array(series.levels[level].aszarr(multiscales=False), mode="r")
        height, width = (series.shape[axes.index(axis)] / array.shape[axes.index(axis)] for axis in "yx")
        grid = Grid.of(size_in_tiff(file), (height, width))
        offset, _ = offset_in(file)

        def show(values: NDArray[Any]) -> NDArray[Any]:
            colours, _ = as_shown(values, page, path, offset=offset)
            return colours.reshape(*values.shape[:2], -1)  # a palette has an axis more

        full_height = series.shape[axes.index("y")]
        channels = channel_names(file)
        return _of_array(
            path,
            array,
            axes,
            full_height,
            grid=grid,
            closing=closing.pop_all(),
            show=show,
            channels=channels,
        )


def _check_plane(path: Path, axes: Sequence[str], shape: tuple[int, ...]) -> None:
    """Refuse several planes, and axes that are not those of the pixels."""
    if not math.prod(shape):
        raise InputError(
            f"{' x '.join(map(str, shape))} pixels, expected one or more: export it again", source=path
        )
    if len(axes) != len(shape) or len(set(axes)) < len(axes):
        raise InputError(
            f"axes {''.join(axes)} of {shape}: give each axis of the pixels one name", source=path
        )
    other = [name for name, length in zip(axes, shape, strict=True) if name not in "yxc" and length > 1]
    if other or not {"y", "x"} <= set(axes):
        raise InputError(
            f"axes {''.join(axes)} of {shape}, expected one plane with y, x and perhaps c: save a plane of it",
            source=path,
        )


def _of_array(
    path: Path,
    array: Any,
    axes: list[str],
    full_height: int,
    *,
    grid: Grid,
    missing: Callable[[Any], tuple[int, ...] | None] = lambda _: None,
    show: Callable[[NDArray[Any]], NDArray[Any]] = lambda values: values,
    closing: ExitStack | None = None,
    channels: tuple[str, ...] = (),
) -> LargeImage:
    """Read regions of an array whose axes are named, as `show` returns them."""
    block = math.prod(array.chunks) * array.dtype.itemsize
    if block > HARMLESS_BYTES:
        sides = " x ".join(f"{side:,}" for side in array.chunks)
        require_bytes(block, what=f"stored in blocks of {sides} values", source=path)
    height, width = array.shape[axes.index("y")], array.shape[axes.index("x")]
    n_channels = array.shape[axes.index("c")] if "c" in axes else 1
    kept = [name for name in axes if name in "yxc"]
    order = kept if "c" in kept else [*kept, "c"]

    def read(region: Region) -> NDArray[Any]:
        where = {"y": region[0], "x": region[1], "c": slice(0, n_channels)}
        index = tuple(where.get(name, 0) for name in axes)
        if (at := missing(index)) is not None:
            row, col = at[axes.index("y")], at[axes.index("x")]
            raise InputError(
                "a chunk is missing: copy the image anew, then --resume",
                source=f"{path} at row {row}, column {col}",
            )
        values = np.asarray(array[index])
        if "c" not in kept:
            values = values[..., None]
        return show(values.transpose([order.index(name) for name in "yxc"]))

    pixel = show(np.zeros((1, 1, n_channels), array.dtype))
    shape = (height, width, pixel.shape[2])
    return LargeImage(
        path, shape, pixel.dtype, full_height / height, read, closing or ExitStack(), grid, channels
    )


def _missing_chunk(path: Path, array: Any) -> Callable[[Any], tuple[int, ...] | None]:
    """Return a function that finds the first pixel of a missing chunk among those that a region needs."""
    folder = path / array.path
    sizes = getattr(array, "shards", None) or array.chunks

    def find(index: Any) -> tuple[int, ...] | None:
        sides = [range(at, at + 1) if isinstance(at, int) else range(at.start, at.stop) for at in index]
        spans = [
            range(side[0] // size, side[-1] // size + 1) for side, size in zip(sides, sizes, strict=True)
        ]
        for at in np.ndindex(*map(len, spans)):
            chunk = tuple(span[place] for span, place in zip(spans, at, strict=True))
            if not (folder / array.metadata.encode_chunk_key(chunk)).exists():
                return tuple(place * size for place, size in zip(chunk, sizes, strict=True))
        return None

    return find


def _open_slide(path: Path, level: int) -> LargeImage:
    """Open a slide of a microscope's own format, in colours."""
    closing = ExitStack()
    # sets of files are found by names that their metadata tell
    alone = {"is_ome": False, "is_mmstack": False, "is_ndtiff": False}
    slide = closing.enter_context(_module("tiffslide").TiffSlide(path, tifffile_options=alone))
    with closing:
        _check_level(path, level, slide.level_count)
        closing = closing.pop_all()
    width, height = slide.level_dimensions[level]
    factor = slide.level_downsamples[level]

    def read(region: Region) -> NDArray[Any]:
        rows, cols = region
        # places of a slide are counted in pixels of level 0
        corner = round(cols.start * factor), round(rows.start * factor)
        size = cols.stop - cols.start, rows.stop - rows.start
        return np.asarray(slide.read_region(corner, level, size, as_array=True))[:, :, :3]

    told = [slide.properties.get(f"tiffslide.mpp-{axis}") for axis in "yx"]
    size = checked_size(*(read_number(value) or 0 for value in told))
    grid = Grid.of(size, (float(factor), float(factor)))
    return LargeImage(path, (height, width, 3), np.dtype(np.uint8), float(factor), read, closing, grid)
