"""One image file segmented by a model that learns nothing, and its results written."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile

from segkit.errors import InputError
from segkit.images import PixelSize, Reading, read_mask, read_pixel_size, write_image
from segkit.images.axes import Layout
from segkit.segmentation.outcome import WRITTEN, ImageRow
from segkit.segmentation.plan import Job
from segkit.segmentation.results import make_results, read_measured

SHAPE = (20, 30)


@pytest.fixture
def bright(Bright):
    return Bright().fit([np.linspace(0, 1, 600).reshape(SHAPE)], [np.arange(600).reshape(SHAPE) % 2])


def job_of(source, shapes, extras=None, layout=None):
    paths = {kind: tuple(map(Path, places)) for kind, places in (extras or {}).items()}
    return Job(source, source.name, shapes, Path("mask.tif"), paths, (), None, layout or Layout())


def make(segmenter, job, folder, **options):
    options = {"pixel_size": None, "reading": Reading(), "follow": lambda items, _: items} | options
    return make_results(segmenter, job, folder / "new", **options)


def test_probabilities_are_those_of_the_second_class(tmp_path, rng, bright):
    stored = rng.integers(1, 255, SHAPE, dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", stored)
    job = job_of(tmp_path / "a.tif", [(*SHAPE, 1)], {"probability": ["p.tif"], "overlay": ["o.png"]})
    columns = make(bright, job, tmp_path)
    found = bright.segment(stored / np.float32(255))
    np.testing.assert_array_equal(read_mask(tmp_path / "new" / "mask.tif")[0], found.labels)
    maps = tifffile.imread(tmp_path / "new" / "p.tif")
    np.testing.assert_allclose(maps, found.probability[:, :, 1], atol=1e-6)
    assert (tmp_path / "new" / "o.png").exists()
    assert set(columns.values()) == {None, ""}


def test_pages_have_a_mask_each_and_their_own_overlays(tmp_path, rng, bright):
    stored = rng.integers(1, 255, (3, *SHAPE), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="minisblack", metadata={"axes": "ZYX"})
    layout = Reading().read(tmp_path / "a.tif").layout
    extras = {"overlay": [f"o{page}.png" for page in range(3)]}
    make(bright, job_of(tmp_path / "a.tif", [(*SHAPE, 1)] * 3, extras, layout), tmp_path)
    masks = tifffile.imread(tmp_path / "new" / "mask.tif")
    np.testing.assert_array_equal(masks, stored / np.float32(255) >= 0.5)
    overlays = [(tmp_path / "new" / f"o{page}.png").read_bytes() for page in range(3)]
    assert len(set(overlays)) == 3
    assert not (tmp_path / "new" / "p.tif").exists()


@pytest.mark.parametrize(("given", "expected"), [(None, (0.25, 0.5)), (PixelSize(3, 4), (3, 4))])
def test_a_given_pixel_size_is_written_in_place_of_that_of_the_file(tmp_path, rng, bright, given, expected):
    stored = rng.integers(1, 255, SHAPE, dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", stored, resolution=(20_000, 40_000), resolutionunit="CENTIMETER")
    make(bright, job_of(tmp_path / "a.tif", [(*SHAPE, 1)]), tmp_path, pixel_size=given)
    np.testing.assert_allclose(read_pixel_size(tmp_path / "new" / "mask.tif"), expected, rtol=1e-5)


@pytest.mark.parametrize("change", ["size", "layout", "channels"])
def test_an_image_that_was_replaced_is_refused(tmp_path, rng, bright, change):
    write_image(tmp_path / "a.png", rng.uniform(size=(*SHAPE, 3) if change == "channels" else SHAPE))
    shape = (20, 31, 1) if change == "size" else (*SHAPE, 1)
    layout = Layout("Z", (1,)) if change == "layout" else Layout()
    with pytest.raises(InputError) as caught:
        make(bright, job_of(tmp_path / "a.png", [shape], layout=layout), tmp_path)
    told = {"channels": " has 3 channels, the model was trained on 1: save it as the training images are"}
    replaced = ": was replaced by another image meanwhile: --resume takes it"
    assert str(caught.value) == f"{tmp_path / 'a.png'}{told.get(change, replaced)}"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("size", [None, [0.5, 2.0]])
def test_measurements_are_read_page_by_page(tmp_path, size):
    columns = {
        "pixel_size": np.array(json.dumps(size)),
        "0/label": np.array([1, 2]),
        "1/label": np.array([1]),
    }
    np.savez(tmp_path / "a.npz", **columns, **{"1/area": np.array([7.5])})
    row = ImageRow("b/a.tif", WRITTEN, height=20, width=30, pages=2)
    first, second = read_measured(tmp_path / "a.npz", row)
    assert (first.image, second.image) == ("b/a#1", "b/a#2")
    assert first.shape == second.shape == (20, 30)
    assert first.pixel_size == second.pixel_size == (size and PixelSize(*size))
    assert {key: values.tolist() for key, values in second.objects.items()} == {"label": [1], "area": [7.5]}
    assert first.objects["label"].tolist() == [1, 2]
    [alone] = read_measured(tmp_path / "a.npz", ImageRow("a.tif", WRITTEN, height=2, width=3, pages=1))
    assert (alone.image, alone.shape) == ("a", (2, 3))
    assert list(read_measured(tmp_path / "a.npz", ImageRow("a.tif", WRITTEN))) == []
