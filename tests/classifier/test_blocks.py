"""Sums over blocks give the fit of all rows in one place."""

from functools import partial

import numpy as np
import pytest

from segkit._common import add_up, one_by_one
from segkit.classifier.blocks import SumsAt, fit_blocks
from segkit.classifier.svm import LinearSVM
from segkit.errors import InputError
from segkit.kernels.mmd import FeatureSums


@pytest.fixture
def rows(rng):
    X = rng.standard_normal((600, 7))
    y = np.where(X @ rng.standard_normal(7) + 0.5 * rng.standard_normal(600) + 0.3 > 0, 1.0, -1.0)
    return X, y, rng.uniform(0.5, 2, 600)


def take(rows, block):
    return tuple(column[block] for column in rows)


BLOCKS = [slice(0, 10), slice(10, 11), slice(11, 400), slice(400, 600)]


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_the_fit_of_blocks_is_that_of_all_rows(rows, C):
    X, y, cost = rows
    whole = LinearSVM(C=C, tol=1e-10).fit(X, y, cost)
    found = fit_blocks(partial(take, rows), BLOCKS, 7, C=C, tol=1e-14)
    np.testing.assert_allclose(found.coef_, whole.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.intercept_, whole.intercept_, rtol=1e-4, atol=1e-6)
    assert ((found.predict(X) == 1) == (whole.predict(X) == 1)).all()


def test_sums_are_those_of_differences(rows):
    X, y, cost = rows
    theta = np.linspace(-1, 1, 8)
    sums = add_up(SumsAt(partial(take, rows), theta), BLOCKS)
    assert sums.n_rows == 600

    def loss(plane):
        return cost @ np.maximum(0, 1 - y * (X @ plane[:-1] + plane[-1])) ** 2

    assert sums.loss == pytest.approx(loss(theta))
    steps = 1e-6 * np.eye(8)
    slopes = [(loss(theta + step) - loss(theta - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(sums.gradient, slopes, rtol=1e-5, atol=1e-4)


def test_discrepancy_of_blocks_is_that_of_all_rows(rows):
    X, y, _ = rows
    found = add_up(lambda block: FeatureSums.of(X[block], y[block], [-1.0, 1.0]), BLOCKS)
    assert found.mmd() == pytest.approx(FeatureSums.of(X, y, [-1.0, 1.0]).mmd(), rel=1e-12)


def backwards(function, items):
    yield from reversed(list(one_by_one(function, items)))


def test_the_total_does_not_depend_on_which_block_is_done_first(rows):
    at = SumsAt(partial(take, rows), np.linspace(-1, 1, 8))
    np.testing.assert_array_equal(add_up(at, BLOCKS).hessian, add_up(at, BLOCKS, backwards).hessian)


def test_blocks_on_workers_give_the_same_fit(rows):
    pytest.importorskip("distributed")
    from segkit.scale import Cluster

    with Cluster(n_workers=2) as cluster:
        spread = fit_blocks(partial(take, rows), BLOCKS, 7, workers=cluster.spread)
    np.testing.assert_allclose(spread.coef_, fit_blocks(partial(take, rows), BLOCKS, 7).coef_, rtol=1e-9)


def test_no_block_is_refused():
    with pytest.raises(InputError, match="no block of rows is given"):
        fit_blocks(None, [], 3)
