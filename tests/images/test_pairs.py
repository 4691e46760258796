"""Pairs by stem, whole folders of faults in one message, and datasets that hold what the files hold."""

import numpy as np
import pytest
import tifffile
from skimage import measure

from segkit.images import inspect_images, list_images, load_pairs, pair
from segkit.images.matching import match
from segkit.images.stems import files_by_stem
from tests.images.conftest import MASK, NOISE, complaint, picture, save


def test_pairs_by_relative_stem(complete):
    images, masks = complete
    assert pair(images, masks) == [
        ("a 1", images / "a 1.png", masks / "a 1.tif"),
        ("b", images / "b.png", masks / "b.tif"),
        ("süß/ñ", images / "süß/ñ.png", masks / "süß/ñ.tif"),
    ]


def test_two_spellings_of_an_accent_are_one_name(folders):
    images, masks = folders
    save(images / "e\u0301.png", NOISE)
    save(masks / "\u00e9.png", MASK)
    ((stem, _, _),) = pair(images, masks)
    assert stem == "\u00e9"


def test_two_files_make_a_pair_whatever_their_names(tmp_path):
    image, mask = save(tmp_path / "picture.png", NOISE), save(tmp_path / "truth.png", MASK)
    dataset = load_pairs(image, mask)
    assert dataset.stems == ["picture"]


def test_one_image_finds_its_mask_in_a_folder(complete, tmp_path):
    images, masks = complete
    assert pair(images / "b.png", masks) == [("b", images / "b.png", masks / "b.tif")]
    below = pair(images / "süß" / "ñ.png", masks)
    assert below == [("ñ", images / "süß" / "ñ.png", masks / "süß" / "ñ.tif")]
    save(masks / "süß" / "b.png", MASK)
    assert pair(images / "b.png", masks)[0].mask == masks / "b.tif"
    beside = save(images / "masks" / "b.png", MASK)
    assert pair(images / "b.png", images) == [("b", images / "b.png", beside)]
    assert files_by_stem(images / "b.png").path_of == {"b": images / "b.png"}
    assert load_pairs(images / "b.png", masks).stems == ["b"]


def test_one_image_without_a_mask_of_its_own(complete):
    images, masks = complete
    lonely = save(images / "lonely.png", NOISE)
    for folder in (masks, images):
        assert complaint(pair, lonely, folder) == (
            f"{lonely}: no mask of the name lonely in {folder}: add or rename it, or give the mask file"
        )
    two = [save(masks / name / "lonely.png", MASK) for name in "xy"]
    assert complaint(pair, lonely, masks) == (
        f"{lonely}: 2 masks of the name lonely ({two[0]}, {two[1]}), expected one: give that file"
    )


def test_two_masks_of_one_stem_are_one_fault(complete):
    images, masks = complete
    save(masks / "b.png", MASK)
    assert complaint(pair, images, masks) == (
        f"{masks / 'b.png'}: same stem as b.tif, expected one file: remove one"
    )
    assert complaint(pair, images / "b.png", masks).startswith(f"{images / 'b.png'}: 2 masks of the name b (")


def test_one_mask_for_a_folder_of_images(complete):
    images, masks = complete
    assert complaint(load_pairs, images, masks / "b.tif") == (
        f"{masks / 'b.tif'}: one mask for the folder {images}, expected a folder of masks: give that folder, or one image"
    )


def test_every_unpaired_stem_is_counted_and_ten_are_named(folders):
    images, masks = folders
    for index in range(12):
        save(images / f"i{index:02d}.png", NOISE)
    save(masks / "m.png", MASK)
    save(masks / "i00.png", MASK)
    assert complaint(pair, images, masks) == (
        "2 faults: 11 images without mask of the same name "
        "(i01, i02, i03, i04, i05, i06, i07, i08, i09, i10, and 1 more): add or rename the mask, or train without such "
        "images (--set data.only_annotated=true, in Python only_annotated=True); "
        "1 mask without image of the same name (m): add or rename the image"
    )


@pytest.mark.parametrize(
    "names", [("a.ome.tif", "a.tif"), ("a.png", "a.ome.tif"), ("a.ome.tif", "a_mask.tif")]
)
def test_an_ome_tiff_is_called_as_its_mask(folders, names):
    image, mask = (folder / name for folder, name in zip(folders, names, strict=True))
    save(image, NOISE)
    save(mask, MASK)
    for given in (image, folders[0]):
        assert pair(given, folders[1]) == [("a", image, mask)]


