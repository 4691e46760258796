"""Objects of a live session, and how they are corrected by hand: what is corrected is annotated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from segkit._common import FloatArray, is_whole
from segkit.errors import InputError, count
from segkit.images import UNLABELLED
from segkit.live.arrays import ArrayProject
from segkit.live.drawing import Drawing, Patch
from segkit.live.project import Project
from segkit.objects.correct import cut, pixels_of_line, with_checked
from segkit.objects.grow import grow
from segkit.objects.hills import LabelArray
from segkit.objects.measure import Table, measure
from segkit.objects.split import Splitter
from segkit.segmentation.object_model import ObjectModel

Point = tuple[int, int]
# Farthest pixel of a typical object that is clicked near its middle, in its radii.
_REACH = 1.4
# No row or column is as far away.
_FARTHEST = 2**31


class BusyError(InputError):
    """Nothing can be predicted while something else goes on."""


class FoundObjects(NamedTuple):
    """Objects of an image as they are now.

    Parameters
    ----------
    labels : ndarray of shape (H, W), int32
        0 for the background, objects from 1 in reading order.
    checked : tuple of int
        Numbers of the objects that were corrected or accepted.
    values : ndarray of shape (H, W), uint8
        Mask value of each pixel, predicted or labelled.
    rule : str
        How objects that touch were told apart, in words.
    depth : float or None
        Depth of the pass at which two objects part, in radii; None where every region counts as one.
    interval : tuple of int, or None
        Interval that holds the true count of 80 of 100 images; None after corrections, or if no model knows it.
    """

    labels: LabelArray
    checked: tuple[int, ...]
    values: NDArray[np.uint8]
    rule: str
    depth: float | None = None
    interval: tuple[int, int] | None = None


class PredictedObjects(NamedTuple):
    """Mask values of an image, objects that were found in it, and by which model; None for background alone.

    `foreground` is the probability of all classes but the background, (H, W).
    """

    values: NDArray[np.uint8]
    labels: LabelArray
    model: ObjectModel | None
    foreground: FloatArray | None = None


class ObjectEditor:
    """Objects of the images of a session, and corrections by hand.

    Objects come from the prediction, except those that were corrected or accepted: these checked objects stay until somebody
    draws over them. A correction labels the pixels of an object with its class, or with the background, so that the next
    model learns them; `LiveSession.undo` takes it back. Checked objects also teach the size of objects. A model that is
    exported learns from them how to separate objects that touch.

    An object is named by a pixel in it, (row, column) from 0: numbers change with the prediction. Each correction returns
    what changed in the label image. An InputError says that there is no object at a pixel.

    Examples
    --------
    Strokes cannot show that these are two cells. A line can.

    >>> import tempfile
    >>> import numpy as np
    >>> from segkit.live import ArrayProject, FeatureCache, LiveSession
    >>> rows, cols = np.indices((40, 60))
    >>> cells = (np.hypot(rows - 20, cols - 20) < 10) | (np.hypot(rows - 20, cols - 38) < 10)
    >>> cache = FeatureCache(tempfile.mkdtemp())
    >>> with LiveSession(ArrayProject({"a": 0.2 + 0.5 * cells}), cache=cache) as session:
    ...     _ = session.paint("a", (2, 2), np.ones((36, 5), dtype=bool), 0)
    ...     _ = session.paint("a", (16, 16), np.ones((8, 8), dtype=bool), 1)
    ...     before = session.objects.find("a").labels.max()
    ...     _ = session.objects.split("a", [(5, 29), (35, 29)])
    ...     found = session.objects.find("a")
    ...     table = session.objects.measure("a")
    >>> int(before), int(found.labels.max()), found.checked
    (1, 2, (1, 2))
    >>> table["checked"].tolist()
    [True, True]
    """

    def __init__(
        self,
        project: Project | ArrayProject,
        predict: Callable[[str], PredictedObjects],
        changed: Callable[[str, Patch], None],
    ) -> None:
        self._project, self._predict, self._changed = project, predict, changed

    def find(self, key: str) -> FoundObjects:
        """Find the objects of an image with the model as it is.

        Without a model they are those that were checked; without any of these it raises an InputError.
        """
        drawing = self._project.labels(key)
        try:
            predicted = self._predict(key)
        except InputError:
            if not drawing.has_objects:
                raise
            predicted = self._nothing(drawing)
        return self.correct(key, predicted)

    def correct(self, key: str, predicted: PredictedObjects) -> FoundObjects:
        """Put checked objects in the place of those that were predicted."""
        labels, numbers, _ = self._project.labels(key).snapshot_of_objects()
        values = np.where(labels == UNLABELLED, predicted.values, labels)
        model = predicted.model
        least_area = 0 if model is None else model.splitter.least_area
        is_background = labels == self._background
        is_foreground = ~is_background & (labels != UNLABELLED)
        found, checked = with_checked(
            predicted.labels, numbers, is_background, is_foreground=is_foreground, least_area=least_area
        )
        if model is None:
            return FoundObjects(found, checked, values, "")
        is_as_predicted = not checked and np.array_equal(found > 0, predicted.labels > 0)
        return FoundObjects(
            found,
            checked,
            values,
            model.rule,
            depth=None if model.splitter.landscape == "none" else model.splitter.depth,
            interval=model.count_interval(int(found.max(initial=0))) if is_as_predicted else None,
        )

    def measure(self, key: str) -> Table:
        """Measure the objects of an image: columns as of `segkit.objects.measure`, and ``checked``."""
        found = self.find(key)
        image, pixel_size, channels = self._project.stored(key)
        names = {one.value: one.name for one in self._project.classes}
        table = measure(found.labels, image, pixel_size=pixel_size, channels=channels)
        classes = [names[value] for value in self._class_of_each(found)[1:].tolist()]
        table["class"] = np.array(classes, dtype=np.str_)
        return table | {"checked": np.isin(table["label"], found.checked)}

    def accept(self, key: str, at: Point | None = None) -> Patch:
        """Accept the object at a pixel as it is; without a pixel, accept all objects, and label all else as background."""
        found = self.find(key)
        if at is not None:
            mask = self._mask_at(found, key, at)
            return self._put(key, [(mask, self._class_of(found, mask), True)])
        values = self._class_of_each(found)
        everything = np.ones(found.labels.shape, dtype=bool)
        drawing = self._project.labels(key)
        return self._tell(key, drawing.put((0, 0), everything, values[found.labels], found.labels))

    def classify(self, key: str, at: Point, value: int) -> Patch:
        """Give the object at a pixel the class of a mask value; it is checked then."""
        self._check_class(key, value)
        return self._put(key, [(self._mask_at(self.find(key), key, at), value, True)])

    def delete(self, key: str, at: Point) -> Patch:
        """Make the object at a pixel background."""
        return self._put(key, [(self._mask_at(self.find(key), key, at), self._background, False)])

    def merge(self, key: str, points: Sequence[Point]) -> Patch:
        """Join the objects at these pixels into one; they must touch."""
        found = self.find(key)
        masks = [self._mask_at(found, key, at) for at in _as_pixels(points, key)]
        if len(masks) < 2 or all((mask == masks[0]).all() for mask in masks):
            raise InputError(
                f"{key}: {count(len(masks), 'pixel')} in one object: give one in each object to merge"
            )
        mask = np.logical_or.reduce(masks)
        if ndimage.label(mask)[1] > 1:
            raise InputError(
                f"{key}: these objects do not touch: draw one object that covers them and the gap between them"
            )
        return self._put(key, [(mask, self._class_of(found, mask), True)])

    def split(self, key: str, line: Sequence[Point]) -> Patch:
        """Cut objects along a line of points: each that it crosses completely becomes two or more."""
        points = _as_pixels(line, key)
        if len(points) < 2:
            raise InputError(f"{key}: a line of {count(len(points), 'point')}: give two or more")
        found = self.find(key)
        longest = 2 * sum(found.labels.shape)
        if any(abs(at) > longest for point in points for at in point):
            raise InputError(f"{key}: the line ends far outside the image: end it near the edge")
        on_line, changes = pixels_of_line(points, found.labels.shape), []
        boxes = ndimage.find_objects(found.labels)
        for number in np.setdiff1d(found.labels[on_line], (0,)).tolist():
            box, parts = boxes[number - 1], np.zeros(found.labels.shape, dtype=np.int32)
            parts[box] = cut(found.labels[box] == number, on_line[box])
            if (n_parts := int(parts.max())) > 1:
                value = self._class_of(found, parts > 0)
                changes += [(parts == part, value, True) for part in range(1, n_parts + 1)]
        if not changes:
            raise InputError(f"{key}: the line cuts through no object: start and end it outside of one")
        return self._put(key, changes)

    def draw(self, key: str, corner: Point, mask: ArrayLike, *, value: int | None = None) -> Patch:
        """Draw an object: the pixels of a mask (h, w) whose first pixel lies at `corner`.

        Objects of which it covers half or more are replaced, and what is left of them becomes background. It gets their
        class, or the first one after the background if there were none; a mask `value` sets another.
        """
        drawing = self._project.labels(key)
        drawn = _placed(drawing, _as_pixel(corner, key), mask)
        if not drawn.any():
            raise InputError(f"{key}: the object lies outside the image: draw it inside")
        if value is not None:
            self._check_class(key, value)
        try:
            found = self.find(key)
        except InputError:  # nothing is predicted yet
            found = self.correct(key, self._nothing(drawing))
        areas = np.bincount(found.labels.ravel())
        covered = np.bincount(found.labels[drawn], minlength=areas.size)
        replaced = (2 * covered >= areas) & (covered > 0)
        replaced[0] = False
        former = replaced[found.labels]
        value = self._class_of(found, former) if value is None else value
        return self._put(key, [(former & ~drawn, self._background, False), (drawn, value, True)])

    def grow(self, key: str, at: Point, *, reach: float | None = None, value: int | None = None) -> Patch:
        """Draw the object around a pixel near its middle, found by `segkit.objects.grow.grow`.

        `reach` is the distance from there to the farthest pixel of the object; without one, that of a typical object. Pixels
        of other checked objects, and those labelled as background, stay. Else as `draw`.
        """
        row, col = _as_pixel(at, key)
        drawing = self._project.labels(key)
        height, width = drawing.shape
        if not (0 <= row < height and 0 <= col < width):
            raise InputError(f"{key}: row {row}, column {col} lies outside the image: give a pixel inside")
        if reach is not None and not 0 < reach < np.inf:
            raise InputError(f"{key}: reach {reach!r}: give a number of pixels above 0")
        try:
            predicted = self._predict(key)
        except BusyError:
            raise
        except InputError:  # the image alone
            predicted = self._nothing(drawing)
        if reach is None:
            reach = _REACH * (Splitter() if predicted.model is None else predicted.model.splitter).radius
        (top, left), mask = grow(self._project.image(key), predicted.foreground, (row, col), reach)
        labels, numbers, _ = drawing.snapshot_of_objects()
        window = slice(top, top + mask.shape[0]), slice(left, left + mask.shape[1])
        own = numbers[row, col]
        taken = (labels == self._background) | ((numbers > 0) & (numbers != own))
        if taken[row, col]:
            raise InputError(f"{key}: row {row}, column {col} is labelled as background: erase that first")
        pieces, _ = ndimage.label(mask & ~taken[window])
        return self.draw(key, (top, left), pieces == pieces[row - top, col - left], value=value)

    def _check_class(self, key: str, value: int) -> None:
        classes = [one.value for one in self._project.classes[1:]]
        if not (is_whole(value, least=0) and value in classes):
            told = ", ".join(map(str, classes))
            raise InputError(f"{key}: value {value!r} is no class of objects: give one of {told}")

    def _nothing(self, drawing: Drawing) -> PredictedObjects:
        """Return a prediction of background alone."""
        empty = np.zeros(drawing.shape, dtype=np.int32)
        return PredictedObjects(np.full(drawing.shape, self._background, np.uint8), empty, None)

    @property
    def _background(self) -> int:
        return self._project.classes[0].value

    def _class_of(self, found: FoundObjects, mask: NDArray[np.bool_]) -> int:
        """Find the most frequent mask value of some pixels but for the background's; without any the first class."""
        values, counts = np.unique(
            found.values[mask & (found.values != self._background)], return_counts=True
        )
        return int(values[counts.argmax()]) if values.size else self._project.classes[1].value

    def _class_of_each(self, found: FoundObjects) -> NDArray[np.uint8]:
        """Find the mask value of each object as `_class_of` does, by its number; that of 0 is the background."""
        classes = np.full(
            int(found.labels.max(initial=0)) + 1, self._project.classes[1].value, dtype=np.uint8
        )
        known = found.values != self._background
        pairs, counts = np.unique(
            found.labels[known].astype(np.int64) << 8 | found.values[known], return_counts=True
        )
        # the most frequent one comes last, and stays; the lower of two as frequent
        order = np.lexsort((-pairs, counts))
        classes[pairs[order] >> 8] = pairs[order] & 255
        classes[0] = self._background
        return classes

    def _mask_at(self, found: FoundObjects, key: str, at: Point) -> NDArray[np.bool_]:
        row, col = _as_pixel(at, key)
        height, width = found.labels.shape
        number = int(found.labels[row, col]) if 0 <= row < height and 0 <= col < width else 0
        if not number:
            raise InputError(f"{key}: no object at row {row}, column {col}: give a pixel of one")
        return np.asarray(found.labels == number)

    def _put(self, key: str, changes: Sequence[tuple[NDArray[np.bool_], int, bool]]) -> Patch:
        """Label the pixels of masks, each with a value, and number those that are objects, in one step."""
        drawing = self._project.labels(key)
        labels, numbers = np.zeros(drawing.shape, np.uint8), np.zeros(drawing.shape, np.int32)
        number = 0
        for mask, value, is_object in changes:
            number += is_object
            labels[mask], numbers[mask] = value, (number if is_object else 0)
        changed = np.logical_or.reduce([mask for mask, _, _ in changes])
        rows, cols = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
        box = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
        corner = int(rows[0]), int(cols[0])
        return self._tell(key, drawing.put(corner, changed[box], labels[box], numbers[box]))

    def _tell(self, key: str, patch: Patch) -> Patch:
        self._changed(key, patch)
        return patch


