"""One image file segmented, and its results written aside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress
from segkit._common.files import saving, without_sync
from segkit.errors import InputError, count
from segkit.images import (
    PixelSize,
    Reading,
    write_geojson,
    write_labels,
    write_mask,
    write_overlay,
    write_probability,
    write_rois,
)
from segkit.images.alike import Kind, fits, kind_of, with_channels
from segkit.images.axes import Layout, Stack
from segkit.images.headers import FORMATS
from segkit.images.pixel_size import GIVEN, FoundSize, find_pixel_size, read_z_step
from segkit.images.record import HIDDEN, key_of
from segkit.images.stems import page_names
from segkit.objects.measure import measure
from segkit.objects.pictures import write_object_overlay
from segkit.objects.tables import ImageObjects
from segkit.segmentation.alarms import Alarms, columns_of
from segkit.segmentation.base import BaseSegmenter, Segmentation
from segkit.segmentation.outcome import KINDS, ImageRow

Pages = Sequence[NDArray[Any]]


class Job(NamedTuple):
    """An image, its name in the folder of images, and its level of a pyramid if it is read by region."""

    source: Path
    name: str
    level: int | None = None

    @property
    def mask(self) -> Path:
        """Place of the mask in the output folder, if PNG can hold it; of labels by region an OME-Zarr of one, or a TIFF."""
        if self.level is None:
            return Path(self.name).with_suffix(".png")
        return Path(self.name).with_suffix(".zarr" if self.source.suffix.lower() == ".zarr" else ".tif")

    def places(self, kind: str, n_pages: int = 1) -> list[Path]:
        """Places of other results: one, or one for each page: STEM-001.png, STEM-002.png, ..."""
        extension, is_by_page = KINDS[kind]
        if self.level is not None:
            if kind in ("probability", "objects"):
                return [Path(kind) / self.mask]
            # ImageJ's regions hold coordinates of small images only
            return [] if kind == "rois" else [(Path(kind) / self.name).with_suffix(extension)]
        path = (Path(kind) / self.name).with_suffix(extension)
        if n_pages == 1 or not is_by_page:
            return [path]
        return [path.with_stem(f"{path.stem}-{page + 1:03d}") for page in range(n_pages)]

    @property
    def may_have_pages(self) -> bool:
        """Whether the file may hold several pages, by its extension; how many is known once it is read."""
        return not any(
            self.source.suffix.lower() in known.extensions for known in FORMATS.values() if known.reader
        )

    def possible_masks(self, dtype: np.dtype[Any]) -> list[Path]:
        """Places that a mask with values of this type may take."""
        if self.level is not None:  # a run that read the image as a whole left another
            return list(dict.fromkeys((self.mask, self.mask.with_suffix(".png"))))
        in_png = [self.mask] if fits_png(dtype) else []
        return in_png if in_png and not self.may_have_pages else [*in_png, self.mask.with_suffix(".tif")]

    def possible_places(self, kind: str) -> list[Path]:
        """Places that other results of one page, or of the first of several, may take."""
        of_pages = self.places(kind, 2)[:1] if self.may_have_pages else []
        return list(dict.fromkeys((*self.places(kind), *of_pages)))


class LoadedImages(NamedTuple):
    """A file as it is stored, and its pages as a segmenter reads them, without and with the planes around each."""

    stack: Stack
    kind: Kind
    planes: list[FloatArray]
    images: list[FloatArray]


class Appearance(NamedTuple):
    """What is compared with the training images: channels, their names, and the brightest pixel."""

    kind: Kind
    channels: tuple[str, ...]
    peak: float

    def to_list(self) -> list[Any]:
        """Return what JSON keeps."""
        return [list(self.kind), list(self.channels), self.peak]

    @classmethod
    def from_list(cls, values: Any) -> Appearance | None:
        """Restore what `to_list` gave; None of anything else."""
        try:
            (n_channels, is_grey), channels, peak = values
            return cls(Kind(int(n_channels), bool(is_grey)), tuple(map(str, channels)), float(peak))
        except (TypeError, ValueError):
            return None


class Made(NamedTuple):
    """Results of an image, made aside: their places, the mask last, what summary.csv and notes tell, and what failed."""

    places: list[Path]
    columns: dict[str, Any]
    appearance: Appearance | None = None
    fault: str = ""


class Corrected(NamedTuple):
    """A segmented page after corrections by hand.

    `checked` are the numbers of the objects that somebody checked; None of a page without labels. Of a page whose pixels
    all have labels nothing is expected any more.
    """

    segmentation: Segmentation
    checked: tuple[int, ...] | None = None


class Corrections(Protocol):
    """What people labelled and checked, see `segkit.live.corrections`."""

    def digest(self, job: Job) -> str:
        """Hash the labels of an image file; "" without any."""

    def correct(self, job: Job, stored: Pages, found: Sequence[Segmentation]) -> list[Corrected]:
        """Correct what was found in the pages of a file."""


class _StackMetadata(NamedTuple):
    """Metadata of written stacks: those of their image."""

    layout: Layout
    pixel_size: PixelSize | None
    z_step: float | None


def load_images(segmenter: BaseSegmenter, source: Path, reading: Reading) -> LoadedImages:
    """Read an image file as the training images were read; refuse one that does not fit."""
    stack = reading.read(source)
    planes = [reading.scale(page, name=str(source)) for page in stack.pages]
    n_channels = int(segmenter.n_image_channels_) // reading.n_planes
    kinds = [kind_of(plane) for plane in planes]
    if not all(fits(kind, n_channels) for kind in kinds):
        found = count(max(kind.n_channels for kind in kinds), "channel")
        raise InputError(
            f"{source} has {found}, the model was trained on {n_channels}: save it as the training images are"
        )
    if len({plane.shape for plane in planes}) > 1:
        raise InputError(f"{source} has pages of different sizes: save them as separate files")
    images = reading.in_context(planes, stack.layout, n_channels, name=str(source))
    return LoadedImages(stack, kinds[0], [with_channels(plane, n_channels) for plane in planes], images)


def fits_png(dtype: np.dtype[Any]) -> bool:
    """Return whether PNG can hold masks with values of this type."""
    return dtype in ("uint8", "uint16")


def measured_place(name: str) -> Path:
    """Return the hidden place of the measurements of the objects of an image."""
    return HIDDEN / "objects" / f"{key_of(name)}.npz"


@without_sync()
def make_results(
    segmenter: BaseSegmenter,
    job: Job,
    folder: Path,
    *,
    kinds: Sequence[str],
    pixel_size: PixelSize | None,
    reading: Reading,
    follow: Progress,
    corrections: Corrections | None = None,
) -> Made:
    """Segment the pages of a file, and write the mask and the other kinds of results into a folder."""
    stack, kind, planes, images = load_images(segmenter, job.source, reading)
    size, told_by = find_pixel_size(job.source) if pixel_size is None else FoundSize(pixel_size, GIVEN)
    written = _StackMetadata(stack.layout, size, read_z_step(job.source))
    extras = {name: job.places(name, len(planes)) for name in kinds}
    hidden = []
    predicted = segmenter.segment(images, objects="objects" in kinds, progress=follow)
    corrected = (
        [Corrected(page) for page in predicted]
        if corrections is None
        else corrections.correct(job, stack.pages, predicted)
    )
    found = [page.segmentation for page in corrected]
    masks = [page.labels for page in found]
    if "objects" not in kinds:
        # without overlays the loop is empty
        for page, mask, path in zip(planes, masks, extras.get("overlay", ()), strict=False):
            write_overlay(folder / path, page, segmenter.label_map_.encode(mask))
    else:
        measured = _write_objects(segmenter, extras, folder, stack.whole, planes, corrected, written)
        columns: dict[str, Any] = {"pixel_size": np.array(json.dumps([size, told_by])), **measured}
        hidden = [measured_place(job.name)]
        with saving(folder / hidden[0]) as temporary:
            np.savez_compressed(temporary, **columns)
    if "probability" in kinds:
        maps = _stack([_planes(page.probability) for page in found])
        write_probability(folder / extras["probability"][0], maps, **written._asdict())
    is_png = len(masks) == 1 and fits_png(segmenter.classes_.dtype)
    mask_place = job.mask if is_png else job.mask.with_suffix(".tif")
    write_mask(folder / mask_place, _stack(masks), **written._asdict())
    alarms: Alarms | None = getattr(segmenter, "alarms_", None)
    notes = () if alarms is None else alarms.compare_file(str(stack.pages[0].dtype), size)
    height, width, _ = planes[0].shape
    return Made(
        [*hidden, *(place for places in extras.values() for place in places), mask_place],
        {
            "height": height,
            "width": width,
            "pages": len(planes),
            **columns_of([page.check for page in found], notes),
        },
        Appearance(kind, stack.layout.channels, max(float(plane.max()) for plane in planes)),
    )


def read_measured(path: Path, row: ImageRow) -> Iterator[ImageObjects]:
    """Read the measurements of the objects of each page of a written image."""
    height, width, n_pages = row.height or 0, row.width or 0, row.pages or 0
    with np.load(path, allow_pickle=False) as arrays:
        size, told_by = json.loads(str(arrays["pixel_size"]))
        for number, name in enumerate(page_names(row.image.removesuffix(Path(row.image).suffix), n_pages)):
            own = f"{number}/"
            table = {key.removeprefix(own): arrays[key] for key in arrays.files if key.startswith(own)}
            known = None if size is None else PixelSize(*size)
            # what is read by region is not compared with the training images
            is_alike = not row.warning and row.tiles is None
            yield ImageObjects(name, (height, width), table, known, told_by, is_alike)


def _write_objects(
    segmenter: BaseSegmenter,
    extras: dict[str, list[Path]],
    folder: Path,
    stored: Stack,
    images: Pages,
    found: Sequence[Corrected],
    written: _StackMetadata,
) -> dict[str, NDArray[Any]]:
    """Write the objects of all pages, and return their measurements."""
    size, splitter = written.pixel_size, segmenter.objects_.splitter
    labels = [page.segmentation.objects for page in found if page.segmentation.objects is not None]
    write_labels(folder / extras["objects"][0], _stack(labels), **written._asdict())
    names = np.array(segmenter.label_map_.names)
    measured: dict[str, NDArray[Any]] = {}
    for number, (page, picture, own, (one, checked)) in enumerate(
        zip(images, stored.pages, labels, found, strict=True)
    ):
        table = measure(
            own,
            picture,
            probability=1 - one.probability[:, :, 0],
            # the pixels of a hole that was filled are of the class around it
            classes=splitter.fill(segmenter.label_map_.encode(one.labels)),
            pixel_size=size,
            channels=stored.layout.channels,
        )
        table["class"] = names[table["class"]]
        if checked is not None:
            table["checked"] = np.isin(table["label"], checked)
        class_of = dict(zip(table["label"].tolist(), table["class"].tolist(), strict=True))
        write_geojson(folder / extras["geojson"][number], own, class_of)
        if "rois" in extras:
            write_rois(folder / extras["rois"][number], own)
        if "overlay" in extras:
            write_object_overlay(folder / extras["overlay"][number], page, own)
        measured |= {f"{number}/{column}": values for column, values in table.items()}
    return measured


def _stack(pages: Pages) -> NDArray[Any]:
    """Pages of a file as one array; a single page as it is."""
    return pages[0] if len(pages) == 1 else np.stack(pages)


def _planes(probabilities: FloatArray) -> FloatArray:
    """Return the map of the second of two classes, (H, W), or the maps of all classes, (n_classes, H, W)."""
    return probabilities[:, :, 1] if probabilities.shape[2] == 2 else probabilities.transpose(2, 0, 1)
