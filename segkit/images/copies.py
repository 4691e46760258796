"""Images that are the same picture under several names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import first_few


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
