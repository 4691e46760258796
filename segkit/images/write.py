"""Arrays to files, each whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from scipy import ndimage

from segkit._common.files import saving
from segkit.errors import InputError, OutputError
from segkit.images.axes import Layout
from segkit.images.contrast import contrast_of, depth_of
from segkit.images.labels import UNLABELLED
from segkit.images.outlines import check_label_image
from segkit.images.pixel_size import Physical, PixelSize, png_options, tiff_options
from segkit.images.read import TIFF_EXTENSIONS, check_range

# Okabe and Ito's colours, which colour-blind eyes tell apart; those that leap out of tissue come first
CLASS_COLOURS = np.array(
    [
        (240, 228, 66),
        (86, 180, 233),
        (0, 158, 115),
        (230, 159, 0),
        (204, 121, 167),
        (0, 114, 178),
        (213, 94, 0),
    ]
)
_TINT = 0.15
RIM = (16, 16, 16)
_PIXELS_PER_LINE_WIDTH = 800


def write_mask(
    path: str | Path,
    mask: ArrayLike,
    *,
    pixel_size: PixelSize | None = None,
    layout: Layout | None = None,
    z_step: float | None = None,
) -> None:
    """Write a mask, the values as they are.

    Parameters
    ----------
    path : str or Path
        A ``.png`` or ``.tif`` file; missing folders are made, an existing file is replaced.
    mask : array-like of shape (H, W) or (n_pages, H, W), int
        Values of the mask; PNG holds one page of uint8 or uint16, TIFF any.
    pixel_size : PixelSize, optional
        Micrometres per pixel, for the file to tell.
    layout : Layout, optional
        What the pages are, as `read_stack` found it in the image: the TIFF has the same axes without channels. A name
        that ends in ``.ome.tif`` makes an OME-TIFF.
    z_step : float, optional
        Micrometres from plane to plane.

    Raises
    ------
    InputError
        If a pixel size is not above 0.
    OutputError
        If the format cannot hold the mask, or the file cannot be written.
    """
    path, mask = Path(path), np.asarray(mask)
    if not np.issubdtype(mask.dtype, np.integer) or mask.ndim not in (2, 3):
        raise OutputError(
            f"{path}: mask of dtype {mask.dtype} and shape {mask.shape}, "
            f"expected integers of shape (H, W) or (n_pages, H, W): encode it with a LabelMap"
        )
    suffix = path.suffix.lower()
    if suffix in TIFF_EXTENSIONS:
        array, options = tiff_options(path, mask, _physical(layout, pixel_size, z_step))
        _write(path, lambda temporary: _save_tiff(temporary, array, options))
    elif suffix == ".png" and mask.ndim == 2 and mask.dtype in (np.uint8, np.uint16):
        options = png_options(pixel_size)
        _write(path, lambda temporary: Image.fromarray(mask).save(temporary, **options))
    else:
        raise OutputError(
            f"{path}: {suffix or 'no extension'} cannot hold {mask.dtype} pixels of shape {mask.shape} "
            f"unchanged: name it {path.stem}.tif"
        )


def write_labels(
    path: str | Path,
    labels: ArrayLike,
    pixel_size: PixelSize | None = None,
    *,
    layout: Layout | None = None,
    z_step: float | None = None,
) -> None:
    """Write a label image: 0 for background, the id of an object elsewhere.

    Parameters
    ----------
    path : str or Path
        A ``.png`` or ``.tif`` file; missing folders are made, an existing file is replaced.
    labels : array-like of shape (H, W) or (n_pages, H, W), int
        The label image, or one for each page of a TIFF; of 16 bits in the file, or of 32 with ids beyond 65,535, which
        only TIFF holds.
    pixel_size, layout, z_step : optional
        As in `write_mask`.

    Raises
    ------
    InputError
        If there are negative ids, or pages are no whole numbers of shape (H, W).
    OutputError
        If the format cannot hold the ids, or the file cannot be written.
    """
    path = Path(path)
    pages = list(labels) if np.ndim(labels) == 3 else [labels]  # type: ignore[arg-type]
    checked = [check_label_image(page, name=str(path)) for page in pages]
    labels = np.stack(checked) if np.ndim(labels) == 3 else checked[0]
    is_long = labels.size and labels.max() > np.iinfo(np.uint16).max
    if is_long and path.suffix.lower() == ".png":
        raise OutputError(
            f"{path}: ids up to {labels.max()}, PNG holds ids up to 65535: name it {path.stem}.tif"
        )
    values = labels.astype(np.uint32 if is_long else np.uint16)
    write_mask(path, values, pixel_size=pixel_size, layout=layout, z_step=z_step)


def write_image(path: str | Path, image: ArrayLike) -> None:
    """Write an image as 8-bit PNG.

    Parameters
    ----------
    path : str or Path
        A ``.png`` file; missing folders are made, an existing file is replaced.
    image : array-like of shape (H, W) or (H, W, 3), float in [0, 1]
        The image.

    Raises
    ------
    InputError
        If the image is not scaled to [0, 1].
    OutputError
        If the file cannot be written.
    """
    pixels = np.asarray(image)
    check_range(pixels, name=str(path))
    pixels = np.rint(255 * np.clip(pixels, 0, 1)).astype(np.uint8)
    _write(Path(path), Image.fromarray(pixels).save)


def write_probability(
    path: str | Path,
    probability: ArrayLike,
    *,
    pixel_size: PixelSize | None = None,
    layout: Layout | None = None,
    z_step: float | None = None,
) -> None:
    """Write a probability map as float32 TIFF.

    Parameters
    ----------
    path : str or Path
        A ``.tif`` file; missing folders are made, an existing file is replaced.
    probability : array-like of shape (H, W), (n_classes, H, W), (n_pages, H, W) or (n_pages, n_classes, H, W), float
        Values in [0, 1].
    pixel_size, layout, z_step : optional
        As in `write_mask`.

    Raises
    ------
    InputError
        If a pixel size is not above 0.
    OutputError
        If the extension is not that of TIFF, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in TIFF_EXTENSIONS:
        raise OutputError(f"{path}: only TIFF holds float32 probabilities: name it {path.stem}.tif")
    pages = np.asarray(probability, dtype=np.float32)
    physical = _physical(layout, pixel_size, z_step)
    array, options = tiff_options(path, pages, physical, has_classes=pages.ndim == 4)
    _write(path, lambda temporary: _save_tiff(temporary, array, options))


