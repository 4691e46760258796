"""Layers that segkit makes for an image: the prediction, where it is uncertain, and objects."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from napari.layers import Image, Labels, Layer
from napari.utils.colormaps import Colormap, DirectLabelColormap
from numpy.typing import NDArray

from segkit.images import UNLABELLED
from segkit.live import Prediction
from segkit.napari.layers import BACKGROUND, index_of, like
from segkit.napari.learning import TrainingPlane

# Names of layers, after that of the image.
PREDICTION, UNCERTAINTY, OBJECTS, DOUBTS = "prediction", "uncertainty", "objects", "doubts"
_MADE_BY_SEGKIT = "segkit"


@dataclass(eq=False)
class _ResultLayers:
    """Result layers of an image."""

    labels: Labels
    uncertainty: NDArray[np.uint8]
    layers: dict[str, Layer] = field(default_factory=dict)


class Results:
    """Layers of results, in a viewer."""

    def __init__(self, viewer: Any) -> None:
        self.shows_uncertainty = False
        self._viewer = viewer
        self._of: weakref.WeakKeyDictionary[Layer, _ResultLayers] = weakref.WeakKeyDictionary()

    def draw(self, shown: TrainingPlane, block: Prediction) -> list[Layer]:
        """Write a block of a prediction; gives the layers to refresh."""
        made = self._made(shown)
        prediction = self._layer(shown, PREDICTION)
        for data, values in (
            (prediction.data, as_labels(block.values)),
            (made.uncertainty, block.uncertainty),
        ):
            row, col = block.corner
            pixels = values.repeat(block.stride, axis=0).repeat(block.stride, axis=1)
            target = data[index_of(shown.place)][row : row + len(pixels), col : col + pixels.shape[1]]
            target[:] = pixels[: target.shape[0], : target.shape[1]]
        if self.shows_uncertainty:
            return [prediction, self._layer(shown, UNCERTAINTY)]
        return [prediction]

    def write(self, shown: TrainingPlane, name: str, values: NDArray[Any]) -> None:
        """Write a whole plane of one of the layers."""
        layer = self._layer(shown, name)
        layer.data[index_of(shown.place)] = values
        layer.refresh()

    def mark(self, shown: TrainingPlane, boxes: Mapping[int, tuple[int, int, int, int]]) -> None:
        """Draw the outlines of boxes of a plane, each with its number."""
        sides = [side for side, at in zip(shown.labels.data.shape, shown.place, strict=True) if at is None]
        values = np.zeros(sides, dtype=np.int32)
        for number, (top, left, bottom, right) in boxes.items():
            values[top:bottom, [left, right - 1]] = number
            values[[top, bottom - 1], left:right] = number
        self.write(shown, DOUBTS, values)

    def find(self, image: Image, name: str) -> Layer | None:
        """Find one of the layers of an image."""
        made = self._of.get(image)
        layer = None if made is None else made.layers.get(name)
        return layer if layer in self._viewer.layers else None

    def clear(self, shown: TrainingPlane) -> None:
        """Take the prediction of a plane away."""
        made = self._of.get(shown.image)
        if made is None:
            return
        made.uncertainty[index_of(shown.place)] = 0
        for name in {PREDICTION, UNCERTAINTY} & made.layers.keys():
            made.layers[name].data[index_of(shown.place)] = 0
            made.layers[name].refresh()

    def show_uncertainty(self, image: Image | None, *, on: bool) -> None:
        """Show or hide the uncertainty of an image, and of those to come."""
        self.shows_uncertainty = on
        made = None if image is None else self._of.get(image)
        if made is None:
            return
        if on:
            self._layer(TrainingPlane(image, made.labels, ()), UNCERTAINTY).visible = True
        elif UNCERTAINTY in made.layers:
            made.layers[UNCERTAINTY].visible = False

    def _made(self, shown: TrainingPlane) -> _ResultLayers:
        made = self._of.get(shown.image)
        shape = tuple(shown.labels.data.shape)
        if made is None or made.uncertainty.shape != shape:
            made = self._of[shown.image] = _ResultLayers(shown.labels, np.zeros(shape, dtype=np.uint8))
        made.labels = shown.labels
        return made

    def _layer(self, shown: TrainingPlane, name: str) -> Layer:
        """Return the layer of an image; it is made if it is not there."""
        made, layers = self._made(shown), self._viewer.layers
        if name in made.layers and made.layers[name] in layers:
            return made.layers[name]
        active = layers.selection.active
        # as the painted labels, which lie over the image and have no axis of channels
        options = {
            "name": f"{shown.image.name} {name}",
            "metadata": {_MADE_BY_SEGKIT: True},
            **like(made.labels),
        }
        # results of a hidden image would lie over the one that is looked at
        options["visible"] = shown.image.visible or shown.labels.visible
        shape = made.uncertainty.shape
        if name == UNCERTAINTY:
            # clear where there is no doubt, so that bright and dark images stay to be seen
            colours = Colormap([[0.9, 0.0, 0.9, 0.0], [0.9, 0.0, 0.9, 1.0]], name="uncertainty")
            options |= {"colormap": colours, "blending": "translucent", "contrast_limits": (0, 255)}
            layer = self._viewer.add_image(made.uncertainty, **options)
        elif name == PREDICTION:
            options |= {"opacity": 0.5, "colormap": _colours(made.labels)}
            layer = self._viewer.add_labels(np.zeros(shape, dtype=np.uint8), **options)
        else:
            layer = self._viewer.add_labels(np.zeros(shape, dtype=np.int32), **options)
        made.layers[name] = layer
        if made.labels in layers and layers.index(made.labels) < layers.index(layer):
            layers.move(layers.index(layer), layers.index(made.labels))  # strokes stay on top
        if active is not None:  # the reader goes on painting
            layers.selection.active = active
        return layer


def is_made(layer: Layer) -> bool:
    """Return whether segkit made a layer."""
    return bool(layer.metadata.get(_MADE_BY_SEGKIT))


def as_labels(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn mask values into labels of napari: 0 where there is none."""
    return np.where(values == UNLABELLED, 0, values).astype(np.uint8)


def _colours(labels: Labels) -> DirectLabelColormap:
    """Take the colours of the painted labels, but none for the background: the image stays visible there."""
    clear = np.zeros(4)
    colours = {label: labels.get_color(label) for label in range(BACKGROUND + 1, UNLABELLED)}
    return DirectLabelColormap(color_dict={None: clear, 0: clear, BACKGROUND: clear} | colours)
