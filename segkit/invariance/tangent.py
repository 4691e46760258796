"""Tangent distance: how near two images come when each may move along its own tangent plane.

Small shifts, turns, stretches or thickenings of one image form a curved surface. Its tangent plane at
the image is spanned by a few derivatives. The least distance between two such planes is a
least-squares problem of a few unknowns for each pair of images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import gen_batches

from segkit.errors import ConfigError, InputError
from segkit.invariance.samples import as_pair

Floats = NDArray[np.float64]

TANGENTS = ("horizontal", "vertical", "rotation", "scaling", "axis", "diagonal", "thickness")
# Singular values below this part of the largest are rounding errors of dependent tangents.
RANK_TOLERANCE = 1e-10
# Bytes for the pairs of images that are compared at a time.
MEMORY = 2**30


def tangent_distances(
    X: ArrayLike,
    Y: ArrayLike | None = None,
    *,
    sigma: float = 0.9,
    tangents: Sequence[str] | None = None,
    elasticity: float = 1e-6,
    two_sided: bool = True,
) -> Floats:
    """Compute squared tangent distances between images.

    Parameters
    ----------
    X : array-like of shape (n, H, W)
        Images.
    Y : array-like of shape (m, H, W) or None, default=None
        Other images; None is `X`.
    sigma : float, default=0.9
        Standard deviation of the Gaussian that smooths the images, in pixels, > 0.
    tangents : sequence of str or None, default=None
        Any of "horizontal" and "vertical" (shifts), "rotation", "scaling", "axis" and "diagonal" (stretches along one
        axis or diagonal that shrink the other) and "thickness"; None is all seven.
    elasticity : float, default=1e-6
        Price k of moving along a tangent plane, > 0. It keeps the moves bounded where two planes are parallel; a large
        one leaves the Euclidean distance.
    two_sided : bool, default=True
        Whether both images move, or only those of `Y`.

    Returns
    -------
    ndarray of shape (n, m), float64
        Squared distances of the smoothed images.

    Raises
    ------
    InputError
        If `X` or `Y` is not a stack of images, or their sizes differ.
    ConfigError
        If a tangent is unknown, there is none, or `sigma` or `elasticity` is out of its range.

    Notes
    -----
    With orthonormal bases Q_x, Q_y of the tangent planes,
    ``min_{a,b} ||x + Q_x a - y - Q_y b||^2 + k ||a||^2 + k ||b||^2``, in closed form.

    References
    ----------
    P. Simard, Y. LeCun, J. Denker, B. Victorri, Transformation invariance in pattern recognition: tangent distance and
    tangent propagation, 1998, section 2 (k is its spring constant).
    T. Liu et al. 2022, Table 2 (the baseline TD, a nearest neighbour).

    Examples
    --------
    The nearest image, whose label a query takes:

    >>> import numpy as np
    >>> from segkit.invariance import tangent_distances
    >>> grid = np.arange(16) - 7.5
    >>> bar, ring = np.exp(-(grid**2) / 4), np.exp(-((np.hypot.outer(grid, grid) - 4) ** 2))
    >>> images = np.stack([np.outer(bar, np.ones(16)), ring])
    >>> tangent_distances(np.roll(images, 1, axis=1), images).argmin(axis=1)
    array([0, 1])
    """
    _check_positive("elasticity", elasticity)
    left, right = (samples.astype(np.float64) for samples in as_pair(X, Y))
    planes = _planes(right, sigma=sigma, tangents=tangents)
    n_tangents = planes[1].shape[1]
    # The cosines between two bases, and the solver's temporary arrays.
    bytes_per_row = 8 * (4 * n_tangents**2 + 6 * n_tangents) * len(right)
    distances = np.empty((len(left), len(right)))
    for rows in gen_batches(len(left), max(1, MEMORY // bytes_per_row)):
        moved = _planes(left[rows], sigma=sigma, tangents=tangents)
        distances[rows] = _squared_distances(moved, planes, elasticity=elasticity, two_sided=two_sided)
    return distances


def tangent_vectors(
    X: Floats, *, sigma: float = 0.9, tangents: Sequence[str] | None = None
) -> tuple[Floats, Floats]:
    """Smooth images and differentiate them by small transformations; (n, H, W) and (n, n_tangents, H, W)."""
    names = TANGENTS if tangents is None else tuple(tangents)
    if not names or not set(names) <= set(TANGENTS):
        raise ConfigError(f"tangents={tangents!r}: choose at least one of {', '.join(TANGENTS)}")
    _check_positive("sigma", sigma)
    if X.ndim != 3:
        raise InputError(
            f"array of shape {X.shape}: tangents are derivatives of images; give grey images (n_samples, H, W)"
        )

    def smooth(*order: int) -> Floats:
        filtered: Floats = gaussian_filter(X, sigma, order=order, mode="constant", axes=(1, 2))
        return filtered

    down, right = smooth(1, 0), smooth(0, 1)
    height, width = X.shape[1:]
    v = (np.arange(height) - (height - 1) / 2)[:, None]
    u = np.arange(width) - (width - 1) / 2
    derivatives = {
        "horizontal": right,
        "vertical": down,
        "rotation": v * right - u * down,
        "scaling": u * right + v * down,
        "axis": u * right - v * down,
        "diagonal": v * right + u * down,
        "thickness": right**2 + down**2,
    }
    return smooth(0, 0), np.stack([derivatives[name] for name in names], axis=1)


def _planes(X: Floats, *, sigma: float, tangents: Sequence[str] | None) -> tuple[Floats, Floats]:
    """Smoothed images (n, H * W) and orthonormal bases (n, n_tangents, H * W) of their tangent planes.

    Where tangents depend on each other, basis vectors are zero.
    """
    smoothed, vectors = tangent_vectors(X, sigma=sigma, tangents=tangents)
    _, singular, bases = np.linalg.svd(vectors.reshape(*vectors.shape[:2], -1), full_matrices=False)
    bases *= (singular > RANK_TOLERANCE * singular[:, :1])[:, :, None]
    return smoothed.reshape(len(smoothed), -1), bases


def _squared_distances(
    left: tuple[Floats, Floats], right: tuple[Floats, Floats], *, elasticity: float, two_sided: bool
) -> Floats:
    """Minimise over the moves of the left images, then of the right images."""
    (points, bases), (other_points, other_bases) = left, right
    stiffness = 1 + elasticity
    distances: Floats = euclidean_distances(points, other_points, squared=True)
    # Components of x - y along each basis of y.
    along_right = np.moveaxis(_components(other_bases, points), 0, 1)
    along_right = along_right - np.einsum("mtd,md->mt", other_bases, other_points)
    if not two_sided:
        distances -= (along_right**2).sum(axis=2) / stiffness
        return np.maximum(distances, 0, out=distances)
    own = np.einsum("ntd,nd->nt", bases, points)
    along_left = own[:, None] - _components(bases, other_points)
    cosines = _cosines(bases, other_bases)
    transposed = cosines.swapaxes(2, 3)
    remaining = along_right - (transposed @ along_left[..., None])[..., 0] / stiffness
    system = stiffness * np.eye(cosines.shape[3]) - transposed @ cosines / stiffness
    moves = np.linalg.solve(system, remaining[..., None])[..., 0]
    distances -= (along_left**2).sum(axis=2) / stiffness + (remaining * moves).sum(axis=2)
    return np.maximum(distances, 0, out=distances)


def _components(bases: Floats, points: Floats) -> Floats:
    """Components of each point along each basis; (n, t, d), (m, d) -> (n, m, t)."""
    n, t, d = bases.shape
    return (bases.reshape(n * t, d) @ points.T).reshape(n, t, -1).swapaxes(1, 2)


def _cosines(left: Floats, right: Floats) -> Floats:
    """Inner products of the vectors of two bases; (n, t, d), (m, t, d) -> (n, m, t, t)."""
    (n, t, d), m = left.shape, len(right)
    products = left.reshape(n * t, d) @ right.reshape(m * t, d).T
    return products.reshape(n, t, m, t).swapaxes(1, 2)


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}={value}: a positive and finite number is needed")
