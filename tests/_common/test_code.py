"""The version of the code that is running."""

import hashlib
import shutil
from pathlib import Path

import pytest

import segkit
from segkit._common.code import code_version


@pytest.fixture(autouse=True)
def read_anew():
    code_version.cache_clear()
    yield
    code_version.cache_clear()


def test_it_changes_with_any_module(monkeypatch, tmp_path):
    shutil.copytree(Path(segkit.__file__).parent / "objects", tmp_path / "segkit" / "objects")
    (tmp_path / "segkit" / "__init__.py").write_text("")
    monkeypatch.setattr("segkit.__file__", str(tmp_path / "segkit" / "__init__.py"))
    first = code_version()
    version, _, digest = first.partition("+")
    assert version == segkit.__version__
    modules = sorted((tmp_path / "segkit").rglob("*.py"))
    assert hashlib.sha256(b"".join(path.read_bytes() for path in modules)).hexdigest().startswith(digest)
    with modules[-1].open("a") as file:
        file.write("# one line more\n")
    code_version.cache_clear()
    assert code_version() != first
