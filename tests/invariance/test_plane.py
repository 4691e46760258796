import numpy as np
import pytest

from segkit.errors import ConfigError
from segkit.invariance import (
    Affine,
    Composition,
    Dihedral,
    Identity,
    LogNormal,
    Normal,
    Permutation,
    Reflection,
    Rotation,
    Scaling,
    Translation,
)
from segkit.invariance.groups import similarities

GROUPS = {
    "identity": Identity(),
    "translation": Translation(3),
    "dihedral": Dihedral(),
    "reflection": Reflection(),
    "quarter turns": Rotation(4),
    "turns": Rotation(7),
    "scaling": Scaling((0.7, 1.0, 1.5)),
    "scaling of intensities as they are": Scaling((0.7, 1.5), unitary=False),
    "composition": Composition((Reflection(), Rotation(5), Scaling((0.8, 1.2)))),
    "affine": Affine(rotation=Normal(20), scale=LogNormal(0.2), shear=Normal(0.1), shift=Normal(1)),
}


def blob(centre, shear, side=41):
    """A Gaussian of width 4 about a position relative to the centre, its axes moved by a matrix."""
    grid = np.indices((side, side)).reshape(2, -1) - (side - 1) / 2
    back = np.linalg.solve(shear, grid - np.asarray(centre)[:, None])
    return np.exp(-np.square(back).sum(axis=0) / 32).reshape(side, side)


@pytest.mark.parametrize("name", GROUPS)
def test_a_transformation_moves_points_as_its_matrix_says(name):
    group, centre, rng = GROUPS[name], np.array([4.0, -6.0]), np.random.default_rng(0)
    image = blob(centre, np.eye(2))
    for element in group.sample(6, (41, 41), rng):
        matrix = group.plane_map(element)
        moved = matrix @ [*centre, 1]
        expected = group.amplitude(element) * blob(moved[:2], matrix[:2, :2])
        np.testing.assert_allclose(group.act(element, image[None])[0], expected, atol=0.06)


def test_quarter_turns_and_reflections_are_whole_numbers():
    for group in (Dihedral(), Composition((Reflection(), Rotation(4))), Rotation((-90, 450, 180))):
        for element in group.elements((3, 3)):
            assert np.isin(group.plane_map(element), (-1, 0, 1)).all()
    eight = {similarity.turn.tobytes() for similarity in similarities(Dihedral(), (3, 3))}
    composed = similarities(Composition((Reflection(), Rotation(4))), (3, 3))
    assert {similarity.turn.tobytes() for similarity in composed} == eight
    assert len(eight) == 8


def test_compositions_are_split_into_turns_and_enlargements():
    found = similarities(Composition((Reflection(), Rotation(2), Scaling((0.9, 1.5)))), (5, 5))
    assert [similarity.scale for similarity in found] == [0.9, 1.5] * 4
    np.testing.assert_allclose([similarity.amplitude for similarity in found], [1 / 0.9, 1 / 1.5] * 4)
    expected = [[1, 1], [1, 1], [-1, -1], [-1, -1], [1, -1], [1, -1], [-1, 1], [-1, 1]]
    np.testing.assert_array_equal(
        [similarity.turn for similarity in found], [np.diag(row) for row in expected]
    )
    plain = similarities(Scaling((2.0,), unitary=False), (5, 5))
    assert [(similarity.scale, similarity.amplitude) for similarity in plain] == [(2.0, 1.0)]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (
            Permutation(),
            "Permutation() does not move the points of an image: give turns, reflections or scalings",
        ),
        (Translation(1), "does more than turn, reflect and enlarge about the centre: give such a group"),
        (Rotation(), "has infinitely many elements: list some of them, as Rotation(24) does"),
    ],
    ids=repr,
)
def test_other_groups_are_refused(group, message):
    with pytest.raises(ConfigError) as caught:
        similarities(group, (3, 3))
    assert message in str(caught.value)
