"""Files of a few images among many, by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError
from segkit.images import Pair, Reading, pair
from segkit.images.read import read_mask_with_notes
from segkit.images.stems import page_names


def read_stems(
    images: str | Path,
    masks: str | Path,
    stems: Sequence[str],
    *,
    n_channels: int | None = None,
    reading: Reading | None = None,
) -> list[tuple[str, NDArray[np.float32], NDArray[Any]]]:
    """Read images of a folder with their masks, by name; pages are named "stem#1", ..."""
    reading = reading or Reading()
    wanted = set(stems)
    found = []
    for entry in pairs_of(images, masks, stems):
        name, pages_of_mask = str(entry.image), read_mask_with_notes(entry.mask, axes=reading.axes)[0]
        stack = reading.read(entry.image, n_masks=len(pages_of_mask))
        planes = [reading.scale(page, name=name) for page in stack.pages]
        pages = reading.in_context(planes, stack.layout, n_channels or planes[0].shape[2], name=name)
        named = zip(page_names(entry.name, len(pages)), pages, pages_of_mask, strict=True)
        found += [item for item in named if item[0] in wanted]
    refuse_missing(stems, [stem for stem, _, _ in found], images)
    return found


def pairs_of(images: str | Path, masks: str | Path, stems: Sequence[str]) -> list[Pair]:
    """Find the files that may hold images of these names; pages are named "stem#1", ..."""
    files = {stem.rpartition("#")[0] for stem in stems} | set(stems)
    return [entry for entry in pair(images, masks) if entry.name in files]


def refuse_missing(stems: Sequence[str], found: Collection[str], images: str | Path) -> None:
    """Refuse names of images that were not found."""
    missing = set(stems) - set(found)
    if missing:
        raise InputError(
            f"{', '.join(sorted(missing))}: no such images in {images}, but they were there when the benchmark "
            f"started: put them back, or start again with --overwrite"
        )
