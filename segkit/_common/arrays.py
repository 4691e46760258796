"""Arrays of whatever library as those of NumPy, and their digests."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit.errors import InputError


def as_array(values: ArrayLike, *, name: str) -> NDArray[Any]:
    """Return an array of what was given, an array of whatever library among it; values that a mask hides are refused."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        n_hidden = int(np.count_nonzero(np.ma.getmaskarray(values)))
        raise InputError(
            f"{name}: masked array that hides {n_hidden} of {values.size} values: fill them first, such as with "
            f"array.filled(0); pixels of a mask that nobody annotated with filled(255), and give unlabelled=255"
        )
    try:
        return np.asarray(values)
    except (TypeError, RuntimeError) as error:  # such as of tensors on a GPU
        reason = " ".join(str(error).split())
        raise InputError(f"{name} given as {type(values).__name__} ({reason}): give a NumPy array") from error
    except ValueError:
        raise InputError(f"{name}: rows of different lengths, expected an array (H, W)") from None


def digest_arrays(arrays: dict[str, NDArray[Any]]) -> str:
    """Hexadecimal sha256 of named arrays: names, shapes, types and values, in order of name."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
