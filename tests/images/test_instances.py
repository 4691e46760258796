"""Objects written are read back pixel for pixel, whatever the file; files of other programs are read as they are."""

import json
import re
import warnings
import zipfile

import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from segkit.errors import OutputError
from segkit.images import read_instances, write_geojson, write_labels, write_rois
from segkit.images.coco import Coco, decode_runs
from tests.images.conftest import complaint

roifile = pytest.importorskip("roifile")

IDS = st.sampled_from([0, 0, 0, 1, 2, 7, 300])
LABELS = arrays(np.int32, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=IDS)
WRITERS = {"a.png": write_labels, "a.tif": write_labels, "a.json": write_geojson, "a.zip": write_rois}
SQUARE = [[1, 1], [4, 1], [4, 4], [1, 4], [1, 1]]
HOLE = [[2, 2], [3, 2], [3, 3], [2, 3], [2, 2]]


def read_told(path, shape=None):
    """The objects, and the warnings in words."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        labels = read_instances(path, shape)
    return labels, [str(one.message) for one in told]


def feature(coordinates, kind="Polygon", **properties):
    return {
        "type": "Feature",
        "geometry": {"type": kind, "coordinates": coordinates},
        "properties": properties,
    }


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(labels=LABELS)
def test_written_objects_are_read_back(tmp_path, name, labels):
    WRITERS[name](tmp_path / name, labels)
    back = read_instances(tmp_path / name, labels.shape)
    assert back.dtype == np.int32
    np.testing.assert_array_equal(back, labels)


@pytest.mark.parametrize("name", ["a.tif", "a.json", "a.zip"])
def test_whole_images_are_read_back(tmp_path, name):
    """A large object with thousands of holes and pieces, one pixel objects, objects along the border."""
    rng = np.random.default_rng(0)
    labels = (rng.random((100, 90)) < 0.6).astype(np.int32)
    labels[:10] = np.arange(900).reshape(10, 90) + 1
    WRITERS[name](tmp_path / name, labels)
    np.testing.assert_array_equal(read_instances(tmp_path / name, labels.shape), labels)


def test_ids_beyond_16_bits(tmp_path):
    labels = np.arange(70_000, dtype=np.int64).reshape(250, 280)
    assert complaint(write_labels, tmp_path / "a.png", labels, error=OutputError) == (
        f"{tmp_path / 'a.png'}: ids up to 69999, PNG holds ids up to 65535: name it a.tif"
    )
    write_labels(tmp_path / "a.tif", labels)
    assert tifffile.imread(tmp_path / "a.tif").dtype == np.uint32
    np.testing.assert_array_equal(read_instances(tmp_path / "a.tif"), labels)


def test_label_images_of_any_type(tmp_path):
    labels = np.arange(20).reshape(4, 5)
    for dtype in (np.uint8, np.int16, np.int64, np.float32):
        tifffile.imwrite(tmp_path / "a.tif", labels.astype(dtype))
        np.testing.assert_array_equal(read_instances(tmp_path / "a.tif", (4, 5)), labels)


def test_what_is_no_label_image(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.array([[-1, 3]], dtype=np.int16))
    assert complaint(read_instances, path) == (
        f"{path}: ids of objects from -1 to 3, expected 0 for background and ids from 1 to 2147483647: "
        "number the objects anew"
    )
    tifffile.imwrite(path, np.zeros((2, 4, 5), dtype=np.uint8), photometric="minisblack")
    assert complaint(read_instances, path) == f"{path}: 2 pages, expected one: save each page as a file"
    write_labels(path, np.zeros((4, 5), dtype=int))
    assert complaint(read_instances, path, (4, 6)) == (
        f"{path}: image of 4 x 6 pixels, label image of 4 x 5, expected one size: "
        "export the label image at the size of the image"
    )
    for write in (write_labels, write_geojson, write_rois):
        assert "label image of dtype float64 and shape (4, 5), expected whole numbers" in complaint(
            write, path, np.zeros((4, 5))
        )
    for name, write in (("a.xml", write_geojson), ("a.roi", write_rois)):
        assert "extension" in complaint(write, tmp_path / name, np.zeros((4, 5), int), error=OutputError)


def test_geojson_is_what_qupath_writes(tmp_path):
    labels = np.zeros((6, 7), dtype=np.int32)
    labels[1:4, 1:4] = 5
    labels[2, 2] = 0
    labels[5, 5] = labels[4, 6] = 2
    write_geojson(tmp_path / "a.geojson", labels, {5: "Tumor"})
    content = json.loads((tmp_path / "a.geojson").read_text())
    two, five = content["features"]
    assert content["type"] == "FeatureCollection"
    assert two["geometry"]["type"] == "MultiPolygon"
    assert two["properties"] == {"objectType": "detection", "name": "2"}
    assert five["properties"] == {
        "objectType": "detection",
        "name": "5",
        "classification": {"name": "Tumor"},
    }
    outer, hole = five["geometry"]["coordinates"]
    assert {tuple(point) for point in outer} == {tuple(point) for point in SQUARE}
    assert {tuple(point) for point in hole} == {tuple(point) for point in HOLE}
    assert outer[0] == outer[-1]


@pytest.mark.parametrize("wrap", [list, lambda f: {"type": "FeatureCollection", "features": f}])
def test_geojson_of_qupath(tmp_path, wrap):
    features = [
        feature(
            [SQUARE, HOLE], objectType="annotation", classification={"name": "Tumor", "color": [200, 0, 0]}
        ),
        feature([[[[5.0, 0.0], [6.5, 0], [6.5, 1.2], [5, 1.2]]]], kind="MultiPolygon", name="x"),
        feature([2, 2], kind="Point"),
        {"type": "Feature", "geometry": None, "properties": None},
    ]
    (tmp_path / "a.geojson").write_text(json.dumps(wrap(features)), encoding="utf-8-sig")
    labels, told = read_told(tmp_path / "a.geojson", (6, 7))
    assert labels.tolist()[0] == [0, 0, 0, 0, 0, 2, 0]
    assert labels[1:4, 1:4].tolist() == [[1, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert told == [
        "2 outlines without area left out (1 Point, 1 without geometry; a.geojson)",
        "objects of several classes (1 Tumor, 1 without class): all are read as object",
    ]


def test_polygons_of_a_collection_are_pieces_of_one_object(tmp_path):
    polygons = [{"type": "Polygon", "coordinates": [square_at(x)]} for x in (0.0, 4.0)]
    collection = {
        "type": "GeometryCollection",
        "geometries": [{"type": "Point", "coordinates": [1, 1]}, *polygons],
    }
    features = [{"type": "Feature", "geometry": collection, "properties": {}}]
    (tmp_path / "a.geojson").write_text(json.dumps(features))
    labels, told = read_told(tmp_path / "a.geojson", (3, 7))
    assert labels.tolist() == [[1, 1, 0, 0, 1, 1, 0], [1, 1, 0, 0, 1, 1, 0], [0] * 7]
    assert told == []


def square_at(x):
    return [[x, 0.0], [x + 2, 0.0], [x + 2, 2.0], [x, 2.0], [x, 0.0]]


def test_one_feature_is_an_object(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(feature([SQUARE])))
    assert read_instances(tmp_path / "a.json", (5, 5)).sum() == 9
    assert complaint(read_instances, tmp_path / "a.json") == (
        f"{tmp_path / 'a.json'}: outlines without the size of their image: give the images (--images DIR, in Python "
        "images= or shape=)"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "cannot be read as JSON"),
        ("3", "neither GeoJSON nor COCO"),
        ('{"shapes": []}', "neither GeoJSON nor COCO"),
        (json.dumps([feature([[[0, 0], ["a", 1], [2, 2]]])]), "no pairs of finite numbers"),
        ('{"images": [{}], "annotations": []}', "not a COCO file"),
        ('{"images": [{"id": 1, "file_name": "."}], "annotations": []}', "not a COCO file"),
        ('{"images": [{"id": [], "file_name": "a"}], "annotations": []}', "not a COCO file"),
    ],
)
def test_damaged_json(tmp_path, text, told):
    (tmp_path / "a.json").write_text(text)
    message = complaint(read_instances, tmp_path / "a.json", (5, 5))
    assert message.startswith(f"{tmp_path / 'a.json'}: ")
    assert told in message


def test_later_objects_win_and_lost_ones_are_counted(tmp_path):
    def box(left, right):
        return feature([[[left, 0], [right, 0], [right, 2], [left, 2]]])

    features = [box(0, 2), box(2, 4), box(1, 5), box(20, 30), box(6.1, 6.2), box(2, 3)]
    (tmp_path / "a.geojson").write_text(json.dumps(features))
    labels, told = read_told(tmp_path / "a.geojson", (2, 8))
    assert labels[0].tolist() == [1, 3, 6, 3, 3, 0, 0, 0]
    assert told == [
        "2 objects (a.geojson) outside the image, or too small to hold the centre of a pixel: left out",
        "2 objects (a.geojson) drawn over earlier ones, 8 pixels: the later one counts there",
        "1 object (a.geojson) covered by later ones as a whole: left out",
    ]


def test_regions_of_imagej(tmp_path):
    types = roifile.ROI_TYPE
    shapes = [
        roifile.ImagejRoi(roitype=types.RECT, left=1, top=0, right=4, bottom=2, name="r"),
        roifile.ImagejRoi(roitype=types.OVAL, left=0, top=4, right=10, bottom=14, name="o"),
        roifile.ImagejRoi.frompoints(
            np.array([(10.0, 0.0), (12.4, 0.0), (12.4, 3.6), (10.0, 3.6)]), name="f"
        ),
        roifile.ImagejRoi(roitype=types.LINE, x1=1, y1=1, x2=5, y2=5, name="l"),
        roifile.ImagejRoi(
            roitype=types.RECT,
            shape_roi_size=30,
            multi_coordinates=np.array(
                [0, 14, 0, 1, 18, 0, 1, 18, 4, 1, 14, 4, 4, 0, 15, 1, 1, 15, 3, 1, 17, 3, 1, 17, 1, 4],
                dtype=np.float32,
            ),
            right=18,
            bottom=4,
        ),
    ]
    shapes[4].shape_roi_size = len(shapes[4].multi_coordinates)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for number, roi in enumerate(shapes):
            file.writestr(f"{number}.roi", roi.tobytes())
        file.writestr("__MACOSX/._0.roi", b"x")
    with pytest.warns(UserWarning, match=r"^1 outline without area left out \(1 line; a.zip\)$"):
        labels = read_instances(tmp_path / "a.zip", (16, 20))
    rows, columns = np.indices((16, 20)) + 0.5
    np.testing.assert_array_equal(labels == 1, (rows < 2) & (columns > 1) & (columns < 4))
    np.testing.assert_array_equal(labels == 2, np.hypot(rows - 9, columns - 5) < 5)
    np.testing.assert_array_equal(labels == 3, (rows < 3.6) & (columns > 10) & (columns < 12.4))
    ring = (rows < 4) & (columns > 14) & (columns < 18)
    np.testing.assert_array_equal(
        labels == 4, ring & ~((rows > 1) & (rows < 3) & (columns > 15) & (columns < 17))
    )
    (tmp_path / "b.roi").write_bytes(shapes[0].tobytes())
    assert read_instances(tmp_path / "b.roi", (16, 20)).sum() == 6


def test_written_regions_are_what_imagej_traces(tmp_path):
    labels = np.zeros((6, 7), dtype=int)
    labels[1:5, 2:6] = 3
    write_rois(tmp_path / "a.zip", labels)
    (roi,) = roifile.roiread(tmp_path / "a.zip")
    assert (roi.name, roi.roitype, roi.left, roi.top, roi.right, roi.bottom) == ("3", 8, 2, 1, 6, 5)
    before = (tmp_path / "a.zip").read_bytes()
    write_rois(tmp_path / "a.zip", labels)
    assert (tmp_path / "a.zip").read_bytes() == before


def test_damaged_regions(tmp_path):
    (tmp_path / "a.roi").write_bytes(b"Iout")
    assert "cannot be read as ImageJ ROI (" in complaint(read_instances, tmp_path / "a.roi", (5, 5))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a.txt", "x")
    assert complaint(read_instances, tmp_path / "a.zip", (5, 5)) == (
        f"{tmp_path / 'a.zip'}: holds no ImageJ ROI, expected .roi files: save it from the ROI Manager"
    )
    assert "no such file" in complaint(read_instances, tmp_path / "b.zip", (5, 5))


def test_without_the_package_for_regions(tmp_path, monkeypatch):
    (tmp_path / "a.roi").write_bytes(b"Iout")
    monkeypatch.setitem(__import__("sys").modules, "roifile", None)
    told = f'{tmp_path / "a.roi"}: ImageJ ROIs need the package roifile: pip install "segkit-bio[objects]"'
    assert complaint(read_instances, tmp_path / "a.roi", (5, 5)) == told
    assert complaint(write_rois, tmp_path / "a.roi", np.zeros((5, 5), int)) == told


def runs(mask):
    """Lengths of runs down the columns, the first of 0."""
    flat = mask.T.ravel()
    ends = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff([0, *ends, flat.size]).tolist()
    return [0, *lengths] if flat[0] else lengths


def compress(counts):
    """Write run lengths as COCO's own tools do."""
    text = ""
    for place, count in enumerate(counts):
        value, more = count - (counts[place - 2] if place > 2 else 0), True
        while more:
            bits = value & 0x1F
            value >>= 5
            more = value != (-1 if bits & 0x10 else 0)
            text += chr(bits + (0x20 if more else 0) + 48)
    return text


