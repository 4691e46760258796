from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.svm import LinearSVM
from segkit.features import Channel, MultiscaleBank, PositionBank, ScatteringBank, StackedBank
from segkit.features.normalised import even_grid
from segkit.images.sampling import assign_folds, draw_pixels
from segkit.kernels import LinearGaussianMixture
from segkit.segmentation.fit import (
    Candidate,
    Recipe,
    TrainingSet,
    compare_banks,
    evaluate_bank,
    evaluate_banks,
    settings_of,
    summarise,
    warn_of_one_class,
)
from segkit.segmentation.held_out import Choice
from segkit.segmentation.segmenter import Segmenter
from segkit.segmentation.summary import HeldOutScores
from segkit.segmentation.threshold import DecisionRule
from segkit.selection import MMDSelector

PENALTIES = [1e-2, 1e-3]
BANK = StackedBank([MultiscaleBank(sigma_max=2)], normalization="set")
RULE = replace(DecisionRule.by_sign(2), threshold=0.25, otsu_weight=0.75)


def follow(items, description):
    yield from items


def make_recipe(**options):
    classifier = PixelClassifier(
        MMDSelector(5), LinearGaussianMixture(n_components=24, random_state=0), LinearSVM()
    )
    usual = {
        "classifier": classifier,
        "penalties": PENALTIES,
        "selection_pixels": 200,
        "training_pixels": 300,
        "threshold": "quantile",
        "smallest_region": 0.0,
        "probability": "calibrated",
        "random_state": 0,
    }
    return Recipe(**usual | options)


def make_data(rng, n_images=3):
    masks = [np.zeros((24, 30), dtype=np.uint8) for _ in range(n_images)]
    for place, mask in enumerate(masks):
        mask[4 + place % 3 : 14, 5:20] = 1
    images = [
        (0.5 * mask + 0.1 * rng.standard_normal(mask.shape)).astype(np.float32)[:, :, None] for mask in masks
    ]
    drawn, training = (draw_pixels(masks, 2, n_pixels, rng) for n_pixels in (200, 300))
    return TrainingSet(images, masks, drawn, training, np.zeros((2, 2)))


@pytest.fixture(name="data")
def three_images(rng):
    return make_data(rng)


def evaluate(data, bank=BANK, recipe=None):
    return evaluate_bank(recipe or make_recipe(), data, PENALTIES, bank, follow)


def candidate(mean_iou, n_regions=2):
    scores = HeldOutScores("images", n_regions, mean_iou)
    return Candidate(BANK, None, None if mean_iou is None else Choice(1e-3, RULE, scores), {})


@pytest.mark.parametrize(
    ("scores", "n_regions", "best", "is_compared"),
    [
        ([0.5, 0.7, 0.6], 2, 1, True),
        ([0.6, 0.6], 2, 0, True),
        ([0.4], 2, 0, False),
        ([None, None], 2, 0, False),
        ([0.5, 0.6], 1, 0, False),
    ],
)
def test_the_highest_score_is_best_and_of_equals_the_first(scores, n_regions, best, is_compared):
    place, by_bank = compare_banks([candidate(score, n_regions) for score in scores])
    assert place == best
    expected = [
        {"bank": "multiscale", "mean_iou": score, "chosen": index == best}
        for index, score in enumerate(scores)
    ]
    assert by_bank == (expected if is_compared else None)


def test_of_seven_images_five_parts_are_held_out_and_strokes_are_judged_without_whole_images(
    rng, monkeypatch
):
    class HoldOutError(Exception):
        """What `hold_out` was asked for."""

    def note(X, sample, groups, fold, *_, spread, **__):
        raise HoldOutError(np.unique(fold).size, spread is None)

    monkeypatch.setattr("segkit.segmentation.fit.hold_out", note)
    seven = make_data(rng, 7)
    strokes = np.full((24, 30), 255, dtype=np.uint8)
    for ids in (seven.ids, [strokes, *seven.ids[1:]]):
        with pytest.raises(HoldOutError) as noted:
            evaluate(replace(seven, ids=ids))
        assert noted.value.args == (5, ids is not seven.ids)


