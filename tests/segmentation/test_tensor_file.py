import json
from io import BytesIO

import numpy as np
import pytest
from safetensors.numpy import load as library_load
from safetensors.numpy import save as library_save

from segkit.segmentation.tensor_file import (
    MOST_DEPTH,
    MOST_HEADER,
    DamagedFile,
    pack,
    read_arrays,
    read_json,
    read_texts,
)

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "count": np.array(7),
    "empty": np.zeros((0, 4)),
    "few": np.arange(3, dtype=np.int32),
}


def unpack(data):
    file = BytesIO(data)
    return read_texts(file), read_arrays(file)


def layout(header, numbers=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + numbers


def entry(dtype="F32", shape=(2,), place=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(place)}


def test_what_is_packed_comes_back():
    texts, arrays = unpack(pack(ARRAYS, {"ü": 'a "b"\n'}))
    assert texts == {"ü": 'a "b"\n'}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
        assert arrays[name].flags.writeable
        assert arrays[name].flags.aligned


def test_the_layout_is_that_of_the_library():
    for name, array in library_load(pack(ARRAYS, {"key": "text"})).items():
        np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
    texts, arrays = unpack(library_save(ARRAYS, metadata={"key": "text"}))
    assert texts == {"key": "text"}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


def test_equal_contents_are_equal_bytes():
    assert pack(ARRAYS, {"a": "1", "b": "2"}) == pack(dict(reversed(ARRAYS.items())), {"a": "1", "b": "2"})


def test_arrays_that_are_not_aligned_are_copied():
    data = layout({"a": entry()} | {"__metadata__": {"n": "x"}}, np.float32([1, 2]).tobytes())
    shifted = layout(data[8:-8] + b" ", data[-8:])
    [array] = unpack(shifted)[1].values()
    assert array.tolist() == [1, 2]
    assert array.flags.aligned


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it does not begin as one"),
        (layout({}, length=2**60), "it does not begin as one"),
        (layout(b"[]"), "no mapping"),
        (layout(b"{} x"), "not JSON"),
        (layout(b'{"\xff": 1}'), "not JSON"),
        (layout({"__metadata__": {"a": 1}}), "not all text"),
        (layout({"__metadata__": []}), "not all text"),
        (layout({"a": entry("BF16", (4,))}, bytes(8)), "of dtype BF16, known are F64, F32, F16, I64, I32"),
        (layout({"a": entry(shape=(0, 2**50), place=(0, 0))}), "too large"),
        (layout({"a": entry(shape=(1,) * 99, place=(0, 4))}, bytes(4)), "99 dimensions"),
        (layout({"a": entry()}, np.float32([0, np.nan]).tobytes()), "array a holds NaN or infinity"),
        (layout({"a": entry()}, np.float32([-np.inf, 0]).tobytes()), "array a holds NaN or infinity"),
        (layout(b'{"a": 1, "a": 1}'), "stands twice"),
    ],
)
def test_anything_else_is_refused(data, message):
    with pytest.raises(DamagedFile) as caught:
        unpack(data)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        layout({}, length=3),
        layout({"a": 1}),
        layout({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
        layout({"a": entry("X")}, bytes(8)),
        layout({"a": entry(dtype=["F32"])}, bytes(8)),
        layout({"a": entry(shape=(-2,))}, bytes(8)),
        layout({"a": entry(shape=(2.0,))}, bytes(8)),
        layout({"a": entry(shape=(True, 2))}, bytes(8)),
        layout({"a": entry(place=(0, 8, 8))}, bytes(8)),
        layout({"a": entry(shape=(10**9,) * 9)}, bytes(8)),
        layout({"a": entry(shape=(0, 10**30), place=(0, 0))}),
        layout({"a": entry(shape=(3,))}, bytes(8)),
        layout({"a": entry()}, bytes(12)),
        layout({"a": entry()}, bytes(4)),
        layout({"a": entry(), "b": entry()}, bytes(8)),
        layout({"a": entry(place=(4, 12))}, bytes(12)),
    ],
)
def test_arrays_that_do_not_fit_the_file_are_refused_in_one_line(data):
    with pytest.raises(DamagedFile, match=r"\A.+\Z"):
        unpack(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "holds NaN"),
        ("[-Infinity]", "holds -Infinity"),
        ("1e999", "holds 1e999, which is out of range"),
        ("9" * 5000, "not JSON"),
        ('{"a": {"b": 1, "b": 2}}', "stands twice"),
        ("[" * 100_000, "not JSON"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "nested deeper than 32"),
    ],
)
def test_json_is_bounded(text, message):
    with pytest.raises(DamagedFile) as caught:
        read_json(text)
    assert message in str(caught.value)


def test_what_could_not_be_read_is_not_written():
    with pytest.raises(DamagedFile, match="array a is of dtype bool"):
        pack({"a": np.array([True])}, {})
    with pytest.raises(DamagedFile, match="at most 4,194,304 are read"):
        pack({}, {"a": "x" * MOST_HEADER})
