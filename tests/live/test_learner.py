from dataclasses import replace

import numpy as np
import pytest

import segkit.live.learner
from segkit.classifier.svm import LinearSVM
from segkit.images.sampling import draw_pixels
from segkit.live.learner import Labelled, Learner
from segkit.segmentation.segmenter import Segmenter

SHAPE = (40, 50)


@pytest.fixture
def features(rng):
    """Channels of two images: the first two tell the classes apart, the third is noise."""
    maps = {}
    for key in "ab":
        X = rng.standard_normal((*SHAPE, 3)).astype(np.float32)
        X[:, 25:, :2] += 2.5
        maps[key] = X
    return maps


class Reader:
    """Read features, and count the pixels that are asked for."""

    def __init__(self, maps):
        self.maps, self.n_read = maps, 0

    def __call__(self, key, rows, cols):
        self.n_read += rows.size
        return self.maps[key][rows, cols]


def learner(maps):
    return Learner(Segmenter(), np.ones(3), Reader(maps), lambda key: key.partition("#")[0])


def labels(*boxes):
    drawn = np.full(SHAPE, 255, dtype=np.uint8)
    for rows, cols, value in boxes:
        drawn[slice(*rows), slice(*cols)] = value
    return drawn


LEFT, RIGHT = ((5, 15), (2, 20), 0), ((5, 15), (30, 48), 7)


def accuracy(model, X, truth):
    decisions = model.decide_coarse(np.ascontiguousarray(X.transpose(2, 0, 1)))
    return (model.values[model.rule.segment(decisions)] == truth).mean()


def halves():
    truth = np.zeros(SHAPE, dtype=np.uint8)
    truth[:, 25:] = 7
    return truth


def test_two_strokes_are_enough(features):
    model = learner(features).fit({"a": Labelled.of(labels(LEFT, RIGHT))})
    assert model.values.tolist() == [0, 7]
    assert accuracy(model, features["a"], halves()) > 0.94
    assert accuracy(model, features["b"], halves()) > 0.94


def test_three_classes(features):
    features["a"][:, 40:, 0] += 4
    third = ((5, 15), (42, 48), 9)
    model = learner(features).fit({"a": Labelled.of(labels(LEFT, ((5, 15), (28, 38), 7), third))})
    truth = halves()
    truth[:, 40:] = 9
    assert accuracy(model, features["a"], truth) > 0.95
    decisions = model.decide_coarse(np.ascontiguousarray(features["a"].transpose(2, 0, 1)))
    np.testing.assert_allclose(model.rule.probabilities(decisions).sum(axis=2), 1, atol=1e-5)


def test_one_class_or_one_pixel_of_another_is_not_enough(features):
    for boxes in ([], [LEFT], [LEFT, ((0, 1), (30, 31), 7)]):
        assert learner(features).fit({"a": Labelled.of(labels(*boxes))}) is None


def test_only_new_pixels_are_read(features):
    subject = learner(features)
    drawn = labels(LEFT, RIGHT)
    subject.fit({"a": Labelled.of(drawn)})
    assert subject.read.n_read == 360
    subject.fit({"a": Labelled.of(drawn)})
    assert subject.read.n_read == 360
    drawn[20:21, 2:20] = 0
    subject.fit({"a": Labelled.of(drawn)})
    assert subject.read.n_read == 378


def test_draws_change_little_with_a_stroke(features, monkeypatch):
    monkeypatch.setattr(segkit.live.learner, "PIXELS", 100)
    subject = learner(features)
    drawn = labels(LEFT, RIGHT)
    subject.fit({"a": Labelled.of(drawn)})
    assert subject.read.n_read == 100
    drawn[15:16, 2:20] = 0  # a tenth more of one class: about a tenth of its 50 pixels are new
    subject.fit({"a": Labelled.of(drawn)})
    assert 100 < subject.read.n_read < 115


def test_weights_restore_the_share_of_each_class(features, monkeypatch):
    monkeypatch.setattr(segkit.live.learner, "PIXELS", 60)
    subject = learner(features)
    drawn = labels(LEFT, ((5, 7), (30, 48), 7))
    subject.fit({"a": Labelled.of(drawn)})
    sample = subject._drawn.sample
    expected = draw_pixels([np.where(drawn == 7, 1, drawn)], 2, 60, np.random.default_rng(0))
    for label in (0, 1):
        mine, theirs = sample.label == label, expected.label == label
        assert mine.sum() == theirs.sum()
        np.testing.assert_allclose(sample.weight[mine].sum(), expected.weight[theirs].sum())
    np.testing.assert_array_equal(drawn[sample.row, sample.col], np.where(sample.label == 1, 7, 0))


