"""What every group promises: axioms, adjoints, unitarity, uniform draws."""

import numpy as np
import pytest

from segkit.errors import ConfigError, InputError
from segkit.invariance import (
    Affine,
    Composition,
    Dihedral,
    Identity,
    LogNormal,
    Normal,
    NormSortedPermutation,
    Permutation,
    Reflection,
    Rotation,
    Scaling,
    Translation,
    draw_elements,
    virtual_samples,
)
from segkit.invariance.groups import similarities

EXACT = {
    "identity": (Identity(), (3,)),
    "translation": (Translation(), (4, 3)),
    "dihedral": (Dihedral(), (4, 4)),
    "reflection": (Reflection(), (4, 5)),
    "reflected quarter turns": (Composition((Reflection(), Rotation(4))), (4, 4)),
    "quarter turns": (Rotation(4), (5, 5)),
    "permutation": (Permutation(), (4,)),
    "permutation of the first axis": (Permutation(), (3, 2)),
}
LINEAR = EXACT | {
    "colour": (Dihedral(), (3, 3, 2)),
    "window": (Translation(max_shift=(2, 1)), (5, 6)),
    "zero-filled": (Translation(max_shift=2, mode="zero"), (5, 6)),
    "rotation": (Rotation(7), (6, 5)),
    "rotation of colours": (Rotation(7), (6, 5, 3)),
    "scaling": (Scaling((0.7, 1.0, 1.6)), (6, 6)),
    "affine": (Affine(rotation=Normal(20), scale=LogNormal(0.2), shear=Normal(0.2), shift=Normal(1)), (6, 7)),
    "composition": (Composition((Rotation(5), Translation(max_shift=1))), (5, 5)),
}


def some_elements(group, shape, n=6):
    return group.sample(n, shape, np.random.default_rng(0))


@pytest.mark.parametrize("name", EXACT)
def test_axioms_of_the_exact_groups(name):
    group, shape = EXACT[name]
    x = np.random.default_rng(1).normal(size=(1, *shape))
    elements = group.elements(shape)
    orbit = {group.act(g, x).tobytes() for g in elements}
    assert len(orbit) == len(elements)
    assert x.tobytes() in orbit
    for g in some_elements(group, shape):
        moved = group.act(g, x)
        np.testing.assert_array_equal(group.adjoint(g, moved), x)
        assert {group.act(h, moved).tobytes() for h in elements} == orbit


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adjoint_is_the_transpose(name, dtype):
    group, shape = LINEAR[name]
    assert group.has_adjoint
    rng = np.random.default_rng(2)
    x, y = before = rng.normal(size=(2, 3, *shape)).astype(dtype)
    before = before.copy()
    for g in some_elements(group, shape):
        moved, back = group.act(g, x), group.adjoint(g, y)
        assert moved.shape == back.shape == x.shape
        assert moved.dtype == back.dtype == dtype
        np.testing.assert_allclose(
            np.vdot(moved, y), np.vdot(x, back), rtol=1e-4 if dtype == np.float32 else 1e-10
        )
    np.testing.assert_array_equal((x, y), before)


@pytest.mark.parametrize("name", LINEAR)
def test_is_unitary_tells_whether_inner_products_stay(name):
    group, shape = LINEAR[name]
    x, y = np.random.default_rng(3).normal(size=(2, 1, *shape))
    kept = [
        np.isclose(np.vdot(group.act(g, x), group.act(g, y)), np.vdot(x, y), rtol=1e-12)
        for g in some_elements(group, shape, n=20)
    ]
    assert all(kept) == group.is_unitary


@pytest.mark.parametrize("name", EXACT)
def test_draws_are_uniform_over_the_listed_elements(name):
    group, shape = EXACT[name]
    x = np.random.default_rng(6).normal(size=(1, *shape))
    position = {group.act(g, x).tobytes(): n for n, g in enumerate(group.elements(shape))}
    draws = group.sample(6000, shape, np.random.RandomState(0))
    counts = np.bincount([position[group.act(g, x).tobytes()] for g in draws], minlength=len(position))
    expected = 6000 / len(position)
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    # mean n - 1, variance 2 (n - 1)
    assert chi_squared < len(position) - 1 + 5 * np.sqrt(2 * len(position))


def test_composition_applies_first_to_last():
    group = Composition((Dihedral(), Translation()))
    x = np.random.default_rng(7).normal(size=(1, 4, 4))
    turn, shift = (1, True), (1, 2)
    element = (turn, shift)
    expected = Translation().act(shift, Dihedral().act(turn, x))
    np.testing.assert_array_equal(group.act(element, x), expected)
    np.testing.assert_array_equal(group.adjoint(element, expected), x)
    assert group.is_unitary
    assert group.n_axes == 2
    assert len(group.elements((4, 4))) == 8 * 16
    assert element in group.elements((4, 4))


def test_composition_is_no_more_than_its_parts():
    group = Composition((NormSortedPermutation(), Permutation()))
    assert not group.has_adjoint
    assert not group.is_unitary
    for groups in ((), (1,), Dihedral()):
        with pytest.raises(ConfigError, match="at least one group"):
            Composition(groups)


def test_draw_elements():
    rng = np.random.default_rng(0)
    assert len(draw_elements(Dihedral(), None, (3, 3), rng)) == 8
    assert len(draw_elements(Dihedral(), 5, (3, 3), rng)) == 5
    with pytest.raises(ConfigError, match="n_transforms=0: at least 1"):
        draw_elements(Dihedral(), 0, (3, 3), rng)
    for group, shape in [
        (Rotation(), (3, 3)),
        (Affine(), (3, 3)),
        (NormSortedPermutation(), (3, 3)),
        (Permutation(), (9,)),
    ]:
        with pytest.raises(ConfigError, match="give n_transforms"):
            draw_elements(group, None, shape, rng)


@pytest.mark.parametrize(
    ("group", "shape", "message"),
    [
        (Translation(), (9,), r"samples of shape \(9,\): Translation acts on 2 axes"),
        (Dihedral(), (3, 4), "needs square images; crop or pad"),
        (Rotation(4), (3, 4), "needs square images"),
        (NormSortedPermutation(), (3, 4), "acts on square matrices"),
        (NormSortedPermutation(), (3,), "acts on 2 axes"),
        (Composition((Identity(), Dihedral())), (3, 4), "needs square images"),
    ],
)
def test_shapes_a_group_cannot_act_on(group, shape, message):
    with pytest.raises(InputError, match=message):
        draw_elements(group, 1, shape, np.random.default_rng(0))


def test_a_composition_needs_the_axes_of_the_part_that_needs_most():
    assert Composition((Permutation(), Dihedral())).n_axes == 2
    assert Composition((Dihedral(), Permutation())).n_axes == 2


def test_virtual_samples_are_transforms_that_differ_from_their_sample():
    X = np.random.default_rng(8).normal(size=(2, 4, 4)).astype(np.float32)
    X[1] = 1
    samples, labels = virtual_samples(X, [5, 6], Dihedral())
    assert labels.tolist() == [5, 6] + 7 * [5]
    assert samples.dtype == np.float32
    np.testing.assert_array_equal(samples[:2], X)
    np.testing.assert_array_equal(samples[2], np.rot90(X[0]))


def test_virtual_samples_are_drawn_by_the_seed():
    X = np.random.default_rng(9).normal(size=(3, 5, 5))
    first, again, other = (
        virtual_samples(X, range(3), Rotation(), n_transforms=3, random_state=seed)[0] for seed in (0, 0, 1)
    )
    assert len(first) == 4 * len(X)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


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
