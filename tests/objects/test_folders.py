"""Folders of masks: what they hold is told apart, everything is read before anything is written."""

import csv
import json

import numpy as np
import pytest
import tifffile

from segkit.errors import InputError, OutputError
from segkit.images import PixelSize, write_geojson, write_image, write_labels, write_mask, write_rois
from segkit.objects import measure
from segkit.objects.folders import measure_folder


def squares(*values):
    """Squares of 5 x 5 pixels side by side, each of a value."""
    mask = np.zeros((12, 4 + 8 * len(values)), dtype=np.uint8)
    for position, value in enumerate(values):
        mask[3:8, 3 + 8 * position : 8 + 8 * position] = value
    return mask


@pytest.fixture
def folder(tmp_path):
    """A writer of masks and, of the same names, images 10 times as bright."""

    def write(masks, images=True):
        for name, mask in masks.items():
            write_mask(tmp_path / "masks" / f"{name}.png", mask)
            if images:
                picture = np.repeat(np.minimum(mask[:, :, np.newaxis] / 25.5, 1), 3, axis=2)
                write_image(tmp_path / "images" / f"{name.removesuffix('_mask')}.png", picture)
        return tmp_path

    return write


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def complaint(error_class, *args, **options):
    with pytest.raises(error_class) as error:
        measure_folder(*args, **options)
    return str(error.value)


def areas(root, out="out", **options):
    """Areas of the objects of each mask."""
    return [image.areas.tolist() for image in measure_folder(root / "masks", root / out, **options).images]


def test_masks_that_number_objects(folder):
    root = folder({"a/one": squares(1, 2, 3), "two": squares(5)})
    result = measure_folder(root / "masks", root / "out", masks_are="instances")
    assert result.messages == ["masks number objects: 4 objects in 2 masks"]
    assert [(row["image"], row["label"]) for row in read(root / "out" / "objects.csv")] == [
        ("a/one", "1"), ("a/one", "2"), ("a/one", "3"), ("two", "5"),
    ]  # fmt: skip
    assert [image.areas.tolist() for image in result.images] == [[25, 25, 25], [25]]
    assert result.files == [root / "out" / "objects.csv", root / "out" / "images.csv"]


def test_masks_of_two_values_are_classes(folder):
    root = folder({"a": squares(255, 255), "b": squares(0), "c": squares(255)})
    result = measure_folder(root / "masks", root / "out")
    assert result.messages == [
        "masks hold 0 and 255: read as background and foreground; objects are the connected regions of foreground"
    ]
    assert [image.areas.size for image in result.images] == [2, 0, 1]
    assert {row["class"] for row in read(root / "out" / "objects.csv")} == {"foreground"}


def test_masks_without_a_labelled_pixel_are_said_to_be_so(folder):
    root = folder({"a": np.full((20, 20), 9, np.uint8)})
    result = measure_folder(root / "masks", root / "out", unlabelled=9)
    assert result.messages == ["masks hold no labelled pixel: no objects"]


@pytest.mark.parametrize("value", [0, 9])
def test_masks_without_an_object_are_said_to_be_so(folder, value):
    root = folder({"a": squares(0), "b": squares(value)})
    result = measure_folder(root / "masks", root / "out", unlabelled=value or None)
    assert result.messages == ["masks hold nothing but background: no objects"]
    assert [image.areas.size for image in result.images] == [0, 0]


def test_pixels_are_connected_by_corners(folder):
    mask = np.zeros((6, 6), dtype=np.uint8)
    np.fill_diagonal(mask, 255)
    root = folder({"a": mask})
    assert areas(root) == [[6]]


def test_masks_of_several_classes(folder):
    root = folder({"a": squares(1, 1, 2), "b": squares(2, 2, 2)})
    result = measure_folder(root / "masks", root / "out")
    assert result.messages == [
        "masks hold 0, 1 and 2: read as background, 1 and 2; objects are the connected regions of 1, 2"
    ]
    assert [image.counts for image in result.images] == [{"1": 2, "2": 1}, {"2": 3}]
    names = {0: "ground", 1: "cell", 2: "debris", 9: "ghost"}
    result = measure_folder(root / "masks", root / "named", labels=names)
    assert [image.counts for image in result.images] == [{"cell": 2, "debris": 1}, {"debris": 3}]
    [first, _] = read(root / "named" / "images.csv")
    assert [first[f"count_{name}"] for name in ("cell", "debris", "ghost")] == ["2", "1", "0"]


