import numpy as np
import pytest
from scipy import stats

from segkit.evaluation.metrics import score_masks
from segkit.segmentation.expected import (
    ExpectedIoU,
    HeldOutImage,
    compare,
    expected_iou,
    presence_of,
    shrunken_mean,
)


def prediction(n_classes=2, shape=(60, 80), seed=0):
    """A mask, and probabilities that are mostly, but not everywhere, highest for its classes."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, n_classes, shape)
    scores = rng.normal(size=(*shape, n_classes)) + 2 * (ids[..., None] == np.arange(n_classes))
    odds = np.exp(scores)
    return ids, odds / odds.sum(axis=2, keepdims=True)


def test_a_closed_form():
    """Hits 0.9 + 0.6 of the second class; it has 2 pixels, and 0.3 is missed outside."""
    ids = np.array([[0, 1, 1]])
    second = np.array([[0.3, 0.9, 0.6]])
    probabilities = np.stack([1 - second, second], axis=2)
    expected = np.mean([0.7 / (1 + 0.1 + 0.4), 1.5 / 2.3])
    assert expected_iou(ids, probabilities, np.ones(2)) == pytest.approx(expected)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_the_mean_iou_of_masks_drawn_from_the_probabilities(n_classes):
    ids, probabilities = prediction(n_classes)
    rng = np.random.default_rng(1)
    steps = probabilities.cumsum(axis=2)[..., :-1]
    masks = [(rng.uniform(size=(*ids.shape, 1)) > steps).sum(axis=2) for _ in range(60)]
    true = score_masks(masks, [ids] * len(masks), n_classes).mean
    assert expected_iou(ids, probabilities, np.ones(n_classes)) == pytest.approx(true, abs=2e-3)


def test_a_sure_and_right_mask_has_1_and_a_sure_and_wrong_one_0():
    ids = np.array([[0, 1]])
    assert expected_iou(ids, np.eye(2)[ids], np.ones(2)) == 1
    assert expected_iou(ids, np.eye(2)[1 - ids], np.ones(2)) == 0


@pytest.mark.parametrize(("presence", "expected"), [(0.0, 0.9), (1.0, 0.45), (0.5, 0.6)])
def test_a_class_that_is_nowhere_predicted_counts_as_often_as_images_hold_it(presence, expected):
    ids = np.zeros((4, 5), dtype=int)
    probabilities = np.broadcast_to([0.9, 0.1], (4, 5, 2))
    assert expected_iou(ids, probabilities, np.array([1, presence])) == pytest.approx(expected)


def test_presence_follows_laplace():
    holds = np.array([[True, True], [True, False], [True, True]])
    np.testing.assert_allclose(presence_of(holds), [4 / 5, 3 / 5])


def test_the_true_iou_is_that_of_labelled_pixels():
    ids, probabilities = prediction()
    truth = np.where(np.random.default_rng(2).uniform(size=ids.shape) < 0.8, ids, 1 - ids)
    truth[:10] = 255
    found = compare(ids, probabilities, np.ones(2), truth)
    assert found.true == pytest.approx(score_masks([truth], [ids], 2).mean)
    assert found.expected == expected_iou(ids, probabilities, np.ones(2))


def test_a_mean_is_shrunk_by_as_much_as_it_is_uncertain():
    values = np.array([0.1, 0.3, 0.2])
    mean, error = 0.2, stats.sem(values)
    assert shrunken_mean(values) == pytest.approx(mean - error**2 / mean)
    assert shrunken_mean(np.array([-0.1, 0.11])) == 0  # the error is larger than the mean
    assert shrunken_mean(np.array([0.3])) == 0
    assert shrunken_mean(np.full(5, 0.3)) == pytest.approx(0.3)
    assert shrunken_mean(np.zeros(5)) == 0


def held_out(excess, true=0.6):
    return [HeldOutImage(true + one, true) for one in excess]


def test_each_image_is_corrected_by_what_the_others_showed():
    excess = np.array([0.1, 0.12, 0.08, 0.3])
    found = ExpectedIoU.learn(held_out(excess), np.ones(2))
    assert found.bias == pytest.approx(shrunken_mean(excess))
    without = [shrunken_mean(np.delete(excess, k)) for k in range(4)]
    np.testing.assert_allclose(found.errors, np.abs(excess - without))


def test_estimates_are_corrected_and_stay_within_0_and_1():
    ids = np.array([[0, 1]])
    for excess, expected in ((0.1, 0.9), (-0.1, 1.0)):
        model = ExpectedIoU.learn(held_out([excess] * 4), np.ones(2))
        assert model.estimate(ids, np.eye(2)[ids]) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "has_80", "has_90"), [(0, 0, 0), (3, 0, 0), (4, 1, 0), (8, 1, 0), (9, 1, 1)])
def test_margins_are_refused_below_4_and_9_images(n, has_80, has_90):
    found = ExpectedIoU.learn(held_out(np.linspace(-0.1, 0.1, n)), np.ones(2))
    assert (found.margin(0.8) is not None) == has_80
    assert (found.margin(0.9) is not None) == has_90
    assert len(found.tell()) == has_80
    for level, is_known in ((80, has_80), (90, has_90)):
        assert (f"unknown for {level} %" in found.explain()) != is_known


def test_what_is_told_names_the_margin():
    found = ExpectedIoU(0.0, np.array([0.01, 0.02, 0.03, 0.064]), np.ones(2))
    assert found.tell() == [
        "Expected IoU of a new image is within 0.06 of the truth in 80 % of images (from 4 training images)."
    ]


@pytest.mark.parametrize(
    ("bias", "words"), [(0.02, "too high by 0.020"), (-0.1, "too low by 0.100"), (0.0, "no correction")]
)
def test_the_correction_is_explained(bias, words):
    assert words in ExpectedIoU(bias, np.full(9, 0.1), np.ones(2)).explain()


def test_the_margins_cover_exchangeable_images_as_promised():
    """The correction is learnt from the same images, which costs nothing where it is learnt from the others of each."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(4000):
        excess = 0.05 + 0.1 * rng.standard_normal(11)
        model = ExpectedIoU.learn(held_out(excess[:10]), np.ones(2))
        inside.append([abs(excess[10] - model.bias) <= model.margin(level) for level in (0.8, 0.9)])
    np.testing.assert_allclose(np.mean(inside, axis=0), [0.8, 0.9], atol=0.02)


