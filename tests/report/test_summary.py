import numpy as np
import pytest

from segkit.evaluation.metrics import dice_of, iou_of, precision_of, recall_of, score_masks
from segkit.evaluation.statistics import bootstrap_interval, compare
from segkit.report.summary import (
    _holm,
    average_seeds,
    best_single_class,
    compare_methods,
    headline_size,
    signed,
    statements,
    summarise,
)


@pytest.fixture(scope="module", autouse=True)
def _quick(few_resamples):
    with few_resamples():
        yield


def record(method="a", image="x", seed=0, n_train=5, counts=((8, 2), (0, 10)), **more):
    counts = np.array(counts)
    scores = {"iou": iou_of, "dice": dice_of, "precision": precision_of, "recall": recall_of}
    listed = {
        name: [None if np.isnan(value) else float(value) for value in score(counts)]
        for name, score in scores.items()
    }
    return {
        "method": method,
        "image": image,
        "seed": seed,
        "n_train": n_train,
        "group": None,
        "confusion": counts.tolist(),
        "mean_iou": float(np.nanmean(iou_of(counts))),
        "boundary_f": [0.5, 0.25],
        "brier": None,
        "reliability": None,
        **listed,
        **more,
    }


def make(records, **more):
    methods = dict.fromkeys(record["method"] for record in records)
    return {
        "name": "cells",
        "label_map": {"values": [0, 255], "names": ["background", "cell"], "unlabelled": None},
        "methods": {method: {"title": f"Method {method}"} for method in methods},
        "failures": [],
        "units": [],
        "records": records,
        "pictures": None,
        **more,
    }


def sentence(result):
    findings, caveats = statements(result)
    return " ".join(findings + caveats)


def many(method, scores, **more):
    return [record(method, f"image {index}", mean_iou=score, **more) for index, score in enumerate(scores)]


EMPTY, ONLY_FOUND, ONLY_TRUE = ((20, 0), (0, 0)), ((15, 5), (0, 0)), ((10, 0), (10, 0))


def test_scores_of_one_method():
    (row,) = summarise([record(image="x"), record(image="y", counts=((10, 0), (5, 5)))])
    assert (row.method, row.n_train, row.n_images, row.n_seeds, row.n_records) == ("a", 5, 2, 1, 2)
    assert row.iou == pytest.approx([(8 / 10 + 10 / 15) / 2, (10 / 12 + 5 / 10) / 2])
    assert row.micro_iou == pytest.approx([18 / 25, 15 / 22])
    assert row.dice == pytest.approx([(16 / 18 + 20 / 25) / 2, (20 / 22 + 10 / 15) / 2])
    assert row.precision == pytest.approx([(1 + 10 / 15) / 2, (10 / 12 + 1) / 2])
    assert row.recall == pytest.approx([(0.8 + 1) / 2, (1 + 0.5) / 2])
    assert row.boundary_f == [0.5, 0.25]
    assert row.mean_iou == pytest.approx(np.mean(row.iou))
    assert np.isnan([row.brier, row.calibration_error]).all()
    assert row.reliability == {}


def test_empty_classes_are_counted_and_left_out():
    records = [
        record(image=str(index), counts=counts)
        for index, counts in enumerate([EMPTY, ONLY_FOUND, ONLY_TRUE, ONLY_TRUE, ((8, 2), (0, 10))])
    ]
    (row,) = summarise(records)
    assert (row.n_undefined, row.n_false, row.n_missed) == ([0, 1], [0, 1], [0, 2])
    assert row.iou[1] == pytest.approx((10 / 12) / 4)
    assert row.present_iou[1] == pytest.approx((10 / 12) / 3)
    (row,) = summarise(records[:1])
    of_class = (row.iou, row.present_iou, row.micro_iou, row.precision, row.recall)
    assert np.isnan([scores[1] for scores in of_class]).all()


THREE = {
    "a": ((8, 0, 2), (0, 10, 0), (0, 5, 15)),
    "b": ((20, 0, 0), (0, 0, 0), (0, 10, 10)),
    "empty": ((20, 0, 0), (0, 0, 0), (0, 0, 0)),
}


