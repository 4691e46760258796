"""The prediction of one image: painted coarsely first and then block by block, or that of a trained model at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit._common.threads import single_threaded_blas
from segkit.errors import InputError, count
from segkit.images.alike import fits, kind_of, with_channels
from segkit.live.classes import LabelClass
from segkit.live.events import Prediction
from segkit.live.features import Box, ImageFeatures
from segkit.live.learner import LiveModel
from segkit.segmentation.alarms import expected_iou
from segkit.segmentation.dense import decide_in
from segkit.segmentation.object_model import ObjectModel
from segkit.segmentation.segmenter import Segmenter
from segkit.segmentation.summary import HeldOutScores

# Side in pixels of the blocks of the fine prediction.
BLOCK = 256
# Images whose decisions by an opened model stay in memory.
IMAGES_KNOWN = 8


class Canvas:
    """Decisions of a model at the pixels of an image, as far as they are known.

    `coarse` (h, w, n_outputs) are the decisions on the coarse grid of `features`; without `features`, at every pixel, and by
    `opened`.
    """

    def __init__(
        self,
        model: LiveModel,
        coarse: FloatArray,
        generation: int,
        *,
        key: str,
        features: ImageFeatures | None = None,
        opened: OpenedModel | None = None,
    ) -> None:
        self.key, self.features, self.opened = key, features, opened
        self.is_final = opened is not None  # no better model is to paint it
        self.shape = (coarse.shape[0], coarse.shape[1]) if features is None else features.shape
        self._coarse, self._stride = coarse, 1 if features is None else features.stride
        self._fine = coarse if self._stride == 1 else np.empty((*self.shape, coarse.shape[2]), np.float32)
        rows, cols = (range(0, side, BLOCK) for side in self.shape)
        self._blocks = [] if self._stride == 1 else list(product(rows, cols))
        self._todo = set(self._blocks)  # those without decisions
        self._begin()
        self._read_by(model, generation)

    def _begin(self) -> None:
        # `whole` decides and paints nothing, so that blocks without decisions are fewer than those to paint
        self._is_begun, self._unpainted, self.has_objects = False, set(self._blocks), False

    def _read_by(self, model: LiveModel, generation: int) -> None:
        self._model, self.generation = model, generation
        # one threshold for all blocks: that of the whole image
        self._rule = model.rule.adapted_to(self._coarse)

    @property
    def classes(self) -> list[int]:
        """Mask values of the classes, rising."""
        return sorted(self._model.values.tolist())

    @property
    def background(self) -> int:
        """Mask value of the first class."""
        return int(self._model.values[0])

    @property
    def done(self) -> float:
        """How much of the image is painted finely, 0 to 1."""
        return 1 - len(self._unpainted) / max(1, len(self._blocks))

    def next_block(self, box: Box) -> Prediction | None:
        """Read the whole coarsely, then blocks that show in a box, the nearest to its middle first; None at the end."""
        if not self._is_begun:
            self._is_begun = True
            return self._prediction(self._coarse, (0, 0), self._stride)
        top, left, bottom, right = box
        seen = [
            (row, col)
            for row, col in self._unpainted
            if row < bottom and row + BLOCK > top and col < right and col + BLOCK > left
        ]
        if not seen:
            return None
        middle = (top + bottom - BLOCK) / 2, (left + right - BLOCK) / 2
        nearest = min(seen, key=lambda at: ((at[0] - middle[0]) ** 2 + (at[1] - middle[1]) ** 2, at))
        if nearest in self._todo:
            self._decide(nearest)
        self._unpainted.discard(nearest)
        return self._block(nearest)

    def again(self) -> Canvas:
        """Return a canvas of the same decisions, to be painted anew."""
        other = copy(self)
        other._todo = set(self._todo)
        other._begin()
        return other

    def read_as(self, model: LiveModel, generation: int) -> Canvas:
        """Return a canvas of the same decisions, to be painted by another threshold and other probabilities."""
        other = self.again()
        other._read_by(model, generation)
        return other

    def whole(self) -> tuple[NDArray[np.uint8], FloatArray]:
        """Mask values (H, W) and probabilities (H, W, n_classes) of the whole image."""
        for at in sorted(self._todo):
            self._decide(at)
        return self._read(self._fine)

    def expected_object_iou(self) -> float | None:
        """Compute the object IoU of the whole prediction if its probabilities are right; None if no object is predicted."""
        values, probabilities = self.whole()
        ids = np.searchsorted(self.classes, values)
        found = expected_iou(ids, probabilities, np.zeros(len(self.classes))).object
        return None if np.isnan(found) else found

    def _decide(self, at: tuple[int, int]) -> None:
        features, classifier = self.features, self._model.classifier
        assert features is not None
        assert features.means is not None
        row, col = at
        box = (row, col, min(row + BLOCK, self.shape[0]), min(col + BLOCK, self.shape[1]))
        with single_threaded_blas():
            for view in features.views(box):
                self._fine[view.tile.core] = decide_in(view, classifier, features.means[classifier.channels_])
        self._todo.discard(at)

    def _read(self, decisions: FloatArray) -> tuple[NDArray[np.uint8], FloatArray]:
        values = self._model.values
        probabilities = self._rule.probabilities(decisions)
        return values[self._rule.segment(decisions)], probabilities[:, :, np.argsort(values)]

    def _block(self, at: tuple[int, int]) -> Prediction:
        row, col = at
        return self._prediction(self._fine[row : row + BLOCK, col : col + BLOCK], at, 1)

    def _prediction(self, decisions: FloatArray, corner: tuple[int, int], stride: int) -> Prediction:
        values, probabilities = self._read(decisions)
        second, first = np.partition(probabilities, -2, axis=2)[:, :, -2:].transpose(2, 0, 1)
        return Prediction(
            self.key,
            self.generation,
            stride,
            corner,
            values,
            probabilities=_as_bytes(probabilities.transpose(2, 0, 1)),
            uncertainty=_as_bytes(1 - (first - second)),
            classes=tuple(self.classes),
        )


@dataclass(eq=False)
class _Decided:
    """What a model knows of an image: its decisions, and the objects by the settings that were wanted last."""

    image: FloatArray
    decisions: FloatArray
    depth: FloatArray | None
    changes: dict[str, Any] = field(default_factory=dict)
    objects: NDArray[np.int32] | None = None


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
        self.segmenter = segmenter
        values = np.array([value_of[name] for name in names], dtype=np.uint8)
        self._model = LiveModel(values, segmenter.classifier_, segmenter.rule_)
        # of images seen last
        self._known: OrderedDict[str, _Decided] = OrderedDict()

    @property
    def values(self) -> set[int]:
        """Mask values of its classes."""
        return set(self._model.values.tolist())

    def paint(self, image: FloatArray, generation: int, *, key: str) -> Canvas:
        """Predict a whole image (H, W, C)."""
        return Canvas(self._model, self._decide(image, key).decisions, generation, key=key, opened=self)

    def _decide(self, image: FloatArray, key: str) -> _Decided:
        """Predict an image, or return what is known of it."""
        n_channels = self.segmenter.n_image_channels_
        if not fits(kind_of(image), n_channels):
            raise InputError(
                f"{key}: {count(image.shape[2], 'channel')}, the opened model was trained on {n_channels}: give images "
                "of the same kind"
            )
        known = self._known.pop(key, None)
        if known is None or not np.array_equal(known.image, image):
            decisions, depth = self.segmenter.decide(with_channels(image, n_channels))
            known = _Decided(image, np.atleast_3d(decisions), depth)
        self._known[key] = known
        while len(self._known) > IMAGES_KNOWN:
            self._known.popitem(last=False)
        return known

    def knows(self, key: str) -> bool:
        """Whether an image was painted lately, so that it takes no time to paint it again."""
        return key in self._known

    @property
    def held_out(self) -> HeldOutScores | None:
        """Scores on training images that were held out."""
        return self.segmenter.held_out_

    def find_objects(
        self, image: FloatArray, key: str, changes: dict[str, Any]
    ) -> tuple[NDArray[np.int32], ObjectModel]:
        """Find the objects of an image (H, W, C) as the model does, with settings changed by hand; also say how."""
        segmenter = self.segmenter.with_objects(**changes)
        known = self._decide(image, key)
        if known.objects is None or known.changes != changes:
            known.objects = segmenter.find_objects(known.decisions, known.depth)
            known.changes = changes
        return known.objects, segmenter.objects_


def _as_bytes(values: FloatArray) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.rint(255 * values.clip(0, 1)), dtype=np.uint8)
