"""Which masks number objects."""

import numpy as np
import pytest

from segkit.errors import InputError
from segkit.evaluation.read_masks import which_number_objects
from segkit.images.numbering import Mask, MaskOptions, look_like_instances


def grid(n_rows, n_columns, side=4):
    """Squares with a gap of one pixel, numbered from 1."""
    ids = np.arange(1, n_rows * n_columns + 1).reshape(n_rows, n_columns)
    image = ids.repeat(side, axis=0).repeat(side, axis=1)
    image[::side] = image[:, ::side] = 0
    return image


MANY, FEW = grid(4, 5), grid(2, 2)
BINARY, EMPTY = (MANY > 0).astype(int), np.zeros((16, 20), dtype=int)


def decide(truths, guesses, outlined=(False, False), **options):
    sides = (
        {str(n): Mask(mask, is_outlined=is_outlined) for n, mask in enumerate(masks)}
        for masks, is_outlined in zip((truths, guesses), outlined, strict=True)
    )
    return which_number_objects(*sides, MaskOptions(**options))


def is_instance_masks(masks, unlabelled=None):
    return look_like_instances([Mask(mask, unlabelled).numbers for mask in masks])


def test_many_numbers_in_one_piece_each_are_objects():
    assert is_instance_masks([MANY])
    assert is_instance_masks([MANY.astype(np.uint32) * 70_000])
    assert is_instance_masks([EMPTY, FEW + 20 * (FEW > 0), FEW, FEW + 10 * (FEW > 0)])
    assert is_instance_masks([np.where(MANY == 3, 1, MANY)])  # one of 19 in two pieces


def test_others_are_classes():
    for mask in (
        BINARY,
        FEW,
        EMPTY,
        MANY % 11,  # each number in two squares
        MANY + 1,  # no background
        np.where(MANY == 1, -1, MANY),
        np.random.default_rng(0).integers(0, 20, (30, 30)),  # noise
        np.tile(np.r_[0, 60:200, 255], (40, 1))[:, ::-1] * (np.arange(40)[:, None] % 2),  # blurred edges
    ):
        assert not is_instance_masks([mask])


def test_the_unlabelled_value_is_no_object():
    mask = np.where((np.indices(MANY.shape).sum(axis=0) % 7 == 0) & (MANY == 0), 255, MANY)
    assert is_instance_masks([mask], unlabelled=255)
    eleven = np.where(MANY > 10, 255, MANY)
    assert is_instance_masks([eleven])
    assert not is_instance_masks([np.where(MANY > 9, 255, MANY)], unlabelled=255)


def test_objects_that_touch_at_a_corner_are_one_piece():
    image = np.kron(np.eye(12, dtype=int), np.eye(4, dtype=int)) * np.arange(1, 13).repeat(4)
    assert is_instance_masks([image])


def test_beside_objects_fewer_or_none_are_objects_too():
    for other in (FEW, EMPTY, MANY):
        assert decide([MANY], [other]) == decide([other], [MANY]) == (True, True)


def test_beside_objects_classes_stay_classes():
    for other in (BINARY, MANY % 3):
        assert decide([MANY], [other]) == (True, False)
        assert decide([other], [MANY]) == (False, True)


def test_options_settle_doubt():
    assert decide([FEW], [FEW]) == (False, False)
    assert decide([FEW], [FEW], masks_are="instances") == (True, True)
    assert decide([BINARY], [MANY], masks_are="instances") == (True, True)
    assert decide([MANY], [MANY], masks_are="classes") == (False, False)
    assert decide([MANY], [MANY], labels=dict(enumerate("abc"))) == (False, False)
    assert decide([MANY], [MANY], unlabelled=0) == (False, False)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"labels": {0: "a"}},
            "data.labels names classes, but data.masks=instances numbers objects: leave one of the two out",
        ),
        ({"unlabelled": 0}, "0 marks unlabelled pixels, but is the background"),
        ({}, "predictions: ids of objects from -1 to 3, expected 0 for background"),
    ],
)
def test_contradictions_are_refused(options, told):
    with pytest.raises(InputError, match=told):
        decide([FEW], [FEW - 1], masks_are="instances", **options)


def test_outlines_are_objects():
    assert decide([FEW], [FEW], (True, True)) == (True, True)
    assert decide([FEW], [FEW], (True, False)) == (True, True)
    assert decide([BINARY], [FEW], (False, True)) == (False, True)
    for options in ({"masks_are": "classes"}, {"labels": {0: "a"}}, {"unlabelled": 0}):
        with pytest.raises(InputError):
            decide([FEW], [FEW], (True, False), **options)
