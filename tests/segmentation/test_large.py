"""Images read by region: the result is that of the whole image, faults are told, and runs go on."""

import json
import math
import os
import re
import shutil
import sys
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import tifffile
from scipy import ndimage
from skimage.measure import label
from sklearn.base import clone

from segkit import ScatteringBank, Segmenter, StackedBank, predict_folder
from segkit.errors import ConfigError, InputError, OutputError
from segkit.features import ElongatedBank, MultiscaleBank, PositionBank
from segkit.features.tiles import Tile
from segkit.images import (
    UNLABELLED,
    LabelMap,
    PixelSize,
    read_instances,
    read_pixel_size,
    write_image,
)
from segkit.images.large_image import open_large
from segkit.objects import Splitter, measure
from segkit.objects.choose import SplitScores
from segkit.segmentation.folders import segment_folder
from segkit.segmentation.large import (
    PLAN,
    _around_point,
    _Decider,
    _describe,
    _read_plan,
    _TileMaps,
    _TileRun,
    make_by_region,
)
from segkit.segmentation.large_results import RegionResults, _smaller
from segkit.segmentation.results import Job
from tests.segmentation.conftest import read_table

zarr = pytest.importorskip("zarr")
SHAPE = (430, 520)


def picture(seed, shape=SHAPE, n_spots=30):
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    mask = np.zeros(shape, dtype=np.uint8)
    for _ in range(n_spots):
        mask |= np.hypot(rows - rng.uniform(0, shape[0]), cols - rng.uniform(0, shape[1])) < rng.uniform(
            3, 14
        )
    image = np.clip(0.3 + 0.2 * mask + 0.1 * rng.standard_normal(shape), 0, 1)
    return np.round(255 * image).astype(np.uint8), mask


@pytest.fixture(scope="module")
def fitted():
    pictures = [picture(seed, (120, 140), 8) for seed in range(2)]
    banks = [ScatteringBank(J=2, L=2, angles="averaged"), MultiscaleBank(sigma_max=2), PositionBank()]
    segmenter = Segmenter(StackedBank(banks), selection_pixels=400, training_pixels=800)
    return segmenter.fit([image / 255 for image, _ in pictures], [mask for _, mask in pictures])


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr("segkit.segmentation.large_results._MOST_ROWS", 100)
    monkeypatch.setattr("segkit.images.pyramids.BLOCK", 128)


def write_tiff(path, image, **told):
    options = {"tile": (64, 64), "photometric": "minisblack", **told}
    with tifffile.TiffWriter(path) as writer:
        writer.write(image, subifds=1, **options)
        writer.write(image[::2, ::2], subfiletype=1, **options)


def write_zarr(path, image, version="0.5"):
    group = zarr.open_group(str(path), mode="w", zarr_format=2 if version == "0.4" else 3)
    for level in range(2):
        part = image[:: 2**level, :: 2**level][None]
        array = group.create_array(str(level), shape=part.shape, chunks=(1, 100, 100), dtype=part.dtype)
        array[:] = part
    axes = [{"name": name} for name in "cyx"]
    described = {
        "multiscales": [{"axes": axes, "datasets": [{"path": "0"}, {"path": "1"}], "version": version}]
    }
    group.attrs.update(described if version == "0.4" else {"ome": {"version": version, **described}})


