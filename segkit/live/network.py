"""Training of a network on the labels of a project, in a process of its own."""

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
from pathlib import Path
from typing import Any, NamedTuple

from segkit._common.device import device, device_name
from segkit._common.files import remove_unfinished
from segkit.errors import InputError
from segkit.live.events import explain
from segkit.segmentation.segmenter import Segmenter

# Seconds between two reports of a training.
_BETWEEN_REPORTS = 0.2
# How much more other programs count than a training: strokes come first.
_NICENESS = 10


class Report(NamedTuple):
    """How far a training is: what it does, the share done (0 to 1), and the seconds left, if they are known."""

    text: str = "Starting"
    done: float = 0.0
    seconds_left: float | None = None


class NetworkTrainer:
    """Trains one network at a time, and keeps the last one in a folder, named after the labels that it was trained on.

    A training that was cancelled or killed goes on when it is started again for the same labels. `changed` is called from a
    thread of the trainer as the training goes on, and at its end; `failed` is given what went wrong in one line.
    """

    def __init__(self, folder: Path, changed: Callable[[], None], failed: Callable[[str], None]) -> None:
        self._folder, self._changed, self._failed = folder, changed, failed
        self.trained = next((path.stem for path in sorted(folder.glob("*.segkit"))), None)  # the labels
        self.report: Report | None = None  # of a training that goes on
        self._process: BaseProcess | None = None
        self._is_cancelled = False
        self._follower: threading.Thread | None = None
        self._guard = threading.Lock()

    def path_of(self, labels: str) -> Path:
        """Name the file of the network that was trained on these labels."""
        return self._folder / f"{labels}.segkit"

    def start(self, labels: str, segmenter: Segmenter, **training_set: Any) -> None:
        """Begin to fit a segmenter, or go on; the arguments of `Segmenter.fit` are given by name."""
        path = self.path_of(labels)
        with self._guard:
            if self.report is not None:
                raise InputError("a network is being trained already: wait until it is, or cancel it")
            self.report, self._is_cancelled = Report(), False
            self._folder.mkdir(parents=True, exist_ok=True)
            remove_unfinished(self._folder)
            _remove_others(path.with_suffix(".checkpoint"))
            # forked, a process would hang in the first computation of torch, whose threads it lacks
            context = get_context("spawn")
            ours, theirs = context.Pipe(duplex=False)
            arguments = (theirs, segmenter, training_set, path, device_name())
            process = context.Process(target=_train, args=arguments, daemon=True)
            follow = (process, ours, theirs, path)
            self._follower = threading.Thread(
                target=self._follow, args=follow, name="segkit-network", daemon=True
            )
            self._follower.start()

    def cancel(self) -> None:
        """End the training, if there is one; what was trained so far is kept."""
        with self._guard:
            self._is_cancelled = True
            follower, process = self._follower, self._process
        if process is not None:
            process.terminate()
        if follower is not None:
            follower.join()

    def _follow(self, process: BaseProcess, ours: Connection, theirs: Connection, path: Path) -> None:
        """Start the process, which takes as long as it needs to read its images, and pass on what it says."""
        fault = None
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
                    fault = said if isinstance(said, str) else None
                    self.report = said if fault is None else self.report
                    self._changed()
            process.join()
            if fault is None and process.exitcode:
                fault = _explain_exit(process.exitcode)
            if fault is None:
                _remove_others(path)
                self.trained = path.stem
        except Exception as error:
            fault = explain(error)
        with self._guard:
            self._process = self.report = None
        if fault is not None and not self._is_cancelled:
            self._failed(fault)
        self._changed()


class _Reporter:
    """A `Progress` that reports the share of the outermost loop, and what the innermost one does."""

    def __init__(self, send: Callable[[Report], object]) -> None:
        self._send = send
        self._loops: list[tuple[int, int]] = []  # items done, and all
        self._began = self._reported = self._done = 0.0

    def __call__(self, items: Iterable[Any], description: str) -> Iterator[Any]:
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
        self._done = max(self._done, done)  # short loops follow that of the networks
        self._send(Report(description, self._done, seconds_left))


def _train(
    pipe: Connection, segmenter: Segmenter, training_set: dict[str, Any], path: Path, device_name: str
) -> None:
    """Fit a segmenter and write it; runs in a process of its own."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C in the terminal is for the parent, which ends this process
    if hasattr(os, "nice"):  # not on Windows
        os.nice(_NICENESS)
    try:
        with device(device_name), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            checkpoint = path.with_suffix(".checkpoint")
            segmenter.fit(**training_set, progress=_Reporter(pipe.send), checkpoint=checkpoint)
            segmenter.save(path)
    except Exception as error:
        pipe.send(explain(error))


def _explain_exit(code: int) -> str:
    if code < 0:
        return (
            f"the training of the network was ended from outside (signal {-code}), most likely for want of memory: close "
            "other programs and train again, it goes on where it was"
        )
    return (
        f"the process of the training could not begin (code {code}): in a script, start the session below "
        'if __name__ == "__main__":'
    )


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _remove_others(path: Path) -> None:
    """Remove files beside a file that are of its kind."""
    for other in path.parent.glob(f"*{path.suffix}"):
        if other != path:
            other.unlink(missing_ok=True)
