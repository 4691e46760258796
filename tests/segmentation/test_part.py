"""Parts of a folder: together they are the whole, in turn and at the same time."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segkit._files import alone_in, beside_others_in
from segkit.errors import ConfigError, InputError, OutputError
from segkit.segmentation.folders import segment_folder
from segkit.segmentation.outcome import FAILED
from segkit.segmentation.part import Part

ALL = {"probability": True, "overlay": True, "objects": True}


@pytest.fixture
def run(cell_segmenter, cell_images, tmp_path):
    def segment(output="out", **options):
        return segment_folder(cell_segmenter, cell_images, tmp_path / output, **(ALL | options))

    return segment


@given(
    st.lists(st.text("abc", min_size=1, max_size=4), unique=True, max_size=12).map(sorted),
    st.integers(1, 5),
)
def test_parts_are_the_whole_and_differ_by_one(stems, total):
    images = [Path(f"i{stem}.png") for stem in stems]
    parts = [Part(number, total).of(images) for number in range(1, total + 1)]
    assert sorted(path for part in parts for path in part) == sorted(images)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_images_that_would_clash_are_of_one_part():
    images = [Path("a.bmp"), Path("a.png"), Path("b.png"), Path("c.png")]
    assert Part(1, 2).of(images) == [Path("a.bmp"), Path("a.png"), Path("c.png")]
    assert Part(2, 2).of(images) == [Path("b.png")]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "-1/4", "1", "a/b", "1/4/2", "", "1.0/2", "1/9999999"])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(ConfigError, match=f"part {text}: expected a part"):
        Part.read(text)


def test_parts_in_turn_give_what_one_run_gives(run, tmp_path, contents):
    run("whole")
    for number in (2, 1, 4, 3):  # the fourth has no image
        assert run(part=Part(number, 4)).failed == []
        assert not list((tmp_path / "out").glob("*.csv"))
    assert run(resume=True).n_kept == 3
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_parts_at_the_same_time_give_what_one_run_gives(cell_segmenter, cell_images, run, tmp_path, contents):
    cell_segmenter.save(tmp_path / "m.segkit")
    program = """
        import sys
        from pathlib import Path
        from segkit import load
        from segkit.segmentation.folders import segment_folder
        from segkit.segmentation.part import Part
        model = load(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        outcome = segment_folder(model, sys.argv[2], sys.argv[3], probability=True, overlay=True, objects=True,
                                 part=Part.read(sys.argv[4]))
        print(len(outcome.masks))
    """
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(program),
        tmp_path / "m.segkit",
        cell_images,
        tmp_path / "out",
    ]
    with_pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    programs = [subprocess.Popen([*command, f"{number}/3"], **with_pipes) for number in (1, 2, 3)]
    for program in programs:
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        program.stdin.write("\n")
        program.stdin.flush()
    assert [program.communicate()[0] for program in programs] == ["1\n"] * 3
    run("whole")
    assert run(resume=True).n_kept == 3
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_bad_image_fails_in_its_part_and_in_the_table(run, cell_images, tmp_path):
    (cell_images / "bad.png").write_bytes(b"no picture")
    by_part = [run(part=Part(number, 4)).rows for number in range(1, 5)]
    assert [row.image for rows in by_part for row in rows if row.status == FAILED] == ["bad.png"]
    assert [row.image for row in run(resume=True).failed] == ["bad.png"]


def test_a_part_goes_on_where_it_stopped(run, tmp_path, contents):
    run(part=Part(1, 2))
    before = contents(tmp_path / "out")
    with pytest.raises(OutputError, match="would be overwritten"):
        run(part=Part(1, 2))
    assert run(part=Part(1, 2), resume=True).n_kept == 2
    assert contents(tmp_path / "out") == before


def test_tables_of_an_earlier_run_are_removed_once_a_part_changes_a_mask(run, cells, cell_images, tmp_path):
    import tifffile

    run()
    run(part=Part(1, 3), resume=True)
    assert (tmp_path / "out" / "summary.csv").exists()
    tifffile.imwrite(cell_images / "none.tif", cells(9)[0])
    for number in range(1, 4):
        run(part=Part(number, 3), resume=True)
    assert not list((tmp_path / "out").glob("*.csv"))


def test_images_of_other_parts_are_not_said_to_be_gone(run, recwarn):
    run(part=Part(1, 2))
    recwarn.clear()
    run(part=Part(2, 2))
    assert not [warning for warning in recwarn if "gone" in str(warning.message)]


def test_the_last_line_says_how_the_table_is_made(run, tmp_path):
    told = run(part=Part(1, 2)).tell()
    assert told.startswith(
        "2 written, 0 skipped, 0 failed: after part 1/2 and the others, --resume without --part"
    )
    assert told.endswith(f"writes {tmp_path / 'out' / 'summary.csv'}")


def test_who_may_work_beside_whom(tmp_path):
    out = tmp_path / "out"
    with beside_others_in(out, "1", "2"), beside_others_in(out, "2", "2"):
        for other in (
            lambda: alone_in(out),
            lambda: beside_others_in(out, "1", "2"),
            lambda: beside_others_in(out, "1", "12"),
        ):
            with pytest.raises(InputError, match="in use by another program"), other():
                pass
    with (
        alone_in(out),
        pytest.raises(InputError, match=r"remove .*/lock if"),
        beside_others_in(out, "1", "2"),
    ):
        pass
    with alone_in(out) as hidden:
        assert [path.name for path in hidden.iterdir()] == ["lock"]


def test_a_part_of_a_killed_program_is_taken_over(run, tmp_path, contents):
    run("whole")
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    run(part=Part(1, 2))
    for name in ("part-1-of-2.lock", "part-2-of-3.lock"):
        (tmp_path / "out" / ".segkit" / name).write_text(f"{process.pid} {os.uname().nodename}\n")
    left = tmp_path / "out" / ".segkit" / "new" / "1-of-2"
    left.mkdir(parents=True)
    shutil.copy(tmp_path / "whole" / "stack.tif", left / "stack.tif")
    run(part=Part(1, 2), resume=True)
    run(resume=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "out" / ".segkit").iterdir()) == ["objects", "record"]
