"""Do the tests notice a mistake? Small changes of the code, one at a time, and whether a test fails: a mutation score.

    python -m benchmarks.mutation [--parts PART ...] [--sample N] [--seed S] [--most SECONDS] [--again] [--quick]

A mutant is the code with one such change. cosmic-ray makes them. The packages have thousands, so a uniform random sample of
each package is run, and the score, the share of mutants that a test notices, has Wilson's interval.

Changes:

- + - * / // % ** become each other; so do << >>, and | & ^.
- == != < <= > >= become each other; so do `is` and `is not`.
- A number grows or shrinks by 1.
- True and False, `and` and `or`, `break` and `continue` are swapped.
- A condition of if, while or assert is negated; a minus, a ~ or a `not` is dropped.
- A for loop has no turns, an `except` catches nothing that is raised, a decorator is dropped.

Left out, for no test could notice them, or nearly any test would:

- changes of annotations, of type aliases, of the first argument of `cast`, and of blocks under TYPE_CHECKING;
- arithmetic that becomes bitwise, and the reverse; comparisons that become `is`; a minus that becomes ~ or +;
- code that does not compile, or is the same.

cosmic-ray does not change @, +=, `in`, words, arguments or calls, and drops no statements: nothing is known of those.

A mutant is run with those tests of its own package, and examples of its docstrings, that run the changed statement: the
tests of the module's own file first, then the quickest, up to `--most` seconds of processor time. With a larger `--most`,
survivors of the same sample are run anew, with tests that were left out. Statements that run on import have the tests that
use their function, class or module, and the test that compares defaults with docstrings. Hypothesis has a fixed seed. A
mutant is killed if a test fails, or if the tests take much longer than undisturbed. Which test runs which line is found
once, by coverage.py, and kept in mutants/. Programs that tests start are not followed. So the score errs on the low side:
tests that were left out may notice more.

`--again` runs the survivors of the file anew, after tests were added. equivalent_mutants.json lists survivors that no test
can tell from the code, each with the reason. The file has the score with and without them. Another seed draws another
sample, which is kept beside the first: tests that were written in view of a sample say nothing of its score.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import math
import py_compile
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.common import digest_sources, markdown_table, result_path, write_rows
from benchmarks.mutation_runs import Runs
from segkit import classifier, kernels, segmentation

ROOT = Path(__file__).parents[1]
PARTS = {
    package.__name__.rpartition(".")[2]: package.__name__.replace(".", "/")
    for package in (kernels, classifier, segmentation)
}
# Defaults are statements that run on import.
ON_IMPORT = "tests/test_docstrings.py::test_defaults_are_those_of_the_docstrings"
COPIED = ("segkit", "tests", "configs", "pyproject.toml")
EQUIVALENT = Path(__file__).parent / "equivalent_mutants.json"
MAP = ROOT / "mutants" / "lines.json"
SAMPLE = 60
# The tests of a mutant take no more processor time than this undisturbed; what is slower is left out, and counted.
MOST_SECONDS = 20.0
# A mutant has this many times the undisturbed processor time, and some seconds more.
TIMES, MORE_SECONDS = 4, 20.0
# A test file undisturbed, all its tests, with coverage.
LONGEST_FILE = 1800.0
CONFIDENT = 1.959964
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
LIBRARIES = (
    *("coverage", "hypothesis.extra.numpy", "imageio", "joblib", "numpy", "PIL.Image", "pydantic", "pytest"),
    *("safetensors.numpy", "zarr"),
    *("scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal", "scipy.special", "scipy.stats"),
    *("skimage.filters", "skimage.measure", "skimage.segmentation", "sklearn.ensemble", "sklearn.svm"),
    *("sklearn.model_selection", "threadpoolctl", "tifffile", "torch", "torchvision", "yaml"),
)
_GROUPS = (
    frozenset(("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow")),
    frozenset(("RShift", "LShift")),
    frozenset(("BitOr", "BitAnd", "BitXor")),
    frozenset(("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")),
    frozenset(("Is", "IsNot")),
)


@dataclass(frozen=True)
class Mutant:
    """A change of a module.

    Parameters
    ----------
    module : str
        Path of the module.
    operator : str
        Name of the kind of change, of cosmic-ray.
    occurrence : int
        Which of the places where the module allows it.
    line : int
        Its line.
    """

    module: str
    operator: str
    occurrence: int
    line: int


# --- Mutants --------------------------------------------------------------------------------------


def is_used(operator: str) -> bool:
    """Tell whether a kind of change is one of those above."""
    name = operator.rpartition("/")[2]
    kind, _, rest = name.partition("_")
    if kind in ("ReplaceBinaryOperator", "ReplaceComparisonOperator"):
        return any(set(rest.split("_")) <= group for group in _GROUPS)
    if kind == "ReplaceUnaryOperator":
        return rest in ("Delete_USub", "Delete_Invert", "Delete_Not")
    return True


@cache
def _operators() -> dict[str, Any]:
    from cosmic_ray.plugins import get_operator, operator_names

    classes = {name: get_operator(name) for name in operator_names() if is_used(name)}
    return {name: operator() for name, operator in classes.items() if not operator.arguments()}


def list_mutants(source: str, module: str) -> list[Mutant]:
    """List the mutants of a module; a few of them may not compile."""
    from cosmic_ray.ast import ast_nodes, get_ast

    nodes, code, lines = list(ast_nodes(get_ast(source))), _Code(source), source.split("\n")
    found = []
    for name, operator in _operators().items():
        places = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(places):
            place = (start[0], len(lines[start[0] - 1][: start[1]].encode()))
            if code.counts(place, is_binary="Binary" in name):
                found.append(Mutant(module, name.rpartition("/")[2], occurrence, start[0]))
    return found


def mutate(source: str, mutant: Mutant) -> str | None:
    """Give the changed code; None if it does not compile, or is the same."""
    from cosmic_ray.mutating import mutate_code

    changed: str | None = mutate_code(source, _operators()[f"core/{mutant.operator}"], mutant.occurrence)
    if changed is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            compile(changed, mutant.module, "exec")
    except SyntaxError:
        return None
    return None if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source)) else changed


def change_of(source: str, changed: str) -> str:
    """Write a change in one line."""
    lines = [
        line
        for line in difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    before, after = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return f"{before} -> {after}"


Place = tuple[int, int]


class _Code:
    """What stands where in a module."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self.untold: list[tuple[Place, Place]] = []
        self.operators: list[tuple[Place, Place]] = []
        self._find(self.tree)
        self.untold += [_span(node) for node in self.tree.body if _is_alias(node)]

    def _find(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp):
                self.operators.append((_end(node.left), _span(node.right)[0]))
            elif isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
                self.untold.append(_span(node.annotation))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
                self.untold.append(_span(node.returns))
            elif isinstance(node, ast.Call) and _name(node.func) == "cast" and node.args:
                self.untold.append(_span(node.args[0]))
            elif isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
                self.untold.append((_span(node)[0], _end(node.body[-1])))

    def counts(self, place: Place, *, is_binary: bool) -> bool:
        """Tell whether a change here is one of the code, and, if of a binary operator, of one."""
        if any(start <= place < end for start, end in self.untold):
            return False
        return not is_binary or any(start <= place < end for start, end in self.operators)

    def lines_of(self, line: int) -> tuple[range, bool]:
        """Give the lines of a statement, and True; if it runs on import, those that use it, and False."""
        around = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and _first(node) <= line]
        around = [node for node in around if line <= (node.end_lineno or 0)]
        scopes = [
            node for node in around if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        inner = [
            node for node in scopes if not isinstance(node, ast.ClassDef) and node.body[0].lineno <= line
        ]
        if inner:
            statement = max(around, key=_first)
            body = getattr(statement, "body", None)
            last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or 0
            return range(_first(statement), last + 1), True
        if scopes:
            scope = max(scopes, key=_first)
            return range(scope.body[0].lineno, (scope.end_lineno or 0) + 1), False
        return range(1, (self.tree.body[-1].end_lineno or 0) + 1), False


def _span(node: ast.AST) -> tuple[Place, Place]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _end(node: ast.AST) -> Place:
    return _span(node)[1]


def _first(node: ast.stmt) -> int:
    return min(int(one.lineno) for one in (node, *getattr(node, "decorator_list", ())))


def _name(node: ast.AST) -> str | None:
    return getattr(node, "id", getattr(node, "attr", None))


def _is_alias(node: ast.stmt) -> bool:
    """Tell whether a statement names a type: a name in camel case, and types only."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    name = node.targets[0].id.lstrip("_")
    types = (
        ast.Name | ast.Attribute | ast.Subscript | ast.BinOp | ast.BitOr | ast.Constant | ast.Tuple | ast.List
    )
    return name[:1].isupper() and not name.isupper() and all(
        isinstance(part, types | ast.expr_context) for part in ast.walk(node.value)
    )  # fmt: skip


def draw(mutants: Sequence[Mutant], seed: int, name: str) -> list[Mutant]:
    """Put the mutants of a package in random order: the first of them are a sample."""
    return random.Random(f"{seed} {name}").sample(mutants, len(mutants))


# --- Tests ----------------------------------------------------------------------------------------


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
        lines, is_run = _Code(self.code[mutant.module]).lines_of(mutant.line)
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


# --- Scores ---------------------------------------------------------------------------------------


def wilson(n_hits: float, n: float) -> tuple[float, float]:
    """95 % interval of a share (E. B. Wilson, Journal of the American Statistical Association 22, 1927)."""
    share, square = n_hits / n, CONFIDENT**2
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = CONFIDENT * math.sqrt(share * (1 - share) / n + square / (4 * n**2)) / (1 + square / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def is_killed(row: Mapping[str, Any], *, now: bool = False) -> bool:
    """Tell whether a mutant was noticed, when it was drawn, or by the tests since."""
    return bool((row.get("again", row["outcome"]) if now else row["outcome"]) != "survived")


def is_settled(row: Mapping[str, Any], most_seconds: float) -> bool:
    """Tell whether more time for tests would change nothing."""
    return is_killed(row) or not row["left_out"] or row["limit"] >= most_seconds


def reason_of(row: Mapping[str, Any], reasons: Sequence[Mapping[str, str]]) -> str | None:
    """Say why no test can notice a mutant, if it is listed."""
    for entry in reasons:
        if (entry["module"], entry["change"]) == (row["module"], row["change"]):
            return entry["reason"]
    return None


def score(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Score of mutants of one package and one sample, with and without those that are equivalent."""
    rows = list(rows)
    told: dict[str, Any] = {"sampled": len(rows), "killed": sum(map(is_killed, rows))}
    told["equivalent"] = sum("equivalent" in row for row in rows)
    for name, n in (("", len(rows)), ("_without_equivalent", len(rows) - told["equivalent"])):
        if n:
            told[f"score{name}"] = round(told["killed"] / n, 4)
            told[f"interval{name}"] = [round(end, 4) for end in wilson(told["killed"], n)]
    return told


def pooled(
    scores: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int], kind: str = ""
) -> dict[str, Any]:
    """Score of all packages, each with the weight of its mutants.

    The interval is Wilson's with the effective size of a weighted sample (L. Kish, Survey sampling, 1965).
    """
    weights = {name: sizes[name] / sum(sizes[name] for name in scores) for name in scores}
    share = sum(weight * scores[name][f"score{kind}"] for name, weight in weights.items())
    n = {name: one["sampled"] - (one["equivalent"] if kind else 0) for name, one in scores.items()}
    effective = 1 / sum(weight**2 / n[name] for name, weight in weights.items())
    return {
        f"score{kind}": round(share, 4),
        f"interval{kind}": [round(end, 4) for end in wilson(share * effective, effective)],
    }


