import hashlib
import json
from io import BytesIO

import numpy as np
import pytest
from safetensors.numpy import save_file

from segkit.errors import ModelFileError, OutputError
from segkit.segmentation.model_file import (
    FORMAT_VERSION,
    digest_arrays,
    parse_model,
    read_model,
    write_model,
)
from segkit.segmentation.tensor_file import pack


def test_round_trip(tmp_path, rng):
    header = {"name": "ü", "number": 0.1, "list": [1, None]}
    arrays = {
        "a": rng.standard_normal((3, 4)).astype(np.float32)[:, ::2],
        "b": np.arange(3),
        "count": np.array(7),
    }
    write_model(tmp_path / "new" / "m.segkit", header, arrays)
    read, stored = read_model(tmp_path / "new" / "m.segkit")
    assert read == {"format_version": FORMAT_VERSION, **header}
    assert stored.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(stored[name], array, strict=True)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["m.segkit"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            {"segkit": json.dumps({"format_version": 99})},
            "model of format version 99, this segkit reads 1, 2, 3, 4",
        ),
        ({"segkit": "{"}, "damaged or not a segkit model"),
        ({"other": "1"}, "not a segkit model; give a file written by segkit train"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, metadata, message):
    save_file({"a": np.zeros(2)}, tmp_path / "m.segkit", metadata=metadata)
    with pytest.raises(ModelFileError) as caught:
        read_model(tmp_path / "m.segkit")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_absent_and_damaged_files(tmp_path):
    with pytest.raises(ModelFileError, match="no such model file"):
        read_model(tmp_path / "none.segkit")
    write_model(tmp_path / "m.segkit", {}, {"a": np.zeros(100)})
    data = (tmp_path / "m.segkit").read_bytes()
    for damaged in (data[:-8], data[:20], b"", b"not a model at all"):
        (tmp_path / "m.segkit").write_bytes(damaged)
        with pytest.raises(ModelFileError, match="damaged or not a segkit model"):
            read_model(tmp_path / "m.segkit")


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.segkit"
    write_model(path, {"n": 1}, {})

    def fail(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(OutputError, match="the disk is full"):
        write_model(path, {"n": 2}, {})
    assert read_model(path)[0]["n"] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.segkit"]


def test_digest_depends_on_names_shapes_types_and_values():
    base = {"a": np.arange(4), "b": np.zeros(2)}
    variants = [
        {"a": np.arange(4).reshape(2, 2), "b": np.zeros(2)},
        {"c": np.arange(4), "b": np.zeros(2)},
        {"a": np.arange(4, dtype=np.int32), "b": np.zeros(2)},
        {"a": np.arange(4), "b": np.ones(2)},
    ]
    assert digest_arrays(base) == digest_arrays(dict(reversed(base.items())))
    assert len({digest_arrays(arrays) for arrays in [base, *variants]}) == 5


def sealed(header, arrays, tmp_path):
    write_model(tmp_path / "m.segkit", header, arrays)
    return (tmp_path / "m.segkit").read_bytes()


def is_refused(data):
    try:
        parse_model(BytesIO(data), len(data), "m.segkit")
    except ModelFileError as error:
        return "\n" not in str(error)
    return False


def test_every_flipped_bit_is_found(tmp_path):
    """In the length, the header, its digests and the arrays alike."""
    arrays = {"a": np.arange(5, dtype=np.float32), "b": np.zeros((0, 3)), "c": np.arange(2)}
    data = sealed({"x": 1e-05, "name": "ü", "versions": {"segkit": "1"}}, arrays, tmp_path)
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        assert is_refused(bytes(flipped)), place


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("a"), "array a is not declared"),
        (lambda tensors: tensors.update(z="0"), "array z is missing"),
        (lambda tensors: tensors.update(a="0"), "array a differs from its sha256"),
        (lambda tensors: tensors.clear(), "array a is not declared"),
    ],
)
def test_arrays_are_those_that_the_header_declares(change, message):
    header = {"format_version": FORMAT_VERSION, "tensors": {"a": digest_arrays({"a": np.zeros(2)})}}
    change(header["tensors"])
    text = json.dumps(header)
    data = pack({"a": np.zeros(2)}, {"segkit": text, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    with pytest.raises(ModelFileError, match=message):
        parse_model(BytesIO(data), len(data), "m.segkit")


@pytest.mark.parametrize("format_version", [9.0, True, "9", [9], None, 10**400])
def test_versions_are_whole_numbers(tmp_path, format_version):
    text = json.dumps({"format_version": format_version, "versions": []})
    data = pack({}, {"segkit": text})
    with pytest.raises(ModelFileError, match=r"this segkit reads 1, 2.*\(unknown\)"):
        parse_model(BytesIO(data), len(data), "m.segkit")


def test_the_present_format_needs_its_digests(tmp_path):
    for header in ({}, {"tensors": []}, {"tensors": {}}):
        data = pack({}, {"segkit": json.dumps({"format_version": FORMAT_VERSION} | header)})
        with pytest.raises(ModelFileError, match="digests are missing"):
            parse_model(BytesIO(data), len(data), "m.segkit")


def test_nothing_larger_than_the_file_is_made(tmp_path):
    """A header that declares a terabyte is refused for the size of the file alone."""
    entry = {"dtype": "F64", "shape": [2**37], "data_offsets": [0, 2**40]}
    text = json.dumps({"__metadata__": {"segkit": json.dumps({"format_version": 8})}, "a": entry}).encode()
    (tmp_path / "m.segkit").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(ModelFileError, match="do not fill the file"):
        read_model(tmp_path / "m.segkit")


def test_arrays_that_no_model_has_are_not_written(tmp_path):
    with pytest.raises(OutputError, match="array a is of dtype bool"):
        write_model(tmp_path / "m.segkit", {}, {"a": np.array([True])})
    assert not (tmp_path / "m.segkit").exists()
