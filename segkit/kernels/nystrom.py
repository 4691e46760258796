"""Nystroem features: any positive definite kernel, approximated through a few landmark rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from segkit.errors import InputError
from segkit.kernels.base import FloatArray, Gaussian, Kernel, validate_rows

# Number of rows for the estimate of leverage scores.
_SUBSAMPLE = 1000
# Ridge of leverage scores, as a fraction of the mean of the kernel's diagonal.
_RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class NystroemMap:
    """The map ``x -> k(x, landmarks) projection``; the projection is of shape (n_landmarks, rank)."""

    kernel: Kernel
    landmarks: FloatArray
    projection: FloatArray

    @classmethod
    def from_landmarks(cls, kernel: Kernel, landmarks: FloatArray) -> Self:
        """Make the map that reproduces the kernel on the landmarks."""
        # in float64 even for float32 rows, for small eigenvalues are divided by; cut at the precision of later values
        gram = kernel(landmarks.astype(np.float64))
        projection = inverse_root(gram, float(np.finfo(landmarks.dtype).eps))
        if not projection.size:
            raise InputError(
                f"kernel {kernel!r} is 0 on all {len(landmarks)} landmarks: "
                f"check for all-zero features or take another kernel"
            )
        return cls(kernel, landmarks, projection.astype(landmarks.dtype))

    def __call__(self, X: FloatArray) -> FloatArray:
        """Compute features of rows; (n, n_features) -> (n, rank), in the dtype of `X`."""
        features: FloatArray = self.kernel(X, self.landmarks) @ self.projection.astype(X.dtype, copy=False)
        return features


class NystroemFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Nystroem features of any positive definite kernel.

    Parameters
    ----------
    kernel : Kernel or None, default=None
        Any `Kernel`; None is ``Gaussian(gamma=1.0)``.
    n_components : int, default=100
        Number of landmarks, at most the number of samples. The number of output features is the rank of the
        kernel on the landmarks.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of landmarks.

    Attributes
    ----------
    map_ : NystroemMap
        Kernel, landmarks (rows drawn without replacement) and projection.
    n_features_in_ : int
        Number of input features.

    Notes
    -----
    ``<z(x), z(y)> = k(x, M) K_MM^+ k(M, y)`` with landmarks M. This equals k(x, y) if x or y is a
    landmark. scikit-learn's `Nystroem` calls a Python kernel for each pair of rows; this class calls it with
    whole arrays.

    References
    ----------
    C. Williams and M. Seeger, Using the Nystroem method to speed up kernel machines, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import NystroemFeatures, Polynomial
    >>> X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    >>> Z = NystroemFeatures(Polynomial(degree=2), random_state=0).fit_transform(X)
    >>> np.allclose(Z @ Z.T, Polynomial(degree=2)(X))
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [Kernel, None],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        n_components: int = 100,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None) -> Self:  # noqa: ARG002
        """Choose the landmarks and factor their Gram matrix.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.

        Returns
        -------
        NystroemFeatures
            The fitted transformer.

        Raises
        ------
        InputError
            If the kernel vanishes on all landmarks.
        """
        X = validate_rows(self, X, reset=True)
        kernel = Gaussian(1.0) if self.kernel is None else self.kernel
        rows = choose_landmarks(X, self.n_components, check_random_state(self.random_state))
        self.map_ = NystroemMap.from_landmarks(kernel, rows)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows to Nystroem features; (n_samples, n_features) -> (n_samples, rank), float32 if `X` is."""
        check_is_fitted(self)
        return self.map_(validate_rows(self, X, reset=False))

    @property
    def _n_features_out(self) -> int:
        return int(self.map_.projection.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def inverse_root(gram: FloatArray, precision: float) -> NDArray[np.float64]:
    """Factor the pseudo-inverse of a kernel matrix K: ``P P' = K^+``, leading eigenvalue first; (m, m) -> (m, rank)."""
    # eigenvalues up to the rounding of kernel values are 0
    eigenvalues, vectors = np.linalg.eigh(gram)
    cut = len(gram) * precision * eigenvalues[-1]
    kept = np.flatnonzero(eigenvalues > max(cut, 0))[::-1]
    root: NDArray[np.float64] = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    return root


def choose_landmarks(X: FloatArray, n_landmarks: int, rng: np.random.RandomState) -> FloatArray:
    """Draw at most `n_landmarks` rows without replacement; (n, n_features) -> (n_landmarks, n_features)."""
    return X[rng.permutation(len(X))[:n_landmarks]]


def leverage_scores(kernel: Kernel, rows: FloatArray, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Estimate the ridge leverage scores of samples, up to a common factor, from b subsampled rows B.

    The score is ``k(x, x) - k(x, B) (K_BB + c I)^-1 k(B, x)``, c = 0.001 b mean k(x, x). If B is all rows, this is c times
    the diagonal of ``K (K + c I)^-1`` (Alaoui and Mahoney, 2015, section 3).
    """
    subsample = choose_landmarks(rows, _SUBSAMPLE, rng).astype(np.float64)
    diagonal = kernel.diagonal(rows).astype(np.float64)
    # Keep scores positive even for a kernel that vanishes: then a landmark can be drawn, and its map reports it.
    smallest = np.finfo(np.float64).eps * max(diagonal.max(), 1.0)
    ridge = _RIDGE * len(subsample) * diagonal.mean() + smallest
    gram = kernel(subsample)
    gram[np.diag_indices_from(gram)] += ridge
    factor = cho_factor(gram)
    scores = diagonal
    # Batches of rows: the kernel values of all rows would not fit into memory.
    for batch in gen_batches(len(rows), _SUBSAMPLE):
        cross = kernel(subsample, rows[batch])
        scores[batch] -= np.einsum("ij,ij->j", cross, cho_solve(factor, cross))
    return np.asarray(np.maximum(scores, smallest))