def test_what_masks_hold_can_be_said(folder):
    root = folder({"a": squares(1, 2, 2), "b": squares(1, 2, 3)})
    assert areas(root, "classes", masks_are="classes") == [[25, 25, 25], [25, 25, 25]]
    assert areas(root, "instances", masks_are="instances") == [[25, 50], [25, 25, 25]]


def test_pixels_nobody_annotated_are_no_object(folder):
    root = folder({"a": squares(1, 9, 9), "b": squares(1, 2, 9)})
    assert areas(root, unlabelled=9, masks_are="instances") == [[25], [25, 25]]
    result = measure_folder(root / "masks", root / "named", unlabelled=9, labels={0: "no", 1: "a", 2: "b"})
    assert [image.counts for image in result.images] == [{"a": 1}, {"a": 1, "b": 1}]


def test_pixels_nobody_annotated_do_not_make_numbers_classes(folder):
    mask = np.vstack([squares(*range(1, 12))] * 2)
    mask[12:] = 0
    mask[14:20:2] = 255
    root = folder({"a": mask})
    result = measure_folder(root / "masks", root / "out", unlabelled=255)
    assert result.messages[0].startswith("masks number objects")
    assert result.images[0].areas.tolist() == [25] * 11


@pytest.mark.parametrize("unlabelled", [0, 255])
def test_the_lowest_annotated_value_is_the_background(folder, unlabelled):
    mask = np.full((12, 30), 1, dtype=np.uint8)
    mask[2:5, 2:5] = mask[2:5, 12:15] = 2
    mask[8:] = unlabelled
    root = folder({"a": mask, "b": np.where(mask == 2, 1, mask)})
    for masks_are in (None, "classes"):
        assert areas(root, f"{masks_are}", unlabelled=unlabelled, masks_are=masks_are) == [[9, 9], []]


def test_cells_side_by_side_need_no_background(folder):
    mask = np.kron(np.arange(1, 13).reshape(3, 4), np.ones((5, 5))).astype(np.uint8)
    root = folder({"a": mask})
    message = complaint(InputError, root / "masks", root / "out")
    assert "if they number objects, --set data.masks=instances" in message
    assert areas(root, masks_are="instances") == [[25] * 12]


def test_masks_without_any_object(folder):
    root = folder({"a": squares(0), "b": squares(0)})
    assert areas(root) == [[], []]
    assert read(root / "out" / "objects.csv") == []
    assert [row["count"] for row in read(root / "out" / "images.csv")] == ["0", "0"]


def test_intensities_are_values_of_the_image_file(folder):
    root = folder({"a_mask": squares(1, 2), "b_mask": squares(2, 3)})
    write_image(root / "images" / "c.png", np.ones((4, 4)))
    options = {"images": root / "images", "pixel_size": 0.5, "masks_are": "instances"}
    result = measure_folder(root / "masks", root / "out", **options)
    assert result.messages[1:] == ["1 image without a mask left out (c)"]
    rows = read(root / "out" / "objects.csv")
    assert [(row["image"], row["intensity_mean-1"]) for row in rows] == [
        ("a", "10"), ("a", "20"), ("b", "20"), ("b", "30"),
    ]  # fmt: skip
    assert {row["area_um2"] for row in rows} == {"6.25"}


