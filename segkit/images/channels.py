"""Grey images among colour images, and colour files that hold a grey image: all read alike.

An RGB file whose three channels are equal holds a grey image. A grey image is an RGB image of three equal channels.
Neither change loses anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit._common import count, first_few

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


def describe_fault(kinds: Mapping[str, Kind]) -> str:
    """State that images cannot be read with one number of channels."""
    counts = Counter(kind.n_channels for kind in kinds.values())
    told = ", ".join(f"{n_images} with {n_channels}" for n_channels, n_images in sorted(counts.items()))
    return (
        f"images differ in their number of channels ({told}), expected one: convert all to grey or all to RGB"
    )
