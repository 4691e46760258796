"""The output of the command line: lines and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from math import isnan
from pathlib import Path
from typing import Any, TypeVar

import typer

from segkit.errors import one_line, printable

Item = TypeVar("Item")
# Whether only errors and notes are written.
QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
# In a log, where bars cannot be drawn.
SECONDS_BETWEEN_LINES = 30
# Packages that warn of files without their names; segkit tells of these files itself.
_READERS = ("PIL", "tifffile")


class progress_bars:  # noqa: N801
    """Progress bars on standard error, for as long as the block lasts; in a log a line now and then."""

    def __enter__(self) -> Callable[[Iterable[Item], str], Iterator[Item]]:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._logs = not QUIET.get() and not console.is_terminal
        self._told, self._depth = time.monotonic(), 0
        self._bars = Progress(console=console, transient=True, disable=QUIET.get() or self._logs)
        self._bars.start()
        return self._follow

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _follow(self, items: Iterable[Item], description: str) -> Iterator[Item]:
        items = list(items)
        task = self._bars.add_task(description, total=len(items))
        self._depth += 1
        began = False
        try:
            for done, item in enumerate(items, start=1):
                yield item
                self._bars.advance(task)
                due = time.monotonic() - self._told > SECONDS_BETWEEN_LINES
                # a loop that began in the log ends there
                if self._logs and (due or (began and done == len(items))):
                    echo(f"{description}: {done} of {len(items)}", err=True)
                    self._told, began = time.monotonic(), True
        finally:
            self._depth -= 1
            # the bar of a loop inside another one, such as the tiles of an image, makes room for the next
            if self._depth:
                self._bars.remove_task(task)


def echo(text: str, *, err: bool = False) -> None:
    """Write lines on standard output or error. Control characters of names are escaped: a terminal would obey them."""
    typer.echo(printable(text), err=err)


def say(*lines: str) -> None:
    """Write lines on standard output, unless the command is quiet; no name in them makes a further line."""
    if not QUIET.get():
        for line in lines:
            echo(one_line(line))


def warn(line: str) -> None:
    """Write a line on standard error, also if the command is quiet."""
    echo(one_line(line), err=True)


def show_warning(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
    """Show our own warnings in one line, and leave out those of libraries about themselves."""
    is_of_reader = Path(filename).parent.name in _READERS
    if issubclass(category, UserWarning) and not is_of_reader:
        echo(f"note: {' '.join(str(message).split())}", err=True)


def score(value: float | None, interval: Sequence[float] | None = None, form: str = ".3f") -> str:
    """Write a score and its 95 % interval; a single image has none."""
    if value is None or isnan(value):
        return "undefined"
    if interval is None or interval[0] == interval[1]:
        return f"{value:{form}}"
    return f"{value:{form}} (95 % interval {interval[0]:{form}} to {interval[1]:{form}})"
