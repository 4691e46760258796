"""Lock a folder for one program at a time."""

from __future__ import annotations

import contextlib
import os
import platform
import time
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from segkit._files.write import is_running, remove_if_empty, remove_unfinished, why
from segkit.errors import InputError, OutputError

# Folder of segkit's own files in a folder of results.
HIDDEN = ".segkit"
_LONGEST_WRITE = 5.0  # seconds


@contextmanager
def alone_in(folder: Path) -> Iterator[Path]:
    """Keep other programs from writing to a folder of results as long as the block lasts.

    Unfinished files of killed programs are removed first. Yields the folder of segkit's own files in it. An InputError
    says that another program writes to it, an OutputError that it cannot be written.
    """
    hidden = folder / HIDDEN
    missing = [parent for parent in (hidden, *hidden.parents) if not parent.exists()]
    lock = FolderLock(hidden / "lock")
    try:
        remove_unfinished(folder)
        yield hidden
    finally:
        lock.release()
        remove_if_empty(hidden, *missing)


class FolderLock:
    """A file that names the program that works in a folder, until `release` or the end of the program removes it.

    The lock of a killed program is taken over. An InputError says that another program holds it, an OutputError that it
    cannot be written.
    """

    _held: ClassVar[set[Path]] = set()  # by this process

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._take()
        except OSError as error:
            raise OutputError(f"{self._folder}: {why(error)}") from error
        self._held.add(path.resolve())
        self._release = weakref.finalize(self, _unlink, path, os.getpid(), self._held)

    @property
    def _folder(self) -> Path:
        """The locked folder, for messages."""
        parent = self.path.parent
        return parent.parent if parent.name == HIDDEN else parent

    def release(self) -> None:
        """Let other programs work in the folder."""
        self._release()

    def _take(self) -> None:
        for _ in range(3):
            try:
                handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                self._refuse_if_held()
                self._remove_left_one()
            else:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(f"{os.getpid()} {platform.node()}\n")
                return
        raise InputError(f"{self._folder} is being opened by another program: try again")

    def _remove_left_one(self) -> None:
        """Remove the lock of a killed program, unless another program has just taken it over."""
        doomed = self.path.with_name(f"{self.path.name}.{uuid.uuid4().hex}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(doomed)
            try:
                self._refuse_if_held(doomed)
            except InputError:
                with contextlib.suppress(OSError):
                    os.link(doomed, self.path)
                raise
            finally:
                doomed.unlink(missing_ok=True)

    def _refuse_if_held(self, path: Path | None = None) -> None:
        path = path or self.path
        try:
            pid, _, computer = path.read_text(encoding="utf-8").strip().partition(" ")
            age = time.time() - path.stat().st_mtime
        except (OSError, UnicodeDecodeError):
            return
        if not pid.isdecimal():
            if age < _LONGEST_WRITE:  # another program has made the file and not yet written to it
                raise InputError(f"{self._folder} is being opened by another program: try again")
            return
        # in a container, a killed program may have had the process id of this one
        is_own = int(pid) == os.getpid() and self.path.resolve() not in self._held
        if computer == platform.node() and (is_own or not is_running(int(pid))):
            return
        where = "" if computer == platform.node() else f" on {computer}"
        raise InputError(
            f"{self._folder} is in use by another program (process {pid}{where}): close that one, give another "
            f"output folder, or remove {self.path} if no such program runs"
        )


def _unlink(path: Path, owner: int, held: set[Path]) -> None:
    held.discard(path.resolve())
    # a forked process does not own the lock of its parent
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
