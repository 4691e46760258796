import copy
import errno
import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from PIL import Image
from sklearn.exceptions import NotFittedError

from segkit import Segmenter, predict_folder
from segkit.errors import ConfigError, InputError, OutputError
from segkit.features import Module, ModuleBank
from segkit.images import (
    PixelSize,
    Reading,
    read_image,
    read_instances,
    read_mask,
    read_pixel_size,
    write_image,
)
from segkit.segmentation.folders import (
    _clashes,
    _digest_run,
    _is_of_the_disk,
    _kinds_of_objects,
    _named,
    reading_of,
)
from segkit.segmentation.results import Job
from tests.segmentation.conftest import read_table as table

SHAPE = (24, 32)


def picture(seed):
    rng = np.random.default_rng(seed)
    mask = np.zeros(SHAPE, dtype=np.uint8)
    mask[6:18, 8 + seed : 20 + seed] = 1
    return np.clip(0.3 + 0.4 * mask + 0.05 * rng.standard_normal(SHAPE), 0, 1).astype(np.float32), mask


def fit(masks):
    segmenter = Segmenter(
        ModuleBank((Module(n_scales=2, n_angles=3),)), selection_pixels=200, training_pixels=400
    )
    return segmenter.fit([picture(seed)[0] for seed in range(len(masks))], masks)


def colour():
    """An image (H, W, 3) with no two equal channels."""
    return np.random.default_rng(0).random((*SHAPE, 3))


@pytest.fixture(scope="module")
def segmenter():
    return fit([255 * picture(seed)[1] for seed in range(2)])


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    write_image(folder / "a" / "one.png", picture(2)[0])
    tifffile.imwrite(
        folder / "stack.tif", np.stack([picture(seed)[0] for seed in (3, 4)]), metadata={"axes": "ZYX"}
    )
    return folder


def test_files_hold_what_predict_gives(segmenter, images, tmp_path):
    written = predict_folder(segmenter, images, str(tmp_path / "out"), probability=True, overlay=True)
    out = tmp_path / "out"
    assert written == [out / "a" / "one.png", out / "stack.tif"]
    for source, target in zip((images / "a" / "one.png", images / "stack.tif"), written, strict=True):
        pages = read_image(source)
        found = segmenter.segment(pages)
        np.testing.assert_array_equal(read_mask(target), [page.labels for page in found])
        maps = tifffile.imread((out / "probability" / target.relative_to(out)).with_suffix(".tif"))
        np.testing.assert_array_equal(
            maps.reshape(len(pages), *SHAPE), [page.probability[:, :, 1] for page in found]
        )
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.png")) == [
        "a/one.png",
        "overlay/a/one.png",
        "overlay/stack-001.png",
        "overlay/stack-002.png",
    ]


def test_results_carry_the_pixel_size_of_their_image(segmenter, tmp_path):
    """A stack of ImageJ at 0.325 um, and an image whose pixels are no squares, beside one that does not tell."""
    folder = tmp_path / "images"
    folder.mkdir()
    pages = [np.rint(65535 * picture(seed)[0]).astype(np.uint16) for seed in range(2)]
    for name, content, size in (("stack", np.stack(pages), (0.325, 0.325)), ("one", pages[0], (0.65, 0.325))):
        resolution = (1 / size[1], 1 / size[0])
        axes = "TYX"[-content.ndim :]
        options = {"metadata": {"unit": "micron", "axes": axes}, "photometric": "minisblack"}
        tifffile.imwrite(folder / f"{name}.tif", content, imagej=True, resolution=resolution, **options)
    tifffile.imwrite(folder / "plain.tif", pages[1])
    predict_folder(segmenter, folder, tmp_path / "out", probability=True)
    for name, size in (("stack.tif", (0.325, 0.325)), ("one.png", (0.65, 0.325))):
        maps = tmp_path / "out" / "probability" / name.replace("png", "tif")
        assert read_pixel_size(tmp_path / "out" / name) == pytest.approx(size)
        assert read_pixel_size(maps) == pytest.approx(size)
    assert read_pixel_size(tmp_path / "out" / "plain.png") is None


