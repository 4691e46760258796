"""Tangent distance: how near two images come when each may move along its own tangent plane.

Small shifts, turns, stretches or thickenings of one image form a curved surface. Its tangent plane at
the image is spanned by a few derivatives. The least distance between two such planes is a
least-squares problem of a few unknowns for each pair of images.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import gen_batches

from segkit.errors import InputError
from segkit.kernels.base import as_pair

Floats = NDArray[np.float64]

# Standard deviation of the Gaussian that smooths the images, in pixels.
SIGMA = 0.9
# Price k of moving along a tangent plane. It keeps the moves bounded where two planes are parallel.
ELASTICITY = 1e-6
# Singular values below this part of the largest are rounding errors of dependent tangents.
RANK_TOLERANCE = 1e-10
# Bytes for the pairs of images that are compared at a time.
MEMORY = 2**30


def tangent_distances(X: ArrayLike, Y: ArrayLike | None = None) -> Floats:
    """Compute squared tangent distances between images.

    Both images may move along shifts, turns, enlargements, stretches along an axis or diagonal, and thickness.

    Parameters
    ----------
    X : array-like of shape (n, H, W)
        Images.
    Y : array-like of shape (m, H, W) or None, default=None
        Other images; None is `X`.

    Returns
    -------
    ndarray of shape (n, m), float64
        Squared distances of the images, smoothed by a Gaussian of 0.9 pixels.

    Raises
    ------
    InputError
        If `X` or `Y` is not a stack of images, or their sizes differ.

    Notes
    -----
    With orthonormal bases Q_x, Q_y of the tangent planes,
    ``min_{a,b} ||x + Q_x a - y - Q_y b||^2 + k ||a||^2 + k ||b||^2``, in closed form, with k = 1e-6.

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
    left, right = (samples.astype(np.float64) for samples in as_pair(X, Y))
    planes = _planes(right)
    n_tangents = planes[1].shape[1]
    # The cosines between two bases, and the solver's temporary arrays.
    bytes_per_row = 8 * (4 * n_tangents**2 + 6 * n_tangents) * len(right)
    distances = np.empty((len(left), len(right)))
    for rows in gen_batches(len(left), max(1, MEMORY // bytes_per_row)):
        distances[rows] = _squared_distances(_planes(left[rows]), planes)
    return distances


def tangent_vectors(X: Floats) -> tuple[Floats, Floats]:
    """Smooth images and differentiate them by small transformations; (n, H, W) and (n, 7, H, W)."""
    if X.ndim != 3:
        raise InputError(
            f"array of shape {X.shape}: tangents are derivatives of images; give grey images (n_samples, H, W)"
        )

    def smooth(*order: int) -> Floats:
        filtered: Floats = gaussian_filter(X, SIGMA, order=order, mode="constant", axes=(1, 2))
        return filtered

    down, right = smooth(1, 0), smooth(0, 1)
    height, width = X.shape[1:]
    v = (np.arange(height) - (height - 1) / 2)[:, None]
    u = np.arange(width) - (width - 1) / 2
    derivatives = [
        right,
        down,
        v * right - u * down,  # rotation
        u * right + v * down,  # scaling
        u * right - v * down,  # stretch along an axis
        v * right + u * down,  # stretch along a diagonal
        right**2 + down**2,  # thickness
    ]
    return smooth(0, 0), np.stack(derivatives, axis=1)


def _planes(X: Floats) -> tuple[Floats, Floats]:
    """Smoothed images (n, H * W) and orthonormal bases (n, n_tangents, H * W) of their tangent planes.

    Where tangents depend on each other, basis vectors are zero.
    """
    smoothed, vectors = tangent_vectors(X)
    _, singular, bases = np.linalg.svd(vectors.reshape(*vectors.shape[:2], -1), full_matrices=False)
    bases *= (singular > RANK_TOLERANCE * singular[:, :1])[:, :, None]
    return smoothed.reshape(len(smoothed), -1), bases


def _squared_distances(left: tuple[Floats, Floats], right: tuple[Floats, Floats]) -> Floats:
    """Minimise over the moves of the left images, then of the right images."""
    (points, bases), (other_points, other_bases) = left, right
    stiffness = 1 + ELASTICITY
    distances: Floats = euclidean_distances(points, other_points, squared=True)
    # Components of x - y along each basis of y.
    along_right = np.moveaxis(_components(other_bases, points), 0, 1)
    along_right = along_right - np.einsum("mtd,md->mt", other_bases, other_points)
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
