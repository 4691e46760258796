"""Time to segment images beside the pixel forest; the price of `--fast`; the time to tell objects apart.

    python -m benchmarks speed --data DATA [--weights WEIGHTS] [--sets ...] [--seeds N]

Models of five images of each set segment its other images, which are mirrored to the size. Recipes and the forest take turns
on every image, so that other work on the machine slows all of them alike.

Rows "fast" have the price of `segkit train --fast`: mean IoU and processor time beside the default recipe, on the same
images. Rows "objects" have the time to split and measure drawn cells, beside the time to segment them and scikit-image's.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.measure import regionprops_table

from benchmarks.objects import draw
from benchmarks.rows import Row, Study, flat
from benchmarks.segmentation import DEVELOPMENT, NETWORKS, bank_option, split
from segkit import Segmenter
from segkit.baselines import PixelForest
from segkit.cli.phantom import make_demo_set
from segkit.config.read import shipped
from segkit.config.schema import Config
from segkit.evaluation.metrics import confusion, iou_of
from segkit.images import load_pairs
from segkit.objects import measure as measure_objects
from segkit.objects.split import Splitter

Image = NDArray[np.float32]
RECIPES = ("default", "networks")
FOREST = "forest"
SIZES = [256, 512, 1024, 2048]
N_TRAIN, N_IMAGES = 5, 5
QUICK = ["bank={name: scattering, J: 2, L: 3}", "selection.pixels=400", "training.pixels=1000"]


def resized(image: Image, side: int) -> Image:
    """Mirror or crop an image to a square."""
    pads = [(0, max(0, side - length)) for length in image.shape[:2]]
    return np.ascontiguousarray(np.pad(image, (*pads, (0, 0)), mode="symmetric")[:side, :side])


def settings_of(recipe: str, study: Study) -> list[str]:
    """Return the options of a recipe."""
    if study.quick:
        return QUICK
    return [bank_option(study, NETWORKS)] if recipe == "networks" else []


def sgemm_rate(n: int = 2048, n_repeats: int = 5) -> float:
    """Best measured rate of a float32 matrix product, in floating-point operations per second."""
    a = np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
    return 2 * n**3 / min(seconds_of(lambda: a @ a, n_repeats))


def seconds_of(function: Callable[[], Any], n_repeats: int = 1) -> list[float]:
    """Seconds of each of several calls."""
    seconds = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return seconds


def take_turns(models: dict[str, Any], images: list[Image]) -> dict[str, NDArray[np.float64]]:
    """Seconds on the clock and processor seconds of each model on each image, (n_images, 2)."""
    seconds: dict[str, list[Any]] = {name: [] for name in models}
    for image in images:
        for name, model in models.items():
            start = np.array([time.perf_counter(), time.process_time()])
            model.predict(image)
            seconds[name].append(np.array([time.perf_counter(), time.process_time()]) - start)
    return {name: np.array(found) for name, found in seconds.items()}


def read_split(study: Study, name: str, seed: int, n_images: int) -> tuple[Any, Any]:
    """Return training pairs and test pairs of a set."""
    if study.quick:
        images, masks = make_demo_set(3, shape=(64, 64))
        return (images[:2], masks[:2]), (images[2:], masks[2:])
    folder = study.folder(name)
    dataset = load_pairs(folder / "images", folder / "masks")
    places = {stem: place for place, stem in enumerate(dataset.stems)}
    train, test = split(folder, seed, N_TRAIN)
    training, rest = (
        ([dataset.images[places[stem]] for stem in stems], [dataset.masks[places[stem]] for stem in stems])
        for stems in (train, test[:n_images])
    )
    return training, rest


def measure(study: Study, name: str) -> None:
    """Time and profile every recipe on a set, at each size."""
    (images, masks), (test, _) = read_split(study, name, 0, N_IMAGES)
    n_channels = images[0].shape[2]
    recipes = RECIPES if study.weights and not study.quick else RECIPES[:1]
    models: dict[str, Any] = {
        recipe: Config.load(None, settings_of(recipe, study)).build().fit(images, masks) for recipe in recipes
    }
    models[FOREST] = PixelForest(training_pixels=1000 if study.quick else 30_000).fit(images, masks)
    for side in [64] if study.quick else SIZES:
        # of large images a single one is enough
        squares = [resized(image, side) for image in test[: max(1, N_IMAGES * 512**2 // side**2)]]
        if side <= 512:  # the first image of a size finds caches empty
            take_turns(models, squares[:1])
        seconds = take_turns(models, squares)
        for recipe in recipes:
            own, rival = seconds[recipe], seconds[FOREST]
            figures = {
                kind: {
                    "seconds": float(np.median(own[:, column])),
                    "forest_seconds": float(np.median(rival[:, column])),
                    "ratio": float(np.median(own[:, column] / rival[:, column])),
                }
                for column, kind in enumerate(("wall", "processor"))
            }
            where = {"recipe": recipe, "set": name, "n_channels": n_channels, "side": side}
            study.row(where, lambda figures=figures: figures)


def price(training: Any, test: Any, options: list[str]) -> dict[str, Any]:
    """Train the default recipe and the fast one, and segment each test image with both."""
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


# Columns of scikit-image that `segkit.objects.measure` gives too.
PROPERTIES = (
    "label", "area", "centroid", "bbox", "perimeter", "axis_major_length", "axis_minor_length", "eccentricity",
    "solidity", "intensity_mean", "intensity_std",
)  # fmt: skip


def time_objects(side: int, n_objects: int) -> dict[str, Any]:
    """Segment drawn cells, and split and measure them on maps as a classifier gives them: blurred, with some noise."""
    pairs = [draw(256, 80, seed) for seed in (1, 2)]
    masks = [(labels > 0).astype(np.uint8) for _, labels in pairs]
    segmenter = Segmenter().fit([picture for picture, _ in pairs], masks)
    image, labels = draw(side, n_objects)
    mask = labels > 0
    noise = np.random.default_rng(0).standard_normal(mask.shape, dtype=np.float32)
    inside = gaussian_filter(mask.astype(np.float32), 2) + 0.05 * noise
    splitter = Splitter("distance+inside", radius=6.5)
    steps = {
        "split": lambda: splitter.split(mask, inside=inside),
        "measure": lambda: measure_objects(labels, image),
        "scikit-image": lambda: regionprops_table(labels, image, properties=PROPERTIES),
    }
    return {
        "segmentation_seconds": min(seconds_of(lambda: segmenter.predict(image))),
        "seconds": {name: float(np.median(seconds_of(step, 5))) for name, step in steps.items()},
    }


def run(study: Study) -> None:
    names = ["made-up"] if study.quick else study.sets or DEVELOPMENT
    for name in names:
        measure(study, name)
    for seed, name in itertools.product(range(1 if study.quick else study.seeds or 2), names):
        options = ["selection.pixels=400", "training.pixels=1000"] if study.quick else []
        study.row(
            {"set": name, "seed": seed},
            lambda name=name, seed=seed, options=options: price(*read_split(study, name, seed, 20), options),
            what="fast",
        )
    side, n_objects = (300, 100) if study.quick else (2048, 5000)
    where = {"side": side, "n_objects": n_objects}
    study.row(where, lambda: time_objects(side, n_objects), what="objects")


def speed(rows: list[Row]) -> str:
    """Time beside the forest, of the first code and of the last one that was measured at each size."""
    records = _with_code(rows)
    sides = sorted({record["side"] for record in records})
    lines = [
        "| recipe | set | channels | " + " | ".join(f"{side:,} x {side:,}" for side in sides) + " | growth |",
        "|---|---|---|" + "---|" * (len(sides) + 1),
    ]
    for key in dict.fromkeys((record["recipe"], record["set"], record["n_channels"]) for record in records):
        own = [record for record in records if (record["recipe"], record["set"], record["n_channels"]) == key]
        ratios = [
            first_to_last([one["processor"]["ratio"] for one in own if one["side"] == side]) for side in sides
        ]
        exponents = [
            exponent
            for code in dict.fromkeys(one["code"] for one in own)
            if (
                exponent := growth(
                    {one["side"]: one["processor"]["seconds"] for one in own if one["code"] == code}
                )
            )
        ]
        lines.append(f"| {' | '.join(map(str, key))} | {' | '.join(ratios)} | {first_to_last(exponents)} |")
    return "\n".join(lines)


def _with_code(rows: list[Row]) -> list[dict[str, Any]]:
    return [row["where"] | row["figures"] | {"code": row["commit"]} for row in rows if row["what"] == "speed"]


def first_to_last(numbers: list[float]) -> str:
    """Write the first number and the last one; there may be one, or none."""
    return " to ".join(f"{number:.2f}" for number in dict.fromkeys(numbers[:1] + numbers[-1:]))


def growth(seconds: dict[int, float]) -> float | None:
    """Exponent of the growth of seconds with the number of pixels: the slope of a line through the logarithms."""
    if len(seconds) < 2:
        return None
    return float(np.polyfit(2 * np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])


def fast(rows: list[Row]) -> str:
    """Price of `segkit train --fast`."""
    records = flat(rows, "fast")
    lines = [
        "| set | mean IoU, default | mean IoU, `--fast` | difference, by seed | processor time, times the default |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(record["set"] for record in records):
        own = [record for record in records if record["set"] == name]
        means = {
            recipe: [float(np.mean(record[recipe]["mean_iou"])) for record in own]
            for recipe in ("default", "fast")
        }
        ratios = np.concatenate(
            [np.divide(record["fast"]["seconds"], record["default"]["seconds"]) for record in own]
        )
        differences = ", ".join(f"{b - a:+.3f}" for a, b in zip(*means.values(), strict=True))
        lines.append(
            f"| {name} | {np.mean(means['default']):.3f} | {np.mean(means['fast']):.3f} | {differences} "
            f"| {np.median(ratios):.2f} |"
        )
    return "\n".join(lines)


TABLES = {"speed": speed, "fast": fast}
