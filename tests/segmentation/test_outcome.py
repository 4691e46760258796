"""Rows of a run, and what is told of them."""

import csv
from pathlib import Path

import pytest

from segkit.segmentation.outcome import (
    FAILED,
    SKIPPED,
    WRITTEN,
    ImageRow,
    Interrupted,
    Outcome,
    write_summary,
)

OUT = Path("out")
SEE = f"see {OUT / 'summary.csv'}"


def outcome(*rows, **options):
    return Outcome(OUT, list(rows), **options)


def of_iou(**by_image):
    return outcome(*(ImageRow(name, WRITTEN, expected_iou=value) for name, value in by_image.items()))


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
    assert outcome(*mixed, **options).tell() == f"2 written, 1 skipped, 2 failed{kept}: {SEE}"


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
    assert warned(n).tell_warnings() == first + more


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({}, None),
        ({"a": None}, None),
        ({"a": 0.0}, "Expected IoU: 0.00"),
        ({"a": 0.75, "b": None}, "Expected IoU: 0.75"),
        ({"a": 0.75, "b": 0.25}, "Expected IoU: 0.50 on average, lowest 0.25 (b)"),
        ({"a": 0.9, "b": 0.6, "c": 0.96}, "Expected IoU: 0.82 on average, lowest 0.60 (b)"),
    ],
)
def test_the_mean_and_the_lowest_expected_iou_are_told(known, told):
    assert of_iou(**known).tell_expected() == told


def test_an_interruption_says_how_far_the_run_came():
    stopped = Interrupted(2, 5)
    assert str(stopped) == "2 of 5 images written; resume=True goes on"
    assert (stopped.n_written, stopped.n_images) == (2, 5)
    assert str(Interrupted(0, 1)) == "0 of 1 image written; resume=True goes on"


def test_the_table_has_a_line_for_each_row_and_a_column_for_each_field(tmp_path, mixed):
    write_summary(
        tmp_path / "summary.csv", [*mixed, ImageRow("f.png", WRITTEN, height=4, pages=2, low_80=0.5)]
    )
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


def test_rows_and_results_cannot_be_changed(mixed):
    for one, name in ((mixed[0], "status"), (outcome(), "n_kept")):
        with pytest.raises(AttributeError):
            setattr(one, name, "other")
