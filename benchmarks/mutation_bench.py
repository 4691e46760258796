"""Code to change and its tests, in a copy of the tree: which test runs which line, and whether one notices a change."""

from __future__ import annotations

import hashlib
import json
import py_compile
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.mutants import Mutant, SourceMap, list_mutants
from benchmarks.mutation_runs import Runs

# The tests of a mutant take no more processor time than this undisturbed; what is slower is left out, and counted.
MOST_SECONDS = 20.0
# A mutant has this many times the undisturbed processor time, and some seconds more.
TIMES, MORE_SECONDS = 4, 20.0
# A test file undisturbed, all its tests, with coverage.
LONGEST_FILE = 1800.0
# Failed assertions need no words here.
_PYTEST = (
    "-q",
    "-p",
    "no:cacheprovider",
    "--assert=plain",
    "-p",
    "_hypothesis_pytestplugin",
    "--hypothesis-seed=0",
)


def copy_tree(root: Path, copy: Path, names: Iterable[str]) -> None:
    """Copy files and folders; what is compiled follows the code, not its time, which is too coarse."""
    for name in names:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy(root / name, copy / name)
    for path in copy.rglob("*.py"):
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(str(path), doraise=True, invalidation_mode=mode)


class Bench:
    """Code to change, and its tests.

    Parameters
    ----------
    root : Path
        A copy of the tree.
    runs : Runs
        What runs tests in it.
    code, tests : sequence of str
        Files and folders of the tree: the code to change, and its tests.
    kept : Path
        File that keeps which test runs which line.
    on_import : sequence of str
        Tests of what all modules are after their import; they are run for statements that run then.
    most_seconds : float
        Processor time, undisturbed, of the tests of a mutant.
    """

    def __init__(
        self,
        root: Path,
        runs: Runs,
        code: Sequence[str],
        tests: Sequence[str],
        kept: Path,
        *,
        on_import: Sequence[str] = (),
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        self.root, self.runs, self.kept, self.on_import = root, runs, kept, on_import
        self.most_seconds = most_seconds
        paths = [path for name in code for path in _below(root, name, "*.py")]
        self.code = {path: (root / path).read_text(encoding="utf-8") for path in paths}
        self.files = [*_test_files(root, tests), *on_import]
        self.tests: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, dict[int, set[str]]] = {}

    def learn(self) -> None:
        """Find which test runs which line; what is known of files that are the same is kept."""
        known = json.loads(self.kept.read_text(encoding="utf-8")) if self.kept.exists() else {}
        now = {}
        for file in self.files:
            digest = self._digest(file)
            found = known.get(file, {})
            if found.get("digest") != digest:
                covered = [str(self.root / path) for path in self.code]
                answer = self.runs([*_PYTEST, file], LONGEST_FILE, covered)
                prefix = f"{self.root}/"
                lines = {path.removeprefix(prefix): of for path, of in answer["lines"].items()}
                found = {
                    "digest": digest,
                    "tests": answer["tests"],
                    "failures": answer["failures"],
                    "lines": lines,
                }
                print(f"{file}: {len(found['tests'])} tests, {answer['seconds']:.0f} s", flush=True)
                for test in found["failures"] or [answer["failed"]] * bool(answer["failed"]):
                    print(f"  fails unchanged, left out: {test}", flush=True)
            now[file] = found
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            self.kept.write_text(json.dumps(known | now), encoding="utf-8")
        for file in self.files:
            self._take(now[file])

    def _digest(self, file: str) -> str:
        """Digest of a test file, of what it shares with others, and of the code."""
        path = self.root / file.partition("::")[0]
        folder = path.parent
        paths = [path, *folder.glob("conftest.py"), *folder.parent.glob("conftest.py")]
        paths += sorted((self.root / Path(next(iter(self.code))).parts[0]).rglob("*.py"))
        digest = hashlib.sha256()
        for path in paths:
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

    def _take(self, found: Mapping[str, Any]) -> None:
        failures = set(found["failures"])
        tests = {key: entry for key, entry in found["tests"].items() if key not in failures}
        self.tests |= tests
        users: dict[str, set[str]] = {}
        for key, entry in tests.items():
            for name in entry["fixtures"]:
                users.setdefault(f"fixture {name}", set()).add(key)
        for path, lines in found["lines"].items():
            of = self.lines.setdefault(path, {})
            for line, contexts in lines.items():
                ran = of.setdefault(int(line), set())
                for context in contexts:
                    ran |= users.get(context, {context} & tests.keys())

    def mutants(self) -> list[Mutant]:
        """List the mutants of all modules."""
        return [mutant for path, source in self.code.items() for mutant in list_mutants(source, path)]

    def tests_of(self, mutant: Mutant) -> tuple[list[str], int]:
        """List the tests of a mutant in the order to run them, and count those left out for their time."""
        lines, is_run = SourceMap(self.code[mutant.module]).lines_of(mutant.line)
        ran = self.lines.get(mutant.module, {})
        keys = set().union(*(ran.get(line, ()) for line in lines))
        if not is_run:
            keys |= self.tests.keys() & set(self.on_import)
        own = f"test_{Path(mutant.module).name}"
        seconds = {key: self.tests[key]["seconds"] for key in keys}
        ordered = sorted(keys, key=lambda key: (Path(key.partition("::")[0]).name != own, seconds[key], key))
        chosen, total = [], 0.0
        for key in ordered:
            if total + seconds[key] <= self.most_seconds:
                chosen.append(key)
                total += seconds[key]
        return chosen, len(ordered) - len(chosen)

    def try_out(self, mutant: Mutant, changed: str) -> dict[str, Any]:
        """Run the tests of a mutant until one fails."""
        tests, n_left_out = self.tests_of(mutant)
        told: dict[str, Any] = {
            "tests": len(tests),
            "left_out": n_left_out,
            "limit": self.most_seconds,
            "outcome": "survived",
        }
        if not tests:
            return told
        path = self.root / mutant.module
        limit = TIMES * sum(self.tests[key]["seconds"] for key in tests) + MORE_SECONDS
        path.write_text(changed, encoding="utf-8")
        try:
            answer = self.runs(["-x", *_PYTEST, *tests], limit)
        finally:
            path.write_text(self.code[mutant.module], encoding="utf-8")
            shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)
        if answer["timed_out"]:
            told["outcome"] = "timed out"
        elif answer["status"] != 0:
            told["outcome"] = "killed"
            told["by"] = answer["failed"] or "a crash"
        return told | {"seconds": answer["seconds"]}


def _below(root: Path, name: str, pattern: str) -> list[str]:
    """List the files of a folder, or the one file, by their paths in the tree."""
    paths = sorted((root / name).rglob(pattern)) if (root / name).is_dir() else [root / name]
    return [path.relative_to(root).as_posix() for path in paths]


def _test_files(root: Path, tests: Iterable[str]) -> Iterator[str]:
    """List test files, and modules with examples in their docstrings."""
    for name in tests:
        if Path(name).parts[0] == "tests":
            yield from _below(root, name, "test_*.py")
        else:
            files = _below(root, name, "*.py")
            yield from (file for file in files if ">>> " in (root / file).read_text(encoding="utf-8"))
