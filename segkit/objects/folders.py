"""Folders of masks measured into tables and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import Progress, pass_on
from segkit.errors import InputError, OutputError, count, first_few
from segkit.images import IMAGE_EXTENSIONS, UNLABELLED, LabelMap, PixelSize, write_labels
from segkit.images.axes import Layout, Stack
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
from segkit.images.pixel_size import GIVEN, FoundSize, check_pixel_size, find_pixel_size, read_z_step
from segkit.images.read import image_from_page, read_stack
from segkit.images.record import made_aside
from segkit.images.stems import Files, files_by_stem, page_names, stem_of
from segkit.objects.hills import LabelArray
from segkit.objects.link import (
    AXES_OF_LINKS,
    LinkBy,
    check_link,
    link_axis,
    link_stack,
    measure_tracks,
    measure_volumes,
)
from segkit.objects.measure import measure
from segkit.objects.pictures import write_object_overlay
from segkit.objects.tables import (
    IMAGES_FILE,
    LINK_COLUMNS,
    LINKS_FILES,
    OBJECTS_FILE,
    ImageObjects,
    ImageSummary,
    write_images,
    write_links,
    write_objects,
)

OVERLAY_FOLDER, LINKED_FOLDER = "overlay", "linked"


@dataclass(frozen=True, eq=False)
class MeasuredFolder:
    """Measurements of a folder."""

    images: list[ImageSummary]
    messages: list[str]
    files: list[Path]


class _Job(NamedTuple):
    """A mask file, the name it has there and its image, and for each page a name and its picture's place in the output."""

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
    link: LinkBy | None = None,
    overwrite: bool = False,
    skip: Collection[str] = (),
    progress: Progress | None = None,
) -> MeasuredFolder:
    """Measure every object of a folder of masks, and those that `link` finds over planes or time."""
    masks, output = Path(masks), Path(output)
    images = None if images is None else Path(images)
    options = MaskOptions(labels, unlabelled, masks_are)
    if overlay and images is None:
        raise InputError(
            "overlays need the images to draw on: give their folder (--images DIR), or no overlay"
        )
    check_options(options)
    if link is not None:
        check_link(link)
    given = None if pixel_size is None else check_pixel_size(pixel_size)
    for folder in (masks, images):
        if folder is not None:
            refuse_nesting(folder, output)
    matched, notes = _match(masks, images, skip)
    plan = _plan(matched, _reader(options, axes), overlay=overlay)
    jobs = plan.jobs
    label_map, told = _classes(plan.masks, options)
    pictures = [output / place for job in jobs for place in job.pictures]
    files = [output / OBJECTS_FILE, output / IMAGES_FILE, *(pictures if overlay else [])]
    links = None if link is None else _Links(link, jobs, axes, label_map)
    if links is not None:
        files += [output / place for place in (links.table, *links.place_of.values())]
    refuse_existing(files, overwrite=overwrite)
    of_links = [
        *(output / name for name in LINKS_FILES.values()),
        *((output / LINKED_FOLDER).rglob("*.tif") if (output / LINKED_FOLDER).is_dir() else ()),
    ]
    if left := sorted(path for path in of_links if path not in files and path.exists()):
        raise OutputError(
            f"{left[0]} of an earlier run would stay beside the new tables: remove it, or choose another folder"
        )
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
    with made_aside(output, "measured", [path.relative_to(output) for path in reversed(files)]) as aside:
        rows = (
            entry
            for job in follow
            for entry in _measure_file(job, reader, label_map, given, links, aside, overlay=overlay)
        )
        summaries = write_objects(aside / OBJECTS_FILE, rows)
        write_images(aside / IMAGES_FILE, summaries, classes=() if label_map is None else label_map.names[1:])
        if links is not None:
            write_links(aside / links.table, links.found)
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


def _plan(files: Sequence[tuple[str, Path, Path | None]], reader: MaskReader, *, overlay: bool) -> _Plan:
    """Read every file once; one message names all that do not fit."""
    plan = _Plan()
    for stem, mask, image in files:
        pages = plan.attempt(_read_fitting, reader, mask, stem, image, is_shown=overlay) or []
        names = page_names(stem, len(pages))
        plan.masks.update(zip(names, pages, strict=True))
        plan.jobs += [_Job(mask, stem, image, names, _pictures(stem, len(pages)))] if pages else []
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
    held = {value for mask in masks.values() for value in mask.held} - {label_map.unlabelled}
    if held <= {label_map.values[0]}:
        only = "nothing but background" if held else "no labelled pixel"
        return label_map, [f"masks hold {only}: no objects"]
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
    links: _Links | None,
    folder: Path,
    *,
    overlay: bool,
) -> Iterator[ImageObjects]:
    """Measure each page of a file, link its objects, and draw it into a folder."""
    stack, pages = _read_pair(reader, job.mask, job.stem, job.image)
    pictures = [None] * len(pages) if stack is None else stack.pages
    channels = () if stack is None else stack.layout.channels
    file = job.image or job.mask
    is_image = file.suffix.lower() in IMAGE_EXTENSIONS  # outlines do not tell the size of a pixel
    found = find_pixel_size(file) if is_image and given is None else FoundSize(given, GIVEN)
    pixel_size = found.size
    numbered = [_number(page, label_map) for page in pages]
    linked = None
    if links is not None:
        of_class = None if label_map is None else [ids for _, ids in numbered if ids is not None]
        linked = links.link(job, [labels for labels, _ in numbered], of_class, found.size, folder)
    for number, (name, (labels, classes), picture) in enumerate(
        zip(job.names, numbered, pictures, strict=True)
    ):
        objects = measure(labels, picture, classes=classes, pixel_size=pixel_size, channels=channels)
        if label_map is not None:
            objects["class"] = np.array(label_map.names)[objects["class"]]
        if links is not None and linked is not None:
            ids, first = np.unique(labels, return_index=True)
            objects[LINK_COLUMNS[links.by]] = linked[number].ravel()[first[ids > 0]]
        if overlay and picture is not None:
            write_object_overlay(folder / job.pictures[number], image_from_page(picture, name=name), labels)
        height, width = labels.shape
        yield ImageObjects(name, (height, width), objects, *found)


