"""All open tabs and the session behind them: what a tab asks for goes in, what the session tells goes to every tab."""

from __future__ import annotations

import asyncio
import shlex
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from segkit._common.files import stamp_of
from segkit.annotate import messages
from segkit.annotate.messages import (
    FramingError,
    labels_frame,
    objects_frame,
    pack,
    prediction_frame,
)
from segkit.annotate.pictures import Pictures
from segkit.errors import InputError
from segkit.images import UNLABELLED
from segkit.images.axes import AxesError
from segkit.live import (
    Checked,
    Drawing,
    Event,
    Expected,
    Failed,
    Labels,
    LiveSession,
    Network,
    Objects,
    Prediction,
    Project,
    Run,
    Saved,
    Status,
)
from segkit.live.events import explain
from segkit.objects.tables import ImageObjects

Answer = TypeVar("Answer")
Box = tuple[int, int, int, int]
_MOST_PAGES_REMEMBERED = 1000
_MOST_FAILURES = 20


class TabQueue:
    """Messages for one tab that shows one image; however slow the tab, few wait for it."""

    # Labels are kept as the box that changed, and read when they are sent. Of predictions the blocks of the newest
    # generation are kept, of anything else the newest message.

    def __init__(self) -> None:
        self.image: str | None = None
        self._changed = asyncio.Event()
        self._box: Box | None = None
        self._generation = -1
        self._blocks: dict[tuple[int, tuple[int, int]], Prediction] = {}
        self._newest: dict[str, bytes] = {}
        self._failures: deque[str] = deque(maxlen=_MOST_FAILURES)

    def show(self, image: str, frame: bytes, size: tuple[int, int]) -> None:
        """Start to show an image: its description, then all its labels."""
        self.image, self._box = image, (0, 0, *size)
        self._blocks, self._generation = {}, -1
        for slot in ("checked", "objects", "advice"):
            self._newest.pop(slot, None)
        self.send("image", frame)

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
        image = self.image  # of the drawing; another one may be shown before all is sent
        for slot in [slot for slot in ("hello", "image") if slot in self._newest]:
            yield self._newest.pop(slot)
        if self._box is not None and drawing is not None and image is not None and image == self.image:
            box, self._box = self._box, None
            yield labels_frame(image, drawing, box)
        newest, self._newest = self._newest, {}
        yield from newest.values()
        while self._failures:
            yield pack({"op": "failed", "message": self._failures.popleft()})
        if self._blocks:
            # One block at a time, so that strokes of other tabs need not wait for all; coarse ones show the image soon.
            where = max(self._blocks, key=lambda block: block[0])
            yield prediction_frame(self._blocks.pop(where))
        if self._blocks:
            self._changed.set()


