import csv
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from segkit.benchmark import Benchmark, few_shot_split, load_methods, read_results
from segkit.benchmark.protocol import Split
from segkit.errors import InputError, OutputError
from segkit.images import write_mask

pytestmark = pytest.mark.usefixtures("units_here")


def benchmark(folder, output, methods, **options):
    sizes = options.pop("train_sizes", [1])
    return Benchmark(folder / "images", folder / "masks", output, methods, sizes, [0], **options)


@pytest.fixture(scope="module")
def finished(folder, small_forest, units_here, tmp_path_factory):
    """A benchmark of one method that works and one that cannot, and what it said."""
    [broken] = load_methods(["segkit-vgg"], None, ["segkit-vgg.bank.weights=nowhere.npz"])
    run = benchmark(folder, tmp_path_factory.mktemp("out"), [small_forest, broken], train_sizes=[1, 30])
    said = []
    return run, run.run(notify=said.append), said


@pytest.fixture
def stand_in(monkeypatch):
    """Make units end in another way, after they have done something."""

    def make(status, errors="", act=lambda job, path: None):
        def run(command, **_):
            act(json.loads(Path(command[-2]).read_text()), Path(command[-1]))
            return subprocess.CompletedProcess(command, status, "", errors)

        monkeypatch.setattr("subprocess.run", run)

    return make


@pytest.fixture
def stacks(tmp_path, rng):
    """Three files of two pages, and one of one."""
    for name, n_pages in (("a", 2), ("b", 2), ("c", 2), ("d", 1)):
        pages = 255 * rng.integers(0, 2, (n_pages, 8, 8)).astype(np.uint8)
        for kind in ("images", "masks"):
            write_mask(tmp_path / kind / f"{name}.tif", pages)
    return tmp_path


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
    reason = (
        "30 training images asked for, but of 9 only 6 are left beside the test images: annotate more, or leave that "
        "size out"
    )
    assert result["left_out"] == [{"n_train": 30, "reason": reason}]


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


def test_runs_of_other_methods_and_sizes_are_joined(finished, small_forest, folder, tmp_path, monkeypatch):
    """Who adds a method need not name the ones that are there."""
    shutil.copytree(finished[0].output, tmp_path / "out")
    [second] = load_methods(["other"], None, ["other={kind: forest, n_estimators: 3, training_pixels: 500}"])
    added = benchmark(folder, tmp_path / "out", [second], train_sizes=[3])
    assert added.n_done == 0
    added.check_output(resume=True)
    assert [unit.name for unit in added.units] == ["forest-n01-seed0", "other-n03-seed0"]
    assert added.n_done == 1
    result = added.run(notify=pytest.fail)
    assert list(result["methods"]) == ["other", "forest"]
    assert result["train_sizes"] == [1, 3]
    done = {(record["method"], record["n_train"]) for record in result["records"]}
    assert done == {("forest", 1), ("other", 3)}
    again = benchmark(folder, tmp_path / "out", [small_forest])
    again.check_output(resume=True)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a unit ran again"))
    assert len(again.run(notify=pytest.fail)["records"]) == len(result["records"])


def test_runs_of_other_options_or_images_are_kept(finished, small_forest, folder, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0].output, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    [changed] = load_methods(["forest"], None, ["forest.n_estimators=6", "forest.training_pixels=500"])
    [other] = load_methods(["other"], None, ["other.kind=forest"])
    assert benchmark(folder, out, [changed]).n_done == 0
    shutil.copytree(folder, tmp_path / "data")
    assert benchmark(tmp_path / "data", out, [small_forest]).n_done == 1
    write_mask(tmp_path / "data" / "masks" / "0.png", 255 * np.eye(64, dtype=np.uint8))
    assert benchmark(tmp_path / "data", out, [small_forest]).n_done == 0
    for path in [*(tmp_path / "data" / "images").iterdir()][3:]:
        mask = tmp_path / "data" / "masks" / path.name
        path.rename(path.with_name(f"new{path.name}"))
        mask.rename(mask.with_name(f"new{mask.name}"))
    for data, method in ((folder, changed), (tmp_path / "data", small_forest), (tmp_path / "data", other)):
        with pytest.raises(
            OutputError, match=r"runs of other images, masks or options.*forest-n01-seed0; choose"
        ):
            benchmark(data, out, [method]).check_output(resume=True)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    benchmark(folder, out, [changed]).check_output(overwrite=True)
    assert [path.name for path in out.iterdir()] == [".segkit"]


