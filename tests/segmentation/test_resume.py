"""A run that goes on makes only what is needed, and leaves what an undisturbed run would."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile

from segkit import Segmenter, predict_folder
from segkit._common.lock import locked_folder
from segkit.baselines import PixelForest
from segkit.errors import InputError, OutputError
from segkit.images import PixelSize, read_mask, write_image, write_mask
from segkit.segmentation.folders import segment_folder
from segkit.segmentation.outcome import Interrupted
from tests.images.conftest import png
from tests.segmentation.conftest import ALL
from tests.segmentation.conftest import read_table as table


@pytest.fixture
def made(monkeypatch):
    """Names of the images that are segmented."""
    from segkit.segmentation import folders

    names = []
    make = folders.make_results

    def note(segmenter, job, *arguments, **options):
        names.append(job.name)
        return make(segmenter, job, *arguments, **options)

    monkeypatch.setattr(folders, "make_results", note)
    return names


@pytest.fixture
def run(cell_segmenter, cell_images, tmp_path):
    """Segment the folder with all results, into out/ unless said otherwise."""

    def segment(output="out", **options):
        return segment_folder(cell_segmenter, cell_images, tmp_path / output, **(ALL | options))

    return segment


@pytest.fixture
def out(finished, tmp_path):
    return Path(shutil.copytree(finished / "out", tmp_path / "out"))


def test_what_is_done_is_not_done_again(run, out, made, contents):
    files = [path for path in out.rglob("*") if path.is_file()]
    before, times = contents(out), [path.stat().st_mtime_ns for path in files]
    outcome = run(resume=True)
    assert made == []
    assert contents(out) == before
    assert [path.stat().st_mtime_ns for path in files] == times
    assert outcome.summarise() == (
        f"3 written, 0 skipped, 0 failed (3 images up to date): see {out / 'summary.csv'}"
    )


@pytest.mark.parametrize(
    ("place", "harm"),
    [
        ("a/one.png", "cut"),
        ("overlay/stack-002.png", "gone"),
        ("objects/none.tif", "cut"),
        ("probability/stack.tif", "gone"),
    ],
)
def test_what_is_missing_or_damaged_is_made_anew(run, out, made, contents, place, harm):
    before, path = contents(out), out / place
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    run(resume=True)
    assert [name for name in made if Path(name).stem in place] == made
    assert len(made) == 1
    assert contents(out) == before


@pytest.mark.parametrize("name", ["objects.csv", "images.csv", "summary.csv"])
def test_a_missing_table_is_made_of_what_is_known(run, out, made, contents, name):
    before = contents(out)
    (out / name).unlink()
    run(resume=True)
    assert made == []
    assert contents(out) == before


def test_images_that_changed_or_are_new_are_segmented(run, out, made, contents, cells, cell_images):
    write_image(cell_images / "none.png", cells(1)[0])
    (cell_images / "none.tif").unlink()
    write_image(cell_images / "b" / "new.png", cells(7)[0])
    tifffile.imwrite(
        cell_images / "stack.tif",
        np.stack([cells(6)[0]] * 3),
        photometric="minisblack",
        metadata={"axes": "ZYX"},
    )
    run(resume=True)
    assert made == ["b/new.png", "none.png", "stack.tif"]
    run("other")
    assert contents(out) == contents(out.parent / "other")


def test_results_of_pages_that_are_gone_go_too(run, out, contents, cells, cell_images):
    """A stack of two pages becomes one picture: neither its mask in TIFF nor overlays of pages stay."""
    tifffile.imwrite(cell_images / "stack.tif", cells(6)[0])
    run(resume=True)
    run("other")
    assert contents(out) == contents(out.parent / "other")


def test_other_settings_make_all_anew(run, out, made, contents):
    shutil.rmtree(out / "probability")
    options = {"pixel_size": PixelSize(2.0, 1.0), "probability": False}
    run(resume=True, **options)
    assert len(made) == 3
    run("other", **options)
    assert contents(out) == contents(out.parent / "other")


def test_another_model_makes_all_anew(run, out, made, contents, cells, cell_segmenter, cell_images):
    images, labels = zip(*(cells(seed) for seed in range(2)), strict=True)
    other = Segmenter(cell_segmenter.bank, selection_pixels=200, training_pixels=400)
    other.fit(images, [255 * (one > 0).astype(np.uint8) for one in labels], instances=labels)
    segment_folder(other, cell_images, out, resume=True, **ALL)
    assert len(made) == 3
    segment_folder(other, cell_images, out.parent / "other", **ALL)
    assert contents(out) == contents(out.parent / "other")


def test_a_model_from_its_file_is_the_same_model(run, out, made, cell_segmenter, cell_images, tmp_path):
    from segkit.segmentation import load

    cell_segmenter.save(tmp_path / "m.segkit")
    segment_folder(load(tmp_path / "m.segkit"), cell_images, out, resume=True, **ALL)
    assert made == []


def test_segmenters_of_other_kinds_go_on_too(made, cells, cell_images, tmp_path):
    image, labels = cells(0)
    forest = PixelForest(n_estimators=3, random_state=0).fit([image], [(labels > 0).astype(np.uint8)])
    predict_folder(forest, cell_images, tmp_path / "out")
    (tmp_path / "out" / "none.png").unlink()
    made.clear()
    assert len(predict_folder(forest, cell_images, tmp_path / "out", resume=True)) == 3
    assert made == ["none.tif"]


def correct(path):
    """Correct a mask by hand."""
    mask = read_mask(path)[0].copy()
    mask[:5] = mask.max()
    write_mask(path, mask)
    return path.read_bytes()


def test_a_corrected_mask_is_kept_and_said(run, out, made, cells, cell_images):
    corrected = correct(out / "a" / "one.png")
    tifffile.imwrite(cell_images / "a" / "one.tif", cells(1)[0])
    (out / "none.png").unlink()
    outcome = run(resume=True)
    assert (out / "a" / "one.png").read_bytes() == corrected
    assert made == ["none.tif"]
    row = table(out / "summary.csv")[0]
    assert row["status"] == "skipped"
    assert row["reason"] == (
        f"{out / 'a' / 'one.png'} was not written by segkit, or changed since: it is kept "
        "(--overwrite-foreign replaces it)"
    )
    assert outcome.summarise().startswith("2 written, 1 skipped, 0 failed")
    # its objects would be of another mask
    assert {row["image"] for row in table(out / "images.csv")} == {"none", "stack#1", "stack#2"}
    run(resume=True, overwrite_foreign=True)
    assert made == ["none.tif", "a/one.tif"]
    assert (out / "a" / "one.png").read_bytes() != corrected


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something once the results of none.tif are made, before they are moved to their places."""
    from segkit.segmentation import folders

    make = folders.make_results

    def then(act):
        def make_and_act(segmenter, job, *arguments, **options):
            columns = make(segmenter, job, *arguments, **options)
            if job.name == "none.tif":
                act()
            return columns

        monkeypatch.setattr(folders, "make_results", make_and_act)

    return then


