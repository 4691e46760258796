"""How far models and masks differ between machines: one training under other processors, threads and instructions.

    python -m benchmarks reproducibility --data DATA [--sets ...]

OPENBLAS_CORETYPE makes OpenBLAS work as on another processor, ATEN_CPU_CAPABILITY does so for torch. Each setting trains
the default recipe on the five images of split 0 in a process of its own, and segments ten test images. Compared with the
plain setting: whether the model file is the same to the byte, the largest difference of a tensor relative to its largest
value, the change of the threshold, and the fraction of pixels of another class.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Row, Study, flat
from benchmarks.segmentation import DEVELOPMENT, split, write_made_up
from segkit import Segmenter
from segkit.images import load_pairs, read_image, read_mask, write_mask
from segkit.segmentation.model_file import digest_arrays, read_model
from segkit.segmentation.segmenter import load

N_TRAIN, N_TEST = 5, 10
PLAIN = "1 thread"
SETTINGS: dict[str, dict[str, str]] = {
    PLAIN: {"OMP_NUM_THREADS": "1"},
    "again": {"OMP_NUM_THREADS": "1"},
    "2 threads": {"OMP_NUM_THREADS": "2"},
    "OpenBLAS as on Haswell": {"OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell"},
    "OpenBLAS as on Sandybridge": {"OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Sandybridge"},
    "OpenBLAS and torch as on Nehalem": {
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "ATEN_CPU_CAPABILITY": "default",
    },
}


def run_one(data: Path, train: list[str], test: list[str], out: Path) -> None:
    """Train, save, and write the masks of the test images."""
    pairs = load_pairs(data / "images", data / "masks")
    chosen = [pairs.stems.index(stem) for stem in train]
    segmenter = Segmenter().fit(
        [pairs.images[index] for index in chosen],
        [pairs.masks[index] for index in chosen],
        label_map=pairs.label_map,
    )
    segmenter.save(out / "model.segkit")
    segmenter = load(out / "model.segkit")
    files = {path.stem: path for path in (data / "images").iterdir()}
    for stem in test:
        write_mask(out / f"{stem}.tif", segmenter.predict(read_image(files[stem])[0]))


def compare(plain: Path, other: Path, test: list[str]) -> dict[str, Any]:
    """Compare two folders that `run_one` wrote."""
    headers, tensors = zip(*(read_model(folder / "model.segkit") for folder in (plain, other)), strict=True)
    same_shapes = all(
        name in tensors[1] and tensors[1][name].shape == array.shape for name, array in tensors[0].items()
    )
    changed = [
        float(np.mean(read_mask(plain / f"{stem}.tif")[0] != read_mask(other / f"{stem}.tif")[0]))
        for stem in test
    ]
    return {
        "same_bytes": (plain / "model.segkit").read_bytes() == (other / "model.segkit").read_bytes(),
        "same_tensors": digest_arrays(tensors[0]) == digest_arrays(tensors[1]),
        "same_channels": headers[0]["channels"] == headers[1]["channels"],
        "largest_difference": max(map(_difference, tensors[0].values(), tensors[1].values()))
        if same_shapes
        else None,
        "threshold_difference": abs(headers[0]["threshold"] - headers[1]["threshold"]),
        "masks_equal": max(changed) == 0,
        "pixels_changed_mean": float(np.mean(changed)),
        "pixels_changed_most": max(changed),
    }


def _difference(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    if not one.size or not np.issubdtype(one.dtype, np.floating):
        return 0.0
    return float(np.abs(one - other).max() / max(float(np.abs(one).max()), np.finfo(np.float64).tiny))


def measure(data: Path, setting: str, scratch: Path) -> dict[str, Any]:
    """Train and segment under a setting and, the first time, under the plain one; compare both."""
    train, test = split(data, 0, N_TRAIN)
    test = test[:N_TEST]
    for name in (PLAIN, setting):
        out = scratch / data.name / name
        if not out.exists():
            out.mkdir(parents=True)
            job = json.dumps([str(data.resolve()), train, test, str(out)])
            command = [sys.executable, "-m", "benchmarks.reproducibility", job]
            subprocess.run(command, check=True, env=os.environ | SETTINGS[name])
    return compare(scratch / data.name / PLAIN, scratch / data.name / setting, test)


def run(study: Study) -> None:
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        if study.quick:
            write_made_up(scratch / "data" / "made-up", N_TRAIN + N_TEST, (96, 96))
            study.data = scratch / "data"
        for name in ["made-up"] if study.quick else study.sets or DEVELOPMENT:
            for setting in list(SETTINGS)[1 : 2 if study.quick else None]:
                where = {"set": name, "setting": setting}
                study.row(where, partial(measure, study.folder(name), setting, scratch))


def reproducibility(rows: list[Row]) -> str:
    """Tabulate how far models and masks differ, by setting."""
    found = flat(rows)
    lines = [
        "| setting, beside 1 thread | same bytes of the model | numbers of it differ by | pixels of another class | most |",
        "|---|---|---|---|---|",
    ]
    for setting in dict.fromkeys(row["setting"] for row in found):
        own = [row for row in found if row["setting"] == setting]
        same = sum(row["same_bytes"] for row in own)
        differences = [row["largest_difference"] for row in own]
        told = "other channels" if None in differences else f"{max(differences):.1e}"
        lines.append(
            f"| {setting} | {same} of {len(own)} | {told} | "
            f"{100 * np.mean([row['pixels_changed_mean'] for row in own]):.4f} % | "
            f"{100 * max(row['pixels_changed_most'] for row in own):.4f} % |"
        )
    sets = ", ".join(dict.fromkeys(row["set"] for row in found))
    return "\n".join(
        [
            *lines,
            "",
            f"Default recipe, five training images and ten test images of each of {sets}. Differences of numbers, the "
            "largest, are relative to the largest of their array. Pixels: mean of the images, and the image with most.",
        ]
    )


TABLES = {"reproducibility": reproducibility}


if __name__ == "__main__":
    data, train, test, out = json.loads(sys.argv[1])
    run_one(Path(data), train, test, Path(out))
