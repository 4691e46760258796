"""Workers of Dask: what they give is what one process gives, whatever dies."""

import asyncio
import io
import json
import logging
import os
import signal
import ssl
import subprocess
import sys
import time
import warnings
from unittest.mock import Mock
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from segkit._common import one_by_one
from segkit._common.code import code_version
from segkit._common.memory import limit_of_one, memory_limit
from segkit.errors import ClusterError, ConfigError, InputError, OutputError
from segkit.scale import Cluster
from segkit.scale.cluster import workers_of

pytest.importorskip("distributed")


class Odd:
    """Squares numbers; some do other things."""

    def __init__(self, folder=None):
        self.folder = folder

    def __call__(self, number):
        if number == 3:
            warnings.warn("three is odd", UserWarning, stacklevel=1)
        if number == 5:
            raise InputError("five: is refused")
        if number == 7:
            raise OutputError("seven: cannot be written") from OSError(28, "No space left on device")
        if number == 9:
            raise UnsendableError(1, 2)
        if number == 11 and not self.mark(number).exists():
            self.mark(number).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 15:
            self.mark(os.getpid()).touch()
            time.sleep(60)
        return number**2

    def mark(self, name):
        return self.folder / str(name)


class UnsendableError(Exception):
    def __init__(self, one, two):
        super().__init__("odd")


def values(spread, function, items):
    return {item: value() for item, value in spread(function, items)}


@pytest.mark.slow(short=True)
def test_values_are_those_of_one_process(cluster):
    items = [number for number in range(40) if number % 2 == 0]
    assert values(cluster.spread, Odd(), items) == values(one_by_one, Odd(), items)


@pytest.mark.slow
def test_nothing_to_do(cluster):
    assert values(cluster.spread, Odd(), []) == {}


@pytest.mark.slow
def test_items_are_taken_as_workers_need_them(cluster):
    taken = []

    def items():
        for number in range(0, 40, 2):
            taken.append(number)
            yield number

    spread = cluster.spread(Odd(), items())
    next(spread)
    assert len(taken) <= 4
    spread.close()


@pytest.mark.slow
def test_errors_come_with_their_causes_when_their_item_is_asked_for(cluster):
    found = dict(cluster.spread(Odd(), [5, 7, 9, 2]))
    assert found[2]() == 4
    with pytest.raises(InputError, match="five: is refused"):
        found[5]()
    with pytest.raises(OutputError) as caught:
        found[7]()
    assert caught.value.__cause__.errno == 28
    with pytest.raises(InputError, match="UnsendableError: odd"):
        found[9]()


@pytest.mark.slow
def test_warnings_of_workers_are_given_here(cluster):
    with pytest.warns(UserWarning, match="three is odd"):
        assert values(cluster.spread, Odd(), [3]) == {3: 9}


@pytest.mark.slow
def test_the_function_goes_to_each_worker_once(cluster, tmp_path):
    found = values(cluster.spread, Counted(tmp_path), range(20))
    assert set(found.values()) <= {1}
    assert len(list(tmp_path.iterdir())) == 2


class Counted:
    """Counts how often it arrives in a process."""

    n_here = 0

    def __init__(self, folder):
        self.folder, self.home = folder, os.getpid()

    def __setstate__(self, state):
        self.__dict__ = state
        if os.getpid() != self.home:
            Counted.n_here += 1
            (self.folder / str(os.getpid())).touch()

    def __call__(self, _):
        return Counted.n_here


@pytest.mark.slow(short=True)
def test_other_users_of_the_machine_are_refused(cluster):
    """Whoever can send a scheduler, worker or nanny a message can run code there."""
    known = cluster._client.scheduler_info()
    addresses = [known["address"], *known["workers"], *(one["nanny"] for one in known["workers"].values())]
    assert len(addresses) == 5
    own = cluster._client.security.get_connection_args("client")
    for address in addresses:
        assert ask(address, own)["type"] in ("Scheduler", "Worker", "Nanny")
        for other in (address.replace("tls", "tcp"), {}), (address, stranger()):
            with pytest.raises(OSError):  # noqa: PT011 -- in words of any layer
                ask(*other)
    scheduler = cluster._client.cluster.scheduler
    for path in ("status", "info/main/workers.html", "health", "metrics"):
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{scheduler.http_server.port}/{path}", timeout=5)


