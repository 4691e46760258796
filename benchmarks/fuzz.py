"""Fuzzing of what reads what strangers send: files, and messages to the page's server.

``python -m benchmarks fuzz [--sets TARGET ...]`` is the campaign on all but configurations and meanings of mask values.
That on model files is guided by coverage (atheris, in the extra ``fuzz``): inputs that reached something new, and faults,
are kept in .fuzz. The others are sound inputs that were damaged; input i is the same on every machine. An input may be
accepted or refused by an error of the SegkitError family. Anything else, more than 5 seconds, or more memory than the limit
is a fault: the input is kept beside the corpus, and the result counts it.

Mutations know the structure of a file: they change bytes, JSON or arrays, and mend digests and sums afterwards, so that what
lies behind them is reached. Without atheris they serve the short form among the tests.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image

from benchmarks.markdown import markdown_table
from benchmarks.rows import ROOT, Row, Study, flat

GOLDEN = ROOT / "tests" / "segmentation" / "golden"
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
# What grows beside the kept corpus: inputs that reached something new, and faults.
WORK = ROOT / ".fuzz"
SECONDS, MEGABYTES = 5, 2048
EXTENSIONS = (".png", ".jpg", ".bmp", ".tif")
OUTLINES = (".geojson", ".json", ".zip", ".roi")
NEVER = 1_000_000
# Imports, and mutations, of a busy machine.
SECONDS_TO_START = 300
LONGEST = 40_000
# Inputs of one process: results are written, and memory is given back, after each.
INPUTS_AT_ONCE = 50_000
INPUTS_BETWEEN_WRITES = 1000
_SIZES = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
_INTERESTING: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 255, 256, 2**31, 2**53 + 1, 2**63, 10**12, 10**30, -(2**63), 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308,
    math.nan, math.inf, -math.inf, "", "a", "0", "each", "\ud800", "x" * 300, "http://127.0.0.1:9/a-00000000.pth", None,
    True, False, [], {}, [0], [[]], {"a": 0}, [0.5, 0.5], ["", ""],
)  # fmt: skip
_IN_OME = (
    0, 1, 2, 3, 4, 8, -1, 100_000, 10**9, 2**63, 10**30, "1e9", "nan", "inf", "", "9" * 5000, "XYZCT", "XYTCZ", "ZCT",
    "uint16", "float", "input.ome.tif", "other.ome.tif", "/dev/zero", "input.companion.ome", "urn:uuid:1", "urn:uuid:2",
    "T", "lifetime",
)  # fmt: skip
# In place of numbers: places in an image of 32 x 40 pixels, around its sides, and far beyond.
_IN_FRAMES = (
    -1, 0, 0, 1, 1, 2, 2, 3, 5, 8, 15, 16, 24, 31, 32, 33, 39, 40, 41, 255, 256, 2**31 - 1, 2**53, 0.5, 2.5, None, True
)  # fmt: skip

# --- Targets: each reads bytes, says what came of it, and lets every other error through -----------


def read_model_file(data: bytes) -> str:
    """Read a model file, restore the segmenter if the header is sound, and describe it as inspect would."""
    from segkit.cli.inspect import describe_model
    from segkit.errors import SegkitError
    from segkit.segmentation.model_file import find_faults, parse_model
    from segkit.segmentation.segmenter import segmenter_of

    try:
        header, arrays = parse_model(BytesIO(data), "fuzz.segkit")
    except SegkitError:
        return "refused by the reader"
    try:
        segmenter = segmenter_of(header, arrays, "fuzz.segkit")
    except SegkitError:
        return "refused by the loader"
    describe_model(header, explain=True)
    return "useless" if find_faults(segmenter) else "accepted"


def read_config(data: bytes) -> str:
    """Read the lines of a text as a YAML file and as ``--set`` options, and build what they configure."""
    from segkit.config import Config
    from segkit.errors import SegkitError

    text = data.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    with tempfile.NamedTemporaryFile(dir=_fast_folder(), suffix=".yaml") as file:
        file.write(data)
        file.flush()
        outcomes = set()
        for path, overrides in ((Path(file.name), []), (None, lines[:8])):
            try:
                Config.load(path, overrides).build()
            except SegkitError:
                outcomes.add("refused")
            else:
                outcomes.add("accepted")
    return " and ".join(sorted(outcomes))


def read_labels(data: bytes) -> str:
    """Read names of mask values, as ``data.labels`` and as the label map of a model file."""
    import yaml

    from segkit.config import Config
    from segkit.errors import SegkitError
    from segkit.images import LabelMap

    try:
        given = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError):
        return "no YAML"
    try:
        labels = Config.from_options({"data": {"labels": given}}).data.labels
        label_map = LabelMap.infer([*(labels or {0: "", 1: ""}), 7][:300], labels=labels, unlabelled=7)
        label_map.describe()
        again = LabelMap.from_dict(json.loads(json.dumps(label_map.to_dict())))
        values = np.array(label_map.values)
        assert again == label_map
        assert (again.decode(again.encode(values)) == values).all()
    except SegkitError:
        return "refused"
    return "accepted"


def read_image_file(data: bytes) -> str:
    """Read an image as each of segkit's readers of images does; its first byte is the place of its extension."""
    from segkit.images import check_image, read_mask, read_pages, read_pixel_size
    from segkit.images.read import count_pages, image_from_page

    def read_image(path: Path) -> None:
        for page in read_pages(path):
            check_image(image_from_page(page, name=str(path)), name=str(path))

    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        path = Path(folder) / f"input{EXTENSIONS[data[0] % len(EXTENSIONS)] if data else '.png'}"
        path.write_bytes(data[1:])
        readers = (read_image, read_mask, read_pixel_size, count_pages)
        outcomes = [_read_or_refused(reader, path) for reader in readers]
    return outcomes[0]


