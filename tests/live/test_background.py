"""Work in a process of its own."""

import threading

import pytest

from segkit._common.memory import limit_of_one, memory_limit
from segkit.live.background import BackgroundWork


def tell_limit(progress):
    return limit_of_one()


@pytest.mark.slow(short=True)
def test_the_memory_limit_holds_in_the_process():
    found, is_done = [], threading.Event()
    work = BackgroundWork("work", lambda: None, found.append)
    with memory_limit("900MiB"):
        work.start(tell_limit, done=lambda limit: (found.append(limit), is_done.set()))
        assert is_done.wait(60)
    assert found == [900 * 2**20]
