import numpy as np
import pytest

from segkit.errors import ConfigError, InputError
from segkit.invariance import NormSortedPermutation, Permutation


def test_permutation_of_the_first_axis_carries_the_others_along():
    x = np.arange(12).reshape(1, 3, 4)
    np.testing.assert_array_equal(Permutation().act(np.array([2, 0, 1]), x)[0], x[0][[2, 0, 1]])


@pytest.fixture
def matrices():
    x = np.random.default_rng(1).normal(size=(5, 6, 6))
    return x + x.transpose(0, 2, 1)


def test_sort_without_noise_is_by_norm_and_ignores_the_order_given(matrices):
    group = NormSortedPermutation(noise=0.0)
    [element] = group.elements((6, 6))
    moved = group.act(element, matrices)
    norms = np.linalg.norm(moved, axis=2)
    assert (np.diff(norms, axis=1) <= 0).all()
    np.testing.assert_allclose(moved, moved.transpose(0, 2, 1))
    order = [3, 1, 0, 2, 5, 4]
    shuffled = matrices[:, order][:, :, order]
    np.testing.assert_allclose(group.act(element, shuffled), moved)


def test_noise_disturbs_the_order_in_proportion(matrices):
    def share_out_of_order(noise):
        group = NormSortedPermutation(noise=noise)
        norms = [
            np.linalg.norm(group.act(g, matrices), axis=2)
            for g in group.sample(200, (6, 6), np.random.default_rng(0))
        ]
        return (np.diff(norms, axis=2) > 0).mean()

    assert 0 < share_out_of_order(0.1) < share_out_of_order(1.0) < share_out_of_order(100.0)
    assert share_out_of_order(100.0) == pytest.approx(0.5, abs=0.05)


def test_sorting_keeps_each_matrix_up_to_a_permutation(matrices):
    group = NormSortedPermutation()
    [element] = group.sample(1, (6, 6), np.random.default_rng(0))
    moved = group.act(element, matrices)
    np.testing.assert_allclose(np.linalg.eigvalsh(moved), np.linalg.eigvalsh(matrices))


def test_what_depends_on_the_data_has_no_adjoint(matrices):
    group = NormSortedPermutation()
    assert not group.has_adjoint
    with pytest.raises(InputError, match=r"has no adjoint.*transform the data"):
        group.adjoint(np.zeros(6), matrices)


def test_bad_noise():
    with pytest.raises(ConfigError, match="must be finite and >= 0"):
        NormSortedPermutation(noise=-1.0)


def test_too_many_to_list():
    with pytest.raises(ConfigError, match=r"of 23 entries has 2\.59e\+22 elements: give n_transforms"):
        Permutation().elements((23, 23))
