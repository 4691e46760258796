"""The classes of a project: values of mask files, names and colours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import is_whole
from segkit.errors import InputError, first_few
from segkit.images.labels import UNLABELLED, LabelMap
from segkit.images.write import CLASS_COLOURS

MOST_CLASSES = 20
_LONGEST_NAME = 60


@dataclass(frozen=True)
class LabelClass:
    """A class that pixels are labelled with.

    Parameters
    ----------
    value : int
        Its value in mask files, 0 to 254.
    name : str
        Its name, 1 to 60 characters.
    colour : str
        The colour it is shown in, "#rrggbb".

    Raises
    ------
    InputError
        If any of them is another thing.
    """

    value: int
    name: str
    colour: str

    def __post_init__(self) -> None:
        if not is_whole(self.value, least=0) or self.value >= UNLABELLED:
            raise InputError(f"class value {self.value!r}: give a whole number from 0 to 254")
        name = self.name
        if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
            raise InputError(f"class name {name!r}: give 1 to {_LONGEST_NAME} characters")
        if not name.isprintable():
            raise InputError(f"class name {name!r} holds a line break or control character: leave it out")
        if not isinstance(self.colour, str) or not re.fullmatch("#[0-9a-fA-F]{6}", self.colour):
            raise InputError(f"class colour {self.colour!r}: give #rrggbb, for example #56b4e9")


def classes_of(names: dict[int, str]) -> list[LabelClass]:
    """Return classes of these names, by value, in colours that colour-blind eyes tell apart."""
    # the background is calm, what is looked for leaps out
    colours = ["#56b4e9", "#f0e442"]
    colours += [
        code for code in ("#{:02x}{:02x}{:02x}".format(*rgb) for rgb in CLASS_COLOURS) if code not in colours
    ]
    return [
        LabelClass(value, name, colours[place % len(colours)])
        for place, (value, name) in enumerate(sorted(names.items()))
    ]


def check_classes(classes: Sequence[LabelClass]) -> list[LabelClass]:
    """Return classes in the order of their values."""
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise InputError(f"{len(classes)} classes: give 2 to {MOST_CLASSES}")
    for what, seen in (
        ("value", Counter(one.value for one in classes)),
        ("name", Counter(one.name.strip() for one in classes)),
    ):
        twice = [str(item) for item, number in seen.items() if number > 1]
        if twice:
            raise InputError(f"classes share the {what} {twice[0]}: give each class its own")
    return sorted(classes, key=lambda one: one.value)


def without_class(labels: NDArray[Any], classes: Sequence[LabelClass]) -> str:
    """Name the values of labels that have no class, and the classes; empty if all have one."""
    known = {one.value: one.name for one in classes}
    odd = [str(value) for value in np.unique(labels).tolist() if value not in {*known, UNLABELLED}]
    told = first_few([f"{value} ({name})" for value, name in known.items()])
    return f"{first_few(odd)}, the classes are {told}" if odd else ""


def classes_of_map(label_map: LabelMap) -> list[LabelClass]:
    """Return the classes of masks, in their order; those of other values than 0 to 254 get free ones."""
    # two classes of 0 and 255 become 0 and 1
    free = (value for value in range(UNLABELLED) if value not in label_map.id_of_value)
    values = [value if 0 <= value < UNLABELLED else next(free) for value in label_map.values]
    colours = [one.colour for one in classes_of(dict(enumerate(label_map.names)))]
    return [LabelClass(*parts) for parts in zip(values, label_map.names, colours, strict=True)]