def read_zarr(data: bytes) -> str:
    """Write the files of an OME-Zarr, and read both of its levels by region."""
    from segkit.images.large_image import open_large

    def read_level(path: Path, level: int) -> None:
        with open_large(path, level) as image:
            for row in range(0, min(image.shape[0], 24), 8):
                _ = image[row : row + 8, 0:8], image.grid.pixel_size

    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        path = Path(folder) / "input.zarr"
        for name, content in json.loads(data).items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content.encode("latin-1"))
        outcomes = [_read_or_refused(partial(read_level, level=level), path) for level in (0, 1)]
    return outcomes[0]


def read_outlines(data: bytes) -> str:
    """Read the objects of an image from outlines, and without its size; the first byte is the place of the extension."""
    from segkit.images import read_instances

    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        path = Path(folder) / f"input{OUTLINES[data[0] % len(OUTLINES)] if data else '.json'}"
        path.write_bytes(data[1:])
        outcomes = [
            _read_or_refused(partial(read_instances, shape=shape), path) for shape in ((24, 32), None)
        ]
    return outcomes[0]


def read_ome(data: bytes) -> str:
    """Read a TIFF file of three pages, which a text of OME describes."""
    from segkit.images import read_pixel_size
    from segkit.images.pixel_size import read_z_step
    from segkit.images.read import count_pages, read_stack

    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        path = Path(folder) / "input.ome.tif"
        pages = np.arange(192, dtype=np.uint8).reshape(3, 8, 8)
        tifffile.imwrite(
            path, pages, description=data.replace(b"\0", b""), metadata=None, photometric="minisblack"
        )
        readers = (partial(read_stack, unnamed="any"), read_pixel_size, read_z_step, count_pages)
        outcomes = [_read_or_refused(reader, path) for reader in readers]
    return outcomes[0]


def read_frame(data: bytes) -> str:
    """Read a message as the page's server does, and do what it asks for."""
    from benchmarks.page_session import opened_page

    return opened_page().answer(data)


def _read_or_refused(read: Callable[[Path], object], path: Path) -> str:
    from segkit.errors import SegkitError

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
            return "refused"
    return "read"


