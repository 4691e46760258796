"""Refusals before a run, not after it: outputs that would replace something or cannot be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path

from segkit.errors import OutputError


def refuse_empty(output: str | Path) -> None:
    """Refuse an empty path, such as that of a variable without a value: it would mean the current folder."""
    if not os.fspath(output):
        raise OutputError("the path of the output is empty: give a folder, or . for the current one")


def named(paths: Sequence[Path]) -> str:
    """Name the first path, and count the others."""
    return f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else str(paths[0])


def refuse_existing(
    paths: Sequence[Path],
    *,
    overwrite: bool,
    cure: str = "choose another place, or ask for it (--overwrite, in Python overwrite=True)",
) -> None:
    """Refuse to replace files or folders unless asked to."""
    existing = [path for path in paths if os.path.lexists(path)]
    if existing and not overwrite:
        raise OutputError(f"{named(existing)} would be overwritten: {cure}")


def refuse_unwritable(path: Path, *, within: Path | None = None) -> None:
    """Refuse a file that could not be written, or that lies in folders of a mistyped path; `within` is made freely."""
    folder = path.parent if within is None else within
    above = folder.absolute().parent
    if not folder.exists() and not above.exists():
        raise OutputError(f"{path}: there is no folder {above}: check the path, or make that folder first")
    nearest = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir() or not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OutputError(f"{path} cannot be written: give a file in a folder you may write to")


def refuse_files_for_folders(output: Path, places: Iterable[Path]) -> None:
    """Refuse files, or links, which may lead elsewhere, in the place of folders of results."""
    folders = [output / folder for folder in dict.fromkeys(place.parent for place in places)]
    within = dict.fromkeys(above for folder in folders for above in (folder, *folder.parents))
    blocking = [
        path
        for path in within
        if output in path.parents and (path.is_symlink() or (path.exists() and not path.is_dir()))
    ]
    if blocking:
        is_link = blocking[0].is_symlink()
        raise OutputError(
            f"{named(blocking)}: a {'link' if is_link else 'file'}, where a folder of results would be: move it elsewhere, "
            "or choose another folder"
        )


def refuse_extension(path: Path, extension: str) -> None:
    """Refuse a file to be written whose name does not end as files of its kind do."""
    if path.suffix.lower() != extension:
        raise OutputError(f"{path}: expected a name that ends in {extension}: give {path}{extension}")


def refuse_foreign(paths: Iterable[Path], *, is_own: Callable[[Path], bool], allowed: bool) -> None:
    """Refuse to replace files that segkit did not write, such as masks drawn by hand, unless asked to."""
    foreign = [] if allowed else [path for path in paths if os.path.lexists(path) and not is_own(path)]
    if foreign:
        was = "were" if len(foreign) > 1 else "was"
        raise OutputError(
            f"{named(foreign)} {was} not written by segkit, and may be drawn by hand: choose another folder, or "
            "ask to replace them (--overwrite-foreign, in Python overwrite_foreign=True)"
        )


def refuse_nesting(images: Path, output: Path) -> None:
    """Keep results out of the input folder, where the next run would take them for images."""
    if images.is_dir() and find_within([output], [images]):
        raise OutputError(
            f"output {output} is the input folder {images} or inside it: choose a folder elsewhere"
        )
    if images.is_file() and is_same(output, images.resolve().parent):
        raise OutputError(f"output {output} is the folder of {images}: choose a folder elsewhere")


def find_within(paths: Iterable[Path], folders: Iterable[Path]) -> list[Path]:
    """Find the paths that are those of some folders, or lie in them, by links or mounts too."""
    taken = {_identity(folder) for folder in folders}
    resolved = {path: path.resolve() for path in paths}
    return [
        path
        for path, inside in resolved.items()
        if not taken.isdisjoint(map(_identity, (inside, *inside.parents)))
    ]


def is_same(one: Path, other: Path) -> bool:
    """Return whether two paths are of one file or folder, by links or mounts too."""
    return one.exists() and _identity(one) == _identity(other)


def _identity(path: Path) -> Hashable:
    """Return device and number of what is at a path, the same by any other path; the path itself where nothing is."""
    try:
        status = path.stat()
    except OSError:
        return path.resolve()
    return status.st_dev, status.st_ino
