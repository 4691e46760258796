"""The image files of a folder, by stem, and which mask belongs to which image.

The stem of a file is its path in the folder without the extension: ``a/1`` for ``a/1.png``.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from segkit.errors import InputError
from segkit.images.read import IMAGE_EXTENSIONS

# What people and programs put behind the name of an image to name its mask.
_SUFFIX = re.compile(
    r"(?P<name>.*?[^/])[ ._-](cp_masks|masks?|labels?|gt|ground[ _-]?truth|seg|segmentation|annotations?)",
    re.IGNORECASE,
)


class Matches(NamedTuple):
    """Masks found for images.

    Parameters
    ----------
    mask_of : dict of str to str
        Stem of the mask of each image that has one, by the stem of the image.
    images_among_masks : list of str
        Stems in the folder of masks that belong to images: NAME where every mask is called NAME_mask.
    faults : list of str
        Images with several masks.
    """

    mask_of: dict[str, str]
    images_among_masks: list[str]
    faults: list[str]


def list_images(folder: str | Path, extensions: Sequence[str] = IMAGE_EXTENSIONS) -> list[Path]:
    """List the image files of a folder and its sub-folders.

    Parameters
    ----------
    folder : str or Path
        A folder, or one image file.
    extensions : sequence of str
        Extensions of image files, in lower case. Other files and hidden files are skipped.

    Returns
    -------
    list of Path
        Paths relative to `folder` (to its parent if it is a file), sorted.

    Raises
    ------
    InputError
        If there is no such folder, or no image in it.
    """
    folder = Path(folder)
    if not folder.exists():
        raise InputError(f"{folder}: no such file or folder: check its name")
    root = root_of(folder)
    candidates = [folder] if folder.is_file() else list(folder.rglob("*"))
    relative = [
        path.relative_to(root) for path in candidates if path.suffix.lower() in extensions and path.is_file()
    ]
    found = sorted(path for path in relative if not any(part.startswith(".") for part in path.parts))
    if not found:
        others = Counter(path.suffix.lower() or "no extension" for path in candidates if path.is_file())
        there = ", ".join(f"{number} of {suffix}" for suffix, number in others.most_common(3))
        raise InputError(
            f"{folder}: no images, expected files that end in {', '.join(extensions)}"
            + (f", found {there}: save them in one of these formats" if there else ": check the folder")
        )
    return found


def list_without_masks(folder: Path) -> tuple[list[Path], list[Path]]:
    """List the images of a folder, and apart from them the masks that lie beside: NAME_mask beside NAME."""
    listed = list_images(folder)
    masks = masks_beside_images({stem_of(path) for path in listed})
    return (
        [path for path in listed if stem_of(path) not in masks],
        [path for path in listed if stem_of(path) in masks],
    )


def files_by_stem(folder: Path) -> dict[str, Path]:
    """Give the file of each stem of a folder; two files of one stem are refused."""
    faults: list[str] = []
    found = by_stem(folder, faults)
    if faults:
        raise InputError("; ".join(faults[:10]))
    return found


def by_stem(folder: str | Path, faults: list[str]) -> dict[str, Path]:
    """Give the file of each stem of a folder; two files of one stem are added to the faults."""
    paths = paths_by_stem(folder, faults)
    faults += [
        f"{same[0]}: same stem as {same[1].name}, expected one file: remove one"
        for same in paths.values()
        if len(same) > 1
    ]
    return {stem: same[0] for stem, same in paths.items()}


def paths_by_stem(folder: str | Path, faults: list[str]) -> dict[str, list[Path]]:
    """Give all files of each stem of a folder; a folder without images is added to the faults."""
    root = root_of(Path(folder))
    paths: defaultdict[str, list[Path]] = defaultdict(list)
    try:
        listed = list_images(folder)
    except InputError as fault:
        faults.append(str(fault))
        return {}
    for path in listed:
        paths[stem_of(path)].append(root / path)
    return paths


def root_of(folder: Path) -> Path:
    """Give the folder itself, or the folder of a file."""
    return folder.parent if folder.is_file() else folder


def stem_of(path: Path) -> str:
    """Give the path without its extension, accents spelled in one way."""
    # macOS stores an accent apart from its letter, other systems store one character
    return unicodedata.normalize("NFC", path.with_suffix("").as_posix())


def image_name(stem: str) -> str | None:
    """Give NAME of a stem such as NAME_mask, NAME-labels or NAME_gt; None of any other stem."""
    match = _SUFFIX.fullmatch(stem)
    return None if match is None else match["name"]


def masks_beside_images(stems: Collection[str]) -> dict[str, str]:
    """Give the image stem of each mask stem in one folder: NAME of NAME_mask, if both are there."""
    named = {stem: image_name(stem) for stem in stems}
    return {stem: name for stem, name in named.items() if name is not None and name in stems}


def match_stems(images: Collection[str], masks: Collection[str]) -> Matches:
    """Find the mask of each image by name.

    Parameters
    ----------
    images, masks : collection of str
        Stems.

    Returns
    -------
    Matches
        The mask of an image has its stem, or that and a suffix such as ``_mask``. Two such masks of one image are
        a fault. In a folder of masks that holds NAME beside every NAME_mask, NAME is an image.
    """
    beside = masks_beside_images(masks)
    is_mixed = 2 * len(beside) == len(masks) and not beside.keys() & set(images)
    candidates = sorted(beside) if is_mixed else sorted(masks)
    named: defaultdict[str, list[str]] = defaultdict(list)
    for stem in candidates:
        name = image_name(stem)
        named[stem if stem in images or name is None else name].append(stem)
    found = {image: named[image] for image in sorted(images) if image in named}
    faults = [
        f"{image}: {len(several)} masks ({', '.join(several)}), expected one: remove the others"
        for image, several in found.items()
        if len(several) > 1
    ]
    mask_of = {image: several[0] for image, several in found.items()}
    return Matches(mask_of, sorted(set(masks) - set(candidates)), faults)
