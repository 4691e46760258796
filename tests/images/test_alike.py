"""Images of one folder whose values are scaled otherwise: refused where it is clear, else noted."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.images import inspect_images, load_pairs
from segkit.images.alike import Scale, check_scales, of_other_scale
from segkit.live import Project
from tests.images.conftest import complaint

PICTURE = np.random.default_rng(0).integers(0, 256, (12, 14)).astype(np.uint8)
PICTURE[0, :2] = 0, 255


def picture(name):
    """Give each image a picture of its own: copies are told of."""
    return np.roll(PICTURE, ord(name))


MASK = np.where(PICTURE > 120, 255, 0).astype(np.uint8)


@pytest.fixture
def folders(tmp_path):
    """Images a and b of 8 bits, and c of 8 bits stored as 16."""
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for name in "abc":
        Image.fromarray(MASK).save(tmp_path / "masks" / f"{name}.png")
    for name in "ab":
        Image.fromarray(picture(name)).save(tmp_path / "images" / f"{name}.png")
    tifffile.imwrite(tmp_path / "images" / "c.tif", PICTURE.astype(np.uint16))
    return tmp_path / "images", tmp_path / "masks"


FAULT = (
    "c: a file of 16 bits with values up to 255, beside 2 files of 8 bits (a, b), would be read 257 times darker: "
    "save it with 8 bits too"
)


def test_8_bits_stored_as_16_are_a_fault_beside_8_bits(folders):
    assert complaint(load_pairs, *folders) == FAULT
    assert inspect_images(folders[0]).faults == [FAULT]


def test_8_bits_stored_as_16_are_no_fault_if_all_are_so(folders):
    for name in "ab":
        (folders[0] / f"{name}.png").unlink()
        tifffile.imwrite(folders[0] / f"{name}.tif", picture(name).astype(np.uint16))
    assert load_pairs(*folders).messages == []


def test_8_bits_stored_as_16_are_refused_when_drawn_on(folders, tmp_path):
    with Project(folders[0], tmp_path / "drawn") as project:
        project.image("a")
        told = complaint(project.image, "c")
        assert "a file of 16 bits with values up to 255, beside 1 file of 8 bits" in told
        project.image("b")


@pytest.mark.parametrize(
    ("other", "note"),
    [
        (
            PICTURE.astype(np.uint16) * 257,
            "images of several types: 2 of uint8 (a, b), 1 of uint16 (c); each is read by the range of its own type: "
            "right if the pictures look alike",
        ),
        (
            PICTURE // 10,
            "1 image (c) much darker than others: the brightest pixel is at 9.8% of full scale, of others at 100.0%: "
            "right if the pictures look so, else save all with one scale",
        ),
    ],
)
def test_images_of_other_types_or_much_darker_are_noted(folders, other, note):
    tifffile.imwrite(folders[0] / "c.tif", other)
    assert load_pairs(*folders).messages == [note]
    assert note in inspect_images(folders[0]).messages


@pytest.mark.parametrize(
    ("peaks", "told"),
    [
        ((1.0, 0.5, 0.126), None),
        ((1.0, 0.5, 0.124), "1 image (2) much darker"),
        ((0.1, 0.1, 1.0), "1 image (2) much brighter"),
        ((0.1, 1.0), "1 image (0) much darker"),
    ],
)
def test_the_fewer_images_are_named(peaks, told):
    notes = check_scales({str(place): Scale("uint8", peak) for place, peak in enumerate(peaks)})
    assert [note.partition(" than")[0] for note in notes] == ([told] if told else [])


def test_one_rule_of_scale():
    assert of_other_scale({"a": 0.01, "b": 0.05, "c": 1.0, "blank": 0.0}, 0.1, 0.12) == ["a", "c"]
