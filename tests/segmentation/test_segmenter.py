from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage
from sklearn.base import clone

import segkit
from segkit import LinearMixture, LinearSVM, MixtureRFF, OrbitBank, ScatteringBank, Segmenter, StackedBank
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.temperature import fit_temperature
from segkit.errors import ConfigError, InputError, ModelFileError, WeightsError
from segkit.features import (
    ConvNetBank,
    ElongatedBank,
    Module,
    ModuleBank,
    MultiscaleBank,
    OrbitAveraged,
    PositionBank,
)
from segkit.images import LabelMap
from segkit.images.sampling import draw_pixels
from segkit.invariance import FourierEmbedding, Rotation
from segkit.kernels import Gaussian, LinearGaussianMixture, Polynomial
from segkit.segmentation.held_out import HeldOut
from segkit.segmentation.model_file import read_model, write_model
from segkit.segmentation.regions import merge_small_regions
from segkit.segmentation.threshold import image_threshold, label_pixels
from segkit.selection import ConditionalCovarianceSelector, MMDSelector

BANK = ModuleBank((Module(n_scales=2, n_angles=3),))


def quick(bank=BANK, *, selector=None, kernels=None, **options):
    """The default recipe, small enough for tests."""
    return Segmenter(
        bank,
        selector=selector or MMDSelector(6),
        kernels=kernels or LinearGaussianMixture(n_components=48),
        **{"selection_pixels": 300, "training_pixels": 800} | options,
    )


def paper(bank=BANK, **options):
    """The recipe of the paper: conditional covariance minimisation and a mixture of random Fourier features."""
    parts = {
        "selector": ConditionalCovarianceSelector(n_features_to_select=6),
        "kernels": MixtureRFF(n_components=128),
    }
    return quick(bank, **parts | options)


def picture(seed, n_channels=1, n_classes=2, shape=(44, 52)):
    """Discs and, as a third class, stripes on a noisy ground."""
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    mask = np.zeros(shape, dtype=np.uint8)
    for _ in range(3):
        centre = rng.uniform((8, 8), (shape[0] - 8, shape[1] - 8))
        mask[np.hypot(rows - centre[0], cols - centre[1]) < rng.uniform(4, 8)] = 1
    image = 0.35 + 0.3 * (mask == 1)
    if n_classes == 3:
        mask[:, -12:] = 2
        image[:, -12:] = 0.5 + 0.3 * np.sin(rows[:, -12:] * 1.5)
    image = ndimage.gaussian_filter(image, 0.7) + 0.04 * rng.standard_normal(shape)
    channels = [np.clip(image * gain, 0, 1) for gain in np.linspace(1, 0.6, n_channels)]
    return (np.stack(channels, axis=2) if n_channels > 1 else channels[0]).astype(np.float32), mask


@pytest.fixture(scope="module")
def data():
    return [list(items) for items in zip(*(picture(seed) for seed in range(4)), strict=True)]


@pytest.fixture(scope="module")
def fitted(data):
    images, masks = data
    return quick().fit(images[:2], masks[:2])


@pytest.fixture(scope="module")
def stored(fitted, tmp_path_factory):
    """Header and arrays of the fitted model."""
    path = tmp_path_factory.mktemp("model") / "m.segkit"
    fitted.save(path)
    return read_model(path)


@pytest.fixture
def refusal(stored, tmp_path):
    """Load the stored model with other header entries or arrays (None: without it); gives the line that refuses it."""

    def load(header=(), arrays=()):
        known, given = stored
        changed = {name: array for name, array in (given | dict(arrays)).items() if array is not None}
        write_model(tmp_path / "bad.segkit", known | dict(header), changed)
        with pytest.raises(ModelFileError) as caught:
            segkit.load(tmp_path / "bad.segkit")
        told = str(caught.value)
        assert told.startswith(f"{tmp_path / 'bad.segkit'}: ")
        assert "\n" not in told
        return told

    return load


def reloaded(segmenter, folder, image, **options):
    """Store and load a segmenter: the decisions stay, and the file if stored again."""
    segmenter.save(folder / "m.segkit", **options)
    loaded = segkit.load(folder / "m.segkit")
    np.testing.assert_array_equal(loaded.decision_function(image), segmenter.decision_function(image))
    loaded.save(folder / "again.segkit", **options)
    assert (folder / "again.segkit").read_bytes() == (folder / "m.segkit").read_bytes()
    return loaded


def decisions_of_pixels(segmenter, image):
    """Decide of each pixel from its features alone."""
    rows, cols = np.indices(image.shape[:2]).reshape(2, -1)
    features = segmenter.classifier_.kernels_.transform(segmenter.pixel_features(image, rows, cols))
    return segmenter.classifier_.svm_.decision_function(features)


@pytest.fixture(scope="module")
def linear_fitted(data):
    images, masks = data
    return linear().fit(images[:3], masks[:3])


def test_it_learns_to_segment(fitted, data):
    images, masks = data
    assert fitted.score(images[2:], masks[2:]) > 0.85


