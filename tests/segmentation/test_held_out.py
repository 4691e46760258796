from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.svm import LinearSVM
from segkit.classifier.temperature import fit_temperature
from segkit.evaluation.metrics import score_masks
from segkit.images.sampling import PixelSample
from segkit.kernels import LinearGaussianMixture, LinearMixture, MixtureRFF
from segkit.segmentation.alarms import expected_iou
from segkit.segmentation.held_out import (
    PENALTY_OF_ONE_IMAGE,
    HeldOut,
    Spread,
    hold_out,
    usual_penalty,
)
from segkit.segmentation.segmenter import ALPHAS
from segkit.segmentation.threshold import (
    DecisionRule,
    best_threshold,
    image_threshold,
    label_pixels,
    quantile_threshold,
    weight_of_otsu,
)
from segkit.selection import MMDSelector


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


RECIPE = PixelClassifier(MMDSelector(2), LinearMixture(), LinearSVM())


def held(penalties=(1.0, 1e-2), n_classes=2, **options):
    X, drawn = pixels(n_classes=n_classes, **options)
    return X, hold_out(X, drawn, drawn.image, drawn.image, RECIPE, penalties, follow)


def test_each_image_is_judged_by_the_others(monkeypatch):
    monkeypatch.setattr("segkit.segmentation.held_out.TOL", 1e-9)
    X, found = held()
    drawn = found.sample
    for index in range(3):
        others = drawn.image != index
        y, groups, weight = drawn.label[others], drawn.image[others], drawn.weight[others]
        kept = MMDSelector(2).fit(X[others], y, groups).get_support()
        mean = np.average(X[others][:, kept], axis=0, weights=weight)
        scale = np.sqrt(np.average((X[others][:, kept] - mean) ** 2, axis=0, weights=weight))
        Z = (X[:, kept] - mean) / scale
        kernels = LinearMixture().fit(Z[others], y, groups)
        for row, penalty in zip(found.decisions, found.penalties, strict=True):
            svm = LinearSVM(C=1 / (others.sum() * penalty), tol=1e-9)
            svm.fit(kernels.transform(Z[others]), y, weight)
            expected = svm.decision_function(kernels.transform(Z[~others]))
            np.testing.assert_allclose(row[~others, 0], expected, atol=1e-4)


@pytest.mark.parametrize(
    "mixture",
    [LinearMixture(), LinearGaussianMixture(random_state=0), MixtureRFF(n_components=64, random_state=0)],
)
def test_labels_of_held_out_pixels_say_nothing(mixture):
    """Neither channels nor kernels nor planes know them: of noise, any use would show."""
    rng = np.random.default_rng(0)
    X, drawn = pixels()
    X = rng.standard_normal((len(X), 30)).astype(np.float32)
    flipped = np.where(drawn.image == 1, 1 - drawn.label, drawn.label)
    other = PixelSample(drawn.image, drawn.row, drawn.col, flipped, drawn.weight)
    recipe = PixelClassifier(MMDSelector(5), mixture, LinearSVM())
    mine, theirs = (
        hold_out(X, sample, drawn.image, drawn.image, recipe, [1e-2], follow) for sample in (drawn, other)
    )
    np.testing.assert_array_equal(mine.decisions[0, drawn.image == 1], theirs.decisions[0, drawn.image == 1])
    assert not np.array_equal(mine.decisions[0, drawn.image == 0], theirs.decisions[0, drawn.image == 0])


def test_gaussians_see_the_channels_they_may_whichever_are_kept():
    X, drawn = pixels()
    seen = []

    class Spy(LinearGaussianMixture):
        def fit(self, X, y, groups=None):
            super().fit(X, y, groups)
            seen.append(self.gaussian_columns)
            return self

    gaussian = np.array([True, False, True])
    recipe = PixelClassifier(MMDSelector(2), Spy(random_state=0), LinearSVM(), gaussian_channels=gaussian)
    hold_out(X, drawn, drawn.image, drawn.image, recipe, [1e-2], follow)
    expected = []
    for index in range(3):
        others = drawn.image != index
        kept = MMDSelector(2).fit(X[others], drawn.label[others], drawn.image[others]).get_support()
        expected.append(gaussian[kept].tolist())
    assert sorted(columns.tolist() for columns in seen) == sorted(expected)


