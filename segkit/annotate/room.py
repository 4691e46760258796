"""All open tabs and the session behind them: what a tab asks for goes in, what the session tells goes to every tab."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.concurrency import run_in_threadpool

from segkit.annotate import messages
from segkit.annotate.messages import pack
from segkit.annotate.outbox import Outbox
from segkit.annotate.pictures import Pictures
from segkit.errors import InputError, OutputError, SegkitError
from segkit.images import UNLABELLED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from segkit.live import LiveSession, Project
    from segkit.live.events import Event

Answer = TypeVar("Answer")
_MOST_TABS_REMEMBERED = 1000


class Room:
    """The session, its project, and the tabs that show them.

    Parameters
    ----------
    project : Project
        Images and labels.
    session : LiveSession
        Learns from the labels.
    """

    def __init__(self, project: Project, session: LiveSession, *, has_model: bool = False) -> None:
        self.project, self.session, self.has_model = project, session, has_model
        self.keys = {entry.key for entry in project.images}
        self.pictures = Pictures(project.image)
        self.tabs: set[Outbox] = set()
        self._one_at_a_time = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._states: dict[str, str] = {}
        self._settings = {"live": True, "source": "strokes"}
        # What a tab that opens later has missed: the newest of each, and the prediction of each shown image.
        self._told: dict[str, dict[str, Any]] = {}
        self._about_image: dict[tuple[str, str], dict[str, Any]] = {}
        self._predicted: dict[str, dict[Any, Any]] = {}
        # Number of the last stroke of each page, so that one sent twice after a lost connection counts once.
        self._last: OrderedDict[str, int] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    async def enter(self, tab: Outbox, page: str) -> None:
        """Greet a new tab."""
        self._loop = asyncio.get_running_loop()
        self._states = await run_in_threadpool(self._read_states)
        greeting = {
            "op": "hello",
            "images": [
                {"key": entry.key, "state": self._states[entry.key], "page": entry.page, "n_pages": entry.n_pages}
                for entry in self.project.images
            ],
            "classes": self._classes(),
            "unlabelled": int(UNLABELLED),
            "has_model": self.has_model,
            "output": str(self.project.output),
            "applied": self._last.get(page, 0),
            **self._settings,
        }
        tab.say(pack(greeting))
        self.tabs.add(tab)
        for op, header in self._told.items():
            tab.tell(op, header)

    def leave(self, tab: Outbox) -> None:
        """Forget a tab, and predictions that no tab shows."""
        self.tabs.discard(tab)
        self._forget()

    async def handle(self, tab: Outbox, page: str, frame: bytes) -> None:
        """Do what a message asks for; what is wrong with it is told to its tab.

        Raises
        ------
        FramingError
            If the frame is not one of the page's.
        """
        try:
            message, payload = messages.read_message(frame)
            image = getattr(message, "image", None)
            if image is not None and image not in self.keys:
                raise InputError(f"image {image!r}: not among the images of this folder: reload the page")
            await self._do(tab, page, message, payload)
        except (SegkitError, OSError, MemoryError) as error:
            tab.fail(_one_line(error))

    def listen(self, event: Event) -> None:
        """Take an event of the session, on any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._spread, event)

    async def _do(self, tab: Outbox, page: str, message: messages.Message, payload: bytes) -> None:
        match message:
            case messages.Open():
                await self._open(tab, message.image)
            case messages.View():
                await self._in_turn(lambda: self.session.look(message.image, message.box))
            case messages.Stroke() | messages.Command():
                if message.seq > self._last.get(page, 0):
                    await self._change(tab, page, message, payload)
                self._acknowledge(tab, page, message.image)
            case messages.SetClasses():
                await self._set_classes(message)
            case messages.Settings():
                await self._in_turn(lambda: self._set(message))
                for other in self.tabs:
                    other.tell("settings", {"op": "settings", **self._settings})
            case messages.Suggest():
                self._start(tab, self._suggest(tab, message.image))
            case messages.Export():
                self._start(tab, self._export(tab))

    async def _open(self, tab: Outbox, image: str) -> None:
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
            "range": [[float(low), float(high)] for low, high in zip(pyramid.low, pyramid.high, strict=True)],
        }
        tab.show(image, pack(header), (height, width))
        self._forget()
        for event in list(self._predicted.get(image, {}).values()):
            tab.predict(event)
        for op in ("objects", "advice"):
            if (op, image) in self._about_image:
                tab.tell(op, self._about_image[op, image])
        await self._in_turn(lambda: self.session.open(image))

    async def _change(
        self, tab: Outbox, page: str, message: messages.Stroke | messages.Command, payload: bytes
    ) -> None:
        # A stroke that is refused must not be sent again and again: it counts as done.
        self._last[page] = message.seq
        self._last.move_to_end(page)
        while len(self._last) > _MOST_TABS_REMEMBERED:
            self._last.popitem(last=False)
        image = message.image
        drawing = await self._in_turn(lambda: self.project.labels(image))
        size = drawing.labels.shape
        try:
            if isinstance(message, messages.Stroke):
                known = {entry.value for entry in self.project.classes} | {int(UNLABELLED)}
                if message.value not in known:
                    raise InputError(
                        f"stroke of value {message.value}, and the classes have {sorted(known)}: choose a class and draw again"
                    )
                mask = messages.unpack_mask(message, payload, (size[0], size[1]))
                stroke = (page, message.stroke)
                await self._in_turn(
                    lambda: self.session.paint(image, message.corner, mask, message.value, stroke=stroke)
                )
            else:
                await self._in_turn(lambda: getattr(self.session, message.op)(image))
        except SegkitError:
            tab.change(image, (0, 0, size[0], size[1]))  # the page drew it already: show what is true
            raise

    def _acknowledge(self, tab: Outbox, page: str, image: str) -> None:
        version = int(self.project.labels(image).version)
        header = {"op": "applied", "image": image, "seq": self._last[page], "version": version}
        tab.tell(f"applied {image}", header)

    async def _set_classes(self, message: messages.SetClasses) -> None:
        known = {entry.value: entry for entry in self.project.classes}
        if len({entry.value for entry in message.classes}) < len(message.classes):
            raise InputError("two classes with the same value: give each its own")
        if len({entry.name.strip() for entry in message.classes}) < len(message.classes):
            raise InputError("two classes with the same name: give each its own")
        make = type(next(iter(known.values())))
        classes = [make(entry.value, entry.name.strip(), entry.colour) for entry in message.classes]
        try:
            await self._in_turn(lambda: self.session.set_classes(classes))
        finally:  # the page shows what was taken, also after a refusal
            for tab in self.tabs:
                tab.tell("classes", {"op": "classes", "classes": self._classes()})

    def _set(self, message: messages.Settings) -> None:
        self.session.live = message.live
        if message.source != self._settings["source"]:
            if message.source == "model" and not self.has_model:
                raise InputError("no model was opened: start segkit annotate with --model FILE.segkit")
            self.session.use(message.source)
        self._settings = {"live": message.live, "source": message.source}

    async def _suggest(self, tab: Outbox, image: str) -> None:
        advice = await run_in_threadpool(self.session.suggest, image)
        header = {
            "op": "advice",
            "image": image,
            "boxes": [list(map(int, box)) for box in advice.boxes],
            "ranking": list(advice.ranking),
        }
        self._about_image["advice", image] = header
        tab.tell("advice", header)

    async def _export(self, tab: Outbox) -> None:
        made = await run_in_threadpool(self.session.export)
        header = {"op": "exported", "model": str(made.model), "masks": str(made.masks), "command": made.command}
        tab.tell("exported", header)

    def _start(self, tab: Outbox, work: Awaitable[None]) -> None:
        """Do long work while strokes go on."""

        async def run() -> None:
            try:
                await work
            except (SegkitError, OSError, MemoryError) as error:
                tab.fail(_one_line(error))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_turn(self, work: Callable[[], Answer]) -> Answer:
        """Work on a thread, so that a slow disk does not stop the server; the session is asked one thing at a time."""
        async with self._one_at_a_time:
            return await run_in_threadpool(work)

    def _spread(self, event: Event) -> None:
        """Give an event of the session to the tabs that it concerns."""
        told: Any = event
        match type(event).__name__:
            case "Labels":
                (row, column), values = told.patch.corner, told.patch.values
                box = (row, column, row + values.shape[0], column + values.shape[1])
                for tab in self.tabs:
                    tab.change(told.key, box)
            case "Prediction":
                self._remember(told)
                for tab in self.tabs:
                    tab.predict(told)
            case "Saved":
                for tab in self.tabs:
                    tab.tell(f"saved {told.key}", {"op": "saved", "image": told.key, "version": told.version})
                self._start_states(told.key)
            case "Failed":
                for tab in self.tabs:
                    tab.fail(told.message)
            case "Objects" | "Advised" as name:
                op = {"Objects": "objects", "Advised": "advice"}[name]
                header = {"op": op, "image": told.key, **_plain(vars_of(told))}
                self._about_image[op, told.key] = header
                for tab in self.tabs:
                    if tab.image == told.key:
                        tab.tell(op, header)
            case "Status" | "Expected" as name:
                header = {"op": name.lower(), **_plain(vars_of(told))}
                self._told[header["op"]] = header
                for tab in self.tabs:
                    tab.tell(header["op"], header)

    def _remember(self, event: Any) -> None:
        if not any(tab.image == event.key for tab in self.tabs):
            return
        blocks = self._predicted.setdefault(event.key, {})
        newest = max((block.generation for block in blocks.values()), default=event.generation)
        if event.generation > newest:
            blocks.clear()
        if event.generation >= newest:
            blocks[event.stride, event.corner] = event

    def _forget(self) -> None:
        shown = {tab.image for tab in self.tabs}
        self._predicted = {key: blocks for key, blocks in self._predicted.items() if key in shown}

    def _start_states(self, key: str) -> None:
        async def find() -> None:
            state = await run_in_threadpool(self._state, key)
            if self._states.get(key) != state:
                self._states[key] = state
                for tab in self.tabs:
                    tab.merge("states", {key: state})

        task = asyncio.get_running_loop().create_task(find())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read_states(self) -> dict[str, str]:
        begun = set(self.project.annotated())
        return {
            key: self._states.get(key) or ("full" if self.project.accepted(key) else "some" if key in begun else "none")
            for key in (entry.key for entry in self.project.images)
        }

    def _state(self, key: str) -> str:
        labels = self.project.labels(key).labels
        empty = labels == UNLABELLED
        if self.project.accepted(key) or not empty.any():
            return "full"
        return "none" if empty.all() else "some"

    def _classes(self) -> list[dict[str, Any]]:
        return [
            {"value": int(entry.value), "name": entry.name, "colour": entry.colour}
            for entry in self.project.classes
        ]


def vars_of(event: Any) -> dict[str, Any]:
    """Fields of an event but its key."""
    return {name: getattr(event, name) for name in event.__dataclass_fields__ if name != "key"}


def _plain(value: Any) -> Any:
    """Turn tuples, NumPy numbers and nested records into what JSON knows; numbers that are none become null."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _one_line(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "out of memory: close other programs, or annotate smaller images"
    if isinstance(error, OSError) and not isinstance(error, OutputError):
        return f"{error.filename or 'file'}: {error.strerror or error}: check the disk, its permissions and free space"
    return " ".join(str(error).split())
