"""Advice from what a session has at hand: coarse features of the shown image, and glimpses of the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit.images import UNLABELLED
from segkit.live.advice import Box, LabelledPixels, mark_regions, rank_typical, uncertainty
from segkit.live.features import ImageFeatures
from segkit.live.learner import LiveModel

# Pixels of an image that it is ranked by, and cells of an image that regions are found on, at most.
PIXELS_OF_IMAGE = 256
CELLS_OF_IMAGE = 4096


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
    return rank_typical(classifier.kernels_, candidates, known).order


def suggest_regions(
    model: LiveModel, known: LabelledPixels, features: ImageFeatures, labels: NDArray[np.uint8]
) -> list[Box]:
    """Mark the regions of an image that are worth most; labelled pixels are worth nothing."""
    thinned, step = _thinned(features, CELLS_OF_IMAGE)
    kept = thinned.reshape(len(thinned), -1)[model.classifier.channels_].T
    decisions = model.classifier.decision_function(kept)
    unsure = uncertainty(model.probabilities(decisions[:, np.newaxis])[:, 0])
    scores = (unsure * known.distance(model.classifier.standardise(kept))).reshape(thinned.shape[1:])
    stride = features.stride * step
    # a cell that would lie beyond the last pixel is read there
    rows, cols = (
        np.minimum(np.arange(scores.shape[axis]) * stride + features.stride // 2, features.shape[axis] - 1)
        for axis in (0, 1)
    )
    scores[labels[np.ix_(rows, cols)] != UNLABELLED] = 0
    return mark_regions(scores, stride, shape=features.shape)


def _thinned(features: ImageFeatures, most: int) -> tuple[FloatArray, int]:
    """Take every k-th cell of the coarse grid, with the least k that leaves at most so many cells; return them and k."""
    assert features.coarse is not None
    step = 1
    while np.prod([-(-side // step) for side in features.coarse.shape[1:]]) > most:
        step += 1
    return np.ascontiguousarray(features.coarse[:, ::step, ::step]), step