def header_of(rows: Sequence[dict[str, Any]], former: Mapping[str, Any]) -> dict[str, Any]:
    """Sum up the rows: of each sample, by its seed, the scores of the packages and of all."""
    header = dict(former)
    header["samples"] = {}
    for seed in sorted({row["seed"] for row in rows}):
        names = sorted({row["package"] for row in rows if row["seed"] == seed})
        of = {
            name: score(row for row in rows if (row["seed"], row["package"]) == (seed, name))
            for name in names
        }
        every: dict[str, Any] = {
            key: sum(one[key] for one in of.values()) for key in ("sampled", "killed", "equivalent")
        }
        for kind in ("", "_without_equivalent"):
            if all(f"score{kind}" in one for one in of.values()):
                every |= pooled(of, header["mutants"], kind)
        header["samples"][str(seed)] = of | {"all": every}
    return header


def mutation(result: dict[str, Any]) -> str:
    """Make the table, and say what became of the survivors."""
    lines = []
    for place, of in enumerate(result["samples"].values()):
        for name, one in of.items():
            own = [
                one.get(f"{key}{kind}")
                for kind in ("", "_without_equivalent")
                for key in ("score", "interval")
            ]
            n_mutants = sum(result["mutants"][part] for part in of if name in (part, "all") and part != "all")
            lines.append(
                (
                    ("first, tests as they were", "second, more tests")[min(place, 1)],
                    "**all**" if name == "all" else f"`segkit/{name}/`",
                    f"{n_mutants:,}",
                    f"{one['killed']} of {one['sampled']}",
                    _share(*own[:2]),
                    one["equivalent"],
                    _share(*own[2:]),
                )
            )
    header = [
        "sample",
        "package",
        "mutants",
        "noticed",
        "score",
        "equivalent",
        "score without equivalent ones",
    ]
    return markdown_table(header, lines) + "\n" + _survivors(result["rows"])


