"""One image file segmented by a model that learns nothing, and its results written."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile

from segkit.errors import InputError
from segkit.images import PixelSize, Reading, read_mask, read_pixel_size, write_image
from segkit.images.alike import Kind
from segkit.objects import Splitter
from segkit.segmentation.outcome import WRITTEN, ImageRow
from segkit.segmentation.results import (
    Appearance,
    Job,
    load_images,
    make_results,
    measured_place,
    read_measured,
)

SHAPE = (20, 30)


@pytest.fixture
def bright(Bright):
    return Bright().fit([np.linspace(0, 1, 600).reshape(SHAPE)], [np.arange(600).reshape(SHAPE) % 2])


def make(segmenter, source, folder, *kinds, **options):
    options = {"pixel_size": None, "reading": Reading(), "follow": lambda items, _: items} | options
    return make_results(segmenter, Job(source, source.name), folder / "new", kinds=kinds, **options)


def test_probabilities_are_those_of_the_second_class(tmp_path, rng, bright):
    stored = rng.integers(1, 255, SHAPE, dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", stored)
    made = make(bright, tmp_path / "a.tif", tmp_path, "probability", "overlay")
    assert made.places == [Path("probability/a.tif"), Path("overlay/a.png"), Path("a.png")]
    found = bright.segment(stored / np.float32(255))
    np.testing.assert_array_equal(read_mask(tmp_path / "new" / "a.png")[0], found.labels)
    maps = tifffile.imread(tmp_path / "new" / "probability" / "a.tif")
    np.testing.assert_allclose(maps, found.probability[:, :, 1], atol=1e-6)
    assert (tmp_path / "new" / "overlay" / "a.png").exists()
    known = {name: value for name, value in made.columns.items() if value not in (None, "")}
    assert known == {"height": 20, "width": 30, "pages": 1}
    assert made.appearance == (Kind(1, True), (), pytest.approx(stored.max() / 255))


def test_pages_have_a_mask_each_and_their_own_overlays(tmp_path, rng, bright):
    stored = rng.integers(1, 255, (3, *SHAPE), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="minisblack", metadata={"axes": "ZYX"})
    made = make(bright, tmp_path / "a.tif", tmp_path, "overlay")
    assert made.places == [*(Path(f"overlay/a-00{page}.png") for page in (1, 2, 3)), Path("a.tif")]
    masks = tifffile.imread(tmp_path / "new" / "a.tif")
    np.testing.assert_array_equal(masks, stored / np.float32(255) >= 0.5)
    overlays = [(tmp_path / "new" / place).read_bytes() for place in made.places[:3]]
    assert len(set(overlays)) == 3
    assert not (tmp_path / "new" / "probability").exists()


@pytest.mark.parametrize(("given", "expected"), [(None, (0.25, 0.5)), (PixelSize(3, 4), (3, 4))])
def test_a_given_pixel_size_is_written_in_place_of_that_of_the_file(tmp_path, rng, bright, given, expected):
    stored = rng.integers(1, 255, SHAPE, dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", stored, resolution=(20_000, 40_000), resolutionunit="CENTIMETER")
    make(bright, tmp_path / "a.tif", tmp_path, pixel_size=given)
    np.testing.assert_allclose(read_pixel_size(tmp_path / "new" / "a.png"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "suffix"), [(np.uint8, ".png"), (np.uint16, ".png"), (np.uint32, ".tif"), (np.uint64, ".tif")]
)
def test_masks_whose_values_do_not_fit_into_png_are_tiff(tmp_path, rng, Bright, dtype, suffix):
    values = (
        np.arange(2) if dtype == np.uint8 else np.array([0, {2: 300, 4: 70_000, 8: 2**40}[dtype().itemsize]])
    )
    segmenter = Bright().fit([rng.random(SHAPE)], [values[np.arange(600).reshape(SHAPE) % 2]])
    assert segmenter.classes_.dtype == dtype
    write_image(tmp_path / "a.png", rng.random(SHAPE))
    assert make(segmenter, tmp_path / "a.png", tmp_path).places == [Path("a").with_suffix(suffix)]


@pytest.mark.parametrize(
    ("shape", "axes", "told"),
    [
        ((*SHAPE, 3), "YXS", None),  # colour, where a channel was learnt
        (
            (2, *SHAPE),
            "CYX",
            " has 2 channels, the model was trained on 1: save it as the training images are",
        ),
    ],
)
def test_images_with_other_channels_are_refused(tmp_path, rng, bright, shape, axes, told):
    told = told or " has 3 channels, the model was trained on 1: save it as the training images are"
    tifffile.imwrite(tmp_path / "a.tif", rng.integers(1, 255, shape, dtype=np.uint8), metadata={"axes": axes})
    with pytest.raises(InputError) as caught:
        load_images(bright, tmp_path / "a.tif", Reading())
    assert str(caught.value) == f"{tmp_path / 'a.tif'}{told}"


def test_grey_stored_as_colour_is_read_as_the_model_needs_it(tmp_path, rng, bright):
    grey = rng.random(SHAPE).astype(np.float32)
    write_image(tmp_path / "a.png", np.repeat(grey[:, :, None], 3, axis=2))
    loaded = load_images(bright, tmp_path / "a.png", Reading())
    assert loaded.kind == Kind(3, True)
    assert [image.shape for image in (*loaded.planes, *loaded.images)] == [(*SHAPE, 1)] * 2


def test_results_of_a_page_have_the_name_of_the_image_and_of_several_a_number():
    job = Job(Path("in/b/a.tif"), "b/a.tif")
    assert job.mask == Path("b/a.png")
    assert job.places("objects", 2) == job.places("objects") == [Path("objects/b/a.tif")]
    assert job.places("rois") == [Path("rois/b/a.zip")]
    assert job.places("geojson", 2) == [Path("geojson/b/a-001.geojson"), Path("geojson/b/a-002.geojson")]
    assert job.possible_places("overlay") == [Path("overlay/b/a.png"), Path("overlay/b/a-001.png")]
    assert job.possible_places("probability") == [Path("probability/b/a.tif")]
    assert job.possible_masks(np.dtype("uint8")) == [Path("b/a.png"), Path("b/a.tif")]
    assert job.possible_masks(np.dtype("uint32")) == [Path("b/a.tif")]
    single = Job(Path("in/c.JPG"), "c.JPG")
    assert single.possible_places("overlay") == [Path("overlay/c.png")]
    assert single.possible_masks(np.dtype("uint16")) == [Path("c.png")]
    assert single.possible_masks(np.dtype("uint32")) == [Path("c.tif")]
    assert measured_place("b/a.tif").parts[:2] == (".segkit", "objects")


def test_an_object_is_of_the_class_around_its_filled_hole(tmp_path, bright):
    """Most of its pixels are a hole, which was predicted as background."""
    far = np.hypot(*(np.indices(SHAPE) - np.array([10, 15])[:, None, None]))
    ring = (far < 7) & (far > 5)
    write_image(tmp_path / "a.png", ring.astype(float))
    splitter = Splitter("none", radius=9)
    numbers = splitter.split(ring)
    assert 2 * np.count_nonzero(ring) < np.count_nonzero(numbers)
    found = replace(bright.segment([ring[:, :, None].astype(np.float32)])[0], objects=numbers)
    bright.segment, bright.objects_ = lambda *_, **__: [found], SimpleNamespace(splitter=splitter)
    make(bright, tmp_path / "a.png", tmp_path, "objects", "geojson")
    with np.load(tmp_path / "new" / measured_place("a.png")) as table:
        assert table["0/class"].tolist() == [bright.label_map_.names[1]]


@pytest.mark.parametrize("size", [None, [0.5, 2.0]])
def test_measurements_are_read_page_by_page(tmp_path, size):
    columns = {
        "pixel_size": np.array(json.dumps([size, "OME metadata"])),
        "0/label": np.array([1, 2]),
        "1/label": np.array([1]),
    }
    np.savez(tmp_path / "a.npz", **columns, **{"1/area": np.array([7.5])})
    row = ImageRow("b/a.tif", WRITTEN, height=20, width=30, pages=2)
    first, second = read_measured(tmp_path / "a.npz", row)
    assert (first.image, second.image) == ("b/a#1", "b/a#2")
    assert first.shape == second.shape == (20, 30)
    assert first.pixel_size == second.pixel_size == (size and PixelSize(*size))
    assert first.size_source == "OME metadata"
    assert {key: values.tolist() for key, values in second.objects.items()} == {"label": [1], "area": [7.5]}
    assert first.objects["label"].tolist() == [1, 2]
    [alone] = read_measured(tmp_path / "a.npz", ImageRow("a.tif", WRITTEN, height=2, width=3, pages=1))
    assert (alone.image, alone.shape) == ("a", (2, 3))
    assert list(read_measured(tmp_path / "a.npz", ImageRow("a.tif", WRITTEN))) == []


def test_an_appearance_comes_back_from_json_and_nothing_else_does():
    look = Appearance(Kind(3, True), ("DAPI",), 0.25)
    assert Appearance.from_list(json.loads(json.dumps(look.to_list()))) == look
    assert all(
        Appearance.from_list(odd) is None for odd in (None, [], [1, 2, 3], [[1, True], None, 1], "abc")
    )
