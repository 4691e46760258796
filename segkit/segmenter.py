"""The pipeline of the paper: filter bank, feature selection, learnt kernel, linear SVM, label map."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from segkit.base import BaseSegmenter, FloatArray, IdArray, Progress
from segkit.calibration import PlattScaling, best_threshold
from segkit.errors import ConfigError, ModelFileError, SegkitError
from segkit.features import FeatureMaps, FilterBank, ScatteringBank, bank_from_dict
from segkit.images import UNLABELLED
from segkit.kernels import MixtureRFF, kernel_to_dict
from segkit.linear import LinearSVM
from segkit.metrics import score_masks
from segkit.sampling import PixelSample, assign_folds, draw_pixels
from segkit.selection import ConditionalCovarianceSelector
from segkit.store import digest_arrays, read_model, write_model
from segkit.stored import restore, to_stored

N_FOLDS = 5
# Upsampled channels of so many pixels are held at a time.
PIXELS_AT_ONCE = 32_768
CALIBRATION_PIXELS = 10_000
# Ten times the selector's own tolerance: half the time, and the same channels but for a few.
SELECTION_TOL = 1e-3


class Segmenter(BaseSegmenter):
    """Learn to segment images from a few annotated ones.

    Parameters
    ----------
    bank : FilterBank, default=None
        Per-pixel features; None is `ScatteringBank()`, which needs no weights.
    selector : selector or None, default=None
        Which channels to keep; None is `ConditionalCovarianceSelector(tol=1e-3)`.
    kernels : MixtureRFF, default=None
        Mixture of kernels, weighted by MMD, and its random features; None is `MixtureRFF()`.
    svm : LinearSVM, default=None
        Linear classifier on the random features; None is `LinearSVM()`. Its ``C`` multiplies the sum
        of the losses over the training pixels.
    selection_pixels : int, default=3000
        Pixels that channels are selected on, as many of each class as there are to be had.
    training_pixels : int, default=20_000
        Pixels that kernels and classifier learn from, drawn in the same way and weighted back to
        the share each class has among all labelled pixels.
    threshold : {"iou", "zero"}, default="iou"
        Decision above which a pixel of two classes is of the second. "iou": the one with the highest mean
        IoU on pixels held out by image (by block, of a single image); "zero": the sign (eq. 7.18).
    probability : {"platt", "raw"}, default="platt"
        "platt": Platt's scaling, fitted on decisions of pixels held out by image (by block, of a
        single image). "raw": the logistic function of the decision (eq. 8.2).
    unlabelled : int or None, default=255
        Mask value of pixels without annotation. Masks that hold 0 and 255 and nothing else are
        binary, and 255 is the foreground.
    random_state : int, default=0
        Seed of every draw. It also seeds the selector and the kernels where they have none.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Mask values learnt, in the order of class ids.
    label_map_ : LabelMap
        What the classes are called, their mask values, and the value of unlabelled pixels.
    threshold_ : float
        Decision above which a pixel is of the second class; 0 with more than two.
    n_image_channels_ : int
        Channels of the training images.
    channels_ : tuple of Channel
        The channels kept, in the order of the classifier's input.
    bank_, selector_, kernels_, svm_ : estimators
        The fitted parts (a loaded model has no selector).
    summary_ : dict
        What was chosen and measured: kept channels by group, kernel weights, training IoU, seconds.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, section 7 and figure 6.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit import ModuleBank, Segmenter
    >>> rng = np.random.default_rng(0)
    >>> mask = np.zeros((40, 40), dtype=int)
    >>> mask[10:30, 10:30] = 1
    >>> image = 0.4 + 0.2 * mask + 0.05 * rng.standard_normal(mask.shape)
    >>> segmenter = Segmenter(ModuleBank(), training_pixels=500).fit([image], [mask])
    >>> segmenter.score([image], [mask]) > 0.8
    True
    """

    def __init__(
        self,
        bank: FilterBank | None = None,
        *,
        selector: ConditionalCovarianceSelector | None = None,
        kernels: MixtureRFF | None = None,
        svm: LinearSVM | None = None,
        selection_pixels: int = 3000,
        training_pixels: int = 20_000,
        threshold: str = "iou",
        probability: str = "platt",
        unlabelled: int | None = UNLABELLED,
        random_state: int = 0,
    ) -> None:
        self.bank = bank
        self.selector = selector
        self.kernels = kernels
        self.svm = svm
        self.selection_pixels = selection_pixels
        self.training_pixels = training_pixels
        self.threshold = threshold
        self.probability = probability
        self.unlabelled = unlabelled
        self.random_state = random_state

    def _fit(self, images: list[FloatArray], ids: list[IdArray], progress: Progress) -> None:
        start = time.perf_counter()
        for name, choices in (("probability", ("platt", "raw")), ("threshold", ("iou", "zero"))):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name}={getattr(self, name)!r}: choose {' or '.join(choices)}")
        n_classes = self.classes_.size
        rng = np.random.default_rng(self.random_state)
        self.bank_ = (clone(self.bank) if self.bank is not None else ScatteringBank()).fit(images)
        self.selector_ = self._seeded(
            self.selector, partial(ConditionalCovarianceSelector, tol=SELECTION_TOL)
        )
        self.kernels_ = self._seeded(self.kernels, MixtureRFF)

        drawn = draw_pixels(ids, n_classes, self.selection_pixels, rng)
        X = self._sample(images, drawn, None, progress, "Filter bank")
        self.selector_.fit(X, drawn.label)
        kept = np.flatnonzero(self.selector_.get_support())
        names = self.bank_.channels(self.n_image_channels_)
        self.channels_ = tuple(names[index] for index in kept)
        self._kept = kept
        selected = time.perf_counter()

        drawn = draw_pixels(ids, n_classes, self.training_pixels, rng)
        X = self._sample(images, drawn, kept, progress, "Kept channels")
        self.n_training_pixels_ = len(X)
        self._standardise(X, drawn.weight)
        self.kernels_.fit(X, drawn.label)
        self.svm_ = clone(self.svm) if self.svm is not None else LinearSVM()
        self.svm_.fit(X, drawn.label, drawn.weight, feature_map=self.kernels_.transform)
        self._calibrate(X, drawn, [mask.shape for mask in ids], progress)
        trained = time.perf_counter()
        self._summarise(images, ids, progress, {"select": selected - start, "train": trained - selected})

    def decision_function(self, images: ArrayLike | Sequence[ArrayLike]) -> Any:
        """Signed distances to the separating plane, in units of the margin.

        Parameters
        ----------
        images : array-like of shape (H, W) or (H, W, C), or sequence of them
            One image or several, floats in [0, 1], with the channels of the training images.

        Returns
        -------
        ndarray of shape (H, W) or (H, W, n_classes), float32, or list of them
            Binary: positive means ``classes_[1]``. A list if a list was given.
        """
        return self._each(images, self._scores)

    def pixel_features(self, image: ArrayLike, rows: ArrayLike, cols: ArrayLike) -> FloatArray:
        """Features of some pixels, as the kernels see them.

        Parameters
        ----------
        image : array-like of shape (H, W) or (H, W, C), float in [0, 1]
            The image.
        rows, cols : array-like of shape (n,), int
            Positions of the pixels.

        Returns
        -------
        ndarray of shape (n, n_channels), float32
            The kept channels, standardised.
        """
        check_is_fitted(self, "svm_")
        X = self.bank_.sample(self._checked(image), np.asarray(rows), np.asarray(cols), self._kept)
        return np.asarray((X - self._mean) / self._scale)

    def save(self, path: str | Path, *, embed_weights: bool = True) -> None:
        """Write the model as one ``.segkit`` file of arrays and JSON.

        Parameters
        ----------
        path : str or Path
            File to write.
        embed_weights : bool, default=True
            Whether the file holds the network weights it needs. Without them it is smaller, and
            loading looks for them where training found them. (What a bank learnt is always stored.)
        """
        check_is_fitted(self, "svm_")
        write_model(path, *to_stored(self, embed_weights=embed_weights))

    def _seeded(self, part: Any, default: Callable[..., Any]) -> Any:
        """Copy a part, seeded by us unless it brings its own seed."""
        copy = clone(part) if part is not None else default()
        if copy.random_state is None:
            copy.set_params(random_state=self.random_state)
        return copy

    def _sample(
        self,
        images: Sequence[FloatArray],
        drawn: PixelSample,
        channels: NDArray[np.intp] | None,
        progress: Progress,
        description: str,
    ) -> FloatArray:
        """Features of the drawn pixels, (n, n_channels)."""
        rows = []
        for index, image in enumerate(progress(images, description)):
            part = drawn.of_image(index)
            rows.append(self.bank_.sample(image, drawn.row[part], drawn.col[part], channels))
        return np.concatenate(rows)

    def _standardise(self, X: FloatArray, weight: NDArray[np.float64]) -> None:
        """Learn mean and scale of each kept channel and apply them to X in place."""
        self._mean = np.average(X, axis=0, weights=weight).astype(np.float32)
        X -= self._mean
        variance = np.average(np.square(X, dtype=np.float64), axis=0, weights=weight)
        self._scale = np.sqrt(np.where(variance > 0, variance, 1)).astype(np.float32)
        X /= self._scale

    def _calibrate(
        self, X: FloatArray, drawn: PixelSample, shapes: Sequence[tuple[int, int]], progress: Progress
    ) -> None:
        """Fit threshold and Platt's scaling on decisions of pixels whose image (or block) was held out."""
        self.threshold_, self.platt_ = 0.0, PlattScaling.identity(self.classes_.size)
        if self.probability == "raw" and self.threshold == "zero":
            return
        some = np.random.default_rng(self.random_state).permutation(len(X))[:CALIBRATION_PIXELS]
        X, drawn = X[some], drawn.subset(some)
        decisions = self._held_out_decisions(X, drawn, assign_folds(drawn, shapes, N_FOLDS), progress)
        judged = ~np.isnan(decisions[:, 0])
        if np.unique(drawn.label[judged]).size < self.classes_.size:
            warnings.warn(
                "too few annotated regions to hold any out: probabilities are those of the decision itself "
                "(probability='raw'); annotate one more image for calibrated ones",
                UserWarning,
                stacklevel=3,
            )
            return
        decisions, drawn = decisions[judged], drawn.subset(judged)
        if self.probability == "platt":
            self.platt_.fit(decisions, drawn.label, drawn.weight)
        if self.threshold == "iou" and self.classes_.size == 2:
            self.threshold_ = best_threshold(decisions[:, 0], drawn.label, drawn.weight, drawn.image)

    def _held_out_decisions(
        self, X: FloatArray, drawn: PixelSample, fold: NDArray[np.intp], progress: Progress
    ) -> FloatArray:
        """Decisions of each fold by a classifier of the others, NaN where those lack a class."""
        decisions = np.full((len(X), self.svm_.coef_.shape[0]), np.nan, dtype=np.float32)
        for index in progress(range(fold.max() + 1), "Calibration"):
            others, held_out = fold != index, fold == index
            if np.unique(drawn.label[others]).size < self.classes_.size:
                continue
            # C multiplies a sum over pixels: fewer pixels, larger C, the same lambda of eq. 7.17
            scale = self.n_training_pixels_ / np.count_nonzero(others)
            svm = clone(self.svm_).set_params(C=self.svm_.C * scale, tol=1e-2)
            svm.fit(X[others], drawn.label[others], drawn.weight[others], feature_map=self.kernels_.transform)
            decisions[held_out] = self.kernels_.dot(X[held_out], svm.coef_) + svm.intercept_
        return decisions

    def _summarise(
        self,
        images: Sequence[FloatArray],
        ids: Sequence[NDArray[Any]],
        progress: Progress,
        seconds: dict[str, float],
    ) -> None:
        start = time.perf_counter()
        guesses = [self._labels(self._scores(image)) for image in progress(images, "Training IoU")]
        scores = score_masks(ids, guesses, self.classes_.size)
        seconds["check"] = time.perf_counter() - start
        groups: dict[str, int] = {}
        for channel in self.channels_:
            groups[channel.group] = groups.get(channel.group, 0) + 1
        self.summary_: dict[str, Any] = {
            "n_images": len(images),
            "n_channels": len(self.bank_.channels(self.n_image_channels_)),
            "kept_channels": groups,
            "kernels": [
                {
                    "name": _kernel_name(kernel_to_dict(kernel)),
                    "weight": float(weight),
                    "score": float(score),
                }
                for kernel, weight, score in zip(
                    self.kernels_.kernels_, self.kernels_.weights_, self.kernels_.scores_, strict=True
                )
            ],
            "training_iou": [float(iou) for iou in scores.class_iou],
            "training_mean_iou": scores.mean,
            "seconds": {name: round(value, 2) for name, value in seconds.items()},
            "training_set_sha256": digest_arrays(
                {
                    f"{kind}{n}": array
                    for kind, arrays in (("image", images), ("mask", ids))
                    for n, array in enumerate(arrays)
                }
            ),
        }

    def _scores(self, image: FloatArray) -> FloatArray:
        """Decisions of an image, (H, W) or (H, W, n_classes)."""
        shape = image.shape[:2]
        stacks = [self._standardised(stack) for stack in self.bank_.maps(image, self._kept)]
        column = np.concatenate([stack.indices for stack in stacks]).argsort()
        parts = []
        n_rows = max(1, PIXELS_AT_ONCE // shape[1])
        for top in range(0, shape[0], n_rows):
            rows = np.arange(top, min(top + n_rows, shape[0]))
            features = np.concatenate([stack.upsample(shape, rows) for stack in stacks])[column]
            X = features.reshape(len(column), -1).T
            decisions = self.kernels_.dot(X, self.svm_.coef_) + self.svm_.intercept_
            parts.append(decisions.reshape(rows.size, shape[1], -1))
        decisions = np.concatenate(parts)
        return decisions[:, :, 0] if decisions.shape[2] == 1 else decisions

    def _standardised(self, stack: FeatureMaps) -> FeatureMaps:
        """Kept channels of one grid, standardised there: interpolation commutes with it."""
        column = np.searchsorted(self._kept, stack.indices)
        values = (stack.values - self._mean[column, None, None]) / self._scale[column, None, None]
        return FeatureMaps(values, stack.indices, stack.stride, stack.offset)

    def _labels(self, decisions: FloatArray) -> NDArray[np.intp]:
        """Class ids of decisions: of two classes by the threshold, of more the largest."""
        return (
            (decisions > self.threshold_).astype(np.intp) if decisions.ndim == 2 else decisions.argmax(axis=2)
        )

    def _probabilities(self, decisions: FloatArray) -> FloatArray:
        flat = decisions.reshape(-1) if decisions.ndim == 2 else decisions.reshape(-1, decisions.shape[2])
        probabilities = self.platt_.predict_proba(flat).astype(np.float32)
        return probabilities.reshape(*decisions.shape[:2], -1)


def load(path: str | Path) -> Segmenter:
    """Load a model written by `Segmenter.save` or ``segkit train``.

    Parameters
    ----------
    path : str or Path
        A ``.segkit`` file. Opening it executes nothing.

    Returns
    -------
    Segmenter
        Fitted, ready to predict.

    Raises
    ------
    ModelFileError
        If the file is damaged, no model, of another format version, or its weights are elsewhere
        and have changed.
    WeightsError
        If its weights were not embedded and cannot be found.
    """
    header, arrays = read_model(path)
    try:
        segmenter = Segmenter(bank_from_dict(header["bank"]), **header["parameters"])
        restore(segmenter, header, arrays, str(path))
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        if isinstance(error, SegkitError):
            raise
        raise ModelFileError(f"{path}: incomplete model ({error!r}); copy it anew or train again") from error
    return segmenter


def _kernel_name(description: dict[str, Any]) -> str:
    """Name and parameters of a kernel, short enough to list."""
    inner = f" {_kernel_name(description['kernel'])}" if "kernel" in description else ""
    numbers = [f"{key}={value:.3g}" for key, value in description.items() if key not in ("name", "kernel")]
    return " ".join([description["name"], *numbers]) + inner
