"""Rows of summary.csv that other runs recorded, and the table itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from segkit._files import without_sync
from segkit.errors import OutputError
from segkit.segmentation.outcome import SKIPPED, SUMMARY_FILE, ImageRow, write_summary
from segkit.segmentation.record import ForeignError, Record

SUMMARY = Path(SUMMARY_FILE)


def rows_of_others(record: Record, seen: Collection[str], *, by_region: bool = False) -> list[ImageRow]:
    """Return the rows of earlier images that a run does not see, and whose masks are there."""
    columns = {field.name for field in fields(ImageRow)}
    rows = []
    for name, entry in record.entries.items():
        mask = entry.row.get("mask")
        if name in seen or not mask or not (record.output / mask).exists():
            continue
        if by_region and not is_of_region(entry.row):
            continue
        if record.is_whole(name):
            # another version of segkit may have recorded other columns
            rows.append(ImageRow(**{key: value for key, value in entry.row.items() if key in columns}))
        else:
            reason = f"{record.output / mask} or another of its results is not as segkit wrote it"
            rows.append(ImageRow(name, SKIPPED, reason))
    return rows


def is_of_region(row: dict[str, object]) -> bool:
    """Return whether a recorded row is of an image that was read by region."""
    return row.get("tiles") is not None


def in_order(rows: Iterable[ImageRow]) -> list[ImageRow]:
    """Return rows in the order of a listing of the folder."""
    return sorted(rows, key=lambda row: Path(row.image))


def put_summary(record: Record, rows: Sequence[ImageRow]) -> None:
    """Write summary.csv."""
    with without_sync():
        write_summary(record.workshop / SUMMARY, rows)
    record.put("summary", [SUMMARY])


def refuse_changed(record: Record, tables: Sequence[Path]) -> None:
    """Refuse to write over a table of somebody else before the run, not after it."""
    try:
        record.refuse_foreign(tables)
    except ForeignError as error:
        raise table_of_others(error) from error


def table_of_others(error: ForeignError) -> OutputError:
    """Make the error for a table that somebody has made or changed, for example by a spreadsheet."""
    return OutputError(f"{error}: move it elsewhere, and --resume makes it anew")
