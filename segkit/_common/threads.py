"""Threads for what linear algebra cannot share out by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from math import inf
from threading import local
from typing import TypeVar

from joblib import cpu_count
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


_mine = local()  # of a thread that keeps linear algebra to itself: `n_threads` that may work


def count_threads() -> int:
    """Count the threads that may work: those of the linear algebra, which the usual variables set, or every core."""
    n_threads: int | None = getattr(_mine, "n_threads", None)
    return _blas_threads() if n_threads is None else n_threads


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep linear algebra to the thread that calls it."""
    # Its other threads spin for a while when they have nothing left to do, which takes the cores from torch's and from
    # those of `in_threads`: many small products between other work are faster without them.
    if hasattr(_mine, "n_threads"):
        yield
        return
    _mine.n_threads = _blas_threads()
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        del _mine.n_threads


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], most: float = inf
) -> Generator[Result, None, None]:
    """Apply a function to items, each on one thread, and yield the results in order; the first error ends the rest.

    At most `most` threads work at once.
    """
    n_threads = count_threads()
    if n_threads == 1:
        yield from map(function, items)
        return
    with single_threaded_blas():
        controller = _libraries()

        def work_alone() -> None:
            _mine.n_threads = 1
            if "torch" in sys.modules:
                # another thread may be importing torch at this moment: the statement waits until it is whole
                import torch

                # torch sets up OpenMP threads here; afterwards each thread limits its own
                torch.get_num_threads()
            controller.limit(limits=1, user_api="openmp")

        with ThreadPoolExecutor(int(min(n_threads, most)), initializer=work_alone) as executor:
            yield from executor.map(function, items)


def threaded(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[tuple[Item, Callable[[], Result]], None, None]:
    """Apply a function to items, each on one thread: the `segkit._common.Workers` of this process."""
    items = list(items)
    with closing(in_threads(function, items)) as results:
        for item, result in zip(items, results, strict=True):
            yield item, partial(_identity, result)


def _identity(result: Result) -> Result:
    return result


def _libraries() -> ThreadpoolController:
    """Find the libraries that have threads of their own."""
    return _libraries_of(len(sys.modules))


@lru_cache(maxsize=1)
def _libraries_of(_n_modules: int) -> ThreadpoolController:
    # looking takes milliseconds; only what is imported, like torch, which comes late, brings others
    return ThreadpoolController()


def _blas_threads() -> int:
    libraries = _libraries().select(user_api="blas").info()
    return int(max((library["num_threads"] for library in libraries), default=cpu_count()))
