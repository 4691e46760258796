"""Long work of a session, in a process of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from segkit._common import Progress
from segkit._common.device import device, device_name
from segkit._common.memory import limit_of_one, memory_limit
from segkit.errors import InputError
from segkit.live.events import explain

# Seconds between two reports.
_BETWEEN_REPORTS = 0.2
# How much more other programs count than this work: strokes come first.
_NICENESS = 10


class Report(NamedTuple):
    """How far work is: what it does, the share done (0 to 1), and the seconds left, if they are known."""

    text: str = "Starting"
    done: float = 0.0
    seconds_left: float | None = None


class _Result(NamedTuple):
    value: Any


class BackgroundWork:
    """Does one piece of work at a time, in a process of its own, which ends with this one.

    `name` is what the work is called in messages. `changed` is called from another thread as the work goes on, and at its
    end; `failed` is given what went wrong in one line.
    """

    def __init__(self, name: str, changed: Callable[[], None], failed: Callable[[str], None]) -> None:
        self._name, self._changed, self._failed = name, changed, failed
        self.report: Report | None = None  # of work that goes on
        self._process: BaseProcess | None = None
        self._is_cancelled = False
        self._follower: threading.Thread | None = None
        self._guard = threading.Lock()

    def start(
        self,
        work: Callable[[Progress], Any],
        *,
        prepare: Callable[[], None] = lambda: None,
        done: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """Begin; `work` is pickled and sent to the process. `prepare` is called before, `done` with what `work` returned."""
        with self._guard:
            if self.report is not None:
                raise InputError(f"{self._name} goes on already: wait for its end, or cancel it")
            prepare()
            self.report, self._is_cancelled = Report(), False
            # forked, a process would hang in the first computation of torch, whose threads it lacks
            context = get_context("spawn")
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_do, args=(theirs, work, device_name(), limit_of_one()), daemon=True
            )
            self._follower = threading.Thread(
                target=self._follow, args=(process, ours, theirs, done), name="segkit-work", daemon=True
            )
            self._follower.start()

    def cancel(self) -> None:
        """End the work, if there is any; what it has written is kept."""
        with self._guard:
            self._is_cancelled = True
            follower, process = self._follower, self._process
        if process is not None:
            process.terminate()
        if follower is not None:
            follower.join()

    def _follow(
        self, process: BaseProcess, ours: Connection, theirs: Connection, done: Callable[[Any], None]
    ) -> None:
        """Start the process, which takes as long as it needs to read its arguments, and pass on what it says."""
        fault, results = None, []
        try:
            process.start()
            theirs.close()
            with self._guard:
                self._process = process
            if self._is_cancelled:
                process.terminate()
            with suppress(EOFError):  # the end of the process
                while fault is None:
                    said = ours.recv()
                    if isinstance(said, Report):
                        self.report = said
                        self._changed()
                    elif isinstance(said, str):
                        fault = said
                    else:
                        results.append(said.value)
            process.join()
            if fault is None and process.exitcode:
                fault = self._explain_exit(process.exitcode)
            if fault is None:
                done(results[0])
        except Exception as error:
            fault = explain(error)
        with self._guard:
            self._process = self.report = None
        if fault is not None and not self._is_cancelled:
            self._failed(fault)
        self._changed()

    def _explain_exit(self, code: int) -> str:
        if code < 0:
            return (
                f"{self._name} was ended from outside (signal {-code}), most likely for want of memory: close other "
                "programs and start it again, it goes on where it was"
            )
        return (
            f"the process of {self._name} could not begin (code {code}): in a script, start the session below "
            'if __name__ == "__main__":'
        )


class Reporter:
    """A `Progress` that reports the share of the outermost loop, and what the innermost one does."""

    def __init__(self, send: Callable[[Report], object]) -> None:
        self._send = send
        self._loops: list[tuple[int, int]] = []  # items done, and all
        self._began = self._reported = self._done = 0.0

    def __call__(self, items: Iterable[Any], description: str) -> Iterator[Any]:
        """Yield the items, and report."""
        items, depth = list(items), len(self._loops)
        if depth == 0:
            self._began = time.monotonic()
        try:
            for place, item in enumerate(items):
                self._loops[depth:] = [(place, len(items))]
                self._report(description)
                yield item
        finally:
            del self._loops[depth:]

    def _report(self, description: str) -> None:
        now = time.monotonic()
        if now - self._reported < _BETWEEN_REPORTS:
            return
        self._reported, done = now, 0.0
        for place, number in reversed(self._loops):
            done = (place + done) / number
        seconds_left = (now - self._began) * (1 - done) / done if done > self._done else None
        self._done = max(self._done, done)  # short loops follow that of the work
        self._send(Report(description, self._done, seconds_left))


def _do(pipe: Connection, work: Callable[[Progress], Any], device_name: str, limit: int | None) -> None:
    """Do the work; runs in a process of its own."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Ctrl-C in the terminal is for the parent, which ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):  # not on Windows
        os.nice(_NICENESS)
    try:
        with device(device_name), memory_limit(limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipe.send(_Result(work(Reporter(pipe.send))))
    except Exception as error:
        pipe.send(explain(error))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
