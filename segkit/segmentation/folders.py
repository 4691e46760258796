"""Folders of images segmented into folders of masks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from segkit._common import FloatArray, Progress, count, pass_on
from segkit.errors import ConfigError, InputError, OutputError, SegkitError
from segkit.images import (
    PixelSize,
    list_images,
    read_image,
    read_pages,
    read_pixel_size,
    write_geojson,
    write_labels,
    write_mask,
    write_overlay,
    write_probability,
    write_rois,
)
from segkit.images.channels import Kind, describe_changes, fits, kind_of, with_channels
from segkit.images.outputs import refuse_existing, refuse_nesting, refuse_unwritable
from segkit.images.read import image_from_page
from segkit.images.scales import of_other_scale
from segkit.objects.measure import measure
from segkit.objects.pictures import write_object_overlay
from segkit.objects.tables import IMAGES_FILE, OBJECTS_FILE, ImageObjects, write_images, write_objects
from segkit.segmentation.base import BaseSegmenter

_N_NAMED = 3
# Folders of results beside the masks, the kind of file in each, and whether each page of a file has its own.
_KINDS = {
    "probability": (".tif", False),
    "overlay": (".png", True),
    "objects": (".tif", False),
    "geojson": (".geojson", True),
    "rois": (".zip", True),
}
EXTRAS = {name: extension for name, (extension, _) in _KINDS.items()}
_OF_OBJECTS = ("objects", "geojson", "rois")


@dataclass(frozen=True)
class _Job:
    """An image file, the place of its mask, and places of further results by kind: those written, and the others."""

    source: Path
    name: str
    mask: Path
    extras: dict[str, tuple[Path, ...]]
    others: tuple[Path, ...]

    @property
    def outputs(self) -> list[Path]:
        return [self.mask, *(path for paths in self.extras.values() for path in paths)]


def predict_folder(
    segmenter: BaseSegmenter,
    images: str | Path,
    output: str | Path,
    *,
    probability: bool = False,
    overlay: bool = False,
    objects: bool = False,
    pixel_size: PixelSize | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Segment every image of a folder.

    Parameters
    ----------
    segmenter : BaseSegmenter
        Fitted.
    images : str or Path
        Folder of images (sub-folders too), or one image.
    output : str or Path
        Folder for the masks, of the same names and sub-folders, as PNG (TIFF, if there are several pages or PNG cannot
        hold the values), with the values of the training masks. Masks and maps carry the pixel size of their image.
    probability : bool, default=False
        Whether to write probability maps as TIFF into ``output/probability``: of two classes that of the second, of
        more a plane for each.
    overlay : bool, default=False
        Whether to write images with the contours drawn in as PNG into ``output/overlay``; with `objects` those of each
        object, in colours of their own.
    objects : bool, default=False
        Whether to tell objects that touch apart, and to write label images (TIFF, ``output/objects``), outlines for
        QuPath (``output/geojson``) and for ImageJ (``output/rois``, if roifile is installed), a table of the objects
        (``objects.csv``) and one of the images (``images.csv``). The segmenter is a `Segmenter`.
    pixel_size : PixelSize, optional
        Height and width of a pixel in micrometres, in place of those that the files tell.
    overwrite : bool, default=False
        Whether to replace files that are there already. Further results of these images that this run would not
        replace are refused even so: beside the new masks they would be of another model.
    progress : callable, optional
        As for `Segmenter.fit`.

    Returns
    -------
    list of Path
        The masks.

    Raises
    ------
    InputError
        If an image cannot be read or has other channels than the training images, or the results of two would have
        one name.
    ConfigError
        If objects are asked of a model that does not know them.
    OutputError
        If results would lie among the images, replace something, or cannot be written.

    Warns
    -----
    UserWarning
        If the brightest pixel of an image is eight times darker, or brighter, than those of the training images. If
        grey images are read as colour, or RGB images of three equal channels as grey, as the training images are.
    """
    check_is_fitted(segmenter, "classes_")
    images, output = Path(images), Path(output)
    refuse_nesting(images, output)
    wanted = [name for name, is_wanted in (("probability", probability), ("overlay", overlay)) if is_wanted]
    if objects:
        wanted += _kinds_of_objects(segmenter)
    jobs = _plan(segmenter, images, output, wanted)
    tables = [output / name for name in (OBJECTS_FILE, IMAGES_FILE)]
    written = [path for job in jobs for path in job.outputs] + (tables if objects else [])
    refuse_existing(written, overwrite=overwrite)
    left = [path for job in jobs for path in job.others] + ([] if objects else tables)
    _refuse_leftovers([path for path in left if path.exists()])
    for path in written:
        refuse_unwritable(path, within=output)
    for path in tables if objects else ():
        path.unlink(
            missing_ok=True
        )  # beside the masks of an interrupted run they would be of an earlier model
    follow = progress or pass_on
    if not objects:
        for job in follow(jobs, "Segmenting"):
            _segment(segmenter, job, pixel_size, follow)
    else:
        rows = (
            row
            for job in follow(jobs, "Segmenting")
            for row in _segment_objects(segmenter, job, pixel_size, follow)
        )
        write_images(tables[1], write_objects(tables[0], rows), classes=segmenter.label_map_.names[1:])
    return [job.mask for job in jobs]


