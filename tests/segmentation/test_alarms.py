import csv
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import tifffile
from scipy import stats

from segkit import Segmenter, load, predict_folder
from segkit.classifier.svm import LinearSVM
from segkit.cli.phantom import make_demo_set
from segkit.errors import ModelFileError
from segkit.evaluation.metrics import score_masks
from segkit.features import MultiscaleBank
from segkit.images import PixelSize, load_pairs, write_mask
from segkit.segmentation.alarms import (
    Alarms,
    ExpectedIoU,
    HeldOutImage,
    ImageCheck,
    IoU,
    columns_of,
    compare,
    count_single,
    expected_iou,
    presence_of,
    shrunken_mean,
)
from segkit.segmentation.model_file import read_model, write_model


def small(**options):
    return Segmenter(MultiscaleBank(), **{"selection_pixels": 600, "training_pixels": 1000} | options)


@pytest.fixture(scope="module")
def pictures():
    return make_demo_set(16, shape=(64, 96))


@pytest.fixture(scope="module")
def trained(pictures):
    images, masks = pictures
    return small().fit(images[:10], masks[:10])


@pytest.fixture(scope="module")
def trained_on(pictures):
    """Train on the first n images, once for each n."""
    images, masks = pictures
    return cache(lambda n: small().fit(images[:n], masks[:n]))


def check_of(segmenter, image):
    return segmenter.segment(image).check


def test_a_check_tells_expected_iou_margins_and_distance(trained, pictures):
    image = pictures[0][12]
    found = trained.segment(image)
    check = found.check
    expected = trained.alarms_.expected
    raw = expected_iou(trained.label_map_.encode(found.labels), found.probability, expected.presence)
    assert check.expected_object_iou == pytest.approx(raw.object - expected.bias.object)
    assert check.expected_mean_iou == pytest.approx(raw.mean - expected.bias.mean)
    assert check.expected_object_iou < check.expected_mean_iou
    assert (check.margin_80, check.margin_90) == (expected.margin(0.8), expected.margin(0.9))
    assert 0 < check.margin_80 <= check.margin_90
    np.testing.assert_array_equal(found.labels, trained.predict(image))
    np.testing.assert_array_equal(found.probability, trained.predict_proba(image))
    low, high = check.interval_80
    object_iou, margin = check.expected_object_iou, check.margin_80
    assert (low, high) == (max(0, object_iou - margin), min(1, object_iou + margin))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda image: 0.2 * image, "darker in "),
        (lambda image: image[:, :, ::-1], "than the training images (mean"),
        (lambda image: np.repeat(np.repeat(image, 5, 0), 5, 1)[:64, :96], "texture unlike the training images"),
        (lambda image: np.random.default_rng(0).uniform(size=image.shape), "texture unlike the training images"),
        (lambda image: image[:32, :48], "smaller than the training images (32 x 48 pixels"),
    ],
)  # fmt: skip
def test_spoilt_images_are_told_and_images_of_the_same_kind_are_not(trained, pictures, spoil, words):
    image = pictures[0][12]
    assert not check_of(trained, image).unlike
    check = check_of(trained, np.ascontiguousarray(spoil(image), dtype=np.float32))
    assert any(words in note for note in check.unlike)
    assert words in check.warning


def test_few_images_have_no_margins(pictures, trained_on):
    images = pictures[0]
    check = check_of(trained_on(3), images[12])
    assert check.expected_object_iou is not None
    assert (check.margin_80, check.margin_90, check.interval_80, check.interval_90) == (None,) * 4
    assert check.distance is not None
    check = check_of(trained_on(5), images[12])
    assert check.margin_80 is not None
    assert check.margin_90 is None


def test_copies_count_once(pictures):
    """Margins and known textures are those of different images: a copy is not really held out."""
    images, masks = pictures
    alarms = small().fit([*images[:5], *images[:4]], [*masks[:5], *masks[:4]]).alarms_
    assert alarms.expected.errors.size == len(alarms.known.light) == 5
    assert alarms.expected.margin(0.9) is None
    assert alarms.known.farthest < 10


