"""The label image of one image, stroke by stroke, with unlimited undo and redo.

Beside its label a pixel may have the number of an object that somebody has checked. It loses it with its label.

A step keeps the pixels it changed, before and after, within their bounding box and compressed. Its memory grows with
the stroke, not with the image.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit._common import is_whole
from segkit.errors import InputError
from segkit.images.labels import UNLABELLED

_LEVEL = 1  # runs of one value compress well at any level
# A pixel is 32 bits: its label in the lowest eight, the number of its object above.
_PIXEL = np.dtype("<u4")
_BITS_OF_LABEL = 8
MOST_OBJECTS = 2**24 - 1


class Patch(NamedTuple):
    """New content of a box of a label image: its first pixel (row, column), and its labels, (h, w) uint8.

    A stroke beside the image has 0 x 0 pixels.
    """

    corner: tuple[int, int]
    values: NDArray[np.uint8]


class _Piece(NamedTuple):
    """Labels of a box before and after a change, compressed."""

    corner: tuple[int, int]
    shape: tuple[int, int]
    before: bytes
    after: bytes


class Drawing:
    """Label image of one image with unlimited undo and redo.

    Parameters
    ----------
    labels : array-like of shape (H, W), uint8
        Labels to begin with, copied; 255 marks pixels without a label.
    numbers : array-like of shape (H, W), int, optional
        Numbers of checked objects to begin with, 0 elsewhere.

    Attributes
    ----------
    version : int
        0 at first; rises with every change.

    Raises
    ------
    InputError
        If the labels are of another shape or dtype.

    Notes
    -----
    One thread may paint while another takes a `snapshot`.

    Examples
    --------
    >>> import numpy as np
    >>> drawing = Drawing.blank((4, 6))
    >>> drawing.paint((1, 1), np.ones((1, 3), dtype=bool), 2)
    Patch(corner=(1, 1), values=array([[2, 2, 2]], dtype=uint8))
    >>> drawing.undo()
    Patch(corner=(1, 1), values=array([[255, 255, 255]], dtype=uint8))
    """

    def __init__(self, labels: ArrayLike, numbers: ArrayLike | None = None) -> None:
        array = np.asarray(labels)
        if array.ndim != 2 or array.dtype != np.uint8:
            raise InputError(
                f"labels of shape {array.shape} and dtype {array.dtype}, expected (H, W) of uint8"
            )
        self.version = 0
        self._pixels = _join(array, 0 if numbers is None else np.asarray(numbers))
        self._done: list[list[_Piece]] = []
        self._undone: list[list[_Piece]] = []
        self._stroke: object | None = None
        self._guard = threading.RLock()

    @classmethod
    def blank(cls, shape: tuple[int, int]) -> Drawing:
        """Begin with (H, W) pixels without a label."""
        return cls(np.full(shape, UNLABELLED, dtype=np.uint8))

    @property
    def labels(self) -> NDArray[np.uint8]:
        """The label image now, (H, W) uint8, a view that follows changes and cannot be written to."""
        view = self._pixels.view(np.uint8)[:, :: _PIXEL.itemsize]
        view.flags.writeable = False
        return view

    @property
    def numbers(self) -> NDArray[np.int32]:
        """The numbers of checked objects now, (H, W) int32, 0 elsewhere; a copy."""
        return (self._pixels >> _BITS_OF_LABEL).astype(np.int32)

    @property
    def has_objects(self) -> bool:
        """Whether any object is checked."""
        return bool((self._pixels >= 1 << _BITS_OF_LABEL).any())

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self._pixels.shape[0], self._pixels.shape[1]

    @property
    def undo_box(self) -> tuple[int, int, int, int] | None:
        """Box that the next `undo` changes: first row and column, and those behind the last; None if there is no step."""
        return self._box_of(self._done)

    @property
    def redo_box(self) -> tuple[int, int, int, int] | None:
        """Box that the next `redo` changes, as `undo_box`."""
        return self._box_of(self._undone)

    def snapshot(self) -> tuple[NDArray[np.uint8], int]:
        """Copy the label image, (H, W) uint8, and give the version it is of."""
        with self._guard:
            return self.labels.copy(), self.version

    def snapshot_of_objects(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], int]:
        """Copy the label image and the numbers of checked objects, and give the version they are of."""
        with self._guard:
            return self.labels.copy(), self.numbers, self.version

    def paint(
        self, corner: tuple[int, int], mask: ArrayLike, value: int, *, stroke: object | None = None
    ) -> Patch:
        """Label the pixels of a mask, and return the labels of its box as far as it lies in the image.

        The mask is an (h, w) array of bool whose first pixel lies at `corner`, (row, column), which may be beside the
        image. The value is that of a class, 0 to 254, or 255 to erase. Pieces of equal strokes in a row are one step of
        undo. An InputError says what does not fit.
        """
        mask = np.asarray(mask)
        if mask.ndim != 2 or mask.dtype != np.bool_:
            raise InputError(f"mask of shape {mask.shape} and dtype {mask.dtype}, expected (h, w) of bool")
        if not is_whole(value, least=0) or value > UNLABELLED:
            raise InputError(f"value {value!r}: give a mask value from 0 to 254, or 255 to erase")
        first = np.asarray(corner, dtype=np.intp)
        top, left = np.clip(first, 0, self.shape).tolist()
        bottom, right = np.clip(first + mask.shape, 0, self.shape).tolist()
        if bottom == top or right == left:
            return Patch((top, left), np.zeros((0, 0), dtype=np.uint8))
        row, col = (top, left) - first
        with self._guard:
            now = self._pixels[top:bottom, left:right]
            changes = mask[row : row + bottom - top, col : col + right - left] & (_labels_of(now) != value)
            after = np.where(changes, _PIXEL.type(value), now)
            self._change((top, left), after, stroke)
            return Patch((top, left), _labels_of(after))

    def put(
        self,
        corner: tuple[int, int],
        mask: NDArray[np.bool_],
        labels: NDArray[np.uint8],
        numbers: NDArray[Any],
    ) -> Patch:
        """Give the pixels of a mask labels, and objects of new numbers, (h, w) each, in one step, in a box of the image.

        Objects are counted from 1, and 0 is none; they are numbered on from those that are there.
        """
        top, left = corner
        with self._guard:
            now = self._pixels[top : top + mask.shape[0], left : left + mask.shape[1]]
            others = self._pixels.copy()
            others[top : top + mask.shape[0], left : left + mask.shape[1]][mask] = 0
            first = int(others.max(initial=0)) >> _BITS_OF_LABEL
            if first + int(numbers.max(initial=0)) > MOST_OBJECTS:
                raise InputError(f"more than {MOST_OBJECTS:,} objects were numbered: export, and begin anew")
            after = np.where(mask, _join(labels, np.where(numbers > 0, numbers + first, 0)), now)
            self._change(corner, after, None)
            return Patch(corner, _labels_of(after))

    def fill_unlabelled(self, values: ArrayLike) -> Patch:
        """Label every pixel without a label as another label image (H, W) of uint8 does, in one step.

        255 leaves a pixel without. Returns the whole label image; another size or dtype raises an InputError.
        """
        values = np.asarray(values)
        if values.shape != self.shape or values.dtype != np.uint8:
            raise InputError(
                f"labels of shape {values.shape} and dtype {values.dtype}, expected {self.shape} of uint8"
            )
        with self._guard:
            after = np.where(self.labels == UNLABELLED, values.astype(_PIXEL), self._pixels)
            self._change((0, 0), after, None)
            return Patch((0, 0), _labels_of(after))

    def undo(self) -> Patch | None:
        """Take the last step back; gives the labels of its box, or None if there is none."""
        with self._guard:
            return self._step(self._done, self._undone)

    def redo(self) -> Patch | None:
        """Do the last step that was undone again; gives the labels of its box, or None if there is none."""
        with self._guard:
            return self._step(self._undone, self._done)

    def forget(self) -> None:
        """Drop all steps of undo and redo; the labels stay."""
        with self._guard:
            self._done, self._undone, self._stroke = [], [], None

    def _change(self, corner: tuple[int, int], after: NDArray[np.uint32], stroke: object | None) -> None:
        top, left = corner
        box = self._pixels[top : top + after.shape[0], left : left + after.shape[1]]
        changed = box != after
        if not changed.any():
            if stroke != self._stroke:
                self._stroke = None
            return
        rows, cols = _extent(changed.any(axis=1)), _extent(changed.any(axis=0))
        before, now = box[rows, cols], after[rows, cols]
        piece = _Piece(
            (top + rows.start, left + cols.start),
            (now.shape[0], now.shape[1]),
            zlib.compress(before.tobytes(), _LEVEL),
            zlib.compress(now.tobytes(), _LEVEL),
        )
        if stroke is not None and stroke == self._stroke:
            self._done[-1].append(piece)
        else:
            self._done.append([piece])
        self._undone, self._stroke = [], stroke
        box[rows, cols] = now
        self.version += 1

    def _step(self, steps: list[list[_Piece]], others: list[list[_Piece]]) -> Patch | None:
        """Exchange the labels of the boxes of the last step, which moves to the other steps; gives the box around all."""
        if not steps:
            return None
        pieces = steps.pop()[::-1]
        others.append([piece._replace(before=piece.after, after=piece.before) for piece in pieces])
        for piece in pieces:
            values = np.frombuffer(zlib.decompress(piece.before), dtype=_PIXEL).reshape(piece.shape)
            (row, col), (height, width) = piece.corner, piece.shape
            self._pixels[row : row + height, col : col + width] = values
        self._stroke = None
        self.version += 1
        top, left, bottom, right = _box_around(pieces)
        return Patch((top, left), self.labels[top:bottom, left:right].copy())

    def _box_of(self, steps: list[list[_Piece]]) -> tuple[int, int, int, int] | None:
        with self._guard:
            return _box_around(steps[-1]) if steps else None


def _box_around(pieces: Sequence[_Piece]) -> tuple[int, int, int, int]:
    corners = np.array([piece.corner for piece in pieces])
    top, left = corners.min(axis=0).tolist()
    bottom, right = (corners + [piece.shape for piece in pieces]).max(axis=0).tolist()
    return top, left, bottom, right


def _join(labels: NDArray[np.uint8], numbers: NDArray[Any] | int) -> NDArray[np.uint32]:
    """Join labels with the numbers of objects, which only labelled pixels have."""
    kept = np.where(labels == UNLABELLED, 0, numbers).astype(_PIXEL)
    return np.asarray(kept << _BITS_OF_LABEL | labels.astype(_PIXEL), dtype=_PIXEL)


def _labels_of(pixels: NDArray[np.uint32]) -> NDArray[np.uint8]:
    return (pixels & UNLABELLED).astype(np.uint8)


def has_labels(labels: NDArray[Any]) -> bool:
    """Return whether any pixel of a label image has a label."""
    return bool((labels != UNLABELLED).any())


def _extent(there: NDArray[np.bool_]) -> slice:
    """Return the slice from the first to the last True."""
    places = np.flatnonzero(there)
    return slice(int(places[0]), int(places[-1]) + 1)
