import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, jaccard_score

from segkit.errors import InputError
from segkit.evaluation.metrics import (
    boundary_f,
    brier_score,
    confusion,
    dice_of,
    iou_of,
    object_mean,
    precision_of,
    recall_of,
    reliability,
    score_masks,
)
from segkit.evaluation.statistics import bootstrap_interval


def test_object_mean_is_over_the_defined_classes_but_the_first():
    nan = np.nan
    scores = [[0.9, 0.2, 0.6], [0.9, nan, 0.5], [0.9, nan, nan]]
    np.testing.assert_allclose(object_mean(scores), [0.4, 0.5, nan])
    assert float(object_mean([0.9, None, 0.5])) == 0.5
    assert np.isnan(object_mean([0.9]))


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), n_classes=st.integers(2, 4))
def test_iou_and_dice_equal_scikit_learns(seed, n_classes):
    rng = np.random.default_rng(seed)
    truth, guess = rng.integers(n_classes, size=(2, 12, 15))
    scores = score_masks([truth], [guess], n_classes)
    labels = list(range(n_classes))
    for found, score in ((scores.iou, jaccard_score), (scores.dice, f1_score)):
        expected = score(truth.ravel(), guess.ravel(), labels=labels, average=None)
        np.testing.assert_allclose(found[0], expected)
    assert scores.mean_iou[0] == pytest.approx(scores.iou[0].mean())


def test_mean_iou_of_two_classes_is_equation_8_1():
    truth = np.array([[0, 0, 0, 1, 1, 1]])
    guess = np.array([[0, 0, 1, 1, 1, 0]])
    n11, n12, n21, n22 = 2, 1, 1, 2
    expected = 0.5 * n11 / (n12 + n21 + n11) + 0.5 * n22 / (n12 + n21 + n22)
    assert score_masks([truth], [guess], 2).mean == pytest.approx(expected)


def test_a_class_in_neither_mask_is_undefined_and_counted():
    empty = np.zeros((3, 3), dtype=int)
    full = np.ones((3, 3), dtype=int)
    scores = score_masks([empty, empty, full], [empty, full, full], 2)
    np.testing.assert_array_equal(scores.iou, [[1, np.nan], [0, 0], [np.nan, 1]])
    np.testing.assert_array_equal(scores.mean_iou, [1, 0, 1])
    assert scores.n_undefined.tolist() == [1, 1]
    assert scores.by_class["iou"].tolist() == [0.5, 0.5]


def test_unlabelled_pixels_count_nowhere():
    truth = np.array([[0, 1, 255, 255]])
    assert score_masks([truth], [np.array([[0, 1, 0, 1]])], 2).mean == 1
    np.testing.assert_array_equal(confusion(truth, [[1, 1, 1, 0]], 2), [[0, 1], [0, 1]])


def test_pixels_count_as_many_times_as_they_weigh():
    truth, guess = np.array([0, 0, 1, 1, 255]), np.array([0, 1, 1, 0, 1])
    weight = np.array([3, 1, 2, 4, 7])
    counts = confusion(np.repeat(truth, weight), np.repeat(guess, weight), 2)
    np.testing.assert_array_equal(confusion(truth, guess, 2, sample_weight=weight.tolist()), counts)
    with pytest.raises(
        InputError, match=r"sample_weight of shape \(3,\): give one weight to each of \(5,\) pixels"
    ):
        confusion(truth, guess, 2, sample_weight=[1, 2, 3])


@pytest.mark.parametrize(
    ("truth", "guess", "message"),
    [
        ([[[0, 0], [0, 0]]], [[[0, 0, 0]] * 2], "true mask of shape (2, 2), prediction of shape (2, 3)"),
        ([[[7, 7]]], [[[0, 0]]], "true mask holds values 7 to 7: class ids must lie in 0..1"),
        ([[[255, 255]]], [[[0, 0]]], "true mask 0 has no labelled pixel"),
        ([], [], "0 true masks and 0 predictions"),
    ],
)
def test_bad_masks(truth, guess, message):
    with pytest.raises(InputError, match=re.escape(message)):
        score_masks(truth, guess, 2)


def test_images_of_a_cluster_are_resampled_together():
    truths, guesses = [np.array([[0, 1]])] * 4, [np.array([[0, 1]]), np.array([[1, 1]])] * 2
    assert score_masks(truths, guesses, 2, clusters=["a", "a", "b", "b"]).interval == (0.625, 0.625)
    low, high = score_masks(truths, guesses, 2).interval
    assert low < 0.625 < high


def square(top, left, size=10, shape=(30, 30)):
    mask = np.zeros(shape, dtype=int)
    mask[top : top + size, left : left + size] = 1
    return mask


def test_ratios_of_counts_are_those_of_the_definitions():
    counts = np.array([[[5, 1, 0], [2, 3, 0], [0, 0, 0]]])
    np.testing.assert_allclose(iou_of(counts), [[5 / 8, 3 / 6, np.nan]])
    np.testing.assert_allclose(dice_of(counts), [[10 / 13, 6 / 9, np.nan]])
    np.testing.assert_allclose(precision_of(counts), [[5 / 7, 3 / 4, np.nan]])
    np.testing.assert_allclose(recall_of(counts), [[5 / 6, 3 / 5, np.nan]])


@pytest.mark.parametrize(("shift", "tolerance", "agree"), [(0, 0, 1), (2, 2, 1), (12, 2, 0)])
def test_boundary_f_forgives_up_to_the_tolerance(shift, tolerance, agree):
    found = boundary_f(square(5, 5), square(5 + shift, 5), 2, tolerance=tolerance)
    assert found[1] == pytest.approx(agree) if agree else found[1] < 0.2


