"""Image and mask files to arrays, every value as the file stores it until its range is known."""

from __future__ import annotations

import logging
import math
import threading
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageFile

from segkit._common.arrays import as_array
from segkit.errors import InputError, first_few
from segkit.images.axes import SMALLEST_SIDE, Layout, Stack, is_page, name_axes, plane_axes
from segkit.images.headers import FORMATS, check_format, format_of, is_lossy, refuse_bomb
from segkit.images.microscopy import READERS, check_reader, is_microscopy, read_array
from segkit.images.shown import (
    as_shown,
    black_and_white,
    check_tables,
    drop_alpha,
    is_flat,
    note_on_inversion,
    offset_in,
    values_of_palette,
)
from segkit.images.tiff import images_in, open_tiff

TIFF_EXTENSIONS = FORMATS["TIFF"].extensions
OfColours = Callable[[NDArray[Any]], NDArray[Any] | None]
IMAGE_EXTENSIONS = (*(ending for known in FORMATS.values() for ending in known.extensions), *READERS)

_PILLOW = {name: known.reader for name, known in FORMATS.items() if known.reader is not None}
_ORIENTATION = 274
_TURNED = range(2, 9)
_MOST_LOSS = 16  # of 255, by which compression moves the colours of grey apart


def read_pages(
    path: str | Path, *, axes: str | None = None, n_masks: int | None = None
) -> list[NDArray[Any]]:
    """Read every page of an image file as it is stored.

    Parameters
    ----------
    path : str or Path
        A PNG, TIFF or other image file.
    axes : str, optional
        Names of the axes of a TIFF, as in `Reading`.
    n_masks : int, optional
        Number of pages of its mask: as many pages without names are planes.

    Returns
    -------
    list of ndarray of shape (H, W) or (H, W, C)
        One array for each page, of the file's own dtype. A palette image has its colours. An alpha channel is dropped.

    Raises
    ------
    InputError
        If the file is missing, damaged, empty, of another format, or cannot be read without loss. If it declares more
        pixels than it can hold, or than the machine has memory for: nothing is decoded then. If it has several pages and
        does not say whether they are planes or channels.

    Warns
    -----
    UserWarning
        If something in the file is not read: further frames of an animation, an orientation, what transparency hides.

    Notes
    -----
    The axes of a TIFF come from its own metadata (OME, ImageJ or plain tags), never from sizes: Y and
    X span the image, S (samples) and C (channels) become its last axis, and every other axis (T, Z,
    ...) is unrolled into pages: depth fastest, then time, then positions. Other formats hold one page.
    Values are those that viewers show: 0 is black, also where the file stores it as white, CMYK is read as RGB, and an
    offset of Fiji's is taken off. Pixels are in the order of the file, whatever orientation the metadata (EXIF) tell
    viewers to show them in.
    """
    return read_stack(path, axes=axes, n_masks=n_masks).pages


def read_stack(
    path: str | Path,
    *,
    is_mask: bool = False,
    axes: str | None = None,
    n_masks: int | None = None,
    unnamed: str | None = None,
) -> Stack:
    """Read the pages of a file as `read_pages` does, and what they are; `unnamed` are axes without names, "any" planes.

    A palette `is_mask` has values, an image colours, and an alpha channel may hold a mask.
    """
    path = Path(path)
    check_path(path)
    notes: list[str] = []
    if path.suffix.lower() in TIFF_EXTENSIONS:
        naming = _Naming(path, axes, n_masks, unnamed)
        stack = _read_tiff(path, notes, naming, is_mask=is_mask)
    elif is_microscopy(path):
        stack = _read_microscopy(path, axes)
    else:
        stack = Stack([_read_pillow(path, notes, is_mask=is_mask)], Layout())
    if not all(page.size for page in stack.pages) or not stack.pages:
        raise InputError("holds no pixels: export it again", source=path)
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=3)
    return stack


def read_planes(path: str | Path, *, axes: str | None = None) -> list[NDArray[Any]]:
    """Read every page of an image as `read_pages` does; pages that neither file nor `axes` name are planes."""
    return read_stack(path, axes=axes, unnamed="any" if axes is None else None).pages


