"""Mask files of all kinds: label images and masks of classes as they are, outlines drawn at the size of their image."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import count
from segkit.errors import InputError
from segkit.images.coco import Coco
from segkit.images.geojson import outlines_from_geojson
from segkit.images.outlines import (
    OUTLINE_EXTENSIONS,
    Oddities,
    Outlines,
    check_label_image,
    describe_oddities,
    paint,
)
from segkit.images.read import read_mask_with_notes
from segkit.images.rois import outlines_from_rois
from segkit.images.stems import (
    masks_beside_images,
    masks_by_stem,
    outline_names,
    outlines_by_stem,
    outlines_without_mask,
    stem_of,
)

# What a mask file holds: an array for each page, or outlines.
Drawn = list[NDArray[Any]] | Outlines | Coco


class MaskReader:
    """Reader of mask files; a COCO file, which holds many images, is parsed once."""

    def __init__(self, messages: list[str], *, axes: str | None = None) -> None:
        self._messages = messages
        self.axes = axes
        self._opened: dict[Path, Coco] = {}
        self._oddities: dict[str, Oddities] = {}

    def open(self, path: Path) -> Drawn:
        """Read a mask file."""
        if path in self._opened:
            return self._opened[path]
        source = open_objects(path)
        if isinstance(source, Coco):
            self._opened[path] = source
        if source is not None:
            return source
        masks, notes = read_mask_with_notes(path, axes=self.axes)
        self._messages += notes
        return masks

    def pages(
        self,
        drawn: Drawn,
        path: Path,
        stem: str,
        sizes: Sequence[tuple[int, ...]] | None,
        *,
        image: Path | None = None,
    ) -> list[NDArray[Any]]:
        """Return the mask of each page of an image: as the file holds it, or outlines drawn at the size of the image."""
        if isinstance(drawn, list):
            if sizes is None or len(drawn) == len(sizes):
                return drawn
            raise InputError(
                f"{path}: {count(len(drawn), 'page')} for {count(len(sizes), 'page')} of {image or stem}, "
                f"expected a mask for each: annotate or remove pages"
            )
        if sizes is not None and len(sizes) > 1:
            raise InputError(
                f"{path}: outlines for {len(sizes)} pages of {image or stem}, expected one page: save each page as a file"
            )
        outlines = outlines_of(drawn, stem, path)
        size = outlines.shape if sizes is None else sizes[0]
        if size is None:
            raise InputError(
                f"{path}: outlines without the size of their image: give the folder of images (--images DIR)"
            )
        name = f"{path} ({stem})" if isinstance(drawn, Coco) else str(path)
        mask, self._oddities[stem] = paint(outlines, (size[0], size[1]), name=name)
        return [mask]

    def notes(self) -> list[str]:
        """Describe what of the outlines is not in the label images as it was drawn."""
        return describe_oddities(self._oddities)


def find_masks(
    masks: Path, images: Collection[str], faults: list[str], messages: list[str]
) -> dict[str, Path]:
    """Find mask files: by the stem of the image for outlines, else by their own; a COCO file is the mask of many images."""
    if not masks.is_file() or masks.suffix.lower() not in OUTLINE_EXTENSIONS:
        return masks_by_stem(masks, images, faults, messages)
    source = open_objects(masks)
    if isinstance(source, Coco):
        own = source.match(images)
        return dict.fromkeys([*own, *(stem for stem in source.stems if stem not in own.values())], masks)
    names = outline_names(stem_of(Path(masks.name)))
    return {next((name for name in names if name in images), names[0]): masks}


def part_folder(
    folder: Path, file_of: Mapping[str, Path], faults: list[str], messages: list[str]
) -> tuple[dict[str, Path], dict[str, Path]]:
    """Part the files of one folder into images and their masks, by stem: NAME_mask beside NAME, or outlines."""
    beside = masks_beside_images(file_of)
    images = {stem: file for stem, file in file_of.items() if stem not in beside}
    masks = {stem: file for stem, file in file_of.items() if stem in beside}
    outlines, _ = outlines_by_stem(folder, images)
    return images, masks | outlines_without_mask(outlines, masks, faults, messages)


def size_fault(name: str, image: Sequence[int], mask: Sequence[int], *, kind: str = "mask") -> str:
    """State that a mask is of another size than its image."""
    return (
        f"{name}: image of {image[0]} x {image[1]} pixels, {kind} of {mask[0]} x {mask[1]}, "
        f"expected one size: export the {kind} at the size of the image"
    )


def read_instances(path: str | Path, shape: tuple[int, int] | None = None) -> NDArray[np.int32]:
    """Read the objects of one image.

    Parameters
    ----------
    path : str or Path
        A label image (PNG or TIFF: 0 for background, a number for each object), ImageJ's ROIs (``.zip`` or ``.roi``),
        GeoJSON (``.geojson`` or ``.json``), or a COCO file of one image.
    shape : tuple of int, optional
        Height and width of the image. Not needed for label images, nor for COCO files that tell it.

    Returns
    -------
    ndarray of shape (H, W), int32
        0 for background, the id of an object elsewhere: of outlines their names if all are different whole numbers
        above 0, else 1, 2, ... in the order of the file.

    Raises
    ------
    InputError
        If the file is missing, damaged, of another format or size, or holds several images.

    Warns
    -----
    UserWarning
        If objects overlap, lie outside the image, or have no area.
    """
    path = Path(path)
    source = open_objects(path)
    notes: list[str] = []
    if source is None:
        masks, notes = read_mask_with_notes(path)
        if len(masks) > 1:
            raise InputError(f"{path}: {len(masks)} pages, expected one: save each page as a file")
        labels = check_label_image(masks[0], name=str(path))
        if shape is not None and shape != labels.shape:
            raise InputError(
                f"{path}: label image of {labels.shape[0]} x {labels.shape[1]} pixels, image of {shape[0]} x {shape[1]}, "
                f"expected one size: export the labels at the size of the image"
            )
    else:
        outlines = outlines_of(source, None, path)
        size = shape or outlines.shape
        if size is None:
            raise InputError(
                f"{path}: outlines without the size of their image: give shape=(height, width), as of the image"
            )
        labels, oddities = paint(outlines, size, name=str(path))
        notes = describe_oddities({path.name: oddities})
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return labels


def open_objects(path: Path) -> Outlines | Coco | None:
    """Read a file of outlines; None of an image file."""
    suffix = path.suffix.lower()
    if suffix not in OUTLINE_EXTENSIONS:
        return None
    if not path.is_file():
        raise InputError(f"{path}: no such file: check its name and folder")
    if suffix in (".roi", ".zip"):
        return outlines_from_rois(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as JSON ({reason}): export it again") from error
    if isinstance(content, dict) and "images" in content and "annotations" in content:
        return Coco(content, name=str(path))
    return outlines_from_geojson(content, name=str(path))


def outlines_of(source: Outlines | Coco, stem: str | None, path: Path) -> Outlines:
    """Return the outlines of one image: by its stem of a COCO file of several images."""
    if isinstance(source, Outlines):
        return source
    if len(source.stems) == 1:
        return source.outlines(source.stems[0])
    known = None if stem is None else source.stem_for(stem)
    if known is None:
        raise InputError(
            f"{path}: COCO file of {count(len(source.stems), 'image')}, none of them called {stem}, expected that image: "
            f"rename it in the file, or give the folder of images (load_pairs)"
        )
    return source.outlines(known)
