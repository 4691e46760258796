import pytest

from segkit.explain import expected_iou, explain_training
from segkit.images import LabelMap

LABELS = LabelMap((0, 255), ("background", "lesion"), None)
IMAGES = {"regions": "images", "n_regions": 5, "mean_iou": 0.71, "interval": [0.6, 0.8]}


def kernel(name, weight, gamma=None):
    return {"name": name, "gamma": gamma, "weight": weight, "score": weight}


def summary(**changes):
    return {
        "selector": "MMDSelector",
        "criterion": "mmd_squared",
        "n_channels": 90,
        "kept_channels": {"a": 3, "b": 7},
        "kernels": [kernel("linear a", 0.25), kernel("linear b", 0.5), kernel("gaussian gamma=1", 0.25, 1.0)],
        "lambda": 1e-3,
        "threshold": -0.25,
        "threshold_rule": "share",
        "held_out": IMAGES | {"by_lambda": {"0.01": 0.7, "0.001": 0.71}},
    } | changes


def test_channels_kernels_penalty_threshold_and_score_are_told():
    channels, kernels, penalty, threshold, expected = explain_training(summary(), LABELS)
    assert channels == (
        "Channels: 10 of 90 were kept, those that tell the classes apart from image to image. Most come from b (7), a (3)."
    )
    assert kernels.startswith(
        "Kernels: 75 % of the weight is on kernels that are linear in the channels, most of it on b (50 %), a (25 %); "
        "25 % on Gaussians of the channels that have a value at each pixel, most of it on gaussian gamma=1 (25 %)."
    )
    assert "pairs of pixels of different images" in kernels
    assert "lambda = 0.001" in penalty
    assert "(0.01: 0.700, 0.001: 0.710)" in penalty
    assert "-0.25 in units of the margin, so more is called lesion" in threshold
    assert "in the mean over held-out images as much is then called lesion as is annotated so" in threshold
    assert "0.710 (95 % interval 0.600 to 0.800), from 5 training images held out in turn." in expected


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
        "Kernels: 100 % on bandwidths, most of it on gaussian gamma=1 (75 %), gaussian gamma=2 (25 %). "
        "Weights follow the discrepancy (MMD) between the classes."
    )


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
        ({}, "0.710 (95 % interval 0.600 to 0.800), from 5 training images held out in turn"),
        ({"n_regions": 2}, "from 2 training images held out in turn; too few to rely on"),
        ({"n_regions": 1, "interval": None}, "0.710, from 1 training image held out in turn; too few"),
        (
            {"regions": "blocks"},
            "0.710, from blocks of the one image held out in turn; other images may differ more",
        ),
    ],
)
def test_expected_iou(changes, expected):
    assert expected in expected_iou(IMAGES | changes)