def read_image(path: str | Path, *, axes: str | None = None) -> list[NDArray[np.float32]]:
    """Read every page of an image file as floats in [0, 1].

    Parameters
    ----------
    path : str or Path
        A PNG, TIFF or other image file; `read_pages` tells how pages and channels are found.
    axes : str, optional
        Names of the axes of a TIFF, as in `read_pages`.

    Returns
    -------
    list of ndarray of shape (H, W, C), float32
        One image for each page, scaled by the range of its dtype; an alpha channel is dropped.

    Raises
    ------
    InputError
        As `read_pages` and `to_float`.
    """
    return [image_from_page(page, name=str(path)) for page in read_pages(path, axes=axes)]


def image_from_page(page: NDArray[Any], *, name: str = "image") -> NDArray[np.float32]:
    """Scale a page of `read_pages` to [0, 1], with a channel axis even if it is grey; (H, W, C) float32."""
    image = to_float(page, name=name)
    return image[:, :, None] if image.ndim == 2 else image


def to_float(array: ArrayLike, *, name: str = "image") -> NDArray[np.float32]:
    """Scale pixel values to [0, 1] by the range of their dtype.

    Parameters
    ----------
    array : array-like of bool, uint8, uint16 or float
        Pixel values of any shape; floats must lie in [0, 1] already.
    name : str, default="image"
        What an error message calls the array, for example its path.

    Returns
    -------
    ndarray of the same shape, float32
        Values in [0, 1].

    Raises
    ------
    InputError
        If the dtype is another one, or floats are NaN, infinite or outside [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> to_float(np.array([0, 51, 255], dtype=np.uint8))
    array([0. , 0.2, 1. ], dtype=float32)
    """
    array = as_array(array, name=name)
    if array.dtype in (np.uint8, np.uint16):
        return (array / np.float32(np.iinfo(array.dtype).max)).astype(np.float32, copy=False)
    if array.dtype == np.bool_:
        return array.astype(np.float32)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(
            f"pixels are {array.dtype}, expected bool, uint8, uint16 or floats in [0, 1]: "
            f"convert it to one of these, or train with the range of its values (--set data.range=0..4095)",
            source=name,
        )
    check_finite(array, name)
    if array.size and (array.min() < 0 or array.max() > 1):
        raise InputError(
            f"float pixels range from {array.min():g} to {array.max():g}, expected [0, 1]: "
            f"divide by the largest value the instrument can give, the same for every image, or train with the range of "
            f"values (--set data.range=0..4095)",
            source=name,
        )
    return array.astype(np.float32)


def check_range(image: NDArray[np.floating[Any]], *, name: str = "image") -> None:
    """Refuse floats that are not scaled to [0, 1], such as those of 0 to 255."""
    low, high = float(image.min()), float(image.max())
    # filters may leave values a little outside
    if low < -1 or high > 2:
        raise InputError(
            f"floats from {low:g} to {high:g}, expected [0, 1]: scale it as it was stored, with "
            f"segkit.images.to_float(array of uint8 or uint16), or divide every image by the same largest value",
            source=name,
        )


def check_size(image: NDArray[Any], *, name: str = "image") -> None:
    """Refuse an image too small to learn from."""
    height, width = image.shape[:2]
    if min(height, width) < SMALLEST_SIDE:
        raise InputError(
            f"{height} x {width} pixels, expected {SMALLEST_SIDE} x {SMALLEST_SIDE} or more, so that "
            f"pixels have neighbours: leave it out, or crop it less tightly",
            source=name,
        )


def check_image(image: ArrayLike, *, name: str = "image") -> None:
    """Refuse an image that nothing can be learnt from.

    Parameters
    ----------
    image : array-like of shape (H, W) or (H, W, C)
        The image.
    name : str, default="image"
        What the error message calls it, for example its path.

    Raises
    ------
    InputError
        If it is empty, constant, smaller than four pixels in height or width, or holds NaN or infinity.
    """
    image = np.asarray(image)
    if not image.size:
        raise InputError("holds no pixels: leave it out", source=name)
    check_size(image, name=name)
    check_finite(image, name)
    if image.min() == image.max():
        raise InputError(f"every pixel is {image.flat[0]:g}: leave out this blank image", source=name)


