"""Which files of a folder are taken, and what is told of those that are not."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.images import inspect_images, list_images, load_pairs, read_image, read_mask
from segkit.images.matching import find_masks
from segkit.images.stems import find_images
from segkit.objects.folders import measure_folder
from segkit.segmentation.folders import jobs_of
from tests.images.conftest import MASK, NOISE, complaint, picture, save

links = pytest.mark.skipif(sys.platform == "win32", reason="links need a permission there")
GREY = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3


def names(found):
    return [path.as_posix() for path in found.paths]


@links
def test_linked_folders_are_followed_once(tmp_path):
    images, store = tmp_path / "images", tmp_path / "store"
    save(images / "plate1" / "a.png", NOISE)
    save(images / ".pool" / "d.png", NOISE)
    save(store / "b.png", NOISE)
    save(store / "sub" / "c.png", NOISE)
    for link, target in {
        images / "plate2": Path("../store"),
        images / "plate3": Path("../store"),  # a second time
        images / "again": images,
        images / "above": tmp_path,
        images / "itself": Path("itself"),
        images / "gone": Path("../gone"),
        images / "twin": Path("plate1"),
        images / "pool": Path(".pool"),
        store / "back": images,
        images / "e.png": store / "b.png",
        images / "f.png": Path("plate1/a.png"),
    }.items():
        link.symlink_to(target)
    found = find_images(images)
    linked = ["plate2/b.png", "plate2/sub/c.png", "pool/d.png"]
    assert names(found) == ["e.png", "f.png", "plate1/a.png", *linked]
    left_out, followed = found.notes
    assert left_out == (
        f"left out of {images}: 1 hidden folder (.pool), 5 links back (above, again, plate3, and 2 more), "
        "2 links to nowhere (gone, itself)"
    )
    assert followed == f"followed: 2 links out of {images} (e.png, plate2)"
    assert list_images(images) == found.paths
    (store / "back").unlink()
    only = tmp_path / "only"
    only.mkdir()
    (only / "all").symlink_to(store)
    assert names(find_images(only)) == ["all/b.png", "all/sub/c.png"]


def test_what_systems_leave_in_folders_is_not_taken(tmp_path):
    save(tmp_path / "a.png", NOISE)
    for name in (
        "@eaDir/a.png/SYNOPHOTO_THUMB_M.jpg",
        "#recycle/b.png",
        "__MACOSX/c.png",
        "._a.png",
        ".d.png.icloud",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"any")
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store", "a.png:Zone.Identifier"):
        if ":" not in name or sys.platform != "win32":
            (tmp_path / name).write_bytes(b"any")
    found = find_images(tmp_path)
    assert names(found) == ["a.png"]
    assert found.notes == [
        f"left out of {tmp_path}: 3 folders of the system (#recycle, @eaDir, __MACOSX), 2 hidden images (._a.png, "
        ".d.png.icloud)"
    ]


def test_all_that_is_left_out_is_counted_in_one_line(tmp_path):
    for name in ("a.png", "a_mask.png", "b.tif", "c.svs", "d.txt", "e.TXT", "README", "f.zarr/0/0"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"any")
    found = find_images(tmp_path)
    assert names(found) == ["a.png", "b.tif"]
    start = f"left out of {tmp_path}: 1 mask beside the images (a_mask.png), "
    assert found.notes == [f"{start}5 files of another type (README, .svs, .txt, and 1 more)"]
    assert names(find_images(tmp_path, with_slides=True)) == ["a.png", "b.tif", "c.svs", "f.zarr"]
    assert find_images(tmp_path, with_slides=True).notes == [f"{start}3 files of another type (README, .txt)"]
    assert find_images(tmp_path / "a_mask.png").notes == []  # it was given


@pytest.mark.parametrize(
    "name", ["a.jpe", "a.jfif", "a.gif", "a.webp", "a.dib", "a.btf", "a.tf8", "a.lsm", "a.stk", "a.pgm"]
)
def test_every_suffix_is_read_that_a_library_reads(tmp_path, name):
    path = tmp_path / "images" / name
    path.parent.mkdir()
    if name in ("a.btf", "a.tf8", "a.lsm", "a.stk"):
        tifffile.imwrite(path, GREY, bigtiff=name in ("a.btf", "a.tf8"))
    elif name == "a.webp":
        Image.fromarray(GREY).save(path, lossless=True)
    else:
        Image.fromarray(GREY).save(
            path, {"a.jpe": "JPEG", "a.jfif": "JPEG", "a.dib": "BMP", "a.pgm": "PPM"}.get(name)
        )
    assert list_images(path.parent) == [Path(name)]
    [image] = read_image(path)
    np.testing.assert_allclose(image[:, :, 0] * 255, GREY, atol=8 if "j" in name else 1e-4)
    if "j" not in name:
        np.testing.assert_array_equal(read_mask(path)[0], GREY)


def test_lossy_masks_are_black_and_white(tmp_path):
    y, x = np.indices((64, 64)) - 32
    truth = np.where(y**2 + x**2 < 400, 255, 0).astype(np.uint8)
    Image.fromarray(truth).save(tmp_path / "a.webp", quality=50)
    with pytest.warns(
        UserWarning, match=r"greys of a WebP mask thresholded to 0 and 255: save masks as PNG$"
    ):
        np.testing.assert_array_equal(read_mask(tmp_path / "a.webp")[0], truth)
    Image.fromarray(truth // 255).save(tmp_path / "a.webp", quality=50)
    assert "WebP mask with values from 0 to" in complaint(read_mask, tmp_path / "a.webp")
    (tmp_path / "a.ppm").write_bytes(b"P6\n1 1\n65535\n" + bytes(6))
    assert "16-bit PPM with colour or alpha" in complaint(read_image, tmp_path / "a.ppm")


def test_every_command_tells_what_is_left_out(tmp_path):
    images, masks = tmp_path / "images", tmp_path / "masks"
    for stem in ("a", "b"):
        save(images / f"{stem}.png", picture(stem))
        save(images / f"{stem}_mask.png", MASK)
        save(masks / f"{stem}.png", MASK)
    (images / "c.heic").write_bytes(b"any")
    (masks / "notes.txt").write_bytes(b"any")
    beside = "2 masks beside the images (a_mask.png, b_mask.png), "
    of_images = f"left out of {images}: {beside}1 file of another type (.heic)"
    of_masks = f"left out of {masks}: 1 file of another type (.txt)"
    dataset = load_pairs(images, masks)
    assert dataset.stems == ["a", "b"]
    assert dataset.messages[:2] == [of_images, of_masks]
    assert of_images in inspect_images(images).messages
    assert {of_images, of_masks} <= set(inspect_images(images, masks).messages)
    jobs, found = jobs_of(None, images)
    assert ([job.name for job in jobs], found.notes) == (["a.png", "b.png"], [of_images])
    measured = measure_folder(masks, tmp_path / "out", images=images)
    assert {of_images, of_masks} <= set(measured.messages)
    # the masks beside are used
    assert load_pairs(images, images).messages[0] == f"left out of {images}: 1 file of another type (.heic)"
    assert measure_folder(images, tmp_path / "own", images=images).messages[1] == (
        f"left out of {images}: 1 file of another type (.heic)"
    )
    assert find_masks(masks).notes == [of_masks]
