"""Orbit embeddings: the mean kernel feature of all transformations of a sample.

Random Fourier features of shift-invariant kernels, or Nystroem features of any kernel, averaged over a group. The second
layer of the paper is `RandomFourierFeatures` after them, in a pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from segkit.errors import ConfigError, InputError
from segkit.invariance.bestfit import as_arguments
from segkit.invariance.embeddings import Embedding, FourierEmbedding, NystroemEmbedding
from segkit.invariance.groups import Element, Group, Identity, draw_elements
from segkit.kernels.base import (
    FloatArray,
    Gaussian,
    Kernel,
    Laplacian,
    Polynomial,
    ShiftInvariantKernel,
    median_gamma,
)
from segkit.kernels.fourier import FREQUENCIES
from segkit.kernels.nystrom import NystroemMap, choose_landmarks

if TYPE_CHECKING:
    import torch

# Templates transformed at once, and pairs evaluated at once: few enough for the cache, enough for a fast
# matrix product.
LARGEST_BLOCK = 1024
LARGEST_TILE = 2**18
# Bytes per pair, and copies of each value, that evaluation and transformations need for a moment.
PAIR_BYTES = 64
COPIES = 6


@dataclass(frozen=True)
class _Rows:
    """Samples and templates in rows, (n, n_values) and (m, n_values): the `Pairs` of whole samples."""

    left: torch.Tensor
    right: torch.Tensor
    shape: tuple[int, ...]

    def products(self) -> torch.Tensor:
        return self.left @ self.right.T

    def kernel_values(self, kernel: Kernel) -> torch.Tensor:
        import torch

        x, y = (
            as_arguments(kernel, rows.numpy().reshape(-1, *self.shape)) for rows in (self.left, self.right)
        )
        return torch.from_numpy(kernel(x, y))


@dataclass(frozen=True)
class Average:
    """Averages of an embedding of some samples at some templates: values (n_rows, n_features, n_templates), float64."""

    rows: slice
    templates: slice
    values: torch.Tensor


def orbit_averages(
    X: FloatArray,
    templates: FloatArray,
    embedding: Embedding,
    *,
    elements: Sequence[Element],
    transform: Callable[[Element, FloatArray], FloatArray],
    of_templates: bool,
    memory_limit: int = 2**30,
) -> Iterator[Average]:
    """Average an embedding of samples and templates over transformations of one of them.

    Yields all samples at some templates, if templates are transformed; else some samples at all templates. Each
    transformation is applied once to each block of the transformed side. `memory_limit` is of blocks; the arguments are
    extra.
    """
    import torch

    templates = templates.astype(X.dtype, copy=False)
    moved, still = (templates, X) if of_templates else (X, templates)
    fixed = _rows(still)
    n_sums = embedding.n_sums
    per_template = 8 * n_sums * len(still) + COPIES * fixed[0].nbytes
    n_block = max(1, min(LARGEST_BLOCK, len(moved), memory_limit // (2 * per_template)))
    n_tile = max(1, min(LARGEST_TILE, memory_limit // (4 * PAIR_BYTES)) // n_block)
    for block in gen_batches(len(moved), n_block):
        total = torch.zeros((n_sums, len(still), block.stop - block.start), dtype=torch.float64)
        for element in elements:
            transformed = _rows(transform(element, moved[block]))
            for tile in gen_batches(len(still), n_tile):
                embedding.add(_Rows(fixed[tile], transformed, X.shape[1:]), total[:, tile])
        means = embedding.finish(total.div_(len(elements)))
        if of_templates:
            yield Average(slice(0, len(X)), block, means.permute(1, 0, 2))
        else:
            yield Average(block, slice(0, len(templates)), means.permute(2, 0, 1))


class OrbitTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of transformers that average over a group: checks the samples to fit, and draws ``elements_``."""

    group: Group | None
    n_transforms: int | None

    def _start(self, X: ArrayLike, rng: np.random.RandomState) -> FloatArray:
        samples: FloatArray = validate_data(self, X, dtype=[np.float64, np.float32], allow_nd=True)
        self.shape_in_ = samples.shape[1:]
        self.elements_ = draw_elements(self._group, self.n_transforms, self.shape_in_, rng)
        return samples

    def _check(self, X: ArrayLike) -> FloatArray:
        """Check samples that a fitted transformer is given."""
        check_is_fitted(self)
        shape = np.asarray(X).shape[1:]
        # scikit-learn itself refuses rows of another length
        if shape != self.shape_in_ and max(len(shape), len(self.shape_in_)) > 1:
            raise InputError(
                f"samples of shape {shape}: {type(self).__name__} was fitted on {self.shape_in_}; resize or crop them alike"
            )
        samples: FloatArray = validate_data(
            self, X, dtype=[np.float64, np.float32], allow_nd=True, reset=False
        )
        return samples

    @property
    def _group(self) -> Group:
        return Identity() if self.group is None else self.group

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _rows(block: FloatArray) -> torch.Tensor:
    """Put samples in rows, without a copy where that is possible."""
    import torch

    rows = np.ascontiguousarray(block.reshape(len(block), -1))
    # Torch warns of arrays that it could write to by mistake.
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())