# --- Mutations ------------------------------------------------------------------------------------


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, overwrite, insert, remove or repeat bytes at a few places, half of them in the header; or write a number."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(min(len(changed), rng.choice((64, NEVER))) + 1)
        length = rng.choice((1, 1, 2, 8, 64))
        kind = rng.randrange(7)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at : at + length] = rng.randbytes(length)
        elif kind == 2:
            changed[at:at] = rng.randbytes(length)
        elif kind == 3:
            del changed[at : at + length]
        elif kind == 4:
            changed[at:at] = changed[at : at + length] * rng.choice((1, 1, 20))
        elif kind == 5:
            number = struct.pack(rng.choice("<>") + "I", rng.choice(_SIZES))[: rng.choice((2, 4))]
            changed[at : at + len(number)] = number
        else:
            del changed[at:]
    return bytes(changed)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Change one entry of nested lists and mappings: another value, none, twice, or one of elsewhere."""
    value = json.loads(json.dumps(value))
    nodes = [(None, None), *_nodes(value)]
    holder, key = rng.choice(nodes)
    new = _another(value if holder is None else holder[key], rng, nodes)
    if holder is None:
        return new
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(key, new)
    elif kind == 1:
        holder[rng.choice(("", "orbit", "banks", "kind", "x"))] = new
    elif kind == 2 and isinstance(holder, list):
        holder *= rng.choice((0, 2, 50))
    else:
        holder[key] = new
    return value


def mutate_model(data: bytes, rng: random.Random) -> bytes:
    """Change a model file: its bytes, its header or its arrays; mostly with digests that fit again."""
    from segkit.segmentation.tensor_file import DamagedFile

    try:
        outer, header, arrays = _open(data)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return mutate_bytes(data, rng)
    kind = rng.randrange(10)
    if kind == 0:
        return mutate_bytes(data, rng)
    if kind == 1:
        return _close(mutate_json(outer, rng), data)
    if kind < 7:
        for _ in range(rng.choice((1, 1, 2))):
            header = mutate_json(header, rng)
    else:
        _mutate_arrays(arrays, rng)
    try:
        return seal(header, arrays, mends=rng.random() < 0.95)
    except DamagedFile:  # a header too large to be written
        return mutate_bytes(data, rng)


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """Change a YAML text: its bytes, or its values."""
    import yaml

    if rng.random() < 0.5:
        return mutate_bytes(data, rng)
    try:
        return yaml.safe_dump(mutate_json(yaml.safe_load(data), rng)).encode("utf-8", "replace")
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return mutate_bytes(data, rng)


def mutate_image(data: bytes, rng: random.Random) -> bytes:
    """Change the bytes of an image file; half of PNG files have sums that fit again."""
    changed = mutate_bytes(data[1:], rng)
    if changed.startswith(b"\x89PNG") and rng.random() < 0.5:
        changed = _with_valid_sums(changed)
    return data[:1] + changed


def mutate_zarr(data: bytes, rng: random.Random) -> bytes:
    """Change or remove files of an OME-Zarr, those that describe it half of the time."""
    files = json.loads(data)
    described = [name for name in files if name.endswith(".json") or name.split("/")[-1].startswith(".z")]
    for _ in range(rng.choice((1, 1, 2, 4))):
        name = rng.choice(described if rng.random() < 0.5 else list(files))
        if rng.random() < 0.2:
            files.pop(name, None)
        elif name in files:
            files[name] = mutate_bytes(files[name].encode("latin-1"), rng).decode("latin-1")
        if not files:
            break
    return json.dumps(files).encode()


def mutate_outlines(data: bytes, rng: random.Random) -> bytes:
    """Change a file of outlines: its bytes, values of its JSON, or the bytes of a file in its archive."""
    kind, content = data[:1], data[1:]
    if rng.random() < 0.3:
        return kind + mutate_bytes(content, rng)
    if OUTLINES[kind[0]] == ".zip":
        with zipfile.ZipFile(BytesIO(content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(sorted(files))
        files[name] = mutate_bytes(files[name], rng)
        return kind + _zipped(files)
    if OUTLINES[kind[0]] == ".roi":
        return kind + mutate_bytes(content, rng)
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = mutate_json(value, rng)
    return kind + json.dumps(value).encode("utf-8", "replace")


def mutate_ome(data: bytes, rng: random.Random) -> bytes:
    """Change a text of OME: its bytes, values of attributes, or elements, which are removed or repeated."""
    text = data.decode("utf-8", "replace")
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.randrange(4)
        found = list(re.finditer(r'"[^"]*"' if kind < 2 else r"<[^<>]*>", text))
        if kind == 3 or not found:
            text = mutate_bytes(text.encode(), rng).decode("utf-8", "replace")
            continue
        one = rng.choice(found)
        new = (
            f'"{rng.choice(_IN_OME)}"'
            if kind < 2
            else rng.choice(("", one[0] * 2, one[0] * 500, rng.choice(found)[0]))
        )
        text = text[: one.start()] + new + text[one.end() :]
    return text.encode()


def mutate_frame(data: bytes, rng: random.Random) -> bytes:
    """Change a message: its bytes, values of its header, or its length and the bytes behind it."""
    if rng.random() < 0.2:
        return mutate_bytes(data, rng)
    (length,) = struct.unpack_from("<I", data)
    value, payload = json.loads(data[4 : 4 + length]), data[4 + length :]
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        places = [(owner, name) for owner, name in _nodes(value) if isinstance(owner[name], int | float)]
        if places and rng.random() < 0.8:
            owner, name = rng.choice(places)
            owner[name] = rng.choice(_IN_FRAMES)
        else:
            value = mutate_json(value, rng)
    text = json.dumps(value).encode("utf-8", "replace")
    if rng.random() < 0.3:
        payload = mutate_bytes(payload or b"\0", rng)
    return struct.pack("<I", len(text)) + text + payload


def _zipped(files: dict[str, bytes]) -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _with_valid_sums(content: bytes) -> bytes:
    """Mend the sums of the pieces of a PNG file."""
    data, place = bytearray(content), 8
    while place + 12 <= len(data):
        end = place + 8 + int.from_bytes(data[place : place + 4], "big")
        if end + 4 > len(data):
            break
        data[end : end + 4] = struct.pack(">I", zlib.crc32(data[place + 4 : end]))
        place = end + 4
    return bytes(data)


def seal(header: Any, arrays: dict[str, Any], *, mends: bool = True) -> bytes:
    """Write a model file whose digests fit, however odd its contents."""
    from segkit.segmentation.model_file import digest_arrays
    from segkit.segmentation.tensor_file import pack

    if mends and isinstance(header, dict):
        header = header | {"tensors": {name: digest_arrays({name: array}) for name, array in arrays.items()}}
    text = json.dumps(header)
    return pack(arrays, {"segkit": text, "sha256": hashlib.sha256(text.encode()).hexdigest()})


def _nodes(value: Any) -> Iterable[tuple[Any, Any]]:
    """Yield the holder and the key of every entry."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _nodes(value[key])


