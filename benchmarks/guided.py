"""What guided upsampling of coarse maps would add: decisions from coarse layers, filtered by the image.

    python -m benchmarks.guided --data DATA --squeezenet SQUEEZENET.npz [--sets ...] [--seeds N] [--quick]

The banks are the layers of SqueezeNet from fire5 on, whose cells are 8 and 16 pixels wide, and all of its layers beside the
multiscale filters, in segkit's default recipe. The
decisions on a test image, interpolated bilinearly, are filtered by the guided filter (K. He, J. Sun, X. Tang, Guided image
filtering, ECCV 2010, eq. 5 to 8), whose guide is the grey image, and by a mean over the same square, which does not see the
image. Decisions of a linear classifier are sums of maps, and the filter is linear in what it filters: filtering the maps
themselves would give the same linear part. Thresholds are those of the training, and of each image. Written to guided.json:
object IoU and mean IoU of each way, means over the test images. Runs that the file holds already are kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from benchmarks.common import result_path, split, write_result
from benchmarks.segmentation import write_made_up
from segkit import ConvNetBank, Segmenter, StackedBank
from segkit.evaluation.metrics import score_masks
from segkit.features import FilterBank, MultiscaleBank
from segkit.images import load_pairs
from segkit.segmentation.regions import merge_small_regions
from segkit.segmentation.threshold import image_threshold

SETS = ("kvasir_seg_256", "dsb2018_stained")
LAYERS = tuple(f"fire{number}_{part}" for number in range(5, 10) for part in ("expand1x1", "expand3x3"))
RADII = (4, 8, 16)
REGULARISERS = (1e-4, 1e-3, 1e-2)
N_TEST = 60
Plane = NDArray[np.float64]


def guided_filter(values: Plane, guide: Plane, radius: int, eps: float) -> Plane:
    """Filter values by an image in [0, 1]: in each square they are a linear function of the image (eq. 5 to 8)."""

    def mean(plane: Plane) -> Plane:
        return np.asarray(uniform_filter(plane, 2 * radius + 1, mode="reflect"))

    guide_mean, value_mean = mean(guide), mean(values)
    slope = (mean(guide * values) - guide_mean * value_mean) / (mean(guide**2) - guide_mean**2 + eps)
    return mean(slope) * guide + mean(value_mean - slope * guide_mean)


def ways(decisions: Plane, image: NDArray[Any]) -> dict[str, Plane]:
    """Decisions of an image as they are, and filtered in each way."""
    guide = np.asarray(image, dtype=np.float64)
    guide = guide.mean(axis=2) if guide.ndim == 3 else guide
    found = {"bilinear": decisions}
    for radius in RADII:
        found[f"mean, radius {radius}"] = uniform_filter(decisions, 2 * radius + 1, mode="reflect")
        for eps in REGULARISERS:
            found[f"guided, radius {radius}, eps {eps:g}"] = guided_filter(decisions, guide, radius, eps)
    return found


def make_banks(weights: str | Path, preprocessing: str) -> dict[str, FilterBank]:
    """Make the banks."""
    options = {"weights": weights, "preprocessing": preprocessing}
    return {
        "coarse layers of SqueezeNet": ConvNetBank("squeezenet1_0", **options, layers=LAYERS),
        "SqueezeNet, multiscale": StackedBank([ConvNetBank("squeezenet1_0", **options), MultiscaleBank()]),
    }


def measure(folder: Path, segmenter: Segmenter, seed: int, n_train: int) -> dict[str, dict[str, float]]:
    """Train once, and give object IoU and mean IoU of each way, means over the test images."""
    dataset = load_pairs(folder / "images", folder / "masks")
    train, test = split(folder, seed, n_train)
    place = {stem: index for index, stem in enumerate(dataset.stems)}
    learnt = [place[stem] for stem in train]
    segmenter.fit(
        [dataset.images[index] for index in learnt],
        [dataset.masks[index] for index in learnt],
        label_map=dataset.label_map,
    )
    scores: dict[str, list[tuple[float, float]]] = {}
    for index in [place[stem] for stem in test[:N_TEST]]:
        image, truth = dataset.images[index], dataset.label_map.encode(dataset.masks[index])
        decisions = segmenter.decision_function(image).astype(np.float64)
        for way, treated in ways(decisions, image).items():
            threshold = image_threshold(
                treated.astype(np.float32), segmenter.threshold_, segmenter.otsu_weight_
            )
            ids = merge_small_regions((treated > threshold).astype(np.intp), segmenter.least_areas_)
            found = score_masks([truth], [ids], 2)
            scores.setdefault(way, []).append((float(found.iou[0, 1]), found.mean))
    return {
        way: dict(zip(("object_iou", "mean_iou"), np.nanmean(np.array(pairs), axis=0).tolist(), strict=True))
        for way, pairs in scores.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--squeezenet", type=Path, help="weights of SqueezeNet 1.0, Caffe's preprocessing")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--train-size", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="made-up images, random weights: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if not arguments.quick and None in (arguments.data, arguments.squeezenet):
        parser.error("--data and --squeezenet: needed, or --quick")
    with tempfile.TemporaryDirectory() as temporary:
        weights, preprocessing = arguments.squeezenet, "caffe"
        if arguments.quick:
            arguments.data, arguments.sets = Path(temporary), ["made-up"]
            arguments.train_size, arguments.seeds = 2, 1
            write_made_up(arguments.data / "made-up")
            weights, preprocessing = "random", "torchvision"
        path = result_path(arguments, "guided.json")
        records = json.loads(path.read_text())["records"] if path.exists() and not arguments.quick else []
        banks = make_banks(weights, preprocessing)
        for title, name, seed in itertools.product(banks, arguments.sets, range(arguments.seeds)):
            run = {"bank": title, "set": name, "n_train": arguments.train_size, "seed": seed}
            if any(run.items() <= record.items() for record in records):
                continue
            segmenter = Segmenter(banks[title], random_state=seed)
            found = measure(arguments.data / name, segmenter, seed, arguments.train_size)
            records.append(run | {"scores": found})
            write_result(path, {"n_test_at_most": N_TEST, "records": records})
            means = {way: round(score["object_iou"], 3) for way, score in found.items()}
            print(title, name, seed, means, flush=True)


if __name__ == "__main__":
    main()
