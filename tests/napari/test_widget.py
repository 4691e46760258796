"""The widget of napari: what is painted is learnt, what is erased is forgotten, and nothing is lost on the way."""

import os
import shlex
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import PydanticDeprecatedSince20

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", PydanticDeprecatedSince20)  # of the models of napari and npe2
    napari = pytest.importorskip("napari", reason="napari is not installed: .ci/napari runs these tests")
    pytest.importorskip("napari.viewer", reason="napari has no Qt: .ci/napari runs these tests")

from napari.components import ViewerModel
from napari.layers import Image, Labels
from napari.utils.notifications import notification_manager
from npe2 import PluginManifest
from qtpy.QtCore import QCoreApplication, QEvent, Qt
from qtpy.QtWidgets import QApplication, QDockWidget, QMainWindow

import segkit
from segkit.errors import InputError
from segkit.images import UNLABELLED, write_image
from segkit.live import FeatureCache
from segkit.live.background import Report
from segkit.napari import predict_layer, train_on_layers
from segkit.napari.layers import annotated_places, image_plane, labels_plane, labels_shape
from segkit.napari.widget import SegmentWidget

# Strokes of one image may be too few to hold any out; segkit says so with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:too few annotated regions:UserWarning")
WIDGET = "segkit: segment from strokes"
SECONDS = 60


def two_tone(shape=(64, 80), *, low=40, high=190, seed=0):
    image = np.random.default_rng(seed).integers(0, 12, shape) + low
    image[..., shape[-1] // 2 :] += high - low
    return image.astype(np.uint8)


TRUTH = np.where(two_tone() > 120, 2, 1)


@pytest.fixture(scope="session")
def app():
    return QApplication.instance() or QApplication([])


@pytest.fixture
def viewer():
    return ViewerModel()


@pytest.fixture
def widget(app, viewer, tmp_path):
    notification_manager.records.clear()
    widget = SegmentWidget(viewer, cache=FeatureCache(tmp_path / "cache"))
    yield widget
    widget.close()
    assert not segkit_threads()


def segkit_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("segkit-")]


