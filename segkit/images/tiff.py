"""TIFF files opened each by itself: one of a set of OME-TIFF files gives its own planes, whatever became of the others."""

from __future__ import annotations

import itertools
import math
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import tifffile

# Pages, and planes that metadata tell of: time and memory grow with them, whatever the size of the file.
MOST_PAGES = 100_000
_AXES = "ZCT"
_NO_IMAGE = 0b101  # bits of the subfile type: smaller version of an image, and transparency mask
# Of other formats tifffile reads all pages as soon as it opens a file.
_FIRST_PAGE = {"is_lsm": False, "is_ndpi": False, "is_scanimage": False}
Element = ElementTree.Element


class _Plane(NamedTuple):
    """Number of a page in a file, and the place of its plane along Z, C and T."""

    page: int
    place: tuple[int, ...]


def open_tiff(path: Path, notes: list[str] | None = None) -> tifffile.TiffFile:
    """Open a TIFF file without the others of its set; a note tells that there are others."""
    with _open(path, **_FIRST_PAGE) as file:
        n_pages = _check_all_pages_there(file)
        told: list[str] = []
        own = _own_metadata(file, path, n_pages, told)
        _check_planes(file, own or file.ome_metadata, n_pages)
        if own is None and _has_planes_elsewhere(file):
            own, told = "", ["one file of a set of Micro-Manager: its own planes are read"]
    if notes is not None:
        notes += told
    if own is None:
        return _open(path)
    # such sets are found by the names of files, whatever OME tells
    return _open(path, omexml=own, is_ome=bool(own), is_mmstack=False)


def _open(path: Path, **options: Any) -> tifffile.TiffFile:
    """Open a TIFF file by itself: no file that its metadata, or an index beside it, name is opened too."""
    return tifffile.TiffFile(path, _multifile=False, is_ndtiff=False, **options)


def images_in(file: tifffile.TiffFile) -> list[tifffile.TiffPageSeries]:
    """Return the series of a file without thumbnails and transparency masks, as its header calls them."""
    images = [series for series in file.series if not series.keyframe.subfiletype & _NO_IMAGE]
    return images or file.series


def _has_planes_elsewhere(file: tifffile.TiffFile) -> bool:
    """Return whether a stack of Micro-Manager, which OME does not describe, is larger than its file."""
    told = file.micromanager_metadata or {}
    if not file.is_mmstack:
        return bool(
            told.get("MajorVersion", 0) >= 2
        )  # NDTiff: an index beside the file names those of its planes
    places = told["IndexMap"][:, :4].astype(np.int64)
    sizes = [int(told["Summary"].get(name, 1)) for name in ("Channels", "Slices", "Frames", "Positions")]
    most = (places.max(axis=0, initial=0) + 1).tolist()
    return bool(math.prod(map(max, sizes, most)) > len(places))


def _own_metadata(file: tifffile.TiffFile, path: Path, n_pages: int, notes: list[str]) -> str | None:
    """Return the metadata of OME without planes of other files, "" if they cannot be told apart; None of a whole file."""
    root = _parsed(file.ome_metadata or "")
    if root is None:
        return None
    uuid, binary = root.get("UUID"), root.find("{*}BinaryOnly")
    if binary is not None:
        name = PurePath(binary.get("MetadataFile", "")).name
        root = _read_metadata(path.with_name(name or "?"))
        if root is None:
            notes.append(
                f"its metadata are in {name or 'another file'}, which cannot be read: they are not used"
            )
            return ""
    name_of = {found.text: found.get("FileName", "") for found in root.iterfind(".//{*}TiffData/{*}UUID")}
    if binary is None and not name_of:
        return None
    by_name = [key for key, name in name_of.items() if name.lower() == path.name.lower()]
    own = next(iter(by_name), uuid)
    if own in name_of and len(name_of) == 1 and binary is None and uuid in (None, own):
        return None
    first = path.with_name(PurePath(next(iter(name_of.values()), "")).name or path.name)
    if len(name_of) > 1 and (first == path or not first.exists()):  # once for a set
        notes.append(f"one of {len(name_of)} files of an OME-TIFF set: each gives its own planes")
    if own in name_of or not name_of:
        return _part_of(root, own, n_pages)
    # neither its name nor its number is known: it was renamed, which matters little if all files are alike
    *_, last = name_of
    parts = {_part_of(root, key, n_pages, is_known=False) for key in (next(iter(name_of)), last)}
    return parts.pop() if len(parts) == 1 else ""