def test_what_is_explained_names_both_margins():
    found = ExpectedIoU(-0.0125, np.linspace(0.01, 0.09, 9), np.ones(2))
    assert found.explain() == (
        "Expected IoU: from the probabilities of an image's pixels. On 9 held-out training images they were too low by "
        f"{0.0125:.3f} on average, which is taken off. Margins: 0.080 in 80 % of images and 0.090 in 90 % of images; they "
        "take 4 and 9 training images."
    )
    few = ExpectedIoU(0.0, np.full(2, 0.1), np.ones(2))
    assert few.explain() == (
        "Expected IoU: from the probabilities of an image's pixels. On 2 held-out training images no correction of them is "
        "certain enough to be made. Margins: unknown for 80 % of images and unknown for 90 % of images; they take 4 and 9 "
        "training images."
    )


def test_presence_before_any_image_is_a_half():
    np.testing.assert_allclose(presence_of(np.zeros((0, 3), dtype=bool)), 0.5)
    np.testing.assert_allclose(presence_of(np.zeros((1, 2), dtype=bool)), 1 / 3)


def test_arrays_restore_it_and_have_the_shapes_told():
    found = ExpectedIoU(0.25, np.array([0.1, 0.2, 0.3]), np.array([1.0, 0.5]))
    arrays = found.to_arrays()
    assert {name: array.shape for name, array in arrays.items()} == found.state_shapes(2)
    again = ExpectedIoU.from_arrays(arrays | {"other": np.zeros(1)})
    assert again.bias == 0.25
    np.testing.assert_array_equal(again.errors, found.errors)
    np.testing.assert_array_equal(again.presence, found.presence)


def test_two_values_are_enough_for_a_mean():
    """The mean 0.3 has the variance 0.02 / 2."""
    assert shrunken_mean(np.array([0.2, 0.4])) == pytest.approx(0.3 - 0.01 / 0.3)
    assert shrunken_mean(np.array([-0.2, -0.4])) == pytest.approx(-0.3 + 0.01 / 0.3)
    assert shrunken_mean(np.array([])) == 0