def _another(value: Any, rng: random.Random, nodes: list[tuple[Any, Any]]) -> Any:
    """Return a value in place of another one: near it, interesting, nested or from elsewhere."""
    kind = rng.randrange(6)
    if kind == 0 and isinstance(value, int | float):
        return rng.choice(
            (value + 1, value - 1, -value, value * 1000, value / 3 if abs(value) < 1e300 else 0, str(value))
        )
    if kind == 1:
        holder, key = rng.choice(nodes)
        return None if holder is None else json.loads(json.dumps(holder[key]))
    if kind == 2:
        for _ in range(rng.choice((1, 2, 10, 40))):
            value = [value] if rng.random() < 0.5 else {"banks": value}
        return value
    if kind == 3 and isinstance(value, str):
        return value[: rng.randrange(len(value) + 1)] + rng.choice(("", "0", "é", "\n", value))
    return rng.choice(_INTERESTING)


def _mutate_arrays(arrays: dict[str, Any], rng: random.Random) -> None:
    """Change one array: its values, shape, dtype or name; or drop it, or copy it under another name."""
    name = rng.choice(sorted(arrays)) if arrays else "a"
    array = np.array(arrays.pop(name, np.zeros(3)))
    kind = rng.randrange(9)
    if kind == 0:
        return
    if kind == 1 and array.size:
        array.flat[rng.randrange(array.size)] = rng.choice(
            (0, 1, -1, 1e30, -1e-30) if array.dtype.kind == "f" else (0, 1, -1, 2**31 - 1)
        )
    elif kind == 2:
        array = array * 0
    elif kind == 3 and array.dtype.kind == "f":
        array = array * np.array(rng.choice((-1, 1e20, 1e-30)), dtype=array.dtype)
    elif kind == 4:
        array = array.astype(rng.choice(("<f4", "<f8", "<i8", "<i4")))
    elif kind == 5:
        array = array.T if rng.random() < 0.5 else array.reshape(-1)
    elif kind == 6:
        array = array[: rng.randrange(len(array) + 1)] if array.ndim else array[None]
    elif kind == 7:
        name = rng.choice(
            (f"{name}0", f"weights.{name}", f"parts.{name}", "", "kernels.phases", "kernels.landmarks_0")
        )
    else:
        arrays[rng.choice((f"weights.{name}", f"parts.{name}", f"kernels.{name}"))] = array
    with np.errstate(all="ignore"):
        arrays[name] = array


def _open(data: bytes) -> tuple[Any, Any, dict[str, Any]]:
    """Take a model file apart, whatever its digests."""
    from segkit.segmentation.tensor_file import DTYPES

    length = int.from_bytes(data[:8], "little")
    outer = json.loads(data[8 : 8 + length])
    arrays = {}
    for name, entry in outer.items():
        if name != "__metadata__":
            start, stop = (8 + length + place for place in entry["data_offsets"])
            arrays[name] = np.frombuffer(data[start:stop], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return outer, json.loads(outer["__metadata__"]["segkit"]), arrays


def _close(outer: Any, data: bytes) -> bytes:
    """Put another outer header before the numbers of a file."""
    text = json.dumps(outer).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + int.from_bytes(data[:8], "little") :]


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# --- Sound files ---------------------------------------------------------------------------------


def _pillow(kind: str, pixels: Any, mode: str | None = None, **options: Any) -> bytes:
    picture = Image.fromarray(pixels)
    stream = io.BytesIO()
    (picture.convert(mode) if mode else picture).save(stream, kind, **options)
    return stream.getvalue()


def _tiff(pixels: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, **options)
    return stream.getvalue()


