"""Scores of objects against naive loops, closed forms and invariances."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

from segkit.errors import InputError
from segkit.evaluation import score_objects
from segkit.evaluation.object_scores import match
from segkit.evaluation.statistics import ratio_interval

IDS = np.array([0, 1, 3, 2, 70_000, 9], dtype=np.uint32)
label_images = arrays(np.uint8, (5, 6), elements=st.integers(0, 5)).map(lambda places: IDS[places])
THRESHOLDS = (0.1, 0.25, 0.5, 0.7, 1.0)
few = settings(max_examples=25)


def square(row, column, side=10, shape=(40, 60)):
    image = np.zeros(shape, dtype=np.int32)
    image[row : row + side, column : column + side] = 1
    return image


def iou_table(truth, predicted):
    """IoU of every true with every predicted object, by loops over objects."""
    true, found = (np.setdiff1d(image, 0) for image in (truth, predicted))
    table = np.zeros((true.size, found.size))
    for row, first in enumerate(true):
        for column, second in enumerate(found):
            one, other = truth == first, predicted == second
            table[row, column] = (one & other).sum() / (one | other).sum()
    return table


def best_matching(table, threshold):
    """The largest (number, sum of IoU) of pairs over all assignments."""
    if table.shape[0] > table.shape[1]:
        return best_matching(table.T, threshold)
    sums = []
    for columns in permutations(range(table.shape[1]), table.shape[0]):
        iou = table[range(table.shape[0]), list(columns)]
        iou = iou[iou >= threshold]
        sums.append((iou.size, round(float(iou.sum()), 9)))
    return max(sums)


def naive_aji(truth, predicted):
    """Algorithm 1 of Kumar et al., 2017; of equal IoU the larger overlap, then the first in the image."""
    in_order = [id_ for id_ in dict.fromkeys(predicted.ravel().tolist()) if id_]
    shared = union = 0
    used = set()
    for true in np.setdiff1d(truth, 0):
        inside = truth == true
        touching = [found for found in in_order if (inside & (predicted == found)).any()]
        if not touching:
            union += inside.sum()
            continue

        def overlap(found, inside=inside):
            both, either = inside & (predicted == found), inside | (predicted == found)
            return both.sum() / either.sum(), both.sum()

        best = max(touching, key=overlap)
        used.add(best)
        shared += (inside & (predicted == best)).sum()
        union += (inside | (predicted == best)).sum()
    union += sum((predicted == found).sum() for found in in_order if found not in used)
    return int(shared), int(union)


@settings(max_examples=50)
@given(label_images, label_images)
def test_matching_and_index_agree_with_loops(truth, predicted):
    found, table = match(truth, predicted), iou_table(truth, predicted)
    assert sorted(found.iou) == pytest.approx(sorted(table[table > 0]))
    for threshold in THRESHOLDS:
        pairs = found.matched(threshold)
        assert np.unique(found.true[pairs]).size == np.unique(found.predicted[pairs]).size == pairs.size
        assert (pairs.size, round(float(found.iou[pairs].sum()), 9)) == best_matching(table, threshold)
    assert found.aggregated_jaccard() == naive_aji(truth, predicted)


def stardist_tp(table, threshold):
    """StarDist's rule, on a dense table of IoU: the number of pairs first, IoU as tie-breaker."""
    if not (table >= threshold).any():
        return 0
    rows, columns = linear_sum_assignment(
        -(table >= threshold).astype(float) - table / (2 * min(table.shape))
    )
    return int((table[rows, columns] >= threshold).sum())


