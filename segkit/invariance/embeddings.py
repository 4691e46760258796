"""The three embeddings: functions of a template and a sample whose mean over a group is invariant to it.

The same embedding serves whole samples, which a `Group` transforms, and the patches around all pixels of an
image (`segkit.features.OrbitBank`). Only the way in which templates meet samples differs: see `Pairs`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from segkit.errors import ConfigError
from segkit.kernels.base import FloatArray, Gaussian, Kernel, ShiftInvariantKernel

if TYPE_CHECKING:
    import torch


class Pairs(Protocol):
    """Pairs of n samples and m templates, one of the two transformed.

    Values are of shape (n, m), or (n, m, n_transforms) where all transformations are evaluated at once.
    """

    def products(self) -> torch.Tensor:
        """Compute inner products of samples and templates, in a new tensor."""


class Embedding(ABC):
    """A function ``f(w, g x)`` of a template w and a transformed sample, which has one value or several."""

    @property
    def factor(self) -> float:
        """Factor that standard normal templates are multiplied by."""
        return 1.0

    @property
    def n_sums(self) -> int:
        """Number of running sums that `add` needs for each pair."""
        return len(self.names(0))

    @abstractmethod
    def names(self, index: int) -> list[str]:
        """Name the features of one template."""

    @abstractmethod
    def values(self, pairs: Pairs) -> Iterator[torch.Tensor]:
        """Evaluate the function, one feature after the other; each has the shape of the pairs."""

    def average(self, pairs: Pairs) -> FloatArray:
        """Average over transformations that are evaluated at once; (n, m, n_features), float32."""
        means = [values.numpy().mean(axis=-1, dtype=np.float32) for values in self.values(pairs)]
        return np.stack(means, axis=2)

    def add(self, pairs: Pairs, sums: torch.Tensor) -> None:
        """Add the function at one transformation to running sums; (n_sums, n, m)."""
        for total, values in zip(sums, self.values(pairs), strict=True):
            total += values

    def finish(self, means: torch.Tensor) -> torch.Tensor:
        """Turn means of the running sums into features; (n_sums, n, m) -> (n_features, n, m)."""
        return means


@dataclass(frozen=True)
class FourierEmbedding(Embedding):
    """Cosine and sine of projections on templates: random Fourier features.

    Parameters
    ----------
    kernel : ShiftInvariantKernel
        The kernel that inner products of the features estimate. Templates are draws from its spectral law.

    Notes
    -----
    ``f(w, g x) = (cos <w, g x>, sin <w, g x>)``.

    References
    ----------
    A. Raj et al. 2017, eq. 7.
    """

    kernel: ShiftInvariantKernel

    @property
    def factor(self) -> float:
        """Factor that makes standard normal templates draws from the spectral law."""
        if not isinstance(self.kernel, Gaussian):
            raise ConfigError(
                f"{self}: standard normal templates are frequencies of a Gaussian kernel only, give "
                f"FourierEmbedding(Gaussian(1.0))"
            )
        return math.sqrt(2 * self.kernel.gamma)

    def names(self, index: int) -> list[str]:
        """Name the features of one template."""
        return [f"cos {index:03d}", f"sin {index:03d}"]

    def values(self, pairs: Pairs) -> Iterator[torch.Tensor]:
        """Compute cosines, then sines."""
        angles = pairs.products()
        yield angles.cos()
        yield angles.sin_()


@dataclass(frozen=True)
class StepEmbedding(Embedding):
    """Steps at thresholds of projections on templates; their mean is a distribution function.

    Parameters
    ----------
    thresholds : sequence of float, default=(-1.0, -0.5, 0.0, 0.5, 1.0)
        The thresholds, finite and different, in the unit of the projections.

    Notes
    -----
    ``f(w, g x) = [<w, g x> <= t]`` for each threshold t.

    References
    ----------
    Y. Mroueh et al. 2015, section 2.2.

    Examples
    --------
    >>> from segkit.invariance import StepEmbedding
    >>> StepEmbedding((-1, 0.5)).names(0)
    ['step 000 at -1', 'step 000 at 0.5']
    """

    thresholds: tuple[float, ...] = (-1.0, -0.5, 0.0, 0.5, 1.0)

    def __post_init__(self) -> None:
        thresholds = tuple(float(threshold) for threshold in self.thresholds)
        object.__setattr__(self, "thresholds", thresholds)
        if not thresholds or not np.isfinite(thresholds).all() or len(set(thresholds)) < len(thresholds):
            raise ConfigError(
                f"thresholds {list(thresholds)}: give at least one, finite and different, such as [-1, 0, 1]"
            )

    @property
    def n_sums(self) -> int:
        """Number of running sums: one for each threshold, and one beyond the last."""
        return len(self.thresholds) + 1

    def names(self, index: int) -> list[str]:
        """Name the features of one template."""
        return [f"step {index:03d} at {threshold:g}" for threshold in self.thresholds]

    def values(self, pairs: Pairs) -> Iterator[torch.Tensor]:
        """Compare projections with each threshold."""
        projections = pairs.products()
        for threshold in self.thresholds:
            yield projections <= threshold

    def add(self, pairs: Pairs, sums: torch.Tensor) -> None:
        """Count each projection once, at the first threshold that it does not exceed; thresholds must increase."""
        import torch

        projections = pairs.products()
        edges = torch.tensor(self.thresholds, dtype=projections.dtype, device=projections.device)
        cells = torch.bucketize(projections, edges)[None]
        sums.scatter_add_(0, cells, sums.new_ones(()).expand(cells.shape))

    def finish(self, means: torch.Tensor) -> torch.Tensor:
        """Sum the shares up to each threshold."""
        return means.cumsum_(dim=0)[:-1]


@dataclass(frozen=True)
class NystroemEmbedding(Embedding):
    """Kernel values at templates that are samples themselves: Nystroem features.

    Parameters
    ----------
    kernel : Kernel
        The kernel.

    Notes
    -----
    ``f(w, g x) = k(w, g x)``; the pairs have a method ``kernel_values(kernel)``. Features are ``L k`` with the mean values k
    and ``L' L = K^+``, the pseudo-inverse of the templates' kernel matrix.

    References
    ----------
    A. Raj et al. 2017, eq. 8.
    """

    kernel: Kernel

    def names(self, index: int) -> list[str]:
        """Name the feature of one template."""
        return [f"nystroem {index:03d}"]

    def values(self, pairs: Pairs) -> Iterator[torch.Tensor]:
        """Compute kernel values."""
        yield cast(Any, pairs).kernel_values(self.kernel)
