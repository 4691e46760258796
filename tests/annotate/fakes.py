"""A project and a session with the interface of `segkit.live`, which learn nothing but the mean colour of each class."""

import contextlib
import queue
import threading
from pathlib import Path

import numpy as np
from scipy import ndimage

from segkit.errors import InputError
from segkit.images import list_images, read_image
from segkit.live import (
    Advised,
    Expected,
    ExpectedPoint,
    Failed,
    HandOver,
    ImageEntry,
    LabelClass,
    Labels,
    Objects,
    Patch,
    Prediction,
    Saved,
    Status,
)

UNLABELLED = 255


class Drawing:
    """Undo by whole copies."""

    def __init__(self, size):
        self.labels = np.full(size, UNLABELLED, dtype=np.uint8)
        self.version = 0
        self._undo, self._redo, self._stroke = [], [], None

    @property
    def can_undo(self):
        return bool(self._undo)

    @property
    def can_redo(self):
        return bool(self._redo)

    def paint(self, corner, mask, value, *, stroke=None):
        if stroke is None or stroke != self._stroke:
            self._undo.append(self.labels.copy())
        self._stroke, self._redo = stroke, []
        (row, column), (height, width) = corner, mask.shape
        self.labels = self.labels.copy()
        self.labels[row : row + height, column : column + width][mask] = value
        self.version += 1
        return Patch(corner, self.labels[row : row + height, column : column + width].copy())

    def fill_unlabelled(self, values):
        return self.paint((0, 0), self.labels == UNLABELLED, values)

    def _swap(self, source, target):
        if not source:
            return None
        target.append(self.labels)
        self.labels, self._stroke = source.pop(), None
        self.version += 1
        return Patch((0, 0), self.labels.copy())

    def undo(self):
        return self._swap(self._undo, self._redo)

    def redo(self):
        return self._swap(self._redo, self._undo)


class FakeProject:
    def __init__(self, images=None, output="out", *, arrays=None, classes=None):
        self.output = Path(output)
        self._arrays = arrays
        if arrays is None:
            root = Path(images)
            self.images = [
                ImageEntry(str(path.with_suffix("")), root / path, 0, 1) for path in list_images(root)
            ]
        else:
            self.images = [ImageEntry(key, Path(f"{key}.png"), 0, 1) for key in arrays]
        self.classes = classes or [
            LabelClass(0, "background", "#56b4e9"),
            LabelClass(1, "foreground", "#f0e442"),
        ]
        self._drawings, self._accepted = {}, set()
        self.broken = set()

    def image(self, key):
        if key in self.broken:
            raise InputError(f"{key}.png: no such file: it was there before; put it back")
        if self._arrays is not None:
            return self._arrays[key]
        return read_image(next(entry.path for entry in self.images if entry.key == key))[0]

    def labels(self, key):
        if key not in self._drawings:
            self._drawings[key] = Drawing(self.image(key).shape[:2])
        return self._drawings[key]

    def unsaved(self):
        return []

    def set_classes(self, classes):
        used = set().union(*(np.unique(drawing.labels).tolist() for drawing in self._drawings.values()))
        if missing := used - {UNLABELLED} - {entry.value for entry in classes}:
            raise InputError(f"class {min(missing)} is in use: erase its strokes before it is removed")
        self.classes = list(classes)

    def accepted(self, key):
        return key in self._accepted

    def accept(self, key, ids):
        self._accepted.add(key)
        return self.labels(key).fill_unlabelled(ids[self.labels(key).labels == UNLABELLED])

    def annotated(self):
        return [key for key, drawing in self._drawings.items() if (drawing.labels != UNLABELLED).any()]