def _parsed(text: str | bytes) -> Element | None:
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        return None


def _read_metadata(path: Path) -> Element | None:
    """Read the metadata of a set from the file that holds them: XML, or another TIFF; None if it is not there."""
    if not path.is_file() or path.is_symlink():  # a pipe has no end, and a link may lead anywhere
        return None
    try:
        if path.suffix.lower() != ".ome":
            with _open(path, **_FIRST_PAGE) as file:
                return _parsed(file.ome_metadata or "")
        return _parsed(path.read_bytes())
    except (OSError, ValueError):
        return None


def _part_of(root: Element, own: str | None, n_pages: int, *, is_known: bool = True) -> str:
    """Return the metadata of the planes of one file; without names if it is not known to be that file."""
    part, n_left = Element(root.tag, root.attrib), n_pages
    for entry in root:
        if not entry.tag.endswith("}Image"):
            part.append(entry)
        elif (pixels := entry.find("{*}Pixels")) is not None and (planes := _planes_of(pixels, own, n_pages)):
            if (n_left := n_left - len(planes)) < 0:
                raise EOFError("pages are missing")
            image = ElementTree.SubElement(part, entry.tag, entry.attrib if is_known else {})
            image.extend(child for child in entry if is_known and child is not pixels)
            image.append(_described(pixels, planes, is_known=is_known))
    has_images = any(entry.tag.endswith("}Image") for entry in part)
    return ElementTree.tostring(part, encoding="unicode") if has_images else ""


