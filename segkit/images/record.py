"""Record of the results that segkit wrote into an output folder: their digests, in its hidden folder ``.segkit``.

Results of an image are made aside, recorded, and only then moved to their places. So segkit knows its own files by their
digests, even after it was killed, and tells them from files that somebody else made or changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import tifffile
from PIL import Image

from segkit._common import lock
from segkit._common.files import remove, saving, stamp_of, without_sync, write_text
from segkit._common.lock import locked_folder
from segkit.errors import OutputError
from segkit.images.outputs import (
    named,
    refuse_existing,
    refuse_files_for_folders,
    refuse_foreign,
    refuse_unwritable,
)
from segkit.images.read import IMAGE_EXTENSIONS, read_pages

HIDDEN = Path(lock.HIDDEN)
_CURE = (
    "choose another folder, go on with what is there (--resume, in Python resume=True), or replace it (--overwrite, "
    "overwrite=True)"
)

_RESUME = "move it elsewhere, and --resume makes it anew"
ELSEWHERE = "move it elsewhere, or choose another folder"

# First bytes of the files that segkit writes.
_STARTS = {
    ".png": (b"\x89PNG",),
    ".tif": (b"II", b"MM"),
    ".geojson": (b"{",),
    ".zip": (b"PK",),
    ".npz": (b"PK",),
}
# TIFF compressions of segkit. A file of another one is not called damaged: a package to decode it may be missing.
_COMPRESSIONS = (tifffile.COMPRESSION.NONE, tifffile.COMPRESSION.ADOBE_DEFLATE)


@dataclass(frozen=True)
class Entry:
    """Results that were made together, such as those of an image."""

    name: str
    source: str
    made_by: str
    row: dict[str, Any]
    outputs: dict[str, str]
    replaced: dict[str, str] = field(default_factory=dict)

    @property
    def mask(self) -> str | None:
        """Place of the mask, of an image."""
        return self.row.get("mask")


class ForeignFileError(OutputError):
    """In the place of a result is a file that somebody else made or changed."""


class Permissions(NamedTuple):
    """Permissions to go on with the results of an earlier run, to replace them, and to replace files of somebody else."""

    resume: bool = False
    overwrite: bool = False
    overwrite_foreign: bool = False


@contextmanager
def results_in(
    output: Path,
    results: Sequence[Path],
    tables: Sequence[Path],
    allowed: Permissions,
    *,
    others: Sequence[Path] = (),
) -> Iterator[Record]:
    """Open the record of an output folder, once it is known that nothing is lost, or left beside new results.

    `results` are the places of the run's results, `tables` those of its tables, and `others` those of results that the run
    does not make. No other program may write to the folder as long as the block lasts.
    """
    if output.is_file():
        raise OutputError(f"{output} is a file: give a folder for the results")
    for place in (*tables, HIDDEN / "lock"):
        refuse_unwritable(output / place, within=output)
    if not (allowed.overwrite_foreign or os.path.lexists(output / HIDDEN)):
        _refuse_among_others(output, results)
    hidden = [HIDDEN / name / "any" for name in ("record", "new", "objects", "large")]
    refuse_files_for_folders(output, [*results, *hidden])
    with record_of(output, replaces_foreign=allowed.overwrite_foreign) as record:
        places = [output / place for place in (*results, *tables)]
        refuse_existing(places, overwrite=any(allowed), cure=_CURE)
        _refuse_leftovers(output, [place for place in others if os.path.lexists(output / place)])
        if allowed.resume:
            record.refuse_changed(tables)
        else:
            refuse_foreign(
                places,
                is_own=lambda path: record.is_own(path.relative_to(output)),
                allowed=allowed.overwrite_foreign,
            )
        yield record


def _refuse_among_others(output: Path, results: Sequence[Path]) -> None:
    """Refuse a folder of images or masks that segkit did not write: results among them would be taken for such ones."""
    own = {output / place for place in results}
    others = sorted(
        path
        for path in (output.iterdir() if output.is_dir() else ())
        if path.suffix.lower() in IMAGE_EXTENSIONS
        and not path.name.startswith(".")
        and path.is_file()
        and path not in own
    )
    if others:
        raise OutputError(
            f"{output} holds images or masks that segkit did not write ({named(others)}), or its record, {HIDDEN}, is "
            "missing; results would be taken for such ones: choose another folder"
        )


@contextmanager
def record_of(output: Path, *, replaces_foreign: bool = False) -> Iterator[Record]:
    """Open the record of an output folder. No other program may write to the folder as long as the block lasts."""
    with locked_folder(output):
        staging = output / HIDDEN / "new"
        shutil.rmtree(staging, ignore_errors=True)  # of a killed run
        try:
            yield Record(output, staging, replaces_foreign=replaces_foreign)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def made_aside(output: Path, name: str, places: Sequence[Path]) -> Iterator[Path]:
    """Make results of a command in the folder that is given, from which they are moved to their places in the end.

    An OutputError says that somebody else made or changed what is in their places.
    """
    refuse_files_for_folders(output, places)
    with record_of(output) as record:
        record.refuse_changed(places, cure=ELSEWHERE)
        with without_sync():
            yield record.staging
        for place in places:  # each by itself: what the command made of other inputs before stays
            record.put(f"{name}: {place.as_posix()}", [place])


class Record:
    """The record of an output folder."""

    def __init__(self, output: Path, staging: Path, *, replaces_foreign: bool) -> None:
        self.output, self.staging, self._replaces_foreign = output, staging, replaces_foreign
        self.entries: dict[str, Entry] = {}
        # the name that a result was made for last
        self.owner_of: dict[str, str] = {}
        self._digests: defaultdict[str, set[str]] = defaultdict(set)
        for path in sorted((output / HIDDEN / "record").glob("*.json"), key=_age):
            if path.is_file() and (entry := _read_entry(path)) is not None:
                self._learn(entry)

    def _learn(self, entry: Entry) -> None:
        # an image whose mask is another's now, such as one that was saved in another format, has no results
        for name in {self.owner_of.get(place, entry.name) for place in entry.outputs} - {entry.name}:
            if name in self.entries and self.entries[name].mask in entry.outputs:
                del self.entries[name]
        self.entries[entry.name] = entry
        self.owner_of |= dict.fromkeys(entry.outputs, entry.name)
        for written in (entry.outputs, entry.replaced):
            for place, digest in written.items():
                self._digests[place].add(digest)

    def is_own(self, place: Path) -> bool:
        """Return whether segkit wrote what is at a place of the output folder, even if it is damaged now."""
        path, known = self.output / place, self._digests.get(place.as_posix())
        if not known or (digest := self._digest_at(place)) is None:
            return False
        return digest in known or (path.is_file() and _is_damaged(path))

    def refuse_foreign(self, places: Iterable[Path]) -> None:
        """Refuse to replace a file that somebody else made or changed, unless all are to be replaced."""
        if self._replaces_foreign:
            return
        for place in places:
            # a link that leads nowhere is somebody's too
            if os.path.lexists(self.output / place) and not self.is_own(place):
                raise ForeignFileError(f"{self.output / place} was not written by segkit, or changed since")

    def refuse_changed(self, places: Iterable[Path], *, cure: str = _RESUME) -> None:
        """Refuse to make anew what somebody has made or changed, for example a table by a spreadsheet."""
        try:
            self.refuse_foreign(places)
        except ForeignFileError as error:
            raise OutputError(f"{error}: {cure}") from error

    def is_done(self, name: str, *, source: str, made_by: str) -> bool:
        """Return whether all results of an image are there, made of that file by that model and those settings."""
        entry = self.entries.get(name)
        return (
            entry is not None and (entry.source, entry.made_by) == (source, made_by) and self.is_whole(name)
        )

    def is_whole(self, name: str) -> bool:
        """Return whether the recorded results of an image are there, as segkit wrote them."""
        return self._is_there(self.entries[name])

    def withdraw(self, place: Path) -> None:
        """Remove an outdated file, if segkit wrote it."""
        if self.is_own(place):
            remove(self.output / place)

    def put(
        self,
        name: str,
        places: Sequence[Path],
        *,
        source: str = "",
        made_by: str = "",
        row: Mapping[str, Any] | None = None,
    ) -> None:
        """Record results that were made in the staging, then move them to their places, the last one last.

        The record comes first: after a kill between the two, the files in their places are still known by their digests.
        """
        new = {place.as_posix(): digest_file(self.staging / place) for place in places}
        entry, old = Entry(name, source, made_by, dict(row or {}), new), self.entries.get(name)
        if old is not None and replace(old, replaced={}) == entry and self._is_there(entry):
            return
        refuse_files_for_folders(self.output, places)
        self.refuse_foreign(places)
        known = {*new, *([] if old is None else (*old.outputs, *old.replaced))}
        earlier = {
            place: digest_file(self.output / place) for place in sorted(known) if self.is_own(Path(place))
        }
        text = json.dumps(asdict(replace(entry, replaced=earlier)))
        write_text(self.output / HIDDEN / "record" / f"{key_of(name)}.json", text)
        # No mask of pages that are gone may stay. The last file says that all are there, so no old one may either.
        last = places[-1].as_posix() if len(places) > 1 else None
        for old_place in earlier:
            is_gone = old_place not in new and self.owner_of.get(old_place, name) == name
            if is_gone or old_place == last:
                remove(self.output / old_place)
        for place in places:
            # asked again: the files before this one took a while
            self.refuse_foreign([place])
            if (self.output / place).is_dir():  # which no other can replace
                remove(self.output / place)
            with saving(self.output / place) as temporary:
                shutil.move(self.staging / place, temporary)
        self._learn(entry)

    def _is_there(self, entry: Entry) -> bool:
        return all(self._digest_at(Path(place)) == digest for place, digest in entry.outputs.items())

    def _digest_at(self, place: Path) -> str | None:
        """Digest what is at a place; None of nothing, of a pipe, and of what a link leads to, which may lie elsewhere."""
        path, *folders = (self.output / part for part in (place, *place.parents[:-1]))
        if not os.path.lexists(path) or any(folder.is_symlink() for folder in (path, *folders)):
            return None
        return digest_file(path) if path.is_file() or path.is_dir() else None


def key_of(name: str) -> str:
    """Return the name of a hidden file for an image, which may have a long or odd name itself."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def digest_file(path: Path) -> str:
    """Hexadecimal sha256 of a file, or of the names and files of a folder."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return digest_values({file.relative_to(path).as_posix(): digest_file(file) for file in files})
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stats_of(path: Path) -> dict[str, list[int]]:
    """Return time of change and size of a file, or of all files of a folder: these stand for a content that is large."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {
        file.relative_to(path.parent).as_posix(): list(stamp_of(file) or ())
        for file in files
        if file.is_file()
    }


