"""The files of a project: project.json and label images, each whole or not at all, and masks from elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from segkit._common.files import atomic, is_full
from segkit.errors import InputError, OutputError, first_few
from segkit.images.axes import check_axes
from segkit.images.headers import is_lossy
from segkit.images.labels import UNLABELLED, LabelMap
from segkit.images.matching import match
from segkit.images.numbering import MaskOptions, check_meaning, describe_numbers
from segkit.images.pairs import PairReader
from segkit.images.reading import Reading
from segkit.live.classes import MOST_CLASSES, LabelClass, check_classes, classes_of_map

FORMAT = 1
_SAFE = "nothing is lost as long as this program runs"
_NAME_CLASSES = (
    "if they are classes, name them (--classes background,NAME,...; in Python classes=); if they number objects, save "
    "background as 0 and objects as 1"
)


class StoredProject(NamedTuple):
    """Content of ``project.json``."""

    images: Path
    classes: list[LabelClass]
    accepted: set[str]
    digests: dict[str, str]
    axes: str | None = None  # of files that do not name them


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
        axes = entries.get("axes")
        return StoredProject(
            path.parent / str(entries["images"]),
            classes,
            accepted,
            digests,
            None if axes is None else check_axes(axes),
        )
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
        "axes": stored.axes,
        "accepted": sorted(stored.accepted),
        "sha256": dict(sorted(stored.digests.items())),
    }
    text = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    _store(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_labels(path: Path, pages: Sequence[NDArray[Any]]) -> None:
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


# Told in the files of checked objects, so that those of others are left alone.
_CHECKED = "segkit: checked objects"


def write_checked(path: Path, pages: Sequence[NDArray[np.int32]]) -> None:
    """Write the numbers of checked objects, (H, W) for each page, as TIFF; without any remove the file."""
    if not any(page.any() for page in pages):
        write_labels(path, [])
        return
    dtype = np.uint16 if max(int(page.max()) for page in pages) < 2**16 else np.uint32
    _store(path, lambda file: _save_pages(file, [page.astype(dtype) for page in pages], description=_CHECKED))


def is_checked(path: Path) -> bool:
    """Tell whether a file holds checked objects that `write_checked` wrote."""
    try:
        with tifffile.TiffFile(path) as file:
            return bool(file.pages.first.description == _CHECKED)
    except Exception:  # no such file, or damage, which makes a reader raise anything
        return False


class ExistingMasks(NamedTuple):
    """Masks that were read."""

    labels: dict[str, NDArray[np.uint8]]
    classes: list[LabelClass]
    messages: list[str]


def read_existing(
    images: Path, masks: Path, classes: Sequence[LabelClass] | None, reading: Reading | None = None
) -> ExistingMasks:
    """Read masks of classes as label images."""
    matched, reader = (
        match(images, masks, only_annotated=True),
        PairReader(reading, options=MaskOptions(unlabelled=UNLABELLED)),
    )
    found = {item.page.stem: item.mask for item in reader.read(matched.pairs)}
    matched.add(reader)
    numbered = matched.attempt(describe_numbers, found, MaskOptions(unlabelled=UNLABELLED))
    if classes is None and numbered is None:
        matched.attempt(check_meaning, found.values(), cure=_NAME_CLASSES)
    matched.refuse()
    if numbered is not None:
        raise InputError(
            "the masks number objects, expected masks of classes: save a value for each class", source=masks
        )
    label_map = _label_map(masks, {value for mask in found.values() for value in mask.held}, classes)
    used = list(classes) if classes is not None else classes_of_map(label_map)
    table = np.full(UNLABELLED + 1, UNLABELLED, dtype=np.uint8)
    table[: len(used)] = [one.value for one in used]
    labels = {key: table[label_map.encode(mask.values)] for key, mask in found.items()}
    return ExistingMasks(labels, used, matched.notes)


def _label_map(masks: Path, values: set[int], classes: Sequence[LabelClass] | None) -> LabelMap:
    """Match values and classes, in the order of the classes; without them, two are background and foreground."""
    # where nothing else occurs beside 0, the value of unlabelled pixels, or one above, is the foreground
    is_binary = len(values) == 2 and min(values) == 0 and max(values) >= UNLABELLED
    unlabelled = None if is_binary and (classes is None or len(classes) == 2) else UNLABELLED
    known = sorted(values - {unlabelled})
    if classes is not None:
        own = {one.value: one.name for one in classes}
        if unlabelled is None:
            own = dict(zip(known, own.values(), strict=True))
        if odd := [value for value in known if value not in own]:
            raise InputError(
                f"the masks hold {first_few([str(value) for value in odd])}, the classes are "
                f"{first_few([f'{value} ({name})' for value, name in own.items()])}: add a class for each value",
                source=masks,
            )
        return LabelMap(own, unlabelled)
    if set(known) <= {0, 1}:  # one class may not be annotated yet
        return LabelMap({0: "background", 1: "foreground"}, unlabelled)
    if len(known) > MOST_CLASSES or (len(known) > 2 and not 0 <= known[0] <= known[-1] < UNLABELLED):
        raise InputError(
            f"the masks hold {len(known)} values from {known[0]} to {known[-1]}, expected at most {MOST_CLASSES} from 0 "
            f"to 254, one for each class: save them anew",
            source=masks,
        )
    names = {value: f"class {value}" for value in known} if len(known) > 2 else None
    return LabelMap.infer(values, labels=names, unlabelled=unlabelled)


def digest_of(path: Path, image: NDArray[np.float32]) -> str:
    """Hash the pixels of an image, (H, W, C) in [0, 1]; of a JPEG its file."""
    if is_lossy(path):  # decoders differ in the pixels
        return hashlib.sha256(path.read_bytes()).hexdigest()
    pixels = np.ascontiguousarray(image)
    return hashlib.sha256(f"{pixels.shape} ".encode() + pixels.tobytes()).hexdigest()


def _relative(folder: Path, start: Path) -> str:
    """Name a folder as seen from another, so that both can be moved together."""
    try:
        return Path(os.path.relpath(folder.resolve(), start.resolve())).as_posix()
    except ValueError:  # on another drive
        return folder.resolve().as_posix()


def _save_pages(path: Path, pages: Sequence[NDArray[Any]], *, description: str | None = None) -> None:
    with tifffile.TiffWriter(path) as file:
        for page in pages:
            file.write(
                page, photometric="minisblack", compression="zlib", metadata=None, description=description
            )


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
