"""Axes of stacks: read from metadata, given, told by masks, or asked for."""

import numpy as np
import pytest
import tifffile

from segkit.errors import InputError
from segkit.images import Reading, load_pairs, read_image, read_mask, read_pages
from segkit.images.axes import check_axes
from segkit.images.read import count_pages, read_stack
from tests.images.conftest import complaint


@pytest.fixture
def unnamed(tmp_path, rng):
    """Five pages that nobody named."""
    path = tmp_path / "five.tif"
    array = rng.integers(0, 255, (5, 6, 7)).astype(np.uint8)
    tifffile.imwrite(path, array, photometric="minisblack")
    return path, array


def test_pages_without_names_are_asked_for(unnamed):
    path, array = unnamed
    told = (
        f"{path}: 5 x 6 x 7 pixels, and the file does not say what its axes are: give --set data.axes=ZYX (planes) "
        f"or CYX (channels)"
    )
    for read in (read_pages, read_image, count_pages):
        assert complaint(read, path) == told
    np.testing.assert_array_equal(np.stack(read_mask(path)), array)  # a mask has no channels


@pytest.mark.parametrize("metadata", [None, {}])
def test_given_axes_name_them(tmp_path, metadata, rng):
    array = rng.integers(0, 255, (5, 6, 7)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="minisblack", metadata=metadata)
    [page] = read_pages(tmp_path / "a.tif", axes="CYX")
    np.testing.assert_array_equal(page, np.moveaxis(array, 0, 2))
    np.testing.assert_array_equal(read_pages(tmp_path / "a.tif", axes="ZYX"), array)
    np.testing.assert_array_equal(read_pages(tmp_path / "a.tif", n_masks=5), array)
    # one mask: channels, or one annotated plane
    assert "does not say" in complaint(read_pages, tmp_path / "a.tif", n_masks=1)
    assert count_pages(tmp_path / "a.tif", axes="CYX") == 1


def test_channels_may_come_last(tmp_path, rng):
    array = rng.integers(0, 255, (4, 6, 7, 5)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="minisblack")
    stack = read_stack(tmp_path / "a.tif", axes="ZYXC")
    assert (stack.layout.axes, stack.layout.shape) == ("Z", (4,))
    np.testing.assert_array_equal(np.stack(stack.pages), array)


def test_axes_of_length_one_may_be_named(tmp_path, rng):
    array = rng.integers(0, 255, (1, 4, 6, 7)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="minisblack")
    assert read_stack(tmp_path / "a.tif", axes="TZYX").layout.shape == (1, 4)
    tifffile.imwrite(tmp_path / "b.ome.tif", array, ome=True, metadata={"axes": "TZYX"})
    assert read_stack(tmp_path / "b.ome.tif", axes="CZYX").layout.axes == "Z"
    tifffile.imwrite(tmp_path / "c.tif", array[:, 0], photometric="minisblack")
    assert read_stack(tmp_path / "c.tif").layout.n_pages == 1  # nothing to ask about


