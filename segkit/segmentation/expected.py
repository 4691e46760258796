"""The expected IoU of an image without a true mask, and how far it may be off.

The probabilities of the pixels give an estimate of the IoU. Training images, each held out in turn, show the errors of such
estimates. Their mean error is subtracted; the remaining errors give the margins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit.evaluation.metrics import confusion, iou_of
from segkit.evaluation.statistics import conformal_margin

Arrays = dict[str, NDArray[Any]]
# Promised probabilities of the margins.
LEVELS = (0.8, 0.9)


def expected_iou(
    ids: NDArray[np.integer], probabilities: NDArray[np.floating], presence: NDArray[np.float64]
) -> float:
    r"""Compute the mean IoU over classes that a predicted mask has if the probabilities are right.

    The IoU of class k with predicted pixels :math:`m_k` is :math:`\sum m_k p_k / \sum (m_k + p_k - m_k p_k)`, the ratio of
    the expected intersection to the expected union: with many pixels it is close to the expected ratio. A class that is
    not predicted has the IoU 0 if the image holds it, else none: its weight in the mean is its `presence`.
    """
    n_classes = presence.size
    flat = np.asarray(ids).reshape(-1)
    given = np.asarray(probabilities).reshape(-1, n_classes)
    predicted = np.bincount(flat, minlength=n_classes)
    hits = np.array([np.bincount(flat, given[:, k], minlength=n_classes)[k] for k in range(n_classes)])
    union = predicted + given.sum(axis=0, dtype=np.float64) - hits
    iou = np.divide(hits, union, out=np.zeros(n_classes), where=union > 0)
    return float(np.average(iou, weights=np.where(predicted > 0, 1.0, presence)))


def presence_of(holds: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the probability that one more image holds each class, by Laplace's rule, from (n_images, n_classes)."""
    return np.asarray((holds.sum(axis=0) + 1) / (len(holds) + 2))


@dataclass(frozen=True)
class HeldOutImage:
    """Scores of a training image by a model trained without it."""

    expected: float
    true: float
    image: int = 0


def compare(
    ids: NDArray[np.integer],
    probabilities: NDArray[np.floating],
    presence: NDArray[np.float64],
    truth: NDArray[np.integer],
) -> HeldOutImage:
    """Compare the expected IoU of some pixels of an image with the true one; unlabelled pixels of `truth` are left out."""
    iou = iou_of(confusion(truth, ids, presence.size))
    return HeldOutImage(expected_iou(ids, probabilities, presence), float(np.nanmean(iou)))


def shrunken_mean(values: NDArray[np.float64]) -> float:
    """Shrink the mean of a few values towards 0 (James and Stein's estimator with positive part, in one dimension)."""
    if values.size < 2:
        return 0.0
    mean, error = float(values.mean()), float(values.var(ddof=1)) / values.size
    return mean * max(0.0, 1 - error / mean**2) if mean else 0.0


@dataclass(frozen=True, eq=False)
class ExpectedIoU:
    """Errors of expected IoUs, from training images that were held out in turn.

    The margins are conformal: they hold for images that are exchangeable with the training images, so not for another
    microscope, nor for several pages of one stack. Even then the promise is not exact, for each held-out image has a model
    of its own, of fewer images. Without further assumptions about 1 - 2 a is guaranteed in place of 1 - a (Barber, Candès,
    Ramdas, Tibshirani, Annals of Statistics 49, 2021, theorems 1 and 4), for a variant. The promise is an average over
    images and training sets: it does not hold for hard images alone.
    """

    # mean error, subtracted from new images; absolute error of each training image, corrected by the mean of the others
    bias: float
    errors: FloatArray
    presence: NDArray[np.float64]

    @classmethod
    def learn(cls, held_out: Sequence[HeldOutImage], presence: NDArray[np.float64]) -> Self:
        """Learn the correction and the margins from held-out training images."""
        excess = np.array([one.expected - one.true for one in held_out], dtype=np.float64)
        without = [shrunken_mean(np.delete(excess, index)) for index in range(excess.size)]
        return cls(shrunken_mean(excess), np.abs(excess - without), presence)

    def estimate(self, ids: NDArray[np.integer], probabilities: NDArray[np.floating]) -> float:
        """Estimate the mean IoU of a predicted mask."""
        return float(np.clip(expected_iou(ids, probabilities, self.presence) - self.bias, 0, 1))

    def margin(self, level: float) -> float | None:
        """Return the margin of a promised probability; None if there are too few training images."""
        return conformal_margin(self.errors, level)

    def tell(self) -> list[str]:
        """Summarise the margin in a sentence; none if there are too few images."""
        margin = self.margin(LEVELS[0])
        if margin is None:
            return []
        return [
            f"Expected IoU of a new image is within {margin:.2f} of the truth in {100 * LEVELS[0]:.0f} % of images "
            f"(from {self.errors.size} training images)."
        ]

    def explain(self) -> str:
        """Explain the correction and the margins, and which are unknown."""
        n_images = self.errors.size
        corrected = "no correction of them is certain enough to be made"
        if self.bias:
            side = "high" if self.bias > 0 else "low"
            corrected = f"they were too {side} by {abs(self.bias):.3f} on average, which is taken off"
        margins = [(level, self.margin(level)) for level in LEVELS]
        told = [
            f"unknown for {100 * level:.0f} % of images"
            if margin is None
            else f"{margin:.3f} in {100 * level:.0f} % of images"
            for level, margin in margins
        ]
        return (
            f"Expected IoU: from the probabilities of an image's pixels. On {n_images} held-out training images "
            f"{corrected}. Margins: {' and '.join(told)}; they take 4 and 9 training images."
        )

    def to_arrays(self) -> Arrays:
        """Return the arrays by name, for a model file."""
        return {"bias": np.array([self.bias]), "errors": self.errors, "presence": self.presence}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Restore what `to_arrays` gave; other arrays are ignored."""
        return cls(float(arrays["bias"][0]), arrays["errors"], arrays["presence"])

    def state_shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes that the arrays must have, by name."""
        return {"bias": (1,), "errors": (self.errors.size,), "presence": (n_classes,)}
