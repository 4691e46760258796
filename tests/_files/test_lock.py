"""One program at a time on a folder; that of a killed program is taken over by one only."""

import os
import platform
import subprocess
import sys
import textwrap

import pytest

from segkit._files import FolderLock
from segkit.errors import InputError


def dead_process():
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_program_is_refused_until_the_first_releases(tmp_path):
    path = tmp_path / ".lock"
    lock = FolderLock(path)
    with pytest.raises(InputError, match="in use by another program") as caught:
        FolderLock(path)
    assert str(path) in str(caught.value)
    lock.release()
    FolderLock(path).release()
    assert not path.exists()


def test_a_lock_that_somebody_took_over_meanwhile_is_given_back(tmp_path, monkeypatch):
    path = tmp_path / ".lock"
    path.write_text(f"{dead_process()} {platform.node()}\n")
    refuse = FolderLock._refuse_if_held

    def another_is_faster(self, found=None):
        refuse(self, found)
        if found is None:  # between the look at the old lock and its removal
            path.write_text(f"{os.getppid()} {platform.node()}\n")

    monkeypatch.setattr(FolderLock, "_refuse_if_held", another_is_faster)
    with pytest.raises(InputError, match=f"process {os.getppid()}"):
        FolderLock(path)
    assert path.read_text().startswith(f"{os.getppid()} ")
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


@pytest.mark.slow
def test_of_many_programs_one_takes_a_left_lock_over(tmp_path):
    path = tmp_path / ".lock"
    path.write_text(f"{dead_process()} {platform.node()}\n")
    program = """
        import sys, time
        from pathlib import Path
        from segkit._files import FolderLock
        from segkit.errors import InputError
        while not Path(sys.argv[2]).exists():
            time.sleep(0.001)
        try:
            lock = FolderLock(Path(sys.argv[1]))
        except InputError:
            print("refused")
        else:
            print("held", flush=True)
            sys.stdin.read()
    """
    start = tmp_path / "start"
    command = [sys.executable, "-c", textwrap.dedent(program), path, start]
    with_pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    programs = [subprocess.Popen(command, **with_pipes) for _ in range(3)]
    start.touch()
    told = [program.stdout.readline().strip() for program in programs]
    for program in programs:
        program.communicate()
    assert sorted(told) == ["held"] + ["refused"] * 2
