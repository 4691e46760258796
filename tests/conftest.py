"""Fixtures shared by the whole suite."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

# Workers of pytest-xdist share the cores: with several threads each they would wait for each other. The variable is for
# what is imported or started later.
if "PYTEST_XDIST_WORKER" in os.environ:
    threadpool_limits(int(os.environ.setdefault("OMP_NUM_THREADS", "1")))

SHARED = Path(os.environ.get("SEGKIT_SHARED", Path(__file__).resolve().parents[2] / "shared"))

# Tests do not time: a busy machine is no failure.
settings.register_profile("segkit", deadline=None)
settings.load_profile("segkit")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with the reference numbers, data sets and weights that some tests compare with."""
    if not (SHARED / "oracle").is_dir():
        pytest.skip(f"reference data not at {SHARED}; set SEGKIT_SHARED to its folder")
    return SHARED


@pytest.fixture(scope="module")
def units_here():
    """Run the units of a benchmark in this process; gives what runs them in processes of their own."""
    start = subprocess.run

    def run(command, **options):
        if "segkit.benchmark.unit" not in command:
            return start(command, **options)
        from segkit.benchmark import unit

        unit.main(*command[-2:])
        return subprocess.CompletedProcess(command, 0, "", "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subprocess.run", run)
        yield start


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
