"""Orbit embeddings: the mean kernel feature of all transformations of a sample.

Random Fourier features of shift-invariant kernels, or Nystroem features of any kernel, averaged over a
group; on top, optionally, a second layer of random Fourier features.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context, clone
from sklearn.cluster import kmeans_plusplus
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from segkit.errors import ConfigError, InputError
from segkit.invariance.bestfit import as_arguments
from segkit.invariance.embeddings import FourierEmbedding, NystroemEmbedding
from segkit.invariance.groups import Group
from segkit.invariance.templates import OrbitTransformer, check_device, orbit_averages
from segkit.kernels.base import (
    FloatArray,
    Gaussian,
    Kernel,
    Laplacian,
    Polynomial,
    ShiftInvariantKernel,
    median_gamma,
)
from segkit.kernels.fourier import RandomFourierFeatures
from segkit.kernels.frequencies import FREQUENCIES
from segkit.kernels.nystrom import NystroemMap, choose_landmarks, leverage_scores

# Rows that bandwidths are estimated from.
SUBSAMPLE = 1000


class _OrbitEmbedding(OrbitTransformer):
    """Base of both embeddings: fit and apply two layers."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "group": [Group, None],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_transforms": [Interval(Integral, 1, None, closed="left"), None],
        "second_layer": [Interval(Integral, 1, None, closed="left"), RandomFourierFeatures, None],
        "memory_limit": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    kernel: Any
    random_state: int | np.random.RandomState | None
    second_layer: int | RandomFourierFeatures | None

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None) -> Self:  # noqa: ARG002
        """Draw templates and transformations."""
        rng = check_random_state(self.random_state)
        samples = self._start(X, rng)
        self._fit_first_layer(samples, rng)
        self.second_layer_ = self._fit_second_layer(samples, rng)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map samples to their orbit embeddings."""
        features = self._first_layer(self._validated(X))
        if self.second_layer_ is not None:
            features = self.second_layer_.transform(features)
        return features

    @abstractmethod
    def _fit_first_layer(self, samples: FloatArray, rng: np.random.RandomState) -> None:
        """Draw the templates."""

    @abstractmethod
    def _first_layer(self, samples: FloatArray) -> FloatArray:
        """Embed checked samples; (n_samples, *shape) -> (n_samples, n_first_layer)."""

    @property
    @abstractmethod
    def _n_first_layer(self) -> int:
        """Number of features of the first layer."""

    def _fit_second_layer(
        self, samples: FloatArray, rng: np.random.RandomState
    ) -> RandomFourierFeatures | None:
        if self.second_layer is None:
            return None
        features = self._first_layer(choose_landmarks(samples, SUBSAMPLE, rng))
        seed = rng.randint(np.iinfo(np.int32).max)
        layer: RandomFourierFeatures
        if isinstance(self.second_layer, RandomFourierFeatures):
            layer = clone(self.second_layer)
            if layer.random_state is None:
                layer.set_params(random_state=seed)
        else:
            kernel = _median_gaussian(
                features,
                f"second_layer={self.second_layer}",
                "features",
                "RandomFourierFeatures(Gaussian(gamma))",
            )
            layer = RandomFourierFeatures(kernel, n_components=self.second_layer, random_state=seed)
        layer.fit(features)
        return layer

    def _base_kernel(self, samples: FloatArray, rng: np.random.RandomState) -> Any:
        if isinstance(self.kernel, type):
            raise ConfigError(
                f"kernel={self.kernel.__name__}: give a kernel with its parameters, as Gaussian(0.1)"
            )
        if self.kernel is not None:
            return self.kernel
        rows = choose_landmarks(samples, SUBSAMPLE, rng).reshape(-1, math.prod(self.shape_in_))
        return _median_gaussian(rows, "kernel=None", "values", "kernel=Gaussian(gamma)")

    @property
    def _n_features_out(self) -> int:
        if self.second_layer_ is None:
            return self._n_first_layer
        return len(self.second_layer_.get_feature_names_out())


class OrbitFourier(_OrbitEmbedding):
    """Random Fourier features averaged over a group.

    Parameters
    ----------
    kernel : ShiftInvariantKernel or None, default=None
        `Gaussian`, `Laplacian` or `L1Laplacian`; None is a Gaussian with the median heuristic.
    group : Group or None, default=None
        The transformations; None is `Identity`.
    n_components : int, default=100
        Number of features of the first layer, pairs of cosine and sine; rounded up to an even one.
    n_transforms : int or None, default=None
        How many transformations to draw; None takes all of a finite group.
    frequencies : {"random", "orthogonal", "qmc"}, default="random"
        Independent draws; orthogonal ones of the same law, as many at a time as there are values
        in a sample; or a scrambled Halton sequence (quasi-Monte Carlo), for samples of few values.
    second_layer : int, RandomFourierFeatures or None, default=None
        Random Fourier features of the first layer's: how many, for a Gaussian kernel with the
        median heuristic, or the transformer itself, seeded by `random_state` if it has none.
    device : str, default="cpu"
        Torch device that computes the first layer.
    memory_limit : int, default=2**30
        Bytes of blocks held at a time. Samples, templates and features are extra.
    random_state : int, RandomState instance or None, default=None
        Seed of frequencies, transformations and second layer.

    Attributes
    ----------
    kernel_ : ShiftInvariantKernel
        The kernel.
    frequencies_ : ndarray of shape (n_components / 2, *shape)
        Draws from the spectral law of the kernel, the templates.
    elements_ : sequence
        The transformations.
    second_layer_ : RandomFourierFeatures or None
        The fitted second layer.
    shape_in_ : tuple of int
        Shape of one sample.
    n_features_in_ : int
        Length of the first axis of a sample.

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
    A. Raj et al., Local group invariant representations via orbit embeddings, 2017, eq. 7.
    F. X. Yu et al., Orthogonal random features, 2016.
    J. Yang et al., Quasi-Monte Carlo feature maps for shift-invariant kernels, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Dihedral
    >>> from segkit.invariance.orbit import OrbitFourier
    >>> image = np.array([[1.0, 2.0], [3.0, 5.0]])
    >>> features = OrbitFourier(group=Dihedral(), random_state=0).fit_transform([image, image.T])
    >>> features.shape, np.allclose(features[0], features[1])
    ((2, 100), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_OrbitEmbedding._parameter_constraints,
        "kernel": [ShiftInvariantKernel, None],
        "frequencies": [StrOptions(set(FREQUENCIES))],
        "device": [str],
    }

    def __init__(
        self,
        kernel: ShiftInvariantKernel | None = None,
        group: Group | None = None,
        *,
        n_components: int = 100,
        n_transforms: int | None = None,
        frequencies: Literal["random", "orthogonal", "qmc"] = "random",
        second_layer: int | RandomFourierFeatures | None = None,
        device: str = "cpu",
        memory_limit: int = 2**30,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.group = group
        self.n_components = n_components
        self.n_transforms = n_transforms
        self.frequencies = frequencies
        self.second_layer = second_layer
        self.device = device
        self.memory_limit = memory_limit
        self.random_state = random_state

    def _fit_first_layer(self, samples: FloatArray, rng: np.random.RandomState) -> None:
        check_device(self.device)
        self.kernel_ = self._base_kernel(samples, rng)
        draw = FREQUENCIES[self.frequencies]
        n_draws = math.ceil(self.n_components / 2)
        columns = draw(self.kernel_, math.prod(self.shape_in_), n_draws, rng)
        self.frequencies_ = columns.T.reshape(-1, *self.shape_in_).astype(samples.dtype)

    def _first_layer(self, samples: FloatArray) -> FloatArray:
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
            device=self.device,
            memory_limit=self.memory_limit,
        )
        for average in averages:
            pairs = average.values.div_(math.sqrt(n_draws))
            features[average.rows, :, average.templates] = pairs.cpu().numpy()
        return features.reshape(len(samples), -1)

    @property
    def _n_first_layer(self) -> int:
        return 2 * len(self.frequencies_)


