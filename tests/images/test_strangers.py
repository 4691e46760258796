"""Image files from strangers: each is read, with a note of what is not, or refused in one line that names the file."""

import io
import logging
import os
import re
import struct
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.cli import commands as cli
from segkit.errors import InputError
from segkit.images import (
    headers,
    inspect_images,
    load_pairs,
    read_image,
    read_mask,
    read_pages,
    read_pixel_size,
)
from segkit.images.read import count_pages
from segkit.images.stems import find_images
from tests.images.conftest import complaint, png

RGB = np.random.default_rng(0).integers(1, 255, (20, 24, 3)).astype(np.uint8)
GREY = RGB[:, :, 0]


def encoded(kind, pixels=RGB, **options):
    """The bytes of a picture in a format of Pillow."""
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def with_size(content, place, layout, *size):
    """A file whose header declares another size."""
    changed = bytearray(content)
    struct.pack_into(layout, changed, place, *size)
    return bytes(changed)


def jpeg_bomb():
    content = encoded("JPEG")
    return with_size(content, content.index(b"\xff\xc0") + 5, ">HH", 65000, 65000)


def tiff(pixels=GREY, *, declared=None, **options):
    """A TIFF file, in which `declared` replaces values of tags."""
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, metadata=None, **options)
    if declared:
        stream.seek(0)
        with tifffile.TiffFile(stream, mode="r+b", name="a.tif") as file:
            for name, value in declared.items():
                file.pages[0].tags[name].overwrite(value)
    return stream.getvalue()