@pytest.mark.parametrize("options", [{"resume": True, "pixel_size": PixelSize(2, 1)}, {"overwrite": True}])
def test_a_mask_that_is_corrected_during_the_run_is_kept(run, out, meanwhile, options):
    corrected = np.full((48, 64), 255, dtype=np.uint8)
    meanwhile(lambda: write_mask(out / "none.png", corrected))
    assert [row.status for row in run(**options).rows] == ["written", "skipped", "written"]
    np.testing.assert_array_equal(read_mask(out / "none.png")[0], corrected)
    row = table(out / "summary.csv")[1]
    assert row["reason"] == (
        f"{out / 'none.png'} was not written by segkit, or changed since: it is kept "
        "(--overwrite-foreign replaces it)"
    )


def test_a_mask_that_is_drawn_while_the_other_results_are_moved_is_kept(run, out, monkeypatch):
    from segkit.images import record

    move, drawn = shutil.move, b"drawn meanwhile"

    def move_and_draw(source, target):
        move(source, target)
        if Path(source).name == "none.zip":
            (out / "none.png").write_bytes(drawn)

    monkeypatch.setattr(record.shutil, "move", move_and_draw)
    outcome = run(resume=True, pixel_size=PixelSize(2, 1))
    assert [row.image for row in outcome.skipped] == ["none.tif"]
    assert (out / "none.png").read_bytes() == drawn


def test_a_table_that_is_changed_during_the_run_is_kept(run, out, meanwhile):
    (out / "none.png").unlink()
    meanwhile(lambda: (out / "summary.csv").write_text("my notes", encoding="utf-8"))
    with pytest.raises(OutputError, match=r"summary.csv was not written by segkit.*: move it elsewhere"):
        run(resume=True)
    assert (out / "summary.csv").read_text(encoding="utf-8") == "my notes"


