"""The start page: choose a folder of images, or a project that was opened lately; then its page takes the place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from segkit._common.files import write_text
from segkit.annotate.messages import to_json
from segkit.annotate.server import STATIC, make_page, run
from segkit.errors import InputError, OutputError
from segkit.images.read import IMAGE_EXTENSIONS
from segkit.live.cache import default_folder
from segkit.live.events import explain

if TYPE_CHECKING:
    from segkit.live import LiveSession, Project

_RECENT = "recent.json"
_MOST_RECENT = 10
# Folders whose images are counted, and images that are counted in one.
_MOST_FOLDERS, _MOST_IMAGES = 500, 10_000


class Asked(BaseModel):
    """What is to be opened: a folder of images, that of its labels, and names of classes."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    images: Annotated[str, Field(min_length=1, max_length=4096)]
    output: Annotated[str, Field(max_length=4096)] = ""
    classes: Annotated[str, Field(max_length=2000)] = ""


Opener = Callable[[Asked], "tuple[Project, LiveSession]"]


class StartPage:
    """An ASGI application: the start page until a project is opened, then the page of that project.

    Folders below `root` are shown; `open_project` opens one, and raises what is wrong with it.
    """

    def __init__(self, root: Path, open_project: Opener) -> None:
        self._root, self._open_project = root.resolve(), open_project
        self._page: Starlette | None = None
        self._opened: tuple[Project, LiveSession] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._start = Starlette(
            routes=[
                Route("/", self._show),
                Mount("/static", StaticFiles(directory=STATIC)),
                Route("/folders", self._folders),
                Route("/open", self._open, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the start page, or by that of the project."""
        if self._page is not None and scope["type"] == "http" and scope["path"] in ("/folders", "/open"):
            told = PlainTextResponse(
                "a project was opened in another tab: reload the page\n", status_code=409
            )
            await told(scope, receive, send)
        else:
            await (self._page or self._start)(scope, receive, send)

    def close(self) -> None:
        """Save what is not saved, and close the project."""
        if self._opened is not None:
            project, session = self._opened
            try:
                session.close()
            finally:
                project.close()

    async def _show(self, _: Request) -> Response:
        return FileResponse(STATIC / "start.html")

    async def _folders(self, request: Request) -> Response:
        def read() -> Response:
            listed = list_folders(Path(request.query_params.get("path") or self._root), self._root)
            return Response(to_json(listed | {"recent": read_recent()}), media_type="application/json")

        return await _or_told(lambda: run_in_threadpool(read))

    async def _open(self, request: Request) -> Response:
        async def open_project() -> Response:
            try:
                asked = Asked.model_validate_json(await request.body())
            except ValidationError as error:
                raise InputError("this cannot be read: reload the page and try again") from error
            async with self._one_at_a_time:
                if self._page is None:  # else another tab was faster
                    self._opened = await run_in_threadpool(self._open_project, asked)
                    self._page = make_page(*self._opened)
            return PlainTextResponse("")

        return await _or_told(open_project)


async def _or_told(answer: Callable[[], Any]) -> Response:
    """Answer, or say in one line what is wrong."""
    try:
        response: Response = await answer()
    except Exception as error:  # whatever a name of the page makes a system say
        return PlainTextResponse(f"{explain(error)}\n", status_code=404)
    return response


def serve_start(root: Path, open_project: Opener, **options: Any) -> None:
    """Show the start page, then the page of what is opened there, until Ctrl-C; the options are those of `run`."""
    page = StartPage(root, open_project)
    try:
        run(page, **options)
    finally:
        page.close()


def list_folders(folder: Path, root: Path) -> dict[str, Any]:
    """List the folders in a folder at or below `root`, with the number of images in each."""
    folder = folder.resolve()
    if not folder.is_relative_to(root):
        raise InputError(f"not below {root}: start segkit annotate in a folder above it", source=folder)
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entry.name for entry in entries if _is_shown(entry))
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror}): choose another folder", source=folder
        ) from error
    return {
        "path": str(folder),
        "parent": None if folder == root else str(folder.parent),
        "n_images": _count_images(folder),
        "folders": [
            {"name": name, "path": str(folder / name), "n_images": _count_images(folder / name)}
            for name in inside[:_MOST_FOLDERS]
        ],
        "n_more": max(0, len(inside) - _MOST_FOLDERS),
    }


def _is_shown(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and not entry.name.startswith(".")
    except OSError:
        return False


def _count_images(folder: Path) -> int:
    """Count the image files in a folder, without sub-folders."""
    n_images = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            n_images += Path(entry.name).suffix.lower() in IMAGE_EXTENSIONS
            if n_images == _MOST_IMAGES:
                break
    return n_images


def read_recent() -> list[dict[str, str]]:
    """Read what was opened lately and is there still, the last one first."""
    try:
        stored = json.loads((default_folder() / _RECENT).read_text(encoding="utf-8"))
        projects = [{"images": str(one["images"]), "output": str(one["output"])} for one in stored]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    return [one for one in projects if all(map(_is_there, one.values()))]


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def remember(images: Path, output: Path) -> None:
    """Put a project first among those that were opened lately; a disk that cannot be written is none to complain about."""
    own = {"images": str(images.resolve()), "output": str(output.resolve())}
    recent = [own, *(one for one in read_recent() if one != own)][:_MOST_RECENT]
    with contextlib.suppress(OutputError):
        write_text(default_folder() / _RECENT, json.dumps(recent, ensure_ascii=False, indent=1) + "\n")