def test_folds_whose_others_lack_a_class_are_left_out():
    X, drawn = pixels(n_images=2)
    label = np.where(drawn.image == 1, drawn.label, 0)
    sample = PixelSample(drawn.image, drawn.row, drawn.col, label, drawn.weight)
    found = hold_out(X, sample, drawn.image, drawn.image, RECIPE, [1e-2], follow)
    assert set(found.sample.image) == {0}
    assert found.choose("quantile") is None


def test_a_fold_is_learnt_from_if_the_others_have_two_pixels_of_a_class():
    X, drawn = pixels(n_images=2)
    for n_rare, judged in ((1, {0}), (2, {0, 1})):
        rare = np.flatnonzero(drawn.image == 0)[:n_rare]
        label = np.where(drawn.image == 0, 0, drawn.label)
        label[rare] = 1
        sample = PixelSample(drawn.image, drawn.row, drawn.col, label, drawn.weight)
        found = hold_out(X, sample, drawn.image, drawn.image, RECIPE, [1e-2], follow)
        assert set(found.sample.image) == judged


def test_a_fold_without_pixels_is_no_fold():
    X, drawn = pixels(n_images=2)
    fold = 2 * drawn.image  # nothing was drawn from the image between
    found = hold_out(X, drawn, drawn.image, fold, RECIPE, [1e-2], follow)
    assert found.sample.label.size == drawn.label.size


@pytest.mark.parametrize("rule", ["quantile+otsu", "quantile", "iou", "zero"])
def test_each_image_is_scored_at_the_threshold_of_the_others(rule):
    _, found = held(penalties=[1e-2], n=1000)
    drawn, decision = found.sample, found.decisions[0, :, 0]
    label = drawn.label == 1
    weight = np.where(label, 1, 8) * drawn.weight
    found = replace(found, sample=replace(drawn, weight=weight))
    expected = []
    for index in range(3):
        mine, others = drawn.image == index, drawn.image != index
        threshold = 0.0
        if rule != "zero":
            rule_of = best_threshold if rule == "iou" else quantile_threshold
            threshold = rule_of(decision[others], drawn.label[others], weight[others], drawn.image[others])
        if rule == "quantile+otsu":
            threshold = image_threshold(
                lambda own=decision[mine]: [own], threshold, weight_of_otsu(2), [weight[mine]]
            )
        guess = decision > threshold
        areas = [
            (weight[mine & both].sum(), weight[mine & either].sum())
            for both, either in ((label & guess, label | guess), (~label & ~guess, ~label | ~guess))
        ]
        expected.append(np.mean([both / either for both, either in areas]))
    scores = found.choose(rule).scores
    assert scores.mean_iou == pytest.approx(np.mean(expected))
    low, high = stats.t.interval(0.95, 2, np.mean(expected), stats.sem(expected))
    assert scores.interval == pytest.approx([max(low, 0), min(high, 1)])
    assert scores.regions == "images"


def test_of_several_classes_the_largest_decision_counts():
    _, found = held(penalties=[1e-2], n_classes=3)
    drawn = found.sample
    whole = replace(found, sample=replace(drawn, weight=np.ones(drawn.label.size)))
    choice = whole.choose("quantile")
    guess = whole.decisions[0].argmax(axis=1)
    images = [drawn.image == index for index in range(3)]
    expected = score_masks(
        [drawn.label[mine][None] for mine in images], [guess[mine][None] for mine in images], 3
    )
    assert choice.rule.threshold == 0
    assert choice.scores.mean_iou == pytest.approx(expected.mean)


def test_interval_is_of_the_penalty_chosen_and_needs_three_images():
    _, found = held(penalties=[1e3, 1e-2], n_images=4)
    choice = found.choose("zero")
    [worse] = {1e3, 1e-2} - {choice.penalty}
    alone = [
        replace(found, penalties=[penalty], decisions=found.decisions[[index]]).choose("zero").scores
        for index, penalty in enumerate(found.penalties)
    ]
    best = alone[found.penalties.index(choice.penalty)]
    assert choice.scores.interval == best.interval != alone[found.penalties.index(worse)].interval
    assert held(n_images=2)[1].choose("zero").scores.interval is None


GROUPS = np.array([0, 0, 1, 1, 1, 2])


