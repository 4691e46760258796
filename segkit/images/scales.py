"""Images whose values are scaled otherwise than those of the others: 8 beside 16 bits, dark beside bright."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from segkit._common import count, first_few

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
    messages += _of_other_scale({name: scale.peak for name, scale in scales.items()})


def _of_other_scale(peaks: Mapping[str, float]) -> list[str]:
    """Name the fewer images, if the brightest pixels of dark and bright ones are far apart."""
    if not peaks:
        return []
    low, high = min(peaks.values()), max(peaks.values())
    dark, bright = of_other_scale(peaks, high, high), of_other_scale(peaks, low, low)
    odd, word, other = (dark, "darker", high) if len(dark) <= len(bright) else (bright, "brighter", low)
    if not odd:
        return []
    return [
        f"{count(len(odd), 'image')} ({first_few(odd)}) much {word} than others: the brightest pixel is at "
        f"{peaks[odd[0]]:.1%} of full scale, of others at {other:.1%}: right if the pictures look so, else save all with "
        f"one scale"
    ]
