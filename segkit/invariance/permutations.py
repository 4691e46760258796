"""Reorderings: of the entries of a vector, and of rows and columns of a matrix together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from segkit.errors import ConfigError, InputError
from segkit.invariance.groups import Array, Element, Group, Shape, cannot_list
from segkit.invariance.laws import RandomGenerator

# 8! is 40,320 elements, 9! would be 362,880.
LONGEST_LISTED = 8


@dataclass(frozen=True)
class Permutation(Group):
    """Permutations of the entries of a vector (of the first axis of a sample).

    Notes
    -----
    An element is an array p of positions; ``act(p, x)[i] = x[p[i]]``.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Permutation
    >>> Permutation().act(np.array([2, 0, 1]), np.array([[10, 20, 30]]))
    array([[30, 10, 20]])
    """

    n_axes: ClassVar[int] = 1

    def elements(self, shape: Shape) -> Sequence[Element]:
        """List all permutations of up to 8 entries."""
        if shape[0] > LONGEST_LISTED:
            raise ConfigError(
                f"Permutation of {shape[0]} entries has {math.factorial(shape[0]):.3g} elements: "
                f"give n_transforms, the number to draw"
            )
        return [np.array(order) for order in itertools.permutations(range(shape[0]))]

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n permutations uniformly."""
        return [rng.permutation(shape[0]) for _ in range(n)]

    def act(self, element: Element, X: Array) -> Array:
        """Reorder the entries."""
        return X[:, element]

    def adjoint(self, element: Element, X: Array) -> Array:
        """Reorder them back."""
        return X[:, np.argsort(element)]


@dataclass(frozen=True)
class NormSortedPermutation(Group):
    """Random orders of the rows and columns of a matrix, near that of decreasing row norms.

    The order depends on the matrix itself: its row norms, disturbed by Gaussian noise, are sorted.
    Such a transformation has no adjoint: estimators transform the data.

    Parameters
    ----------
    noise : float, default=1.0
        Standard deviation of the noise on the norms, in their unit, >= 0; 0 sorts exactly.

    Notes
    -----
    An element is the noise on each row. `act` takes float matrices (n, d, d).

    References
    ----------
    G. Montavon et al., Learning invariant representations of molecules for atomization energy
    prediction, 2012 (random Coulomb matrices), as used in A. Raj et al. 2017, section 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import NormSortedPermutation
    >>> matrix = np.array([[[1.0, 0.0], [0.0, 5.0]]])
    >>> NormSortedPermutation(noise=0.0).act(np.zeros(2), matrix)
    array([[[5., 0.],
            [0., 1.]]])
    """

    noise: float = 1.0

    is_unitary: ClassVar[bool] = False  # each matrix has an order of its own
    has_adjoint: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"NormSortedPermutation(noise={self.noise}): noise must be finite and >= 0")

    def check(self, shape: Shape) -> None:
        """Check that matrices are square."""
        super().check(shape)
        if len(shape) != 2 or shape[0] != shape[1]:
            raise InputError(
                f"samples of shape {shape}: NormSortedPermutation acts on square matrices; give (n_samples, d, d)"
            )

    def elements(self, shape: Shape) -> Sequence[Element]:
        """List the one sort without noise."""
        if self.noise:
            raise cannot_list(self)
        return [np.zeros(shape[0])]

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n noise vectors."""
        return list(rng.normal(0.0, self.noise, (n, shape[0])))

    def act(self, element: Element, X: Array) -> Array:
        """Sort rows and columns of each matrix by its disturbed row norms, largest first."""
        order = np.argsort(-(np.linalg.norm(X, axis=2) + element), axis=1, kind="stable")
        rows = np.take_along_axis(X, order[:, :, None], axis=1)
        return np.take_along_axis(rows, order[:, None, :], axis=2)

    def adjoint(self, element: Element, X: Array) -> Array:  # noqa: ARG002
        """Refuse: there is none."""
        raise InputError(f"{self} has no adjoint, the order depending on the data: transform the data")
