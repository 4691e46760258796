import numpy as np
import pytest

from benchmarks.tables.common import DATA, MissingDataError, Table
from benchmarks.tables.few_digits import LAYERS, PAPERS_LAYER, layers, layers_of_windows


def test_all_kernels_of_layers_have_degree_eight():
    images = np.random.default_rng(0).uniform(0.5, 1, size=(1, 12, 12))
    for name, kernel in LAYERS.items():
        near, far = (float(kernel(factor * images)[0, 0]) for factor in (1e4, 2e4))
        # a kernel of degree 8 in x and in y
        assert far / near == pytest.approx(2**16, rel=1e-3), name


def test_differences_are_of_the_same_draws():
    def row(method, runs):
        settings = {"data": "3 draws of digits", "training images": 100, "method": method}
        return {"settings": settings, "value": float(np.mean(runs)), "interval": [70, 90], "runs": runs}

    other = {"settings": {"data": "digits", "training images": 100, "method": "SVM"}}
    rows = [other, row(PAPERS_LAYER, [80, 82, 84]), row("two", [81, 83, 86])]
    lines = layers_of_windows({"rows": rows}).splitlines()
    assert len(lines) == 4
    assert lines[2].endswith("| 82.00 (70.00 to 90.00) |  |")
    assert "| +1.33 (-0.10 to +2.77) |" in lines[3]


def test_the_quick_form_measures_every_kernel(tmp_path):
    table = Table("layers", "", "", True, tmp_path, DATA)
    try:
        layers(table, quick=True)
    except MissingDataError:
        pytest.skip("no ../shared")
    assert len(table.rows) == 2 * len(LAYERS)
    for row in table.rows:
        assert row["value"] == pytest.approx(np.mean(row["runs"]))
        assert row["value"] > 30  # chance is 10
