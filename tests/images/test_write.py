"""Written files read back equal, and a failed write leaves the old file."""

import numpy as np
import pytest
from PIL import Image

from segkit.errors import InputError, OutputError
from segkit.images import (
    overlay,
    read_image,
    read_mask,
    read_pages,
    write_image,
    write_mask,
    write_overlay,
    write_probability,
)
from segkit.images.write import CLASS_COLOURS
from tests.images.conftest import complaint, contrast


@pytest.mark.parametrize(("name", "dtype"), [("a.png", np.uint16), ("a.tif", np.int64)])
def test_masks_round_trip(tmp_path, name, dtype, rng):
    mask = rng.integers(0, 120, (5, 7)).astype(dtype)
    write_mask(tmp_path / "new folder" / name, mask)
    (back,) = read_mask(tmp_path / "new folder" / name)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, mask)


@pytest.mark.parametrize("shape", [(1, 5, 7), (4, 5, 3)])
def test_pages_stay_pages(tmp_path, shape, rng):
    masks = rng.integers(0, 9, shape).astype(np.uint8)
    write_mask(tmp_path / "a.tif", masks)
    np.testing.assert_array_equal(np.stack(read_mask(tmp_path / "a.tif")), masks)


def test_images_round_trip_to_8_bits(tmp_path, rng):
    image = rng.uniform(size=(5, 7, 3)).astype(np.float32)
    write_image(tmp_path / "a.png", image)
    np.testing.assert_allclose(read_image(tmp_path / "a.png")[0], image, atol=0.5 / 255 + 1e-6)


