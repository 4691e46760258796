"""Ranges of values, and the planes around a plane."""

import numpy as np
import pytest
import tifffile

from segkit.errors import InputError
from segkit.images import Reading, inspect_images, load_pairs
from segkit.images.axes import Layout
from segkit.images.reading import neighbours
from tests.images.conftest import complaint


def write(path, array, axes):
    path.parent.mkdir(exist_ok=True)
    tifffile.imwrite(path, array, photometric="minisblack", metadata={"axes": axes})


@pytest.fixture
def deep(tmp_path, rng):
    """Two images of int32 with values up to 4095, and their masks."""
    for name in "ab":
        write(tmp_path / "images" / f"{name}.tif", rng.integers(0, 4096, (9, 8)).astype(np.int32), "YX")
        write(tmp_path / "masks" / f"{name}.tif", np.eye(9, 8, dtype=np.uint8), "YX")
    return tmp_path / "images", tmp_path / "masks"


def test_a_stated_range(deep):
    with pytest.raises(InputError, match="pixels are int32"):
        load_pairs(*deep)
    dataset = load_pairs(*deep, reading=Reading(range="0..4095"))
    stored = tifffile.imread(deep[0] / "a.tif")
    np.testing.assert_allclose(dataset.images[0][:, :, 0], stored / 4095, rtol=1e-6)
    assert dataset.reading.limits == (0, 4095)


def test_selected_channels(tmp_path):
    planes = np.arange(3 * 9 * 8, dtype=np.uint8).reshape(3, 9, 8)
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(
        path, planes, ome=True, metadata={"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP", "3"]}}
    )
    for selected, places, names in (
        (("gfp",), [1], ("GFP",)),
        (("3", "DAPI"), [2, 0], ("3", "DAPI")),
        (("2", "1"), [1, 0], ("GFP", "DAPI")),
    ):
        stack = Reading(selected=selected).read(path)
        np.testing.assert_array_equal(np.atleast_3d(stack.pages[0]), planes[places].transpose(1, 2, 0))
        assert stack.layout.channels == names
        assert stack.whole.layout.channels == ("DAPI", "GFP", "3")
        np.testing.assert_array_equal(stack.whole.pages[0], planes.transpose(1, 2, 0))
    for selected in (("RFP",), ("4",), ("0",), ("-1",), ("DAPI", "5")):
        told = complaint(Reading(selected=selected).read, path)
        assert told.startswith(
            f"{path}: no channel {selected[-1]}, it has channels 1 to 3 (DAPI, GFP, 3): give"
        )
    grey = tmp_path / "grey.tif"
    tifffile.imwrite(grey, planes[0])
    assert Reading(selected=("1",)).read(grey).pages[0].shape == (9, 8)
    assert "no channel 2, it has one channel: give" in complaint(Reading(selected=("2",)).read, grey)
    assert "give each of them once" in complaint(Reading(selected=("GFP", "2")).read, path)
    assert "give each of them once" in complaint(Reading(selected=("1", "01")).read, path)
    for selected in (("a", "A"), ("a", ""), ("1", "1")):
        with pytest.raises(InputError, match="give each of them once"):
            Reading(selected=selected)


def test_names_that_do_not_tell_which_channel_are_not_used(tmp_path):
    twice, colours, mixed = (tmp_path / name for name in ("twice.ome.tif", "colours.ome.tif", "mixed.tif"))
    names = {"Channel": {"Name": ["GFP", "DAPI", "GFP"]}}
    tifffile.imwrite(twice, np.zeros((3, 9, 8), np.uint8), ome=True, metadata={"axes": "CYX", **names})
    told = complaint(Reading(selected=("gfp",)).read, twice)
    assert (
        told
        == f"{twice}: 2 channels gfp, it has channels 1 to 3 (GFP, DAPI, GFP): give the number (data.channels)"
    )
    planes = np.arange(2 * 9 * 8 * 3, dtype=np.uint8).reshape(2, 9, 8, 3)
    tifffile.imwrite(colours, planes, ome=True, metadata={"axes": "CYXS", "Channel": {"Name": ["A", "B"]}})
    assert "no channel B, it has channels 1 to 6: give" in complaint(Reading(selected=("B",)).read, colours)
    stack = Reading(selected=("6",)).read(colours)
    np.testing.assert_array_equal(stack.pages[0], planes[1, :, :, 2])
    assert stack.layout.channels == ()
    with tifffile.TiffWriter(mixed) as file:
        file.write(np.zeros((9, 8), np.uint8))
        file.write(np.zeros((9, 8, 3), np.uint8), photometric="rgb")
    with pytest.raises(InputError):
        Reading(selected=("2",), axes="ZYX").read(mixed)


def test_a_range_far_from_the_values_is_refused(deep):
    told = complaint(load_pairs, deep[0] / "a.tif", deep[1] / "a.tif", reading=Reading(range="0..255"))
    assert told.startswith(f"{deep[0] / 'a.tif'}: 89%")
    assert "of its values lie outside of data.range=0..255 (they go from " in told
    assert told.endswith("give the range of the instrument, or percentiles: 1..99")