def test_columns_have_the_names_of_channels(tmp_path):
    """And otherwise those of `measure`."""
    labels = squares(1, 2)
    picture = np.stack([10 * labels, 20 * labels + 1]).astype(np.uint16)
    write_mask(tmp_path / "masks" / "a.png", labels)
    for name, options in {
        "a.ome.tif": {"metadata": {"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP"]}}},
        "a.tif": {"imagej": True, "metadata": {"axes": "CYX", "Labels": ["c:1/2 - DAPI", "c:2/2 - GFP"]}},
    }.items():
        image = tmp_path / name / name
        image.parent.mkdir()
        tifffile.imwrite(image, picture, photometric="minisblack", **options)
        out = tmp_path / f"out-{name}"
        measure_folder(tmp_path / "masks", out, images=image.parent, masks_are="instances")
        rows, channels = read(out / "objects.csv"), ["DAPI", "GFP"]
        assert [row["intensity_mean_DAPI"] for row in rows] == ["10", "20"]
        assert [row["intensity_mean_GFP"] for row in rows] == ["21", "41"]
        assert set(rows[0]) == {"image", *measure(labels, np.moveaxis(picture, 0, 2), channels=channels)}


def test_masks_and_images_in_one_folder(folder):
    root = folder({"a_mask": squares(1, 2)})
    write_mask(root / "images" / "a_mask.png", squares(1, 2))
    for images in (root / "images", None):
        out = root / ("with" if images else "without")
        [image] = measure_folder(root / "images", out, images=images, masks_are="instances").images
        assert image.areas.size == 2
        assert ("intensity_mean-0" in read(out / "objects.csv")[0]) == (images is not None)


def test_single_files(folder):
    root = folder({"a_mask": squares(1, 2)})
    options = {"images": root / "images" / "a.png", "masks_are": "instances"}
    [image] = measure_folder(root / "masks" / "a_mask.png", root / "out", **options).images
    assert (image.image, image.areas.size) == ("a", 2)


def test_pages_are_images(tmp_path):
    (tmp_path / "masks").mkdir()
    (tmp_path / "images").mkdir()
    pages = np.stack([squares(1, 2), squares(1, 0)])
    tifffile.imwrite(tmp_path / "masks" / "a.tif", pages, photometric="minisblack")
    tifffile.imwrite(tmp_path / "images" / "a.tif", 300 * pages.astype(np.uint16), photometric="minisblack")
    options = {"images": tmp_path / "images", "overlay": True, "masks_are": "instances"}
    result = measure_folder(tmp_path / "masks", tmp_path / "out", **options)
    rows = read(tmp_path / "out" / "objects.csv")
    assert [(row["image"], row["intensity_mean"]) for row in rows] == [
        ("a#1", "300"), ("a#1", "600"), ("a#2", "300"),
    ]  # fmt: skip
    assert [path.name for path in result.files[2:]] == ["a-001.png", "a-002.png"]
    assert all(path.is_file() for path in result.files)


def test_folders_without_masks_are_skipped(folder):
    root = folder({"a": squares(1, 2), "overlay/a": squares(9)})
    result = measure_folder(root / "masks", root / "out", skip=["overlay"], masks_are="instances")
    assert [image.image for image in result.images] == ["a"]


def test_pictures_of_an_earlier_run_are_not_left_beside_new_tables(folder):
    root = folder({"a": squares(1, 2)})
    given = root / "masks", root / "out"
    measure_folder(*given, images=root / "images", overlay=True, masks_are="instances")
    picture = root / "out" / "overlay" / "a.png"
    assert complaint(OutputError, *given, overwrite=True, masks_are="instances") == (
        f"{picture} of an earlier run would stay beside the new tables: draw them anew too (--overlay; in Python "
        "overlay=True), or choose another folder"
    )
    measure_folder(*given, images=root / "images", overlay=True, overwrite=True, masks_are="instances")


@pytest.mark.parametrize("place", ["images.csv", "overlay/a.png"])
def test_files_of_others_in_the_places_of_results_stay(folder, place):
    root = folder({"a": squares(1, 2)})
    given = root / "masks", root / "out"
    options = {"images": root / "images", "overlay": True, "overwrite": True, "masks_are": "instances"}
    measure_folder(*given, **options)
    (root / "out" / place).write_text("mine")
    before = {path: path.read_bytes() for path in (root / "out").rglob("*") if path.is_file()}
    assert complaint(OutputError, *given, **options) == (
        f"{root / 'out' / place} was not written by segkit, or changed since: move it elsewhere, or choose another folder"
    )
    assert before == {path: path.read_bytes() for path in (root / "out").rglob("*") if path.is_file()}


