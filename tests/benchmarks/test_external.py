import json
import sys

import numpy as np
import pytest

from benchmarks import external
from benchmarks.common import RESULTS
from benchmarks.segmentation import Results
from segkit.benchmark import Benchmark
from segkit.cli.phantom import make_demo_set
from segkit.images import write_image, write_mask


def run(name, method, n_train, seed, counts):
    return {"set": name, "method": method, "n_train": n_train, "seed": seed, "images": counts}


# Pixels by truth and prediction, row by row.
HALF, FULL = [2, 2, 0, 4], [4, 0, 0, 4]


def test_means_and_differences_of_a_table():
    result = {
        "titles": {"none": "segkit, no networks"},
        "runs": [
            run("a", "none", 1, 0, {"x": FULL, "y": HALF}),
            run("a", "forest", 1, 0, {"x": HALF, "y": HALF}),
            run("b", "none", 1, 0, {"x": HALF, "y": HALF}),
            run("b", "forest", 1, 0, {"x": FULL, "y": FULL}),
        ],
    }
    half = (2 / 4 + 4 / 6) / 2
    lines = external.external([result]).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:5]]
    assert [row[:2] for row in cells] == [["1", "a"], ["1", "b"], ["1", "all, with equal weight"]]
    assert [row[2][:5] for row in cells] == [
        f"{(1 + half) / 2:.3f}",
        f"{half:.3f}",
        f"{(1 + 3 * half) / 4:.3f}",
    ]
    differences = [(1 - half) / 2, half - 1, (half - 1) / 4]
    assert [row[4][:6] for row in cells] == [f"{value:+.3f}" for value in differences]
    behind = f"behind the forest on b with 1 training image ({half - 1:+.3f})"
    assert f"segkit, no networks: {behind}; 1 of 2 differences may be chance." in lines


def test_a_method_that_a_set_lacks_leaves_its_cell_empty():
    result = {"runs": [run("a", "forest", 5, 0, {"x": FULL}), run("b", "other", 5, 0, {"x": HALF})]}
    table = external.external([result])
    assert "| 5 | a | 1.000 (1.000 to 1.000), images only |  |  | 1 |" in table
    assert "behind" not in table


def test_published_scores_hold_every_image():
    """1,104 images: of six sets, two seeds, two sizes and three methods."""
    result = json.loads((RESULTS / "external-458efc0.json").read_text(encoding="utf-8"))
    assert (result["date"], result["commit"]) == ("2026-11-23", "458efc0")
    tested = {
        "cvc_clinicdb": 20,
        "busi": 20,
        "isic2018_512": 14,
        "dsb2018_fluo": 20,
        "glas": 8,
        "chase_db1": 10,
    }
    for name, n_images in tested.items():
        runs = [one for one in result["runs"] if one["set"] == name]
        assert len({(one["method"], one["n_train"], one["seed"]) for one in runs}) == len(runs) == 12
        assert {len(one["images"]) for one in runs} == {n_images}
    first = next(one for one in result["runs"] if one["set"] == "cvc_clinicdb" and one["method"] == "none")
    assert first["images"]["seq03_066"] == [106972, 2019, 1555, 46]


def outcome(method, n_train, seed, images):
    """What a run of a method gives, without running it."""
    unit = dict.fromkeys(("fit_seconds", "predict_seconds", "peak_memory_mib"), 1.0) | {
        "method": method, "n_train": n_train, "seed": seed, "device": "cpu", "budget_limited": None, "notes": [],
        "explain": None, "machine": {"cpu": "x"},
    }  # fmt: skip
    records = [
        {"image": image, "confusion": [[4, 0], [0, 4]], "mean_iou": 1.0, "boundary_f": [1, 1], "brier": 0}
        for image in images
    ]
    return {"unit": unit, "records": records}


def test_runs_of_several_sets_share_a_file(tmp_path):
    path = tmp_path / "external-mine.json"
    for name in ("a", "b"):
        results = Results(path, name, in_rows=True)
        assert not results.holds("forest", 1, 0)
        results.add(outcome("forest", 1, 0, ["x"]), {})
        assert results.holds("forest", 1, 0)
    written = json.loads(path.read_text())
    assert [one["set"] for one in written["runs"]] == ["a", "b"]
    assert (written["name"], len(written["machines"])) == ("external-mine", 1)


def test_groups_stay_together_and_a_cut_run_goes_on(tmp_path, monkeypatch, capsys):
    images, masks = make_demo_set(6, shape=(64, 64))
    for index, (image, mask) in enumerate(zip(images, masks, strict=True)):
        write_image(tmp_path / "sets" / "mine" / "images" / f"{index}.png", image)
        write_mask(tmp_path / "sets" / "mine" / "masks" / f"{index}.png", 255 * mask)
    (tmp_path / "sets" / "mine" / "groups.csv").write_text("".join(f"{i},{i // 2}\n" for i in range(6)))
    out, ran = tmp_path / "out.json", []

    def run_nothing(self, unit):
        ran.append(unit)
        return outcome(unit.method.name, unit.n_train, unit.seed, unit.split.test)

    monkeypatch.setattr(Benchmark, "outcome", run_nothing)
    command = [
        "external",
        str(tmp_path / "sets"),
        "--methods",
        "forest",
        "--train-sizes",
        "1",
        "--seeds",
        "2",
    ]
    monkeypatch.setattr(sys, "argv", [*command, "--set", "forest.n_estimators=2", "--out", str(out)])
    external.main()
    runs = json.loads(out.read_text())["runs"]
    assert [one["seed"] for one in runs] == [0, 1]
    for one in runs:
        assert len(one["images"]) == 2
        assert len({int(stem) // 2 for stem in one["images"]}) == 1
        assert one["settings"]["options"] == ["forest.n_estimators=2"]
    assert "mine forest-n01-seed0" in capsys.readouterr().out
    external.main()
    assert json.loads(out.read_text())["runs"] == runs
    assert len(ran) == 2
    assert "| 1 | mine | 1.000 (1.000 to 1.000) |" in capsys.readouterr().out


def test_a_folder_without_sets_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["external", str(tmp_path), "--out", str(tmp_path / "out.json")])
    with pytest.raises(
        SystemExit, match="holds no folder with images/ and masks/: give the folder of the sets"
    ):
        external.main()


def test_scores_are_the_mean_iou_of_both_classes():
    [(key, scores)] = external.scores_by_set({"runs": [run("a", "forest", 1, 3, {"x": HALF})]}).items()
    assert key == ("a", 1)
    assert scores["forest"][3, "x"] == pytest.approx(np.mean([2 / 4, 4 / 6]))


def test_a_first_look_reads_three_classes():
    """A row of three classes holds nine counts, three outline scores and a Brier score."""
    counts = np.diag([50, 30, 20]) + np.array([[0, 10, 0], [0, 0, 0], [0, 0, 0]])
    iou = [50 / 60, 30 / 40, 1.0]
    runs = [
        {"method": method, "n_train": 1, "seed": 0, "images": {"x": [*counts.ravel().tolist(), 1, 1, 1, 0.1]}}
        for method in ("segkit-no-networks", "forest", "forest-centred")
    ]
    line = external.first_look([{"name": "axon_sem", "runs": runs}]).splitlines()[2]
    assert line.count(f"| {np.mean(iou):.3f} (") == 3
    assert line.count("+0.000 (+0.000 to +0.000)") == 2  # less each forest
