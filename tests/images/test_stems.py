"""Folders listed, and files of one stem."""

from pathlib import Path, PurePath

import pytest

from segkit.images import IMAGE_EXTENSIONS, list_images
from segkit.images.matching import MaskFiles, match_masks
from segkit.images.stems import find_images, image_name, name_of, stem_of
from tests.images.conftest import NOISE, complaint, save


@pytest.fixture
def images(tmp_path):
    for stem in ("b", "a 1", "süß/ñ"):
        save(tmp_path / "images" / f"{stem}.png", NOISE)
    return tmp_path / "images"


def test_listing_is_sorted_and_skips_what_is_no_image(images):
    save(images / ".hidden.png", NOISE)
    save(images / ".cache" / "c.png", NOISE)
    (images / "notes.txt").write_text("not an image")
    (images / "folder.png").mkdir()
    assert list_images(images) == [Path("a 1.png"), Path("b.png"), Path("süß/ñ.png")]


def test_one_file_is_a_listing(images):
    assert list_images(images / "b.png") == [Path("b.png")]


def test_a_folder_below_a_hidden_one_is_listed(tmp_path):
    save(tmp_path / ".scratch" / "images" / "a.png", NOISE)
    assert list_images(tmp_path / ".scratch" / "images") == [Path("a.png")]


def test_listings_of_nothing(tmp_path):
    assert complaint(list_images, tmp_path) == (
        f"{tmp_path}: no images or masks, expected files that end in {', '.join(IMAGE_EXTENSIONS)}: check the folder"
    )
    missing = tmp_path / "gone"
    assert complaint(list_images, missing) == f"{missing}: no such file or folder: check its name"


def test_a_zarr_among_images_is_told_apart(tmp_path):
    (tmp_path / "a.zarr" / "labels").mkdir(parents=True)
    for given in (tmp_path, tmp_path / "a.zarr"):
        assert complaint(list_images, given) == (
            f"{tmp_path / 'a.zarr'}: an OME-Zarr, expected images or masks that are read as a whole: save a level of it as "
            "TIFF, or give it by itself to segkit predict"
        )


def test_files_of_other_formats_are_named(tmp_path):
    (tmp_path / "a.heic").touch()
    (tmp_path / "b.HEIC").touch()
    assert complaint(list_images, tmp_path).endswith("found 2 of .heic: save them in one of these formats")


def test_stems_of_ome_files_are_those_of_their_masks():
    for path, stem in {
        "x/a.ome.tif": "x/a",
        "a.OME.TIFF": "a",
        "a.ome.png": "a",  # the mask of an OME-TIFF
        "a.b.tif": "a.b",
        "ome.tif": "ome",
        "x/.ome.tif": "x/.ome",
        "awesome.tif": "awesome",
    }.items():
        assert stem_of(Path(path)) == stem
        assert name_of(Path(path)) == path.rpartition(".")[0]


def test_names_of_masks():
    for stem, name in {
        "x/a-Labels": "x/a",
        "a.ground_truth": "a",
        "a_seg": "a",
        "a_mask_gt": "a_mask",
        "_mask": None,
        "x/_mask": None,
        "damask": None,
        "a_mask2": None,
    }.items():
        assert image_name(stem) == name


def match(images, masks):
    files = MaskFiles(path_of={f"{stem}.png": Path(f"{stem}.png") for stem in masks})
    return match_masks({stem: Path(f"{stem}.tif") for stem in images}, files)


def test_a_mask_of_its_image_s_own_name_is_found_first():
    found = match(["a", "b_mask", "c"], ["a", "b_mask", "c_gt", "d_gt"])
    assert [(pair.stem, pair.mask.stem) for pair in found.pairs] == [
        ("a", "a"),
        ("b_mask", "b_mask"),
        ("c", "c_gt"),
    ]
    assert (found.masks, found.among, found.faults) == (["d_gt.png"], [], [])


def test_a_name_is_one_line():
    """Whatever a file is called, its name makes no line of its own where it is told of."""
    assert stem_of(PurePath("a\nnote: all is well\t\u202e.ome.tif")) == "a\\nnote: all is well\t\\u202e"
    assert match([stem_of(PurePath("a\nb.png"))], ["a\nb_mask"]).pairs[0].mask == Path("a\nb_mask.png")


def test_two_masks_of_one_image_are_a_fault():
    [fault] = match(["a"], ["a_gt", "a_mask"]).faults
    assert str(fault) == "a: 2 masks (a_gt, a_mask), expected one: remove the others"


def test_masks_beside_images_are_listed_apart(images):
    save(images / "b_mask.png", NOISE)
    save(images / "süß" / "b_mask.png", NOISE)
    found = find_images(images)
    assert found.paths == [Path("a 1.png"), Path("b.png"), Path("süß/b_mask.png"), Path("süß/ñ.png")]
    assert found.notes == [f"left out of {images}: 1 mask beside the images (b_mask.png)"]
    assert find_images(images, with_masks=True).notes == []