@given(arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 40)), elements=st.integers(0, 1)))
def test_run_lengths(mask):
    np.testing.assert_array_equal(decode_runs(runs(mask), mask.shape), mask)
    np.testing.assert_array_equal(decode_runs(compress(runs(mask)), mask.shape), mask)


def test_coco_of_one_image(tmp_path):
    mask = np.zeros((5, 6), dtype=np.uint8)
    mask[3:, 4:] = 1
    entry = {"id": 4, "file_name": "deep/a b.tif", "height": 5, "width": 6}
    segmentations = [
        [[0, 0, 2, 0, 2, 2, 0, 2], [4, 0, 6, 0, 6, 1, 4, 1]],
        {"size": [5, 6], "counts": runs(mask)},
        {"size": [5, 6], "counts": compress(runs(mask))},
        [],
    ]
    annotations = [{"id": 90 + i, "image_id": 4, "segmentation": one} for i, one in enumerate(segmentations)]
    content = {"images": [entry], "annotations": annotations}
    (tmp_path / "a.json").write_text(json.dumps(content))
    labels, told = read_told(tmp_path / "a.json")
    expected = 3 * mask.astype(int)
    expected[:2, :2] = expected[0, 4:] = 1
    np.testing.assert_array_equal(labels, expected)
    assert told[0] == "1 outline without area left out (1 without segmentation; a.json)"
    assert complaint(read_instances, tmp_path / "a.json", (6, 6)).endswith(
        "outlines for an image of 5 x 6 pixels, image of 6 x 6, expected one size: export them for this image"
    )
    annotations[0]["segmentation"] = {"size": [5, 6], "counts": [3]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert "damaged segmentation (runs of 3 pixels for 5 x 6)" in complaint(
        read_instances, tmp_path / "a.json"
    )
    content["images"].append({"id": 5, "file_name": "b.png"})
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert "COCO file of 2 images" in complaint(read_instances, tmp_path / "a.json")


def test_coco_annotations_of_images_that_are_not_listed_are_refused():
    images = [{"id": 1, "file_name": "a.png"}]
    content = {"images": images, "annotations": [{"id": 7, "image_id": 2}, {"id": 8, "image_id": 1}]}
    assert complaint(Coco, content, name="f.json") == (
        "f.json: annotations of 1 image that it does not list (image_id 2), expected only of those under images: "
        "export it again"
    )


def test_coco_images_are_found_by_path_or_name():
    images = [
        {"id": number, "file_name": name} for number, name in enumerate(("x/a.png", "y/a.png", "b.png"))
    ]
    coco = Coco({"images": images, "annotations": []})
    assert coco.match(["x/a", "a", "z/b"]) == {"x/a": "x/a", "z/b": "b"}


def pieces(shape, *boxes):
    """A mask of boxes: top, left, bottom, right."""
    mask = np.zeros(shape, dtype=np.uint8)
    for top, left, bottom, right in boxes:
        mask[top:bottom, left:right] = 1
    return mask


def write_coco(path, annotations, **image):
    entry = {"id": 1, "file_name": "a.png", "height": 8, "width": 9, **image}
    annotations = [{"id": 5 + n, "image_id": 1, **one} for n, one in enumerate(annotations)]
    path.write_text(json.dumps({"images": [entry], "annotations": annotations}))
    return path


@pytest.mark.parametrize("crowd", [1, True, "1"])
def test_masks_drawn_with_a_brush_are_objects(tmp_path, crowd):
    """CVAT writes them as run lengths marked iscrowd."""
    brush = pieces((8, 9), (1, 1, 4, 4), (4, 4, 6, 6))
    runs_of = {"size": [8, 9], "counts": runs(brush)}
    annotations = [
        {"iscrowd": crowd, "segmentation": runs_of},
        {"iscrowd": 0, "segmentation": [[6, 0, 9, 0, 9, 2, 6, 2]]},
        {"iscrowd": "0", "segmentation": [[7, 5, 9, 5, 9, 7, 7, 7]]},
    ]
    labels, told = read_told(write_coco(tmp_path / "a.json", annotations))
    assert told == []
    expected = brush.astype(int)
    expected[:2, 6:], expected[5:7, 7:] = 2, 3
    np.testing.assert_array_equal(labels, expected)


def test_boxes_without_outlines_are_refused(tmp_path):
    annotations = [{"bbox": [0, 0, 4, 4], "segmentation": []}, {"segmentation": [[6, 0, 9, 0, 9, 2]]}]
    path = write_coco(tmp_path / "a.json", annotations)
    assert complaint(read_instances, path) == (
        f"{path} (a): 1 annotation (id 5) with a box and without an outline, expected the outline of each object: draw it, "
        "or remove them"
    )


@pytest.mark.parametrize("image", [{}, {"height": None, "width": None}])
def test_run_lengths_of_another_size_than_the_image(tmp_path, image):
    annotations = [{"segmentation": {"size": [9, 8], "counts": runs(np.eye(9, 8, dtype=np.uint8))}}]
    path = write_coco(tmp_path / "a.json", annotations, **image)
    assert "9 x 8" in complaint(read_instances, path, (8, 9))


def test_run_lengths_of_two_sizes(tmp_path):
    masks = [np.eye(*size, dtype=np.uint8) for size in ((4, 5), (5, 4))]
    annotations = [{"segmentation": {"size": list(mask.shape), "counts": runs(mask)}} for mask in masks]
    path = write_coco(tmp_path / "a.json", annotations, height=0, width=0)
    assert complaint(read_instances, path) == (
        f"{path} (a): image and run lengths of 4 x 5 and 5 x 4 pixels, expected one size: export it again"
    )


@pytest.mark.parametrize(
    ("second", "told"),
    [({"id": 2, "file_name": "a.tif"}, "one name (a)"), ({"id": 1, "file_name": "b.png"}, "one id (1)")],
)
def test_images_of_one_name_in_a_coco_file(second, told):
    content = {"images": [{"id": 1, "file_name": "a.png"}, second], "annotations": []}
    assert complaint(Coco, content, name="f.json") == (
        f"f.json: several images of {told}, expected each once: export them to files apart"
    )


def square(left, top, side, **properties):
    right, bottom = left + side, top + side
    return feature([[[left, top], [right, top], [right, bottom], [left, bottom]]], **properties)


def quick_geojson(path, features):
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


KINDS_OF_QUPATH = [
    ({"objectType": "annotation"}, {"objectType": "detection"}),
    ({"objectType": "annotation"}, {"objectType": "cell"}),
    ({"objectType": "tmaCore"}, {}),
    ({"classification": {"name": "Region*"}}, {"objectType": "annotation"}),
    ({"object_type": "annotation"}, {"object_type": "detection"}),
]


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(("region", "objects"), KINDS_OF_QUPATH)
def test_regions_around_objects_are_no_objects(tmp_path, region, objects, is_last):
    """QuPath exports the annotation in which it detected cells beside these cells."""
    cells = [square(left, 2, 2, **objects) for left in (2, 5, 9)]
    around = square(1, 1, 8, **region)
    path = quick_geojson(tmp_path / "a.geojson", [*cells, around] if is_last else [around, *cells])
    labels, told = read_told(path, (12, 14))
    expected = np.zeros((12, 14), dtype=int)
    for number, left in enumerate((2, 5, 9)):
        expected[2:4, left : left + 2] = number + 1
    np.testing.assert_array_equal(labels, expected)
    assert told[0] == (
        "1 region (a.geojson) around objects: no objects themselves, and pixels outside count as not annotated"
    )


def test_regions_of_old_versions_of_qupath(tmp_path):
    features = [square(0, 0, 9) | {"id": "PathAnnotationObject"}]
    features += [square(left, 2, 2) | {"id": "PathDetectionObject"} for left in (2, 5)]
    labels, _ = read_told(quick_geojson(tmp_path / "a.geojson", features), (9, 9))
    assert np.count_nonzero(labels) == 8


def test_an_annotation_beside_detections_may_be_either(tmp_path):
    features = [square(0, 0, 3, objectType="annotation"), square(4, 4, 3, objectType="detection")]
    path = quick_geojson(tmp_path / "a.geojson", features)
    assert complaint(read_instances, path, (9, 9)) == (
        f"{path}: 1 annotation beside detections with none or one of them inside: objects, or regions? Make objects "
        "detections in QuPath, or give regions the class Region*"
    )


def test_ignored_regions_hold_no_objects(tmp_path):
    features = [square(0, 0, 3), square(5, 5, 3), square(4, 4, 5, classification={"name": "Ignore*"})]
    labels, told = read_told(quick_geojson(tmp_path / "a.geojson", features), (9, 9))
    assert labels.sum() == 9
    assert told == ["1 outline (a.geojson) of class Ignore*: pixels inside count as not annotated"]


def slices_of_imagej(path, positions):
    rois = [
        roifile.ImagejRoi(roitype=roifile.ROI_TYPE.RECT, left=3 * n, right=3 * n + 2, bottom=2, **position)
        for n, position in enumerate(positions)
    ]
    with zipfile.ZipFile(path, "w") as file:
        for number, roi in enumerate(rois):
            file.writestr(f"{number}.roi", roi.tobytes())
    return path


@pytest.mark.parametrize(
    ("positions", "told"),
    [
        ([{"position": 10}, {"position": 2}, {"position": 0}], "2 slices (2, 10)"),
        (
            [{"z_position": 1, "t_position": 1}, {"z_position": 1, "t_position": 2}],
            "2 slices (z 1, t 1, z 1, t 2)",
        ),
    ],
)
def test_regions_of_several_slices_are_refused(tmp_path, positions, told):
    path = slices_of_imagej(tmp_path / "a.zip", positions)
    assert complaint(read_instances, path, (9, 9)) == (
        f"{path}: outlines of {told} for an image of one plane, expected those of one: save them by slice, or, if all "
        "belong to this plane, remove their positions (ImageJ: ROI Manager, More, Remove Positions)"
    )


@pytest.mark.parametrize(
    "positions",
    [
        [{"position": 4}, {"position": 4}, {"position": 0}],
        [
            {"c_position": 1, "z_position": 1, "t_position": 1},
            {"c_position": 2, "z_position": 1, "t_position": 1},
        ],
    ],
)
def test_regions_of_one_slice_are_read(tmp_path, positions):
    path = slices_of_imagej(tmp_path / "a.zip", positions)
    assert read_instances(path, (9, 9)).max() == len(positions)


def test_outlines_of_several_planes_of_qupath(tmp_path):
    features = [square(0, 0, 2), square(4, 4, 2)]
    features[1]["geometry"]["plane"] = {"c": -1, "z": 3, "t": 0}
    path = quick_geojson(tmp_path / "a.geojson", features)
    assert "outlines of 2 slices (z 0, t 0, z 3, t 0) for an image" in complaint(read_instances, path, (9, 9))
    features[1]["geometry"]["plane"] = 3
    assert read_instances(quick_geojson(path, features), (9, 9)).max() == 2


def test_rectangles_with_round_corners(tmp_path):
    roi = roifile.ImagejRoi(
        roitype=roifile.ROI_TYPE.RECT, left=2, top=3, right=42, bottom=23, rounded_rect_arc_size=16
    )
    (tmp_path / "a.roi").write_bytes(roi.tobytes())
    rows, columns = np.indices((30, 50)) + 0.5
    from_core = np.maximum(np.abs(rows - 13) - 2, 0), np.maximum(np.abs(columns - 22) - 12, 0)
    np.testing.assert_array_equal(read_instances(tmp_path / "a.roi", (30, 50)) == 1, np.hypot(*from_core) < 8)


def test_an_image_of_no_size_in_a_coco_file(tmp_path):
    path = write_coco(tmp_path / "a.json", [], height="tall")
    assert complaint(read_instances, path) == (
        f"{path}: image of 'tall' x 9 pixels, expected whole numbers: export it again"
    )


TALL = [[[0, 0], [int("9" * 4000), 0], [5, 5]]]


@pytest.mark.parametrize(
    ("features", "told"),
    [
        (
            [feature([SQUARE]) | {"geometry": [1, 2, 3]}],
            "not GeoJSON ('list' object has no attribute 'get'), expected",
        ),
        (
            [feature([SQUARE], classification=["Tumor"])],
            "not GeoJSON ('list' object has no attribute 'get'), expected",
        ),
        (
            [feature([SQUARE], kind={"a": 1})],
            "not GeoJSON (the type of a geometry is a dict), expected features",
        ),
        ([feature([SQUARE], kind=0.5)], "not GeoJSON (the type of a geometry is a float), expected features"),
        ([feature(TALL)], "outline with coordinates that are no pairs of finite numbers, expected"),
        (
            [feature([[[0, 0], [1e300, 0], [5, 5]]])],
            "outline with coordinates that are no pairs of finite numbers",
        ),
        ([feature(5)], "outline with coordinates that are no pairs of finite numbers"),
    ],
    ids=["geometry", "class", "type", "number type", "digits", "far", "number"],
)
def test_odd_geojson_is_refused_in_one_line(tmp_path, features, told):
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps(features))
    assert complaint(read_instances, path, (6, 7)).startswith(f"{path}: {told}")


