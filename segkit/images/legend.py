"""Masks whose colours stand for classes, by a legend beside them, or for objects."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError, count, first_few
from segkit.images.outlines import ALL_OBJECTS

Colour = tuple[int, int, int]

# A line of CVAT's labelmap.txt, of class_dict.csv, and of label_colors.txt.
_NUMBERS = r"(\d{1,3})\s*[,; \t]\s*(\d{1,3})\s*[,; \t]\s*(\d{1,3})"
_LINES = (
    re.compile(rf"(?P<name>[^:]+):\s*{_NUMBERS}\s*(:.*)?"),
    re.compile(rf"\"?(?P<name>[^\",;\t]*[^\",;\t\d ][^\",;\t]*)\"?\s*[,;\t]\s*{_NUMBERS}"),
    re.compile(rf"{_NUMBERS}\s*[,; \t]\s*\"?(?P<name>[^\",;\t]*[^\",;\t\d ][^\",;\t]*)\"?"),
)
_EXTENSIONS = (".txt", ".csv")
_MOST_BYTES = 100_000


class Legend(NamedTuple):
    """Names of colours, in the order of the file; the position of a colour is its value in the mask."""

    path: Path
    names: dict[Colour, str]

    def describe(self) -> str:
        """Describe which file names the colours."""
        return f"colours of masks are classes as {self.path} names them ({first_few(list(self.names.values()), most=5)})"

    def read(self, page: NDArray[np.uint8], *, name: str) -> NDArray[np.uint8] | None:
        """Turn the colours (H, W, 3) of a mask into values; None of greys that the legend lacks, colours are refused."""
        packed = _pack(page)
        found, positions, numbers = np.unique(packed, return_inverse=True, return_counts=True)
        value_of = {_packed(colour): value for value, colour in enumerate(self.names)}
        if odd := [
            f"{one >> 16}, {one >> 8 & 255}, {one & 255} ({count(number, 'pixel')})"
            for one, number in zip(found.tolist(), numbers.tolist(), strict=True)
            if one not in value_of
        ]:
            if (page == page[:, :, :1]).all():
                return None
            told = first_few(odd, most=3, separator="; ")
            raise InputError(
                f"{count(len(odd), 'colour')} without a name in {self.path.name} ({told}): name them there, or save the "
                f"mask without blurred edges, as PNG; if each colour is an object, {ALL_OBJECTS}",
                source=name,
            )
        values = np.array([value_of[one] for one in found.tolist()], dtype=np.uint8)
        return values[positions].reshape(packed.shape)


def find_legend(mask: Path) -> Legend | None:
    """Find the legend of a mask: the only text file with a colour and a name in each line, beside it or a folder above."""
    folders = (mask.parent, mask.parent.parent)
    found = [
        legend
        for folder in folders
        for path in sorted(folder.glob("*"))
        if path.suffix.lower() in _EXTENSIONS and (legend := _read(path)) is not None
    ]
    if len({tuple(legend.names.items()) for legend in found}) > 1:
        raise InputError(
            f"colours with several legends ({first_few([str(legend.path) for legend in found])}), expected one: remove the "
            "others",
            source=mask,
        )
    return found[0] if found else None


def _read(path: Path) -> Legend | None:
    """Read a legend; None of any other text."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError):
        return None
    lines = [line for line in lines if line and not line.startswith("#")]
    if lines and not re.search(r"\d", lines[0]):  # name,r,g,b
        lines = lines[1:]
    rows = [next(filter(None, (form.fullmatch(line) for form in _LINES)), None) for line in lines]
    names: list[tuple[Colour, str]] = []
    for row in rows:
        if row is None:
            return None
        red, green, blue = (
            int(number) for number in row.groups() if number is not None and number.isdecimal()
        )
        names.append(((red, green, blue), row["name"].strip()))
    if len(names) < 2 or any(max(colour) > 255 for colour, _ in names):
        return None
    if twice := [
        str(colour) for colour, number in Counter(colour for colour, _ in names).items() if number > 1
    ]:
        raise InputError(
            f"colour {first_few(twice)} twice, expected a class for each: mend the legend", source=path
        )
    return Legend(path, dict(names))


def number_colours(page: NDArray[np.uint8], *, name: str) -> NDArray[np.int32]:
    """Turn the colours (H, W, 3) of a mask, each an object, into numbers; black is the background."""
    packed = _pack(page)
    found, positions = np.unique(packed, return_inverse=True)
    if found[0] != 0:
        raise InputError(
            "objects by colours without a black background: make the background black", source=name
        )
    return positions.reshape(packed.shape).astype(np.int32)


def _pack(page: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the colour of each pixel as one number, (H, W)."""
    colours = page.astype(np.int64)
    packed: NDArray[np.int64] = colours[:, :, 0] << 16 | colours[:, :, 1] << 8 | colours[:, :, 2]
    return packed


def _packed(colour: Colour) -> int:
    red, green, blue = colour
    return red << 16 | green << 8 | blue
