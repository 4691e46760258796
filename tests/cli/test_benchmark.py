"""The commands that compare: `segkit benchmark`, and `segkit evaluate` with a report."""

import csv
import json
import shutil
import subprocess

import numpy as np
import pytest

from segkit._common.lock import locked_folder
from segkit.cli.phantom import make_demo_set
from segkit.errors import ConfigError
from segkit.images import read_mask, write_image, write_mask, write_probability
from tests.benchmark.test_object_splitting import discs  # noqa: F401

pytestmark = pytest.mark.usefixtures("units_here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("made-up")
    for index, (image, mask) in enumerate(zip(*make_demo_set(6, shape=(64, 64)), strict=True)):
        write_image(root / "images" / f"{index}.png", image)
        write_mask(root / "masks" / f"{index}.png", 255 * mask)
    return root


def page_of(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


def benchmark_of(folder, tmp_path):
    """Words that compare methods on a folder."""
    return ["benchmark", folder / "images", folder / "masks", "-o", tmp_path / "out"]


def test_a_benchmark_writes_results_and_a_report(folder, tmp_path, segkit):
    arguments = [*benchmark_of(folder, tmp_path), "--methods", "forest"]
    options = ["--train-sizes", "2,9", "--seeds", "1", "--set", "forest.n_estimators=4"]
    code, told, _ = segkit(*arguments, *options)
    assert code == 0
    assert "left out: 9 training images asked for, but of 6 only 4 are left beside the test images" in told
    result = json.loads((tmp_path / "out" / "results.json").read_text())
    mean = np.mean([record["mean_iou"] for record in result["records"]])
    assert f"mean IoU over classes {mean:.3f} (" in told
    assert "2 images, 1 split: images only" in told
    assert "<html" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "results.csv").exists()
    assert f"<h1>{tmp_path.name}/out</h1>" in page_of(tmp_path / "out")
    assert '<a href="results.csv">' in page_of(tmp_path / "out")
    assert segkit(*arguments, *options, "--resume")[0] == 0
    code, _, error = segkit(*arguments, *options)
    assert (code, "index.html: add --resume to go on" in error) == (2, True)
    # what failed makes the exit status 1, what was done is kept
    broken = ["--methods", "forest,fcn", "--train-sizes", "1", "--seeds", "1", "--resume"]
    weights = ["--set", "forest.n_estimators=4", "--set", "fcn.weights=none.npz"]
    code, told, error = segkit(*arguments[:5], *broken, *weights)
    assert code == 1
    assert "fcn-n01-seed0 failed: weights none.npz: no such file" in error
    assert "forest, 1 training image: object IoU" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train-sizes", "²"], "--train-sizes ²: give numbers of images"),
        (["--set", "forset.n_estimators=4"], "there is no method forset: the nearest is forest"),
        (["--groups", "none.csv"], "groups none.csv: no such file: check its name"),
        (["--train-sizes", "7"], "6 annotated images, too few for any of the sizes 7"),
    ],
)
def test_bad_options_are_one_line(folder, tmp_path, segkit, options, message):
    code, _, error = segkit(*benchmark_of(folder, tmp_path), *options)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_interruption_tells_what_is_kept(folder, tmp_path, monkeypatch, segkit):
    arguments = [*benchmark_of(folder, tmp_path), "--methods", "forest"]
    arguments += ["--set", "forest.n_estimators=4", "--train-sizes", "1", "--seeds", "2"]
    start, started = subprocess.run, []

    def interrupted(*args, **options):
        if started:
            raise KeyboardInterrupt
        started.append(args)
        return start(*args, **options)

    monkeypatch.setattr("subprocess.run", interrupted)
    code, _, error = segkit(*arguments)
    assert code == 130
    assert error.splitlines()[-1] == (
        "segkit: interrupted: 1 of 2 runs kept; the same command with --resume goes on"
    )


def test_two_benchmarks_into_one_folder(folder, tmp_path, segkit):
    with locked_folder(tmp_path / "out"):
        code, _, error = segkit(*benchmark_of(folder, tmp_path), "--methods", "forest")
    assert (code, f"{tmp_path / 'out'} is in use by another program" in error) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_all_that_is_asked_for_reaches_the_runs(tmp_path, units_here, monkeypatch, segkit):
    monkeypatch.setattr("subprocess.run", units_here)
    for index, (image, mask) in enumerate(zip(*make_demo_set(5, shape=(64, 64)), strict=True)):
        mask[:8] = 2
        mask[0] = 9
        write_image(tmp_path / "images" / f"{index}.png", image)
        write_mask(tmp_path / "masks" / f"{index}.png", mask)
    (tmp_path / "groups.csv").write_text("0,p\n1,p\n2,q\n3,q\n4,r\n")
    (tmp_path / "test.txt").write_text("0\n2\n")
    # a user's file of the name of a module that Python comes with
    (tmp_path / "statistics.py").write_text("raise SystemExit('the wrong file')")
    monkeypatch.chdir(tmp_path)
    arguments = ["benchmark", "images", "masks", "-o", "out", "--methods", "forest", "--train-sizes", "1"]
    arguments += ["--seeds", "1", "--set", "forest.n_estimators=4"]
    splits = ["--groups", "groups.csv", "--test", "test.txt"]
    code, _, error = segkit(*arguments, *splits)
    assert (code, "--set data.labels=" in error) == (2, True)
    classes = ["--set", "data.labels={0: rest, 1: cell, 2: edge}", "--set", "data.unlabelled=9"]
    assert segkit(*arguments, *splits, *classes)[0] == 0
    result = json.loads((tmp_path / "out" / "results.json").read_text())
    assert result["label_map"]["names"] == ["rest", "cell", "edge"]
    assert result["label_map"]["unlabelled"] == 9
    assert result["units"][0]["train"] == ["4"]
    assert [(record["image"], record["group"]) for record in result["records"]] == [("0", "p"), ("2", "q")]


