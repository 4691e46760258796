"""Folders of masks measured into tables and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import Progress, pass_on
from segkit.errors import InputError, OutputError, count, first_few
from segkit.images import IMAGE_EXTENSIONS, UNLABELLED, LabelMap, PixelSize
from segkit.images.axes import Stack
from segkit.images.findings import Findings
from segkit.images.labels import MOST_CLASSES
from segkit.images.masks import MaskReader
from segkit.images.matching import find_masks, masks_among_images, match_masks
from segkit.images.numbering import (
    Mask,
    MaskOptions,
    MasksAre,
    check_meaning,
    check_options,
    describe_numbers,
    label_pieces,
    with_legend,
)
from segkit.images.outputs import refuse_existing, refuse_nesting, refuse_unwritable
from segkit.images.pixel_size import GIVEN, FoundSize, check_pixel_size, find_pixel_size
from segkit.images.read import image_from_page, read_stack
from segkit.images.stems import Files, files_by_stem, page_names, stem_of
from segkit.objects.measure import measure
from segkit.objects.pictures import write_object_overlay
from segkit.objects.tables import (
    IMAGES_FILE,
    OBJECTS_FILE,
    ImageObjects,
    ImageSummary,
    write_images,
    write_objects,
)

OVERLAY_FOLDER = "overlay"


@dataclass(frozen=True, eq=False)
class MeasuredFolder:
    """Measurements of a folder."""

    images: list[ImageSummary]
    messages: list[str]
    files: list[Path]


class _Job(NamedTuple):
    """A mask file, the name it has there and its image, and for each page a name and the place of its picture."""

    mask: Path
    stem: str
    image: Path | None
    names: list[str]
    pictures: list[Path]


def measure_folder(
    masks: str | Path,
    output: str | Path,
    *,
    images: str | Path | None = None,
    masks_are: MasksAre | None = None,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
    axes: str | None = None,
    pixel_size: float | tuple[float, float] | None = None,
    overlay: bool = False,
    overwrite: bool = False,
    skip: Collection[str] = (),
    progress: Progress | None = None,
) -> MeasuredFolder:
    """Measure every object of a folder of masks."""
    masks, output = Path(masks), Path(output)
    images = None if images is None else Path(images)
    options = MaskOptions(labels, unlabelled, masks_are)
    if overlay and images is None:
        raise InputError(
            "overlays need the images to draw on: give their folder (--images DIR), or no overlay"
        )
    check_options(options)
    given = None if pixel_size is None else check_pixel_size(pixel_size)
    for folder in (masks, images):
        if folder is not None:
            refuse_nesting(folder, output)
    matched, notes = _match(masks, images, skip)
    plan = _plan(matched, output, _reader(options, axes), overlay=overlay)
    jobs = plan.jobs
    label_map, told = _classes(plan.masks, options)
    tables = [output / OBJECTS_FILE, output / IMAGES_FILE]
    pictures = [path for job in jobs for path in job.pictures]
    files = [*tables, *(pictures if overlay else [])]
    refuse_existing(files, overwrite=overwrite)
    if not overlay and (left := [path for path in pictures if path.exists()]):
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise OutputError(
            f"{left[0]}{more} of an earlier run would stay beside the new tables: draw them anew too (--overlay; in "
            "Python overlay=True), or choose another folder"
        )
    for path in files:
        refuse_unwritable(path, within=output)
    follow = (progress or pass_on)(jobs, "Measuring")
    reader = _reader(options, axes)
    rows = (
        entry for job in follow for entry in _measure_file(job, reader, label_map, given, overlay=overlay)
    )
    summaries = write_objects(tables[0], rows)
    write_images(tables[1], summaries, classes=() if label_map is None else label_map.names[1:])
    return MeasuredFolder(summaries, [told[0], *notes, *plan.notes, *told[1:]], files)


def _reader(options: MaskOptions, axes: str | None) -> MaskReader:
    return MaskReader(axes=axes, unlabelled=options.unlabelled, masks_are=options.masks_are)


def _match(
    masks: Path, images: Path | None, skip: Collection[str]
) -> tuple[list[tuple[str, Path, Path | None]], list[str]]:
    """Return name, mask file and image file of each mask, and notes."""
    if images is not None and images.is_file() and masks.is_file():
        return [(stem_of(Path(images.name)), masks, images)], []
    is_same = images is not None and images.is_dir() and masks.exists() and images.samefile(masks)
    listed = Files() if images is None else files_by_stem(images, with_masks=is_same)
    image_of = listed.path_of
    files = masks_among_images(masks, image_of) if is_same else find_masks(masks, image_of)
    files.refuse()
    skipped = tuple(f"{name}/" for name in skip if masks.is_dir())
    files.path_of = {key: path for key, path in files.path_of.items() if not key.startswith(skipped)}
    if not files.path_of:
        raise InputError(f"no masks but in {first_few(sorted(skip))}: give the folder of masks", source=masks)
    found = match_masks(image_of, files)
    found.refuse()
    found.notes += [*listed.notes, *files.notes]
    missing = sorted((files.names(key)[0], files.path_of[key]) for key in found.masks)
    if images is None:
        return [(stem, path, None) for stem, path in missing], found.notes
    if missing or not found.pairs:
        raise InputError(
            f"{count(len(missing), 'mask')} without an image of the same name in {images} "
            f"({first_few([stem for stem, _ in missing])}): add or rename the image, or measure without --images"
        )
    if unused := found.images:
        found.notes.append(f"{count(len(unused), 'image')} without a mask left out ({first_few(unused)})")
    return [(pair.stem, pair.mask, pair.image) for pair in found.pairs], found.notes


@dataclass
class _Plan(Findings):
    """Files to measure, and what is known of the mask of each page by its name."""

    jobs: list[_Job] = field(default_factory=list)
    masks: dict[str, Mask] = field(default_factory=dict)


def _plan(
    files: Sequence[tuple[str, Path, Path | None]], output: Path, reader: MaskReader, *, overlay: bool
) -> _Plan:
    """Read every file once; one message names all that do not fit."""
    plan = _Plan()
    for stem, mask, image in files:
        pages = plan.attempt(_read_fitting, reader, mask, stem, image, is_shown=overlay) or []
        names = page_names(stem, len(pages))
        plan.masks.update(zip(names, pages, strict=True))
        plan.jobs += [_Job(mask, stem, image, names, _pictures(output, stem, len(pages)))] if pages else []
    plan.notes += reader.notes
    if reader.unlabelled is not None and not any(
        mask.unlabelled in mask.held for mask in plan.masks.values()
    ):
        plan.notes.append(f"no mask holds {reader.unlabelled}, the value of unlabelled pixels")
    uses = Counter(path for job in plan.jobs for path in job.pictures)
    plan.faults += [
        InputError(f"two pictures would be called {path}: rename one")
        for path, number in uses.items()
        if number > 1
    ]
    plan.refuse()
    return plan


def _read_fitting(
    reader: MaskReader, mask: Path, stem: str, image: Path | None, *, is_shown: bool
) -> list[Mask]:
    """Read masks that fit their image, and keep what is known of them."""
    stack, pages = _read_pair(reader, mask, stem, image)
    for picture in stack.pages if stack is not None and is_shown else ():  # it can be
        image_from_page(picture, name=str(image))
    for page in pages:
        page.drop_values()
    return pages


def _read_pair(
    reader: MaskReader, mask: Path, stem: str, image: Path | None
) -> tuple[Stack | None, list[Mask]]:
    """Return the pages of the image, if there is one, and the mask of each page."""
    file = reader.open(mask)
    stack = None if image is None else read_stack(image, n_masks=file.n_pages, axes=reader.axes)
    sizes = None if stack is None else [page.shape[:2] for page in stack.pages]
    return stack, reader.pages(file, stem, sizes, image)


def _classes(masks: Mapping[str, Mask], options: MaskOptions) -> tuple[LabelMap | None, list[str]]:
    """Find the classes of masks, None if they number objects, and describe how they are read."""
    options = with_legend(options, masks.values())
    if (told := describe_numbers(masks, options)) is not None:
        return None, told
    label_map = _label_map(masks, options)
    names = first_few(label_map.names[1:])
    return label_map, [f"{label_map.describe()}; objects are the connected regions of {names}"]


def _label_map(masks: Mapping[str, Mask], options: MaskOptions) -> LabelMap:
    """Return the classes of masks, called by their values if they have no names."""
    labels, unlabelled, masks_are = options
    values = sorted({value for mask in masks.values() for value in mask.held} - {unlabelled})
    if labels is not None:
        return LabelMap.infer({*values, *labels}, labels=labels, unlabelled=unlabelled)
    if masks_are is None and unlabelled != 0:
        check_meaning(masks.values())
    # masks without any object, or that are one object
    values = values if len(values) > 1 else [0, *(values if any(values) else [255])]
    if len(values) == 2 or (masks_are is None and len(values) > MOST_CLASSES):
        return LabelMap.infer(values, unlabelled=unlabelled)
    return LabelMap({values[0]: "background", **{value: str(value) for value in values[1:]}}, unlabelled)


def _measure_file(
    job: _Job,
    reader: MaskReader,
    label_map: LabelMap | None,
    given: PixelSize | None,
    *,
    overlay: bool,
) -> Iterator[ImageObjects]:
    """Measure each page of a file, and draw it."""
    stack, pages = _read_pair(reader, job.mask, job.stem, job.image)
    pictures = [None] * len(pages) if stack is None else stack.pages
    channels = () if stack is None else stack.layout.channels
    file = job.image or job.mask
    is_image = file.suffix.lower() in IMAGE_EXTENSIONS  # outlines do not tell the size of a pixel
    found = find_pixel_size(file) if is_image and given is None else FoundSize(given, GIVEN)
    pixel_size = found.size
    for number, (name, page, picture) in enumerate(zip(job.names, pages, pictures, strict=True)):
        labels, classes = _number(page, label_map)
        objects = measure(labels, picture, classes=classes, pixel_size=pixel_size, channels=channels)
        if label_map is not None:
            objects["class"] = np.array(label_map.names)[objects["class"]]
        if overlay and picture is not None:
            write_object_overlay(job.pictures[number], image_from_page(picture, name=name), labels)
        height, width = labels.shape
        yield ImageObjects(name, (height, width), objects, *found)


def _number(page: Mask, label_map: LabelMap | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return label image and class ids of a mask; no class ids if it numbers objects."""
    if label_map is None:
        return page.labels, None
    ids = label_map.encode(page.values)
    ids[ids == UNLABELLED] = 0
    return label_pieces(ids)[0], ids


def _pictures(output: Path, stem: str, n_pages: int) -> list[Path]:
    """Name the picture of an image, or of each page: STEM-001.png, STEM-002.png, ..."""
    names = [stem] if n_pages == 1 else [f"{stem}-{page + 1:03d}" for page in range(n_pages)]
    return [output / OVERLAY_FOLDER / f"{name}.png" for name in names]
