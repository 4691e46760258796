"""The part of the widget that is about objects: count them, take them apart, correct them with the mouse."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
from napari.layers import Labels
from qtpy.QtCore import QSignalBlocker, Qt, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFormLayout,
    QGroupBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSlider,
    QSpinBox,
    QWidget,
)
from skimage.draw import polygon2mask

from segkit.errors import InputError, count
from segkit.live import ObjectEditor, Objects, Patch

Pixels = list[tuple[int, int]]


class Tool(NamedTuple):
    """What the mouse does with objects: what to do with it, and the correction of the pixels that it went over."""

    help: str
    correct: Callable[[ObjectEditor, str, Pixels, int], Patch]


def _outline(objects: ObjectEditor, key: str, pixels: Pixels, value: int) -> Patch:  # noqa: ARG001
    if len(pixels) < 3:
        raise InputError(f"{key}: an outline of {count(len(pixels), 'pixel')}: draw around an object")
    outline = np.array(pixels)
    corner = outline.min(axis=0)
    mask = polygon2mask(outline.max(axis=0) - corner + 1, outline - corner)  # type: ignore[no-untyped-call]
    return objects.draw(key, (int(corner[0]), int(corner[1])), mask)


TOOLS = {
    "accept": Tool(
        "Click on an object that is right", lambda objects, key, at, _: objects.accept(key, at[0])
    ),
    "delete": Tool("Click on what is no object", lambda objects, key, at, _: objects.delete(key, at[0])),
    "split": Tool("Draw a line across an object", lambda objects, key, at, _: objects.split(key, at)),
    "merge": Tool(
        "Draw from one object into the other",
        lambda objects, key, at, _: objects.merge(key, [at[0], at[-1]]),
    ),
    "outline": Tool("Draw around an object", _outline),
    "grow": Tool(
        "Press in the middle of an object, and drag to its farthest edge",
        lambda objects, key, at, _: objects.grow(key, at[0], reach=math.dist(at[0], at[-1]) or None),
    ),
    "classify": Tool(
        "Click on an object: it gets the label that is chosen to paint with",
        lambda objects, key, at, value: objects.classify(key, at[0], value),
    ),
}
_HANDS_OFF = "move the picture"
# Depth in radii at the left end of the slider; the right end is 1.
_LEAST_DEPTH = 0.01


class ObjectsPanel(QGroupBox):
    """Count of the objects of an image, how they are taken apart, and what the mouse does with them.

    `corrected` sends the name of a tool and the pixels that the mouse went over; `changed` that settings were, `armed` that
    another tool was chosen.
    """

    corrected = Signal(str, list)
    changed = Signal()
    armed = Signal()

    def __init__(self) -> None:
        super().__init__("Objects")
        # depth, smallest and fill_holes of LiveSession.set_objects; None as learnt
        self.settings: dict[str, Any] = dict.fromkeys(("depth", "smallest", "fill_holes"))
        self.count_button, self.accept_button, self.undo_button, self.learnt_button = (
            QPushButton(text) for text in ("Count objects", "Accept all", "Undo", "As learnt")
        )
        self.count_button.setToolTip("Number the objects of the prediction, in a layer that follows it")
        self.accept_button.setToolTip("All objects are right, and all else is background")
        self.undo_button.setToolTip("Take the last stroke or correction back")
        self.learnt_button.setToolTip("Find objects as the labels teach it")
        self.learnt_button.clicked.connect(lambda _: self._forget_settings())
        self.depth = QSlider(Qt.Orientation.Horizontal)
        self.depth.setRange(0, 100)
        self.depth.setTracking(False)
        self.depth.setToolTip("Touching objects are taken apart at passes of this depth. Left: more objects")
        self.depth.valueChanged.connect(lambda value: self._change(depth=_depth_of(value)))
        self.smallest = QSpinBox()
        self.smallest.setRange(-1, 10**6)
        self.smallest.setValue(-1)
        self.smallest.setSpecialValueText("as learnt")
        self.smallest.setSuffix(" px")
        self.smallest.setMinimumWidth(130)
        self.smallest.setKeyboardTracking(False)
        self.smallest.setToolTip("Least area of an object")
        self.smallest.valueChanged.connect(
            lambda value: self._change(smallest=None if value < 0 else float(value))
        )
        self.fill_box = QCheckBox("Fill holes")
        self.fill_box.setTristate(True)
        self.fill_box.setCheckState(Qt.CheckState.PartiallyChecked)
        self.fill_box.setToolTip("Half ticked: as learnt")
        self.fill_box.stateChanged.connect(lambda _: self._change(fill_holes=self._fills()))
        self.tools = QComboBox()
        self.tools.addItems([_HANDS_OFF, *TOOLS])
        self.tools.setToolTip("Corrections are labels: the next prediction learns from them")
        self.tools.currentIndexChanged.connect(lambda _: self.armed.emit())
        self.text = QLabel()
        self.text.setWordWrap(True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        form = QFormLayout(self)
        form.addRow(as_row(self.count_button, self.accept_button, self.undo_button))
        form.addRow("Cut more, less", as_row(self.depth, self.learnt_button))
        form.addRow("Smallest", as_row(self.smallest, self.fill_box))
        form.addRow("The mouse", self.tools)
        form.addRow(self.text)

    def _change(self, **setting: Any) -> None:
        self.settings |= setting
        self.changed.emit()

    def _fills(self) -> bool | None:
        """Return whether holes are filled; None as learnt."""
        state = self.fill_box.checkState()
        return None if state == Qt.CheckState.PartiallyChecked else state == Qt.CheckState.Checked

    def _forget_settings(self) -> None:
        with QSignalBlocker(self.smallest), QSignalBlocker(self.fill_box):
            self.smallest.setValue(-1)
            self.fill_box.setCheckState(Qt.CheckState.PartiallyChecked)
        self._change(**dict.fromkeys(self.settings))

    @property
    def tool(self) -> str | None:
        """The tool that is chosen."""
        name = self.tools.currentText()
        return name if name in TOOLS else None

    def show_objects(self, news: Objects) -> None:
        """Tell how many objects there are, and how they were taken apart."""
        few, many = news.interval or (news.count, news.count)
        about = f" ({few} to {many} in 80 of 100 images)" if news.interval is not None else ""
        checked = f", {len(news.checked)} of them checked" if news.checked else ""
        self.text.setText(f"{count(news.count, 'object')}{about} in {news.key}{checked}: {news.rule}")
        with QSignalBlocker(self.depth):
            depth = 1.0 if news.depth is None else max(news.depth, _LEAST_DEPTH)
            self.depth.setValue(round(100 * (1 - math.log(depth) / math.log(_LEAST_DEPTH))))

    def arm(self, layer: Labels) -> None:
        """Let the chosen tool work on a layer of objects, or let napari move it."""
        if self._follow_mouse not in layer.mouse_drag_callbacks:
            layer.mouse_drag_callbacks.append(self._follow_mouse)
        layer.mode = "pan_zoom"
        layer.mouse_pan = self.tool is None
        layer.help = "" if self.tool is None else TOOLS[self.tool].help

    def _follow_mouse(self, layer: Labels, event: Any) -> Generator[None, None, None]:
        """Gather pixels until the button of the mouse is let go, and send them."""
        if self.tool is None:
            return
        shift = len(event.position) - layer.ndim
        shown = [axis - shift for axis in event.dims_displayed]
        pixels: Pixels = []
        while event.type != "mouse_release":
            row, col = np.rint(layer.world_to_data(event.position)).astype(int)[shown].tolist()
            if pixels[-1:] != [(row, col)]:
                pixels.append((row, col))
            yield
        self.corrected.emit(self.tool, pixels)


def _depth_of(value: int) -> float:
    """Return the depth at a place of the slider, in radii."""
    return float(f"{_LEAST_DEPTH ** (1 - value / 100):.2g}")


def as_row(*widgets: QWidget) -> QHBoxLayout:
    """Lay widgets out side by side."""
    row = QHBoxLayout()
    for widget in widgets:
        row.addWidget(widget)
    return row
