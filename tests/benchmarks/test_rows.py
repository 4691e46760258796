import argparse
import re

import pytest

from benchmarks import __main__ as runner
from benchmarks.rows import MissingDataError, Study, flat, read_file


def test_a_row_is_measured_once(tmp_path):
    study, calls = Study("study", tmp_path), []

    def measure():
        calls.append(1)
        return {"iou": 0.5}

    first = study.row({"set": "a", "seed": 0}, measure)
    again = Study("study", tmp_path).row({"set": "a", "seed": 0}, measure)
    other = study.row({"set": "a", "seed": 0}, measure, what="other")
    assert first == again
    assert calls == [1, 1]
    assert read_file(tmp_path / "study.jsonl") == [first, other]
    assert list(first) == ["what", "where", "figures", "commit", "date", "seconds", "machine"]
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", first["commit"])
    assert flat([first, other], "other") == [{"set": "a", "seed": 0, "iou": 0.5}]


def test_a_part_has_a_file_of_its_own(tmp_path):
    Study("study", tmp_path).row({}, dict, part="drive")
    assert [path.name for path in tmp_path.iterdir()] == ["study-drive.jsonl"]


def test_data_that_are_missing_name_the_option(tmp_path):
    with pytest.raises(MissingDataError, match="--data"):
        Study("study", tmp_path).folder("drive")
    with pytest.raises(MissingDataError, match="--weights"):
        Study("study", tmp_path, weights=tmp_path).weight("vgg19")


def test_weights_are_the_file_that_begins_with_the_name(tmp_path):
    for name in ("mobilenet_v2_voc_rgb.npz", "mobilenet_v2_rgb.npz"):
        (tmp_path / name).touch()
    study = Study("study", tmp_path, weights=tmp_path, options=argparse.Namespace())
    assert study.weight("mobilenet_v2").endswith("mobilenet_v2_rgb.npz")


def test_studies_are_run_one_by_one(tmp_path, monkeypatch):
    ran = []
    module = argparse.Namespace(run=lambda study: ran.append((study.name, study.quick, study.out)))
    monkeypatch.setattr(runner, "STUDIES", {"a": "a", "b": "b"})
    monkeypatch.setattr(runner.importlib, "import_module", lambda name: module)
    runner.main(["a", "b", "--quick", "--out", str(tmp_path)])
    assert ran == [("a", True, tmp_path), ("b", True, tmp_path)]