class OrbitNystroem(_OrbitEmbedding):
    """Nystroem features averaged over a group.

    Parameters
    ----------
    kernel : Kernel or None, default=None
        Any kernel of rows of values; or of samples with their shape: a `MapKernel`, a best or average
        fit, or either one `Normalized`. None is a Gaussian with the
        median heuristic.
    group : Group or None, default=None
        The transformations; None is `Identity`.
    n_components : int, default=100
        Number of landmarks, capped by the number of samples. The kernel's rank on the landmarks is
        the number of features of the first layer.
    n_transforms : int or None, default=None
        How many transformations to draw; None takes all of a finite group.
    landmarks : {"random", "kmeans++", "leverage"}, default="random"
        How landmarks are chosen among the samples: uniformly, far apart (the seeds of k-means++),
        or with the probability of their ridge leverage scores.
    landmarks_from : {"data", "orbit"}, default="data"
        Landmarks as chosen, or each moved by one of the transformations, as the samples are.
    second_layer : int, RandomFourierFeatures or None, default=None
        Random Fourier features of the first layer's: how many, for a Gaussian kernel with the
        median heuristic, or the transformer itself, seeded by `random_state` if it has none.
    memory_limit : int, default=2**30
        Bytes of blocks held at a time. Samples, landmarks and features are extra.
    random_state : int, RandomState instance or None, default=None
        Seed of landmarks, transformations and second layer.

    Attributes
    ----------
    map_ : NystroemMap
        The kernel, the landmarks in the form it takes and the projection.
    elements_ : sequence
        The transformations.
    second_layer_ : RandomFourierFeatures or None
        The fitted second layer.
    shape_in_ : tuple of int
        Shape of one sample.
    n_features_in_ : int
        Length of the first axis of a sample.

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
    A. Raj et al., Local group invariant representations via orbit embeddings, 2017, eq. 8.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Permutation
    >>> from segkit.invariance.orbit import OrbitNystroem
    >>> X = np.array([[1.0, 0.0, 2.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> features = OrbitNystroem(group=Permutation(), random_state=0).fit_transform(X)
    >>> features.shape, np.allclose(features[0], features[1])
    ((3, 3), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_OrbitEmbedding._parameter_constraints,
        "kernel": [Kernel, None],
        "landmarks": [StrOptions({"random", "kmeans++", "leverage"})],
        "landmarks_from": [StrOptions({"data", "orbit"})],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        group: Group | None = None,
        *,
        n_components: int = 100,
        n_transforms: int | None = None,
        landmarks: Literal["random", "kmeans++", "leverage"] = "random",
        landmarks_from: Literal["data", "orbit"] = "data",
        second_layer: int | RandomFourierFeatures | None = None,
        memory_limit: int = 2**30,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.group = group
        self.n_components = n_components
        self.n_transforms = n_transforms
        self.landmarks = landmarks
        self.landmarks_from = landmarks_from
        self.second_layer = second_layer
        self.memory_limit = memory_limit
        self.random_state = random_state

    def _fit_first_layer(self, samples: FloatArray, rng: np.random.RandomState) -> None:
        samples = samples.astype(np.float64)
        kernel = self._base_kernel(samples, rng)
        n_landmarks = min(self.n_components, len(samples))
        if self.landmarks == "random":
            landmarks = choose_landmarks(samples, n_landmarks, rng)
        elif self.landmarks == "kmeans++":
            _, chosen = kmeans_plusplus(samples.reshape(len(samples), -1), n_landmarks, random_state=rng)
            landmarks = samples[chosen]
        else:
            scores = leverage_scores(kernel, as_arguments(kernel, samples), rng)
            chosen = rng.choice(len(samples), n_landmarks, replace=False, p=scores / scores.sum())
            landmarks = samples[chosen]
        if self.landmarks_from == "orbit":
            landmarks = self._transformed(landmarks, rng)
        self.map_ = NystroemMap.from_landmarks(kernel, as_arguments(kernel, landmarks))

    def _transformed(self, samples: FloatArray, rng: np.random.RandomState) -> FloatArray:
        """Apply one of the transformations to each sample."""
        choice = rng.randint(len(self.elements_), size=len(samples))
        transformed = np.empty_like(samples)
        for index in np.unique(choice):
            chosen = choice == index
            transformed[chosen] = self._group.act(self.elements_[index], samples[chosen])
        return transformed

    def _first_layer(self, samples: FloatArray) -> FloatArray:
        import torch

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
            memory_limit=self.memory_limit,
        )
        for average in averages:
            features[average.rows].addmm_(average.values[:, 0], projection[average.templates])
        return features.numpy().astype(samples.dtype, copy=False)

    @property
    def _n_first_layer(self) -> int:
        return int(self.map_.projection.shape[1])


def _median_gaussian(rows: FloatArray, option: str, what: str, cure: str) -> Gaussian:
    """Gaussian of the median heuristic; an error names the option that asked for it."""
    try:
        return Gaussian(median_gamma(rows))
    except InputError as error:
        raise InputError(
            f"{option}: {what} of {len(rows)} samples have no median distance above 0; give more samples that "
            f"differ, or {cure}"
        ) from error


def _commutes(kernel: Kernel, group: Group) -> bool:
    """Whether k(g x, z) = k(x, g* z) exactly, so that landmarks can be transformed."""
    if isinstance(kernel, Polynomial):
        return group.has_adjoint
    return isinstance(kernel, Gaussian | Laplacian) and group.is_unitary
