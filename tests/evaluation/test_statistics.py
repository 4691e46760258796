import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp, wilcoxon

from segkit.errors import InputError
from segkit.evaluation import statistics
from segkit.evaluation.statistics import (
    bootstrap_interval,
    bootstrap_means,
    compare,
    compare_pooled,
    conformal_margin,
    ratio_interval,
    student_interval,
)


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


def test_a_p_value_of_several_seeds_is_about_other_seeds_too():
    """Every image gains under one seed and loses less under another: images alone seem sure."""
    rng = np.random.default_rng(0)
    image, seed = np.tile(np.arange(20), 2), np.repeat([0, 1], 20)
    gain = np.where(seed == 0, 0.3, -0.1) + 0.01 * rng.standard_normal(40)
    found = compare(gain, 0 * gain, image, seed)
    assert compare(gain, 0 * gain, image).p_value < 1e-4
    means = bootstrap_means(gain, image, seed)
    assert found.p_value == pytest.approx(2 * (np.sum(means <= 0) + 1) / (means.size + 1))
    assert found.p_value > 0.05
    assert found.interval[0] < 0


def test_a_p_value_below_five_percent_comes_with_an_interval_without_zero():
    for shift in (0.0, 0.2, 0.4, -0.3):
        rng = np.random.default_rng(1)
        image, seed = np.tile(np.arange(12), 5), np.repeat(np.arange(5), 12)
        gain = shift + 0.2 * rng.standard_normal(5)[seed] + 0.3 * rng.standard_normal(60)
        found = compare(gain, 0 * gain, image, seed)
        low, high = found.interval
        assert (low > 0 or high < 0) or found.p_value > 0.049
        assert compare(-gain, 0 * gain, image, seed).p_value == pytest.approx(found.p_value, abs=0.01)


def test_ten_images_are_enough_to_rank_by():
    assert [compare(np.arange(n), np.zeros(n)).too_few for n in (9, 10)] == [True, False]


def test_equal_methods_do_not_differ():
    found = compare([0.5, 0.6], [0.5, 0.6])
    assert (found.difference, found.interval, found.p_value, found.too_few) == (0, (0, 0), 1, True)


def test_sets_have_equal_weight_however_many_images_they_have():
    large = (np.full(50, 0.9), np.full(50, 0.8), None, None)
    small = (np.full(5, 0.5), np.full(5, 0.7), None, None)
    found = compare_pooled([large, small])
    assert found.difference == pytest.approx((0.1 - 0.2) / 2)
    assert found.n_images == 55


def test_scores_must_pair_up():
    for first, second in (([0.1], [0.1, 0.2]), ([0.1, 0.2], [0.1]), ([], [])):
        with pytest.raises(InputError, match="give the scores of both on the same images"):
            compare(first, second)
    with pytest.raises(InputError, match="no data set to compare on"):
        compare_pooled([])


def test_the_mean_of_a_resample_is_over_its_records(monkeypatch):
    """Clusters of unequal size, as where splits test on different images."""
    monkeypatch.setattr(statistics, "N_RESAMPLES", 50)
    values, clusters = np.array([0.0, 0.3, 0.5, 0.2, 0.9, 1.0]), np.array(["a", "b", "b", "c", "c", "c"])
    drawn = np.random.default_rng(5).integers(3, size=(50, 3))
    of_cluster = [values[clusters == name] for name in "abc"]
    expected = [np.concatenate([of_cluster[index] for index in row]).mean() for row in drawn]
    np.testing.assert_allclose(bootstrap_means(values, clusters, random_state=5), expected)


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


def test_each_score_is_a_number_and_has_a_cluster_and_a_seed():
    for scores in ([], [0.5, float("nan")], [[0.5]]):
        with pytest.raises(InputError, match="give one number for each record"):
            bootstrap_interval(scores)
    with pytest.raises(InputError, match="3 scores in 2 clusters: give the cluster of each score"):
        bootstrap_interval([0.1, 0.2, 0.3], [0, 1])
    with pytest.raises(InputError, match="3 scores in 2 clusters"):
        compare([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0, 1])
    with pytest.raises(InputError, match="3 scores in 2 seeds: give the seed of each score"):
        bootstrap_means([0.1, 0.2, 0.3], None, [0, 1])
    with pytest.raises(InputError, match="3 scores in 4 seeds"):
        compare([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0, 0, 1], [0, 1, 2, 3])
    with pytest.raises(InputError, match="none of them NaN"):
        compare([0.1, float("nan")], [0.1, 0.2])


