"""The numbers in mask files and the classes they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.errors import InputError

UNLABELLED = 255
_N_SPELLED_OUT = 10
# Masks of more values rarely hold a class for each.
_MOST_CLASSES = 10


@dataclass(frozen=True)
class LabelMap:
    """Values of mask files beside class ids 0..K-1 and class names.

    Parameters
    ----------
    values : tuple of int
        The value that stands for each class in the files, in the order of the class ids.
    names : tuple of str
        The name of each class, in the same order.
    unlabelled : int, optional
        The value of pixels nobody annotated; they are left out of training and of every score.

    Raises
    ------
    InputError
        If there are fewer than 2 or more than 255 classes, or values or names repeat.

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
    """

    values: tuple[int, ...]
    names: tuple[str, ...]
    unlabelled: int | None = None

    def __post_init__(self) -> None:
        if not 2 <= len(self.values) <= UNLABELLED:
            raise InputError(
                f"label map of {len(self.values)} class{'' if len(self.values) == 1 else 'es'}, expected 2 to {UNLABELLED}: "
                f"name each class once in data.labels"
            )
        known = [*self.values, *([] if self.unlabelled is None else [self.unlabelled])]
        if len(set(known)) < len(known) or len(set(self.names)) < len(self.names):
            raise InputError(
                f"label map with values {_and(known)} and names {_and(self.names)}, expected each once: "
                f"mend data.labels or data.unlabelled"
            )

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
            The class name of each value; class ids follow its order. Not needed for two values, which
            are read as background (the smaller) and foreground (the larger).
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
            label_map = cls(
                tuple(int(value) for value in labels), tuple(map(str, labels.values())), unlabelled
            )
            label_map._check(found)
            return label_map
        if len(found) > _MOST_CLASSES:
            raise InputError(
                f"masks hold {len(found)} values ({_and(found)}), expected one for each class: if they number objects, "
                f"set every value above 0 to one value; if edges are blurred (by JPEG or resizing), threshold them; "
                f"if they are classes, name them, --set data.labels='{{0: background, 1: cell, ...}}'"
            )
        if len(found) > 2:
            raise InputError(
                f"masks hold {len(found)} values ({_and(found)}), and which class each is cannot be known: "
                f"name them, for example --set data.labels='{{0: background, 1: cell, 2: border}}', "
                f"or --set data.unlabelled=VALUE if one of them marks unlabelled pixels"
            )
        return cls(tuple(found), ("background", "foreground"), unlabelled)

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
        found, positions = np.unique(np.asarray(mask), return_inverse=True)
        self._check(found.tolist())
        ids = {value: class_id for class_id, value in enumerate(self.values)}
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
            The files' own values, in the smallest dtype that holds them all.

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
        """Say in one sentence how masks are read."""
        sentence = f"masks hold {_and(self.values)}: read as {_and(self.names)}"
        if self.unlabelled is not None:
            sentence += f"; {self.unlabelled} marks unlabelled pixels"
        return sentence

    def to_dict(self) -> dict[str, Any]:
        """Give the map as lists and numbers that JSON can hold; `from_dict` reads it back."""
        return {"values": list(self.values), "names": list(self.names), "unlabelled": self.unlabelled}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> LabelMap:
        """Make the map that `to_dict` gave."""
        return cls(tuple(entries["values"]), tuple(entries["names"]), entries["unlabelled"])

    def _check(self, found: Sequence[int]) -> None:
        unknown = [value for value in found if value not in self.values and value != self.unlabelled]
        if unknown:
            raise InputError(
                f"masks hold {_and(unknown)}, but the label map knows {_and(self.values)} only: "
                f"add the missing values to data.labels, or set data.unlabelled=VALUE for unlabelled pixels"
            )


def _and(items: Sequence[object]) -> str:
    words = [str(item) for item in items]
    if len(words) > _N_SPELLED_OUT:
        return f"{', '.join(words[:_N_SPELLED_OUT])} and {len(words) - _N_SPELLED_OUT} more"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
