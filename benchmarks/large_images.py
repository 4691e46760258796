"""Time and memory to segment large images, which are looked at tile by tile.

    python -m benchmarks.large_images [--vgg19 VGG19.npz --squeezenet SQUEEZENET.npz] [--quick] [--out FILE]

Recipes are trained on two drawn pictures, and segment one of them, repeated until it fills a square. Each square has a
process of its own, whose peak memory is that of Python, of its libraries, of the image and of all results. Seconds are
compared with those that as many small pictures take in the same process. Labels with and without tiles are compared on
a square that is just large enough to be cut.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import result_path, write_result
from benchmarks.segmentation import NETWORKS, VGG_ALONE, bank_option
from segkit import Segmenter, load
from segkit.benchmark.machine import machine, peak_memory_mib
from segkit.cli.phantom import make_demo_set
from segkit.config.schema import Config
from segkit.features import tiles

SMALL = 256
SIDES = [512, 1024, 2048, 4096]
COMPARED = 1280


def square(side: int) -> NDArray[np.float32]:
    """One drawn picture, repeated, so that there are lesions all over the image."""
    [image] = make_demo_set(1, shape=(SMALL, SMALL))[0]
    n_times = -(-side // SMALL)
    return np.tile(image, (n_times, n_times, 1))[:side, :side]


def measure(model: Path, side: int) -> dict[str, Any]:
    """Segment a square, after small pictures."""
    segmenter = load(model)
    small, large = square(SMALL), square(side)
    segmenter.predict(small)
    seconds = []
    for image in (small, small, small, large):
        start = time.perf_counter()
        segmenter.predict(image)
        seconds.append(time.perf_counter() - start)
    ratio = seconds[-1] / (np.median(seconds[:-1]) * (side / SMALL) ** 2)
    return {"side": side, "seconds": seconds[-1], "ratio": ratio, "peak_memory_mib": peak_memory_mib()}


def compare(segmenter: Segmenter, side: int) -> dict[str, Any]:
    """Segment a square with tiles and without."""
    image, limit = square(side), tiles.PIXELS_AT_ONCE
    maps = {}
    for name, n_pixels in (("whole", side**2), ("tiles", min(limit, side**2 // 2))):
        tiles.PIXELS_AT_ONCE = n_pixels
        maps[name] = segmenter.decision_function(image)
    tiles.PIXELS_AT_ONCE = limit
    difference = np.abs(maps["tiles"] - maps["whole"])
    labels = [decisions > segmenter.threshold_ for decisions in maps.values()]
    return {
        "side": side,
        "largest_difference": float(difference.max()),
        "standard_deviation": float(maps["whole"].std()),
        "share_of_labels_changed": float(np.mean(labels[0] != labels[1])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vgg19", type=Path, help="weights; networks are left out without them")
    parser.add_argument("--squeezenet", type=Path, help="weights")
    parser.add_argument("--quick", action="store_true", help="small squares, no networks: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--measure", nargs=2, metavar=("MODEL", "SIDE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        model, side = arguments.measure
        print(json.dumps(measure(Path(model), int(side))))
        return

    recipes: dict[str, list[str]] = {"default, no weights": []}
    if arguments.vgg19 and arguments.squeezenet and not arguments.quick:
        recipes["VGG19 and SqueezeNet"] = [bank_option(arguments, NETWORKS)]
        recipes["VGG19 to conv3_4"] = [bank_option(arguments, VGG_ALONE)]
    sides = [300] if arguments.quick else SIDES
    images, masks = make_demo_set(2, shape=(SMALL, SMALL))
    records = []
    for title, options in recipes.items():
        segmenter = Config.load(None, options).build().fit(images, masks)
        compared = compare(segmenter, sides[0] if arguments.quick else COMPARED)
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model.segkit"
            segmenter.save(model)
            squares = []
            for side in sides:
                command = [sys.executable, "-W", "ignore", "-m", "benchmarks.large_images"]
                found = subprocess.run(
                    [*command, "--measure", str(model), str(side)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                squares.append(json.loads(found.stdout))
                print(
                    f"{title}, {side} x {side}: {squares[-1]['seconds']:.0f} s, {squares[-1]['ratio']:.2f} times small "
                    f"pictures; at most {squares[-1]['peak_memory_mib'] / 1024:.1f} GiB",
                    flush=True,
                )
        records.append({"recipe": title, "squares": squares, "tiles": compared})
        print(f"{title}: {compared['share_of_labels_changed']:.2e} of labels changed by tiles", flush=True)
        write_result(result_path(arguments, "large_images.json"), {"records": records, "machine": machine()})


if __name__ == "__main__":
    main()