def stranger():
    """What somebody with another key has, who talks to anybody."""
    from distributed.security import Security

    arguments = Security.temporary().get_connection_args("client")
    arguments["ssl_context"].verify_mode = ssl.CERT_NONE
    return arguments


def ask(address, arguments):
    """Who is at an address, as it says itself."""
    from distributed.core import connect, send_recv

    async def ask():
        comm = await connect(address, timeout=2, **arguments)
        try:
            return await send_recv(comm, op="identity")
        finally:
            comm.abort()

    return asyncio.run(ask())


@pytest.mark.slow
def test_workers_have_one_thread(cluster):
    assert set(values(cluster.spread, count_threads_there, range(4)).values()) == {(1, 1)}


def count_threads_there(_):
    import torch

    from segkit._common.threads import count_threads

    return count_threads(), torch.get_num_threads()


@pytest.mark.slow
def test_local_workers_share_the_memory_limit():
    with memory_limit("3GiB"), Cluster(n_workers=1) as cluster:
        assert values(cluster.spread, tell_limit_there, [0]) == {0: 3 * 2**29}
    with (
        memory_limit("300MiB"),
        pytest.raises(ConfigError, match="60 MiB for each of 5 processes"),
        Cluster(n_workers=4),
    ):
        pass


def tell_limit_there(_):
    return limit_of_one()


@pytest.mark.slow
def test_an_item_whose_worker_dies_is_done_by_another(tmp_path):
    with Cluster(n_workers=2) as own:
        found = values(own.spread, Odd(tmp_path), [2, 4, 11, 6, 8])
    assert found == {2: 4, 4: 16, 11: 121, 6: 36, 8: 64}
    assert (tmp_path / "11").exists()


