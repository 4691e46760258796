import sys

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from segkit.baselines.forest import NearestBank, PixelForest
from segkit.cli.phantom import make_demo_set
from segkit.errors import ConfigError
from segkit.features import ConvNetBank, MultiscaleBank, ScatteringBank
from segkit.features.normalised import even_grid
from segkit.images import LabelMap
from segkit.images.sampling import assign_folds, draw_pixels
from segkit.segmentation.threshold import quantile_threshold


@pytest.fixture(scope="module")
def pairs():
    return make_demo_set(3, shape=(64, 96))


@pytest.fixture(scope="module")
def forest(pairs):
    images, masks = pairs
    return PixelForest(n_estimators=20, training_pixels=3000).fit(images[:2], masks[:2])


@pytest.mark.parametrize("normalization", ["set", "image"])
@pytest.mark.parametrize(
    "bank", [MultiscaleBank(sigma_max=2), ScatteringBank(J=1, L=2)], ids=["multiscale", "scattering"]
)
def test_it_is_scikit_learns_forest_on_the_banks_maps(pairs, bank, normalization):
    """With every pixel drawn nothing is left to chance but the trees."""
    image, mask = pairs[0][0][:20, :24], np.tile(np.arange(24) > 11, (20, 1)).astype(int)
    ours = PixelForest(bank, n_estimators=5, training_pixels=480, normalization=normalization)
    ours.fit([image], [mask])
    X = bank.dense(image).reshape(bank.n_channels(3), -1).T
    if normalization == "image":  # less the mean of each channel over the even grid
        X = X - bank.sample(image, *even_grid(image.shape)).mean(axis=0)
    theirs = RandomForestClassifier(5, random_state=0).fit(X, mask.ravel(), sample_weight=np.ones(480))
    expected = theirs.predict_proba(X).reshape(20, 24, 2)
    np.testing.assert_allclose(ours.predict_proba(image), expected, atol=1e-6)


def test_labels_are_the_most_probable_class(pairs, forest):
    labels, probability = forest.predict(pairs[0][2]), forest.predict_proba(pairs[0][2])
    np.testing.assert_array_equal(labels, forest.classes_[probability.argmax(axis=2)])
    np.testing.assert_allclose(probability.sum(axis=2), 1, atol=1e-6)


def test_blocks_of_rows_change_nothing(pairs, forest, monkeypatch):
    whole = forest.predict_proba(pairs[0][2])
    monkeypatch.setattr("segkit.baselines.forest._PIXELS_AT_ONCE", 300)
    np.testing.assert_array_equal(forest.predict_proba(pairs[0][2]), whole)


def test_unlabelled_pixels_teach_nothing(pairs, monkeypatch):
    hidden = pairs[1][0].astype(np.uint8)
    hidden[:, 48:] = 255
    drawn, original = [], MultiscaleBank.sample

    def sample(self, image, rows, cols, *rest, **options):
        drawn.append(cols.max())
        return original(self, image, rows, cols, *rest, **options)

    monkeypatch.setattr(MultiscaleBank, "sample", sample)
    half = PixelForest(MultiscaleBank(), n_estimators=5, training_pixels=10**6).fit([pairs[0][0]], [hidden])
    assert max(drawn) < 48
    assert half.classes_.tolist() == [0, 1]


SMALL = MultiscaleBank(sigma_max=2)
ADAPTIVE = {"normalization": "image", "threshold": "quantile+otsu"}


@pytest.fixture(scope="module")
def two_sizes(pairs):
    """Images of different sizes, so that a mean over the wrong pixels shows."""
    images, masks = pairs
    return [images[0], images[1][:48, :80]], [masks[0], masks[1][:48, :80]]