def test_names_and_planes_of_thousands_of_digits_are_no_numbers(tmp_path):
    plane = {"z": "9" * 5000}
    square = {"type": "Polygon", "coordinates": [SQUARE], "plane": plane}
    quick_geojson(tmp_path / "a.geojson", [feature([SQUARE], name="9" * 5000) | {"geometry": square}])
    assert read_instances(tmp_path / "a.geojson", (6, 7)).max() == 1
    other = feature([SQUARE]) | {"geometry": square | {"plane": {"z": "8" * 5000}}}
    quick_geojson(tmp_path / "a.geojson", [feature([SQUARE]) | {"geometry": square}, other])
    assert "outlines of 2 slices" in complaint(read_instances, tmp_path / "a.geojson", (6, 7))


def test_outlines_over_each_other_are_refused_before_they_are_painted(tmp_path, monkeypatch):
    monkeypatch.setattr("segkit.images.outlines._HARMLESS_WORK", 0)
    whole = [[0, 0], [7, 0], [7, 6], [0, 6]]
    boxes = {
        "a.geojson": [feature([whole])] * 99,
        "b.geojson": [feature([[whole]] * 99, kind="MultiPolygon")],
    }
    for name, features in boxes.items():  # an edge counts too
        quick_geojson(tmp_path / name, features)
        told = complaint(read_instances, tmp_path / name, (6, 7))
        assert re.search(
            r"outlines? whose boxes cover the image 212 times, expected up to 100: export each", told
        )
    runs = {"size": [6, 7], "counts": [0, 42]}
    write_coco(tmp_path / "a.json", [{"segmentation": runs}] * 101, height=6, width=7)
    assert "101 outlines whose boxes cover the image 101 times" in complaint(
        read_instances, tmp_path / "a.json"
    )
    write_coco(tmp_path / "a.json", [{"segmentation": runs}] * 100, height=6, width=7)
    with pytest.warns(UserWarning, match="99 objects"):
        assert (read_instances(tmp_path / "a.json") == 100).all()


