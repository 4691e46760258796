"""Tables for spreadsheets: a row for each object, and a row for each image."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common.files import safe_cell, saving
from segkit.errors import count

OBJECTS_FILE, IMAGES_FILE = "objects.csv", "images.csv"
# Tables of objects that are linked over planes or time, and the column of objects.csv that names them.
LINKS_FILES = {"planes": "volumes.csv", "time": "tracks.csv"}
LINK_COLUMNS = {"planes": "object_3d", "time": "track_id"}

# Columns of `measure` in the order of objects.csv; those of intensities follow the shapes.
_SHAPES = (
    "label",
    *LINK_COLUMNS.values(),
    "class",
    "area",
    "centroid-0",
    "centroid-1",
    "bbox-0",
    "bbox-1",
    "bbox-2",
    "bbox-3",
    "perimeter",
)
_AXES = ("axis_major_length", "axis_minor_length", "eccentricity", "circularity", "solidity")
_LAST = (
    "probability",
    "nearest_distance",
    "touches_border",
    "area_um2",
    "centroid_um-0",
    "centroid_um-1",
    "perimeter_um",
)
_AXES_UM = ("axis_major_length_um", "axis_minor_length_um", "nearest_distance_um")
_ORDER = {name: position for position, name in enumerate(("image", *_SHAPES, *_AXES, *_LAST, *_AXES_UM))}
_WHOLE = {"area", "volume"}
_N_DIGITS = 4
# Column of images.csv that needs corrections by hand.
_CHECKED = "checked"
# Images whose counts are told one by one.
_N_TOLD = 3
# Columns of images.csv that need a pixel size.
_PHYSICAL = {"pixel_height_um", "pixel_width_um", "pixel_size_from", "objects_per_mm2", "mean_area_um2"}


class ImageObjects(NamedTuple):
    """Objects of one image."""

    image: str
    shape: tuple[int, int]
    objects: dict[str, NDArray[Any]]
    pixel_size: tuple[float, float] | None = None
    size_source: str = ""
    is_alike: bool = True  # False if it is unlike the training images, or was not compared with them


@dataclass(frozen=True, eq=False)
class ImageSummary:
    """Numbers of one image."""

    image: str
    shape: tuple[int, int]
    areas: NDArray[np.float64]
    n_at_border: int
    counts: dict[str, int] = field(default_factory=dict)
    pixel_size: tuple[float, float] | None = None
    size_source: str = ""
    n_checked: int | None = None  # None if nobody has labelled anything there
    is_alike: bool = True

    @classmethod
    def of(cls, entry: ImageObjects) -> ImageSummary:
        """Sum up the objects of an image."""
        objects = entry.objects
        counts = Counter(map(str, objects["class"].tolist())) if "class" in objects else {}
        return cls(
            entry.image,
            entry.shape,
            objects["area"],
            int(objects["touches_border"].sum()),
            dict(counts),
            entry.pixel_size,
            entry.size_source,
            int(objects["checked"].sum()) if "checked" in objects else None,
            entry.is_alike,
        )


def write_objects(path: str | Path, rows: Iterable[ImageObjects]) -> list[ImageSummary]:
    """Write a row for each object, image by image; columns that no image has are left out."""
    path = Path(path)
    summaries = []
    header: list[str] = ["image"]
    with saving(path) as temporary:
        _write_rows(temporary, [header])
        for entry in rows:
            columns = _columns(entry)
            if not set(columns) <= set(header):
                header = _widen(temporary, header, columns)
            _write_rows(temporary, _rows(columns, header), mode="a")
            summaries.append(ImageSummary.of(entry))
    return summaries


def write_links(path: str | Path, tables: Sequence[tuple[str, Mapping[str, NDArray[Any]]]]) -> None:
    """Write a row for each linked object of each file, by the name of the file."""
    header = list(dict.fromkeys(["image", *(name for _, table in tables for name in table)]))
    with saving(Path(path)) as temporary:
        _write_rows(temporary, [header])
        for image, table in tables:
            columns = {name: _cells(column, name) for name, column in table.items()}
            columns["image"] = [safe_cell(image)] * len(next(iter(table.values())))
            _write_rows(temporary, _rows(columns, header), mode="a")


def write_images(
    path: str | Path,
    images: Sequence[ImageSummary],
    *,
    classes: Sequence[str] = (),
    interval: Callable[[int], tuple[int, int] | None] = lambda _: None,
) -> None:
    """Write a table of one row for each image; `interval` gives the 80 % interval of a count, if it is known.

    Counts that somebody has corrected have none, nor have images that are not known to be like the training images.
    """
    names = list(dict.fromkeys([*classes, *sorted({name for image in images for name in image.counts})]))
    rows = [_image_row(image, names if len(names) > 1 else [], interval) for image in images]
    if all(image.n_checked is None for image in images):
        rows = [{name: cell for name, cell in row.items() if name != _CHECKED} for row in rows]
    if all(image.pixel_size is None for image in images):
        rows = [{name: cell for name, cell in row.items() if name not in _PHYSICAL} for row in rows]
    header = list(rows[0]) if rows else ["image", "count"]
    with saving(Path(path)) as temporary:
        _write_rows(temporary, [header, *([_cell(row[name]) for name in header] for row in rows)])


def read_sizes(path: Path) -> list[tuple[tuple[float, float] | None, str]]:
    """Read the sizes of pixels from a table of `write_images`, and what told each."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        ((float(row["pixel_height_um"]), float(row["pixel_width_um"])), row["pixel_size_from"])
        for row in rows
        if row.get("pixel_height_um")
    ]


