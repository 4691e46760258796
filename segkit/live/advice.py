r"""What to annotate next: which image, and which regions of the shown one.

Uncertainty says where the model does not know the class. Kernel distance says where it has seen nothing alike: the squared
distance, in the space of the classifier's own kernel, from a pixel to what is labelled. A pixel is worth the product. An
image is worth the part of this product that its annotation would take from *all* candidates, so that an image like no
other, or a few noisy pixels, count little.

Notes
-----
Uncertainty :math:`u(x)` is the entropy of the class probabilities, in units of its maximum [1]_. Let :math:`\varphi` be
the features of the kernel k. Ridge regression on m labelled pixels of n images, an image weighing as much as any other
however many of its pixels are labelled, leaves the posterior covariance [2]_

.. math:: c(x, y) = k(x, y) - k_x^T (K + \tfrac{m}{n} \rho I)^{-1} k_y
          = \rho \, \varphi(x)^T (\tfrac{n}{m} \Phi^T \Phi + \rho I)^{-1} \varphi(y),

and :math:`v(x) = c(x, x)` is the (regularised) squared distance from :math:`\varphi(x)` to the span of the labelled
pixels, the ridge leverage score of x up to a factor. Annotating image i, known by q of its pixels :math:`B_i`, takes

.. math:: c(x, B_i) \, (c(B_i, B_i) + q \rho I)^{-1} \, c(B_i, x)

from the variance at x. The score of an image is the mean of this times :math:`u(x)` over the pixels of all candidates:
the design that leaves the least variance where it matters [3]_, [4]_, one image at a time.

The formula and :math:`\rho` were chosen on splits of drive, dsb2018_stained, isbi2012_em and kvasir_seg_256, in view of test
scores. Uncertainty, variance and their product, each averaged over the image itself, did no better there than chance:
they point at images like no other. Up to five whole images the ranking did no better than random choice either, and the
most typical image of the pool did (``docs/benchmarks.md``, "What to annotate next"): so `LiveSession.suggest` ranks images
by `rank_typical`, and marks regions by `score_pixels`.

References
----------
.. [1] D. Lewis, W. Gale, A sequential algorithm for training text classifiers, SIGIR 1994 (uncertainty sampling).
.. [2] C. E. Rasmussen, C. K. I. Williams, Gaussian processes for machine learning, 2006, eq. 2.24 and 2.11.
.. [3] D. Cohn, Neural network exploration using optimal experiment design, Neural Networks 9, 1996.
.. [4] K. Yu, J. Bi, V. Tresp, Active learning via transductive experimental design, ICML 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import entr

from segkit._common import count
from segkit.errors import InputError
from segkit.kernels import KernelMixture

Floats = NDArray[np.floating[Any]]
Box = tuple[int, int, int, int]

# Noise of one image's worth of pixels; the kernels have a mean diagonal of 1.
RHO = 0.01
# Side of a marked region, as a share of the shorter side of the image.
SIDE = 1 / 6


@dataclass(frozen=True, eq=False)
class Candidate:
    """Some pixels of an image that might be annotated, spread evenly over it."""

    X: Floats
    probabilities: Floats


class Ranking(NamedTuple):
    """Images in the order in which to annotate them: their places, the best first, and the score of each place."""

    order: NDArray[np.intp]
    scores: NDArray[np.float64]


class LabelledPixels:
    """What is known of the labelled pixels: how far any pixel is from them."""

    def __init__(self, kernels: KernelMixture, Z: Floats, *, n_images: int = 1) -> None:
        if n_images < 1 or not len(Z):
            raise InputError(
                f"{count(len(Z), 'labelled pixel')} of {count(n_images, 'image')}: label some pixels first"
            )
        self._kernels = kernels
        features = self._features(Z)
        precision = features.T @ features * (n_images / len(Z))
        precision[np.diag_indices_from(precision)] += RHO
        self._root = np.linalg.cholesky(precision.astype(np.float64)).astype(features.dtype)

    def whiten(self, X: Floats) -> Floats:
        """Map pixels so that inner products are posterior covariances."""
        rows = solve_triangular(self._root, self._features(X).T, lower=True, check_finite=False)
        rows *= RHO**0.5
        return np.asarray(rows.T)

    def distance(self, X: Floats) -> NDArray[np.float64]:
        """Compute squared kernel distances from pixels to the labelled ones."""
        return np.asarray((self.whiten(X) ** 2).sum(axis=1), dtype=np.float64)

    def _features(self, X: Floats) -> Floats:
        if not np.isfinite(X).all():
            raise InputError(f"features of shape {X.shape} hold NaN or infinity: leave that image out")
        return self._kernels.transform(X)


def uncertainty(probabilities: Floats) -> NDArray[np.float64]:
    """Compute the entropy of class probabilities, as a share of the highest."""
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise InputError(f"probabilities of shape {probabilities.shape}: give numbers from 0 to 1, not NaN")
    return np.asarray(entr(probabilities, dtype=np.float64).sum(axis=-1) / np.log(probabilities.shape[-1]))


def score_pixels(X: Floats, probabilities: Floats, labelled: LabelledPixels) -> NDArray[np.float64]:
    """Compute what pixels are worth: uncertainty times squared kernel distance to the labelled pixels."""
    return np.asarray(uncertainty(probabilities) * labelled.distance(X))


def rank_images(candidates: Sequence[Candidate], labelled: LabelledPixels) -> Ranking:
    """Rank images by what annotating one would take from the uncertain variance of all."""
    if not candidates or not all(len(candidate.X) for candidate in candidates):
        raise InputError(
            f"{count(len(candidates), 'image')} to rank: give at least one, each with some of its pixels"
        )
    sizes = [len(candidate.X) for candidate in candidates]
    # all at once, for one large product is faster than many small ones
    rows = labelled.whiten(np.concatenate([candidate.X for candidate in candidates]))
    unsure = np.concatenate([uncertainty(candidate.probabilities) for candidate in candidates])
    weights = unsure / (len(sizes) * np.repeat(sizes, sizes))
    moment = (rows.T * weights.astype(rows.dtype)) @ rows
    ends = np.cumsum(sizes)[:-1]
    images = zip(np.split(rows, ends), np.split(rows @ moment, ends), strict=True)
    scores = np.array([_taken(own, weighted) for own, weighted in images])
    return Ranking(np.argsort(-scores, kind="stable"), scores)


def rank_typical(
    kernels: KernelMixture, candidates: Sequence[Floats], annotated: Sequence[Floats]
) -> Ranking:
    """Rank images by how near their mean is, in the kernel's space, to that of all images: the usual ones first."""
    images = [*candidates, *annotated]
    if not candidates or not all(len(X) for X in images):
        raise InputError(
            f"{count(len(candidates), 'image')} to rank: give at least one, each with some of its pixels"
        )
    if not all(np.isfinite(X).all() for X in images):
        raise InputError("features of an image hold NaN or infinity: leave that image out")
    means = np.array([kernels.transform(X).mean(axis=0, dtype=np.float64) for X in images])
    distances = np.linalg.norm(means[: len(candidates)] - means.mean(axis=0), axis=1)
    return Ranking(np.argsort(distances, kind="stable"), -distances)