@dataclass
class _Links:
    """Objects of each file linked: a stack of their numbers, and a table of them in the end."""

    by: LinkBy
    jobs: Sequence[_Job]
    axes: str | None
    label_map: LabelMap | None
    found: list[tuple[str, dict[str, NDArray[Any]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if all(len(job.names) == 1 for job in self.jobs):
            raise InputError(
                f"every file holds one page, so that there are no {self.by} to link: save those of an object as one file"
            )
        self._layouts = {job.stem: self._read_layout(job) for job in self.jobs}

    def _read_layout(self, job: _Job) -> Layout:
        """Read the axes of a file, of which an only one is what is linked; refuse what cannot be."""
        if len(job.names) == 1:
            return Layout()
        file = job.image or job.mask
        options: dict[str, Any] = (
            {"n_masks": len(job.names)} if job.image else {"is_mask": True, "unnamed": "any"}
        )
        stack = read_stack(file, axes=self.axes, **options)
        if len(sizes := sorted({page.shape[:2] for page in stack.pages})) > 1:
            first, second = (f"{height} x {width}" for height, width in sizes[:2])
            raise InputError(
                f"{file}: pages of {first} and {second} pixels cannot be linked: give pages of one size"
            )
        place = link_axis(stack.layout, self.by, name=str(file))
        axes = stack.layout.axes
        letter = AXES_OF_LINKS[self.by]
        return (
            stack.layout
            if letter in axes
            else stack.layout._replace(axes=axes[:place] + letter + axes[place + 1 :])
        )

    @property
    def table(self) -> Path:
        """Place of the table in the output."""
        return Path(LINKS_FILES[self.by])

    @cached_property
    def place_of(self) -> dict[str, Path]:
        """Place of the linked label images of each file."""
        return {job.stem: Path(LINKED_FOLDER) / f"{job.stem}.tif" for job in self.jobs}

    def link(
        self,
        job: _Job,
        pages: Sequence[NDArray[Any]],
        classes: Sequence[NDArray[Any]] | None,
        size: PixelSize | None,
        folder: Path,
    ) -> list[LabelArray]:
        """Link the objects of the pages of a file, write them into a folder, and measure what they are together."""
        file, layout = job.image or job.mask, self._layouts[job.stem]
        rows = link_stack(pages, layout, self.by, name=str(file), classes=classes)
        z_step = read_z_step(file) if file.suffix.lower() in IMAGE_EXTENSIONS else None
        linked = {
            page: labels for row in rows for page, labels in zip(row.pages.tolist(), row.labels, strict=True)
        }
        found = [linked[page] for page in range(len(pages))]
        stacked = found[0] if len(found) == 1 else np.stack(found)
        write_labels(folder / self.place_of[job.stem], stacked, size, layout=layout, z_step=z_step)
        for row in rows:
            table = (
                measure_volumes(row.labels, pixel_size=size, z_step=z_step)
                if self.by == "planes"
                else measure_tracks(row.labels, pixel_size=size)
            )
            numbers = table[LINK_COLUMNS[self.by]]
            place = {name: np.full(numbers.size, at) for name, at in row.place.items()}
            if classes is not None and self.label_map is not None:
                class_of = np.zeros(1 + int(numbers.max(initial=0)), dtype=np.intp)
                for page, labels in zip(row.pages, row.labels, strict=True):
                    class_of[labels] = classes[page]
                place["class"] = np.array(self.label_map.names)[class_of[numbers]]
            self.found.append((job.stem, place | table))
        return found


def _number(page: Mask, label_map: LabelMap | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return label image and class ids of a mask; no class ids if it numbers objects."""
    if label_map is None:
        return page.labels, None
    ids = label_map.encode(page.values)
    ids[ids == UNLABELLED] = 0
    return label_pieces(ids)[0], ids


def _pictures(stem: str, n_pages: int) -> list[Path]:
    """Name the picture of an image, or of each page: STEM-001.png, STEM-002.png, ..."""
    names = [stem] if n_pages == 1 else [f"{stem}-{page + 1:03d}" for page in range(n_pages)]
    return [Path(OVERLAY_FOLDER) / f"{name}.png" for name in names]