def _sizes(pixels: Element) -> dict[str, int]:
    """Return the number of planes along Z, C and T; the colours of RGB are one channel."""
    sizes = {axis: int(pixels.get(f"Size{axis}", 1)) for axis in _AXES}
    channel = pixels.find("{*}Channel")
    n_colours = 1 if channel is None else int(channel.get("SamplesPerPixel", 1))
    return sizes | {"C": max(sizes["C"] // n_colours, 1)}


def _planes_of(pixels: Element, own: str | None, n_pages: int) -> list[_Plane]:
    """List the planes of one file."""
    sizes = _sizes(pixels)
    order = [axis for axis in reversed(pixels.get("DimensionOrder", "XYZCT")) if axis in _AXES]
    shape = [sizes[axis] for axis in order]
    found: list[_Plane] = []
    for data in pixels.iterfind("{*}TiffData"):
        uuid = data.find("{*}UUID")
        if uuid is not None and uuid.text != own:
            continue
        first = int(data.get("IFD", 0))
        number = _n_planes(data, n_pages)
        if first + number > n_pages or len(found) + number > n_pages:
            raise EOFError("pages are missing")
        start = np.ravel_multi_index([int(data.get(f"First{axis}", 0)) for axis in order], shape)
        for step in range(number):
            at = dict(zip(order, np.unravel_index(int(start) + step, shape), strict=True))
            found.append(_Plane(first + step, tuple(int(at[axis]) for axis in _AXES)))
    return found


def _described(pixels: Element, planes: Sequence[_Plane], *, is_known: bool) -> Element:
    """Describe some planes as if there were no others."""
    page_of = {plane.place: plane.page for plane in planes}
    depths, channels, times = (sorted({place[axis] for place in page_of}) for axis in range(3))
    if len(page_of) == len(times) * len(depths) * len(channels):
        moments = list(itertools.product(times, depths))
    else:  # a file that was full before the stack was
        moments = sorted({(time, depth) for depth, _, time in page_of})
        depths, times = [0], list(range(len(moments)))
    if len(page_of) < len(moments) * len(channels):
        raise EOFError("the channels of a plane are in several files")
    n_colours = int(pixels.get("SizeC", 1)) // _sizes(pixels)["C"]
    sizes = {"SizeZ": len(depths), "SizeC": len(channels) * n_colours, "SizeT": len(times)}
    found = Element(pixels.tag, pixels.attrib | {name: str(size) for name, size in sizes.items()})
    named = pixels.findall("{*}Channel")
    for place in channels if len(named) > max(channels) else ():
        ElementTree.SubElement(
            found, named[place].tag, named[place].attrib if is_known else _unnamed(named[place])
        )
    for place, (time, depth) in enumerate(moments):
        for channel, own in enumerate(channels):
            at = {"FirstT": place // len(depths), "FirstZ": place % len(depths), "FirstC": channel}
            at |= {"IFD": page_of[depth, own, time], "PlaneCount": 1}
            told = {name: str(value) for name, value in at.items()}
            ElementTree.SubElement(found, pixels.tag.replace("Pixels", "TiffData"), told)
    return found


def _unnamed(channel: Element) -> dict[str, str]:
    return {name: value for name, value in channel.attrib.items() if name == "SamplesPerPixel"}


def _check_planes(file: tifffile.TiffFile, text: str | None, n_pages: int) -> None:
    """Refuse metadata of more planes than files have: tifffile makes room for all before it looks for their pages."""
    root = _parsed(text or "")
    n_planes, n_named = 0, 0
    for entry in () if root is None else root.iter():  # tifffile knows them by the ends of their names
        if entry.tag.endswith("Pixels"):
            # of sizes that are not those of its pages it takes parts for planes
            first = next((int(data.get("IFD", 0)) for data in entry if data.tag.endswith("TiffData")), 0)
            size = file.pages[first].size if 0 <= first < n_pages else 0
            n_values, planes = (
                math.prod(int(entry.get(f"Size{axis}", 1)) for axis in axes) for axes in ("XY" + _AXES, _AXES)
            )
            n_planes += max(planes, n_values // max(size, 1))
        elif entry.tag.endswith("TiffData"):
            n_named += _n_planes(entry, n_pages)
        elif {"Start", "End"} <= entry.attrib.keys():  # an axis within one of these
            n_planes += int(
                (float(entry.attrib["End"]) - float(entry.attrib["Start"])) / float(entry.get("Step", 1))
            )
    if max(n_planes, n_named) > MOST_PAGES:
        raise EOFError(f"its metadata tell of {max(n_planes, n_named):,} planes, it has {n_pages:,}")


def _n_planes(data: Element, n_pages: int) -> int:
    """Return the number of planes that an entry of OME names; of one that does not tell, all pages of the file."""
    return int(data.get("PlaneCount", data.get("NumPlanes", 1 if "IFD" in data.attrib else n_pages)))


def _check_all_pages_there(file: tifffile.TiffFile) -> int:
    """Count the pages; refuse too many, a truncated stack, which tifffile takes for a short one, and pages in a circle."""
    handle, layout = file.filehandle, file.tiff
    known: set[int] = set()
    handle.seek(8 if file.is_bigtiff else 4)  # the place of the first page
    while place := _number(handle.read(layout.offsetsize), layout.offsetformat):
        if place in known:
            raise EOFError("its pages follow each other in a circle")
        if place >= handle.size:
            raise EOFError("its last pages are missing")
        known.add(place)
        if len(known) > MOST_PAGES:
            raise EOFError(f"more than {MOST_PAGES:,} pages: save it as several files")
        handle.seek(place)
        n_tags = _number(handle.read(layout.tagnosize), layout.tagnoformat)
        handle.seek(place + layout.tagnosize + n_tags * layout.tagsize)
    return len(known)


def _number(content: bytes, layout: str) -> int:
    """Read a number; where the file ends there is none."""
    return int(struct.unpack(layout, content)[0]) if len(content) == struct.calcsize(layout) else 0
