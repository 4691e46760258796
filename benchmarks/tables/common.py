"""What the tables share: data sets, rows that outlive a cut, intervals, and ridge classification."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, eigh, solve_triangular
from scipy.sparse.linalg import eigsh

from benchmarks.common import digest_sources, markdown_table, wilson_interval, write_result
from segkit.benchmark.machine import machine
from segkit.evaluation.statistics import student_interval

DATA = Path(__file__).parents[3] / "shared"


class MissingDataError(Exception):
    """A data set that is not where it is looked for."""


@dataclass
class Table:
    """Rows of a table, written as they are finished; a run that was cut takes over those it finished.

    Parameters
    ----------
    name : str
        Name of the result files.
    source : str
        Paper and table.
    quantity : str
        What the values are.
    quick : bool
        Whether sizes are too small for conclusions; the files are then NAME-quick.
    out, data : Path
        Folders of the results and of the data sets.
    notes : sequence of str
        How the measurement differs from the paper's.
    """

    name: str
    source: str
    quantity: str
    quick: bool
    out: Path
    data: Path
    notes: Sequence[str] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = self.out / f"{self.name}{'-quick' if self.quick else ''}.json"
        self._finished = self._of_cut_run()

    def read(self, path: str) -> dict[str, NDArray[Any]]:
        """Read the arrays of an npz file below the data folder."""
        file = self.data / path
        if not file.is_file():
            raise MissingDataError(f"no {file}: give the folder that holds {path} with --data")
        with np.load(file) as arrays:
            return dict(arrays)

    def measure(
        self,
        settings: dict[str, Any],
        function: Callable[[], dict[str, Any]],
        *,
        paper: float | None = None,
        note: str = "",
    ) -> dict[str, Any]:
        """Add a row, by a function that returns its value, interval and what else is worth keeping; give the row."""
        row = next((row for row in self._finished if row["settings"] == settings), None)
        if row is None:
            start = time.perf_counter()
            found = function()
            seconds = time.perf_counter() - start
            row = {"settings": settings, **found, "paper": paper, "quoted": False, "note": note}
            row |= {"seconds": seconds, "sources": digest_sources()}
            print(*settings.values(), f"{row['value']:.4g}", f"({seconds:.1f} s)", flush=True)
        # A note that was added to a finished row stays.
        self._add({**row, "paper": paper, "note": note or row["note"]})
        return self.rows[-1]

    def quote(self, settings: dict[str, Any], value: float, *, note: str = "") -> None:
        """Add a row of the paper that is not measured here."""
        row = {"settings": settings, "value": None, "interval": None, "paper": value, "quoted": True}
        self._add({**row, "note": note, "seconds": 0.0})

    def write(self) -> None:
        """Write the result file and, beside it, the table for reading."""
        result = {
            "name": self.name,
            "source": self.source,
            "quantity": self.quantity,
            "quick": self.quick,
            "complete": True,
            "notes": list(self.notes),
            "rows": self.rows,
            "seconds": sum(row["seconds"] for row in self.rows),
            "machine": machine(),
        }
        write_result(self.path, result)
        self.path.with_suffix(".md").write_text(markdown(result), encoding="utf-8")
        print(f"{self.path.with_suffix('.md')}: {len(self.rows)} rows, {result['seconds']:.0f} s")

    def _add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        # Rows of the cut run that are still to come must survive a second cut.
        done = [row["settings"] for row in self.rows]
        waiting = [row for row in self._finished if row["settings"] not in done]
        write_result(self.path, {"name": self.name, "complete": False, "rows": self.rows + waiting})

    def _of_cut_run(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        earlier = json.loads(self.path.read_text(encoding="utf-8"))
        return [] if earlier["complete"] else list(earlier["rows"])


def markdown(result: dict[str, Any]) -> str:
    """Write a table in Markdown, its numbers beside those of the paper."""
    names = list(dict.fromkeys(name for row in result["rows"] for name in row["settings"]))
    chosen = [chosen_of(row) for row in result["rows"]]
    names_of_cells = [
        *names,
        "measured",
        "95 % interval",
        "paper",
        *(["chosen"] if any(chosen) else []),
        "note",
    ]
    quick = " (quick form: sizes too small for conclusions)" if result["quick"] else ""
    lines = [f"# {result['name']}{quick}", "", f"{result['source']}: {result['quantity']}.", ""]
    lines += [f"- {note}" for note in result["notes"]]
    lines += ["", "| " + " | ".join(names_of_cells) + " |"]
    lines.append("|---" * len(names_of_cells) + "|")
    for row, settings_chosen in zip(result["rows"], chosen, strict=True):
        interval = "" if row["interval"] is None else " to ".join(_cell(bound) for bound in row["interval"])
        note = "; ".join(part for part in ("quoted" if row["quoted"] else "", row["note"]) if part)
        settings = [_cell(row["settings"].get(name)) for name in names]
        cells = [*settings, _cell(row["value"]), interval, _cell(row["paper"])]
        cells += [settings_chosen] if any(chosen) else []
        cells.append(note)
        lines.append("| " + " | ".join(cells) + " |")
    where = f"{result['machine']['n_cores']} cores, {result['machine']['cpu']}"
    return "\n".join([*lines, "", f"{result['seconds']:.0f} s on {where}."]) + "\n"


def to_hundredths(row: dict[str, Any]) -> str:
    """Write the value of a row with its interval, if it has one."""
    interval = "" if row["interval"] is None else " ({:.2f} to {:.2f})".format(*row["interval"])
    return f"{row['value']:.2f}{interval}"


def chosen_of(row: dict[str, Any]) -> str:
    """Say between which values the settings lie that the folds of a row chose, of which that were tried."""
    # other tables note the name of what was chosen
    folds = [fold for fold in row.get("chosen", {}).values() if isinstance(fold, dict)]
    parts = []
    for name in folds[0].get("tried", {}) if folds else ():
        values = dict.fromkeys(f"{choose(fold[name] for fold in folds):g}" for choose in (min, max))
        limits = [
            choose(fold["tried"][name][side] for fold in folds) for side, choose in enumerate((min, max))
        ]
        edges = sum(name in fold["edges"] for fold in folds)
        on_edge = f", on an edge in {edges} folds" if edges else ""
        parts.append(
            f"{name.replace('_', ' ')} {' to '.join(values)} (of {limits[0]:g} to {limits[1]:g}{on_edge})"
        )
    return ", ".join(parts)


def beside_paper(result: dict[str, Any]) -> str:
    """Make the table of a page: numbers beside those of the paper, and the settings that the folds chose."""
    rows = result["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row["settings"]))
    chosen = [chosen_of(row) for row in rows]
    lines = []
    for row, settings in zip(rows, chosen, strict=True):
        lines.append(
            [
                *(_cell(row["settings"].get(name, "")) for name in names),
                "" if row["value"] is None else to_hundredths(row),
                _cell(row["paper"]),
                *([settings] if any(chosen) else []),
            ]
        )
    header = [*names, "measured (95 % interval)", "paper", *(["chosen"] if any(chosen) else [])]
    return markdown_table(header, lines)


def accuracy(predicted: ArrayLike, truth: ArrayLike) -> dict[str, Any]:
    """Percentage of right predictions, with its 95 % interval."""
    right = np.asarray(predicted) == np.asarray(truth)
    interval = [100 * end for end in wilson_interval(int(right.sum()), right.size)]
    return {"value": 100 * float(right.mean()), "interval": interval}


def mean_of_runs(values: Sequence[float]) -> dict[str, Any]:
    """Mean of repetitions, with the 95 % interval of Student's t where there are two or more."""
    runs = [float(value) for value in values]
    centre, interval = float(np.mean(runs)), None
    if len(runs) > 1:
        interval = list(student_interval(runs))
    return {"value": centre, "interval": interval, "runs": runs}


