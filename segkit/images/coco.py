"""Objects in COCO files: polygons and run lengths, one file for many images."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError, count, first_few
from segkit.images.outlines import Outline, Outlines
from segkit.images.polygons import Polygon, trace
from segkit.images.stems import stem_of


class Coco:
    """Objects of many images, each the union of its polygons; crowds (``iscrowd``) are no objects."""

    def __init__(self, content: Mapping[str, Any], *, name: str = "COCO file") -> None:
        self._name = name
        try:
            self._images = {
                stem_of(PurePosixPath(entry["file_name"].replace("\\", "/"))): entry
                for entry in content["images"]
            }
            self._classes = {entry["id"]: str(entry["name"]) for entry in content.get("categories") or []}
            self._annotations: defaultdict[Any, list[Mapping[str, Any]]] = defaultdict(list)
            for entry in content["annotations"]:
                self._annotations[entry["image_id"]].append(entry)
            self._ids = {stem: entry["id"] for stem, entry in self._images.items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"not a COCO file ({error!r}), expected images with id and file_name, and annotations with "
                f"image_id: export it again",
                source=name,
            ) from error
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

    def outlines(self, stem: str) -> Outlines:
        """Return the objects of an image."""
        objects, left_out = [], Counter[str]()
        for entry in self._annotations[self._ids[stem]]:
            segmentation = entry.get("segmentation")
            if entry.get("iscrowd"):
                left_out["crowd"] += 1
            elif not segmentation:
                left_out["without segmentation"] += 1
            else:
                kind = self._classes.get(entry.get("category_id"), "")
                objects.append(Outline(self._polygons(segmentation), class_name=kind))
        height, width = (int(self._images[stem].get(side) or 0) for side in ("height", "width"))
        return Outlines(objects, left_out, (height, width) if height and width else None)

    def _polygons(self, segmentation: Any) -> list[Polygon]:
        try:
            if isinstance(segmentation, dict):
                return trace(decode_runs(segmentation["counts"], tuple(segmentation["size"]))).get(1, [])
            return [[np.asarray(points, dtype=np.float64).reshape(-1, 2)] for points in segmentation]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"damaged segmentation ({error}), expected [[x, y, x, y, ...]] or run lengths: export it again",
                source=self._name,
            ) from error


def decode_runs(counts: str | list[int], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Turn lengths of runs of 0 and 1, down the columns, into a mask.

    >>> decode_runs([1, 2, 1], (2, 2)).tolist()
    [[0, 1], [1, 0]]
    """
    runs = _decompress(counts) if isinstance(counts, str) else list(counts)
    height, width = shape
    if sum(runs) != height * width or min(runs, default=0) < 0:
        raise ValueError(f"runs of {sum(runs)} pixels for {height} x {width}")
    values = np.repeat(np.arange(len(runs)) % 2, runs)
    return values.reshape(width, height).T.astype(np.uint8)


def _decompress(text: str) -> list[int]:
    """Read groups of five bits, the lowest first; from the fourth on, the difference to the last but one."""
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        value |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            continue
        if bits & 0x10:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    return runs