@cache
def image_seeds() -> list[bytes]:
    """Make sound files of all kinds; a first byte says the extension."""
    rgb = np.random.default_rng(0).integers(0, 256, (18, 22, 3)).astype(np.uint8)
    grey = np.ascontiguousarray(rgb[:, :, 0])
    deep = grey.astype(np.uint16) * 257
    smooth = (np.indices(grey.shape).sum(axis=0) * 6).astype(np.uint8)
    rgba = np.dstack([rgb, grey])
    exif = Image.Exif()
    exif[274] = 6
    page = {"photometric": "minisblack"}
    files = {
        ".png": (
            _pillow("PNG", grey),
            _pillow("PNG", rgb, dpi=(100, 100)),
            _pillow("PNG", rgba),
            _pillow("PNG", deep),
            _pillow("PNG", grey > 99),
            _pillow("PNG", rgb, "P"),
            _pillow("PNG", smooth, exif=exif),
            _pillow("PNG", rgb, save_all=True, append_images=[Image.fromarray(255 - rgb)]),
        ),
        ".jpg": (
            _pillow("JPEG", grey),
            _pillow("JPEG", rgb, exif=exif),
            _pillow("JPEG", rgb, "CMYK"),
            _pillow("JPEG", rgb, progressive=True, quality=95),
            _pillow("JPEG", np.where(grey > 99, 255, 0).astype(np.uint8)),
        ),
        ".bmp": (
            _pillow("BMP", grey),
            _pillow("BMP", rgb),
            _pillow("BMP", rgb, "P"),
            _pillow("BMP", grey > 99),
        ),
        ".tif": (
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
        ),
    }
    return [bytes([EXTENSIONS.index(name)]) + content for name, own in files.items() for content in own]


@cache
def zarr_seeds() -> list[bytes]:
    """Write OME-Zarr of both formats, two levels each, as JSON of their files."""
    import zarr

    pixels = np.random.default_rng(0).integers(0, 256, (18, 22)).astype(np.uint8)
    moves = [{"type": "scale", "scale": [0.5, 0.5]}]
    datasets = [{"path": str(level), "coordinateTransformations": moves} for level in range(2)]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    described = {"multiscales": [{"axes": axes, "datasets": datasets, "version": "0.4"}]}
    seeds = []
    for zarr_format, attributes in ((2, described), (3, {"ome": {"version": "0.5", **described}})):
        with tempfile.TemporaryDirectory() as folder:
            group = zarr.open_group(folder, mode="w", zarr_format=zarr_format)
            for level in range(2):
                part = pixels[:: 2**level, :: 2**level]
                array = group.create_array(str(level), shape=part.shape, chunks=(8, 8), dtype=part.dtype)
                array[:] = part
            group.attrs.update(attributes)
            files = sorted(place for place in Path(folder).rglob("*") if place.is_file())
            texts = {
                place.relative_to(folder).as_posix(): place.read_bytes().decode("latin-1") for place in files
            }
        seeds.append(json.dumps(texts).encode())
    return seeds


@cache
def outline_seeds() -> list[bytes]:
    """Make files of outlines of each kind; a first byte says the extension."""
    import roifile

    from segkit.images import write_geojson, write_rois

    labels = np.zeros((24, 32), dtype=np.int32)
    labels[2:9, 3:12], labels[4:6, 5:8], labels[12:20, 14:30], labels[20:23, 2:6], labels[23, 6] = (
        1,
        0,
        7,
        2,
        2,
    )
    square = [[1, 1], [9, 1], [9, 9.5], [1, 9], [1, 1]]
    parts = [{"type": kind, "coordinates": [square]} for kind in ("Polygon", "Point")]
    geometries = [
        {"type": "Polygon", "coordinates": [square], "plane": {"c": -1, "z": 0, "t": 0}},
        {"type": "MultiPolygon", "coordinates": [[square], [[[11, 2], [30, 2], [20, 22]]]]},
        {"type": "GeometryCollection", "geometries": parts},
    ]
    told = {
        "objectType": "annotation",
        "name": "3",
        "classification": {"name": "Region*", "names": ["Tumor", "A"]},
    }
    features = [
        {"type": "Feature", "id": "PathCellObject", "geometry": one, "properties": told} for one in geometries
    ]
    runs = {"size": [24, 32], "counts": [100, 20, 648]}
    segmentations = [
        [[1, 1, 9, 1, 9, 9]],
        [[1, 1, 9, 1, 9, 9], [20, 2, 30, 2, 30, 9]],
        runs,
        runs | {"counts": "T3D[c0"},
    ]
    annotations = [
        {
            "id": place,
            "image_id": 1,
            "category_id": 1,
            "iscrowd": place % 2,
            "bbox": [1, 1, 8, 8],
            "segmentation": one,
        }
        for place, one in enumerate(segmentations)
    ]
    image = {"id": 1, "file_name": "input.png", "height": 24, "width": 32}
    coco = {"images": [image], "categories": [{"id": 1, "name": "cell"}], "annotations": annotations}
    oval = roifile.ImagejRoi(
        roitype=roifile.ROI_TYPE.OVAL, left=3, top=2, right=20, bottom=11, name="1"
    ).tobytes()
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        written = [Path(folder) / name for name in ("a.geojson", "a.zip")]
        write_geojson(written[0], labels, {1: "Tumor"})
        write_rois(written[1], labels)
        geojson, rois = (path.read_bytes() for path in written)
    files = {
        ".geojson": (geojson, json.dumps({"type": "FeatureCollection", "features": features[:2]}).encode()),
        ".json": (
            json.dumps(features[2]).encode(),
            json.dumps(coco | {"annotations": annotations[:3:2]}).encode(),
        ),
        ".zip": (rois, _zipped({"1.roi": oval, "__MACOSX/1.roi": b"x"})),
        ".roi": (oval,),
    }
    return [bytes([OUTLINES.index(name)]) + content for name, own in files.items() for content in own]


