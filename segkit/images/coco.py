"""Objects in COCO files: polygons and run lengths, one file for many images."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError, count, first_few
from segkit.images.numbering import label_pieces
from segkit.images.outlines import ALL_OBJECTS, Outline, Outlines, check_shape
from segkit.images.stems import stem_of

# Of a run length in text: no image has more pixels.
_MOST_BITS = 60
_LONGEST_SIDE = 2**31


class Coco:
    """Objects of many images, each the union of its polygons or its run lengths."""

    def __init__(self, content: Mapping[str, Any], *, name: str = "COCO file") -> None:
        self._name = name
        try:
            named = [
                (stem_of(PurePosixPath(entry["file_name"].replace("\\", "/"))), entry)
                for entry in content["images"]
            ]
            self._images = dict(named)
            self._classes = {entry["id"]: str(entry["name"]) for entry in content.get("categories") or []}
            self._annotations: defaultdict[Any, list[Mapping[str, Any]]] = defaultdict(list)
            for entry in content["annotations"]:
                self._annotations[entry["image_id"]].append(entry)
            self._ids = {stem: entry["id"] for stem, entry in self._images.items()}
            numbers_of_ids = Counter(self._ids.values())
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(
                f"not a COCO file ({error!r}), expected images with id and file_name, and annotations with "
                f"image_id: export it again",
                source=name,
            ) from error
        for what, numbers in (
            ("name", Counter(stem for stem, _ in named)),
            ("id", numbers_of_ids),
        ):
            if twice := [str(one) for one, number in numbers.items() if number > 1]:
                raise InputError(
                    f"several images of one {what} ({first_few(twice)}), expected each once: export them to files apart",
                    source=name,
                )
        if unlisted := self._annotations.keys() - set(self._ids.values()):
            raise InputError(
                f"annotations of {count(len(unlisted), 'image')} that it does not list (image_id "
                f"{first_few([str(one) for one in unlisted])}), expected only of those under images: export it again",
                source=name,
            )
        self.stems = list(self._images)

    def stem_for(self, stem: str) -> str | None:
        """Find the image of a stem: the same path, else the only one of the same file name."""
        if stem in self._images:
            return stem
        last = stem.rpartition("/")[2]
        same = [known for known in self.stems if known.rpartition("/")[2] == last]
        return same[0] if len(same) == 1 else None

    def match(self, stems: Collection[str]) -> dict[str, str]:
        """Find the image of each stem, by stem; stems without one are left out, and so are two stems for one image."""
        found = {stem: known for stem in stems if (known := self.stem_for(stem)) is not None}
        times = Counter(found.values())
        return {stem: known for stem, known in found.items() if times[known] == 1 or stem == known}

    def outlines(
        self, stem: str, shape: tuple[int, int] | None = None, *, all_objects: bool = False
    ) -> Outlines:
        """Return the objects of an image; crowds in several pieces are refused, unless the user says `all_objects` are.

        Run lengths for another `shape` than that of the image are refused before any is read.
        """
        objects, left_out, crowds, boxes = [], Counter[str](), list[str](), list[str]()
        entry, of_image = self._images[stem], f"{self._name} ({stem})"
        sizes = self._size_of(entry)
        for annotation in self._annotations[entry["id"]]:
            if isinstance(runs := annotation.get("segmentation"), dict):
                sizes.add(self._size_of_runs(runs))
        if len(sizes) > 1:
            found = " and ".join(f"{height} x {width}" for height, width in sorted(sizes))
            raise InputError(
                f"image and run lengths of {found} pixels, expected one size: export it again",
                source=of_image,
            )
        size = next(iter(sizes), None)
        if size is not None:
            check_shape(size, shape or size, name=of_image)
        for annotation in self._annotations[entry["id"]]:
            segmentation, told = annotation.get("segmentation"), str(annotation.get("id", "without id"))
            if not segmentation:
                left_out["without segmentation"] += 1
                boxes += [told] if annotation.get("bbox") else []
                continue
            category = annotation.get("category_id")
            kind = self._classes.get(category, "") if isinstance(category, Hashable) else ""
            outline = self._outline(segmentation, kind)
            objects.append(outline)
            # annotation tools write so what was drawn with a brush
            is_crowd = not all_objects and str(annotation.get("iscrowd")).lower() in ("1", "true")
            crowds += [told] if is_crowd and _n_pieces(outline) > 1 else []
        if boxes:
            raise InputError(
                f"{count(len(boxes), 'annotation')} (id {first_few(boxes)}) with a box and without an outline, expected the "
                "outline of each object: draw it, or remove them",
                source=of_image,
            )
        if crowds and not all_objects:
            raise InputError(
                f"{count(len(crowds), 'mask')} (id {first_few(crowds)}) marked iscrowd, in pieces: objects, or groups? "
                f"If objects, {ALL_OBJECTS}; if groups, draw each object, or remove them",
                source=of_image,
            )
        return Outlines(objects, left_out, size)

    def _size_of(self, entry: Mapping[str, Any]) -> set[tuple[int, int]]:
        """Return the size of an image; none where the file does not tell it."""
        height, width = entry.get("height"), entry.get("width")
        if not (height and width):
            return set()
        try:
            return {_whole_sides(height, width)}
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"image of {repr(height)[:20]} x {repr(width)[:20]} pixels, expected whole numbers: export it again",
                source=self._name,
            ) from None

    def _size_of_runs(self, segmentation: Mapping[str, Any]) -> tuple[int, int]:
        """Return the size of the image that run lengths are for."""
        try:
            return _whole_sides(*segmentation["size"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._damaged(error) from error

    def _outline(self, segmentation: Any, class_name: str) -> Outline:
        """Return the outline of an object, by run lengths or by points."""
        if isinstance(segmentation, dict):
            return Outline([], class_name=class_name, mask=partial(self._mask, segmentation))
        try:
            polygons = [[np.asarray(points, dtype=np.float64).reshape(-1, 2)] for points in segmentation]
        except (TypeError, ValueError, OverflowError) as error:
            raise self._damaged(error) from error
        return Outline(polygons, class_name=class_name)

    def _mask(self, segmentation: Mapping[str, Any]) -> NDArray[np.uint8]:
        try:
            return decode_runs(segmentation["counts"], self._size_of_runs(segmentation))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InputError:
        return InputError(
            f"damaged segmentation ({error}), expected [[x, y, x, y, ...]] or run lengths: export it again",
            source=self._name,
        )


def _whole_sides(height: Any, width: Any) -> tuple[int, int]:
    """Return height and width of an image as whole numbers, of which COCO files have fractions too."""
    sides = int(height), int(width)
    if not all(0 < side < _LONGEST_SIDE for side in sides):
        raise ValueError(f"sides of {sides[0]:.9g} and {sides[1]:.9g} pixels")
    return sides


def _n_pieces(outline: Outline) -> int:
    """Count the pieces of an object."""
    return len(outline.polygons) if outline.mask is None else label_pieces(outline.mask())[1]


def decode_runs(counts: str | list[int], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Turn lengths of runs of 0 and 1, down the columns, into a mask.

    >>> decode_runs([1, 2, 1], (2, 2)).tolist()
    [[0, 1], [1, 0]]
    """
    runs = _decompress(counts) if isinstance(counts, str) else list(counts)
    height, width = shape
    if sum(runs) != height * width or min(runs, default=0) < 0:
        raise ValueError(f"runs of {sum(runs)} pixels for {height} x {width}")
    values = np.repeat((np.arange(len(runs)) % 2).astype(np.uint8), runs)
    return values.reshape(width, height).T


def _decompress(text: str) -> list[int]:
    """Read groups of five bits, the lowest first; from the fourth on, the difference to the last but one."""
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        value |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            if shift > _MOST_BITS:
                raise ValueError("a run without end")
            continue
        if bits & 0x10:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    return runs
