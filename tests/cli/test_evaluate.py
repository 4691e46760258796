"""``segkit evaluate``: one bad mask stops nothing, nothing is scored twice, nothing is half written."""

import csv
import errno
import os
import shutil
from functools import partial

import numpy as np
import pytest

from segkit._common.lock import locked_folder
from segkit.images import write_mask

FILES = {"index.html", "scores.csv", "summary.csv", "scores.json"}


@pytest.fixture
def run(segkit):
    return partial(segkit, "evaluate")


@pytest.fixture
def folders(tmp_path, rng):
    """Four true masks and their predictions, every twentieth pixel wrong."""
    for name in "abcd":
        mask = 255 * (rng.random((20, 24)) < 0.5).astype(np.uint8)
        wrong = rng.random(mask.shape) < 0.05
        write_mask(tmp_path / "masks" / f"{name}.png", mask)
        write_mask(tmp_path / "predictions" / f"{name}.png", np.where(wrong, 255 - mask, mask))
    return tmp_path / "predictions", tmp_path / "masks"


def summary_of(output):
    with (output / "summary.csv").open(newline="", encoding="utf-8") as file:
        return {row["image"]: (row["status"], row["reason"]) for row in csv.DictReader(file)}


def spoil(predictions):
    """Leave one good prediction, and add one without a true mask."""
    (predictions / "a.png").unlink()
    (predictions / "b.png").write_bytes(b"no image")
    write_mask(predictions / "c.png", np.zeros((5, 6), dtype=np.uint8))
    write_mask(predictions / "e.png", np.zeros((5, 6), dtype=np.uint8))


def test_bad_masks_do_not_stop_the_others(run, folders, tmp_path):
    spoil(folders[0])
    output = tmp_path / "report"
    status, out, err = run(*folders, "-o", output)
    assert status == 1
    assert "Scored on 1 image." in out
    assert "3 of 4 true masks missing from these scores (a, b, c)" in out
    assert err.count("\n") == 1
    assert err.startswith("segkit: 3 true masks not scored: ")
    summary = summary_of(output)
    told = {name: status for name, (status, _) in summary.items()}
    assert told == dict.fromkeys("abc", "failed") | {"d": "written", "e": "skipped"}
    assert summary["a"][1] == "no prediction"
    assert "b.png" in summary["b"][1]
    assert (
        summary["c"][1]
        == "sizes differ: true mask 20 x 24, prediction 5 x 6: predict the image that the mask belongs to"
    )
    assert summary["e"][1] == "no true mask"


def test_strict_scores_nothing(run, folders, tmp_path):
    spoil(folders[0])
    status, _, err = run(*folders, "-o", tmp_path / "report", "--strict")
    assert status == 2
    assert "1 of 4 true masks have no prediction" in err
    assert not (tmp_path / "report").exists()


def test_nothing_to_score_is_an_error(run, folders, tmp_path):
    for path in folders[0].iterdir():
        path.write_bytes(b"no image")
    status, _, err = run(*folders, "-o", tmp_path / "report")
    assert status == 2
    assert "none of 4 true masks can be scored (a: " in err
    assert not (tmp_path / "report").exists()


def test_a_fault_at_a_write_names_the_file_and_leaves_each_file_whole_or_absent(
    run, folders, tmp_path, monkeypatch
):
    output = tmp_path / "report"
    arguments = (*folders, "-o", output)
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    assert "missing" not in out
    assert set(summary_of(output).values()) == {("written", "")}
    whole = {path.name: path.read_bytes() for path in (output / name for name in FILES)}
    shutil.rmtree(output)
    calls = []

    def fail_at_the_third(path):
        calls.extend([path] if ".segkit" not in path.parts else [])
        if len(calls) == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("segkit._common.files._sync", fail_at_the_third)
    status, _, err = run(*arguments)
    left = list(output.glob("[!.]*"))
    assert len(left) == 2
    assert all(path.read_bytes() == whole[path.name] for path in left)
    assert not list(tmp_path.rglob("*.part*"))
    assert status == 2
    assert err.count("\n") == 1
    assert str(tmp_path) in err


def test_files_of_others_in_the_places_of_results_stay(run, folders, tmp_path):
    output = tmp_path / "site"
    output.mkdir()
    (output / "index.html").write_text("mine")
    status, _, err = run(*folders, "-o", output, "--overwrite")
    assert (status, err) == (
        2,
        f"segkit: {output / 'index.html'} was not written by segkit, or changed since: move it elsewhere, or choose "
        "another folder\n",
    )
    assert {path.name: path.read_text() for path in output.glob("[!.]*")} == {"index.html": "mine"}
    (output / "index.html").unlink()
    for _ in range(2):
        assert run(*folders, "-o", output, "--overwrite")[0] == 0


def test_two_runs_into_one_folder(run, folders, tmp_path):
    with locked_folder(tmp_path / "report"):
        status, _, err = run(*folders, "-o", tmp_path / "report")
    assert status == 2
    assert f"{tmp_path / 'report'} is in use by another program" in err
    assert not (tmp_path / "report").exists()


def test_a_full_disk_names_a_file_of_the_report(run, folders, tmp_path, monkeypatch):
    def fail(path):
        if ".segkit" not in path.parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("segkit._common.files._sync", fail)
    status, _, err = run(*folders, "-o", tmp_path / "report")
    assert status == 2
    assert err.startswith(f"segkit: {tmp_path / 'report' / 'index.html'}: the disk is full")
    assert not list((tmp_path / "report").glob("[!.]*"))