def test_one_message_names_all_files_that_do_not_fit(folder):
    root = folder({"a": squares(1), "b": squares(1, 2), "c": squares(1)})
    for name in "ab":
        write_image(root / "images" / f"{name}.png", np.ones((3, 4, 3)))
    cure = "expected one size: export the mask at the size of the image"
    assert complaint(
        InputError, root / "masks", root / "out", images=root / "images"
    ) == "2 faults: " + "; ".join(
        f"{root}/images/{name}.png: image of 3 x 4 pixels, mask of 12 x {width}, {cure}"
        for name, width in (("a", 12), ("b", 20))
    )
    assert not (root / "out").exists()


def test_a_mask_without_its_image(folder):
    root = folder({"a": squares(1), "b": squares(1)})
    (root / "images" / "b.png").unlink()
    assert complaint(InputError, root / "masks", root / "out", images=root / "images") == (
        f"1 mask without an image of the same name in {root / 'images'} (b): add or rename the image, or measure without "
        "--images"
    )


def test_values_that_may_be_anything(folder):
    noise = np.random.default_rng(0).integers(0, 30, (40, 40)).astype(np.uint8)
    root = folder({"a": noise})
    message = complaint(InputError, root / "masks", root / "out")
    assert message.startswith("masks hold 30 values (0, 1, 2, ")
    assert "if they number objects, --set data.masks=instances; if edges are blurred" in message
    message = complaint(InputError, root / "masks", root / "out", masks_are="instances")
    assert message == (
        "data.masks=instances, but 29 of 29 values of the masks are in several pieces, expected each object in one: if "
        "values are classes, --set data.masks=classes"
    )
    assert len(measure_folder(root / "masks", root / "out", masks_are="classes").images[0].counts) == 29


def test_a_few_values_in_one_piece_each_may_be_either(folder):
    root = folder({"a": squares(1, 2), "b": squares(3)})
    assert complaint(InputError, root / "masks", root / "out") == (
        "masks hold 4 values (0, 1, 2, 3), most in one piece, so they may number objects or be classes: say which, --set "
        "data.masks=instances or --set data.masks=classes"
    )
    for masks_are, counts in (("instances", [{}, {}]), ("classes", [{"1": 1, "2": 1}, {"3": 1}])):
        result = measure_folder(root / "masks", root / masks_are, masks_are=masks_are)
        assert [image.counts for image in result.images] == counts


@pytest.mark.parametrize("suffix", [".geojson", "_RoiSet.zip"])
def test_outlines_are_measured_like_the_label_image(folder, suffix):
    pytest.importorskip("roifile")
    masks = {"a/one": squares(*range(1, 13)), "two": squares(7, 255)}
    root = folder(masks)
    write = write_geojson if suffix == ".geojson" else write_rois
    for name, mask in masks.items():
        write(root / "outlines" / f"{name}{suffix}", mask)
    for kind in ("masks", "outlines"):
        result = measure_folder(root / kind, root / f"{kind}-out", images=root / "images", unlabelled=200)
        assert result.messages[0] == "masks number objects: 14 objects in 2 masks"
    for table in ("objects.csv", "images.csv"):
        assert read(root / "masks-out" / table) == read(root / "outlines-out" / table)
    # an object may have the value of unlabelled pixels of other masks
    result = measure_folder(root / "outlines", root / "other", images=root / "images", unlabelled=255)
    assert [image.areas.size for image in result.images] == [12, 2]
    paths = [root / "outlines" / f"{name}{suffix}" for name in masks]
    assert complaint(InputError, root / "outlines", root / "new") == (
        f"2 faults: {paths[0]}, {paths[1]}: outlines without the size of their image: give the images (--images DIR, in "
        "Python images= or shape=)"
    )
    options = {"images": root / "images", "masks_are": "classes"}
    message = complaint(InputError, root / "outlines", root / "new", **options)
    assert "2 masks of outlines (a/one, two), which number objects, expected masks of classes" in message


