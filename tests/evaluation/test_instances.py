"""Which masks number objects, beside others that do or do not."""

import numpy as np
import pytest

from segkit.errors import InputError
from segkit.evaluation.read_masks import which_number_objects
from segkit.images.numbering import Mask, MaskOptions


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


def test_beside_objects_fewer_or_none_are_objects_too():
    for other in (FEW, EMPTY, MANY):
        assert decide([MANY], [other]) == decide([other], [MANY]) == (True, True)


def test_beside_objects_classes_stay_classes():
    for other in (BINARY, MANY % 3):
        assert decide([MANY], [other]) == (True, False)
        assert decide([other], [MANY]) == (False, True)


def test_options_settle_doubt():
    assert decide([FEW], [FEW], masks_are="instances") == (True, True)
    assert decide([FEW], [FEW], masks_are="classes") == (False, False)
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


@pytest.mark.parametrize(
    ("truth", "guess", "side"),
    [
        (FEW, FEW, "true masks"),
        (FEW, 1 + FEW % 4, "true masks"),
        (FEW, EMPTY, "true masks"),
        (FEW, (FEW > 0).astype(int), "true masks"),
        (255 * BINARY, FEW, "predictions"),
        (BINARY[:, :11], grid(4, 2)[:, :11], "predictions"),
        (grid(3, 3)[1:4], grid(3, 3)[1:4] * 2, "true masks"),
        (np.arange(1, 5).repeat(20).reshape(4, 20), EMPTY, "true masks"),  # no background between them
        (np.where(np.indices((8, 8))[0] == 2, 0, grid(2, 2)), FEW, "true masks"),  # two of four are cut
    ],
)
def test_a_few_values_in_one_piece_are_asked_about(truth, guess, side):
    for kinds in ({}, {"unlabelled": 77}):
        with pytest.raises(
            InputError, match=f"^{side} hold . values .* say which, --set data.masks=instances or"
        ):
            decide([truth], [guess], **kinds)


def test_predictions_in_pieces_say_that_values_are_classes():
    """An organ is in one piece, and its prediction in several."""
    noisy = MANY % 3
    for truth, guess in ((FEW, noisy), (noisy, FEW)):
        assert decide([truth], [guess]) == (False, False)


def test_255_is_no_number_among_a_few():
    greys = np.where(FEW == 4, 255, FEW)
    assert decide([greys], [greys]) == (False, False)


def test_one_value_of_all_objects_is_foreground_beside_objects():
    assert decide([BINARY], [FEW], masks_are="instances") == (False, True)
    assert decide([FEW], [BINARY], masks_are="instances") == (True, False)
    one = np.where(MANY == 1, 1, 0)  # a single object, and one that was cut
    assert decide([one], [one], masks_are="instances") == (True, True)
    assert decide([one], [np.where(MANY < 3, one * 0 + (MANY > 0), 0)], masks_are="instances") == (True, True)


def test_outlines_are_objects():
    assert decide([FEW], [FEW], (True, True)) == (True, True)
    assert decide([FEW], [FEW], (True, False)) == (True, True)
    assert decide([BINARY], [FEW], (False, True)) == (False, True)
    for options in ({"masks_are": "classes"}, {"labels": {0: "a"}}, {"unlabelled": 0}):
        with pytest.raises(InputError):
            decide([FEW], [FEW], (True, False), **options)
