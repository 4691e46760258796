"""Named arrays and texts in one file, in the layout of safetensors, read within bounds.

Eight bytes give the length of the header, little-endian. The header is JSON: dtype, shape and place of each array, and
texts by name under ``__metadata__``. The numbers follow, without gaps.

The library of that name reads the arrays, from bytes: if it mapped the file, another program that cuts the file short
would end the process. It does not write: its texts are in random order, so equal contents would give unequal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite, prod
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

Arrays = dict[str, NDArray[Any]]

# Bytes: a model of 1,000 training images has a header of some 300 kB.
MOST_HEADER = 2**22
MOST_DEPTH = 32
# More than any file holds. NumPy refuses much larger shapes, even of empty arrays.
MOST_CELLS = 2**48
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
_TEXTS = "__metadata__"
_ALIGNMENT = 8


class DamagedFile(ValueError):  # noqa: N818
    """A file of another layout, or outside the bounds; the message names the fault."""


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


def read_texts(file: BinaryIO) -> dict[str, str]:
    """Read the texts of the header, from the beginning of a file."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= MOST_HEADER:
        raise DamagedFile("it does not begin as one")
    header = read_json(file.read(length))
    if not isinstance(header, dict):
        raise DamagedFile("header is no mapping")
    texts = header.get(_TEXTS, {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise DamagedFile("metadata are not all text")
    return texts


def read_arrays(file: BinaryIO) -> Arrays:
    """Read the arrays of a file whose header `read_texts` accepts."""
    file.seek(0)
    try:
        entries = deserialize(file.read())  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise DamagedFile(str(error)) from error
    return {name: _read_array(name, **entry) for name, entry in entries}


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


def _read_array(name: str, dtype: str, shape: list[int], data: bytearray) -> NDArray[Any]:
    """Return an array whose size fits its bytes, as the library has checked."""
    if dtype not in DTYPES:
        raise DamagedFile(f"array {name} is of dtype {dtype}, known are {', '.join(DTYPES)}")
    if prod(max(length, 1) for length in shape) > MOST_CELLS:
        raise DamagedFile(f"array {name} is too large")
    try:
        array = np.frombuffer(data, dtype=DTYPES[dtype]).reshape(shape)
    except ValueError as error:  # more dimensions than NumPy knows
        raise DamagedFile(f"array {name} has {len(shape)} dimensions") from error
    # The extremes of an array are NaN if any number is; no copy of its size is made.
    if array.dtype.kind == "f" and array.size and not np.isfinite([array.min(), array.max()]).all():
        raise DamagedFile(f"array {name} holds NaN or infinity")
    return array


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
