"""All images of a project are segmented, with corrections by hand; in place of a process, work is done at once."""

import csv
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from segkit.config.schema import Config
from segkit.errors import InputError
from segkit.images import UNLABELLED, read_mask, write_image
from segkit.live import ArrayProject, Failed, LabelClass, LiveSession, Project, Run
from segkit.live.background import BackgroundWork, Report
from segkit.live.corrections import Corrections
from segkit.live.events import explain
from segkit.live.files import read_project
from segkit.segmentation.folders import segment_folder
from segkit.segmentation.results import Job
from segkit.segmentation.segmenter import load
from tests.live.conftest import PATIENCE, blobs, complaint, draw, listen

QUICK = Config.load(None, ["training.pixels=2000", "selection.pixels=500"])
BIRD = np.ones((12, 12), dtype=bool)


def start_at_once(work, call, *, prepare=lambda: None, done=lambda _: None):
    prepare()
    work.report = Report("Segmenting", 0.5, 3.0)
    work._changed()
    try:
        done(call(lambda items, _: items))
    except Exception as error:
        work._failed(explain(error))
    work.report = None
    work._changed()


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(BackgroundWork, "start", start_at_once)


@pytest.fixture
def session(project, cache, truth):
    with LiveSession(project, cache=cache, config=QUICK) as running:
        for key in "ab":
            draw(running, key, truth[key])
        yield running


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_folder_is_segmented_and_corrections_reach_the_tables(session, project, heard, at_once):
    session.segment_folder()
    out = project.output / "results"
    assert session.run == heard.of(Run)[-1] == Run("done", "3 files segmented", str(out), 1.0)
    assert [run.state for run in heard.of(Run)][:: len(heard.of(Run)) - 1] == ["training", "done"]
    model = load(project.output / "results.segkit")
    for key in "abc":
        drawn = project.labels(key).labels
        mask = read_mask(out / f"{key}.png")[0]
        np.testing.assert_array_equal(
            mask, np.where(drawn == UNLABELLED, model.predict(project.image(key)), drawn)
        )
    before = {row["image"]: row for row in rows(out / "images.csv")}
    assert [before[key]["checked"] for key in "abc"] == ["0", "0", ""]
    stamps = {key: (out / f"{key}.png").stat().st_mtime_ns for key in "abc"}

    session.objects.draw("c", (50, 66), BIRD)
    session.segment_folder(retrain=False)
    after = rows(out / "images.csv")
    assert [row["checked"] for row in after] == ["0", "0", "1"]
    objects = [row for row in rows(out / "objects.csv") if row["image"] == "c"]
    assert [row["area"] for row in objects if row["checked"] == "yes"] == [str(BIRD.sum())]
    assert (read_mask(out / "c.png")[0][50:62, 66:78] == 1).all()
    # the same model, and labels of one image: the others are as they were
    assert [(out / f"{key}.png").stat().st_mtime_ns == stamps[key] for key in "abc"] == [True, True, False]
    assert heard.of(Failed) == []
    session.undo("c")  # nothing is labelled there any more
    session.segment_folder(retrain=False)
    assert rows(out / "images.csv") == [before[key] for key in "abc"]


def test_of_an_image_that_is_labelled_everywhere_nothing_is_expected(session, project, truth, at_once):
    session.paint("a", (0, 0), truth["a"] == 0, 0)
    session.paint("a", (0, 0), truth["a"] == 1, 1)
    session.segment_folder()
    summary = {row["image"]: row for row in rows(project.output / "results/summary.csv")}
    assert summary["a.png"]["expected_mean_iou"] == ""
    np.testing.assert_array_equal(read_mask(project.output / "results/a.png")[0], truth["a"])


def test_another_folder_is_segmented_without_corrections(session, project, folder, at_once):
    image, _ = blobs((64, 80), 9)
    write_image(folder / "others" / "a.png", image)
    session.segment_folder(folder / "others", folder / "there")
    assert session.run.output == str(folder / "there")
    mask = load(project.output / "results.segkit").predict(np.float32(np.rint(255 * image) / 255))
    np.testing.assert_array_equal(read_mask(folder / "there" / "a.png")[0], mask)
    assert "checked" not in rows(folder / "there" / "images.csv")[0]


def test_results_of_an_earlier_session_are_there(session, project, cache, at_once):
    session.segment_folder()
    session.close()
    with LiveSession(project, cache=cache) as again:
        assert again.run == Run("done", "Results of an earlier session", str(project.output / "results"))


