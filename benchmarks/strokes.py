"""A scripted annotator draws 20 strokes on three images through the page, beside training on the three whole masks.

    python -m benchmarks strokes --data DATA [--weights WEIGHTS] [--sets ...] [--seeds N]

Images and test images are those of the few-shot protocol. The annotator goes through the three images, 7, 7 and 6 strokes,
and sees truth and prediction: the page's "Looks right" writes the prediction, and undo takes it back. Each stroke goes where
most pixels are wrong, and never over an edge of the truth:

brush    a brush stroke along the largest wrong area, as wide as fits, at most 24 pixels;
outline  the object of the truth with most wrong pixels, by at most 20 corners, or a brush stroke where a larger area of the
         background is wrong; once all objects of an image are outlined, fills label the rest of it.

The model is that of the page's "Export". Rows have the mean IoU on the test images, of whole masks, of strokes, and of
strokes after a last "Looks right" on each of the three images.

Rows "waiting" have times of that page on a made-up picture, all of it visible: from the end of a stroke to the frame with
the first block of the new prediction, and to the frame with its last final block. The time of a 2,048 x 2,048 float32
product in the same run is there to compare machines by. Needs Chromium and its driver.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.graph import MCP_Geometric
from skimage.measure import approximate_polygon, find_contours

from benchmarks.markdown import markdown_table
from benchmarks.page import Page, Server, chromium_is_there, quantiles, start_browser
from benchmarks.rows import MissingDataError, Row, Study, flat
from benchmarks.segmentation import NETWORKS, bank_option, split, write_made_up
from benchmarks.speed import sgemm_rate
from segkit.cli.phantom import make_demo_set
from segkit.evaluation.metrics import score_masks
from segkit.images import load_pairs, read_mask, write_image
from segkit.segmentation.segmenter import Segmenter, load

SETS = ("kvasir_seg_256", "dsb2018_stained")
HANDS = ("brush", "outline")
N_STROKES, N_IMAGES = 20, 3
WIDEST = 24  # pixels of the image
CORNERS = 20
# Of the page that is timed; two classes take turns.
CLASSES = (1, 2)
ENOUGH = 0.02  # an object counts as outlined when fewer of its pixels have no label
Bools = NDArray[np.bool_]


def largest(area: Bools) -> Bools:
    """Return the largest connected part."""
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
            self.page.accept()
            self.page.settle()

    def _predicted(self, name: str, labels: NDArray[Any]) -> NDArray[Any]:
        """Read what the page predicts; 255 where it predicts nothing yet."""
        self.page.settle()
        if self.page.run("return document.getElementById('accept').disabled"):
            return np.full_like(labels, 255)
        before = self._stored(name, labels.shape)
        self.page.accept()
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


def draw_and_score(folder: Path, seed: int, hand: str, n_strokes: int, work: Path) -> dict[str, Any]:
    """Train on whole masks and on strokes, and score both."""
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

    row: dict[str, Any] = {"n_strokes": n_strokes}
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


def wait_at_page(folder: Path, side: int, n_strokes: int, options: list[str]) -> dict[str, Any]:
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
            time.sleep(1.5)  # until after the model was evaluated
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
            "sgemm_ms": 1000 * 2 * 2048**3 / sgemm_rate(),
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


def run(study: Study) -> None:
    if not chromium_is_there():
        raise MissingDataError("no chromium and chromedriver: install them, they drive the page")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if study.quick:
            write_made_up(folder / "made-up", 6, (64, 64))
            draw = lambda: draw_and_score(folder / "made-up", 0, "brush", 6, folder / "work")  # noqa: E731
            study.row({"set": "made-up", "seed": 0, "hand": "brush"}, draw)
        else:
            for seed, name, hand in itertools.product(range(study.seeds or 3), study.sets or SETS, HANDS):
                own, work = study.folder(name), folder / f"{name} {seed} {hand}"
                study.row(
                    {"set": name, "seed": seed, "hand": hand},
                    lambda own=own, seed=seed, hand=hand, work=work: draw_and_score(
                        own, seed, hand, N_STROKES, work
                    ),
                )
        recipes: dict[str, list[str]] = {"default": []}
        if study.weights and not study.quick:
            recipes["networks"] = ["--set", bank_option(study, NETWORKS)]
        side, n_strokes = (128, 2) if study.quick else (1024, 20)
        for recipe, options in recipes.items():
            study.row(
                {"recipe": recipe, "side": side},
                lambda recipe=recipe, options=options: wait_at_page(
                    folder / recipe, side, n_strokes, options
                ),
                what="waiting",
            )


def strokes(rows: list[Row]) -> str:
    """Tabulate mean IoU of strokes beside that of whole masks."""
    found, table = flat(rows, "strokes"), []
    for name, hand in itertools.product(SETS, HANDS):
        own = [row for row in found if (row["set"], row["hand"]) == (name, hand)]
        whole, drawn, accepted = (
            np.array([row[key] for row in own]) for key in ("whole", "strokes", "accepted")
        )
        labelled = f"{100 * np.mean([row['labelled'] for row in own]):.0f} %"
        after = [
            f"{drawn.mean():.3f}",
            _spread(drawn - whole),
            f"{accepted.mean():.3f}",
            _spread(accepted - whole),
        ]
        table.append((name, hand, labelled, f"{whole.mean():.3f}", *after))
    header = (
        "set",
        "hand",
        "labelled",
        "whole masks",
        "strokes",
        "difference",
        'after "Looks right"',
        "difference",
    )
    n_seeds = len({row["seed"] for row in found})
    return (
        f"{markdown_table(header, table)}\nMean IoU on test images, {n_seeds} splits; in brackets the least and the "
        "greatest difference of a split."
    )


def _spread(differences: np.ndarray) -> str:
    return f"{differences.mean():+.3f} ({differences.min():+.3f} to {differences.max():+.3f})"


def waiting(rows: list[Row]) -> str:
    """Tabulate how long a person waits at the page."""
    titles = {"default": "default, no weights", "networks": "VGG19 and SqueezeNet"}
    found, table = flat(rows, "waiting"), []
    for row in found:
        coarse, fine, frame = (row[key] for key in ("coarse_ms", "fine_ms", "frame_ms"))
        seconds = [f"{part['p50'] / 1000:.2f} s ({part['p95'] / 1000:.2f} s)" for part in (coarse, fine)]
        first = f"{row['first_features_s']:.1f} s"
        table.append(
            (titles[row["recipe"]], first, *seconds, f"{frame['p50']:.1f} ms ({frame['p95']:.1f} ms)")
        )
    header = ("recipe", "first features", "coarse prediction", "fine prediction", "script time of a frame")
    n_strokes = min(row["n_strokes"] for row in found)
    return (
        f"{markdown_table(header, table)}\nMedians (95th percentiles) of at least {n_strokes} strokes, from the end of a "
        f"stroke to the frame that shows the prediction: {found[0]['side']:,} x {found[0]['side']:,} RGB pixels, headless "
        f"Chromium on the same 2 cores. A 2,048 x 2,048 float32 product took {found[0]['sgemm_ms']:.0f} ms in the same run."
    )


TABLES = {"strokes": strokes, "waiting": waiting}