def test_scores_are_means_of_groups_with_their_interval():
    _, found = held(n_images=6)
    alone = found.choose("zero").scores
    grouped = replace(found, groups=GROUPS).choose("zero").scores
    assert (alone.n_groups, grouped.n_groups, grouped.n_regions) == (None, 3, 6)
    assert grouped.scores == alone.scores  # at a threshold that is not learnt
    for name, one_of in (
        ("mean_iou", lambda entry: entry["mean_iou"]),
        ("object_iou", lambda entry: entry["iou"][1]),
        ("object_dice", lambda entry: entry["dice"][1]),
    ):
        scores = np.array([one_of(entry) for entry in alone.scores])
        means = [scores[group == GROUPS].mean() for group in range(3)]
        low, high = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
        interval = "interval" if name == "mean_iou" else f"{name}_interval"
        assert getattr(grouped, name) == pytest.approx(np.mean(means))
        assert getattr(grouped, interval) == pytest.approx([max(low, 0), min(high, 1)])
    assert replace(found, groups=np.arange(6)).choose("quantile+otsu").scores == (
        found.choose("quantile+otsu").scores
    )
    assert replace(found, groups=np.array([0, 0, 0, 1, 1, 1])).choose("zero").scores.interval is None


def test_the_threshold_of_an_image_is_that_of_other_groups(monkeypatch):
    _, found = held(n_images=6)
    seen = []
    monkeypatch.setattr(
        HeldOut,
        "_threshold",
        lambda self, decisions, rule, rows: seen.append(rows) or 0.0,
    )
    grouped = replace(found, groups=GROUPS)
    grouped._score(found.decisions[0], "quantile")
    for index, rows in enumerate(seen):
        assert set(found.sample.image[rows]) == set(np.flatnonzero(GROUPS[index] != GROUPS))


def test_an_advantage_in_one_group_says_little_however_many_images_it_has():
    usual = usual_penalty([1e-2, 1e-3], 6)
    [other] = {1e-2, 1e-3} - {usual}
    found = judged([[900] * 6, [905, 905, 905, 900, 900, 900]], [usual, other])
    assert found.choose("zero").penalty == other
    assert replace(found, groups=np.array([0, 0, 0, 1, 2, 3])).choose("zero").penalty == usual


def test_interval_holds_the_mean_of_all_images_as_often_as_it_says():
    """Images differ in how well their decisions part the classes: of few, no percentile knows how much."""
    rng = np.random.default_rng(0)
    n_pixels, hits = 100, 0

    def decide(n):
        image = np.repeat(np.arange(n), n_pixels)
        label = np.tile(np.arange(n_pixels) % 2, n)
        decisions = (2 * label - 1) * rng.uniform(0.2, 2, n)[image] + rng.standard_normal(image.size)
        ones = np.ones(image.size)
        sample = PixelSample(image, image, image, label, ones)
        return HeldOut([1.0], decisions[None, :, None].astype(np.float32), sample, image, n)

    truth = decide(500).choose("zero").scores.mean_iou
    for _ in range(400):
        low, high = decide(4).choose("zero").scores.interval
        hits += low <= truth <= high
    assert 0.9 < hits / 400 < 0.98


def test_only_one_rule_looks_at_the_image_itself():
    _, found = held()
    weights = {
        rule: found.choose(rule).rule.otsu_weight for rule in ("quantile+otsu", "quantile", "iou", "zero")
    }
    assert weights == {"quantile+otsu": weight_of_otsu(3), "quantile": 0, "iou": 0, "zero": 0}
    assert found.choose("quantile+otsu").rule.threshold == found.choose("quantile").rule.threshold
    assert held(n_classes=3)[1].choose("quantile+otsu").rule.otsu_weight == 0


def judged(n_right, penalties, n=1000):
    """Decisions of which so many of n pixels of each image are right, (penalties, images)."""
    n_images = np.shape(n_right)[1]
    image = np.repeat(np.arange(n_images), n)
    label = np.tile(np.arange(n) % 2, n_images)
    wrong = np.tile(np.arange(n), n_images) >= np.repeat(n_right, n, axis=1)
    decisions = np.where(wrong, -1, 1) * (2.0 * label - 1)
    sample = PixelSample(image, image, image, label, np.ones(image.size))
    return HeldOut(penalties, decisions[:, :, None].astype(np.float32), sample, image, n_images)


SAME = [900, 900, 900]


