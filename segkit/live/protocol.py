"""What a live session needs to know of images and their labels, wherever these are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from segkit.live.classes import LabelClass
from segkit.live.drawing import Drawing, Patch


class Keyed(Protocol):
    """An image, by its name."""

    @property
    def key(self) -> str:
        """Name of the image."""


class Annotations(Protocol):
    """Images, their label images and the classes: a `Project` on disk, or an `ArrayProject` in memory."""

    classes: list[LabelClass]

    @property
    def images(self) -> Sequence[Keyed]:
        """The images, in order."""

    @property
    def output(self) -> Path | None:
        """Folder of what a session writes; None writes nothing."""

    def image(self, key: str) -> NDArray[np.float32]:
        """Return an image, (H, W, C) in [0, 1]."""

    def labels(self, key: str) -> Drawing:
        """Return the label image of an image."""

    def save(self, key: str) -> int:
        """Save the label image of an image, and return the `Drawing.version` that is safe."""

    def annotated(self) -> list[str]:
        """List the images with labels."""

    def accept(self, key: str, ids: NDArray[np.uint8]) -> Patch:
        """Take predictions as labels of pixels without one."""

    def set_classes(self, classes: Sequence[LabelClass]) -> None:
        """Rename, recolour, add or remove classes."""

    def training_options(self) -> dict[str, Any]:
        """Return the options with which `segkit.images.load_pairs` reads the label images."""

    def training_files(self) -> tuple[Path, Path]:
        """Return the folders of images and masks that training reads; they are written by then."""
