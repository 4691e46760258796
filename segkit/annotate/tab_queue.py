"""Messages that wait for one browser tab, without growth: the newest state replaces older ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from segkit.annotate.events import labels_frame, prediction_frame
from segkit.annotate.messages import pack

if TYPE_CHECKING:
    from segkit.live import Drawing, Prediction

Box = tuple[int, int, int, int]
_MOST_FAILURES = 20


class TabQueue:
    """Messages for one tab that shows one image; however slow the tab, few wait for it."""

    # Labels are kept as the box that changed, and read when they are sent. Of predictions the blocks of the newest
    # generation are kept, of anything else the newest message.

    def __init__(self) -> None:
        self.image: str | None = None
        self._changed = asyncio.Event()
        self._first: deque[bytes] = deque()
        self._box: Box | None = None
        self._generation = -1
        self._blocks: dict[tuple[int, tuple[int, int]], Prediction] = {}
        self._newest: dict[str, bytes] = {}
        self._states: dict[str, str] = {}
        self._failures: deque[str] = deque(maxlen=_MOST_FAILURES)

    def send_first(self, frame: bytes) -> None:
        """Send this before all else."""
        self._first.append(frame)
        self._changed.set()

    def show(self, image: str, frame: bytes, size: tuple[int, int]) -> None:
        """Start to show an image: its description, then all its labels."""
        self.image, self._box = image, (0, 0, *size)
        self._blocks, self._generation = {}, -1
        for slot in ("objects", "advice"):
            self._newest.pop(slot, None)
        self.send_first(frame)

    def mark_changed(self, image: str, box: Box) -> None:
        """Labels within this box have changed."""
        if image == self.image:
            old = self._box or box
            self._box = (min(old[0], box[0]), min(old[1], box[1]), max(old[2], box[2]), max(old[3], box[3]))
            self._changed.set()

    def add_prediction(self, event: Prediction) -> None:
        """Show a block of a prediction; those of older generations are dropped."""
        if event.key != self.image or event.generation < self._generation:
            return
        if event.generation > self._generation:
            self._generation, self._blocks = event.generation, {}
        self._blocks[event.stride, event.corner] = event
        self._changed.set()

    def send(self, slot: str, message: Mapping[str, Any] | bytes) -> None:
        """Send this header or frame, in place of what waits in the same slot."""
        self._newest[slot] = message if isinstance(message, bytes) else pack(message)
        self._changed.set()

    def set_state(self, image: str, state: str) -> None:
        """Note how much of an image is labelled."""
        self._states[image] = state
        self._changed.set()

    def send_error(self, message: str) -> None:
        """Show an error."""
        self._failures.append(message)
        self._changed.set()

    async def wait(self) -> None:
        """Wait until there is something to send."""
        await self._changed.wait()
        self._changed.clear()

    def take(self, drawing: Drawing | None) -> Iterator[bytes]:
        """Yield frames to send, in the order the page needs, and forget them; `wait` says whether there are more."""
        while self._first:
            yield self._first.popleft()
        if self._box is not None and drawing is not None and self.image is not None:
            box, self._box = self._box, None
            yield labels_frame(self.image, drawing, box)
        newest, self._newest = self._newest, {}
        yield from newest.values()
        if self._states:
            states, self._states = self._states, {}
            yield pack({"op": "states", "images": states})
        while self._failures:
            yield pack({"op": "failed", "message": self._failures.popleft()})
        if self._blocks:
            # One block at a time, so that strokes of other tabs need not wait for all; coarse ones show the image soon.
            where = max(self._blocks, key=lambda block: block[0])
            yield prediction_frame(self._blocks.pop(where))
        if self._blocks:
            self._changed.set()
