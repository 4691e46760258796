import errno
import os
import shutil
import threading
from pathlib import Path

import numpy as np

from segkit.errors import OutputError
from segkit.images import read_mask
from segkit.live import Failed, Labels, Prediction, Project, Saved
from tests.live.conftest import PATIENCE, complaint, draw, once


def test_labels_are_on_disk_at_once(session, heard, project, truth):
    draw(session, "a", truth["a"])
    version = heard.of(Labels)[-1].version
    heard.wait_for(Saved, lambda event: event.version == version)
    [stored] = read_mask(project.label_path("a"))
    np.testing.assert_array_equal(stored, project.labels("a").labels)


def test_a_full_disk_is_told_and_nothing_is_lost(session, heard, project, truth, monkeypatch):
    save = Project.save
    monkeypatch.setattr(
        Project, "save", lambda self, key: (_ for _ in ()).throw(OutputError("disk full: free space"))
    )
    session.open("a")
    draw(session, "a", truth["a"])
    assert heard.wait_for(Failed).message == "disk full: free space"
    heard.wait_for(Prediction)  # learning goes on
    monkeypatch.setattr(Project, "save", save)
    heard.wait_for(Saved)
    np.testing.assert_array_equal(read_mask(project.label_path("a"))[0], project.labels("a").labels)


def test_waiting_ends_when_labels_are_saved(session, project, truth, monkeypatch):
    """No look ahead and nothing to learn: only the end of saving wakes the session."""
    monkeypatch.setattr("segkit.live.session.QUIET_TO_LOOK_AHEAD", 2 * PATIENCE)
    save, may_save = Project.save, threading.Event()
    monkeypatch.setattr(Project, "save", lambda *given: may_save.wait(PATIENCE) and save(*given))
    draw(session, "a", truth["a"], value=0)
    assert not session.wait(0.5)
    may_save.set()
    assert session.wait(PATIENCE)
    assert project.unsaved() == []


def test_a_stroke_after_the_end_is_saved_at_once(session, project, truth):
    session.close()
    draw(session, "a", truth["a"])
    assert session.wait(1)
    np.testing.assert_array_equal(read_mask(project.label_path("a"))[0], project.labels("a").labels)


def test_labels_that_were_deleted_are_written_again_at_the_end(session, heard, project, truth):
    draw(session, "a", truth["a"])
    heard.wait_for(Saved)
    assert session.wait(PATIENCE)
    drawn = project.labels("a").labels.copy()
    shutil.rmtree(project.masks)
    session.close()
    np.testing.assert_array_equal(read_mask(project.label_path("a"))[0], drawn)


def test_labels_that_cannot_be_saved_at_the_end_are_rescued(session, project, truth, tmp_path, monkeypatch):
    def refuse(temporary, target):
        if project.output in target.parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), target.name)
        os.rename(temporary, target)  # noqa: PTH104

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(Path, "replace", refuse)
    draw(session, "a", truth["a"])
    drawn = project.labels("a").labels.copy()
    told = complaint(OutputError, session.close)
    [rescued] = home.iterdir()
    assert told == (
        f"labels of 1 image could not be saved to {project.masks} (a.png: Read-only file system: check the disk, its "
        f"permissions and free space): they are in {rescued / 'masks'}, copy them from there"
    )
    np.testing.assert_array_equal(read_mask(rescued / "masks" / "a.png")[0], drawn)
    monkeypatch.undo()  # closed once more by its fixture, the session saves them


def test_a_fault_while_saving_is_told_and_tried_again(session, heard, project, truth, monkeypatch):
    save = Project.save
    monkeypatch.setattr(Project, "save", once(lambda: 1 / 0, save))
    draw(session, "a", truth["a"])
    assert "a: not saved: unexpected error (ZeroDivisionError" in heard.wait_for(Failed).message
    heard.wait_for(Saved)
    assert session.wait(PATIENCE)
    assert project.unsaved() == []