def test_a_bank_is_sampled_selected_and_judged(data):
    found = evaluate(data)
    drawn, training = (
        np.concatenate([BANK.sample(image, *at) for image, at in zip(data.images, places, strict=True)])
        for places in (
            [(sample.row[part], sample.col[part]) for part in map(sample.of_image, range(3))]
            for sample in (data.drawn, data.training)
        )
    )
    selector = MMDSelector(5).fit(drawn, data.drawn.label, groups=data.drawn.image)
    np.testing.assert_array_equal(found.classifier.channels_, selector.get_support(indices=True))
    np.testing.assert_array_equal(found.read[0], training[:, found.classifier.channels_])
    on_grid = [
        BANK.sample(image, *even_grid(image.shape), found.classifier.channels_) for image in data.images
    ]
    np.testing.assert_array_equal(found.read[1], np.concatenate(on_grid))
    assert found.classifier.gaussian_channels.all()  # each channel has a value at each pixel
    assert 0.5 < found.choice.scores.mean_iou <= 1
    assert found.choice.scores.n_regions == 3
    assert set(found.seconds) == {"select", "calibrate"}


def test_an_evaluation_does_not_change_the_parts(data):
    recipe = make_recipe()
    first, again = (evaluate(data, recipe=recipe) for _ in range(2))
    assert recipe.classifier.kernels.gaussian_columns is None
    assert recipe.classifier.gaussian_channels is None
    assert not hasattr(recipe.classifier.selector, "scores_")
    assert first.choice.scores == again.choice.scores


def test_gaussians_see_only_channels_of_stride_one(data):
    bank = StackedBank([ScatteringBank(J=2, L=2), MultiscaleBank(sigma_max=1)])
    found = evaluate(data, bank)
    np.testing.assert_array_equal(found.classifier.gaussian_channels, bank.strides(1) == 1)
    assert 0 < found.classifier.gaussian_channels.sum() < bank.n_channels(1)


def test_grids_hold_fewer_pixels_where_memory_is_short(data, monkeypatch):
    assert len(evaluate(data).choice.images) == 3
    n_drawn, bytes_of_pixel = data.drawn.label.size, 4 * BANK.n_channels(1)
    monkeypatch.setattr("segkit.segmentation.fit.MEMORY_LIMIT", bytes_of_pixel * (n_drawn + 3 * 399))
    assert evaluate(data).choice.images == ()  # too few to tell an IoU by
    monkeypatch.setattr("segkit.segmentation.fit.MEMORY_LIMIT", bytes_of_pixel * (n_drawn + 3 * 400))
    assert len(evaluate(data).choice.images) == 3


def spread(function, items):
    """Give the results of the items in another order, as workers do."""
    for item in [*items][::-1]:
        yield item, lambda item=item: function(item)


def test_workers_take_the_banks_or_the_folds_of_a_single_one(data, monkeypatch):
    runs, told = [], []

    def run(recipe, data, penalties, bank, progress, workers=None):
        runs.append((bank.sigma_max, penalties, workers))
        progress([], f"Tiles of {bank.sigma_max}")
        return replace(candidate(0.5), bank=bank)

    def note(items, description):
        told.append(description)

    monkeypatch.setattr("segkit.segmentation.fit.evaluate_bank", run)
    banks, recipe = [MultiscaleBank(sigma_max=sigma) for sigma in (1, 2, 4)], make_recipe()
    assert [one.bank for one in evaluate_banks(recipe, data, banks[:1], note, spread)] == banks[:1]
    assert runs.pop() == (1, PENALTIES, spread)
    assert [one.bank for one in evaluate_banks(recipe, data, banks[:1], note, None)] == banks[:1]
    assert runs.pop()[2] is not None
    assert told == ["Tiles of 1"] * 2
    told.clear()
    found = evaluate_banks(recipe, data, banks, note, spread)
    assert [(one.index, one.bank) for one in found] == [*enumerate(banks)]
    assert runs == [(sigma, PENALTIES, None) for sigma in (4, 2, 1)]
    assert told == ["Bank 3 of 3: Tiles of 4", "Bank 2 of 3: Tiles of 2", "Bank 1 of 3: Tiles of 1"]


