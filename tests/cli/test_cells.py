"""Pictures of cells: numbered nuclei in one piece each, some of them touching, and no darkness alone finds them."""

import numpy as np
import pytest
from scipy import ndimage

from segkit.cli.cells import make_cell_set
from segkit.evaluation import score_objects


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


def test_nuclei_differ_in_size(cell_set):
    areas = np.concatenate([np.bincount(labels.ravel())[1:] for labels in cell_set[1]])
    assert np.quantile(areas, 0.9) > 2 * np.quantile(areas, 0.1)


def test_a_threshold_finds_many_nuclei_but_not_all(cell_set):
    """Nuclei are darker in red than tissue; the best threshold joins those that touch."""
    red = [ndimage.gaussian_filter(image[:, :, 0], 1) for image in cell_set[0]]

    def ap(threshold):
        found = [ndimage.label(values < threshold)[0] for values in red]
        return score_objects(cell_set[1], found).values["ap_50"]

    best = max(map(ap, np.quantile(red, np.linspace(0.1, 0.6, 11))))
    assert 0.15 < best < 0.7
