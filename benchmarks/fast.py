"""Price of `segkit train --fast`: mean IoU and processor time beside the default recipe.

    python -m benchmarks.fast --data DATA [--sets ...] [--seeds N] [--images N] [--quick] [--out FILE]

Both recipes train on the same five images and segment the same test images in turns. Each seed draws images anew.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import digest_sources, result_path, split, write_result
from benchmarks.segmentation import SETS
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.config.read import shipped
from segkit.config.schema import Config
from segkit.evaluation.metrics import confusion, iou_of
from segkit.images import load_pairs

N_TRAIN = 5
QUICK = ["selection.pixels=400", "training.pixels=1000"]


def measure(training: Any, test: Any, options: list[str]) -> dict[str, Any]:
    """Train both recipes, and segment each test image with both."""
    models = {
        "default": Config.load(None, options).build().fit(*training),
        "fast": Config.load(shipped("fast"), options).build().fit(*training),
    }
    found: dict[str, Any] = {name: {"mean_iou": [], "seconds": []} for name in models}
    for image, mask in zip(*test, strict=True):
        for name, model in models.items():
            start = time.process_time()
            prediction = model.predict(image)
            found[name]["seconds"].append(time.process_time() - start)
            counts = confusion(model.label_map_.encode(mask), model.label_map_.encode(prediction), 2)
            found[name]["mean_iou"].append(float(np.nanmean(iou_of(counts))))
    return found


def read(folder: Path, seed: int, n_images: int) -> tuple[Any, Any]:
    """Give training pairs and test pairs of a set."""
    dataset = load_pairs(folder / "images", folder / "masks")
    images = dict(zip(dataset.stems, dataset.images, strict=True))
    masks = dict(zip(dataset.stems, dataset.masks, strict=True))
    train, test = split(folder, seed, N_TRAIN)
    training, rest = (
        ([images[stem] for stem in stems], [masks[stem] for stem in stems])
        for stems in (train, test[:n_images])
    )
    return training, rest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with a folder for each set")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=20, help="test images of each set and seed, at most")
    parser.add_argument("--quick", action="store_true", help="made-up images: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if not arguments.quick and arguments.data is None:
        parser.error("--data: needed, or --quick")
    records = []
    for seed in range(1 if arguments.quick else arguments.seeds):
        for name in ["made-up"] if arguments.quick else arguments.sets:
            if arguments.quick:
                images, masks = make_demo_set(3, shape=(64, 64))
                training, test, options = (images[:2], masks[:2]), (images[2:], masks[2:]), QUICK
            else:
                (training, test), options = read(arguments.data / name, seed, arguments.images), []
            found = measure(training, test, options)
            records.append({"set": name, "seed": seed, **found})
            result = {"code": digest_sources(), "records": records, "machine": machine()}
            write_result(result_path(arguments, "fast.json"), result)
            scores = {recipe: np.mean(values["mean_iou"]) for recipe, values in found.items()}
            ratio = np.median(np.divide(found["fast"]["seconds"], found["default"]["seconds"]))
            print(
                f"{name}, seed {seed}: IoU {scores['fast']:.3f} instead of {scores['default']:.3f}, "
                f"{ratio:.2f} x the time",
                flush=True,
            )


if __name__ == "__main__":
    main()
