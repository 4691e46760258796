import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.errors import InputError, OutputError
from segkit.images import Reading, combine, read_pages, read_pixel_size
from segkit.images.read import read_stack


@pytest.fixture
def plate(tmp_path, rng):
    """Two images of 16 bits, their channels in files of their own, a folder of maps, and one of colours."""
    stored = {}
    for folder in ("plate", "depth", "photos"):
        (tmp_path / folder).mkdir()
    for image in ("a", "b"):
        for channel in (1, 2):
            stored[image, channel] = rng.integers(0, 60000, (6, 8)).astype(np.uint16)
            tifffile.imwrite(tmp_path / "plate" / f"{image}_w{channel}.tif", stored[image, channel])
        stored[image, "depth"] = rng.random((6, 8), dtype=np.float32)
        tifffile.imwrite(tmp_path / "depth" / f"{image}.tif", stored[image, "depth"])
        stored[image, "photo"] = rng.integers(0, 256, (6, 8, 3)).astype(np.uint8)
        Image.fromarray(stored[image, "photo"]).save(tmp_path / "photos" / f"{image}.png")
    return stored


def test_channels_of_a_pattern_keep_their_values_and_get_names(tmp_path, plate):
    written = combine([tmp_path / "plate" / "*_w2", tmp_path / "plate" / "*_w1.tif"], tmp_path / "out")
    assert written == {tmp_path / "out" / f"{image}.ome.tif": ("w2", "w1") for image in "ab"}
    stack = read_stack(tmp_path / "out" / "b.ome.tif")
    assert stack.layout.channels == ("w2", "w1")
    [page] = stack.pages
    np.testing.assert_array_equal(page, np.dstack([plate["b", 2], plate["b", 1]]))
    assert page.dtype == np.uint16


def test_types_that_differ_become_fractions(tmp_path, plate):
    written = combine([tmp_path / name for name in ("photos", "depth")], tmp_path / "out")
    path = tmp_path / "out" / "a.ome.tif"
    assert written[path] == ("photos 1", "photos 2", "photos 3", "depth")
    [page] = read_pages(path)
    expected = np.dstack([plate["a", "photo"] / np.float32(255), plate["a", "depth"]])
    np.testing.assert_allclose(page, expected, rtol=1e-6)


def test_planes_axes_and_lengths_stay(tmp_path, rng):
    volumes = {name: rng.integers(0, 255, (3, 6, 8)).astype(np.uint8) for name in ("red", "green")}
    metadata = {"axes": "ZYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.25, "PhysicalSizeZ": 2.0}
    for name, volume in volumes.items():
        (tmp_path / name / "day").mkdir(parents=True)
        tifffile.imwrite(tmp_path / name / "day" / "v.ome.tif", volume, metadata=metadata)
    [path] = combine([tmp_path / name for name in volumes], tmp_path / "out")
    assert path == tmp_path / "out" / "day" / "v.ome.tif"
    stack = read_stack(path)
    assert (stack.layout.axes, stack.layout.shape) == ("Z", (3,))
    np.testing.assert_array_equal(np.moveaxis(stack.pages, 3, 0), list(volumes.values()))
    size = read_pixel_size(path)
    assert (size.x, size.y) == (0.5, 0.25)


def test_channels_of_the_same_name_are_told_apart_by_their_folder(tmp_path, rng):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        image = rng.integers(0, 255, (2, 6, 8)).astype(np.uint8)
        tifffile.imwrite(
            tmp_path / name / "a.ome.tif",
            image,
            metadata={"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP"]}},
            photometric="minisblack",
        )
    places = [tmp_path / name for name in ("first", "second")]
    [names] = combine(places, tmp_path / "out").values()
    assert names == ("first DAPI", "first GFP", "second DAPI", "second GFP")
    with pytest.raises(InputError, match="two channels are called first DAPI: give each source once"):
        combine(places[:1] * 2, tmp_path / "other")


def test_axes_are_those_that_are_given(tmp_path, rng):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        tifffile.imwrite(
            tmp_path / name / "a.tif",
            rng.integers(0, 255, (3, 6, 8)).astype(np.uint8),
            metadata=None,
            photometric="minisblack",
        )
    with pytest.raises(InputError, match="axes"):
        combine([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    [path] = combine([tmp_path / "one", tmp_path / "two"], tmp_path / "out", reading=Reading(axes="ZYX"))
    assert len(read_pages(path)) == 3


def test_depth_is_not_joined_with_time(tmp_path):
    for letter in "ZT":
        (tmp_path / letter).mkdir()
        metadata = {"axes": f"{letter}YX"}
        tifffile.imwrite(
            tmp_path / letter / "a.ome.tif", np.zeros((2, 6, 8), dtype=np.uint8), metadata=metadata
        )
    with pytest.raises(InputError, match=r"its planes are T, those of .* Z: name the axes of both alike"):
        combine([tmp_path / "Z", tmp_path / "T"], tmp_path / "out")


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, plate):
    out = tmp_path / "out"
    (tmp_path / "depth" / "b.tif").unlink()
    with pytest.raises(InputError, match="depth has no file for b, which another source has"):
        combine([tmp_path / "photos", tmp_path / "depth"], out)
    with pytest.raises(InputError, match=r"no image is called like \*_w3"):
        combine([tmp_path / "plate" / "*_w3"], out)
    for pattern in ("pl*/*_w1", "plate/*_w*"):
        with pytest.raises(InputError, match="a pattern with one star in the name of the files"):
            combine([tmp_path / pattern], out)
    with pytest.raises(OutputError, match="is the input folder"):
        combine([tmp_path / "photos"], tmp_path / "photos" / "inside")
    assert not out.exists()
    (out / "a.ome.tif").mkdir(parents=True)
    with pytest.raises(OutputError, match="would be overwritten"):
        combine([tmp_path / "photos"], out)


def test_sizes_that_differ_are_named(tmp_path, plate):
    tifffile.imwrite(tmp_path / "depth" / "a.tif", np.zeros((6, 9), dtype=np.float32))
    with pytest.raises(InputError, match="1 plane of 6 x 9 pixels, other than in") as told:
        combine([tmp_path / "photos", tmp_path / "depth"], tmp_path / "out")
    assert str(tmp_path / "depth" / "a.tif") in str(told.value)


def test_images_that_were_combined_before_stay(tmp_path, plate):
    for image in "ab":
        (tmp_path / image).mkdir()
        (tmp_path / "photos" / f"{image}.png").rename(tmp_path / image / f"{image}.png")
        assert list(combine([tmp_path / image], tmp_path / "out")) == [tmp_path / "out" / f"{image}.ome.tif"]
    again = combine([tmp_path / "a"], tmp_path / "out", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.tif")) == ["a.ome.tif", "b.ome.tif"]
    next(iter(again)).write_bytes(b"mine")
    with pytest.raises(OutputError, match="was not written by segkit, or changed since"):
        combine([tmp_path / "a"], tmp_path / "out", overwrite=True)


def test_values_without_a_range_cannot_stand_beside_other_types(tmp_path, plate):
    tifffile.imwrite(tmp_path / "depth" / "a.tif", np.full((6, 8), 500, dtype=np.float32))
    with pytest.raises(
        InputError, match="float32 from 500 to 500, a type without a range: save it as fractions"
    ):
        combine([tmp_path / "photos", tmp_path / "depth"], tmp_path / "out")
    combine([tmp_path / "depth"], tmp_path / "out")
    assert read_pages(tmp_path / "out" / "a.ome.tif")[0].max() == 500
