from dataclasses import dataclass

import numpy as np
import pytest
from scipy import ndimage

from segkit.errors import ConfigError, InputError
from segkit.invariance import Affine, Dihedral, LogNormal, Normal, Rotation, Scaling, Translation, Uniform


@pytest.fixture
def images():
    return np.random.default_rng(0).normal(size=(3, 7, 6))


@pytest.mark.parametrize("shift", [(0, 0), (2, -3), (-1, 0), (6, 5), (0, 1)])
def test_translation_against_loops(images, shift):
    circular, zero = np.zeros_like(images), np.zeros_like(images)
    for row, col in np.ndindex(7, 6):
        target = row + shift[0], col + shift[1]
        circular[:, target[0] % 7, target[1] % 6] = images[:, row, col]
        if 0 <= target[0] < 7 and 0 <= target[1] < 6:
            zero[:, target[0], target[1]] = images[:, row, col]
    np.testing.assert_array_equal(Translation().act(shift, images), circular)
    np.testing.assert_array_equal(Translation(max_shift=6, mode="zero").act(shift, images), zero)


def test_translation_windows():
    assert len(Translation().elements((7, 6))) == 42
    assert Translation(max_shift=1).elements((7, 6)) == [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1)]
    assert Translation(max_shift=(0, 1)).elements((6, 7)) == [(0, -1), (0, 0), (0, 1)]


def test_circular_shifts_are_listed_once():
    assert len(Translation(max_shift=2).elements((3, 3))) == 9
    assert len(Translation(max_shift=2, mode="zero").elements((3, 3))) == 25
    assert Translation(np.int64(1)).elements((7, 6)) == Translation(1).elements((7, 6))
    assert Rotation(np.int64(4)) == Rotation(4)


def test_half_turns_need_no_square(images):
    group = Rotation((0.0, 180.0))
    group.check((7, 6))
    np.testing.assert_array_equal(group.act(180.0, images), images[:, ::-1, ::-1])
    with pytest.raises(InputError, match="square"):
        Rotation(4).check((7, 6))


def test_laws_must_draw_what_the_group_needs():
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match=r"Normal\(sigma=1\) drew -.* positive and finite number is needed"):
        Affine(scale=Normal(1)).sample(50, (5, 5), rng)
    assert len(Affine(shift=Normal(1)).sample(50, (5, 5), rng)) == 50


def test_dihedral_elements_are_the_named_ones(images):
    square = images[:, :6]
    np.testing.assert_array_equal(Dihedral().act((1, False), square), np.rot90(square, axes=(1, 2)))
    np.testing.assert_array_equal(Dihedral().act((0, True), square), square[:, :, ::-1])


@pytest.mark.parametrize("angle", [90, 180.0, 270, -90, 360])
def test_quarter_turns_are_exact_and_as_scipy_turns(images, angle):
    square = images[:, :6]
    turned = Rotation((angle,)).act(angle, square)
    expected = np.rot90(square, round(angle / 90), axes=(1, 2))
    np.testing.assert_array_equal(turned, expected)
    np.testing.assert_allclose(ndimage.rotate(square, angle, axes=(2, 1), reshape=False), expected, atol=1e-9)
    # The interpolation matrix agrees with the exact path, in direction too.
    np.testing.assert_allclose(super(Rotation, Rotation()).act(angle, square), expected, atol=1e-12)


@pytest.mark.parametrize("angle", [17.0, -40.0, 200.0])
def test_bilinear_rotation_against_scipy(images, angle):
    expected = ndimage.rotate(
        images, angle, axes=(2, 1), reshape=False, order=1, mode="grid-constant", prefilter=False
    )
    np.testing.assert_allclose(Rotation().act(angle, images), expected, atol=1e-9)


def test_cubic_rotation_is_scipys(images):
    group = Rotation(range(-10, 10), order=3)
    assert not group.has_adjoint
    assert len(group.elements((7, 6))) == 20
    expected = np.stack([ndimage.rotate(image, -7, order=3, reshape=False) for image in images])
    np.testing.assert_allclose(group.act(-7.0, images), expected)
    with pytest.raises(InputError, match=r"no adjoint.*take order=1"):
        group.adjoint(-7.0, images)


def test_angles_are_uniform_or_listed():
    haar = np.array(Rotation().sample(4000, (5, 5), np.random.default_rng(0)))
    assert abs(np.exp(1j * np.radians(haar)).mean()) < 4 / np.sqrt(4000)
    assert set(Rotation(3).sample(50, (5, 5), np.random.default_rng(0))) == {0.0, 120.0, 240.0}


def test_affine_follows_its_laws():
    drawn = Affine(scale=LogNormal(0.3), rotation=Uniform(-20, 20)).sample(
        4000, (5, 5), np.random.default_rng(0)
    )
    factors = [np.sqrt(np.linalg.det(matrix[:2, :2])) for matrix in drawn]
    assert np.std(np.log(factors)) == pytest.approx(0.3, rel=0.05)
    angles = [np.degrees(np.arctan2(matrix[1, 0], matrix[0, 0])) for matrix in drawn]
    assert -20 <= min(angles) < -15 < 15 < max(angles) <= 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Translation(mode="wrap"), "choose circular or zero"),
        (lambda: Translation(mode="zero"), "needs max_shift"),
        (lambda: Translation(max_shift=(1, -1)), "one or two whole numbers"),
        (lambda: Translation(max_shift=(1, 2, 3)), "one or two whole numbers"),
        (lambda: Translation(max_shift=1.5), "one or two whole numbers"),
        (lambda: Rotation(0), "at least one number"),
        (lambda: Rotation(()), "at least one number"),
        (lambda: Rotation(90.0), "at least one number"),
        (lambda: Affine(rotation=Rotation()), "give a law"),
        (lambda: Affine(rotation=10.0), "give a law"),
        (lambda: Rotation((np.nan,)), "all finite"),
        (lambda: Rotation(order=2), "choose 1"),
        (lambda: Scaling(()), "at least one number"),
        (lambda: Scaling((0.0,)), "all positive"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@dataclass(frozen=True)
class Always:
    """A law of given numbers in turn."""

    numbers: tuple[float, ...]

    def sample(self, n, rng):
        drawn = np.resize(self.numbers, n)
        object.__setattr__(self, "numbers", self.numbers[n:] or self.numbers)
        return drawn


def test_affine_shears_first_then_scales_turns_and_shifts():
    group = Affine(
        rotation=Always((90.0,)), scale=Always((2.0,)), shear=Always((0.5,)), shift=Always((3.0, -1.0))
    )
    [matrix] = group.sample(1, (9, 9), np.random.default_rng(0))
    turn = Rotation().plane_map(90.0)
    by_hand = turn @ np.diag([2, 2, 1]) @ np.array([[1, 0, 0], [0.5, 1, 0], [0, 0, 1]])
    by_hand[:2, 2] = 3, -1
    np.testing.assert_allclose(matrix, by_hand, atol=1e-12)


def test_shifts_are_drawn_without_listing_them_all():
    drawn = Translation().sample(2000, (10_000, 20_000), np.random.default_rng(0))
    rows, cols = np.array(drawn).T
    assert rows.max() < 10_000 < cols.max() < 20_000
    np.testing.assert_allclose([rows.mean(), cols.mean()], [5_000, 10_000], rtol=0.05)
    window = Translation(max_shift=(1, 2))
    assert set(window.sample(500, (9, 9), np.random.default_rng(0))) == set(window.elements((9, 9)))
