"""Volumes of electron microscopy, plane by plane: what neighbouring planes and 3-D filters add to 2-D filters.

    python -m benchmarks planes --data DATA [--sets ...] [--seeds N]

A few planes of a volume are annotated, drawn at random, and others are segmented: planes that are not annotated, spread
evenly over the volume, the same for all ways. All ways have the multiscale bank's blurs of 1 to 16 pixels and the default
recipe otherwise: 2-D filters of the plane; those of the plane and of 1 or 2 neighbours on either side as further
channels; 3-D filters of 9 planes. Volumes are read as stacks, as `segkit train --set data.context=k` does. Planes are
halved to 256 x 256.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from benchmarks.markdown import difference_of, paired
from benchmarks.rows import Row, Study, flat
from segkit import Segmenter
from segkit.evaluation.statistics import compare
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


def measure(
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


def run(study: Study) -> None:
    options: dict[str, Any] = {}
    if study.quick:
        volumes = {"made-up": make_up_volume(np.random.default_rng(0))}
        spacings, n_seeds, numbers = {"made-up": 1.0}, 1, ANNOTATED[:1]
        options = {"training_pixels": 1000, "selection_pixels": 500}
    else:
        volumes = {name: read_volume(study.folder(name)) for name in study.sets or SETS}
        spacings = {name: SETS[name][0] / (SETS[name][1] * SHRINK) for name in volumes}
        n_seeds, numbers = study.seeds or 3, ANNOTATED
    for seed, name, n_annotated, way in itertools.product(range(n_seeds), volumes, numbers, CONTEXTS):
        where = {"set": name, "way": way, "n_annotated": n_annotated, "seed": seed}
        study.row(where, partial(measure, volumes[name], spacings[name], way, n_annotated, seed, options))


def planes(rows: list[Row]) -> str:
    """IoU of each way by set and number of annotated planes, and how far 3-D and 2.5-D are from 2-D."""
    runs = flat(rows)
    ways = list(dict.fromkeys(run["way"] for run in runs))
    found: dict[tuple[str, int, str], dict[tuple[int, str], float]] = {}
    for run in runs:
        iou = {(run["seed"], str(plane)): iou for plane, iou in zip(run["tested"], run["iou"], strict=True)}
        found.setdefault((run["set"], run["n_annotated"], run["way"]), {}).update(iou)
    lines = [
        f"| volume | annotated planes | {' | '.join(ways)} | {' | '.join(f'{way}, less 2-D' for way in ways[1:])} |",
        f"| {' | '.join(['---'] * (1 + 2 * len(ways)))} |",
    ]
    drawn: list[int] = []
    for name, n_annotated in dict.fromkeys(key[:2] for key in found):
        by_way = [found.get((name, n_annotated, way), {}) for way in ways]
        of_all = set.intersection(*(set(scores) for scores in by_way))
        if not of_all:
            continue
        usual, *others = [{key: scores[key] for key in sorted(of_all)} for scores in by_way]
        cells = [f"{np.mean(list(scores.values())):.3f}" for scores in (usual, *others)]
        cells += [difference_of(compare(*paired(scores, usual))) for scores in others]
        lines.append(f"| {name} | {n_annotated} | {' | '.join(cells)} |")
        drawn.append(len({seed for seed, _ in of_all}))
    n_draws = " to ".join(map(str, dict.fromkeys((min(drawn), max(drawn)))))
    n_tested = max(len(run["tested"]) for run in runs)
    seconds = ", ".join(
        f"{way} {np.median([run['predict_seconds'] for run in runs if run['way'] == way]):.2f} s"
        for way in ways
    )
    return "\n".join(
        [
            *lines,
            "",
            f"IoU of the object on {n_tested} planes that are not annotated, mean of {n_draws} draws of annotated planes; "
            f"in brackets 95 % intervals over draws and planes. Planes are halved to 256 x 256, and all ways "
            f"have the blurs of 1 to 16 pixels of the multiscale bank. 3-D filters see 4 planes on either side. Median "
            f"seconds to segment a plane, by one thread of a busy machine: {seconds}.",
        ]
    )


TABLES = {"planes": planes}
