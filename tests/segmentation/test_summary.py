"""The summary of a training: how it is stored, and told in sentences."""

import json
from dataclasses import asdict, replace

import pytest

from segkit.images import LabelMap
from segkit.segmentation.summary import (
    HeldOutScores,
    TrainingSummary,
    expected_scores,
    explain_training,
    summarise_training,
)

LABELS = LabelMap({0: "background", 255: "lesion"})


def region(image, mean_iou):
    return {"image": image, "mean_iou": mean_iou, "iou": [0.9, 0.6], "dice": [0.95, 0.75]}


HELD_OUT = HeldOutScores(
    "images",
    5,
    0.71,
    interval=[0.6, 0.8],
    by_alpha={"0.01": 0.7, "0.001": 0.71},
    usual=1e-3,
    scores=[region(index, 0.5 + (index - 3) ** 2 / 100) for index in range(5)],
    object_iou=0.62,
    object_dice=0.75,
    object_iou_interval=[0.5, 0.7],
    object_dice_interval=[0.66, 0.84],
)
BLOCKS = replace(HELD_OUT, regions="blocks", n_regions=4, scores=[region(None, 0.5)] * 4)


def kernel(name, weight, gamma=None):
    return {"kind": name.split()[0], "name": name, "gamma": gamma, "weight": weight, "score": weight}


def summary(**changes):
    options = {
        "n_images": 5,
        "n_channels": 90,
        "kept_channels": {"a": 3, "b": 7},
        "kernels": [kernel("linear a", 0.25), kernel("linear b", 0.5), kernel("gaussian gamma=1", 0.25, 1.0)],
        "training_iou": [0.95, 0.8],
        "training_mean_iou": 0.875,
        "seconds": {"select": 1.4, "train": 2.2},
        "training_set_sha256": "0",
        "selector": "MMDSelector",
        "criterion": "mmd_squared",
        "penalty": 1e-3,
        "threshold": -0.25,
        "threshold_rule": "quantile",
        "held_out": HELD_OUT,
        "n_training_pixels": 400,
        "otsu_weight": 0.0,
        "least_areas": [],
        "peaks": [0.5, 1.0],
        "annotated": 1.0,
        "n_banks": 1,
    }
    return TrainingSummary(**options | changes)


def held_out(**changes):
    return summary(held_out=replace(HELD_OUT, **changes))


def test_three_lines_tell_a_training():
    learnt, expected, following = summarise_training(summary(), LABELS, ["p1", "p2", "p3", "p4", "p5"])
    assert learnt == "Learnt background and lesion from 5 images, every pixel annotated, in 4 s."
    assert expected == (
        "On other images expect object IoU 0.62 (95 % interval 0.50 to 0.70), Dice 0.75 (95 % interval 0.66 to 0.84), "
        "mean IoU over classes 0.71 (95 % interval 0.60 to 0.80) "
        "(measured on the 5 training images, each held out in turn)."
    )
    assert following == (
        "Next: annotate another image like p4: held out, it did worst, with a mean IoU of 0.50."
    )


