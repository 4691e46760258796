import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.features.windows import Blend, Cells, Side, _hann, read_window


@settings(max_examples=50)
@given(
    length=st.integers(12, 200),
    n_cells=st.integers(2, 6),
    hop=st.integers(1, 6),
)
def test_windows_cover_the_image(length, n_cells, hop):
    side = Side(length, 4 * n_cells, 4 * min(hop, n_cells))
    starts = [side.first + number * side.hop for number in range(side.n_windows)]
    assert starts[0] <= 0
    assert starts[-1] + side.window >= length


def test_pixels_beyond_the_edges_are_mirrored():
    side = Side(5, 8, 4)
    assert side.first == -1
    assert side.pixels(0).tolist() == [1, 0, 1, 2, 3, 4, 3, 2]
    assert side.is_covered
    assert not Side(2, 8, 4).is_covered


def test_windows_read_what_they_hold():
    image = np.arange(40.0).reshape(5, 8, 1)
    rows, cols = np.array([1, 0, 1]), np.array([7, 6, 7])
    np.testing.assert_array_equal(read_window(image, rows, cols), image[rows][:, cols])


def test_a_blend_of_positions_gives_back_positions():
    """Maps that hold the row of each cell blend to the rows of all cells."""
    sides = [Side(length, 16, 8) for length in (37, 50)]
    rows, cols = (Cells(side, 4, 1.5, slice(5, side.length)) for side in sides)
    blend = Blend(rows, cols, 1)
    for place in np.ndindex(sides[0].n_windows, sides[1].n_windows):
        if blend.needs(place):
            at = sides[0].first + place[0] * 8 + 1.5 + 4 * np.arange(4)
            blend.add(place, np.broadcast_to(at[:, None], (1, 4, 4)).astype(np.float32))
    values = blend.values()[0]
    expected = rows.position + rows.stride * np.arange(len(values))
    np.testing.assert_allclose(values, np.broadcast_to(expected[:, None], values.shape), rtol=1e-5)
    assert rows.stride == 4
    assert expected[0] <= 5 < expected[1]


def test_cells_weigh_most_in_the_middle_of_a_window():
    np.testing.assert_allclose(_hann(4), np.sin(np.pi * np.array([1, 3, 5, 7]) / 8) ** 2, rtol=1e-6)