class Learner(MultiscaleBank):
    """A bank whose maps of training images would be made without them; it counts its fits."""

    n_fits = 0
    is_cross_fitted = True

    def fit(self, *given, **options):
        Learner.n_fits += 1
        return self

    def cross_fitted(self, index):
        return self


def test_groups_are_held_out_by_networks_classifiers_and_objects(data, monkeypatch):
    seen = []

    def assign(sample, shapes, n_folds, groups=None):
        seen.append(groups.tolist())
        return assign_folds(sample, shapes, n_folds, groups)

    class Bank(MultiscaleBank):
        def fit(self, *given, groups=None, **options):
            seen.append(groups.tolist())
            return self

    for module in ("fit", "object_model"):
        monkeypatch.setattr(f"segkit.segmentation.{module}.assign_folds", assign)
    bank = StackedBank([Bank(sigma_max=2), MultiscaleBank(sigma_max=1)])
    segmenter = Segmenter(bank, training_pixels=300, selection_pixels=200)
    segmenter.fit(data.images, data.ids, instances=data.ids, groups=["p", "q", "p"])
    assert seen == [[0, 1, 0]] * 3
    assert segmenter.summary_.held_out.n_groups == 2
    assert segmenter.objects_.scores.groups == [0, 1, 0]


def test_a_margin_knows_the_group_of_each_image_but_of_copies(data):
    images, ids = [[*list(given), given[0]] for given in (data.images, data.ids)]
    images, ids = [[given[k] for k in (0, 3, 1, 2)] for given in (images, ids)]  # the second is a copy
    segmenter = Segmenter(BANK, training_pixels=300, selection_pixels=200)
    segmenter.fit(images, ids, groups=list("pqqr"))
    assert segmenter.alarms_.expected.groups is None
    segmenter.fit(images, ids, groups=["p", "q", "r", "r"])
    assert segmenter.alarms_.expected.groups.tolist() == [0, 2, 2]


def test_groups_need_objects_of_each(data):
    """Else nothing would be known of how those of a single group are told apart."""
    objects = [np.zeros_like(data.ids[0]), *data.ids[1:]]
    segmenter = Segmenter(BANK, training_pixels=300, selection_pixels=200)
    segmenter.fit(data.images, data.ids, instances=objects, groups=["p", "q", "q"])
    assert segmenter.summary_.held_out.n_groups is None


def test_the_cross_fitted_part_of_a_stack_is_what_is_cross_fitted_of_it():
    learner, filters = Learner(sigma_max=2), MultiscaleBank(sigma_max=1)
    assert StackedBank([filters, learner]).cross_fitted_part.n_channels() == learner.n_channels()
    both = StackedBank([learner, filters, learner]).cross_fitted_part
    assert isinstance(both, StackedBank)
    assert both.n_channels() == 2 * learner.n_channels()
    assert StackedBank([learner, learner]).cross_fitted_part is None
    assert StackedBank([filters]).cross_fitted_part is None
    assert learner.cross_fitted_part is None


def test_networks_beside_filters_are_evaluated_alone_too_and_fitted_once(data, monkeypatch):
    """Not where they are the only bank, nor a bank without other filters."""
    monkeypatch.setattr(Learner, "n_fits", 0)
    learner, filters = Learner(sigma_max=2), MultiscaleBank(sigma_max=1)
    found = evaluate_banks(
        make_recipe(), data, [StackedBank([learner, filters]), learner, filters], follow, None
    )
    assert [one.index for one in found] == [0, 0, 1, 2]
    assert [type(one.bank) for one in found] == [StackedBank, Learner, Learner, MultiscaleBank]
    assert Learner.n_fits == 2
    alone, given = found[1], found[2]
    assert alone.choice.scores.mean_iou == given.choice.scores.mean_iou
    assert len(evaluate_banks(make_recipe(), data, [StackedBank([learner, filters])], follow, None)) == 1