def test_the_recipe_of_the_paper_learns_to_segment(data):
    images, masks = data
    segmenter = paper().fit(images[:2], masks[:2])
    assert segmenter.score(images[2:], masks[2:]) > 0.85
    expected = decisions_of_pixels(segmenter, images[3])
    np.testing.assert_allclose(segmenter.decision_function(images[3]).ravel(), expected, atol=1e-4)


def test_images_of_many_channels():
    (image, mask), (other, truth) = picture(0, 5), picture(1, 5)
    assert quick().fit([image], [mask]).score([other], [truth]) > 0.8


def test_three_classes_and_their_probabilities(tmp_path):
    (image, mask), (other, truth) = picture(0, n_classes=3), picture(1, n_classes=3)
    segmenter = quick().fit([image, other], [mask, truth], label_map=LabelMap(dict(enumerate("abc"))))
    probabilities = segmenter.predict_proba(other)
    assert probabilities.shape == (*other.shape, 3)
    np.testing.assert_allclose(probabilities.sum(axis=2), 1, atol=1e-5)
    assert segmenter.decision_function(other).shape == (*other.shape, 3)
    third, third_truth = picture(2, n_classes=3)
    assert segmenter.score([third], [third_truth]) > 0.7
    ids = segmenter.decision_function(third).argmax(axis=2)
    labels = segmenter.predict(third)
    assert (labels != ids).any()
    np.testing.assert_array_equal(labels, merge_small_regions(ids, segmenter.rule_.least_areas))
    reloaded(segmenter, tmp_path, third)


def test_scribbles_are_enough(data):
    images, masks = data
    scribbles = []
    for mask in masks[:2]:
        scribble = np.full(mask.shape, 255, dtype=np.uint8)
        scribble[::6] = mask[::6]
        scribbles.append(scribble)
    segmenter = quick(training_pixels=10_000).fit(images[:2], scribbles)
    assert segmenter.classes_.tolist() == [0, 1]
    assert segmenter.summary_.n_training_pixels == sum(np.count_nonzero(one != 255) for one in scribbles)
    assert segmenter.score(images[2:], masks[2:]) > 0.8


def test_labels_follow_decisions_and_probabilities_are_calibrated(fitted, data):
    image = data[0][2].copy()
    image[4:6, 4:6] += 0.4  # a speck, smaller than any annotated disc
    decisions, labels = fitted.decision_function(image), fitted.predict(image)
    ids = (decisions > fitted.rule_.adapted_to(decisions[..., None]).threshold).astype(int)
    assert 0 < (labels != ids).mean() < 0.1
    np.testing.assert_array_equal(labels, merge_small_regions(ids, fitted.rule_.least_areas))
    probabilities = fitted.predict_proba(image)
    assert probabilities.dtype == np.float32
    order = np.argsort(decisions.ravel())
    assert (np.diff(probabilities[:, :, 1].ravel()[order]) >= 0).all()
    assert abs(probabilities[:, :, 1].mean() - data[1][2].mean()) < 0.1
    both = fitted.segment(image)
    np.testing.assert_array_equal(both.labels, labels)
    np.testing.assert_array_equal(both.probability, probabilities)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("probability", ["calibrated", "raw"])
@pytest.mark.parametrize("threshold", ["quantile+otsu", "quantile", "iou", "zero"])
def test_labels_are_the_most_probable_classes(n_classes, probability, threshold):
    """Of an image whose threshold moves far, too; small regions are not merged."""
    images, masks = zip(*(picture(seed, n_classes=n_classes) for seed in range(3)), strict=True)
    segmenter = linear(probability=probability, threshold=threshold, smallest_region=0)
    segmenter.fit(images, masks, label_map=LabelMap({value: f"class {value}" for value in range(n_classes)}))
    other, _ = picture(7, n_classes=n_classes)
    for image in (other, 0.4 * other, 1 - other):
        found = segmenter.segment(image)
        order = np.sort(found.probability, axis=2)
        clear = order[:, :, -1] > order[:, :, -2]
        assert clear.mean() > 0.99
        most = segmenter.classes_[found.probability.argmax(axis=2)]
        np.testing.assert_array_equal(found.labels[clear], most[clear])


def test_raw_probability_is_the_logistic_function_of_the_decision(data):
    images, masks = data
    segmenter = quick(probability="raw", threshold="zero").fit(images[:1], masks[:1])
    assert segmenter.rule_.threshold == 0
    expected = 1 / (1 + np.exp(-segmenter.decision_function(images[1]).astype(float)))
    np.testing.assert_allclose(segmenter.predict_proba(images[1])[:, :, 1], expected, atol=1e-6)


