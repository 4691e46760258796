"""A project without files, and a session that learns nothing but the mean colour of each class."""

import contextlib
import queue
import threading
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
from scipy import ndimage

from segkit._common.files import write_table, write_text
from segkit.errors import InputError
from segkit.images import UNLABELLED, Reading, write_image
from segkit.images.axes import AxesError
from segkit.live import (
    Advised,
    ArrayProject,
    Checked,
    Doubt,
    Expected,
    ExpectedPoint,
    HandOver,
    ImageEntry,
    Labels,
    Network,
    ObjectEditor,
    Objects,
    Prediction,
    Run,
    Saved,
    Status,
)
from segkit.live.objects import PredictedObjects
from segkit.objects.split import Splitter
from segkit.objects.tables import ImageObjects, write_images, write_objects
from segkit.segmentation.object_model import ObjectModel
from segkit.segmentation.outcome import ImageRow


class FakeProject(ArrayProject):
    """Images in memory; those of the set `broken` have vanished, those of `unnamed` do not name their axes."""

    def __init__(self, arrays, output="out"):
        self.broken, self.unnamed, self._accepted = set(), set(), set()
        self.reading = Reading()
        super().__init__(arrays, output=output)
        self.images = [ImageEntry(key, Path(f"{key}.png"), 0, 1) for key in arrays]

    def _entry(self, key):
        if key in self.broken:
            raise InputError(f"{key}.png: no such file: it was there before; put it back")
        if key in self.unnamed:
            choices = {"ZYX": "planes", "CYX": "channels"}
            raise AxesError("its axes have no names", Path(f"{key}.png"), (3, 60, 80), choices)
        return super()._entry(key)

    def accepted(self, key):
        return key in self._accepted

    def accept(self, key, ids):
        self._accepted.add(key)
        return super().accept(key, ids)

    def unsaved(self):
        return []


def write_results(folder, keys, *, anew):
    """Results of a folder as segmentation writes them: the last image has a warning."""
    rows = [
        ImageRow(f"{key}.png", "written", pages=1, expected_object_iou=0.9 - 0.2 * i)
        for i, key in enumerate(keys)
    ]
    rows[-1] = replace(rows[-1], warning="much darker than the training images")
    header = [one.name for one in fields(ImageRow)]
    write_table(folder / "summary.csv", header, [tuple(asdict(row).values()) for row in rows])
    table = {
        name: np.array([value]) for name, value in {"label": 1, "area": 12.0, "touches_border": False}.items()
    }
    own = {} if anew else {"checked": np.array([True])}
    images = [ImageObjects(key, (60, 80), table | own) for key in keys]
    write_images(folder / "images.csv", write_objects(folder / "objects.csv", images))
    for key in keys:
        write_image(folder / "overlay" / f"{key}.png", np.full((600, 800), 0.5))
    write_text(folder / ".segkit" / "record", "hidden")


