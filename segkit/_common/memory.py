"""How much memory may be used: a limit that a caller sets, or half of what is free."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from segkit.errors import ConfigError, InputError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?)b?\s*", re.IGNORECASE)
# Fewer bytes do not hold Python and the libraries.
_LEAST = 2**26
_CGROUPS = Path("/sys/fs/cgroup")

# The limits that are set, the innermost last. They hold for all threads of the process, for these share its memory.
_limits: list[int] = []


@contextmanager
def memory_limit(limit: int | str | None) -> Iterator[None]:
    """Keep the memory of this process below a limit, for as long as the block of ``with`` lasts.

    Tiles of large images are made so small that features, decisions and labels fit. The limit holds for all threads.

    Parameters
    ----------
    limit : int, str or None
        Bytes, or text such as "2GiB" or "500MB", of the whole process: Python, libraries and images count too. None
        sets no limit of one's own: half of the memory that is free is used.

    Yields
    ------
    None
        Nothing.

    Raises
    ------
    ConfigError
        If the limit is no size, or below 64 MiB.

    Examples
    --------
    >>> from segkit import memory_limit
    >>> with memory_limit("2GiB"):
    ...     pass
    """
    if limit is None:
        yield
        return
    _limits.append(read_size(limit))
    try:
        yield
    finally:
        _limits.pop()


def limit_of_one(n_processes: int = 1) -> int | None:
    """Return the limit of each of so many processes that share that of this one; None if there is none.

    Raises a ConfigError if Python and the libraries would not fit.
    """
    if not _limits:
        return None
    share = _limits[-1] // n_processes
    if share < _LEAST:
        raise ConfigError(
            f"memory limit {describe(_limits[-1])}: {describe(share)} for each of {n_processes} processes, at least "
            f"{describe(_LEAST)} are needed: raise --memory-limit (Python: segkit.memory_limit), or take fewer workers"
        )
    return share


def read_size(size: int | str) -> int:
    """Read a number of bytes, such as 2GiB, 500MB or 1.5g."""
    found = _SIZE.fullmatch(str(size))
    n_bytes = 0
    if found is not None:
        unit = found[2].lower()
        n_bytes = int(float(found[1]) * (_UNITS | _BINARY).get(unit, 0))
    if n_bytes < _LEAST:
        raise ConfigError(
            f"memory limit {size!r}: give a size of {describe(_LEAST)} or more, such as 2GiB or 500MB"
        )
    return n_bytes


def describe(n_bytes: float) -> str:
    """Describe a number of bytes in MiB or GiB."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"


def bytes_left() -> int:
    """Count the bytes that this process may still take; below 0 if it has more than its limit already."""
    return _limits[-1] - bytes_used() if _limits else bytes_free() // 2


def require_bytes(
    n_bytes: int, *, what: str, source: str | Path | None = None, cure: str = "cut the image into parts"
) -> None:
    """Refuse work that does not fit under the limit."""
    left = bytes_left()
    if n_bytes > left:
        given = _limits[-1] if _limits else left + bytes_used()
        whose = "the memory limit is" if _limits else "half of the free memory and what is used already are"
        raise InputError(
            f"{what}: needs {describe(n_bytes + bytes_used())} of memory, {whose} {describe(given)}: "
            f"raise --memory-limit (Python: segkit.memory_limit), or {cure}",
            source=source,
        )


def bytes_used() -> int:
    """Count the bytes of memory that this process has."""
    used: int = psutil.Process().memory_info().rss
    return used


def bytes_free() -> int:
    """Count the bytes of memory that are free: of the machine, or of the control group if that has less."""
    of_machine: int = psutil.virtual_memory().available
    return max(0, min([of_machine, *_free_in_control_groups()]))


def _free_in_control_groups() -> Iterator[int]:
    """Yield the free bytes of the control group, as containers and batch systems set them."""
    for limit_file, used_file, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, used = _text(_CGROUPS / limit_file), _text(_CGROUPS / used_file)
        if limit.isdecimal() and used.isdecimal():  # the word "max" is no limit
            # pages of files that were read count as used, and are given back when others need them
            statistics = _text((_CGROUPS / limit_file).parent / "memory.stat")
            cached = re.search(rf"^{cache} (\d+)$", statistics, re.MULTILINE)
            yield int(limit) - max(0, int(used) - (int(cached[1]) if cached else 0))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
