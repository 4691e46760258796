"""Small changes of a module, one at a time: mutants, made by cosmic-ray.

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
"""

from __future__ import annotations

import ast
import difflib
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

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

    nodes, code, lines = list(ast_nodes(get_ast(source))), SourceMap(source), source.split("\n")
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


class SourceMap:
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