def test_overwrite_replaces_only_what_segkit_wrote(run, out, contents):
    before = contents(out)
    run(overwrite=True)
    assert contents(out) == before
    corrected = correct(out / "a" / "one.png")
    with pytest.raises(OutputError, match=r"a/one.png was not written by segkit.*overwrite_foreign=True"):
        run(overwrite=True)
    assert (out / "a" / "one.png").read_bytes() == corrected
    run(overwrite_foreign=True)
    assert contents(out) == before


def test_masks_drawn_by_hand_are_neither_resumed_nor_overwritten(run, cells, tmp_path):
    out = tmp_path / "out"
    for name in ("a/one", "none"):
        write_mask(out / f"{name}.png", (cells(1)[1] > 0).astype(np.uint8))
    drawn = {path: path.read_bytes() for path in out.rglob("*.png")}
    with pytest.raises(OutputError, match="would be overwritten"):
        run()
    with pytest.raises(OutputError, match=r"one.png and 1 more were not written by segkit"):
        run(overwrite=True)
    assert set(out.rglob("*")) == {*drawn, out / "a"}
    assert [row.status for row in run(resume=True).rows] == ["skipped", "skipped", "written"]
    assert {path: path.read_bytes() for path in drawn} == drawn


@pytest.mark.parametrize("name", ["objects.csv", "summary.csv"])
def test_a_table_that_somebody_changed_is_not_replaced(run, out, name):
    (out / name).write_text("my notes", encoding="utf-8")
    (out / "none.png").unlink()
    with pytest.raises(OutputError, match=f"{name} was not written by segkit, or changed since: move it"):
        run(resume=True)
    with pytest.raises(OutputError, match=f"{name} was not written by segkit, and may be"):
        run(overwrite=True)
    assert (out / name).read_text(encoding="utf-8") == "my notes"
    assert not (out / "none.png").exists()
    run(resume=True, overwrite_foreign=True)
    assert (out / name).read_text(encoding="utf-8") != "my notes"


def test_a_mask_that_another_program_saved_otherwise_is_no_damaged_one(run, out):
    """16 bits with alpha, which segkit does not read."""
    content = png(64, 48, bytes(48 * (1 + 64 * 8)), bits=16, colour=6)
    (out / "none.png").write_bytes(content)
    assert [row.image for row in run(resume=True).skipped] == ["none.tif"]
    assert (out / "none.png").read_bytes() == content


@pytest.mark.parametrize(
    ("options", "of_others"),
    [({}, ""), ({"pixel_size": PixelSize(2, 1)}, ", of another model or other options")],
)
def test_an_image_that_fails_now_says_what_became_of_its_mask(run, out, cell_images, options, of_others):
    before = (out / "none.png").read_bytes()
    (cell_images / "none.tif").write_bytes(b"no picture")
    [failed] = run(resume=True, **options).failed
    assert failed.reason.endswith(f"; its mask of an earlier run{of_others}, none.png, is left as it was")
    assert (out / "none.png").read_bytes() == before


def test_a_run_over_one_image_keeps_the_rows_of_the_others(
    run, out, made, contents, cell_segmenter, cell_images
):
    before = contents(out)
    (out / "none.png").unlink()
    one = cell_images / "none.tif"
    outcome = segment_folder(cell_segmenter, one, out, resume=True, **ALL)
    assert made == ["none.tif"]
    assert outcome.masks == [out / "none.png"]
    assert contents(out) == before
    segment_folder(cell_segmenter, one, out, overwrite=True, **ALL)
    assert contents(out) == before


def test_a_run_over_one_image_says_what_is_true_of_the_others(run, out, cell_segmenter, cell_images):
    (out / "a" / "one.png").unlink()
    corrected = correct(out / "stack.tif")
    told = r"^results of 1 other image in \S*out are of another model or other options \(stack.tif\): give the folder"
    options = ALL | {"pixel_size": 2}
    with pytest.warns(UserWarning, match=told):
        segment_folder(cell_segmenter, cell_images / "none.tif", out, resume=True, **options)
    none, stack = table(out / "summary.csv")
    assert (none["image"], none["status"]) == ("none.tif", "written")
    assert (stack["image"], stack["status"]) == ("stack.tif", "skipped")
    assert stack["reason"].endswith("is not as segkit wrote it")
    assert [row["image"] for row in table(out / "images.csv")] == ["none"]
    assert (out / "stack.tif").read_bytes() == corrected


