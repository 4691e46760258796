"""An afternoon at the page, from choosing a folder to the table of all objects, in headless Chromium.

    python -m benchmarks afternoon --data DATA [--weights WEIGHTS] [--sets ...] [--seeds N]

A scripted annotator starts `segkit annotate` without a folder, opens one of 40 images (fewer, if the set has fewer), draws
14 strokes on three of them, trains a network where `--weights` is given, segments all images, sorts the gallery by expected
accuracy, opens the three least accurate, grows there the objects of the truth that are missing most, brings the results up
to date, and exports. Rows have the seconds of each step, and what the hand did: presses of the pointer, and keys; what the
annotator does to see the prediction is left out. The count
of objects of all images, and of the three, is compared with the truth before and after the corrections. Needs Chromium and
its driver; times are those of the machine, whatever else it does.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy import ndimage
from selenium.webdriver.common.by import By

from benchmarks.markdown import markdown_table
from benchmarks.page import Page, chromium_is_there, start_browser
from benchmarks.rows import MissingDataError, Row, Study, flat
from benchmarks.segmentation import split, write_made_up
from benchmarks.strokes import Annotator
from segkit.images import read_mask

N_IMAGES, N_DRAWN, N_STROKES, N_CORRECTED, MOST_GROWN = 40, 3, 14, 3, 4
_COUNTER = """
if (!window.hand) {
  window.hand = {presses: 0, keys: 0};
  addEventListener('pointerdown', () => window.hand.presses++, true);
  addEventListener('keydown', () => window.hand.keys++, true);
}
return [window.hand.presses, window.hand.keys];
"""


class _Looker(Annotator):
    """An annotator whose looking at the prediction does not count."""

    def _predicted(self, name: str, labels: NDArray[Any]) -> NDArray[Any]:
        hand = self.page.run(_COUNTER)
        predicted = super()._predicted(name, labels)
        self.page.run("[window.hand.presses, window.hand.keys] = arguments[0]", hand)
        return predicted


class Afternoon:
    """Steps of a browser at a page, with their seconds, presses and keys."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.steps: dict[str, list[float]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, and count what the hand does."""
        start, before = time.perf_counter(), self.browser.execute_script(_COUNTER)
        yield
        after = self.browser.execute_script(_COUNTER)
        done = [time.perf_counter() - start, *(b - a for a, b in zip(before, after, strict=True))]
        former = self.steps.get(name, [0, 0, 0])
        self.steps[name] = [round(a + b, 1) for a, b in zip(former, done, strict=True)]


def chosen_images(folder: Path, work: Path) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """Copy images of a set into a folder; return those to draw on, and the numbered objects of all."""
    stems = [path.stem for path in sorted((folder / "images").iterdir())][:N_IMAGES]
    drawn = sorted(set(split(folder, 0, N_DRAWN)[0]))
    stems = sorted({*stems[: N_IMAGES - len(drawn)], *drawn})
    instances = folder / "instances" if (folder / "instances").is_dir() else folder / "masks"
    truth = {}
    for stem in stems:
        [image] = (folder / "images").glob(f"{stem}.*")
        (work / "plate").mkdir(parents=True, exist_ok=True)
        shutil.copy(image, work / "plate")
        [mask] = instances.glob(f"{stem}.*")
        truth[stem] = read_mask(mask)[0]
        if instances.name == "masks":
            truth[stem] = ndimage.label(truth[stem] > 0)[0]
    return drawn, truth


def spend(folder: Path, work: Path, n_strokes: int, options: list[str]) -> dict[str, Any]:
    """Spend an afternoon with the images of a set."""
    drawn, truth = chosen_images(folder, work)
    server, address = _start(work, options)
    browser = start_browser()
    try:
        return _work(Afternoon(browser), address, work, truth, drawn, n_strokes, has_network=bool(options))
    finally:
        browser.quit()
        server.kill()


