"""The prediction of a trained model, to be looked at and corrected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, count
from segkit.errors import InputError
from segkit.images.alike import fits, kind_of, with_channels
from segkit.live.canvas import Block, read_block
from segkit.live.classes import LabelClass
from segkit.live.features import Box
from segkit.segmentation.segmenter import Segmenter


class OpenedModel:
    """A trained model, and the mask values that the project gives its classes."""

    def __init__(self, segmenter: Segmenter, classes: Sequence[LabelClass]) -> None:
        value_of = {one.name: one.value for one in classes}
        names = segmenter.label_map_.names
        unknown = [name for name in names if name not in value_of]
        if unknown:
            raise InputError(
                f"the model knows class {unknown[0]!r}, the project {', '.join(map(repr, value_of))}: name the classes "
                f"as the model does, --classes {','.join(names)}"
            )
        self._segmenter = segmenter
        self._values = np.array([value_of[name] for name in names], dtype=np.uint8)

    def paint(self, image: FloatArray, generation: int, *, key: str) -> OpenedCanvas:
        """Predict a whole image (H, W, C)."""
        n_channels = self._segmenter.n_image_channels_
        if not fits(kind_of(image), n_channels):
            raise InputError(
                f"{key}: {count(image.shape[2], 'channel')}, the opened model was trained on {n_channels}: give images "
                "of the same kind"
            )
        decisions = self._segmenter._scores(with_channels(image, n_channels))
        order = np.argsort(self._values)
        probabilities = self._segmenter._probabilities(decisions)[:, :, order]
        values = self._values[self._segmenter._labels(decisions)]
        return OpenedCanvas(values, probabilities, self._values[order].tolist(), generation, key=key)


class OpenedCanvas:
    """Prediction of a trained model for one image, with the interface of a `Canvas`."""

    done = 1.0

    def __init__(
        self,
        values: NDArray[np.uint8],
        probabilities: FloatArray,
        classes: list[int],
        generation: int,
        *,
        key: str,
    ) -> None:
        self.shape: tuple[int, int] = (values.shape[0], values.shape[1])
        self.classes, self.generation, self.key = classes, generation, key
        self.has_objects = False
        self._values, self._probabilities = values, probabilities

    def coarse(self) -> list[Block]:
        """Read the prediction of the whole image; it is final."""
        return [read_block(self._values, self._probabilities, self.classes, self.generation, (0, 0), 1)]

    def next_block(self, box: Box) -> Block | None:  # noqa: ARG002
        """Return None: all is known."""
        return None

    def whole(self) -> tuple[NDArray[np.uint8], FloatArray]:
        """Mask values (H, W) and probabilities (H, W, n_classes)."""
        return self._values, self._probabilities