def describe_counts(path: Path) -> list[str]:
    """Tell the number of objects in a table of `write_images`, and that of the first images whose count has an interval."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    n_objects = sum(int(row["count"]) for row in rows)
    known = [row for row in rows if row.get("count_low_80")]
    return [
        f"{count(n_objects, 'object')} in {count(len(rows), 'image')}",
        *(
            f"{row['image']}: {count(int(row['count']), 'object')} (80 % interval {row['count_low_80']} to "
            f"{row['count_high_80']})"
            for row in known[:_N_TOLD]
        ),
    ]


def _columns(entry: ImageObjects) -> dict[str, list[Any]]:
    """Return the cells of the objects of an image, by column of the file."""
    objects = entry.objects
    columns = {"image": [safe_cell(entry.image)] * len(objects["label"])}
    return columns | {name: _cells(objects[name], name) for name in sorted(objects, key=_place)}


def _place(name: str) -> float:
    """Return the place of a column; columns of channels, which are not known beforehand, keep the order of their coming."""
    return _ORDER.get(name, _ORDER["solidity"] + 0.5)


def _cells(column: NDArray[Any], key: str) -> list[Any]:
    """Return the cells of a column."""
    values = column.astype(np.int64) if key in _WHOLE else column
    return [_cell(value) for value in values.tolist()]


def _cell(value: Any) -> Any:
    """Write a value as people read it: yes and no, four digits, nothing where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "" if np.isnan(value) else four_digits(value)
    return "" if value is None else safe_cell(value)


def four_digits(value: float) -> str:
    """Write four significant digits, and all that are before the decimal point."""
    return f"{value:.0f}" if 1000 <= abs(value) < np.inf else f"{value:.{_N_DIGITS}g}"


def _rows(columns: dict[str, list[Any]], header: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of an image, with empty cells in columns it lacks."""
    empty = [""] * len(columns["image"])
    return zip(*(columns.get(name, empty) for name in header), strict=True)


def _widen(path: Path, header: Sequence[str], columns: Iterable[str]) -> list[str]:
    """Write the rows of a table anew, with empty cells in new columns; give the new header."""
    wide = sorted(dict.fromkeys([*header, *columns]), key=_place)
    narrow = path.with_name(f"{path.name}.narrow")
    path.replace(narrow)
    try:
        with narrow.open(newline="", encoding="utf-8") as file:
            old = csv.DictReader(file)
            _write_rows(path, [wide])
            _write_rows(path, ([row.get(name, "") for name in wide] for row in old), mode="a")
    finally:
        narrow.unlink()
    return wide


def _write_rows(path: Path, rows: Iterable[Iterable[Any]], *, mode: str = "w") -> None:
    # a file name that is no valid text holds lone surrogates, which UTF-8 cannot encode
    with path.open(mode, newline="", encoding="utf-8", errors="backslashreplace") as file:
        csv.writer(file).writerows(rows)


def _image_row(
    image: ImageSummary, classes: Sequence[str], interval: Callable[[int], tuple[int, int] | None]
) -> dict[str, Any]:
    """Return the cells of an image."""
    n_objects, n_pixels = image.areas.size, image.shape[0] * image.shape[1]
    mean = float(image.areas.mean()) if n_objects else None
    height, width = image.pixel_size or (None, None)
    area = None if height is None or width is None else height * width
    within: tuple[int | None, int | None] | None = interval(n_objects)
    if within is not None and (image.n_checked is not None or not image.is_alike):
        within = (None, None)
    return {
        "image": image.image,
        "height_px": image.shape[0],
        "width_px": image.shape[1],
        "count": n_objects,
        **({} if within is None else dict(zip(("count_low_80", "count_high_80"), within, strict=True))),
        **{f"count_{name}": image.counts.get(name, 0) for name in classes},
        _CHECKED: image.n_checked,
        "covered_share": float(image.areas.sum() / n_pixels),
        "objects_per_megapixel": n_objects / n_pixels * 1e6,
        "mean_area_px": mean,
        "touching_border": image.n_at_border,
        "pixel_height_um": None if height is None else f"{height:.8g}",
        "pixel_width_um": None if width is None else f"{width:.8g}",
        "pixel_size_from": image.size_source,
        "objects_per_mm2": None if area is None else n_objects / (n_pixels * area) * 1e6,
        "mean_area_um2": None if area is None or mean is None else mean * area,
    }
