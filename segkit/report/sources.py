"""Where the report's numbers and pictures come from: a benchmark's folder, or folders of masks."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.benchmark import FORMAT_VERSION, Benchmark
from segkit.benchmark.machine import machine
from segkit.benchmark.unit import read_stems
from segkit.evaluate import TOLERANCE, read_folders, score_image
from segkit.images import pair, read_image, read_pages
from segkit.report.pictures import Picture, Pictures

METHOD = "predictions"


def pictures_of_benchmark(benchmark: Benchmark) -> Pictures:
    """Give what shows the predictions that a benchmark kept.

    Parameters
    ----------
    benchmark : Benchmark
        One that has run.

    Returns
    -------
    callable
        Of method, number of training images, seed and stem; None for predictions that were not kept.
    """

    def picture(method: str, n_train: int | None, seed: int | None, stem: str) -> Picture | None:
        mask_file, probability_file = benchmark.picture_files(method, stem)
        if benchmark.pictures != {"n_train": n_train, "seed": seed} or not mask_file.exists():
            return None
        [(_, image, truth)] = read_stems(benchmark.images, benchmark.masks, [stem])
        [mask] = read_pages(mask_file)
        encode = benchmark.label_map.encode
        return Picture(image, encode(truth), encode(mask), _probabilities(probability_file))

    return picture


def result_of_folders(
    predictions: Path,
    masks: Path,
    images: Path | None = None,
    *,
    unlabelled: int | None = None,
    skip: Collection[str] = (),
) -> tuple[dict[str, Any], Pictures]:
    """Score folders of masks in every way that the report shows.

    Parameters
    ----------
    predictions, masks : Path
        As for `segkit.evaluate.read_folders`. Probability maps are looked for in ``probability/`` of `predictions`.
    images : Path, optional
        Folder of the images themselves, to show beside the masks.
    unlabelled : int, optional
        Value of unlabelled pixels in the true masks.
    skip : collection of str
        Sub-folders of `predictions` that hold other things than masks.

    Returns
    -------
    result : dict
        As in ``results.json``, of one method and without a number of training images.
    pictures : callable
        As `pictures_of_benchmark` gives.

    Raises
    ------
    InputError
        If a file is missing or does not fit.
    """
    found = read_folders(predictions, masks, unlabelled=unlabelled, skip=skip)
    maps = {stem: _kept_probabilities(predictions, stem) for stem in found.stems}
    own = {"method": METHOD, "n_train": None, "seed": None, "group": None}
    costs = {"fit_seconds": None, "predict_seconds": None, "peak_memory_mib": None}
    records = [
        {
            **own,
            "image": stem,
            **score_image(truth, guess, maps[stem], found.label_map.n_classes, tolerance=TOLERANCE),
            **costs,
        }
        for stem, truth, guess in zip(found.stems, found.truths, found.predictions, strict=True)
    ]
    result = {
        "format_version": FORMAT_VERSION,
        "name": masks.resolve().name,
        "label_map": found.label_map.to_dict(),
        "methods": {METHOD: {"title": "the predictions", "kind": METHOD, "config": {}}},
        "train_sizes": [],
        "seeds": [],
        "tolerance": TOLERANCE,
        "left_out": [],
        "failures": [],
        "units": [],
        "records": records,
        "pictures": {"n_train": None, "seed": None},
        "manifest": {"machine": machine(), "notes": found.notes},
    }
    shown = {} if images is None else {entry.stem: entry.image for entry in pair(images, masks)}

    def picture(method: str, n_train: int | None, seed: int | None, stem: str) -> Picture | None:  # noqa: ARG001
        index = found.stems.index(stem)
        truth, guess = found.truths[index], found.predictions[index]
        name, _, page = stem.partition("#")
        if name in shown:
            image = read_image(shown[name])[int(page or 1) - 1]
        else:
            image = np.full((*truth.shape, 3), 0.5, dtype=np.float32)
        return Picture(image, truth, guess, maps[stem])

    return result, picture


def _kept_probabilities(predictions: Path, stem: str) -> NDArray[np.float32] | None:
    file = predictions / "probability" / f"{stem}.tif"
    return _probabilities(file) if file.exists() else None


def _probabilities(file: Path) -> NDArray[np.float32]:
    """Probability of each class, (H, W, n_classes); a single map is the foreground's."""
    maps = np.stack(read_pages(file), axis=-1).astype(np.float32)
    return maps if maps.shape[2] > 1 else np.concatenate([1 - maps, maps], axis=2)
