"""The pipeline: filter bank, feature selection, learnt kernel, linear SVM, label map."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from segkit.base import BaseSegmenter, FloatArray, IdArray, Progress
from segkit.calibration import PlattScaling, image_threshold
from segkit.decisions import decision_maps
from segkit.errors import ConfigError, ModelFileError, SegkitError
from segkit.features import (
    FeatureMaps,
    FilterBank,
    MultiscaleBank,
    PositionBank,
    ScatteringBank,
    StackedBank,
    bank_from_dict,
)
from segkit.heldout import HeldOut, Recipe, fit_grouped, hold_out, usual_penalty
from segkit.images import UNLABELLED
from segkit.kernels import KernelMixture, LinearGaussianMixture
from segkit.linear import LinearSVM
from segkit.metrics import score_masks
from segkit.regions import least_areas, merge_small_regions
from segkit.sampling import PixelSample, assign_folds, block_folds, draw_pixels
from segkit.selection import ConditionalCovarianceSelector, MMDSelector
from segkit.store import digest_arrays, read_model, write_model
from segkit.stored import parameters_of, restore, to_stored
from segkit.threads import single_threaded_blas

N_FOLDS = 5
# Bytes that all channels of all pixels may take.
MEMORY_LIMIT = 2**28
# Ten times the selector's own tolerance: half the time, and the same channels but for a few.
SELECTION_TOL = 1e-3
# Strides of maps are read off a corner of so many rows and columns.
CORNER = 128
# The mean of a channel over an image is taken over a grid of so many rows and columns.
GRID = 32
# Values of lambda (eq. 7.17) to choose from, for kernels whose diagonal is 1 in the mean.
LAMBDAS = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


class Segmenter(BaseSegmenter):
    """Learn to segment images from a few annotated ones.

    Parameters
    ----------
    bank : FilterBank, default=None
        Per-pixel features; None stacks ``ScatteringBank(J=3, L=4, angles="averaged")``, `MultiscaleBank()` and
        `PositionBank()`, which need no weights.
    selector : MMDSelector or ConditionalCovarianceSelector, default=None
        Which channels to keep; None is `MMDSelector()`. Images are its groups (blocks, of a single image).
    kernels : KernelMixture, default=None
        Mixture of kernels and its features. None is `LinearGaussianMixture()`, a linear kernel for each channel, and
        Gaussians of the channels that have a value at each pixel (unless its ``gaussian_columns`` say
        otherwise); `LinearMixture` leaves these out; `MixtureRFF` is the paper's, Gaussians of all channels.
    svm : LinearSVM, default=None
        Linear classifier on the features; None is `LinearSVM()`. Its ``C`` multiplies the sum of the losses
        over the training pixels, and is set by `lambdas` unless these are None.
    lambdas : sequence of float or None, default=(3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
        Penalties (lambda of eq. 7.17, ``C = 1 / (n lambda)``). That nearest to 0.001 / sqrt(n_images) is taken, unless
        its mean IoU on held-out images is below that of the best of them beyond chance: then the nearest of which this
        cannot be said (one-sided paired t-test, 95 %). None keeps the ``C`` of `svm`.
    normalization : {"image", "set"}, default="image"
        What is taken for the zero of a channel: its mean over each image, so that staining and lighting
        matter less, or its mean over all training pixels. Its scale is that of the training pixels.
    selection_pixels : int, default=6000
        Pixels that channels are selected on, as many of each class as there are to be had. On the same
        ones, penalty, threshold and probabilities are judged, with each image held out in turn.
    training_pixels : int, default=20_000
        Pixels that kernels and classifier learn from, drawn in the same way and weighted back to
        the share each class has among all labelled pixels.
    threshold : {"share+otsu", "share", "iou", "zero"}, default="share+otsu"
        Decision above which a pixel of two classes is of the second. "share": the mean over images (blocks, of a
        single image), each held out in turn, of the decision above which as many of its pixels lie as are of the
        second class. "share+otsu": that of each image is moved towards the decision which parts its own decisions
        best (Otsu's threshold), by 2 / (n + 2) of the way after n training images, for few of them tell little of
        another image; where many images have nothing of the second class, "share" finds less in them. "iou": the
        mean IoU of held-out pixels is highest, which on few images is a matter of luck. "zero": the sign (eq. 7.18).
    smallest_region : float, default=0.5
        Share in [0, 1] of the smallest annotated region of a class, times 1 - 1 / n of n images, below which a
        predicted region of that class is given to the class around it: small objects are dropped, and holes
        filled where annotated objects have none as small. 0 leaves all regions, and so does a single image.
        Decisions and probabilities know nothing of it.
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
        Decision above which a pixel is of the second class, before an image moves it; 0 with more than two.
    otsu_weight_ : float
        How far an image moves it towards Otsu's threshold of its own decisions, 0 to 1.
    least_areas_ : ndarray of shape (n_classes, 2), float64
        Area in pixels below which a region of each class is too small, whole and cut by the border of an image.
    lambda_ : float or None
        The penalty chosen; None if `lambdas` is None.
    held_out_ : dict or None
        Mean IoU of training pixels whose image (or block) was held out of all that was learnt, threshold
        included; its 95 % interval over images (Student's t), and the mean at each penalty. None if no class
        can be held out.
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
        selector: MMDSelector | ConditionalCovarianceSelector | None = None,
        kernels: KernelMixture | None = None,
        svm: LinearSVM | None = None,
        lambdas: Sequence[float] | None = LAMBDAS,
        normalization: str = "image",
        selection_pixels: int = 6000,
        training_pixels: int = 20_000,
        threshold: str = "share+otsu",
        smallest_region: float = 0.5,
        probability: str = "platt",
        unlabelled: int | None = UNLABELLED,
        random_state: int = 0,
    ) -> None:
        self.bank = bank
        self.selector = selector
        self.kernels = kernels
        self.svm = svm
        self.lambdas = lambdas
        self.normalization = normalization
        self.selection_pixels = selection_pixels
        self.training_pixels = training_pixels
        self.threshold = threshold
        self.smallest_region = smallest_region
        self.probability = probability
        self.unlabelled = unlabelled
        self.random_state = random_state

    def _fit(self, images: list[FloatArray], ids: list[IdArray], progress: Progress) -> None:
        start = time.perf_counter()
        self._check_options()
        n_classes = self.classes_.size
        rng = np.random.default_rng(self.random_state)
        shapes = [mask.shape for mask in ids]
        self.bank_ = (clone(self.bank) if self.bank is not None else default_bank()).fit(images)
        self.selector_ = self._seeded(self.selector, MMDSelector)
        self.kernels_ = self._seeded(self.kernels, LinearGaussianMixture)
        self.svm_ = clone(self.svm) if self.svm is not None else LinearSVM()

        drawn, training = (
            draw_pixels(ids, n_classes, n_pixels, rng)
            for n_pixels in (self.selection_pixels, self.training_pixels)
        )
        names = self.bank_.channels(self.n_image_channels_)
        # one pass over the images instead of two, where all channels of all pixels fit
        at_once = 4 * len(names) * (drawn.label.size + training.label.size) <= MEMORY_LIMIT
        X, *later = self._sample(
            images, [drawn, training] if at_once else [drawn], None, progress, "Filter bank"
        )
        groups = _groups(drawn, shapes)
        fit_grouped(self.selector_, X, drawn.label, groups)
        self._kept = kept = self.selector_.get_support(indices=True)
        self.channels_ = tuple(names[index] for index in kept)
        gaussian = self._choose_gaussian_columns(images[0])
        selected = time.perf_counter()

        n_training = training.label.size
        own = 1 / (n_training * float(self.svm_.C))
        penalties = [own] if self.lambdas is None else sorted(self.lambdas, reverse=True)
        recipe = Recipe(self.selector_, self.kernels_, self.svm_, gaussian)
        self._calibrate(X, drawn, groups, assign_folds(drawn, shapes, N_FOLDS), recipe, penalties, progress)
        calibrated = time.perf_counter()

        if at_once:
            X = later.pop().take(kept, axis=1)
        else:
            [X] = self._sample(images, [training], kept, progress, "Kept channels")
        self._train(X, training, _groups(training, shapes))
        self.least_areas_ = least_areas(ids, n_classes, self.smallest_region)
        trained = time.perf_counter()
        seconds = {
            "select": selected - start,
            "calibrate": calibrated - selected,
            "train": trained - calibrated,
        }
        self._summarise(images, ids, n_training, progress, seconds)

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
        X = self._centred_sample(self._checked(image), np.asarray(rows), np.asarray(cols), self._kept)
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

    def _check_options(self) -> None:
        for name, choices in (
            ("probability", ("platt", "raw")),
            ("threshold", ("share+otsu", "share", "iou", "zero")),
            ("normalization", ("image", "set")),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name}={getattr(self, name)!r}: choose {' or '.join(choices)}")
        if not 0 <= self.smallest_region <= 1:
            raise ConfigError(f"smallest_region={self.smallest_region!r}: give a share from 0 to 1")
        lambdas = self.lambdas
        if lambdas is not None and not (len(lambdas) and all(0 < value < np.inf for value in lambdas)):
            raise ConfigError(f"lambdas={lambdas!r}: give one or more numbers above 0, or None")

    def _seeded(self, part: Any, default: Callable[..., Any]) -> Any:
        """Copy a part, seeded by us unless it brings its own seed or draws nothing."""
        copy = clone(part) if part is not None else default()
        if getattr(copy, "random_state", 0) is None:
            copy.set_params(random_state=self.random_state)
        return copy

    def _sample(
        self,
        images: Sequence[FloatArray],
        draws: Sequence[PixelSample],
        channels: NDArray[np.intp] | None,
        progress: Progress,
        description: str,
    ) -> list[FloatArray]:
        """Features of the pixels of each draw, (n, n_channels)."""
        features: list[list[FloatArray]] = [[] for _ in draws]
        for index, image in enumerate(progress(images, description)):
            parts = [drawn.subset(drawn.of_image(index)) for drawn in draws]
            rows, cols = (np.concatenate([getattr(part, axis) for part in parts]) for axis in ("row", "col"))
            X = self._centred_sample(image, rows, cols, channels)
            ends = np.cumsum([part.label.size for part in parts])
            for found, own in zip(features, np.split(X, ends[:-1]), strict=True):
                found.append(own)
        return [np.concatenate(found) for found in features]

    def _centred_sample(
        self, image: FloatArray, rows: NDArray[Any], cols: NDArray[Any], channels: NDArray[np.intp] | None
    ) -> FloatArray:
        """Features of some pixels of an image, about their mean over the image if so wanted."""
        if self.normalization == "set":
            return self.bank_.sample(image, rows, cols, channels)
        grid = _grid(image.shape[:2])
        X = self.bank_.sample(
            image, np.concatenate([rows, grid[0]]), np.concatenate([cols, grid[1]]), channels
        )
        return np.asarray(X[: len(rows)] - X[len(rows) :].mean(axis=0))

    def _choose_gaussian_columns(self, image: FloatArray) -> NDArray[np.bool_] | None:
        """Of all channels those that Gaussians see: if the kernels leave it open, those with a value at each pixel."""
        if not hasattr(self.kernels_, "gaussian_columns"):
            return None
        seen = np.zeros(self.bank_.n_channels(self.n_image_channels_), dtype=bool)
        if self.kernels_.gaussian_columns is None:
            for stack in self.bank_.maps(image[:CORNER, :CORNER]):
                seen[stack.indices] = stack.stride == 1
            self.kernels_.set_params(gaussian_columns=seen[self._kept])
        else:
            wanted = np.asarray(self.kernels_.gaussian_columns)
            if wanted.shape == self._kept.shape:  # else the kernels say what is wrong with it
                seen[self._kept] = wanted
        return seen

    def _calibrate(
        self,
        X: FloatArray,
        drawn: PixelSample,
        groups: NDArray[np.intp],
        fold: NDArray[np.intp],
        recipe: Recipe,
        penalties: Sequence[float],
        progress: Progress,
    ) -> None:
        """Choose penalty, threshold and Platt's scaling on pixels whose image (or block) was held out."""
        self.threshold_, self.otsu_weight_ = 0.0, 0.0
        self.platt_ = PlattScaling.identity(self.classes_.size)
        self.held_out_: dict[str, Any] | None = None
        self.lambda_: float | None = None
        if self.lambdas is not None:
            self.lambda_ = float(usual_penalty(self.lambdas, np.unique(drawn.image).size))
        if self.lambdas is None and self.probability == "raw" and self.threshold == "zero":
            return
        held_out = hold_out(X, drawn, groups, fold, recipe, penalties, self.classes_.size, progress)
        if held_out.has_all_classes:
            self._take(held_out)
        else:
            warnings.warn(
                "too few annotated regions to hold any out: probabilities are those of the decision itself "
                "(probability='raw'); annotate one more image for calibrated ones",
                UserWarning,
                stacklevel=3,
            )

    def _train(self, X: FloatArray, drawn: PixelSample, groups: NDArray[np.intp]) -> None:
        """Learn scales, kernels and planes from the kept channels, which are standardised in place."""
        scaler = StandardScaler(copy=False).fit(X, sample_weight=drawn.weight)
        X = scaler.transform(X)
        self._mean, self._scale = scaler.mean_.astype(np.float32), scaler.scale_.astype(np.float32)
        fit_grouped(self.kernels_, X, drawn.label, groups)
        if self.lambda_ is not None:
            self.svm_.set_params(C=1 / (len(X) * self.lambda_))
        self.svm_.fit(X, drawn.label, drawn.weight, feature_map=self.kernels_.transform)

    def _take(self, held_out: HeldOut) -> None:
        choice = held_out.choose(self.threshold)
        self.threshold_, self.otsu_weight_ = choice.threshold, choice.otsu_weight
        self.held_out_ = choice.summary
        if self.lambdas is not None:
            self.lambda_ = choice.penalty
        if self.probability == "platt":
            self.platt_.fit(choice.decisions, held_out.drawn.label, held_out.drawn.weight)

    def _summarise(
        self,
        images: Sequence[FloatArray],
        ids: Sequence[NDArray[Any]],
        n_pixels: int,
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
            "n_training_pixels": n_pixels,
            "annotated": float(np.mean(np.concatenate([mask.ravel() for mask in ids]) != UNLABELLED)),
            "n_channels": self.bank_.n_channels(self.n_image_channels_),
            "selector": type(self.selector_).__name__,
            "kept_channels": groups,
            "criterion": self.kernels_.criterion,
            "kernels": self.kernels_.describe([channel.group for channel in self.channels_]),
            "lambda": self.lambda_,
            "threshold": self.threshold_,
            "threshold_rule": self.threshold,
            "otsu_weight": self.otsu_weight_,
            "least_areas": self.least_areas_.tolist(),
            "held_out": self.held_out_,
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
        with single_threaded_blas():
            grid = _grid(shape)
            stacks = [self._standardised(stack, grid) for stack in self.bank_.maps(image, self._kept)]
            decisions = decision_maps(stacks, self._kept, self.kernels_, self.svm_, shape)
        return decisions[:, :, 0] if decisions.shape[2] == 1 else decisions

    def _standardised(
        self, stack: FeatureMaps, grid: tuple[NDArray[np.float64], NDArray[np.float64]]
    ) -> FeatureMaps:
        """Kept channels of a stack of maps, centred and standardised there: interpolation commutes with it."""
        column = np.searchsorted(self._kept, stack.indices)
        centre = self._mean[column]
        if self.normalization == "image":
            centre = centre + stack.sample(*grid).mean(axis=0)
        values = stack.values - centre[:, None, None]
        values /= self._scale[column, None, None]
        return FeatureMaps(values, stack.indices, stack.stride, stack.offset)

    def _labels(self, decisions: FloatArray) -> NDArray[np.intp]:
        """Class ids of an image's decisions: of two classes by the threshold, of more the largest."""
        if decisions.ndim == 2:
            threshold = image_threshold(decisions, self.threshold_, self.otsu_weight_)
            ids = (decisions > threshold).astype(np.intp)
        else:
            ids = decisions.argmax(axis=2)
        return merge_small_regions(ids, self.least_areas_) if self.least_areas_.any() else ids

    def _probabilities(self, decisions: FloatArray) -> FloatArray:
        flat = decisions.reshape(-1) if decisions.ndim == 2 else decisions.reshape(-1, decisions.shape[2])
        probabilities = self.platt_.predict_proba(flat).astype(np.float32)
        return probabilities.reshape(*decisions.shape[:2], -1)


def default_bank() -> FilterBank:
    """Bank that needs no weights: wide scattering for texture, pixel classifiers' filters for borders, and framing."""
    return StackedBank([ScatteringBank(J=3, L=4, angles="averaged"), MultiscaleBank(), PositionBank()])


def _groups(drawn: PixelSample, shapes: Sequence[tuple[int, int]]) -> NDArray[np.intp]:
    """Image of each pixel, or its block of a single image."""
    return drawn.image if len(shapes) > 1 else block_folds(drawn.row, drawn.col, shapes[0])


def _grid(shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows and columns of pixels spread evenly over an image; turning the image turns the grid."""
    rows, cols = np.meshgrid(*(np.linspace(0, size - 1, GRID) for size in shape[:2]), indexing="ij")
    return rows.ravel(), cols.ravel()


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
        segmenter = Segmenter(bank_from_dict(header["bank"]), **parameters_of(header))
        restore(segmenter, header, arrays, str(path))
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        if isinstance(error, SegkitError):
            raise
        raise ModelFileError(f"{path}: incomplete model ({error!r}); copy it anew or train again") from error
    return segmenter
