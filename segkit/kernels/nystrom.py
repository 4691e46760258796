"""Nystroem features: any positive definite kernel, approximated through a few landmark rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from segkit.errors import InputError
from segkit.kernels.base import FloatArray, Gaussian, Kernel, validate_rows


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
        """Choose the landmarks among rows (n_samples, n_features) and factor their Gram matrix, which must not vanish."""
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