def test_the_image_of_outlines_is_held_against_the_memory_that_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: 16 * 40_000**2 - 1)
    runs = {"size": [40_000, 40_000], "counts": [0, 40_000**2]}
    for segmentation in (runs, [[0, 0, 9, 0, 9, 9]]):
        write_coco(tmp_path / "a.json", [{"segmentation": segmentation}], height=40_000, width=40_000)
        told = complaint(read_instances, tmp_path / "a.json")
        # beside what the program uses already
        assert re.search(
            r"outlines for an image of 40000 x 40000 pixels: needs 2[3-9]\.\d GiB of memory", told
        )
        assert "expected one size" in complaint(read_instances, tmp_path / "a.json", (6, 7))


def test_files_of_coordinates_are_held_against_the_memory_that_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: 2**26)
    quick_geojson(tmp_path / "a.geojson", [feature([SQUARE * 200_000])])
    assert "a.geojson: outlines: needs " in complaint(read_instances, tmp_path / "a.geojson", (6, 7))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.roi", bytes(9_000_000))
    assert "a.zip: 1 ROI: needs " in complaint(read_instances, tmp_path / "a.zip", (6, 7))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.roi", bytes(2**24 + 1))
    assert "an ROI of 16,777,217 bytes, expected up to 16,777,216" in complaint(
        read_instances, tmp_path / "a.zip", (6, 7)
    )


def test_a_category_that_is_a_list_is_none(tmp_path):
    annotation = {"segmentation": [[1, 1, 4, 1, 4, 4, 1, 4]], "category_id": [1]}
    assert read_instances(write_coco(tmp_path / "a.json", [annotation])).max() == 1


@pytest.mark.parametrize(
    ("segmentation", "told"),
    [
        ({"size": [8, 9], "counts": "o" * 100_000}, "a run without end"),
        ({"size": [8, 9], "counts": [0, 10**30]}, "runs of "),
        ({"size": [-6, -9], "counts": [0, 54]}, "sides of -6 and -9 pixels"),
        ({"size": [1e400, 9], "counts": [0, 54]}, "cannot convert float infinity to integer"),
        ({"counts": [0, 54]}, "'size'"),
    ],
)
def test_damaged_run_lengths_are_refused_in_one_line(tmp_path, segmentation, told):
    path = write_coco(tmp_path / "a.json", [{"segmentation": segmentation}])
    assert f"{path}: damaged segmentation ({told}" in complaint(read_instances, path)
