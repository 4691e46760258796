"""The demo of objects writes pictures, label images, outlines and tables that agree with what it says."""

import csv
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from segkit.cli.demo_runs import run_object_demo
from segkit.features import MultiscaleBank
from segkit.images import read_instances


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("segkit.cli.demo_runs.N_TRAIN_OBJECTS", 2)
        patch.setattr("segkit.cli.demo_runs.N_TEST_OBJECTS", 3)
        patch.setattr("segkit.cli.demo_runs.SHAPE", (80, 80))
        patch.setattr(
            "segkit.segmentation.segmenter.default_bank",
            lambda: MultiscaleBank(sigma_max=2),
        )
        return folder, run_object_demo(folder)


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_all_files_are_there(demo):
    folder, _ = demo
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    found = {name for name in found if not name.startswith("predictions/.segkit/")}
    test = [f"{number:02d}" for number in (3, 4, 5)]
    wanted = {f"{group}/{stem}.png" for stem in ("01", "02") for group in ("train/images", "train/masks")}
    for stem in test:
        wanted |= {f"test/images/{stem}.png", f"test/masks/{stem}.png", f"predictions/{stem}.png"}
        wanted |= {f"predictions/objects/{stem}.tif", f"predictions/overlay/{stem}.png"}
        wanted |= {f"predictions/geojson/{stem}.geojson", f"predictions/rois/{stem}.zip"}
    wanted |= {f"predictions/{name}.csv" for name in ("objects", "images", "summary")}
    wanted |= {"model.segkit", "demo.png"}
    assert found == wanted
    with Image.open(folder / "demo.png") as panel:
        assert panel.width > 800


def test_tables_count_the_objects_of_the_label_images(demo):
    folder, result = demo
    counted = {row["image"]: int(row["count"]) for row in rows_of(folder / "predictions" / "images.csv")}
    labels = {stem: read_instances(folder / "predictions" / "objects" / f"{stem}.tif") for stem in counted}
    assert counted == {stem: np.unique(ids[ids > 0]).size for stem, ids in labels.items()}
    assert counted == {one["stem"]: one["n_predicted"] for one in result.scores["objects"]["images"]}
    objects = rows_of(folder / "predictions" / "objects.csv")
    assert len(objects) == sum(counted.values())
    assert all(float(row["area_um2"]) == int(row["area_px"]) / 4 for row in objects)
    for stem, number in counted.items():
        text = (folder / "predictions" / "geojson" / f"{stem}.geojson").read_text(encoding="utf-8")
        assert len(json.loads(text)["features"]) == number


def test_it_says_in_three_lines_how_well_it_counts(demo):
    folder, result = demo
    learnt, counted, tables = result.told.splitlines()
    taught = [read_instances(folder / "train" / "masks" / f"{stem}.png").max() for stem in ("01", "02")]
    scores = result.scores["objects"]
    assert learnt == (
        f"Learnt from 2 pictures with {sum(taught)} numbered nuclei; found {scores['n_predicted']} nuclei in "
        f"3 other pictures, which hold {scores['n_true']}."
    )
    assert re.match(
        r"The count of a picture is off by [\d.]+ on average\. AP at IoU 0\.5: [01]\.\d\d \(95 % ", counted
    )
    assert str(folder / "predictions" / "objects.csv") in tables
    assert str(result.picture) in tables
    assert scores["scores"]["ap_50"]["value"] > 0.3


def test_the_command_gives_it_a_folder_of_its_own(tmp_path, monkeypatch, segkit):
    asked = []

    def stand_in(output, **_):
        asked.append(output.name)
        return SimpleNamespace(told="three lines")

    monkeypatch.setattr("segkit.cli.demo_runs.run_object_demo", stand_in)
    monkeypatch.chdir(tmp_path)
    assert segkit("demo", "--objects") == (0, "three lines\n", "")
    assert asked == ["segkit-demo-objects"]