@cache
def ome_seeds() -> list[bytes]:
    """Write texts of OME for three pages: of a file by itself, of a set, and of axes within axes."""
    start = '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"'
    channels = "".join(
        f'<Channel ID="C:{place}" Name="{name}" SamplesPerPixel="1"/>' for place, name in enumerate("AB")
    )
    size = 'SizeX="8" SizeY="8" SizeZ="{z}" SizeC="{c}" SizeT="{t}"'
    physical = 'PhysicalSizeX="0.5" PhysicalSizeY="0.5" PhysicalSizeZ="2" PhysicalSizeXUnit="µm"'
    pixels = (
        f'<Image ID="Image:0"><Pixels ID="P:0" DimensionOrder="XYZCT" Type="uint8" {size} {physical}>'
        "{inside}</Pixels></Image>"
    )
    plain = pixels.format(z=3, c=1, t=1, inside='<TiffData IFD="0" PlaneCount="3"/>')
    both = "".join(
        f'<TiffData FirstT="{time}" IFD="0" PlaneCount="3"><UUID FileName="{name}.ome.tif">urn:uuid:{time}</UUID></TiffData>'
        for time, name in enumerate(("input", "other"))
    )
    along = '<Value><Modulo><ModuloAlongT Type="lifetime" Start="0" End="2" Step="1"/></Modulo></Value>'
    modulo = (
        '<StructuredAnnotations><XMLAnnotation ID="A:0" Namespace="openmicroscopy.org/omero/dimension/modulo">'
        f"{along}</XMLAnnotation></StructuredAnnotations>"
    )
    texts = [
        f"{start}>{plain}</OME>",
        f'{start} UUID="urn:uuid:0">{pixels.format(z=3, c=1, t=2, inside=both)}</OME>',
        f"{start}>{pixels.format(z=1, c=2, t=1, inside=channels + '<TiffData/>')}</OME>",
        f"{start}>{pixels.format(z=1, c=1, t=3, inside='<TiffData/>')}{modulo}</OME>",
    ]
    return [text.encode() for text in texts]


@cache
def frame_seeds() -> list[bytes]:
    """Write a message of each kind; those that draw have a mask of 4 x 20 pixels."""
    from segkit.annotate.messages import pack

    def of_image(op: str, **more: Any) -> dict[str, Any]:
        return {"op": op, "image": "a", "seq": 1, **more}

    mask, area = bytes([255] * 10), {"corner": [2, 4], "shape": [4, 20], "value": 1}
    names = [
        {"value": value, "name": name, "colour": colour}
        for value, name, colour in ((0, "background", "#1f77b4"), (1, "object", "#ff7f0e"))
    ]
    return [
        *(pack({"op": op, "image": image}) for op in ("open", "suggest") for image in "ab"),
        pack({"op": "view", "image": "a", "box": [0, 0, 16, 20]}),
        pack(of_image("stroke", stroke="1", **area), mask),
        pack(of_image("draw_object", **area), mask),
        pack(of_image("grow_object", at=[16, 20], reach=6.0, value=None)),
        pack(of_image("classify_object", at=[16, 20], value=1)),
        *(
            pack(of_image(op, points=[[16, 20], [20, 24]]))
            for op in ("accept_object", "delete_object", "merge_objects", "split_objects")
        ),
        *(pack(of_image(op)) for op in ("undo", "redo", "accept", "accept_objects")),
        pack({"op": "classes", "classes": names}),
        pack({"op": "axes", "axes": "ZYX"}),
        pack({"op": "settings", "live": False, "source": "strokes"}),
        pack({"op": "object_settings", "depth": 0.5, "smallest": 4.0, "fill_holes": True}),
        *(pack({"op": op}) for op in ("check_labels", "cancel_run", "cancel_network")),
        *(pack({"op": op}) for op in ("train_network", "export")),
        pack({"op": "segment", "images": None, "output": None, "retrain": False}),
    ]


