"""Lock a folder for one program at a time."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from segkit._common.files import describe_os_error, remove_if_empty, remove_unfinished
from segkit.errors import InputError, OutputError

# Folder of segkit's own files in a folder of results.
HIDDEN = ".segkit"


@contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """Keep other programs from writing to a folder of results as long as the block lasts.

    Unfinished files of killed programs are removed first. Yields the folder of segkit's own files in it. An InputError
    says that another program writes to it, an OutputError that it cannot be written.
    """
    hidden = folder / HIDDEN
    missing = [parent for parent in (hidden, *hidden.parents) if not parent.exists()]
    # what is written or removed through a link would be elsewhere
    inside = (path for below in ("*", "large/*", "large/*/*") for path in hidden.glob(below))
    if links := [path for path in (hidden, *inside) if path.is_symlink()]:
        raise OutputError(f"{links[0]} is a link, and segkit makes none there: remove it")
    try:
        with locked(folder, hidden / "lock"):
            remove_unfinished(folder)
            yield hidden
    finally:
        remove_if_empty(hidden, *missing)


@contextmanager
def locked(folder: Path, path: Path) -> Iterator[None]:
    """Lock a folder by a file in it as long as the block lasts; the system frees the lock of a killed program.

    An InputError says that another program holds it, an OutputError that it cannot be written, or that something else is
    in its place. A lock file itself, which a loss of power may leave, locks nothing, and is empty.
    """
    with contextlib.suppress(OSError):  # there is none, or the program that held it has just ended
        found = path.lstat()
        if found.st_size or not stat.S_ISREG(found.st_mode):
            raise OutputError(f"{path} is in the place of the lock of segkit, and no lock: move it elsewhere")
    from filelock import FileLock, Timeout  # 0.2 s, which a command that locks nothing does not wait for

    lock = FileLock(path, timeout=0, thread_local=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise InputError(
            f"{folder} is in use by another program: close that one, or give another output folder"
        ) from error
    except OSError as error:
        raise OutputError(f"{folder}: {describe_os_error(error)}") from error
    try:
        yield
    finally:
        # Later it might be the file of the next program. Windows refuses; there, filelock removes it.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()
