import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from segkit.calibration import PlattScaling, best_threshold, image_threshold, share_of_otsu, share_threshold
from segkit.errors import InputError


def noisy(n, seed, slope=1.5, intercept=-0.5):
    rng = np.random.default_rng(seed)
    decision = rng.normal(size=n)
    return decision, (rng.random(n) < expit(slope * decision + intercept)).astype(int)


def test_two_decision_values_meet_their_mean_targets():
    # one sigmoid passes through both points: at each it equals the mean smoothed target there
    decision = np.repeat([-1.0, 3.0], 10)
    y = np.r_[[1] * 2, [0] * 8, [1] * 7, [0] * 3]
    n_high, n_low = y.sum(), (1 - y).sum()
    high, low = (n_high + 1) / (n_high + 2), 1 / (n_low + 2)
    expected = [0.2 * high + 0.8 * low, 0.7 * high + 0.3 * low]
    platt = PlattScaling().fit(decision, y)
    np.testing.assert_allclose(platt.predict_proba([-1.0, 3.0])[:, 1], expected, rtol=1e-6)


def test_equal_decisions_give_the_mean_target():
    platt = PlattScaling().fit(np.full(6, 2.0), [1, 1, 0, 0, 0, 0])
    assert platt.predict_proba([2.0])[0, 1] == pytest.approx((2 * 3 / 4 + 4 / 6) / 6)


