"""The dock widget of napari: choose an image, paint, see what segkit makes of it."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from napari.layers import Image, Labels, Layer
from napari.utils.notifications import show_error, show_info
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QObject, QSignalBlocker, Qt, QTimer, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFileDialog,
    QFormLayout,
    QLabel,
    QMainWindow,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from segkit.errors import InputError, SegkitError, count
from segkit.live import (
    Doubt,
    Expected,
    Failed,
    FeatureCache,
    HandOver,
    LiveSession,
    Network,
    Objects,
    Patch,
    Prediction,
    Run,
    Status,
)
from segkit.live.events import explain
from segkit.napari.layers import BACKGROUND, Place, check_shapes, labels_shape, like
from segkit.napari.learning import Learning, TrainingPlane
from segkit.napari.objects_panel import TOOLS, ObjectsPanel, Pixels, as_row
from segkit.napari.results import DOUBTS, OBJECTS, PREDICTION, Results, as_labels, is_made

# Milliseconds without a change before painted labels are read, and between two updates of the layers.
_PAUSE = 80
_REFRESH = 40
_TRAIN, _SEGMENT = "Train a network", "Segment a folder…"
_HELP = (
    "Paint label <b>1</b> on the background and <b>2</b>, <b>3</b>, … on what you look for: a class for each label. "
    "Label 0 means not annotated; the eraser takes annotation away. A few strokes are enough. "
    "Of a stack, segkit learns and predicts the plane that is shown."
)


class _LayerChoice(QComboBox):
    """A choice among layers."""

    def __init__(self, nothing: str) -> None:
        super().__init__()
        self._nothing = nothing
        self._layers: list[Layer] = []
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(12)
        self.offer([])

    @property
    def layer(self) -> Layer | None:
        """The chosen layer."""
        place = self.currentIndex()
        return self._layers[place] if 0 <= place < len(self._layers) else None

    def offer(self, layers: list[Layer]) -> None:
        """Offer layers; the chosen one stays chosen if it is among them."""
        chosen = self.layer
        with QSignalBlocker(self):
            self.clear()
            self._layers = layers
            self.addItems([layer.name for layer in layers] or [self._nothing])
            self.setEnabled(bool(layers))
            self.choose(chosen)
        if self.layer is not chosen:
            self.currentIndexChanged.emit(self.currentIndex())

    def choose(self, layer: Layer | None) -> None:
        """Choose a layer; None chooses nothing, if there are any."""
        found = [place for place, one in enumerate(self._layers) if one is layer]
        self.setCurrentIndex(found[0] if found else (-1 if self._layers else 0))


class _Correction(NamedTuple):
    """A change of the labels of a plane by its session, and what it is called."""

    text: str
    work: Callable[[LiveSession, str], Patch | None]
    learning: Learning
    key: str


class _ThreadBridge(QObject):
    """Takes what other threads send to the thread of the window."""

    arrived = Signal()


class SegmentWidget(QWidget):
    """Learn from labels that are painted in napari, and show the prediction while they are."""

    def __init__(self, napari_viewer: Any, cache: FeatureCache | None = None) -> None:
        super().__init__()
        # layers from a plugin's view of the viewer are wrapped anew each time, and could not be told apart
        self._viewer = getattr(napari_viewer, "__wrapped__", napari_viewer)
        self._cache = cache
        self.learning: Learning | None = None
        self._key: str | None = None
        self._labels_of: weakref.WeakKeyDictionary[Layer, Layer] = weakref.WeakKeyDictionary()
        self._results = Results(self._viewer)
        self._predicted: dict[str, Prediction] = {}
        self._objects: dict[str, Objects] = {}
        self._followed: weakref.WeakSet[Layer] = weakref.WeakSet()
        self._counted: set[str] = set()  # planes whose objects are shown
        self._corrections: deque[_Correction] = deque()  # those that wait
        self._is_shut = False
        # what hinders learning, and what the session said last
        self._fault: str | None = None
        self._status = Status("idle", None, 1.0, "")
        self._news: deque[Any] = deque()
        self._task: threading.Thread | None = None
        self._changing = False  # whether the task changes labels
        self._window: QMainWindow | None = None
        self._post = _ThreadBridge()
        self._post.arrived.connect(self._news_came, Qt.ConnectionType.QueuedConnection)
        self._drawing = self._timer(_REFRESH, self._take_news)
        self._following = self._timer(_PAUSE, self._follow)
        self._build()
        for emitter, call in self._connections():
            emitter.connect(call)
        self._offer_layers()

    # The face.

    def _build(self) -> None:
        text = QLabel(_HELP)
        text.setWordWrap(True)
        self.image_choice, self.labels_choice = _LayerChoice("open an image"), _LayerChoice("press New")
        self.image_choice.currentIndexChanged.connect(self._image_chosen)
        self.labels_choice.currentIndexChanged.connect(self._labels_chosen)
        self.new_button = _button(
            "New", "Make an empty Labels layer of the size of the image", self.new_labels
        )
        row = as_row(self.labels_choice, self.new_button)
        row.setStretch(0, 1)
        self.channels_box = QCheckBox("The first axis holds channels")
        self.channels_box.setToolTip(
            "For stains or wavelengths in one layer; leave it off for stacks and films"
        )
        self.channels_box.toggled.connect(self._channels_changed)
        form = QFormLayout()
        form.addRow("Image", self.image_choice)
        form.addRow("Labels", row)
        form.addRow("", self.channels_box)

        self.live_box = QCheckBox("Learn and predict while I paint")
        self.live_box.toggled.connect(self.set_live)
        self.uncertainty_box = QCheckBox("Show where segkit is uncertain")
        self.uncertainty_box.toggled.connect(
            lambda on: self._results.show_uncertainty(self.image_choice.layer, on=on)
        )
        self.predict_button = _button(
            "Predict now", "Learn once and predict the whole plane", self.predict_now
        )
        self.objects = ObjectsPanel()
        self.objects.count_button.clicked.connect(lambda _: self.count_objects())
        self.objects.accept_button.clicked.connect(lambda _: self.accept_objects())
        self.objects.undo_button.clicked.connect(lambda _: self.undo())
        self.objects.corrected.connect(self.correct)
        self.objects.changed.connect(self._set_objects)
        self.objects.armed.connect(self._tool_chosen)
        self.save_button = _button(
            "Save model…", "Train on all labels and write a .segkit file", self._ask_and_save
        )
        self.folder_button = _button(
            _SEGMENT,
            "Train on all labels, then segment and count all images of a folder",
            self._ask_and_segment,
        )
        buttons = as_row(self.predict_button, self.save_button, self.folder_button)
        self.network_button = _button(
            _TRAIN,
            "Minutes instead of seconds; its prediction is shown until labels change",
            self.train_network,
        )
        self.check_button = _button(
            "Check my labels",
            "Mark labels that a model contradicts which has not seen them",
            self.check_labels,
        )
        more_buttons = as_row(self.network_button, self.check_button)

        # what goes on, what the last button gave, how well it does, and what processes of their own do
        self.status, self.result, self.expected, self.network, self.run = (QLabel() for _ in range(5))
        for label in (self.status, self.result, self.expected, self.network, self.run):
            label.setWordWrap(True)
        for label in (self.result, self.run):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.progress = QProgressBar()
        self.progress.setRange(0, 100)
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(6)
        layout = QVBoxLayout(self)
        layout.addWidget(text)
        layout.addLayout(form)
        layout.addWidget(self.live_box)
        layout.addWidget(self.uncertainty_box)
        layout.addLayout(buttons)
        layout.addLayout(more_buttons)
        layout.addWidget(self.objects)
        for widget in (self.progress, self.status, self.expected, self.network, self.run, self.result):
            layout.addWidget(widget)
        layout.addStretch(1)

    def _timer(self, milliseconds: int, call: Callable[[], None]) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(milliseconds)
        timer.timeout.connect(call)
        return timer

    def _connections(self) -> Iterator[tuple[Any, Callable[..., None]]]:
        events = self._viewer.layers.events
        yield events.inserted, self._offer_layers
        yield events.removed, self._layer_removed
        yield events.reordered, self._offer_layers
        dims = self._viewer.dims.events
        for emitter in (dims.current_step, dims.ndisplay, dims.order):
            yield emitter, self._changed
        camera = getattr(self._viewer, "scene", self._viewer).camera  # it moved in napari 0.9
        for emitter in (camera.events.zoom, camera.events.center):
            yield emitter, self._changed

    def _events_of(self, layer: Layer) -> Iterator[tuple[Any, Callable[..., None]]]:
        yield layer.events.name, self._offer_layers
        if isinstance(layer, Labels):
            # strokes; undo, redo and changes from programs refresh the layer
            yield layer.events.paint, self._changed
            yield layer.events.set_data, self._changed
        else:
            yield layer.events.data, self._image_data_changed

    # Layers come, go and change.

    def _layer_removed(self, event: Any) -> None:
        layer = event.value
        if is_made(layer):  # objects are counted again when it is asked for
            planes = {} if self.learning is None else self.learning.planes
            shown = {key for key, one in planes.items() if self._results.find(one.image, OBJECTS) is not None}
            self._counted &= shown
            return
        self._leave(layer)
        if self.learning is not None:
            self.learning.forget_layer(layer)
        self._labels_of.pop(layer, None)
        self._unpair(layer)
        self._offer_layers()

    def _leave(self, layer: Layer) -> None:
        if layer in self._followed:
            self._followed.discard(layer)
            for emitter, call in self._events_of(layer):
                emitter.disconnect(call)

    def _image_data_changed(self, event: Any) -> None:
        if self.learning is not None:
            self.learning.forget_layer(event.source)
        self._changed()

    def _offer_layers(self, event: Any = None) -> None:  # noqa: ARG002
        layers = [layer for layer in self._viewer.layers if not is_made(layer)]
        for layer in layers:
            if isinstance(layer, (Image, Labels)) and layer not in self._followed:
                self._followed.add(layer)
                for emitter, call in self._events_of(layer):
                    emitter.connect(call)
        images = [layer for layer in layers if isinstance(layer, Image)]
        self.labels_choice.offer([layer for layer in layers if isinstance(layer, Labels)])
        self.image_choice.offer(images)
        image = self.image_choice.layer
        if image is None and images:
            self.image_choice.choose(images[0])
        elif image is not None and self.labels_choice.layer is None:
            self.labels_choice.choose(self._labels_for(image))
        self._changed()

    def _image_chosen(self, _: int) -> None:
        image = self.image_choice.layer
        if image is not None:
            self.channels_box.setEnabled(image.ndim > 2)
            self.labels_choice.choose(self._labels_for(image))
        self._changed()

    def _labels_for(self, image: Image) -> Labels | None:
        """Find the labels of an image: those it had, or a layer of its shape that no other image has."""
        if image in self._labels_of:
            return self._labels_of[image]
        taken = list(self._labels_of.values())
        for layer in self._viewer.layers:
            if isinstance(layer, Labels) and not is_made(layer) and all(layer is not one for one in taken):
                with suppress(InputError):
                    check_shapes(image, layer, channels=self._channels)
                    return layer
        return None

    def _labels_chosen(self, _: int) -> None:
        image, labels = self.image_choice.layer, self.labels_choice.layer
        if image is not None and labels is not None:
            with suppress(InputError):
                check_shapes(image, labels, channels=self._channels)
                self._pair(image, labels)
        self._changed()

    def _pair(self, image: Image, labels: Labels) -> None:
        """Remember the labels of an image; they are of no other one."""
        self._unpair(labels)
        self._labels_of[image] = labels

    def _unpair(self, labels: Layer) -> None:
        for image in [image for image, layer in self._labels_of.items() if layer is labels]:
            del self._labels_of[image]

    def _channels_changed(self, _: bool) -> None:  # noqa: FBT001
        if self.learning is not None:
            self._stop()
        self._changed()

    def _changed(self, event: Any = None) -> None:  # noqa: ARG002
        self._following.start()

    # What the buttons do.

    def new_labels(self) -> None:
        """Make an empty Labels layer for the image, and choose it."""
        with self._showing_errors():
            image = self._image()
            shape = labels_shape(image, channels=self._channels)
            name = f"{image.name} labels"
            placed = like(image, channels=self._channels)
            labels = self._viewer.add_labels(np.zeros(shape, dtype=np.uint8), name=name, **placed)
            labels.mode, labels.brush_size = "paint", max(4, min(shape[-2:]) // 50)
            labels.selected_label = BACKGROUND
            self.labels_choice.choose(labels)

    def set_live(self, on: bool) -> None:  # noqa: FBT001
        """Learn after each stroke, or pause."""
        if self.live_box.isChecked() != on:
            self.live_box.setChecked(on)  # comes back here
            return
        if self.learning is not None:
            self.learning.session.live = on
        if on:
            with self._showing_errors():
                self._begin()

    def predict_now(self) -> None:
        """Learn from what is painted, and predict the whole plane."""
        with self._showing_errors():
            learning, key = self._begin()
            self._in_background(
                "Predicting", partial(learning.session.predict, key), partial(self._predicted_all, key)
            )

    def count_objects(self) -> None:
        """Draw the numbered objects of the prediction in a Labels layer that follows it, and show how many there are."""
        with self._showing_errors():
            prediction = self._predicted.get(self._key or "")
            if self._key is None or prediction is None:
                raise InputError("nothing is predicted yet: paint two labels or more, then Predict now")
            if prediction.classes[0] != BACKGROUND:
                raise InputError(f"the background is unknown: paint some of it with label {BACKGROUND}")
            self._counted.add(self._key)
            if self._key in self._objects:
                self._show_objects(self._objects[self._key])
            else:
                self.objects.text.setText("Counting as soon as the whole plane is predicted")

    def correct(self, tool: str, pixels: Pixels) -> None:
        """Correct objects by the pixels that the mouse went over, (row, column) each; see `ObjectEditor`."""
        labels = self.labels_choice.layer
        value = BACKGROUND if labels is None else int(labels.selected_label)
        self._correct(
            f"Correcting: {tool}",
            lambda session, key: TOOLS[tool].correct(session.objects, key, pixels, value),
        )

    def accept_objects(self) -> None:
        """Accept all objects as they are, and label all else as background."""
        self._correct("Accepting all objects", lambda session, key: session.objects.accept(key))

    def undo(self) -> None:
        """Take the last stroke or correction of the plane back."""
        self._correct("Undoing", lambda session, key: session.undo(key))

    def _correct(self, text: str, work: Callable[[LiveSession, str], Patch | None]) -> None:
        """Let the session change labels, and write what has changed into their layer; one change after the other."""
        with self._showing_errors():
            correction = _Correction(text, work, *self._begin())
            if self._task is not None and self._changing:
                self._corrections.append(correction)
            else:
                self._start_correction(correction)

    def _start_correction(self, correction: _Correction) -> None:
        text, work, learning, key = correction
        self._in_background(
            text, partial(work, learning.session, key), self._show_corrected, changing=(learning, key)
        )

    def _show_corrected(self, patch: Patch | None) -> None:
        self.result.setText("There is nothing to undo" if patch is None else "")

    def _corrected(self, learning: Learning, key: str) -> None:
        """Follow what a correction has changed, then what was painted meanwhile."""
        learning.release(key)
        self._changed()

    def _set_objects(self) -> None:
        with self._showing_errors():
            learning, _ = self._begin()
            learning.session.set_objects(**self.objects.settings)

    def _tool_chosen(self) -> None:
        """Give the mouse to the chosen tool, in the layer of objects, or back to the brush."""
        if self.objects.tool is not None and self._key not in self._counted:
            self.count_objects()
        for shown in [] if self.learning is None else self.learning.planes.values():
            self._arm(shown)
        labels = self.labels_choice.layer
        if self.objects.tool is None and labels is not None:
            self._viewer.layers.selection.active = labels

    def _arm(self, shown: TrainingPlane) -> None:
        layer = self._results.find(shown.image, OBJECTS)
        if layer is None:
            return
        self.objects.arm(layer)
        if self.objects.tool is not None and shown.image is self.image_choice.layer:
            self._viewer.layers.selection.active = layer

    def train_network(self) -> None:
        """Train a network on all labels in a process of its own, or end the training that goes on."""
        with self._showing_errors():
            learning, _ = self._begin()
            session = learning.session
            if session.network.state == "training":
                self._in_background("Ending the training", session.cancel_network, lambda _: None)
            else:
                self._in_background("Training a network", learning.train_network, lambda _: None)

    def check_labels(self) -> None:
        """Mark labels that are contradicted by a model which has not seen them."""
        with self._showing_errors():
            learning, _ = self._begin()
            self._in_background("Checking the labels", learning.session.check_labels, self._show_doubts)

    def _show_doubts(self, doubts: tuple[Doubt, ...]) -> None:
        """Draw a box around each doubt, with its rank."""
        for key, shown in [] if self.learning is None else list(self.learning.planes.items()):
            self._results.mark(
                shown, {rank: one.box for rank, one in enumerate(doubts, start=1) if one.key == key}
            )
        if not doubts:
            self.result.setText("No label is contradicted.")
            return
        first = doubts[0]
        self.result.setText(
            f"{count(len(doubts), 'label')} may be wrong, marked in a layer of {DOUBTS}, the surest with 1: in {first.key}, "
            f"label {first.value}, perhaps {first.predicted} ({first.share:.0%})."
        )

    def save_model(self, path: str | Path) -> None:
        """Train on all labels and write the model, in the background."""
        with self._showing_errors():
            learning, _ = self._begin()
            file = Path(path)
            file = file if file.suffix == ".segkit" else file.with_name(file.name + ".segkit")
            self._in_background("Training", partial(learning.save, file, self._report), self._saved)

    def _ask_and_save(self) -> None:
        with self._showing_errors():
            self._begin()
            path, _ = QFileDialog.getSaveFileName(
                self, "Save the model", "model.segkit", "segkit model (*.segkit)"
            )
            if path:
                self.save_model(path)

    def segment_folder(self, images: str | Path) -> None:
        """Train on all labels, then segment a folder of images and count their objects, in a folder beside it."""
        with self._showing_errors():
            learning, _ = self._begin()
            folder = Path(images)
            output = folder.with_name(f"{folder.name}-segmented")
            self._in_background(
                "Segmenting a folder",
                partial(learning.segment, folder, output),
                lambda _: self.result.clear(),
            )

    def _ask_and_segment(self) -> None:
        with self._showing_errors():
            learning, _ = self._begin()
            state = learning.session.run.state
            if state == "training":
                learning.session.cancel_run()
            elif state == "segmenting":
                self._in_background("Ending it", learning.session.cancel_run, lambda _: self.result.clear())
            elif path := QFileDialog.getExistingDirectory(self, "Folder of images"):
                self.segment_folder(path)

    def shut_down(self) -> None:
        """Stop learning; no thread is left."""
        if self._is_shut:
            return
        self._is_shut = True
        self._following.stop()
        self._drawing.stop()
        for emitter, call in self._connections():
            emitter.disconnect(call)
        for layer in list(self._followed):
            self._leave(layer)
        self._stop()

    # Learning.

    def _image(self) -> Image:
        image = self.image_choice.layer
        if image is None:
            raise InputError("no image: open one, for example by dropping its file on napari")
        return image

    @property
    def _channels(self) -> bool:
        return bool(self.channels_box.isChecked()) and self.channels_box.isEnabled()

    def _shown(self) -> TrainingPlane:
        """Find out what is to be learnt from."""
        image, labels = self._image(), self.labels_choice.layer
        if labels is None:
            raise InputError(f"no labels to paint on {image.name}: press New")
        check_shapes(image, labels, channels=self._channels)
        return TrainingPlane(image, labels, self._place(image))

    def _place(self, image: Image) -> Place:
        dims = self._viewer.dims
        if dims.ndisplay != 2:
            raise InputError(
                "napari shows three dimensions: go back to two (the cube below the list of layers)"
            )
        shift = dims.ndim - image.ndim
        shown = sorted(axis - shift for axis in dims.displayed)
        if shown[0] < (1 if self._channels else 0):
            raise InputError(
                f"the view shows an axis that {image.name} is not segmented along: roll the axes back"
            )
        sizes = labels_shape(image, channels=self._channels)
        first = image.ndim - len(sizes)
        at = np.rint(image.world_to_data(dims.point)).astype(int)
        return tuple(
            None if axis in shown else int(at[axis].clip(0, sizes[axis - first] - 1))
            for axis in range(first, image.ndim)
        )

    def _begin(self) -> tuple[Learning, str]:
        """Learn from what is chosen and painted now; gives the name of the plane."""
        shown = self._shown()
        if self.learning is not None and not self.learning.fits(shown.image, shown.place):
            self._stop()
            self._show_text("Begun anew: this image has other channels than those before")
        if self.learning is None:
            self.learning = Learning(self._enqueue, channels=self._channels, cache=self._cache)
            self.learning.session.live = self.live_box.isChecked()
            self.learning.session.set_objects(**self.objects.settings)
            self._watch_window()
        self._pair(shown.image, shown.labels)
        try:
            self._key = self.learning.show(shown)
        finally:
            self.learning.follow()
        self.learning.session.look(self._key, _visible(shown))
        if self._fault is not None:  # show again what the session is busy with
            self._fault = None
            self._show_text(self._status.text, self._status.done)
        return self.learning, self._key

    def _follow(self) -> None:
        """Follow what was painted, if learning has begun; what does not fit is said, not shouted."""
        try:
            if self.learning is None and not self.live_box.isChecked():
                self._shown()
                self._fault = None
                self._show_text("Paint, then learn and predict")
            else:
                self._begin()
        except SegkitError as error:
            self._key, self._fault = None, str(error)
            self._show_text(self._fault)

    def _stop(self) -> None:
        learning, self.learning, self._key = self.learning, None, None
        self._predicted, self._objects, self._counted = {}, {}, set()
        self._corrections.clear()
        self._status = Status("idle", None, 1.0, "")
        if learning is not None:
            learning.session.close()
        if self._task is not None:
            self._task.join()
        self._task = None
        self._news.clear()

    # News from other threads.

    def _enqueue(self, news: Any) -> None:
        """Take note of news, in any thread."""
        self._news.append(news)
        self._post.arrived.emit()

    def _news_came(self) -> None:
        if not self._drawing.isActive():
            self._drawing.start()

    def _take_news(self) -> None:
        changed: dict[int, Layer] = {}
        while self._news:
            news = self._news.popleft()
            if callable(news):
                news()
            elif isinstance(news, Prediction):
                for layer in self._draw(news):
                    changed[id(layer)] = layer
            elif isinstance(news, Status):
                self._status = news
                if self._fault is None:
                    self._show_text(news.text, news.done)
                if news.task == "needs labels" and news.key is not None:
                    self._clear(news.key)
            elif isinstance(news, Expected):
                self.expected.setText(_in_words(news))
            elif isinstance(news, Objects):
                self._objects[news.key] = news
                if news.key in self._counted:
                    self._show_objects(news)
            elif isinstance(news, Network):
                self._show_network(news)
            elif isinstance(news, Run):
                self._show_run(news)
            elif isinstance(news, Failed):
                self._show_error(news.message)
        for layer in changed.values():
            layer.refresh()

    def _draw(self, news: Prediction) -> list[Layer]:
        """Write a block of a prediction into the layers; gives those to refresh."""
        shown = self._shown_as(news.key)
        if shown is None:
            return []
        former = self._predicted.get(news.key)
        if former is not None and former.generation > news.generation:
            return []
        self._predicted[news.key] = news
        if news.key in self._objects and self._objects[news.key].generation < news.generation:
            del self._objects[news.key]
        return self._results.draw(shown, news)

    def _predicted_all(self, key: str, result: tuple[NDArray[np.uint8], NDArray[np.float32]]) -> None:
        shown = self._shown_as(key)
        if shown is not None:
            self._results.write(shown, PREDICTION, as_labels(result[0]))
        self.result.setText(f"{key} is predicted")

    def _clear(self, key: str) -> None:
        """Take a prediction away that no labels stand for any more."""
        shown = self._shown_as(key)
        self._predicted.pop(key, None)
        self._objects.pop(key, None)
        if shown is not None:
            self._results.clear(shown)

    def _show_objects(self, news: Objects) -> None:
        shown = self._shown_as(news.key)
        if shown is not None:
            is_new = self._results.find(shown.image, OBJECTS) is None
            self._results.write(shown, OBJECTS, news.labels)
            if is_new:
                self._arm(shown)
            self.objects.show_objects(news)

    def _show_network(self, news: Network) -> None:
        is_training = news.state == "training"
        self.network_button.setText("Cancel the network" if is_training else _TRAIN)
        left = "" if news.seconds_left is None else f", {news.seconds_left / 60:.0f} min left"
        by = {"network": "The network predicts. ", "kernel machine": "", "model": ""}[news.shown]
        share = f": {news.done:.0%}{left}" if is_training else ""
        self.network.setText(f"{by}{news.text}{share}" if news.state != "none" else "")

    def _show_run(self, news: Run) -> None:
        goes_on = news.state in ("training", "segmenting")
        self.folder_button.setText("Cancel the folder" if goes_on else _SEGMENT)
        left = "" if news.seconds_left is None else f", {news.seconds_left / 60:.0f} min left"
        told = f"{news.text}: {news.done:.0%}{left}" if goes_on else f"{news.text}: {news.output}"
        self.run.setText("\n".join([told, *news.notes]) if news.state != "none" else "")

    def _saved(self, written: HandOver) -> None:
        self.result.setText(
            f"Saved {written.model}. The command that makes the same model: {written.command}"
        )
        show_info(f"model saved: {written.model}")

    def _report(self, items: Iterable[Any], description: str) -> Iterator[Any]:
        """Show how far training is, from its thread."""
        self._enqueue(partial(self.result.setText, f"Training: {description}"))
        yield from items

    # Small services.

    def _shown_as(self, key: str) -> TrainingPlane | None:
        return None if self.learning is None else self.learning.planes.get(key)

    def _in_background(
        self,
        text: str,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        *,
        changing: tuple[Learning, str] | None = None,
    ) -> None:
        """Do work in a thread, then something with what it gave; it may be `changing` the labels of a plane."""
        if self._task is not None:
            raise InputError("segkit is still busy with the last request: wait until it is done")
        self._changing = changing is not None
        if changing is not None:
            changing[0].hold(changing[1])

        def run() -> None:
            outcome: Any
            try:
                outcome = partial(then, work())
            except CancelledError:
                return
            except Exception as error:  # the thread must not die without a word
                outcome = Failed(explain(error))
            if changing is not None:
                self._enqueue(partial(self._corrected, *changing))
            self._enqueue(outcome)
            self._enqueue(self._done)

        self.result.setText(text)
        self._task = threading.Thread(target=run, name="segkit-request", daemon=True)
        self._task.start()

    def _done(self) -> None:
        """Go on with what waits."""
        self._task = None
        while self._corrections and self._task is None:
            correction = self._corrections.popleft()
            if correction.learning is self.learning and correction.key in self.learning.planes:
                self.learning.follow()
                self._start_correction(correction)

    def _show_text(self, text: str, done: float = 1.0) -> None:
        self.status.setText(text)
        self.progress.setValue(round(100 * done))

    def _show_error(self, message: str) -> None:
        self._show_text(message)
        self.result.clear()
        show_error(message)

    @contextmanager
    def _showing_errors(self) -> Iterator[None]:
        """Report errors of segkit in a notification instead of raising them."""
        try:
            yield
        except SegkitError as error:
            self._show_error(str(error))

    # Closing.

    def _watch_window(self) -> None:
        parent = self.parentWidget()
        while parent is not None and not isinstance(parent, QMainWindow):
            parent = parent.parentWidget()
        if parent is not None and parent is not self._window:
            self._window = parent
            parent.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        """Stop learning when the window closes."""
        if event.type() == QEvent.Type.Close:
            self.shut_down()
        return bool(super().eventFilter(watched, event))

    def event(self, event: QEvent) -> bool:
        """Stop learning when the widget is taken out of the window."""
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            self.shut_down()
        return bool(super().event(event))

    def closeEvent(self, event: Any) -> None:  # noqa: N802
        """Stop learning."""
        self.shut_down()
        super().closeEvent(event)


def _button(text: str, tip: str, call: Callable[[], None]) -> QPushButton:
    button = QPushButton(text)
    button.setToolTip(tip)
    button.clicked.connect(lambda _: call())
    return button


def _visible(shown: TrainingPlane) -> tuple[int, int, int, int]:
    """Return the visible part of a plane; all of it as long as napari has not drawn it."""
    axes = [axis for axis, at in enumerate(shown.place) if at is None]
    sides = [int(shown.labels.data.shape[axis]) for axis in axes]
    corners = np.asarray(shown.labels.corner_pixels)[:, axes].astype(int)
    (top, left), (bottom, right) = (
        np.clip(corner, 0, sides).tolist() for corner in (corners[0], corners[1] + 1)
    )
    return (top, left, bottom, right) if bottom - top > 1 and right - left > 1 else (0, 0, sides[0], sides[1])


def _in_words(news: Expected) -> str:
    point = news.points[-1]
    interval = "" if point.low is None or point.high is None else f" ({point.low:.2f} to {point.high:.2f})"
    return (
        f"On images that were held out: object IoU of their strokes {point.object_iou:.2f}{interval}, mean IoU "
        f"{point.mean_iou:.2f}."
    )
