"""The size of a pixel, as microscopes and ImageJ store it in files."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL.PngImagePlugin import PngImageFile, PngInfo

from segkit.errors import InputError, first_few
from segkit.images.headers import FORMATS, check_format
from segkit.images.microscopy import check_reader, is_microscopy, read_lengths
from segkit.images.read import TIFF_EXTENSIONS, check_path, decoding, pixels_in_ome
from segkit.images.tiff import open_tiff

_CENTIMETRE, _INCH = 1e4, 25_400.0
_PREFIXES = {"": 1e6, "centi": _CENTIMETRE, "milli": 1e3, "micro": 1.0, "nano": 1e-3}
_MICROMETRES = {
    "m": 1e6,
    "dm": 1e5,
    "cm": _CENTIMETRE,
    "mm": 1e3,
    "um": 1.0,
    "nm": 1e-3,
    "pm": 1e-6,
    "inch": _INCH,
    "in": _INCH,
    "micron": 1.0,
    "\u00c5": 1e-4,
    "angstrom": 1e-4,
    **{prefix + word: length for prefix, length in _PREFIXES.items() for word in ("meter", "metre")},
}
_TIFF_UNITS = {tifffile.RESUNIT.INCH: _INCH, tifffile.RESUNIT.CENTIMETER: _CENTIMETRE}
# What segkit calls itself in files whose resolution it wrote.
_SOFTWARE = "segkit"
# Dots per inch that no printer, screen or scanner of paper reaches; microscopes do.
_MOST_OF_PRINT = 10_000
# Those that programs turn into micrometres, whatever the microscope saw. Of fewer dots, any size but a round one is taken
# for such.
_PRINT_RESOLUTIONS = (600, 720, 1200, 2400, 4800)
_FEW_DOTS = 508  # pixels of 50 micrometres
_TOLERANCE = 3e-4
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
        A PNG, TIFF or other image file.

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
    metre of other TIFF and of PNG. The last, and those of ImageJ in centimetres or inches, count above 10,000 dots per inch
    only, or if segkit wrote them: fewer are meant for printers. OME and ImageJ may hold such a resolution in micrometres,
    too, which does not count either: 352.8 (72 dots per inch), for example.
    """
    return find_pixel_size(path).size


# The source of a size that the user gave.
GIVEN = "data.pixel_size"


class FoundSize(NamedTuple):
    """Size of a pixel, None if a file does not tell, and what told it."""

    size: PixelSize | None = None
    source: str = ""


def find_pixel_size(path: str | Path) -> FoundSize:
    """Read the size of a pixel as `read_pixel_size` does, and what told it."""
    path = Path(path)
    check_path(path)
    if is_microscopy(path):
        check_reader(path)
        with decoding(path):
            lengths = read_lengths(path)
            return FoundSize(
                checked_size(lengths["Y"] or 0, lengths["X"] or 0), f"metadata of {path.suffix[1:].upper()}"
            )
    is_tiff = path.suffix.lower() in TIFF_EXTENSIONS
    kind = check_format(path, tuple(name for name in FORMATS if (name == "TIFF") == is_tiff))
    if kind == "TIFF":
        with decoding(path), open_tiff(path) as file:
            return _find_in_tiff(file)
    if kind == "PNG":
        with decoding(path), PngImageFile(path) as image:
            x, y = image.info.get("dpi", (0, 0))
            return _of_dots(float(x), float(y), _INCH, image.info.get("Software"))
    return FoundSize()


def describe_sizes(found: Iterable[tuple[tuple[float, float] | None, str]]) -> list[str]:
    """Describe in one line the sizes of pixels that files tell, and where; none if the user gave them, or nobody tells."""
    numbers = Counter(
        f"{describe_size(size)} µm, from {source}"
        for size, source in found
        if size is not None and source != GIVEN
    )
    if len(numbers) < 2:
        return [f"pixel size {told}" for told in numbers]
    return [
        f"pixel sizes: {first_few([f'{told} ({number})' for told, number in numbers.items()], separator='; ')}"
    ]


def describe_size(size: tuple[float, float]) -> str:
    """Write height and width of a pixel, or one number if they are alike."""
    height, width = (f"{side:.4g}" for side in size)
    return height if height == width else f"{height} x {width}"


