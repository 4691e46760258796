"""Masks that number objects among images: recognised, asked for, refused; outlines beside images; objects apart."""

import json
import zlib

import numpy as np
import pytest
import tifffile

from segkit.errors import InputError
from segkit.images import inspect_images, load_pairs, pair, write_geojson, write_labels, write_rois
from segkit.images.numbering import (
    Mask,
    check_numbers,
    describe_broken,
    look_like_instances,
    number_objects,
    summarise_objects,
)
from tests.images.conftest import complaint as error_of
from tests.images.conftest import save

SHAPE = (40, 48)
NOISE = np.random.default_rng(0).integers(0, 255, SHAPE).astype(np.uint8)


def noise(stem):
    """Noise of its own for each image: copies of a picture are told of."""
    return np.roll(NOISE, zlib.crc32(stem.encode()) % NOISE.size)


def squares(n_objects, side=4, pitch=6):
    """Objects 1..n in rows, from the upper left corner on."""
    labels = np.zeros(SHAPE, dtype=np.uint16)
    for number in range(n_objects):
        row, column = (number // 8) * pitch, (number % 8) * pitch
        labels[row : row + side, column : column + side] = number + 1
    return labels


def save_all(folders, masks):
    images, folder = folders
    for stem, mask in masks.items():
        save(images / f"{stem}.png", noise(stem))
        save(folder / f"{stem}.png", mask)
    return folders


def complaint(*args, **kwargs):
    told = error_of(load_pairs, *args, **kwargs)
    assert inspect_images(*args, **kwargs).faults == [told]
    return told


def test_numbered_objects_are_recognised(folders):
    save_all(folders, {"a": squares(12), "b": squares(30), "c": squares(0)})
    dataset = load_pairs(*folders)
    assert dataset.describe() == dataset.messages
    assert dataset.messages == [
        "masks number objects: 42 objects in 3 masks",
        "1 mask of background only (c): right if there is nothing else to see, else annotate the rest",
    ]
    assert dataset.label_map.values == (0, 255)
    assert dataset.label_map.names == ("background", "object")
    assert dataset.label_map.unlabelled is None
    for labels, mask, n_objects in zip(dataset.instances, dataset.masks, (12, 30, 0), strict=True):
        assert (labels.dtype, mask.dtype) == (np.int32, np.uint8)
        np.testing.assert_array_equal(labels, squares(n_objects))
        np.testing.assert_array_equal(mask, np.where(labels, 255, 0))


def test_classes_are_read_as_before(folders):
    save_all(folders, {"a": (squares(9) > 0).astype(np.uint8), "b": (squares(30) > 0).astype(np.uint8)})
    dataset = load_pairs(*folders)
    assert dataset.instances is None
    assert dataset.describe() == ["masks hold 0 and 1: read as background and foreground"]
    assert load_pairs(*folders, masks_are="classes").label_map == dataset.label_map


def test_named_classes_are_no_objects(folders):
    save_all(folders, {"a": squares(12)})
    labels = {value: "cell" if value else "ground" for value in range(13)}
    dataset = load_pairs(*folders, labels=labels)
    assert dataset.instances is None
    assert dataset.label_map.names == ("ground", "cell")
    told = "data.labels names classes, but data.masks=instances numbers objects: leave one of the two out"
    assert complaint(*folders, labels=labels, masks_are="instances") == told


def test_few_values_are_asked_about(folders):
    save_all(folders, {"a": squares(3), "b": squares(4)})
    assert complaint(*folders).endswith("; if they number objects, --set data.masks=instances")
    assert complaint(*folders, masks_are="classes").startswith("masks hold 5 values")
    dataset = load_pairs(*folders, masks_are="instances")
    assert dataset.messages == ["masks number objects: 7 objects in 2 masks"]


def test_many_values_in_many_pieces_are_asked_about(folders):
    rng = np.random.default_rng(0)
    blurred = np.where(squares(30) > 0, rng.integers(1, 255, SHAPE), 0).astype(np.uint8)
    save_all(folders, {"a": blurred})
    assert "if they number objects, --set data.masks=instances" in complaint(*folders)
    assert complaint(*folders, masks_are="instances").endswith(
        "values of the masks are in several pieces, expected each object in one: if values are classes, "
        "--set data.masks=classes"
    )


def looks_numbered(masks, unlabelled=None):
    return look_like_instances([Mask(mask, unlabelled).numbers for mask in masks])


MANY, FEW, EMPTY = (squares(n_objects).astype(int) for n_objects in (20, 4, 0))


def test_many_numbers_in_one_piece_each_are_objects():
    assert looks_numbered([MANY])
    assert looks_numbered([MANY.astype(np.uint32) * 70_000])
    assert looks_numbered([EMPTY, FEW + 20 * (FEW > 0), FEW, FEW + 10 * (FEW > 0)])
    assert looks_numbered([np.where(MANY == 3, 1, MANY)])  # one of 19 in two pieces


def test_others_are_classes():
    for mask in (
        (MANY > 0).astype(int),
        FEW,
        EMPTY,
        MANY % 11,  # each number in two squares
        MANY + 1,  # no background
        np.where(MANY == 1, -1, MANY),
        np.random.default_rng(0).integers(0, 20, (30, 30)),  # noise
        np.tile(np.r_[0, 60:200, 255], (40, 1))[:, ::-1] * (np.arange(40)[:, None] % 2),  # blurred edges
    ):
        assert not looks_numbered([mask])


def test_the_unlabelled_value_is_no_object():
    mask = np.where((np.indices(MANY.shape).sum(axis=0) % 7 == 0) & (MANY == 0), 255, MANY)
    assert looks_numbered([mask], unlabelled=255)
    eleven = np.where(MANY > 10, 255, MANY)
    assert looks_numbered([eleven])
    assert not looks_numbered([np.where(MANY > 9, 255, MANY)], unlabelled=255)


def test_objects_that_touch_at_a_corner_are_one_piece():
    image = np.kron(np.eye(12, dtype=int), np.eye(4, dtype=int)) * np.arange(1, 13).repeat(4)
    assert looks_numbered([image])


def test_blurred_edges_are_no_objects():
    """Every grey of an edge may occur once, and would be an object of one pixel."""
    mask = np.zeros(SHAPE, dtype=np.uint8)
    mask[10:30, 10:30] = 255
    mask[9, 10:30] = np.arange(20, 40)
    assert number_objects(mask).n_pieces.max() == 1
    assert not look_like_instances([number_objects(mask)])


def test_objects_of_four_pixels_are_recognised_and_of_three_are_not():
    labels = squares(12, side=2)
    assert look_like_instances([number_objects(labels)])
    labels[::6, ::6] = 0
    assert not look_like_instances([number_objects(labels)])


def test_one_object_may_have_any_number(folders):
    save_all(folders, {"a": (squares(1) > 0).astype(np.uint8)})
    dataset = load_pairs(*folders, masks_are="instances")
    assert dataset.messages == ["masks number objects: 1 object in 1 mask"]


def test_one_value_for_all_objects_is_refused(folders):
    save_all(folders, {"a": np.where(squares(43), 255, 0).astype(np.uint8)})
    assert complaint(*folders, masks_are="instances") == (
        "data.masks=instances, but value 255 is in 43 pieces: one value for all objects, expected one for each: "
        "number the objects, or --set data.masks=classes"
    )


def test_objects_in_several_pieces_are_told(folders):
    labels = squares(20)
    labels[36:38, 40:44] = 7
    save_all(folders, {"a": labels, "b": squares(14)})
    dataset = load_pairs(*folders)
    assert dataset.messages[1] == "1 object in several pieces (a): each is kept as one object"
    np.testing.assert_array_equal(dataset.instances[0], labels)


def test_numbers_that_8_bits_cut_are_told():
    labels = np.zeros((60, 100), dtype=int)
    labels[::2, ::2].flat[:260] = np.arange(1, 261) % 256
    [told] = describe_broken({"a": Mask(labels)})
    assert told == (
        "4 objects in several pieces (a): each is kept as one object; if 8 bits were too few for more than 255 "
        "objects, save them anew with 16 bits"
    )
    labels[::2, ::2].flat[:500] = np.arange(1, 501) % 256
    cure = "--set data.masks=classes"
    fault = error_of(check_numbers, {"a": Mask(labels)}, key="data.masks=instances", cure=cure)
    assert fault.endswith("; if 8 bits were too few for more than 255 objects, save them anew with 16 bits")


def test_unlabelled_pixels_are_neither_class_nor_object(folders):
    labels = squares(20)
    labels[38:] = 99
    save_all(folders, {"a": labels, "b": squares(12)})
    dataset = load_pairs(*folders, unlabelled=99)
    assert dataset.label_map.unlabelled == 128
    assert dataset.messages == [
        "masks number objects: 32 objects in 2 masks",
        "1 mask annotated in part (a) and 1 as a whole (b): all are used",
    ]
    np.testing.assert_array_equal(dataset.instances[0], squares(20))
    np.testing.assert_array_equal(dataset.masks[0][36:, 40:], np.repeat([[0], [128]], 2, axis=0).repeat(8, 1))
    assert load_pairs(*folders, unlabelled=98).messages[-1].startswith("no mask holds 98, the value")


def test_many_objects_and_wrong_ids(folders):
    images, masks = folders
    for folder in folders:
        folder.mkdir()
    labels = np.kron(np.arange(1, 70_001).reshape(250, 280), np.ones((3, 3), dtype=int))
    labels[::3] = 0
    tifffile.imwrite(
        images / "a.tif", np.arange(labels.size, dtype=np.uint32).reshape(labels.shape) % 251 / 251
    )
    tifffile.imwrite(masks / "a.tif", labels.astype(np.uint32))
    assert load_pairs(images, masks).messages == ["masks number objects: 70,000 objects in 1 mask"]
    tifffile.imwrite(masks / "a.tif", labels.astype(np.float32))
    assert load_pairs(images, masks).instances[0].max() == 70_000
    tifffile.imwrite(masks / "a.tif", -labels.astype(np.int32))
    assert "ids of objects from -70000 to -1, expected 0" in complaint(images, masks, masks_are="instances")


def test_pages_are_numbered_apart(folders):
    images, masks = folders
    images.mkdir()
    masks.mkdir()
    tifffile.imwrite(
        images / "s.tif", np.stack([NOISE, NOISE[::-1]]), photometric="minisblack", metadata={"axes": "ZYX"}
    )
    tifffile.imwrite(masks / "s.tif", np.stack([squares(12), squares(9)]), photometric="minisblack")
    dataset = load_pairs(images, masks)
    assert dataset.stems == ["s#1", "s#2"]
    assert [labels.max() for labels in dataset.instances] == [12, 9]
    (masks / "s.tif").unlink()
    write_geojson(masks / "s.geojson", squares(3))
    assert complaint(images, masks) == (
        f"{masks / 's.geojson'}: outlines for 2 pages of {images / 's.tif'}, expected one page: save each page as a file"
    )


@pytest.mark.parametrize(
    ("pattern", "beside"),
    [
        ("{}.zip", False),
        ("{}_RoiSet.zip", True),
        ("RoiSet_{}.zip", False),
        ("{}_objects.geojson", False),
        ("{}_mask.json", True),
    ],
)
def test_outlines_are_masks(folders, pattern, beside):
    pytest.importorskip("roifile")
    images, masks = folders
    masks = images if beside else masks
    for stem, n_objects in (("a", 2), ("sub/b 1", 3)):
        save(images / f"{stem}.png", noise(stem))
        path = (masks / stem).with_name(pattern.format(stem.rpartition("/")[2]))
        (write_rois if path.suffix == ".zip" else write_geojson)(path, squares(n_objects))
    assert [entry.stem for entry in pair(images, masks)] == ["a", "sub/b 1"]
    dataset = load_pairs(images, masks)
    assert dataset.messages == ["masks number objects: 5 objects in 2 masks"]
    np.testing.assert_array_equal(dataset.instances[1], squares(3))
    one = load_pairs(images / "sub" / "b 1.png", masks)
    assert one.messages == ["masks number objects: 3 objects in 1 mask"]
    given = load_pairs(images / "a.png", masks / pattern.format("a"))
    np.testing.assert_array_equal(given.instances[0], squares(2))


def test_outlines_beside_other_files(folders):
    images, masks = save_all(folders, {"a": squares(12), "b": squares(12)})
    (masks / "a.json").write_text('{"stage": 3}')
    (masks / "readme.json").write_text("{}")
    dataset = load_pairs(images, masks)
    assert dataset.messages == [
        "masks number objects: 24 objects in 2 masks",
        f"1 file of outlines beside masks of the same name left out ({masks / 'a.json'})",
    ]
    (masks / "a.json").unlink()
    (masks / "a.png").unlink()
    write_geojson(masks / "a.geojson", squares(3))
    assert load_pairs(images, masks).messages == ["masks number objects: 15 objects in 2 masks"]
    save(masks / "b.png", np.where(squares(9), 255, 0).astype(np.uint8))
    assert complaint(images, masks) == (
        "masks beside outlines have to number objects, but value 255 is in 9 pieces: one value for all objects, "
        "expected one for each: number the objects, or give outlines for these images too"
    )
    for options in ({"labels": {0: "ground", 255: "cell"}}, {"masks_are": "classes"}):
        assert "1 mask of outlines (a), which number objects, expected masks of classes" in complaint(
            images, masks, **options
        )


def coco(images, **options):
    square = [[0, 0, 4, 0, 4, 4, 0, 4]]
    return {
        "images": [{"id": n, "file_name": f"{stem}.jpg", **options} for n, stem in enumerate(images)],
        "annotations": [
            {"image_id": 1, "segmentation": square},
            {"image_id": 1, "segmentation": [[8, 8, 9, 8, 9, 9]]},
        ],
    }


def test_one_coco_file_for_all_images(folders, tmp_path):
    images, _ = folders
    for stem in "ab":
        save(images / f"{stem}.png", noise(stem))
    (tmp_path / "coco.json").write_text(json.dumps(coco("abc", height=40, width=48)))
    assert complaint(images, tmp_path / "coco.json") == (
        "1 image without any outline of an object (a): nothing there, or not annotated yet? If nothing, "
        "--set data.masks=instances; else annotate them, or train without such images (--set data.only_annotated=true, in "
        "Python only_annotated=True)"
    )
    dataset = load_pairs(images, tmp_path / "coco.json", only_annotated=True)
    assert dataset.stems == ["b"]
    dataset = load_pairs(images, tmp_path / "coco.json", masks_are="instances")
    assert dataset.messages == [
        "masks number objects: 2 objects in 2 masks",
        "coco.json has 1 entry without image (c): left out",
        "1 mask of background only (a): right if there is nothing else to see, else annotate the rest",
    ]
    assert np.count_nonzero(dataset.instances[1]) == 17
    assert load_pairs(images / "b.png", tmp_path / "coco.json").instances[0].max() == 2
    (tmp_path / "coco.json").write_text(json.dumps(coco("ac")))
    with pytest.raises(
        InputError, match=r"1 image without entry in coco.json \(b\): annotate or remove the image"
    ):
        load_pairs(images, tmp_path / "coco.json")
    (tmp_path / "coco.json").write_text(json.dumps(coco("ca", height=40, width=48)))
    dataset = load_pairs(images, tmp_path / "coco.json", only_annotated=True)
    assert (dataset.stems, dataset.messages[1]) == (
        ["a"],
        "1 of 2 images has a mask; the others are left out",
    )
    (tmp_path / "coco.json").write_text(json.dumps(coco("ab", height=4, width=48)))
    with pytest.raises(
        InputError, match=r"^2 faults: .*\(a\), .*\(b\): outlines for an image of 4 x 48 pixels"
    ):
        load_pairs(images, tmp_path / "coco.json")
    write_geojson(tmp_path / "coco.json", squares(3))
    assert "objects of one image for a folder of images" in complaint(images, tmp_path / "coco.json")


def test_objects_beside_masks_of_classes(folders, tmp_path):
    labels = squares(4)
    classes = np.where(labels > 2, 2, np.minimum(labels, 1)).astype(np.uint8)
    classes[0, 0], classes[20, 20], classes[3, 6] = 0, 1, 2
    images, masks = save_all(folders, {"a": classes, "b": classes})
    names = {0: "ground", 1: "cell", 2: "dead"}
    write_labels(tmp_path / "objects" / "a.png", labels)
    write_geojson(tmp_path / "objects" / "b.geojson", labels)
    dataset = load_pairs(images, masks, labels=names, instances=tmp_path / "objects")
    np.testing.assert_array_equal(dataset.masks[0], classes)
    np.testing.assert_array_equal(dataset.instances, [labels] * 2)
    assert dataset.describe() == [
        "masks hold 0, 1 and 2: read as ground, cell and dead",
        "2 pixels of objects are ground in the masks",
        "2 pixels of other classes than ground belong to no object",
        "2 objects of several classes: the class of most pixels counts",
    ]
    report = inspect_images(images, masks, labels=names, instances=tmp_path / "objects")
    assert report.objects == (8, 16.0, 8)
    assert "  objects         8, median area 16 pixels, 8 at the border" in report.describe().splitlines()
    write_labels(tmp_path / "objects" / "a.png", labels[:-1])
    assert complaint(images, masks, labels=names, instances=tmp_path / "objects") == (
        f"{images / 'a.png'}: image of 40 x 48 pixels, label image of 39 x 48, expected one size: "
        "export the label image at the size of the image"
    )
    (tmp_path / "objects" / "a.png").unlink()
    with pytest.raises(InputError, match=r"1 image without mask of the same name \(a\)"):
        load_pairs(images, masks, labels=names, instances=tmp_path / "objects")
    assert "objects twice" in complaint(images, masks, masks_are="instances", labels=names, instances=masks)


def test_inspection_counts_objects(folders):
    save_all(folders, {"a": squares(12), "b": squares(30)})
    report = inspect_images(*folders)
    assert report.faults == []
    assert report.objects == (42, 16.0, 20)
    assert report.describe().splitlines()[4:] == [
        "  classes         background (82.50%), object (17.50%)",
        "  objects         42, median area 16 pixels, 20 at the border",
        "masks number objects: 42 objects in 2 masks",
    ]
    assert summarise_objects([number_objects(np.zeros((3, 3), dtype=np.int32))]).describe() == "none"


def test_numbers_of_objects():
    labels = np.array([[0, 0, 0, 0, 0], [0, 5, 0, 5, 0], [0, 5, 2, 0, 0], [0, 0, 0, 0, 9]])
    numbers = number_objects(labels)
    assert numbers.ids.tolist() == [2, 5, 9]
    assert numbers.n_pieces.tolist() == [1, 2, 1]
    assert numbers.areas.tolist() == [1, 3, 1]
    assert numbers.n_at_border == 1


@pytest.mark.parametrize("is_last", [False, True])
def test_an_outline_that_holds_several_others_may_be_a_region(folders, is_last):
    images, masks = folders
    save(images / "a.png", noise("a"))
    around = [[0, 0], [40, 0], [40, 38], [0, 38]]
    cells = [[[left, 2], [left + 5, 2], [left + 5, 7], [left, 7]] for left in (2, 9, 16)]
    rings = [*cells, around] if is_last else [around, *cells]
    features = [{"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}} for ring in rings]
    masks.mkdir()
    path = masks / "a.geojson"
    path.write_text(json.dumps(features))
    assert complaint(images, masks) == (
        f"{path}: an outline of 1,520 pixels holds 3 others: a region with objects in it, or an object? Remove the region, "
        "or give it the class Region* in QuPath; if it is an object, --set data.masks=instances"
    )
    n_objects = 1 if is_last else 4
    assert load_pairs(images, masks, masks_are="instances").instances[0].max() == 4
    assert len(np.unique(load_pairs(images, masks, masks_are="instances").instances[0])) == 1 + n_objects
    features[rings.index(around)]["properties"] = {"classification": {"name": "Region*"}}
    path.write_text(json.dumps(features))
    dataset = load_pairs(images, masks)
    assert len(np.unique(dataset.instances[0])) == 4
    assert np.unique(dataset.masks[0], return_counts=True)[1].tolist() == [
        38 * 40 - 75,
        40 * 48 - 38 * 40,
        75,
    ]


def test_a_rectangle_around_one_object_may_be_a_region(folders):
    images, masks = folders
    save(images / "a.png", noise("a"))
    masks.mkdir()
    cell = [[4, 4], [9, 5], [8, 11], [3, 8]]
    around = [[2, 2], [20, 2], [20, 20], [2, 20]]
    path = masks / "a.geojson"
    for holder, is_asked in ((around, True), ([*around[:3], [5, 22]], False), (cell, False)):
        features = [
            {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}
            for ring in (holder, cell)
        ]
        path.write_text(json.dumps(features))
        if is_asked:
            assert "an outline of 324 pixels holds 1 other: a region" in complaint(images, masks)
        else:
            load_pairs(images, masks)


def test_an_annotation_of_qupath_beside_files_with_detections_may_be_an_empty_region(folders):
    """Where no cell was detected, nothing but the region that was searched is exported."""
    images, masks = folders
    masks.mkdir()
    around, cells = [[1, 1], [30, 1], [30, 30], [1, 30]], [[[x, 4], [x + 5, 4], [x + 5, 9]] for x in (4, 12)]
    for name, rings in (("a", cells), ("b", [])):
        save(images / f"{name}.png", noise(name))
        features = [
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": [ring]},
                "properties": {"objectType": kind},
            }
            for ring, kind in [(around, "annotation"), *((ring, "detection") for ring in rings)]
        ]
        (masks / f"{name}.geojson").write_text(json.dumps(features))
    assert complaint(images, masks) == (
        f"{masks / 'b.geojson'}: annotations in b.geojson, detections in a.geojson: are the annotations objects, or regions "
        "without any? Give regions the class Region* in QuPath; if all are objects, --set data.masks=instances"
    )
    assert (
        load_pairs(images, masks, masks_are="instances").messages[0]
        == "masks number objects: 3 objects in 2 masks"
    )
    features[0]["properties"]["classification"] = {"name": "Region*"}
    (masks / "b.geojson").write_text(json.dumps(features))
    assert load_pairs(images, masks).messages[0] == "masks number objects: 2 objects in 2 masks"


def test_crowds_in_pieces_may_be_groups(folders):
    images, masks = folders
    save(images / "a.png", noise("a"))
    two = [[0, 0, 4, 0, 4, 4, 0, 4], [9, 9, 14, 9, 14, 14, 9, 14]]
    annotation = {"id": 7, "image_id": 0, "iscrowd": 1, "segmentation": two}
    masks.mkdir()
    path = masks / "a.json"
    path.write_text(json.dumps({"images": [{"id": 0, "file_name": "a.png"}], "annotations": [annotation]}))
    assert complaint(images, masks) == (
        f"{path} (a): 1 mask (id 7) marked iscrowd, in pieces: objects, or groups? If objects, --set "
        "data.masks=instances; if groups, draw each object, or remove them"
    )
    assert np.count_nonzero(load_pairs(images, masks, masks_are="instances").instances[0] == 1) == 41


def save_objects(folder, labels):
    for number in range(1, labels.max() + 1):
        save(folder / f"{number * 7919:x}.png", np.where(labels == number, 255, 0).astype(np.uint8))


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_file_for_each_object(tmp_path, is_nested):
    """The layout of the Data Science Bowl, or a folder of masks with the name of each image."""
    for name, n_objects in (("a.1", 3), ("b", 4)):
        place = tmp_path / "data" / name
        save(
            place / "images" / f"{name}.png" if is_nested else tmp_path / "images" / f"{name}.png",
            noise(name),
        )
        save_objects(place / "masks" if is_nested else place, squares(n_objects))
    images = tmp_path / "data" if is_nested else tmp_path / "images"
    dataset = load_pairs(images, tmp_path / "data")
    assert dataset.stems == (["a.1/images/a.1", "b/images/b"] if is_nested else ["a.1", "b"])
    assert dataset.messages == ["masks number objects: 7 objects in 2 masks"]
    for found, n_objects in zip(dataset.instances, (3, 4), strict=True):
        np.testing.assert_array_equal(found > 0, squares(n_objects) > 0)
        assert len(np.unique(found)) == 1 + n_objects
    if is_nested:
        assert inspect_images(images).stems == dataset.stems
    else:
        assert load_pairs(images / "b.png", tmp_path / "data").instances[0].max() == 4


def test_what_is_no_folder_of_objects(folders):
    images, masks = folders
    save(images / "a.png", noise("a"))
    save_objects(masks / "a", squares(2))
    save(masks / "a" / "9.png", np.where(squares(2) == 1, 1, 0).astype(np.uint8))
    assert load_pairs(images, masks).messages == [
        "masks number objects: 2 objects in 1 mask",
        f"{masks / 'a'}: 16 pixels of several objects: the later file counts there",
    ]
    save(masks / "a" / "9.png", squares(2).astype(np.uint8))
    assert complaint(images, masks) == (
        f"{masks / 'a' / '9.png'}: values 0, 1, 2 in a folder of masks of one object each, expected 0 and another value: "
        "name it like an image"
    )
    for path in (masks / "a").iterdir():
        path.unlink()
    for name, mask in (("cytoplasm", squares(9) == 1), ("nuclei", squares(9) == 2)):
        save(masks / "a" / f"{name}.png", mask.astype(np.uint8))
    cure = "save masks of classes as one file, with a value for each class"
    assert complaint(images, masks) == (
        f"{masks / 'a'}: masks called cytoplasm.png, nuclei.png: objects, or classes? Number objects in their names; {cure}"
    )
    save(masks / "a" / "class 3.png", (squares(9) > 4).astype(np.uint8))
    for name in ("cytoplasm", "nuclei"):
        save(masks / "a" / f"{name}.png", (squares(9) > 2).astype(np.uint8))
    assert complaint(images, masks) == (
        f"{masks / 'a'}: 3 of 3 masks (class 3.png, cytoplasm.png, nuclei.png) in several pieces, expected a file for each "
        f"object: {cure}"
    )