@pytest.mark.slow
def test_an_item_that_kills_every_worker_fails_and_the_others_do_not(tmp_path):
    with Cluster(n_workers=2) as own:
        found = dict(own.spread(Odd(tmp_path), [2, 13, 4]))
    assert (found[2](), found[4]()) == (4, 16)
    with pytest.raises(ClusterError, match="each worker that worked on it died"):
        found[13]()


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler and a worker, as a user starts them; gives its address and process."""
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = [sys.executable, "-m", "dask"]
    options = ["--no-dashboard", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen([*run, "scheduler", *options], **quiet)
    worker = subprocess.Popen(
        [*run, "worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-dashboard"], **quiet
    )
    while not file.exists():
        assert scheduler.poll() is None
        time.sleep(0.05)
    yield json.loads(file.read_text())["address"], scheduler
    for process in (worker, scheduler):
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_scheduler_elsewhere_and_its_loss(scheduler, tmp_path):
    address, process = scheduler
    with Cluster(address, timeout=20) as own:
        own.timeout = 1
        assert values(own.spread, Odd(), [2, 4]) == {2: 4, 4: 16}
        spread = own.spread(Odd(tmp_path), [6, 15])
        assert next(spread)[1]() == 36
        while not list(tmp_path.glob("[0-9]*")):
            time.sleep(0.05)
        process.kill()
        with pytest.raises(ClusterError, match=f"the scheduler {address} is lost: start it again"):
            next(spread)


def test_no_scheduler_at_the_address():
    with pytest.raises(ClusterError, match=r"workers tcp://127\.0\.0\.1:1: no scheduler answers there"):
        Cluster("tcp://127.0.0.1:1", timeout=0.3).__enter__()


def test_what_is_no_address_is_refused(monkeypatch):
    monkeypatch.setattr("distributed.Client", Mock(side_effect=AssertionError("a client was made")))
    for address in ("", "nowhere", "ftp://a:1", "tcp://", "tcp://a:b"):
        with pytest.raises(ConfigError, match=f"workers {address}: expected a number, local, or the address"):
            Cluster(address, timeout=0.3).__enter__()


def test_numbers_of_workers_that_make_no_sense():
    for number in (0, 1.5, True, 100_001):
        with pytest.raises(ConfigError, match=f"{number} workers: expected a whole number from 1 on"):
            Cluster(n_workers=number)


def test_answers_hold_values_errors_and_warnings(monkeypatch):
    """In this process: what a worker does with an item."""
    from segkit.scale.worker import Deployed, answer

    monkeypatch.setattr(Deployed, "held", {"key": Deployed(Odd(), "key", None)})
    assert answer("key", 2).value() == 4
    warned = answer("key", 3)
    assert (warned.value(), warned.warnings) == (9, ("three is odd",))
    with pytest.raises(InputError, match="five: is refused"):
        answer("key", 5).value()
    with pytest.raises(OutputError, match="seven") as caught:
        answer("key", 7).value()
    assert caught.value.__cause__.errno == 28
    with pytest.raises(InputError, match="UnsendableError: odd"):
        answer("key", 9).value()


@pytest.mark.slow
def test_too_few_workers(scheduler):
    address, _ = scheduler
    with pytest.raises(ClusterError, match=r"after 2 s, expected 9: start more"):
        Cluster(address, n_workers=9, timeout=2).__enter__()


def test_a_worker_of_another_version_is_refused(monkeypatch):
    """At the start; one that comes later when it is seen."""
    client, cluster = Mock(status="running"), Cluster()
    client.nthreads.return_value = {"tcp://a": 1, "tcp://b": 1}
    client.run = lambda function, workers: dict.fromkeys(workers, function())
    cluster._client = client
    assert cluster._count_workers() == 2
    client.nthreads.return_value["tcp://c"] = 1
    monkeypatch.setattr("segkit.__version__", "0.1")
    code_version.cache_clear()
    monkeypatch.setattr("segkit.scale.cluster.code_version", lambda: "0.2+abc")
    try:
        with pytest.raises(
            ClusterError, match=r"worker tcp://c has segkit 0\.1\+\w{12}, here it is 0\.2\+abc: install the"
        ):
            cluster._count_workers()
    finally:
        code_version.cache_clear()
    monkeypatch.setitem(sys.modules, "segkit._common.code", None)  # an older segkit
    with pytest.raises(ClusterError, match=r"worker tcp://c has segkit 0\.1, here"):
        cluster._count_workers()


@pytest.mark.slow
def test_workers_of_the_same_code_are_taken_and_others_are_not(monkeypatch):
    with Cluster(n_workers=1) as cluster:
        assert values(cluster.spread, Odd(), [2]) == {2: 4}
    monkeypatch.setattr("segkit.scale.cluster.code_version", lambda: "0.2+abc")
    with pytest.raises(ClusterError, match="install the same version there"):
        Cluster(n_workers=1).__enter__()


@pytest.mark.parametrize("package", ["distributed", "cryptography"])
def test_without_dask_one_line_says_what_to_install(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r'pip install "segkit-bio\[scale\]"'):
        Cluster().__enter__()


@pytest.mark.slow
def test_the_log_of_dask_is_silent_and_then_as_before():
    log, heard = logging.getLogger("distributed"), logging.StreamHandler(io.StringIO())
    log.addHandler(heard)
    try:
        with Cluster(n_workers=1):
            log.error("of no use to the user")
        assert heard.stream.getvalue() == ""
        with pytest.raises(ClusterError):
            Cluster("tcp://127.0.0.1:1", timeout=0.3).__enter__()
        log.error("of another program's cluster")
        assert heard.stream.getvalue() == "of another program's cluster\n"
    finally:
        log.removeHandler(heard)


def test_n_jobs_are_processes_a_cluster_or_this_process(cluster):
    for n_jobs, found in ((None, None), (1, None), (map, map)):
        with workers_of(n_jobs) as workers:
            assert workers is found
    with workers_of(cluster) as workers:
        assert workers == cluster.spread
    with pytest.raises(ConfigError, match="0 workers: expected a whole number from 1 on"), workers_of(0):
        pass