def count_pages(path: str | Path, *, axes: str | None = None, unnamed: str | None = None) -> int:
    """Count the pages of an image file, from its header; axes are named as for `read_stack`."""
    path = Path(path)
    check_path(path)
    if is_microscopy(path):
        return len(_read_microscopy(path, axes).pages)
    if path.suffix.lower() not in TIFF_EXTENSIONS:
        return 1
    with decoding(path), open_tiff(path) as file:
        naming = _Naming(path, axes, unnamed=unnamed)
        return sum(
            math.prod(
                length for length, axis in zip(series.shape, naming.of(series), strict=True) if is_page(axis)
            )
            for series in images_in(file)
        )


def read_mask(path: str | Path) -> list[NDArray[Any]]:
    """Read every page of a mask file as integers.

    Parameters
    ----------
    path : str or Path
        A PNG, TIFF or other image file with one value per pixel; `read_pages` tells how pages are found.

    Returns
    -------
    list of ndarray of shape (H, W), int
        The file's own values. A palette mask gives its indices, a colour mask with equal channels one
        of them, whole floats become integers, and alpha is dropped.

    Raises
    ------
    InputError
        As `read_pages`, and for a coloured mask, fractions, or a JPEG mask that is not black and white.

    Warns
    -----
    UserWarning
        If a JPEG mask holds greys, which compression makes; they are thresholded to 0 and 255.
    """
    masks, notes = read_mask_with_notes(path)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return masks


def read_mask_with_notes(
    path: str | Path, *, axes: str | None = None, of_colours: OfColours | None = None
) -> tuple[list[NDArray[Any]], list[str]]:
    """Read a mask as `read_mask` does, with the warnings as a list for the caller to show at leisure.

    `of_colours` turns a page (H, W, 3) into values, or gives None if it cannot.
    """
    # a mask has one value per pixel: its pages cannot be channels
    pages = read_stack(path, is_mask=True, axes=axes, unnamed="any").pages
    has_losses = is_lossy(Path(path))
    if of_colours is not None and not has_losses:
        pages = [page if page.ndim == 2 or (values := of_colours(page)) is None else values for page in pages]
    masks = [_one_value_per_pixel(page, str(path), _MOST_LOSS if has_losses else 0) for page in pages]
    if not has_losses:
        return masks, []
    kind = format_of(Path(path))
    sharp = [_undo_loss(mask, kind, str(path)) for mask in masks]
    changed = any((before != after).any() for before, after in zip(masks, sharp, strict=True))
    return sharp, [f"{path}: greys of a {kind} mask thresholded to 0 and 255: save masks as PNG"] * changed


def _one_value_per_pixel(page: NDArray[Any], name: str, most_loss: int) -> NDArray[Any]:
    mask = page
    if mask.ndim == 3:
        if (mask != mask[:, :, :1]).any() and (not most_loss or np.ptp(mask, axis=2).max() > most_loss):
            raise InputError(
                f"coloured mask with {mask.shape[2]} channels, expected one value per pixel: "
                f"save it as a grey or palette image, one number for each class (or is this the image, and the folders "
                f"are swapped?)",
                source=name,
            )
        mask = mask[:, :, 0]
    if mask.dtype.kind not in "buif":
        raise InputError(f"mask of type {mask.dtype}, expected whole numbers: save it as one", source=name)
    if np.issubdtype(mask.dtype, np.floating):
        check_finite(mask, name)
        if (mask != np.rint(mask)).any():
            raise InputError(
                f"mask values are fractions between {mask.min():g} and {mask.max():g}, "
                f"expected whole numbers: threshold it and save it again",
                source=name,
            )
        return mask.astype(np.int64)
    return mask.astype(np.uint8) if mask.dtype == np.bool_ else mask


