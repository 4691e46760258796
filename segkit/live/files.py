"""The files of a project: project.json and label images, each whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from segkit._files import atomic, is_full
from segkit.errors import InputError, OutputError
from segkit.images.read import JPEG_EXTENSIONS
from segkit.live.classes import LabelClass, check_classes

FORMAT = 1
_SAFE = "nothing is lost as long as this program runs"


class StoredProject(NamedTuple):
    """Content of ``project.json``."""

    images: Path
    classes: list[LabelClass]
    accepted: set[str]
    digests: dict[str, str]


def read_project(path: Path) -> StoredProject:
    """Read ``project.json``."""
    cure = (
        "restore it from a copy, or give another output folder and take the masks over "
        f"(--masks {path.parent / 'masks'}; masks= in Python)"
    )
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        version = entries["format"]
        if isinstance(version, int) and version > FORMAT:
            raise InputError(
                f"format {version}, this version of segkit reads {FORMAT}: update segkit", source=path
            )
        classes = check_classes([LabelClass(**one) for one in entries["classes"]])
        digests = {str(key): str(digest) for key, digest in entries["sha256"].items()}
        accepted = {str(key) for key in entries["accepted"]}
        return StoredProject(path.parent / str(entries["images"]), classes, accepted, digests)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, InputError) and error.source is not None:
            raise
        reason = " ".join(str(error).split())
        raise InputError(f"damaged ({reason}): {cure}", source=path) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}): make it readable", source=path) from error


def write_project(path: Path, stored: StoredProject) -> None:
    """Write ``project.json``."""
    entries = {
        "format": FORMAT,
        "images": _relative(stored.images, path.parent),
        "classes": [asdict(one) for one in stored.classes],
        "accepted": sorted(stored.accepted),
        "sha256": dict(sorted(stored.digests.items())),
    }
    text = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    _store(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_labels(path: Path, pages: Sequence[NDArray[np.uint8]]) -> None:
    """Write a label image, (H, W) for each page, as PNG or TIFF as its name says; without pages remove it."""
    if not pages:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot be removed ({error.strerror}): {_SAFE}; make it writable", source=path
            ) from error
    elif path.suffix == ".png":
        _store(path, lambda temporary: Image.fromarray(pages[0]).save(temporary, compress_level=1))
    else:
        _store(path, lambda temporary: _save_pages(temporary, pages))


def digest_of(path: Path, image: NDArray[np.float32]) -> str:
    """Hash the pixels of an image, (H, W, C) in [0, 1]; of a JPEG its file."""
    if path.suffix.lower() in JPEG_EXTENSIONS:  # decoders differ in the pixels
        return hashlib.sha256(path.read_bytes()).hexdigest()
    pixels = np.ascontiguousarray(image)
    return hashlib.sha256(f"{pixels.shape} ".encode() + pixels.tobytes()).hexdigest()


def _relative(folder: Path, start: Path) -> str:
    """Name a folder as seen from another, so that both can be moved together."""
    try:
        return Path(os.path.relpath(folder.resolve(), start.resolve())).as_posix()
    except ValueError:  # on another drive
        return folder.resolve().as_posix()


def _save_pages(path: Path, pages: Sequence[NDArray[np.uint8]]) -> None:
    with tifffile.TiffWriter(path) as file:
        for page in pages:
            file.write(page, photometric="minisblack", compression="zlib", metadata=None)


def _store(path: Path, save: Callable[[Path], object]) -> None:
    """Write a file whole or not at all, on the disk when this returns."""
    try:
        with atomic(path) as temporary:
            save(temporary)
    except OSError as error:
        full = is_full(error)
        reason = "the disk is full" if full else f"cannot be written ({error.strerror or error})"
        cure = "free some space" if full else "make the folder writable"
        again = "try again" if path.suffix == ".json" else "it is saved with the next change"
        raise OutputError(f"{reason}: {_SAFE}; {cure}, and {again}", source=path) from error
