"""The command, its page in a browser, and the files it leaves."""

import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

selenium = pytest.importorskip("selenium", reason="selenium drives the browser")

from benchmarks.page import Page, Server, chromium_is_there, start_browser  # noqa: E402
from segkit.images import read_mask, write_image  # noqa: E402
from segkit.segmentation.segmenter import load  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not chromium_is_there(), reason="no chromium and chromedriver on this machine"),
    # selenium leaves the socket of its last answer to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SHAPE = (90, 120)


@pytest.fixture(scope="module")
def browser():
    driver = start_browser()
    yield driver
    driver.quit()


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        image = np.full((*SHAPE, 3), 0.25)
        image[:, 60:] = 0.7
        write_image(
            tmp_path / "images" / f"{name}.png", (image + 0.05 * rng.standard_normal(image.shape)).clip(0, 1)
        )
    return tmp_path


@pytest.fixture
def server(folder):
    running = Server(folder / "images", folder / "out", folder / "cache")
    yield running
    if running.process.poll() is None:
        running.kill()


@pytest.fixture
def page(browser, server):
    return Page(browser, server.address)


def draw_both(page):
    """Draw one stroke of each class, within the halves of the image."""
    page.set_class(1)
    page.drag([(20, 20), (70, 30)], SHAPE)
    page.set_class(2)
    page.drag([(20, 100), (70, 90)], SHAPE)
    page.settle()


def readout(page):
    """What the page says of a pixel that no stroke labelled."""
    page._mouse("mouseMoved", page.places([(80, 110)], SHAPE)[0])
    page._mouse("mouseMoved", page.places([(85, 112)], SHAPE)[0])
    return page.text("readout")


def labels(folder, name="one"):
    [mask] = read_mask(folder / "out" / "masks" / f"{name}.png")
    return mask


def test_a_session_from_the_first_stroke_to_the_model(page, folder, server):
    page.until(lambda: page.text("status-text") == "Draw strokes of two classes or more")
    draw_both(page)
    assert page.text("status-text") == "Up to date"
    drawn = labels(folder)
    assert set(np.unique(drawn)) == {0, 1, 255}
    assert (drawn[:, :60] != 1).all()
    assert (drawn[:, 60:] != 0).all()
    # the prediction is on the page: the readout under the pointer names it
    page._mouse("mouseMoved", page.places([(80, 110)], SHAPE)[0])
    page.until(lambda: "foreground" in page.text("readout"))

    page.click("undo")
    page.until(lambda: page.text("status-text").startswith("Draw strokes"))
    page.until(lambda: "all saved" in page.text("saved"))
    assert set(np.unique(labels(folder))) == {0, 255}
    page.click("redo")
    page.settle()
    np.testing.assert_array_equal(labels(folder), drawn)

    page.show(1)
    page.settle()
    page.click("accept")  # the only image with labels tells nothing of this one
    assert "unknown" in page.text("doubt-text")
    page.click("accept-all")
    page.until(lambda: "all saved" in page.text("saved"))
    page.settle()
    accepted = labels(folder, "two")
    assert (accepted == (np.arange(SHAPE[1]) >= 60)).mean() > 0.93

    page.click("export")
    page.until(lambda: (folder / "out" / "model.segkit").exists() and page.text("export-command") != "")
    command = shlex.split(page.text("export-command"))
    exported = load(folder / "out" / "model.segkit").predict_proba(np.zeros((*SHAPE, 3), np.float32) + 0.3)
    assert [entry for entry in page.browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert server.stop() == 0

    (folder / "out" / "model.segkit").unlink()
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    again = load(folder / "out" / "model.segkit").predict_proba(np.zeros((*SHAPE, 3), np.float32) + 0.3)
    np.testing.assert_array_equal(again, exported)


@pytest.mark.slow(short=True)
def test_reload_keeps_strokes_and_undo(page, folder):
    draw_both(page)
    drawn = labels(folder)
    page.browser.refresh()
    page.until(lambda: page.text("status-text") == "Up to date")
    page.until(lambda: "prediction: 2 foreground" in readout(page))
    page.until(lambda: page.text("object-count") == "1")
    page.until(lambda: not page.run("return document.getElementById('undo').disabled"))
    page.click("undo")
    page.settle()
    after = labels(folder)
    assert (after != drawn).any()
    assert (after[drawn == 0] == 0).all()


def test_kill_keeps_strokes(page, browser, folder, server):
    draw_both(page)
    drawn = page.run("return document.getElementById('saved').textContent")
    assert "all saved" in drawn
    server.kill()
    before = labels(folder)
    page.until(lambda: "The connection to segkit is lost" in page.text("faults"))
    # drawn while nobody listens: it stays on the page
    page.set_class(1)
    page.drag([(80, 10), (80, 40)], SHAPE)
    assert "saving" in page.text("saved")
    again = Server(folder / "images", folder / "out", folder / "cache")
    try:
        page.run("window.onbeforeunload = null")
        page = Page(browser, again.address)
        page.settle()
        assert page.text("status-text") == "Up to date"  # the model is back without a stroke
        page.until(lambda: "prediction: 2 foreground" in readout(page))
        np.testing.assert_array_equal(labels(folder), before)
        stored = json.loads((folder / "out" / "project.json").read_text())
        assert [entry["name"] for entry in stored["classes"]] == ["background", "foreground"]
    finally:
        again.kill()
