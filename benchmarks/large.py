"""Time and memory of large images: squares seen tile by tile, training, an image read by region.

    python -m benchmarks large [--weights WEIGHTS]

Squares: recipes are trained on two drawn pictures, and segment one of them, repeated until it fills a square. Seconds are
compared with those that as many small pictures take in the same process. Labels with and without tiles are compared on a
square that is just large enough to be cut. Training is that of the default recipe under a memory limit. The image read by
region is made up and written as OME-Zarr, block by block, and segmented under the same limit.

Each measurement has a process of its own, whose peak memory is that of Python, of its libraries, of the image and of all
results.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.markdown import markdown_table
from benchmarks.rows import Row, Study, flat
from benchmarks.segmentation import NETWORKS, VGG_ALONE, bank_option
from segkit import Segmenter, load, memory_limit
from segkit.benchmark.machine import peak_memory_mib
from segkit.cli.phantom import make_demo_set
from segkit.config.schema import Config
from segkit.features import tiles
from segkit.segmentation.folders import segment_folder

SMALL, BLOCK = 256, 1024
SIDES, COMPARED = (512, 1024, 2048, 4096), 1280
LIMIT = "2GiB"


def squares(n: int, side: int) -> tuple[list[NDArray[np.float32]], list[NDArray[np.uint8]]]:
    """Drawn pictures and masks, repeated, so that there are lesions all over the images."""
    images, masks = make_demo_set(n, shape=(SMALL, SMALL))
    n_times = -(-side // SMALL)
    return (
        [np.tile(image.astype(np.float32), (n_times, n_times, 1))[:side, :side] for image in images],
        [np.tile(mask, (n_times, n_times))[:side, :side] for mask in masks],
    )


def measure_square(model: Path, side: int) -> dict[str, Any]:
    """Segment a square, after small pictures."""
    segmenter = load(model)
    [small], [large] = squares(1, SMALL)[0], squares(1, side)[0]
    segmenter.predict(small)
    seconds = []
    for image in (small, small, small, large):
        start = time.perf_counter()
        segmenter.predict(image)
        seconds.append(time.perf_counter() - start)
    ratio = seconds[-1] / (np.median(seconds[:-1]) * (side / SMALL) ** 2)
    return {"seconds": seconds[-1], "ratio": ratio, "peak_memory_mib": peak_memory_mib()}


def compare_tiles(model: Path, side: int) -> dict[str, Any]:
    """Segment a square with tiles and without."""
    segmenter, [image] = load(model), squares(1, side)[0]
    limit = tiles.PIXELS_AT_ONCE
    labels = []
    for n_pixels in (side**2, min(limit, side**2 // 2)):
        tiles.PIXELS_AT_ONCE = n_pixels
        labels.append(segmenter.decision_function(image) > segmenter.rule_.threshold)
    return {"share_of_labels_changed": float(np.mean(labels[0] != labels[1]))}


def measure_training(n_images: int, side: int) -> dict[str, Any]:
    """Train the default recipe on large images."""
    images, masks = squares(n_images, side)
    start = time.perf_counter()
    with memory_limit(LIMIT):
        Segmenter().fit(images, masks)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_memory_mib": peak_memory_mib()}


def write_large(path: Path, side: int) -> None:
    """Write a made-up image as OME-Zarr 0.5: a drawn picture, repeated, with noise of its own in each block."""
    import zarr

    [picture] = make_demo_set(1, shape=(SMALL, SMALL))[0]
    tile = np.tile(picture, (BLOCK // SMALL, BLOCK // SMALL, 1)).transpose(2, 0, 1)
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    array = group.create_array("0", shape=(3, side, side), chunks=(3, BLOCK, BLOCK), dtype="uint8")
    rng = np.random.default_rng(0)
    for row in range(0, side, BLOCK):
        for col in range(0, side, BLOCK):
            height, width = min(BLOCK, side - row), min(BLOCK, side - col)
            noisy = tile[:, :height, :width] + 0.02 * rng.standard_normal((3, height, width))
            values = np.round(255 * np.clip(noisy, 1 / 255, 1)).astype(np.uint8)
            array[:, row : row + height, col : col + width] = values
    axes = [{"name": name} for name in "cyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0"}]}]}


def measure_region(model: Path, image: Path, output: Path) -> dict[str, Any]:
    """Segment an image by region."""
    start = time.perf_counter()
    with memory_limit(LIMIT):
        [row] = segment_folder(load(model), image, output, resume=True).rows
    return {
        "seconds": time.perf_counter() - start,
        "n_tiles": row.tiles,
        "status": row.status,
        "peak_memory_mib": peak_memory_mib(),
    }


def apart(measure: Callable[..., dict[str, Any]], *arguments: Any) -> Callable[[], dict[str, Any]]:
    """Return a function that measures in a process of its own."""

    def measured() -> dict[str, Any]:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(measure, arguments)

    return measured


def run(study: Study) -> None:
    recipes: dict[str, list[str]] = {"default, no weights": []}
    if study.weights and not study.quick:
        recipes["VGG19 and SqueezeNet"] = [bank_option(study, NETWORKS)]
        recipes["VGG19 to conv3_4"] = [bank_option(study, VGG_ALONE)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for recipe, options in recipes.items():
            model = folder / f"{recipe}.segkit"
            Config.load(None, options).build().fit(*squares(2, SMALL)).save(model)
            for side in (300,) if study.quick else SIDES:
                where = {"recipe": recipe, "side": side}
                study.row(where, apart(measure_square, model, side), what="square")
            side = 300 if study.quick else COMPARED
            study.row({"recipe": recipe, "side": side}, apart(compare_tiles, model, side), what="tiles")
        side = 256 if study.quick else 4096
        where = {"n_images": 2, "side": side, "limit": LIMIT}
        study.row(where, apart(measure_training, 2, side), what="training")
        side = 300 if study.quick else 20_000
        write_large(folder / "image.zarr", side)
        model = folder / "default, no weights.segkit"
        in_regions = apart(measure_region, model, folder / "image.zarr", folder / "out")
        study.row({"side": side, "limit": LIMIT}, in_regions, what="region")


def large_images(rows: list[Row]) -> str:
    """Tabulate memory and time of squares."""
    found, changed = flat(rows, "square"), {row["recipe"]: row for row in flat(rows, "tiles")}
    table = []
    for recipe in changed:
        cells = [
            f"{row['peak_memory_mib'] / 1024:.1f} GiB, {row['ratio']:.1f}"
            for row in found
            if row["recipe"] == recipe
        ]
        table.append((recipe, *cells, f"{100 * changed[recipe]['share_of_labels_changed']:.4f} %"))
    header = ("recipe", *(f"{side:,} x {side:,}" for side in SIDES), "labels changed by tiles")
    side = next(iter(changed.values()))["side"]
    return (
        f"{markdown_table(header, table)}\nMost memory of the process, and time, as a multiple of that of as many pixels in "
        "pictures of 256 x 256. Scattering builds filters for each new size of tile, which counts most on the smallest. "
        f"Labels with tiles and without are compared on {side:,} x {side:,} pixels."
    )


def memory(rows: list[Row]) -> str:
    """Tabulate the memory of training, and of an image read by region, under a limit."""
    [training], [region] = flat(rows, "training"), flat(rows, "region")
    tasks = (
        (
            f"training on {training['n_images']} images of {training['side']:,} x {training['side']:,}",
            training,
        ),
        (f"an image of {region['side']:,} x {region['side']:,}, in {region['n_tiles']} tiles", region),
    )
    table = [
        (task, found["limit"], f"{found['peak_memory_mib']:,.0f} MiB", f"{found['seconds']:,.0f} s")
        for task, found in tasks
    ]
    return markdown_table(("default recipe", "memory limit", "memory, at most", "time"), table)


TABLES = {"large_images": large_images, "memory": memory}
