"""Objects learnt by a segmenter: small made-up cells that touch."""

import re
from dataclasses import fields

import numpy as np
import pytest
from scipy import ndimage
from sklearn.base import clone

import segkit
from segkit import Segmenter
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.errors import InputError, ModelFileError
from segkit.evaluation.object_scores import match, score_objects
from segkit.features import ConvNetBank, MultiscaleBank
from segkit.images import UNLABELLED, LabelMap
from segkit.images.sampling import block_folds
from segkit.kernels import LinearGaussianMixture
from segkit.objects.choose import SplitScores
from segkit.objects.split import Splitter
from segkit.segmentation.model_file import read_model, write_model
from segkit.segmentation.object_model import ObjectModel, ObjectTraining, check_instances, learn_from_regions
from segkit.selection import MMDSelector

SHAPE = (64, 80)
NONE = Splitter("none")


def quick(bank=None, **options):
    return Segmenter(
        bank or MultiscaleBank(sigma_max=2),
        selector=MMDSelector(8),
        kernels=LinearGaussianMixture(n_components=48),
        **{"selection_pixels": 600, "training_pixels": 1500} | options,
    )


def picture(seed, shape=SHAPE, n_cells=18):
    """Discs that touch, each bright in the middle: (image, mask, objects)."""
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    centres = []
    for _ in range(400):
        at = rng.uniform((4, 4), np.array(shape) - 4)
        if len(centres) < n_cells and all(np.hypot(*(at - other)) > 9.5 for other in centres):
            centres.append(at)
    distances = np.array([np.hypot(rows - row, cols - col) for row, col in centres])
    objects = np.where(distances.min(axis=0) < 6, distances.argmin(axis=0) + 1, 0)
    image = np.where(objects > 0, 0.9 - 0.06 * distances.min(axis=0), 0.3)
    image = np.clip(image + 0.03 * rng.standard_normal(shape), 0, 1).astype(np.float32)
    return image, (objects > 0).astype(np.uint8), objects


@pytest.fixture(scope="module")
def data():
    return [list(items) for items in zip(*(picture(seed) for seed in range(5)), strict=True)]


@pytest.fixture(scope="module")
def fitted(data):
    images, masks, objects = data
    return quick().fit(images[:3], masks[:3], instances=objects[:3])


@pytest.fixture(scope="module")
def unaware(data):
    """Fitted without objects."""
    images, masks, _ = data
    return quick().fit(images[:3], masks[:3])


def mean_ap(truths, found):
    return score_objects(truths, found).values["mean_ap"]


def objects_in(segmenter, images):
    """Find the objects of an image, or of several."""
    found = segmenter.segment(images, objects=True)
    return [one.objects for one in found] if isinstance(found, list) else found.objects


def assert_same_objects(segmenter, other, images):
    for one, again in zip(objects_in(segmenter, images), objects_in(other, images), strict=True):
        np.testing.assert_array_equal(one, again)


def test_it_learns_to_tell_touching_cells_apart(fitted, data):
    images, _, objects = (items[3:] for items in data)
    found = objects_in(fitted, images)
    regions = [NONE.split(mask) for mask in fitted.predict(images)]
    assert mean_ap(objects, found) > mean_ap(objects, regions) + 0.3
    assert score_objects(objects, found).values["ap_50"] > 0.8
    assert all(labels.dtype == np.int32 for labels in found)


def test_what_was_learnt(fitted, data):
    model = fitted.objects_
    assert model.source == "instances"
    assert model.parts is not None
    assert model.splitter.needs_inside
    assert abs(model.splitter.radius - 5.5) < 1
    assert (model.scores.regions, model.scores.n_regions) == ("images", 3)
    assert model.scores.n_objects == sum(labels.max() for labels in data[2][:3])
    assert model.scores.mean_ap > model.scores.by_landscape["none"] + 0.2
    assert fitted.summary_.seconds["objects"] > 0
    assert model.describe().startswith(f"Objects: {model.scores.n_objects} annotated objects; watershed on ")
    assert "On held-out images: AP at IoU 0.5 " in model.describe()


def test_masks_and_probabilities_come_along(fitted, data):
    image = data[0][3]
    found, without = fitted.segment(image, objects=True), fitted.segment(image)
    for one in (found, without):
        np.testing.assert_array_equal(one.labels, fitted.predict(image))
        np.testing.assert_array_equal(one.probability, fitted.predict_proba(image))
    assert found.check == without.check
    assert without.objects is None
    assert isinstance(fitted.segment([image], objects=True), list)


