"""Numbers and pictures of a report, read from a benchmark's folder or from folders of masks."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.benchmark import Benchmark
from segkit.benchmark.machine import machine
from segkit.benchmark.results import FORMAT_VERSION
from segkit.errors import InputError
from segkit.evaluation.folders import TOLERANCE, objects_to_dict, score_image, score_read_objects
from segkit.evaluation.read_masks import ReadMasks
from segkit.images import LabelMap, pair, read_mask
from segkit.images.read import image_from_page, read_planes, read_stack
from segkit.images.stems import files_by_stem, stem_of
from segkit.report.pictures import Picture, Pictures

_METHOD = "predictions"
_ROUNDING = 1e-6  # float32 probabilities may leave [0, 1] by this much


def pictures_of_benchmark(benchmark: Benchmark) -> Pictures:
    """Return a function that reads the predictions kept by a benchmark."""

    def picture(method: str, n_train: int, seed: int, stem: str) -> Picture | None:
        mask_file, probability_file = benchmark.picture_files(method, stem)
        if benchmark.pictures != {"n_train": n_train, "seed": seed} or not mask_file.exists():
            return None
        image, truth = benchmark.read_truth(stem)
        [mask] = read_mask(mask_file)
        encode = benchmark.label_map.encode
        [maps] = _read_probabilities(probability_file, [mask], benchmark.label_map)
        return Picture(image, encode(truth), encode(mask), maps)

    return picture


def result_of_folders(
    found: ReadMasks, predictions: Path, masks: Path, images: Path | None = None
) -> tuple[dict[str, Any], Pictures]:
    """Score folders of masks with all scores of the report, and return the result and a function for its pictures.

    ``probability/`` of the predictions may hold a map for each class, or one of the foreground, page after page.
    """
    maps = _kept_probabilities(predictions, found)
    n_pages = Counter(found.files)
    own = {"method": _METHOD, "n_train": 0, "seed": 0}
    costs = {"fit_seconds": None, "predict_seconds": None, "peak_memory_mib": None}
    records = [
        {
            **own,
            "image": stem,
            "group": file if n_pages[file] > 1 else None,
            **score_image(truth, guess, given, found.label_map.n_classes),
            **costs,
        }
        for stem, file, truth, guess, given in zip(
            found.stems, found.files, found.truths, found.predictions, maps, strict=True
        )
    ]
    result = {
        "format_version": FORMAT_VERSION,
        "name": _name(masks.resolve()),
        "label_map": found.label_map.to_dict(),
        "methods": {_METHOD: {"title": "the predictions", "kind": _METHOD, "config": {}}},
        "train_sizes": [],
        "seeds": [],
        "tolerance": TOLERANCE,
        "left_out": [],
        "failures": [],
        "units": [],
        "records": records,
        "pictures": {"n_train": 0, "seed": 0},
        "manifest": {"machine": machine(), "notes": found.notes},
    }
    if (objects := score_read_objects(found)) is not None:
        result["objects"] = objects_to_dict(objects, found.stems)
    shown = {} if images is None else _images_of(images, masks)

    def picture(method: str, n_train: int, seed: int, stem: str) -> Picture | None:  # noqa: ARG001
        index = found.stems.index(stem)
        truth, guess = found.truths[index], found.predictions[index]
        file, page = found.files[index], found.pages[index]
        image = np.full((*truth.shape, 3), 0.5, dtype=np.float32)
        if file in shown:
            try:
                image = _read_page(shown[file], page, truth.shape, found.axes)
            except InputError as error:  # the scores do not need it
                warnings.warn(f"not shown in the report: {error}", UserWarning, stacklevel=2)
        objects = None
        if found.true_objects is not None and found.predicted_objects is not None:
            objects = found.true_objects[index], found.predicted_objects[index]
        return Picture(image, truth, guess, maps[index], objects)

    return result, picture


def _images_of(images: Path, masks: Path) -> dict[str, Path]:
    """Return the image of each mask, by the stem of the mask and of the image."""
    pairs = pair(images, masks, only_annotated=True)
    root = masks if masks.is_dir() else masks.parent
    shown = {stem_of(entry.mask.relative_to(root)): entry.image for entry in pairs}
    return shown | {entry.stem: entry.image for entry in pairs}  # as outlines are called


def _name(masks: Path) -> str:
    """Name the data after the folder of masks; one just called "masks" or "instances", after the two around it."""
    around = [name for name in (masks.parent.parent.name, masks.parent.name) if name]
    return "/".join(around) if masks.name in ("masks", "instances") and around else masks.name


def _read_page(file: Path, page: int, size: tuple[int, ...], axes: str | None) -> NDArray[np.float32]:
    pages = read_planes(file, axes=axes)
    images = [image_from_page(stored, name=str(file)) for stored in pages]
    if page >= len(images) or images[page].shape[:2] != size:
        raise InputError(
            f"{file}: no image of {size[0]} x {size[1]} on page {page + 1}, as its mask is: "
            f"give the images that the masks belong to"
        )
    return images[page]


def _kept_probabilities(predictions: Path, found: ReadMasks) -> list[NDArray[np.float32] | None]:
    """Read the probability maps of each item; None for items without a file in ``probability/``."""
    folder = predictions / "probability"
    file_of = files_by_stem(folder).path_of if folder.is_dir() else {}
    masks_of: dict[str, dict[int, NDArray[np.uint8]]] = {}
    for file, page, mask in zip(found.files, found.pages, found.predictions, strict=True):
        masks_of.setdefault(file, {})[page] = mask
    maps: dict[str, list[NDArray[np.float32]]] = {}
    for file in masks_of.keys() & file_of.keys():
        # planes that are not scored have the size of the others
        known = masks_of[file]
        masks = [known.get(page, next(iter(known.values()))) for page in range(found.n_pages[file])]
        maps[file] = _read_probabilities(file_of[file], masks, found.label_map)
    return [
        maps[file][page] if file in maps else None
        for file, page in zip(found.files, found.pages, strict=True)
    ]


def _read_probabilities(
    file: Path, masks: Sequence[NDArray[Any]], label_map: LabelMap
) -> list[NDArray[np.float32]]:
    """Read the probability of each class, (H, W, n_classes), for each page; a single map is the foreground's."""
    # of two axes without names the classes are the last: pages stay in the order of the file
    stored = read_stack(file, axes="TZYX", unnamed="any").pages
    pages = [plane for page in stored for plane in _planes(page)]
    n_classes = label_map.n_classes
    n_maps, rest = divmod(len(pages), len(masks))
    if rest or not (n_maps == n_classes or n_maps == 1 == n_classes - 1):
        raise InputError(
            f"{file}: {len(pages)} maps for {len(masks)} masks of {n_classes} classes (the values "
            f"{', '.join(map(str, label_map.values))}), expected one for each class and mask, or one of the "
            f"foreground where there are two classes: to score the masks alone, move that folder away"
        )
    found = []
    for index, mask in enumerate(masks):
        of_mask = pages[index * n_maps : (index + 1) * n_maps]
        for values in of_mask:
            _check_probability(file, values, mask.shape)
        maps = np.stack(of_mask, axis=-1).astype(np.float32)
        found.append(maps if n_maps > 1 else np.concatenate([1 - maps, maps], axis=2))
    return found


def _check_probability(file: Path, values: NDArray[Any], size: tuple[int, ...]) -> None:
    if values.shape != size:
        raise InputError(
            f"{file}: map of shape {values.shape} for a mask of shape {size}: give one value for each pixel"
        )
    inside = (values >= -_ROUNDING) & (values <= 1 + _ROUNDING)  # NaN is not
    if not np.issubdtype(values.dtype, np.floating) or not inside.all():
        raise InputError(
            f"{file}: map of {values.dtype} from {values.min():g} to {values.max():g}, expected floats in [0, 1]: "
            f"write probabilities as they are"
        )


def _planes(page: NDArray[Any]) -> list[NDArray[Any]]:
    """Part a page (H, W, n_classes) of the maps of a stack; other files have a page for each map."""
    return [page] if page.ndim == 2 else list(np.moveaxis(page, 2, 0))
