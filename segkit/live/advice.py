r"""What to annotate next: which image, and which regions of the shown one.

Uncertainty says where the model does not know the class. Kernel distance says where it has seen nothing alike: the squared
distance, in the space of the classifier's own kernel, from a pixel to what is labelled. A pixel is worth the product. The
image to annotate next is the most typical one.

Notes
-----
Uncertainty :math:`u(x)` is the entropy of the class probabilities, in units of its maximum [1]_. Let :math:`\varphi` be
the features of the kernel k. Ridge regression on m labelled pixels of n images, an image weighing as much as any other
however many of its pixels are labelled, leaves the posterior variance [2]_

.. math:: v(x) = k(x, x) - k_x^T (K + \tfrac{m}{n} \rho I)^{-1} k_x
          = \rho \, \varphi(x)^T (\tfrac{n}{m} \Phi^T \Phi + \rho I)^{-1} \varphi(x).

It is the (regularised) squared distance from :math:`\varphi(x)` to the span of the labelled pixels, the ridge leverage
score of x up to a factor.

Images are ranked by the maximum mean discrepancy of an image and all of them [3]_: the distance of means in the space of
the kernel, each image weighing the same. A ranking by what annotating an image would take from :math:`u(x) v(x)` of all
images did no better than random choice up to five whole images, and the most typical image did
(``docs/results.md``, "Which image should be annotated next?").

References
----------
.. [1] D. Lewis, W. Gale, A sequential algorithm for training text classifiers, SIGIR 1994 (uncertainty sampling).
.. [2] C. E. Rasmussen, C. K. I. Williams, Gaussian processes for machine learning, 2006, eq. 2.24 and 2.11.
.. [3] A. Gretton et al., A kernel two-sample test, JMLR 13, 2012, eq. 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import entr

from segkit._common import FloatArray
from segkit.images import UNLABELLED
from segkit.kernels import KernelMixture
from segkit.live.features import Box, ImageFeatures
from segkit.live.learner import LiveModel

Floats = NDArray[np.floating[Any]]

# Noise of one image's worth of pixels; the kernels have a mean diagonal of 1.
RHO = 0.01
# Marked regions of an image, at most, and their side as a share of its shorter side.
REGIONS, SIDE = 3, 1 / 6
# Pixels of an image that it is ranked by, and cells of an image that regions are found on, at most.
PIXELS_OF_IMAGE = 256
CELLS_OF_IMAGE = 4096


class LabelledPixels:
    """Distances from pixels to the labelled ones; `Z` (m, n_kept) holds their standardised channels."""

    def __init__(self, kernels: KernelMixture, Z: Floats, *, n_images: int) -> None:
        self._kernels = kernels
        features = kernels.transform(Z)
        precision = features.T @ features * (n_images / len(Z))
        precision[np.diag_indices_from(precision)] += RHO
        self._root = np.linalg.cholesky(precision.astype(np.float64)).astype(features.dtype)

    def distance(self, X: Floats) -> NDArray[np.float64]:
        """Compute squared kernel distances from pixels to the labelled ones, from 0 to k(x, x)."""
        features = self._kernels.transform(X)
        rows = solve_triangular(self._root, features.T, lower=True, check_finite=False)
        return np.asarray(RHO * (rows**2).sum(axis=0), dtype=np.float64)


def uncertainty(probabilities: Floats) -> NDArray[np.float64]:
    """Compute the entropy of class probabilities (..., n_classes), as a share of the highest."""
    return np.asarray(entr(probabilities, dtype=np.float64).sum(axis=-1) / np.log(probabilities.shape[-1]))


def rank_typical(
    kernels: KernelMixture, candidates: Sequence[Floats], annotated: Sequence[Floats]
) -> NDArray[np.intp]:
    """Rank images by how near their mean is, in the kernel's space, to that of all images; places, the most typical first.

    >>> from segkit.kernels import LinearMixture
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> kernels = LinearMixture().fit(X, X[:, 0] > 0)
    >>> rank_typical(kernels, [X + 3, X], [X - 1])
    array([1, 0])
    """
    images = [*candidates, *annotated]
    means = np.array([kernels.transform(X).mean(axis=0, dtype=np.float64) for X in images])
    distances = np.linalg.norm(means[: len(candidates)] - means.mean(axis=0), axis=1)
    return np.argsort(distances, kind="stable")


def mark_regions(scores: Floats, stride: int, shape: tuple[int, int]) -> list[Box]:
    """Mark the square regions of an image of this shape that are worth most, none overlapping another.

    >>> scores = np.zeros((6, 6))
    >>> scores[4, 1] = 1
    >>> mark_regions(scores, 10, (60, 60))
    [(40, 10, 50, 20)]
    """
    height, width = shape
    wanted = min(height, width) * SIDE
    cells = int(np.clip(round(wanted / stride), 1, min(scores.shape)))
    means = sliding_window_view(scores, (cells, cells)).mean(axis=(2, 3), dtype=np.float64)
    boxes: list[Box] = []
    while len(boxes) < REGIONS and means.max() > 0:
        row, col = np.unravel_index(int(means.argmax()), means.shape)
        top, left = int(row), int(col)
        ends = min((top + cells) * stride, height), min((left + cells) * stride, width)
        boxes.append((top * stride, left * stride, *ends))
        means[max(0, top - cells + 1) : top + cells, max(0, left - cells + 1) : left + cells] = 0
    return boxes


def glimpse(features: ImageFeatures) -> FloatArray:
    """Keep the channels of a few pixels, spread evenly over an image; (n_channels, n), less their image means."""
    thinned, _ = _thinned(features, PIXELS_OF_IMAGE)
    return thinned.reshape(len(thinned), -1)


def suggest_images(
    model: LiveModel, glimpses: Sequence[FloatArray], annotated: Sequence[FloatArray]
) -> NDArray[np.intp]:
    """Rank images by their glimpses, and return their places, the most typical first."""
    # of the rankings that were compared (docs, "What to annotate next"), only this one was better than chance
    if not glimpses:
        return np.empty(0, dtype=np.intp)
    classifier = model.classifier
    candidates, known = (
        [classifier.standardise(one[classifier.channels_].T) for one in images]
        for images in (glimpses, annotated)
    )
    return rank_typical(classifier.kernels_, candidates, known)


def suggest_regions(
    model: LiveModel, known: LabelledPixels, features: ImageFeatures, labels: NDArray[np.uint8]
) -> list[Box]:
    """Mark the regions of an image that are worth most; labelled pixels are worth nothing."""
    thinned, step = _thinned(features, CELLS_OF_IMAGE)
    kept = thinned[model.classifier.channels_].reshape(-1, thinned[0].size).T
    scores = uncertainty(model.rule.probabilities(model.decide_coarse(thinned)))
    scores *= known.distance(model.classifier.standardise(kept)).reshape(scores.shape)
    scores[labels[tuple(features.cells(step))] != UNLABELLED] = 0
    return mark_regions(scores, features.stride * step, features.shape)


def _thinned(features: ImageFeatures, most: int) -> tuple[FloatArray, int]:
    """Take every k-th cell of the coarse grid, with the least k that leaves at most so many cells; return them and k."""
    assert features.coarse is not None
    step = 1
    while np.prod([-(-side // step) for side in features.coarse.shape[1:]]) > most:
        step += 1
    return np.ascontiguousarray(features.coarse[:, ::step, ::step]), step