@pytest.mark.parametrize(
    ("rule", "n_judged"), [("quantile", 6000), ("quantile+otsu", 6000), ("quantile+otsu", 400)]
)
def test_threshold_is_that_of_trees_that_saw_nothing_of_the_image(two_sizes, rule, n_judged):
    images, masks = two_sizes
    options = {} if n_judged == 6000 else {"threshold_pixels": n_judged}
    forest = PixelForest(SMALL, n_estimators=5, training_pixels=500, threshold=rule, **options)
    forest.fit(images, masks)
    ids, rng = [mask.astype(np.uint8) for mask in masks], np.random.default_rng(0)
    draw_pixels(ids, 2, 500, rng)
    drawn = draw_pixels(ids, 2, n_judged, rng)
    decision = np.empty(drawn.label.size)
    for held in (0, 1):
        X = [
            SMALL.sample(images[k], drawn.row[drawn.of_image(k)], drawn.col[drawn.of_image(k)])
            for k in (0, 1)
        ]
        other = drawn.of_image(1 - held)
        trees = RandomForestClassifier(5, random_state=0)
        trees.fit(X[1 - held], drawn.label[other], sample_weight=drawn.weight[other])
        decision[drawn.of_image(held)] = 2 * trees.predict_proba(X[held])[:, 1] - 1
    expected = quantile_threshold(decision, drawn.label, drawn.weight, drawn.image)
    assert forest.rule_.threshold == pytest.approx(expected, abs=1e-5)
    assert forest.rule_.otsu_weight == (0.5 if rule == "quantile+otsu" else 0)
    probability = forest.predict_proba(images[0]).astype(np.float64)
    margin = probability[:, :, 1] - probability[:, :, 0]
    at = forest.rule_.adapted_to(margin[..., None]).threshold
    assert np.mean(forest.predict(images[0]) == (margin > at)) > 0.999


def test_blocks_of_a_single_image_are_held_out(pairs, monkeypatch):
    grown = []
    original = PixelForest._grow
    monkeypatch.setattr(
        PixelForest, "_grow", lambda self, X, drawn: grown.append(drawn) or original(self, X, drawn)
    )
    forest = PixelForest(SMALL, n_estimators=3, training_pixels=500, **ADAPTIVE).fit(
        pairs[0][:1], pairs[1][:1]
    )
    shape = pairs[1][0].shape
    left = [set(range(4)) - set(assign_folds(drawn, [shape], 5)) for drawn in grown[1:]]
    assert left == [{0}, {1}, {2}, {3}]
    assert forest.rule_.otsu_weight == pytest.approx(2 / 3)


def test_usual_forests_hold_nothing_out(forest):
    assert (forest.rule_.threshold, forest.rule_.otsu_weight) == (0, 0)


def test_three_classes_have_no_threshold(pairs):
    mask = np.digitize(np.arange(96), [32, 64])[None].repeat(64, axis=0)
    names = LabelMap(dict(enumerate("abc")))
    forest = PixelForest(SMALL, n_estimators=5, training_pixels=600, **ADAPTIVE)
    forest.fit(pairs[0][:1], [mask], label_map=names)
    labels, probability = forest.predict(pairs[0][0]), forest.predict_proba(pairs[0][0])
    np.testing.assert_array_equal(labels, probability.argmax(axis=2))
    assert (forest.rule_.threshold, forest.rule_.otsu_weight) == (0, 0)


def test_a_class_that_cannot_be_held_out_leaves_the_sign(pairs):
    """All foreground is in one block: trees without it know one class only."""
    mask = np.zeros((64, 96), dtype=int)
    mask[2:10, 2:10] = 1
    forest = PixelForest(SMALL, n_estimators=5, training_pixels=600, **ADAPTIVE).fit(pairs[0][:1], [mask])
    assert (forest.rule_.threshold, forest.rule_.otsu_weight) == (0, 0)


@pytest.mark.parametrize(("stride", "pyramid"), [(1, 1.0), (4, 0.25)])
def test_nearest_repeats_the_cells_of_a_map(rng, stride, pyramid):
    image = rng.random((32, 48, 3), dtype=np.float32)
    bank = ConvNetBank(weights="random", layers=["conv1_1"], pyramid=[pyramid])
    [stack] = bank.maps(image)
    expected = stack.values.repeat(stride, axis=1).repeat(stride, axis=2)
    nearest = NearestBank(bank)
    np.testing.assert_allclose(nearest.dense(image), expected, atol=1e-6)
    rows, cols = rng.integers(0, 32, 50), rng.integers(0, 48, 50)
    np.testing.assert_allclose(nearest.sample(image, rows, cols), expected[:, rows, cols].T, atol=1e-6)


