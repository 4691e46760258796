"""Pixels as viewers show them: what the header of a file says about how its numbers are to be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from tifffile import COMPRESSION, EXTRASAMPLE, PHOTOMETRIC

from segkit.errors import InputError

_ALPHA = (EXTRASAMPLE.ASSOCALPHA, EXTRASAMPLE.UNASSALPHA)
_PLAIN = (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB, PHOTOMETRIC.MASK, PHOTOMETRIC.LINEAR_RAW)
# These give RGB of YCbCr, others what is stored.
_CONVERTING = (
    *(COMPRESSION.JPEG, COMPRESSION.OJPEG, COMPRESSION.ALT_JPEG, COMPRESSION.JPEG_LOSSY, COMPRESSION.WEBP),
    *(COMPRESSION.JPEGXL, COMPRESSION.APERIO_JP2000_YCBC, COMPRESSION.JPEG2000, COMPRESSION.JPEGXR),
)
_ENDS = (63, 192)  # a binary mask stays in the outer quarters of 0..255 whatever JPEG or soft brushes do
_LEAST_SHARE = 0.95


def note_on_inversion(file: tifffile.TiffFile, *, is_mask: bool) -> list[str]:
    """Note that Fiji shows other values than it measures, and tifffile other ones than it was given."""
    if _is_true_black(file.pages.first):
        return ["saved as true and false by tifffile, which marks true as black: true is read as white"]
    if is_mask or not file.is_imagej or file.pages.first.photometric != PHOTOMETRIC.MINISWHITE:
        return []
    return ["an inverting lookup table of Fiji's: read as it is shown, so that intensities are inverted too"]


def offset_in(file: tifffile.TiffFile) -> tuple[int, list[str]]:
    """Return what Fiji adds to the numbers of a file to show them, -32768 for int16, and a note on it."""
    told = (file.imagej_metadata or {}) if file.is_imagej else {}
    offset, factor = told.get("c0"), told.get("c1")
    if "cf" not in told or not isinstance(offset, int | float):
        return 0, []
    if told["cf"] != 0 or factor != 1 or offset % 1 or file.pages.first.dtype not in (np.uint8, np.uint16):
        return 0, ["Fiji shows its values calibrated; they are read as they are stored"]
    return int(offset), [f"stored {-int(offset)} too high, as Fiji does with int16: read as it is shown"]


def _is_true_black(page: Any) -> bool:
    """Tell whether tifffile wrote booleans without being told how to show them: masks of Python come so."""
    return bool(page.is_shaped and page.dtype == bool and page.photometric == PHOTOMETRIC.MINISWHITE)


def check_tables(path: Path, series: Any) -> None:
    """Refuse pages that have colour tables of their own, of which one would count for all."""
    if series.keyframe.photometric != PHOTOMETRIC.PALETTE or len(series.pages) == 1:
        return
    with tifffile.TiffFile(path) as file:  # which reads the tags of every page
        tables = {file.pages[page.index].colormap.tobytes() for page in series.pages}
    if len(tables) > 1:
        raise InputError("its pages differ in their colour tables: save it as RGB", source=path)


def as_shown(
    array: NDArray[Any], page: Any, path: Path, *, offset: int = 0, is_mask: bool = False
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the values of a TIFF page, samples on the last axis, as viewers show them, and its alpha channel.

    A palette gives colours, and the values of a mask.
    """
    extras = page.extrasamples if page.samplesperpixel > 1 else ()
    alpha, others = None, []
    if extras:
        array, rest = array[..., : -len(extras)], array[..., -len(extras) :]
        is_alpha = [extra in _ALPHA for extra in extras]
        alpha = rest[..., is_alpha.index(True)] if any(is_alpha) else None
        others = [rest[..., [place]] for place, dropped in enumerate(is_alpha) if not dropped]
        # Photoshop saves a selection so
        if is_mask and alpha is None and len(others) == 1 and is_flat(array):
            alpha, others = rest[..., 0], []
    if page.photometric == PHOTOMETRIC.PALETTE:
        table, array = _in_8_bits(page.colormap.T), array.astype(np.uint8) if array.dtype == bool else array
        array = values_of_palette(array, table, path) if is_mask else table[array]
    else:
        array = _grey_or_rgb(array, page, path, is_mask=is_mask)
    if offset:
        array = (array.astype(np.int32) + offset).astype(np.int16 if offset == -(2**15) else np.int32)
    return np.concatenate([array, *others], axis=-1) if others else array, alpha


