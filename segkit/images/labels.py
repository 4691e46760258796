"""The numbers in mask files and the classes they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit._common.arrays import as_array
from segkit.errors import InputError, count

UNLABELLED = 255
# What to do about values that may mean several things.
OR_OBJECTS = "if they number objects, --set data.masks=instances"
NAME_THEM = (
    "for example --set data.labels='{0: background, 1: cell, 2: border}', or --set data.unlabelled=VALUE if one of them "
    f"marks unlabelled pixels; {OR_OBJECTS}"
)
_N_SPELLED_OUT = 10
# Masks of more values rarely hold a class for each; those of fewer may.
MOST_CLASSES = 10


@dataclass(frozen=True)
class LabelMap:
    """Values of mask files beside class ids 0..K-1 and class names.

    Parameters
    ----------
    labels : mapping of int to str
        The class name of each value in the files. Class ids follow the order of the names; values of one name are one
        class.
    unlabelled : int, optional
        The value of pixels nobody annotated. They are left out of training and of every score.

    Attributes
    ----------
    names : tuple of str
        The name of each class, in the order of the class ids.
    values : tuple of int
        The value of each class, the lowest where it has several: `decode` writes it.

    Raises
    ------
    InputError
        If there are fewer than 2 or more than 255 classes, or a class has the value of unlabelled pixels.

    Examples
    --------
    >>> import numpy as np
    >>> label_map = LabelMap.infer([0, 255])
    >>> label_map.describe()
    'masks hold 0 and 255: read as background and foreground'
    >>> ids = label_map.encode(np.array([[0, 255]], dtype=np.uint8))
    >>> ids
    array([[0, 1]], dtype=uint8)
    >>> label_map.decode(ids)
    array([[  0, 255]], dtype=uint8)

    Two values of one class:

    >>> label_map = LabelMap.infer([0, 1, 2], labels={0: "background", 1: "cell", 2: "cell"})
    >>> label_map.describe()
    'masks hold 0, 1 and 2: read as background and cell (1 and 2)'
    >>> label_map.decode(label_map.encode(np.array([0, 1, 2])))
    array([0, 1, 1], dtype=uint8)
    """

    labels: Mapping[int, str]
    unlabelled: int | None = None
    names: tuple[str, ...] = field(init=False)
    values: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        lowest: dict[str, int] = {}
        for value, name in self.labels.items():
            lowest[name] = min(value, lowest.get(name, value))
        object.__setattr__(self, "names", tuple(lowest))
        object.__setattr__(self, "values", tuple(lowest.values()))
        if not 2 <= len(lowest) <= UNLABELLED:
            raise InputError(
                f"label map of {count(len(lowest), 'class', 'classes')}, expected 2 to {UNLABELLED}: "
                f"name two classes or more in data.labels"
            )
        if self.unlabelled in self.labels:
            raise InputError(
                f"label map with values {_and([*self.labels, self.unlabelled])} and names {_and(self.names)}, "
                f"expected each once: mend data.labels or data.unlabelled"
            )

    def _values_of(self, name: str) -> list[int]:
        return sorted(value for value, own in self.labels.items() if own == name)

    @classmethod
    def infer(
        cls,
        values: Iterable[int],
        *,
        labels: Mapping[int, str] | None = None,
        unlabelled: int | None = None,
    ) -> LabelMap:
        """Make the label map of masks from the values they hold.

        Parameters
        ----------
        values : iterable of int
            Every value that occurs in the masks, together.
        labels : mapping of int to str, optional
            The class name of each value. Class ids follow the order of the names. Values of one name are one class,
            and `decode` writes the lowest of them. Not needed for two values: the smaller is the background, the
            larger the foreground.
        unlabelled : int, optional
            The value of pixels nobody annotated.

        Returns
        -------
        LabelMap
            The map.

        Raises
        ------
        InputError
            If the masks hold one class only, more than two without `labels`, or values that `labels` lacks.
        """
        found = sorted({int(value) for value in values} - {unlabelled})
        if len(found) < 2:
            raise InputError(
                f"masks hold {_and(found) if found else 'no labelled pixel'}, expected at least two classes: "
                f"add an image in which another class is annotated"
            )
        if labels is not None:
            label_map = cls({int(value): str(name) for value, name in labels.items()}, unlabelled)
            label_map._check(found)
            held = sorted({label_map.id_of_value[value] for value in found})
            if len(held) < 2:
                raise InputError(
                    f"masks hold {_and(found)}, all of class {label_map.names[held[0]]}, expected at least two classes: "
                    f"add an image in which another class is annotated"
                )
            return label_map
        if len(found) > MOST_CLASSES:
            raise InputError(
                f"masks hold {len(found)} values ({_and(found)}), expected one for each class: {OR_OBJECTS}; "
                f"if edges are blurred (by JPEG or resizing), threshold them; if they are classes, "
                f"name them, --set data.labels='{{0: background, 1: cell, ...}}'"
            )
        if len(found) > 2:
            raise InputError(
                f"masks hold {len(found)} values ({_and(found)}), and which class each is cannot be known: "
                f"name them, {NAME_THEM}"
            )
        return cls(dict(zip(found, ("background", "foreground"), strict=True)), unlabelled)

    @property
    def n_classes(self) -> int:
        """Number of classes, K."""
        return len(self.values)

    def encode(self, mask: ArrayLike) -> NDArray[np.uint8]:
        """Turn the values of a mask into class ids.

        Parameters
        ----------
        mask : array-like of int, any shape
            Values of a mask file.

        Returns
        -------
        ndarray of the same shape, uint8
            Class ids 0..K-1, and 255 (`UNLABELLED`) for unlabelled pixels.

        Raises
        ------
        InputError
            If the mask holds a value that the map lacks.
        """
        found, positions = np.unique(as_array(mask, name="mask"), return_inverse=True)
        self._check(found.tolist())
        ids = self.id_of_value
        table = np.array([ids.get(value, UNLABELLED) for value in found.tolist()], dtype=np.uint8)
        return table[positions].reshape(np.shape(mask))

    def decode(self, ids: ArrayLike) -> NDArray[Any]:
        """Turn class ids into the values that mask files use.

        Parameters
        ----------
        ids : array-like of int, any shape
            Class ids 0..K-1, and 255 (`UNLABELLED`) for unlabelled pixels.

        Returns
        -------
        ndarray of the same shape, integer
            The files' own values, in the smallest dtype that holds them all; `values` where a class has several.

        Raises
        ------
        InputError
            If there is an id without a class, or an unlabelled pixel and no value for it.
        """
        ids = np.asarray(ids)
        values = dict(enumerate(self.values))
        if self.unlabelled is not None:
            values[UNLABELLED] = self.unlabelled
        present, positions = np.unique(ids, return_inverse=True)
        unknown = [class_id for class_id in present.tolist() if class_id not in values]
        if unknown:
            raise InputError(
                f"class ids {_and(unknown)} are not among the {_and(sorted(values))} of the label map: "
                f"use the label map that the ids were made with"
            )
        low, high = min(values.values()), max(values.values())
        dtype = np.min_scalar_type(high if low >= 0 else min(low, -high - 1))
        table = np.array([values[class_id] for class_id in present.tolist()], dtype=dtype)
        return table[positions].reshape(ids.shape)

    def describe(self) -> str:
        """Describe in one sentence how masks are read."""
        several = len(self.labels) > self.n_classes
        own = {name: self._values_of(name) for name in self.names}
        names = [f"{name} ({_and(values)})" if len(values) > 1 else name for name, values in own.items()]
        known = sorted(self.labels) if several else list(self.labels)
        sentence = f"masks hold {_and(known)}: read as {_and(names)}"
        if self.unlabelled is not None:
            sentence += f"; {self.unlabelled} marks unlabelled pixels"
        return sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the map as lists and numbers for JSON; `from_dict` reads it back."""
        entries = {"values": list(self.values), "names": list(self.names), "unlabelled": self.unlabelled}
        # maps of one value a class look as they did before classes could have several
        others = [self._values_of(name)[1:] for name in self.names]
        return entries | ({"others": others} if any(others) else {})

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> LabelMap:
        """Make the map that `to_dict` gave."""
        labels = dict(zip(entries["values"], entries["names"], strict=True))
        for name, rest in zip(entries["names"], entries.get("others", ()), strict=False):
            labels |= dict.fromkeys(rest, name)
        return cls(labels, entries["unlabelled"])

    @property
    def id_of_value(self) -> dict[int, int]:
        """Class id of each value, unlabelled left out."""
        return {value: self.names.index(name) for value, name in self.labels.items()}

    def _check(self, found: Sequence[int]) -> None:
        known = self.id_of_value
        unknown = [value for value in found if value not in known and value != self.unlabelled]
        if unknown:
            raise InputError(
                f"masks hold {_and(unknown)}, but the label map knows {_and(tuple(known))} only: "
                f"add the missing values to data.labels, or set data.unlabelled=VALUE for unlabelled pixels"
            )


def _and(items: Sequence[object]) -> str:
    words = [str(item) for item in items]
    if len(words) > _N_SPELLED_OUT:
        return f"{', '.join(words[:_N_SPELLED_OUT])} and {len(words) - _N_SPELLED_OUT} more"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
