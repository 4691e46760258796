"""The command predict on an image that is read by region, and its estimate."""

import numpy as np
import pytest
import tifffile

from segkit import Segmenter
from segkit.features import MultiscaleBank
from segkit.images import read_pixel_size, write_image


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(0)
    mask = np.zeros((60, 70), dtype=np.uint8)
    mask[20:40, 20:50] = 1
    image = np.clip(0.3 + 0.3 * mask + 0.05 * rng.standard_normal(mask.shape), 0, 1)
    path = tmp_path_factory.mktemp("model") / "m.segkit"
    segmenter = Segmenter(MultiscaleBank(sigma_max=2), training_pixels=400, selection_pixels=200)
    segmenter.fit([image], [mask]).save(path)
    return path


def slide(path):
    image = np.random.default_rng(1).integers(60, 160, (200, 240), dtype=np.uint8)
    tifffile.imwrite(path, image, tile=(64, 64))
    return path


def test_an_image_by_region(model, segkit, tmp_path):
    pytest.importorskip("zarr")
    line = ["predict", model, slide(tmp_path / "slide.tif"), "-o", tmp_path / "out", "--set", "data.level=0"]
    status, out, err = segkit(*line)
    assert (status, err) == (0, "")
    assert "slide.tif: background " in out
    assert "1 written, 0 skipped, 0 failed" in out
    assert tifffile.imread(tmp_path / "out" / "slide.tif").shape == (200, 240)
    status, out, err = segkit(*line)
    assert (status, err.strip()) == (
        2,
        f"segkit: {tmp_path / 'out' / 'slide.tif'} and 1 more would be overwritten: choose another folder, go on with what "
        "is there (--resume, in Python resume=True), or replace it (--overwrite, overwrite=True)",
    )
    assert segkit(*line, "--resume")[0] == 0
    status, out, err = segkit(*line, "--resume", "--probability", "--set", "data.pixel_size=0.5")
    assert (status, err) == (0, "")
    maps = tmp_path / "out" / "probability" / "slide.tif"
    assert f"probability in {maps.parent}" in out
    assert read_pixel_size(maps) == pytest.approx((0.5, 0.5))
    status, out, err = segkit(*line, "--overwrite", "--probability", "--overlay", "--objects")
    assert (status, err) == (0, "")
    assert "Tables: " in out
    for place in ("overlay/slide.png", "objects/slide.tif", "geojson/slide.geojson", "objects.csv"):
        assert (tmp_path / "out" / place).exists()
    line[line.index("-o") + 1] = tmp_path / "other"
    status, out, err = segkit(*line, "--set", "data.axes=YX")
    assert status == 2
    assert "is read by region, as one plane: leave out axes" in err


def test_what_is_large_follows_from_header_and_memory(model, segkit, tmp_path, monkeypatch):
    pytest.importorskip("zarr")
    path = slide(tmp_path / "slide.tif")
    monkeypatch.setattr("segkit.segmentation.memory.bytes_left", lambda: 10**6)
    status, out, _ = segkit("predict", model, path, "-o", tmp_path / "out")
    assert status == 0
    assert "slide.tif: background " in out


def test_a_dry_run_writes_nothing(model, segkit, tmp_path):
    write_image(tmp_path / "images" / "one.png", np.random.default_rng(0).random((40, 50)))
    status, out, _ = segkit("predict", model, tmp_path / "images", "-o", tmp_path / "out", "--dry-run")
    assert status == 0
    assert out.startswith("1 image, 1 tile, at most ")
    assert out.strip().endswith("minutes; nothing was written")
    assert not (tmp_path / "out").exists()


def test_a_limit_of_memory_is_held_by_the_command(model, segkit, tmp_path):
    write_image(tmp_path / "images" / "one.png", np.random.default_rng(0).random((40, 50)))
    line = ["predict", model, tmp_path / "images", "-o", tmp_path / "out", "--memory-limit"]
    status, _, err = segkit(*line, "64MiB")
    assert status != 0
    assert "the memory limit is 64 MiB: raise --memory-limit" in err
    status, _, err = segkit(*line, "little")
    assert (status, err.strip()) == (
        2,
        "segkit: memory limit 'little': give a size of 64 MiB or more, such as 2GiB or 500MB",
    )
    assert segkit(*line, "64GiB", "--overwrite")[0] == 0


def test_a_dry_run_of_an_image_by_region(model, segkit, tmp_path):
    pytest.importorskip("zarr")
    line = ["predict", model, slide(tmp_path / "slide.tif"), "-o", tmp_path / "out", "--dry-run"]
    status, out, _ = segkit(*line, "--set", "data.level=0")
    assert status == 0
    assert out.startswith("1 image, 1 tile, at most ")
    status, _, err = segkit("predict", model, tmp_path / "slide.zarr", "-o", tmp_path / "out", "--dry-run")
    assert (status, "no such file or folder: check its name" in err) == (2, True)


def test_options_of_data_are_not_left_out_without_a_word(segkit, tmp_path):
    line = [
        "train",
        slide(tmp_path / "slide.tif"),
        tmp_path / "regions.geojson",
        "-o",
        tmp_path / "new.segkit",
    ]
    status, _, err = segkit(*line, "--set", "data.level=0", "--set", "data.range=0..4095")
    assert (status, err.count("\n")) == (2, 1)
    assert (
        f"data.range: only level of data can be given for {tmp_path / 'slide.tif'}, which is read by" in err
    )
