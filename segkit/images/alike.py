"""Whether the images of a folder are alike: their channels, the scale of their values, and copies of one picture.

An RGB file whose three channels are equal holds a grey image. A grey image is an RGB image of three equal channels.
Neither change loses anything.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError, count, first_few
from segkit.images.axes import Layout
from segkit.images.pixel_size import FoundSize, PixelSize

GREY, COLOUR = 1, 3


class Kind(NamedTuple):
    """Channels of an image in its file, and whether it is grey: one channel, or three equal ones."""

    n_channels: int
    is_grey: bool


def kind_of(image: NDArray[np.float32]) -> Kind:
    """Return the kind of an image (H, W, C)."""
    n_channels = image.shape[2]
    return Kind(
        n_channels, n_channels == GREY or (n_channels == COLOUR and bool((image == image[:, :, :1]).all()))
    )


def fits(kind: Kind, n_channels: int) -> bool:
    """Return whether an image can be read with so many channels without loss."""
    return n_channels == kind.n_channels or (kind.is_grey and n_channels in (GREY, COLOUR))


def with_channels(image: NDArray[np.float32], n_channels: int) -> NDArray[np.float32]:
    """Read an image (H, W, C) that `fits` with 1 or 3 channels."""
    if image.shape[2] == n_channels:
        return image
    return image[:, :, :1] if n_channels == GREY else np.repeat(image, COLOUR, axis=2)


def common_channels(kinds: Mapping[str, Kind]) -> int | None:
    """Return the number of channels that all images can be read with: theirs, else 3 if any is in colour; None of none."""
    found = {kind.n_channels for kind in kinds.values()}
    if len(found) == 1:
        return found.pop()
    wanted = GREY if all(kind.is_grey for kind in kinds.values()) else COLOUR
    return wanted if all(fits(kind, wanted) for kind in kinds.values()) else None


def describe_changes(kinds: Mapping[str, Kind], n_channels: int, *, like: str = "the others") -> list[str]:
    """Describe in one line which images are read with other channels than their files have."""
    changed = [name for name, kind in kinds.items() if kind.n_channels != n_channels]
    if not changed:
        return []
    verb = "is" if len(changed) == 1 else "are"
    what = (
        f"{verb} grey and read as colour (three equal channels)"
        if n_channels == COLOUR
        else f"{verb} RGB with three equal channels and read as grey"
    )
    return [f"{count(len(changed), 'image')} ({first_few(changed)}) {what}, as {like} are"]


def check_kinds(kinds: Mapping[str, Kind]) -> list[str]:
    """Refuse images that cannot be read with one number of channels; describe which are read with others than they have."""
    n_channels = common_channels(kinds)
    if n_channels is not None or not kinds:
        return describe_changes(kinds, n_channels or 0)
    counts = Counter(kind.n_channels for kind in kinds.values())
    told = ", ".join(f"{n_images} with {n_channels}" for n_channels, n_images in sorted(counts.items()))
    raise InputError(
        f"images differ in their number of channels ({told}), expected one: convert all to grey or all to RGB"
    )


Name = TypeVar("Name")

# Images whose brightest pixel is so many times darker, or brighter, than those of the others are told of.
OTHER_SCALE = 8
# The brightest pixel of 16 bits, in [0, 1], whose values would fit into 8 bits.
_MOST_OF_8_BITS = np.iinfo(np.uint8).max / np.iinfo(np.uint16).max


class Scale(NamedTuple):
    """Type of the pixels in the file, and the brightest one in [0, 1]."""

    dtype: str
    peak: float

    @property
    def is_8_bits_in_16(self) -> bool:
        """Whether 16 bits hold what 8 bits could: such an image is read 257 times too dark."""
        return self.dtype == "uint16" and self.peak <= _MOST_OF_8_BITS * (1 + 1e-6)


def scale_of(image: NDArray[np.float32], dtype: object) -> Scale:
    """Return the scale of an image in [0, 1], read from a file of that type."""
    return Scale(str(dtype), float(image.max()))


def of_other_scale(peaks: Mapping[Name, float], low: float, high: float) -> list[Name]:
    """Name the images whose brightest pixel is far below or above those of others, which go from `low` to `high`."""
    return [name for name, peak in peaks.items() if 0 < peak < low / OTHER_SCALE or peak > high * OTHER_SCALE]


def check_scales(scales: Mapping[str, Scale]) -> list[str]:
    """Refuse 8 bits stored as 16 beside 8 bits; describe which images are scaled otherwise than the others."""
    depths: dict[str, list[str]] = {}
    for name, scale in scales.items():
        depths.setdefault(scale.dtype, []).append(name)
    narrow = [name for name, scale in scales.items() if scale.is_8_bits_in_16]
    if narrow and "uint8" in depths:
        one = len(narrow) == 1
        raise InputError(
            f"{first_few(narrow)}: {'a file' if one else f'{len(narrow)} files'} of 16 bits with values up to 255, beside "
            f"{count(len(depths['uint8']), 'file')} of 8 bits ({first_few(depths['uint8'], most=3)}), would be read 257 "
            f"times darker: save {'it' if one else 'them'} with 8 bits too"
        )
    notes = []
    if len(depths) > 1:
        told = ", ".join(
            f"{len(names)} of {dtype} ({first_few(names, most=3)})" for dtype, names in depths.items()
        )
        notes.append(
            f"images of several types: {told}; each is read by the range of its own type: right if the pictures look alike"
        )
    # the fewer images are named, if the brightest pixels of dark and bright ones are far apart
    peaks = {name: scale.peak for name, scale in scales.items()}
    low, high = min(peaks.values(), default=0), max(peaks.values(), default=0)
    dark, bright = of_other_scale(peaks, high, high), of_other_scale(peaks, low, low)
    odd, word, other = (dark, "darker", high) if len(dark) <= len(bright) else (bright, "brighter", low)
    if odd:
        notes.append(
            f"{count(len(odd), 'image')} ({first_few(odd)}) much {word} than others: the brightest pixel is at "
            f"{peaks[odd[0]]:.1%} of full scale, of others at {other:.1%}: right if the pictures look so, else save all "
            f"with one scale"
        )
    return notes


def digest_image(image: NDArray[Any]) -> str:
    """Compute a digest of type, shape and values of an image; equal for equal images only."""
    values = np.ascontiguousarray(image)
    return hashlib.sha256(f"{image.dtype} {image.shape}".encode() + values.tobytes()).hexdigest()


def describe_copies(digests: Mapping[str, str]) -> list[str]:
    """Name the images of each picture that there is more than once, from the digests of `digest_image` by name."""
    names_of: dict[str, list[str]] = {}
    for name, digest in digests.items():
        names_of.setdefault(digest, []).append(name)
    return [
        f"the same picture {len(names)} times: {first_few(names)}"
        for names in names_of.values()
        if len(names) > 1
    ]


class Page(NamedTuple):
    """A page of an image file: planes around it, itself in the middle, each in [0, 1], and what the file tells."""

    stem: str
    file: str
    around: list[NDArray[np.float32]]
    dtype: str
    limits: tuple[float, float]
    layout: Layout
    pixel_size: PixelSize | None
    z_step: float | None
    size_source: str = ""

    @property
    def image(self) -> NDArray[np.float32]:
        """The page itself, (H, W, C)."""
        return self.around[len(self.around) // 2]


@dataclass
class Facts:
    """Properties that images are compared by, gathered one by one so that no image has to be kept."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    scales: dict[str, Scale] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    shapes: Counter[tuple[int, ...]] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    layouts: Counter[Layout] = field(default_factory=Counter)
    sizes: Counter[FoundSize] = field(default_factory=Counter)
    limits: tuple[float, float] = float("inf"), float("-inf")

    def add(self, page: Page) -> None:
        """Take note of a page."""
        self.kinds[page.stem] = kind_of(page.image)
        self.scales[page.stem] = scale_of(page.image, page.dtype)
        self.digests[page.stem] = digest_image(page.image)
        self.shapes[page.image.shape] += 1
        self.dtypes[page.dtype] += 1
        self.layouts[page.layout] += 1
        self.sizes[FoundSize(page.pixel_size, page.size_source)] += 1
        self.limits = min(self.limits[0], page.limits[0]), max(self.limits[1], page.limits[1])
