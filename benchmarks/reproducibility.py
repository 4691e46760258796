"""How far models and masks differ between machines: one training under other processors, threads and instructions.

    python -m benchmarks.reproducibility --data DATA [--sets drive dsb2018_stained ...] [--out FILE] [--quick]

OPENBLAS_CORETYPE makes OpenBLAS work as on another processor, ATEN_CPU_CAPABILITY does so for torch. Each setting trains
the default recipe on the five images of split 0 in a process of its own, and segments ten test images. Compared with the
plain setting: whether the model file is the same to the byte, the largest difference of a tensor relative to its largest
value, the change of the threshold, and the fraction of pixels of another class. Without --data, made-up images.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import digest_sources, result_path, split, write_result
from segkit import Segmenter
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.images import load_pairs, read_image, read_mask, write_image, write_mask
from segkit.segmentation.model_file import digest_arrays, read_model
from segkit.segmentation.segmenter import load

SETS = ("drive", "dsb2018_stained", "isbi2012_em", "kvasir_seg_256")
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of data sets, each with images/ and masks/")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--quick", action="store_true", help="two settings, on made-up images")
    parser.add_argument("--out", help="result file")
    parser.add_argument("--one", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        job, out = arguments.one
        wanted = json.loads(job.read_text())
        run_one(Path(wanted["data"]), wanted["train"], wanted["test"], out)
        return
    path = result_path(arguments, "reproducibility.json")
    result: dict[str, Any] = {
        "command": "python -m benchmarks.reproducibility --data DATA",
        "code": digest_sources(),
        "machine": machine(),
        "settings": SETTINGS,
        "rows": [],
    }
    made_up = arguments.data is None or arguments.quick
    with tempfile.TemporaryDirectory() as scratch:
        if made_up:
            for index, (image, mask) in enumerate(
                zip(*make_demo_set(N_TRAIN + N_TEST, shape=(96, 96)), strict=True)
            ):
                write_image(Path(scratch) / "made-up" / "images" / f"{index}.png", image)
                write_mask(Path(scratch) / "made-up" / "masks" / f"{index}.png", 255 * mask)
        for name in ["made-up"] if made_up else arguments.sets:
            data = (Path(scratch) if made_up else arguments.data) / name
            train, test = split(data, 0, N_TRAIN)
            test = test[:N_TEST]
            job = Path(scratch) / f"{name}.json"
            job.write_text(json.dumps({"data": str(data.resolve()), "train": train, "test": test}))
            for setting in list(SETTINGS)[: 2 if arguments.quick else None]:
                out = Path(scratch) / name / setting
                out.mkdir(parents=True)
                command = [sys.executable, "-m", "benchmarks.reproducibility", "--one", str(job), str(out)]
                subprocess.run(command, check=True, env=os.environ | SETTINGS[setting])
                if setting != PLAIN:
                    row = {"set": name, "setting": setting, **compare(out.with_name(PLAIN), out, test)}
                    result["rows"].append(row)
                    print(json.dumps(row))
                    write_result(path, result)


if __name__ == "__main__":
    main()