def test_what_is_wrong_is_told(session, project, folder, heard, at_once):
    told = complaint(InputError, session.segment_folder, retrain=False)
    assert told == "no model has segmented this folder yet: segment all images first"
    told = complaint(InputError, session.segment_folder, folder / "nowhere")
    assert told == f"{folder / 'nowhere'}: no such folder: give one on the machine where segkit runs"
    session.segment_folder(output=project.source / "inside")
    assert "choose a folder elsewhere" in heard.of(Failed)[-1].message
    assert session.run.state == "none"
    session._folders.training = Report()
    assert "already" in complaint(InputError, session.segment_folder)
    session._folders.training = None
    for own in ("masks", "masks/sub", "checked", "network"):
        told = complaint(InputError, session.segment_folder, output=project.output / own)
        assert "holds what you drew and trained: give another folder of results" in told
    assert "is the folder of the labels" in complaint(
        InputError, session.segment_folder, output=project.output
    )
    (project.output / "results").mkdir()
    (project.output / "results" / "b.png").write_bytes(b"somebody else's")
    session.segment_folder()
    assert "b.png" in session.run.notes[0]
    assert (project.output / "results" / "b.png").read_bytes() == b"somebody else's"
    session.close()
    assert "the session is closed" in complaint(InputError, session.segment_folder, retrain=False)


def test_labels_drawn_by_brush_are_objects_too(session, project, truth, at_once):
    """Labels of a whole image give its objects; a stroke where nothing is predicted is one more."""
    away = ndimage.distance_transform_edt(truth["c"] == 0)
    middle = np.unravel_index(away.argmax(), away.shape)
    assert away.max() > 14
    alone = np.hypot(*(np.indices(away.shape) - np.reshape(middle, (2, 1, 1)))) < 10
    for value in (0, 1):
        session.paint("c", (0, 0), np.where(alone, value == 1, truth["c"] == value), value)
    session.segment_folder()
    out = project.output / "results"
    mask = read_mask(out / "c.png")[0]
    np.testing.assert_array_equal(mask, np.where(alone, 1, truth["c"]))
    np.testing.assert_array_equal(read_mask(out / "objects" / "c.tif")[0] > 0, mask == 1)
    found = session.objects.find("c")
    np.testing.assert_array_equal(found.labels > 0, mask == 1)
    assert found.interval is None


def test_images_of_a_sub_folder_and_ome_files_keep_their_labels(tmp_path, cache, truth, at_once):
    for seed, name in enumerate(("a.ome.tif", "sub x/ü #1.png", "sub x/b.png")):
        write_image(tmp_path / "i" / name, blobs((64, 80), seed)[0])
    with (
        Project(tmp_path / "i", tmp_path / "o") as project,
        LiveSession(project, cache=cache, config=QUICK) as session,
    ):
        for key in ("a", "sub x/b"):
            draw(session, key, truth["a"])
        session.objects.draw("sub x/ü #1", (2, 2), BIRD)
        session.segment_folder()
        assert session.run.is_own
        session.segment_folder(tmp_path / "i" / "sub x", tmp_path / "there", retrain=False)
        assert not session.run.is_own
        for row in rows(tmp_path / "there" / "images.csv"):
            assert row["checked"] == {"ü #1": "1", "b": "0"}[row["image"]]
        exported = load(project.output / "results.segkit")
        write_image(tmp_path / "others" / "a.ome.tif", blobs((64, 80), 9)[0])
        told = complaint(
            InputError, segment_folder, exported, tmp_path / "others", tmp_path / "x",
            corrections=Corrections(project.output, exported),
        )  # fmt: skip
        assert "not as it was when it was annotated" in told


def test_what_values_mean_belongs_to_the_labels(session, project, at_once):
    session.segment_folder()
    corrections = Corrections(project.output, load(project.output / "results.segkit"))
    job = Job(project.source / "a.png", "a.png")
    before = corrections.digest(job)
    session.set_classes([replace(one, name=f"the {one.name}") for one in project.classes])
    corrections._stored = read_project(project.output / "project.json")
    assert corrections.digest(job) != before


def test_images_without_any_labels_are_told_of(session, project, folder, at_once):
    session.segment_folder()
    exported = load(project.output / "results.segkit")
    write_image(folder / "others" / "z.png", blobs((64, 80), 9)[0])
    with pytest.warns(UserWarning, match="no image has labels in the project"):
        segment_folder(
            exported, folder / "others", folder / "x", corrections=Corrections(project.output, exported)
        )


def test_a_run_that_was_stopped_has_no_results_to_show(session, project, at_once):
    session.segment_folder()
    assert session.run.state == "done"
    (project.output / "results" / "summary.csv").unlink()  # as a run does that makes images anew
    assert session.run.state == "none"
    assert "Stopped before the end" in session.run.text
    session.segment_folder(retrain=False)
    assert session.run.state == "done"


