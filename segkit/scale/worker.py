"""What runs in a worker of Dask: a function that came once, applied to one item after the other."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from distributed import WorkerPlugin
from threadpoolctl import threadpool_limits

from segkit._common.memory import memory_limit
from segkit.errors import InputError


class Deployed(WorkerPlugin):
    """A function, as a plugin: each worker, those that start later too, unpickles it once; and the worker's memory limit."""

    held: ClassVar[dict[str, Deployed]] = {}  # by this process

    def __init__(self, function: Callable[[Any], Any], key: str, limit: int | None) -> None:
        self.function, self.key, self.limit = function, key, limit
        self.folder = Path.cwd()

    def setup(self, worker: object) -> None:  # noqa: ARG002 -- Dask gives it
        """Keep the function, and one thread for it: there are as many workers as cores."""
        if "OMP_NUM_THREADS" not in os.environ:  # Dask sets it to 1 for the processes that it starts
            threadpool_limits(1)
            if "torch" in sys.modules:
                import torch

                torch.set_num_threads(1)
        self.held[self.key] = self

    def teardown(self, worker: object) -> None:  # noqa: ARG002
        """Forget the function."""
        self.held.pop(self.key, None)


@dataclass(frozen=True)
class Answer:
    """What came of an item: a value or an error, and the warnings on the way."""

    found: Any = None
    error: Exception | None = None
    cause: BaseException | None = None
    warnings: tuple[str, ...] = ()

    def value(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error from self.cause
        return self.found


def answer(key: str, item: Any) -> Answer:
    """Apply the function of a key to an item."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            # paths are those of the client, and messages name them as the user gave them
            held = Deployed.held[key]
            with contextlib.chdir(held.folder), memory_limit(held.limit):
                found, error = held.function(item), None
        except Exception as raised:  # the client decides what becomes of it
            found, error = None, raised
    told = tuple(str(one.message) for one in caught if one.category is UserWarning)
    if error is None:
        return Answer(found, warnings=told)
    try:
        pickle.loads(pickle.dumps((error, error.__cause__)))
    except Exception:  # an exception of a library with a constructor of its own
        return Answer(error=InputError(f"{type(error).__name__}: {error}"), warnings=told)
    return Answer(error=error, cause=error.__cause__, warnings=told)
