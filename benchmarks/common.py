"""What benchmarks share: where they ran, and how results are written."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np


def sgemm_rate(n: int = 2048, n_repeats: int = 5) -> float:
    """Best measured rate of a float32 matrix product, in floating-point operations per second."""
    a = np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
    best = min(_seconds(lambda: a @ a) for _ in range(n_repeats))
    return 2 * n**3 / best


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result file, indented so that changes show."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _seconds(function: Any) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
