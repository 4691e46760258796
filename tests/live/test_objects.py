"""Objects are corrected by hand: they stay, they are annotations, the next image gains, and undo takes them back."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from PIL import Image
from scipy import ndimage

import segkit.live.session
from segkit.config.schema import Config
from segkit.errors import InputError, OutputError
from segkit.evaluation.object_scores import match
from segkit.images import UNLABELLED, load_pairs, read_mask, write_image
from segkit.live import (
    ArrayProject,
    Drawing,
    FeatureCache,
    LabelClass,
    LiveSession,
    ObjectEditor,
    Objects,
    Project,
)
from segkit.live.files import is_checked, write_checked
from segkit.live.objects import PredictedObjects
from segkit.objects.choose import mean_ap
from segkit.segmentation.segmenter import load
from tests.live.conftest import PATIENCE, listen

SHAPE = (72, 96)
# two cells that touch, one alone, and a pair beside the border
CELLS = [(20, 20, 9), (20, 36, 9), (50, 24, 9), (50, 70, 9), (52, 85, 8)]


def cells(shift=0, circles=CELLS):
    """Numbered discs, and a noisy picture of them."""
    rows, cols = np.indices(SHAPE)
    truth = np.zeros(SHAPE, dtype=np.int32)
    for number, (row, col, radius) in enumerate(circles, start=1):
        truth[np.hypot(rows - row, cols - (col - shift)) < radius] = number
    noise = np.random.default_rng(shift).standard_normal(SHAPE)
    return truth, np.clip(0.25 + 0.5 * (truth > 0) + 0.03 * noise, 0, 1)


@pytest.fixture
def cache(tmp_path):
    return FeatureCache(tmp_path / "cache")


@pytest.fixture
def project(tmp_path):
    for shift, name in enumerate("ab"):
        write_image(tmp_path / "images" / f"{name}.png", cells(4 * shift)[1])
    with Project(tmp_path / "images", tmp_path / "out") as opened:
        yield opened


@pytest.fixture
def session(project, cache):
    with LiveSession(project, cache=cache) as opened:
        yield opened


def end(session, project):
    """End a session whose labels are saved."""
    assert session.wait(PATIENCE)
    session.close()
    project.close()


def stroke(session, key="a"):
    """A stroke of the background around two cells, and one in a cell."""
    truth, _ = cells(4 * "ab".index(key))
    session.open(key)
    session.paint(key, (0, 0), ~ndimage.binary_dilation(truth > 0)[:36], 0)
    session.paint(key, (46, 20), np.ones((8, 8), dtype=bool) if key == "a" else truth[46:54, 20:28] > 0, 1)


@pytest.fixture
def drawn(session):
    stroke(session)
    assert session.wait(PATIENCE)
    return session


def test_strokes_alone_count_cells_that_touch_as_one(drawn):
    found = drawn.objects.find("a")
    assert found.labels.max() == 3
    assert found.checked == ()
    assert set(np.unique(found.values)) == {0, 1}


def test_a_line_splits_an_object(drawn):
    heard = listen(drawn)
    before = drawn.project.labels("a").labels.copy()
    patch = drawn.objects.split("a", [(8, 28), (32, 28)])
    assert patch.values.shape[0] <= 22
    found = drawn.objects.find("a")
    assert len(found.checked) == 2
    assert found.labels[20, 20] != found.labels[20, 36]
    assert {found.labels[20, 20], found.labels[20, 36]} == set(found.checked)
    labels = drawn.project.labels("a").labels
    assert labels[20, 20] == labels[20, 36] == 1
    event = heard.wait_for(Objects, lambda event: len(event.checked) == 2)
    assert event.count == event.labels.max() >= 4
    assert drawn.undo("a") is not None
    np.testing.assert_array_equal(drawn.project.labels("a").labels, before)
    assert drawn.objects.find("a").checked == ()
    drawn.redo("a")
    assert len(drawn.objects.find("a").checked) == 2


def test_split_objects_are_merged_again(drawn):
    drawn.objects.split("a", [(8, 28), (32, 28)])
    drawn.objects.merge("a", [(20, 20), (20, 36)])
    found = drawn.objects.find("a")
    assert found.labels[20, 20] == found.labels[20, 36]
    assert len(found.checked) == 1


def test_an_object_is_given_a_class(drawn):
    drawn.set_classes([*drawn.project.classes, LabelClass(2, "dead", "#ff0000")])
    mask = drawn.objects.find("a").labels
    mask = mask == mask[50, 24]
    drawn.objects.classify("a", (50, 24), 2)
    assert (drawn.project.labels("a").labels[mask] == 2).all()
    found = drawn.objects.find("a")
    np.testing.assert_array_equal(found.labels == found.labels[50, 24], mask)
    table = drawn.objects.measure("a")
    assert table["class"][table["label"] == found.labels[50, 24]].tolist() == ["dead"]


def test_a_deleted_object_is_background(drawn):
    mask = drawn.objects.find("a").labels
    mask = mask == mask[20, 20]
    drawn.objects.delete("a", (20, 20))
    assert (drawn.project.labels("a").labels[mask] == 0).all()
    found = drawn.objects.find("a")
    assert not found.labels[mask].any()
    assert not found.values[mask].any()


def test_an_accepted_object_stays_whatever_the_model_learns(drawn):
    mask = drawn.objects.find("a").labels
    mask = mask == mask[50, 24]
    drawn.objects.accept("a", (50, 24))
    drawn.paint("a", (40, 0), np.ones((30, 10), dtype=bool), 1)  # a bad stroke
    found = drawn.objects.find("a")
    assert len(found.checked) == 1
    np.testing.assert_array_equal(found.labels == found.checked[0], mask)


def test_all_objects_are_accepted_at_once(drawn):
    before = drawn.objects.find("a").labels
    drawn.objects.accept("a")
    found = drawn.objects.find("a")
    np.testing.assert_array_equal(found.labels, before)
    assert found.checked == tuple(range(1, before.max() + 1))
    assert (drawn.project.labels("a").labels == (before > 0)).all()


def test_an_object_is_drawn_anew(drawn):
    """What the new outline leaves of the old one is background."""
    old = drawn.objects.find("a").labels
    old = old == old[50, 24]
    drawn.objects.draw("a", (44, 18), np.ones((12, 12), dtype=bool))
    found = drawn.objects.find("a")
    new = np.zeros(SHAPE, dtype=bool)
    new[44:56, 18:30] = True
    np.testing.assert_array_equal(found.labels == found.labels[50, 24], new)
    assert (drawn.project.labels("a").labels[old & ~new] == 0).all()


def test_an_object_is_grown_from_its_middle(drawn):
    truth, _ = cells()
    drawn.objects.grow("a", (20, 20), reach=9)  # of two that touch
    found = drawn.objects.find("a")
    assert found.checked == (found.labels[20, 20],)
    grown = found.labels == found.labels[20, 20]
    cell = truth == truth[20, 20]
    assert (grown & cell).sum() / (grown | cell).sum() > 0.7
    assert (drawn.project.labels("a").labels[grown] == 1).all()
    drawn.undo("a")
    assert drawn.objects.find("a").checked == ()
    drawn.objects.grow("a", (50, 24))  # of a typical size
    found = drawn.objects.find("a").labels
    cell = truth == truth[50, 24]
    grown = found == found[50, 24]
    assert (grown & cell).sum() / (grown | cell).sum() > 0.8


def test_what_is_checked_or_labelled_as_background_is_not_grown_over(drawn):
    drawn.objects.accept("a", (50, 24))
    before = drawn.objects.find("a")
    checked = before.labels == before.checked[0]
    background = drawn.project.labels("a").labels == 0
    drawn.objects.grow("a", (50, 70), reach=500)
    found = drawn.objects.find("a")
    assert len(found.checked) == 2
    np.testing.assert_array_equal(found.labels == found.labels[50, 24], checked)
    assert (drawn.project.labels("a").labels[background] == 0).all()
    with pytest.raises(InputError, match="row 2, column 2 is labelled as background: erase that first"):
        drawn.objects.grow("a", (2, 2))


def test_nothing_is_grown_while_a_model_is_exported(drawn):
    drawn._is_exporting = True
    with pytest.raises(InputError, match="the model is being exported"):
        drawn.objects.grow("a", (50, 24))
    drawn._is_exporting = False


def test_an_object_is_grown_on_the_image_alone(session):
    truth, _ = cells()
    session.objects.grow("a", (50, 24), reach=10)
    found = session.objects.find("a").labels > 0
    cell = truth == truth[50, 24]
    assert (found & cell).sum() / (found | cell).sum() > 0.8


def test_an_object_can_be_drawn_before_anything_is_predicted(session):
    session.open("b")
    session.objects.draw("b", (-3, 2), np.ones((10, 10), dtype=bool))
    labels = session.project.labels("b")
    assert np.count_nonzero(labels.labels == 1) == 70
    assert set(np.unique(labels.numbers)) == {0, 1}


def test_checked_objects_can_be_corrected_without_a_model(session):
    session.open("b")
    session.objects.draw("b", (2, 2), np.ones((10, 10), dtype=bool))
    assert session.objects.find("b").checked == (1,)
    session.objects.split("b", [(0, 6), (14, 6)])
    areas = session.objects.measure("b")["area"]
    assert (areas.size, areas.sum()) == (2, 100)
    session.objects.delete("b", (4, 3))
    assert len(session.objects.find("b").checked) == 1


def test_a_damaged_file_of_objects_is_somebody_elses(drawn, project, tmp_path):
    drawn.objects.accept("a", (50, 24))
    end(drawn, project)
    file = tmp_path / "out" / "checked" / "a.tif"
    whole = file.read_bytes()
    for length in (0, 1, 3, 6, 8, 100):
        file.write_bytes(whole[:length])
        assert not is_checked(file)
    with Project(tmp_path / "images", tmp_path / "out") as again:
        assert not again.labels("a").has_objects
        with pytest.raises(OutputError, match="among the checked objects: move it elsewhere"):
            again.training_files()


def test_objects_of_another_size_are_told_by_their_file(drawn, project, cache, tmp_path):
    drawn.objects.accept("a", (50, 24))
    end(drawn, project)
    write_checked(tmp_path / "out" / "checked" / "a.tif", [np.ones((9, 9), dtype=np.int32)])
    with (
        Project(tmp_path / "images", tmp_path / "out") as again,
        LiveSession(again, cache=cache) as session,
        pytest.raises(InputError, match=r"move .*checked/a\.tif elsewhere"),
    ):
        session.export()


def test_erased_labels_do_not_come_back_with_other_axes(tmp_path):
    pages = np.stack([np.round(255 * cells(4 * shift)[1]).astype(np.uint8) for shift in range(3)])
    (tmp_path / "images").mkdir()
    tifffile.imwrite(tmp_path / "images" / "s.tif", pages, photometric="minisblack", metadata=None)
    ones = np.ones((4, 4), dtype=bool)
    with Project(tmp_path / "images", tmp_path / "out") as project:
        project.set_axes("ZYX")
        project.labels("s#1").put((0, 0), ones, ones.astype(np.uint8), ones.astype(np.int32))
        project.save("s#1")
        project.labels("s#1").undo()
        project.set_axes("CYX")
        project.labels("s").paint((0, 0), ones, 1)
        project.save("s")
    with Project(tmp_path / "images", tmp_path / "out") as again:
        assert again.annotated() == ["s"]
        assert not again.labels("s").has_objects


def test_a_stroke_over_a_checked_object_takes_its_pixels(drawn):
    drawn.objects.accept("a", (50, 24))
    n_before = np.count_nonzero(drawn.project.labels("a").numbers)
    drawn.paint("a", (50, 20), np.ones((3, 8), dtype=bool), 0)
    drawn.paint("a", (54, 20), np.ones((3, 8), dtype=bool), 1)  # its own class: nothing changes
    assert np.count_nonzero(drawn.project.labels("a").numbers) == n_before - 24


def test_corrections_of_one_image_teach_the_next(drawn):
    """Without them regions are objects; with them their size is known, and those that touch come apart."""
    assert drawn.objects.find("b").labels.max() == 3
    drawn.objects.split("a", [(8, 28), (32, 28)])
    drawn.objects.accept("a", (50, 24))
    found = drawn.objects.find("b")
    assert found.labels.max() == 5
    assert "annotated ones" in found.rule


def test_settings_by_hand_hold_for_checked_objects(project, cache):
    config = Config.load(None, ["objects.depth=5", "objects.smallest=3"])
    with LiveSession(project, cache=cache, config=config) as session:
        stroke(session)
        session.objects.accept("a", (50, 24))
        found = session.objects.find("b")
        assert found.labels.max() == 3
        assert found.rule.startswith("watershed on distance from the edge")


def test_settings_by_hand_change_what_is_found_and_exported(drawn, tmp_path):
    before = drawn.objects.find("a")
    assert before.depth is None  # strokes do not show objects that touch
    events = listen(drawn)
    drawn.set_objects(smallest=1000)
    assert drawn.object_settings == {"depth": None, "smallest": 1000, "fill_holes": None}
    assert drawn.objects.find("a").labels.max() == 0
    drawn.open("a")
    drawn.wait(PATIENCE)
    assert events.of(Objects)[-1].count == 0
    drawn.set_objects(depth=0.02)
    assert drawn.objects.find("a").depth == 0.02
    made = drawn.export(model=tmp_path / "m.segkit")
    assert load(made.model).objects_.splitter.depth == 0.02
    drawn.set_objects()
    np.testing.assert_array_equal(drawn.objects.find("a").labels, before.labels)
    for name, value in (("depth", -1), ("smallest", "x"), ("depth", float("nan")), ("depth", True)):
        with pytest.raises(
            InputError, match=rf"^{name} of objects {value!r}: give a number from 0, or none$"
        ):
            drawn.set_objects(**{name: value})
    with pytest.raises(InputError, match=r"^fill_holes of objects 'x': give yes or no, or none$"):
        drawn.set_objects(fill_holes="x")


def test_settings_by_hand_outlive_the_session(drawn, project, cache):
    drawn.set_objects(depth=0.03, fill_holes=False)
    drawn.close()
    with LiveSession(project, cache=cache) as again:
        assert again.object_settings == {"depth": 0.03, "smallest": None, "fill_holes": False}
    with LiveSession(project, cache=cache, config=Config.load(None, ["objects.depth=0.5"])) as other:
        assert other.object_settings == {"depth": 0.5, "smallest": None, "fill_holes": None}


def test_settings_wait_for_no_export_and_corrections_are_refused_meanwhile(drawn, monkeypatch):
    begun, done = threading.Event(), threading.Event()
    real = segkit.live.session.hand_over

    def slow(*given, **named):
        begun.set()
        done.wait(60)
        return real(*given, **named)

    monkeypatch.setattr(segkit.live.session, "hand_over", slow)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(drawn.export)
        assert begun.wait(60)
        drawn.set_objects(depth=0.2)
        try:
            with pytest.raises(
                InputError, match=r"^the model is being exported, which may take minutes: correct obj"
            ):
                drawn.objects.delete("a", (20, 20))
        finally:
            done.set()
        assert made.result(PATIENCE).model.exists()
    assert drawn.objects.find("a").labels.any()


def test_classes_of_an_opened_model_stay(drawn, project, cache, tmp_path):
    model = load(drawn.export(model=tmp_path / "m.segkit").model)
    drawn.close()
    background, cell = project.classes
    third = LabelClass(2, "dead", "#112233")
    with LiveSession(project, cache=cache, model=model) as session:
        session.set_classes([background, cell, third])
        session.set_classes([background, replace(cell, name="nucleus")])
        with pytest.raises(InputError, match=r"^class nucleus is one of the opened model: keep it$"):
            session.set_classes([background, third])


def test_the_table_follows(drawn):
    drawn.objects.split("a", [(8, 28), (32, 28)])
    found, table = drawn.objects.find("a"), drawn.objects.measure("a")
    assert table["label"].tolist() == list(range(1, found.labels.max() + 1))
    assert table["label"][table["checked"]].tolist() == list(found.checked)
    assert set(table["class"]) == {"foreground"}
    stored, _ = drawn.project.stored("a")[:2]
    first = stored[found.labels == 1]
    assert table["intensity_mean"][0] == pytest.approx(first.mean())
    assert table["area"][0] == first.size


def test_the_class_is_that_of_most_pixels(tmp_path, cache):
    _, image = cells()
    names = {3: "none", 5: "cell", 9: "dot"}
    classes = [LabelClass(value, name, f"#00000{value}") for value, name in names.items()]
    project = ArrayProject(classes=classes)
    project.add("a", image)
    with LiveSession(project, cache=cache) as session:
        session.objects.draw("a", (40, 60), np.ones((9, 9), dtype=bool), value=9)
        session.paint("a", (0, 60), np.ones((9, 9), dtype=bool), 3)
        session.paint("a", (46, 20), np.ones((8, 8), dtype=bool), 5)
        session.objects.draw("a", (38, 60), np.ones((12, 9), dtype=bool))
        labels = session.project.labels("a")
        assert labels.labels[38, 60] == 9
        assert labels.numbers.max() == 1
        assert np.count_nonzero(labels.numbers) == 12 * 9
        table = session.objects.measure("a")
        assert "dot" in table["class"].tolist()


@pytest.mark.parametrize(
    ("correct", "told"),
    [
        (lambda objects: objects.accept("a", (2, 2)), "no object at row 2, column 2"),
        (lambda objects: objects.delete("a", (-1, 20)), "no object at row -1, column 20"),
        (lambda objects: objects.delete("a", (20, 96)), "no object at row 20, column 96"),
        (
            lambda objects: objects.merge("a", [(20, 20), (20, 36)]),
            "2 pixels in one object: give one in each",
        ),
        (lambda objects: objects.merge("a", [(20, 20), (50, 24)]), "do not touch"),
        (lambda objects: objects.split("a", [(8, 28)]), "a line of 1 point: give two or more"),
        (lambda objects: objects.split("a", [(8, 28), (20, 28)]), "cuts through no object"),
        (lambda objects: objects.merge("a", []), "0 pixels in one object"),
        (
            lambda objects: objects.accept("a", (50.5, 24.2)),
            "give row and column of a pixel, two whole numbers",
        ),
        (lambda objects: objects.accept("a", (1, 2, 3)), "two whole numbers"),
        (lambda objects: objects.delete("a", 5), "two whole numbers"),
        (lambda objects: objects.split("a", [(np.nan, 3), (9, 9)]), "two whole numbers"),
        (lambda objects: objects.split("a", [(-(10**9), 28), (10**9, 28)]), "ends far outside the image"),
        (lambda objects: objects.draw("a", (10**30, 2), np.ones((2, 2), dtype=bool)), "two whole numbers"),
        (lambda objects: objects.draw("a", (90, 0), np.ones((2, 2), dtype=bool)), "lies outside the image"),
        (
            lambda objects: objects.draw("a", (9, 0), np.ones((2, 2))),
            r"mask of shape \(2, 2\) and dtype float64",
        ),
        (lambda objects: objects.classify("a", (20, 20), 0), "value 0 is no class of objects: give one of 1"),
        (lambda objects: objects.classify("a", (2, 2), 1), "no object at row 2, column 2"),
        (lambda objects: objects.grow("a", (72, 0)), "row 72, column 0 lies outside the image"),
        (lambda objects: objects.grow("a", (7, 0.5)), "two whole numbers"),
        (lambda objects: objects.grow("a", (7, 0), reach=-1), "reach -1: give a number of pixels above 0"),
        (lambda objects: objects.grow("a", (7, 0), reach=np.nan), "reach nan"),
        (lambda objects: objects.grow("a", (50, 24), value=0), "no class of objects"),
        (
            lambda objects: objects.draw("a", (9, 0), np.ones((2, 2), dtype=bool), value=0),
            "no class of objects",
        ),
    ],
)
def test_what_cannot_be_is_told_and_changes_nothing(drawn, correct, told):
    before, version = drawn.project.labels("a").labels.copy(), drawn.project.labels("a").version
    with pytest.raises(InputError, match=told):
        correct(drawn.objects)
    np.testing.assert_array_equal(drawn.project.labels("a").labels, before)
    assert drawn.project.labels("a").version == version


def test_without_a_prediction_there_is_nothing_to_correct(session):
    with pytest.raises(InputError, match="nothing is predicted yet"):
        session.objects.accept("a", (20, 20))


def test_pixels_may_be_lists(drawn):
    """As JSON holds them."""
    drawn.objects.split("a", [[8, 28], [32, 28]])
    drawn.objects.merge("a", [[20, 20], [20.0, 36]])
    assert len(drawn.objects.find("a").checked) == 1


def test_an_object_whose_filled_hole_is_larger_is_of_its_class(session):
    """Its hole, predicted as background, has more pixels than the ring."""
    rows, cols = np.indices(SHAPE)
    ring = np.abs(np.hypot(rows - 50, cols - 50) - 8) < 1.5
    session.paint("a", (0, 0), ring, 1)
    session.paint("a", (0, 0), np.hypot(rows - 50, cols - 50) > 11, 0)
    values = np.where(ring, 1, 0).astype(np.uint8)
    labels = (np.hypot(rows - 50, cols - 50) < 9.5).astype(np.int32)
    editor = ObjectEditor(session.project, lambda _: PredictedObjects(values, labels, None), lambda *_: None)
    for at in ((50, 42), None):
        editor.accept("a", at)
        drawing = session.project.labels("a")
        assert set(drawing.labels[drawing.numbers > 0]) == {1}
        drawing.undo()
    assert editor.measure("a")["class"].tolist() == ["foreground"]


def test_objects_follow_while_learning_is_paused(drawn):
    heard = listen(drawn)
    drawn.live = False
    drawn.objects.split("a", [(8, 28), (32, 28)])
    assert drawn.wait(PATIENCE)
    assert len(heard.of(Objects)[-1].checked) == 2


def test_objects_drawn_at_the_same_time_are_two():
    drawing = Drawing.blank((8, 8))
    ones = np.ones((2, 2), dtype=bool)
    for corner in ((0, 0), (4, 4)):  # each counts its own from 1
        drawing.put(corner, ones, np.ones((2, 2), np.uint8), np.ones((2, 2), np.int32))
    assert (drawing.numbers[0, 0], drawing.numbers[4, 4]) == (1, 2)
    drawing.put((0, 0), np.ones((8, 8), bool), np.ones((8, 8), np.uint8), np.ones((8, 8), np.int32))
    assert drawing.numbers.max() == 1


def test_the_background_of_checked_objects_stays_the_first_class(drawn):
    drawn.objects.accept("a", (50, 24))
    drawn.paint("a", (0, 0), drawn.project.labels("a").labels == 0, UNLABELLED)
    more = [*drawn.project.classes, LabelClass(2, "dot", "#123456")]
    drawn.set_classes(more)
    with pytest.raises(InputError, match="class background is the background of the objects"):
        drawn.set_classes(more[1:])


def test_checked_objects_outlive_the_session(drawn, project, cache, tmp_path):
    drawn.objects.split("a", [(8, 28), (32, 28)])
    assert drawn.wait(PATIENCE)
    [stored] = read_mask(tmp_path / "out" / "checked" / "a.tif")
    assert stored.max() == 2
    drawn.close()
    project.close()
    with Project(tmp_path / "images", tmp_path / "out") as again:
        np.testing.assert_array_equal(again.labels("a").numbers, stored)
        again.labels("a").paint((0, 0), np.ones(SHAPE, dtype=bool), UNLABELLED)
        again.save("a")
    assert not (tmp_path / "out" / "checked" / "a.tif").exists()


def test_objects_that_their_labels_did_not_follow_are_forgotten(drawn, project, tmp_path):
    """As if the program was killed between the two files."""
    drawn.objects.accept("a", (50, 24))
    end(drawn, project)
    mask = tmp_path / "out" / "masks" / "a.png"
    labels = read_mask(mask)[0].copy()
    labels[50, 24], labels[50, 25] = 0, UNLABELLED
    mask.unlink()
    Image.fromarray(labels.astype(np.uint8)).save(mask)
    with Project(tmp_path / "images", tmp_path / "out") as again:
        numbers = again.labels("a").numbers
        assert numbers[50, 24] == numbers[50, 25] == 0
        assert numbers[50, 26]


def test_objects_of_somebody_else_are_left_alone(session, tmp_path):
    """Such as those of an earlier prediction into the same folder."""
    foreign = tmp_path / "out" / "checked" / "a.tif"
    foreign.parent.mkdir(parents=True)
    tifffile.imwrite(foreign, np.ones(SHAPE, dtype=np.uint16))
    before = foreign.read_bytes()
    stroke(session)
    assert session.wait(PATIENCE)
    assert not session.project.labels("a").has_objects
    assert (tmp_path / "out" / "masks" / "a.png").exists()
    session.objects.accept("a", (50, 24))
    with pytest.raises(OutputError, match=r"checked/a\.tif: changed by another program"):
        session.project.save("a")
    assert foreign.read_bytes() == before
    session.undo("a")  # without objects there is nothing to write
    session.project.save("a")
    session.redo("a")
    foreign.unlink()
    session.project.save("a")
    tifffile.imwrite(foreign.with_name("z.tif"), np.ones(SHAPE, dtype=np.uint16))
    with pytest.raises(OutputError, match=r"z\.tif: not written by segkit, and among the checked objects"):
        session.export()


def test_objects_of_somebody_else_are_not_taken_over(drawn, project, tmp_path):
    """Written between two sessions, beside labels."""
    end(drawn, project)
    foreign = tmp_path / "out" / "checked" / "a.tif"
    foreign.parent.mkdir(parents=True)
    tifffile.imwrite(foreign, np.ones(SHAPE, dtype=np.uint16))
    before = foreign.read_bytes()
    with Project(tmp_path / "images", tmp_path / "out") as again:
        assert "instances" not in again.training_options()
        assert not again.labels("a").has_objects
        again.labels("a").paint((0, 0), np.ones((1, 1), bool), 1)
        again.save("a")
    assert foreign.read_bytes() == before


def test_a_kill_before_the_first_labels_leaves_nothing_in_the_way(drawn, project, tmp_path):
    drawn.objects.accept("a", (50, 24))
    end(drawn, project)
    (tmp_path / "out" / "masks" / "a.png").unlink()
    with Project(tmp_path / "images", tmp_path / "out") as again:
        assert not again.labels("a").has_objects
        again.labels("a").put(
            (0, 0), np.ones((2, 2), bool), np.ones((2, 2), np.uint8), np.ones((2, 2), np.int32)
        )
        again.save("a")
    [stored] = read_mask(tmp_path / "out" / "checked" / "a.tif")
    assert np.count_nonzero(stored) == 4
    stored = stored.astype(np.uint32)
    stored[0, 0] = 2**25
    write_checked(tmp_path / "out" / "checked" / "a.tif", [stored])
    with (
        Project(tmp_path / "images", tmp_path / "out") as again,
        pytest.raises(InputError, match="number 33554432"),
    ):
        again.labels("a")


def test_pages_have_their_own_objects(tmp_path, cache):
    pages = np.stack([np.round(255 * cells(4 * shift)[1]).astype(np.uint8) for shift in range(2)])
    (tmp_path / "images").mkdir()
    tifffile.imwrite(tmp_path / "images" / "s.tif", pages, photometric="minisblack", metadata={"axes": "ZYX"})
    with Project(tmp_path / "images", tmp_path / "out") as project:
        project.labels("s#2").put(
            (0, 0), np.ones((4, 4), bool), np.ones((4, 4), np.uint8), np.full((4, 4), 7)
        )
        project.save("s#2")
        project.labels("s#1").paint((9, 9), np.ones((4, 4), bool), 1)
        project.save("s#1")
    stored = read_mask(tmp_path / "out" / "checked" / "s.tif")
    assert [int(page.max()) for page in stored] == [0, 7]
    with Project(tmp_path / "images", tmp_path / "out") as project:
        assert project.labels("s#2").numbers[0, 0] == 7
        assert not project.labels("s#1").has_objects


def test_an_export_learns_how_objects_are_told_apart(drawn, tmp_path):
    drawn.objects.split("a", [(8, 28), (32, 28)])
    drawn.objects.accept("a")
    stroke(drawn, "b")
    done = drawn.export()
    # one image of two has objects: nothing could be held out
    assert done.objects.startswith("learnt from annotated ones")
    segmenter = load(done.model)
    assert segmenter.objects_.source == "instances"
    _, image = cells(8)
    [found] = segmenter.segment([image[:, :, None].astype(np.float32)], objects=True)
    assert found.objects.max() == 5
    assert "instances" in done.options.read_text()
    dataset = load_pairs(
        tmp_path / "images",
        done.masks,
        only_annotated=True,
        labels={0: "background", 1: "foreground"},
        unlabelled=255,
        instances=tmp_path / "out" / "checked",
    )
    assert [int(numbers.max()) for numbers in dataset.instances] == [5, 0]


def test_arrays_are_exported_with_their_objects(tmp_path, cache):
    truth, image = cells()
    project = ArrayProject({"a": image}, output=tmp_path / "out")
    project.labels("a").put((0, 0), np.ones(SHAPE, bool), (truth > 0).astype(np.uint8), truth)
    with LiveSession(project, cache=cache) as session:
        assert "learnt from" in session.export().objects
        [stored] = read_mask(next((tmp_path / "out" / "checked").glob("*.tif")))
        np.testing.assert_array_equal(stored, truth)
        foreign = tmp_path / "out" / "checked" / "z.tif"
        tifffile.imwrite(foreign, np.ones(SHAPE, dtype=np.uint16))
        with pytest.raises(OutputError, match=r"z\.tif: 1 file of another origin"):
            session.export()
        foreign.unlink()
        project.labels("a").paint((0, 0), truth > 0, UNLABELLED)
        project.labels("a").paint((0, 0), truth == 1, 1)
        session.export()
        assert not list((tmp_path / "out" / "checked").glob("*.tif"))


@pytest.mark.slow
def test_corrected_nuclei_teach_the_next_images(tmp_path, cache, shared):
    """Strokes in one of three images, then ten of its nuclei drawn or accepted: the objects of the others gain."""
    data = shared / "data" / "monuseg"
    files = sorted((data / "images").iterdir())
    files = [files[place] for place in (0, 20, 40)]
    (tmp_path / "images").mkdir()
    truth = {}
    for file in files:
        shutil.copy(file, tmp_path / "images")
        [truth[file.stem]] = read_mask(next((data / "instances").glob(f"{file.stem}.*")))
    first, *others = truth
    cells = truth[first] > 0
    lines = np.zeros(cells.shape, dtype=bool)
    lines[::24], lines[1::24], lines[2::24] = True, True, True

    def score(session):
        found = [match(truth[key], session.objects.find(key).labels) for key in others]
        return float(mean_ap(found)[0])

    with (
        Project(tmp_path / "images", tmp_path / "out") as project,
        LiveSession(project, cache=cache) as session,
    ):
        session.open(first)
        session.paint(first, (0, 0), ndimage.binary_erosion(cells, iterations=3) & lines, 1)
        session.paint(first, (0, 0), ~ndimage.binary_dilation(cells, iterations=3) & lines, 0)
        before = score(session)
        for number in np.unique(truth[first])[1:11]:
            session.objects.draw(first, (0, 0), truth[first] == number)
        after = score(session)
    assert after > before + 0.1
