import json
import math
import os
import tomllib

import pytest

pytest.importorskip("cosmic_ray", reason="cosmic-ray makes the mutants")
pytest.importorskip("coverage", reason="coverage.py finds which test runs which line")
if not hasattr(os, "fork"):
    pytest.skip("runs of tests are forks", allow_module_level=True)

from benchmarks.common import wilson_interval
from benchmarks.mutants import Mutant, change_of, list_mutants, mutate
from benchmarks.mutation import EQUIVALENT, ROOT, Campaign, draw, mutation, pooled, score
from benchmarks.mutation_bench import Bench, copy_tree
from benchmarks.mutation_runs import Runs

SOURCE = '''"""Area."""

from typing import cast

Length = int | float
LIMIT = 10


def area(width: Length, height: int | None = None) -> float | None:
    """Width * height."""
    if height is None:
        return None
    return cast(float | int, width * height)


def is_large(width: int, *, limit: int = LIMIT) -> bool:
    return width > limit
'''
TESTS = """from toy.one import area, is_large


def test_area():
    assert area(3, 4) == 12
    assert area(3) is None


def test_large():
    assert is_large(50)
    assert not is_large(2)
"""


def changes(source):
    mutants = list_mutants(source, "toy/one.py")
    return sorted(change_of(source, changed) for mutant in mutants if (changed := mutate(source, mutant)))


def test_the_mutants_of_a_function_are_known():
    source = "def double(x: int | None, *rest) -> int | None:\n    return x * 2\n"
    others = ["+", "-", "/", "//", "%", "**"]
    expected = [f"return x {other} 2" for other in others] + ["return x * 1", "return x * 3"]
    assert changes(source) == sorted(f"return x * 2 -> {after}" for after in expected)


def test_annotations_aliases_and_casts_have_no_mutants():
    before = {change.partition(" -> ")[0] for change in changes(SOURCE)}
    assert before == {
        "LIMIT = 10",
        "if height is None:",
        "return cast(float | int, width * height)",
        "return width > limit",
    }
    assert not any("float | int" not in change for change in changes(SOURCE) if "cast" in change)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("while not found:\n    pass\n", {"while  found:", "while not not found:"}),
        ("for x in rows:\n    pass\n", {"for x in []:"}),
        ("@property\ndef f(self):\n    pass\n", {""}),
        ("if a is None:\n    pass\n", {"if a is not None:", "if not a is None:"}),
        ("f(*b, **a)\nx = {**a}\n\n\ndef g(a, /, *, b):\n    pass\n", set()),
        ("if TYPE_CHECKING:\n    x = 1\n", set()),
        ("é = 'é' + a | b\n", {f"é = 'é' {op} a | b" for op in ("-", "*", "/", "//", "%", "**")}
         | {"é = 'é' + a & b", "é = 'é' + a ^ b"}),
    ],
)  # fmt: skip
def test_kinds_of_changes(source, expected):
    assert {change.partition(" -> ")[2] for change in changes(source)} == expected


def test_a_sample_of_another_seed_is_another_and_a_longer_one_holds_the_shorter():
    mutants = [Mutant("a.py", "AddNot", place, 1) for place in range(50)]
    assert draw(mutants, 0, "a") == draw(mutants, 0, "a") != draw(mutants, 1, "a")
    assert sorted(draw(mutants, 0, "a"), key=lambda mutant: mutant.occurrence) == mutants


@pytest.mark.parametrize(("n_hits", "n"), [(0, 10), (7, 10), (10, 10), (51, 60)])
def test_wilson_has_the_shares_from_which_the_measured_one_is_as_far_as_chance_goes(n_hits, n):
    """Both ends p solve |p - hits / n| = 1.96 sqrt(p (1 - p) / n)."""
    for end in wilson_interval(n_hits, n):
        assert abs(end - n_hits / n) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / n), abs=1e-7)
    low, high = wilson_interval(n_hits, n)
    assert low < high


