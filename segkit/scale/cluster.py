"""Workers of Dask, started here or found at the address of a scheduler, as what spreads a function over items."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any, Self, TypeVar
from uuid import uuid4

from joblib import cpu_count

from segkit._common import Workers, is_whole
from segkit._common.code import code_version
from segkit._common.memory import limit_of_one
from segkit.errors import ClusterError, ConfigError, count

Item = TypeVar("Item")
Value = TypeVar("Value")

_MOST_WORKERS = 100_000
# Items that wait at each worker, so that it need not wait for the next one.
_WAITING = 2
_SECONDS = 1.0
_DIED = "each worker that worked on it died, probably because memory was full: use smaller images, or fewer workers"


@contextmanager
def workers_of(n_jobs: int | Cluster | Workers | None) -> Iterator[Workers | None]:
    """Return what spreads work over so many processes (-1: one for each core) or a cluster; None for this process alone."""
    if isinstance(n_jobs, Cluster):
        yield n_jobs.spread
    elif n_jobs is None or n_jobs == 1 or callable(n_jobs):
        yield n_jobs if callable(n_jobs) else None
    else:
        with Cluster(n_workers=None if n_jobs == -1 else n_jobs) as cluster:
            yield cluster.spread


class Cluster:
    """Workers of Dask, for as long as a block lasts.

    Parameters
    ----------
    scheduler : str, default="local"
        "local" starts workers on this machine, each a process of one thread; no other user of the machine can reach them.
        Otherwise the address of a scheduler, such as ``tcp://node17:8786``; its workers have segkit installed, and see the
        folders under the same paths. It runs code of whoever reaches it, and its workers' answers are trusted.
    n_workers : int, optional
        Number of local workers, by default one for each core; at an address, number of workers to wait for, by default 1.
    timeout : float, default=30
        Seconds to wait for the scheduler and its workers.

    Raises
    ------
    ConfigError
        If Dask is not installed, the number is no positive integer, or the address is none.
    ClusterError
        On entering, if no scheduler answers there, or too few workers, or a worker has another version of segkit.

    Notes
    -----
    A worker that dies loses nothing: what it was at is done again by another one. An item that four workers died of fails.
    Local workers are processes: a Python script that makes a `Cluster` does so below ``if __name__ == "__main__":``.

    Examples
    --------
    >>> from segkit.scale import Cluster
    >>> with Cluster(n_workers=2) as cluster:  # doctest: +SKIP
    ...     segkit.predict_folder(model, "images", "out", n_jobs=cluster)
    """

    def __init__(
        self, scheduler: str = "local", *, n_workers: int | None = None, timeout: float = 30.0
    ) -> None:
        if n_workers is not None and not (is_whole(n_workers) and n_workers <= _MOST_WORKERS):
            raise ConfigError(f"{n_workers} workers: expected a whole number from 1 on")
        self.scheduler, self.n_workers, self.timeout = scheduler, n_workers, timeout
        self._open = ExitStack()
        self._checked: set[str] = set()

    def __enter__(self) -> Self:
        distributed = _import_distributed()
        with ExitStack() as opened:
            opened.enter_context(_quiet())
            opened.enter_context(_dask_options(self.timeout))
            address = self.scheduler
            if address == "local":
                n_workers = self.n_workers or cpu_count()
                self._limit = limit_of_one(n_workers + 1)  # and this process
                address = opened.enter_context(_start_workers(n_workers))
            else:
                self._check_address(distributed)
                self._limit = limit_of_one()  # of each: they may be on other machines
            self._client = opened.enter_context(self._connect(distributed, address))
            self._wait_for_workers(1 if self.n_workers is None else self.n_workers)
            self._count_workers()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def spread(
        self, function: Callable[[Item], Value], items: Iterable[Item]
    ) -> Generator[tuple[Item, Callable[[], Value]], None, None]:
        """Apply a function to items on the workers.

        The function takes an item and can be pickled, with all that it holds, such as a model: each worker gets it
        once. Items can be pickled too, and are taken as workers need them. Yields each item, in the order in which they
        are done, with what returns its value or raises its error. If the scheduler is lost it raises a ClusterError;
        items given before are done.
        """
        from distributed import as_completed

        waiting: dict[Any, Item] = {}
        done: Any = as_completed(loop=self._client.loop)  # type: ignore[no-untyped-call]
        items = iter(items)
        key = uuid4().hex
        try:
            self._register(key, function)
            most, counted = 0, float("-inf")
            while True:
                if time.monotonic() - counted >= _SECONDS:  # workers come and go
                    most, counted = max(1, _WAITING * self._count_workers()), time.monotonic()
                for item in islice(items, max(0, most - len(waiting))):
                    future = self._submit(key, item)
                    waiting[future] = item
                    done.add(future)
                if not waiting:
                    return
                future = next(done)
                yield waiting.pop(future), self._fetch(future)
        finally:
            if self._is_there:
                with suppress(Exception):  # the first error counts, and the scheduler may just have gone
                    self._client.cancel(list(waiting), force=True)
                    self._client.unregister_worker_plugin(key)

    @property
    def _is_there(self) -> bool:
        return bool(self._client.status == "running")

    def _register(self, key: str, function: Callable[[Any], Any]) -> None:
        from segkit.scale.worker import Deployed

        try:
            self._client.register_plugin(Deployed(function, key, self._limit), name=key)
        except (OSError, TimeoutError, CancelledError) as error:
            raise self._lost() from error

    def _count_workers(self) -> int:
        try:
            found: dict[str, int] = self._client.nthreads()
            self._check_versions(sorted(found.keys() - self._checked))
        except (OSError, TimeoutError, CancelledError, ValueError) as error:
            raise self._lost() from error
        return sum(found.values())

    def _check_versions(self, addresses: list[str]) -> None:
        """Refuse workers whose segkit is another, which would give other values."""

        def read() -> str:  # sent as it is: an older segkit has no such function
            try:
                from segkit._common.code import code_version
            except ImportError:
                import segkit

                return segkit.__version__
            return code_version()

        for address, theirs in self._client.run(read, workers=addresses).items() if addresses else ():
            if theirs != code_version():
                raise ClusterError(
                    f"worker {address} has segkit {theirs}, here it is {code_version()}: install the same version there, "
                    "and start the worker again"
                )
        self._checked |= set(addresses)

    def _submit(self, key: str, item: Any) -> Any:
        from segkit.scale.worker import answer

        try:
            return self._client.submit(answer, key, item, pure=False)
        except Exception as error:  # a closed client raises anything from OSError to a plain Exception
            if self._is_there:
                raise
            raise self._lost() from error

    def _fetch(self, future: Any) -> Callable[[], Any]:
        """Fetch what came of an item; what was warned of there is warned of here."""
        from distributed import KilledWorker

        try:
            found = future.result(timeout=self.timeout)
        except KilledWorker:
            return partial(_raise, ClusterError(_DIED))
        except (CancelledError, OSError, TimeoutError) as error:
            raise self._lost() from error
        for message in found.warnings:
            warnings.warn(message, UserWarning, stacklevel=3)
        value: Callable[[], Any] = found.value
        return value

    def _lost(self) -> ClusterError:
        return ClusterError(
            f"the scheduler {self.scheduler} is lost: start it again, and give the same command (predict and benchmark: "
            "with --resume, in Python resume=True, to keep what is done)"
        )

    def _check_address(self, distributed: Any) -> None:
        # A client that was given no address keeps a thread, and can hold up the next client for ever: none is made.
        try:
            distributed.comm.get_address_host(self.scheduler)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"workers {self.scheduler}: expected a number, local, or the address of a scheduler such as tcp://node17:8786"
            ) from error

    def _connect(self, distributed: Any, address: Any) -> Any:
        try:
            return distributed.Client(address, timeout=self.timeout, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"workers {self.scheduler}: no scheduler answers there: start one (dask scheduler), or give local"
            ) from error

    def _wait_for_workers(self, n_workers: int) -> None:
        try:
            self._client.wait_for_workers(n_workers, timeout=self.timeout)
        except TimeoutError as error:
            raise ClusterError(
                f"scheduler {self.scheduler}: {count(len(self._client.nthreads()), 'worker')} after {self.timeout:g} s, "
                f"expected {n_workers}: start more (dask worker {self.scheduler} --nthreads 1), or ask for fewer"
            ) from error


def _raise(error: Exception) -> None:
    raise error


def _import_distributed() -> Any:
    """Import what takes half a second, and may be missing."""
    try:
        import cryptography  # noqa: F401 -- makes the key of local workers
        import distributed
    except ImportError as error:
        raise ConfigError('workers need the packages of Dask: pip install "segkit-bio[scale]"') from error
    return distributed


def _start_workers(n_workers: int) -> Any:
    """Start a scheduler and worker processes; Dask starts a worker that dies again."""
    from distributed import LocalCluster

    return LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        security=True,  # TLS with a new key: whoever reaches a worker or the scheduler could run code
        memory_limit=None,  # as for one process: a limit would kill workers of large images
        dashboard_address="127.0.0.1:0",  # any free port: several runs go side by side
        scheduler_kwargs={"dashboard": False},  # its pages ask for no key
        silence_logs=logging.CRITICAL,
        # a terminal sends Ctrl-C to all processes, but the client alone answers it
        preload=["import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"],
    )


def _dask_options(timeout: float) -> Any:
    import dask

    options = {
        "distributed.comm.timeouts.connect": timeout,  # how long a client tries to reach a lost scheduler
        # of a local scheduler and its workers: pages that ask for no key
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    return dask.config.set(options)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off the terminal: what it has to say is said in one line."""
    # its loggers have levels of their own, but share these handlers
    levels = [(handler, handler.level) for handler in logging.getLogger("distributed").handlers]
    for handler, _ in levels:
        handler.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for handler, level in levels:
            handler.setLevel(level)
