"""The summary of a training, and how it is stored."""

import json

from segkit.segmentation.summary import HeldOutScores, TrainingSummary

LEAST = {
    "n_images": 3,
    "n_channels": 9,
    "kept_channels": {"a": 2},
    "kernels": [],
    "training_iou": [0.5, 0.75],
    "training_mean_iou": 0.625,
    "training_set_sha256": "0",
}


def test_of_an_earlier_format_the_rest_is_as_it_was_then():
    found = TrainingSummary.from_dict(LEAST | {"of a later format": 1})
    assert found == TrainingSummary(**LEAST)
    assert found.to_dict() == LEAST | {
        "n_training_pixels": None,
        "criterion": "mmd",
        "selector": "ConditionalCovarianceSelector",
        "lambda": None,
        "threshold": 0,
        "threshold_rule": "zero",
        "otsu_weight": 0,
        "least_areas": [],
        "held_out": None,
        "peaks": None,
        "annotated": 1,
        "n_banks": 1,
        "n_parts": 1,
        "seconds": {},
    }
    scores = HeldOutScores.from_dict({"regions": "images", "n_regions": 2, "mean_iou": 0.5, "other": 1})
    assert scores == HeldOutScores("images", 2, 0.5)
    assert (scores.interval, scores.usual, scores.by_lambda, scores.scores) == (None, None, {}, [])
    assert scores.object_iou is scores.object_dice is scores.by_bank is None


def test_what_is_stored_comes_back():
    scores = HeldOutScores(
        "blocks", 4, 0.5, [0.4, 0.6], {"0.1": 0.5}, 0.1, [{"image": None}], object_iou=0.25
    )
    summary = TrainingSummary(**LEAST, penalty=0.1, held_out=scores, peaks=[0.5, 1.0], seconds={"train": 2.0})
    stored = json.loads(json.dumps(summary.to_dict()))
    assert stored["lambda"] == 0.1
    assert "penalty" not in stored
    assert TrainingSummary.from_dict(stored) == summary


def test_summaries_share_no_lists():
    first, second = (HeldOutScores("images", 1, 0.5) for _ in range(2))
    first.scores.append({})
    assert second.scores == []