def test_packages_weigh_as_many_as_their_mutants():
    rows = {
        "a": [{"outcome": "killed"}] * 10,
        "b": [{"outcome": "survived"}] * 5 + [{"outcome": "timed out"}] * 5,
    }
    scores = {name: score(of) for name, of in rows.items()}
    assert (scores["a"]["score"], scores["b"]["score"]) == (1.0, 0.5)
    assert pooled(scores, {"a": 300, "b": 100})["score"] == pytest.approx(0.875)
    assert pooled(scores, {"a": 100, "b": 100})["interval"] == pytest.approx(
        wilson_interval(15, 20), abs=1e-4
    )


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutation")
    for name, text in (("toy/one.py", SOURCE), ("tests/toy/test_one.py", TESTS), ("toy/__init__.py", "")):
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tree" / name).write_text(text, encoding="utf-8")
    (folder / "copy").mkdir()
    copy_tree(folder / "tree", folder / "copy", ["toy", "tests"])
    with Runs(folder / "copy", ["coverage", "pytest"]) as runs:
        bench = Bench(folder / "copy", runs, ["toy"], ["tests/toy", "toy"], folder / "lines.json")
        bench.learn()
        yield bench


def find(change):
    for mutant in list_mutants(SOURCE, "toy/one.py"):
        changed = mutate(SOURCE, mutant)
        if changed and change_of(SOURCE, changed).endswith(f"-> {change}"):
            return mutant, changed
    raise AssertionError(change)


def test_each_statement_has_the_tests_that_run_it(bench):
    area, large = "tests/toy/test_one.py::test_area", "tests/toy/test_one.py::test_large"
    expected = {
        "return cast(float | int, width + height)": {area},
        "return width < limit": {large},
        "LIMIT = 11": {area, large},
    }
    for change, tests in expected.items():
        assert set(bench.tests_of(find(change)[0])[0]) == tests


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ("return cast(float | int, width + height)", "killed"),
        ("return width < limit", "killed"),
        ("return width >= limit", "survived"),
        ("LIMIT = 11", "survived"),
    ],
)
def test_killed_and_surviving_mutants_are_told_apart(bench, change, outcome):
    told = bench.try_out(*find(change))
    assert told["outcome"] == outcome
    assert ("by" in told) == (outcome == "killed")
    assert (bench.root / "toy" / "one.py").read_text(encoding="utf-8") == SOURCE


def test_tests_without_end_are_killed(bench):
    mutant, changed = find("return width < limit")
    told = bench.runs(["-q", "-p", "no:cacheprovider", "tests/toy/test_one.py"], 0.0)
    assert told["timed_out"] or told["status"] is None
    endless = changed.replace("    return width < limit", "    while True:\n        pass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.mutation_bench.MORE_SECONDS", 1.0)
        assert bench.try_out(mutant, endless)["outcome"] == "timed out"


def test_a_run_that_was_cut_goes_on(bench, tmp_path):
    path, mutants = tmp_path / "mutation.json", bench.mutants()
    Campaign(path, "code").sample(bench, "toy", mutants, 3, seed=0)
    first = json.loads(path.read_text(encoding="utf-8"))
    assert len(first["rows"]) == 3
    tried = []
    again = Campaign(path, "code")
    with pytest.MonkeyPatch.context() as patch:
        try_out = bench.try_out
        patch.setattr(bench, "try_out", lambda *args: tried.append(args) or try_out(*args))
        again.sample(bench, "toy", mutants, 5, seed=0)
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert whole["rows"][:3] == first["rows"]
    assert (len(tried), len(whole["rows"])) == (2, 5)
    assert whole["samples"]["0"]["toy"]["sampled"] == 5
    # other code is measured anew
    Campaign(path, "other").sample(bench, "toy", mutants, 1, seed=0)
    assert [row["code"] for row in json.loads(path.read_text(encoding="utf-8"))["rows"]] == ["other"]


def test_more_time_goes_to_survivors_whose_tests_were_left_out(bench, tmp_path):
    path, mutants = tmp_path / "mutation.json", bench.mutants()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "most_seconds", -1.0)  # some tests take no measurable time
        Campaign(path, "code").sample(bench, "toy", mutants, 99, seed=0)
        none = json.loads(path.read_text(encoding="utf-8"))["rows"]
        assert all(row["outcome"] == "survived" and row["left_out"] for row in none)
    Campaign(path, "code").sample(bench, "toy", mutants, 99, seed=0)
    whole = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert len(whole) == len(none)
    assert {row["outcome"] for row in whole} == {"killed", "survived"}
    assert not any(row["left_out"] for row in whole)


