"""A choice among layers of napari."""

from __future__ import annotations

from napari.layers import Layer
from qtpy.QtCore import QSignalBlocker
from qtpy.QtWidgets import QComboBox


class LayerChoice(QComboBox):
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