def _as_pixels(points: Any, key: str) -> list[Point]:
    """Return rows and columns of pixels."""
    if not isinstance(points, Iterable):
        raise InputError(f"{key}: points {points!r}: give a list of rows and columns")
    return [_as_pixel(point, key) for point in points]


def _as_pixel(point: Any, key: str) -> Point:
    """Return row and column of a pixel."""
    try:
        row, col = (float(at) for at in point)
        if not (row.is_integer() and col.is_integer() and max(abs(row), abs(col)) < _FARTHEST):
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{key}: point {point!r}: give row and column of a pixel, two whole numbers"
        ) from error
    return int(row), int(col)


def _placed(drawing: Drawing, corner: Point, mask: ArrayLike) -> NDArray[np.bool_]:
    """Put a mask at its place in the image."""
    mask = np.asarray(mask)
    if mask.ndim != 2 or mask.dtype != np.bool_:
        raise InputError(f"mask of shape {mask.shape} and dtype {mask.dtype}, expected (h, w) of bool")
    placed = np.zeros(drawing.shape, dtype=bool)
    first = np.asarray(corner, dtype=np.intp)
    (top, left), (bottom, right) = (
        np.clip(first, 0, drawing.shape),
        np.clip(first + mask.shape, 0, drawing.shape),
    )
    row, col = (top, left) - first
    placed[top:bottom, left:right] = mask[row : row + bottom - top, col : col + right - left]
    return placed
