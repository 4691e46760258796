"""Folders of masks measured into tables and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import Progress, count, first_few, group_faults, pass_on
from segkit.errors import InputError, OutputError
from segkit.images import IMAGE_EXTENSIONS, UNLABELLED, LabelMap, read_pages, read_pixel_size
from segkit.images.masks import MaskReader, find_masks, part_folder, size_fault
from segkit.images.numbering import (
    MOST_CLASSES,
    MaskOptions,
    MasksAre,
    Numbers,
    label_pieces,
    look_like_instances,
    number_masks,
    number_objects,
    refuse_options,
    without,
)
from segkit.images.outputs import refuse_existing, refuse_nesting, refuse_unwritable
from segkit.images.pixel_size import check_pixel_size
from segkit.images.read import image_from_page
from segkit.images.stems import files_by_stem, match_stems, page_names, stem_of
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


class _Contents(NamedTuple):
    """Values of the masks of a folder, objects of each page by its name, and the pages that were outlines."""

    values: set[int]
    numbers: dict[str, Numbers]
    outlined: list[str]


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
    if refusal := refuse_options((), options):
        raise InputError(refusal)
    given = None if pixel_size is None else check_pixel_size(pixel_size)
    for folder in (masks, images):
        if folder is not None:
            refuse_nesting(folder, output)
    messages: list[str] = []
    matched = _match(masks, images, skip, messages)
    reader = MaskReader(messages, axes=axes)
    jobs, contents = _plan(matched, output, reader, messages, unlabelled=unlabelled, overlay=overlay)
    label_map = _classes(contents, options, messages)
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
    reader = MaskReader([], axes=axes)
    rows = (
        entry
        for job in follow
        for entry in _measure_file(job, reader, label_map, unlabelled, given, overlay=overlay)
    )
    summaries = write_objects(tables[0], rows)
    write_images(tables[1], summaries, classes=() if label_map is None else label_map.names[1:])
    return MeasuredFolder(summaries, messages, files)


def _match(
    masks: Path, images: Path | None, skip: Collection[str], messages: list[str]
) -> list[tuple[str, Path, Path | None]]:
    """Return name, mask file and image file of each mask."""
    if images is not None and images.is_file() and masks.is_file():
        return [(stem_of(Path(images.name)), masks, images)]
    image_of = {} if images is None else files_by_stem(images)
    faults: list[str] = []
    if images is not None and images.is_dir() and masks.exists() and images.samefile(masks):
        image_of, mask_of = part_folder(masks, image_of, faults, messages)
    else:
        mask_of = find_masks(masks, image_of, faults, messages)
    if faults:
        raise InputError(first_few(faults, separator="; "))
    skipped = tuple(f"{name}/" for name in skip)
    if masks.is_dir():
        mask_of = {stem: path for stem, path in mask_of.items() if not stem.startswith(skipped)}
    if not mask_of:
        raise InputError(f"{masks}: no masks but in {first_few(sorted(skip))}: give the folder of masks")
    if images is None:
        among = match_stems((), mask_of.keys()).images_among_masks
        return [(stem, path, None) for stem, path in sorted(mask_of.items()) if stem not in among]
    found = match_stems(image_of.keys(), mask_of.keys())
    if found.faults:
        raise InputError(first_few(found.faults, separator="; "))
    missing = sorted(mask_of.keys() - set(found.mask_of.values()) - set(found.images_among_masks))
    if missing or not found.mask_of:
        raise InputError(
            f"{count(len(missing), 'mask')} without an image of the same name in {images} ({first_few(missing)}): add or "
            "rename the image, or measure without --images"
        )
    unused = sorted(image_of.keys() - found.mask_of.keys())
    if unused:
        messages.append(f"{count(len(unused), 'image')} without a mask left out ({first_few(unused)})")
    return [(stem, mask_of[mask], image_of[stem]) for stem, mask in found.mask_of.items()]


def _plan(
    matched: Sequence[tuple[str, Path, Path | None]],
    output: Path,
    reader: MaskReader,
    messages: list[str],
    *,
    unlabelled: int | None,
    overlay: bool,
) -> tuple[list[_Job], _Contents]:
    """Read every file once; one message names all that do not fit."""
    jobs: list[_Job] = []
    contents = _Contents(set(), {}, [])
    faults: list[str] = []
    is_held = False
    for stem, mask, image in matched:
        try:
            pictures, pages, is_outlined = _read_pair(reader, mask, stem, image)
            for page, picture in zip(pages, pictures or (), strict=bool(pictures)):
                if page.shape != picture.shape[:2]:
                    raise InputError(size_fault(str(mask), picture.shape, page.shape))
                if overlay:  # it can be shown
                    image_from_page(picture, name=str(image))
        except InputError as fault:
            faults.append(str(fault))
            continue
        names = page_names(stem, len(pages))
        for name, page in zip(names, pages, strict=True):
            values = set(np.unique(page).tolist())
            is_held |= unlabelled in values and not is_outlined
            contents.values.update(values if is_outlined else values - {unlabelled})
            contents.numbers[name] = number_objects(page if is_outlined else without(page, unlabelled))
        contents.outlined.extend(names if is_outlined else ())
        jobs.append(_Job(mask, stem, image, names, _pictures(output, stem, len(pages))))
    messages += reader.notes()
    if unlabelled is not None and not is_held:
        messages.append(f"no mask holds {unlabelled}, the value of unlabelled pixels")
    uses = Counter(path for job in jobs for path in job.pictures)
    faults += [
        f"two pictures would be called {path}: rename one" for path, number in uses.items() if number > 1
    ]
    if faults:
        raise InputError(first_few(group_faults(faults), most=5, separator="; "))
    return jobs, contents


def _read_pair(
    reader: MaskReader, mask: Path, stem: str, image: Path | None
) -> tuple[list[NDArray[Any]] | None, list[NDArray[Any]], bool]:
    """Return the pages of the image, if there is one, the mask of each page, and whether they were outlines."""
    drawn = reader.open(mask)
    n_masks = len(drawn) if isinstance(drawn, list) else None
    pages = None if image is None else read_pages(image, n_masks=n_masks, axes=reader.axes)
    sizes = None if pages is None else [page.shape[:2] for page in pages]
    return pages, reader.pages(drawn, mask, stem, sizes, image=image), not isinstance(drawn, list)


def _classes(contents: _Contents, options: MaskOptions, messages: list[str]) -> LabelMap | None:
    """Find the classes of masks; None if they number objects. How they are read is the first message."""
    faults: list[str] = []
    if number_masks(contents.numbers, contents.outlined, faults, messages, options):
        return None
    if faults:
        raise InputError(first_few(faults, separator="; "))
    label_map = _label_map(contents, options)
    names = first_few(label_map.names[1:])
    messages.insert(0, f"{label_map.describe()}; objects are the connected regions of {names}")
    return label_map


def _label_map(contents: _Contents, options: MaskOptions) -> LabelMap:
    """Return the classes of masks, called by their values if they have no names."""
    labels, unlabelled, masks_are = options
    values = sorted(contents.values)
    if labels is not None:
        return LabelMap.infer({*values, *labels}, labels=labels, unlabelled=unlabelled)
    if masks_are is None and unlabelled != 0:
        _refuse_doubt(contents, values)
    # masks without any object, or that are one object
    values = values if len(values) > 1 else [0, *(values if any(values) else [255])]
    if len(values) == 2 or (masks_are is None and len(values) > MOST_CLASSES):
        return LabelMap.infer(values, unlabelled=unlabelled)
    return LabelMap(tuple(values), ("background", *map(str, values[1:])), unlabelled)


def _refuse_doubt(contents: _Contents, values: Sequence[int]) -> None:
    """Refuse masks of a few values in one piece each: a few objects, or classes of one region each."""
    if len(values) <= MOST_CLASSES and look_like_instances(list(contents.numbers.values()), most_classes=2):
        told = first_few([str(value) for value in values])
        raise InputError(
            f"masks hold {len(values)} values ({told}), nearly all in one piece, so they may number objects or be classes: "
            "say which, --set data.masks=instances or --set data.masks=classes"
        )


def _measure_file(
    job: _Job,
    reader: MaskReader,
    label_map: LabelMap | None,
    unlabelled: int | None,
    given: tuple[float, float] | None,
    *,
    overlay: bool,
) -> Iterator[ImageObjects]:
    """Measure each page of a file, and draw it."""
    of_image, pages, is_outlined = _read_pair(reader, job.mask, job.stem, job.image)
    pictures = [None] * len(pages) if of_image is None else of_image
    file = job.image or job.mask
    is_image = file.suffix.lower() in IMAGE_EXTENSIONS  # outlines do not tell the size of a pixel
    pixel_size = given or (read_pixel_size(file) if is_image else None)
    for number, (name, page, picture) in enumerate(zip(job.names, pages, pictures, strict=True)):
        labels, classes = _number(page, label_map, None if is_outlined else unlabelled)
        objects = measure(labels, picture, classes=classes, pixel_size=pixel_size)
        if label_map is not None:
            objects["class"] = np.array(label_map.names)[objects["class"]]
        if overlay and picture is not None:
            write_object_overlay(job.pictures[number], image_from_page(picture, name=name), labels)
        height, width = labels.shape
        yield ImageObjects(name, (height, width), objects, pixel_size)


def _number(
    page: NDArray[Any], label_map: LabelMap | None, unlabelled: int | None
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return label image and class ids of a mask; no class ids if it numbers objects."""
    if label_map is None:
        return without(page, unlabelled), None
    ids = label_map.encode(page)
    ids[ids == UNLABELLED] = 0
    return label_pieces(ids)[0], ids


def _pictures(output: Path, stem: str, n_pages: int) -> list[Path]:
    """Name the picture of an image, or of each page: STEM-001.png, STEM-002.png, ..."""
    names = [stem] if n_pages == 1 else [f"{stem}-{page + 1:03d}" for page in range(n_pages)]
    return [output / OVERLAY_FOLDER / f"{name}.png" for name in names]
