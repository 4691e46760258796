"""Every fault on the page of faults names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAGE)))


def test_every_row_of_the_tables_of_faults_names_a_test():
    for table in re.findall(r"^\| fault \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for row in table.splitlines():
            assert "`tests/" in row.rsplit("|", 2)[1], row


@pytest.mark.parametrize("named", NAMED)
def test_a_named_test_exists(named):
    path, name = named.split("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
