"""One unit of a benchmark: train a method on one split, and score its test images.

Each unit runs in a separate process (``python -m segkit.benchmark.unit JOB RESULT``). Its peak memory can then be
measured, and a crash does not end the benchmark.
"""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit.benchmark.choices import choices
from segkit.benchmark.machine import machine, peak_memory_mib
from segkit.benchmark.methods import Method
from segkit.benchmark.results import FORMAT_VERSION, read_json, write_json
from segkit.errors import InputError, SegkitError
from segkit.evaluation.folders import score_image
from segkit.images import LabelMap, pair, read_image, read_mask, write_mask, write_probability
from segkit.images.channels import with_channels
from segkit.images.pairs import page_names
from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.segmenter import Segmenter


def run_unit(job: dict[str, Any]) -> dict[str, Any]:
    """Train on the training images of a split and score the test images.

    Parameters
    ----------
    job : dict
        ``images`` and ``masks`` (folders), ``label_map``, ``name``, ``method`` (from `Method.to_dict`),
        ``n_train``, ``seed``, ``train`` and ``test`` (stems), ``groups`` (of the test images, or None),
        ``tolerance``, ``n_channels`` to read the images with, ``pictures`` (folder for predictions in ``masks/`` and
        ``probability/``, or None), and ``checkpoint`` (file from which an interrupted training continues).

    Returns
    -------
    dict
        ``unit``: seconds, memory, machine and the choices of the method; ``records``: one for each test image.
    """
    label_map = LabelMap.from_dict(job["label_map"])
    stems = [*job["train"], *job["test"]]
    pairs = read_stems(job["images"], job["masks"], stems, n_channels=job.get("n_channels"))
    images = {stem: image for stem, image, _ in pairs}
    masks = {stem: mask for stem, _, mask in pairs}
    segmenter = Method.from_dict(job["name"], job["method"]).build(job["seed"], job["checkpoint"])
    # Warnings become notes in the results, for nobody reads the output of this process.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        start = time.perf_counter()
        segmenter.fit(
            [images[stem] for stem in job["train"]],
            [masks[stem] for stem in job["train"]],
            label_map=label_map,
        )
        fit_seconds = time.perf_counter() - start
    own = {"method": job["name"], "n_train": job["n_train"], "seed": job["seed"]}
    records = []
    for stem in job["test"]:
        start = time.perf_counter()
        prediction, probability = segmenter.predict(images[stem], return_proba=True)
        seconds = time.perf_counter() - start
        # Encode the truth by the label map of all images: the training images may lack a class.
        truth, ids = label_map.encode(masks[stem]), label_map.encode(prediction)
        scores = score_image(truth, ids, probability, label_map.n_classes, tolerance=job["tolerance"])
        group = None if job["groups"] is None else job["groups"][stem]
        records.append({**own, "image": stem, "group": group, **scores, "predict_seconds": seconds})
        if job["pictures"] is not None:
            folder = Path(job["pictures"])
            write_mask(folder / "masks" / f"{stem}.tif", label_map.decode(ids))
            write_probability(folder / "probability" / f"{stem}.tif", probability.transpose(2, 0, 1))
    costs = {"fit_seconds": fit_seconds, "peak_memory_mib": peak_memory_mib()}
    device = getattr(segmenter, "device_", "cpu")
    unit = {
        **own,
        "train": job["train"],
        "test": job["test"],
        **costs,
        "predict_seconds": float(np.mean([record["predict_seconds"] for record in records])),
        "device": device,
        "machine": machine(device),
        "budget_limited": _budget_limited(segmenter),
        "notes": sorted({" ".join(str(warning.message).split()) for warning in caught}),
        "explain": None,
    }
    if isinstance(segmenter, Segmenter):
        training = [(images[stem], label_map.encode(masks[stem])) for stem in job["train"]]
        try:
            unit["explain"] = choices(segmenter, training if job["pictures"] is not None else None)
        except Exception as error:  # the scores are valid without the choices
            unit["notes"].append(f"the choices of the method cannot be shown: {_one_line(error)}")
    return {"unit": unit, "records": [record | costs for record in records]}


def read_stems(
    images: str | Path, masks: str | Path, stems: Sequence[str], *, n_channels: int | None = None
) -> list[tuple[str, NDArray[np.float32], NDArray[Any]]]:
    """Read images of a folder with their masks, by name; pages are named "stem#1", ..."""
    wanted = set(stems)
    files = {stem.rpartition("#")[0] for stem in stems} | wanted
    found = []
    for entry in pair(images, masks):
        # Skip files without a wanted page before reading them.
        if files.isdisjoint(page_names(entry, 1)):
            continue
        pages = [with_channels(page, n_channels or page.shape[2]) for page in read_image(entry.image)]
        named = zip(page_names(entry, len(pages)), pages, read_mask(entry.mask), strict=True)
        found += [item for item in named if item[0] in wanted]
    missing = wanted - {stem for stem, _, _ in found}
    if missing:
        raise InputError(
            f"{', '.join(sorted(missing))}: no such images in {images}, but they were there when the benchmark "
            f"started: put them back, or start again with --overwrite"
        )
    return found


def _budget_limited(segmenter: BaseSegmenter) -> bool | None:
    """Tell whether `max_steps` ended training; None for methods without such a limit."""
    stopped_early = getattr(segmenter, "stopped_early_", None)
    return None if stopped_early is None else not stopped_early


def _one_line(error: Exception) -> str:
    message = " ".join(str(error).split()) or "no message"
    return message if isinstance(error, SegkitError) else f"{type(error).__name__}: {message}"


def main(job_file: str, result_file: str) -> None:
    """Run the job in one file, and write its result, or a one-line error, to another."""
    job = read_json(Path(job_file))
    result: dict[str, Any]
    try:
        result = run_unit(job)
    except Exception as error:  # the benchmark reports any error, and continues
        if not isinstance(error, SegkitError):
            traceback.print_exc()
        result = {"error": _one_line(error)}
    # With the fingerprint, --resume knows which options and data a result belongs to.
    known = {name: job[name] for name in ("fingerprint", "method")}
    write_json(Path(result_file), {"format_version": FORMAT_VERSION} | known | result)


if __name__ == "__main__":
    main(*sys.argv[1:])
