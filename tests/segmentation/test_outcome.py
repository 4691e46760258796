"""Rows of a run and of earlier ones, and what is told of them."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from segkit.errors import ClusterError, ConfigError
from segkit.images.record import record_of
from segkit.segmentation.outcome import (
    FAILED,
    SKIPPED,
    SUMMARY,
    WRITTEN,
    ImageRow,
    Interrupted,
    Outcome,
    in_order,
    join_faults,
    put_summary,
    reason_of,
    rows_of_others,
)

OUT = Path("out")
SEE = f"see {OUT / 'summary.csv'}"


def outcome(*rows, **options):
    return Outcome(OUT, list(rows), **options)


def of_iou(**by_image):
    """Images of some object IoU; the mean IoU is .9 of each whose score is known."""
    return outcome(
        *(
            ImageRow(
                name, WRITTEN, expected_object_iou=value, expected_mean_iou=None if name == "none" else 0.9
            )
            for name, value in by_image.items()
        )
    )


def warned(n):
    return outcome(*(ImageRow(f"{k}.png", WRITTEN, warning=f"darker {k}") for k in range(n)))


@pytest.fixture
def mixed():
    return [
        ImageRow("a.png", WRITTEN, mask="a-mask.png", warning="darker"),
        ImageRow("b.png", SKIPPED, reason="other channels"),
        ImageRow("c.png", FAILED, reason="cannot be read"),
        ImageRow("d.png", WRITTEN, mask="d-mask.png"),
        ImageRow("e.png", FAILED, reason="cannot be read", warning="brighter"),
    ]


def test_rows_are_found_by_their_status(mixed):
    found = outcome(*mixed)
    assert found.masks == [OUT / "a-mask.png", OUT / "d-mask.png"]
    assert found.skipped == [mixed[1]]
    assert found.failed == [mixed[2], mixed[4]]
    assert found.warned == [mixed[0], mixed[4]]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, ""),
        ({"n_kept": 1}, " (1 image up to date)"),
        ({"n_kept": 2}, " (2 images up to date)"),
    ],
)
def test_one_line_counts_images_and_says_where_the_table_is(mixed, options, kept):
    assert outcome(*mixed, **options).summarise() == f"2 written, 1 skipped, 2 failed{kept}: {SEE}"


@pytest.mark.parametrize(
    ("n", "more"),
    [
        (0, []),
        (1, []),
        (3, []),
        (4, [f"warnings of 1 more image: {SEE}"]),
        (5, [f"warnings of 2 more images: {SEE}"]),
    ],
)
def test_the_first_three_warnings_are_told_and_the_others_counted(n, more):
    first = [f"{k}.png: darker {k}" for k in range(min(n, 3))]
    assert warned(n).summarise_warnings() == first + more


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({}, None),
        ({"none": None}, None),
        ({"a": None}, "Expected mean IoU with background 0.90; no objects were found"),
        ({"a": 0.0}, "Expected object IoU: 0.00; mean IoU with background 0.90"),
        ({"a": 0.75, "b": None}, "Expected object IoU: 0.75; mean IoU with background 0.90"),
        (
            {"a": 0.9, "b": 0.6, "none": 0.96},
            "Expected object IoU: 0.82 on average, lowest 0.60 (b); mean IoU with background 0.90",
        ),
    ],
)
def test_the_mean_and_the_lowest_expected_iou_are_told(known, told):
    assert of_iou(**known).summarise_expected() == told


def test_images_with_a_warning_have_no_part_in_the_mean_of_what_is_expected():
    known = outcome(
        ImageRow("a", WRITTEN, warning="darker", expected_object_iou=0.2, expected_mean_iou=0.5),
        ImageRow("b", WRITTEN, expected_object_iou=0.8, expected_mean_iou=0.9),
        ImageRow("none", WRITTEN, expected_mean_iou=0.9),
    )
    told = "Expected object IoU of 1 image without a warning: 0.80; mean IoU with background 0.90"
    assert known.summarise_expected() == told
    assert outcome(known.rows[0]).summarise_expected() is None


def test_an_interruption_says_how_far_the_run_came():
    stopped = Interrupted(2, 5)
    assert str(stopped) == "2 of 5 images written; resume=True goes on"
    assert (stopped.n_written, stopped.n_images) == (2, 5)


def test_the_table_has_a_line_for_each_row_and_a_column_for_each_field(tmp_path, mixed):
    with record_of(tmp_path) as record:
        put_summary(record, [*mixed, ImageRow("f.png", WRITTEN, height=4, pages=2, low_80=0.5)])
    with (tmp_path / "summary.csv").open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    assert header == list(ImageRow.__annotations__)
    assert [line[0] for line in lines] == [f"{name}.png" for name in "abcdef"]
    assert lines[2][:4] == ["c.png", "failed", "cannot be read", ""]
    own = dict(zip(header, lines[5], strict=True))
    assert {name: text for name, text in own.items() if text} == {
        "image": "f.png",
        "status": "written",
        "height": "4",
        "pages": "2",
        "low_80": "0.5",
    }


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
        name: SimpleNamespace(name=name, row=row if not row else {"image": name, "status": WRITTEN} | row)
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


def test_rows_are_in_the_order_of_a_listing():
    names = ["b.png", "a/z.png", "a.png", "a/b/c.png"]
    assert [row.image for row in in_order(ImageRow(name, WRITTEN) for name in names)] == sorted(
        names, key=Path
    )


def test_the_table_is_recorded(tmp_path):
    with record_of(tmp_path) as record:
        put_summary(record, [ImageRow("a.png", WRITTEN)])
        assert record.is_whole("summary")
        record.refuse_changed([SUMMARY])


@pytest.mark.parametrize("n", [5, 7])
def test_the_first_five_faults_are_told_and_the_others_counted(n):
    more = f"; and {n - 5} more" if n > 5 else ""
    assert join_faults([str(number) for number in range(n)]) == "0; 1; 2; 3; 4" + more


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConfigError("two  words"), "two words"),
        (ClusterError("no worker"), "x.png: no worker"),
        (MemoryError(), "x.png: out of memory: use smaller images, or a smaller bank"),
        (OSError(13, "Permission denied"), "x.png: Permission denied: check the file and its permissions"),
        (OSError("odd"), "x.png: odd: check the file and its permissions"),
        (ValueError("odd"), "x.png: cannot be segmented (odd): leave it out"),
        (ZeroDivisionError(), "x.png: cannot be segmented (ZeroDivisionError): leave it out"),
    ],
)
def test_reasons_are_told_in_one_line(error, told):
    assert reason_of(error, Path("x.png")) == told
