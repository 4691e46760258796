import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest
import scipy.linalg  # noqa: F401
from threadpoolctl import ThreadpoolController, threadpool_limits

from segkit._common.threads import count_threads, in_threads, single_threaded_blas, threaded


def blas_threads():
    return {library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()}


@pytest.fixture(params=[1, 3])
def n_threads(request):
    if not blas_threads():
        pytest.skip("the linear algebra here tells nobody how many threads it has")
    with threadpool_limits(request.param, user_api="blas"):
        yield request.param


def test_results_come_in_order(n_threads):
    def slow_first(item):
        time.sleep(0.02 * (item == 0))
        return item**2

    assert list(in_threads(slow_first, range(7))) == [item**2 for item in range(7)]


def test_as_many_work_at_once_as_linear_algebra_has_threads(n_threads):
    """Each waits for the others, which comes to an end only if they all work."""
    barrier = threading.Barrier(n_threads, timeout=10)
    seen = list(in_threads(lambda _: (barrier.wait(), blas_threads(), count_threads())[1:], range(n_threads)))
    assert seen == [({1}, 1)] * n_threads
    assert blas_threads() == {n_threads}


def test_workers_start_no_threads_of_their_own(n_threads):
    idents = in_threads(
        lambda _: list(in_threads(lambda _: threading.get_ident(), range(4))), range(2 * n_threads)
    )
    assert all(len(set(found)) == 1 for found in idents)


def test_one_thread_for_linear_algebra_leaves_ours(n_threads):
    with single_threaded_blas():
        assert blas_threads() == {1}
        with single_threaded_blas():
            assert count_threads() == n_threads
        assert blas_threads() == {1}
    assert blas_threads() == {n_threads}


def test_errors_come_out_and_end_the_rest(n_threads):
    done = []

    def fail(item):
        if item == 1:
            raise ValueError("item 1")
        time.sleep(0.01)
        done.append(item)

    with pytest.raises(ValueError, match="item 1"):
        list(in_threads(fail, range(200)))
    assert len(done) < 150
    assert blas_threads() == {n_threads}


def test_held_out_decisions_do_not_depend_on_threads():
    from segkit import Segmenter
    from segkit.features import MultiscaleBank

    rng = np.random.default_rng(0)
    images = [rng.random((24, 24, 3)).astype(np.float32) for _ in range(3)]
    masks = [(image[:, :, 0] > 0.5).astype(int) for image in images]
    found = []
    for number in (1, 2):
        with threadpool_limits(number, user_api="blas"):
            bank = MultiscaleBank(sigma_max=2)
            found.append(Segmenter(bank, selection_pixels=200, training_pixels=300).fit(images, masks))
    assert found[0].held_out_.by_alpha == pytest.approx(found[1].held_out_.by_alpha, abs=0.01)
    np.testing.assert_allclose(
        found[0].decision_function(images[0]), found[1].decision_function(images[0]), atol=1e-4
    )


def test_workers_keep_torch_to_one_thread(n_threads):
    """Even if torch has set up no thread of theirs yet."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert set(in_threads(lambda _: torch.get_num_threads(), range(6))) == {1 if n_threads > 1 else 2}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_workers_keep_torch_to_one_thread_that_was_imported_late():
    """In a process of its own: here torch may have been imported already."""
    script = """
from threadpoolctl import threadpool_limits
import numpy, sys
from segkit._common.threads import in_threads, single_threaded_blas
with threadpool_limits(2, user_api="blas"), single_threaded_blas():
    assert "torch" not in sys.modules
    import torch
    torch.set_num_threads(2)
    print(set(in_threads(lambda _: torch.get_num_threads(), range(4))))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["{1}"]


def test_linear_algebra_gets_its_threads_back_if_the_results_are_left(n_threads):
    with closing(in_threads(lambda item: item, range(5))) as found:
        assert next(found) == 0
    assert blas_threads() == {n_threads}
    assert count_threads() == n_threads


def test_items_come_with_their_results(n_threads):
    found = [(item, result()) for item, result in threaded(lambda item: item**2, iter(range(9)))]
    assert found == [(item, item**2) for item in range(9)]
    assert blas_threads() == {n_threads}


@pytest.mark.slow(short=True)
def test_a_library_may_be_imported_by_the_first_worker(tmp_path):
    """Workers that start while torch is being imported wait for it."""
    (tmp_path / "torch.py").write_text(
        "import time\ntime.sleep(0.5)\n\ndef get_num_threads():\n    return 1\n"
    )
    script = (
        "import importlib, segkit._common.threads as t\n"
        "t.count_threads = lambda: 16\n"
        "names = t.in_threads(lambda _: importlib.import_module('torch').__name__, range(32))\n"
        "assert list(names) == ['torch'] * 32\n"
    )
    path = [str(tmp_path), *sys.path]
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{script}"], check=True, timeout=60
    )
