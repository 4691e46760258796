"""The axes of image files: which are read as planes and which as channels, by their names and never by their sizes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from segkit.errors import InputError

# Time, depth, channels, height, width, samples (the colours of RGB), and further places that were looked at.
LETTERS = "TZCYXSP"
_CHANNELS = "CS"
# What tifffile calls axes that the file does not name.
_UNNAMED = "QI"
UNKNOWN = "?"
# Height and width of the smallest image to learn from. Of 3 x 3 pixels only one has all its neighbours inside.
SMALLEST_SIDE = 4


class Layout(NamedTuple):
    """Axes that the pages are unrolled from, the first slowest; names of channels; all axes, if only the mask told them."""

    axes: str = ""
    shape: tuple[int, ...] = ()
    channels: tuple[str, ...] = ()
    told: str | None = None

    @property
    def n_pages(self) -> int:
        """Number of pages."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Stack:
    """The pages of a file as they are stored, each (H, W) or (H, W, C), and what they are; `whole` has all channels."""

    pages: list[NDArray[Any]]
    layout: Layout
    selected_from: Stack | None = None

    @property
    def whole(self) -> Stack:
        """The stack with all its channels, of which some may have been selected."""
        return self if self.selected_from is None else self.selected_from


class AxesError(InputError):
    """A file whose axes nothing names: their lengths, and names that these allow, each with its meaning."""

    def __init__(self, message: str, path: Path, shape: Sequence[int], choices: dict[str, str]) -> None:
        super().__init__(message, source=path)
        self.shape, self.choices = tuple(shape), choices


def check_axes(axes: str) -> str:
    """Return names of axes in capitals; refuse what names none."""
    letters = str(axes).strip().upper()
    cure = "give a letter for each axis, in the order of the file, such as ZYX, CYX or TCZYX"
    if odd := [letter for letter in letters if letter not in LETTERS]:
        raise InputError(
            f"axes {axes}: unknown letter {odd[0]}, known are T (time), Z (depth), C (channels), Y, X, S (colours) and "
            f"P (positions): {cure}"
        )
    if twice := [letter for letter, number in Counter(letters).items() if number > 1]:
        raise InputError(f"axes {axes}: {twice[0]} comes twice: {cure}")
    if missing := [letter for letter in "YX" if letter not in letters]:
        raise InputError(f"axes {axes}: {missing[0]} is missing: {cure}")
    if letters.index("X") < letters.index("Y"):  # masks drawn in a viewer would not fit
        raise InputError(
            f"axes {axes}: X comes before Y, expected rows (Y) before columns (X): if the file shows right in a viewer, "
            f"exchange the letters, else save it turned (numpy.swapaxes)"
        )
    return letters


def is_page(letter: str) -> bool:
    """Return whether an axis is unrolled into pages."""
    return letter not in "YX" and letter not in _CHANNELS


def name_axes(
    path: Path,
    own: str,
    shape: Sequence[int],
    *,
    given: str | None = None,
    unnamed: str | None = None,
    n_masks: int | None = None,
) -> str:
    """Name each axis of a file: as the user named those of so many axes, else as the file does, else as `unnamed`."""
    letters = "".join(_known(letter) for letter in own)
    if given is not None and _fits(given, letters):
        return given
    if any(letter in _CHANNELS for letter in letters):  # what has channels already has planes besides
        letters = _as_planes(letters)
    if UNKNOWN not in letters:
        return letters
    n_pages = math.prod(length for length, letter in zip(shape, letters, strict=True) if letter == UNKNOWN)
    if n_pages == 1:
        return _as_planes(letters)
    if unnamed is not None and _fits(unnamed, letters):
        return unnamed
    sizes, choices = " x ".join(map(str, shape)), _choices(letters, shape)
    if given is not None:
        raise AxesError(
            f"{len(shape)} axes ({sizes}) without names, data.axes={given} names {len(given)}: give a letter for "
            f"each axis, {_listed(choices)}",
            path,
            shape,
            choices,
        )
    # a mask has no channels, so that as many pages of an image are planes
    if n_pages == n_masks and not _has_several(letters, shape):
        return _as_planes(letters)
    raise AxesError(
        f"{sizes} pixels, and the file does not say what its axes are: give --set data.axes={_listed(choices)}",
        path,
        shape,
        choices,
    )


def plane_axes(path: Path, own: str, shape: Sequence[int], *, given: str | None = None) -> str:
    """Name the unnamed axes of a file planes, in the order that is given for images, if there are so many."""
    letters = "".join(_known(letter) for letter in own)
    planes = "".join(letter for letter in given or "" if letter not in _CHANNELS)
    if UNKNOWN in letters and _fits(planes, letters):
        return planes
    if _has_several(letters, shape):
        sizes = " x ".join(map(str, shape))
        raise InputError(
            f"{sizes} pixels, and the file does not say which axis is time and which is depth: save it with named "
            f"axes (Fiji: Image, Properties), or give --set data.axes={_as_planes(letters)} or another order",
            source=path,
        )
    return _as_planes(letters)


def _choices(letters: str, shape: Sequence[int]) -> dict[str, str]:
    """Offer names of the axes that the sizes allow: channels come last if these are fewer than rows and columns."""
    offered = {_as_planes(letters): "planes", _as_channels(letters): "channels"}
    if not letters.endswith(f"{UNKNOWN}YX") or shape[-1] >= min(shape[-3:-1]):
        return offered
    last = {f"{_as_planes(letters[:-3])}YXC": "channels last"}
    return last if shape[-1] < SMALLEST_SIDE else last | offered


def _listed(choices: dict[str, str]) -> str:
    named = [f"{axes} ({meaning})" for axes, meaning in choices.items()]
    return " or ".join(filter(None, (", ".join(named[:-1]), named[-1])))


def _has_several(letters: str, shape: Sequence[int]) -> bool:
    """Return whether pages without names lie along several axes."""
    return sum(letter == UNKNOWN and length > 1 for letter, length in zip(letters, shape, strict=True)) > 1


def _known(letter: str) -> str:
    if letter in _UNNAMED:
        return UNKNOWN
    return letter if letter in LETTERS else "P"


def _fits(given: str, letters: str) -> bool:
    """Return whether named axes can be those of a file: colours (S) are in its tags, and cannot be anything else."""
    return len(given) == len(letters) and all(
        name in _CHANNELS for name, letter in zip(given, letters, strict=True) if letter == "S"
    )


def _as_planes(letters: str) -> str:
    """Name the unknown axes Z, then T, then P, from the last."""
    for name in ("Z", "T"):
        place = letters.rfind(UNKNOWN)
        if place >= 0 and name not in letters:
            letters = letters[:place] + name + letters[place + 1 :]
    return letters.replace(UNKNOWN, "P")


def _as_channels(letters: str) -> str:
    """Name the last unknown axis C, and the others planes."""
    place = letters.rfind(UNKNOWN)
    return _as_planes(letters[:place] + "C" + letters[place + 1 :])