def test_the_same_seed_gives_the_same_model(data):
    images, masks = data
    first, second, other = (
        quick(random_state=seed).fit(images[:1], masks[:1]).decision_function(images[1]) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 0


def test_inputs_and_parts_are_left_alone(data):
    images, masks = [[array.copy() for array in arrays[:1]] for arrays in data]
    parts = quick(svm=LinearSVM())
    parts.fit(images, masks)
    np.testing.assert_array_equal(images[0], data[0][0])
    np.testing.assert_array_equal(masks[0], data[1][0])
    assert not hasattr(parts.svm, "coef_")
    assert parts.kernels.random_state is None
    assert not hasattr(parts.kernels, "weights_")
    assert not hasattr(parts.selector, "scores_")


@pytest.mark.parametrize(("memory", "passes"), [(2**28, {}), (0, {"Kept channels": 2})])
def test_progress_sees_every_stage(data, monkeypatch, memory, passes):
    images, masks = data
    seen = []
    monkeypatch.setattr("segkit.segmentation.fit.MEMORY_LIMIT", memory)

    def follow(items, description):
        seen.append((description, len(list(items))))
        yield from items

    quick().fit(images[:2], masks[:2], progress=follow)
    assert dict(seen) == {"Filter bank": 2, "Held-out images": 2} | passes
    seen.clear()
    quick([BANK, MultiscaleBank()]).fit(images[:2], masks[:2], progress=follow)
    stages = [
        f"Bank {place} of 2: {stage}" for place in (1, 2) for stage in ("Filter bank", "Held-out images")
    ]
    assert [description for description, _ in seen] == [*stages, *passes]


@pytest.mark.parametrize(
    "kernels",
    [
        LinearMixture(),
        MixtureRFF("laplacian", n_components=64, form="sample", features="phase"),
        MixtureRFF([Gaussian(0.05), Polynomial(2)], n_components=64),
    ],
)
def test_models_come_back_from_files_bit_for_bit(tmp_path, data, kernels):
    images, masks = data
    segmenter = quick(kernels=kernels).fit(images[:2], masks[:2])
    loaded = reloaded(segmenter, tmp_path, images[2])
    np.testing.assert_array_equal(loaded.predict_proba(images[2]), segmenter.predict_proba(images[2]))
    np.testing.assert_array_equal(loaded.predict(images[2]), segmenter.predict(images[2]))
    assert loaded.channels_ == segmenter.channels_
    # How long it took is not stored: equal trainings are equal files.
    assert segmenter.summary_.seconds
    assert loaded.summary_ == replace(segmenter.summary_, seconds={})
    assert (loaded.alpha_, loaded.held_out_) == (segmenter.alpha_, segmenter.held_out_)


def rgb(n):
    return [list(items) for items in zip(*(picture(seed, 3) for seed in range(n)), strict=True)]


def test_embedded_weights_are_all_a_model_needs(tmp_path):
    images, masks = rgb(2)
    bank = ConvNetBank(
        "squeezenet1_0", weights="random", layers=["conv1", "fire2_squeeze"], pyramid=(1.0, 0.5)
    )
    reloaded(quick(bank).fit(images, masks), tmp_path, images[0])


def test_weights_left_out_are_looked_for_and_checked(tmp_path):
    images, masks = rgb(1)
    state = ConvNetBank("vgg16", weights="random").weights_used(np.array([0, 64]), 3)
    np.savez(tmp_path / "w.npz", **state)
    segmenter = quick(ConvNetBank("vgg16", weights=tmp_path / "w.npz")).fit(images, masks)
    segmenter.save(tmp_path / "m.segkit", embed_weights=False)
    segmenter.save(tmp_path / "whole.segkit")
    loaded = segkit.load(tmp_path / "m.segkit")
    np.testing.assert_array_equal(loaded.decision_function(images[0]), segmenter.decision_function(images[0]))
    np.savez(tmp_path / "w.npz", **{name: array + 1 for name, array in state.items()})
    with pytest.raises(ModelFileError, match="its network weights are not those it was trained with"):
        segkit.load(tmp_path / "m.segkit")
    (tmp_path / "w.npz").unlink()
    with pytest.raises(WeightsError, match="no such file"):
        segkit.load(tmp_path / "m.segkit")
    whole = segkit.load(tmp_path / "whole.segkit")
    np.testing.assert_array_equal(whole.decision_function(images[0]), segmenter.decision_function(images[0]))


@pytest.mark.parametrize(
    "bank",
    [
        StackedBank([BANK, OrbitAveraged(BANK, group=Rotation(3))]),
        OrbitBank((9, 17), n_templates=4, templates="patches"),
        StackedBank(
            [StackedBank([OrbitBank((9,), n_templates=4, templates="patches")], normalization="set"), BANK]
        ),
    ],
)
def test_orbit_banks_come_back_from_files(tmp_path, data, bank):
    """What a bank has drawn from the training images is stored even if network weights are not."""
    images, masks = data
    reloaded(quick(bank).fit(images[:1], masks[:1]), tmp_path, images[2], embed_weights=False)
    assert not hasattr(bank, "templates_")


def test_drawn_templates_of_a_file_are_checked(tmp_path, data):
    images, masks = data
    bank = OrbitBank((5,), n_templates=4, group=Rotation(4), templates="patches")
    quick(bank).fit(images[:1], masks[:1]).save(tmp_path / "m.segkit")
    header, arrays = read_model(tmp_path / "m.segkit")
    changed = arrays | {"weights.templates.5": arrays["weights.templates.5"] + 1}
    write_model(tmp_path / "bad.segkit", header, changed)
    with pytest.raises(ModelFileError, match="its learnt weights are not those it was trained with; copy it"):
        segkit.load(tmp_path / "bad.segkit")
    changed["weights.templates.5"] = changed["weights.templates.5"][1:]
    write_model(tmp_path / "bad.segkit", header, changed)
    with pytest.raises(ModelFileError, match=r"bad.segkit: templates of sizes and shapes {5: \(3, 1, 25\)}"):
        segkit.load(tmp_path / "bad.segkit")
    del changed["weights.templates.5"]
    write_model(tmp_path / "bad.segkit", header, changed)
    with pytest.raises(ModelFileError, match="its learnt weights are not those it was trained with; copy it"):
        segkit.load(tmp_path / "bad.segkit")


def test_default_recipe_needs_no_weights(data):
    images, masks = data
    segmenter = Segmenter(selection_pixels=200, training_pixels=300).fit(images[:1], masks[:1])
    assert [type(bank) for bank in segmenter.bank_.banks] == [
        ScatteringBank,
        MultiscaleBank,
        ElongatedBank,
        PositionBank,
    ]
    assert isinstance(segmenter.classifier_.selector_, MMDSelector)
    assert isinstance(segmenter.classifier_.kernels_, LinearGaussianMixture)
    assert segmenter.alpha_ in segmenter.alphas


def linear(bank=BANK, **options):
    """The default recipe, small."""
    return quick(bank, selector=MMDSelector(8), kernels=LinearMixture(), **options)


def test_linear_decisions_of_an_image_are_those_of_its_pixels(linear_fitted, data):
    segmenter, images = linear_fitted, data[0]
    expected = decisions_of_pixels(segmenter, images[3])
    np.testing.assert_allclose(segmenter.decision_function(images[3]).ravel(), expected, atol=2e-5)


def test_gaussians_see_the_channels_with_a_value_at_each_pixel(data):
    images, masks = data
    bank = StackedBank([ScatteringBank(J=1, L=2), MultiscaleBank(sigma_max=2)])
    segmenter = quick(bank, selector=MMDSelector(40), kernels=LinearGaussianMixture(n_components=24)).fit(
        images[:3], masks[:3]
    )
    kept = [channel.group for channel in segmenter.channels_]
    seen = {kept[column] for column in segmenter.classifier_.kernels_.columns_}
    fine = {channel.group for channel in MultiscaleBank(sigma_max=2).channels(1)} | {"pixels"}
    assert seen == set(kept) & fine
    assert set(kept) - fine
    expected = decisions_of_pixels(segmenter, images[3])
    np.testing.assert_allclose(segmenter.decision_function(images[3]).ravel(), expected, atol=1e-4)


def test_brightness_of_an_image_does_not_matter(data):
    images, masks = data
    segmenter = quick(MultiscaleBank(sigma_max=2), selector=MMDSelector(4), kernels=LinearMixture()).fit(
        images[:3], masks[:3]
    )
    brighter = np.asarray(images[3]) + np.float32(0.25)
    np.testing.assert_allclose(
        segmenter.decision_function(brighter), segmenter.decision_function(images[3]), atol=1e-3
    )
    per_set = clone(segmenter).set_params(bank=StackedBank([segmenter.bank], normalization="set"))
    per_set.fit(images[:3], masks[:3])
    change = per_set.decision_function(brighter) - per_set.decision_function(images[3])
    assert np.abs(change).mean() > 0.05


def test_penalty_is_chosen_on_held_out_images(data):
    images, masks = data
    segmenter = linear(alphas=(1e-3, 10.0, 1e-2)).fit(images, masks)
    scores = {float(value): score for value, score in segmenter.held_out_.by_alpha.items()}
    assert list(scores) == [10.0, 1e-2, 1e-3]
    assert segmenter.classifier_.svm_.C * segmenter.alpha_ * 800 == pytest.approx(1)
    assert segmenter.held_out_.mean_iou == scores[segmenter.alpha_]
    low, high = segmenter.held_out_.interval
    assert low <= segmenter.held_out_.mean_iou <= high


def test_of_several_banks_the_best_on_held_out_images_is_taken(data):
    images, masks = data
    banks = [PositionBank(), MultiscaleBank(sigma_max=4), MultiscaleBank(sigma_max=1)]
    alone = [linear(bank).fit(images, masks) for bank in banks]
    scores = [segmenter.held_out_.mean_iou for segmenter in alone]
    assert np.argmax(scores) == 1
    chooser = linear(banks).fit(images, masks)
    told = [(bank["bank"], bank["mean_iou"], bank["chosen"]) for bank in chooser.held_out_.by_bank]
    assert told == [
        ("position", scores[0], False),
        ("multiscale", scores[1], True),
        ("multiscale", scores[2], False),
    ]
    assert chooser.bank_.sigma_max == 4
    np.testing.assert_array_equal(chooser.decision_function(images[0]), alone[1].decision_function(images[0]))


def test_what_a_chosen_bank_needs_is_all_that_a_model_holds(data, tmp_path):
    images, masks = data
    network = ConvNetBank("squeezenet1_0", weights="random", layers=["conv1"], channel_mode="mean")
    segmenter = linear([PositionBank(), MultiscaleBank(sigma_max=4), network]).fit(images, masks)
    assert segmenter.held_out_.by_bank[1]["chosen"]
    assert segmenter.best_index_ == 1
    segmenter.save(tmp_path / "model.segkit")
    assert not any(name.startswith("weights.") for name in read_model(tmp_path / "model.segkit")[1])
    loaded = segkit.load(tmp_path / "model.segkit")
    assert isinstance(loaded.bank, MultiscaleBank)
    np.testing.assert_array_equal(loaded.predict(images[3]), segmenter.predict(images[3]))


def test_banks_are_judged_where_nothing_else_asks_for_it(data):
    images, masks = data
    options = {"alphas": None, "probability": "raw", "threshold": "zero"}
    assert linear(MultiscaleBank(sigma_max=4), **options).fit(images, masks).held_out_ is None
    segmenter = linear([PositionBank(), MultiscaleBank(sigma_max=4)], **options).fit(images, masks)
    assert segmenter.held_out_.by_bank[1]["chosen"]


def test_the_first_bank_is_taken_where_none_can_be_judged(data):
    """Only one of the images has anything of the second class."""
    images, masks = data
    segmenter = linear([MultiscaleBank(sigma_max=1), MultiscaleBank(sigma_max=4)])
    with pytest.warns(UserWarning, match="too few annotated regions"):
        segmenter.fit(images[:2], [masks[0], np.zeros_like(masks[1])])
    assert segmenter.bank_.sigma_max == 1
    assert segmenter.held_out_ is None


def test_blocks_of_a_single_image_choose_no_bank(data):
    images, masks = data
    segmenter = linear([PositionBank(), MultiscaleBank(sigma_max=4)]).fit(images[:1], masks[:1])
    assert isinstance(segmenter.bank_, PositionBank)
    assert segmenter.held_out_.regions == "blocks"
    assert segmenter.held_out_.by_bank is None
    assert segmenter.summary_.n_banks == 2


@pytest.mark.parametrize("bank", [[], ["scattering"], "scattering", [MultiscaleBank(), [PositionBank()]]])
def test_what_is_no_bank_is_refused(data, bank):
    images, masks = data
    with pytest.raises(ConfigError, match="give a filter bank, or a list of some to choose from"):
        linear(bank).fit(images, masks)


def test_all_banks_are_looked_at_before_the_first_runs(data):
    images, masks = data
    banks = [MultiscaleBank(sigma_max=2), ConvNetBank("vgg16", weights="nowhere.npz")]
    for n_images in (1, 3):
        with pytest.raises(WeightsError, match=r"nowhere\.npz"):
            linear(banks).fit(images[:n_images], masks[:n_images], progress=lambda *_: pytest.fail("it ran"))


def test_seconds_of_all_banks_count(data, monkeypatch):
    images, masks = data
    clock = iter(range(100))
    monkeypatch.setattr("segkit.segmentation.fit.time.perf_counter", lambda: float(next(clock)))
    one, two = (
        linear([MultiscaleBank(sigma_max=2)] * n_banks).fit(images[:2], masks[:2]).summary_.seconds
        for n_banks in (1, 2)
    )
    assert two == one | {"select": 2 * one["select"], "calibrate": 2 * one["calibrate"]}
    assert set(one) == {"select", "calibrate", "train", "objects"}


def test_probabilities_are_fitted_to_held_out_decisions(data, monkeypatch):
    images, masks = data
    seen = []

    def choose(held_out, rule, original=HeldOut.choose):
        seen.append((held_out, original(held_out, rule)))
        return seen[-1][1]

    monkeypatch.setattr("segkit.segmentation.held_out.HeldOut.choose", choose)
    segmenter = linear().fit(images, masks)
    [(held_out, choice)] = seen
    pixels = held_out.sample
    decisions = held_out.decisions[held_out.penalties.index(choice.penalty)]
    scores = np.zeros((len(decisions), 2), dtype=np.float32)
    for mine in (pixels.image == image for image in np.unique(pixels.image)):
        threshold = image_threshold(
            lambda mine=mine: [decisions[mine]],
            segmenter.rule_.threshold,
            segmenter.rule_.otsu_weight,
            [pixels.weight[mine, None]],
        )
        scores[mine, 1] = decisions[mine, 0] - np.float32(threshold)
    assert segmenter.rule_.temperature == fit_temperature(scores, pixels.label, pixels.weight)
    labels = [
        masks[image][row, col] for image, row, col in zip(pixels.image, pixels.row, pixels.col, strict=True)
    ]
    np.testing.assert_array_equal(pixels.label, labels)
    assert np.corrcoef(decisions[:, 0], labels)[0, 1] > 0.7


@pytest.fixture
def draws(monkeypatch):
    """Pixels that a fit draws: those it selects channels on, those it trains on."""
    seen = []

    def draw(*arguments):
        seen.append(draw_pixels(*arguments))
        return seen[-1]

    monkeypatch.setattr("segkit.segmentation.fit.draw_pixels", draw)
    return seen


@pytest.mark.parametrize("n_classes", [2, 3])
def test_training_iou_weighs_pixels_and_images(n_classes, draws):
    """Few pixels of rare classes, in images of unequal difficulty."""
    rng = np.random.default_rng(0)
    images, masks = map(list, zip(*(picture(seed, n_classes=n_classes) for seed in range(3)), strict=True))
    images[0] = np.clip(images[0] + 0.4 * rng.standard_normal(images[0].shape), 0, 1).astype(np.float32)
    label_map = LabelMap(dict(enumerate("abc"[:n_classes])))
    segmenter = linear(training_pixels=400).fit(images, masks, label_map=label_map)
    _, drawn = draws
    assert np.unique(drawn.weight).size == n_classes
    scores = []
    for index, image in enumerate(images):
        mine = drawn.of_image(index)
        weight, label = drawn.weight[mine], drawn.label[mine]
        decision = segmenter.decision_function(image)[drawn.row[mine], drawn.col[mine]]
        if n_classes == 2:
            rule = segmenter.rule_
            guess = label_pixels(decision[:, None], rule.threshold, rule.otsu_weight, weight)
        else:
            guess = decision.argmax(axis=1)
        scores.append(
            [
                weight[(label == c) & (guess == c)].sum() / weight[(label == c) | (guess == c)].sum()
                for c in range(n_classes)
            ]
        )
    np.testing.assert_allclose(segmenter.summary_.training_iou, np.mean(scores, axis=0), atol=1e-6)
    assert segmenter.summary_.training_mean_iou == pytest.approx(np.mean(scores), abs=1e-6)


def test_one_pass_over_the_images_gives_what_two_give(linear_fitted, data, monkeypatch):
    (images, masks), once = data, linear_fitted
    monkeypatch.setattr("segkit.segmentation.fit.MEMORY_LIMIT", 0)
    twice = linear().fit(images[:3], masks[:3])
    np.testing.assert_array_equal(once.decision_function(images[3]), twice.decision_function(images[3]))
    assert once.held_out_ == twice.held_out_


def test_an_image_of_two_labelled_pixels_is_no_obstacle(data):
    """None of them may be among the pixels drawn to be held out."""
    images, masks = data
    few = np.full_like(masks[0], 255)
    few[20:22, 20] = masks[0][20:22, 20]
    for kernels in (MixtureRFF(n_components=64), LinearMixture()):
        for seed in range(2):
            segmenter = quick(
                kernels=kernels, selector=MMDSelector(6), selection_pixels=40, random_state=seed
            )
            assert segmenter.fit(images[:3], [few, *masks[1:3]]).held_out_.n_regions in (2, 3)


IMAGE, MASK = picture(0)


@pytest.mark.parametrize(
    ("images", "masks", "message"),
    [
        ([IMAGE], [np.zeros_like(MASK)], "masks hold 0, expected at least two classes"),
        ([IMAGE], [np.full_like(MASK, 255)], "no labelled pixel"),
        ([np.where(MASK, np.nan, IMAGE)], [MASK], "holds NaN or infinity"),
        ([(IMAGE * 255).astype(int)], [MASK], "expected floats in [0, 1], uint8 or uint16"),
        (
            [IMAGE, 255 * IMAGE / IMAGE.max()],
            [MASK, MASK],
            "to 255, expected [0, 1]: scale it as it was stored, with segkit.images.to_float(array of uint8 or uint16), or",
        ),
        ([IMAGE - 2], [MASK], "image 0: floats from -"),
        ([IMAGE[:3, :3]], [MASK[:3, :3]], "image 0: 3 x 3 pixels, expected 4 x 4 or more"),
    ],
)
def test_bad_input_is_one_line(images, masks, message):
    with pytest.raises(InputError) as caught:
        quick().fit(images, masks)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "segment", "score"])
