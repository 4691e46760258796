"""Group-invariant features that are distribution functions of projections on transformed templates."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import row_norms

from segkit.errors import ConfigError, InputError
from segkit.invariance.embeddings import StepEmbedding
from segkit.invariance.groups import Group
from segkit.invariance.orbit import OrbitTransformer, orbit_averages
from segkit.kernels.base import FloatArray


class GroupCDF(OrbitTransformer):
    """Cumulative distribution of projections on the orbit of each of some random templates (CDF features).

    Parameters
    ----------
    n_templates : int, default=100
        Number of templates m.
    n_bins : int, default=25
        Number of bins n on either side of 0: 2n + 1 thresholds s k / n, k from -n to n.
    group : Group or None, default=None
        The transformations; None is `Identity`.
    n_transforms : int or None, default=None
        How many transformations to draw; None takes all of a finite group.
    templates : {"gaussian", "sphere"} or array-like of shape (m, *shape), default="gaussian"
        Law of the templates, N(0, I / d) within a ball or uniform on the unit sphere, or the
        templates themselves, whose number then replaces `n_templates`.
    epsilon : float, default=0.1
        Margin of the thresholds, and of the squared norm of Gaussian templates, in (0, 1).
    thresholds : array-like of shape (n_thresholds,) or None, default=None
        Increasing thresholds in place of the bins, in the unit of the projections.
    quadrature : {"sum", "trapezoid"}, default="sum"
        Weights of the thresholds: equal as in the paper, or half at both ends, which removes the
        bias s / (2 n) of inner products.
    random_state : int, RandomState instance or None, default=None
        Seed of templates and transformations.

    Attributes
    ----------
    templates_ : ndarray of shape (m, *shape)
        The templates.
    thresholds_ : ndarray of shape (n_thresholds,), float64
        The thresholds.
    elements_ : sequence
        The transformations.
    shape_in_ : tuple of int
        Shape of one sample.

    Notes
    -----
    ``phi(x, t_j, s k / n) = sqrt(s / (n m)) / |G| #{i: <g_i t_j, x> <= s k / n}``; the features of
    one threshold for all templates stand together. With R the largest norm of the samples fitted,
    s = R (1 + epsilon), times the largest norm of templates that were given. Given thresholds
    weigh their mean gap ("sum") or half the gaps around them ("trapezoid") in place of s / n. A group without an
    adjoint transforms the data in place of the templates.

    With Gaussian templates inner products estimate ``s - d_G(x, z)``, up to s / (2 n), where d_G is
    the mean distance between the orbits of x and z divided by sqrt(2 pi d), d values per sample; other
    templates make another distance of the same orbits. The thresholds reach as far as projections of
    the samples fitted: on longer ones, projections beyond the last threshold are counted by none.
    Features are exactly invariant, up to rounding, to a group that is unitary, closed and listed
    completely.

    References
    ----------
    Y. Mroueh et al. 2015, section 3 and eq. 3.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import GroupCDF, Permutation
    >>> X = np.array([[0.6, 0.8, 0.0], [0.0, 0.6, 0.8]])
    >>> features = GroupCDF(10, n_bins=5, group=Permutation(), random_state=0).fit_transform(X)
    >>> features.shape
    (2, 110)
    >>> np.allclose(features[0], features[1])
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_templates": [Interval(Integral, 1, None, closed="left")],
        "n_bins": [Interval(Integral, 1, None, closed="left")],
        "group": [Group, None],
        "n_transforms": [Interval(Integral, 1, None, closed="left"), None],
        "templates": [StrOptions({"gaussian", "sphere"}), "array-like"],
        "epsilon": [Interval(Real, 0, 1, closed="neither")],
        "thresholds": ["array-like", None],
        "quadrature": [StrOptions({"sum", "trapezoid"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_templates: int = 100,
        n_bins: int = 25,
        *,
        group: Group | None = None,
        n_transforms: int | None = None,
        templates: Literal["gaussian", "sphere"] | ArrayLike = "gaussian",
        epsilon: float = 0.1,
        thresholds: ArrayLike | None = None,
        quadrature: Literal["sum", "trapezoid"] = "sum",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_templates = n_templates
        self.n_bins = n_bins
        self.group = group
        self.n_transforms = n_transforms
        self.templates = templates
        self.epsilon = epsilon
        self.thresholds = thresholds
        self.quadrature = quadrature
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None) -> Self:  # noqa: ARG002
        """Draw templates and transformations, and set the thresholds by the largest norm of samples (n_samples, *shape)."""
        rng = check_random_state(self.random_state)
        samples = self._start(X, rng)
        self.templates_ = self._draw_templates(rng).astype(samples.dtype)
        self.thresholds_ = self._bins(samples) if self.thresholds is None else _increasing(self.thresholds)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map samples to their distribution functions; (n_samples, *shape) -> (n_samples, n_thresholds * m)."""
        import torch

        samples = self._check(X)
        n_thresholds, n_templates = len(self.thresholds_), len(self.templates_)
        amplitudes = np.sqrt(_quadrature_weights(self.thresholds_, rule=self.quadrature) / n_templates)
        scale = torch.from_numpy(amplitudes)[:, None]
        features = np.empty((len(samples), n_thresholds, n_templates), dtype=samples.dtype)
        averages = orbit_averages(
            samples,
            self.templates_,
            StepEmbedding(tuple(self.thresholds_)),
            elements=self.elements_,
            transform=self._group.act,
            of_templates=self._group.has_adjoint,
        )
        for average in averages:
            features[average.rows, :, average.templates] = average.values.mul_(scale).numpy()
        return features.reshape(len(samples), -1)

    @property
    def _n_features_out(self) -> int:
        return len(self.thresholds_) * len(self.templates_)

    def _draw_templates(self, rng: np.random.RandomState) -> NDArray[np.float64]:
        if not isinstance(self.templates, str):
            return _checked_templates(self.templates, self.shape_in_)
        n_values = math.prod(self.shape_in_)
        if self.templates == "sphere":
            rows = rng.standard_normal((self.n_templates, n_values))
            rows /= row_norms(rows)[:, None]
        else:
            rows = _gaussian_templates(self.n_templates, n_values, epsilon=self.epsilon, rng=rng)
        return rows.reshape(-1, *self.shape_in_)

    def _bins(self, samples: FloatArray) -> NDArray[np.float64]:
        largest = _largest_norm(samples)
        if largest == 0:
            raise InputError(
                "all samples are 0: thresholds need a scale; give samples that are not, or thresholds"
            )
        longest = 1.0 if isinstance(self.templates, str) else _largest_norm(self.templates_)
        limit = largest * longest * (1 + self.epsilon)
        return limit * np.arange(-self.n_bins, self.n_bins + 1) / self.n_bins


def _gaussian_templates(
    n_templates: int, n_values: int, *, epsilon: float, rng: np.random.RandomState
) -> NDArray[np.float64]:
    """Draw templates by the Gaussian law N(0, I / n_values), anew where the squared norm is 1 + epsilon or more."""
    kept = np.empty((0, n_values))
    while len(kept) < n_templates:
        draws = rng.standard_normal((n_templates, n_values)) / math.sqrt(n_values)
        kept = np.concatenate([kept, draws[row_norms(draws, squared=True) < 1 + epsilon]])
    return kept[:n_templates]


def _quadrature_weights(
    thresholds: NDArray[np.float64], *, rule: Literal["sum", "trapezoid"]
) -> NDArray[np.float64]:
    """Weigh thresholds so that a sum over them approximates an integral."""
    gaps = np.diff(thresholds)
    if not gaps.size:
        return np.ones(1)
    if rule == "sum":
        return np.full(len(thresholds), gaps.mean())
    return np.asarray((np.append(gaps, 0) + np.append(0, gaps)) / 2)


def _largest_norm(X: FloatArray) -> float:
    return float(row_norms(X.reshape(len(X), -1)).max())


def _checked_templates(templates: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    checked = np.asarray(templates, dtype=np.float64)
    if checked.shape[1:] != shape or not checked.size:
        wanted = ", ".join(["m", *map(str, shape)])
        raise InputError(
            f"templates of shape {checked.shape}: samples have the shape {shape}; give ({wanted})"
        )
    if not np.isfinite(checked).all():
        raise InputError("the templates hold NaN or infinite values: give finite ones")
    return checked


def _increasing(thresholds: ArrayLike) -> NDArray[np.float64]:
    checked = np.asarray(thresholds, dtype=np.float64)
    if (
        checked.ndim != 1
        or not checked.size
        or not np.isfinite(checked).all()
        or (np.diff(checked) <= 0).any()
    ):
        raise ConfigError(f"thresholds={thresholds!r}: give at least one, finite and increasing")
    return checked
