"""The web server of ``segkit annotate``: page, pictures and one websocket."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from segkit.annotate.events import one_line
from segkit.annotate.guard import App, Guard
from segkit.annotate.messages import LIMIT, FramingError
from segkit.annotate.pictures import encode, render_tile
from segkit.annotate.shared_session import SharedSession
from segkit.annotate.tab_queue import TabQueue
from segkit.errors import InputError, OutputError, SegkitError

if TYPE_CHECKING:
    from segkit.live import LiveSession, Project

_STATIC = Path(__file__).parent / "static"
_MIME = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_TOO_BIG, _UNSUPPORTED, _MALFORMED = 1009, 1003, 1007
# Connections that do not end by themselves are cut after so many seconds.
_PATIENCE = 2


def make_app(project: Project, session: LiveSession, *, token: str, port: int) -> App:
    """Make the web application.

    Parameters
    ----------
    project : Project
        Images and labels.
    session : LiveSession
        Learns from the labels and predicts.
    token : str
        Secret that the address must hold.
    port : int
        Port of the server, which requests must name.

    Returns
    -------
    callable
        An ASGI application.
    """
    shared = SharedSession(project, session)
    session.subscribe(shared.listen)
    files = {path.name: path.read_bytes() for path in sorted(_STATIC.iterdir()) if path.suffix in _MIME}

    def send_file(name: str) -> Response:
        if name not in files:
            return PlainTextResponse("no such file\n", status_code=404)
        return Response(files[name], media_type=_MIME[Path(name).suffix])

    def page(_: Request) -> Response:
        return send_file("index.html")

    def static(request: Request) -> Response:
        return send_file(request.path_params["name"])

    async def thumbnail(request: Request) -> Response:
        return await _picture(lambda: shared.pictures.thumbnail(_known(shared, request)))

    async def tile(request: Request) -> Response:
        return await _picture(lambda: _draw_tile(shared, request))

    async def connect(websocket: WebSocket) -> None:
        await _converse(shared, websocket)

    routes = [
        Route("/", page),
        Route("/static/{name}", static),
        Route("/thumbnail/{key:path}", thumbnail),
        Route("/tile/{key:path}/{level:int}/{row:int}/{column:int}", tile),
        WebSocketRoute("/ws", connect),
    ]
    return Guard(Starlette(routes=routes), token=token, port=port)


def serve(
    project: Project,
    session: LiveSession,
    *,
    port: int = 0,
    notify: Callable[[str], None] = print,
    open_browser: bool = True,
) -> None:
    """Show the page until Ctrl-C; then save and close the session.

    Parameters
    ----------
    project : Project
        Images and labels.
    session : LiveSession
        Learns from the labels and predicts. It is closed at the end.
    port : int
        Port on this machine; 0 for any free one.
    notify : callable
        Is given the address.
    open_browser : bool
        Whether to open the address in the browser.

    Raises
    ------
    OutputError
        If the port is taken or not allowed.
    """
    try:
        listener = _listen(port)
        port = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        app = make_app(project, session, token=token, port=port)
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            ws_max_size=LIMIT,
            ws_per_message_deflate=False,
            lifespan="off",
            timeout_graceful_shutdown=_PATIENCE,
            server_header=False,
        )
        address = f"http://127.0.0.1:{port}/?token={token}"
        notify(address)
        if open_browser:
            webbrowser.open(address)
        if threading.current_thread() is threading.main_thread():
            # uvicorn sends itself the signal again once it has stopped: it must not end the process before all is saved
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt), listener:
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        session.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name != "nt":  # there it would let two programs share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise OutputError(
            f"--port {port}: {error.strerror or error}: give another one, or leave it out for any free port"
        ) from error
    return listener


async def _converse(shared: SharedSession, websocket: WebSocket) -> None:
    """Talk with one tab until it goes."""
    await websocket.accept()
    page = websocket.query_params.get("page", "")[:64] or secrets.token_hex(8)
    tab = TabQueue()
    writer: asyncio.Task[None] | None = None
    try:
        await shared.add_tab(tab, page)
        writer = asyncio.get_running_loop().create_task(_write(shared, tab, websocket))
        while True:
            received = await websocket.receive()
            if received["type"] == "websocket.disconnect":
                return
            frame = received.get("bytes")
            if frame is None:
                await websocket.close(_UNSUPPORTED, "text message, expected a binary one")
                return
            if len(frame) > LIMIT:
                await websocket.close(_TOO_BIG, f"message of {len(frame)} bytes, at most {LIMIT}")
                return
            await shared.handle(tab, page, frame)
    except FramingError as error:
        await websocket.close(_MALFORMED, str(error)[:120])
    except (WebSocketDisconnect, RuntimeError):  # gone while it was being answered
        return
    finally:
        shared.remove_tab(tab)
        if writer is not None:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer


async def _write(shared: SharedSession, tab: TabQueue, websocket: WebSocket) -> None:
    """Send what the queue holds, as fast as the tab takes it."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while True:
            await tab.wait()
            try:
                drawing = None if tab.image is None else shared.project.labels(tab.image)
            except SegkitError as error:  # its image has gone or was replaced: all else is told still
                drawing, tab.image = None, None
                tab.send_error(one_line(error))
            for frame in tab.take(drawing):
                await websocket.send_bytes(frame)


async def _picture(draw: Callable[[], bytes]) -> Response:
    """Answer with a PNG, or say in one line why there is none."""
    try:
        return Response(await run_in_threadpool(draw), media_type="image/png")
    except SegkitError as error:
        return PlainTextResponse(f"{' '.join(str(error).split())}\n", status_code=404)


def _known(shared: SharedSession, request: Request) -> str:
    key = str(request.path_params["key"])
    if key not in shared.keys:
        raise InputError("no such image in this folder: reload the page")
    return key


def _draw_tile(shared: SharedSession, request: Request) -> bytes:
    key, asked = _known(shared, request), request.query_params
    place = [int(request.path_params[name]) for name in ("level", "row", "column")]
    channel = asked.get("channel", "")
    if channel and not (channel.isdecimal() and len(channel) < 6):
        raise InputError("channel: expected a whole number, 0 or more")
    low, high = (_read_number(asked.get(name, ""), name) for name in ("low", "high"))
    chosen = int(channel) if channel else None
    return encode(render_tile(shared.pictures.pyramid(key), *place, channel=chosen, low=low, high=high))


def _read_number(text: str, name: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{name}: expected a number from 0 to 1")
    return value
