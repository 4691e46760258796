"""Every format comes back as it was written, and every bad file says what is wrong with it."""

import re

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.images import IMAGE_EXTENSIONS, check_image, read_image, read_mask, read_pages, to_float
from segkit.images.read import count_pages
from tests.images.conftest import complaint, png, save

GREY = np.arange(30, dtype=np.uint8).reshape(5, 6) * 8
RGB = np.stack([GREY, GREY[::-1], 255 - GREY], axis=2)


def test_lossless_formats_round_trip(tmp_path):
    for name, pixels in {"a.PNG": GREY, "a.bmp": GREY, "a.tif": RGB, "a.TIFF": GREY, "lzw.tif": RGB}.items():
        options = {"compression": "tiff_lzw"} if name == "lzw.tif" else {}
        (page,) = read_pages(save(tmp_path / name, pixels, **options))
        np.testing.assert_array_equal(page, pixels)
        assert page.dtype == np.uint8


def test_jpeg_is_close(tmp_path):
    smooth = np.add.outer(np.arange(32), np.arange(32)).astype(np.uint8)
    (page,) = read_pages(save(tmp_path / "a.jpg", smooth, quality=95))
    assert np.abs(page.astype(int) - smooth).max() <= 3


def test_16_bit_grey_is_kept(tmp_path):
    pixels = GREY.astype(np.uint16) * 257 + 3
    (page,) = read_pages(save(tmp_path / "a.png", pixels))
    np.testing.assert_array_equal(page, pixels)
    (image,) = read_image(tmp_path / "a.png")
    assert image.shape == (5, 6, 1)
    np.testing.assert_allclose(image[:, :, 0], pixels / 65535, rtol=1e-6)


def test_1_bit_png_is_bool(tmp_path):
    pixels = GREY > 100
    (page,) = read_pages(save(tmp_path / "a.png", pixels))
    np.testing.assert_array_equal(page, pixels)
    (mask,) = read_mask(tmp_path / "a.png")
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, pixels)


def test_palettes_give_colours_to_images_and_indices_to_masks(tmp_path):
    indices = GREY // 8 % 3
    image = Image.fromarray(indices, mode=None).convert("P")
    image.putpalette([0, 0, 0, 200, 10, 20, 30, 40, 250])
    image.save(tmp_path / "a.png")
    colours = np.array([(0, 0, 0), (200, 10, 20), (30, 40, 250)], dtype=np.uint8)
    np.testing.assert_array_equal(read_pages(tmp_path / "a.png")[0], colours[indices])
    np.testing.assert_array_equal(read_mask(tmp_path / "a.png")[0], indices)
    colours = np.zeros((3, 256), dtype=np.uint16)
    colours[:, 1], colours[:, 2] = (65535, 0, 300), (7, 8, 9)
    tifffile.imwrite(tmp_path / "a.tif", indices, photometric="palette", colormap=colours)
    np.testing.assert_array_equal(read_pages(tmp_path / "a.tif")[0], colours.T[indices])
    np.testing.assert_array_equal(read_mask(tmp_path / "a.tif")[0], indices)


def test_alpha_is_dropped(tmp_path):
    for name in ("a.png", "a.tif"):
        save(tmp_path / name, np.dstack([RGB, GREY + 1]))
        np.testing.assert_array_equal(read_pages(tmp_path / name)[0], RGB)
    Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(255 - GREY)]).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_pages(tmp_path / "a.png")[0], GREY)


def test_a_fourth_channel_that_is_no_alpha_is_kept(tmp_path):
    pixels = np.dstack([RGB, GREY])
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", extrasamples=["unspecified"])
    np.testing.assert_array_equal(read_pages(tmp_path / "a.tif")[0], pixels)


@pytest.mark.parametrize(
    ("axes", "options"),
    [
        ("CYX", {"ome": True}),
        ("ZCYX", {"ome": True}),
        ("TZYX", {"ome": True}),
        ("ZCYX", {"imagej": True}),
        ("TCYX", {"imagej": True}),
    ],
)
def test_tiff_axes_come_from_metadata(tmp_path, axes, options, rng):
    # sizes that a guess would get wrong: a plane as wide as an RGB pixel is deep, as many pages as channels
    lengths = {"T": 3, "Z": 4, "C": 3, "Y": 7, "X": 3}
    array = rng.integers(0, 9999, [lengths[axis] for axis in axes]).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="minisblack", metadata={"axes": axes}, **options)
    channels_last = np.moveaxis(array, axes.index("C"), -1) if "C" in axes else array
    expected = channels_last.reshape(-1, *channels_last.shape[-3 if "C" in axes else -2 :])
    pages = read_pages(tmp_path / "a.tif")
    assert len(pages) == len(expected)
    np.testing.assert_array_equal(np.stack(pages), expected)