def _start(work: Path, options: list[str]) -> tuple[subprocess.Popen[str], str]:
    """Start the command in a folder, and read the address."""
    command = [sys.executable, "-m", "segkit", "annotate", "--no-browser", "--classes", "background,nucleus"]
    root = str(Path(__file__).parents[1])
    environment = {
        **os.environ,
        "SEGKIT_CACHE": str(work / "cache"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": root,
    }
    server = subprocess.Popen(
        [*command, *options],
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return server, found[0]
    raise RuntimeError("segkit annotate gave no address")


def _work(
    day: Afternoon,
    address: str,
    work: Path,
    truth: dict[str, Any],
    drawn: list[str],
    n_strokes: int,
    *,
    has_network: bool,
) -> dict[str, Any]:
    browser, output = day.browser, work / "plate-annotations"
    browser.get(address)
    with day.step("open a folder"):
        _until(lambda: browser.find_elements(By.CSS_SELECTOR, "#folders button"))
        folders = browser.find_elements(By.CSS_SELECTOR, "#folders button")
        next(one for one in folders if one.text.startswith("plate")).click()
        _until(lambda: "plate" in browser.find_element(By.ID, "path").text)
        browser.find_element(By.ID, "open-folder").click()
        _until(lambda: browser.find_elements(By.ID, "stage"))
    day.steps["open a folder"][1] = 2  # which went with the start page
    page = Page(browser, address)
    stems = sorted(truth)
    with day.step("draw"):
        page.click("hint-close")
        annotator = _Looker(page, output / "masks", "brush")
        for stem, share in zip(drawn, np.array_split(np.arange(n_strokes), len(drawn)), strict=True):
            page.show(stems.index(stem))
            for _ in share:
                annotator.draw(stem, (truth[stem] > 0).astype(np.uint8))
    if has_network:
        with day.step("train a network"):
            page.click("train-network")
            _until(lambda: "The network predicts" in page.text("network-text"), 3600)
    with day.step("segment all"):
        page.click("run-all")
        _until(lambda: page.run("return document.getElementById('results').open"), 1800)
    before = _counts(output)
    with day.step("sort and choose"):
        page.run(
            "const order = document.getElementById('results-order'); order.value = 'accuracy';"
            "order.dispatchEvent(new Event('change'))"
        )
        names = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#results-cards .name")]
        worst = [name for name in names if name not in drawn][:N_CORRECTED]
    n_grown = 0
    for place, name in enumerate(worst):
        with day.step("correct"):
            if place:
                page.show(stems.index(name))
            else:
                cards = browser.find_elements(By.CSS_SELECTOR, "#results-cards button")
                cards[names.index(name)].click()
                page.until(lambda name=name: page.text("image-name") == name)
            page.settle()
            n_grown += _grow_missing(page, output, name, truth[name])
    with day.step("update corrected"):
        page.click("run-corrected")
        _until(lambda: page.run("return document.getElementById('results').open"), 1800)
        page.run("document.getElementById('results').close()")
    after = _counts(output)
    with day.step("export"):
        page.click("export")
        _until(lambda: not page.run("return document.getElementById('export-done').hidden"), 1800)
    true = {stem: len(np.setdiff1d(np.unique(mask), [0])) for stem, mask in truth.items()}
    return {
        "n_images": len(stems),
        "steps": day.steps,
        "seconds": round(sum(step[0] for step in day.steps.values()), 1),
        "presses": sum(step[1] for step in day.steps.values()),
        "keys": sum(step[2] for step in day.steps.values()),
        "n_grown": n_grown,
        "objects": {"true": sum(true.values()), "before": sum(before.values()), "after": sum(after.values())},
        "of_corrected": {
            "true": sum(true[name] for name in worst),
            "before": sum(before[name] for name in worst),
            "after": sum(after[name] for name in worst),
        },
    }


def _grow_missing(page: Page, output: Path, name: str, truth: Any) -> int:
    """Grow the objects of the truth of which least is found, from their middles to their edges."""
    missing = middles_of_missing(read_mask(output / "results" / "objects" / f"{name}.tif")[0], truth)
    for middle, edge in missing:
        page.choose("grow")
        half = ((np.array(middle) + edge) / 2).tolist()
        page.drag([list(middle), half, list(edge)], truth.shape)
        page.settle()
    return len(missing)


def middles_of_missing(
    found: NDArray[Any], truth: NDArray[Any]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Find the objects of the truth of which least is found: the middle of each, and its farthest pixel."""
    sizes = np.bincount(truth.ravel())
    covered = np.bincount(truth.ravel(), weights=(found > 0).ravel()) / np.maximum(sizes, 1)
    missing = [n for n in np.argsort(covered) if n and sizes[n] > 30 and covered[n] < 0.5][:MOST_GROWN]
    ends = []
    for number in missing:
        mask = truth == number
        depth = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
        middle = np.array(np.unravel_index(depth.argmax(), depth.shape))
        pixels = np.argwhere(mask)
        edge = pixels[np.hypot(*(pixels - middle).T).argmax()]
        ends.append(((int(middle[0]), int(middle[1])), (int(edge[0]), int(edge[1]))))
    return ends


def _counts(output: Path) -> dict[str, int]:
    with (output / "results" / "images.csv").open(newline="") as file:
        return {row["image"]: int(row["count"]) for row in csv.DictReader(file)}


def _until(condition: Any, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


def run(study: Study) -> None:
    if not chromium_is_there():
        raise MissingDataError("no chromium and chromedriver: install them, they drive the page")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if study.quick:
            write_made_up(folder / "made-up", 6, (64, 64))
            study.row(
                {"set": "made-up", "network": False},
                lambda: spend(folder / "made-up", folder / "work", 6, []),
            )
            return
        options: list[str] = []
        if study.weights:
            tuned = {"name": "tuned", "weights": study.weight("mobilenet_v2")}
            recipe = {"bank": [{"name": "stacked", "banks": [tuned, {"name": "multiscale"}]}]}
            (folder / "network.yaml").write_text(yaml.safe_dump(recipe))
            options = ["--network", str(folder / "network.yaml")]
        for name in study.sets or ("dsb2018_stained",):
            own = study.folder(name)
            study.row(
                {"set": name, "network": bool(options)},
                lambda own=own, name=name: spend(own, folder / name, N_STROKES, options),
            )


def afternoon(rows: list[Row]) -> str:
    """Tabulate the steps of each afternoon."""
    parts = []
    for row in flat(rows, "afternoon"):
        steps = [
            [name, f"{seconds:.0f}", f"{presses:.0f}", f"{keys:.0f}"]
            for name, (seconds, presses, keys) in row["steps"].items()
        ]
        total = ["**all**", f"{row['seconds']:.0f}", f"{row['presses']:.0f}", f"{row['keys']:.0f}"]
        parts.append(markdown_table(["step", "seconds", "presses of the pointer", "keys"], [*steps, total]))
        counts = row["of_corrected"]
        parts.append(
            f"{row['n_images']} images of {row['set']}. In the {N_CORRECTED} that were corrected, {counts['before']} "
            f"objects were found before and {counts['after']} after, of {counts['true']}; {row['n_grown']} were grown.\n"
        )
    return "\n".join(parts)


TABLES = {"afternoon": afternoon}
