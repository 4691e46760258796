"""The image files of a folder, by stem, and what images and masks are called.

The stem of a file is its path in the folder without the extension: ``a/1`` for ``a/1.png`` and for ``a/1.ome.tif``.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple

from segkit.errors import InputError, one_line
from segkit.images.findings import Findings
from segkit.images.large_image import REGION_EXTENSIONS, ZARR_EXTENSIONS
from segkit.images.listing import Listing, list_folder
from segkit.images.outlines import OUTLINE_EXTENSIONS
from segkit.images.read import IMAGE_EXTENSIONS

# What people and programs put behind the name of an image to name its mask.
_SUFFIX = re.compile(
    r"(?P<name>.*?[^/])[ ._-](cp_masks|masks?|labels?|gt|ground[ _-]?truth|seg|segmentation|annotations?)",
    re.IGNORECASE,
)
# What ImageJ and its users put beside the name of an image to name its objects.
_OUTLINE_NAME = re.compile(
    r"(?P<path>.*/)?(roi[ _-]?sets?|rois?)[ ._-](?P<after>[^/]+)"
    r"|(?P<name>.*?[^/])[ ._-](roi[ _-]?sets?|rois?|objects?|outlines?|polygons?|detections?|geojson|coco)",
    re.IGNORECASE,
)


# What images and masks of one folder are called that have numbers: image_1 and mask_1.
_NUMBERED = re.compile(
    r"(?P<folder>.*/)?((?P<image>images?|imgs?|im)|masks?|labels?|gt|ground[ _-]?truth|segmentation|annotations?)"
    r"[ ._-]?0*(?P<number>\d+)",
    re.IGNORECASE,
)
# Words that say whether a file is an image or a mask, and by whom: they tell nothing of which image. Those of sets do.
_ROLES = re.compile(
    r"images?|imgs?|im|pics?|pictures?|photos?|raw|orig|original|input|source"
    r"|masks?|labels?|lab|lbl|gt|ground|truth|groundtruth|seg|segs|segmentation|segmentations|annotations?|annot|target"
    r"|binary|bw|outlines?|objects?|instances?|rois?|roiset|roisets"
)
_ANNOTATORS = re.compile(r"manual|expert|observer|rater|annotator")
_SETS = re.compile(r"training|train|tr|test|testing|ts|val|valid|validation")
# nnU-Net's number of the first channel.
_FIRST_CHANNEL = "_0000"


@dataclass
class Files(Findings):
    """Files by their names."""

    path_of: dict[str, Path] = field(default_factory=dict)


def list_images(folder: str | Path) -> list[Path]:
    """List the image files of a folder and its sub-folders, without hidden ones and masks beside images.

    Parameters
    ----------
    folder : str or Path
        A folder, or one image file. Linked folders are followed.

    Returns
    -------
    list of Path
        Paths relative to `folder` (to its parent if it is a file), sorted.

    Raises
    ------
    InputError
        If there is no such folder, or no image in it.
    """
    return find_images(Path(folder)).paths


@dataclass
class FoundImages:
    """Image files of a folder by their paths within it, notes on what is left out of it, and linked folders elsewhere."""

    paths: list[Path]
    notes: list[str]
    linked: list[Path]


def find_images(folder: Path, *, with_slides: bool = False, with_masks: bool = False) -> FoundImages:
    """Find the images of a folder as `list_images` does, and slides; `with_masks` those beside them are used, too."""
    if not folder.exists():
        raise InputError("no such file or folder: check its name", source=folder)
    listing = list_folder(folder)
    listed = listing.of((*IMAGE_EXTENSIONS, *(REGION_EXTENSIONS if with_slides else ())))
    if not listed:
        _refuse_without_images(folder, listing)
    masks = masks_beside_images({stem_of(path) for path in listed})
    beside = [path for path in listed if stem_of(path) in masks]
    images = [path for path in listed if stem_of(path) not in masks]
    notes = listing.notes(listed, known=OUTLINE_EXTENSIONS) if with_masks else listing.notes(images, beside)
    return FoundImages(images, notes, listing.linked)


def _refuse_without_images(folder: Path, listing: Listing) -> None:
    for path in listing.of(ZARR_EXTENSIONS):
        raise InputError(
            "an OME-Zarr, expected images or masks that are read as a whole: save a level of it as TIFF, or give it by "
            "itself to segkit predict",
            source=listing.folder / path,
        )
    others = Counter(path.suffix.lower() or "no extension" for path in listing.files)
    there = ", ".join(f"{number} of {suffix}" for suffix, number in others.most_common(3))
    cure = f", found {there}: save them in one of these formats" if there else ": check the folder"
    raise InputError(
        f"no images or masks, expected files that end in {', '.join(IMAGE_EXTENSIONS)}{cure}", source=folder
    )


def files_by_stem(folder: Path, *, with_masks: bool = False) -> Files:
    """Find the image file of each stem of a folder, as `find_images` does; two files of one stem are refused."""
    images = find_images(folder, with_masks=with_masks)
    found = name_files(folder, images.paths)
    found.refuse()
    found.notes += images.notes
    return found


def name_files(folder: Path, listed: Iterable[Path]) -> Files:
    """Return the first of the listed files of each stem; others of the same stem are faults."""
    root, found = root_of(folder), Files()
    for path in listed:
        first = found.path_of.setdefault(stem_of(path), root / path)
        if first != root / path:
            told = f"same stem as {path.name}, expected one file: remove one"
            found.faults.append(InputError(told, source=first))
    return found


def root_of(folder: Path) -> Path:
    """Return the folder itself, or the folder of a file."""
    return folder.parent if folder.is_file() else folder


def stem_of(path: PurePath) -> str:
    """Return the name that an image shares with its mask: `name_of`, without the ``.ome`` of ``.ome.tif``."""
    name = name_of(path)
    return name[:-4] if PurePath(name).suffix.lower() == ".ome" else name


def page_names(stem: str, n_pages: int) -> list[str]:
    """Name the pages of a file: "stem#1", "stem#2", ..., or "stem" if there is one only."""
    return [stem] if n_pages == 1 else [f"{stem}#{page + 1}" for page in range(n_pages)]


def name_of(path: PurePath) -> str:
    """Return the path without its extension, accents spelled in one way, and what is no text of one line as escapes."""
    # macOS stores an accent apart from its letter, other systems store one character
    return unicodedata.normalize("NFC", one_line(path.with_suffix("").as_posix()))


def image_name(stem: str) -> str | None:
    """Return NAME of a stem such as NAME_mask, NAME-labels or NAME_gt; None of any other stem."""
    match = _SUFFIX.fullmatch(stem)
    return None if match is None else match["name"]


class Core(NamedTuple):
    """What is left of a stem without letter case, words of roles, numbers of annotators, and words of sets."""

    words: tuple[str, ...]
    sets: tuple[str, ...]

    def fits(self, other: Core) -> bool:
        """Return whether two may be one: 21_training and 21_manual1, but not 21_training and 21_test."""
        return self.words == other.words and (self.sets == other.sets or not self.sets or not other.sets)


def cores_of(stems: Collection[str]) -> dict[tuple[str, ...], tuple[str, Core]]:
    """Return what tells the files of one folder apart, by their words; two stems of the same words have none."""
    cut = all(stem.endswith(_FIRST_CHANNEL) for stem in stems)
    found = defaultdict[tuple[str, ...], list[tuple[str, Core]]](list)
    for stem in stems:
        core = _core(stem.removesuffix(_FIRST_CHANNEL) if cut else stem)
        found[core.words].append((stem, core))
    return {words: own[0] for words, own in found.items() if words and len(own) == 1}


def _core(name: str) -> Core:
    tokens = re.findall(r"[^\W\d_]+|\d+(?:[.,]\d+)*|\+", name.lower())
    words, sets = [], []
    for place, token in enumerate(tokens):
        if _SETS.fullmatch(token):
            sets.append(token[:2])
        elif _ANNOTATORS.fullmatch(token) or (
            token.isdigit() and place and _ANNOTATORS.fullmatch(tokens[place - 1])  # 21_manual1 is 21
        ):
            continue
        elif not _ROLES.fullmatch(token):
            words.append(token.lstrip("0") or "0" if token.isdigit() else token)
    return Core(tuple(words), tuple(sets))


def names_of(path: PurePath) -> list[str]:
    """Return what the image of a mask may be called: its own stem, NAME of NAME_mask, and of outlines of NAME_RoiSet."""
    names = [stem_of(path)]
    if path.suffix.lower() in OUTLINE_EXTENSIONS and (match := _OUTLINE_NAME.fullmatch(names[0])):
        names.append(match["name"] or f"{match['path'] or ''}{match['after']}")
    return [*names, *filter(None, map(image_name, names))]


def masks_beside_images(stems: Collection[str]) -> dict[str, str]:
    """Return the image stem of each mask stem in one folder: NAME of NAME_mask, or image_1 of mask_1, if both are there.

    The files of PLACE/masks are masks of the only image in PLACE/images.
    """
    folders = object_folders(stems)
    named = {stem: folders.get(PurePosixPath(stem).parent.as_posix()) or image_name(stem) for stem in stems}
    return _by_number(stems) | {
        stem: name for stem, name in named.items() if name is not None and name in stems
    }


def _by_number(stems: Collection[str]) -> dict[str, str]:
    """Return image_1 for mask_1 of the same folder, if no other image has the number."""
    numbered = [(stem, match) for stem in stems if (match := _NUMBERED.fullmatch(stem)) is not None]
    images = defaultdict[tuple[str, str], list[str]](list)
    for stem, match in numbered:
        if match["image"]:
            images[match["folder"] or "", match["number"]].append(stem)
    found = {}
    for stem, match in numbered:
        own = images.get((match["folder"] or "", match["number"]), [])
        if not match["image"] and len(own) == 1:
            found[stem] = own[0]
    return found


def object_folders(stems: Iterable[str]) -> dict[str, str]:
    """Return the image of each folder of masks that lies beside one of a single image: PLACE/masks and PLACE/images."""
    images = defaultdict[str, list[str]](list)
    for stem in stems:
        folder = PurePosixPath(stem).parent
        if folder.name == "images" and folder.parent.name:
            images[(folder.parent / "masks").as_posix()].append(stem)
    return {folder: found[0] for folder, found in images.items() if len(found) == 1}