def test_a_grey_image_stored_as_colour_is_read_as_grey(segmenter, images, tmp_path):
    grey = read_image(images / "a" / "one.png")[0]
    write_image(images / "stored.png", np.repeat(grey, 3, axis=2))
    note = r"^1 image \(stored.png\) is RGB with three equal channels and read as grey, as the training images are$"
    with pytest.warns(UserWarning, match=note):
        predict_folder(segmenter, images, tmp_path / "out", overlay=True)
    masks = [read_mask(tmp_path / "out" / name)[0] for name in ("stored.png", "a/one.png")]
    np.testing.assert_array_equal(*masks)
    assert 0 < np.count_nonzero(masks[0]) < masks[0].size


def test_bad_images_do_not_stop_the_others(segmenter, images, tmp_path):
    write_image(images / "rgb.png", colour())
    (images / "broken.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match=r"broken.png: cannot be decoded.*rgb.png has 3 channels.*2 failed"):
        masks = predict_folder(segmenter, images, tmp_path / "out")
    assert masks == [tmp_path / "out" / "a" / "one.png", tmp_path / "out" / "stack.tif"]
    rows = table(tmp_path / "out" / "summary.csv")
    assert [(row["image"], row["status"]) for row in rows] == [
        ("a/one.png", "written"),
        ("broken.png", "failed"),
        ("rgb.png", "failed"),
        ("stack.tif", "written"),
    ]
    assert rows[2]["reason"] == (
        f"{images / 'rgb.png'} has 3 channels, the model was trained on 1: save it as the training images are"
    )
    assert (rows[0]["mask"], rows[0]["height"], rows[0]["width"], rows[0]["pages"]) == (
        "a/one.png",
        "24",
        "32",
        "1",
    )
    assert (rows[1]["mask"], rows[1]["height"]) == ("", "")
    assert (rows[3]["mask"], rows[3]["pages"]) == ("stack.tif", "2")


def test_an_image_that_memory_does_not_hold_fails_alone(segmenter, images, tmp_path, monkeypatch):
    Image.new("L", (5000, 4000)).save(images / "large.png")  # 100 MB as bytes and float32
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: 99_000_000)
    with pytest.warns(UserWarning, match=r"large.png: 4,000 x 5,000 pixels: needs .* of memory.*1 failed"):
        masks = predict_folder(segmenter, images, tmp_path / "out")
    assert [mask.name for mask in masks] == ["one.png", "stack.tif"]


