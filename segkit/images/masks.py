"""Mask files of all kinds: label images and masks of classes as they are, outlines drawn at the size of their image."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common.memory import require_bytes
from segkit.errors import InputError, count, first_few
from segkit.images.coco import Coco
from segkit.images.geojson import outlines_from_geojson
from segkit.images.headers import HARMLESS_BYTES
from segkit.images.legend import Legend, find_legend, number_colours
from segkit.images.numbering import Mask, MasksAre, label_pieces
from segkit.images.outlines import (
    ALL_OBJECTS,
    NOT_ANNOTATED,
    OUTLINE_EXTENSIONS,
    REGION,
    Oddities,
    Outlines,
    check_label_image,
    describe_oddities,
    paint,
)
from segkit.images.read import read_mask_with_notes
from segkit.images.rois import outlines_from_rois
from segkit.images.stems import list_images, page_names

# Of memory, for each byte of a file of coordinates.
_BYTES_OF_JSON = 10
_SAVE_CLASSES = "save masks of classes as one file, with a value for each class"


@dataclass
class OpenMask:
    """A mask file: an array for each page, or outlines, drawn at the size of their image; or a folder of objects."""

    path: Path
    arrays: list[NDArray[Any]] = field(default_factory=list)
    source: Outlines | Coco | None = None
    is_folder: bool = False
    names: dict[int, str] | None = None

    @property
    def n_pages(self) -> int | None:
        """Number of pages; None of outlines."""
        return len(self.arrays) if self.source is None else None


class MaskReader:
    """Reader of mask files, which are called `kind`; a COCO file, which holds many images, is parsed once.

    If the user says that masks are instances, every outline is an object.
    """

    def __init__(
        self,
        *,
        axes: str | None = None,
        unlabelled: int | None = None,
        masks_are: MasksAre | None = None,
        kind: str = "mask",
    ) -> None:
        self.axes, self.unlabelled, self.kind = axes, unlabelled, kind
        self._all_objects = masks_are == "instances"
        self._coco: dict[Path, OpenMask] = {}
        self._kinds: dict[str, Path] = {}
        self._legends: dict[Path, Legend | None] = {}
        self._notes: list[str] = []
        self._oddities: dict[str, Oddities] = {}

    @property
    def notes(self) -> list[str]:
        """Notes on the files that were read, and on outlines that are not in the label images as they were drawn."""
        used = [legend.describe() for legend in self._legends.values() if legend is not None]
        return [*self._notes, *dict.fromkeys(used), *describe_oddities(self._oddities)]

    def open(self, path: Path) -> OpenMask:
        """Read a mask file."""
        if path in self._coco:
            return self._coco[path]
        if path.is_dir():
            labels, notes = read_objects(path)
            self._notes += notes
            return OpenMask(path, [labels], is_folder=True)
        if (source := open_objects(path)) is None:
            colours = _Colours(path, self._legends, are_objects=self._all_objects)
            arrays, notes = read_mask_with_notes(path, axes=self.axes, of_colours=colours.read)
            self._notes += notes
            return OpenMask(path, arrays, names=colours.names)
        found = OpenMask(path, source=source)
        if isinstance(source, Coco):
            self._coco[path] = found
        return found

    def pages(
        self,
        file: OpenMask,
        stem: str,
        sizes: Sequence[tuple[int, ...]] | None,
        image: Path | None = None,
    ) -> list[Mask]:
        """Return the mask of each page of an image; its sizes are needed for outlines, and checked for others."""
        n_pages = 1 if file.n_pages is None else file.n_pages
        if sizes is not None and len(sizes) != n_pages:
            of = f"for {count(len(sizes), 'page')} of {image or stem}, expected"
            told = f"{count(n_pages, 'page')} {of} a mask for each: annotate or remove pages"
            if file.source is not None:
                told = f"outlines {of} one page: save each page as a file"
            raise InputError(told, source=file.path)
        if file.source is None:
            names = page_names(str(image or file.path), n_pages)
            for name, wanted, page in zip(names, sizes or (), file.arrays, strict=False):
                if page.shape != tuple(wanted):
                    raise size_fault(name, wanted, page.shape, kind=self.kind)
            unlabelled = None if file.is_folder else self.unlabelled
            return [
                Mask(page, unlabelled, is_outlined=file.is_folder, names=file.names) for page in file.arrays
            ]
        outlines = self._outlines_of(file.source, stem, file.path, None if sizes is None else sizes[0])
        size = outlines.shape if sizes is None else sizes[0]
        if size is None:
            raise InputError(
                "outlines without the size of their image: give the images (--images DIR, in Python images= or shape=)",
                source=file.path,
            )
        name = f"{file.path} ({stem})" if isinstance(file.source, Coco) else str(file.path)
        labels, self._oddities[stem] = paint(
            outlines, (size[0], size[1]), name=name, all_objects=self._all_objects
        )
        is_partial = (labels == NOT_ANNOTATED).any()
        return [Mask(labels, NOT_ANNOTATED if is_partial else None, is_outlined=True)]

    def _check_kind(self, outlines: Outlines, path: Path) -> None:
        """Ask about annotations of QuPath if other files hold detections: a region without any looks like an object."""
        if outlines.kind and not self._all_objects:
            self._kinds.setdefault(outlines.kind, path)
        if len(self._kinds) > 1 and outlines.kind:
            raise InputError(
                f"annotations in {self._kinds['annotations'].name}, detections in {self._kinds['detections'].name}: are the "
                f"annotations objects, or regions without any? Give regions the class {REGION} in QuPath; if all are "
                f"objects, {ALL_OBJECTS}",
                source=path,
            )

    def _outlines_of(
        self, source: Outlines | Coco, stem: str, path: Path, size: tuple[int, ...] | None
    ) -> Outlines:
        """Return the outlines of one image: by its stem of a COCO file of several images."""
        if isinstance(source, Outlines):
            self._check_kind(source, path)
            return source
        known = source.stems[0] if len(source.stems) == 1 else source.stem_for(stem)
        if known is None:
            raise InputError(
                f"COCO file of {count(len(source.stems), 'image')}, none of them called {stem}, expected that image: "
                f"rename it in the file, or give the folder of images (load_pairs)",
                source=path,
            )
        shape = None if size is None else (size[0], size[1])
        return source.outlines(known, shape, all_objects=self._all_objects)


@dataclass
class _Colours:
    """Colours of a mask: classes by the legend of its folder, which is found once, or a number for each object."""

    path: Path
    legends: dict[Path, Legend | None]
    are_objects: bool
    names: dict[int, str] | None = None

    def read(self, page: NDArray[Any]) -> NDArray[Any] | None:
        """Return the values of a page of colours; None if nothing tells them."""
        if page.shape[2] != len("RGB") or page.dtype != np.uint8:
            return None
        if self.are_objects:
            return number_colours(page, name=str(self.path))
        folder = self.path.parent
        if folder not in self.legends:
            self.legends[folder] = find_legend(self.path)
        if (legend := self.legends[folder]) is None:
            if (page == page[:, :, :1]).all():
                return None
            raise InputError(
                "coloured mask without a legend, expected one value per pixel: save it as a grey or palette image, or put "
                "labelmap.txt beside it, with a line NAME:RED,GREEN,BLUE for each class (or is this the image, and the "
                "folders are swapped?)",
                source=self.path,
            )
        values = legend.read(page, name=str(self.path))
        self.names = None if values is None else dict(enumerate(legend.names.values()))
        return values


def size_fault(
    source: str | Path,
    image: Sequence[int],
    mask: Sequence[int],
    *,
    kind: str = "mask",
    cure: str | None = None,
) -> InputError:
    """Return the fault of a mask of another size than its image."""
    return InputError(
        f"image of {image[0]} x {image[1]} pixels, {kind} of {mask[0]} x {mask[1]}, expected one size: "
        f"{cure or f'export the {kind} at the size of the image'}",
        source=source,
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
    path, reader = Path(path), MaskReader(masks_are="instances", kind="label image")
    file = reader.open(path)
    if file.n_pages is not None and file.n_pages > 1:
        raise InputError(f"{file.n_pages} pages, expected one: save each page as a file", source=path)
    [mask] = reader.pages(file, path.name, None if shape is None else [shape])
    labels = check_label_image(mask.labels, name=str(path))
    for note in reader.notes:
        warnings.warn(note, stacklevel=2)
    return labels


def read_objects(folder: Path) -> tuple[NDArray[np.int32], list[str]]:
    """Read a folder of masks of one object each as a label image, and notes; where objects overlap, the later one wins."""
    files = [folder / path for path in list_images(folder)]
    labels: NDArray[np.int32] | None = None
    n_shared, in_pieces, notes = 0, list[str](), list[str]()
    if not any(re.search(r"\d", path.stem) for path in files):
        names = first_few([path.name for path in files])
        raise InputError(
            f"masks called {names}: objects, or classes? Number objects in their names; {_SAVE_CLASSES}",
            source=folder,
        )
    for number, path in enumerate(files, start=1):
        pages, told = read_mask_with_notes(path)
        notes += told
        values = np.unique(pages[0])
        if len(pages) > 1 or len(values[values != 0]) > 1:
            what = (
                f"{len(pages)} pages"
                if len(pages) > 1
                else f"values {first_few([str(one) for one in values])}"
            )
            raise InputError(
                f"{what} in a folder of masks of one object each, expected 0 and another value: name it like an image",
                source=path,
            )
        labels = np.zeros(pages[0].shape, dtype=np.int32) if labels is None else labels
        if pages[0].shape != labels.shape:
            raise size_fault(path, labels.shape, pages[0].shape, kind="object")
        inside = pages[0] != 0
        n_shared += int(np.count_nonzero(labels[inside]))
        in_pieces += [path.name] if label_pieces(inside)[1] > 1 else []
        labels[inside] = number
    assert labels is not None  # list_images found some
    if 2 * len(in_pieces) > len(files):
        raise InputError(
            f"{len(in_pieces)} of {count(len(files), 'mask')} ({first_few(in_pieces, most=3)}) in several pieces, expected "
            f"a file for each object: {_SAVE_CLASSES}",
            source=folder,
        )
    if n_shared:
        notes.append(f"{folder}: {count(n_shared, 'pixel')} of several objects: the later file counts there")
    return labels, notes


def open_objects(path: Path) -> Outlines | Coco | None:
    """Read a file of outlines; None of an image file."""
    suffix = path.suffix.lower()
    if suffix not in OUTLINE_EXTENSIONS:
        return None
    if not path.is_file():
        raise InputError("no such file: check its name and folder", source=path)
    if suffix in (".roi", ".zip"):
        return outlines_from_rois(path)
    if (needed := _BYTES_OF_JSON * path.stat().st_size) > HARMLESS_BYTES:
        require_bytes(needed, what="outlines", source=path)
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot be read as JSON ({reason}): export it again", source=path) from error
    if isinstance(content, dict) and "images" in content and "annotations" in content:
        return Coco(content, name=str(path))
    return outlines_from_geojson(content, name=str(path))
