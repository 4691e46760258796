"""A benchmark on workers has the results of one process."""

import pytest

from segkit.benchmark import Benchmark
from segkit.errors import ClusterError
from tests.benchmark.conftest import folder, small_forest  # noqa: F401

pytest.importorskip("distributed")


def benchmark(place, output, methods):
    return Benchmark(place / "images", place / "masks", output, methods, [1, 2], [0])


def scores(result):
    return [
        {name: value for name, value in record.items() if not name.endswith(("_seconds", "_mib"))}
        for record in result["records"]
    ]


@pytest.mark.slow
def test_runs_on_workers_give_the_same_scores(cluster, folder, small_forest, tmp_path):  # noqa: F811
    plain = benchmark(folder, tmp_path / "plain", [small_forest]).run()
    spread = benchmark(folder, tmp_path / "spread", [small_forest]).run(n_jobs=cluster)
    assert (plain["failures"], spread["failures"]) == ([], [])
    assert len(spread["records"]) == len(plain["records"]) > 0
    assert scores(spread) == scores(plain)


def test_a_run_whose_workers_died_has_failed(units_here, folder, small_forest, tmp_path):  # noqa: F811
    def deadly(run, units):
        first, *others = units
        yield first, lambda: (_ for _ in ()).throw(ClusterError("each worker that worked on it died"))
        for unit in others:
            yield unit, lambda unit=unit: run(unit)

    said = []
    run = benchmark(folder, tmp_path / "out", [small_forest])
    result = run.run(notify=said.append, n_jobs=deadly)
    assert [failure["error"] for failure in result["failures"]] == ["each worker that worked on it died"]
    assert said == [f"{run.units[0].name} failed: each worker that worked on it died"]
    assert benchmark(folder, tmp_path / "out", [small_forest]).run()["failures"] == []