# --- Campaign -------------------------------------------------------------------------------------

TARGETS: dict[str, tuple[Callable[[bytes], str], Callable[[bytes, random.Random], bytes]]] = {
    "model_file": (read_model_file, mutate_model),
    "config": (read_config, mutate_text),
    "labels": (read_labels, mutate_text),
    "image": (read_image_file, mutate_image),
    "zarr": (read_zarr, mutate_zarr),
    "outlines": (read_outlines, mutate_outlines),
    "ome": (read_ome, mutate_ome),
    "frame": (read_frame, mutate_frame),
}
# Sound files that are made; of the others some are kept.
MADE = {"image": image_seeds, "zarr": zarr_seeds, "outlines": outline_seeds, "ome": ome_seeds}
MADE |= {"frame": frame_seeds}
GUIDED = "model_file"
# Of a campaign; the others are read in the short form only.
INPUTS = {"frame": 100_000, "outlines": 100_000, "ome": 100_000, "image": 100_000, "zarr": 10_000}
INPUTS |= {"model_file": 600_000}


def seeds_of(target: str) -> list[bytes]:
    """Return the inputs that a campaign starts from: sound files, and kept ones that are odd."""
    if target in MADE:
        return MADE[target]()
    files = sorted((CORPUS / target).iterdir()) if (CORPUS / target).is_dir() else []
    files += sorted(GOLDEN.glob("*.segkit")) if target == "model_file" else []
    files += sorted((ROOT / "configs").glob("*.yaml")) if target == "config" else []
    return [file.read_bytes() for file in files]


def replay(target: str, n_mutations: int, seed: int = 0) -> Counter[str]:
    """Read all seeds, then mutations of them: the short form, without atheris; a fault is raised."""
    read, mutate = TARGETS[target]
    rng, seeds = random.Random(seed), seeds_of(target)
    mutated = (mutate(rng.choice(seeds), rng) for _ in range(n_mutations))
    return Counter(read(data) for group in (seeds, mutated) for data in group)