def test_outlines_beside_their_images(folder):
    root = folder({"a": squares(1, 2)})
    write_geojson(root / "images" / "a.geojson", squares(1, 2))
    result = measure_folder(root / "images", root / "out", images=root / "images")
    assert [(image.image, image.areas.tolist()) for image in result.images] == [("a", [25, 25])]


def test_a_coco_file_is_the_mask_of_many_images(folder):
    root = folder({"a": squares(0, 0), "b": squares(0, 0)})
    square = [[3, 3, 8, 3, 8, 8, 3, 8]]
    content = {
        "images": [{"id": n, "file_name": f"{s}.png", "height": 12, "width": 20} for n, s in enumerate("ab")],
        "annotations": [{"image_id": 1, "segmentation": square}],
    }
    path = root / "coco.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    for images in (None, root / "images"):
        result = measure_folder(path, root / f"out-{images is None}", images=images)
        assert [(image.image, image.areas.tolist()) for image in result.images] == [("a", []), ("b", [25])]
    (root / "images" / "b.png").unlink()
    assert complaint(InputError, path, root / "new", images=root / "images").startswith(
        "1 mask without an image of the same name"
    )


def test_the_size_of_a_pixel_is_read_from_the_file(folder):
    root = folder({"a": squares(0)}, images=False)
    write_labels(root / "masks" / "a.tif", squares(*range(1, 13)), PixelSize(0.5, 0.25))
    (root / "masks" / "a.png").unlink()
    write_geojson(root / "outlines" / "a.geojson", squares(*range(1, 13)))
    for masks, images in (("masks", None), ("outlines", root / "masks")):
        measure_folder(root / masks, root / f"{masks}-out", images=images)
        rows = read(root / f"{masks}-out" / "objects.csv")
        assert {row["area_um2"] for row in rows} == {"3.125"}
    measure_folder(root / "masks", root / "given", pixel_size=(2, 1))
    assert {row["area_um2"] for row in read(root / "given" / "objects.csv")} == {"50"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"overlay": True},
            "overlays need the images to draw on: give their folder (--images DIR), or no overlay",
        ),
        (
            {"masks_are": "instances", "labels": {0: "a", 1: "b"}},
            "data.labels names classes, but data.masks=instances numbers objects: leave one of the two out",
        ),
        (
            {"labels": {0: "a", 1: "b"}},
            "masks hold 2, but the label map knows 0 and 1 only: add the missing values to data.labels, or set "
            "data.unlabelled=VALUE for unlabelled pixels",
        ),
        ({"skip": ["masks"]}, "masks: no masks but in masks: give the folder of masks"),
    ],
)
def test_options_that_do_not_fit(folder, monkeypatch, options, message):
    root = folder({"masks/a": squares(1, 2)})
    monkeypatch.chdir(root)
    assert complaint(InputError, "masks", "out", **options) == message
    assert not (root / "out").exists()


def test_negative_numbers(tmp_path):
    (tmp_path / "masks").mkdir()
    tifffile.imwrite(tmp_path / "masks" / "a.tif", squares(1, 2).astype(np.int16) - 1)
    assert complaint(InputError, tmp_path / "masks", tmp_path / "out", masks_are="instances") == (
        "a: ids of objects from -1 to 1, expected 0 for background and ids from 1 to 2147483647: number the objects anew"
    )


def test_tables_are_not_written_among_the_masks(folder):
    root = folder({"a": squares(1, 2)})
    assert complaint(OutputError, root / "masks", root / "masks" / "out") == (
        f"output {root / 'masks' / 'out'} is the input folder {root / 'masks'} or inside it: choose a folder elsewhere"
    )


def write_stack(path, pages, axes="ZYX", **metadata):
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(
        path, np.array(pages, dtype=np.uint16), imagej=True, resolution=(2.0, 2.0),
        metadata={"axes": axes, "unit": "um", **metadata},
    )  # fmt: skip