def test_classes_are_predicted_as_without_objects(fitted, unaware, data):
    for image in data[0][3:]:
        np.testing.assert_array_equal(fitted.decision_function(image), unaware.decision_function(image))


def test_regions_teach_where_no_object_is_annotated(unaware, data):
    assert unaware.objects_.source in ("regions", "strokes", "nothing")
    assert (unaware.objects_.parts, unaware.objects_.scores) == (None, None)
    assert "no objects are annotated" in unaware.objects_.describe()
    image, labels = data[0][3], objects_in(unaware, data[0][3])
    probability = unaware.predict_proba(image)[:, :, 1]
    expected = unaware.objects_.splitter.split(unaware.predict(image), probability=probability)
    np.testing.assert_array_equal(labels, expected)


def test_objects_are_no_parameter(fitted):
    assert not {"instances", "_instances"} & (fitted.get_params().keys() | vars(fitted).keys())
    copy = clone(fitted)
    assert not hasattr(copy, "objects_")
    assert copy.get_params(deep=False).keys() == Segmenter().get_params(deep=False).keys()


def test_one_image_is_judged_by_blocks(data):
    image, mask, objects = picture(7, (96, 120), 45)
    segmenter = quick().fit([image], [mask], instances=objects)
    scores = segmenter.objects_.scores
    assert (scores.regions, scores.n_regions) == ("blocks", 1)
    assert "On held-out blocks of the image: AP" in segmenter.objects_.describe()
    images, _, truths = (items[3:] for items in data)
    regions = [NONE.split(mask) for mask in segmenter.predict(images)]
    assert mean_ap(truths, objects_in(segmenter, images)) > mean_ap(truths, regions) + 0.2


def test_objects_of_two_classes(data):
    """Cells of odd numbers are dark rather than bright."""
    images, masks, objects = [], [], []
    for image, _, labels in zip(*data, strict=True):
        odd = labels % 2 == 1
        images.append(np.where(odd, 0.75 - image, image).clip(0, 1).astype(np.float32))
        masks.append(np.where(odd, 2, labels > 0).astype(np.uint8))
        objects.append(labels)
    segmenter = quick().fit(images[:3], masks[:3], instances=objects[:3])
    for image in images[3:]:
        found = segmenter.segment(image, objects=True)
        assert found.probability.shape == (*SHAPE, 3)
        mask = found.labels
        solid = found.objects * (mask > 0)
        pairs = np.unique(np.stack([solid.ravel(), mask.ravel()])[:, solid.ravel() > 0], axis=1)
        assert np.unique(pairs[0]).size == pairs.shape[1]
    regions = [NONE.split(mask) for mask in segmenter.predict(images[3:])]
    found = objects_in(segmenter, images[3:])
    assert mean_ap(objects[3:], found) > mean_ap(objects[3:], regions)


def test_blocks_without_which_a_class_is_missing_cannot_be_held_out():
    """All cells lie in the blocks of one fold: no other fold may be judged by classifiers that saw it."""
    image, mask, objects = picture(7, (96, 120), 45)
    rows, cols = np.indices(mask.shape)
    elsewhere = block_folds(rows, cols, mask.shape) != 1
    objects = np.where(elsewhere, 0, objects)
    segmenter = quick(probability="raw", alphas=None, threshold="zero")
    segmenter.fit([np.where(elsewhere, 0.3, image)], [np.where(elsewhere, 0, mask)], instances=[objects])
    assert segmenter.objects_.scores is None
    assert segmenter.objects_.parts is not None


def test_scribbles_on_objects(data):
    images, masks, objects = (items[:3] for items in data)
    rng = np.random.default_rng(0)
    scribbles = [
        np.where(ndimage.gaussian_filter(rng.standard_normal(SHAPE), 3) > 0, mask, UNLABELLED)
        for mask in masks
    ]
    segmenter = quick().fit(images, scribbles, instances=objects)
    assert segmenter.objects_.parts is not None
    truth = data[2][3]
    found = segmenter.segment(data[0][3], objects=True)
    assert mean_ap([truth], [found.objects]) > mean_ap([truth], [NONE.split(found.labels)])


def test_a_stored_model_finds_the_same_objects(fitted, data, tmp_path):
    fitted.save(tmp_path / "m.segkit")
    again = segkit.load(tmp_path / "m.segkit")
    assert_same_objects(fitted, again, data[0][3:])
    for field in ("splitter", "source", "scores"):
        assert getattr(again.objects_, field) == getattr(fitted.objects_, field)


