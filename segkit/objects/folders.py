"""Folders of masks measured into tables and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage.measure import label

from segkit._common import Progress, count, first_few, pass_on
from segkit.errors import InputError, OutputError
from segkit.images import UNLABELLED, LabelMap, read_pages
from segkit.images.outputs import refuse_existing, refuse_nesting, refuse_unwritable
from segkit.images.read import image_from_page, read_mask_with_notes
from segkit.images.stems import files_by_stem, masks_beside_images, match_stems
from segkit.objects.measure import check_pixel_size, measure
from segkit.objects.pictures import write_object_overlay
from segkit.objects.tables import (
    IMAGES_FILE,
    OBJECTS_FILE,
    ImageObjects,
    ImageSummary,
    write_images,
    write_objects,
)

MasksAre = Literal["instances", "classes"]

OVERLAY_FOLDER = "overlay"
# Masks of more values hold no class for each.
_MOST_CLASSES = 10
_SHARE_IN_ONE_PIECE = 0.9
# Pixels of an object touch by sides or corners, as ImageJ and skimage.measure.label have it.
_CONNECTIVITY = 2


@dataclass(frozen=True, eq=False)
class Measured:
    """What came of measuring a folder.

    Parameters
    ----------
    images : list of ImageSummary
        Numbers of each image.
    messages : list of str
        How masks were read, and notes.
    files : list of Path
        Everything that was written, the two tables first.
    """

    images: list[ImageSummary]
    messages: list[str]
    files: list[Path]


class _Job(NamedTuple):
    """A mask file, its image, and for each page a name and the place of its picture."""

    mask: Path
    image: Path | None
    names: list[str]
    pictures: list[Path]


class _Contents(NamedTuple):
    """Values of the masks of a folder, and in how many pieces those above 0 are in each mask."""

    values: set[int]
    n_pieces: list[int]


def measure_folder(
    masks: str | Path,
    output: str | Path,
    *,
    images: str | Path | None = None,
    masks_are: MasksAre | None = None,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
    pixel_size: float | tuple[float, float] | None = None,
    overlay: bool = False,
    overwrite: bool = False,
    skip: Collection[str] = (),
    progress: Progress | None = None,
) -> Measured:
    """Measure every object of a folder of masks.

    Parameters
    ----------
    masks : str or Path
        Folder of label images, or of masks of classes (sub-folders too), or one file.
    output : str or Path
        Folder for ``objects.csv`` and ``images.csv``; see `segkit.objects.tables` for their columns.
    images : str or Path, optional
        Folder of the images, or one image, to measure intensities in the values of the files. Names are matched as by
        `segkit.images.pair`. Images without a mask are left out.
    masks_are : {"instances", "classes"}, optional
        Whether each value above 0 is an object, or a class. Objects of a class are its connected regions; pixels are
        connected by sides or corners. By default masks number objects if nine of ten values are in one piece each, and 0 is
        among them or there are more than ten.
    labels : mapping of int to str, optional
        The class name of each mask value, the background first. Without it the lowest value is the background.
    unlabelled : int, optional
        Value of pixels nobody annotated: no object.
    pixel_size : float or tuple of float, optional
        Height and width of a pixel in micrometres, or one number for both. By default as the image file says, or the
        mask file without images.
    overlay : bool, default=False
        Whether to write images with outlines of the objects as PNG into ``output/overlay``.
    overwrite : bool, default=False
        Whether to replace files that are there already.
    skip : collection of str
        Sub-folders of `masks` that hold no masks.
    progress : callable, optional
        As for `Segmenter.fit`.

    Returns
    -------
    Measured
        Numbers of each image, messages, and files.

    Raises
    ------
    InputError
        If a file cannot be read, a mask has no image, sizes differ, or options do not fit the masks. All files are read
        before anything is written.
    OutputError
        If results would lie among the inputs, replace something, or cannot be written.
    """
    masks, output = Path(masks), Path(output)
    images = None if images is None else Path(images)
    _check_options(images, masks_are, labels, overlay=overlay)
    given = None if pixel_size is None else check_pixel_size(pixel_size)
    for folder in (masks, images):
        if folder is not None:
            refuse_nesting(folder, output)
    messages: list[str] = []
    matched = _match(masks, images, skip, messages)
    jobs, contents = _plan(matched, output, messages, unlabelled=unlabelled, overlay=overlay)
    label_map = _classes(contents, masks_are, labels, unlabelled)
    messages.insert(0, _describe(label_map))
    tables = [output / OBJECTS_FILE, output / IMAGES_FILE]
    pictures = [path for job in jobs for path in job.pictures]
    files = [*tables, *(pictures if overlay else [])]
    refuse_existing(files, overwrite=overwrite)
    if not overlay:
        _refuse_leftovers([path for path in pictures if path.exists()])
    for path in files:
        refuse_unwritable(path)
    follow = (progress or pass_on)(jobs, "Measuring")
    rows = (
        entry for job in follow for entry in _measure_file(job, label_map, unlabelled, given, overlay=overlay)
    )
    summaries = write_objects(tables[0], rows)
    write_images(tables[1], summaries, classes=() if label_map is None else label_map.names[1:])
    return Measured(summaries, messages, files)


def _check_options(
    images: Path | None, masks_are: MasksAre | None, labels: Mapping[int, str] | None, *, overlay: bool
) -> None:
    """Refuse options that do not fit together."""
    if overlay and images is None:
        raise InputError(
            "overlays need the images to draw on: give their folder (--images DIR), or no overlay"
        )
    if masks_are not in (None, "instances", "classes"):
        raise InputError(f"data.masks={masks_are}, expected instances or classes: give one of them")
    if masks_are == "instances" and labels is not None:
        raise InputError(
            "data.labels names classes, but data.masks=instances numbers objects: leave one of the two out"
        )


def _match(
    masks: Path, images: Path | None, skip: Collection[str], messages: list[str]
) -> list[tuple[str, Path, Path | None]]:
    """Give name, mask file and image file of each mask."""
    if images is not None and images.is_file() and masks.is_file():
        return [(images.stem, masks, images)]
    skipped = tuple(f"{name}/" for name in skip)
    mask_of = {
        stem: path
        for stem, path in files_by_stem(masks).items()
        if masks.is_file() or not stem.startswith(skipped)
    }
    if not mask_of:
        raise InputError(f"{masks}: no masks but in {first_few(sorted(skip))}: give the folder of masks")
    if images is None:
        among = match_stems((), mask_of.keys()).images_among_masks
        return [(stem, path, None) for stem, path in sorted(mask_of.items()) if stem not in among]
    image_of = files_by_stem(images)
    if images.is_dir() and images.exists() and masks.exists() and images.samefile(masks):
        beside = masks_beside_images(mask_of)
        image_of = {stem: path for stem, path in mask_of.items() if stem not in beside}
        mask_of = {stem: path for stem, path in mask_of.items() if stem in beside}
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
    messages: list[str],
    *,
    unlabelled: int | None,
    overlay: bool,
) -> tuple[list[_Job], _Contents]:
    """Read every file once; one message names all that do not fit."""
    jobs: list[_Job] = []
    contents = _Contents(set(), [])
    faults: list[str] = []
    for stem, mask, image in matched:
        try:
            pages, notes = read_mask_with_notes(mask)
            if image is not None:
                _check_image(mask, pages, image, overlay=overlay)
        except InputError as fault:
            faults.append(str(fault))
            continue
        messages += notes
        for page in pages:
            _add(contents, page, unlabelled)
        names = [stem] if len(pages) == 1 else [f"{stem}#{number + 1}" for number in range(len(pages))]
        jobs.append(_Job(mask, image, names, _pictures(output, stem, len(pages))))
    uses = Counter(path for job in jobs for path in job.pictures)
    faults += [
        f"two pictures would be called {path}: rename one" for path, number in uses.items() if number > 1
    ]
    if faults:
        raise InputError(first_few(faults, most=5, separator="; "))
    return jobs, contents


def _check_image(mask: Path, pages: Sequence[NDArray[Any]], image: Path, *, overlay: bool) -> None:
    """Refuse an image of another size than its mask, or that cannot be shown if it is to be."""
    of_image = read_pages(image)
    if len(of_image) != len(pages):
        raise InputError(
            f"{mask}: {count(len(pages), 'page')} for {count(len(of_image), 'page')} of {image}, expected a mask for each: "
            "add or remove pages"
        )
    for page, picture in zip(pages, of_image, strict=True):
        if page.shape != picture.shape[:2]:
            raise InputError(
                f"{mask}: mask of {_size(page)} pixels, image {image} of {_size(picture)}, expected one size: export the "
                "mask at the size of the image"
            )
        if overlay:
            image_from_page(picture, name=str(image))


def _add(contents: _Contents, page: NDArray[Any], unlabelled: int | None) -> None:
    """Add the values of a mask, and in how many pieces each above 0 is."""
    contents.values.update(set(np.unique(page).tolist()) - {unlabelled})
    page = _without(page, unlabelled)
    pieces, number = label(page, background=0, connectivity=_CONNECTIVITY, return_num=True)  # type: ignore[no-untyped-call]
    of_piece = np.zeros(number + 1, dtype=page.dtype)
    of_piece[pieces] = page
    contents.n_pieces.extend(np.unique(of_piece[1:], return_counts=True)[1].tolist())


def _classes(
    contents: _Contents,
    masks_are: MasksAre | None,
    labels: Mapping[int, str] | None,
    unlabelled: int | None,
) -> LabelMap | None:
    """Tell the classes of masks; None if they number objects."""
    values = sorted(contents.values)
    if masks_are == "instances" or (
        masks_are is None and labels is None and _are_instances(contents, values)
    ):
        if values and values[0] < 0:
            raise InputError(
                f"masks hold {values[0]}, expected 0 for background and positive numbers for objects: set such pixels to 0"
            )
        return None
    if labels is not None:
        return LabelMap.infer({*values, *labels}, labels=labels, unlabelled=unlabelled)
    # masks without any object, or that are one object
    values = values if len(values) > 1 else [0, *(values if any(values) else [255])]
    if len(values) == 2:
        return LabelMap.infer(values, unlabelled=unlabelled)
    return LabelMap(tuple(values), ("background", *map(str, values[1:])), unlabelled)


def _are_instances(contents: _Contents, values: Sequence[int]) -> bool:
    """Tell whether masks number objects: most values are in one piece. Few values without 0 are classes."""
    few = len(values) <= _MOST_CLASSES
    if len([value for value in values if value]) < 2 or (few and 0 not in values):
        return False
    share = float(np.mean(np.array(contents.n_pieces) == 1))
    if share < _SHARE_IN_ONE_PIECE and not few:
        raise InputError(
            f"masks hold {len(values)} values, {1 - share:.0%} of them in several pieces, so they may be classes, objects "
            "or blurred edges: say which, --set data.masks=instances or --set data.masks=classes, or threshold them"
        )
    return share >= _SHARE_IN_ONE_PIECE


def _describe(label_map: LabelMap | None) -> str:
    """Say how masks are read."""
    if label_map is None:
        return "masks number objects: every value above 0 is one (else --set data.masks=classes)"
    names = first_few(label_map.names[1:])
    return f"{label_map.describe()}; objects are the connected regions of {names}"


def _measure_file(
    job: _Job,
    label_map: LabelMap | None,
    unlabelled: int | None,
    given: tuple[float, float] | None,
    *,
    overlay: bool,
) -> Iterator[ImageObjects]:
    """Measure each page of a file, and draw it."""
    pages, _ = read_mask_with_notes(job.mask)
    pictures = [None] * len(pages) if job.image is None else read_pages(job.image)
    pixel_size = given or _pixel_size_of(job.image or job.mask)
    for number, (name, page, picture) in enumerate(zip(job.names, pages, pictures, strict=True)):
        labels, classes = _number(page, label_map, unlabelled)
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
    """Give label image and class ids of a mask; no class ids if it numbers objects."""
    if label_map is None:
        return _without(page, unlabelled), None
    ids = label_map.encode(page)
    ids[ids == UNLABELLED] = 0
    return label(ids, background=0, connectivity=_CONNECTIVITY), ids  # type: ignore[no-untyped-call]


def _without(page: NDArray[Any], unlabelled: int | None) -> NDArray[Any]:
    """Take pixels nobody annotated for background."""
    return page if unlabelled is None else np.where(page == unlabelled, 0, page)


def _pixel_size_of(path: Path) -> tuple[float, float] | None:  # noqa: ARG001
    """Read height and width of a pixel in micrometres from a file; None if it does not tell."""
    return None


def _pictures(output: Path, stem: str, n_pages: int) -> list[Path]:
    """Name the picture of an image, or of each page: STEM-001.png, STEM-002.png, ..."""
    names = [stem] if n_pages == 1 else [f"{stem}-{page + 1:03d}" for page in range(n_pages)]
    return [output / OVERLAY_FOLDER / f"{name}.png" for name in names]


def _refuse_leftovers(paths: Sequence[Path]) -> None:
    """Refuse to leave pictures of an earlier run beside new tables."""
    if paths:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        raise OutputError(
            f"{paths[0]}{more} of an earlier run would stay beside the new tables: draw them anew too (--overlay; in "
            "Python overlay=True), or choose another folder"
        )


def _size(page: NDArray[Any]) -> str:
    return f"{page.shape[0]} x {page.shape[1]}"