def test_floats_that_are_not_scaled_are_refused(fitted, method):
    """They would be segmented, wrongly: decisions change with the scale."""
    masks = (np.zeros_like(MASK),) if method == "score" else ()
    with pytest.raises(
        InputError, match=r"expected \[0, 1\]: scale it as it was stored, with segkit.images.to_float"
    ):
        getattr(fitted, method)(255 * IMAGE, *masks)
    with pytest.raises(
        InputError, match=r"image of dtype int64: expected floats in \[0, 1\], uint8 or uint16: divide"
    ):
        getattr(fitted, method)((255 * IMAGE).astype(np.int64), *masks)


@pytest.mark.parametrize("shape", [(1, 1), (500, 1), (2, 1000)])
def test_images_of_any_shape_are_segmented(any_shape, shape):
    image = np.random.default_rng(0).random(shape)
    found = any_shape.segment(image)
    assert found.labels.shape == shape
    assert np.isfinite(found.probability).all()


@pytest.fixture(scope="module")
def any_shape():
    """The default bank, whose filters are wider than these images."""
    return quick(None).fit([IMAGE], [MASK])


def test_a_filter_may_leave_the_range_a_little(fitted):
    assert fitted.predict(1.6 * IMAGE - 0.3).shape == MASK.shape


def test_many_images_are_held_out_in_five_parts(monkeypatch):
    images, masks = map(list, zip(*(picture(seed, shape=(30, 36)) for seed in range(7)), strict=True))
    seen = []

    def path(self, X, y, sample_weight, groups, *, original=PixelClassifier.path, **options):
        seen.append(set(range(7)) - set(np.unique(groups).tolist()))
        return original(self, X, y, sample_weight, groups, **options)

    monkeypatch.setattr(PixelClassifier, "path", path)
    linear(MultiscaleBank(sigma_max=2), training_pixels=1400).fit(images, masks)
    assert sorted(map(len, seen)) == [1, 1, 1, 2, 2]
    assert set.union(*seen) == set(range(7))