def test_a_model_without_parts_is_stored_too(unaware, data, tmp_path):
    unaware.save(tmp_path / "m.segkit")
    header, arrays = read_model(tmp_path / "m.segkit")
    assert header["objects"]["parts"] is None
    assert not any(name.startswith("parts.") for name in arrays)
    assert_same_objects(unaware, segkit.load(tmp_path / "m.segkit"), data[0][3:])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("parts.scaler.scale", np.zeros_like),
        ("parts.another", None),
        ("parts.svm.coef", lambda array: array[:, 1:]),
    ],
)
def test_a_classifier_of_parts_that_does_not_fit_is_refused(fitted, tmp_path, name, change):
    fitted.save(tmp_path / "m.segkit")
    header, arrays = read_model(tmp_path / "m.segkit")
    arrays[name] = change(arrays[name]) if change else np.ones(1)
    write_model(tmp_path / "m.segkit", header, arrays)
    with pytest.raises(ModelFileError, match=f"do not fit the rest: {name}; copy"):
        segkit.load(tmp_path / "m.segkit")


def test_weights_that_only_the_parts_need_are_stored(fitted, data, tmp_path):
    """Classes on the first layer of a network, the parts of objects on a later one."""
    bank = ConvNetBank("squeezenet1_0", weights="random", layers=["conv1", "fire2_squeeze"])
    images, masks, objects = ([*items[:2]] for items in data)
    segmenter = quick(bank, selection_pixels=200, training_pixels=300).fit(images, masks, instances=objects)
    kept = np.arange(8)
    for classifier, channels in ((segmenter.classifier_, kept), (segmenter.objects_.parts, kept + 96)):
        classifier.channels_ = channels
    others = clone(bank).set_params(random_state=1).weights_used(np.array([0, 96]), 1)
    segmenter.bank_.use_weights(others)
    segmenter.save(tmp_path / "m.segkit")
    assert_same_objects(segmenter, segkit.load(tmp_path / "m.segkit"), images)


def test_tiles_do_not_show(monkeypatch):
    pictures = [picture(seed, (110, 130), 60) for seed in range(3)]
    images, masks, objects = ([*items] for items in zip(*pictures, strict=True))
    segmenter = quick().fit(images[:2], masks[:2], instances=objects[:2])
    whole = objects_in(segmenter, images[2])
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 60**2)
    assert len(segmenter.bank_.tiles(images[2].shape)) > 1
    tiled = objects_in(segmenter, images[2])
    assert match(whole, tiled).matched(0.9).size == whole.max() == tiled.max()


def test_objects_too_small_for_an_inside_are_split_by_shape(data):
    rng = np.random.default_rng(0)
    images, masks, objects = [], [], []
    for _ in range(2):
        labels = np.zeros(SHAPE, dtype=int)
        for index, (row, col) in enumerate(np.argwhere(rng.random((8, 10)) > 0.5), start=1):
            labels[8 * row + 2 : 8 * row + 4, 8 * col + 2 : 8 * col + 4] = index
        images.append((0.3 + 0.4 * (labels > 0) + 0.02 * rng.standard_normal(SHAPE)).astype(np.float32))
        masks.append((labels > 0).astype(np.uint8))
        objects.append(labels)
    segmenter = quick().fit(images, masks, instances=objects)
    model = segmenter.objects_
    assert (model.source, model.parts, model.splitter.landscape) == ("instances", None, "distance")
    assert "of the annotated size; nothing could be held out" in model.describe()
    assert score_objects(objects, objects_in(segmenter, images)).values["ap_50"] > 0.8


def test_objects_in_one_image_only_cannot_be_judged(data):
    """Without them there is no part to learn from."""
    images, masks, objects = (items[:2] for items in data)
    segmenter = quick().fit(images, masks, instances=[objects[0], 0 * objects[1]])
    model = segmenter.objects_
    assert model.scores is None or model.scores.n_regions == 1
    assert objects_in(segmenter, data[0][3]).any()