def test_models_from_files_do_not_know_how_long_they_took():
    assert "every pixel annotated." in summarise_training(summary(seconds={}), LABELS)[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"annotated": 0.031}, "3.1 % of the pixels annotated"),
        ({"annotated": 1e-5}, "0.1 % of the pixels annotated"),
        ({"n_images": 1}, "from 1 image, "),
    ],
)
def test_what_was_learnt_from(changes, expected):
    assert expected in summarise_training(summary(**changes), LABELS)[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (held_out(n_regions=4), "(measured on 4 images only, too few to rely on)"),
        (held_out(n_regions=1), "(measured on 1 image only, too few to rely on)"),
        (held_out(n_groups=2), "(measured on 2 groups of images only, too few to rely on)"),
        (held_out(n_groups=1), "(measured on 1 group of images only, too few to rely on)"),
        (held_out(n_regions=9, n_groups=5), "on the 9 training images, one of 5 groups held out in turn)"),
        (held_out(interval=None), "mean IoU over classes 0.71 (measured on"),
        (held_out(by_bank=[{}, {}]), "the best of 2 banks, so a little too high)"),
        (
            summary(annotated=0.7),
            "(only annotated pixels count, 70 % of all; the others are probably harder;",
        ),
        (
            summary(n_images=1, held_out=BLOCKS),
            "is unknown: with one image, only parts of it could be held out",
        ),
        (summary(n_images=1, held_out=BLOCKS), "(other images will probably do worse)"),
        (summary(held_out=None), "is unknown: nothing could be held out"),
        # no object was held out
        (
            held_out(object_iou=None),
            "expect mean IoU over classes 0.71 (95 % interval 0.60 to 0.80) (measured",
        ),
    ],
)
def test_what_to_expect_and_how_sure_that_is(given, expected):
    assert expected in expected_scores(given)


def test_strokes_do_not_tell_what_to_expect():
    """Held-out strokes reached 1.000 where whole images reached 0.84."""
    assert expected_scores(summary(annotated=0.02)) == (
        "How well it will do on other images is unknown: strokes on 2 % of the pixels do not tell, for they leave out what "
        "is hard. To know, annotate every pixel of a few further images, and compare by segkit evaluate."
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (summary(n_images=1, held_out=BLOCKS), "Next: annotate a second image, as unlike this one as"),
        (summary(n_images=2, held_out=None), "Next: annotate one more image that shows every class"),
        (held_out(scores=[region(1, 0.4)]), "Next: annotate one more image that shows every class"),
        (held_out(scores=[]), "Next: annotate one more image that shows every class"),
    ],
)
def test_what_to_annotate_where_images_cannot_be_compared(given, expected):
    assert summarise_training(given, LABELS)[2].startswith(expected)


def test_choices_are_explained():
    channels, kernels, penalty, threshold, training = explain_training(summary(), LABELS)
    assert channels == (
        "Channels: 10 of 90 kept. They differ most between the classes, consistently from image to image. "
        "Most are from b (7), a (3)."
    )
    assert kernels == (
        "Kernels: 75 % of the weight on linear kernels, most on b (50 %), a (25 %); the rest on Gaussian kernels, most on "
        "gaussian gamma=1 (25 %). The weights follow the squared discrepancy (MMD) between the classes, over pairs of "
        "pixels of different images."
    )
    assert penalty == (
        "Penalty: lambda = 0.001, the usual one for 5 images. No other is significantly better. Mean IoU by penalty, each "
        "image held out in turn: 0.01: 0.700, 0.001: 0.710."
    )
    assert threshold == (
        "Threshold: -0.25 in units of the margin, so more is called lesion than by the sign of the decision. There, on "
        "average over held-out images, as many pixels are called lesion as are annotated so."
    )
    assert training.startswith(
        "On the training pixels: mean IoU 0.875 (background 0.950, lesion 0.800). Training"
    )


def test_the_chosen_of_several_banks_is_explained():
    banks = [
        {"bank": "a + b", "mean_iou": 0.7, "chosen": False},
        {"bank": "c", "mean_iou": 0.71, "chosen": True},
    ]
    scores = replace(HELD_OUT, by_bank=banks)
    assert explain_training(summary(held_out=scores, n_banks=2), LABELS)[0] == (
        "Bank: c (bank 2 of 2). Its mean IoU over held-out images is the highest: 0.710, against 0.700 for bank 1, a + b."
    )
    assert explain_training(summary(held_out=scores), LABELS)[0].startswith("Channels")


@pytest.mark.parametrize("scores", [BLOCKS, None])
def test_without_two_images_nothing_told_the_banks_apart(scores):
    told = explain_training(summary(held_out=scores, n_banks=3), LABELS)[0]
    assert told == "Bank: the first of 3. It takes two held-out images to compare them."


