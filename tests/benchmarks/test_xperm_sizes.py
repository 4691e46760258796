import numpy as np
import pytest

from benchmarks.tables.xperm import Representation, multisets, sequences
from benchmarks.tables.xperm_sizes import (
    N_PERMUTATIONS,
    QUICK,
    cdf,
    fewest_columns,
    grid,
    permutation_task,
    run,
)


def test_fewer_columns_keep_inner_products():
    features = np.random.default_rng(0).standard_normal((4, 9))
    fewer = fewest_columns(features)
    assert fewer.shape == (4, 4)
    np.testing.assert_allclose(fewer @ fewer.T, features @ features.T)
    np.testing.assert_array_equal(fewest_columns(features.T), features.T)


@pytest.mark.parametrize(("n_elements", "is_invariant"), [(N_PERMUTATIONS, True), (3, False)])
def test_only_all_permutations_make_features_of_multisets(n_elements, is_invariant):
    found = cdf(5, 2, n_elements, "[-s, s]", 0)
    assert isinstance(found, Representation)
    of_sequences = found.features[found.rows]
    assert len(of_sequences) == len(sequences())
    first, orbit = multisets()[1][0], multisets()[1]
    of_others = [np.flatnonzero(orbit == place) for place in (first, orbit[12345])]
    spread = max(np.ptp(of_sequences[rows], axis=0).max() for rows in of_others)
    assert (spread == 0) == is_invariant


def test_the_range_of_the_data_has_other_thresholds():
    usual, narrow = (cdf(2, 1, N_PERMUTATIONS, reach, 0).features for reach in ("[-s, s]", "data"))
    assert usual.shape == narrow.shape
    varying = [np.count_nonzero(np.ptp(features, axis=0) > 1e-12) for features in (usual, narrow)]
    assert varying[1] > varying[0]


def test_the_grid_has_both_panels_once():
    cells = grid(QUICK)
    assert len(cells) == len(set(cells)) == 4 + 2 + 2
    assert {cell[2] for cell in cells} == {2, N_PERMUTATIONS}


def test_panels_are_shown_apart():
    def row(value, **settings):
        return {"settings": settings, "value": value, "interval": [value - 1, value + 1]}

    rows = [
        row(80.0, features="raw"),
        row(90.0, features="CDF", n=25, m=1, permutations=120, range="[-s, s]"),
        row(92.0, features="CDF", n=25, m=50, permutations=120, range="[-s, s]"),
        row(93.0, features="CDF", n=25, m=1, permutations=120, range="data"),
        row(70.0, features="CDF", n=25, m=1, permutations=5, range="[-s, s]"),
    ]
    assert permutation_task({"rows": rows}).splitlines() == [
        "| bins n | 1 template | 50 templates |",
        "| --- | --- | --- |",
        "| 25 | 90.00 (89.00 to 91.00) | 92.00 (91.00 to 93.00) |",
        "",
        "| permutations | 1 template |",
        "| --- | --- |",
        "| 5 | 70.00 (69.00 to 71.00) |",
        "| 120 | 90.00 (89.00 to 91.00) |",
        "",
        "Without templates: raw 80.00 (79.00 to 81.00).",
    ]


def test_the_quick_form_learns_what_raw_features_cannot(tmp_path):
    run("000-figure4", quick=True, out=tmp_path, data=tmp_path)
    text = (tmp_path / "000-figure4-quick.md").read_text(encoding="utf-8")
    values = {
        line.split("|")[1].strip(): line.split("|")[6] for line in text.splitlines() if line.startswith("| ")
    }
    assert float(values["Haar kernel"]) > 99 > float(values["raw"])
