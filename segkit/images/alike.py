"""Whether the images of a folder are alike: their channels, the scale of their values, and copies of one picture.

An RGB file whose three channels are equal holds a grey image. A grey image is an RGB image of three equal channels.
Neither change loses anything.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from segkit._common import count, first_few
from segkit.images.axes import Layout

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


def check_kinds(kinds: Mapping[str, Kind], faults: list[str], messages: list[str]) -> None:
    """Check that images can be read with one number of channels; faults and notes are added to the lists."""
    n_channels = common_channels(kinds) if kinds else None
    if n_channels is not None:
        messages += describe_changes(kinds, n_channels)
    elif kinds:
        counts = Counter(kind.n_channels for kind in kinds.values())
        told = ", ".join(f"{n_images} with {n_channels}" for n_channels, n_images in sorted(counts.items()))
        faults.append(
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


def check_scales(scales: Mapping[str, Scale], faults: list[str], messages: list[str]) -> None:
    """Check that images of one folder are scaled alike; faults and notes are added to the lists."""
    depths: dict[str, list[str]] = {}
    for name, scale in scales.items():
        depths.setdefault(scale.dtype, []).append(name)
    narrow = [name for name, scale in scales.items() if scale.is_8_bits_in_16]
    if narrow and "uint8" in depths:
        one = len(narrow) == 1
        faults.append(
            f"{first_few(narrow)}: {'a file' if one else f'{len(narrow)} files'} of 16 bits with values up to 255, beside "
            f"{count(len(depths['uint8']), 'file')} of 8 bits ({first_few(depths['uint8'], most=3)}), would be read 257 "
            f"times darker: save {'it' if one else 'them'} with 8 bits too"
        )
        return
    if len(depths) > 1:
        told = ", ".join(
            f"{len(names)} of {dtype} ({first_few(names, most=3)})" for dtype, names in depths.items()
        )
        messages.append(
            f"images of several types: {told}; each is read by the range of its own type: right if the pictures look alike"
        )
    # the fewer images are named, if the brightest pixels of dark and bright ones are far apart
    peaks = {name: scale.peak for name, scale in scales.items()}
    if not peaks:
        return
    low, high = min(peaks.values()), max(peaks.values())
    dark, bright = of_other_scale(peaks, high, high), of_other_scale(peaks, low, low)
    odd, word, other = (dark, "darker", high) if len(dark) <= len(bright) else (bright, "brighter", low)
    if odd:
        messages.append(
            f"{count(len(odd), 'image')} ({first_few(odd)}) much {word} than others: the brightest pixel is at "
            f"{peaks[odd[0]]:.1%} of full scale, of others at {other:.1%}: right if the pictures look so, else save all "
            f"with one scale"
        )


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


class Facts:
    """Properties that images are compared by, gathered one by one so that no image has to be kept."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self.scales: dict[str, Scale] = {}
        self.digests: dict[str, str] = {}
        self.shapes: Counter[tuple[int, ...]] = Counter()
        self.dtypes: Counter[str] = Counter()
        self.layouts: Counter[Layout] = Counter()

    def add(self, name: str, image: NDArray[np.float32], dtype: str, layout: Layout) -> None:
        """Take note of an image in [0, 1], read from a file of that type and layout."""
        self.kinds[name] = kind_of(image)
        self.scales[name] = scale_of(image, dtype)
        self.digests[name] = digest_image(image)
        self.shapes[image.shape] += 1
        self.dtypes[dtype] += 1
        self.layouts[layout] += 1
