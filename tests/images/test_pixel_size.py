"""The size of a pixel, read from what microscopes and ImageJ write, and written so that both read it."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.errors import InputError
from segkit.images import (
    PixelSize,
    read_mask,
    read_pages,
    read_pixel_size,
    write_labels,
    write_mask,
    write_probability,
)
from segkit.images.pixel_size import (
    FoundSize,
    check_pixel_size,
    describe_sizes,
    find_pixel_size,
    read_number,
    read_z_step,
)

PAGE = np.zeros((5, 7), dtype=np.uint8)
SIZE = PixelSize(0.65, 0.325)


def save(path, page=PAGE, **options):
    tifffile.imwrite(path, page, **options)
    return path


UNITS = {"microns": 1, "\\u00B5m": 1, "Micrometer": 1, "nm": 1e-3, "mm": 1e3}


def test_units_of_imagej(tmp_path):
    for unit, factor in UNITS.items():
        resolution = (1 / 0.325, 1 / 0.65)
        path = save(tmp_path / "a.tif", imagej=True, resolution=resolution, metadata={"unit": unit})
        assert read_pixel_size(path) == pytest.approx((0.65 * factor, 0.325 * factor), rel=1e-5)
    for metadata in ({"unit": "pixel"}, {}, {"unit": "furlong"}):
        path = save(tmp_path / "a.tif", imagej=True, resolution=(2, 2), metadata=metadata)
        assert read_pixel_size(path) is None


@pytest.mark.parametrize(
    ("unit", "per_unit"),
    [("inch", 72), ("inches", 100), ("cm", 28), ("micron", 1 / 352.777), ("um", 1 / 254)],
)
def test_print_resolutions_of_imagej(tmp_path, unit, per_unit):
    """ImageJ keeps the resolution of a file in inches or centimetres, its Bio-Formats importer in micrometres."""
    path = save(tmp_path / "a.tif", imagej=True, resolution=(per_unit, per_unit), metadata={"unit": unit})
    assert read_pixel_size(path) is None
    assert read_pixel_size(save(tmp_path / "a.tif", resolution=(1, 1), imagej=True)) is None


def test_scales_set_in_imagej(tmp_path):
    for unit, length in (("mm", 81.03), ("um", 100), ("um", 16.25)):
        factor = UNITS.get(unit, 1)
        options = {"resolution": (factor / length, factor / length), "metadata": {"unit": unit}}
        assert read_pixel_size(save(tmp_path / "a.tif", imagej=True, **options)) == pytest.approx(
            (length, length)
        )


@pytest.mark.parametrize(("unit", "factor"), [("nm", 1e-3), (None, 1)])
def test_ome(tmp_path, unit, factor):
    metadata = {"axes": "YX", "PhysicalSizeX": 0.325, "PhysicalSizeY": 0.65}
    if unit is not None:
        metadata |= {"PhysicalSizeXUnit": unit, "PhysicalSizeYUnit": unit}
    path = save(tmp_path / "a.ome.tif", metadata=metadata)
    assert read_pixel_size(path) == pytest.approx((0.65 * factor, 0.325 * factor), rel=1e-5)
    assert read_pixel_size(save(tmp_path / "b.ome.tif", metadata={"axes": "YX"})) is None


@pytest.mark.parametrize(("unit", "length"), [("CENTIMETER", 1e4), ("INCH", 25_400)])
def test_plain_tiff(tmp_path, unit, length):
    resolution = (length / 0.325, length / 0.65)
    path = save(tmp_path / "a.tif", resolution=resolution, resolutionunit=unit)
    assert read_pixel_size(path) == pytest.approx(SIZE, rel=1e-5)
    assert read_pixel_size(save(tmp_path / "b.tif", resolution=resolution, resolutionunit="NONE")) is None
    assert read_pixel_size(save(tmp_path / "c.tif", resolution=(0, 0), resolutionunit=unit)) is None


@pytest.mark.parametrize(
    "dots", [28, 72, 96, 100, 144, 150, 200, 220, 240, 266, 300, 600, 1200, 2400, 4800, 9600]
)
def test_print_resolutions_say_nothing(tmp_path, dots):
    for unit, number in (("INCH", dots), ("CENTIMETER", round(dots / 2.54, 1)), ("CENTIMETER", dots)):
        path = save(tmp_path / "a.tif", resolution=(number, number), resolutionunit=unit)
        assert number == dots > 3000 or read_pixel_size(path) is None
    length = 25_400 / dots
    if dots < 9600:
        metadata = {"axes": "YX", "PhysicalSizeX": length, "PhysicalSizeY": length}
        assert read_pixel_size(save(tmp_path / "a.ome.tif", metadata=metadata)) is None
    if dots >= 72:
        Image.fromarray(PAGE).save(tmp_path / "a.png", dpi=(dots, dots))
        assert read_pixel_size(tmp_path / "a.png") is None


@pytest.mark.parametrize("length", [0.2, 3.25, 6.5, 10, 12.9, 16.25, 50, 100, 250])
def test_large_pixels_of_microscopes(tmp_path, length):
    metadata = {"axes": "YX", "PhysicalSizeX": length, "PhysicalSizeY": length}
    path = save(tmp_path / "a.ome.tif", metadata=metadata)
    assert find_pixel_size(path) == FoundSize((length, length), "OME metadata")


@pytest.mark.parametrize(("stored", "number"), [("0,325", 0.325), ("12,5", 12.5), (" 0.65 ", 0.65), (2, 2)])
def test_decimal_commas(tmp_path, stored, number):
    metadata = {"axes": "YX", "PhysicalSizeX": stored, "PhysicalSizeY": stored}
    assert read_pixel_size(save(tmp_path / "a.ome.tif", metadata=metadata)) == (number, number)


@pytest.mark.parametrize("stored", ["1,234", "1.234,5", "1,234.5", "x", None, True, "nan"])
def test_what_is_no_number_or_may_be_two(stored):
    assert read_number(stored) is None


def test_steps_with_a_decimal_comma(tmp_path):
    description = "ImageJ=1.54f\nimages=2\nslices=2\nunit=micron\nspacing=0,5\n"
    path = save(
        tmp_path / "a.tif", np.zeros((2, 5, 7), dtype=np.uint8), description=description, metadata=None
    )
    assert read_z_step(path) == 0.5


def test_sizes_are_told_with_their_source():
    same, other = FoundSize((0.5, 0.5), "OME metadata"), FoundSize((0.65, 0.325), "ImageJ metadata")
    assert describe_sizes([FoundSize(), same, same]) == ["pixel size 0.5 µm, from OME metadata"]
    assert describe_sizes([same, same, other]) == [
        "pixel sizes: 0.5 µm, from OME metadata (2); 0.65 x 0.325 µm, from ImageJ metadata (1)"
    ]
    assert describe_sizes([FoundSize()]) == []


def test_files_that_say_nothing(tmp_path):
    for name in ("a.png", "a.jpg", "a.bmp", "a.tif"):
        Image.fromarray(PAGE).save(tmp_path / name)
        assert read_pixel_size(tmp_path / name) is None


def test_files_that_cannot_be_read(tmp_path):
    for name, told in (("a.tif", "cannot be decoded"), ("b.png", "no such file"), ("a.txt", "unsupported")):
        if name != "b.png":
            (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(InputError, match=told):
            read_pixel_size(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [("a.png", (5, 7), np.uint8), ("a.tif", (3, 5, 7), np.uint16), ("a.tif", (4, 5, 7), np.int64)],
)
def test_masks_carry_it(tmp_path, name, shape, dtype, rng):
    mask = rng.integers(0, 99, shape).astype(dtype)
    for size in (PixelSize(352.7, 254.0), SIZE):
        write_mask(tmp_path / name, mask, pixel_size=size)
        assert read_pixel_size(tmp_path / name) == pytest.approx(size, rel=1e-4)
    back = read_mask(tmp_path / name)
    assert back[0].dtype == dtype
    np.testing.assert_array_equal(np.stack(back), mask.reshape(-1, 5, 7))


@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 5, 7)])
def test_probabilities_carry_it(tmp_path, shape, rng):
    probability = rng.uniform(size=shape).astype(np.float32)
    write_probability(tmp_path / "a.tif", probability, pixel_size=SIZE)
    assert read_pixel_size(tmp_path / "a.tif") == pytest.approx(SIZE, rel=1e-5)
    np.testing.assert_array_equal(np.stack(read_pages(tmp_path / "a.tif")), probability.reshape(-1, 5, 7))
    assert tifffile.imread(tmp_path / "a.tif").shape == shape


def test_label_images_carry_it_as_imagej_does(tmp_path):
    write_labels(tmp_path / "a.tif", np.arange(35).reshape(5, 7), SIZE)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert file.imagej_metadata["unit"] == "um"
    assert read_pixel_size(tmp_path / "a.tif") == pytest.approx(SIZE, rel=1e-5)
    write_labels(tmp_path / "b.tif", np.arange(70_000).reshape(250, 280), SIZE)
    assert read_pixel_size(tmp_path / "b.tif") == pytest.approx(SIZE, rel=1e-5)


def test_sizes_that_are_none(tmp_path):
    for size in ((0, 1), (1, -1), (1, float("nan")), (1, float("inf"))):
        for name in ("a.png", "a.tif"):
            with pytest.raises(InputError, match="expected micrometres, "):
                write_mask(tmp_path / name, PAGE, pixel_size=PixelSize(*size))
    assert list(tmp_path.iterdir()) == []


def test_true_is_no_size():
    with pytest.raises(InputError, match=r"^pixel size True is no number: give micrometres"):
        check_pixel_size(True)