def test_linked_planes_are_bodies(tmp_path):
    """Two bodies that are numbered anew in each plane, and a single page beside them."""
    masks = tmp_path / "masks"
    write_stack(masks / "a.tif", [squares(1, 2), squares(2, 1), squares(0, 7)], spacing=3.0)
    write_mask(masks / "b.png", squares(4, 5))
    result = measure_folder(masks, tmp_path / "out", masks_are="instances", link="planes")
    rows = read(tmp_path / "out" / "objects.csv")
    assert [(row["image"], row["label"], row["object_3d"]) for row in rows] == [
        ("a#1", "1", "1"), ("a#1", "2", "2"), ("a#2", "1", "2"), ("a#2", "2", "1"), ("a#3", "7", "2"),
        ("b", "4", "1"), ("b", "5", "2"),
    ]  # fmt: skip
    assert list(rows[0])[:4] == ["image", "label", "object_3d", "area"]
    volumes = read(tmp_path / "out" / "volumes.csv")
    assert [(row["image"], row["object_3d"], row["n_planes"], row["volume"]) for row in volumes] == [
        ("a", "1", "2", "50"), ("a", "2", "3", "75"), ("b", "1", "1", "25"), ("b", "2", "1", "25"),
    ]  # fmt: skip
    assert [row["volume_um3"] for row in volumes] == ["37.5", "56.25", "", ""]
    linked = tifffile.imread(tmp_path / "out" / "linked" / "a.tif")
    np.testing.assert_array_equal(linked, [squares(1, 2), squares(1, 2), squares(0, 2)])
    with tifffile.TiffFile(tmp_path / "out" / "linked" / "a.tif") as file:
        assert (file.series[0].axes, file.imagej_metadata["spacing"]) == ("ZYX", 3.0)
    assert {path.name for path in result.files} == {
        "objects.csv",
        "images.csv",
        "volumes.csv",
        "a.tif",
        "b.tif",
    }


def test_linked_times_are_tracks(tmp_path):
    write_stack(tmp_path / "masks" / "a.tif", [squares(1, 2), squares(2, 1)], axes="TYX")
    measure_folder(tmp_path / "masks", tmp_path / "out", masks_are="instances", link="time")
    assert [row["track_id"] for row in read(tmp_path / "out" / "objects.csv")] == ["1", "2", "2", "1"]
    tracks = read(tmp_path / "out" / "tracks.csv")
    assert [(row["track_id"], row["first"], row["last"], row["distance_um"]) for row in tracks] == [
        ("1", "1", "2", "0"), ("2", "1", "2", "0"),
    ]  # fmt: skip


def test_regions_of_classes_are_linked_too(tmp_path):
    write_stack(tmp_path / "masks" / "a.tif", [squares(255, 255), squares(255, 0)])
    measure_folder(tmp_path / "masks", tmp_path / "out", link="planes")
    assert [row["volume"] for row in read(tmp_path / "out" / "volumes.csv")] == ["50", "25"]


def test_the_images_tell_the_axes_and_the_distance_of_planes(tmp_path):
    pages = [squares(1, 2), squares(1, 2)]
    tifffile.imwrite(tmp_path / "masks.tif", np.array(pages))
    write_stack(tmp_path / "images.tif", pages, spacing=2.0)
    options = {"images": tmp_path / "images.tif", "masks_are": "instances"}
    measure_folder(tmp_path / "masks.tif", tmp_path / "out", link="planes", **options)
    assert [row["volume_um3"] for row in read(tmp_path / "out" / "volumes.csv")] == ["25", "25"]


def test_what_cannot_be_linked(folder):
    root = folder({"one": squares(1, 2)}, images=False)
    told = complaint(InputError, root / "masks", root / "out", masks_are="instances", link="planes")
    assert told.startswith("every file holds one page, so that there are no planes to link")
    write_stack(root / "times" / "a.tif", [squares(1, 2), squares(1, 2)])
    write_stack(root / "times" / "b.tif", [squares(1, 2), squares(1, 2)], axes="TYX")
    told = complaint(InputError, root / "times", root / "out", masks_are="instances", link="planes")
    assert "b.tif holds time points, expected planes (Z) to link" in told
    assert not (root / "out").exists()


