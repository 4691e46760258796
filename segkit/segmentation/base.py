"""The interface of all segmenters: fit, predict and score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from segkit._common import FloatArray, Progress, pass_on
from segkit._common.arrays import as_array
from segkit.errors import InputError, count, first_few
from segkit.evaluation.metrics import score_masks
from segkit.features.base import as_image
from segkit.images import UNLABELLED, LabelMap
from segkit.images.labels import MOST_CLASSES
from segkit.images.numbering import Mask, check_meaning
from segkit.images.read import check_range, check_size
from segkit.objects.hills import LabelArray
from segkit.segmentation.alarms import ImageCheck

IdArray = NDArray[np.uint8]
_SAY_WHICH = (
    "if they number objects, give [mask > 0 for mask in masks] as masks, and a Segmenter the numbers as instances; if they "
    "are classes, name them, label_map=LabelMap({0: 'background', 1: 'cell', ...})"
)


@dataclass(frozen=True, eq=False)
class Segmentation:
    """What a model finds in one image.

    Parameters
    ----------
    labels : ndarray of shape (H, W)
        Mask value of each pixel, one of `classes_`.
    probability : ndarray of shape (H, W, n_classes), float32
        Probabilities of the classes, in the order of `classes_`.
    check : ImageCheck or None
        Expected IoU, and in what the image is unlike the training images; None from a model that keeps nothing to check by.
    objects : ndarray of shape (H, W), int32, or None
        0 for the background, that is, the first class; objects 1 to n in reading order. None if not asked for.
    """

    labels: NDArray[Any]
    probability: FloatArray
    check: ImageCheck | None = None
    objects: LabelArray | None = None


class BaseSegmenter(BaseEstimator, ABC):
    """A model that gives every pixel of an image a class.

    Subclasses implement `_fit`, `_scores`, `_labels` and `_probabilities`. They get checked images, and masks as class ids.
    """

    unlabelled: int | None

    @abstractmethod
    def _fit(self, images: list[FloatArray], ids: list[IdArray], progress: Progress) -> None:
        """Learn from images (H, W, C) and class ids (H, W), `segkit.images.UNLABELLED` where not annotated."""

    @abstractmethod
    def _scores(self, image: FloatArray) -> FloatArray:
        """Scores of the classes at each pixel of a checked image."""

    @abstractmethod
    def _labels(self, scores: FloatArray) -> NDArray[np.intp]:
        """Class ids of the pixels, (H, W), from their scores."""

    @abstractmethod
    def _probabilities(self, scores: FloatArray) -> FloatArray:
        """Probabilities of the classes, (H, W, n_classes), from the scores."""

    def _segment(self, image: FloatArray, progress: Progress, *, objects: bool) -> Segmentation:  # noqa: ARG002
        """Segment a checked image."""
        if objects:
            raise InputError(f"{type(self).__name__} knows no objects: segment without them")
        scores = self._scores(image)
        return Segmentation(self.classes_[self._labels(scores)], self._probabilities(scores))

    def fit(
        self,
        images: ArrayLike | Sequence[ArrayLike],
        masks: ArrayLike | Sequence[ArrayLike],
        *,
        label_map: LabelMap | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from annotated images.

        Parameters
        ----------
        images : sequence of array-like of shape (H, W) or (H, W, C), uint8, uint16, or float in [0, 1]
            One image or several, or a stack (N, H, W) or (N, H, W, C); sizes may differ, the number of channels may not.
        masks : sequence of array-like of shape (H, W), int or bool
            Class of each pixel, or `unlabelled`; or a stack (N, H, W).
        label_map : LabelMap, optional
            Meaning of the mask values, in place of `unlabelled` and the values that occur.
        progress : callable, optional
            ``progress(iterable, description)`` yields the items and shows the progress.

        Returns
        -------
        BaseSegmenter
            Itself.

        Raises
        ------
        InputError
            If images and masks do not fit together, hold NaN, are constant, have one class only, have a side of fewer than
            four pixels, or are not scaled to [0, 1].
        """
        self._fit(*self._checked_training(images, masks, label_map), progress or pass_on)
        return self

    def predict_proba(self, images: ArrayLike | Sequence[ArrayLike]) -> Any:
        """Compute the probability of each class at each pixel.

        Parameters
        ----------
        images : array-like of shape (H, W) or (H, W, C), or sequence of them
            One image or several, or a stack as for `fit`, with the channels of the training images.

        Returns
        -------
        ndarray of shape (H, W, n_classes), float32, or list of them
            Probabilities in the order of `classes_`. A list if a list or a stack was given.

        Raises
        ------
        InputError
            If an image has other channels than the training images, holds NaN, or is not scaled to [0, 1].
        """
        return self._each(images, lambda image: self._probabilities(self._scores(image)))

    def predict(self, images: ArrayLike | Sequence[ArrayLike]) -> Any:
        """Classify each pixel.

        Parameters
        ----------
        images : array-like of shape (H, W) or (H, W, C), or sequence of them
            As for `predict_proba`.

        Returns
        -------
        ndarray of shape (H, W), or list of them
            Mask values of `classes_`.
        """
        return self._each(images, lambda image: self.classes_[self._labels(self._scores(image))])

    def segment(
        self,
        images: ArrayLike | Sequence[ArrayLike],
        *,
        objects: bool = False,
        progress: Progress | None = None,
    ) -> Any:
        """Classify each pixel; give labels, probabilities, a check of them and, if asked, objects.

        Parameters
        ----------
        images : array-like of shape (H, W) or (H, W, C), or sequence of them
            As for `predict_proba`.
        objects : bool, default=False
            Whether to tell objects apart too, those that touch among them. Only a `Segmenter` knows how.
        progress : callable, optional
            As for `fit`; it follows the tiles of a large image.

        Returns
        -------
        Segmentation or list of them
            A list if a list was given.
        """
        return self._each(images, lambda image: self._segment(image, progress or pass_on, objects=objects))

    def score(self, images: ArrayLike | Sequence[ArrayLike], masks: ArrayLike | Sequence[ArrayLike]) -> float:
        """Compute the mean over images of the mean IoU over classes (eq. 8.1).

        Parameters
        ----------
        images, masks : sequences
            As for `fit`.

        Returns
        -------
        float
            Between 0 and 1.
        """
        check_is_fitted(self, "classes_")
        truths = _as_masks(masks)
        ids = [self.label_map_.encode(mask) for mask in truths]
        listed = as_list(images, is_stack=partial(_is_stack_of, truths))
        guesses = [self._labels(self._scores(self._checked(image))) for image in listed]
        return score_masks(ids, guesses, self.classes_.size).mean

    def _checked_training(
        self,
        images: ArrayLike | Sequence[ArrayLike],
        masks: ArrayLike | Sequence[ArrayLike],
        label_map: LabelMap | None,
    ) -> tuple[list[FloatArray], list[IdArray]]:
        """Check images and masks, and learn the classes; give images (H, W, C) and class ids (H, W)."""
        masks = _as_masks(masks)
        listed = as_list(images, is_stack=partial(_is_stack_of, masks))
        arrays = [_as_scaled_image(image, name=f"image {index}") for index, image in enumerate(listed)]
        _check_pairs(arrays, masks)
        self.label_map_ = label_map if label_map is not None else _infer_label_map(masks, self.unlabelled)
        self.classes_ = mask_values(self.label_map_)
        ids = [self.label_map_.encode(mask) for mask in masks]
        _check_classes(ids, self.label_map_)
        self.n_image_channels_ = arrays[0].shape[2]
        return arrays, ids

    def _each(self, images: Any, function: Callable[[FloatArray], Any]) -> Any:
        check_is_fitted(self, "classes_")
        array = _single(images)
        # channels of an image are fewer than its rows and columns
        is_stack = (
            array is not None
            and array.ndim == 3
            and self.n_image_channels_ == 1 < array.shape[2]
            and array.shape[2] >= min(array.shape[:2])
        )
        if array is not None and array.ndim <= 3 and not is_stack:
            return function(self._checked(array))
        return [function(self._checked(image)) for image in as_list(images, is_stack=lambda _: is_stack)]

    def _checked(self, image: ArrayLike) -> FloatArray:
        array = _as_scaled_image(image)
        if array.shape[2] != self.n_image_channels_:
            if array.shape[0] == self.n_image_channels_:
                raise InputError(
                    f"image of shape {array.shape}, expected (H, W, {array.shape[0]}): give channels last, such as "
                    "numpy.moveaxis(image, 0, -1)"
                )
            raise InputError(
                f"image with {count(array.shape[2], 'channel')}, the model was trained on {self.n_image_channels_}: "
                f"give images of the same kind"
            )
        return array