@pytest.mark.parametrize(
    ("chosen", "changes", "expected"),
    [
        (
            1e-3,
            {"n_regions": 1},
            "lambda = 0.001, the usual one for 5 images. A single held-out image says too little to change it.",
        ),
        (
            0.01,
            {"by_alpha": {"0.1": 0.72, "0.01": 0.71, "0.001": 0.6}},
            "lambda = 0.01. The usual penalty for 5 images, 0.001, is significantly worse than the best; this is the "
            "closest one that is not. Mean IoU by penalty, each image held out in turn: 0.1: 0.720, 0.01: 0.710, "
            "0.001: 0.600.",
        ),
        (0.01, {"usual": 0.01, "by_alpha": {"0.01": 0.7}}, "lambda = 0.01, as given."),
    ],
)
def test_penalty_is_explained(chosen, changes, expected):
    scores = replace(HELD_OUT, **changes)
    assert explain_training(summary(held_out=scores, penalty=chosen), LABELS)[2].startswith(
        f"Penalty: {expected}"
    )


def test_small_regions_are_explained():
    lines = explain_training(summary(least_areas=[[0.3, 0.0], [12.4, 7.0]]), LABELS)
    assert lines[-3].startswith("Small regions: fewer than 13 pixels of lesion are given to the class around")
    assert lines[-2].startswith(
        "Small regions of background stay, for the masks show some of a pixel or two."
    )
    assert len(explain_training(summary(least_areas=[[0.0, 3.0], [0.0, 0.0]]), LABELS)) == 5
    assert (
        "Small regions of lesion stay" in explain_training(summary(least_areas=[[0, 3], [1, 0]]), LABELS)[-2]
    )
    lines = explain_training(summary(least_areas=[[0.0, 0.0], [12.4, 7.0]], held_out=None), LABELS)
    assert lines[-2].startswith("Small regions")


def test_the_recipe_of_the_paper_is_explained():
    lines = explain_training(
        summary(
            selector="ConditionalCovarianceSelector",
            criterion="mmd",
            kernels=[kernel("gaussian gamma=1", 0.75, 1.0), kernel("gaussian gamma=2", 0.25, 2.0)],
            threshold=0.0,
            penalty=None,
        ),
        LABELS,
    )
    assert len(lines) == 3
    assert "They predict the class best together." in lines[0]
    assert lines[1] == (
        "Kernels: the weight on kernels of all channels, most on gaussian gamma=1 (75 %), gaussian gamma=2 (25 %). "
        "The weights follow the discrepancy (MMD) between the classes."
    )


def test_blocks_of_a_single_image_are_no_images():
    text = " ".join(explain_training(summary(n_images=1, held_out=None), LABELS)[:2])
    assert "from block to block" in text
    assert "pixels of different blocks" in text
    assert "image to image" not in text


def test_a_few_of_many_are_named():
    many = [kernel(f"linear layer{n}", (20 - n) / 1000) for n in range(9)]
    channels, kernels = explain_training(
        summary(kept_channels={f"layer{n}": 20 - n for n in range(9)}, kernels=many), LABELS
    )[:2]
    for text in (channels, kernels):
        assert "layer5 (" in text
        assert "layer6" not in text


def test_threshold_of_the_highest_iou():
    lines = explain_training(summary(threshold=0.1, threshold_rule="iou"), LABELS)
    assert "so less is called lesion" in lines[3]
    assert "The IoU of held-out pixels is highest there." in lines[3]


def test_without_held_out_pixels_nothing_was_adapted():
    lines = explain_training(summary(held_out=None), LABELS)
    assert len(lines) == 4
    assert "penalty, threshold and probabilities are not adapted to the images" in lines[2]


def test_limits_of_what_is_annotated_belong_to_the_better_side():
    assert "unknown: strokes on 49 % of" in expected_scores(summary(annotated=0.49))
    assert "(only annotated pixels count, 50 % of all;" in expected_scores(summary(annotated=0.5))
    assert "(measured on the 5 training images" in expected_scores(summary(annotated=0.9))
    assert "unknown: strokes on 0.1 % of" in expected_scores(summary(annotated=1e-5))
    assert "99 % of the pixels annotated" in summarise_training(summary(annotated=0.99), LABELS)[0]


