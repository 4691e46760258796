import numpy as np
import pytest

from benchmarks.tables import mnist_cdf
from benchmarks.tables.mnist_cdf import (
    N_ELEMENTS,
    cdf,
    digits_by_size,
    features_of_paper,
    gram_of,
    scores_of,
    unit,
)


@pytest.fixture(scope="module")
def images():
    return unit(np.random.default_rng(0).integers(1, 255, size=(9, 28, 28)).astype(np.uint8))


def test_one_column_stands_for_all_constant_ones(images):
    n, m = 20, 3
    train, test = features_of_paper(n, m, images[:6], images[6:])
    whole = cdf(n, m, N_ELEMENTS, "[-s, s]", seed=0)
    expected = whole.fit_transform(images[:6])
    assert expected.shape[1] == (2 * n + 1) * m > train.shape[1]
    np.testing.assert_allclose(train @ train.T, expected @ expected.T, rtol=1e-5)
    np.testing.assert_allclose(test @ train.T, whole.transform(images[6:]) @ expected.T, rtol=1e-5)


def test_thresholds_that_do_not_hold_all_projections_are_refused(images, monkeypatch):
    monkeypatch.setattr(mnist_cdf, "LARGEST", 1.0)
    with pytest.raises(ValueError, match=r"beyond 1\.0 standard deviations"):
        features_of_paper(50, 3, images[:6], images[6:])


def test_blocks_of_columns_add_up(monkeypatch):
    monkeypatch.setattr(mnist_cdf, "BLOCK", 4)
    rng = np.random.default_rng(0)
    features, others = (rng.standard_normal((n, 10)).astype(np.float32) for n in (7, 5))
    rows, dual = np.array([5, 0, 3]), rng.standard_normal((3, 2))
    np.testing.assert_allclose(gram_of(features, rows), features[rows] @ features[rows].T, rtol=1e-5)
    np.testing.assert_allclose(
        scores_of(dual, features, rows, others), others @ features[rows].T @ dual, rtol=1e-4, atol=1e-5
    )


def test_small_differences_of_rows_count():
    features = (0.7 + 1e-3 * np.random.default_rng(0).standard_normal((40, 6000))).astype(np.float32)
    rows, double = np.arange(40), features.astype(np.float64)
    np.testing.assert_allclose(gram_of(features, rows), double @ double.T, rtol=1e-9)


def test_the_table_shows_the_right_panel_only():
    raw = {"features": "raw pixels", "per class": 10}
    ours = {"features": "CDF, one draw", "n": 50, "m": 500, "range": "data", "per class": 1000}
    left = {"features": "CDF", "per class": 100}
    rows = [
        {"settings": settings, "value": 90.0, "interval": [89, 91], "runs": [90.0] * 3, "paper": paper}
        for settings, paper in ((raw, None), (ours, 98.97), (left, None))
    ]
    lines = digits_by_size({"rows": rows}).splitlines()
    assert lines[2:] == [
        "| raw pixels |  | 3 | 90.00 (89.00 to 91.00) |  |",
        "| CDF(50, 500) | data | 3 |  | 90.00 (89.00 to 91.00), paper 98.97 |",
    ]
