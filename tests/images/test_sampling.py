import numpy as np
import pytest

from segkit.errors import InputError
from segkit.images.labels import UNLABELLED
from segkit.images.sampling import (
    assign_folds,
    block_folds,
    deal_images,
    draw_pixels,
    number_groups,
    sparse_images,
    spread_pixels,
)


@pytest.fixture
def ids(rng):
    masks = [(rng.random((30, 40)) < 0.02).astype(np.uint8), np.zeros((20, 25), dtype=np.uint8)]
    masks[1][:5] = 255
    masks[1][10:12, 3:9] = 1
    return masks


def test_drawn_pixels_are_where_they_are_said_to_be(ids, rng):
    sample = draw_pixels(ids, 2, 60, rng)
    assert [ids[i][r, c] for i, r, c in zip(sample.image, sample.row, sample.col, strict=True)] == list(
        sample.label
    )
    assert len(set(zip(sample.image, sample.row, sample.col, strict=True))) == sample.label.size
    assert (np.diff(sample.image) >= 0).all()
    for index in range(2):
        assert (sample.image[sample.of_image(index)] == index).all()


def test_rare_classes_give_all_they_have(ids, rng):
    n_rare = sum((mask == 1).sum() for mask in ids)
    sample = draw_pixels(ids, 2, 300, rng)
    assert (sample.label == 1).sum() == n_rare < 150
    assert sample.label.size == 300


def test_weights_restore_the_share_of_each_class(ids, rng):
    sample = draw_pixels(ids, 2, 50, rng)
    labelled = np.concatenate([mask[mask != 255] for mask in ids])
    assert sample.weight.mean() == pytest.approx(1)
    assert np.average(sample.label, weights=sample.weight) == pytest.approx(labelled.mean())


def test_unlabelled_pixels_are_never_drawn(ids, rng):
    sample = draw_pixels(ids, 2, 10_000, rng)
    assert sample.label.size == sum((mask != 255).sum() for mask in ids)
    np.testing.assert_allclose(sample.weight, 1)


def test_images_of_both_classes_are_in_different_folds(rng):
    ids = [np.zeros((8, 8), dtype=np.uint8) for _ in range(7)]
    ids[0][:3] = ids[5][:3] = ids[6][:3] = 1
    sample = draw_pixels(ids, 2, 200, rng)
    fold = assign_folds(sample, [mask.shape for mask in ids], 5)
    folds = [set(fold[sample.image == image]) for image in range(7)]
    assert folds == [{0}, {3}, {4}, {0}, {1}, {1}, {2}]


def test_images_of_the_rarest_class_are_in_different_folds(rng):
    """Whatever else they hold: those of class 2 have no more classes than the others."""
    ids = [np.zeros((8, 8), dtype=np.uint8) for _ in range(6)]
    for index, mask in enumerate(ids):
        mask[:3] = 2 if index in (0, 5) else 1
    sample = draw_pixels(ids, 3, 300, rng)
    fold = assign_folds(sample, [mask.shape for mask in ids], 5)
    folds = [set(fold[sample.image == image]) for image in range(6)]
    assert folds == [{0}, {2}, {3}, {4}, {0}, {1}]


def test_a_fold_that_lacks_a_class_comes_before_a_smaller_one(rng):
    ids = [np.full((8, 8), label, dtype=np.uint8) for label in (1, 1, 1, 0, 0, 0)]
    ids[1][:3] = 0
    sample = draw_pixels(ids, 2, 300, rng)
    fold = assign_folds(sample, [mask.shape for mask in ids], 2)
    assert [set(fold[sample.image == image]) for image in range(6)] == [{0}, {1}, {0}, {0}, {1}, {0}]


