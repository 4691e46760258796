"""Do the tests notice a mistake? Small changes of the code, one at a time, and whether a test fails: a mutation score.

    python -m benchmarks.mutation [--parts PART ...] [--sample N] [--seed S] [--most SECONDS] [--again] [--quick]

A mutant is the code with one such change. cosmic-ray makes them. The packages have thousands, so a uniform random sample of
each package is run, and the score, the share of mutants that a test notices, has Wilson's interval.

`benchmarks/mutants.py` lists the changes, and those that are left out.

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
import json
import random
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import digest_sources, markdown_table, result_path, wilson_interval, write_rows
from benchmarks.mutants import Mutant, change_of, mutate
from benchmarks.mutation_bench import MOST_SECONDS, Bench, copy_tree
from benchmarks.mutation_runs import Runs
from segkit import classifier, kernels, segmentation

ROOT = Path(__file__).parents[1]
PARTS = {
    package.__name__.rpartition(".")[2]: package.__name__.replace(".", "/")
    for package in (kernels, classifier, segmentation)
}
# Defaults are statements that run on import.
ON_IMPORT = "tests/test_public_api.py::test_defaults_are_those_of_the_docstrings"
COPIED = ("segkit", "tests", "configs", "pyproject.toml")
EQUIVALENT = Path(__file__).parent / "equivalent_mutants.json"
MAP = ROOT / "mutants" / "lines.json"
SAMPLE = 60
ALL = "all"
LIBRARIES = (
    *("coverage", "hypothesis.extra.numpy", "imageio", "joblib", "numpy", "PIL.Image", "pydantic", "pytest"),
    *("safetensors.numpy", "zarr"),
    *("scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal", "scipy.special", "scipy.stats"),
    *("skimage.filters", "skimage.measure", "skimage.segmentation", "sklearn.ensemble", "sklearn.svm"),
    *("sklearn.model_selection", "threadpoolctl", "tifffile", "torch", "torchvision", "yaml"),
)


def draw(mutants: Sequence[Mutant], seed: int, name: str) -> list[Mutant]:
    """Put the mutants of a package in random order: the first of them are a sample."""
    return random.Random(f"{seed} {name}").sample(mutants, len(mutants))


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
            told[f"interval{name}"] = [round(end, 4) for end in wilson_interval(told["killed"], n)]
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
        f"interval{kind}": [round(end, 4) for end in wilson_interval(share * effective, effective)],
    }


def _of_all(scores: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Sum up the scores of packages."""
    every: dict[str, Any] = {
        key: sum(one[key] for one in scores.values()) for key in ("sampled", "killed", "equivalent")
    }
    for kind in ("", "_without_equivalent"):
        if all(f"score{kind}" in one for one in scores.values()):
            every |= pooled(scores, sizes, kind)
    return every


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
        header["samples"][str(seed)] = of | {ALL: _of_all(of, header["mutants"])}
    return header


def mutation(result: dict[str, Any]) -> str:
    """Make the table, and say what became of the survivors."""
    names = ("first, tests as they were", "second, more tests", "third, more tests again")
    samples: list[tuple[str, Mapping[str, Any]]] = [
        (names[place] if place < len(names) else f"number {place + 1}", of)
        for place, of in enumerate(result["samples"].values())
    ]
    if len(samples) > 1:
        parts = {name: one for _, of in samples for name, one in of.items() if name != ALL}
        samples.append(("last of each package", {ALL: _of_all(parts, result["mutants"])}))
    lines = [
        _line(sample, name, one, result["mutants"])
        for sample, of in samples
        for name, one in of.items()
        # of one package it is that package
        if name != ALL or len(of) != 2
    ]
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


def _line(sample: str, name: str, one: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    own = [one.get(f"{key}{kind}") for kind in ("", "_without_equivalent") for key in ("score", "interval")]
    return (
        sample,
        "**all**" if name == ALL else f"`segkit/{name}/`",
        f"{sum(sizes.values()) if name == ALL else sizes[name]:,}",
        f"{one['killed']} of {one['sampled']}",
        _share(*own[:2]),
        one["equivalent"],
        _share(*own[2:]),
    )


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
