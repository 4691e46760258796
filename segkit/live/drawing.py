"""The label image of one image, stroke by stroke, with unlimited undo and redo.

A step keeps the pixels it changed, before and after, within their bounding box and compressed. Its memory grows with
the stroke, not with the image.
"""

from __future__ import annotations

import threading
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit._common import is_whole
from segkit.errors import InputError
from segkit.images.labels import UNLABELLED

_LEVEL = 1  # runs of one value compress well at any level


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

    def __init__(self, labels: ArrayLike) -> None:
        array = np.array(labels)
        if array.ndim != 2 or array.dtype != np.uint8:
            raise InputError(
                f"labels of shape {array.shape} and dtype {array.dtype}, expected (H, W) of uint8"
            )
        self.version = 0
        self._labels = array
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
        view = self._labels.view()
        view.flags.writeable = False
        return view

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self._labels.shape[0], self._labels.shape[1]

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to undo."""
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        """Whether there is a step to redo."""
        return bool(self._undone)

    def snapshot(self) -> tuple[NDArray[np.uint8], int]:
        """Copy the label image, (H, W) uint8, and give the version it is of."""
        with self._guard:
            return self._labels.copy(), self.version

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
            now = self._labels[top:bottom, left:right]
            after = np.where(mask[row : row + bottom - top, col : col + right - left], np.uint8(value), now)
            self._change((top, left), after, stroke)
            return Patch((top, left), after)

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
            after = np.where(self._labels == UNLABELLED, values, self._labels)
            self._change((0, 0), after, None)
            return Patch((0, 0), after)

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

    def _change(self, corner: tuple[int, int], after: NDArray[np.uint8], stroke: object | None) -> None:
        top, left = corner
        box = self._labels[top : top + after.shape[0], left : left + after.shape[1]]
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
            values = np.frombuffer(zlib.decompress(piece.before), dtype=np.uint8).reshape(piece.shape)
            (row, col), (height, width) = piece.corner, piece.shape
            self._labels[row : row + height, col : col + width] = values
        self._stroke = None
        self.version += 1
        corners = np.array([piece.corner for piece in pieces])
        top, left = corners.min(axis=0).tolist()
        bottom, right = (corners + [piece.shape for piece in pieces]).max(axis=0).tolist()
        return Patch((top, left), self._labels[top:bottom, left:right].copy())


def has_labels(labels: NDArray[Any]) -> bool:
    """Return whether any pixel of a label image has a label."""
    return bool((labels != UNLABELLED).any())


def _extent(there: NDArray[np.bool_]) -> slice:
    """Return the slice from the first to the last True."""
    places = np.flatnonzero(there)
    return slice(int(places[0]), int(places[-1]) + 1)