class RegularizedLeastSquares:
    """Ridge regression on targets +-1 for each class, its penalty chosen by leave-one-out.

    With ``X = U S V'`` and leverages ``h_i = sum_j U_ij^2 S_j^2 / (S_j^2 + lambda)`` the prediction
    error without sample i is its residual divided by 1 - h_i. The smaller of X'X and XX' is
    decomposed, once for all penalties.
    """

    PENALTIES = np.logspace(-9, 0, 19)  # relative to the largest eigenvalue

    def fit(self, X: ArrayLike, y: ArrayLike) -> RegularizedLeastSquares:
        """Learn from features (n, n_features) and class labels (n,)."""
        rows = np.asarray(X, dtype=np.float64)
        self.classes_, labels = np.unique(y, return_inverse=True)
        targets = np.where(labels[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)
        is_primal = len(rows) >= rows.shape[1]
        eigenvalues, vectors = eigh(rows.T @ rows if is_primal else rows @ rows.T, driver="evd")
        kept = eigenvalues > len(eigenvalues) * np.finfo(float).eps * eigenvalues[-1]
        eigenvalues, vectors = eigenvalues[kept], vectors[:, kept]
        rotated = rows @ vectors if is_primal else vectors * np.sqrt(eigenvalues)
        coefficients = self._choose(eigenvalues, rotated, targets)
        if is_primal:
            self.coef_ = vectors @ coefficients
        else:
            self.coef_ = rows.T @ (vectors @ (coefficients / np.sqrt(eigenvalues)[:, None]))
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Give the class of the largest score."""
        labels: NDArray[Any] = self.classes_[np.argmax(np.asarray(X) @ self.coef_, axis=1)]
        return labels

    def _choose(
        self, eigenvalues: NDArray[np.float64], rotated: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Coefficients of the least leave-one-out error, in the coordinates of the eigenvectors."""
        products, squares = rotated.T @ targets, rotated**2
        least, best = np.inf, np.zeros_like(products)
        for penalty in self.PENALTIES * eigenvalues[-1]:
            coefficients = products / (eigenvalues + penalty)[:, None]
            leverages = squares @ (1 / (eigenvalues + penalty))
            error = np.mean(((targets - rotated @ coefficients) / (1 - leverages)[:, None]) ** 2)
            if error < least:
                least, best = error, coefficients
        return best


class DualLeastSquares:
    """`RegularizedLeastSquares` of a Gram matrix that is too large to decompose.

    With ``C = K + lambda I`` the prediction error without sample i is ``(C^-1 y)_i / (C^-1)_ii``. Each penalty
    takes a Cholesky factor of C, so the penalties are searched downhill from `START`, and the error is a mean
    over `N_LEFT_OUT` random samples.
    """

    START, N_LEFT_OUT = 5, 1000  # START is a place in the penalties of RegularizedLeastSquares

    def fit(self, gram: NDArray[np.float64], y: ArrayLike, penalty: float | None = None) -> DualLeastSquares:
        """Learn from inner products (n, n), whose diagonal is left changed; a given penalty is not chosen."""
        self.classes_, labels = np.unique(y, return_inverse=True)
        targets = np.where(labels[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)
        largest = float(eigsh(gram, k=1, return_eigenvectors=False, v0=np.ones(len(gram)))[0])
        penalties = [largest * float(relative) for relative in RegularizedLeastSquares.PENALTIES]
        found: dict[float, tuple[float, NDArray[np.float64]]] = {}
        diagonal = np.diag(gram).copy()

        def error(penalty: float) -> float:
            if penalty not in found:
                np.fill_diagonal(gram, diagonal + penalty)
                found[penalty] = self._leave_out(gram, targets)
            return found[penalty][0]

        if penalty is None:
            penalty = penalties[_downhill(lambda place: error(penalties[place]), self.START, len(penalties))]
        self.leave_one_out_, self.dual_coef_ = error(penalty), found[penalty][1]
        self.penalty_, self.relative_penalty_ = penalty, penalty / largest
        return self

    def predict(self, scores: ArrayLike) -> NDArray[Any]:
        """Give the class of the largest score; scores are inner products with training samples @ dual_coef_."""
        labels: NDArray[Any] = self.classes_[np.argmax(np.asarray(scores), axis=1)]
        return labels

    def _leave_out(
        self, system: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]:
        factor = cho_factor(system, lower=True, check_finite=False)
        coefficients = cho_solve(factor, targets, check_finite=False)
        rows = np.random.default_rng(0).permutation(len(system))[: self.N_LEFT_OUT]
        units = np.zeros((len(system), len(rows)))
        units[rows, np.arange(len(rows))] = 1
        columns = solve_triangular(factor[0], units, lower=True, overwrite_b=True, check_finite=False)
        of_inverse = np.square(columns).sum(axis=0)
        return float(np.mean((coefficients[rows] / of_inverse[:, None]) ** 2)), coefficients


def _downhill(value: Callable[[int], float], place: int, n: int) -> int:
    """Go from a place to neighbours of smaller values until there is none."""
    while True:
        lowest = min(range(max(place - 1, 0), min(place + 2, n)), key=value)
        if lowest == place:
            return place
        place = lowest


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
