"""Late fusion: a classifier for each part of the channels, their decisions averaged."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from segkit._common import FloatArray
from segkit.classifier.pixel_classifier import IntArray, PixelClassifier
from segkit.classifier.svm import LinearSVM
from segkit.errors import ConfigError
from segkit.kernels import SummedMixtures


class FusedClassifier(PixelClassifier):
    r"""Train a classifier on each part of the channels, and average their decisions."""

    def __init__(self, classifier: PixelClassifier, parts: NDArray[np.bool_]) -> None:
        if getattr(classifier.kernels, "gaussian_columns", None) is not None:
            raise ConfigError(
                "gaussian_columns with fusion='late': columns differ from network to network; leave them out, or take "
                "fusion='early'"
            )
        kernels = clone(classifier.kernels)
        if hasattr(kernels, "n_components"):
            # shared out, so that a prediction computes as many random features as without parts
            kernels.set_params(n_components=max(1, kernels.n_components // len(parts)))
        super().__init__(classifier.selector, kernels, classifier.svm)
        self.parts = parts

    def select(self, X: FloatArray, y: NDArray[Any], groups: IntArray) -> Self:
        """Select channels of each part; see `PixelClassifier.select`."""
        self.members_ = [
            PixelClassifier(self.selector, self.kernels, self.svm).select(X[:, part], y, groups)
            for part in self.parts
        ]
        self.selector_ = self.members_[0].selector_
        self.channels_ = np.unique(np.concatenate(self._channels_of_members))
        self._allow()
        return self

    def allow_gaussians(self, per_pixel: NDArray[np.bool_]) -> Self:
        """Let Gaussian kernels of each part see channels with a value at every pixel."""
        if hasattr(self.kernels, "gaussian_columns"):
            self.gaussian_channels = per_pixel
            self._allow()
        return self

    def path(
        self,
        X: FloatArray,
        y: NDArray[Any],
        sample_weight: NDArray[np.float64],
        groups: IntArray,
        *,
        penalties: Sequence[float],
        tol: float,
    ) -> list[Self]:
        """Fit at several penalties, the same for all parts; see `PixelClassifier.path`."""
        paths = [
            member.path(X[:, own], y, sample_weight, groups, penalties=penalties, tol=tol)
            for member, own in zip(self.members_, self._columns, strict=True)
        ]
        fused = [copy(self)._fuse(members) for members in zip(*paths, strict=True)]
        for one in fused:
            one.kernels_ = fused[0].kernels_
        return fused

    def fit(
        self,
        X: FloatArray,
        y: NDArray[Any],
        sample_weight: NDArray[np.float64],
        groups: IntArray,
        *,
        penalty: float | None = None,
    ) -> Self:
        """Fit the classifier of each part; see `PixelClassifier.fit`."""
        return self._fuse(
            [
                copy(member).fit(X[:, own], y, sample_weight, groups, penalty=penalty)
                for member, own in zip(self.members_, self._columns, strict=True)
            ]
        )

    def refit(
        self,
        X: FloatArray,
        y: NDArray[Any],
        sample_weight: NDArray[np.float64],
        *,
        penalty: float,
        tol: float,
    ) -> Self:
        """Fit the SVM of each part anew; see `PixelClassifier.refit`."""
        return copy(self)._fuse(
            [
                member.refit(X[:, own], y, sample_weight, penalty=penalty, tol=tol)
                for member, own in zip(self.members_, self._columns, strict=True)
            ]
        )

    @property
    def _channels_of_members(self) -> list[IntArray]:
        """Kept channels of each part, numbered as all channels are."""
        return [
            np.flatnonzero(part)[member.channels_]
            for member, part in zip(self.members_, self.parts, strict=True)
        ]

    @property
    def _columns(self) -> list[IntArray]:
        """Columns of each part among the kept channels of all parts."""
        return [np.searchsorted(self.channels_, own) for own in self._channels_of_members]

    def _allow(self) -> None:
        """Report the members which channels Gaussian kernels may see."""
        if self.gaussian_channels is not None:
            for member, part in zip(self.members_, self.parts, strict=True):
                member.gaussian_channels = self.gaussian_channels[part]

    def _fuse(self, members: Sequence[PixelClassifier]) -> Self:
        """Take over fitted members: their kernels side by side, and the mean of their planes."""
        self.members_ = list(members)
        self.kernels_ = SummedMixtures([member.kernels_ for member in members], self._columns)
        self.mean_, self.scale_ = (np.empty(self.channels_.size, dtype=np.float32) for _ in range(2))
        for member, own in zip(members, self._columns, strict=True):
            # a channel has the same mean and scale in every part: all are trained on the same pixels
            self.mean_[own], self.scale_[own] = member.mean_, member.scale_
        self.svm_ = LinearSVM.from_arrays(
            np.hstack([member.svm_.coef_ for member in members]) / len(members),
            np.mean([member.svm_.intercept_ for member in members], axis=0),
        )
        return self