def test_given_axes_win_over_metadata(tmp_path, rng):
    array = rng.integers(0, 255, (3, 6, 7)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", array, imagej=True, metadata={"axes": "TYX"})
    assert read_stack(tmp_path / "a.tif").layout.axes == "T"
    assert read_stack(tmp_path / "a.tif", axes="ZYX").layout.axes == "Z"
    [page] = read_pages(tmp_path / "a.tif", axes="CYX")
    assert page.shape == (6, 7, 3)


def test_given_axes_leave_single_planes_and_colours_alone(tmp_path, rng):
    colours = rng.integers(0, 255, (6, 7, 3)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "rgb.tif", colours, photometric="rgb")
    tifffile.imwrite(tmp_path / "grey.tif", colours[:, :, 0])
    np.testing.assert_array_equal(read_pages(tmp_path / "rgb.tif", axes="ZYX")[0], colours)
    assert read_pages(tmp_path / "grey.tif", axes="ZYX")[0].shape == (6, 7)


def test_pages_of_colours_are_planes(tmp_path, rng):
    colours = rng.integers(0, 255, (4, 6, 7, 3)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", colours, photometric="rgb")
    np.testing.assert_array_equal(np.stack(read_pages(tmp_path / "a.tif")), colours)


def test_a_wrong_number_of_axes_is_refused(tmp_path, rng):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, rng.integers(0, 255, (2, 3, 6, 7)).astype(np.uint8), photometric="minisblack")
    assert complaint(read_pages, path, axes="CYX") == (
        f"{path}: 4 axes (2 x 3 x 6 x 7) without names, data.axes=CYX names 3: give a letter for each axis, "
        "TZYX (planes) or ZCYX (channels)"
    )


def test_odd_axes_are_refused():
    reasons = {"QYX": "unknown letter Q", "ZZYX": "Z comes twice", "ZY": "X is missing", "": "Y is missing"}
    for axes, reason in reasons.items():
        with pytest.raises(InputError, match=f"^axes {axes}: {reason}.*: give a letter for each axis"):
            check_axes(axes)
    # an image would be turned, and a mask drawn in a viewer would not
    with pytest.raises(InputError, match=r"axes ZXY: X comes before Y.*: if the file shows right .*swapaxes"):
        check_axes("ZXY")


def test_names_of_channels_are_kept(tmp_path, rng):
    array = rng.integers(0, 255, (2, 3, 6, 7)).astype(np.uint8)
    names = ["DAPI", "GFP", "actin"]
    metadata = {"axes": "ZCYX", "Channel": {"Name": names}}
    tifffile.imwrite(tmp_path / "a.ome.tif", array, ome=True, metadata=metadata)
    assert read_stack(tmp_path / "a.ome.tif").layout.channels == tuple(names)
    labels = [f"c:{c + 1}/3 z:{z + 1}/2 - {names[c]}" for z in range(2) for c in range(3)]
    tifffile.imwrite(tmp_path / "b.tif", array, imagej=True, metadata={"axes": "ZCYX", "Labels": labels})
    assert read_stack(tmp_path / "b.tif").layout.channels == tuple(names)
    tifffile.imwrite(tmp_path / "c.tif", array, imagej=True, metadata={"axes": "ZCYX"})
    assert read_stack(tmp_path / "c.tif").layout.channels == ()


def test_pages_have_one_order_whatever_the_file_has(tmp_path, rng):
    """ImageJ saves TZYX what OME stores as ZTYX: pages of an image and of its mask belong together by name."""
    array = rng.integers(0, 255, (3, 2, 6, 7)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "zt.ome.tif", array, ome=True, metadata={"axes": "ZTYX"})
    tifffile.imwrite(tmp_path / "tz.tif", array.swapaxes(0, 1), imagej=True, metadata={"axes": "TZYX"})
    stack = read_stack(tmp_path / "zt.ome.tif")
    assert (stack.layout.axes, stack.layout.shape) == ("TZ", (2, 3))
    np.testing.assert_array_equal(stack.pages, read_mask(tmp_path / "tz.tif"))


@pytest.mark.parametrize("axes", ["YXZ", "YXZC"])
def test_given_axes_count_for_masks_without_channels(folders, axes, rng):
    volume = rng.integers(0, 255, (3, 6, 7)).astype(np.uint8)
    stored = volume.transpose(1, 2, 0)
    image = stored[..., None].repeat(2, axis=3) if "C" in axes else stored
    for folder, array in zip(folders, (image, stored // 128), strict=True):
        folder.mkdir()
        tifffile.imwrite(folder / "a.tif", array, photometric="minisblack")
    dataset = load_pairs(*folders, reading=Reading(axes=axes))
    np.testing.assert_array_equal(dataset.masks, volume // 128)


def test_two_axes_of_pages_without_names_are_never_guessed(folders, rng):
    """A mask stored as depth, time would lie on wrong planes if it were read as time, depth: the pages are as many."""
    array = rng.integers(0, 255, (3, 2, 8, 9)).astype(np.uint8)
    for folder in folders:
        folder.mkdir()
    tifffile.imwrite(folders[0] / "a.tif", array, ome=True, metadata={"axes": "ZTYX"})
    tifffile.imwrite(folders[1] / "a.tif", (array > 99).astype(np.uint8), photometric="minisblack")
    with pytest.raises(InputError, match=r"masks/a\.tif: .* which axis is time and which is depth"):
        load_pairs(*folders)
    data = load_pairs(*folders, reading=Reading(axes="ZTYX"))
    for image, mask in zip(data.images, data.masks, strict=True):
        np.testing.assert_array_equal(mask, image[:, :, 0] > 99.5 / 255)
    assert "what its axes are" in complaint(read_pages, folders[1] / "a.tif", n_masks=6)


@pytest.mark.parametrize(
    ("shape", "cure"),
    [
        ((9, 8, 2), "YXC (channels last)"),
        ((9, 8, 5), "YXC (channels last), ZYX (planes) or CYX (channels)"),
        ((3, 9, 8, 2), "ZYXC (channels last)"),
        ((9, 8, 8), "ZYX (planes) or CYX (channels)"),
        ((3, 9, 8, 6), "ZYXC (channels last), TZYX (planes) or ZCYX (channels)"),
    ],
)
def test_the_axes_that_are_offered_can_be_right(tmp_path, rng, shape, cure):
    path = tmp_path / "a.tif"
    array = rng.integers(0, 255, shape).astype(np.uint8)
    tifffile.imwrite(path, array, photometric="minisblack")
    told = complaint(read_pages, path)
    assert told.endswith(f"does not say what its axes are: give --set data.axes={cure}")
    wrong = "PTZCYX"[-len(shape) - 1 :]
    assert complaint(read_pages, path, axes=wrong).endswith(f"give a letter for each axis, {cure}")
    pages = read_pages(path, axes=cure.split()[0])
    if "channels last" in cure:
        np.testing.assert_array_equal(np.stack(pages), array if len(shape) == 4 else array[None])
