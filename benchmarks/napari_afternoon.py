"""An afternoon in napari: strokes on three images, objects corrected, doubts, a network, a model, and the folder.

    python -m benchmarks napari --data DATA [--weights WEIGHTS] [--sets ...] [--pictures FOLDER]

The images, the strokes and the counts are those of `benchmarks.afternoon`; a network is trained where `--weights` is given.
A press is a click, a stroke, or a choice of brush or label. With --pictures, the window is kept as a picture after each
step. Needs napari with Qt, and a display with OpenGL: `xvfb-run -a python -m benchmarks napari ...` where there is none.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.afternoon import N_STROKES, chosen_images, middles_of_missing
from benchmarks.markdown import markdown_table
from benchmarks.rows import MissingDataError, Row, Study, flat
from benchmarks.segmentation import write_made_up
from benchmarks.strokes import brush_path, largest

SIZE = (1400, 900)
_SECONDS = 3600
_PLUGIN = ("segkit-bio", "segkit: segment from strokes")
_OBJECTS, _PREDICTION = "objects", "prediction"


class Hand:
    """What a hand does in napari, its presses and seconds by step."""

    def __init__(self, pictures: Path | None) -> None:
        import napari
        from qtpy.QtWidgets import QApplication

        self.viewer = napari.Viewer()
        self.viewer.window.resize(*SIZE)
        _, self.widget = self.viewer.window.add_plugin_dock_widget(*_PLUGIN)
        self._events, self._pictures = QApplication.processEvents, pictures
        self.steps: dict[str, list[float]] = {}
        self._presses = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, count its presses, and keep a picture of the window."""
        start, self._presses = time.perf_counter(), 0
        yield
        former = self.steps.get(name, [0.0, 0])
        self.steps[name] = [
            round(former[0] + time.perf_counter() - start, 1),
            former[1] + self._presses,
        ]
        self._events()
        if self._pictures is not None:
            from PIL import Image

            window = self.viewer.screenshot(canvas_only=False, flash=False)
            self._pictures.mkdir(parents=True, exist_ok=True)
            Image.fromarray(window).save(self._pictures / f"{len(self.steps)}-{name}.png".replace(" ", "-"))

    def press(self, do: Callable[[], object], n: int = 1) -> None:
        """Press buttons."""
        self._presses += n
        do()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Let the window work until something is so."""
        end = time.monotonic() + _SECONDS
        while not is_so():
            if time.monotonic() > end:
                raise TimeoutError
            self._events()
            time.sleep(0.05)  # drawing in software takes a core if it is done all the time

    def settle(self) -> None:
        """Wait until all that was painted is learnt and shown."""
        widget = self.widget
        self.until(lambda: not widget._following.isActive())
        self.until(lambda: widget.learning is None or widget.learning.session.wait(0.0))
        self.until(lambda: not widget._drawing.isActive() and not widget._news)

    def show(self, stem: str) -> None:
        """Choose an image, and hide the layers of all others."""
        for layer in self.viewer.layers:
            layer.visible = layer.name.startswith(stem)
        self.viewer.reset_view()
        self.press(lambda: self.widget.image_choice.choose(self.viewer.layers[stem]))

    def data(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return what a layer of results shows of the chosen image."""
        found = [layer for layer in self.viewer.layers if name in layer.name and layer.data.shape == shape]
        return found[-1].data if found else np.zeros(shape, dtype=np.uint8)

    def draw(self, labels: Any, truth: NDArray[Any], drawn: set[int]) -> None:
        """Draw one stroke where the prediction is wrong; labels 1 and 2 are background and objects."""
        predicted = self.data(_PREDICTION, truth.shape)
        wrong = (predicted != truth) & (labels.data == 0)
        if not predicted.any():  # nothing is predicted before both have a stroke
            wrong &= ~np.isin(truth, list(drawn))
        if not wrong.any():
            return
        areas = {label: largest(wrong & (truth == label)) for label in np.unique(truth[wrong])}
        label = max(areas, key=lambda one: int(areas[one].sum()))
        points, width = brush_path(areas[label])
        drawn.add(int(label))
        labels.selected_label, labels.brush_size = int(label), width
        self.press(lambda: _paint(labels, points, int(label)), 3)
        self.settle()


def _paint(labels: Any, points: list[tuple[int, int]], label: int) -> None:
    for start, end in zip(points, points[1:] or points, strict=False):
        n_dabs = int(max(1, *np.abs(np.subtract(end, start))))
        for share in np.linspace(0, 1, n_dabs + 1):
            labels.paint(tuple(np.round(np.add(start, share * np.subtract(end, start))).astype(int)), label)


