import numpy as np
import pytest
from scipy import ndimage

from segkit.objects.grow import grow

AT = (40, 50)


def disc(shape, at, radius):
    return np.hypot(*(np.indices(shape) - np.reshape(at, (2, 1, 1)))) < radius


def picture(mask, seed=0):
    noise = np.random.default_rng(seed).standard_normal((*mask.shape, 1))
    return (0.3 + 0.4 * mask[:, :, None] + 0.03 * noise).astype(np.float32)


def grown(image, foreground, at, reach):
    """The mask in the whole image."""
    (row, col), mask = grow(image, foreground, at, reach)
    whole = np.zeros(image.shape[:2], dtype=bool)
    whole[row : row + mask.shape[0], col : col + mask.shape[1]] = mask
    return whole


def iou(one, other):
    return (one & other).sum() / (one | other).sum()


@pytest.mark.parametrize("reach", [12, 15, 20])
def test_a_disc_is_found_from_its_middle(reach):
    truth = disc((90, 110), AT, 12)
    assert iou(grown(picture(truth), None, AT, reach), truth) > 0.85


def test_the_prediction_shows_what_the_image_does_not():
    image = picture(np.zeros((90, 110), dtype=bool))
    truth = disc((90, 110), AT, 12)
    foreground = ndimage.gaussian_filter(truth.astype(np.float32), 1)
    assert iou(grown(image, foreground, AT, 14), truth) > 0.85


def test_of_two_that_touch_the_one_around_the_pixel_is_found():
    left, right = disc((90, 110), (40, 40), 12), disc((90, 110), (40, 62), 12)
    rim = disc((90, 110), (40, 51), 3)  # darker between them
    image = picture((left | right) & ~rim)
    found = grown(image, None, (40, 40), 12)
    assert iou(found, left) > 0.7
    assert (found & right).sum() < 0.1 * right.sum()


def test_an_object_at_the_corner_and_a_reach_beyond_the_image():
    truth = disc((90, 110), (0, 0), 15)
    assert iou(grown(picture(truth), None, (2, 2), 15), truth) > 0.8
    cell = disc((90, 110), AT, 12)
    for reach in (60, 500, 1e9):  # the border of the image is the rim
        assert iou(grown(picture(cell), None, AT, reach), cell) > 0.6


def test_a_large_object_is_read_in_coarser_steps():
    truth = disc((900, 1000), (450, 500), 300)
    (row, col), mask = grow(picture(truth), None, (450, 500), 300)
    assert mask.shape == (785, 785)
    assert iou(mask, truth[row : row + 785, col : col + 785]) > 0.9


def test_it_is_one_piece_without_holes_that_holds_the_pixel():
    rng = np.random.default_rng(3)
    image = rng.random((80, 90, 3)).astype(np.float32)  # nothing to see
    for at in [(0, 0), (79, 89), (40, 45), (10, 80)]:
        (row, col), mask = grow(image, rng.random((80, 90)).astype(np.float32), at, 17)
        assert mask[at[0] - row, at[1] - col]
        assert ndimage.label(mask)[1] == 1
        np.testing.assert_array_equal(ndimage.binary_fill_holes(mask), mask)


def test_an_image_of_one_colour_gives_a_disc_inside_the_circle():
    image = np.full((80, 90, 1), 0.5, dtype=np.float32)
    found = grown(image, None, (40, 45), 15)
    assert found[40, 45]
    assert not (found & ~disc((80, 90), (40, 45), 23)).any()