def test_an_option_turned_off_is_refused_with_cures_that_work(run, out):
    off = {"probability": False, "overlay": False, "objects": False}
    told = (
        r"write them anew too \(--probability --overlay --objects; in Python probability=True, overlay=True, "
        r"objects=True\), choose another folder, or remove (.*) yourself$"
    )
    with pytest.raises(OutputError, match=told) as error:
        run(resume=True, **off)
    named = str(error.value).rpartition("or remove ")[2].removesuffix(" yourself").split(", ")
    for path in map(Path, named):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert [row.status for row in run(resume=True, **off).rows] == ["written"] * 3


def test_an_image_that_failed_is_tried_again(run, contents, cells, cell_images, tmp_path):
    whole = (cell_images / "none.tif").read_bytes()
    (cell_images / "none.tif").write_bytes(whole[:100])
    assert [row.status for row in run().rows] == ["written", "failed", "written"]
    (cell_images / "none.tif").write_bytes(whole)
    assert [row.status for row in run(resume=True).rows] == ["written"] * 3
    run("other")
    assert contents(tmp_path / "out") == contents(tmp_path / "other")


def test_ctrl_c_says_what_is_done_and_resume_does_the_rest(run, contents, made, cell_images, tmp_path):
    def stop_at_the_stack(items, description):
        for item in items:
            if description == "Segmenting" and item.name == "stack.tif":
                raise KeyboardInterrupt
            yield item

    with pytest.raises(Interrupted, match="2 of 3 images written; resume=True goes on"):
        run(progress=stop_at_the_stack)
    out = tmp_path / "out"
    assert [row["status"] for row in table(out / "summary.csv")] == ["written", "written", "skipped"]
    assert not (out / "objects.csv").exists()
    made.clear()
    run(resume=True)
    assert made == ["stack.tif"]
    run("other")
    assert contents(out) == contents(tmp_path / "other")


def test_an_interrupted_run_leaves_no_summary_of_an_earlier_one(run, out, monkeypatch):
    """A killed program writes no summary: that of an earlier run would be of other masks."""

    class KilledError(BaseException):
        pass

    def kill(self):
        raise KilledError

    (out / "none.png").unlink()
    monkeypatch.setattr("segkit.segmentation.folders._FolderRun._write_tables", kill)
    monkeypatch.setattr("segkit.segmentation.folders._FolderRun._write_summary", lambda self: None)
    with pytest.raises(KilledError):
        run(resume=True)
    assert not list(out.glob("*.csv"))


def test_two_runs_on_one_folder(run, out):
    with locked_folder(out), pytest.raises(InputError, match=r"out is in use by another program"):
        run(resume=True)
    run(resume=True)


def test_what_killed_runs_left_is_swept_away(run, out, contents):
    before = contents(out)
    (out / "a" / ".one.1-1.part.png").write_bytes(b"half")
    (out / ".segkit" / "new").mkdir()
    (out / ".segkit" / "new" / "none.png").write_bytes(b"half")
    run(resume=True)
    assert contents(out) == before
    assert not (out / ".segkit" / "new").exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a folder that may not be written")
def test_a_read_only_folder_is_said(run, out):
    out.chmod(0o500)
    try:
        with pytest.raises(OutputError, match=r"cannot be written|may not be written"):
            run(resume=True)
    finally:
        out.chmod(0o700)


def test_an_image_of_the_same_stem_keeps_its_results(cells, cell_segmenter, cell_images, tmp_path):
    """Given one by one, images have no listing that tells of clashes."""
    first, second, out = cell_images / "x.png", cell_images / "x.bmp", tmp_path / "out"
    for path, seed in ((first, 6), (second, 7)):
        write_image(path, cells(seed)[0])
    segment_folder(cell_segmenter, first, out, objects=True)
    before = (out / "x.png").read_bytes()
    with pytest.raises(InputError, match=r"x\.bmp and x\.png would both become .*: rename one"):
        segment_folder(cell_segmenter, second, out, objects=True, resume=True)
    assert (out / "x.png").read_bytes() == before
    first.unlink()
    segment_folder(cell_segmenter, second, out, objects=True, resume=True)
    assert [row["image"] for row in table(out / "summary.csv")] == ["x.bmp"]
    assert len(table(out / "images.csv")) == 1


def test_a_folder_called_as_a_mask_fails_again_and_the_others_are_kept(run, cells, cell_images, tmp_path):
    write_image(cell_images / "none.png" / "x.png", cells(6)[0])
    for resume in (False, True):
        outcome = run(resume=resume)
        assert [row.image for row in outcome.failed] == ["none.png/x.png"]
        assert len(outcome.masks) == 3
    assert outcome.n_kept == 3