def test_a_benchmark_scores_objects(discs, tmp_path, segkit):  # noqa: F811
    options = ["-o", tmp_path / "out", "--methods", "forest", "--train-sizes", "1", "--seeds", "1"]
    options += ["--set", "forest.n_estimators=4"]
    numbered = ["benchmark", discs / "images", discs / "masks", *options, "--set", "data.masks=instances"]
    code, told, _ = segkit(*numbered)
    assert code == 0
    assert "masks number objects: 30 objects in 6 masks" in told
    result = json.loads((tmp_path / "out" / "results.json").read_text())
    found = [record["objects"]["watershed"] for record in result["records"]]
    ap = np.mean([one["tp"][0] / (one["n_true"] + one["n_predicted"] - one["tp"][0]) for one in found])
    assert "forest, 1 training image: AP of objects at IoU 0.5: components 0." in told
    assert f", watershed {ap:.3f}" in told
    page = page_of(tmp_path / "out")
    assert '<section id="objects"' in page
    assert "pixel forest + watershed</th>" in page
    assert segkit(*numbered, "--resume")[0] == 0
    plain = ["benchmark", discs / "images", discs / "classes", *options, "--resume"]
    code, _, error = segkit(*plain)
    assert code == 2
    assert error == (
        f"segkit: {tmp_path / 'out'} holds runs with scores of objects: add --set data.masks=instances, or choose another "
        "folder\n"
    )


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--set", "data.masks=instances"], "segkit-no-networks,forest"),
        ([], "segkit-vgg,segkit-no-networks,fcn,unet,forest"),
    ],
)
def test_usual_methods(folder, tmp_path, monkeypatch, segkit, options, names):
    chosen = []

    def take(given, *_):
        chosen.extend(given)
        raise ConfigError("far enough")

    monkeypatch.setattr("segkit.benchmark.load_methods", take)
    assert segkit(*benchmark_of(folder, tmp_path), *options)[0] == 2
    assert ",".join(chosen) == names


@pytest.mark.parametrize(("command", "inside"), [("benchmark", "images"), ("evaluate", "masks")])
def test_results_are_kept_out_of_the_input(folder, segkit, command, inside):
    output = folder / inside / "out"
    options = ["--images", folder / "images"] if command == "evaluate" else ["--train-sizes", "99"]
    first = folder / ("masks" if command == "evaluate" else "images")
    code, _, error = segkit(command, first, folder / "masks", "-o", output, *options)
    assert code == 2
    assert error == (
        f"segkit: output {output} is the input folder {folder / inside} or inside it: choose a folder elsewhere\n"
    )
    assert not output.exists()


def test_evaluation_writes_a_report(folder, tmp_path, segkit):
    predictions = tmp_path / "predictions"
    for index in range(6):
        [mask] = read_mask(folder / "masks" / f"{index}.png")
        write_mask(predictions / f"{index}.png", np.roll(mask, 2, axis=0))
        write_probability(predictions / "probability" / f"{index}.tif", np.roll(mask, 2, axis=0) / 255)
    arguments = ["evaluate", predictions, folder / "masks", "-o", tmp_path / "report"]
    arguments += ["--images", folder / "images"]
    code, told, _ = segkit(*arguments)
    assert code == 0
    page_file = tmp_path / "report" / "index.html"
    assert f"Report: {page_file}" in told
    page = page_file.read_text(encoding="utf-8")
    mean = told.split("Mean IoU over classes ")[1][:5]
    assert mean in page
    assert page.count("data:image/") >= 3
    table = tmp_path / "report" / "scores.csv"
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == [str(index) for index in range(6)]
    assert np.mean([float(row["mean_iou"]) for row in rows]) == pytest.approx(float(mean), abs=6e-4)
    assert all(row["object_iou"] == row["iou foreground"] for row in rows)
    assert '<a href="scores.csv">' in page
    assert f"<h1>{tmp_path.name}/report</h1>" in page
    files = {path: path.read_bytes() for path in page_file.parent.glob("[!.]*")}
    assert len(files) == 4
    for left in files:
        for other in files.keys() - {left}:
            other.unlink()
        code, _, error = segkit(*arguments)
        assert (code, f"{left} would be overwritten" in error) == (2, True)
        for other in files.keys() - {left}:
            assert not other.exists()
            other.write_bytes(files[other])
    assert segkit(*arguments, "--overwrite")[0] == 0


def test_a_report_needs_the_images_of_its_masks(folder, tmp_path, segkit):
    write_image(tmp_path / "other" / "x.png", np.zeros((4, 4)))
    shutil.copytree(folder / "masks", tmp_path / "predicted")
    arguments = ["evaluate", tmp_path / "predicted", folder / "masks", "-o", tmp_path / "report"]
    code, _, error = segkit(*arguments, "--images", tmp_path / "other")
    assert (code, "without" in error) == (2, True)
    assert not (tmp_path / "report" / "index.html").exists()
