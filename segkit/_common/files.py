"""Write a file under a temporary name in its folder, put it on the disk, then rename it.

A program that is killed at any moment leaves the old file or the new one, never a part of one.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from segkit.errors import OutputError

# Bytes of a stem that leave room for the rest of a temporary name in 255.
_LONGEST_STEM = 200
_UNFINISHED = re.compile(r"\..+\.\d+-\d+\.part(\.[^.]*)?", re.DOTALL)
_numbers = itertools.count()
# Whether to wait until a written file is on the disk; see `without_sync`.
_syncs: ContextVar[bool] = ContextVar("syncs", default=True)


@contextmanager
def saving(path: Path) -> Iterator[Path]:
    """Return a temporary path, as `atomic` does; an OutputError says plainly why a file cannot be written."""
    try:
        with atomic(path) as temporary:
            yield temporary
    except OSError as error:
        raise OutputError(f"{path}: {describe_os_error(error)}") from error


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Return a temporary path beside `path` that takes its place once the block ends without an error.

    It is that of a file, or of a folder, which takes the place of none or of an empty one. A reader sees the old file or the
    new one, never a part of one, even after a crash or a loss of power. Missing folders are made, and removed again if the
    file cannot be written.
    """
    missing = [folder for folder in path.parents if not folder.exists()]
    temporary = path.with_name(_temporary_name(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error counts
            remove(temporary)
        remove_if_empty(*missing)
        raise
    _sync_names(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8; an OutputError says why it cannot be written."""
    with saving(path) as temporary:
        # a file name that is no valid text holds lone surrogates, which UTF-8 cannot encode
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file. None is an empty cell. Text that a spreadsheet would execute gets a quote before it."""
    # a file name that is no valid text holds lone surrogates, which UTF-8 cannot encode
    with (
        saving(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([safe_cell("" if value is None else value) for value in row])


def describe_os_error(error: OSError) -> str:
    """Explain why a file cannot be written, and what helps."""
    if is_full(error):
        return "the disk is full: free some space and run the same command again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "may not be written: make the folder writable, or choose another place"
    if error.errno == errno.ENAMETOOLONG:
        return "the name is too long: choose a shorter one"
    reason = " ".join(str(error.strerror or error).split())
    return f"cannot be written ({reason}): check the disk, or choose another place"


def is_full(error: OSError) -> bool:
    """Return whether the disk, or the user's share of it, is full."""
    return error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files of killed programs from a folder and its sub-folders; it must be locked."""
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if _UNFINISHED.fullmatch(name):
                with contextlib.suppress(OSError):
                    remove(Path(root, name))


def remove_unfinished_of(path: Path) -> None:
    """Remove unfinished versions of one file, left by killed programs."""
    import psutil

    for part in path.parent.glob(f".*.part{path.suffix}"):
        stem, _, number = part.name.removesuffix(f".part{path.suffix}").rpartition(".")
        pid = number.partition("-")[0]
        if stem == f".{_short(path.stem)}" and pid.isdecimal():
            with contextlib.suppress(OSError, OverflowError):  # the latter by a number of no process
                if not psutil.pid_exists(int(pid)):
                    part.unlink(missing_ok=True)


def file_of_part(path: Path | None, place: int) -> Path | None:
    """Name the file of one of several parts; the first has the name that was given."""
    return path if path is None or place == 0 else path.with_name(f"{path.name}.part{place + 1}")


def files_of_parts(path: Path) -> list[Path]:
    """List the files of all parts, and of their parts; files of like names are none."""
    name = re.compile(rf"{re.escape(path.name)}(\.part\d+)*", re.DOTALL)
    return sorted(file for file in path.parent.glob("*") if name.fullmatch(file.name))


def stamp_of(path: Path) -> tuple[int, int] | None:
    """Return time of change and size of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it.

    A folder gets the name of an unfinished one first: none that lost some of its files stays in its place after a kill.
    """
    if path.is_dir() and not path.is_symlink():
        aside = path.with_name(_temporary_name(path))
        path.replace(aside)
        shutil.rmtree(aside)
    else:
        path.unlink(missing_ok=True)


def remove_if_empty(*folders: Path) -> None:
    """Remove the empty ones among folders, given from the inside out."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _temporary_name(path: Path) -> str:
    """Name the file while it is written: hidden, so that a listing of images skips it; the extension is its format."""
    return f".{_short(path.stem)}.{os.getpid()}-{next(_numbers)}.part{path.suffix}"


def _short(stem: str) -> str:
    return stem if len(os.fsencode(stem)) <= _LONGEST_STEM else hashlib.sha256(os.fsencode(stem)).hexdigest()


@contextmanager
def without_sync() -> Iterator[None]:
    """Do not wait for the disk: for files made aside, which are written again to their places afterwards."""
    token = _syncs.set(False)
    try:
        yield
    finally:
        _syncs.reset(token)


def _sync(path: Path) -> None:
    """Write a file, or all files of a folder, to the disk; only then may it take the place of another."""
    if not _syncs.get():
        return
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())


def _sync_names(folder: Path) -> None:
    """Write the names of a folder to the disk, so that a file that was replaced outlasts a loss of power."""
    if os.name == "nt" or not _syncs.get():  # folders of Windows cannot be opened
        return
    with contextlib.suppress(OSError):  # some network drives refuse
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def safe_cell(value: Any) -> Any:
    """Put a quote before text that a spreadsheet would execute as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value
