"""The pipeline: filter bank, feature selection, learnt kernel, linear SVM, label map."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from segkit._common import FloatArray, Progress, Workers, pass_on
from segkit._common.files import files_of_parts
from segkit._common.threads import single_threaded_blas
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.svm import LinearSVM
from segkit.errors import ConfigError, ModelFileError, SegkitError, WeightsError
from segkit.features import (
    Channel,
    ElongatedBank,
    FilterBank,
    MultiscaleBank,
    PositionBank,
    ScatteringBank,
    StackedBank,
    bank_from_dict,
)
from segkit.features.normalised import NormalisedBank
from segkit.images import UNLABELLED, LabelMap, PixelSize, Reading
from segkit.images.sampling import numbers_of
from segkit.kernels import KernelMixture
from segkit.objects.hills import LabelArray
from segkit.objects.split import expected_depth
from segkit.scale.cluster import Cluster, workers_of
from segkit.segmentation.alarms import Alarms
from segkit.segmentation.base import BaseSegmenter, IdArray, Segmentation
from segkit.segmentation.dense import decide_and_read
from segkit.segmentation.fit import RECIPE_OPTIONS, Recipe, digest_training_set, make_classifier, train
from segkit.segmentation.header import check_header
from segkit.segmentation.memory import require_memory
from segkit.segmentation.model_file import describe, read_model, restore, upgrade, write_model
from segkit.segmentation.object_model import ObjectModel, check_instances
from segkit.segmentation.summary import HeldOutScores, TrainingSummary
from segkit.segmentation.tensor_file import Arrays
from segkit.segmentation.threshold import THRESHOLDS, DecisionRule
from segkit.selection import ConditionalCovarianceSelector, MMDSelector

# Ten times the selector's own tolerance: half the time, and all but a few channels are the same.
SELECTION_TOL = 1e-3
# Values of lambda (eq. 7.17) to choose from; the kernels have a mean diagonal of 1.
ALPHAS = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


class Segmenter(BaseSegmenter):
    """Learn to segment images from a few annotated ones.

    Parameters
    ----------
    bank : FilterBank or list of FilterBank, default=None
        Features of each pixel. None stacks ``ScatteringBank(J=3, L=4, angles="averaged")``, `MultiscaleBank()`,
        `ElongatedBank()` and `PositionBank()`, which need no weights. Of several the one with the highest mean IoU on
        held-out images is taken, or the first where fewer than two images can be held out.
    selector : MMDSelector or ConditionalCovarianceSelector, default=None
        Selects channels; None is `MMDSelector()`. Its groups are the images (blocks, of a single image).
    kernels : KernelMixture, default=None
        Mixture of kernels. None is `LinearGaussianMixture()`: a linear kernel for each channel, and Gaussian kernels of
        the channels with a value at each pixel. `MixtureRFF` is the paper's: Gaussian kernels of all channels.
    svm : LinearSVM, default=None
        Linear classifier on the features of the kernels; None is `LinearSVM()`. `alphas` set its ``C``.
    alphas : sequence of float or None, default=(3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
        Penalties (lambda of eq. 7.17, ``C = 1 / (n lambda)``). The one nearest to 0.001 / sqrt(n_images) is taken, unless
        its mean IoU on held-out images is significantly worse than the best (one-sided paired t-test, 95 %); then the
        nearest one that is not. None keeps the ``C`` of `svm`.
    standardise : bool, default=True
        Whether kept channels are less their mean and divided by their standard deviation, over all training pixels, before
        kernels see them. Without, ``gammas`` of the kernels must fit the scale of the channels; and the normalisation of the
        bank is all that is left.
    selection_pixels : int, default=6000
        Number of pixels for the selection of channels, balanced over classes as far as available. Penalty, threshold and
        probabilities are evaluated on the same pixels, with each image held out in turn.
    training_pixels : int, default=20_000
        Number of pixels that kernels and classifier are trained on, drawn in the same way. Weights restore the frequency
        of each class among all labelled pixels.
    threshold : {"quantile+otsu", "quantile", "iou", "zero"}, default="quantile+otsu"
        Rule for the decision above which a pixel is of the second of two classes. "quantile": as many pixels of a
        held-out image are called foreground as are annotated; mean over images, 0 if less than half of each is
        labelled. "quantile+otsu": the same, moved 2 / (n + 2) of the way to Otsu's threshold of the image at hand, for
        n training images; "quantile" alone finds less in images without foreground. "iou": highest mean IoU of
        held-out pixels, noisy with few images. "zero": the sign (eq. 7.18).
    smallest_region : float, default=0.5
        Fraction in [0, 1] of the area of the smallest annotated region of a class, times 1 - 1 / n for n images. Smaller
        predicted regions are given to the class around them; decisions and probabilities stay. 0 keeps all regions.
    probability : {"calibrated", "raw"}, default="calibrated"
        "calibrated": softmax(scores / T), where T is fitted on held-out pixels. "raw": T is 1; with `threshold` "zero" that
        is the logistic function of the decision (eq. 8.2). A pixel's class has the largest probability, except in small
        regions.
    unlabelled : int or None, default=255
        Mask value of pixels without annotation. Of masks with the two values 0 and 255, 255 is the foreground.
    random_state : int, default=0
        Seed of every draw. It also seeds the selector and the kernels where they have no seed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Mask values learnt, in the order of class ids.
    label_map_ : LabelMap
        Names and mask values of the classes, and the value of unlabelled pixels.
    rule_ : DecisionRule
        From decisions to labels and probabilities: ``threshold`` (0 for three classes and more), ``otsu_weight``,
        ``temperature`` and ``least_areas``.
    n_image_channels_ : int
        Channels of the training images.
    bank_ : FilterBank
        The fitted bank.
    classifier_ : PixelClassifier
        The fitted selector (a loaded model has none), scales, kernels and SVM.
    objects_ : ObjectModel
        How objects that touch are told apart.
    alarms_ : Alarms
        What training images tell of predictions of new ones.
    reading_ : Reading
        How the files of the training images were read, which `note_files` notes; `predict_folder` reads alike.
    settings_ : dict or None
        Settings of ``segkit train``, which ``segkit train --config MODEL`` repeats; None after `fit`.
    best_index_ : int
        Index of ``bank_`` among the given banks, or of the one that it is a part of: where fixed filters stand beside
        networks that learnt from the images, the networks are compared alone, too. A loaded model has no others, and no
        index.
    summary_ : TrainingSummary
        What was chosen and measured: kept channels by group, kernel weights, IoU on the training pixels, seconds.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, section 7 and figure 6.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit import Segmenter
    >>> from segkit.features import ModuleBank
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
        bank: FilterBank | Sequence[FilterBank] | None = None,
        *,
        selector: MMDSelector | ConditionalCovarianceSelector | None = None,
        kernels: KernelMixture | None = None,
        svm: LinearSVM | None = None,
        alphas: Sequence[float] | None = ALPHAS,
        standardise: bool = True,
        selection_pixels: int = 6000,
        training_pixels: int = 20_000,
        threshold: str = "quantile+otsu",
        smallest_region: float = 0.5,
        probability: str = "calibrated",
        unlabelled: int | None = UNLABELLED,
        random_state: int = 0,
    ) -> None:
        self.bank = bank
        self.selector = selector
        self.kernels = kernels
        self.svm = svm
        self.alphas = alphas
        self.standardise = standardise
        self.selection_pixels = selection_pixels
        self.training_pixels = training_pixels
        self.threshold = threshold
        self.smallest_region = smallest_region
        self.probability = probability
        self.unlabelled = unlabelled
        self.random_state = random_state

    def _fit(
        self,
        images: list[FloatArray],
        ids: list[IdArray],
        progress: Progress,
        instances: list[LabelArray] | None = None,
        groups: Iterable[Hashable] | None = None,
        workers: Workers | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        recipe, banks = self._checked_recipe(), self._checked_banks()
        trained = train(
            recipe, banks, images, ids, self.label_map_, instances, groups, progress, workers, checkpoint
        )
        self.bank_, self.best_index_ = trained.bank, trained.best_index
        self.classifier_: PixelClassifier = trained.classifier
        self.rule_: DecisionRule = trained.rule
        self.objects_: ObjectModel = trained.objects
        self.alarms_: Alarms = trained.alarms
        self.summary_: TrainingSummary = trained.summary
        self.reading_ = Reading()
        self.settings_: dict[str, Any] | None = None

    def fit(
        self,
        images: ArrayLike | Sequence[ArrayLike],
        masks: ArrayLike | Sequence[ArrayLike],
        *,
        instances: ArrayLike | Sequence[ArrayLike] | None = None,
        groups: Iterable[Hashable] | None = None,
        label_map: LabelMap | None = None,
        n_jobs: int | Cluster | Workers | None = None,
        progress: Progress | None = None,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learn from annotated images.

        Parameters
        ----------
        images : sequence of array-like of shape (H, W) or (H, W, C), float in [0, 1]
            One image or several; sizes may differ, the number of channels may not.
        masks : sequence of array-like of shape (H, W), int or bool
            Class of each pixel, or `unlabelled`.
        instances : sequence of array-like of shape (H, W), int, optional
            Objects: 0 for the background, every other number one object. `segment` learns from them to tell touching
            objects apart; without them, from the sizes and shapes of the annotated regions.
        groups : sequence of hashable, optional
            Group of each image, such as the stack of a plane, or the patient: all images of a group are held out together.
            Scores and intervals are then for other groups; an interval of 80 % takes four. By default, or if a group has
            more than 95 % of the pixels of a class, images are held out one by one.
        label_map : LabelMap, optional
            Meaning of the mask values, in place of `unlabelled` and the values that occur.
        n_jobs : int or Cluster, optional
            Number of processes that the banks, or the held-out images of a single one, are spread over (-1: one for each
            core), or a `segkit.scale.Cluster` of machines. Needs Dask. None or 1 is this process alone.
        progress : callable, optional
            ``progress(iterable, description)`` yields the items and shows the progress.
        checkpoint : str or Path, optional
            File for the state of a long training, of a `TunedBank`; a `fit` that was interrupted goes on from it. It is
            removed at the end.

        Returns
        -------
        Segmenter
            Itself.

        Raises
        ------
        InputError
            If images, masks, instances and groups do not fit together, hold NaN, are constant, have one class only, have a
            side of fewer than four pixels, or are not scaled to [0, 1].
        """
        arrays, ids = self._checked_training(images, masks, label_map)
        objects = None if instances is None else check_instances(instances, ids)
        with workers_of(n_jobs) as workers:
            self._fit(
                arrays,
                ids,
                progress or pass_on,
                objects,
                groups,
                workers,
                None if checkpoint is None else Path(checkpoint),
            )
        if checkpoint is not None:
            for file in files_of_parts(Path(checkpoint)):
                file.unlink()
        return self

    def digest_training_set(
        self,
        images: ArrayLike | Sequence[ArrayLike],
        masks: ArrayLike | Sequence[ArrayLike],
        *,
        instances: ArrayLike | Sequence[ArrayLike] | None = None,
        groups: Iterable[Hashable] | None = None,
        label_map: LabelMap | None = None,
    ) -> str:
        """Compute the digest that the summary has after `fit` on the same arguments, without training."""
        arrays, ids = clone(self)._checked_training(images, masks, label_map)
        objects = None if instances is None else check_instances(instances, ids)
        numbers = None if groups is None else numbers_of(groups, len(arrays))
        return digest_training_set(arrays, ids, objects, numbers)

    def note_files(
        self,
        dtypes: Iterable[str],
        pixel_sizes: Iterable[PixelSize | None],
        reading: Reading | None = None,
    ) -> None:
        """Note types and pixel sizes of the training images' files, so that `predict_folder` tells of other ones.

        All three are attributes of `segkit.images.Dataset`. `predict_folder` reads files as `reading` says.
        """
        if reading is not None:
            self.reading_ = reading
        check_is_fitted(self, "classifier_")
        self.alarms_ = self.alarms_.of_files(dtypes, pixel_sizes)

    def decision_function(self, images: ArrayLike | Sequence[ArrayLike]) -> Any:
        """Compute signed distances to the separating plane, in units of the margin.

        Parameters
        ----------
        images : array-like of shape (H, W) or (H, W, C), or sequence of them
            One image or several, floats in [0, 1], with the channels of the training images.

        Returns
        -------
        ndarray of shape (H, W) or (H, W, n_classes), float32, or list of them
            Binary: positive means ``classes_[1]``. A list if a list was given.
        """

        def decide(image: FloatArray) -> FloatArray:
            decisions = self._scores(image)
            return decisions[:, :, 0] if decisions.shape[2] == 1 else decisions

        return self._each(images, decide)

    def pixel_features(self, image: ArrayLike, rows: ArrayLike, cols: ArrayLike) -> FloatArray:
        """Read the standardised kept channels of some pixels of an image, the input of the kernels; (n, n_channels)."""
        check_is_fitted(self, "classifier_")
        X = NormalisedBank(self.bank_).sample(
            self._checked(image), np.asarray(rows), np.asarray(cols), self.classifier_.channels_
        )
        return self.classifier_.standardise(X)

    def quick(self) -> Segmenter:
        """Return a segmenter that predicts in less time, less exactly, or itself; see `FilterBank.quick`."""
        check_is_fitted(self, "classifier_")
        bank = self.bank_.quick()
        if bank is self.bank_:
            return self
        quick = copy(self)
        quick.bank_ = bank
        return quick

    def with_objects(
        self,
        split: str | float | None = None,
        *,
        smallest: float | None = None,
        fill_holes: bool | None = None,
        least_probability: float | None = None,
    ) -> Segmenter:
        """Return a segmenter that tells objects apart by changed settings; see `segkit.objects.split.Splitter.changed`."""
        check_is_fitted(self, "classifier_")
        splitter = self.objects_.splitter.changed(
            split, smallest=smallest, fill_holes=fill_holes, least_probability=least_probability
        )
        objects = self.objects_.by_hand(splitter)
        if objects is self.objects_:
            return self
        changed = copy(self)
        changed.objects_ = objects
        return changed

    def save(
        self, path: str | Path, *, embed_weights: bool = True, settings: dict[str, Any] | None = None
    ) -> None:
        """Write the model as one ``.segkit`` file of arrays and JSON.

        Parameters
        ----------
        path : str or Path
            File to write.
        embed_weights : bool, default=True
            Store the network weights too. Without them loading looks for them where training found them. Weights learnt
            from the training images are always stored.
        settings : dict, optional
            The whole configuration, for ``segkit train --config MODEL``. A loaded model keeps its own.
        """
        check_is_fitted(self, "classifier_")
        if settings is not None:
            self.settings_ = settings
        write_model(path, *describe(self, embed_weights=embed_weights))

    def _checked_recipe(self) -> Recipe:
        for name, choices in (
            ("probability", ("calibrated", "raw")),
            ("threshold", THRESHOLDS),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name}={getattr(self, name)!r}: choose {' or '.join(choices)}")
        if not 0 <= self.smallest_region <= 1:
            raise ConfigError(f"smallest_region={self.smallest_region!r}: give a share from 0 to 1")
        alphas = self.alphas
        if alphas is not None and not (len(alphas) and all(0 < value < np.inf for value in alphas)):
            raise ConfigError(f"alphas={alphas!r}: give one or more numbers above 0, or None")
        return Recipe(
            make_classifier(
                self.selector, self.kernels, self.svm, self.random_state, standardise=self.standardise
            ),
            None if alphas is None else sorted(alphas, reverse=True),
            **{name: getattr(self, name) for name in RECIPE_OPTIONS},
        )

    @property
    def channels_(self) -> tuple[Channel, ...]:
        """The kept channels, in the order of the classifier's input."""
        channels = self.bank_.channels(self.n_image_channels_)
        return tuple(channels[index] for index in self.classifier_.channels_)

    @property
    def alpha_(self) -> float | None:
        """The penalty chosen; None if `alphas` is None."""
        return self.summary_.penalty

    @property
    def held_out_(self) -> HeldOutScores | None:
        """Scores of training images (or blocks of a single one), each held out in turn; None if no class can be held out."""
        return self.summary_.held_out

    def _checked(self, image: ArrayLike) -> FloatArray:
        array = super()._checked(image)
        require_memory(self.bank_, array.shape, self.classes_.size)
        return array

    def _checked_banks(self) -> list[FilterBank]:
        """Copy the banks, and find faults in any of them before the first one runs."""
        given = self.bank if isinstance(self.bank, list | tuple) else [self.bank]
        banks = [default_bank()] if self.bank is None else [clone(bank, safe=False) for bank in given]
        if not banks or not all(isinstance(bank, FilterBank) for bank in banks):
            raise ConfigError(f"bank={self.bank!r}: give a filter bank, or a list of some to choose from")
        for bank in banks:
            bank.n_channels(self.n_image_channels_)
        return banks

    def decide(self, image: ArrayLike) -> tuple[FloatArray, FloatArray | None]:
        """Compute the decisions of an image, (H, W, n_outputs), and the depth in objects, (H, W), if it was learnt.

        `find_objects` takes them, so that objects are told apart anew without another prediction.
        """
        check_is_fitted(self, "classifier_")
        return self._decide(self._checked(image), pass_on, objects=True)[:2]

    def find_objects(self, decisions: FloatArray, depth: FloatArray | None) -> LabelArray:
        """Tell objects apart by what `decide` returned: (H, W), 0 for the background, objects from 1 in reading order."""
        rule = self.rule_.adapted_to(decisions)
        return self._split(rule.segment(decisions), rule.probabilities(decisions), depth)

    def _split(self, ids: NDArray[np.intp], probability: FloatArray, depth: FloatArray | None) -> LabelArray:
        return self.objects_.splitter.split(ids, probability=1 - probability[:, :, 0], inside=depth)

    def _decide(
        self, image: FloatArray, progress: Progress, *, objects: bool
    ) -> tuple[FloatArray, FloatArray | None, FloatArray]:
        """Compute decisions, depth in objects, and kept channels on the coarse grid."""
        parts = self.objects_.parts if objects else None
        classifiers = [self.classifier_, *([] if parts is None else [parts])]
        with single_threaded_blas():
            [decisions, *of_parts], at_grid = decide_and_read(image, self.bank_, classifiers, progress)
        return decisions, expected_depth(of_parts[0]) if of_parts else None, at_grid

    def _segment(self, image: FloatArray, progress: Progress, *, objects: bool) -> Segmentation:
        decisions, depth, at_grid = self._decide(image, progress, objects=objects)
        rule = self.rule_.adapted_to(decisions)
        ids, probability = rule.segment(decisions), rule.probabilities(decisions)
        numbers = self._split(ids, probability, depth) if objects else None
        check = self.alarms_.check(image, ids, probability, self.classifier_.standardise(at_grid))
        return Segmentation(self.classes_[ids], probability, check, numbers)

    def _scores(self, image: FloatArray) -> FloatArray:
        """Decisions of an image, (H, W, n_outputs)."""
        with single_threaded_blas():
            [decisions], _ = decide_and_read(image, self.bank_, [self.classifier_])
        return decisions

    def _labels(self, scores: FloatArray) -> NDArray[np.intp]:
        return self.rule_.segment(scores)

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        return self.rule_.probabilities(scores)


def default_bank() -> FilterBank:
    """Make the bank without weights: scattering for texture, round and long filters for borders and lines, and position."""
    banks = [ScatteringBank(J=3, L=4, angles="averaged"), MultiscaleBank(), ElongatedBank(), PositionBank()]
    return StackedBank(banks)


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
    return segmenter_of(header, arrays, str(path))


def segmenter_of(header: dict[str, Any], arrays: Arrays, path: str) -> Segmenter:
    """Make a segmenter of a header, which is brought to the present format, and arrays; see `load`."""
    try:
        upgrade(header)
        check_header(header, path)
        segmenter = Segmenter(bank_from_dict(header["bank"]), **header["parameters"])
        restore(segmenter, header, arrays, path)
    except WeightsError:
        raise
    except SegkitError as error:  # of a part that does not know where it comes from
        if error.source is not None:
            raise
        raise ModelFileError(f"{path}: damaged model ({error}); copy it anew or train again") from error
    except KeyError as error:
        raise ModelFileError(
            f"{path}: incomplete model, it lacks {error}; copy it anew or train again"
        ) from error
    except (TypeError, IndexError, ValueError, AttributeError, ArithmeticError) as error:
        raise ModelFileError(
            f"{path}: damaged model, an entry has a type or value that it cannot have ({error}); copy it anew or train again"
        ) from error
    return segmenter