def test_several_ratios_give_the_interval_of_their_mean(monkeypatch):
    monkeypatch.setattr(statistics, "N_RESAMPLES", 300)
    parts, wholes = np.random.default_rng(0).random((2, 6, 3))
    drawn = np.random.default_rng(0).integers(6, size=(300, 6))
    means = (parts[drawn].sum(axis=1) / wholes[drawn].sum(axis=1)).mean(axis=1)
    expected = tuple(np.quantile(means, [0.025, 0.975]))
    assert ratio_interval(parts, wholes) == pytest.approx(expected)


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


def sparse_table(rng, n_seeds=4, n_images=9, share=0.4):
    """Records of some seeds and images, each image at least once; some twice."""
    seed, image = np.nonzero(rng.random((n_seeds, n_images)) < share)
    seed, image = np.append(seed, rng.integers(n_seeds, size=n_images)), np.append(image, np.arange(n_images))
    return rng.random(seed.size), image, seed


def test_resamples_drawn_in_parts_are_those_drawn_at_once(monkeypatch):
    monkeypatch.setattr(statistics, "N_RESAMPLES", 300)
    values, image, seed = sparse_table(np.random.default_rng(3), n_seeds=3, n_images=4, share=0.2)
    parts, wholes = np.random.default_rng(0).random((2, 6, 3))

    def draw():
        by_image = bootstrap_means(values, image)
        by_both = bootstrap_means(values, image, seed)
        return [*by_image, *by_both, *ratio_interval(parts, wholes)]

    at_once = draw()
    for number in (1, 50):
        monkeypatch.setattr(statistics, "_DRAWN_AT_ONCE", number)
        np.testing.assert_allclose(draw(), at_once)


def test_the_variance_over_a_balanced_table_is_the_closed_form(monkeypatch):
    """Times drawn are multinomial: E[w_i w_k] = 1 - 1/n + (i = k)."""
    monkeypatch.setattr(statistics, "N_RESAMPLES", 40_000)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(6, 1)) + rng.normal(size=(1, 20)) + rng.normal(size=(6, 20))
    seed, image = np.indices(table.shape)
    centred = table - table.mean()
    expected = (
        (1 - 1 / 20) * (centred.sum(axis=1) ** 2).sum()
        + (1 - 1 / 6) * (centred.sum(axis=0) ** 2).sum()
        + (centred**2).sum()
    ) / table.size**2
    means = bootstrap_means(table.ravel(), image.ravel(), seed.ravel())
    assert means.var() == pytest.approx(expected, rel=0.03)
    assert means.mean() == pytest.approx(table.mean(), abs=4 * np.sqrt(expected / 40_000))


def test_a_record_weighs_the_times_its_seed_and_its_image_were_drawn(monkeypatch):
    """A loop over resamples and records; a resample without a record is drawn again."""
    monkeypatch.setattr(statistics, "N_RESAMPLES", 300)
    values, image, seed = sparse_table(np.random.default_rng(3), n_seeds=3, n_images=4, share=0.2)
    of_seed, of_image = np.random.default_rng(7).spawn(2)
    expected, n_empty = [], 0
    while len(expected) < 300:
        seeds, images = of_seed.integers(3, size=3).tolist(), of_image.integers(4, size=4).tolist()
        weights = [seeds.count(s) * images.count(i) for s, i in zip(seed, image, strict=True)]
        if sum(weights):
            expected.append(np.average(values, weights=weights))
        n_empty += not sum(weights)
    assert n_empty
    found = bootstrap_means(values, image, seed, random_state=7)
    np.testing.assert_allclose(found, expected)


