"""The plan of a run: which images fit, where their results go, and what is told of the others."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile

from segkit.errors import ClusterError, ConfigError, InputError
from segkit.images import Reading, write_image
from segkit.images.axes import Layout
from segkit.segmentation.plan import (
    Fault,
    Job,
    _channels_fault,
    _clashes,
    _notes_on_names,
    _notes_on_scale,
    join_faults,
    make_plan,
    measured_place,
    misfit,
    n_channels_of,
    reading_of,
    reason_of,
)

KINDS = ("probability", "overlay", "objects", "geojson", "rois")


def model(n_channels=1, dtype=np.uint8, **learnt):
    return SimpleNamespace(n_image_channels_=n_channels, classes_=np.arange(2, dtype=dtype), **learnt)


def planned(folder, segmenter=None, kinds=(), reading=None):
    images = folder / "images"
    return make_plan(
        segmenter or model(),
        images,
        folder / "out",
        kinds,
        lambda items, _: items,
        reading or Reading(),
    )


def grey(rng, shape=(20, 30)):
    return rng.uniform(0.1, 0.9, shape)


@pytest.fixture
def folder(tmp_path, rng):
    for name in ("b.png", "a/c.png", "d.png"):
        write_image(tmp_path / "images" / name, grey(rng))
    return tmp_path


def test_images_are_planned_in_the_order_of_the_listing(folder):
    plan = planned(folder)
    assert [job.name for job in plan.jobs] == ["a/c.png", "b.png", "d.png"]
    assert plan.fit == plan.jobs
    assert (plan.faults, plan.notes) == ([], [])
    first = plan.fit[0]
    assert first.source == folder / "images" / "a" / "c.png"
    assert first.shapes == [(20, 30, 1)]
    assert (first.mask, first.measured, first.extras) == (Path("a/c.png"), None, {})
    assert first.outputs == [Path("a/c.png")]
    assert first.others == tuple(
        Path(kind, "a/c").with_suffix(extension)
        for kind, extension in zip(KINDS, (".tif", ".png", ".tif", ".geojson", ".zip"), strict=True)
    )


def test_a_single_file_is_planned_by_its_name(folder):
    plan = make_plan(
        model(), folder / "images" / "b.png", folder / "images", (), lambda items, _: items, Reading()
    )
    assert [(job.name, job.source) for job in plan.fit] == [("b.png", folder / "images" / "b.png")]


def test_kinds_that_are_asked_for_are_outputs_and_the_mask_is_the_last(folder):
    [job] = [job for job in planned(folder, kinds=("objects", "geojson")).fit if job.name == "b.png"]
    hidden = measured_place("b.png")
    assert hidden.parts[:2] == (".segkit", "objects")
    assert job.measured == hidden
    assert job.outputs == [hidden, Path("objects/b.tif"), Path("geojson/b.geojson"), Path("b.png")]
    assert job.others == (Path("probability/b.tif"), Path("overlay/b.png"), Path("rois/b.zip"))


@pytest.mark.parametrize(
    ("dtype", "suffix"), [(np.uint8, ".png"), (np.uint16, ".png"), (np.int32, ".tif"), (np.int64, ".tif")]
)
def test_masks_whose_values_do_not_fit_into_png_are_tiff(folder, dtype, suffix):
    assert {job.mask.suffix for job in planned(folder, model(dtype=dtype)).fit} == {suffix}


def test_stacks_have_a_mask_and_a_picture_for_each_page(folder, rng):
    stack = (255 * grey(rng, (3, 20, 30))).astype(np.uint8)
    tifffile.imwrite(folder / "images" / "e.tif", stack, photometric="minisblack", metadata={"axes": "ZYX"})
    job = planned(folder, kinds=("overlay", "probability")).fit[-1]
    assert job.shapes == [(20, 30, 1)] * 3
    assert job.mask == Path("e.tif")
    assert job.extras == {
        "probability": (Path("probability/e.tif"),),
        "overlay": tuple(Path(f"overlay/e-00{number}.png") for number in (1, 2, 3)),
    }
    assert job.layout.axes == "Z"


def test_damaged_files_and_other_channels_are_faults(folder, rng):
    (folder / "images" / "bad.png").write_text("no image")
    for name in "fgh":
        write_image(folder / "images" / f"{name}.png", grey(rng, (20, 30, 3)))
    five = folder / "images" / "five.tif"
    tifffile.imwrite(five, np.zeros((5, 20, 30), dtype=np.uint8), metadata={"axes": "CYX"})
    plan = planned(folder)
    assert [job.name for job in plan.fit] == ["a/c.png", "b.png", "d.png"]
    names = [job.name for job in plan.jobs if isinstance(job, Fault)]
    assert names == ["bad.png", "f.png", "five.tif", "g.png", "h.png"]
    assert plan.faults[0] == plan.jobs[2].reason
    assert plan.faults[0].startswith(str(folder / "images" / "bad.png"))
    names = ", ".join(str(folder / "images" / f"{name}.png") for name in "fgh")
    assert plan.faults[1:] == [
        f"3 files ({names}) have 3 channels, the model was trained on 1: save them as the training images are",
        f"{five} has 5 channels, the model was trained on 1: save it as the training images are",
    ]
    assert plan.jobs[-1].reason == (
        f"{folder / 'images' / 'h.png'} has 3 channels, the model was trained on 1: save it as the training images are"
    )


@pytest.mark.parametrize(
    ("n", "who"),
    [
        (2, "2 files (0, 1) have 2 channels, the model was trained on 3: save them"),
        (5, "5 files (0, 1, 2, and 2 more) have 2 channels, the model was trained on 3: save them"),
    ],
)
def test_files_of_other_channels_are_told_in_one_line(n, who):
    told = _channels_fault([Path(str(number)) for number in range(n)], 2, 3)
    assert told == f"{who} as the training images are"


@pytest.mark.parametrize(
    ("shapes", "n_channels", "told"),
    [
        ([(4, 5, 1), (4, 5, 1)], 1, None),
        ([(4, 5, 1), (4, 6, 1)], 1, "x.tif has pages of different sizes: save them as separate files"),
        ([(4, 5, 1)], 3, None),  # grey is colour without loss
        (
            [(4, 5, 2), (4, 5, 4)],
            1,
            "x.tif has 4 channels, the model was trained on 1: save it as the training images are",
        ),
        (
            [(4, 5, 1), (4, 5, 2)],
            1,
            "x.tif has 2 channels, the model was trained on 1: save it as the training images are",
        ),
    ],
)
def test_pages_fit_the_model_and_each_other(shapes, n_channels, told):
    pages = [np.random.default_rng(0).random(shape, dtype=np.float32) for shape in shapes]
    assert misfit(Path("x.tif"), pages, n_channels) == told


@pytest.mark.parametrize(("n_channels", "context", "n"), [(1, 0, 1), (3, 0, 3), (9, 1, 3), (5, 2, 1)])
def test_channels_of_a_plane_are_those_of_the_model_by_its_planes(n_channels, context, n):
    assert n_channels_of(model(n_channels), Reading(context=context)) == n


def test_images_are_read_as_those_of_the_training():
    assert reading_of(model()) == Reading()
    assert reading_of(model(reading_=None)) == Reading()
    own = Reading(context=2)
    assert reading_of(model(reading_=own)) is own


@pytest.mark.parametrize("n", [5, 7])
def test_the_first_five_faults_are_told_and_the_others_counted(n):
    more = f"; and {n - 5} more" if n > 5 else ""
    assert join_faults([str(number) for number in range(n)]) == "0; 1; 2; 3; 4" + more


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConfigError("two  words"), "two words"),
        (ClusterError("no worker"), "x.png: no worker"),
        (MemoryError(), "x.png: out of memory: use smaller images, or a smaller bank"),
        (OSError(13, "Permission denied"), "x.png: Permission denied: check the file and its permissions"),
        (OSError("odd"), "x.png: odd: check the file and its permissions"),
        (ValueError("odd"), "x.png: cannot be segmented (odd): leave it out"),
        (ZeroDivisionError(), "x.png: cannot be segmented (ZeroDivisionError): leave it out"),
    ],
)
def test_reasons_are_told_in_one_line(error, told):
    assert reason_of(error, Path("x.png")) == told


@pytest.mark.parametrize("output", ["images", "images/out"])
def test_an_output_folder_inside_the_images_is_refused(folder, output):
    with pytest.raises(InputError) as caught:
        make_plan(model(), folder / "images", folder / output, (), lambda items, _: items, Reading())
    assert str(caught.value).startswith(
        f"{folder / output / 'a' / 'c.png'} would be among the images: choose an output folder elsewhere; "
    )
    assert str(caught.value).count("would be among the images") == 3


def job(name, *outputs):
    mask, *extras = map(Path, outputs or (name,))
    return Job(Path("in", name), name, [], mask, {"overlay": tuple(extras)}, (), None, Layout())


def clashes(*jobs):
    return _clashes(jobs, Path("in"), Path("out"))


def test_images_with_the_same_result_both_fail():
    found = clashes(job("a.png", "a.tif"), job("b.png"), job("a.jpg", "a.tif"))
    reason = f"{Path('in/a.jpg')} and {Path('in/a.png')} would both become {Path('out/a.tif')}: rename one"
    assert found == dict.fromkeys(("a.png", "a.jpg"), reason)
    assert clashes(job("a.png", "a.png", "overlay/a.png"), job("b.png")) == {}


def test_a_folder_called_like_results_is_refused():
    assert clashes(job("overlay/a.png")) == {
        "overlay/a.png": f"{Path('in/overlay')} is a folder called overlay, as results are: rename that folder"
    }
    assert clashes(job("overlay"), job("a/overlay/b.png")) == {}


def test_a_result_in_the_place_of_a_folder_is_refused():
    found = clashes(job("a.png/b.tif"), job("a.png"))
    assert found == {
        "a.png": (
            f"{Path('in/a.png')} would become {Path('out/a.png')}, a folder for {Path('in/a.png/b.tif')}: rename one"
        )
    }


def test_faults_of_clashing_images_are_told_once(folder, rng):
    write_image(folder / "images" / "b.tif", grey(rng))
    plan = planned(folder)
    assert [job.name for job in plan.fit] == ["a/c.png", "d.png"]
    [fault] = plan.faults
    assert {job.reason for job in plan.jobs if isinstance(job, Fault)} == {fault}


@pytest.mark.parametrize(("length", "fits"), [(247, True), (248, False)])
def test_names_of_results_have_up_to_255_bytes(folder, length, fits):
    """The longest is that of the outlines, with its extension of eight letters."""
    (folder / "images" / "d.png").rename(folder / "images" / f"{'d' * length}.png")
    plan = planned(folder)
    assert (len(plan.fit) == 3) == fits
    assert all(
        fault.endswith("the names of its results would be too long: choose a shorter one")
        for fault in plan.faults
    )
    assert len(plan.faults) == (not fits)


def test_results_may_lie_beside_the_images(folder):
    """Only results that the next run would take for images are refused."""
    plan = make_plan(model(), folder / "images", folder, ("overlay",), lambda items, _: items, Reading())
    assert len(plan.fit) == 3


def test_other_names_of_channels_are_told_of():
    told = _notes_on_names({"a.tif": ("x", "y"), "b.tif": ("x",)}, ("DAPI", "GFP"))
    assert told == [
        "a.tif: channels x, y, of the training images DAPI, GFP (2 such images): the first is read as the first, and so "
        "on: right if only the names differ"
    ]
    assert "(1 such image)" in _notes_on_names({"a.tif": ("x",)}, ("y",))[0]
    assert _notes_on_names({}, ("y",)) == _notes_on_names({"a.tif": ("x",)}, ()) == []


def test_other_scales_are_told_of():
    peaks = {Path("a"): 0.5, Path("b"): 0.004, Path("c"): 0.003}
    assert _notes_on_scale(peaks, (0.4, 0.9)) == [
        "b: the brightest pixel is at 0.4% of full scale, of the training images at 40.0% to 90.0% (2 such images): if "
        "values are scaled otherwise (16 bits are read as 0 to 65535, 8 bits as 0 to 255), save them as the training "
        "images are"
    ]
    assert _notes_on_scale({Path("a"): 0.9}, (0.04, 0.05))[0].startswith(
        "a: the brightest pixel is at 90.0% of full"
    )
    # within eight times of the darkest and the brightest
    within = {Path(str(peak)): peak for peak in (0, 0.02 / 7, 0.018, 0.1, 0.18, 0.8)}
    assert _notes_on_scale(within, (0.02, 0.8)) == []
    assert "(1 such image)" in _notes_on_scale(within | {Path("dark"): 0.02 / 9}, (0.02, 0.8))[0]
    assert "at 50.0% (2 such images)" in _notes_on_scale(peaks, (0.5, 0.5))[0]
    assert _notes_on_scale(peaks, None) == _notes_on_scale({Path("a"): 0.5}, (0.4, 0.9)) == []


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["x.zarr"], "1 image of {} is left out (x.zarr): give it by itself, to be read by region"),
        (
            ["y.zarr", "x.zarr"],
            "2 images of {} are left out (x.zarr, y.zarr): give each by itself, to be read by region",
        ),
    ],
)
def test_images_that_are_read_by_region_are_left_out(folder, names, told):
    for name in names:
        (folder / "images" / name).mkdir()
        (folder / "images" / name / "zarr.json").write_text("{}")
    assert planned(folder).notes == [told.format(folder / "images")]


def test_scales_are_those_of_the_brightest_page_and_the_training(folder, rng):
    write_image(folder / "images" / "e.png", 0.02 * grey(rng))
    summary = SimpleNamespace(peaks=(0.9, 1.0))
    [note] = planned(folder, model(summary_=summary)).notes
    assert note.startswith(f"{folder / 'images' / 'e.png'}: the brightest pixel is at ")
    assert "(1 such image)" in note
    assert planned(folder, model(summary_=SimpleNamespace(peaks=None))).notes == []