def test_true_positives_are_those_of_stardist(rng):
    """Many discs, and the same moved, merged and dropped."""
    for _ in range(3):
        truth, predicted = np.zeros((2, 80, 90), dtype=int)
        for number, (row, column, radius) in enumerate(
            zip(*rng.uniform(5, 75, (2, 40)), rng.uniform(2, 9, 40), strict=True)
        ):
            for image, move in ((truth, 0), (predicted, rng.normal(0, 1, 2))):
                rows, columns = np.indices(image.shape) - np.reshape(
                    np.array([row, column]) + move, (2, 1, 1)
                )
                image[np.hypot(rows, columns) < radius] = 1 + (number if image is truth else number // 1.5)
        scores = score_objects([truth], [predicted], thresholds=(0.05, 0.2, 0.5, 0.6, 0.9))
        table = iou_table(truth, predicted)
        assert scores.tp[0].tolist() == [stardist_tp(table, threshold) for threshold in scores.thresholds]


@few
@given(label_images, label_images, st.permutations(range(1, 6)), st.permutations(range(1, 6)))
def test_numbers_of_the_objects_do_not_matter(truth, predicted, first, second):
    lookup = [dict(zip(IDS.tolist(), [0, *order], strict=True)) for order in (first, second)]
    renamed = [
        np.vectorize(table.get)(image) * 7 for table, image in zip(lookup, (truth, predicted), strict=True)
    ]
    before, after = (score_objects([a], [b], thresholds=THRESHOLDS) for a, b in ((truth, predicted), renamed))
    np.testing.assert_equal(before.values, after.values)
    assert before.intervals == after.intervals


@few
@given(label_images, label_images)
def test_scores_lie_between_zero_and_one_and_fall_with_the_threshold(truth, predicted):
    scores = score_objects([truth], [predicted], thresholds=THRESHOLDS)
    assert (np.diff(scores.tp, axis=1) <= 0).all()
    for name in ("ap_10", "mean_ap", "panoptic_quality", "aggregated_jaccard"):
        assert np.isnan(scores.values[name]) or 0 <= scores.values[name] <= 1
    np.testing.assert_array_equal(scores.fp + scores.tp, scores.n_predicted[:, None] + 0 * scores.tp)
    np.testing.assert_array_equal(scores.fn + scores.tp, scores.n_true[:, None] + 0 * scores.tp)


def test_shifted_squares():
    """IoU of two squares of side s, one shifted by d, is (s - d) / (s + d)."""
    for shift in range(11):
        iou = (10 - shift) / (10 + shift)
        scores = score_objects([square(5, 5)], [square(5, 5 + shift)])
        assert scores.ap.tolist() == [float(iou >= threshold) for threshold in scores.thresholds]
        assert scores.values["panoptic_quality"] == pytest.approx(iou if iou > 0.5 else 0)
        assert scores.values["aggregated_jaccard"] == pytest.approx(iou)


def test_ids_of_any_dtype():
    for dtype in (np.uint8, np.int64, np.float32):
        truth = (square(5, 5) + 200 * square(5, 20)).astype(dtype)
        scores = score_objects([truth], [truth.astype(np.uint64)])
        assert (scores.n_true[0], scores.ap[0]) == (2, 1)


def test_seventy_thousand_objects():
    truth = np.arange(1, 70_001, dtype=np.uint32).reshape(280, 250).repeat(2, axis=0).repeat(2, axis=1)
    scores = score_objects([truth], [np.roll(truth, 1, axis=1)], thresholds=[0.5])
    assert scores.n_true.tolist() == [70_000]
    assert scores.tp.tolist() == [[0]]  # every IoU is 1 / 3
    assert score_objects([truth], [truth + 2**31]).tp.tolist() == [[70_000] * 5]


def test_images_without_objects():
    empty, full = np.zeros((40, 60), dtype=int), square(5, 5)
    both, missed, false = (score_objects([a], [b]) for a, b in ((empty, empty), (full, empty), (empty, full)))
    assert np.isnan(
        [both.values[name] for name in ("ap_50", "mean_ap", "panoptic_quality", "aggregated_jaccard")]
    ).all()
    assert (both.n_undefined, both.values["count_error"]) == (1, 0)
    assert both.intervals["ap_50"] is None
    for scores in (missed, false):
        assert (scores.ap[0], scores.n_undefined) == (0, 0)
        assert scores.values["panoptic_quality"] == scores.values["aggregated_jaccard"] == 0
    assert np.isnan(false.values["relative_count_error"])
    assert false.intervals["relative_count_error"] is None


def test_counts_of_all_images_are_pooled():
    """Sums of TP, FP and FN first: an image with many objects weighs more. The index is a mean over images."""
    four = sum(number * square(20 * (number % 2), 15 * (number // 2), 9) for number in range(1, 5))
    one, empty = square(5, 5), np.zeros((40, 60), dtype=int)
    scores = score_objects([four, one, empty], [four, empty, empty])
    assert scores.image_ap[:2, 0].tolist() == [1, 0]
    assert scores.values["ap_50"] == 4 / 5
    assert scores.values["panoptic_quality"] == pytest.approx(4 / 4.5)
    assert scores.values["aggregated_jaccard"] == 1 / 2
    assert scores.values["count_error"] == pytest.approx(-1 / 3)
    assert scores.values["relative_count_error"] == 1 / 5
    assert scores.n_undefined == 1
    assert scores.intervals["ap_50"] == ratio_interval([4, 0], [4, 1])


def test_images_of_a_cluster_are_resampled_together():
    truths = [square(5, 5)] * 4
    guesses = [square(5, 5), square(20, 20)] * 2
    apart = score_objects(truths, guesses).intervals["mean_ap"]
    together = score_objects(truths, guesses, clusters=["a", "a", "b", "b"])
    assert apart[0] < together.values["mean_ap"] < apart[1]
    assert together.intervals["mean_ap"] == (together.values["mean_ap"],) * 2


def test_unlabelled_pixels_count_nowhere():
    truth, labelled = square(5, 5), np.ones((40, 60), dtype=bool)
    labelled[:, 12:] = False
    beyond = 2 * square(5, 25)  # an object nobody can judge
    half_out = 3 * square(20, 7)  # half of it is labelled: it counts, and is false
    mostly_out = 4 * square(30, 8)
    guess = np.roll(truth, -1, axis=1) + beyond + half_out + mostly_out
    scores = score_objects([truth], [guess], labelled=[labelled])
    assert (scores.n_true[0], scores.n_predicted[0], scores.tp[0, 0]) == (1, 2, 1)
    # in columns 5 to 11 the square has 70 pixels, the shifted one (4 to 13) 80; both in 70
    assert scores.matched_iou[0] == pytest.approx(70 / 80)


@pytest.mark.parametrize(
    ("truth", "predicted", "told"),
    [
        (
            [[0, 1]],
            [[0, 1, 2]],
            r"true objects of shape \(1, 2\), predicted ones of shape \(1, 3\): give equal shapes",
        ),
        ([[0, -1]], [[0, 1]], r"true objects as int64 of shape \(1, 2\): give whole numbers"),
        ([[0, 1]], [[0, 0.5]], "predicted objects as float64 .* another one above it for each object"),
        ([[0, 1]], [[0, float("nan")]], "predicted objects as float64"),
        ([0, 1], [0, 1], r"of shape \(2,\): give whole numbers of shape \(H, W\)"),
    ],
)
def test_other_arrays_are_refused(truth, predicted, told):
    with pytest.raises(InputError, match=told):
        score_objects([truth], [predicted])


def test_other_arguments_are_refused():
    image = square(5, 5)
    with pytest.raises(InputError, match="0 images of true objects and 0 of predicted ones"):
        score_objects([], [])
    with pytest.raises(
        InputError, match="1 image of true objects and 2 of predicted ones: give as many of each"
    ):
        score_objects([image], [image, image])
    for threshold in (0, -0.5, 1.5, float("nan")):
        with pytest.raises(InputError, match="give an IoU above 0 and at most 1"):
            score_objects([image], [image], thresholds=[threshold])
    with pytest.raises(InputError, match="no threshold"):
        score_objects([image], [image], thresholds=[])
    with pytest.raises(InputError, match=r"labelled pixels as int32 of shape \(40, 60\): give bool"):
        score_objects([image], [image], labelled=[image])
