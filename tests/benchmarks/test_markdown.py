import numpy as np
import pytest

from benchmarks.markdown import _EDGE, broken, difference_of, interval_of, markdown_table, mean_of, paired
from segkit.evaluation.statistics import N_RESAMPLES, Comparison, bootstrap_interval, compare, compare_pooled

SCORES = {(0, "a"): 0.5, (0, "b"): 0.7, (1, "b"): 0.6, (1, "c"): 0.9}


def test_intervals_of_a_mean_are_over_seeds_and_images():
    expected = bootstrap_interval([0.5, 0.7, 0.6, 0.9], ["a", "b", "b", "c"], [0, 0, 1, 1])
    assert interval_of(SCORES) == pytest.approx(expected)
    assert mean_of(SCORES) == f"0.675 ({expected[0]:.3f} to {expected[1]:.3f})"


def test_a_mean_of_one_seed_says_so():
    assert mean_of({(3, "a"): 0.5, (3, "b"): 0.5}) == "0.500 (0.500 to 0.500), images only"


def test_scores_are_paired_by_seed_and_image():
    others = {(1, "b"): 0.1, (0, "a"): 0.2, (1, "x"): 0.3}
    assert paired(SCORES, others) == ([0.5, 0.6], [0.2, 0.1], ["a", "b"], [0, 1])
    assert paired(SCORES, {(7, "a"): 0.2}) is None


def test_a_difference_says_where_there_is_one_seed():
    values, image = np.full(4, 0.25), [0, 1, 0, 1]
    several, alone = (values, 0 * values, image, [0, 0, 1, 1]), (values, 0 * values, image, None)
    told = "+0.250 (+0.250 to +0.250)"
    assert difference_of(compare(*several)) == told
    assert difference_of(compare(*alone)) == f"{told}, images only"
    assert difference_of(compare_pooled([alone, alone])) == f"{told}, images only"
    assert difference_of(compare_pooled([several, alone])) == f"{told}, images only on 1 of 2 sets"


def test_a_difference_says_whether_it_may_be_chance():
    image, seeds = [0, 1, 0, 1], [0, 0, 1, 1]
    sure = compare([0.9] * 4, [0.5] * 4, image, seeds)
    doubtful = compare([0.5, 0.6, 0.5, 0.6], [0.6, 0.5, 0.5, 0.6], image, seeds)
    assert "chance" not in difference_of(sure, doubt=True)
    assert difference_of(doubtful, doubt=True).endswith("), may be chance")
    assert "chance" not in difference_of(doubtful)


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ((0.0005, 0.1), "on the edge of chance"),
        ((-0.1, -0.0005), "on the edge of chance"),
        ((-0.0005, 0.1), "on the edge of chance"),
        ((-0.003, 0.1), "may be chance"),
        ((0.0, 0.0), "may be chance"),
        ((0.003, 0.1), ""),
    ],
)
def test_a_difference_is_on_the_edge_where_resampling_could_move_it_across_zero(interval, told):
    found = difference_of(Comparison(0.05, interval, 0.04, 20, (2,)), doubt=True)
    assert found.partition("), ")[2] == told


def test_the_edge_is_two_standard_errors_of_an_end(rng):
    """Intervals of normal resamples: how their ends vary from seed to seed."""
    ends = np.quantile(rng.standard_normal((200, N_RESAMPLES)), [0.025, 0.975], axis=1)
    assert _EDGE * np.mean(ends[1] - ends[0]) == pytest.approx(2 * ends.std(axis=1).mean(), rel=0.15)


def test_a_cell_is_broken_before_its_interval_which_stays_whole():
    assert broken("+0.1 (-0.1 to +0.2), images only") == "+0.1<br>(-0.1\u00a0to\u00a0+0.2)<br>images only"


def test_a_table_has_floats_of_three_digits():
    assert markdown_table(("a", "b"), [(0.12345, "x")]) == "| a | b |\n| --- | --- |\n| 0.123 | x |\n"
