"""The web server of ``segkit annotate``: page, pictures and one websocket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import mimetypes
import re
import secrets
import signal
import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from segkit.annotate import results
from segkit.annotate.guard import LOOPBACK, Guard, name_of_host
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
from segkit.errors import ConfigError, InputError, OutputError, SegkitError, one_line
from segkit.live.events import explain
from segkit.objects.tables import OBJECTS_FILE, ImageObjects, write_objects

if TYPE_CHECKING:
    from segkit.live import LiveSession, Project

STATIC = Path(__file__).parent / "static"
# Connections that do not end by themselves are cut after so many seconds.
_PATIENCE = 2
# Connections without a request; a page in a browser has at most 6 beside its websocket.
_MOST_IDLE = 32


def make_app(project: Project, session: LiveSession, *, token: str) -> ASGIApp:
    """Make the ASGI application for requests that hold the secret token."""
    return Guard(make_page(project, session), token=token)


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


def serve(project: Project, session: LiveSession, **options: Any) -> None:
    """Show the page until Ctrl-C; then save and close the session. The options are those of `run`."""
    try:
        run(make_page(project, session), **options)
    finally:
        session.close()


def run(
    page: ASGIApp,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    base_url: str = "/",
    allow_hosts: Iterable[str] = (),
    notify: Callable[[str], None] = print,
    open_browser: bool = True,
    debug: bool = False,
) -> None:
    """Serve an application behind a new token until Ctrl-C.

    The address of this computer that is listened at is `host`; the port is 0 for any free one; `base_url` is the path of
    the page; `allow_hosts` are further names that it may be opened under. `notify` is given the address. With `debug`,
    errors of segkit itself are shown with their traceback. An OutputError says that the port is taken or not allowed.
    """
    if not re.fullmatch(r"[\w/.~%@+-]*", base_url):
        raise ConfigError(f"--base-url {base_url}: expected a path such as /user/me/proxy/8765/")
    for name in allow_hosts:
        if not name_of_host(name):
            raise ConfigError(f"--allow-host {name}: expected the name of a host such as hub.example.org")
    base_url = "/".join(["", *filter(None, base_url.split("/")), ""])
    site = f"[{host}]" if ":" in host else host
    listener = _listen(port, host)
    token = secrets.token_urlsafe(24)
    config = uvicorn.Config(
        Guard(page, token=token, host=site, allow_hosts=allow_hosts, base_url=base_url),
        http=_FewIdle,
        backlog=_MOST_IDLE,
        log_config=_log_config(debug=debug),
        access_log=False,
        ws_max_size=LIMIT,
        ws_per_message_deflate=False,
        lifespan="off",
        timeout_graceful_shutdown=_PATIENCE,
        server_header=False,
        proxy_headers=False,
    )
    site = {"0.0.0.0": LOOPBACK, "::": "[::1]"}.get(host, site)
    address = f"http://{site}:{listener.getsockname()[1]}{base_url}?token={token}"
    notify(address)
    if threading.current_thread() is threading.main_thread():
        # uvicorn sends itself the signal again once it has stopped: it must not end the process before all is saved
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    shown = _open(address) if open_browser else contextlib.nullcontext()
    with contextlib.suppress(KeyboardInterrupt), listener, shown:
        uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _open(address: str) -> Iterator[None]:
    """Open the browser by a private file that leads to the address: all users of a machine can read command lines."""
    # browsers that are snaps, as on Ubuntu, see neither temporary nor hidden folders
    place = Path.home() if Path("/snap/bin").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="segkit-", dir=place) as folder:
        file = Path(folder).resolve() / "open.html"
        file.touch(mode=0o600)
        file.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">', encoding="utf-8"
        )
        webbrowser.open(file.as_uri())
        yield


class _FewIdle(H11Protocol):
    """HTTP of which few connections are idle: those of a stranger would use up the files that a process may open."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the oldest idle connection, if there are too many; a browser opens it again when it needs it."""
        super().connection_made(transport)
        self.since = time.monotonic()
        idle = [one for one in self.connections if isinstance(one, _FewIdle) and one.is_idle]
        if len(idle) > _MOST_IDLE:
            min(idle, key=lambda one: one.since).transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete)


class _OneLine(logging.Formatter):
    """Errors in one line each."""

    def format(self, record: logging.LogRecord) -> str:
        """Explain the error of a record."""
        error = record.exc_info[1] if record.exc_info else None
        return f"segkit annotate: {one_line(record.getMessage() if error is None else explain(error))}"


def _log_config(*, debug: bool) -> dict[str, Any]:
    """Configure the logs of the server and of its loop."""
    quiet = {"handlers": ["terminal"], "level": "ERROR", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": logging.Formatter if debug else _OneLine}},
        "handlers": {"terminal": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {"uvicorn": quiet, "asyncio": quiet},
    }


def _listen(port: int, host: str = LOOPBACK) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise OutputError(
                f"--host {host}: {error.strerror or error}: give an address of this computer, or 0.0.0.0 for all"
            ) from error
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