def object_means(score, counts):
    """By a plain loop: mean over classes 1.. where defined, None where none is."""
    values = [value for value in score(np.array(counts))[1:] if not np.isnan(value)]
    return sum(values) / len(values) if values else None


def test_object_scores_leave_out_the_background_and_what_is_undefined():
    records = [record(image=name, counts=counts, boundary_f=[None] * 3) for name, counts in THREE.items()]
    (row,) = summarise(records)
    for mean, interval, score in (
        (row.object_iou, row.object_iou_interval, iou_of),
        (row.object_dice, row.object_dice_interval, dice_of),
    ):
        known = [object_means(score, THREE[name]) for name in ("a", "b")]
        assert mean == pytest.approx(np.mean(known))
        assert interval == pytest.approx(bootstrap_interval(known))
    averaged = average_seeds(records)
    expected = [object_means(iou_of, counts) or np.nan for counts in THREE.values()]
    assert averaged["object_iou"].tolist() == pytest.approx(expected, nan_ok=True)
    assert averaged["object_dice"][0] == pytest.approx(object_means(dice_of, THREE["a"]))
    (row,) = summarise(records[2:])
    assert np.isnan([row.object_iou, row.object_dice]).all()
    assert row.object_iou_interval is row.object_dice_interval is None
    assert "object" not in sentence(make(records[2:], label_map={"names": ["sky", "cell", "edge"]}))


def splits(rng):
    """Three splits that test on six of twelve images each."""
    tested = [(seed, image) for seed in range(3) for image in rng.permutation(12)[:6].tolist()]
    records = [record("a", f"image {image}", seed, mean_iou=rng.random()) for seed, image in tested]
    return records, *np.array(tested).T


def test_object_intervals_are_over_splits_and_images_that_have_a_score(rng):
    records, seeds, images = splits(rng)
    records = [entry | {"iou": [0.9, entry["mean_iou"]]} for entry in records]
    records[4]["iou"] = [0.9, None]
    kept = np.arange(18) != 4
    scores = np.array([entry["mean_iou"] for entry in records])[kept]
    (row,) = summarise(records)
    assert row.object_iou_interval == pytest.approx(
        bootstrap_interval(scores, first_seen(images)[kept], seeds[kept])
    )


def first_seen(names):
    """Number names in the order in which they first occur, as records are."""
    order = list(dict.fromkeys(names.tolist()))
    return np.array([order.index(name) for name in names])


def test_intervals_are_over_splits_and_images(rng):
    records, seeds, images = splits(rng)
    scores = [entry["mean_iou"] for entry in records]
    (row,) = summarise(records)
    assert row.mean_iou_interval == pytest.approx(bootstrap_interval(scores, first_seen(images), seeds))
    assert row.mean_iou_interval != pytest.approx(bootstrap_interval(scores, first_seen(images)))
    assert (row.n_images, row.n_seeds, row.n_records) == (len(set(images.tolist())), 3, 18)


def test_intervals_resample_groups(rng):
    scores = rng.random(12)
    records = [entry | {"group": f"patient {index % 4}"} for index, entry in enumerate(many("a", scores))]
    assert summarise(records)[0].mean_iou_interval == pytest.approx(
        bootstrap_interval(scores, np.arange(12) % 4)
    )
    alike = [entry | {"group": "all"} for entry in records]
    assert summarise(alike)[0].mean_iou_interval == pytest.approx((scores.mean(), scores.mean()))


def test_a_group_is_not_taken_for_an_image_of_the_same_name():
    records = many("a", [0.2, 0.4, 0.9])
    records[0] = records[0] | {"group": "image 1"}
    assert summarise(records)[0].mean_iou_interval == pytest.approx(bootstrap_interval([0.2, 0.4, 0.9]))


def test_rows_follow_methods_then_sizes():
    records = [record(method, n_train=size) for size in (15, 1, 5) for method in "ba"]
    assert [(row.method, row.n_train) for row in summarise(records)] == [
        (method, size) for method in "ba" for size in (1, 5, 15)
    ]