def _undo_loss(mask: NDArray[Any], kind: str, name: str) -> NDArray[Any]:
    sharp = black_and_white(mask)
    if sharp is None:
        raise InputError(
            f"{kind} mask with values from {mask.min()} to {mask.max()} that are not black and white, "
            f"and {kind} changes values: save it as PNG from its source",
            source=name,
        )
    return sharp


def check_path(path: Path) -> None:
    """Refuse a file that is missing, empty, or of an unknown extension."""
    if path.suffix.lower() not in IMAGE_EXTENSIONS:
        raise InputError(
            f"unsupported extension {path.suffix!r}, expected one of {', '.join(IMAGE_EXTENSIONS)}: "
            f"save it as PNG or TIFF",
            source=path,
        )
    if not path.is_file():
        raise InputError(f"{_what_it_is(path)}", source=path)
    if path.stat().st_size == 0:
        raise InputError("the file is empty: copy or export it again", source=path)


def _what_it_is(path: Path) -> str:
    """Explain why a path is no file to read."""
    if path.exists():
        return "neither a file nor a link to one, but a folder, a pipe or a device: give an image file"
    if path.is_symlink():
        return "a link to a file that is not there: restore that file, or remove the link"
    return "no such file: check its name and folder"


def check_finite(array: NDArray[Any], name: str) -> None:
    """Refuse an array that holds NaN or infinity."""
    wrong = array.size - np.count_nonzero(np.isfinite(array))
    if wrong:
        raise InputError(
            f"{wrong} of {array.size} values are NaN or infinite: mend it or leave it out", source=name
        )


class _Listener(logging.Filter):
    """Keeps what tifffile logs, in place of the terminal, while segkit decodes a file."""

    def __init__(self) -> None:
        super().__init__()
        self._here = threading.local()

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        before = getattr(self._here, "heard", None)
        heard: list[str] = []
        self._here.heard = heard
        try:
            yield heard
        finally:
            self._here.heard = before

    def filter(self, record: logging.LogRecord) -> bool:
        heard = getattr(self._here, "heard", None)
        if heard is not None and record.levelno >= logging.WARNING:
            heard.append(" ".join(record.getMessage().split()))
        return heard is None


_listener = _Listener()
tifffile.logger().addFilter(_listener)


@contextmanager
def decoding(path: Path, notes: list[str] | None = None) -> Iterator[None]:
    """Turn whatever a decoder raises into an error that names the file, and what it logs into a note."""
    try:
        with _listener.listening() as heard:
            yield
        if heard and notes is not None:
            notes.append(f"read, but may be damaged ({heard[0]})")
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(
            "its pixels do not fit into memory: cut it into smaller images", source=path
        ) from error
    except Exception as error:  # damage makes a decoder raise anything from OSError to struct.error
        reason = " ".join(str(error).split())
        raise InputError(f"cannot be decoded ({reason}): copy or export it again", source=path) from error


def _read_pillow(path: Path, notes: list[str], *, is_mask: bool) -> NDArray[Any]:
    kind = check_format(path, tuple(_PILLOW))
    with decoding(path, notes), _PILLOW[kind](path) as image:
        _check_header(path, image, notes)
        image.load()
        if image.mode == "I":  # Pillow before 11, of 16-bit grey; these formats hold no wider integers
            return np.asarray(image).astype(np.uint16)
        has_palette = image.mode in ("P", "PA")
        if image.mode in ("LA", "RGBA", "PA") or (has_palette and "transparency" in image.info):
            shown = np.asarray(image.convert("LA" if image.mode == "LA" else "RGBA"))
            colours, alpha = shown[..., :-1], shown[..., -1]
            # the values of a palette are seen whatever is transparent
            if not (is_mask and has_palette) or is_flat(colours):
                colours = drop_alpha(colours, alpha, path, notes, is_mask=is_mask)
                return colours[..., 0] if colours.shape[-1] == 1 else colours
        if has_palette:
            return _of_palette(image, path, is_mask=is_mask)
        return np.asarray(image.convert("RGB") if image.mode in ("CMYK", "YCbCr") else image)


