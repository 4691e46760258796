import numpy as np
import pytest

from segkit.calibration import share_threshold
from segkit.heldout import NO_WORSE, HeldOut, hold_out
from segkit.kernels import LinearMixture
from segkit.linear import LinearSVM
from segkit.metrics import score_masks
from segkit.sampling import PixelSample


def pixels(n_images=3, n=40, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    image = np.repeat(np.arange(n_images), n)
    label = rng.integers(0, n_classes, image.size)
    X = rng.standard_normal((image.size, 3)).astype(np.float32)
    X[:, 0] += 2 * label
    place = np.tile(np.arange(n), n_images)
    return X, PixelSample(image, place, place, label, rng.uniform(0.5, 2, image.size))


def follow(items, description):
    yield from items


def held(penalties=(1.0, 1e-2), n_classes=2, **options):
    X, drawn = pixels(n_classes=n_classes, **options)
    kernels = LinearMixture().fit(X, drawn.label, drawn.image)
    fold = drawn.image
    return X, hold_out(X, drawn, drawn.image, fold, kernels, LinearSVM(), penalties, n_classes, follow)


def test_each_image_is_judged_by_the_others(monkeypatch):
    monkeypatch.setattr("segkit.heldout.TOL", 1e-9)
    X, found = held()
    drawn = found.drawn
    for index in range(3):
        others = drawn.image != index
        kernels = LinearMixture().fit(X[others], drawn.label[others], drawn.image[others])
        for row, penalty in zip(found.decisions, found.penalties, strict=True):
            svm = LinearSVM(C=1 / (others.sum() * penalty), tol=1e-9)
            svm.fit(kernels.transform(X[others]), drawn.label[others], drawn.weight[others])
            expected = svm.decision_function(kernels.transform(X[~others]))
            np.testing.assert_allclose(row[~others, 0], expected, atol=1e-4)


def test_labels_of_held_out_pixels_say_nothing():
    X, drawn = pixels()
    kernels = LinearMixture().fit(X, drawn.label, drawn.image)
    flipped = np.where(drawn.image == 1, 1 - drawn.label, drawn.label)
    other = PixelSample(drawn.image, drawn.row, drawn.col, flipped, drawn.weight)
    mine, theirs = (
        hold_out(X, sample, drawn.image, drawn.image, kernels, LinearSVM(), [1e-2], 2, follow)
        for sample in (drawn, other)
    )
    np.testing.assert_array_equal(mine.decisions[0, drawn.image == 1], theirs.decisions[0, drawn.image == 1])
    assert not np.array_equal(mine.decisions[0, drawn.image == 0], theirs.decisions[0, drawn.image == 0])


def test_folds_whose_others_lack_a_class_are_left_out():
    X, drawn = pixels(n_images=2)
    label = np.where(drawn.image == 1, drawn.label, 0)
    sample = PixelSample(drawn.image, drawn.row, drawn.col, label, drawn.weight)
    kernels = LinearMixture().fit(X, label)
    found = hold_out(X, sample, drawn.image, drawn.image, kernels, LinearSVM(), [1e-2], 2, follow)
    assert set(found.drawn.image) == {0}
    assert not found.has_all_classes


@pytest.mark.parametrize("n_classes", [2, 3])
def test_score_is_the_mean_iou_of_images(n_classes):
    _, found = held(penalties=[1e-2], n_classes=n_classes)
    drawn = found.drawn
    whole = HeldOut(
        found.penalties,
        found.decisions,
        PixelSample(drawn.image, drawn.row, drawn.col, drawn.label, np.ones(drawn.label.size)),
        found.fold,
        n_classes,
    )
    choice = whole.choose("share")
    if n_classes == 2:
        guess = (choice.decisions[:, 0] > choice.threshold).astype(int)
    else:
        guess = choice.decisions.argmax(axis=1)
        assert choice.threshold == 0
    images = [drawn.image == index for index in range(3)]
    expected = score_masks(
        [drawn.label[mine][None] for mine in images], [guess[mine][None] for mine in images], n_classes
    )
    assert choice.summary["mean_iou"] == pytest.approx(expected.mean)
    assert choice.summary["interval"] == pytest.approx(list(expected.interval))
    assert choice.summary["regions"] == "images"


def test_pixels_count_by_what_they_stand_for():
    _, found = held(penalties=[1e-2])
    drawn = found.drawn
    twice = np.concatenate([np.arange(drawn.label.size), np.flatnonzero(drawn.label == 1)])
    twice = twice[np.argsort(drawn.image[twice], kind="stable")]
    ones = np.ones(drawn.label.size)
    weighted = PixelSample(drawn.image, drawn.row, drawn.col, drawn.label, ones + (drawn.label == 1))
    repeated = PixelSample(drawn.image, drawn.row, drawn.col, drawn.label, ones).subset(twice)
    scores = [
        HeldOut(found.penalties, decisions, sample, sample.image, 2).choose("zero").summary["mean_iou"]
        for decisions, sample in ((found.decisions, weighted), (found.decisions[:, twice], repeated))
    ]
    assert scores[0] == pytest.approx(scores[1])


def test_threshold_calls_as_many_foreground_as_are_annotated():
    _, found = held()
    choice = found.choose("share")
    weight, label = found.drawn.weight, found.drawn.label
    decisions = choice.decisions[:, 0]
    own = [
        share_threshold(decisions[mine], label[mine], weight[mine], found.drawn.image[mine])
        for mine in (found.drawn.image == index for index in np.unique(found.drawn.image))
    ]
    assert choice.threshold == pytest.approx(np.mean(own))
    assert found.choose("zero").threshold == 0
    assert found.choose("iou").summary["mean_iou"] >= choice.summary["mean_iou"] - 2e-3


def test_of_penalties_that_do_as_well_the_largest_is_taken():
    _, found = held(penalties=[1e2, 1e-1, 1e-2, 1e-3])
    choice = found.choose("share")
    scores = {float(penalty): score for penalty, score in choice.summary["by_lambda"].items()}
    good = [penalty for penalty, score in scores.items() if score >= max(scores.values()) - NO_WORSE]
    assert choice.penalty == max(good)
    assert choice.summary["mean_iou"] == scores[choice.penalty]


def test_blocks_of_a_single_image():
    X, drawn = pixels(n_images=1, n=160)
    fold = np.repeat(np.arange(4), 40)
    kernels = LinearMixture().fit(X, drawn.label, fold)
    found = hold_out(X, drawn, fold, fold, kernels, LinearSVM(), [1e-2], 2, follow)
    summary = found.choose("share").summary
    assert (summary["regions"], summary["n_regions"]) == ("blocks", 4)
