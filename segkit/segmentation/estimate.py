"""Memory and time of a prediction, before it is made."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import prod
from pathlib import Path

from segkit._common import FloatArray, Progress, pass_on
from segkit._common.memory import bytes_used, describe
from segkit.errors import InputError, count
from segkit.segmentation.folders import jobs_of, reading_of
from segkit.segmentation.memory import bytes_of_results, bytes_of_tiles
from segkit.segmentation.outcome import join_faults, reason_of
from segkit.segmentation.results import load_images
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
    segmenter: Segmenter, images: Path, progress: Progress = pass_on, axes: str | None = None
) -> Estimate:
    """Estimate memory and time of the prediction of a folder, and write nothing. `axes` are as for `predict_folder`."""
    reading = reading_of(segmenter, axes)
    shapes, faults, of_file, seconds_per_pixel = [], [], 0, None
    for job in progress(jobs_of(images), "Looking at images"):
        try:
            loaded = load_images(segmenter, job.source, reading)
        except Exception as error:  # whatever is raised, the other images are segmented
            faults.append(reason_of(error, job.source))
            continue
        shapes += [image.shape for image in loaded.images]
        # the images of a file are read together, as stored and as floats
        of_file = max(of_file, sum(plane.size for plane in loaded.planes) * 8)
        if seconds_per_pixel is None:
            seconds_per_pixel = _pace(segmenter, loaded.images[0])
    if seconds_per_pixel is None:
        raise InputError(join_faults(faults))
    tiles = [segmenter.bank_.tiles(shape) for shape in shapes]
    peak = max(
        bytes_of_results(shape, segmenter.classes_.size) + bytes_of_tiles(segmenter.bank_, shape, cut)
        for shape, cut in zip(shapes, tiles, strict=True)
    )
    n_seen = sum(prod(tile.shape) for cut in tiles for tile in cut)
    n_tiles = sum(map(len, tiles))
    return Estimate(len(shapes), n_tiles, bytes_used() + of_file + peak, n_seen * seconds_per_pixel, faults)


def _pace(segmenter: Segmenter, image: FloatArray) -> float:
    """Measure the seconds for each pixel at a part of an image; the first time filters are made, which does not count."""
    top, left = (max(0, (length - _SIDE) // 2) for length in image.shape[:2])
    part = image[top : top + _SIDE, left : left + _SIDE]
    segmenter.predict(part)
    start = time.perf_counter()
    segmenter.segment(part)
    n_pixels: int = part.shape[0] * part.shape[1]
    return (time.perf_counter() - start) / n_pixels
