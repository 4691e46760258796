"""Time to segment images beside the pixel forest; the price of `--config fast`.

    python -m benchmarks speed --data DATA [--weights WEIGHTS] [--sets ...] [--seeds N]

Models of five images of each set segment its other images, which are mirrored to the size. Recipes and the forest take turns
on every image, so that other work on the machine slows all of them alike.

Rows "fast" have the price of `segkit train --config fast`: mean IoU and processor time beside the default recipe, on the
same images. Rows "training" have the time on the clock and the memory to train on five images, each recipe in a process
of its own on all cores, which should have nothing else to do: about ten minutes. Rows "whole" have the price of whole
networks, VGG16 in the recipe of the source paper and FCN-8s on VGG16, with random weights in place of those that are
downloaded. Rows "objects" have the time to split and measure drawn cells; their code stands in commit 6500e25.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.markdown import markdown_table
from benchmarks.rows import Row, Study, flat
from benchmarks.segmentation import DEVELOPMENT, NETWORKS, bank_option, split
from segkit.baselines import FCN, PixelForest
from segkit.benchmark.machine import peak_memory_mib
from segkit.cli.phantom import make_demo_set
from segkit.config.read import shipped
from segkit.config.schema import Config
from segkit.evaluation.metrics import confusion, iou_of
from segkit.images import load_pairs

Image = NDArray[np.float32]
RECIPES = ("default", "networks")
TUNED = "tuned"
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


def train_alone(recipe: str, options: list[str], training: Any) -> dict[str, Any]:
    """Train a recipe in a process of its own: seconds on the clock, and the most memory."""
    model = Config.load(shipped(TUNED) if recipe == TUNED else None, options).build()
    start = time.perf_counter()
    model.fit(*training)
    return {"seconds": time.perf_counter() - start, "peak_memory_mib": peak_memory_mib()}


def price_of_training(study: Study, training: Any) -> dict[str, Any]:
    """Train each recipe, one after the other."""
    networks = "bank.0.banks.0"
    if study.quick:
        few = [f"{networks}.weights=random", f"{networks}.n_steps=2", *QUICK[1:]]
        options = {"default": QUICK, TUNED: few}
    else:
        options = {recipe: settings_of(recipe, study) for recipe in RECIPES}
        options[TUNED] = [f"{networks}.weights={study.weight('mobilenet_v2')}"]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return {
            recipe: pool.apply(train_alone, (recipe, given, training)) for recipe, given in options.items()
        }


def price_of_whole(training: Any, test: Any, n_steps: int) -> dict[str, Any]:
    """Train and use whole networks, and the forest: processor seconds, and the most memory so far."""
    found: dict[str, Any] = {}
    models = {
        FOREST: PixelForest(),
        "paper-004": Config.load(shipped("paper-004"), ["bank.weights=random"]).build(),
        "fcn": FCN(max_steps=n_steps, eval_every=n_steps, crop=160),
    }
    for name, model in models.items():
        start = time.process_time()
        model.fit(*training)
        trained = time.process_time()
        for image in test[0]:
            model.predict(image)
        found[name] = {
            "fit_seconds": trained - start,
            "image_seconds": (time.process_time() - trained) / len(test[0]),
            "peak_memory_mib": peak_memory_mib(),
        }
    return found


def run(study: Study) -> None:
    names = ["made-up"] if study.quick else study.sets or DEVELOPMENT
    if study.quick or study.weights:
        name = names[0] if study.quick else "kvasir_seg_256"
        pairs, _ = read_split(study, name, 0, 0)
        where = {"set": name, "n_train": len(pairs[0])}
        study.row(where, lambda: price_of_training(study, pairs), what="training")
    for name in names:
        measure(study, name)
    for seed, name in itertools.product(range(1 if study.quick else study.seeds or 2), names):
        options = ["selection.pixels=400", "training.pixels=1000"] if study.quick else []
        study.row(
            {"set": name, "seed": seed},
            lambda name=name, seed=seed, options=options: price(*read_split(study, name, seed, 20), options),
            what="fast",
        )
    if not study.quick:
        pairs = read_split(study, "kvasir_seg_256", 0, 2)
        study.row({"set": "kvasir_seg_256", "steps": 8}, lambda: price_of_whole(*pairs, 8), what="whole")


def speed(rows: list[Row]) -> str:
    """Tabulate the processor time beside the forest's, and the exponent of its growth with the number of pixels."""
    records = flat(rows, "speed")
    sides, table = sorted({record["side"] for record in records}), []
    for key in dict.fromkeys((record["recipe"], record["set"]) for record in records):
        own = {one["side"]: one["processor"] for one in records if (one["recipe"], one["set"]) == key}
        ratios = [f"{own[side]['ratio']:.2f}" if side in own else "" for side in sides]
        seconds = [found["seconds"] for found in own.values()]
        table.append((*key, *ratios, f"{np.polyfit(2 * np.log(list(own)), np.log(seconds), 1)[0]:.2f}"))
    return markdown_table(("recipe", "set", *(f"{side:,} x {side:,}" for side in sides), "growth"), table)


def fast(rows: list[Row]) -> str:
    """Price of `segkit train --config fast`."""
    records = flat(rows, "fast")
    table = []
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
        table.append(
            (
                name,
                *(f"{np.mean(means[recipe]):.3f}" for recipe in means),
                differences,
                f"{np.median(ratios):.2f}",
            )
        )
    header = ("set", "default", "`--config fast`", "difference, by seed", "processor time, times the default")
    return markdown_table(header, table)


def training(rows: list[Row]) -> str:
    """Tabulate time and memory of training on a few images."""
    [row] = [row for row in rows if row["what"] == "training"]
    titles = {"default": "the default", "networks": "two networks", TUNED: "`--config tuned`"}
    usual = row["figures"]["default"]["seconds"]
    table = [
        (
            title,
            f"{found['seconds']:.0f}",
            f"{found['seconds'] / usual:.1f}",
            f"{found['peak_memory_mib'] / 1024:.1f} GiB",
        )
        for recipe, title in titles.items()
        if (found := row["figures"].get(recipe))
    ]
    header = (f"{row['where']['n_train']} images, {row['machine']}", "seconds", "times the default", "memory")
    return markdown_table(header, table)


def whole(rows: list[Row]) -> str:
    """Price of whole networks, beside the forest's."""
    [row] = [row for row in rows if row["what"] == "whole"]
    forest, table = row["figures"][FOREST], []
    titles = {
        "paper-004": "recipe of the paper, all 13 layers of VGG16",
        "fcn": f"FCN-8s on VGG16, {row['where']['steps']} steps",
    }
    for name, title in titles.items():
        own = row["figures"][name]
        ratios = [f"{own[key] / forest[key]:.1f}" for key in ("fit_seconds", "image_seconds")]
        table.append((title, *ratios, f"{own['peak_memory_mib'] / 1024:.1f} GiB"))
    return markdown_table(("", "training, times the forest's", "an image, likewise", "memory"), table)


TABLES = {"speed": speed, "training": training, "fast": fast, "whole": whole}
