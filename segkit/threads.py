"""Threads for what linear algebra cannot share out by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import local
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


# Of a thread that keeps linear algebra to itself: how many threads may work.
_mine = local()


def count_threads() -> int:
    """Count the threads that may work: those of the linear algebra, which the usual variables set."""
    n_threads: int | None = getattr(_mine, "n_threads", None)
    return _blas_threads(ThreadpoolController()) if n_threads is None else n_threads


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep linear algebra to the thread that calls it.

    Its other threads spin for a while when they have nothing left to do, which takes the cores from torch's and
    from those of `in_threads`: many small products between other work are faster without them.
    """
    if hasattr(_mine, "n_threads"):
        yield
        return
    controller = ThreadpoolController()
    _mine.n_threads = _blas_threads(controller)
    try:
        with controller.limit(limits=1, user_api="blas"):
            yield
    finally:
        del _mine.n_threads


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Apply a function to items, each on one thread, and give the results in order.

    Parameters
    ----------
    function : callable
        Takes an item.
    items : iterable
        All are taken at once.

    Yields
    ------
    object
        What the function returns; the first error it raises ends the rest.
    """
    n_threads = count_threads()
    if n_threads == 1:
        yield from map(function, items)
        return
    controller = ThreadpoolController()

    def work_alone() -> None:
        _mine.n_threads = 1
        controller.limit(limits=1, user_api="openmp")  # torch's threads; they are each thread's own affair

    with single_threaded_blas(), ThreadPoolExecutor(n_threads, initializer=work_alone) as executor:
        yield from executor.map(function, items)


def _blas_threads(controller: ThreadpoolController) -> int:
    libraries = controller.select(user_api="blas").info()
    return max((library["num_threads"] for library in libraries), default=1)
