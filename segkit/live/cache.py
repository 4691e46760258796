"""Feature maps on disk: an image that was looked at before need not be filtered again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit import __version__
from segkit._common import is_whole
from segkit.errors import ConfigError
from segkit.features.base import FeatureMaps, FilterBank, as_image
from segkit.features.registry import bank_to_dict

_INDEX = "maps.json"
_FORMAT = 1
_UNFINISHED = ".part-"
_LONGEST_WRITE = 24 * 3600.0  # seconds; a part that is older was left by a program that was killed


class _Entry(NamedTuple):
    """An entry of the cache: when it was last used, in ns, its bytes, its folder."""

    used: int
    n_bytes: int
    folder: Path


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
        folder = self._folder_of(key)
        index = folder / _INDEX
        try:
            maps = _read_maps(folder)
        except FileNotFoundError:
            # an entry without one of its files is damaged; one without a folder was never there
            if folder.exists():
                _remove(folder)
            return None
        except (ValueError, TypeError, KeyError, EOFError):
            _remove(folder)
            return None
        except OSError:  # a disk that is not there for now
            return None
        with contextlib.suppress(OSError):  # it may have been removed by now, or be read-only
            os.utime(index)
        return maps

    def put(self, key: str, maps: list[FeatureMaps]) -> list[FeatureMaps]:
        """Keep maps, and return the same ones, read from disk as they are needed.

        Other entries are removed if there is no room. If the maps cannot be kept, `maps` itself is returned; a full
        disk warns once. Keys are as for `get`.
        """
        folder = self._folder_of(key)
        n_bytes = sum(stack.values.nbytes for stack in maps)
        if n_bytes > self.limit:
            return maps
        part = self.folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
        try:
            self._make_room(self.limit - n_bytes, but=folder)
            part.mkdir(parents=True)
            _write(part, maps)
            _publish(part, folder)
        except OSError as error:
            self._warn(error)
            return maps
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return self.get(key) or maps

    def _folder_of(self, key: str) -> Path:
        # keys become names of folders
        if not re.fullmatch(r"[0-9A-Za-z_-]{1,128}", key):
            raise ConfigError(f"key {key!r}: give letters and digits, as content_key does")
        return self.folder / key

    def _make_room(self, limit: int, *, but: Path) -> None:
        """Remove the least recently used entries until the others hold at most `limit` bytes."""
        entries = sorted(entry for entry in self._entries() if entry.folder != but)
        total = sum(entry.n_bytes for entry in entries)
        for entry in entries:
            if total <= limit:
                break
            if _remove(entry.folder):
                total -= entry.n_bytes

    def _entries(self) -> Iterator[_Entry]:
        """Find all entries; parts that a killed program left are removed on the way."""
        for folder in list(self.folder.iterdir()) if self.folder.is_dir() else []:
            # whatever else lies there is left alone, and another program may remove entries meanwhile
            with contextlib.suppress(OSError):
                if not folder.name.startswith(_UNFINISHED):
                    used = (folder / _INDEX).stat().st_mtime_ns
                    yield _Entry(used, sum(file.stat().st_size for file in folder.iterdir()), folder)
                elif time.time() - folder.stat().st_mtime > _LONGEST_WRITE:
                    shutil.rmtree(folder, ignore_errors=True)

    def _warn(self, error: OSError) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            f"{self.folder}: feature maps cannot be kept ({error.strerror or error}), so images are filtered anew each "
            "time: free space there, or name another folder (environment variable SEGKIT_CACHE)",
            stacklevel=3,
        )


def content_key(image: ArrayLike, bank: FilterBank, tile: str) -> str:
    """Name feature maps by everything they depend on; of weights the values count, not where they come from."""
    image = as_image(image)
    n_image_channels = image.shape[2]
    weights = bank.weights_used(np.arange(bank.n_channels(n_image_channels)), n_image_channels)
    digests = {name: _digest(weight) for name, weight in weights.items()}
    description = bank_to_dict(bank)
    entries = {
        "format": _FORMAT,
        "version": __version__,
        "image": _digest(image),
        "bank": _without_sources(description) if digests else description,
        "weights": digests,
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


def _digest(array: NDArray[Any]) -> str:
    """Hash the values, shape and dtype of an array."""
    array = np.asarray(array)
    kind = f"{array.dtype.str} {array.shape} ".encode()
    return hashlib.sha256(kind + np.ascontiguousarray(array).tobytes()).hexdigest()


def _without_sources(description: Any) -> Any:
    """Leave out where weights come from: their values are hashed."""
    if isinstance(description, list):
        return [_without_sources(item) for item in description]
    if isinstance(description, dict):
        return {name: _without_sources(item) for name, item in description.items() if name != "weights"}
    return description


def _read_maps(folder: Path) -> list[FeatureMaps]:
    """Read an entry; raises what damage makes NumPy and JSON raise."""
    entries = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    if entries["format"] != _FORMAT:
        raise ValueError("another format")
    maps = []
    for place, entry in enumerate(entries["maps"]):
        path, is_empty = folder / f"{place}.npy", not all(entry["shape"])
        # a file without values cannot be mapped
        values = np.load(path, mmap_mode=None if is_empty else "r", allow_pickle=False)
        indices = np.asarray(entry["indices"], dtype=np.intp)
        if values.dtype != np.float32 or list(values.shape) != entry["shape"] or len(indices) != len(values):
            raise ValueError("values do not fit the index")
        offset = entry["offset"]
        maps.append(
            FeatureMaps(
                values, indices, entry["stride"], tuple(offset) if isinstance(offset, list) else offset
            )
        )
    return maps


def _write(folder: Path, maps: list[FeatureMaps]) -> None:
    """Write an entry, on the disk before it gets its name."""
    for place, stack in enumerate(maps):
        with (folder / f"{place}.npy").open("wb") as file:
            np.save(file, np.asarray(stack.values, dtype=np.float32), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
    entries = [
        {
            "shape": list(stack.values.shape),
            "indices": stack.indices.tolist(),
            "stride": float(stack.stride),
            "offset": [float(axis) for axis in stack.offset]
            if isinstance(stack.offset, tuple)
            else float(stack.offset),
        }
        for stack in maps
    ]
    with (folder / _INDEX).open("w", encoding="utf-8") as file:
        json.dump({"format": _FORMAT, "maps": entries}, file)
        file.flush()
        os.fsync(file.fileno())


def _publish(part: Path, folder: Path) -> None:
    """Move a finished entry to its name; one that is there already, from another program, stays."""
    try:
        part.rename(folder)
    except OSError:
        if (folder / _INDEX).is_file():
            return
        _remove(folder)
        part.rename(folder)


def _remove(folder: Path) -> bool:
    """Remove an entry at once for all who look for it; False if the system keeps files in use."""
    doomed = folder.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
    try:
        folder.rename(doomed)
    except OSError:
        return False
    shutil.rmtree(doomed, ignore_errors=True)
    return True
