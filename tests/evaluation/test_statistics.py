import numpy as np
import pytest
from scipy.stats import wilcoxon

from segkit.errors import InputError
from segkit.evaluation import statistics
from segkit.evaluation.statistics import (
    bootstrap_interval,
    bootstrap_means,
    compare,
    compare_pooled,
    ratio_interval,
)


def test_bootstrap_interval_covers_the_mean_of_normal_data():
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        low, high = bootstrap_interval(rng.normal(0.7, 0.1, size=40), n_resamples=500, random_state=trial)
        covered += low <= 0.7 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_bootstrap_interval_is_seeded_and_narrow_for_equal_values():
    values = np.linspace(0, 1, 20)
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(np.full(5, 0.25)) == (0.25, 0.25)


def test_records_of_a_cluster_are_drawn_together():
    values, clusters = np.array([0.0, 1.0, 0.0, 1.0]), ["a", "a", "b", "b"]
    assert bootstrap_interval(values, clusters) == (0.5, 0.5)
    low, high = bootstrap_interval(values)
    assert low < 0.5 < high


def test_repeating_every_record_under_another_seed_narrows_nothing():
    values = np.random.default_rng(0).random(15)
    images = np.arange(15)
    once = bootstrap_interval(values, images)
    thrice = bootstrap_interval(np.tile(values, 3), np.tile(images, 3))
    assert thrice == pytest.approx(once)


def test_spread_of_resampled_means_is_the_standard_error():
    values = np.random.default_rng(0).normal(size=400)
    assert bootstrap_means(values).std() == pytest.approx(values.std() / 20, rel=0.05)


def test_resamples_drawn_in_parts_are_those_drawn_at_once(monkeypatch):
    values, clusters = np.random.default_rng(0).random(21), np.arange(21) // 3
    expected = bootstrap_means(values, clusters, n_resamples=100)
    drawn = np.random.default_rng(0).integers(7, size=(100, 7))
    np.testing.assert_allclose(expected, values.reshape(7, 3).mean(axis=1)[drawn].mean(axis=1))
    for at_once in (1, 50):
        monkeypatch.setattr(statistics, "_DRAWN_AT_ONCE", at_once)
        np.testing.assert_array_equal(bootstrap_means(values, clusters, n_resamples=100), expected)


def test_a_comparison_is_paired():
    rng = np.random.default_rng(0)
    difficulty = rng.random(20)
    gain = 0.05 + 0.01 * rng.random(20)
    found = compare(difficulty + gain, difficulty)
    assert found.difference == pytest.approx(gain.mean())
    assert 0.05 < found.interval[0] < found.difference < found.interval[1] < 0.06
    assert found.p_value == pytest.approx(wilcoxon(gain).pvalue)
    assert not found.too_few


def test_ranks_are_of_the_means_of_clusters_however_many_records_they_have():
    rng = np.random.default_rng(0)
    image = np.repeat(np.arange(12), rng.integers(1, 6, 12))
    gain = rng.standard_normal(image.size) + 0.3
    means = [gain[image == index].mean() for index in range(12)]
    assert compare(gain, 0 * gain, image).p_value == pytest.approx(wilcoxon(means).pvalue)
    sums = [gain[image == index].sum() for index in range(12)]
    assert wilcoxon(sums).pvalue != wilcoxon(means).pvalue


@pytest.mark.parametrize(("n_images", "few"), [(9, True), (10, False)])
def test_ten_images_are_enough_to_rank_by(n_images, few):
    assert compare(np.arange(n_images), np.zeros(n_images)).too_few == few


def test_equal_methods_do_not_differ():
    found = compare([0.5, 0.6], [0.5, 0.6])
    assert (found.difference, found.interval, found.p_value, found.too_few) == (0, (0, 0), 1, True)


def test_sets_have_equal_weight_however_many_images_they_have():
    large = (np.full(50, 0.9), np.full(50, 0.8), None)
    small = (np.full(5, 0.5), np.full(5, 0.7), None)
    found = compare_pooled([large, small])
    assert found.difference == pytest.approx((0.1 - 0.2) / 2)
    assert found.n_images == 55


def test_the_interval_of_sets_is_of_all_of_them():
    rng = np.random.default_rng(0)
    sets = [(rng.random(12), np.zeros(12), None), (rng.random(30), np.zeros(30), None)]
    means = [bootstrap_means(first, random_state=number) for number, (first, *_) in enumerate(sets)]
    expected = np.quantile((means[0] + means[1]) / 2, [0.025, 0.975])
    assert compare_pooled(sets).interval == pytest.approx(tuple(expected))


@pytest.mark.parametrize(("first", "second"), [([0.1], [0.1, 0.2]), ([], [])])
def test_scores_must_pair_up(first, second):
    with pytest.raises(InputError, match="give the scores of both on the same images"):
        compare(first, second)


