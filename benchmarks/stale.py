"""Which committed results are older than the code they speak of.

    python -m benchmarks.stale                     count the rows of each result file
    python -m benchmarks.stale --check README.md   fail if a table of the page shows older rows without saying so

Most rows carry the digest of the code that made them (`benchmarks.common.digest_sources`). The history of the repository
tells which commit has that digest. The states of a row:

- current: the modules that it measures say the same there and here; comments, docstrings, words of errors do not count.
- older: one of them says something else.
- unknown code: no commit has its digest; it was made between two commits.
- without digest: it carries none.

The modules are those that the benchmark imports from segkit (of methods on few-shot splits, the module of the method), and
all that they import in turn.

A table says that its rows are older by the words "older code", in the table or in the paragraph after it.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grimp

import segkit
from benchmarks.common import RESULTS, digest_of, git, markdown_table, rows_of

ROOT = Path(__file__).parents[1]
STATES = ("current", "older", "unknown code", "without digest")
MARK = "older code"
# What a method is, by the start of its name; all others are segkit's own recipes and their variants.
_METHODS = {
    "forest": "segkit.baselines.forest",
    "convpaint": "segkit.baselines.forest",
    "fcn": "segkit.baselines.fcn",
    "unet": "segkit.baselines.unet",
    "smp": "segkit.baselines.unet",
}
_SEGMENTER = "segkit.segmentation.segmenter"
# Results with a row for each run of a method.
_OF_METHODS = ("segmentation-", "last10-", "ablations-", "external-", "fusion-")

# What a benchmark notes beside its numbers.
_NOTED = "segkit.benchmark.machine"

# Files of a commit, by path, with the names of their contents.
Tree = dict[str, str]


class History:
    """The code of all commits of a repository.

    Parameters
    ----------
    root : Path
        Folder of the repository, which holds segkit/ and configs/.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._contents: dict[str, bytes] = {}
        self._meanings: dict[bytes, str] = {}

    @cached_property
    def commits(self) -> dict[str, Tree]:
        """Trees by the digest of `digest_sources`; of commits with the same digest, one."""
        hashes = git(self.root, "log", "--format=%H", "--", "segkit/*.py", "configs/*.yaml").split()
        trees = [self._tree(commit) for commit in hashes]
        self._read({blob for tree in trees for blob in tree.values()})
        return {self._digest(tree): tree for tree in reversed(trees)}

    def differs(self, digest: str, modules: Iterable[str]) -> bool:
        """Tell whether one of the modules says something else in the commit of a digest than in the working tree."""
        tree = self.commits[digest]
        return any(self._meaning_then(tree, module) != self._meaning_now(module) for module in modules)

    def _meaning_then(self, tree: Tree, module: str) -> str | None:
        for path in _paths(module):
            if path in tree:
                return self._meaning(self._contents[tree[path]])
        return None

    @cache  # noqa: B019
    def _meaning_now(self, module: str) -> str | None:
        for path in _paths(module):
            if (self.root / path).exists():
                return self._meaning((self.root / path).read_bytes())
        return None

    def _meaning(self, content: bytes) -> str:
        if content not in self._meanings:
            self._meanings[content] = meaning_of(content.decode())
        return self._meanings[content]

    def _digest(self, tree: Tree) -> str:
        digest = hashlib.sha256()
        for path, blob in sorted((path.removeprefix("segkit/"), blob) for path, blob in tree.items()):
            digest.update(path.encode() + b"\0" + self._contents[blob])
        return digest.hexdigest()[:12]

    def _tree(self, commit: str) -> Tree:
        listed = git(self.root, "ls-tree", "-r", commit, "--", "segkit", "configs").splitlines()
        files = {path: meta.split()[2] for meta, path in (line.split("\t") for line in listed)}
        return {
            path: blob
            for path, blob in files.items()
            if (path.startswith("segkit/") and path.endswith(".py"))
            or re.fullmatch(r"configs/[^/]+\.yaml", path)
        }

    def _read(self, blobs: set[str]) -> None:
        """Read contents by their names, all by one process."""
        listed = sorted(blobs)
        found = subprocess.run(
            ["git", "cat-file", "--batch"],
            input="\n".join(listed).encode(),
            cwd=self.root,
            capture_output=True,
            check=True,
        ).stdout
        start = 0
        for blob in listed:
            end = found.index(b"\n", start)
            size = int(found[start:end].split()[2])
            self._contents[blob] = found[end + 1 : end + 1 + size]
            start = end + size + 2


