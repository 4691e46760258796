"""The size of a pixel, as microscopes and ImageJ store it in files."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL.PngImagePlugin import PngImageFile

from segkit.errors import InputError
from segkit.images.headers import check_format
from segkit.images.read import TIFF_EXTENSIONS, check_path, decoding

_MICROMETRES = {
    "m": 1e6,
    "dm": 1e5,
    "cm": 1e4,
    "mm": 1e3,
    "um": 1.0,
    "nm": 1e-3,
    "pm": 1e-6,
    "\u00c5": 1e-4,
    "angstrom": 1e-4,
    "inch": 25_400.0,
    "in": 25_400.0,
    "micron": 1.0,
    "micrometer": 1.0,
    "micrometre": 1.0,
    "nanometer": 1e-3,
    "nanometre": 1e-3,
    "millimeter": 1e3,
    "millimetre": 1e3,
    "centimeter": 1e4,
    "centimetre": 1e4,
    "meter": 1e6,
    "metre": 1e6,
}
_CENTIMETRE, _INCH = 1e4, 25_400.0
_TIFF_UNITS = {tifffile.RESUNIT.INCH: _INCH, tifffile.RESUNIT.CENTIMETER: _CENTIMETRE}
# Pixels per inch that programs write for printers, whatever the microscope saw.
_PRINT_RESOLUTIONS = (1, 72, 96, 150, 200, 300, 600, 1200)
_TOLERANCE = 2e-3
# In micrometres. Pixels of electron microscopes are a thousandth wide, those of cameras a thousand.
_LEAST, _MOST = 1e-5, 1e5
_IMAGEJ_DTYPES = ("uint8", "uint16", "float32")


class PixelSize(NamedTuple):
    """Size of a pixel in micrometres.

    Parameters
    ----------
    y : float
        Height.
    x : float
        Width.
    """

    y: float
    x: float


def read_pixel_size(path: str | Path) -> PixelSize | None:
    """Read the size of a pixel from an image file.

    Parameters
    ----------
    path : str or Path
        A PNG, JPEG, BMP or TIFF file.

    Returns
    -------
    PixelSize or None
        Micrometres per pixel; None if the file does not tell.

    Raises
    ------
    InputError
        If the file is missing, damaged, or of another format.

    Notes
    -----
    Read are the physical size of OME-TIFF, the resolution and unit of ImageJ's TIFF, and pixels per centimetre, inch or
    metre of other TIFF and of PNG. The last are left out if they are a usual resolution of printers (72, 96, 150, 200,
    300, 600 or 1200 dots per inch).
    """
    path = Path(path)
    check_path(path)
    suffix = path.suffix.lower()
    kind = check_format(path, ("TIFF",) if suffix in TIFF_EXTENSIONS else ("PNG", "JPEG", "BMP"))
    if kind == "TIFF":
        with decoding(path), tifffile.TiffFile(path) as file:
            return _of_tiff(file)
    if kind == "PNG":
        with decoding(path), PngImageFile(path) as image:
            x, y = image.info.get("dpi", (0, 0))
            return _of_print(float(x), float(y), _INCH)
    return None


def check_pixel_size(pixel_size: float | tuple[float, float]) -> PixelSize:
    """Give height and width of a pixel in micrometres; refuse what cannot be a size."""
    try:
        sizes = np.asarray(pixel_size, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"pixel size {pixel_size!r} is no number: give micrometres, such as 0.325"
        ) from error
    if sizes.size not in (1, 2) or not ((sizes >= _LEAST) & (sizes <= _MOST)).all():
        shown = ", ".join(f"{size:g}" for size in sizes.tolist())
        raise InputError(
            f"pixel size {shown}, expected micrometres, {_LEAST:.5f} to {_MOST:,.0f}: give the width of a pixel, "
            "such as 0.325, or height and width"
        )
    return PixelSize(float(sizes[0]), float(sizes[-1]))


def tiff_options(pixel_size: PixelSize | None, pages: NDArray[Any]) -> dict[str, Any]:
    """Give the options of `tifffile.imwrite` that store a pixel size, as ImageJ does if it knows the dtype."""
    if pixel_size is None:
        return {}
    y, x = check_pixel_size(pixel_size)
    if pages.dtype.name in _IMAGEJ_DTYPES and pages.ndim <= 4:
        axes = "TZYX"[-pages.ndim :] if pages.ndim != 3 else "TYX"
        return {"imagej": True, "resolution": (1 / x, 1 / y), "metadata": {"unit": "um", "axes": axes}}
    return {"resolution": (_CENTIMETRE / x, _CENTIMETRE / y), "resolutionunit": "CENTIMETER"}


def png_options(pixel_size: PixelSize | None) -> dict[str, Any]:
    """Give the options of Pillow's `save` that store a pixel size in a PNG file."""
    if pixel_size is None:
        return {}
    y, x = check_pixel_size(pixel_size)
    return {"dpi": (_INCH / x, _INCH / y)}