@pytest.mark.parametrize(
    ("penalties", "n_right", "expected"),
    [
        ((4, 2, 1), [SAME, SAME, SAME], 1),
        ((2, 1, 0.5), [SAME, SAME, SAME], 1),
        # better in the mean, by one image
        ((4, 2, 1), [SAME, [900, 900, 980], SAME], 1),
        # better on every image
        ((4, 2, 1), [[950, 962, 958], [940, 941, 942], [900, 905, 910]], 4),
        ((1, 0.5, 0.25), [[900, 905, 910], [940, 941, 942], [950, 962, 958]], 0.25),
        # both are better, and the nearer is not worse than the best beyond chance
        ((4, 2, 1), [[960, 962, 958], [950, 962, 959], [900, 905, 910]], 2),
        ((1, 0.5, 0.25), [[900, 905, 910], [950, 962, 959], [960, 962, 958]], 0.5),
        # two images say nothing, unless they agree to the pixel
        ((4, 2, 1), [[900, 900], [950, 940], [900, 920]], 1),
        ((4, 2, 1), [[900, 900], [950, 950], [900, 900]], 2),
        ((4, 2, 1), [[900], [950], [900]], 1),
        # the larger of two that are equally near
        ((10, 0.1), [SAME, SAME], 10),
        ((1000, 0.001), [SAME, SAME], 1000),
    ],
)
def test_usual_penalty_unless_held_out_images_speak_against_it(penalties, n_right, expected):
    usual = PENALTY_OF_ONE_IMAGE / np.sqrt(len(n_right[0]))
    # a single image is held out in blocks, of which there is one here
    found = judged(n_right, [usual * value for value in penalties])
    choice = found.choose("zero")
    assert choice.penalty == usual * expected
    assert choice.scores.mean_iou == choice.scores.by_alpha[f"{choice.penalty:g}"]


@pytest.mark.parametrize(("n_images", "expected"), [(1, 1e-3), (3, 1e-3), (5, 3e-4), (15, 3e-4), (100, 1e-4)])
def test_usual_penalty_falls_with_the_number_of_images(n_images, expected):
    assert usual_penalty(ALPHAS, n_images) == expected
    assert usual_penalty(ALPHAS[::-1], n_images) == expected


@pytest.mark.parametrize(("last", "p", "left"), [(968, (0.025, 0.05), True), (974, (0.05, 0.1), False)])
def test_penalties_are_left_at_five_percent_of_one_side(last, p, left):
    n_right = [[980, 982, 978], [950, 962, last]]
    found = judged(n_right, [2 * PENALTY_OF_ONE_IMAGE / np.sqrt(3), PENALTY_OF_ONE_IMAGE / np.sqrt(3)])
    # of n pixels, half of each class, as many of each are wrong
    scores = [np.array(right) / (2000 - np.array(right)) for right in n_right]
    assert p[0] < stats.ttest_rel(*scores, alternative="greater").pvalue < p[1]
    assert (found.choose("zero").penalty == found.penalties[0]) == left


def test_an_image_that_cannot_be_judged_counts_as_a_training_image():
    """The others of the second lack a class; the first is not taken for a single image."""
    X, drawn = pixels(n_images=2)
    label = np.where(drawn.image == 1, drawn.label, 0)
    label[:1] = 1
    sample = PixelSample(drawn.image, drawn.row, drawn.col, label, drawn.weight)
    choice = hold_out(X, sample, drawn.image, drawn.image, RECIPE, [1e-2], follow).choose("quantile+otsu")
    assert (choice.scores.regions, choice.scores.n_regions) == ("images", 1)
    assert choice.rule.otsu_weight == weight_of_otsu(2)


def test_scores_of_objects_stand_beside_the_mean(rng):
    """Each region's IoU and Dice of each class, by their definition; objects are all classes but the first."""
    _, found = held(penalties=[1e-2], n_classes=3, n_images=4)
    scores = found.choose("zero").scores
    sample, guess = found.sample, found.decisions[0].argmax(axis=1)
    ious, dices = [], []
    for entry, index in zip(scores.scores, range(4), strict=True):
        mine = sample.image == index
        weight, truth, called = sample.weight[mine], sample.label[mine], guess[mine]
        both = [weight[(truth == k) & (called == k)].sum() for k in range(3)]
        sizes = [weight[truth == k].sum() + weight[called == k].sum() for k in range(3)]
        assert entry["image"] == index
        assert entry["iou"] == pytest.approx([b / (s - b) for b, s in zip(both, sizes, strict=True)])
        assert entry["dice"] == pytest.approx([2 * b / s for b, s in zip(both, sizes, strict=True)])
        assert entry["mean_iou"] == pytest.approx(np.mean(entry["iou"]))
        ious.append(np.mean(entry["iou"][1:]))
        dices.append(np.mean(entry["dice"][1:]))
    assert (scores.object_iou, scores.object_dice) == pytest.approx((np.mean(ious), np.mean(dices)))
    low, high = stats.t.interval(0.95, 3, np.mean(ious), stats.sem(ious))
    assert scores.object_iou_interval == pytest.approx([max(low, 0), min(high, 1)])


