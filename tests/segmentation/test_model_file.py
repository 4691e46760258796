import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from segkit.errors import ModelFileError, OutputError
from segkit.segmentation.model_file import (
    FORMAT_VERSION,
    digest_arrays,
    read_model,
    upgrade,
    write_model,
)


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


OLDEST = {
    "format_version": 1,
    "bank": {"kind": "modules"},
    "kernels": {"gammas": [1.0]},
    "label_map": {"names": ["a", "b", "c"], "values": [0, 1, 2], "unlabelled": None},
    "parameters": {"threshold": "iou"},
    "summary": {},
    "versions": {"segkit": "0.0.1"},
}


def test_the_oldest_format_is_given_what_came_later():
    header = json.loads(json.dumps(OLDEST))
    upgrade(header, "old.segkit")
    assert header["parameters"] == {
        "threshold": "iou",
        "lambdas": None,
        "normalization": "set",
        "smallest_region": 0.0,
    }
    assert header["kernels"] == {"kind": "mixture", "gammas": [1.0]}
    assert header["least_areas"] == [[0, 0]] * 3
    assert (header["otsu_weight"], header["normalization"]) == (0, "set")


@pytest.mark.parametrize(
    ("old", "new"), [("share", "quantile"), ("share+otsu", "quantile+otsu"), ("iou", "iou")]
)
def test_rules_of_the_threshold_have_their_present_names(old, new):
    parameters = {"threshold": old, "normalization": "image"}
    header = {"format_version": 6, "parameters": parameters, "summary": {"threshold_rule": old}}
    upgrade(header, "old.segkit")
    assert (header["parameters"]["threshold"], header["summary"]["threshold_rule"]) == (new, new)


def test_the_present_format_is_left_alone():
    header = {"format_version": FORMAT_VERSION}
    upgrade(header, "new.segkit")
    assert header == {"format_version": FORMAT_VERSION}