def _as_scaled_image(image: ArrayLike, *, name: str = "image") -> FloatArray:
    """Check an image and its range; give it as (H, W, C) float32."""
    array = as_image(image)
    check_range(array, name=name)
    return array


def as_list(
    values: Any, *, what: str = "images", is_stack: Callable[[NDArray[Any]], bool] = lambda _: False
) -> list[Any]:
    """Several images or masks as a list; an array of up to three axes counts as one, unless it is a stack of several."""
    array = _single(values)
    if array is not None:
        return list(array) if array.ndim > 3 or (array.ndim == 3 and is_stack(array)) else [array]
    # text is iterable too, letter by letter
    if not isinstance(values, str | bytes | Mapping):
        try:
            return list(values)
        except TypeError:
            pass
    raise InputError(
        f"{what} given as {type(values).__name__}: give an array (H, W), or a list of arrays; files are read by "
        f"segkit.images.load_pairs and read_image"
    )


def _single(values: Any) -> NDArray[Any] | None:
    """Return the array that was given, by whatever library or as lists in lists of numbers; None of several arrays."""
    first, depth = values, 0
    while isinstance(first, list | tuple) and len(first):
        first, depth = first[0], depth + 1
    is_array = hasattr(values, "__array__") or hasattr(values, "__array_interface__")
    is_several = isinstance(values, np.ndarray) and values.dtype.hasobject
    if is_several or not (is_array or (depth > 1 and np.isscalar(first))):
        return None
    return as_array(values, name="images or masks")


