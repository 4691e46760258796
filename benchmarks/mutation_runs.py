"""Runs of pytest on a copy of the code, each in a fork of one process that has the large libraries imported already.

`python -m benchmarks.mutation_runs FOLDER LIBRARY ...` reads a run from each line of its input, and writes how it
ended. This process imports nothing of segkit, so that each run imports the code that lies in the folder then. A run is a
JSON object:

- arguments: those of pytest. It loads no plugins but those that they name.
- seconds: the run is killed after this processor time, or after `WAITS` times as long, with all that it started.
- covered: source files whose lines are noted by test, or none.

The answer has the exit status of pytest, or null if the run was killed; the first test that failed, or null; the tests with
their processor time and the fixtures of larger scope that they use; and the lines of each file by what ran them: a test, a
fixture.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# A mutant may ask for any amount of memory.
MOST_BYTES = 10 * 2**30
# A busy machine, or tests that sleep.
WAITS = 10
OTHER_CODE = 90


class Runs:
    """The process that runs pytest, and a folder for its notes."""

    def __init__(self, folder: Path, libraries: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "benchmarks.mutation_runs", str(folder), *libraries]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[1])]),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(
        self, arguments: Sequence[str], seconds: float, covered: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Run pytest with these arguments."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        task = {"arguments": list(arguments), "seconds": seconds, "covered": list(covered)}
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if answer["status"] == OTHER_CODE:
            raise RuntimeError("the tests imported segkit from another folder than that of the copy")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def key_of(nodeid: str) -> str:
    """Name a test function, whatever its parameters."""
    return nodeid.partition("[")[0]


class _Notes:
    """Plugin of pytest: what failed, how long tests took, and, with coverage, which lines each of them ran."""

    def __init__(self, coverage: Any = None) -> None:
        self.coverage = coverage
        self.failed: str | None = None
        self.failures: set[str] = set()
        self.seconds: dict[str, float] = {}
        self.fixtures: dict[str, list[str]] = {}
        self._context = ""
        self._start = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._start = time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        key = key_of(nodeid)
        self.seconds[key] = self.seconds.get(key, 0.0) + time.process_time() - self._start

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid
            self.failures.add(key_of(report.nodeid))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid or "collection"

    def pytest_runtest_setup(self, item: Any) -> None:
        found = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
        self.fixtures[key_of(item.nodeid)] = sorted(
            name for name, made in found.items() if made and made[-1].scope != "function"
        )
        self._switch(key_of(item.nodeid))

    @staticmethod
    def _name(fixture: Any) -> str:
        return f"fixture {fixture.argname}"

    def wrap_fixtures(self) -> Any:
        """Give the hook that notes lines of a fixture of larger scope as the fixture's own, not as those of one test."""
        import pytest

        notes = self

        class Hooks:
            @pytest.hookimpl(hookwrapper=True)
            def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
                before = notes._context
                if fixturedef.scope != "function":
                    notes._switch(notes._name(fixturedef))
                yield
                notes._switch(before)

        return Hooks()

    def _switch(self, context: str) -> None:
        self._context = context
        if self.coverage is not None:
            self.coverage.switch_context(context)

    def lines(self) -> dict[str, dict[int, list[str]]]:
        """Give for each file its lines, each with the tests and fixtures that ran it."""
        if self.coverage is None:
            return {}
        data = self.coverage.get_data()
        return {file: data.contexts_by_lineno(file) for file in sorted(data.measured_files())}


def _be_a_run(folder: Path, task: dict[str, Any], answer: Path) -> None:
    """Run pytest, write the answer, and end."""
    import resource  # Windows has none, nor forks

    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        seconds = math.ceil(task["seconds"])
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        os.chdir(folder)
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(folder)))]
        import pytest

        coverage = None
        if task["covered"]:
            from coverage import Coverage

            coverage = Coverage(data_file=None, config_file=False, include=task["covered"])
            coverage.start()
        notes = _Notes(coverage)
        status = int(pytest.main(task["arguments"], plugins=[notes, notes.wrap_fixtures()]))
        if coverage is not None:
            coverage.stop()
        segkit = sys.modules.get("segkit")
        if segkit is not None and not Path(str(segkit.__file__)).is_relative_to(folder):
            status = OTHER_CODE
        told = {
            "status": status,
            "failed": notes.failed,
            "failures": sorted(notes.failures),
            "tests": {
                key: {"seconds": round(seconds, 4), "fixtures": notes.fixtures.get(key, [])}
                for key, seconds in notes.seconds.items()
            },
            "lines": notes.lines(),
        }
        answer.write_text(json.dumps(told), encoding="utf-8")
    finally:
        os._exit(0)


def _run(folder: Path, task: dict[str, Any], answer: Path) -> dict[str, Any]:
    answer.unlink(missing_ok=True)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_a_run(folder, task, answer)
    timed_out = False
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() - start > WAITS * task["seconds"]:
            timed_out = True
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.01)
    timed_out = timed_out or (os.WIFSIGNALED(ended[1]) and os.WTERMSIG(ended[1]) == signal.SIGXCPU)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    # A run that ends without an answer was ended by the mutant: a crash, or no memory.
    told: dict[str, Any] = {"status": None, "failed": None, "failures": [], "tests": {}, "lines": {}}
    if answer.exists() and not timed_out:
        told = json.loads(answer.read_text(encoding="utf-8"))
    return told | {"timed_out": timed_out, "seconds": round(time.monotonic() - start, 2)}


def main() -> None:
    folder, libraries = Path(sys.argv[1]), sys.argv[2:]
    sys.path[:] = [path for path in sys.path if path != str(folder)]
    for library in libraries:
        importlib.import_module(library)
    gc.freeze()  # forks share what is imported
    # Whatever libraries print goes elsewhere than the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as scratch:
        for line in sys.stdin:
            answer = _run(folder, json.loads(line), Path(scratch) / "answer.json")
            out.write(json.dumps(answer) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