def test_formats_that_would_change_values(tmp_path):
    path, mask = tmp_path / "a.jpg", np.zeros((2, 3), dtype=np.uint8)
    assert complaint(write_mask, path, mask, error=OutputError) == (
        f"{path}: .jpg cannot hold uint8 pixels of shape (2, 3) unchanged: name it a.tif"
    )
    path = tmp_path / "a.png"
    assert complaint(write_mask, path, mask.astype(np.int32), error=OutputError) == (
        f"{path}: .png cannot hold int32 pixels of shape (2, 3) unchanged: name it a.tif"
    )
    assert complaint(write_mask, path, mask > 0, error=OutputError) == (
        f"{path}: mask of dtype bool and shape (2, 3), expected integers of shape (H, W) or (n_pages, H, W): "
        f"encode it with a LabelMap"
    )
    assert complaint(write_probability, path, mask, error=OutputError) == (
        f"{path}: only TIFF holds float32 probabilities: name it a.tif"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    write_mask(path, np.zeros((2, 3), dtype=np.uint8))
    before = path.read_bytes()

    def fill_the_disk(self, target, **options):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", fill_the_disk)
    assert complaint(write_mask, path, np.ones((2, 3), dtype=np.uint8), error=OutputError) == (
        f"{path}: the disk is full: free some space and run the same command again"
    )
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_in_the_way_of_a_folder(tmp_path):
    (tmp_path / "file").touch()
    path, mask = tmp_path / "file" / "a.png", np.zeros((2, 3), dtype=np.uint8)
    assert complaint(write_mask, path, mask, error=OutputError).startswith(f"{path}: cannot be written (")


def test_overlay_draws_contour_tint_and_nothing_else():
    image = np.full((40, 40, 3), 0.5)
    ids = np.zeros((40, 40), dtype=np.uint8)
    ids[10:30, 10:30] = 1
    ids[:, 38:] = 255
    picture = overlay(image, ids)
    colour = CLASS_COLOURS[0]
    np.testing.assert_array_equal(picture[10, 15], colour)
    np.testing.assert_array_equal(picture[20, 20], np.rint(127.5 + 0.15 * (colour - 127.5)))
    np.testing.assert_array_equal(picture[9, 15], [16, 16, 16])
    np.testing.assert_array_equal(picture[:8], np.full((8, 40, 3), 128))
    np.testing.assert_array_equal(picture[:, 38:], np.full((40, 2, 3), 128))


GROUNDS = {"white": (255, 255, 255), "pink": (236, 176, 208), "dark": (12, 12, 16), "yellow": (240, 228, 66)}


@pytest.mark.parametrize("ground", GROUNDS)
def test_contours_stand_out_on_any_ground(ground):
    for class_id in range(1, len(CLASS_COLOURS) + 1):
        ids = np.zeros((24, 24), dtype=np.uint8)
        ids[8:16, 8:16] = class_id
        picture = overlay(np.broadcast_to(np.array(GROUNDS[ground]) / 255, (24, 24, 3)), ids)
        outside, rim, line = picture[5, 12], picture[7, 12], picture[8, 12]
        np.testing.assert_array_equal(outside, GROUNDS[ground])
        assert contrast(line, rim) >= 3
        assert max(contrast(line, outside), contrast(rim, outside)) >= 3


def test_no_rim_covers_the_line_of_a_class_that_touches():
    ids = np.ones((20, 20), dtype=np.uint8)
    ids[:, 10:] = 2
    for first, second in ((1, 2), (2, 1)):
        picture = overlay(np.full((20, 20, 3), 0.5), np.where(ids == 1, first, second))
        np.testing.assert_array_equal(picture[5, 9], CLASS_COLOURS[first - 1])
        np.testing.assert_array_equal(picture[5, 10], CLASS_COLOURS[second - 1])


@pytest.mark.parametrize(
    ("shape", "given", "width"), [((40, 40), None, 1), ((40, 2400), None, 3), ((40, 40), 5, 5)]
)
def test_contours_are_as_wide_as_asked_for_or_as_the_image_needs(shape, given, width):
    ids = np.zeros(shape, dtype=np.uint8)
    ids[12:28] = 1
    picture = overlay(np.full((*shape, 3), 0.5), ids, line_width=given)
    coloured = (picture[:, 20] == CLASS_COLOURS[0]).all(axis=1)
    assert coloured.tolist() == [12 <= row < 12 + width or 28 - width <= row < 28 for row in range(40)]


def test_overlay_leaves_its_input_alone():
    image, ids = np.full((9, 9, 3), 0.5), np.eye(9, dtype=np.uint8)
    overlay(image, ids)
    assert (image == 0.5).all()


def test_overlay_outlines_no_picture_edge():
    picture = overlay(np.full((9, 9, 3), 0.5), np.ones((9, 9), dtype=np.uint8))
    assert np.unique(picture.reshape(-1, 3), axis=0).shape == (1, 3)


@pytest.mark.parametrize("n_channels", [1, 5])
def test_overlay_stretches_grey(n_channels, rng):
    dark = 0.01 * rng.uniform(size=(30, 30, n_channels))
    picture = overlay(dark, np.zeros((30, 30), dtype=np.uint8))
    assert (picture.min(), picture.max()) == (0, 255)
    np.testing.assert_array_equal(picture[:, :, 0], picture[:, :, 2])


def test_a_constant_grey_image_has_no_contrast_to_stretch():
    picture = overlay(np.full((9, 9), 0.5), np.zeros((9, 9), dtype=np.uint8))
    np.testing.assert_array_equal(picture, np.full((9, 9, 3), 128))


def test_overlay_of_another_size():
    assert complaint(overlay, np.zeros((4, 5, 3)), np.zeros((5, 4), dtype=np.uint8)) == (
        "image of (4, 5) pixels under class ids of shape (5, 4), expected one size: "
        "draw the ids over the image they belong to"
    )


def test_written_overlay_is_the_overlay(tmp_path, rng):
    image, ids = rng.uniform(size=(12, 13, 3)), rng.integers(0, 3, (12, 13))
    write_overlay(tmp_path / "a.png", image, ids)
    np.testing.assert_array_equal(read_pages(tmp_path / "a.png")[0], overlay(image, ids))


def test_images_that_are_not_scaled_are_refused(tmp_path):
    """They would be written, or drawn on, as white."""
    image = np.linspace(0, 255, 300).reshape(10, 10, 3)
    with pytest.raises(InputError, match=r"a.png: floats from 0 to 255, expected \[0, 1\]: .*to_float"):
        write_image(tmp_path / "a.png", image)
    with pytest.raises(InputError, match=r"image: floats from 0 to 255, expected \[0, 1\]"):
        overlay(image, np.zeros((10, 10), dtype=int))
    assert not any(tmp_path.iterdir())