def write_plain_zarr(path, pixels, axes):
    """Write an OME-Zarr 0.5 of one level, whose axes are told by their letters."""
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    array = group.create_array("0", shape=pixels.shape, chunks=(100,) * pixels.ndim, dtype="u1")
    array[...] = pixels
    named = [{"axes": [{"name": name} for name in axes], "datasets": [{"path": "0"}]}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": named}


def written(kind, folder, image):
    folder.mkdir(exist_ok=True)
    path = folder / f"slide.{'tif' if kind == 'tiff' else 'zarr'}"
    if kind == "tiff":
        write_tiff(path, image)
    else:
        write_zarr(path, image, kind)
    return path


def segment_slide(segmenter, path, output, *, level=0, **options):
    """Segment one image by region; return its row, and the places of its labels and probabilities."""
    [row] = segment_folder(segmenter, path, output, level=level, **options).rows
    return SimpleNamespace(
        row=row, labels=output / row.mask, probability=output / "probability" / row.mask, n_tiles=row.tiles
    )


@pytest.fixture
def decided(monkeypatch):
    """Number the tiles that are decided."""
    numbers, decide = [], _Decider.__call__
    monkeypatch.setattr(_Decider, "__call__", lambda own, tile: numbers.append(tile[0]) or decide(own, tile))
    return numbers


def rows_of(output):
    return read_table(output / "summary.csv")


def read_maps(outcome):
    if outcome.probability.suffix == ".zarr":
        return np.asarray(zarr.open_group(str(outcome.probability), mode="r")["0"])
    return tifffile.imread(outcome.probability)


def read_labels(path):
    if path.suffix == ".zarr":
        return np.asarray(zarr.open_group(str(path), mode="r")["labels/segkit/0"])
    return tifffile.imread(path)


@pytest.mark.parametrize("kind", ["tiff", "0.4"])
def test_labels_are_those_of_the_whole_image(fitted, tmp_path, monkeypatch, kind):
    image, _ = picture(5)
    expected = fitted.predict(image / np.float32(255))
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    outcome = segment_slide(fitted, written(kind, tmp_path, image), tmp_path / "out")
    assert outcome.n_tiles > 4
    labels = read_labels(outcome.labels)
    assert labels.dtype == expected.dtype
    assert np.mean(labels != expected) < 1e-4
    assert not list((tmp_path / "out").glob(".*unfinished"))


def test_a_level_of_the_pyramid(fitted, tmp_path):
    image, _ = picture(5)
    path = written("tiff", tmp_path, image)
    outcome = segment_slide(fitted, path, tmp_path / "out", level=1)
    expected = fitted.predict(image[::2, ::2] / np.float32(255))
    assert np.mean(read_labels(outcome.labels) != expected) < 1e-4
    with pytest.raises(ConfigError, match="level 2: it has 2 levels, give 0 to 1"):
        open_large(path, 2)


def test_labels_have_a_pyramid(fitted, tmp_path):
    image, _ = picture(5, (150, 176))
    outcome = segment_slide(fitted, written("tiff", tmp_path, image), tmp_path / "out")
    with tifffile.TiffFile(outcome.labels) as file:
        levels = [level.asarray() for level in file.series[0].levels]
        assert file.pages[0].is_tiled
    assert [level.shape for level in levels] == [(150, 176), (75, 88)]
    np.testing.assert_array_equal(levels[1], levels[0][::2, ::2])


def test_a_missing_chunk_is_told_and_mended_by_resume(fitted, tmp_path, monkeypatch, decided):
    image, _ = picture(5)
    expected = fitted.predict(image / np.float32(255))
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    path = written("0.5", tmp_path, image)
    chunk = path / "0" / "c" / "0" / "2" / "3"
    kept = chunk.read_bytes()
    chunk.unlink()
    outcome = segment_slide(fitted, path, tmp_path / "out")
    assert outcome.row.status == "failed"
    assert f"{path} at row 200, column 300: a chunk is missing" in outcome.row.reason
    labels = read_labels(outcome.labels)
    assert (labels[210:290, 310:390] == UNLABELLED).all()
    assert (labels[:100, :100] != UNLABELLED).all()
    with pytest.raises(OutputError, match=r"go on with what is there .--resume"):
        segment_slide(fitted, path, tmp_path / "out")
    chunk.write_bytes(kept)
    decided.clear()
    again = segment_slide(fitted, path, tmp_path / "out", resume=True)
    assert again.row.status == "written"
    assert len(decided) == again.n_tiles  # the image means have more points now
    assert np.mean(read_labels(again.labels) != expected) < 1e-4


def test_a_run_that_stops_goes_on(fitted, tmp_path, monkeypatch, decided):
    image, _ = picture(5)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    path = written("tiff", tmp_path, image)

    def stop_at(items, description):
        for number, item in enumerate(items):
            if description == "Tiles" and number == 4:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        segment_slide(fitted, path, tmp_path / "out", progress=stop_at)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 2**20)  # tiles stay those of the first run
    outcome = segment_slide(fitted, path, tmp_path / "out", resume=True)
    assert decided == list(range(outcome.n_tiles))
    assert outcome.n_tiles > 4
    expected = segment_slide(fitted, path, tmp_path / "fresh")
    np.testing.assert_array_equal(read_labels(outcome.labels), read_labels(expected.labels))


def test_another_model_or_version_starts_anew(fitted, tmp_path, monkeypatch, decided):
    path = written("tiff", tmp_path, picture(5)[0])
    segment_slide(fitted, path, tmp_path / "out")
    segment_slide(fitted, path, tmp_path / "out", resume=True, probability=True)
    assert decided == [0]
    other = Segmenter(MultiscaleBank(sigma_max=2), selection_pixels=400, training_pixels=800)
    image, mask = picture(1, (120, 140), 8)
    segment_slide(other.fit([image / 255], [mask]), path, tmp_path / "out", resume=True, probability=True)
    assert decided == [0, 0]
    monkeypatch.setattr("segkit.segmentation.large.code_version", lambda: "another")
    segment_slide(other, path, tmp_path / "out", overwrite=True, probability=True)
    assert decided == [0, 0, 0]


def test_a_truncated_pyramid_is_refused_with_its_place(fitted, tmp_path):
    path = written("tiff", tmp_path, picture(5)[0])
    whole = path.read_bytes()
    with tifffile.TiffFile(path) as file:
        end = file.pages[0].dataoffsets[20] + 10
    path.write_bytes(whole[:end])
    with pytest.raises(InputError) as caught:
        segment_slide(fitted, path, tmp_path / "out")
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems have no pipes or links in folders"
)
@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("part", ["root", "level", "chunk"])
def test_zarr_reads_files_of_its_own_folder_only(tmp_path, version, kind, part):
    for name in ("a.zarr", "other.zarr"):
        write_zarr(tmp_path / name, picture(1)[0], version)
    names = {"root": ".zattrs", "level": "0/.zarray", "chunk": "0/0.0.0"}
    if version == "0.5":
        names = {"root": "zarr.json", "level": "0/zarr.json", "chunk": "0/c/0/0/0"}
    place = tmp_path / "a.zarr" / names[part]
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / "other.zarr" / names[part])
    with (
        pytest.raises(
            InputError, match=f"a.zarr: {re.escape(names[part])} is a link out of it or no file: copy"
        ),
        open_large(tmp_path / "a.zarr") as image,
    ):
        image[0:8, 0:8]
    if kind == "link":
        place.unlink()
        shutil.copy(tmp_path / "other.zarr" / names[part], tmp_path / "a.zarr" / "inside")
        place.symlink_to(tmp_path / "a.zarr" / "inside")
        with open_large(tmp_path / "a.zarr") as image:
            assert image[0:8, 0:8].size


def test_blocks_that_memory_does_not_hold_are_refused(tmp_path, monkeypatch):
    write_zarr(tmp_path / "a.zarr", picture(1)[0])
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="r+")
    del group["0"]
    group.create_array("0", shape=(1, 20_000, 20_000), chunks=(1, 10_000, 20_000), dtype="u1")
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: 200_000_000 - 1)
    with pytest.raises(InputError, match=r"a.zarr: stored in blocks of 1 x 10,000 x 20,000 values: needs "):
        open_large(tmp_path / "a.zarr")
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: 200_000_000)
    open_large(tmp_path / "a.zarr")