def test_where_no_image_is_fit_nothing_is_written(bright, images, tmp_path):
    write_image(images / "rgb.png", colour())
    (images / "broken.png").write_bytes(b"no picture")
    shutil.rmtree(images / "a")
    (images / "stack.tif").unlink()
    with pytest.raises(InputError, match=r"broken.png: cannot be decoded.*rgb.png has 3 channels, the model"):
        predict_folder(bright, images, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_strict_stops_at_an_image_that_fails_and_keeps_what_is_written(bright, images, tmp_path):
    write_image(images / "z.png", picture(5)[0])

    def lose_the_stack(items, description):
        for item in items:
            if description == "Segmenting" and item.name == "stack.tif":
                (images / "stack.tif").unlink()
            yield item

    with pytest.raises(InputError, match=r"stack.tif: No such file.*strict: 1 of 3 images written"):
        predict_folder(bright, images, tmp_path / "out", strict=True, progress=lose_the_stack)
    assert (tmp_path / "out" / "a" / "one.png").exists()
    rows = table(tmp_path / "out" / "summary.csv")
    assert [row["status"] for row in rows] == ["written", "skipped", "skipped"]
    assert {row["reason"] for row in rows[1:]} == {"not reached: the run was stopped"}


def test_an_image_that_vanishes_meanwhile_fails(bright, images, tmp_path):
    def meddle(items, description):
        for item in items:
            if description == "Segmenting" and item.name == "stack.tif":
                (images / "stack.tif").unlink()
            yield item

    with pytest.warns(UserWarning, match="1 written, 0 skipped, 1 failed"):
        predict_folder(bright, images, tmp_path / "out", progress=meddle)
    _, stack = table(tmp_path / "out" / "summary.csv")
    assert stack["reason"].startswith(f"{images / 'stack.tif'}: No such file")


def test_whatever_an_image_raises_the_others_are_segmented(segmenter, images, tmp_path, monkeypatch):
    def fail(self, pages, **options):
        if len(pages) > 1:
            raise ZeroDivisionError("by zero")
        return segment(self, pages, **options)

    segment = Segmenter.segment
    monkeypatch.setattr(Segmenter, "segment", fail)
    with pytest.warns(UserWarning, match="1 written, 0 skipped, 1 failed"):
        predict_folder(segmenter, images, tmp_path / "out")
    assert table(tmp_path / "out" / "summary.csv")[1]["reason"] == (
        f"{images / 'stack.tif'}: cannot be segmented (by zero): leave it out"
    )


def test_formulas_of_a_spreadsheet_are_text_in_the_summary(bright, images, tmp_path):
    write_image(images / "=1+1.png", picture(3)[0])
    predict_folder(bright, images, tmp_path / "out")
    assert table(tmp_path / "out" / "summary.csv")[0]["image"] == "'=1+1.png"


def test_two_images_of_one_name_fail_and_the_others_do_not(bright, images, tmp_path):
    write_image(images / "a" / "one.bmp", picture(2)[0])
    with pytest.warns(UserWarning, match="would both become .*one.png: rename one; 1 written") as told:
        masks = predict_folder(bright, images, tmp_path / "out")
    assert masks == [tmp_path / "out" / "stack.tif"]
    assert sum(str(warning.message).count("would both become") for warning in told) == 1
    rows = table(tmp_path / "out" / "summary.csv")
    assert [row["status"] for row in rows] == ["failed", "failed", "written"]
    assert rows[0]["reason"] == rows[1]["reason"]
    with pytest.raises(InputError, match="would both become"):
        predict_folder(bright, images, tmp_path / "strict", strict=True)
    (images / "stack.tif").unlink()
    with pytest.raises(InputError, match=r"^[^;]*would both become [^;]*$"):
        predict_folder(bright, images, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("size", ["half", (1, 2, 3)])
def test_a_pixel_size_that_is_none_is_refused_first(bright, images, tmp_path, size):
    with pytest.raises(InputError, match=r"^pixel size .*: give "):
        predict_folder(bright, images, tmp_path / "out", pixel_size=size)
    assert not (tmp_path / "out").exists()


def test_an_empty_output_path_is_refused(bright, images, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(OutputError, match="path of the output is empty"):
        predict_folder(bright, images, "")
    assert not list((tmp_path / "here").iterdir())


def test_results_do_not_lie_in_the_input_folder(bright, images):
    with pytest.raises(OutputError, match="is the input folder"):
        predict_folder(bright, images, images / "out")


def test_what_cannot_start_is_told_first(images, tmp_path, segmenter):
    with pytest.raises(NotFittedError):
        predict_folder(Segmenter(), images, tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"file is a file: give a folder for the results$"):
        predict_folder(segmenter, images, tmp_path / "file")


def test_results_do_not_mix_with_images_of_others(images, tmp_path, segmenter):
    others = tmp_path / "masks"
    others.mkdir()
    (others / "notes.txt").touch()
    (others / "other.TIF").touch()
    told = r"masks holds images or masks that segkit did not write \(.*other\.TIF\), or its record, \.segkit"
    with pytest.raises(OutputError, match=told):
        predict_folder(segmenter, images, others)
    assert sorted(path.name for path in others.iterdir()) == ["notes.txt", "other.TIF"]
    (others / "other.TIF").unlink()
    (others / "._other.tif").touch()
    (others / "plate.tif").mkdir()
    predict_folder(segmenter, images, others)
    (others / "other.tif").touch()  # beside results of segkit
    predict_folder(segmenter, images, others, overwrite=True)


@pytest.mark.filterwarnings("ignore:none.tif. darker")
def test_counts_have_an_interval_if_the_model_knows_its_error(cell_segmenter, cell_images, tmp_path):
    model = cell_segmenter.objects_
    knowing = copy.copy(cell_segmenter)
    known = replace(model.scores, counts=[[9, 4]] * 4, all_counted=True)
    knowing.objects_ = replace(model, scores=known)
    for segmenter, out in ((knowing, tmp_path / "known"), (cell_segmenter, tmp_path / "unknown")):
        predict_folder(segmenter, cell_images, out, objects=True)
    rows = table(tmp_path / "known" / "images.csv")
    for row in rows:
        number, is_warned = int(row["count"]), row["image"] == "none"
        low, high = max(0, -(-(number + 1) // 2) - 1), 2 * number + 1
        within = ("", "") if is_warned else (str(low), str(high))
        assert (row["count_low_80"], row["count_high_80"]) == within
    assert {row["count"] for row in rows} == {"0", "5"}
    assert "count_low_80" not in table(tmp_path / "unknown" / "images.csv")[0]


@pytest.mark.filterwarnings("ignore:none.tif. darker")  # which it is
def test_objects_are_numbered_measured_and_outlined(cells, cell_segmenter, cell_images, tmp_path):
    out = tmp_path / "out"
    predict_folder(cell_segmenter, cell_images, out, objects=True, overlay=True)
    images = {row["image"]: row for row in table(out / "images.csv")}
    assert list(images) == ["a/one", "none", "stack#1", "stack#2"]
    counted = Counter(row["image"] for row in table(out / "objects.csv"))
    assert {name: int(row["count"]) for name, row in images.items()} == {
        name: counted[name] for name in images
    }
    assert counted["a/one"] == 5
    labels = cell_segmenter.segment(cells(3)[0], objects=True).objects
    assert labels.max() == 5
    np.testing.assert_array_equal(tifffile.imread(out / "objects" / "a" / "one.tif"), labels)
    assert tifffile.imread(out / "objects" / "stack.tif").shape == (2, 48, 64)
    for kind, suffix in (("geojson", "geojson"), ("rois", "zip")):
        found = read_instances(out / kind / "a" / f"one.{suffix}", labels.shape)
        np.testing.assert_array_equal(found, labels)
        assert (out / kind / f"stack-002.{suffix}").exists()
    assert (out / "overlay" / "stack-001.png").exists()
    rows = [row for row in table(out / "objects.csv") if row["image"] == "a/one"]
    assert [int(row["label"]) for row in rows] == [1, 2, 3, 4, 5]
    assert {row["class"] for row in rows} == {"foreground"}
    areas = np.bincount(labels.ravel())[1:]
    assert [int(row["area"]) for row in rows] == areas.tolist()
    # half a micrometre a pixel
    assert [float(row["area_um2"]) for row in rows] == pytest.approx(areas / 4)
    assert float(rows[0]["intensity_mean"]) == pytest.approx(cells(3)[0][labels == 1].mean(), rel=1e-4)
    assert read_pixel_size(out / "objects" / "a" / "one.tif") == pytest.approx((0.5, 0.5))


@pytest.mark.filterwarnings("ignore:none.tif. darker")  # which it is
def test_tables_of_an_earlier_run_are_neither_replaced_nor_left(cell_segmenter, cell_images, tmp_path):
    out = tmp_path / "out"
    predict_folder(cell_segmenter, cell_images, out, objects=True)
    before = (out / "objects.csv").read_bytes()
    with pytest.raises(OutputError, match="would be overwritten"):
        predict_folder(cell_segmenter, cell_images, out, objects=True)
    with pytest.raises(OutputError, match=r"of an earlier run would stay beside the new masks.*objects=True"):
        predict_folder(cell_segmenter, cell_images, out, overwrite=True)
    predict_folder(cell_segmenter, cell_images, out, objects=True, overwrite=True)
    assert (out / "objects.csv").read_bytes() == before


@pytest.fixture
def bright(Bright):
    image, mask = picture(0)
    return Bright().fit([image], [mask])


def caused(number):
    """An error of a file, for that reason of the system."""
    error = OutputError("told otherwise")
    error.__cause__ = None if number is None else OSError(number, "of the system")
    return error


@pytest.mark.parametrize(
    ("number", "is_of_the_disk"),
    [(errno.ENOSPC, True), (errno.EACCES, True), (errno.ENAMETOOLONG, False), (None, False)],
)
def test_faults_of_the_disk_end_a_run(number, is_of_the_disk):
    assert _is_of_the_disk(caused(number)) == is_of_the_disk
    told = _named(Path("a.png"), caused(number))
    assert (told == "told otherwise") == (number is None)
    assert told.startswith("a.png: ") == (number is not None)


@pytest.mark.filterwarnings("ignore:none.tif. darker")  # which it is
@pytest.mark.parametrize(
    ("failing", "name"), [("put_summary", "summary.csv"), ("write_objects", "objects.csv")]
)
def test_tables_that_cannot_be_written_are_named_with_what_is_done(
    cell_segmenter, cell_images, tmp_path, monkeypatch, failing, name
):
    def fail(*_):
        raise caused(errno.ENOSPC)

    monkeypatch.setattr(f"segkit.segmentation.folders.{failing}", fail)
    with pytest.raises(OutputError) as caught:
        predict_folder(cell_segmenter, cell_images, tmp_path / "out", objects=True)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'out' / name}: ")
    assert message.endswith(" (3 of 3 images written; then --resume goes on)")


def test_results_depend_on_model_kinds_pixel_size_axes_and_level(bright):
    other = copy.deepcopy(bright)
    other.threshold_ = 1.0
    base = _digest_run(bright, ["overlay", "objects"], None, None, None)
    assert base == _digest_run(bright, ["objects", "overlay"], None, None, None)
    changed = [
        _digest_run(other, ["overlay", "objects"], None, None, None),
        _digest_run(bright, ["overlay"], None, None, None),
        _digest_run(bright, ["overlay", "objects"], PixelSize(1, 1), None, None),
        _digest_run(bright, ["overlay", "objects"], None, "YX", None),
        _digest_run(bright, ["overlay", "objects"], None, None, 1),
    ]
    assert len({base, *changed}) == 6


def test_kinds_of_objects_are_those_that_can_be_written(monkeypatch):
    knows = SimpleNamespace(objects_=1)
    monkeypatch.setattr("segkit.segmentation.folders.find_spec", lambda name: name == "roifile" or None)
    assert _kinds_of_objects(knows) == ["objects", "geojson", "rois"]
    monkeypatch.setattr("segkit.segmentation.folders.find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="no regions for ImageJ are written, for roifile is missing"):
        assert _kinds_of_objects(knows) == ["objects", "geojson"]
    with pytest.raises(ConfigError, match=r"^the model knows no objects, for it is no Segmenter: measure"):
        _kinds_of_objects(SimpleNamespace())


@pytest.mark.parametrize("kind", [{}, {"overwrite": True}, {"resume": True}, {"overwrite_foreign": True}])
def test_a_second_run_needs_to_know_what_becomes_of_the_first(bright, images, tmp_path, kind):
    first = predict_folder(bright, images, tmp_path / "out")
    if not kind:
        with pytest.raises(
            OutputError, match=r"and 2 more would be overwritten: .*resume=True.*overwrite=True"
        ):
            predict_folder(bright, images, tmp_path / "out")
        return
    before = [path.stat().st_mtime_ns for path in first]
    assert predict_folder(bright, images, tmp_path / "out", **kind) == first
    # results that are the same are not written again
    assert [path.stat().st_mtime_ns for path in first] == before


def clashes(*names):
    return _clashes([Job(Path("in", name), name) for name in names], Path("out"))


def test_images_with_the_same_result_both_fail():
    found = clashes("a.png", "b.png", "a.jpg")
    reason = f"{Path('in/a.png')} and {Path('in/a.jpg')} would both become {Path('out/a.png')}: rename one"
    assert found == dict.fromkeys(("a.png", "a.jpg"), reason)
    assert clashes("a.png", "b/a.png") == {}


def test_a_folder_called_like_results_is_refused():
    told = f"{Path('in/overlay')} is a folder called overlay, as results are: rename that folder"
    assert clashes("overlay/a.png", "overlay/b/a.png") == dict.fromkeys(
        ("overlay/a.png", "overlay/b/a.png"), told
    )
    assert clashes("overlay", "a/overlay/b.png") == {}


@pytest.mark.parametrize("folder", ["a.png", "b/a.png", "a.tif", "summary.csv"])
def test_a_folder_in_the_place_of_a_file_is_refused_and_the_others_are_segmented(folder):
    told = f"{Path('in', folder)} is a folder called {Path(folder).name}, as results are: rename that folder"
    assert clashes("a.bmp", "b/a.bmp", f"{folder}/c.png", f"{folder}/d/e.png", "f.png") == dict.fromkeys(
        (f"{folder}/c.png", f"{folder}/d/e.png"), told
    )


@pytest.mark.parametrize("overlay", [False, True])
def test_an_image_named_as_a_page_of_a_stack_has_no_place_for_its_overlay(bright, images, tmp_path, overlay):
    write_image(images / "stack-001.png", picture(5)[0])
    for repeat in ({}, {"resume": True}):
        with pytest.warns(UserWarning, match="would both become") if overlay else nullcontext():
            masks = predict_folder(bright, images, tmp_path / "out", overlay=overlay, **repeat)
        assert len(masks) == 3 - overlay
    rows = {row["image"]: row for row in table(tmp_path / "out" / "summary.csv")}
    assert rows["stack-001.png"]["status"] == "written"
    if overlay:
        place = tmp_path / "out" / "overlay" / "stack-001.png"
        assert rows["stack.tif"]["reason"] == (
            f"stack.tif and stack-001.png would both become {place}: rename one"
        )


def test_a_name_that_is_too_long_for_its_results_fails_alone(bright, images, tmp_path):
    shutil.copy(images / "stack.tif", images / f"{'d' * 251}.tif")
    told = "the name is too long: choose a shorter one; 2 written, 0 skipped, 1 failed"
    with pytest.warns(UserWarning, match=told):
        predict_folder(bright, images, tmp_path / "out", overlay=True)


def test_images_are_read_as_those_of_the_training():
    assert reading_of(SimpleNamespace()) == reading_of(SimpleNamespace(reading_=None)) == Reading()
    own = Reading(context=2)
    assert reading_of(SimpleNamespace(reading_=own)) is own
    assert reading_of(SimpleNamespace(reading_=own), "ZYX") == Reading(context=2, axes="ZYX")


def test_results_that_a_link_leads_among_the_images_are_refused(bright, images, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(images / "a")
    with pytest.raises(InputError, match=r"out/a/one.png would be among the images: choose an output"):
        predict_folder(bright, images, tmp_path / "out")
    assert [path.name for path in (images / "a").iterdir()] == ["one.png"]
    store = tmp_path / "store"
    (images / "a").rename(store)
    (images / "a").symlink_to(store)
    with pytest.raises(InputError, match=r"would be among the images: choose an output"):
        predict_folder(bright, images, store / "out")


def test_a_link_in_the_output_never_leads_to_the_image(bright, tmp_path):
    image = tmp_path / "images" / "a.png"
    write_image(image, np.full((8, 8), 0.5))
    before = image.read_bytes()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "overlay").symlink_to(image.parent)
    with pytest.raises(InputError, match="a result would take the place of"):
        predict_folder(bright, image, tmp_path / "out", overlay=True, overwrite_foreign=True)
    assert image.read_bytes() == before


def test_a_mount_of_a_folder_of_images_is_among_the_images(bright, images, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(images / "a")
    before = (images / "a" / "one.png").read_bytes()
    monkeypatch.setattr(Path, "resolve", Path.absolute)  # a mount has a path of its own
    with pytest.raises(InputError, match=r"out/a/one.png would be among the images: choose an output"):
        predict_folder(bright, images, tmp_path / "out", overwrite_foreign=True)
    assert (images / "a" / "one.png").read_bytes() == before


def test_no_result_is_written_through_a_link(bright, images, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere")
    told = "out/a: a link, where a folder of results would be: move it elsewhere, or choose another folder"
    with pytest.raises(OutputError, match=told):
        predict_folder(bright, images, tmp_path / "out", overwrite_foreign=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_that_no_result_replaces_is_no_reason_to_refuse(bright, images, tmp_path):
    """The mask of a PNG file is a PNG file: a TIFF of its name is somebody's, and stays."""
    (images / "stack.tif").unlink()
    theirs = tmp_path / "out" / "a" / "one.tif"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    assert predict_folder(bright, images, tmp_path / "out") == [tmp_path / "out" / "a" / "one.png"]
    assert theirs.read_bytes() == b"theirs"


def test_what_a_stopped_run_found_unlike_is_told_by_the_next(segmenter, images, tmp_path):
    grey = read_image(images / "a" / "one.png")[0]
    write_image(images / "a" / "stored.png", np.repeat(grey, 3, axis=2))

    def stop_at_the_stack(items, description):
        for item in items:
            if description == "Segmenting" and item.name == "stack.tif":
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        predict_folder(segmenter, images, tmp_path / "out", progress=stop_at_the_stack)
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"^1 image \(a/stored.png\) is RGB with three equal channels"):
            predict_folder(segmenter, images, tmp_path / "out", resume=True)