def test_a_rare_class_is_no_judge(data):
    """A class of which no pixel is drawn to judge objects by."""
    images, masks, objects = ([*items[:3]] for items in data)
    masks = [mask.copy() for mask in masks]
    for mask in masks:
        mask[0, 0] = 2
    names = LabelMap(dict(enumerate(["background", "object", "rare"])))
    segmenter = quick().fit(images, masks, instances=objects, label_map=names)
    assert segmenter.objects_.parts is not None
    assert objects_in(segmenter, images[0]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda labels: labels[:1], "1 label image of objects for 2 masks: give one for each"),
        (lambda labels: labels[0], "1 label image of objects for 2 masks: give one for each"),
        (
            lambda labels: [labels[0], labels[1][1:]],
            "label image 1 of shape (63, 80) and dtype int64 for a mask of (64, 80): give integers of the same size, "
            "0 for the background",
        ),
        (
            lambda labels: [labels[0].astype(float), labels[1]],
            "label image 0 of shape (64, 80) and dtype float64 for a mask of (64, 80): give integers of the same size, "
            "0 for the background",
        ),
        (
            lambda labels: [labels[0], labels[1] > 0],
            "label image 1 of shape (64, 80) and dtype bool for a mask of (64, 80): give integers of the same size, "
            "0 for the background",
        ),
        (
            lambda labels: [labels[0], -labels[1]],
            "label image 1 of shape (64, 80) and dtype int64 for a mask of (64, 80): give integers of the same size, "
            "0 for the background",
        ),
        (
            lambda labels: [0 * label for label in labels],
            "no label image holds an object: number some, or leave instances out",
        ),
    ],
)
def test_objects_that_do_not_fit_are_refused_before_training(data, monkeypatch, change, message):
    images, masks, objects = (items[:2] for items in data)
    monkeypatch.setattr(PixelClassifier, "fit", None)
    segmenter = quick()
    with pytest.raises(InputError) as caught:
        segmenter.fit(images, masks, instances=change(objects))
    assert str(caught.value) == message


def test_label_images_are_numbered_anew():
    """Of small integers, far apart, and in nested lists."""
    labels, mask = np.array([[0, 9, 9], [2, 0, 9]]), np.zeros((2, 3), np.uint8)
    for given in (labels.astype(np.uint16), labels * 2**33, [labels.tolist()]):
        [checked] = check_instances(given, [mask])
        expected = np.array([[0, 1, 1], [2, 0, 1]], dtype=np.int32)
        np.testing.assert_array_equal(checked, expected, strict=True)


def test_objects_are_found_anew_without_another_prediction(fitted, unaware, data):
    """What `decide` returns serves for any settings."""
    image = data[0][4]
    for model in (fitted, unaware):
        decisions, depth = model.decide(image)
        assert (depth is None) == (model.objects_.parts is None)
        for changed in (model, model.with_objects("more"), model.with_objects(smallest=60)):
            expected = changed.segment(image, objects=True).objects
            np.testing.assert_array_equal(changed.find_objects(decisions, depth), expected)


def test_a_segmenter_that_was_not_fitted_finds_nothing(data):
    with pytest.raises(Exception, match="not fitted"):
        quick().segment(data[0][0], objects=True)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("instances", "of the annotated size; nothing could be held out to choose better settings"),
        ("regions", "from the sizes and shapes of the annotated regions, for no objects are annotated"),
        (
            "strokes",
            "regions below 0 pixels (half the smallest one drawn) are left out, for no region is annotated as a whole",
        ),
        ("nothing", "no region is annotated as a whole, so that nothing is known of objects"),
    ],
)
def test_each_source_is_described(source, told):
    model = ObjectModel(NONE, source)
    assert (
        model.describe()
        == f"Objects: each connected region is one object (typical radius 10 pixels); {told}."
    )
    header, arrays = model.to_state(())
    assert not arrays
    again = ObjectModel.from_state(header, {}, ())
    assert [getattr(again, field.name) for field in fields(again)] == [NONE, source, None, None, False]


def test_scores_are_described():
    scores = SplitScores("blocks", 1, 1, 0.5, 0.25, 0.2, {"none": 0.1})
    assert ObjectModel(NONE, "instances", None, scores).describe() == (
        "Objects: 1 annotated object; each connected region is one object (typical radius 10 pixels). On held-out "
        "blocks of the image: AP at IoU 0.5 0.50, mean AP 0.25."
    )


