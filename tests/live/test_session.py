from dataclasses import replace

import numpy as np
import pytest
import tifffile

import segkit.live.features
from segkit.config.schema import Config
from segkit.errors import ConfigError, InputError
from segkit.images import write_image
from segkit.images.axes import AxesError
from segkit.live import (
    ArrayProject,
    Checked,
    Expected,
    Failed,
    LabelClass,
    LiveSession,
    Objects,
    Prediction,
    Project,
    Saved,
    Status,
)
from segkit.segmentation.segmenter import load
from tests.live.conftest import PATIENCE, blobs, draw, learn, listen, rebuilt


def test_strokes_in_prediction_out(session, heard, truth):
    learn(session, truth)
    values, times = rebuilt(heard.of(Prediction), truth["a"].shape)
    assert (times == 1).all()
    assert (values == truth["a"]).mean() > 0.95
    mask, probabilities = session.predict("a")
    np.testing.assert_array_equal(mask, values)
    np.testing.assert_allclose(probabilities.sum(axis=2), 1, atol=1e-5)
    assert heard.of(Failed) == []
    assert heard.of(Status)[-1].task == "idle"


def test_coarse_comes_before_fine(project, cache, truth, monkeypatch):
    monkeypatch.setattr(segkit.live.features, "COARSE_CELLS", 400)
    monkeypatch.setattr("segkit.live.canvas.BLOCK", 32)
    with LiveSession(project, cache=cache) as session:
        heard = listen(session)
        session.open("a")
        session.look("a", (0, 40, 32, 80))
        draw(session, "a", truth["a"])
        assert session.wait(PATIENCE)
        first = heard.of(Prediction)[0].generation
        blocks = [event for event in heard.of(Prediction) if event.generation == first]
        assert blocks[0].stride == 4
        assert blocks[0].values.shape == (16, 20)
        values, times = rebuilt(heard.of(Prediction), truth["a"].shape)
        assert (times == 1).all()
        expected, _ = session.predict("a")
        np.testing.assert_array_equal(values, expected)
        # of the first model that was painted in full the visible blocks came first
        full = [event.corner for event in heard.of(Prediction) if event.stride == 1]
        assert set(full[:2]) <= {(0, 32), (0, 64)}


def test_an_image_that_is_opened_again_is_painted_again(session, truth):
    learn(session, truth)
    heard = listen(session)
    session.open("a")
    assert session.wait(PATIENCE)
    values, times = rebuilt(heard.of(Prediction), truth["a"].shape)
    assert (times == 1).all()
    np.testing.assert_array_equal(values, session.predict("a")[0])
    assert len(heard.of(Objects)) == 1


def test_strokes_of_all_images_train_one_model(session, truth):
    session.open("a")
    draw(session, "a", truth["a"], value=0)
    session.open("b")
    draw(session, "b", truth["b"], value=1)
    mask, _ = session.predict("c")
    assert (mask == truth["c"]).mean() > 0.93


def test_undo_takes_the_prediction_back(session, truth):
    learn(session, truth)
    patch = session.undo("a")
    assert (patch.values == 255).any()
    with pytest.raises(InputError, match="nothing is predicted yet: draw strokes of two classes or more"):
        session.predict("a")
    assert session.redo("a") is not None
    session.predict("a")
    assert session.redo("a") is None


def test_one_class_needs_another(session, heard, truth):
    session.open("a")
    draw(session, "a", truth["a"], value=0)
    heard.wait_for(Status, lambda event: event.task == "needs labels")
    assert heard.of(Prediction) == []


def test_a_pause_stops_learning_not_saving(session, heard, truth):
    session.live = False
    session.open("a")
    draw(session, "a", truth["a"])
    heard.wait_for(Status, lambda event: event.task == "paused")
    heard.wait_for(Saved)
    assert heard.of(Prediction) == []
    session.live = True
    heard.wait_for(Prediction)


def test_an_accepted_image_is_labelled_in_full(session, heard, project, truth):
    session.open("a")
    draw(session, "a", truth["a"])
    drawn = project.labels("a").labels.copy()
    mask, _ = session.predict("a")
    session.accept("a")
    labels = project.labels("a").labels
    assert project.accepted("a")
    np.testing.assert_array_equal(labels, np.where(drawn == 255, mask, drawn))
    session.undo("a")
    np.testing.assert_array_equal(labels, drawn)
    assert not project.accepted("a")