def test_a_single_image_tells_nothing(pictures, trained_on):
    segmenter = trained_on(1)
    check = check_of(segmenter, pictures[0][12])
    assert (check.expected_mean_iou, check.margin_80, check.distance, check.unlike) == (None, None, None, ())
    assert segmenter.alarms_.summarise() == []
    [line] = segmenter.alarms_.explain()
    assert line.startswith("Expected IoU: unknown.")


def test_strokes_tell_no_iou_but_unlike_images(pictures):
    images, masks = pictures
    strokes = []
    for mask in masks[:6]:
        stroke = np.full_like(mask, 255)
        stroke[::4] = np.where(mask[::4] > 0, 2, 1)
        strokes.append(stroke)
    segmenter = small().fit(images[:6], strokes)
    check = check_of(segmenter, images[12])
    assert check.expected_object_iou is None
    assert check.expected_mean_iou is None
    assert check.distance is not None
    assert segmenter.alarms_.summarise() == []


def test_one_class_everywhere_is_told(pictures):
    images, masks = pictures
    masks = [np.zeros_like(masks[0]), *masks[1:4]]
    segmenter = small().fit(images[:4], masks)
    segmenter.rule_ = replace(segmenter.rule_, threshold=1e6, otsu_weight=0.0)
    assert check_of(segmenter, images[12]).one_class == "background everywhere, as 1 of 4 training images"


def test_images_of_one_class_are_counted():
    masks = [np.array(rows, dtype=np.uint8) for rows in ([[0, 0]], [[0, 1]], [[255, 0]], [[1, 255]])]
    assert count_single(masks, 3) == (2, 1, 0)


def test_a_model_that_says_one_class_of_all_training_images_warns(rng):
    """Noise, of which little is foreground: the best is to say background of everything."""
    images = [rng.uniform(size=(40, 50)) for _ in range(3)]
    masks = [(rng.uniform(size=(40, 50)) < 0.05).astype(int) for _ in range(3)]
    with pytest.warns(UserWarning, match="the model gives background everywhere, on the training images too"):
        small(svm=LinearSVM(), alphas=[1.0], threshold="zero", smallest_region=0).fit(images, masks)


def test_a_saved_model_checks_as_before(trained, pictures, tmp_path):
    trained.save(tmp_path / "model.segkit")
    again = load(tmp_path / "model.segkit")
    for image in (pictures[0][12], (0.3 * pictures[0][13]).astype(np.float32)):
        assert check_of(again, image) == check_of(trained, image)
    assert again.alarms_.explain() == trained.alarms_.explain()
    again.save(tmp_path / "again.segkit")
    assert (tmp_path / "again.segkit").read_bytes() == (tmp_path / "model.segkit").read_bytes()


@pytest.mark.parametrize("n", [1, 3])
def test_what_is_unknown_stays_so_in_a_file(pictures, trained_on, tmp_path, n):
    image, segmenter = pictures[0][12], trained_on(n)
    segmenter.save(tmp_path / "model.segkit")
    assert check_of(load(tmp_path / "model.segkit"), image) == check_of(segmenter, image)


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, lambda array: array[..., None]) for name in ("errors", "textures", "frequencies")]
    + [("scales", np.zeros_like)],
)
def test_arrays_that_do_not_fit_are_refused(trained, tmp_path, name, change):
    trained.save(tmp_path / "model.segkit")
    header, arrays = read_model(tmp_path / "model.segkit")
    del header["format_version"]
    arrays[f"alarms.{name}"] = change(arrays[f"alarms.{name}"])
    write_model(tmp_path / "model.segkit", header, arrays)
    with pytest.raises(ModelFileError, match=f"do not fit the rest: alarms.{name}|incomplete model"):
        load(tmp_path / "model.segkit")


def test_checks_do_not_change_a_prediction_of_a_large_image(trained, pictures, monkeypatch):
    image = pictures[0][12]
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("error", UserWarning)
        found = trained.segment(image).labels
    np.testing.assert_array_equal(found, trained.predict(image))


