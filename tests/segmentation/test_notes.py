"""What is told of a run: images left alone, and those that look unlike the training images."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from segkit.images.alike import Kind
from segkit.segmentation.notes import (
    _notes_on_names,
    _notes_on_scale,
    notes_on_images,
    notes_on_others,
    notes_on_removed,
)
from segkit.segmentation.outcome import WRITTEN, ImageRow
from segkit.segmentation.results import Appearance


def test_other_names_of_channels_are_told_of():
    told = _notes_on_names({"a.tif": ("x", "y"), "b.tif": ("x",)}, ("DAPI", "GFP"))
    assert told == [
        "a.tif: channels x, y, of the training images DAPI, GFP (2 such images): the first is read as the first, and so "
        "on: right if only the names differ"
    ]
    assert "(1 such image)" in _notes_on_names({"a.tif": ("x",)}, ("y",))[0]
    assert _notes_on_names({}, ("y",)) == _notes_on_names({"a.tif": ("x",)}, ()) == []


def test_other_scales_are_told_of():
    peaks = {Path("a"): 0.5, Path("b"): 0.004, Path("c"): 0.003}
    assert _notes_on_scale(peaks, (0.4, 0.9)) == [
        "b: the brightest pixel is at 0.4% of full scale, of the training images at 40.0% to 90.0% (2 such images): if "
        "values are scaled otherwise (16 bits are read as 0 to 65535, 8 bits as 0 to 255), save them as the training "
        "images are"
    ]
    assert _notes_on_scale({Path("a"): 0.9}, (0.04, 0.05))[0].startswith(
        "a: the brightest pixel is at 90.0% of full"
    )
    # within eight times of the darkest and the brightest
    within = {Path(str(peak)): peak for peak in (0, 0.02 / 7, 0.018, 0.1, 0.18, 0.8)}
    assert _notes_on_scale(within, (0.02, 0.8)) == []
    assert "(1 such image)" in _notes_on_scale(within | {Path("dark"): 0.02 / 9}, (0.02, 0.8))[0]
    assert "at 50.0% (2 such images)" in _notes_on_scale(peaks, (0.5, 0.5))[0]
    assert _notes_on_scale(peaks, None) == _notes_on_scale({Path("a"): 0.5}, (0.4, 0.9)) == []


def test_images_are_compared_with_the_training_images():
    """Channels, their names and the brightest pixel, if the training has told of them."""
    segmenter, root = SimpleNamespace(summary_=SimpleNamespace(peaks=(0.9, 1.0))), Path("in")
    looks = {"a.png": Appearance(Kind(1, True), (), 0.95), "b.png": Appearance(Kind(3, True), ("x",), 0.02)}
    grey, names, dark = notes_on_images(segmenter, looks, root, ("DAPI",), 1)
    assert grey.startswith("1 image (b.png) is RGB with three equal channels and read as grey")
    assert names.startswith(f"{root / 'b.png'}: channels x, of the training images DAPI")
    assert dark.startswith(f"{root / 'b.png'}: the brightest pixel is at 2.0% of full scale")
    assert len(notes_on_images(SimpleNamespace(), looks, root, (), 1)) == 1


def recorded(output, **rows):
    """A record of images, by the name of each: what made it, and its row."""
    entries = {name: SimpleNamespace(made_by=made_by, row=row) for name, (made_by, row) in rows.items()}
    return SimpleNamespace(output=output, entries=entries)


def test_images_of_another_model_are_told_of(tmp_path):
    record = recorded(tmp_path, a=("mine", {}), b=("other", {}), c=("other", {}))
    rows = [ImageRow(name, WRITTEN) for name in "abc"]
    assert notes_on_others(record, rows, "mine") == [
        f"results of 2 other images in {tmp_path} are of another model or other options (b, c): give the folder of the "
        "images to make all anew"
    ]
    assert notes_on_others(record, rows[:1], "mine") == []


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("", None),
        ("b", "1 image of an earlier run is gone (b): its mask is left alone"),
        ("cb", "2 images of an earlier run are gone (b, c): their masks are left alone"),
    ],
)
def test_images_that_are_gone_are_told_of(tmp_path, names, told):
    (tmp_path / "mask.png").write_text("")
    there = {"mask": "mask.png"}
    rows = dict.fromkeys(("a", *names), ("0", there))
    rows |= {
        "no_mask": ("0", {}),
        "mask_gone": ("0", {"mask": "x.png"}),
    }
    assert notes_on_removed(recorded(tmp_path, **rows), {"a"}) == ([told] if told else [])
