"""Memory and time of a prediction, before it is made."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path

from segkit._common import FloatArray, Progress, pass_on
from segkit._common.memory import bytes_used, describe
from segkit.errors import InputError, count
from segkit.images.large_image import open_large
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
    segmenter: Segmenter,
    images: Path,
    progress: Progress = pass_on,
    axes: str | None = None,
    level: int | None = None,
) -> Estimate:
    """Estimate memory and time of a prediction, and write nothing. `axes` and `level` are as for `predict_folder`."""
    reading = reading_of(segmenter, axes)
    bank, n_classes = segmenter.bank_, segmenter.classes_.size
    n_images, n_tiles, n_pixels, peak, faults, pace = 0, 0, 0, 0, [], None
    jobs, found = jobs_of(segmenter, images, level)
    for note in found.notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    for job in progress(jobs, "Looking at images"):
        try:
            if job.level is None:
                loaded = load_images(segmenter, job.source, reading)
                shapes = [image.shape for image in loaded.images]
                # the images of a file are read together, as stored and as floats; the results are whole
                in_file = sum(plane.size for plane in loaded.planes) * 8
                whole = in_file + max(bytes_of_results(shape, n_classes) for shape in shapes)
                part = loaded.images[0][_middle(shapes[0])]
            else:
                with open_large(job.source, job.level) as image:
                    shapes, whole, part = [image.shape], 0, image[_middle(image.shape)]
            pace = pace or _pace(segmenter, part)
        except Exception as error:  # whatever is raised, the other images are segmented
            faults.append(reason_of(error, job.source))
            continue
        for shape in shapes:
            tiles = bank.tiles(shape)
            n_tiles += len(tiles)
            n_pixels += sum(prod(tile.shape) for tile in tiles)
            peak = max(peak, whole + bytes_of_tiles(bank, shape, tiles))
        n_images += len(shapes)
    if pace is None:
        raise InputError(join_faults(faults))
    return Estimate(n_images, n_tiles, bytes_used() + peak, n_pixels * pace, faults)


def _middle(shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Return the region in the middle of an image that the time is measured on."""
    top, left = (max(0, (length - _SIDE) // 2) for length in shape[:2])
    return slice(top, min(top + _SIDE, shape[0])), slice(left, min(left + _SIDE, shape[1]))


def _pace(segmenter: Segmenter, part: FloatArray) -> float:
    """Measure the seconds for each pixel at a part of an image; the first time filters are made, which does not count."""
    segmenter.predict(part)
    start = time.perf_counter()
    segmenter.segment(part)
    n_pixels: int = part.shape[0] * part.shape[1]
    return (time.perf_counter() - start) / n_pixels
