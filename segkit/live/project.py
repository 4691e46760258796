"""Images of a folder, their label images and the classes: what is on disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit._common.files import remove_unfinished, stamp_of
from segkit._common.lock import locked
from segkit.errors import InputError, OutputError, SegkitError, count, first_few
from segkit.images.alike import Scale, check_scales, scale_of
from segkit.images.labels import UNLABELLED
from segkit.images.listing import list_folder
from segkit.images.masks import size_fault
from segkit.images.outputs import is_same, refuse_files_for_folders, refuse_nesting
from segkit.images.pixel_size import PixelSize, find_pixel_size
from segkit.images.read import IMAGE_EXTENSIONS, check_image, count_pages, read_mask
from segkit.images.reading import Reading
from segkit.images.stems import find_images, name_of, root_of, stem_of
from segkit.live.classes import LabelClass, check_classes, classes_of, without_class
from segkit.live.drawing import MOST_OBJECTS, Drawing, Patch, has_labels
from segkit.live.files import (
    StoredProject,
    digest_of,
    is_checked,
    read_existing,
    read_project,
    write_checked,
    write_labels,
    write_project,
)


@dataclass(frozen=True)
class ImageEntry:
    """An image of a project: a file, or a page of one.

    Parameters
    ----------
    key : str
        Its name: the path in the folder without extension, and for pages "stem#1", "stem#2", ...
    path : Path
        The file; empty for an image in memory, whose key is its name.
    page : int
        Number of the page, from 0.
    n_pages : int
        Pages of the file.
    """

    key: str
    path: Path = Path()
    page: int = 0
    n_pages: int = 1

    @property
    def stem(self) -> str:
        """Name of the file: the key without the page."""
        return self.key if self.n_pages == 1 else self.key.rpartition("#")[0]


class BaseProject(ABC):
    """Classes, and how labels change: the same for a project on disk and for one in memory."""

    def __init__(self, classes: Sequence[LabelClass] | None = None) -> None:
        self.classes = (
            classes_of({0: "background", 1: "foreground"}) if classes is None else check_classes(classes)
        )
        self._by_key: dict[str, ImageEntry] = {}  # of `images`
        self._drawings: dict[str, Drawing] = {}
        self._guard = threading.RLock()

    @abstractmethod
    def labels(self, key: str) -> Drawing:
        """Return the label image of an image."""

    @abstractmethod
    def stored(self, key: str) -> tuple[NDArray[Any], PixelSize | None, tuple[str, ...]]:
        """Return an image with its own values, the size of a pixel, and the names of its channels."""

    @property
    @abstractmethod
    def objects(self) -> Path | None:
        """Folder of the checked objects; None if there is no folder."""

    def file_of(self, key: str) -> str:
        """Return the name of the file of an image, which the pages of a stack share."""
        return self._entry(key).stem

    def _has_objects(self, key: str) -> bool:
        """Return whether objects of an image have been checked."""
        return self._drawings[key].has_objects

    @abstractmethod
    def annotated(self) -> list[str]:
        """List the names of images with labels, in the order of `images`."""

    def paint(
        self, key: str, corner: tuple[int, int], mask: ArrayLike, value: int, *, stroke: object | None = None
    ) -> Patch:
        """Label pixels with the value of a class, or 255 to erase; see `Drawing.paint`.

        A value of no class, or a mask that does not fit, raises an InputError.
        """
        known = sorted(one.value for one in self.classes)
        if value not in (*known, UNLABELLED):
            raise InputError(
                f"value {value!r} is of no class: give one of {', '.join(map(str, known))}, or 255 to erase"
            )
        return self.labels(key).paint(corner, mask, value, stroke=stroke)

    def accept(self, key: str, ids: ArrayLike) -> Patch:
        """Take predictions, (H, W) uint8 mask values, as labels of all pixels without one.

        255 leaves a pixel without. Returns the whole label image; `save` writes it. Raises an InputError as `labels`
        does, and for another size or values without a class.
        """
        drawing = self.labels(key)
        if odd := without_class(np.asarray(ids), self.classes):
            raise InputError(f"{key}: predictions hold {odd}: give mask values of classes")
        return drawing.fill_unlabelled(ids)

    def set_classes(self, classes: Sequence[LabelClass]) -> None:
        """Rename classes, change colours, add classes, or remove those without labels.

        All classes are given; one is the same if it has the same value. If a class is removed, steps of undo and redo
        are dropped: they could bring its labels back. An InputError says that classes are too few or many, share values
        or names, or that one with labels is removed; an OutputError that the disk is full or cannot be written. The
        classes then stay.
        """
        checked = check_classes(classes)
        with self._guard:
            self._refuse_other_background(checked)
            kept = {one.value for one in checked}
            removed = [one for one in self.classes if one.value not in kept]
            if removed:
                self._refuse_in_use(removed)
            self._change_classes(checked, removed)
            for drawing in self._drawings.values() if removed else ():
                drawing.forget()

    def training_options(self) -> dict[str, Any]:
        """Return the options with which `segkit.images.load_pairs` reads the label images, and checked objects."""
        options: dict[str, Any] = {
            "labels": {one.value: one.name for one in self.classes},
            "unlabelled": UNLABELLED,
        }
        if self.objects is not None and any(map(self._has_objects, self.annotated())):
            options["instances"] = str(self.objects)
        return options

    def _entry(self, key: str) -> ImageEntry:
        if key not in self._by_key:
            told = first_few(list(self._by_key)) or "none"
            raise InputError(f"{key}: no image of this name, there are {told}: give one of them")
        return self._by_key[key]

    def _refuse_other_background(self, classes: Sequence[LabelClass]) -> None:
        """Refuse another first class, the background, where objects have been checked."""
        if classes[0].value != self.classes[0].value and any(map(self._has_objects, self.annotated())):
            raise InputError(
                f"class {self.classes[0].name} is the background of the objects that were checked: keep it the first one"
            )

    def _refuse_in_use(self, removed: Sequence[LabelClass]) -> None:
        held = {key: set(np.unique(self._stored_or_drawn(key)).tolist()) for key in self.annotated()}
        for one in removed:
            if users := [key for key, values in held.items() if one.value in values]:
                raise InputError(
                    f"class {one.name} has labels in {count(len(users), 'image')} ({first_few(users)}): erase them or "
                    "give them another class, then remove it"
                )

    def _stored_or_drawn(self, key: str) -> NDArray[Any]:
        """Return the label image of an annotated image."""
        return self._drawings[key].labels

    def _change_classes(self, classes: list[LabelClass], removed: Sequence[LabelClass]) -> None:  # noqa: ARG002
        self.classes = classes


class Project(BaseProject):
    """Images of a folder, their label images, and the classes: what is on disk.

    Parameters
    ----------
    images : str or Path
        Folder of images, with sub-folders, or one image file. Files called NAME_mask beside NAME are no images.
    output : str or Path
        Folder of the label images (``masks/``) and of ``project.json``. The project of an earlier run is opened again.
    classes : sequence of LabelClass, optional
        The classes; by default those of the earlier run, else those of `masks`, else background (0) and foreground (1).
    masks : str or Path, optional
        Masks of classes, as `segkit.images.pair` matches them, taken over as labels of images that have none yet.
    reading : Reading, optional
        Axes of the images and range of their values.

    Attributes
    ----------
    output : Path
        The folder.
    images : list of ImageEntry
        The images, sorted by file and page.
    classes : list of LabelClass
        The classes, sorted by value.
    messages : list of str
        Notes on how existing masks were read.

    Raises
    ------
    InputError
        If there are no images, labelled images are gone, another program works in the folder, it holds the project of
        other images, or files of it are damaged.
    OutputError
        If the folder cannot be written, holds masks of somebody else, or is the folder of the images.

    Notes
    -----
    Label images are ``masks/STEM.png``, or ``masks/STEM.tif`` with a page for each page of the image. A pixel has the
    value of its class, or 255 without a label: `segkit.images.load_pairs` reads them with `training_options`. There is
    no label image of an image without labels. Objects that were checked are numbered in ``checked/STEM.tif``. A file is
    written whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from segkit.images import write_image
    >>> folder = tempfile.mkdtemp()
    >>> write_image(f"{folder}/images/a.png", np.random.default_rng(0).random((8, 8)))
    >>> with Project(f"{folder}/images", f"{folder}/annotation") as project:
    ...     _ = project.labels("a").paint((2, 2), np.ones((3, 3), dtype=bool), 1)
    ...     _ = project.save("a")
    ...     project.annotated()
    ['a']
    """

    def __init__(
        self,
        images: str | Path,
        output: str | Path,
        *,
        classes: Sequence[LabelClass] | None = None,
        masks: str | Path | None = None,
        reading: Reading | None = None,
    ) -> None:
        super().__init__()
        self.source, self.output = Path(images), Path(output)
        self._root = root_of(self.source)
        self.reading = reading or Reading()
        is_beside = masks is not None and is_same(Path(masks), self.source)
        found = find_images(self.source, with_masks=is_beside)
        self._listed = found.paths
        self.images = _entries(self.source, found.paths, self.reading)
        self.messages = found.notes
        for folder in (self.source, *found.linked):
            refuse_nesting(folder, self.output)
        self._by_key = {entry.key: entry for entry in self.images}
        self._saved: dict[str, int] = {}  # versions of drawings on disk
        # label images as this program last read or wrote them
        self._stamps: dict[Path, tuple[int, int] | None] = {}
        self._seen: dict[str, str] = {}  # digests of images as they were first read by this program
        self._shapes: dict[str, list[tuple[int, int]]] = {}
        self._scales: dict[str, Scale] = {}
        self._accepted: set[str] = set()
        self._on_disk: set[str] = set()
        self._lock = contextlib.ExitStack()
        self._lock.enter_context(locked(self.output, self.output / ".lock"))
        try:
            self._open(None if classes is None else check_classes(classes), masks)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other programs work in the folder. Labels that were not saved stay in memory only."""
        self._lock.close()

    def image(self, key: str) -> NDArray[np.float32]:
        """Read an image, (H, W, C) float32 in [0, 1].

        An InputError says that the file is gone, damaged, blank, or another one than when it was labelled. Its labels
        are kept.
        """
        entry = self._entry(key)
        if not entry.path.is_file():
            raise InputError(f"{entry.path}: the image is gone: put it back; its labels are kept")
        pages = self.reading.read(entry.path).pages
        name = str(entry.path) if entry.n_pages == 1 else f"{entry.path}#{entry.page + 1}"
        if len(pages) != entry.n_pages:
            raise InputError(
                f"{entry.path}: {count(len(pages), 'page')}, expected {entry.n_pages} as when the folder was opened: "
                f"put the former file back, or open the folder again; labels are kept"
            )
        image = self.reading.scale(pages[entry.page], name=name)
        check_image(image, name=name)
        digest = digest_of(entry.path, image)
        with self._guard:
            self._check_same(entry, digest)
            if self.reading.range is None:
                scales = self._scales | {name: scale_of(image, pages[entry.page].dtype)}
                check_scales(scales)  # 8 bits stored as 16 beside images of 8 bits, and the other way round
                self._scales = scales
            self._seen[key] = digest
            self._shapes[entry.stem] = [(page.shape[0], page.shape[1]) for page in pages]
        return image

    def labels(self, key: str) -> Drawing:
        """Return the label image of an image; it is read once, and kept. Changes are on disk after `save`.

        Raises an InputError as `image` does, and if the label image is damaged, of another size, or holds values
        without a class.
        """
        entry = self._entry(key)
        with self._guard:
            if key in self._drawings:
                return self._drawings[key]
            if key not in self._seen:
                self.image(key)
            path = self.label_path(key)
            self._stamps.setdefault(path, stamp_of(path))
            stored, numbers = self._stored_labels(entry), None
            if is_checked(path := self.objects_path(key)):
                self._stamps.setdefault(path, stamp_of(path))
                numbers = None if stored is None else self._stored_numbers(entry, stored)
            shape = self._shapes[entry.stem][entry.page]
            drawing = Drawing.blank(shape) if stored is None else Drawing(stored, numbers)
            self._drawings[key], self._saved[key] = drawing, drawing.version
            return drawing

    def save(self, key: str) -> int:
        """Write the label image of an image, or remove it if no pixel has a label.

        Returns the `Drawing.version` that is on disk; 0 if the label image was never opened. An InputError says that
        the file holds further pages and is damaged; an OutputError that the disk is full or cannot be written, or that
        another program has changed the file since it was read. The file on disk then stays as it is.
        """
        entry = self._entry(key)
        with self._guard:
            drawing = self._drawings.get(key)
            if drawing is None:
                return 0
            labels, numbers, version = drawing.snapshot_of_objects()
            of_labels, of_objects = self.label_path(key), self.objects_path(key)
            has_objects = is_checked(of_objects) or bool(numbers.any())
            for path in (of_objects, of_labels) if has_objects else (of_labels,):
                now = stamp_of(path)
                if now is not None and now != self._stamps.get(path):
                    raise OutputError(
                        f"{path}: changed by another program since segkit read it: move that file elsewhere, and the labels "
                        "drawn here are written; or end segkit to keep it. Nothing is lost as long as this program runs"
                    )
            if has_objects:  # first: those that their labels do not follow are forgotten
                write_checked(of_objects, self._checked_pages_with(entry, numbers))
                self._stamps[of_objects] = stamp_of(of_objects)
            pages = [labels] if entry.n_pages == 1 else self._pages_with(entry, labels)
            write_labels(of_labels, pages if any(map(has_labels, pages)) else [])
            self._stamps[of_labels] = stamp_of(of_labels)
            digests = {name: digest for name, digest in self._stored.digests.items() if name != key}
            self._on_disk.discard(key)
            if has_labels(labels):
                self._on_disk.add(key)
                digests[key] = self._seen[key]
            self._store(self.classes, digests)
            self._saved[key] = version
            return version

    def unsaved(self) -> list[str]:
        """List the keys of images with labels in memory that are not on disk, or not any more."""
        with self._guard:
            return [
                key
                for key, drawing in self._drawings.items()
                if drawing.version != self._saved[key]
                or (has_labels(drawing.labels) and not self.label_path(key).is_file())
            ]

    def rescue(self, keys: Iterable[str]) -> Path:
        """Write labels that cannot be saved to a new folder in the user's home, or for temporary files, and return it.

        It has the folders ``masks`` and ``checked`` of `output`. An OutputError says that neither can be written.
        """
        entries = {self._entry(key).stem: self._entry(key) for key in keys}.values()
        for parent in (Path.home(), Path(tempfile.gettempdir())):
            try:
                folder = Path(tempfile.mkdtemp(prefix=f"{self.output.name}-rescued-", dir=parent))
                for entry in entries:
                    self._rescue(entry, folder)
            except (OSError, OutputError) as error:
                fault = error
            else:
                return folder
        raise OutputError(f"labels could not be written anywhere: {fault}") from fault

    def _rescue(self, entry: ImageEntry, folder: Path) -> None:
        """Write the labels of a file, those in memory and beside them those on disk that can be read."""
        pages = [np.full(shape, UNLABELLED, dtype=np.uint8) for shape in self._shapes[entry.stem]]
        with contextlib.suppress(SegkitError):
            pages = self._pages_with(entry, pages[entry.page])
        numbers = [np.zeros(page.shape, dtype=np.int32) for page in pages]
        for other in self.images:
            if other.stem == entry.stem and other.key in self._drawings:
                labels, objects, _ = self._drawings[other.key].snapshot_of_objects()
                pages[other.page], numbers[other.page] = labels, objects
        write_labels(folder / self.label_path(entry.key).relative_to(self.output), pages)
        write_checked(folder / self.objects_path(entry.key).relative_to(self.output), numbers)

    def label_path(self, key: str) -> Path:
        """Return the file of the label image of an image; it exists if pixels have labels."""
        entry = self._entry(key)
        name = name_of(entry.path.relative_to(self._root))
        return self.masks / f"{name}{'.png' if entry.n_pages == 1 else '.tif'}"

    @property
    def masks(self) -> Path:
        """Folder of the label images."""
        return self.output / "masks"

    def objects_path(self, key: str) -> Path:
        """Return the file of the checked objects of an image; it exists if there are any."""
        return self.objects / self.label_path(key).relative_to(self.masks).with_suffix(".tif")

    @property
    def objects(self) -> Path:
        """Folder of the checked objects."""
        return self.output / "checked"

    def stored(self, key: str) -> tuple[NDArray[Any], PixelSize | None, tuple[str, ...]]:
        """Read an image with the values of its file, the size of a pixel, and the names of its channels."""
        entry = self._entry(key)
        stack = self.reading.read(entry.path).whole
        return stack.pages[entry.page], find_pixel_size(entry.path).size, stack.layout.channels

    def annotated(self) -> list[str]:
        """List the keys of images with labels, saved or not, in the order of `images`."""
        with self._guard:
            return [entry.key for entry in self.images if self._is_annotated(entry.key)]

    def accepted(self, key: str) -> bool:
        """Return whether an image was accepted by `accept`, and all its pixels still have labels."""
        self._entry(key)
        with self._guard:
            drawing = self._drawings.get(key)
            return key in self._accepted and (drawing is None or bool((drawing.labels != UNLABELLED).all()))

    def accept(self, key: str, ids: ArrayLike) -> Patch:
        """Take predictions as labels of all pixels without one, and note that the image is accepted; see `accepted`."""
        patch = super().accept(key, ids)
        with self._guard:
            self._accepted.add(key)
        return patch

    def set_axes(self, axes: str) -> None:
        """Name the axes of all files that do not name them, as in `Reading`; `images` then lists their pages anew.

        It is kept in ``project.json``. An InputError says that the letters make no sense, or that files with labels would
        have other pages; the axes then stay.
        """
        former = self.reading
        with self._guard:
            for key in self.unsaved():
                self.save(key)  # or labels that were erased would stay on the disk
            begun = {key: self._by_key[key].n_pages for key in self.annotated()}
            self._read_by(replace(former, unnamed=axes))
            changed = [key for key, n in begun.items() if getattr(self._by_key.get(key), "n_pages", 0) != n]
            if changed:
                self._read_by(former)
                raise InputError(
                    f"axes {axes}: {count(len(changed), 'image')} with labels would have other pages "
                    f"({first_few(changed)}): erase these labels first, or keep the axes"
                )
            self._store(self.classes, self._stored.digests)

    def training_files(self) -> tuple[Path, Path]:
        """Return the folders of images and of saved label images.

        A file of somebody else among the checked objects raises an OutputError.
        """
        files = list_folder(self.objects).of(IMAGE_EXTENSIONS) if self.objects.is_dir() else []
        if foreign := [path for path in files if not is_checked(self.objects / path)]:
            raise OutputError(
                f"{self.objects / foreign[0]}: not written by segkit, and among the checked objects: move it elsewhere"
            )
        return self.source, self.masks

    def _read_by(self, reading: Reading) -> None:
        self.reading, self.images = reading, _entries(self.source, self._listed, reading)
        self._by_key = {entry.key: entry for entry in self.images}

    def _open(self, classes: list[LabelClass] | None, masks: str | Path | None) -> None:
        """Read or begin the project, and take masks over."""
        remove_unfinished(self.output)
        of_labels = [
            path(entry.key) for entry in self.images for path in (self.label_path, self.objects_path)
        ]
        places = [*of_labels, *(self.output / folder / "any" for folder in ("network", "results"))]
        refuse_files_for_folders(self.output, [path.relative_to(self.output) for path in places])
        path = self.output / "project.json"
        stored = read_project(path) if path.exists() else None
        listed = _list_labels(self.masks)
        if stored is None and listed:
            raise OutputError(
                f"{self.masks} holds masks ({first_few([str(name) for name in listed])}) and {path.name} is not there: "
                f"give another output folder; to take these masks over, give --masks {self.masks} (masks= in Python)"
            )
        if stored is not None:
            # a folder that was moved is another name of the same images: digests tell
            if stored.images.exists() and not is_same(stored.images, self.source):
                raise InputError(
                    f"{self.output} holds annotations of {os.path.normpath(stored.images)}, not of {self.source}: give "
                    f"these images, or another output folder"
                )
            self.classes = stored.classes
            if stored.axes is not None:
                self._read_by(replace(self.reading, unnamed=stored.axes))
        self._stored = stored or StoredProject(self.source, [], set(), {})
        self._check_labels(listed)
        self._on_disk = self._find_annotated()
        # of images that have labels still
        digests = {key: digest for key, digest in self._stored.digests.items() if key in self._on_disk}
        self._accepted = self._stored.accepted & self._on_disk
        self._stored = self._stored._replace(images=self.source, digests=digests)
        taken: dict[str, NDArray[np.uint8]] = {}
        if masks is not None and not is_same(Path(masks), self.masks):
            known = classes if classes is not None or stored is None else self.classes
            existing = read_existing(self.source, Path(masks), known, self.reading)
            self.messages += [told for told in existing.messages if told not in self.messages]
            taken = existing.labels
            classes = check_classes(existing.classes)
        if stored is None:
            self.classes = classes or self.classes
            self._store(self.classes, digests)
        elif classes is not None and classes != self.classes:
            self.set_classes(classes)
        self._take_over(taken)

    def _check_labels(self, listed: Iterable[Path]) -> None:
        """Refuse label images whose image is gone, or has become a file of other pages."""
        files = {_name(path): path for path in listed}
        known = {
            _name(self.label_path(entry.key).relative_to(self.masks)): entry.stem for entry in self.images
        }
        stems = set(known.values())
        lonely = [str(path) for path in files.values() if stem_of(path) not in stems]
        if lonely:
            raise InputError(
                f"{count(len(lonely), 'label image')} in {self.masks} without image in {self.source} "
                f"({first_few(lonely)}): put the image back, or move the label image elsewhere"
            )
        other = [path for name, path in files.items() if name not in known]
        if other:
            raise InputError(
                f"{self.masks / other[0]}: label image of an image with another number of pages: put the former image "
                f"back, or move the label image elsewhere"
            )

    def _find_annotated(self) -> set[str]:
        """Find the images with labels on disk. A file of one page is there only if there are labels in it."""
        found = set()
        for entry in self.images:
            if not self.label_path(entry.key).is_file():
                continue
            if entry.n_pages == 1:
                found.add(entry.key)
            elif entry.page == 0:
                keys = [f"{entry.stem}#{page + 1}" for page in range(entry.n_pages)]
                try:
                    pages = self._read_label_pages(entry)
                    found |= {key for key, page in zip(keys, pages, strict=True) if has_labels(page)}
                except InputError:  # told when it is opened
                    found |= set(keys) & self._stored.digests.keys()
        return found

    def _take_over(self, taken: dict[str, NDArray[np.uint8]]) -> None:
        """Write label images that were read from elsewhere, of images without labels."""
        keys = [key for key, labels in taken.items() if key not in self._on_disk and has_labels(labels)]
        for key in keys:
            self.labels(key).fill_unlabelled(taken[key])
            self.save(key)
            # thousands of masks need not stay in memory; nor should undo take them back
            del self._drawings[key]

    def _check_same(self, entry: ImageEntry, digest: str) -> None:
        """Refuse an image that is not the one that was labelled."""
        key = entry.key
        former = self._stored.digests.get(key)
        drawing = self._drawings.get(key)
        if drawing is not None:
            if has_labels(drawing.labels):
                former = self._seen[key]
            elif digest != self._seen[key]:
                del self._drawings[key]  # no label to lose
        if former is not None and former != digest and self._is_annotated(key):
            raise InputError(
                f"{entry.path}: the image was replaced since it was annotated: put the former file back, or move its "
                f"label image {self.label_path(key)} elsewhere and open the folder again; labels are kept"
            )

    def _is_annotated(self, key: str) -> bool:
        drawing = self._drawings.get(key)
        return key in self._on_disk if drawing is None else has_labels(drawing.labels)

    def _stored_labels(self, entry: ImageEntry) -> NDArray[np.uint8] | None:
        """Read the labels of a page from disk, if there are any, and check that they fit the image."""
        if not self.label_path(entry.key).is_file():
            return None
        path = self.label_path(entry.key)
        pages = self._read_label_pages(entry)
        labels, shape = pages[entry.page], self._shapes[entry.stem][entry.page]
        if labels.shape != shape:
            cure = f"put the former image back, or move {path} elsewhere and open the folder again; labels are kept"
            raise size_fault(entry.path, shape, labels.shape, kind="label image", cure=cure)
        if odd := without_class(labels, self.classes):
            raise InputError(f"{path}: holds {odd}: add classes of these values, or move the file elsewhere")
        return labels.astype(np.uint8)

    def _stored_numbers(self, entry: ImageEntry, labels: NDArray[np.uint8]) -> NDArray[Any]:
        """Read the checked objects of a page from disk; those whose labels did not follow are forgotten."""
        path = self.objects_path(entry.key)
        numbers = self._read_label_pages(entry, path)[entry.page]
        cure = f"move {path} elsewhere and open the folder again; labels are kept"
        if numbers.shape != labels.shape:
            raise size_fault(
                entry.path, labels.shape, numbers.shape, kind="label image of objects", cure=cure
            )
        if numbers.max(initial=0) > MOST_OBJECTS:
            raise InputError(f"number {numbers.max()}, expected up to {MOST_OBJECTS}: {cure}", source=path)
        return np.where(labels == self.classes[0].value, 0, numbers)

    def _read_label_pages(self, entry: ImageEntry, path: Path | None = None) -> list[NDArray[Any]]:
        path = self.label_path(entry.key) if path is None else path
        try:
            pages = read_mask(path)
        except InputError as fault:
            raise InputError(
                f"{path}: the label image is damaged ({fault.reason}): restore it from a copy, or move it elsewhere and "
                f"open the folder again"
            ) from fault
        if len(pages) != entry.n_pages:
            raise InputError(
                f"{path}: {count(len(pages), 'page')} for {entry.n_pages} of {entry.path}: restore it from a copy, or "
                f"move it elsewhere and open the folder again"
            )
        return pages

    def _pages_with(self, entry: ImageEntry, labels: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Return the label images of all pages of a file, one of them new."""
        exists = self.label_path(entry.key).is_file()
        pages = self._read_label_pages(entry) if exists else []
        if not pages:
            pages = [np.full(shape, UNLABELLED, dtype=np.uint8) for shape in self._shapes[entry.stem]]
        pages[entry.page] = labels
        return [page.astype(np.uint8) for page in pages]

    def _checked_pages_with(self, entry: ImageEntry, numbers: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        """Return the checked objects of all pages of a file, one of them new."""
        path = self.objects_path(entry.key)
        pages = [np.zeros(shape, dtype=np.int32) for shape in self._shapes[entry.stem]]
        if entry.n_pages > 1 and is_checked(path):
            pages = [page.astype(np.int32) for page in self._read_label_pages(entry, path)]
        pages[entry.page] = numbers
        return pages

    def _has_objects(self, key: str) -> bool:
        drawing = self._drawings.get(key)
        return is_checked(self.objects_path(key)) if drawing is None else drawing.has_objects

    def _stored_or_drawn(self, key: str) -> NDArray[Any]:
        entry = self._entry(key)
        if key in self._drawings:
            return self._drawings[key].labels
        return self._read_label_pages(entry)[entry.page]

    def _change_classes(self, classes: list[LabelClass], removed: Sequence[LabelClass]) -> None:
        for key in self.unsaved() if removed else []:
            self.save(key)  # or a file could hold labels of a class that is no more
        self._store(classes, self._stored.digests)
        self.classes = classes

    def _store(self, classes: Sequence[LabelClass], digests: dict[str, str]) -> None:
        """Write project.json if it changes, then take note of what it holds."""
        accepted = {key for key in self._accepted if self.accepted(key)}
        project = StoredProject(self.source, list(classes), accepted, digests, self.reading.unnamed)
        if project != self._stored:
            write_project(self.output / "project.json", project)
            self._stored = project


def _entries(source: Path, listed: Sequence[Path], reading: Reading) -> list[ImageEntry]:
    """List the images of a folder; pages of a file one by one."""
    entries = []
    for relative in listed:
        path, stem = root_of(source) / relative, stem_of(relative)
        try:
            n_pages = count_pages(path, axes=reading.axes, unnamed=reading.unnamed)
        except InputError:  # told when it is opened: others can be annotated meanwhile
            n_pages = 1
        keys = [stem] if n_pages == 1 else [f"{stem}#{page + 1}" for page in range(n_pages)]
        entries += [ImageEntry(key, path, page, n_pages) for page, key in enumerate(keys)]
    names = Counter(entry.key for entry in entries)
    twice = [str(entry.path) for entry in entries if names[entry.key] > 1]
    if twice:
        raise InputError(
            f"{first_few(twice)}: images of the same name, expected one: rename or remove the others"
        )
    return entries


def _list_labels(folder: Path) -> list[Path]:
    """List the label images of a folder; there may be none."""
    return list_folder(folder).of(IMAGE_EXTENSIONS) if folder.is_dir() else []


def _name(path: Path) -> str:
    """Name a file of a folder, accents spelled in one way."""
    return f"{name_of(path)}{path.suffix}"
