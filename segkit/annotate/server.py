"""The web server of ``segkit annotate``: page, pictures and one websocket, for the page with the printed address only.

Any web page that is open in the same browser could send requests to 127.0.0.1. Three checks keep it out: a secret token,
the Host header (a foreign name that resolves to 127.0.0.1), and the Origin of the websocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import secrets
import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from segkit.annotate import results
from segkit.annotate.messages import (
    LIMIT,
    UNSUPPORTED,
    FramingError,
    PictureQuery,
    TileQuery,
    read_query,
    to_json,
)
from segkit.annotate.pictures import encode, render_tile
from segkit.annotate.shared_session import SharedSession, TabQueue
from segkit.errors import InputError, OutputError, SegkitError
from segkit.live.events import explain
from segkit.objects.tables import OBJECTS_FILE, ImageObjects, write_objects

if TYPE_CHECKING:
    from segkit.live import LiveSession, Project

STATIC = Path(__file__).parent / "static"
REFUSED = 1008  # websocket: policy violation

# Connections that do not end by themselves are cut after so many seconds.
_PATIENCE = 2


class Guard:
    """Answer requests with the right token, host and origin; refuse all others in one line."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._cookie = f"segkit-{port}"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        sockets = " ".join(f"ws://{host}" for host in sorted(self._hosts))
        self._headers = {
            "content-security-policy": f"default-src 'self'; connect-src 'self' {sockets}; img-src 'self' blob:; "
            "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        asked = HTTPConnection(scope)
        is_asked = self._is_token(asked.query_params.get("token", ""))
        fault = self._fault(asked, is_asked=is_asked)
        if fault is None:
            await self._app(scope, receive, self._adding(send, new=is_asked))
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close(REFUSED, fault)
        else:
            await PlainTextResponse(f"{fault}\n", 403, self._headers)(scope, receive, send)

    def _fault(self, asked: HTTPConnection, *, is_asked: bool) -> str | None:
        if asked.headers.get("host", "") not in self._hosts:
            return "wrong host: open the address that segkit annotate printed"
        origin = asked.headers.get("origin")
        if origin not in self._origins and (asked.scope["type"] == "websocket" or origin is not None):
            return "wrong origin: only the page of segkit annotate may connect"
        if not (is_asked or self._is_token(asked.cookies.get(self._cookie, ""))):
            return "no valid token: open the address that segkit annotate printed, with its token"
        return None

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())

    def _adding(self, send: Send, *, new: bool) -> Send:
        """Add the security headers to every answer, and the cookie to that of the printed address."""
        cookie = f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/"

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers | ({"set-cookie": cookie} if new else {}))
            await send(message)

        return sending


def make_app(project: Project, session: LiveSession, *, token: str, port: int) -> ASGIApp:
    """Make the ASGI application for requests that hold the secret token and name the port of the server."""
    return Guard(make_page(project, session), token=token, port=port)


def make_page(project: Project, session: LiveSession) -> Starlette:
    """Make the page of a project, for requests that may be answered."""
    shared = SharedSession(project, session)
    session.subscribe(shared.listen)
    mimetypes.add_type("text/javascript", ".js")  # Windows may know it as another type

    async def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def thumbnail(request: Request) -> Response:
        return await _picture(lambda: shared.pictures.thumbnail(_known(shared, request)))

    async def tile(request: Request) -> Response:
        return await _picture(lambda: _draw_tile(shared, request))

    async def objects(request: Request) -> Response:
        return await _table(
            lambda: shared.table(_known(shared, request)), as_file="csv" in request.query_params
        )

    async def result(request: Request) -> Response:
        return await _result(shared, request)

    async def connect(websocket: WebSocket) -> None:
        await _converse(shared, websocket)

    routes = [
        Route("/", page),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/thumbnail/{key:path}", thumbnail),
        Route("/tile/{key:path}/{level:int}/{row:int}/{column:int}", tile),
        Route("/objects/{key:path}", objects),
        Route("/results/{kind}", result),
        WebSocketRoute("/ws", connect),
    ]
    return Starlette(routes=routes)


def serve(
    project: Project,
    session: LiveSession,
    *,
    port: int = 0,
    notify: Callable[[str], None] = print,
    open_browser: bool = True,
) -> None:
    """Show the page until Ctrl-C; then save and close the session.

    The port is 0 for any free one; `notify` is given the address. An OutputError says that the port is taken or not
    allowed.
    """
    try:
        run(make_page(project, session), port=port, notify=notify, open_browser=open_browser)
    finally:
        session.close()


