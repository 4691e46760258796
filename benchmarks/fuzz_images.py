"""Read damaged image files by the thousand: nothing but an error of segkit may come of any, in time and memory.

Each input is a small valid file of one of many kinds, changed in one to four places: bits, bytes, numbers, pieces that are
cut, doubled or taken from another file. Sums that guard a piece (CRC of PNG) are mended in half of them, so that damage
gets past the first check. Input i is the same on every machine. A worker process reads each as an image, as a mask and as
a file with a pixel size; the parent watches it. A twentieth as many inputs are OME-Zarr with damaged or missing files, which
are read by region.
"""

from __future__ import annotations

import io
import multiprocessing
import re
import resource
import shutil
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image

from benchmarks.rows import Row, Study, flat
from segkit.errors import SegkitError
from segkit.images import check_image, read_mask, read_pages, read_pixel_size
from segkit.images.read import count_pages, image_from_page
from segkit.images.regions import open_large

SECONDS = 5.0
MEGABYTES = 1500
_NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


def _pillow(kind: str, pixels: Any, mode: str | None = None, **options: Any) -> bytes:
    picture = Image.fromarray(pixels)
    stream = io.BytesIO()
    (picture.convert(mode) if mode else picture).save(stream, kind, **options)
    return stream.getvalue()


def _tiff(pixels: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, **options)
    return stream.getvalue()


def make_seeds() -> list[tuple[str, bytes]]:
    """Make valid files of all kinds: extension and content."""
    rgb = np.random.default_rng(0).integers(0, 256, (18, 22, 3)).astype(np.uint8)
    grey = np.ascontiguousarray(rgb[:, :, 0])
    deep = grey.astype(np.uint16) * 257
    smooth = (np.indices(grey.shape).sum(axis=0) * 6).astype(np.uint8)
    rgba = np.dstack([rgb, grey])
    exif = Image.Exif()
    exif[274] = 6
    page = {"photometric": "minisblack"}
    return [
        *(
            (".png", content)
            for content in (
                _pillow("PNG", grey),
                _pillow("PNG", rgb, dpi=(100, 100)),
                _pillow("PNG", rgba),
                _pillow("PNG", deep),
                _pillow("PNG", grey > 99),
                _pillow("PNG", rgb, "P"),
                _pillow("PNG", smooth, exif=exif),
                _pillow("PNG", rgb, save_all=True, append_images=[Image.fromarray(255 - rgb)]),
            )
        ),
        *(
            (".jpg", content)
            for content in (
                _pillow("JPEG", grey),
                _pillow("JPEG", rgb, exif=exif),
                _pillow("JPEG", rgb, "CMYK"),
                _pillow("JPEG", rgb, progressive=True, quality=95),
                _pillow("JPEG", np.where(grey > 99, 255, 0).astype(np.uint8)),
            )
        ),
        *(
            (".bmp", content)
            for content in (
                _pillow("BMP", grey),
                _pillow("BMP", rgb),
                _pillow("BMP", rgb, "P"),
                _pillow("BMP", grey > 99),
            )
        ),
        *(
            (".tif", content)
            for content in (
                _tiff(grey, resolution=(1000, 1000), resolutionunit="CENTIMETER"),
                _tiff(rgb, photometric="rgb", compression="zlib"),
                _tiff(rgba, photometric="rgb", extrasamples=["unassalpha"]),
                _tiff(deep, compression="lzw", predictor=True),
                _tiff((grey / 255).astype(np.float32), compression="zlib", predictor=True),
                _tiff(smooth, tile=(16, 16), compression="zstd"),
                _tiff(np.stack([rgb] * 3).transpose(0, 3, 1, 2).copy(), imagej=True),
                _tiff(np.stack([grey, smooth]), ome=True, metadata={"axes": "CYX"}, **page),
                _tiff(np.stack([deep, deep]), bigtiff=True, byteorder=">", metadata={"axes": "ZYX"}, **page),
                _tiff(np.resize(grey, (48, 64)), rowsperstrip=5, compression="packbits"),
                _tiff(rgb, photometric="ycbcr", compression="jpeg", subsampling=(1, 1)),
                _tiff(smooth, photometric="palette", colormap=np.resize(deep, (3, 256))),
                _pillow("TIFF", rgb, "CMYK"),
                _pillow("TIFF", grey > 99),
            )
        ),
    ]


