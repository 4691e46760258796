"""What people labelled and checked in a project, put in the place of what a model predicts."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError, first_few
from segkit.images import UNLABELLED
from segkit.images.masks import size_fault
from segkit.images.read import read_mask
from segkit.images.stems import name_of, page_names, root_of, stem_of
from segkit.live.files import digest_of, is_checked, read_project
from segkit.objects.correct import with_checked
from segkit.segmentation.base import Segmentation
from segkit.segmentation.folders import reading_of
from segkit.segmentation.results import Corrected, Job, Pages
from segkit.segmentation.segmenter import Segmenter


class Corrections:
    """Label images and checked objects of a project on disk.

    Parameters
    ----------
    folder : Path
        Folder of the project, as `Project` and ``segkit annotate`` write it.
    segmenter : Segmenter
        The model whose predictions are corrected.

    Raises
    ------
    InputError
        If there is no project in the folder, it is damaged, or its classes are not those of the model.
    """

    def __init__(self, folder: Path, segmenter: Segmenter) -> None:
        self._folder, self._segmenter = folder, segmenter
        if not (folder / "project.json").is_file():
            raise InputError("no project of segkit annotate: give the folder that it wrote", source=folder)
        self._stored = read_project(folder / "project.json")
        value_of = dict(zip(segmenter.label_map_.names, segmenter.label_map_.values, strict=True))
        classes = self._stored.classes
        if unknown := [name for name in value_of if name not in {one.name for one in classes}]:
            told = first_few([one.name for one in classes])
            raise InputError(
                f"{folder} has the classes {told}, the model {first_few(unknown)} too: give a model that was trained there"
            )
        self._background = classes[0].value
        # what the model writes for each value of the label images; -1 of a class that it does not know
        self._written = np.full(UNLABELLED + 1, -1, dtype=np.int64)
        self._written[[one.value for one in classes]] = [value_of.get(one.name, -1) for one in classes]

    def digest(self, job: Job) -> str:
        """Hash the labels and checked objects of an image file, and what they mean; "" without any."""
        files = [path for path in self._files(job) if path is not None]
        if not files:
            return ""
        meaning = repr([(one.value, one.name) for one in self._stored.classes]).encode()
        return hashlib.sha256(b"".join([meaning, *(path.read_bytes() for path in files)])).hexdigest()

    def correct(self, job: Job, stored: Pages, found: Sequence[Segmentation]) -> list[Corrected]:
        """Correct what was found in the pages of a file, given as they are stored.

        An InputError says that the labels are of another image.
        """
        of_labels, of_objects = self._files(job)
        if of_labels is None:
            return [Corrected(page) for page in found]
        shapes = [page.labels.shape for page in found]
        labels = _read(of_labels, shapes)
        numbers = (
            [np.zeros_like(page) for page in labels] if of_objects is None else _read(of_objects, shapes)
        )
        keys = page_names(stem_of(self._name(job)), len(found))
        corrected = []
        for key, page, one, drawn, checked in zip(keys, stored, found, labels, numbers, strict=True):
            if (drawn == UNLABELLED).all():
                corrected.append(Corrected(one))
                continue
            self._check_same(job, key, page)
            if (self._written[drawn[drawn != UNLABELLED]] < 0).any():
                fault = (
                    "labels of a class that the model does not know: give a model that was trained on them"
                )
                raise InputError(fault, source=of_labels)
            corrected.append(self._correct_page(one, drawn, checked))
        return corrected

    def _correct_page(self, found: Segmentation, drawn: NDArray[Any], checked: NDArray[Any]) -> Corrected:
        is_free = drawn == UNLABELLED
        values = np.where(is_free, found.labels, self._written[drawn]).astype(found.labels.dtype)
        check = found.check if is_free.any() else None
        corrected = replace(found, labels=values, check=check)
        if found.objects is None:
            return Corrected(corrected, ())
        is_background = drawn == self._background
        objects, of_page = with_checked(
            found.objects,
            np.where(is_background | is_free, 0, checked),
            is_background,
            is_foreground=~is_background & ~is_free,
            least_area=self._segmenter.objects_.splitter.least_area,
        )
        return Corrected(replace(corrected, objects=objects), of_page)

    def _name(self, job: Job) -> PurePath:
        """Return the path of an image in the folder of the project; elsewhere, its path in the folder of the run."""
        root = self._stored.images
        with contextlib.suppress(ValueError, OSError):
            return job.source.resolve().relative_to(root_of(root).resolve())
        return PurePath(job.name)

    def _files(self, job: Job) -> tuple[Path | None, Path | None]:
        """Find the label image of an image file, and that of its checked objects."""
        stem = name_of(self._name(job))
        of_labels = [self._folder / "masks" / f"{stem}{extension}" for extension in (".png", ".tif")]
        labels = next((path for path in of_labels if path.is_file()), None)
        objects = self._folder / "checked" / f"{stem}.tif"
        return labels, objects if labels is not None and is_checked(objects) else None

    def _check_same(self, job: Job, key: str, page: NDArray[Any]) -> None:
        """Refuse labels of another image."""
        known = self._stored.digests.get(key)
        if known is None:
            return
        if known != digest_of(job.source, reading_of(self._segmenter).scale(page, name=str(job.source))):
            raise InputError(
                f"{job.source}: not as it was when it was annotated, or read in another way: segment the images that were "
                "annotated, by a model that was trained there"
            )


def _read(path: Path, shapes: Sequence[tuple[int, ...]]) -> list[NDArray[Any]]:
    """Read the pages of a label image, and check that they fit the image."""
    pages, cure = read_mask(path), "segment the images that were annotated"
    if len(pages) != len(shapes):
        raise InputError(f"{len(pages)} pages, the image has {len(shapes)}: {cure}", source=path)
    for page, shape in zip(pages, shapes, strict=True):
        if page.shape != shape:
            raise size_fault(path, shape, page.shape, kind="label image", cure=cure)
    return pages
