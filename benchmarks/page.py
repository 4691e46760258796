"""The page of `segkit annotate`, used as a person uses it: pointer, keys and buttons, in headless Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

PATIENCE = 180  # seconds
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_is_there() -> bool:
    """Return whether a browser and its driver are installed."""
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


def start_browser(
    width: int = 1400, height: int = 900, *, logs: Sequence[str] = ("browser",)
) -> webdriver.Chrome:
    """Start a headless browser with a profile of its own, which keeps some of its logs."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*_FLAGS, f"--window-size={width},{height}", f"--user-data-dir={tempfile.mkdtemp()}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    return webdriver.Chrome(options, Service(shutil.which("chromedriver")))


class Server:
    """A running ``segkit annotate``.

    Parameters
    ----------
    images, output : Path
        As for the command.
    cache : Path
        Folder of feature maps.
    options : sequence of str
        Further options.
    """

    def __init__(self, images: Path, output: Path, cache: Path, *options: str) -> None:
        command = [sys.executable, "-m", "segkit", "annotate", str(images), "-o", str(output), "--no-browser"]
        environment = {**os.environ, "SEGKIT_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if found := re.search(r"http://\S+", line):
                self.address = found[0]
                return
        raise RuntimeError(f"segkit annotate said: {said}")

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        self.process.kill()
        self._end()

    def stop(self) -> int:
        """End it as Ctrl-C does; gives its exit status."""
        self.process.send_signal(2)
        return self._end()

    def _end(self) -> int:
        status = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


class Page:
    """The page, shown by a browser.

    Parameters
    ----------
    browser : webdriver.Chrome
        The browser.
    address : str
        Address that the command printed.
    """

    def __init__(self, browser: webdriver.Chrome, address: str) -> None:
        self.browser = browser
        browser.get("about:blank")
        browser.get(address)
        self.until(lambda: self.text("image-name") != "")

    def until(self, condition: Any, what: str = "") -> None:
        """Wait until something is true."""
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{what} status: {self.text('status-text')}, faults: {self.text('faults')}"
                )
            time.sleep(0.02)

    def text(self, element: str) -> str:
        """Read the text of an element by its id."""
        return str(self.run("return document.getElementById(arguments[0]).textContent", element))

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.browser.execute_script(script, *arguments)

    def click(self, element: str) -> None:
        """Click an element by its id."""
        self.browser.find_element(By.ID, element).click()

    def accept(self) -> None:
        """Take the prediction as labels, even if the page asks whether it is right."""
        self.click("accept")
        if self.run("return document.getElementById('doubt').open"):
            self.click("accept-all")

    def press(self, keys: str) -> None:
        """Press keys on the drawing area."""
        self.browser.find_element(By.ID, "stage").send_keys(keys)

    def is_up_to_date(self) -> bool:
        """Return whether all strokes are saved and the prediction is painted."""
        return self.text("status-text") in ("Up to date", "Learning is paused") and "all saved" in self.text(
            "saved"
        )

    def settle(self) -> None:
        """Wait until all strokes are saved and the prediction is painted, or labels are missing."""
        time.sleep(0.3)  # the server hears of the stroke first
        self.until(
            lambda: (
                self.is_up_to_date()
                or ("all saved" in self.text("saved") and self.text("status-text").startswith("Draw strokes"))
            )
        )

    def show(self, place: int) -> None:
        """Show an image by its place in the list."""
        entries = self.browser.find_elements(By.CSS_SELECTOR, "#images button")
        self.run("arguments[0].scrollIntoView()", entries[place])
        name = str(entries[place].find_element(By.CSS_SELECTOR, ".name").text)  # a rank may stand before it
        entries[place].click()
        self.until(lambda: self.text("image-name").replace("\u200b", "").startswith(name[:8]))

    def choose(self, tool: str) -> None:
        """Choose a tool: brush, eraser, polygon or fill."""
        self.run("document.querySelector(`input[name=tool][value=${arguments[0]}]`).click()", tool)

    def set_size(self, pixels: int) -> None:
        """Set the diameter of the brush, in pixels of the image."""
        self.run(
            "const size = document.getElementById('size'); size.value = arguments[0];"
            "size.dispatchEvent(new Event('input', {bubbles: true}))",
            int(pixels),
        )

    def set_class(self, number: int) -> None:
        """Choose a class by its number, from 1."""
        self.press(str(number))

    def places(self, points: Sequence[Sequence[float]], shape: tuple[int, int]) -> list[tuple[float, float]]:
        """Find where pixels (row, column) of the whole image, as it fits the drawing area, are in the window."""
        left, top, width, height = self.run(
            "const box = document.getElementById('stage'); const at = box.getBoundingClientRect();"
            "return [at.left + box.clientLeft, at.top + box.clientTop, box.clientWidth, box.clientHeight]"
        )
        scale = 0.97 * min(width / shape[1], height / shape[0])
        return [
            (
                left + width / 2 + (col + 0.5 - shape[1] / 2) * scale,
                top + height / 2 + (row + 0.5 - shape[0] / 2) * scale,
            )
            for row, col in points
        ]

    def drag(self, points: Sequence[Sequence[float]], shape: tuple[int, int]) -> None:
        """Draw a stroke through pixels (row, column)."""
        places = self.places(points, shape)
        self._mouse("mouseMoved", places[0])
        self._mouse("mousePressed", places[0])
        for place in places[1:]:
            self._mouse("mouseMoved", place, pressed=True)
        self._mouse("mouseReleased", places[-1])

    def outline(self, corners: Sequence[Sequence[float]], shape: tuple[int, int]) -> None:
        """Draw a polygon by its corners (row, column)."""
        self.choose("polygon")
        for place in self.places(corners, shape):
            self._mouse("mouseMoved", place)
            self._mouse("mousePressed", place)
            self._mouse("mouseReleased", place)
        self.press("\ue007")  # Enter closes it

    def fill(self, point: Sequence[float], shape: tuple[int, int]) -> None:
        """Fill the area around a pixel (row, column)."""
        self.choose("fill")
        [place] = self.places([point], shape)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._mouse(kind, place)

    def _mouse(self, kind: str, place: tuple[float, float], *, pressed: bool = False) -> None:
        is_button = kind != "mouseMoved"
        self.browser.execute_cdp_cmd(
            "Input.dispatchMouseEvent",
            {
                "type": kind,
                "x": place[0],
                "y": place[1],
                "button": "left" if is_button or pressed else "none",
                "buttons": int(kind == "mousePressed" or pressed),
                "clickCount": int(is_button),
            },
        )


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Compute median and 95th percentile."""
    return {name: float(np.percentile(values, at)) for name, at in (("p50", 50), ("p95", 95))}