def test_columns_are_those_of_a_single_page():
    check = ImageCheck(0.8, 0.85, 0.1, 0.3, 1.5, (), "background everywhere")
    assert columns_of([check]) == {
        "expected_object_iou": 0.8,
        "low_80": pytest.approx(0.7),
        "high_80": pytest.approx(0.9),
        "low_90": pytest.approx(0.5),
        "high_90": 1.0,
        "expected_mean_iou": 0.85,
        "distance": 1.5,
        "warning": "background everywhere",
    }


def test_no_interval_is_promised_of_an_image_unlike_the_training_images():
    check = ImageCheck(0.8, 0.85, 0.1, 0.3, 1.5, ("darker",), "background everywhere")
    assert (check.interval_80, check.interval_90) == (None, None)
    for columns in (
        columns_of([check]),
        columns_of([ImageCheck(0.8, 0.85, 0.1, 0.3, 1.5, (), None)], ["pixels of uint16"]),
    ):
        assert columns["expected_object_iou"] == 0.8
        assert {columns[name] for name in ("low_80", "high_80", "low_90", "high_90")} == {None}
    assert columns_of([check])["warning"] == "darker; background everywhere"


def test_columns_of_several_pages_are_those_of_the_worst():
    checks = [
        ImageCheck(0.8, 0.7, 0.1, None, 1.5, (), None),
        None,
        ImageCheck(0.6, 0.8, 0.1, None, 0.5, (), "background everywhere"),
        ImageCheck(None, None, None, None, None, ("brighter",), None),
    ]
    found = columns_of(checks)
    assert (found["expected_object_iou"], found["low_80"], found["high_80"]) == (0.6, 0.5, pytest.approx(0.7))
    assert found["expected_mean_iou"] == 0.8
    assert (found["low_90"], found["high_90"], found["distance"]) == (None, None, 1.5)
    assert found["warning"] == "page 3: background everywhere; page 4: brighter"


def test_a_page_without_objects_is_the_worst_only_if_all_are():
    empty = [ImageCheck(None, mean, 0.1, None, 1.0, (), None) for mean in (0.9, 0.7)]
    assert columns_of(empty)["expected_mean_iou"] == 0.7
    assert columns_of(empty)["expected_object_iou"] is None
    found = columns_of([*empty, ImageCheck(0.6, 0.8, 0.1, None, 1.0, (), None)])
    assert (found["expected_object_iou"], found["expected_mean_iou"]) == (0.6, 0.8)


@pytest.mark.parametrize("checks", [[], [None], [ImageCheck(None, None, None, None, None, (), None)]])
def test_columns_of_what_is_unknown_are_empty(checks):
    assert not any(columns_of(checks).values())


def test_pixel_sizes_go_from_the_training_files_to_the_summary(pictures, tmp_path):
    for index, (image, mask) in enumerate(zip(*(items[:7] for items in pictures), strict=True)):
        folder = tmp_path / ("images" if index < 5 else "new")
        folder.mkdir(exist_ok=True)
        side = 1.0 if index == 6 else 0.5
        tifffile.imwrite(
            folder / f"{index}.tif",
            np.rint(255 * image).astype(np.uint8),
            photometric="rgb",
            resolution=(1e4 / side, 1e4 / side),
            resolutionunit="CENTIMETER",
        )
        if index < 5:
            write_mask(tmp_path / "masks" / f"{index}.png", 255 * mask)
    data = load_pairs(tmp_path / "images", tmp_path / "masks")
    assert data.dtypes == ["uint8"] * 5
    assert data.pixel_sizes == [pytest.approx((0.5, 0.5))] * 5
    segmenter = small().fit(data.images, data.masks, label_map=data.label_map)
    segmenter.note_files(data.dtypes, data.pixel_sizes)
    segmenter.save(tmp_path / "m.segkit")
    with pytest.warns(UserWarning, match=r"6\.tif: pixels of 1 µm, of the training images 0\.5 µm"):
        predict_folder(load(tmp_path / "m.segkit"), tmp_path / "new", tmp_path / "out")
    with (tmp_path / "out" / "summary.csv").open(newline="", encoding="utf-8") as file:
        warned = {row["image"]: row["warning"] for row in csv.DictReader(file)}
    assert [name for name, text in warned.items() if "pixels of" in text] == ["6.tif"]


