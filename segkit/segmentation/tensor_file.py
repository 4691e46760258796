"""Named arrays and texts in one file, in the layout of safetensors, read within bounds.

Eight bytes give the length of the header, little-endian. The header is JSON: dtype, shape and place of each array, and
texts by name under ``__metadata__``. The numbers follow, without gaps.

The library of that name is not used. It maps files into memory: if another program cuts the file short meanwhile, the
process ends. It also writes texts in random order, so that equal contents would not give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, prod
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

# Bytes: a model of 1,000 training images has a header of some 300 kB.
MOST_HEADER = 2**22
MOST_DEPTH = 32
# More than any file holds. NumPy refuses much larger shapes, even of empty arrays.
MOST_CELLS = 2**48
DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4"}
_TEXTS = "__metadata__"
_ALIGNMENT = 8


class DamagedFile(ValueError):  # noqa: N818
    """A file of another layout, or outside the bounds; the message names the fault."""


@dataclass(frozen=True)
class Entry:
    """Name, dtype, shape and place of one array, in bytes behind the header."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    stop: int


def pack(arrays: Mapping[str, NDArray[Any]], texts: Mapping[str, str]) -> bytes:
    """Return the bytes of a file of arrays and texts; equal contents give equal bytes."""
    names = {np.dtype(text): name for name, text in DTYPES.items()}
    # The widest numbers first, so that all are aligned.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {_TEXTS: dict(texts)}
    stop = 0
    for name in order:
        array = arrays[name]
        if array.dtype not in names:
            raise DamagedFile(
                f"array {name} is of dtype {array.dtype}, known are {', '.join(map(str, names))}"
            )
        start, stop = stop, stop + array.nbytes
        header[name] = {
            "dtype": names[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, stop],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > MOST_HEADER:
        raise DamagedFile(f"header of {len(text):,} bytes, at most {MOST_HEADER:,} are read")
    return b"".join([len(text).to_bytes(8, "little"), text, *(arrays[name].tobytes() for name in order)])


def read_index(file: BinaryIO, size: int) -> tuple[dict[str, str], list[Entry]]:
    """Read texts and the places of the arrays, and check that these fill a file of `size` bytes."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(MOST_HEADER, size - 8):
        raise DamagedFile(
            f"header of {length:,} bytes in a file of {size:,}, at most {MOST_HEADER:,} are read"
        )
    header = read_json(file.read(length))
    if not isinstance(header, dict):
        raise DamagedFile("header is no mapping")
    texts = header.pop(_TEXTS, {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise DamagedFile("metadata are not all text")
    entries = [_entry(name, described) for name, described in header.items()]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    places = [(0, 0), *((entry.start, entry.stop) for entry in entries)]
    if any(stop != start for (_, stop), (start, _) in pairwise(places)) or places[-1][1] != size - 8 - length:
        raise DamagedFile("arrays do not fill the file")
    return texts, entries


def read_arrays(file: BinaryIO, entries: list[Entry]) -> Arrays:
    """Read the numbers behind the header once; the arrays are parts of one block of memory."""
    n_bytes = entries[-1].stop if entries else 0
    block = np.empty(n_bytes, dtype=np.uint8)
    view, done = block.data, 0
    while done < n_bytes:
        read = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not read:
            raise DamagedFile("file ends before its arrays")
        done += read
    arrays = {entry.name: _of_block(block, entry) for entry in entries}
    for name, array in arrays.items():
        # The extremes of an array are NaN if any number is; no copy of its size is made.
        if (
            array.dtype.kind == "f"
            and array.size
            and not (np.isfinite(array.min()) and np.isfinite(array.max()))
        ):
            raise DamagedFile(f"array {name} holds NaN or infinity")
    return arrays


def read_json(text: str | bytes) -> Any:
    """Read JSON with unique keys, finite numbers and bounded nesting."""
    try:
        value = json.loads(
            text, object_pairs_hook=_each_once, parse_constant=_refuse_constant, parse_float=_finite
        )
    except DamagedFile:
        raise
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError: of JSON, of UTF-8, of integers with 5,000 digits
        raise DamagedFile(f"header is not JSON: {error}") from error
    _check_depth(value, MOST_DEPTH)
    return value


def _entry(name: str, described: Any) -> Entry:
    """Check the entry of one array in the header."""
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise DamagedFile(f"array {name}: dtype, shape and data_offsets are needed")
    kind, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise DamagedFile(f"array {name} is of dtype {kind}, known are {', '.join(DTYPES)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise DamagedFile(f"array {name}: shape and place are no whole numbers from 0")
    dtype = np.dtype(DTYPES[kind])
    if prod(max(length, 1) for length in shape) > MOST_CELLS:
        raise DamagedFile(f"array {name} is too large")
    if prod(shape) * dtype.itemsize != offsets[1] - offsets[0]:
        raise DamagedFile(f"array {name}: its shape does not fit its place")
    return Entry(name, dtype, tuple(shape), *offsets)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _of_block(block: NDArray[np.uint8], entry: Entry) -> NDArray[Any]:
    """Return one array of a block of bytes; one that is not aligned is copied."""
    try:
        array = block[entry.start : entry.stop].view(entry.dtype).reshape(entry.shape)
    except ValueError as error:  # more dimensions than NumPy knows
        raise DamagedFile(f"array {entry.name} has {len(entry.shape)} dimensions") from error
    return np.require(array, requirements="A")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DamagedFile("a key of the header stands twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise DamagedFile(f"header holds {name}")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise DamagedFile(f"header holds {text}, which is out of range")
    return value


def _check_depth(value: Any, left: int) -> None:
    if isinstance(value, dict | list):
        if not left:
            raise DamagedFile(f"header is nested deeper than {MOST_DEPTH}")
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, left - 1)
