"""Folders of images segmented into folders of masks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from segkit._common import FloatArray, Progress, count, pass_on
from segkit.errors import InputError, OutputError, SegkitError
from segkit.images import (
    list_images,
    read_image,
    read_pixel_size,
    write_mask,
    write_overlay,
    write_probability,
)
from segkit.images.channels import Kind, describe_changes, fits, kind_of, with_channels
from segkit.images.outputs import refuse_existing, refuse_nesting, refuse_unwritable
from segkit.segmentation.base import BaseSegmenter

# Images whose brightest pixel is so many times darker, or brighter, than those of the training images are told of.
OTHER_SCALE = 8
_N_NAMED = 3
# Folders of results beside the masks, and the kind of file in each.
EXTRAS = {"probability": ".tif", "overlay": ".png"}


@dataclass(frozen=True)
class _Job:
    """An image file, what is written for it, and results of the kinds that are not."""

    source: Path
    mask: Path
    probability: Path | None
    overlays: tuple[Path, ...]
    others: tuple[Path, ...]

    @property
    def outputs(self) -> list[Path]:
        return [self.mask, *([] if self.probability is None else [self.probability]), *self.overlays]


def predict_folder(
    segmenter: BaseSegmenter,
    images: str | Path,
    output: str | Path,
    *,
    probability: bool = False,
    overlay: bool = False,
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
        Whether to write images with the contours drawn in as PNG into ``output/overlay``.
    overwrite : bool, default=False
        Whether to replace files that are there already. Probability maps and overlays of these images that this run
        would not replace are refused even so: beside the new masks they would be of another model.
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
    jobs = _plan(segmenter, images, output, probability=probability, overlay=overlay)
    written = [path for job in jobs for path in job.outputs]
    refuse_existing(written, overwrite=overwrite)
    _refuse_leftovers([path for job in jobs for path in job.others if path.exists()])
    for path in written:
        refuse_unwritable(path)
    follow = progress or pass_on
    for job in follow(jobs, "Segmenting"):
        pages = [with_channels(page, segmenter.n_image_channels_) for page in read_image(job.source)]
        pixel_size = read_pixel_size(job.source)
        masks, probabilities = zip(*segmenter.predict(pages, return_proba=True, progress=follow), strict=True)
        write_mask(job.mask, _stack(masks), pixel_size=pixel_size)
        if job.probability is not None:
            maps = _stack([_planes(page) for page in probabilities])
            write_probability(job.probability, maps, pixel_size=pixel_size)
        # without overlays there is nothing to go through
        for page, mask, path in zip(pages, masks, job.overlays, strict=False):
            write_overlay(path, page, segmenter.label_map_.encode(mask))
    return [job.mask for job in jobs]


def _plan(
    segmenter: BaseSegmenter, images: Path, output: Path, *, probability: bool, overlay: bool
) -> list[_Job]:
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
        maps, pictures = (
            (output / name / relative).with_suffix(extension) for name, extension in EXTRAS.items()
        )
        overlays = _page_paths(pictures, len(pages))
        job = _Job(
            source,
            (output / relative).with_suffix(".png" if fits_png else ".tif"),
            maps if probability else None,
            overlays if overlay else (),
            (*(() if probability else (maps,)), *(() if overlay else overlays)),
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
    odd = [path for path, peak in peaks.items() if 0 < peak < low / OTHER_SCALE or peak > high * OTHER_SCALE]
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
            "--overlay; in Python probability=True, overlay=True), or choose another folder"
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