def _survivors(rows: Sequence[Mapping[str, Any]]) -> str:
    first = min(row["seed"] for row in rows)
    lived = [row for row in rows if row["seed"] == first and not is_killed(row)]
    n_equal = sum("equivalent" in row for row in lived)
    n_now = sum(is_killed(row, now=True) for row in lived)
    return (
        f"Of the {len(lived)} survivors of the first sample, {n_now} are noticed by tests that were added since, "
        f"{n_equal} are equivalent, and {len(lived) - n_now - n_equal} still survive."
    )


def _share(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None or interval is None:
        return ""
    return f"{100 * value:.0f} % ({100 * interval[0]:.0f} to {100 * interval[1]:.0f} %)"


# --- Runs -----------------------------------------------------------------------------------------


class Campaign:
    """Rows of a result file, which grow; a run that was cut goes on."""

    def __init__(self, path: Path, code: str, *, reasons: Sequence[Mapping[str, str]] = ()) -> None:
        self.path, self.code, self.reasons = path, code, reasons
        former = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.rows: list[dict[str, Any]] = former.pop("rows", [])
        self.header: dict[str, Any] = {"command": "python -m benchmarks.mutation", "mutants": {}} | former

    def sample(self, bench: Bench, name: str, mutants: Sequence[Mutant], n: int, seed: int) -> None:
        """Try a sample of the mutants of a package."""
        self.header["mutants"][name] = len(mutants)
        mine = [row for row in self.rows if (row["seed"], row["package"]) == (seed, name)]
        done = [row for row in mine if row["code"] == self.code and is_settled(row, bench.most_seconds)]
        self.rows = [row for row in self.rows if row not in mine or row in done]
        known = {_place(row) for row in done}
        n_tried = n_broken = 0
        for mutant in draw(mutants, seed, name):
            if n_tried == n:
                break
            source = bench.code[mutant.module]
            changed = mutate(source, mutant)
            if changed is None:
                n_broken += 1
                continue
            n_tried += 1
            if (mutant.module, mutant.operator, mutant.occurrence) in known:
                continue
            row = {"seed": seed, "package": name, "code": self.code, **vars(mutant)}
            row |= {"change": change_of(source, changed)} | bench.try_out(mutant, changed)
            self.rows.append(row)
            self.write()
            print(f"{n_tried} {row['outcome']} {mutant.module}:{mutant.line} {row['change']}", flush=True)
        self.header.setdefault("not_compiling", {})[f"{seed} {name}"] = n_broken
        self.write()

    def again(self, bench: Bench, name: str) -> None:
        """Try the survivors of a package anew."""
        for row in self.rows:
            if row["package"] != name or is_killed(row, now=True) or "equivalent" in row:
                continue
            mutant = Mutant(row["module"], row["operator"], row["occurrence"], row["line"])
            source = bench.code[mutant.module]
            changed = mutate(source, mutant)
            if changed is None or change_of(source, changed) != row["change"]:
                print(f"other code now: {row['module']}:{row['line']} {row['change']}", flush=True)
                continue
            told = bench.try_out(mutant, changed)
            row["again"] = told["outcome"]
            if "by" in told:
                row["again_by"] = told["by"]
            self.write()
            print(f"{row['again']} {row['module']}:{row['line']} {row['change']}", flush=True)

    def write(self) -> None:
        """Write the file."""
        for row in self.rows:
            row.pop("equivalent", None)
            if not is_killed(row, now=True) and (reason := reason_of(row, self.reasons)):
                row["equivalent"] = reason
        write_rows(self.path, header_of(self.rows, self.header), self.rows)


def _place(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return str(row["module"]), str(row["operator"]), int(row["occurrence"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="packages")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="mutants of each package")
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed is another sample, kept beside the first"
    )
    parser.add_argument(
        "--most", type=float, default=MOST_SECONDS, help="processor time of the tests of a mutant, in seconds"
    )
    parser.add_argument("--again", action="store_true", help="run the survivors of the file anew, draw none")
    parser.add_argument("--quick", action="store_true", help="a few mutants of one module: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    parts, n = arguments.parts, arguments.sample
    if arguments.quick:
        parts, n = ["kernels"], 4
    reasons = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / "copy"
        copy.mkdir()
        copy_tree(ROOT, copy, COPIED)
        kept = Path(folder) / "lines.json" if arguments.quick else MAP
        with Runs(copy, LIBRARIES) as runs:
            campaign = Campaign(result_path(arguments, "mutation.json"), digest_sources(), reasons=reasons)
            for part in parts:
                code, tests, on_import = [PARTS[part]], [f"tests/{part}", PARTS[part]], [ON_IMPORT]
                if arguments.quick:
                    code, tests = ["segkit/kernels/frequencies.py"], ["tests/kernels/test_frequencies.py"]
                    on_import = []
                bench = Bench(copy, runs, code, tests, kept, on_import=on_import, most_seconds=arguments.most)
                bench.learn()
                if arguments.again:
                    campaign.again(bench, part)
                else:
                    campaign.sample(bench, part, bench.mutants(), n, arguments.seed)
            campaign.write()
    print(mutation(json.loads(campaign.path.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
