"""A scripted annotator draws 20 strokes on three images through the page, beside training on the three whole masks.

    python -m benchmarks.strokes --data DATA [--sets ...] [--seeds N] [--hands ...] [--out FILE] [--quick]

Images and test images are those of the few-shot protocol. The annotator goes through the three images, 7, 7 and 6 strokes,
and sees truth and prediction: the page's "Looks right" writes the prediction, and undo takes it back. Each stroke goes where
most pixels are wrong, and never over an edge of the truth:

brush    a brush stroke along the largest wrong area, as wide as fits, at most 24 pixels;
outline  the object of the truth with most wrong pixels, by at most 20 corners, or a brush stroke where a larger area of the
         background is wrong; once all objects of an image are outlined, fills label the rest of it.

The model is that of the page's "Export". In `rows` the mean IoU on the test images, of whole masks, of strokes, and of
strokes after a last "Looks right" on each of the three images. Runs are kept as they are done; a cut run goes on.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.graph import MCP_Geometric
from skimage.measure import approximate_polygon, find_contours

from benchmarks.common import digest_sources, result_path, split, write_result
from benchmarks.page import Page, Server, start_browser
from segkit.benchmark.machine import machine
from segkit.cli.phantom import make_demo_set
from segkit.evaluation.metrics import score_masks
from segkit.images import load_pairs, read_mask, write_image, write_mask
from segkit.segmentation.segmenter import Segmenter, load

SETS = ("kvasir_seg_256", "dsb2018_stained")
HANDS = ("brush", "outline")
N_STROKES, N_IMAGES = 20, 3
WIDEST = 24  # pixels of the image
CORNERS = 20
ENOUGH = 0.02  # an object counts as outlined when fewer of its pixels have no label
Bools = NDArray[np.bool_]


def largest(area: Bools) -> Bools:
    """Give the largest connected part."""
    parts, _ = ndimage.label(area)
    return np.asarray(parts == np.bincount(parts.ravel())[1:].argmax() + 1)


def brush_path(area: Bools) -> tuple[list[tuple[int, int]], int]:
    """Find a stroke along an area: its points, and the width of a brush that stays within."""
    depth = ndimage.distance_transform_edt(np.pad(area, 1))[1:-1, 1:-1]
    radius = max(0.5, min(WIDEST / 2, 0.8 * depth.max()))
    within = area & (depth >= radius)
    deepest = np.unravel_index(depth.argmax(), depth.shape)
    within = ndimage.label(within, np.ones((3, 3)))[0]
    within = within == within[deepest]
    costs = np.where(within, 1.0, -1.0)

    def farthest(start: Any) -> tuple[Any, MCP_Geometric]:
        paths = MCP_Geometric(costs)
        reached, _ = paths.find_costs([start])
        return np.unravel_index(np.where(np.isfinite(reached), reached, -1).argmax(), area.shape), paths

    one, _ = farthest(deepest)
    other, paths = farthest(one)
    points = approximate_polygon(np.array(paths.traceback(other), dtype=float), 1.0)
    width = max(1, int(2 * radius) - 1)
    return [(int(row), int(col)) for row, col in points], width


def corners_of(area: Bools) -> list[tuple[float, float]]:
    """Outline an area by a few corners."""
    contour = max(find_contours(np.pad(area, 1).astype(float), 0.5), key=len) - 1
    tolerance = 0.8
    while len(corners := approximate_polygon(contour, tolerance)) > CORNERS + 1:
        tolerance *= 1.3
    limits = np.array(area.shape) - 1
    return [tuple(np.clip(corner, 0, limits)) for corner in corners[:-1].tolist()]


class Annotator:
    """Draws on the page where the prediction is wrong.

    Parameters
    ----------
    page : Page
        The page.
    masks : Path
        Folder that the page writes.
    hand : {"brush", "outline"}
        How it draws.
    """

    def __init__(self, page: Page, masks: Path, hand: str) -> None:
        self.page, self.masks, self.hand = page, masks, hand
        self.drawn: set[int] = set()

    def draw(self, name: str, truth: NDArray[Any]) -> None:
        """Draw one stroke on the shown image, if anything is wrong."""
        labels = self._stored(name, truth.shape)
        predicted = self._predicted(name, labels)
        wrong = (predicted != truth) & (labels == 255)
        if (predicted == 255).any():  # nothing is predicted before both classes have a stroke
            wrong &= ~np.isin(truth, list(self.drawn))
        if not wrong.any():
            return
        if self.hand == "outline" and self._outline(wrong, truth, labels, predicted):
            self.page.settle()
            return
        areas = {label: largest(wrong & (truth == label)) for label in np.unique(truth[wrong])}
        label = max(areas, key=lambda one: int(areas[one].sum()))
        points, width = brush_path(areas[label])
        self._choose(int(label), "brush")
        self.page.set_size(width)
        self.page.drag(points, truth.shape)
        self.page.settle()

    def _outline(
        self, wrong: Bools, truth: NDArray[Any], labels: NDArray[Any], predicted: NDArray[Any]
    ) -> bool:
        """Outline an object, or fill what is around outlined ones; False where a brush stroke helps more."""
        objects, n_objects = ndimage.label(truth == 1)
        sizes, bare, mistaken = (
            np.bincount(objects[pixels], minlength=n_objects + 1)[1:]
            for pixels in (truth == 1, labels == 255, wrong)
        )
        ground = wrong & (truth == 0)
        # the page fills the area of the predicted class, where labels do not close it
        ready = (labels == 255) & (truth == 0) & (predicted == 0)
        if n_objects and (bare <= ENOUGH * sizes).all() and ready.any():
            rows, cols = np.nonzero(largest(ready))
            self._choose(0, "fill")
            self.page.fill((rows[rows.size // 2], cols[cols.size // 2]), truth.shape)
            return True
        if not mistaken.any() or (
            ground.any() and largest(ground).sum() > mistaken.max() and (bare < sizes).any()
        ):
            return False
        self._choose(1, "polygon")
        self.page.outline(corners_of(objects == mistaken.argmax() + 1), truth.shape)
        return True

    def _choose(self, label: int, tool: str) -> None:
        self.drawn.add(label)
        self.page.set_class(label + 1)
        self.page.choose(tool)

    def looks_right(self) -> None:
        """Accept the prediction of the shown image."""
        if not self.page.run("return document.getElementById('accept').disabled"):
            self.page.click("accept")
            self.page.settle()

    def _predicted(self, name: str, labels: NDArray[Any]) -> NDArray[Any]:
        """Read what the page predicts; 255 where it predicts nothing yet."""
        self.page.settle()
        if self.page.run("return document.getElementById('accept').disabled"):
            return np.full_like(labels, 255)
        before = self._stored(name, labels.shape)
        self.page.click("accept")
        self.page.until(lambda: (self._stored(name, labels.shape) != 255).all())
        predicted = self._stored(name, labels.shape)
        self.page.click("undo")
        self.page.until(lambda: np.array_equal(self._stored(name, labels.shape), before))
        self.page.settle()
        return predicted

    def _stored(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        path = self.masks / f"{name}.png"
        try:
            return read_mask(path)[0]
        except Exception:  # no labels yet
            return np.full(shape, 255, dtype=np.uint8)


def run(folder: Path, seed: int, hand: str, n_strokes: int, work: Path) -> dict[str, Any]:
    """Draw, train and score; one row of the result."""
    train, test = split(folder, seed, N_IMAGES)
    pairs = load_pairs(folder / "images", folder / "masks")
    ids = {stem: pairs.label_map.encode(mask) for stem, mask in zip(pairs.stems, pairs.masks, strict=True)}
    images = dict(zip(pairs.stems, pairs.images, strict=True))
    for stem in train:
        [source] = (folder / "images").glob(f"{stem}.*")
        (work / "images").mkdir(parents=True, exist_ok=True)
        shutil.copy(source, work / "images")

    def score(segmenter: Segmenter) -> float:
        # values and ids are the same: 0 and 1
        predicted = segmenter.predict([images[stem] for stem in test])
        return float(score_masks([ids[stem] for stem in test], predicted, 2).mean)

    row: dict[str, Any] = {"set": folder.name, "seed": seed, "hand": hand, "train": train}
    row["whole"] = score(Segmenter().fit([images[stem] for stem in train], [ids[stem] for stem in train]))
    server = Server(work / "images", work / "out", work / "cache")
    browser = start_browser()
    try:
        page = Page(browser, server.address)
        annotator = Annotator(page, work / "out" / "masks", hand)
        shown = sorted(train)
        for place, (stem, share) in enumerate(
            zip(shown, np.array_split(np.arange(n_strokes), N_IMAGES), strict=True)
        ):
            page.show(place)
            for _ in share:
                annotator.draw(stem, ids[stem])
        labelled = [np.mean(annotator._stored(stem, ids[stem].shape) != 255) for stem in shown]
        row["labelled"] = [round(float(part), 3) for part in labelled]
        row["strokes"] = score(export(page, work / "out" / "model.segkit"))
        for place in range(N_IMAGES):
            page.show(place)
            page.settle()
            annotator.looks_right()
        row["accepted"] = score(export(page, work / "out" / "model.segkit"))
    finally:
        browser.quit()
        server.kill()
    return row


def export(page: Page, model: Path) -> Segmenter:
    """Press the button, and load what it writes."""
    model.unlink(missing_ok=True)
    page.click("export")
    page.until(
        lambda: model.exists() and not page.run("return document.getElementById('export-done').hidden")
    )
    page.run("document.getElementById('exported').close()")
    return load(model)


def make_quick_set(folder: Path) -> None:
    """Write a small made-up set."""
    for place, (image, mask) in enumerate(
        zip(*make_demo_set(6, shape=(64, 64), random_state=0), strict=True)
    ):
        write_image(folder / "images" / f"{place}.png", image)
        write_mask(folder / "masks" / f"{place}.png", (255 * mask).astype(np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--hands", nargs="+", choices=HANDS, default=list(HANDS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    path, n_strokes = result_path(arguments, "strokes.json"), N_STROKES
    with tempfile.TemporaryDirectory() as made_up:
        if arguments.quick:
            arguments.data, arguments.sets, arguments.seeds, n_strokes = Path(made_up), ["quick"], 1, 6
            arguments.hands = ["brush"]
            make_quick_set(Path(made_up) / "quick")
        if arguments.data is None:
            parser.error("--data: give the folder of the sets")
        result: dict[str, Any] = {
            "n_strokes": n_strokes,
            "machine": machine(),
            "sources": digest_sources(),
            "rows": [],
        }
        if path.exists() and json.loads(path.read_text())["sources"] == result["sources"]:
            result = json.loads(path.read_text())
        done = {(row["set"], row["seed"], row["hand"]) for row in result["rows"]}
        for seed in range(arguments.seeds):
            for name in arguments.sets:
                for hand in arguments.hands:
                    if (name, seed, hand) in done:
                        continue
                    with tempfile.TemporaryDirectory() as work:
                        row = run(arguments.data / name, seed, hand, n_strokes, Path(work))
                    print(json.dumps(row), flush=True)
                    result["rows"].append(row)
                    write_result(path, result)


if __name__ == "__main__":
    main()
