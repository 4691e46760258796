"""Files are whole or absent, whatever goes wrong while they are written."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from segkit._common.files import (
    atomic,
    describe_os_error,
    file_of_part,
    files_of_parts,
    remove_unfinished,
    remove_unfinished_of,
    saving,
    without_sync,
    write_text,
)
from segkit.errors import OutputError


def fail(monkeypatch, step, code):
    """Let one step of writing fail, as the system would."""

    def broken(*_, **__):
        raise OSError(code, os.strerror(code))

    owner = os if step == "fsync" else Path
    monkeypatch.setattr(owner, step, broken)


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with atomic(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
        assert temporary.suffix == ".txt"
    assert path.read_text() == "whole"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_files_made_aside_are_not_put_on_the_disk_and_those_after_are(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with without_sync():
        write_text(tmp_path / "aside.txt", "1")
    assert synced == []
    write_text(tmp_path / "a.txt", "1")
    assert synced
    assert (tmp_path / "aside.txt").read_text() == "1"


def test_two_writers_of_one_program_do_not_share_a_temporary_name(tmp_path):
    with atomic(tmp_path / "a") as one, atomic(tmp_path / "a") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a").read_text() == "one"  # the block that ends last


@pytest.mark.parametrize(
    ("step", "code"), [("mkdir", errno.ENOSPC), ("fsync", errno.EIO), ("replace", errno.EACCES)]
)
def test_a_fault_at_any_step_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, code):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with monkeypatch.context() as patch:
        fail(patch, step, code)
        with pytest.raises(OutputError, match=r"a\.txt"):
            write_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_an_error_of_the_caller_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write():
        with saving(path) as temporary:
            temporary.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_reason_and_cure_are_said():
    for code, reason, cure in (
        (errno.ENOSPC, "the disk is full", "free some space"),
        (errno.EDQUOT, "the disk is full", "free some space"),
        (errno.EACCES, "may not be written", "make the folder writable"),
        (errno.EROFS, "may not be written", "choose another place"),
        (errno.ENAMETOOLONG, "too long", "choose a shorter one"),
        (errno.EIO, "Input/output error", "check the disk"),
    ):
        message = describe_os_error(OSError(code, os.strerror(code)))
        assert reason in message
        assert cure in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up_while_a_file_is_written(tmp_path, monkeypatch):
    def on_full_disk(path):
        name = f".{path.name}.1-1.part"
        (path.parent / name).symlink_to("/dev/full")
        return name

    monkeypatch.setattr("segkit._common.files._temporary_name", on_full_disk)
    with pytest.raises(OutputError, match="the disk is full: free some space"):
        write_text(tmp_path / "a.txt", "new" * 10_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_a_killed_program_leaves_the_old_file_and_a_hidden_part(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    program = """
        import os, signal, sys
        from pathlib import Path
        from segkit._common.files import atomic
        with atomic(Path(sys.argv[1])) as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    [left] = [entry for entry in tmp_path.iterdir() if entry != path]
    assert left.name.startswith(".")
    remove_unfinished_of(path)
    assert list(tmp_path.iterdir()) == [path]


def test_hidden_parts_of_killed_programs_are_removed(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    path.parent.mkdir()
    path.write_text("old")
    killed = 2**22 + 1  # no process has such a number
    left, later = (path.with_name(f".{stem}.{killed}-1.part.txt") for stem in ("a", "a.b"))
    own, of_another = (path.with_name(f".{stem}.{os.getpid()}-1.part.txt") for stem in ("a", "a.b"))
    for part in (left, own, of_another, later):
        part.touch()
    remove_unfinished_of(path)
    assert {entry.name for entry in path.parent.glob(".*.part*")} == {own.name, of_another.name, later.name}
    left.touch()
    (path.parent / ".hidden.txt").touch()
    (path.parent / "a.1-1.part.txt").touch()
    remove_unfinished(tmp_path)
    assert {entry.name for entry in path.parent.iterdir()} == {"a.txt", ".hidden.txt", "a.1-1.part.txt"}


def test_any_name_that_the_system_takes_is_written_and_its_parts_are_known(tmp_path):
    for name in ("x" * 250 + ".png", "é" * 120 + ".tif", "a", ".b", "a.b.c\n.png"):
        path = tmp_path / name
        with atomic(path) as temporary:
            temporary.write_text("1")
            (tmp_path / f"{temporary.name}").touch()
            remove_unfinished(tmp_path)
            assert not temporary.exists()
            temporary.write_text("2")
        assert path.read_text() == "2"


def test_files_of_parts_are_no_others(tmp_path):
    path = tmp_path / "a[1]"
    parts = [path, file_of_part(path, 1), file_of_part(file_of_part(path, 2), 3)]
    for name in ("a[1]x", "a[1].part", "a1", "ba[1]", "a[1].csv"):
        (tmp_path / name).touch()
    assert files_of_parts(path) == []
    for part in parts:
        part.touch()
    assert files_of_parts(path) == parts
    assert (file_of_part(path, 0), file_of_part(None, 1)) == (path, None)
    assert files_of_parts(tmp_path / "none" / "a") == []