def test_held_out_classifiers_keep_lambda(data, monkeypatch):
    images, masks = data
    held_out, path = [], LinearSVM.path

    def spy(self, X, y, Cs, sample_weight=None, **options):
        held_out.append((len(X), *Cs))
        return path(self, X, y, Cs, sample_weight, **options)

    monkeypatch.setattr(LinearSVM, "path", spy)
    segmenter = quick(alphas=None).fit(images[:3], masks[:3])
    assert segmenter.alpha_ is None
    n = segmenter.summary_.n_training_pixels
    assert len(held_out) == 3
    assert sum(other_n for other_n, _ in held_out) == 2 * 300
    for other_n, C in held_out:
        assert other_n < n
        assert other_n * C == pytest.approx(n * segmenter.classifier_.svm_.C)


def test_numbers_of_numpy_can_be_saved(tmp_path, data):
    images, masks = data
    bank = StackedBank(
        [
            OrbitBank(
                np.array([5]), n_templates=np.int64(4), embedding=FourierEmbedding(Gaussian(np.float32(1)))
            ),
            OrbitAveraged(BANK, group=Rotation(np.int64(2))),
            ModuleBank((Module(n_scales=np.int64(2), n_angles=3),)),
        ]
    )
    segmenter = quick(bank, random_state=np.int64(1), training_pixels=np.int64(300))
    assert reloaded(segmenter.fit(images[:1], masks[:1]), tmp_path, images[2]).random_state == 1


