import numpy as np
import pytest

from benchmarks.regions import (
    BOTH,
    REGIONS,
    Seen,
    describe,
    halves,
    learn,
    regions,
    regions_of,
)
from benchmarks.single_image import AS_IT_IS
from segkit.images import UNLABELLED


def seen_of(truth, decisions=None, noise=0.05):
    rng = np.random.default_rng(0)
    components = truth[..., None] + noise * rng.standard_normal((*truth.shape, 2))
    decided = components[..., 0] - 0.5 if decisions is None else decisions
    return Seen(decided.astype(np.float32), components.astype(np.float32), truth.astype(np.uint8))


@pytest.fixture
def square():
    truth = np.zeros((40, 40), dtype=np.uint8)
    truth[10:30, 10:30] = 1
    return truth


def test_regions_follow_the_edge_of_an_object(square):
    found = regions_of(seen_of(square))
    assert found.min() == 0
    assert len(np.unique(found)) == found.max() + 1
    shares = np.bincount(found.ravel(), square.ravel()) / np.bincount(found.ravel())
    assert np.mean(np.minimum(shares, 1 - shares)) < 0.05


def test_a_region_is_described_as_by_a_plain_loop(square):
    decisions = np.where(square, 2.0, -1.0).astype(np.float32)
    decisions[:2, :3] = 4.0  # a second object
    seen = seen_of(square, decisions)
    columns, rows = np.meshgrid(np.arange(40) // 20, np.arange(40) // 20)
    found = describe(seen, 2 * rows + columns)
    for region in range(4):
        inside = (2 * rows + columns) == region
        values = decisions[inside].astype(float)
        size = np.zeros((40, 40))
        strength = np.zeros((40, 40))
        size[square == 1], strength[square == 1] = np.log1p(400), 2.0
        size[:2, :3], strength[:2, :3] = np.log1p(6), 4.0
        expected = [values.mean(), values.std()]
        assert found[region, :2] == pytest.approx(expected, abs=1e-4)
        assert found[region, 3] == pytest.approx(size[inside].mean(), rel=1e-5)
        assert found[region, 4] == pytest.approx(strength[inside].mean(), rel=1e-5)
        assert found[region, 5] == pytest.approx(np.mean(decisions[inside] > 0), rel=1e-5)
        assert found[region, 6] == pytest.approx(np.nonzero(inside)[0].mean() / 40, rel=1e-5)
        assert found[region, 8] == pytest.approx(seen.components[inside, 0].mean(), rel=1e-4)


def test_contrast_is_the_decision_less_that_of_the_ring(square):
    decisions = np.where(square, 2.0, -1.0).astype(np.float32)
    found = describe(seen_of(square, decisions), square.astype(np.intp))
    assert found[1, 2] == pytest.approx(3.0)


@pytest.mark.parametrize("n_images", [1, 2, 5])
def test_halves_are_disjoint_and_hold_every_pixel(n_images):
    first, second = halves([np.zeros((16, 20), dtype=np.uint8)] * n_images)
    for one, other in zip(first, second, strict=True):
        assert (one ^ other).all()
    assert any(one.any() for one in first)
    assert any(one.any() for one in second)


def test_the_second_stage_learns_from_annotated_pixels_only(square):
    hidden = square.copy()
    hidden[:, 20:] = UNLABELLED
    wrong = square.copy()
    wrong[:, 20:] = 1 - square[:, 20:]
    stage, scale = learn([seen_of(square)._replace(truth=hidden)])
    other, _ = learn([seen_of(square)._replace(truth=wrong)])
    regions_of_square = regions_of(seen_of(square))
    decided = stage.decision_function(describe(seen_of(square), regions_of_square))[regions_of_square] > 0
    assert np.mean(decided == square) > 0.95
    assert scale.coef_[0, 0] > 0
    assert not np.allclose(stage[-1].coef_, other[-1].coef_)


def test_the_table_has_the_gain_of_each_way():
    def row(seed, base):
        scores = {image: {AS_IT_IS: base, REGIONS: base - 0.2, BOTH: base + 0.1} for image in ("x", "y")}
        return {"set": "a", "n_train": 1, "seed": seed, "mean_iou": scores}

    line = regions({"rows": [row(0, 0.5), row(1, 0.7)]}).splitlines()[2]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["1", "a", "0.600"]
    assert cells[3].startswith("-0.200")
    assert cells[4].startswith("+0.100")
    assert cells[5] == "2"
