import pytest

from segkit.images import LabelMap
from segkit.segmentation.explain import expected_iou, explain_training

LABELS = LabelMap((0, 255), ("background", "lesion"), None)
IMAGES = {"regions": "images", "n_regions": 5, "mean_iou": 0.71, "interval": [0.6, 0.8], "usual": 1e-3}


def kernel(name, weight, gamma=None):
    return {"kind": name.split()[0], "name": name, "gamma": gamma, "weight": weight, "score": weight}


def summary(**changes):
    return {
        "selector": "MMDSelector",
        "criterion": "mmd_squared",
        "n_images": 5,
        "n_channels": 90,
        "kept_channels": {"a": 3, "b": 7},
        "kernels": [kernel("linear a", 0.25), kernel("linear b", 0.5), kernel("gaussian gamma=1", 0.25, 1.0)],
        "lambda": 1e-3,
        "threshold": -0.25,
        "threshold_rule": "quantile",
        "held_out": IMAGES | {"by_lambda": {"0.01": 0.7, "0.001": 0.71}},
    } | changes


def test_channels_kernels_penalty_threshold_and_score_are_told():
    channels, kernels, penalty, threshold, expected = explain_training(summary(), LABELS)
    assert channels == (
        "Channels: 10 of 90 were kept, those that tell the classes apart from image to image. Most come from b (7), a (3)."
    )
    assert kernels.startswith(
        "Kernels: 75 % of the weight is on kernels that are linear in the channels, most of it on b (50 %), a (25 %); "
        "the rest is on Gaussians of some of them, most of it on gaussian gamma=1 (25 %)."
    )
    assert "pairs of pixels of different images" in kernels
    assert penalty == (
        "Penalty: lambda = 0.001, of those tried the nearest to what is usual for 5 images: none does better beyond chance "
        "(mean IoU on each image, held out in turn: 0.01: 0.700, 0.001: 0.710)."
    )
    assert "-0.25 in units of the margin, so more is called lesion" in threshold
    assert "of each of the held-out images, as much is called lesion as is annotated so" in threshold
    assert (
        "0.710 (95 % interval 0.600 to 0.800), from 5 training images, each judged by classifiers that had not seen it."
        in expected
    )


def test_of_several_banks_the_chosen_one_is_told():
    banks = [
        {"bank": "a + b", "mean_iou": 0.7, "chosen": False},
        {"bank": "c", "mean_iou": 0.71, "chosen": True},
    ]
    held_out = summary()["held_out"] | {"by_bank": banks}
    lines = explain_training(summary(held_out=held_out, n_banks=2), LABELS)
    assert lines[0] == (
        "Bank: c (bank 2 of 2), for its mean IoU over held-out images is the highest: 0.710, against 0.700 of bank 1, a + b."
    )
    assert lines[-1].endswith("that had not seen it; the best of 2 banks, so a little too high.")
    assert explain_training(summary(held_out=held_out), LABELS)[0].startswith("Channels")


@pytest.mark.parametrize("held_out", [IMAGES | {"regions": "blocks", "by_lambda": {"0.001": 0.71}}, None])
def test_without_two_images_nothing_told_the_banks_apart(held_out):
    told = explain_training(summary(held_out=held_out, n_banks=3), LABELS)[0]
    assert told.startswith("Bank: the first of 3: there are no two images to hold out")


@pytest.mark.parametrize(
    ("chosen", "changes", "expected"),
    [
        (
            1e-3,
            {"n_regions": 1, "by_lambda": {"0.01": 0.7, "0.001": 0.71}},
            "lambda = 0.001, of those tried the nearest to what is usual for 5 images: what a single held-out image says "
            "may be chance (mean IoU on each image, held out in turn: 0.01: 0.700, 0.001: 0.710).",
        ),
        (
            1 / 300,
            {"usual": 1 / 300, "by_lambda": {"0.0333333": 0.7, "0.00333333": 0.71}},
            "lambda = 0.00333333, of those tried the nearest to what is usual for 5 images: none does better beyond chance "
            "(mean IoU on each image, held out in turn: 0.0333333: 0.700, 0.00333333: 0.710).",
        ),
        (
            0.01,
            {"by_lambda": {"0.1": 0.72, "0.01": 0.71, "0.001": 0.6}},
            "lambda = 0.01, because 0.001, of those tried the nearest to what is usual for 5 images, does worse than the "
            "best beyond chance; of those that do not, it is the nearest to that (mean IoU on each image, held out in "
            "turn: 0.1: 0.720, 0.01: 0.710, 0.001: 0.600).",
        ),
        (0.01, {"usual": 0.01, "by_lambda": {"0.01": 0.7}}, "lambda = 0.01, as given."),
    ],
)
def test_penalty_is_told(chosen, changes, expected):
    told = explain_training(summary(held_out=IMAGES | changes, **{"lambda": chosen}), LABELS)[2]
    assert told == f"Penalty: {expected}"


