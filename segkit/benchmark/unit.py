"""One unit of a benchmark: train a method on one split, and score its test images.

Each unit runs in a separate process (``python -m segkit.benchmark.unit JOB RESULT``). Its peak memory can then be
measured, and a crash does not end the benchmark.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from segkit.benchmark.choices import choices
from segkit.benchmark.machine import machine, peak_memory_mib
from segkit.benchmark.methods import Method
from segkit.benchmark.object_splitting import (
    count_matches,
    read_annotated,
    typical_radius,
)
from segkit.benchmark.results import FORMAT_VERSION, read_json, write_json
from segkit.errors import SegkitError
from segkit.evaluation.folders import score_image
from segkit.images import UNLABELLED, LabelMap, Reading, write_mask, write_probability
from segkit.segmentation.segmenter import Segmenter


def run_unit(job: dict[str, Any]) -> dict[str, Any]:
    """Train on the training images of a split and score the test images."""
    label_map = LabelMap.from_dict(job["label_map"])
    stems = [*job["train"], *job["test"]]
    numbered = job.get("objects")  # for masks that number objects
    items = read_annotated(
        job["images"],
        job["masks"],
        stems,
        objects=numbered is not None,
        n_channels=job.get("n_channels"),
        unlabelled=None if numbered is None else numbered["unlabelled"],
        reading=Reading.from_dict(job["reading"]) if "reading" in job else None,
    )
    images = {item.stem: item.image for item in items}
    masks = {item.stem: item.mask for item in items}
    instances = {item.stem: item.instances for item in items if item.instances is not None}
    annotated = [instances[stem] for stem in job["train"] if instances]
    segmenter = Method.from_dict(job["name"], job["method"]).build(
        job["seed"], job["checkpoint"], context=job.get("reading", {}).get("context", 0)
    )
    further: dict[str, Any] = {}
    if isinstance(segmenter, Segmenter):
        file_of = {item.stem: item.file for item in items}
        further = {
            "checkpoint": job["checkpoint"],
            "instances": annotated or None,
            "groups": [file_of[stem] for stem in job["train"]],
        }
    resumed = job["checkpoint"] is not None and Path(job["checkpoint"]).exists()
    # Warnings become notes in the results, for nobody reads the output of this process.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        start = time.perf_counter()
        segmenter.fit(
            [images[stem] for stem in job["train"]],
            [masks[stem] for stem in job["train"]],
            label_map=label_map,
            **further,
        )
        fit_seconds = time.perf_counter() - start
        if resumed:
            warnings.warn(
                "training went on from a checkpoint: its seconds are those since then", stacklevel=1
            )
    own = {"method": job["name"], "n_train": job["n_train"], "seed": job["seed"]}
    radius = typical_radius(annotated)
    records = []
    for stem in job["test"]:
        start = time.perf_counter()
        found = segmenter.segment(images[stem], objects=bool(instances) and isinstance(segmenter, Segmenter))
        seconds = time.perf_counter() - start
        # Encode the truth by the label map of all images: the training images may lack a class.
        truth, ids = label_map.encode(masks[stem]), label_map.encode(found.labels)
        scores = score_image(truth, ids, found.probability, label_map.n_classes, tolerance=job["tolerance"])
        group = None if job["groups"] is None else job["groups"][stem]
        check = found.check
        promised = {
            "expected_object_iou": None if check is None else check.expected_object_iou,
            "interval_80": None if check is None else check.interval_80,
        }
        records.append(
            {**own, "image": stem, "group": group, **scores, **promised, "predict_seconds": seconds}
        )
        if instances:
            labelled = truth != UNLABELLED
            counts = count_matches(instances[stem], ids > 0, found.objects, radius=radius, labelled=labelled)
            records[-1]["objects"] = counts
        if job["pictures"] is not None:
            folder = Path(job["pictures"])
            write_mask(folder / "masks" / f"{stem}.tif", label_map.decode(ids))
            write_probability(folder / "probability" / f"{stem}.tif", found.probability.transpose(2, 0, 1))
    costs = {"fit_seconds": fit_seconds, "peak_memory_mib": peak_memory_mib()}
    device = getattr(segmenter, "device_", "cpu")
    stopped_early = getattr(segmenter, "stopped_early_", None)  # of methods whose training has a limit
    unit = {
        **own,
        "train": job["train"],
        "test": job["test"],
        **costs,
        "predict_seconds": float(np.mean([record["predict_seconds"] for record in records])),
        "device": device,
        "machine": machine(device),
        "budget_limited": None if stopped_early is None else not stopped_early,
        "notes": sorted({" ".join(str(warning.message).split()) for warning in caught}),
        "explain": None,
        **({"objects": True} if instances else {}),
    }
    if isinstance(segmenter, Segmenter):
        training = [(images[stem], label_map.encode(masks[stem])) for stem in job["train"]]
        try:
            unit["explain"] = choices(segmenter, training if job["pictures"] is not None else None)
        except Exception as error:  # the scores are valid without the choices
            unit["notes"].append(f"the choices of the method cannot be shown: {_one_line(error)}")
    return {"unit": unit, "records": [record | costs for record in records]}


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


def _end_with_parent() -> None:
    """Wait for the end of the input, which comes when the benchmark is killed."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(*sys.argv[1:])
