"""Pixel classifiers of trees: hand-picked filters and a random forest, as in ilastik, Labkit and Trainable Weka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

from segkit._common import FloatArray, Progress, pass_on
from segkit.baselines.options import Whole, check_options
from segkit.errors import ConfigError
from segkit.features import FilterBank, MultiscaleBank, StackedBank
from segkit.features.base import Channel, FeatureMaps, sample_maps
from segkit.features.normalised import NormalisedBank, even_grid, image_means
from segkit.images import UNLABELLED
from segkit.images.sampling import PixelSample, assign_folds, draw_pixels, sparse_images
from segkit.segmentation.base import BaseSegmenter, IdArray
from segkit.segmentation.held_out import N_FOLDS, HeldOut
from segkit.segmentation.threshold import DecisionRule

# Number of pixels whose features are in memory at a time.
_PIXELS_AT_ONCE = 65_536
# Learning rate of CatBoost, that of convpaint.
_LEARNING_RATE = 0.1


class PixelForest(BaseSegmenter):
    """Trees on the features of pixels.

    Parameters
    ----------
    bank : FilterBank, default=None
        Features of a pixel; None is `MultiscaleBank()`, similar to ilastik.
    classifier : {"forest", "catboost"}, default="forest"
        "forest" is scikit-learn's random forest. "catboost" is CatBoost's gradient boosting with a learning rate of
        0.1; it needs catboost.
    n_estimators : int, default=100
        Number of trees.
    max_depth : int or None, default=None
        Largest depth of a tree. None is without limit for "forest", and 6 for "catboost".
    training_pixels : int, default=30_000
        Number of training pixels, balanced over classes as far as available. Weights restore the frequencies of
        the classes among all labelled pixels.
    normalization : {"image", "set"}, default="set"
        As for `StackedBank`: "image" leaves it to the bank, most of whose channels are less their mean over the image;
        "set" takes them as they are.
    threshold : {"quantile+otsu", "quantile", "iou", "zero"}, default="zero"
        Rule for the decision above which a pixel is of the second of two classes, as for `Segmenter`. The decision is
        the difference of the two probabilities, in [-1, 1]. "zero" is the more probable class. The other rules score
        `threshold_pixels`, each by trees that saw nothing of its image (of its block, of a single image).
    threshold_pixels : int, default=6000
        Number of pixels that the threshold is chosen on, balanced over classes as far as available.
    interpolation : {"linear", "nearest"}, default="linear"
        How maps with fewer cells than the image has pixels are read.
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
    forest_ : RandomForestClassifier or CatBoostClassifier
        The fitted trees.
    rule_ : DecisionRule
        As for `Segmenter`; its threshold is 0 for three classes and more.

    Notes
    -----
    napari-convpaint is ``PixelForest(ConvNetBank("vgg16", layers=["conv1_1"], pyramid=[1, 0.5, 0.25]),
    classifier="catboost", n_estimators=50, max_depth=5, interpolation="nearest")`` with ImageNet weights: the default
    of its releases up to 2025 (``get_default_params`` of ``conv_paint_model.py`` and ``Hookmodel``; in 2026 it has 100
    trees). Its setting "vgg-m" adds the layers conv1_2 and conv2_1. Two things differ: convpaint reads the deepest of its
    layers before the ReLU, where segkit's maps are those after it, and it trains on all drawn pixels.

    References
    ----------
    S. Berg et al., ilastik: interactive machine learning for (bio)image analysis, Nature Methods 16, 2019.

    L. Hinderling et al., Convpaint, Cell Reports Methods 2026, doi 10.1016/j.crmeth.2026.101335; source at
    https://github.com/guiwitz/napari-convpaint.

    L. Prokhorenkova et al., CatBoost: unbiased boosting with categorical features, NeurIPS 2018, arXiv:1706.09516.

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
        classifier: Literal["forest", "catboost"] = "forest",
        n_estimators: Annotated[int, Field(gt=0, le=10_000)] = 100,
        max_depth: Annotated[int, Field(gt=0, le=16)] | None = None,
        training_pixels: Whole = 30_000,
        normalization: Literal["image", "set"] = "set",
        threshold: Literal["quantile+otsu", "quantile", "iou", "zero"] = "zero",
        threshold_pixels: Whole = 6000,
        interpolation: Literal["linear", "nearest"] = "linear",
        unlabelled: int | None = UNLABELLED,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.bank = bank
        self.classifier = classifier
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.training_pixels = training_pixels
        self.normalization = normalization
        self.threshold = threshold
        self.threshold_pixels = threshold_pixels
        self.interpolation = interpolation
        self.unlabelled = unlabelled
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit(self, images: list[FloatArray], ids: list[IdArray], progress: Progress) -> None:
        self.check_options()
        rng = np.random.default_rng(self.random_state)
        bank = clone(self.bank) if self.bank is not None else MultiscaleBank()
        self.bank_ = (NearestBank(bank) if self.interpolation == "nearest" else bank).fit(images, ids)
        needs_threshold = self.threshold != "zero" and self.classes_.size == 2
        n_pixels = [self.training_pixels, *([self.threshold_pixels] if needs_threshold else [])]
        drawn = [draw_pixels(ids, self.classes_.size, n, rng) for n in n_pixels]
        X = self._normalised_bank.sample_draws(images, drawn, None, progress, "Filter bank")
        self.forest_ = self._grow(X[0], drawn[0])
        self.rule_ = DecisionRule.by_sign(self.classes_.size)
        if needs_threshold:
            self._choose_threshold(X[1], drawn[1], ids)

    def check_options(self) -> None:
        """Refuse options out of their ranges."""
        check_options(self)

    @property
    def _normalised_bank(self) -> NormalisedBank:
        return NormalisedBank(StackedBank([self.bank_], normalization=self.normalization))

    def _grow(self, X: FloatArray, drawn: PixelSample) -> Any:
        """Fit new trees to pixels."""
        if self.classifier == "forest":
            trees = RandomForestClassifier(
                self.n_estimators,
                max_depth=self.max_depth,
                n_jobs=self.n_jobs,
                random_state=self.random_state,
            )
        else:
            trees = _boosted_trees()(
                iterations=self.n_estimators,
                depth=self.max_depth,
                learning_rate=_LEARNING_RATE,
                thread_count=self.n_jobs or 1,
                random_seed=self.random_state,
                verbose=False,
                allow_writing_files=False,
            )
        return trees.fit(X, drawn.label, sample_weight=drawn.weight)

    def _choose_threshold(self, X: FloatArray, drawn: PixelSample, ids: list[IdArray]) -> None:
        """Choose the threshold by trees that saw nothing of the image, or block, of a pixel."""
        fold = assign_folds(drawn, [mask.shape for mask in ids], N_FOLDS)
        decision = np.full(len(X), np.nan, dtype=np.float32)
        for index in np.unique(fold):
            others, mine = fold != index, fold == index
            if np.unique(drawn.label[others]).size == 2:
                trees = self._grow(X[others], drawn.subset(others))
                decision[mine] = _margin(trees.predict_proba(X[mine]))[:, 0]
        is_decided = ~np.isnan(decision)
        found = HeldOut(
            [1.0],
            decision[None, is_decided, None],
            drawn.subset(is_decided),
            fold[is_decided],
            len(ids),
            sparse_images(ids),
        )
        if (choice := found.choose(self.threshold)) is not None:
            self.rule_ = choice.rule

    def _scores(self, image: FloatArray) -> FloatArray:
        """Compute the probability of each class by the trees, (H, W, n_classes)."""
        height, width = image.shape[:2]
        stacks = self.bank_.maps(image)
        # Maps come grouped by grid; the trees were grown with channels in the bank's order.
        column = np.concatenate([stack.indices for stack in stacks]).argsort()
        at_grid = sample_maps(stacks, *even_grid(image.shape))
        means = image_means(at_grid, self._normalised_bank.bank.centred(image.shape[2]))
        # Features of a few rows at a time: a map of each channel at every pixel would not fit into memory.
        parts = []
        n_rows = max(1, _PIXELS_AT_ONCE // width)
        for top in range(0, height, n_rows):
            rows = np.arange(top, min(top + n_rows, height))
            features = np.concatenate([stack.upsample((height, width), rows) for stack in stacks])[column]
            parts.append(self.forest_.predict_proba(features.reshape(len(column), -1).T - means))
        return np.concatenate(parts).reshape(height, width, -1).astype(np.float32)

    def _labels(self, scores: FloatArray) -> NDArray[np.intp]:
        decisions = _margin(scores) if self.classes_.size == 2 else scores
        return self.rule_.segment(decisions)

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        return scores


class NearestBank(FilterBank):
    """Another bank's maps, read at the nearest cell."""

    def __init__(self, bank: FilterBank) -> None:
        self.bank = bank

    def centred(self, n_image_channels: int = 3) -> NDArray[np.bool_]:
        """Return which channels are less their mean over the image, as the bank says."""
        return self.bank.centred(n_image_channels)

    def fit(
        self,
        images: Sequence[ArrayLike],
        ids: Sequence[IdArray] | None = None,
        *,
        parts: Sequence[IdArray] | None = None,
        groups: NDArray[np.intp] | None = None,
        progress: Progress = pass_on,
        checkpoint: Path | None = None,
    ) -> Self:
        """Fit the bank."""
        self.bank.fit(images, ids, parts=parts, groups=groups, progress=progress, checkpoint=checkpoint)
        return self

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels of the bank."""
        return self.bank.channels(n_image_channels)

    @property
    def halo(self) -> int:
        """Halo of the bank."""
        return self.bank.halo

    @property
    def alignment(self) -> int:
        """Alignment of the bank."""
        return self.bank.alignment

    @property
    def is_local(self) -> bool:
        """Whether the bank is local."""
        return self.bank.is_local

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Memory of the bank."""
        return self.bank.bytes_per_pixel(n_image_channels)

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the bank's maps."""
        return [
            _NearestMaps(stack.values, stack.indices, stack.stride, stack.offset)
            for stack in self.bank.maps(image, channels)
        ]


@dataclass(frozen=True, eq=False)
class _NearestMaps(FeatureMaps):
    """Maps read at the nearest cell."""

    def sample(self, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Read the nearest cell of n pixel positions; returns (n, n_channels)."""
        return super().sample(*self._centres(rows, cols))

    def interpolate(self, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Read the nearest cells where rows cross columns; returns (n_channels, n_rows, n_cols)."""
        return super().interpolate(*self._centres(rows, cols))

    def _centres(self, *positions: NDArray[Any]) -> list[NDArray[np.float64]]:
        """Move rows and columns to the centres of the nearest cells."""
        offsets = np.broadcast_to(self.offset, 2)
        return [
            first + self.stride * np.rint((np.asarray(at, dtype=np.float64) - first) / self.stride)
            for at, first in zip(positions, offsets, strict=True)
        ]


def _margin(probabilities: NDArray[Any]) -> NDArray[Any]:
    """Return the probability of the second of two classes less that of the first, (..., 1)."""
    return np.asarray(probabilities[..., 1:] - probabilities[..., :1])


def _boosted_trees() -> Any:
    """Return CatBoost's classifier."""
    try:
        from catboost import CatBoostClassifier
    except ImportError as error:
        raise ConfigError(
            "classifier='catboost' needs catboost, which is not installed: "
            "pip install segkit-bio[baselines], or choose classifier='forest'"
        ) from error
    return CatBoostClassifier