def test_a_table_of_links_is_not_left_beside_other_tables(tmp_path):
    masks, out = tmp_path / "masks", tmp_path / "out"
    write_stack(masks / "a.tif", [squares(1, 2), squares(1, 2)])
    measure_folder(masks, out, masks_are="instances", link="planes")
    for link in (None, "time"):
        told = complaint(OutputError, masks, out, masks_are="instances", link=link, overwrite=True)
        assert (
            "out/linked/a.tif of an earlier run would stay" in told or "volumes.csv of an earlier run" in told
        )
    measure_folder(masks, out, masks_are="instances", link="planes", overwrite=True)
    (masks / "a.tif").rename(masks / "b.tif")
    told = complaint(OutputError, masks, out, masks_are="instances", link="planes", overwrite=True)
    assert "out/linked/a.tif of an earlier run would stay" in told


@pytest.mark.parametrize("axes", ["TZYX", "ZTYX"])
def test_bodies_and_tracks_of_files_with_both_axes(tmp_path, axes):
    """Three times of two planes, in either order of the file."""
    pages = np.stack([np.stack([squares(1, 2)] * 2)] * 3)
    pages = pages if axes == "TZYX" else pages.swapaxes(0, 1)
    (tmp_path / "masks").mkdir()
    tifffile.imwrite(
        tmp_path / "masks" / "a.ome.tif", pages, metadata={"axes": axes}, photometric="minisblack"
    )
    measure_folder(tmp_path / "masks", tmp_path / "tracks", masks_are="instances", link="time")
    rows = read(tmp_path / "tracks" / "tracks.csv")
    assert [(row["plane"], row["track_id"], row["first"], row["last"]) for row in rows] == [
        ("1", "1", "1", "3"), ("1", "2", "1", "3"), ("2", "3", "1", "3"), ("2", "4", "1", "3"),
    ]  # fmt: skip
    measure_folder(tmp_path / "masks", tmp_path / "bodies", masks_are="instances", link="planes")
    rows = read(tmp_path / "bodies" / "volumes.csv")
    assert [(row["time"], row["object_3d"], row["centroid-0"], row["touches_border"]) for row in rows] == [
        (str(1 + number // 2), str(1 + number), "0.5", "yes") for number in range(6)
    ]


def test_bodies_have_the_class_of_their_regions(tmp_path):
    write_stack(tmp_path / "masks" / "a.tif", [squares(1, 2), squares(2, 2)])
    measure_folder(
        tmp_path / "masks", tmp_path / "out", labels={0: "ground", 1: "cell", 2: "dirt"}, link="planes"
    )
    rows = read(tmp_path / "out" / "volumes.csv")
    assert [(row["class"], row["n_planes"]) for row in rows] == [("cell", "1"), ("dirt", "2"), ("dirt", "1")]


def test_pages_of_different_sizes_are_refused_before_anything_is_written(tmp_path):
    write_stack(tmp_path / "masks" / "a.tif", [squares(1, 2), squares(1, 2)])
    with tifffile.TiffWriter(tmp_path / "masks" / "b.tif") as file:
        for page in (squares(1, 2), squares(1, 2, 3)):
            file.write(page, photometric="minisblack")
    told = complaint(InputError, tmp_path / "masks", tmp_path / "out", masks_are="instances", link="planes")
    assert "b.tif" in told
    assert not (tmp_path / "out").exists()


def test_an_only_axis_is_what_the_user_says(tmp_path):
    write_stack(tmp_path / "masks" / "a.tif", [squares(1, 2), squares(1, 2)])
    measure_folder(tmp_path / "masks", tmp_path / "out", masks_are="instances", link="time")
    with tifffile.TiffFile(tmp_path / "out" / "linked" / "a.tif") as file:
        assert file.series[0].axes == "TYX"