def read_z_step(path: str | Path) -> float | None:
    """Read the distance between the planes of a stack in micrometres; None if the file does not tell."""
    path = Path(path)
    if is_microscopy(path):
        check_reader(path)
        with decoding(path):
            return read_lengths(path)["Z"]
    if path.suffix.lower() not in TIFF_EXTENSIONS:
        return None
    with decoding(path), open_tiff(path) as file:
        if file.is_ome:
            return _length_in_ome(pixels_in_ome(file.ome_metadata), "Z")
        metadata = (file.imagej_metadata or {}) if file.is_imagej else {}
        factor = micrometres(metadata.get("zunit", metadata.get("unit")))
        step = read_number(metadata.get("spacing"))
        if factor is None or step is None:
            return None
        return abs(step) * factor or None  # ImageJ writes negative steps where a stack was taken downwards


def check_pixel_size(pixel_size: float | tuple[float, float]) -> PixelSize:
    """Return height and width of a pixel in micrometres; refuse what cannot be a size."""
    try:
        given = np.asarray(pixel_size)
        if given.dtype == bool:
            raise TypeError
        sizes = given.astype(np.float64).ravel()
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


class Physical(NamedTuple):
    """What a written stack tells of its image: axes of its pages, their lengths, size of a pixel, and step in depth."""

    axes: str = ""
    shape: tuple[int, ...] = ()
    pixel_size: PixelSize | None = None
    z_step: float | None = None


def tiff_options(
    path: Path, pages: NDArray[Any], physical: Physical, *, has_classes: bool = False
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return the array and the options of `tifffile.imwrite` for pages (n, H, W), one page (H, W), or maps of classes."""
    size = None if physical.pixel_size is None else check_pixel_size(physical.pixel_size)
    letters, array = _named(pages, physical, has_classes=has_classes)
    if path.name.lower().endswith((".ome.tif", ".ome.tiff")):
        metadata: dict[str, Any] = {"axes": letters}
        metadata |= in_ome(size, physical.z_step if "Z" in letters else None)
        return _of_32_bits(array), {"ome": True, "metadata": metadata, "software": _SOFTWARE}
    if (size is not None or physical.axes) and array.dtype.name in _IMAGEJ_DTYPES:
        order = sorted(range(array.ndim), key=lambda axis: "TZCYX".index(letters[axis]))
        metadata = {"axes": "".join(letters[axis] for axis in order)}
        options: dict[str, Any] = {"imagej": True, "metadata": metadata, "software": _SOFTWARE}
        if size is not None:
            metadata["unit"] = "um"
            options["resolution"] = (1 / size.x, 1 / size.y)
            if physical.z_step and "Z" in letters:
                metadata["spacing"] = physical.z_step
        return array.transpose(order), options
    options = {"metadata": {"axes": letters}} if array.ndim > 2 else {}
    return array, options | in_centimetres(size)


def in_ome(size: PixelSize | None, z_step: float | None = None) -> dict[str, Any]:
    """Return the metadata of OME-TIFF that tell a pixel size and a step in depth, as far as they are known."""
    lengths = {"Y": size and size.y, "X": size and size.x, "Z": z_step}
    found: dict[str, Any] = {}
    for axis, length in lengths.items():
        if length:
            found |= {f"PhysicalSize{axis}": length, f"PhysicalSize{axis}Unit": "\u00b5m"}
    return found


def in_centimetres(size: PixelSize | None, step: int = 1) -> dict[str, Any]:
    """Return the options of `tifffile.imwrite` that tell the size of a pixel `step` times as large, if it is known."""
    if size is None:
        return {}
    resolution = (_CENTIMETRE / (size.x * step), _CENTIMETRE / (size.y * step))
    return {"resolution": resolution, "resolutionunit": "CENTIMETER", "software": _SOFTWARE}


def _named(pages: NDArray[Any], physical: Physical, *, has_classes: bool) -> tuple[str, NDArray[Any]]:
    """Name the axes of pages, which are those of the image; other axes than time and depth become time."""
    letters = physical.axes
    if not letters:
        return "TZ"[: pages.ndim - 2] + "YX", pages
    n_inner = 2 + has_classes
    inner = "CYX"[-n_inner:]
    if letters.count("P") == 1 and "T" not in letters:
        letters = letters.replace("P", "T")
    if not set(letters) <= set("TZ"):
        return f"T{inner}", pages.reshape(-1, *pages.shape[-n_inner:])
    return letters + inner, pages.reshape(*physical.shape, *pages.shape[-n_inner:])


def _of_32_bits(array: NDArray[Any]) -> NDArray[Any]:
    """Return integers of 64 bits as 32, which OME knows, if they fit."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return array
    fits = not array.size or np.iinfo(np.int32).min <= array.min() <= array.max() <= np.iinfo(np.int32).max
    return array.astype(np.int32) if fits else array


def png_options(pixel_size: PixelSize | None) -> dict[str, Any]:
    """Return the options of Pillow's `save` that store a pixel size in a PNG file."""
    if pixel_size is None:
        return {}
    y, x = check_pixel_size(pixel_size)
    info = PngInfo()
    info.add_text("Software", _SOFTWARE)
    return {"dpi": (_INCH / x, _INCH / y), "pnginfo": info}


def size_in_tiff(file: tifffile.TiffFile) -> PixelSize | None:
    """Read the size of a pixel from a TIFF file that is open; None if it does not tell."""
    return _find_in_tiff(file).size


def _find_in_tiff(file: tifffile.TiffFile) -> FoundSize:
    tags = file.pages.first.tags
    software = tags.valueof("Software")
    if file.is_ome:
        pixels = pixels_in_ome(file.ome_metadata)
        height, width = (_length_in_ome(pixels, axis) or 0 for axis in "YX")
        return _of_microscope(checked_size(height, width), "OME metadata", software)
    x, y = (_ratio(tags.valueof(name)) for name in ("XResolution", "YResolution"))
    metadata = (file.imagej_metadata or {}) if file.is_imagej else {}
    if unit := metadata.get("unit"):
        unit_x, unit_y = micrometres(unit), micrometres(metadata.get("yunit", unit))
        if unit_x in (_INCH, _CENTIMETRE) and unit_x == unit_y:
            return _of_dots(x, y, unit_x, software)
        size, source = _of_resolution(x, y, unit_x, unit_y), "ImageJ metadata"
        # Bio-Formats turns dots per inch into micrometres; another unit was chosen by somebody
        return _of_microscope(size, source, software) if unit_x == 1 else FoundSize(size, source)
    # the unit is inches where a file does not say
    length = _TIFF_UNITS.get(tags.valueof("ResolutionUnit", tifffile.RESUNIT.INCH))
    return FoundSize() if length is None else _of_dots(x, y, length, software)


def _length_in_ome(pixels: ElementTree.Element | None, axis: str) -> float | None:
    if pixels is None:
        return None
    factor = micrometres(pixels.get(f"PhysicalSize{axis}Unit", "um"))
    return (read_number(pixels.get(f"PhysicalSize{axis}")) or 0) * (factor or 0) or None


def read_number(stored: Any) -> float | None:
    """Read a number that metadata hold, with a decimal point or comma; None of other text, and of 1,234: it may be 1234."""
    text = str(stored).strip()
    if not re.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}", text):
        text = text.replace(",", ".")
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _of_dots(x: float, y: float, unit: float, software: Any) -> FoundSize:
    """Read pixels per unit of length, unless there are as few as in print."""
    size = _of_resolution(x, y, unit, unit)
    if size is None or (software != _SOFTWARE and max(size) > _INCH / _MOST_OF_PRINT):
        return FoundSize()
    return FoundSize(size, "the resolution in the file")


