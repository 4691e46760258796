"""Whether true masks, and predicted ones, number objects (instance masks, label images)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError
from segkit.images.numbering import (
    MaskOptions,
    Numbers,
    look_like_instances,
    number_objects,
    refuse_options,
    without,
)
from segkit.images.outlines import check_ids

Masks = Sequence[NDArray[Any]]


def is_instance_masks(masks: Masks, *, unlabelled: int | None = None) -> bool:
    """Return whether masks number objects, as training tells it: see `segkit.images.numbering.look_like_instances`."""
    return look_like_instances(_numbers_of(masks, unlabelled))


def which_number_objects(
    truths: Masks,
    guesses: Masks,
    options: MaskOptions,
    *,
    outlined: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> tuple[bool, bool]:
    """Return whether true masks, and predicted ones, number objects; beside such masks, a few objects are enough."""
    labels, unlabelled, masks_are = options
    if refusal := refuse_options([*outlined[0], *outlined[1]], options):
        raise InputError(refusal)
    if masks_are == "instances":
        for side, masks in (("true masks", truths), ("predictions", guesses)):
            check_ids(np.array([(mask.min(), mask.max()) for mask in masks]), name=side)
        return True, True
    if masks_are == "classes" or labels is not None or unlabelled == 0:
        return False, False
    true = bool(outlined[0]) or is_instance_masks(truths, unlabelled=unlabelled)
    predicted = bool(outlined[1]) or is_instance_masks(guesses)
    return (
        true or (predicted and _may_number(truths, unlabelled)),
        predicted or (true and _may_number(guesses, None)),
    )


def _may_number(masks: Masks, unlabelled: int | None) -> bool:
    """Return whether masks may hold a few objects, tiny ones, or none; 0 and one other value are rather classes."""
    numbers = _numbers_of(masks, unlabelled)
    empty = all(not len(one.ids) for one in numbers)
    return empty or look_like_instances(numbers, most_classes=2, least_area=1)


def _numbers_of(masks: Masks, unlabelled: int | None) -> list[Numbers]:
    return [number_objects(without(mask, unlabelled)) for mask in masks]