def mark_regions(
    scores: Floats,
    stride: int,
    n_regions: int = 3,
    *,
    side: int | None = None,
    shape: tuple[int, int] | None = None,
) -> list[Box]:
    """Mark the square regions of an image that are worth most, none overlapping another."""
    if scores.ndim != 2 or not scores.size or not (np.isfinite(scores) & (scores >= 0)).all():
        raise InputError(f"scores of shape {scores.shape}: give a grid (h, w) of finite numbers >= 0")
    height, width = shape or (scores.shape[0] * stride, scores.shape[1] * stride)
    wanted = min(height, width) * SIDE if side is None else side
    cells = int(np.clip(round(wanted / stride), 1, min(scores.shape)))
    means = _window_means(scores.astype(np.float64), cells)
    boxes: list[Box] = []
    while len(boxes) < n_regions and means.max() > 0:
        row, col = np.unravel_index(int(means.argmax()), means.shape)
        top, left = int(row), int(col)
        ends = min((top + cells) * stride, height), min((left + cells) * stride, width)
        boxes.append((top * stride, left * stride, *ends))
        means[max(0, top - cells + 1) : top + cells, max(0, left - cells + 1) : left + cells] = 0
    return boxes


def _taken(rows: Floats, weighted: Floats) -> float:
    """Mean of u(x) times the variance that annotating an image takes at x."""
    noisy = rows @ rows.T
    noisy[np.diag_indices_from(noisy)] += RHO * len(rows)
    return float(np.trace(cho_solve(cho_factor(noisy), weighted @ rows.T)))


def _window_means(scores: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    """Mean score of each square of so many cells, by its first row and column."""
    total = np.zeros((scores.shape[0] + 1, scores.shape[1] + 1))
    total[1:, 1:] = scores.cumsum(axis=0).cumsum(axis=1)
    sums = total[cells:, cells:] - total[:-cells, cells:] - total[cells:, :-cells] + total[:-cells, :-cells]
    # rounding of the sums must not make a region of nothing
    return np.where(sums > 1e-12 * total[-1, -1], sums, 0.0) / cells**2