def test_small_regions_are_told():
    lines = explain_training(summary(least_areas=[[0.3, 0.0], [12.4, 7.0]]), LABELS)
    assert lines[-2].startswith(
        "Small regions: those of less than 13 px of lesion are given to the class around"
    )
    assert len(explain_training(summary(least_areas=[[0.0, 3.0], [1.0, 0.0]]), LABELS)) == 5
    lines = explain_training(summary(least_areas=[[0.0, 0.0], [12.4, 7.0]], held_out=None), LABELS)
    assert lines[-1].startswith("Small regions")


def test_recipe_of_the_paper():
    lines = explain_training(
        summary(
            selector="ConditionalCovarianceSelector",
            criterion="mmd",
            kernels=[kernel("gaussian gamma=1", 0.75, 1.0), kernel("gaussian gamma=2", 0.25, 2.0)],
            threshold=0.0,
            **{"lambda": None},
        ),
        LABELS,
    )
    assert len(lines) == 3
    assert "those that together predict the class best" in lines[0]
    assert lines[1] == (
        "Kernels: the weight is on kernels of all channels, most of it on gaussian gamma=1 (75 %), gaussian gamma=2 (25 %). "
        "Weights follow the discrepancy (MMD) between the classes."
    )


def test_kernels_without_gamma_need_not_be_linear():
    kernels = explain_training(summary(kernels=[kernel("laplacian gamma=1", 1.0)]), LABELS)[1]
    assert "linear" not in kernels


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


def test_what_an_image_adds_to_the_threshold_is_told():
    lines = explain_training(summary(otsu_weight=2 / 7), LABELS)
    assert any("Each image moves it 29 % of the way" in line for line in lines)
    lines = explain_training(summary(threshold=0.0, otsu_weight=2 / 7), LABELS)
    assert any("as much is called lesion as by the sign" in line for line in lines)


def test_threshold_of_the_highest_iou():
    lines = explain_training(summary(threshold=0.1, threshold_rule="iou"), LABELS)
    assert "so less is called lesion" in lines[3]
    assert "held-out IoU is higher there" in lines[3]


def test_what_could_not_be_held_out_is_said():
    lines = explain_training(summary(held_out=None), LABELS)
    assert len(lines) == 3
    assert "Annotate one more image" in lines[2]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "0.710 (95 % interval 0.600 to 0.800), from 5 training images, each judged by"),
        (
            {"n_regions": 4},
            "from 4 training images, each judged by classifiers that had not seen it; too few to rely on",
        ),
        (
            {"n_regions": 2},
            "from 2 training images, each judged by classifiers that had not seen it; too few to rely on",
        ),
        (
            {"n_regions": 1, "interval": None},
            "0.710, from 1 training image judged by classifiers that had not seen it; too few",
        ),
        (
            {"regions": "blocks"},
            "less than 0.710, which is what blocks of the one image reached, each held out in turn",
        ),
    ],
)
def test_expected_iou(changes, expected):
    assert expected in expected_iou(summary(held_out=IMAGES | changes))


@pytest.mark.parametrize(
    ("annotated", "expected"),
    [
        (1.0, "0.710 (95 % interval 0.600 to 0.800), from 5 training images, each judged by classifiers"),
        (0.95, "0.710 (95 % interval 0.600 to 0.800), from 5 training images, each judged by classifiers"),
        (
            0.0512,
            "less than 0.710 (95 % interval 0.600 to 0.800), from 5 training images, each judged by classifiers that "
            "had not seen it (only annotated pixels count, 5.1 % of all)",
        ),
    ],
)
def test_scores_of_scribbles_are_said_to_be_theirs(annotated, expected):
    assert expected_iou(summary(annotated=annotated)).startswith(expected)


def test_models_that_do_not_know_how_much_was_annotated_say_nothing_of_it():
    assert "annotated" not in expected_iou(summary())
