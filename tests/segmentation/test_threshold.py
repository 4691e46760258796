import numpy as np
import pytest

from segkit.segmentation.threshold import (
    best_threshold,
    image_threshold,
    label_pixels,
    quantile_threshold,
    weight_of_otsu,
)


def threshold_of(decision, threshold, otsu_weight, weight=None):
    """Threshold of an image whose decisions come at once."""
    return image_threshold(lambda: [decision], threshold, otsu_weight, None if weight is None else [weight])


def naive_mean_iou(threshold, decision, label, weight, image):
    """Mean over images and classes, written out."""
    scores = []
    for index in np.unique(image):
        d, y, w = (array[image == index] for array in (decision, label, weight))
        ious = []
        for positive in (0, 1):
            guess, truth = (d > threshold) == positive, y == positive
            union = w[guess | truth].sum()
            if union:
                ious.append(w[guess & truth].sum() / union)
        scores.append(np.mean(ious))
    return np.mean(scores)


@pytest.mark.parametrize("seed", range(3))
def test_best_threshold_has_the_highest_mean_iou(seed):
    rng = np.random.default_rng(seed)
    label, image = rng.integers(2, size=400), rng.integers(3, size=400)
    decision = rng.normal(1.5 * label - 1 + 0.4 * image)
    weight = np.where(label, 0.3, 1.7)
    chosen = best_threshold(decision, label, weight, image)
    highest = max(naive_mean_iou(t, decision, label, weight, image) for t in np.linspace(-3, 3, 301))
    assert naive_mean_iou(chosen, decision, label, weight, image) > highest - 0.01


def test_best_threshold_does_not_fall_between_two_peaks():
    """Two images, each separable by itself, whose decisions are shifted against each other."""
    decision = np.concatenate([np.linspace(-2.9, -2.1, 50), np.linspace(-1.9, -1.1, 50)])
    decision = np.concatenate([decision, decision + 4])
    label, image = np.tile(np.repeat([0, 1], 50), 2), np.repeat([0, 1], 100)
    chosen = best_threshold(decision, label, np.ones(200), image)
    assert naive_mean_iou(chosen, decision, label, np.ones(200), image) == pytest.approx(0.625, abs=0.02)


def test_best_threshold_is_the_middle_of_those_as_good():
    """Between -0.6 and 1 lie pixels that stand for next to nothing: the highest IoU is above the last of them."""
    decision = np.concatenate(
        [np.linspace(-2, -0.6, 500), np.linspace(-0.5, 0.9, 20), np.linspace(1, 2, 480)]
    )
    label, weight = np.repeat([0, 1], 500), np.ones(1000)
    label[500:520], weight[500:520] = 0, 1e-4
    chosen = best_threshold(decision, label, weight, np.zeros(1000, dtype=int))
    assert chosen == pytest.approx(0.2, abs=0.02)


def naive_otsu(decision):
    """Of all cuts between values that with the greatest variance between its sides."""
    values = np.unique(decision)
    cuts = (values[1:] + values[:-1]) / 2
    sides = [(decision[decision <= cut], decision[decision > cut]) for cut in cuts]
    return cuts[np.argmax([low.size * high.size * (high.mean() - low.mean()) ** 2 for low, high in sides])]


def test_an_image_moves_its_threshold_towards_otsus():
    rng = np.random.default_rng(0)
    decision = np.concatenate([rng.normal(-0.6, 0.1, 300), rng.normal(0.3, 0.1, 60)])
    own = threshold_of(decision, 0.8, 1.0)
    assert own == pytest.approx(naive_otsu(decision), abs=0.01)
    assert threshold_of(decision.reshape(20, 18), 0.8, 0.25) == pytest.approx(0.75 * 0.8 + 0.25 * own)
    assert threshold_of(decision, 0.8, 0.0) == 0.8


def test_an_image_of_one_decision_has_it_for_its_threshold():
    assert threshold_of(np.full((4, 5), -3.0), 0.2, 0.5) == pytest.approx((0.2 - 1) / 2)
    assert not (np.full((4, 5), -3.0) > threshold_of(np.full((4, 5), -3.0), 0.2, 0.5)).any()


@pytest.mark.parametrize(
    ("dtype", "start"), [(np.float32, -0.28), (np.float32, 0.9), (np.float64, -1.0), (np.float64, 0.0)]
)
def test_an_image_of_decisions_that_rounding_parts_has_them_for_its_threshold(dtype, start):
    decision = np.full((4, 5), start, dtype=dtype)
    decision[0, 0] = np.nextafter(decision[0, 0], dtype(2))
    assert threshold_of(decision, 0.2, 0.5) == pytest.approx((0.2 + start) / 2, abs=1e-6)


def test_a_decision_that_stands_for_several_counts_as_often():
    rng = np.random.default_rng(0)
    decision = rng.uniform(-1, 1, 200)
    times = np.where(decision > 0.5, 9, 1)
    once = threshold_of(decision, 0.0, 1.0, times.astype(float))
    assert once == pytest.approx(threshold_of(np.repeat(decision, times), 0.0, 1.0))
    assert once != pytest.approx(threshold_of(decision, 0.0, 1.0))


def test_few_training_images_leave_more_to_the_image():
    assert [weight_of_otsu(n) for n in (0, 1, 2, 6, 18)] == pytest.approx([1, 2 / 3, 1 / 2, 1 / 4, 1 / 10])