def digest_values(values: Mapping[str, Any]) -> str:
    """Hexadecimal sha256 of values that JSON holds."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _refuse_leftovers(output: Path, places: Sequence[Path]) -> None:
    """Refuse to leave results of an earlier run beside new masks."""
    if places:
        tops = list(dict.fromkeys(place.parts[0] for place in places))
        options = list(dict.fromkeys(top if top in ("probability", "overlay") else "objects" for top in tops))
        raise OutputError(
            f"{named([output / place for place in places])} of an earlier run would stay beside the new masks: write them "
            f"anew too ({' '.join(f'--{option}' for option in options)}; in Python "
            f"{', '.join(f'{option}=True' for option in options)}), choose another folder, or remove "
            f"{', '.join(str(output / top) for top in tops)} yourself"
        )


def _age(path: Path) -> tuple[int, str]:
    """Sort the file that was written last to the end."""
    return (stamp_of(path) or (0, 0))[0], path.name


def _read_entry(path: Path) -> Entry | None:
    """Read an entry; None if it is damaged or forged, or names files elsewhere."""
    try:
        entry = Entry(**json.loads(path.read_text(encoding="utf-8")))
        places = [PurePosixPath(place) for place in (*entry.outputs, *entry.replaced)]
        texts = [entry.name, entry.source, entry.made_by, *entry.outputs.values(), *entry.replaced.values()]
        is_own_row = entry.row.get("image", entry.name) == entry.name and entry.mask in (None, *entry.outputs)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    is_inside = all(not place.is_absolute() and ".." not in place.parts for place in places)
    is_text = all(isinstance(text, str) for text in texts)
    return entry if is_inside and is_text and is_own_row else None


def _is_damaged(path: Path) -> bool:
    """Return whether a file, in the place of one of segkit's, is damaged, and not a file that somebody else made."""
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(16)
    if not any(start):  # empty, or zeros after a loss of power
        return True
    if not start.startswith(_STARTS.get(suffix, ())):
        return False
    try:
        if suffix == ".geojson":
            json.loads(path.read_text(encoding="utf-8"))
        elif suffix in (".zip", ".npz"):
            with zipfile.ZipFile(path) as archive:
                return archive.testzip() is not None
        elif suffix == ".png":
            # what Pillow can load is whole, even if `read_pages` refuses it
            with Image.open(path) as image:
                image.load()
        else:
            with tifffile.TiffFile(path) as file:
                if any(page.compression not in _COMPRESSIONS for page in file.pages):
                    return False
            read_pages(path)
    except Image.DecompressionBombError:
        return False
    except Exception:  # damage makes a decoder raise anything from OSError to struct.error
        return True
    return False
