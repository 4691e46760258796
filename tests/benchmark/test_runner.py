import csv
import json

import numpy as np
import pytest

from segkit.benchmark import Benchmark, few_shot_split, load_methods, read_results
from segkit.benchmark.results import write_csv
from segkit.errors import InputError, OutputError
from segkit.images import write_image, write_mask


def quiet(items, description):
    yield from items


def benchmark(folder, output, methods, **options):
    sizes = options.pop("train_sizes", [1])
    return Benchmark(folder / "images", folder / "masks", output, methods, sizes, [0], **options)


@pytest.fixture(scope="module")
def finished(folder, small_forest, tmp_path_factory):
    """A benchmark of one method that works and one that cannot, and what it said."""
    [broken] = load_methods(["segkit-vgg"], None, ["segkit-vgg.bank.weights=nowhere.npz"])
    run = benchmark(folder, tmp_path_factory.mktemp("out"), [small_forest, broken], train_sizes=[1, 30])
    said = []
    return run, run.run(progress=quiet, tell=said.append), said


def test_a_failing_unit_is_recorded_and_the_rest_goes_on(finished):
    _, result, said = finished
    [failure] = result["failures"]
    assert failure["method"] == "segkit-vgg"
    assert failure["error"].startswith("weights nowhere.npz: no such file")
    assert said == [f"segkit-vgg-n01-seed0 failed: {failure['error']}"]
    assert {record["method"] for record in result["records"]} == {"forest"}


def test_a_size_with_too_few_images_is_left_out_and_named(finished):
    _, result, _ = finished
    assert result["train_sizes"] == [1]
    assert result["left_out"] == [
        {
            "n_train": 30,
            "reason": "30 training images asked for, 6 of 9 are not tested on: annotate more, or leave that size out",
        }
    ]


def test_results_are_records_of_every_test_image(finished, folder):
    run, result, _ = finished
    assert [record["image"] for record in result["records"]] == list(few_shot_split(run.stems, 1, 0).test)
    assert read_results(run.output) == json.loads(json.dumps(result))
    rows = list(csv.DictReader((run.output / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert [float(row["mean_iou"]) for row in rows] == [record["mean_iou"] for record in result["records"]]
    manifest = json.loads((run.output / "manifest.json").read_text())
    assert manifest["data"]["images"] == 9
    assert manifest["methods"]["forest"]["config"]["n_estimators"] == 5
    assert "numpy" in manifest["machine"]["versions"]


def test_predictions_of_one_run_are_kept(finished):
    run, result, _ = finished
    assert result["pictures"] == {"n_train": 1, "seed": 0}
    for record in result["records"]:
        assert all(path.exists() for path in run.picture_files("forest", record["image"]))


def test_what_is_done_is_not_done_again(finished, small_forest, folder, monkeypatch):
    run, result, _ = finished
    again = benchmark(folder, run.output, [small_forest])
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a unit ran again"))
    assert again.run(progress=quiet, tell=pytest.fail)["records"] == result["records"]


def test_other_options_or_images_are_not_what_was_done(finished, small_forest, folder, tmp_path):
    run, _, _ = finished
    [other] = load_methods(["forest"], None, ["forest.n_estimators=6", "forest.training_pixels=500"])
    unit = run.units[0]
    assert run._done(unit) is not None
    changed = benchmark(folder, run.output, [other])
    assert changed._done(changed.units[0]) is None


def test_a_killed_process_is_told(folder, small_forest, tmp_path, monkeypatch):
    run = benchmark(folder, tmp_path, [small_forest])
    monkeypatch.setattr("sys.executable", "/bin/false")
    result = run.run(progress=quiet, tell=lambda _: None)
    assert result["failures"][0]["error"] == "the process ended without a word (exit status 1)"
    assert result["records"] == []


def test_results_are_not_overwritten_unasked(finished):
    run, _, _ = finished
    with pytest.raises(OutputError, match="holds results: add --resume to go on"):
        run.check_output(resume=False)
    run.check_output(resume=True)


def test_results_of_another_version_are_refused(tmp_path, folder, small_forest):
    (tmp_path / "results.json").write_text('{"format_version": 0, "records": []}')
    message = "format version 0, this segkit reads version 1: run the benchmark anew into another folder"
    with pytest.raises(InputError, match=message):
        read_results(tmp_path)
    with pytest.raises(InputError, match=message):
        benchmark(folder, tmp_path, [small_forest]).check_output(resume=True)
    for text in ("[]", "{", '{"format_version": 1}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(InputError, match=r"results\.json"):
            read_results(tmp_path)


def test_no_size_is_possible(folder, small_forest, tmp_path):
    with pytest.raises(InputError, match="9 annotated images are too few for any of the sizes 7, 8"):
        benchmark(folder, tmp_path, [small_forest], train_sizes=[7, 8])


def test_digest_sees_every_byte(tmp_path, small_forest, rng):
    for name in "abc":
        write_image(tmp_path / "images" / f"{name}.png", rng.random((8, 8)))
        write_mask(tmp_path / "masks" / f"{name}.png", np.eye(8, dtype=np.uint8) * 255)
    before = benchmark(tmp_path, tmp_path / "out", [small_forest])
    fingerprint = before._job(before.units[0])["fingerprint"]
    write_mask(tmp_path / "masks" / "c.png", np.eye(8, k=1, dtype=np.uint8) * 255)
    after = benchmark(tmp_path, tmp_path / "out", [small_forest])
    assert after._job(after.units[0])["fingerprint"] != fingerprint


def test_spreadsheets_get_no_formulas(finished, tmp_path):
    run, result, _ = finished
    write_csv(tmp_path / "r.csv", [result["records"][0] | {"image": "=1+1"}], run.label_map)
    assert "'=1+1" in (tmp_path / "r.csv").read_text()
