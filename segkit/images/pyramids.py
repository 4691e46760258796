"""Arrays larger than memory written block by block: tiled TIFF and OME-Zarr, each with a pyramid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segkit._common.files import describe_os_error, saving
from segkit.errors import OutputError
from segkit.images.large_image import Grid
from segkit.images.pixel_size import in_centimetres, in_ome

# Side of the blocks that are written, and of the smallest level of a pyramid.
BLOCK = 512
# Values that are written at once.
_AT_ONCE = 2**20
_OME_ENDS = (".ome.tif", ".ome.tiff")


class OnDisk:
    """An array in a file, which is opened for each access, for pages that are mapped count as memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        mapped = np.load(path, mmap_mode="r")
        self.shape: tuple[int, ...] = mapped.shape
        self.dtype: np.dtype[Any] = mapped.dtype
        self.size = math.prod(self.shape)

    @classmethod
    def make(cls, path: Path, shape: tuple[int, ...], fill: float, dtype: Any) -> OnDisk:
        """Make a file of one value; an OutputError says that the disk cannot hold it.

        It is written, not mapped: a program that changes a mapped file for which the disk has no room is killed.
        """
        header = {"shape": shape, "fortran_order": False, "descr": np.dtype(dtype).str}
        values = np.full(_AT_ONCE, fill, dtype=dtype)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            with path.open("wb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                for left in range(math.prod(shape), 0, -_AT_ONCE):
                    file.write(values[:left].data)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OutputError(f"{path}: {describe_os_error(error)}") from error
        return cls(path)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return np.array(np.load(self._path, mmap_mode="r")[index])

    def __setitem__(self, index: Any, values: NDArray[Any]) -> None:
        np.load(self._path, mmap_mode="r+")[index] = values

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


class Pyramid:
    """Levels of a pyramid: each shows every second pixel of the one before; `lookup` is written for values of uint8."""

    def __init__(self, pixels: OnDisk, grid: Grid, lookup: NDArray[Any] | None = None) -> None:
        self._pixels, self._lookup, self.grid = pixels, lookup, grid
        self.dtype = pixels.dtype if lookup is None else lookup.dtype
        self.shapes = [pixels.shape]
        while max(self.shapes[-1][-2:]) > BLOCK:
            *planes, height, width = self.shapes[-1]
            self.shapes.append((*planes, -(-height // 2), -(-width // 2)))

    @property
    def axes(self) -> str:
        """Letters of the axes."""
        return "cyx"[-len(self.shapes[0]) :]

    def blocks(self, level: int) -> Iterator[tuple[tuple[Any, ...], NDArray[Any]]]:
        """Return the blocks of a level, plane by plane and row by row, each with its place; the last ones are smaller."""
        step = 2**level
        *planes, height, width = self.shapes[level]
        for plane in np.ndindex(*planes):
            for row in range(0, height, BLOCK):
                for col in range(0, width, BLOCK):
                    starts = (row, col)
                    block = self._pixels[
                        (*plane, *(slice(at * step, (at + BLOCK) * step, step) for at in starts))
                    ]
                    block = block if self._lookup is None else self._lookup[block]
                    ends = [at + length for at, length in zip(starts, block.shape, strict=True)]
                    yield (*plane, slice(row, ends[0]), slice(col, ends[1])), block


def write_pyramid(place: Path, pyramid: Pyramid, *, label_name: str | None = None) -> None:
    """Write a pyramid, whole or not at all, as OME-Zarr 0.5 or tiled TIFF, by the extension."""
    if place.suffix.lower() == ".zarr":
        _write_zarr(place, pyramid, label_name)
    else:
        _write_tiff(place, pyramid)


def _write_tiff(place: Path, pyramid: Pyramid) -> None:
    def tiles(level: int) -> Iterator[NDArray[Any]]:
        for _, block in pyramid.blocks(level):
            yield np.pad(block, [(0, BLOCK - length) for length in block.shape])

    size, letters = pyramid.grid.pixel_size, pyramid.axes.upper()
    # OME knows no integers of 64 bits
    is_ome = place.name.lower().endswith(_OME_ENDS) and pyramid.dtype.itemsize < 8
    metadata = {"axes": letters, **in_ome(size)} if is_ome else {"axes": letters} if "C" in letters else None
    options: dict[str, Any] = {
        "tile": (BLOCK, BLOCK),
        "compression": "zlib",
        "dtype": pyramid.dtype,
        "photometric": "minisblack",
    }
    with (
        saving(place) as temporary,
        tifffile.TiffWriter(temporary, bigtiff=True, ome=is_ome) as writer,
    ):
        for level, shape in enumerate(pyramid.shapes):
            own = (
                {"subifds": len(pyramid.shapes) - 1, "metadata": metadata}
                if level == 0
                else {"subfiletype": 1, "metadata": None}
            )
            writer.write(tiles(level), shape=shape, **options, **own, **in_centimetres(size, 2**level))


def _write_zarr(place: Path, pyramid: Pyramid, label_name: str | None) -> None:
    import zarr

    with saving(place) as temporary:
        group = zarr.open_group(str(temporary), mode="w", zarr_format=3)
        if label_name is not None:
            labels = group.create_group("labels")
            labels.attrs["ome"] = {"version": "0.5", "labels": [label_name]}
            group = labels.create_group(label_name)
        for level, shape in enumerate(pyramid.shapes):
            array = group.create_array(
                str(level),
                shape=shape,
                chunks=(*[1] * (len(shape) - 2), BLOCK, BLOCK),
                dtype=pyramid.dtype,
                config={"write_empty_chunks": True},
            )
            for at, block in pyramid.blocks(level):
                array[at] = block
        described: Any = {"version": "0.5", "multiscales": [_multiscale(pyramid, label_name or place.stem)]}
        group.attrs["ome"] = described | ({} if label_name is None else {"image-label": {}})


def _multiscale(pyramid: Pyramid, name: str) -> dict[str, Any]:
    """Describe a pyramid as OME-Zarr 0.5 does."""
    grid, n_planes = pyramid.grid, len(pyramid.axes) - 2
    unit = {} if grid.unit is None else {"unit": grid.unit}
    axes = [{"name": "c", "type": "channel"}] * n_planes
    axes += [{"name": letter, "type": "space", **unit} for letter in "yx"]
    datasets = []
    for level in range(len(pyramid.shapes)):
        scale = [1.0] * n_planes + [step * 2.0**level for step in grid.step]
        moves: list[dict[str, Any]] = [{"type": "scale", "scale": scale}]
        if any(grid.origin):
            moves.append({"type": "translation", "translation": [0.0] * n_planes + [*grid.origin]})
        datasets.append({"path": str(level), "coordinateTransformations": moves})
    return {"name": name, "axes": axes, "datasets": datasets}
