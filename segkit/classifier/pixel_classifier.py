"""The classifier of pixels: kept channels, standardised, through a mixture of kernels, into a linear SVM.

The segmenter trains one on its training images, and one for each fold that is held out. Dense prediction reads the linear
and the nonlinear part of its decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from segkit._common import FloatArray, IntArray, entries_under
from segkit.classifier.svm import LinearSVM
from segkit.errors import ModelFileError
from segkit.kernels import KernelMixture, LinearGaussianMixture, LinearMixture, MixtureRFF

Arrays = dict[str, NDArray[Any]]

# Kinds of mixtures by their names in model files.
_MIXTURES: dict[str, type[KernelMixture]] = {
    "linear": LinearMixture,
    "linear+gaussian": LinearGaussianMixture,
    "mixture": MixtureRFF,
}


class PixelClassifier:
    """Select channels, standardise them, learn a mixture of kernels and fit a linear SVM on its features (eq. 7.17).

    Selector, kernels and SVM are cloned. Without `scaled` channels stay as they are. `gaussian_channels` are those channels,
    of all, that Gaussian kernels may see. `select` sees all channels; all that follows gets the kept ones, `channels_`,
    rising. `groups` are the images or blocks of the pixels, `penalty` is the lambda of eq. 7.17.
    """

    def __init__(
        self,
        selector: Any,
        kernels: KernelMixture,
        svm: LinearSVM,
        *,
        scaled: bool = True,
        gaussian_channels: NDArray[np.bool_] | None = None,
    ) -> None:
        self.selector = selector
        self.kernels = kernels
        self.svm = svm
        self.scaled = scaled
        self.gaussian_channels = gaussian_channels

    def select(self, X: FloatArray, y: NDArray[Any], groups: IntArray) -> Self:
        """Select channels."""
        self.selector_ = _fit_grouped(clone(self.selector), X, y, groups)
        self.channels_: IntArray = self.selector_.get_support(indices=True)
        return self

    def allow_gaussians(self, per_pixel: NDArray[np.bool_]) -> Self:
        """Let Gaussian kernels see channels with a value at every pixel, unless the kernels name their columns."""
        if not hasattr(self.kernels, "gaussian_columns"):
            return self
        named = self.kernels.gaussian_columns
        self.gaussian_channels = per_pixel
        if named is not None:
            self.gaussian_channels = np.zeros_like(per_pixel)
            # columns of another number stay with the kernels, which refuse them
            if np.shape(named) == self.channels_.shape:
                self.gaussian_channels[self.channels_] = named
            else:
                self.gaussian_channels = None
        return self

    def fit(
        self,
        X: FloatArray,
        y: NDArray[Any],
        sample_weight: NDArray[np.float64],
        groups: IntArray,
        *,
        penalty: float | None = None,
    ) -> Self:
        """Fit scales, kernels and SVM; the features of the kernels are made block by block."""
        Z = self._learn_kernels(X, y, sample_weight, groups)
        self.svm_ = clone(self.svm)
        if penalty is not None:
            self.svm_.set_params(C=_cost(penalty, len(Z)))
        self.svm_.fit(Z, y, sample_weight, feature_map=self.kernels_.transform)
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
        """Fit at several penalties, with the same scales and kernels; all features are held in memory."""
        Z = self._learn_kernels(X, y, sample_weight, groups)
        Cs = [_cost(penalty, len(Z)) for penalty in penalties]
        svms = clone(self.svm).set_params(tol=tol).path(self.kernels_.transform(Z), y, Cs, sample_weight)
        fitted = [copy(self) for _ in svms]
        for classifier, svm in zip(fitted, svms, strict=True):
            classifier.svm_ = svm
        return fitted

    def refit(
        self,
        X: FloatArray,
        y: NDArray[Any],
        sample_weight: NDArray[np.float64],
        *,
        penalty: float,
        tol: float,
    ) -> Self:
        """Fit the SVM anew, from the planes it has, with the same scales and kernels; all features are held in memory."""
        fitted = copy(self)
        fitted.svm_ = copy(self.svm_).set_params(C=_cost(penalty, len(X)), tol=tol, warm_start=True)
        fitted.svm_.fit(self.kernels_.transform(self.standardise(X)), y, sample_weight)
        return fitted

    def standardise(self, X: FloatArray) -> FloatArray:
        """Subtract the mean and divide by the scale; (n, n_kept) -> (n, n_kept), float32."""
        Z = np.array(X, dtype=np.float32)
        Z -= self.mean_
        Z /= self.scale_
        return Z

    def decision_function(self, X: FloatArray) -> FloatArray:
        """Decide on pixels."""
        return np.asarray(
            self.kernels_.dot(self.standardise(X), self.svm_.coef_) + self.svm_.intercept_, dtype=np.float32
        )

    @property
    def linear_coef(self) -> FloatArray | None:
        """Linear part of the decisions, per unit of each kept channel; (n_outputs, n_kept), or None without one."""
        coef = self.kernels_.linear_coef(self.svm_.coef_)
        return None if coef is None else np.asarray(coef / self.scale_)

    @property
    def nonlinear_channels(self) -> IntArray:
        """Kept channels that the nonlinear part of the decisions depends on, rising."""
        return np.asarray(self.channels_[self.kernels_.nonlinear_columns])

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """Describe the fitted classifier for a model file."""
        header, arrays = self.kernels_.to_state()
        kind = next(kind for kind, mixture in _MIXTURES.items() if type(self.kernels_) is mixture)
        stored = {f"kernels.{name}": array for name, array in arrays.items()}
        stored |= {"scaler.mean": self.mean_, "scaler.scale": self.scale_}
        stored |= {"svm.coef": self.svm_.coef_, "svm.intercept": self.svm_.intercept_}
        return {"kind": kind, **header}, stored

    @classmethod
    def from_state(cls, channels: IntArray, header: dict[str, Any], arrays: Arrays) -> Self:
        """Restore a classifier from what `to_state` returned; other arrays are ignored."""
        own = entries_under(arrays, "kernels.")
        if header["kind"] not in _MIXTURES:
            raise ModelFileError(f"kernels of kind {header['kind']!r}: known are {', '.join(_MIXTURES)}")
        kernels = _MIXTURES[header["kind"]].from_state(header, own)
        svm = LinearSVM.from_arrays(arrays["svm.coef"], arrays["svm.intercept"])
        classifier = cls(None, kernels, svm)
        classifier.selector_ = None
        classifier.channels_ = channels
        classifier.mean_, classifier.scale_ = arrays["scaler.mean"], arrays["scaler.scale"]
        classifier.kernels_, classifier.svm_ = kernels, svm
        if kernels.n_features_in_ != channels.size:
            raise ModelFileError(
                f"kernels of {kernels.n_features_in_} channels for {channels.size} that are kept"
            )
        return classifier

    def state_shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        """List the shapes that the arrays of a fitted classifier of so many classes have, by name."""
        n_kept, n_outputs = self.channels_.size, 1 if n_classes == 2 else n_classes
        n_features = self.kernels_.transform(np.zeros((1, n_kept), dtype=np.float32)).shape[1]
        return {
            "scaler.mean": (n_kept,),
            "scaler.scale": (n_kept,),
            "svm.coef": (n_outputs, n_features),
            "svm.intercept": (n_outputs,),
        }

    def _learn_kernels(
        self, X: FloatArray, y: NDArray[Any], sample_weight: NDArray[np.float64], groups: IntArray
    ) -> FloatArray:
        """Learn scales and kernels; returns the standardised channels."""
        if self.scaled:
            scaler = StandardScaler().fit(X, sample_weight=sample_weight)
            self.mean_, self.scale_ = scaler.mean_.astype(np.float32), scaler.scale_.astype(np.float32)
        else:
            self.mean_ = np.zeros(X.shape[1], dtype=np.float32)
            self.scale_ = np.ones_like(self.mean_)
        self.kernels_ = clone(self.kernels)
        if self.gaussian_channels is not None:
            self.kernels_.set_params(gaussian_columns=self.gaussian_channels[self.channels_])
        Z = self.standardise(X)
        _fit_grouped(self.kernels_, Z, y, groups)
        return Z


def _cost(penalty: float, n_samples: int) -> float:
    """Return C for a penalty: eq. 7.17 averages the losses, the SVM sums them."""
    return 1 / (n_samples * penalty)


def _fit_grouped(estimator: Any, X: FloatArray, y: NDArray[Any], groups: IntArray) -> Any:
    """Fit an estimator, with groups if it takes them."""
    return estimator.fit(X, y, groups) if has_fit_parameter(estimator, "groups") else estimator.fit(X, y)