def _segment(segmenter: BaseSegmenter, job: _Job, given: PixelSize | None, follow: Progress) -> None:
    """Segment the pages of a file and write the results."""
    pages = [with_channels(page, segmenter.n_image_channels_) for page in read_image(job.source)]
    masks, probabilities = zip(*segmenter.predict(pages, return_proba=True, progress=follow), strict=True)
    _write_maps(job, masks, probabilities, given or read_pixel_size(job.source))
    # without overlays there is nothing to go through
    for page, mask, path in zip(pages, masks, job.extras.get("overlay", ()), strict=False):
        write_overlay(path, page, segmenter.label_map_.encode(mask))


def _segment_objects(
    segmenter: Any, job: _Job, given: PixelSize | None, follow: Progress
) -> Iterator[ImageObjects]:
    """Segment the pages of a file, write the results, and give the measurements of the objects of each page."""
    stored = read_pages(job.source)
    pages = [with_channels(image_from_page(page), segmenter.n_image_channels_) for page in stored]
    found = segmenter.predict_objects(pages, return_masks=True, progress=follow)
    labels, masks, probabilities = zip(*found, strict=True)
    pixel_size = given or read_pixel_size(job.source)
    _write_maps(job, masks, probabilities, pixel_size)
    write_labels(job.extras["objects"][0], _stack(labels), pixel_size)
    names = np.array(segmenter.label_map_.names)
    for number, (page, picture) in enumerate(zip(pages, stored, strict=True)):
        own = labels[number]
        table = measure(
            own,
            picture,
            probability=1 - probabilities[number][:, :, 0],
            classes=segmenter.label_map_.encode(masks[number]),
            pixel_size=pixel_size,
        )
        table["class"] = names[table["class"]]
        write_geojson(
            job.extras["geojson"][number],
            own,
            dict(zip(table["label"].tolist(), table["class"].tolist(), strict=True)),
        )
        if "rois" in job.extras:
            write_rois(job.extras["rois"][number], own)
        if "overlay" in job.extras:
            write_object_overlay(job.extras["overlay"][number], page, own)
        name = job.name if len(pages) == 1 else f"{job.name}#{number + 1}"
        yield ImageObjects(name, (own.shape[0], own.shape[1]), table, pixel_size)


def _write_maps(
    job: _Job,
    masks: Sequence[NDArray[np.generic]],
    probabilities: Sequence[FloatArray],
    pixel_size: PixelSize | None,
) -> None:
    write_mask(job.mask, _stack(masks), pixel_size=pixel_size)
    if "probability" in job.extras:
        maps = _stack([_planes(page) for page in probabilities])
        write_probability(job.extras["probability"][0], maps, pixel_size=pixel_size)


def _kinds_of_objects(segmenter: BaseSegmenter) -> list[str]:
    """Give the kinds of results of objects, once the model is known to tell them apart."""
    if getattr(segmenter, "objects_", None) is None:
        raise ConfigError(
            "the model knows no objects (it is of an earlier format, or no Segmenter): train it anew, or measure its "
            "masks by segkit measure"
        )
    if find_spec("roifile") is None:
        warnings.warn(
            'no regions for ImageJ are written, for roifile is missing: pip install "segkit-bio[objects]"',
            UserWarning,
            stacklevel=3,
        )
        return [name for name in _OF_OBJECTS if name != "rois"]
    return list(_OF_OBJECTS)


