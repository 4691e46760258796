"""Random Fourier features of shift-invariant kernels, and the draws of their frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import qmc
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from segkit.errors import ConfigError, InputError
from segkit.kernels.base import FloatArray, Gaussian, Laplacian, ShiftInvariantKernel, validate_rows

if TYPE_CHECKING:
    import torch

# Number of rows whose random features stay in the processor's cache.
_ROWS_AT_ONCE = 512


def fourier_map(
    X: FloatArray,
    frequencies: FloatArray,
    phases: FloatArray | None = None,
    *,
    amplitudes: FloatArray | None = None,
    scale: bool = True,
    out: FloatArray | None = None,
) -> FloatArray:
    """Map rows to random Fourier features.

    Each draw gives a pair, ``[cos block | sin block]``, or one cosine where there are `phases`. `amplitudes` are a factor
    of each draw, by default those of `RandomFourierFeatures`; without `scale` there is none. Rows of `out` may be strided.
    """
    n_draws = frequencies.shape[1]
    if X.ndim != 2 or X.shape[1] != len(frequencies):
        raise InputError(
            f"X of shape {X.shape}: the frequencies need (n_samples, {len(frequencies)}); "
            f"pass rows with {len(frequencies)} features"
        )
    if amplitudes is None:
        amplitudes = np.full(n_draws, math.sqrt((1 if phases is None else 2) / n_draws))
    if out is None:
        out = np.empty((len(X), n_draws if phases is not None else 2 * n_draws), dtype=X.dtype)
    # Imported here: `import segkit` must not pay for torch.
    import torch

    # Write the angles into the last n_draws columns; their sine or cosine overwrites them. No other memory is needed.
    # On one thread NumPy's sine and cosine of float32 are faster than torch's.
    angles = out[:, -n_draws:]
    torch.mm(_tensor(X), _tensor(frequencies.astype(X.dtype, copy=False)), out=torch.from_numpy(angles))
    if phases is None:
        np.cos(angles, out=out[:, :n_draws])
        np.sin(angles, out=angles)
        amplitudes = np.tile(amplitudes, 2)
    else:
        np.add(angles, phases.astype(X.dtype, copy=False), out=angles)
        np.cos(angles, out=angles)
    if scale:
        out *= amplitudes.astype(X.dtype)
    return out


def fourier_dot(
    X: FloatArray,
    frequencies: FloatArray,
    coef: NDArray[Any],
    phases: FloatArray | None = None,
    *,
    amplitudes: NDArray[Any],
) -> FloatArray:
    """Compute linear functions of random Fourier features, ``fourier_map(X, ...) @ coef.T``, at less cost."""
    n_draws = frequencies.shape[1]
    # A pair has one amplitude for its cosine and its sine.
    factors = amplitudes if phases is not None else np.tile(amplitudes, 2)
    scaled = coef * factors
    # One cosine a draw is enough: c cos t + s sin t = hypot(c, s) cos(t + atan2(-s, c)).
    if phases is None and len(coef) == 1:
        cosine, sine = scaled[0, :n_draws], scaled[0, n_draws:]
        phases, scaled = np.arctan2(-sine, cosine), np.hypot(cosine, sine)[None]
    scaled = np.ascontiguousarray(scaled.T.astype(X.dtype))
    # One buffer for all blocks, so that it stays in the cache.
    buffer = np.empty((min(_ROWS_AT_ONCE, len(X)), len(scaled)), dtype=X.dtype)
    out = np.empty((len(X), len(coef)), dtype=X.dtype)
    for start in range(0, len(X), _ROWS_AT_ONCE):
        rows = X[start : start + _ROWS_AT_ONCE]
        features = buffer[: len(rows)]
        fourier_map(rows, frequencies, phases, scale=False, out=features)
        out[start : start + len(rows)] = _tensor(features) @ _tensor(scaled)
    return out


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    """Share an array with torch, without a copy if possible."""
    # All products here run in torch: if NumPy did some of them, its threads and torch's would wait for each other.
    import torch

    # Torch cannot share read-only arrays, negative strides, or strides that are no multiple of an item.
    fit = all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    return torch.from_numpy(array if fit and array.flags.writeable else array.copy())


class RandomFourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random Fourier features of one shift-invariant kernel.

    Parameters
    ----------
    kernel : ShiftInvariantKernel or None, default=None
        `Gaussian`, `Laplacian` or `L1Laplacian`; None is ``Gaussian(gamma=1.0)``.
    n_components : int, default=100
        Number of output features; for pairs it is rounded up to an even number.
    form : {"pair", "phase"}, default="pair"
        Cosine and sine of each draw (lower variance), or a cosine with a random phase.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_features_in_, n_draws)
        Draws from the spectral law of the kernel.
    phases_ : ndarray of shape (n_draws,) or None
        Phases in [0, 2 pi); None for pairs.
    n_features_in_ : int
        Number of input features.

    Notes
    -----
    ``<z(x), z(y)>`` estimates k(x, y) with an error of order 1 / sqrt(n_components). With draws W from the spectral
    law and phases b uniform on [0, 2 pi):

    - pair: ``z(x) = [cos(W'x), sin(W'x)] / sqrt(n_draws)``
    - phase: ``z(x) = sqrt(2 / n_draws) cos(W'x + b)``

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 2.15-2.18.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import Gaussian, RandomFourierFeatures
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> Z = RandomFourierFeatures(Gaussian(0.5), n_components=20_000, random_state=0).fit_transform(X)
    >>> bool(abs(Z[0] @ Z[1] - np.exp(-0.5)) < 0.02)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [ShiftInvariantKernel, None],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "form": [StrOptions({"pair", "phase"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kernel: ShiftInvariantKernel | None = None,
        n_components: int = 100,
        form: Literal["pair", "phase"] = "pair",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.form = form
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None) -> Self:  # noqa: ARG002
        """Draw the frequencies for rows (n_samples, n_features); only the number of features and the dtype are used."""
        X = validate_rows(self, X, reset=True)
        kernel = Gaussian(1.0) if self.kernel is None else self.kernel
        rng = check_random_state(self.random_state)
        n_draws = math.ceil(self.n_components / 2) if self.form == "pair" else self.n_components
        self.frequencies_ = kernel.frequencies(X.shape[1], n_draws, rng).astype(X.dtype)
        self.phases_ = None if self.form == "pair" else rng.uniform(0, 2 * np.pi, n_draws).astype(X.dtype)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows to random Fourier features; (n_samples, n_features) -> (n_samples, n_components), float32 if `X` is."""
        check_is_fitted(self)
        return fourier_map(validate_rows(self, X, reset=False), self.frequencies_, self.phases_)

    @property
    def _n_features_out(self) -> int:
        n_draws: int = self.frequencies_.shape[1]
        return 2 * n_draws if self.phases_ is None else n_draws

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _orthogonal_frequencies(
    kernel: ShiftInvariantKernel, n_features: int, n_draws: int, rng: np.random.RandomState
) -> NDArray[np.float64]:
    """Draw frequencies that are orthogonal in blocks of n_features, with the norms of independent ones (Yu et al. 2016)."""
    norms = np.linalg.norm(_radial(kernel, "orthogonal").frequencies(n_features, n_draws, rng), axis=0)
    directions = np.empty((n_features, n_draws))
    for start in range(0, n_draws, n_features):
        block = directions[:, start : start + n_features]
        factor, triangle = np.linalg.qr(rng.standard_normal(block.shape))
        # Q has the Haar law only if the diagonal of R is positive.
        block[:] = factor * np.sign(np.diag(triangle))
    directions *= norms
    return directions