class Decisions(ClassifierMixin, BaseEstimator):
    """A classifier whose decision is its only feature."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X[:, 0]

    def predict(self, X):
        return self.classes_[(X[:, 0] > 0).astype(int)]


@pytest.mark.filterwarnings("ignore:Since FrozenEstimator")
@pytest.mark.parametrize("weighted", [False, True])
def test_same_sigmoid_as_scikit_learn(weighted):
    decision, y = noisy(400, 1)
    weight = np.random.default_rng(2).uniform(0.5, 2, size=400) if weighted else None
    reference = CalibratedClassifierCV(
        FrozenEstimator(Decisions().fit(decision[:, None], y)), method="sigmoid", ensemble=False
    )
    reference.fit(decision[:, None], y, sample_weight=weight)
    platt = PlattScaling().fit(decision, y, weight)
    grid = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(platt.predict_proba(grid), reference.predict_proba(grid[:, None]), atol=2e-4)


def test_recovers_the_sigmoid_that_made_the_labels():
    platt = PlattScaling().fit(*noisy(50_000, 3))
    assert platt.slope_[0] == pytest.approx(1.5, abs=0.06)
    assert platt.intercept_[0] == pytest.approx(-0.5, abs=0.06)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 100), scale=st.floats(1e-4, 1e4), shift=st.floats(-5, 5))
def test_affine_decisions_give_the_same_probabilities(seed, scale, shift):
    decision, y = noisy(60, seed)
    plain = PlattScaling().fit(decision, y).predict_proba(decision)
    moved = scale * (decision + shift)
    np.testing.assert_allclose(PlattScaling().fit(moved, y).predict_proba(moved), plain, atol=1e-5)


def test_probability_rises_with_the_decision():
    decision, y = noisy(200, 4)
    probability = PlattScaling().fit(decision, y).predict_proba(np.sort(decision))[:, 1]
    assert (np.diff(probability) > 0).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_separated_decisions_keep_a_finite_slope(scale):
    decision = scale * np.r_[np.linspace(-2, -1, 20), np.linspace(1, 2, 20)]
    platt = PlattScaling().fit(decision, decision > 0)
    assert np.isfinite(platt.slope_).all()
    p = platt.predict_proba(decision)[:, 1]
    assert 0 < p.min() < 0.1 < 0.9 < p.max() < 1


def test_weights_count_rows():
    decision, y = noisy(80, 5)
    count = np.random.default_rng(6).integers(0, 4, size=80)
    weighted = PlattScaling().fit(decision, y, count)
    repeated = PlattScaling().fit(np.repeat(decision, count), np.repeat(y, count))
    np.testing.assert_allclose(weighted.slope_, repeated.slope_, rtol=1e-6)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-6)


def test_each_class_has_its_own_sigmoid(rng):
    decisions, y = rng.normal(size=(300, 3)), rng.integers(0, 3, size=300)
    decisions[np.arange(300), y] += 1
    platt = PlattScaling().fit(decisions, y)
    for k in range(3):
        binary = PlattScaling().fit(decisions[:, k], y == k)
        assert (platt.slope_[k], platt.intercept_[k]) == (binary.slope_[0], binary.intercept_[0])
    sigmoids = expit(decisions * platt.slope_ + platt.intercept_)
    expected = sigmoids / sigmoids.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(platt.predict_proba(decisions), expected, rtol=1e-12)


def test_far_decisions_of_many_classes_still_sum_to_one():
    probability = PlattScaling.identity(3).predict_proba([[-2000.0, -2001.0, -3000.0]])
    np.testing.assert_allclose(probability, [[expit(1), expit(-1), 0]], atol=1e-12)


def test_identity_is_the_logistic_function():
    np.testing.assert_allclose(logit(PlattScaling.identity(2).predict_proba([-2.0, 0.5])[:, 1]), [-2.0, 0.5])


def test_one_column_is_two_classes(rng):
    decision, y = noisy(50, 7)
    flat, column = PlattScaling().fit(decision, y), PlattScaling().fit(decision[:, None], y)
    np.testing.assert_array_equal(flat.predict_proba(decision), column.predict_proba(decision[:, None]))


def test_restored_from_arrays():
    decision, y = noisy(50, 8)
    platt = PlattScaling().fit(decision, y)
    restored = PlattScaling.from_arrays(platt.slope_, platt.intercept_)
    np.testing.assert_array_equal(platt.predict_proba(decision), restored.predict_proba(decision))


EACH_ROW = "give one label and one weight for each decision"
WEIGHTS = "weights must be non-negative, finite and not all zero: leave out rows instead"
SHAPES = "give (n,) or (n, 1) for two classes, else (n, n_classes)"


@pytest.mark.parametrize(
    ("decisions", "y", "weight", "message"),
    [
        ([[1.0, 2.0]], [0], None, f"decisions of shape (1, 2): {SHAPES}"),
        ([1.0, np.nan], [0, 1], None, "decisions of shape (2, 1) hold NaN or infinity: leave those rows out"),
        ([1.0, 2.0], [0], None, f"2 decisions, labels of shape (1,), weights of shape (2,): {EACH_ROW}"),
        ([1.0, 2.0], [1, 2], None, "labels [1 2]: expected class indices 0 to 1, number them so"),
        ([1.0, 2.0], [0, 1], [1, -1], WEIGHTS),
        ([1.0, 2.0], [0, 1], [0, 0], WEIGHTS),
    ],
)
def test_bad_input(decisions, y, weight, message):
    with pytest.raises(InputError) as error:
        PlattScaling().fit(decisions, y, weight)
    assert str(error.value) == message


def test_other_number_of_columns():
    with pytest.raises(InputError) as error:
        PlattScaling.identity(3).predict_proba([1.0])
    assert str(error.value) == (
        "decisions have 1 columns: the scaling was fitted on 3, give decisions of the same classifier"
    )


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


@pytest.mark.parametrize("seed", range(5))
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


def test_threshold_of_the_right_share():
    decision = np.array([0.3, -1.0, 2.0, 0.1, -0.5])
    label = np.array([1, 0, 1, 0, 0])
    image = np.zeros(5, dtype=int)
    threshold = share_threshold(decision, label, np.ones(5), image)
    assert 0.1 < threshold < 0.3
    # one of the second class that stands for two: two pixels must lie above
    assert -0.5 < share_threshold(decision, label, np.array([1.0, 1.0, 2.0, 1.0, 1.0]), image) <= 0.3


def naive_otsu(decision):
    """Of all cuts between values that with the greatest variance between its sides."""
    values = np.unique(decision)
    cuts = (values[1:] + values[:-1]) / 2
    sides = [(decision[decision <= cut], decision[decision > cut]) for cut in cuts]
    return cuts[np.argmax([low.size * high.size * (high.mean() - low.mean()) ** 2 for low, high in sides])]


def test_an_image_moves_its_threshold_towards_otsus():
    rng = np.random.default_rng(0)
    decision = np.concatenate([rng.normal(-0.6, 0.1, 300), rng.normal(0.3, 0.1, 60)])
    own = image_threshold(decision, 0.8, 1.0)
    assert own == pytest.approx(naive_otsu(decision), abs=0.01)
    assert image_threshold(decision.reshape(20, 18), 0.8, 0.25) == pytest.approx(0.75 * 0.8 + 0.25 * own)
    assert image_threshold(decision, 0.8, 0.0) == 0.8


def test_how_sure_decisions_are_beyond_the_margin_does_not_move_a_threshold():
    decision = np.repeat([-1.0, -0.2, 0.1, 1.0], [500, 20, 30, 100])
    farther = np.where(np.abs(decision) == 1, 7 * decision, decision)
    assert image_threshold(farther, 0.0, 0.5) == image_threshold(decision, 0.0, 0.5)


def test_an_image_of_one_decision_has_it_for_its_threshold():
    assert image_threshold(np.full((4, 5), -3.0), 0.2, 0.5) == pytest.approx((0.2 - 1) / 2)
    assert not (np.full((4, 5), -3.0) > image_threshold(np.full((4, 5), -3.0), 0.2, 0.5)).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("start", [-0.28, -1.0, 0.0, 0.9])
def test_an_image_of_decisions_that_rounding_parts_has_them_for_its_threshold(dtype, start):
    decision = np.full((4, 5), start, dtype=dtype)
    decision[0, 0] = np.nextafter(decision[0, 0], dtype(2))
    assert image_threshold(decision, 0.2, 0.5) == pytest.approx((0.2 + start) / 2, abs=1e-6)


def test_a_decision_that_stands_for_several_counts_as_often():
    rng = np.random.default_rng(0)
    decision = rng.uniform(-1, 1, 200)
    times = np.where(decision > 0.5, 9, 1)
    once = image_threshold(decision, 0.0, 1.0, times.astype(float))
    assert once == pytest.approx(image_threshold(np.repeat(decision, times), 0.0, 1.0))
    assert once != pytest.approx(image_threshold(decision, 0.0, 1.0))


def test_few_training_images_leave_more_to_the_image():
    assert [share_of_otsu(n) for n in (1, 2, 6)] == pytest.approx([2 / 3, 1 / 2, 1 / 4])


def test_an_image_that_was_missed_altogether_has_the_margin_for_its_threshold():
    label = np.tile([0, 0, 0, 1], 100)
    decision = np.linspace(-4, -2, 400)
    assert share_threshold(decision, label, np.ones(400), np.zeros(400)) == -1
    both = np.concatenate([decision, np.linspace(-1, 1, 400)])
    found = share_threshold(both, np.tile(label, 2), np.ones(800), np.repeat([0, 1], 400))
    assert found == pytest.approx((-1 + 0.5) / 2, abs=0.01)


def test_share_is_matched_whatever_the_weights():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 4000)
    decision, weight = rng.standard_normal(4000) + label, rng.uniform(0.5, 3, 4000)
    called = weight @ (decision > share_threshold(decision, label, weight, np.zeros(4000)))
    assert called == pytest.approx(weight @ label, rel=2e-3)


def test_threshold_is_the_mean_of_those_of_the_images():
    rng = np.random.default_rng(0)
    image, label = np.repeat([0, 1, 3, 2], 500), rng.integers(0, 2, 2000)
    decision, weight = rng.standard_normal(2000) + label - image**2, np.ones(2000)
    label[image == 2] = 0  # no pixel of the second class: no threshold of its own
    alone = [
        share_threshold(decision[mine], label[mine], weight[mine], image[mine])
        for mine in (image == 0, image == 1, image == 3)
    ]
    assert share_threshold(decision, label, weight, image) == pytest.approx(np.mean(alone))
    one_class_each = np.where(image == 0, 1, 0)
    assert share_threshold(decision, one_class_each, weight, image) == pytest.approx(
        share_threshold(decision, one_class_each, weight, np.zeros(2000))
    )