class SharedSession:
    """The session, its project, and the tabs that show them."""

    def __init__(self, project: Project, session: LiveSession) -> None:
        self.project, self.session = project, session
        self._stamps: dict[str, tuple[int, int] | None] = {}  # of files, when they were opened last
        self._list_images()
        self.tabs: set[TabQueue] = set()
        self._shown: str | None = None  # by the session
        self._one_at_a_time = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._states: dict[str, str] = {}
        self._newest: dict[str, dict[str, Any]] = {}  # what a tab that opens later has missed
        # Number of the last stroke of each page, so that one sent twice after a lost connection counts once.
        self._last: OrderedDict[str, int] = OrderedDict()

    def _list_images(self) -> None:
        self._paths = {entry.key: entry.path for entry in self.project.images}
        self.keys = set(self._paths)
        self.pictures = Pictures(self.project.image)

    # tabs

    async def add_tab(self, tab: TabQueue, page: str) -> None:
        """Greet a new tab."""
        self._loop = asyncio.get_running_loop()
        self._states = await run_in_threadpool(self._read_states)
        greeting = {
            "op": "hello",
            **self._images(),
            "classes": self._classes(),
            "unlabelled": UNLABELLED,
            "has_model": self.session.has_model,
            "output": str(self.project.output),
            "results": str(self.session.results),
            "applied": self._last.get(page, 0),
            "network": asdict(self.session.network),
            "run": asdict(self.session.run),
            "object_settings": self.session.object_settings,
            **self._settings(),
        }
        tab.send("hello", greeting)
        self.tabs.add(tab)
        if self.session.points and "expected" not in self._newest:  # of an earlier run
            self._newest["expected"] = {"op": "expected", "points": self.session.points}
        for op, header in self._newest.items():
            tab.send(op, header)

    async def handle(self, tab: TabQueue, page: str, frame: bytes) -> None:
        """Do what a message asks for; what is wrong with it is told to its tab."""
        try:
            message, payload = messages.read_message(frame)
            image = getattr(message, "image", None)
            if image is not None and image not in self.keys:
                raise InputError(f"image {image!r}: not among the images of this folder: reload the page")
            await self._do(tab, page, message, payload)
        except FramingError:
            raise
        except AxesError as error:
            asked = {"image": image, "shape": error.shape, "choices": error.choices}
            tab.send("ask axes", {"op": "ask_axes", **asked})
        except Exception as error:  # of segkit itself too: if the connection ended, the page would try again
            tab.send_error(explain(error))

    async def _do(self, tab: TabQueue, page: str, message: messages.Message, payload: bytes) -> None:
        match message:
            case messages.About(op="open"):
                await self._open(tab, page, message.image)
            case messages.About():
                self._start(self._suggest(message.image), tab)
            case messages.View():
                await self._in_turn(lambda: self._look(message.image, message.box))
            case (
                messages.Stroke()
                | messages.Command()
                | messages.Correct()
                | messages.DrawObject()
                | messages.GrowObject()
                | messages.ClassifyObject()
            ):
                try:
                    if message.seq > self._last.get(page, 0):
                        await self._change(tab, page, message, payload)
                finally:
                    self._acknowledge(tab, page, message.image)
            case messages.SetClasses():
                await self._set_classes(message)
            case messages.SetAxes():
                await self._set_axes(message.axes)
            case messages.Settings():
                await self._set(message)
            case messages.SetObjects():
                await self._set_objects(message)
            case messages.TrainNetwork():
                self._start(run_in_threadpool(getattr(self.session, message.op)), tab)
            case messages.CheckLabels():
                self._start(self._check_labels(tab), tab)
            case messages.Segment():
                self._start(self._segment(message), tab)
            case messages.CancelRun():
                self._start(run_in_threadpool(self.session.cancel_run), tab)
            case messages.Export():
                self._start(self._export(tab), tab)

    async def _open(self, tab: TabQueue, page: str, image: str) -> None:
        stamp = stamp_of(self._paths[image])
        if self._stamps.get(image, stamp) != stamp:
            await run_in_threadpool(self.pictures.forget, image)
        self._stamps[image] = stamp
        pyramid = await run_in_threadpool(self.pictures.pyramid, image)
        await self._in_turn(lambda: self.project.labels(image))
        height, width, n_channels = pyramid.levels[0].shape
        header = {
            "op": "image",
            "image": image,
            "height": height,
            "width": width,
            "channels": n_channels,
            "levels": len(pyramid.levels),
            "depth": pyramid.depth,
            "range": list(zip(pyramid.low.tolist(), pyramid.high.tolist(), strict=True)),
        }
        tab.show(image, pack(header), (height, width))
        await self._in_turn(lambda: self._show(image, anew=True))
        # what a lost connection kept from the page
        self._acknowledge(tab, page, image)
        version = self.project.labels(image).version
        if image not in await self._in_turn(self.project.unsaved):
            tab.send(f"saved {image}", {"op": "saved", "image": image, "version": version})

    def _show(self, image: str, *, anew: bool = False) -> None:
        """Let the session work on the image of the tab in use."""
        if anew or image != self._shown:
            self.session.open(image)
            self._shown = image

    def _look(self, image: str, box: tuple[int, int, int, int]) -> None:
        height, width = self.project.labels(image).shape
        if not (box[0] < box[2] <= height and box[1] < box[3] <= width):
            raise InputError(f"view {list(box)} of an image of {height} x {width} pixels: reload the page")
        self._show(image)
        self.session.look(image, box)

    async def _change(self, tab: TabQueue, page: str, message: messages.Change, payload: bytes) -> None:
        # A stroke that is refused must not be sent again and again: it counts as done.
        self._last[page] = message.seq
        self._last.move_to_end(page)
        while len(self._last) > _MOST_PAGES_REMEMBERED:
            self._last.popitem(last=False)
        image = message.image
        size = (await self._in_turn(lambda: self.project.labels(image))).shape
        try:
            await self._in_turn(lambda: self._show(image))
            await self._in_turn(lambda: self._change_labels(page, message, payload, size))
        except Exception:
            tab.mark_changed(image, (0, 0, *size))  # the page drew it already: show what is true
            raise

    def _change_labels(
        self, page: str, message: messages.Change, payload: bytes, size: tuple[int, int]
    ) -> None:
        session, image = self.session, message.image
        match message:
            case messages.Stroke():
                mask, stroke = messages.unpack_mask(message, payload, size), f"{page} {message.stroke}"
                session.paint(image, message.corner, mask, message.value, stroke=stroke)
            case messages.DrawObject():
                mask = messages.unpack_mask(message, payload, size)
                session.objects.draw(image, message.corner, mask, value=message.value)
            case messages.GrowObject():
                session.objects.grow(image, message.at, reach=message.reach, value=message.value)
            case messages.ClassifyObject():
                session.objects.classify(image, message.at, message.value)
            case messages.Correct(op="accept_object"):
                session.objects.accept(image, message.points[0])
            case messages.Correct(op="delete_object"):
                session.objects.delete(image, message.points[0])
            case messages.Correct(op="merge_objects"):
                session.objects.merge(image, message.points)
            case messages.Correct():
                session.objects.split(image, message.points)
            case messages.Command(op="accept_objects"):
                session.objects.accept(image)
            case messages.Command():
                getattr(session, message.op)(image)

    def table(self, image: str) -> ImageObjects:
        """Measure the objects of an image as they are."""
        table = self.session.objects.measure(image)
        size = self.project.stored(image)[1]
        return ImageObjects(image, self.project.labels(image).shape, table, size)

    def _acknowledge(self, tab: TabQueue, page: str, image: str) -> None:
        version = self.project.labels(image).version
        header = {"op": "applied", "image": image, "seq": self._last.get(page, 0), "version": version}
        tab.send(f"applied {image}", header)

    async def _set_classes(self, message: messages.SetClasses) -> None:
        try:
            await self._in_turn(lambda: self.session.set_classes(message.classes))
        finally:  # the page shows what is true, also after a refusal
            self._tell("classes", {"op": "classes", "classes": self._classes()})

    async def _set_axes(self, axes: str) -> None:
        def change() -> None:
            self.session.set_axes(axes)
            self._list_images()
            self._shown, self._states = None, {}
            self._states = self._read_states()

        for tab in self.tabs:  # each opens its image again, which may have another name
            tab.image = None
        await self._in_turn(change)
        self._tell("images", {"op": "images", **self._images()})

    async def _set(self, message: messages.Settings) -> None:
        def change() -> None:
            self.session.live = message.live
            if message.source != self.session.source:
                self.session.use(message.source)

        try:
            await self._in_turn(change)
        finally:
            self._tell("settings", {"op": "settings", **self._settings()})

    async def _set_objects(self, message: messages.SetObjects) -> None:
        try:
            await self._in_turn(lambda: self.session.set_objects(**message.model_dump(exclude={"op"})))
        finally:  # the page shows what is true, also after a refusal
            self._send_to_all("object_settings", self.session.object_settings)

    async def _suggest(self, image: str) -> None:
        advice = await run_in_threadpool(self.session.suggest, image)
        header = {"op": "advice", "image": image, "boxes": advice.boxes, "ranking": advice.ranking}
        self._tell("advice", pack(header), image=image)

    async def _check_labels(self, tab: TabQueue) -> None:
        doubts = await run_in_threadpool(self.session.check_labels)
        tab.send("doubts", {"op": "doubts", "doubts": [doubt._asdict() for doubt in doubts]})

    async def _segment(self, message: messages.Segment) -> None:
        asked = message.model_dump(exclude={"op"})
        await run_in_threadpool(lambda: self.session.segment_folder(**asked))

    async def _export(self, tab: TabQueue) -> None:
        made = await run_in_threadpool(self.session.export)
        predict = f"segkit predict {shlex.quote(str(made.model))} IMAGES -o predictions"
        commands = {"predict": predict, "count": f"{predict} --objects"}
        tab.send("exported", {"op": "exported", **made._asdict(), **commands})

    # events of the session

    def listen(self, event: Event) -> None:
        """Take an event of the session, on any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._dispatch, event)

    def _dispatch(self, event: Event) -> None:
        """Pass an event of the session to the tabs that it concerns."""
        match event:
            case Labels():
                (row, column), (height, width) = event.patch.corner, event.patch.values.shape
                for tab in self.tabs:
                    tab.mark_changed(event.key, (row, column, row + height, column + width))
            case Prediction():
                for tab in self.tabs:
                    tab.add_prediction(event)
            case Saved():
                header = {"op": "saved", "image": event.key, "version": event.version}
                self._tell(f"saved {event.key}", header)
                self._start(self._find_state(event.key))
            case Checked():
                self._tell("checked", {"op": "checked", "image": event.key, **asdict(event)}, image=event.key)
            case Objects():
                self._start(self._outline(event))
            case Failed():
                for tab in self.tabs:
                    tab.send_error(event.message)
            case Status():
                self._send_to_all("status", asdict(event))
            case Expected():
                self._send_to_all("expected", asdict(event))
            case Network():
                self._tell("network", {"op": "network", **asdict(event)})
            case Run():
                self._tell("run", {"op": "run", **asdict(event)})

    def _tell(self, slot: str, message: Mapping[str, Any] | bytes, *, image: str | None = None) -> None:
        """Send a message to all tabs, or to those that show an image."""
        for tab in self.tabs:
            if image in (None, tab.image):
                tab.send(slot, message)

    def _send_to_all(self, op: str, content: dict[str, Any]) -> None:
        """Pass a message to every tab, and to those to come."""
        self._newest[op] = {"op": op, **content}
        self._tell(op, self._newest[op])

    async def _outline(self, event: Objects) -> None:
        self._tell("objects", await run_in_threadpool(objects_frame, event), image=event.key)

    async def _find_state(self, key: str) -> None:
        state = await run_in_threadpool(self._state, key)
        if self._states.get(key) != state:
            self._states[key] = state
            self._tell(f"state {key}", {"op": "states", "images": {key: state}})

    # helpers

    def _start(self, work: Awaitable[None], tab: TabQueue | None = None) -> None:
        """Do long work while strokes go on; what goes wrong is told to one tab, or to all."""

        async def run() -> None:
            try:
                await work
            except Exception as error:  # of a task that nobody waits for, it would never be seen
                for receiver in self.tabs if tab is None else [tab]:
                    receiver.send_error(explain(error))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_turn(self, work: Callable[[], Answer]) -> Answer:
        """Work on a thread, so that a slow disk does not stop the server; the session is asked one thing at a time."""
        async with self._one_at_a_time:
            return await run_in_threadpool(work)

    def _images(self) -> dict[str, Any]:
        images = [
            {"key": one.key, "state": self._states[one.key], "page": one.page, "n_pages": one.n_pages}
            for one in self.project.images
        ]
        return {"images": images, "axes": self.project.reading.unnamed}

    def _settings(self) -> dict[str, Any]:
        return {"live": self.session.live, "source": self.session.source}

    def _classes(self) -> list[dict[str, Any]]:
        return [asdict(entry) | {"colour": entry.colour.lower()} for entry in self.project.classes]

    def _read_states(self) -> dict[str, str]:
        begun = set(self.project.annotated())
        return {
            key: self._states.get(key)
            or ("full" if self.project.accepted(key) else "some" if key in begun else "none")
            for key in (entry.key for entry in self.project.images)
        }

    def _state(self, key: str) -> str:
        empty = self.project.labels(key).labels == UNLABELLED
        if self.project.accepted(key) or not empty.any():
            return "full"
        return "none" if empty.all() else "some"
