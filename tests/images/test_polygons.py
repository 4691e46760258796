"""Pixels by their centres, as a naive loop finds them, and outlines that give back the pixels they are of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from segkit.errors import InputError
from segkit.images.polygons import fill, trace

LABELS = arrays(np.int32, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.integers(0, 3))
# Quarters lie on pixel centres often.
POINTS = st.lists(st.tuples(*[st.integers(-8, 40)] * 2), min_size=3, max_size=8).map(
    lambda points: np.array(points) / 4
)


def spread(filled, shape):
    picture = np.zeros(shape, dtype=bool)
    top, left, inside = filled
    picture[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return picture


def naive(rings, shape):
    """Count the edges left of each centre, one by one."""
    inside = np.zeros(shape, dtype=bool)
    for row, column in np.ndindex(shape):
        x, y = column + 0.5, row + 0.5
        for ring in rings:
            for start, end in zip(ring, np.roll(ring, -1, axis=0), strict=True):
                (x0, y0), (x1, y1) = sorted((start, end), key=lambda point: point[1])
                if y0 <= y < y1 and x0 + (y - y0) * ((x1 - x0) / (y1 - y0)) <= x:
                    inside[row, column] ^= True
    return inside


@given(st.lists(POINTS, min_size=1, max_size=3))
def test_fill_is_even_odd_at_centres(rings):
    np.testing.assert_array_equal(spread(fill([rings], (7, 9)), (7, 9)), naive(rings, (7, 9)))


def test_crossings_are_computed_in_parts(monkeypatch):
    ring = np.random.default_rng(0).uniform(0, 30, (200, 2))
    expected = spread(fill([[ring]], (30, 30)), (30, 30))
    monkeypatch.setattr("segkit.images.polygons._CROSSINGS_AT_ONCE", 7)
    np.testing.assert_array_equal(spread(fill([[ring]], (30, 30)), (30, 30)), expected)


@given(LABELS)
def test_traced_outlines_give_the_pixels_back(labels):
    back = np.zeros_like(labels)
    for object_id, polygons in trace(labels).items():
        back[spread(fill(polygons, labels.shape), labels.shape)] += object_id
    np.testing.assert_array_equal(back, labels)


def area(ring):
    x, y = ring.T
    return np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) / 2


@given(LABELS)
def test_rings_are_simple_and_turn_as_promised(labels):
    for object_id, polygons in trace(labels).items():
        assert sum(area(ring) for rings in polygons for ring in rings) == np.sum(labels == object_id)
        for first, *holes in polygons:
            assert area(first) > 0
            assert all(area(hole) < 0 for hole in holes)
            for ring in (first, *holes):
                assert len({tuple(point) for point in ring.tolist()}) == len(ring)


@given(POINTS, POINTS)
def test_outlines_on_both_sides_of_an_edge_share_no_pixel(left, right):
    """Two triangles on one edge, and the quadrangle of both."""
    first, second = left[:2]
    one, two = np.array([first, second, right[0]]), np.array([second, first, right[1]])
    both = fill([[one, two]], (9, 9))
    np.testing.assert_array_equal(
        spread(fill([[one]], (9, 9)), (9, 9)) ^ spread(fill([[two]], (9, 9)), (9, 9)), spread(both, (9, 9))
    )
    quadrangle = np.array([first, right[1], second, right[0]])
    np.testing.assert_array_equal(spread(fill([[quadrangle]], (9, 9)), (9, 9)), spread(both, (9, 9)))


def test_polygons_are_joined():
    square = np.array([(1, 1), (3, 1), (3, 3), (1, 3)])
    assert fill([[square], [square]], (5, 5)).inside.sum() == 4
    assert not fill([[square, square]], (5, 5)).inside.any()


def test_what_lies_outside_is_cut_off():
    far = np.array([(-1e9, -1e9), (1e9, -1e9), (1e9, 1e9), (-1e9, 1e9)])
    assert fill([[far]], (4, 6)).inside.sum() == 24
    assert fill([[far + 3e9]], (4, 6)).inside.size == 0
    assert fill([], (4, 6)).inside.size == 0


def test_coordinates_that_are_no_numbers():
    for ring in ([(0, 0), (1, np.nan), (2, 2)], [1, 2, 3], [("a", "b")], [(0, 0), (1,)]):
        with pytest.raises(InputError, match="no pairs of finite numbers"):
            fill([[ring]], (4, 4))