class FakeSession:
    def __init__(self, project, *, blocks=512):
        self.project, self.live, self.blocks = project, True, blocks
        self.listeners, self.boxes, self.closed, self.source = [], [], False, "strokes"
        self.has_model = False
        self._work = queue.Queue()
        self._generation, self._n_strokes, self._points, self._key = 0, 0, [], None
        self.fail_to_save = None
        self._worker = threading.Thread(target=self._run, daemon=True)
        self._worker.start()

    def subscribe(self, listener):
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def emit(self, event):
        for listener in list(self.listeners):
            listener(event)

    def open(self, key):
        self._key = key
        self._work.put(("open", key))

    def look(self, key, box):
        self.boxes.append((key, box))

    def paint(self, key, corner, mask, value, *, stroke=None):
        patch = self.project.labels(key).paint(corner, mask, value, stroke=stroke)
        return self._changed(key, patch)

    def undo(self, key):
        return self._changed(key, self.project.labels(key).undo())

    def redo(self, key):
        return self._changed(key, self.project.labels(key).redo())

    def accept(self, key):
        ids, _ = self.predict(key)
        return self._changed(key, self.project.accept(key, ids))

    def set_classes(self, classes):
        self.project.set_classes(classes)

    @property
    def points(self):
        return tuple(self._points)

    def use(self, source):
        self.source = source

    def suggest(self, key):
        height, width = self.project.labels(key).labels.shape
        boxes = [
            (height // 8, width // 8, height // 3, width // 3),
            (height // 2, width // 2, height * 3 // 4, width * 3 // 4),
        ]
        return Advised(key, boxes, [entry.key for entry in self.project.images][::-1], 0)

    def export(self, *, progress=None):
        model, masks = self.project.output / "model.segkit", self.project.output / "masks"
        return HandOver(
            model, masks, self.project.output / "train.yaml", f"segkit train images {masks} -o {model}"
        )

    def wait(self, timeout=None):
        self._work.join()
        return True

    def close(self):
        self.closed = True
        self._work.put(None)
        self._worker.join(5)

    def predict(self, key):
        image, labels = self.project.image(key), self.project.labels(key).labels
        values = sorted(entry.value for entry in self.project.classes)
        seen = [value for value in values if (labels == value).any()]
        far = np.stack(
            [
                np.abs(image - image[labels == value].mean(axis=0)).sum(axis=2)
                if value in seen
                else np.full(labels.shape, 4.0)
                for value in values
            ]
        )
        weights = np.exp(-12 * far)
        probabilities = weights / weights.sum(axis=0)
        return np.array(values, dtype=np.uint8)[probabilities.argmax(axis=0)], probabilities

    def _changed(self, key, patch):
        if patch is not None:
            self._n_strokes += 1
            self.emit(Labels(key, patch, self.project.labels(key).version))
            self._work.put(("learn", key))
        return patch

    def _run(self):
        while (job := self._work.get()) is not None:
            try:
                with contextlib.suppress(InputError):  # a session goes on, whatever happens to a file
                    self._do(*job)
            finally:
                self._work.task_done()
        self._work.task_done()

    def _do(self, op, key):
        drawing = self.project.labels(key)
        if op == "learn":
            if self.fail_to_save:
                self.emit(Failed(self.fail_to_save))
            else:
                self.emit(Saved(key, drawing.version))
        if len(set(np.unique(drawing.labels)) - {UNLABELLED}) < 2:
            self.emit(Status("needs labels", key, 0.0, "draw a stroke in each class"))
            return
        if not self._work.empty() or not self.live:
            return
        self.emit(Status("learning", key, 0.5, "learning"))
        ids, probabilities = self.predict(key)
        self._generation += 1
        classes = tuple(sorted(entry.value for entry in self.project.classes))
        planes = np.rint(255 * probabilities).astype(np.uint8)
        doubt = np.rint(255 * (1 - probabilities.max(axis=0)) * len(planes) / max(len(planes) - 1, 1))
        doubt = np.clip(doubt, 0, 255).astype(np.uint8)
        for stride, size in ((8, max(ids.shape)), (1, self.blocks)):
            for row in range(0, ids.shape[0], size):
                for column in range(0, ids.shape[1], size):
                    box = (slice(row, row + size, stride), slice(column, column + size, stride))
                    self.emit(
                        Prediction(
                            key, self._generation, stride, (row, column),
                            ids[box].copy(), planes[:, *box].copy(), doubt[box].copy(), classes,
                        )
                    )  # fmt: skip
        labels, count = ndimage.label(ids != self.project.classes[0].value)
        self.emit(Objects(key, self._generation, labels, count))
        self._points.append(ExpectedPoint(self._n_strokes, 1, 0.9 - 0.4 / (1 + len(self._points)), 0.4, 0.95))
        self.emit(Expected(list(self._points)))
        self.emit(Status("idle", key, 1.0, "up to date"))