def test_loaded_pairs_hold_what_the_files_hold(complete):
    dataset = load_pairs(*complete)
    assert dataset.stems == dataset.files == ["a 1", "b", "süß/ñ"]
    assert dataset.label_map.values == (0, 255)
    assert dataset.messages == []
    assert dataset.label_map.describe() == "masks hold 0 and 255: read as background and foreground"
    for stem, image, mask in zip(dataset.stems, dataset.images, dataset.masks, strict=True):
        assert image.dtype == np.float32
        np.testing.assert_allclose(image, picture(stem) / 255, rtol=1e-6)
        np.testing.assert_array_equal(mask, MASK)


def test_pages_are_items(folders, rng):
    images, masks = folders
    images.mkdir()
    masks.mkdir()
    stack = rng.integers(0, 255, (3, 6, 8)).astype(np.uint8)
    tifffile.imwrite(images / "s.tif", stack, photometric="minisblack", metadata={"axes": "ZYX"})
    tifffile.imwrite(masks / "s.tif", stack // 128, photometric="minisblack")
    dataset = load_pairs(images, masks)
    assert dataset.stems == ["s#1", "s#2", "s#3"]
    assert dataset.files == ["s", "s", "s"]
    assert load_pairs(images / "s.tif", masks / "s.tif").files == ["s", "s", "s"]
    np.testing.assert_array_equal(np.stack(dataset.masks), stack // 128)
    tifffile.imwrite(masks / "s.tif", stack[:1] // 128, photometric="minisblack")
    assert complaint(load_pairs, images, masks) == (
        f"{masks / 's.tif'}: 1 page for 3 pages of {images / 's.tif'}, expected a mask for each: "
        f"annotate or remove pages"
    )


def test_a_page_and_a_file_of_one_name_are_refused(folders):
    images, masks = folders
    images.mkdir()
    masks.mkdir()
    for folder, page in ((images, NOISE[:, :, 0]), (masks, MASK)):
        tifffile.imwrite(folder / "a.tif", np.stack([page, page]), photometric="minisblack")
        save(folder / "a#1.png", page)
    assert complaint(load_pairs, images, masks) == (
        "a#1: the name of 2 images, a page of a file among them: rename a file"
    )


def test_masks_of_one_class_are_told(folders):
    images, masks = folders
    for stem, mask in (("a", MASK), ("b", 0 * MASK), ("c", 0 * MASK), ("d", np.full_like(MASK, 255))):
        save(images / f"{stem}.png", picture(stem))
        save(masks / f"{stem}.png", mask)
    told = [message.split(":")[0] for message in load_pairs(images, masks).messages if " only " in message]
    assert told == ["2 masks of background only (b, c)", "1 mask of foreground only (d)"]


def save_masks(folders, values_of):
    images, masks = folders
    for stem, values in values_of.items():
        save(images / f"{stem}.png", picture(stem))
        save(masks / f"{stem}.png", np.resize(np.array(values, dtype=np.uint8), (6, 8)))
    return folders


@pytest.mark.parametrize(
    ("values_of", "told"),
    [
        (
            {"a": [0, 255], "b": [0, 1], "c": [0, 255], "d": [0]},
            "3 values (0, 1, 255), without the mask of b only 0 and 255: save it",
        ),
        ({"a": [0, 1], "b": [0, 255]}, "3 values (0, 1, 255), without the mask of b only 0 and 1: save it"),
        (
            {"a": range(40), "b": [0, 255]},
            "41 values (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 31 more), without the mask of a only 0 and 255: save it",
        ),
        (
            {**{stem: [0, 255] for stem in "abcd"}, "e": [0, 1], "f": [0, 2], "g": [3], "h": [0, 3]},
            "5 values (0, 1, 2, 3, 255), without the masks of e, f, g and 1 more only 0 and 255: save them",
        ),
    ],
)
def test_masks_of_other_values_than_most_are_named(folders, values_of, told):
    save_masks(folders, values_of)
    message = complaint(load_pairs, *folders)
    assert message.startswith(
        f"masks hold {told} with these two, or name every value, for example --set data.labels="
    )


@pytest.mark.parametrize(
    "values_of", [{"a": [0, 1], "b": [0, 2], "c": [1, 2]}, {"a": [0], "b": [1], "c": [2]}]
)
def test_no_mask_is_named_where_all_may_be_right(folders, values_of):
    save_masks(folders, values_of)
    assert complaint(load_pairs, *folders).startswith(
        "masks hold 3 values (0, 1 and 2), and which class each is cannot be known: name them"
    )


def test_jpeg_masks_are_told_of_without_warning(folders):
    images, masks = folders
    big = np.zeros((64, 64), dtype=np.uint8)
    big[16:48, 20:41] = 255
    save(images / "a.png", np.random.default_rng(0).integers(0, 255, big.shape).astype(np.uint8))
    save(masks / "a.jpg", big)
    assert load_pairs(images, masks).messages == [
        f"{masks / 'a.jpg'}: greys of a JPEG mask thresholded to 0 and 255: save masks as PNG"
    ]


def test_every_fault_in_one_message(complete):
    images, masks = complete
    save(images / "blank.png", np.zeros_like(NOISE))
    save(masks / "blank.png", MASK)
    save(images / "broken.png", NOISE).write_bytes(b"not an image")
    save(masks / "broken.png", MASK)
    save(images / "grey.png", NOISE[:, :, 0])
    save(masks / "grey.png", np.full_like(MASK, 7))
    tifffile.imwrite(images / "two.tif", np.stack([NOISE[:, :, 0]] * 2), metadata={"axes": "CYX"})
    save(masks / "two.png", MASK)
    save(images / "small.png", NOISE[:5])
    save(masks / "small.png", MASK)
    save(images / "tinted.png", NOISE)
    save(masks / "tinted.png", NOISE)
    save(images / "lonely.png", NOISE)
    message = complaint(load_pairs, images, masks)
    start, *rest = message.split("; ")
    assert start == (
        "7 faults: 1 image without mask of the same name (lonely): add or rename the mask, or train without such images "
        "(--set data.only_annotated=true, in Python only_annotated=True)"
    )
    assert rest[0] == f"{images / 'blank.png'}: every pixel is 0: leave out this blank image"
    assert rest[1].startswith(f"{images / 'broken.png'}: cannot be decoded (")
    assert rest[2] == (
        f"{images / 'small.png'}: image of 5 x 8 pixels, mask of 6 x 8, expected one size: "
        f"export the mask at the size of the image"
    )
    assert rest[3].startswith(f"{masks / 'tinted.png'}: coloured mask without a legend")
    assert rest[4] == (
        "images differ in their number of channels (1 with 1, 1 with 2, 3 with 3), expected one: "
        "convert all to grey or all to RGB"
    )
    assert rest[5].startswith(
        "masks hold 3 values (0, 7, 255), without the mask of grey only 0 and 255: save it with these two"
    )


@pytest.mark.parametrize("suffix", ["_mask", " Masks", "-label", ".cp_masks"])
def test_masks_may_be_named_after_their_images(folders, suffix):
    images, masks = folders
    for stem in ("a", "sub/b_1"):
        save(images / f"{stem}.png", picture(stem))
        save(masks / f"{stem}{suffix}.png", MASK)
    assert pair(images, masks) == [
        ("a", images / "a.png", masks / f"a{suffix}.png"),
        ("sub/b_1", images / "sub" / "b_1.png", masks / "sub" / f"b_1{suffix}.png"),
    ]
    assert load_pairs(images, masks).stems == ["a", "sub/b_1"]
    assert pair(images / "a.png", masks) == [("a", images / "a.png", masks / f"a{suffix}.png")]


def test_images_and_masks_in_one_folder(tmp_path):
    for stem in "ab":
        save(tmp_path / f"{stem}.png", NOISE)
    assert complaint(pair, tmp_path, tmp_path) == (
        f"{tmp_path} is given for images and masks, and no file is called like NAME_mask beside NAME: "
        "give the folder of the masks, or rename them"
    )
    save(tmp_path / "a_mask.png", MASK)
    assert complaint(pair, tmp_path, tmp_path / ".." / tmp_path.name).startswith(
        "1 image without mask of the same name (b): add or rename the mask"
    )
    dataset = load_pairs(tmp_path, tmp_path, only_annotated=True)
    assert (dataset.stems, dataset.messages) == (["a"], ["1 of 2 images has a mask; the others are left out"])
    save(tmp_path / "b_mask.png", MASK)
    assert [(entry.stem, entry.mask.stem) for entry in pair(tmp_path, tmp_path)] == [
        ("a", "a_mask"),
        ("b", "b_mask"),
    ]
    assert pair(tmp_path / "a.png", tmp_path) == [("a", tmp_path / "a.png", tmp_path / "a_mask.png")]


def test_the_same_picture_under_several_names_is_told(complete):
    images, masks = complete
    for stem in ("c", "d"):
        save(images / f"{stem}.png", picture("b"))
        save(masks / f"{stem}.png", MASK)
    assert load_pairs(images, masks).messages == ["the same picture 3 times: b, c, d"]


def test_a_folder_of_masks_may_hold_the_images_too(folders):
    images, masks = folders
    for stem in "ab":
        save(images / f"{stem}.png", picture(stem))
        save(masks / f"{stem}.png", picture(stem))
        save(masks / f"{stem}_mask.png", MASK)
    dataset = load_pairs(images, masks)
    assert dataset.stems == ["a", "b"]
    assert dataset.messages == [f"{masks} holds images too (a, b): masks are the files with a suffix"]
    (masks / "b_mask.png").unlink()
    assert complaint(pair, images, masks) == "a: 2 masks (a, a_mask), expected one: remove the others"
    assert complaint(pair, images / "a.png", masks).startswith(f"{images / 'a.png'}: 2 masks of the name a (")


@pytest.mark.parametrize(
    "names",
    [
        {"21_training": "21_manual1", "22_training": "22_manual1"},  # DRIVE
        {"case_001_0000": "case_001", "case_012_0000": "case_012"},  # nnU-Net
        {"IMG_001": "img_001", "IMG_002": "Img_002"},
        {"day 1/raw 3": "Day 1/seg-3", "day 2/raw 3": "Day 2/seg-3"},
        {"image_1": "label 001", "image_10": "label 010"},
    ],
)
def test_names_that_differ_by_case_and_role_are_paired_and_told(folders, names):
    images, masks = folders
    for image, mask in names.items():
        save(images / f"{image}.png", NOISE)
        save(masks / f"{mask}.png", MASK)
    found = match(images, masks)
    found.refuse()
    pairs = {entry.stem: entry.mask.relative_to(masks).with_suffix("").as_posix() for entry in found.pairs}
    assert pairs == names
    told = ", ".join(f"{image} with {mask}" for image, mask in sorted(names.items()))
    assert found.notes == [f"2 images paired by the rest of the name: {told}"]


@pytest.mark.parametrize(
    "names",
    [
        {"a1": "b1", "a2": "b2"},
        {"image": "mask", "img": "label"},  # nothing is left of them
        {"2024-01-05_img3": "2024-01-05_img4"},
        {"exp1_raw4": "exp1_mask5"},
        {"plate1_img1": "plate1_mask2"},
        {"mouse_1_test_1": "mouse_1_test_2"},
        {"conc0.05": "conc0.5"},
        {"a+": "a-"},
        {"train/1": "test/1"},
        {"cell_1": "CELL_01", "cell_01": "CELL_001"},  # the same for both
        {"scan_1": "scan_1_v2", "scan_2": "scan_2_v2"},
    ],
)
def test_names_that_may_mean_two_images_are_not_paired(folders, names):
    images, masks = folders
    for image, mask in names.items():
        save(images / f"{image}.png", NOISE)
        save(masks / f"{mask}.png", MASK)
    found = match(images, masks)
    assert found.pairs == []
    assert found.faults


def test_a_pattern_pairs_other_names(folders):
    images, masks = folders
    for name in ("day 1/a", "day 1/b"):
        save(images / f"{name}_scan.png", NOISE)
        save(masks / f"{name}_v2.png", MASK)
    save(images / "plain.png", NOISE)
    save(masks / "plain.png", MASK)
    found = pair(images, masks, pattern="*_scan=*_v2")
    assert [(one.stem, one.mask.stem) for one in found] == [
        ("day 1/a_scan", "a_v2"),
        ("day 1/b_scan", "b_v2"),
        ("plain", "plain"),
    ]
    assert load_pairs(images, masks, pattern="*_scan=*_v2").stems == ["day 1/a_scan", "day 1/b_scan", "plain"]
    assert not inspect_images(images, masks, pattern="*_scan=*_v2").faults
    assert "no image is called like *_raw, there are day 1/a_scan" in complaint(
        pair, images, masks, pattern="*_raw=*"
    )
    for pattern in ("*_raw", "a=b", "*=*=*", "**=*", ""):
        assert "give what images and their masks are called, IMAGE=MASK" in complaint(
            pair, images, masks, pattern=pattern
        )


def test_a_number_that_two_images_have_pairs_nothing(folders):
    images, masks = folders
    for name in ("1", "image_1", "img_2", "image_2"):
        save(images / f"{name}.png", NOISE)
    for name in ("mask_1", "mask_2"):
        save(masks / f"{name}.png", MASK)
    assert match(images, masks, only_annotated=True).pairs == []
    # in one folder a mask is one of an image of its number, not of a bare number
    for name in ("mask_1", "mask_2"):
        save(images / f"{name}.png", MASK)
    assert [path.stem for path in list_images(images)] == ["1", "image_1", "image_2", "img_2", "mask_2"]


def test_files_called_seg_are_images_where_all_have_masks_of_their_own(folders):
    images, masks = folders
    for name in ("1", "seg1"):
        save(images / f"{name}.png", NOISE)
        save(masks / f"{name}.png", MASK)
    assert [(one.stem, one.mask.stem) for one in pair(images, masks)] == [("1", "1"), ("seg1", "seg1")]


@pytest.mark.parametrize("together", [True, False])
def test_masks_may_be_numbered_as_their_images(tmp_path, together):
    masks = tmp_path / ("i" if together else "m")
    for image, mask in {"image_02": "mask_02", "Image-1": "Mask1", "img3": "GT_3"}.items():
        save(tmp_path / "i" / f"{image}.png", NOISE)
        save(masks / f"{mask}.png", MASK)
    assert {one.stem: one.mask.stem for one in pair(tmp_path / "i", masks)} == {
        "Image-1": "Mask1",
        "image_02": "mask_02",
        "img3": "GT_3",
    }
    assert [path.stem for path in list_images(tmp_path / "i")] == ["Image-1", "image_02", "img3"]


def test_a_suffix_that_all_masks_share_is_told(folders):
    images, masks = folders
    for stem in "ab":
        save(images / f"{stem}.png", picture(stem))
        save(masks / f"{stem}_drawn.png", MASK)
    assert complaint(pair, images, masks).endswith("every mask's name ends in '_drawn': take that off")
    save(masks / "c.png", MASK)
    assert "take that off" not in complaint(pair, images, masks)


def test_grey_images_among_colour_ones_are_read_as_colour(folders):
    images, masks = folders
    for stem, image in (("a", NOISE), ("b", NOISE[:, :, 0]), ("c", np.repeat(NOISE[:, :, 1:2], 3, axis=2))):
        save(images / f"{stem}.png", image)
        save(masks / f"{stem}.png", MASK)
    dataset = load_pairs(images, masks)
    assert [image.shape[2] for image in dataset.images] == [3, 3, 3]
    np.testing.assert_allclose(dataset.images[1], np.repeat(NOISE[:, :, :1], 3, axis=2) / 255, rtol=1e-6)
    told = ["1 image (b) is grey and read as colour (three equal channels), as the others are"]
    assert dataset.messages == told


def test_grey_images_stored_as_rgb_are_read_as_grey_among_grey_ones(folders):
    images, masks = folders
    for stem, image in (("a", NOISE[:, :, 0]), ("b", np.repeat(NOISE[:, :, :1], 3, axis=2))):
        save(images / f"{stem}.png", image)
        save(masks / f"{stem}.png", MASK)
    dataset = load_pairs(images, masks)
    np.testing.assert_array_equal(*dataset.images)
    assert dataset.messages == [
        "1 image (b) is RGB with three equal channels and read as grey, as the others are"
    ]
    (images / "a.png").unlink()
    (masks / "a.png").unlink()
    assert load_pairs(images, masks).images[0].shape[2] == 3


def test_scribbles_and_whole_masks_in_one_folder(folders):
    save_masks(folders, {"a": [0, 1, 2], "b": [1, 2], "c": [1, 2]})
    dataset = load_pairs(*folders, unlabelled=0)
    assert dataset.label_map.values == (1, 2)
    assert dataset.messages == ["1 mask annotated in part (a) and 2 as a whole (b, c): all are used"]
    told = complaint(load_pairs, *folders)
    assert told == (
        "masks hold 1 and 2, and 0 in 1 mask (a): if 0 marks pixels nobody annotated, --set data.unlabelled=0; "
        "if it is a class, name all, --set data.labels='{0: NAME, 1: NAME, 2: NAME}'; "
        "if they number objects, --set data.masks=instances"
    )


def test_an_unlabelled_value_that_no_mask_holds_is_told(folders):
    save_masks(folders, {"a": [0, 1], "b": [0, 1]})
    told = ["no mask holds 9, the value of unlabelled pixels: every pixel counts as annotated"]
    assert load_pairs(*folders, unlabelled=9).messages == told


def test_an_unlabelled_value_that_no_mask_holds_is_told_where_the_others_are_too_many(folders):
    """Such as 300 in place of 200: nothing else would tell."""
    save_masks(folders, {"a": [0, 1, 200], "b": [0, 1, 200]})
    assert complaint(load_pairs, *folders, unlabelled=300).startswith(
        "no mask holds 300, given as data.unlabelled; masks hold 3 values (0, 1 and 200), and which class each is"
    )
    assert complaint(load_pairs, *folders).startswith("masks hold 3 values")


def test_values_of_one_class_are_joined(folders):
    save_masks(folders, {"a": [0, 1], "b": [0, 2, 9], "c": [1, 2]})
    labels = {0: "ground", 1: "cell", 2: "cell"}
    dataset = load_pairs(*folders, labels=labels, unlabelled=9)
    np.testing.assert_array_equal(np.unique(dataset.label_map.encode(dataset.masks[1])), [0, 1, 255])
    told = [message.split(":")[0] for message in dataset.messages if " only " in message]
    assert told == ["1 mask of cell only (c)"]
    report = inspect_images(*folders, labels=labels, unlabelled=9)
    assert report.class_counts == {"ground": 24 + 16, "cell": 24 + 16 + 48}


SCRIBBLE = np.where(NOISE[:, :, 0] > 200, 1, np.where(NOISE[:, :, 0] < 60, 0, 9)).astype(np.uint8)


def test_only_annotated_images(complete):
    images, masks = complete
    for number in range(3):
        save(images / f"c{number}.png", NOISE)
    assert [entry.stem for entry in pair(images, masks, only_annotated=True)] == ["a 1", "b", "süß/ñ"]
    note = ["3 of 6 images have a mask; the others are left out"]
    dataset = load_pairs(images, masks, only_annotated=True)
    assert (dataset.stems, dataset.messages) == (["a 1", "b", "süß/ñ"], note)


def test_masks_without_a_labelled_pixel_are_left_out(folders):
    images, masks = folders
    for stem, mask in (("a", SCRIBBLE), ("b", np.full_like(SCRIBBLE, 9)), ("c", SCRIBBLE)):
        save(images / f"{stem}.png", picture(stem))
        save(masks / f"{stem}.png", mask)
    save(images / "d.png", NOISE)
    notes = [
        "3 of 4 images have a mask; the others are left out",
        "1 mask without a labelled pixel left out (b)",
    ]
    for read in (load_pairs, inspect_images):
        found = read(images, masks, unlabelled=9, only_annotated=True)
        assert (found.stems, found.messages) == (["a", "c"], notes)
    (images / "d.png").unlink()
    assert "b: mask has no labelled pixel" in complaint(load_pairs, images, masks, unlabelled=9)
    for stem in "ac":
        save(masks / f"{stem}.png", np.full_like(SCRIBBLE, 9))
    assert complaint(load_pairs, images, masks, unlabelled=9, only_annotated=True) == (
        "masks hold no labelled pixel, expected at least two classes: add an image in which another class is annotated"
    )


def test_what_only_annotated_still_refuses(complete, tmp_path):
    images, masks = complete
    save(images / "c.png", NOISE)
    save(masks / "d.png", MASK)
    assert complaint(pair, images, masks, only_annotated=True) == (
        "1 mask without image of the same name (d): add or rename the image"
    )
    assert complaint(pair, images / "c.png", masks, only_annotated=True) == (
        f"{images / 'c.png'}: no mask of the name c in {masks}: add or rename it, or give the mask file"
    )
    other = save(tmp_path / "other" / "z.png", MASK).parent
    assert complaint(pair, images, other, only_annotated=True) == (
        "2 faults: 4 images without mask of the same name (a 1, b, c, süß/ñ): add or rename the mask; "
        "1 mask without image of the same name (z): add or rename the image"
    )


def test_of_only_annotated_images_some_may_have_no_objects(complete, tmp_path):
    images, masks = complete
    save(images / "c.png", NOISE)
    objects = tmp_path / "objects"
    numbered = measure.label(MASK > 0, connectivity=2).astype(np.uint8)
    for stem in ("a 1", "b", "c"):
        save(objects / f"{stem}.png", numbered)
    assert complaint(load_pairs, images, masks, instances=objects).endswith("add or rename the mask")
    found = load_pairs(images, masks, instances=objects, only_annotated=True)
    assert found.stems == ["a 1", "b", "süß/ñ"]
    told = f"1 image with a mask and without objects in {objects} (süß/ñ): not known which objects are there"
    assert told in found.messages
    assert [bool(numbers.any()) for numbers in found.instances] == [True, True, False]
