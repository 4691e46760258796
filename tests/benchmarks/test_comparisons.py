import numpy as np
import pytest

from benchmarks.comparisons import gap_of, headline, shared_by, sixteen
from benchmarks.segmentation import score_of, scores_of

# Pixels by truth and prediction: IoU 0.5 and 0.5, 1 and 1, 0.6 and 1/3.
HALF, ALL, SOME = [2, 1, 1, 2], [3, 0, 0, 3], [3, 1, 1, 1]


def row(name, method, seed, images, n_train=1):
    where = {"set": name, "method": method, "n_train": n_train, "seed": seed}
    return {"what": "segmentation", "where": where, "figures": {"images": images}}


def test_scores_follow_from_the_pixels():
    mean, iou, dice = score_of(SOME)
    assert mean == pytest.approx((3 / 5 + 1 / 3) / 2)
    assert iou == pytest.approx([3 / 5, 1 / 3])
    assert dice == pytest.approx([6 / 8, 2 / 4])
    three = score_of(np.diag([1, 2, 3]).ravel())
    assert three[0] == 1
    assert score_of([4, 0, 0, 0])[0] == 1  # no object, and none found: its IoU is undefined


def test_a_gap_is_over_the_runs_of_both_and_sets_count_alike():
    rows = [
        *(row("drive", "a", seed, {"x": ALL, "y": ALL}) for seed in (0, 1, 2)),
        *(row("drive", "b", seed, {"x": HALF, "y": HALF}) for seed in (1, 2, 3)),
        row("isbi2012_em", "a", 0, {"z": ALL}),
        row("isbi2012_em", "b", 0, {"z": ALL}),
        row("kvasir_seg_256", "a", 0, {"z": ALL}),
    ]
    gap = gap_of(scores_of(rows), "a", "b", 1)
    assert gap.found.difference == pytest.approx(0.25)
    assert gap.splits == "drive (2), isbi2012_em (1)"
    assert str(gap) == "+0.250 (+0.250 to +0.250), images only on 1 of 2 sets"
    assert str(gap_of(scores_of(rows), "b", "b", 1)).endswith("may be chance")
    assert gap_of(scores_of(rows), "a", "c", 1) is None


def test_runs_that_not_all_methods_have_are_left_out():
    scores = {"s": {("a", 1): {(0, "x"): 0.5, (1, "x"): 0.6}, ("b", 1): {(1, "x"): 0.1, (2, "x"): 0.2}}}
    assert shared_by(scores, ("a", "b"), 1) == {"s": {("a", 1): {(1, "x"): 0.6}, ("b", 1): {(1, "x"): 0.1}}}
    assert shared_by(scores, ("a", "c"), 1) == {}


def test_a_row_of_the_table_of_sets_compares_the_splits_of_all_its_methods():
    rows = []
    for name in ("drive", "monuseg", "busi"):
        for n_train in (1, 5):
            for method, image in (("segkit-no-networks", ALL), ("segkit-networks", ALL), ("forest", HALF)):
                rows.append(row(name, method, 0, {"x": image}, n_train))
            rows.append(row(name, "forest", 1, {"x": ALL}, n_train))
    lines = sixteen(rows).splitlines()
    [line] = [line for line in lines[: len(lines) // 2] if "busi" in line]
    assert line.startswith("| busi: breast tumours, ultrasound<br>external, 1 | +0.500<br>")
    assert line.endswith("| 0.500<br>(0.500\u00a0to\u00a00.500)<br>images only |")
    assert sum("mean of 1 sets" in line for line in lines) == 6


def test_the_headline_names_sets_and_splits_of_all_four():
    methods = ("segkit-paper", "segkit-networks", "segkit-no-networks", "forest")
    rows = [row("drive", method, seed, {"x": HALF, "y": ALL}) for method in methods for seed in (0, 1)]
    rows.append(row("isbi2012_em", "forest", 0, {"x": HALF}))
    [line] = headline(rows).splitlines()[2:]
    assert line.startswith("| 1 | pixel forest: drive (2) | +0.000<br>")
