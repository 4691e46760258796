"""Results of a segmented folder for the browser: a row for each image, pictures, tables, and all files in one."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from PIL import Image

from segkit._common.files import safe_cell
from segkit.annotate.pictures import encode
from segkit.errors import InputError
from segkit.images.record import HIDDEN
from segkit.images.stems import page_names, stem_of
from segkit.objects.tables import IMAGES_FILE, OBJECTS_FILE
from segkit.segmentation.outcome import SUMMARY
from segkit.segmentation.results import Job

# Longer side of the pictures of a gallery, in pixels.
_SMALL = 320
TABLES = (OBJECTS_FILE, IMAGES_FILE, SUMMARY.name)
_OF_FILE = ("image", "status", "reason", "warning", "expected_object_iou", "low_80", "high_80")
_WORDS = ("image", "class")
_OF_PAGE = ("count", "count_low_80", "count_high_80", "checked")


def read_rows(output: Path) -> list[dict[str, Any]]:
    """Read a row for each page of each image: what summary.csv and images.csv tell, and its key in a project."""
    counts = {row["image"]: row for row in _read(output / IMAGES_FILE)}
    rows = []
    for row in _read(output / SUMMARY.name):
        n_pages = int(row["pages"] or 1)
        of_file = {name: _value(row[name]) for name in _OF_FILE} | {"image": row["image"]}
        for page, key in enumerate(page_names(stem_of(PurePath(row["image"])), n_pages)):
            own = page_names(row["image"].removesuffix(PurePath(row["image"]).suffix), n_pages)[page]
            of_page = counts.get(own, {})
            told = {name: _value(of_page.get(name, "")) for name in _OF_PAGE}
            rows.append(of_file | {"key": key, "page": page, "pages": n_pages} | told)
    return rows


def read_objects(output: Path) -> dict[str, list[Any]]:
    """Read the table of all objects, column by column."""
    with (output / OBJECTS_FILE).open(newline="", encoding="utf-8") as file:
        names = next(csv.reader(file))
    rows = _read(output / OBJECTS_FILE)
    return {name: [row[name] if name in _WORDS else _value(row[name]) for row in rows] for name in names}


def draw(output: Path, image: str, page: int, n_pages: int, *, is_small: bool) -> bytes:
    """Read the overlay of a page of an image as PNG."""
    name = PurePath(image)
    if ".." in name.parts or name.is_absolute() or not name.name or page >= n_pages:
        raise InputError(f"{image}: no such picture: reload the page")
    places = Job(Path(image), image).places("overlay", n_pages)
    path = output / places[page]
    try:
        if not is_small:
            return path.read_bytes()
        with Image.open(path) as picture:
            picture.thumbnail((_SMALL, _SMALL))
            return encode(np.asarray(picture.convert("RGB")), compression=1)
    except (OSError, Image.DecompressionBombError) as error:
        raise InputError("no picture of it: segment the folder again", source=path) from error


def write_zip(output: Path, path: Path) -> None:
    """Write all files of results into one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as file:
        for place in _files(output):
            file.write(place, Path(output.name) / place.relative_to(output))


def _files(output: Path) -> Iterator[Path]:
    for place in sorted(output.rglob("*")):
        if place.is_file() and not place.is_symlink() and HIDDEN.name not in place.relative_to(output).parts:
            yield place


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [{name: _unquoted(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror}): segment the folder again", source=path
        ) from error


def _unquoted(cell: str) -> str:
    """Return text as it was before `safe_cell`."""
    return cell[1:] if len(cell) > 1 and safe_cell(cell[1:]) == cell else cell


def _value(cell: str) -> Any:
    """Read a cell: a number, yes or no, text, or nothing."""
    if cell in ("", "yes", "no"):
        return {"": None, "yes": True, "no": False}[cell]
    try:
        return float(cell)
    except ValueError:
        return cell