def test_channels_are_chosen_anew_when_labels_have_grown_by_half(features, monkeypatch):
    chosen = []
    make = segkit.live.learner.make_classifier
    monkeypatch.setattr(
        segkit.live.learner,
        "make_classifier",
        lambda *parts, **options: chosen.append(1) or make(*parts, **options),
    )
    subject = learner(features)
    drawn = labels(LEFT, RIGHT)  # 360 pixels
    subject.fit({"a": Labelled.of(drawn)})
    first = subject.fit({"a": Labelled.of(drawn)}).classifier
    drawn[20:26, 0:25] = 0  # 510
    second = subject.fit({"a": Labelled.of(drawn)}).classifier
    assert len(chosen) == 1
    assert second.kernels_ is first.kernels_
    drawn[26:28, 0:25] = 0  # 560
    third = subject.fit({"a": Labelled.of(drawn)}).classifier
    assert len(chosen) == 2
    assert third.kernels_ is not first.kernels_
    subject.fit({"a": Labelled.of(drawn), "b": Labelled.of(labels(LEFT))})  # another image
    assert len(chosen) == 3
    subject.fit({"a": Labelled.of(drawn), "b": Labelled.of(labels(((0, 2), (0, 9), 3)))})  # another class
    assert len(chosen) == 4


def test_warm_fits_end_where_cold_ones_do(features):
    drawn = labels(LEFT, RIGHT)
    warm = learner(features)
    warm.fit({"a": Labelled.of(drawn)})
    drawn[16:18, 2:20] = 0
    model = warm.fit({"a": Labelled.of(drawn)})
    sample, X = warm._drawn.sample, warm._drawn.X
    fitted = model.classifier
    Z = fitted.kernels_.transform(fitted.standardise(X[:, fitted.channels_]))
    C = 1 / (len(X) * 1e-3)  # the usual penalty of one image
    cold = LinearSVM(C=C, tol=1e-6).fit(Z, sample.label, sample.weight)
    np.testing.assert_allclose(fitted.svm_.C, C)
    np.testing.assert_allclose(fitted.svm_.objective_, cold.objective_, rtol=1e-3)
    np.testing.assert_allclose(fitted.svm_.coef_, cold.coef_, atol=0.1 * np.abs(cold.coef_).max())


def test_judging_holds_out_images(features):
    subject = learner(features)
    drawn = {key: Labelled.of(labels(LEFT, RIGHT)) for key in "ab"}
    model = subject.fit(drawn)
    evaluated, scores = subject.evaluate(model)
    assert scores.regions == "images"
    assert scores.n_regions == 2
    assert scores.mean_iou > 0.9
    assert evaluated.classifier is model.classifier


def test_judging_holds_out_all_pages_of_a_file(features):
    maps = {"s#1": features["a"], "s#2": features["a"], "t": features["b"]}
    subject, drawn = learner(maps), {key: Labelled.of(labels(LEFT, RIGHT)) for key in maps}
    scores = subject.evaluate(subject.fit(drawn))[1]
    assert (scores.n_regions, scores.n_groups) == (3, 2)
    fold, image = subject._drawn.fold, subject._drawn.sample.image
    assert [set(fold[image == place]) for place in range(3)] == [{0}, {0}, {1}]


def test_what_was_evaluated_holds_until_classes_change(features):
    subject = learner(features)
    drawn = {key: Labelled.of(labels(LEFT, RIGHT)) for key in "ab"}
    evaluated, _ = subject.evaluate(subject.fit(drawn))
    again = subject.fit(drawn)
    assert again.rule is evaluated.rule
    drawn["b"] = Labelled.of(labels(LEFT, RIGHT, ((20, 25), (2, 20), 3)))
    assert subject.fit(drawn).rule.least_areas.shape == (3, 2)


def test_judging_one_image_holds_out_blocks(features):
    subject = learner(features)
    model = subject.fit({"a": Labelled.of(labels(((0, 40), (2, 20), 0), ((0, 40), (30, 48), 7)))})
    assert subject.evaluate(model)[1].regions == "blocks"


def test_a_model_of_other_classes_is_not_judged(features):
    subject = learner(features)
    model = subject.fit({"a": Labelled.of(labels(LEFT, RIGHT))})
    assert subject.evaluate(replace(model, values=np.array([0, 3], dtype=np.uint8))) is None


def test_pixels_of_one_rank_weigh_no_more(features, monkeypatch):
    monkeypatch.setattr(segkit.live.learner, "PIXELS", 6)
    both, first = labels(LEFT, RIGHT), labels(LEFT)
    maps = {"a": features["a"], **dict.fromkeys("bcdef", features["b"])}
    drawn = {key: Labelled.of(both if key == "a" else first) for key in maps}
    totals = {0: 6 * 180, 7: 180}
    sample = learner(maps)._draw(drawn, totals).sample
    by_class = np.bincount(sample.label, sample.weight)
    assert by_class[0] / by_class[1] == pytest.approx(6)


@pytest.mark.parametrize("width", [256, 610])
def test_drawn_pixels_are_spread_over_images_of_any_width(width):
    one = Labelled.of(np.zeros((width, width), dtype=np.uint8))
    drawn = np.zeros((width, width), dtype=bool)
    drawn.flat[one.first[0]] = True
    share = drawn.mean()
    for neighbours in (drawn[1:] & drawn[:-1], drawn[:, 1:] & drawn[:, :-1], drawn[5:] & drawn[:-5]):
        chance = neighbours.size * share**2
        assert abs(neighbours.sum() - chance) < 5 * chance**0.5 + 1
