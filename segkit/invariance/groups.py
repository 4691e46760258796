"""Groups of transformations: the interface, the trivial group, compositions.

Every transformation here is a linear map of arrays of one shape. `Group.act` applies it and
`Group.adjoint` its transpose, so that ``<act(g, x), y> = <x, adjoint(g, y)>``: features that
project data on templates can move the transformation from the many data to the few templates.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from segkit.errors import ConfigError, InputError
from segkit.invariance.laws import Law, RandomGenerator

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
    """

    n_axes: ClassVar[int]

    @property
    @abstractmethod
    def is_finite(self) -> bool:
        """Whether `elements` can list all transformations."""

    @property
    @abstractmethod
    def is_unitary(self) -> bool:
        """Whether inner products are preserved exactly on the grid."""

    @property
    def has_adjoint(self) -> bool:
        """Whether templates can be transformed in place of the data."""
        return True

    @abstractmethod
    def elements(self, shape: Shape) -> Sequence[Element]:
        """List all transformations of samples of that shape.

        Raises
        ------
        ConfigError
            If there are infinitely many, or far too many to list.
        """

    @abstractmethod
    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n transformations of samples of that shape, independently."""

    @abstractmethod
    def act(self, element: Element, X: Array) -> Array:
        """Transform samples; (n, *shape) -> (n, *shape), same dtype."""

    @abstractmethod
    def adjoint(self, element: Element, X: Array) -> Array:
        """Apply the transpose of `act`; (n, *shape) -> (n, *shape), same dtype.

        Raises
        ------
        InputError
            If the transformation has no transpose, because it depends on the sample.
        """

    @abstractmethod
    def inverse(self, element: Element) -> Element:
        """Return the transformation that undoes this one, up to interpolation and losses at the edges."""

    def plane_map(self, element: Element) -> Matrix:  # noqa: ARG002
        """Describe where a transformation moves the points of an image.

        Parameters
        ----------
        element : object
            The transformation.

        Returns
        -------
        ndarray of shape (3, 3), float64
            Homogeneous matrix that moves (row, column) positions relative to the image centre.

        Raises
        ------
        ConfigError
            If the group is not one of maps of the plane.
        """
        raise ConfigError(
            f"{self} does not move the points of an image: give turns, reflections or scalings, such as Rotation(16)"
        )

    def amplitude(self, element: Element) -> float:  # noqa: ARG002
        """Return the factor that a transformation of images multiplies intensities by."""
        return 1.0

    def check(self, shape: Shape) -> None:
        """Check that samples of that shape can be transformed.

        Parameters
        ----------
        shape : tuple of int
            Shape of one sample.

        Raises
        ------
        InputError
            If they cannot.
        """
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

    @property
    def is_finite(self) -> bool:
        """Whether all transformations can be listed: yes."""
        return True

    @property
    def is_unitary(self) -> bool:
        """Whether inner products are preserved: yes."""
        return True

    def elements(self, shape: Shape) -> Sequence[Element]:  # noqa: ARG002
        """List the one element."""
        return [0]

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:  # noqa: ARG002
        """Draw the one element n times."""
        return [0] * n

    def act(self, element: Element, X: Array) -> Array:  # noqa: ARG002
        """Return the samples themselves."""
        return X

    def adjoint(self, element: Element, X: Array) -> Array:  # noqa: ARG002
        """Return the samples themselves."""
        return X

    def inverse(self, element: Element) -> Element:
        """Return the element itself."""
        return element

    def plane_map(self, element: Element) -> Matrix:  # noqa: ARG002
        """Leave all points where they are."""
        return np.eye(3)


class OneParameterGroup(Group):
    """Transformations with one parameter, which is listed or drawn by a law."""

    law: Law | None
    positive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_law(self, "law", self.law)

    @property
    @abstractmethod
    def listed(self) -> tuple[float, ...] | None:
        """The numbers, or None where the law draws them."""

    @property
    @abstractmethod
    def default_law(self) -> Law:
        """Law that draws the number where neither numbers nor a law are given."""

    @property
    def is_finite(self) -> bool:
        """Whether the numbers are listed."""
        return self.listed is not None

    def elements(self, shape: Shape) -> Sequence[Element]:  # noqa: ARG002
        """List the numbers."""
        if self.listed is None:
            raise cannot_list(self)
        return self.listed

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n numbers, uniformly where they are listed."""
        if self.listed is not None:
            return pick(self.elements(shape), n, rng)
        law = self.default_law if self.law is None else self.law
        return draw_numbers(law, n, rng, positive=self.positive)

    def _store_listed(self, name: str) -> None:
        """Make the option `name` a tuple of floats and check it."""
        given = getattr(self, name)
        numbers = tuple(float(number) for number in given) if isinstance(given, Iterable) else ()
        if not numbers or not all(_is_fit(number, positive=self.positive) for number in numbers):
            needed = "positive and finite" if self.positive else "finite"
            raise ConfigError(
                f"{type(self).__name__}({name}={given}): give at least one number, all {needed}"
            )
        object.__setattr__(self, name, numbers)
        if self.law is not None:
            raise ConfigError(f"{self}: give {name} or a law of them, not both")


