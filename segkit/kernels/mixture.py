"""Random features of a mixture of kernels, weighted by how well each kernel separates the classes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from segkit.errors import ConfigError, InputError, ModelFileError
from segkit.kernels.base import (
    Anova,
    FloatArray,
    Gaussian,
    Kernel,
    Laplacian,
    Normalized,
    Polynomial,
    ShiftInvariantKernel,
    gram_matrices,
    kernel_from_dict,
    kernel_to_dict,
    median_gamma,
    validate_rows,
)
from segkit.kernels.fourier import fourier_dot, fourier_map
from segkit.kernels.mmd import alignment, mixture_weights, mmd, power_criterion
from segkit.kernels.nystrom import NystroemMap, choose_landmarks

_CRITERIA: dict[str, Callable[..., float]] = {
    "mmd": mmd,
    "u_statistic": partial(mmd, statistic="u_statistic"),
    "alignment": alignment,
    "centered_alignment": partial(alignment, centered=True),
    "power": power_criterion,
}
_ARRAYS = ("scores", "weights", "frequencies", "amplitudes")
_GRID = 2.0 ** np.arange(-6, 7)
# The kernels that have names; grids of the last two, as measured on four development sets.
_NAMED = ("gaussian", "laplacian", "anova", "polynomial")
_COARSE_GRID, _DEGREES = 4.0 ** np.arange(-3, 4), range(1, 6)
# A kernel below this between 99 % of a few samples tells nothing of them.
_NEARLY_ZERO, _FEW = 0.01, 200


class MixtureRFF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of a mixture of kernels with weights learnt from the labels.

    Parameters
    ----------
    kernels : {"gaussian", "laplacian", "anova", "polynomial"} or sequence of Kernel, default="gaussian"
        The base kernels: a named kernel with each of `gammas`, or the given ones. Polynomials have degrees 1 to 5 instead.
        Shift-invariant kernels get random Fourier features, others Nystroem features.
    gammas : array-like of shape (n_kernels,) or None, default=None
        Gammas of the named kernel, > 0; not for "polynomial". None takes 2^-6, ..., 2^6 times the inverse median squared
        distance of the samples (the inverse median distance for "laplacian"), or 4^-3, ..., 4^3 times the inverse mean
        squared distance in a feature for "anova". Of polynomials, whose features must be centred, it is the inverse of the
        features' variances, summed.
    n_components : int, default=2048
        Number of output features of all kernels together. It is one less if all features are pairs
        and the number is odd, and less if a Nystroem part has a lower rank.
    criterion : {"mmd", "u_statistic", "alignment", "centered_alignment", "power"}, default="mmd"
        Score of a kernel: `mmd`, by the estimate of all pairs or by the U-statistic of random ones, `alignment` or
        `power_criterion`.
    form : {"concatenate", "sample"}, default="concatenate"
        "concatenate": equal numbers of features for each kernel, scaled by the root of its weight.
        "sample": draws from the mixture of the spectral laws, with equal scales.
    features : {"pair", "phase"}, default="pair"
        Cosine and sine of each draw (lower variance), or a cosine with a random phase.
    normalize : bool, default=True
        Scale kernels to unit diagonal before scoring and mixing. MMD depends on the scale: without
        normalisation a polynomial kernel would dominate.
    max_samples : int, default=2000
        Number of rows that score the kernels, at least 2 of each class. Classes are balanced as far as they have
        samples, for the smaller class limits the precision of a discrepancy.
    random_state : int, RandomState instance or None, default=None
        Seed of all draws.

    Attributes
    ----------
    kernels_ : list of Kernel
        The base kernels, with unit diagonal if `normalize`.
    scores_ : ndarray of shape (n_kernels,), float64
        Scores of the kernels.
    weights_ : ndarray of shape (n_kernels,), float64
        Weights of the kernels, >= 0 with sum 1. A kernel with weight 0 gets no features.
    frequencies_ : ndarray of shape (n_features_in_, n_draws)
        Frequencies of all Fourier features.
    phases_ : ndarray of shape (n_draws,) or None
        Phases of the Fourier features in [0, 2 pi); None for pairs.
    amplitudes_ : ndarray of shape (n_draws,)
        Factors of the Fourier features.
    nystroem_ : list of NystroemMap
        The Nystroem parts; their projections contain the roots of the weights.
    n_features_in_ : int
        Number of input features.

    Raises
    ------
    ConfigError
        If `kernels` and `gammas` contradict each other, or `n_components` is too small for the
        kernels.
    InputError
        If the median distance or a score cannot be computed from the samples.

    Warns
    -----
    UserWarning
        If no kernel separates the classes. The weights are then uniform. If the U-statistic leaves samples out.

    Notes
    -----
    ``<z(x), z(y)>`` estimates ``sum_l w_l k_l(x, y)`` with ``w_l = score_l / sum_l score_l``. In the
    "sample" form, a kernel without a spectral law gets Nystroem features in proportion to its weight.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, eq. 4.7-4.12.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.kernels import MixtureRFF
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y = np.linalg.norm(X, axis=1) > 1.5
    >>> mixture = MixtureRFF(gammas=[0.1, 1.0], n_components=400, random_state=0).fit(X, y)
    >>> mixture.transform(X).shape
    (60, 400)
    >>> bool(np.isclose(mixture.weights_.sum(), 1))
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernels": [StrOptions(set(_NAMED)), "array-like"],
        "gammas": ["array-like", None],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "criterion": [StrOptions(set(_CRITERIA))],
        "form": [StrOptions({"concatenate", "sample"})],
        "features": [StrOptions({"pair", "phase"})],
        "normalize": ["boolean"],
        "max_samples": [Interval(Integral, 4, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kernels: Literal["gaussian", "laplacian", "anova", "polynomial"] | Sequence[Kernel] = "gaussian",
        *,
        gammas: ArrayLike | None = None,
        n_components: int = 2048,
        criterion: Literal["mmd", "u_statistic", "alignment", "centered_alignment", "power"] = "mmd",
        form: Literal["concatenate", "sample"] = "concatenate",
        features: Literal["pair", "phase"] = "pair",
        normalize: bool = True,
        max_samples: int = 2000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernels = kernels
        self.gammas = gammas
        self.n_components = n_components
        self.criterion = criterion
        self.form = form
        self.features = features
        self.normalize = normalize
        self.max_samples = max_samples
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Score the kernels on rows (n_samples, n_features) and labels, weigh them, and draw their features."""
        rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(labels)
        rng = check_random_state(self.random_state)
        self.kernels_ = self._base_kernels(rows, rng)
        scored = _scoring_rows(labels, self.max_samples, rng)
        # A generator: only one Gram matrix is in memory at a time.
        grams = gram_matrices(self.kernels_, rows[scored])
        score = self._make_criterion(labels[scored], rng)
        self.scores_ = np.array([score(K, labels[scored]) for K in grams])
        self._refuse_zero_kernels(rows)
        self.weights_ = mixture_weights(self.scores_)
        self._draw_features(rows, rng)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows to the Fourier features of all kernels, ``[cos block | sin block]`` for pairs, then Nystroem features.

        (n_samples, n_features) -> (n_samples, n_features_out), float32 if `X` is.
        """
        check_is_fitted(self)
        X = validate_rows(self, X, reset=False)
        out = np.empty((len(X), self._n_features_out), dtype=X.dtype)
        # Write all parts into one array: copies of features would double the memory.
        stop = self._n_fourier_features
        fourier_map(X, self.frequencies_, self.phases_, amplitudes=self.amplitudes_, out=out[:, :stop])
        for part in self.nystroem_:
            start, stop = stop, stop + part.projection.shape[1]
            out[:, start:stop] = part(X)
        return out

    def dot(self, X: ArrayLike, coef: NDArray[Any]) -> FloatArray:
        """Compute linear functions of the features, ``transform(X) @ coef.T``, (n_samples, n_functions), at less cost."""
        check_is_fitted(self)
        X = validate_rows(self, X, reset=False)
        stop = self._n_fourier_features
        if stop:
            out = fourier_dot(X, self.frequencies_, coef[:, :stop], self.phases_, amplitudes=self.amplitudes_)
        else:
            out = np.zeros((len(X), len(coef)), dtype=X.dtype)
        for part in self.nystroem_:
            start, stop = stop, stop + part.projection.shape[1]
            out += part(X) @ coef[:, start:stop].T.astype(X.dtype)
        return out

    def linear_coef(self, coef: NDArray[Any]) -> None:
        """Return None: there is no linear part."""

    @property
    def nonlinear_columns(self) -> NDArray[np.intp]:
        """All columns."""
        return np.arange(self.n_features_in_)

    def nonlinear_dot(self, X: FloatArray, coef: NDArray[Any]) -> FloatArray:
        """Compute `dot`: all features are nonlinear."""
        return self.dot(X, coef)

    def nonlinear_input(self, X: FloatArray) -> FloatArray:
        """Return the rows unchanged."""
        return X

    def describe(self, groups: Sequence[str]) -> list[dict[str, Any]]:  # noqa: ARG002
        """List kind, name, gamma (of a Gaussian), weight and score of each kernel; groups of columns are ignored."""
        return [
            {
                # A normalised kernel is of the kind of the kernel inside.
                "kind": kernel_to_dict(getattr(kernel, "kernel", kernel))["name"],
                "name": _kernel_name(kernel_to_dict(kernel)),
                "gamma": _gamma(kernel),
                "weight": float(weight),
                "score": float(score),
            }
            for kernel, weight, score in zip(self.kernels_, self.weights_, self.scores_, strict=True)
        ]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Split the fitted transformer into a JSON-able header and arrays, for files without pickle.

        A `random_state` other than an integer becomes None. Kernels must be segkit's.
        """
        check_is_fitted(self)
        header = {
            "parameters": self._plain_parameters(),
            "kernels": [kernel_to_dict(kernel) for kernel in self.kernels_],
            "nystroem": [kernel_to_dict(part.kernel) for part in self.nystroem_],
        }
        arrays = {name: getattr(self, f"{name}_") for name in _ARRAYS}
        if self.phases_ is not None:
            arrays["phases"] = self.phases_
        for i, part in enumerate(self.nystroem_):
            arrays[f"landmarks_{i}"], arrays[f"projection_{i}"] = part.landmarks, part.projection
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted transformer, of bitwise equal `transform`, from the result of `to_state`."""
        try:
            parameters = dict(header["parameters"])
            if not isinstance(parameters["kernels"], str):
                parameters["kernels"] = [kernel_from_dict(kernel) for kernel in parameters["kernels"]]
            mixture = cls(**parameters)
            mixture.kernels_ = [kernel_from_dict(kernel) for kernel in header["kernels"]]
            for name in _ARRAYS:
                setattr(mixture, f"{name}_", arrays[name])
            mixture.phases_ = arrays["phases"] if mixture.features == "phase" else None
            mixture.nystroem_ = [
                NystroemMap(kernel_from_dict(kernel), arrays[f"landmarks_{i}"], arrays[f"projection_{i}"])
                for i, kernel in enumerate(header["nystroem"])
            ]
        except (KeyError, TypeError) as error:
            raise ModelFileError(f"state of MixtureRFF is damaged or of another version: {error}") from error
        if not mixture._fits_together():
            raise ModelFileError("arrays of MixtureRFF do not fit each other; copy the file again")
        mixture.n_features_in_ = len(mixture.frequencies_)
        return mixture

    def _fits_together(self) -> bool:
        """Return whether the shapes of restored arrays agree."""
        if self.frequencies_.ndim != 2:
            return False
        n_features, n_draws = self.frequencies_.shape
        phases = self.amplitudes_ if self.phases_ is None else self.phases_
        return (
            self.amplitudes_.shape == phases.shape == (n_draws,)
            and self.scores_.shape == self.weights_.shape == (len(self.kernels_),)
            and all(
                part.landmarks.ndim == part.projection.ndim == 2
                and part.landmarks.shape == (len(part.projection), n_features)
                and len(part.projection) > 0
                for part in self.nystroem_
            )
        )

    def _make_criterion(self, labels: NDArray[Any], rng: np.random.RandomState) -> Callable[..., float]:
        """Return the score of a kernel; all kernels share the pairs of the U-statistic, which need classes of one size."""
        if self.criterion != "u_statistic":
            return _CRITERIA[self.criterion]
        counts = np.unique(labels, return_counts=True)[1]
        if len(counts) > 2 or counts[0] != counts[1]:
            told = f"{counts.min()} of each" if len(counts) == 2 else "as many of the others as a class has"
            warnings.warn(
                f"classes of {', '.join(map(str, counts))} samples: the U-statistic takes {told}; criterion 'mmd' takes all",
                stacklevel=3,
            )
        return partial(_CRITERIA["u_statistic"], random_state=int(rng.randint(2**31 - 1)))

    def _refuse_zero_kernels(self, X: FloatArray) -> None:
        """Refuse gammas so large that nearly all samples are unlike each other."""
        if self.gammas is None:
            return
        few = X[check_random_state(0).permutation(len(X))[:_FEW]]
        others = ~np.eye(len(few), dtype=bool)
        if all(np.quantile(K[others], 0.99) < _NEARLY_ZERO for K in gram_matrices(self.kernels_, few)):
            if self.kernels == "anova":
                fitting = X.shape[1] / (2 * _spread(X))
            else:
                fitting = median_gamma(X, random_state=0) ** (0.5 if self.kernels == "laplacian" else 1.0)
            raise ConfigError(
                f"gammas {np.asarray(self.gammas).tolist()}: all kernels are nearly zero between these samples; give gammas "
                f"about {fitting:.2g}"
            )

    def _base_kernels(self, X: FloatArray, rng: np.random.RandomState) -> list[Kernel]:
        if not isinstance(self.kernels, str):
            return self._given_kernels(self.kernels)
        if self.kernels == "polynomial":
            if self.gammas is not None:
                raise ConfigError(
                    "gammas with kernels='polynomial': its kernels differ in degree; leave gammas out"
                )
            return self._scaled([Polynomial(degree, 1 / _spread(X)) for degree in _DEGREES])
        if self.gammas is not None:
            gammas = np.asarray(self.gammas, dtype=np.float64)
        elif self.kernels == "anova":
            gammas = _COARSE_GRID * X.shape[1] / (2 * _spread(X))
        else:
            root = 1.0 if self.kernels == "gaussian" else 0.5
            gammas = _GRID * median_gamma(X, random_state=rng) ** root
        if not gammas.size:
            raise ConfigError("gammas=[]: at least one is needed; leave gammas out for the default grid")
        if self.kernels == "anova":
            return self._scaled([Anova(float(gamma)) for gamma in gammas])
        kernel = Gaussian if self.kernels == "gaussian" else Laplacian
        return [kernel(float(gamma)) for gamma in gammas]

    def _given_kernels(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        if self.gammas is not None:
            raise ConfigError(
                "gammas with kernel objects: gammas apply to 'gaussian', 'laplacian' and 'anova'; "
                "set the gamma of each kernel object instead"
            )
        if not len(kernels) or not all(isinstance(kernel, Kernel) for kernel in kernels):
            raise ConfigError(
                f"kernels={kernels!r}: a name or at least one kernel object is needed, such as Gaussian(0.5)"
            )
        return self._scaled(kernels)

    def _scaled(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """Scale kernels to unit diagonal, if that is wanted."""
        has_unit_diagonal = ShiftInvariantKernel | Normalized
        return [
            Normalized(kernel) if self.normalize and not isinstance(kernel, has_unit_diagonal) else kernel
            for kernel in kernels
        ]

    def _draw_features(self, X: FloatArray, rng: np.random.RandomState) -> None:
        """Draw frequencies and landmarks, and put the weights into amplitudes and projections."""
        fourier = np.array([isinstance(kernel, ShiftInvariantKernel) for kernel in self.kernels_])
        if self.form == "concatenate":
            steps = np.where(fourier, self._per_draw, 1)
            sizes = _equal_sizes(self.weights_, steps, self.n_components)
        else:
            sizes = _sampled_sizes(self.weights_, fourier, self._per_draw, self.n_components, rng)
        draws = np.where(fourier, sizes // self._per_draw, 0)
        self._draw_frequencies(X, draws, rng)
        self.amplitudes_ = np.sqrt(self._squared_amplitudes(fourier, draws)).astype(X.dtype)
        self.nystroem_ = [
            _weighted(NystroemMap.from_landmarks(kernel, choose_landmarks(X, size, rng)), weight)
            for kernel, size, weight in zip(self.kernels_, sizes, self.weights_, strict=True)
            if size and not isinstance(kernel, ShiftInvariantKernel)
        ]

    def _draw_frequencies(self, X: FloatArray, draws: NDArray[np.intp], rng: np.random.RandomState) -> None:
        n_features = X.shape[1]
        parts = [
            kernel.frequencies(n_features, size, rng)
            for kernel, size in zip(self.kernels_, draws, strict=True)
            if isinstance(kernel, ShiftInvariantKernel)
        ]
        # The empty block keeps the shape if all kernels are Nystroem parts.
        self.frequencies_ = np.hstack([np.empty((n_features, 0)), *parts]).astype(X.dtype)
        self.phases_ = None
        if self.features == "phase":
            self.phases_ = rng.uniform(0, 2 * np.pi, draws.sum()).astype(X.dtype)

    def _squared_amplitudes(self, fourier: NDArray[np.bool_], draws: NDArray[np.intp]) -> NDArray[np.float64]:
        """Compute the weight of each draw; it is doubled if one cosine with a phase replaces the pair."""
        if self.form == "concatenate":
            per_draw = self.weights_ / np.maximum(draws, 1)
        else:
            per_draw = np.full(len(draws), self.weights_[fourier].sum() / max(draws.sum(), 1))
        return np.repeat(per_draw if self.features == "pair" else 2 * per_draw, draws)

    def _plain_parameters(self) -> dict[str, Any]:
        parameters = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params(deep=False).items()
        }
        if not isinstance(self.kernels, str):
            parameters["kernels"] = [kernel_to_dict(kernel) for kernel in self.kernels]
        if self.gammas is not None:
            parameters["gammas"] = np.asarray(self.gammas, dtype=np.float64).tolist()
        if not isinstance(parameters["random_state"], int):
            parameters["random_state"] = None
        return parameters

    @property
    def _per_draw(self) -> int:
        return 2 if self.features == "pair" else 1

    @property
    def _n_fourier_features(self) -> int:
        return len(self.amplitudes_) * (2 if self.phases_ is None else 1)

    @property
    def _n_features_out(self) -> int:
        return self._n_fourier_features + sum(int(part.projection.shape[1]) for part in self.nystroem_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _spread(X: FloatArray) -> float:
    """Sum the variances of the features."""
    spread = float(X.var(axis=0, dtype=np.float64).sum())
    if not spread:
        raise InputError("all samples are alike, so that no kernel fits them: give samples that differ")
    return spread


def _weighted(part: NystroemMap, weight: float) -> NystroemMap:
    projection = part.projection * part.projection.dtype.type(math.sqrt(weight))
    return replace(part, projection=projection)


def _scoring_rows(y: NDArray[Any], max_samples: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """Draw rows without replacement, balanced over classes as far as available."""
    # Small classes first: larger ones then share the rows that the small ones lack.
    by_class = sorted((np.flatnonzero(y == label) for label in np.unique(y)), key=len)
    chosen: list[NDArray[np.intp]] = []
    spare = max_samples
    for classes_left, rows in zip(range(len(by_class), 0, -1), by_class, strict=True):
        chosen.append(rng.permutation(rows)[: max(spare // classes_left, 2)])
        spare -= len(chosen[-1])
    return np.concatenate(chosen)


def _equal_sizes(
    weights: NDArray[np.float64], steps: NDArray[np.intp], n_components: int
) -> NDArray[np.intp]:
    """Share the features equally (eq. 4.10), in multiples of each kernel's step; remainders go to later kernels."""
    sizes = steps * (weights > 0)
    spare = _spare(n_components, int(sizes.sum()))
    # Pairs first: a Nystroem part can use an odd feature that they leave.
    order = [i for i in np.argsort(-steps, kind="stable") if sizes[i]]
    for kernels_left, i in zip(range(len(order), 0, -1), order, strict=True):
        extra = spare // kernels_left // steps[i] * steps[i]
        sizes[i] += extra
        spare -= extra
    return sizes


