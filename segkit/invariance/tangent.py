"""Tangent distance: how near two images come when each may move along its own tangent plane.

Small shifts, turns, stretches or thickenings of one image form a curved surface. Its tangent plane at
the image is spanned by a few derivatives. The least distance between two such planes is a
least-squares problem of a few unknowns for each pair of images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array, gen_batches
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from segkit._common import count
from segkit.errors import ConfigError, InputError
from segkit.invariance.samples import validate_samples

Floats = NDArray[np.float64]

TANGENTS = ("horizontal", "vertical", "rotation", "scaling", "axis", "diagonal", "thickness")
# Singular values below this part of the largest are rounding errors of dependent tangents.
RANK_TOLERANCE = 1e-10


def _tangent_vectors(
    X: ArrayLike, *, sigma: float = 0.9, tangents: Sequence[str] | None = None
) -> tuple[Floats, Floats]:
    """Smooth images and differentiate them by small transformations."""
    names = _check_tangents(tangents)
    _check_positive("sigma", sigma)
    images = _as_images(check_array(X, dtype=np.float64, allow_nd=True))

    def smooth(*order: int) -> Floats:
        filtered: Floats = gaussian_filter(images, sigma, order=order, mode="constant", axes=(1, 2))
        return filtered

    down, right = smooth(1, 0), smooth(0, 1)
    height, width = images.shape[1:]
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


def _tangent_distances(
    X: ArrayLike,
    Y: ArrayLike | None = None,
    *,
    sigma: float = 0.9,
    tangents: Sequence[str] | None = None,
    elasticity: float = 1e-6,
    two_sided: bool = True,
) -> Floats:
    """Squared tangent distances between images."""
    _check_positive("elasticity", elasticity)
    left = right = _Planes.at(X, sigma=sigma, tangents=tangents)
    if Y is not None:
        right = _Planes.at(Y, sigma=sigma, tangents=tangents)
        if np.shape(X)[1:] != np.shape(Y)[1:]:
            raise InputError(
                f"images of shapes {np.shape(X)[1:]} and {np.shape(Y)[1:]}: crop or resize them to one size"
            )
    return _squared_distances(left, right, elasticity=elasticity, two_sided=two_sided)


class TangentDistanceClassifier(ClassifierMixin, BaseEstimator):
    """Nearest neighbours of images under tangent distance.

    Images are (n, H, W): rows (n, n_features) have no derivatives to follow and are refused.

    Parameters
    ----------
    n_neighbors : int, default=1
        How many nearest training images vote, >= 1.
    sigma : float, default=0.9
        Standard deviation of the Gaussian that smooths the images, in pixels, > 0.
    tangents : sequence of str or None, default=None
        Names from `_tangent_vectors`; None is all seven: two shifts, rotation, scaling, two stretches
        and thickness.
    elasticity : float, default=1e-6
        Price of moving along a tangent plane, > 0, see `_tangent_distances`.
    two_sided : bool, default=True
        Whether the image to classify moves too, or only the training images.
    n_candidates : int or None, default=None
        Compare with this many training images only, the nearest ones by Euclidean distance; None
        compares with all.
    memory_limit : int, default=2**30
        Bytes for the pairs that are compared at a time. The training images and their tangents take
        8 H W (1 + n_tangents) bytes each in addition.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    n_features_in_ : int
        Height of the images.
    shape_in_ : tuple of int
        Height and width of the images.

    Notes
    -----
    A tie of votes goes to the first of the classes.

    References
    ----------
    P. Simard, Y. LeCun, J. Denker, B. Victorri, Transformation invariance in pattern recognition:
    tangent distance and tangent propagation, 1998, section 2.
    T. Liu et al., Learning from few samples: transformation-invariant SVMs with composition and
    locality at multiple scales, 2022, Table 2 (the baseline TD).

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance.tangent import TangentDistanceClassifier
    >>> grid = np.arange(16) - 7.5
    >>> bar, ring = np.exp(-(grid**2) / 4), np.exp(-((np.hypot.outer(grid, grid) - 4) ** 2))
    >>> images = np.stack([np.outer(bar, np.ones(16)), ring])
    >>> classifier = TangentDistanceClassifier().fit(images, ["bar", "ring"])
    >>> classifier.predict(np.roll(images, 1, axis=1)).tolist()
    ['bar', 'ring']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "sigma": [Interval(Real, 0, None, closed="neither")],
        "tangents": ["array-like", None],
        "elasticity": [Interval(Real, 0, None, closed="neither")],
        "two_sided": ["boolean"],
        "n_candidates": [Interval(Integral, 1, None, closed="left"), None],
        "memory_limit": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_neighbors: int = 1,
        *,
        sigma: float = 0.9,
        tangents: Sequence[str] | None = None,
        elasticity: float = 1e-6,
        two_sided: bool = True,
        n_candidates: int | None = None,
        memory_limit: int = 2**30,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.tangents = tangents
        self.elasticity = elasticity
        self.two_sided = two_sided
        self.n_candidates = n_candidates
        self.memory_limit = memory_limit

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the tangent planes of the training images.

        Parameters
        ----------
        X : array-like of shape (n_samples, H, W)
            Images.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        TangentDistanceClassifier
            The fitted classifier.

        Raises
        ------
        InputError
            If `X` is not a stack of images, or there are fewer than `n_neighbors`.
        ConfigError
            If a tangent is unknown, or there are fewer candidates than neighbours.
        """
        images, y = validate_data(self, X, y, dtype=np.float64, allow_nd=True)
        images = _as_images(images)
        check_classification_targets(y)
        if self.n_neighbors > len(images):
            raise InputError(
                f"n_neighbors={self.n_neighbors} with {count(len(images), 'training image')}: take at most {len(images)}"
            )
        if self.n_candidates is not None and self.n_candidates < self.n_neighbors:
            raise ConfigError(
                f"n_candidates={self.n_candidates}, n_neighbors={self.n_neighbors}: "
                f"neighbours are chosen among the candidates; take n_candidates >= {self.n_neighbors}"
            )
        self.classes_, self._labels = np.unique(y, return_inverse=True)
        self.shape_in_ = images.shape[1:]
        self._planes = _Planes.at(images, sigma=self.sigma, tangents=self.tangents)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of the most neighbours.

        Parameters
        ----------
        X : array-like of shape (n_samples, H, W)
            Images.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
        labels: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the share of each class among the neighbours.

        Parameters
        ----------
        X : array-like of shape (n_samples, H, W)
            Images.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Shares that sum to 1.

        Raises
        ------
        InputError
            If the images are not of the size of the training images.
        """
        images = validate_samples(self, X)
        votes = np.zeros((len(images), len(self.classes_)))
        for rows in gen_batches(len(images), self._block_length()):
            queries = _Planes.at(images[rows], sigma=self.sigma, tangents=self.tangents)
            nearest = np.argpartition(self._to_training(queries), self.n_neighbors - 1, axis=1)
            labels = self._labels[nearest[:, : self.n_neighbors]]
            votes[rows] = (labels[:, :, None] == np.arange(len(self.classes_))).mean(axis=1)
        return votes

    def _to_training(self, queries: _Planes) -> Floats:
        """Squared distances (n_queries, n_training), infinite to images that are no candidates."""
        options: dict[str, Any] = {"elasticity": self.elasticity, "two_sided": self.two_sided}
        n_training = len(self._planes.points)
        if self.n_candidates is None or self.n_candidates >= n_training:
            return _squared_distances(queries, self._planes, **options)
        squared = np.full((len(queries.points), n_training), np.inf)
        euclidean = euclidean_distances(queries.points, self._planes.points, squared=True)
        candidates = np.argpartition(euclidean, self.n_candidates - 1, axis=1)[:, : self.n_candidates]
        for row, chosen in enumerate(candidates):
            squared[row, chosen] = _squared_distances(queries[[row]], self._planes[chosen], **options)
        return squared

    def _block_length(self) -> int:
        n_training, n_tangents, _ = self._planes.bases.shape
        # The cosines between two bases, and the solver's temporary arrays.
        bytes_per_pair = 8 * (4 * n_tangents**2 + 6 * n_tangents)
        return int(max(1, self.memory_limit // (bytes_per_pair * n_training)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


@dataclass(frozen=True, eq=False)
class _Planes:
    """Smoothed images (n, H * W) and orthonormal bases (n, n_tangents, H * W) of their tangent planes."""

    points: Floats
    bases: Floats

    @classmethod
    def at(cls, X: ArrayLike, *, sigma: float, tangents: Sequence[str] | None) -> Self:
        smoothed, vectors = _tangent_vectors(X, sigma=sigma, tangents=tangents)
        flat = vectors.reshape(*vectors.shape[:2], -1)
        _, singular, bases = np.linalg.svd(flat, full_matrices=False)
        independent = singular > RANK_TOLERANCE * singular[:, :1]
        bases *= independent[:, :, None]
        return cls(smoothed.reshape(len(smoothed), -1), bases)

    def __getitem__(self, rows: Any) -> _Planes:
        return _Planes(self.points[rows], self.bases[rows])


def _squared_distances(left: _Planes, right: _Planes, *, elasticity: float, two_sided: bool) -> Floats:
    """Minimise over the moves of the left images, then of the right images."""
    stiffness = 1 + elasticity
    distances: Floats = euclidean_distances(left.points, right.points, squared=True)
    # Components of x - y along each basis of y.
    along_right = _components(right.bases, left.points).transpose(1, 0, 2)
    along_right = along_right - _own_components(right)
    if not two_sided:
        distances -= (along_right**2).sum(axis=2) / stiffness
        return np.maximum(distances, 0, out=distances)
    along_left = _own_components(left)[:, None] - _components(left.bases, right.points)
    cosines = _cosines(left.bases, right.bases)
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


def _own_components(planes: _Planes) -> Floats:
    components: Floats = np.einsum("ntd,nd->nt", planes.bases, planes.points)
    return components


def _cosines(left: Floats, right: Floats) -> Floats:
    """Inner products of the vectors of two bases; (n, t, d), (m, t, d) -> (n, m, t, t)."""
    (n, t, d), m = left.shape, len(right)
    products = left.reshape(n * t, d) @ right.reshape(m * t, d).T
    return products.reshape(n, t, m, t).swapaxes(1, 2)


def _check_tangents(tangents: Sequence[str] | None) -> Sequence[str]:
    names = TANGENTS if tangents is None else tuple(tangents)
    if not names or not set(names) <= set(TANGENTS):
        raise ConfigError(f"tangents={tangents!r}: choose at least one of {', '.join(TANGENTS)}")
    return names


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}={value}: a positive and finite number is needed")


def _as_images(X: NDArray[Any]) -> NDArray[Any]:
    if X.ndim != 3:
        raise InputError(
            f"array of shape {X.shape}: tangents are derivatives of images; give grey images (n_samples, H, W)"
        )
    return X
