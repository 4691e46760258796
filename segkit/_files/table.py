"""Tables for spreadsheets."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from segkit._common import safe_cell
from segkit._files.write import saving


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file. None is an empty cell. Text that a spreadsheet would execute gets a quote before it.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    # a file name that is no valid text holds lone surrogates, which UTF-8 cannot encode
    with (
        saving(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([safe_cell("" if value is None else value) for value in row])