def _paths(module: str) -> list[str]:
    """Files that may hold a module."""
    start = module.replace(".", "/")
    return [f"{start}.py", f"{start}/__init__.py"]


def meaning_of(source: str) -> str:
    """Give a module's code without comments, docstrings, words of errors, and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
        elif isinstance(node, ast.Raise):
            node.exc = node.cause = None
    return ast.dump(tree)


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("segkit")


@cache
def with_imports(roots: frozenset[str]) -> frozenset[str]:
    """Modules of segkit, and all that they import in turn."""
    found = set(roots)
    for root in roots:
        found |= _graph().find_upstream_modules(root)
    return frozenset(found)


def modules_of(name: str, row: Mapping[str, Any]) -> frozenset[str]:
    """List the modules that a row of a result file speaks of."""
    if name.startswith(_OF_METHODS):
        starts = (root for start, root in _METHODS.items() if str(row.get("method")).startswith(start))
        return with_imports(frozenset([next(starts, _SEGMENTER)]))
    return with_imports(_imported(_benchmark_of(name)))


def _benchmark_of(name: str) -> Path:
    """Find the benchmark that writes a result file."""
    folder = Path(__file__).parent
    stem = next((stem for stem in (name, name.partition("-")[0]) if (folder / f"{stem}.py").exists()), None)
    return folder / f"{stem}.py" if stem else folder / "tables"


@cache
def _imported(path: Path) -> frozenset[str]:
    """List the modules of segkit that a file, or the files of a folder, import; all if it runs the command line."""
    sources = [file.read_text(encoding="utf-8") for file in (path.glob("*.py") if path.is_dir() else [path])]
    if any(re.search(r'"-m",\s*"segkit', source) for source in sources):
        return frozenset(_graph().modules)
    names = {name for source in sources for name in _names(ast.parse(source))}
    return frozenset(module for name in names if (module := _module(name)) not in (None, _NOTED))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "segkit":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module(name: str) -> str | None:
    """Find the module that an imported name is, or comes from."""
    start, _, last = name.rpartition(".")
    if start == "segkit" and last in segkit.__all__:
        found = getattr(segkit, last)
        return getattr(found, "__module__", None)
    return name if find_spec(start) and name in _graph().modules else start


def state_of(name: str, row: Mapping[str, Any], history: History) -> str:
    """Tell how a row stands to the present code, one of `STATES`."""
    digest = digest_of(row)
    if digest is None:
        return "without digest"
    if digest not in history.commits:
        return "unknown code"
    return "older" if history.differs(digest, modules_of(name, row)) else "current"


def states(path: Path, history: History) -> list[tuple[dict[str, Any], str]]:
    """List the rows of a result file with their states."""
    result = json.loads(path.read_text(encoding="utf-8"))
    return [(row, state_of(path.stem, row, history)) for row in rows_of(result)]


def unmarked(page: str, history: History) -> list[str]:
    """Name the tables of a page that show rows of other code than the present one without saying so."""
    from benchmarks.readme import TABLES, list_files

    found = []
    for name, block in re.findall(
        r"<!-- table (\w+) -->\n(.*?<!-- end -->\n*(?:(?!<!--)[^\n]+\n?)*)", page, re.DOTALL
    ):
        if MARK in block:
            continue
        shown = (
            state
            for path in list_files(TABLES[name][0])
            for row, state in states(path, history)
            if _shows(block, row)
        )
        if any(state != "current" for state in shown):
            found.append(name)
    return found


def _shows(block: str, row: Mapping[str, Any]) -> bool:
    """Tell whether a table shows a row: it names the row's method, or rows have none."""
    from benchmarks.scores import IN_SHORT, TITLES

    method = row.get("method")
    titles = {names[method] for names in (IN_SHORT, TITLES) if method in names}
    return not titles or any(title in block for title in titles)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", metavar="PAGE", type=Path)
    arguments = parser.parse_args()
    history = History()
    if arguments.check:
        if names := unmarked(arguments.check.read_text(encoding="utf-8"), history):
            raise SystemExit(
                f"{arguments.check}: {', '.join(names)} show results of other code than the present one: measure them "
                f'anew, or say "{MARK}" in or under the table (python -m benchmarks.stale lists the rows)'
            )
        return
    total: Counter[str] = Counter()
    lines = []
    for path in sorted(RESULTS.glob("*.json")):
        counts = Counter(state for _, state in states(path, history))
        total += counts
        lines.append([path.name, *(counts[state] or "" for state in STATES)])
    lines.append(["all", *(total[state] for state in STATES)])
    print(markdown_table(["result file", *STATES], lines))


if __name__ == "__main__":
    main()
