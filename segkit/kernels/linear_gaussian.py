"""A mixture of linear and Gaussian kernels with shared weights of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from segkit._common import entries_under
from segkit.errors import ConfigError, ModelFileError
from segkit.kernels.base import FloatArray, Gaussian
from segkit.kernels.fourier import fourier_dot, fourier_map
from segkit.kernels.linear import LinearMixture, columnwise_mmd_squared
from segkit.kernels.mmd import mixture_weights

_ARRAYS = ("columns", "scores", "weights", "frequencies", "amplitudes")
_GAMMAS = (1.6, 0.8, 0.4, 0.2, 0.1, 0.05)


class LinearGaussianMixture(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Features of a linear kernel of all columns and Gaussian kernels of some, with weights learnt from the labels.

    Parameters
    ----------
    gammas : sequence of float, default=(1.6, 0.8, 0.4, 0.2, 0.1, 0.05)
        Gammas of the Gaussians, > 0. They multiply squared distances with mean 2.
    n_components : int, default=600
        Number of random features of all Gaussians: a cosine and a sine for each draw. It is rounded down to equal
        numbers of draws, at least one for each Gaussian.
    gaussian_columns : array-like of bool of shape (n_features,) or None, default=None
        Columns that the Gaussians use; None is all.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.

    Attributes
    ----------
    linear_ : LinearMixture
        The linear kernels and the weights of all columns.
    columns_ : ndarray of shape (n_gaussian_columns,), int
        Columns that the Gaussians use: `gaussian_columns` with a weight above 0.
    scores_ : ndarray of shape (1 + n_gammas,), float64
        Squared MMD of the classes under the linear kernel and each Gaussian, clipped at 0.
    weights_ : ndarray of shape (1 + n_gammas,), float64
        Weight of each: the scores, scaled to sum 1.
    frequencies_ : ndarray of shape (n_gaussian_columns, n_draws), float32
        Frequencies of the random features, times the roots of the columns' weights.
    amplitudes_ : ndarray of shape (n_draws,), float32
        Factors of the random features; they contain the roots of the Gaussians' weights.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    With the weights :math:`v_c` of `LinearMixture`, and :math:`u_c` the weights of the Gaussian columns scaled to sum 1,
    ``<z(x), z(y)>`` estimates

    .. math:: w_0 \sum_c v_c x_c y_c + \sum_{l=1}^{L} w_l \exp\Bigl(-\gamma_l \sum_c u_c (x_c - y_c)^2\Bigr).

    Scores are the statistic of `segkit.kernels.linear.columnwise_mmd_squared`: over pairs of samples from different
    groups, if two or more groups have both classes. Scores of the Gaussians are estimated from their random features.
    All scores are too high, for the weights inside the kernels come from the same samples. With standardised columns
    the mean of each kernel's diagonal is 1.

    A linear function of channels on a coarse grid can be summed first and interpolated afterwards; a Gaussian cannot.
    Gaussians of channels with a value at each pixel need no interpolation, and add little to the cost.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 2.15-2.18 (random features), 4.7-4.10 (mixtures).

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import LinearGaussianMixture
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> mixture = LinearGaussianMixture(random_state=0).fit(X, X[:, 0] > 0.5)
    >>> mixture.transform(X).shape
    (400, 602)
    >>> mixture.weights_.round(1)
    array([0.4, 0.1, 0.2, 0.1, 0.1, 0.1, 0. ])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "gammas": ["array-like"],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "gaussian_columns": ["array-like", None],
        "random_state": ["random_state"],
    }
    criterion = "mmd_squared"

    def __init__(
        self,
        gammas: Sequence[float] = _GAMMAS,
        *,
        n_components: int = 600,
        gaussian_columns: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.gammas = gammas
        self.n_components = n_components
        self.gaussian_columns = gaussian_columns
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Weigh the columns, as `LinearMixture.fit` does, and draw the frequencies."""
        rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        gammas, wanted = self._checked_gammas(), self._checked_columns()
        self.linear_ = LinearMixture().fit(rows, labels, groups)
        self.columns_ = np.flatnonzero(wanted & (self.linear_.weights_ > 0))
        n_draws = max(1, self.n_components // (2 * gammas.size))
        self._draw(np.flatnonzero(wanted), gammas, n_draws)
        scores = np.zeros(1 + len(gammas))
        # The squared MMD is linear in the kernel: that of the weighted sum is the weighted sum.
        scores[0] = self.linear_.scores_ @ self.linear_.weights_
        if self.columns_.size:
            features = fourier_map(rows[:, self.columns_], self.frequencies_, scale=False)
            # The columns are the cosines of all draws, then the sines.
            by_draw = columnwise_mmd_squared(features, labels, groups).reshape(2, -1).sum(axis=0)
            scores[1:] = by_draw.reshape(gammas.size, n_draws).mean(axis=1)
        self.scores_ = np.maximum(scores, 0)
        # Without columns for the Gaussians, the linear kernel has all the weight.
        self.weights_ = mixture_weights(self.scores_) if self.columns_.size else np.eye(1, scores.size)[0]
        self.amplitudes_ = np.sqrt(np.repeat(self.weights_[1:] / n_draws, n_draws)).astype(np.float32)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows to the scaled columns, then cosines and sines (none without Gaussian columns); float32 if `X` is."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        scaled = rows * np.sqrt(self.weights_[0] * self.linear_.weights_).astype(rows.dtype)
        return np.hstack([scaled, self._gaussian_features(rows[:, self.columns_])])

    def linear_coef(self, coef: NDArray[Any]) -> NDArray[np.float32]:
        """Express the linear part of functions of the features by the columns, (n_functions, n_features)."""
        return self.linear_.linear_coef(coef[:, : self.n_features_in_]) * np.float32(
            np.sqrt(self.weights_[0])
        )

    @property
    def nonlinear_columns(self) -> NDArray[np.intp]:
        """Columns that the Gaussians use."""
        return np.asarray(self.columns_)

    def nonlinear_dot(self, X: FloatArray, coef: NDArray[Any]) -> FloatArray:
        """Compute the Gaussian part, (n_samples, n_functions), from the columns that the Gaussians use."""
        if not self.columns_.size:
            return np.zeros((len(X), len(coef)), dtype=X.dtype)
        own = coef[:, self.n_features_in_ :]
        return fourier_dot(X, self.frequencies_, own, amplitudes=self.amplitudes_)

    def nonlinear_input(self, X: FloatArray) -> FloatArray:
        """Select the columns of the Gaussians, and scale them as inside the Gaussians' distances."""
        weights = self.linear_.weights_[self.columns_]
        return np.asarray(X[:, self.columns_] * np.sqrt(weights / weights.sum()).astype(X.dtype))

    def dot(self, X: ArrayLike, coef: NDArray[Any]) -> FloatArray:
        """Compute ``transform(X) @ coef.T``."""
        rows = np.asarray(X)
        linear = rows @ self.linear_coef(coef).T.astype(rows.dtype)
        return np.asarray(linear + self.nonlinear_dot(rows[:, self.columns_], coef))

    def describe(self, groups: Sequence[str]) -> list[dict[str, Any]]:
        """List kind, name, gamma, weight and score of the kernels; linear ones are summed by group of columns.

        The score of a group is the sum over its columns. Gaussians are left out if they use no column.
        """
        linear = self.linear_.describe(groups)
        seen = zip(self.gammas, self.weights_[1:], self.scores_[1:], strict=True)
        gaussians = seen if self.columns_.size else ()
        return [kernel | {"weight": float(self.weights_[0] * kernel["weight"])} for kernel in linear] + [
            {
                "kind": "gaussian",
                "name": f"gaussian gamma={gamma:.3g}",
                "gamma": float(gamma),
                "weight": float(weight),
                "score": float(score),
            }
            for gamma, weight, score in gaussians
        ]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Split the fitted transformer into a header and arrays; see `MixtureRFF.to_state`."""
        check_is_fitted(self)
        header, arrays = self.linear_.to_state()
        parameters = {
            "gammas": [float(gamma) for gamma in self.gammas],
            "n_components": int(self.n_components),
            "gaussian_columns": None
            if self.gaussian_columns is None
            else np.asarray(self.gaussian_columns).tolist(),
            "random_state": self.random_state if isinstance(self.random_state, int) else None,
        }
        own = {name: getattr(self, f"{name}_") for name in _ARRAYS}
        linear = {f"linear.{name}": array for name, array in arrays.items()}
        return header | {"parameters": parameters}, linear | own

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted transformer from the result of `to_state`."""
        linear = LinearMixture.from_state(header, entries_under(arrays, "linear."))
        try:
            mixture = cls(**header["parameters"] | {"gammas": tuple(header["parameters"]["gammas"])})
            mixture._checked_gammas()
            for name in _ARRAYS:
                setattr(mixture, f"{name}_", arrays[name])
        except KeyError as error:
            raise ModelFileError(f"state of LinearGaussianMixture lacks {error}") from error
        mixture.linear_, mixture.n_features_in_ = linear, linear.n_features_in_
        if not mixture._fits_together():
            raise ModelFileError("arrays of LinearGaussianMixture do not fit each other; copy the file again")
        return mixture

    def _fits_together(self) -> bool:
        """Return whether the shapes and the columns of restored arrays agree."""
        if self.frequencies_.ndim != 2 or self.columns_.ndim != 1:
            return False
        n_kernels, n_draws = 1 + len(self.gammas), self.frequencies_.shape[1]
        # Increasing from -1 to n_features: columns are in range, in order, and without repetition.
        columns = np.concatenate([[-1], self.columns_, [self.n_features_in_]])
        return bool(
            self.frequencies_.shape == (self.columns_.size, n_draws)
            and self.amplitudes_.shape == (n_draws,)
            and self.scores_.shape == self.weights_.shape == (n_kernels,)
            and (np.diff(columns) > 0).all()
            and (self.weights_ >= 0).all()
            # The Gaussians scale their columns by the sum of these.
            and (self.linear_.weights_[self.columns_] > 0).all()
        )

    def _draw(self, wanted: NDArray[np.intp], gammas: NDArray[np.float64], n_draws: int) -> None:
        """Draw the frequencies of the Gaussians."""
        rng = check_random_state(self.random_state)
        # Draw for all wanted columns, then select: fits with different weights then share their draws, which makes
        # them comparable.
        drawn = np.hstack([Gaussian(gamma).frequencies(wanted.size, n_draws, rng) for gamma in gammas])
        weights = self.linear_.weights_[self.columns_]
        scale = np.sqrt(weights / weights.sum()) if weights.size else weights
        self.frequencies_ = (drawn[np.isin(wanted, self.columns_)] * scale[:, None]).astype(np.float32)

    def _gaussian_features(self, X: FloatArray) -> FloatArray:
        if not self.columns_.size:
            return np.empty((len(X), 0), dtype=X.dtype)
        return fourier_map(X, self.frequencies_, amplitudes=self.amplitudes_)

    def _checked_gammas(self) -> NDArray[np.float64]:
        try:
            gammas = np.asarray(self.gammas, dtype=np.float64)
        except (TypeError, ValueError):
            gammas = np.empty(0)
        if gammas.ndim != 1 or not gammas.size or not (gammas > 0).all() or not np.isfinite(gammas).all():
            raise ConfigError(f"gammas={self.gammas!r}: give one or more finite numbers above 0")
        return gammas

    def _checked_columns(self) -> NDArray[np.bool_]:
        n_columns: int = self.n_features_in_
        if self.gaussian_columns is None:
            return np.ones(n_columns, dtype=bool)
        wanted = np.asarray(self.gaussian_columns)
        if wanted.dtype != np.bool_ or wanted.shape != (n_columns,):
            raise ConfigError(
                f"gaussian_columns of shape {wanted.shape} and type {wanted.dtype}: give True or False for each of "
                f"the {n_columns} columns"
            )
        return wanted

    @property
    def _n_features_out(self) -> int:
        n_random = 2 * self.frequencies_.shape[1] if self.columns_.size else 0
        return int(self.n_features_in_) + n_random

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