def test_with_one_seed_images_alone_are_resampled():
    values, image = np.random.default_rng(0).random(12), np.arange(12) // 2
    np.testing.assert_array_equal(
        bootstrap_means(values, image, np.full(12, 3)), bootstrap_means(values, image)
    )
    assert compare(values, 0 * values, image, [0] * 12) == compare(values, 0 * values, image)
    assert compare(values, 0 * values, image).n_seeds == (1,)


def test_names_and_order_of_records_do_not_change_what_is_drawn():
    values, image, seed = sparse_table(np.random.default_rng(0))
    named = np.array(list("abcdefghi"))[image], np.array(["one", "two", "zero", "zoo"])[seed]
    expected = bootstrap_interval(values, image, seed)
    assert bootstrap_interval(values, *named) == expected
    assert bootstrap_interval(values[::-1], image[::-1], seed[::-1]) == pytest.approx(expected)


def test_without_groups_each_record_is_an_image():
    values, _, seed = sparse_table(np.random.default_rng(0))
    each = np.arange(values.size)
    np.testing.assert_array_equal(bootstrap_means(values, None, seed), bootstrap_means(values, each, seed))


def test_a_comparison_over_seeds_is_paired():
    values, image, seed = sparse_table(np.random.default_rng(0))
    difficulty = np.random.default_rng(1).random(values.size)
    found = compare(difficulty + values, difficulty, image, seed)
    assert found.interval == pytest.approx(bootstrap_interval(values, image, seed))
    assert (found.n_images, found.n_seeds) == (9, (4,))
    assert found.p_value == pytest.approx(compare(values, 0 * values, image).p_value)


def test_seeds_of_sets_are_resampled_within_each():
    rng = np.random.default_rng(0)
    tables = [sparse_table(rng), sparse_table(rng, n_seeds=2), sparse_table(rng, n_seeds=1)]
    sets = [(values, 0 * values, image, seed) for values, image, seed in tables]
    means = [bootstrap_means(*table, random_state=number) for number, table in enumerate(tables)]
    found = compare_pooled(sets)
    assert found.n_seeds == (4, 2, 1)
    assert found.difference == pytest.approx(np.mean([values.mean() for values, *_ in tables]))
    expected = np.quantile(np.mean(means, axis=0), [0.025, 0.975])
    assert found.interval == pytest.approx(tuple(expected))


def test_student_interval_is_that_of_the_t_test():
    folds = np.random.default_rng(0).random(5)
    assert student_interval(folds) == pytest.approx(tuple(ttest_1samp(folds, 0).confidence_interval()))


def test_student_interval_of_overlapping_splits_is_wider():
    """The variance of the mean of n splits is s^2 (1 / n + n_test / n_train) by Nadeau and Bengio."""
    splits = np.random.default_rng(0).random(8)
    (low, high), (first, last) = student_interval(splits), student_interval(splits, test_to_train=0.5)
    assert (last - first) / (high - low) == pytest.approx(np.sqrt((1 / 8 + 0.5) / (1 / 8)))
    assert low + high == pytest.approx(first + last)


def test_student_interval_takes_two_numbers():
    for values, message in (([0.5], "give two or more"), ([0.5, np.nan], "none of them NaN")):
        with pytest.raises(InputError, match=message):
            student_interval(values)


