"""Which code is running: results of another one are not taken for its own."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import segkit


@cache
def code_version() -> str:
    """Return the version of segkit, and a digest of its modules, for a version under development has many."""
    digest = hashlib.sha256()
    for module in sorted(Path(segkit.__file__).parent.rglob("*.py")):
        digest.update(module.read_bytes())
    return f"{segkit.__version__}+{digest.hexdigest()[:12]}"
