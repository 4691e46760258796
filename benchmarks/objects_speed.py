"""Time to tell the objects of an image apart and to measure them, beside the time to segment it and beside scikit-image.

    python -m benchmarks.objects_speed [--quick] [--out FILE]

Round cells are drawn at random places of a grid. The default recipe without networks is trained on two small pictures
of such cells and segments the large one; every step that follows on its objects is timed on the drawn cells, in the
same run: the watershed on distance and inside, on given maps, and the measures. The growth law is of the time over the
number of objects, at one size of image and of cells.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import regionprops_table

from benchmarks.common import digest_sources, result_path, write_result
from segkit.benchmark.machine import machine
from segkit.config.schema import Config
from segkit.objects import measure
from segkit.objects.split import Splitter

SIDE, SMALL = 2048, 256
N_OBJECTS = [1250, 2500, 5000, 10_000]
SEGMENTED = 5000
# Of the drawn cells, in pixels.
RADIUS = 6.5
# Columns of scikit-image that `measure` gives too.
PROPERTIES = (
    "label", "area", "centroid", "bbox", "perimeter", "axis_major_length", "axis_minor_length", "eccentricity",
    "solidity", "intensity_mean", "intensity_std",
)  # fmt: skip
Step = Callable[[], Any]


def draw(side: int, n_objects: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Draw cells of half the spacing of a grid of 10,000 on 2,048 pixels; image and label image."""
    rng = np.random.default_rng(seed)
    spacing = SIDE / 100
    n_places = int(side / spacing)
    places = rng.permutation(n_places**2)[:n_objects]
    labels = np.zeros((side, side), dtype=np.int32)
    for number, place in enumerate(places, start=1):
        row, column = (np.array(divmod(place, n_places)) + rng.uniform(0.4, 0.6, 2)) * spacing
        corner = int(max(row - 12, 0)), int(max(column - 12, 0))
        window = labels[corner[0] : corner[0] + 24, corner[1] : corner[1] + 24]
        rows, columns = np.indices(window.shape)
        distance = np.hypot((rows + corner[0] - row) / rng.uniform(0.8, 1.2), columns + corner[1] - column)
        window[(distance < rng.uniform(5, 8)) & (window == 0)] = number
    cells = ndimage.gaussian_filter((labels > 0).astype(np.float32), 1)
    colour = np.array([0.9, 0.8, 0.9], dtype=np.float32) - cells[:, :, np.newaxis] * np.float32(
        [0.5, 0.6, 0.3]
    )
    noise = rng.standard_normal(colour.shape, dtype=np.float32)
    return np.clip(colour + 0.05 * noise, 0, 1), labels


def steps(image: NDArray[np.float32], labels: NDArray[np.int32]) -> dict[str, Step]:
    """Give what follows on a segmented image, on maps as a classifier gives them: blurred, with some noise."""
    mask = labels > 0
    noise = np.random.default_rng(0).standard_normal(mask.shape, dtype=np.float32)
    inside = ndimage.gaussian_filter(mask.astype(np.float32), 2) + 0.05 * noise
    splitter = Splitter("distance+inside", radius=RADIUS)
    return {
        "split": lambda: splitter.split(mask, inside=inside),
        "measure": lambda: measure(labels, image),
    }


def seconds_of(step: Step, n_repeats: int = 1) -> float:
    """Median of the seconds of several calls."""
    seconds = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def segmentation_seconds(image: NDArray[np.float32]) -> float:
    """Train on two small pictures, and segment this one."""
    pairs = [draw(SMALL, 80, seed) for seed in (1, 2)]
    masks = [(labels > 0).astype(np.uint8) for _, labels in pairs]
    segmenter = Config.load(None, []).build().fit([picture for picture, _ in pairs], masks)
    return seconds_of(lambda: segmenter.predict(image))


def record(side: int, n_objects: int, n_repeats: int) -> dict[str, Any]:
    """Time every step, and scikit-image, on one image."""
    image, labels = draw(side, n_objects)
    seconds = {name: seconds_of(step, n_repeats) for name, step in steps(image, labels).items()}
    seconds["scikit-image"] = seconds_of(lambda: regionprops_table(labels, image, properties=PROPERTIES))
    return {"n_objects": len(np.unique(labels)) - 1, "seconds": seconds}


def exponent(records: list[dict[str, Any]], name: str) -> float:
    """Slope of the logarithm of the time over that of the number of objects."""
    times = [entry["seconds"][name] for entry in records]
    return float(np.polyfit(np.log([entry["n_objects"] for entry in records]), np.log(times), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a small image: does it run?")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()

    side, segmented = (300, 100) if arguments.quick else (SIDE, SEGMENTED)
    numbers = [50, 100] if arguments.quick else N_OBJECTS
    records = [record(side, number, 2 if arguments.quick else arguments.repeats) for number in numbers]
    seconds = segmentation_seconds(draw(side, segmented)[0])
    of_segmented = records[numbers.index(segmented)]["seconds"]
    result = {
        "image": [side, side, 3],
        "segmented_objects": segmented,
        "segmentation_seconds": seconds,
        "ratio_to_segmentation": {name: time / seconds for name, time in of_segmented.items()},
        "records": records,
        "exponents": {name: exponent(records, name) for name in of_segmented},
        "sources": digest_sources(),
        "machine": machine(),
    }
    write_result(result_path(arguments, "objects_speed.json"), result)
    for entry in records:
        told = ", ".join(f"{name} {value:.2f} s" for name, value in entry["seconds"].items())
        print(f"{entry['n_objects']} objects: {told}")
    ratios = ", ".join(f"{name} {ratio:.4f}" for name, ratio in result["ratio_to_segmentation"].items())
    print(f"segmented in {seconds:.1f} s; as shares of that: {ratios}")


if __name__ == "__main__":
    main()
