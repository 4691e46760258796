"""The page's side of a session, which answers the messages of `benchmarks.fuzz`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from segkit.annotate.messages import FramingError, read_message
from segkit.annotate.shared_session import SharedSession, TabQueue
from segkit.cli.phantom import make_demo_set
from segkit.errors import SegkitError
from segkit.images import write_image
from segkit.live import Failed, FeatureCache, LiveSession, Project

SIZE = (32, 40)
# What starts processes, or writes to any folder, is read and checked, and not done.
_NOT_DONE = ("train_network", "segment", "export")
# Strokes of two classes, and of the first again: first rows, classes.
_STROKES = ((2, 0), (14, 1), (26, 0))


class _Tab(TabQueue):
    """A tab to which errors are raised, not told."""

    def send_error(self, message: str) -> None:
        raise sys.exc_info()[1] or AssertionError(message)


class Page:
    """A tab, and the session behind it, which has two images, a few strokes and a model of them."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        for name, image in zip("ab", make_demo_set(2, shape=SIZE)[0], strict=True):
            write_image(folder / "images" / f"{name}.png", image)
        self._project = Project(folder / "images", folder / "out")
        self._session = LiveSession(self._project, cache=FeatureCache(folder / "cache"))
        self._session.open("a")
        for row, value in _STROKES:
            self._session.paint("a", (row, 4), np.ones((4, 20), dtype=bool), value)
        self._session.wait()
        self._session.live = False
        self._faults: list[str] = []
        self._session.subscribe(self._note)
        self._shared = SharedSession(self._project, self._session)
        self._session.subscribe(self._shared.listen)
        self._loop, self._tab, self._seq = asyncio.new_event_loop(), _Tab(), 0
        self._loop.run_until_complete(self._shared.add_tab(self._tab, "page"))

    def answer(self, frame: bytes) -> str:
        """Let the session do what a frame asks for; an error of another kind than those of segkit is raised."""
        outcome = "answered"
        try:
            message, _ = read_message(frame)
            if message.op not in _NOT_DONE:
                self._loop.run_until_complete(self._do(frame))
        except FramingError:
            return "refused, connection closed"
        except SegkitError as refused:
            outcome = "refused"
            if "\n" in str(refused):
                self._faults.append(f"message of several lines: {refused}")
        if self._faults:
            raise AssertionError(self._faults.pop())
        return outcome

    async def _do(self, frame: bytes) -> None:
        self._seq += 1
        await self._shared.handle(self._tab, f"page {self._seq}", frame)  # each counts as new
        await asyncio.gather(*self._shared._tasks)
        drawing = None if self._tab.image is None else self._shared.project.labels(self._tab.image)
        for _ in self._tab.take(drawing):
            pass

    def close(self) -> None:
        """End the session, and remove its folder."""
        self._session.close()
        self._project.close()
        self._loop.close()
        self._folder.cleanup()

    def _note(self, event: object) -> None:
        if isinstance(event, Failed) and event.message.startswith("unexpected"):
            self._faults.append(event.message)


opened_page = cache(Page)
