"""The pictures of the page on drawing: the real page of `segkit annotate`, used on made-up tissue.

`python -m docs.pictures` writes them; it needs Chromium and its driver.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from selenium.webdriver.common.by import By
from skimage.graph import route_through_array
from skimage.measure import regionprops

from benchmarks.page import Page, Server, start_browser
from segkit.cli.cells import make_cell_set
from segkit.images import write_image

SHAPE = (300, 390)
WINDOW = (1200, 883)  # 143 pixels of the height are the browser's own
N_IMAGES = 5
ARROW_DOWN, ARROW_RIGHT = "\ue015", "\ue014"
MOST_BYTES = 120 * 1024
DOCS = Path(__file__).parent
Labels = NDArray[np.int32]
Path2D = list[tuple[int, int]]


def within(allowed: NDArray[np.bool_], start: tuple[int, int], end: tuple[int, int]) -> Path2D:
    """Find a way for the pen through pixels that are allowed, along their middle, as a hand would go."""
    depth = ndimage.distance_transform_edt(allowed)
    cost = np.where(allowed, 1 / (0.3 + depth) ** 2, 1e3)
    path, _ = route_through_array(cost, start, end, fully_connected=True, geometric=True)
    smooth = ndimage.uniform_filter1d(np.array(path, dtype=float), 9, axis=0, mode="nearest")
    return [(round(row), round(col)) for row, col in smooth[::3]]


def through_nucleus(labels: Labels, number: int) -> Path2D:
    """Draw along a nucleus."""
    [region] = regionprops((labels == number).astype(np.uint8))
    angle, half = region.orientation, 0.3 * region.axis_major_length
    row, col = region.centroid
    ends = [
        (round(row + sign * half * np.cos(angle)), round(col + sign * half * np.sin(angle)))
        for sign in (-1, 1)
    ]
    return within(labels == number, *ends)


def between_nuclei(labels: Labels, start: tuple[int, int], end: tuple[int, int]) -> Path2D:
    """Draw through the tissue between nuclei."""
    free = labels == 0

    def nearest(point: tuple[int, int]) -> tuple[int, int]:
        depth = ndimage.distance_transform_edt(free)
        rows, cols = np.indices(free.shape)
        far = np.hypot(rows - point[0], cols - point[1])
        row, col = np.unravel_index(np.argmax(np.where(far < 25, depth, 0)), free.shape)
        return int(row), int(col)

    return within(free, nearest(start), nearest(end))


class Hand:
    """Draws on one image of the page, and knows where its nuclei are."""

    def __init__(self, page: Page, labels: Labels) -> None:
        self.page, self.labels = page, labels

    def nuclei(self, *numbers: int) -> None:
        self.page.set_class(2)
        self.page.set_size(5)
        for number in numbers:
            self.page.drag(through_nucleus(self.labels, number), SHAPE)
            time.sleep(0.1)

    def background(self, *ways: tuple[tuple[int, int], tuple[int, int]]) -> None:
        self.page.set_class(1)
        self.page.set_size(3)
        for start, end in ways:
            self.page.drag(between_nuclei(self.labels, start, end), SHAPE)
            time.sleep(0.1)


def save(page: Page, name: str) -> None:
    """Write the picture as JPEG, as good as its size allows."""
    time.sleep(1)  # until all is painted
    picture = Image.open(io.BytesIO(page.browser.get_screenshot_as_png())).convert("RGB")
    for quality in range(90, 30, -5):
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=quality, optimize=True, progressive=True)
        if len(stream.getvalue()) < MOST_BYTES:
            break
    (DOCS / name).write_bytes(stream.getvalue())


def choose_view(page: Page, mode: str) -> None:
    """Choose how the prediction is shown."""
    page.run("document.querySelector(`input[name=mode][value=${arguments[0]}]`).click()", mode)


def make(page: Page, labels: list[Labels]) -> None:
    """Annotate three images, with a picture at each step."""
    hand = Hand(page, labels[0])
    hand.nuclei(166, 128)
    hand.background(((100, 60), (180, 200)))
    page.settle()
    save(page, "draw-first.jpg")

    hand.nuclei(163, 103, 45, 251, 11)
    hand.background(
        ((210, 90), (130, 60)), ((62, 150), (100, 250)), ((180, 330), (215, 345)), ((35, 250), (80, 262))
    )
    page.settle()
    choose_view(page, "outlines")
    save(page, "draw-correct.jpg")

    page.show(1)
    page.settle()
    hand = Hand(page, labels[1])
    hand.nuclei(160, 113)
    hand.background(((150, 230), (60, 330)))
    page.settle()
    page.until(lambda: "IoU" in page.text("expected-text"))
    for numbers, way in (
        ((79, 111), ((200, 130), (120, 200))),
        ((20,), ((230, 30), (290, 130))),
        ((86, 162), ((30, 120), (100, 60))),
    ):
        count = "return document.querySelectorAll('#curve circle').length"
        most = max(1, page.run(count))
        hand.nuclei(*numbers)
        hand.background(way)
        page.settle()
        page.until(lambda count=count, most=most: page.run(count) > most)
    choose_view(page, "uncertainty")
    page.until(lambda: page.browser.find_element(By.ID, "next").is_enabled())
    page.click("next")
    page.until(lambda: page.run("return !document.getElementById('advice').hidden"))
    page.run("document.getElementById('panel').scrollTop = 1000")
    save(page, "draw-next.jpg")

    page.show(2)
    page.settle()
    hand = Hand(page, labels[2])
    hand.nuclei(172, 169)
    hand.background(((240, 160), (180, 290)))
    page.settle()

    page.show(0)
    page.settle()
    page.until(lambda: page.text("object-count") != "")
    choose_view(page, "off")
    page.choose("split")
    page.run("document.getElementById('objects').scrollIntoView()")
    for _ in range(3):
        page.click("zoom-in")
    page.press(3 * ARROW_DOWN + ARROW_RIGHT)
    save(page, "draw-objects.jpg")

    page.show(2)
    page.settle()
    choose_view(page, "fill")
    page.accept()
    page.settle()
    page.click("export")
    page.until(lambda: page.text("export-command") != "")
    save(page, "draw-export.jpg")


def main() -> None:
    """Draw tissue, start the page, and use it."""
    images, labels = make_cell_set(N_IMAGES, shape=SHAPE)
    os.environ["PYTHONPATH"] = str(DOCS.parent)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that the page shows short paths
        for number, image in enumerate(images, start=1):
            write_image(Path("tissue") / f"{number}.png", image)
        output, cache = Path("tissue-annotations"), Path(folder, "cache")
        server = Server(Path("tissue"), output, cache, "--classes", "background,nucleus")
        browser = start_browser(*WINDOW)
        try:
            make(Page(browser, server.address), labels)
        finally:
            browser.quit()
            server.stop()
            os.chdir(DOCS)


if __name__ == "__main__":
    main()