def make_input(index: int, seeds: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    """Make an input: extension and damaged content."""
    rng = np.random.default_rng([20_000, index])
    extension, content = seeds[rng.integers(len(seeds))]
    data = bytearray(content)
    for _ in range(min(rng.geometric(0.6), 4)):
        change = _CHANGES[rng.integers(len(_CHANGES))]
        data = change(data or bytearray(b"\0"), rng, seeds)
    if data.startswith(b"\x89PNG") and rng.random() < 0.5:
        data = _with_valid_sums(data)
    return extension, bytes(data)


def _place(data: bytearray, rng: np.random.Generator) -> int:
    """Half of the places are in the header, where sizes are told."""
    end = min(len(data), 64) if rng.random() < 0.5 else len(data)
    return int(rng.integers(max(end, 1)))


def _flip(data: bytearray, rng: np.random.Generator, _: Any) -> bytearray:
    data[_place(data, rng)] ^= 1 << rng.integers(8)
    return data


def _set(data: bytearray, rng: np.random.Generator, _: Any) -> bytearray:
    data[_place(data, rng)] = rng.integers(256)
    return data


def _set_number(data: bytearray, rng: np.random.Generator, _: Any) -> bytearray:
    number = struct.pack("<>"[rng.integers(2)] + "I", _NUMBERS[rng.integers(len(_NUMBERS))])
    place, length = _place(data, rng), int(rng.choice([2, 4]))
    data[place : place + length] = number[:length]
    return data


def _cut(data: bytearray, rng: np.random.Generator, _: Any) -> bytearray:
    start = _place(data, rng)
    return data[:start] if rng.random() < 0.5 else data[:start] + data[start + rng.integers(1, 40) :]


def _double(data: bytearray, rng: np.random.Generator, _: Any) -> bytearray:
    start = _place(data, rng)
    piece = data[start : start + rng.integers(1, 40)]
    return data[:start] + piece * int(rng.integers(2, 20)) + data[start:]


def _splice(data: bytearray, rng: np.random.Generator, seeds: list[tuple[str, bytes]]) -> bytearray:
    other = seeds[rng.integers(len(seeds))][1]
    start, length = int(rng.integers(len(other))), int(rng.integers(1, 200))
    place = _place(data, rng)
    return data[:place] + other[start : start + length] + data[place + length * (rng.random() < 0.5) :]


_CHANGES: tuple[Callable[..., bytearray], ...] = (
    _flip,
    _set,
    _set_number,
    _set_number,
    _cut,
    _double,
    _splice,
)


def _with_valid_sums(data: bytearray) -> bytearray:
    """Mend the sums of the pieces of a PNG file."""
    place = 8
    while place + 12 <= len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        end = place + 8 + length
        if end + 4 > len(data):
            break
        data[end : end + 4] = struct.pack(">I", zlib.crc32(data[place + 4 : end]))
        place = end + 4
    return data


def make_zarr(index: int, folder: Path) -> Path:
    """Write an OME-Zarr of two levels, of which up to four files are damaged or missing."""
    import zarr

    rng = np.random.default_rng([20_001, index])
    path = folder / "input.zarr"
    shutil.rmtree(path, ignore_errors=True)
    is_old = bool(rng.random() < 0.5)
    group = zarr.open_group(str(path), mode="w", zarr_format=2 if is_old else 3)
    pixels = np.random.default_rng(0).integers(0, 256, (18, 22)).astype(np.uint8)
    for level in range(2):
        part = pixels[:: 2**level, :: 2**level]
        array = group.create_array(str(level), shape=part.shape, chunks=(8, 8), dtype=part.dtype)
        array[:] = part
    moves = [{"type": "scale", "scale": [0.5, 0.5]}]
    datasets = [{"path": str(level), "coordinateTransformations": moves} for level in range(2)]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    described = {"multiscales": [{"axes": axes, "datasets": datasets, "version": "0.4"}]}
    group.attrs.update(described if is_old else {"ome": {"version": "0.5", **described}})
    files = sorted(place for place in path.rglob("*") if place.is_file())
    tells = [place for place in files if place.suffix == ".json" or place.name.startswith(".z")]
    for _ in range(min(rng.geometric(0.6), 4) if index else 0):
        among = tells if rng.random() < 0.5 else files
        place = among[rng.integers(len(among))]
        if rng.random() < 0.2 or not place.exists():
            place.unlink(missing_ok=True)
            continue
        change = _CHANGES[rng.integers(len(_CHANGES))]
        place.write_bytes(
            bytes(change(bytearray(place.read_bytes() or b"\0"), rng, [(".zarr", b"[1e9,null]")]))
        )
    return path


def read_zarr(path: Path) -> str:
    """Read both levels of an OME-Zarr by region; return "read", or why not."""
    outcomes = [_try(partial(_read_level, level=level), path) for level in range(2)]
    return outcomes[0]


def _read_level(path: Path, level: int) -> None:
    with open_large(path, level) as image:
        for row in range(0, min(image.shape[0], 24), 8):
            _ = image[row : row + 8, 0:8], image.grid.pixel_size


def read_everything(path: Path) -> str:
    """Read a file in every way in which segkit does; return "read", or why not."""
    outcomes = [
        _try(_read_image, path),
        *(_try(read, path) for read in (read_mask, read_pixel_size, count_pages)),
    ]
    return outcomes[0]


def _read_image(path: Path) -> None:
    for page in read_pages(path):
        check_image(image_from_page(page, name=str(path)), name=str(path))


def _try(read: Callable[[Path], object], path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
        except SegkitError as refused:
            message = str(refused)
            if not message.startswith(str(path)) or "\n" in message:
                raise AssertionError(
                    f"message that does not name the file in one line: {message}"
                ) from refused
            return re.sub(r"[0-9'\"].*", "...", message.removeprefix(f"{path}: "))[:60].strip()
    return "read"


def _work(connection: Connection, folder: str, limit: int) -> None:
    """Read inputs by their numbers, as the parent asks for them."""
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    seeds = make_seeds()
    while (asked := connection.recv()) is not None:
        kind, index = asked
        if kind == "zarr":
            path, read = make_zarr(index, Path(folder)), read_zarr
        else:
            extension, content = make_input(index, seeds)
            path, read = Path(folder) / f"input{extension}", read_everything
            path.write_bytes(content)
        start = time.perf_counter()
        try:
            outcome, fault = read(path), None
        except BaseException as error:  # whatever else comes of a file is what is looked for
            outcome, fault = "fault", f"{type(error).__name__}: {error}"[:300]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
            2**20 if sys.platform == "darwin" else 2**10
        )
        connection.send((outcome, fault, time.perf_counter() - start, peak))


class _Worker:
    """A process that reads inputs, and is ended if it takes too long."""

    def __init__(self, folder: str) -> None:
        # far more than it may use, so that the peak is measured and no other program suffers
        limit = 8 * MEGABYTES * 2**20
        self._here, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(there, folder, limit), daemon=True
        )
        self._process.start()
        there.close()

    def read(self, kind: str, index: int) -> tuple[str, str | None, float, float]:
        self._here.send((kind, index))
        try:
            # the first input waits for the imports of the process
            if self._here.poll(SECONDS + 60):
                return self._here.recv()
        except EOFError:
            return "fault", "the process died", 0.0, 0.0
        return "fault", f"not done after {SECONDS + 60:g} s", SECONDS + 60, 0.0

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def read_inputs(n_inputs: int, n_zarr: int) -> Iterator[tuple[str, str, str | None, float, float]]:
    """Read so many files and OME-Zarr; yield name, outcome, fault, seconds and the peak memory of the process in MB."""
    inputs = [("input", index) for index in range(n_inputs)] + [("zarr", index) for index in range(n_zarr)]
    with tempfile.TemporaryDirectory() as folder:
        worker = _Worker(folder)
        try:
            for kind, index in inputs:
                outcome, fault, seconds, peak = worker.read(kind, index)
                if fault is None and seconds > SECONDS:
                    outcome, fault = "fault", f"took {seconds:.1f} s"
                if fault is None and peak > MEGABYTES:
                    outcome, fault = "fault", f"memory of {peak:.0f} MB"
                yield f"{kind} {index}", outcome, fault, seconds, peak
                if fault is not None:  # its memory, and whatever else it has, is not that of a fresh process
                    worker.end()
                    worker = _Worker(folder)
        finally:
            worker.end()


