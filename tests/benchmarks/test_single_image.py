import numpy as np
import pytest

from benchmarks.single_image import AS_IT_IS, WAYS, by_cluster, lowered, single_image, surest


def test_the_threshold_falls_until_the_share_is_reached():
    decisions = np.linspace(-1, 1, 101).astype(np.float32)
    assert np.mean(decisions > lowered(decisions, 0.9, 0.2)) == pytest.approx(0.2, abs=0.01)
    assert lowered(decisions, -0.5, 0.2) == -0.5


def test_sure_pixels_are_the_ends_of_the_decisions():
    decisions = np.random.default_rng(0).permutation(np.arange(200.0)).astype(np.float32)
    inside, outside = surest(decisions, threshold=149.5)
    assert sorted(decisions[inside]) == list(range(140, 200))  # 1.2 times the 50 above
    assert sorted(decisions[outside]) == list(range(100))
    assert len(surest(decisions, threshold=1000)[0]) == 15


def test_decisions_of_a_cluster_move_to_their_mean():
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1], 100)
    features = (10 * label[:, None] + 0.01 * rng.standard_normal((200, 5))).astype(np.float32)
    places = rng.random((200, 2)).astype(np.float32)
    decisions = (label + rng.standard_normal(200)).astype(np.float32)
    smooth = by_cluster(decisions, features, places)
    for group in (0, 1):
        assert smooth[label == group].std() < decisions[label == group].std()
        assert smooth[label == group].mean() == pytest.approx(decisions[label == group].mean(), abs=1e-5)


def test_the_table_has_gains_of_each_way():
    def row(seed, base, gain):
        scores = {image: {AS_IT_IS: base} | dict.fromkeys(WAYS, base + gain) for image in ("x", "y")}
        return {"set": "a", "n_train": 1, "n_augmented": 0, "seed": seed, "mean_iou": scores}

    table = single_image({"rows": [row(0, 0.5, 0.1), row(1, 0.7, -0.3)]})
    [line] = [line for line in table.splitlines() if line.startswith("| 1 | 0 | a |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[3] == "0.600"
    assert cells[4:-1] == ["-0.100"] * len(WAYS)
    assert cells[-1] == "2"
