import numpy as np
import pytest

from segkit.errors import InputError
from segkit.features.folds import GUARD, cells_of, count_classes, guarded, held_out_pixels
from segkit.images.labels import UNLABELLED


def mask_of(*labels, side=32):
    ids = np.zeros((side, side), dtype=np.uint8)
    for place, label in enumerate(labels):
        ids[4 * place : 4 * place + 4] = label
    return ids


@pytest.mark.parametrize(("n_images", "n_folds"), [(2, 2), (3, 3), (5, 3)])
def test_each_image_is_held_out_whole_and_once(n_images, n_folds):
    folds = held_out_pixels([mask_of(1)] * n_images, 3)
    assert len(folds) == 3
    held = np.array([[mask.mean() for mask in fold] for fold in folds])
    assert set(np.unique(held)) <= {0, 1}
    np.testing.assert_array_equal(held.sum(axis=0), 1)
    # of two images a third network sees both
    assert (held.sum(axis=1) > 0).tolist() == [True] * n_folds + [False] * (3 - n_folds)


def test_a_single_image_is_halved_and_both_halves_hold_all_classes(rng):
    ids = rng.integers(0, 3, (64, 64)).astype(np.uint8)
    [one], [other], [nothing] = held_out_pixels([ids], 3)
    np.testing.assert_array_equal(one, ~other)
    assert not nothing.any()
    for half in (one, other):
        assert set(np.unique(ids[~guarded(half)])) == {0, 1, 2}


def test_labels_of_one_half_of_an_image_are_shared_out():
    ids = np.full((96, 96), UNLABELLED, dtype=np.uint8)
    ids[:24, :10], ids[:24, 38:48] = 0, 1  # blocks of the usual first half
    told = [np.unique(ids[~guarded(half)]).tolist() for [half] in held_out_pixels([ids], 3)]
    assert told == [[1, UNLABELLED], [0, UNLABELLED], [0, 1, UNLABELLED]]


def test_labels_that_lie_too_close_together_are_refused():
    ids = np.full((64, 64), UNLABELLED, dtype=np.uint8)
    ids[31:33, 31:33] = [[0, 1], [1, 0]]
    with pytest.raises(InputError, match="too close together"):
        held_out_pixels([ids], 3)


def test_a_guard_is_as_wide_as_it_says():
    held_out = np.zeros((64, 96), dtype=bool)
    held_out[:, :40] = True
    width = round(GUARD * 64)
    np.testing.assert_array_equal(guarded(held_out), np.arange(96) < 40 + width + np.zeros((64, 1)))
    for whole in (np.zeros((8, 8), dtype=bool), np.ones((8, 8), dtype=bool)):
        np.testing.assert_array_equal(guarded(whole), whole)


def test_cells_read_the_pixel_at_their_centre(rng):
    mask = rng.random((7, 9)) < 0.5
    expected = [[mask[min(2 * row + 1, 6), min(2 * col + 1, 8)] for col in range(5)] for row in range(4)]
    np.testing.assert_array_equal(cells_of(mask, (4, 5), 2), expected)


def test_classes_are_counted_from_labelled_pixels():
    assert count_classes([mask_of(2), mask_of(UNLABELLED)]) == 3
    with pytest.raises(InputError, match="one class only"):
        count_classes([mask_of(0)])
    with pytest.raises(InputError, match="mask 1 has no labelled pixel"):
        count_classes([mask_of(1), np.full((4, 4), UNLABELLED, dtype=np.uint8)])
