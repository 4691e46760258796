"""What comes in while a session is at work: strokes, other images, other files, faults of others, the end."""

import threading

import numpy as np
import pytest

import segkit.live.features
from segkit.errors import InputError, OutputError
from segkit.images import read_mask, write_image
from segkit.live import Failed, LabelClass, LiveSession, Prediction, Project
from segkit.live.canvas import Canvas, OpenedModel
from segkit.live.learner import Labelled
from tests.live.conftest import PATIENCE, blobs, draw, learn, listen, once, rebuilt


def test_a_stroke_while_labels_are_looked_at_is_learnt(session, truth, monkeypatch):
    session.open("a")
    assert session.wait(PATIENCE)  # its features are known
    other = once(lambda: draw(session, "a", truth["a"], value=1), Labelled.of)
    monkeypatch.setattr(Labelled, "of", other)
    draw(session, "a", truth["a"], value=0)
    assert session.wait(PATIENCE)
    assert (session.predict("a")[0] == truth["a"]).mean() > 0.95


def test_another_image_opened_while_one_is_painted(session, heard, truth, monkeypatch):
    monkeypatch.setattr(Canvas, "__init__", once(lambda: session.open("b"), Canvas.__init__))
    learn(session, truth)
    of_b = [event for event in heard.of(Prediction) if event.key == "b"]
    for generation in {event.generation for event in of_b}:
        values, _ = rebuilt([event for event in of_b if event.generation == generation], truth["b"].shape)
        assert (values == truth["b"]).mean() > 0.9
    np.testing.assert_array_equal(rebuilt(of_b, truth["b"].shape)[0], session.predict("b")[0])


def test_strokes_asked_for_while_the_opened_model_paints(project, cache, model, truth, monkeypatch):
    names = model.label_map_.names  # other way round, so that its prediction is told from that of strokes
    project.set_classes([LabelClass(0, names[1], "#000000"), LabelClass(1, names[0], "#ffffff")])
    with LiveSession(project, cache=cache, model=model) as session:
        heard = listen(session)
        draw(session, "a", truth["a"])
        assert session.wait(PATIENCE)
        monkeypatch.setattr(OpenedModel, "paint", once(lambda: session.use("strokes"), OpenedModel.paint))
        session.open("a")
        assert session.wait(PATIENCE)
        values, _ = rebuilt(heard.of(Prediction), truth["a"].shape)
        assert (values == truth["a"]).mean() > 0.95


def test_a_prediction_asked_for_keeps_no_block_from_the_listeners(project, cache, truth, monkeypatch):
    monkeypatch.setattr(segkit.live.features, "COARSE_CELLS", 400)
    monkeypatch.setattr("segkit.live.canvas.BLOCK", 32)
    with LiveSession(project, cache=cache) as session:
        heard = listen(session)
        session.subscribe(
            lambda event: isinstance(event, Prediction) and event.stride > 1 and session.predict("a")
        )
        learn(session, truth)
        events = heard.of(Prediction)
        first = [event for event in events if event.generation == events[0].generation]
        assert (rebuilt(first, truth["a"].shape)[1] == 1).all()


def test_waiting_ends_when_labels_are_on_disk(session, project, truth, monkeypatch):
    save, may_save = Project.save, threading.Event()
    monkeypatch.setattr(Project, "save", lambda *args: may_save.wait(PATIENCE) and save(*args))
    draw(session, "a", truth["a"], value=0)
    assert not session.wait(0.2)
    may_save.set()
    assert session.wait(PATIENCE)
    assert project.label_path("a").exists()


def test_a_listener_that_fails_stops_nothing(session, project, truth, caplog):
    session.subscribe(lambda event: 1 / 0)
    learn(session, truth)
    assert project.unsaved() == []
    assert (session.predict("a")[0] == truth["a"]).mean() > 0.95
    assert "a listener failed at Saved" in caplog.text


def test_closing_saves_all_that_can_be_saved(project, cache, truth, monkeypatch):
    save, tried, at_work = Project.save, threading.Event(), threading.Event()
    session = LiveSession(project, cache=cache)

    def failing(self, key):
        if key == "b":
            raise OutputError("b: the disk is full")
        if not tried.is_set():  # the thread that saves is at work on "a" until the session is closed
            at_work.set()
            while not session._closing:
                tried.wait(0.01)
            tried.set()
            raise OutputError("a: the disk is full")
        return save(self, key)

    monkeypatch.setattr(Project, "save", failing)
    for key in "ab":
        draw(session, key, truth[key], value=0)
    assert at_work.wait(PATIENCE)
    with pytest.raises(OutputError, match="b: the disk is full"):
        session.close()
    np.testing.assert_array_equal(read_mask(project.label_path("a"))[0], project.labels("a").labels)


def test_after_the_end_nothing_hangs_and_strokes_are_saved(project, cache, truth):
    session = LiveSession(project, cache=cache)
    draw(session, "a", truth["a"], value=0)
    session.close()
    session.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("segkit-")]
    assert session.wait(PATIENCE)
    draw(session, "a", truth["a"], value=1)
    np.testing.assert_array_equal(read_mask(project.label_path("a"))[0], project.labels("a").labels)
    with pytest.raises(InputError, match="the session is closed: open a new one"):
        session.export()


def test_an_image_that_cannot_be_filtered_is_told_once(project, cache, truth, monkeypatch):
    def refuse(*args):
        raise InputError("a: too small for the filters")

    monkeypatch.setattr("segkit.live.session.ImageFeatures", refuse)  # before the session reads ahead
    with LiveSession(project, cache=cache) as session:
        heard = listen(session)
        session.open("a")
        draw(session, "a", truth["a"])
        heard.wait_for(Failed)
        assert session.wait(PATIENCE)
        assert [event.message for event in heard.of(Failed)] == ["a: too small for the filters"]


def test_an_image_opened_while_it_is_read_ahead_is_told_of(project, cache, monkeypatch):
    def refuse(*args):
        session.open("a")
        raise InputError("a: too small for the filters")

    monkeypatch.setattr("segkit.live.session.ImageFeatures", refuse)
    monkeypatch.setattr("segkit.live.session.QUIET_TO_LOOK_AHEAD", 0.0)
    with LiveSession(project, cache=cache) as session:
        heard = listen(session)
        session.live = True  # wakes it, now that it is listened to
        heard.wait_for(Failed, lambda event: event.message == "a: too small for the filters")


def test_an_image_that_was_replaced_is_read_anew(session, project, truth):
    draw(session, "a", truth["a"])
    session.open("b")
    assert session.wait(PATIENCE)
    session.predict("b")
    image, mask = blobs((50, 90), 7)
    write_image(project.source / "b.png", image)
    session.open("b")
    assert session.wait(PATIENCE)
    values, _ = session.predict("b")
    assert values.shape == mask.shape
    assert (values == mask).mean() > 0.9


def test_a_labelled_image_that_was_replaced_is_not_trained_on(session, project, truth):
    draw(session, "a", truth["a"])
    assert session.wait(PATIENCE)
    write_image(project.source / "a.png", blobs((64, 80), 7)[0])
    with pytest.raises(InputError, match="the image was replaced since it was annotated"):
        session.export()
    with pytest.raises(InputError, match="the image was replaced since it was annotated"):
        session.open("a")
