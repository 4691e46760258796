"""Numbered nuclei in one piece each, of which some touch."""

import numpy as np
import pytest
from scipy import ndimage

from segkit.cli.cells import make_cell_set


@pytest.fixture(scope="module")
def cell_set():
    return make_cell_set(4, shape=(96, 128), random_state=1)


def test_every_number_is_one_nucleus_in_one_piece(cell_set):
    for labels in cell_set[1]:
        areas = np.bincount(labels.ravel())
        assert areas.size > 10
        assert areas[1:].min() >= 25
        assert 0.1 < (labels > 0).mean() < 0.6
        for number in range(1, areas.size):
            assert ndimage.label(labels == number)[1] == 1


def test_nuclei_touch(cell_set):
    n_nuclei = sum(int(labels.max()) for labels in cell_set[1])
    n_regions = sum(ndimage.label(labels > 0)[1] for labels in cell_set[1])
    assert 1 / 3 < n_regions / n_nuclei < 5 / 6
