"""Whether the values of masks are classes, or number objects (instance masks, label images)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from skimage.measure import label

from segkit.errors import InputError

MasksAre = Literal["instances", "classes"]
Masks = Sequence[NDArray[Any]]

# Masks of more values, 0 for background included, rarely hold a class for each.
_MOST_CLASSES = 10
_SHARE_IN_ONE_PIECE = 0.9


def is_instance_masks(
    masks: Masks, *, unlabelled: int | None = None, most_classes: int = _MOST_CLASSES
) -> bool:
    """Tell whether masks number objects: many values, 0 among them, and nearly all others in one piece.

    Parameters
    ----------
    masks : sequence of ndarray of shape (H, W), int
        The masks of a folder, as the files hold them.
    unlabelled : int, optional
        Value of unlabelled pixels, which is no object.
    most_classes : int, default=10
        Masks of so many values, or fewer, are taken for classes.

    Returns
    -------
    bool
        True if nine tenths of the ids of all masks are each a single piece (pixels that touch by side or corner).
    """
    found = set().union(*(np.unique(mask).tolist() for mask in masks)) - {unlabelled}
    if 0 not in found or min(found) < 0 or len(found) <= most_classes:
        return False
    n_ids, n_whole = np.sum([_count_whole(mask, unlabelled) for mask in masks], axis=0)
    return bool(n_whole >= _SHARE_IN_ONE_PIECE * n_ids)


def which_number_objects(
    truths: Masks,
    guesses: Masks,
    *,
    masks_are: MasksAre | None,
    labels: Mapping[int, str] | None,
    unlabelled: int | None,
) -> tuple[bool, bool]:
    """Tell whether true masks, and predicted ones, number objects.

    Parameters
    ----------
    truths, guesses : sequence of ndarray of shape (H, W), int
        True and predicted masks, as the files hold them.
    masks_are : {"instances", "classes"} or None
        What both hold; by default recognised. Beside instance masks, masks of fewer objects are recognised too: three
        values or more, each in one piece, or 0 only.
    labels : mapping of int to str, or None
        Names of the classes; masks with named classes number no objects.
    unlabelled : int or None
        Value of unlabelled pixels in the true masks.

    Returns
    -------
    true, predicted : bool
        Whether each side numbers objects.

    Raises
    ------
    InputError
        If `masks_are` is "instances" and classes are named, 0 marks unlabelled pixels, or an id is below 0.
    """
    if masks_are == "instances":
        _check_numbers(truths, guesses, labels, unlabelled)
        return True, True
    if masks_are == "classes" or labels is not None or unlabelled == 0:
        return False, False
    true = is_instance_masks(truths, unlabelled=unlabelled)
    predicted = is_instance_masks(guesses)
    return (
        true or (predicted and _may_number(truths, unlabelled)),
        predicted or (true and _may_number(guesses, None)),
    )


def _may_number(masks: Masks, unlabelled: int | None) -> bool:
    """Tell whether masks may hold a few objects, or none; 0 and one other value are rather classes."""
    empty = all(not mask.any() for mask in masks)
    return empty or is_instance_masks(masks, unlabelled=unlabelled, most_classes=2)


def _check_numbers(
    truths: Masks, guesses: Masks, labels: Mapping[int, str] | None, unlabelled: int | None
) -> None:
    if labels is not None:
        raise InputError("data.masks=instances and data.labels, which names classes: leave out one of them")
    if unlabelled == 0:
        raise InputError(
            "0 marks unlabelled pixels, but is the background of masks that number objects: mark them by another value"
        )
    least = min(int(mask.min()) for mask in (*truths, *guesses))
    if least < 0:
        raise InputError(f"masks hold {least}: number objects from 1, with 0 as background")


def _count_whole(mask: NDArray[Any], unlabelled: int | None) -> tuple[int, int]:
    """Count the ids of a mask, and those in one piece."""
    _, ids = np.unique(mask, return_inverse=True)
    ids = ids.reshape(mask.shape)
    ground = (mask == 0) | (mask == unlabelled) if unlabelled is not None else mask == 0
    pieces = label(np.where(ground, 0, ids + 1), background=0, connectivity=2)  # type: ignore[no-untyped-call]
    _, first = np.unique(pieces[~ground], return_index=True)
    _, n_pieces = np.unique(ids[~ground][first], return_counts=True)
    return n_pieces.size, int((n_pieces == 1).sum())
