"""The command ``segkit``, and how Ctrl-C or SIGTERM ends it: known before anything else is imported."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Exit status after Ctrl-C.
INTERRUPTED = 130


class Stopped(Exception):  # noqa: N818 - it is no error
    """A command that Ctrl-C ended; it says what is done and how to go on."""


@contextmanager
def terminated_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, so that it leaves its folders in order."""
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