# Rows that the bandwidth is estimated from.
SUBSAMPLE = 1000


class _OrbitEmbedding(OrbitTransformer):
    """Base of both embeddings: their common options, and the default kernel."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "group": [Group, None],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_transforms": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }
    kernel: Any

    def _base_kernel(self, samples: FloatArray, rng: np.random.RandomState) -> Any:
        """Return the kernel, or a Gaussian of the median heuristic."""
        if isinstance(self.kernel, type):
            raise ConfigError(
                f"kernel={self.kernel.__name__}: give a kernel with its parameters, as Gaussian(0.1)"
            )
        if self.kernel is not None:
            return self.kernel
        rows = choose_landmarks(samples, SUBSAMPLE, rng).reshape(-1, math.prod(self.shape_in_))
        try:
            return Gaussian(median_gamma(rows))
        except InputError as error:
            raise InputError(
                f"kernel=None: values of {len(rows)} samples have no median distance above 0; give more samples that "
                f"differ, or kernel=Gaussian(gamma)"
            ) from error


class OrbitFourier(_OrbitEmbedding):
    """Random Fourier features averaged over a group.

    Parameters
    ----------
    kernel : ShiftInvariantKernel or None, default=None
        `Gaussian`, `Laplacian` or `L1Laplacian`; None is a Gaussian with the median heuristic.
    group : Group or None, default=None
        The transformations; None is `Identity`.
    n_components : int, default=100
        Number of features, pairs of cosine and sine; rounded up to an even one.
    n_transforms : int or None, default=None
        How many transformations to draw; None takes all of a finite group.
    frequencies : {"random", "orthogonal", "qmc"}, default="random"
        Independent draws; orthogonal ones of the same law, as many at a time as there are values
        in a sample; or a scrambled Halton sequence (quasi-Monte Carlo), for samples of few values.
    random_state : int, RandomState instance or None, default=None
        Seed of frequencies and transformations.

    Attributes
    ----------
    kernel_ : ShiftInvariantKernel
        The kernel.
    frequencies_ : ndarray of shape (n_components / 2, *shape)
        Draws from the spectral law of the kernel, the templates.
    elements_ : sequence
        The transformations.
    shape_in_ : tuple of int
        Shape of one sample.

    Notes
    -----
    With s frequencies w_j and r transformations g_k,
    ``psi(x)_j = 1 / (r sqrt(s)) sum_k exp(-i <w_j, g_k x>)``, as its real part, then its imaginary
    part without the sign. Since ``<w, g x> = <g* w, x>`` with the adjoint g*, the fewer are
    transformed, frequencies or samples, for any law on the group. Without an adjoint it is the
    samples.

    Inner products estimate ``k_G(x, z) = E k(g x, g' z)``, with g and g' over all transformations
    listed; where r are drawn, their expectation is ``(1 - 1/r) k_G(x, z) + 1/r E k(g x, g z)``.
    Features are exactly invariant, up to rounding, to a whole group listed completely.

    References
    ----------
    A. Raj et al. 2017, eq. 7.
    F. X. Yu et al., Orthogonal random features, 2016.
    J. Yang et al., Quasi-Monte Carlo feature maps for shift-invariant kernels, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Dihedral, OrbitFourier
    >>> image = np.array([[1.0, 2.0], [3.0, 5.0]])
    >>> features = OrbitFourier(group=Dihedral(), random_state=0).fit_transform([image, image.T])
    >>> features.shape, np.allclose(features[0], features[1])
    ((2, 100), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_OrbitEmbedding._parameter_constraints,
        "kernel": [ShiftInvariantKernel, None],
        "frequencies": [StrOptions(set(FREQUENCIES))],
    }

    def __init__(
        self,
        kernel: ShiftInvariantKernel | None = None,
        group: Group | None = None,
        *,
        n_components: int = 100,
        n_transforms: int | None = None,
        frequencies: Literal["random", "orthogonal", "qmc"] = "random",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.group = group
        self.n_components = n_components
        self.n_transforms = n_transforms
        self.frequencies = frequencies
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None) -> Self:  # noqa: ARG002
        """Draw frequencies and transformations for samples (n_samples, *shape): rows, signals, images or matrices."""
        rng = check_random_state(self.random_state)
        samples = self._start(X, rng)
        self.kernel_ = self._base_kernel(samples, rng)
        draw = FREQUENCIES[self.frequencies]
        columns = draw(self.kernel_, math.prod(self.shape_in_), math.ceil(self.n_components / 2), rng)
        self.frequencies_ = columns.T.reshape(-1, *self.shape_in_).astype(samples.dtype)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map samples to their orbit embeddings, (n_samples, *shape) -> (n_samples, n_features_out); float32 stays."""
        samples = self._check(X)
        group, n_draws = self._group, len(self.frequencies_)
        of_templates = group.has_adjoint and n_draws <= len(samples)
        features = np.empty((len(samples), 2, n_draws), dtype=samples.dtype)
        averages = orbit_averages(
            samples,
            self.frequencies_,
            FourierEmbedding(self.kernel_),
            elements=self.elements_,
            transform=group.adjoint if of_templates else group.act,
            of_templates=of_templates,
        )
        for average in averages:
            features[average.rows, :, average.templates] = average.values.div_(math.sqrt(n_draws)).numpy()
        return features.reshape(len(samples), -1)

    @property
    def _n_features_out(self) -> int:
        return 2 * len(self.frequencies_)


class OrbitNystroem(_OrbitEmbedding):
    """Nystroem features averaged over a group.

    Parameters
    ----------
    kernel : Kernel or None, default=None
        Any kernel of rows of values, or a `LocalPolynomialKernel`; None is a Gaussian with the median heuristic.
    group : Group or None, default=None
        The transformations; None is `Identity`.
    n_components : int, default=100
        Number of landmarks, drawn among the samples and capped by their number. The kernel's rank on them is the number
        of features.
    n_transforms, random_state : see `OrbitFourier`
        Number of transformations to draw, and seed.

    Attributes
    ----------
    map_ : NystroemMap
        The kernel, the landmarks in the form it takes and the projection.
    elements_ : sequence
        The transformations.
    shape_in_ : tuple of int
        Shape of one sample.

    Notes
    -----
    With landmarks Z and r transformations g_k, ``psi(x) = 1/r L sum_k k(Z, g_k x)``, where
    ``K_ZZ^+ = L' L``. Where k(g x, z) = k(x, g* z) exactly, with the adjoint g* (a `Polynomial`
    kernel; a `Gaussian` or `Laplacian` one if the group is unitary), the fewer are transformed, landmarks
    or samples; else samples.

    Inner products are those of `OrbitFourier`, k_G(x, z) = E k(g x, g' z), as far as the landmarks
    span the orbits. All is computed in float64 and rounded at the end: in float32 a smooth kernel
    would have a rank of a few dozens, whatever the number of landmarks.

    References
    ----------
    A. Raj et al. 2017, eq. 8.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import OrbitNystroem, Permutation
    >>> X = np.array([[1.0, 0.0, 2.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> features = OrbitNystroem(group=Permutation(), random_state=0).fit_transform(X)
    >>> features.shape, np.allclose(features[0], features[1])
    ((3, 3), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_OrbitEmbedding._parameter_constraints,
        "kernel": [Kernel, None],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        group: Group | None = None,
        *,
        n_components: int = 100,
        n_transforms: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.group = group
        self.n_components = n_components
        self.n_transforms = n_transforms
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None) -> Self:  # noqa: ARG002
        """Draw landmarks and transformations for samples (n_samples, *shape): rows, signals, images or matrices."""
        rng = check_random_state(self.random_state)
        samples = self._start(X, rng).astype(np.float64)
        kernel = self._base_kernel(samples, rng)
        landmarks = choose_landmarks(samples, min(self.n_components, len(samples)), rng)
        self.map_ = NystroemMap.from_landmarks(kernel, as_arguments(kernel, landmarks))
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map samples to their orbit embeddings, (n_samples, *shape) -> (n_samples, n_features_out); float32 stays."""
        import torch

        samples = self._check(X)
        group, kernel = self._group, self.map_.kernel
        landmarks = self.map_.landmarks.reshape(-1, *self.shape_in_)
        projection = torch.from_numpy(self.map_.projection)
        of_landmarks = _commutes(kernel, group) and len(landmarks) <= len(samples)
        features = torch.zeros((len(samples), projection.shape[1]), dtype=torch.float64)
        averages = orbit_averages(
            samples.astype(np.float64),
            landmarks,
            NystroemEmbedding(kernel),
            elements=self.elements_,
            transform=group.adjoint if of_landmarks else group.act,
            of_templates=of_landmarks,
        )
        for average in averages:
            features[average.rows].addmm_(average.values[:, 0], projection[average.templates])
        return features.numpy().astype(samples.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return int(self.map_.projection.shape[1])


def _commutes(kernel: Kernel, group: Group) -> bool:
    """Whether k(g x, z) = k(x, g* z) exactly, so that landmarks can be transformed."""
    if isinstance(kernel, Polynomial):
        return group.has_adjoint
    return isinstance(kernel, Gaussian | Laplacian) and group.is_unitary
