import csv

import numpy as np
import pytest
import tifffile

from segkit.images import write_image, write_mask


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three label images of 40 objects each, one without any, and their images."""
    monkeypatch.chdir(tmp_path)
    labels = np.kron(np.arange(1, 41).reshape(5, 8), np.pad(np.ones((5, 5)), 2)).astype(np.uint16)
    for name, mask in {"a/one": labels, "b": labels, "c": labels, "d": 0 * labels}.items():
        write_mask(tmp_path / "masks" / f"{name}.png", mask)
        write_image(tmp_path / "images" / f"{name}.png", np.repeat(mask[:, :, np.newaxis] / 40, 3, axis=2))
    return tmp_path


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_objects_are_measured_and_told(folder, segkit):
    code, out, err = segkit(
        *("measure", "masks", "--images", "images", "-o", "out", "--overlay", "--set", "data.pixel_size=0.5")
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "masks number objects: 120 objects in 4 masks",
        "120 objects in 4 images, 30.0 an image (median area 25 px, 6.25 µm²)",
        "Tables: out/objects.csv, out/images.csv",
        "overlay in out/overlay",
    ]
    assert len(rows_of(folder / "out" / "objects.csv")) == 120
    assert [row["count"] for row in rows_of(folder / "out" / "images.csv")] == ["40", "40", "40", "0"]
    pictures = sorted((folder / "out" / "overlay").rglob("*.png"))
    assert [path.name for path in pictures] == ["one.png", "b.png", "c.png", "d.png"]


def test_an_unlabelled_value_that_no_mask_holds_is_told(folder, segkit):
    arguments = ["measure", "masks", "-o", "out", "--overwrite", "--set"]
    code, out, _ = segkit(*arguments, "data.unlabelled=300")
    assert code == 0
    assert "no mask holds 300, the value of unlabelled pixels" in out.splitlines()
    code, out, _ = segkit(*arguments, "data.unlabelled=40")
    assert code == 0
    assert "no mask holds" not in out


def test_thousands_have_commas_and_classes_are_counted(folder, segkit):
    dots = np.zeros((80, 80), dtype=np.uint8)
    dots[::2, ::2] = 1
    dots[40::2, ::2] = 2
    write_mask(folder / "dots" / "a.png", dots)
    names = "data.labels={0: ground, 1: cell, 2: debris}"
    code, out, _ = segkit("measure", "dots", "-o", "out", "--set", names)
    assert code == 0
    assert out.splitlines()[1:3] == [
        "1,600 objects in 1 image (median area 1 px)",
        "By class: cell 800, debris 800",
    ]


def test_quiet_says_nothing(folder, segkit):
    assert segkit("measure", "masks", "-o", "out", "-q") == (0, "", "")


def test_what_masks_hold_can_be_set(folder, segkit):
    code, out, _ = segkit(
        "measure", "masks", "-o", "out", "--set", "data.masks=classes", "--set", "data.unlabelled=255"
    )
    assert code == 0
    assert "objects are the connected regions of 1, 2, 3, " in out
    assert segkit("measure", "masks", "-o", "new", "--set", "data.masks=cells") == (
        2, "", "segkit: data.masks='cells': input should be 'instances' or 'classes'\n",
    )  # fmt: skip


def test_a_pixel_size_nobody_has(folder, segkit):
    code, out, err = segkit("measure", "masks", "-o", "out", "--set", "data.pixel_size=nan")
    assert (code, out) == (2, "")
    assert err.startswith("segkit: data.pixel_size='nan': pixel size nan")
    assert err.endswith(
        ", expected micrometres, 0.00001 to 100,000: give the width of a pixel, such as 0.325, or height and width\n"
    )
    assert not (folder / "out").exists()


@pytest.mark.parametrize("given", ["0,5", "1,5", "'1,5'", "1.000,5", "1,000.5"])
def test_a_decimal_comma_is_not_height_and_width(folder, segkit, given):
    code, out, err = segkit("measure", "masks", "-o", "out", "--set", f"data.pixel_size={given}")
    assert (code, out) == (2, "")
    assert err.endswith(": write a number with a point, such as 0.5, or height and width as [0.65, 0.325]\n")
    assert not (folder / "out").exists()


def test_the_source_of_the_pixel_size_is_told(tmp_path, segkit):
    mask = np.zeros((20, 30), dtype=np.uint8)
    mask[3:9, 4:8] = 255
    for name, size in (("a", 0.5), ("b", 0.5), ("print", 352.777)):
        metadata = {"axes": "YX", "PhysicalSizeX": size, "PhysicalSizeY": size}
        (tmp_path / "masks").mkdir(exist_ok=True)
        tifffile.imwrite(tmp_path / "masks" / f"{name}.ome.tif", mask, metadata=metadata)
    code, out, _ = segkit("measure", tmp_path / "masks", "-o", tmp_path / "out")
    assert code == 0
    assert out.splitlines()[2] == "pixel size 0.5 µm, from OME metadata"
    sources = [row["pixel_size_from"] for row in rows_of(tmp_path / "out" / "images.csv")]
    assert sources == ["OME metadata", "OME metadata", ""]
    code, out, _ = segkit("inspect", tmp_path / "masks")
    assert "  pixel size      0.5 µm, from OME metadata (2), unknown (1)" in out.splitlines()


def test_height_and_width_of_a_pixel(folder, segkit):
    assert segkit("measure", "masks", "-o", "out", "-q", "--set", "data.pixel_size=0.5,0.25")[0] == 0
    row = rows_of(folder / "out" / "images.csv")[0]
    assert (row["pixel_height_um"], row["pixel_width_um"]) == ("0.5", "0.25")
    for given in ("wide", "1,2,3", "0.5,", "010", "1:30"):
        code, _, err = segkit("measure", "masks", "-o", "new", "--set", f"data.pixel_size={given}")
        assert (code, err.count("\n")) == (2, 1)
        assert "give " in err


def test_bad_input_is_one_line_and_nothing_is_replaced(folder, segkit):
    assert segkit("measure", "masks", "-o", "out", "-q")[0] == 0
    before = (folder / "out" / "objects.csv").read_bytes()
    write_image(folder / "images" / "b.png", np.ones((3, 4, 3)))
    (folder / "few").mkdir()
    write_image(folder / "few" / "b.png", np.ones((3, 4, 3)))
    for arguments, message in (
        (("masks", "-o", "out"), "out/objects.csv and 1 more would be overwritten: "),
        (("masks", "-o", "masks/out"), "output masks/out is the input folder masks or inside it: "),
        (
            ("masks", "--images", "images", "-o", "images"),
            "output images is the input folder images or inside it",
        ),
        (("nowhere", "-o", "out"), "nowhere: no such file or folder: check its name"),
        (
            ("masks", "--images", "few", "-o", "out", "--overwrite"),
            "3 masks without an image of the same name in few (a/one, c, d): ",
        ),
        (
            ("masks", "--images", "images", "-o", "out", "--overwrite"),
            "images/b.png: image of 3 x 4 pixels, mask of 45 x 72, expected one size: ",
        ),
        (("masks", "-o", "out", "--overwrite", "--overlay"), "overlays need the images to draw on: "),
        (
            ("masks", "-o", "new", "--set", "seed=3"),
            "--set seed=3: only options of data are known here (data.axes, data.labels, ",
        ),
        (
            ("masks", "-o", "new", "--set", "pixel_size=0.5"),
            "--set pixel_size=0.5: only options of data are known here (data.axes, data.labels, data.unlabelled, "
            "data.masks, data.pixel_size): give data.pixel_size=0.5\n",
        ),
    ):
        code, out, err = segkit("measure", *arguments)
        assert (code, out) == (2, ""), arguments
        assert err.startswith(f"segkit: {message}"), err
        assert err.count("\n") == 1
    assert (folder / "out" / "objects.csv").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["few", "images", "masks", "out"]


def test_linked_planes_are_told(tmp_path, monkeypatch, segkit):
    monkeypatch.chdir(tmp_path)
    plane = np.zeros((12, 20), dtype=np.uint8)
    plane[3:8, 3:8], plane[3:8, 12:17] = 1, 2
    tifffile.imwrite("stack.tif", np.array([plane, plane]), metadata={"axes": "ZYX"})
    arguments = ("measure", "stack.tif", "-o", "out", "--set", "data.masks=instances", "--link")
    code, out, err = segkit(*arguments, "planes")
    assert (code, err) == (0, "")
    assert out.splitlines()[-2:] == [
        "Tables: out/objects.csv, out/images.csv, out/volumes.csv",
        "Label images with the linked numbers in out/linked",
    ]
    assert [row["volume"] for row in rows_of(tmp_path / "out" / "volumes.csv")] == ["50", "50"]
    code, out, err = segkit(*arguments, "space")
    assert (code, out, err) == (2, "", "segkit: link space: give planes or time\n")