def run(page: ASGIApp, *, port: int, notify: Callable[[str], None], open_browser: bool) -> None:
    """Serve an application behind a new token until Ctrl-C; see `serve`."""
    listener = _listen(port)
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(24)
    config = uvicorn.Config(
        Guard(page, token=token, port=port),
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


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise OutputError(
            f"--port {port}: {error.strerror or error}: give another one, or leave it out for any free port"
        ) from error


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
            if (frame := received.get("bytes")) is None:
                raise FramingError("text message, expected a binary one", UNSUPPORTED)
            await shared.handle(tab, page, frame)
    except FramingError as error:
        await websocket.close(error.code, str(error)[:120])
    except (WebSocketDisconnect, RuntimeError):  # gone while it was being answered
        return
    finally:
        shared.tabs.discard(tab)
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
                tab.send_error(str(error))
            for frame in tab.take(drawing):
                await websocket.send_bytes(frame)


async def _picture(draw: Callable[[], bytes]) -> Response:
    """Answer with a PNG, or say in one line why there is none."""
    try:
        return Response(await run_in_threadpool(draw), media_type="image/png")
    except SegkitError as error:
        return PlainTextResponse(f"{error}\n", status_code=404)


async def _table(measure: Callable[[], ImageObjects], *, as_file: bool) -> Response:
    """Answer with the table of the objects of an image, column by column or as a CSV file, or say why there is none."""

    def make() -> Response:
        found = measure()
        if not as_file:
            return Response(to_json(found.objects), media_type="application/json")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / OBJECTS_FILE
            write_objects(path, [found])
            name = quote(f"{found.image.rpartition('/')[2]}-{OBJECTS_FILE}")
            headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
            return Response(path.read_bytes(), media_type="text/csv", headers=headers)

    try:
        return await run_in_threadpool(make)
    except SegkitError as error:
        return PlainTextResponse(f"{error}\n", status_code=404)


async def _result(shared: SharedSession, request: Request) -> Response:
    """Answer with rows, a table, a picture or all files of the folder that was segmented last."""
    run, kind, asked = shared.session.run, request.path_params["kind"], request.query_params
    output = Path(run.output)

    def make() -> Response:
        if run.state != "done":
            raise InputError("there are no results yet: segment the folder")
        if kind in results.TABLES:
            if not (output / kind).is_file():
                raise InputError(f"{kind} is gone: segment the folder again")
            return FileResponse(output / kind, media_type="text/csv", filename=kind)
        match kind:
            case "rows":
                told = {
                    "rows": results.read_rows(output),
                    "known": sorted(shared.keys if run.is_own else ()),
                    "output": run.output,
                }
                return Response(to_json(told), media_type="application/json")
            case "objects":
                return Response(to_json(results.read_objects(output)), media_type="application/json")
            case "picture":
                picture = read_query(asked, PictureQuery)
                drawn = results.draw(
                    output, picture.image, picture.page, picture.pages, is_small=picture.small
                )
                return Response(drawn, media_type="image/png")
            case "files":
                return _zip(output)
        raise InputError("no such result: reload the page")

    try:
        return await run_in_threadpool(make)
    except Exception as error:  # whatever somebody has made of the files
        return PlainTextResponse(f"{explain(error)}\n", status_code=404)


def _zip(output: Path) -> Response:
    """Answer with all files in one, which lies on the disk until it is sent."""
    folder = tempfile.TemporaryDirectory(prefix="segkit-")
    path = Path(folder.name) / f"{output.name}.zip"
    try:
        results.write_zip(output, path)
    except OSError as error:
        folder.cleanup()
        raise OutputError(f"{path}: {error.strerror or error}: copy the files from {output}") from error
    return FileResponse(path, filename=path.name, background=BackgroundTask(folder.cleanup))


def _known(shared: SharedSession, request: Request) -> str:
    key = str(request.path_params["key"])
    if key not in shared.keys:
        raise InputError("no such image in this folder: reload the page")
    return key


def _draw_tile(shared: SharedSession, request: Request) -> bytes:
    pyramid = shared.pictures.pyramid(_known(shared, request))
    place = [int(request.path_params[name]) for name in ("level", "row", "column")]
    return encode(render_tile(pyramid, *place, **read_query(request.query_params, TileQuery).model_dump()))