@pytest.mark.parametrize(
    ("expected", "margin", "interval"),
    [
        (0.5, 0.25, (0.25, 0.75)),
        (0.2, 0.25, (0.0, 0.45)),
        (0.9, 0.25, (0.65, 1.0)),
        (None, 0.25, None),
        (0.5, None, None),
    ],
)
def test_intervals_stay_within_0_and_1(expected, margin, interval):
    check = ImageCheck(expected, 0.1, margin, None, 1.0, (), None)
    assert check.interval_80 == (interval and pytest.approx(interval))
    assert check.interval_90 is None
    swapped = ImageCheck(expected, 0.1, None, margin, 1.0, (), None)
    assert swapped.interval_90 == check.interval_80


def alarms_of(**options):
    return Alarms(("a", "b"), (0, 2), 3, None, None, **options)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([[0, 0], [0, 0]], "a everywhere, which no training image is"),
        ([[1, 1], [1, 1]], "b everywhere, as 2 of 3 training images"),
        ([[0, 0], [0, 1]], None),
        ([[1, 0], [1, 1]], None),
    ],
)
def test_one_class_in_all_pixels_is_told_with_the_training_images(ids, told):
    assert alarms_of().check(None, np.array(ids), None, None).one_class == told


@pytest.mark.parametrize(
    ("size", "told"),
    [
        ((0.5, 0.5), []),
        ((0.25, 1.0), []),
        ((0.5 / 1.09, 0.5 / 1.09), []),
        ((0.5 / 1.11, 0.5 / 1.11), ["pixels of 0.45 µm, of the training images 0.5 to 2 µm"]),
        ((2 * 1.09, 2 * 1.09), []),
        ((2 * 1.11, 2 * 1.11), ["pixels of 2.22 µm, of the training images 0.5 to 2 µm"]),
    ],
)
def test_pixels_a_tenth_smaller_or_larger_than_any_are_told_of(size, told):
    """Of oblong pixels the side of a square of their area counts."""
    alarms = alarms_of().of_files([], [PixelSize(0.5, 0.5), PixelSize(1.0, 4.0), None])
    assert alarms.compare_file("uint8", PixelSize(*size)) == told


