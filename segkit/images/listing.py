"""Which files of a folder are taken, and in one line what is left out of it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from segkit._common.lock import HIDDEN
from segkit.errors import first_few
from segkit.images.large_image import is_by_region
from segkit.images.read import IMAGE_EXTENSIONS

# Folders in which systems and storage servers keep thumbnails, former versions and what was deleted.
_SYSTEM_FOLDERS = (
    *("@eadir", "@tmp", "@recycle", "@recently-snapshot", "#recycle", "#snapshot", "~snapshot", "lost+found"),
    *("$recycle.bin", "recycler", "system volume information", "__macosx", "network trash folder"),
    "temporary items",
)
# Files of systems that never hold a picture.
_SYSTEM_FILES = ("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r")
_SYSTEM_ENDS = (":zone.identifier", "@synoeastream", "@synoresource")
_NOT_DOWNLOADED = ".icloud"  # macOS adds it to the name of a file that is elsewhere
_MOST_NAMED = 3


@dataclass
class Listing:
    """Files of a folder and its sub-folders by their paths within it, what is left out, and links that lead out of it."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    links: list[Path] = field(default_factory=list)

    def of(self, extensions: Collection[str]) -> list[Path]:
        """Return the files of some extensions."""
        return [path for path in self.files if path.suffix.lower() in extensions]

    @property
    def linked(self) -> list[Path]:
        """Folders elsewhere that are followed."""
        return [folder for link in self.links if (folder := self.folder / link).is_dir()]

    def notes(
        self, taken: Collection[Path], masks: Sequence[Path] = (), known: Collection[str] = ()
    ) -> list[str]:
        """Count in one line what is left out, but for files of `known` extensions, and name links that are followed."""
        named = {*taken, *masks}
        others = [path for path in self.files if path not in named and path.suffix.lower() not in known]
        left_out: dict[str, list[str]] = {}
        for kind, name in [
            *(("mask beside the images", path.as_posix()) for path in masks),
            *(("file of another type", path.suffix.lower() or path.name) for path in others),
            *self.left_out,
        ]:
            left_out.setdefault(kind, []).append(name)
        told = [_counted(kind, names) for kind, names in left_out.items()]
        followed = named | {folder.relative_to(self.folder) for folder in self.linked}
        links = [path.as_posix() for path in self.links if path in followed]
        return [f"left out of {self.folder}: {', '.join(told)}"] * bool(told) + [
            f"followed: {_counted(f'link out of {self.folder}', links)}"
        ] * bool(links)


def list_folder(folder: Path) -> Listing:
    """List the files of a folder and its sub-folders, or a single one; an OME-Zarr counts as a file.

    Hidden files, and what systems keep, are left out. A linked folder is followed once, unless it is in the folder anyway.
    """
    if folder.is_file() or is_by_region(folder):
        return Listing(folder.parent, [Path(folder.name)])
    found, base = Listing(folder), Path(os.path.realpath(folder))
    known, places = {base}, [Path()]
    while places:
        place = places.pop()
        for entry in _entries(found, place):
            path, name = place / entry.name, entry.name.lower()
            is_link = entry.is_symlink()
            is_folder = Path(entry.path).is_dir() if is_link else entry.is_dir()
            real = Path(os.path.realpath(entry.path)) if is_link or is_folder else base
            exists = not is_link or real.exists()
            is_outside = is_link and exists and not real.is_relative_to(base)
            if is_folder and name.startswith("."):
                found.left_out += [("hidden folder", path.as_posix())] * (name != HIDDEN)
            elif not is_folder:
                if _is_taken(found, path, exists=exists):
                    found.files.append(path)
                    found.links += [path] * is_outside
            elif name in _SYSTEM_FOLDERS:
                found.left_out.append(("folder of the system", path.as_posix()))
            elif is_by_region(path):
                found.files.append(path)
            elif real in known or base.is_relative_to(real) or _is_listed(entry, real, base):
                found.left_out.append(("link back", path.as_posix()))
            else:
                known.add(real)
                places.append(path)
                found.links += [path] * is_outside
    found.files.sort()
    return found


def _entries(found: Listing, place: Path) -> list[os.DirEntry[str]]:
    """List a sub-folder in an order that is always the same."""
    try:
        with os.scandir(found.folder / place) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        found.left_out.append(("folder that cannot be read", place.as_posix()))
        return []


def _is_taken(found: Listing, path: Path, *, exists: bool) -> bool:
    """Return whether a file is listed; an image that is not, and a link to nowhere, are counted."""
    name = path.name.lower()
    # an image that is neither file nor folder is a fault, told when it is read
    is_image = Path(name.removesuffix(_NOT_DOWNLOADED)).suffix in IMAGE_EXTENSIONS
    if name.startswith("."):
        found.left_out += [("hidden image", path.as_posix())] * is_image
        return False
    if not exists and not is_image:
        found.left_out.append(("link to nowhere", path.as_posix()))
        return False
    return name not in _SYSTEM_FILES and not name.endswith(_SYSTEM_ENDS)


def _is_listed(link: os.DirEntry[str], real: Path, base: Path) -> bool:
    """Return whether a link leads to a sub-folder that is listed where it is."""
    if not link.is_symlink() or not real.is_relative_to(base):
        return False
    names = [part.lower() for part in real.relative_to(base).parts]
    return not any(name.startswith(".") or name in _SYSTEM_FOLDERS for name in names)


def _counted(kind: str, names: Sequence[str]) -> str:
    """Count things of a kind, and name some."""
    noun = kind if len(names) == 1 else re.sub("(mask|file|image|folder|link)", r"\1s", kind, count=1)
    return f"{len(names)} {noun} ({first_few([*dict.fromkeys(names)], most=_MOST_NAMED)})"