def test_a_nearest_bank_is_in_all_else_its_bank(rng):
    bank = ScatteringBank(J=2, L=2)
    nearest = NearestBank(bank).fit([rng.random((32, 32, 1))])
    assert nearest.channels(1) == bank.channels(1)
    for name in ("halo", "alignment", "is_local"):
        assert getattr(nearest, name) == getattr(bank, name)
    assert nearest.bytes_per_pixel(1) == bank.bytes_per_pixel(1)


def test_maps_are_read_as_the_forest_is_told(pairs):
    image, mask = pairs[0][0][:32, :48], pairs[1][0][:32, :48]
    bank = ConvNetBank(weights="random", layers=["conv1_1"], pyramid=[0.25])
    forest = PixelForest(bank, n_estimators=5, training_pixels=500, interpolation="nearest").fit(
        [image], [mask]
    )
    probability = forest.predict_proba(image)
    cells = probability.reshape(8, 4, 12, 4, 2)
    np.testing.assert_array_equal(cells, cells[:, :1, :, :1].repeat(4, axis=1).repeat(4, axis=3))


def test_boosted_trees_are_catboosts(pairs):
    catboost = pytest.importorskip("catboost", reason="catboost is not installed")
    image, mask = pairs[0][0][:20, :24], np.tile(np.arange(24) > 11, (20, 1)).astype(int)
    ours = PixelForest(SMALL, classifier="catboost", n_estimators=7, max_depth=3, training_pixels=480)
    ours.fit([image], [mask])
    X = SMALL.dense(image).reshape(SMALL.n_channels(3), -1).T
    theirs = catboost.CatBoostClassifier(
        iterations=7, depth=3, learning_rate=0.1, random_seed=0, verbose=False, allow_writing_files=False
    )
    theirs.fit(X, mask.ravel())
    expected = theirs.predict_proba(X).reshape(20, 24, 2)
    np.testing.assert_allclose(ours.predict_proba(image), expected, atol=0.02)
    assert ours.forest_.get_params()["iterations"] == 7


def test_depth_is_limited_where_it_is_said(pairs):
    forest = PixelForest(SMALL, n_estimators=3, max_depth=2, training_pixels=500).fit(
        pairs[0][:1], pairs[1][:1]
    )
    assert {tree.get_depth() for tree in forest.forest_.estimators_} == {2}


def test_without_catboost_the_cure_is_told(pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(ConfigError) as caught:
        PixelForest(SMALL, classifier="catboost").fit(pairs[0][:1], pairs[1][:1])
    assert str(caught.value) == (
        "classifier='catboost' needs catboost, which is not installed: pip install segkit-bio[baselines], or choose "
        "classifier='forest'"
    )


def test_bad_options(pairs):
    for option, message in [
        ({"classifier": "svm"}, "classifier='svm': input should be 'forest' or 'catboost'"),
        ({"normalization": "batch"}, "normalization='batch': input should be 'image' or 'set'"),
        (
            {"threshold": "otsu"},
            "threshold='otsu': input should be 'quantile+otsu', 'quantile', 'iou' or 'zero'",
        ),
        ({"interpolation": "cubic"}, "interpolation='cubic': input should be 'linear' or 'nearest'"),
        ({"threshold_pixels": 0}, "threshold_pixels=0: input should be greater than 0"),
        ({"max_depth": 0}, "max_depth=0: input should be greater than 0"),
        ({"n_estimators": 1.5}, "n_estimators=1.5: input should be a valid integer"),
    ]:
        with pytest.raises(ConfigError) as caught:
            PixelForest(**option).fit(pairs[0][:1], pairs[1][:1])
        assert str(caught.value) == message