def _grey_or_rgb(array: NDArray[Any], page: Any, path: Path, *, is_mask: bool) -> NDArray[Any]:
    """Return grey with 0 as black, or RGB."""
    # a file that does not tell is taken for one that shows 0 white by its reader, and by no viewer
    is_told = "PhotometricInterpretation" in page.tags and not _is_true_black(page)
    kind = page.photometric if is_told else PHOTOMETRIC.MINISBLACK
    bits = page.bitspersample
    is_cmyk = kind == PHOTOMETRIC.SEPARATED and array.shape[-1] == 4 and array.dtype.kind == "u"
    is_cmyk = is_cmyk and page.tags.valueof("InkSet", 1) == 1
    is_rgb = kind == PHOTOMETRIC.YCBCR and page.compression in _CONVERTING
    if kind not in (*_PLAIN, PHOTOMETRIC.MINISWHITE) and not is_cmyk and not is_rgb:
        raise InputError(
            f"its colours are {getattr(kind, 'name', kind)}, expected grey, a palette, RGB or CMYK: save it as RGB",
            source=path,
        )
    if kind == PHOTOMETRIC.MINISWHITE:
        array = _inverted(array, bits, path, asks=is_mask and page.is_imagej)
    if is_cmyk:
        white = np.iinfo(array.dtype).max
        light = white - array.astype(np.float64)
        array = np.rint(light[..., :3] * light[..., 3:] / white).astype(array.dtype)
    if bits in (2, 4):  # they come in bytes
        array = array * np.uint8(255 // (2**bits - 1))
    return array


def _inverted(array: NDArray[Any], bits: int, path: Path, *, asks: bool) -> NDArray[Any]:
    """Exchange black and white."""
    if array.dtype == bool:
        return ~array
    if array.dtype.kind != "u":
        told = f"0 is shown white, and values of type {array.dtype} have no black: save it with 0 as black"
        raise InputError(told, source=path)
    black = 2**bits - 1
    if asks:
        if not ((array == 0) | (array == black)).all():  # numbers of objects, whatever they look like
            return array
        raise _of_two_meanings(black, path)
    inverted: NDArray[Any] = np.subtract(black, array, dtype=array.dtype)
    return inverted


def _of_two_meanings(black: int, path: Path) -> InputError:
    return InputError(
        f"an inverting lookup table shows {black} black and 0 white, so that objects may be either: make the objects "
        "white (Fiji: Image, Lookup Tables, Invert LUT), and save it again",
        source=path,
    )


def _in_8_bits(table: NDArray[Any]) -> NDArray[Any]:
    """Return a colour table in 8 bits if it tells no more: in the lower byte, the upper one, or both."""
    for factor in (1, 256, 257):
        if table.max() <= 255 * factor and not (table % factor).any():
            return (table // factor).astype(np.uint8)
    return table


def values_of_palette(indices: NDArray[Any], table: NDArray[Any], path: Path) -> NDArray[Any]:
    """Return the values of a palette mask: its indices; of two colours 0 and 1 if black, in a reverse order, comes last."""
    is_small = len(np.unique(table, axis=0)) == 2
    places = np.arange(len(table)) if is_small else np.unique(indices)
    colours = np.unique(table[places], axis=0)
    is_white = len(colours) == 2 and (colours[1] == np.iinfo(table.dtype).max).all()
    if len(colours) != 2 or colours[0].any() or not (is_small or is_white):
        return indices
    is_bright = (table == colours[1]).all(axis=1)
    bright, black = places[is_bright[places]], places[~is_bright[places]]
    if black[0] < bright[0]:
        return indices
    if len(table) == 256 and (table == np.arange(256)[::-1, None]).all():
        raise _of_two_meanings(255, path)
    values: NDArray[np.uint8] = is_bright.astype(np.uint8)[indices]
    return values


def drop_alpha(
    colours: NDArray[Any], alpha: NDArray[Any], path: Path, notes: list[str], *, is_mask: bool
) -> NDArray[Any]:
    """Return colours, samples on the last axis, or the alpha channel if it holds the mask; note what it hides."""
    tells = alpha.min() < alpha.max()
    if tells and is_flat(colours):
        if not is_mask:
            told = "its colours are the same everywhere, the picture is in its alpha channel: save that as a grey image"
            raise InputError(told, source=path)
        notes.append("the mask is its alpha channel: its colours are the same everywhere")
        if (sharp := black_and_white(alpha)) is None:
            told = "the mask is its alpha channel, which is not black and white: save that as a grey image"
            raise InputError(told, source=path)
        return sharp[..., None]
    is_hidden = alpha == 0
    if share := float(np.mean(is_hidden)):
        if is_mask and tells and colours[is_hidden].any():
            raise InputError(
                f"{share:.1%} of its pixels are fully transparent and hide values above 0: save it without alpha "
                "channel (GIMP: Image, Flatten Image)",
                source=path,
            )
        notes.append(f"{share:.1%} of its pixels are fully transparent; the values hidden there are read")
    return colours


def is_flat(colours: NDArray[Any]) -> bool:
    """Return whether all pixels have one colour."""
    return bool((colours == colours.reshape(-1, colours.shape[-1])[0]).all())


def black_and_white(mask: NDArray[Any]) -> NDArray[np.uint8] | None:
    """Return an unsigned mask with its greys as 0 or 255; None if it has too many of them."""
    if mask.dtype.kind != "u":
        return None
    low, high = (end / 255 * np.iinfo(mask.dtype).max for end in _ENDS)
    share = np.mean((mask <= low) | (mask >= high))
    if mask.max() > 0 and (mask.max() < high or share < _LEAST_SHARE):
        return None
    return np.where(mask > np.iinfo(mask.dtype).max // 2, 255, 0).astype(np.uint8)
