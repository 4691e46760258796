"""Memory and time of a prediction, before it is made."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from segkit._common import Progress, count, pass_on
from segkit._memory import bytes_left, bytes_used, describe, require_bytes
from segkit.errors import InputError
from segkit.features import FilterBank
from segkit.features.tiles import Tile, least_tile
from segkit.images import Reading
from segkit.images.large_image import is_by_region, shape_of_tiled
from segkit.images.read import TIFF_EXTENSIONS
from segkit.segmentation.plan import join_faults, make_plan, n_channels_of, reading_of

if TYPE_CHECKING:
    from segkit.segmentation.segmenter import Segmenter

# Bytes for each pixel of an image of two classes while it is predicted: decisions, labels, regions, probabilities.
_BYTES_OF_RESULTS = 64
# For each further class: a decision and a probability, in single and in double precision.
_BYTES_OF_CLASS = 24
# Maps that are kept of all tiles, in relation to those of the image: both sides of an edge keep the cells there.
_KEPT_TWICE = 1.05
# Side of the part of an image that the time is measured on.
_SIDE = 384


@dataclass(frozen=True)
class Estimate:
    """Tiles, memory and time of the prediction of a folder."""

    n_images: int
    n_tiles: int
    peak: int
    seconds: float
    faults: list[str]

    def tell(self) -> str:
        """Summarise all in one line."""
        return (
            f"{count(self.n_images, 'image')}, {count(self.n_tiles, 'tile')}, at most {describe(self.peak)} of memory, "
            f"about {self.seconds / 60:.1f} minutes; nothing was written"
        )


def estimate_folder(
    segmenter: Segmenter,
    images: Path,
    output: Path,
    kinds: Sequence[str],
    progress: Progress = pass_on,
    axes: str | None = None,
) -> Estimate:
    """Estimate memory and time of the prediction of a folder, and write nothing. `axes` are as for `predict_folder`."""
    reading = reading_of(segmenter) if axes is None else replace(reading_of(segmenter), axes=axes)
    plan = make_plan(segmenter, images, output, kinds, progress, reading)
    if not plan.fit:
        raise InputError(join_faults(plan.faults))
    shapes = [(*shape[:2], segmenter.n_image_channels_) for job in plan.fit for shape in job.shapes]
    tiles = [segmenter.bank_.tiles(shape) for shape in shapes]
    # the images of a file are read together, as stored and as floats
    of_file = max(sum(map(prod, job.shapes)) * 8 for job in plan.fit)
    peak = max(
        bytes_of_results(shape, segmenter.classes_.size)
        + _bytes_of_tiles(segmenter.bank_, shape, cut)
        + _bytes_kept(segmenter, shape, cut, of_file)
        for shape, cut in zip(shapes, tiles, strict=True)
    )
    n_seen = sum(prod(tile.shape) for cut in tiles for tile in cut)
    seconds = n_seen * _pace(segmenter, plan.fit[0].source, reading)
    n_tiles = sum(map(len, tiles))
    return Estimate(len(shapes), n_tiles, bytes_used() + of_file + peak, seconds, plan.faults)


def is_large(images: Path, segmenter: Segmenter) -> bool:
    """Return whether an image is read by region: by its kind, or by its header and the memory that is left."""
    if is_by_region(images):
        return True
    if not images.is_file() or images.suffix.lower() not in TIFF_EXTENSIONS or not segmenter.bank_.is_local:
        return False
    shape = shape_of_tiled(images)
    if shape is None:
        return False
    # as stored, as floats, and the results
    return math.prod(shape) * 8 + bytes_of_results(shape, segmenter.classes_.size) > bytes_left()


def require_memory(bank: FilterBank, shape: tuple[int, ...], n_classes: int) -> None:
    """Refuse an image whose results and smallest tile do not fit under the memory limit."""
    n_pixels = least_tile(shape, bank.halo, bank.alignment) if bank.is_local else shape[0] * shape[1]
    needed = bytes_of_results(shape, n_classes) + int(n_pixels * bank.bytes_per_pixel(shape[2]))
    require_bytes(needed, what=f"image of {shape[0]} x {shape[1]} pixels")


def bytes_of_results(shape: tuple[int, ...], n_classes: int) -> int:
    """Count the bytes of decisions, labels and probabilities of an image."""
    return shape[0] * shape[1] * (_BYTES_OF_RESULTS + _BYTES_OF_CLASS * (n_classes - 2))


def keeps_maps(
    bank: FilterBank, channels: NDArray[np.intp], shape: tuple[int, ...], n_classes: int, taken: int = 0
) -> bool:
    """Return whether the maps of channels of a whole image fit into memory beside a tile and the results."""
    needed = taken + bytes_of_kept(bank, channels, shape) + bytes_of_results(shape, n_classes)
    return needed + _bytes_of_tiles(bank, shape, bank.tiles(shape)) <= bytes_left()


def bytes_of_kept(bank: FilterBank, channels: NDArray[np.intp], shape: tuple[int, ...]) -> int:
    """Count the bytes of the maps of channels of a whole image."""
    n_cells = shape[0] * shape[1] * (bank.strides(shape[2])[channels] ** -2.0).sum()
    return int(4 * n_cells * _KEPT_TWICE)


def _bytes_kept(segmenter: Segmenter, shape: tuple[int, ...], tiles: Sequence[Tile], of_file: int) -> int:
    """Count the bytes of the maps that are kept of all tiles; 0 if none are."""
    rim = segmenter.objects_.rim
    judges = [segmenter.classifier_, *([rim] if rim else [])]
    channels = np.unique(np.concatenate([judge.nonlinear_channels for judge in judges]))
    bank, n_classes = segmenter.bank_, segmenter.classes_.size
    is_kept = len(tiles) > 1 and keeps_maps(bank, channels, shape, n_classes, of_file)
    return bytes_of_kept(bank, channels, shape) if is_kept else 0


def _bytes_of_tiles(bank: FilterBank, shape: tuple[int, ...], tiles: Sequence[Tile]) -> int:
    """Count the bytes of the maps of the largest tile."""
    return int(max(prod(tile.shape) for tile in tiles) * bank.bytes_per_pixel(shape[2]))


def _pace(segmenter: Segmenter, source: Path, reading: Reading) -> float:
    """Measure the seconds for each pixel at a part of an image; the first time filters are made, which does not count."""
    stack = reading.read(source)
    planes = [reading.scale(page, name=str(source)) for page in stack.pages]
    n_channels = n_channels_of(segmenter, reading)
    image = reading.in_context(planes, stack.layout, n_channels, name=str(source))[0]
    top, left = (max(0, (length - _SIDE) // 2) for length in image.shape[:2])
    part = image[top : top + _SIDE, left : left + _SIDE]
    segmenter.predict(part)
    start = time.perf_counter()
    segmenter.predict(part, return_checks=True)
    n_pixels: int = part.shape[0] * part.shape[1]
    return (time.perf_counter() - start) / n_pixels