def test_other_images_are_refused(fitted, tmp_path):
    stack = np.zeros((3, 64, 64), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "stack.ome.tif", stack, metadata={"axes": "ZYX"})
    with pytest.raises(InputError, match="expected one plane with y, x and perhaps c"):
        open_large(tmp_path / "stack.ome.tif")
    zarr.open_group(str(tmp_path / "plain.zarr"), mode="w")
    with pytest.raises(InputError, match="a zarr without multiscales"):
        open_large(tmp_path / "plain.zarr")
    zarr.create_array(str(tmp_path / "array.zarr"), shape=(7, 9), dtype="u1")
    with pytest.raises(InputError) as caught:
        open_large(tmp_path / "array.zarr")
    assert str(caught.value) == (
        f"{tmp_path / 'array.zarr'}: a plain zarr array (7 x 9), expected OME-Zarr 0.4 or 0.5, whose metadata name its "
        "axes: export it as that"
    )
    with pytest.raises(InputError, match="no such file or folder"):
        open_large(tmp_path / "absent.svs")
    tifffile.imwrite(tmp_path / "colour.tif", np.zeros((64, 64, 3), dtype=np.uint8), photometric="rgb")
    with pytest.raises(InputError, match="has 3 channels, the model was trained on 1"):
        segment_slide(fitted, tmp_path / "colour.tif", tmp_path / "out")


def test_banks_that_need_all_of_the_image_are_refused(fitted, tmp_path):
    path = written("tiff", tmp_path, picture(5)[0])
    image, mask = picture(1, (120, 140), 8)
    banks = StackedBank([MultiscaleBank(sigma_max=2), ElongatedBank(sigmas=[0.5])])
    fine = Segmenter(banks, selection_pixels=400, training_pixels=800)
    fine.fit([image / 255], [mask])
    with pytest.raises(InputError, match="needs the whole image at once"):
        segment_slide(fine, path, tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "asked", "inner"),
    [("tiff", "overwrite_foreign", ""), ("0.5", "overwrite", ""), ("0.5", "resume", "slide.zarr/labels")],
)
def test_labels_never_take_the_place_of_their_image(fitted, tmp_path, kind, asked, inner):
    path = written(kind, tmp_path, picture(5, (100, 120))[0])
    with pytest.raises((InputError, OutputError), match=r"would take the place of|is the (input )?folder"):
        segment_slide(fitted, path, tmp_path / inner, **{asked: True})
    with open_large(path) as kept:
        assert kept.shape == (100, 120, 1)