def _plan(segmenter: BaseSegmenter, images: Path, output: Path, wanted: Sequence[str]) -> list[_Job]:
    """Plan what is written for every image, once all of them have been read and found fit."""
    root = images if images.is_dir() else images.parent
    jobs: list[_Job] = []
    faults: list[str] = []
    taken: dict[Path, Path] = {}
    peaks: dict[Path, float] = {}
    kinds: dict[str, Kind] = {}
    other_channels: dict[int, list[Path]] = {}
    for relative in list_images(images):
        source = root / relative
        try:
            pages = read_image(source)
        except SegkitError as error:
            faults.append(str(error))
            continue
        peaks[source] = max(float(page.max()) for page in pages)
        shapes = {page.shape for page in pages}
        own = [kind_of(page) for page in pages]
        if not all(fits(kind, segmenter.n_image_channels_) for kind in own):
            other_channels.setdefault(max(kind.n_channels for kind in own), []).append(source)
        elif len(shapes) > 1:
            faults.append(f"{source} has pages of different sizes: save them as separate files")
        if len(relative.parts) > 1 and relative.parts[0] in EXTRAS:
            faults.append(
                f"{source} is in a folder called {relative.parts[0]}, as results are: rename that folder"
            )
        fits_png = len(pages) == 1 and segmenter.classes_.dtype in ("uint8", "uint16")
        places = {
            name: _page_paths((output / name / relative).with_suffix(extension), len(pages) if each else 1)
            for name, (extension, each) in _KINDS.items()
        }
        job = _Job(
            source,
            relative.with_suffix("").as_posix(),
            (output / relative).with_suffix(".png" if fits_png else ".tif"),
            {name: paths for name, paths in places.items() if name in wanted},
            tuple(path for name, paths in places.items() if name not in wanted for path in paths),
        )
        for path in job.outputs:
            if path in taken:
                faults.append(f"{source} and {taken[path]} would both become {path}: rename one")
            elif images.is_dir() and images.resolve() in path.resolve().parents:
                faults.append(f"{path} would be among the images: choose an output folder elsewhere")
            taken[path] = source
        kinds[str(relative)] = own[0]
        jobs.append(job)
    faults += [
        f"{_named(sources)} {count(n_channels, 'channel')}, the model was trained on {segmenter.n_image_channels_}: "
        f"save {'it' if len(sources) == 1 else 'them'} as the training images are"
        for n_channels, sources in other_channels.items()
    ]
    if faults:
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise InputError("; ".join(faults[:5]) + more)
    for message in describe_changes(kinds, segmenter.n_image_channels_, like="the training images"):
        warnings.warn(message, UserWarning, stacklevel=3)
    _warn_of_other_scale(peaks, getattr(getattr(segmenter, "summary_", None), "peaks", None))
    return jobs


def _named(sources: Sequence[Path]) -> str:
    """Say of one file, or of so many of which the first are named, that it has, or they have."""
    if len(sources) == 1:
        return f"{sources[0]} has"
    names = [str(source) for source in sources[:_N_NAMED]]
    more = [f"and {len(sources) - _N_NAMED} more"] if len(sources) > _N_NAMED else []
    return f"{count(len(sources), 'file')} ({', '.join([*names, *more])}) have"


def _warn_of_other_scale(peaks: Mapping[Path, float], trained: Sequence[float] | None) -> None:
    """Warn of images whose values are probably scaled otherwise than those the model was trained on."""
    if trained is None:
        return
    low, high = trained
    odd = of_other_scale(peaks, low, high)
    if odd:
        trained_at = " to ".join(dict.fromkeys(f"{peak:.1%}" for peak in trained))
        warnings.warn(
            f"{odd[0]}: the brightest pixel is at {peaks[odd[0]]:.1%} of full scale, of the training images at "
            f"{trained_at} ({count(len(odd), 'such image')}): if values are scaled otherwise (16 bits are read as 0 to "
            "65535, 8 bits as 0 to 255), save them as the training images are",
            UserWarning,
            stacklevel=4,
        )


def _refuse_leftovers(paths: Sequence[Path]) -> None:
    """Refuse to leave results of an earlier run beside new masks."""
    if paths:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        raise OutputError(
            f"{paths[0]}{more} of an earlier run would stay beside the new masks: write them anew too (--probability, "
            "--overlay, --objects; in Python probability=True, overlay=True, objects=True), or choose another folder"
        )


def _page_paths(path: Path, n_pages: int) -> tuple[Path, ...]:
    """One picture, or one for each page: STEM-001.png, STEM-002.png, ..."""
    if n_pages == 1:
        return (path,)
    return tuple(path.with_stem(f"{path.stem}-{page + 1:03d}") for page in range(n_pages))


def _stack(pages: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
    """Pages of a file as one array; a single page as it is."""
    return pages[0] if len(pages) == 1 else np.stack(pages)


def _planes(probabilities: FloatArray) -> FloatArray:
    """Of two classes the map of the second, (H, W); of more all, (n_classes, H, W)."""
    return probabilities[:, :, 1] if probabilities.shape[2] == 2 else probabilities.transpose(2, 0, 1)
