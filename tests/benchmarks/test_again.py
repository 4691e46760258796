import pytest

from benchmarks.again import MOST_TRAINING_IMAGES, again, compare_runs, draw


def run(name, n_train, seed, images=None):
    return {"set": name, "method": "forest", "n_train": n_train, "seed": seed, "images": images or {}}


@pytest.fixture
def runs():
    return [run(name, n_train, seed) for name in "ab" for n_train in (1, 5, 15) for seed in range(3)]


def test_the_sets_take_turns_and_no_row_is_drawn_twice(runs):
    drawn = draw(runs, 6)
    assert [row["set"] for row in drawn] == ["a", "b"] * 3
    assert len({(row["set"], row["n_train"], row["seed"]) for row in drawn}) == 6


def test_only_few_training_images_are_drawn(runs):
    drawn = draw(runs, 100)
    assert len(drawn) == 12
    assert max(row["n_train"] for row in drawn) == MOST_TRAINING_IMAGES


def test_the_draw_depends_on_its_seed_only(runs):
    assert draw(runs, 4) == draw(runs[::-1], 4)
    assert any(draw(runs, 4, seed=seed) != draw(runs, 4) for seed in range(1, 5))


def test_images_agree_where_all_counts_are_the_same():
    before = run("a", 1, 0, {"x": [50, 10, 10, 30, 0.9, 0.8, 0.1], "y": [40, 0, 0, 60, 1.0, 1.0, 0.0]})
    now = run("a", 1, 0, {"x": [50, 10, 10, 30, 0.9, 0.8, 0.2], "y": [40, 0, 10, 50, 0.9, 0.8, 0.2]})
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
