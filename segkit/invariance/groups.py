"""Groups of transformations: the interface, the trivial group, compositions.

Every transformation here but one (`NormSortedPermutation`) is a linear map of arrays of one shape. `Group.act` applies
it and `Group.adjoint` its transpose, so that ``<act(g, x), y> = <x, adjoint(g, y)>``: features that project data on
templates can move the transformation from the many data to the few templates.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from segkit.errors import ConfigError, InputError
from segkit.invariance.laws import RandomGenerator
from segkit.kernels.base import FloatArray, as_samples

Array = NDArray[Any]
Matrix = NDArray[np.float64]
Element = Any
Shape = tuple[int, ...]


class Group(ABC):
    """Transformations of arrays of one shape, with a probability law on them.

    A window of a group (shifts up to 3 pixels, turns up to 20 degrees) serves too: models are
    then invariant to small transformations only.

    Attributes
    ----------
    n_axes : int
        Axes of one sample that the group acts on: 1 for vectors and signals, 2 for images and
        matrices. Further axes, such as colour, are carried along.
    is_unitary : bool
        Whether inner products are preserved exactly on the grid.
    has_adjoint : bool
        Whether templates can be transformed in place of the data.
    """

    n_axes: ClassVar[int] = 2
    is_unitary: ClassVar[bool] = True
    has_adjoint: ClassVar[bool] = True

    @abstractmethod
    def elements(self, shape: Shape) -> Sequence[Element]:
        """List all transformations of samples of that shape; a ConfigError says that there are too many to list."""

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n transformations of samples of that shape, independently; uniformly unless there is another law."""
        return pick(self.elements(shape), n, rng)

    @abstractmethod
    def act(self, element: Element, X: Array) -> Array:
        """Transform samples; (n, *shape) -> (n, *shape), same dtype."""

    @abstractmethod
    def adjoint(self, element: Element, X: Array) -> Array:
        """Apply the transpose of `act`, if there is one; (n, *shape) -> (n, *shape), same dtype."""

    def plane_map(self, element: Element) -> Matrix:  # noqa: ARG002
        """Compute the homogeneous matrix that moves (row, column) positions relative to the image centre; (3, 3)."""
        raise ConfigError(
            f"{self} does not move the points of an image: give turns, reflections or scalings, such as Rotation(16)"
        )

    def amplitude(self, element: Element) -> float:  # noqa: ARG002
        """Return the factor that a transformation of images multiplies intensities by."""
        return 1.0

    def check(self, shape: Shape) -> None:
        """Check that samples of that shape can be transformed; an InputError says what they should be."""
        if len(shape) < self.n_axes:
            raise InputError(
                f"samples of shape {shape}: {type(self).__name__} acts on {self.n_axes} axes; "
                f"give an array (n_samples, {', '.join('HW'[: self.n_axes])})"
            )


@dataclass(frozen=True)
class Identity(Group):
    """The group of one element, which leaves everything as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Identity
    >>> Identity().act(0, np.ones((1, 2)))
    array([[1., 1.]])
    """

    n_axes: ClassVar[int] = 0

    def elements(self, shape: Shape) -> Sequence[Element]:  # noqa: ARG002
        """List the one element."""
        return [0]

    def act(self, element: Element, X: Array) -> Array:  # noqa: ARG002
        """Return the samples themselves."""
        return X

    adjoint = act

    def plane_map(self, element: Element) -> Matrix:  # noqa: ARG002
        """Leave all points where they are."""
        return np.eye(3)


@dataclass(frozen=True)
class Composition(Group):
    """Transformations applied one after the other, for example a turn and then a shift.

    Parameters
    ----------
    groups : sequence of Group
        In the order in which they are applied.

    Notes
    -----
    An element is a tuple of one element of each group.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Composition, Dihedral, Translation
    >>> len(Composition((Dihedral(), Translation(max_shift=1))).elements((5, 5)))
    72
    """

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        groups = tuple(self.groups) if isinstance(self.groups, Iterable) else ()
        if not groups or not all(isinstance(group, Group) for group in groups):
            raise ConfigError(f"Composition({self.groups!r}): give a sequence of at least one group")
        object.__setattr__(self, "groups", groups)

    @property
    def n_axes(self) -> int:  # type: ignore[override]
        """Axes of a sample that the groups act on."""
        return max(group.n_axes for group in self.groups)

    @property
    def is_unitary(self) -> bool:  # type: ignore[override]
        """Whether every group preserves inner products exactly."""
        return all(group.is_unitary for group in self.groups)

    @property
    def has_adjoint(self) -> bool:  # type: ignore[override]
        """Whether every group can transform templates in place of the data."""
        return all(group.has_adjoint for group in self.groups)

    def check(self, shape: Shape) -> None:
        """Check that every group can transform samples of that shape."""
        for group in self.groups:
            group.check(shape)

    def elements(self, shape: Shape) -> Sequence[Element]:
        """List the products of the groups' elements, the last group's changing fastest."""
        return list(itertools.product(*(group.elements(shape) for group in self.groups)))

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n products of independent elements."""
        return list(zip(*(group.sample(n, shape, rng) for group in self.groups), strict=True))

    def act(self, element: Element, X: Array) -> Array:
        """Transform samples by each group in turn."""
        for group, part in zip(self.groups, element, strict=True):
            X = group.act(part, X)
        return X

    def adjoint(self, element: Element, X: Array) -> Array:
        """Apply the transposes in the opposite order."""
        for group, part in zip(reversed(self.groups), reversed(element), strict=True):
            X = group.adjoint(part, X)
        return X

    def plane_map(self, element: Element) -> Matrix:
        """Multiply the groups' matrices, the first group's on the right."""
        matrix = np.eye(3)
        for group, part in zip(self.groups, element, strict=True):
            matrix = group.plane_map(part) @ matrix
        return matrix

    def amplitude(self, element: Element) -> float:
        """Multiply the groups' factors."""
        parts = zip(self.groups, element, strict=True)
        return float(math.prod(group.amplitude(part) for group, part in parts))


