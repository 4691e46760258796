"""Tables of the pages, between ``<!-- table NAME -->`` and ``<!-- end -->``, made from the committed rows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache

from benchmarks import STUDIES
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
    found = {}
    for study, module in STUDIES.items():
        for name, table in getattr(importlib.import_module(module), "TABLES", {}).items():
            found[name] = study, table
    return found


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
    for module in dict.fromkeys(STUDIES.values()):
        for draw in getattr(importlib.import_module(module), "FIGURES", ()):
            draw()
