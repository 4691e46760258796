"""Images in memory: the same session as with a folder, and an export that `segkit train` repeats."""

import shlex
import time

import numpy as np
import pytest
import tifffile

import segkit
from segkit.cli.commands import app
from segkit.config.schema import Config
from segkit.errors import InputError, OutputError
from segkit.images import UNLABELLED, read_image
from segkit.live import ArrayProject, FeatureCache, LabelClass, LiveSession
from tests.live.conftest import PATIENCE, complaint

FAST = Config.from_options(
    {"training": {"pixels": 500}, "selection": {"pixels": 300}, "kernel": {"family": "linear"}}
)
TWO = [LabelClass(1, "background", "#56b4e9"), LabelClass(2, "cell", "#f0e442")]
DOT = np.ones((4, 4), dtype=bool)


def two_tone(dtype=np.uint8, low=50, high=200, shape=(40, 48)):
    image = np.random.default_rng(0).integers(0, 20, shape) + low
    image[:, shape[1] // 2 :] += high - low
    return image.astype(dtype)


@pytest.fixture
def cache(tmp_path):
    return FeatureCache(tmp_path / "cache")


def painted(**options):
    project = ArrayProject({"a": two_tone()}, classes=TWO, **options)
    project.labels("a").paint((0, 0), np.ones((40, 10), dtype=bool), 1)
    project.labels("a").paint((0, 38), np.ones((40, 10), dtype=bool), 2)
    return project


def test_a_session_judges_though_other_work_took_longer_than_the_pause(cache, monkeypatch):
    look_ahead = LiveSession._look_ahead

    def slowly(session):
        while session._evaluate_at is not None and time.monotonic() <= session._evaluate_at:
            time.sleep(0.01)
        return look_ahead(session)

    evaluate, evaluated = LiveSession._evaluate, []
    monkeypatch.setattr(LiveSession, "_evaluate", lambda session: evaluated.append(1) or evaluate(session))
    monkeypatch.setattr("segkit.live.session.QUIET_TO_LOOK_AHEAD", 0.0)
    monkeypatch.setattr(LiveSession, "_look_ahead", slowly)
    with LiveSession(painted(), config=FAST, cache=cache) as session:
        session.open("a")
        assert session.wait(PATIENCE)
        assert evaluated


def test_images_are_copied_and_scaled_as_files_are():
    image = two_tone(np.uint16, 1000, 3000)
    project = ArrayProject({"a": image})
    expected = (image / np.float32(65535))[:, :, None].astype(np.float32)
    image[:] = 0
    assert np.array_equal(project.image("a"), expected)


def test_images_can_be_added_with_labels():
    labels = np.full((40, 48), UNLABELLED, dtype=np.uint8)
    project = ArrayProject(classes=TWO)
    project.add("a", two_tone())
    assert project.annotated() == []
    labels[0, 0] = 2
    project.add("b", two_tone(), labels)
    assert [entry.key for entry in project.images] == ["a", "b"]
    assert project.annotated() == ["b"]
    assert project.save("b") == 0


def test_accepted_predictions_become_labels():
    project = painted()
    project.accept("a", np.full((40, 48), 2, dtype=np.uint8))
    assert (project.labels("a").labels != UNLABELLED).all()
    assert "hold 7" in complaint(InputError, project.accept, "a", np.full((40, 48), 7, dtype=np.uint8))


def test_a_class_in_use_cannot_be_removed():
    project = painted()
    other = [TWO[0], LabelClass(3, "rim", "#009e73")]
    assert "class cell has labels in 1 image (a)" in complaint(InputError, project.set_classes, other)
    project.set_classes([*TWO, other[1]])
    project.set_classes(TWO)
    assert project.classes == TWO


def test_what_is_no_image_is_refused():
    for image, words in (
        (np.zeros((2, 3, 4, 5), dtype=np.uint8), "image of shape (2, 3, 4, 5), expected (H, W) or (H, W, C)"),
        (np.zeros((8, 8), dtype=np.uint8), "blank"),
        (np.arange(64.0).reshape(8, 8), "expected [0, 1]"),
        (np.arange(64, dtype=np.int64).reshape(8, 8), "pixels are int64"),
    ):
        assert words in complaint(InputError, ArrayProject, {"a": image})


def test_names_and_labels_that_do_not_fit_are_refused():
    project = painted()
    assert "already" in complaint(InputError, project.add, "a", two_tone())
    assert "some characters" in complaint(InputError, project.add, "", two_tone())
    assert "give labels of its size" in complaint(
        InputError, project.add, "b", two_tone(), np.zeros((3, 3), dtype=np.uint8)
    )
    assert "there are a" in complaint(InputError, project.labels, "c")


def test_export_needs_a_folder_and_labels(cache):
    with LiveSession(painted(), config=FAST, cache=cache) as session:
        assert "set project.output" in complaint(InputError, session.export)
    with LiveSession(ArrayProject({"a": two_tone()}), config=FAST, cache=cache) as session:
        assert "nothing is labelled" in complaint(InputError, session.export)


def test_the_command_makes_the_same_model(cache, tmp_path):
    project = painted(output=tmp_path / "out")
    project.add("not annotated", two_tone())
    with LiveSession(project, config=FAST, cache=cache) as session:
        written = session.export(model=tmp_path / "mine.segkit")
    assert written.model == tmp_path / "mine.segkit"
    first = segkit.load(written.model)
    words = shlex.split(written.command)
    words[words.index("-o") + 1] = str(tmp_path / "again.segkit")
    assert app(words[1:], standalone_mode=False) in (0, None)
    again = segkit.load(tmp_path / "again.segkit")
    with LiveSession(project, config=FAST, cache=cache) as session:
        values, _ = session.predict("a")
    assert np.mean(values == np.where(two_tone() > 125, 2, 1)) > 0.9  # the border blurs
    image = project.image("a")
    # to rounding: beside the threads of a session, linear algebra may have fewer of its own
    decision = again.decision_function(image)
    np.testing.assert_allclose(first.decision_function(image), decision, rtol=0, atol=1e-4)
    assert first.label_map_.values == (1, 2)
    assert [path.name for path in (tmp_path / "out" / "images").iterdir()] == ["a-1.tif"]


@pytest.mark.parametrize(
    "image",
    [
        two_tone(np.uint16, 1000, 60000),
        two_tone() > 125,
        np.random.default_rng(0).random((8, 9, 3)),
        np.random.default_rng(0).integers(0, 255, (8, 9, 5)).astype(np.uint8),
    ],
    ids=["16 bits", "bool", "float RGB", "five channels"],
)
def test_images_are_written_without_loss(image, tmp_path):
    project = ArrayProject({"a": image}, output=tmp_path)
    project.labels("a").paint((0, 0), DOT, 1)
    images, _ = project.training_files()
    [page] = read_image(images / "a-1.tif")
    assert np.array_equal(page.reshape(project.image("a").shape), project.image("a"))


def test_odd_names_become_files_that_belong_together(cache, tmp_path):
    project = ArrayProject(classes=TWO, output=tmp_path)
    for name in ("cells", "cells_mask", "labels", "a/b: c#2", "ä"):
        project.add(name, two_tone(), painted().labels("a").labels)
    with LiveSession(project, config=FAST, cache=cache) as session:
        segmenter = segkit.load(session.export().model)
    assert segmenter.summary_.n_images == 5


def test_a_second_export_replaces_the_first_and_nothing_else(tmp_path):
    project = painted(output=tmp_path)
    project.add("b", two_tone(), project.labels("a").labels)
    project.training_files()
    project.labels("b").paint((0, 0), np.ones((40, 48), dtype=bool), UNLABELLED)
    images, masks = project.training_files()
    assert [path.name for path in masks.iterdir()] == ["a-1.png"]
    tifffile.imwrite(images / "foreign.tif", two_tone())
    assert "foreign.tif: 1 file of another origin" in complaint(OutputError, project.training_files)
    assert (images / "foreign.tif").exists()