def test_plain_multi_page_tiff_of_unlike_pages(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(GREY, photometric="minisblack", metadata=None)
        file.write(RGB[:4], photometric="rgb", metadata=None)
    first, second = read_pages(tmp_path / "a.tif")
    np.testing.assert_array_equal(first, GREY)
    np.testing.assert_array_equal(second, RGB[:4])


def test_to_float_scales_by_dtype():
    ends = [0.0, 1.0]
    for array in ([False, True], np.uint8([0, 255]), np.uint16([0, 65535]), np.float64([0, 1])):
        scaled = to_float(array)
        assert scaled.dtype == np.float32
        np.testing.assert_array_equal(scaled, ends)


def test_to_float_leaves_its_input_alone():
    array = np.array([0.0, 0.5], dtype=np.float32)
    to_float(array)[0] = 1
    assert array[0] == 0


def test_to_float_refuses_what_has_no_range():
    assert complaint(to_float, np.array([0, 300]), name="a.tif") == (
        "a.tif: pixels are int64, expected bool, uint8, uint16 or floats in [0, 1]: "
        "convert it to one of these, or train with the range of its values (--set data.range=0..4095)"
    )
    assert complaint(to_float, np.array([-1.0, 3.5])) == (
        "image: float pixels range from -1 to 3.5, expected [0, 1]: "
        "divide by the largest value the instrument can give, the same for every image, or train with the range of "
        "values (--set data.range=0..4095)"
    )
    assert complaint(to_float, np.array([0.5, np.nan, np.inf])) == (
        "image: 2 of 3 values are NaN or infinite: mend it or leave it out"
    )


def test_check_image():
    check_image(GREY / 255)
    assert complaint(check_image, np.full((4, 5), 0.25), name="a.png") == (
        "a.png: every pixel is 0.25: leave out this blank image"
    )
    assert complaint(check_image, np.zeros((0, 4))) == "image: holds no pixels: leave it out"
    assert complaint(check_image, np.diag([0, 1, 2, np.nan])) == (
        "image: 1 of 16 values are NaN or infinite: mend it or leave it out"
    )


@pytest.mark.parametrize("shape", [(3, 4), (4000, 3, 3)])
def test_images_too_small_to_learn_from_are_refused(shape):
    check_image(np.arange(16).reshape(4, 4))
    assert complaint(check_image, np.random.default_rng(0).random(shape), name="a.png") == (
        f"a.png: {shape[0]} x {shape[1]} pixels, expected 4 x 4 or more, so that pixels have neighbours: leave it out, "
        "or crop it less tightly"
    )


def test_mask_with_equal_channels_is_one(tmp_path):
    save(tmp_path / "a.png", np.dstack([GREY] * 3))
    np.testing.assert_array_equal(read_mask(tmp_path / "a.png")[0], GREY)


def test_mask_of_whole_floats(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.array([[0, 2], [1, 7]], dtype=np.float32))
    (mask,) = read_mask(tmp_path / "a.tif")
    assert mask.dtype.kind == "i"
    np.testing.assert_array_equal(mask, [[0, 2], [1, 7]])


def test_masks_that_are_none(tmp_path):
    path = save(tmp_path / "a.png", RGB)
    assert complaint(read_mask, path) == (
        f"{path}: coloured mask with 3 channels, expected one value per pixel: "
        f"save it as a grey or palette image, one number for each class (or is this the image, and the folders "
        f"are swapped?)"
    )
    path = tmp_path / "b.tif"
    tifffile.imwrite(path, np.array([[0, 0.5]], dtype=np.float32))
    assert complaint(read_mask, path) == (
        f"{path}: mask values are fractions between 0 and 0.5, expected whole numbers: "
        f"threshold it and save it again"
    )


def test_jpeg_mask_is_thresholded_and_says_so(tmp_path):
    truth = np.zeros((64, 64), dtype=np.uint8)
    truth[16:48, 20:41] = 255
    path = save(tmp_path / "a.jpg", truth, quality=80)
    assert np.unique(read_pages(path)[0]).size > 2
    with pytest.warns(
        UserWarning, match=r"a\.jpg: greys of a JPEG mask thresholded to 0 and 255: save masks as PNG$"
    ):
        (mask,) = read_mask(path)
    np.testing.assert_array_equal(mask, truth)


def test_empty_jpeg_mask_needs_no_warning(tmp_path):
    (mask,) = read_mask(save(tmp_path / "a.jpg", np.zeros((16, 16), dtype=np.uint8)))
    assert not mask.any()


@pytest.mark.parametrize("values", [(0, 1), (0, 128, 255)], ids=["class ids", "three greys"])
def test_jpeg_mask_of_class_ids_is_refused(tmp_path, values):
    pixels = np.repeat(np.array(values, dtype=np.uint8), 16)[None].repeat(16, axis=0)
    path = save(tmp_path / "a.jpg", pixels, quality=100)
    assert re.fullmatch(
        re.escape(str(path)) + r": JPEG mask with values from 0 to \d+ that are not black and white, "
        r"and JPEG changes values: save it as PNG from its source",
        complaint(read_mask, path),
    )


def test_missing_unsupported_and_empty_files(tmp_path):
    path = tmp_path / "a.png"
    assert complaint(read_pages, path) == f"{path}: no such file: check its name and folder"
    path.touch()
    assert complaint(read_pages, path) == f"{path}: the file is empty: copy or export it again"
    path = tmp_path / "a.heic"
    assert complaint(read_pages, path) == (
        f"{path}: unsupported extension '.heic', expected one of {', '.join(IMAGE_EXTENSIONS)}: "
        f"save it as PNG or TIFF"
    )


@pytest.mark.parametrize(
    ("extension", "share"), [(".png", 0.9), (".jpg", 0.9), (".bmp", 0.9), (".tif", 0.9), (".tif", 0.02)]
)
def test_truncated_files(tmp_path, extension, share, rng):
    path = save(tmp_path / f"a{extension}", rng.integers(0, 255, (64, 64, 3)).astype(np.uint8))
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    message = complaint(read_pages, path)
    assert message.startswith(f"{path}: cannot be decoded (")
    assert message.endswith("): copy or export it again")
    assert "\n" not in message


@pytest.mark.parametrize(("compression", "share"), [(None, 0.6), ("zlib", 0.95)])
def test_truncated_stack_does_not_pass_for_a_short_one(tmp_path, compression, share, rng):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path,
        rng.integers(0, 255, (3, 64, 64)).astype(np.uint8),
        photometric="minisblack",
        compression=compression,
        metadata={"axes": "ZYX"},
    )
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert complaint(read_pages, path).startswith(f"{path}: cannot be decoded (")


