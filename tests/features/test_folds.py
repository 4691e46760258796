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


@pytest.mark.parametrize(("groups", "n_folds"), [([0, 0, 1, 1, 1], 2), ([0, 1, 2, 0, 3], 3)])
def test_images_of_a_group_are_held_out_together(groups, n_folds):
    folds = held_out_pixels([mask_of(1)] * 5, 3, np.array(groups))
    held = np.array([[mask.mean() for mask in fold] for fold in folds])
    np.testing.assert_array_equal(held.sum(axis=0), 1)
    for group in set(groups):
        mine = held[:, np.array(groups) == group]
        assert (mine == mine[:, :1]).all()
    assert (held.sum(axis=1) > 0).tolist() == [True] * n_folds + [False] * (3 - n_folds)


def test_a_single_image_is_halved_and_both_halves_hold_all_classes(rng):
    ids = rng.integers(0, 3, (64, 64)).astype(np.uint8)
    [one], [other], [nothing] = held_out_pixels([ids], 3)
    np.testing.assert_array_equal(one, ~other)
    assert not nothing.any()
    for half in (one, other):
        assert set(np.unique(ids[~guarded(half)])) == {0, 1, 2}


def learnt(ids, folds):
    """Classes that each network sees."""
    return [
        set(np.unique([value for mask, out in zip(ids, fold, strict=True) for value in mask[~guarded(out)]]))
        - {UNLABELLED}
        for fold in folds
    ]


def strokes(*places, side=96):
    """An unlabelled image with a stroke of each label, 20 by 60 pixels, at a row and column."""
    ids = np.full((side, side), UNLABELLED, dtype=np.uint8)
    for label, row, col in places:
        ids[row : row + 20, col : col + 60] = label
    return ids


def test_images_of_one_class_each_are_halved():
    ids = [strokes((0, 30, 20)), strokes((1, 50, 10))]
    folds = held_out_pixels(ids, 3)
    assert learnt(ids, folds) == [{0, 1}] * 3
    for one, other, none in zip(*folds, strict=True):
        np.testing.assert_array_equal(one, ~other)
        assert not none.any()


def test_an_image_that_alone_holds_a_class_is_halved_and_others_are_not():
    ids = [mask_of(1, 2, side=96), mask_of(1, side=96), mask_of(1, side=96)]
    folds = held_out_pixels(ids, 3)
    assert learnt(ids, folds) == [{0, 1, 2}] * 3
    shares = np.array([[mask.mean() for mask in fold] for fold in folds])
    np.testing.assert_array_equal(shares.sum(axis=0), 1)
    assert sorted(shares[:, 0]) == [0, 0.5, 0.5]
    assert np.isin(shares[:, 1:], (0, 1)).all()
    # it stays whole where halves would not show the class: here a dot
    ids[0][4:8], ids[0][5, 5] = 0, 2
    folds = held_out_pixels(ids, 3)
    assert all(mask.all() or not mask.any() for fold in folds for mask in fold)
    assert sorted(map(len, learnt(ids, folds))) == [2, 3, 3]


@pytest.mark.parametrize("place", [10, 36, 300])
def test_an_object_within_a_block_is_cut(place):
    ids = np.zeros((400, 400), dtype=np.uint8)
    ids[place : place + 40, place : place + 40] = 1
    ids[0, 399] = 1  # a stray pixel shows nothing
    folds = held_out_pixels([ids], 3)
    assert learnt([ids], folds) == [{0, 1}] * 3
    # each half shows what the guard leaves of it
    assert [int(ids[~guarded(out)].sum()) // 40 for [out] in folds] == [8, 8, 40]
    assert all(0.4 < out.mean() < 0.6 for [out] in folds[:2])


@pytest.mark.parametrize(
    "ids", [[strokes((0, 0, 0), (1, 70, 30))], [strokes((0, 0, 0)), strokes((1, 70, 30))]]
)
def test_networks_that_would_see_one_class_are_refused(ids):
    for mask in ids:  # too small to be cut
        mask[1:], mask[:, 1:] = UNLABELLED, UNLABELLED
    ids[-1][-1, -1] = 1
    with pytest.raises(InputError, match="label each class in two images or more"):
        held_out_pixels(ids, 3)


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