def test_a_class_that_is_nowhere_in_a_region_has_no_score():
    """The second image has nothing of the class, and nothing is called so: undefined, not 0."""
    image = np.repeat([0, 1], 4)
    label = np.array([0, 0, 1, 1, 0, 0, 0, 0])
    decisions = np.where(label == 1, 1.0, -1.0)[None, :, None].astype(np.float32)
    found = HeldOut([1.0], decisions, PixelSample(image, image, image, label, np.ones(8)), image, 2)
    scores = found.choose("zero").scores
    assert [entry["iou"] for entry in scores.scores] == [[1.0, 1.0], [1.0, None]]
    assert scores.object_iou == 1
    assert scores.object_iou_interval is None


def test_images_with_few_labels_have_no_quantile(rng):
    image, label = np.repeat([0, 1], 100), np.tile([0, 1], 100)
    decisions = (label - 0.5 + 0.8 * image + 0.4 * rng.standard_normal(200)).astype(np.float32)[None, :, None]
    sample = PixelSample(image, image, image, label, np.ones(200))

    def threshold(rows, sparse):
        found = HeldOut([1.0], decisions[:, rows], sample.subset(rows), image[rows], 2, sparse)
        return found.choose("quantile").rule.threshold

    every, first, second = slice(None), image == 0, image == 1
    assert threshold(every, [0, 1]) == 0
    assert threshold(every, [1]) == pytest.approx(threshold(first, []))
    assert threshold(every, [0]) == pytest.approx(threshold(second, []))
    assert threshold(every, []) == pytest.approx((threshold(first, []) + threshold(second, [])) / 2)
    assert abs(threshold(second, []) - threshold(first, [])) > 0.5