def test_two_images_are_enough_to_name_the_worst():
    scores = [region(0, 0.6), region(1, 0.4), region(None, 0.1)]
    assert summarise_training(held_out(scores=scores), LABELS, ["a", "b"])[2] == (
        "Next: annotate another image like b: held out, it did worst, with a mean IoU of 0.40."
    )
    assert (
        "another image like training image 1:"
        in summarise_training(held_out(scores=scores[::-2] * 2), LABELS)[2]
    )


def test_three_classes_are_listed_with_commas():
    labels = LabelMap(dict(enumerate("abc")))
    assert summarise_training(summary(), labels)[0].startswith("Learnt a, b and c from 5 images")


def test_of_three_classes_no_threshold_is_explained():
    labels = LabelMap(dict(enumerate("abc")))
    given = summary(otsu_weight=0.5, training_iou=[0.9, 0.8, 0.7], least_areas=[[0, 0], [2, 0], [3.5, 0]])
    lines = explain_training(given, labels)
    assert not any(line.startswith("Threshold") for line in lines)
    assert lines[-2].startswith("Small regions: fewer than 2 pixels of b, 4 pixels of c are given")


def test_threshold_of_strokes_and_of_blocks():
    [line] = [
        one for one in explain_training(summary(threshold=0.0, otsu_weight=0.25), LABELS) if "Otsu" in one
    ]
    assert line == (
        "Threshold: +0.00 in units of the margin, so as much is called lesion as by the sign of the decision. Less than "
        "half of each image is labelled: strokes do not tell how much of it is lesion. Each image moves it 25 % of the way "
        "to Otsu's threshold of its own decisions."
    )
    line = explain_training(summary(threshold=0.5, held_out=BLOCKS), LABELS)[3]
    assert "so less is called lesion than by the sign" in line
    assert line.endswith(
        "on average over held-out blocks, as many pixels are called lesion as are annotated so."
    )


def test_selection_that_leaves_none_out_is_told():
    assert explain_training(summary(n_channels=10), LABELS)[0] == (
        "Channels: 10 of 10 kept. Selection left none out. Most are from b (7), a (3)."
    )


def test_light_kernels_have_less_than_a_percent():
    kernels = [kernel("linear a", 0.004), kernel("linear b", 0.006), kernel("matern gamma=1", 0.99, 1.0)]
    assert explain_training(summary(kernels=kernels, selector="other", criterion="power"), LABELS)[:2] == [
        "Channels: 10 of 90 kept. Most are from b (7), a (3).",
        "Kernels: 1 % of the weight on linear kernels, most on b (1 %), a (less than 1 %); the rest on Gaussian kernels, "
        "most on matern gamma=1 (99 %). The weights follow the power of a test that the classes differ.",
    ]


@pytest.mark.parametrize(("n_images", "regions"), [(1, "blocks"), (2, "images")])
def test_without_held_out_scores_the_number_of_images_tells_the_regions(n_images, regions):
    kernels = explain_training(summary(n_images=n_images, held_out=None), LABELS)[1]
    assert kernels.endswith(f"over pairs of pixels of different {regions}.")


def test_what_is_stored_comes_back():
    scores = HeldOutScores(
        "blocks", 4, 0.5, [0.4, 0.6], {"0.1": 0.5}, 0.1, [{"image": None}], object_iou=0.25
    )
    given = summary(penalty=0.1, held_out=scores)
    stored = json.loads(json.dumps(asdict(given)))
    assert TrainingSummary.from_dict(stored | {"of a later segkit": 1}) == given


def test_summaries_share_no_lists():
    first, second = (HeldOutScores("images", 1, 0.5) for _ in range(2))
    first.scores.append({})
    assert second.scores == []
