"""Tables of the pages, between ``<!-- table NAME -->`` and ``<!-- end -->``, made from the committed rows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from benchmarks import STUDIES, TABLES_OF
from benchmarks.rows import ROOT, Row, read

_PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[str]:
    """List the pages with tables, by their paths from the root of the repository."""
    found = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        path.relative_to(ROOT).as_posix() for path in found if _PLACE.search(path.read_text(encoding="utf-8"))
    ]


@cache
def tables() -> dict[str, tuple[str, Callable[[list[Row]], str]]]:
    """Return the study and the function of each table, by its name."""
    return {name: (study, table) for study, found in _of_studies("TABLES") for name, table in found.items()}


def _of_studies(attribute: str) -> Iterator[tuple[str, Any]]:
    for study, module in STUDIES.items():
        found = importlib.import_module(TABLES_OF.get(study, module))
        if hasattr(found, attribute):
            yield study, getattr(found, attribute)


@cache
def table(name: str) -> str:
    """Make a table from the committed rows."""
    study, make = tables()[name]
    return make(read(study)).strip()


def render(page: str) -> str:
    """Make the tables of a page anew."""
    text = (ROOT / page).read_text(encoding="utf-8")
    # a function, for a backslash in a table is none of re's
    return _PLACE.sub(
        lambda match: f"{match[1]}{table(match[2])}\n{match[3]}" if match[2] in tables() else match[0], text
    )


def write_pages() -> None:
    """Write all tables, and the figures that are drawn from the rows."""
    for page in pages():
        (ROOT / page).write_text(render(page), encoding="utf-8")
        print(page)
    for _, figures in _of_studies("FIGURES"):
        for draw in figures:
            draw()