def _of_palette(image: Image.Image, path: Path, *, is_mask: bool) -> NDArray[Any]:
    """Return the colours of a palette image, or the values of a mask."""
    indices = np.asarray(image.getchannel("P") if image.mode == "PA" else image)
    table = np.array(image.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
    if image.format == "GIF" and (table == table[:, :1]).all():  # it has no other way to store grey
        greys: NDArray[np.uint8] = table[:, 0]
        return np.take(greys, indices)
    return values_of_palette(indices, table, path) if is_mask else np.asarray(image.convert("RGB"))


def _check_header(path: Path, image: ImageFile.ImageFile, notes: list[str]) -> None:
    """Refuse an image from its header, before it is decoded; note what is not read."""
    width, height = image.size
    size = f"{height:,} x {width:,}"
    n_bytes = {"I": 4, "F": 4, "I;16": 2}.get(image.mode, 1)
    n_bands = len("RGB") if image.mode == "P" else len(image.getbands())
    refuse_bomb(path, width * height * n_bands, n_bytes, size)
    told = image.tile[0][3] if image.format == "PPM" else None  # mode and white
    of_16_bits = "16B" in str(image.tile) or (isinstance(told, tuple) and told > ("RGB", 255))
    if image.mode not in ("I", "I;16") and of_16_bits:
        raise InputError(
            f"16-bit {image.format} with colour or alpha, whose lower 8 bits would be lost: save it as TIFF",
            source=path,
        )
    n_frames = getattr(image, "n_frames", 1)
    if n_frames > 1:
        notes.append(
            f"an animation of {n_frames} frames, of which the first is read: save each frame as a file"
        )
    notes += _of_turning(image.getexif().get(_ORIENTATION, 1), size)


def _of_turning(orientation: object, size: str) -> list[str]:
    """Note that viewers turn an image; segkit does not, so that its mask has the pixels of the file."""
    if orientation not in _TURNED:
        return []
    return [
        f"its metadata tell viewers to turn or mirror it; read as it is stored, {size}: if its mask was drawn on the turned "
        f"image, save the image turned, without that tag"
    ]


def _read_microscopy(path: Path, given: str | None) -> Stack:
    check_reader(path)
    with decoding(path):
        array, own, layout = read_array(path)
        stack = unroll(array, name_axes(path, own, array.shape, given=given))
    return Stack(stack.pages, stack.layout._replace(channels=layout.channels))


@dataclass(frozen=True)
class _Naming:
    """Options that name the axes of a file, beside the file itself; see `name_axes`."""

    path: Path
    given: str | None = None
    n_masks: int | None = None
    unnamed: str | None = None

    def of(self, series: Any) -> str:
        """Name the axes of a series."""
        if self.unnamed == "any":
            return plane_axes(self.path, series.axes, series.shape, given=self.given)
        given, full = self.given, series.get_shape(squeeze=False)
        if given is not None and len(given) == len(full) > len(
            series.shape
        ):  # axes of length 1 are not there any more
            kept = zip(given, full, series.get_axes(squeeze=False), strict=True)
            named = "".join(name for name, length, own in kept if length > 1 or own in "YX")
            given = (
                named if {"Y", "X"} <= set(named) else given
            )  # letters of other axes than those of the file
        return name_axes(
            self.path, series.axes, series.shape, given=given, unnamed=self.unnamed, n_masks=self.n_masks
        )

    def is_told_by_mask(self, series: Any) -> bool:
        """Whether nothing but the number of pages of the mask tells the axes of a series."""
        if self.n_masks is None:
            return False
        try:
            replace(self, n_masks=None).of(series)
        except InputError:
            return True
        return False


def _read_tiff(path: Path, notes: list[str], naming: _Naming, *, is_mask: bool) -> Stack:
    check_format(path, ("TIFF",))
    with decoding(path, notes), open_tiff(path, notes) as file:
        all_series = images_in(file)
        n_values = sum(math.prod(series.shape) for series in all_series)
        itemsize = max(series.dtype.itemsize for series in all_series)
        size = first_few([" x ".join(f"{side:,}" for side in series.shape) for series in all_series], most=3)
        refuse_bomb(path, n_values, itemsize, size)
        for series in all_series:
            _check_segments(series)
            if not is_mask:
                check_tables(path, series)
        tags = file.pages.first.tags
        notes += _of_turning(tags.valueof(_ORIENTATION, 1), size)
        named = [naming.of(series) for series in all_series]
        offset, noted = offset_in(file)
        notes += noted + note_on_inversion(file, is_mask=is_mask)

        def show(array: NDArray[Any], page: Any) -> NDArray[Any]:
            colours, alpha = as_shown(array, page, path, offset=offset, is_mask=is_mask)
            return colours if alpha is None else drop_alpha(colours, alpha, path, notes, is_mask=is_mask)

        read = [_pages_of(*pair, show) for pair in zip(all_series, named, strict=True)]
        if len(read) == 1:
            told = named[0] if naming.is_told_by_mask(all_series[0]) else None
            return Stack(read[0].pages, read[0].layout._replace(channels=channel_names(file), told=told))
        pages = [page for stack in read for page in stack.pages]
        return Stack(pages, Layout("P", (len(pages),)))


def channel_names(file: tifffile.TiffFile) -> tuple[str, ...]:
    """Read the names of channels from the metadata of OME or ImageJ; empty where they do not tell."""
    if file.is_ome:
        return names_in_ome(file.ome_metadata)
    labels = (file.imagej_metadata or {}).get("Labels") if file.is_imagej else None
    n_channels = int((file.imagej_metadata or {}).get("channels", 0)) if file.is_imagej else 0
    if not isinstance(labels, list) or not 1 < n_channels <= len(labels):
        return ()
    # ImageJ labels each plane, "c:1/2 z:1/9 - DAPI": the first planes are those of the channels
    return tuple(str(label).rpartition(" - ")[2].strip() for label in labels[:n_channels])


def pixels_in_ome(text: str | None) -> ElementTree.Element | None:
    """Find the element of the XML of OME that describes the pixels; None of none."""
    try:
        return ElementTree.fromstring(text or "").find(".//{*}Pixels")
    except ElementTree.ParseError:
        return None


def names_in_ome(text: str | None) -> tuple[str, ...]:
    """Read the names of channels from the XML of OME; empty unless each has one."""
    pixels = pixels_in_ome(text)
    nodes = [] if pixels is None else pixels.findall("{*}Channel")
    names = tuple(node.get("Name", "") for node in nodes)
    return names if all(names) else ()


def _check_segments(series: Any) -> None:
    """Refuse a page with fewer strips or tiles than its size needs: tifffile would fill the rest with zeros."""
    for page in series.pages:
        if page is None:
            raise EOFError("pages are missing")
        wanted = math.prod(page.chunked)
        if len(page.dataoffsets) < wanted:
            raise EOFError(f"{len(page.dataoffsets)} of {wanted} strips or tiles are there")


def _pages_of(series: Any, axes: str, show: Callable[[NDArray[Any], Any], NDArray[Any]]) -> Stack:
    if not {"Y", "X"} <= set(axes):
        raise ValueError(f"axes {axes} without Y and X")
    array = series.asarray()
    if "S" in series.axes:
        place = series.axes.index("S")
        array, axes = np.moveaxis(array, place, -1), axes[:place] + axes[place + 1 :] + axes[place]
    array = show(array, series.keyframe)
    return unroll(array, axes if array.ndim == len(axes) else axes + "S")


def unroll(array: NDArray[Any], axes: str) -> Stack:
    """Unroll the axes of an array into pages, depth fastest, and make C and S the channels of each."""
    channels = [axis for axis, letter in enumerate(axes) if letter in "CS"]
    # One order for all files: programs store an image and its mask in different orders of time and depth.
    pages = sorted(
        (axis for axis, letter in enumerate(axes) if is_page(letter)),
        key=lambda axis: "PTZ".index(axes[axis]),
    )
    layout = Layout("".join(axes[axis] for axis in pages), tuple(array.shape[axis] for axis in pages))
    array = array.transpose(*pages, axes.index("Y"), axes.index("X"), *channels)
    height, width, *rest = array.shape[len(pages) :]
    return Stack(list(array.reshape(-1, height, width, *([math.prod(rest)] if channels else []))), layout)
