"""Transformations of images: shifts, turns, reflections, scalings and their affine compositions.

Images are (n, H, W) or (n, H, W, C). Shifts, quarter turns and reflections move pixels and are
exact. Everything else interpolates: bilinearly, as a sparse matrix whose transpose is the exact
adjoint, so inner products move from data to templates without error although the map is not unitary.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse

from segkit._common import is_whole
from segkit.errors import ConfigError, InputError
from segkit.invariance.groups import Array, Element, Group, Matrix, Shape, cannot_list, pick
from segkit.invariance.laws import Law, RandomGenerator, Uniform


@dataclass(frozen=True)
class Translation(Group):
    """Shifts of an image by whole pixels.

    Parameters
    ----------
    max_shift : int, (int, int) or None, default=None
        Largest shift down or up and right or left, in pixels; None is every circular shift.
    mode : {"circular", "zero"}, default="circular"
        Pixels that leave at one edge enter at the other, or are lost and zeros enter.

    Notes
    -----
    An element is (rows, columns), positive downwards and to the right. Turns of images on a polar grid
    (`skimage.transform.warp_polar`) of n angles are ``Translation((n // 2, 0))``.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Translation
    >>> Translation().act((0, 1), np.array([[[1, 2, 3]]]))
    array([[[3, 1, 2]]])
    """

    max_shift: int | tuple[int, int] | None = None
    mode: str = "circular"

    def __post_init__(self) -> None:
        if self.mode not in ("circular", "zero"):
            raise ConfigError(f"Translation(mode={self.mode!r}): choose circular or zero")
        if self.max_shift is None and self.mode == "zero":
            raise ConfigError("Translation(mode='zero') needs max_shift, in pixels")
        if len(self._windows) != 2 or not all(is_whole(window, least=0) for window in self._windows):
            raise ConfigError(f"Translation(max_shift={self.max_shift}): give one or two whole numbers >= 0")

    @property
    def is_unitary(self) -> bool:  # type: ignore[override]
        """Whether inner products are preserved: by circular shifts."""
        return self.mode == "circular"

    def shifts(self, shape: Shape) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """List the shifts along rows and along columns of which the elements are all pairs."""
        if self.max_shift is None:
            return np.arange(shape[0]), np.arange(shape[1])
        rows, cols = (np.arange(-window, window + 1) for window in self._windows)
        if self.mode == "circular":
            rows, cols = _distinct(rows, shape[0]), _distinct(cols, shape[1])
        return rows, cols

    def elements(self, shape: Shape) -> Sequence[Element]:
        """List all shifts, that along columns changing fastest."""
        rows, cols = self.shifts(shape)
        return [(int(row), int(col)) for row in rows for col in cols]

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n shifts uniformly, without listing all pairs."""
        rows, cols = self.shifts(shape)
        pairs = pick(range(rows.size * cols.size), n, rng)
        return [(int(rows[pair // cols.size]), int(cols[pair % cols.size])) for pair in pairs]

    def act(self, element: Element, X: Array) -> Array:
        """Shift images."""
        shifted: Array = np.roll(X, element, axis=(1, 2))
        if self.mode == "zero":
            for axis, shift in enumerate(element):
                entered = slice(0, shift) if shift > 0 else slice(shift or X.shape[axis + 1], None)
                np.moveaxis(shifted, axis + 1, 0)[entered] = 0
        return shifted

    def adjoint(self, element: Element, X: Array) -> Array:
        """Shift the opposite way."""
        return self.act((-element[0], -element[1]), X)

    def plane_map(self, element: Element) -> Matrix:
        """Compute the homogeneous matrix of the shift."""
        matrix = np.eye(3)
        matrix[:2, 2] = element
        return matrix

    @property
    def _windows(self) -> tuple[int, ...]:
        if isinstance(self.max_shift, Iterable):
            return tuple(self.max_shift)
        return (0 if self.max_shift is None else self.max_shift,) * 2


@dataclass(frozen=True)
class Dihedral(Group):
    """The eight symmetries of the square: quarter turns, with and without a reflection.

    Notes
    -----
    An element is (number of counterclockwise quarter turns, whether columns are reversed first).

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Dihedral
    >>> Dihedral().act((1, False), np.array([[[1, 2], [3, 4]]]))
    array([[[2, 4],
            [1, 3]]])
    """

    def check(self, shape: Shape) -> None:
        """Check that images of that shape are square."""
        super().check(shape)
        _check_square(self, shape)

    def elements(self, shape: Shape) -> Sequence[Element]:  # noqa: ARG002
        """List the eight symmetries, the identity first."""
        return [(turns, flip) for flip in (False, True) for turns in range(4)]

    def act(self, element: Element, X: Array) -> Array:
        """Reflect and turn images."""
        turns, flip = element
        return _quarter_turns(X[:, :, ::-1] if flip else X, turns)

    def adjoint(self, element: Element, X: Array) -> Array:
        """Undo the symmetry; a reflection followed by a turn undoes itself."""
        turns, flip = element
        return self.act((turns, True) if flip else (-turns % 4, False), X)

    def plane_map(self, element: Element) -> Matrix:
        """Compute the homogeneous matrix of the symmetry, of whole numbers."""
        turns, flip = element
        return _turn(90.0 * turns) @ Reflection().plane_map(flip)


@dataclass(frozen=True)
class Reflection(Group):
    """An image and its mirror image, columns reversed.

    Turns and reflections together are ``Composition((Reflection(), Rotation(16)))``.

    Notes
    -----
    An element says whether columns are reversed.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Reflection
    >>> Reflection().act(True, np.array([[[1, 2], [3, 4]]]))
    array([[[2, 1],
            [4, 3]]])
    """

    def elements(self, shape: Shape) -> Sequence[Element]:  # noqa: ARG002
        """List the identity and the reflection."""
        return [False, True]

    def act(self, element: Element, X: Array) -> Array:
        """Reverse the columns, or not."""
        # torch takes no negative strides
        return np.ascontiguousarray(X[:, :, ::-1]) if element else X

    adjoint = act

    def plane_map(self, element: Element) -> Matrix:
        """Compute the homogeneous matrix of the reflection."""
        return np.diag([1.0, -1.0 if element else 1.0, 1.0])


class _Interpolated(Group):
    """Linear maps of the plane about the image centre, by bilinear interpolation with zeros outside."""

    @property
    def is_unitary(self) -> bool:  # type: ignore[override]
        """Whether inner products are preserved exactly: interpolation does not."""
        return False

    @abstractmethod
    def plane_map(self, element: Element) -> Matrix:
        """Compute the homogeneous matrix of the map."""

    def amplitude(self, element: Element) -> float:
        """Return the factor of intensities: ``|J|^(-1/2)`` with the option `unitary`, else 1."""
        if not getattr(self, "unitary", False):
            return 1.0
        return float(abs(np.linalg.det(self.plane_map(element)[:2, :2])) ** -0.5)

    def act(self, element: Element, X: Array) -> Array:
        """Transform images."""
        return _times(self._matrix(element, X.shape[1:3], X.dtype), X)

    def adjoint(self, element: Element, X: Array) -> Array:
        """Apply the transposed interpolation."""
        return _times(self._matrix(element, X.shape[1:3], X.dtype).T.tocsr(), X)

    def _matrix(self, element: Element, shape: Shape, dtype: Any) -> Any:
        pull = np.linalg.inv(self.plane_map(element))
        matrix = _interpolation_matrix(np.asarray(pull), shape) * self.amplitude(element)
        return matrix.astype(np.result_type(dtype, np.float32))


@dataclass(frozen=True)
class Rotation(_Interpolated):
    """Turns of an image about its centre, zeros entering at the corners.

    Parameters
    ----------
    angles : int, sequence of float or None, default=None
        Equispaced angles over a whole turn (how many), or the angles themselves, in degrees,
        positive counterclockwise; None is all angles, uniformly (the Haar law). `Affine` has other laws.
    order : {1, 3}, default=1
        Interpolation: bilinear, or by cubic splines (sharper, but without an adjoint).

    Notes
    -----
    Multiples of 90 degrees are exact on square images. With `order=3` an image is turned as
    `scipy.ndimage.rotate` does with ``reshape=False``.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Rotation
    >>> Rotation(4).act(90.0, np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    array([[[2., 4.],
            [1., 3.]]])
    """

    angles: int | tuple[float, ...] | None = None
    order: int = 1

    def __post_init__(self) -> None:
        if is_whole(self.angles, least=1):
            n_angles = int(self.angles)  # type: ignore[arg-type]
            object.__setattr__(self, "angles", tuple(360 * k / n_angles for k in range(n_angles)))
        if self.angles is not None:
            _store_numbers(self, "angles")
        if self.order not in (1, 3):
            raise ConfigError(f"Rotation(order={self.order}): choose 1 (bilinear) or 3 (cubic splines)")

    @property
    def is_unitary(self) -> bool:  # type: ignore[override]
        """Whether inner products are preserved exactly: by quarter turns."""
        return self.angles is not None and all(angle % 90 == 0 for angle in self.elements(()))

    @property
    def has_adjoint(self) -> bool:  # type: ignore[override]
        """Whether templates can be turned in place of the data: not with cubic splines."""
        return self.order == 1 or self.is_unitary

    def check(self, shape: Shape) -> None:
        """Check the number of axes, and that images are square if all turns are multiples of 90 degrees."""
        super().check(shape)
        if self.is_unitary and any(angle % 180 for angle in self.elements(shape)):
            _check_square(self, shape)

    def elements(self, shape: Shape) -> Sequence[Element]:  # noqa: ARG002
        """List the angles."""
        if self.angles is None:
            raise cannot_list(self)
        angles: tuple[float, ...] = self.angles  # type: ignore[assignment] # made so by __post_init__
        return angles

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:
        """Draw n angles uniformly."""
        return (
            _draw_numbers(Uniform(0, 360), n, rng) if self.angles is None else super().sample(n, shape, rng)
        )

    def act(self, element: Element, X: Array) -> Array:
        """Turn images."""
        if _is_exact(element, X.shape):
            return _quarter_turns(X, round(element / 90))
        if self.order == 3:
            floating = X.astype(np.result_type(X, np.float32), copy=False)
            turned: Array = ndimage.rotate(floating, element, axes=(2, 1), reshape=False, order=3)
            return turned
        return super().act(element, X)

    def adjoint(self, element: Element, X: Array) -> Array:
        """Apply the transposed turn."""
        if _is_exact(element, X.shape):
            return self.act(-element, X)
        if self.order == 3:
            raise InputError(
                f"{self} has no adjoint, so templates cannot be turned in place of the data: take order=1"
            )
        return super().adjoint(element, X)

    def plane_map(self, element: Element) -> Matrix:
        """Compute the homogeneous matrix of the turn in (row, column) coordinates."""
        return _turn(element)


@dataclass(frozen=True)
class Scaling(_Interpolated):
    """Enlargements of an image about its centre.

    Parameters
    ----------
    factors : sequence of float
        The factors, above 1 to enlarge. `Affine` draws them by a law.
    unitary : bool, default=True
        Whether intensities are divided by the factor, |J|^(-1/2), so that inner products would be
        preserved on a plane without pixels (002, Lemma 2.1).

    References
    ----------
    A. Raj et al. 2017, Lemma 2.1.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Scaling
    >>> Scaling((0.5, 1.0, 2.0)).act(2.0, np.ones((1, 2, 2)))
    array([[[0.5, 0.5],
            [0.5, 0.5]]])
    """

    factors: tuple[float, ...]
    unitary: bool = True

    def __post_init__(self) -> None:
        _store_numbers(self, "factors", positive=True)

    def elements(self, shape: Shape) -> Sequence[Element]:  # noqa: ARG002
        """List the factors."""
        return self.factors

    def plane_map(self, element: Element) -> Matrix:
        """Compute the homogeneous matrix of the scaling."""
        return np.diag([element, element, 1.0])


@dataclass(frozen=True)
class Affine(_Interpolated):
    """Affine maps of the image plane: a turn, a scaling, a shear and a shift, drawn together.

    Parameters
    ----------
    rotation : Law or None, default=None
        Law of the angle in degrees; None does not turn.
    scale : Law or None, default=None
        Law of the factor; None does not scale.
    shear : Law or None, default=None
        Law of the shear, columns per row; None does not shear.
    shift : Law or None, default=None
        Law of the shift along rows and, independently, along columns, in pixels (fractions
        included); None does not shift.
    unitary : bool, default=True
        Whether intensities are multiplied by |J|^(-1/2).

    Notes
    -----
    An element is a homogeneous 3 x 3 matrix that moves (row, column) positions about the centre:
    the shear first, then scale, turn and shift.

    References
    ----------
    A. Raj et al. 2017, Lemma 2.1.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Affine, LogNormal, Normal
    >>> group = Affine(rotation=Normal(10.0), scale=LogNormal(0.1))
    >>> [matrix] = group.sample(1, (8, 8), np.random.default_rng(0))
    >>> group.act(matrix, np.ones((1, 8, 8))).shape
    (1, 8, 8)
    """

    rotation: Law | None = None
    scale: Law | None = None
    shear: Law | None = None
    shift: Law | None = None
    unitary: bool = True

    def __post_init__(self) -> None:
        for name in ("rotation", "scale", "shear", "shift"):
            law = getattr(self, name)
            # A group draws too, but transformations and not numbers.
            if law is not None and (isinstance(law, Group) or not isinstance(law, Law)):
                raise ConfigError(f"Affine({name}={law!r}): give a law, such as Normal(10), or None")

    def elements(self, shape: Shape) -> Sequence[Element]:  # noqa: ARG002
        """Refuse: there are infinitely many."""
        raise cannot_list(self)

    def sample(self, n: int, shape: Shape, rng: RandomGenerator) -> Sequence[Element]:  # noqa: ARG002
        """Draw n maps."""
        angles, factors, shears, downs, rights = (
            [fixed] * n if law is None else _draw_numbers(law, n, rng, positive=law is self.scale)
            for law, fixed in (
                (self.rotation, 0.0),
                (self.scale, 1.0),
                (self.shear, 0.0),
                (self.shift, 0.0),
                (self.shift, 0.0),
            )
        )
        maps = []
        for angle, factor, shear, down, right in zip(angles, factors, shears, downs, rights, strict=True):
            sheared = np.array([[1.0, 0.0, 0.0], [shear, 1.0, 0.0], [0.0, 0.0, 1.0]])
            plane_map = _turn(angle) @ np.diag([factor, factor, 1.0]) @ sheared
            plane_map[:2, 2] = down, right
            maps.append(plane_map)
        return maps

    def plane_map(self, element: Element) -> Matrix:
        """Return the element, which is the matrix."""
        return np.asarray(element)


def _interpolation_matrix(pull: Matrix, shape: Shape) -> Any:
    """Sparse matrix (H * W, H * W) that resamples a flattened image bilinearly, zeros outside.

    `pull` is the homogeneous matrix from output to input (row, column) positions, relative to the centre.
    """
    height, width = shape[:2]
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    grid = np.indices((height, width)).reshape(2, -1)
    # Rounding keeps positions on a pixel exact.
    rows, cols = (pull[:2, :2] @ (grid - centre[:, None]) + (centre + pull[:2, 2])[:, None]).round(9)
    top, left = np.floor(rows), np.floor(cols)
    outputs = np.arange(height * width)
    entries = []
    for row, row_weight in ((top, 1 - (rows - top)), (top + 1, rows - top)):
        for col, col_weight in ((left, 1 - (cols - left)), (left + 1, cols - left)):
            weight = row_weight * col_weight
            kept = (row >= 0) & (row < height) & (col >= 0) & (col < width) & (weight > 0)
            entries.append((weight[kept], outputs[kept], (row * width + col)[kept].astype(np.intp)))
    weights, targets, sources = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return sparse.csr_array((weights, (targets, sources)), shape=(height * width, height * width))


def _times(matrix: Any, X: Array) -> Array:
    """Apply a matrix on flattened images to each image and each of its colours."""
    # The sparse product wants pixels first; colours then are further columns.
    pixels_first = np.moveaxis(X, 0, -1)
    columns = np.ascontiguousarray(pixels_first).reshape(matrix.shape[1], -1)
    product = matrix @ columns.astype(matrix.dtype, copy=False)
    return np.ascontiguousarray(np.moveaxis(product.reshape(pixels_first.shape), -1, 0))


def _distinct(shifts: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Leave out shifts that go round to where an earlier one went."""
    first = np.unique(shifts % size, return_index=True)[1]
    distinct: NDArray[np.intp] = shifts[np.sort(first)]
    return distinct


def _quarter_turns(X: Array, turns: int) -> Array:
    """Turn images; a copy in memory order, which torch needs."""
    return np.ascontiguousarray(np.rot90(X, turns, axes=(1, 2)))


def _turn(angle: float) -> Matrix:
    if angle % 90 == 0:
        quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        return np.linalg.matrix_power(quarter, int(angle // 90) % 4)
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])


def _is_exact(angle: float, shape: Shape) -> bool:
    return angle % 180 == 0 or (angle % 90 == 0 and shape[1] == shape[2])


def _check_square(group: Group, shape: Shape) -> None:
    if shape[0] != shape[1]:
        raise InputError(
            f"samples of shape {shape}: {type(group).__name__} by quarter turns needs square images; "
            f"crop or pad them"
        )


def _store_numbers(group: Group, name: str, *, positive: bool = False) -> None:
    """Check an option of numbers and make it a tuple of floats."""
    given = getattr(group, name)
    numbers = tuple(float(number) for number in given) if isinstance(given, Iterable) else ()
    if not numbers or not all(_is_fit(number, positive=positive) for number in numbers):
        needed = "positive and finite" if positive else "finite"
        raise ConfigError(f"{type(group).__name__}({name}={given}): give at least one number, all {needed}")
    object.__setattr__(group, name, numbers)


def _draw_numbers(law: Law, n: int, rng: RandomGenerator, *, positive: bool = False) -> list[float]:
    """Draw n numbers by a law and check them."""
    numbers = [float(number) for number in law.sample(n, rng)]
    unfit = [number for number in numbers if not _is_fit(number, positive=positive)]
    if unfit:
        needed = "positive and finite" if positive else "finite"
        raise ConfigError(f"{law} drew {unfit[0]:g} where a {needed} number is needed: take another law")
    return numbers


def _is_fit(number: float, *, positive: bool) -> bool:
    return math.isfinite(number) and (number > 0 or not positive)