def circle():
    """A TIFF file of 150 pages, whose last refers to the second: a reader that counts them does not end."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as file:
        for _ in range(150):
            file.write(GREY, metadata=None, contiguous=False)
    content = stream.getvalue()
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        second, last = file.pages[1].offset, file.pages[149].offset
    n_tags = struct.unpack_from("<H", content, last)[0]
    return with_size(content, last + 2 + 12 * n_tags, "<I", second)


def orientation(value):
    exif = Image.Exif()
    exif[274] = value
    return exif


SLIDE = {"ImageWidth": 60000, "ImageLength": 60000}
TURNED = "its metadata tell viewers to turn or mirror it; read as it is stored, 20 x 24: "
# Name, content, and the shape that is read, with the note, or the reason of the refusal.
READ = {
    "jpeg.png": (encoded("JPEG"), (20, 24, 3), None),
    "gif.png": (encoded("GIF", GREY), (20, 24), None),
    "webp.jpg": (encoded("WEBP"), (20, 24, 3), None),
    "cmyk.jpg": (encoded("JPEG", Image.fromarray(RGB).convert("CMYK")), (20, 24, 3), None),
    "cmyk_plain.tif": (encoded("TIFF", Image.fromarray(RGB).convert("CMYK")), (20, 24, 3), None),
    "palette.png": (encoded("PNG", Image.fromarray(RGB).quantize(8)), (20, 24, 3), None),
    "one_bit.png": (encoded("PNG", GREY > 128), (20, 24), None),
    "rgb16.tif": (tiff(RGB.astype(np.uint16) * 257, photometric="rgb"), (20, 24, 3), None),
    "float.tif": (tiff((GREY / 255).astype(np.float32)), (20, 24), None),
    "animation.png": (
        encoded("PNG", save_all=True, append_images=[Image.fromarray(255 - RGB)]),
        (20, 24, 3),
        "an animation of 2 frames, of which the first is read: save each frame as a file",
    ),
    "turned.jpg": (encoded("JPEG", exif=orientation(6)), (20, 24, 3), TURNED),
    "mirrored.png": (encoded("PNG", exif=orientation(3)), (20, 24, 3), TURNED),
    "turned_plain.tif": (tiff(extratags=[(274, "H", 1, 8, True)]), (20, 24), TURNED),
    "straight.jpg": (encoded("JPEG", exif=orientation(1)), (20, 24, 3), None),
    "clear.png": (
        encoded("PNG", np.dstack([RGB, 255 * (GREY > 99)]).astype(np.uint8)),
        (20, 24, 3),
        r"[0-9.]+% of its pixels are fully transparent; the values hidden there are read",
    ),
    "clear_all.tif": (
        tiff(np.dstack([RGB, 0 * GREY]), photometric="rgb", extrasamples=["unassalpha"]),
        (20, 24, 3),
        r"100.0% of its pixels are fully transparent",
    ),
    "opaque.png": (encoded("PNG", np.dstack([RGB, 0 * GREY + 255])), (20, 24, 3), None),
    "flat.png": (encoded("PNG", GREY[:1]), (1, 24), None),
    "upright.tif": (tiff(GREY[:, :1]), (20, 1), None),
    "long.png": (encoded("PNG", np.resize(GREY, (2, 40000))), (2, 40000), None),
}
# Names that other systems than Linux do not allow.
NAMES = {
    name: (encoded("PNG"), (20, 24, 3), None)
    for name in (
        "name with \x1b[31mred\nand = 'quotes' #1.png", "-o.png", "=cmd().png", "CASE.png", "case.png", f"{'n' * 240}.png"
    )
}  # fmt: skip
linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems do not allow such names, links or pipes"
)
BOMB = (
    r"declares [0-9,]+ x [0-9,]+ pixels \([0-9.,]+ GB\) in a file of [0-9,]+ bytes, which cannot hold them: "
)
REFUSED = {
    "bomb.png": (png(50_000, 50_000), BOMB),
    "absurd.png": (png(2**31 - 1, 2**31 - 1), BOMB),
    "bomb_jpeg.jpg": (jpeg_bomb(), BOMB),
    "bomb_bmp.bmp": (with_size(encoded("BMP"), 18, "<ii", 60_000, 60_000), BOMB),
    "bomb_tiff.tif": (tiff(declared=SLIDE), BOMB),
    "tiles.tif": (tiff(declared=SLIDE, compression="zlib", tile=(16, 16)), BOMB),
    "tile.tif": (
        tiff(
            np.zeros((16, 16), np.uint8),
            declared=SLIDE | {"TileWidth": 60_000, "TileLength": 60_000},
            compression="zlib",
            tile=(16, 16),
        ),
        BOMB,
    ),
    "circle.tif": (circle(), r"cannot be decoded \(its pages follow each other in a circle\)"),
    "sparse.tif": (
        tiff(declared={"ImageWidth": 480, "ImageLength": 480}, compression="zlib", tile=(16, 16)),
        r"cannot be decoded \(4 of 900 strips or tiles are there\)",
    ),
    "empty.png": (b"", "the file is empty"),
    "text.png": (b"no picture", r"cannot be decoded \(its content is no BMP, GIF, JPEG, PNG, PNM or WebP\)"),
    "text_tiff.tif": (b"no picture", r"cannot be decoded \(its content is no TIFF\)"),
    "tiff.png": (
        tiff(),
        r"a TIFF file, expected BMP, GIF, JPEG, PNG, PNM or WebP by its extension: name it tiff.tif",
    ),
    "png.tif": (encoded("PNG"), r"a PNG file, expected TIFF by its extension: name it png.png"),
    "pdf.png": (encoded("PDF"), r"a PDF file, expected .*PNG, PNM or WebP by its extension: save it as PNG"),
    "nan.tif": (tiff(np.where(GREY > 200, np.nan, GREY / 255).astype(np.float32)), "are NaN or infinite"),
    "int32.tif": (tiff(GREY.astype(np.int32)), "pixels are int32, expected bool, uint8, uint16 or floats"),
    "complex.tif": (tiff(GREY.astype(np.complex64)), "pixels are complex64, expected"),
    "unscaled.tif": (tiff(GREY.astype(np.float32)), r"float pixels range from 2 to 253, expected \[0, 1\]"),
}


@pytest.mark.parametrize("files", [READ, pytest.param(NAMES, marks=linux_only)], ids=["content", "name"])
def test_strange_files_that_are_read(tmp_path, files):
    for name, (content, shape, note) in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            [page] = read_pages(path)
            [image] = read_image(path)
            read_pixel_size(path)
        assert (page.shape, image.shape[:2]) == (shape, shape[:2]), name
        assert len(noted) == (0 if note is None else 2), name
        for warning in noted:
            assert re.match(f"{re.escape(str(path))}: {note}", str(warning.message))


def test_strange_files_that_are_refused(tmp_path, capfd):
    for name, (content, reason) in REFUSED.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"^{re.escape(str(path))}: .*{reason}") as refused:
            read_image(path)
        assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def folder(tmp_path):
    """All strange files, links and pipes in one folder."""
    for name, (content, *_) in (READ | NAMES | REFUSED).items():
        (tmp_path / "images" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "images" / name).write_bytes(content)
    (tmp_path / "elsewhere.png").write_bytes(encoded("PNG"))
    images = tmp_path / "images"
    for name, target in {
        "outside.png": tmp_path / "elsewhere.png",
        "dangling.png": "gone.png",
        "loop.png": "loop.png",
        "device.png": "/dev/zero",
        "again": images,
    }.items():
        (images / name).symlink_to(target)
    os.mkfifo(images / "pipe.png")
    (images / "folder.png").mkdir()
    return images


LINKS = ("dangling.png", "loop.png", "device.png", "pipe.png")
TOO_SMALL = ("flat.png", "upright.tif", "long.png")


def test_two_files_of_one_name_are_a_fault_of_images_alone(tmp_path):
    """Only one of them would be counted, and their masks would have one name."""
    (tmp_path / "a.png").write_bytes(encoded("PNG", GREY))
    (tmp_path / "a.tif").write_bytes(tiff(GREY // 2))
    assert inspect_images(tmp_path).faults == [
        f"{tmp_path / 'a.png'}: same stem as a.tif, expected one file: remove one"
    ]


@linux_only
def test_a_folder_of_strange_files_on_the_command_line(folder, monkeypatch, capsys):
    """Every fault is listed, and no name controls the terminal."""
    monkeypatch.setattr(sys, "argv", ["segkit", "inspect", str(folder)])
    monkeypatch.setattr(warnings, "showwarning", None)
    warnings.simplefilter("always")
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    faults = [line for line in out.splitlines() if line.startswith("fault: ")]
    assert len(faults) == len(REFUSED) + len(LINKS) + len(TOO_SMALL)
    for name in (*REFUSED, *LINKS, *TOO_SMALL):
        stem = name.rpartition(".")[0]
        assert any(re.search(rf"\b{stem}(\.\w+)?: ", fault) for fault in faults), name
    assert err.splitlines()[-1] == f"segkit: {len(faults)} faults above: to be mended before training"
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert len(notes) == sum(note is not None for _, _, note in READ.values())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", out + err)


@linux_only
def test_links_and_pipes_say_what_they_are(folder):
    told = {name: complaint(read_pages, folder / name) for name in LINKS}
    for name in ("dangling.png", "loop.png"):
        assert told[name].endswith(
            "a link to a file that is not there: restore that file, or remove the link"
        )
    for name in ("device.png", "pipe.png"):
        assert told[name].endswith("but a folder, a pipe or a device: give an image file")
    found = find_images(folder)
    assert Path("again") not in {path.parent for path in found.paths}
    assert found.notes == [
        f"left out of {folder}: 1 link back (again)",
        f"followed: 2 links out of {folder} (device.png, outside.png)",
    ]


@linux_only
def test_names_that_are_no_text(tmp_path):
    """Linux allows any byte in a name; a table of scores does not."""
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
        pixels = GREY if folder == "images" else np.where(GREY > 99, 255, 0).astype(np.uint8)
        (tmp_path / folder / os.fsdecode(b"\xff\x1b.png")).write_bytes(encoded("PNG", pixels))
    dataset = load_pairs(tmp_path / "images", tmp_path / "masks")
    assert dataset.stems == ["\\xff\\x1b"]
    (tmp_path / "images" / "dark.png").write_bytes(encoded("PNG", GREY // 20))
    (tmp_path / "images" / "twin.png").write_bytes(encoded("PNG", GREY))
    assert "the same picture 2 times: twin, \\xff\\x1b" in inspect_images(tmp_path / "images").describe()


def test_control_characters_of_names_are_escaped_in_errors(tmp_path):
    error = InputError("a\x1b[2J\nb\u202e\udcff.png: \tdamaged")
    assert str(error) == "a\\x1b[2J\\nb\\u202e\\xff.png: \tdamaged"


@pytest.mark.parametrize(
    ("name", "content", "left"),
    [
        ("grey.png", png(5000, 4000), 20_000_000 * 5),
        ("palette.png", encoded("PNG", Image.new("P", (5000, 4000))), 60_000_000 * 5),
        ("a.tif", tiff(np.zeros((4000, 5000), np.uint16), compression="zlib"), 20_000_000 * 6),
    ],
)
def test_pixels_are_held_against_the_memory_that_is_left(tmp_path, monkeypatch, name, content, left):
    """Stored and as float32, before anything is decoded."""
    path = tmp_path / name
    path.write_bytes(content)
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: left - 1)
    with pytest.raises(
        InputError, match=rf"{name}: 4,000 x 5,000 pixels: needs .* of memory, half of the free"
    ):
        read_pages(path)
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: left)
    if name != "grey.png":
        assert len(read_pages(path)) == 1
    else:
        assert "cannot be decoded" in complaint(read_pages, path)


def test_a_slide_is_not_taken_for_a_bomb(tmp_path):
    """The mask of a slide of 20,000 x 20,000 compresses a thousandfold."""
    path = tmp_path / "slide.png"
    path.write_bytes(bytes(400_000))
    headers.refuse_bomb(path, 20_000**2, 1, "20,000 x 20,000")
    with pytest.raises(InputError, match="which cannot hold them"):
        headers.refuse_bomb(path, 20_000**2, 20, "20,000 x 20,000")
    path.write_bytes(b"few")
    headers.refuse_bomb(path, 2**26, 1, "8,192 x 8,192")  # harms no machine
    with pytest.raises(InputError, match="which cannot hold them"):
        headers.refuse_bomb(path, 2**26 + 1, 1, "8,192 x 8,192")


def test_complex_masks_are_refused(tmp_path):
    (tmp_path / "a.tif").write_bytes(tiff(GREY.astype(np.complex64)))
    assert "mask of type complex64, expected whole numbers" in complaint(read_mask, tmp_path / "a.tif")


def test_pages_in_a_circle_are_not_counted_for_ever(tmp_path):
    (tmp_path / "a.tif").write_bytes(circle())
    assert "its pages follow each other in a circle" in complaint(count_pages, tmp_path / "a.tif")


def test_what_tifffile_logs_is_a_note_that_names_the_file(tmp_path, capfd, monkeypatch):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY)
    attribute = tifffile.TiffFile.series  # cached in some versions, a property in others
    original = attribute.fget if isinstance(attribute, property) else attribute.func

    def series(self):
        tifffile.logger().warning("an odd\ntag")
        return original(self)

    monkeypatch.setattr(tifffile.TiffFile, "series", property(series))
    with pytest.warns(UserWarning, match=r"a.tif: read, but may be damaged \(an odd tag\)"):
        read_pages(path)
    assert capfd.readouterr().err == ""
    tifffile.logger().warning("not ours")
    assert logging.getLogger("tifffile") is tifffile.logger()
