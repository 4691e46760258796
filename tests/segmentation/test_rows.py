"""Rows of summary.csv that earlier runs recorded."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from segkit.errors import OutputError
from segkit.segmentation.outcome import SKIPPED, WRITTEN, ImageRow
from segkit.segmentation.record import record_of
from segkit.segmentation.rows import in_order, is_of_region, put_summary, refuse_changed, rows_of_others

SUMMARY = Path("summary.csv")


@pytest.fixture
def record(tmp_path):
    """Results as written, changed since, and of an image read by region; and rows without a mask."""
    rows = {
        "a.png": {"mask": "a.png", "height": 4, "of another version": 1},
        "b.png": {"mask": "b.png"},
        "c.zarr": {"mask": "c.tif", "tiles": 7},
        "gone.png": {"mask": "gone.png"},
        "table": {},
    }
    entries = {
        name: SimpleNamespace(row=row if not row else {"image": name, "status": WRITTEN} | row)
        for name, row in rows.items()
    }
    for name in ("a.png", "b.png", "c.tif"):
        (tmp_path / name).write_text(name)
    return SimpleNamespace(output=tmp_path, entries=entries, is_whole=lambda name: name != "b.png")


def test_rows_of_images_whose_masks_are_there(record):
    changed = f"{record.output / 'b.png'} or another of its results is not as segkit wrote it"
    expected = [
        ImageRow("a.png", WRITTEN, mask="a.png", height=4),
        ImageRow("b.png", SKIPPED, changed),
        ImageRow("c.zarr", WRITTEN, mask="c.tif", tiles=7),
    ]
    assert rows_of_others(record, set()) == expected
    assert rows_of_others(record, {"a.png", "c.zarr"}) == expected[1:2]
    assert rows_of_others(record, set(), by_region=True) == expected[2:]


def test_an_image_of_no_tiles_was_read_by_region_too():
    assert is_of_region({"tiles": 0})
    assert not is_of_region({"tiles": None})
    assert not is_of_region({})


def test_rows_are_in_the_order_of_a_listing():
    names = ["b.png", "a/z.png", "a.png", "a/b/c.png"]
    assert [row.image for row in in_order(ImageRow(name, WRITTEN) for name in names)] == sorted(
        names, key=Path
    )


def test_the_table_is_recorded_and_refused_if_it_was_changed(tmp_path):
    with record_of(tmp_path) as record:
        put_summary(record, [ImageRow("a.png", WRITTEN)])
        assert record.is_whole("summary")
    with record_of(tmp_path) as record:
        refuse_changed(record, [SUMMARY])
        (tmp_path / SUMMARY).write_text("mine")
        with pytest.raises(OutputError) as caught:
            refuse_changed(record, [SUMMARY])
    assert str(caught.value) == (
        f"{tmp_path / SUMMARY} was not written by segkit, or changed since: move it elsewhere, and --resume makes it anew"
    )