def spread_over(image, n_side=12, n_channels=3, seed=1):
    """Pixels of a whole grid of each image, whose classes are halves of it, and channels that tell them."""
    rng = np.random.default_rng(seed)
    rows, cols = (axis.ravel() for axis in np.indices((n_side, n_side)))
    images = np.unique(image)
    label = np.tile((rows >= n_side // 2).astype(int), images.size)
    X = rng.standard_normal((label.size, n_channels)).astype(np.float32)
    X[:, 0] += 2 * label
    where = [np.tile(axis, images.size) for axis in (rows, cols)]
    return PixelSample(np.repeat(images, n_side**2), *where, label, np.ones(label.size)), X


NO_LEAST = np.zeros((2, 2))


@pytest.mark.parametrize("rule", ["zero", "quantile", "quantile+otsu"])
def test_expected_and_true_iou_of_each_image_are_those_of_the_other_images(rule):
    """Decisions, threshold, probabilities and presence, step by step by the definitions."""
    X, drawn = pixels(n_images=4, n=60)
    grid, on_grid = spread_over(drawn.image)
    spread = Spread(grid, on_grid, NO_LEAST)
    found = hold_out(X, drawn, drawn.image, drawn.image, RECIPE, [1e-2], follow, spread=spread)
    images = found.choose(rule).images
    assert len(images) == 4
    for index, image in enumerate(images):
        others, mine = drawn.image != index, grid.of_image(index)
        sample = drawn.subset(others)
        classifier = PixelClassifier(MMDSelector(2), LinearMixture(), LinearSVM()).select(
            X[others], sample.label, sample.image
        )
        [classifier] = classifier.path(
            X[others][:, classifier.channels_],
            sample.label,
            sample.weight,
            sample.image,
            penalties=[1e-2],
            tol=1e-3,
        )
        decisions = classifier.decision_function(on_grid[mine][:, classifier.channels_])
        np.testing.assert_allclose(found.spread.values[0][mine], decisions, atol=1e-5)
        held_decisions = found.decisions[0][others]
        own = [
            quantile_threshold(
                held_decisions[part, 0], sample.label[part], sample.weight[part], sample.image[part]
            )
            for part in (sample.image == k for k in np.unique(sample.image))
        ]
        threshold = 0.0 if rule == "zero" else np.mean(own)
        weight = weight_of_otsu(3) if rule == "quantile+otsu" else 0.0
        ids = label_pixels(decisions, threshold, weight)
        rule_of_others = DecisionRule(threshold, weight, 1.0, NO_LEAST)
        scores = np.concatenate(
            [
                rule_of_others.adapted_to(held_decisions[part], sample.weight[part, None]).scores(
                    held_decisions[part]
                )
                for part in (sample.image == k for k in np.unique(sample.image))
            ]
        )
        fitted = replace(rule_of_others, temperature=fit_temperature(scores, sample.label, sample.weight))
        expected = expected_iou(ids, fitted.probabilities(decisions), np.full(2, 4 / 5))
        assert image.expected == pytest.approx(expected, abs=1e-3)
        true = score_masks([grid.label[mine]], [ids], 2)
        assert image.true == pytest.approx((true.object_iou, true.mean), abs=0.02)


@pytest.mark.parametrize(
    ("least", "kept"), [(0, (1, 4, 9)), (9, (1, 4, 9)), (10, (4, 9)), (36, (4, 9)), (37, (9,)), (81, (9,))]
)
def test_small_regions_of_the_grid_are_merged_as_those_of_the_image(least, kept):
    """Every third row and column of an image: a region of nine pixels there is one pixel here."""
    at = np.arange(1, 90, 3)
    rows, cols = (axis.ravel() for axis in np.meshgrid(at, at, indexing="ij"))
    zeros = np.zeros_like(rows)
    sample = PixelSample(zeros, rows, cols, zeros, np.ones(rows.size))
    ids = np.zeros((30, 30), dtype=int)
    ids[2, 2], ids[5:7, 5:7], ids[10:13, 10:13] = 1, 1, 1
    spread = Spread(sample, np.zeros((900, 1), dtype=np.float32), np.array([[0.0, 0], [least, least]]))
    assert spread.merge(ids.ravel(), slice(0, 900)).sum() == sum(kept)


@pytest.mark.parametrize("why", ["strokes", "one image"])
def test_no_iou_is_compared_where_none_is_known(why):
    X, drawn = pixels(n_images=1 if why == "one image" else 3)
    spread = Spread(*spread_over(drawn.image), NO_LEAST)
    fold = np.arange(drawn.label.size) % 4 if why == "one image" else drawn.image
    sparse = [0] if why == "strokes" else []
    found = hold_out(X, drawn, drawn.image, fold, RECIPE, [1e-2], follow, sparse=sparse, spread=spread)
    assert found.choose("quantile").images == ()


def test_an_image_whose_others_lack_a_class_is_not_compared():
    image, label = np.repeat([0, 1], 4), np.array([0, 0, 1, 1, 0, 0, 0, 0])
    decisions = np.where(label == 1, 1.0, -1.0)[None, :, None].astype(np.float32)
    sample = PixelSample(image, image, image, label, np.ones(8))
    grid, _ = spread_over(image)
    on_grid = np.where(grid.label == 1, 1.0, -1.0)[None, :, None].astype(np.float32)
    found = HeldOut([1.0], decisions, sample, image, 2, spread=Spread(grid, on_grid, NO_LEAST))
    [compared] = found.choose("zero").images
    assert (compared.image, compared.true) == (1, (1, 1))


def test_presence_of_a_class_is_counted_over_the_other_images_only():
    """Two of two other images hold the class: presence 3 / 4. With the image itself, which lacks it, it would be 3 / 5."""
    image, label = np.repeat([0, 1, 2], 4), np.array([0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0])
    decisions = np.where(label == 1, 1.0, -1.0)[None, :, None].astype(np.float32)
    grid, _ = spread_over(image)
    on_grid = np.full((1, grid.label.size, 1), -1, dtype=np.float32)
    spread = Spread(grid, on_grid, NO_LEAST)
    sample = PixelSample(image, image, image, label, np.ones(12))
    compared = HeldOut([1.0], decisions, sample, image, 3, spread=spread).choose("zero").images
    others = image != 2
    scores = np.stack([np.zeros(8), decisions[0][others][:, 0]], axis=1)
    background = expit(1 / fit_temperature(scores, label[others], np.ones(8)))
    assert compared[2].expected.mean == pytest.approx(background / (1 + 3 / 4))


@pytest.mark.parametrize(("n_images", "kind"), [(3, "images"), (1, "blocks")])
def test_regions_are_images_or_blocks_of_a_single_one(n_images, kind):
    X, drawn = pixels(n_images=n_images, n=60)
    fold = drawn.image if n_images > 1 else np.arange(60) % 3
    scores = hold_out(X, drawn, fold, fold, RECIPE, [1e-2], follow).choose("zero").scores
    assert (scores.regions, scores.n_regions) == (kind, 3)
    assert [entry["image"] for entry in scores.scores] == ([0, 1, 2] if kind == "images" else [None] * 3)
