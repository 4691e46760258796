"""How long a person waits at the page of `segkit annotate`: first features, coarse and fine prediction, painting.

    python -m benchmarks.annotate [--side 1024] [--strokes 40] [--vgg19 VGG19.npz --squeezenet SQUEEZENET.npz]
        [--out FILE] [--quick]

A made-up RGB picture of side x side pixels is opened in headless Chromium, and strokes are drawn with the pointer. Times
are those of the page, from the end of a stroke to the frame with the first block of the new prediction, and to the frame
with its last final block; the whole picture is visible. Without the weights only the default recipe is measured.
`sgemm_ms` is the time of a 2048 x 2048 float32 product in the same run, to compare machines by.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import digest_sources, result_path, sgemm_rate, write_result
from benchmarks.page import Page, Server, quantiles, start_browser
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.config.read import read_options, shipped
from segkit.images import write_image

# Two classes take turns.
CLASSES = (1, 2)


def measure(folder: Path, side: int, n_strokes: int, options: list[str]) -> dict[str, Any]:
    """Open a picture, draw strokes, and read the clock of the page."""
    images, masks = make_demo_set(1, shape=(side, side), random_state=0)
    write_image(folder / "images" / "picture.png", images[0])
    server = Server(folder / "images", folder / "out", folder / "cache", *options)
    browser = start_browser()
    try:
        start = time.perf_counter()
        page = Page(browser, server.address)
        page.until(lambda: page.text("status-text").startswith("Draw strokes"))
        first_features = time.perf_counter() - start
        rng = np.random.default_rng(0)
        page.set_size(max(4, side // 50))
        for number in range(n_strokes + 2):
            if number == 2:
                page.run("window.segkit.clear()")  # the first two strokes find no model, and set up libraries
            draw_one(page, masks[0], number, rng)
            page.settle()
            time.sleep(1.5)  # until after the model was judged
        strokes = page.run("return window.segkit.strokes")
        coarse, fine = ([entry[name] for entry in strokes if entry[name]] for name in ("first", "last"))
        frames = page.run("return window.segkit.frames")
        return {
            "first_features_s": first_features,
            "coarse_ms": quantiles(coarse),
            "fine_ms": quantiles(fine),
            "frame_ms": quantiles(frames),
            "n_strokes": len(coarse),
            "n_frames": len(frames),
        }
    finally:
        browser.quit()
        server.kill()


def draw_one(page: Page, mask: np.ndarray, number: int, rng: np.random.Generator) -> None:
    """Draw a stroke of eight points within one class."""
    label = number % len(CLASSES)
    rows, cols = np.nonzero(mask == label)
    at = rng.integers(rows.size)
    reach = len(mask) // 12
    points = [(rows[at], cols[at])]
    for _ in range(7):
        row, col = np.clip(points[-1] + rng.integers(-reach, reach + 1, 2), 5, len(mask) - 6)
        if mask[row, col] == label:
            points.append((row, col))
    page.set_class(CLASSES[label])
    page.drag([*points, points[0]], mask.shape)


def networks(vgg19: str, squeezenet: str) -> dict[str, Any]:
    """Give the first bank of networks of the most accurate recipe, with weights from files."""
    bank = read_options(shipped("two-networks"))["bank"][0]
    for part in bank["banks"]:
        if part["name"] == "vgg19":
            part |= {"weights": vgg19, "preprocessing": "caffe"}
        elif part["name"] == "squeezenet1_0":
            part |= {"weights": squeezenet, "preprocessing": "caffe"}
    return {"bank": bank}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--strokes", type=int, default=40)
    parser.add_argument("--vgg19")
    parser.add_argument("--squeezenet")
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.side, arguments.strokes = 128, 2
    recipes: dict[str, dict[str, Any]] = {"default": {}}
    if arguments.vgg19 and arguments.squeezenet:
        recipes["networks"] = networks(arguments.vgg19, arguments.squeezenet)
    path = result_path(arguments, "annotate.json")
    result: dict[str, Any] = {
        "side": arguments.side,
        "machine": machine(),
        "sources": digest_sources(),
        "sgemm_ms": 1000 * 2 * 2048**3 / sgemm_rate(),
        "recipes": {},
    }
    for name, options in recipes.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            config = folder / "config.yaml"
            config.write_text(json.dumps(options))  # JSON is YAML
            result["recipes"][name] = measure(
                folder, arguments.side, arguments.strokes, ["--config", str(config)]
            )
        print(name, json.dumps(result["recipes"][name]))
        write_result(path, result)


if __name__ == "__main__":
    main()