class FakeSession:
    has_model = False
    object_iou = None
    network = Network("none", "kernel machine", "No network yet")
    run = Run("none", "No results yet")

    def __init__(self, project):
        self.project, self.live, self.source, self.closed = project, True, "strokes", False
        self.objects = ObjectEditor(project, self._objects_of, self._changed)
        self.object_settings = {"depth": None, "smallest": None, "fill_holes": None}
        self.listeners, self.boxes, self.points = [], [], []
        self._work, self._n_strokes = queue.Queue(), 0
        self._worker = threading.Thread(target=self._run, daemon=True)
        self._worker.start()

    def subscribe(self, listener):
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def emit(self, event):
        for listener in list(self.listeners):
            listener(event)

    def open(self, key):
        self._work.put(("open", key))

    def look(self, key, box):
        self.boxes.append((key, box))

    def paint(self, key, corner, mask, value, *, stroke=None):
        return self._changed(key, self.project.paint(key, corner, mask, value, stroke=stroke))

    def undo(self, key):
        return self._changed(key, self.project.labels(key).undo())

    def redo(self, key):
        return self._changed(key, self.project.labels(key).redo())

    def accept(self, key):
        ids, _ = self.predict(key)
        return self._changed(key, self.project.accept(key, ids))

    def set_classes(self, classes):
        self.project.set_classes(classes)

    def set_axes(self, axes):
        self.project.reading = replace(self.project.reading, unnamed=axes)
        self.project.unnamed.clear()

    def set_objects(self, **settings):
        if settings["smallest"] == 13:
            raise InputError("smallest of objects 13: give another number")
        self.object_settings = settings

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
            model,
            masks,
            self.project.output / "train.yaml",
            f"segkit train images {masks} -o {model}",
            "each counts.",
        )

    def train_network(self):
        if self.network.state == "training":
            raise InputError("a network is being trained already: wait until it is, or cancel it")
        self.network = Network("training", "kernel machine", "Training 9 networks", 0.1, 80.0)
        self.emit(self.network)

    def cancel_network(self):
        self.network = FakeSession.network
        self.emit(self.network)

    def check_labels(self):
        last = self.project.images[-1].key
        return (Doubt(last, (10, 20, 30, 40), 1, 0, 0.92),)

    @property
    def results(self):
        return self.project.output / "results"

    def segment_folder(self, images=None, output=None, *, retrain=True):
        if images is not None and not Path(images).exists():
            raise InputError(f"{images}: no such folder: give one on the machine where segkit runs")
        self.emit(Run("training", "Training the model on all labels", "", 0.5, 30.0))
        keys = [entry.key for entry in self.project.images]
        folder = Path(output or self.results)
        write_results(folder, keys, anew=retrain)
        self.run = Run("done", f"{len(keys)} files segmented", str(folder), 1.0, notes=("an odd image",))
        self.emit(self.run)

    def cancel_run(self):
        self.run = FakeSession.run
        self.emit(self.run)

    def close(self):
        self.closed = True
        self._work.put(None)
        self._worker.join(5)

    def predict(self, key):
        image = self.project.image(key)
        labels = self.project.labels(key).labels.copy()  # strokes go on meanwhile
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

    def _objects_of(self, key):
        ids, _ = self.predict(key)
        labels = ndimage.label(ids != self.project.classes[0].value)[0].astype(np.int32)
        return PredictedObjects(ids, labels, ObjectModel(Splitter(landscape="none"), "regions"))

    def _changed(self, key, patch):
        if patch is not None:
            self._n_strokes += 1
            self.emit(Labels(key, patch, self.project.labels(key).version))
            self._work.put(("learn", key))
        return patch

    def _run(self):
        while (job := self._work.get()) is not None:
            with contextlib.suppress(InputError):  # a session goes on, whatever happens to a file
                self._do(*job)

    def _do(self, op, key):
        drawing = self.project.labels(key)
        if op == "learn":
            self.emit(Saved(key, drawing.version))
        if len(set(np.unique(drawing.labels)) - {UNLABELLED}) < 2:
            self.emit(Status("needs labels", key, 0.0, "draw a stroke in each class"))
            return
        if not self._work.empty() or not self.live:
            return
        self.emit(Status("learning", key, 0.5, "learning"))
        ids, probabilities = self.predict(key)
        generation = 1 + len(self.points)
        classes = tuple(sorted(entry.value for entry in self.project.classes))
        planes = np.rint(255 * probabilities).astype(np.uint8)
        doubt = np.rint(255 * (1 - probabilities.max(axis=0)) * len(planes) / max(len(planes) - 1, 1))
        doubt = np.clip(doubt, 0, 255).astype(np.uint8)
        for stride, size in ((8, max(ids.shape)), (1, 512)):
            for row in range(0, ids.shape[0], size):
                for column in range(0, ids.shape[1], size):
                    box = (slice(row, row + size, stride), slice(column, column + size, stride))
                    self.emit(
                        Prediction(
                            key, generation, stride, (row, column),
                            ids[box].copy(), planes[:, *box].copy(), doubt[box].copy(), classes,
                        )
                    )  # fmt: skip
        found = self.objects.find(key)
        self.emit(Checked(key, generation, self.object_iou))
        n_objects = int(found.labels.max())
        rule = "each region counts as one."
        self.emit(Objects(key, generation, found.labels, n_objects, rule, found.checked, 0.1, (n_objects, 9)))
        self.points.append(ExpectedPoint(self._n_strokes, 1, 0.9 - 0.4 / generation, 0.4, 0.95, 0.9))
        self.emit(Expected(list(self.points)))
        self.emit(Status("idle", key, 1.0, "up to date"))
