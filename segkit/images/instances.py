"""The objects of one image, from a label image or from outlines."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import count
from segkit.errors import InputError
from segkit.images.coco import Coco
from segkit.images.geojson import outlines_from_geojson
from segkit.images.outlines import OUTLINE_EXTENSIONS, Outlines, check_label_image, describe_oddities, paint
from segkit.images.read import read_mask_with_notes
from segkit.images.rois import outlines_from_rois


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
    content = _parse(path)
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


def _parse(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as JSON ({reason}): export it again") from error