def test_objects_with_learnt_parts_read_features_once(data, fitted, monkeypatch):
    assert fitted.objects_.parts is not None
    calls = []
    original = type(fitted.bank_).maps
    monkeypatch.setattr(
        type(fitted.bank_), "maps", lambda *given, **named: calls.append(1) or original(*given, **named)
    )
    fitted.segment(data[0][0], objects=True)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("splitter", "source", "told"),
    [
        (
            Splitter(),
            "nothing",
            "no region is annotated as a whole, so each connected region counts as one object.",
        ),
        (
            Splitter(landscape="none", least_area=11.5),
            "strokes",
            "no region is annotated as a whole. Each connected region of at least 12 pixels (half the smallest one drawn) "
            "counts as one object, also where several touch.",
        ),
        (
            Splitter(landscape="distance", radius=6.0),
            "regions",
            "none are annotated one by one, so those that touch are told apart by their shape "
            "(typical diameter 12 pixels).",
        ),
        (
            Splitter(landscape="none", radius=6.0),
            "regions",
            "none are annotated one by one. Touching objects are counted as one (typical diameter 12 pixels).",
        ),
        (
            Splitter(radius=6.25),
            "annotated",
            "learnt from annotated ones (typical diameter 12.5 pixels); how well is unknown.",
        ),
    ],
)
def test_what_is_known_of_objects_is_told(splitter, source, told):
    model = ObjectModel(splitter, source)
    assert model.rule == told
    unknown = (
        "How far the count is off is not known: number the objects of three images or more to learn it. If each image "
        "holds a single object, train with --set data.masks=instances."
    )
    assert model.summarise() == f"Objects: {told} {unknown}"


@pytest.mark.parametrize(
    ("regions", "n_objects", "told"),
    [
        ("images", 12, "12 annotated objects (typical diameter 7 pixels). On held-out images"),
        ("blocks", 1, "1 annotated object (typical diameter 7 pixels). On held-out parts of the image"),
    ],
)
@pytest.mark.parametrize(
    ("n_counted", "error"), [(85, "15% too few"), (112, "12% too many"), (100, "as many as there are")]
)
def test_scores_are_told(regions, n_objects, told, n_counted, error):
    counts = [[40, n_counted - 60], [60, 60], [0, 0], [0, 0]]
    scores = SplitScores(regions, 3, n_objects, 0.875, 0.25, 0.2, {"none": 0.1}, 70, counts)
    assert ObjectModel(Splitter(radius=3.5), "instances", None, scores).summarise() == (
        f"Objects: learnt from {told} the AP at IoU 0.5 was 0.88 (AP: matched / (matched + missed + false)). There it found "
        f"70 of 100 objects, and counted {n_counted}: {error}."
    )


def counted(counts, *, all_counted=True, groups=()):
    scores = SplitScores("images", len(counts), 9, 0.8, 0.7, 0.6, {}, 5, counts, all_counted, [*groups])
    return ObjectModel(Splitter(), "instances", None, scores)


def test_the_interval_of_a_count_is_conformal():
    """Of four images the largest error is the margin, of nine the second largest; a factor of the count plus 1."""
    four = counted([[19, 9], [9, 9], [10, 9], [9, 10]])
    assert four.count_interval(9) == (4, 19)
    assert four.count_interval(0) == (0, 1)
    assert four.count_interval(99) == (49, 199)
    assert four.summarise().endswith(
        "In four of five new images that are like those annotated, expect about 0.5 to 2 times what is counted."
    )
    nine = counted([[19, 9], [14, 9], *[[9, 9]] * 7])
    assert nine.count_interval(9) == (6, 14)
    # planes of a stack count as one: the largest error is the margin again, as of four images
    planes = counted([[19, 9], [14, 9], *[[9, 9]] * 7], groups=[0, 0, 0, 1, 1, 2, 2, 3, 3])
    assert planes.count_interval(9) == (4, 19)
    # six cannot be halved and one more: rounding may not take a count away
    assert counted([[20, 6]] * 4).count_interval(6) == (2, 20)
    exact = counted([[3, 3]] * 4)
    assert exact.count_interval(3) == (3, 3)
    assert exact.summarise().endswith("that are like those annotated, expect what is counted.")


@pytest.mark.parametrize(
    "model",
    [
        counted([[9, 8]] * 3),
        counted([[9, 8]] * 3 + [[0, 0]] * 9),
        counted([[9, 8]] * 6, groups=[0, 1, 2, 0, 1, 2]),
        counted([[9, 8]] * 3 + [[0, 0]], groups=[0, 1, 2, 3]),
        counted([[9, 8]] * 4, all_counted=False),
        counted([]),
        counted([[9, 8]] * 4).by_hand(Splitter(depth=0.33)),
        ObjectModel(Splitter(), "regions"),
    ],
)
def test_without_four_images_there_is_no_interval(model):
    assert model.count_interval(9) is None
    assert "four of five" not in model.summarise()


