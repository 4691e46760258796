"""segkit in napari: a dock widget that learns while you paint, and functions from layer to layer.

Importing this package imports neither napari nor Qt.
"""

from segkit.napari.layers import predict_layer, train_on_layers

__all__ = ["predict_layer", "train_on_layers"]