def test_a_threshold_that_is_no_number_is_refused(tmp_path, stored):
    """Our writer has no NaN, but JSON of others may."""
    header, arrays = stored
    write_model(tmp_path / "bad.segkit", header | {"threshold": 0.1234567}, arrays)
    content = (tmp_path / "bad.segkit").read_bytes()
    assert content.count(b"0.1234567") == 1
    (tmp_path / "bad.segkit").write_bytes(content.replace(b"0.1234567", b"NaN      "))
    with pytest.raises(ModelFileError, match="header holds NaN"):
        segkit.load(tmp_path / "bad.segkit")


def test_models_whose_parts_do_not_fit_are_refused(refusal, stored):
    header, arrays = stored
    for name, short in (("svm.coef", arrays["svm.coef"][:, 1:]), ("scaler.mean", arrays["scaler.mean"][1:])):
        assert f"these do not fit the rest: {name}; copy" in refusal(arrays={name: short})
    for change in (
        {"threshold": "a"},
        {"least_areas": [[1.0, 1.0]]},
        {"label_map": 5},
        {"kernels": {}},
    ):
        refusal(change)
    assert "these do not fit the rest: channels; copy" in refusal({"channels": header["channels"][::-1]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scaler.scale": np.zeros}, "do not fit the rest: scaler.scale; copy"),
        ({"scaler.scale": np.negative}, "do not fit the rest: scaler.scale; copy"),
        ({"svm.coef": np.ravel}, "planes of shape"),
        ({"svm.coef": lambda array: array.astype(np.int32)}, "array svm.coef is of dtype int32"),
        ({"svm.intercept": None}, "incomplete model, it lacks 'svm.intercept'"),
        ({"another": np.zeros}, "do not fit the rest: another; copy"),
        ({"weights.0/x": np.zeros}, "has no weights, 1 arrays were given"),
        ({"parts.svm.coef": np.zeros}, "do not fit the rest: parts.svm.coef; copy"),
        (
            {"kernels.columns": lambda array: array.astype(np.float64)},
            "array kernels.columns is of dtype float64",
        ),
        ({"kernels.columns": lambda array: array - 1}, "LinearGaussianMixture do not fit each other"),
        ({"kernels.columns": lambda array: array[None]}, "LinearGaussianMixture do not fit each other"),
        ({"kernels.frequencies": np.ravel}, "LinearGaussianMixture do not fit each other"),
        ({"kernels.weights": np.negative}, "LinearGaussianMixture do not fit each other"),
        ({"kernels.linear.weights": np.negative}, "a weight of LinearMixture is negative"),
        ({"kernels.linear.scores": lambda array: array[1:]}, "LinearMixture do not fit each other"),
    ],
)
def test_arrays_that_no_training_gives_are_refused(refusal, stored, change, message):
    [(name, function)] = change.items()
    array = function and function(3 if function is np.zeros else stored[1][name])
    assert message in refusal(arrays={name: array})


