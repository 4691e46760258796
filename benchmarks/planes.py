"""Volumes of electron microscopy, plane by plane: what neighbouring planes and 3-D filters add to 2-D filters.

    python -m benchmarks.planes --data DATA [--sets ...] [--seeds N] [--quick]

A few planes of a volume are annotated, drawn at random, and others are segmented: planes that are not annotated, spread
evenly over the volume, the same for all ways. All ways have the multiscale bank's blurs of 1 to 16 pixels and the default
recipe otherwise: 2-D filters of the plane; those of the plane and of 1 or 2 neighbours on either side as further
channels; 3-D filters of 9 planes. Volumes are read as stacks, as `segkit train --set data.context=k` does. Planes are
halved to 256 x 256. Written to planes.json after each training; a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from benchmarks.common import digest_sources, result_path, write_result
from segkit import Segmenter
from segkit.features import FilterBank, MultiscaleBank, VolumeBank
from segkit.images import Reading, load_pairs

# Nanometres from plane to plane and from pixel to pixel of the files, as the publications of the data state them.
SETS = {"isbi2012_em": (50.0, 4.0), "vnc_mito": (47.5, 9.2)}
ANNOTATED = (1, 3, 5)
CONTEXTS = {"2-D": 0, "2.5-D, 1 neighbour": 1, "2.5-D, 2 neighbours": 2, "3-D": 4}
UNLABELLED = 2
N_TESTED = 8
SHRINK = 2


def read_volume(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read planes in the order of their names, halved, and their masks of 0 and 1."""
    images, masks = (
        np.stack([np.asarray(Image.open(path)) for path in sorted((folder / name).glob("*.png"))])
        for name in ("images", "masks")
    )
    return _halved(images).round().astype(np.uint8), (_halved(masks > 0) >= 0.5).astype(np.uint8)


def _halved(planes: NDArray[Any]) -> NDArray[np.float64]:
    n_planes, height, width = planes.shape
    return planes.reshape(n_planes, height // SHRINK, SHRINK, width // SHRINK, SHRINK).mean(axis=(2, 4))


def make_up_volume(rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Make noisy planes through a slanted tube."""
    z, y, x = np.mgrid[:10, :40, :40]
    mask = ((y - 15 - z) ** 2 + (x - 20) ** 2 < 60).astype(np.uint8)
    return (60 + 60 * mask + rng.integers(0, 60, mask.shape)).astype(np.uint8), mask


def draw(n_planes: int, n_annotated: int, seed: int) -> tuple[list[int], list[int]]:
    """Draw annotated planes, and spread the tested ones evenly over the others."""
    annotated = np.random.default_rng(seed).permutation(n_planes)[:n_annotated]
    others = np.setdiff1d(np.arange(n_planes), annotated)
    places = np.linspace(0, len(others) - 1, min(N_TESTED, len(others))).round().astype(int)
    return sorted(annotated.tolist()), others[places].tolist()


def run(
    volume: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    spacing: float,
    way: str,
    n_annotated: int,
    seed: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Train on the annotated planes of a stack, and score others."""
    images, masks = volume
    annotated, tested = draw(len(images), n_annotated, seed)
    drawn = np.full_like(masks, UNLABELLED)
    drawn[annotated] = masks[annotated]
    reading = Reading(context=CONTEXTS[way])
    with tempfile.TemporaryDirectory() as place:
        for name, array in (("image.tif", images), ("mask.tif", drawn)):
            tifffile.imwrite(Path(place) / name, array, imagej=True, metadata={"axes": "ZYX"})
        files = Path(place) / "image.tif", Path(place) / "mask.tif"
        dataset = load_pairs(*files, unlabelled=UNLABELLED, only_annotated=True, reading=reading)
        stack = reading.read(files[0])
    bank: FilterBank = MultiscaleBank(sigma_max=16)
    if way == "3-D":
        bank = VolumeBank(n_planes=reading.n_planes, z_spacing=spacing, sigma_max=16)
    start = time.perf_counter()
    segmenter = Segmenter(bank, random_state=seed, **options)
    segmenter.fit(dataset.images, dataset.masks, label_map=dataset.label_map)
    seconds = time.perf_counter() - start
    planes = [reading.scale(page, name="plane") for page in stack.pages]
    around = reading.in_context(planes, stack.layout, 1, name="volume")
    start = time.perf_counter()
    found = segmenter.predict([around[index] for index in tested])
    predicting = (time.perf_counter() - start) / len(tested)
    return {
        "annotated": annotated,
        "tested": tested,
        "iou": [round(_iou(masks[index], mask), 4) for index, mask in zip(tested, found, strict=True)],
        "fit_seconds": round(seconds, 2),
        "predict_seconds": round(predicting, 3),
    }


def _iou(truth: NDArray[Any], found: NDArray[Any]) -> float:
    """IoU of the foreground."""
    return float(np.sum((truth == 1) & (found == 1)) / np.sum((truth == 1) | (found == 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a made-up volume, one seed")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    path = result_path(arguments, "planes.json")
    if arguments.quick:
        volumes = {"made-up": make_up_volume(np.random.default_rng(0))}
        spacings, n_seeds = {"made-up": 1.0}, 1
        options: dict[str, Any] = {"training_pixels": 1000, "selection_pixels": 500}
    else:
        volumes = {name: read_volume(arguments.data / name) for name in arguments.sets}
        spacings = {name: SETS[name][0] / (SETS[name][1] * SHRINK) for name in arguments.sets}
        n_seeds, options = arguments.seeds, {}
    result = json.loads(path.read_text()) if path.exists() else {"runs": []}
    known = {(entry["set"], entry["way"], entry["n_annotated"], entry["seed"]) for entry in result["runs"]}
    for seed, name, n_annotated, way in itertools.product(range(n_seeds), volumes, ANNOTATED, CONTEXTS):
        if (name, way, n_annotated, seed) in known:
            continue
        entry = {"set": name, "way": way, "n_annotated": n_annotated, "seed": seed}
        entry |= run(volumes[name], spacings[name], way, n_annotated, seed, options)
        result["runs"].append(entry | {"sources": digest_sources()})
        write_result(path, result)
        print(
            f"{name}, {way}, {n_annotated} planes, seed {seed}: IoU {np.mean(entry['iou']):.3f}", flush=True
        )


if __name__ == "__main__":
    main()