def until(is_so, *, seconds=SECONDS):
    """Let Qt work until something is so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        QApplication.processEvents()
        if is_so():
            return True
        time.sleep(0.01)
    return False


def settle(widget):
    """Let Qt work until the widget has read what was painted, and the session has said all."""
    until(lambda: not widget._following.isActive())
    session = None if widget.learning is None else widget.learning.session
    assert until(lambda: session is None or session.wait(0.0))
    until(lambda: not widget._drawing.isActive() and not widget._news)


def told():
    return [record.message for record in notification_manager.records]


def paint_both(labels, place=()):
    for value, columns in ((1, range(6, 26, 4)), (2, range(54, 74, 4))):
        for column in columns:
            for row in range(8, 60, 4):
                labels.paint((*place, row, column), value)


def begin(widget, viewer, image=None):
    viewer.add_image(two_tone() if image is None else image, name="cells")
    widget.new_labels()
    labels = widget.labels_choice.layer
    labels.brush_size = 5
    widget.set_live(True)
    return labels


def predicted(viewer, name="cells prediction"):
    return viewer.layers[name].data if name in viewer.layers else np.zeros(1)


def is_right(values, truth=TRUTH):
    return values.shape == truth.shape and np.mean(values == truth) > 0.95


def test_the_manifest_is_valid_and_names_the_widget():
    manifest = PluginManifest.from_distribution("segkit-bio")
    [contribution] = manifest.contributions.widgets
    assert contribution.display_name == WIDGET
    [command] = [one for one in manifest.contributions.commands if one.id == contribution.command]
    module, name = command.python_name.split(":")
    assert (module, name) == (SegmentWidget.__module__, SegmentWidget.__name__)


def test_segkit_imports_neither_napari_nor_qt():
    code = (
        "import sys, segkit, segkit.napari, segkit.live, segkit.cli.commands\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('napari', 'qtpy', 'PyQt6', 'PySide6')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_networks_come_without_triton():
    """Where OpenGL is that of Mesa, the process would die."""
    code = (
        "import sys\nfrom segkit.napari.learning import import_torchvision\nimport_torchvision()\n"
        "from segkit.networks import pyramid\nprint('torchvision' in sys.modules, 'triton' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True False"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_napari_opens_it_in_its_window(app, tmp_path):
    viewer = napari.Viewer(show=False)
    try:
        _, widget = viewer.window.add_plugin_dock_widget("segkit-bio", WIDGET)
        assert isinstance(widget, SegmentWidget)
        assert until(lambda: widget.status.text().startswith("no image"))
        viewer.window.remove_dock_widget(widget)
        assert widget._is_shut
    finally:
        viewer.close()


def test_painting_makes_a_prediction(widget, viewer):
    labels = begin(widget, viewer)
    assert viewer.layers.selection.active is labels
    paint_both(labels)
    assert until(lambda: is_right(predicted(viewer)))
    settle(widget)
    assert [layer.name for layer in viewer.layers] == ["cells", "cells prediction", "cells labels"]
    assert viewer.layers.selection.active is labels
    assert widget.status.text() == "Up to date"
    assert not told()


def test_one_label_is_not_enough_and_erasing_takes_the_prediction_away(widget, viewer):
    labels = begin(widget, viewer)
    paint_both(labels)
    assert until(lambda: is_right(predicted(viewer)))
    labels.data[:, 40:] = 0
    labels.refresh()
    assert until(lambda: not predicted(viewer).any())
    assert widget.status.text() == "Draw strokes of two classes or more"


def test_undo_and_redo_of_napari_are_followed(widget, viewer):
    labels = begin(widget, viewer)
    paint_both(labels)
    settle(widget)
    with labels.block_history():
        labels.fill((0, 0), 3)
    known = widget.learning.project.labels("cells")
    assert until(lambda: known.labels[0, 0] == 3)
    labels.undo()
    assert until(lambda: known.labels[0, 0] == UNLABELLED)
    labels.redo()
    assert until(lambda: known.labels[0, 0] == 3)
    assert [one.name for one in widget.learning.project.classes] == ["background", "class 2", "class 3"]


def test_another_image_is_predicted_by_what_was_learnt(widget, viewer):
    paint_both(begin(widget, viewer))
    settle(widget)
    viewer.add_image(two_tone((80, 64), seed=1), name="others")
    widget.image_choice.setCurrentIndex(1)
    assert widget.labels_choice.layer is None
    assert until(lambda: "press New" in widget.status.text())
    widget.new_labels()
    assert until(lambda: predicted(viewer, "others prediction").any())
    settle(widget)
    assert is_right(predicted(viewer, "others prediction"), np.where(two_tone((80, 64), seed=1) > 120, 2, 1))
    widget.image_choice.setCurrentIndex(0)
    assert widget.labels_choice.layer is viewer.layers["cells labels"]
    assert not told()


def test_labels_that_move_to_another_image_are_learnt_there_only(widget, viewer):
    labels = begin(widget, viewer)
    paint_both(labels)
    settle(widget)
    viewer.add_image(255 - two_tone(), name="negative")
    widget.image_choice.setCurrentIndex(1)
    widget.labels_choice.choose(labels)
    settle(widget)
    assert widget.learning.project.annotated() == ["negative"]
    widget.image_choice.setCurrentIndex(0)
    assert widget.labels_choice.layer is None


def test_an_image_of_another_kind_begins_anew(widget, viewer):
    paint_both(begin(widget, viewer))
    settle(widget)
    colours = np.stack([two_tone(), two_tone()[::-1], two_tone(seed=3)], axis=-1)
    viewer.add_image(colours, name="stained", rgb=True)
    widget.image_choice.setCurrentIndex(1)
    widget.new_labels()
    settle(widget)
    paint_both(widget.labels_choice.layer)
    settle(widget)
    assert widget.learning.project.annotated() == ["stained"]
    assert is_right(predicted(viewer, "stained prediction"))
    assert not told()


@pytest.mark.parametrize("gone", ["cells", "cells labels", "cells prediction"])
def test_layers_may_go_while_it_learns(widget, viewer, gone):
    paint_both(begin(widget, viewer))
    assert until(lambda: predicted(viewer).any())
    viewer.layers.remove(gone)
    settle(widget)
    assert not told()
    if gone == "cells prediction":
        viewer.layers["cells labels"].paint((2, 2), 1)
        assert until(lambda: predicted(viewer).any())
    else:
        assert widget.learning.project.annotated() == []
        assert ("no image" if gone == "cells" else "press New") in widget.status.text()


def test_new_pixels_of_an_image_layer_are_read(widget, viewer):
    paint_both(begin(widget, viewer))
    settle(widget)
    viewer.layers["cells"].data = np.ascontiguousarray(255 - two_tone())
    settle(widget)
    assert widget.learning.project.annotated() == ["cells (2)"]


def test_labels_of_another_shape_are_refused_once(widget, viewer):
    viewer.add_image(two_tone(), name="cells")
    viewer.add_labels(np.zeros((5, 7), dtype=np.uint8), name="small")
    assert widget.labels_choice.layer is None
    widget.labels_choice.choose(viewer.layers["small"])
    widget.set_live(True)
    settle(widget)
    message = "small: labels of shape (5, 7), the image cells needs (64, 80): choose another Labels layer, or press New"
    assert told() == [message]
    assert widget.status.text() == message


def test_labels_beyond_254_are_refused(widget, viewer):
    labels = begin(widget, viewer)
    labels.data = labels.data.astype(np.int32) + 300
    settle(widget)
    assert "labels from 300 to 300, expected 1 to 254" in widget.status.text()
    labels.data = labels.data - 299
    settle(widget)
    assert widget.status.text() == "Draw strokes of two classes or more"


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((8, 8), dtype=np.uint8), "leave out this blank image"),
        (two_tone().astype(np.float32), "float pixels range from 40 to"),
        (two_tone().astype(np.int32), "pixels are int32"),
    ],
)
def test_images_that_cannot_be_learnt_from_are_refused(widget, viewer, image, words):
    begin(widget, viewer, image)
    assert len(told()) == 1
    assert words in told()[0]


def test_without_anything_it_says_what_is_missing(widget):
    widget.predict_now()
    widget.new_labels()
    assert told() == ["no image: open one, for example by dropping its file on napari"] * 2
    widget.count_objects()
    assert "nothing is predicted yet" in told()[-1]


def test_three_dimensional_view_is_refused(widget, viewer):
    begin(widget, viewer, np.stack([two_tone()] * 3))
    viewer.dims.ndisplay = 3
    settle(widget)
    assert "go back to two" in widget.status.text()


def test_planes_of_a_stack_are_learnt_together(widget, viewer):
    stack = np.stack([two_tone(seed=seed) for seed in range(3)])
    stack[2] = 230 - stack[2]
    viewer.dims.set_current_step(0, 0)
    labels = begin(widget, viewer, stack)
    viewer.dims.set_current_step(0, 1)
    paint_both(labels, (1,))
    assert until(lambda: predicted(viewer).ndim == 3 and is_right(predicted(viewer)[1]))
    settle(widget)
    assert widget.learning.project.annotated() == ["cells at 1"]
    viewer.dims.set_current_step(0, 0)
    settle(widget)
    assert is_right(predicted(viewer)[0])
    assert not predicted(viewer)[2].any()


def test_the_first_axis_may_hold_channels(widget, viewer):
    image = viewer.add_image(np.stack([two_tone(), two_tone(seed=1)]), name="stains", scale=(1, 0.5, 0.5))
    widget.channels_box.setChecked(True)
    widget.new_labels()
    labels = widget.labels_choice.layer
    assert labels.data.shape == (64, 80)
    assert labels.scale.tolist() == [0.5, 0.5]
    labels.brush_size = 5
    widget.set_live(True)
    paint_both(labels)
    assert until(lambda: is_right(predicted(viewer, "stains prediction")))
    assert widget.learning.project.image("stains").shape == (64, 80, 2)
    assert labels_shape(image, channels=True) == (64, 80)


def test_pausing_and_predict_now(widget, viewer):
    labels = begin(widget, viewer)
    widget.set_live(False)
    paint_both(labels)
    settle(widget)
    assert not predicted(viewer).any()
    widget.predict_now()
    assert until(lambda: is_right(predicted(viewer)))
    assert until(lambda: widget._task is None)


def test_uncertainty_comes_and_goes(widget, viewer):
    paint_both(begin(widget, viewer))
    assert until(lambda: predicted(viewer).any())
    widget.uncertainty_box.setChecked(True)
    settle(widget)
    layer = viewer.layers["cells uncertainty"]
    assert isinstance(layer, Image)
    assert layer.data[:, 38:42].mean() > layer.data[:, :20].mean()
    widget.uncertainty_box.setChecked(False)
    assert not layer.visible


SQUARES = ((6, 8), (6, 48), (40, 28))


def three_squares():
    image = two_tone(high=40)
    for row, column in SQUARES:
        image[row : row + 16, column : column + 16] += 150
    return image


def begin_counting(widget, viewer):
    """Count the squares; gives the layers of labels and objects."""
    labels = begin(widget, viewer, three_squares())
    labels.data[8:20, 10:22] = labels.data[42:54, 30:42] = 2
    labels.data[26:36, :] = 1
    labels.refresh()
    assert until(lambda: predicted(viewer).any())
    widget.count_objects()
    assert until(lambda: predicted(viewer, "cells objects").any())
    settle(widget)
    return labels, viewer.layers["cells objects"]


def drag(layer, *points):
    """Press the button of the mouse at the first point, move it to the others, and let it go."""
    event = SimpleNamespace(type="mouse_press", position=points[0], dims_displayed=(0, 1))
    gestures = [callback(layer, event) for callback in layer.mouse_drag_callbacks]
    types = ["mouse_press", *["mouse_move"] * (len(points) - 1), "mouse_release"]
    for type_, position in zip(types, [*points, points[-1]], strict=True):
        event.type, event.position = type_, position
        for gesture in gestures:
            next(gesture, None)


def corrected(widget):
    assert until(lambda: widget._task is None and not widget._news)
    settle(widget)


def test_objects_are_numbered_and_counted(widget, viewer):
    labels, objects = begin_counting(widget, viewer)
    assert widget.objects.text.text().startswith(
        "3 objects in cells: no region is annotated as a whole. Each"
    )
    assert np.unique(objects.data).tolist() == [0, 1, 2, 3]
    labels.data[40:60, 24:48] = 1  # the count follows
    labels.refresh()
    assert until(lambda: objects.data.max() == 2)
    assert widget.objects.text.text().startswith("2 objects in cells")
    viewer.layers.remove(objects)
    labels.data[62, :] = 1
    labels.refresh()
    settle(widget)
    assert "cells objects" not in viewer.layers
    widget.count_objects()
    assert until(lambda: "cells objects" in viewer.layers)


def test_objects_are_corrected_with_the_mouse(widget, viewer):
    labels, objects = begin_counting(widget, viewer)
    before = labels.data.copy()
    widget.objects.tools.setCurrentText("split")
    assert viewer.layers.selection.active is objects
    assert not objects.mouse_pan
    drag(objects, (2, 56), (12, 56), (26, 56))
    corrected(widget)
    assert objects.data.max() == 4
    assert objects.data[12, 50] != objects.data[12, 62]
    assert "4 objects in cells, 2 of them checked" in widget.objects.text.text()
    assert labels.data[12, 50] == 2  # a correction is a label
    widget.undo()
    corrected(widget)
    assert objects.data.max() == 3
    np.testing.assert_array_equal(labels.data, before)
    widget.objects.tools.setCurrentText("delete")
    drag(objects, (14, 56))
    corrected(widget)
    assert objects.data.max() == 2
    assert labels.data[14, 56] == 1
    widget.objects.tools.setCurrentText("outline")
    drag(objects, (4, 7), (24, 7), (24, 26), (4, 26))
    corrected(widget)
    [drawn] = np.unique(objects.data[5:24, 8:25])
    assert np.count_nonzero(objects.data == drawn) == 21 * 20
    widget.objects.tools.setCurrentText("merge")
    drag(objects, (14, 16), (47, 35))
    corrected(widget)
    assert "these objects do not touch" in told()[-1]
    widget.objects.tools.setCurrentText("accept")
    drag(objects, (47, 35))
    corrected(widget)
    assert labels.data[47:49, 29].tolist() == [2, 2]
    viewer.layers.selection.active = labels  # to draw a stroke in between
    labels.data[62, :] = 1
    labels.refresh()
    corrected(widget)
    assert viewer.layers.selection.active is labels
    widget.objects.tools.setCurrentIndex(0)
    assert viewer.layers.selection.active is labels
    assert objects.mouse_pan
    drag(objects, (14, 16))  # moves the picture
    assert widget._task is None
    assert len(told()) == 1


def test_objects_are_grown_as_far_as_the_mouse_goes(widget, viewer):
    _, objects = begin_counting(widget, viewer)
    widget.objects.tools.setCurrentText("delete")
    drag(objects, (14, 56))
    corrected(widget)
    assert objects.data.max() == 2
    widget.objects.tools.setCurrentText("outline")
    drag(objects, (14, 56))
    corrected(widget)
    assert told()[-1] == "cells: an outline of 1 pixel: draw around an object"
    widget.undo()
    corrected(widget)
    areas = []
    widget.objects.tools.setCurrentText("grow")
    for edge in ((14, 59), (22, 64)):
        drag(objects, (14, 56), edge)
        corrected(widget)
        areas.append(np.count_nonzero(objects.data == objects.data[14, 56]))
        widget.undo()
        corrected(widget)
    assert areas[0] < areas[1]
    assert len(told()) == 1


def test_one_correction_after_the_other(widget, viewer):
    """Nothing is lost when the mouse is faster than the session; strokes meanwhile stay."""
    labels, objects = begin_counting(widget, viewer)
    widget.objects.tools.setCurrentText("accept")
    for row, column in SQUARES:
        drag(objects, (row + 8, column + 8))
    labels.data[30, 2:6] = 2
    labels.refresh()
    assert until(lambda: not widget._corrections)
    corrected(widget)
    assert "3 of them checked" in widget.objects.text.text()
    assert labels.data[30, 2:6].tolist() == [2, 2, 2, 2]
    known = widget.learning.project.labels("cells").labels
    np.testing.assert_array_equal(known, np.where(labels.data == 0, UNLABELLED, labels.data))
    assert not told()


def test_corrections_that_wait_are_of_their_own_image(widget, viewer):
    labels, objects = begin_counting(widget, viewer)
    widget.objects.tools.setCurrentText("accept")
    drag(objects, (14, 16))
    drag(objects, (14, 56))
    viewer.add_image(two_tone(seed=1), name="others")
    widget.image_choice.setCurrentIndex(1)
    widget.new_labels()
    corrected(widget)
    assert labels.data[14, 56] == 2
    assert not widget.labels_choice.layer.data.any()
    assert not told()


def test_an_object_gets_the_label_that_is_chosen(widget, viewer):
    labels, objects = begin_counting(widget, viewer)
    labels.data[60, 70:74] = 3
    labels.refresh()
    settle(widget)
    labels.selected_label = 3
    widget.objects.tools.setCurrentText("classify")
    drag(objects, (14, 56))
    corrected(widget)
    assert labels.data[14, 56] == 3
    widget.accept_objects()
    corrected(widget)
    assert (labels.data > 0).all()
    assert not told()


def test_objects_are_taken_apart_as_the_slider_says(widget, viewer):
    _, objects = begin_counting(widget, viewer)
    session = widget.learning.session
    widget.objects.depth.setValue(0)
    assert session.object_settings["depth"] == 0.01
    widget.objects.smallest.setValue(2000)
    assert until(lambda: not objects.data.any())
    assert session.object_settings == {"depth": 0.01, "smallest": 2000.0, "fill_holes": None}
    widget.objects.fill_box.setCheckState(Qt.CheckState.Checked)
    assert session.object_settings["fill_holes"] is True
    widget.objects.learnt_button.click()
    assert set(session.object_settings.values()) == {None}
    assert until(lambda: objects.data.max() == 3)
    assert not told()


def test_nothing_to_undo_is_said(widget, viewer):
    begin(widget, viewer)
    widget.undo()
    assert until(lambda: widget.result.text() == "There is nothing to undo")


def test_a_folder_is_segmented(widget, viewer, tmp_path, monkeypatch):
    begin_counting(widget, viewer)
    folder = tmp_path / "plate"
    for name in ("a", "b"):
        write_image(folder / f"{name}.png", three_squares() / 255)
    session = widget.learning.session
    # in this process; how work is done in another one is tested with the session
    monkeypatch.setattr(
        session._folders,
        "start",
        lambda work, prepare, done: (prepare(), done(work(lambda items, _: iter(items)))),
    )
    widget.segment_folder(folder)
    assert until(lambda: widget.run.text().startswith("2 files segmented"))
    assert until(lambda: widget.folder_button.text() == "Segment a folder…")
    assert (tmp_path / "plate-segmented" / "images.csv").is_file()
    assert segkit.load(tmp_path / "plate-segmented-training" / "results.segkit").label_map_.values == (1, 2)
    assert until(lambda: widget._task is None)
    widget.segment_folder(tmp_path / "none")
    assert until(lambda: any("no such folder" in one for one in told()))
    assert until(lambda: widget._task is None)


def test_labels_made_wrong_are_marked(widget, viewer):
    labels = begin(widget, viewer)
    paint_both(labels)
    labels.brush_size = 9
    labels.paint((30, 15), 2)  # on the dark side
    settle(widget)
    widget.check_labels()
    assert until(lambda: "may be wrong" in widget.result.text())
    assert "the surest with 1: in cells, label 2, perhaps 1" in widget.result.text()
    marked = viewer.layers["cells doubts"].data == 1
    rows, columns = np.nonzero(marked)
    assert np.hypot(rows - 30, columns - 15).min() < 9  # a piece of what was painted there
    assert viewer.layers.selection.active is labels
    assert viewer.layers["cells doubts"].visible


def test_results_of_a_hidden_image_are_hidden(widget, viewer):
    labels = begin(widget, viewer)
    paint_both(labels)
    settle(widget)
    widget.image_choice.layer.visible = labels.visible = False
    widget.check_labels()
    assert until(lambda: "cells doubts" in viewer.layers)
    assert not viewer.layers["cells doubts"].visible
    assert viewer.layers["cells prediction"].visible  # as it was


def test_a_network_is_trained_shown_and_cancelled(widget, viewer):
    labels = begin(widget, viewer)
    widget.train_network()
    assert until(lambda: any("too little is labelled yet" in one for one in told()))
    paint_both(labels)
    settle(widget)
    session = widget.learning.session
    work = []

    def start(*arguments, **keywords):
        work.append(arguments)
        session._trainer.report = Report("Training 9 networks", 0.25, 120.0)

    session._trainer.train = start
    session._trainer.cancel = lambda: (setattr(session._trainer, "report", None), session._network_changed())
    widget.train_network()
    assert until(lambda: widget.network_button.text() == "Cancel the network")
    assert widget.network.text() == "Training 9 networks: 25%, 2 min left"
    assert work
    assert until(lambda: widget._task is None)
    widget.train_network()
    assert until(lambda: widget.network_button.text() == "Train a network")
    assert widget.network.text() == ""


def test_objects_need_a_background(widget, viewer):
    labels = begin(widget, viewer)
    paint_both(labels)
    labels.data[labels.data == 1] = 3
    labels.refresh()
    assert until(lambda: predicted(viewer).any())
    widget.count_objects()
    assert "paint some of it with label 1" in told()[-1]


def test_a_model_is_saved_with_its_command(widget, viewer, tmp_path):
    paint_both(begin(widget, viewer))
    widget.save_model(tmp_path / "mine")
    widget.save_model(tmp_path / "mine")
    assert told() == ["segkit is still busy with the last request: wait until it is done"]
    assert until(lambda: widget.result.text().startswith("Saved"))
    segmenter = segkit.load(tmp_path / "mine.segkit")
    assert is_right(segmenter.predict(two_tone() / 255))
    command = (tmp_path / "mine-training" / "command.txt").read_text(encoding="utf-8")
    assert shlex.split(command)[:2] == ["segkit", "train"]


def test_a_model_that_cannot_be_saved_loses_nothing(widget, viewer, tmp_path):
    begin(widget, viewer)
    widget.save_model(tmp_path / "mine.segkit")
    assert until(lambda: "nothing is labelled yet" in "".join(told()))
    assert until(lambda: widget._task is None)


def test_closing_its_window_stops_the_session(app, viewer, tmp_path):
    window, dock = QMainWindow(), QDockWidget()
    widget = SegmentWidget(viewer, cache=FeatureCache(tmp_path))
    dock.setWidget(widget)
    window.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, dock)
    paint_both(begin(widget, viewer))
    assert until(segkit_threads)
    window.close()
    assert not segkit_threads()
    viewer.layers["cells labels"].paint((3, 3), 2)
    viewer.layers.clear()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QApplication.processEvents()


def test_functions_for_scripts():
    image = Image(np.stack([two_tone(), two_tone(seed=1)]), name="cells", scale=(2, 1, 1))
    labels = Labels(np.zeros((2, 64, 80), dtype=np.uint8), name="strokes", scale=(2, 1, 1))
    labels.data[0, 4:60, 4:24], labels.data[0, 4:60, 56:76] = 1, 3
    assert annotated_places(labels) == [(0, None, None)]
    segmenter = train_on_layers(image, labels)
    assert segmenter.label_map_.names == ("background", "class 3")
    found = predict_layer(segmenter, image)
    assert np.mean(found.data[1] == np.where(TRUTH == 2, 3, 1)) > 0.95
    assert found.scale.tolist() == [2, 1, 1]


def test_functions_say_what_does_not_fit():
    image, labels = Image(two_tone(), name="cells"), Labels(np.ones((64, 80), dtype=np.uint8), name="strokes")
    with pytest.raises(InputError, match="painted labels: 1, expected two or more"):
        train_on_layers(image, labels)
    with pytest.raises(InputError, match="1 image layer and 2 Labels layers"):
        train_on_layers(image, [labels, labels])
    with pytest.raises(InputError, match="1 axis beside channels"):
        labels_shape(image, channels=True)


def test_planes_are_read_in_their_own_dtype():
    pyramid = Image([two_tone(), two_tone()[::2, ::2]], multiscale=True)
    assert np.array_equal(image_plane(pyramid, (None, None)), two_tone())
    transparent = Image(np.zeros((4, 5, 4), dtype=np.uint8), rgb=True)
    assert image_plane(transparent, (None, None)).shape == (4, 5, 3)
    labels = Labels(np.array([[0, 3]], dtype=np.int32))
    assert labels_plane(labels, (None, None)).tolist() == [[UNLABELLED, 3]]
