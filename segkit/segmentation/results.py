"""One image file segmented, and its results written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress
from segkit._files import saving, without_sync
from segkit.errors import InputError
from segkit.images import (
    PixelSize,
    Reading,
    read_pixel_size,
    write_geojson,
    write_labels,
    write_mask,
    write_overlay,
    write_probability,
    write_rois,
)
from segkit.images.alike import with_channels
from segkit.images.axes import Layout
from segkit.images.pixel_size import read_z_step
from segkit.images.stems import page_names
from segkit.objects.measure import measure
from segkit.objects.pictures import write_object_overlay
from segkit.objects.tables import ImageObjects
from segkit.segmentation.alarms import Alarms, columns_of
from segkit.segmentation.base import BaseSegmenter, Segmentation
from segkit.segmentation.outcome import ImageRow
from segkit.segmentation.plan import Job, misfit, n_channels_of

Pages = Sequence[NDArray[Any]]
# Columns of summary.csv that the segmentation of an image gives.
Columns = dict[str, float | str | None]


class _StackMetadata(NamedTuple):
    """Metadata of written stacks: those of their image."""

    layout: Layout
    pixel_size: PixelSize | None
    z_step: float | None


@without_sync()
def make_results(
    segmenter: BaseSegmenter,
    job: Job,
    folder: Path,
    *,
    pixel_size: PixelSize | None,
    reading: Reading,
    follow: Progress,
) -> Columns:
    """Segment the pages of a file, write the results into a folder, and return the columns of `columns_of`."""
    stack, n_channels = reading.read(job.source), n_channels_of(segmenter, reading)
    stored = stack.pages
    planes = [reading.scale(page, name=str(job.source)) for page in stored]
    fault = misfit(job.source, planes, n_channels)
    if fault or [plane.shape for plane in planes] != job.shapes or stack.layout != job.layout:
        raise InputError(fault or f"{job.source}: was replaced by another image meanwhile: --resume takes it")
    images = reading.in_context(planes, stack.layout, n_channels, name=str(job.source))
    planes = [with_channels(plane, n_channels) for plane in planes]
    size = pixel_size or read_pixel_size(job.source)
    written = _StackMetadata(stack.layout, size, read_z_step(job.source))
    found = segmenter.segment(images, objects=job.measured is not None, progress=follow)
    masks = [page.labels for page in found]
    if job.measured is None:
        # without overlays the loop is empty
        for page, mask, path in zip(planes, masks, job.extras.get("overlay", ()), strict=False):
            write_overlay(folder / path, page, segmenter.label_map_.encode(mask))
    else:
        measured = _write_objects(segmenter, job, folder, stored, planes, found, written)
        columns: dict[str, Any] = {"pixel_size": np.array(json.dumps(size)), **measured}
        with saving(folder / job.measured) as temporary:
            np.savez_compressed(temporary, **columns)
    if "probability" in job.extras:
        maps = _stack([_planes(page.probability) for page in found])
        write_probability(folder / job.extras["probability"][0], maps, **written._asdict())
    write_mask(folder / job.mask, _stack(masks), **written._asdict())
    alarms: Alarms | None = getattr(segmenter, "alarms_", None)
    checks = [page.check for page in found]
    return columns_of(checks, () if alarms is None else alarms.compare_file(str(stored[0].dtype), size))


def read_measured(path: Path, row: ImageRow) -> Iterator[ImageObjects]:
    """Read the measurements of the objects of each page of a written image."""
    height, width, n_pages = row.height or 0, row.width or 0, row.pages or 0
    with np.load(path, allow_pickle=False) as arrays:
        size = json.loads(str(arrays["pixel_size"]))
        for number, name in enumerate(page_names(row.image.removesuffix(Path(row.image).suffix), n_pages)):
            own = f"{number}/"
            table = {key.removeprefix(own): arrays[key] for key in arrays.files if key.startswith(own)}
            yield ImageObjects(name, (height, width), table, None if size is None else PixelSize(*size))


def _write_objects(
    segmenter: BaseSegmenter,
    job: Job,
    folder: Path,
    stored: Pages,
    images: Pages,
    found: Sequence[Segmentation],
    written: _StackMetadata,
) -> dict[str, NDArray[Any]]:
    """Write the objects of all pages, and return their measurements."""
    size = written.pixel_size
    labels = [page.objects for page in found if page.objects is not None]
    write_labels(folder / job.extras["objects"][0], _stack(labels), **written._asdict())
    names = np.array(segmenter.label_map_.names)
    measured: dict[str, NDArray[Any]] = {}
    for number, (page, picture, own, one) in enumerate(zip(images, stored, labels, found, strict=True)):
        table = measure(
            own,
            picture,
            probability=1 - one.probability[:, :, 0],
            classes=segmenter.label_map_.encode(one.labels),
            pixel_size=size,
        )
        table["class"] = names[table["class"]]
        class_of = dict(zip(table["label"].tolist(), table["class"].tolist(), strict=True))
        write_geojson(folder / job.extras["geojson"][number], own, class_of)
        if "rois" in job.extras:
            write_rois(folder / job.extras["rois"][number], own)
        if "overlay" in job.extras:
            write_object_overlay(folder / job.extras["overlay"][number], page, own)
        measured |= {f"{number}/{column}": values for column, values in table.items()}
    return measured


def _stack(pages: Pages) -> NDArray[Any]:
    """Pages of a file as one array; a single page as it is."""
    return pages[0] if len(pages) == 1 else np.stack(pages)


def _planes(probabilities: FloatArray) -> FloatArray:
    """Return the map of the second of two classes, (H, W), or the maps of all classes, (n_classes, H, W)."""
    return probabilities[:, :, 1] if probabilities.shape[2] == 2 else probabilities.transpose(2, 0, 1)