def test_boundary_f_of_a_shift_equals_a_loop_over_the_outlines():
    truth, guess = square(5, 5), square(8, 6)

    def outline(mask):
        return [
            (r, c)
            for r, c in np.argwhere(mask)
            if any(
                not mask[r + dr, c + dc]
                for dr, dc in ((1, 0), (-1, 0), (0, 1), (0, -1))
                if 0 <= r + dr < 30 and 0 <= c + dc < 30
            )
        ]

    def near(points, others):
        return np.mean([min(np.hypot(r - a, c - b) for a, b in others) <= 2 for r, c in points])

    precision, recall = near(outline(guess), outline(truth)), near(outline(truth), outline(guess))
    expected = 2 * precision * recall / (precision + recall)
    assert boundary_f(truth, guess, 2)[1] == pytest.approx(expected)


def test_boundary_f_is_undefined_without_outlines_and_zero_with_one():
    empty = np.zeros((30, 30), dtype=int)
    assert np.isnan(boundary_f(empty, empty, 2)).all()
    assert boundary_f(square(5, 5), empty, 2)[1] == 0


def test_boundaries_of_unlabelled_regions_count_nowhere():
    truth = square(5, 5)
    truth[:, 18:] = 255
    guess = square(5, 5)
    guess[:, 20:] = 1  # its outline lies where nothing is labelled
    assert boundary_f(truth, guess, 2)[1] == 1


def test_an_unlabelled_region_is_merged_into_the_predicted_one():
    truth = square(5, 5)
    truth[:, 15:] = 255
    guess = square(5, 5)
    guess[9:11, 13:15] = 0  # a gap that touches what is unlabelled
    gap = [(8, 13), (8, 14), (11, 13), (11, 14), (9, 12), (10, 12)]
    found = square(5, 5) * (truth != 255)
    edge = [(r, c) for r, c in np.argwhere(found) if r in (5, 14) or c == 5]
    near = [min(np.hypot(r - a, c - b) for a, b in edge) <= 0 for r, c in [*edge, *gap]]
    precision, recall = np.mean(near), 1
    expected = 2 * precision * recall / (precision + recall)
    assert boundary_f(truth, guess, 2, tolerance=0)[1] == pytest.approx(expected)


def test_brier_score_and_reliability_equal_loops(rng):
    truth = rng.integers(0, 2, (6, 7))
    truth[0] = 255
    foreground = rng.random((6, 7))
    probability = np.stack([1 - foreground, foreground], axis=2)
    labelled = truth != 255
    expected = np.mean((foreground[labelled] - truth[labelled]) ** 2)
    assert brier_score(truth, probability) == pytest.approx(expected)
    sums = reliability(truth, probability)
    for index in range(10):
        inside = labelled & (foreground >= index / 10) & (foreground < (index + 1) / 10)
        assert sums["count"][index] == inside.sum()
        assert sums["hits"][index] == truth[inside].sum()
        assert sums["probability"][index] == pytest.approx(foreground[inside].sum())


def test_reliability_is_of_every_class_but_the_first():
    probability = np.array([[[0.05, 0.15, 0.8], [0.05, 0.9, 0.05]]])
    sums = reliability([[2, 2]], probability)
    assert sums["count"] == [1, 1, *[0] * 6, 1, 1]
    assert sums["hits"] == [1, *[0] * 7, 1, 0]
    assert sums["probability"] == pytest.approx([0.05, 0.15, *[0] * 6, 0.8, 0.9])


def test_probabilities_must_fit_the_mask():
    with pytest.raises(InputError, match=r"true mask of shape \(2, 2\), probabilities of shape \(2, 2\)"):
        brier_score(np.zeros((2, 2), int), np.zeros((2, 2)))
    with pytest.raises(InputError, match="true mask holds class 2, probabilities are of 2 classes"):
        brier_score([[0, 2]], np.full((1, 2, 2), 0.5))


def test_certain_probabilities_fall_in_the_last_bin():
    assert reliability([[1, 0]], np.eye(2)[None, ::-1])["count"] == [1, *[0] * 8, 1]


def test_object_scores_leave_out_the_background():
    """Of two classes they are those of the second; images without objects do not count."""
    truths = [[[0, 0, 1, 1]], [[0, 0, 0, 1]], [[0, 0, 0, 0]]]
    guesses = [[[0, 1, 1, 1]], [[0, 0, 0, 0]], [[0, 0, 0, 0]]]
    scores = score_masks(truths, guesses, 2)
    assert scores.object_iou == pytest.approx((2 / 3 + 0) / 2)
    assert scores.object_dice == pytest.approx((4 / 5 + 0) / 2)
    assert scores.object_iou == scores.by_class["iou"][1]
    assert scores.object_iou < scores.mean
    assert scores.object_iou_interval == bootstrap_interval([2 / 3, 0])
    low, high = scores.object_dice_interval
    assert low <= scores.object_dice <= high


def test_object_intervals_resample_clusters():
    truths, guesses = (
        [[[0, 1, 1]]] * 4 + [[[0, 0, 0]]],
        [[[0, 1, 1]], [[0, 1, 0]], [[1, 1, 1]], [[0, 1, 1]], [[0, 0, 0]]],
    )
    clusters = ["a", "a", "b", "b", "c"]
    scores = score_masks(truths, guesses, 2, clusters=clusters)
    assert scores.object_iou_interval == bootstrap_interval(object_mean(scores.iou)[:4], clusters[:4])


def test_no_object_anywhere_has_no_score():
    scores = score_masks([[[0, 0]]], [[[0, 0]]], 2)
    assert np.isnan(scores.object_iou)
    assert scores.object_iou_interval is scores.object_dice_interval is None
    assert scores.mean == 1
