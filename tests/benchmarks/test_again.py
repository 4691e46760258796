import pytest

from benchmarks.again import again, compare_runs, measured_anew


def run(n_train, seed, images=None, sources=None):
    return {
        "method": "forest",
        "n_train": n_train,
        "seed": seed,
        "images": images or {},
        "sources": sources,
    }


def test_only_rows_of_other_code_are_compared():
    before = [run(1, 0, sources="a"), run(1, 1, sources="a"), run(5, 0), run(5, 9, sources="a")]
    now = [run(5, 0, sources="b"), run(1, 0, sources="b"), run(1, 1, sources="a"), run(5, 1, sources="b")]
    found = [(old["sources"], new["n_train"], new["seed"]) for old, new in measured_anew(before, now)]
    assert found == [(None, 5, 0), ("a", 1, 0)]


def test_images_agree_where_all_counts_are_the_same():
    before = run(1, 0, {"x": [50, 10, 10, 30, 0.9, 0.8, 0.1], "y": [40, 0, 0, 60, 1.0, 1.0, 0.0]})
    now = run(1, 0, {"x": [50, 10, 10, 30, 0.9, 0.8, 0.2], "y": [40, 0, 10, 50, 0.9, 0.8, 0.2]})
    found = compare_runs(before, now)
    assert (found["n_images"], found["n_equal"]) == (2, 1)
    of_x = (50 / 70 + 30 / 50) / 2
    assert found["mean_iou_before"] == pytest.approx((of_x + 1) / 2, abs=1e-6)
    assert found["mean_iou"] == pytest.approx((of_x + (40 / 50 + 50 / 60) / 2) / 2, abs=1e-6)
    assert found["largest"] == pytest.approx(1 - (40 / 50 + 50 / 60) / 2, abs=1e-6)


def test_the_table_tells_how_far_the_rows_moved():
    def row(seed, moved, n_equal):
        return {
            "method": "forest",
            "seed": seed,
            "n_images": 10,
            "n_equal": n_equal,
            "mean_iou_before": 0.5,
            "mean_iou": 0.5 + moved,
            "largest": abs(moved),
        }

    line = again({"rows": [row(0, 0.01, 4), row(1, -0.03, 5)]}).splitlines()[2]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "pixel forest",
        "2",
        "9 of 20",
        "-0.0100",
        "-0.0300",
    ]