def _halton_frequencies(
    kernel: ShiftInvariantKernel, n_features: int, n_draws: int, rng: np.random.RandomState
) -> NDArray[np.float64]:
    """Draw frequencies that cover the spectral law evenly (quasi-Monte Carlo; Yang et al. 2014, section 3)."""
    radial = _radial(kernel, "qmc")
    is_laplacian = isinstance(radial, Laplacian)
    sequence = qmc.Halton(n_features + is_laplacian, seed=rng).random(n_draws).T
    # The inverse distribution function is infinite at 0 and 1.
    eps = np.finfo(np.float64).eps
    uniform: NDArray[np.float64] = np.clip(sequence, eps, 1 - eps)
    # All coordinates are divided by |u|, so it gets the first coordinate of the sequence, the most even one.
    scale = radial.gamma / ndtri((1 + uniform[0]) / 2) if is_laplacian else math.sqrt(2 * radial.gamma)
    frequencies: NDArray[np.float64] = scale * ndtri(uniform[-n_features:])
    return frequencies


def _radial(kernel: ShiftInvariantKernel, frequencies: str) -> Gaussian | Laplacian:
    if isinstance(kernel, Gaussian | Laplacian):
        return kernel
    raise ConfigError(
        f"frequencies={frequencies!r} are made for Gaussian and Laplacian kernels, not {kernel!r}: "
        f"take frequencies='random'"
    )


# How frequencies are drawn: independently, or as more even covers of the spectral law.
FREQUENCIES: dict[str, Callable[[ShiftInvariantKernel, int, int, np.random.RandomState], FloatArray]] = {
    "random": lambda kernel, n_features, n_draws, rng: kernel.frequencies(n_features, n_draws, rng),
    "orthogonal": _orthogonal_frequencies,
    "qmc": _halton_frequencies,
}