def _of_tiff(file: tifffile.TiffFile) -> PixelSize | None:
    if file.is_ome:
        return _of_ome(file.ome_metadata)
    tags = file.pages.first.tags
    x, y = (_ratio(tags.valueof(name)) for name in ("XResolution", "YResolution"))
    metadata = (file.imagej_metadata or {}) if file.is_imagej else {}
    if unit := metadata.get("unit"):
        unit_x, unit_y = _micrometres(unit), _micrometres(metadata.get("yunit", unit))
        if unit_x in (_INCH, _CENTIMETRE) and unit_x == unit_y:
            return _of_print(x, y, unit_x)
        return _of_resolution(x, y, unit_x, unit_y)
    # the unit is inches where a file does not say
    length = _TIFF_UNITS.get(tags.valueof("ResolutionUnit", tifffile.RESUNIT.INCH))
    return None if length is None else _of_print(x, y, length)


def _of_ome(text: str | None) -> PixelSize | None:
    try:
        root = ElementTree.fromstring(text or "")
    except ElementTree.ParseError:
        return None
    pixels = next((node for node in root.iter() if node.tag.rpartition("}")[2] == "Pixels"), None)
    if pixels is None:
        return None
    sizes = []
    for axis in "YX":
        factor = _micrometres(pixels.get(f"PhysicalSize{axis}Unit", "um"))
        try:
            sizes.append(float(pixels.get(f"PhysicalSize{axis}", "0")) * (factor or 0))
        except ValueError:
            return None
    return _valid(*sizes)


def _of_print(x: float, y: float, unit: float) -> PixelSize | None:
    """Read pixels per unit, unless they are those of a printer."""
    size = _of_resolution(x, y, unit, unit)
    if size is None or all(_is_of_printer(_INCH / length) for length in size):
        return None
    # one pixel per centimetre is what programs write that know nothing
    return None if x == y == 1 else size


def _is_of_printer(dots_per_inch: float) -> bool:
    return any(abs(dots_per_inch / known - 1) < _TOLERANCE for known in _PRINT_RESOLUTIONS)


def _of_resolution(x: float, y: float, unit_x: float | None, unit_y: float | None) -> PixelSize | None:
    if unit_x is None or unit_y is None or x <= 0 or y <= 0:
        return None
    return _valid(unit_y / y, unit_x / x)


def _valid(y: float, x: float) -> PixelSize | None:
    return PixelSize(y, x) if _LEAST <= y <= _MOST and _LEAST <= x <= _MOST else None


def _ratio(value: Any) -> float:
    if not isinstance(value, tuple) or len(value) != 2 or not value[1]:
        return 0.0
    return float(value[0]) / float(value[1])


def _micrometres(unit: Any) -> float | None:
    """Give the length of a unit; None of a pixel or another word."""
    # ImageJ escapes the sign of micro; there are two such signs
    word = str(unit).strip().replace("\\u00B5", "u").replace("\u00b5", "u").replace("\u03bc", "u")
    low = word.lower()
    known = [
        spelling
        for spelling in (word, low, low.removesuffix("s"), low.removesuffix("es"))
        if spelling in _MICROMETRES
    ]
    return _MICROMETRES[known[0]] if known else None