def test_images_in_memory_have_no_folder(cache):
    with LiveSession(ArrayProject({"a": blobs((64, 80), 0)[0]}), cache=cache) as session:
        assert session.results is None
        assert "images in memory have no folder" in complaint(InputError, session.segment_folder)
        assert "set project.output" in complaint(InputError, session.segment_folder, ".")


def test_images_in_memory_train_for_a_folder(cache, folder, tmp_path, at_once):
    image, truth = blobs((64, 80), 0)
    project = ArrayProject(output=tmp_path / "training")
    project.add("a", image, truth)
    with LiveSession(project, cache=cache) as session:
        with pytest.raises(InputError, match="holds what you drew"):
            session.segment_folder(folder / "images", tmp_path / "training" / "masks")
        session.segment_folder(folder / "images", tmp_path / "results")
        assert session.run.state == "done"
        assert not session.run.is_own
    assert (tmp_path / "results" / "images.csv").is_file()
    assert (tmp_path / "training" / "results.segkit").is_file()


def test_an_opened_model_segments_as_it_is(project, cache, model, at_once):
    with LiveSession(project, cache=cache, model=model) as session:
        session.objects.draw("c", (50, 66), BIRD)
        session.segment_folder()
        assert session.run.state == "done"
    drawn = project.labels("c").labels
    found = np.where(drawn == UNLABELLED, model.predict(project.image("c")), drawn)
    np.testing.assert_array_equal(read_mask(project.output / "results/c.png")[0], found)
    assert not (project.output / "results.segkit").exists()


def test_cancelled_while_the_model_is_trained(session, project, monkeypatch, at_once):
    # the first report of the training is where somebody cancels
    note = session._note_training

    def cancel_then_note(told):
        session._folders.cancelled.set()
        note(told)

    monkeypatch.setattr(session, "_note_training", cancel_then_note)
    session.segment_folder()
    assert session.run.state == "none"
    assert not (project.output / "results").exists()
    assert not (project.output / "results.segkit").exists()


def test_labels_of_other_images_and_classes_are_refused(session, project, folder, at_once):
    session.segment_folder()
    exported = load(project.output / "results.segkit")
    told = complaint(InputError, Corrections, folder, exported)
    assert told == f"{folder}: no project of segkit annotate: give the folder that it wrote"
    write_image(folder / "others" / "a.png", blobs((64, 80), 9)[0])  # of the same name
    write_image(folder / "others" / "b.png", blobs((60, 80), 9)[0])
    write_image(folder / "others" / "c.png", blobs((64, 80), 9)[0])

    def segment(images):
        found = segment_folder(
            exported, images, folder / "there", resume=True, corrections=Corrections(project.output, exported)
        )
        return {row.image[0]: row.reason for row in found.rows}

    reasons = segment(folder / "others")
    assert "a.png: not as it was when it was annotated" in reasons["a"]
    assert "image of 60 x 80 pixels, label image of 64 x 80" in reasons["b"]
    assert reasons["c"] == ""  # nobody has labelled it
    session.set_classes([*project.classes, LabelClass(2, "debris", "#00ff00")])
    session.paint("a", (0, 0), BIRD, 2)
    project.save("a")
    reasons = segment(project.source)
    assert "labels of a class that the model does not know" in reasons["a"]
    assert reasons["b"] == reasons["c"] == ""
    session.set_classes([replace(one, name=f"{one.name}s") for one in project.classes])
    told = complaint(InputError, Corrections, project.output, exported)
    assert "has the classes backgrounds, foregrounds, debriss, the model background, foreground too" in told


@pytest.mark.slow
def test_a_folder_is_segmented_in_a_process_of_its_own(project, cache, truth):
    with LiveSession(project, cache=cache, config=QUICK) as session:
        for key in "ab":
            draw(session, key, truth[key])
        heard = listen(session)
        session.segment_folder()
        heard.wait_for(Run, lambda run: run.state == "done")
        assert {run.state for run in heard.of(Run)} == {"training", "segmenting", "done"}
        for key in "abc":
            session.paint(key, (0, 0), BIRD, 0)
        session.segment_folder()
        start = time.monotonic()
        session.cancel_run()
        assert time.monotonic() - start < PATIENCE / 10
        assert session.run.state in ("done", "none")
        is_whole = (project.output / "results" / "summary.csv").exists()
        assert (session.run.state == "done") == is_whole
        session.segment_folder(retrain=False)  # it goes on
        heard.wait_for(Run, lambda run: run.state == "segmenting")
        end = time.monotonic() + PATIENCE
        while session.run.state != "done":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert len(rows(project.output / "results" / "summary.csv")) == 3
        assert heard.of(Failed) == []
