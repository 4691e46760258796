"""The prediction of one image: painted coarsely first and then block by block, or that of a trained model at once."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, count
from segkit._threads import single_threaded_blas
from segkit.errors import InputError
from segkit.images.alike import fits, kind_of, with_channels
from segkit.live.classes import LabelClass
from segkit.live.features import Box, ImageFeatures
from segkit.live.learner import LiveModel
from segkit.segmentation.dense import decide_in
from segkit.segmentation.segmenter import Segmenter

# Side in pixels of the blocks of the fine prediction.
BLOCK = 256
Block = dict[str, Any]


class Canvas:
    """Decisions of a model at the pixels of an image, as far as they are known."""

    def __init__(self, model: LiveModel, features: ImageFeatures, generation: int, *, key: str) -> None:
        assert features.coarse is not None
        self.shape = features.shape
        self.generation, self.key = generation, key
        self.has_objects = False
        self._model, self._features = model, features
        self._coarse = model.decide_coarse(features.coarse)
        self._fine = np.empty((*self.shape, self._coarse.shape[2]), dtype=np.float32)
        rows, cols = (range(0, side, BLOCK) for side in self.shape)
        # blocks without decisions, and those that were not painted: `whole` decides and paints nothing
        self._todo = set(product(rows, cols))
        self._n_blocks = len(self._todo)
        if features.stride == 1:
            self._fine[:], self._todo = self._coarse, set()
        self._unpainted = set(self._todo)

    @property
    def classes(self) -> list[int]:
        """Mask values of the classes, rising."""
        return [int(value) for value in self._model.values]

    @property
    def done(self) -> float:
        """How much of the image is painted finely, 0 to 1."""
        return 1 - len(self._unpainted) / self._n_blocks

    def coarse(self) -> list[Block]:
        """Read the coarse prediction of the whole image; final if its stride is 1."""
        return [self._block_of(self._coarse, (0, 0), self._features.stride)]

    def next_block(self, box: Box) -> Block | None:
        """Decide on a block that shows in a box, the nearest to its middle first; None if all are known."""
        top, left, bottom, right = box
        seen = [
            (row, col)
            for row, col in self._unpainted
            if row < bottom and row + BLOCK > top and col < right and col + BLOCK > left
        ]
        if not seen:
            return None
        middle = (top + bottom - BLOCK) / 2, (left + right - BLOCK) / 2
        row, col = min(seen, key=lambda at: ((at[0] - middle[0]) ** 2 + (at[1] - middle[1]) ** 2, at))
        if (row, col) in self._todo:
            self._decide((row, col))
        self._unpainted.discard((row, col))
        return self._block((row, col))

    def again(self) -> list[Block]:
        """Read all that is known once more, after `read_as`."""
        if self._features.stride == 1:
            return self.coarse()
        rows, cols = (range(0, side, BLOCK) for side in self.shape)
        known = sorted(set(product(rows, cols)) - self._unpainted)
        return [*self.coarse(), *(self._block(at) for at in known)]

    def read_as(self, model: LiveModel, generation: int) -> Canvas:
        """Read the same decisions by another threshold and other probabilities."""
        other = copy(self)
        other._model, other.generation, other.has_objects = model, generation, False
        other._todo, other._unpainted = set(self._todo), set(self._unpainted)
        return other

    def whole(self) -> tuple[NDArray[np.uint8], FloatArray]:
        """Mask values (H, W) and probabilities (H, W, n_classes) of the whole image."""
        for at in sorted(self._todo):
            self._decide(at)
        return self._model.label(self._fine, self._threshold), self._model.rule.probabilities(self._fine)

    @property
    def _threshold(self) -> float:
        return self._model.rule.threshold_of(lambda: [self._coarse])

    def _decide(self, at: tuple[int, int]) -> None:
        row, col = at
        channels = self._model.classifier.channels_
        means = self._features.means
        assert means is not None
        box = (row, col, min(row + BLOCK, self.shape[0]), min(col + BLOCK, self.shape[1]))
        with single_threaded_blas():
            for view in self._features.views(box):
                self._fine[view.tile.core] = decide_in(view, self._model.classifier, means[channels])
        self._todo.discard(at)

    def _block(self, at: tuple[int, int]) -> Block:
        row, col = at
        return self._block_of(self._fine[row : row + BLOCK, col : col + BLOCK], at, 1)

    def _block_of(self, decisions: FloatArray, corner: tuple[int, int], stride: int) -> Block:
        values = self._model.label(decisions, self._threshold)
        probabilities = self._model.rule.probabilities(decisions)
        return _read_block(values, probabilities, self.classes, self.generation, corner, stride)


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
        probabilities = self._segmenter.rule_.probabilities(decisions)[:, :, order]
        values = self._values[self._segmenter.rule_.segment(decisions)]
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
        return [_read_block(self._values, self._probabilities, self.classes, self.generation, (0, 0), 1)]

    def next_block(self, box: Box) -> Block | None:  # noqa: ARG002
        """Return None: all is known."""
        return None

    def whole(self) -> tuple[NDArray[np.uint8], FloatArray]:
        """Mask values (H, W) and probabilities (H, W, n_classes)."""
        return self._values, self._probabilities


def _read_block(
    values: NDArray[np.uint8],
    probabilities: FloatArray,
    classes: list[int],
    generation: int,
    corner: tuple[int, int],
    stride: int,
) -> Block:
    """Return the contents of a `Prediction` of mask values (h, w) and probabilities (h, w, n_classes)."""
    second, first = np.partition(probabilities, -2, axis=2)[:, :, -2:].transpose(2, 0, 1)
    return {
        "generation": generation,
        "stride": stride,
        "corner": corner,
        "values": values,
        "probabilities": _as_bytes(probabilities.transpose(2, 0, 1)),
        "uncertainty": _as_bytes(1 - (first - second)),
        "classes": tuple(classes),
    }


def _as_bytes(values: FloatArray) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.rint(255 * values.clip(0, 1)), dtype=np.uint8)