def coverage(n_seeds, of_seed, of_image, of_both, *, n_images=30, n_trials=150):
    """How often intervals over images, and over both, hold the mean of crossed random effects (0)."""
    rng = np.random.default_rng(0)
    inside = np.zeros((n_trials, 2))
    for trial in range(n_trials):
        tested = [rng.permutation(n_images)[: n_images // 3] for _ in range(n_seeds)]
        seed, image = np.repeat(np.arange(n_seeds), n_images // 3), np.concatenate(tested)
        values = rng.normal(0, of_seed, n_seeds)[seed] + rng.normal(0, of_image, n_images)[image]
        values += rng.normal(0, of_both, seed.size)
        for way, seeds in enumerate((None, seed)):
            low, high = bootstrap_interval(values, image, seeds)
            inside[trial, way] = low <= 0 <= high
    return inside.mean(axis=0)


@pytest.fixture
def few_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "N_RESAMPLES", 400)


def test_seeds_that_differ_take_intervals_over_both(few_resamples):
    over_images, over_both = coverage(10, 0.5, 1.0, 0.5)
    assert over_images < 0.85
    assert over_both >= 0.9
    over_images, over_both = coverage(5, 1.0, 1.0, 1.0)
    assert over_images < 0.75
    assert over_both >= 0.85


def test_where_seeds_do_not_differ_intervals_over_both_are_conservative(few_resamples):
    over_images, over_both = coverage(5, 0.0, 1.0, 0.5)
    assert over_both > max(over_images, 0.95)


def naive_margin(errors, level):
    """Walk along the steps of the promise k / (n + 1), a straight line between them."""
    ordered, n = sorted(errors), len(errors)
    for k in range(1, n + 1):
        promise, error = k / (n + 1), ordered[k - 1]
        if abs(promise - level) < 1e-12:
            return error
        if promise > level:
            before = (k - 1) / (n + 1)
            share = (level - before) / (promise - before)
            return ordered[k - 2] + share * (error - ordered[k - 2])
    return None


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=4, max_size=40), st.sampled_from([0.5, 0.8, 0.85, 0.9, 0.95]))
def test_the_margin_is_that_of_a_naive_loop(errors, level):
    found, expected = conformal_margin(errors, level), naive_margin(errors, level)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), min_size=1, max_size=40),
    st.sampled_from([0.5, 0.8]),
)
def test_groups_weigh_alike_in_a_margin(pairs, level):
    """The groups' mean share of errors within the margin reaches the promise at the next error, and not before it."""
    errors, groups = (np.array(column) for column in zip(*pairs, strict=True))
    found, names = conformal_margin(errors, level, groups), np.unique(groups)

    def promise(is_within):
        return sum(is_within[groups == name].mean() for name in names) / (names.size + 1)

    if found is None:
        assert promise(np.ones(errors.size)) < level or promise(errors <= errors.min()) > level
        return
    next_one = errors[errors >= found - 1e-9].min()
    assert promise(errors < next_one) <= level + 1e-9
    assert promise(errors <= next_one) >= level - 1e-9


def test_a_margin_is_the_same_with_groups_of_one_and_with_copies():
    errors = np.random.default_rng(0).random(9)
    for level in (0.8, 0.85):
        assert conformal_margin(errors, level, list("ihgfedcba")) == conformal_margin(errors, level)
    copies = np.repeat(errors, 3), 0.8, np.repeat(range(9), 3)
    assert conformal_margin(*copies) == pytest.approx(conformal_margin(errors, 0.8))


def test_the_margin_holds_for_images_of_another_group():
    """Errors hardly differ within a group: taken one by one, those of the largest decide."""
    rng = np.random.default_rng(0)
    group, inside = np.repeat(range(6), [40, 2, 2, 2, 2, 2]), []
    for _ in range(2000):
        *known, new = np.abs(rng.standard_normal(7))
        errors = np.repeat(known, np.bincount(group)) + 0.01 * rng.random(group.size)
        inside.append([new <= conformal_margin(errors, 0.8, by) for by in (None, group)])
    alone, grouped = np.mean(inside, axis=0)
    assert alone < 0.65
    assert 0.78 < grouped < 0.88


@pytest.mark.parametrize(("level", "fewest"), [(0.8, 4), (0.9, 9)])
def test_too_few_errors_have_no_margin(level, fewest):
    errors = np.arange(1.0, fewest + 1)
    assert conformal_margin(errors, level) == fewest
    assert conformal_margin(errors[1:], level) is None
    assert conformal_margin([], level) is None


@pytest.mark.parametrize(("n", "level"), [(12, 0.8), (15, 0.9)])
def test_as_many_exchangeable_errors_are_within_as_promised(n, level):
    """Neither under the promise nor far over it; the ceiling of (n + 1) level would give 93.75 % at 15 of 90 %."""
    rng = np.random.default_rng(n)
    for draw in (rng.uniform, rng.exponential):
        margins = [conformal_margin(errors, level) for errors in draw(size=(10_000, n))]
        assert np.mean(draw(size=10_000) <= margins) == pytest.approx(level, abs=0.02)
