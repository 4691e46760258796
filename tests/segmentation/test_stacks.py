"""Stacks come back as stacks, and models read images as those of their training were read."""

import csv

import numpy as np
import pytest
import tifffile

from segkit import Segmenter, load
from segkit.errors import InputError, ModelFileError
from segkit.features import MultiscaleBank
from segkit.images import PixelSize, Reading, load_pairs, read_mask, read_pixel_size, to_float
from segkit.images.pixel_size import read_z_step
from segkit.segmentation.folders import predict_folder
from segkit.segmentation.model_file import read_model, write_model

HEIGHT, WIDTH = 24, 28
LENGTHS = {"T": 2, "Z": 3, "C": 2, "Y": HEIGHT, "X": WIDTH}


def cells(axes, rng, dtype=np.uint8, high=255):
    """Bright squares on dark ground; every channel shows them. The array, and the mask of each plane."""
    shape = [LENGTHS[axis] for axis in axes]
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[6:16, 8:20] = 1
    array = rng.integers(0, high // 4, shape) + (high // 2) * mask.astype(int)
    return array.astype(dtype), mask


def fit(folder, reading=None, *, unlabelled=None):
    dataset = load_pairs(folder / "images", folder / "masks", reading=reading, unlabelled=unlabelled)
    segmenter = Segmenter(MultiscaleBank(sigma_max=2), training_pixels=500, selection_pixels=300)
    segmenter.fit(dataset.images, dataset.masks, label_map=dataset.label_map)
    segmenter.note_files(dataset.dtypes, dataset.pixel_sizes, dataset.reading)
    return segmenter


def write_pairs(folder, axes, rng, *, mask_of=lambda number, mask: mask, names="abc", **options):
    """Write images and their masks, stacks with a mask of each plane."""
    for name in ("images", "masks"):
        (folder / name).mkdir()
    for name in names:
        array, mask = cells(axes, rng, **options)
        tifffile.imwrite(
            folder / "images" / f"{name}.tif", array, photometric="minisblack", metadata={"axes": axes}
        )
        planes = "".join(axis for axis in axes if axis != "C")
        n_pages = int(np.prod([LENGTHS[axis] for axis in planes[:-2]], dtype=int))
        masks = np.stack([mask_of(number, mask) for number in range(n_pages)])
        shape = [LENGTHS[axis] for axis in planes]
        tifffile.imwrite(
            folder / "masks" / f"{name}.tif",
            masks.reshape(shape),
            photometric="minisblack",
            metadata={"axes": planes},
        )


@pytest.fixture
def two_channels(tmp_path, rng):
    write_pairs(tmp_path, "CYX", rng)
    return fit(tmp_path)


@pytest.mark.parametrize(
    ("name", "axes", "options", "expected"),
    [
        ("a.ome.tif", "TCZYX", {"ome": True}, "TZYX"),
        ("a.ome.tif", "ZCYX", {"ome": True}, "ZYX"),
        ("a.tif", "TZCYX", {"imagej": True}, "TZYX"),
        ("a.tif", "ZCYX", {"imagej": True}, "ZYX"),
        ("a.tif", "ZCTYX", {}, "TZYX"),  # ImageJ has one order only
    ],
)
def test_a_stack_comes_back_as_a_stack(tmp_path, two_channels, name, axes, options, expected, rng):
    array, _ = cells(axes, rng)
    metadata = {"axes": axes, "unit": "um", "spacing": 1.5}
    if options.get("ome"):
        sizes = {"X": 0.5, "Y": 0.5, "Z": 1.5}
        metadata = {"axes": axes, **{f"PhysicalSize{axis}": size for axis, size in sizes.items()}}
    images, out = tmp_path / "new", tmp_path / "out"
    images.mkdir()
    tifffile.imwrite(
        images / name, array, photometric="minisblack", metadata=metadata, resolution=(2, 2), **options
    )
    predict_folder(two_channels, images, out, probability=True)
    with tifffile.TiffFile(out / name) as file, tifffile.TiffFile(out / "probability" / name) as maps:
        assert (file.series[0].axes, maps.series[0].axes) == (expected, expected)
        assert file.series[0].shape == tuple(LENGTHS[axis] for axis in expected)
        assert file.is_ome == name.endswith(".ome.tif")
        assert file.is_imagej != name.endswith(".ome.tif")
        written = file.asarray()
    pages = two_channels.predict(list(_pages(array, axes, expected)))
    np.testing.assert_array_equal(written.reshape(-1, HEIGHT, WIDTH), np.stack(pages))
    if options:
        assert read_pixel_size(out / name) == PixelSize(0.5, 0.5)
        assert read_z_step(out / name) == 1.5


def _pages(array, axes, expected):
    order = [axes.index(axis) for axis in (*expected, "C")]
    return (array.transpose(order).reshape(-1, HEIGHT, WIDTH, 2) / np.float32(255)).astype(np.float32)


def test_the_maps_of_three_classes_have_a_class_axis(tmp_path, rng):
    write_pairs(
        tmp_path, "ZYX", rng, mask_of=lambda number, mask: mask + 2 * (np.indices(mask.shape)[0] > 19)
    )
    names = {0: "ground", 1: "cell", 2: "low"}
    dataset = load_pairs(tmp_path / "images", tmp_path / "masks", labels=names)
    segmenter = Segmenter(MultiscaleBank(sigma_max=2), training_pixels=500, selection_pixels=300)
    segmenter.fit(dataset.images, dataset.masks, label_map=dataset.label_map)
    predict_folder(segmenter, tmp_path / "images", tmp_path / "out", probability=True)
    with tifffile.TiffFile(tmp_path / "out" / "probability" / "a.tif") as file:
        assert (file.series[0].axes, file.series[0].shape) == ("ZCYX", (3, 3, HEIGHT, WIDTH))
        maps = file.asarray()
    expected = segmenter.segment(dataset.images[:3])
    np.testing.assert_array_equal(
        maps, np.stack([np.moveaxis(found.probability, 2, 0) for found in expected])
    )


def test_a_model_reads_as_its_training_did(tmp_path, rng):
    write_pairs(tmp_path, "ZYX", rng, dtype=np.int32, high=4000)
    segmenter = fit(tmp_path, Reading(range="percentiles: 1..99", context=1))
    assert segmenter.n_image_channels_ == 3
    segmenter.save(tmp_path / "m.segkit")
    loaded = load(tmp_path / "m.segkit")
    assert loaded.reading_ == segmenter.reading_
    assert loaded.reading_.is_learnt
    (tmp_path / "new").mkdir()
    volume = cells("ZYX", rng, np.int32, 4000)[0]
    tifffile.imwrite(tmp_path / "new" / "v.tif", volume, photometric="minisblack", metadata={"axes": "ZYX"})
    [mask] = predict_folder(loaded, tmp_path / "new", tmp_path / "out")
    low, high = loaded.reading_.limits
    scaled = ((volume - low) / (high - low)).clip(0, 1).astype(np.float32)
    around = [np.moveaxis(scaled[places], 0, 2) for places in ([0, 0, 1], [0, 1, 2], [1, 2, 2])]
    np.testing.assert_array_equal(tifffile.imread(mask), np.stack(loaded.predict(around)))


def test_a_plane_is_refused_by_a_model_of_stacks(tmp_path, rng):
    write_pairs(tmp_path, "ZYX", rng)
    segmenter = fit(tmp_path, Reading(context=1))
    (tmp_path / "new").mkdir()
    tifffile.imwrite(tmp_path / "new" / "p.tif", cells("YX", rng)[0])
    with pytest.raises(InputError, match=r"p.tif: data.context=1 needs the planes of a stack"):
        predict_folder(segmenter, tmp_path / "new", tmp_path / "out")


@pytest.mark.filterwarnings("ignore:.*texture unlike:UserWarning")
def test_pages_that_nobody_named_are_asked_for_and_given(tmp_path, rng):
    write_pairs(tmp_path, "YX", rng)
    segmenter = fit(tmp_path)
    (tmp_path / "new").mkdir()
    tifffile.imwrite(tmp_path / "new" / "v.tif", cells("ZYX", rng)[0], photometric="minisblack")
    with pytest.raises(InputError, match=r"v.tif: .* give --set data.axes=ZYX"):
        predict_folder(segmenter, tmp_path / "new", tmp_path / "out")
    [mask] = predict_folder(segmenter, tmp_path / "new", tmp_path / "out", axes="ZYX")
    with tifffile.TiffFile(mask) as file:
        assert file.series[0].axes == "ZYX"


def test_channels_of_other_names_are_told(tmp_path, rng):
    for folder, names in (("images", ["DAPI", "GFP"]), ("new", ["GFP", "DAPI"])):
        (tmp_path / folder).mkdir()
        for name in "ab":
            metadata = {"axes": "CYX", "Channel": {"Name": names}}
            tifffile.imwrite(
                tmp_path / folder / f"{name}.ome.tif", cells("CYX", rng)[0], ome=True, metadata=metadata
            )
    (tmp_path / "masks").mkdir()
    for name in "ab":
        tifffile.imwrite(tmp_path / "masks" / f"{name}.ome.tif", cells("YX", rng)[1])
    segmenter = fit(tmp_path)
    assert segmenter.reading_.channels == ("DAPI", "GFP")
    with pytest.warns(UserWarning, match="channels GFP, DAPI, of the training images DAPI, GFP"):
        predict_folder(segmenter, tmp_path / "new", tmp_path / "out")


def test_selected_channels_are_read_and_all_are_measured(tmp_path, rng):
    """The objects are in the second of three channels, by name; in new images it is the first."""
    for folder in ("images", "masks", "new"):
        (tmp_path / folder).mkdir()
    for name, folder, names in (("a", "images", "XGY"), ("b", "images", "XGY"), ("c", "new", "GXY")):
        picture, mask = cells("YX", rng)
        noise = [rng.integers(0, 200, picture.shape).astype(picture.dtype) for _ in range(2)]
        planes = [noise.pop() if one != "G" else picture for one in names]
        metadata = {"axes": "CYX", "Channel": {"Name": list(names)}}
        tifffile.imwrite(tmp_path / folder / f"{name}.ome.tif", np.stack(planes), ome=True, metadata=metadata)
        if folder == "images":
            tifffile.imwrite(tmp_path / "masks" / f"{name}.ome.tif", mask)
    data = load_pairs(tmp_path / "images", tmp_path / "masks", reading=Reading(selected=("g",)))
    assert [image.shape[2] for image in data.images] == [1, 1]
    assert data.reading.channels == ("G",)
    segmenter = Segmenter(training_pixels=500, selection_pixels=200).fit(data.images, data.masks)
    segmenter.note_files(data.dtypes, data.pixel_sizes, data.reading)
    segmenter.save(tmp_path / "m.segkit")
    [mask] = predict_folder(load(tmp_path / "m.segkit"), tmp_path / "new", tmp_path / "out", objects=True)
    stored = tifffile.imread(tmp_path / "new" / "c.ome.tif")
    np.testing.assert_array_equal(read_mask(mask)[0], segmenter.predict(to_float(stored[0])))
    with (tmp_path / "out" / "objects.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    labels = read_mask(tmp_path / "out" / "objects" / "c.ome.tif")[0]
    for name, plane in zip("GXY", stored, strict=True):
        assert float(row[f"intensity_mean_{name}"]) == pytest.approx(plane[labels == 1].mean(), rel=1e-3)


def test_a_damaged_reading_is_refused(tmp_path, rng):
    write_pairs(tmp_path, "YX", rng)
    fit(tmp_path).save(tmp_path / "m.segkit")
    header, arrays = read_model(tmp_path / "m.segkit")
    for change in ({"context": 1}, {"axes": "QYX"}, {"range": "no"}, {"context": -1}):
        odd = header | {"reading": header["reading"] | change}
        write_model(tmp_path / "odd.segkit", {k: v for k, v in odd.items() if k != "format_version"}, arrays)
        with pytest.raises(ModelFileError, match="copy it anew"):
            load(tmp_path / "odd.segkit")