def test_16_bit_colour_png_is_refused_rather_than_halved(tmp_path):
    rows = b"".join(b"\0" + row.tobytes() for row in np.arange(36, dtype=">u2").reshape(3, 4, 3))
    path = tmp_path / "a.png"
    path.write_bytes(png(4, 3, rows, bits=16, colour=2))
    assert complaint(read_pages, path) == (
        f"{path}: 16-bit PNG with colour or alpha, whose lower 8 bits would be lost: save it as TIFF"
    )


def test_more_pixels_than_pillow_takes_are_read(tmp_path, monkeypatch):
    """A slide of 20,000 x 20,000 is beyond Pillow's limit; segkit looks at the bytes of the file instead."""
    path = save(tmp_path / "a.png", GREY)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    np.testing.assert_array_equal(read_pages(path)[0], GREY)


@pytest.mark.parametrize(("shape", "axes"), [((5, 6, 3), "YXS"), ((2, 3, 4, 5, 6), "TZCYX")])
def test_pages_are_counted_from_the_header(tmp_path, shape, axes):
    path = tmp_path / "a.tif"
    options = {"photometric": "rgb"} if "S" in axes else {"photometric": "minisblack"}
    tifffile.imwrite(path, np.zeros(shape, dtype=np.uint8), metadata={"axes": axes}, **options)
    assert count_pages(path) == len(read_pages(path))
    Image.fromarray(np.zeros((5, 6), dtype=np.uint8)).save(tmp_path / "a.png")
    assert count_pages(tmp_path / "a.png") == 1
    path.write_bytes(b"II*")
    assert "cannot be decoded" in complaint(count_pages, path)