def draw_elements(
    group: Group, n_transforms: int | None, shape: Shape, rng: RandomGenerator
) -> Sequence[Element]:
    """List the transformations, at least one, of samples of a shape that an estimator averages or maximises over.

    `n_transforms` of them are drawn by the law of the group; None takes all of a finite one. A ConfigError says that
    `n_transforms` is below 1, or that the group has no list; an InputError that it cannot act on such samples.
    """
    group.check(shape)
    if n_transforms is None:
        return group.elements(shape)
    if n_transforms < 1:
        raise ConfigError(f"n_transforms={n_transforms}: at least 1 transformation is needed")
    return group.sample(n_transforms, shape, rng)


def virtual_samples(
    X: ArrayLike,
    y: ArrayLike,
    group: Group,
    *,
    n_transforms: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[FloatArray, NDArray[Any]]:
    """Add transforms of labelled samples to them: virtual samples.

    Parameters
    ----------
    X : array-like of shape (n_samples, *shape)
        Samples, usually the support vectors of a first classifier.
    y : array-like of shape (n_samples,)
        Their labels.
    group : Group
        The transformations.
    n_transforms : int or None, default=None
        How many transformations to draw; None takes all of a finite group.
    random_state : int, RandomState instance or None, default=None
        Seed of that draw.

    Returns
    -------
    samples : ndarray of shape (n_virtual, *shape)
        The samples, then their transforms, element by element. Transforms equal to their sample are left out.
    labels : ndarray of shape (n_virtual,)
        Labels of all of them.

    References
    ----------
    D. DeCoste and B. Scholkopf, Training invariant support vector machines, 2002, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Translation, virtual_samples
    >>> samples, labels = virtual_samples(np.array([[[1, 0, 0]]]), ["bar"], Translation())
    >>> samples[:, 0].astype(int), labels
    (array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]]), array(['bar', 'bar', 'bar'], dtype='<U3'))
    """
    originals, given = as_samples(X), np.asarray(y)
    samples, labels = [originals], [given]
    for element in draw_elements(group, n_transforms, originals.shape[1:], check_random_state(random_state)):
        transformed = group.act(element, originals)
        moved = (transformed != originals).reshape(len(originals), -1).any(axis=1)
        samples.append(transformed[moved])
        labels.append(given[moved])
    return np.concatenate(samples), np.concatenate(labels)


class Similarity(NamedTuple):
    """A turn or reflection (2, 2) of (row, column) positions, an enlargement, and a factor of intensities."""

    turn: Matrix
    scale: float
    amplitude: float


def similarities(group: Group, shape: Shape) -> list[Similarity]:
    """List the turns, reflections and enlargements of which a group consists."""
    return [
        _similarity(group, group.plane_map(element), group.amplitude(element))
        for element in group.elements(shape)
    ]


def _similarity(group: Group, plane_map: Matrix, amplitude: float) -> Similarity:
    scale = np.sqrt(abs(np.linalg.det(plane_map[:2, :2])))
    # Rounding gives equal turns equal matrices, however they are composed.
    turn = (plane_map[:2, :2] / scale).round(14)
    if not np.allclose(turn @ turn.T, np.eye(2)) or plane_map[:2, 2].any():
        raise ConfigError(
            f"{group} does more than turn, reflect and enlarge about the centre: give such a group, as Rotation(16), "
            f"Dihedral() or Composition((Rotation(16), Scaling((0.9, 1, 1.1))))"
        )
    return Similarity(turn, float(scale.round(14)), round(amplitude, 14))


def pick(elements: Sequence[Element], n: int, rng: RandomGenerator) -> Sequence[Element]:
    """Draw n of the elements uniformly, with replacement."""
    # RandomState has no `integers`; a uniform number serves both kinds of generator.
    return [elements[int(index)] for index in np.floor(rng.uniform(0, len(elements), n))]


def cannot_list(group: Group) -> ConfigError:
    """Explain that a group has no list of elements."""
    return ConfigError(
        f"{group} has infinitely many elements: list some of them, as Rotation(24) does, or, where there is such an "
        f"option, give n_transforms, the number to draw"
    )