def test_an_image_that_was_missed_altogether_has_the_margin_for_its_threshold():
    label = np.tile([0, 0, 0, 1], 100)
    decision = np.linspace(-4, -2, 400)
    assert quantile_threshold(decision, label, np.ones(400), np.zeros(400)) == -1
    both = np.concatenate([decision, np.linspace(-1, 1, 400)])
    found = quantile_threshold(both, np.tile(label, 2), np.ones(800), np.repeat([0, 1], 400))
    assert found == pytest.approx((-1 + 0.5) / 2, abs=0.01)


def test_share_is_matched_whatever_the_weights():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 4000)
    decision, weight = rng.standard_normal(4000) + label, rng.uniform(0.5, 3, 4000)
    called = weight @ (decision > quantile_threshold(decision, label, weight, np.zeros(4000)))
    assert called == pytest.approx(weight @ label, rel=2e-3)


def test_threshold_is_the_mean_of_those_of_the_images():
    rng = np.random.default_rng(0)
    image, label = np.repeat([0, 1, 3, 2], 500), rng.integers(0, 2, 2000)
    decision, weight = rng.standard_normal(2000) + label - image**2, np.ones(2000)
    label[image == 2] = 0  # no pixel of the second class: no threshold of its own
    alone = [
        quantile_threshold(decision[mine], label[mine], weight[mine], image[mine])
        for mine in (image == 0, image == 1, image == 3)
    ]
    assert quantile_threshold(decision, label, weight, image) == pytest.approx(np.mean(alone))
    one_class_each = np.where(image == 0, 1, 0)
    assert quantile_threshold(decision, one_class_each, weight, image) == pytest.approx(
        quantile_threshold(decision, one_class_each, weight, np.zeros(2000))
    )


def test_of_two_classes_the_second_lies_above_the_threshold_of_the_image():
    decisions = np.array([[-0.9, -0.8, 0.2], [0.7, 0.8, 0.3]], dtype=np.float32)
    for threshold, otsu_weight, expected in (
        (0.25, 0.0, [[0, 0, 0], [1, 1, 1]]),
        # above, not at
        (float(decisions[1, 2]), 0.0, [[0, 0, 0], [1, 1, 0]]),
        # Otsu's threshold is in the gap between -0.8 and 0.2
        (0.75, 1.0, [[0, 0, 1], [1, 1, 1]]),
    ):
        ids = label_pixels(decisions[..., None], threshold, otsu_weight)
        assert ids.dtype == np.intp
        assert ids.tolist() == expected


def test_weights_move_the_threshold_of_an_image():
    decisions = np.repeat([-0.9, 0.0, 0.9], [50, 50, 50])[:, None]
    heavy = np.repeat([1.0, 1.0, 1000.0], 50)
    at = threshold_of(decisions[:, 0], 0.0, 1.0, heavy)
    assert at != threshold_of(decisions[:, 0], 0.0, 1.0)
    ids = label_pixels(decisions, 0.0, 1.0, heavy)
    np.testing.assert_array_equal(ids, decisions[:, 0] > at)


def test_of_several_classes_the_largest_decision_counts_whatever_the_threshold():
    decisions = np.array([[[3, 1, 2], [0, 5, 4]], [[-3, -2, -1], [7, 7, 0]]], dtype=np.float32)
    assert label_pixels(decisions, 10.0, 1.0).tolist() == [[0, 1], [2, 0]]


@pytest.mark.parametrize("sign", [1, -1])
def test_decisions_beyond_the_margins_count_as_the_margins(sign):
    decisions = sign * np.repeat([-0.9, 0.1, 6.0], [50, 60, 40])
    clipped = np.clip(decisions, -1, 1)
    assert threshold_of(decisions, 0.0, 1.0) == threshold_of(clipped, 0.0, 1.0)


def test_a_quantile_lies_between_the_pixels_by_half_their_weights():
    """Pixels of weight 1 and 3 reach from 0 to 1 and from 1 to 4, with centres at 0.5 and 2.5."""
    found = quantile_threshold(np.array([0.0, 0.8]), np.array([0, 1]), np.array([1.0, 3.0]), np.zeros(2))
    assert found == pytest.approx(0.8 * (1 - 0.5) / (2.5 - 0.5))


@pytest.mark.parametrize(("label", "low", "high"), [(0, 0.996, 0.999), (1, 0.001, 0.004)])
def test_the_best_threshold_may_be_the_first_or_the_last(label, low, high):
    """All pixels are of one class: the best calls nearly all so."""
    decision, ones = np.linspace(0, 1, 1001), np.ones(1001)
    chosen = best_threshold(decision, np.full(1001, label), ones, np.zeros(1001))
    assert low <= chosen <= high


def test_an_image_threshold_of_parts_is_that_of_all_of_them():
    rng = np.random.default_rng(0)
    parts = [rng.normal(-0.4, 0.2, (5, 6)), rng.normal(0.5, 0.1, (3, 4)), np.full((2, 2), 7.0)]
    weights = [rng.uniform(1, 2, part.shape) for part in parts]
    whole, heavy = (np.concatenate([one.ravel() for one in several]) for several in (parts, weights))
    for given, told in ((None, None), (weights, heavy)):
        expected = threshold_of(whole, 0.3, 0.4, told)
        assert image_threshold(lambda: iter(parts), 0.3, 0.4, given) == pytest.approx(expected, abs=1e-12)
    assert image_threshold(lambda: 1 / 0, 0.3, 0.0) == 0.3


def test_between_two_heaps_the_threshold_is_in_the_middle():
    """Every cut between them parts them as well."""
    decision = np.repeat([-0.5, 0.75], [30, 50])
    assert threshold_of(decision, 0.0, 1.0) == pytest.approx(0.125, abs=0.005)
    assert threshold_of(decision, 1.0, 0.25) == pytest.approx(0.75 + 0.25 * 0.125, abs=0.002)