def _of_microscope(size: PixelSize | None, source: str, software: Any) -> FoundSize:
    """Return what a microscope told, unless it is a resolution of print in micrometres."""
    if size is None or (software != _SOFTWARE and all(map(_is_of_print, size))):
        return FoundSize()
    return FoundSize(size, source)


def _is_of_print(length: float) -> bool:
    dots = _INCH / length
    if dots < _FEW_DOTS:
        return abs(float(f"{length:.2g}") / length - 1) > _TOLERANCE
    return any(abs(dots / known - 1) < _TOLERANCE for known in _PRINT_RESOLUTIONS)


def _of_resolution(x: float, y: float, unit_x: float | None, unit_y: float | None) -> PixelSize | None:
    if unit_x is None or unit_y is None or x <= 0 or y <= 0:
        return None
    return checked_size(unit_y / y, unit_x / x)


def checked_size(y: float, x: float) -> PixelSize | None:
    """Return the size of a pixel; None if it cannot be one."""
    return PixelSize(y, x) if _LEAST <= y <= _MOST and _LEAST <= x <= _MOST else None


def _ratio(value: Any) -> float:
    if not isinstance(value, tuple) or len(value) != 2 or not value[1]:
        return 0.0
    return float(value[0]) / float(value[1])


def micrometres(unit: Any) -> float | None:
    """Return the length of a unit; None of a pixel or another word."""
    # ImageJ escapes the sign of micro; there are two such signs
    word = str(unit).strip().replace("\\u00B5", "u").replace("\u00b5", "u").replace("\u03bc", "u")
    low = word.lower()
    known = [
        spelling
        for spelling in (word, low, low.removesuffix("s"), low.removesuffix("es"))
        if spelling in _MICROMETRES
    ]
    return _MICROMETRES[known[0]] if known else None