@dataclass(frozen=True)
class Composition(Group):
    """Transformations applied one after the other, for example a turn and then a shift.

    Parameters
    ----------
    groups : sequence of Group
        In the order in which they are applied.

    Raises
    ------
    ConfigError
        If there is no group.

    Notes
    -----
    An element is a tuple of pairs (position of a group, its element) in order of application, so
    that inverses, which are applied in the opposite order, are elements too.

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
    def is_finite(self) -> bool:
        """Whether all transformations can be listed."""
        return all(group.is_finite for group in self.groups)

    @property
    def is_unitary(self) -> bool:
        """Whether every group preserves inner products exactly."""
        return all(group.is_unitary for group in self.groups)

    @property
    def has_adjoint(self) -> bool:
        """Whether every group can transform templates in place of the data."""
        return all(group.has_adjoint for group in self.groups)

    def check(self, shape: Shape) -> None:
        """Check that every group can transform samples of that shape."""
        for group in self.groups:
            group.check(shape)

    def elements(self, shape: Shape) -> Sequence[Element]:
        """List the products of the groups' elements, the last group's changing fastest."""
        lists = (group.elements(shape) for group in self.groups)
        return [tuple(enumerate(choice)) for choice in itertools.product(*lists)]

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n products of independent elements."""
        draws = [group.sample(n, shape, rng) for group in self.groups]
        return [tuple(enumerate(choice)) for choice in zip(*draws, strict=True)]

    def act(self, element: Element, X: Array) -> Array:
        """Transform samples by each group in turn."""
        for position, part in element:
            X = self.groups[position].act(part, X)
        return X

    def adjoint(self, element: Element, X: Array) -> Array:
        """Apply the transposes in the opposite order."""
        for position, part in reversed(element):
            X = self.groups[position].adjoint(part, X)
        return X

    def inverse(self, element: Element) -> Element:
        """Invert each part, to be applied in the opposite order."""
        return tuple((position, self.groups[position].inverse(part)) for position, part in reversed(element))

    def plane_map(self, element: Element) -> Matrix:
        """Multiply the groups' matrices, the first group's on the right."""
        matrix = np.eye(3)
        for position, part in element:
            matrix = self.groups[position].plane_map(part) @ matrix
        return matrix

    def amplitude(self, element: Element) -> float:
        """Multiply the groups' factors."""
        return float(math.prod(self.groups[position].amplitude(part) for position, part in element))


def draw_elements(
    group: Group, n_transforms: int | None, shape: Shape, rng: RandomGenerator
) -> Sequence[Element]:
    """List the transformations an estimator averages or maximises over.

    Parameters
    ----------
    group : Group
        The group.
    n_transforms : int or None
        How many elements to draw by the law of the group; None takes all elements of a finite one.
    shape : tuple of int
        Shape of one sample.
    rng : Generator or RandomState
        Where the draws come from.

    Returns
    -------
    sequence
        At least one element.

    Raises
    ------
    ConfigError
        If `n_transforms` is below 1, or None with a group that cannot be listed.
    InputError
        If the group cannot act on samples of that shape.
    """
    group.check(shape)
    if n_transforms is None:
        return group.elements(shape)
    if n_transforms < 1:
        raise ConfigError(f"n_transforms={n_transforms}: at least 1 transformation is needed")
    return group.sample(n_transforms, shape, rng)


def pick(elements: Sequence[Element], n: int, rng: RandomGenerator) -> Sequence[Element]:
    """Draw n of the elements uniformly, with replacement."""
    # RandomState has no `integers`; a uniform number serves both kinds of generator.
    return [elements[int(index)] for index in np.floor(rng.uniform(0, len(elements), n))]


def draw_numbers(law: Law, n: int, rng: RandomGenerator, *, positive: bool = False) -> list[float]:
    """Draw n numbers by a law and check them."""
    numbers = [float(number) for number in law.sample(n, rng)]
    unfit = [number for number in numbers if not _is_fit(number, positive=positive)]
    if unfit:
        needed = "positive and finite" if positive else "finite"
        raise ConfigError(f"{law} drew {unfit[0]:g} where a {needed} number is needed: take another law")
    return numbers


def check_law(group: Group, name: str, law: Any) -> None:
    """Check that an option is a law or None."""
    # A group draws too, but transformations and not numbers.
    if law is not None and (isinstance(law, Group) or not isinstance(law, Law)):
        raise ConfigError(f"{type(group).__name__}({name}={law!r}): give a law, such as Normal(10), or None")


def cannot_list(group: Group) -> ConfigError:
    """Explain that a group has no list of elements."""
    return ConfigError(
        f"{group} has infinitely many elements: list some of them, as Rotation(24) does, or, where there is such an "
        f"option, give n_transforms, the number to draw"
    )


def _is_fit(number: float, *, positive: bool) -> bool:
    return math.isfinite(number) and (number > 0 or not positive)
