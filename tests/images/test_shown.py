"""Files mean what viewers show: black and white, colour tables and spaces, alpha channels, offsets."""

import csv
import struct

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.images import inspect_images, read_image, read_mask, read_pages
from segkit.objects.folders import measure_folder
from tests.images.conftest import complaint, png

GREY = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
OBJECTS = np.kron(np.array([[0, 1], [0, 0]], dtype=np.uint8), np.ones((4, 4), dtype=np.uint8)) * 255
CURE = (
    "an inverting lookup table shows 255 black and 0 white, so that objects may be either: make the objects white (Fiji: "
    "Image, Lookup Tables, Invert LUT), and save it again"
)


def write(path, array, *, photometric="minisblack", metadata=None, **options):
    tifffile.imwrite(path, array, photometric=photometric, metadata=metadata, **options)
    return path


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.uint16])
@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"tile": (16, 16)}], ids=str)
def test_zero_that_is_white_is_read_as_white(tmp_path, dtype, options):
    shown = GREY > 99 if dtype is bool else GREY.astype(dtype) * (np.iinfo(dtype).max // 255)
    stored = ~shown if dtype is bool else np.iinfo(dtype).max - shown
    path = write(tmp_path / "a.tif", stored, photometric="miniswhite", **options)
    [page] = read_pages(path)
    np.testing.assert_array_equal(page, shown)
    if dtype is not np.uint16 and not options:
        np.testing.assert_array_equal(page, np.asarray(Image.open(path)))
    np.testing.assert_array_equal(read_mask(path)[0], shown)
    if "tile" in options:
        large_image = pytest.importorskip("segkit.images.large_image")
        pytest.importorskip("zarr")
        with large_image.open_large(path) as image:
            np.testing.assert_array_equal(image[0:8, 0:8], read_image(path)[0])


def test_masks_whose_zero_is_white_hold_the_objects_that_are_shown(tmp_path):
    for place in range(3):
        (tmp_path / "masks").mkdir(exist_ok=True)
        write(tmp_path / "masks" / f"{place}.tif", OBJECTS == 0, photometric="miniswhite")
        (tmp_path / "images").mkdir(exist_ok=True)
        shown = np.where(OBJECTS, 200 + place, place).astype(np.uint8)
        write(tmp_path / "images" / f"{place}.tif", 255 - shown, photometric="miniswhite")
    found = inspect_images(tmp_path / "images", tmp_path / "masks")
    assert (found.faults, found.value_counts) == ([], {0: 3 * 48, 1: 3 * 16})
    measured = measure_folder(tmp_path / "masks", tmp_path / "out", images=tmp_path / "images")
    assert [len(summary.areas) for summary in measured.images] == [1, 1, 1]
    with (tmp_path / "out" / "objects.csv").open() as file:
        rows = [
            {name: value for name, value in row.items() if "mean" in name} for row in csv.DictReader(file)
        ]
    assert [[float(value) for value in row.values()] for row in rows] == [[200], [201], [202]]


def test_booleans_saved_by_tifffile_are_not_inverted(tmp_path):
    (tmp_path / "masks").mkdir()
    (tmp_path / "images").mkdir()
    tifffile.imwrite(tmp_path / "masks" / "a.tif", OBJECTS > 0)  # marked as white is zero, whatever it holds
    write(tmp_path / "images" / "a.tif", OBJECTS)
    with pytest.warns(UserWarning, match="saved as true and false by tifffile, which marks true as black"):
        found = inspect_images(tmp_path / "images", tmp_path / "masks")
    assert found.value_counts == {0: 48, 1: 16}


def test_numbers_of_few_bits_reach_white(tmp_path):
    for bits, white in ((2, 3), (4, 15), (12, 4095)):
        values = (np.arange(64).reshape(8, 8) % (white + 1)).astype(np.uint16 if bits > 8 else np.uint8)
        values[0, 0] = white
        factor = 255 // white or 1  # Fiji shows numbers of 12 bits as they are
        for name, stored in (("minisblack", values), ("miniswhite", white - values)):
            path = write(tmp_path / "a.tif", _packed(stored, bits), photometric=name)
            with tifffile.TiffFile(path, mode="r+b") as file:
                file.pages.first.tags["ImageWidth"].overwrite(8)
                file.pages.first.tags["BitsPerSample"].overwrite(bits)
            np.testing.assert_array_equal(read_pages(path)[0], values * factor)
        if bits < 8:
            rows = [bytes([0]) + row.tobytes() for row in _packed(values, bits)]
            (tmp_path / "a.png").write_bytes(png(8, 8, b"".join(rows), bits=bits, colour=0))
            np.testing.assert_array_equal(read_pages(tmp_path / "a.png")[0], values * factor)


def _packed(values, bits):
    each = np.unpackbits(values.astype(">u2").view(np.uint8).reshape(8, 8, 2), axis=2)[..., 16 - bits :]
    return np.packbits(each.reshape(8, -1), axis=1)


def test_masks_of_fiji_with_an_inverting_table_are_asked_about(tmp_path):
    path = write(tmp_path / "a.tif", OBJECTS, photometric="miniswhite", imagej=True)
    assert complaint(read_mask, path) == f"{path}: {CURE}"
    with pytest.warns(UserWarning, match="read as it is shown, so that intensities are inverted too"):
        np.testing.assert_array_equal(read_pages(path)[0], 255 - OBJECTS)
    # numbers of objects are what they are
    path = write(tmp_path / "b.tif", GREY, photometric="miniswhite", imagej=True)
    np.testing.assert_array_equal(read_mask(path)[0], GREY)
    image = Image.fromarray(OBJECTS).convert("P")
    image.putpalette(np.repeat(np.arange(256)[::-1], 3).tolist())
    image.save(tmp_path / "c.png")
    assert complaint(read_mask, tmp_path / "c.png") == f"{tmp_path / 'c.png'}: {CURE}"


def test_a_file_that_does_not_tell_is_not_inverted(tmp_path):
    path = write(tmp_path / "a.tif", GREY)
    content = path.read_bytes()
    with tifffile.TiffFile(path) as file:
        place = file.pages.first.tags["PhotometricInterpretation"].offset
    path.write_bytes(content[:place] + struct.pack("<H", 260) + content[place + 2 :])  # another tag
    with tifffile.TiffFile(path) as file:
        assert file.pages.first.photometric == 0
    np.testing.assert_array_equal(read_pages(path)[0], GREY)


def test_values_without_a_black_are_refused(tmp_path):
    path = write(tmp_path / "a.tif", (GREY / 255).astype(np.float32), photometric="miniswhite")
    told = "0 is shown white, and values of type float32 have no black: save it with 0 as black"
    assert complaint(read_pages, path) == f"{path}: {told}"


@pytest.mark.parametrize("factor", [1, 256, 257])
def test_tables_of_8_bits_in_fields_of_16_are_colours_of_8_bits(tmp_path, factor):
    table = np.arange(768, dtype=np.uint16).reshape(3, 256) % 255
    path = write(tmp_path / "a.tif", GREY, photometric="palette", colormap=table * np.uint16(factor))
    [page] = read_pages(path)
    np.testing.assert_array_equal(page, table.T[GREY])
    assert page.dtype == np.uint8
    path = write(tmp_path / "b.tif", GREY, photometric="palette", colormap=table * 256, tile=(16, 16))
    large_image = pytest.importorskip("segkit.images.large_image")
    pytest.importorskip("zarr")
    with large_image.open_large(path) as image:
        np.testing.assert_array_equal(image[0:8, 0:8], read_image(path)[0])


def test_a_table_for_each_page_is_refused(tmp_path):
    tables = np.arange(1536, dtype=np.uint16).reshape(2, 3, 256)
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for table in tables:
            file.write(GREY, photometric="palette", colormap=table, metadata=None)
    told = "its pages differ in their colour tables: save it as RGB"
    assert complaint(read_pages, tmp_path / "a.tif", axes="ZYX") == f"{tmp_path / 'a.tif'}: {told}"
    assert len(read_mask(tmp_path / "a.tif")) == 2


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif"])
@pytest.mark.parametrize("bright", [(255, 255, 255), (255, 0, 0)])
def test_black_that_comes_last_in_a_table_is_background(tmp_path, name, bright):
    stored = (OBJECTS == 0).astype(np.uint8)
    if name == "a.tif":
        table = np.zeros((3, 256), dtype=np.uint16)
        table[:, 0] = np.multiply(bright, 257)
        write(tmp_path / name, stored, photometric="palette", colormap=table)
    else:
        image = Image.fromarray(stored).convert("P")
        image.putpalette([*bright, 0, 0, 0])
        image.save(tmp_path / name)
    np.testing.assert_array_equal(read_mask(tmp_path / name)[0], OBJECTS > 0)
    assert np.asarray(Image.open(tmp_path / name).convert("L")).max(where=OBJECTS == 0, initial=0) == 0


def test_tables_of_two_colours(tmp_path):
    path = write(tmp_path / "a.tif", OBJECTS > 0, extratags=[(320, "H", 6, (65535, 0, 0, 0, 0, 65535), True)])
    with tifffile.TiffFile(path, mode="r+b") as file:
        file.pages.first.tags["PhotometricInterpretation"].overwrite(3)
    np.testing.assert_array_equal(
        read_pages(path)[0], np.array([(255, 0, 0), (0, 0, 255)])[(OBJECTS > 0) * 1]
    )
    np.testing.assert_array_equal(read_mask(path)[0], OBJECTS > 0)


def test_cmyk_is_read_as_rgb(tmp_path):
    inks = np.stack([GREY, GREY.T, 255 - GREY, GREY // 3], axis=-1)
    shown = np.asarray(Image.fromarray(inks, mode=None if inks.shape[-1] != 4 else "CMYK").convert("RGB"))
    for array, options in ((inks, {}), (np.moveaxis(inks, -1, 0), {"planarconfig": "separate"})):
        [page] = read_pages(write(tmp_path / "a.tif", array, photometric="separated", **options))
        assert page.dtype == np.uint8
        np.testing.assert_allclose(page.astype(int), shown, atol=1)
    [page] = read_pages(write(tmp_path / "a.tif", inks * np.uint16(257), photometric="separated"))
    np.testing.assert_allclose(page / 257, shown, atol=1)


def test_other_colour_spaces_are_refused_by_name(tmp_path):
    for name, options in {"cielab": {}, "ycbcr": {"compression": "zlib"}}.items():
        path = write(tmp_path / "a.tif", np.dstack([GREY] * 3), photometric=name, **options)
        told = f"its colours are {name.upper()}, expected grey, a palette, RGB or CMYK: save it as RGB"
        assert complaint(read_pages, path) == f"{path}: {told}"
    inks = {"photometric": "separated", "extratags": [(332, "H", 1, 2, True)]}  # InkSet: not CMYK
    path = write(tmp_path / "a.tif", np.dstack([GREY] * 4), **inks)
    assert "its colours are SEPARATED" in complaint(read_pages, path)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "selection.tif", "grey.png", "palette.png"])
@pytest.mark.parametrize("colour", [0, 255])
def test_a_mask_in_the_alpha_channel_is_read(tmp_path, name, colour):
    flat = np.full_like(OBJECTS, colour)
    soft = OBJECTS.copy()
    soft[4, 4], soft[3, 3] = 200, 20  # the edge of a brush
    path = tmp_path / name
    if path.suffix == ".tif":
        kind = "unassalpha" if name == "a.tif" else "unspecified"
        write(path, np.dstack([flat] * 3 + [soft]), photometric="rgb", extrasamples=[kind])
    elif name == "palette.png":
        image = Image.fromarray((OBJECTS == 0).astype(np.uint8)).convert("P")
        image.putpalette([colour] * 6)
        image.save(path, transparency=bytes([255, 0]))
    else:
        n_colours = 1 if name == "grey.png" else 3
        Image.fromarray(np.dstack([flat] * n_colours + [soft])).save(path)
    with pytest.warns(
        UserWarning, match="the mask is its alpha channel: its colours are the same everywhere"
    ):
        [mask] = read_mask(path)
    np.testing.assert_array_equal(mask, np.where(soft > 127, 255, 0) if name != "palette.png" else OBJECTS)
    if name != "selection.tif":
        assert "the picture is in its alpha channel" in complaint(read_pages, path)


def test_masks_that_hide_values_are_refused(tmp_path):
    hidden = np.dstack([GREY, OBJECTS])
    Image.fromarray(hidden).save(tmp_path / "a.png")
    assert complaint(read_mask, tmp_path / "a.png") == (
        f"{tmp_path / 'a.png'}: 75.0% of its pixels are fully transparent and hide values above 0: save it without alpha "
        "channel (GIMP: Image, Flatten Image)"
    )
    Image.fromarray(np.dstack([np.full_like(GREY, 7), GREY])).save(tmp_path / "a.png")
    assert "the mask is its alpha channel, which is not black and white" in complaint(
        read_mask, tmp_path / "a.png"
    )
    for alpha in (OBJECTS, np.zeros_like(OBJECTS)):  # which hide nothing, or tell nothing
        Image.fromarray(np.dstack([OBJECTS, alpha])).save(tmp_path / "a.png")
        with pytest.warns(UserWarning, match="fully transparent"):
            np.testing.assert_array_equal(read_mask(tmp_path / "a.png")[0], OBJECTS)


def test_the_offset_of_fiji_is_taken_off(tmp_path):
    told = {"cf": 0, "c0": -32768.0, "c1": 1.0, "vunit": "Gray Value"}
    signed = GREY.astype(np.int16) - 100
    stored = (signed.astype(np.int32) + 32768).astype(np.uint16)
    path = write(tmp_path / "a.tif", stored, imagej=True, metadata=told)
    for read in (read_pages, read_mask):
        with pytest.warns(
            UserWarning, match="stored 32768 too high, as Fiji does with int16: read as it is shown"
        ):
            [page] = read(path)
        np.testing.assert_array_equal(page, signed)
        assert page.dtype == np.int16
    write(path, GREY, imagej=True, metadata={"cf": 0, "c0": 5.0, "c1": 0.5})
    with pytest.warns(
        UserWarning, match="Fiji shows its values calibrated; they are read as they are stored"
    ):
        np.testing.assert_array_equal(read_pages(path)[0], GREY)
