"""Masks from elsewhere, taken over as labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import first_few
from segkit.errors import InputError
from segkit.images.labels import UNLABELLED, LabelMap
from segkit.images.matching import match
from segkit.images.numbering import MaskOptions, describe_numbers
from segkit.images.pairs import PairReader
from segkit.images.reading import Reading
from segkit.live.classes import MOST_CLASSES, LabelClass, classes_of_map


class ExistingMasks(NamedTuple):
    """Masks that were read."""

    labels: dict[str, NDArray[np.uint8]]
    classes: list[LabelClass]
    messages: list[str]


def read_existing(
    images: Path, masks: Path, classes: Sequence[LabelClass] | None, reading: Reading | None = None
) -> ExistingMasks:
    """Read masks of classes as label images."""
    matched, reader = match(images, masks, only_annotated=True), PairReader(reading, unlabelled=UNLABELLED)
    found = {item.page.stem: item.mask for item in reader.read(matched.pairs)}
    matched.add(reader)
    numbered = matched.attempt(describe_numbers, found, MaskOptions(unlabelled=UNLABELLED))
    matched.refuse()
    if numbered is not None:
        raise InputError(
            "the masks number objects, expected masks of classes: save a value for each class", source=masks
        )
    label_map = _label_map(masks, {value for mask in found.values() for value in mask.held}, classes)
    used = list(classes) if classes is not None else classes_of_map(label_map)
    table = np.full(UNLABELLED + 1, UNLABELLED, dtype=np.uint8)
    table[: len(used)] = [one.value for one in used]
    labels = {key: table[label_map.encode(mask.values)] for key, mask in found.items()}
    return ExistingMasks(labels, used, matched.notes)


def _label_map(masks: Path, values: set[int], classes: Sequence[LabelClass] | None) -> LabelMap:
    """Match values and classes, in the order of the classes; without them, two are background and foreground."""
    # where nothing else occurs beside 0, the value of unlabelled pixels, or one above, is the foreground
    is_binary = len(values) == 2 and min(values) == 0 and max(values) >= UNLABELLED
    unlabelled = None if is_binary and (classes is None or len(classes) == 2) else UNLABELLED
    known = sorted(values - {unlabelled})
    if classes is not None:
        own = {one.value: one.name for one in classes}
        if unlabelled is None:
            own = dict(zip(known, own.values(), strict=True))
        if odd := [value for value in known if value not in own]:
            raise InputError(
                f"the masks hold {first_few([str(value) for value in odd])}, the classes are "
                f"{first_few([f'{value} ({name})' for value, name in own.items()])}: add a class for each value",
                source=masks,
            )
        return LabelMap(own, unlabelled)
    if set(known) <= {0, 1}:  # one class may not be annotated yet
        return LabelMap({0: "background", 1: "foreground"}, unlabelled)
    if len(known) > MOST_CLASSES or (len(known) > 2 and not 0 <= known[0] <= known[-1] < UNLABELLED):
        raise InputError(
            f"the masks hold {len(known)} values from {known[0]} to {known[-1]}, expected at most {MOST_CLASSES} from 0 "
            f"to 254, one for each class: save them anew",
            source=masks,
        )
    names = {value: f"class {value}" for value in known} if len(known) > 2 else None
    return LabelMap.infer(values, labels=names, unlabelled=unlabelled)
