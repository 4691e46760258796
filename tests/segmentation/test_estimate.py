"""Memory and time told before a prediction is made."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile

import segkit
from segkit import Segmenter
from segkit.errors import InputError
from segkit.features import MultiscaleBank
from segkit.images import write_image
from segkit.segmentation.estimate import Estimate, _middle, _pace, estimate_folder


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    mask = np.zeros((60, 70), dtype=np.uint8)
    mask[20:40, 20:50] = 1
    image = np.clip(0.3 + 0.3 * mask + 0.05 * rng.standard_normal(mask.shape), 0, 1).astype(np.float32)
    return Segmenter(MultiscaleBank(sigma_max=2), training_pixels=400, selection_pixels=200).fit(
        [image], [mask]
    )


def test_it_tells_and_writes_nothing(fitted, tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    for name, shape in (("one", (50, 60)), ("two", (150, 200))):
        write_image(tmp_path / "images" / f"{name}.png", rng.random(shape))
    (tmp_path / "images" / "odd.png").write_text("no image")
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 100**2)
    found = estimate_folder(fitted, tmp_path / "images")
    assert (found.n_images, found.n_tiles) == (2, 1 + len(fitted.bank_.tiles((150, 200, 1))))
    assert found.n_tiles > 3
    assert found.seconds > 0
    assert found.peak > 150 * 200 * 64
    assert len(found.faults) == 1
    assert found.summarise().startswith(f"2 images, {found.n_tiles} tiles, at most ")


def test_an_image_by_region_counts_its_tiles(fitted, tmp_path, monkeypatch):
    """Its results are not in memory as a whole."""
    pytest.importorskip("zarr")
    pixels = np.random.default_rng(1).integers(0, 255, (150, 200), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "slide.tif", pixels, tile=(64, 64))
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 100**2)
    whole, tiled = (estimate_folder(fitted, tmp_path, level=level) for level in (None, 0))
    assert tiled.n_images == 1
    assert tiled.n_tiles == whole.n_tiles > 3
    assert whole.peak - tiled.peak > 150 * 200 * 64 / 2


def test_what_does_not_fit_is_refused_before_it_is_begun(fitted):
    image = np.zeros((400, 500), dtype=np.float32)
    with segkit.memory_limit("64MiB"), pytest.raises(InputError) as caught:
        fitted.predict(image)
    message = str(caught.value)
    assert message.startswith("image of 400 x 500 pixels: needs ")
    assert "the memory limit is 64 MiB: raise --memory-limit" in message


def test_training_is_refused_too(fitted):
    with segkit.memory_limit("64MiB"), pytest.raises(InputError, match="the memory limit is 64 MiB"):
        Segmenter(MultiscaleBank(sigma_max=2)).fit([np.eye(200)], [np.eye(200, dtype=int)])


def test_labels_do_not_depend_on_the_limit(fitted, monkeypatch):
    image = np.random.default_rng(2).random((300, 280)).astype(np.float32)
    expected = fitted.decision_function(image)
    monkeypatch.setattr("segkit.features.tiles.bytes_left", lambda: 10**6)
    assert len(fitted.bank_.tiles((*image.shape, 1))) > 4
    np.testing.assert_allclose(fitted.decision_function(image), expected, atol=1e-4)


def test_the_line_tells_images_tiles_memory_and_minutes():
    told = Estimate(1, 12, 3 * 2**30, 90.0, []).summarise()
    assert told == "1 image, 12 tiles, at most 3.0 GiB of memory, about 1.5 minutes; nothing was written"


def test_memory_and_time_are_those_of_the_largest_image_and_of_all_pixels(fitted, tmp_path, monkeypatch):
    """Of files with one image: its pixels stored and as floats, the results, and the largest tile."""
    rng = np.random.default_rng(1)
    sizes = {"a": (50, 60), "b": (150, 200), "c": (120, 90)}
    for name, size in sizes.items():
        write_image(tmp_path / "images" / f"{name}.png", rng.random(size))
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 100**2)
    monkeypatch.setattr("segkit.segmentation.estimate.bytes_used", lambda: 10**9)
    monkeypatch.setattr("segkit.segmentation.memory.bytes_left", lambda: 0)
    measured = []
    monkeypatch.setattr(
        "segkit.segmentation.estimate._pace", lambda _, image: measured.append(image.shape) or 0.25
    )
    found = estimate_folder(fitted, tmp_path / "images")
    tiles = {size: fitted.bank_.tiles((*size, 1)) for size in sizes.values()}
    largest = {size: max(np.prod(tile.shape) for tile in cut) for size, cut in tiles.items()}
    of_pixel = fitted.bank_.bytes_per_pixel(1)
    peak = max(height * width * 64 + int(largest[height, width] * of_pixel) for height, width in tiles)
    assert found.peak == 10**9 + 150 * 200 * 8 + peak
    assert measured == [(50, 60, 1)]
    assert found.seconds == 0.25 * sum(np.prod(tile.shape) for cut in tiles.values() for tile in cut)
    assert (found.n_images, found.n_tiles, found.faults) == (3, sum(map(len, tiles.values())), [])


def test_pages_of_a_file_are_read_together(fitted, tmp_path, monkeypatch):
    stack = np.random.default_rng(1).integers(0, 255, (4, 40, 50), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "images.tif", stack, photometric="minisblack", metadata={"axes": "ZYX"})
    monkeypatch.setattr("segkit.segmentation.estimate.bytes_used", lambda: 0)
    monkeypatch.setattr("segkit.segmentation.estimate._pace", lambda *_: 0.5)
    found = estimate_folder(fitted, tmp_path / "images.tif")
    of_tile = int(40 * 50 * fitted.bank_.bytes_per_pixel(1))
    assert (found.n_images, found.n_tiles, found.seconds) == (4, 4, 0.5 * 4 * 40 * 50)
    assert found.peak == 4 * 40 * 50 * 8 + 40 * 50 * 64 + of_tile


@pytest.mark.parametrize(
    ("shape", "part"),
    [((500, 400), (slice(58, 442), slice(8, 392))), ((385, 60), (slice(0, 384), slice(0, 60)))],
)
def test_the_pace_is_that_of_the_middle_of_an_image(monkeypatch, shape, part):
    """Filters are made in a first prediction, which does not count."""
    assert _middle((*shape, 1)) == part
    middle = np.zeros((*shape, 1), dtype=np.float32)[part]
    events = []

    def predict(image, event="predict"):
        events.append(event)
        assert image is middle

    ticks = iter((10.0, 12.5))
    monkeypatch.setattr(
        "segkit.segmentation.estimate.time.perf_counter", lambda: events.append("tick") or next(ticks)
    )
    pace = _pace(SimpleNamespace(predict=predict, segment=partial(predict, event="segment")), middle)
    assert pace == 2.5 / middle.size
    assert events == ["predict", "tick", "segment", "tick"]