@pytest.mark.parametrize(
    ("options", "calibrates"),
    [
        ({"penalties": None, "probability": "raw", "threshold": "zero"}, False),
        ({"penalties": [1.0], "probability": "raw", "threshold": "zero"}, True),
        ({"penalties": None, "probability": "calibrated", "threshold": "zero"}, True),
        ({"penalties": None, "probability": "raw", "threshold": "iou"}, True),
    ],
)
def test_only_what_needs_held_out_images_is_calibrated(data, monkeypatch, options, calibrates):
    seen = []

    def note(recipe, data, penalties, *others):
        seen.append(penalties)
        return candidate(None)

    monkeypatch.setattr("segkit.segmentation.fit.evaluate_bank", note)
    recipe = make_recipe(**options)
    evaluate_banks(recipe, data, [BANK], follow, None)
    own = [1 / (data.training.label.size * LinearSVM().C)]  # of the C of the classifier
    asked = own if recipe.penalties is None else recipe.penalties
    assert seen == [asked if calibrates else ()]
    evaluate_banks(recipe, data, [PositionBank(), BANK], follow, None)
    assert seen[1:] == [asked] * 2


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([[[5, 0], [3, 0]], [[1, 0], [0, 0]]], "a"),
        ([[[0, 5], [0, 3]], [[0, 1], [0, 0]]], "b"),
        ([[[5, 0], [3, 0]], [[1, 1], [0, 0]]], None),
        ([[[5, 0], [0, 3]], [[0, 0], [0, 0]]], None),
        ([[[5, 1], [0, 0]], [[2, 1], [0, 0]]], None),
    ],
)
def test_a_model_that_says_one_class_of_all_pixels_is_told_of(counts, said, recwarn):
    """Counts are by image, true class and guess: guesses are what the model says."""
    warn_of_one_class(np.array(counts, dtype=float), "ab")
    assert [str(note.message).startswith(f"the model gives {said} everywhere") for note in recwarn] == [
        True
    ] * (said is not None)


@pytest.mark.parametrize(("n_images", "penalty"), [(1, 1e-3), (100, 1e-4)])
def test_without_held_out_images_the_usual_settings_are_taken(data, n_images, penalty):
    drawn = replace(data.drawn, image=np.arange(n_images))
    recipe = make_recipe(penalties=[1e-2, 1e-3, 1e-4])
    with pytest.warns(UserWarning, match="too few annotated regions to hold any out"):
        found, rule = settings_of(recipe, replace(data, drawn=drawn), None)
    assert (found, rule.threshold, rule.otsu_weight) == (penalty, 0, 0)
    assert rule.temperature == 1


def test_nothing_is_warned_of_where_nothing_was_to_be_calibrated(data, recwarn):
    recipe = make_recipe(penalties=None, probability="raw", threshold="zero")
    assert settings_of(recipe, data, None)[0] is None
    assert not recwarn.list


def test_a_summary_has_the_brightest_pixels_and_means_over_images(data):
    kernels = SimpleNamespace(criterion="power", describe=lambda groups: [groups])
    channels = [Channel(name, group) for name, group in zip("abcd", "uvwx", strict=True)]
    bank = SimpleNamespace(n_channels=lambda n: 7 * n, channels=lambda n: channels)
    classifier = SimpleNamespace(kernels_=kernels, selector_=1, channels_=np.array([0, 1, 0]))
    best = Candidate(bank, classifier, None, {})
    images = [np.full((2, 2, 1), value, dtype=np.float32) for value in (0.25, 0.75, 0.5)]
    ids = [np.zeros((1, 4), np.uint8), np.full((1, 4), 255, np.uint8)]
    counts = np.array([[[1.0, 1], [0, 0]], [[1, 0], [1, 0]]])
    known = dict.fromkeys(
        (
            "n_banks",
            "penalty",
            "threshold",
            "threshold_rule",
            "otsu_weight",
            "held_out",
            "training_set_sha256",
        )
    )
    found = summarise(replace(data, images=images, ids=ids), best, counts, **known)
    assert (found.n_images, found.n_channels, found.selector) == (3, 7, "int")
    assert (found.peaks, found.annotated) == ([0.25, 0.75], 0.5)
    assert (found.kept_channels, found.kernels) == ({"u": 2, "v": 1}, [["u", "v", "u"]])
    assert found.training_iou == [0.5, 0.0]
    assert found.training_mean_iou == 0.25
