"""Outlines of objects: inside the object, dark around it, neighbours of other colours."""

import numpy as np
import pytest
from skimage.segmentation import find_boundaries

from segkit.errors import InputError
from segkit.images import read_image
from segkit.images.write import RIM
from segkit.objects.pictures import OBJECT_COLOURS, colour_apart, object_overlay, write_object_overlay


def colours_of(picture, where):
    return {tuple(colour) for colour in picture[where].reshape(-1, 3).tolist()}


def cells(n_seeds, seed=0, side=120):
    """A map without gaps: the nearest of many points."""
    points = np.random.default_rng(seed).uniform(0, side, (n_seeds, 2))
    grid = np.stack(np.indices((side, side)), axis=-1)
    return 1 + np.argmin(((grid[:, :, np.newaxis] - points) ** 2).sum(axis=-1), axis=2)


def test_line_inside_rim_outside_and_nothing_else_changes():
    labels = np.zeros((20, 30), dtype=int)
    labels[5:15, 8:20] = 70_000
    picture = object_overlay(np.full((20, 30, 3), 0.4), labels)
    inner = np.zeros_like(labels, dtype=bool)
    inner[6:14, 9:19] = True
    assert colours_of(picture, (labels > 0) & ~inner) == {tuple(OBJECT_COLOURS[0])}
    assert colours_of(picture, inner) == {(102, 102, 102)}
    assert colours_of(picture, (slice(4, 5), slice(8, 20))) == {RIM}
    assert colours_of(picture, (slice(0, 4), slice(None))) == {(102, 102, 102)}


def test_the_border_of_the_image_is_no_outline():
    labels = np.zeros((20, 30), dtype=int)
    labels[:8, :9] = 1
    picture = object_overlay(np.full((20, 30), 0.5), labels, line_width=2)
    assert colours_of(picture, (slice(0, 6), slice(0, 7))) == {(128, 128, 128)}
    assert colours_of(picture, (slice(6, 8), slice(0, 9))) == {tuple(OBJECT_COLOURS[0])}


def test_no_rim_covers_the_line_of_an_object_that_touches():
    labels = np.zeros((20, 30), dtype=int)
    labels[5:15, 5:15], labels[5:15, 15:25] = 1, 2
    picture = object_overlay(np.full((20, 30), 0.5), labels)
    both = colours_of(picture, (slice(5, 15), slice(14, 16)))
    assert len(both) == 2
    assert RIM not in both


def test_touching_objects_differ_in_colour():
    index = cells(150)
    colours = colour_apart(index, 4)[index - 1]
    for one, other, differ in (
        (colours[1:], colours[:-1], index[1:] != index[:-1]),
        (colours[:, 1:], colours[:, :-1], index[:, 1:] != index[:, :-1]),
    ):
        assert (one[differ] != other[differ]).all()
    assert set(np.unique(colours)) == set(range(len(OBJECT_COLOURS)))


def test_objects_nearly_touching_differ_in_colour():
    index = cells(60)
    gaps = find_boundaries(index, mode="thick")
    apart = colour_apart(np.where(gaps, 0, index), 4)
    for one, other in {(a, b) for a, b in zip(index[1:].ravel(), index[:-1].ravel(), strict=True) if a != b}:
        # a corner may be all that two cells share
        if np.count_nonzero((index[1:] == one) & (index[:-1] == other)) > 6:
            assert apart[one - 1] != apart[other - 1]


def test_objects_in_pieces_share_colours_if_they_must():
    index = np.random.default_rng(0).integers(1, 30, (40, 40))
    colours = colour_apart(index, 2)
    assert colours.min() >= 0
    assert colours.max() < len(OBJECT_COLOURS)


def test_no_object_and_one_everywhere_leave_the_picture():
    for labels in (np.zeros((4, 5), dtype=int), np.full((4, 5), 3)):
        assert (object_overlay(np.full((4, 5, 3), 0.4), labels) == 102).all()


def test_the_file_is_the_picture(tmp_path):
    labels = cells(9, side=40)
    image = np.random.default_rng(0).uniform(size=(40, 40, 3))
    write_object_overlay(tmp_path / "new" / "a.png", image, labels)
    [back] = read_image(tmp_path / "new" / "a.png")
    np.testing.assert_array_equal(np.rint(255 * back), object_overlay(image, labels))


def test_sizes_that_differ():
    with pytest.raises(InputError) as error:
        object_overlay(np.ones((4, 5, 3)), np.ones((5, 4), dtype=int))
    assert str(error.value) == (
        "image of (4, 5) pixels under a label image of shape (5, 4), expected one size: draw the objects over the image "
        "they belong to"
    )


def test_lines_do_not_swallow_small_objects():
    labels = np.zeros((120, 2000), dtype=int)
    labels[5:17, 5:17] = 1
    picture = object_overlay(np.full((120, 2000, 3), 0.4), labels)
    assert colours_of(picture, (slice(6, 16), slice(6, 16))) == {(102, 102, 102)}
    labels[5:105, 5:105] = 1
    picture = object_overlay(np.full((120, 2000, 3), 0.4), labels)
    assert tuple(picture[6, 50]) == tuple(OBJECT_COLOURS[0])
    assert tuple(picture[7, 50]) == (102, 102, 102)
