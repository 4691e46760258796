"""Learning from pairs of an Image layer and a Labels layer: a live session that follows their pixels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import Progress
from segkit.errors import InputError
from segkit.images import UNLABELLED
from segkit.images.alike import fits, kind_of
from segkit.live import ArrayProject, Event, FeatureCache, HandOver, LiveSession
from segkit.live.classes import classes_of
from segkit.napari.layers import (
    BACKGROUND,
    Place,
    annotated_places,
    check_shapes,
    class_names,
    image_plane,
    index_of,
    labels_plane,
)

if TYPE_CHECKING:
    from napari.layers import Image, Labels

_COMMAND = "command.txt"


class TrainingPlane(NamedTuple):
    """A plane that is learnt from."""

    image: Image
    labels: Labels
    place: Place


def import_torchvision() -> None:
    """Import torchvision before a network needs it, without Triton: it and OpenGL of Mesa each hold LLVM, and both crash."""
    if "triton" in sys.modules:
        return
    sys.modules["triton"] = None  # type: ignore[assignment]
    try:
        import torchvision  # noqa: F401
    finally:
        del sys.modules["triton"]


class Learning:
    """A live session of planes of layers."""

    def __init__(
        self, listener: Callable[[Event], None], *, channels: bool = False, cache: FeatureCache | None = None
    ) -> None:
        self.project = ArrayProject(classes=classes_of(class_names([BACKGROUND, BACKGROUND + 1])))
        self.session = LiveSession(self.project, cache=cache)
        self.session.subscribe(listener)
        self.channels = channels
        self.planes: dict[str, TrainingPlane] = {}
        self._held: dict[str, NDArray[np.uint8]] = {}
        self._n_channels: int | None = None
        self._opened: str | None = None

    def fits(self, image: Image, place: Place) -> bool:
        """Return whether an image has the channels of those that are learnt from."""
        known = any(shown.image is image and shown.place == place for shown in self.planes.values())
        if known or self._n_channels is None:
            return True
        pixels = np.atleast_3d(image_plane(image, place, channels=self.channels)).astype(np.float32)
        return fits(kind_of(pixels), self._n_channels)

    def show(self, shown: TrainingPlane) -> str:
        """Learn from a plane, and from all annotated planes of its layers; gives its name in the session."""
        check_shapes(shown.image, shown.labels, channels=self.channels)
        for key, other in list(self.planes.items()):
            # one image has one Labels layer, and the other way round
            if (other.image is shown.image) != (other.labels is shown.labels):
                self.forget(key)
        is_new = not any(other.labels is shown.labels for other in self.planes.values())
        key = self._add(shown)
        if is_new and shown.place[-2:] == (None, None):
            for place in annotated_places(shown.labels):
                self._add(shown._replace(place=place))
        if key != self._opened:
            self.session.open(key)
            self._opened = key
        return key

    def follow(self) -> None:
        """Pass on which labels were painted or erased since the last time."""
        for key, shown in list(self.planes.items()):
            if key in self._held:
                continue
            try:
                check_shapes(shown.image, shown.labels, channels=self.channels)
            except InputError:  # told when it is shown
                self.forget(key)
                continue
            self._follow(key, labels_plane(shown.labels, shown.place))

    def forget(self, key: str) -> None:
        """Learn no more from a plane."""
        del self.planes[key]
        self._follow(key, np.full(self.project.labels(key).shape, UNLABELLED, dtype=np.uint8))

    def forget_layer(self, layer: Any) -> None:
        """Learn no more from a layer that is gone, or has other pixels now."""
        for key, shown in list(self.planes.items()):
            if layer is shown.image or layer is shown.labels:
                self.forget(key)

    def hold(self, key: str) -> None:
        """Do not follow what is painted in a plane until `release`: its labels are being changed from the other side."""
        self._held[key] = self.project.labels(key).snapshot()[0]

    def release(self, key: str) -> None:
        """Write into the layer of a plane what has changed in its labels since `hold`; what was painted since stays."""
        before, labels = self._held.pop(key), self.project.labels(key).snapshot()[0]
        shown = self.planes.get(key)
        if shown is not None and (changed := labels != before).any():
            new = labels[changed]
            shown.labels.data[index_of(shown.place)][changed] = np.where(new == UNLABELLED, 0, new)
            shown.labels.refresh()

    def train_network(self) -> None:
        """Train a network on all labels; see `LiveSession.train_network`."""
        import_torchvision()
        self.session.train_network()

    def segment(self, images: Path, output: Path) -> None:
        """Train on all labels and segment a folder; the model, images and labels go to a folder beside the results."""
        self.project.output = output.with_name(f"{output.name}-training")
        self.session.segment_folder(images, output)

    def save(self, path: Path, progress: Progress | None = None) -> HandOver:
        """Train on all labels and write the model; images, labels and the command go to a folder beside it."""
        self.project.output = path.with_name(f"{path.stem}-training")
        written = self.session.export(model=path, progress=progress)
        (self.project.output / _COMMAND).write_text(written.command + "\n", encoding="utf-8")
        return written

    def _add(self, shown: TrainingPlane) -> str:
        for key, other in self.planes.items():
            if other.image is shown.image and other.labels is shown.labels and other.place == shown.place:
                return key
        at = ", ".join(str(number) for number in shown.place if number is not None)
        key = f"{shown.image.name} at {at}" if at else shown.image.name
        if key in {entry.key for entry in self.project.images}:
            key += f" ({len(self.project.images) + 1})"
        self.project.add(key, image_plane(shown.image, shown.place, channels=self.channels))
        self._n_channels = self._n_channels or self.project.image(key).shape[2]
        self.planes[key] = shown
        return key

    def _follow(self, key: str, labels: NDArray[np.uint8]) -> None:
        known = self.project.labels(key).labels
        changed = labels != known
        if not changed.any():
            return
        values = np.unique(labels[changed]).tolist()
        classes = {one.value for one in self.project.classes}
        new = set(values) - classes - {UNLABELLED}
        if new:
            self.session.set_classes(classes_of(class_names(classes | new)))
        stroke = object()
        for value in values:
            self.session.paint(key, (0, 0), changed & (labels == value), value, stroke=stroke)
