"""Images whose channels lie in several files: one file of all channels for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segkit._common import FloatArray, Progress, pass_on
from segkit.errors import InputError, count, first_few
from segkit.images.axes import Stack
from segkit.images.outputs import refuse_existing, refuse_nesting
from segkit.images.pixel_size import find_pixel_size, in_ome, read_z_step
from segkit.images.read import image_from_page
from segkit.images.reading import Reading
from segkit.images.record import made_aside
from segkit.images.stems import files_by_stem, stem_of
from segkit.images.write import save_as

# Types that OME knows.
_DTYPES = {"uint8", "uint16", "uint32", "int8", "int16", "int32", "float32", "float64"}


def combine(
    sources: Sequence[str | Path],
    output: str | Path,
    *,
    reading: Reading | None = None,
    overwrite: bool = False,
    progress: Progress = pass_on,
) -> dict[Path, tuple[str, ...]]:
    """Join files of the same names into images of several channels.

    Parameters
    ----------
    sources : sequence of str or Path
        Where the channels are, first to last: folders whose files have the same names, or patterns such as
        ``"plate/*_w1"``, with one star for what the files of an image share. Extensions do not count.
    output : str or Path
        Folder for the images, OME-TIFF files of the names that the files share.
    reading : Reading, optional
        How the files are read; by default as their metadata tell.
    overwrite : bool, default=False
        Whether to replace files that segkit wrote.
    progress : callable, optional
        Follows the images: ``progress(items, description)`` yields the items.

    Returns
    -------
    dict of Path to tuple of str
        The files that were written, and the names of their channels: those in the files, else those of the sources,
        numbered where a file has several. Values are as they are in the files; where types differ, they are float32 in
        [0, 1].

    Raises
    ------
    InputError
        If a source holds no images, an image lacks a channel, or its files differ in size or in the number of planes.
    OutputError
        If a file exists, or cannot be written.
    """
    output, reading = Path(output), reading or Reading()
    named = [_files_of(source) for source in sources]
    files = _by_image(named)
    for folder in {path.parent for paths in files.values() for path in paths}:
        refuse_nesting(folder, output)
    places = {image: Path(f"{image}.ome.tif") for image in files}
    refuse_existing([output / place for place in places.values()], overwrite=overwrite)
    titles = [title for title, _ in named]
    with made_aside(output, "combined", list(places.values())) as aside:
        channels = {
            image: _join(aside / places[image], titles, files[image], reading)
            for image in progress(files, "Combining")
        }
    return {output / places[image]: names for image, names in channels.items()}


def _files_of(source: str | Path) -> tuple[str, dict[str, Path]]:
    """Return what a source is called, and its file of each image."""
    place = Path(source)
    if "*" not in str(source):
        return place.resolve().name, files_by_stem(place).path_of
    first, star, last = stem_of(Path(place.name)).partition("*")
    if "*" in str(place.parent) or not star or "*" in last:
        raise InputError(
            f"{source}: give a folder, or a pattern with one star in the name of the files, such as 'plate/*_w1'"
        )
    found = {}
    for stem, path in files_by_stem(place.parent).path_of.items():
        folder, slash, name = stem.rpartition("/")
        if name.startswith(first) and name.endswith(last) and len(name) > len(first + last):
            found[folder + slash + name[len(first) : len(name) - len(last)]] = path
    if not found:
        raise InputError(f"no image is called like {place.name}: check the pattern", source=place.parent)
    return " ".join(filter(None, (first.strip(" ._-"), last.strip(" ._-")))) or place.parent.name, found


def _by_image(named: Sequence[tuple[str, dict[str, Path]]]) -> dict[str, list[Path]]:
    """Return the files of each image; all must have one in each source."""
    images = sorted({image for _, files in named for image in files})
    for title, files in named:
        if missing := [image for image in images if image not in files]:
            raise InputError(
                f"{title} has no file for {first_few(missing)}, which another source has: every image needs all of its "
                "channels, in files of the same name"
            )
    return {image: [files[image] for _, files in named] for image in images}


def _join(place: Path, titles: Sequence[str], paths: Sequence[Path], reading: Reading) -> tuple[str, ...]:
    """Write a file of all channels, and name them."""
    stacks = [reading.read(path) for path in paths]
    first = stacks[0]
    for path, stack in zip(paths, stacks, strict=True):
        sizes = [page.shape for page in stack.pages]
        if len(set(sizes)) > 1 or [page.shape[:2] for page in first.pages] != [size[:2] for size in sizes]:
            told = ", ".join(dict.fromkeys(f"{height} x {width}" for height, width, *_ in sizes))
            raise InputError(
                f"{count(len(sizes), 'plane')} of {told} pixels, other than in {paths[0]}: save all channels of an image "
                "in one size",
                source=path,
            )
        if len(sizes) > 1 and sorted(stack.layout.axes) != sorted(first.layout.axes):
            own, others = (one.layout.axes or "without names" for one in (stack, first))
            raise InputError(
                f"its planes are {own}, those of {paths[0]} {others}: name the axes of both alike (--set data.axes=ZYX)",
                source=path,
            )
    dtypes = {page.dtype.name for stack in stacks for page in stack.pages}
    as_stored = len(dtypes) == 1 and dtypes <= _DTYPES
    pages = [
        [np.atleast_3d(page) if as_stored else _fractions(page, path) for page in stack.pages]
        for path, stack in zip(paths, stacks, strict=True)
    ]
    array = np.moveaxis(np.concatenate(pages, axis=3), 3, 1)
    letters, shape = first.layout.axes, first.layout.shape
    if not set(letters) <= set("TZ") or math.prod(shape) != len(array):
        letters, shape = "T", (len(array),)
    names = _names(titles, stacks)
    size = find_pixel_size(paths[0]).size
    metadata = {"axes": f"{letters}CYX", "Channel": {"Name": names}}
    metadata |= in_ome(size, read_z_step(paths[0]) if "Z" in letters else None)
    options: dict[str, Any] = {"photometric": "minisblack", "compression": "zlib", "metadata": metadata}
    array = array.reshape(*shape, *array.shape[1:])
    save_as(place, (".tif",), lambda temporary: tifffile.imwrite(temporary, array, ome=True, **options))
    return tuple(names)


def _fractions(page: NDArray[Any], path: Path) -> FloatArray:
    """Scale a page to [0, 1]; values of a type without a range must be there."""
    try:
        return image_from_page(page, name=str(path))
    except InputError:
        raise InputError(
            f"{page.dtype} from {page.min():g} to {page.max():g}, a type without a range: save it as fractions from 0 to 1, "
            "or all files of an image in one type of up to 32 bits",
            source=path,
        ) from None


def _names(titles: Sequence[str], stacks: Sequence[Stack]) -> list[str]:
    """Name the channels of files, by their own names if they have them, and by both where these are alike."""
    found = [
        (title, name) for title, stack in zip(titles, stacks, strict=True) for name in _channels(title, stack)
    ]
    names = [name for _, name in found]
    if len(set(names)) < len(names):
        names = [f"{title} {name}" for title, name in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(
            f"two channels are called {twice[0]}: give each source once, or folders of other names"
        )
    return names


def _channels(title: str, stack: Stack) -> list[str]:
    """Name the channels of a file, by its own names if it has them."""
    n_channels = np.atleast_3d(stack.pages[0]).shape[2]
    if len(stack.layout.channels) == n_channels:
        return list(stack.layout.channels)
    return [title] if n_channels == 1 else [f"{title} {number}" for number in range(1, n_channels + 1)]