def test_types_of_pixels_are_named():
    alarms = alarms_of(dtypes=("uint16", "uint8"))
    assert alarms.compare_file("uint8", None) == []
    assert alarms.compare_file("float32", None) == [
        "pixels of float32, of the training images uint16 and uint8"
    ]


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
    of_objects = 1.5 / 2.3
    assert expected_iou(ids, probabilities, np.ones(2)) == pytest.approx(
        (of_objects, np.mean([0.7 / (1 + 0.1 + 0.4), of_objects]))
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_the_mean_iou_of_masks_drawn_from_the_probabilities(n_classes):
    ids, probabilities = prediction(n_classes)
    rng = np.random.default_rng(1)
    steps = probabilities.cumsum(axis=2)[..., :-1]
    masks = [(rng.uniform(size=(*ids.shape, 1)) > steps).sum(axis=2) for _ in range(60)]
    true = score_masks(masks, [ids] * len(masks), n_classes)
    found = expected_iou(ids, probabilities, np.ones(n_classes))
    assert found == pytest.approx((true.object_iou, true.mean), abs=2e-3)


def test_a_sure_and_right_mask_has_1_and_a_sure_and_wrong_one_0():
    ids = np.array([[0, 1]])
    assert expected_iou(ids, np.eye(2)[ids], np.ones(2)) == (1, 1)
    assert expected_iou(ids, np.eye(2)[1 - ids], np.ones(2)) == (0, 0)


@pytest.mark.parametrize(("presence", "expected"), [(0.0, 0.9), (1.0, 0.45), (0.5, 0.6)])
def test_a_class_that_is_nowhere_predicted_counts_as_often_as_images_hold_it(presence, expected):
    ids = np.zeros((4, 5), dtype=int)
    probabilities = np.broadcast_to([0.9, 0.1], (4, 5, 2))
    found = expected_iou(ids, probabilities, np.array([1, presence]))
    assert found.mean == pytest.approx(expected)
    assert np.isnan(found.object)


def test_presence_follows_laplace():
    holds = np.array([[True, True], [True, False], [True, True]])
    np.testing.assert_allclose(presence_of(holds), [4 / 5, 3 / 5])
    np.testing.assert_allclose(presence_of(np.zeros((0, 3), dtype=bool)), 0.5)


def test_the_true_iou_is_that_of_labelled_pixels():
    ids, probabilities = prediction()
    truth = np.where(np.random.default_rng(2).uniform(size=ids.shape) < 0.8, ids, 1 - ids)
    truth[:10] = 255
    found = compare(ids, probabilities, np.ones(2), truth, 0)
    true = score_masks([truth], [ids], 2)
    assert found.true == pytest.approx((true.object_iou, true.mean))
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
    """Images whose object IoU is expected too high by `excess`, and whose mean IoU by half of it."""
    return [HeldOutImage(IoU(true + one, 0.9 + one / 2), IoU(true, 0.9), 0) for one in excess]


def test_each_image_is_corrected_by_what_the_others_showed():
    excess = np.array([0.1, 0.12, 0.08, 0.3])
    found = ExpectedIoU.learn(held_out(excess), np.ones(2))
    assert found.bias == pytest.approx((shrunken_mean(excess), shrunken_mean(excess / 2)))
    without = [shrunken_mean(np.delete(excess, k)) for k in range(4)]
    np.testing.assert_allclose(found.errors, np.abs(excess - without))


def test_estimates_are_corrected_and_stay_within_0_and_1():
    ids = np.array([[0, 1]])
    for excess, expected in ((0.1, (0.9, 0.95)), (-0.1, (1.0, 1.0))):
        model = ExpectedIoU.learn(held_out([excess] * 4), np.ones(2))
        assert model.estimate(ids, np.eye(2)[ids]) == pytest.approx(expected)


def test_images_without_objects_show_no_error_of_the_object_iou():
    empty = HeldOutImage(IoU(np.nan, 0.9), IoU(np.nan, 1.0), 0)
    missed = HeldOutImage(IoU(np.nan, 0.9), IoU(0.0, 0.4), 1)
    found = ExpectedIoU.learn([*held_out([0.1, 0.2]), empty, missed], np.ones(2))
    assert found.errors.size == 2
    assert found.bias.object == pytest.approx(shrunken_mean(np.array([0.1, 0.2])))
    assert found.bias.mean == pytest.approx(shrunken_mean(np.array([0.05, 0.1, -0.1, 0.5])))
    assert ExpectedIoU.learn([empty], np.ones(2)).bias.object == 0


@pytest.mark.parametrize(("n", "has_80", "has_90"), [(0, 0, 0), (3, 0, 0), (4, 1, 0), (8, 1, 0), (9, 1, 1)])
def test_margins_are_refused_below_4_and_9_images(n, has_80, has_90):
    found = ExpectedIoU.learn(held_out(np.linspace(-0.1, 0.1, n)), np.ones(2))
    assert (found.margin(0.8) is not None) == has_80
    assert (found.margin(0.9) is not None) == has_90
    assert len(found.summarise()) == has_80
    for level, is_known in ((80, has_80), (90, has_90)):
        assert (f"unknown for {level} %" in found.explain()) != is_known


def test_what_is_told_names_the_margin():
    found = ExpectedIoU(IoU(0.0, 0.0), np.array([0.01, 0.02, 0.03, 0.064]), np.ones(2))
    assert found.summarise() == [
        "Expected object IoU of a new image is within 0.06 of the truth in 80 % of images (from 4 training images)."
    ]


@pytest.mark.parametrize(
    ("bias", "words"), [(0.02, "too high by 0.020"), (-0.1, "too low by 0.100"), (0.0, "no correction")]
)
def test_the_correction_is_explained(bias, words):
    assert words in ExpectedIoU(IoU(bias, 0.3), np.full(9, 0.1), np.ones(2)).explain()


def test_the_margins_cover_exchangeable_images_as_promised():
    """The correction is learnt from the same images, which costs nothing where it is learnt from the others of each."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(4000):
        excess = 0.05 + 0.1 * rng.standard_normal(11)
        model = ExpectedIoU.learn(held_out(excess[:10]), np.ones(2))
        inside.append([abs(excess[10] - model.bias.object) <= model.margin(level) for level in (0.8, 0.9)])
    np.testing.assert_allclose(np.mean(inside, axis=0), [0.8, 0.9], atol=0.02)


def test_images_of_a_group_are_corrected_by_those_of_others_and_count_as_one():
    excess, group = np.array([0.1, 0.12, 0.08, 0.3, 0.2]), np.array([0, 0, 1, 2, 1])
    found = ExpectedIoU.learn(held_out(excess), np.ones(2), group)
    means = np.array([0.11, 0.14, 0.3])
    assert found.bias == pytest.approx((shrunken_mean(means), shrunken_mean(means / 2)))
    without = [shrunken_mean(np.delete(means, one)) for one in group]
    np.testing.assert_allclose(found.errors, np.abs(excess - without))
    assert found.margin(0.8) is None
    assert "On 5 held-out training images in 3 groups" in found.explain()
    assert found.explain().endswith("they take 4 and 9 groups of them.")
    four = ExpectedIoU.learn(held_out([*excess, 0.1]), np.ones(2), np.append(group, 3))
    assert four.margin(0.8) == four.errors.max()
    assert "(from 6 training images in 4 groups)" in four.summarise()[0]
    assert ExpectedIoU.learn(held_out(excess), np.ones(2), np.arange(5)).groups is None


def test_what_is_explained_names_both_margins():
    found = ExpectedIoU(IoU(-0.0125, 0.0), np.linspace(0.01, 0.09, 9), np.ones(2))
    assert found.explain() == (
        "Expected object IoU: from the probabilities of an image's pixels. On 9 held-out training images they were too low "
        f"by {0.0125:.3f} on average, which is taken off. Margins: 0.080 in 80 % of images and 0.090 in 90 % of images; "
        "they take 4 and 9 training images."
    )
    few = ExpectedIoU(IoU(0.0, 0.0), np.full(2, 0.1), np.ones(2))
    assert few.explain() == (
        "Expected object IoU: from the probabilities of an image's pixels. On 2 held-out training images no correction of "
        "them is certain enough to be made. Margins: unknown for 80 % of images and unknown for 90 % of images; they take "
        "4 and 9 training images."
    )


@pytest.mark.parametrize("groups", [None, np.array([0, 1, 0])])
def test_arrays_restore_it_and_have_the_shapes_told(groups):
    found = ExpectedIoU(IoU(0.25, 0.125), np.array([0.1, 0.2, 0.3]), np.array([1.0, 0.5]), groups)
    arrays = found.to_arrays()
    assert {name: array.shape for name, array in arrays.items()} == found.state_shapes(2)
    again = ExpectedIoU.from_arrays(arrays | {"other": np.zeros(1)})
    assert again.bias == (0.25, 0.125)
    np.testing.assert_array_equal(again.errors, found.errors)
    np.testing.assert_array_equal(again.presence, found.presence)
    np.testing.assert_array_equal(again.groups, found.groups)


def test_two_values_are_enough_for_a_mean():
    """The mean 0.3 has the variance 0.02 / 2."""
    assert shrunken_mean(np.array([0.2, 0.4])) == pytest.approx(0.3 - 0.01 / 0.3)
    assert shrunken_mean(np.array([-0.2, -0.4])) == pytest.approx(-0.3 + 0.01 / 0.3)
    assert shrunken_mean(np.array([])) == 0