def test_survivors_are_run_again_and_equivalent_ones_are_told(bench, tmp_path):
    path = tmp_path / "mutation.json"
    reasons = [{"module": "toy/one.py", "change": "LIMIT = 10 -> LIMIT = 11", "reason": "any number will do"}]
    campaign = Campaign(path, "code", reasons=reasons)
    campaign.sample(bench, "toy", bench.mutants(), 99, seed=0)
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["change"] for row in rows if row.get("equivalent") == "any number will do"] == [
        "LIMIT = 10 -> LIMIT = 11"
    ]
    of = json.loads(path.read_text(encoding="utf-8"))["samples"]["0"]["toy"]
    assert of["score"] < of["score_without_equivalent"] == round(of["killed"] / (of["sampled"] - 1), 4)
    test = bench.root / "tests" / "toy" / "test_one.py"
    test.write_text(TESTS + "    assert not is_large(10)\n", encoding="utf-8")
    try:
        bench.learn()
        campaign.again(bench, "toy")
    finally:
        test.write_text(TESTS, encoding="utf-8")
    again = {row["change"].partition(" -> ")[2]: row["again"] for row in campaign.rows if "again" in row}
    assert again["return width >= limit"] == "killed"
    assert again["LIMIT = 9"] == "killed"
    assert "| `segkit/toy/` |" in mutation(json.loads(path.read_text(encoding="utf-8")))


def test_the_last_sample_of_each_package_makes_the_last_line():
    def scored(killed, sampled):
        return {"killed": killed, "sampled": sampled, "equivalent": 0} | {
            f"{key}{kind}": value
            for kind in ("", "_without_equivalent")
            for key, value in (("score", killed / sampled), ("interval", [0.0, 1.0]))
        }

    samples = {
        "0": {"a": scored(5, 10), "b": scored(5, 10), "all": scored(10, 20)},
        "1": {"b": scored(9, 10), "all": scored(9, 10)},
    }
    row = {"seed": 0, "outcome": "killed"}
    lines = mutation({"samples": samples, "mutants": {"a": 100, "b": 300}, "rows": [row]}).splitlines()
    first, second = "first, tests as they were", "second, more tests"
    begins = [line.split(" | ")[:4] for line in lines[2:7]]
    assert begins[:4] == [
        [f"| {first}", "`segkit/a/`", "100", "5 of 10"],
        [f"| {first}", "`segkit/b/`", "300", "5 of 10"],
        [f"| {first}", "**all**", "400", "10 of 20"],
        [f"| {second}", "`segkit/b/`", "300", "9 of 10"],
    ]
    # a quarter of 50 % and three quarters of 90 %
    assert lines[6].startswith("| last of each package | **all** | 400 | 14 of 20 | 80 % (")


def test_a_fixture_of_a_module_counts_for_all_tests_that_use_it(tmp_path):
    tests = (
        "import pytest\nfrom toy.one import area\n\n\n"
        "@pytest.fixture(scope='module')\ndef made():\n    return area(3, 4)\n\n\n"
        "def test_some(made):\n    assert made\n\n\ndef test_value(made):\n    assert made == 12\n"
    )
    for name, text in (("toy/one.py", SOURCE), ("tests/toy/test_one.py", tests), ("toy/__init__.py", "")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    with Runs(tmp_path, ["coverage", "pytest"]) as runs:
        bench = Bench(tmp_path, runs, ["toy"], ["tests/toy"], tmp_path / "lines.json")
        bench.learn()
        told = bench.try_out(*find("return cast(float | int, width + height)"))
    assert told["by"] == "tests/toy/test_one.py::test_value"


def test_each_listed_equivalent_mutant_has_a_module_and_a_reason():
    for entry in json.loads(EQUIVALENT.read_text(encoding="utf-8")):
        before, arrow, _ = entry["change"].partition(" -> ")
        assert arrow
        lines = (ROOT / entry["module"]).read_text(encoding="utf-8").splitlines()
        assert before.split("  ")[0] in " ".join(line.strip() for line in lines)
        assert len(entry["reason"]) > 20


def test_what_the_benchmark_imports_is_in_the_extra_for_development():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    names = {requirement.partition(">")[0] for requirement in extras["dev"]}
    assert {"cosmic-ray", "coverage"} <= names