def is_stack_of_masks(masks: NDArray[Any]) -> bool:
    """Return whether masks (N, H, W) were given, not one (H, W, 1)."""
    return masks.ndim == 3 and masks.shape[2] > 1


def _is_stack_of(masks: Sequence[NDArray[Any]], images: NDArray[Any]) -> bool:
    """Return whether images (N, H, W) were given with these masks, not one of many channels."""
    return 0 < len(images) == len(masks) and images.shape[1:] == masks[0].shape


def _as_masks(masks: Any) -> list[NDArray[Any]]:
    listed = as_list(masks, what="masks", is_stack=is_stack_of_masks)
    return [_as_mask(mask, index) for index, mask in enumerate(listed)]


def _as_mask(mask: ArrayLike, index: int) -> NDArray[Any]:
    array = as_array(mask, name=f"mask {index}")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 or not (np.issubdtype(array.dtype, np.integer) or array.dtype == bool):
        raise InputError(
            f"mask {index} of shape {array.shape} and dtype {array.dtype}: expected (H, W) of integers"
        )
    return array.astype(np.uint8) if array.dtype == bool else array


def _infer_label_map(masks: Sequence[NDArray[Any]], unlabelled: int | None) -> LabelMap:
    """Infer the label map from the values: two are background and foreground, more are named by number."""
    held = [Mask(mask, unlabelled) for mask in masks]
    values = sorted({value for mask in held for value in mask.held})
    if values == [0, UNLABELLED]:
        return LabelMap.infer(values)
    classes = [value for value in values if value != unlabelled]
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"masks hold {len(classes)} values ({first_few([*map(str, classes)])}): {_SAY_WHICH}"
        )
    check_meaning(held, cure=_SAY_WHICH)
    labels = {value: str(value) for value in classes} if len(classes) > 2 else None
    return LabelMap.infer(values, labels=labels, unlabelled=unlabelled)


def _check_classes(ids: Sequence[NDArray[np.uint8]], label_map: LabelMap) -> None:
    """Check that every mask has labelled pixels and every class has some."""
    for index, mask in enumerate(ids):
        if (mask == UNLABELLED).all():
            raise InputError(f"mask {index} has no labelled pixel: annotate some, or leave that image out")
    counts = np.bincount(np.concatenate([mask.ravel() for mask in ids]), minlength=UNLABELLED + 1)
    absent = [name for name, number in zip(label_map.names, counts, strict=False) if not number]
    if absent:
        raise InputError(
            f"no mask holds class {', '.join(absent)}: leave it out of the label map, or annotate some"
        )


def _check_pairs(images: Sequence[FloatArray], masks: Sequence[NDArray[Any]]) -> None:
    """Check that images and masks fit together and that there is something to see."""
    if len(images) != len(masks) or not images:
        raise InputError(
            f"{count(len(images), 'image')} and {count(len(masks), 'mask')}: give one mask for each image, at least one"
        )
    for index, (image, mask) in enumerate(zip(images, masks, strict=True)):
        if image.shape[1:] == mask.shape != image.shape[:2]:
            raise InputError(
                f"image {index} of shape {image.shape} for a mask of {mask.shape}, expected (H, W, C): give channels last, "
                "such as numpy.moveaxis(image, 0, -1)"
            )
        if image.shape[:2] != mask.shape:
            raise InputError(
                f"image {index} is {image.shape[0]} x {image.shape[1]}, its mask {mask.shape[0]} x {mask.shape[1]}: "
                f"give masks of the images' own size"
            )
        if image.shape[2] != images[0].shape[2]:
            raise InputError(
                f"image {index} has {count(image.shape[2], 'channel')}, image 0 has {images[0].shape[2]}: "
                f"give images of one kind"
            )
        check_size(image, name=f"image {index}")
        if np.ptp(image) == 0:
            raise InputError(f"image {index} is constant: there is nothing to learn from it, leave it out")


def mask_values(label_map: LabelMap) -> NDArray[Any]:
    """Mask value of each class, in the smallest type that holds them all."""
    return label_map.decode(np.arange(label_map.n_classes))
