import hashlib
import json
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from segkit.errors import ModelFileError, OutputError
from segkit.features import Channel
from segkit.segmentation.model_file import (
    FORMAT_VERSION,
    _check_sources,
    _check_types,
    _check_weights,
    _positions,
    digest_arrays,
    find_faults,
    parse_model,
    read_model,
    upgrade,
    write_model,
)
from segkit.segmentation.tensor_file import pack
from segkit.segmentation.threshold import DecisionRule


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
            "model of format version 99, this segkit reads 1; train it anew, or use the segkit that wrote it (unknown)",
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
        parse_model(BytesIO(data), "m.segkit")
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
        (lambda tensors: tensors.update(b=tensors.pop("a")), "array a is not declared"),
        (lambda tensors: tensors.update({"A": tensors.pop("a")}), "array A is missing"),
    ],
)
def test_arrays_are_those_that_the_header_declares(change, message):
    header = {"format_version": FORMAT_VERSION, "tensors": {"a": digest_arrays({"a": np.zeros(2)})}}
    change(header["tensors"])
    text = json.dumps(header)
    data = pack({"a": np.zeros(2)}, {"segkit": text, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    with pytest.raises(ModelFileError, match=message):
        parse_model(BytesIO(data), "m.segkit")


@pytest.mark.parametrize("format_version", [1.0, True, "1", [1], None, 0, 2, 10**400])
def test_versions_are_whole_numbers(tmp_path, format_version):
    text = json.dumps({"format_version": format_version, "versions": []})
    data = pack({}, {"segkit": text})
    with pytest.raises(ModelFileError, match=r"this segkit reads 1;.*\(unknown\)"):
        parse_model(BytesIO(data), "m.segkit")


def test_the_present_format_needs_its_digests(tmp_path):
    for header in ({}, {"tensors": []}, {"tensors": {}}):
        data = pack({}, {"segkit": json.dumps({"format_version": FORMAT_VERSION} | header)})
        with pytest.raises(ModelFileError, match="digests are missing"):
            parse_model(BytesIO(data), "m.segkit")


def test_nothing_larger_than_the_file_is_made(tmp_path):
    """A header that declares a terabyte is refused for the size of the file alone."""
    entry = {"dtype": "F64", "shape": [2**37], "data_offsets": [0, 2**40]}
    text = json.dumps({"__metadata__": {"segkit": json.dumps({"format_version": 1})}, "a": entry}).encode()
    (tmp_path / "m.segkit").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(ModelFileError, match="damaged"):
        read_model(tmp_path / "m.segkit")


def test_arrays_that_no_model_has_are_not_written(tmp_path):
    with pytest.raises(OutputError, match="array a is of dtype bool"):
        write_model(tmp_path / "m.segkit", {}, {"a": np.array([True])})
    assert not (tmp_path / "m.segkit").exists()


@pytest.mark.parametrize(
    ("size", "error", "told"),
    [
        (250_000_000, MemoryError(), "0.2 GB do not fit into memory; train a smaller model"),
        (
            0,
            PermissionError(13, "Permission denied"),
            "cannot be read (Permission denied); check its permissions",
        ),
    ],
)
def test_a_model_that_cannot_be_read_is_told(tmp_path, monkeypatch, size, error, told):
    def fail(*_):
        raise error

    (tmp_path / "m.segkit").write_bytes(bytes(size))
    monkeypatch.setattr("segkit.segmentation.model_file.parse_model", fail)
    with pytest.raises(ModelFileError) as caught:
        read_model(tmp_path / "m.segkit")
    assert str(caught.value) == f"{tmp_path / 'm.segkit'}: {told}"


def test_channels_are_found_by_their_names():
    known = [Channel(name, "") for name in "abc"]
    assert _positions(["c", "a"], known).tolist() == [2, 0]
    with pytest.raises(ModelFileError) as caught:
        _positions(["a", "d", "e"], known)
    assert str(caught.value) == "channel d is none of its bank"


@pytest.mark.parametrize(
    ("name", "dtype", "is_good"),
    [
        ("svm.coef", np.float32, True),
        ("svm.coef", np.int64, False),
        ("kernels.columns", np.int64, True),
        ("parts.kernels.gaussian.columns", np.int64, True),
        ("parts.kernels.gaussian.columns", np.float32, False),
        ("kernels.columns_of_others", np.int64, False),
        ("columns", np.int64, False),
        ("weights.a", np.int64, True),
        ("weights.a", np.float64, True),
    ],
)
def test_arrays_are_numbers_of_their_kind(name, dtype, is_good):
    arrays = {"a": np.zeros(2), name: np.zeros(2, dtype=dtype)}
    if is_good:
        _check_types(arrays, "m")
    else:
        with pytest.raises(ModelFileError) as caught:
            _check_types(arrays, "m")
        told = f"m: array {name} is of dtype {np.dtype(dtype)}; copy it anew or train again"
        assert str(caught.value) == told


@pytest.mark.parametrize("start", ["http", "https"])
def test_a_model_file_starts_no_download(start, monkeypatch):
    source = f"{start}://host/w.npz"
    bank = {"banks": [{"weights": "local.npz"}, {"weights": source}]}
    monkeypatch.setattr("segkit.features.weights.is_cached", lambda address: False)
    with pytest.raises(
        ModelFileError, match=f"^m: its network weights are at {source}, and a model file starts no"
    ):
        _check_sources(bank, {"a": np.zeros(1)}, "m")
    _check_sources(bank, {"weights.a": np.zeros(1)}, "m")
    _check_sources({"weights": "local.npz"}, {}, "m")
    monkeypatch.setattr("segkit.features.weights.is_cached", lambda address: address == source)
    _check_sources(bank, {}, "m")


@pytest.mark.parametrize(
    ("learns", "told"),
    [
        (True, "m: its learnt weights are not those it was trained with; copy it anew, or train again"),
        (
            False,
            "m: its network weights are not those it was trained with; give back the file a.npz and timm's pre-trained "
            "weights as they were, or train again",
        ),
    ],
)
def test_weights_are_those_of_the_training(learns, told):
    segmenter = SimpleNamespace(bank_=SimpleNamespace(learns_weights=learns))
    used = {"a": np.zeros(2)}
    bank = {"banks": [{"weights": "a.npz"}, {"weights": "pretrained"}]}
    _check_weights(segmenter, used, {"weights_sha256": digest_arrays(used)}, "m")
    _check_weights(segmenter, {}, {"weights_sha256": None}, "m")
    for found, digest in ((used, "0"), (used, None), ({}, digest_arrays(used))):
        with pytest.raises(ModelFileError) as caught:
            _check_weights(segmenter, found, {"weights_sha256": digest, "bank": bank}, "m")
        assert str(caught.value) == told


def test_headers_are_upgraded_version_by_version(monkeypatch):
    """What the second and the third format will need."""
    upgrades = {1: lambda header: header.update(b=header.pop("a")), 2: lambda header: header.update(c=0)}
    monkeypatch.setattr("segkit.segmentation.model_file.FORMAT_VERSION", 3)
    monkeypatch.setattr("segkit.segmentation.model_file.UPGRADES", upgrades)
    for version, given, expected in (
        (1, {"a": 5}, {"b": 5, "c": 0}),
        (2, {"b": 5}, {"b": 5, "c": 0}),
        (3, {"b": 5}, {"b": 5}),
    ):
        header = {"format_version": version, **given}
        upgrade(header)
        assert header == {"format_version": version, **expected}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_know_are_not_written(tmp_path, number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_model(tmp_path / "m.segkit", {"n": number}, {})
    assert not (tmp_path / "m.segkit").exists()


@pytest.mark.parametrize(
    ("decisions", "told"),
    [
        ([[1.0], [2.0]], []),
        ([[1.0, 5.0], [1.0, 6.0]], []),
        ([[3.0], [3.0]], ["its decisions are the same for every pixel, so it says one class everywhere"]),
        ([[1.0, 2.0], [1.0, 2.0]], ["its decisions are the same for every pixel"]),
        ([[1.0], [np.nan]], ["its decisions are not finite: train it anew"]),
        ([[np.inf], [2.0]], ["its decisions are not finite"]),
    ],
)
def test_decisions_that_never_change_are_faults(decisions, told, monkeypatch):
    given = []
    monkeypatch.setattr("segkit.segmentation.model_file._prediction_faults", lambda segmenter: [])

    def decide(X):
        given.append(X)
        return np.array(decisions)

    classifier = SimpleNamespace(
        mean_=np.array([5.0, -1.0]), scale_=np.array([1e-3, 1e3]), decision_function=decide
    )
    faults = find_faults(SimpleNamespace(classifier_=classifier, rule_=DecisionRule.by_sign(2)))
    assert len(faults) == len(told)
    assert all(fault.startswith(words) for fault, words in zip(faults, told, strict=True))
    # features like those of the training: noise of their means and scales
    [X] = given
    assert X.shape[1] == 2
    noise = (X - classifier.mean_) / classifier.scale_
    assert np.abs(noise.mean(axis=0)).max() < 0.6
    np.testing.assert_allclose(noise.std(axis=0), 1, atol=0.5)


def test_decisions_that_overflow_are_not_finite():
    def overflow(X):
        raise ValueError("too large")

    classifier = SimpleNamespace(mean_=np.zeros(2), scale_=np.ones(2), decision_function=overflow)
    [fault] = find_faults(SimpleNamespace(classifier_=classifier))
    assert fault == "its decisions are not finite: train it anew"
