"""The tests that pages name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["trust.md", "source-papers.md"])
def test_each_test_that_a_page_names_is_there(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`(?:pytest tests/)?([\w/]+\.py)::(test_\w+)`", text)
    assert len(named) > 20
    missing = [
        f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / "tests" / file).read_text()
    ]
    assert missing == []
