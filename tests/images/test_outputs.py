from pathlib import Path

import pytest

from segkit.errors import OutputError
from segkit.images.outputs import (
    refuse_existing,
    refuse_extension,
    refuse_foreign,
    refuse_nesting,
    refuse_unwritable,
)
from tests.images.conftest import complaint


def test_existing_files_are_counted(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    refuse_existing(paths, overwrite=False)
    paths[1].touch()
    with pytest.raises(OutputError, match=r"^\S*b would be overwritten: choose another place"):
        refuse_existing(paths, overwrite=False)
    paths[2].mkdir()
    with pytest.raises(OutputError, match=r"b and 1 more would be overwritten"):
        refuse_existing(paths, overwrite=False)
    refuse_existing(paths, overwrite=True)


def test_a_link_that_leads_nowhere_is_there(tmp_path):
    (tmp_path / "a").symlink_to("gone")
    with pytest.raises(OutputError, match="would be overwritten"):
        refuse_existing([tmp_path / "a"], overwrite=False)
    with pytest.raises(OutputError, match="was not written by segkit"):
        refuse_foreign([tmp_path / "a"], is_own=lambda path: False, allowed=False)


def test_files_that_cannot_be_written(tmp_path):
    refuse_unwritable(tmp_path / "a.json")
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "a.json"):
        with pytest.raises(OutputError, match="cannot be written"):
            refuse_unwritable(path)


def test_one_new_folder_is_made_and_no_more(tmp_path, monkeypatch):
    """A mistyped path would leave folders anywhere."""
    refuse_unwritable(tmp_path / "new" / "a.json")
    refuse_unwritable(tmp_path / "new" / "deep" / "er" / "a.json", within=tmp_path / "new")
    mistyped = tmp_path / "hoem" / "x"
    told = f"there is no folder {mistyped.parent}: check the path, or make that folder first"
    path = mistyped / "a.json"
    assert complaint(refuse_unwritable, path, error=OutputError) == f"{path}: {told}"
    with pytest.raises(OutputError, match="there is no folder"):
        refuse_unwritable(mistyped / "deep" / "a.json", within=mistyped)
    monkeypatch.chdir(tmp_path)
    refuse_unwritable(Path("new/a.json"))
    with pytest.raises(OutputError, match="there is no folder"):
        refuse_unwritable(Path("new/deep/a.json"))


def test_the_name_of_a_model_ends_in_segkit():
    refuse_extension(Path("m.SegKit"), ".segkit")
    assert complaint(refuse_extension, Path("out/m.pt"), ".segkit", error=OutputError) == (
        "out/m.pt: expected a name that ends in .segkit: give out/m.pt.segkit"
    )


def test_files_of_others_are_replaced_on_a_second_word_only(tmp_path):
    own, drawn = tmp_path / "own.png", tmp_path / "drawn.png"
    paths = [tmp_path / "new.png", own, drawn]
    own.touch()
    refuse_foreign(paths, is_own=own.__eq__, allowed=False)
    drawn.touch()
    refuse_foreign(paths, is_own=own.__eq__, allowed=True)
    with pytest.raises(
        OutputError, match=r"^\S*drawn.png was not written by segkit, and may be drawn by hand: "
    ):
        refuse_foreign(paths, is_own=own.__eq__, allowed=False)
    with pytest.raises(OutputError, match=r"^\S*own.png and 1 more were not written by segkit"):
        refuse_foreign(paths, is_own=lambda path: False, allowed=False)


@pytest.mark.parametrize("output", ["images", "images/new", "other/../images"])
def test_outputs_among_images(tmp_path, output):
    (tmp_path / "images").mkdir()
    with pytest.raises(OutputError, match="is the input folder"):
        refuse_nesting(tmp_path / "images", tmp_path / output)


def test_outputs_beside_images(tmp_path):
    (tmp_path / "images").mkdir()
    image = tmp_path / "images" / "a.png"
    image.touch()
    refuse_nesting(tmp_path / "images", tmp_path / "images-out")
    refuse_nesting(tmp_path / "images", tmp_path)
    refuse_nesting(image, tmp_path / "out")
    with pytest.raises(OutputError, match=r"is the folder of \S*a.png"):
        refuse_nesting(image, tmp_path / "images")


def test_a_mount_of_the_folder_of_images_is_that_folder(tmp_path, monkeypatch):
    """A mount has a path of its own, as a link has where it is not resolved."""
    (tmp_path / "images").mkdir()
    image = tmp_path / "images" / "a.png"
    image.touch()
    (tmp_path / "mount").symlink_to(tmp_path / "images")
    monkeypatch.setattr(Path, "resolve", Path.absolute)
    for output in (tmp_path / "mount", tmp_path / "mount" / "new"):
        with pytest.raises(OutputError, match="is the input folder"):
            refuse_nesting(tmp_path / "images", output)
    with pytest.raises(OutputError, match=r"is the folder of \S*a.png"):
        refuse_nesting(image, tmp_path / "mount")
    refuse_nesting(tmp_path / "images", tmp_path)