def test_what_somebody_else_wrote_is_replaced_only_if_asked_for(fitted, tmp_path):
    path = written("0.5", tmp_path, picture(5, (100, 120))[0])
    (tmp_path / "out").mkdir()
    theirs = written("0.5", tmp_path / "out", picture(6, (30, 40))[0])
    with pytest.raises(OutputError, match="was not written by segkit"):
        segment_slide(fitted, path, tmp_path / "out", overwrite=True)
    [row] = segment_folder(fitted, path, tmp_path / "out", resume=True).rows
    assert row.status == "skipped"
    assert "was not written by segkit, or changed since: it is kept" in row.reason
    with open_large(theirs) as kept:
        assert kept.shape == (30, 40, 1)
    segment_slide(fitted, path, tmp_path / "out", overwrite_foreign=True)
    assert read_labels(theirs).shape == (100, 120)
    segment_slide(fitted, path, tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("axes", ["yx", "cxy", "xyc", "tyx"])
def test_pixels_follow_the_names_of_axes(tmp_path, axes):
    image = np.arange(7 * 9, dtype=np.uint8).reshape(7, 9)
    whole = image[..., None, None].transpose(
        ["yxct".index(name) for name in axes]
        + [place for place, name in enumerate("yxct") if name not in axes]
    )
    pixels = whole.reshape(whole.shape[: len(axes)])
    write_plain_zarr(tmp_path / "a.zarr", pixels, axes)
    with open_large(tmp_path / "a.zarr") as opened:
        found = opened[0:3, 2:8]
    np.testing.assert_array_equal(np.round(found[:, :, 0] * 255), image[0:3, 2:8])


@pytest.mark.parametrize("axes", ["cyx", "yy"])
def test_axes_that_are_not_those_of_the_pixels(tmp_path, axes):
    write_plain_zarr(tmp_path / "a.zarr", np.zeros((7, 9), dtype=np.uint8), axes)
    with pytest.raises(InputError, match="give each axis of the pixels one name"):
        open_large(tmp_path / "a.zarr")


def test_pixels_that_changed_inside_are_seen_by_resume(fitted, tmp_path, decided):
    """Chunks that are written anew change nothing about the folder of the OME-Zarr itself."""
    image, _ = picture(7, (150, 160))
    path = written("0.5", tmp_path, image)
    before = read_labels(segment_slide(fitted, path, tmp_path / "out").labels)
    zarr.open_group(str(path), mode="r+")["0"][:] = image[None, ::-1]
    resumed = segment_slide(fitted, path, tmp_path / "out", resume=True)
    assert decided == [0, 0]
    expected = read_labels(segment_slide(fitted, path, tmp_path / "anew").labels)
    np.testing.assert_array_equal(read_labels(resumed.labels), expected)
    assert (expected != before).any()


def test_a_folder_of_slides_and_pictures(fitted, tmp_path):
    """One run, one table; the slide keeps its labels if the run goes on."""
    images, out = tmp_path / "images", tmp_path / "out"
    (images / "b").mkdir(parents=True)
    slide = written("0.5", images / "b", picture(7, (90, 80))[0])
    write_image(images / "a.png", picture(8, (60, 70))[0] / 255)
    segment_folder(fitted, images, out)
    assert [(row["image"], row["status"], row["mask"]) for row in rows_of(out)] == [
        ("a.png", "written", "a.png"),
        ("b/slide.zarr", "written", "b/slide.zarr"),
    ]
    alone = segment_slide(fitted, slide, tmp_path / "alone")
    np.testing.assert_array_equal(read_labels(out / "b" / "slide.zarr"), read_labels(alone.labels))
    again = segment_folder(fitted, images, out, resume=True)
    assert (again.n_kept, len(again.masks)) == (2, 2)
    axes = r"slide\.zarr is read by region, as one plane: leave out axes"
    with pytest.raises(InputError, match=rf"{axes} .strict: 0 of 2"):
        segment_folder(fitted, images, tmp_path / "strict", axes="YX", strict=True)
    with pytest.warns(UserWarning, match=f"{axes}; 1 written, 0 skipped, 1 failed"):
        predict_folder(fitted, images, tmp_path / "axes", axes="YX")


def test_only_a_segmenter_reads_by_region(tmp_path):
    baseline = SimpleNamespace(classes_=np.arange(2), fit=None)
    job = Job(Path("slide.svs"), "slide.svs", 0)
    options = {"kinds": (), "pixel_size": None, "axes": None, "resume": False}
    with pytest.raises(InputError, match=r"slide\.svs is read by region, which only a Segmenter does"):
        make_by_region(baseline, job, None, workers=None, follow=None, **options)


def test_strict_stops_at_a_slide_that_failed_in_part(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    path = written("0.5", tmp_path / "images", picture(5)[0])
    write_image(tmp_path / "images" / "a.png", picture(8, (60, 70))[0] / 255)
    (path / "0" / "c" / "0" / "2" / "3").unlink()
    with pytest.raises(InputError, match=r"a chunk is missing.* does those parts again .strict: 0 of 2"):
        segment_folder(fitted, tmp_path / "images", tmp_path / "out", strict=True)
    assert (tmp_path / "out" / "slide.zarr").exists()


def test_probabilities_are_those_of_the_whole_image(fitted, tmp_path, monkeypatch, decided):
    image, _ = picture(5)
    expected = fitted.predict_proba(image / np.float32(255))[:, :, 1]
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    path = written("0.5", tmp_path, image)
    segment_slide(fitted, path, tmp_path / "out")
    # maps are made of the tiles that were decided by the first run
    outcome = segment_slide(fitted, path, tmp_path / "out", probability=True, resume=True)
    assert len(decided) == outcome.n_tiles > 4
    maps = read_maps(outcome)
    assert maps.dtype == np.float32
    np.testing.assert_allclose(maps, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["tiff", "0.5"])
def test_three_classes_have_a_map_each(tmp_path, kind):
    pictures = [picture(seed, (120, 140), 12) for seed in range(3)]
    for image, mask in pictures:
        mask[60:] *= 2
        image[mask == 2] += 50
    segmenter = Segmenter(MultiscaleBank(sigma_max=2), selection_pixels=400, training_pixels=800)
    labels = LabelMap({0: "background", 1: "upper", 2: "lower"})
    segmenter.fit([image / 255 for image, _ in pictures], [mask for _, mask in pictures], label_map=labels)
    large, _ = picture(5, (150, 132))
    outcome = segment_slide(segmenter, written(kind, tmp_path, large), tmp_path / "out", probability=True)
    expected = segmenter.predict_proba(large / np.float32(255)).transpose(2, 0, 1)
    np.testing.assert_allclose(read_maps(outcome), expected, atol=1e-4)
    if kind == "tiff":
        with tifffile.TiffFile(outcome.probability) as file:
            assert [level.shape for level in file.series[0].levels] == [(3, 150, 132), (3, 75, 66)]
    else:
        described = zarr.open_group(str(outcome.probability), mode="r").attrs["ome"]["multiscales"][0]
        assert [axis["name"] for axis in described["axes"]] == ["c", "y", "x"]
    assert outcome.row.shares.startswith("background 0.")
    shares = [float(word.rpartition(" ")[2]) for word in outcome.row.shares.split("; ")]
    found = read_labels(outcome.labels)
    np.testing.assert_allclose(shares, [np.mean(found == value) for value in range(3)], atol=1e-4)


def test_a_tile_that_failed_has_no_probability(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    path = written("0.5", tmp_path, picture(5)[0])
    (path / "0" / "c" / "0" / "2" / "3").unlink()
    outcome = segment_slide(fitted, path, tmp_path / "out", probability=True)
    missing = read_labels(outcome.labels) == UNLABELLED
    np.testing.assert_array_equal(np.isnan(read_maps(outcome)), missing)
    [row] = rows_of(tmp_path / "out")
    assert row["status"] == "failed"
    assert f"{path} at row 200, column 300: a chunk is missing" in row["reason"]
    assert f"unlabelled {round(missing.mean(), 4)}" in row["shares"]


@pytest.fixture(scope="module", params=["inside", "distance", "probability", "doubtful"])
def splitting(request, fitted):
    """A segmenter that tells objects apart on a landscape, the first by a classifier of their parts."""
    if request.param != "inside":
        segmenter = copy(fitted)
        splitter = Splitter("distance", radius=8, least_area=20, least_probability=0.85)
        if request.param != "doubtful":
            splitter = replace(splitter, landscape=request.param, least_probability=0)
        segmenter.objects_ = replace(fitted.objects_, splitter=splitter)
        return segmenter
    pictures = [picture(seed, (120, 140), 8) for seed in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        splitter = Splitter("distance+inside", radius=8, least_area=20)
        patch.setattr("segkit.segmentation.object_model.choose", lambda *_, **__: (splitter, None))
        return clone(fitted).fit(
            [image / 255 for image, _ in pictures],
            [mask for _, mask in pictures],
            instances=[label(mask) for _, mask in pictures],
        )


@pytest.mark.parametrize("kind", ["tiff", "0.5"])
def test_objects_are_those_of_the_whole_image(splitting, tmp_path, monkeypatch, kind):
    image, _ = picture(5, n_spots=90)
    [expected] = splitting.segment([image / np.float32(255)], objects=True)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    monkeypatch.setattr("segkit.objects.by_block._LONGEST_SIDE", 100)
    path, out = written(kind, tmp_path, image), tmp_path / "out"
    options = {"objects": True, "overlay": True, "probability": True, "pixel_size": 0.5}
    assert segment_slide(splitting, path, out, **options).n_tiles > 4
    found = read_labels(out / "objects" / f"slide.{'tif' if kind == 'tiff' else 'zarr'}")
    assert found.dtype == np.uint16
    assert found.max() == expected.objects.max() > 30
    # rounding moves single pixels at the edges
    assert np.mean(found != expected.objects) < 1e-4
    table = pd.read_csv(out / "objects.csv")
    [column] = [name for name in table.columns if name.startswith("intensity_mean")]
    measured = measure(found, image, pixel_size=0.5)
    np.testing.assert_allclose(table["area"], measured["area"])
    np.testing.assert_allclose(table[column], measured["intensity_mean"], rtol=1e-3)
    assert set(table["class"]) == {splitting.label_map_.names[1]}
    assert pd.read_csv(out / "images.csv")["count"].tolist() == [found.max()]
    traced = read_instances(out / "geojson" / "slide.geojson", shape=found.shape)
    np.testing.assert_array_equal(traced, found)
    assert plt.imread(out / "overlay" / "slide.png").shape == (*image.shape, 3)
    assert not list((out / ".segkit" / "large").rglob("[a-z]*.npy"))


def test_a_slide_whose_objects_memory_does_not_hold_has_its_labels(fitted, tmp_path, monkeypatch):
    image, _ = picture(5, (200, 220))
    path, out = written("tiff", tmp_path, image), tmp_path / "out"

    def refuse(*_, **__):
        raise InputError("objects that touch reach over more than memory holds")

    with monkeypatch.context() as patch:
        patch.setattr("segkit.segmentation.large_results.split_by_block", refuse)
        [row] = segment_folder(fitted, path, out, level=0, objects=True, overlay=True).rows
    assert (row.status, row.reason) == ("failed", "objects that touch reach over more than memory holds")
    assert read_labels(out / row.mask).shape == image.shape
    assert (out / "overlay" / "slide.png").exists()
    assert not (out / "objects").exists()
    [row] = segment_folder(fitted, path, out, level=0, objects=True, overlay=True, resume=True).rows
    assert row.status == "written"
    assert (out / "objects" / "slide.tif").exists()


def test_an_object_without_an_outline_is_told(fitted, tmp_path, monkeypatch):
    path, out = written("tiff", tmp_path, picture(5, (200, 220))[0]), tmp_path / "out"
    trace = "segkit.segmentation.large_results.trace_by_block"
    monkeypatch.setattr(trace, lambda labels, table: iter([(1, None), (2, [])]))
    [row] = segment_folder(fitted, path, out, level=0, objects=True).rows
    assert row.reason.startswith("1 object (number 1) larger than memory holds: not in geojson/slide.geojson")
    assert len(json.loads((out / "geojson" / "slide.geojson").read_text())["features"]) == 1


def test_a_tile_that_failed_has_no_objects(fitted, tmp_path, monkeypatch):
    image, _ = picture(5)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    path, out = written("0.5", tmp_path, image), tmp_path / "out"
    (path / "0" / "c" / "0" / "2" / "2").unlink()
    [row] = segment_folder(fitted, path, out, level=0, objects=True, overlay=True).rows
    assert row.status == "failed"
    labels, found = read_labels(out / row.mask), read_labels(out / "objects" / "slide.zarr")
    assert (labels == UNLABELLED).any()
    assert found.any()
    assert not found[labels == UNLABELLED].any()


def test_an_overlay_of_many_pixels_is_smaller(fitted, tmp_path, monkeypatch):
    image, _ = picture(5)
    monkeypatch.setattr("segkit.segmentation.large_results.LONGEST_OVERLAY", 200)
    path, out = written("tiff", tmp_path, image), tmp_path / "out"
    segment_slide(fitted, path, out, overlay=True)
    small = plt.imread(out / "overlay" / "slide.png")
    assert small.shape == (144, 174, 3)
    blocks = np.pad(image / 255, ((0, 2), (0, 2)), mode="edge").reshape(144, 3, 174, 3).mean(axis=(1, 3))
    labels = read_labels(out / "slide.tif")[::3, ::3]
    far = ndimage.distance_transform_edt(labels == 0) > 6
    # the contrast is stretched alike over all
    assert np.corrcoef(small[far][:, 0], blocks[far])[0, 1] > 0.95


def test_squares_are_averaged(rng):
    part = rng.random((7, 8, 2)).astype(np.float32)
    found = _smaller(part, 3)
    assert found.shape == (3, 3, 2)
    np.testing.assert_allclose(found[1, 2], part[3:6, 6:8].mean(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(found[2, 0], part[6:, :3].mean(axis=(0, 1)), rtol=1e-6)


def test_the_summary_has_a_row_beside_those_of_other_images(fitted, tmp_path):
    image, _ = picture(5)
    (tmp_path / "images").mkdir()
    path = written("0.5", tmp_path / "images", image)
    write_image(tmp_path / "images" / "a.png", picture(8, (60, 70))[0] / 255)
    outcome = segment_slide(fitted, path, tmp_path / "out", level=None)
    [row] = rows_of(tmp_path / "out")
    assert (row["image"], row["status"], row["mask"]) == ("slide.zarr", "written", "slide.zarr")
    assert (row["height"], row["width"], row["pages"], row["tiles"]) == ("430", "520", "1", "1")
    assert float(row["seconds"]) > 0
    share = np.mean(read_labels(outcome.labels) == 1)
    assert row["shares"] == f"background {round(1 - share, 4)}; foreground {round(share, 4)}"
    segment_folder(fitted, tmp_path / "images" / "a.png", tmp_path / "out", overwrite=True)
    assert [row["image"] for row in rows_of(tmp_path / "out")] == ["a.png", "slide.zarr"]
    segment_slide(fitted, path, tmp_path / "out", level=None, resume=True)
    assert [row["image"] for row in rows_of(tmp_path / "out")] == ["a.png", "slide.zarr"]


def test_results_that_would_be_lost_or_outdated_are_refused(fitted, tmp_path):
    path = written("tiff", tmp_path, picture(5, (100, 120))[0])
    segment_slide(fitted, path, tmp_path / "out", probability=True)
    with pytest.raises(OutputError, match="would stay beside the new masks: write them anew too"):
        segment_slide(fitted, path, tmp_path / "out", overwrite=True)
    (tmp_path / "out" / "summary.csv").write_text("mine")
    with pytest.raises(OutputError, match="was not written by segkit, or changed since: move it elsewhere"):
        segment_slide(fitted, path, tmp_path / "out", probability=True, resume=True)
    predict_folder(fitted, path, tmp_path / "whole")
    with pytest.raises(
        OutputError, match=r"slide\.png and 1 more would be overwritten: choose another folder"
    ):
        segment_slide(fitted, path, tmp_path / "whole")
    segment_slide(fitted, path, tmp_path / "whole", overwrite=True)
    assert not (tmp_path / "whole" / "slide.png").exists()
    theirs = tmp_path / "new" / "probability" / "slide.tif"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    with pytest.raises(OutputError, match="was not written by segkit"):
        segment_slide(fitted, path, tmp_path / "new", probability=True, overwrite=True)
    assert theirs.read_bytes() == b"theirs"


def test_labels_of_another_slide_are_kept_unless_they_are_to_be_replaced(fitted, tmp_path):
    out = tmp_path / "out"
    first = written("tiff", tmp_path, picture(5, (100, 120))[0])
    second = tmp_path / "slide.tiff"
    write_tiff(second, picture(6, (100, 120))[0])
    before = segment_slide(fitted, first, out).labels.read_bytes()
    with pytest.raises(InputError, match=r"slide\.tiff and slide\.tif would both become .*: rename one"):
        segment_slide(fitted, second, out, resume=True)
    assert (out / "slide.tif").read_bytes() == before
    segment_slide(fitted, second, out, overwrite=True)
    assert (out / "slide.tif").read_bytes() != before
    assert [row["image"] for row in rows_of(out)] == ["slide.tiff"]


def test_a_mask_that_was_corrected_is_not_left_beside_labels(fitted, tmp_path):
    path, out = written("tiff", tmp_path, picture(5, (100, 120))[0]), tmp_path / "out"
    predict_folder(fitted, path, out)
    (out / "slide.png").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"slide\.png was not written by segkit"):
        segment_slide(fitted, path, out, overwrite=True)
    [row] = segment_folder(fitted, path, out, level=0, resume=True).rows
    assert (row.status, "slide.png was not written by segkit" in row.reason) == ("skipped", True)
    assert not (out / "slide.tif").exists()


def test_tables_do_not_list_objects_that_are_gone(fitted, tmp_path):
    path, out = written("tiff", tmp_path, picture(5, (100, 120))[0]), tmp_path / "out"
    predict_folder(fitted, path, out, objects=True)
    with pytest.raises(
        OutputError, match=r"slide\.tif and 3 more of an earlier run would stay beside the new masks"
    ):
        segment_slide(fitted, path, out, overwrite=True)
    assert (out / "slide.png").exists()
    shutil.rmtree(out)
    segment_slide(fitted, path, out, overwrite=True)


def test_what_is_read_by_region_has_no_interval_of_its_count(fitted, tmp_path):
    """It is not compared with the training images, and an interval holds for images that are like them."""
    path = written("tiff", tmp_path, picture(5, (100, 120))[0])
    scores = SplitScores("images", 4, 9, 0.8, 0.7, 0.6, {}, 5, [[9, 4]] * 4, all_counted=True)
    knowing = copy(fitted)
    knowing.objects_ = replace(fitted.objects_, scores=scores)
    predict_folder(knowing, path, tmp_path / "whole", objects=True)
    segment_slide(knowing, path, tmp_path / "by-region", objects=True)
    [whole], [by_region] = (
        pd.read_csv(tmp_path / name / "images.csv").to_dict("records") for name in ("whole", "by-region")
    )
    assert whole["count_low_80"] <= whole["count"] <= whole["count_high_80"]
    assert np.isnan([by_region["count_low_80"], by_region["count_high_80"]]).all()


def test_decisions_of_another_model_that_cannot_be_removed_are_refused(fitted, tmp_path, monkeypatch):
    path = written("tiff", tmp_path, picture(5, (100, 120))[0])
    segment_slide(fitted, path, tmp_path / "out")

    def refuse(place, *_, **__):
        if "large" in Path(place).parts:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("segkit._common.files.shutil.rmtree", refuse)
    with pytest.raises(OutputError, match=r"may not be written: make the folder writable"):
        segment_slide(fitted, path, tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("name", ["a.tif", "a.ome.tif"])
def test_labels_in_tiff_have_the_pixel_size_at_every_level(fitted, tmp_path, name):
    image, _ = picture(5, (150, 176))
    told = {"resolution": (20_000, 40_000), "resolutionunit": "CENTIMETER"}
    if ".ome" in name:
        told = {"metadata": {"axes": "YX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.25}}
    write_tiff(tmp_path / name, image, **told)
    outcome = segment_slide(fitted, tmp_path / name, tmp_path / "out")
    assert outcome.labels == tmp_path / "out" / name
    np.testing.assert_allclose(read_pixel_size(outcome.labels), (0.25, 0.5), rtol=1e-5)
    with tifffile.TiffFile(outcome.labels) as file:
        assert file.is_ome == (name == "a.ome.tif")
        pages = [level.pages[0] for level in file.series[0].levels]
        ratios = [page.tags["XResolution"].value for page in pages]
        sizes = [1e4 * below / above for above, below in ratios]
    np.testing.assert_allclose(sizes, [0.5, 1.0], rtol=1e-5)
    # a pixel of the second level is twice as large
    half = segment_slide(fitted, tmp_path / name, tmp_path / "half", level=1)
    np.testing.assert_allclose(read_pixel_size(half.labels), (0.5, 1.0), rtol=1e-5)
    given = segment_slide(fitted, tmp_path / name, tmp_path / "given", pixel_size=3)
    np.testing.assert_allclose(read_pixel_size(given.labels), (3, 3), rtol=1e-5)


def test_labels_in_zarr_lie_where_their_image_does(fitted, tmp_path):
    path = written("0.5", tmp_path, picture(5, (150, 176))[0])
    group = zarr.open_group(str(path), mode="r+")
    axes = [{"name": "c"}, *({"name": name, "type": "space", "unit": "nanometer"} for name in "yx")]
    datasets = [
        {
            "path": str(level),
            "coordinateTransformations": [
                {"type": "scale", "scale": [1, 250 * 2**level, 500 * 2**level]},
                {"type": "translation", "translation": [0, 10, 20 + level]},
            ],
        }
        for level in range(2)
    ]
    whole = [{"type": "scale", "scale": [1, 2, 1]}]
    described = {"axes": axes, "datasets": datasets, "coordinateTransformations": whole}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [described]}
    with open_large(path, 1) as image:
        assert image.grid == ((1000.0, 1000.0), "nanometer", (20.0, 21.0))
        assert image.grid.pixel_size == PixelSize(1.0, 1.0)
    outcome = segment_slide(fitted, path, tmp_path / "out", probability=True)
    for place, inner in ((outcome.labels, "labels/segkit"), (outcome.probability, "")):
        found = zarr.open_group(str(place / inner), mode="r").attrs["ome"]["multiscales"][0]
        assert [axis.get("unit") for axis in found["axes"]] == ["nanometer", "nanometer"]
        moves = [level["coordinateTransformations"] for level in found["datasets"]]
        assert [scale["scale"] for scale, _ in moves] == [[500, 500], [1000, 1000]]
        assert [move["translation"] for _, move in moves] == [[20, 20], [20, 20]]


@pytest.mark.parametrize(
    "moves",
    [
        None,
        [{"type": "scale", "scale": [1, 0, 1]}],
        [{"type": "scale"}],
        [{"type": "scale", "scale": "wide"}],
    ],
)
def test_a_size_that_is_none_is_not_told(tmp_path, moves):
    path = written("0.5", tmp_path, picture(5, (60, 70))[0])
    group = zarr.open_group(str(path), mode="r+")
    axes = [{"name": "c"}, *({"name": name, "unit": "micrometer"} for name in "yx")]
    datasets = [{"path": str(level), "coordinateTransformations": moves} for level in range(2)]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    with open_large(path, 1) as image:
        assert image.grid == ((2.0, 2.0), None, (0.0, 0.0))
        assert image.grid.pixel_size is None


@pytest.mark.parametrize("lacking", ["axes", "datasets"])
def test_metadata_that_lack_something(tmp_path, lacking):
    path = written("0.5", tmp_path, picture(5, (60, 70))[0])
    group = zarr.open_group(str(path), mode="r+")
    [described] = group.attrs["ome"]["multiscales"]
    described.pop(lacking)
    group.attrs["ome"] = {"version": "0.5", "multiscales": [described]}
    with pytest.raises(InputError, match=f"its multiscales lack {lacking}, expected OME-Zarr 0.4 or 0.5"):
        open_large(path)


def test_a_level_that_is_missing_is_named(tmp_path):
    path = written("0.5", tmp_path, picture(5, (60, 70))[0])
    shutil.rmtree(path / "1")
    with pytest.raises(InputError) as caught:
        open_large(path, 1)
    assert str(caught.value) == (
        f"{path}: level 1 of its pyramid, {path / '1'}, is missing: copy the image anew, or give another data.level"
    )
    with open_large(path) as image:
        assert image.shape == (60, 70, 1)


def test_an_image_without_pixels(tmp_path):
    write_plain_zarr(tmp_path / "a.zarr", np.zeros((0, 9), dtype=np.uint8), "yx")
    with pytest.raises(InputError, match=r"a\.zarr: 0 x 9 pixels, expected one or more: export it again$"):
        open_large(tmp_path / "a.zarr")


ROUND = MultiscaleBank(sigma_max=1)
AS_THEY_ARE = StackedBank([ROUND], normalization="set")


@pytest.mark.parametrize("bank", [ROUND, AS_THEY_ARE, StackedBank([AS_THEY_ARE, ScatteringBank(J=1, L=2)])])
def test_an_image_of_which_nothing_can_be_read_is_refused(tmp_path, bank):
    image, mask = picture(0, (60, 70), 8)
    segmenter = Segmenter(bank, selection_pixels=200, training_pixels=300)
    segmenter.fit([image / 255], [mask])
    path = written("0.5", tmp_path, picture(5, (90, 80))[0])
    whole = segment_slide(segmenter, path, tmp_path / "whole")
    expected = segmenter.predict(picture(5, (90, 80))[0] / np.float32(255))
    assert np.mean(read_labels(whole.labels) != expected) < 1e-3
    (path / "0" / "c" / "0" / "0" / "0").unlink()
    with pytest.raises(InputError) as caught:
        segment_slide(segmenter, path, tmp_path / "out")
    assert f"{path} at row 0, column 0: a chunk is missing" in str(caught.value)
    assert not (tmp_path / "out" / "slide.zarr").exists()


@pytest.mark.parametrize(
    ("at", "core", "seen"),
    [
        (30.2, (30, 32), (20, 40)),
        (31.0, (31, 33), (20, 41)),
        (32.9, (32, 34), (24, 42)),
        (5.5, (5, 7), (0, 15)),
        (95.0, (95, 97), (84, 100)),
        (98.4, (98, 100), (88, 100)),
        (99.0, (99, 100), (88, 100)),
    ],
)
def test_a_point_has_a_small_tile_around_it(at, core, seen):
    """Cores hold the pixels on both sides; what is seen starts on the grid of the alignment."""
    assert _around_point(at, 100, 8, 4) == (slice(*core), slice(*seen))


@pytest.mark.parametrize(("n_rows", "expected"), [(80, 80), (80.9, 80), (0, 64), (64, 64), (2**30, 100)])
def test_strips_are_as_high_as_memory_allows(monkeypatch, n_rows, expected):
    """Three of them, with 80 bytes a pixel, take half of it."""
    monkeypatch.setattr("segkit.segmentation.large_results.bytes_left", lambda: int(n_rows * 6 * 80 * 50))
    assert (
        RegionResults._rows_of_strip(SimpleNamespace(image=SimpleNamespace(shape=(400, 50, 1)))) == expected
    )


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        (["a"], "1 fault: a"),
        (["a", "b", "c"], "3 faults: a; b; c"),
        (["a", "b", "c", "d"], "4 faults: a; b; c; and 1 more"),
    ],
)
def test_the_first_faults_are_told(faults, told):
    assert _describe(faults) == f"{told}; mend the file, and --resume (resume=True) does those parts again"
    assert not _describe([])


@pytest.mark.parametrize(
    ("image", "labels"),
    [("a.zarr", "a.zarr"), ("b.ZARR", "b.zarr"), ("c.svs", "c.tif"), ("d.ome.tif", "d.ome.tif")],
)
def test_labels_are_zarr_for_zarr_and_tiff_for_all_others(image, labels):
    job = Job(Path("in", image), image, 0)
    assert job.mask == Path(labels)
    assert job.places("probability") == [Path("probability", labels)]
    assert job.places("objects") == [Path("objects", labels)]
    assert job.places("overlay") == [Path("overlay", image).with_suffix(".png")]
    assert job.places("geojson") == [Path("geojson", image).with_suffix(".geojson")]
    assert not job.places("rois")


@pytest.mark.parametrize(
    "content", [None, "{", "[1]", '{"made_of": "0", "image": "a", "files": {}, "outputs": [], "tiles": []}']
)
def test_a_plan_that_is_damaged_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / PLAN).write_text(content)
    assert _read_plan(tmp_path / PLAN) is None
    whole = {"made_of": "0", "files": {}, "tiles": [], "means": None}
    (tmp_path / PLAN).write_text(json.dumps(whole))
    assert _read_plan(tmp_path / PLAN) == whole


def test_workers_find_image_and_output_wherever_they_start(tmp_path, monkeypatch, fitted):
    monkeypatch.chdir(tmp_path)
    path = written("tiff", Path("in"), picture(5, (90, 80))[0])
    with open_large(path) as image:
        maps = _TileMaps(fitted, image, 0, [fitted.classifier_])
        [tile] = fitted.bank_.tiles(image.shape)
        expected = maps(tile)
    decider = _Decider(maps, None, None, Path("out"))
    assert decider.__getstate__() == vars(decider) | {"folder": tmp_path / "out"}
    again = object.__new__(_TileMaps)
    again.__dict__.update(maps.__getstate__())
    assert (again._image, again._path, again._level) == (None, tmp_path / "in" / "slide.tif", 0)
    with open_large(tmp_path / "in" / "slide.tif") as image:
        opened = []
        monkeypatch.setattr(
            "segkit.segmentation.large.open_large", lambda *place: opened.append(place) or nullcontext(image)
        )
        for _ in range(2):
            for one, other in zip(again(tile), expected, strict=True):
                np.testing.assert_array_equal(one.values, other.values)
    assert opened == [(tmp_path / "in" / "slide.tif", 0)]


def test_the_image_means_take_the_fewer_pixels(fitted):
    """Tiles around the points of the grid for a large image, the tiles of the image for a small one."""
    shape = (4000, 5000)
    grid = tuple(at.ravel() for at in np.meshgrid([100.5, 2000.0], [50.0, 3000.25], indexing="ij"))
    maps = SimpleNamespace(stack=fitted.bank_)
    whole = Tile((slice(0, 4000), slice(0, 5000)), (slice(0, 4000), slice(0, 5000)))
    own = SimpleNamespace(maps=maps, image=SimpleNamespace(shape=(*shape, 1)), tiles=[whole])
    points = _TileRun._grid_tiles(own, grid)
    alignment = fitted.bank_.alignment
    margin = alignment * (math.ceil(fitted.bank_.halo / alignment) + 1)
    rows, cols = (
        [_around_point(at, n, margin, alignment) for at in np.unique(axis)]
        for axis, n in zip(grid, shape, strict=True)
    )
    assert [(tile.core, tile.seen) for tile in points] == [
        ((r[0], c[0]), (r[1], c[1])) for r in rows for c in cols
    ]
    small = replace(whole, seen=(slice(0, 20), slice(0, 20)))
    own.tiles = [small]
    assert _TileRun._grid_tiles(own, grid) is own.tiles
