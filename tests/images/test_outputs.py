import pytest

from segkit.errors import OutputError
from segkit.images.outputs import refuse_existing, refuse_nesting, refuse_unwritable


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


def test_files_that_cannot_be_written(tmp_path):
    refuse_unwritable(tmp_path / "new" / "deep" / "a.json")
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "a.json"):
        with pytest.raises(OutputError, match="cannot be written"):
            refuse_unwritable(path)


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
