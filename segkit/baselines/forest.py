"""The pixel forest: hand-picked filters and a random forest, as in ilastik, Labkit and Trainable Weka."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

from segkit._common import FloatArray, Progress, pass_on
from segkit.features import FilterBank, MultiscaleBank
from segkit.images import UNLABELLED
from segkit.images.sampling import draw_pixels
from segkit.segmentation.base import BaseSegmenter, IdArray

# Number of pixels whose features are in memory at a time.
_PIXELS_AT_ONCE = 65_536


class PixelForest(BaseSegmenter):
    """Random forest on the features of pixels.

    Parameters
    ----------
    bank : FilterBank, default=None
        Features of a pixel; None is `MultiscaleBank()`, similar to ilastik.
    n_estimators : int, default=100
        Number of trees, without limit of depth.
    training_pixels : int, default=30_000
        Number of training pixels, balanced over classes as far as available. Weights restore the frequencies of
        the classes among all labelled pixels.
    unlabelled : int or None, default=255
        As for `Segmenter`.
    n_jobs : int or None, default=None
        Number of processes that grow trees.
    random_state : int, default=0
        Seed of all draws.

    Attributes
    ----------
    classes_, label_map_, n_image_channels_
        As for `Segmenter`.
    forest_ : RandomForestClassifier
        The fitted forest.

    References
    ----------
    S. Berg et al., ilastik: interactive machine learning for (bio)image analysis, Nature Methods 16, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.baselines import PixelForest
    >>> rng = np.random.default_rng(0)
    >>> mask = np.zeros((40, 40), dtype=int)
    >>> mask[10:30, 10:30] = 1
    >>> image = 0.4 + 0.2 * mask + 0.05 * rng.standard_normal(mask.shape)
    >>> PixelForest(n_estimators=10, training_pixels=500).fit([image], [mask]).score([image], [mask]) > 0.8
    True
    """

    def __init__(
        self,
        bank: FilterBank | None = None,
        *,
        n_estimators: int = 100,
        training_pixels: int = 30_000,
        unlabelled: int | None = UNLABELLED,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.bank = bank
        self.n_estimators = n_estimators
        self.training_pixels = training_pixels
        self.unlabelled = unlabelled
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit(self, images: list[FloatArray], ids: list[IdArray], progress: Progress) -> None:
        rng = np.random.default_rng(self.random_state)
        self.bank_ = (clone(self.bank) if self.bank is not None else MultiscaleBank()).fit(images)
        drawn = draw_pixels(ids, self.classes_.size, self.training_pixels, rng)
        rows = []
        for index, image in enumerate(progress(images, "Filter bank")):
            part = drawn.of_image(index)
            rows.append(self.bank_.sample(image, drawn.row[part], drawn.col[part]))
        self.forest_ = RandomForestClassifier(
            self.n_estimators, n_jobs=self.n_jobs, random_state=self.random_state
        )
        self.forest_.fit(np.concatenate(rows), drawn.label, sample_weight=drawn.weight)

    def _scores(self, image: FloatArray, progress: Progress = pass_on) -> FloatArray:  # noqa: ARG002
        """Compute the fraction of trees that vote for each class, (H, W, n_classes)."""
        height, width = image.shape[:2]
        stacks = self.bank_.maps(image)
        # Maps come grouped by grid; the forest was trained with channels in the bank's order.
        column = np.concatenate([stack.indices for stack in stacks]).argsort()
        # Features of a few rows at a time: a map of each channel at every pixel would not fit into memory.
        parts = []
        n_rows = max(1, _PIXELS_AT_ONCE // width)
        for top in range(0, height, n_rows):
            rows = np.arange(top, min(top + n_rows, height))
            features = np.concatenate([stack.upsample((height, width), rows) for stack in stacks])[column]
            parts.append(self.forest_.predict_proba(features.reshape(len(column), -1).T))
        return np.concatenate(parts).reshape(height, width, -1).astype(np.float32)

    def _labels(self, scores: FloatArray) -> NDArray[np.intp]:
        return np.asarray(scores.argmax(axis=2))

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        return scores
