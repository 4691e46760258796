import math

import numpy as np
import pytest

from segkit.features import OrbitAveraged, PositionBank


@pytest.mark.parametrize("shape", [(4, 7), (1, 3), (1, 1), (6, 6, 5)])
def test_distance_is_in_half_sides_from_the_centre(rng, shape):
    height, width = shape[:2]
    found = PositionBank().dense(rng.random(shape))
    assert found.shape == (1, height, width)
    for row, col in np.ndindex(height, width):
        up, left = (row + 0.5 - height / 2) / (height / 2), (col + 0.5 - width / 2) / (width / 2)
        assert found[0, row, col] == pytest.approx(math.sqrt(up**2 + left**2), abs=1e-6)


def test_size_does_not_matter():
    """Three pixels cover one: the middle one lies where it does."""
    bank = PositionBank()
    np.testing.assert_allclose(
        bank.dense(np.zeros((15, 21)))[:, 1::3, 1::3], bank.dense(np.zeros((5, 7))), atol=1e-6
    )


def test_symmetries_of_the_square_change_nothing(rng):
    image = rng.random((8, 11))
    np.testing.assert_allclose(
        OrbitAveraged(PositionBank()).dense(image), PositionBank().dense(image), atol=1e-6
    )
