"""Feature maps on disk: an image that was looked at before need not be filtered again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from segkit._common import is_whole
from segkit._common.arrays import digest_arrays
from segkit._common.code import code_version
from segkit._common.files import atomic, stamp_of
from segkit.errors import ConfigError
from segkit.features.base import FeatureMaps, FilterBank, as_image
from segkit.features.registry import bank_to_dict

_FORMAT = 2
_LONGEST_WRITE = (
    24 * 3600.0
)  # seconds; an unfinished file that is older was left by a program that was killed


class FeatureCache:
    """Feature maps on disk, bounded; the least recently used go first.

    Parameters
    ----------
    folder : Path, optional
        Where they are kept; by default the environment variable ``SEGKIT_CACHE``, or ``segkit/features`` in the user's
        folder of caches. It is made with the first entry.
    limit : int, default=8 * 2**30
        Most bytes to keep, 1 or more.

    Raises
    ------
    ConfigError
        If the limit is no whole number above 0.

    Notes
    -----
    Several programs may share a folder. Maps that are in use stay valid when their entry is removed. Nothing in a
    file is executed when it is read.
    """

    def __init__(self, folder: str | Path | None = None, limit: int = 8 * 2**30) -> None:
        if not is_whole(limit):
            raise ConfigError(f"limit {limit!r}: give a number of bytes, 1 or more")
        self.folder = default_folder() if folder is None else Path(folder)
        self.limit = int(limit)
        self._has_warned = False

    def get(self, key: str) -> list[FeatureMaps] | None:
        """Read an entry; None if there is none, or if it was damaged, when it is removed.

        Values are read from disk as they are needed. A key, as `content_key` makes it, is of letters and digits; others
        raise a ConfigError.
        """
        path = self._path_of(key)
        try:
            maps = _read(path)
        except (ValueError, TypeError, KeyError, EOFError):
            _remove(path)
            return None
        except OSError:  # there is none, or the disk is not there for now
            return None
        with contextlib.suppress(OSError):  # it may have been removed by now, or be read-only
            os.utime(path)
        return maps

    def put(self, key: str, maps: list[FeatureMaps]) -> list[FeatureMaps]:
        """Keep maps, and return the same ones, read from disk as they are needed.

        Other entries are removed if there is no room. If the maps cannot be kept, `maps` itself is returned; a full
        disk warns once. Keys are as for `get`.
        """
        path = self._path_of(key)
        n_bytes = sum(stack.values.nbytes for stack in maps)
        if n_bytes > self.limit:
            return maps
        try:
            self._make_room(self.limit - n_bytes, but=path)
            with atomic(path) as part:
                _write(part, maps)
        except OSError as error:
            if not path.is_file():  # Windows does not replace an entry of another program that is in use
                self._warn(error)
        return self.get(key) or maps

    def _path_of(self, key: str) -> Path:
        # keys become names of files
        if not re.fullmatch(r"[0-9A-Za-z_-]{1,128}", key):
            raise ConfigError(f"key {key!r}: give letters and digits, as content_key does")
        return self.folder / f"{key}.npy"

    def _make_room(self, limit: int, *, but: Path) -> None:
        """Remove the least recently used entries until the others hold at most `limit` bytes."""
        entries = []
        for path in self.folder.glob("*.npy"):
            with contextlib.suppress(OSError):  # another program may remove it meanwhile
                found = path.stat()
                if not path.name.startswith("."):
                    entries.append((found.st_mtime_ns, found.st_size, path))
                elif time.time() - found.st_mtime > _LONGEST_WRITE:
                    path.unlink()
        total = sum(n_bytes for _, n_bytes, path in entries if path != but)
        for _, n_bytes, path in sorted(entries):
            if path != but and total > limit and _remove(path):
                total -= n_bytes

    def _warn(self, error: OSError) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            f"{self.folder}: feature maps cannot be kept ({error.strerror or error}), so images are filtered anew each "
            "time: free space there, or name another folder (environment variable SEGKIT_CACHE)",
            stacklevel=3,
        )


def are_whole(maps: list[FeatureMaps]) -> bool:
    """Return whether files from which values are read still hold them: a read beyond the end of one kills the program."""
    for values in (stack.values for stack in maps):
        if isinstance(values, np.memmap) and values.filename is not None:
            found = stamp_of(Path(values.filename))
            # of a file that was removed, or replaced, what is mapped stays
            if found is not None and found[1] < values.offset + values.nbytes:
                return False
    return True


def content_key(image: ArrayLike, bank: FilterBank, tile: str) -> str:
    """Name feature maps by everything they depend on; of weights the values count, not where they come from."""
    image = as_image(image)
    n_image_channels = image.shape[2]
    weights = bank.weights_used(np.arange(bank.n_channels(n_image_channels)), n_image_channels)
    description = bank_to_dict(bank)
    entries = {
        "format": _FORMAT,
        "version": code_version(),
        "image": digest_arrays({"image": image}),
        "bank": _without_sources(description) if weights else description,
        "weights": digest_arrays(weights),
        "tile": tile,
    }
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def default_folder() -> Path:
    """Return the folder of feature maps: ``SEGKIT_CACHE``, or a folder in the user's folder of caches."""
    given = os.environ.get("SEGKIT_CACHE")
    if given:
        return Path(given)
    home = Path.home()
    if sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = home / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return caches / "segkit" / "features"


def _without_sources(description: Any) -> Any:
    """Leave out where weights come from: their values are hashed."""
    if isinstance(description, list):
        return [_without_sources(item) for item in description]
    if isinstance(description, dict):
        return {name: _without_sources(item) for name, item in description.items() if name != "weights"}
    return description


def _write(path: Path, maps: list[FeatureMaps]) -> None:
    """Write arrays one after the other: bytes of JSON about the maps, then the values of each."""
    index = [
        {"indices": stack.indices.tolist(), "stride": stack.stride, "offset": stack.offset} for stack in maps
    ]
    text = json.dumps({"format": _FORMAT, "maps": index}, default=float).encode()
    with path.open("wb") as file:
        np.save(file, np.frombuffer(text, dtype=np.uint8), allow_pickle=False)
        for stack in maps:
            np.save(file, np.ascontiguousarray(stack.values, dtype=np.float32), allow_pickle=False)


def _read(path: Path) -> list[FeatureMaps]:
    """Read an entry, its values as they are needed; raises what damage makes NumPy and JSON raise."""
    maps = []
    with path.open("rb") as file:
        index = json.loads(np.load(file, allow_pickle=False).tobytes())
        if index["format"] != _FORMAT:
            raise ValueError("another format")
        for entry in index["maps"]:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            indices, offset = np.asarray(entry["indices"], dtype=np.intp), entry["offset"]
            if dtype != np.float32 or len(shape) != 3 or shape[0] != indices.size:
                raise ValueError("values do not fit the index")
            # a part of a file without values cannot be mapped
            values = (
                np.memmap(path, np.float32, "r", file.tell(), shape)
                if all(shape)
                else np.empty(shape, dtype=np.float32)
            )
            file.seek(values.nbytes, os.SEEK_CUR)
            maps.append(
                FeatureMaps(
                    values, indices, entry["stride"], tuple(offset) if isinstance(offset, list) else offset
                )
            )
    return maps


def _remove(path: Path) -> bool:
    """Remove an entry; False if the system keeps files in use."""
    try:
        path.unlink()
    except OSError:
        return False
    return True