@pytest.mark.parametrize(
    "bank",
    [
        {"kind": "modules", "modules": [{"n_scales": 16, "n_angles": 64}] * 9},
        {"kind": "modules", "modules": [{"n_scales": 10**9}]},
        {"kind": "scattering", "J": 3, "L": 1000},
        {"kind": "orbit", "n_angles": 10**9},
        {"kind": "orbit", "n_templates": 10**9},
        {"kind": "orbit", "patch_sizes": [10**9 + 1]},
        {"kind": "elongated", "sigmas": [1e9]},
        {"kind": "multiscale", "sigma_max": 1e300},
        {"kind": "multiscale", "orbit": 10**9},
        {"kind": "stacked", "banks": [{"kind": "stacked", "banks": [{"kind": "position"}]}]},
        {"kind": "none"},
        {"kind": ["modules"]},
        {"kind": "multiscale", "sigma_min": "a"},
        {"kind": "multiscale", "another": 1},
    ],
)
def test_banks_of_absurd_size_are_refused_before_they_are_made(refusal, bank):
    refusal({"bank": bank})


def test_the_digest_of_a_training_set_is_known_before_the_training(data):
    images, masks = data
    segmenter = quick()
    digest = segmenter.digest_training_set(images[:2], masks[:2])
    assert not hasattr(segmenter, "classes_")
    assert segmenter.fit(images[:2], masks[:2]).summary_.training_set_sha256 == digest
    others = [
        segmenter.digest_training_set(images[:2][::-1], masks[:2][::-1]),
        segmenter.digest_training_set(images[:2], [masks[0], 1 - masks[1]]),
        segmenter.digest_training_set(images[:2], masks[:2], instances=masks[:2]),
        segmenter.digest_training_set(images[:2], masks[:2], instances=[2 * mask for mask in masks[:2]]),
        segmenter.digest_training_set(images[:2], masks[:2], groups=["p", "p"]),
    ]
    # Objects are numbered anew, so their numbers do not matter.
    assert len({digest, *others}) == 5
    assert segmenter.digest_training_set(images[:2], masks[:2], groups=iter("pq")) == digest