def test_judging_gives_a_curve_that_survives(session, heard, project, cache, truth):
    for key in "ab":
        session.open(key)
        draw(session, key, truth[key])
    [point] = heard.wait_for(Expected, lambda event: event.points[-1].n_images == 2).points[-1:]
    assert point.n_strokes == 4
    assert 0.5 < point.object_iou <= 1
    assert point.object_iou <= point.mean_iou
    checked = heard.wait_for(Checked, lambda event: event.object_iou is not None)
    assert 0.5 < checked.object_iou <= point.object_iou
    session.close()
    with LiveSession(project, cache=cache) as again:
        assert again.points[-1] == point
        assert again.predict("c")[0].shape == truth["c"].shape  # earlier strokes count


def discs(rng):
    """Image of twelve bright discs, two of which touch, and of many bright specks."""
    rows, cols = np.indices((96, 128))
    mask = np.zeros((96, 128), dtype=bool)
    for place in range(12):
        row, col = 14 + 32 * (place // 4), 16 + 32 * (place % 4)
        mask |= np.hypot(rows - row, cols - (col + 19 * (place == 5))) < 8
    for row in (1, 29, 63, 92):
        for col in range(2, 124, 6):
            mask[row : row + 3, col : col + 3] = True
    return (0.2 + 0.5 * mask + 0.02 * rng.standard_normal(mask.shape)).clip(0, 1)


def test_what_one_image_predicts_is_not_checked(session, heard, truth):
    learn(session, truth)
    assert {event.object_iou for event in heard.of(Checked)} == {None}


def test_strokes_count_regions_of_half_the_smallest_drawn_and_say_so(cache, rng):
    image = discs(rng)
    with LiveSession(ArrayProject({"a": image}), cache=cache) as session:
        heard = listen(session)
        session.open("a")
        for row, col in ((12, 12), (44, 12)):
            session.paint("a", (row, col), np.ones((4, 9), dtype=bool), 1)
        session.paint("a", (34, 0), np.ones((2, 128), dtype=bool), 0)
        assert session.wait(PATIENCE)
        event = heard.of(Objects)[-1]
        assert event.count == event.labels.max() == 11
        assert "at least 18 pixels (half the smallest one drawn) counts as one object" in event.rule
        # an outline of a whole disc teaches no other size, whatever the prediction is
        disc = np.hypot(*(np.indices((17, 17)) - 8)) < 8
        session.paint("a", (70, 8), disc, 1)
        assert session.wait(PATIENCE)
        assert heard.of(Objects)[-1].count == 11


def test_an_opened_model_counts_by_its_own_rule(project, cache, model):
    project.set_classes([LabelClass(k, name, "#ffffff") for k, name in enumerate(model.label_map_.names)])
    with LiveSession(project, cache=cache, model=model) as session:
        heard = listen(session)
        session.open("a")
        event = heard.wait_for(Objects)
        np.testing.assert_array_equal(event.labels, model.segment(project.image("a"), objects=True).objects)
        assert event.rule == model.objects_.rule


def test_more_images_are_annotated_than_stay_at_hand(session, truth, monkeypatch):
    monkeypatch.setattr("segkit.live.session.IMAGES_AT_HAND", 2)
    for key in "abc":
        draw(session, key, truth[key])
    session.open("a")
    assert session.wait(PATIENCE)
    assert (session.predict("a")[0] == truth["a"]).mean() > 0.95


def test_an_opened_model_is_shown_until_strokes_are_asked_for(project, cache, model, truth):
    names = model.label_map_.names
    project.set_classes([LabelClass(0, names[1], "#000000"), LabelClass(1, names[0], "#ffffff")])
    with LiveSession(project, cache=cache, model=model) as session:
        heard = listen(session)
        assert (session.has_model, session.source) == (True, "model")
        session.open("a")
        assert session.wait(PATIENCE)
        values, times = rebuilt(heard.of(Prediction), truth["a"].shape)
        assert (times == 1).all()
        expected = model.predict(project.image("a"))
        np.testing.assert_array_equal(values, 1 - expected)  # values are the project's
        _, probabilities = session.predict("a")
        np.testing.assert_allclose(
            probabilities[:, :, ::-1], model.predict_proba(project.image("a")), atol=1e-6
        )
        session.use("strokes")
        with pytest.raises(InputError, match="nothing is predicted yet"):
            session.predict("a")
        draw(session, "a", truth["a"])
        assert session.wait(PATIENCE)
        assert (session.predict("a")[0] == truth["a"]).mean() > 0.95


def test_a_model_of_other_classes_is_refused(project, cache, model):
    first, second = project.classes
    project.set_classes([first, replace(second, name="lesion")])
    with pytest.raises(
        InputError,
        match=r"the model knows class 'foreground', the project 'background', 'lesion': name the classes as",
    ):
        LiveSession(project, cache=cache, model=model)


def test_without_an_opened_model_there_is_none_to_use(session):
    with pytest.raises(InputError, match="no trained model was opened"):
        session.use("model")


def test_axes_named_in_a_session_change_its_images_and_reach_the_exported_model(folder, cache, truth):
    planes = np.stack([blobs((64, 80), seed)[0] for seed in (0, 0, 1, 1)])
    pixels = np.rint(255 * planes).astype(np.uint8)
    (folder / "plain").mkdir()
    for name in "pq":
        tifffile.imwrite(folder / "plain" / f"{name}.tif", pixels, photometric="minisblack", metadata=None)
    quick = Config.load(None, ["training.pixels=2000", "selection.pixels=500"])
    project = Project(folder / "plain", folder / "out")
    with project, LiveSession(project, cache=cache, config=quick) as session:
        with pytest.raises(AxesError):
            session.open("p")
        session.set_axes("ZYX")
        session.open("p#3")
        assert session.wait(PATIENCE)  # features of one channel
        session.set_axes("CYX")
        session.open("p")
        draw(session, "p", truth["a"])
        assert session.wait(PATIENCE)
        assert (session.predict("q")[0] == truth["a"]).mean() > 0.95
        model = load(session.export().model)
        assert (model.n_image_channels_, model.reading_.axes) == (4, "CYX")


def test_arrays_have_no_axes_to_name(cache):
    with LiveSession(ArrayProject(), cache=cache) as session, pytest.raises(InputError, match="in memory"):
        session.set_axes("ZYX")


def test_strokes_of_no_class(session):
    for value in (2, 256, "1"):
        with pytest.raises(InputError, match="is of no class: give one of 0, 1, or 255 to erase"):
            session.paint("a", (0, 0), np.ones((2, 2), dtype=bool), value)


def test_an_image_of_other_channels_is_told(folder, rng):
    write_image(folder / "images" / "d.png", rng.random((30, 30, 3)))
    project = Project(folder / "images", folder / "other")
    with project, LiveSession(project) as session:
        heard = listen(session)
        session.open("a")
        assert session.wait(PATIENCE)
        session.open("d")
        assert "d: 3 channels, expected 1 as the first image" in heard.wait_for(Failed).message


def test_a_fault_in_the_thread_is_told(session, heard, truth, monkeypatch):
    monkeypatch.setattr("segkit.live.session.Canvas", lambda *args, **options: 1 / 0)
    session.open("a")
    draw(session, "a", truth["a"])
    assert "unexpected error (ZeroDivisionError" in heard.wait_for(Failed).message
    heard.wait_for(Saved)


def test_banks_that_learn_filters_are_refused(project, cache):
    config = Config.load(None, ["bank={name: orbit, templates: patches}"])
    with pytest.raises(ConfigError, match="learns its filters from images: choose one of fixed filters"):
        LiveSession(project, cache=cache, config=config)


def test_advice_marks_regions_and_ranks_other_images(session, truth):
    learn(session, truth)
    advised = session.suggest("a")
    assert advised.key == "a"
    assert 1 <= len(advised.boxes) <= 3
    for top, left, bottom, right in advised.boxes:
        assert 0 <= top < bottom <= 64
        assert 0 <= left < right <= 80
    for key in "bc":  # opened once, so that their features are known
        session.open(key)
        assert session.wait(PATIENCE)
    advised = session.suggest("a")
    assert sorted(advised.ranking) == ["b", "c"]
    assert advised.n_unseen == 0
    draw(session, "b", truth["b"])
    assert session.suggest("a").ranking == ("c",)


def test_regions_avoid_what_is_labelled(session, project, truth):
    session.open("a")
    for label in (0, 1):
        session.paint("a", (0, 0), truth["a"] == label, label)
    assert session.suggest("a").boxes == ()


def test_no_advice_without_a_model(session):
    session.open("a")
    with pytest.raises(InputError, match="nothing is learnt yet: draw strokes of two classes or more"):
        session.suggest("a")