def test_the_interval_holds_four_of_five_new_images(rng):
    """Counts of images that are off by a random factor, and of Poisson noise."""
    held = []
    for _ in range(400):
        true = rng.poisson(40, 9)
        found = rng.poisson(true * np.exp(0.3 * rng.standard_normal(9)))
        *known, (new, told) = zip(true.tolist(), found.tolist(), strict=True)
        low, high = counted([list(pair) for pair in known]).count_interval(told)
        held.append(low <= new <= high)
    assert 0.76 <= np.mean(held) <= 0.9


def lesson(ids, **options):
    images = [np.zeros((*mask.shape, 1), dtype=np.float32) for mask in ids]
    return ObjectTraining(images, ids, [], [], None, None, None, None, (10, 20), 0, **options)


@pytest.mark.parametrize(("n_images", "penalty"), [(1, 1e-3), (4, 5e-4), (100, 1e-4)])
def test_the_usual_penalty_falls_with_the_root_of_the_number_of_images(n_images, penalty):
    assert lesson([np.zeros((2, 3), np.uint8)] * n_images)._usual_penalty == pytest.approx(penalty)


def test_blocks_of_a_single_image_are_joined():
    """Of each fold the decisions of its own blocks are taken; images are taken as they are."""
    mask = np.zeros((24, 30), np.uint8)
    blocks = block_folds(*np.indices(mask.shape), mask.shape)
    maps = [[np.full((24, 30, n), k, dtype=np.float32) for n in (1, 3)] for k in range(3)]
    one, two = lesson([mask]), lesson([mask, mask])
    assert one._join(None, maps[0], 0) is maps[0]
    joined = one._join(one._join(maps[0], maps[1], 1), maps[2], 2)
    expected = np.where(blocks == 1, 1, np.where(blocks == 2, 2, 0))[:, :, None]
    for found in joined:
        np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))
    assert two._join(maps[0], maps[1], 1) is maps[1]


def test_regions_that_are_annotated_in_part_teach_nothing():
    whole = np.zeros((40, 40), np.uint8)
    whole[10:18, 10:18] = 1
    assert learn_from_regions([whole]).source == "regions"
    stroke = np.full((40, 40), UNLABELLED, np.uint8)
    stroke[10:12, 5:30], stroke[20:22, 5:30] = 0, 1
    model = learn_from_regions([stroke])
    assert (model.source, model.splitter.landscape) == ("strokes", "none")
    assert (model.parts, model.scores) == (None, None)


@pytest.mark.parametrize(("shape", "n"), [((2, 4, 5), 2), ((4, 5), 1)])
def test_stacked_label_images_are_one_for_each_mask(shape, n):
    labels = np.zeros(shape, dtype=np.int64)
    labels[..., 1, 1] = 5
    checked = check_instances(labels, [np.zeros((4, 5), np.uint8)] * n)
    assert [one.max() for one in checked] == [1] * n


def test_one_image_with_an_object_is_enough():
    empty, one = np.zeros((3, 4), dtype=int), np.eye(3, 4, dtype=int)
    assert [labels.any() for labels in check_instances([empty, one], [np.zeros((3, 4), np.uint8)] * 2)] == [
        False,
        True,
    ]


def test_settings_changed_by_hand_are_kept_and_told(data, fitted, tmp_path):
    image = data[0][0]
    changed = fitted.with_objects("less", smallest=1000, fill_holes=False)
    assert changed.segment(image, objects=True).objects.max() == 0
    assert fitted.segment(image, objects=True).objects.max() > 0
    changed.save(tmp_path / "changed.segkit")
    told = segkit.load(tmp_path / "changed.segkit").objects_.summarise()
    assert told == changed.objects_.summarise()
    assert "objects below 1000 pixels are left out, holes are kept." in told
    assert told.endswith("changed by hand: how far the count is off is not known.")
    least = np.ceil(fitted.objects_.splitter.least_area)
    told = fitted.with_objects("less").objects_.summarise()
    assert re.search(rf"objects below {least:.0f} pixels \(\d+ at the border\) are left out", told)
    assert fitted.with_objects() is fitted
    assert (
        segkit.load(tmp_path / "changed.segkit")
        .objects_.describe()
        .endswith("holes are kept; changed by hand.")
    )
