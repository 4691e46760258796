"""Labels of a live session, saved in the background until they are on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable

from segkit.errors import OutputError, SegkitError, count
from segkit.live.arrays import ArrayProject
from segkit.live.events import Event, Failed, Saved, explain
from segkit.live.project import Project

# Seconds until labels that could not be saved are tried again: the disk may have room by then.
SECONDS_TO_SAVE_AGAIN = 2.0


class Saver:
    """Saves the labels of images in a thread of its own, and again if it fails.

    `emit` is given an event for each image that was saved or not, and `done` is called after it, both from that thread.
    """

    def __init__(
        self, project: Project | ArrayProject, emit: Callable[[Event], None], done: Callable[[], None]
    ) -> None:
        self._project, self._emit, self._done = project, emit, done
        self._unsaved: dict[str, None] = {}
        self._saving: str | None = None
        self._is_closing = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="segkit-save", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether all labels are saved."""
        with self._news:
            return not self._unsaved and self._saving is None

    def add(self, key: str) -> None:
        """Save the labels of an image soon."""
        with self._news:
            self._unsaved[key] = None
            self._news.notify_all()

    def close(self) -> OutputError | None:
        """End the thread, and save what is not saved, here or elsewhere; return what to tell if it is elsewhere."""
        with self._news:
            self._is_closing = True
            self._news.notify_all()
        self._thread.join()
        return self._save_all() if isinstance(self._project, Project) else None

    def _save_all(self) -> OutputError | None:
        project = self._project
        assert isinstance(project, Project)
        causes = {}
        for key in dict.fromkeys([*self._unsaved, *project.unsaved()]):
            try:
                project.save(key)
                self._unsaved.pop(key, None)
            except Exception as error:  # no label may be lost, whatever went wrong
                causes[key] = error.__cause__ or error
        if not causes:
            return None
        cause, masks = next(iter(causes.values())), project.masks
        told = f"labels of {count(len(causes), 'image')} could not be saved to {masks} ({explain(cause)})"
        try:
            folder = project.rescue(causes) / masks.name
        except OutputError as error:
            return OutputError(f"{told}; {error}")
        return OutputError(f"{told}: they are in {folder}, copy them from there")

    def _run(self) -> None:
        while (key := self._next()) is not None:
            try:
                version = self._project.save(key)
            except Exception as error:  # no label may be lost, whatever went wrong
                told = explain(error)
                self._emit(Failed(told if isinstance(error, SegkitError) else f"{key}: not saved: {told}"))
                with self._news:
                    self._unsaved[key], self._saving = None, None
                    if not self._is_closing:
                        self._news.wait(SECONDS_TO_SAVE_AGAIN)
                continue
            self._emit(Saved(key, version))
            with self._news:
                self._saving = None
            self._done()

    def _next(self) -> str | None:
        """Wait for labels to save; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._unsaved or self._is_closing)
            if self._is_closing:
                return None
            key = self._saving = next(iter(self._unsaved))
            del self._unsaved[key]
            return key
