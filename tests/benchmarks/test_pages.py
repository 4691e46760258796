"""The pages show the committed rows."""

import re

import pytest

from benchmarks import STUDIES
from benchmarks.pages import pages, render, tables
from benchmarks.rows import RESULTS, ROOT, read_file


@pytest.mark.parametrize("page", pages())
def test_page_shows_the_committed_rows(page):
    assert render(page) == (ROOT / page).read_text(encoding="utf-8"), "run python -m benchmarks tables"


def test_each_table_has_one_place():
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages())
    shown = re.findall(r"<!-- table (\w+) -->", text)
    assert sorted(shown) == sorted(tables())


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_rows_say_what_made_them(path):
    assert any(path.stem == study or path.stem.startswith(f"{study}-") for study in STUDIES)
    for row in read_file(path):
        assert list(row) == ["what", "where", "figures", "commit", "date", "seconds", "machine"]
        assert re.fullmatch(r"[0-9a-f]{7,}\+?", row["commit"])
