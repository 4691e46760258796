"""Tables of scores, as a spreadsheet reads them."""

import csv

import pytest

from segkit.benchmark.results import write_csv, write_scores
from segkit.evaluation.metrics import CLASS_SCORES
from segkit.images import LabelMap

LABEL_MAP = LabelMap.infer([0, 1, 2], labels={0: "ground", 1: "cell", 2: "edge"})
CLASSES = ("iou", "dice", "precision", "recall", "boundary_f")


def record(image, *scores):
    """The same scores of the classes under every name; Dice is a tenth higher."""
    values = {name: list(scores) for name in CLASSES}
    values["dice"] = [None if score is None else score + 0.1 for score in scores]
    run = {"method": "forest", "n_train": 1, "seed": 0, "image": image, "group": None, "mean_iou": 0.5}
    costs = {
        "brier": None,
        "expected_object_iou": 0.5,
        "fit_seconds": 2.0,
        "predict_seconds": 0.5,
        "peak_memory_mib": None,
    }
    return run | values | costs


RECORDS = [record("a", 0.9, 0.25, 0.75), record("=b", 0.9, None, 0.5), record("c", 0.9, None, None)]


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_scores_of_each_image_stand_in_a_row(tmp_path):
    write_scores(tmp_path / "scores.csv", RECORDS, LABEL_MAP)
    rows = read(tmp_path / "scores.csv")
    names = [f"{score} {name}" for score in CLASS_SCORES for name in LABEL_MAP.names]
    assert list(rows[0]) == ["image", "method", "mean_iou", "object_iou", "object_dice", *names]
    assert [row["image"] for row in rows] == ["a", "'=b", "c"]
    assert [row["object_iou"] for row in rows] == ["0.5", "0.5", ""]
    assert [float(row["object_dice"] or -1) for row in rows] == pytest.approx([0.6, 0.6, -1])
    assert [row["iou cell"] for row in rows] == ["0.25", "", ""]


def test_object_scores_stand_in_the_table_of_a_benchmark(tmp_path):
    write_csv(tmp_path / "results.csv", RECORDS, LABEL_MAP)
    rows = read(tmp_path / "results.csv")
    assert [row["object_iou"] for row in rows] == ["0.5", "0.5", ""]
    assert (rows[0]["n_train"], rows[0]["fit_seconds"], rows[0]["peak_memory_mib"]) == ("1", "2.0", "")


def test_a_table_without_records_has_its_header(tmp_path):
    write_scores(tmp_path / "scores.csv", [], LABEL_MAP)
    assert (tmp_path / "scores.csv").read_text(encoding="utf-8").startswith("image,method,mean_iou,")


def test_counts_and_scores_of_objects_are_the_last_columns(tmp_path):
    entry = {"stem": "a", "n_true": 3, "n_predicted": 2, "tp": [1], "ap_50": 0.25, "panoptic_quality": None}
    objects = [entry | {"aggregated_jaccard": 0.5}] * 3
    write_scores(tmp_path / "plain.csv", RECORDS, LABEL_MAP)
    write_scores(tmp_path / "scores.csv", RECORDS, LABEL_MAP, objects)
    columns = ["n_true", "n_predicted", "ap_50", "panoptic_quality", "aggregated_jaccard"]
    rows, plain = read(tmp_path / "scores.csv"), read(tmp_path / "plain.csv")
    assert list(rows[0]) == [*plain[0], *columns]
    assert [rows[1][name] for name in columns] == ["3", "2", "0.25", "", "0.5"]
    assert rows[2]["image"] == "c"
