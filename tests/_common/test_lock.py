"""One program at a time in a folder; the lock of a killed program is free at once."""

import errno
import os
import subprocess
import sys
import textwrap

import pytest

from segkit._common.lock import locked
from segkit.errors import InputError, OutputError


def test_a_second_program_is_refused_until_the_first_releases(tmp_path):
    path = tmp_path / ".lock"
    with locked(tmp_path, path), pytest.raises(InputError) as caught, locked(tmp_path, path):
        pass
    assert str(caught.value) == (
        f"{tmp_path} is in use by another program: close that one, or give another output folder"
    )
    assert not path.exists()
    with locked(tmp_path, path):
        assert path.exists()


def test_a_lock_that_a_loss_of_power_left_locks_nothing(tmp_path):
    path = tmp_path / ".lock"
    path.touch()
    with locked(tmp_path, path):
        pass
    assert not path.exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("mine"),
        lambda path: path.symlink_to(path.with_name("elsewhere")),
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
    ],
    ids=["file", "link", "pipe", "folder"],
)
def test_what_is_no_lock_is_told_and_stays(tmp_path, make):
    path = tmp_path / ".lock"
    make(path)
    before = path.lstat()
    with pytest.raises(OutputError) as caught, locked(tmp_path, path):
        raise AssertionError
    assert str(caught.value) == (
        f"{path} is in the place of the lock of segkit, and no lock: move it elsewhere"
    )
    assert path.lstat() == before


def test_a_folder_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with pytest.raises(OutputError) as caught, locked(tmp_path, tmp_path / ".lock"):
        pass
    assert str(caught.value) == (
        f"{tmp_path}: may not be written: make the folder writable, or choose another place"
    )


@pytest.mark.slow(short=True)
def test_the_lock_of_a_killed_program_is_free_at_once(tmp_path):
    path = tmp_path / ".lock"
    program = """
        import sys
        from pathlib import Path
        from segkit._common.lock import locked
        path = Path(sys.argv[1])
        with locked(path.parent, path):
            print("held", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="in use by another program"), locked(tmp_path, path):
            pass
        other.kill()
        other.wait()
        assert path.exists()
        with locked(tmp_path, path):
            pass
    assert not path.exists()