def campaign(target: str, runs: int) -> dict[str, Any]:
    """Read as many inputs as asked for, in one process after another."""
    figures: dict[str, Any] = {"inputs": 0, "outcomes": {}, "faults": []}
    figures |= {"slowest_seconds": 0.0, "peak_megabytes": 0.0}
    found, faults = WORK / target / "found", WORK / target / "faults"
    for folder in (found, faults):
        folder.mkdir(parents=True, exist_ok=True)
    for data in seeds_of(target):
        (found / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    seed = 0
    while figures["inputs"] < runs:
        seed += 1
        state = WORK / target / "state.json"
        state.unlink(missing_ok=True)
        job = [target, min(INPUTS_AT_ONCE, runs - figures["inputs"]), str(state), seed]
        known = {file.name for file in faults.iterdir()}
        status, end = _watch([sys.executable, "-m", "benchmarks.fuzz", json.dumps(job)], state)
        told = {"inputs": 0, "outcomes": {}}
        if state.is_file():
            told = json.loads(state.read_text(encoding="utf-8"))
        figures["inputs"] += told["inputs"]
        figures["outcomes"] = dict(Counter(figures["outcomes"]) + Counter(told["outcomes"]))
        for name in ("slowest_seconds", "peak_megabytes"):
            figures[name] = max(figures[name], told.get(name, 0.0))
        if status:
            new = sorted(file.name for file in faults.iterdir() if file.name not in known)
            # it may end the process before anything could be kept
            if not new and _current(state).stat().st_size:
                data = _current(state).read_bytes()
                new = [f"ended-{hashlib.sha256(data).hexdigest()[:16]}"]
                (faults / new[0]).write_bytes(data)
            figures["faults"].append({"files": new, "status": status, "end": end})
            if not told["inputs"]:
                raise SystemExit(f"the first input ended the process:\n{end}")
        print(figures["inputs"], "inputs", flush=True)
    return figures


def work(target: str, n_inputs: int, state_file: str, seed: int) -> None:
    """Read inputs; the process ends with the last one, or with a fault."""
    state = Path(state_file)
    told: dict[str, Any] = {"inputs": 0, "outcomes": Counter(), "slowest_seconds": 0.0}

    def read_one(data: bytes, read: Callable[[bytes], str]) -> None:
        _current(state).write_bytes(data)
        begun = time.perf_counter()
        outcome = read(data)
        _current(state).write_bytes(b"")
        told["slowest_seconds"] = max(told["slowest_seconds"], round(time.perf_counter() - begun, 3))
        told["inputs"] += 1
        if told["inputs"] > 0:
            told["outcomes"][outcome] += 1
            if told["inputs"] % INPUTS_BETWEEN_WRITES == 0 or told["inputs"] == n_inputs:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                state.write_text(json.dumps(told | {"peak_megabytes": round(peak, 1)}), encoding="utf-8")

    if target == GUIDED:
        _read_guided(target, n_inputs, seed, told, read_one)
        return
    resource.setrlimit(resource.RLIMIT_AS, (8 * MEGABYTES * 2**20,) * 2)  # an input too large is a fault
    read, mutate = TARGETS[target]
    seeds = seeds_of(target)
    for data in seeds:  # imports what an input may need
        read(data)
    for index in range(n_inputs):
        rng = random.Random(seed * NEVER + index)
        read_one(mutate(rng.choice(seeds), rng), read)


def _read_guided(
    target: str, n_inputs: int, seed: int, told: dict[str, Any], read_one: Callable[..., None]
) -> None:
    """Read inputs that atheris makes, guided by what code they reach."""
    import atheris

    # what is imported already has no trace; nothing here holds any of it
    for name in [name for name in sys.modules if name.partition(".")[0] == "segkit"]:
        del sys.modules[name]
    with atheris.instrument_imports(include=["segkit"]):
        read, mutate = TARGETS[target]
        for data in seeds_of(target):  # imports what an input may need
            read(data)
    found, faults = WORK / target / "found", WORK / target / "faults"
    n_known = len(list(found.iterdir())) + 1  # libFuzzer reads these first, and an empty input
    told["inputs"] = -n_known
    seeds = seeds_of(target)

    def mutate_one(data: bytes, longest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.2:
            return bytes(atheris.Mutate(data, longest))
        # What coverage kept is often beyond repair: the seeds are sound.
        changed = mutate(data if rng.random() < 0.6 else rng.choice(seeds), rng)
        return changed if len(changed) <= longest else data

    options = [
        f"-runs={n_inputs + n_known}",
        f"-seed={seed}",
        f"-timeout={NEVER}",
        f"-rss_limit_mb={MEGABYTES}",
    ]
    options += [f"-max_len={LONGEST}", "-len_control=0", f"-artifact_prefix={faults}/", str(found)]
    atheris.Setup([sys.argv[0], *options], lambda data: read_one(data, read), custom_mutator=mutate_one)
    atheris.Fuzz()


def _watch(command: list[str], state: Path) -> tuple[int, str]:
    """Run a process until its end, or until it reads one input for too long; return its status and its last words.

    Not the alarm of atheris: it also counts the time of mutations, and a library may take its signal.
    """
    current, log = _current(state), state.with_suffix(".log")
    current.write_bytes(b"")
    with log.open("wb") as words:
        process = subprocess.Popen(command, cwd=ROOT, stdout=words, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(0.2)
            there = current.stat()
            if time.time() - there.st_mtime > (SECONDS if there.st_size else SECONDS_TO_START):
                process.kill()
    return process.wait(), log.read_bytes()[-3000:].decode("utf-8", "replace")


def _current(state: Path) -> Path:
    """Return the place of the input that a process is reading."""
    return (
        Path(_fast_folder() or state.parent)
        / f"{hashlib.sha256(str(state).encode()).hexdigest()[:16]}.current"
    )


def run(study: Study) -> None:
    if study.quick:  # mutations of each target, without atheris
        for target in TARGETS:
            study.row({"target": target}, lambda target=target: {"outcomes": replay(target, 30)})
    else:
        for target in study.sets or INPUTS:
            study.row({"target": target}, partial(campaign, target, INPUTS[target]))


def fuzz(rows: list[Row]) -> str:
    """Tabulate what was read of each kind of input."""
    titles = {"model_file": "model files", "image": "images", "zarr": "OME-Zarr"}
    titles |= {
        "outlines": "outlines",
        "ome": "metadata of OME-TIFF",
        "frame": "messages to the page's server",
    }
    table = [
        (
            titles[row["target"]],
            f"{row['inputs']:,}",
            f"{sum(n for name, n in row['outcomes'].items() if 'refused' in name):,}",
            str(len(row["faults"])),
            f"{row['slowest_seconds']:.2f} s",
            f"{row['peak_megabytes']:.0f} MB",
        )
        for row in flat(rows)
    ]
    return markdown_table(("input", "tried", "refused", "faults", "slowest", "memory, at most"), table)


TABLES = {"fuzz": fuzz}


if __name__ == "__main__":
    work(*json.loads(sys.argv[1]))