def test_percentiles_are_those_of_all_images(deep):
    dataset = load_pairs(*deep, reading=Reading(range="percentiles: 5..95"))
    stored = [tifffile.imread(deep[0] / f"{name}.tif") for name in "ab"]
    low, high = np.percentile(stored, (5, 95))
    assert dataset.reading.limits == (low, high)
    assert dataset.reading.is_learnt
    for image, values in zip(dataset.images, stored, strict=True):
        expected = ((values - low) / (high - low)).clip(0, 1)
        np.testing.assert_allclose(image[:, :, 0], expected, atol=1e-6)


def test_percentiles_of_stacks_whose_axes_are_given(tmp_path, rng):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        pixels = rng.integers(0, 1000, (2, 3, 2, 9, 8)).astype(np.uint16)
        file.write(pixels, photometric="minisblack", metadata={"axes": "QQQYX"})
    learnt = Reading(axes="TZCYX", range="percentiles: 0..100").learn([tmp_path / "a.tif"])
    assert learnt.limits == (pixels.min(), pixels.max())


def test_percentiles_of_equal_values_are_refused(folders):
    page = np.zeros((9, 8), dtype=np.int32)
    page[0, 0] = 7
    write(folders[0] / "a.tif", page, "YX")
    write(folders[1] / "a.tif", np.eye(9, 8, dtype=np.uint8), "YX")
    reading = Reading(range="percentiles: 10..90")
    told = complaint(load_pairs, *folders, reading=reading)
    assert "are both 0" in told
    assert "are both 0" in inspect_images(*folders, reading=reading).faults[0]


def test_odd_ranges_are_refused():
    told = r"give LOW\.\.HIGH, such as 0\.\.4095, or percentiles: LOW\.\.HIGH"
    for text in ("0", "0..", "a..b", "5..5", "0..inf", "percentiles: 1", "percentiles: 9..101", "nan..1"):
        with pytest.raises(InputError, match=told):
            Reading(range=text)
    assert Reading(range="percentiles: 0..100").limits is None


def test_context_repeats_the_edges():
    layout = Layout("TZ", (2, 3))
    assert neighbours(layout, 0, 1, name="a") == [0, 0, 1]
    assert neighbours(layout, 2, 2, name="a") == [0, 1, 2, 2, 2]
    assert neighbours(layout, 3, 1, name="a") == [3, 3, 4]  # never across time
    assert neighbours(Layout(), 0, 0, name="a") == [0]


@pytest.mark.parametrize(("axes", "has"), [("YX", "it is a single plane"), ("TYX", "its axes are TYX")])
def test_context_needs_planes(tmp_path, axes, has, rng):
    write(tmp_path / "a.tif", rng.integers(0, 9, (3, 9, 8)[3 - len(axes) :]).astype(np.uint8), axes)
    [fault] = inspect_images(tmp_path, reading=Reading(context=1)).faults
    assert fault.startswith(
        f"{tmp_path / 'a.tif'}: data.context=1 needs the planes of a stack (axis Z), {has}: "
    )


def test_odd_contexts_are_refused():
    assert Reading(context=100).n_planes == 201
    for context in (-1, 101, 2.0, "1", True, None):
        with pytest.raises(InputError, match="give a whole number of planes on either side, 0 to 100"):
            Reading(context=context)


def test_planes_around_are_further_channels(folders, rng):
    volume = rng.integers(0, 255, (4, 2, 9, 8)).astype(np.uint8)
    masks = np.tile(np.eye(9, 8, dtype=np.uint8), (4, 1, 1))
    masks[[1, 3]] = 9
    write(folders[0] / "v.tif", volume, "ZCYX")
    write(folders[1] / "v.tif", masks, "ZYX")
    dataset = load_pairs(*folders, unlabelled=9, reading=Reading(context=1))
    assert dataset.stems == ["v#1", "v#3"]  # the others serve as context
    assert any("2 masks without a labelled pixel left out (v#2, v#4)" in line for line in dataset.messages)
    for image, planes in zip(dataset.images, ([0, 0, 1], [1, 2, 3]), strict=True):
        expected = np.moveaxis(volume[planes].reshape(6, 9, 8), 0, 2) / np.float32(255)
        np.testing.assert_allclose(image, expected, rtol=1e-6)


def test_masks_tell_planes_and_others_are_read_alike(folders, rng):
    volume = rng.integers(0, 255, (3, 9, 8)).astype(np.uint8)
    for folder, array in zip(folders, (volume, volume // 128), strict=True):
        folder.mkdir()
        tifffile.imwrite(folder / "v.tif", array, photometric="minisblack")
    reading = load_pairs(*folders).reading
    assert reading.unnamed == "ZYX"
    assert len(reading.read(folders[0] / "v.tif").pages) == 3


def test_inspect_tells_planes_and_names(tmp_path, rng):
    volume = rng.integers(0, 255, (4, 2, 9, 8)).astype(np.uint8)
    metadata = {"axes": "ZCYX", "Channel": {"Name": ["DAPI", "GFP"]}}
    tifffile.imwrite(tmp_path / "v.ome.tif", volume, ome=True, metadata=metadata)
    told = inspect_images(tmp_path).describe().splitlines()
    assert "  channel names   DAPI, GFP" in told
    assert "  planes          Z 4" in told
    assert "  channels        2 channels" in told