def spend(
    folder: Path, work: Path, n_strokes: int, weights: str | None, pictures: Path | None
) -> dict[str, Any]:
    """Spend part of an afternoon with the images of a set."""
    drawn, truth = chosen_images(folder, work)
    files = {path.stem: path for path in (work / "plate").iterdir()}
    hand = Hand(pictures)
    viewer, widget = hand.viewer, hand.widget
    try:
        with hand.step("open"):
            hand.press(lambda: viewer.open([str(files[stem]) for stem in drawn]), 2)
        for stem, share in zip(drawn, np.array_split(np.arange(n_strokes), len(drawn)), strict=True):
            with hand.step("draw"):
                hand.show(stem)
                hand.press(widget.new_labels)
                hand.press(lambda: widget.live_box.setChecked(True), int(not widget.live_box.isChecked()))
                labels, seen = widget.labels_choice.layer, set[int]()
                for _ in share:
                    hand.draw(labels, np.where(truth[stem] > 0, 2, 1), seen)
        chosen = truth[drawn[0]]
        shape = chosen.shape
        with hand.step("count objects"):
            hand.show(drawn[0])
            hand.settle()
            hand.press(widget.count_objects)
            hand.until(lambda: hand.data(_OBJECTS, shape).any())
            n_counted = len(np.unique(hand.data(_OBJECTS, shape))) - 1
        with hand.step("correct objects"):
            hand.press(lambda: widget.objects.tools.setCurrentText("grow"), 2)
            missing = middles_of_missing(hand.data(_OBJECTS, shape), chosen)
            for ends in missing:
                hand.press(partial(widget.correct, "grow", list(ends)))
                hand.until(lambda: widget._task is None)
                hand.settle()
            hand.press(lambda: widget.objects.tools.setCurrentIndex(0), 2)
            n_corrected = len(np.unique(hand.data(_OBJECTS, shape))) - 1
        with hand.step("check labels"):
            hand.press(widget.check_labels)
            hand.until(lambda: widget._task is None or not widget._task.is_alive())
            hand.settle()
        if weights is not None:
            session = widget.learning.session
            tuned = {
                "name": "stacked",
                "banks": [{"name": "tuned", "weights": weights}, {"name": "multiscale"}],
            }
            session._network_config = type(session._network_config).from_options({"bank": tuned})
            session._put_network_aside()  # which was to have other options
            with hand.step("train a network"):
                hand.press(widget.train_network)
                hand.until(lambda: session.network.shown == "network")
                hand.settle()
        model = work / "model.segkit"
        with hand.step("save the model"):
            hand.press(lambda: widget.save_model(model), 2)
            hand.until(lambda: model.exists() and not widget._task.is_alive())
            hand.settle()
        with hand.step("segment the folder"):
            hand.press(lambda: widget.segment_folder(work / "plate"), 2)
            hand.until(lambda: "segmented: " in widget.run.text())
            hand.settle()
    finally:
        widget.shut_down()
        viewer.close()
    with (work / "plate-segmented" / "images.csv").open(newline="") as file:
        found = sum(int(row["count"]) for row in csv.DictReader(file))
    return {
        "n_images": len(truth),
        "steps": hand.steps,
        "counted": {
            "found": n_counted,
            "grown": len(missing),
            "corrected": n_corrected,
            "true": len(np.unique(chosen)) - 1,
        },
        "objects": {
            "found": found,
            "true": sum(len(np.setdiff1d(np.unique(mask), [0])) for mask in truth.values()),
        },
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the window")


def run(study: Study) -> None:
    try:
        import napari.viewer  # noqa: F401
    except ImportError as error:
        raise MissingDataError(
            f"no napari with Qt ({error}): pip install segkit-bio[napari] pyqt6"
        ) from error
    with tempfile.TemporaryDirectory() as place:
        if study.quick:
            write_made_up(Path(place) / "made-up", 6, (64, 64))
            work = partial(spend, Path(place) / "made-up", Path(place) / "work", 6, None, None)
            study.row({"set": "made-up"}, work)
            return
        weights = study.weight("mobilenet_v2") if study.weights else None
        for name in study.sets or ("dsb2018_stained",):
            kept = study.options.pictures and study.options.pictures / name
            work = partial(spend, study.folder(name), Path(place) / name, N_STROKES, weights, kept)
            study.row({"set": name}, work)


def napari_steps(rows: list[Row]) -> str:
    """Tabulate the steps."""
    parts = []
    for row in flat(rows, "napari"):
        steps = [[name, f"{seconds:.0f}", f"{presses}"] for name, (seconds, presses) in row["steps"].items()]
        total = [sum(step[place] for step in row["steps"].values()) for place in (0, 1)]
        steps.append(["**all**", *(f"{number:.0f}" for number in total)])
        parts.append(markdown_table(["step", "seconds", "presses"], steps))
        parts.append(
            f"{row['n_images']} images of {row['set']}: {row['objects']['found']} objects found, {row['objects']['true']} "
            f"true. In the corrected one, {row['counted']['found']} before and {row['counted']['corrected']} after "
            f"{row['counted']['grown']} corrections, {row['counted']['true']} true.\n"
        )
    return "\n".join(parts)


TABLES = {"napari": napari_steps}
