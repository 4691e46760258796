"""Which mask belongs to which image: one rule of names for training, scoring and measuring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple

from segkit._common.lock import HIDDEN
from segkit.errors import InputError, count, first_few
from segkit.images.coco import Coco
from segkit.images.findings import Findings
from segkit.images.listing import list_folder
from segkit.images.masks import open_objects
from segkit.images.outlines import OUTLINE_EXTENSIONS
from segkit.images.read import IMAGE_EXTENSIONS
from segkit.images.stems import (
    Files,
    FoundImages,
    cores_of,
    find_images,
    list_images,
    masks_beside_images,
    name_files,
    names_of,
    object_folders,
    root_of,
    stem_of,
)

LEAVE_OUT = ", or train without such images (--set data.only_annotated=true, in Python only_annotated=True)"
_TABLES = (".csv", ".md")


class Pair(NamedTuple):
    """An image file and its mask file, named by the stem of the image (its path in the folder, without extension)."""

    stem: str
    image: Path
    mask: Path


@dataclass
class MaskFiles(Files):
    """Mask files by their place in a folder; a COCO file is the mask of many images, by their stems."""

    is_coco: bool = False

    def names(self, key: str) -> list[str]:
        """Return what the image of a mask may be called, its own stem first."""
        return [key] if self.is_coco else names_of(PurePath(key))

    @property
    def outlined(self) -> set[str]:
        """Files of outlines of one image."""
        return {key for key, path in self.path_of.items() if is_outlined(path) and not self.is_coco}


@dataclass
class Matches(Findings):
    """Images with their masks, stems of images without one, masks without an image, and images among the masks."""

    pairs: list[Pair] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    masks: list[str] = field(default_factory=list)
    among: list[str] = field(default_factory=list)


def is_outlined(path: Path) -> bool:
    """Return whether a file holds outlines, by its extension."""
    return path.suffix.lower() in OUTLINE_EXTENSIONS


def find_masks(masks: Path, images: Collection[str] = ()) -> MaskFiles:
    """Find the mask files of a folder, or in one file; images of a COCO file have the stems of `images`, if they match."""
    if masks.is_file() and is_outlined(masks) and isinstance(source := open_objects(masks), Coco):
        own = source.match(images)
        stems = [*own, *(stem for stem in source.stems if stem not in own.values())]
        return MaskFiles(path_of=dict.fromkeys(stems, masks), is_coco=True)
    listing, taken = list_folder(masks), (*IMAGE_EXTENSIONS, *OUTLINE_EXTENSIONS)
    # beside masks of segkit lie its tables
    found = MaskFiles(
        notes=listing.notes(listing.of(taken), known=_TABLES if (masks / HIDDEN).is_dir() else ())
    )
    for extensions in (IMAGE_EXTENSIONS, OUTLINE_EXTENSIONS):
        files = name_files(masks, listing.of(extensions))
        found.add(files)
        for path in files.path_of.values():
            found.path_of[path.relative_to(root_of(masks)).as_posix()] = path
    if not found.path_of:
        list_images(masks)  # raises, and says what is there
    return found


def masks_among_images(folder: Path, images: Collection[str]) -> MaskFiles:
    """Find the masks of the images of a folder in the same one: NAME_mask beside NAME, or outlines."""
    files = find_masks(folder)
    own, outlined = {key: files.names(key) for key in files.path_of}, files.outlined
    beside = masks_beside_images({names[0] for key, names in own.items() if key not in outlined})
    masks = {
        key: path
        for key, path in files.path_of.items()
        if (set(images) & set(own[key]) if key in outlined else own[key][0] in beside)
    }
    return MaskFiles(path_of=masks)


def match_masks(
    image_of: Mapping[str, Path], files: MaskFiles, named: Mapping[str, str] | None = None
) -> Matches:
    """Find the mask of each image: of its name, or with a suffix, or outlines if there is no other.

    NAME beside every NAME_mask is an image. A folder with the name of an image, or PLACE/masks beside PLACE/images of one
    image, holds a file for each object. `named` gives the image of each name; by default, names are stems.
    """
    named = {stem: stem for stem in image_of} if named is None else named
    files = _gather_objects(files, named)
    outlined = files.outlined
    own = {files.names(key)[0]: key for key in files.path_of if key not in outlined}
    beside = masks_beside_images(own)
    is_mixed = own.keys() - beside.keys() == set(beside.values()) and not beside.keys() & named.keys()
    found = Matches(among=sorted(own.keys() - beside.keys()) if is_mixed else [])
    masks_of: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in sorted(files.path_of.keys() - {own[stem] for stem in found.among}):
        name = next((name for name in files.names(key) if name in named), None)
        if name is not None:
            masks_of[named[name]].append((key, name))
        elif not (own and key in outlined):  # else it may be anything
            found.masks.append(key)
    _pair_loosely(image_of, files, masks_of, found)
    left_out: list[str] = []
    for image, several in sorted(masks_of.items()):
        masks = [one for one in several if one[0] not in outlined] or several
        left_out += [str(files.path_of[key]) for key, name in several if (key, name) not in masks]
        (key, name), *others = masks
        if others:
            stems = ", ".join(files.names(key)[0] for key, _ in masks)
            told = f"{len(masks)} masks ({stems}), expected one: remove the others"
            found.faults.append(InputError(told, source=name))
        found.pairs.append(Pair(name, image_of[image], files.path_of[key]))
    if left_out:
        told = f"of outlines beside masks of the same name left out ({first_few(left_out)})"
        found.notes.append(f"{count(len(left_out), 'file')} {told}")
    found.images = sorted(image_of.keys() - masks_of.keys())
    return found


def _pair_loosely(
    image_of: Mapping[str, Path],
    files: MaskFiles,
    masks_of: defaultdict[str, list[tuple[str, str]]],
    found: Matches,
) -> None:
    """Pair what is left by names without letter case and words such as image and mask, and say so."""
    images = cores_of(sorted(image_of.keys() - masks_of.keys()))
    own = {files.names(key)[0]: key for key in found.masks}
    masks = {} if files.is_coco else cores_of(sorted(own))
    alike = [(*images[words], *masks[words]) for words in sorted(images.keys() & masks.keys())]
    paired = [(image, mask) for image, core, mask, other in alike if core.fits(other)]
    for image, mask in paired:
        masks_of[image].append((own[mask], image))
    taken = {own[mask] for _, mask in paired}
    found.masks = [key for key in found.masks if key not in taken]
    if paired:
        told = first_few([f"{image} with {mask}" for image, mask in paired])
        found.notes.append(f"{count(len(paired), 'image')} paired by the rest of the name: {told}")


def _gather_objects(files: MaskFiles, named: Mapping[str, str]) -> MaskFiles:
    """Take the folder of files that have no image of their names for the mask of the image that it belongs to."""
    own = (
        {key: files.names(key)[0] for key in files.path_of.keys() - files.outlined}
        if not files.is_coco
        else {}
    )
    image_of = object_folders({*own.values(), *named})
    members: defaultdict[str, list[str]] = defaultdict(list)
    for key, stem in sorted(own.items()):
        if not named.keys() & set(files.names(key)):
            members[PurePosixPath(stem).parent.as_posix()].append(key)
    path_of, images = dict(files.path_of), set(image_of.values())
    for folder, keys in members.items():
        place = PurePosixPath(folder)
        names = [folder, image_of.get(folder, ""), place.parent.as_posix() if place.name == "masks" else ""]
        name = next((name for name in names if name in named), None)
        if name is None or name in set(own.values()) - images:
            continue
        path_of = {
            key: path
            for key, path in path_of.items()
            if key not in keys and own.get(key) not in (name, *images)
        }
        path_of[f"{name}.masks"] = files.path_of[keys[0]].parent
    return replace(files, path_of=path_of)


def check_pattern(pattern: str) -> tuple[str, str]:
    """Take a pattern IMAGE=MASK apart; each side has one star, for what an image and its mask share."""
    image, _, mask = pattern.partition("=")
    if not all(side.strip().count("*") == 1 and "=" not in side for side in (image, mask)):
        raise InputError(
            f"pair {pattern}: give what images and their masks are called, IMAGE=MASK, with a star for what they share, "
            "such as *_raw=*_labels"
        )
    return image.strip(), mask.strip()


def _named_by(pattern: str | None, stems: Collection[str]) -> dict[str, str]:
    """Return the image of each name that masks have by a pattern."""
    if pattern is None:
        return {}
    image, mask = check_pattern(pattern)
    first, last = image.split("*")
    length = len(first) + len(last)
    fitting = [
        stem for stem in stems if stem.startswith(first) and stem.endswith(last) and len(stem) > length
    ]
    if not fitting:
        raise InputError(
            f"pair {pattern}: no image is called like {image}, there are {first_few(sorted(stems))}"
        )
    return {mask.replace("*", stem[len(first) : len(stem) - len(last)]): stem for stem in fitting}


def pair(
    images: str | Path, masks: str | Path, *, only_annotated: bool = False, pattern: str | None = None
) -> list[Pair]:
    """Match the images of one folder with the masks of another by their names.

    Parameters
    ----------
    images, masks : str or Path
        Two folders, two files, or one image file and a folder. The mask of ``a/1.png`` is ``a/1.tif`` or
        ``a/1_mask.png``, in the same sub-folder. ``_mask`` may also be ``-mask``, ``_masks``, ``_label``, ``_labels``,
        ``_gt``, ``_seg`` and the like. Both folders may be the same one, if masks have such a suffix. The mask of one
        image file lies at the top of the folder, or in one place below.
    only_annotated : bool, default=False
        Leave images of a folder without a mask out, instead of refusing them.
    pattern : str, optional
        What images and masks of other names are called, ``IMAGE=MASK`` with a star for what they share:
        ``"*_raw=*_labels v2"``. It is about stems, the path without extension.

    Returns
    -------
    list of Pair
        Stem, image path and mask path, sorted by stem.

    Raises
    ------
    InputError
        If a folder holds no images, an image lacks its mask or a mask its image, an image has two masks, or two files
        of one folder share a stem; the message names all of them. If one mask file is given for a folder of images.
        With `only_annotated`, if no image has a mask.
    """
    found = match(images, masks, only_annotated=only_annotated, pattern=pattern)
    found.refuse()
    return found.pairs


def match_objects(images: str | Path, objects: Path, masks: Matches, *, only_annotated: bool) -> Matches:
    """Match images with files of objects as `match` does with masks; with `only_annotated` some may have none."""
    found = match(images, objects, only_annotated=only_annotated, can_leave_out=False)
    stems, found.notes = {entry.stem for entry in found.pairs}, []  # told of the masks already
    lacking = [entry.stem for entry in masks.pairs if entry.stem not in stems]
    if only_annotated and lacking and not found.faults:
        told = f"in {objects} ({first_few(lacking)}): not known which objects are there"
        found.notes.append(f"{count(len(lacking), 'image')} with a mask and without objects {told}")
    return found


def match(
    images: str | Path,
    masks: str | Path,
    *,
    only_annotated: bool = False,
    can_leave_out: bool = True,
    pattern: str | None = None,
) -> Matches:
    """Match images with masks as `pair` does, with all faults and notes."""
    images, masks, found = Path(images), Path(masks), Matches()
    if images.is_dir() and masks.is_file() and masks.suffix.lower() != ".json":
        told = f"one mask for the folder {images}, expected a folder of masks: give that folder, or one image"
        return Matches([InputError(told, source=masks)])
    is_same = images.is_dir() and masks.is_dir() and images.samefile(masks)
    listed = found.attempt(find_images, images, with_masks=is_same) or FoundImages([], [], [])
    found.notes += listed.notes
    named = name_files(images, listed.paths)
    found.add(named)
    image_of = named.path_of
    if images.is_file() and masks.exists():
        mask = found.attempt(_mask_of, images, masks)
        found.pairs = [Pair(stem, images, mask) for stem in image_of if mask is not None]
        return found
    if is_same:
        files = masks_among_images(images, image_of)
        if not files.path_of:
            told = f"{images} is given for images and masks, and no file is called like NAME_mask beside NAME"
            found.faults.append(InputError(f"{told}: give the folder of the masks, or rename them"))
    else:
        files = found.attempt(find_masks, masks, image_of) or MaskFiles()
    if masks.is_file() and files.path_of and not files.is_coco:
        told = "objects of one image for a folder of images, expected a COCO file or a folder of masks"
        found.faults.append(InputError(f"{told}: give that folder, or one image", source=masks))
        return found
    found.add(files)
    called = {stem: stem for stem in image_of} | _named_by(pattern, image_of)
    matched = match_masks(image_of, files, called)
    found.add(matched)
    found.pairs = [one._replace(stem=called[one.stem]) for one in matched.pairs]
    if matched.among:
        told = f"{masks} holds images too ({first_few(matched.among)}): masks are the files with a suffix"
        found.notes.append(told)
    if matched.faults or not image_of or not files.path_of:
        return found
    lonely, others = matched.images, sorted(files.names(key)[0] for key in matched.masks)
    if lonely and only_annotated and found.pairs:
        verb = "has" if len(found.pairs) == 1 else "have"
        told = f"{len(found.pairs)} of {count(len(image_of), 'image')} {verb} a mask; the others are left out"
        found.notes.append(told)
        lonely = []
    # images are left out beside others with masks only
    cure = LEAVE_OUT if can_leave_out and found.pairs else ""
    if files.is_coco:
        found.add(_without_entry(lonely, others, masks.name, cure))
    elif lonely or others:
        found.faults += _unpaired(lonely, others, cure)
    return found


def _mask_of(image: Path, masks: Path) -> Path:
    """Return the mask file of one image: the file itself, or in a folder the one of its name, at the top or else below."""
    if masks.is_file():
        return masks
    stem = stem_of(Path(image.name))
    listed = list_folder(masks).of((*IMAGE_EXTENSIONS, *OUTLINE_EXTENSIONS)) or list_images(masks)
    own = [masks / path for path in listed if stem in names_of(PurePath(path.name))]
    others = [path for path in own if not path.samefile(image)]
    found = [path for path in others if not is_outlined(path)] or others
    found = [path for path in found if path.parent == masks] or found
    if len(found) == 1:
        return found[0]
    if not found and (masks / image.stem).is_dir():  # a file for each object
        return masks / image.stem
    told = f"no mask of the name {stem} in {masks}: add or rename it, or give the mask file"
    if found:
        told = f"{len(found)} masks of the name {stem} ({first_few([*map(str, found)])}), expected one: give that file"
    raise InputError(told, source=image)


def _without_entry(images: Sequence[str], entries: Sequence[str], name: str, cure: str) -> Findings:
    """Describe images without an entry in a COCO file, and entries without an image."""
    lacking = f"{count(len(images), 'image')} without entry in {name} ({first_few(images)})"
    left_out = (
        f"{name} has {count(len(entries), 'entry', 'entries')} without image ({first_few(entries)}): left out"
    )
    fault = InputError(f"{lacking}: annotate or remove the image{cure}")
    return Findings([fault] if images else [], [left_out] if entries else [])


def _unpaired(images: Sequence[str], masks: Sequence[str], cure: str) -> list[InputError]:
    """Find images without a mask and masks without an image."""
    sides = [(images, "image", "mask", cure), (masks, "mask", "image", "")]
    faults = [
        InputError(
            f"{count(len(stems), have)} without {lack} of the same name ({first_few(stems)}): add or rename the {lack}{more}"
        )
        for stems, have, lack, more in sides
        if stems
    ]
    added = {mask.removeprefix(image) for image, mask in zip(images, masks, strict=False)}
    if len(images) == len(masks) and len(added) == 1 and not set(masks) & added:
        faults.append(InputError(f"every mask's name ends in {added.pop()!r}: take that off"))
    return faults
