"""Objects written are read back pixel for pixel, whatever the file; files of other programs are read as they are."""

import json
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
    annotations += [{"id": 99, "image_id": 4, "iscrowd": 1, "segmentation": segmentations[1]}]
    content = {"images": [entry], "annotations": annotations}
    (tmp_path / "a.json").write_text(json.dumps(content))
    labels, told = read_told(tmp_path / "a.json")
    expected = 3 * mask.astype(int)
    expected[:2, :2] = expected[0, 4:] = 1
    np.testing.assert_array_equal(labels, expected)
    assert told[0] == ("2 outlines without area left out (1 crowd, 1 without segmentation; a.json)")
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