@pytest.mark.parametrize("place", ["index.html", "predictions/mine.png", "units/notes.txt", "results.csv"])
def test_files_of_others_in_the_places_of_results_stay(finished, small_forest, folder, tmp_path, place):
    out = tmp_path / "out"
    shutil.copytree(finished[0].output, out)
    (out / place).write_text("mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    told = f"{out / place} was not written by segkit, or changed since: move it elsewhere"
    with pytest.raises(OutputError, match=told):
        benchmark(folder, out, [small_forest]).check_output(overwrite=True)
    if "/" not in place:
        with pytest.raises(OutputError, match=told):
            benchmark(folder, out, [small_forest]).check_output(resume=True)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [{"resume": True}, {"overwrite": True}])
def test_results_without_their_record_are_told_in_one_line(finished, small_forest, folder, tmp_path, options):
    shutil.copytree(finished[0].output, tmp_path / "out", ignore=shutil.ignore_patterns(".*"))
    with pytest.raises(OutputError, match=r"holds results without their record, the hidden folder \.segkit"):
        benchmark(folder, tmp_path / "out", [small_forest]).check_output(**options)


@pytest.mark.parametrize("name", ["units", "predictions"])
def test_links_in_the_place_of_results_are_refused(small_forest, folder, tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.png").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    run = benchmark(folder, tmp_path / "out", [small_forest])
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(OutputError, match=f"{name}: a link, where a folder of results would be"):
            run.check_output(**options)
    assert (tmp_path / "elsewhere" / "a.png").exists()


def test_a_folder_of_other_files_is_refused(small_forest, folder, tmp_path):
    (tmp_path / ".hidden").touch()
    benchmark(folder, tmp_path, [small_forest]).check_output()
    (tmp_path / "0.png").touch()
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(OutputError, match="holds other files: choose an empty folder"):
            benchmark(folder, tmp_path, [small_forest]).check_output(**options)
    with pytest.raises(OutputError, match="give only one of them"):
        benchmark(folder, tmp_path, [small_forest]).check_output(resume=True, overwrite=True)
    assert (tmp_path / "0.png").exists()


def test_a_damaged_or_old_unit_is_not_done(finished, small_forest, folder, tmp_path):
    shutil.copytree(finished[0].output, tmp_path / "out")
    run = benchmark(folder, tmp_path / "out", [small_forest])
    assert run._done(run.units[0]) is not None
    for content in ("{", '{"format_version": 0}', '{"format_version": 1}'):
        run._path(run.units[0]).write_text(content)
        assert run._done(run.units[0]) is None


def test_pictures_are_no_part_of_the_scores(finished, small_forest, folder, tmp_path):
    shutil.copytree(finished[0].output, tmp_path / "out")
    more = benchmark(folder, tmp_path / "out", [small_forest], train_sizes=[1, 5])
    mask_file, map_file = more.picture_files("forest", "0")
    assert mask_file == tmp_path / "out" / "predictions" / "forest-n05-seed0" / "masks" / "0.tif"
    assert map_file == tmp_path / "out" / "predictions" / "forest-n05-seed0" / "probability" / "0.tif"
    assert more._done(more.units[0]) is not None  # pictures of it are there, though not wanted
    same = benchmark(folder, tmp_path / "out", [small_forest])
    same.picture_files("forest", same.units[0].split.test[-1])[1].unlink()
    assert more._done(more.units[0]) is not None
    assert same._done(same.units[0]) is None  # wanted and absent


def test_pictures_of_an_earlier_run_go_when_its_unit_starts(
    finished, folder, small_forest, tmp_path, stand_in
):
    shutil.copytree(finished[0].output, tmp_path / "out")
    [changed] = load_methods(["forest"], None, ["forest.n_estimators=6"])
    run = benchmark(folder, tmp_path / "out", [changed])
    mask_file, _ = run.picture_files("forest", run.units[0].split.test[0])
    assert mask_file.exists()
    stand_in(1)
    run.run(notify=lambda _: None)
    assert not mask_file.exists()


def test_a_process_without_a_result_is_told(folder, small_forest, tmp_path, stand_in):
    run = benchmark(folder, tmp_path, [small_forest])
    for status, errors, message in (
        (-9, "", "the process was killed, probably because memory was full (exit status -9)"),
        (3, "", "the process ended without a result (exit status 3)"),
        (1, "first line\nlast line\n", "the process ended without a result (exit status 1): last line"),
    ):
        stand_in(status, errors)
        result = run.run(notify=lambda _: None)
        assert result["failures"][0]["error"] == message
        assert result["records"] == []


@pytest.mark.slow
def test_processes_of_their_own_give_the_same(
    finished, folder, small_forest, units_here, tmp_path, monkeypatch
):
    monkeypatch.setattr("subprocess.run", units_here)
    again = benchmark(folder, tmp_path, [small_forest]).run(notify=pytest.fail)
    found, expected = ([one["confusion"] for one in result["records"]] for result in (again, finished[1]))
    assert found == expected


def test_checkpoints_last_until_their_unit_is_done(folder, small_forest, tmp_path, stand_in):
    run = benchmark(folder, tmp_path, [small_forest])
    [unit] = run.units
    own = Path(run._job(unit)["checkpoint"])
    outdated = own.with_name("forest-n01-seed0-01234567.pt")
    of_another = own.with_name("forest-n01-seed0-a-n01-seed0-01234567.pt")
    own.parent.mkdir(parents=True)
    outdated.touch()
    of_another.touch()
    stand_in(1, act=lambda job, path: Path(job["checkpoint"]).touch())
    run.outcome(unit)
    assert own.exists()
    assert not outdated.exists()
    assert of_another.exists()

    def fail(job, path):
        result = {"format_version": 1, "fingerprint": job["fingerprint"], "error": "made up"}
        path.write_text(json.dumps(result))

    stand_in(0, act=fail)
    assert run.outcome(unit)["error"] == "made up"
    assert not own.exists()


@pytest.mark.parametrize("option", ["fcn.weights", "segkit-networks.bank.1.banks.0.weights"])
def test_fingerprints_see_weights_and_version(folder, tmp_path, monkeypatch, option):
    file = tmp_path / "weights.npz"

    def job():
        run = benchmark(folder, tmp_path, load_methods([option.split(".")[0]], None, [f"{option}={file}"]))
        return run._job(run.units[0])

    found = [job()]
    for content in (b"1", b"2"):
        file.write_bytes(content)
        found.append(job())
    monkeypatch.setattr("segkit.benchmark.runner.__version__", "0.0.0")
    found.append(job())
    assert len({job["fingerprint"] for job in found}) == 4
    assert len({job["checkpoint"] for job in found}) == 4


def test_pages_of_a_file_are_a_group(stacks, small_forest):
    run = Benchmark(stacks / "images", stacks / "masks", stacks / "out", [small_forest], [1, 2], range(5))
    for unit in run.units:
        files = [{stem.partition("#")[0] for stem in part} for part in (unit.split.train, unit.split.test)]
        assert files[0].isdisjoint(files[1])
    assert run._job(run.units[0])["groups"] == {
        stem: stem.partition("#")[0] for stem in run.units[0].split.test
    }


def test_pages_beside_given_test_pages_are_not_trained_on(stacks, small_forest):
    (stacks / "test.txt").write_text("a#1\n")
    run = benchmark(stacks, stacks / "out", [small_forest], train_sizes=[5], test=stacks / "test.txt")
    assert run.units[0].split.test == ("a#1",)
    assert set(run.units[0].split.train) == {"b#1", "b#2", "c#1", "c#2", "d"}


def test_groups_reach_the_units(stacks, small_forest):
    (stacks / "groups.csv").write_text("a,p\nb,p\nc,q\nd,r\n")
    (stacks / "test.txt").write_text("a#1\nb#2\n")
    given = {"groups": stacks / "groups.csv", "test": stacks / "test.txt"}
    run = benchmark(stacks, stacks / "out", [small_forest], train_sizes=[3], **given)
    assert run._job(run.units[0])["groups"] == {"a#1": "p", "b#2": "p"}
    assert set(run.units[0].split.train) == {"c#1", "c#2", "d"}


def test_pages_of_one_file_only(stacks, small_forest):
    pair = (stacks / "images" / "a.tif", stacks / "masks" / "a.tif")

    def one_file(**options):
        return Benchmark(*pair, stacks / "out", [small_forest], [1], [0], **options).units[0].split

    with pytest.raises(InputError) as caught:
        one_file()
    assert str(caught.value) == (
        "all 2 images are pages of one file, a, whose pages may look alike, so they are not split at random: "
        "name the test pages by --test, or groups of pages by --groups"
    )
    (stacks / "test.txt").write_text("a#1\n")
    assert one_file(test=stacks / "test.txt") == Split(("a#2",), ("a#1",))
    (stacks / "groups.csv").write_text("a#1,top\na#2,bottom\n")
    assert len(one_file(groups=stacks / "groups.csv").train) == 1


def test_files_of_others_are_not_overwritten_unasked(folder, small_forest, tmp_path):
    run = benchmark(folder, tmp_path, [small_forest])
    run.check_output(resume=False)
    for name in ("results.json", "results.csv", "manifest.json", "index.html"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(OutputError, match=f"holds {name}: add --resume to go on or --overwrite to start"):
            run.check_output(resume=False)
        (tmp_path / name).unlink()


def test_results_of_another_version_are_refused(tmp_path, folder, small_forest):
    (tmp_path / "results.json").write_text('{"format_version": 0, "records": []}')
    message = "format version 0, this segkit reads version 1: run the benchmark again, into another folder"
    with pytest.raises(InputError, match=message):
        read_results(tmp_path)
    with pytest.raises(InputError, match=message):
        benchmark(folder, tmp_path, [small_forest]).check_output(resume=True)
    for text in ("[]", "{", '{"format_version": 1}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(InputError, match=r"results\.json"):
            read_results(tmp_path)


@pytest.mark.slow(short=True)
@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_no_process_goes_on_after_a_killed_benchmark(folder, tmp_path):
    program = """
        import os, signal, sys, threading
        from pathlib import Path
        from segkit.benchmark import Benchmark, load_methods

        methods = load_methods(["forest"], None, ["forest.n_estimators=3000"])
        run = Benchmark(Path(sys.argv[1]) / "images", Path(sys.argv[1]) / "masks", Path(sys.argv[2]), methods, [1], [0])

        def kill_once_it_trains():
            while not list(Path("/proc").glob(f"{os.getpid()}/task/*/children")) or not children():
                pass
            print(children(), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        def children():
            return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().strip()

        threading.Thread(target=kill_once_it_trains, daemon=True).start()
        run.run()
    """
    if not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
        pytest.skip("needs the list of processes of Linux")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), folder, tmp_path],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    child = Path("/proc") / done.stdout.split()[0]
    for _ in range(300):
        if not child.exists():
            break
        time.sleep(0.1)
    assert not child.exists()
    assert not list((tmp_path / "units").glob("[!.]*.json"))


def test_a_full_disk_ends_the_run_and_resume_gives_what_an_undisturbed_run_gives(
    folder, small_forest, tmp_path, monkeypatch
):
    [undisturbed] = benchmark(folder, tmp_path / "whole", [small_forest]).run()["records"][:1]

    def fail(path):
        if path.name.startswith(".results.") and path.suffix == ".json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("segkit._common.files._sync", fail)
        with pytest.raises(OutputError, match=r"results\.json: the disk is full"):
            benchmark(folder, tmp_path / "out", [small_forest]).run()
    assert not (tmp_path / "out" / "results.json").exists()
    again = benchmark(folder, tmp_path / "out", [small_forest])
    again.check_output(resume=True)
    assert again.n_done == 1
    [record] = again.run()["records"][:1]
    assert record["confusion"] == undisturbed["confusion"]