def test_calibration_error_is_the_mean_distance_over_pixels():
    one = {"count": [8.0, 2.0], "probability": [2.0, 1.8], "hits": [4.0, 1.0]}
    two = {"count": [0.0, 10.0], "probability": [0.0, 9.0], "hits": [0.0, 9.0]}
    records = [record(reliability=one, brier=0.1), record(image="y", reliability=two, brier=0.3)]
    (row,) = summarise(records)
    assert row.calibration_error == pytest.approx((2 + 0.8) / 20)
    assert row.brier == pytest.approx(0.2)
    assert row.reliability["count"].tolist() == [8, 12]


def test_average_seeds_is_a_mean_over_splits(result):
    averaged = {
        (scores.method, scores.n_train, scores.image): scores
        for scores in average_seeds(result["records"]).itertuples()
    }
    key = ("fcn", 5, "case-08")  # the image without foreground
    run = [entry for entry in result["records"] if (entry["method"], entry["n_train"], entry["image"]) == key]
    found = [entry["iou"][1] for entry in run if entry["iou"][1] is not None]
    assert averaged[key].n_seeds == len(run)
    assert averaged[key].mean_iou == pytest.approx(np.mean([entry["mean_iou"] for entry in run]))
    assert averaged[key].iou[1] == pytest.approx(np.mean(found) if found else np.nan, nan_ok=True)


def test_comparisons_pair_what_both_methods_have(rng):
    first, second = rng.random(12), rng.random(12)
    records = many("a", first) + many("b", second[:11]) + [record("b", "elsewhere", mean_iou=1.0)]
    (pair,) = compare_methods(records + many("a", second, n_train=1), 5)
    assert (pair.first, pair.second, pair.n_images) == ("a", "b", 11)
    assert pair.comparison == compare(first[:11], second[:11])
    assert not pair.comparison.too_few
    assert pair.p_adjusted == pair.comparison.p_value


def test_comparisons_are_over_splits_too(rng):
    first, seeds, images = splits(rng)
    second = [entry | {"method": "b", "mean_iou": rng.random()} for entry in first]
    (pair,) = compare_methods(first + second, 5)
    scores = ([entry["mean_iou"] for entry in run] for run in (first, second))
    assert pair.comparison == compare(*scores, first_seen(images), seeds)
    assert pair.comparison.n_seeds == (3,)


def test_comparisons_count_groups_and_pair_splits():
    records = [
        entry | {"group": str(index % 4)}
        for method, score in (("a", 0.5), ("b", 0.4))
        for seed in range(2)
        for index, entry in enumerate(many(method, [score] * 12, seed=seed))
    ]
    (pair,) = compare_methods(records, 5)
    assert (pair.n_images, pair.comparison.n_images, pair.comparison.too_few) == (12, 4, True)
    assert compare_methods([record("a", seed=0), record("b", seed=1)], 5) == []


def test_holm():
    assert _holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert _holm([0.9, 0.8]) == [1.0, 1.0]
    assert _holm([]) == []


def test_the_best_map_of_one_class_is_scored_as_any_other(rng):
    """Classes that are not there have no score; an image counts once for each split, whatever the methods."""
    truths = rng.integers(0, 3, (4, 6, 7))
    truths[0][truths[0] == 2] = 0
    truths[1] = 1
    confusions = [
        np.stack([np.bincount(rng.integers(0, 3, (truth == k).sum()), minlength=3) for k in range(3)])
        for truth in truths
    ]
    records = [record("a", f"image {index}", 0, counts=counts) for index, counts in enumerate(confusions)]
    records += [entry | {"method": "b"} for entry in records[:2]] + [records[3] | {"seed": 1}]
    tested = [0, 1, 2, 3, 3]
    expected = [
        score_masks([truths[index] for index in tested], [np.full((6, 7), k)] * 5, 3).mean for k in range(3)
    ]
    assert best_single_class(records) == (np.argmax(expected), pytest.approx(max(expected)))