def write_overlay(path: str | Path, image: ArrayLike, ids: ArrayLike) -> None:
    """Write the picture that `overlay` draws.

    Parameters
    ----------
    path : str or Path
        A ``.png`` or ``.jpg`` file; missing folders are made, an existing file is replaced.
    image : array-like of shape (H, W) or (H, W, C), float in [0, 1]
        The image.
    ids : array-like of shape (H, W), int
        Class ids.

    Raises
    ------
    InputError
        If the sizes differ.
    OutputError
        If the file cannot be written.
    """
    picture = Image.fromarray(overlay(image, ids))
    _write(Path(path), picture.save)


def overlay(image: ArrayLike, ids: ArrayLike, *, line_width: int | None = None) -> NDArray[np.uint8]:
    """Draw class contours and a light tint over an image.

    Parameters
    ----------
    image : array-like of shape (H, W) or (H, W, C), float in [0, 1]
        The image. Three channels are shown as RGB, any other number by their mean, in grey. Contrast is stretched between
        the 0.35th and 99.65th percentile, but for RGB of 8 bits.
    ids : array-like of shape (H, W), int
        Class ids. Class 0 (the background) and unlabelled pixels (255) stay as they are.
    line_width : int, optional
        Width of contours in pixels, 1 or more; by default one for each 800 pixels of the longer side.

    Returns
    -------
    ndarray of shape (H, W, 3), uint8
        The picture. Each contour is a line of the class's colour, inside the object, with a black rim of the same
        width around it: line and rim differ in brightness, so one of them shows on any ground.

    Raises
    ------
    InputError
        If the sizes differ, or the image is not scaled to [0, 1].
    """
    image, ids = np.asarray(image, dtype=np.float64), np.asarray(ids)
    check_range(image)
    if image.shape[:2] != ids.shape:
        raise InputError(
            f"image of {image.shape[:2]} pixels under class ids of shape {ids.shape}, expected one size: "
            f"draw the ids over the image they belong to"
        )
    picture = 255 * to_rgb(image)
    width = line_width_of(ids.shape) if line_width is None else line_width
    lines = {}
    for class_id in np.setdiff1d(ids, (0, UNLABELLED)):
        colour = CLASS_COLOURS[(class_id - 1) % len(CLASS_COLOURS)]
        inside = ids == class_id
        picture[inside] += _TINT * (colour - picture[inside])
        lines[class_id] = colour, inside & ~ndimage.binary_erosion(inside, iterations=width, border_value=1)
    # Rims of all classes first: where two classes touch, no rim may cover the other's line.
    for class_id in lines:
        inside = ids == class_id
        picture[ndimage.binary_dilation(inside, iterations=width) & ~inside] = RIM
    for colour, line in lines.values():
        picture[line] = colour
    return np.rint(picture).astype(np.uint8)


def line_width_of(shape: tuple[int, ...]) -> int:
    """Return the width of contours on a picture, in pixels: one for each 800 pixels of its longer side."""
    return max(1, round(max(shape) / _PIXELS_PER_LINE_WIDTH))


def to_rgb(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the colours in which an image (H, W) or (H, W, C) is shown, (H, W, 3) in [0, 1].

    Colours of 8 bits are shown as they are; other files may use a part of their range only.
    """
    is_colour = image.ndim == 3 and image.shape[2] == 3
    if is_colour and depth_of(image) == "8":
        return image.clip(0, 1)
    shown = image if is_colour else np.atleast_3d(image).mean(axis=2, keepdims=True)
    low, high = contrast_of(shown)
    stretched = (shown - low) / (high - low)
    return np.repeat(stretched.clip(0, 1), 1 if is_colour else 3, axis=2)


def _physical(layout: Layout | None, pixel_size: PixelSize | None, z_step: float | None) -> Physical:
    layout = layout or Layout()
    is_stack = layout.n_pages > 1
    return Physical(layout.axes if is_stack else "", layout.shape if is_stack else (), pixel_size, z_step)


def _save_tiff(path: Path, pages: NDArray[Any], options: dict[str, Any]) -> None:
    tifffile.imwrite(path, pages, photometric="minisblack", compression="zlib", **options)


def save_as(path: str | Path, extensions: Sequence[str], save: Callable[[Path], object]) -> None:
    """Write a file whole or not at all, if its extension is one of those."""
    path = Path(path)
    if path.suffix.lower() not in extensions:
        raise OutputError(
            f"{path}: extension {path.suffix!r}, expected {' or '.join(extensions)}: name it {path.stem}{extensions[0]}"
        )
    _write(path, save)


def _write(path: Path, save: Callable[[Path], object]) -> None:
    try:
        with saving(path) as temporary:
            save(temporary)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise OutputError(f"{path}: cannot be written ({reason}): check the extension") from error
