import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.features.windows import Blend, Cells, Side, places, read_window


@settings(max_examples=50)
@given(
    length=st.integers(12, 200),
    n_cells=st.integers(2, 6),
    hop=st.integers(1, 6),
    n_passes=st.sampled_from([1, 2]),
)
def test_every_pass_covers_the_image(length, n_cells, hop, n_passes):
    side = Side(length, 4 * n_cells, 4 * min(hop, n_cells), n_passes, 4 // n_passes)
    for number in range(n_passes):
        starts = [side.first + number * side.shift + index * side.hop for index in range(side.n_windows)]
        assert starts[0] <= 0
        assert starts[-1] + side.window >= length


def test_pixels_beyond_the_edges_are_mirrored():
    side = Side(5, 8, 4)
    assert side.first == -1
    assert side.pixels((0, 0)).tolist() == [1, 0, 1, 2, 3, 4, 3, 2]
    assert side.is_covered
    assert not Side(2, 8, 4).is_covered


def test_windows_read_what_they_hold():
    image = np.arange(40.0).reshape(5, 8, 1)
    rows, cols = np.array([1, 0, 1]), np.array([7, 6, 7])
    np.testing.assert_array_equal(read_window(image, rows, cols), image[rows][:, cols])


@pytest.mark.parametrize("n_passes", [1, 2])
def test_a_blend_of_positions_gives_back_positions(n_passes):
    """Maps that hold the row of each cell blend to the rows of all cells."""
    sides = [Side(length, 16, 8, n_passes, 4 // n_passes) for length in (37, 50)]
    rows, cols = (Cells(side, 4, 1.5, slice(5, side.length)) for side in sides)
    blend = Blend(rows, cols, 1)
    for place in places(*sides):
        if blend.needs(place):
            number, index = place[0]
            at = sides[0].first + number * sides[0].shift + index * 8 + 1.5 + 4 * np.arange(4)
            blend.add(place, np.broadcast_to(at[:, None], (1, 4, 4)).astype(np.float32))
    values = blend.values()[0]
    expected = rows.position + rows.stride * np.arange(len(values))
    np.testing.assert_allclose(values, np.broadcast_to(expected[:, None], values.shape), rtol=1e-5)
    assert rows.stride == 4 / n_passes
    assert expected[0] <= 5 < expected[1]