def test_images_of_a_group_are_in_one_fold(rng):
    ids = [np.zeros((8, 8), dtype=np.uint8) for _ in range(7)]
    for mask in ids:
        mask[:3] = 1
    groups = number_groups([{0: 40, 1: 24}] * 7, ["b", "a", "b", "c", "a", "b", "d"])
    assert groups.tolist() == [0, 1, 0, 2, 1, 0, 3]
    sample = draw_pixels(ids, 2, 200, rng)
    fold = assign_folds(sample, [(8, 8)] * 7, 3, groups)
    of_image = [set(fold[sample.image == image]) for image in range(7)]
    assert all(len(folds) == 1 for folds in of_image)
    assert [min(folds) for folds in of_image] == [0, 1, 0, 2, 1, 0, 0]


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_groups_of_one_image_are_dealt_as_images_are(n_folds, rng):
    holds = rng.random((9, 3)) < 0.6
    expected = deal_images(holds, n_folds)
    np.testing.assert_array_equal(deal_images(holds, n_folds, np.arange(9)), expected)


BOTH = {0: 60, 1: 20}


@pytest.mark.parametrize(
    ("counts", "groups"),
    [
        ([BOTH] * 3, None),
        ([BOTH] * 3, ["a", "a", "a"]),  # nothing would be left to learn from
        ([BOTH, BOTH, {0: 80}], ["a", "a", "b"]),  # nor of a class that one group holds
        ([BOTH, BOTH, {0: 78, 1: 2}], ["a", "a", "b"]),  # or nearly: 2 of 42 pixels
    ],
)
def test_groups_that_hold_nearly_all_of_a_class_are_not_held_out(counts, groups):
    assert number_groups(counts, groups).tolist() == [0, 1, 2]


def test_a_twentieth_of_a_class_is_enough_to_learn_it_from():
    counts = [BOTH, {0: 60, 1: 18}, {0: 78, 1: 2}]
    assert number_groups(counts, iter("aab")).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        (["a", "b"], "2 groups for 3 images"),
        ("aab", "groups of type str, expected a list"),
        ({"a", "b", "c"}, "groups of type set"),
        (7, "groups of type int"),
        (["a", None, "b"], "group None of image 1"),
        (np.array([1.0, 2.0, np.nan]), "of image 2"),
        ([["a"], ["b"], ["b"]], r"group \['a'\] of image 0"),
    ],
)
def test_odd_groups_are_refused(groups, told):
    with pytest.raises(InputError, match=f"{told}.*: give a name or a number for each image"):
        number_groups([BOTH] * 3, groups)


def test_folds_of_one_image_are_spread_blocks(ids, rng):
    sample = draw_pixels(ids[:1], 2, 1200, rng)
    fold = assign_folds(sample, [ids[0].shape], 5)
    np.testing.assert_array_equal(fold, block_folds(sample.row, sample.col, ids[0].shape))


def test_blocks_of_a_fold_do_not_touch_even_at_corners():
    row, col = np.indices((40, 80))
    blocks = block_folds(row, col, row.shape)[::10, ::20]
    assert blocks.tolist() == [[0, 1, 2, 3], [2, 3, 0, 1], [0, 1, 2, 3], [2, 3, 0, 1]]
    for fold in range(4):
        places = np.argwhere(blocks == fold)
        steps = np.abs(places[:, None] - places).max(axis=2)
        assert steps[~np.eye(4, dtype=bool)].min() == 2


def test_an_image_is_sparse_below_half():
    mask = np.full((4, 5), UNLABELLED, dtype=np.uint8)
    mask.flat[:10] = 0
    less = mask.copy()
    less.flat[9] = UNLABELLED
    assert sparse_images([mask, less, np.zeros((3, 3), dtype=np.uint8)]) == [1]


def test_spread_pixels_are_a_regular_grid_of_each_image(rng):
    masks = [rng.integers(0, 3, shape).astype(np.uint8) for shape in ((40, 50), (7, 9), (1, 300))]
    masks[0][0] = UNLABELLED
    found = spread_pixels(masks, 100)
    for index, mask in enumerate(masks):
        part = found.subset(found.of_image(index))
        rows, cols = np.unique(part.row), np.unique(part.col)
        assert part.label.size == rows.size * cols.size <= 100
        np.testing.assert_array_equal(part.label, mask[np.ix_(rows, cols)].ravel())
        for at in (rows, cols):
            assert np.unique(np.diff(at)).size <= 1
    assert (found.weight == 1).all()


def test_spread_pixels_are_all_pixels_of_small_images():
    mask = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(spread_pixels([mask, mask], 12).label, np.tile(np.arange(12), 2))
