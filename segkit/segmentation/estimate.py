"""Memory and time of a prediction, before it is made."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from segkit._common import Progress, count, pass_on
from segkit._memory import bytes_used, describe
from segkit.errors import InputError
from segkit.images import Reading
from segkit.segmentation.memory import bytes_of_results, bytes_of_tiles
from segkit.segmentation.plan import join_faults, make_plan, n_channels_of, reading_of
from segkit.segmentation.segmenter import Segmenter

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

    def summarise(self) -> str:
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
        bytes_of_results(shape, segmenter.classes_.size) + bytes_of_tiles(segmenter.bank_, shape, cut)
        for shape, cut in zip(shapes, tiles, strict=True)
    )
    n_seen = sum(prod(tile.shape) for cut in tiles for tile in cut)
    seconds = n_seen * _pace(segmenter, plan.fit[0].source, reading)
    n_tiles = sum(map(len, tiles))
    return Estimate(len(shapes), n_tiles, bytes_used() + of_file + peak, seconds, plan.faults)


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
    segmenter.segment(part)
    n_pixels: int = part.shape[0] * part.shape[1]
    return (time.perf_counter() - start) / n_pixels
