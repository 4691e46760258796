"""Whatever fails while a folder is segmented, and whenever the program is killed: each result is absent or whole."""

import errno
import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from segkit.errors import OutputError
from segkit.segmentation.folders import segment_folder
from tests.segmentation.conftest import ALL

FAULTS = [errno.ENOSPC, errno.EIO, errno.EACCES]
# A run over the three images syncs a file so many times, and some more.
MOST_WRITES = 100


class Disk:
    """A disk that fails once, when the number of writes that it was given is reached."""

    def __init__(self, good_writes, code):
        self.good_writes, self.code = good_writes, code

    def sync(self, _):
        self.good_writes -= 1
        if self.good_writes == -1:
            raise OSError(self.code, os.strerror(self.code))


def are_whole(found, expected):
    """Tell whether each result is that of an undisturbed run; a summary is of what was done by then."""
    return all(content == expected[name] for name, content in found.items() if name != "summary.csv")


@pytest.fixture
def run_on_bad_disk(finished, cell_segmenter, contents, tmp_path, monkeypatch):
    """Segment the folder on a disk that fails after so many writes, and go on; tells whether the disk failed."""
    expected, images = contents(finished / "out"), finished / "images"

    def run(good_writes):
        out = tmp_path / str(good_writes)
        disk = Disk(good_writes, FAULTS[good_writes % len(FAULTS)])
        monkeypatch.setattr("segkit._common.files._sync", disk.sync)
        monkeypatch.setattr("segkit._common.files._sync_names", lambda _: None)
        try:
            segment_folder(cell_segmenter, images, out, **ALL)
        except OutputError as error:
            told = str(error)
        else:
            assert disk.good_writes >= 0, "a fault was not told of"
            assert contents(out) == expected
            return False
        assert told.startswith(f"{out}{os.sep}")
        assert ".segkit" not in told
        assert "--resume goes on" in told
        assert are_whole(contents(out), expected), good_writes
        segment_folder(cell_segmenter, images, out, resume=True, **ALL)
        assert contents(out) == expected, good_writes
        return True

    return run


@pytest.mark.slow
def test_a_fault_at_any_write_leaves_each_result_absent_or_whole_and_resume_does_the_rest(run_on_bad_disk):
    n_faults = next(good_writes for good_writes in range(MOST_WRITES) if not run_on_bad_disk(good_writes))
    assert n_faults > 40


def test_a_fault_at_some_writes_leaves_each_result_absent_or_whole_and_resume_does_the_rest(run_on_bad_disk):
    assert all(map(run_on_bad_disk, (0, 13, 38)))


def test_a_fault_of_the_disk_is_not_the_image_s(finished, cell_segmenter, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr("segkit._common.files._sync", Disk(25, errno.ENOSPC).sync)
    monkeypatch.setattr("segkit._common.files._sync_names", lambda _: None)
    with pytest.raises(OutputError) as error:
        segment_folder(cell_segmenter, finished / "images", out, **ALL)
    assert str(error.value) == (
        f"{out / 'none.png'}: the disk is full: free some space and run the same command again "
        "(1 of 3 images written; then --resume goes on)"
    )
    rows = (out / "summary.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == ["written", "skipped", "skipped"]


PROGRAM = """
    import os, signal, sys
    from segkit._common import files as write
    left, sync = int(sys.argv.pop(1)), write._sync

    def count_down(path):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(path)

    write._sync = count_down
    from segkit.cli.commands import main
    main()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_kills_leave_each_result_absent_or_whole_and_resume_does_the_rest(finished, contents, tmp_path):
    """Each run is killed before one of its first fifteen writes is whole, and the next goes on."""
    expected, out, rng = contents(finished / "out"), tmp_path / "out", random.Random(0)
    line = ["predict", finished / "m.segkit", finished / "images", "-o", out, "--resume", "-q"]
    line += [f"--{option}" for option in ALL]
    for _ in range(5):
        arguments = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(rng.randrange(15)), *map(str, line)]
        done = subprocess.run(arguments, check=False)
        assert done.returncode == -signal.SIGKILL
        assert are_whole(contents(out), expected)
    arguments[3] = "1000000"
    assert subprocess.run(arguments, check=False).returncode == 0
    assert contents(out) == expected
    assert not list(out.rglob("*.part*"))
    assert {path.name for path in (out / ".segkit").iterdir()} == {"objects", "record"}


PROGRAM_OF_LIMITS = """
    import os, resource, sys
    from segkit.errors import SegkitError
    from segkit.segmentation.folders import segment_folder
    from segkit.segmentation.segmenter import load
    from tests.segmentation.conftest import ALL
    model, images, out, *kilobytes = sys.argv[1:]
    segmenter = load(model)

    def run(name):
        try:
            segment_folder(segmenter, images, os.path.join(out, name), **ALL)
        except (SegkitError, MemoryError) as error:
            print("refused:", error, file=sys.stderr, flush=True)
            return 2
        return 0

    run("first")  # imports, and threads
    for number in kilobytes:
        child = os.fork()
        if child == 0:
            pages = int(open("/proc/self/statm").read().split()[0])
            limit = pages * os.sysconf("SC_PAGE_SIZE") + 1024 * int(number)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            os._exit(run(number))
        print(number, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs the /proc of Linux")
def test_full_memory_at_any_step_leaves_each_result_absent_or_whole_and_resume_does_the_rest(
    finished, contents, cell_segmenter, tmp_path
):
    """The address space may grow by so many KiB after all is imported; arrays are not taken from what was freed before."""
    expected, images = contents(finished / "out"), finished / "images"
    kilobytes = [str(number) for number in (512, 2048, 4096, 5120, 65536)]
    given = [finished / "m.segkit", images, tmp_path, *kilobytes]
    arguments = [sys.executable, "-c", textwrap.dedent(PROGRAM_OF_LIMITS), *map(str, given)]
    settings = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "0"}
    done = subprocess.run(arguments, check=True, capture_output=True, text=True, env=os.environ | settings)
    status = dict(line.split() for line in done.stdout.splitlines())
    assert list(status) == kilobytes
    assert "Traceback" not in done.stderr
    assert "out of memory" in done.stderr
    assert status["65536"] == "0"
    for number in kilobytes:
        out = tmp_path / number
        found = contents(out) if out.exists() else {}
        tables = {name: found.pop(name) for name in list(found) if name.endswith(".csv")}
        assert are_whole(found, expected), number
        for name in tables.keys() - {"summary.csv"}:  # of the images that were segmented
            assert set(tables[name].splitlines()) <= set(expected[name].splitlines()), (number, name)
        segment_folder(cell_segmenter, images, out, resume=True, **ALL)
        assert contents(out) == expected, number