def measure(n_files: int) -> dict[str, Any]:
    """Read so many files, and a twentieth as many OME-Zarr."""
    n_zarr = n_files // 20
    found = list(read_inputs(n_files, n_zarr))
    faults = [{"input": name, "fault": fault} for name, _, fault, *_ in found if fault is not None]
    n_read = sum(outcome == "read" for _, outcome, *_ in found)
    return {
        "n_seeds": len(make_seeds()),
        "n_read": n_read,
        "n_refused": len(found) - n_read - len(faults),
        "faults": faults,
        "slowest_seconds": round(max(seconds for *_, seconds, _ in found), 3),
        "peak_megabytes": round(max(peak for *_, peak in found)),
    }


def run(study: Study) -> None:
    n_files = 200 if study.quick else 20_000
    study.row({"n_inputs": n_files + n_files // 20}, lambda: measure(n_files))


def fuzz_images(rows: list[Row]) -> str:
    [found] = flat(rows)
    return (
        f"{found['n_inputs']:,} files from {found['n_seeds']} sound ones: {found['n_read']:,} read, "
        f"{found['n_refused']:,} refused by name, {len(found['faults'])} faults; at most "
        f"{found['slowest_seconds']:.2f} s and {found['peak_megabytes']:.0f} MB for one."
    )


TABLES = {"fuzz_images": fuzz_images}
