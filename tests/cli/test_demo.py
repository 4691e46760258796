"""The demos train, predict and evaluate on pictures that they draw."""

import csv
import json

import numpy as np
import pytest

from segkit.cli.commands import app
from segkit.cli.train import train
from segkit.images import read_instances


@pytest.fixture(scope="module", params=["lesions", "nuclei"])
def demo(request, tmp_path_factory):
    """The folder of a demo of two and three small pictures, and whether it is that of objects."""
    folder = tmp_path_factory.mktemp("demo") / request.param
    objects = request.param == "nuclei"

    def train_quickly(*arguments, set_, **options):
        train(*arguments, set_=[*set_, "bank.name=multiscale", "bank.sigma_max=2"], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("segkit.cli.demo.train", train_quickly)
        patch.setattr(f"segkit.cli.demo.N_{request.param.upper()}", (2, 3))
        patch.setattr("segkit.cli.demo.SHAPE", (80, 80))
        app(["demo", "-o", str(folder), "-q", *(["--objects"] if objects else [])], standalone_mode=False)
    return folder, objects


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_all_files_are_there(demo):
    folder, objects = demo
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    found = {name for name in found if "/.segkit/" not in name}
    wanted = {f"{group}/{stem}.png" for stem in ("01", "02") for group in ("train/images", "train/masks")}
    for stem in ("03", "04", "05"):
        wanted |= {f"test/images/{stem}.png", f"test/masks/{stem}.png", f"predictions/{stem}.png"}
        wanted |= {f"predictions/overlay/{stem}.png"}
        if objects:
            wanted |= {f"predictions/objects/{stem}.tif", f"predictions/geojson/{stem}.geojson"}
            wanted |= {f"predictions/rois/{stem}.zip"}
        else:
            wanted |= {f"predictions/probability/{stem}.tif"}
    tables = ("objects", "images", "summary") if objects else ("summary",)
    wanted |= {f"predictions/{name}.csv" for name in tables} | {"model.segkit"}
    wanted |= {f"report/{name}" for name in ("index.html", "scores.csv", "summary.csv", "scores.json")}
    assert found == wanted


def test_tables_count_the_objects_of_the_label_images(demo):
    folder, objects = demo
    scores = json.loads((folder / "report" / "scores.json").read_text(encoding="utf-8"))
    assert scores["mean_iou"] > 0.5
    if not objects:
        return
    counted = {row["image"]: int(row["count"]) for row in rows_of(folder / "predictions" / "images.csv")}
    labels = {stem: read_instances(folder / "predictions" / "objects" / f"{stem}.tif") for stem in counted}
    assert counted == {stem: np.unique(ids[ids > 0]).size for stem, ids in labels.items()}
    assert counted == {one["stem"]: one["n_predicted"] for one in scores["objects"]["images"]}
    assert scores["objects"]["scores"]["ap_50"]["value"] > 0.3
    rows = rows_of(folder / "predictions" / "objects.csv")
    assert len(rows) == sum(counted.values())
    assert all(float(row["area_um2"]) == pytest.approx(int(row["area"]) / 4, rel=5e-4) for row in rows)
    for stem, number in counted.items():
        text = (folder / "predictions" / "geojson" / f"{stem}.geojson").read_text(encoding="utf-8")
        assert len(json.loads(text)["features"]) == number


def test_the_command_gives_each_a_folder_of_its_own(tmp_path, monkeypatch, segkit):
    monkeypatch.chdir(tmp_path)
    for name, options in (("segkit-demo", []), ("segkit-demo-objects", ["--objects"])):
        (tmp_path / name).mkdir()
        code, _, err = segkit("demo", *options)
        assert code == 2
        assert err.startswith(f"segkit: {name} would be overwritten")