def _sampled_sizes(
    weights: NDArray[np.float64],
    fourier: NDArray[np.bool_],
    per_draw: int,
    n_components: int,
    rng: np.random.RandomState,
) -> NDArray[np.intp]:
    """Draw the numbers of features of the kernels from the mixture of the spectral laws (eq. 4.12)."""
    laws = weights * fourier
    nystroem = ~fourier & (weights > 0)
    # Each Nystroem part has at least one landmark, and the spectral laws together at least one draw.
    spare = _spare(n_components, int(nystroem.sum()) + per_draw * int(laws.any()))
    sizes = nystroem * (1 + np.floor(weights * spare).astype(np.intp))
    if laws.any():
        n_draws = (n_components - sizes.sum()) // per_draw
        sizes += per_draw * rng.multinomial(n_draws, laws / laws.sum())
    return sizes


def _spare(n_components: int, needed: int) -> int:
    """Count the features beyond the minimum of one draw or landmark for each part."""
    if n_components < needed:
        raise ConfigError(
            f"n_components={n_components}: the kernels with positive weight need at least {needed} features; "
            f"raise n_components or give fewer kernels"
        )
    return n_components - needed


def _gamma(kernel: Kernel) -> float | None:
    """Return the gamma of a Gaussian kernel, normalised or not; None for other kernels."""
    inner = getattr(kernel, "kernel", kernel)
    return float(inner.gamma) if isinstance(inner, Gaussian) else None


def _kernel_name(description: dict[str, Any]) -> str:
    """Write the name and the parameters of a kernel in a few words."""
    inner = f" {_kernel_name(description['kernel'])}" if "kernel" in description else ""
    numbers = [f"{key}={value:.3g}" for key, value in description.items() if key not in ("name", "kernel")]
    return " ".join([description["name"], *numbers]) + inner