def test_settings_are_kept(fitted, tmp_path):
    segmenter = copy(fitted)
    assert segmenter.settings_ is None
    settings = {"seed": 1}
    segmenter.save(tmp_path / "m.segkit", settings=settings)
    loaded = segkit.load(tmp_path / "m.segkit")
    assert loaded.settings_ == settings
    loaded.save(tmp_path / "again.segkit")
    assert (tmp_path / "again.segkit").read_bytes() == (tmp_path / "m.segkit").read_bytes()


def test_options_changed_after_the_fit_wait_for_the_next(data, tmp_path):
    """What is predicted, and stored, is the model that was fitted."""
    images, masks = data
    segmenter = quick(MultiscaleBank(sigma_max=2)).fit(images[:2], masks[:2])
    decisions, labels = segmenter.decision_function(images[2]), segmenter.predict(images[2])
    segmenter.set_params(threshold="zero", smallest_region=0.0, training_pixels=400)
    np.testing.assert_array_equal(segmenter.decision_function(images[2]), decisions)
    np.testing.assert_array_equal(segmenter.predict(images[2]), labels)
    segmenter.save(tmp_path / "m.segkit")
    loaded = segkit.load(tmp_path / "m.segkit")
    np.testing.assert_array_equal(loaded.decision_function(images[2]), decisions)
    assert (segmenter.fit(images[:2], masks[:2]).decision_function(images[2]) != decisions).any()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"threshold": "otsu"}, "threshold='otsu': choose quantile+otsu or quantile or iou or zero"),
        ({"probability": "x"}, "probability='x': choose calibrated or raw"),
        ({"smallest_region": -0.1}, "smallest_region=-0.1: give a share from 0 to 1"),
        ({"smallest_region": 1.1}, "smallest_region=1.1: give a share from 0 to 1"),
        ({"alphas": []}, "alphas=[]: give one or more numbers above 0, or None"),
        ({"alphas": [0.1, 0]}, "alphas=[0.1, 0]: give one or more numbers above 0, or None"),
        ({"alphas": [np.inf]}, "alphas=[inf]: give one or more numbers above 0, or None"),
    ],
)
def test_options_that_mean_nothing_are_refused_in_words(options, told):
    with pytest.raises(ConfigError) as caught:
        quick(**options)._checked_recipe()
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"smallest_region": 0},
        {"smallest_region": 1},
        {"alphas": None},
        {"alphas": [1e-9]},
    ],
)
def test_options_at_their_limits_pass(options):
    quick(**options)._checked_recipe()
