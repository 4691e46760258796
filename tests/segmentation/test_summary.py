"""The summary of a training, and how it is stored."""

import json

from segkit.segmentation.summary import HeldOutScores, TrainingSummary

SUMMARY = {
    "n_images": 3,
    "n_channels": 9,
    "kept_channels": {"a": 2},
    "kernels": [],
    "training_iou": [0.5, 0.75],
    "training_mean_iou": 0.625,
    "training_set_sha256": "0",
    "n_training_pixels": 5,
    "criterion": "mmd",
    "selector": "MMDSelector",
    "threshold": 0.25,
    "threshold_rule": "zero",
    "otsu_weight": 0.5,
    "least_areas": [],
    "peaks": [0.5, 1.0],
    "annotated": 1.0,
    "n_banks": 1,
}


def test_what_is_stored_comes_back():
    scores = HeldOutScores(
        "blocks", 4, 0.5, [0.4, 0.6], {"0.1": 0.5}, 0.1, [{"image": None}], object_iou=0.25
    )
    summary = TrainingSummary(**SUMMARY, penalty=0.1, held_out=scores, seconds={"train": 2.0})
    stored = json.loads(json.dumps(summary.to_dict()))
    assert stored["lambda"] == 0.1
    assert "penalty" not in stored
    assert TrainingSummary.from_dict(stored | {"of a later segkit": 1}) == summary


def test_summaries_share_no_lists():
    first, second = (HeldOutScores("images", 1, 0.5) for _ in range(2))
    first.scores.append({})
    assert second.scores == []
