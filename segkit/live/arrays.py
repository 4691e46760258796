"""Images given as arrays, and their labels in memory: nothing is written until a model is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import ArrayLike, NDArray

from segkit._common.arrays import as_array
from segkit._common.files import write_text
from segkit.errors import InputError, OutputError, count
from segkit.images.pixel_size import PixelSize
from segkit.images.read import check_image, to_float
from segkit.images.write import save_as, write_mask
from segkit.live.classes import LabelClass, without_class
from segkit.live.drawing import Drawing, has_labels
from segkit.live.files import is_checked, write_checked
from segkit.live.project import BaseProject, ImageEntry

_LISTED = "exported.json"


class ArrayProject(BaseProject):
    """Images given as arrays, their label images, and the classes, in memory.

    Parameters
    ----------
    images : mapping of str to array-like of shape (H, W) or (H, W, C)
        Images by name: bool, uint8, uint16, or float in [0, 1].
    classes : sequence of LabelClass, optional
        The classes; background (0) and foreground (1) by default.
    output : str or Path, optional
        Folder that `training_files` writes to.

    Attributes
    ----------
    images : list of ImageEntry
        The images, in the order in which they were given.
    classes : list of LabelClass
        The classes, sorted by value.
    output : Path or None
        The folder. It may be set later.

    Raises
    ------
    InputError
        If an image has another shape or dtype, is blank, or holds NaN; if classes share values or names.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from segkit.live import ArrayProject, FeatureCache, LiveSession
    >>> cache = FeatureCache(tempfile.mkdtemp())
    >>> image = np.zeros((32, 32))
    >>> image[:, 16:] = 0.8
    >>> with LiveSession(ArrayProject({"a": image}), cache=cache) as session:
    ...     _ = session.paint("a", (2, 2), np.ones((28, 4), dtype=bool), 0)
    ...     _ = session.paint("a", (2, 26), np.ones((28, 4), dtype=bool), 1)
    ...     mask, _ = session.predict("a")
    >>> mask[0, [0, -1]].tolist()
    [0, 1]
    """

    def __init__(
        self,
        images: Mapping[str, ArrayLike] | None = None,
        *,
        classes: Sequence[LabelClass] | None = None,
        output: str | Path | None = None,
    ) -> None:
        super().__init__(classes)
        self.output = None if output is None else Path(output)
        self.images: list[ImageEntry] = []
        self._pixels: dict[str, NDArray[Any]] = {}
        for key, image in (images or {}).items():
            self.add(key, image)

    def add(self, key: str, image: ArrayLike, labels: ArrayLike | None = None) -> None:
        """Add an image under a name that no other has.

        It is (H, W) or (H, W, C), of bool, uint8, uint16, or float in [0, 1], and copied. Labels are (H, W) uint8:
        values of classes, 255 for pixels without a label. An InputError says what does not fit.
        """
        if not isinstance(key, str) or not key:
            raise InputError(f"image name {key!r}: give some characters")
        if key in self._pixels:
            raise InputError(f"{key}: there is an image of this name already: give another name")
        pixels = np.array(as_array(image, name=key))
        if pixels.ndim not in (2, 3):
            raise InputError(
                f"{key}: image of shape {pixels.shape}, expected (H, W) or (H, W, C): give one plane"
            )
        pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
        if np.issubdtype(pixels.dtype, np.floating):
            pixels = to_float(pixels, name=key)
        check_image(to_float(pixels, name=key), name=key)
        shape = (pixels.shape[0], pixels.shape[1])
        drawing = Drawing.blank(shape) if labels is None else Drawing(labels)
        if drawing.shape != shape:
            raise InputError(
                f"{key}: labels of {drawing.shape} pixels, the image has {shape}: give labels of its size"
            )
        if odd := without_class(drawing.labels, self.classes):
            raise InputError(f"{key}: labels hold {odd}: add classes of these values")
        with self._guard:
            self._pixels[key], self._drawings[key] = pixels, drawing
            self._by_key[key] = ImageEntry(key)
            self.images = list(self._by_key.values())

    def image(self, key: str) -> NDArray[np.float32]:
        """Return an image, (H, W, C) float32 in [0, 1]."""
        self._entry(key)
        return to_float(self._pixels[key], name=key)

    @property
    def objects(self) -> Path | None:
        """Folder of the checked objects, as `training_files` writes them; None without a folder."""
        return None if self.output is None else self.output / "checked"

    def stored(self, key: str) -> tuple[NDArray[Any], PixelSize | None, tuple[str, ...]]:
        """Return an image with its own values; the size of a pixel and names of channels are not known."""
        self._entry(key)
        pixels = self._pixels[key]
        return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels, None, ()

    def labels(self, key: str) -> Drawing:
        """Return the label image of an image."""
        self._entry(key)
        return self._drawings[key]

    def save(self, key: str) -> int:
        """Return the version of the label image of an image: in memory it needs no saving."""
        return self.labels(key).version

    def unsaved(self) -> list[str]:
        """List images whose labels need saving: none, in memory."""
        return []

    def annotated(self) -> list[str]:
        """List the names of images with labels, in the order of `images`."""
        return [entry.key for entry in self.images if has_labels(self._drawings[entry.key].labels)]

    def training_files(self) -> tuple[Path, Path]:
        """Write annotated images and label images to ``images/`` and ``masks/`` of the folder; return these two.

        Files of an earlier export are replaced, and removed if they are not needed any more. Without a folder it raises
        an InputError; if the folder cannot be written, or holds images or masks of somebody else, an OutputError.
        """
        if self.output is None:
            raise InputError(
                "images in memory, and no folder to write them to: set project.output to a folder"
            )
        images, masks = self.output / "images", self.output / "masks"
        former = self._former(self.output)
        stems = dict(zip(self.annotated(), _stems(self.annotated()), strict=True))
        written = []
        for key, stem in stems.items():
            image, mask = images / f"{stem}.tif", masks / f"{stem}.png"
            _write_image(image, self._pixels[key])
            labels, numbers, _ = self._drawings[key].snapshot_of_objects()
            write_mask(mask, labels)
            written += [image, mask]
            if numbers.any():
                written.append(self.output / "checked" / f"{stem}.tif")
                write_checked(written[-1], [numbers])
        for path in former - set(written):
            path.unlink(missing_ok=True)
        listed = {key: f"{stem}.tif" for key, stem in stems.items()}
        write_text(self.output / _LISTED, json.dumps({"images": listed}, indent=1) + "\n")
        return images, masks

    def _former(self, output: Path) -> set[Path]:
        """Find the files of an earlier export; refuse to mix ours with others."""
        try:
            stored = json.loads((output / _LISTED).read_text(encoding="utf-8"))["images"].values()
            stems = {Path(str(name)).stem for name in stored}
        except (OSError, ValueError, KeyError, AttributeError):
            stems = set()
        images, masks = output / "images", output / "masks"
        ours = {images / f"{stem}.tif" for stem in stems} | {masks / f"{stem}.png" for stem in stems}
        objects = output / "checked"
        ours |= {path for stem in stems if is_checked(path := objects / f"{stem}.tif")}
        there = {path for folder in (images, masks, objects) if folder.is_dir() for path in folder.iterdir()}
        if foreign := sorted(there - ours):
            raise OutputError(
                f"{foreign[0]}: {count(len(foreign), 'file')} of another origin where images and masks are to be "
                "written: choose another place"
            )
        return ours & there


def _stems(keys: Sequence[str]) -> list[str]:
    """Make file names: of characters that every file system takes, and numbered, so that they differ."""
    # a number comes last: NAME_mask would be read as the mask of NAME
    plain = (re.sub(r"[^A-Za-z0-9]+", "-", key)[:60].strip("-") for key in keys)
    return [f"{name}-{place}".strip("-") for place, name in enumerate(plain, start=1)]


def _write_image(path: Path, pixels: NDArray[Any]) -> None:
    """Write an image (H, W, C) without loss."""
    pixels = pixels.astype(np.uint8) * np.uint8(255) if pixels.dtype == np.bool_ else pixels
    options: dict[str, Any] = {"photometric": "rgb" if pixels.shape[2] == 3 else "minisblack"}
    if pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    elif pixels.shape[2] != 3:
        pixels = np.ascontiguousarray(pixels.transpose(2, 0, 1))
        options["metadata"] = {"axes": "CYX"}
    save_as(path, [".tif"], lambda file: tifffile.imwrite(file, pixels, **options))