def test_headline_is_the_size_of_the_pictures():
    records = [record("a", n_train=1), record("b", n_train=1), record("a", n_train=15)]
    assert headline_size(make(records)) == 1
    assert headline_size(make(records[:1] + records[2:])) == 15
    assert headline_size(make(records, pictures={"n_train": 15, "seed": 0})) == 15
    assert headline_size(make(records, pictures={"n_train": 3, "seed": 0})) == 1


def test_sentence_of_a_clear_lead():
    records = many("a", [0.5, 0.7] * 6) + many("b", [0.7, 0.9] * 6)
    assert sentence(make(records)) == (
        "Trained on 5 annotated images, Method b reaches object IoU 0.833 (95 % interval 0.833 to 0.833), "
        "object Dice 0.909 (0.909 to 0.909) and mean IoU 0.800 (0.750 to 0.850) "
        "on 12 test images of cells. Its mean IoU is 0.200 above the runner-up's, Method a "
        "(95 % interval of the difference +0.200 to +0.200). "
        "Calling every pixel background would give a mean IoU of 0.250. "
        "1 split: intervals are over test images only, for this draw of annotated images."
    )


def test_sentences_of_several_splits_speak_of_splits():
    runs = [
        many(method, scores, seed=seed)
        for method, scores in (("a", [0.5, 0.72] * 6), ("b", [0.6, 0.6] * 6))
        for seed in range(2)
    ]
    text = sentence(make([entry for run in runs for entry in run]))
    assert "so the two cannot be told apart on these images and splits." in text
    assert "1 split" not in text


def test_sentence_says_what_cannot_be_told_apart():
    text = sentence(make(many("a", [0.5, 0.72] * 6) + many("b", [0.6, 0.6] * 6)))
    assert "differs by +0.010 from the runner-up's, Method b (95 % interval of the difference −0.0" in text
    assert "the interval includes zero, so the two cannot be told apart on these images." in text


def test_sentence_does_not_rank_on_few_images():
    few = make(many("a", [0.9] * 9) + many("b", [0.1] * 9))
    assert "9 test images are too few to rank methods." in sentence(few)
    grouped = make([entry | {"group": entry["image"][-1:] in "02468"} for entry in few["records"]])
    assert "2 groups are too few to rank methods." in sentence(grouped)


def test_sentence_of_one_method_alone():
    records = many("a", [0.5] * 3, n_train=0, seed=0)
    assert sentence(make(records)).startswith(
        "Scores of Method a on 3 test images of cells: object IoU 0.833 (95 % interval 0.833 to 0.833), "
        "object Dice 0.909 (0.909 to 0.909) and mean IoU 0.500 (0.500 to 0.500). "
        "The estimate is not firm: 3 images, fewer than 10."
    )
    pages = [entry | {"group": "stack"} for entry in many("a", [0.5] * 12)]
    assert "The estimate is not firm: 1 group, fewer than 10." in sentence(make(pages))


def test_sentence_tells_budget_failures_and_empty_classes():
    records = many("a", [0.6] * 10) + many("b", [0.5] * 10)
    records[0] = record("a", "image 0", counts=EMPTY)
    unit = {"method": "b", "n_train": 5, "budget_limited": True}
    failures = [
        {"method": "c", "n_train": 5, "seed": 0, "error": "no"},
        {"method": "c", "n_train": 1, "seed": 0, "error": "no"},
    ]
    text = sentence(make(records, units=[unit, unit | {"n_train": 1, "method": "a"}], failures=failures))
    assert "Training of Method b was cut short by its budget: more steps may change this result." in text
    assert "1 run failed and is missing here." in text
    assert text.endswith(
        "A class has no score in an image where neither truth nor prediction shows it (cell in 1 of 10 predictions)."
    )


def test_sentence_without_any_run():
    failures = [{"method": "a", "n_train": 1, "seed": seed, "error": "no"} for seed in range(2)]
    assert (
        sentence(make([], failures=failures))
        == "No run finished, so there is nothing to report (2 runs failed)."
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0.0216, "+0.022"), (-0.0216, "−0.022"), (0.0001, "0.000"), (-0.0001, "0.000")]
)
def test_signed(value, text):
    assert signed(value) == text