def test_there_must_be_a_set():
    with pytest.raises(InputError, match="no data set to compare on"):
        compare_pooled([])


def test_the_mean_of_a_resample_is_over_its_records():
    """Clusters of unequal size, as where splits test on different images."""
    values, clusters = np.array([0.0, 0.3, 0.5, 0.2, 0.9, 1.0]), np.array(["a", "b", "b", "c", "c", "c"])
    drawn = np.random.default_rng(5).integers(3, size=(50, 3))
    of_cluster = [values[clusters == name] for name in "abc"]
    expected = [np.concatenate([of_cluster[index] for index in row]).mean() for row in drawn]
    np.testing.assert_allclose(bootstrap_means(values, clusters, n_resamples=50, random_state=5), expected)


def test_a_comparison_counts_records_and_resamples_clusters():
    rng = np.random.default_rng(0)
    image = np.repeat(np.arange(9), rng.integers(1, 6, 9))
    gain = rng.standard_normal(9)[image] + 0.1 * rng.standard_normal(image.size)
    found = compare(gain, 0 * gain, image)
    means = bootstrap_means(gain, image)
    assert found.difference == pytest.approx(gain.mean())
    assert found.interval == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))
    low, high = bootstrap_interval(gain)
    assert high - low < 0.8 * (found.interval[1] - found.interval[0])
    by_image = np.mean([gain[image == index].mean() for index in range(9)])
    assert abs(by_image - gain.mean()) > 0.01


@pytest.mark.parametrize("scores", [[], [0.5, float("nan")], [[0.5]]])
def test_scores_must_be_numbers(scores):
    with pytest.raises(InputError, match="give one number for each record"):
        bootstrap_interval(scores)


def test_each_score_has_a_cluster():
    with pytest.raises(InputError, match="3 scores in 2 clusters: give the cluster of each score"):
        bootstrap_interval([0.1, 0.2, 0.3], [0, 1])
    with pytest.raises(InputError, match="3 scores in 2 clusters"):
        compare([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0, 1])
    with pytest.raises(InputError, match="none of them NaN"):
        compare([0.1, float("nan")], [0.1, 0.2])


def test_a_ratio_of_sums_over_equal_denominators_is_a_mean():
    values, clusters = np.random.default_rng(0).random(21), np.arange(21) // 3
    assert ratio_interval(values, np.ones(21), clusters) == pytest.approx(
        bootstrap_interval(values, clusters)
    )


def test_a_resampled_ratio_is_of_the_sums_of_its_records():
    parts, wholes = np.array([1.0, 5, 2, 0, 7]), np.array([2.0, 9, 2, 4, 8])
    drawn = np.random.default_rng(3).integers(5, size=(400, 5))
    ratios = parts[drawn].sum(axis=1) / wholes[drawn].sum(axis=1)
    expected = tuple(np.quantile(ratios, [0.025, 0.975]))
    assert ratio_interval(parts, wholes, n_resamples=400, random_state=3) == pytest.approx(expected)


def test_several_ratios_give_the_interval_of_their_mean():
    parts, wholes = np.random.default_rng(0).random((2, 6, 3))
    drawn = np.random.default_rng(0).integers(6, size=(300, 6))
    means = (parts[drawn].sum(axis=1) / wholes[drawn].sum(axis=1)).mean(axis=1)
    expected = tuple(np.quantile(means, [0.025, 0.975]))
    assert ratio_interval(parts, wholes, n_resamples=300) == pytest.approx(expected)


def test_ratios_drawn_in_parts_are_those_drawn_at_once(monkeypatch):
    parts, wholes = np.random.default_rng(0).random((2, 6, 3))
    expected = ratio_interval(parts, wholes, n_resamples=300)
    monkeypatch.setattr(statistics, "_DRAWN_AT_ONCE", 50)
    assert ratio_interval(parts, wholes, n_resamples=300) == expected


def test_records_without_a_share_in_a_ratio_are_not_drawn():
    assert ratio_interval([1, 0, 3, 0], [2, 0, 3, 0]) == ratio_interval([1, 3], [2, 3])
    assert ratio_interval([0, 2], [0, 0]) is None
    low, high = ratio_interval([1, 2, 1], [0, 4, 2])  # resamples of the first record alone have no ratio
    assert np.isfinite([low, high]).all()


def test_parts_and_wholes_are_numbers_of_the_same_records():
    with pytest.raises(InputError, match="give equal shapes"):
        ratio_interval([1, 2], [1, 2, 3])
    with pytest.raises(InputError, match="2 scores in 1 clusters"):
        ratio_interval([1, 2], [1, 2], [0])
    for wrong in ([], [1, float("nan")]):
        with pytest.raises(InputError, match="at least one, none of them NaN"):
            ratio_interval(wrong, wrong)
